"""``--to torchscript``: the source's own archive, moved to a device; needs neither torch nor it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from converter.devices.torch.programs import check_device
from converter.devices.torch.script import move
from converter.options import Options
from converter.write.torch import archive as archives
from converter.write.torch.archive import MovedProgram, target_device
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import UnsupportedError
from formats.torch import script as torch_script

if TYPE_CHECKING:
    from converter.lower.graph import Graph

NAME = "model.pt"


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> MovedProgram:
    """Decide what becomes of every member of a TorchScript archive. No weight is read.

    Raises:
        UsageError: ``--device`` names none.
        UnsupportedError: The source is no TorchScript archive, or one that cannot be moved.
        CorruptError: It is damaged.
    """
    del graphs  # the program is the source's own
    if bundle.metadata.format != "torchscript":
        raise UnsupportedError(
            f"--to torchscript from {bundle.metadata.format}",
            expected="a TorchScript archive",
            where=artifact.path,
        )
    device = target_device(options, "TorchScript")
    return archives.plan(
        bundle,
        artifact,
        device,
        move(artifact, device),
        name=NAME,
        read=torch_script.read,
        check=lambda output: check_device(output, "torchscript", device),
    )
