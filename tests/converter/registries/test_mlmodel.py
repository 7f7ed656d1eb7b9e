"""MLmodel files as MLflow 1 to 3 wrote them, and as nobody should."""

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest

from converter.registries import mlmodel
from formats.core.bundle import TensorSpec
from formats.errors import (
    ConvertError,
    CorruptError,
    LimitError,
    SafetyError,
    SourceError,
    UnsupportedError,
)

# What MLflow 3.17.2 wrote of a torch.nn.Linear, less what nobody reads.
PYTORCH = b"""\
flavors:
  python_function:
    config:
      device: null
    data: data
    loader_module: mlflow.pytorch
    pickle_module_name: mlflow.pytorch.pickle_module
  pytorch:
    code: null
    model_data: data
    pytorch_version: 2.13.0+cpu
mlflow_version: 3.17.2
model_id: null
model_uuid: 4f25843b977a4f63af61850fef8d14a0
run_id: 3a0f
saved_input_example_info:
  artifact_path: input_example.json
  serving_input_path: serving_input_example.json
  type: ndarray
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1,
    2]}}]'
  params: null
utc_time_created: '2026-11-22 08:49:43.160496'
"""


def document(flavors: str, rest: str = "") -> mlmodel.Document:
    text = "flavors:\n" + textwrap.indent(textwrap.dedent(flavors), "  ")
    return mlmodel.parse(f"{text}\n{textwrap.dedent(rest)}".encode(), "MLmodel")


# Flavor blocks, the files of the folder, and which of them is the model: ECOSYSTEM.md 1.2.
PLACES = [
    ("keras: {data: data, keras_version: 3.1}", ["data/model.keras"], "data/model.keras"),
    ("keras: {data: data, save_exported_model: true}", ["data/model/saved_model.pb"], "data/model"),
    ("keras: {data: data, save_format: h5}", ["data/model.h5"], "data/model.h5"),
    (
        "tensorflow: {data: data, model_type: keras, save_format: tf}",
        ["data/model.keras", "data/save_format.txt"],
        "data/model.keras",
    ),
    (
        "tensorflow: {data: data, model_type: keras, save_format: tf}",
        ["data/model/saved_model.pb"],
        "data/model",
    ),
    ("tensorflow: {data: data, model_type: keras}", ["data/model.h5"], "data/model.h5"),
    (
        "tensorflow: {model_type: tf2-module, saved_model_dir: tf2model}",
        ["tf2model/saved_model.pb"],
        "tf2model",
    ),
    ("pytorch: {model_data: data}", ["data/model.pth"], "data/model.pth"),
    ("pytorch: {model_data: data}", ["data/model.pt2", "data/x.txt"], "data/model.pt2"),
    ("onnx: {data: model.onnx}", ["model.onnx", "model.onnx.data"], "model.onnx"),
    ("onnx: null", ["model.onnx"], "model.onnx"),
    ("transformers: {model_binary: model}", ["model/config.json"], "model"),
    (
        "sentence_transformers: {data: model.sentence_transformer}",
        ["model.sentence_transformer/model.safetensors"],
        "model.sentence_transformer",
    ),
]


@pytest.mark.parametrize(("flavors", "files", "expected"), PLACES)
def test_the_files_tell_where_the_model_is(flavors: str, files: list[str], expected: str) -> None:
    said = document(flavors)
    place = mlmodel.payload(said, mlmodel.among([*files, "MLmodel"]), "m")
    assert place.path == expected
    assert mlmodel.flavors(said) == (place.flavor,)


def test_a_model_that_is_not_there_is_named_with_its_places() -> None:
    said = document("pytorch: {model_data: data}")
    with pytest.raises(SourceError, match=r"data/model\.pt2 or data/model\.pth"):
        mlmodel.payload(said, mlmodel.among(["data/x"]), "m")


def test_other_flavors_are_not_supported_and_named() -> None:
    said = document("sklearn: {pickled_model: model.pkl}\npython_function: {env: x}")
    with pytest.raises(UnsupportedError, match="flavor sklearn"):
        mlmodel.payload(said, lambda _: True, "m")
    with pytest.raises(UnsupportedError, match="flavor python_function"):
        mlmodel.payload(document("python_function: {}"), lambda _: True, "m")


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/../../b"])
def test_a_place_outside_the_folder_is_refused(path: str) -> None:
    with pytest.raises(SafetyError):
        mlmodel.payload(document(f"onnx: {{data: {path}}}"), lambda _: True, "m")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"flavors: 3",
        b"a: [",
        b"just text",
        b"[" * 20_000,
        b"flavors: !!python/object/apply:os.system [id]",
        b"flavors: {onnx: 1}\ntime: 2026-99-99",
    ],
)
def test_what_is_no_mlmodel(text: bytes) -> None:
    with pytest.raises(CorruptError):
        mlmodel.parse(text, "MLmodel")


def test_a_bomb_of_references_costs_nothing() -> None:
    bomb = b"a: &a [1,1,1,1,1,1,1,1,1]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(20)
    )
    said = mlmodel.parse(bomb + b"flavors: {onnx: *u}\nrun_id: x\nmetadata: *u", "MLmodel")
    place = mlmodel.payload(said, lambda _: True, "m")
    assert len(json.dumps(mlmodel.facts(said, place))) < 300
    with pytest.raises(LimitError):
        mlmodel.parse(b" " * (mlmodel.LARGEST + 1), "MLmodel")


