"""``config.pbtxt``: Triton's configuration of a model that onnxruntime runs.

The model's name is that of its folder. None is written, so that it can be moved and renamed.

Spec: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from converter.devices.names import Device, parse_device
from converter.lower.graph import Dim, Graph, Spec
from formats.errors import UnsupportedError, UsageError

BACKEND = "onnxruntime"
CONFIGURATION, FILE = "config.pbtxt", "model.onnx"
VERSION = "1"  # the folder of the one version that is written
MAX_BATCH = 8  # requests that Triton may batch; can be raised if the model's memory allows
DYNAMIC = -1

# dtype -> Triton's data type; the onnxruntime backend takes no others.
DATA_TYPES = {
    "bool": "TYPE_BOOL", "uint8": "TYPE_UINT8", "uint16": "TYPE_UINT16", "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64", "int8": "TYPE_INT8", "int16": "TYPE_INT16", "int32": "TYPE_INT32",
    "int64": "TYPE_INT64", "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64",
    "string": "TYPE_STRING", "bfloat16": "TYPE_BF16",
}  # fmt: skip


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
        max_batch_size: Of requests batched by Triton; zero if the model has no batch axis.
        inputs: In the graph's order.
        outputs: Likewise.
        kind: ``KIND_CPU`` or ``KIND_GPU``.
        gpus: Indices of the GPUs; empty for all.
    """

    max_batch_size: int
    inputs: tuple[TritonTensor, ...]
    outputs: tuple[TritonTensor, ...]
    kind: str
    gpus: tuple[int, ...]

    def text(self) -> str:
        """Return it in protobuf's text format."""
        lines = [f'backend: "{BACKEND}"', f'default_model_filename: "{FILE}"']
        lines.append(f"max_batch_size: {self.max_batch_size}")
        for field, tensors in (("input", self.inputs), ("output", self.outputs)):
            for tensor in tensors:
                lines += [f"{field} {{", *_describe_tensor(tensor), "}"]
        lines += ["instance_group {", "  count: 1", f"  kind: {self.kind}"]
        lines += [f"  gpus: {number}" for number in self.gpus]
        lines.append("}")
        if self.max_batch_size:
            lines.append("dynamic_batching { }")
        return "\n".join(lines) + "\n"


def configure(graph: Graph, device: str) -> Configuration:
    """Return the configuration of a graph.

    Args:
        graph: As it is written.
        device: ``cpu``, ``gpu:0``, ``cuda:1``; without an index, all that the server has.

    Raises:
        UnsupportedError: Triton does not support some inputs or outputs; all are listed.
        UsageError: Triton's onnxruntime does not run on the device.
    """
    place = parse_device(device)
    gaps = [
        *_find_unsupported("input", graph, graph.inputs),
        *_find_unsupported("output", graph, graph.outputs),
    ]
    if gaps:
        raise UnsupportedError(f"Triton has no {'; no '.join(gaps)}")
    specs = [graph.specs[name] for name in (*graph.inputs, *graph.outputs)]
    is_batched = _is_batched(specs, len(graph.inputs))
    first = 1 if is_batched else 0

    def tensors(names: Iterable[str]) -> tuple[TritonTensor, ...]:
        return tuple(
            TritonTensor(n, DATA_TYPES[graph.specs[n].dtype], _dims(graph.specs[n].shape[first:]))
            for n in names
        )

    return Configuration(
        MAX_BATCH if is_batched else 0,
        tensors(graph.inputs),
        tensors(graph.outputs),
        *_choose_instances(place, device),
    )


def _find_unsupported(kind: str, graph: Graph, names: Sequence[str]) -> Iterable[str]:
    for name in names:
        spec = graph.specs[name]
        if spec.dtype not in DATA_TYPES:
            yield f"type for the {kind} {name!r}, {spec.dtype}"
        if spec.unranked:
            yield f"way to take the {kind} {name!r} of any rank"


def _is_batched(specs: Sequence[Spec], inputs: int) -> bool:
    """Return whether all inputs share a dynamic first axis, and all outputs have it as well."""
    if not all(spec.shape for spec in specs) or not inputs:
        return False
    first: list[Dim] = [spec.shape[0] for spec in specs]
    names = {n for n in first[:inputs] if isinstance(n, str)}
    return len(names) == 1 and all(n in names for n in first)


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
