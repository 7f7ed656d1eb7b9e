"""MLflow as a destination, before a stand-in; live/mlflow/test_batch.py has the real one."""

import json
from dataclasses import replace

import pytest
import yaml
from mlflow_stand_in import Server

from converter.destinations import mlflow_model, mlflow_register
from converter.destinations.catalog import open_destination
from converter.jobs.job import Job, new_record
from converter.jobs.record import Record, RecordedVerification
from converter.options import Options
from converter.registries.entry import Staged
from formats.errors import StorageError, UsageError

TEMPLATE = "models:/{name}_portable"
SIGNATURE = {"inputs": "[1]", "outputs": "[2]", "params": None}


@pytest.fixture(params=[True, False], ids=["3", "2"])
def server(monkeypatch, request):
    """A server of either major: with and without logged models."""
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    made = Server(logged_models=request.param)
    made.install(monkeypatch)
    return made


def publish(server, folder, source="models:/a/1", *, reached="cpu", name="a/1.portable", **more):
    """Convert nothing, and publish that."""
    job = Job(source, name, TEMPLATE, Options(to="portable", **more), token="then")
    destination = open_destination(TEMPLATE)
    made = destination.local(job.name, folder)
    made.mkdir(parents=True, exist_ok=True)
    for file in ("model.onnx", "model.safetensors"):
        (made / file).write_bytes(b"x")
    record = replace(
        new_record(job), source_digest="5e", verification=RecordedVerification(reached)
    )
    facts = {}
    if source.startswith("models:/"):
        _, model, version = source.split("/")
        facts = {"registry": "mlflow", "name": model, "version": version, "signature": SIGNATURE}
    published = destination.publish(made, job, Staged(made, facts=facts), record)
    return published.output, replace(record, warnings=published.warnings)


def files_of(server, output):
    (version,) = [v for v in server.versions if f"models:/{v.name}/{v.version}" == output]
    return server.files[version.source]


def test_a_conversion_becomes_a_version_of_another_model(server, tmp_path):
    server.add("a", {})
    output, record = publish(server, tmp_path)
    assert output == "models:/a_portable/1"
    assert server.models["a_portable"].tags == {"convert.of": "a"}
    tags = server.versions[-1].tags
    assert tags["convert.source_uri"] == "models:/a/1"
    assert tags["convert.source_digest"] == "5e"
    assert tags["convert.plan"] == record.plan
    assert tags["convert.verification"] == "passed"
    assert server.versions[0].tags == {"convert.portable": output}
    files = files_of(server, output)
    assert {"model.onnx", "model.safetensors", "requirements.txt", "conda.yaml"} < set(files)
    document = yaml.safe_load(files["MLmodel"])
    assert document["flavors"]["python_function"]["loader_module"] == "mlflow.onnx"
    assert document["flavors"]["onnx"]["data"] == "model.onnx"
    assert document["signature"] == SIGNATURE
    assert document["metadata"]["converted_from"] == "models:/a/1"
    harm = open_destination(TEMPLATE).find_damage
    assert harm("a/1.portable", replace(record, output=output)) == ""
    other = replace(record, output=output, plan="other")
    assert harm("", other) == "its tag convert.plan was changed"
    assert harm("", replace(record, output="models:/a_portable/2")) == "is gone"


def test_the_same_conversion_is_registered_once(server, tmp_path):
    server.add("a", {})
    server.add("a", {})
    first, _ = publish(server, tmp_path)
    before = len(server.logged), len(server.runs)
    assert publish(server, tmp_path)[0] == first
    assert (len(server.logged), len(server.runs)) == before  # nothing was uploaded, either
    # Another version of the same content, and another plan, are other conversions.
    assert publish(server, tmp_path, "models:/a/2")[0] == "models:/a_portable/2"
    assert publish(server, tmp_path, opset=19)[0] == "models:/a_portable/3"


def test_what_cannot_be_registered_is_taken_back(server, tmp_path):
    server.add("a", {})
    for method in ("log_model_artifacts", "log_artifacts", "create_model_version"):
        server.failing = {method}
        if method.startswith("log_model") != server.has_logged_models and "version" not in method:
            continue
        with pytest.raises(StorageError):
            publish(server, tmp_path)
        assert (server.logged, server.runs) == ({}, {})
        assert len(server.versions) == 1
    server.failing = set()
    assert publish(server, tmp_path)[0] == "models:/a_portable/1"


