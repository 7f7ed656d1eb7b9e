"""Move a torch program to a device: TorchScript archives and exported programs alike."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from converter.devices.names import TorchDevice, parse_torch_device
from converter.devices.torch import exported, script
from converter.devices.torch.members import MemberChanges, rewrite_archive
from converter.devices.torch.tags import KEPT
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.output import Output
from formats.core.storage import Blocks
from formats.errors import VerificationError
from formats.torch import export as torch_export
from formats.torch import script as torch_script


class ProgramFormat(NamedTuple):
    """How programs of a format are moved and read."""

    move: Callable[[Artifact, TorchDevice], MemberChanges]
    read: Callable[[Artifact], Bundle]


FORMATS: Mapping[str, ProgramFormat] = {  # kind of topology -> format
    "torchscript": ProgramFormat(script.move, torch_script.read),
    "exported_program": ProgramFormat(exported.move, torch_export.read),
}


def move_program(artifact: Artifact, kind: str, device: str, path: Path) -> None:
    """Write a program, moved to a device, to a file that does not exist yet.

    Args:
        artifact: The program's archive.
        kind: Of its topology, a key of `FORMATS`.
        device: In torch's spelling.
        path: The file.

    Raises:
        UsageError: There is no such device.
        UnsupportedError: The program cannot be moved.
        CorruptError: It is damaged.
        StorageError: The copy cannot be written.
    """
    changes = FORMATS[kind].move(artifact, parse_torch_device(device))
    with Output(path) as out:
        for _ in out.append(rewrite_archive(artifact, changes.replaced), Blocks()):
            pass


def check_device(output: Artifact, kind: str, device: TorchDevice) -> None:
    """Read a moved program again, and check that it names no other device.

    Raises:
        VerificationError: It names one.
    """
    left = FORMATS[kind].move(output, device)
    if left.replaced:
        raise VerificationError(
            f"the output still names another device than {device}", where=min(left.replaced)
        )
    wrong = sorted(set(FORMATS[kind].read(output).metadata.devices) - {str(device), KEPT})
    if wrong:
        raise VerificationError(f"the output still has tensors on {wrong[0]}", expected=str(device))
