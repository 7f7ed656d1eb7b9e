"""Philox 4x32-10, the random number generator of TensorFlow's stateless ops.

Source: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/lib/random/philox_random.h
and random_distributions.h; "Parallel random numbers: as easy as 1, 2, 3", Salmon et al.
"""

from collections.abc import Iterator

import numpy as np

from converter.lower.unsupported import Unsupported

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
SCRAMBLING = (0x3EC8F720, 0x02461E29)  # key of the Philox that scrambles seeds
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
RESERVED = 256  # counters reserved for four numbers drawn by rejection sampling
F = np.float32
LEAST = F(1e-7)  # lower bound of the logarithm's argument


def key_and_counter(seed: np.ndarray) -> tuple[int, tuple[int, int]]:
    """Return the key, and the counter in two 64-bit halves, of a seed of two integers."""
    mixed = blocks(
        SCRAMBLING[0] | SCRAMBLING[1] << 32, tuple(int(n) & 0xFFFFFFFFFFFFFFFF for n in seed), 1
    )
    a, b, c, d = (int(n) for n in mixed[0])
    return a | b << 32, (0, c | d << 32)


def blocks(key: int, counter: tuple[int, ...], count: int, first: int = 0) -> np.ndarray:
    """Return random blocks of four uint32: [count, 4].

    Args:
        key: 64 bits.
        counter: 128 bits, the lower half first.
        count: Number of blocks.
        first: Number of blocks to skip.
    """
    whole = counter[0] | counter[1] << 64
    starts = [(whole + first + i) & ((1 << 128) - 1) for i in (0,)]
    low = starts[0] & 0xFFFFFFFFFFFFFFFF
    lows = np.uint64(low) + np.arange(count, dtype=np.uint64)
    carried = (lows < np.uint64(low)).astype(np.uint64)
    highs = np.uint64(starts[0] >> 64) + carried
    words = [lows & LOW, lows >> HALF, highs & LOW, highs >> HALF]
    keys = [np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)]
    for _ in range(10):
        one, two = MULTIPLIERS[0] * words[0], MULTIPLIERS[1] * words[2]
        words = [
            (two >> HALF) ^ words[1] ^ keys[0], two & LOW,
            (one >> HALF) ^ words[3] ^ keys[1], one & LOW,
        ]  # fmt: skip
        keys = [(k + w) & LOW for k, w in zip(keys, WEYL, strict=True)]
    return np.stack(words, 1).astype(np.uint32)


def _words(key: int, counter: tuple[int, int], count: int) -> np.ndarray:
    return blocks(key, counter, -(-count // 4)).reshape(-1)


def _long_words(key: int, counter: tuple[int, int], count: int) -> np.ndarray:
    """Return random uint64 integers, two per block."""
    pairs = blocks(key, counter, -(-count // 2)).reshape(-1, 2).astype(np.uint64)
    return np.asarray(pairs[:, 0] | pairs[:, 1] << HALF)


def _fractions(words: np.ndarray) -> np.ndarray:
    """Map uint32 integers to float32 in [0, 1)."""
    return ((words & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)).view(F) - F(1)


def uniform(key: int, counter: tuple[int, int], count: int, dtype: str) -> np.ndarray:
    """Return uniform random values in [0, 1).

    Raises:
        Unsupported: TensorFlow has no such op of that dtype.
    """
    if dtype == "float32":
        return _fractions(_words(key, counter, count))[:count]
    if dtype == "float16":
        words = (_words(key, counter, count) & np.uint32(0x3FF)) | np.uint32(15 << 10)
        return words.astype(np.uint16).view(np.float16)[:count] - np.float16(1)
    if dtype == "float64":
        pairs = blocks(key, counter, -(-count // 2)).reshape(-1, 2).astype(np.uint64)
        high = (pairs[:, 0] & np.uint64(0xFFFFF)) << HALF
        bits = high | pairs[:, 1] | np.uint64(1023 << 52)
        return bits.view(np.float64)[:count] - 1.0
    raise Unsupported(f"random numbers of {dtype}")


def integers(
    key: int, counter: tuple[int, int], count: int, dtype: str, *, low: int, high: int
) -> np.ndarray:
    """Return random integers in [low, high)."""
    if dtype in ("int32", "uint32"):
        words = _words(key, counter, count).astype(np.uint64)
    else:
        words = _long_words(key, counter, count)
    shares = words[:count] % np.uint64(high - low)
    return (shares + np.uint64(low & 0xFFFFFFFFFFFFFFFF)).astype(dtype)


def full_integers(key: int, counter: tuple[int, int], count: int, dtype: str) -> np.ndarray:
    """Return random integers over the whole range of a dtype."""
    make = _words if dtype in ("int32", "uint32") else _long_words
    return make(key, counter, count)[:count].astype(dtype)


def _by_circle(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two normal values for each pair of uint32, by the Box-Muller transform."""
    length = np.sqrt(F(-2) * np.log(np.maximum(_fractions(a), LEAST)))
    angle = F(2 * np.pi) * _fractions(b)
    return np.sin(angle) * length, np.cos(angle) * length


def _check_normal(dtype: str) -> None:
    if dtype not in ("float32", "float16"):
        raise Unsupported(f"normal numbers of {dtype}")


def normal(key: int, counter: tuple[int, int], count: int, dtype: str) -> np.ndarray:
    """Return standard normal values, computed in float32 for float32 and float16."""
    _check_normal(dtype)
    words = blocks(key, counter, -(-count // 4))
    first, second = _by_circle(words[:, 0], words[:, 1]), _by_circle(words[:, 2], words[:, 3])
    return np.stack([*first, *second], 1).reshape(-1)[:count]


def truncated_normal(key: int, counter: tuple[int, int], count: int, dtype: str) -> np.ndarray:
    """Return standard normal values in (-2, 2), computed in float32 for float32 and float16."""
    _check_normal(dtype)
    groups = -(-count // 4)
    found = np.empty((groups, 4), F)
    for group in range(groups):
        numbers = _near(key, counter, group * RESERVED)
        found[group] = [next(numbers) for _ in range(4)]
    return found.reshape(-1)[:count]


def _near(key: int, counter: tuple[int, int], first: int) -> Iterator[np.float32]:
    while True:
        words = blocks(key, counter, 8, first)
        first += 8
        for a, b, c, d in words:
            for one, two in ((a, b), (c, d)):
                for number in _by_circle(np.asarray([one]), np.asarray([two])):
                    if abs(number[0]) < 2:
                        yield number[0]
