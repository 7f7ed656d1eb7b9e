"""Predictions for torch, compared with torch 2.13 (fixtures/doctor/torch_outcomes.json)."""

import io
import json
import pickle
import zipfile

import pytest
from hosts import H100, TORCH, TORCH_CUDA, host, nvidia, package, torch_seen
from repository import FIXTURES

from converter.doctor.loaders import torch as torch_rules
from converter.doctor.loaders.pickle_events import Event, scan_pickle
from converter.doctor.loaders.torch import (
    ALLOWED,
    TorchFacts,
    check_device,
    check_global,
    find_torch,
)
from converter.doctor.predictions import predict
from converter.doctor.source import read_source

OUTCOMES = json.loads((FIXTURES / "doctor" / "torch_outcomes.json").read_text())
CPU = host(TORCH)


def agrees(prediction, said, *, exact=60):
    """Whether a prediction is what was said; messages as far as either goes, but never nothing."""
    if prediction.outcome != said["outcome"]:
        return False
    if said["outcome"] == "loads":
        return True
    size = min(len(prediction.message), len(said["message"]), 200)
    same = prediction.message[:size] == said["message"][:size] and size >= min(
        exact, len(said["message"])
    )
    return prediction.error == said["error"] and same


@pytest.mark.parametrize("name", OUTCOMES["files"])
def test_fixtures_end_as_predicted(name):
    source = read_source(str(FIXTURES / "torch" / name))
    predictions = {p.loader: p for p in predict(source, CPU)}
    for loader, said in OUTCOMES["files"][name].items():
        prediction = (
            predictions.get(loader) or predictions[loader.replace(', map_location="cpu"', "")]
        )
        assert agrees(prediction, said), (loader, prediction, said)
        if "refused" in said:  # what of the pickle is refused, not only that it is
            text = " ".join(prediction.message.split())
            assert said["refused"].partition(" Check")[0][:60] in text, (loader, said, text)


def test_the_fixtures_have_every_end():
    said = [s for by_loader in OUTCOMES["files"].values() for s in by_loader.values()]
    assert len(said) > 60
    for words in (
        "is_available() is False",
        "Weights only load failed",
        "legacy .tar format",
        "with TorchScript archives",
    ):
        assert any(words in s.get("message", "") for s in said), words
    assert sum(s["outcome"] == "loads" for s in said) > 20


def test_a_pickle_that_is_no_torch_file(tmp_path):
    path = tmp_path / "plain.pkl"
    path.write_bytes(pickle.dumps({"a": 1}, 2))
    prediction = predict(read_source(str(path)), CPU)[0]
    assert agrees(prediction, OUTCOMES["plain pickle"], exact=20)
    assert prediction.cause == "no-torch-file"


@pytest.mark.parametrize("tag", OUTCOMES["tags"])
def test_device_tags_end_as_predicted(tag):
    here = find_torch(CPU)
    for loader, refusal in (
        ("load", check_device(tag, here)),
        ("jit", torch_rules.check_jit_device(tag, here)),
    ):
        said = OUTCOMES["tags"][tag][loader]
        assert (refusal is None) == (said["outcome"] == "loads"), (loader, refusal, said)
        if refusal is not None:
            assert refusal.error == said["error"]
            size = min(len(refusal.message), len(said["message"]))
            assert refusal.message[:size] == said["message"][:size]
            assert size > 20


@pytest.mark.parametrize("row", OUTCOMES["counted"], ids=lambda r: f"{r['tag']} of {r['devices']}")
def test_device_indices_end_as_predicted(row):
    made = host(TORCH_CUDA, seen=torch_seen(row["devices"]))
    refusal = check_device(row["tag"], find_torch(made))
    assert refusal.message.startswith(row["message"][:150])
    assert f"torch.cuda.device_count() is {row['devices']}" in refusal.message


def test_the_allow_list_is_torchs_own():
    assert sorted(ALLOWED) == OUTCOMES["allowed"]


