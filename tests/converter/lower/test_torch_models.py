"""Whole TorchScript models of fixtures/torch_models: our graph computes what torch computed."""

import io
import json
import re
import zipfile

import numpy as np
import pytest
from repository import ROOT
from torch_scripts import check_runs

from converter.lower import OPSET
from converter.lower.torch.lowering import lower
from converter.options import parse_inputs
from formats.artifact import Artifact
from formats.errors import UnsupportedError
from formats.torch import script as torch_script

ARCHIVE = ROOT / "fixtures" / "torch_models" / "models.zip"
with zipfile.ZipFile(ARCHIVE) as held:
    ENTRIES = {
        name.removesuffix(".json"): json.loads(held.read(name))
        for name in held.namelist()
        if name.endswith(".json")
    }


def unpacked(name, folder, changed=None):
    with zipfile.ZipFile(ARCHIVE) as held:
        data = held.read(f"{name}.pt")
        arrays = np.load(io.BytesIO(held.read(f"{name}.npz")))
    path = folder / f"{name}.pt"
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if changed is not None and member.endswith(".py"):
                content = changed(content.decode()).encode()
            new.writestr(member, content)
    return torch_script.read(Artifact(path)), arrays


@pytest.mark.parametrize("name", ENTRIES)
def test_a_model_computes_what_torch_computes(name, tmp_path):
    bundle, arrays = unpacked(name, tmp_path)
    entry = ENTRIES[name]
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs(entry["inputs"]))
    check_runs(graph, bundle, arrays, entry["runs"])


def test_a_loop_that_reads_the_list_it_appends_to_is_a_gap(tmp_path):
    """What is in the list depends on the round: it must not be taken to be what it was before."""

    def changed(text):
        return text.replace("torch.ge(count0, 6)", "torch.ge(torch.len(frames), 6)")

    bundle, _ = unpacked("synthesizer-script", tmp_path, changed)
    with pytest.raises(UnsupportedError, match="a list that a loop reads and appends to"):
        lower(bundle, opset=OPSET, inputs=parse_inputs(["x:int64:1,sequence"]))


def test_a_view_of_memory_of_what_is_not_in_order_is_a_gap(tmp_path):
    def changed(text):
        turned = "torch.as_strided(torch.transpose(x, 0, 1), [2, 4, 16], [64, 16, 1])"
        return text.replace("torch.fft_rfft(x)", f"torch.fft_rfft({turned})")

    bundle, _ = unpacked("operator-trace", tmp_path, changed)
    with pytest.raises(UnsupportedError, match="elements do not lie in order"):
        lower(bundle, opset=OPSET, inputs=parse_inputs(["x:float32:2,4,16"]))


PACKED = {
    "Context": ("Conv2dOpContext", "conv2d_clamp_run"),
    "Spread": ("TransposeConv2dOpContext", "conv2d_transpose_clamp_run"),
    "Product": ("LinearOpContext", "linear_clamp_run"),
}


def as_packed(data):
    """Return an archive with objects of torch's own classes for modules with the same state."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            for name, (cls, run) in PACKED.items():
                field = {"Context": "first", "Spread": "second", "Product": "third"}[name]
                content = content.replace(
                    f"c__torch__.models\n{name}\n".encode(),
                    f"c__torch__.torch.classes.xnnpack\n{cls}\n".encode(),
                )
                if member.endswith("models.py"):
                    pattern = rf"\({field}\)\.forward\((.+?), \)"
                    text = re.sub(pattern, rf"ops.prepacked.{run}(\1, {field})", content.decode())
                    content = text.encode()
            new.writestr(member, content)
    return made.getvalue()


def test_layers_that_are_packed_for_telephones(tmp_path):
    """They have the state that our modules of the fixture have, and no text."""
    with zipfile.ZipFile(ARCHIVE) as held:
        data = as_packed(held.read("telephone-script.pt"))
        arrays = np.load(io.BytesIO(held.read("telephone-script.npz")))
    path = tmp_path / "packed.pt"
    path.write_bytes(data)
    bundle = torch_script.read(Artifact(path))
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs(ENTRIES["telephone-script"]["inputs"]))
    assert any("clamp_run" in node.name for node in graph.nodes)
    check_runs(graph, bundle, arrays, 2)
