"""TensorFlow on a device: how `run_tensorflow` goes there, and what shows that it did.

Plain like it. What shows where things were is the graph as TensorFlow has split it among devices,
after its placer and optimizer: a `RunMetadata` holds it, of a Session's run and of a function's.
What TensorFlow adds to carry tensors from one device to another is none of the model's.
"""

import contextlib
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CARRIES = frozenset((
    "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv",
    "NoOp", "Placeholder", "Identity", "IdentityN",
))  # fmt: skip
ADDED = re.compile(r"(^|/)_[^/]*$")  # ``while/merge/_17``, ``Func/f/input/_3``: of the runtime
VARIABLES = frozenset(("VarHandleOp", "Variable", "VariableV2", "AutoReloadVariable"))


def beside(name: str) -> Any:
    """Return a module that lies beside this file, which is no place to import from."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Device:
    """The device of a question; or none, which changes nothing.

    Attributes:
        name: As ``GPU:0``; empty for none. ``CPU:1`` is a second logical CPU.
        deterministic: Whether TensorFlow computes the same each time, as requested.
    """

    def __init__(self, tf: Any, question: dict[str, Any]) -> None:
        self.tf = tf
        self.name: str = question.get("device") or ""
        kind, _, number = self.name.partition(":")
        self.kind, self.index = kind, int(number or 0)
        self.as_placed = bool(question.get("as_placed"))
        self.tf32 = bool(question.get("allow_tf32"))
        self.deterministic = False

    def lacks(self) -> str:
        """Return why TensorFlow has no such device, or nothing; before anything runs in it."""
        if not self.name:
            return ""
        config = self.tf.config
        config.experimental.enable_tensor_float_32_execution(self.tf32)
        if self.kind == "CPU":
            (cpu, *_) = config.list_physical_devices("CPU")
            logical = [config.LogicalDeviceConfiguration() for _ in range(self.index + 1)]
            config.set_logical_device_configuration(cpu, logical)
        names = [d.name.rpartition("device:")[2] for d in config.list_logical_devices()]
        if self.name in names:
            return ""
        why = ""
        if self.kind == "GPU":
            about = self.tf.sysconfig.get_build_info()
            if not (about.get("is_cuda_build") or about.get("is_rocm_build")):
                why = ": it is built without CUDA"
            else:
                said = beside("cuda_driver").lacks(self.index)
                why = f": {said or 'the CUDA libraries that it needs do not load'}"
        return f"TensorFlow sees no {self.name}, but {', '.join(names)}{why}"

    def scope(self) -> Any:
        """Return in which scope things are to be made; what is placed by itself needs none."""
        if not self.name or self.as_placed:
            return contextlib.nullcontext()
        return self.tf.device(f"/device:{self.name}")

    def counts(self) -> dict[str, int]:
        """Return how many devices of a kind a Session shall have."""
        return {"CPU": self.index + 1} if self.kind == "CPU" else {}

    def make_deterministic(self, *, is_random: bool) -> None:
        """Have TensorFlow compute the same each time; with random numbers it refuses that."""
        if self.name and not is_random:
            self.tf.config.experimental.enable_op_determinism()
            self.deterministic = True

    def answer(self, places: list[tuple[str, str, str]], ran: str) -> dict[str, Any]:
        """Return the evidence, and what ran that gave it."""
        about = self.tf.sysconfig.get_build_info()
        facts = {f"built_for_{k.partition('_')[0]}": about[k] for k in
                 ("cuda_version", "cudnn_version") if k in about}  # fmt: skip
        if self.kind == "GPU":
            gpus = self.tf.config.list_physical_devices("GPU")
            details = self.tf.config.experimental.get_device_details(gpus[self.index])
            capability = details.get("compute_capability")
            facts |= {"name": details.get("device_name", "")}
            if capability:
                facts["compute_capability"] = ".".join(map(str, capability))
            facts |= beside("cuda_driver").facts(self.index)
        return {
            "device": self.name,
            "how": f"partition graphs of {ran}",
            "places": [list(row) for row in dict.fromkeys(places)],
            "facts": facts,
            "switches": {"tf32": self.tf32, "deterministic": self.deterministic},
        }


def of_partitions(metadata: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what each node is, its name and its device, of the graphs that have run."""
    for graph in metadata.partition_graphs:
        for node in graph.node:
            if node.op in CARRIES or ADDED.search(node.name):
                continue
            place = node.device.rpartition("device:")[2]
            if node.op in VARIABLES:
                shared = node.attr["shared_name"].s.decode("utf-8", "replace")
                yield "variable", shared or node.name, place
            else:
                yield "node", f"{node.name} ({node.op})", place


@contextlib.contextmanager
def collected() -> Iterator[Any]:
    """Collect the graphs that run eagerly or as functions; they are in the message afterwards."""
    context: Any = importlib.import_module("tensorflow.python.eager.context").context()
    config: Any = importlib.import_module("tensorflow.core.protobuf.config_pb2")
    metadata = config.RunMetadata()
    context.enable_run_metadata()
    try:
        yield metadata
        metadata.CopyFrom(context.export_run_metadata())
    finally:
        context.disable_run_metadata()
