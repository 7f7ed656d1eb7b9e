"""Predict how TensorFlow's loaders end: rules with the messages of TensorFlow 2.21.

Soft placement is on by default: an op on a device that is not here runs on the CPU, without a
message. So a SavedModel placed on GPUs loads on a CPU. What fails is an op that this TensorFlow
does not register and, where soft placement is off (servers, sessions), every explicit device.
Spec: https://www.tensorflow.org/api_docs/python/tf/config/set_soft_device_placement
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from converter.doctor.findings import Failure, Finding, Prediction, Severity
from converter.doctor.host import Host

REFERENCE = "2.21"
OPS = Path(__file__).parents[1] / "data" / "tensorflow_ops.txt"


@dataclass(frozen=True, slots=True)
class TensorFlowFacts:
    """What decides how TensorFlow's loaders end.

    Attributes:
        kind: ``savedmodel``, ``graphdef`` or ``checkpoint``.
        ops: Op → number of nodes, those of functions included.
        devices: Explicit device → number of nodes and variables.
        own_functions: Names of the graph's functions, which nodes may call like ops.
    """

    kind: str
    ops: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    own_functions: frozenset[str] = frozenset()

    @property
    def unknown_ops(self) -> tuple[str, ...]:
        """Ops that are neither registered by TensorFlow nor functions of the graph."""
        return tuple(sorted(set(self.ops) - read_registered_ops() - self.own_functions))


@cache
def read_registered_ops() -> frozenset[str]:
    """Return every op that TensorFlow registers, read from OPS; a graph with another fails."""
    return frozenset(OPS.read_text().split())


LOADERS = {
    "savedmodel": "tf.saved_model.load(path)",
    "graphdef": "tf.graph_util.import_graph_def(graph_def)",
    "checkpoint": "tf.train.load_checkpoint(path)",
}


def predict(facts: TensorFlowFacts, host: Host) -> list[Prediction]:
    """Return the outcome of TensorFlow's loader."""
    package, failure = host.tensorflow, None
    unknown = facts.unknown_ops if facts.kind != "checkpoint" else ()
    if unknown:
        failure = Failure(
            "NotFoundError" if facts.kind == "graphdef" else "RuntimeError",
            f"Op type not registered '{unknown[0]}' in binary running on ",
            "op-unknown",
            f"it needs {', '.join(unknown[:5])}, which another library registers "
            "(tensorflow_text, an add-on, a custom op) or an older TensorFlow had",
        )
    return [
        Prediction.of(
            LOADERS[facts.kind], "tensorflow", package.version if package else REFERENCE, failure,
            installed=package is not None,
            mends="import the library that registers the op, first" if unknown else "",
        )
    ]  # fmt: skip


def count_gpus(host: Host) -> int:
    """Return how many GPUs TensorFlow sees, as it reports, or as its build and the driver imply."""
    seen = host.seen.get("tensorflow")
    if seen and not seen.problem:
        count = seen.facts.get("gpus")
        return count if isinstance(count, int) else 0
    built = host.tensorflow is not None and host.tensorflow.build.get("cuda")
    return len(host.visible_gpus) if built and host.nvidia.libcuda else 0


def check_placement(facts: TensorFlowFacts, host: Host) -> list[Finding]:
    """Return why an artifact that loads here runs on another device than intended, or fails."""
    findings = []
    gpus = count_gpus(host)
    on_gpus = {d: n for d, n in facts.devices.items() if parse_gpu_index(d) is not None}
    absent = {d: n for d, n in on_gpus.items() if (parse_gpu_index(d) or 0) >= gpus}
    if absent:
        findings.append(
            Finding(
                "placement-absent", "warning", "source",
                f"{sum(absent.values())} nodes or variables are placed on {', '.join(absent)}; "
                f"TensorFlow sees {gpus} GPU(s) here",
                "Loaded with tf.saved_model.load they run on the CPU, without a message. With soft "
                "placement off, as in servers: \"Cannot assign a device for operation …: … was "
                f"explicitly assigned to {next(iter(absent))} but available devices are "
                '[ …CPU:0 ]"',
                "convert SOURCE --to savedmodel --device none",
            )
        )  # fmt: skip
    elif gpus and not on_gpus and facts.kind == "savedmodel":
        findings.append(
            Finding(
                "placement-free", "note", "source",
                "no node and no variable names a device: the runtime decides where they go",
                "Only a measurement shows that it runs on the GPU",
                "convert verify SOURCE CONVERTED --device GPU:0 --require device",
            )
        )  # fmt: skip
    for code, severity, ops, why, fix in _OPS_THAT_FAIL:
        counts = {op: n for op, n in facts.ops.items() if op.startswith(ops)}
        if counts and not (code == "cudnn-ops" and gpus):
            listed = ", ".join(f"{n} {op}" for op, n in counts.items())
            findings.append(Finding(code, severity, "source", f"it has {listed}", why, fix))
    return findings


# Code, severity, prefixes of ops that load and do not run here, why, and the fix.
_OPS_THAT_FAIL: tuple[tuple[str, Severity, tuple[str, ...], str, str], ...] = (
    (
        "collectives", "warning", ("Collective", "Nccl"),
        ("It loads; a function with them waits for the other replicas for ever, or fails where "
         "so many devices are not available"),
        "convert SOURCE --to savedmodel --device none",
    ),
    (
        "cudnn-ops", "error", ("CudnnRNN",),
        ("They have no kernel for the CPU: it loads, and fails when it runs (\"No OpKernel was "
         'registered to support Op")'),
        "convert SOURCE --to portable",
    ),
    (
        "py-func", "error", ("PyFunc", "EagerPyFunc"),
        ("They call functions of the Python that saved it: it loads, and fails when it runs "
         '("callback pyfunc_… is not found")'),
        "save it again without tf.py_function, where its code is",
    ),
)  # fmt: skip


def parse_gpu_index(device: str) -> int | None:
    """Return the index of the GPU that a device string names, or None for another device."""
    text = device.upper()
    at = text.rfind("GPU:")
    if at < 0 or (at > 0 and text[at - 1] not in "/:"):
        return None
    digits = text[at + 4 :]
    return int(digits) if digits.isdecimal() else 0
