"""The child that has torch export a graph: ``python torch_exporter.py FOLDER``.

It imports nothing of the project but the files in this folder, so that any Python (3.10 and later)
with torch can run it. ``question.json`` has what `torch_loading` needs to load the source, and

    inputs     name, dtype and shape of each input, a name for a dynamic axis; none for a program
               that records its own
    values     files of example inputs, by name, where there are any
    fixed      whether height and width of images are fixed at the model's own
    exporters  ``export``, ``torchscript`` and ``program``, in the order to try them
    opset      version of ONNX's operators

and ``answer.json`` has ``status`` and what goes with it:

    done       ``exporter``, ``versions``, ``notes`` and ``graphs``: of each its ``name`` and the
               ``axes`` that were asked for. Its file is ``NAME.onnx`` (`UNNAMED` where it has no
               name); of ``program`` it is ``NAME.pt2``, and there are other names of its
               ``inputs`` and the names of its ``outputs``
    absent     torch, or what its exporter needs (``lacking``), is not here
    refused    it would run untrusted code
    mismatch   the state dict does not fit the factory's module
    unserved   the model of a folder is not computed from plain inputs
    inputs     inputs are missing or do not fit; ``parameters`` has the program's
    failed     torch does not load it, run it, or export it; ``error`` says why
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Sizes of dynamic axes in examples: torch treats sizes of 0 and 1 as constants, and constant
# folding must be able to tell axes apart by their sizes.
BATCH = 2
LENGTHS = (16, 32, 64, 128, 224, 512)
# Lengths of axes of which a program takes many: torch.export fixes what becomes 1 inside of it.
USUAL = {"samples": 8000}
BATCHES = ("batch", "batch_size", "n", "b")
LARGEST_FILE = 1 << 30  # bytes of weights; larger ones are in a file of their own
# fmt: off
NOISE = (
    "no signature found", "is deprecated", "legacy TorchScript-based", "will be removed",
    "is not installed", "constant folding", "torch.onnx.utils", "Manually populate",
    "Exporting a model to ONNX with a batch_size", "Pred is a Python constant",
    "The tensor attributes self.", "A model attribute `lifted_tensor",
)
# fmt: on
UNNAMED = "model"  # stem of the file of the only program
# Form of a folder -> the package that loads it.
LIBRARIES = {
    "hf_config": "transformers", "timm_config": "timm", "diffusers_config": "diffusers",
    "sentence_transformers": "sentence_transformers",
}  # fmt: skip
DEPRECATED = (DeprecationWarning, FutureWarning, PendingDeprecationWarning)


class InputsError(Exception):
    """Inputs are missing, or are not the program's."""


