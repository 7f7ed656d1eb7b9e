"""Named variables of a TensorFlow checkpoint, apart from the state of training.

Names. In a name-based checkpoint (TF 1) a variable is called as its key says: ``dense/kernel``. In
an object-based one it is called by its object path, the key without
``/.ATTRIBUTES/VARIABLE_VALUE`` (``layer_with_weights-0/kernel``); where that path leads through an
optimizer (Keras 3), by the shortest one that does not. In a SavedModel the variable's own name
(``dense/kernel``, as the object graph records it) comes first, the object path second; a name that
TensorFlow made up (``Variable_3``) comes after the path.
`Tensor.origin` is always the key.

Slots and hyper-parameters of optimizers are ``optimizer``; metrics, loss scales, save counters and
global steps are ``training``. A variable that is there several times comes out once: Keras 3's
``export`` writes each under two keys, TF 1's distribution strategies wrote one per replica. That
two are equal follows from the checksums in the index, without reading them.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from formats.containers.protobuf.messages import Message
from formats.core.bundle import JSON, Group, Normalisation
from formats.core.collector import Collector
from formats.core.strings import Strings
from formats.core.weights import Tensor
from formats.tensorflow import tensor_proto
from formats.tensorflow.object_graph import ATTRIBUTES, KEY, SLOT, VALUE, ObjectGraph, Owner
from formats.tensorflow.schemas import ENUMS
from formats.tensorflow.tensor_bundle import BundleEntry

_DEEPEST_NAME = 100  # objects on the way to a variable
_MOST_SCOPES = 8  # that an optimizer may have put in front of a variable's name
_LONGEST_STATE = 1 << 20  # bytes of an object's own state that are kept as text

# Slot names are the optimizers' own names; the two BERT ones are of its AdamWeightDecayOptimizer.
_SLOT_OF_TF1 = re.compile(
    r"(?P<variable>.+)/(?:Adam|AdamW|AdamOptimizer|LazyAdam|NAdam|Nadam|AdaMax|Adagrad|AdagradDA|"
    r"ProximalAdagrad|Adadelta|Ftrl|Momentum|MomentumOptimizer|MomentumW|RMSProp|RMSPropOptimizer|"
    r"CenteredRMSProp|LARSOptimizer|LARS|LAMB|Adafactor|PowerSign|AddSign|YellowFin|AMSGrad|RAdam|"
    r"adam_m|adam_v|lamb_m|lamb_v|SM3|Shampoo|NovoGrad)(?:_\d+)?"
)
_POWERS_OF_TF1 = re.compile(r"(?:.*/)?beta[12]_power(?:_\d+)?")
_SLOT_OF_MESH = re.compile(r"(?P<variable>.+)_slot_(?:v|vc|vr|m)")
_KERAS_OF_TF1 = re.compile(
    r"(?:training(?:_\d+)?/)?(?:Adam|AdamW|SGD|RMSprop|Adagrad|Adadelta|Adamax|Nadam|Ftrl|TFOptimizer|"
    r"SGDW|RectifiedAdam|LAMB)(?:_\d+)?/"
    r"(?:.+/(?:m|v|vhat|rms|mg|momentum|accumulator|accum_grad|accum_var|linear|ms|vs)(?:_\d+)?|"
    r"iter|iterations|decay|lr|learning_rate|momentum|beta_1|beta_2|rho|epsilon|"
    r"Variable(?:_\d+)?)(?:_\d+)?"
)
_TRAINING = re.compile(
    r"(?:.*/)?(?:global_step|save_counter|current_loss_scale|loss_scale|good_steps|num_good_steps|"
    r"num_bad_steps)(?:_\d+)?"
)
_METRIC_OF_TF1 = re.compile(
    r"(?P<stem>(?:metrics(?:_\d+)?/(?:.+/)?)?)(?P<kind>total|count)(?P<n>(?:_\d+)?)"
)
_PROGRESS = {"global_step", "step", "epoch", "iteration", "iterations"}  # at a checkpoint's root
_UNNAMED = re.compile(r"(?:.*/)?[Vv]ariable(?:_\d+)?")
_REPLICA = re.compile(r"(?P<first>.+)/replica_\d+(?P<rest>(?:/.*)?)")


class Checkpoint(Protocol):
    """What a V1 and a V2 checkpoint have in common."""

    entries: dict[str, BundleEntry]
    shards: int
    producer: int

    def tensor(self, key: str) -> Tensor | Strings:
        """Return one tensor."""
        ...


@dataclass(slots=True)
class Gathered:
    """What a checkpoint says beside its tensors."""

    user: dict[str, JSON] = field(default_factory=dict)
    devices: Counter[str] = field(default_factory=Counter)
    distribution: dict[str, JSON] = field(default_factory=dict)
    normalisations: list[Normalisation] = field(default_factory=list)


def gather(
    source: Checkpoint, graph: ObjectGraph | None, collector: Collector, *, is_savedmodel: bool
) -> Gathered:
    """Give every tensor of a checkpoint to ``collector``, named and grouped.

    Raises:
        CorruptError: An entry contradicts its data.
    """
    result = Gathered()
    saved = _saved_variables(graph, result)
    copies, replicas = _copies(source, graph), _replicas(source)
    same = copies | replicas
    dropped = {key for keys in same.values() for key in keys}
    partitioned = 0
    for key in graph.in_order(source.entries) if graph is not None else source.entries:
        if key == KEY or key in dropped:
            continue
        entry = source.entries[key]
        kind = tensor_proto.base_type(entry.number)
        if kind != tensor_proto.STRING and not tensor_proto.is_numeric(kind):
            what = tensor_proto.type_name(kind)
            collector.leave_out(key, f"a {what} has no value outside of TensorFlow")
            continue
        tensor = source.tensor(key)
        if text := _read_state(key, tensor, entry):
            result.user[key] = text.decode("utf-8", "backslashreplace")
            continue
        partitioned += len(entry.slices) > 1
        owner = graph.owner(key) if graph else None
        variable = saved.get(id(owner.node)) if owner else None
        note: dict[str, JSON] = {}
        if tensor_proto.is_quantised(kind):
            note["dtype"] = tensor_proto.type_name(kind)
        if key in same:
            note["also_stored_as"] = [*same[key]]
        if variable is not None:
            note.update(_notes(variable))
        full = variable.name if variable is not None else ""
        if is_savedmodel and owner is not None:
            full = full or owner.node.names.get(owner.attribute, "")
        candidates, group = _name_and_group(key, owner, full, source)
        collector.add(candidates, tensor, group, note, _devices(variable))
    _record_merges(result, len(copies), replicas, partitioned)
    return result


def _read_state(key: str, tensor: Tensor | Strings, entry: BundleEntry) -> bytes:
    """Return the text of a Python object's state, which is no variable; b"" for anything else."""
    attribute = key.split(ATTRIBUTES, 1)[1] if ATTRIBUTES in key else VALUE
    if attribute == VALUE or not isinstance(tensor, Strings) or entry.shape:
        return b""
    (text,) = tensor.values() if tensor.data.size <= _LONGEST_STATE else (b"",)
    return text


