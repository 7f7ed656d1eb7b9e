"""Digests taken on the way equal those of the whole files, whatever the way was."""

import blake3
import numpy as np
import pytest

from formats.core.digests import STRIDE, FileDigests
from formats.core.storage import Blocks, Buffer, File, Span

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("order", ["forwards", "backwards", "shuffled", "nothing"])
@pytest.mark.parametrize("step", [777, STRIDE // 2, 2 * STRIDE + 1])
def test_files_are_hashed_whole_in_whatever_order_they_are_read(tmp_path, order, step):
    files = {}
    for name, size in (("a", 3 * STRIDE + 5), ("b", 100), ("c", 0)):
        (tmp_path / name).write_bytes(RNG.integers(0, 256, size, np.uint8).tobytes())
        files[name] = File(tmp_path / name)
    runs = [
        Span(file, start, min(step - 3, file.size - start))  # with gaps of three bytes
        for file in files.values()
        for start in range(0, file.size, step)
    ]
    runs = {
        "forwards": runs,
        "backwards": runs[::-1],
        "shuffled": [runs[i] for i in RNG.permutation(len(runs))],
        "nothing": [],
    }[order]
    digests = FileDigests(files, Blocks())
    for run in runs:
        digests.follow(run)
    digests.follow(Span(Buffer(b"not one of them", "x"), 0, 15))
    expected = {n: blake3.blake3((tmp_path / n).read_bytes()).hexdigest() for n in files}
    assert digests.finish() == expected
