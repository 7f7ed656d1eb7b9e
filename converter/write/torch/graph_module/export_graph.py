"""The child that exports an ONNX graph with torch.export: ``python export_graph.py FOLDER``.

``question.json`` has

    graph      path of the ONNX file
    weights    names of the initializers that become parameters -> the parameters' names
    inputs     name, dtype and shape of each input, a name for a dynamic axis
    as_dict    whether several outputs are returned by name, not as a tuple
    root       folder of the project, which this imports
    program    name of the file to write, in the folder
    extra      names and contents of further members of the archive

and ``answer.json`` has ``status``, ``versions``, and what goes with it:

    done       ``paths`` of the parameters in the program, by their names; ``limits``: the least
               and the greatest size, or null, of the dynamic axes that torch has restricted,
               by the input's name and the axis
    absent     torch or onnx is not here
    failed     ``error`` says what there is not in torch, or why torch.export fails
"""

import importlib
import importlib.util
import json
import keyword
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

OLDEST, OPSET = 13, 18
Limits: TypeAlias = "dict[str, dict[int, tuple[int, int | None]]]"
ALWAYS_LEAST = 2  # of a dynamic axis, though programs run with one element as well
SIZES = (3, 16, 32, 64, 128, 224, 512)  # of dynamic axes: torch treats 0 and 1 as constants


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    warnings.simplefilter("ignore")
    (folder / "answer.json").write_text(json.dumps(answer(folder, question)))


def answer(folder: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """Export the graph, and say how it went."""
    missing = [m for m in ("torch", "onnx", "numpy") if importlib.util.find_spec(m) is None]
    if missing:
        return {"status": "absent", "lacking": missing}
    sys.path.append(question["root"])  # last: its site-packages may be another Python's
    torch = importlib.import_module("torch")
    about = {"versions": {"torch": torch.__version__}}
    from converter.child.describe_error import describe_error
    from converter.write.torch.graph_module.module import GraphModule

    onnx: Any = importlib.import_module("onnx")
    try:
        with torch.no_grad():
            model = read_model(onnx, question["graph"])
            module = GraphModule(model, question["weights"], as_dict=question["as_dict"]).eval()
            program, limits = export(torch, module, question["inputs"])
        for node in program.graph.nodes:  # where in our code it was made, and in which folder
            node.meta.pop("stack_trace", None)
        torch.export.save(program, folder / question["program"], extra_files=question["extra"])
    except Exception as e:  # noqa: BLE001 - whatever torch raises, or the graph is not supported
        kind = type(e).__name__
        text = str(e) if kind == "NotSupportedError" else describe_error(e)
        return {**about, "status": "failed", "error": text}
    return {**about, "status": "done", "limits": limits, "paths": module.paths}


def read_model(onnx: Any, path: str) -> Any:
    """Return a model with operators of an opset whose axes are inputs, as the table has them."""
    model = onnx.load(path)
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if any(version < OLDEST for version in versions):
        converter: Any = importlib.import_module("onnx.version_converter")
        return converter.convert_version(model, OPSET)
    return model


def export(torch: Any, module: Any, inputs: Sequence[Mapping[str, Any]]) -> tuple[Any, Limits]:
    """Return the exported program, and the limits of dynamic axes that it has."""
    wrapper = with_parameters(module, parameter_names([spec["name"] for spec in inputs]))
    axes = [[i for i, n in enumerate(s["shape"]) if isinstance(n, str)] for s in inputs]
    # torch decides which axes stay dynamic, and which relations hold between them.
    shapes = tuple(dict.fromkeys(found, torch.export.Dim.AUTO) for found in axes)
    failure: Exception | None = None
    for sizes in choose_sizes([spec["shape"] for spec in inputs]):
        examples = tuple(
            torch.zeros(
                [n if isinstance(n, int) else sizes[n] for n in spec["shape"]],
                dtype=getattr(torch, spec["dtype"]),
            )
            for spec in inputs
        )
        try:
            program = torch.export.export(wrapper, examples, dynamic_shapes=shapes, strict=False)
        except Exception as e:  # noqa: BLE001 - perhaps it takes other sizes
            failure = failure or e
            if type(e).__name__ == "NotSupportedError" or not any(axes):
                break
            continue
        return program, find_limits(program, inputs, axes)
    assert failure is not None
    raise failure


def parameter_names(names: Sequence[str]) -> list[str]:
    """Return names of parameters in Python, each once."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = f"input_{plain}" if not plain or plain[0].isdigit() else plain
        plain = f"{plain}_" if keyword.iskeyword(plain) or plain == "self" else plain
        while plain in found:
            plain += "_"
        found.append(plain)
    return found


def choose_sizes(shapes: Sequence[Sequence[int | str]]) -> Iterator[dict[str, int]]:
    """Yield sizes for the names of axes, to be tried one after the other.

    First each name has a size of its own, then all have one, for axes that a graph combines. The
    size of a sum of names is the sum of their sizes.
    """
    names = sorted({n for shape in shapes for n in shape if isinstance(n, str)})
    parts = sorted({p.strip() for name in names for p in name.split("+")})
    for least in SIZES:
        for step in (1, 0):
            sizes = {part: least + step * i for i, part in enumerate(parts)}
            yield {name: sum(sizes[p.strip()] for p in name.split("+")) for name in names}


def with_parameters(module: Any, names: Sequence[str]) -> Any:
    """Give the module's ``forward`` parameters of these names, which an exported program keeps."""
    source = f"def forward(self, {', '.join(names)}):\n    return run(self, {', '.join(names)})\n"
    scope: dict[str, Any] = {"run": type(module).forward}
    exec(source, scope)  # noqa: S102 - of names that are identifiers, which a signature needs
    kind = type("GraphModule", (type(module),), {"forward": scope["forward"]})
    module.__class__ = kind
    return module


def find_limits(
    program: Any, inputs: Sequence[Mapping[str, Any]], axes: Sequence[Sequence[int]]
) -> Limits:
    """Return the least and the greatest sizes of the dynamic axes that a program restricts."""
    nodes = {node.name: node for node in program.graph.nodes}
    specs = program.graph_signature.input_specs
    user = [s.arg.name for s in specs if s.kind.name == "USER_INPUT"]
    limits: Limits = {}
    for name, spec, dynamic in zip(user, inputs, axes, strict=True):
        shape = nodes[name].meta["val"].shape
        for axis in dynamic:
            least, greatest = find_range(program, shape[axis])
            if least > ALWAYS_LEAST or greatest is not None:
                limits.setdefault(spec["name"], {})[axis] = (least, greatest)
    return limits


def find_range(program: Any, size: Any) -> tuple[int, int | None]:
    """Return the least and the greatest value of a size; ``None``: there is none."""
    if isinstance(size, int):
        return size, size
    known = program.range_constraints.get(size.node.expr)
    if known is None:  # a sum of sizes
        return 0, None
    greatest = int(known.upper) if known.upper.is_Integer else None
    return int(known.lower), greatest


if __name__ == "__main__":
    # Modules of this file's folder must not shadow others of the same name.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # torch's cleanup takes a fifth of the time
