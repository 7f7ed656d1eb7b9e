"""Inputs that were bytes of a file format in the source, and are what these decode to in the graph.

ONNX parses no protobufs, images or sounds. A signature that is given such bytes becomes a graph
that is given what its parsers and decoders would make of them: so it takes the features of a
``tf.Example``, the levels of a picture, the samples of a sound. What replaced what is told wherever
the graph is spoken of, and verification makes bytes of what it draws, for TensorFlow to decode.
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

# What a part is to the bytes.
DENSE = "dense"  # a feature's values, as many in each example
PADDED = "padded"  # likewise, as many as the longest has; others are filled up
VALUES, LENGTHS = "values", "lengths"  # those of all examples in a row; how many each has
LEVELS, SAMPLES, RATE = "levels", "samples", "sample_rate"  # of images; of sounds
NUMBERS, DECODED = "numbers", "decoded"
FIELD = "field"  # of a line
FINGERPRINT = "fingerprint"  # FarmHash's Fingerprint64 of a string

Default: TypeAlias = "list[int] | list[float] | list[str]"
AS_INPUT = " as input"  # what the names of such changes end with
SHOWN = 3  # elements of a default that a string shows
MOST_SAID = 1000  # elements of a default that are said at all


@dataclass(frozen=True, slots=True)
class Part:
    """Some of what encoded bytes hold: an input of the graph, or what nothing reads.

    Attributes:
        role: What it is, one of the words above.
        key: Of the feature, where it is one; of a field the number of its column.
        dtype: Of its elements.
        shape: Of the graph's input.
        name: Of the graph's input; empty where nothing reads it, and of one that is replaced itself
            that of the other `Encoded`.
        default: What TensorFlow takes for a feature that is missing, or fills up with; None where
            it must be there. Of many equal elements one; of a great many others none is said.
    """

    role: str
    key: str
    dtype: str
    shape: Shape
    name: str = ""
    default: "Default | None" = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input of the source, and what stands for it.

    Attributes:
        input: Its name: as the signature has it, or a part of another.
        kind: What its bytes are.
        shape: Of the strings, one for each example, picture or sound.
        several: Whether parts have a first axis with a row for each text.
        parts: What these hold.
        settings: Of the decoder, as far as they say how bytes must be made.
        words: That the graph knows, where strings are hashed.
    """

    input: str
    kind: str
    shape: Shape
    several: bool
    parts: tuple[Part, ...]
    settings: Mapping[str, "str | int | bool"] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as a manifest has it."""
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
    """Yield what replaces each input of the source, in words."""
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
    """Return a default's elements as plain data: of equal ones the first alone."""
    found = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in array.reshape(-1)]
    found = [v.item() if hasattr(v, "item") else v for v in found]
    if len(set(found)) == 1:
        return found[:1]
    return found if len(found) <= MOST_SAID else []


def roots(several: Sequence[Encoded]) -> Iterable[Encoded]:
    """Yield those that are inputs of the source, and no parts of others."""
    inner = {part.name for one in several for part in one.parts}
    yield from (one for one in several if one.input not in inner)
