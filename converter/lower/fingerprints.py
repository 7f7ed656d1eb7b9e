"""FarmHash's Fingerprint64, the hash by which TensorFlow assigns strings to buckets.

Source: https://github.com/google/farmhash/blob/0d859a811870d10f53a594927d0d0b97573ad06d/src/farmhash.cc
(farmhashna::Hash64; bytes are little-endian)
"""

LONGEST = 32  # bytes of a string; longer strings are not supported
MASK = (1 << 64) - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def fingerprint(text: bytes) -> int:
    """Return the fingerprint of the bytes of a string.

    Raises:
        ValueError: The string is longer than 32 bytes.
    """
    n = len(text)
    factor = K2 + 2 * n
    if n > LONGEST:
        raise ValueError(f"a string of {n} bytes; at most {LONGEST} are supported")
    if n > 16:
        a, b = _word(text, 0) * K1 & MASK, _word(text, 8)
        c, d = _word(text, n - 8) * factor & MASK, _word(text, n - 16) * K2 & MASK
        first = _rotate(a + b, 43) + _rotate(c, 30) + d
        return _join(first, a + _rotate(b + K2, 18) + c, factor)
    if n >= 8:
        a, b = _word(text, 0) + K2 & MASK, _word(text, n - 8)
        c, d = _rotate(b, 37) * factor + a, (_rotate(a, 25) + b) * factor
        return _join(c, d, factor)
    if n >= 4:
        return _join(n + (_word(text, 0, 4) << 3), _word(text, n - 4, 4), factor)
    if n:
        y, z = text[0] + (text[n >> 1] << 8), n + (text[-1] << 2)
        return _mix(y * K2 & MASK ^ z * K0 & MASK) * K2 & MASK
    return K2


def _word(text: bytes, begin: int, size: int = 8) -> int:
    return int.from_bytes(text[begin : begin + size], "little")


def _rotate(value: int, by: int) -> int:
    value &= MASK
    return (value >> by | value << 64 - by) & MASK


def _mix(value: int) -> int:
    return value ^ value >> 47


def _join(a: int, b: int, factor: int) -> int:
    first = _mix(((a ^ b) & MASK) * factor & MASK)
    return _mix(((b ^ first) & MASK) * factor & MASK) * factor & MASK
