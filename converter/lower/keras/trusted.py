"""Definitions in trusted modules: their code runs in child processes that return data.

A lowering answers with nodes, which are looked through and put into the graph; a class of Keras's,
or a function, with a graph of Keras's own layers and operations, which is lowered as any other
model (`converter.lower.keras.lowering`). Each is a child of its own; equal questions are asked
once. Where a file says whose a class is, that holds. Where it does not, as those of Keras 1 and 2,
what the user trusts has precedence over what Keras calls by the same name, as with its own
``custom_objects``.
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

from converter.child import process as child
from converter.child.trust import Trusted, digest, plain
from converter.extras import describe_install
from converter.lower import plain_graph
from converter.lower.builder import Builder
from converter.lower.graph import Shape
from converter.lower.keras.model import Layer, parse
from converter.lower.keras.table import (
    Roles,
    Row,
    Unsupported,
    is_authors,
    is_without_meaning,
    row_of,
)
from converter.lower.keras.traced import Traced, TracedWeight
from converter.lower.keras.trusted_nodes import splice
from converter.lower.keras.version_upgrades import normalize
from converter.lower.values import Value
from formats.errors import CorruptError, DependencyError, UnsupportedError, UsageError

SCRIPT = Path(__file__).with_name("trusted_child.py")
ALLOWANCE = child.Allowance(seconds=300)
FRAMEWORKS = ("keras", "tensorflow", "tf_keras", "jax", "torch")
# What Layer.__init__ of today's Keras no longer takes, or what says nothing to it.
OLD_ARGUMENTS = ("batch_input_shape", "input_dtype", "input_shape", "build_config")
# What a task of KerasHub's calls before its model, and not in it: tokenizers and the like.
BEFORE = {"keras_hub": "preprocessor", "keras_nlp": "preprocessor"}


@dataclass(frozen=True, slots=True)
class Supply:
    """The layers, functions and lowerings of one trusted module.

    Attributes:
        trusted: The module.
        file: Where it was imported from.
        python: Python that it runs in.
        alias: Whether ``keras`` was tf_keras there.
        lowerings: Name → arguments, rule for masks and, of a cell, what sizes its states.
        classes: Names of Keras's layers and models.
        functions: Names of what may be called.
        registered: Those of them that the module has registered with Keras.
    """

    trusted: Trusted
    file: Path | None
    python: str
    alias: bool
    lowerings: Mapping[str, Any]
    classes: frozenset[str]
    functions: frozenset[str]
    registered: frozenset[str]


@dataclass(frozen=True, slots=True)
class Subject:
    """A class or function of a module that is to be traced.

    Attributes:
        supply: The module.
        kind: ``class`` or ``function``.
        name: Its name in the module.
        config: Configuration of a class.
        where: Name of its layer, or of the layer that calls it.
    """

    supply: Supply
    kind: str
    name: str
    config: Mapping[str, Any] | None
    where: str


def _sizes(shape: Shape) -> list[int | None]:
    return [n if isinstance(n, int) else None for n in shape]


class Modules:
    """The trusted modules of one conversion.

    Attributes:
        trusted: They.
        used: Name of each that has supplied something → SHA-256 of its file, or of its folder.
    """

    def __init__(self, trusted: Sequence[Trusted], *, legacy: bool = False) -> None:
        """Import the modules.

        Args:
            trusted: Which.
            legacy: Whether the source is older than Keras 3, so that tf.keras is tf_keras.
        """
        self.trusted = tuple(trusted)
        self.used: dict[str, str] = {}
        self.legacy = legacy
        self._supplies = [_supply(t, legacy=legacy) for t in trusted]

    def arguments(self, layer: Layer) -> Mapping[str, Any]:
        """Return a layer's arguments; of a Lambda those that a trusted function is called with."""
        if layer.class_name != "Lambda" or self.row(layer) is row_of(layer.module, "Lambda"):
            return layer.config
        own = layer.config.get("arguments")
        dtype = layer.config.get("dtype")
        return {"dtype": dtype, **(own if isinstance(own, Mapping) else {})}

    def row(self, layer: Layer) -> Row | None:
        """Return the row of a layer: our own, or one whose handler asks a trusted module."""
        own = row_of(layer.module, layer.class_name)
        if layer.class_name == "Lambda":
            found = self.lowering(f"Lambda:{layer.name}")
            return found or (None if self.class_of(layer) else own)
        if own is not None and layer.module is not None:
            return own
        return self.lowering(layer.class_name) or (None if self._with_class(layer) else own)

    def lowering(self, *names: str) -> Row | None:
        """Return the row of the first of these names that a trusted module has a lowering for."""
        for name in names:
            for supply in self._supplies:
                if name in supply.lowerings:
                    self._use(supply)
                    return self._remote(supply, name, supply.lowerings[name])
        return None

    def states_of(self, layer: Layer) -> Sequence[str] | None:
        """Return which arguments of a cell that has a lowering size its states."""
        for supply in self._supplies:
            if layer.class_name in supply.lowerings:
                return tuple(supply.lowerings[layer.class_name]["states"])
        return None

    def class_of(self, layer: Layer) -> Subject | None:
        """Return the class that defines a layer, or the function that a Lambda names."""
        if layer.class_name == "Lambda":
            name = function_name(layer.config.get("function"))
            found = None if name is None else self.function(name, layer.name)
            outside = layer.config.get("own_mask") is not None
            return None if outside else found
        supply = self._with_class(layer)
        if supply is None:
            return None
        left_out = (*OLD_ARGUMENTS, BEFORE.get((layer.module or "").partition(".")[0]))
        config = {k: v for k, v in layer.config.items() if k not in left_out}
        config = config | {"name": "traced"}
        return Subject(supply, "class", layer.class_name, config, layer.name)

    def _with_class(self, layer: Layer) -> Supply | None:
        if layer.module is not None and not is_authors(layer.module):
            return None
        return next((s for s in self._supplies if layer.class_name in s.classes), None)

    def function(self, name: str, where: str, config: Any = None) -> Subject | None:
        """Return what a name of a function, with or without a package, names."""
        for known in dict.fromkeys((name, name.rpartition(">")[2])):
            for supply in self._supplies:
                if known in supply.functions:
                    return Subject(supply, "function", known, config, where)
        return None

    def is_registered(self, name: str) -> bool:
        """Return whether a module has registered a function with Keras under this name."""
        return any(name in supply.registered for supply in self._supplies)

    def _use(self, supply: Supply) -> None:
        if supply.trusted.module not in self.used:
            self.used[supply.trusted.module] = digest(supply.file) if supply.file else ""

    # -- lowerings -------------------------------------------------------------------------------

    def _remote(self, supply: Supply, name: str, facts: Mapping[str, Any]) -> Row:
        def handler(op: Builder, w: Roles, *tensors: Value, **settings: Any) -> Any:
            op.left.update(w.tensors.values())  # its author says what it reads
            return self._lower(supply, name, op, w, tensors, settings)

        return Row(
            name, handler, module=__name__, arguments=frozenset(facts["arguments"]),
            is_ignored=is_without_meaning, mask=facts["mask"],
        )  # fmt: skip

    def _lower(
        self,
        supply: Supply,
        name: str,
        op: Builder,
        w: Roles,
        tensors: Sequence[Value],
        settings: Mapping[str, Any],
    ) -> Any:
        values: list[Value] = []

        def encode(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                part = op.constant(part)
            if isinstance(part, Value):
                values.append(op.plain(part))
                return {"__value__": len(values) - 1}
            if isinstance(part, Mapping):
                return {str(key): encode(inner) for key, inner in part.items()}
            if isinstance(part, list | tuple):
                return [encode(inner) for inner in part]
            if part is None or isinstance(part, bool | int | float | str):
                return part
            raise Unsupported(f"an argument of type {type(part).__name__} for a trusted lowering")

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
            "tensors": encode(list(tensors)),
            "settings": {key: encode(part) for key, part in settings.items()},
            "values": [],
        }
        question["values"] = [[v.dtype, list(v.shape)] for v in values]
        answer = self._ask_child(supply, question)
        if answer.get("status") == "gap":
            raise Unsupported(f"{answer.get('gap')!s:.400}")
        what = f"the lowering of {name} in {supply.trusted.module}"
        if answer.get("status") != "done":
            raise UsageError(f"{what} failed: {answer.get('error')!s:.400}", where=w.layer)
        weights = {f"weight/{role}": tensor for role, tensor in w.tensors.items()}
        try:
            return splice(op, answer, values, weights)
        except plain_graph.MalformedGraphError as e:
            raise UsageError(f"{what} builds no graph: {e}", where=w.layer) from e

    # -- classes and functions -------------------------------------------------------------------

    def traced(
        self, subject: Subject, structure: Any, values: Sequence[tuple[Value, Value | None]]
    ) -> Traced:
        """Return what a class or function does, as a model of Keras's own layers.

        Args:
            subject: It.
            structure: Positional and keyword arguments of the call, tensors by index.
            values: Those tensors, with their masks.

        Raises:
            Unsupported: It does what cannot be traced.
        """
        question = {
            "task": "trace",
            **self._about(subject),
            "arguments": structure[0],
            "keywords": structure[1],
            "values": [
                [v.dtype, _sizes(v.shape), None if mask is None else _sizes(mask.shape)]
                for v, mask in values
            ],
        }
        answer = self._ask_child(subject.supply, question)
        if answer.get("status") != "done":
            raise Unsupported(f"cannot be traced: {answer.get('gap')!s:.400}")
        try:
            model = parse(answer["model"], subject.where)
            weights = tuple(TracedWeight(**w) for w in answer["weights"])
            return Traced(
                normalize(model, str(answer["version"]), None),
                int(answer["outputs"]),
                tuple(answer["masks"]),
                tuple(str(name) for name in answer["names"]),
                weights,
            )
        except (KeyError, TypeError, ValueError, CorruptError) as e:
            found = f"the {subject.kind} {subject.name} in {subject.supply.trusted.module}"
            raise UsageError(f"{found} was traced to no model: {e}", where=subject.where) from e

    def describe_inputs(self, layer: Layer) -> Any:
        """Return the inputs of a model that its class builds functionally; None of any other.

        They are in lists and dicts, as the model takes them, each with its name, batch_shape and
        dtype.

        Raises:
            UnsupportedError: The class builds no model of its configuration.
        """
        subject = self.class_of(layer)
        if subject is None:
            return None
        answer = self._ask_child(subject.supply, {"task": "inputs", **self._about(subject)})
        if answer.get("status") != "done":
            reason = f"its class builds no model of its configuration: {answer.get('gap')!s:.400}"
            raise UnsupportedError(f"model class {layer.class_name}: {reason}", where=layer.name)
        return answer["inputs"]

    def state_shapes(self, subject: Subject) -> list[tuple[int, ...]]:
        """Return the shapes of a cell's states, which begin as zeros, without the batch.

        Raises:
            Unsupported: It has none, or begins otherwise.
        """
        answer = self._ask_child(subject.supply, {"task": "states", **self._about(subject)})
        if answer.get("status") != "done":
            raise Unsupported(f"cell {subject.name}: {answer.get('gap')!s:.400}")
        return [tuple(int(n) for n in shape) for shape in answer["shapes"]]

    def _about(self, subject: Subject) -> dict[str, Any]:
        self._use(subject.supply)
        return {"subject": subject.kind, "name": subject.name, "config": subject.config}

    def _ask_child(self, supply: Supply, question: Mapping[str, Any]) -> dict[str, Any]:
        what = {"modules": plain([supply.trusted]), "legacy": self.legacy, "alias": supply.alias}
        answer = _answer(supply.trusted, {**question, **what}, supply.python)
        if answer.get("status") == "gap" and self.legacy and not supply.alias:
            # Today's Keras imports it, and lacks what it calls.
            again = _answer(supply.trusted, {**question, **what, "alias": True}, supply.python)
            return again if again.get("status") == "done" else answer
        return answer


