"""State that a source keeps from one run to the next, as inputs and outputs of the graph.

The input ``past.NAME`` takes the value before a run, the output ``present.NAME`` gives the value
after it: feed each output to its input in the next run. An ONNX file lists the pairs, and the
values of the first run, in its metadata property `PROPERTY`, a JSON array of objects:

    tensor   name of the tensor, variable or attribute of the source
    input    name of the input
    output   name of the output
    shape    shape of the first value; a name is the axis of that name of the other inputs
    initial  the first value: a number that fills that shape, nested lists of numbers, or the string
             "weights": the tensor of that name in the bundle's model.safetensors
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from converter.lower.graph import Graph, Shape, State
from formats.core.bundle import JSON
from formats.core.weights import Tensor, split

if TYPE_CHECKING:
    import numpy as np

PROPERTY = "convert.state"
PAST, PRESENT = "past.", "present."
MOST_VALUES = 4096  # elements of an initial value that is listed
WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class RecordedState:
    """A state as an ONNX file records it; the fields are those of the property."""

    tensor: str
    input: str
    output: str
    shape: tuple[int | str, ...]
    initial: JSON


def parse_states(text: str) -> tuple[RecordedState, ...]:
    """Return the states that a metadata property records; none where it is malformed."""
    try:
        rows = json.loads(text)
        return tuple(RecordedState(**{**row, "shape": tuple(row["shape"])}) for row in rows)
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()


def pair_names(tensor: str) -> tuple[str, str]:
    """Return the names of the input and the output of a state."""
    return f"{PAST}{tensor}", f"{PRESENT}{tensor}"


def make_state(tensor: str, shape: Shape, initial: JSON = None) -> State:
    """Return a state whose input and output have the usual names."""
    return State(tensor, *pair_names(tensor), shape, initial)


def alias_states(weights: Mapping[str, Tensor], states: Collection[str]) -> dict[str, str]:
    """Return the names of tensors that share a storage with a state, and that state."""
    found: dict[str, str] = {}
    for state in states:
        tensor = weights.get(state)
        names = [n for n, t in weights.items() if t == tensor and t.nbytes]
        for name in (state, *names):
            found.setdefault(name, state)
    return found


def describe_states(graph: Graph, weights: Mapping[str, Tensor]) -> list[dict[str, JSON]]:
    """Return the states of a graph as files record them.

    Args:
        graph: The graph.
        weights: Tensors of the bundle, which hold initial values.
    """
    return [
        {
            "tensor": state.tensor,
            "input": state.input,
            "output": state.output,
            "shape": list(state.shape),
            "initial": list_initial(weights[state.tensor])
            if state.initial is None
            else state.initial,
        }
        for state in graph.states
    ]


def encode_states(graph: Graph, weights: Mapping[str, Tensor]) -> str:
    """Return the value of the metadata property."""
    return json.dumps(describe_states(graph, weights), ensure_ascii=False)


def list_initial(tensor: Tensor) -> JSON:
    """Return the value of a tensor: one number if all elements are equal, lists, or `WEIGHTS`."""
    parts = (part for p in tensor.pieces() for part in ([p] if isinstance(p, bytes) else split(p)))
    if not any(part.strip(b"\0") for part in parts):
        return False if tensor.dtype.name == "bool" else 0
    if tensor.size > MOST_VALUES:
        return WEIGHTS
    return list_values(tensor.numpy())


def list_values(array: "np.ndarray") -> JSON:
    """Return the elements of an array: one number if all are equal, else nested lists."""
    flat = array.reshape(-1)
    values: JSON = flat[0].item() if flat.size and (flat == flat[0]).all() else array.tolist()
    return values
