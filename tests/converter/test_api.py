"""The Python API: keywords and `Options` are one, results are short, references are sources."""

from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import converter
from converter import Comparison, Options, UsageError
from converter.batch.request import Request
from converter.events import Progress, Step
from converter.jobs.job import Needs
from converter.keywords import merge_options
from converter.registries.filters import Filters
from formats.core.bundle import TensorSpec

RNG = np.random.default_rng(5)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "model.safetensors"
    path.parent.mkdir()
    save_file({"module.w": RNG.standard_normal((3, 4)).astype("f4")}, path)
    return path


def test_keywords_and_options_have_the_same_names_and_defaults() -> None:
    held = {f.name: getattr(Options(), f.name) for f in fields(Options)}
    own = signature(converter.convert).parameters.keys() - {
        "source", "out", "attest", "options", "on_event",
    }  # fmt: skip
    assert len(own) == 13
    for function in (converter.convert, converter.convert_many):
        for name in signature(function).parameters.keys() & held.keys():
            default = signature(function).parameters[name].default
            assert merge_options(None, {name: default}) == Options(), name
    assert own <= held.keys()


def test_many_has_the_defaults_of_a_request() -> None:
    held = {f.name: getattr(Request((), "", Options()), f.name) for f in fields(Request)}
    given = signature(converter.convert_many).parameters
    shared = given.keys() & held.keys() - {"options", "filters", "needs"}
    assert {name: given[name].default for name in shared} == {n: held[n] for n in shared}
    assert (held["filters"], held["needs"]) == (Filters(), Needs())


def test_options_without_keywords_decide(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.safetensors"
    made = converter.convert(source, out=out, options=Options(to="safetensors"))
    assert made.path == out
    assert out.is_file()
    assert list(load_file(out)) == ["module.w"]


@pytest.mark.parametrize(
    ("keywords", "options", "named"),
    [
        ({"to": "portable"}, Options(to="safetensors"), ["to='portable'", "to='safetensors'"]),
        ({"verify": "auto"}, Options(verify="none"), ["verify='auto'", "verify='none'"]),
        ({"overwrite": False}, Options(overwrite=True), ["overwrite=False", "overwrite=True"]),
        ({"include": ["training"]}, Options(include=("optimizer",)), ["training", "optimizer"]),
        ({"max_shard_size": "1GB"}, Options(max_shard_size="2GB"), ["1GB", "2GB"]),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_keywords_and_options_never_contradict(source, tmp_path, keywords, options, named) -> None:
    with pytest.raises(UsageError) as caught:
        converter.convert(source, out=tmp_path / "out", options=options, **keywords)
    assert all(word in str(caught.value) for word in named)
    assert not (tmp_path / "out").exists()


def test_keywords_and_options_that_agree_are_taken(source: Path, tmp_path: Path) -> None:
    options = Options(to="safetensors", strip_prefix="module.")
    out = tmp_path / "c.safetensors"
    converter.convert(source, to="safetensors", verify="weights", out=out, options=options)
    assert list(load_file(out)) == ["w"]


def test_short_forms_of_keywords() -> None:
    merged = merge_options(
        None,
        {"inputs": ["x:float32:n,3"], "include": "optimizer", "signatures": ["a"], "trust": "json"},
    )
    assert merged.inputs == (TensorSpec("x", "float32", ("n", 3)),)
    assert (merged.include, merged.signatures) == (("optimizer",), ("a",))
    assert [module.module for module in merged.trust] == ["json"]
    with pytest.raises(UsageError, match="x:y"):
        merge_options(None, {"inputs": ["x:y"]})


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"to": "onx"}, ["onx", "portable", "'onnx'", "keras"]),
        ({"verify": "weight"}, ["weight", "'weights'", "device"]),
        ({"require": "CPU"}, ["CPU", "'cpu'"]),
        ({"precision": "fp_16"}, ["fp_16", "'fp16'", "bf16"]),
        ({"max_shard_size": "much"}, ["much", "5GB"]),
    ],
    ids=str,
)
def test_a_wrong_value_says_which_there_are(source, tmp_path, keywords, words) -> None:
    with pytest.raises(UsageError) as caught:
        converter.convert(source, out=tmp_path / "out", **keywords)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_events_are_handed_on(source: Path, tmp_path: Path) -> None:
    seen: list[object] = []
    made = converter.convert(source, out=tmp_path / "out", on_event=seen.append)
    steps = [event for event in seen if isinstance(event, Step)]
    assert tuple(steps) == made.steps
    assert any(isinstance(event, Progress) for event in seen)
    assert seen[-1] != made  # without its steps
    assert type(seen[-1]) is type(made)


