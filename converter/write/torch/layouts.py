"""Weights as torch.nn lays them out, made from Keras's: lazily, block by block where that can be.

Keras keeps kernels [spatial…, in, out], torch [out, in, spatial…]. What is only turned around is
read in its new order; gates that change places are put together when they are written.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from formats.core.weights import Strided, Tensor

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"


def permuted(tensor: Tensor, axes: Sequence[int], shape: Sequence[int] | None = None) -> Tensor:
    """Return a tensor with its axes in another order, and then perhaps of another shape.

    Args:
        tensor: As it is.
        axes: Which of its axes come first, second, ….
        shape: Of as many elements.
    """
    order = tuple(tensor.shape[axis] for axis in axes)
    view = tensor.data
    if isinstance(view, Strided) and tensor.dtype.bits >= 8:
        strides = tuple(view.strides[axis] for axis in axes)
        turned = Tensor(
            tensor.dtype, order, Strided(view.span, view.offset, strides, view.byteorder)
        )
        return Tensor.computed(
            tensor.dtype, order if shape is None else shape, turned.pieces, origin=tensor.origin
        )
    return made([tensor], order if shape is None else shape, lambda parts: parts[0].transpose(axes))


def reshaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the same elements, in the same order, under another shape."""
    return Tensor.computed(tensor.dtype, shape, tensor.pieces, origin=tensor.origin)


def zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor of zeros, of another's type."""
    return Tensor.inline(like.dtype, tuple(shape), bytes(like.dtype.nbytes(prod(shape))))


def made(
    parts: Sequence[Tensor], shape: Sequence[int], make: Callable[[Sequence[Array]], Array]
) -> Tensor:
    """Return what a function makes of tensors; nothing is read before it is walked."""

    def pieces() -> Iterator[bytes]:
        import numpy as np

        yield np.ascontiguousarray(make([part.numpy() for part in parts])).tobytes()

    return Tensor.computed(parts[0].dtype, shape, pieces, origin=parts[0].origin)
