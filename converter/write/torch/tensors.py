"""Rebuild tensors by calls that torch's restricted unpickler allows, for every layout with one.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_utils.py (the functions called)
"""

from converter.write.torch.storages import Storages, View, hooks, torch_name
from formats.containers.pickle.encoder import Call, Name
from formats.core.weights import Tensor, row_major
from formats.torch.pickled_values import as_tensor
from formats.torch.tensor_values import TensorValue

UTILS = "torch._utils"
REBUILD = Name("torch._tensor", "_rebuild_from_type_v2")
SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
SCHEMES = {
    "per_tensor_affine": 3, "per_channel_affine": 4, "per_channel_affine_float_qparams": 4,
}  # fmt: skip


class RefusedError(Exception):
    """torch would not load a value; the text says why. Never shown as an error."""


def size_call(shape: tuple[object, ...]) -> Call:
    """Return a ``torch.Size``."""
    return Call(Name("torch", "Size"), (tuple(shape),))


def sparse_call(
    layout: Call, parts: list[object], shape: tuple[int, ...], coalesced: object
) -> Call:
    """Return the call that rebuilds a sparse tensor from its indices and values."""
    data = [*parts, size_call(shape)]
    if isinstance(coalesced, bool):  # of sparse_coo only
        data.append(coalesced)
    return Call(Name(UTILS, "_rebuild_sparse_tensor"), (layout, tuple(data)))


class Tensors:
    """Builds the calls that rebuild the tensors of one pickle."""

    def __init__(self, storages: Storages) -> None:
        self.storages = storages

    def call(self, value: TensorValue, where: str, *, stays: bool = False) -> Call:
        """Return the call that rebuilds a tensor, without its attributes and class.

        Args:
            value: As the pickle describes it.
            where: Its name in messages.
            stays: Whether it is on the CPU for every device.

        Raises:
            RefusedError: torch has no such tensor, or would not load it.
            CorruptError: It exceeds its storage.
        """
        made = self._layout(value, where, stays=stays)
        if not value.is_parameter:
            return made
        grad = value.requires_grad is not False
        return Call(Name(UTILS, "_rebuild_parameter"), (made, grad, hooks()))

    def with_state(self, made: Call, value: TensorValue, state: object) -> Call:
        """Return the call of a tensor together with the attributes set on it in Python."""
        if value.is_parameter:
            return Call(Name(UTILS, "_rebuild_parameter_with_state"), (*made.args, state))
        owner, tensor = Call(REBUILD), Name("torch", "Tensor")

        def fill() -> None:
            owner.args = (made.function, tensor, made.args, state)

        self.storages.later.append(fill)
        return owner

    def _layout(self, value: TensorValue, where: str, *, stays: bool) -> Call:
        if value.layout == "meta" or _is_meta(value):
            return self._meta(value)
        if value.type is None and value.layout != "nested":
            raise RefusedError(
                f"elements of a type we do not know, {value.parameters.get('dtype')}"
            )
        if value.layout == "strided":
            return self._strided(value, where, stays=stays)
        if value.layout == "quantized":
            return self._quantize(value, where, stays=stays)
        parts = [self._part(p, where, stays=stays) for p in value.parts.values()]
        if value.layout in SPARSE:
            layout = self.storages.layout(value.layout)
            return sparse_call(layout, [*parts], value.shape, value.parameters.get("coalesced"))
        if value.layout == "nested" and "layout" not in value.parameters and len(parts) == 4:
            return Call(Name(UTILS, "_rebuild_nested_tensor"), tuple(parts))
        kind = value.cls or f"{value.parameters.get('layout', value.layout)} tensor"
        raise RefusedError(f"a {kind}, whose class torch.load(weights_only=True) refuses")

    def _part(self, part: object, where: str, *, stays: bool) -> Call:
        tensor = as_tensor(part)
        if tensor is None:
            raise RefusedError("parts that are no tensors")
        return self.call(tensor, where, stays=stays)

    def _meta(self, value: TensorValue) -> Call:
        if value.type is None:
            raise RefusedError("elements of a type we do not know, on the meta device")
        strides = value.strides
        if strides is None:
            size = value.type.itemsize
            strides = tuple(s // size for s in row_major(value.shape, value.type.dtype))
        grad = bool(value.requires_grad) and not value.is_parameter
        args = (torch_name(value.type.name), value.shape, strides, grad)
        return Call(Name(UTILS, "_rebuild_meta_tensor_no_storage"), args)

    def _strided(self, value: TensorValue, where: str, *, stays: bool) -> Call:
        return self.storages.tensor(self._view(value, where, stays=stays))

    def _view(self, value: TensorValue, where: str, *, stays: bool) -> View:
        ref, type_ = value.storage, value.type
        if ref is None or type_ is None:
            raise RefusedError("no storage")
        strides = value.strides
        if strides is None:
            strides = tuple(s // type_.itemsize for s in row_major(value.shape, type_.dtype))
        slot = self.storages.slot(ref.span, type_, ref.byteorder, id(ref), stays=stays)
        if type_.per_byte == 1 and ref.span is not None:
            Tensor.strided(  # for its checks
                type_.dtype, value.shape, ref.span, offset=value.offset, strides=strides,
                origin=where,
            )  # fmt: skip
        elif ref.span is None and 0 not in value.shape:
            raise RefusedError("no elements in the file")
        grad = bool(value.requires_grad) and not value.is_parameter
        offset = value.offset if ref.span is not None else 0
        return View(Call(hooks().function), slot, type_, offset, value.shape, strides, grad,
                    value.flags)  # fmt: skip

    def _quantize(self, value: TensorValue, where: str, *, stays: bool) -> Call:
        scheme = str(value.parameters.get("scheme"))
        if scheme not in SCHEMES:
            raise RefusedError(f"quantised by {scheme}, which torch.load cannot rebuild")
        view = self._view(value, where, stays=stays)
        parts = []
        for part in value.parts.values():
            tensor = as_tensor(part)
            parts.append(part if tensor is None else self.call(tensor, where, stays=stays))
        axis = [value.parameters["axis"]] if "axis" in value.parameters else []
        view.quantizer = (torch_name(scheme), *parts, *axis)
        return self.storages.tensor(view)


def _is_meta(value: TensorValue) -> bool:
    return value.storage is not None and value.storage.location == "meta"
