"""What a quantised weight is stored as: small values with scales, which operators of ONNX multiply.

A form says the steps that a library takes, in its order and with its roundings, so that the floats
that follow from it are those of the library, bit for bit.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from converter.normalise.quantized.packing import FLOAT4, Array
from formats.core.weights import DTYPES, DType, Tensor

LARGEST = {"uint4": 15, "uint8": 255}  # values and zero points


@dataclass(frozen=True, slots=True)
class Form:
    """A weight as ``(values - zeros) * scales`` or ``table[values] * scales``.

    Attributes:
        dtype: Of the weight: the product is rounded to it.
        values: Integers or floats of at most 8 bits.
        scales: Of the weight's dtype or of float32: one; one for each row of a matrix; or, with
            ``block`` or ``table``, as many axes as the values.
        zeros: Like the scales, of the dtype of the values.
        block: Number of elements of the last axis that share a scale; 0 for all of them.
        table: Floats that the values are indices of.
        factor: What the product is multiplied with, before it is rounded to the weight's dtype.
        order: Column ``i`` of the weight is column ``order[i]`` of the product.
        shape: Of the weight where it is not that of the values: the product's first elements.
        axes: Transposition at last.
    """

    dtype: DType
    values: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    block: int = 0
    table: Tensor | None = None
    factor: float | None = None
    order: Tensor | None = None
    shape: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()

    @property
    def operator(self) -> str:
        """ONNX's operator that computes the floats."""
        return "DequantizeLinear" if self.table is None else "Gather"


FindForm = Callable[[], "Form | str"]


class Dequantized(NamedTuple):
    """A weight that was quantised.

    Attributes:
        floats: What its library computes with.
        find_form: Returns the form that makes these floats, or why there is none. It reads zero
            points and orders of inputs, but no values.
    """

    floats: Tensor
    find_form: FindForm


def lazy_array(dtype: str, shape: tuple[int, ...], make: Callable[[], Array]) -> Tensor:
    """Return a tensor of an array that is computed when it is read."""

    def pieces() -> Iterator[bytes]:
        import numpy as np

        yield np.ascontiguousarray(make()).tobytes()

    return Tensor.computed(DTYPES[dtype], shape, pieces)


def lazy_values(dtype: str, shape: tuple[int, ...], make: Callable[[], Iterable[Array]]) -> Tensor:
    """Return a tensor of integers without a sign, which come in parts, each in a byte."""

    def pieces() -> Iterator[bytes]:
        if dtype == "uint4":
            yield from _pack(make())
        else:
            for part in make():
                yield part.tobytes()

    return Tensor.computed(DTYPES[dtype], shape, pieces)


def _pack(parts: Iterable[Array]) -> Iterator[bytes]:
    """Yield bytes of two integers, the first of which has the low bits."""
    import numpy as np

    rest = np.empty(0, np.uint8)
    for part in parts:
        flat = np.concatenate([rest, part.reshape(-1)])
        even = len(flat) // 2 * 2
        yield (flat[:even:2] | flat[1:even:2] << 4).tobytes()
        rest = flat[even:]
    yield rest.tobytes()


def float4_form(
    dtype: DType, packed: Tensor, scales: Tensor, shape: tuple[int, ...], axes: tuple[int, ...] = ()
) -> Form:
    """Return the form of 4-bit floats in bytes of two, blocks of which share a scale.

    Args:
        dtype: Of the weight.
        packed: The bytes, the first float of each in the low bits.
        scales: In float32; the axis after theirs is that of the elements of a block.
        shape: Of the weight before its transposition.
        axes: Its transposition.
    """
    import numpy as np

    block = 2 * packed.size // scales.size
    return Form(
        dtype,
        Tensor.computed(DTYPES["uint4"], (*scales.shape, block), packed.pieces),
        Tensor.computed(scales.dtype, (*scales.shape, 1), scales.pieces),
        table=lazy_array("float32", (len(FLOAT4),), lambda: np.array(FLOAT4, np.float32)),
        shape=shape,
        axes=axes,
    )


def scale_dtype(scale: DType, weight: DType) -> str:
    """Return the dtype of scales: float32, but where scales and weight are float16."""
    return "float16" if scale.name == weight.name == "float16" else "float32"