@dataclass
class Source:
    """A source to export, with example inputs.

    Attributes:
        loaded: As `torch_loading` returns it.
        names: Of the inputs, flat and in order.
        args: Positional example inputs.
        kwargs: Example inputs that are passed by name.
        axes: Name of an input → its dynamic axes, by index.
    """

    loaded: Any
    names: list[str]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, dict[int, str]] = field(default_factory=dict)


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    answer: dict[str, Any] = {"python": sys.version.split()[0]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer.update(_answered(folder, question))
    answer["notes"] = [*answer.get("notes", ()), *_words(caught)]
    (folder / "answer.json").write_text(json.dumps(answer))


def _answered(folder: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    exporters = list(question["exporters"])
    library = LIBRARIES.get(question["form"])
    needed = ["torch", *([library] if library else [])]
    needed += [] if exporters == ["program"] else ["onnx", "onnxscript"]
    missing = [m for m in needed if importlib.util.find_spec(m) is None]
    if "torchscript" in exporters and "torch" not in missing and missing:
        exporters = ["torchscript"]  # which needs neither
    elif missing:
        return {"status": "absent", "lacking": missing}
    torch = importlib.import_module("torch")
    loading = _beside("torch_loading")
    describe_error = _beside("../child/describe_error").describe_error
    logging.disable(logging.ERROR)
    answer: dict[str, Any] = {"versions": {"torch": torch.__version__}}
    if library:
        answer["library"] = f"{library} {importlib.metadata.version(library)}"
    torch.backends.mha.set_fastpath_enabled(False)  # an operator that no exporter knows
    try:
        loaded = loading.load(torch, question)
    except loading.RefusedError as e:
        return {**answer, "status": "refused", "error": str(e)}
    except loading.MismatchError as e:
        return {**answer, "status": "mismatch", "error": str(e)}
    except loading.UnservedError as e:
        return {**answer, "status": "unserved", "error": str(e)}
    except Exception as e:  # noqa: BLE001 - whatever torch, or the user's code, raises
        return {**answer, "status": "failed", "error": describe_error(e)}
    said = [f"torch.export: {' and '.join(missing)} is not installed"] if missing else []
    graphs = []
    for part in (loaded, *loaded.others):
        try:
            source = _source(torch, loading, part, question, folder)
        except InputsError as e:
            parameters = loading.parameters(part.module)
            return {
                **answer, "status": "inputs", "error": str(e), "parameters": parameters,
                "guess": guess(part.module),
            }  # fmt: skip
        except Exception as e:  # noqa: BLE001 - likewise
            return {**answer, "status": "failed", "error": describe_error(e)}
        found = _exported(torch, source, exporters, question["opset"], folder, said)
        if found is None:
            error = "\n  ".join(["", *said] if len(said) > 1 else said)
            return {**answer, "status": "failed", "error": error}
        graphs.append(found)
    notes = [*loaded.notes, *(f"not exported by {words}" for words in said)]
    called = CALLED[graphs[0].pop("exporter")]
    return {**answer, "status": "done", "exporter": called, "notes": notes, "graphs": graphs}


def _exported(
    torch: Any,
    source: Source,
    exporters: Sequence[str],
    opset: int,
    folder: Path,
    said: list[str],
) -> dict[str, Any] | None:
    """Export a program by the first exporter that can; append to ``said`` why others cannot."""
    name = source.loaded.name
    for exporter in exporters:
        try:
            with quiet(), torch.no_grad():
                names = output_names(torch, source)
                path = folder / f"{name or UNNAMED}.onnx"
                made = EXPORTERS[exporter](torch, source, opset, names, path)
        except Exception as e:  # noqa: BLE001 - whatever it raises: there may be another exporter
            said.append(f"{name} {CALLED[exporter]}: {reason(e)}".lstrip())
            continue
        return {**made, "name": name, "axes": source.axes, "exporter": exporter}
    return None


SPATIAL: Mapping[int, list[Any]] = {3: ["length"], 4: [224, 224], 5: [16, 112, 112]}
CALLED = {"export": "torch.export", "torchscript": "torch.jit", "program": "torch.export"}


def reason(error: BaseException) -> str:
    """Return an error as one line: of a report or a traceback, its summary."""
    text = str(error).partition("## Exception summary")[2] or str(error)
    if "Traceback of TorchScript" in text:
        text = text.rstrip().rpartition("\n")[2]
    words = " ".join(part for part in text.split() if part.isascii())
    return f"{type(error).__name__}: {words}"[:400]


# -- inputs --------------------------------------------------------------------------------------


def _source(
    torch: Any, loading: Any, loaded: Any, question: Mapping[str, Any], folder: Path
) -> Source:
    """Return the source with example inputs on which it runs.

    Raises:
        InputsError: They are missing, or are not the program's.
    """
    if loaded.program is not None and not question["inputs"]:
        return _recorded(torch, loaded)
    specs = [dict(spec) for spec in question["inputs"] or loaded.inputs]
    for spec in specs if question.get("fixed") else ():
        own = {name: size for name, (_, size) in spec.get("sizes", {}).items()}
        spec["shape"] = [own.get(n, n) for n in spec["shape"]]
    if not specs:
        raise InputsError("it does not record its inputs")
    parameters = loading.parameters(loaded.module)
    if len(specs) == 1 and not specs[0]["name"]:  # of an example that does not name it
        specs[0].update(name=parameters[0] if parameters else "input", value="")
    names = [spec["name"] for spec in specs]
    unknown = [n for n in names if n not in parameters]
    if unknown and parameters:
        raise InputsError(f"it has no input {unknown[0]!r}")
    ordered = sorted(specs, key=lambda s: parameters.index(s["name"])) if parameters else specs
    axes = {
        s["name"]: {i: n for i, n in enumerate(s["shape"]) if isinstance(n, str)} for s in ordered
    }
    torch.manual_seed(0)
    failure: Exception | None = None
    for length in LENGTHS:
        args = [
            example(torch, spec, length, question.get("values", {}), folder) for spec in ordered
        ]
        by_place, by_name = _bound(ordered, args, parameters)
        try:
            with quiet(), torch.no_grad():
                loaded.module(*by_place, **by_name)
        except Exception as e:  # noqa: BLE001 - perhaps it takes other sizes
            failure = failure or e
            if not any(n not in BATCHES for known in axes.values() for n in known.values()):
                break
            continue
        return Source(loaded, [s["name"] for s in ordered], by_place, by_name, axes)
    assert failure is not None
    raise InputsError(f"it does not run on them: {reason(failure)}") from failure


def _bound(
    specs: Sequence[Mapping[str, Any]], args: Sequence[Any], parameters: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return leading arguments by position, and those after a missing one by name."""
    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    for spec, value in zip(specs, args, strict=True):
        at = len(by_place)
        if not parameters or (not by_name and parameters[at] == spec["name"]):
            by_place.append(value)
        else:
            by_name[spec["name"]] = value
    return tuple(by_place), by_name


def example(
    torch: Any, spec: Mapping[str, Any], length: int, values: Mapping[str, str], folder: Path
) -> Any:
    """Return an example input: a recorded one, or values that most models accept."""
    dtype = getattr(torch, spec["dtype"])
    value = values.get(spec.get("value", spec["name"]))
    if value is not None:
        np = importlib.import_module("numpy")
        array = torch.from_numpy(np.load(folder / value)).to(dtype)
        return torch.cat([array] * BATCH) if array.ndim and array.shape[0] == 1 else array
    own = {name: size for name, (size, _) in spec.get("sizes", {}).items()}
    sizes = [
        n if isinstance(n, int)
        else BATCH if n.lower() in BATCHES
        else own.get(n, USUAL.get(n, length * (1 + n.count("+"))))
        for n in spec["shape"]
    ]  # fmt: skip
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=torch.float32).to(dtype)
    if dtype is torch.bool:
        return torch.ones(sizes, dtype=dtype)
    return torch.randint(0, spec.get("high", 2), sizes, dtype=dtype)


def _recorded(torch: Any, loaded: Any) -> Source:
    """Return an exported program with the inputs that it was exported with."""
    program = loaded.program
    user = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
    else:
        nodes = {node.name: node for node in program.graph.nodes}
        found = [nodes[name].meta["val"] for name in user]
        args, kwargs = tuple(map(_fill(torch), found)), {}
    move = _tree(torch).tree_map
    args, kwargs = move(lambda v: v.cpu() if hasattr(v, "cpu") else v, (args, kwargs))
    return Source(loaded, user, tuple(args), dict(kwargs))


def _fill(torch: Any) -> Any:
    def fill(value: Any) -> Any:
        sizes = [n if isinstance(n, int) else int(n.node.hint) for n in value.shape]
        return torch.zeros(sizes, dtype=value.dtype)

    return fill


def _tree(torch: Any) -> Any:
    del torch
    return importlib.import_module("torch.utils._pytree")


def guess(module: Any) -> list[Any]:
    """Return the likely dtype and shape of a module's input, from its first weight."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.ndim in (3, 4, 5) and name.endswith("weight"):
            return ["float32", ["batch", tensor.shape[1], *SPATIAL[tensor.ndim]]]
        if tensor.ndim == 2 and any(w in name for w in ("emb", "wte", "token")):
            return ["int64", ["batch", "sequence"]]
        if tensor.ndim == 2:
            return [str(tensor.dtype).removeprefix("torch."), ["batch", tensor.shape[1]]]
    return ["float32", ["batch", 3, 224, 224]]


# -- outputs -------------------------------------------------------------------------------------


def output_names(torch: Any, source: Source) -> list[str]:
    """Return names for a program's outputs: keys if it returns a dict, else indices."""
    result = source.loaded.module(*source.args, **source.kwargs)
    if isinstance(result, torch.Tensor):
        return ["output"]
    names = [name for name, value in flat(result) if isinstance(value, torch.Tensor)]
    return [n if not n[:1].isdigit() else f"output_{n}" for n in names]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values that a program returns, with their paths of keys and indices."""
    if hasattr(value, "items"):
        pairs: Any = value.items()
    elif isinstance(value, (tuple, list)):
        pairs = enumerate(value)
    else:
        if value is not None:
            yield name, value
        return
    for key, item in pairs:
        yield from flat(item, f"{name}.{key}" if name else str(key))


def output_axes(torch: Any, source: Source, names: list[str]) -> dict[str, dict[int, str]]:
    """Return the axes of outputs that have the sizes of dynamic axes of inputs, by running it."""
    found: dict[str, dict[int, str]] = {}
    values = dict(zip(source.names, (*source.args, *source.kwargs.values()), strict=True))
    before = [v.shape for v in tensors(torch, source.loaded.module(*source.args, **source.kwargs))]
    for axis in sorted({a for axes in source.axes.values() for a in axes.values()}):
        longer = dict(values)
        size = 0
        for name, axes in source.axes.items():
            for i in (i for i, a in axes.items() if a == axis):
                size = values[name].shape[i]
                longer[name] = torch.cat([longer[name], longer[name].narrow(i, 0, 1)], i)
        places = len(source.args)
        given = [*longer.values()]
        named = dict(zip(source.kwargs, given[places:], strict=True))
        try:
            result = source.loaded.module(*given[:places], **named)
        except Exception:  # noqa: BLE001, S112 - it takes no such size: the axis stays unnamed
            continue
        after = [v.shape for v in tensors(torch, result)]
        for name, old, new in zip(names, before, after, strict=False):
            for i, (m, n) in enumerate(zip(old, new, strict=False)):
                if (m, n) == (size, size + 1):
                    found.setdefault(name, {})[i] = axis
    return found


def tensors(torch: Any, result: Any) -> list[Any]:
    """Return the tensors in a program's result."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [value for _, value in flat(result) if isinstance(value, torch.Tensor)]


# -- the two exporters ---------------------------------------------------------------------------


def _export(
    torch: Any, source: Source, opset: int, outputs: list[str], path: Path
) -> dict[str, Any]:
    """Export through torch.export."""
    program = source.loaded.program or export_module(torch, source)
    keep_normalisations()
    made = torch.onnx.export(
        program, (), dynamo=True, opset_version=opset, input_names=source.names,
        output_names=outputs, verbose=False, optimize=True,
    )  # fmt: skip
    nbytes = sum(t.numel() * t.element_size() for t in program.state_dict.values())
    made.save(path, external_data=nbytes > LARGEST_FILE)
    check(path)
    return {}


def _program(
    torch: Any, source: Source, opset: int, outputs: list[str], path: Path
) -> dict[str, Any]:
    """Save what torch.export makes of a module: it becomes a graph elsewhere."""
    del opset
    torch.export.save(export_module(torch, source), path.with_suffix(".pt2"))
    renamed = {s["name"]: s["called"] for s in source.loaded.inputs if "called" in s}
    return {"inputs": renamed, "outputs": outputs}


def keep_normalisations() -> None:
    """Turn off the folding of batch normalization, so that the weights stay the source's.

    Passes fold it when a self-contained file is written, and runtimes when they load one.
    """
    with contextlib.suppress(
        ImportError, AttributeError
    ):  # private, and different in other versions
        rewriter: Any = importlib.import_module("onnxscript.rewriter")
        folding = importlib.import_module("onnxscript.rewriter.rules.common._fuse_batchnorm")
        known = rewriter._DEFAULT_REWRITE_RULES
        unwanted = {id(rule) for rule in folding.rules}
        rewriter._DEFAULT_REWRITE_RULES = tuple(r for r in known if id(r) not in unwanted)


def check(path: Path) -> None:
    """Check a file with onnx: exporters write invalid ones, too.

    Raises:
        Exception: The error of onnx's checker.
    """
    if importlib.util.find_spec("onnx") is None:
        return
    checker: Any = importlib.import_module("onnx.checker")
    checker.check_model(str(path), full_check=True)


def export_module(torch: Any, source: Source) -> Any:
    """Return a module as an exported program.

    Raises:
        TypeError: It is a TorchScript program, which torch.export does not take.
    """
    module = source.loaded.module
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("it takes no TorchScript program")
    shapes = dynamic_shapes(torch, source)
    if shapes is not None:
        places = len(source.args)
        named = dict(zip(source.kwargs, shapes[places:], strict=True))
        parameters = [*inspect.signature(module.forward).parameters][:places]
        shapes = {**dict(zip(parameters, shapes, strict=False)), **named}
    with _beside("loops").as_scans(module):
        return _beside("free_axes").export(torch, module, source.args, source.kwargs, shapes)


def dynamic_shapes(torch: Any, source: Source) -> Any:
    """Return the dynamic axes of each input in torch.export's format; None if there are none."""
    if not any(source.axes.values()):
        return None
    names = {n for axes in source.axes.values() for n in axes.values()}
    made = {n: torch.export.Dim(re.sub(r"\W+", "_", n)) for n in sorted(names)}
    return [{i: made[n] for i, n in source.axes[name].items()} or None for name in source.names]


def _torchscript(
    torch: Any, source: Source, opset: int, outputs: list[str], path: Path
) -> dict[str, Any]:
    """Export through TorchScript, tracing where necessary."""
    if source.loaded.program is not None and any(find_dynamic_axes(source).values()):
        raise ValueError("it would fix the dynamic sizes of an exported program")
    axes = {**source.axes, **output_axes(torch, source, outputs)}
    torch.onnx.export(
        source.loaded.module, source.args, str(path), kwargs=source.kwargs or None, dynamo=False,
        opset_version=opset, input_names=source.names, output_names=outputs, dynamic_axes=axes,
        training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, verbose=False,
    )  # fmt: skip
    check(path)
    return {}


def find_dynamic_axes(source: Source) -> dict[str, dict[int, str]]:
    """Return the dynamic axes of an exported program's inputs."""
    nodes = {node.name: node for node in source.loaded.program.graph.nodes}
    return {
        name: {
            i: str(n) for i, n in enumerate(nodes[name].meta["val"].shape) if not isinstance(n, int)
        }
        for name in source.names
    }


# -- what is printed -----------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard what exporters print."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _words(caught: Sequence[Any]) -> list[str]:
    """Return the warnings that are about the model."""
    words = []
    for warning in caught:
        text = " ".join(str(warning.message).split())[:300]
        noisy = issubclass(warning.category, DEPRECATED) or any(n in text for n in NOISE)
        if not noisy and text not in words:
            words.append(text)
    return words[:20]


def _beside(name: str) -> Any:
    """Return a module of a path from this file's folder, which is not on the import path."""
    path = Path(__file__).parent / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


EXPORTERS = {"export": _export, "torchscript": _torchscript, "program": _program}

if __name__ == "__main__":
    # Modules of this file's folder must not shadow others of the same name.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # torch's cleanup takes a fifth of the time
