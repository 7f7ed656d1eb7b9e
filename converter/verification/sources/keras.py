"""Table of the frameworks that run sources, by the kind of the source's topology.

A `Source` is an artifact with everything that its framework needs to run it. If a file may have
been converted from several signatures, there is a `Source` for each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from converter.capture.generation import PARTS, WITH_PAST
from converter.capture.pipelines import find_component, list_components
from converter.child.process import Allowance
from converter.child.trust import Trusted
from converter.graphs import lower_signature
from converter.lower.encoded import Encoded
from converter.lower.graph import Graph
from converter.lower.keras.lowering import model_of
from converter.lower.keras.model import is_model
from converter.lower.keras.weight_mapping import layers_of
from converter.lower.onnx import lowering as onnx_lowering
from converter.options import Options
from converter.verification.inputs import draw as inputs
from converter.verification.inputs import encoded_hints, graph_hints
from converter.verification.inputs.draw import Hint
from converter.verification.inputs.encoding import encode
from converter.verification.onnx_values import OnnxInterface, state_of, without_states
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import GraphReport
from converter.verification.runners import (
    PreparedInputs,
    RunSkipped,
    SourceRun,
    has_onnxruntime,
    may_have_keras,
    run_keras,
)
from converter.verification.sources import onnx_file
from converter.verification.sources import tensorflow as tensorflow_source
from converter.verification.sources import torch as torch_source
from converter.verification.sources.tensorflow import Binding, may_have_tensorflow
from converter.verification.sources.torch import STATE_DICT, Torch, may_have_torch
from formats import components, hugging_face
from formats.artifact import Artifact
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import CorruptError, SourceError, UnsupportedError, UsageError
from formats.onnx import files as onnx_files

VOCABULARY_BYTES = 1 << 20


class Source(Protocol):
    """An artifact that its framework runs.

    Attributes:
        graph: The lowered graph, before any pass; None if an op is not supported.
        has_layers: Whether it has layers, which define the values of its inputs and cast them.
        declared: The graph that has the inputs and outputs under the names that the source gives
            them; None if it gives none.
    """

    @property
    def graph(self) -> Graph | None: ...  # noqa: D102

    @property
    def declared(self) -> Graph | None: ...  # noqa: D102

    @property
    def has_layers(self) -> bool: ...  # noqa: D102

    def hints(self) -> Mapping[str, Hint]:
        """Return hints on its inputs, by their names in the file."""
        ...

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it on cases; return the outputs, and those of layers."""
        ...

    def notes(self, run: SourceRun) -> list[str]:
        """Return remarks on the run for the report."""
        ...


@dataclass(frozen=True, slots=True)
class KerasSource:
    """A model that Keras or tf_keras runs.

    Attributes:
        states: States of layers that are the file's last inputs and outputs: ``LAYER:NUMBER``.
    """

    path: Path
    bundle: Bundle
    allowance: Allowance
    trust: Sequence[Trusted]
    graph: Graph | None
    states: tuple[str, ...] = ()
    has_layers: bool = True

    @property
    def declared(self) -> Graph | None:
        """The lowered graph."""
        return self.graph

    def hints(self) -> Mapping[str, Hint]:
        """Return the hints from its layers; a model of a custom class has none."""
        topology = self.bundle.topology
        content = None if topology is None or self.graph is None else topology.content
        if not isinstance(content, Mapping) or not is_model(content):
            return {}
        found = inputs.find_hints(model_of(self.bundle), vocabulary(self.bundle))
        hashed = [] if self.graph is None else self.graph.encoded
        return found | {name: Hint(**fields) for name, fields in encoded_hints.fields(hashed)}

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it in the first Keras version that loads it."""
        about = self.bundle.metadata
        version = about.recorded.get("keras_version", "")
        hashed = [] if self.graph is None else self.graph.encoded
        run = run_keras(
            self.path, about.format, version, _with_strings(prepared, hashed), self.allowance,
            layers=layers, trust=self.trust, flipped=_flipped_layers(self.bundle),
            states=self.states, on=on,
        )  # fmt: skip
        if isinstance(run, RunSkipped):
            return run
        parts = {one.input: one.parts[0] for one in hashed}
        declared = [
            (parts[n].name, parts[n].dtype, shape) if n in parts else (n, dtype, shape)
            for n, dtype, shape in run.inputs
        ]
        return replace(run, inputs=declared)

    def notes(self, run: SourceRun) -> list[str]:
        """Return remarks on the run for the report."""
        return notes_on_keras(self.bundle, run)


def _with_strings(prepared: PreparedInputs, hashed: Sequence[Encoded]) -> PreparedInputs:
    """Return the inputs of the source: strings where the graph takes their fingerprints."""
    if not hashed:
        return prepared
    sources = {one.parts[0].name: one.input for one in hashed}
    names = tuple(sources.get(name, name) for name in prepared.names)
    for number, case in enumerate(prepared.cases):
        strings = encode(hashed, dict(zip(prepared.names, case.arrays, strict=True)))
        for i, (name, array) in enumerate(zip(names, case.arrays, strict=True)):
            texts = strings[name].astype("S").astype("U") if name in strings else array
            np.save(prepared.folder / f"fed-{number}-{i}.npy", texts)
    return replace(prepared, names=names, prefix="fed")


@dataclass(frozen=True, slots=True)
class TensorFlowSource:
    """A graph that TensorFlow runs.

    Attributes:
        as_placed: Whether the placements of its own nodes are kept on a device: an output written
            for a device must run there by itself.
    """

    path: Path
    bundle: Bundle
    allowance: Allowance
    binding: Binding
    graph: Graph | None
    has_layers: bool = False
    as_placed: bool = False

    @property
    def declared(self) -> Graph | None:
        """The lowered graph."""
        return self.graph

    def hints(self) -> Mapping[str, Hint]:
        """Return the hints from the lowered graph."""
        return (
            {}
            if self.graph is None
            else graph_hints.find_hints(self.graph, vocabulary(self.bundle))
        )

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it in TensorFlow."""
        return tensorflow_source.run_tensorflow(
            self.path, self.bundle, self.binding, prepared, self.allowance,
            layers=layers, on=on, as_placed=self.as_placed,
        )  # fmt: skip

    def notes(self, run: SourceRun) -> list[str]:
        """Return remarks on the run for the report."""
        return [*run.notes, *self.binding.notes]


