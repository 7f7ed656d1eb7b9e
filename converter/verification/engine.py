"""Compare a source with its output, each run by its own runtime.

Both get the same inputs, in two batch sizes and two sizes of every other dynamic axis. What cannot
be compared is reported as not run, with the reason; this is neither success nor failure. If outputs
differ, or hardly depend on the inputs, layers are compared as well; if a device is requested and
both agree on the CPU, both are run there too.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from converter.child.process import Allowance
from converter.options import Options
from converter.verification.compare import Tolerance, are_empty
from converter.verification.coverage import extend_plan
from converter.verification.device import (
    TF32_UNITS,
    ComparedCases,
    make_compared_model,
    request_device,
    select_cases,
    verify_on_device,
)
from converter.verification.first_difference import LayerComparison
from converter.verification.inputs import draw as inputs
from converter.verification.inputs.draw import Case, Hint
from converter.verification.obstacles import report_skipped
from converter.verification.pair import Pair
from converter.verification.placement import DeviceRequest
from converter.verification.report import GraphReport
from converter.verification.runners import RunSkipped, write_inputs
from converter.verification.runs import Differences, Runs
from formats.core.bundle import TensorSpec
from formats.errors import UsageError

ANY_NUMBER = 1 << 31


# -- options ---------------------------------------------------------------------------------------


def allowance(options: Options) -> Allowance:
    """Return the limits of each child process."""
    return Allowance(options.comparison.timeout)


def find_requested_device(options: Options) -> DeviceRequest | None:
    """Return the device to run both models on in addition to the CPU, or None.

    Models are compared on a device if that is requested, or if the device is available.

    Raises:
        UsageError: It is not the name of a device.
    """
    asked = "device" in (options.verify, options.require) or options.verify == "auto"
    device = options.device if asked else None
    try:
        return request_device(device, allow_tf32=options.comparison.allow_tf32)
    except UsageError:
        if "device" in (options.verify, options.require):
            raise
        return None  # only the target has a name for it


def count_allowed_cpu_nodes(options: Options) -> int:
    """Return how many nodes may run on the CPU where another device is requested.

    By default, nodes that a runtime leaves on the CPU by design (strings, shapes) are counted, but
    are not a failure.
    """
    allowed = options.comparison.allow_cpu_nodes
    is_asked = "device" in (options.verify, options.require)
    return allowed if is_asked or allowed else ANY_NUMBER


def tolerance(options: Options, precision: str, outputs: Sequence[str]) -> Tolerance:
    """Return the tolerance for models of a precision.

    Raises:
        UsageError: A bound names an output that does not exist.
    """
    how, known = options.comparison, {"", *outputs}
    for option, given in (("atol=", how.atol), ("rtol=", how.rtol)):
        for name in given:
            if name not in known:
                raise UsageError(
                    f"{option} names the output {name!r}", expected=", ".join(sorted(known - {""}))
                )
    return Tolerance(how.atol, how.rtol, precision)


def plan_inputs(
    specs: Sequence[TensorSpec],
    hints: Mapping[str, Hint],
    options: Options,
    *,
    is_varied: bool = False,
    with_example: bool = False,
) -> list[list[Case]]:
    """Return the user's inputs, or random ones.

    Args:
        specs: Specs of the inputs.
        hints: Hints on their values, by name.
        options: ``inputs``, ``seed``, ``samples`` and ``example`` of the comparison.
        is_varied: Whether to draw alternatives, one of which the source accepts.
        with_example: Whether to try a registry's example, too.

    Raises:
        UsageError: The user's inputs do not fit this model.
    """
    how = options.comparison
    if how.inputs is not None:
        return inputs.cases_from_file(how.inputs, specs)
    found = [hints.get(spec.name, Hint()) for spec in specs]
    plan = inputs.plan_cases(
        specs, found, seed=how.seed, samples=max(how.samples, 1), is_varied=is_varied
    )
    return [*(inputs.cases_from_example(how.example, specs) if with_example else ()), *plan]


# -- the comparison --------------------------------------------------------------------------------


def compare_models(pair: Pair, options: Options) -> GraphReport:
    """Run a source and its output on the same inputs, and compare their results.

    Returns:
        A report; ``failed`` if outputs differ or nothing could be compared.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    begin = perf_counter()
    on = find_requested_device(options)
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        report = _compare_in(Path(name), pair, on, options)
    seed = None if options.comparison.inputs else options.comparison.seed
    if report.cases:
        report = replace(report, seed=seed)
    return replace(report, seconds=perf_counter() - begin)


