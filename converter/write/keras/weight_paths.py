"""Lay out a model's weights in the weight store of Keras 3: ``layers/dense_1/vars/0``.

A path says how Keras reaches an object: by attribute, or as a member of a list, where members are
named after their class and counted. `formats.keras.variable_names` reads these paths.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from converter.lower.keras.model import Layer, Model
from converter.lower.keras.table import Unsupported
from converter.lower.keras.weight_mapping import Path
from converter.lower.unsupported import Finding
from converter.normalise.keras_kernels import (
    KERAS1_GATES,
    StoredWeight,
    current_kernel,
    from_cudnn,
    join_gates,
)
from converter.write.keras import custom_layers
from converter.write.keras.configuration import is_operation, sort_layers
from formats.core.weights import Tensor
from formats.keras.variable_names import (
    ATTENTION,
    CELLS,
    Object,
    quantization,
    snake_case,
    variables,
)

Weights = Mapping[str, str]  # role below an object → name of the tensor in the bundle
Paths = Iterator[tuple[str, StoredWeight]]

KERNELS = ("kernel", "embeddings")
PUBLIC = ("query_dense", "key_dense", "value_dense", "output_dense")
# Classes that have another name in paths than in configurations.
CLASSES = {"Model": "Functional", "Graph": "Functional", "Container": "Functional"}


class Store:
    """The layout of a weight store.

    Attributes:
        places: Path of each variable → the weight stored there.
        names: Path of a layer's variables → name of the layer.
        findings: Weights without a path, and paths without weights.
    """

    def __init__(
        self,
        model: Model,
        owned: Mapping[Path, Weights],
        tensors: Mapping[str, Tensor],
        own: Container[Path] = (),
    ) -> None:
        self.places: dict[str, StoredWeight] = {}
        self.names: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._owned = owned
        self._tensors = tensors
        self._authors = own
        self._add_model(model, (), "")

    def _add_model(self, model: Model, path: Path, place: str) -> None:
        used: dict[str, int] = {}
        for layer in sort_layers(model):
            if is_operation(layer):
                continue  # an operation, which has no weights
            name = next_member(_class_of(layer), used)
            self._add_layer(layer, (*path, layer.name), f"{place}layers/{name}/")

    def _add_layer(self, layer: Layer, path: Path, place: str) -> None:
        if layer.model is not None:
            if layer.class_name in ("TimeDistributed", "Keras2TimeDistributed"):
                (inner,) = layer.model.layers.values()
                self._add_layer(inner, (*path, inner.name), f"{place}layer/")
            else:
                self._add_model(layer.model, path, place)
            return
        weights = self._owned.get(path, {})
        kind = layer.class_name.removesuffix(f" {quantization(layer.config.get('dtype'))}")
        try:
            if path in self._authors:
                below = custom_layers.locate_weights(path, weights, self._tensors)
                self.places |= {
                    f"{place}{end}": StoredWeight((name,)) for name, end in below.items()
                }
                return
            found = dict(self._find_paths(kind, layer.config, weights, place))
        except Unsupported as gap:
            subject = f"to='keras' {layer.class_name}"
            self.findings.append(Finding(subject, "/".join(path), str(gap)))
            return
        if unused := set(weights.values()) - {
            name for made in found.values() for name in made.names
        }:
            subject, detail = f"to='keras' {layer.class_name}", ", ".join(sorted(unused))
            self.findings.append(
                Finding(subject, "/".join(path), "weights without a place", detail)
            )
        self.places |= found

    def _find_paths(
        self, kind: str, config: Mapping[str, Any], weights: Weights, place: str
    ) -> Paths:
        """Yield the paths and weights of an object's variables, and of those inside it."""
        if not weights:
            return
        if kind in CELLS:
            yield from self._find_cell_paths(kind, config, weights, f"{place}cell/")
        elif kind == "Bidirectional":
            forth, back = _split_directions(weights)
            inner = config["layer"]
            yield from self._find_inner_paths(inner, forth, f"{place}forward_layer/")
            yield from self._find_inner_paths(
                config.get("backward_layer") or inner, back, f"{place}backward_layer/"
            )
        elif kind in ("TimeDistributed", "Keras2TimeDistributed"):
            yield from self._find_inner_paths(
                config["layer"], _inner_weights(config["layer"], weights), f"{place}layer/"
            )
        elif kind == "SpectralNormalization":
            # Its first own variable is the kernel of the layer inside.
            last = {name: role.rpartition("/")[2] for role, name in weights.items()}
            others = {r: n for r, n in weights.items() if last[n] not in ("0", "vector_u")}
            again = [n for n in last if last[n] == "0"] or [n for n in last if last[n] in KERNELS]
            for i, name in enumerate([*again[:1], *(n for n in last if last[n] == "vector_u")]):
                yield f"{place}vars/{i}", StoredWeight((name,))
            inside = _inner_weights(config["layer"], others)
            yield from self._find_inner_paths(config["layer"], inside, f"{place}layer/")
        elif kind == "RNN":
            yield from self._find_inner_paths(config["cell"], weights, f"{place}cell/")
        elif kind == "StackedRNNCells":
            used: dict[str, int] = {}
            cells = config["cells"]
            for entry, part in zip(cells, _split_cells(cells, weights), strict=True):
                name = next_member(_class_name(entry), used)
                yield from self._find_inner_paths(entry, part, f"{place}cells/{name}/")
        elif kind in ("MultiHeadAttention", "GroupedQueryAttention"):
            dense = {"bias_axes": "a" if config.get("use_bias", True) else None,
                    "dtype": config.get("dtype")}  # fmt: skip
            # Attributes of the grouped layer that are not public begin with an underscore.
            public = () if kind == "GroupedQueryAttention" else PUBLIC
            for attribute, role in ATTENTION.items():
                if below := _below(weights, role):
                    where = attribute if attribute in public else f"_{attribute}"
                    yield from self._find_own_paths("EinsumDense", dense, below, f"{place}{where}/")
        else:
            yield from self._find_own_paths(kind, config, weights, place)

    def _find_inner_paths(self, entry: Mapping[str, Any], weights: Weights, place: str) -> Paths:
        yield from self._find_paths(_class_name(entry), entry["config"], weights, place)

    def _find_own_paths(
        self, kind: str, config: Mapping[str, Any], weights: Weights, place: str
    ) -> Paths:
        names = variables(Object("", kind, config), len(weights))
        if not names:
            raise Unsupported(f"weights {', '.join(weights)}, which are not those of Keras 3,")
        if kind == "PReLU" and not config.get("shared_axes"):
            (name,) = weights.values()
            if 1 in self._tensors[name].shape:  # Keras 1 did not record them
                raise Unsupported("shared axes, which are not recorded,")
        roles = _match_roles(names, weights) or dict(zip(names, weights.values(), strict=True))
        for i, role in enumerate(names):
            yield f"{place}vars/{i}", self._stored_kernel(kind, config, role, roles[role])

    def _stored_kernel(
        self, kind: str, config: Mapping[str, Any], role: str, name: str
    ) -> StoredWeight:
        if "kernel" not in role:
            return StoredWeight((name,))
        order, flipped = config.get("kernel_order"), bool(config.get("flipped"))
        return current_kernel(name, self._tensors[name], kind, order, flipped=flipped)

    def _find_cell_paths(
        self, kind: str, config: Mapping[str, Any], weights: Weights, place: str
    ) -> Paths:
        """Yield a cell's variables, written by any version of Keras."""
        names, order = list(weights.values()), KERAS1_GATES.get(kind, (0,))
        count, units = len(order), config.get("units", 0)
        if count > 1 and len(names) == 3 * count:  # of each gate in turn
            matrix = self._stored_kernel(kind, config, "kernel", names[0])
            for i in range(3):
                change = matrix if i < 2 else None
                yield f"{place}vars/{i}", join_gates(names[i::3], order, change)
            return
        bias = self._tensors[names[-1]]
        if count > 1 and len(names) == 3 and bias.shape == (2 * count * units,):
            made = from_cudnn(names, units, count, reset_after="GRU" in kind)
            yield from ((f"{place}vars/{i}", stored) for i, stored in enumerate(made))
            return
        yield from self._find_own_paths(_cell_class(kind), config, weights, place)


