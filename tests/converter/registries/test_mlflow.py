"""MLflow as a source, before a stand-in; tests/live/mlflow/test_batch.py has the real one."""

import json
from pathlib import Path

import pytest
from mlflow_stand_in import Server

from converter.registries import mlflow_server
from converter.registries.catalog import open_registry, stage
from converter.registries.entry import Entry, Skipped
from converter.registries.filters import Filters
from converter.registries.mlflow_names import Named, as_file, make_registered_name, parse
from formats.core.bundle import TensorSpec
from formats.errors import (
    ConvertError,
    CorruptError,
    DependencyError,
    SourceError,
    StorageError,
    UnsupportedError,
    UsageError,
)
from formats.other_libraries import LIBRARIES

SPEC = {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 6]}}


def mlmodel(flavor, **block):
    lines = [
        "flavors:",
        "  python_function: {loader_module: x}",
        f"  {flavor}: {json.dumps(block)}",
    ]
    lines += [f"signature: {{inputs: '{json.dumps([SPEC])}'}}", "model_size_bytes: 77"]
    lines += ["saved_input_example_info: {artifact_path: input_example.json, type: ndarray}"]
    return "\n".join(lines).encode()


TORCH = {
    "MLmodel": mlmodel("pytorch", model_data="data"),
    "data/model.pth": b"weights",
    "data/pickle_module_info.txt": b"mlflow.pytorch.pickle_module",
    "input_example.json": json.dumps([[1.0] * 6]).encode(),
    "code/evil.py": b"1/0",
    "registered_model_meta": b"",
}
ONNX = {
    "MLmodel": mlmodel("onnx", data="model.onnx"),
    "model.onnx": b"graph",
    "model.onnx.data": b"weights",
    "conda.yaml": b"",
    "python_model.pkl": b"",
}
OTHER = {"MLmodel": mlmodel("sklearn", pickled_model="model.pkl"), "model.pkl": b""}


@pytest.fixture
def server(monkeypatch):
    made = Server()
    made.install(monkeypatch)
    return made


def found(reference, **filters):
    return [*open_registry(reference, Filters(**filters)).find()]


def sources(reference, **filters):
    return [e.source for e in found(reference, **filters) if isinstance(e, Entry)]


# -- references ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("models:/", Named()),
        ("models:/a b", Named(name="a b")),
        ("models:/a/3", Named(name="a", version="3")),
        ("models:/a@best", Named(name="a", alias="best")),
        ("models:/a@b/3", Named(name="a@b", version="3")),
        ("models:/a/latest", Named(name="a", version="latest")),
        (f"models:/m-{'0' * 32}", Named(model_id=f"m-{'0' * 32}")),
        ("runs:/abc/model/x", Named(run_id="abc", path="model/x")),
    ],
)
def test_references(text, named):
    assert parse(text) == named


@pytest.mark.parametrize(
    "text",
    ["models:", "models:a", "models:/a/b/c", "models://h/a", "runs:/", "runs:/abc", "models:/@x"],
)
def test_references_that_are_none(text):
    with pytest.raises((UsageError, UnsupportedError)):
        parse(text)


def test_names_become_names_of_files():
    names = [
        "a",
        "a b",
        "ünï",
        "a/b",
        "a_b",
        "..",
        ".a",
        "-a",
        "x\ny",
        "a" * 300,
        "a" * 301,
        "é",
        "é",
        "",
    ]
    made = [as_file(name) for name in names]
    assert len({m.casefold() for m in made}) == len({*names})
    for name in made:
        assert name
        assert len(name.encode()) < 250
        assert "/" not in name
        assert name.isprintable()
        assert name[0] not in ".-"
    assert made[:3] == names[:3]
    assert make_registered_name("team/model:1") == "team_model_1"


# -- what is there ---------------------------------------------------------------------------------


def test_all_versions_are_found_in_order(server):
    for _ in range(11):
        server.add("b", TORCH)
    server.add("a", ONNX)
    entries = found("models:/")
    assert [e.source for e in entries] == ["models:/a/1", *(f"models:/b/{n}" for n in range(1, 12))]
    assert len({e.token for e in entries}) == 12
    assert (entries[0].name, entries[0].nbytes, entries[0].format) == ("a/1", 77, "onnx")
    assert sources("models:/b")[0] == "models:/b/1"
    fetched = {call[2] for call in server.calls if call[0] == "download"}
    assert fetched == {"MLmodel"}  # and nothing else, for a plan


