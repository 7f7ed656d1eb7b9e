"""Texts that are hashed: ONNX has no hash, so the input is each text's fingerprint instead.

What moves texts about moves fingerprints alike, and what looks texts up among words looks their
fingerprints up among those of the words. Two texts of one fingerprint are one text then, which of
2^64 fingerprints happens to no vocabulary.
"""

from collections.abc import Callable, Generator, Iterator

import numpy as np

from converter.lower.builder import element_type
from converter.lower.fingerprints import fingerprint
from converter.lower.gap import Gap
from converter.lower.graph import Graph, Node, Spec
from converter.lower.tf.context import Context

COPIES = frozenset(("Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"))
MOVES = COPIES | {"Gather", "GatherND", "Compress", "Slice", "Transpose", "Expand"}


class Fingerprints:
    """The fingerprints of texts in a graph.

    Attributes:
        names: Texts -> their fingerprints.
        words: Texts that the graph compares them with.
    """

    def __init__(self, op: Context, of_input: Callable[[str], str]) -> None:
        """Take the builder, and what makes an input's fingerprints an input."""
        self._op, self._of_input = op, of_input
        self.names: dict[str, str] = {}
        self.words: set[str] = set()

    def of(self, name: str) -> str:
        """Return the name of the fingerprints of texts that are an input, or some of one.

        Raises:
            Gap: They are computed.
        """
        op, graph = self._op, self._op.graph
        if not op.is_outermost:
            raise Gap("hashes of texts in a loop or a branch")
        if name in self.names:
            return self.names[name]
        if name in graph.inputs:
            made = self._of_input(name)
        else:
            node = next((n for n in graph.nodes if name in n.outputs), None)
            if node is None or node.op_type not in MOVES:
                raise Gap("hashes of texts that are no input")
            inputs = [self.of(node.inputs[0]), *node.inputs[1:]]
            made = op.unique(f"{node.op_type}/fingerprint")
            place = next(i for i, n in enumerate(graph.nodes) if n is node)
            copy = Node(node.op_type, inputs, [made], dict(node.attributes), made, node.domain)
            graph.nodes.insert(place + 1, copy)
            graph.specs[made] = Spec("uint64", graph.specs[name].shape)
        self.names[name] = made
        return made

    def replace(self, graph: Graph) -> None:
        """Have what looks at texts look at their fingerprints.

        Raises:
            Gap: It knows a word whose fingerprint we do not compute.
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
            node.inputs[0] = yield from self._narrow(graph, node, texts[0])
        elif node.op_type == "Equal" and len(texts) == 1:
            other = next(name for name in node.inputs if name != texts[0])
            known = graph.initializers.get(other)
            if isinstance(known, np.ndarray):
                words = [self._signed(word) for word in known.reshape(-1)]
                array = np.array(words, np.int64).reshape(known.shape)
                graph.initializers[f"{node.name}/words"] = array
                graph.specs[f"{node.name}/words"] = Spec("int64", known.shape)
                narrow = yield from self._narrow(graph, node, texts[0])
                node.inputs[:] = [narrow, f"{node.name}/words"]
        yield node

    def _narrow(self, graph: Graph, node: Node, text: str) -> Generator[Node, None, str]:
        """Yield what makes fingerprints signed, for which there are kernels; return its name."""
        made = f"{node.name}/signed"
        graph.specs[made] = Spec("int64", graph.specs[text].shape)
        attributes = {"to": element_type("int64")}
        yield Node("Cast", [self.names[text]], [made], dict(attributes), made)
        return made

    def _signed(self, word: object) -> int:
        text = word if isinstance(word, bytes) else str(word).encode()
        try:
            found = fingerprint(text)
        except ValueError as e:
            raise Gap(f"op StringToHashBucketFast: {e}") from e
        self.words.add(text.decode(errors="replace"))
        return found - (1 << 64) if found >> 63 else found
