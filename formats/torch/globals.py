"""Torch's pickle globals as data: storages, tensors of every layout, devices.

Each function here replaces one of torch's rebuild functions and records its arguments. No bytes
are read; the reader of the container fills in where a storage's bytes are.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_utils.py
"""

from collections.abc import Mapping

from formats.containers.pickle.unpickler import Constructor, Unpickler
from formats.containers.pickle.values import Global, Record
from formats.torch.distributed_tensors import CLASSES, STATE
from formats.torch.tensor_values import (
    StorageRef,
    TensorValue,
    dtype_of,
)


def device_of(value: object) -> str | None:
    """Return a device as text, from text or from ``torch.device('cuda', 0)``."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Record) and value.cls == "torch.device" and value.args:
        return ":".join(str(a) for a in value.args[:2] if isinstance(a, (str, int)))
    return value if isinstance(value, str) else None


def sizes(vm: Unpickler, value: object) -> tuple[int, ...]:
    """Return a shape, strides or other short row of whole numbers."""
    if isinstance(value, (tuple, list)) and len(value) <= vm.limits.max_rank:
        for n in value:
            if type(n) is not int:
                break
        else:
            return tuple(value)
    raise vm.corrupt("gives a tensor a shape that is no short row of whole numbers")


def _whole(vm: Unpickler, value: object) -> int:
    if type(value) is not int:
        raise vm.corrupt("gives a tensor an offset that is no whole number")
    return value


def _storage(vm: Unpickler, value: object) -> StorageRef:
    if not isinstance(value, StorageRef):
        raise vm.corrupt("makes a tensor from something that is no storage")
    return value


def require(vm: Unpickler, args: tuple[object, ...], least: int) -> None:
    """Raise CorruptError when there are fewer than ``least`` arguments."""
    if len(args) < least:
        raise vm.corrupt(f"makes a tensor from {len(args)} values where {least} are needed")


def _flags(metadata: object) -> frozenset[str]:
    if not isinstance(metadata, dict):
        return frozenset()
    return frozenset(k for k in ("conj", "neg") if metadata.get(k) is True)


def make_view(
    vm: Unpickler, storage: object, offset: object, shape: object, strides: object
) -> TensorValue:
    """Return a view of a storage."""
    vm.charge(4)
    ref = _storage(vm, storage)
    return TensorValue(
        "strided", ref.type, sizes(vm, shape), storage=ref, offset=_whole(vm, offset),
        strides=sizes(vm, strides),
    )  # fmt: skip


def gradient(value: object) -> bool | None:
    """Return a ``requires_grad`` argument, or None if it is not a bool."""
    return value if isinstance(value, bool) else None


def _rebuild_tensor(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 4)
    return make_view(vm, *args[:4])


def _rebuild_tensor_v2(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 5)
    tensor = make_view(vm, *args[:4])
    tensor.requires_grad = gradient(args[4])
    if len(args) > 6:
        tensor.flags = _flags(args[6])
    return tensor


def _rebuild_tensor_v3(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 7)
    tensor = make_view(vm, *args[:4])
    tensor.requires_grad = gradient(args[4])
    tensor.type = dtype_of(args[6])
    if tensor.type is None and isinstance(args[6], Global):
        tensor.parameters["dtype"] = args[6].name
    if len(args) > 7:
        tensor.flags = _flags(args[7])
    return tensor


def _rebuild_qtensor(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 5)
    tensor = make_view(vm, *args[:4])
    tensor.layout = "quantized"
    scheme, rest = args[4], args[5:]
    if isinstance(scheme, float) and rest:  # TorchScript of torch 1.3: scale and zero point alone
        scheme, rest = ("per_tensor_affine", scheme, rest[0]), rest[1:]
    if not isinstance(scheme, tuple) or len(scheme) < 3:
        raise vm.corrupt("quantises a tensor without saying how")
    name = scheme[0].name if isinstance(scheme[0], Global) else str(scheme[0])[:80]
    tensor.parameters["scheme"] = name.rpartition(".")[2]
    tensor.parts = {"scale": scheme[1], "zero_point": scheme[2]}
    if len(scheme) > 3:
        tensor.parameters["axis"] = _whole(vm, scheme[3])
    if rest:
        tensor.requires_grad = gradient(rest[0])
    return tensor


# fmt: off
_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices"), "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"), "sparse_bsc": ("ccol_indices", "row_indices"),
}
# fmt: on


def _rebuild_sparse_tensor(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 2)
    named = args[0].name if isinstance(args[0], Global) else args[0]
    layout = named.rpartition(".")[2] if isinstance(named, str) else ""
    data = args[1]
    if not isinstance(data, tuple) or len(data) < 3:
        raise vm.corrupt("makes a sparse tensor from too few parts")
    if layout in _COMPRESSED and len(data) >= 4:
        roles = [*_COMPRESSED[layout], "values"]
    elif layout == "sparse_coo":
        roles = ["indices", "values"]
    else:
        raise vm.corrupt(f"makes a sparse tensor of layout {str(layout)[:40]!r}")
    return _sparse(vm, layout, dict(zip(roles, data, strict=False)), data[len(roles) :])


def _sparse(
    vm: Unpickler, layout: str, parts: dict[str, object], rest: tuple[object, ...]
) -> TensorValue:
    values = parts["values"]
    if not all(isinstance(p, TensorValue) for p in parts.values()):
        raise vm.corrupt("makes a sparse tensor from parts that are no tensors")
    element = values.type if isinstance(values, TensorValue) else None
    tensor = TensorValue(layout, element, sizes(vm, rest[0]))
    tensor.parts = parts
    if len(rest) > 1 and isinstance(rest[1], bool):
        tensor.parameters["coalesced"] = rest[1]
    return tensor


def _rebuild_nested_tensor(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 2)
    roles = ("values", "sizes", "strides", "storage_offsets")
    parts = dict(zip(roles, args, strict=False))
    if not all(isinstance(p, TensorValue) for p in parts.values()):
        raise vm.corrupt("makes a nested tensor from parts that are no tensors")
    values = args[0]
    tensor = TensorValue("nested", values.type if isinstance(values, TensorValue) else None, ())
    tensor.parts = parts
    return tensor


def _rebuild_jagged(vm: Unpickler, args: tuple[object, ...]) -> object:
    """Nested tensors of layout ``torch.jagged``: rows one after another, and where each begins."""
    del vm
    state = args[0] if args and isinstance(args[0], dict) else {}
    parts = {role: state.get(role) for role in ("values", "offsets", "lengths")}
    values = parts["values"]
    if not isinstance(values, TensorValue) or not isinstance(parts["offsets"], TensorValue):
        return Record("torch.nested._internal.nested_tensor._rebuild_njt", args)
    tensor = TensorValue("nested", values.type, ())
    tensor.parts = {role: p for role, p in parts.items() if isinstance(p, TensorValue)}
    tensor.parameters["layout"] = "jagged"
    if isinstance(state.get("_ragged_idx"), int):
        tensor.parameters["ragged_axis"] = state["_ragged_idx"]
    return tensor


def _rebuild_meta(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 2)
    tensor = TensorValue("meta", dtype_of(args[0]), sizes(vm, args[1]))
    tensor.device = "meta"
    if len(args) > 3:
        tensor.strides, tensor.requires_grad = sizes(vm, args[2]), gradient(args[3])
    return tensor


def _rebuild_parameter(vm: Unpickler, args: tuple[object, ...]) -> object:
    require(vm, args, 1)
    return parameter("torch.nn.parameter.Parameter", args)


def parameter(cls: str, args: tuple[object, ...]) -> object:
    """Return the tensor that a Parameter or Variable wraps, or a record where it wraps none."""
    data = args[0] if args else None
    if not isinstance(data, TensorValue):
        return Record(cls, args)
    tensor = data.copy()
    tensor.is_parameter = cls.endswith(("Parameter", "Buffer"))
    if cls not in PLAIN_CLASSES and tensor.cls is None:
        tensor.cls = cls
    if len(args) > 1:
        tensor.requires_grad = gradient(args[1])
    if len(args) > 3 and args[3]:
        tensor.state.append(args[3])
    return tensor


def _parameter_class(cls: str) -> Constructor:
    def make(vm: Unpickler, args: tuple[object, ...]) -> object:
        del vm
        return parameter(cls, args)

    return make


def _rebuild_wrapper_subclass(vm: Unpickler, args: tuple[object, ...]) -> TensorValue:
    require(vm, args, 4)
    tensor = TensorValue("subclass", dtype_of(args[1]), sizes(vm, args[2]))
    tensor.cls = args[0].name if isinstance(args[0], Global) else None
    tensor.device = device_of(args[6]) if len(args) > 6 else None
    return tensor


def _rebuild_from_type(vm: Unpickler, args: tuple[object, ...]) -> object:
    """``(function, class, its arguments, state)``: a tensor with attributes, or a subclass."""
    require(vm, args, 3)
    value = vm.call(args[0], args[2])
    if isinstance(value, TensorValue):
        cls = args[1].name if isinstance(args[1], Global) else ""
        if cls not in PLAIN_CLASSES:
            value.cls = cls
        if CLASSES.fullmatch(cls):
            value.layout, value.parts = "distributed", {STATE: args[3] if len(args) > 3 else ()}
        elif len(args) > 3 and args[3]:
            value.state.append(args[3])
    return value


PLAIN_CLASSES = frozenset({
    "torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.Parameter",
})  # fmt: skip


def legacy_tensor(record: Record) -> TensorValue | None:
    """Return the tensor that an object of old torch stands for: one made by its class and BUILD.

    ``torch.FloatTensor`` has a state ``(storage, offset, size, strides)``; a Variable or Parameter
    ``(data, …)``. See ``Tensor.__setstate__``:
    https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_tensor.py
    """
    last = record.cls.rpartition(".")[2]
    if not last.endswith(("Tensor", "Parameter", "Variable", "Buffer")) or not record.state:
        return None
    state = record.state[0]
    if not isinstance(state, tuple) or not state:
        return None
    if isinstance(state[0], TensorValue):
        tensor = parameter(record.cls, (state[0],))
        if isinstance(tensor, TensorValue):
            grads = [s for s in state[1:] if isinstance(s, bool)]
            tensor.requires_grad = grads[0] if grads else None
            tensor.cls = None if record.cls.startswith("torch.") else record.cls
            return tensor
    if len(state) == 4 and isinstance(state[0], StorageRef):
        return plain_view(state[0], state[1], state[2], state[3])
    return None


def plain_view(
    storage: StorageRef, offset: object, shape: object, strides: object
) -> TensorValue | None:
    """Return a view described by untrusted values, or None where they describe none."""
    rows = []
    for row in (shape, strides):
        if not isinstance(row, (tuple, list)) or not all(type(n) is int for n in row):
            return None
        rows.append(tuple(row))
    if type(offset) is not int or len(rows[0]) > 64:
        return None
    return TensorValue(
        "strided", storage.type, rows[0], storage=storage, offset=offset, strides=rows[1]
    )


def _size(vm: Unpickler, args: tuple[object, ...]) -> object:
    del vm
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        return args[0]
    return args


def _first(vm: Unpickler, args: tuple[object, ...]) -> object:
    require(vm, args, 1)
    return args[0]


def _named(vm: Unpickler, args: tuple[object, ...]) -> object:
    """``_get_layout('torch.strided')`` and the like."""
    require(vm, args, 1)
    return vm.find_global("torch", str(args[0])[:80].removeprefix("torch."))


def _graph_module(vm: Unpickler, args: tuple[object, ...]) -> Record:
    """torch.fx stores a module's attributes and the source of its forward, which it would run."""
    vm.suspect("torch.fx.graph_module.reduce_graph_module")
    record = Record("torch.fx.graph_module.GraphModule", args[1:])
    if args:
        record.build(args[0])
    return record