@pytest.mark.parametrize(
    ("made", "cuda", "built"),
    [
        (host(), 0, False),
        (host(TORCH, gpus=nvidia(H100)), 0, False),  # a CPU build sees none
        (host(TORCH_CUDA, gpus=nvidia(H100, H100)), 2, True),
        (host(TORCH_CUDA, gpus=nvidia(H100, libcuda=False)), 0, True),
        (host(TORCH_CUDA, gpus=nvidia(H100), variables={"CUDA_VISIBLE_DEVICES": ""}), 0, True),
        (host(TORCH_CUDA, gpus=nvidia(H100), seen=torch_seen(0)), 0, True),  # its own word counts
        (host(TORCH_CUDA, gpus=nvidia(), seen=torch_seen(3)), 3, True),
    ],
)
def test_which_devices_torch_sees(made, cuda, built):
    assert (find_torch(made).cuda_devices, find_torch(made).cuda_built) == (cuda, built)


def facts(*events, container="zip"):
    return TorchFacts(container, tuple(Event(*e) for e in events))


def test_the_first_refusal_decides():
    device, name = ("storage", "cuda:0"), ("global", "__main__.Net")
    for events, cause in (((device, name), "device-absent"), ((name, device), "global-refused")):
        assert torch_rules.predict(facts(*events), CPU)[0].cause == cause


def test_map_location_fixes_devices_and_nothing_else():
    plain, mapped = torch_rules.predict(facts(("storage", "cuda:1")), CPU)
    assert (plain.outcome, mapped.outcome, plain.mends) == ("fails", "loads", 'map_location="cpu"')
    plain, mapped = torch_rules.predict(facts(("global", "__main__.Net")), CPU)
    assert (plain.outcome, mapped.outcome, plain.mends) == ("fails", "fails", "")


def test_one_gpu_and_a_tag_of_the_second():
    made = host(TORCH_CUDA, gpus=nvidia(H100), seen=torch_seen(1))
    (first, second) = torch_rules.predict(facts(("storage", "cuda:0"), ("storage", "cuda:1")), made)
    assert first.message.startswith(
        "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1."
    )
    assert second.outcome == "loads"


def test_the_outcome_is_unknown_where_torch_runs_code():
    old = host(package("torch", "2.5.1", cuda=None, hip=None))
    assert torch_rules.predict(facts(("global", "__main__.Net")), old)[0].outcome == "unknown"
    assert torch_rules.predict(facts(("global", "torch.FloatStorage")), old)[0].outcome == "loads"
    assert torch_rules.predict(facts(("storage", "cuda:0")), old)[0].cause == "device-absent"


@pytest.mark.parametrize("name", ["os.system", "posix.system", "nt.system", "sys.exit"])
def test_blocked_modules_are_reported_as_blocked(name):
    assert "is blocked" in check_global(name).message


def test_a_mixed_checkpoint_and_code_that_names_devices():
    mixed = {"cpu": 1, "cuda:0": 3}
    (note,) = torch_rules.check_placement(facts(("storage", "cuda:0")), mixed, CPU)
    assert (note.code, note.severity) == ("devices-mixed", "note")
    code = TorchFacts("script", (), {"cuda:0": 2})
    (found,) = torch_rules.check_placement(code, {}, CPU)
    assert (found.code, found.severity) == ("device-in-code", "error")
    assert torch_rules.check_placement(code, {}, host(TORCH_CUDA, seen=torch_seen(1))) == []


@pytest.mark.parametrize("name", OUTCOMES["exported"])
def test_exported_programs_end_as_predicted(name, tmp_path):
    said = OUTCOMES["exported"][name]
    place, _, device = name.partition(" on ")
    if device:
        tensors = () if place == "models/" else (Event("storage", device),)
        facts = TorchFacts("exported", tensors, {device: 3}, schema="8.20")
    else:
        facts = read_source(str(FIXTURES / "torch" / name)).torch
    (prediction,) = torch_rules.predict(facts, CPU)
    assert (prediction.loader, prediction.mends) == ("torch.export.load(path)", "")
    assert agrees(prediction, said, exact=20), (prediction, said)


