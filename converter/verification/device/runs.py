"""The two models of a comparison on a device: who runs each there, and on which files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from converter.child.process import Allowance
from converter.verification.compare import Array
from converter.verification.device.compare import Outputs, Party, Ran, beside
from converter.verification.device.placement import On
from converter.verification.runners import NoRun, Prepared, SourceRun, output, run_onnx

FrameworkRun = Callable[[Prepared, On], SourceRun | NoRun]


def framework_party(prepared: Prepared, ran: SourceRun, run: FrameworkRun) -> Party:
    """Return a model that its framework runs.

    Args:
        prepared: The inputs, with what it computed on the CPU beside them.
        ran: What that was.
        run: Runs it on a device.
    """

    def on_device(on: On) -> Ran | NoRun:
        there = beside(prepared, ran.chosen, "device-framework")
        found = run(there, on)
        if isinstance(found, NoRun):
            return found
        failed = ""
        for number in ran.chosen:
            if number not in found.chosen:
                failed = f"does not take there what it takes on the CPU: {found.refused[0]}"
            elif len(found.dtypes[number]) != len(ran.dtypes[number]):
                counts = len(found.dtypes[number]), len(ran.dtypes[number])
                failed = "has {} outputs there, {} on the CPU".format(*counts)
        return Ran(found.runtime, _outputs(there, found), found.placement, failed)

    return Party(_outputs(prepared, ran), on_device)


def _outputs(prepared: Prepared, ran: SourceRun) -> Outputs:
    return lambda case, i: output(prepared, "out", case, i, ran.dtypes[case][i])


def onnx_party(
    model: Path,
    prepared: Prepared,
    chosen: tuple[int, ...],
    outputs: Mapping[str, str],
    allowance: Allowance,
    side: str = "onnx",
) -> Party:
    """Return a graph that onnxruntime runs.

    Args:
        model: The ONNX file.
        prepared: The inputs, with what it computed on the CPU beside them.
        chosen: Numbers of the cases that it ran.
        outputs: Name → dtype.
        allowance: For each child.
        side: What its files on the CPU are called.
    """
    dtypes = [*outputs.values()]

    def on_device(on: On) -> Ran | NoRun:
        there = beside(prepared, chosen, f"device-{side}")
        found = run_onnx(model, there, chosen, outputs, allowance, on=on)
        if found.no_device:
            text = f"onnxruntime {found.runtime.version}: {found.no_device}"
            return NoRun(text, is_missing=False, lacks_device=True, placement=found.placement)
        failed = found.refused
        for number, said in found.errors.items():
            failed = failed or f"{prepared.cases[number].name}: {said}"
        if failed:
            failed = f"onnxruntime fails there: {failed}"

        def values(case: int, i: int) -> Array:
            return output(there, "onnx", case, i, dtypes[i])

        return Ran(found.runtime, values, found.placement, failed)

    return Party(lambda case, i: output(prepared, side, case, i, dtypes[i]), on_device)
