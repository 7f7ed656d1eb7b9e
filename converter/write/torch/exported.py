"""``--to pt2``: the source's own archive of ``torch.export``, moved to a device without either."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from converter.devices.torch.exported import move
from converter.devices.torch.programs import check_device
from converter.options import Options
from converter.write.torch import archive as archives
from converter.write.torch.archive import MovedProgram, target_device
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import UnsupportedError
from formats.torch import export as torch_export

if TYPE_CHECKING:
    from converter.lower.graph import Graph

NAME = "model.pt2"


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> MovedProgram:
    """Decide what becomes of every member of an exported program. No weight is read.

    Raises:
        UsageError: ``--device`` names none.
        UnsupportedError: The source is no exported program, or one that cannot be moved.
        CorruptError: It is damaged.
    """
    del graphs  # the program is the source's own
    if bundle.metadata.format != "torch-export":
        raise UnsupportedError(
            f"--to pt2 from {bundle.metadata.format}",
            expected="an archive of torch.export",
            where=artifact.path,
        )
    device = target_device(options, "exported")
    return archives.plan(
        bundle,
        artifact,
        device,
        move(artifact, device),
        name=NAME,
        read=torch_export.read,
        check=lambda output: check_device(output, "exported_program", device),
    )
