"""What a registry says of a model's inputs helps, and never prevents a run."""

import numpy as np
import pytest
from torch_scripts import unpacked

from converter.graphs import graphs_of
from converter.options import Comparison, Options
from converter.verification.inputs.draw import EXAMPLE, cases_from_example
from formats.artifact import Artifact
from formats.core.bundle import TensorSpec
from formats.errors import UsageError
from formats.torch import saved as torch_pickle


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    path, _ = unpacked("modules.zip", "cnn-pickle", tmp_path_factory.mktemp("cnn"))
    return path


def inputs_of(path, hinted, inputs=()):
    artifact = Artifact(path)
    options = Options(hinted_inputs=hinted, inputs=inputs)
    _, (graph,) = graphs_of(torch_pickle.read(artifact), artifact, options, only_one=False)
    return [(name, graph.specs[name].dtype, graph.specs[name].shape) for name in graph.inputs]


@pytest.mark.parametrize("name", ["", "image"])
def test_one_input_is_taken_as_declared_whatever_it_is_called(cnn, name):
    found = inputs_of(cnn, (TensorSpec(name, "float32", ("batch", 3, 12, 12)),))
    assert found == [("input", "float32", ("batch", 3, 12, 12))]


@pytest.mark.parametrize("names", [{}, {"input": "input"}, {"image": "image"}])
def test_arrays_to_compare_with_declare_inputs_that_the_program_does_not(cnn, names, tmp_path):
    image = np.zeros((2, 3, 12, 12), "float32")
    np.savez(tmp_path / "x.npz", *([] if names else [image]), **dict.fromkeys(names, image))
    artifact = Artifact(cnn)
    options = Options(comparison=Comparison(inputs=tmp_path / "x.npz"))
    _, (graph,) = graphs_of(torch_pickle.read(artifact), artifact, options, only_one=False)
    assert [(n, graph.specs[n].shape) for n in graph.inputs] == [("input", ("batch", 3, 12, 12))]


def test_a_file_that_is_no_archive_of_arrays_is_refused(cnn, tmp_path):
    (tmp_path / "x.npz").write_bytes(b"no archive")
    artifact = Artifact(cnn)
    options = Options(comparison=Comparison(inputs=tmp_path / "x.npz"))
    with pytest.raises(UsageError, match=r"is no \.npz"):
        graphs_of(torch_pickle.read(artifact), artifact, options, only_one=False)


@pytest.mark.parametrize(
    "hinted",
    [
        (TensorSpec("", "float32", ("batch", 5)),),
        (TensorSpec("", "int64", ("batch", 3, 12, 12)),),
        (TensorSpec("", "float32", ("batch", 7, 12, 12)),),
        (TensorSpec("a", "float32", (1,)), TensorSpec("b", "float32", (1,))),
    ],
    ids=["another rank", "another dtype", "other channels", "two of them"],
)
def test_a_declaration_of_another_model_is_as_none(cnn, hinted):
    assert inputs_of(cnn, hinted) == inputs_of(cnn, ())


def test_what_the_user_says_goes_before(cnn):
    said = (TensorSpec("input", "float32", ("n", 3, 20, 20)),)
    found = inputs_of(cnn, (TensorSpec("", "float32", ("batch", 3, 12, 12)),), said)
    assert found == [("input", "float32", ("n", 3, 20, 20))]
    with pytest.raises(UsageError):  # and is an error where it is none
        inputs_of(cnn, (), (TensorSpec("x", "float32", ("n", 3, 20, 20)),))


ONE = [TensorSpec("dense_input", "float32", ("batch", 3))]
TWO = [TensorSpec("a", "float32", ("batch", 3)), TensorSpec("b", "int64", ("batch",))]
X = np.arange(6, dtype=np.float64).reshape(2, 3)


def example(tmp_path, specs, **arrays):
    path = tmp_path / "example.npz"
    np.savez(path, **arrays)
    return cases_from_example(path, specs)


def test_an_example_of_one_input_needs_no_name(tmp_path):
    for name in ("arr_0", "x"):
        (((case,),)) = example(tmp_path, ONE, **{name: X})
        assert case.name == EXAMPLE
        assert case.arrays[0].dtype == np.float32
        assert (case.arrays[0] == X).all()


def test_an_example_of_several_inputs_goes_by_their_names(tmp_path):
    (((case,),)) = example(tmp_path, TWO, b=np.array([1, 2]), a=X)
    assert [a.shape for a in case.arrays] == [(2, 3), (2,)]
    assert example(tmp_path, TWO, a=X, c=X) == []


def test_an_example_of_another_model_is_none(tmp_path):
    assert example(tmp_path, ONE, x=np.ones((2, 4))) == []
    assert example(tmp_path, ONE, x=np.array([["word"] * 3])) == []
    assert example(tmp_path, ONE, x=X, y=X) == []
    (tmp_path / "example.npz").write_bytes(b"none")
    assert cases_from_example(tmp_path / "example.npz", ONE) == []
    assert cases_from_example(None, ONE) == []
