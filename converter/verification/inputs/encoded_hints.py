"""Hints for the parts of encoded inputs, so that bytes exist that decode to them."""

from collections.abc import Iterator, Sequence
from typing import Any

from converter.lower import encoded
from converter.lower.encoded import Encoded, Part
from converter.lower.fingerprints import fingerprint
from converter.verification.inputs.encoding import GRAIN, USUAL_RATE, WORDS

COLOURS = 3  # channels of images with any number of channels
SAMPLES_DRAWN = (16000, 12800)
FRAME = 1  # of moving pictures


def fields(several: Sequence[Encoded]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names of inputs, and what they add to the input's hint."""
    listed = {p.name for one in several for p in one.parts if p.role == encoded.VALUES}
    for one in several:
        by_role = {(part.key, part.role): part for part in one.parts}
        for part in one.parts:
            if not part.name:
                continue
            known = _fields(part, by_role, is_moving=one.settings.get("form") == "GIF")
            if part.role == encoded.FINGERPRINT:
                words = [*one.words] * (len(WORDS) // max(len(one.words), 1)) + [*WORDS]
                known["words"] = tuple(fingerprint(word.encode()) for word in words)
            known["is_alone"] = not one.several or bool(listed & {part.name, one.input})
            yield part.name, known


def _fields(part: Part, by_role: dict[tuple[str, str], Part], *, is_moving: bool) -> dict[str, Any]:
    match part.role:
        case encoded.LENGTHS:
            values = by_role[part.key, encoded.VALUES]
            return {"counted": values.shape[0]} if values.name else {"high": 4}
        case encoded.LEVELS:
            frames = _sizes(part, -4, (FRAME, FRAME)) if is_moving else ()
            known: dict[str, Any] = {"sizes": (*_sizes(part, -1, (COLOURS, COLOURS)), *frames)}
            # What a picture of floating point numbers holds were levels of eight bits.
            return known | ({"grain": 1 / 255, "high": 256} if "float" in part.dtype else {})
        case encoded.SAMPLES:
            sizes = (*_sizes(part, -1, (1, 1)), *_sizes(part, -2, SAMPLES_DRAWN))
            return {"sizes": sizes, "grain": 1 / GRAIN, "low": -GRAIN, "high": GRAIN}
        case encoded.RATE:
            return {"words": (USUAL_RATE,)}
        case _:
            return {}


def _sizes(part: Part, axis: int, both: tuple[int, int]) -> tuple[Any, ...]:
    name = part.shape[axis]
    return ((name, both),) if isinstance(name, str) else ()
