"""TensorFlow's object graph: which object each checkpoint entry belongs to.

A TrackableObjectGraph (under ``_CHECKPOINTABLE_OBJECT_GRAPH`` in a checkpoint) lists objects, the
names by which they hold each other, and the checkpoint keys of their values. Keys follow the
shortest path from the root, which may lead through an optimizer although the model owns the
variable; so what belongs to training is decided by walking the graph, not by the key.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/protobuf/trackable_object_graph.proto
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from formats.containers.protobuf.messages import Message
from formats.core.bundle import Group
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
ATTRIBUTES = "/.ATTRIBUTES/"
VALUE = "VARIABLE_VALUE"
SLOT = "/.OPTIMIZER_SLOT/"

_OPTIMIZER_EDGE = re.compile(r"(^|_)optimizers?(_?\d+)?$")
_COUNTERS = {"iter", "iterations", "_iterations"}
_RATES = {"learning_rate", "_learning_rate", "_current_learning_rate", "beta_1", "decay"}
_OPTIMIZER_IDENTIFIERS = {"optimizer", "experimentalOptimizer"}


@dataclass(slots=True)
class Node:
    """One object.

    Attributes:
        names: Attribute name → the variable's own name, as the writer knew it.
        group: What of training it belongs to; None for the model.
        is_copy: Whether Keras 3's ``export`` listed it a second time.
        is_reached: Whether any way leads to it.
        holder: The object on the shortest way to it from the root that avoids optimizers and
            metrics (for what only they hold: from them).
        edge: What the holder calls it.
    """

    names: dict[str, str] = field(default_factory=dict)
    group: Group | None = None
    is_copy: bool = False
    is_reached: bool = False
    holder: "Node | None" = None
    edge: str = ""

    def path(self, deepest: int) -> tuple[str, ...]:
        """Return the way to it; empty if that is deeper than ``deepest``."""
        names: list[str] = []
        node = self
        while node.holder is not None:
            names.append(node.edge)
            node = node.holder
            if len(names) > deepest:
                return ()
        return tuple(reversed(names))


@dataclass(frozen=True, slots=True)
class Owner:
    """Which node a checkpoint key belongs to, and as what."""

    node: Node
    attribute: str


class ObjectGraph:
    """The objects of one checkpoint.

    Attributes:
        nodes: All objects by number; zero is the root.
        owners: Checkpoint key → owner.
    """

    def __init__(self, graph: Message, saved: Message | None, limits: Limits, where: str) -> None:
        """Walk the graph.

        Args:
            graph: A TrackableObjectGraph.
            saved: The SavedObjectGraph of a SavedModel, which says what kind the objects are.
            limits: How large it may be.
            where: The checkpoint, for messages.

        Raises:
            CorruptError: An object names one that is not there.
            LimitError: There are too many objects.
        """
        protos = graph.nodes
        if len(protos) > limits.max_members:
            raise LimitError(f"an object graph of {len(protos)} objects", where=where)
        self._where = where
        self._children = [[(c.local_name, c.node_id) for c in p.children] for p in protos]
        for children in self._children:
            for name, child in children:
                if not 0 <= child < len(protos):
                    raise CorruptError(
                        f"the object graph names object {child} ({name!r}) of {len(protos)}",
                        where=where,
                    )
        self.nodes = [Node() for _ in protos]
        self.owners: dict[str, Owner] = {}
        self.saved = self._match(saved) if saved is not None else {}
        slots: set[int] = set()
        for node, proto in zip(self.nodes, protos, strict=True):
            for attribute in proto.attributes:
                node.names[attribute.name] = attribute.full_name
                self.owners[attribute.checkpoint_key] = Owner(node, attribute.name)
            slots.update(s.slot_variable_node_id for s in proto.slot_variables)
        optimizers = {i for i, p in enumerate(protos) if p.slot_variables} | self._optimizers()
        metrics = self._metrics()
        scales = {i for kids in self._children for name, i in kids if name == "loss_scale"}
        self._walk([0] if self.nodes else [], optimizers | metrics | scales, None)
        self._walk(sorted(optimizers), metrics | scales, "optimizer")
        self._walk(sorted(metrics | scales), set(), "training")
        for slot in slots:
            if 0 <= slot < len(self.nodes):
                self.nodes[slot].group = "optimizer"
        self._mark_copies()

    def owner(self, key: str) -> Owner | None:
        """Return who owns a key; the keys of hash tables are longer than what is recorded."""
        if key in self.owners:
            return self.owners[key]
        for suffix in ("-keys", "-values"):
            stem = key.removesuffix(suffix)
            if stem != key and stem in self.owners:
                return self.owners[stem]
        return None

    def in_order(self, keys: Iterable[str]) -> list[str]:
        """Return keys in the order of their objects; an index has them sorted as text."""
        rank = {key: i for i, key in enumerate(self.owners)}
        last = len(rank)

        def place(key: str) -> int:
            return rank.get(key, rank.get(key.removesuffix("-keys").removesuffix("-values"), last))

        return sorted(keys, key=place)

    def _walk(self, roots: list[int], avoided: set[int], group: Group | None) -> None:
        """Give each object that can be reached, and was not before, its holder and group."""
        queue = deque(roots)
        for number in roots:
            self.nodes[number].is_reached = True
            self.nodes[number].group = group
        while queue:
            number = queue.popleft()
            for name, child in self._children[number]:
                node = self.nodes[child]
                if node.is_reached or child in avoided:
                    continue
                node.is_reached, node.group = True, group
                node.holder, node.edge = self.nodes[number], name
                queue.append(child)

    def _optimizers(self) -> set[int]:
        found = {
            child
            for children in self._children
            for name, child in children
            if _OPTIMIZER_EDGE.search(name) and not self.nodes[child].names
        }
        for number, children in enumerate(self._children):
            names = {name for name, _ in children}
            if names & _COUNTERS and names & _RATES:
                found.add(number)
        for number, proto in self.saved.items():
            if proto.user_object.identifier in _OPTIMIZER_IDENTIFIERS:
                found.add(number)
        return found - {0}

    def _metrics(self) -> set[int]:
        found: set[int] = set()
        holders = {i for kids in self._children for name, i in kids if name == "keras_api"}
        for holder in holders:
            found |= {i for name, i in self._children[holder] if name == "metrics"}
        for number, proto in self.saved.items():
            if proto.user_object.identifier == "_tf_keras_metric":
                found.add(number)
        return found - {0}

    def _match(self, saved: Message) -> dict[int, Message]:
        """Return our number → SavedObject, by walking both graphs along equal names."""
        protos = saved.nodes
        if not protos or not self.nodes:
            return {}
        matched = {0: protos[0]}
        held: dict[int, dict[str, int]] = {}  # theirs, by number
        queue = deque([(0, 0)])
        while queue:
            ours, theirs = queue.popleft()
            if theirs not in held:
                held[theirs] = {c.local_name: c.node_id for c in protos[theirs].children}
            for name, child in self._children[ours]:
                other = held[theirs].get(name)
                if child not in matched and other is not None and 0 <= other < len(protos):
                    matched[child] = protos[other]
                    queue.append((child, other))
        return matched

    def _mark_copies(self) -> None:
        """Mark what hangs only below ``_all_variables``.

        `keras.export.ExportArchive` tracks the tf.Variable inside each Keras variable there, a
        second object under the same name; both are saved.
        """
        children = dict(self._children[0]) if self._children else {}
        listed = children.get("_all_variables")
        if listed is None or not {"variables", "trainable_variables"} & children.keys():
            return
        elsewhere = {
            child
            for number, kids in enumerate(self._children)
            if number != listed
            for _, child in kids
        }
        for _, child in self._children[listed]:
            self.nodes[child].is_copy = child not in elsewhere
