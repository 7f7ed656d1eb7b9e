"""Inline the local functions of a model.

Names inside a function are made unique, references to the function's attributes are replaced by the
attributes of the call, and a function's constants become initializers of the calling graph.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/docs/IR.md#model-local-functions
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from converter.lower.graph import Attribute, Graph, Node, free_names
from converter.lower.onnx.attributes import Reference
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

Key = tuple[str, str, str]  # domain, name, overload


@dataclass(slots=True)
class Call(Node):
    """A node that calls a local function of the model."""

    key: Key = ("", "", "")


@dataclass(frozen=True, slots=True)
class Function:
    """A local function of the model.

    Attributes:
        key: Domain, name and overload, by which nodes call it.
        body: Its nodes, constants, inputs and outputs.
        defaults: Default values of attributes that a call may omit.
    """

    key: Key
    body: Graph
    defaults: Mapping[str, Attribute] = field(default_factory=dict)


def inline_functions(graph: Graph, functions: Mapping[Key, Function], limits: Limits) -> Graph:
    """Return a graph with all function calls inlined.

    Raises:
        CorruptError: A function calls itself, or is called with too many inputs or outputs.
        LimitError: There would be too many nodes.
    """
    inliner = _Inliner(functions, limits, _all_names(graph))
    return inliner.graph(graph, ())


def _all_names(graph: Graph) -> set[str]:
    names = free_names(graph) | {*graph.inputs, *graph.initializers, *graph.specs}
    for node in graph.nodes:
        names.update(node.outputs)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                names |= _all_names(value)
    return names


class _Inliner:
    """Inlines the functions of one model."""

    def __init__(self, functions: Mapping[Key, Function], limits: Limits, taken: set[str]) -> None:
        self.functions = functions
        self.limits = limits
        self.taken = taken
        self.left = limits.max_nodes

    def graph(self, graph: Graph, inside: tuple[Key, ...]) -> Graph:
        """Return a graph without calls; ``inside`` are the functions that contain it."""
        made = replace(graph, nodes=[], initializers=dict(graph.initializers))
        self.add(made, graph.nodes, inside)
        return made

    def add(self, graph: Graph, nodes: Sequence[Node], inside: tuple[Key, ...]) -> None:
        """Append nodes to a graph, with calls replaced by the nodes of their functions."""
        for node in nodes:
            self.left -= 1
            if self.left < 0:
                raise LimitError(f"more than {self.limits.max_nodes} nodes, functions inlined")
            for name, value in node.attributes.items():
                if isinstance(value, Graph):
                    node.attributes[name] = self.graph(value, inside)
            if isinstance(node, Call):
                if node.key in inside:
                    raise CorruptError(f"the function {node.key[1]!r} calls itself")
                self.add(graph, self.expanded(graph, node), (*inside, node.key))
            else:
                graph.nodes.append(node)

    def expanded(self, graph: Graph, call: Call) -> list[Node]:
        """Return the nodes that replace a call, with the names of the calling graph."""
        function = self.functions[call.key]
        body = function.body
        if len(call.inputs) > len(body.inputs) or len(call.outputs) > len(body.outputs):
            raise CorruptError(
                f"a call of {call.key[1]!r} with {len(call.inputs)} inputs and "
                f"{len(call.outputs)} outputs; it has {len(body.inputs)} and {len(body.outputs)}"
            )
        prefix = call.name or next((o for o in call.outputs if o), call.op_type)
        given = dict.fromkeys(body.inputs, "")
        given.update(zip(body.inputs, call.inputs, strict=False))
        names = {"": "", **given}
        handed_on: list[Node] = []
        for inner, outer in zip(body.outputs, call.outputs, strict=False):
            if inner in names:  # an input, or a value that is an output twice
                handed_on.append(
                    Node("Identity", [names[inner]], [outer]) if outer else Node("", [], [])
                )
            elif outer:
                names[inner] = outer
        attributes = {**function.defaults, **call.attributes}
        for name, value in body.initializers.items():
            graph.initializers[self.renamed(name, names, prefix)] = value
            graph.specs[names[name]] = body.specs[name]
        nodes = [self.copied(node, names, prefix, attributes) for node in body.nodes]
        return [*nodes, *(n for n in handed_on if n.op_type)]

    def copied(
        self, node: Node, names: dict[str, str], prefix: str, attributes: Mapping[str, Attribute]
    ) -> Node:
        """Return a copy of a function's node, renamed and with the attributes of a call."""
        found: dict[str, Attribute] = {}
        for name, value in node.attributes.items():
            if isinstance(value, Reference):
                if value.name in attributes:  # a call may omit an attribute without a default
                    found[name] = attributes[value.name]
            elif isinstance(value, Graph):
                found[name] = self.copied_graph(value, names, prefix, attributes)
            else:
                found[name] = value
        return replace(
            node,
            inputs=[self.renamed(n, names, prefix) for n in node.inputs],
            outputs=[self.renamed(n, names, prefix) for n in node.outputs],
            attributes=found,
            name=f"{prefix}/{node.name}" if node.name else "",
        )

    def copied_graph(
        self, graph: Graph, names: dict[str, str], prefix: str, attributes: Mapping[str, Attribute]
    ) -> Graph:
        """Return a copy of a subgraph of a function, renamed likewise."""

        def rename(name: str) -> str:
            return self.renamed(name, names, prefix)

        nodes = [self.copied(node, names, prefix, attributes) for node in graph.nodes]
        return replace(
            graph,
            nodes=nodes,
            inputs=[rename(n) for n in graph.inputs],
            outputs=[rename(n) for n in graph.outputs],
            specs={rename(n): s for n, s in graph.specs.items()},
            initializers={rename(n): v for n, v in graph.initializers.items()},
        )

    def renamed(self, name: str, names: dict[str, str], prefix: str) -> str:
        """Return the name in the calling graph for a name of a function."""
        found = names.get(name)
        if found is None:
            found, number = f"{prefix}/{name}", 1
            while found in self.taken:
                found, number = f"{prefix}/{name}_{number}", number + 1
            names[name] = found
            self.taken.add(found)
        return found
