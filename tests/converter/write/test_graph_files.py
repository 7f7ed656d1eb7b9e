"""Graphs as the targets write them: one file, a file beside its data, or beside shared weights."""

import io
import json
import zipfile

import jsonschema
import numpy as np
import onnx_run
import pytest
from repository import ROOT

import converter
from converter.cli.app import run
from converter.options import Options
from formats import portable
from formats.errors import UnsupportedError

ROWS = ROOT / "fixtures" / "keras_layers" / "convolution.zip"
NAME = "conv2d-same-strides.keras"


@pytest.fixture
def source(tmp_path):
    with zipfile.ZipFile(ROWS) as archive:
        (tmp_path / "in").mkdir()
        path = tmp_path / "in" / "model.keras"
        path.write_bytes(archive.read(f"{NAME}.keras"))
        arrays = dict(np.load(io.BytesIO(archive.read(f"{NAME}.npz"))))
    return path, arrays["in0"], arrays["out0"]


def computed(path, x):
    return onnx_run.run(path, x)[0]


def test_onnx_is_one_file_that_holds_its_weights(source, tmp_path):
    path, x, y = source
    result = converter.convert(path, to="onnx", out=tmp_path / "m.onnx")
    assert result.path == tmp_path / "m.onnx"
    path.unlink()
    np.testing.assert_allclose(computed(tmp_path / "m.onnx", x), y, rtol=1e-5, atol=1e-5)


def test_a_portable_graph_points_into_the_weights(source, tmp_path):
    path, x, y = source
    out = tmp_path / "m.portable"
    converter.convert(path, to="portable", out=out)
    manifest = json.loads((out / "manifest.json").read_text())
    jsonschema.validate(manifest, portable.schema())
    assert manifest["graph"]["file"] == "model.onnx"
    assert [v["name"] for v in manifest["graph"]["inputs"]] != []
    assert "model.onnx" in {r["name"] for r in manifest["resources"]}
    assert not [x for x in manifest["left_out"] if x["name"].startswith("graph")]
    np.testing.assert_allclose(computed(out / "model.onnx", x), y, rtol=1e-5, atol=1e-5)
    (out / "model.safetensors").unlink()  # or it does not point there
    with pytest.raises(Exception, match=r"model\.safetensors"):
        computed(out / "model.onnx", x)


def test_past_a_protobufs_limit_the_weights_stand_beside_the_graph(source, tmp_path, monkeypatch):
    from converter.write import graph_files

    path, x, y = source
    monkeypatch.setattr(graph_files, "PROTOBUF_LIMIT", 500)
    out = tmp_path / "m-onnx"
    converter.convert(path, to="onnx", out=out)
    assert {p.name for p in out.iterdir()} == {"model.onnx", "model.onnx.data"}
    np.testing.assert_allclose(computed(out / "model.onnx", x), y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["onnx", "portable"])
def test_same_input_same_bytes(source, tmp_path, target):
    outs = []
    for name in ("one", "two"):
        out = tmp_path / name
        converter.convert(source[0], to=target, out=out)
        files = [out] if out.is_file() else sorted(out.iterdir())
        outs.append([f.read_bytes() for f in files])
    assert outs[0] == outs[1]


def test_a_gap_fails_onnx_and_is_named_in_a_bundle(source, tmp_path):
    path, _, _ = source
    changed = tmp_path / "in" / "custom.keras"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                data = data.replace(b'"Conv2D"', b'"Konv2D"').replace(b'"keras.layers"', b'"mine"')
            new.writestr(name, data)
    with pytest.raises(
        UnsupportedError, match=r"layer class Konv2D of mine, at conv2d \(filters=6"
    ):
        converter.convert(changed, to="onnx", out=tmp_path / "m.onnx")
    assert run(["SOURCE", str(changed), "--to", "onnx", "-o", str(tmp_path / "m.onnx"), "-q"]) == 4
    assert not (tmp_path / "m.onnx").exists()
    result = converter.convert(changed, out=tmp_path / "m.portable")
    assert not (tmp_path / "m.portable" / "model.onnx").exists()
    (entry,) = [x for x in result.bundle.metadata.left_out if x.name.startswith("graph")]
    assert "Konv2D" in entry.reason


def test_weights_alone_have_no_graph(tmp_path):
    demo = ROOT / "fixtures" / "demo" / "checkpoint.pt"
    with pytest.raises(UnsupportedError, match="weights only, and no graph"):
        converter.convert(demo, to="onnx", out=tmp_path / "m.onnx")


def test_an_opset_that_we_do_not_write_is_said(source, tmp_path):
    with pytest.raises(UnsupportedError, match="18 to 22"):
        converter.convert(source[0], to="onnx", out=tmp_path / "m.onnx", options=Options(opset=11))
    converter.convert(source[0], to="onnx", out=tmp_path / "m.onnx", options=Options(opset=21))
    np.testing.assert_allclose(
        computed(tmp_path / "m.onnx", source[1]), source[2], rtol=1e-5, atol=1e-5
    )


def test_what_of_float64_is_computed_in_float32_is_said(tmp_path, capsys):
    rows = ROWS.with_name("models_dtypes.zip")
    with zipfile.ZipFile(rows) as archive:
        for name in ("typed-images-float64", "typed-network-mixed-float16"):
            (tmp_path / f"{name}.keras").write_bytes(archive.read(f"{name}.keras.keras"))
    out = tmp_path / "m.portable"
    source = str(tmp_path / "typed-images-float64.keras")
    assert run(["SOURCE", source, "--to", "portable", "-o", str(out)]) == 0
    counted = "AveragePool (1), ConvTranspose (1), Resize (1)"
    what = "nodes computed in float32, not float64"
    assert f"3 {what}: {counted}: onnxruntime has" in capsys.readouterr().err
    manifest = json.loads((out / "manifest.json").read_text())
    jsonschema.validate(manifest, portable.schema())
    (said,) = [n for n in manifest["normalisations"] if n["name"] == what]
    assert said["count"] == 3
    assert counted in said["detail"]
    other = str(tmp_path / "typed-network-mixed-float16.keras")
    assert run(["SOURCE", other, "--to", "onnx", "-o", str(tmp_path / "m.onnx")]) == 0
    assert "computed in float32" not in capsys.readouterr().err
