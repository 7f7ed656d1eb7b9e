"""Layers and functions that other layers call by name and that trusted modules supply.

A wrapper's handler, a recurrence or an activation knows the builder alone, which has these
`Calls` with it (``op.supplies``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.activations import FUNCTIONS
from converter.lower.keras.cells import Cell
from converter.lower.keras.model import Layer, Model, Reference, references
from converter.lower.keras.table import (
    Masked,
    Roles,
    Row,
    Unsupported,
    is_authors,
)
from converter.lower.keras.traced import match_variables
from converter.lower.keras.trusted import Modules, Subject
from converter.lower.values import Value

Path = tuple[str, ...]
# Calls a model, with the weights of its layers by their paths.
CallModel = Callable[
    [Model, Path, Mapping[Reference, Value], Mapping[Path, Mapping[str, str]]], list[Value]
]
Structure = tuple[list[Any], dict[str, Any]]  # of a call: arguments, keywords; tensors by index
Given = tuple[Value, Value | None]  # a tensor and its mask


class Calls:
    """Calls of what trusted modules have.

    Attributes:
        modules: They.
        names: Names of the outputs of the class that was called last, if it gives any.
    """

    def __init__(self, modules: Modules, call_model: CallModel) -> None:
        self.modules = modules
        self.names: Sequence[str] = ()
        self._call_model = call_model

    # -- layers ----------------------------------------------------------------------------------

    def layer(self, entry: Mapping[str, Any]) -> "tuple[Layer, Row | None]":
        """Return a layer inside another, and the row that lowers it: ours, or a module's."""
        found = inner_layer(entry)
        return found, self.modules.row(found)

    def inside(
        self, op: Builder, w: Roles, layer: Layer, tensors: Sequence[Value], mask: Value | None,
        keywords: Mapping[str, Any],
    ) -> Masked | None:  # fmt: skip
        """Call a layer inside another by its class; return None where there is no such class."""
        subject = self.modules.class_of(layer)
        if subject is None:
            return None
        given: list[Given] = [(v, mask if i == 0 else None) for i, v in enumerate(tensors)]
        numbers = [{"__value__": i} for i in range(len(tensors))]
        arguments = [numbers[0] if len(numbers) == 1 else numbers]
        path = (*w.layer.split("/"), layer.name)
        values, masks = self.traced(
            op, subject, path, w.tensors, (arguments, dict(keywords)), given
        )
        return Masked(values[0] if len(values) == 1 else values, masks)

    def traced(
        self, op: Builder, subject: Subject, path: Path, own: Mapping[str, str], structure: Any,
        given: Sequence[Given],
    ) -> tuple[list[Value], list[Value | None]]:  # fmt: skip
        """Call what a subject was traced to.

        Args:
            op: Builder.
            subject: A class or a function.
            path: Path of the layer.
            own: That layer's tensors: role → name.
            structure: Arguments and keywords of the call, tensors by index.
            given: Those tensors.

        Returns:
            What it returns, and the mask of each.

        Raises:
            Unsupported: It cannot be traced, has other weights, or does what we do not.
        """
        traced = self.modules.traced(subject, structure, given)
        names = match_variables(traced.weights, own, op.weights)
        inputs = [v for v, _ in given] + [mask for _, mask in given if mask is not None]
        by_input = {}
        weights: dict[Path, dict[str, str]] = {}
        for weight, tensor in zip(traced.weights, names, strict=True):
            by_input[weight.input] = weight, tensor
            if weight.layer is None:
                op.left.add(tensor)  # the class itself says what it reads
            if weight.layer is not None and weight.role is not None:
                weights.setdefault((*path, weight.layer), {})[weight.role] = tensor
        wanted = list(references(traced.model.inputs))
        for reference in wanted[len(inputs) :]:
            weight, tensor = by_input[reference.layer]
            inputs.append(op.cast(op.weight(tensor), str(weight.dtype)))
        results = self._call_model(
            traced.model, path, dict(zip(wanted, inputs, strict=True)), weights
        )
        self.names = traced.names
        masks = iter(results[traced.outputs :])
        return results[: traced.outputs], [next(masks) if m else None for m in traced.masks]

    # -- cells -----------------------------------------------------------------------------------

    def cell(self, op: Builder, w: Roles, entry: Mapping[str, Any]) -> Cell | None:
        """Return the cell of a recurrence, where a module has it."""
        layer = inner_layer(entry)
        states = self.modules.states_of(layer)
        if states is not None:
            return self._lowered_cell(op, w, layer, states)
        subject = self.modules.class_of(layer)
        if subject is None:
            return None
        path = (*w.layer.split("/"), layer.name)
        shapes = self.modules.state_shapes(subject)

        def step(x: Value, before: list[Value]) -> list[Value]:
            numbers = [{"__value__": i + 1} for i in range(len(before))]
            structure: Structure = ([{"__value__": 0}, numbers], {})
            given: list[Given] = [(v, None) for v in (x, *before)]
            values, _ = self.traced(op, subject, path, w.tensors, structure, given)
            return _after(layer, values, len(shapes))

        return Cell(_as_it_is, step, _zeros(op, shapes), len(shapes), len(shapes))

    def _lowered_cell(self, op: Builder, w: Roles, layer: Layer, states: Sequence[str]) -> Cell:
        row = self.modules.row(layer)
        if row is None or not states:
            raise Unsupported(f"cell {layer.class_name}, whose lowering does not name its states")
        if unknown := row.unknown(layer.config):
            raise Unsupported(f"argument {', '.join(unknown)} of {layer.class_name} inside it")
        shapes = []
        for name in states:
            size = layer.config.get(name)
            if not isinstance(size, int):
                raise Unsupported(
                    f"{name}={size!r} of {layer.class_name}, which is to size a state"
                )
            shapes.append((size,))
        settings = row.known(layer.config)

        def step(x: Value, before: list[Value]) -> list[Value]:
            made = row.handler(op, w, x, *before, **settings)
            values = made.value if isinstance(made, Masked) else made
            return _after(layer, values, len(shapes))

        return Cell(_as_it_is, step, _zeros(op, shapes), len(shapes), len(shapes))

    # -- functions -------------------------------------------------------------------------------

    def has_activation(self, spec: Any) -> bool:
        """Return whether a trusted module, and not Keras, defines an activation."""
        name, config = _name_activation(spec)
        return name is not None and self._subject(name, config, spec) is not None

    def activation(self, op: Builder, x: Value, spec: Any) -> Value | None:
        """Apply an activation that a module has; return None where none has it, or it is Keras's.

        Raises:
            Unsupported: Its definition is ambiguous, or does something that is not supported.
        """
        name, config = _name_activation(spec)
        found = None if name is None else self._subject(name, config, spec)
        if name is None or found is None:
            return None
        if isinstance(found, Row):
            settings = found.known(config or {})
            if unknown := found.unknown(config or {}):
                raise Unsupported(f"argument {', '.join(unknown)} of activation {name}")
            result = found.handler(op, Roles(op, f"activation {name}", {}), x, **settings)
            values = list(result.value) if isinstance(result, Masked) else [result]
        else:
            path = ("activation", name)
            structure: Structure = ([{"__value__": 0}], {})
            values, _ = self.traced(op, found, path, {}, structure, [(x, None)])
        if len(values) != 1 or not isinstance(values[0], Value):
            raise Unsupported(f"activation {name}, which returns several tensors")
        return values[0]

    def _subject(self, name: str, config: Any, spec: Any) -> "Row | Subject | None":
        bare = name.rpartition(">")[2]
        if name in FUNCTIONS:
            # A name of Keras's own: Keras 3 records it of nothing else.
            if not self.modules.legacy:
                return None
            found = self.modules.function(name, name)
            row = self.modules.lowering(f"Activation:{name}")
            if row is None and found is not None and not self.modules.is_registered(name):
                raise Unsupported(
                    f"activation {name!r}, which Keras has and {found.supply.trusted.module} too:"
                    " register it with Keras there, or call it otherwise"
                )
            return row or found
        row = self.modules.lowering(f"Activation:{name}", f"Activation:{bare}")
        if row is not None or config is None:
            return row or self.modules.function(name, name)
        layer = inner_layer(spec)
        subject = self.modules.class_of(layer)
        if subject is not None:
            return replace(subject, config=layer.config)
        registered = str(spec.get("registered_name") or spec.get("class_name"))
        return self.modules.function(registered, name, config)


