"""The child that evaluates a graph in float64: ``python run_float64.py FOLDER``.

It imports nothing of the project, and nothing of the project imports it. Weights, inputs and dtypes
are widened, which is exact, and onnx's own reference evaluator computes the outputs with NumPy: the
result of the graph without the rounding of float32.

``question.json`` says:

    model     path of the ONNX file
    outputs   names of the outputs
    inputs    names of the inputs
    cases     their numbers: inputs are ``in-CASE-INPUT.npy``
    prefix    of the outputs written: ``PREFIX-CASE-OUTPUT.npy``

and ``answer.json``: ``done`` with the version of onnx, ``absent`` where onnx is not installed, or
``failed`` with the reason.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def load_sibling(name: str) -> Any:
    """Return a module that lies in this folder, which is not on the path of imports."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    try:
        onnx = importlib.import_module("onnx")
        importlib.import_module("onnx.reference")
    except ImportError as e:
        answer = {"status": "absent", "error": str(e)}
    else:
        try:
            evaluate(onnx, question, folder)
            answer = {"status": "done", "version": onnx.__version__}
        except Exception as e:  # an op that the evaluator lacks, or that fails on these inputs
            answer = {
                "status": "failed",
                "error": " ".join(f"{type(e).__name__}: {e}".split())[:300],
            }
    (folder / "answer.json").write_text(json.dumps(answer))


def evaluate(onnx: Any, question: dict[str, Any], folder: Path) -> None:
    """Compute each case, and write its outputs."""
    model = onnx.load(question["model"])
    compute_weights(onnx, model)
    Widening(onnx).graph(model.graph)
    evaluator = onnx.reference.ReferenceEvaluator(
        model, new_ops=load_sibling("recurrent_ops").define_ops()
    )
    for case in question["cases"]:
        arrays = {
            name: widen(np.load(folder / f"in-{case}-{i}.npy"))
            for i, name in enumerate(question["inputs"])
        }
        with np.errstate(all="ignore"):
            results = evaluator.run(question["outputs"], arrays)
        for i, result in enumerate(results):
            array = np.asarray(result)
            array = array.astype("U") if array.dtype.kind == "O" else array
            np.save(folder / f"{question['prefix']}-{case}-{i}.npy", array)


def compute_weights(onnx: Any, model: Any) -> None:
    """Replace the operators that compute weights of quantised values by the weights.

    What they are rounded to is a part of the model, and no error of a runtime.
    """
    types, graph = onnx.TensorProto, model.graph
    wide = {types.INT16, types.UINT16, types.INT32, types.UINT32, types.INT64, types.UINT64,
            types.FLOAT, types.FLOAT16, types.BFLOAT16, types.DOUBLE, types.BOOL, types.STRING,
            types.COMPLEX64, types.COMPLEX128}  # fmt: skip
    stored = {tensor.name: tensor for tensor in graph.initializer}
    small = {name for name, tensor in stored.items() if tensor.data_type not in wide}
    found: list[Any] = []
    others: list[Any] = []
    for node in graph.node:
        is_constant = small.intersection(node.input) and not set(node.input) - small - set(stored)
        (found if is_constant else others).append(node)
        small.update(node.output if is_constant else ())
    made = {name for node in found for name in node.output}
    read = {output.name for output in graph.output}.union(*map(names_in, others))
    outputs = sorted(made & read)
    if not outputs:
        return
    inner = onnx.helper.make_graph(
        found, "weights", [],
        [onnx.helper.make_tensor_value_info(name, types.UNDEFINED, None) for name in outputs],
        [stored[name] for name in sorted({n for node in found for n in node.input} & set(stored))],
    )  # fmt: skip
    alone = onnx.helper.make_model(inner, opset_imports=model.opset_import)
    weights = onnx.reference.ReferenceEvaluator(alone).run(outputs, {})
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in others]
    del graph.node[:]
    graph.node.extend(kept)
    for name, weight in zip(outputs, weights, strict=True):
        exact = weight if weight.dtype.kind in "biu" else weight.astype(np.float64)
        graph.initializer.append(onnx.numpy_helper.from_array(exact, name))


def names_in(node: Any) -> set[str]:
    """Return the names that a node and the graphs inside read."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            names |= names_in(inner)
        names.update(output.name for output in attribute.g.output)
    return names


def widen(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return an input as the evaluator takes it."""
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return array.astype(object) if array.dtype.kind == "U" else array


class Widening:
    """Changes a model in memory, so that all its floating point values are float64."""

    def __init__(self, onnx: Any) -> None:
        types = onnx.TensorProto
        self.onnx, self.double = onnx, types.DOUBLE
        self.narrow = {types.FLOAT, types.FLOAT16, types.BFLOAT16}

    def graph(self, graph: Any) -> None:
        """Widen a graph and the graphs inside."""
        for tensor in graph.initializer:
            self.tensor(tensor)
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            kind = value.type.tensor_type
            if value.type.HasField("tensor_type") and kind.elem_type in self.narrow:
                kind.elem_type = self.double
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == self.onnx.AttributeProto.TENSOR:
                    self.tensor(attribute.t)
                elif attribute.type == self.onnx.AttributeProto.GRAPH:
                    self.graph(attribute.g)
                elif attribute.name in ("to", "dtype") and attribute.i in self.narrow:
                    attribute.i = self.double
                elif attribute.name == "value_float":
                    exact = np.asarray(np.float32(attribute.f), np.float64)
                    attribute.CopyFrom(self.onnx.helper.make_attribute(
                        "value", self.onnx.numpy_helper.from_array(exact)
                    ))  # fmt: skip

    def tensor(self, tensor: Any) -> None:
        """Widen a constant."""
        if tensor.data_type in self.narrow:
            array = self.onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(self.onnx.numpy_helper.from_array(array, tensor.name))


if __name__ == "__main__":
    # Modules of this folder may have the names of others: it must not be on the path.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
