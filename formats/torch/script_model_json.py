"""The ``model.json`` of TorchScript archives of torch 1.0 to 1.2.

A JSON tree of modules with parameters and attributes; tensors are rows of a table (sizes, strides,
type, device) over files in ``tensors/``; attributes are values of ``attributes.pkl``.

Spec: https://github.com/pytorch/pytorch/blob/v1.1.0/caffe2/proto/torch.proto
"""

from dataclasses import dataclass

from formats.containers import jsontext
from formats.containers.pickle.unpickler import Unpickler
from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import JSON
from formats.errors import CorruptError, LimitError
from formats.torch.containers import Session
from formats.torch.tensor_values import TYPES, StorageRef, TensorValue
from formats.torch.walk import Tree

# enum DataType of caffe2/proto/torch.proto
TYPE_NAMES = {
    "FLOAT": "float32", "INT32": "int32", "BYTE": "uint8", "BOOL": "bool", "UINT8": "uint8",
    "INT8": "int8", "UINT16": "uint16", "INT16": "int16", "INT64": "int64", "FLOAT16": "float16",
    "DOUBLE": "float64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelJson:
    """What a model.json says beside its tensors."""

    root: str
    recorded: dict[str, str]


def read_model_json(archive: ZipArchive, prefix: str, session: Session, tree: Tree) -> ModelJson:
    """Add the tensors of a model.json to ``tree``.

    Raises:
        CorruptError: It does not say what it must.
        LimitError: Its modules nest too deeply.
    """
    name = prefix + "model.json"
    limit = session.limits.max_header_bytes
    model = jsontext.parse(archive.read(name, limit), where=name, limit=limit)
    if not isinstance(model, dict) or not isinstance(model.get("mainModule"), dict):
        raise CorruptError("has no main module", where=name)
    rows = _list(model.get("tensors"), name)
    tensors = [_tensor(row, archive, prefix, name) for row in rows]
    attributes = _attributes(archive, prefix, session, tensors)
    main = model["mainModule"]
    stack: list[tuple[dict[str, JSON], str, int]] = (
        [(main, "", 0)] if isinstance(main, dict) else []
    )
    while stack:
        module, path, depth = stack.pop()
        if depth > session.limits.max_depth:
            raise LimitError(f"modules nested {depth} deep", where=name)
        _add_module(module, path, tensors, attributes, tree, name)
        inner = [m for m in _list(module.get("submodules"), name) if isinstance(m, dict)]
        for child in reversed(inner):
            label = str(child.get("name", ""))
            stack.append((child, f"{path}.{label}" if path else label, depth + 1))
    recorded = {
        key: value
        for key in ("producerName", "producerVersion", "protoVersion")
        if isinstance(value := model.get(key), str)
    }
    return ModelJson(_code_name(main), recorded)


def _code_name(main: JSON) -> str:
    """Return the module that holds the main module's code, as its file is called."""
    arena = main.get("torchscriptArena") if isinstance(main, dict) else None
    key = arena.get("key") if isinstance(arena, dict) else None
    if not isinstance(key, str):
        return ""
    return key.removeprefix("code/").removesuffix(".py").replace("/", ".")


def _add_module(
    module: dict[str, JSON],
    path: str,
    tensors: list[TensorValue],
    attributes: list[object],
    tree: Tree,
    where: str,
) -> None:
    for parameter in _list(module.get("parameters"), where):
        if not isinstance(parameter, dict):
            raise CorruptError("has a parameter that is none", where=where)
        index = _number(parameter.get("tensorId", "0"), where)
        if not 0 <= index < len(tensors):
            raise CorruptError(f"has no tensor {index}", where=where)
        name = str(parameter.get("name", ""))
        tree.add(tensors[index], _join(path, name), f"model.json/{_join(path, name)}")
    for attribute in _list(module.get("attributes"), where):
        if not isinstance(attribute, dict):
            raise CorruptError("has an attribute that is none", where=where)
        index = _number(attribute.get("id", "-1"), where)
        if 0 <= index < len(attributes):  # -1: set by __setstate__
            name = str(attribute.get("name", ""))
            full = _join(path, name)
            tree.add(attributes[index], full, f"attributes.pkl/{index}")
    state = _number(module.get("getstateAttributeId", "-1"), where)
    if "getstateAttributeId" in module and 0 <= state < len(attributes):
        tree.add(attributes[state], _join(path, "__getstate__"), f"attributes.pkl/{state}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _attributes(
    archive: ZipArchive, prefix: str, session: Session, tensors: list[TensorValue]
) -> list[object]:
    name = prefix + "attributes.pkl"
    if name not in archive:
        return []

    def tensor(vm: Unpickler, args: tuple[object, ...]) -> object:
        index = args[0] if args else None
        if type(index) is not int or not 0 <= index < len(tensors):
            raise vm.corrupt(f"has no tensor {index!r:.20}")
        return tensors[index]

    def identity(vm: Unpickler, args: tuple[object, ...]) -> object:
        del vm
        return args[0] if args else None

    vm = session.unpickler(archive[name].span(), name)
    # torch 1.1 named the first pair by its enum of pickle classes.
    vm.constructors = {
        **vm.constructors,
        "torch.jit._pickle.build_tensor_from_id": tensor,
        "torch.jit._pickle.TensorID": tensor,
        "torch.jit._pickle.IntList": identity,
        "__main__.TensorID": tensor,
        "__main__.IntList": identity,
    }
    value = session.load(vm)
    return list(value) if isinstance(value, (list, tuple)) else []


def _tensor(row: JSON, archive: ZipArchive, prefix: str, where: str) -> TensorValue:
    if not isinstance(row, dict):
        raise CorruptError("has a tensor that is none", where=where)
    named = str(row.get("dataType", "UNDEFINED"))
    type_ = TYPES.get(TYPE_NAMES.get(named, ""))
    if type_ is None:
        raise CorruptError(f"has a tensor of type {named[:40]!r}", where=where)
    data = row.get("data")
    key = data.get("key") if isinstance(data, dict) else None
    if not isinstance(key, str):
        raise CorruptError("has a tensor without data", where=where)
    span = archive[prefix + key].span()
    device = row.get("device", "cpu")
    ref = StorageRef(key, type_, device if isinstance(device, str) else None, span.length)
    ref.span = span
    shape = tuple(_number(n, where) for n in _list(row.get("dims"), where))
    strides = tuple(_number(n, where) for n in _list(row.get("strides"), where))
    quantized = row.get("isQuantized") is True
    tensor = TensorValue(
        "quantized" if quantized else "strided", type_, shape, storage=ref,
        offset=_number(row.get("offset", "0"), where), strides=strides,
        requires_grad=row.get("requiresGrad") is True,
    )  # fmt: skip
    if quantized:
        scale, zero = row.get("scale", 1.0), _number(row.get("zeroPoint", "0"), where)
        tensor.parts = {
            "scale": scale if isinstance(scale, (int, float)) else 1.0,
            "zero_point": zero,
        }
        tensor.parameters["scheme"] = "per_tensor_affine"
    return tensor


def _list(value: JSON, where: str) -> list[JSON]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise CorruptError("has something else where a list belongs", where=where)
    return value


def _number(value: JSON, where: str) -> int:
    """Return a 64-bit number; protobuf's JSON writes those as text."""
    if isinstance(value, str) and len(value) < 24 and value.lstrip("-").isdecimal():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise CorruptError("has something else where a number belongs", where=where)
