"""TensorFlow's hashes of integers, in int64 arithmetic that wraps around.

`fingerprint_of_decimal` is FarmHash's Fingerprint64 of the decimal string of ``tf.as_string``,
`siphash_of_decimal` its SipHash-2-4; `concatenate` combines the fingerprints of crossed features.
All values are int64 that hold the bits of unsigned integers.
Sources: https://github.com/google/farmhash/blob/0d859a811870d10f53a594927d0d0b97573ad06d/src/farmhash.cc
(farmhashna::Hash64), tensorflow/core/platform/fingerprint.h (FingerprintCat64),
https://www.aumasson.jp/siphash/siphash.pdf
"""

import numpy as np

from converter.lower.builder import Builder
from converter.lower.fingerprints import K0, K1, K2
from converter.lower.values import Value

DIGITS = 19  # digits of the largest int64
# The bytes of "somepseudorandomlygeneratedbytes".
SIPHASH = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
CROSSING = 0xC6A4A7935BD1E995
CROSSING_SEED = 0xDECAFCAFFE  # initial value of tf.sparse.cross_hashed


def _number(op: Builder, value: int) -> Value:
    """Return a constant (int64) with the bits of an unsigned integer."""
    return op.constant(np.array(value, np.uint64).view(np.int64), "int64")


def _times(op: Builder, x: Value, factor: int) -> Value:
    return op.mul(x, _number(op, factor))


def _xor(op: Builder, a: Value, b: Value) -> Value:
    return op.elementwise("BitwiseXor", a, b)


def _shift(op: Builder, x: Value, by: int, direction: str) -> Value:
    bits = op.cast(x, "uint64")
    moved = op.elementwise("BitShift", bits, op.constant(by, "uint64"), direction=direction)
    return op.cast(moved, "int64")


def _mix(op: Builder, x: Value) -> Value:
    return _xor(op, x, _shift(op, x, 47, "RIGHT"))


def _rotate(op: Builder, x: Value, by: int) -> Value:
    return op.add(_shift(op, x, by, "RIGHT"), _shift(op, x, 64 - by, "LEFT"))


def modulo(op: Builder, x: Value, count: int) -> Value:
    """Return the remainder (int64) of values taken as unsigned integers."""
    bits = op.cast(x, "uint64")
    return op.cast(op.elementwise("Mod", bits, op.constant(count, "uint64")), "int64")


def concatenate(op: Builder, fingerprints: list[Value]) -> Value:
    """Combine several fingerprints into one, as ``tf.sparse.cross_hashed`` does."""
    found = _number(op, CROSSING_SEED)
    for other in fingerprints:
        mixed = _times(op, _mix(op, _times(op, other, CROSSING)), CROSSING)
        found = _times(op, _xor(op, _xor(op, found, _number(op, CROSSING)), mixed), CROSSING)
        found = _mix(op, _times(op, _mix(op, found), CROSSING))
    return found


class _Text:
    """The decimal strings of integers, as characters from the last to the first.

    Attributes:
        count: Lengths, int64 [...].
        characters: Bytes (int64 [...]) for each index from the end; 0 before the first character.
    """

    def __init__(self, op: Builder, x: Value) -> None:
        self._op = op
        ten, zero, one = (op.constant(n, "int64") for n in (10, 0, 1))
        rest, digits = x, []
        count = op.where(op.elementwise("Equal", x, zero), one, zero)
        for _ in range(DIGITS):
            less = op.div(rest, ten)  # truncated towards zero, for negative integers too
            digit = op.unary("Abs", op.sub(rest, op.mul(less, ten)))
            digits.append(op.add(digit, op.constant(ord("0"), "int64")))
            there = op.unary("Not", op.elementwise("Equal", rest, zero))
            count = op.add(count, op.cast(there, "int64"))
            rest = less
        is_negative = op.elementwise("Less", x, zero)
        sign = op.where(is_negative, op.constant(ord("-"), "int64"), zero)
        self.characters = []
        for place in range(DIGITS + 1):
            at = op.constant(place, "int64")
            other = op.where(op.elementwise("Equal", count, at), sign, zero)
            if place < DIGITS:
                other = op.where(op.elementwise("Less", at, count), digits[place], other)
            self.characters.append(other)
        self.count = op.add(count, op.cast(is_negative, "int64"))
        self._table = op.concat([op.unsqueeze(c, [c.rank]) for c in self.characters], x.rank)

    def at(self, index: Value) -> Value:
        """Return the characters at an index from the start."""
        op = self._op
        place = op.sub(op.sub(self.count, index), op.constant(1, "int64"))
        place = op.elementwise("Max", place, op.constant(0, "int64"))
        last = place.rank
        made = op.emit(
            "GatherElements", self._table, op.unsqueeze(place, [last]), dtype="int64",
            shape=(*place.shape, 1), axis=last,
        )  # fmt: skip
        return op.squeeze(made, [last])

    def word(self, begin: int, size: int = 8) -> Value:
        """Return bytes as a little-endian integer; a negative index counts from the end."""
        op, found = self._op, self._op.constant(0, "int64")
        for i in range(size):
            if begin < 0:
                character = self.characters[-begin - 1 - i]
            else:
                character = self.at(op.constant(begin + i, "int64"))
            found = op.add(found, op.mul(character, op.constant(np.int64(1) << (8 * i), "int64")))
        return found


