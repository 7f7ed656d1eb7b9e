"""Fast reading of many small torch files of the same structure: distributed checkpoints.

The pickles of all chunks of one shape are the same bytes, so each is decoded once, and what it
describes is given the storage of every file that has it.
"""

from formats.containers.zip.archive import LOCAL_MAGIC, ZipArchive
from formats.core.storage import Span
from formats.limits import KIB
from formats.torch.containers import Session, read_any, read_zip
from formats.torch.tensor_values import StorageRef, TensorValue
from formats.torch.zip_storages import ZipStorages, find_prefix, zip_order

MAX_PICKLE = 1 * KIB  # a tensor's has about 150 bytes
KNOWN = 16  # opcodes that a file is worth whose pickle is known


class AlikeFiles:
    """Reads torch files, and remembers the pickles of those that are one tensor."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[str, bytes], tuple[TensorValue, StorageRef]] = {}

    def value(self, span: Span, where: str) -> object:
        """Return what was pickled into a torch file.

        Args:
            span: The file.
            where: What messages call it, or the file that it is a part of.

        Raises:
            CorruptError: It is no torch file, or a damaged one.
            LimitError: It asks for more than the limits grant.
        """
        if span.read(0, min(4, span.length)) != LOCAL_MAGIC:
            return read_any(span, self._session, where).value
        archive = self._session.archive(span, where)
        prefix = find_prefix(archive)
        member = archive.members.get(f"{prefix}data.pkl")
        if prefix is None or member is None or member.size > MAX_PICKLE:
            return read_any(span, self._session, where).value
        pickle = member.read(MAX_PICKLE)
        known = self._known.get((where, pickle))
        if known is not None:
            self._session.charge(KNOWN, where)
            return _stored_in(archive, prefix, where, *known)
        value = read_zip(archive, prefix, self._session, where).value
        if type(value) is TensorValue and value.storage and not (value.parts or value.state):
            self._known[where, pickle] = value, value.storage
        return value


def _stored_in(
    archive: ZipArchive, prefix: str, where: str, like: TensorValue, storage: StorageRef
) -> TensorValue:
    """Return a tensor like another, of an archive that has the same pickle."""
    storages = ZipStorages(archive, prefix + "data/{}", where, zip_order(archive, prefix, where))
    tensor = like.copy()
    tensor.storage = storages.find(storage.key, storage.type, storage.location, storage.nbytes)
    return tensor
