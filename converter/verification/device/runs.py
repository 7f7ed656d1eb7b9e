"""The two models of a comparison on a device: who runs each there, and on which files."""

from collections.abc import Callable

from converter.verification.device.compare import Outputs, Party, Ran, beside
from converter.verification.device.placement import On
from converter.verification.runners import NoRun, Prepared, SourceRun, output

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
