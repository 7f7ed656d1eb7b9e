"""Zip archives of torch 1.6 and later: their storages, and what they record about themselves.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py
"""

from formats.containers.pickle.unpickler import Unpickler
from formats.containers.pickle.values import Record
from formats.containers.zip.archive import ZipArchive
from formats.core.storage import Span
from formats.core.weights import ByteOrder
from formats.errors import CorruptError
from formats.torch.tensor_values import StorageRef, TorchType, as_text, parse_storage_id


def find_prefix(archive: ZipArchive) -> str | None:
    """Return the folder of an archive that ``data.pkl`` lies in, with its slash."""
    found = [n for n in archive.members if n == "data.pkl" or n.endswith("/data.pkl")]
    found = [n for n in found if not n.startswith("__MACOSX/")]
    shortest = min(found, key=lambda n: n.count("/"), default=None)
    return None if shortest is None else shortest.removesuffix("data.pkl")


class ZipStorages:
    """The storages of one zip archive, found when a pickle refers to them."""

    def __init__(
        self, archive: ZipArchive, pattern: str, where: str, byteorder: ByteOrder = "little"
    ) -> None:
        """Look for storage ``key`` at ``pattern`` with its ``{}`` replaced."""
        self.archive = archive
        self.pattern = pattern
        self.where = where
        self.byteorder = byteorder
        self._refs: dict[tuple[str, str], StorageRef] = {}
        self._spans: dict[str, Span] = {}

    def __call__(self, vm: Unpickler, pid: object) -> object:
        """Return the storage that a persistent id names."""
        if not isinstance(pid, tuple) or len(pid) < 5 or as_text(pid[0]) != "storage":
            return Record("persistent id", (pid,))
        element, key, location, nbytes = parse_storage_id(vm, pid)
        ref = self._refs.get((key, element.name))
        if ref is None:
            ref = self.find(key, element, location, nbytes)
            self._refs[key, element.name] = ref
        return ref

    def find(self, key: str, element: TorchType, location: str | None, nbytes: int) -> StorageRef:
        """Return a storage of a size in bytes.

        Raises:
            CorruptError: The archive has no such storage, or a smaller one.
        """
        ref = StorageRef(key, element, location, nbytes)
        ref.byteorder = self.byteorder
        if nbytes and location != "meta":
            ref.span = self._span(key, nbytes)
        return ref

    def _span(self, key: str, nbytes: int) -> Span:
        span = self._spans.get(key)
        if span is None:
            span = self._spans[key] = self.archive[self.pattern.replace("{}", key)].span()
        if span.length < nbytes:
            raise CorruptError(
                f"storage {key!r} has {span.length} bytes", expected=str(nbytes), where=self.where
            )
        return span


def zip_records(archive: ZipArchive, prefix: str) -> dict[str, str]:
    """Return the small members that say something about the archive."""
    recorded = {}
    for name in ("version", ".data/version", "byteorder", ".format_version", ".storage_alignment"):
        text = _small(archive, prefix + name)
        if text is not None:
            recorded[name.rpartition("/")[2].lstrip(".")] = text
    if "version" in recorded:
        recorded["archive_version"] = recorded.pop("version")
    return recorded


def zip_order(archive: ZipArchive, prefix: str, where: str) -> ByteOrder:
    """Return the byte order of an archive's storages.

    Raises:
        CorruptError: It records one that there is not.
    """
    order = _small(archive, prefix + "byteorder")
    if order is None or order == "little":
        return "little"
    if order != "big":
        raise CorruptError(f"byteorder {order!r}", expected="little or big", where=where)
    return "big"


def _small(archive: ZipArchive, name: str) -> str | None:
    member = archive.members.get(name)
    if member is None or member.size > 64:
        return None
    return member.read(64).decode("utf-8", "replace").strip()
