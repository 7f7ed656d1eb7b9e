"""Comparison on a device: both models on the device and on the CPU, four comparisons.

Equivalence is decided on the CPU, where both runtimes compute alike. On the device both models are
run again on the same inputs; the results are compared with those of the CPU and with each other.
Rounding explains the same differences there (see `converter.verification.verdict`), since float32
products are not rounded to TF32. With ``allow_tf32`` they are, and the noise is measured with
perturbations of the size of TF32's rounding errors.

A runtime without such a device is not run. One that accepts the device and computes elsewhere has
failed, even if its outputs are equal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from converter.devices.names import parse_device
from converter.verification.compare import Array, Tolerance, coarsest_dtype, compare, merge_measures
from converter.verification.measure import Measure, Runtime
from converter.verification.noise import Noise
from converter.verification.placement import DeviceRequest, Placement
from converter.verification.report import DeviceReport, DeviceRun, Status
from converter.verification.runners import PreparedInputs, RunSkipped, SourceRun, load_output

TF32 = "float16"  # the dtype of TF32's mantissa
TF32_UNITS = 2.0**13  # units in the last place of TF32, in those of float32
SOURCE, CONVERTED = "source", "converted"
PAIRS = (
    ((CONVERTED, "device"), (CONVERTED, "CPU")),
    ((CONVERTED, "device"), (SOURCE, "CPU")),
    ((SOURCE, "device"), (SOURCE, "CPU")),
    ((CONVERTED, "device"), (SOURCE, "device")),
)
FrameworkRun = Callable[[PreparedInputs, DeviceRequest], SourceRun | RunSkipped]
LoadOutput = Callable[[int, int], Array]  # arguments: the indices of a case and of an output


@dataclass(frozen=True, slots=True)
class DeviceOutputs:
    """Outputs of one model on the device.

    Attributes:
        runtime: Runtime that ran it.
        outputs: Loads an output of a case.
        placement: Placement of its nodes, if the runtime reports it.
        failed: Why its outputs cannot be compared with those on the CPU, or empty.
    """

    runtime: Runtime
    outputs: LoadOutput
    placement: Placement | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """The source or the converted model.

    Attributes:
        cpu: Loads its outputs on the CPU.
        run: Runs it on a device, on the same cases.
    """

    cpu: LoadOutput
    run: Callable[[DeviceRequest], DeviceOutputs | RunSkipped]


@dataclass(frozen=True, slots=True)
class ComparedCases:
    """The cases and outputs that are compared, and how.

    Attributes:
        outputs: Names of the outputs, in order.
        cases: Names, by index, of the cases that both models have run on the CPU.
        tolerance: Tolerance of the comparison on the CPU.
        allow_cpu_nodes: Number of nodes of a model that may run on the CPU.
        skipped: Indices of outputs that differ from run to run.
        noise: The noise of rounding on the device, if it could be measured.
    """

    outputs: Sequence[str]
    cases: Mapping[int, str]
    tolerance: Tolerance
    allow_cpu_nodes: int = 0
    skipped: frozenset[int] = frozenset()
    noise: Noise | None = None


def request_device(device: str | None, *, allow_tf32: bool) -> DeviceRequest | None:
    """Return the request for a device; None for the CPU alone.

    Raises:
        UsageError: `device` is not the name of a device.
    """
    if device in (None, "none"):
        return None
    found = parse_device(device or "")
    return None if found.is_host else DeviceRequest(found, allow_tf32)


def verify_on_device(
    source: ComparedModel, converted: ComparedModel, compared: ComparedCases, on: DeviceRequest
) -> DeviceReport:
    """Run both models on a device, and compare the results with those on the CPU.

    Args:
        source: The source, already run on the CPU.
        converted: The converted model, already run on the CPU.
        compared: The cases and outputs to compare.
        on: The device.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    begin = perf_counter()
    allowed = compared.allow_cpu_nodes
    ours = converted.run(on)
    there = _check_run(CONVERTED, ours, allowed)
    report = DeviceReport(
        there.status, there.reason, str(on.device), on.allow_tf32, allowed,
        DeviceRun("not run", "the converted model is not run there"), there,
    )  # fmt: skip
    if isinstance(ours, RunSkipped) or ours.failed:
        return replace(report, seconds=perf_counter() - begin)
    theirs = source.run(on)
    report = replace(report, source=_check_run(SOURCE, theirs, allowed))
    results = {(SOURCE, "CPU"): source.cpu, (CONVERTED, "CPU"): converted.cpu}
    results[CONVERTED, "device"] = ours.outputs
    if isinstance(theirs, DeviceOutputs) and not theirs.failed:
        results[SOURCE, "device"] = theirs.outputs
    pairs = {
        f"{' on the '.join(a)} ~ {' on the '.join(b)}": _measure(
            results[a], results[b], compared, on
        )
        for a, b in PAIRS
        if a in results and b in results
    }
    problems = [*_describe_failed_runs(report), *_describe_differences(pairs)]
    if problems:
        report = replace(report, status="failed", reason=problems[0])
    return replace(report, pairs=pairs, seconds=perf_counter() - begin)


