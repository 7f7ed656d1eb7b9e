"""``--to savedmodel`` as one of the targets that issue a source again."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from converter.byte_sizes import readable_size
from converter.devices.names import parse_tensorflow_device
from converter.events import Progress, Step
from converter.options import Options
from converter.verification.options import verification_of
from converter.verification.report import GraphReport
from converter.write.readback import WeightsReport
from converter.write.savedmodel import folder
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A SavedModel for one device, or for none.

    Attributes:
        source: As it was read.
        artifact: Its files.
        made: What will be written.
    """

    source: Bundle
    artifact: Artifact
    made: folder.SavedModelFolder

    @property
    def bundle(self) -> Bundle:
        """The source, and what is changed and left out."""
        return self.made.bundle

    @property
    def warnings(self) -> Sequence[str]:
        """What was found, and is kept as it is."""
        return self.made.warnings

    def planned(self) -> str:
        """Return how many files there are to write, and how large."""
        return f"{len(self.made.files) + 1} files, {readable_size(self.made.nbytes)}"

    def write(
        self, payload: Path, *, verify: bool, sync: bool
    ) -> Generator[Step | Progress, None, tuple[Path, WeightsReport | None]]:
        """Write the folder; its placements and variables are read back."""
        return folder.write(self.made, self.artifact, payload, verify=verify, sync=sync)

    def compare(self, source: Path, written: Path, options: Options) -> Mapping[str, GraphReport]:
        """Run both in TensorFlow, signature by signature, where it is here."""
        from converter.verification.savedmodel_files import verify_savedmodel

        rewritten = catalog.read(Artifact(written, options.limits), "savedmodel")
        return verify_savedmodel(
            source, self.source, written, rewritten,
            unlike=self.made.unlike, options=verification_of(options),
        )  # fmt: skip

    def record(self, written: Path, reached: str, *, sync: bool) -> None:
        """Write `convert.json` into the folder."""
        folder.record(self.made, self.artifact, written, reached, sync=sync)


def plan(bundle: Bundle, artifact: Artifact, options: Options) -> SavedModel:
    """Decide what becomes of every node; see `folder.plan`."""
    return SavedModel(
        bundle, artifact, folder.plan(bundle, artifact, parse_tensorflow_device(options.device))
    )
