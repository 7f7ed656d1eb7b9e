"""Encode arrays as bytes that decode to them (examples, images, audio), to feed the source.

What a graph takes in place of an input of bytes (`converter.lower.encoded`) is drawn, or is a
user's; TensorFlow is given bytes that hold the same, and runs its own parsers and decoders. Every
format is one that keeps all: protobufs, PNG and BMP, 16-bit samples.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/example/feature.proto
and https://www.w3.org/TR/png-3/ (11.2)
"""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from converter.lower.encoded import (
    BASE64,
    CSV,
    DENSE,
    EXAMPLE,
    LENGTHS,
    LEVELS,
    PADDED,
    PICTURE,
    RATE,
    RAW,
    SAMPLES,
    SOUND,
    TEXT,
    VALUES,
    Encoded,
    Part,
    roots,
)
from converter.lower.fingerprints import fingerprint
from formats.core.plurals import list_counts
from formats.errors import UsageError

USUAL_RATE = 16000  # sample rate of audio if nothing reads the rate
GRAIN = 1 << 15  # steps from 0 to 1 of a 16-bit sample
FAST = 1  # zlib's level
WORDS = (
    "",
    *(f"w{i}" for i in range(60)),
    "the",
    "town",
    "unheard-of",
    "a text of 23 letters, yes",
)
COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG's colour type

Arrays = Mapping[str, np.ndarray]


def encode(several: Sequence[Encoded], arrays: Arrays) -> dict[str, np.ndarray]:
    """Return the source's inputs of bytes, as arrays of objects.

    Args:
        several: All encoded inputs, including nested ones.
        arrays: Arrays of the graph's inputs, by name.

    Raises:
        UsageError: The arrays are of no bytes: they contradict each other, or the format.
    """
    by_name = {one.input: one for one in several}
    return {one.input: _texts(one, by_name, arrays) for one in roots(several)}


def _texts(one: Encoded, by_name: Mapping[str, Encoded], arrays: Arrays) -> np.ndarray:
    given: dict[str, np.ndarray] = {}
    for part in one.parts:
        if part.name in by_name:
            given[part.name] = _texts(by_name[part.name], by_name, arrays)
        elif part.name:
            given[part.name] = np.asarray(arrays[part.name])
    if one.kind == TEXT:
        sizes = [n if isinstance(n, int) else 1 for n in one.shape]
        return _hash(one, next(iter(given.values()), np.full(sizes, fingerprint(b""))))
    count = _count(one, given)
    rows = [_Row(one, given, i, count) for i in range(count)]
    found = np.empty(count, object)
    found[:] = [ENCODERS[one.kind](row) for row in rows]
    return found.reshape(_sizes(one, count))


def _count(one: Encoded, given: Arrays) -> int:
    """Return the number of strings that arrays encode.

    Raises:
        UsageError: Some have more rows than others.
    """
    if not one.several:
        return 1
    counts = {p.name: len(given[p.name]) for p in one.parts if p.name and p.role != VALUES}
    if len(set(counts.values())) > 1:
        raise UsageError(
            f"arrays for {one.input!r} with different numbers of rows: {list_counts(counts)}",
            expected="one row for each serialized string in every array",
        )
    fixed = [n for n in one.shape if isinstance(n, int)]
    return next(iter(counts.values()), int(np.prod(fixed)))


def _sizes(one: Encoded, count: int) -> tuple[int, ...]:
    """Return the shape of so many texts: of free axes the first has them all."""
    sizes: list[int] = []
    left = count // max(int(np.prod([n for n in one.shape if isinstance(n, int)])), 1)
    for n in one.shape:
        sizes.append(n if isinstance(n, int) else left)
        left = left if isinstance(n, int) else 1
    if int(np.prod(sizes)) != count:
        raise UsageError(
            f"{count} rows for {one.input!r}", expected=f"as many as fill {list(one.shape)}"
        )
    return tuple(sizes)


class _Row:
    """What one text has to hold: of so many texts, the one of a number."""

    def __init__(self, one: Encoded, given: Arrays, number: int, count: int) -> None:
        self.one, self.number, self.count = one, number, count
        self._given = given

    def __getitem__(self, part: Part) -> np.ndarray:
        """Return a part that is read."""
        found = self._given[part.name]
        return np.asarray(found[self.number], found.dtype) if self.one.several else found

    def whole(self, part: Part) -> np.ndarray:
        """Return a part of all rows."""
        return self._given[part.name]

    def get(self, role: str) -> np.ndarray | None:
        """Return the part of a role, or None where nothing reads it."""
        part = next((p for p in self.one.parts if p.role == role and p.name), None)
        return None if part is None else self[part]


