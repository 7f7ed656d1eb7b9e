"""Rewrite a torch archive with some of its members replaced.

The other members are copied by the kernel, in their order and with torch's alignment. torch
identifies an archive by a hash over the CRCs of its members. It is computed anew, so that the
output equals what torch would have written.
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
class MemberChanges:
    """The changes of an archive's members.

    Attributes:
        replaced: Member → its new content.
        normalisations: What is changed, counted.
        warnings: What could not be decided and stays as it is.
    """

    replaced: dict[str, Content] = field(default_factory=dict)
    normalisations: list[Normalisation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def rewrite_archive(artifact: Artifact, replaced: Mapping[str, Content]) -> Pieces:
    """Return the bytes of an archive with members replaced and its hash computed anew.

    Raises:
        CorruptError: It is damaged.
    """
    archive = artifact.zip
    if archive is None:
        raise UnsupportedError("is no zip archive", where=artifact.path)
    rewriter = Rewriter(archive, artifact.span)
    return rewriter.rewrite(with_serialization_id(rewriter, dict(replaced)) if replaced else {})


def with_serialization_id(rewriter: Rewriter, replaced: dict[str, Content]) -> dict[str, Content]:
    """Return the replaced members together with the archive's serialization id, if it has one.

    The id is two numbers of 20 digits: a hash of the members' names, and one of their CRCs in
    writing order. The first is kept. The second is computed as torch does, if the source's was.
    """
    name = next((n for n, _ in rewriter.crcs({}) if n.endswith(IDENTITY)), None)
    if name is None:
        return replaced

    def combined(content: Mapping[str, Content]) -> bytes:
        before = takewhile(lambda row: row[0] != name, rewriter.crcs(content))
        return b"%020d" % _combine_hashes(crc for _, crc in before)

    old = rewriter.content(name, 40)
    if old[20:] != combined({}):
        return replaced
    return {**replaced, name: Content.of(old[:20] + combined(replaced))}


def _combine_hashes(crcs: Iterable[int]) -> int:
    """Return torch's hash of hashes, 64 bits wide.

    Source: https://github.com/pytorch/pytorch/blob/v2.13.0/c10/util/hash.h (hash_combine), for
    caffe2/serialize/inline_container.cc (writeSerializationId)
    """
    combined = 0
    for crc in crcs:
        combined ^= crc + 0x9E3779B9 + (combined << 6) + (combined >> 2)
        combined &= (1 << 64) - 1
    return combined