def _name_and_group(
    key: str, owner: Owner | None, full_name: str, source: Checkpoint
) -> tuple[list[str], Group | None]:
    """Return the names that a tensor may have, the best first, and its group."""
    if ATTRIBUTES in key or owner is not None:
        names = _object_names(key, owner, full_name)
        return names, _object_group(key, owner, source.entries[key])
    return [key], _name_group(key, source.entries)


def _record_merges(
    result: Gathered, copies: int, replicas: Mapping[str, Sequence[str]], partitioned: int
) -> None:
    """Record which variables were stored more than once, or in slices."""
    if copies:
        detail = "stored twice under one name, kept once"
        result.normalisations.append(Normalisation("duplicate variables", copies, detail))
    if replicas:
        most = max(len(keys) for keys in replicas.values()) + 1
        result.distribution = {"replicas": most, "variables": len(replicas)}
        detail = f"stored for each of {most} replicas, kept once"
        result.normalisations.append(Normalisation("per-replica variables", len(replicas), detail))
    if partitioned:
        detail = "stored in slices, joined"
        result.normalisations.append(Normalisation("partitioned variables", partitioned, detail))


def _object_names(key: str, owner: Owner | None, full_name: str) -> list[str]:
    path, _, attribute = key.partition(ATTRIBUTES)
    tail = "" if attribute in (VALUE, "") else f"/{attribute}"
    names = [f"{path}{tail}", key]
    if owner is not None:
        clear = owner.node.path(_DEEPEST_NAME)
        # A path that avoids the optimizers is longer than the key's only where the key's does not.
        if owner.node.group is None and clear and len(clear) > path.count("/") + 1:
            names.insert(0, "/".join(clear) + tail)
    if full_name:
        # "Variable_3" is TensorFlow's word for a variable that its author did not name.
        place = 1 if _UNNAMED.fullmatch(full_name) else 0
        names.insert(place, full_name + tail)
    return names


def _object_group(key: str, owner: Owner | None, entry: BundleEntry) -> Group | None:
    path = key.partition(ATTRIBUTES)[0]
    if SLOT in key:
        return "optimizer"
    if owner is not None and owner.node.group is not None:
        return owner.node.group
    if path == "save_counter" or (path in _PROGRESS and not entry.shape):
        return "training"
    if owner is None and path.startswith("optimizer/"):
        return "optimizer"
    if path.startswith("keras_api/metrics/"):
        return "training"
    return None


