"""Containers of pickles and storages, of every torch version: zip, stream, tar, bare pickle.

Each way of reading gives the pickled value with its storages located; none reads their bytes.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.containers.pickle.constructors import CORE
from formats.containers.pickle.decoder import load
from formats.containers.pickle.globals import is_dangerous
from formats.containers.pickle.unpickler import Budget, Call, Constructor, Persistent, Unpickler
from formats.containers.pickle.values import Global, Record
from formats.containers.tar import first_name, is_tar, tar_members
from formats.containers.zip.archive import LOCAL_MAGIC, ZipArchive
from formats.core.bundle import LeftOut
from formats.core.storage import HEAD, Buffer, Span
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits
from formats.torch.globals import TORCH, plain_view
from formats.torch.numpy_globals import NUMPY
from formats.torch.tensor_values import StorageRef, as_text, parse_storage_id, storage_type
from formats.torch.walk import Tree, Value
from formats.torch.zip_storages import ZipStorages, find_prefix, zip_order, zip_records

TABLE: dict[str, Constructor] = {**CORE, **NUMPY, **TORCH}
MAGIC = 0x1950A86A20F9469CFC6C
MAGIC_BYTES = b"\x8a\x0a" + MAGIC.to_bytes(10, "little")  # LONG1
MAGIC_TEXT = b"L%dL\n" % MAGIC  # protocol 0
PROTOCOL = 1001
MAX_NESTING = 8  # files inside the bytes of files
START = 40  # opcodes that starting a decoder is worth
MEMBER = 5  # opcodes that a member of any archive but the first is worth


@dataclass(slots=True)
class Session:
    """What reading one artifact may still cost, and what was noticed on the way."""

    limits: Limits
    budget: Budget
    calls: dict[tuple[str, str], Call] = field(default_factory=dict)
    references: dict[tuple[str, str], Call] = field(default_factory=dict)  # and no calls
    left_out: list[LeftOut] = field(default_factory=list)
    nesting: int = 0
    archives: int = 0  # zip archives opened
    torch: bool = False  # whether any pickle names something of torch
    exact: Mapping[str, Constructor] = field(default_factory=dict)  # in place of what TABLE has

    @classmethod
    def begin(cls, limits: Limits, nbytes: int = 0) -> "Session":
        """Return a session that has spent nothing.

        Args:
            limits: What reading may cost.
            nbytes: Size of the artifact; what has more weights may have more pickles.
        """
        earned = min(nbytes // limits.bytes_per_opcode, 3 * limits.max_pickle_opcodes)
        return cls(limits, Budget(limits.max_pickle_opcodes + earned))

    def tree(self, *, classify: bool = True) -> Tree:
        """Return an empty tree that also looks into byte strings."""
        tree = Tree(self.limits, classify=classify)
        tree.open = self.open
        return tree

    def charge(self, opcodes: int, where: str = "") -> None:
        """Subtract a number of opcodes from the budget.

        Raises:
            LimitError: Nothing is left.
        """
        self.budget.opcodes -= opcodes
        if self.budget.opcodes < 0:
            raise LimitError("too many pickles, or too long ones", where=where or None)

    def archive(self, span: Span, where: str, opened: ZipArchive | None = None) -> ZipArchive:
        """Return the directory of a zip archive, ``opened`` where it was read already.

        Raises:
            CorruptError: It has none, or one that contradicts itself.
            LimitError: There are too many archives, or too large ones.
        """
        archive = opened or ZipArchive(span, self.limits)
        if self.archives:
            self.charge(MEMBER * len(archive.members), where)
        self.archives += 1
        return archive

    def unpickler(
        self, source: Span | bytes, where: str, persistent: Persistent | None = None
    ) -> Unpickler:
        """Return a decoder that knows torch and numpy.

        Raises:
            LimitError: The artifact has more pickles than the budget allows.
        """
        self.charge(START, where)  # a file of a million pickles is as slow as one of many more
        return Unpickler(
            source, self.limits, self.budget,
            constructors=TABLE | dict(self.exact) | {
                "torch.storage._load_from_bytes": self._load_from_bytes,
                "torch._utils._load_from_bytes": self._load_from_bytes,
            },
            persistent=persistent, where=where,
        )  # fmt: skip

    def load(self, vm: Unpickler) -> object:
        """Run a decoder and keep what it noticed."""
        try:
            return load(vm)
        finally:
            self.torch = self.torch or any(n.startswith("torch.") for n in vm.globals)
            for call in vm.calls.values():
                self.calls.setdefault((call.name, call.where), call)
            for name in vm.globals:
                if name not in vm.calls and name not in vm.constructors and is_dangerous(name):
                    self.references.setdefault((name, vm.where), Call(name, vm.where))

    def open(self, data: bytes | Span, where: str) -> Value | None:
        """Return the content of a torch file inside a byte string; None if it is not one."""
        size = data.length if isinstance(data, Span) else len(data)
        head = data.read(0, min(512, size)) if isinstance(data, Span) else data[:512]
        if not is_stream(head) and not (head.startswith(LOCAL_MAGIC) and b"/data.pkl" in head):
            return None
        self.budget.opcodes -= min(size, 1 << 16) >> 4
        try:
            return Value(self._nested(data, where).value)
        except CorruptError:  # it only looked like one; the tree keeps or names the bytes
            return None

    def _load_from_bytes(self, vm: Unpickler, args: tuple[object, ...]) -> object:
        """A storage that was pickled by itself is a whole torch file inside a byte string."""
        data = args[0] if args else None
        if isinstance(data, str):
            data = data.encode("latin-1", "replace")
        if not isinstance(data, (bytes, Span)):
            return Record("torch.storage._load_from_bytes", args)
        return self._nested(data, vm.where).value

    def _nested(self, data: bytes | Span, where: str) -> "Loaded":
        if self.nesting >= MAX_NESTING:
            raise LimitError(f"torch files nested {self.nesting} deep", where=where)
        span = Span.whole(Buffer(data, where)) if isinstance(data, bytes) else data
        self.nesting += 1
        try:
            return read_any(span, self, where)
        finally:
            self.nesting -= 1


@dataclass(slots=True)
class Loaded:
    """One torch file, opened.

    Attributes:
        value: What was pickled.
        variant: Which container, in words.
        recorded: What the container says about itself.
        sources: Class → source text, where old torch kept it.
        constants: Tensors that TorchScript code refers to, of an archive inside another.
        framework: Who wrote it, as far as it shows.
        names: Dotted names that a bare pickle refers to.
    """

    value: object
    variant: str
    recorded: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    constants: tuple[object, ...] = ()
    framework: str | None = "torch"
    names: tuple[str, ...] = ()


def read_any(span: Span, session: Session, where: str, archive: ZipArchive | None = None) -> Loaded:
    """Open a torch file of any age; ``archive`` is its directory, where it was read already.

    Raises:
        CorruptError: It is not a torch file, or a damaged one.
    """
    head = span.read(0, min(HEAD, span.length))
    if head.startswith(LOCAL_MAGIC):
        archive = session.archive(span, where, archive)
        prefix = find_prefix(archive)
        if prefix is None:
            raise CorruptError("zip archive without data.pkl", where=where)
        return read_zip(archive, prefix, session, where)
    if is_stream(head):
        return read_stream(span, session, where)
    if is_legacy_tar(head):
        return read_tar(span, session, where)
    return read_bare(span, session, where)


def read_zip(archive: ZipArchive, prefix: str, session: Session, where: str) -> Loaded:
    """Open what ``torch.save`` writes since 1.6."""
    recorded = zip_records(archive, prefix)
    storages = ZipStorages(archive, prefix + "data/{}", where, zip_order(archive, prefix, where))
    name = prefix + "data.pkl"
    vm = session.unpickler(archive[name].span(), f"{where}!{name}", storages)
    loaded = Loaded(session.load(vm), "zip archive (torch 1.6 and later)", recorded)
    name = prefix + "constants.pkl"
    if name in archive:
        storages = ZipStorages(archive, prefix + "constants/{}", where, storages.byteorder)
        vm = session.unpickler(archive[name].span(), f"{where}!{name}", storages)
        constants = session.load(vm)
        loaded.constants = constants if isinstance(constants, tuple) else ()
    return loaded


def is_stream(head: bytes) -> bool:
    """Return whether bytes begin like what ``torch.save`` wrote before 1.6."""
    return MAGIC_BYTES in head[:24] or head.startswith(MAGIC_TEXT)


class StreamStorages:
    """Storages that follow the pickle which refers to them."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.refs: dict[str, StorageRef] = {}
        self.views: dict[str, tuple[StorageRef, StorageRef, int]] = {}
        self.sources = sources

    def __call__(self, vm: Unpickler, pid: object) -> object:
        """Return what a persistent id names: a storage, a view of one, or a class with source."""
        if not isinstance(pid, tuple) or len(pid) < 2:
            return Record("persistent id", (pid,))
        kind = as_text(pid[0])
        if kind == "module":
            cls = pid[1]
            source = pid[3] if len(pid) > 3 else None
            if isinstance(cls, Global) and isinstance(source, str):
                self.sources[cls.name] = source
            return cls
        if kind != "storage" or len(pid) < 5:
            return Record("persistent id", (pid,))
        element, key, location, nbytes = parse_storage_id(vm, pid)
        root = self.refs.get(key)
        if root is None:
            root = self.refs[key] = StorageRef(key, element, location, nbytes)
        view = pid[5] if len(pid) > 5 else None
        return root if view is None else self._view(vm, root, view)

    def _view(self, vm: Unpickler, root: StorageRef, view: object) -> StorageRef:
        if not isinstance(view, tuple) or len(view) != 3:
            raise vm.corrupt("views a storage in a way that we do not know")
        key, offset, numel = as_text(view[0]), view[1], view[2]
        if key is None or type(offset) is not int or type(numel) is not int or numel < 0:
            raise vm.corrupt("views a storage in a way that we do not know")
        if key not in self.views:
            size = root.type.itemsize
            ref = StorageRef(key, root.type, root.location, numel * size)
            self.views[key] = (ref, root, offset * size)
        return self.views[key][0]

    def resolve_views(self) -> None:
        """Locate views, once their storages are."""
        for ref, root, offset in self.views.values():
            if root.span is not None:
                ref.span = root.span.sub(offset, ref.nbytes)


