"""The module of a graph: it runs the nodes one after the other."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from converter.write.torch.graph_module.operators import (
    NUMPY,
    TORCH,
    Given,
    NotSupportedError,
    apply,
    from_numpy,
    integers,
    load_families,
    to_tensor,
    torch,
)
from converter.write.torch.graph_module.repetition import (
    MAX_UNROLLED,
    choose,
    own_copy,
    repeat_while,
    scan,
)

onnx: Any = importlib.import_module("onnx")
for _part in ("helper", "inliner", "numpy_helper"):
    importlib.import_module(f"onnx.{_part}")
TRUE = np.ones((), dtype=bool)
LONGEST = (1 << 63) - 1  # number of iterations of a loop
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
        name_constants(graph)
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
    if isinstance(condition, np.ndarray):
        return _run_inside(branches[0] if condition.item() else branches[1], {}, values)
    captured = Captured(branches, values)

    def branch(graph: Any) -> Any:
        # A branch must not return one of its operands itself.
        return lambda *given: tuple(
            own_copy(to_tensor(v)) for v in _run_inside(graph, {}, captured.restore(given))
        )

    first, second = map(branch, branches)
    return [*choose(condition.reshape(()), (first, second), captured.given)]


class Captured:
    """The values that graphs take from around, and their own constants.

    Programs have no constants in branches and in loops: they are given them as tensors.

    Attributes:
        given: Tensors, and symbolic sizes.
    """

    def __init__(self, graphs: Sequence[Any], values: Values) -> None:
        own = {t.name: read_tensor(t) for graph in graphs for t in _inner_constants(graph)}
        self._values = values | own
        names = [n for n in (*_outer_names(graphs), *own) if self._values[n] is not None]
        self._sizes = [
            (name, at)
            for name in names
            if isinstance(self._values[name], np.ndarray)
            for at, value in enumerate(self._values[name].flat)
            if isinstance(value, torch.SymInt)
        ]
        with_sizes = {name for name, _ in self._sizes}
        self._tensors = [n for n in names if n not in with_sizes]
        tensors = (to_tensor(self._values[n]) for n in self._tensors)
        self.given = (*tensors, *(self._values[n].flat[at] for n, at in self._sizes))

    def restore(self, given: Sequence[Any]) -> Values:
        """Return all values, with these for what is captured."""
        values, count = dict(self._values), len(self._tensors)
        for name, tensor in zip(self._tensors, given, strict=False):
            if isinstance(values[name], np.ndarray):
                values[name] = values[name].view(Given)
                values[name].tensor = tensor
            else:
                values[name] = tensor
        for name in {name for name, _ in self._sizes}:
            values[name] = values[name].copy()
        for (name, at), size in zip(self._sizes, given[count:], strict=True):
            values[name].flat[at] = size
        return values


def _inner_constants(graph: Any) -> Iterator[Any]:
    """Yield the initializers of a graph and of the graphs inside."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _inner_constants(attribute.g)


def name_constants(graph: Any) -> None:
    """Make initializers of the constants in the graphs inside, for the same operands everywhere."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                name_constants(attribute.g)
                _move_constants(attribute.g)


def _move_constants(graph: Any) -> None:
    for node in [n for n in graph.node if n.op_type == "Constant"]:
        (attribute,) = node.attribute
        if attribute.type == onnx.AttributeProto.TENSOR:
            graph.initializer.append(attribute.t)
            graph.initializer[-1].name = node.output[0]
            graph.node.remove(node)


def _outer_names(graphs: Sequence[Any]) -> list[str]:
    """Return the names of values that graphs take from outside, in order."""
    found: dict[str, None] = {}
    for graph in graphs:
        own = {t.name for t in graph.initializer} | {v.name for v in graph.input}
        inner = [*walk(graph)]
        own |= {name for node in inner for name in node.output}
        own |= {v.name for node in inner for v in _inner_inputs(node)}
        names = [n for node in inner for n in node.input] + [v.name for v in graph.output]
        found |= dict.fromkeys(n for n in names if n and n not in own)
    return list(found)


def _inner_inputs(node: Any) -> Iterator[Any]:
    """Yield what the graphs of a node declare themselves."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from attribute.g.input
            yield from attribute.g.initializer


def _run_inside(graph: Any, given: Values, outer: Values) -> list[Any]:
    """Run a graph that sees the values around it; return its outputs."""
    values = {t.name: read_tensor(t) for t in graph.initializer} | outer | given
    run(graph, values)
    return [values[v.name] for v in graph.output]


def repeat(operands: Sequence[Any], attributes: Mapping[str, Any], values: Values) -> list[Any]:
    """Run a graph as often as a number says, while a condition holds."""
    body = attributes["body"]
    count, condition, *state = operands
    iterations = _read_count(count)
    collected = len(body.output) - 1 - len(state)
    if (isinstance(iterations, int) and 0 <= iterations <= MAX_UNROLLED) or (
        iterations is None and not collected
    ):
        found = _repeat_known(body, iterations, condition, state, values)
        if found is not None:
            return found
    if not collected:
        return _repeat_while(body, count, condition, state, values)
    if iterations is None or iterations == -1:
        raise NotSupportedError("a loop that collects values as often as values say")
    return _repeat_counted(body, iterations, condition, state, values)


