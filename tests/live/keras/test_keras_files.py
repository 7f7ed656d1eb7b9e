"""A written `.keras` file beside its source: what is right passes, what is planted is found."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest
from comparing import comparing
from keras_python import NEEDS_KERAS
from repository import ROOT

import converter
from converter.cli.app import run
from converter.options import Comparison, Options
from converter.verification.keras_files import verify_keras
from converter.write.keras import archive
from formats.core.weights import Tensor
from formats.errors import UsageError

FIXTURES = ROOT / "fixtures" / "verify"
ROWS = FIXTURES.parent / "keras_layers"

pytestmark = NEEDS_KERAS


def written(name, folder, edit=None):
    """Convert a fixture, plant a fault in it, and return what `verify_keras` takes."""
    source = FIXTURES / name
    bundle = converter.read(source)
    file = archive.plan_file(bundle)
    if edit is not None:
        file = edit(file)
    for _ in archive.write_file(file, folder, verify=True, sync=False):
        pass
    return source, bundle, folder / archive.NAME


@pytest.mark.parametrize("name", ["image.h5", "pairs.keras", "sequence.h5", "half.h5"])
def test_a_faithful_file_passes(tmp_path, name):
    report = verify_keras(*written(name, tmp_path))
    assert report.status == "passed", report.reason
    assert report.converted.name == "keras"
    assert report.source.name == ("keras" if name.endswith(".keras") else "tf_keras")


def scale_kernel(factor):
    """Return a function that multiplies the second convolution's kernel by a factor."""

    def edit(file):
        path = [p for p, t in file.variables.items() if len(t.shape) == 4][1]
        kernel = file.variables[path]
        data = (kernel.numpy() * np.float32(factor)).tobytes()
        wrong = Tensor.inline(kernel.dtype, kernel.shape, data)
        return replace(file, variables={**file.variables, path: wrong})

    return edit


@pytest.mark.parametrize("factor", [-1, 1 + 2**-13])
def test_a_kernel_of_other_values_is_found_and_its_layer_named(tmp_path, factor):
    """A small fault is distinguished from rounding by the noise of each layer."""
    report = verify_keras(*written("image.h5", tmp_path, scale_kernel(factor)))
    assert report.status == "failed"
    assert "differ" in report.reason
    assert report.first_difference.layer == "body/deep"
    assert report.first_difference.class_name == "Conv2D"


def test_the_command_passes_what_convert_wrote(tmp_path, capsys):
    source, out = FIXTURES / "image.h5", tmp_path / "m.keras"
    converter.convert(source, to="keras", out=out)
    assert run(["verify", str(source), str(out), "--require", "cpu", "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert "weights     13 equal, 0 different" in shown
    assert "source      tf_keras 2" in shown
    assert "converted   keras 3" in shown
    assert "seed 5" in shown
    assert "same        scores  max abs" in shown
    assert shown.endswith("verified    cpu\n")


def test_the_command_fails_on_a_fault(tmp_path, capsys):
    source, _, path = written("image.h5", tmp_path, scale_kernel(-1))
    assert run(["verify", str(source), str(path)]) == 1
    shown = capsys.readouterr().out
    assert "weights     12 equal, 1 different" in shown
    assert "DIFFERS     scores" in shown
    assert "layer       'body/deep' (Conv2D)" in shown
    assert shown.endswith("verified    nothing\n")


def test_the_users_inputs_and_bounds(tmp_path):
    source, bundle, path = written("text.keras", tmp_path)
    np.savez(tmp_path / "mine.npz", tokens=np.array([[1, 5, 0], [9, 10, 3]]))
    report = verify_keras(source, bundle, path, options=comparing(inputs=tmp_path / "mine.npz"))
    assert report.status == "passed", report.reason
    assert report.seed is None
    assert [c.inputs["tokens"] for c in report.cases] == [("int32", (2, 3))]
    with pytest.raises(UsageError, match="names the output 'other'"):
        verify_keras(source, bundle, path, options=comparing(atol={"other": 1.0}))


def test_a_bias_that_keras_adds_along_another_axis_is_noted(tmp_path):
    """As many filters as columns: see `is_mistaken` in run_keras."""
    source = tmp_path / "source.h5"
    with zipfile.ZipFile(ROWS / "keras1_tensorflow.zip") as rows:
        source.write_bytes(rows.read("conv2d-same-strides.keras1.h5"))
    today = tmp_path / "today.keras"
    converter.convert(source, to="keras", out=today)
    (tmp_path / "again").mkdir()
    again = tmp_path / "again" / archive.NAME
    bundle = converter.read(today)
    for _ in archive.write_file(archive.plan_file(bundle), again.parent, verify=True, sync=False):
        pass
    report = verify_keras(today, bundle, again)
    assert report.status == "passed", report.reason
    (note,) = report.notes
    assert "adds [1, 4, 1, 1] along the last axis" in note


def test_a_file_that_keras_does_not_load_is_no_success(tmp_path):
    def without(file):
        rest = dict(file.variables)
        del rest[next(iter(rest))]
        return replace(file, variables=rest)

    report = verify_keras(*written("image.h5", tmp_path, without))
    assert report.status == "failed"
    assert "Keras does not run the output" in report.reason


@pytest.mark.parametrize("factor", [1, 1 + 2**-13])
def test_errors_of_all_layers_are_reported_where_asked_for(tmp_path, factor):
    given = written("image.h5", tmp_path, scale_kernel(factor))
    report = verify_keras(*given, options=Options(comparison=Comparison(layers=True)))
    errors = report.layer_errors
    assert [one.layer for one in errors][:4] == ["stem", "stem_norm", "stem_swish", "body/deep"]
    assert [one.class_name for one in errors][-1] == "Dense"  # also after a difference
    wrong = [one.layer for one in errors if not one.passed]
    assert wrong[:1] == ([] if factor == 1 else ["body/deep"])
    assert all(one.noise < 1e-5 for one in errors if one.noise is not None)
    assert len(report.plain()["layer_errors"]) == len(errors)
