"""Lay out the storages of a torch file, and the tensors that view them.

Tensors that shared bytes in the source share a storage in the file. Whole storages are written, as
torch does, and every tensor keeps its offset and strides. Views of storages that old files declare
become parts of the storage that holds them. Big-endian elements are swapped as they are copied. For
a device without storages, CPU tensors are written, and torch moves them there when it loads them.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_tensor.py (``_reduce_ex_internal``)
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from converter.devices.names import TorchDevice
from formats.containers.pickle.encoder import Call, Name, Outside
from formats.core.storage import Span
from formats.core.weights import DTYPES, ByteOrder, Piece, Tensor, split, swap_bytes
from formats.errors import UnsupportedError
from formats.torch.tensor_values import STORAGES, TorchType
from formats.torch.writer import Content
from formats.torch.zip_records import Record

# Type, shape, strides, position in the file, device.
Description: TypeAlias = "tuple[str, tuple[int, ...], tuple[int, ...], int | None, str]"
BYTES = DTYPES["uint8"]
EMPTY = Tensor.inline(BYTES, (0,), b"")
UNNUMBERED = -1  # of a storage that the pickle has not named yet
UNTYPED = Name("torch.storage", "UntypedStorage")
# Types with a storage class of their own; tensors of the others name theirs beside the storage.
TYPED = {
    type_.name: Name("torch", name)
    for name, type_ in STORAGES.items()
    if name not in ("Storage", "UntypedStorage", "_UntypedStorage", "ComplexHalfStorage")
}


def torch_name(name: str) -> Name:
    """Return one of torch's names, such as its dtypes."""
    module, _, last = f"torch.{name}".rpartition(".")
    return Name(module, last)


def hooks() -> Call:
    """Return the empty dict of hooks that each tensor carries."""
    return Call(Name("collections", "OrderedDict"))


@dataclass(eq=False, slots=True)
class Slot:
    """A storage as a tensor refers to it.

    Attributes:
        span: Its bytes in the source; None if they are computed, or there are none.
        content: Its bytes, if there is no span.
        type: Of the elements.
        byteorder: Of the elements in the span.
        stays: Whether it is on the CPU for every device.
        entry: The storage in the file, once all are known.
        shift: Offset of the slot in that storage, in bytes.
    """

    span: Span | None
    content: Tensor | None
    type: TorchType
    byteorder: ByteOrder = "little"
    stays: bool = False
    entry: "StorageEntry | None" = None
    shift: int = 0


@dataclass(eq=False, slots=True)
class StorageEntry:
    """A storage in the file, the slots that view it, and its number, once the pickle has one."""

    number: int = UNNUMBERED
    slots: list[Slot] = field(default_factory=list)
    span: Span | None = None

    @property
    def is_typed(self) -> bool:
        """Whether all views are of one type that has a storage class."""
        names = {slot.type.name for slot in self.slots}
        return len(names) == 1 and names <= TYPED.keys()

    @property
    def nbytes(self) -> int:
        """Its size."""
        if self.span is None:
            content = self.slots[0].content
            return content.nbytes if content is not None else 0
        # There may be bytes behind the last element; torch computes places without them.
        spare = self.span.length % self.slots[0].type.itemsize if self.is_typed else 0
        return self.span.length - spare


@dataclass(eq=False, slots=True)
class View:
    """A tensor, and the call that rebuilds it."""

    call: Call
    slot: Slot
    type: TorchType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    flags: frozenset[str] = frozenset()
    quantizer: tuple[object, ...] | None = None
    is_written: bool = False  # a tensor refused half-way is not in the pickle


