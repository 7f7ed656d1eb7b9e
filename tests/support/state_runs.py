"""Models that keep state between runs, converted with `state="io"` and compared with the source."""

from pathlib import Path

import converter
from converter.cli.app import run
from converter.options import Options

IO = Options(to="onnx", state="io", require="cpu")


def check_states_are_compared(source: Path, out: Path) -> None:
    """Assert that a source's framework agrees, from drawn states and from the first one."""
    (report,) = converter.convert(source, out=out, options=IO).verification.reports
    assert any(output.startswith("present.") for output in report.outputs)
    names = [case.name for case in report.cases]
    assert any("first run" in name for name in names)
    assert not all("first run" in name for name in names)


def convert_unverified(source: Path, out: Path) -> None:
    """Convert a source without a comparison, so that a fault can be planted."""
    options = Options(to="onnx", state="io", verify="none")
    converter.convert(source, out=out, options=options)


def check_kept_state_is_found(source: Path, out: Path, state: str) -> None:
    """Assert that a file whose state is the same after a run as before is found to be wrong."""
    import onnx

    convert_unverified(source, out)
    model = onnx.load(out)
    (node,) = [n for n in model.graph.node if f"present.{state}" in n.output]
    node.op_type = "Identity"
    node.input[:] = [f"past.{state}"]
    del node.attribute[:]
    onnx.save(model, out)
    assert run(["verify", str(source), str(out)]) == 1
