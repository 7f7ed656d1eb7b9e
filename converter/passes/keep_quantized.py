"""Keep the weights of a quantised checkpoint small in a graph: operators compute the floats.

A graph of the floats gets, for each, the values that are stored, and the operators that make the
same floats of them: DequantizeLinear, or Gather for values that are indices of a table. The values
keep the axes of the weight, outputs first. The other way round, onnxruntime fuses DequantizeLinear
and MatMul to MatMulNBits, which rounds activations to 8 bits unless a session asks for more, and
does not round the weight to float16 as its library does.
Spec: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html (version 21: blocks and 4 bits)
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from converter.lower.element_types import element_type
from converter.lower.graph import Attribute, Graph, Node, Spec, Weight
from converter.normalise.quantized.forms import FindForm, Form
from converter.normalise.quantized.schemes import with_changes
from formats.core.bundle import Bundle, Normalisation
from formats.core.weights import Tensor

ABSENT = "the model holds it otherwise"
# Operator -> when runtimes compute the floats.
WHEN = {
    "DequantizeLinear": "onnxruntime computes the floats in each run, or with"
    " session.disable_quant_qdq=1 once when it loads the file",
    "Gather": "onnxruntime computes the floats when it loads the file",
}


def keep_quantized(
    graphs: Sequence[Graph], bundle: Bundle, find_forms: Mapping[Hashable, FindForm]
) -> Bundle:
    """Replace the floats of quantised weights in graphs by the values that are stored.

    Args:
        graphs: Graphs of the floats; changed in place.
        bundle: The floats.
        find_forms: By their identities; see `converter.normalise.quantized.forms`.

    Returns:
        The bundle with the tensors that initializers name from now on, which records what became of
        how many weights.
    """
    used = {name for graph in graphs for name in _find_weights(graph)}
    forms: dict[str, Form] = {}
    reasons: dict[str, list[str]] = {}
    for name, tensor in bundle.weights.items():
        if tensor.identity not in find_forms:
            continue
        form = find_forms[tensor.identity]() if name in used else ABSENT
        if isinstance(form, Form):
            forms[name] = form
        else:
            reasons.setdefault(form, []).append(name)
    parts: dict[str, Tensor] = {}
    for graph in graphs:
        _Writer(forms, parts).change(graph)
    kinds = Counter((form.values.dtype.name, form.operator) for form in forms.values())
    changes = [
        Normalisation(f"weights kept as {dtype} ({operator})", count, WHEN[operator])
        for (dtype, operator), count in kinds.items()
    ]
    changes += [
        Normalisation("quantised weights made floats", len(names), f"{why}: {_list(names)}")
        for why, names in reasons.items()
    ]
    weights = {name: t for name, t in bundle.weights.items() if name not in forms}
    return with_changes(replace(bundle, weights=weights | parts), changes)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _find_weights(graph: Graph) -> set[str]:
    """Return the names of the tensors that a graph and its subgraphs have as initializers."""
    found = {v.tensor for v in graph.initializers.values() if isinstance(v, Weight)}
    return found.union(*(_find_weights(body) for node in graph.nodes for body in node.bodies))


class _Writer:
    """Writes the operators that compute weights.

    Attributes:
        forms: By the name of the weight.
        parts: Tensors of those forms that are in a graph, by the names that they get.
    """

    def __init__(self, forms: Mapping[str, Form], parts: dict[str, Tensor]) -> None:
        self.forms, self.parts = forms, parts

    def change(self, graph: Graph) -> None:
        """Replace the weights of a graph and of its subgraphs."""
        for node in graph.nodes:
            for body in node.bodies:
                self.change(body)
        nodes: list[Node] = []
        for name, value in [*graph.initializers.items()]:
            if isinstance(value, Weight) and value.tensor in self.forms:
                del graph.initializers[name]
                steps = _Steps(graph, name, value.tensor, self.parts)
                nodes += steps.write(self.forms[value.tensor])
        graph.nodes[:0] = nodes


class _Steps:
    """The operators that compute one weight.

    Attributes:
        graph: The graph of the weight.
        name: Of the weight in the graph.
        tensor: Of the weight in the bundle.
        parts: See `_Writer`.
        nodes: The operators.
    """

    def __init__(self, graph: Graph, name: str, tensor: str, parts: dict[str, Tensor]) -> None:
        self.graph, self.name, self.tensor, self.parts = graph, name, tensor, parts
        self.nodes: list[Node] = []

    def write(self, form: Form) -> list[Node]:
        """Return the operators, the last of which makes the value of the weight's name."""
        values, scales = self._store("values", form.values), self._store("scales", form.scales)
        shape, dtype = form.values.shape, form.scales.dtype.name
        if form.table is None:
            inputs = [values, scales]
            if form.zeros is not None:
                inputs.append(self._store("zeros", form.zeros))
            attributes: dict[str, Attribute] = {}
            if form.block:
                attributes = {"axis": len(shape) - 1, "block_size": form.block}
            elif form.scales.shape:
                attributes = {"axis": 0}
            value = self._add("DequantizeLinear", inputs, dtype, shape, **attributes)
        else:
            table = self._store("table", form.table)
            indices = self._add("Cast", [values], "int32", shape, to=element_type("int32"))
            value = self._add("Gather", [table, indices], dtype, shape)
            value = self._add("Mul", [value, scales], dtype, shape)
        if form.factor is not None:
            factor = self._constant("factor", np.array(form.factor, dtype))
            value = self._add("Mul", [value, factor], dtype, shape)
        if form.shape and form.shape != shape:
            value, shape = self._reshape(value, dtype, shape, form.shape), form.shape
        if form.order is not None:
            order = self._store("order", form.order)
            value = self._add("Gather", [value, order], dtype, shape, axis=len(shape) - 1)
        if form.dtype.name != dtype:
            dtype = form.dtype.name
            value = self._add("Cast", [value], dtype, shape, to=element_type(dtype))
        if form.axes:
            shape = tuple(shape[axis] for axis in form.axes)
            self._add("Transpose", [value], dtype, shape, perm=[*form.axes])
        self.nodes[-1].outputs[0] = self.name
        return self.nodes

    def _reshape(self, value: str, dtype: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        count = prod(new)
        if count < prod(old):  # the last block is longer than the rest of the weight
            flat = self._constant("flat", np.array([-1]))
            value = self._add("Reshape", [value, flat], dtype, (prod(old),))
            ends = [self._constant(n, np.array([i])) for n, i in (("start", 0), ("end", count))]
            value = self._add("Slice", [value, *ends], dtype, (count,))
        return self._add("Reshape", [value, self._constant("shape", np.array(new))], dtype, new)

    def _store(self, role: str, tensor: Tensor) -> str:
        """Return the initializer of a tensor of the form."""
        part = f"{self.tensor}/{role}"
        self.parts.setdefault(part, tensor)
        return self._initialize(role, Weight(part), Spec(tensor.dtype.name, tensor.shape))

    def _constant(self, role: str, array: np.ndarray) -> str:
        return self._initialize(role, array, Spec(array.dtype.name, array.shape))

    def _initialize(self, role: str, value: Weight | np.ndarray, spec: Spec) -> str:
        name = f"{self.name}/{role}"
        self.graph.initializers[name], self.graph.specs[name] = value, spec
        return name

    def _add(
        self, op_type: str, inputs: list[str], dtype: str, shape: tuple[int, ...],
        **attributes: Attribute,
    ) -> str:  # fmt: skip
        name = f"{self.name}/{op_type}_{len(self.nodes)}"
        self.nodes.append(Node(op_type, inputs, [name], attributes, name))
        self.graph.specs[name] = Spec(dtype, shape)
        return name
