"""A TensorFlow graph whose variables have the values of a separate checkpoint.

The bundle is what `formats.tensorflow.savedmodel` makes of graph and variables in one folder:
variables under their own names, constants of more than 16 elements as ``const/<node>``. The graph
is a GraphDef or a MetaGraphDef; the checkpoint of any kind, named by its prefix, folder or files. A
``.meta`` file that lies beside its own checkpoint needs none of this:
`formats.tensorflow.checkpoint` reads both.

Values find their variables by name: a key of a name-based checkpoint is a variable's name, and an
object-based one records the names its variables had. A name that several have is no name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from formats.artifact import Artifact
from formats.containers.protobuf.messages import Message
from formats.core.bundle import Bundle, LeftOut, Metadata, Topology
from formats.core.collector import Collector
from formats.core.weights import Tensor
from formats.errors import SourceError, UnknownFormatError, UnsupportedError, UsageError
from formats.tensorflow.checkpoint import (
    byteorder,
    list_missing_slices,
    locate,
    object_graph,
    open_checkpoint,
)
from formats.tensorflow.constants import gather_constants
from formats.tensorflow.graph_summary import VARIABLES
from formats.tensorflow.graphdef import open_graph
from formats.tensorflow.object_graph import KEY, ObjectGraph
from formats.tensorflow.variables import Checkpoint, gather


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of the graph: its names, the likeliest first, and its shape where it says one."""

    names: tuple[str, ...]
    shape: tuple[int, ...] | None


def read(artifact: Artifact, checkpoint: Artifact) -> Bundle:
    """Read a graph with the values of its variables; no tensor's bytes are touched.

    Raises:
        UsageError: The graph has no variables.
        CorruptError: One of them is damaged.
        SourceError: They do not belong together.
        UnsupportedError: It is unknown which value belongs to which variable.
    """
    opened = open_graph(artifact)
    if not opened.facts.variables:
        raise UsageError("the graph has no variables that a checkpoint could give values to")
    place = locate(checkpoint)
    if place is None:
        raise UnknownFormatError("is no TensorFlow checkpoint", where=checkpoint.path)
    limits = artifact.limits
    source = open_checkpoint(place, checkpoint)
    artifact.adopt(checkpoint)
    objects, content = object_graph(source, None, limits, place.stem)
    collector = Collector(limits)
    gathered = gather(source, objects, collector, is_savedmodel=True)
    left_out = list_missing_slices(source)
    left_out += gather_constants([("", opened.facts)], collector, in_front="const/")
    collected = collector.finish()
    tensors = dict(collected.weights)
    for group in collected.leftovers.values():
        tensors.update(group)
    variables = list(_variables(opened.graph))
    missing = _without_value(variables, _keys(source, objects), source, tensors, checkpoint)
    left_out += missing
    left_out += [LeftOut(name, "a constant without a value") for name in opened.facts.hollow]
    contents = {Path(opened.span.name).name: opened.span}
    if content is not None:
        contents["object_graph"] = content
    recorded = opened.recorded | {
        "checkpoint": checkpoint.name,
        "shards": str(source.shards),
        "byteorder": byteorder(source),
    }
    devices = gathered.devices
    devices.update(opened.facts.devices)
    text = "text" if opened.is_text else "binary"
    values = len(variables) - len(missing)
    metadata = Metadata(
        format="graphdef",
        variant=f"{opened.kind}, {text}, values of {values} variables from a checkpoint",
        framework="tensorflow",
        recorded=recorded,
        devices=devices,
        distribution=gathered.distribution,
        user=gathered.user,
        findings=tuple(opened.facts.findings),
        left_out=tuple(left_out),
        normalisations=tuple(gathered.normalisations),
    )
    return Bundle(
        metadata=collected.complete(metadata),
        weights=collected.weights,
        leftovers=collected.leftovers,
        encodings=collected.encodings,
        topology=Topology("graphdef", opened.facts.summary(), contents),
        signatures=opened.declared,
    )


@dataclass(frozen=True, slots=True)
class Wanting:
    """A graph that has variables, and not their values."""

    variables: tuple[_Variable, ...]


def find_wanted(artifact: Artifact) -> Wanting | None:
    """Return what a graph wants of a checkpoint; None where it wants nothing, or is no graph.

    Raises:
        CorruptError: It is damaged.
    """
    try:
        opened = open_graph(artifact)
    except UnknownFormatError:
        return None
    return Wanting(tuple(_variables(opened.graph))) if opened.facts.variables else None


