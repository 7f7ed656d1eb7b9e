"""The child that has torch export a graph: ``python torch_exporter.py FOLDER``.

Plain, and nothing of the project but the files beside it, so that any Python (3.10 and later) that
has torch can use it. ``question.json`` says what `torch_loading` wants to know of the source, and

    inputs     name, dtype and shape of each input, a word for a dynamic axis; none for a program
               that records its own
    values     files of example inputs, by name, where there are any
    exporters  ``export`` and ``torchscript``, in the order to try them
    opset      version of ONNX's operators

and ``answer.json`` has ``status`` and what goes with it:

    done       ``exporter``, ``versions``, ``notes``, ``axes`` that were asked for, ``model.onnx``
    absent     torch, or what its exporter needs (``lacking``), is not here
    refused    it would run code that nobody trusts
    mismatch   the state dict is not the factory's module's
    inputs     names (``parameters``) of what the program takes, where inputs are missing or others
    failed     torch does not load it, run it, or export it; ``error`` says who said what
"""

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a dynamic axis has in an example: torch takes sizes of 0 and 1 for constants, and whoever
# folds something sees by these sizes which is which.
BATCH = 2
LENGTHS = (16, 32, 64, 128, 224, 512)
BATCHES = ("batch", "batch_size", "n", "b")
LARGEST_FILE = 1 << 30  # bytes of weights; past that they stand beside the graph
# fmt: off
NOISE = (
    "no signature found", "is deprecated", "legacy TorchScript-based", "will be removed",
    "is not installed", "constant folding", "torch.onnx.utils", "Manually populate",
    "Exporting a model to ONNX with a batch_size", "Pred is a Python constant",
    "The tensor attributes self.", "A model attribute `lifted_tensor",
)
# fmt: on
DEPRECATED = (DeprecationWarning, FutureWarning, PendingDeprecationWarning)


class InputsError(Exception):
    """Inputs are missing, or others than the program takes."""


@dataclass
class Source:
    """What is exported, and on what.

    Attributes:
        loaded: As `torch_loading` returns it.
        names: Of the inputs, flat and in order.
        args: Example inputs, as the program is called.
        kwargs: Those that it is called with by name.
        axes: Name of an input → its dynamic axes, by number.
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
    missing = [m for m in ("torch", "onnx", "onnxscript") if importlib.util.find_spec(m) is None]
    if "torchscript" in exporters and "torch" not in missing and missing:
        exporters = ["torchscript"]  # which needs neither
    elif missing:
        return {"status": "absent", "lacking": missing}
    torch = importlib.import_module("torch")
    loading = _beside("torch_loading")
    logging.disable(logging.ERROR)
    answer: dict[str, Any] = {"versions": {"torch": torch.__version__}}
    torch.backends.mha.set_fastpath_enabled(False)  # an operator that no exporter knows
    try:
        loaded = loading.load(torch, question)
    except loading.RefusedError as e:
        return {**answer, "status": "refused", "error": str(e)}
    except loading.MismatchError as e:
        return {**answer, "status": "mismatch", "error": str(e)}
    except Exception as e:  # noqa: BLE001 - whatever torch, or the user's code, raises
        return {**answer, "status": "failed", "error": loading.one_line(e)}
    try:
        source = _source(torch, loading, loaded, question, folder)
    except InputsError as e:
        parameters = loading.parameters(loaded.module)
        return {
            **answer, "status": "inputs", "error": str(e), "parameters": parameters,
            "guess": guess(loaded.module),
        }  # fmt: skip
    except Exception as e:  # noqa: BLE001 - likewise
        return {**answer, "status": "failed", "error": loading.one_line(e)}
    said: list[str] = []
    said += [f"torch.export: {' and '.join(missing)} is not installed"] if missing else []
    for exporter in exporters:
        export = {"export": _export, "torchscript": _torchscript}[exporter]
        try:
            with quiet(), torch.no_grad():
                names = output_names(torch, source)
                made = export(torch, source, question["opset"], names, folder / "model.onnx")
                check(folder / "model.onnx")
        except Exception as e:  # noqa: BLE001 - likewise: there may be another exporter
            said.append(f"{CALLED[exporter]}: {reason(e)}")
            continue
        notes = [*loaded.notes, *(f"not exported by {words}" for words in said)]
        return {
            **answer, **made, "status": "done", "exporter": CALLED[exporter], "notes": notes,
            "axes": source.axes,
        }  # fmt: skip
    return {**answer, "status": "failed", "error": "; ".join(said)}


SPATIAL: Mapping[int, list[Any]] = {3: ["length"], 4: [224, 224], 5: [16, 112, 112]}
CALLED = {"export": "torch.export", "torchscript": "torch.jit"}


def reason(error: BaseException) -> str:
    """Return what torch says in one line: of a report or a traceback, what it is about."""
    text = str(error).partition("## Exception summary")[2] or str(error)
    if "Traceback of TorchScript" in text:
        text = text.rstrip().rpartition("\n")[2]
    words = " ".join(part for part in text.split() if part.isascii())
    return f"{type(error).__name__}: {words}"[:400]


# -- inputs --------------------------------------------------------------------------------------


def _source(
    torch: Any, loading: Any, loaded: Any, question: Mapping[str, Any], folder: Path
) -> Source:
    """Return what is exported, with inputs on which it runs.

    Raises:
        InputsError: They are missing or others.
    """
    if loaded.program is not None and not question["inputs"]:
        return _recorded(torch, loaded)
    specs = [dict(spec) for spec in question["inputs"]]
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
    """Return arguments by place as far as there is no gap among them, and by name from there."""
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
    """Return an example input: one that is given, or numbers of the kind that most models take."""
    dtype = getattr(torch, spec["dtype"])
    value = values.get(spec.get("value", spec["name"]))
    if value is not None:
        np = importlib.import_module("numpy")
        array = torch.from_numpy(np.load(folder / value)).to(dtype)
        return torch.cat([array] * BATCH) if array.ndim and array.shape[0] == 1 else array
    sizes = [
        n if isinstance(n, int) else BATCH if n.lower() in BATCHES else length
        for n in spec["shape"]
    ]
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=torch.float32).to(dtype)
    if dtype is torch.bool:
        return torch.ones(sizes, dtype=dtype)
    return torch.randint(0, 2, sizes, dtype=dtype)


def _recorded(torch: Any, loaded: Any) -> Source:
    """Return an exported program with the inputs that it was exported with."""
    program = loaded.program
    user = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
    else:
        nodes = {node.name: node for node in program.graph.nodes}
        found = [nodes[name].meta["val"] for name in user]
        args, kwargs = tuple(map(_filled(torch), found)), {}
    move = _tree(torch).tree_map
    args, kwargs = move(lambda v: v.cpu() if hasattr(v, "cpu") else v, (args, kwargs))
    return Source(loaded, user, tuple(args), dict(kwargs))


def _filled(torch: Any) -> Any:
    def fill(value: Any) -> Any:
        sizes = [n if isinstance(n, int) else int(n.node.hint) for n in value.shape]
        return torch.zeros(sizes, dtype=value.dtype)

    return fill


def _tree(torch: Any) -> Any:
    del torch
    return importlib.import_module("torch.utils._pytree")


def guess(module: Any) -> list[Any]:
    """Return dtype and shape of what the first tensor of a module is likely applied to."""
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
    """Return names for a program's outputs: keys where it yields a dict, else numbers."""
    result = source.loaded.module(*source.args, **source.kwargs)
    if isinstance(result, torch.Tensor):
        return ["output"]
    names = [name for name, value in flat(result) if isinstance(value, torch.Tensor)]
    return [n if not n[:1].isdigit() else f"output_{n}" for n in names]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a program returns, with the keys and numbers that lead to it."""
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
    """Return which axes of outputs are as long as dynamic ones of inputs, found by trying."""
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
    """Return the tensors of what a program returns."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [value for _, value in flat(result) if isinstance(value, torch.Tensor)]


