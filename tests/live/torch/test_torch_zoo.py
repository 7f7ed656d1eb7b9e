"""The zoo lowered without torch, against torch: exported, decomposed, traced and scripted."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch_zoo  # noqa: E402 - what cannot run is skipped first
from onnx_run import session  # noqa: E402

import converter  # noqa: E402
from converter.lower.torch.lowering import lower  # noqa: E402
from converter.options import parse_inputs  # noqa: E402

CLOSE = 2e-6  # of the largest output


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(torch_zoo.ZOO))
def test_a_model_of_the_zoo_is_lowered_natively_and_agrees(tmp_path, name):
    model = torch_zoo.build(name)
    plain, core = tmp_path / "model.pt2", tmp_path / "core.pt2"
    scripts = [tmp_path / f"{form}.pt" for form in ("trace", "script")]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch_zoo.save(name, "pt2", plain, model)
        torch.export.save(torch.export.load(plain).run_decompositions(), core)
        for path in scripts:
            torch_zoo.save(name, path.stem, path, model)
    inputs = parse_inputs([torch_zoo.ZOO[name].option])
    for path in (plain, core, *scripts):
        bundle = converter.read(path)
        graph = lower(bundle, opset=18, inputs=inputs if path in scripts else ())
        ours = session(graph, bundle.weights)
        assert isinstance(ours.get_inputs()[0].shape[0], str)
        for batch in (1, 2, 5):
            x = torch_zoo.ZOO[name].draw(batch)
            with torch.no_grad():
                theirs = model(x).numpy()
            (found,) = ours.run(None, {graph.inputs[0]: x.numpy()})
            assert found.shape == theirs.shape
            assert np.abs(found - theirs).max() <= CLOSE * np.abs(theirs).max()
