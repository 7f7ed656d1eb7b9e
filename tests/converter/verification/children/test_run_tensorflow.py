"""What the child that runs TensorFlow graphs knows of them; nothing here needs TensorFlow."""

from types import SimpleNamespace

import numpy as np
import pytest

from converter.verification.children import run_savedmodel, run_tensorflow
from converter.verification.children.load_tensorflow import RANDOM, STATEFUL, device_name
from converter.verification.children.run_savedmodel import RefusedError, find_reached, refuse
from converter.verification.children.run_tensorflow import Runner


class Attribute(SimpleNamespace):
    def HasField(self, name):  # noqa: N802 - as protobuf calls it
        return hasattr(self, name)


def node(name, op, *inputs, **functions):
    found = {
        key: Attribute(func=SimpleNamespace(name=value))
        if isinstance(value, str)
        else Attribute(list=SimpleNamespace(func=[SimpleNamespace(name=v) for v in value]))
        for key, value in functions.items()
    }
    return SimpleNamespace(name=name, op=op, input=inputs, attr=found)


def graph(*nodes, **functions):
    library = [
        SimpleNamespace(signature=SimpleNamespace(name=name), node_def=body)
        for name, body in functions.items()
    ]
    return SimpleNamespace(node=nodes, library=SimpleNamespace(function=library))


GRAPH = graph(
    node("x", "Placeholder"),
    node("y", "PartitionedCall", "x:0", "^wrote", f="body"),
    node("wrote", "NoOp", "^save"),
    node("save", "SaveV2"),
    node("apart", "ReadFile"),
    node("case", "Case", "x", branches=["one", "two"]),
    node("named", "called", "x"),
    body=[node("z", "While", body="body", cond="one")],
    one=[node("a", "PyFunc")],
    two=[node("b", "Relu")],
    called=[node("c", "WriteFile")],
)


def test_what_is_reached_is_found_through_control_edges_and_functions():
    assert sorted(find_reached(GRAPH, ["y:0"])) == [
        "NoOp", "PartitionedCall", "Placeholder", "PyFunc", "SaveV2", "While",
    ]  # fmt: skip
    assert sorted(find_reached(GRAPH, ["case"])) == ["Case", "Placeholder", "PyFunc", "Relu"]
    assert sorted(find_reached(GRAPH, ["named"])) == ["Placeholder", "WriteFile", "called"]
    assert list(find_reached(GRAPH, ["nowhere:0"])) == []


def test_what_touches_files_or_runs_code_is_refused():
    with pytest.raises(RefusedError, match=r"PyFunc, SaveV2$"):
        refuse(GRAPH, ["y:0"])
    with pytest.raises(RefusedError, match="WriteFile"):
        refuse(GRAPH, ["named"])
    refuse(GRAPH, ["x"])


@pytest.mark.parametrize(
    "op",
    [
        "RandomUniform", "RandomStandardNormal", "StatefulUniform", "StatefulUniformInt",
        "StatefulStandardNormalV2", "StatefulRandomBinomial", "StatefulTruncatedNormal",
        "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial", "RandomShuffle",
        "NonDeterministicInts", "LogUniformCandidateSampler", "FusedDropout",
    ],
)  # fmt: skip
def test_operations_that_are_random(op):
    assert RANDOM.fullmatch(op)


@pytest.mark.parametrize("op", ["StatelessRandomUniform", "UniformQuantize", "RGBToHSV", "Normal"])
def test_operations_that_are_not(op):
    assert not RANDOM.fullmatch(op)


@pytest.mark.parametrize(
    "op",
    [
        "AssignVariableOp", "AssignAddVariableOp", "Assign", "ResourceApplyAdam", "ApplyMomentum",
        "SparseApplyFtrl", "ResourceScatterUpdate", "ScatterNdAdd", "ScatterUpdate", "CountUpTo",
        "LookupTableInsertV2", "QueueDequeueV2", "StackPushV2", "IteratorGetNext",
    ],
)  # fmt: skip
def test_operations_that_change_state(op):
    assert STATEFUL.fullmatch(op)


@pytest.mark.parametrize("op", ["ScatterNd", "TensorScatterUpdate", "ReadVariableOp", "Stack"])
def test_operations_that_change_none(op):
    assert not STATEFUL.fullmatch(op)


def runner():
    source = SimpleNamespace(device=lambda: "CPU:0", random=set(), is_stateful=False)
    return Runner(None, np, None, {"layers": []}, source)


@pytest.mark.parametrize(
    ("a", "b", "dtype", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], "float32", True),
        ([1.0, 2.0], [1.0, 2.1], "float32", False),
        ([1.0, np.nan], [1.0, np.nan], "float32", True),
        ([1.0, np.nan], [np.nan, 1.0], "float32", False),
        ([1000.0, 1e-9], [1000.0, 1e-4], "float32", True),
        ([1, 2], [1, 3], "int32", False),
        (["a"], ["b"], "string", False),
        ([[1.0]], [1.0], "float32", False),
    ],
)
def test_two_runs_are_the_same_but_for_noise(a, b, dtype, same):
    assert runner().is_same(np.array(a), np.array(b), dtype) is same


def test_outputs_as_files_can_keep_them():
    def plain(value, name):
        return runner().plain(value, SimpleNamespace(name=name))

    array, dtype = plain(np.array([b"\xc3\xa9", b"b"], object), "string")
    assert (array.tolist(), array.dtype.kind, dtype) == (["é", "b"], "U", "string")
    array, dtype = plain(np.array([(3,), (4,)], [("quint8", "u1")]), "quint8")
    assert (array.tolist(), array.dtype.name, dtype) == ([3, 4], "uint8", "uint8")
    assert plain(np.float16(2), "float16")[0].dtype.name == "float16"


def test_the_device_is_the_one_that_computes():
    cpu = "/job:localhost/replica:0/task:0/device:CPU:0"
    assert device_name([cpu]) == "CPU:0"
    assert device_name([cpu, cpu.replace("CPU", "GPU")]) == "GPU:0"
    assert device_name([]) == ""


def test_the_file_beside_is_the_one_of_the_package():
    assert run_tensorflow.files.__file__ == run_savedmodel.__file__