def fingerprint_of_decimal(op: Builder, x: Value) -> Value:
    """Return the fingerprints (int64) of the decimal strings of integers."""
    text = _Text(op, op.cast(x, "int64"))
    n = text.count
    found = _of_few(op, text)
    for least, form in ((4, _of_half), (8, _of_word), (17, _of_words)):
        is_long = op.elementwise("GreaterOrEqual", n, op.constant(least, "int64"))
        found = op.where(is_long, form(op, text), found)
    return found


def siphash_of_decimal(op: Builder, x: Value, key: tuple[int, int]) -> Value:
    """Return the SipHash-2-4 (int64) of the decimal strings of integers, with a 128-bit key."""
    text = _Text(op, op.cast(x, "int64"))
    words = [_padded_word(op, text, begin) for begin in (0, 8, 16)]
    state = [_number(op, a ^ b % (1 << 64)) for a, b in zip(SIPHASH, key * 2, strict=True)]
    last, made = words[0], state
    for i, word in enumerate(words[:2]):
        state = _absorb(op, state, word)
        is_full = op.elementwise("GreaterOrEqual", text.count, op.constant(8 * (i + 1), "int64"))
        last = op.where(is_full, words[i + 1], last)
        made = [op.where(is_full, a, b) for a, b in zip(state, made, strict=True)]
    a, b, c, d = _absorb(op, made, op.add(last, _times(op, text.count, 1 << 56)))
    state = [a, b, _xor(op, c, _number(op, 0xFF)), d]
    for _ in range(4):
        state = _sip_round(op, *state)
    a, b, c, d = state
    return _xor(op, _xor(op, a, b), _xor(op, c, d))


def _padded_word(op: Builder, text: _Text, begin: int) -> Value:
    """Return 8 bytes from an index as a little-endian integer; bytes beyond the end are 0."""
    zero = op.constant(0, "int64")
    found = zero
    for i in range(min(8, DIGITS + 1 - begin)):
        index = op.constant(begin + i, "int64")
        byte = op.where(op.elementwise("Less", index, text.count), text.at(index), zero)
        found = op.add(found, _times(op, byte, 1 << 8 * i))
    return found


def _absorb(op: Builder, state: list[Value], word: Value) -> list[Value]:
    a, b, c, d = state
    a, b, c, d = _sip_round(op, *_sip_round(op, a, b, c, _xor(op, d, word)))
    return [_xor(op, a, word), b, c, d]


def _sip_round(op: Builder, a: Value, b: Value, c: Value, d: Value) -> list[Value]:
    a, c = _sum(op, a, b), op.add(c, d)
    b, d = _xor(op, _rotate(op, b, 51), a), _xor(op, _rotate(op, d, 48), c)
    a, c = op.add(_rotate(op, a, 32), d), op.add(c, b)
    b, d = _xor(op, _rotate(op, b, 47), c), _xor(op, _rotate(op, d, 43), a)
    return [a, b, _rotate(op, c, 32), d]


def _sum(op: Builder, a: Value, b: Value) -> Value:
    """Return a sum; constants are folded, since ONNX's data propagation rejects overflows."""
    first, second = op.array(a), op.array(b)
    if first is None or second is None:
        return op.add(a, b)
    return _number(op, (int(first) + int(second)) % (1 << 64))


def _factor(op: Builder, text: _Text) -> Value:
    return op.add(op.mul(text.count, op.constant(2, "int64")), _number(op, K2))


def _join(op: Builder, a: Value, b: Value, factor: Value) -> Value:
    first = _mix(op, op.mul(_xor(op, a, b), factor))
    return op.mul(_mix(op, op.mul(_xor(op, b, first), factor)), factor)


def _of_few(op: Builder, text: _Text) -> Value:
    """Fingerprint of up to 3 characters."""
    half = op.div(text.count, op.constant(2, "int64"))
    first = op.add(
        text.at(op.constant(0, "int64")), op.mul(text.at(half), op.constant(256, "int64"))
    )
    length = op.add(text.count, op.mul(text.characters[0], op.constant(4, "int64")))
    return _times(op, _mix(op, _xor(op, _times(op, first, K2), _times(op, length, K0))), K2)


def _of_half(op: Builder, text: _Text) -> Value:
    """Fingerprint of 4 to 7 characters."""
    first = op.add(text.count, op.mul(text.word(0, 4), op.constant(8, "int64")))
    return _join(op, first, text.word(-4, 4), _factor(op, text))


def _of_word(op: Builder, text: _Text) -> Value:
    """Fingerprint of 8 to 16 characters."""
    factor = _factor(op, text)
    a, b = op.add(text.word(0), _number(op, K2)), text.word(-8)
    c = op.add(op.mul(_rotate(op, b, 37), factor), a)
    return _join(op, c, op.mul(op.add(_rotate(op, a, 25), b), factor), factor)


def _of_words(op: Builder, text: _Text) -> Value:
    """Fingerprint of 17 to 32 characters."""
    factor = _factor(op, text)
    a, b = _times(op, text.word(0), K1), text.word(8)
    c, d = op.mul(text.word(-8), factor), _times(op, text.word(-16), K2)
    first = op.add(op.add(_rotate(op, op.add(a, b), 43), _rotate(op, c, 30)), d)
    second = op.add(op.add(a, _rotate(op, op.add(b, _number(op, K2)), 18)), c)
    return _join(op, first, second, factor)
