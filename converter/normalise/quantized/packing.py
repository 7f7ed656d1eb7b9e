"""Integers of few bits, packed densely: the first is in the lowest bits of the first byte."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"


def unpack(words: Array, bits: int, count: int) -> Array:
    """Return the first integers that are packed along the last axis.

    Args:
        words: Integers of any width, little-endian; shape ``(..., words)``.
        bits: Of each packed integer, from 1 to 8.
        count: How many there are.

    Returns:
        Unsigned integers of 8 bits, shape ``(..., count)``.
    """
    import numpy as np

    stored = np.ascontiguousarray(words).view(np.uint8)
    if bits in (1, 2, 4, 8):
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        values = (stored[..., None] >> shifts) & np.uint8((1 << bits) - 1)
        return values.reshape(*stored.shape[:-1], -1)[..., :count]
    flags = np.unpackbits(stored, axis=-1, bitorder="little")[..., : count * bits]
    powers = (1 << np.arange(bits)).astype(np.uint8)
    found: Array = (flags.reshape(*flags.shape[:-1], count, bits) * powers).sum(-1, dtype=np.uint8)
    return found


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # values of a float of 4 bits, without its sign
FLOAT4 = (*E2M1, *(-value for value in E2M1))  # its values, in the order of its bits


def unpack_float4(packed: Array) -> Array:
    """Return the floats of 4 bits (E2M1) that are packed in bytes along the last axis.

    Spec: https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
    """
    import numpy as np

    indices = unpack(packed.view(np.uint8), 4, 2 * packed.shape[-1])
    floats: Array = np.array(FLOAT4, np.float32)[indices]
    return floats