def misfit(graph: Wanting, checkpoint: Artifact) -> str:
    """Return why a checkpoint is not that of a graph; "" where it has all values, as they must be.

    Only its index is read, and its object graph, where it has one.

    Raises:
        CorruptError: It is damaged.
        SourceError: It cannot be read.
    """
    place = locate(checkpoint)
    if place is None:
        return "is no TensorFlow checkpoint"
    source = open_checkpoint(place, checkpoint)
    keys = _keys(source, object_graph(source, None, checkpoint.limits, place.stem)[0])
    for variable in graph.variables:
        name = _name_in(variable, keys)
        if name is None:
            return f"has no value of {variable.names[0]!r}"
        if len(keys[name]) > 1:
            return f"has {len(keys[name])} values that {name!r} may mean"
        shape = source.entries[keys[name][0]].shape
        wanted = variable.shape if name in variable.names else None
        if wanted is not None and -1 not in wanted and shape != wanted:
            return f"has {name!r} as {_size(shape)}, not as {_size(wanted)}"
    return ""


def _name_in(variable: _Variable, keys: Mapping[str, list[str]]) -> str | None:
    """Return what a checkpoint calls a variable; a part of one is a slice of the whole."""
    wholes = [whole for name in variable.names if (whole := name.rpartition("/part_")[0])]
    return next((name for name in (*variable.names, *wholes) if name in keys), None)


def _variables(graph: Message) -> Iterator[_Variable]:
    for node in graph.each("node"):
        if node.op not in VARIABLES:
            continue
        shared = node.attr.get("shared_name")
        names = [shared.s.decode("utf-8", "replace")] if shared is not None and shared.s else []
        shape = node.attr.get("shape")
        sizes = None
        if shape is not None and not shape.shape.unknown_rank:
            sizes = tuple(d.size for d in shape.shape.dim)
        yield _Variable((*names, node.name), sizes)


def _keys(source: Checkpoint, objects: ObjectGraph | None) -> dict[str, list[str]]:
    """Return name of a variable → the keys of the checkpoint that may be meant by it."""
    found: dict[str, list[str]] = {}
    for key in source.entries:
        owner = None if objects is None else objects.owner(key)
        name = key if owner is None else owner.node.names.get(owner.attribute) or key
        if key != KEY:
            found.setdefault(name, []).append(key)
    return found


def _without_value(
    variables: list[_Variable],
    keys: Mapping[str, list[str]],
    source: Checkpoint,
    tensors: Mapping[str, Tensor],
    checkpoint: Artifact,
) -> list[LeftOut]:
    """Return the variables that the checkpoint has no value of.

    Raises:
        SourceError: It has none of any, or one of another shape.
        UnsupportedError: Several values may be meant.
    """
    missing: list[_Variable] = []
    by_origin = Counter(t.origin for t in tensors.values())
    for variable in variables:
        name = next((n for n in variable.names if n in keys), None)
        if name is None:
            # A part of a partitioned variable is stored as a slice of the whole.
            wholes = [n.rpartition("/part_")[0] for n in variable.names]
            if not any(len(keys.get(n, ())) == 1 for n in wholes):
                missing.append(variable)
            continue
        if len(keys[name]) > 1:
            raise UnsupportedError(
                f"{len(keys[name])} variables of the checkpoint are called {name!r}: "
                f"{', '.join(keys[name][:3])}",
                where=checkpoint.path,
            )
        (key,) = keys[name]
        shape = source.entries[key].shape
        known = variable.shape is not None and -1 not in variable.shape
        if known and shape != variable.shape:
            raise SourceError(
                f"variable {name!r} is {_size(shape)} in the checkpoint",
                expected=f"{_size(variable.shape or ())}, as the graph says",
                where=checkpoint.path,
            )
        held = tensors.get(name)
        if by_origin[key] and held is not None and held.origin != key:
            raise UnsupportedError(
                f"{name!r} is {held.origin!r} in the checkpoint, and {key!r} as well",
                where=checkpoint.path,
            )
    if len(missing) == len(variables):
        name = variables[0].names[0]
        near = get_close_matches(name, list(keys), 1, 0.0) or ["no variables"]
        raise SourceError(
            f"has none of the graph's {len(variables)} variables, {name!r} for one",
            expected=f"the checkpoint of this graph; this one has {near[0]!r}",
            where=checkpoint.path,
        )
    reason = "a variable that the checkpoint has no value of"
    return [LeftOut(v.names[-1], reason) for v in missing]


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a scalar"
