"""A Keras model, layer by layer, into a graph.

First the whole model is checked, so that everything in it that is not supported is reported at
once; then every layer is called as often as the source calls it, with its masks and in its dtype.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from converter.child.trust import Trusted
from converter.lower.builder import Builder
from converter.lower.graph import Dim, Graph, Trace, Weight, needed
from converter.lower.hashed_strings import take_fingerprints
from converter.lower.keras import (
    version_upgrades_of_operations,  # noqa: F401 - importing it enters its rules
    version_upgrades_of_recurrent,  # noqa: F401 - importing it enters its rules
)
from converter.lower.keras.behaviour_notes import since
from converter.lower.keras.builder import KerasBuilder
from converter.lower.keras.fold_time import ON_STEPS, fold_steps, unfold_steps
from converter.lower.keras.layer_states import LayerStates
from converter.lower.keras.model import (
    Call,
    Layer,
    Model,
    Reference,
    author_layer,
    is_model,
    of_author,
    parse,
    references,
)
from converter.lower.keras.table import Masked, Roles, Row, Unsupported, compute_dtype, roles_of
from converter.lower.keras.trusted import Modules
from converter.lower.keras.unsupported_layers import find_unsupported, report_unsupported
from converter.lower.keras.version_upgrades import age_of, normalize
from converter.lower.keras.weight_mapping import Path, infer_backend, map_weights
from converter.lower.keras.whole_numbers import as_taken
from converter.lower.unsupported import MISFITS, Finding, explain_misfit
from converter.lower.values import Value
from converter.opsets import OPSET
from formats.core.bundle import Bundle
from formats.core.plurals import count
from formats.errors import InternalError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Named:
    """One input or output of a model."""

    name: str
    value: Any


def lower(
    bundle: Bundle, *, opset: int = OPSET, trust: Sequence[Trusted] = (), state: str = "drop"
) -> Graph:
    """Return the graph of a Keras model.

    Args:
        bundle: The model.
        opset: Version of ONNX's operators.
        trust: Trusted modules, which define what Keras does not.
        state: ``io`` to make inputs and outputs of the states of stateful layers.

    Raises:
        UnsupportedError: The model needs what we do not do; all of it is named.
        CorruptError: The configuration is not Keras's.
        UsageError: A trusted module does not define a layer.
        DependencyError: A child that ran one died or hung.
    """
    content = None if bundle.topology is None else bundle.topology.content
    if trust and isinstance(content, Mapping) and not is_model(content):
        layer = author_layer(content)
        alone = Model(layer.name, {layer.name: layer}, None, None)
        modules = Modules(trust, legacy=is_legacy(bundle, alone))
        model = of_author(content, modules.describe_inputs)
        return _of_author(bundle, model, modules, opset, state)
    model = model_of(bundle)
    modules = Modules(trust, legacy=is_legacy(bundle, model))
    report_unsupported(find_unsupported(model, modules))
    graph = Graph(model.name, opset, trusted=modules.used)
    weights = map_weights(model, bundle.weights)
    walk = _Walk(KerasBuilder(graph, bundle.weights), weights, modules, state)
    walk.run(model)
    report_unsupported(walk.findings)
    try:
        take_fingerprints(walk.op)
    except Unsupported as reason:
        report_unsupported([Finding("Keras Hashing", model.name, str(reason))])
    found = needed(graph)
    report_unsupported(walk.unused(found))
    drawn = {name for node in found.nodes for name in node.outputs}
    found.random = {name: kind for name, kind in found.random.items() if name in drawn}
    found.notes += since(model, str(bundle.metadata.recorded.get("keras_version", "")))
    return found


def _of_author(bundle: Bundle, model: Model, modules: Modules, opset: int, state: str) -> Graph:
    """Return the graph of a model whose class is its author's: all weights are its own."""
    report_unsupported(find_unsupported(model, modules))
    graph = Graph(model.name, opset, trusted=modules.used)
    own: dict[Path, dict[str, str]] = {(model.name,): {name: name for name in bundle.weights}}
    walk = _Walk(KerasBuilder(graph, bundle.weights), own, modules, state)
    walk.run_author(model)
    found = needed(graph)
    report_unsupported(walk.unused(found))
    return found


