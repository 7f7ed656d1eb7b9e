"""Build a state dict of a bundle's weights: one flat, ordered dict of tensors.

Tensors that were views of one storage remain views of one, with their offsets and strides. The
parts of an encoding become one tensor if torch has such tensors (quantized, sparse, nested); else
they stay several tensors under their own names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from converter.write.torch.storages import Slot, Storages, View, hooks, torch_name
from converter.write.torch.tensors import SCHEMES, SPARSE, UTILS, sparse_call
from formats.containers.pickle.encoder import Call, Name
from formats.core.bundle import Bundle, Encoding
from formats.core.plurals import count
from formats.core.weights import Strided, Tensor, row_major
from formats.errors import UnsupportedError
from formats.torch.tensor_values import TYPES, TorchType

# Types of which torch counts two elements as one: two numbers to a byte.
PACKED = {"float4_e2m1fn": "float4_e2m1fn_x2"}


@dataclass(slots=True)
class StateDict:
    """A state dict to be pickled.

    Attributes:
        value: The call that rebuilds it.
        views: Name of a tensor of the bundle → its view of a storage.
        kept_apart: Encodings that torch has no tensor for → reason.
        stayed: Names of the tensors that stay on the CPU.
    """

    value: Call
    views: dict[str, View] = field(default_factory=dict)
    kept_apart: dict[str, str] = field(default_factory=dict)
    stayed: list[str] = field(default_factory=list)


def build_state_dict(bundle: Bundle, storages: Storages, generators: frozenset[str]) -> StateDict:
    """Return the state dict of a bundle's weights.

    Args:
        bundle: Its weights have their final names.
        storages: The storages of the weights are added here.
        generators: Names of states of random generators, which must be on the CPU.

    Raises:
        UnsupportedError: torch has no type for some of them; all are listed.
    """
    return _Builder(bundle, storages, generators).build()


class _Builder:
    def __init__(self, bundle: Bundle, storages: Storages, generators: frozenset[str]) -> None:
        self.bundle = bundle
        self.storages = storages
        self.generators = generators
        self.pairs: dict[object, object] = {}
        self.computed_slot = StateDict(Call(hooks().function, (), self.pairs))

    def build(self) -> StateDict:
        """Return the dict: tensors in the bundle's order, encoded ones at their first part."""
        inside: dict[str, tuple[str, Encoding]] = {}
        for name, encoding in self.bundle.encodings.items():
            reason = self._find_obstacle(encoding, inside)
            if reason:
                self.computed_slot.kept_apart[name] = reason
            else:
                inside |= dict.fromkeys(encoding.parts.values(), (name, encoding))
        self._check_types(inside)
        for name, tensor in self.bundle.weights.items():
            if name not in inside:
                self.pairs[name] = self._build_tensor(name, tensor)
                continue
            logical, encoding = inside[name]
            if logical not in self.pairs:
                self.pairs[logical] = self._build_encoded(encoding)
        return self.computed_slot

    def _check_types(self, inside: Mapping[str, object]) -> None:
        weights = self.bundle.weights.items()
        gaps = [f"{n} ({t.dtype})" for n, t in weights if n not in inside and _has_no_type(t)]
        if gaps:
            more = f" and {len(gaps) - 20} more" if len(gaps) > 20 else ""
            raise UnsupportedError(
                f"not supported: {count('tensor', len(gaps))} of types that torch has not: "
                f"{', '.join(gaps[:20])}{more}",
                hint="to='portable' keeps them",
            )

    def _find_obstacle(self, encoding: Encoding, inside: Mapping[str, object]) -> str:
        """Return why an encoding's parts cannot be one tensor; "" if they can."""
        weights, parts = self.bundle.weights, encoding.parts
        if not set(parts.values()) <= weights.keys() or not inside.keys().isdisjoint(
            parts.values()
        ):
            return "its parts are not all there"
        kind, known = encoding.kind, encoding.parameters
        if kind == "sparse_coo":
            return "" if self._is_coordinates(encoding) else "coordinates as torch has none"
        if kind in SPARSE:
            return ""
        if kind == "nested" and "layout" not in known and len(parts) == 4:
            return ""
        if kind == "quantized":
            scheme = str(known.get("scheme"))
            if scheme not in SCHEMES or encoding.dtype not in TYPES or "values" not in parts:
                return f"quantised by {scheme} as {encoding.dtype}"
            return "" if _has_torch_layout(weights[parts["values"]], encoding) else "of other words"
        return f"torch.load(weights_only=True) has no tensor of kind {kind}"

    def _is_coordinates(self, encoding: Encoding) -> bool:
        """Return whether indices have torch's layout: [axes, elements]; ONNX has [elements, axes].

        Square indices could have either; only torch records whether they are coalesced.
        """
        weights, parts = self.bundle.weights, encoding.parts
        if list(parts) != ["indices", "values"]:
            return False
        indices, values = (weights[name].shape for name in parts.values())
        fits = len(indices) == 2 and values[:1] == indices[1:]
        is_torch = self.bundle.metadata.framework == "torch" or "coalesced" in encoding.parameters
        return fits and is_torch and indices[0] + len(values) - 1 == len(encoding.shape)

    def _build_tensor(
        self,
        name: str,
        tensor: Tensor,
        quantized: TorchType | None = None,
        quantizer: tuple[object, ...] | None = None,
    ) -> Call:
        type_ = quantized or TYPES[PACKED.get(tensor.dtype.name, tensor.dtype.name)]
        stays = name in self.generators
        if stays:
            self.computed_slot.stayed.append(name)
        slot, offset, shape, strides = self._locate(tensor, type_, stays=stays)
        notes = self.bundle.metadata.tensor_notes.get(name, {})
        grad = notes.get("requires_grad") is True and _takes_gradient(type_)
        view = View(hooks(), slot, type_, offset, shape, strides, grad, quantizer=quantizer)
        self.computed_slot.views[name] = view
        return self.storages.tensor(view)

    def _locate(
        self, tensor: Tensor, type_: TorchType, *, stays: bool
    ) -> tuple[Slot, int, tuple[int, ...], tuple[int, ...]]:
        """Return a tensor's storage, offset, shape and strides (in elements)."""
        shape, data = tensor.shape, tensor.data
        if tensor.dtype.name in PACKED:
            shape = (*shape[:-1], shape[-1] // 2)
        size = type_.itemsize
        if isinstance(data, Strided) and tensor.dtype.bits >= 8:
            positions = (data.offset, *data.strides)
            if not any(n % size for n in positions):
                slot = self.storages.slot(
                    data.span if data.span.length else None, type_, data.byteorder, id(data),
                    stays=stays,
                )  # fmt: skip
                offset, *strides = (n // size for n in positions)
                return slot, offset if data.span.length else 0, shape, tuple(strides)
        slot = self.storages.add_computed_slot(tensor, type_, id(data), stays=stays)
        strides = [s // size for s in row_major(shape, type_.dtype)]
        return slot, 0, shape, tuple(strides)

    def _build_encoded(self, encoding: Encoding) -> Call:
        weights = self.bundle.weights
        if encoding.kind == "quantized":
            return self._build_quantized(encoding)
        parts: list[object] = [self._build_tensor(n, weights[n]) for n in encoding.parts.values()]
        if encoding.kind == "nested":
            return Call(Name(UTILS, "_rebuild_nested_tensor"), tuple(parts))
        layout = self.storages.layout(encoding.kind)
        return sparse_call(layout, parts, encoding.shape, encoding.parameters.get("coalesced"))

    def _build_quantized(self, encoding: Encoding) -> Call:
        weights, parts = self.bundle.weights, encoding.parts
        scheme = str(encoding.parameters["scheme"])
        values: list[object] = []
        for role in ("scale", "zero_point"):
            part = weights[parts[role]]
            alone = scheme == "per_tensor_affine"
            values.append(_read_scalar(part) if alone else self._build_tensor(parts[role], part))
            if alone:
                self.computed_slot.views.pop(parts[role], None)
        if "axis" in encoding.parameters:
            values.append(encoding.parameters["axis"])
        name, type_ = parts["values"], TYPES[encoding.dtype]
        return self._build_tensor(name, weights[name], type_, (torch_name(scheme), *values))


def _has_no_type(tensor: Tensor) -> bool:
    """Return whether torch has no type for a tensor's elements."""
    name = tensor.dtype.name
    if name in PACKED:
        return not tensor.shape or bool(tensor.shape[-1] % 2)
    return tensor.dtype.bits < 8 or name not in TYPES


def _has_torch_layout(values: Tensor, encoding: Encoding) -> bool:
    type_ = TYPES[encoding.dtype]
    return values.dtype.itemsize == type_.itemsize and values.shape == encoding.shape


def _takes_gradient(type_: TorchType) -> bool:
    return type_.name.startswith(("float", "bfloat", "complex"))


def _read_scalar(tensor: Tensor) -> object:
    """Return the only element of a tensor."""
    value: object = tensor.numpy().reshape(()).item()
    return value
