"""Run an ONNX file as a source, in onnxruntime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converter.child.process import Allowance
from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.graph import Graph
from converter.verification.inputs import graph_hints
from converter.verification.inputs.draw import Hint
from converter.verification.onnx_values import OnnxInterface, read_interface
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import GraphReport
from converter.verification.runners import (
    OnnxRun,
    PreparedInputs,
    RunSkipped,
    SourceRun,
    load_output,
    run_onnx,
)
from formats.core.bundle import Bundle

# Operators with random outputs; Dropout only in training mode.
RANDOM = ("RandomNormal", "RandomUniform", "Bernoulli", "Multinomial", "Dropout")


@dataclass(frozen=True, slots=True)
class OnnxSource:
    """A file that onnxruntime runs."""

    path: Path
    own: OnnxInterface
    allowance: Allowance
    graph: Graph | None
    random: tuple[str, ...] = ()
    has_layers: bool = False

    @property
    def declared(self) -> Graph | None:
        """The graph of the file."""
        return self.graph

    def hints(self) -> Mapping[str, Hint]:
        """Return the hints from the graph."""
        return {} if self.graph is None else graph_hints.find_hints(self.graph)

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it in onnxruntime, with the first accepted alternative of each case."""
        del layers  # it has none
        there = "" if on.device is None else "onnxruntime fails there: "
        outputs = {spec.name: spec.dtype for spec in self.own.outputs}
        chosen: dict[int, int] = {}
        refused: dict[int, str] = {}
        run: OnnxRun | None = None
        for turn in range(max(map(len, prepared.groups), default=0)):
            asked = {
                i: group[turn]
                for i, group in enumerate(prepared.groups)
                if i not in chosen and turn < len(group)
            }
            if not asked:
                break
            run = run_onnx(
                self.path, prepared, [*asked.values()], outputs, self.allowance,
                prefix="out", on=on,
            )  # fmt: skip
            if run.no_device:
                text = f"onnxruntime {run.runtime.version}: {run.no_device}"
                return RunSkipped(
                    text, is_missing=False, lacks_device=True, placement=run.placement
                )
            if run.refused:
                return RunSkipped(f"{there}{run.refused}", is_missing=False)
            for i, case in asked.items():
                if case in run.errors:
                    refused.setdefault(i, f"{prepared.cases[case].name}: {run.errors[case]}")
                else:
                    chosen[i] = case
        left = [text for i, text in refused.items() if i not in chosen]
        if run is None or not chosen:
            said = f"{there}{left[0] if left else 'there is nothing to run it on'}"
            return RunSkipped(said, is_missing=False, failure=said if left else "")
        cases = tuple(case for _, case in sorted(chosen.items()))
        dtypes = [spec.dtype for spec in self.own.outputs]
        inputs = [
            (s.name, s.dtype, None if s.shape is None else [_size(n) for n in s.shape])
            for s in self.own.inputs
        ]
        return SourceRun(
            run.runtime, cases, dict.fromkeys(cases, dtypes), tuple(left), inputs,
            unstable=self._unstable(prepared, cases, outputs, on), random=self.random,
            placement=run.placement,
        )  # fmt: skip

    def _unstable(
        self,
        prepared: PreparedInputs,
        cases: Sequence[int],
        outputs: Mapping[str, str],
        on: DeviceRequest,
    ) -> frozenset[int]:
        """Return the indices of outputs that differ when they are computed again."""
        if not self.random:
            return frozenset()
        run_onnx(self.path, prepared, cases, outputs, self.allowance, prefix="again", on=on)
        found = set()
        for i, dtype in enumerate(outputs.values()):
            for case in cases:
                one, two = (load_output(prepared, p, case, i, dtype) for p in ("out", "again"))
                if not np.array_equal(one.data, two.data):
                    found.add(i)
        return frozenset(found)

    def notes(self, run: SourceRun) -> list[str]:
        """Return remarks on the run for the report."""
        return [*run.notes]


def source_of(
    path: Path, bundle: Bundle, file: OnnxInterface, allowance: Allowance, graph: Graph | None
) -> OnnxSource | GraphReport:
    """Return a file as a source, or why it is not run.

    Args:
        path: The artifact: a file, or a folder that contains one.
        bundle: The bundle read from it.
        file: Interface of the converted file.
        allowance: Limits of each child process.
        graph: The graph lowered from it, if it could be lowered.
    """
    for spec in file.inputs:
        if spec.dtype not in ELEMENT_TYPES:
            return GraphReport("not run", f"the input {spec.name!r} is no tensor ({spec.dtype})")
    content = bundle.topology.content if bundle.topology else None
    if path.is_dir() and isinstance(content, Mapping):
        path = path / next(iter(content))
    ops = bundle.topology.summary.get("ops") if bundle.topology else None
    random = tuple(op for op in ops if op.startswith(RANDOM)) if isinstance(ops, dict) else ()
    return OnnxSource(path, read_interface(path), allowance, graph, random)


def _size(n: int | str) -> int | None:
    return n if isinstance(n, int) else None