# -- what there is -------------------------------------------------------------------------------


def function_name(function: Any) -> str | None:
    """Return the name that a serialised function has; what is bytecode has none."""
    if isinstance(function, Mapping) and isinstance(function.get("config"), str):
        return str(function["config"])
    return function if isinstance(function, str) else None


def _supply(trusted: Trusted, *, legacy: bool) -> Supply:
    """Import a module, in a child of the first Python that can, and return what it has."""
    other = os.environ.get(child.PYTHON_VARIABLE)
    answer: dict[str, Any] = {}
    for python in [sys.executable, *([other] if other else [])]:
        answer, alias = _list_contents(trusted, python, legacy=legacy)
        if "error" not in answer:
            file = answer.get("file")
            supply = Supply(
                trusted,
                Path(file) if file else None,
                python,
                alias,
                answer["lowerings"],
                frozenset(answer["classes"]),
                frozenset(answer["functions"]),
                frozenset(answer["registered"]),
            )
            if not (supply.lowerings or supply.classes or supply.functions):
                raise UsageError(
                    f"trust={trusted.module!r}: has neither a lowering nor a layer or function",
                    where=file,
                )
            return supply
        if not _lacks(answer):
            break  # it is there, and fails
    option = f"trust={trusted.module!r}"
    lacks = _lacks(answer)
    if trusted.path is None and lacks == trusted.module.split(".")[0]:
        raise UsageError(
            f"{option}: there is no such module", expected=f"trust='{trusted.module}=PATH'"
        )
    if lacks:
        hint = describe_install("tensorflow") if lacks in FRAMEWORKS else None
        raise DependencyError(f"{option}: cannot be imported: {answer['error']}", hint=hint)
    raise UsageError(f"{option}: cannot be imported: {answer['error']}", where=trusted.path)


