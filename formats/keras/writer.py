"""A writer of `.keras` archives as the current Keras writes them: three stored members.

The weights' store is laid out first, so that all sizes are known, and then streams through; memory
does not grow with the model.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from formats.containers.hdf5.writer import Hdf5Plan
from formats.containers.zip.writer import Stored, directory
from formats.core.bundle import JSON
from formats.core.output import Output, merge_pieces
from formats.core.storage import Blocks, Span
from formats.core.weights import Piece
from formats.keras.v3 import CONFIG, METADATA, WEIGHTS


def write(
    path: Path,
    *,
    metadata: Mapping[str, JSON],
    config: JSON,
    weights: Hdf5Plan,
    blocks: Blocks | None = None,
    sync: bool = False,
) -> Iterator[int]:
    """Write an archive, yielding the number of bytes of each write.

    Args:
        path: Must not exist.
        metadata: What ``metadata.json`` says.
        config: The model.
        weights: Its store.
        blocks: Through which the source is read.
        sync: Wait until the bytes are on the disk.

    Raises:
        StorageError: It cannot be written.
    """
    blocks = blocks or Blocks()
    members: list[Stored] = []
    contents: list[tuple[str, int, Iterable[Piece]]] = []
    for name, document in ((METADATA, metadata), (CONFIG, config)):
        data = json.dumps(document).encode()
        contents.append((name, len(data), [data]))
    contents.append((WEIGHTS, weights.nbytes, weights.pieces()))
    with Output(path) as out:
        for name, size, pieces in contents:
            member = Stored(name, out.position, size)
            out.write(member.local())
            crc = 0
            for view in _views(pieces, blocks):
                crc = crc32(view, crc)
                out.write(view)
                yield len(view)
            members.append(replace(member, crc=crc))
        out.write(directory(members, out.position))
    for member in members:
        with Output(path, at=member.offset) as out:
            out.write(member.local())
            if sync:
                out.sync()


def _views(pieces: Iterable[Piece], blocks: Blocks) -> Iterator[bytes | memoryview]:
    for piece in merge_pieces(pieces):
        if isinstance(piece, Span):
            yield from blocks.views(piece)
        else:
            yield piece
