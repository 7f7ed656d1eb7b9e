"""Both models on a device and on the CPU: the four-way comparison, and who was really there.

Equivalence is decided on the CPU, where both runtimes compute alike. On the device the same inputs
are run once more by both, and held against what was computed on the CPU, and against each other:
float32 differs by roundings only, for products are not rounded to TF32, and so the same tolerance
holds (see `converter.verification.compare`). With ``allow_tf32`` they are, to float16's eleven bits
of mantissa, and what is noise of float16 is noise.

A runtime that has no such device is not run there. One that was given the device, took the model
and computed elsewhere has failed, however good its numbers are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from converter.devices.names import parse_device
from converter.verification.compare import Array, Tolerance, coarsest_dtype, compare, merge_measures
from converter.verification.placement import DeviceRequest, Placement
from converter.verification.report import DeviceReport, DeviceRun, Measure, Runtime, Status
from converter.verification.runners import PreparedInputs, RunSkipped, SourceRun, load_output

TF32 = "float16"  # the dtype of TF32's mantissa
SOURCE, CONVERTED = "source", "converted"
PAIRS = (
    ((CONVERTED, "device"), (CONVERTED, "CPU")),
    ((CONVERTED, "device"), (SOURCE, "CPU")),
    ((SOURCE, "device"), (SOURCE, "CPU")),
    ((CONVERTED, "device"), (SOURCE, "device")),
)
FrameworkRun = Callable[[PreparedInputs, DeviceRequest], SourceRun | RunSkipped]
LoadOutput = Callable[[int, int], Array]  # of a case's number and an output's


@dataclass(frozen=True, slots=True)
class DeviceOutputs:
    """What one model made of the cases on the device.

    Attributes:
        runtime: Who ran it.
        outputs: What came out.
        placement: Where its parts were, as far as the runtime said.
        failed: Why it does not compute there what it computes on the CPU, or empty.
    """

    runtime: Runtime
    outputs: LoadOutput
    placement: Placement | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """One of both models.

    Attributes:
        cpu: What it computed there.
        run: Runs it on a device, on the same cases.
    """

    cpu: LoadOutput
    run: Callable[[DeviceRequest], DeviceOutputs | RunSkipped]


@dataclass(frozen=True, slots=True)
class ComparedCases:
    """What is compared.

    Attributes:
        outputs: Names of the outputs, in order.
        cases: Numbers and names of the cases that both have run on the CPU.
        tolerance: What is allowed on the CPU.
        allow_cpu_nodes: How many parts of a model may be on the CPU.
        skipped: Numbers of outputs that differ from run to run.
    """

    outputs: Sequence[str]
    cases: Mapping[int, str]
    tolerance: Tolerance
    allow_cpu_nodes: int = 0
    skipped: frozenset[int] = frozenset()


def request_device(device: str | None, *, allow_tf32: bool) -> DeviceRequest | None:
    """Return where both models shall run besides; None where nothing but the CPU was asked for.

    Raises:
        UsageError: It is no device's name.
    """
    if device in (None, "none"):
        return None
    found = parse_device(device or "")
    return None if found.is_host else DeviceRequest(found, allow_tf32)


def verify_on_device(
    source: ComparedModel, converted: ComparedModel, question: ComparedCases, on: DeviceRequest
) -> DeviceReport:
    """Run both models on a device, and compare all four results.

    Args:
        source: The source, which has run on the CPU.
        converted: What it was converted to, likewise.
        question: What is compared.
        on: Which device.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
    """
    begin = perf_counter()
    allowed = question.allow_cpu_nodes
    ours = converted.run(on)
    there = _side(CONVERTED, ours, allowed)
    report = DeviceReport(
        there.status, there.reason, str(on.device), on.allow_tf32, allowed,
        DeviceRun("not run", "the converted model is not run there"), there,
    )  # fmt: skip
    if isinstance(ours, RunSkipped) or ours.failed:
        return replace(report, seconds=perf_counter() - begin)
    theirs = source.run(on)
    report = replace(report, source=_side(SOURCE, theirs, allowed))
    results = {(SOURCE, "CPU"): source.cpu, (CONVERTED, "CPU"): converted.cpu}
    results[CONVERTED, "device"] = ours.outputs
    if isinstance(theirs, DeviceOutputs) and not theirs.failed:
        results[SOURCE, "device"] = theirs.outputs
    pairs = {
        f"{' on the '.join(a)} ~ {' on the '.join(b)}": _measured(
            results[a], results[b], question, on
        )
        for a, b in PAIRS
        if a in results and b in results
    }
    problems = [*_fallen(report), *_different(pairs)]
    if problems:
        report = replace(report, status="failed", reason=problems[0])
    return replace(report, pairs=pairs, seconds=perf_counter() - begin)


def _side(name: str, ran: DeviceOutputs | RunSkipped, allowed: int) -> DeviceRun:
    # A source that its own framework does not run there proves nothing, for or against.
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


def _fallen(report: DeviceReport) -> Iterable[str]:
    """Yield which sides were not where they should be."""
    for name, side in ((CONVERTED, report.converted), (SOURCE, report.source)):
        if side.status == "failed":
            yield f"the {name} model: {side.reason}"


def _different(pairs: Mapping[str, Mapping[str, Measure]]) -> Iterable[str]:
    """Yield in which pairs outputs differ."""
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


def _measured(
    found: LoadOutput, expected: LoadOutput, question: ComparedCases, on: DeviceRequest
) -> dict[str, Measure]:
    tolerance = question.tolerance
    if on.allow_tf32:
        tolerance = replace(tolerance, precision=coarsest_dtype({tolerance.precision, TF32}))
    return merge_measures({
        name: [
            compare(name, expected(number, i), found(number, i), tolerance, case)
            for number, case in question.cases.items()
        ]
        for i, name in enumerate(question.outputs)
        if i not in question.skipped
    })  # fmt: skip


def select_cases(prepared: PreparedInputs, chosen: Sequence[int], name: str) -> PreparedInputs:
    """Return the same inputs in a folder of their own, in which only those cases are run."""
    folder = prepared.folder / name
    folder.mkdir()
    for number in chosen:
        for i, array in enumerate(prepared.cases[number].arrays):
            np.save(folder / f"in-{number}-{i}.npy", array)
    groups = tuple((number,) for number in chosen)
    return PreparedInputs(folder, prepared.names, prepared.cases, groups)


def compared_model(prepared: PreparedInputs, ran: SourceRun, run: FrameworkRun) -> ComparedModel:
    """Return a model that its framework runs.

    Args:
        prepared: The inputs, with what it computed on the CPU beside them.
        ran: What that was.
        run: Runs it on a device.
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