def model_of(bundle: Bundle) -> Model:
    """Return the Keras model that a bundle describes, in the terms of Keras 3.

    Raises:
        UnsupportedError: It describes none.
        CorruptError: The configuration is not Keras's.
    """
    if bundle.topology is None or bundle.topology.kind != "keras_config":
        raise UnsupportedError(
            f"the source is {bundle.metadata.format} without a configuration of Keras's",
            expected="a whole model of Keras's: model.save(…), not its weights alone",
            hint="to='safetensors' writes the weights alone",
        )
    recorded = bundle.metadata.recorded
    version, backend = str(recorded.get("keras_version", "")), recorded.get("backend")
    if backend is None and version.split(".")[0] in ("", "0", "1"):
        backend = infer_backend(bundle.weights)
    config = bundle.topology.content
    model = parse(config)
    if bundle.assets:
        from converter.lower.keras import lookup

        model = lookup.vocabularies(model, config, bundle.assets)
    return normalize(model, version, str(backend or "") or None)


def is_legacy(bundle: Bundle, model: Model) -> bool:
    """Return whether a model is older than Keras 3."""
    version = str(bundle.metadata.recorded.get("keras_version", ""))
    return age_of(model, version, None).major < 3


RANDOM = "seed_generator"  # in place of the states of random generators


