"""Layers that modules of the user's supply: their code runs in children, and only data comes back.

A lowering answers with nodes, which are looked through and put into the graph; a Keras class with
a graph of Keras's own layers and operations, which is lowered as any other model
(`converter.lower.keras.lowering`). Each is a child of its own; equal questions are asked once.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converter import child
from converter.lower import emit, plain_graph
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Graph, Node, Shape, Spec, Weight
from converter.lower.keras.model import Layer, Model, parse
from converter.lower.keras.rules import normalised
from converter.lower.keras.table import Gap, Masked, Roles, Row, row_of
from converter.lower.values import Value
from converter.trust import Trusted, digest, plain
from formats.errors import CorruptError, EnvironmentFault, InternalError, UsageError
from formats.weights import Tensor

SCRIPT = Path(__file__).with_name("trusted_child.py")
ALLOWANCE = child.Allowance(seconds=300)
FRAMEWORKS = ("keras", "tensorflow", "tf_keras", "jax", "torch")
KERAS_EXTRA = 'pip install "model-convert[tensorflow]"'
KERAS_3 = "3.15"  # whose words a trace is in
# What Layer.__init__ of today's Keras no longer takes, or what says nothing to it.
OLD_ARGUMENTS = ("batch_input_shape", "input_dtype", "input_shape", "build_config")


@dataclass(frozen=True, slots=True)
class Supply:
    """What one module has.

    Attributes:
        trusted: The module.
        file: Where it was imported from.
        python: In which Python.
        lowerings: Name → arguments and rule for masks.
        classes: Names of Keras layers.
    """

    trusted: Trusted
    file: Path | None
    python: str
    lowerings: Mapping[str, Any]
    classes: frozenset[str]


@dataclass(frozen=True, slots=True)
class TracedWeight:
    """A variable of a traced layer.

    Attributes:
        path: Names of the layers inside it and the variable's own.
        stored: Where a weight store of Keras 3 has it, below the layer.
        shape: Its shape.
        input: The input of the model that it is, where the layer itself uses it.
        dtype: Of that input.
        layer: The layer of the model that it belongs to, where one does.
        role: Its name there.
    """

    path: str
    stored: str | None
    shape: Sequence[int]
    input: str | None
    dtype: str | None
    layer: str | None
    role: str | None


@dataclass(frozen=True, slots=True)
class Traced:
    """What a layer's class does.

    Attributes:
        model: Its inputs are the tensors, their masks, and weights; its outputs the layer's, then
            masks.
        outputs: How many of those are the layer's.
        masks: For each of them whether it has a mask.
        weights: All that the layer has, in the order in which Keras saves them.
    """

    model: Model
    outputs: int
    masks: Sequence[bool]
    weights: Sequence[TracedWeight]


def matched(
    weights: Sequence[TracedWeight], own: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> list[str]:
    """Return which tensor each variable of a layer is: by place, by name, or by order.

    Args:
        weights: The variables.
        own: Tensors that are the layer's by their names: role → name.
        tensors: All there are.

    Raises:
        Gap: They are not the layer's.
    """
    by_name = [own.get(w.path, "") for w in weights]
    ways = [
        _by_place([w.stored or "" for w in weights], own, tensors),  # .keras and .weights.h5
        _by_place([w.path for w in weights], own, tensors),  # .h5
        by_name if set(by_name) == set(own.values()) else [],
        list(own.values()),
    ]
    for found in ways:
        if len(found) == len(set(found)) == len(weights) and all(
            name in tensors and tuple(tensors[name].shape) == tuple(w.shape)
            for name, w in zip(found, weights, strict=True)
        ):
            return found
    have = ", ".join(f"{role} {list(tensors[n].shape)}" for role, n in own.items()) or "none"
    want = ", ".join(f"{w.path} {list(w.shape)}" for w in weights) or "none"
    raise Gap(f"its class has the weights {want}, and the source {have}")


def _by_place(
    places: Sequence[str], own: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> list[str]:
    """Return the tensors that lie in these places of the group where the layer's own lie.

    None are returned unless they are all that there are: a model inside the layer may be named as
    if it stood alone, but lies with it.
    """
    by_origin = {tensor.origin: name for name, tensor in tensors.items()}
    for first in own.values():
        origin = tensors[first].origin
        for place in places:
            head = origin.removesuffix(f"/{place}")
            if not place or head == origin:
                continue
            inside = {o: name for o, name in by_origin.items() if o.startswith(f"{head}/")}
            if set(inside) == {f"{head}/{p}" for p in places}:
                return [inside[f"{head}/{p}"] for p in places]
    return []


def _sizes(shape: Shape) -> list[int | None]:
    return [n if isinstance(n, int) else None for n in shape]


class Modules:
    """The trusted modules of one conversion.

    Attributes:
        used: Name of each that has supplied something → SHA-256 of its file, or of its folder.
    """

    def __init__(self, trusted: Sequence[Trusted]) -> None:
        self.used: dict[str, str] = {}
        self._supplies = _supplies(trusted) if trusted else []
        self._answers: dict[str, dict[str, Any]] = {}

    @staticmethod
    def arguments(layer: Layer) -> Mapping[str, Any]:
        """Return a layer's arguments; of a Lambda those that its function is called with."""
        if layer.class_name != "Lambda":
            return layer.config
        own = layer.config.get("arguments")
        dtype = layer.config.get("dtype")
        return {"dtype": dtype, **(own if isinstance(own, Mapping) else {})}

    def row(self, layer: Layer) -> Row | None:
        """Return the row of a layer: our own, or one whose handler asks a trusted module."""
        own = row_of(layer.module, layer.class_name)
        if own is not None:
            return own
        name = f"Lambda:{layer.name}" if layer.class_name == "Lambda" else layer.class_name
        for supply in self._supplies:
            facts = supply.lowerings.get(name)
            if facts is not None:
                self._use(supply)
                return self._remote(supply, name, facts)
        return None

    def has_class(self, layer: Layer) -> bool:
        """Tell whether a Keras class stands for a layer that has no row."""
        return self._with_class(layer) is not None

    def _with_class(self, layer: Layer) -> Supply | None:
        found = (s for s in self._supplies if layer.class_name in s.classes)
        return next(found, None)

    def _use(self, supply: Supply) -> None:
        if supply.trusted.module not in self.used:
            self.used[supply.trusted.module] = digest(supply.file) if supply.file else ""

    # -- lowerings -------------------------------------------------------------------------------

    def _remote(self, supply: Supply, name: str, facts: Mapping[str, Any]) -> Row:
        def handler(op: Builder, w: Roles, *tensors: Value, **settings: Any) -> Any:
            return self._lowered(supply, name, op, w, tensors, settings)

        return Row(handler, frozenset(facts["arguments"]), facts["mask"])

    def _lowered(
        self,
        supply: Supply,
        name: str,
        op: Builder,
        w: Roles,
        tensors: Sequence[Value],
        settings: Mapping[str, Any],
    ) -> Any:
        values: list[Value] = []

        def told(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                part = op.constant(part)
            if isinstance(part, Value):
                values.append(op.plain(part))
                return {"__value__": len(values) - 1}
            if isinstance(part, Mapping):
                return {str(key): told(inner) for key, inner in part.items()}
            if isinstance(part, list | tuple):
                return [told(inner) for inner in part]
            if part is None or isinstance(part, bool | int | float | str):
                return part
            raise Gap(f"an argument of type {type(part).__name__} for a trusted lowering")

        question = {
            "task": "lower",
            "name": name,
            "opset": op.graph.opset,
            "layer": name,
            "dtype": w.dtype,
            "weights": {
                role: [op.weights[t].dtype.name, list(op.weights[t].shape)]
                for role, t in w.tensors.items()
            },
            "tensors": told(list(tensors)),
            "settings": {key: told(part) for key, part in settings.items()},
            "values": [],
        }
        question["values"] = [[v.dtype, list(v.shape)] for v in values]
        answer = self._asked(supply, question)
        if answer.get("status") == "gap":
            raise Gap(f"{answer.get('gap')!s:.400}")
        what = f"the lowering of {name} in {supply.trusted.module}"
        if answer.get("status") != "done":
            raise UsageError(f"{what} failed: {answer.get('error')!s:.400}", where=w.layer)
        weights = {f"weight/{role}": tensor for role, tensor in w.tensors.items()}
        try:
            return _spliced(op, answer, values, weights)
        except plain_graph.MalformedGraphError as e:
            raise UsageError(f"{what} builds no graph: {e}", where=w.layer) from e

    # -- Keras classes ---------------------------------------------------------------------------

    def traced(
        self, layer: Layer, structure: Any, values: Sequence[tuple[Value, Value | None]]
    ) -> "Traced":
        """Return what a layer's class does, as a model of Keras's own layers.

        Args:
            layer: It has a class.
            structure: Positional and keyword arguments of the call, tensors by number.
            values: Those tensors, with their masks.

        Raises:
            Gap: It does what cannot be traced.
        """
        supply = self._with_class(layer)
        if supply is None:
            raise InternalError(f"no class for {layer.class_name}")
        self._use(supply)
        config = {k: v for k, v in layer.config.items() if k not in OLD_ARGUMENTS}
        question = {
            "task": "trace",
            "class": layer.class_name,
            "config": config | {"name": "traced"},
            "arguments": structure[0],
            "keywords": structure[1],
            "values": [
                [v.dtype, _sizes(v.shape), None if mask is None else _sizes(mask.shape)]
                for v, mask in values
            ],
        }
        answer = self._asked(supply, question)
        if answer.get("status") != "done":
            raise Gap(f"cannot be traced: {answer.get('gap')!s:.400}")
        try:
            parsed = normalised(parse(answer["model"], layer.name), KERAS_3, None)
            weights = tuple(TracedWeight(**w) for w in answer["weights"])
            return Traced(parsed, int(answer["outputs"]), tuple(answer["masks"]), weights)
        except (KeyError, TypeError, ValueError, CorruptError) as e:
            found = f"the class {layer.class_name} in {supply.trusted.module}"
            raise UsageError(f"{found} was traced to no model: {e}", where=layer.name) from e

    def _asked(self, supply: Supply, question: Mapping[str, Any]) -> dict[str, Any]:
        modules = plain([supply.trusted])
        key = json.dumps([modules, question], sort_keys=True)
        if key not in self._answers:
            what = f"the trusted module {supply.trusted.module}"
            self._answers[key] = _ask({**question, "modules": modules}, what, supply.python)
        return self._answers[key]


# -- what there is -------------------------------------------------------------------------------


def _supplies(trusted: Sequence[Trusted]) -> list[Supply]:
    """Import each module, in a child of the first Python that can, and return what they have."""
    return [_supply(t) for t in trusted]


def _supply(trusted: Trusted) -> Supply:
    other = os.environ.get(child.PYTHON_VARIABLE)
    pythons = [sys.executable, *([other] if other else [])]
    question = {"task": "list", "modules": plain([trusted])}
    answer: dict[str, Any] = {}
    for python in pythons:
        answer = _ask(question, f"the trusted module {trusted.module}", python)["modules"][0]
        lacks = str(answer.get("lacks") or "").split(".")[0]
        if "error" not in answer:
            file = answer.get("file")
            supply = Supply(
                trusted,
                Path(file) if file else None,
                python,
                answer["lowerings"],
                frozenset(answer["classes"]),
            )
            if not supply.lowerings and not supply.classes:
                raise UsageError(
                    f"--trust {trusted.module}: has neither a lowering nor a layer of Keras 3",
                    where=file,
                )
            return supply
        if lacks not in FRAMEWORKS:
            break
    option = f"--trust {trusted.module}"
    lacks = str(answer.get("lacks") or "").split(".")[0]
    if trusted.path is None and lacks == trusted.module.split(".")[0]:
        raise UsageError(f"{option}: there is no such module", expected=f"{option}=PATH")
    if lacks:
        hint = KERAS_EXTRA if lacks in FRAMEWORKS else None
        raise EnvironmentFault(f"{option}: cannot be imported: {answer['error']}", hint=hint)
    raise UsageError(f"{option}: cannot be imported: {answer['error']}", where=trusted.path)


def _ask(question: Mapping[str, Any], what: str, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="convert-trust-") as name:
        return child.ask(
            SCRIPT, Path(name), question, what=what, allowance=ALLOWANCE, python=python
        )


# -- what a lowering built -----------------------------------------------------------------------


def _spliced(
    op: Builder, answer: Mapping[str, Any], values: Sequence[Value], weights: Mapping[str, str]
) -> Any:
    """Put the nodes of an answer into the graph, and return the values that a handler would.

    Raises:
        MalformedGraphError: The answer is none.
    """
    given = [f"in/{i}" for i in range(len(values))]
    graph = plain_graph.decode(answer.get("graph"), "lowering", op.graph.opset, given, weights)
    _check(graph, op, weights)
    names: dict[str, Value] = dict(zip(given, values, strict=True))
    for name, initializer in graph.initializers.items():
        if isinstance(initializer, Weight):
            names[name] = op.weight(weights[initializer.tensor])
        elif isinstance(initializer, np.ndarray):
            names[name] = op.constant(initializer)
    for node in graph.nodes:
        known = {name: value.name for name, value in names.items()}
        made = op.node(
            node.op_type,
            [names[name] if name else None for name in node.inputs],
            [(graph.specs[n].dtype, graph.specs[n].shape) for n in node.outputs],
            attributes={k: _renamed(op, v, known) for k, v in node.attributes.items()},
            domain=node.domain,
        )
        names.update(zip(node.outputs, made, strict=True))

    outputs = [names[name] for name in graph.outputs]
    count, masks = answer.get("outputs"), answer.get("masks")
    told = [m for m in masks if m is True] if isinstance(masks, list) else []
    if not isinstance(count, int) or count < 1 or count + len(told) != len(outputs):
        raise plain_graph.MalformedGraphError("other outputs than it says")
    found = outputs[:count]
    value = found[0] if len(found) == 1 else found
    if not answer.get("decides"):
        return value
    rest = iter(outputs[count:])
    return Masked(value, [next(rest) if m is True else None for m in masks or ()])


def _check(graph: Graph, op: Builder, weights: Mapping[str, str]) -> None:
    """Have onnx look through the nodes, and hold its shapes against those that are said."""
    for node in graph.nodes:
        for name in (*node.outputs, *graph.outputs):
            if name not in graph.specs:
                raise plain_graph.MalformedGraphError(f"nothing is said of the value {name!r:.80}")
    # Weights are inputs here: their values say nothing.
    initializers = {n: i for n, i in graph.initializers.items() if isinstance(i, np.ndarray)}
    inputs = [*graph.inputs, *(n for n in graph.initializers if n not in initializers)]
    for name, initializer in graph.initializers.items():
        if isinstance(initializer, Weight):
            tensor = op.weights[weights[initializer.tensor]]
            graph.specs[name] = Spec(tensor.dtype.name, tensor.shape)
    outputs = list(dict.fromkeys(o for n in graph.nodes for o in n.outputs if o in graph.outputs))
    if not outputs:
        return  # it hands on what it was given
    alone = Graph(
        "lowering", graph.opset, graph.nodes, inputs, outputs, graph.specs, dict(initializers)
    )
    pieces = emit.model(alone, {}).pieces()
    model = b"".join(p for p in pieces if isinstance(p, bytes))
    problem = plain_graph.problem(model, graph.specs)
    if problem:
        raise plain_graph.MalformedGraphError(problem)


def _renamed(op: Builder, value: Attribute, known: Mapping[str, str]) -> Attribute:
    """Return an attribute whose graph, if it is one, has names that nothing else has."""
    if not isinstance(value, Graph):
        return value
    names = dict(known)
    made: list[str] = [*value.inputs, *(o for n in value.nodes for o in n.outputs)]
    for name in made:
        names[name] = op.unique("inner")
        if name in value.specs:
            op.graph.specs[names[name]] = value.specs[name]
    nodes = [
        Node(
            n.op_type,
            [names[i] if i else "" for i in n.inputs],
            [names[o] for o in n.outputs],
            {k: _renamed(op, v, names) for k, v in n.attributes.items()},
            op.unique(n.op_type),
            n.domain,
        )
        for n in value.nodes
    ]
    return Graph(
        op.unique("body"),
        value.opset,
        nodes,
        [names[n] for n in value.inputs],
        [names[n] for n in value.outputs],
        op.graph.specs,
    )
