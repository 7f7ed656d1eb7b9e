"""Values that the inputs of a lowered graph expect, for sources that have no layers.

The readers of an input are followed through nodes that pass on its elements: to a table that they
index, to the vocabulary of a lookup, or to the rescaling of images.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from converter.lower.graph import Graph, Node, Spec, consumers
from converter.verification.inputs import encoded_hints
from converter.verification.inputs.draw import WORDS, Hint

# Nodes that pass on the elements of their first input; element-wise ones those of any input.
PASSING = frozenset((
    "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand",
    "Slice", "Split", "Concat", "Tile", "Pad", "Gather", "Add", "Sub", "Where", "Max", "Min",
    "Mod", "Clip",
))  # fmt: skip
MOVING = frozenset(("Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze"))
SCALINGS = frozenset(("Mul", "Div", "Sub", "Add"))
MAX_NODES = 2000  # nodes
IMAGE_SCALE = 10.0  # inputs that are divided by more are intensities of images

# Inputs of TensorFlow 1 graphs that switch training on: their values for inference.
KEPT = re.compile(r"keep|retain", re.IGNORECASE)
DROPPED = re.compile(r"drop", re.IGNORECASE)
TRAINING = re.compile(r"train|learning_phase|phase", re.IGNORECASE)


def find_hints(graph: Graph, vocabulary: Sequence[str] = ()) -> dict[str, Hint]:
    """Return a hint for each input of a graph that has one, by name.

    Args:
        graph: The lowered graph, before any pass.
        vocabulary: Vocabulary of lookups that is not part of the graph.
    """
    readers = consumers(graph)
    found = {}
    for name in graph.inputs:
        spec = graph.specs[name]
        hint = _training_hint(name, spec)
        if hint is None:
            hint = _index_hint(graph, readers, name)
        if hint is None and "int" in spec.dtype:
            hint = _mask_hint(graph, readers, name)
        if hint is None and spec.dtype == "string":
            words = tuple(_find_words(graph, readers, name)) or tuple(vocabulary)
            hint = Hint(words=(*words, WORDS[-1])) if words else None
        if hint is None and spec.dtype in ("float32", "float64", "float16"):
            hint = _scaling_hint(graph, readers, name)
        masked = _find_padding(graph, readers, name)
        if masked is not None and len(spec.shape or ()) > 1:
            low = 1 if masked == 0 and hint is not None and (hint.high or 0) > 1 else 0
            hint = replace(hint or Hint(), masked=masked, low=low)
        if hint is not None:
            found[name] = hint
    for name, fields in encoded_hints.fields(graph.encoded):
        if name in graph.inputs:
            found[name] = replace(found.get(name, Hint()), **fields)
    return found


def _training_hint(name: str, spec: Spec) -> Hint | None:
    if spec.dtype == "bool" and TRAINING.search(name):
        return Hint(words=(0,), is_scalar=True)
    if spec.shape or "float" not in spec.dtype:
        return None
    if KEPT.search(name):
        return Hint(words=(1,), is_scalar=True)
    return Hint(words=(0,), is_scalar=True) if DROPPED.search(name) else None


def _find_readers(
    readers: Mapping[str, Sequence[Node]], name: str, passing: frozenset[str]
) -> Iterator[tuple[Node, str]]:
    """Yield the nodes that read an input's elements, and the name of the value they read."""
    todo, seen, count = [name], {name}, 0
    while todo and count < MAX_NODES:
        value = todo.pop()
        for node in readers.get(value, ()):
            count += 1
            yield node, value
            handed_on = node.op_type in passing and (
                node.inputs[0] == value or node.op_type in ("Add", "Where", "Max", "Min", "Concat")
            )
            if handed_on:
                fresh = [n for n in node.outputs if n and n not in seen]
                seen.update(fresh)
                todo += fresh