def test_of_two_workers_the_first_one_stands(server, tmp_path, monkeypatch):
    server.add("a", {})
    asked = []
    look = mlflow_register.find_existing

    def late(client, target, tags):
        asked.append(target)
        if len(asked) == 1:  # the other one registers right after this one has looked
            other = {**tags, "convert.of": "a"}
            server.models.pop("a_portable", None)
            server.add("a_portable", {}, tags=other)
            server.models["a_portable"].tags["convert.of"] = "a"
            return None
        return look(client, target, tags)

    monkeypatch.setattr(mlflow_register, "find_existing", late)
    assert publish(server, tmp_path)[0] == "models:/a_portable/1"
    assert [v.name for v in server.versions] == ["a", "a_portable"]
    assert (server.logged, server.runs) == ({}, {})


def test_aliases_move_after_verification_alone(server, tmp_path):
    server.add("a", {}, aliases=["champion"])
    aliases = server.models.setdefault("a_portable", type(server.models["a"])(
        name="a_portable", aliases={}, tags={"convert.of": "a"})).aliases  # fmt: skip
    for reached, more in (("weights", {}), ("none", {}), ("cpu", {"require": "device"})):
        _, record = publish(server, tmp_path, reached=reached, **more)
        assert "champion was not moved" in record.warnings[0]
        assert aliases == {}
    first = len([v for v in server.versions if v.name == "a_portable"])
    _, record = publish(server, tmp_path, reached="weights", require="weights")
    assert (aliases, record.warnings) == ({"champion": str(first + 1)}, ())
    # What was registered before it was verified has become good.
    output, _ = publish(server, tmp_path, reached="cpu")
    assert output == "models:/a_portable/1"
    assert aliases == {"champion": "1"}
    tags = next(v for v in server.versions if v.name == "a_portable").tags
    assert (tags["convert.verification"], tags["convert.reached"]) == ("passed", "cpu")


def test_aliases_follow_as_a_batch_begins(server, tmp_path):
    for _ in range(3):
        server.add("a", {}, aliases=["champion"])
    publish(server, tmp_path)
    publish(server, tmp_path, "models:/a/2", reached="weights")
    publish(server, tmp_path, "models:/a/3")
    aliases = server.models["a_portable"].aliases
    assert aliases == {"champion": "3"}
    for number, expected in (("1", "1"), ("2", "1"), ("3", "3")):  # the second was not verified
        server.models["a"].aliases["champion"] = number
        open_destination(TEMPLATE).prepare()
        assert aliases == {"champion": expected}
    open_destination("models:/{name}_other").prepare()  # another template's business
    assert aliases == {"champion": "3"}
    del server.models["a"]
    open_destination(TEMPLATE).prepare()  # no source: no change, and no failure


def test_a_lost_ledger_is_told_by_tags(server, tmp_path):
    server.add("a", {})
    output, record = publish(server, tmp_path)
    publish(server, tmp_path, "/data/x.h5", name="team/x.portable")
    notes = [*open_destination(TEMPLATE).recall(frozenset())]
    assert [(n.name, n.source, n.token) for n in notes] == [
        ("a/1.portable", "models:/a/1", "then"),
        ("team/x.portable", "/data/x.h5", "then"),
    ]
    kept = notes[0].record
    for field in ("plan", "source_digest", "to"):
        assert getattr(kept, field) == getattr(record, field)
    assert kept.output == output
    assert len([*open_destination(TEMPLATE).recall(frozenset({"a/1.portable"}))]) == 1
    assert [*open_destination("models:/{name}_other").recall(frozenset())] == []


def test_sources_from_elsewhere_have_names_too(server, tmp_path):
    output, _ = publish(server, tmp_path, "/data/team/x.h5", name="team/x.portable")
    assert output == "models:/team_x_portable/1"
    with pytest.raises(UsageError, match="for conversions of /data/team"):
        publish(server, tmp_path, "/data/team_x.h5", name="team_x.portable")


def test_models_of_others_are_left_alone(server, tmp_path):
    server.add("a", {})
    server.add("a_portable", {})
    with pytest.raises(UsageError, match="not convert's"):
        publish(server, tmp_path)
    assert len(server.versions) == 2
    assert publish(server, tmp_path, overwrite=True)[0] == "models:/a_portable/2"


