"""Cases of models that keep state: any state before the run, and the one that the source stores."""

from collections.abc import Mapping, Sequence

import numpy as np

from converter.lower.states import WEIGHTS, RecordedState
from converter.verification.inputs.draw import Case, storage_dtype
from formats.core.bundle import TensorSpec
from formats.core.weights import Tensor


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
    """
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
        array = np.asarray(value).astype(storage_dtype(spec.dtype))
        values.append(np.broadcast_to(array, shape).copy())
    return Case(f"{case.name}, first run", (*arrays, *values), is_first=True)
