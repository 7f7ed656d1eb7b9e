"""The module of a graph: it runs the nodes one after the other."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from converter.write.torch.graph_module.operators import (
    NUMPY,
    TORCH,
    NotSupportedError,
    apply,
    from_numpy,
    integers,
    load_families,
    to_tensor,
    torch,
)

onnx: Any = importlib.import_module("onnx")
for _part in ("helper", "inliner", "numpy_helper"):
    importlib.import_module(f"onnx.{_part}")
MAX_TURNS = 512  # of a loop, which are written one after the other
STANDARD = ("", "ai.onnx", "ai.onnx.ml")  # domains
CONTROL = ("If", "Loop", "Scan")
Values = dict[str, Any]


class GraphModule(torch.nn.Module):  # type: ignore[misc]
    """A module with a graph's weights as parameters, under their names in the graph.

    Attributes:
        graph: The ONNX graph.
        as_dict: Whether several outputs are returned by name, not as a tuple.
        paths: Where each parameter is, by its name; dots separate modules.
    """

    def __init__(self, model: Any, weights: Mapping[str, str], *, as_dict: bool) -> None:
        super().__init__()
        load_families()
        graph = inline_functions(model).graph
        check(graph)
        self.graph, self.as_dict = graph, as_dict
        self.inputs = [value.name for value in graph.input]
        self.known: Values = {}
        self.weights = dict(weights)
        self.paths: dict[str, str] = {}
        for proto in graph.initializer:
            name, array = weights.get(proto.name), read_tensor(proto)
            if name is None:
                self.known[proto.name] = array
            elif name not in self.paths:
                self.paths[name] = self._register(name, from_numpy(array))

    def _register(self, name: str, tensor: Any) -> str:
        """Keep a parameter at the place of its name, where dots separate modules."""
        path, home = name, self
        parts = name.split(".")
        is_taken = any(known.startswith(f"{name}.") or name.startswith(f"{known}.")
                       for known in self.paths.values())  # fmt: skip
        if (
            not all(parts)
            or is_taken
            or (hasattr(self, parts[0]) and parts[0] not in self._modules)
        ):
            path = f"tensor_{name.replace('.', '_')}"
        *folders, last = path.split(".")
        for folder in folders:
            if folder not in home._modules:
                home.add_module(folder, torch.nn.Module())
            home = home._modules[folder]
        if tensor.is_floating_point():
            home.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            home.register_buffer(last, tensor)
        return path

    def forward(self, *given: Any) -> Any:
        """Return the graph's outputs: a tensor, or several as a dict or a tuple."""
        values: Values = dict(zip(self.inputs, given, strict=True)) | self.known
        parameters = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        values |= {own: parameters[self.paths[name]] for own, name in self.weights.items()}
        run(self.graph, values)
        outputs = {v.name: to_tensor(values[v.name]) for v in self.graph.output}
        if len(outputs) == 1:
            return next(iter(outputs.values()))
        return outputs if self.as_dict else tuple(outputs.values())


def run(graph: Any, values: Values) -> None:
    """Run the nodes of a graph; add what they give to the values."""
    for node in graph.node:
        operands = [values[name] if name else None for name in node.input]
        attributes = {a.name: read_attribute(a) for a in node.attribute}
        if node.op_type in CONTROL:
            results: Sequence[Any] = BRANCHING[node.op_type](operands, attributes, values)
        else:
            results = apply(node.op_type, operands, attributes, len(node.output))
        values.update((n, v) for n, v in zip(node.output, results, strict=False) if n)


def inline_functions(model: Any) -> Any:
    """Return a model whose operators that are not in the table are their definitions by others."""
    missing = [(n.domain, n.op_type) for n in walk(model.graph) if not is_known(n)]
    if not missing:
        return model
    versions = {o.domain: o.version for o in model.opset_import}
    for node in walk(model.graph):
        if (node.domain, node.op_type) in missing:
            write_defaults(node, versions.get(node.domain, 1))
    try:
        return onnx.inliner.inline_selected_functions(model, missing, inline_schema_functions=True)
    except RuntimeError:  # the definition needs types that the model does not record
        return model


def write_defaults(node: Any, version: int) -> None:
    """Write the default attributes of a node's operator; definitions refer to attributes."""
    if not onnx.defs.has(node.op_type, node.domain):
        return
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


# -- what there is in a graph --------------------------------------------------------------------


def check(graph: Any) -> None:
    """Check that all operators are in the table.

    Raises:
        NotSupportedError: Some are not; all of them are named.
    """
    missing = sorted(
        {f"{node.domain}.{node.op_type}".lstrip(".") for node in walk(graph) if not is_known(node)}
    )
    if missing:
        raise NotSupportedError(f"operators {', '.join(missing)}")


def is_known(node: Any) -> bool:
    """Return whether a node's operator is in the table."""
    tables = (CONTROL, TORCH, NUMPY)
    return node.domain in STANDARD and any(node.op_type in table for table in tables)


def walk(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a graph and of the graphs inside."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from walk(attribute.g)


def read_tensor(proto: Any) -> Any:
    """Return a tensor of a file as an array."""
    if proto.data_type == onnx.TensorProto.STRING:
        raise NotSupportedError("strings")
    return onnx.numpy_helper.to_array(proto)


def read_attribute(proto: Any) -> Any:
    """Return an attribute as Python has it: text, numbers, arrays, graphs."""
    value = onnx.helper.get_attribute_value(proto)
    if proto.type == onnx.AttributeProto.TENSOR:
        return read_tensor(value)
    if isinstance(value, bytes):
        return value.decode()
    if proto.type == onnx.AttributeProto.STRINGS:
        return [v.decode() for v in value]
    return (
        list(value)
        if proto.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS)
        else value
    )


