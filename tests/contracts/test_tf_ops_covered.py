"""Every op of TensorFlow that we lower has a row that proves it."""

import zipfile
from functools import cache

import pytest
from repository import FIXTURES, ROOT

from converter.lower.tf.table import OPS
from formats.containers.protobuf.messages import decode_bytes
from formats.limits import DEFAULT
from formats.tensorflow.schemas import SCHEMA

FOLDERS = (
    "tf_ops", "tf_tables", "tf_state", "tf_recurrent", "tensorflow", "verify_tensorflow",
    "tf_parsing",
)  # fmt: skip

# Op -> the test that proves it instead, or why it has none.
ELSEWHERE = {
    "_Loop": "made of a frame's nodes: rows with loops of TensorFlow 1",
    "RandomUniform": "test_tf_random.py",
    "RandomStandardNormal": "test_tf_random.py",
    "TruncatedNormal": "test_tf_random.py",
    "RandomUniformInt": "test_tf_random.py",
    "RandomShuffle": "test_tf_random.py",
    "Multinomial": "test_tf_random.py",
    "BucketizeWithInputBoundaries": "ops/test_one_meaning.py",  # of tf.contrib
}


@cache
def proven():
    """Return the ops in the graphs of all fixtures that are compared with TensorFlow."""
    found = set()
    for name, data in graphs():
        kind = "SavedModel" if name.endswith("saved_model.pb") else "GraphDef"
        message = decode_bytes(data, SCHEMA[kind], DEFAULT, name)
        whole = [message] if kind == "GraphDef" else [m.graph_def for m in message.meta_graphs]
        for graph in whole:
            found.update(node.op for node in graph.node)
            for function in graph.library.function:
                found.update(node.op for node in function.node_def)
    return found


def graphs():
    """Yield GraphDefs and SavedModels, in folders and in archives: name and bytes.

    Not those that are gaps: nothing is compared there.
    """
    for folder in FOLDERS:
        for path in sorted((FIXTURES / folder).rglob("*")):
            if path.name == "saved_model.pb" and not path.parent.name.startswith("gap_"):
                yield str(path), path.read_bytes()
            elif path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    names = [n for n in archive.namelist() if n.endswith(".pb")]
                    names = [n for n in names if not n.endswith(("fingerprint.pb", "metadata.pb"))]
                    names = [n for n in names if not is_gap(archive, n)]
                    yield from ((name, archive.read(name)) for name in names)


def is_gap(archive, name):
    """Tell whether a row stores what its gap says, in place of outputs."""
    stored = f"{name.removesuffix('.pb')}.npz"
    if stored not in archive.namelist():
        return False
    with zipfile.ZipFile(archive.open(stored)) as arrays:
        return "gap.npy" in arrays.namelist()


def is_proven(op):
    """Tell whether a graph has an op, or another one of the same handler."""
    return any(OPS[other].function is OPS[op].function for other in proven() & {*OPS})


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_op_has_a_row(op):
    assert is_proven(op) or op in ELSEWHERE, f"no row of fixtures/tf_ops has {op}"


@pytest.mark.parametrize("op", sorted({*ELSEWHERE} - {"_Loop"}))
def test_what_is_proven_elsewhere_is_proven_there(op):
    test = ROOT / "tests/converter/lower" / ELSEWHERE[op]
    assert op in test.read_text()


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_handler_says_what_it_does(op):
    text = OPS[op].summary
    assert text, op
    assert len(text.splitlines()[0]) > 3, op
