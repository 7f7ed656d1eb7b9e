"""File names that claim to be models: a damaged one is reported, any other file is skipped.

A damaged artifact must not vanish from a registry. Where a file's name claims a model, the file is
an artifact that will fail and be named; where a name says little (``.bin``, ``.zip``), the content
has to look like an interrupted copy of something: empty, zeros, an error page, a cut archive.
"""

import re
from pathlib import PurePosixPath

from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError
from formats.unknown import describe

NO_MODEL = "no model"

# Suffixes of the catalog that other programs use for other things at least as often.
_SHARED = frozenset((".bin", ".index", ".meta", ".pbtxt", ".pb", ".tar", ".ts", ".zip"))
_CLAIMING = frozenset(s for row in catalog.FORMATS for s in row.suffixes) - _SHARED

# Names that claim a model although their suffix does not. A GraphDef is called anything; what else
# is a protobuf is mostly data, as ``input_0.pb`` beside models of the ONNX zoo.
_NAMED = re.compile(
    r"(?:.+[._-])?(?:pytorch_model|adapter_model)(?:-\d{5}-of-\d{5})?\.bin"
    r"|.+\.(?:pth|ckpt|pt)\.tar"
    r"|.*(?:model|frozen|graph).*\.pb"
    r"|.*\.data-\d{5}-of-\d{5}"
)
_DATA = re.compile(r"(?:input|output)_\d+\.pb")

# What `formats.unknown` finds that may hold a model.
_PACKED = ("gzip", "7z", "RAR", "xz", "bzip2", "zstandard", "lz4")
_INTERRUPTED = ("an empty file", "zero bytes", "a Git LFS pointer", "an HTML page", "a damaged zip")


def claims(name: str) -> bool:
    """Return whether the name of a file or folder is a model's."""
    lower = name.lower()
    if PurePosixPath(lower).suffix in _CLAIMING:
        return True
    return _NAMED.fullmatch(lower) is not None and _DATA.fullmatch(lower) is None


def explain_refusal(artifact: Artifact) -> str | None:
    """Return why an unrecognised file is not an artifact; None for a damaged artifact.

    The reasons are few, so that they can be counted.
    """
    name = artifact.name
    if claims(name):
        return None
    found = describe(artifact).found.partition(": ")[2]
    has_suffix = PurePosixPath(name.lower()).suffix in _SHARED
    if has_suffix and found.startswith(_INTERRUPTED) and _DATA.fullmatch(name) is None:
        return None
    if any(packed in found for packed in _PACKED):
        return f"packed: {found}"
    return NO_MODEL


_PICKLES = "a pickle of protocol"  # how the sniffer's evidence begins
_LARGEST_PICKLE = 64 << 20  # bytes that are looked through
_STEP = 1 << 20
_TENSORS = (b"torch", b"numpy", b"tensorflow", b"keras", b"paddle", b"jax")


def is_plain_pickle(artifact: Artifact, evidence: str) -> bool:
    """Return whether a pickle cannot contain tensors: a vocabulary, a list.

    Args:
        artifact: Taken for a torch file.
        evidence: The sniffer's.
    """
    if not evidence.startswith(_PICKLES):
        return False
    overlap = b""
    try:
        span = artifact.span
        for start in range(0, min(span.length, _LARGEST_PICKLE), _STEP):
            block = overlap + span.read(start, min(_STEP, span.length - start))
            if any(word in block for word in _TENSORS):
                return False
            overlap = block[-16:]
    except ConvertError:
        return False
    return artifact.span.length <= _LARGEST_PICKLE
