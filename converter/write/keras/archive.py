"""The target ``keras``: a `.keras` file that the current Keras loads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from converter.child.trust import Trusted
from converter.events import Progress, Step
from converter.lower.keras.lowering import model_of
from converter.lower.keras.weight_mapping import map_weights
from converter.lower.unsupported import Finding, report
from converter.options import Options
from converter.version import VERSION
from converter.write.keras import config_values
from converter.write.keras.configuration import Configuration
from converter.write.keras.custom_layers import find_custom_layers
from converter.write.keras.tensorflow_ops.rewriting import replace_tensorflow_calls
from converter.write.keras.training import compile_config
from converter.write.keras.weight_paths import Store
from converter.write.plan import Plan, Writing
from converter.write.readback import compare
from formats import catalog
from formats.artifact import Artifact
from formats.containers.hdf5 import writer as hdf5_writer
from formats.core.bundle import Bundle
from formats.core.plurals import count
from formats.core.storage import Blocks
from formats.core.weights import Tensor
from formats.errors import VerificationError
from formats.keras import writer as keras_archive

if TYPE_CHECKING:
    from converter.lower.graph import Graph

NAME = "model.keras"


@dataclass(frozen=True, slots=True)
class KerasFile:
    """A `.keras` file that can be written.

    Attributes:
        config: The content of ``config.json``.
        variables: Path in the weight store → tensor.
        changed: How many of them differ in layout from the source.
        notes: Small differences of the current Keras, and what is left out.
        user: The user's metadata in the source.
    """

    config: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, Tensor] = field(repr=False)
    changed: int
    notes: tuple[str, ...] = ()
    user: Mapping[str, Any] = field(default_factory=dict)


def plan_file(bundle: Bundle, trust: Sequence[Trusted] = ()) -> KerasFile:
    """Return the file that a model becomes. No weight is read.

    Args:
        bundle: The model.
        trust: The user's modules whose classes may be in it.

    Raises:
        UnsupportedError: The current Keras cannot express it; all obstacles are listed.
        CorruptError: The configuration is malformed.
    """
    model, lacking = replace_tensorflow_calls(model_of(bundle), bundle, trust)
    content = bundle.topology.content if bundle.topology is not None else None
    class_name = str(content.get("class_name")) if isinstance(content, dict) else ""
    own = find_custom_layers(model, bundle, trust)
    configuration = Configuration(model, class_name, lacking, own)
    store = Store(model, map_weights(model, bundle.weights), bundle.weights, own)
    placed = {name for made in store.places.values() for name in made.names}
    lost = [name for name in bundle.weights if name not in placed]
    findings = [*configuration.findings, *store.findings]
    if lost and not findings:
        findings.append(Finding("to='keras' weights that belong to no layer", ", ".join(lost)))
    hint = None
    if any("layer class" in finding.what for finding in findings):
        hint = "trust=['MODULE=PATH'] keeps classes of Keras 3 in the file"
    report(findings, hint)
    variables = {path: made.tensor(bundle.weights) for path, made in store.places.items()}
    changed = sum(made.compute is not None for made in store.places.values())
    needed = sorted({str(entry["module"]) for entry in own.values()})
    user = dict(bundle.metadata.user)
    training, left = compile_config(user.pop("training_config", None))
    document = configuration.document | ({} if training is None else {"compile_config": training})
    notes = [
        *configuration.notes,
        *(f"the file needs the module {name}" for name in needed),
        *(f"left out: {text}" for text in left),
    ]
    return KerasFile(document, variables, changed, tuple(notes), user)


class KerasArchive(Plan):
    """A `.keras` file that can be written.

    Attributes:
        bundle: The model.
        warnings: What the current Keras does otherwise where that hardly matters, and what is
            left out.
    """

    def __init__(self, bundle: Bundle, file: KerasFile) -> None:
        self.bundle, self.warnings = bundle, tuple(dict.fromkeys(file.notes))
        self._file = file

    def summary(self) -> str:
        """Return how many variables there are."""
        return count("variable", len(self._file.variables))

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the file, read it again and compare the weights."""
        return write_file(self._file, payload, verify=verify, sync=sync)


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> KerasArchive:
    """Decide what the current Keras is given; see `plan_file`."""
    del graphs, artifact  # the file has the source's own configuration
    return KerasArchive(bundle, plan_file(bundle, options.trust))


def write_file(file: KerasFile, payload: Path, *, verify: bool, sync: bool) -> Writing:
    """Write a file, read it again and compare the weights.

    Raises:
        StorageError: It cannot be written.
        VerificationError: What was written is not what was planned.
    """
    if file.changed:
        yield Step("normalised", f"weights as Keras stores them today: {file.changed}")
    path, blocks = payload / NAME, Blocks()
    weights = hdf5_writer.plan(file.variables, {})
    metadata: dict[str, Any] = {
        "keras_version": config_values.load_signatures()["version"],
        "written_by": f"convert {VERSION}",
    }
    if file.user:
        metadata["user"] = dict(file.user)
    done = 0
    for n in keras_archive.write(
        path, metadata=metadata, config=dict(file.config), weights=weights, blocks=blocks, sync=sync
    ):
        done += n
        yield Progress("written", done, weights.nbytes)
    if not verify or not file.variables:
        return path, None
    begin = perf_counter()
    report = compare(file.variables, read_again(path), with_digests=False, blocks=blocks)
    text = str(report)
    yield Step("verified", text, perf_counter() - begin)
    return path, report


def read_again(path: Path) -> dict[str, Tensor]:
    """Return the variables of a written file by their paths in the weight store."""
    bundle = catalog.read(Artifact(path), "keras")
    found = {tensor.origin.removeprefix("/"): tensor for tensor in bundle.weights.values()}
    if len(found) != len(bundle.weights):
        raise VerificationError("two variables of one path", where=path)
    return found