def _check_run(name: str, ran: DeviceOutputs | RunSkipped, allowed: int) -> DeviceRun:
    """Return the status of one model on the device."""
    # A source that its own framework cannot run there is no evidence for or against the conversion.
    broken: Status = "failed" if name == CONVERTED else "not run"
    if isinstance(ran, RunSkipped):
        status = "not run" if ran.lacks_device or ran.is_missing else broken
        return DeviceRun(status, ran.reason, None, ran.placement)
    if ran.failed:
        return DeviceRun(broken, ran.failed, ran.runtime, ran.placement)
    if ran.placement is None:
        return DeviceRun("failed", f"{ran.runtime} does not say where it was", ran.runtime)
    problem = ran.placement.problem(allowed)
    runtime = replace(ran.runtime, device=ran.placement.mostly)
    return DeviceRun("failed" if problem else "passed", problem, runtime, ran.placement)


def _describe_failed_runs(report: DeviceReport) -> Iterable[str]:
    """Yield why models failed on the device."""
    for name, run in ((CONVERTED, report.converted), (SOURCE, report.source)):
        if run.status == "failed":
            yield f"the {name} model: {run.reason}"


def _describe_differences(pairs: Mapping[str, Mapping[str, Measure]]) -> Iterable[str]:
    """Yield the pairs whose outputs differ."""
    for name, pair in pairs.items():
        wrong = [m for m in pair.values() if not m.passed]
        if wrong:
            worst = max(wrong, key=lambda m: m.max_rel)
            yield (
                f"{name}: {len(wrong)} of {len(pair)} outputs differ: {worst.name!r}: "
                f"{worst.problems[0]}, max rel {worst.max_rel:.2g}"
            )
        if not pair:
            yield f"{name}: there is no output to compare"


def _measure(
    found: LoadOutput, expected: LoadOutput, compared: ComparedCases, on: DeviceRequest
) -> dict[str, Measure]:
    tolerance = compared.tolerance
    if on.allow_tf32:
        tolerance = replace(tolerance, precision=coarsest_dtype({tolerance.precision, TF32}))
    noise = compared.noise
    return merge_measures({
        name: [
            compare(
                name, expected(number, i), found(number, i), tolerance, case,
                noise.evidence(number, i) if noise else None,
            )
            for number, case in compared.cases.items()
        ]
        for i, name in enumerate(compared.outputs)
        if i not in compared.skipped
    })  # fmt: skip


def select_cases(prepared: PreparedInputs, chosen: Sequence[int], name: str) -> PreparedInputs:
    """Copy the inputs of some cases to a subfolder, and return them."""
    folder = prepared.folder / name
    folder.mkdir()
    for number in chosen:
        for i, array in enumerate(prepared.cases[number].arrays):
            np.save(folder / f"in-{number}-{i}.npy", array)
    groups = tuple((number,) for number in chosen)
    return PreparedInputs(folder, prepared.names, prepared.cases, groups)


def make_compared_model(
    prepared: PreparedInputs, ran: SourceRun, run: FrameworkRun
) -> ComparedModel:
    """Return a model with its outputs on the CPU and how to run it on a device.

    Args:
        prepared: The inputs; its folder also has the outputs on the CPU.
        ran: The run on the CPU.
        run: Runs the model on a device.
    """

    def on_device(on: DeviceRequest) -> DeviceOutputs | RunSkipped:
        there = select_cases(prepared, ran.chosen, "device-framework")
        found = run(there, on)
        if isinstance(found, RunSkipped):
            return found
        failed = ""
        for number in ran.chosen:
            if number not in found.chosen:
                failed = f"does not take there what it takes on the CPU: {found.refused[0]}"
            elif len(found.dtypes[number]) != len(ran.dtypes[number]):
                counts = len(found.dtypes[number]), len(ran.dtypes[number])
                failed = "has {} outputs there, {} on the CPU".format(*counts)
        return DeviceOutputs(found.runtime, _outputs(there, found), found.placement, failed)

    return ComparedModel(_outputs(prepared, ran), on_device)


def _outputs(prepared: PreparedInputs, ran: SourceRun) -> LoadOutput:
    return lambda case, i: load_output(prepared, "out", case, i, ran.dtypes[case][i])