def read_stream(span: Span, session: Session, where: str) -> Loaded:
    """Open what ``torch.save`` wrote before 1.6: five pickles, then the storages."""
    at = 0

    def following(name: str, persistent: Persistent | None = None) -> object:
        nonlocal at
        vm = session.unpickler(span.sub(at, span.length - at), f"{where}!{name}", persistent)
        value = session.load(vm)
        at += vm.position
        return value

    if following("magic") != MAGIC:
        raise CorruptError("is no torch stream: the magic number is another", where=where)
    if (protocol := following("protocol")) != PROTOCOL:
        raise UnsupportedError(f"torch stream of protocol {protocol!r:.40}", where=where)
    system = following("sys_info")
    sources: dict[str, str] = {}
    storages = StreamStorages(sources)
    value = following("object", storages)
    keys = following("storage keys")
    if not isinstance(keys, (list, tuple)):
        raise CorruptError("storage keys are no list", where=where, offset=at)
    for raw in keys:
        key = as_text(raw)
        ref = storages.refs.get(key) if key is not None else None
        if ref is None:
            raise CorruptError(f"data of a storage {key!r:.40} that no tensor names", where=where)
        at = _place(ref, span, at, where)
    storages.resolve_views()
    if at < span.length:
        session.left_out.append(LeftOut(where, f"{span.length - at} bytes behind the last storage"))
    recorded = {}
    if isinstance(system, dict) and isinstance(system.get("little_endian"), bool):
        recorded["written_on"] = "little" if system["little_endian"] else "big"
    return Loaded(value, "stream (torch 0.1.10 to 1.5)", recorded, sources)


