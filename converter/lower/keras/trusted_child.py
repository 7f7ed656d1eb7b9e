"""The child that runs trusted modules: ``python trusted_child.py FOLDER``.

``question.json``: a task, the modules (name and path) and what the task needs.

    list    what do the modules supply: names of lowerings and of Keras layers
    lower   call a lowering: nodes, small constants and references to weights come back
    trace   call a layer's own ``call`` on Keras's symbolic tensors (`trusted_trace`)

``answer.json`` is plain data. What a module prints goes nowhere; what it raises is the answer.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if __name__ == "__main__":  # another Python may know nothing of the project
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from converter.trust import load

API = "converter.lower.keras.api"


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    tasks = {"list": listed, "lower": lowered, "trace": traced}
    answer = tasks[question["task"]](question)
    (folder / "answer.json").write_text(json.dumps(answer))


def listed(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each module what it supplies, or why it cannot be imported."""
    return {"modules": [_supplied(module, path) for module, path in question["modules"]]}


def _supplied(module: str, path: str | None) -> dict[str, Any]:
    before = set(_lowerings())
    try:
        loaded = load(module, path)
    except ModuleNotFoundError as e:
        return {"error": one_line(e), "lacks": e.name}
    except BaseException as e:  # noqa: BLE001 - the answer: exits are refused too
        return {"error": one_line(e)}
    rows = {name: row for name, row in _lowerings().items() if name not in before}
    return {
        "file": getattr(loaded, "__file__", None),
        "lowerings": {
            name: {"arguments": sorted(row.arguments), "mask": row.mask}
            for name, row in rows.items()
        },
        "classes": sorted(layer_classes(loaded)),
    }


def _lowerings() -> Mapping[str, Any]:
    api = sys.modules.get(API)
    return {} if api is None else api.LOWERINGS


def layer_classes(module: Any) -> dict[str, Any]:
    """Return the layers of Keras 3 that a module has and Keras has not, by class name."""
    keras = sys.modules.get("keras")
    base = getattr(getattr(keras, "layers", None), "Layer", None)
    if base is None:
        return {}
    classes = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base)]
    return {c.__name__: c for c in classes if c.__module__.split(".")[0] != "keras"}


def lowered(question: Mapping[str, Any]) -> dict[str, Any]:
    """Call a lowering on values known by dtype and shape, and return what it built."""
    for module, path in question["modules"]:
        load(module, path)
    from converter.lower import plain_graph
    from converter.lower.builder import Builder
    from converter.lower.graph import Graph, needed
    from converter.lower.keras.table import Gap, Masked, Roles
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
    except Gap as gap:
        return {"status": "gap", "gap": str(gap)}
    except BaseException as e:  # noqa: BLE001 - the answer
        return {"status": "raised", "error": one_line(e)}
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


def traced(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a layer's ``call`` does, as Keras's symbolic tensors record it."""
    from converter.lower.keras.trusted_trace import trace

    loaded = [load(module, path) for module, path in question["modules"]]
    classes = {k: v for module in reversed(loaded) for k, v in layer_classes(module).items()}
    try:
        return trace(question, classes)
    except BaseException as e:  # noqa: BLE001 - the answer
        return {"status": "gap", "gap": one_line(e)}


def one_line(error: BaseException) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