# -- examples --------------------------------------------------------------------------------------


def _example(row: _Row) -> bytes:
    by_key: dict[str, list[Part]] = {}
    for part in row.one.parts:
        by_key.setdefault(part.key, []).append(part)
    entries = b""
    for key, parts in by_key.items():
        found = _values(row, parts)
        if found is not None:
            feature = _feature(found, parts[0].dtype)
            entries += _field(1, _field(1, key.encode()) + _field(2, feature))
    return _field(1, entries)


def _values(row: _Row, parts: Sequence[Part]) -> np.ndarray | None:
    """Return a feature's values; None where it may be missing, and nothing reads it."""
    first = next((p for p in parts if p.role in (DENSE, PADDED)), None)
    if first is not None:
        if first.name:
            return row[first].reshape(-1)
        if first.role == PADDED or first.default is not None:
            return None
        shape = first.shape[1:] if row.one.several else first.shape
        return np.zeros([n for n in shape if isinstance(n, int)], _numpy(first.dtype)).reshape(-1)
    values = next(p for p in parts if p.role == VALUES)
    lengths = next((p for p in parts if p.role == LENGTHS), None)
    if lengths is None or not lengths.name:
        counts = _like_others(row, len(row.whole(values))) if values.name else None
    else:
        counts = row.whole(lengths)
    if counts is None:
        return None
    end = int(counts[: row.number + 1].sum())
    begin = end - int(counts[row.number])
    if not values.name:
        return np.zeros(end - begin, _numpy(values.dtype))
    found = row.whole(values)
    if counts.min(initial=0) < 0 or int(counts.sum()) != len(found):
        raise UsageError(
            f"{len(found)} values in {values.name!r}",
            expected=f"{int(counts.sum())}, the sum of {parts[-1].name!r}",
        )
    return found[begin:end]


def _like_others(row: _Row, total: int) -> np.ndarray:
    """Return how many values rows have of which nothing reads it: as many as of another feature."""
    if not row.one.several:
        return np.array([total])
    known = [row.whole(p) for p in row.one.parts if p.role == LENGTHS and p.name]
    one_row = np.zeros(row.count, np.int64)
    one_row[:1] = total
    return next((counts for counts in known if counts.sum() == total), one_row)


def _numpy(dtype: str) -> "np.dtype[np.generic]":
    return np.dtype(object if dtype == "string" else dtype)


def _feature(values: np.ndarray, dtype: str) -> bytes:
    if dtype == "string":
        return _field(1, b"".join(_field(1, _text(v)) for v in values))
    if dtype == "float32":
        return _field(2, _field(1, values.astype("<f4").tobytes()))
    return _field(3, _field(1, b"".join(_varint(int(v) % (1 << 64)) for v in values)))


