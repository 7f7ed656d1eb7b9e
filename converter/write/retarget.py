"""Targets that are the source's own artifact, issued again for a device: SavedModel and torch's.

No graph is lowered for them, and no framework is needed: each target has a `plan`, which decides
what becomes of every part of the source, and what it returns writes, compares and records itself.
"""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from converter.devices.names import parse_tensorflow_device, parse_torch_device
from converter.events import Compared, Progress, Step
from converter.filesystem.atomic_output import check_target, publish, staging, sync_tree
from converter.options import Options
from converter.verification.report import GraphReport
from converter.verification.verdicts import check_reached, judged
from converter.write.readback import WeightsReport
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import VerificationError

PLANNERS = {  # target -> module with its ``plan(bundle, artifact, options)``
    "savedmodel": "converter.write.savedmodel.retarget",
    "torch": "converter.write.torch.checkpoint",
    "torchscript": "converter.write.torch.script",
    "pt2": "converter.write.torch.exported",
}


def check_device(options: Options) -> None:
    """Refuse a device that the target has no word for, before anything is read.

    Raises:
        UsageError: It has none.
    """
    if options.to == "savedmodel":
        parse_tensorflow_device(options.device)
    else:
        parse_torch_device(options.device)


class Reissue(Protocol):
    """What will be written.

    Attributes:
        bundle: As it will be; its metadata tells what is changed and what is left out.
        warnings: What was found, and is kept as it is.
    """

    @property
    def bundle(self) -> Bundle: ...  # noqa: D102

    @property
    def warnings(self) -> Sequence[str]: ...  # noqa: D102

    def planned(self) -> str:
        """Return what there is to write, in a line."""
        ...

    def write(
        self, payload: Path, *, verify: bool, sync: bool
    ) -> Generator[Step | Progress, None, tuple[Path, WeightsReport | None]]:
        """Write it into a folder, and compare what is written; return the file or folder."""
        ...

    def compare(self, source: Path, written: Path, options: Options) -> Mapping[str, GraphReport]:
        """Run both where that can be done; a report by signature, or none where nothing runs."""
        ...

    def record(self, written: Path, reached: str, *, sync: bool) -> None:
        """Write down what was done, where the format has a place for it."""
        ...


class Evidence(NamedTuple):
    """What comparisons of an output found: of its weights, and of its graphs by signature."""

    weights: WeightsReport | None
    graphs: Mapping[str, GraphReport]


def plan(bundle: Bundle, artifact: Artifact, options: Options) -> Reissue:
    """Decide what becomes of every part of a source.

    Raises:
        UnsupportedError: It is no source for this target, or cannot be on one device.
        CorruptError: It is damaged.
    """
    made: Reissue = import_module(PLANNERS[options.to]).plan(bundle, artifact, options)
    return made


def steps(
    made: Reissue, source: Path, artifact: Artifact, target: Path, options: Options
) -> Iterator[Step | Progress | Compared | Evidence]:
    """Write what is planned, yielding each step, and last what comparisons found.

    Raises:
        StorageError: The output could not be written.
        VerificationError: The output is not the source, or less was verified than required.
    """
    check_target(target, force=options.overwrite)
    with staging(target) as folder:
        payload = folder / "payload"
        payload.mkdir()
        sync = options.sync or os.path.lexists(target)
        written, report = yield from made.write(payload, verify=options.verify != "none", sync=sync)
        compared: Mapping[str, GraphReport] = {}
        if options.verify not in ("none", "weights"):
            compared = made.compare(source, written, options)
        if options.require and not compared and (report is None or not report.tensors):
            raise VerificationError(f"--require {options.require}: there is no tensor to compare")
        for name, found in compared.items():
            yield Compared(name, found.plain())
            yield from judged(found, name if len(compared) > 1 else "")
        for one in compared.values() or (None,):
            check_reached(options, report, one)
        made.record(written, _reached(report, compared), sync=sync)
        for file in artifact.opened.values():
            file.check_unchanged()
        if sync:
            sync_tree(payload)
        publish(written, target, force=options.overwrite, sync=sync)
    yield Evidence(report, compared)


def _reached(report: WeightsReport | None, compared: Mapping[str, GraphReport]) -> str:
    if compared and all(one.reached for one in compared.values()):
        return "device" if all(one.reached == "device" for one in compared.values()) else "cpu"
    return "none" if report is None else "weights"
