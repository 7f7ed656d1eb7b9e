"""Functions and ops of TensorFlow as operations of Keras 3; live rows compare what they give."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.lower.keras.model import Reference
from converter.lower.keras.table import OPERATIONS, TF_FUNCTIONS, TF_OPS, Unsupported
from converter.write.keras import archive
from converter.write.keras.tensorflow_ops import arithmetic as a
from converter.write.keras.tensorflow_ops import arrays as r
from converter.write.keras.tensorflow_ops.builder import (
    FUNCTIONS,
    NODES,
    KerasOps,
    Known,
)
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "keras_layers"
X, Y = Reference("x", 0, 0), Reference("y", 0, 0)
# Rows in which something has no operation in Keras 3, or one of other results.
WITH_GAPS = {
    "computed", "node-cumprod", "node-inverse", "node-lgamma", "node-segment-sum",
    "images", "indices", "items", "items-dynamic", "lambdas", "lambdas-images", "matrices",
    "node-chain", "node-gather-nd", "node-lrn", "node-resize-cubic", "node-shape", "node-size",
    "node-where", "pictures", "reduced-other", "shapes", "shapes-dynamic",
}  # fmt: skip


def steps(dtype="float32", name="f", taken=()):
    return KerasOps(name, {X: Known(dtype, (None, 4, 6)), Y: Known(dtype, (None, 4, 6))}, taken)


def test_only_what_is_lowered_is_translated():
    assert set(FUNCTIONS) <= set(TF_FUNCTIONS)
    assert set(NODES) <= set(TF_OPS)


def test_every_operation_is_one_that_is_read_back():
    tables = (a.UNARY, a.TESTS, a.BINARY, a.OF_FLOATS, a.COMPARED, a.REDUCED)
    assert {kind.split(".")[1] for table in tables for kind in table.values()} <= set(OPERATIONS)


def test_the_rows_that_have_gaps(tmp_path):
    found = set()
    source = tmp_path / "source.h5"
    with zipfile.ZipFile(FIXTURES / "tensorflow_ops.zip") as rows:
        for name in rows.namelist():
            if name.endswith(".h5"):
                source.write_bytes(rows.read(name))
                try:
                    archive.plan_file(converter.read(source))
                except UnsupportedError:
                    found.add(name.removesuffix(".tf_keras.h5"))
    assert found == WITH_GAPS


def test_of_a_model_that_is_not_lowered_no_dtypes_are_known(tmp_path):
    source = tmp_path / "source.h5"
    with zipfile.ZipFile(FIXTURES / "tensorflow_ops.zip") as rows:
        source.write_bytes(rows.read("node-mul.tf_keras.h5"))
    bundle = converter.read(source)
    content = json.loads(json.dumps(bundle.topology.content))
    other = {"class_name": "Mine", "name": "other", "config": {"name": "other"}}
    first = content["config"]["layers"][0]["name"]
    content["config"]["layers"].append({**other, "inbound_nodes": [[[first, 0, 0, {}]]]})
    content["config"]["output_layers"].append(["other", 0, 0])
    bundle = replace(bundle, topology=replace(bundle.topology, content=content))
    with pytest.raises(UnsupportedError, match="Mul, whose dtypes are not known"):
        archive.plan_file(bundle)


def test_constants_take_the_dtype_of_the_tensor_and_numbers_stay():
    s = steps("float16")
    s.finish(FUNCTIONS["add"](s, X, [1, 2, 3, 4, 5, 6]))
    (layer,) = s.layers
    assert layer.calls[0].arguments[1].dtype == np.float16
    s = steps()
    FUNCTIONS["add"](s, 2, X)
    assert s.layers[0].calls[0].arguments == (2, X)


def test_the_last_step_bears_the_name_and_no_other_is_taken():
    s = steps(name="f", taken=["f", "f_step0"])
    made = s.finish(a.squared_difference(s, X, Y))
    assert [layer.name for layer in made] == ["f_step_0", "f"]
    assert made[1].calls[0].arguments == (Reference("f_step_0", 0, 0),)


def test_integers_that_keras_would_promote_are_gaps():
    with pytest.raises(Unsupported, match="exp of int32"):
        FUNCTIONS["exp"](steps("int32"), X)
    with pytest.raises(Unsupported, match="reduce_mean of int32"):
        FUNCTIONS["reduce_mean"](steps("int32"), X)
    s = steps("int32")
    assert a.true_divide(s, X, Y) == Reference(s.layers[-1].name, 0, 0)
    assert [layer.class_name for layer in s.layers] == ["Cast", "Cast", "TrueDivide"]
    assert s.layers[0].config == {"dtype": "float64"}


def test_one_computed_size_follows_from_the_others():
    s = steps()
    r.reshape(s, X, [Y, 24])
    assert s.layers[0].config == {"newshape": [-1, 24]}
    with pytest.raises(Unsupported, match="several sizes that the model computes"):
        r.reshape(steps(), X, [Y, -1, 2])
    with pytest.raises(Unsupported, match="computed"):
        r.tile(steps(), X, [1, Y, 1])


def test_constants_alone_are_no_call():
    with pytest.raises(Unsupported, match="constants alone"):
        FUNCTIONS["add"](steps(), 1.0, 2.0)
