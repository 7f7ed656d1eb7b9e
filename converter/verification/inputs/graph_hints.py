"""What a lowered graph does with its inputs: for graphs whose source has nodes and no layers.

An input's readers are followed through nodes that hand on its elements: to a table that they are
indices of, to words that they are looked up among, to the scaling that pictures begin with.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from converter.lower.graph import Graph, Node, Spec, consumers
from converter.verification.inputs import encoded_hints
from converter.verification.inputs.draw import WORDS, Hint

# Of an element-wise node's operands any may be the followed one; of the others the first is.
PASSING = frozenset((
    "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand",
    "Slice", "Split", "Concat", "Tile", "Pad", "Gather", "Add", "Sub", "Where", "Max", "Min",
    "Mod", "Clip",
))  # fmt: skip
MOVING = frozenset(("Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze"))
SCALINGS = frozenset(("Mul", "Div", "Sub", "Add"))
FARTHEST = 2000  # nodes
PICTURE = 10.0  # what is made so many times smaller has been a picture's levels

# Switches of training that graphs of TensorFlow 1 are fed: what they are where nothing is learned.
KEPT = re.compile(r"keep|retain", re.IGNORECASE)
DROPPED = re.compile(r"drop", re.IGNORECASE)
TRAINING = re.compile(r"train|learning_phase|phase", re.IGNORECASE)


def find_hints(graph: Graph, vocabulary: Sequence[str] = ()) -> dict[str, Hint]:
    """Return a hint for each input of a graph that has one, by name.

    Args:
        graph: As lowered, before any pass.
        vocabulary: Words that lookups keep outside the graph.
    """
    readers = consumers(graph)
    found = {}
    for name in graph.inputs:
        spec = graph.specs[name]
        hint = _switch(name, spec)
        if hint is None:
            hint = _indices(graph, readers, name)
        if hint is None and spec.dtype == "string":
            words = tuple(_words(graph, readers, name)) or tuple(vocabulary)
            hint = Hint(words=(*words, WORDS[-1])) if words else None
        if hint is None and spec.dtype in ("float32", "float64", "float16"):
            hint = _scaled(graph, readers, name)
        if hint is not None:
            found[name] = hint
    for name, fields in encoded_hints.fields(graph.encoded):
        if name in graph.inputs:
            found[name] = replace(found.get(name, Hint()), **fields)
    return found


def _switch(name: str, spec: Spec) -> Hint | None:
    if spec.dtype == "bool" and TRAINING.search(name):
        return Hint(words=(0,), is_scalar=True)
    if spec.shape or "float" not in spec.dtype:
        return None
    if KEPT.search(name):
        return Hint(words=(1,), is_scalar=True)
    return Hint(words=(0,), is_scalar=True) if DROPPED.search(name) else None


def _reached(
    readers: Mapping[str, Sequence[Node]], name: str, passing: frozenset[str]
) -> Iterator[tuple[Node, str]]:
    """Yield nodes that read an input's elements, and under which name they do."""
    todo, seen, count = [name], {name}, 0
    while todo and count < FARTHEST:
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


def _indices(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Hint | None:
    """Return what the tables that an input is an index of all have."""
    found = []
    for node, value in _reached(readers, name, PASSING):
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
    return Hint(high=min(found)) if found else None


def _words(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Iterator[str]:
    """Yield words that the graph itself holds, for an input to be looked up among."""
    for node, value in _reached(readers, name, MOVING):
        keys = node.attributes.get("keys_strings")
        if node.op_type == "LabelEncoder" and isinstance(keys, list):
            yield from (str(key) for key in keys)
        for other in node.inputs if node.op_type == "Equal" else ():
            constant = graph.initializers.get(other)
            if other != value and isinstance(constant, np.ndarray) and constant.dtype.kind in "OSU":
                yield from (str(word) for word in constant.reshape(-1))


def _scaled(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Hint | None:
    """Return what a chain of scalings takes to numbers around zero: x * factor + term."""
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
    if not factor or (abs(factor) * PICTURE > 1 and abs(term) < PICTURE):
        return None
    return Hint(scale=1 / abs(factor), offset=-term / factor)
