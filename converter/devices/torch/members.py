"""An archive of torch's with some of its members replaced, and known by the right name.

Members that are not replaced are copied by the kernel, in their order and with torch's alignment.
torch identifies an archive by a hash over the CRCs of its members; it is computed anew, so that
what torch would have written comes out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from formats.artifact import Artifact
from formats.containers.zip.rewriting import Content, Pieces, Rewriter
from formats.core.bundle import Normalisation
from formats.errors import UnsupportedError

IDENTITY = ".data/serialization_id"


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of an archive's members.

    Attributes:
        replaced: Member → its new content.
        normalisations: What was changed, counted.
        warnings: What could not be decided, and stays.
    """

    replaced: dict[str, Content] = field(default_factory=dict)
    normalisations: list[Normalisation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def rewritten(artifact: Artifact, replaced: Mapping[str, Content]) -> Pieces:
    """Return an archive with members replaced, and the hash that torch keeps of it.

    Raises:
        CorruptError: It is damaged.
    """
    archive = artifact.zip
    if archive is None:
        raise UnsupportedError("is no zip archive", where=artifact.path)
    rewriter = Rewriter(archive, artifact.span)
    return rewriter.rewritten(identified(rewriter, dict(replaced)) if replaced else {})


def identified(rewriter: Rewriter, replaced: dict[str, Content]) -> dict[str, Content]:
    """Return the replaced members, with that which identifies the archive, where it has one.

    It is two numbers of 20 digits: a hash of the members' names, and one of their CRCs in the order
    in which they were written. The first is kept; the second is computed as torch does, where it
    was computed so for the source.
    """
    name = next((n for n, _ in rewriter.crcs({}) if n.endswith(IDENTITY)), None)
    if name is None:
        return replaced

    def combined(content: Mapping[str, Content]) -> bytes:
        before = takewhile(lambda row: row[0] != name, rewriter.crcs(content))
        return b"%020d" % _combined(crc for _, crc in before)

    old = rewriter.content(name, 40)
    if old[20:] != combined({}):
        return replaced
    return {**replaced, name: Content.of(old[:20] + combined(replaced))}


def _combined(crcs: Iterable[int]) -> int:
    """Return torch's hash of hashes, 64 bits wide.

    Source: https://github.com/pytorch/pytorch/blob/v2.13.0/c10/util/hash.h (hash_combine), for
    caffe2/serialize/inline_container.cc (writeSerializationId)
    """
    combined = 0
    for crc in crcs:
        combined ^= crc + 0x9E3779B9 + (combined << 6) + (combined >> 2)
        combined &= (1 << 64) - 1
    return combined
