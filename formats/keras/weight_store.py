"""Keras 3's weight store: HDF5 groups named after attributes, with numbered variables in ``vars``.

It is what `.weights.h5` files are, and what `.keras` archives hold as ``model.weights.h5``;
tf.keras 2.12 and later write it too. See `keras_names` for how its variables get names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from formats.containers.hdf5.file import Dataset, Hdf5
from formats.containers.hdf5.objects import Link
from formats.core.bundle import JSON, Group, LeftOut, SafetyFinding
from formats.core.names import unique_names
from formats.core.weights import DTYPES, Tensor
from formats.keras.variable_names import candidates, objects, variables

Part = Literal["weights", "optimizer", "training"]


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One stored variable: ``<path>/vars/<key>``."""

    path: str
    key: str
    tensor: Tensor

    @property
    def part(self) -> Part:
        """What it belongs to; only the model's own attributes say so."""
        top = self.path.split("/")[0]
        if top == "optimizer" or top.endswith("_optimizer"):
            return "optimizer"
        if top in ("metrics", "_metrics", "_loss_tracker", "loss_tracker", "_compile_metrics"):
            return "training"
        return "weights"


@dataclass(slots=True)
class Store:
    """All variables of a store, which may be spread over files."""

    entries: list[StoreEntry] = field(default_factory=list)
    files: list[Hdf5] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    findings: list[SafetyFinding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Named:
    """The tensors of a store under their names."""

    weights: Mapping[str, Tensor]
    leftovers: Mapping[Group, Mapping[str, Tensor]]


def is_store(h5: Hdf5) -> bool:
    """Return whether an HDF5 file is a weight store, by its top groups."""
    links = h5.root.links
    if "vars" in links or "_layer_checkpoint_dependencies" in links:
        return True
    return any(_has_vars(h5, name) for name in list(links)[:64])


def _has_vars(h5: Hdf5, name: str) -> bool:
    """Look for ``vars`` in a group, and in the first few groups of it."""
    group = h5.follow(h5.root, name) if "/" not in name else None
    if group is None or isinstance(group, Dataset | Link):
        return False
    if "vars" in group.links:
        return True
    for inner in list(group.links)[:64]:
        below = group.get(inner)
        if not isinstance(below, Dataset | Link | None) and "vars" in below.links:
            return True
    return False


def read_store(h5: Hdf5, store: Store, where: str = "") -> None:
    """Add the variables of one file to ``store``. Weights are not read.

    Args:
        h5: The file.
        store: What to add to.
        where: What findings and origins call the file; "" for the only one.
    """
    for full, node in h5.walk():
        path, _, key = full.removeprefix("/").rpartition("/")
        if isinstance(node, Link):
            store.findings.append(SafetyFinding("link", f"{node.file}:{node.path}", full))
            store.left_out.append(LeftOut(full, f"a link to another file, {node.file!r}"))
            continue
        if path != "vars" and not path.endswith("/vars"):
            path = f"{path}/" if path else ""  # not as Keras writes it: keep the whole path
        tensor, reason = dataset_tensor(node)
        if node.leads_out:
            store.findings.append(SafetyFinding("link", node.leads_out, full))
        if tensor is None:
            store.left_out.append(LeftOut(full, reason))
            continue
        origin = f"{where}:{full}" if where else full
        store.entries.append(StoreEntry(_object_path(path), key, tensor.with_origin(origin)))
    store.files.append(h5)


def _object_path(path: str) -> str:
    return path.removesuffix("vars").rstrip("/")


def _recorded_names(store: Store) -> dict[str, str]:
    """Return the names that the store itself gives, of objects and of all that hold them.

    A variable may lie in a later shard than the name of its object.
    """
    names: dict[str, str] = {}
    seen: set[str] = set()
    for path in {e.path for e in store.entries}:
        parts = path.split("/") if path else []
        for n in range(len(parts), -1, -1):
            prefix = "/".join(parts[:n])
            if prefix in seen:
                break
            seen.add(prefix)
            for h5 in store.files:
                group = h5.root.get(f"{prefix}/vars" if prefix else "vars")
                name = None if isinstance(group, Link | None) else group.value("name")
                if isinstance(name, str) and name:
                    names[prefix] = name
                    break
    return names


def dataset_tensor(node: Dataset, *, is_weight: bool = False) -> tuple[Tensor | None, str]:
    """Return a dataset as a tensor, or None and why not.

    h5py keeps bfloat16 as two opaque bytes. Keras notes the dtype beside them in its stores, and
    not in whole models: of all that a variable's dtype may be, bfloat16 alone is kept so.

    Args:
        node: The dataset.
        is_weight: Whether the file lists it as a variable.
    """
    kind = node.datatype
    is_pair = kind.kind == "opaque" and kind.size == 2
    if is_pair and (is_weight or node.value("dtype") == "bfloat16"):
        return node.tensor(DTYPES["bfloat16"]), ""
    obstacle = node.obstacle
    return (None, obstacle) if obstacle else (node.tensor(), "")


def name_store(store: Store, config: JSON, version: str | None = None) -> Named:
    """Give every variable its name, in the order of the model's layers.

    Args:
        store: The variables.
        config: The model's configuration, or None where there is none.
        version: Of the Keras that wrote it, where recorded.
    """
    tf_keras = version is not None and version.startswith("2.")
    groups: dict[str, list[StoreEntry]] = {}
    for entry in store.entries:
        groups.setdefault(entry.path, []).append(entry)
    model_paths = [p for p, entries in groups.items() if entries[0].part == "weights"]
    known = objects(config, model_paths, tf_keras=tf_keras) if config is not None else {}
    order = {path: n for n, path in enumerate(_by_config(model_paths, list(known)))}
    recorded = _recorded_names(store)
    offers: list[tuple[StoreEntry, list[str]]] = []
    for path in sorted(groups, key=lambda p: order.get(p, len(order))):
        entries = sorted(groups[path], key=lambda e: _natural(e.key))
        own = variables(known.get(path), len(entries)) if _number(entries) else ()
        for n, entry in enumerate(entries):
            if entry.part == "weights":
                named = own[n] if own else ""
                offers.append((entry, candidates(path, named or entry.key, known, recorded)))
            else:
                offers.append((entry, [f"{path}/{entry.key}"]))
    names = unique_names([offer for _, offer in offers])
    weights: dict[str, Tensor] = {}
    leftovers: dict[Group, dict[str, Tensor]] = {}
    for (entry, _), name in zip(offers, names, strict=True):
        part = entry.part
        (weights if part == "weights" else leftovers.setdefault(part, {}))[name] = entry.tensor
    return Named(weights, leftovers)


def _by_config(paths: Iterable[str], known: list[str]) -> list[str]:
    """Return paths in the order of the config's layers, those that it does not have at the end."""
    rank = {path: n for n, path in enumerate(known)}

    def key(path: str) -> tuple[int, list[tuple[int, str]]]:
        parts = path.split("/")
        for n in range(len(parts), 0, -1):
            if "/".join(parts[:n]) in rank:
                return rank["/".join(parts[:n])], _natural(path)
        return len(rank), _natural(path)

    return sorted(paths, key=key)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sorting key under which ``vars/10`` comes behind ``vars/9``."""
    return [(int(p[:18]), "") if p.isdecimal() else (-1, p) for p in re.split(r"(\d+)", text)]


def _number(entries: list[StoreEntry]) -> bool:
    """Return whether the keys are 0, 1, 2, … as Keras's own layers write them."""
    return [e.key for e in entries] == [str(n) for n in range(len(entries))]