def _compare_in(
    folder: Path, pair: Pair, on: DeviceRequest | None, options: Options
) -> GraphReport:
    graph = pair.noise_graph(folder)
    plan, coverage = pair.plan, None
    if graph is not None:
        plan, coverage = extend_plan(
            *graph, pair.specs, pair.hints, pair.plan, folder, pair.allowance,
            may_draw=bool(pair.hints) and options.comparison.inputs is None,
        )  # fmt: skip
    if pair.tensors:
        plan = inputs.share_arrays(plan, pair.tensors)
    theirs = write_inputs(folder, pair.specs, plan)
    there = pair.reference.run(theirs)
    if isinstance(there, RunSkipped):
        if there.failure and options.comparison.inputs is not None:
            raise UsageError(
                f"the source itself fails on every input given: {there.failure}",
                expected="inputs that the model accepts",
            )
        return report_skipped(there, pair.framework)
    pair = pair.with_outputs_of(there)
    # The candidate must accept the same alternatives as the source.
    ours = select_cases(theirs, there.chosen, "candidate")
    here = pair.candidate.run(ours)
    if isinstance(here, RunSkipped):
        if here.is_missing:
            return report_skipped(here, pair.runtime)
        reason = f"{pair.runtime} does not run the output: {here.reason}"
        return GraphReport("failed", reason, source=there.runtime)
    runs = Runs(pair, graph, theirs, ours, there, here)
    differences = runs.compare_outputs()
    report = replace(_report_outputs(runs, differences), coverage=coverage)
    notes = dict.fromkeys([*report.notes, *pair.notes(there, here)])
    report = replace(report, notes=tuple(notes))
    if wrong := pair.mismatch(there):
        return replace(report, status="failed", reason=wrong)
    if report.status == "passed" and on is not None:
        cases = {number: theirs.cases[number].name for number in there.chosen}
        scale = max(pair.noise_scale, TF32_UNITS if on.allow_tf32 else 1.0)
        noise = runs.measure_noise(scale)
        if noise is not None:
            noise = replace(noise, source=differences.source_noise)
        question = ComparedCases(
            pair.outputs,
            cases,
            pair.tolerance,
            count_allowed_cpu_nodes(options),
            there.unstable,
            noise,
        )
        parties = (
            make_compared_model(theirs, there, lambda p, on: pair.reference.run(p, on=on)),
            make_compared_model(ours, here, lambda p, on: pair.candidate.run(p, on=on)),
        )
        report = report.with_device(verify_on_device(*parties, question, on))
    case = _case_to_look_into(report, there.chosen)
    every = options.comparison.layers
    found = LayerComparison()
    if pair.locate is not None and (every or case is not None):
        number = there.chosen[0] if case is None else case
        found = pair.locate(theirs, ours, number, report.status == "failed")
        if case is not None:
            report = _with_layers(report, found)
    return report.with_layer_errors(found.errors) if every else report


def _report_outputs(runs: Runs, found: Differences) -> GraphReport:
    """Return a report of all outputs."""
    report = GraphReport(
        "failed", found.problem, None, runs.there.runtime, runs.here.runtime,
        cases=runs.describe_cases(), skipped=runs.there.refused, outputs=found.outputs,
        notes=found.notes,
    )  # fmt: skip
    if found.problem:
        return report
    failed = [m for m in found.outputs.values() if not m.passed]
    if failed:
        reason = f"{len(failed)} of {len(found.outputs)} outputs differ: {failed[0].name!r}:"
        if len(found.outputs) == 1:
            reason = f"the output {failed[0].name!r}"
        return replace(report, reason=f"{reason} {failed[0].problems[0]}")
    if runs.unstable:
        return replace(report, status="not run", reason=runs.describe_unstable())
    if not found.outputs:
        return replace(report, reason="there is no output to compare")
    if unclear := [m.name for m in found.outputs.values() if m.verdict == "ill-conditioned"]:
        names = ", ".join(map(repr, unclear))
        reason = f"{names} cannot be decided: rounding alone changes it as much as its values vary"
        return replace(report, status="not run", reason=reason)
    return replace(report, status="passed")


def _case_to_look_into(report: GraphReport, chosen: Sequence[int]) -> int | None:
    """Return the index of a case in which layers must be compared, or None."""
    wanted = [m for m in report.outputs.values() if not m.passed or m.says_little]
    if not wanted:
        return None
    names = {m.worst_case for m in wanted if not m.passed}
    numbers = {case.name: n for case, n in zip(report.cases, chosen, strict=True)}
    return min((n for name, n in numbers.items() if name in names), default=chosen[-1])


def _with_layers(report: GraphReport, found: LayerComparison) -> GraphReport:
    """Return a report with the result of the comparison of layers."""
    report = replace(report, layers=found.equal, first_difference=found.difference)
    if found.difference is None and found.measured and are_empty(report.outputs):
        names = ", ".join(map(repr, report.outputs))
        note = f"{names} has no elements at any size that was tried: {found.measured} layers were"
        outputs = {n: replace(m, problems=()) for n, m in report.outputs.items()}
        notes = (*report.notes, f"{note} compared in its place")
        return replace(report, status="passed", reason="", outputs=outputs, notes=notes)
    if report.status == "failed":
        where = "no layer alone differs by more than noise, or none can be looked at"
        if found.difference is not None:
            where = f"the first layer that differs is {found.difference}"
        return replace(report, reason=f"{report.reason}; {where}")
    names = ", ".join(repr(m.name) for m in report.outputs.values() if m.says_little)
    if found.difference is not None:
        reason = f"the layer {found.difference} differs, which {names} does not show"
        return replace(report, status="failed", reason=reason)
    note = f"{names} hardly depends on the inputs: {found.equal} layers were compared as well"
    return replace(report, notes=(*report.notes, note))
