"""Cases of models that keep state: any state before the run, and the one that the source stores."""

from collections.abc import Mapping, Sequence

import numpy as np

from converter.lower.states import PROPERTY, WEIGHTS, RecordedState
from converter.verification.inputs.draw import Case, storage_dtype
from formats.core.bundle import TensorSpec
from formats.core.weights import Tensor
from formats.errors import CorruptError


def add_first_runs(
    plan: Sequence[Sequence[Case]], specs: Sequence[TensorSpec], states: Sequence[RecordedState],
    weights: Mapping[str, Tensor],
) -> list[list[Case]]:  # fmt: skip
    """Return a plan with each case once more, from the state that the source stores.

    Args:
        plan: Alternatives of each case; those without arrays for the states are only run so.
        specs: Specs of the inputs, the states last.
        states: The states.
        weights: Tensors of the source.

    Raises:
        CorruptError: The first value that a file records is none of its input.
    """
    if any(s.initial == WEIGHTS and s.tensor not in weights for s in states):
        return [*map(list, plan)]  # the source has no such tensor: it is a graph by itself
    own = len(specs) - len(states)
    first = [
        [_first_run(case, own, specs, states, weights) for case in alternatives]
        for alternatives in plan
    ]
    return [*first, *([*cases] for cases in plan if all(len(c.arrays) > own for c in cases))]


def _first_run(
    case: Case, own: int, specs: Sequence[TensorSpec], states: Sequence[RecordedState],
    weights: Mapping[str, Tensor],
) -> Case:  # fmt: skip
    arrays = case.arrays[:own]
    sizes = {
        name: size
        for spec, array in zip(specs[:own], arrays, strict=True)
        for name, size in zip(spec.shape or (), array.shape, strict=False)
    }
    values = []
    for spec, state in zip(specs[own:], states, strict=True):
        shape = [n if isinstance(n, int) else sizes.get(n, 1) for n in state.shape]
        value = weights[state.tensor].numpy() if state.initial == WEIGHTS else state.initial
        try:
            array = np.asarray(value).astype(storage_dtype(spec.dtype))
            values.append(np.broadcast_to(array, shape))
        except (ValueError, TypeError) as e:
            raise CorruptError(f"{PROPERTY} says no first value of {state.input!r}: {e}") from e
    return Case(f"{case.name}, first run", (*arrays, *values), is_first=True)
