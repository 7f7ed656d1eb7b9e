"""Lazy tensors over the bytes that a pickle's tensor records name.

What no plain dtype can hold (quantised, sparse, nested, subclasses) becomes several tensors and an
`Encoding` that says how they make one.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from formats.core.bundle import JSON, Encoding, Group
from formats.core.names import unique_names
from formats.core.storage import Buffer, Span
from formats.core.weights import DTYPES, Piece, Tensor, row_major
from formats.errors import CorruptError, UnsupportedError
from formats.torch.distributed_tensors import RankMissingError, join
from formats.torch.tensor_values import TensorValue
from formats.torch.walk import Found, Tree

EMPTY = Span.whole(Buffer(b"", "an empty storage"))


@dataclass(slots=True)
class Made:
    """What a tree's tensors became."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    leftovers: dict[Group, dict[str, Tensor]] = field(default_factory=dict)
    encodings: dict[str, Encoding] = field(default_factory=dict)
    notes: dict[str, dict[str, JSON]] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    tensor_devices: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class FoundTensor:
    """One name to give: to a tensor, or to several that an encoding ties together."""

    candidates: tuple[str, str]
    group: Group | None
    tensor: Tensor | None
    notes: dict[str, JSON]
    device: str | None = None
    encode: "Callable[[list[str]], Encoding] | None" = None