def _list_contents(trusted: Trusted, python: str, *, legacy: bool) -> tuple[dict[str, Any], bool]:
    """Return what a module has, or why it cannot be imported; and whether keras was tf_keras."""
    question = {"task": "list", "modules": plain([trusted]), "legacy": legacy, "alias": False}
    answer: dict[str, Any] = _answer(trusted, question, python)["modules"][0]
    if not legacy or "keras" not in answer.get("error", "") or answer.get("lacks") in FRAMEWORKS:
        return answer, False
    # There is a Keras, and it has not what the module imports from it.
    again: dict[str, Any] = _answer(trusted, {**question, "alias": True}, python)["modules"][0]
    return (answer, False) if "error" in again else (again, True)


def _lacks(answer: Mapping[str, Any]) -> str:
    return str(answer.get("lacks") or "").split(".")[0]


def _answer(trusted: Trusted, question: Mapping[str, Any], python: str) -> dict[str, Any]:
    """Return what a module answers, in a child unless it has been asked before."""
    key = json.dumps([python, question], sort_keys=True)
    if key not in trusted.answers:
        trusted.answers[key] = _ask(question, f"the trusted module {trusted.module}", python)
    return trusted.answers[key]


def _ask(question: Mapping[str, Any], what: str, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="convert-trust-") as name:
        return child.ask(
            SCRIPT, Path(name), question, what=what, allowance=ALLOWANCE, python=python
        )