# -- the two exporters ---------------------------------------------------------------------------


def _export(
    torch: Any, source: Source, opset: int, outputs: list[str], path: Path
) -> dict[str, Any]:
    """Export through torch.export."""
    program = source.loaded.program or exported(torch, source)
    keep_normalisations()
    made = torch.onnx.export(
        program, (), dynamo=True, opset_version=opset, input_names=source.names,
        output_names=outputs, verbose=False, optimize=True,
    )  # fmt: skip
    nbytes = sum(t.numel() * t.element_size() for t in program.state_dict.values())
    made.save(path, external_data=nbytes > LARGEST_FILE)
    return {}


def keep_normalisations() -> None:
    """Have the optimizer fold no batch normalisation: the weights shall stay the source's.

    Whoever writes a file that holds its weights folds them then, and runtimes do when they load.
    """
    with contextlib.suppress(ImportError, AttributeError):  # it has been otherwise, and may be
        rewriter: Any = importlib.import_module("onnxscript.rewriter")
        folding = importlib.import_module("onnxscript.rewriter.rules.common._fuse_batchnorm")
        known = rewriter._DEFAULT_REWRITE_RULES
        unwanted = {id(rule) for rule in folding.rules}
        rewriter._DEFAULT_REWRITE_RULES = tuple(r for r in known if id(r) not in unwanted)


def check(path: Path) -> None:
    """Raise where a file is none that a runtime would take: exporters write such, too.

    Raises:
        Exception: What onnx says of it.
    """
    if importlib.util.find_spec("onnx") is None:
        return
    checker: Any = importlib.import_module("onnx.checker")
    checker.check_model(str(path), full_check=True)


def exported(torch: Any, source: Source) -> Any:
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
    return torch.export.export(
        module, source.args, source.kwargs, dynamic_shapes=shapes, strict=False
    )


def dynamic_shapes(torch: Any, source: Source) -> Any:
    """Return which axes of each input are dynamic, as torch.export wants it said; None if none."""
    if not any(source.axes.values()):
        return None
    made = {n: torch.export.Dim(n) for axes in source.axes.values() for n in axes.values()}
    return [{i: made[n] for i, n in source.axes[name].items()} or None for name in source.names]


def _torchscript(
    torch: Any, source: Source, opset: int, outputs: list[str], path: Path
) -> dict[str, Any]:
    """Export through TorchScript: traced, or as it is."""
    if source.loaded.program is not None and any(recorded_axes(source).values()):
        raise ValueError("it would fix the dynamic sizes of an exported program")
    axes = {**source.axes, **output_axes(torch, source, outputs)}
    torch.onnx.export(
        source.loaded.module, source.args, str(path), kwargs=source.kwargs or None, dynamo=False,
        opset_version=opset, input_names=source.names, output_names=outputs, dynamic_axes=axes,
        training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, verbose=False,
    )  # fmt: skip
    return {}


def recorded_axes(source: Source) -> dict[str, dict[int, str]]:
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
    """Forget what exporters print."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _words(caught: Sequence[Any]) -> list[str]:
    """Return what was warned of, without what says nothing of the model."""
    words = []
    for warning in caught:
        text = " ".join(str(warning.message).split())[:300]
        noisy = issubclass(warning.category, DEPRECATED) or any(n in text for n in NOISE)
        if not noisy and text not in words:
            words.append(text)
    return words[:20]


def _beside(name: str) -> Any:
    """Return a module that lies beside this file, which is no place to import from."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # what torch does before it ends takes a fifth of its time
