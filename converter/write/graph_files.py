"""ONNX files of graphs: one that points into weight files, or one that holds its weights.

It needs numpy, so a conversion of weights alone does not import it.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

from converter.capture.generation import PARTS
from converter.events import Progress
from converter.lower import emit
from converter.lower.graph import Folded, Graph, Spec, Weight
from converter.lower.states import WEIGHTS, describe_states
from formats.core.bundle import JSON, Bundle
from formats.core.output import Output
from formats.core.weights import Tensor
from formats.errors import UnsupportedError
from formats.safetensors_writer import ShardLayout

GRAPH = "model.onnx"
LONGEST = 60  # letters of a signature in the name of its file
PROTOBUF_LIMIT = (1 << 31) - 1


def file_names(graphs: Sequence[Graph]) -> list[str]:
    """Return the names of the files of graphs: the first is the default graph's.

    The parts of a model that Optimum runs have the names that it looks for.
    """
    if any(graph.signature in PARTS for graph in graphs):
        return [f"{graph.signature}.onnx" for graph in graphs]
    found: list[str] = []
    for graph in graphs:
        plain = re.sub(r"[^\w.-]+", "_", graph.signature).strip(".")[:LONGEST]
        name, number = f"model.{plain}.onnx" if found else GRAPH, 1
        while name in found:
            number += 1
            name = f"model.{plain}_{number}.onnx"
        found.append(name)
    return found


def write_beside_weights(
    graph: Graph, bundle: Bundle, layout: ShardLayout, payload: Path, file: str, *, sync: bool
) -> int:
    """Write an ONNX file beside the weights, which it points into; return its bytes."""
    places: dict[str, emit.External] = {}
    for shard in layout.shards:
        position = len(shard.header)
        for name, tensor in shard.tensors:
            places[name] = emit.External(shard.name, position, tensor.nbytes)
            position += tensor.nbytes
    places.update((name, places[twin]) for name, twin in layout.tied.items())
    message = emit.model(graph, bundle.weights, external=places)
    for _ in _write_message(message, payload / file, sync=sync):
        pass
    return message.nbytes


def write_self_contained(
    graph: Graph, bundle: Bundle, payload: Path, file: str = GRAPH, *, sync: bool
) -> Generator[Progress, None, Path]:
    """Write a graph that holds its weights, after all passes, and return what was written.

    Past the 2 GiB that one protobuf may have, the weights go into a file beside it.

    Raises:
        StorageError: It cannot be written.
    """
    message = emit.model(graph, bundle.weights)
    done = 0
    if message.nbytes <= PROTOBUF_LIMIT:
        for n in _write_message(message, payload / file, sync=sync):
            done += n
            yield Progress("written", done, message.nbytes)
        return payload / file
    beside = f"{file}.data"
    places, parts, position = {}, {}, 0
    for name, value in graph.initializers.items():
        if isinstance(value, Weight | Folded):
            part = emit.data(value, bundle.weights)
            key = value.tensor if isinstance(value, Weight) else name
            places[key] = emit.External(beside, position, part.nbytes)
            parts[key] = part
            position += part.nbytes
    with Output(payload / beside) as out:
        for key, part in parts.items():
            for n in out.append(part.make()):
                done += n
                yield Progress("written", done, position, key)
        if sync:
            out.sync()
    for _ in _write_message(
        emit.model(graph, bundle.weights, external=places), payload / file, sync=sync
    ):
        pass
    return payload


def check_states(graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Check that a file without a bundle around it can say the first values of its states.

    Raises:
        UnsupportedError: One is too large.
    """
    for state in describe_states(graph, weights):
        if state["initial"] == WEIGHTS:
            raise UnsupportedError(
                f"the first value of the state {state['tensor']!r} is too large for the metadata"
                " of an ONNX file",
                hint="to='portable' keeps it in model.safetensors",
            )


def _write_message(message: emit.Message, path: Path, *, sync: bool) -> Iterator[int]:
    with Output(path) as out:
        yield from out.append(message.pieces())
        if sync:
            out.sync()


def _shape_json(spec: Spec) -> JSON:
    return None if spec.unranked else list(spec.shape)


def describe(graph: Graph, weights: Mapping[str, Tensor], file: str = GRAPH) -> dict[str, JSON]:
    """Return what a manifest says of a graph; ``weights`` hold the first values of its states."""

    def specs(names: list[str]) -> list[JSON]:
        return [
            {"name": n, "dtype": graph.specs[n].dtype, "shape": _shape_json(graph.specs[n])}
            for n in names
        ]

    made: dict[str, JSON] = {
        "file": file,
        "opset": graph.opset,
        "nodes": len(graph.nodes),
        "inputs": specs(graph.inputs),
        "outputs": specs(graph.outputs),
    }
    if graph.signature:
        made["signature"] = graph.signature
    if graph.exporter:
        made["exporter"] = graph.exporter
    if graph.notes:
        made["notes"] = [*graph.notes]
    if graph.states:
        made["states"] = [*describe_states(graph, weights)]
    if graph.encoded:
        made["decoded_inputs"] = [one.plain() for one in graph.encoded]
    if graph.trusted:
        made["trusted"] = [{"module": m, "sha256": d} for m, d in graph.trusted.items()]
    return made
