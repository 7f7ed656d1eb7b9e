"""Pair TensorFlow graphs without values with the checkpoint in the same folder.

A graph and a checkpoint are one artifact where exactly one checkpoint of the folder has a value of
the right shape for each of its variables, and no other graph here is that checkpoint's. A ``.meta``
file of a checkpoint's own name belongs to it anyway, and is read with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from converter.registries.grouping.division import TENSORFLOW, Division, Group
from formats.artifact import Artifact
from formats.errors import ConvertError
from formats.tensorflow import graph_with_checkpoint

GRAPHS = (".pb", ".pbtxt", ".meta", ".graphdef")  # the content decides, of those that are so called
LARGEST_GRAPH = 64 << 20  # bytes of one that is looked through
MOST = 64  # checkpoints that are tried
OWN_GRAPH = "the graph of a checkpoint beside it that has one of its own"
SEVERAL = "a graph of several checkpoints beside it, of which checkpoint= takes one"
OTHERS = "one of several graphs of the checkpoint beside it, of which checkpoint= takes one"


@dataclass(slots=True)
class _Graph:
    name: str
    fitting: list[Group] = field(default_factory=list)
    why: str = ""  # the last checkpoint that was tried does not fit


def join(path: str, found: Division) -> None:
    """Group each graph with its checkpoint; note why others have none.

    Args:
        path: Of the folder.
        found: As it is divided without.
    """
    checkpoints = [g for g in found.groups if g.kind == TENSORFLOW and g.is_certain]
    names = [n for n in found.files if n.lower().endswith(GRAPHS)]
    if not checkpoints or not names:
        return
    graphs = [
        graph for name in names if (graph := _try_checkpoints(path, name, checkpoints)) is not None
    ]
    claimed = [group.paths for graph in graphs for group in graph.fitting]
    for graph in graphs:
        if not graph.fitting:
            found.notes[graph.name] = f"no checkpoint beside it fits: {graph.why}"
        elif any(f"{group.called}.meta" in group.files for group in graph.fitting):
            found.skip([graph.name], OWN_GRAPH)
        elif len(graph.fitting) > 1 or len(checkpoints) > MOST:
            found.skip([graph.name], SEVERAL)
        elif claimed.count(graph.fitting[0].paths) > 1:
            found.skip([graph.name], OTHERS)
        else:
            (group,) = graph.fitting
            found.groups.remove(group)
            files = (graph.name, *group.files)
            joined = replace(group, paths=(graph.name,), kind="graphdef", files=files, name=None)
            found.add(replace(joined, checkpoint=group.paths[0]))


def _try_checkpoints(path: str, name: str, checkpoints: Sequence[Group]) -> _Graph | None:
    """Try a graph with all checkpoints; return None if it is no graph, or needs no checkpoint."""
    graph = _Graph(name)
    file = Path(path, name)
    try:
        if file.stat().st_size > LARGEST_GRAPH:
            return None
        artifact = Artifact(file)
        try:
            wanting = graph_with_checkpoint.find_wanted(artifact)
        finally:
            artifact.close()
    except (ConvertError, OSError):
        return None
    if wanting is None:
        return None
    for group in checkpoints[:MOST]:
        checkpoint = Artifact(Path(path, group.paths[0]))
        try:
            graph.why = f"{group.called} {graph_with_checkpoint.misfit(wanting, checkpoint)}"
            if graph.why == f"{group.called} ":
                graph.fitting.append(group)
                if len(graph.fitting) > 1:
                    break
        except ConvertError as e:
            graph.why = f"{group.called} {e.found}"
        finally:
            checkpoint.close()
    return graph
