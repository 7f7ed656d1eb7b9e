"""Weights in safetensors files, compared with the source while they are written."""

from bisect import bisect_right
from collections.abc import Generator
from functools import partial
from itertools import accumulate
from pathlib import Path
from time import perf_counter

from converter.byte_sizes import readable_size
from converter.events import Progress, Step
from converter.write.background import Background
from converter.write.readback import WeightsReport, Written, compare
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.digests import FileDigests
from formats.core.plurals import count
from formats.core.storage import Blocks
from formats.safetensors_writer import ShardLayout, create, fill


def write(
    bundle: Bundle,
    layout: ShardLayout,
    payload: Path,
    blocks: Blocks,
    sources: FileDigests | None,
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
        sources: Follows what is read, for the digests of the source and of the output; None where
            no digests are wanted.
        verify: Whether to compare, and to say so.
        sync: Wait until the bytes are on the disk.

    Returns:
        What the comparison found, or the digests alone without ``verify``; None where there is
        neither.

    Raises:
        StorageError: The disk is full, or fails.
        VerificationError: What was written is not the source.
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
    stored = [pair for shard in layout.shards for pair in shard.tensors]
    names, ends = [n for n, _ in stored], list(accumulate(t.nbytes for _, t in stored))
    try:
        watch = None if sources is None else sources.follow
        for n in fill(layout, payload, blocks=blocks, watch=watch, sync=sync):
            written.advance(n)
            done += n
            item = names[min(bisect_right(ends, done), len(names) - 1)] if names else ""
            yield Progress("written", done, total, item)
    finally:
        written.end()
        if comparison is not None:
            comparison.wait()
    report = comparison.result() if comparison is not None else None
    if report is not None and verify:
        text = str(report)
        yield Step("verified", text, perf_counter() - begin)
    return report


def summary(layout: ShardLayout) -> str:
    """Return how many files a layout has, and how large they are."""
    return f"{count('file', len(layout.shards))}, {readable_size(layout.nbytes)}"
