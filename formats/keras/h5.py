"""Keras models and weights in HDF5: `.h5` of Keras 0.3 to 3 and tf.keras, `.weights.h5`.

What is in the file decides, not its suffix:

- a whole model: ``model_config`` at the root, the weights below ``model_weights``;
- weights alone: groups named after layers at the root, listed in ``layer_names``
  (or counted in ``nb_layers`` by Keras 0.x);
- a weight store of Keras 3 (`keras_store`), perhaps in shards with an index;
- any other HDF5 file: each numeric dataset is a tensor, named by its path.

Names of tensors: a weight's own name as the file lists it, without ``:0`` and without the scopes in
front of its layer's name (``my_model/dense/kernel:0`` of layer ``dense`` → ``dense/kernel``), and
with that name where TensorFlow had numbered the scope (``dense_1/kernel:0`` of layer ``dense``);
after its layer's name where it has no scope (``kernel`` → ``dense/kernel``); after it too where two
weights would share a name (nested models). Kernels stay as they are stored, Theano's too:
``backend`` is recorded beside them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.hdf5.file import Dataset, Hdf5, find_signature
from formats.containers.hdf5.file import Group as H5Group
from formats.containers.hdf5.objects import Link
from formats.core.bundle import JSON, Bundle, Group, LeftOut, Metadata, SafetyFinding
from formats.core.names import unique_names
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import CorruptError, LimitError, SourceError
from formats.keras.config import Facts, parse, read_config
from formats.keras.weight_store import Store, dataset_tensor, is_store, name_store, read_store
from formats.limits import Limits

INDEX = b'"weight_map"'
ZIP = b"PK\x03\x04"

# Attributes of the root that have a place of their own.
KNOWN = ("model_config", "training_config", "keras_version", "backend", "layer_names", "nb_layers")


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is an HDF5 file, or an index of Keras 3's shards."""
    if not artifact.is_file:
        return None
    try:
        at = find_signature(artifact.span)
    except SourceError:
        return None
    if at and artifact.head.startswith(ZIP):
        return None  # a .keras archive, whose weights happen to begin where HDF5 may
    if at is not None:
        return "HDF5 signature" + (f" at byte {at}" if at else "")
    head = artifact.head.lstrip()
    if head.startswith(b"{") and INDEX in head and b'.h5"' in head:
        return "an index of .h5 shards"
    return None


def read(artifact: Artifact) -> Bundle:
    """Read a Keras file in HDF5.

    Raises:
        CorruptError: It is damaged, or names weights that it does not hold.
        LimitError: It is over a limit.
        SafetyError: A shard index names a file elsewhere.
    """
    if find_signature(artifact.span) is None:
        return read_shards(artifact, artifact.path.name)
    return read_hdf5(artifact.span, artifact.limits)


def read_hdf5(span: Span, limits: Limits) -> Bundle:
    """Read a run of bytes that is an HDF5 file."""
    h5 = Hdf5(span, limits)
    attributes = h5.root.attributes
    weights = h5.root.get("model_weights")
    if "model_config" in attributes or isinstance(weights, H5Group):
        found = _Found(h5)
        if isinstance(weights, H5Group):
            found.add_layers(weights)
        holder = weights if isinstance(weights, H5Group) else h5.root
        return _bundle([found], "whole model", holder)
    if _has_list(h5.root, "layer_names") or "nb_layers" in attributes:
        found = _Found(h5)
        found.add_layers(h5.root)
        return _bundle([found], "weights", h5.root)
    if is_store(h5):
        return read_weights_store(h5)
    return _bundle([_Found(h5)], "", h5.root)


def read_weights_store(h5: Hdf5) -> Bundle:
    """Read a weight store without a model."""
    store = Store()
    read_store(h5, store)
    return _store_bundle(store, "weight store of Keras 3 (.weights.h5)")


def _store_bundle(store: Store, variant: str) -> Bundle:
    named = name_store(store, None)
    metadata = Metadata(
        "keras-h5",
        variant,
        framework="keras",
        findings=tuple(store.findings),
        left_out=tuple(store.left_out),
    )
    return Bundle(metadata, named.weights, named.leftovers)


