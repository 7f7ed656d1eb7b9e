"""What a target promises: a plan of the output, which can be written, and recorded in it."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from converter.events import Progress, Step
from converter.write.readback import WeightsReport
from formats.core.bundle import JSON, Bundle

if TYPE_CHECKING:
    from converter.lower.graph import Graph

Writing = Generator[Step | Progress, None, tuple[Path, WeightsReport | None]]


class GraphFile(NamedTuple):
    """An ONNX file that was written, and what it is to be compared with.

    Attributes:
        graph: What it holds.
        path: The file that computes what the source does, in full precision.
        reduced: The file of reduced precision that is the output, or None.
        emulated: The same graph in float32, rounded at each node, for CPUs, which have no kernels
            of that precision; None where outputs are not compared.
        program: The exported program that is the output, made from ``path``; None where the output
            is an ONNX file.
    """

    graph: "Graph"
    path: Path
    reduced: Path | None = None
    emulated: Path | None = None
    program: Path | None = None


class Digests(NamedTuple):
    """Digests that are taken while an output is written.

    Attributes:
        source: Of all files of the source.
        tensors: Of each tensor's bytes, by name.
    """

    source: str
    tensors: Mapping[str, str]


class Plan(ABC):
    """What will be written.

    Attributes:
        bundle: The model as it will be; its metadata says what is changed and what is left out.
        warnings: What a person should know before it is written.
        folder_reason: Why the output is a folder where its name says a file, or "".
    """

    bundle: Bundle
    warnings: Sequence[str]
    folder_reason: str = ""

    @abstractmethod
    def summary(self) -> str:
        """Return what there is to write, in a line."""

    def settle(self, output: Path) -> None:
        """Learn the path of the output, whose name may say whether it is a file or a folder."""
        del output

    @abstractmethod
    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the output into an empty folder, and compare its weights with the source's.

        Args:
            payload: The folder.
            verify: Whether to read what was written again, and to compare it.
            sync: Wait until the bytes are on the disk.

        Returns:
            The file or folder that is the output, and what the comparison of weights found.

        Raises:
            StorageError: It cannot be written.
            VerificationError: What was written is not what was planned.
        """

    def graph_files(self) -> Sequence[GraphFile]:
        """Return the ONNX files that were written, the default one first."""
        return ()

    def record(
        self, written: Path, verification: Mapping[str, JSON], *, sync: bool
    ) -> Digests | None:
        """Record in the output how far it was verified, where its format has a place for that.

        Args:
            written: As `write` returned it.
            verification: As manifests have it.
            sync: Wait until the bytes are on the disk.

        Returns:
            The digests that were taken on the way, where there are any.
        """
        del written, verification, sync
        return None
