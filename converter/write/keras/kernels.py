"""Weights that older Kerases stored otherwise, as today's has them.

What is not copied as it is, is computed when it is written, one weight at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from formats.core.weights import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class Stored:
    """One variable of today's Keras.

    Attributes:
        names: Tensors of the bundle that it is made of.
        make: Makes it of them; None where it is the only one of them, as it is.
        shape: Makes its shape of theirs.
    """

    names: tuple[str, ...]
    make: Callable[[Sequence[Array]], Array] | None = None

    def tensor(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Return it as a tensor; nothing is read before that is walked."""
        parts = [weights[name] for name in self.names]
        if self.make is None:
            return parts[0]
        make = self.make
        # Shapes by doing the same to arrays that take no memory.
        empty = [np.broadcast_to(np.zeros((), np.uint8), part.shape) for part in parts]
        shape = make(empty).shape

        def pieces() -> Iterator[bytes]:
            yield np.ascontiguousarray(make([part.numpy() for part in parts])).tobytes()

        return Tensor.computed(parts[0].dtype, shape, pieces, origin=parts[0].origin)


def kernel(
    name: str, tensor: Tensor, kind: str, order: Sequence[int] | None, *, flipped: bool
) -> Stored:
    """Return a kernel in today's order of axes, not turned around.

    Args:
        name: Of its tensor.
        tensor: As it is stored.
        kind: Class of its layer.
        order: Which of its axes come first, second, …; None where they are today's.
        flipped: Whether its spatial axes run backwards, as Theano has them.
    """
    # Keras 1 convolved images of one column; before 1.1 in Theano's order.
    column = kind == "Conv1D" and len(tensor.shape) == 4
    theano = column and tensor.shape[3] == 1 and tensor.shape[1] != 1
    if order is None and not flipped and not column:
        return Stored((name,))

    def today(parts: Sequence[Array]) -> Array:
        (array,) = parts
        if theano:
            array = array.transpose(2, 3, 1, 0)
        if column:
            array = array.squeeze(1)
        if order is not None:
            array = array.transpose(order)
        return np.flip(array, tuple(range(array.ndim - 2))) if flipped else array

    return Stored((name,), today)


def gates(names: Sequence[str], places: Sequence[int], change: Stored | None) -> Stored:
    """Return the weights of gates that stood apart, as one matrix or bias.

    Args:
        names: Of the tensors of all gates, as they are stored.
        places: For each of today's gates, its place among those.
        change: What is done to each matrix.
    """
    today = None if change is None else change.make

    def joined(parts: Sequence[Array]) -> Array:
        ready = [part if today is None else today([part]) for part in parts]
        return np.concatenate(ready, -1)

    return Stored(tuple(names[place] for place in places), joined)


def from_cudnn(names: Sequence[str], units: int, count: int, *, reset_after: bool) -> list[Stored]:
    """Return the weights of a cuDNN layer as those of its portable twin.

    cuDNN's matrices are [units, features] for each gate, under the shape [features, units]; it has
    a bias for the input's and one for the state's product.
    Spec: _convert_rnn_weights in tf_keras/src/saving/legacy/hdf5_format.py

    Args:
        names: Of kernel, recurrent kernel and bias.
        units: Size of a gate.
        count: Of gates.
        reset_after: Whether today's layer keeps both biases; else it has their sum.
    """

    def inputs(parts: Sequence[Array]) -> Array:
        features = parts[0].shape[0]
        cut = [gate.reshape(units, features).T for gate in np.split(parts[0], count, 1)]
        return np.concatenate(cut, 1)

    def states(parts: Sequence[Array]) -> Array:
        return np.concatenate([gate.T for gate in np.split(parts[0], count, 1)], 1)

    def bias(parts: Sequence[Array]) -> Array:
        both = parts[0].reshape(2, count * units)
        return both if reset_after else both[0] + both[1]

    makes = (inputs, states, bias)
    return [Stored((name,), make) for name, make in zip(names, makes, strict=True)]
