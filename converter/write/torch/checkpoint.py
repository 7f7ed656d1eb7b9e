"""The target ``torch``: a state dict or a checkpoint, as `torch.save` would write it on a device.

Neither torch nor the device is needed. The file holds one flat dict of the model's tensors, under
the names that all targets give them; with ``keep_structure``, what the source held, as far as
torch's restricted unpickler takes it (`structure`). ``convert.json`` in the archive records the
changes; those of names and layouts tensor by tensor.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from converter.byte_sizes import readable_size
from converter.devices.names import TorchDevice, describe_moves, parse_torch_device
from converter.events import Progress, Step
from converter.normalise.groups import select_groups
from converter.normalise.prefixes import strip_prefixes
from converter.options import Options
from converter.write import conversion_record
from converter.write.background import Background
from converter.write.plan import Plan, Writing
from converter.write.readback import WeightsReport, Written, compare
from converter.write.torch.check import check_tensors
from converter.write.torch.keras_weights import map_keras_weights
from converter.write.torch.state_dict import StateDict, build_state_dict
from converter.write.torch.storages import BYTES, Storages
from converter.write.torch.structure import KeptStructure, keep_structure
from formats.artifact import Artifact
from formats.containers.pickle.encoder import Call, dumps
from formats.core.bundle import JSON, Bundle, LeftOut, Normalisation
from formats.core.output import Output
from formats.core.plurals import count
from formats.core.storage import Blocks, File, Span
from formats.core.weights import Tensor
from formats.errors import CorruptError, UnsupportedError, VerificationError
from formats.limits import Limits
from formats.torch import structure as torch_structure
from formats.torch.writer import Archive

if TYPE_CHECKING:
    from converter.lower.graph import Graph

NAME = "checkpoint.pt"
EXTERNAL = ("npu", "privateuseone", "hpu", "maia", "xla")  # kinds that need a package beside torch


@dataclass(slots=True)
class Checkpoint(Plan):
    """A torch file that can be written.

    Attributes:
        bundle: As it will be.
        warnings: What was found and is kept as it is.
        device: For which the file is written.
        storages: That its tensors view.
        archive: Its layout.
        keys: Names of a state dict, in order; None if the structure is kept.
        changes: Name of a tensor → how it differs from its sources.
        source_name: Name of the source.
        limits: For reading the output.
    """

    bundle: Bundle
    warnings: Sequence[str]
    device: TorchDevice
    storages: Storages = field(repr=False)
    archive: Archive = field(repr=False)
    keys: tuple[str, ...] | None
    changes: Mapping[str, JSON]
    source_name: str
    limits: Limits

    def summary(self) -> str:
        """Return what there is to write, in a line."""
        tensors = count("tensor", len(self.storages.views))
        return f"{tensors} for {self.device}, {readable_size(self.archive.nbytes)}"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the file into a folder, and compare each storage with its source on the way.

        Raises:
            StorageError: The disk is full, or fails.
            VerificationError: What was written is not what was to be.
        """
        begin = perf_counter()
        path, blocks, archive = payload / NAME, Blocks(), self.archive
        written, comparison = Written(), None
        with Output(path) as out:
            out.reserve(archive.nbytes)
            if verify and archive.storages:
                comparison = Background(partial(self._compare, path, blocks, written))
            try:
                done = archive.start
                for position in archive.write(out, blocks):
                    written.advance(max(position - done, 0))
                    done = max(position, done)
                    yield Progress("written", position, archive.nbytes)
                if sync:
                    out.sync()
            finally:
                written.end()
                if comparison is not None:
                    comparison.wait()
        if comparison is None:
            return path, None
        report = comparison.result()
        self._read_again(path)
        text = f"{report}; all for the device"
        yield Step("verified", text, perf_counter() - begin)
        return path, report

    def record(self, written: Path, verification: Mapping[str, JSON], *, sync: bool) -> None:
        """Write what was done into the archive.

        Raises:
            StorageError: The disk is full, or fails.
        """
        more: dict[str, JSON] = {}
        if self.changes:
            more["tensors"] = dict(self.changes)
        if self.keys is not None and self.bundle.metadata.user:
            more["user"] = dict(self.bundle.metadata.user)
        content = conversion_record.encode_record(
            self.source_name,
            {"format": self.bundle.metadata.format, "device": str(self.device)},
            self.bundle.metadata,
            self.warnings,
            verification["reached"],
            more,
        )
        self.archive.append(written, conversion_record.FILE, content, sync=sync)

    def _compare(self, path: Path, blocks: Blocks, written: Written) -> WeightsReport:
        """Compare storage by storage, which all tensors are views of."""
        file = File(path)
        pairs = zip(self.archive.contents, self.archive.storages, strict=True)
        source: dict[str, Tensor] = {}
        output: dict[str, Tensor] = {}
        for number, (content, record) in enumerate(pairs):
            source[f"storage {number}"] = content.tensor
            run = Span(file, record.start, record.size)
            output[f"storage {number}"] = Tensor.contiguous(BYTES, (record.size,), run)
        report = compare(source, output, with_digests=False, blocks=blocks, written=written)
        return report._replace(tensors=len(self.storages.views))

    def _read_again(self, path: Path) -> None:
        found = torch_structure.read(Artifact(path, self.limits)).value
        check_tensors(self.storages.describe(self.archive.storages), found)
        if self.keys is not None:
            held = tuple(found) if isinstance(found, dict) else ()
            if held != self.keys:
                raise VerificationError("the file has other names than were written", where=path)


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> Checkpoint:
    """Decide what becomes of every tensor, without writing anything.

    Args:
        bundle: The source as read.
        graphs: None.
        artifact: The source's files.
        options: ``device``, ``keep_structure``, ``include`` and ``strip_prefix``.

    Raises:
        UsageError: torch knows no such device.
        UnsupportedError: torch cannot hold what the source holds.
        CorruptError: The source is damaged.
    """
    del graphs  # a state dict computes nothing
    device = parse_torch_device(options.device)
    storages = Storages(device, _recorded_crcs(artifact))
    if options.keep_structure:
        return _plan_structure(bundle, artifact, storages)
    return _plan_state_dict(bundle, artifact, storages, options)


