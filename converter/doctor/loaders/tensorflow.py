"""What TensorFlow's loaders make of an artifact on a host: rules with its own messages.

TensorFlow places softly: what is put on a device that is not here runs on the CPU without a word.
So a SavedModel of GPUs loads on a CPU; what fails is an op that this TensorFlow does not have, and,
where soft placement is off (servers, sessions), every explicit device.
Spec: https://www.tensorflow.org/api_docs/python/tf/config/set_soft_device_placement
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from converter.doctor.data.tensorflow_ops import OPS
from converter.doctor.findings import Finding, Prediction
from converter.doctor.host import Host

REFERENCE = "2.21"
COLLECTIVES = ("Collective", "Nccl")
CUDNN_ONLY = ("CudnnRNN",)


@dataclass(frozen=True, slots=True)
class TensorFlowFacts:
    """What of an artifact decides how TensorFlow's loaders end.

    Attributes:
        kind: ``savedmodel``, ``graphdef`` or ``checkpoint``.
        ops: Op → how many nodes, those of functions included.
        devices: Explicit devices of nodes and variables → how many.
        functions: Python functions and the like that only the process that saved it had.
        own_functions: Names of the graph's own functions, which nodes may call as ops.
    """

    kind: str
    ops: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    own_functions: frozenset[str] = frozenset()

    @property
    def unknown_ops(self) -> tuple[str, ...]:
        """Ops that are neither TensorFlow's nor functions of the graph's own."""
        return tuple(sorted(set(self.ops) - OPS - self.own_functions))


LOADERS = {
    "savedmodel": "tf.saved_model.load(path)",
    "graphdef": "tf.graph_util.import_graph_def(graph_def)",
    "checkpoint": "tf.train.load_checkpoint(path)",
}


def predict(facts: TensorFlowFacts, host: Host) -> list[Prediction]:
    """Return what TensorFlow makes of an artifact here."""
    package = host.tensorflow
    version = package.version if package else REFERENCE
    loader, unknown = LOADERS[facts.kind], facts.unknown_ops
    if not unknown or facts.kind == "checkpoint":
        return [Prediction(loader, "tensorflow", version, package is not None, "loads")]
    text = f"Op type not registered '{unknown[0]}' in binary running on "
    return [
        Prediction(
            loader, "tensorflow", version, package is not None, "fails",
            "NotFoundError" if facts.kind == "graphdef" else "RuntimeError",
            text, "op-unknown",
            f"it needs {', '.join(unknown[:5])}, which another library brings (tensorflow_text, "
            "an add-on, a custom op) or an older TensorFlow had",
            "import the library that registers the op, first",
        )
    ]  # fmt: skip


def gpus(host: Host) -> int:
    """Return how many GPUs TensorFlow sees here, by its own word or by what is known."""
    seen = host.seen.get("tensorflow")
    if seen and not seen.problem:
        count = seen.facts.get("gpus")
        return count if isinstance(count, int) else 0
    built = host.tensorflow is not None and host.tensorflow.build.get("cuda")
    return len(host.visible_gpus) if built and host.nvidia.libcuda else 0


def placements(facts: TensorFlowFacts, host: Host) -> list[Finding]:
    """Return what loads here and runs elsewhere than it was meant, or not at all."""
    found = []
    here = gpus(host)
    away = {d: n for d, n in facts.devices.items() if gpu_index(d) is not None}
    absent = {d: n for d, n in away.items() if (gpu_index(d) or 0) >= here}
    if absent:
        first = next(iter(absent))
        found.append(
            Finding(
                "placement-absent", "warning", "source",
                f"{sum(absent.values())} nodes or variables are placed on {', '.join(absent)}; "
                f"TensorFlow sees {here} GPU(s) here",
                "Loaded with tf.saved_model.load they run on the CPU without a word; with soft "
                "placement off, as in servers: \"Cannot assign a device for operation …: … was "
                f'explicitly assigned to {first} but available devices are [ …CPU:0 ]"',
                "convert SOURCE --to savedmodel --device none",
            )
        )  # fmt: skip
    elif here and not away and facts.kind == "savedmodel":
        found.append(
            Finding(
                "placement-free", "note", "source",
                "no node and no variable names a device: the runtime decides where they go",
                "That it runs on the GPU is a claim to measure",
                "convert verify SOURCE CONVERTED --device GPU:0 --require device",
            )
        )  # fmt: skip
    collectives = {op: n for op, n in facts.ops.items() if op.startswith(COLLECTIVES)}
    if collectives:
        found.append(
            Finding(
                "collectives", "warning", "source",
                f"it has {', '.join(f'{n} {op}' for op, n in collectives.items())}",
                "It loads; a function with them waits for the other replicas for ever, or fails "
                "where their number of devices is not there",
                "convert SOURCE --to savedmodel --device none",
            )
        )  # fmt: skip
    cudnn = {op: n for op, n in facts.ops.items() if op.startswith(CUDNN_ONLY)}
    if cudnn and not here:
        found.append(
            Finding(
                "cudnn-ops", "error", "source",
                f"it has {', '.join(f'{n} {op}' for op, n in cudnn.items())}",
                "They have no kernel for the CPU: it loads, and fails when it runs (\"No OpKernel "
                'was registered to support Op")',
                "convert SOURCE --to portable",
            )
        )  # fmt: skip
    python = {
        op: n for op, n in facts.ops.items() if op in ("PyFunc", "EagerPyFunc", "PyFuncStateless")
    }
    if python:
        found.append(
            Finding(
                "py-func", "error", "source",
                f"it has {', '.join(f'{n} {op}' for op, n in python.items())}",
                "They call functions of the Python that saved it: it loads, and fails when it "
                'runs ("callback pyfunc_… is not found")',
                "save it again without tf.py_function, where its code is",
            )
        )  # fmt: skip
    return found


def gpu_index(device: str) -> int | None:
    """Return the number of the GPU that a device string names, or None for another device."""
    text = device.upper()
    at = text.rfind("GPU:")
    if at < 0 or (at > 0 and text[at - 1] not in "/:"):
        return None
    digits = text[at + 4 :]
    return int(digits) if digits.isdecimal() else 0
