"""Change the layouts of weights lazily, block by block where possible.

Keras has kernels of [spatial…, in, out], torch of [out, in, spatial…]. A permuted weight is read in
its new order; weights whose gates are reordered are computed when they are written.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from formats.core.weights import Strided, Tensor

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"


def permute(tensor: Tensor, axes: Sequence[int], shape: Sequence[int] | None = None) -> Tensor:
    """Return a tensor with its axes permuted, and then reshaped.

    Args:
        tensor: The tensor.
        axes: The permutation.
        shape: Of the result, with as many elements; None to keep the permuted shape.
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
    return compute_tensor(
        [tensor], order if shape is None else shape, lambda parts: parts[0].transpose(axes)
    )


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor with the same elements and another shape."""
    return Tensor.computed(tensor.dtype, shape, tensor.pieces, origin=tensor.origin)


def zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor of zeros of another's dtype."""
    return Tensor.inline(like.dtype, tuple(shape), bytes(like.dtype.nbytes(prod(shape))))


def compute_tensor(
    parts: Sequence[Tensor], shape: Sequence[int], make: Callable[[Sequence[Array]], Array]
) -> Tensor:
    """Return the tensor that a function computes from tensors; no data is read."""

    def pieces() -> Iterator[bytes]:
        import numpy as np

        yield np.ascontiguousarray(make([part.numpy() for part in parts])).tobytes()

    return Tensor.computed(parts[0].dtype, shape, pieces, origin=parts[0].origin)
