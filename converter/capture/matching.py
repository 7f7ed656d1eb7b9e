"""Tensors of an exported file, found again among the source's own.

An exporter renames weights, transposes them, folds them and makes new ones. What is bit for bit a
tensor of the source, or one of two axes with these swapped, is that tensor; a small rest stands in
the graph, and a large one is added to the bundle under a name that nobody has.
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
from formats.core.weights import Piece, Tensor

SMALL = 1 << 10  # bytes
PREFIX = "graph."  # of tensors that an exporter made


class Kept:
    """A folder that is there as long as anything refers to it.

    Attributes:
        path: Of the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="convert-capture-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def matched(graph: Graph, exported: Mapping[str, Tensor], bundle: Bundle, folder: Kept) -> Bundle:
    """Let a graph name a bundle's tensors; return the bundle with those that are not there yet.

    Args:
        graph: Its weights name tensors of the exported file; changed.
        exported: Those tensors.
        bundle: The source's.
        folder: Where the file is: it is kept as long as a tensor is in it.
    """
    matcher = _Matcher(exported, bundle.weights, folder)
    matcher.rename(graph)
    if matcher.added:
        count, nbytes = len(matcher.added), sum(t.nbytes for t in matcher.added.values())
        graph.notes.append(f"{count} tensors ({nbytes} bytes) are the exporter's own")
    return replace(bundle, weights={**bundle.weights, **matcher.added})


class _Matcher:
    """One exported file and one bundle."""

    def __init__(
        self,
        exported: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        folder: Kept,
    ) -> None:
        self.exported = exported
        self.weights = weights
        self.folder = folder
        self.added: dict[str, Tensor] = {}
        self._alike: dict[tuple[object, ...], list[str]] = {}
        self._digests: dict[tuple[str, bool], str] = {}
        self._found: dict[str, tuple[str, bool]] = {}
        for name, tensor in weights.items():
            self._alike.setdefault((tensor.dtype.name, tensor.shape), []).append(name)

    def rename(self, graph: Graph) -> None:
        """Let a graph, and those inside it, name the bundle's tensors."""
        moved: list[Node] = []
        for name, value in [*graph.initializers.items()]:
            if isinstance(value, Folded):
                graph.initializers[name] = replace(value, make=self._kept(value.make))
            if not isinstance(value, Weight):
                continue
            tensor = self.exported[value.tensor]
            found, is_turned = self.find(name, value.tensor)
            if not found and tensor.nbytes <= SMALL and tensor.dtype.bits >= 8:
                graph.initializers[name] = tensor.numpy()
            elif is_turned:
                stored = self._fresh(f"{name}/stored", graph)
                graph.initializers[stored] = Weight(found)
                graph.specs[stored] = replace(graph.specs[name], shape=self.weights[found].shape)
                del graph.initializers[name]
                moved.append(Node("Transpose", [stored], [name], {"perm": [1, 0]}, stored))
            else:
                graph.initializers[name] = Weight(found or self._add(value.tensor))
        graph.nodes[:0] = moved
        for node in graph.nodes:
            for inner in node.attributes.values():
                if isinstance(inner, Graph):
                    self.rename(inner)

    def find(self, name: str, exported: str) -> tuple[str, bool]:
        """Return the bundle's name of a tensor, or nothing, and whether its axes are swapped."""
        if exported not in self._found:
            self._found[exported] = self._search(name, exported)
        return self._found[exported]

    def _search(self, name: str, exported: str) -> tuple[str, bool]:
        tensor = self.exported[exported]
        alike = self._alike.get((tensor.dtype.name, tensor.shape), [])
        for other in sorted(alike, key=lambda n: n != name):
            if self._digest(other, tensor=self.weights[other]) == self._digest("", tensor=tensor):
                return other, False
        if len(tensor.shape) == 2 and tensor.dtype.bits >= 8:
            turned = (tensor.dtype.name, tensor.shape[::-1])
            for other in self._alike.get(turned, []):
                mine = self._digest(other, tensor=self.weights[other], turned=True)
                if mine == self._digest("", tensor=tensor):
                    return other, True
        return "", False

    def _digest(self, name: str, *, tensor: Tensor, turned: bool = False) -> str:
        """Return a digest; those of the bundle's tensors, which have a name here, are kept."""
        key = (name or f"\0{tensor.origin}", turned)
        if key not in self._digests:
            self._digests[key] = digests.of_tensor(_turned(tensor) if turned else tensor)
        return self._digests[key]

    def _add(self, exported: str) -> str:
        """Add a tensor of the file to the bundle's, and return its name there."""
        name, number = f"{PREFIX}{exported}", 1
        while name in self.weights or name in self.added:
            name, number = f"{PREFIX}{exported}_{number}", number + 1
        tensor = self.exported[exported]

        def pieces(folder: Kept = self.folder) -> Iterator[Piece]:
            del folder  # which is there as long as this function is
            yield from tensor.pieces()

        self.added[name] = Tensor.computed(tensor.dtype, tensor.shape, pieces, origin=name)
        self._found[exported] = (name, False)
        return name

    def _kept(self, make: "Callable[[], np.ndarray]") -> "Callable[[], np.ndarray]":
        """Return what makes an array out of the file, and keeps the file until it is gone."""

        def made(folder: Kept = self.folder) -> np.ndarray:
            del folder
            return make()

        return made

    @staticmethod
    def _fresh(name: str, graph: Graph) -> str:
        while name in graph.initializers or name in graph.specs:
            name += "_"
        return name


def _turned(tensor: Tensor) -> Tensor:
    """Return a tensor of two axes with these swapped."""

    def make() -> list[Piece]:
        return [np.ascontiguousarray(tensor.numpy().T).tobytes()]

    return Tensor.computed(tensor.dtype, tensor.shape[::-1], make)