# -- control flow --------------------------------------------------------------------------------


def choose_branch(
    operands: Sequence[Any], attributes: Mapping[str, Any], values: Values
) -> list[Any]:
    """Run one of two graphs; where the condition is a tensor, both are in the program."""
    condition = operands[0]
    branches = attributes["then_branch"], attributes["else_branch"]
    if isinstance(condition, np.ndarray) or not torch.compiler.is_exporting():
        chosen = branches[0] if bool(condition.item()) else branches[1]
        return _run_inside(chosen, {}, values)
    captured = [name for name in _outer_names(branches) if not isinstance(values[name], np.ndarray)]

    def branch(graph: Any) -> Any:
        def compute(*tensors: Any) -> tuple[Any, ...]:
            inside = values | dict(zip(captured, tensors, strict=True))
            # A branch must not return one of its operands itself.
            return tuple(to_tensor(v).clone() for v in _run_inside(graph, {}, inside))

        return compute

    tensors = tuple(values[name] for name in captured)
    return [*torch.cond(condition.reshape(()), *map(branch, branches), tensors)]


def _outer_names(graphs: Sequence[Any]) -> list[str]:
    """Return the names of values that graphs take from outside, in order."""
    found: dict[str, None] = {}
    for graph in graphs:
        own = {t.name for t in graph.initializer} | {v.name for v in graph.input}
        inner = [*walk(graph)]
        own |= {name for node in inner for name in node.output}
        names = [n for node in inner for n in node.input] + [v.name for v in graph.output]
        found |= dict.fromkeys(n for n in names if n and n not in own)
    return list(found)


def _run_inside(graph: Any, given: Values, outer: Values) -> list[Any]:
    """Run a graph that sees the values around it; return its outputs."""
    values = outer | {t.name: read_tensor(t) for t in graph.initializer} | given
    run(graph, values)
    return [values[v.name] for v in graph.output]


def repeat(operands: Sequence[Any], attributes: Mapping[str, Any], values: Values) -> list[Any]:
    """Run a graph as often as a known number says, while a known condition holds."""
    body = attributes["body"]
    count, condition, *state = operands
    if count is not None and not isinstance(count, np.ndarray):
        raise NotSupportedError("a loop whose number of turns depends on values")
    turns = None if count is None else integers(count)[0]
    names = [v.name for v in body.input]
    stacked: list[list[Any]] = [[] for _ in body.output[1 + len(state) :]]
    is_going, turn = condition is None or _is_true(condition), 0
    while is_going and (turns is None or turn < turns):
        if turn == MAX_TURNS:
            raise NotSupportedError(f"a loop of more than {MAX_TURNS} turns")
        given = [np.array(turn), np.array([True])[0], *state]
        going, *found = _run_inside(body, dict(zip(names, given, strict=True)), values)
        state = found[: len(state)]
        for rows, row in zip(stacked, found[len(state) :], strict=True):
            rows.append(to_tensor(row))
        is_going, turn = _is_true(going), turn + 1
    if stacked and not turn:
        raise NotSupportedError("a loop without turns")
    return [*state, *map(torch.stack, stacked)]


def _is_true(condition: Any) -> bool:
    if not isinstance(condition, np.ndarray):
        raise NotSupportedError("a loop whose end depends on values")
    return bool(condition.item())


def scan(operands: Sequence[Any], attributes: Mapping[str, Any], values: Values) -> list[Any]:
    """Run a graph on each slice of sequences, whose number is known."""
    body, scanned = attributes["body"], attributes["num_scan_inputs"]
    state, sequences = [*operands[:-scanned]], [to_tensor(v) for v in operands[-scanned:]]
    outputs = len(body.output) - len(state)
    axes = attributes.get("scan_input_axes") or [0] * scanned
    turned = attributes.get("scan_input_directions") or [0] * scanned
    sequences = [
        (s.flip(a) if is_turned else s).movedim(a, 0)
        for s, a, is_turned in zip(sequences, axes, turned, strict=True)
    ]
    count = sequences[0].shape[0]
    if not isinstance(count, int) or count > MAX_TURNS:
        raise NotSupportedError("a Scan over a dynamic or a long axis")
    names = [v.name for v in body.input]
    rows: list[list[Any]] = [[] for _ in range(outputs)]
    for turn in range(count):
        given = [*state, *(s[turn] for s in sequences)]
        found = _run_inside(body, dict(zip(names, given, strict=True)), values)
        state = found[: len(state)]
        for row, value in zip(rows, found[len(state) :], strict=True):
            row.append(to_tensor(value))
    axes = attributes.get("scan_output_axes") or [0] * outputs
    directions = attributes.get("scan_output_directions") or [0] * outputs
    return [
        *state,
        *(
            torch.stack(row[::-1] if is_turned else row, axis)
            for row, axis, is_turned in zip(rows, axes, directions, strict=True)
        ),
    ]


BRANCHING = {"If": choose_branch, "Loop": repeat, "Scan": scan}