def test_tags_and_descriptions_are_no_change(server):
    server.add("a", TORCH)
    (before,) = found("models:/a")
    server.versions[0].tags["convert.portable"] = "models:/a_portable/1"
    server.versions[0].last_updated_timestamp = 99
    assert found("models:/a") == [before]
    server.versions[0].creation_timestamp = 99  # deleted, and made again
    assert found("models:/a") != [before]


def test_what_holds_no_model_of_ours_is_skipped_by_its_flavor(server):
    server.add("a", OTHER)
    server.add("a", TORCH, status="FAILED_REGISTRATION")
    server.add("a", ONNX, tags={"convert.source_uri": "models:/x/1"})
    server.add("a", {}, tags={"mlflow.prompt.is_prompt": "true"})
    reasons = [e.reason for e in found("models:/") if isinstance(e, Skipped)]
    assert reasons == [
        f"an MLflow model of flavor sklearn. {LIBRARIES['sklearn'].hint}",
        "its status is FAILED_REGISTRATION",
        "convert made it",
        "no model: a prompt",
    ]


def test_a_version_whose_files_are_gone_is_an_artifact_that_fails(server, tmp_path):
    server.add("a", {})
    server.add("a", {"data/model.pth": b""})
    assert sources("models:/a") == ["models:/a/1", "models:/a/2"]
    for n in (1, 2):
        with pytest.raises(SourceError, match=r"nothing is there|any more"):
            stage(f"models:/a/{n}", tmp_path)


def test_filters(server):
    for name in ("team-a", "team-b", "other"):
        server.add(name, TORCH)
        server.add(name, TORCH)
    assert sources("models:/", query="name LIKE 'team%'") == [
        "models:/team-a/1", "models:/team-a/2", "models:/team-b/1", "models:/team-b/2",
    ]  # fmt: skip
    assert sources("models:/", exclude=("team*", "*/1")) == ["models:/other/2"]
    server.versions[1].tags["good"] = "yes"
    assert sources("models:/team-a", query="tags.`good` = 'yes'") == ["models:/team-a/2"]
    with pytest.raises(UsageError, match="Invalid clause"):
        found("models:/", query="what is this")
    with pytest.raises(UsageError, match="one model"):
        found("models:/other/1", query="name = 'other'")


def test_references_to_one_version(server):
    server.add("a", TORCH)
    server.add("a", TORCH, aliases=["best"])
    server.add("a", TORCH)
    server.versions[0].current_stage = "Production"
    assert sources("models:/a@best") == ["models:/a/2"]
    assert sources("models:/a/latest") == ["models:/a/3"]
    assert sources("models:/a/production") == ["models:/a/1"]
    for reference in ("models:/a/9", "models:/b", "models:/a@worst", "models:/a/staging"):
        with pytest.raises(SourceError):
            found(reference)


# -- fetching --------------------------------------------------------------------------------------


