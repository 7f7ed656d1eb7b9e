"""Seeded damage: cuts, flipped bits, lies in numbers, and pieces moved about.

The same base and seed always give the same artifacts, in the same order.
"""

import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from attacks.structure import joints

Damage = Callable[[bytearray, Sequence[int], random.Random], None]

# fmt: off
LIES = (
    0, 1, 2, 3, 7, 8, 16, 64, 127, 128, 255, 256, 1000, 0x7FFF, 0x8000, 0xFFFF, 1 << 20, 1 << 24,
    1 << 28, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 48, (1 << 63) - 1,
    1 << 63, (1 << 64) - 1, (1 << 64) - 8,
)
DIGITS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"1e999", b"-9999999999999999999999",
    b"9" * 5000, b"null", b"[]", b"{}", b"NaN", b"\"\"", b"true",
)
# fmt: on


def cut(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    del data[max(0, rng.choice(at) + rng.choice((-1, 0, 0, 1))) :]


def flip_somewhere(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_at_joint(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        position = min(rng.choice(at) + rng.choice((0, 0, 0, 1, 2, 3, 4)), len(data) - 1)
        data[position] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    position = min(rng.choice(at) + rng.choice((0, 0, 1, 2)), len(data) - 1)
    data[position] = rng.choice((0, 1, 127, 128, 254, 255, rng.randrange(256)))


def lie(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    width = rng.choice((1, 2, 4, 8))
    position = min(max(0, rng.choice(at) + rng.choice((0, 0, 0, 1, -1))), max(0, len(data) - width))
    value = rng.choice((*LIES, len(data), len(data) - position, rng.randrange(1 << 16)))
    order = rng.choice(("little", "little", "big"))
    data[position : position + width] = (value % (1 << 8 * width)).to_bytes(width, order)


def lie_in_varint(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    position = rng.choice(at)
    end = position
    while end < len(data) and data[end] > 127 and end - position < 10:
        end += 1
    value = rng.choice(LIES)
    new = bytearray()
    while value > 127:
        new.append(value & 127 | 128)
        value >>= 7
    new.append(value)
    data[position : end + 1] = new


def lie_in_digits(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    numbers = list(re.finditer(rb"-?\d+", bytes(data[: 1 << 16])))
    if not numbers:
        return lie(data, at, rng)
    match = rng.choice(numbers)
    data[match.start() : match.end()] = rng.choice(DIGITS)
    return None


def _piece(at: Sequence[int], rng: random.Random) -> tuple[int, int]:
    i = rng.randrange(len(at))
    return at[i], at[min(i + rng.choice((1, 1, 2, 5, 20)), len(at) - 1)]


def remove(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    start, end = _piece(at, rng)
    del data[start:end]


def repeat(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    start, end = _piece(at, rng)
    piece = data[start:end]
    times = rng.choice((1, 1, 2, 100))
    data[start:start] = piece * min(times, 1 + (1 << 18) // (len(piece) + 1))


def move(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    start, end = _piece(at, rng)
    piece = bytes(data[start:end])
    target = rng.choice(at)
    if rng.random() < 0.5:
        data[target:target] = piece
    else:
        data[target : target + len(piece)] = piece


def insert(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    position = rng.choice(at)
    filler = rng.choice((b"\0", b"\xff", b"(", b"[", b"{", b"\x0a", rng.randbytes(1)))
    data[position:position] = filler * rng.choice((1, 4, 8, 100, 5000))


def overwrite(data: bytearray, at: Sequence[int], rng: random.Random) -> None:
    start, end = _piece(at, rng)
    filler = rng.choice((b"\0", b"\xff", b"A", rng.randbytes(1)))
    data[start:end] = filler * (end - start)


KINDS: tuple[Damage, ...] = (
    cut, flip_somewhere, flip_at_joint, flip_at_joint, set_byte, lie, lie, lie, lie_in_varint,
    lie_in_digits, remove, repeat, move, insert, overwrite,
)  # fmt: skip


def cuts(data: bytes, most: int, seed: str) -> Iterator[tuple[str, bytes]]:
    """Yield ``data`` cut at its joints: at all of them, or at a sample of ``most``."""
    places = joints(data)
    if len(places) > most:
        places = sorted(random.Random(seed).sample(places, most))
    for at in places:
        yield f"cut@{at}", data[:at]


def damaged(data: bytes, count: int, seed: str) -> Iterator[tuple[str, bytes]]:
    """Yield ``count`` damaged copies, a few with several kinds of damage at once."""
    places = joints(data)
    for i in range(count):
        rng = random.Random(f"{seed}/{i}")
        copy, names = bytearray(data), []
        for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
            if not copy:
                break
            kind = rng.choice(KINDS)
            kind(copy, places[: bisect_right(places, len(copy))] or [0], rng)
            names.append(kind.__name__)
        yield f"{i}:{'+'.join(names)}", bytes(copy)