class Storages:
    """The storages of one file.

    Attributes:
        device: That they are tagged with.
        later: Functions to call after the calls of tensors are filled in.
    """

    def __init__(self, device: TorchDevice, crcs: Mapping[tuple[int, int, int], int]) -> None:
        """Start without any.

        Args:
            device: For which the file is written.
            crcs: Id of a file, offset and length of a span of it → its CRC, if known.
        """
        self.device = device
        self._views: list[View] = []
        self.later: list[Callable[[], None]] = []
        self._crcs = crcs
        self._slots: list[Slot] = []
        self._same: dict[object, Slot] = {}
        self._numbered: list[StorageEntry] = []
        self._layouts: dict[str, Call] = {}

    def slot(
        self, span: Span | None, type_: TorchType, byteorder: ByteOrder, key: object, *, stays: bool
    ) -> Slot:
        """Return the storage of a span of bytes; without a span, the one of ``key``."""
        place = key if span is None else (id(span.storage), span.offset, span.length)
        same = (place, type_.name, byteorder, stays)
        found = self._same.get(same)
        if found is None:
            found = self._same[same] = Slot(span, None, type_, byteorder, stays)
            self._slots.append(found)
        return found

    def add_computed_slot(
        self, content: Tensor, type_: TorchType, key: object, *, stays: bool
    ) -> Slot:
        """Return the storage of a tensor's bytes in row-major order; one for each ``key``."""
        same = (key, type_.name)
        found = self._same.get(same)
        if found is None:
            found = self._same[same] = Slot(None, _as_bytes(content), type_, stays=stays)
            self._slots.append(found)
        return found

    def reference(self, slot: Slot) -> Outside:
        """Return the persistent id that refers to a storage."""
        return Outside(lambda: self._persistent_id(slot))

    def layout(self, name: str) -> Call:
        """Return a layout, such as ``sparse_coo``; each is a single object in torch."""
        function = Name("torch.serialization", "_get_layout")
        return self._layouts.setdefault(name, Call(function, (f"torch.{name}",)))

    def tensor(self, view: View) -> Call:
        """Return the call that rebuilds a tensor; `settle` fills it in."""
        self._views.append(view)
        if self.device.has_storages or view.slot.stays:
            return view.call
        dtype = torch_name(view.type.name)
        # requires_grad is a property of the moved tensor, not of the CPU tensor.
        moved = (view.call, dtype, str(self.device), view.requires_grad)
        view.requires_grad = False
        return Call(Name("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"), moved)

    def settle(self) -> None:
        """Fill all calls in.

        Raises:
            UnsupportedError: Tensors share bytes in a way that no storage can give them.
        """
        self._merge_overlapping()
        for view in self._views:
            self._fill_call(view)
        for fill in self.later:
            fill()

    def contents(self) -> list[Content]:
        """Return the contents of storages, in the order in which the pickle named them.

        torch relies on that order when it computes their positions.
        """
        return [self._content(entry) for entry in self._numbered]

    def describe(self, records: Sequence[Record]) -> Counter[Description]:
        """Return the descriptions of all tensors that a reader of the file must find.

        Args:
            records: The records of the storages in the file, by number.
        """
        return Counter(self._describe(view, records) for view in self.views)

    def _describe(self, view: View, records: Sequence[Record]) -> Description:
        entry = view.slot.entry
        assert entry is not None
        start = view.offset * view.type.itemsize + view.slot.shift
        place = records[entry.number].start + start if entry.nbytes else None
        stays = view.slot.stays and all(each.stays for each in entry.slots)
        device = "cpu" if stays else str(self.device)
        return (view.type.name, view.shape, view.strides, place, device)

    @property
    def views(self) -> list[View]:
        """The tensors in the pickle, once it is written."""
        return [view for view in self._views if view.is_written]

    @property
    def shared(self) -> int:
        """Number of storages that several tensors view."""
        seen: dict[int, int] = {}
        for view in self.views:
            seen[id(view.slot.entry)] = seen.get(id(view.slot.entry), 0) + 1
        return sum(count > 1 for count in seen.values())

    def _merge_overlapping(self) -> None:
        """Merge the storages that share bytes."""
        files: dict[int, list[tuple[Span, Slot]]] = {}
        for slot in self._slots:
            if slot.span is None or not slot.span.length:
                _merge_slots([slot])
            else:
                files.setdefault(id(slot.span.storage), []).append((slot.span, slot))
        for slots in files.values():
            for group in _find_overlapping(slots):
                _merge_slots(group)

    def _persistent_id(self, slot: Slot) -> tuple[object, ...]:
        entry = slot.entry
        assert entry is not None
        if entry.number == UNNUMBERED:
            entry.number = len(self._numbered)
            self._numbered.append(entry)
        kind, size = TYPED.get(slot.type.name, UNTYPED), slot.type.itemsize
        if not entry.is_typed:
            kind, size = UNTYPED, 1
        stays = all(each.stays for each in entry.slots)
        location = "cpu" if stays else self.device.location
        return ("storage", kind, str(entry.number), location, entry.nbytes // size)

    def _fill_call(self, view: View) -> None:
        entry = view.slot.entry
        assert entry is not None
        offset, rest = divmod(view.slot.shift, view.type.itemsize)
        if rest or (view.quantizer is not None and not entry.is_typed):
            raise UnsupportedError("tensors that share bytes as elements of different sizes")

        def name() -> tuple[object, ...]:
            view.is_written = True
            return self._persistent_id(view.slot)

        storage = Outside(name)
        args: list[object] = [storage, view.offset + offset, view.shape, view.strides]
        if view.quantizer is not None:
            args += [view.quantizer, view.requires_grad, hooks()]
            view.call.function = Name("torch._utils", "_rebuild_qtensor")
        elif entry.is_typed:
            args += [view.requires_grad, hooks()]
            view.call.function = Name("torch._utils", "_rebuild_tensor_v2")
        else:
            args += [view.requires_grad, hooks(), torch_name(view.type.name)]
            view.call.function = Name("torch._utils", "_rebuild_tensor_v3")
        if view.flags:
            args.append(dict.fromkeys(sorted(view.flags), True))
        view.call.args = tuple(args)

    def _content(self, entry: StorageEntry) -> Content:
        if entry.span is None:
            return Content(entry.slots[0].content or EMPTY)
        span = entry.span.sub(0, entry.nbytes)
        width = _swap_width(entry)
        if width > 1:
            shape = (span.length,)
            return Content(Tensor.computed(BYTES, shape, lambda: _swap_bytes(span, width)))
        crc = self._crcs.get((id(span.storage), span.offset, span.length))
        return Content(Tensor.contiguous(BYTES, (span.length,), span, origin=span.name), crc)


def _find_overlapping(slots: list[tuple[Span, Slot]]) -> Iterator[list[Slot]]:
    """Yield the slots of one file in groups that share no byte with each other."""
    group: list[Slot] = []
    end = 0
    for span, slot in sorted(slots, key=lambda found: found[0].offset):
        if group and span.offset >= end:
            yield group
            group = []
        end = max(end if group else 0, span.offset + span.length)
        group.append(slot)
    yield group


def _merge_slots(slots: list[Slot]) -> None:
    """Merge slots into one storage."""
    entry = StorageEntry(slots=slots)
    spans = [slot.span for slot in slots if slot.span is not None]
    if spans:
        start = min(span.offset for span in spans)
        end = max(span.offset + span.length for span in spans)
        entry.span = Span(spans[0].storage, start, end - start)
    for slot in slots:
        slot.entry = entry
        slot.shift = slot.span.offset - entry.span.offset if slot.span and entry.span else 0


def _swap_width(entry: StorageEntry) -> int:
    """Return the width of elements whose bytes have to be swapped; 1 if they do not.

    Raises:
        UnsupportedError: The same bytes are used in both byte orders.
    """
    widths = {
        slot.type.dtype.itemsize // slot.type.dtype.parts if slot.byteorder == "big" else 1
        for slot in entry.slots
    }
    if len(widths) > 1:
        raise UnsupportedError("tensors that share bytes in both byte orders")
    return widths.pop()


def _swap_bytes(span: Span, width: int) -> Iterator[Piece]:
    for chunk in split(span):
        yield swap_bytes(chunk, width)


def _as_bytes(content: Tensor) -> Tensor:
    """Return a tensor's bytes as a one-dimensional tensor of uint8."""
    if not content.nbytes:
        return EMPTY
    return Tensor.computed(BYTES, (content.nbytes,), content.pieces, origin=content.origin)