def read_shards(artifact: Artifact, name: str) -> Bundle:
    """Read the shards that an index lists, each once: Keras 3's, or transformers' of TensorFlow.

    Args:
        artifact: The index, or the folder that holds it.
        name: Of the index.
    """
    limits = artifact.limits
    span = Span.whole(artifact.member(name))
    if span.length > limits.max_header_bytes:
        raise LimitError(f"an index of {span.length} bytes", where=artifact.path)
    index = jsontext.parse(span.read(), where=str(artifact.path), limit=limits.max_header_bytes)
    mapping = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(mapping, dict):
        raise CorruptError("is no HDF5 file and no index of shards", where=artifact.path)
    shards: dict[str, None] = {}
    for files in mapping.values():
        for file in files if isinstance(files, list) else [files]:
            if not isinstance(file, str):
                raise CorruptError("the index names a shard by no text", where=artifact.path)
            shards[file] = None
    opened = {file: Hdf5(Span.whole(artifact.member(file)), limits) for file in sorted(shards)}
    if not opened:
        raise CorruptError("the index names no shard", where=artifact.path)
    if all(is_store(h5) for h5 in opened.values()):
        store = Store()
        for file, h5 in opened.items():
            read_store(h5, store, file)
        return _store_bundle(store, "sharded weight store of Keras 3 (.weights.json)")
    found = [_Found(h5, file) for file, h5 in opened.items()]
    for shard in found:
        shard.add_layers(shard.h5.root)
    return _bundle(found, "sharded weights", found[0].h5.root)