def _plan_state_dict(
    bundle: Bundle, artifact: Artifact, storages: Storages, options: Options
) -> Checkpoint:
    """Plan a state dict."""
    random = {
        id(t.data)
        for t in bundle.leftovers.get("training", {}).values()
        if _may_be_generator_state(t)
    }
    before = select_groups(bundle, options.include)
    renamed = strip_prefixes(before, options.strip_prefix)
    own = tuple(renamed.weights)[: len(bundle.weights)]
    stripped = _drop_non_persistent(renamed)
    mapped, changes, unmapped = map_keras_weights(stripped, own)
    if not mapped.weights:
        raise UnsupportedError("holds no tensors", where=artifact.path)
    generators = frozenset(n for n, t in mapped.weights.items() if id(t.data) in random)
    made = build_state_dict(mapped, storages, generators)
    storages.settle()
    pickle = dumps(_add_module_versions(made, bundle, before, renamed))
    about = mapped.metadata
    apart = [
        Normalisation("tensors kept apart", 1, f"{name}: {why}")
        for name, why in made.kept_apart.items()
    ]
    left_out = list(about.left_out)
    if mapped.topology is not None:
        kind = mapped.topology.kind
        left_out.append(LeftOut(f"graph ({kind})", "a state dict holds weights only"))
    left_out += [LeftOut(name, "a state dict holds weights only") for name in mapped.assets]
    output = replace(
        mapped,
        metadata=replace(
            about,
            left_out=tuple(left_out),
            normalisations=(
                *about.normalisations,
                *_describe_layouts(changes),
                *_describe_moves(about.devices, storages.device, made.stayed),
                *apart,
            ),
        ),
    )
    keys = tuple(str(key) for key in made.value.pairs or ())
    warnings = _warnings(storages) + ((unmapped,) if unmapped else ())
    return Checkpoint(
        output, warnings, storages.device, storages,
        Archive(pickle, storages.contents()),
        keys, changes, artifact.name, artifact.limits,
    )  # fmt: skip


def _plan_structure(bundle: Bundle, artifact: Artifact, storages: Storages) -> Checkpoint:
    """Plan a checkpoint of the source's own structure."""
    if bundle.metadata.format != "torch":
        raise UnsupportedError(
            f"the source is {bundle.metadata.format}, which keep_structure=True does not take",
            expected="one file of torch.save",
            where=artifact.path,
            hint="Without it, the weights become a state dict",
        )
    found = torch_structure.read(artifact)
    made = keep_structure(found.value, storages, artifact.limits)
    storages.settle()
    pickle = dumps(made.value)
    if not storages.views:
        why = f"; left out: {made.left_out[0].reason}" if made.left_out else ""
        raise UnsupportedError(f"holds no tensors that can be kept{why}", where=artifact.path)
    left_out = list(made.left_out)
    # Bytes behind the last storage and the like, which the first reading named.
    left_out += [x for x in bundle.metadata.left_out if x.name == artifact.name]
    metadata = replace(
        bundle.metadata,
        left_out=tuple(left_out),
        normalisations=(
            *_describe_moves(made.devices, storages.device, made.stayed),
            *_describe_simplifications(made),
        ),
    )
    return Checkpoint(
        replace(bundle, metadata=metadata), _warnings(storages), storages.device, storages,
        Archive(pickle, storages.contents()), None, {}, artifact.name, artifact.limits,
    )  # fmt: skip