def _index_hint(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Hint | None:
    """Return the range of an index into tables: the least of their sizes."""
    found = []
    reads = [*_find_readers(readers, name, PASSING)]
    known = {value for _, value in reads}
    for node, value in reads:
        if len(node.inputs) < 2:
            continue
        size: object = None
        if node.op_type in ("Gather", "GatherElements") and node.inputs[1] == value:
            axis = node.attributes.get("axis", 0)
            shape = graph.specs[node.inputs[0]].shape if node.inputs[0] in graph.specs else ()
            if isinstance(axis, int) and -len(shape) <= axis < len(shape):
                size = shape[axis]
        elif node.op_type == "GatherND" and node.inputs[1] == value:
            shape = graph.specs[node.inputs[0]].shape if node.inputs[0] in graph.specs else ()
            size = min((n for n in shape[:1] if isinstance(n, int)), default=None)
        elif node.op_type == "OneHot" and node.inputs[0] == value:
            depth = graph.initializers.get(node.inputs[1])
            size = int(depth.reshape(-1)[0]) if isinstance(depth, np.ndarray) else None
        if isinstance(size, int) and size > 0:
            found.append(size)
    # A width is an index, too: a right side lies right of the left one.
    differs = any(node.op_type == "Sub" and known.issuperset(node.inputs) for node, _ in reads)
    return Hint(high=min(found), is_sorted=differs) if found else None


def _mask_hint(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Hint | None:
    """Return the values of a mask for integers that are subtracted from one."""
    for node, value in _find_readers(readers, name, MOVING):
        if node.op_type == "Sub" and node.inputs[1] == value:
            one = graph.initializers.get(node.inputs[0])
            if isinstance(one, np.ndarray) and one.size == 1 and one.reshape(-1)[0] == 1:
                return Hint(is_mask=True)
    return None


def _find_padding(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> float | None:
    """Return the number that an input's elements are compared with, as padding is; or None."""
    for node, value in _find_readers(readers, name, MOVING):
        if node.op_type == "Equal":
            other = graph.initializers.get(next((n for n in node.inputs if n != value), ""))
            if isinstance(other, np.ndarray) and other.size == 1 and other.dtype.kind in "iuf":
                return float(other.reshape(-1)[0])
    return None


def _find_words(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Iterator[str]:
    """Yield the vocabulary of lookups of an input, as far as the graph has it."""
    for node, value in _find_readers(readers, name, MOVING):
        keys = node.attributes.get("keys_strings")
        if node.op_type == "LabelEncoder" and isinstance(keys, list):
            yield from (str(key) for key in keys)
        for other in node.inputs if node.op_type == "Equal" else ():
            constant = graph.initializers.get(other)
            if other != value and isinstance(constant, np.ndarray) and constant.dtype.kind in "OSU":
                yield from (str(word) for word in constant.reshape(-1))


def _scaling_hint(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Hint | None:
    """Return the values that a chain of scalings (``x * factor + term``) maps to around zero."""
    factor, term, value = 1.0, 0.0, name
    for _ in range(8):
        nodes = readers.get(value, ())
        if len(nodes) != 1 or not nodes[0].outputs:
            break
        node = nodes[0]
        if node.op_type in SCALINGS:
            others = [n for n in node.inputs if n != value]
            constant = graph.initializers.get(others[0]) if len(others) == 1 else None
            if not isinstance(constant, np.ndarray) or constant.dtype.kind not in "fiu":
                break
            number = float(constant.mean()) if constant.size else 0.0
            is_first = node.inputs[0] == value
            match node.op_type:
                case "Mul":
                    factor, term = factor * number, term * number
                case "Div" if is_first and number:
                    factor, term = factor / number, term / number
                case "Add":
                    term += number
                case "Sub" if is_first:
                    term -= number
                case _:
                    break
        elif node.op_type not in MOVING:
            break
        value = node.outputs[0]
    if not factor or (abs(factor) * IMAGE_SCALE > 1 and abs(term) < IMAGE_SCALE):
        return None
    return Hint(scale=1 / abs(factor), offset=-term / factor)
