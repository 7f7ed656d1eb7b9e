"""Torch programs that are moved to a device, and the records of their archives."""

import io
import zipfile

from converter.devices.torch.programs import move_program
from formats.artifact import Artifact


def move_script(source, device, folder, name="moved.pt", kind="torchscript"):
    path = folder / name
    path.unlink(missing_ok=True)
    move_program(Artifact(source), kind, device, path)
    return path


def move_export(source, device, folder, name="moved.pt2"):
    return move_script(source, device, folder, name, "exported_program")


def records(archive):
    """Return the records of an archive, a path or bytes, by their names below its first folder."""
    with zipfile.ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive) as opened:
        assert opened.testzip() is None
        return {n.partition("/")[2] or n: opened.read(n) for n in opened.namelist()}
