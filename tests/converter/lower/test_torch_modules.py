"""Pickled modules of fixtures/torch_programs: Sequential of torch's layers, without torch."""

import json
from dataclasses import replace

import pytest
from repository import FIXTURES
from torch_scripts import PROGRAMS, check_runs, unpacked

from converter.lower import OPSET
from converter.lower.torch.layers import LAYERS
from converter.lower.torch.lowering import lower
from converter.options import parse_inputs
from formats.artifact import Artifact
from formats.core.bundle import LeftOut
from formats.errors import ConvertError, UnsupportedError, UsageError
from formats.torch import saved as torch_pickle

MODULES = [name for name, entry in PROGRAMS.items() if entry["how"] == "pickle"]


def read(name, folder):
    path, arrays = unpacked("modules.zip", name, folder)
    return torch_pickle.read(Artifact(path)), arrays


@pytest.mark.parametrize("name", MODULES)
def test_computes_what_torch_computes(name, tmp_path):
    bundle, arrays = read(name, tmp_path)
    entry = PROGRAMS[name]
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs(entry["inputs"]))
    check_runs(graph, bundle, arrays, entry["runs"])


def changed(bundle, path, **attributes):
    """Return a bundle with other attributes of one layer; None takes one away."""
    content = json.loads(json.dumps(bundle.topology.content))
    for name, value in attributes.items():
        content[path].pop(name, None)
        if value is not None:
            content[path][name] = value
    return replace(bundle, topology=replace(bundle.topology, content=content))


def refused(bundle, **more):
    with pytest.raises(UnsupportedError) as e:
        lower(bundle, opset=OPSET, inputs=parse_inputs(["input:float32:batch,3,12,12"]))
    assert e.value.exit_code == 4
    return str(e.value)


def test_an_attribute_that_no_handler_names_is_an_error(tmp_path):
    bundle, _ = read("cnn-pickle", tmp_path)
    assert "attribute gain, at conv" in refused(changed(bundle, "conv", gain=3))
    assert "attribute order" in refused(changed(bundle, "head", order="last"))


def test_hooks_are_a_gap(tmp_path):
    bundle, _ = read("cnn-pickle", tmp_path)
    assert "hooks" in refused(changed(bundle, "conv", _forward_pre_hooks={"0": {"name": "weight"}}))


def test_an_object_as_an_attribute_is_a_gap(tmp_path):
    bundle, _ = read("cnn-pickle", tmp_path)
    metadata = replace(bundle.metadata, opaque={"conv.weights_of": "mine.Scaler"})
    assert "attribute weights_of" in refused(replace(bundle, metadata=metadata))
    metadata = replace(bundle.metadata, opaque={"conv._forward_hooks.3": "mine.hook"})
    assert "hooks" in refused(replace(bundle, metadata=metadata))


def test_a_class_with_a_forward_of_its_own_is_named(tmp_path):
    bundle, _ = read("cnn-pickle", tmp_path)
    said = refused(changed(bundle, "act", **{"class": "mine.layers.Swish"}))
    assert "forward of class mine.layers.Swish, at act" in said
    assert "trust=" in said
    assert "arch=" in said
    # torch's own name in another package is another class.
    assert "mine.ReLU" in refused(changed(bundle, "act", **{"class": "mine.ReLU"}))
    said = refused(changed(bundle, "act", **{"class": "torch.nn.modules.transformer.Transformer"}))
    assert "forward of class torch.nn.modules.transformer.Transformer" in said


def test_what_was_not_kept_is_no_default(tmp_path):
    bundle, _ = read("cnn-pickle", tmp_path)
    left = LeftOut("conv.stride", "plain data past the first 1024 KiB")
    metadata = replace(bundle.metadata, left_out=(left,))
    assert "plain data past" in refused(replace(bundle, metadata=metadata))


def test_attributes_of_after_a_pickle_was_made_have_torch_s_defaults(tmp_path):
    bundle, arrays = read("cnn-pickle", tmp_path)
    old = changed(bundle, "conv", padding_mode=None, _reversed_padding_repeated_twice=None)
    old = changed(old, "norm", track_running_stats=None)
    old = changed(old, "act", inplace=None, threshold=0, value=0)
    graph = lower(old, opset=OPSET)
    check_runs(graph, old, arrays, 2)


def test_a_layer_that_lacks_what_torch_would_need_is_a_gap(tmp_path):
    bundle, _ = read("cnn-pickle", tmp_path)
    assert "stride" in refused(changed(bundle, "conv", stride=None))


def test_what_nothing_says_is_asked_for(tmp_path):
    bundle, _ = read("poolings-00-AvgPool2d-pickle", tmp_path)
    with pytest.raises(UsageError, match=r"inputs=\['input:float32:"):
        lower(bundle, opset=OPSET)


def test_every_layer_has_a_program():
    with (FIXTURES / "torch_programs" / "programs.py").open(encoding="utf-8") as f:
        text = f.read()
    alike = ("1d", "3d")  # one worker for every number of axes; rows have two
    names = [n for n in LAYERS if not n.endswith(alike) and f"nn.{n}(" not in text]
    assert sorted(names) == sorted(UNPROVEN), names


# What computes nothing of its own, or is another one's name.
UNPROVEN = (
    "NonDynamicallyQuantizableLinear", "SyncBatchNorm", "FeatureAlphaDropout",
)  # fmt: skip


ODD = [
    0, -1, 1 << 70, 1.5, float("nan"), "same", None, [], [0, 0], [1, 2, 3, 4, 5], True, {"a": 1},
    [None], [10**9, 10**9],
]  # fmt: skip


@pytest.mark.parametrize("name", ["cnn-pickle", "lstm-pickle", "embedding-pickle"])
def test_any_attribute_may_be_anything(name, tmp_path):
    bundle, _ = read(name, tmp_path)
    for path, entry in bundle.topology.content.items():
        for attribute in entry:
            for odd in ODD:
                try:
                    lower(changed(bundle, path, **{attribute: odd}), opset=OPSET)
                except ConvertError:
                    continue
