"""Both models on a device: faults that are planted are caught, and nothing passes silently.

There need be no GPU: sessions are real ones on the CPU, with `device_stand_in` saying where they
were. What really is without the device, says so by itself.
"""

import json
from pathlib import Path

import pytest
from comparing import comparing
from device_stand_in import install
from repository import ROOT

import converter
import formats
from converter.cli.app import run
from converter.verification.graphs import verify_graph
from formats.errors import DependencyError

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

pytestmark = pytest.mark.thorough

FIXTURES = ROOT / "fixtures" / "verify"
PAIRS, IMAGE = FIXTURES / "pairs.keras", FIXTURES / "image.keras"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Return where a source's graph is; converted with nobody there to verify it."""
    folder = tmp_path_factory.mktemp("converted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVERT_TENSORFLOW_PYTHON", "")

        def model(source):
            out = folder / f"{source.stem}.onnx"
            return out if out.exists() else converter.convert(source, to="onnx", out=out).path

        yield model


@pytest.fixture(scope="module")
def known():
    """Reports that several tests look at."""
    return {}


@pytest.fixture
def verified(tmp_path, monkeypatch, converted, known):
    """Return the report of a source with these faults planted."""

    def ask(fault="", source_fault="", source=PAIRS, **options):
        model = converted(source)
        install(tmp_path, monkeypatch, model=model, converted=fault, source=source_fault)
        key = (fault, source_fault, source, str(options))
        if key not in known:
            bundle, options_used = converter.read(source), comparing(device="cuda:0", **options)
            known[key] = verify_graph(source, bundle, model, options=options_used)
        return known[key]

    return ask


