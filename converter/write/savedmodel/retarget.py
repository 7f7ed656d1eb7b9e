"""The target ``savedmodel``: the same SavedModel, placed on one device or on none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from converter.byte_sizes import readable_size
from converter.devices.names import parse_tensorflow_device
from converter.options import Options
from converter.write.plan import Plan, Writing
from converter.write.savedmodel import folder
from formats.artifact import Artifact
from formats.core.bundle import JSON, Bundle

if TYPE_CHECKING:
    from converter.lower.graph import Graph


class SavedModel(Plan):
    """A SavedModel that can be written.

    Attributes:
        bundle: The source, and what is changed and left out.
        warnings: What was found, and is kept as it is.
    """

    def __init__(self, made: folder.SavedModelFolder, artifact: Artifact) -> None:
        self.bundle, self.warnings = made.bundle, made.warnings
        self._made, self._artifact = made, artifact

    def summary(self) -> str:
        """Return how many files there are to write, and how large they are."""
        return f"{len(self._made.files) + 1} files, {readable_size(self._made.nbytes)}"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the folder; its placements and variables are read back."""
        return folder.write(self._made, self._artifact, payload, verify=verify, sync=sync)

    def record(self, written: Path, verification: Mapping[str, JSON], *, sync: bool) -> None:
        """Write `convert.json` into the folder."""
        reached = str(verification["reached"])
        folder.record(self._made, self._artifact, written, reached, sync=sync)


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> SavedModel:
    """Decide what becomes of every node; see `folder.plan`."""
    del graphs  # the program is the source's own
    device = parse_tensorflow_device(options.device)
    return SavedModel(folder.plan(bundle, artifact, device), artifact)