def _recorded_crcs(artifact: Artifact) -> dict[tuple[int, int, int], int]:
    """Return the CRCs of storages that a zip archive records; they are not computed again."""
    if not artifact.is_file or artifact.zip is None:
        return {}
    found = {}
    for name, member in artifact.zip.members.items():
        if member.is_stored and "data/" in name and member.size:
            with suppress(CorruptError, UnsupportedError):  # damaged, and perhaps never read
                run = member.raw()
                found[id(run.storage), run.offset, run.length] = member.crc
    return found


def _may_be_generator_state(tensor: Tensor) -> bool:
    return tensor.dtype.name == "uint8"


def _drop_non_persistent(bundle: Bundle) -> Bundle:
    """Leave out tensors that a module's ``state_dict()`` does not have."""
    notes = bundle.metadata.tensor_notes
    left_out = list(bundle.metadata.left_out)
    weights = {}
    for name, tensor in bundle.weights.items():
        note = notes.get(name, {})
        if note.get("persistent") is False:
            left_out.append(LeftOut(name, "a buffer that is not persistent: no state dict has it"))
        elif note.get("attribute") is True:
            left_out.append(LeftOut(name, "an attribute of a module: no state dict has it"))
        else:
            weights[name] = tensor
    if len(weights) == len(bundle.weights):
        return bundle
    metadata = replace(bundle.metadata, left_out=tuple(left_out))
    return replace(bundle, weights=weights, metadata=metadata)


def _describe_moves(
    devices: Mapping[str, int], device: TorchDevice, stayed: Sequence[str]
) -> list[Normalisation]:
    """Describe the tensors that were on other devices."""
    elsewhere = sum(n for name, n in devices.items() if name not in ("meta", str(device)))
    elsewhere -= len(stayed) if str(device) != "cpu" else 0
    found = []
    if elsewhere:
        before = {n: c for n, c in devices.items() if n not in ("meta", str(device))}
        found.append(Normalisation("device tags", elsewhere, describe_moves(before, device)))
    if stayed and str(device) != "cpu":
        listed = ", ".join(stayed[:5]) + (", …" if len(stayed) > 5 else "")
        detail = f"states of random generators, which torch takes from the CPU only: {listed}"
        found.append(Normalisation("tensors kept on the CPU", len(stayed), detail))
    return found


def _describe_simplifications(kept: KeptStructure) -> list[Normalisation]:
    why = "torch.load(weights_only=True) would refuse the former"
    objects = "device object set to the target"
    return [
        Normalisation(what, count, "" if what == objects else why)
        for what, count in kept.simplified.items()
    ]


def _describe_layouts(changes: Mapping[str, JSON]) -> list[Normalisation]:
    as_torch = [c for c in changes.values() if isinstance(c, dict) and "reason" not in c]
    found = []
    if as_torch:
        detail = "convert.json in the archive tells what became of each"
        what = "weights named and laid out as in torch.nn"
        found.append(Normalisation(what, len(as_torch), detail))
    if len(changes) > len(as_torch):
        detail = "torch.nn has no such layer"
        what = "weights named and laid out as in Keras"
        found.append(Normalisation(what, len(changes) - len(as_torch), detail))
    return found


def _warnings(storages: Storages) -> tuple[str, ...]:
    device = storages.device
    found = []
    if device.kind in EXTERNAL:
        found.append(f"torch loads {device} only where a package has brought that backend")
    if not device.has_storages and storages.shared:
        found.append(
            f"{storages.shared} storages are shared, and torch makes tensors of {device.kind} "
            "one by one: they will be tied no more"
        )
    return tuple(found)


def _add_module_versions(made: StateDict, bundle: Bundle, before: Bundle, after: Bundle) -> Call:
    """Add the versions of modules that the source recorded to a state dict."""
    user = bundle.metadata.user
    removed = {
        old[: len(old) - len(new)]
        for old, new in zip(before.weights, after.weights, strict=False)
        if old.endswith(new)
    }
    if len(before.weights) != len(after.weights) or len(removed) != 1:
        return made.value
    (prefix,) = removed
    container, _, rest = prefix.partition(".")
    holder = user.get(container)
    versions = holder.get("_metadata") if isinstance(holder, dict) else None
    if versions is None:
        versions, rest = user.get("_metadata"), prefix
    if not isinstance(versions, dict):
        return made.value
    kept: dict[object, object] = {}
    for name, entry in versions.items():
        short = f"{name}.".removeprefix(rest).removesuffix(".")
        if isinstance(entry, dict) and f"{name}.".startswith(rest) and short not in kept:
            kept[short] = {key: v for key, v in entry.items() if type(v) in (int, bool, str)}
    if kept:
        made.value.state = {"_metadata": Call(made.value.function, (), kept)}
    return made.value