@dataclass(frozen=True, slots=True)
class TorchSource:
    """A program, a pickled module, or a state dict with its factory, that torch runs.

    Attributes:
        graph: The lowered graph; if it is not lowered by us, that of the file, without layer names.
    """

    allowance: Allowance
    asked: Torch
    graph: Graph | None
    file: Graph | None
    has_layers: bool = False

    @property
    def declared(self) -> Graph | None:
        """None: the outputs of torch's programs have no names, but those of nodes."""
        return None

    def hints(self) -> Mapping[str, Hint]:
        """Return the hints from the file's graph; torch decides whether it accepts the inputs."""
        graph = self.file or self.graph
        return {} if graph is None else graph_hints.find_hints(graph)

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it in torch."""
        return torch_source.run_torch(self.asked, prepared, self.allowance, layers=layers, on=on)

    def run_in_float64(self, prepared: PreparedInputs) -> SourceRun | RunSkipped:
        """Run it in torch, in float64."""
        return torch_source.run_torch(self.asked, prepared, self.allowance, in_float64=True)

    def notes(self, run: SourceRun) -> list[str]:
        """Return remarks on the run for the report."""
        return [*run.notes]


Candidates = Callable[
    [Path, Bundle, OnnxInterface, Options, str | None],
    "list[Source] | GraphReport",
]


@dataclass(frozen=True, slots=True)
class Framework:
    """The framework that runs topologies of a kind.

    Attributes:
        name: Its name in messages.
        may_be_here: Returns whether it may be installed; a cheap check before preparing inputs.
        candidates: Returns the sources that a file may come from, the most likely first; or why
            there is none.
    """

    name: str
    may_be_here: Callable[[], bool]
    candidates: Candidates


def _keras(
    path: Path, bundle: Bundle, file: OnnxInterface, options: Options, signature: str | None
) -> list[Source] | GraphReport:
    del signature  # a Keras model has one
    graph = _lower_source(bundle, options.trust, state=state_of(file, options.state))
    if lacking := _find_lacking_states(graph, file):
        return lacking
    states = _find_states(graph, file)
    return [KerasSource(path, bundle, _allowance(options), options.trust, graph, states)]


def _tensorflow(
    path: Path, bundle: Bundle, file: OnnxInterface, options: Options, signature: str | None
) -> list[Source] | GraphReport:
    found: list[Source] = []
    refused: GraphReport | None = None
    own = without_states(file)
    names = tensorflow_source.signatures_of(bundle, own, signature)
    for name in names or [""]:
        state = state_of(file, options.state)
        graph = _lower_source(bundle, options.trust, name or None, state=state)
        if lacking := _find_lacking_states(graph, file):
            refused = lacking
            continue
        binding = tensorflow_source.bind_signature(bundle, own, graph, name)
        if isinstance(binding, GraphReport):
            return binding
        binding = replace(binding, states=_find_states(graph, file))
        found.append(TensorFlowSource(path, bundle, _allowance(options), binding, graph))
    return found or refused or []


def _torch(
    path: Path, bundle: Bundle, file: OnnxInterface, options: Options, signature: str | None
) -> list[Source] | GraphReport:
    form = torch_source.topology_kind(bundle, options.arch)
    dtypes = tuple(spec.dtype for spec in file.inputs)
    devices = torch_source.list_named_devices(bundle)
    fixed = torch_source.fixed_arguments(options.inputs)
    task, part = _find_part(file, options.task, signature)
    if form in (components.DIFFUSERS, hugging_face.DIFFUSERS):
        part = _find_graph(bundle, file, signature)
        path, form = path / find_component(bundle.topology, part), hugging_face.DIFFUSERS
    asked = Torch(
        path, form, dtypes, options.trust, options.arch, devices, fixed, task,
        torch_source.state_paths(bundle, file.states), part,
    )  # fmt: skip
    read = lower_file(file)
    own = without_states(file).inputs
    try:
        graph = _lower_source(
            bundle, specs=options.inputs or own, state=state_of(file, options.state)
        )
    except UsageError:
        graph = None  # its inputs have other names, or are different
    if lacking := _find_lacking_states(graph, file):
        return lacking
    return [TorchSource(_allowance(options), asked, graph or read, read)]


def _find_part(
    file: OnnxInterface, task: str | None, signature: str | None
) -> tuple[str | None, str]:
    """Return task and part of the model that a file has: by its signature, or the file's name."""
    part = signature or (file.path.stem if file.path is not None else "")
    if part not in PARTS:
        return task, ""
    keeps_past = any(spec.name.startswith("present.") for spec in file.outputs)
    return task or (WITH_PAST if keeps_past else None), part