def test_what_an_exported_program_names_is_found():
    source = read_source(str(FIXTURES / "torch_moved" / "exported-cuda0.pt2"))
    assert [e.value for e in source.torch.events] == ["cuda:0"]
    assert "cuda:0" in source.torch.code_devices
    (prediction,) = torch_rules.predict(source.torch, CPU)
    assert prediction.cause == "device-absent"
    (there,) = torch_rules.predict(source.torch, host(TORCH_CUDA, seen=torch_seen(1)))
    assert there.outcome == "loads"
    nodes = TorchFacts("exported", (), {"cuda:0": 4}, schema="8.20")
    (found,) = torch_rules.check_placement(nodes, {}, CPU)
    assert (found.code, found.fix) == ("device-in-code", "convert SOURCE --to pt2 --device cpu")


# -- the walk through pickles ---------------------------------------------------------------------


class Named:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("protocol", range(6))
def test_globals_are_found_in_every_protocol(protocol):
    data = pickle.dumps({"a": [1, (2, 3), Named("x")], "b": Named(None)}, protocol)
    found = scan_pickle(data)
    assert found.complete
    assert found.end == len(data)
    assert f"{__name__}.Named" in [e.value for e in found.events if e.kind == "global"]


def test_opcodes_that_torch_does_not_read_are_events():
    kinds = {e.kind for e in scan_pickle(pickle.dumps({"a": 1}, 4)).events}
    assert "opcode" in kinds
    assert "opcode" not in {e.kind for e in scan_pickle(pickle.dumps({"a": 1}, 2)).events}


class Persistent(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, tuple) and value and value[0] == "storage":
            return value
        return None


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_devices_are_found_though_memoised(protocol):
    out = io.BytesIO()
    ids = [("storage", Named, str(i), d, 4) for i, d in enumerate(("cuda:1", "cpu", "cuda:1"))]
    Persistent(out, protocol).dump({"w": ids})
    devices = [e.value for e in scan_pickle(out.getvalue()).events if e.kind == "storage"]
    assert devices == ["cuda:1", "cpu"]


def test_every_truncation_is_walked_without_an_exception():
    data = (FIXTURES / "torch" / "torch2.13-module.pth").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("/data.pkl")]
        content = archive.read(name)
    whole = scan_pickle(content).events
    for end in range(len(content)):
        found = scan_pickle(content[:end])
        assert not found.complete
        assert set(found.events) <= set(whole) | {e for e in found.events if e.kind == "global"}


def test_noise_is_walked_without_an_exception():
    import random

    rng = random.Random(5)
    for _ in range(3000):
        scan_pickle(bytes([0x80, 2]) + rng.randbytes(60))
        scan_pickle(rng.randbytes(60))


def replace_calls(source, target, old, new):
    """Copy an archive, with other operators in its code or graph."""
    with zipfile.ZipFile(source) as original, zipfile.ZipFile(target, "w") as archive:
        for name in original.namelist():
            data = original.read(name)
            changed = data.replace(old, new) if name.endswith((".py", ".json")) else data
            archive.writestr(name, changed)
    return target


@pytest.mark.parametrize(
    ("new", "op"), [(b"ops.mine.linear(", "mine::linear"), (b"torch.lineal(", "aten::lineal")]
)
def test_an_operator_that_torch_does_not_register(tmp_path, new, op):
    script = FIXTURES / "torch" / "torch2.13-script.pt"
    (before, *_) = predict(read_source(str(script)), CPU)
    path = replace_calls(script, tmp_path / "m.pt", b"torch.linear(", new)
    found = {p.loader: p for p in predict(read_source(str(path)), CPU)}["torch.jit.load(path)"]
    assert (before.outcome, found.outcome, found.cause) == ("loads", "fails", "op-unknown")
    assert f"Unknown builtin op: {op}." in found.message
    assert found.mends == "import the library that registers the operator, first"


def test_an_exported_operator_that_torch_does_not_register(tmp_path):
    program = FIXTURES / "torch" / "torch2.13-export.pt2"
    path = replace_calls(program, tmp_path / "m.pt2", b"torch.ops.aten.", b"torch.ops.mine.")
    (found,) = predict(read_source(str(path)), CPU)
    assert (found.outcome, found.cause) == ("fails", "op-unknown")
    assert "mine::" in found.why


def test_every_operator_of_the_fixtures_is_registered():
    """Those of torch itself: the table lacks none that a sound archive calls."""
    for path in sorted((FIXTURES / "torch").glob("*script.pt")):
        facts = read_source(str(path)).torch
        assert facts.container.startswith("script")
        assert facts.unknown_ops == (), path
