"""``config.pbtxt``: Triton's configuration of a model that onnxruntime runs.

The model's name is that of its folder. None is written, so that it can be moved and renamed.

Spec: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from converter.devices.names import Device, parse_device
from converter.lower.graph import Dim, Graph
from converter.write.triton.batching import Batching, decide_batching
from converter.write.triton.settings import Settings
from formats.errors import UnsupportedError, UsageError

BACKEND = "onnxruntime"
CONFIGURATION, FILE = "config.pbtxt", "model.onnx"
DYNAMIC = -1

# dtype -> Triton's data type; the onnxruntime backend takes no others.
DATA_TYPES = {
    "bool": "TYPE_BOOL", "uint8": "TYPE_UINT8", "uint16": "TYPE_UINT16", "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64", "int8": "TYPE_INT8", "int16": "TYPE_INT16", "int32": "TYPE_INT32",
    "int64": "TYPE_INT64", "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64",
    "string": "TYPE_STRING", "bfloat16": "TYPE_BF16",
}  # fmt: skip


def _accelerate(device: str, name: str, **parameters: str) -> list[str]:
    """Return a message ``optimization`` that gives the graph to an accelerator of onnxruntime."""
    lines = [
        "optimization {",
        "  execution_accelerators {",
        f"    {device}_execution_accelerator {{",
    ]
    lines.append(f'      name: "{name}"')
    for key, value in parameters.items():
        lines.append(f'      parameters {{ key: "{key}" value: "{value}" }}')
    return [*lines, "    }", "  }", "}"]


# Spec: https://github.com/triton-inference-server/onnxruntime_backend#onnx-runtime-with-tensorrt-optimization
ACCELERATION = {
    "tensorrt": _accelerate("gpu", "tensorrt", precision_mode="FP32"),
    "tensorrt-fp16": _accelerate("gpu", "tensorrt", precision_mode="FP16"),
    "openvino": _accelerate("cpu", "openvino"),
}


@dataclass(frozen=True, slots=True)
class TritonTensor:
    """An input or output, without the batch axis if there is one.

    Attributes:
        name: In the graph.
        data_type: Triton's.
        dims: Sizes; `DYNAMIC` for those that vary between requests.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of ``config.pbtxt``.

    Attributes:
        batching: Whether Triton batches requests, and why.
        inputs: In the graph's order.
        outputs: Likewise.
        kind: ``KIND_CPU`` or ``KIND_GPU``.
        gpus: Indices of the GPUs; empty for all.
        settings: The user's.
    """

    batching: Batching
    inputs: tuple[TritonTensor, ...]
    outputs: tuple[TritonTensor, ...]
    kind: str
    gpus: tuple[int, ...]
    settings: Settings = field(default_factory=Settings)

    def text(self) -> str:
        """Return it in protobuf's text format."""
        lines = [f"# batching: {self.batching.describe()}"]
        lines += [f'backend: "{BACKEND}"', f'default_model_filename: "{FILE}"']
        lines.append(f"max_batch_size: {self.batching.max_batch_size}")
        for field_name, tensors in (("input", self.inputs), ("output", self.outputs)):
            for tensor in tensors:
                lines += [f"{field_name} {{", *_describe_tensor(tensor), "}"]
        lines += ["instance_group {", f"  count: {self.settings.instances}", f"  kind: {self.kind}"]
        lines += [f"  gpus: {number}" for number in self.gpus]
        lines.append("}")
        lines += self._describe_queue()
        lines += ACCELERATION.get(self.settings.accelerator, ())
        return "\n".join(lines) + "\n"

    def _describe_queue(self) -> list[str]:
        if not self.batching.max_batch_size:
            return []
        delay, sizes = self.settings.queue_delay_us, self.settings.preferred_batch_sizes
        inner = [f"  preferred_batch_size: [ {', '.join(map(str, sizes))} ]"] if sizes else []
        inner += [] if delay is None else [f"  max_queue_delay_microseconds: {delay}"]
        return ["dynamic_batching {", *inner, "}"] if inner else ["dynamic_batching { }"]


