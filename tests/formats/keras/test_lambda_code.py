"""Functions as all the versions of Keras record them in a Lambda layer."""

import base64
import codecs
import json
import marshal
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_assembler import Source, assemble
from python_machine import Cell, Function
from repository import ROOT

from formats.errors import CorruptError, UnsupportedError
from formats.keras.lambda_code import function_of, is_function

BESIDE = ROOT.parent / "shared" / "corpus"
CORPUS = Path(os.environ.get("CONVERTER_CORPUS", BESIDE))
OLD = "keras_h5/KonduitAI__dl4j-test-resources/src/main/resources/modelimport/keras"


def called(config: Any, *args: Any) -> Any:
    function = function_of(json.loads(json.dumps(config)))
    closure = tuple(map(Cell, function.closure))
    return Function(function.code, {}, function.defaults, None, closure)(*args)


def dumped(function: Any) -> tuple[str, Any, Any]:
    """Return what Keras's own `func_dump` does."""
    code = codecs.encode(marshal.dumps(function.__code__), "base64").decode("ascii")
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    return code, function.__defaults__, cells or None


def made(n: int) -> Any:
    return lambda x, m=2: x * m + n


def forms() -> list[Any]:
    code, defaults, closure = dumped(made(5))
    parts = {"code": code, "defaults": defaults, "closure": closure}
    three = [code, defaults, closure]
    return [
        three,
        {"class_name": "__tuple__", "items": three},
        {"class_name": "__lambda__", "config": parts},
        {"class_name": "__lambda__", "config": {"value": three}},
        {"class_name": "__lambda__", "config": {"value": forms_tuple(three)}},
        [code, forms_tuple(list(defaults)), forms_tuple(list(closure))],
    ]


def forms_tuple(items: list[Any]) -> Any:
    return {"class_name": "__tuple__", "items": items}


@pytest.mark.parametrize("form", range(6))
def test_every_form(form: int) -> None:
    config = forms()[form]
    assert is_function(config)
    assert called(config, 3) == 11
    assert called(config, 3, 4) == 17


def test_bytes_as_characters() -> None:
    """Keras 1 wrote a character for each byte; a backslash and a u among them make one of six."""
    text = "LOAD_FAST x\nLOAD_CONST '\\\\u0161'\nBINARY_ADD\nRETURN_VALUE"
    data = assemble(Source((2, 7), text))
    assert b"\\u0161" in data
    written = data.decode("raw_unicode_escape")
    assert "\u0161" in written
    assert called([written, None, None], "a") == "a\\u0161"
    plain = assemble(Source((2, 7), "LOAD_FAST x\nLOAD_CONST 200\nBINARY_ADD\nRETURN_VALUE"))
    assert called([plain.decode("latin-1"), None, None], 1) == 201


def test_values_of_defaults_and_closures() -> None:
    code, _, _ = dumped(lambda a, b, c, d, e, f: (a, b, c, d, e, f))
    inside = {"class_name": "__lambda__", "config": dict(zip(
        ("code", "defaults", "closure"), dumped(made(1)), strict=True))}  # fmt: skip
    values = [
        forms_tuple([1, forms_tuple([])]),
        {"class_name": "__ellipsis__", "config": {}},
        {"class_name": "__bytes__", "config": {"value": "a"}},
        {"class_name": "__slice__", "config": {"start": 1, "stop": None, "step": None}},
        {"class_name": "__numpy__", "config": {"value": [1, 2], "dtype": "float32"}},
        {"a": [1, inside]},
    ]
    function = function_of([code, values, None])
    a, b, c, d, e, f = function.defaults
    assert (a, b, c, d) == ((1, ()), ..., b"a", slice(1, None))
    assert e.dtype == np.float32
    assert e.tolist() == [1, 2]
    assert f["a"][1].closure == (1,)


@pytest.mark.parametrize("config", [None, "relu", [8, 8], [None, 2, 3], {}, {"class_name": "X"}])
def test_what_is_no_function(config: Any) -> None:
    assert not is_function(config)
    with pytest.raises(CorruptError):
        function_of(config)


def test_what_does_not_fit_the_code() -> None:
    code, defaults, closure = dumped(made(5))
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    for wrong in (
        [code, [1, 2, 3], closure],
        [code, defaults, []],
        [code, defaults, [1, 2]],
        [code, 3, closure],
        [code, nested, closure],
        [code[:40], defaults, closure],
        ["no code", defaults, closure],
        ["", defaults, closure],
        ["\ud800", defaults, closure],
        [base64.b64encode(b"N").decode(), None, None],
        [code, [{"class_name": "__numpy__", "config": {"value": ["a"], "dtype": "int8"}}], [1]],
    ):
        with pytest.raises(CorruptError):
            function_of(wrong)
    for unknown in ({"class_name": "Dense", "config": {}}, {"class_name": "__typespec__"}):
        with pytest.raises(UnsupportedError, match="default or closure"):
            function_of([code, [unknown], closure])
    objects = {"class_name": "__numpy__", "config": {"value": [1], "dtype": "object"}}
    with pytest.raises(UnsupportedError, match="object"):
        function_of([code, [objects], closure])


@pytest.mark.skipif(not (CORPUS / OLD).exists(), reason="the corpus is not here")
def test_layers_of_the_corpus() -> None:
    """Those of Python 2.7 and 3.6, which cannot be made here."""
    import h5py

    def layers(path: str) -> list[Any]:
        with h5py.File(CORPUS / OLD / path) as file:
            config = json.loads(file.attrs["model_config"])["config"]
        inside = config["layers"] if isinstance(config, dict) else config
        return [one["config"] for one in inside if one["class_name"] == "Lambda"]

    for path in ("examples/lambda/model_lambda.h5", "examples/lambda/sequential_lambda.h5"):
        square, triple = layers(path)
        assert called(square["function"], 7) == 49
        assert called(triple["function"], 7) == 21
        assert function_of(square["function"]).code.version == (2, 7)
    (layer,) = layers("weights/space_to_depth_simple_tensorflow_2.h5")
    assert called(layer["output_shape"], (None, 6, 6, 4)) == (None, 3, 3, 16)
    code = function_of(layer["function"]).code
    assert (code.version, code.name) == ((3, 6), "space_to_depth_x2")
    assert [step.op for step in code.steps][-2:] == ["call", "return"]
