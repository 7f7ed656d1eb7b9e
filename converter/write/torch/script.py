"""``--to torchscript``: the source's own archive, moved to a device; needs neither torch nor it."""

from collections.abc import Mapping
from pathlib import Path

from converter.devices.torch.programs import check_device
from converter.devices.torch.script import move
from converter.options import Options
from converter.verification.report import GraphReport
from converter.write.torch import archive as archives
from converter.write.torch.archive import MovedProgram, target_device
from formats.artifact import Artifact
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import UnsupportedError
from formats.torch import script as torch_script

NAME = "model.pt"


def plan(bundle: Bundle, artifact: Artifact, options: Options) -> MovedProgram:
    """Decide what becomes of every member of a TorchScript archive. No weight is read.

    Raises:
        UsageError: ``--device`` names none.
        UnsupportedError: The source is no TorchScript archive, or one that cannot be moved.
        CorruptError: It is damaged.
    """
    if bundle.metadata.format != "torchscript":
        raise UnsupportedError(
            f"--to torchscript from {bundle.metadata.format}",
            expected="a TorchScript archive",
            where=artifact.path,
        )
    device = target_device(options, "TorchScript")

    def run(source: Path, written: Path, options: Options) -> Mapping[str, GraphReport]:
        from converter.verification.torch_programs import run_both  # it brings numpy

        known = _inputs(bundle, artifact)
        return run_both(source, written, bundle, device, known, options)

    return archives.plan(
        bundle,
        artifact,
        device,
        move(artifact, device),
        name=NAME,
        read=torch_script.read,
        check=lambda output: check_device(output, "torchscript", device),
        run=run,
    )


def _inputs(bundle: Bundle, artifact: Artifact) -> tuple[TensorSpec, ...]:
    """Return what is recorded of the inputs: of a trace, names, types and sizes of its example."""
    declared = next((s.inputs for s in bundle.signatures if s.name == "forward"), ())
    traced = torch_script.traced_inputs(artifact)
    if len(traced) != len(declared):
        return declared
    pairs = zip(declared, traced, strict=True)
    return tuple(TensorSpec(spec.name, dtype, shape) for spec, (dtype, shape) in pairs)
