"""What the builder infers, beside onnx's own checker and shape inference."""

import zipfile
from pathlib import Path

import pytest
from repository import ROOT

import converter
from converter import passes
from converter.lower import emit
from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.keras.lowering import lower

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.thorough

FIXTURES = ROOT / "fixtures" / "keras_layers"
NAMES = {number: name for name, number in ELEMENT_TYPES.items()}


@pytest.mark.parametrize("folded", [False, True], ids=["as built", "after passes"])
@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.zip")), ids=lambda p: p.stem)
def test_dtypes_and_shapes_are_those_of_onnx(tmp_path, path, folded):
    compared = 0
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npz"):
                continue
            source = tmp_path / Path(name).name
            source.write_bytes(archive.read(name))
            bundle = converter.read(source)
            graph = lower(bundle)
            if folded:
                graph = passes.run(graph, bundle.weights)
            message = emit.model(graph, bundle.weights)
            model = onnx.load_from_string(
                b"".join(p if isinstance(p, bytes) else p.read() for p in message.pieces())
            )
            onnx.checker.check_model(model, full_check=True)
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
            for info in (*inferred.graph.value_info, *inferred.graph.output):
                compare(f"{name}: {info.name}", info.type.tensor_type, graph.specs[info.name])
                compared += 1
    assert compared


def compare(where, theirs, ours):
    assert NAMES[theirs.elem_type] == ours.dtype, where
    if not theirs.HasField("shape"):
        return
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in theirs.shape.dim]
    assert len(sizes) == len(ours.shape), where
    for n, m in zip(sizes, ours.shape, strict=True):
        if isinstance(n, int) and isinstance(m, int):
            assert n == m, where