def _name_group(key: str, entries: Mapping[str, BundleEntry]) -> Group | None:
    if _POWERS_OF_TF1.fullmatch(key) or _KERAS_OF_TF1.fullmatch(key):
        return "optimizer"
    slot = _SLOT_OF_TF1.fullmatch(key) or _SLOT_OF_MESH.fullmatch(key)
    if slot is not None and _is_variable(slot["variable"], entries):
        return "optimizer"
    if _TRAINING.fullmatch(key) and not entries[key].shape:
        return "training"
    metric = _METRIC_OF_TF1.fullmatch(key)
    if metric is not None and not entries[key].shape:
        other = "count" if metric["kind"] == "total" else "total"
        if f"{metric['stem']}{other}{metric['n']}" in entries:
            return "training"
    return None


def _is_variable(name: str, entries: Mapping[str, BundleEntry]) -> bool:
    """Return whether a slot's name continues a variable's, perhaps without optimizer scopes."""
    for _ in range(_MOST_SCOPES):
        if name in entries:
            return True
        name = name.partition("/")[2]
    return False


def _copies(source: Checkpoint, graph: ObjectGraph | None) -> dict[str, list[str]]:
    """Return key that is kept → keys of second objects under the same name, with the same bytes."""
    copies: dict[str, list[str]] = {}
    if graph is None or not any(node.is_copy for node in graph.nodes):
        return copies
    waiting: dict[object, list[str]] = {}
    listed = []
    for key, entry in source.entries.items():
        owner = graph.owner(key)
        if owner is not None and entry.crc:
            if owner.node.is_copy:
                listed.append((key, _copy_key(entry, owner)))
            else:
                waiting.setdefault(_copy_key(entry, owner), []).append(key)
    for key, copy_key in listed:
        if waiting.get(copy_key):
            copies[waiting[copy_key].pop(0)] = [key]
    return copies


def _replicas(source: Checkpoint) -> dict[str, list[str]]:
    """Return key that is kept → keys of the other replicas' variables, with the same bytes."""
    replicas: dict[str, list[str]] = {}
    for key, entry in source.entries.items():
        replica = _REPLICA.fullmatch(key)
        if replica is not None:
            first = replica["first"] + replica["rest"]
            if first in source.entries and _content(source.entries[first]) == _content(entry):
                replicas.setdefault(first, []).append(key)
    return replicas


def _content(entry: BundleEntry) -> object:
    return (entry.number, entry.shape, entry.size, entry.crc) if entry.crc else entry.key


def _copy_key(entry: BundleEntry, owner: Owner) -> object:
    return (owner.attribute, owner.node.names.get(owner.attribute), _content(entry))


def _saved_variables(graph: ObjectGraph | None, result: Gathered) -> dict[int, Message]:
    """Return identity of a node → its SavedVariable; count devices and replicas on the way."""
    found: dict[int, Message] = {}
    if graph is None:
        return found
    mirrored, replicas = 0, 0
    for number, proto in graph.saved.items():
        if not proto.has("variable"):
            continue
        variable = proto.variable
        found[id(graph.nodes[number])] = variable
        result.devices.update(_devices(variable))
        components = variable.experimental_distributed_variable_components
        if len(components) > 1:
            mirrored += 1
            replicas = max(replicas, len(components))
    if mirrored:
        result.distribution = {"replicas": replicas, "variables": mirrored}
        result.normalisations.append(
            Normalisation(
                "per-replica variables", mirrored, f"{replicas} replicas each, made one variable"
            )
        )
    return found


def _devices(variable: Message | None) -> tuple[str, ...]:
    """Return the devices of a SavedVariable and of its other replicas, as far as recorded."""
    if variable is None:
        return ()
    components = variable.experimental_distributed_variable_components
    found = (variable, *components[1:])  # the first one is the variable itself
    return tuple(str(one.device) for one in found if one.device)


def _notes(variable: Message) -> dict[str, JSON]:
    notes: dict[str, JSON] = {}
    if not variable.trainable:
        notes["trainable"] = False
    for what in ("synchronization", "aggregation"):
        number = getattr(variable, what)
        if number:
            names = ENUMS[f"Variable{what.capitalize()}"]
            notes[what] = names.get(number, str(number)).rsplit(f"{what.upper()}_", 1)[-1].lower()
    components = variable.experimental_distributed_variable_components
    if len(components) > 1:
        notes["replicas"] = [c.name for c in components]
    return notes
