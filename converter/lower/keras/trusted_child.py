"""The child that runs trusted modules: ``python trusted_child.py FOLDER``.

``question.json``: a task, the modules (name and path) and what the task needs.

    list    what do the modules supply: names of lowerings, of Keras's classes and of functions
    lower   call a lowering: nodes, small constants and references to weights come back
    trace   call a layer, a cell, a model or a function on symbolic tensors (`trusted_trace`)
    inputs  the inputs of a model that its class builds from Keras's functional layers
    states  the sizes of a cell's states

``answer.json`` is plain data. What a module prints is discarded; what it raises is the answer.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

if __name__ == "__main__":  # another Python may know nothing of the project
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from converter.child.describe_error import describe_error
from converter.child.trust import load

API = "converter.lower.keras.api"


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    tasks = {
        "list": list_supplies, "lower": run_lowering, "trace": trace_code, "inputs": inputs,
        "states": states,
    }  # fmt: skip
    if question["legacy"] and find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # what tf.keras was then
    if question["alias"] and find_spec("tf_keras") is not None:
        from converter.lower.keras.trusted_alias import install

        install()
    answer = tasks[question["task"]](question)
    (folder / "answer.json").write_text(json.dumps(answer))


def list_supplies(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each module what it supplies, or why it cannot be imported."""
    return {"modules": [_list_module(module, path) for module, path in question["modules"]]}


def _list_module(module: str, path: str | None) -> dict[str, Any]:
    before = set(_lowerings())
    try:
        loaded = load(module, path)
    except ModuleNotFoundError as e:
        return {"error": describe_error(e), "lacks": e.name}
    except BaseException as e:  # noqa: BLE001 - the answer: exits are refused too
        return {"error": describe_error(e)}
    rows = {name: row for name, row in _lowerings().items() if name not in before}
    return {
        "file": getattr(loaded, "__file__", None),
        "lowerings": {
            name: {"arguments": sorted(row.arguments), "mask": row.mask, "states": row.states}
            for name, row in rows.items()
        },
        "classes": sorted(layer_classes(loaded)),
        "functions": sorted(functions(loaded)),
        "registered": sorted(name for name, _ in _list_registered()),
    }


def _lowerings() -> Mapping[str, Any]:
    api = sys.modules.get(API)
    return {} if api is None else api.LOWERINGS


KERASES = ("keras", "tf_keras")
# Whose functions and classes are nobody's own, though a module may have them by name.
OTHERS = (*KERASES, "tensorflow", "jax", "torch", "numpy", "converter", "builtins", "typing")


def _is_own(value: Any) -> bool:
    return str(getattr(_unwrap(value), "__module__", "")).split(".")[0] not in OTHERS


def _bases() -> tuple[type, ...]:
    """Return the layer class of each Keras that has been imported."""
    kerases = [sys.modules.get(name) for name in KERASES]
    found = [getattr(getattr(k, "layers", None), "Layer", None) for k in kerases]
    return tuple(base for base in found if base is not None)


def _list_registered() -> Iterator[tuple[str, Any]]:
    """Yield what has been registered with any Keras, under its full name."""
    for name in KERASES:
        saving = getattr(sys.modules.get(name), "saving", None)
        if saving is not None:
            yield from saving.get_custom_objects().items()


def layer_classes(module: Any) -> dict[str, Any]:
    """Return the layers and models that a module has and Keras has not, by class name."""
    bases = _bases()
    values = [*vars(module).values(), *(value for _, value in _list_registered())]
    classes = [v for v in values if isinstance(v, type) and issubclass(v, bases)]
    return {c.__name__: c for c in reversed(classes) if _is_own(c)}


def _has_call(value: Any) -> bool:
    """Return whether an object is a function, or a class with callable instances."""
    is_class = isinstance(value, type) and "__call__" in vars(value)
    return is_class or isinstance(_unwrap(value), FunctionType)


def _unwrap(value: Any) -> Any:
    """Return what tf.function has been put around."""
    return vars(value).get("_python_function", value) if hasattr(value, "__dict__") else value