class _Walk:
    """A model being called: the values and masks of its tensors."""

    def __init__(
        self, op: Builder, weights: Mapping[Path, Mapping[str, str]], modules: Modules, state: str
    ) -> None:
        self.op = op
        self.weights = dict(weights)
        self.modules = modules
        if modules.trusted:
            from converter.lower.keras.trusted_calls import Calls

            op.supplies = Calls(modules, self.call_traced)
        self.findings: list[Finding] = []
        self.called: dict[Path, str] = {}  # layers -> their classes
        self.states = LayerStates(op, self.called, is_legacy=modules.legacy)
        if state == "io":
            op.layer_states = self.states

    def unused(self, graph: Graph) -> Iterator[Finding]:
        """Yield layers that were called and have weights that the graph does not read.

        Old files name a class and not whose it is. What our layer of that name has no use for
        says that it was another, unless the handler has said that inference never reads it.
        """
        # A nested model may have outputs that no one asks for: what makes them is in use as well.
        made = [trace.value for trace in self.op.graph.traces]
        whole = replace(self.op.graph, outputs=[*graph.outputs, *made])
        read = needed(whole).initializers.values()
        known = {i.tensor for i in read if isinstance(i, Weight)} | self.op.left
        for path, class_name in self.called.items():
            left = [
                f"{role} {list(self.op.weights[tensor].shape)}"
                for role, tensor in self.weights.get(path, {}).items()
                if tensor not in known and RANDOM not in self.op.weights[tensor].origin
            ]
            if left:
                yield Finding(
                    f"layer class {class_name} that is not Keras's own",
                    "/".join(path),
                    detail=f"Keras's own does not use its {', '.join(left)}",
                )

    def run(self, model: Model) -> None:
        """Build a whole graph: inputs, layers, outputs."""
        result = self._call_model(model, (), self._inputs(model), {})
        if not self.findings:
            self._outputs([r.layer for r in references(model.outputs)], [m.value for m in result])
            self.states.finish()

    def run_author(self, model: Model) -> None:
        """Build the graph of a model that is one layer, of its author's class.

        Raises:
            UnsupportedError: It does what cannot be traced, or what we do not do.
        """
        made = {r: _Made(v, None) for r, v in self._inputs(model).items()}
        layer = model.layers[model.name]
        try:
            traced = self._call_class(layer, (layer.name,), layer.calls[0], made)
        except Unsupported as gap:
            report_unsupported([Finding(layer.class_name, layer.name, str(gap))])
            raise
        names = self.op.supplies.names or [layer.name] * len(traced)
        self._outputs(names, [m.value for m in traced])

    def _inputs(self, model: Model) -> dict[Reference, Value]:
        values = {}
        for reference in references(model.inputs):
            layer = model.layers[reference.layer]
            shape, dtype = input_spec(layer)
            name = self.op.unique(layer.name)
            values[reference] = self.op.input(name, dtype, shape)
        return values

    def _outputs(self, wanted: Sequence[str], values: Sequence[Value]) -> None:
        used: set[str] = set(self.op.graph.inputs)
        for layer, value in zip(wanted, values, strict=True):
            base = layer if layer not in used else f"{layer}_out"
            name, number = base, 1
            while name in used:
                name, number = f"{base}_{number}", number + 1
            used.add(name)
            self.op.output(value, name)

    def _call_model(
        self,
        model: Model,
        path: Path,
        inputs: Mapping[Reference, Value],
        masks: Mapping[Reference, Value],
    ) -> "list[_Made]":
        made: dict[Reference, _Made] = {r: _Made(v, masks.get(r)) for r, v in inputs.items()}
        for layer, number in _order(model, made):
            call = layer.calls[number]
            wanted = [*references(call.arguments), *references(call.keywords)]
            if any(r not in made for r in wanted):
                continue  # something before is not supported
            try:
                with self.op.scope(layer.name):
                    results = self._call_layer(layer, (*path, layer.name), call, made)
            except Unsupported as gap:
                where = "/".join((*path, layer.name))
                self.findings.append(Finding(f"Keras {layer.class_name}", where, str(gap)))
                continue
            except MISFITS as e:
                where = "/".join((*path, layer.name))
                self.findings.append(Finding(f"Keras {layer.class_name}", where, explain_misfit(e)))
                continue
            for i, result in enumerate(results):
                made[Reference(layer.name, number, i)] = result
                self._trace(layer, path, i, result.value)
        return [made[r] for r in references(model.outputs) if r in made]

    def _trace(self, layer: Layer, path: Path, output: int, value: Value) -> None:
        name = "/".join((*path, layer.name))
        trace = Trace(name, layer.class_name, output, value.name, value.stored)
        self.op.graph.traces.append(trace)

    def _call_layer(
        self, layer: Layer, path: Path, call: Call, made: "Mapping[Reference, _Made]"
    ) -> "list[_Made]":
        arguments = [_fill(part, made) for part in call.arguments]
        keywords = {key: _fill(part, made) for key, part in call.keywords.items()}
        given = [made[r] for r in references(call.arguments)]
        if layer.model is not None and layer.class_name in ON_STEPS:
            return self._call_on_steps(layer, layer.model, path, given)
        if layer.model is not None:
            return self._call_inner(layer.model, path, given)
        if layer.class_name == "InputLayer":
            return given
        self.called[path] = layer.class_name
        if self.modules.row(layer) is None:
            return self._call_class(layer, path, call, made)
        for key, part in call.keywords.items():
            mask = f"{key}_mask"
            wanted_mask = mask in self._row(layer).arguments
            if isinstance(part, Reference) and wanted_mask and keywords.get(mask) is None:
                keywords[mask] = made[part].mask
        return self.apply(layer, self._roles(layer, path), arguments, keywords, given)

    def _call_inner(self, model: Model, path: Path, given: "Sequence[_Made]") -> "list[_Made]":
        wanted = list(references(model.inputs))
        if len(given) != len(wanted):
            raise Unsupported(
                f"a call with {count('tensor', len(given))} of a model that has "
                f"{count('input', len(wanted))}"
            )
        inputs = {r: m.value for r, m in zip(wanted, given, strict=True)}
        masks = {r: m.mask for r, m in zip(wanted, given, strict=True) if m.mask is not None}
        return self._call_model(model, path, inputs, masks)

    def _call_on_steps(
        self, layer: Layer, model: Model, path: Path, given: "Sequence[_Made]"
    ) -> "list[_Made]":
        x, mask = given[0].value, given[0].mask
        values = [fold_steps(self.op, m.value) for m in given]
        masks = [None if m.mask is None else fold_steps(self.op, m.mask) for m in given]
        inside = [_Made(v, m) for v, m in zip(values, masks, strict=True)]
        with self.states.refused("a stateful layer that is called with each step"):
            made = self._call_inner(model, path, inside)
        mask_after = ON_STEPS[layer.class_name]
        return [
            _Made(unfold_steps(self.op, m.value, x), mask_after(self.op, x, mask, m.mask))
            for m in made
        ]

    def _call_class(
        self, layer: Layer, path: Path, call: Call, made: "Mapping[Reference, _Made]"
    ) -> "list[_Made]":
        """Call a layer whose class a trusted module has: the model that its trace is."""
        subject = self.modules.class_of(layer)
        if subject is None:
            raise InternalError(f"no class for {layer.class_name}")
        given: list[_Made] = []

        def encode(part: Any) -> Any:
            if isinstance(part, Reference):
                given.append(made[part])
                return {"__value__": len(given) - 1}
            if isinstance(part, Mapping):
                return {str(key): encode(inner) for key, inner in part.items()}
            if isinstance(part, list | tuple):
                return [encode(inner) for inner in part]
            if part is None or isinstance(part, bool | int | float | str):
                return part
            raise Unsupported(f"an argument of type {type(part).__name__} for a trusted class")

        keywords = {key: part for key, part in call.keywords.items() if key != "training" or part}
        if layer.class_name == "Lambda":
            keywords |= {k: v for k, v in self.modules.arguments(layer).items() if k != "dtype"}
        structure = (encode(call.arguments), encode(keywords))
        own = self.weights.get(path, {})
        tensors = [(m.value, m.mask) for m in given]
        values, masks = self.op.supplies.traced(self.op, subject, path, own, structure, tensors)
        return [_Made(v, mask) for v, mask in zip(values, masks, strict=True)]

    def call_traced(
        self, model: Model, path: Path, inputs: Mapping[Reference, Value],
        weights: Mapping[Path, Mapping[str, str]],
    ) -> list[Value]:  # fmt: skip
        """Call a model that code of a trusted module was traced to.

        Raises:
            Unsupported: It has layers that we do not lower.
        """
        if found := list(find_unsupported(model, self.modules)):
            raise Unsupported("; ".join(f"{f.what} (at {f.where})" for f in found))
        self.weights |= weights
        before = len(self.findings)
        with self.states.refused("a stateful layer inside a layer of a trusted module"):
            results = self._call_model(model, path, inputs, {})
        if len(self.findings) > before:
            found = self.findings[before:]
            del self.findings[before:]
            raise Unsupported("; ".join(f"{f.what} (at {f.where})" for f in found))
        return [m.value for m in results]

    def _row(self, layer: Layer) -> Row:
        row = self.modules.row(layer)
        if row is None:
            raise InternalError(f"no row for {layer.class_name}, and no gap either")
        return row

    def _roles(self, layer: Layer, path: Path) -> Roles:
        return roles_of(self.op, "/".join(path), self.weights.get(path, {}), layer.config)

    def apply(
        self, layer: Layer, roles: Roles, arguments: Sequence[Any], keywords: Mapping[str, Any],
        given: "Sequence[_Made]",
    ) -> "list[_Made]":  # fmt: skip
        """Call a layer's handler."""
        row = self._row(layer)
        settings = row.known(self.modules.arguments(layer))
        for name, value in keywords.items():
            if name in row.arguments:
                settings[name] = self._cast(value, roles.dtype) if row.is_layer else value
            elif name == "training" and not value:
                continue
            elif value is not None and name not in ("mask", "name"):
                raise Unsupported(f"argument {name} of the call")
        if not row.is_layer:
            result = row.handler(self.op, *arguments, **settings)
            return [_Made(v, None) for v in _flat(result)]
        masks = [m.mask for m in given]
        if row.takes_mask and settings.get("mask") is None:
            alone = len(masks) == 1 and not any(isinstance(v, Value) for v in _flat(keywords))
            settings["mask"] = masks[0] if alone else masks
        if row.takes_structure:
            given_as = [self._cast_structure(part, roles.dtype) for part in arguments]
            settings["structure"] = given_as[0] if len(given_as) == 1 else given_as
        tensors = [
            as_taken(self.op, row, layer.class_name, position, settings, v, roles.dtype)
            for position, part in enumerate(arguments)
            for v in (self._cast(v, roles.dtype) for v in _flat(part))
        ]
        result = row.handler(self.op, roles, *tensors, **settings)
        if isinstance(result, Masked):
            outputs = list(_flat(result.value))
            own = [result.mask] if isinstance(result.mask, Value | None) else result.mask
            return [_Made(v, m) for v, m in zip_longest(outputs, own)]
        mask = self._propagate_mask(row.mask, masks)
        return [_Made(v, mask) for v in _flat(result)]

    def _cast_structure(self, value: Any, dtype: str | None) -> Any:
        if isinstance(value, Mapping):
            return {key: self._cast_structure(part, dtype) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._cast_structure(part, dtype) for part in value)
        return self._cast(value, dtype)

    def _cast(self, value: Any, dtype: str | None) -> Any:
        """Keras casts floating point inputs to what the layer computes in."""
        value = self.op.constant(value) if isinstance(value, np.ndarray) else value
        if isinstance(value, Value) and dtype and value.is_float:
            return self.op.cast(value, dtype)
        return value

    def _propagate_mask(self, rule: str, masks: "Sequence[Value | None]") -> Value | None:
        if rule == "pass":
            return masks[0] if masks else None
        if rule == "merge" and masks and all(m is not None for m in masks):
            found = [m for m in masks if m is not None]
            result = found[0]
            for other in found[1:]:
                result = self.op.elementwise("And", result, other)
            return result
        return None


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor of the source, and its mask."""

    value: Value
    mask: Value | None


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _flat(value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _fill(structure: Any, made: Mapping[Reference, _Made]) -> Any:
    if isinstance(structure, Reference):
        return made[structure].value
    if isinstance(structure, Mapping):
        return {key: _fill(part, made) for key, part in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_fill(part, made) for part in structure)
    if isinstance(structure, list):
        return [_fill(part, made) for part in structure]
    return structure


def _order(model: Model, made: Iterable[Reference]) -> list[tuple[Layer, int]]:
    """Return the calls that the outputs need, each after those it needs itself."""
    done = {(r.layer, r.call) for r in made}
    order: list[tuple[Layer, int]] = []
    todo: list[tuple[str, int, bool]] = [
        (r.layer, r.call, False) for r in reversed(list(references(model.outputs)))
    ]
    while todo:
        name, number, ready = todo.pop()
        if (name, number) in done:
            continue
        layer = model.layers[name]
        if ready:
            done.add((name, number))
            order.append((layer, number))
            continue
        todo.append((name, number, True))
        call = layer.calls[number]
        wanted = [*references(call.arguments), *references(call.keywords)]
        todo += [(r.layer, r.call, False) for r in reversed(wanted)]
    return order


def input_spec(layer: Layer) -> tuple[tuple[Dim, ...], str]:
    """Return shape and dtype of an input layer, dynamic sizes named.

    Raises:
        Unsupported: Its shape is not recorded.
    """
    config = layer.config
    sizes = config.get("batch_shape") or config.get("batch_input_shape")
    if sizes is None and config.get("input_shape") is not None:
        sizes = [None, *config["input_shape"]]
    if sizes is None:
        raise UnsupportedError(
            f"input {layer.name!r} has no recorded shape",
            hint="The model was saved before it was built",
        )
    dtype = config.get("dtype") or config.get("input_dtype") or "float32"
    if isinstance(dtype, Mapping):
        dtype = compute_dtype(config) or "float32"
    shape: list[Dim] = [
        n if isinstance(n, int) else "batch" if i == 0 else f"{layer.name}_{i}"
        for i, n in enumerate(sizes)
    ]
    return tuple(shape), str(dtype)
