"""Weights of older Keras versions and of cuDNN layers, in the layout of the current Keras.

A weight whose layout changes is computed when it is written, one at a time. numpy is imported only
then, where such a weight is planned.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from formats.core.weights import Tensor

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

# The index of each of the current gates among those of Keras 1, which stored them separately.
KERAS1_GATES = {
    "LSTM": (0, 2, 1, 3), "ConvLSTM2D": (0, 2, 1, 3), "GRU": (0, 1, 2), "CuDNNLSTM": (0, 1, 2, 3),
    "CuDNNGRU": (0, 1, 2),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight as the current Keras stores it, and what it is computed from.

    Attributes:
        names: Tensors of the bundle that it is computed from.
        compute: Computes it from their arrays; None where it is the one tensor, unchanged.
    """

    names: tuple[str, ...]
    compute: Callable[[Sequence[Array]], Array] | None = None

    def tensor(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Return it as a lazy tensor; no data is read."""
        parts = [weights[name] for name in self.names]
        if self.compute is None:
            return parts[0]
        import numpy as np

        compute = self.compute
        # The shape is computed from arrays that take no memory.
        empty = [np.broadcast_to(np.zeros((), np.uint8), part.shape) for part in parts]
        shape = compute(empty).shape

        def pieces() -> Iterator[bytes]:
            yield np.ascontiguousarray(compute([part.numpy() for part in parts])).tobytes()

        return Tensor.computed(parts[0].dtype, shape, pieces, origin=parts[0].origin)


def current_kernel(
    name: str, tensor: Tensor, kind: str, order: Sequence[int] | None, *, flipped: bool
) -> StoredWeight:
    """Return a kernel with the current order of axes, and spatial axes that are not reversed.

    Args:
        name: Of its tensor.
        tensor: As it is stored.
        kind: Class of its layer.
        order: The permutation that gives the current order of axes; None if there is none.
        flipped: Whether its spatial axes are reversed, as in Theano.
    """
    # Keras 1 convolved images of one column; before 1.1 in Theano's order.
    column = kind == "Conv1D" and len(tensor.shape) == 4
    theano = column and tensor.shape[3] == 1 and tensor.shape[1] != 1
    if order is None and not flipped and not column:
        return StoredWeight((name,))

    import numpy as np

    def compute(parts: Sequence[Array]) -> Array:
        (array,) = parts
        if theano:
            array = array.transpose(2, 3, 1, 0)
        if column:
            array = array.squeeze(1)
        if order is not None:
            array = array.transpose(order)
        return np.flip(array, tuple(range(array.ndim - 2))) if flipped else array

    return StoredWeight((name,), compute)


def join_gates(
    names: Sequence[str], order: Sequence[int], change: StoredWeight | None = None
) -> StoredWeight:
    """Return the weights of gates that were stored separately, as one matrix or bias.

    Args:
        names: Of the tensors of all gates, as they are stored.
        order: For each of the current gates, its index among these.
        change: The change of layout of each matrix.
    """
    import numpy as np

    compute = None if change is None else change.compute

    def join(parts: Sequence[Array]) -> Array:
        changed = [part if compute is None else compute([part]) for part in parts]
        return np.concatenate(changed, -1)

    return StoredWeight(tuple(names[index] for index in order), join)


def from_cudnn(
    names: Sequence[str], units: int, count: int, *, reset_after: bool
) -> list[StoredWeight]:
    """Return the weights of a cuDNN layer as those of the plain layer.

    cuDNN's matrices are [units, features] for each gate, under the shape [features, units]. It has
    one bias for the product with the input and one for the product with the state.
    Spec: _convert_rnn_weights in tf_keras/src/saving/legacy/hdf5_format.py

    Args:
        names: Of kernel, recurrent kernel and bias.
        units: Size of a gate.
        count: Number of gates.
        reset_after: Whether the plain layer keeps both biases; else it has their sum.
    """
    import numpy as np

    def inputs(parts: Sequence[Array]) -> Array:
        features = parts[0].shape[0]
        cut = [gate.reshape(units, features).T for gate in np.split(parts[0], count, 1)]
        return np.concatenate(cut, 1)

    def states(parts: Sequence[Array]) -> Array:
        return np.concatenate([gate.T for gate in np.split(parts[0], count, 1)], 1)

    def bias(parts: Sequence[Array]) -> Array:
        both = parts[0].reshape(2, count * units)
        return both if reset_after else both[0] + both[1]

    computations = (inputs, states, bias)
    return [StoredWeight((n,), c) for n, c in zip(names, computations, strict=True)]
