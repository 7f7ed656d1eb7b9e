"""Match the tensors of an exported file with the source's own.

An exporter renames, transposes and folds weights, and adds new ones. A tensor that equals one of
the source bit for bit, or its transpose, becomes that tensor. Of the others, small ones become
constants of the graph, and large ones are added to the bundle under new names.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from converter.lower.graph import Folded, Graph, Node, Weight
from formats.core import digests
from formats.core.bundle import Bundle
from formats.core.plurals import count
from formats.core.weights import Piece, Tensor

SMALL = 1 << 10  # bytes
PREFIX = "graph."  # of tensors that an exporter added


class TemporaryFolder:
    """A folder that is removed when nothing refers to it any more.

    Attributes:
        path: Of the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="convert-capture-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def match_weights(
    graph: Graph, exported: Mapping[str, Tensor], bundle: Bundle, folder: TemporaryFolder
) -> Bundle:
    """Make a graph refer to a bundle's tensors; return the bundle with the exporter's own added.

    Args:
        graph: Refers to tensors of the exported file; changed in place.
        exported: Those tensors, by name.
        bundle: The source.
        folder: The exported file's folder, kept as long as a tensor lies in it.
    """
    matcher = _Matcher(exported, bundle.weights, folder)
    matcher.rename(graph)
    if matcher.added:
        nbytes = sum(t.nbytes for t in matcher.added.values())
        added = count("tensor", len(matcher.added))
        graph.notes.append(f"{added} ({nbytes} bytes) of the exporter's own")
    return replace(bundle, weights={**bundle.weights, **matcher.added})


class _Matcher:
    """One exported file and one bundle."""

    def __init__(
        self,
        exported: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        folder: TemporaryFolder,
    ) -> None:
        self.exported = exported
        self.weights = weights
        self.folder = folder
        self.added: dict[str, Tensor] = {}
        self._by_shape: dict[tuple[object, ...], list[str]] = {}
        self._digests: dict[tuple[str, bool], str] = {}
        self._found: dict[str, tuple[str, bool]] = {}
        for name, tensor in weights.items():
            self._by_shape.setdefault((tensor.dtype.name, tensor.shape), []).append(name)

    def rename(self, graph: Graph) -> None:
        """Make a graph and its subgraphs refer to the bundle's tensors."""
        transposes: list[Node] = []
        for name, value in [*graph.initializers.items()]:
            if isinstance(value, Folded):
                graph.initializers[name] = replace(value, make=self._keep_folder(value.make))
            if not isinstance(value, Weight):
                continue
            tensor = self.exported[value.tensor]
            found, is_transposed = self.find(name, value.tensor)
            if not found and tensor.nbytes <= SMALL and tensor.dtype.bits >= 8:
                graph.initializers[name] = tensor.numpy()
            elif is_transposed:
                stored = self._unused_name(f"{name}/stored", graph)
                graph.initializers[stored] = Weight(found)
                graph.specs[stored] = replace(graph.specs[name], shape=self.weights[found].shape)
                del graph.initializers[name]
                transposes.append(Node("Transpose", [stored], [name], {"perm": [1, 0]}, stored))
            else:
                graph.initializers[name] = Weight(found or self._add(value.tensor))
        graph.nodes[:0] = transposes
        for node in graph.nodes:
            for inner in node.attributes.values():
                if isinstance(inner, Graph):
                    self.rename(inner)

    def find(self, name: str, exported: str) -> tuple[str, bool]:
        """Return the bundle's name of a tensor, or ``""``, and whether it is transposed there."""
        if exported not in self._found:
            self._found[exported] = self._search(name, exported)
        return self._found[exported]

    def _search(self, name: str, exported: str) -> tuple[str, bool]:
        tensor = self.exported[exported]
        candidates = self._by_shape.get((tensor.dtype.name, tensor.shape), [])
        for other in sorted(candidates, key=lambda n: n != name):
            if self._digest(other, tensor=self.weights[other]) == self._digest("", tensor=tensor):
                return other, False
        if len(tensor.shape) == 2 and tensor.dtype.bits >= 8:
            swapped = (tensor.dtype.name, tensor.shape[::-1])
            for other in self._by_shape.get(swapped, []):
                mine = self._digest(other, tensor=self.weights[other], transposed=True)
                if mine == self._digest("", tensor=tensor):
                    return other, True
        return "", False

    def _digest(self, name: str, *, tensor: Tensor, transposed: bool = False) -> str:
        """Return a tensor's digest, computed once."""
        key = (name or f"\0{tensor.origin}", transposed)
        if key not in self._digests:
            self._digests[key] = digests.of_tensor(_transpose(tensor) if transposed else tensor)
        return self._digests[key]

    def _add(self, exported: str) -> str:
        """Add a tensor of the exported file to the bundle; return its name there."""
        name, number = f"{PREFIX}{exported}", 1
        while name in self.weights or name in self.added:
            name, number = f"{PREFIX}{exported}_{number}", number + 1
        tensor = self.exported[exported]

        def pieces(folder: TemporaryFolder = self.folder) -> Iterator[Piece]:
            del folder  # the default argument keeps it
            yield from tensor.pieces()

        self.added[name] = Tensor.computed(tensor.dtype, tensor.shape, pieces, origin=name)
        self._found[exported] = (name, False)
        return name

    def _keep_folder(self, make: "Callable[[], np.ndarray]") -> "Callable[[], np.ndarray]":
        """Return a function that makes the same array and keeps the folder as long as it lives."""

        def make_kept(folder: TemporaryFolder = self.folder) -> np.ndarray:
            del folder
            return make()

        return make_kept

    @staticmethod
    def _unused_name(name: str, graph: Graph) -> str:
        while name in graph.initializers or name in graph.specs:
            name += "_"
        return name


def _transpose(tensor: Tensor) -> Tensor:
    """Return the transpose of a matrix."""

    def make() -> list[Piece]:
        return [np.ascontiguousarray(tensor.numpy().T).tobytes()]

    return Tensor.computed(tensor.dtype, tensor.shape[::-1], make)
