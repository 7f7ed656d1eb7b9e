"""A source and its output, and how they are compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from converter.child.process import Allowance
from converter.verification.compare import Tolerance
from converter.verification.first_difference import LayerComparison
from converter.verification.inputs.draw import Case, Hint
from converter.verification.onnx_values import OnnxInterface
from converter.verification.runners import Model, PreparedInputs, SourceRun
from formats.core.bundle import TensorSpec


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and its output, and how they are compared.

    Attributes:
        reference: The source.
        candidate: The output written from it.
        framework: Framework of the source, for messages.
        runtime: Runtime of the candidate, for messages.
        specs: Specs of the inputs of both.
        outputs: Names of the outputs, in order.
        plan: Alternatives of each case, one of which the source must accept.
        tolerance: Tolerance of the comparison.
        allowance: Limits of each child process.
        notes: Remarks on both runs for the report.
        mismatch: Returns why the inputs differ from the source's, given its run, or "".
        locate: Compares layers in the case of an index, given the prepared inputs, and whether
            outputs differ, which a layer must explain; None if
            layers cannot be compared.
        has_more_outputs: Whether the source may return more outputs than it declares.
        noise_graph: Returns an ONNX file of what both compute, to measure its noise with, and its
            interface; given a folder for it. None if there is none.
        noise_scale: Size of the rounding errors, in units in the last place of the dtypes.
        tensors: For each input, the name of the source's tensor that it feeds: two keys of a
            signature may name one.
        hints: Hints on the values of the inputs, in order; without them, none are drawn in
            addition to the plan.
    """

    reference: Model
    candidate: Model
    framework: str
    runtime: str
    specs: Sequence[TensorSpec]
    outputs: Sequence[str]
    plan: Sequence[Sequence[Case]]
    tolerance: Tolerance
    allowance: Allowance = field(default_factory=Allowance)
    notes: Callable[[SourceRun, SourceRun], Sequence[str]] = lambda there, _: there.notes
    mismatch: Callable[[SourceRun], str] = lambda _: ""
    locate: Callable[[PreparedInputs, PreparedInputs, int, bool], LayerComparison] | None = None
    has_more_outputs: bool = False
    noise_graph: Callable[[Path], tuple[Path, OnnxInterface] | None] = lambda _: None
    noise_scale: float = 1.0
    tensors: Sequence[str] = ()
    hints: Sequence[Hint] = ()

    def with_outputs_of(self, run: SourceRun) -> "Pair":
        """Return the pair with a name for each output that the source returned."""
        if not self.has_more_outputs:
            return self
        count = len(run.dtypes[run.chosen[0]])
        more = (f"output-{i}" for i in range(len(self.outputs), count))
        return replace(self, outputs=[*self.outputs[:count], *more])