def inner_layer(entry: Mapping[str, Any]) -> Layer:
    """Return a layer that a configuration holds in its serialised form."""
    config = entry.get("config")
    arguments = config if isinstance(config, Mapping) else {}
    package, _, name = str(entry.get("class_name")).rpartition(">")
    module = entry.get("module") or package or None
    return Layer(str(arguments.get("name") or name), name, module, arguments, ())


def _name_activation(spec: Any) -> tuple[str | None, Mapping[str, Any] | None]:
    """Return what an activation is called; of an object of the author's, its arguments too."""
    if isinstance(spec, str):
        return spec, None
    if not isinstance(spec, Mapping):
        return None, None
    config = spec.get("config")
    if isinstance(config, str):
        return config, None
    layer = inner_layer(spec)
    if is_authors(layer.module) and isinstance(config, Mapping):
        return layer.class_name, config
    return None, None


def _as_it_is(x: Value) -> Value:
    return x


def _zeros(op: Builder, shapes: Sequence[tuple[int, ...]]) -> Callable[[Value], list[Value]]:
    def zeros(x: Value) -> list[Value]:
        return [op.expand(op.constant(0.0, x.dtype), (x.shape[0], *s), like=x) for s in shapes]

    return zeros


def _after(layer: Layer, values: Any, count: int) -> list[Value]:
    """Return a cell's new states, then its output, from its output and new states."""
    flat = list(values) if isinstance(values, list | tuple) else [values]
    if len(flat) != count + 1 or any(isinstance(v, np.ndarray) for v in flat):
        raise Unsupported(f"cell {layer.class_name} returns {len(flat)} tensors, not {count + 1}")
    return [*flat[1:], flat[0]]