def _persistent_object(vm: Unpickler, args: tuple[object, ...]) -> Record:
    """StyleGAN stores a module's state beside its source, which it would run."""
    vm.suspect("torch_utils.persistence._reconstruct_persistent_obj")
    meta = args[0] if args else None
    if not isinstance(meta, dict):
        return Record("torch_utils.persistence._reconstruct_persistent_obj", args)
    record = Record(
        f"{str(meta.get('module_name', 'persistent'))[:200]}.{meta.get('class_name')!s:.200}"
    )
    record.build(meta.get("state"))
    return record


# fmt: off
TORCH: Mapping[str, Constructor] = {
    "torch._utils._rebuild_tensor":                         _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2":                      _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3":                      _rebuild_tensor_v3,
    "torch._utils._rebuild_qtensor":                        _rebuild_qtensor,
    "torch._utils._rebuild_sparse_tensor":                  _rebuild_sparse_tensor,
    "torch._utils._rebuild_sparse_csr_tensor":              _rebuild_sparse_tensor,
    "torch._utils._rebuild_nested_tensor":                  _rebuild_nested_tensor,
    "torch.nested._internal.nested_tensor._rebuild_njt":   _rebuild_jagged,
    "torch._utils._rebuild_meta_tensor_no_storage":         _rebuild_meta,
    "torch._utils._rebuild_parameter":                      _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state":           _rebuild_parameter,
    "torch._utils._rebuild_wrapper_subclass":               _rebuild_wrapper_subclass,
    "torch._tensor._rebuild_from_type":                     _rebuild_from_type,
    "torch._tensor._rebuild_from_type_v2":                  _rebuild_from_type,
    "torch._utils._rebuild_from_type_v2":                   _rebuild_from_type,
    **{cls: _parameter_class(cls) for cls in (
        "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer",
        "torch.autograd.variable.Variable",
    )},
    "torch.Size":                                           _size,
    "torch.serialization._get_layout":                      _named,
    "torch.fx.graph_module.reduce_graph_module":            _graph_module,
    "torch.fx.graph_module.reduce_package_graph_module":    _graph_module,
    "torch.fx.graph_module.reduce_deploy_graph_module":     _graph_module,
    "torch_utils.persistence._reconstruct_persistent_obj": _persistent_object,
    # TorchScript's type tags: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/jit/_pickle.py
    "torch.jit._pickle.restore_type_tag":                   _first,
    "torch.jit._pickle.build_intlist":                      _first,
    "torch.jit._pickle.build_tensorlist":                   _first,
    "torch.jit._pickle.build_doublelist":                   _first,
    "torch.jit._pickle.build_boollist":                     _first,
}
# fmt: on
