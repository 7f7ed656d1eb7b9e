"""HDF5 files as a tree of groups and lazy datasets: our own reader, for untrusted files.

Spec: HDF5 File Format Specification 3.0,
https://github.com/HDFGroup/hdf5/blob/hdf5_1_14_6/doxygen/dox/H5.format.dox
All superblocks (0 to 3, behind a user block too), old and new groups and headers, all layouts and
chunk indexes, the filters of `hdf5_filters`. Soft links are followed inside the file. What leads
out of it (external links, external raw data, virtual datasets) is listed and never followed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from formats.containers.hdf5.bytes import Fields, Image
from formats.containers.hdf5.chunks import Chunked, repeat_element
from formats.containers.hdf5.messages import (
    Attribute,
    Dataspace,
    Datatype,
    Layout,
    fill_value,
    filters,
    layout,
    old_fill_value,
)
from formats.containers.hdf5.objects import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    DATASPACE,
    DATATYPE,
    EXTERNAL,
    FILL,
    FILTERS,
    LAYOUT,
    OLD_FILL,
    Headers,
    Link,
    Message,
)
from formats.core.bundle import JSON
from formats.core.storage import Buffer, Span
from formats.core.weights import DType, Piece, Tensor, swap_bytes
from formats.errors import CorruptError, LimitError, SafetyError
from formats.limits import Limits

MAGIC = b"\x89HDF\r\n\x1a\n"

MAX_SOFT_LINKS = 16  # followed for one path; the library's own default


def find_signature(span: Span) -> int | None:
    """Return where an HDF5 superblock starts (II.A: at 0, 512, 1024, 2048, ...), or None."""
    at = 0
    while at + len(MAGIC) <= span.length:
        if span.read(at, len(MAGIC)) == MAGIC:
            return at
        at = at * 2 or 512
    return None


MAX_LINKS = 4  # for each object that there may be; sound files have one


@dataclass(frozen=True, eq=False)
class Node:
    """An object of the file.

    Attributes:
        file: The file.
        path: How it was reached.
        address: Of its header; equal for two names of the same object.
        messages: Its header.
        first: The first message of each type.
    """

    file: "Hdf5"
    path: str
    address: int
    messages: list[Message] = field(repr=False)
    first: dict[int, Message] = field(repr=False)

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        """Its attributes by name, not decoded."""
        found = [self.file.headers.attribute(m.data, m.address) for m in self._all(ATTRIBUTE)]
        for message in self._all(ATTRIBUTE_INFO):
            found.extend(self.file.headers.dense_attributes(message))
        return dict(found)

    def value(self, name: str) -> JSON:
        """Return an attribute as text, number or nested list; None where it is absent or opaque."""
        attribute = self.attributes.get(name)
        return None if attribute is None else self.file.headers.value(attribute)

    def _all(self, type: int) -> Iterator[Message]:
        return (m for m in self.messages if m.type == type)

    def _only(self, type: int) -> Fields | None:
        """Return the first message of a type, a shared one from where it really is."""
        message = self.first.get(type)
        return None if message is None else self.file.headers.fields(message)


class Group(Node):
    """A group: names that lead to other objects."""

    @cached_property
    def links(self) -> dict[str, Link]:
        """Its links: by time of creation where all record it, else by name."""
        found = dict(self.file.headers.links(self.messages))
        if all(link.order is not None for link in found.values()):
            return dict(sorted(found.items(), key=lambda item: item[1].order or 0))
        return dict(sorted(found.items()))

    def get(self, path: str) -> "Group | Dataset | Link | None":
        """Follow a path from here.

        Returns:
            What is there; the link where it leads out of the file; None where nothing is.

        Raises:
            CorruptError: Soft links lead in a circle.
        """
        return self.file.follow(self, path)


class Dataset(Node):
    """An array, read when its tensor is."""

    @cached_property
    def datatype(self) -> Datatype:
        """Its element type."""
        fields = self._only(DATATYPE)
        if fields is None:
            raise self.file.image.error(f"dataset {self.path!r} has no datatype", self.address)
        return self.file.headers.datatype(fields)

    @cached_property
    def space(self) -> Dataspace:
        """Its sizes."""
        fields = self._only(DATASPACE)
        if fields is None:
            raise self.file.image.error(f"dataset {self.path!r} has no dataspace", self.address)
        return self.file.headers.space(fields)

    @cached_property
    def layout(self) -> Layout:
        """Its storage."""
        fields = self._only(LAYOUT)
        if fields is None:
            raise self.file.image.error(f"dataset {self.path!r} has no layout", self.address)
        return layout(fields)

    @property
    def leads_out(self) -> str | None:
        """What lies outside the file, in words, or None."""
        if EXTERNAL in self.first:
            return "external raw data"
        return "a virtual dataset" if self.layout.kind == "virtual" else None

    @property
    def obstacle(self) -> str | None:
        """Why it is no tensor, in words, or None."""
        if self.space.shape is None:
            return "no data (null dataspace)"
        kind = self.datatype
        if kind.dtype is None:
            what = "text" if kind.is_text else kind.kind
            return f"elements that are no plain numbers ({what}, {kind.size} bytes)"
        return None

    def tensor(self, dtype: DType | None = None) -> Tensor:
        """Return the dataset as a lazy tensor; always the same one, so that ties are seen.

        Args:
            dtype: What opaque elements of the same size are.

        Raises:
            CorruptError: Its storage does not fit its shape, or is not in the file.
        """
        dtype = dtype or self.datatype.dtype
        if dtype not in self._tensors:
            self._tensors[dtype] = self._tensor(dtype)
        return self._tensors[dtype]

    @cached_property
    def _tensors(self) -> dict[DType | None, Tensor]:
        return {}

    def _tensor(self, dtype: DType | None) -> Tensor:
        kind, shape, image = self.datatype, self.space.shape, self.file.image
        if shape is None or dtype is None or dtype.itemsize * prod(kind.shape) != kind.size:
            raise image.error(f"dataset {self.path!r} has {self.obstacle or 'other elements'}")
        full = shape + kind.shape
        where = self.layout
        nbytes = prod(shape) * kind.size
        out = self.leads_out
        if out is not None:
            return Tensor.computed(dtype, full, _refuse(out, self.path, image), origin=self.path)
        if where.kind == "compact":
            data = Span.whole(Buffer(where.data[:nbytes], self.path))
            return Tensor.contiguous(dtype, full, data, byteorder=kind.byteorder, origin=self.path)
        if where.kind == "contiguous" and image.is_defined(where.address) and nbytes:
            if where.size is not None and where.size < nbytes:
                raise image.error(
                    f"dataset {self.path!r} takes {nbytes} bytes, but {where.size} are stored"
                )
            data = image.span.sub(where.address, nbytes)
            return Tensor.contiguous(dtype, full, data, byteorder=kind.byteorder, origin=self.path)
        fill = self._fill(kind.size)
        width = dtype.itemsize // dtype.parts if kind.byteorder == "big" else 1
        if where.kind == "contiguous":
            element = swap_bytes(fill, width)
            return Tensor.computed(
                dtype, full, lambda: repeat_element(element, nbytes), origin=self.path
            )
        pipeline = self._only(FILTERS)
        chunked = Chunked(
            image,
            shape,
            self.space.maximum,
            kind.size,
            where,
            filters(pipeline) if pipeline else (),
            fill,
        )
        chunked.check()

        def make() -> Iterator[Piece]:
            for piece in chunked.pieces():
                if width == 1:
                    yield piece
                else:
                    yield swap_bytes(piece.read() if isinstance(piece, Span) else piece, width)

        return Tensor.computed(dtype, full, make, origin=self.path)

    def _fill(self, size: int) -> bytes:
        """Return the element that stands for what was never written."""
        fields, old = self._only(FILL), self._only(OLD_FILL)
        value = fill_value(fields) if fields else old_fill_value(old) if old else b""
        return value if len(value) == size else bytes(size)


class Hdf5:
    """One HDF5 file, or a run of bytes that is one.

    Attributes:
        image: Its bytes.
        root: Its root group.
    """

    def __init__(self, span: Span, limits: Limits) -> None:
        """Read the superblock (II.A).

        Raises:
            CorruptError: There is no superblock, or the file is shorter than it says.
        """
        base = find_signature(span)
        if base is None:
            raise CorruptError("is no HDF5 file: it has no signature", where=span.name)
        self.limits = limits
        self._nodes: dict[int, Group | Dataset | None] = {}
        root = self._superblock(span.sub(base, span.length - base), base)
        self.headers = Headers(self.image)
        node = self.node(root, "")
        if not isinstance(node, Group):
            raise self.image.error("the root is no group", root)
        self.root = node

    def _superblock(self, span: Span, base: int) -> int:
        """Set the image up, and return the address of the root group's header."""
        start = Fields(span.read(0, min(span.length, 128)), Image(span, self.limits, 8, 8), 0)
        start.skip(len(MAGIC))
        version = start.uint(1)
        if version > 3:
            raise start.image.make_unsupported_error(f"HDF5 superblock of version {version}")
        if version < 2:
            start.skip(4)
        sizes = start.uint(1), start.uint(1)
        if any(size not in (2, 4, 8) for size in sizes):
            raise start.error(f"offsets and lengths of {sizes} bytes")
        self.image = start.image = Image(span, self.limits, *sizes)
        # Behind the sizes: one reserved byte, tree sizes and flags; or flags alone.
        start.skip({0: 9, 1: 13}.get(version, 1))
        recorded_base = start.offset()
        start.offset()
        end = start.offset()
        if version < 2:
            start.offset()
            start.offset()
        root = start.offset()
        if version >= 2:
            start.check()
        # A base that is wrong is taken from where the signature is, as the library does.
        if self.image.is_defined(end) and end - recorded_base > span.length:
            raise CorruptError(
                f"the file has {span.length + base} bytes, and {end - recorded_base + base} "
                "when it was written",
                where=span.name,
                hint="It is truncated; copy or download it again",
            )
        return root

    def node(self, address: int, path: str) -> "Group | Dataset | None":
        """Return the object whose header is at ``address``; None for a named datatype."""
        if address in self._nodes:
            return self._nodes[address]
        if len(self._nodes) >= self.limits.max_objects:
            raise LimitError(f"more than {len(self._nodes)} objects", where=self.image.name)
        messages = self.headers.messages(address)
        first = {m.type: m for m in reversed(messages)}
        node: Group | Dataset | None = None
        if LAYOUT in first:
            node = Dataset(self, path, address, messages, first)
        elif DATATYPE not in first:
            node = Group(self, path, address, messages, first)
        self._nodes[address] = node
        return node

    def follow(self, group: Group, path: str) -> Group | Dataset | Link | None:
        """Follow a path from ``group``; see `Group.get`."""
        todo = path.split("/")[::-1]
        if len(todo) > self.limits.max_depth:
            raise LimitError(f"a path of {len(todo)} names", where=self.image.name)
        node: Group | Dataset | None = self.root if path.startswith("/") else group
        soft = 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            link = node.links.get(name) if isinstance(node, Group) else None
            if link is None or node is None:
                return None
            if link.file is not None:
                return link
            if link.address is not None:
                node = self.node(link.address, f"{node.path}/{name}")
                continue
            soft += 1
            if soft > MAX_SOFT_LINKS:
                raise self.image.error(f"soft links lead in a circle: {path!r}")
            if link.path.startswith("/"):
                node = self.root
            todo.extend(link.path.split("/")[::-1])
        return node

    def walk(self) -> Iterator[tuple[str, Dataset | Link]]:
        """Yield path and object of each dataset, and of each link that leads out of the file.

        A group with several names is entered once; a dataset comes under each of its names, but
        for soft links.
        """
        entered = {self.root.address}
        stack: list[tuple[str, Group | Dataset | Link]] = [("", self.root)]
        count = 0
        while stack:
            path, node = stack.pop()
            if not isinstance(node, Group):
                yield path, node
                continue
            if path.count("/") > self.limits.max_depth:
                raise LimitError(
                    f"groups nested deeper than {self.limits.max_depth}", where=self.image.name
                )
            inside: list[tuple[str, Group | Dataset | Link]] = []
            count += len(node.links)
            if count > MAX_LINKS * self.limits.max_objects:
                raise LimitError(f"at least {count} links to objects", where=self.image.name)
            for name, link in node.links.items():
                child: Group | Dataset | Link | None = link
                if link.address is not None:
                    child = self.node(link.address, f"{path}/{name}")
                elif link.file is None:
                    continue  # what a soft link means has a place of its own
                if child is None or (isinstance(child, Group) and child.address in entered):
                    continue
                if isinstance(child, Group):
                    entered.add(child.address)
                inside.append((f"{path}/{name}", child))
            stack.extend(reversed(inside))


def _refuse(what: str, path: str, image: Image) -> "_Refusal":
    return _Refusal(f"dataset {path!r} is {what}: it leads out of the file", image.name)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Stands for data outside the file, which are never read."""

    found: str
    where: str

    def __call__(self) -> Iterator[Piece]:
        raise SafetyError(self.found, where=self.where)
