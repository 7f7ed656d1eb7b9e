"""Strings that are hashed: ONNX has no hash, so the input is each text's fingerprint instead.

What moves strings about moves fingerprints alike, and what looks strings up among words looks their
fingerprints up among those of the words. Two strings of one fingerprint are one text then, which of
2^64 fingerprints happens to no vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from converter.lower.builder import element_type
from converter.lower.fingerprints import fingerprint
from converter.lower.graph import Graph, Node, Spec
from converter.lower.tf.context import Context
from converter.lower.unsupported import Unsupported

COPIES = frozenset(("Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"))
# What moves strings about -> which of its inputs these are; None for all.
MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(COPIES, (0,)),
    **dict.fromkeys(("Gather", "GatherND", "Compress", "Slice", "Transpose", "Expand"), (0,)),
    "ScatterND": (0, 2), "ScatterElements": (0, 2), "Where": (1, 2), "Concat": None,
}  # fmt: skip
MOST = 200  # strings: for each all nodes are looked at


class Fingerprints:
    """The fingerprints of strings in a graph, as signed numbers: for these there are kernels.

    Attributes:
        names: Strings -> their fingerprints.
        words: Strings that the graph compares them with.
    """

    def __init__(self, op: Context, of_input: Callable[[str], str]) -> None:
        """Take the builder, and what makes an input's fingerprints an input."""
        self._op, self._of_input = op, of_input
        self.names: dict[str, str] = {}
        self.words: set[str] = set()

    def of(self, name: str) -> str:
        """Return the name of the fingerprints of strings that are an input, or some of one.

        Raises:
            Unsupported: They are computed.
        """
        op, graph = self._op, self._op.graph
        if not op.is_outermost:
            raise Unsupported("hashes of texts in a loop or a branch")
        if name in self.names:
            return self.names[name]
        if len(self.names) >= MOST:
            raise Unsupported(f"more than {MOST} texts, hashed")
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
            raise Unsupported("hashes of texts that are no input")
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
        """Have what looks at strings look at their fingerprints.

        Raises:
            Unsupported: It knows a word whose fingerprint we do not compute.
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
        """Return the fingerprints of strings, or of words that are an initializer."""
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
            raise Unsupported(f"op StringToHashBucketFast: {e}") from e
        self.words.add(text.decode(errors="replace"))
        return found - (1 << 64) if found >> 63 else found