class Maker:
    """One pass over the tensors of a tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.entries: list[FoundTensor] = []
        self.position: dict[int, int] = {}  # id of a Found → index of its entry
        self.devices: dict[str, int] = {}
        self._flagged: dict[object, Tensor] = {}

    def make(self) -> Made:
        """Return the tensors under unique names."""
        for found in self.tree.tensors:
            self._add(found)
        names = unique_names([e.candidates for e in self.entries])
        made = Made(devices=self.devices)
        for entry, name in zip(self.entries, names, strict=True):
            if entry.tensor is not None:
                group = entry.group
                into = made.weights if group is None else made.leftovers.setdefault(group, {})
                into[name] = entry.tensor
            if entry.encode is not None:
                made.encodings[name] = entry.encode(names)
            if entry.notes:
                made.notes[name] = entry.notes
            if entry.device is not None:
                made.tensor_devices[name] = (entry.device,)
        return made

    def _add(self, found: Found) -> None:
        value = found.value
        device = value.device or (value.storage.location if value.storage else None)
        for part in value.parts.values():
            if isinstance(part, TensorValue) and part.storage is not None:
                device = device or part.storage.location
        if device is not None:
            self.devices[device] = self.devices.get(device, 0) + 1
        first = self.position[id(found)] = len(self.entries)
        if found.tensor is not None:
            self._entry(found, found.tensor)
        elif value.layout == "meta" or device == "meta":
            named = value.type.name if value.type else "unknown"
            self.tree.leave_out(
                found.path, f"{named}{list(value.shape)} on the meta device: it has no elements"
            )
        elif value.type is None and value.layout not in ("nested", "subclass"):
            named = str(value.parameters.get("dtype", "unknown"))
            self.tree.leave_out(found.path, f"elements of a type we do not know, {named}")
        elif value.layout == "strided":
            self._entry(found, self.tensor(value, found.origin))
        elif value.layout == "distributed":
            self._entry(found, self._join_alone(value, found.origin))
        elif value.layout == "subclass" and not found.roles:
            self.tree.leave_out(found.path, f"a {value.cls} that holds no tensors we can find")
        else:
            self._encode(found)
        for entry in self.entries[first:]:
            entry.device = device

    def _entry(
        self, found: Found, tensor: Tensor | None, suffix: str = "", *, notes: bool = True
    ) -> int:
        names = (found.path + suffix, found.origin + suffix)
        self.entries.append(FoundTensor(names, found.group, tensor, found.notes if notes else {}))
        return len(self.entries) - 1

    def _encode(self, found: Found) -> None:
        value = found.value
        places: dict[str, int] = {}
        quantized = value.layout == "quantized"
        own = self._entry(found, self.tensor(value, found.origin) if quantized else None)
        if quantized:
            places["values"] = own
        for role, part in value.parts.items():
            origin = f"{found.origin}.{role}"
            tensor = self._part(part, role, origin)
            places[role] = self._entry(found, tensor, f".{role}", notes=False)
        dtype = value.type.name if value.type else "unknown"
        parameters: dict[str, JSON] = dict(value.parameters)
        if value.cls is not None:
            parameters["class"] = value.cls

        def encode(names: list[str]) -> Encoding:
            parts = {role: names[i] for role, i in places.items()}
            for role, inner in found.roles.items():
                place = self.position.get(id(inner))
                if place is not None and place < len(names):
                    parts[role] = names[place]
            return Encoding(value.layout, dtype, value.shape, parts, parameters)

        self.entries[own].encode = encode

    def _part(self, part: object, role: str, origin: str) -> Tensor:
        if isinstance(part, TensorValue):
            return self.tensor(part, origin)
        kind, code = ("float64", "d") if role == "scale" else ("int64", "q")
        numbers = part if isinstance(part, list) else [part]
        try:
            data = struct.pack(f"<{len(numbers)}{code}", *numbers)
        except struct.error:
            raise CorruptError(f"a quantised tensor's {role} is no number", where=origin) from None
        shape = (len(numbers),) if isinstance(part, list) else ()
        return Tensor.inline(DTYPES[kind], shape, data, origin=origin)

    def _join_alone(self, value: TensorValue, origin: str) -> Tensor:
        """Return a tensor of ranks, of which there is one file."""
        try:
            return join([value], self.tensor, lambda _: None, origin=origin)
        except RankMissingError as e:
            raise UnsupportedError(
                f"has the parts of one rank: {e.found}", where=origin,
                hint="Give the folder that has the files of all ranks",
            ) from e  # fmt: skip

    def tensor(self, value: TensorValue, origin: str) -> Tensor:
        """Return one strided tensor.

        Raises:
            CorruptError: Its storage is not there, or it reaches out of it.
        """
        ref, element = value.storage, value.type
        if ref is None or element is None:
            raise CorruptError("a tensor has no storage", where=origin)
        span = ref.span
        if span is None:
            if 0 not in value.shape and ref.nbytes:
                raise CorruptError(f"storage {ref.key!r} is not in the file", where=origin)
            span = EMPTY
        strides = value.strides
        if strides is None:
            strides = tuple(s // element.itemsize for s in row_major(value.shape, element.dtype))
        dtype, shape = element.dtype, value.shape
        if element.name == "float4_e2m1fn_x2" and _is_row_major(shape, strides):
            # Two numbers a byte, and shapes that count bytes: said in numbers, as safetensors does.
            dtype = DTYPES["float4_e2m1fn"]
            run = span.sub(value.offset, _product(shape))
            return Tensor.contiguous(dtype, (*shape[:-1], 2 * shape[-1]), run, origin=origin)
        tensor = Tensor.strided(
            dtype, shape, span, offset=value.offset, strides=strides,
            byteorder=ref.byteorder, origin=origin,
        )  # fmt: skip
        return self._resolve(tensor, value.flags, origin) if value.flags else tensor

    def _resolve(self, base: Tensor, flags: frozenset[str], origin: str) -> Tensor:
        """Return the elements that a conjugate or negative view stands for."""
        key = (base.identity, flags)
        known = self._flagged.get(key)
        if known is None:
            known = Tensor.computed(
                base.dtype, base.shape, lambda: _flip_signs(base, flags), origin=origin
            )
            self._flagged[key] = known
        return known.with_origin(origin)


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    rows = row_major(shape, DTYPES["uint8"])
    return bool(shape) and all(
        n <= 1 or s == r for n, s, r in zip(shape, strides, rows, strict=True)
    )


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for n in shape:
        result *= n
    return result


def _flip_signs(base: Tensor, flags: frozenset[str]) -> Iterator[Piece]:
    """Yield the tensor's bytes with signs flipped: of all parts, or of the imaginary ones."""
    width = base.dtype.itemsize // base.dtype.parts
    sign, zero = bytes(width - 1) + b"\x80", bytes(width)
    mask = [zero] * base.dtype.parts
    if "neg" in flags:
        mask = [sign] * base.dtype.parts
    if "conj" in flags and len(mask) == 2:
        mask[1] = zero if mask[1] == sign else sign
    pattern = b"".join(mask)
    for chunk in base.chunks():  # of whole elements: every run length is a multiple of 16
        whole = pattern * (len(chunk) // len(pattern))
        flipped = int.from_bytes(chunk, "little") ^ int.from_bytes(whole, "little")
        yield flipped.to_bytes(len(chunk), "little")