def _place(ref: StorageRef, span: Span, at: int, where: str) -> int:
    """Note where a storage is: an int64 count of elements, and the elements, little-endian."""
    count: int = struct.unpack("<q", span.read(at, 8))[0]
    size = count * ref.type.itemsize
    if size != ref.nbytes:
        if count != ref.nbytes:
            raise CorruptError(
                f"storage {ref.key!r} has {count} elements",
                where=where,
                offset=at,
                expected=str(ref.nbytes // ref.type.itemsize),
            )
        size = count  # counted in bytes
    ref.span = span.sub(at + 8, size)
    return at + 8 + size


def is_legacy_tar(head: bytes) -> bool:
    """Return whether bytes begin like a tar archive with one of the members that torch wrote."""
    return is_tar(head) and first_name(head) in TAR_MEMBERS


TAR_MEMBERS = frozenset({"sys_info", "pickle", "storages", "tensors"})


def read_tar(span: Span, session: Session, where: str) -> Loaded:
    """Open what ``torch.save`` wrote before 0.1.10."""
    members = tar_members(span, where, session.limits)
    missing = {"pickle", "storages", "tensors"} - members.keys()
    if missing:
        raise CorruptError(f"tar archive without {', '.join(sorted(missing))}", where=where)
    objects: dict[str, object] = {}
    _tar_storages(members["storages"], objects, session, where)
    _tar_tensors(members["tensors"], objects, session, where)
    sources: dict[str, str] = {}

    def persistent(vm: Unpickler, pid: object) -> object:
        if isinstance(pid, tuple):  # (class, file, source)
            if len(pid) > 2 and isinstance(pid[0], Global) and isinstance(pid[2], str):
                sources[pid[0].name] = pid[2]
            return pid[0] if pid else None
        key = as_text(pid)
        if key is None or key not in objects:
            raise vm.corrupt(f"refers to an object {key!r:.40} that is not stored")
        return objects[key]

    vm = session.unpickler(members["pickle"], f"{where}!pickle", persistent)
    return Loaded(session.load(vm), "tar archive (torch before 0.1.10)", {}, sources)


class _Cursor:
    """Pickles and raw numbers that alternate in one member."""

    def __init__(self, span: Span, session: Session, where: str) -> None:
        self.span = span
        self.session = session
        self.where = where
        self.at = 0

    def read_pickle(self) -> object:
        """Return the next pickle's value."""
        rest = self.span.sub(self.at, self.span.length - self.at)
        vm = self.session.unpickler(rest, self.where)
        value = self.session.load(vm)
        self.at += vm.position
        return value

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Return the next numbers."""
        size = struct.calcsize(layout)
        self.at += size
        return struct.unpack(layout, self.span.read(self.at - size, size))

    def count(self) -> int:
        """Return the next pickle's value, a number of things."""
        n = self.read_pickle()
        if type(n) is not int or not 0 <= n <= self.session.limits.max_tensors:
            raise CorruptError("has no number where a count belongs", where=self.where)
        return n


def _tar_storages(span: Span, objects: dict[str, object], session: Session, where: str) -> None:
    cursor = _Cursor(span, session, f"{where}!storages")
    for _ in range(cursor.count()):
        entry = cursor.read_pickle()
        if not isinstance(entry, tuple) or len(entry) != 3:
            raise CorruptError("a storage is no triple", where=cursor.where, offset=cursor.at)
        key, element = as_text(entry[0]), storage_type(entry[2])
        if key is None or element is None:
            raise CorruptError("a storage has no known type", where=cursor.where, offset=cursor.at)
        (count,) = cursor.numbers("<q")
        ref = StorageRef(key, element, as_text(entry[1]), count * element.itemsize)
        ref.span = span.sub(cursor.at, ref.nbytes)
        cursor.at += ref.nbytes
        objects[key] = ref
    views = cursor.read_pickle()
    for view in views if isinstance(views, (list, tuple)) else ():
        if not isinstance(view, tuple) or len(view) != 4:
            raise CorruptError("a view of a storage is not four values", where=cursor.where)
        root = objects.get(as_text(view[1]) or "")
        if not isinstance(root, StorageRef) or root.span is None:
            raise CorruptError("views a storage that is not stored", where=cursor.where)
        offset, numel = view[2], view[3]
        if type(offset) is not int or type(numel) is not int:
            raise CorruptError("a view of a storage has no size", where=cursor.where)
        size = root.type.itemsize
        ref = StorageRef(as_text(view[0]) or "", root.type, root.location, numel * size)
        ref.span = root.span.sub(offset * size, numel * size)
        objects[ref.key] = ref


def _tar_tensors(span: Span, objects: dict[str, object], session: Session, where: str) -> None:
    cursor = _Cursor(span, session, f"{where}!tensors")
    for _ in range(cursor.count()):
        entry = cursor.read_pickle()
        if not isinstance(entry, tuple) or len(entry) != 3:
            raise CorruptError("a tensor is no triple", where=cursor.where, offset=cursor.at)
        ndim, _ = cursor.numbers("<ii")
        if not 0 <= ndim <= session.limits.max_rank:
            raise CorruptError(f"tensor of {ndim} axes", where=cursor.where, offset=cursor.at)
        shape, strides = cursor.numbers(f"<{ndim}q"), cursor.numbers(f"<{ndim}q")
        (offset,) = cursor.numbers("<q")
        key, storage = as_text(entry[0]), objects.get(as_text(entry[1]) or "")
        if key is None or not isinstance(storage, StorageRef):
            raise CorruptError("a tensor has no storage", where=cursor.where, offset=cursor.at)
        objects[key] = plain_view(storage, offset, shape, strides)


def read_bare(span: Span, session: Session, where: str) -> Loaded:
    """Open a pickle outside any container."""
    vm = session.unpickler(span, where)
    value = session.load(vm)
    if vm.position < span.length:
        rest = span.length - vm.position
        session.left_out.append(LeftOut(where, f"{rest} bytes behind the first pickle"))
    framework = "torch" if session.torch else None
    return Loaded(value, "bare pickle", framework=framework, names=tuple(vm.globals))