def _field(number: int, data: bytes) -> bytes:
    """Return a protobuf field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(n: int) -> bytes:
    found = bytearray()
    while n > 0x7F:
        found.append(n & 0x7F | 0x80)
        n >>= 7
    found.append(n)
    return bytes(found)


def _text(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value or "").encode("utf-8", "surrogateescape")


# -- images ----------------------------------------------------------------------------------------


def _picture(row: _Row) -> bytes:
    levels = row.get(LEVELS)
    part = next(p for p in row.one.parts if p.role == LEVELS)
    if levels is None:
        channels = part.shape[-1]
        levels = np.zeros((1, 1, channels if isinstance(channels, int) else 3), _numpy(part.dtype))
    if row.one.settings.get("form") == "GIF" and levels.ndim == 4 and len(levels) == 1:
        levels = levels[0]  # TensorFlow takes a PNG for a GIF of one frame
    if levels.ndim != 3 or 0 in levels.shape:
        raise UsageError(
            f"{part.name!r} is {list(levels.shape)}", expected="[height, width, channels]"
        )
    if levels.dtype.kind == "f":
        levels = np.rint(levels * 255).astype("u1")
    return write_bmp(levels) if row.one.settings.get("form") == "BMP" else write_png(levels)


def write_png(levels: np.ndarray) -> bytes:
    """Return an image [height, width, channels] of uint8 or uint16 as a PNG file."""
    height, width, channels = levels.shape
    if channels not in COLOURS:
        raise UsageError(f"an image of {channels} channels", expected="1 to 4, as PNG has them")
    depth = levels.dtype.itemsize * 8
    lines = np.ascontiguousarray(levels, levels.dtype.newbyteorder(">"))
    rows = b"".join(b"\0" + lines[y].tobytes() for y in range(height))
    header = struct.pack(">2I5B", width, height, depth, COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, FAST)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def write_bmp(levels: np.ndarray) -> bytes:
    """Return an image [height, width, 3 or 4] of uint8 as a BMP file, rows from the top."""
    height, width, channels = levels.shape
    if channels not in (3, 4):
        raise UsageError(f"an image of {channels} channels", expected="3 or 4, as BMP has them")
    swapped = levels[..., [2, 1, 0, *range(3, channels)]].astype("u1")
    fill = b"\0" * (-width * channels % 4)
    data = b"".join(line.tobytes() + fill for line in swapped)
    sizes = struct.pack("<I2i2H6I", 40, width, -height, 1, 8 * channels, 0, len(data), 0, 0, 0, 0)
    return struct.pack("<2sI2HI", b"BM", 54 + len(data), 0, 0, 54) + sizes + data


# -- audio, numbers, strings -----------------------------------------------------------------------


def _sound(row: _Row) -> bytes:
    samples, rate = row.get(SAMPLES), row.get(RATE)
    if samples is None:
        part = next(p for p in row.one.parts if p.role == SAMPLES)
        sizes = [n if isinstance(n, int) else 1 for n in part.shape[-2:]]
        samples = np.zeros(sizes, "f4")
    return write_wav(samples, USUAL_RATE if rate is None else int(rate))


def write_wav(samples: np.ndarray, rate: int) -> bytes:
    """Return audio [samples, channels] from -1 to 1 as a WAV file.

    Raises:
        UsageError: Its values are not multiples of a 16-bit step.
    """
    steps = samples.astype("f8") * GRAIN
    if not np.array_equal(steps, np.rint(steps)) or np.abs(steps + 0.5).max(initial=0) > GRAIN:
        raise UsageError(
            "samples that a WAV file cannot hold", expected=f"multiples of 1/{GRAIN} from -1 to 1"
        )
    channels = samples.shape[-1]
    data = steps.astype("<i2").tobytes()
    form = struct.pack("<2H2I2H", 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    chunks = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def _raw(row: _Row) -> bytes:
    (part,) = row.one.parts
    if not part.name:
        return b""
    is_little = row.one.settings.get("little_endian", True)
    found = row[part]
    return found.astype(found.dtype.newbyteorder("<" if is_little else ">")).tobytes()


def _csv(row: _Row) -> bytes:
    said = row.one.settings
    fields = [""] * int(said["columns"])
    for part in row.one.parts:
        fields[int(part.key)] = _cell(row, part)
    return str(said["field_delim"]).join(fields).encode()


def _cell(row: _Row, part: Part) -> str:
    """Return a field of a line; what nothing reads, and may be missing, is.

    Raises:
        UsageError: The text would be taken for a missing one.
    """
    said = row.one.settings
    if not part.name:
        return "" if part.default is not None else "0"
    value = row[part].item() if part.dtype == "string" else row[part].reshape(-1)[0]
    text = _text(value).decode() if part.dtype == "string" else str(value)
    if text in ("", said["na_value"]):
        if part.default == [text]:
            return ""
        raise UsageError(
            f"{part.name!r} has {text!r}, which CSV reads as a missing value",
            expected=f"another string, or the default {part.default!r}",
        )
    if said["use_quote_delim"] and any(c in text for c in (str(said["field_delim"]), '"', "\n")):
        return '"' + text.replace('"', '""') + '"'
    return text


def _base64(row: _Row) -> bytes:
    (part,) = row.one.parts
    return base64.urlsafe_b64encode(_text(row[part].item())).rstrip(b"=") if part.name else b""


def _hash(one: Encoded, numbers: np.ndarray) -> np.ndarray:
    """Return strings that have given fingerprints.

    Raises:
        UsageError: No string is known for a fingerprint.
    """
    known = {fingerprint(word.encode()): word.encode() for word in (*WORDS, *one.words)}
    found = np.empty(numbers.size, object)
    for i, number in enumerate(numbers.reshape(-1)):
        if int(number) not in known:
            raise UsageError(
                f"{int(number)} for {one.input!r} is the fingerprint of no known string",
                expected="fingerprints of the vocabulary's strings",
            )
        found[i] = known[int(number)]
    return found.reshape(numbers.shape)


ENCODERS = {
    EXAMPLE: _example,
    PICTURE: _picture,
    SOUND: _sound,
    RAW: _raw,
    BASE64: _base64,
    CSV: _csv,
}
