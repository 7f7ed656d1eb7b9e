"""Whether Triton may join requests to batches, decided from the axes of inputs and outputs.

With ``max_batch_size`` above zero, Triton takes the first axis of every input and output for the
batch: it concatenates the inputs of several requests along it, and cuts the outputs apart.
Spec: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_configuration.md#maximum-batch-size
"""

from collections.abc import Iterable
from dataclasses import dataclass

from converter.lower.graph import Dim, Graph
from formats.errors import UsageError

MAX_BATCH = 8  # requests that Triton may batch unasked; more take more memory


@dataclass(frozen=True, slots=True)
class Batching:
    """The decision.

    Attributes:
        max_batch_size: Zero if requests are not batched.
        reasons: Sentences that explain it.
    """

    max_batch_size: int
    reasons: tuple[str, ...]

    def describe(self) -> str:
        """Return the decision and its reasons as one line."""
        found = f"up to {self.max_batch_size} requests" if self.max_batch_size else "none"
        return f"{found}: {'; '.join(self.reasons)}"


def decide_batching(graph: Graph, requested: int | None) -> Batching:
    """Decide how many requests may be joined.

    Requests are batched if all inputs have the same free first axis and all outputs have it as
    well.

    Args:
        graph: As it is written.
        requested: The user's ``max_batch_size``; None decides from the graph. Above zero, it says
            that free first axes are the batch's, whatever their names are.

    Raises:
        UsageError: Batches are requested, and an input or output has no free first axis.
    """
    if requested == 0:
        return Batching(0, ("max_batch_size is 0",))
    misfits = [*_find_misfits("input", graph, graph.inputs)]
    misfits += _find_misfits("output", graph, graph.outputs)
    if not graph.inputs:
        misfits.append("the graph has no inputs")
    if misfits and requested is not None:
        raise UsageError(
            f"triton: max_batch_size={requested}",
            expected=f"max_batch_size=0: {'; '.join(misfits)}",
        )
    if requested is not None:
        return Batching(requested, ("every input and output has a free first axis",))
    reasons = misfits or [*_find_differences(graph)]
    if reasons:
        return Batching(0, tuple(reasons))
    axis = _first_axis(graph, graph.inputs[0])
    return Batching(MAX_BATCH, (f"every input and output has the free first axis {axis!r}",))


def _find_misfits(kind: str, graph: Graph, names: Iterable[str]) -> Iterable[str]:
    """Yield why tensors cannot be batched at all."""
    for name in names:
        shape = graph.specs[name].shape
        if not shape:
            yield f"{kind} {name!r} has no axes"
        elif isinstance(shape[0], int):
            yield f"the first axis of {kind} {name!r} has the fixed size {shape[0]}"


def _find_differences(graph: Graph) -> Iterable[str]:
    """Yield first axes that are free, and not known to have one size."""
    axis = _first_axis(graph, graph.inputs[0])
    for kind, names in (("input", graph.inputs), ("output", graph.outputs)):
        for name in names:
            own = _first_axis(graph, name)
            if own is None or own != axis:
                what = "of any size" if own is None else repr(own)
                other = f"{axis!r} as that of input {graph.inputs[0]!r}"
                yield f"the first axis of {kind} {name!r} is {what}, not {other}"


def _first_axis(graph: Graph, name: str) -> Dim:
    return graph.specs[name].shape[0]
