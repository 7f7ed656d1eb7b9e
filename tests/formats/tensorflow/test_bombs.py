"""Small TensorFlow and ONNX files that ask for much: each is read or refused in little time."""

import resource
import time

import pytest
from sstable_files import entry, field, header, number, shape, table

from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError

SECONDS, MEMORY = 8, 600 << 20
ONE = field(5, b"\0\0\x80\x3f")  # a TensorProto's float_val
INFO = field(1, field(5, b"2.1"))  # a MetaGraphDef's meta_info_def


def attempt(path):
    """Read the artifact and describe its tensors; return the bundle or the error."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    start = time.process_time()
    try:
        found = catalog.read(Artifact(path))
        found = found, sum(t.nbytes for t in found.weights.values())
    except ConvertError as e:
        found = e
    assert time.process_time() - start < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MEMORY
    return found


def constant(name, kind, sizes, values=b""):
    tensor = field(1, kind) + field(2, shape(sizes)) + values
    value = field(5, field(1, b"value") + field(2, field(8, tensor)))
    return field(1, field(1, name) + field(2, b"Const") + value)


@pytest.mark.parametrize("kind", [1, 7, 29])
def test_many_splats_of_much(tmp_path, kind):
    values = {1: field(5, b"\0\0\x80\x3f"), 7: field(8, b"x" * 100), 29: field(7, b"\1")}[kind]
    nodes = [constant(b"c%d" % i, kind, [1 << 20, 1 << 9], values) for i in range(2000)]
    (tmp_path / "m.pb").write_bytes(b"".join(nodes))
    assert isinstance(attempt(tmp_path / "m.pb"), ConvertError)


def test_two_splats_that_fit(tmp_path):
    (tmp_path / "m.pb").write_bytes(
        constant(b"a", 1, [1 << 12, 1 << 12], field(5, b"\0\0\x80\x3f"))
    )
    bundle, nbytes = attempt(tmp_path / "m.pb")
    assert nbytes == 1 << 26
    assert next(bundle.weights["a"].chunks())[:4] == b"\0\0\x80\x3f"


def test_meta_graphs_whose_equal_constants_are_expensive_to_compare(tmp_path):
    graphs = [
        field(
            2, field(1, field(5, b"2.1")) + field(2, constant(b"c", 1, [1 << 20], field(5, data)))
        )
        for data in (b"\0\0\x80\x3f", b"\0\0\0\x40") * 300
    ]
    (tmp_path / "saved_model.pb").write_bytes(field(1, 1) + b"".join(graphs))
    attempt(tmp_path)


def test_an_object_graph_of_loops(tmp_path):
    """Every object is reached over and over, and each step could look through all of them."""
    n = 60_000
    child = [field(1, field(1, (i + 1) % n) + field(2, b"a")) for i in range(n)]
    ours = b"".join(field(1, c) for c in child)
    text = number(len(ours)) + b"crc?" + ours
    index = table(
        [(b"", header()), (b"_CHECKPOINTABLE_OBJECT_GRAPH", entry(7, [], size=len(text)))]
    )
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "variables.index").write_bytes(index)
    (tmp_path / "variables" / "variables.data-00000-of-00001").write_bytes(text)
    wide = b"".join(field(1, field(1, 0) + field(2, b"b%d" % i)) for i in range(n))
    theirs = field(1, field(1, field(1, 0) + field(2, b"a")) + wide)
    info = field(1, field(5, b"2.1"))
    graph = field(2, constant(b"c", 1, [1], field(5, b"\0\0\x80\x3f")))
    (tmp_path / "saved_model.pb").write_bytes(
        field(1, 1) + field(2, info + graph + field(7, theirs))
    )
    attempt(tmp_path)


def test_an_index_that_names_one_block_again_and_again(tmp_path):
    data = bytearray(table([(b"", header()), (b"k", entry(1, [1], size=4))], per_block=1))
    from sstable_files import block, masked_crc

    idle = block([]) + bytes(4 * 200_000)
    idle = idle[:4] + bytes(4 * 200_000) + (200_001).to_bytes(4, "little")
    start = len(data)
    out = bytearray(data[:-48]) + bytearray()
    start = len(out)
    out += idle + b"\0" + masked_crc(idle + b"\0").to_bytes(4, "little")
    handle = number(start) + number(len(idle))
    index = block([(b"k%06d" % i, handle) for i in range(20_000)], restart_every=1)
    at = len(out)
    out += index + b"\0" + masked_crc(index + b"\0").to_bytes(4, "little")
    footer = number(0) + number(0) + number(at) + number(len(index))
    (tmp_path / "c.index").write_bytes(bytes(out) + footer + bytes(40 - len(footer)) + data[-8:])
    (tmp_path / "c.data-00000-of-00001").write_bytes(bytes(4))
    assert isinstance(attempt(tmp_path / "c"), ConvertError)


def test_a_name_of_slashes(tmp_path):
    keys = sorted(b"%03d" % i + b"a/" * 30_000 + b"Adam" for i in range(60))
    pairs = [(b"", header()), *((k, entry(1, [1], size=4)) for k in keys)]
    (tmp_path / "c.index").write_bytes(table(pairs, per_block=1))
    (tmp_path / "c.data-00000-of-00001").write_bytes(bytes(4))
    attempt(tmp_path / "c")


def test_a_model_of_nothing_but_small_messages(tmp_path):
    node = field(1, field(4, b"Op"))
    (tmp_path / "m.onnx").write_bytes(field(1, 8) + field(7, node * 50_000))
    attempt(tmp_path / "m.onnx")
    empty = field(1, field(4, b"Op") + field(5, b"") * 100_000)
    (tmp_path / "m.onnx").write_bytes(field(1, 8) + field(7, empty))
    attempt(tmp_path / "m.onnx")
