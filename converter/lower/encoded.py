"""Inputs of encoded bytes in the source that are replaced by their decoded contents in the graph.

ONNX cannot parse protobufs, images or audio. A signature that takes such bytes becomes a graph that
takes the results of its parsers and decoders: the features of a ``tf.Example``, the pixels of an
image, the samples of audio. Reports and manifests list the replacements. Verification encodes the
inputs that it draws to bytes, for TensorFlow to decode.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from converter.lower.dims import Shape

if TYPE_CHECKING:
    import numpy as np

EXAMPLE, PICTURE, SOUND = "serialized tf.Example", "picture", "WAV file"
RAW, BASE64, TEXT = "raw bytes of numbers", "base64 text", "hashed text"
CSV = "line of CSV"

# Roles of a part: what it holds of the decoded bytes.
DENSE = "dense"  # values of a feature, equally many in each example
PADDED = "padded"  # values of a feature, padded to the length of the longest example
VALUES, LENGTHS = "values", "lengths"  # values of all examples, concatenated; number of each
LEVELS, SAMPLES, RATE = "levels", "samples", "sample_rate"  # pixels of images; audio
NUMBERS, DECODED = "numbers", "decoded"
FIELD = "field"  # of a CSV line
FINGERPRINT = "fingerprint"  # FarmHash's Fingerprint64 of a string

Default: TypeAlias = "list[int] | list[float] | list[str]"
AS_INPUT = " as input"  # suffix of the names of such changes
SHOWN = 3  # elements of a default that are printed
MOST_SAID = 1000  # elements of a default that are recorded


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the decoded bytes: an input of the graph, or a part that nothing reads.

    Attributes:
        role: One of the roles above.
        key: Key of the feature, or column number of a CSV field.
        dtype: Dtype of its elements.
        shape: Shape of the graph's input.
        name: Name of the graph's input; empty where nothing reads it. Where the part is encoded
            and replaced itself, the `input` of its `Encoded`.
        default: TensorFlow's value for a missing feature or for padding; None where the feature is
            required. Equal elements are recorded once; more than `MOST_SAID` are not recorded.
    """

    role: str
    key: str
    dtype: str
    shape: Shape
    name: str = ""
    default: "Default | None" = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input of the source, and the inputs of the graph that replace it.

    Attributes:
        input: Name of the input in the signature, or of a part of another `Encoded`.
        kind: Format of its bytes.
        shape: Shape of the string tensor, with one string for each example, image or audio file.
        several: Whether the first axis of the parts has a row for each string.
        parts: Decoded contents.
        settings: Settings of the decoder that matter for encoding.
        words: Vocabulary that the graph contains, where strings are hashed.
    """

    input: str
    kind: str
    shape: Shape
    several: bool
    parts: tuple[Part, ...]
    settings: Mapping[str, "str | int | bool"] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as plain data for a manifest."""
        parts = [{**asdict(part), "shape": list(part.shape)} for part in self.parts]
        return {
            "input": self.input,
            "kind": self.kind,
            "shape": list(self.shape),
            "several": self.several,
            "parts": parts,
            "settings": dict(self.settings),
        }


def describe_inputs(several: Sequence[Encoded]) -> Iterable[str]:
    """Yield a sentence for each replaced input of the source."""
    inner = {one.input: one for one in several}
    for one in roots(several):
        yield f"input {one.input!r} is replaced by {_parts(one, inner)}"


def _parts(one: Encoded, inner: Mapping[str, Encoded]) -> str:
    read = [part for part in one.parts if part.name]
    unread = sorted({part.key for part in one.parts if part.key} - {p.key for p in read})
    said = []
    for part in read:
        if part.name in inner:
            within = inner[part.name]
            what = "" if within.kind == TEXT else f" ({within.kind} in {part.name})"
            said.append(f"{_parts(within, inner)}{what}")
        else:
            said.append(_part(part, is_listed=one.several))
    text = ", ".join(said) or "nothing, for nothing reads it"
    if unread:
        text += f"; nothing reads {', '.join(unread[:SHOWN])}"
        text += f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
    return text


def _part(part: Part, *, is_listed: bool) -> str:
    text = f"{part.name} {part.dtype}[{','.join(map(str, part.shape))}]"
    if part.role == VALUES:
        return f"{text} (of all rows)" if is_listed else text
    if part.role == FINGERPRINT:
        return f"{text} (FarmHash's Fingerprint64 of each)"
    if part.default is None or part.role == LENGTHS:
        return text
    if not part.default:
        return f"{text} (may be missing)"
    what = "filled up with" if part.role == PADDED else "missing:"
    return f"{text} ({what} {_short(part.default)})"


def _short(default: "Default") -> str:
    values = [repr(v) if isinstance(v, str) else f"{v:g}" for v in default[:SHOWN]]
    return ", ".join(values) + (", …" if len(default) > SHOWN else "")


def default_of(array: "np.ndarray") -> "Default":
    """Return a default's elements as plain data; only the first where all are equal."""
    found = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in array.reshape(-1)]
    found = [v.item() if hasattr(v, "item") else v for v in found]
    if len(set(found)) == 1:
        return found[:1]
    return found if len(found) <= MOST_SAID else []


def roots(several: Sequence[Encoded]) -> Iterable[Encoded]:
    """Yield those that are inputs of the source and not parts of others."""
    inner = {part.name for one in several for part in one.parts}
    yield from (one for one in several if one.input not in inner)
