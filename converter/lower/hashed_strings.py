"""Hashes of string inputs: ONNX has no hash of strings, so the graph takes fingerprints instead.

An input of strings that is hashed is replaced by an input with the 64-bit fingerprint of each
string. Operators that move strings are copied to move the fingerprints, and lookups of strings in
a vocabulary become lookups of fingerprints. Strings with equal fingerprints count as equal.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from converter.lower.builder import Builder
from converter.lower.element_types import element_type
from converter.lower.encoded import FINGERPRINT, TEXT, Encoded, Part
from converter.lower.fingerprints import fingerprint
from converter.lower.graph import Graph, Node, Spec, needed
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

COPIES = frozenset(("Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"))
# Operators that move strings -> the positions of their string inputs; None for all.
MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(COPIES, (0,)),
    **dict.fromkeys(("Gather", "GatherND", "Compress", "Slice", "Transpose", "Expand"), (0,)),
    "ScatterND": (0, 2), "ScatterElements": (0, 2), "Where": (1, 2), "Concat": None,
}  # fmt: skip
DOMAIN = "convert"  # domain of placeholder nodes while a graph is built
MOST = 200  # string tensors; each one takes a search through all nodes


class Fingerprints:
    """The fingerprints of the string tensors of a graph, as int64, which has kernels.

    Attributes:
        names: Name of a string tensor -> name of its fingerprints.
        words: Vocabulary: strings of the graph that were hashed.
    """

    def __init__(self, op: Builder, of_input: Callable[[str], str]) -> None:
        """Set the builder, and a function that adds the fingerprints of an input as an input."""
        self._op, self._of_input = op, of_input
        self.names: dict[str, str] = {}
        self.words: set[str] = set()

    def of(self, name: str) -> str:
        """Return the name of a string tensor's fingerprints; strings may be moved, not computed.

        Raises:
            Unsupported: The strings are computed.
        """
        op, graph = self._op, self._op.graph
        if not op.is_outermost:
            raise Unsupported("hashes of strings in a loop or a branch")
        if name in self.names:
            return self.names[name]
        if len(self.names) >= MOST:
            raise Unsupported(f"hashes of more than {MOST} tensors of strings")
        known = graph.initializers.get(name)
        node = next((n for n in graph.nodes if name in n.outputs), None)
        made = op.unique("fingerprints")
        if isinstance(known, np.ndarray):
            graph.initializers[made] = self._array(known)
        elif node is None and graph.specs[name].dtype == "string":
            attributes = {"to": element_type("int64")}
            cast = Node("Cast", [self._of_input(name)], [made], dict(attributes), made)
            graph.nodes.insert(0, cast)
        elif node is None or node.op_type not in MOVES:
            raise Unsupported(
                "hashes of strings that the graph computes: ONNX has no hash of strings"
            )
        else:
            which = MOVES[node.op_type] or range(len(node.inputs))
            inputs = [self.of(n) if i in which else n for i, n in enumerate(node.inputs)]
            place = next(i for i, n in enumerate(graph.nodes) if n is node)
            copy = Node(node.op_type, inputs, [made], dict(node.attributes), made, node.domain)
            graph.nodes.insert(place + 1, copy)
        graph.specs[made] = Spec("int64", graph.specs[name].shape)
        self.names[name] = made
        return made

    def replace(self, graph: Graph) -> None:
        """Make shapes, lookups and comparisons of strings read the fingerprints.

        Raises:
            Unsupported: A string of the graph is too long for `fingerprint`.
        """
        if self.names:
            graph.nodes = [made for node in graph.nodes for made in self._replaced(graph, node)]

    def _replaced(self, graph: Graph, node: Node) -> Iterator[Node]:
        texts = [name for name in node.inputs if name in self.names]
        if node.op_type in ("Shape", "Size") and texts:
            node.inputs[0] = self.names[texts[0]]
        elif node.op_type == "LabelEncoder" and texts and "keys_strings" in node.attributes:
            keys = node.attributes.pop("keys_strings")
            assert isinstance(keys, list)
            node.attributes["keys_int64s"] = [self._signed(key) for key in keys]
            node.inputs[0] = self.names[texts[0]]
        elif node.op_type == "Equal" and texts:
            with suppress(KeyError):
                node.inputs[:] = [self._known(graph, name) for name in node.inputs]
        yield node

    def _known(self, graph: Graph, name: str) -> str:
        """Return the fingerprints of a string tensor, or of an initializer of strings."""
        known = graph.initializers.get(name)
        if name not in self.names and isinstance(known, np.ndarray):
            made = f"{name}/fingerprints"
            graph.initializers[made] = self._array(known)
            graph.specs[made] = Spec("int64", known.shape)
            self.names[name] = made
        return self.names[name]

    def _array(self, words: np.ndarray) -> np.ndarray:
        found = [self._signed(word) for word in words.reshape(-1)]
        return np.array(found, np.int64).reshape(words.shape)

    def _signed(self, word: object) -> int:
        text = word if isinstance(word, bytes) else str(word).encode()
        try:
            found = fingerprint(text)
        except ValueError as e:
            raise Unsupported(f"hashes of strings: {e}") from e
        self.words.add(text.decode(errors="replace"))
        return found - (1 << 64) if found >> 63 else found


def fingerprints(op: Builder, x: Value) -> Value:
    """Return the fingerprints (int64) of strings; `take_fingerprints` replaces the node."""
    made = [("int64", x.shape)]
    return op.node("Fingerprint64", [op.plain(x)], made, domain=DOMAIN)[0]


def take_fingerprints(op: Builder) -> None:
    """Replace the string inputs that a complete graph hashes by inputs of fingerprints.

    Raises:
        Unsupported: Hashed strings are computed, or are also read as strings.
    """
    graph, taken = op.graph, {}

    def of_input(name: str) -> str:
        taken[name] = op.late_input(f"{name}/{FINGERPRINT}", "uint64", graph.specs[name].shape)
        return taken[name]

    found = Fingerprints(op, of_input)
    for node in [n for n in graph.nodes if n.domain == DOMAIN]:
        node.inputs = [found.of(node.inputs[0])]
        node.op_type, node.domain = "Identity", ""
    found.replace(graph)
    read = {name for node in needed(graph).nodes for name in node.inputs}
    for name in sorted(read & {*taken}):
        raise Unsupported(f"input {name!r} is hashed and also read as strings")
    late = {*taken.values()}
    graph.inputs = [taken.get(name, name) for name in graph.inputs if name not in late]
    for name, made in taken.items():
        shape = graph.specs[name].shape
        part = Part(FINGERPRINT, "", "uint64", shape, made)
        words = tuple(sorted(found.words))
        graph.encoded.append(Encoded(name, TEXT, shape, bool(shape), (part,), {}, words))
