"""The comparison that follows the writing: what it finds, what it hashes, and that it ends."""

import threading
import time

import blake3
import numpy as np
import pytest

from converter.write.background import Background
from converter.write.readback import Written, compare
from formats import catalog
from formats.artifact import Artifact
from formats.core.storage import Blocks, File, Span
from formats.core.weights import DTYPES, Tensor
from formats.errors import InternalError, VerificationError
from formats.safetensors_writer import create, fill, plan_shards

RNG = np.random.default_rng(77)
U8 = DTYPES["uint8"]


@pytest.fixture
def source(tmp_path):
    """Weights of every kind: small and large, in files out of order, in memory, computed, tied."""
    data = RNG.integers(0, 256, 3 * Blocks.SIZE + 12345, np.uint8).tobytes()
    (tmp_path / "source").write_bytes(data)
    whole = Span.whole(File(tmp_path / "source"))
    weights = {
        "large": Tensor.contiguous(
            U8, (2 * Blocks.SIZE + 77,), whole.sub(5000, 2 * Blocks.SIZE + 77)
        ),
        "first": Tensor.contiguous(U8, (13, 5), whole.sub(0, 65)),
        "inline": Tensor.inline(U8, (Blocks.SIZE + 1,), data[: Blocks.SIZE + 1]),
        "computed": Tensor.computed(
            U8, (9000,), lambda: (data[i : i + 90] for i in range(0, 9000, 90))
        ),
        "empty": Tensor.inline(U8, (0, 3), b""),
    }
    for i in range(400):
        weights[f"small.{i}"] = Tensor.contiguous(U8, (11,), whole.sub(100 + 11 * i, 11))
    weights["tied"] = weights["large"]
    return weights


def stored(folder, weights, **options):
    folder.mkdir()
    layout = plan_shards(weights, {}, **options)
    create(layout, folder)
    return layout, catalog.read(Artifact(folder), "safetensors").weights


@pytest.mark.parametrize("limit", [10**9, 2 * Blocks.SIZE, 3000])
def test_digests_are_those_of_the_bytes_and_of_the_files(tmp_path, source, limit):
    layout, output = stored(tmp_path / "out", source, max_shard_bytes=limit)
    for _ in fill(layout, tmp_path / "out"):
        pass
    report = compare(source, output, with_digests=True)
    assert report.digests == {n: blake3.blake3(t.tobytes()).hexdigest() for n, t in source.items()}
    assert report.files == {
        p: blake3.blake3(p.read_bytes()).hexdigest()
        for p in (tmp_path / "out").glob("*.safetensors")
    }
    assert report.tensors == len(source)
    assert report.nbytes == sum(t.nbytes for n, t in source.items() if n != "tied")
    assert compare(source, output, with_digests=False).digests == {}


@pytest.mark.parametrize("limit", [10**9, 2 * Blocks.SIZE])
def test_it_waits_for_what_is_not_yet_written(tmp_path, source, limit):
    layout, output = stored(tmp_path / "out", source, max_shard_bytes=limit)
    written = Written()
    comparison = Background(lambda: compare(source, output, with_digests=True, written=written))
    for n in fill(layout, tmp_path / "out"):
        time.sleep(0.002)  # a comparison that ran ahead would meet zeros
        written.advance(n)
    assert comparison.result().tensors == len(source)


def test_who_writes_waits_for_a_reader_that_is_far_behind():
    written = Written()
    written.advance(10 * Written.AHEAD)  # nobody reads yet
    written.wait(5)
    for nbytes, go_on in (
        (Written.AHEAD, lambda: written.wait(10 * Written.AHEAD)),
        (1, written.leave),
    ):
        writing = threading.Thread(target=written.advance, args=(nbytes,))
        writing.start()
        writing.join(0.05)
        assert writing.is_alive()
        go_on()
        writing.join(10)
        assert not writing.is_alive()


def test_a_writing_that_ends_early_ends_the_comparison(tmp_path, source):
    _, output = stored(tmp_path / "out", source)
    written = Written()
    comparison = Background(lambda: compare(source, output, with_digests=False, written=written))
    threading.Timer(0.05, written.end).start()
    with pytest.raises(InternalError, match="not written to the end"):
        comparison.result()


@pytest.mark.parametrize("name", ["large", "first", "inline", "computed", "small.0", "small.399"])
@pytest.mark.parametrize("where", [0, -1])
def test_one_wrong_bit_is_found_and_named(tmp_path, source, name, where):
    layout, output = stored(tmp_path / "out", source)
    for _ in fill(layout, tmp_path / "out"):
        pass
    extent = output[name].extent()
    at = extent.offset + where % extent.length
    with (tmp_path / "out" / "model.safetensors").open("r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))
    output = catalog.read(Artifact(tmp_path / "out"), "safetensors").weights
    with pytest.raises(VerificationError, match="differs") as caught:
        compare(source, output, with_digests=True)
    named = {name, "tied"} if name == "large" else {name}
    assert caught.value.where in named
    assert caught.value.offset == where % extent.length


def test_missing_extra_and_reshaped_tensors_are_found(tmp_path, source):
    _, output = stored(tmp_path / "out", source)
    with pytest.raises(VerificationError, match="lacks 1 tensor and has 0"):
        compare({**source, "more": source["first"]}, output, with_digests=False)
    with pytest.raises(VerificationError, match="lacks 0 tensors and has 1"):
        compare({n: t for n, t in source.items() if n != "first"}, output, with_digests=False)
    other = Tensor.inline(U8, (65,), source["first"].tobytes())
    with pytest.raises(VerificationError, match=r"uint8\[13, 5\]"):
        compare({**source, "first": other}, output, with_digests=False)
    with pytest.raises(VerificationError, match="no tensor"):
        compare({}, {}, with_digests=False)