def functions(module: Any) -> dict[str, Any]:
    """Return what a module has to call that is no layer's class: by name, and as registered."""
    bases, rows = _bases(), [row.handler for row in _lowerings().values()]
    named = {
        name: value
        for name, value in vars(module).items()
        if _is_own(value) and _has_call(value) and value not in rows
    }
    registered = {name: value for name, value in _list_registered() if _is_own(value)}
    # Layers are registered as functions are: Activation(f) in place of f.
    objects = {n: v for n, v in _list_registered() if isinstance(v, bases) and callable(v)}
    found = {**named, **objects, **registered}
    return {
        name: value
        for name, value in found.items()
        if callable(value) and not (isinstance(value, type) and issubclass(value, bases))
    }


def run_lowering(question: Mapping[str, Any]) -> dict[str, Any]:
    """Call a lowering on values known by dtype and shape, and return what it built."""
    for module, path in question["modules"]:
        load(module, path)
    from converter.lower import plain_graph
    from converter.lower.builder import Builder
    from converter.lower.graph import Graph, needed
    from converter.lower.keras.table import Masked, Roles, Unsupported
    from converter.lower.values import Value

    graph = Graph("lowering", question["opset"])
    known = {
        role: SimpleNamespace(dtype=SimpleNamespace(name=dtype), shape=tuple(shape))
        for role, (dtype, shape) in question["weights"].items()
    }
    tensors = {f"weight/{role}": spec for role, spec in known.items()}
    op = Builder(graph, tensors)  # type: ignore[arg-type]  # all that is asked of a tensor here
    values = [op.input(f"in/{i}", d, tuple(s)) for i, (d, s) in enumerate(question["values"])]
    roles = {role: f"weight/{role}" for role in known}
    w = Roles(op, question["layer"], roles, question["dtype"])
    row = _lowerings()[question["name"]]

    def filled(part: Any) -> Any:
        if isinstance(part, dict) and set(part) == {"__value__"}:
            return values[part["__value__"]]
        if isinstance(part, dict):
            return {key: filled(inner) for key, inner in part.items()}
        return [filled(inner) for inner in part] if isinstance(part, list) else part

    settings = {key: filled(part) for key, part in question["settings"].items()}
    try:
        result = row.handler(op, w, *filled(question["tensors"]), **settings)
        decides = isinstance(result, Masked)
        masks: Any = result.mask if decides else []
        outputs = result.value if decides else result
        flat = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        masks = [masks] if isinstance(masks, Value | None) else list(masks)
        for value in (*flat, *(m for m in masks if m is not None)):
            if not isinstance(value, Value):
                return {"status": "raised", "error": f"it returned {value!r:.100}, no Value"}
        flat = [op.plain(v) for v in flat]
        masks = [None if m is None else op.plain(m) for m in masks]
    except Unsupported as gap:
        return {"status": "gap", "gap": str(gap)}
    except BaseException as e:  # noqa: BLE001 - the answer
        return {"status": "raised", "error": describe_error(e)}
    named = [v for v in (*flat, *masks) if v is not None]
    graph.outputs = [v.name for v in named]
    kept = needed(graph)
    kept.specs |= {v.name: graph.specs[v.name] for v in named}
    return {
        "status": "done",
        "graph": plain_graph.encode(kept),
        "decides": decides,
        "outputs": len(flat),
        "masks": [v is not None for v in masks],
    }


def trace_code(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what code of the modules does, as symbolic tensors record it."""
    from converter.lower.keras.trusted_trace import trace

    try:
        return trace(question, _load_modules(question))
    except BaseException as e:  # noqa: BLE001 - the answer
        return {"status": "gap", "gap": describe_error(e)}


def inputs(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a model."""
    from converter.lower.keras.trusted_trace import describe_inputs

    try:
        return describe_inputs(question, _load_modules(question))
    except BaseException as e:  # noqa: BLE001 - the answer
        return {"status": "gap", "gap": describe_error(e)}


def states(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a cell's states."""
    from converter.lower.keras.trusted_trace import state_sizes

    try:
        return state_sizes(question, _load_modules(question))
    except BaseException as e:  # noqa: BLE001 - the answer
        return {"status": "gap", "gap": describe_error(e)}


def _load_modules(question: Mapping[str, Any]) -> Any:
    from converter.lower.keras.trusted_trace import Supplied

    modules = [load(module, path) for module, path in question["modules"]]
    classes, called = {}, {}
    for module in reversed(modules):
        classes.update(layer_classes(module))
        called.update(functions(module))
    return Supplied(classes, called)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