def test_results_are_short(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = converter.convert(source, out=out, verify="weights")
    bundle = converter.read(source)
    assert repr(made) == f"<Conversion of {source} to {out}: 1 tensor, verified: weights>"
    assert repr(bundle) == "<Bundle of safetensors: 1 tensor, 48 bytes, no topology>"
    assert repr(Options(to="onnx", verify="none")) == "Options(to='onnx', verify='none')"
    for result in (made, converter.inspect(source), converter.diff(source, out)):
        assert len(repr(result)) < 400
        assert result._repr_html_().startswith("<table>")
    assert "module.w" not in repr(bundle)


def test_every_error_is_at_the_top() -> None:
    names = {"UsageError", "SourceError", "SafetyError", "VerificationError", "StorageError"}
    assert names < set(dir(converter))
    assert all(issubclass(getattr(converter, n), converter.ConvertError) for n in names)
    for name in converter.__all__:
        assert getattr(converter, name) is not None


def test_many(source: Path, tmp_path: Path) -> None:
    seen: list[object] = []
    found = converter.convert_many(
        source.parent, tmp_path / "out", to="safetensors", engine="inline", on_event=seen.append
    )
    assert [outcome.status for outcome in found] == ["done"]
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 1
    assert (
        list(
            converter.convert_many(
                [source.parent],
                tmp_path / "out",
                options=Options(to="safetensors"),
                engine="inline",
            )
        )
        == []
    )
    assert len(seen) == 3
    with pytest.raises(UsageError, match="engine"):  # at once, not with the first outcome
        converter.convert_many(source, tmp_path / "out", engine="threads")


def test_file_urls_are_sources_and_outputs(source: Path, tmp_path: Path) -> None:
    made = converter.convert(f"file://{source}", out=f"file://{tmp_path}/out")
    assert made.path == tmp_path / "out"
    assert (tmp_path / "out" / "manifest.json").is_file()
    bundle = converter.read(f"file://{source}")
    assert bundle.weights["module.w"].nbytes == 48
    assert {d.kind for d in converter.diff(bundle, source)} == {"equal"}
    assert converter.inspect(f"file://{source}").source == f"file://{source}"


def test_verify_compares_and_reports(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    converter.convert(source, out=out)
    found = converter.verify(source, out)
    assert (found.level, found.weights.tensors) == ("weights", 1)
    assert len(repr(found)) < 200
    assert "weights" in found._repr_html_()
    save_file({"module.w": np.zeros((3, 4), "f4")}, source)
    assert converter.verify(source, f"file://{out}").failed
    with pytest.raises(UsageError, match="seed=1 contradicts comparison=Comparison"):
        converter.verify(source, out, seed=1, options=Options(comparison=Comparison(seed=2)))
    with pytest.raises(UsageError, match="device"):
        converter.verify(source, out, device="cpu", options=Options(device="cuda:0"))


def test_verify_has_the_defaults_of_a_comparison() -> None:
    given = signature(converter.verify).parameters
    assert (given["seed"].default, given["timeout"].default) == (
        Comparison().seed,
        Comparison().timeout,
    )
