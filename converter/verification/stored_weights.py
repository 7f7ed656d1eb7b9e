"""Compute the weights that an ONNX file keeps quantised, by what the file says, with NumPy.

A weight is the result of operators that read initializers alone, one of which has values of 4 or 8
bits. They are evaluated as ONNX specifies them, and not by the code that wrote them.
Spec: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
"""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import numpy as np

from converter.lower.element_types import ELEMENT_TYPES
from converter.verification.onnx_values import NodeInterface, OnnxInterface
from formats.core.weights import DTYPES, numpy_dtype
from formats.errors import CorruptError

DTYPE_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}


class StoredWeights:
    """The weights of a file that follow from quantised initializers.

    Attributes:
        tensors: Names of the values that are weights → those of the tensors that they stand for.
        inputs: Names of the initializers that they follow from.
    """

    def __init__(self, file: OnnxInterface, known: Container[str]) -> None:
        """Find them.

        Args:
            file: The file.
            known: Names of the source's tensors. In the file they may follow that of a module.
        """
        self._weights = file.weights
        self._nodes: dict[str, NodeInterface] = {}
        self.tensors: dict[str, str] = {}
        for node in file.nodes:
            is_constant = all(n in self._weights or n in self._nodes for n in node.inputs)
            if (
                node.op_type in EVALUATORS
                and len(node.outputs) == 1
                and is_constant
                and any(map(self._is_quantised, node.inputs))
            ):
                (output,) = node.outputs
                self._nodes[output] = node
                own = output if output in known else output.partition(".")[2]
                if own in known:
                    self.tensors[output] = own
        self.inputs = {name for output in self.tensors for name in self._sources(output)}

    def _is_quantised(self, name: str) -> bool:
        """Return whether a value follows from values of at most 8 bits."""
        return name in self._nodes or self._weights[name].dtype.bits in (4, 8)

    def _sources(self, name: str) -> Iterator[str]:
        if name not in self._nodes:
            yield name
            return
        for other in self._nodes[name].inputs:
            yield from self._sources(other)

    def compute(self, name: str) -> np.ndarray:
        """Return a weight.

        Raises:
            CorruptError: An operator does not fit its inputs.
        """
        if name not in self._nodes:
            return self._weights[name].numpy()
        node = self._nodes[name]
        inputs = [self.compute(n) for n in node.inputs]
        try:
            with np.errstate(all="ignore"):  # NaN and infinity are values like others
                return EVALUATORS[node.op_type](inputs, node.numbers)
        except (ValueError, KeyError, IndexError, TypeError) as e:
            raise CorruptError(f"{node.op_type} does not fit its inputs ({e})", where=name) from e


def _dequantize(inputs: list[np.ndarray], numbers: Mapping[str, Any]) -> np.ndarray:
    values, scale, *rest = inputs
    axis, size = numbers.get("axis", 1), numbers.get("block_size", 0)

    def spread(part: np.ndarray) -> np.ndarray:
        if part.ndim == 1:
            return part.reshape([-1 if i == axis % values.ndim else 1 for i in range(values.ndim)])
        if size:
            return np.repeat(part, size, axis).take(range(values.shape[axis]), axis)
        return part

    found = values.astype(np.float32)
    if rest:
        found -= spread(rest[0]).astype(np.float32)
    found *= spread(scale.astype(np.float32))
    return found.astype(scale.dtype)


def _slice(inputs: list[np.ndarray], numbers: Mapping[str, Any]) -> np.ndarray:
    del numbers
    data, start, end = inputs  # of the first axis
    return data[int(start[0]) : int(end[0])]


def _gather(inputs: list[np.ndarray], numbers: Mapping[str, Any]) -> np.ndarray:
    return inputs[0].take(inputs[1], numbers.get("axis", 0))


def _cast(inputs: list[np.ndarray], numbers: Mapping[str, Any]) -> np.ndarray:
    return inputs[0].astype(numpy_dtype(DTYPES[DTYPE_NAMES[numbers["to"]]]))


EVALUATORS: dict[str, Callable[[list[np.ndarray], Mapping[str, Any]], np.ndarray]] = {
    "DequantizeLinear": _dequantize,
    "Gather": _gather,
    "Cast": _cast,
    "Slice": _slice,
    "Mul": lambda x, _: x[0] * x[1],
    "Reshape": lambda x, _: x[0].reshape(x[1]),
    "Transpose": lambda x, numbers: x[0].transpose(numbers["perm"]),
}
