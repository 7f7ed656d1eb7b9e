"""Find the weights of a graph that choose what is computed: they are exact, and have no noise.

An exponent of 2, the scales of a resized image, and the 0.5 by which positions are multiplied
before they become indices are parts of the model. Moved by a unit in the last place, they would
choose other elements, which rounding never does.
"""

from converter.lower.element_types import ELEMENT_TYPES
from converter.verification.onnx_values import OnnxInterface

# Operator -> inputs whose values are arguments.
ARGUMENTS = {
    "NonMaxSuppression": (3, 4), "Pow": (1,), "Resize": (1, 2), "RoiAlign": (1,), "Upsample": (1,),
}  # fmt: skip
SHAPES = frozenset(("Shape", "Size"))  # what they return depends on no value
INTEGERS = frozenset(number for name, number in ELEMENT_TYPES.items() if "int" in name)


def find_exact_weights(file: OnnxInterface) -> frozenset[str]:
    """Return the names of weights that are arguments, or become indices.

    A constant that two nodes share may be a number in the other.
    """
    arguments = {
        name
        for node in file.nodes
        for i in ARGUMENTS.get(node.op_type, ())
        for name in node.inputs[i : i + 1]
    }
    return frozenset(file.weights.keys() & (arguments | _find_indices(file)))


def _find_indices(file: OnnxInterface) -> set[str]:
    """Return values that are cast to integers, after arithmetic into which no input flows."""
    given = {spec.name for spec in file.inputs}
    for node in file.nodes:
        if node.op_type not in SHAPES and not given.isdisjoint(node.inputs):
            given.update(node.outputs)
    indices: set[str] = set()
    for node in reversed(file.nodes):
        is_cast = node.op_type == "Cast" and node.numbers.get("to") in INTEGERS
        if is_cast or not indices.isdisjoint(node.outputs):
            indices.update(name for name in node.inputs if name not in given)
    return indices
