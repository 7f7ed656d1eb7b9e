"""Compare the weights inside an ONNX file with those of its source, bit for bit.

Lowering names each initializer, and says how it follows from the source's tensors: as it is, or
folded with others. It is computed again from the source, and compared with the file. A file by
another exporter has names of its own: its initializers are found among the source's tensors by
their content, as they are or transposed. Weights that the file keeps quantised are computed.
"""

from collections.abc import Mapping

import numpy as np

from converter import passes
from converter.lower.graph import Folded, Weight
from converter.verification.noise_graph import lower_quietly
from converter.verification.onnx_values import OnnxInterface, state_of
from converter.verification.result import Weights
from converter.verification.stored_weights import StoredWeights
from formats.core import digests
from formats.core.bundle import Bundle, TensorSpec
from formats.core.weights import Tensor
from formats.errors import UsageError

FEW = 16  # elements of a constant that may be part of the graph rather than a weight
FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
MATRIX = 2  # axes


def compare_initializers(
    bundle: Bundle, file: OnnxInterface, signature: str | None, inputs: tuple[TensorSpec, ...] = ()
) -> Weights | None:
    """Compare a file's initializers with what the source's weights make of them.

    Args:
        bundle: The source.
        file: Interface of the file.
        signature: Signature that it was lowered from, if there are several.
        inputs: Inputs of a torch program that does not record them.

    Returns:
        What is equal and what differs; None if a weight is found in no tensor of the source.
    """
    if not bundle.weights or not file.weights:
        return None
    declared = inputs or file.inputs[: len(file.inputs) - len(file.states)]
    try:
        graph = lower_quietly(bundle, signature, declared, state_of(file))
    except UsageError:
        graph = None  # the file is by another exporter, and its inputs have other names
    known = [] if graph is None else [dict(graph.initializers)]
    if graph is not None:
        known.append(passes.run(graph, bundle.weights).initializers)
    found = Digests(bundle.weights)
    equal, nbytes, different = 0, 0, []
    stored = StoredWeights(file, bundle.weights)
    for name, own_name in stored.tensors.items():
        if _digest_array(stored.compute(name)) == found.of_value(Weight(own_name)):
            equal, nbytes = equal + 1, nbytes + bundle.weights[own_name].nbytes
        else:
            different.append(f"{own_name} (changed)")
    for name, tensor in file.weights.items():
        if name in stored.inputs:
            continue
        values = [table[name] for table in known if name in table]
        own = digests.of_tensor(tensor)
        if any(own == found.of_value(value) for value in values):
            equal, nbytes = equal + 1, nbytes + tensor.nbytes
        elif values:
            different.append(f"{name} (changed)")
        elif tensor.size > FEW and tensor.dtype.name in FLOATS:
            if not found.has(own):
                if stored.tensors:  # buffers that the library computes
                    continue
                return None
            equal, nbytes = equal + 1, nbytes + tensor.nbytes
    return Weights(equal, nbytes, tuple(different)) if equal or different else None


class Digests:
    """Digests of a source's tensors, computed when they are asked for."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights
        self._known: dict[str, str] = {}
        self._contents: set[str] = set()

    def of_value(self, value: Weight | Folded | np.ndarray) -> str:
        """Return the digest of the bytes that an initializer must have."""
        if isinstance(value, Weight):
            if value.tensor not in self._known:
                self._known[value.tensor] = digests.of_tensor(self._weights[value.tensor])
            return self._known[value.tensor]
        return _digest_array(value.make() if isinstance(value, Folded) else value)

    def has(self, content: str) -> bool:
        """Return whether a tensor, or the transpose of a matrix, has this digest."""
        if not self._contents:
            for tensor in self._weights.values():
                self._contents.add(digests.of_tensor(tensor))
                if len(tensor.shape) == MATRIX and tensor.dtype.name in FLOATS:
                    self._contents.add(_digest_array(tensor.numpy().T))
        return content in self._contents


def _digest_array(array: np.ndarray) -> str:
    """Return the digest of an array's row-major bytes."""
    hasher = digests.new()
    if array.dtype.kind not in "OUS":  # strings are part of the graph
        hasher.update(np.ascontiguousarray(array).tobytes())
    return str(hasher.hexdigest())