def _read_count(count: Any) -> Any:
    """Return the number of iterations; None: without limit; -1: it is computed."""
    if count is None or is_known_value(count):
        return None if count is None else integers(count)[0]
    return -1


def is_known_value(value: Any) -> bool:
    """Return whether a value is known while the module is traced."""
    return isinstance(value, np.ndarray)


def _repeat_known(
    body: Any, iterations: int | None, condition: Any, state: list[Any], values: Values
) -> list[Any] | None:
    """Unroll the loop; None: what decides about the end is not known."""
    names = [v.name for v in body.input]
    stacked: list[list[Any]] = [[] for _ in body.output[1 + len(state) :]]
    going = TRUE if condition is None else condition
    for iteration in range(MAX_UNROLLED if iterations is None else iterations):
        if not is_known_value(going):
            return None
        if not going.item():
            break
        given = [np.array(iteration), TRUE, *state]
        going, *found = _run_inside(body, dict(zip(names, given, strict=True)), values)
        state = found[: len(state)]
        for rows, row in zip(stacked, found[len(state) :], strict=True):
            rows.append(to_tensor(row))
    else:
        if iterations is None and (not is_known_value(going) or going.item()):
            return None
    if stacked and not stacked[0]:
        raise NotSupportedError("a loop without iterations")
    return [*state, *map(torch.stack, stacked)]


def _repeat_counted(
    body: Any, iterations: Any, condition: Any, state: list[Any], values: Values
) -> list[Any]:
    """Have torch repeat the iterations, whose number a size says."""
    names = [v.name for v in body.input]
    if condition is not None and not (is_known_value(condition) and condition.item()):
        raise NotSupportedError("a loop that collects values and has a condition")
    captured = Captured([body], values)

    def step(current: Any, row: Any, around: Any) -> Any:
        given = dict(zip(names, [row[0], TRUE, *current], strict=True))
        going, *found = _run_inside(body, given, captured.restore(around))
        if not (is_known_value(going) and going.item()):
            raise NotSupportedError("a loop that collects values and has a condition")
        tensors = tuple(map(to_tensor, found))
        return tensors[: len(current)], tensors[len(current) :]

    start = tuple(map(to_tensor, state))
    final, rows = scan(step, start, (torch.arange(iterations),), captured.given)
    return [*final, *rows]


def _repeat_while(
    body: Any, count: Any, condition: Any, state: list[Any], values: Values
) -> list[Any]:
    """Have torch repeat the iterations as long as values say."""
    names = [v.name for v in body.input]
    captured = Captured([body], values)
    limit = torch.tensor(LONGEST) if count is None else to_tensor(count).reshape(())

    def is_going(iteration: Any, going: Any, limit: Any, *_: Any) -> Any:
        return going & (iteration < limit)

    def advance(iteration: Any, going: Any, limit: Any, *given: Any) -> tuple[Any, ...]:
        current, around = given[: len(state)], given[len(state) :]
        own = dict(zip(names, [iteration, going, *current], strict=True))
        found = _run_inside(body, own, captured.restore(around))
        following, *after = (own_copy(to_tensor(v)) for v in found)
        return iteration + 1, following.reshape(()), own_copy(limit), *after

    start = to_tensor(TRUE) if condition is None else to_tensor(condition).reshape(())
    first = (torch.tensor(0), start, limit, *map(to_tensor, state))
    return [*repeat_while(is_going, advance, first, captured.given)[3:]]


def run_scan(operands: Sequence[Any], attributes: Mapping[str, Any], values: Values) -> list[Any]:
    """Run a graph on each slice of sequences."""
    body, scanned = attributes["body"], attributes["num_scan_inputs"]
    state = tuple(map(to_tensor, operands[:-scanned]))
    outputs = len(body.output) - len(state)
    axes = attributes.get("scan_input_axes") or [0] * scanned
    turned = attributes.get("scan_input_directions") or [0] * scanned
    sequences = tuple(
        (s.flip(a) if is_turned else s).movedim(a, 0)
        for s, a, is_turned in zip(map(to_tensor, operands[-scanned:]), axes, turned, strict=True)
    )
    names, captured = [v.name for v in body.input], Captured([body], values)

    def step(current: Any, rows: Any, around: Any) -> Any:
        given = dict(zip(names, [*current, *rows], strict=True))
        found = tuple(map(to_tensor, _run_inside(body, given, captured.restore(around))))
        return found[: len(current)], found[len(current) :]

    final, collected = scan(step, state, sequences, captured.given)
    axes = attributes.get("scan_output_axes") or [0] * outputs
    turned = attributes.get("scan_output_directions") or [0] * outputs
    return [
        *final,
        *(
            (rows.flip(0) if is_turned else rows).movedim(0, axis)
            for rows, axis, is_turned in zip(collected, axes, turned, strict=True)
        ),
    ]


BRANCHING = {"If": choose_branch, "Loop": repeat, "Scan": run_scan}