def test_the_signature_gives_inputs_and_is_kept_as_it_stands() -> None:
    said = mlmodel.parse(PYTORCH, "MLmodel")
    assert mlmodel.inputs(said) == (TensorSpec("", "float32", ("batch", 4)),)
    facts = mlmodel.facts(said, mlmodel.Payload("pytorch", "data/model.pth"))
    assert facts["run_id"] == "3a0f"
    assert "model_id" not in facts
    assert facts["signature"] == said["signature"]
    assert facts["flavors"] == ["python_function", "pytorch"]


SIGNATURES = [
    (
        [{"name": "x", "type": "tensor", "tensor-spec": {"dtype": "str", "shape": [-1, -1, 3]}}],
        (TensorSpec("x", "string", ("batch", "unk__0", 3)),),
    ),
    ([{"name": "a", "type": "double", "required": True}], ()),
    ([{"name": "x", "type": "tensor", "tensor-spec": {"dtype": "datetime64", "shape": []}}], ()),
    ([{"name": "x", "type": "tensor", "tensor-spec": 3}], ()),
    ({"name": "x"}, ()),
    ([], ()),
]


@pytest.mark.parametrize(("inputs", "expected"), SIGNATURES)
def test_signatures_of_other_kinds(inputs: object, expected: tuple[TensorSpec, ...]) -> None:
    said = document("onnx: {}", f"signature: {{inputs: '{json.dumps(inputs)}'}}")
    assert mlmodel.inputs(said) == expected


def example(kind: str, data: object, **info: str) -> dict[str, np.ndarray]:
    info |= {"type": kind, "artifact_path": "input_example.json"}
    said = document("onnx: {}", f"saved_input_example_info: {json.dumps(info)}")
    assert mlmodel.example_file(said) == "input_example.json"
    return mlmodel.example(said, json.dumps(data).encode())


def test_examples_become_arrays() -> None:
    for arrays in (
        example("ndarray", [[1, 2], [3, 4]]),
        example("ndarray", {"inputs": [[1, 2], [3, 4]]}, format="tf-serving"),
        example("ndarray", {"inputs": [[1, 2], [3, 4]], "params": {"t": 1}}, params="true"),
        example("dataframe", {"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}),
        example("dataframe", {"data": [[1, 2], [3, 4]]}, pandas_orient="values"),
    ):
        assert list(arrays) == ["arr_0"]
        np.testing.assert_array_equal(arrays["arr_0"], [[1, 2], [3, 4]])
    arrays = example("ndarray", {"x": [[1.5, None]], "y": ["word"]})
    np.testing.assert_array_equal(arrays["x"], [[1.5, np.nan]])
    assert arrays["y"].tolist() == ["word"]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("sparse_matrix_csr", {"data": [1]}),
        ("ndarray", [[1], [1, 2]]),
        ("ndarray", []),
        ("json_object", {"messages": [{"role": "user"}]}),
        ("dataframe", {"columns": ["a", "b"], "data": [[1, "x"], [None, "y"]]}),
        ("ndarray", {"x": 10**400}),
    ],
)
def test_examples_that_make_no_arrays(kind: str, data: object) -> None:
    with pytest.raises(ConvertError):
        example(kind, data)


def folder(at: Path, text: bytes = PYTORCH) -> Path:
    (at / "data").mkdir(parents=True)
    (at / "MLmodel").write_bytes(text)
    (at / "data" / "model.pth").write_bytes(b"PK")
    (at / "input_example.json").write_text("[[1, 2, 3, 4], [null, 6, 7, 8]]")
    return at


def test_a_folder_is_staged_with_its_example(tmp_path: Path) -> None:
    staged = mlmodel.stage_model(folder(tmp_path / "m"), tmp_path)
    assert staged.path == tmp_path / "m" / "data" / "model.pth"
    assert staged.inputs == (TensorSpec("", "float32", ("batch", 4)),)
    assert staged.example is not None
    with np.load(staged.example) as archive:
        assert archive["arr_0"].dtype == np.float32
        np.testing.assert_array_equal(archive["arr_0"], [[1, 2, 3, 4], [np.nan, 6, 7, 8]])


def test_an_example_that_is_damaged_or_elsewhere_costs_only_itself(tmp_path: Path) -> None:
    at = folder(tmp_path / "m")
    (at / "input_example.json").write_text("[[1,")
    staged = mlmodel.stage_model(at, tmp_path)
    assert staged.example is None
    assert "input_example.json" in str(staged.facts["example"])
    (at / "MLmodel").write_bytes(PYTORCH.replace(b"path: input_ex", b"path: ../../input_ex"))
    staged = mlmodel.stage_model(at, tmp_path)
    assert "outside its folder" in str(staged.facts["example"])


def test_inputs_may_be_called_anything(tmp_path: Path) -> None:
    arrays = {"file": np.ones(2), "a/b:0": np.zeros(3), "ü": np.array(["x"])}
    path = mlmodel.save_example(arrays, tmp_path / "e.npz")
    with np.load(path, allow_pickle=False) as archive:
        assert set(archive.files) == set(arrays)
        np.testing.assert_array_equal(archive["a/b:0"], arrays["a/b:0"])


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    at = folder(tmp_path / "m")
    (tmp_path / "elsewhere").write_bytes(b"PK")
    (at / "data" / "model.pth").unlink()
    (at / "data" / "model.pth").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SafetyError):
        mlmodel.stage_model(at, tmp_path)