def _find_graph(bundle: Bundle, file: OnnxInterface, signature: str | None) -> str:
    """Return which graph of a pipeline a file has: by its signature, its folder, or its name."""
    if signature is not None or file.path is None:
        return signature or ""
    for name in (file.path.parent.name, file.path.stem.removeprefix("model.")):
        if name.startswith("vae_") or find_component(bundle.topology, name):
            return name
    is_pipeline = bundle.topology is not None and bundle.topology.kind == components.DIFFUSERS
    return list_components(bundle.topology)[0] if is_pipeline and bundle.topology else ""


def _find_lacking_states(graph: Graph | None, file: OnnxInterface) -> GraphReport | None:
    """Return a failure if a file has no inputs for the state of its source."""
    if graph is None or not graph.states or file.states:
        return None
    return GraphReport("failed", "the source keeps state, which the file has no inputs for")


def _find_states(graph: Graph | None, file: OnnxInterface) -> tuple[str, ...]:
    """Return what holds the states of a file in its source."""
    sources = {} if graph is None else graph.sources
    return tuple(sources.get(state.input, state.tensor) for state in file.states)


def _onnx(
    path: Path, bundle: Bundle, file: OnnxInterface, options: Options, signature: str | None
) -> list[Source] | GraphReport:
    del signature  # a file has one
    found = onnx_file.source_of(path, bundle, file, _allowance(options), _lower_source(bundle))
    return found if isinstance(found, GraphReport) else [found]


_TORCH = Framework("torch", may_have_torch, _torch)
FRAMEWORKS: Mapping[str, Framework] = {
    "keras_config": Framework("Keras", may_have_keras, _keras),
    "graphdef": Framework("TensorFlow", may_have_tensorflow, _tensorflow),
    "onnx": Framework("onnxruntime", has_onnxruntime, _onnx),
    "torchscript": _TORCH,
    "exported_program": _TORCH,
    "torch_modules": _TORCH,
    **dict.fromkeys((*hugging_face.KINDS, *components.KINDS.values()), _TORCH),
    STATE_DICT: _TORCH,
}


def _allowance(options: Options) -> Allowance:
    return Allowance(options.comparison.timeout)


def lower_file(file: OnnxInterface) -> Graph | None:
    """Return the graph of a file, or None if it cannot be read."""
    if file.path is None:
        return None
    try:
        return onnx_lowering.lower(onnx_files.read(Artifact(file.path)))
    except (SourceError, UnsupportedError):
        return None  # it can still be compared, with less known of its inputs


def _lower_source(
    bundle: Bundle,
    trust: Sequence[Trusted] = (),
    signature: str | None = None,
    specs: Sequence[TensorSpec] = (),
    state: str = "drop",
) -> Graph | None:
    """Return the source's graph, which maps its layers to values of the file."""
    try:
        return lower_signature(bundle, None, trust, signature, specs, state)
    except (CorruptError, UnsupportedError):
        return None  # not written by us: it can be compared, without names of layers


def _flipped_layers(bundle: Bundle) -> list[str]:
    """Return the paths of layers whose kernels Theano stored turned around."""
    topology = bundle.topology
    if topology is None or not isinstance(topology.content, Mapping):
        return []
    if not is_model(topology.content):
        return []
    model = model_of(bundle)
    return ["/".join(path) for path, layer in layers_of(model) if layer.config.get("flipped")]


def vocabulary(bundle: Bundle) -> list[str]:
    """Return the vocabulary of the source's lookups."""
    words: list[str] = []
    for name, span in bundle.assets.items():
        if "vocab" in name:
            text = span.read(0, min(span.length, VOCABULARY_BYTES)).decode("utf-8", "replace")
            words += [line for line in text.split("\n") if line and not line.startswith("[")]
    return words


def notes_on_keras(bundle: Bundle, run: SourceRun) -> list[str]:
    """Return remarks on the run of a Keras model for the report."""
    wanted = bundle.metadata.recorded.get("keras_version", "")
    if wanted.startswith(("1.", "2.")) and run.runtime.name == "keras":
        other = (
            f"written by Keras {wanted} and run by Keras {run.runtime.version}, "
            "which computes some layers differently"
        )
        return [*run.notes, other]
    return [*run.notes]
