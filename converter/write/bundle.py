"""What the targets write into a staging folder: weights, graph, assets, manifest.

Weights are copied and compared at once; a graph is written behind them, and points into them or
holds them itself.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from converter.byte_sizes import readable_size
from converter.events import Progress, Step
from converter.write.background import Background
from converter.write.readback import WeightsReport, Written, compare
from formats import catalog, portable
from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import JSON, Bundle
from formats.core.output import Output
from formats.core.storage import Blocks, File, Span
from formats.errors import SafetyError, StorageError
from formats.portable import Resource
from formats.safetensors import Plan, create, fill

if TYPE_CHECKING:
    from converter.verification.report import GraphReport


def transfer(
    bundle: Bundle,
    layout: Plan,
    payload: Path,
    blocks: Blocks,
    sources: digests.FileDigests | None,
    *,
    verify: bool,
    sync: bool,
) -> Generator[Step | Progress, None, WeightsReport | None]:
    """Write the weights, and compare what is written while the rest of it still is.

    Args:
        bundle: Whose weights.
        layout: In which files.
        payload: Folder for them.
        blocks: Through which the source is read.
        sources: Told of what is read, for the digests of the source and of the output; None
            where no digests are wanted.
        verify: Whether to compare, and to say so.
        sync: Wait until the bytes are on the disk.
    """
    begin = perf_counter()
    create(layout, payload, sync=sync)
    written, comparison = Written(), None
    if bundle.weights and (sources is not None or verify):
        output = catalog.read(Artifact(payload), "safetensors").weights
        comparison = Background(
            partial(
                compare,
                bundle.weights,
                output,
                with_digests=sources is not None,
                blocks=blocks,
                written=written,
            )
        )
    done, total = 0, layout.nbytes
    try:
        watch = None if sources is None else sources.follow
        for n in fill(layout, payload, blocks=blocks, watch=watch, sync=sync):
            written.advance(n)
            done += n
            yield Progress("written", done, total)
    finally:
        written.end()
        if comparison is not None:
            comparison.wait()
    yield Step("written", files_line(layout), perf_counter() - begin)
    report = comparison.result() if comparison is not None else None
    if report is not None and verify:
        size = readable_size(report.nbytes)
        text = f"weights: {report.tensors} tensors, {size}, equal bit for bit"
        yield Step("verified", text, perf_counter() - begin)
    return report


def files_line(layout: Plan) -> str:
    """Say how many files a layout has, and how large they are."""
    count = len(layout.shards)
    return f"{count} file{'s' if count > 1 else ''}, {readable_size(layout.nbytes)}"


def assets(bundle: Bundle, payload: Path, *, sync: bool) -> None:
    """Write the files that a graph needs beside its weights.

    Raises:
        SafetyError: One has a name that would leave the folder.
        StorageError: It cannot be written.
    """
    for name, span in bundle.assets.items():
        parts = name.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in name:
            raise SafetyError(f"an asset is named {name!r:.80}", where=span.name)
        path = payload.joinpath("assets", *parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:  # too long, or a folder where another asset is a file
            raise StorageError.writing(path, e) from e
        with Output(path) as out:
            for _ in out.append([span]):
                pass
            if sync:
                out.sync()


def manifest(
    bundle: Bundle,
    layout: Plan,
    artifact: Artifact,
    payload: Path,
    sources: digests.FileDigests,
    report: WeightsReport | None,
    *,
    verify: bool,
    graphs: Sequence[Mapping[str, JSON]],
    compared: "Mapping[str, GraphReport | None]",
    sync: bool,
) -> str:
    """Write the manifest of a bundle whose other files are there; return the source's digest."""
    verified = report is not None and verify
    weights: dict[str, JSON] = {
        "status": "passed" if verified else "not run",
        "detail": "the output was read again and compared bit for bit with the source"
        if verified
        else ("--verify none" if report is not None else "there are no tensors"),
        "tensors": report.tensors if verified and report else 0,
        "bytes": report.nbytes if verified and report else 0,
    }
    known = report.files if report else {}
    paths = sorted(p for p in payload.rglob("*") if p.is_file())
    files = {p.relative_to(payload).as_posix(): File(p) for p in paths}
    found = {
        name: known.get(file.path) or digests.of_span(Span.whole(file))
        for name, file in files.items()
    }
    from converter import environment

    first = next(iter(compared.values()), None)
    others: dict[str, JSON] = {
        name: None if one is None else _without_time(one.plain())
        for name, one in [*compared.items()][1:]
    }
    document = portable.manifest(
        bundle,
        layout,
        source_name=artifact.name,
        source_files=_resources(artifact.opened, sources.finish()),
        tensor_digests=report.digests if report else {},
        resources=_resources(files, found),
        verification={
            "reached": _reached(verified, first),
            "weights": weights,
            "graph": None if first is None else _without_time(first.plain()),
            **({"graphs": others} if others else {}),
        },
        environment=environment.describe(),
        graph=graphs[0] if graphs else None,
        others=graphs[1:],
    )
    portable.write_manifest(document, payload, sync=sync)
    return str(document["source"]["digest"]["value"])


def _reached(weights: bool, graph: "GraphReport | None") -> str:
    if graph is not None and graph.reached is not None:
        return graph.reached
    return "weights" if weights else "none"


def _without_time(report: dict[str, JSON]) -> dict[str, JSON]:
    """The same conversion gives the same bytes, however long it took."""
    return {key: value for key, value in report.items() if key != "seconds"}


def _resources(files: Mapping[str, File], found: Mapping[str, str]) -> list[Resource]:
    return [Resource(name, file.size, found[name]) for name, file in files.items()]