def configure(graph: Graph, device: str, settings: Settings) -> Configuration:
    """Return the configuration of a graph.

    Args:
        graph: As it is written.
        device: ``cpu``, ``gpu:0``, ``cuda:1``; without an index, all that the server has.
        settings: The user's.

    Raises:
        UnsupportedError: Triton does not support some inputs or outputs; all are listed.
        UsageError: Triton's onnxruntime does not run on the device, the accelerator is for another
            one, or the requests cannot be batched as requested.
    """
    place = parse_device(device)
    kind, gpus = _choose_instances(place, device)
    _check_accelerator(settings.accelerator, kind)
    gaps = [
        *_find_unsupported("input", graph, graph.inputs),
        *_find_unsupported("output", graph, graph.outputs),
    ]
    if gaps:
        raise UnsupportedError(f"Triton has no {'; no '.join(gaps)}")
    batching = decide_batching(graph, settings.max_batch_size)
    _check_queue(batching, settings)
    first = 1 if batching.max_batch_size else 0

    def tensors(names: Iterable[str]) -> tuple[TritonTensor, ...]:
        return tuple(
            TritonTensor(n, DATA_TYPES[graph.specs[n].dtype], _dims(graph.specs[n].shape[first:]))
            for n in names
        )

    return Configuration(
        batching, tensors(graph.inputs), tensors(graph.outputs), kind, gpus, settings
    )


def _check_accelerator(name: str, kind: str) -> None:
    if name and name.startswith("tensorrt") != (kind == "KIND_GPU"):
        device = "gpu" if name.startswith("tensorrt") else "cpu"
        raise UsageError(f"triton: accelerator={name}", expected=f"device={device}")


def _check_queue(batching: Batching, settings: Settings) -> None:
    """Check that settings of the queue have an effect."""
    if batching.max_batch_size:
        if max(settings.preferred_batch_sizes, default=0) > batching.max_batch_size:
            raise UsageError(
                f"triton: preferred_batch_sizes= with one above {batching.max_batch_size}",
                expected="max_batch_size= of at least as many",
            )
    elif settings.queue_delay_us is not None or settings.preferred_batch_sizes:
        raise UsageError(
            f"triton: settings of the queue, and batching is {batching.describe()}",
            expected="neither queue_delay_us= nor preferred_batch_sizes=",
        )


def _find_unsupported(kind: str, graph: Graph, names: Sequence[str]) -> Iterable[str]:
    for name in names:
        spec = graph.specs[name]
        if spec.dtype not in DATA_TYPES:
            yield f"type for the {kind} {name!r}, {spec.dtype}"
        if spec.unranked:
            yield f"way to take the {kind} {name!r} of any rank"


def _dims(shape: Iterable[Dim]) -> tuple[int, ...]:
    return tuple(n if isinstance(n, int) else DYNAMIC for n in shape)


def _choose_instances(place: Device, device: str) -> tuple[str, tuple[int, ...]]:
    if place.kind == "cpu":
        return "KIND_CPU", ()
    if place.kind not in ("cuda", "tensorrt"):
        raise UsageError(f"device={device!r} with to='triton'", expected="cpu, gpu or gpu:0")
    return "KIND_GPU", (place.index,) if ":" in device else ()


def _describe_tensor(tensor: TritonTensor) -> list[str]:
    lines = [f'  name: "{_escape(tensor.name)}"', f"  data_type: {tensor.data_type}"]
    if tensor.dims:
        return [*lines, f"  dims: [ {', '.join(map(str, tensor.dims))} ]"]
    # A scalar is passed as one element.
    return [*lines, "  dims: [ 1 ]", "  reshape { shape: [ ] }"]


def _escape(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(
        c if c.isprintable() else "".join(f"\\{b:03o}" for b in c.encode()) for c in escaped
    )