def test_without_a_graph_there_are_weights_alone(server, tmp_path):
    server.add("a", {})
    destination = open_destination(TEMPLATE)
    job = Job("models:/a/1", "a/1.safetensors", TEMPLATE, Options(to="safetensors"))
    made = destination.local(job.name, tmp_path)
    made.write_bytes(b"weights")
    record = replace(new_record(job), source_digest="5e")
    facts = {"registry": "mlflow", "name": "a", "version": "1"}
    published = destination.publish(made, job, Staged(made, facts=facts), record)
    files = files_of(server, published.output)
    assert files["model.safetensors"] == b"weights"
    document = yaml.safe_load(files["MLmodel"])
    assert list(document["flavors"]) == ["model_convert"]
    assert files["requirements.txt"] == b""


def test_a_bundle_is_tagged_with_its_own_digest(server, tmp_path):
    server.add("a", {})
    destination = open_destination(TEMPLATE)
    job = Job("models:/a/1", "a/1.portable", TEMPLATE, Options())
    made = destination.local(job.name, tmp_path)
    made.mkdir()
    digest = {"algorithm": "sha256", "value": "ab"}
    (made / "manifest.json").write_text(json.dumps({"digest": digest}))
    record = replace(new_record(job), source_digest="5e")
    facts = {"registry": "mlflow", "name": "a", "version": "1"}
    destination.publish(made, job, Staged(made, facts=facts), record)
    assert server.versions[-1].tags["convert.digest"] == "sha256:ab"


@pytest.mark.parametrize(
    "reference",
    [
        "models:/", "models:/portable", "models:/{name}/1", "models:/{other}", "models:/{name",
        "models:/{name}@x", "models:/{name}{name}", "models:/{}", "models:/{name:>5}",
        "models:/{name!r}",
    ],
)  # fmt: skip
def test_templates_that_are_none(server, reference):
    with pytest.raises(UsageError, match="expected models:/"):
        open_destination(reference)


def test_a_source_is_not_converted_into_itself(server, tmp_path):
    server.add("a", {})
    destination = open_destination("models:/{name}")
    job = Job("models:/a/1", "a/1.portable", "models:/{name}", Options())
    made = destination.local(job.name, tmp_path)
    made.mkdir()
    facts = {"registry": "mlflow", "name": "a", "version": "1"}
    with pytest.raises(UsageError, match="own model"):
        destination.publish(made, job, Staged(made, facts=facts), new_record(job))
    assert len(server.versions) == 1


def test_failures_are_storage_errors(server, tmp_path):
    server.add("a", {})
    server.failing = {"set_model_version_tag"}
    with pytest.raises(StorageError, match="MLFLOW_TRACKING_TOKEN"):
        publish(server, tmp_path)
    server.failing = set()  # what was registered before is found
    assert publish(server, tmp_path)[0] == "models:/a_portable/1"
    assert len(server.versions) == 2
    server.failing = {"search_model_versions"}
    with pytest.raises(StorageError):
        open_destination(TEMPLATE).find_damage("", Record("", "", output="models:/a_portable/1"))


def test_a_signature_whose_inputs_were_replaced_is_not_the_output_s(tmp_path):
    staged = Staged(tmp_path, facts={"signature": SIGNATURE})
    record = new_record(Job("models:/a/1", "a", TEMPLATE, Options(), token="then"))
    for change, kept in (("wrapper module", True), ("serialized tf.Example as input", False)):
        changes = ({"name": change, "count": 1, "detail": ""},)
        changed = replace(record, normalisations=changes, source_digest="5e")
        mlflow_model.describe(tmp_path, staged, changed, {})
        assert ("signature" in yaml.safe_load((tmp_path / "MLmodel").read_text())) is kept


@pytest.mark.parametrize(
    ("graphs", "loaded"),
    [
        (("encoder_model.onnx", "decoder_model.onnx"), "none of them"),
        (("model.onnx", "model.vae_decoder.onnx"), "model.onnx alone"),
        (("unet/model.onnx", "vae_decoder/model.onnx"), "none of them"),
    ],
)
def test_of_several_graphs_it_is_said_which_one_mlflow_loads(graphs, loaded, tmp_path):
    for name in graphs:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    (warning,) = mlflow_model.describe_parts(tmp_path)
    assert (f"flavor loads {loaded}" in warning, graphs[0] in warning) == (True, True)


def test_a_pipeline_is_registered_and_the_record_warns_of_its_other_graphs(server, tmp_path):
    made = tmp_path / "output" / "1.portable"
    made.mkdir(parents=True)
    (made / "model.vae_decoder.onnx").write_bytes(b"x")
    server.add("a", {})
    output, record = publish(server, tmp_path)
    assert "model.vae_decoder.onnx" in files_of(server, output)
    (warning,) = record.warnings
    assert "2 graphs" in warning