def next_member(class_name: str, used: dict[str, int]) -> str:
    """Return the name of the next member of a list: ``dense``, then ``dense_1``."""
    base = snake_case(class_name)
    number = used.get(base, 0)
    used[base] = number + 1
    return f"{base}_{number}" if number else base


def _class_of(layer: Layer) -> str:
    if layer.model is not None and layer.class_name in CLASSES:
        return "Functional"
    name = layer.class_name.removesuffix(f" {quantization(layer.config.get('dtype'))}")
    return {
        "Keras2TimeDistributed": "TimeDistributed", "SyncBatchNormalization": "BatchNormalization",
        "CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU",
    }.get(name, name)  # fmt: skip


def _match_roles(names: Sequence[str], weights: Weights) -> Weights | None:
    """Return weights by role if each role is the end of one weight's name, else None."""
    found = {}
    for role in names:
        ends = [n for r, n in weights.items() if r == role or r.endswith(f"/{role}")]
        if len(ends) != 1:
            return None
        found[role] = ends[0]
    return found if len(set(found.values())) == len(names) else None


def _cell_class(kind: str) -> str:
    return CELLS[kind] or f"{kind.removeprefix('CuDNN')}Cell"


def _class_name(entry: Mapping[str, Any]) -> str:
    return str(entry["class_name"]).rpartition(">")[2]


def _below(weights: Weights, part: str) -> Weights:
    head = f"{part}/"
    return {r.removeprefix(head): n for r, n in weights.items() if r.startswith(head)}


def _first_parts(weights: Weights) -> list[str]:
    return list(dict.fromkeys(r.split("/")[0] for r in weights if "/" in r))


def _split_directions(weights: Weights) -> tuple[Weights, Weights]:
    """Return the weights of both directions, by their names, or else by halves."""
    parts = _first_parts(weights)
    forth = [p for p in parts if p.startswith("forward_")]
    if len(parts) == 2 and len(forth) == 1:
        (back,) = (p for p in parts if p != forth[0])
        return _below(weights, forth[0]), _below(weights, back)
    if len(parts) == 1 and not forth:
        return _split_directions(_below(weights, parts[0]))
    names = list(weights.items())
    half = len(names) // 2
    return dict(names[:half]), dict(names[half:])


def _inner_weights(entry: Mapping[str, Any], weights: Weights) -> Weights:
    """Return the weights of a wrapped layer: below its name, or the wrapper's own."""
    name = str(entry["config"].get("name"))
    return _below(weights, name) if name in _first_parts(weights) else weights


def _split_cells(cells: Sequence[Mapping[str, Any]], weights: Weights) -> list[Weights]:
    """Return the weights of each cell of a stack: by its name, or else by order."""
    names = [str(entry["config"].get("name")) for entry in cells]
    while len(parts := _first_parts(weights)) == 1 and parts[0] not in names:
        weights = _below(weights, parts[0])  # the stack itself
    if len(set(names)) == len(names) and all(name in _first_parts(weights) for name in names):
        return [_below(weights, name) for name in names]
    left = list(weights.items())
    found: list[Weights] = []
    for entry in cells:
        count = 2 + bool(entry["config"].get("use_bias", True))
        found.append(dict(left[:count]))
        left = left[count:]
    return found