@dataclass(slots=True)
class _Found:
    """What was found in a file so far; ``shard`` is its name among several."""

    h5: Hdf5
    shard: str = ""
    weights: list[tuple[Tensor, list[str]]] = field(default_factory=list)
    optimizer: list[tuple[Tensor, list[str]]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    findings: list[SafetyFinding] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # paths that are accounted for

    def add_layers(self, group: H5Group) -> None:
        """Add the weights that layers list, in the order of their lists."""
        base = group.path
        for layer in _layers(group):
            node = group.get(layer)
            path = f"{base}/{layer}"
            if isinstance(node, Dataset | Link):  # transformers' shards list weights as layers
                self._add(path, node, [_plain(layer)])
            elif node is None:
                self.left_out.append(LeftOut(path, "listed as a layer, but not there"))
            else:
                self._add_layer(node, path, layer)
        top = group.get("top_level_model_weights")
        if isinstance(top, H5Group):
            self._add_layer(top, f"{base}/top_level_model_weights", "")

    def _add_layer(self, group: H5Group, path: str, layer: str) -> None:
        for weight in _weights(group):
            full = f"{path}/{weight}"
            if full in self.seen:
                continue
            node = group.get(weight)
            if node is None or isinstance(node, H5Group):
                raise CorruptError(
                    f"layer {layer!r} lists the weight {weight!r}, which is not there",
                    where=self.h5.image.name,
                )
            self._add(full, node, _candidates(layer, weight))

    def _add(self, path: str, node: Dataset | Link, names: list[str]) -> None:
        tensor = self._tensor(path, node, is_weight=True)
        if tensor is not None:
            self.weights.append((tensor, [*names, path.removeprefix("/")]))

    def _tensor(self, path: str, node: Dataset | Link, *, is_weight: bool = False) -> Tensor | None:
        """Return the tensor at a path; record anything else there as left out."""
        self.seen.add(path)
        if isinstance(node, Link):
            self.findings.append(SafetyFinding("link", f"{node.file}:{node.path}", path))
            self.left_out.append(LeftOut(path, f"a link to another file, {node.file!r}"))
            return None
        if node.leads_out:
            self.findings.append(SafetyFinding("link", node.leads_out, path))
        tensor, reason = dataset_tensor(node, is_weight=is_weight)
        if tensor is None:
            self.left_out.append(LeftOut(path, reason))
            return None
        return tensor.with_origin(f"{self.shard}:{path}" if self.shard else path)

    def add_optimizer(self) -> None:
        group = self.h5.root.get("optimizer_weights")
        if not isinstance(group, H5Group):
            return
        for weight in _weights(group):
            node = group.get(weight)
            path = f"{group.path}/{weight}"
            if isinstance(node, Dataset | Link) and path not in self.seen:
                tensor = self._tensor(path, node, is_weight=True)
                if tensor is not None:
                    self.optimizer.append((tensor, [f"optimizer/{_plain(weight)}", path[1:]]))

    def add_rest(self) -> None:
        """Add what no list names: everything in a plain file, strays in a Keras file."""
        for path, node in self.h5.walk():
            if path in self.seen:
                continue
            tensor = self._tensor(path, node)
            if tensor is None:
                continue
            plain = path.removeprefix("/")
            if plain.startswith("optimizer_weights/"):
                short = _plain(plain.removeprefix("optimizer_weights/"))
                self.optimizer.append((tensor, [f"optimizer/{short}", plain]))
            else:
                self.weights.append((tensor, [_plain(plain), plain]))

    def facts(self) -> Facts | None:
        config = self._json("model_config")
        return None if config is None else read_config(config, "model_config")

    def _json(self, name: str) -> JSON:
        text = self.h5.root.value(name)
        if not isinstance(text, str):
            return None
        return parse(text, f"{self.h5.image.name}@{name}", self.h5.limits)

    def user(self) -> Iterator[tuple[str, JSON]]:
        """Yield the training configuration, and small attributes that are none of Keras's."""
        training = self._json("training_config")
        if training is not None:
            yield "training_config", training
        for name, attribute in self.h5.root.attributes.items():
            if name.rstrip("0123456789") in KNOWN or len(attribute.data) > MAX_USER_BYTES:
                continue
            value = self.h5.headers.value(attribute)
            if value is not None:
                yield name, value
            else:
                self.left_out.append(LeftOut(f"@{name}", "an attribute of no plain type"))


def _bundle(found: list[_Found], form: str, holder: H5Group) -> Bundle:
    """Put everything together.

    Args:
        found: What the files hold: one file, or several shards.
        form: What they are; "" for a plain file.
        holder: The group whose attributes may record versions, beside the root.
    """
    for file in found:
        file.add_optimizer()
        file.add_rest()
    weights = [offer for file in found for offer in file.weights]
    optimizer = [offer for file in found for offer in file.optimizer]
    names = unique_names([offer for _, offer in [*weights, *optimizer]])
    tensors = [tensor for tensor, _ in [*weights, *optimizer]]
    named = list(zip(names, tensors, strict=True))
    leftovers: dict[Group, Mapping[str, Tensor]] = {}
    if optimizer:
        leftovers["optimizer"] = dict(named[len(weights) :])
    first = found[0]
    recorded = {
        key: value
        for key in ("keras_version", "backend")
        for value in [first.h5.root.value(key) or holder.value(key)]
        if isinstance(value, str)
    }
    facts = first.facts()
    findings = [f for file in found for f in file.findings]
    user = dict(first.user())
    metadata = Metadata(
        "keras-h5",
        _variant(form, recorded.get("keras_version")),
        framework="keras" if form else None,
        recorded=recorded,
        distribution=facts.distribution if facts else {},
        user=user,
        findings=(*findings, *(facts.findings if facts else ())),
        left_out=tuple(o for file in found for o in file.left_out),
    )
    return Bundle(
        metadata,
        dict(named[: len(weights)]),
        leftovers,
        topology=facts.topology if facts else None,
        signatures=facts.signatures if facts else (),
    )


MAX_USER_BYTES = 1 << 16  # of an attribute that goes into the manifest


def _variant(form: str, version: str | None) -> str:
    if not form:
        return "plain HDF5 datasets"
    age = "of an age that is not recorded" if version is None else f"of Keras {version}"
    return f"{form} {age}"


def _layers(group: H5Group) -> list[str]:
    """Return the names of a model's layers, in order."""
    if _has_list(group, "layer_names"):
        return _list(group, "layer_names")
    count = group.value("nb_layers")
    if isinstance(count, int) and 0 <= count <= group.file.limits.max_members:
        return [f"layer_{n}" for n in range(count)]
    return list(group.links)


def _weights(group: H5Group) -> list[str]:
    """Return the names of a layer's weights, in order."""
    if _has_list(group, "weight_names"):
        return _list(group, "weight_names")
    count = group.value("nb_params")
    if isinstance(count, int) and 0 <= count <= group.file.limits.max_members:
        return [f"param_{n}" for n in range(count)]
    return []


def _has_list(group: H5Group, name: str) -> bool:
    return name in group.attributes or f"{name}0" in group.attributes


def _list(group: H5Group, name: str) -> list[str]:
    """Return a list of names, which Keras splits over ``name0``, ``name1``, … when it is long."""
    parts = [name] if name in group.attributes else []
    while not parts or parts[-1] != name:
        part = f"{name}{len(parts)}"
        if part not in group.attributes:
            break
        parts.append(part)
    found: list[str] = []
    for part in parts:
        value = group.value(part)
        if isinstance(value, list):
            found.extend(str(v) for v in value if isinstance(v, str))
        elif isinstance(value, str):
            found.append(value)
    return found


def _plain(name: str) -> str:
    """Return a variable's name without the number of its output."""
    return re.sub(r":\d+$", "", name).strip("/") or name


def _candidates(layer: str, weight: str) -> list[str]:
    """Return the names that a weight may take, best first; see the rule above."""
    own = _plain(weight)
    if not layer:
        return [own]
    parts = own.split("/")
    if layer in parts[:-1]:
        own = "/".join(parts[parts.index(layer) :])
    elif f"/{layer}/" in f"/{own}":  # the layer's name has slashes itself
        own = f"/{own}"[f"/{own}".index(f"/{layer}/") + 1 :]
    elif re.fullmatch(re.escape(layer) + r"_\d+", parts[0]) and len(parts) > 1:
        own = "/".join([layer, *parts[1:]])  # the number is TensorFlow's, for a second model
    elif "/" not in own and not own.startswith(layer):
        return [f"{layer}/{own}"]
    return [own, f"{layer}/{_plain(weight)}"]