def as_the_schema_says(plain):
    """Hold a report against the manifest's schema, as what a manifest has of it."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(formats.__file__).with_name("manifest.schema.json").read_text())
    wanted = {"$defs": schema["$defs"], "$ref": "#/$defs/comparison"}
    found = json.loads(json.dumps(plain, allow_nan=False))
    jsonschema.Draft202012Validator(wanted).validate(found)


def test_all_four_agree(verified):
    report = verified()
    assert (report.status, report.reached) == ("passed", "device")
    device = report.device
    assert (device.status, device.reason, device.device) == ("passed", "", "cuda:0")
    assert list(device.pairs) == [
        "converted on the device ~ converted on the CPU",
        "converted on the device ~ source on the CPU",
        "source on the device ~ source on the CPU",
        "converted on the device ~ source on the device",
    ]
    assert all(set(pair) == {"far", "near"} for pair in device.pairs.values())
    assert all(m.elements and m.passed for pair in device.pairs.values() for m in pair.values())
    assert device.converted.placement.facts["compute_capability"] == "9.0"
    assert device.converted.placement.switches["tf32"] is False
    assert device.source.placement.counts["variable"] == {"GPU:0": 1}
    as_the_schema_says(report.plain())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("whole fallback", "nothing ran on CUDAExecutionProvider:0: node 'shared/"),
        (
            "partial fallback",
            "on the CPU (allow_cpu_nodes=1 would pass): node 'shared/",
        ),
        ("other device", "was on another device than CUDAExecutionProvider:0: node 'shared/"),
        ("no evidence", "does not say where it was"),
        ("fails there", "onnxruntime fails there: 1x6; 1x6: CUDA out of memory"),
        ("swapped outputs", "2 of 2 outputs differ: 'far': has shape"),
        ("swapped lanes", "1 of 2 outputs differ: 'far': differs by "),
        ("nan", "1 of 2 outputs differ: 'near': 1 of 3 elements are not finite on one side only"),
    ],
)
def test_what_is_planted_in_the_converted_model_is_caught(verified, fault, said):
    report = verified(fault)
    assert (report.status, report.reached) == ("failed", "none")
    assert report.reason.startswith("on cuda:0: ")
    assert said in report.reason


def test_a_fallback_is_one_however_good_the_numbers_are(verified):
    device = verified("whole fallback").device
    assert all(m.passed for pair in device.pairs.values() for m in pair.values())
    assert (device.converted.status, device.source.status) == ("failed", "passed")


def test_nodes_on_the_cpu_may_be_allowed_and_are_counted(verified):
    assert verified("partial fallback", allow_cpu_nodes=1).reached == "device"
    report = verified("partial fallback", allow_cpu_nodes=1)
    (part,) = report.device.converted.placement.elsewhere
    assert (part.what, part.place) == ("node", "CPUExecutionProvider")


@pytest.mark.parametrize("fault", ["whole fallback", "other device"])
def test_no_allowance_is_large_enough_for_a_whole_fallback_or_another_device(verified, fault):
    assert verified(fault, allow_cpu_nodes=1000).status == "failed"


def test_what_tf32_does_is_too_much_unless_it_is_allowed(verified):
    report = verified("tf32", source=IMAGE)
    assert report.status == "failed"
    assert "times the rounding noise" in report.reason
    lost = report.device.pairs["converted on the device ~ source on the CPU"]["scores"].max_rel
    assert 2e-4 < lost < 5e-3  # the drift that people see
    allowed = verified("tf32", source=IMAGE, allow_tf32=True)
    assert allowed.reached == "device"
    assert allowed.device.pairs["converted on the device ~ source on the CPU"]["scores"].max_rel


@pytest.mark.slow
def test_a_users_bounds_hold_on_the_device_too(verified):
    assert verified("tf32", source=IMAGE, atol={"": 1e-6}, allow_tf32=True).status == "failed"
    assert verified("tf32", source=IMAGE, atol={"scores": 0.1}).reached == "device"


def test_a_source_that_silently_falls_back_is_caught(verified):
    report = verified(source_fault="variable on the CPU")
    assert report.status == "failed"
    assert "the source model: 1 part was on the CPU (" in report.reason
    assert "variable 'near/kernel' on CPU:0" in report.reason
    assert verified(source_fault="no evidence").status == "failed"


def test_a_source_without_the_device_is_said_and_the_converted_model_held_against_it(verified):
    report = verified(source_fault="no device")
    assert report.reached == "device"
    assert report.device.source.status == "not run"
    assert "sees no GPU:0" in report.device.source.reason
    assert len(report.device.pairs) == 2
    as_the_schema_says(report.plain())
    assert verified("nan", "no device").status == "failed"


def test_a_child_that_dies_on_the_device_is_the_environments_fault(verified):
    with pytest.raises(DependencyError, match="illegal memory access"):
        verified("crash")


def test_outputs_that_differ_on_the_cpu_are_not_run_on_the_device(verified, converted, tmp_path):
    import onnx

    model = onnx.load(converted(PAIRS))
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    other = tmp_path / "other.onnx"
    onnx.save(model, other)
    verified()  # installs the stand-in
    bundle = converter.read(PAIRS)
    report = verify_graph(PAIRS, bundle, other, options=comparing(device="cuda:0"))
    assert (report.status, report.device) == ("failed", None)


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch, converted):
    def ask(*arguments, fault="", source_fault=""):
        model = converted(PAIRS)
        install(tmp_path, monkeypatch, model=model, converted=fault, source=source_fault)
        return run(["verify", str(PAIRS), str(model), *arguments])

    return ask


def test_the_command_on_a_device(command, capsys):
    assert command("--device", "GPU:0", "--require", "device") == 0
    shown = capsys.readouterr().out
    assert "device      cuda:0: passed (TF32 off)" in shown
    assert "nodes: 11 on CUDAExecutionProvider:0" in shown
    assert "compute_capability 9.0" in shown
    assert "compared    converted on the device ~ source on the device" in shown
    assert shown.rstrip().endswith("verified    device")


def test_the_command_names_what_fell_back(command, capsys):
    assert command("--device", "cuda:0", fault="partial fallback") == 1
    shown = capsys.readouterr().out
    assert "elsewhere: node 'shared/" in shown
    assert "on CPUExecutionProvider" in shown
    assert "verified    nothing" in shown
    allowed = ("--allow-cpu-nodes", "1", "--require", "device")
    assert command("--device", "cuda:0", *allowed, fault="partial fallback") == 0


def test_the_command_says_it_in_json(command, capsys):
    assert command("--device", "cuda:0", "--json", fault="whole fallback") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] is None
    device = found["graph"]["device"]
    assert device["status"] == "failed"
    assert device["converted"]["placement"]["counts"] == {"node": {"CPUExecutionProvider": 11}}
    assert len(device["converted"]["placement"]["elsewhere"]) == 11
    assert device["pairs"]["source on the device ~ source on the CPU"][0]["passed"] is True


def without_onnxruntimes_device(command, monkeypatch, *arguments):
    """Verify with the onnxruntime that is here, which is a build for CPUs."""
    monkeypatch.setattr("converter.verification.runners.ONNX_PYTHON_VARIABLE", "NOT_SET")
    return command(*arguments)


def test_without_the_device_nothing_passes_silently(command, monkeypatch, capsys):
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime is built for GPUs")
    ask = (command, monkeypatch, "--device", "cuda:0")
    assert without_onnxruntimes_device(*ask) == 0
    shown = capsys.readouterr().out
    assert "device      cuda:0: not run: onnxruntime" in shown
    assert "has no CUDAExecutionProvider, but" in shown
    assert shown.rstrip().endswith("verified    cpu")
    assert without_onnxruntimes_device(*ask, "--require", "device") == 7
    assert "verified    cpu (required: device)" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["mps", "dml:0", "openvino", "rocm:1", "hpu", "CPU:1", "xla:0"])
def test_other_devices_that_are_not_here(command, monkeypatch, capsys, device):
    import onnxruntime

    if len(onnxruntime.get_available_providers()) > 2:
        pytest.skip("this onnxruntime is built for more than CPUs")
    assert without_onnxruntimes_device(command, monkeypatch, "--device", device) == 0
    shown = capsys.readouterr().out
    assert "not run: onnxruntime" in shown
    assert shown.rstrip().endswith("verified    cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--require", "device"),
        ("--require", "device", "--device", "cpu"),
        ("--require", "device", "--device", "none"),
        ("--device", "cuda:x"),
        ("--device", "abacus:0"),
        ("--device", "cuda:0", "--allow-cpu-nodes", "-1"),
    ],
)
def test_wrong_usage(command, arguments):
    assert command(*arguments) == 2


def test_the_cpu_is_no_device_to_go_to(command, capsys):
    assert command("--device", "cpu") == 0
    assert "device " not in capsys.readouterr().out