def fetched(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_the_files_of_the_model_alone_are_fetched(server, tmp_path):
    server.add("torch", TORCH, aliases=["best"])
    server.add("onnx", ONNX)
    staged = stage("models:/torch@best", tmp_path / "torch")
    assert staged.path == tmp_path / "torch" / "source" / "data" / "model.pth"
    assert staged.inputs == (TensorSpec("", "float32", ("batch", 6)),)
    assert staged.example is not None
    assert (staged.facts["name"], staged.facts["version"]) == ("torch", "1")
    assert fetched(tmp_path / "torch" / "source") == {
        "MLmodel", "data/model.pth", "input_example.json",
    }  # fmt: skip
    stage("models:/onnx/1", tmp_path / "onnx")
    here = fetched(tmp_path / "onnx" / "source")
    assert here == {"MLmodel", "model.onnx", "model.onnx.data"}


@pytest.fixture(autouse=True)
def _folders(tmp_path):
    for name in ("torch", "onnx"):
        (tmp_path / name).mkdir()


def test_other_flavors_are_refused_by_name(server, tmp_path):
    server.add("a", OTHER)
    with pytest.raises(UnsupportedError, match="sklearn"):
        stage("models:/a/1", tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/evil", "data/../../evil"])
def test_a_server_does_not_say_where_files_go(server, tmp_path, name):
    server.add("a", ONNX | {name: b"x"})
    server.add("b", {"MLmodel": mlmodel("onnx", data=name), name: b"x"})
    for model in ("a", "b"):
        try:
            staged = stage(f"models:/{model}/1", tmp_path / "onnx")
        except ConvertError as e:
            assert e.exit_code in (3, 5)
        else:
            assert staged.path.is_relative_to(tmp_path / "onnx")
    assert not [*tmp_path.parent.glob("evil")]
    assert not Path("/evil").exists()


def test_a_damaged_mlmodel(server, tmp_path):
    server.add("a", {"MLmodel": b"flavors: [", "model.onnx": b""})
    (entry,) = found("models:/")
    assert isinstance(entry, Entry)  # to be counted among what failed
    with pytest.raises(CorruptError):
        stage("models:/a/1", tmp_path)


def test_many_models_are_not_one(server, tmp_path):
    for reference in ("models:/", "models:/a"):
        with pytest.raises(UsageError, match="many models"):
            stage(reference, tmp_path)


# -- the server ------------------------------------------------------------------------------------


def test_a_failing_server_is_said_in_a_line_without_secrets(server):
    server.failing.add("search_registered_models")
    with pytest.raises(StorageError) as e:
        open_registry("models:/", Filters())
    text = str(e.value)
    assert "mlflow.example" in text
    assert "secret" not in text
    assert "MLFLOW_TRACKING_TOKEN" in text
    assert "\n" not in text


def test_a_server_that_goes_away_is_not_asked_for_ever(server):
    for _ in range(100):
        server.add("a", TORCH)
    server.failing.add("get_model_version_download_uri")
    server.failing_takes = 0.05  # else all have failed before the first failure is looked at
    with pytest.raises(StorageError):
        found("models:/")
    asked = [call for call in server.calls if call[0] == "get_model_version_download_uri"]
    assert len(asked) < 100  # several are under way when the first one fails


def test_waiting_is_short_unless_the_user_says_otherwise(server, monkeypatch):
    for name in mlflow_server.USUAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")
    seen = []
    monkeypatch.setattr(
        "mlflow_stand_in.Client.search_registered_models",
        lambda self, **_: seen.append(
            {name: mlflow_server.os.environ[name] for name in mlflow_server.HURRIED}
        ),
    )
    open_registry("models:/", Filters())
    assert seen == [{"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}]
    assert mlflow_server.os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "60"
    assert mlflow_server.os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_without_mlflow_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(DependencyError, match=r"pip install .*mlflow-skinny"):
        open_registry("models:/", Filters())


def test_without_a_server_nothing_is_made_here(server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path / "onnx")
    monkeypatch.setattr(__import__("sys").modules["mlflow"], "is_tracking_uri_set", lambda: False)
    with pytest.raises(UsageError, match="MLFLOW_TRACKING_URI"):
        open_registry("models:/", Filters())
    assert not [*(tmp_path / "onnx").iterdir()]


def test_files_in_a_bucket_are_fetched_by_our_own_stores(server, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr("converter.registries.mlflow_files.OURS", ("memory",))
    for name, content in ONNX.items():
        fsspec.filesystem("memory").pipe(f"/bucket/models/m/artifacts/{name}", content)
    server.add("a", {})
    server.versions[0].source = "memory://bucket/models/m/artifacts"
    (entry,) = found("models:/a")
    assert (entry.nbytes, entry.format) == (77, "onnx")
    staged = stage("models:/a/1", tmp_path / "onnx")
    assert staged.path.read_bytes() == b"graph"
    assert (staged.path.parent / "model.onnx.data").read_bytes() == b"weights"
    assert fetched(tmp_path / "onnx" / "source") == {"MLmodel", "model.onnx", "model.onnx.data"}
    assert not [call for call in server.calls if call[0] == "download"]


def test_files_on_this_disk_are_read_where_they_are(server, tmp_path, monkeypatch):
    import sys

    class Local:
        def __init__(self, folder):
            self.artifact_dir = str(folder)

    module = "mlflow.store.artifact.local_artifact_repo"
    monkeypatch.setattr(sys.modules[module], "LocalArtifactRepository", Local)
    here = tmp_path / "artifacts"
    for name, content in TORCH.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    registry = sys.modules["mlflow.store.artifact.artifact_repository_registry"]
    monkeypatch.setattr(registry, "get_artifact_repository", lambda uri: Local(here))
    server.add("a", {})
    assert sources("models:/a") == ["models:/a/1"]
    staged = stage("models:/a/1", tmp_path / "torch")
    assert staged.path == here / "data" / "model.pth"
    assert fetched(tmp_path / "torch") == {"example.npz"}
    (here / "MLmodel").unlink()
    with pytest.raises(SourceError):
        stage("models:/a/1", tmp_path / "torch")
