"""A bucket on a moto server as registry and as destination, through the command itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

from s3_server import Server, convert, wait_for

pytestmark = pytest.mark.s3

FIXTURES = Path(__file__).parents[3] / "fixtures"
H5 = FIXTURES / "keras/keras315_functional.h5"
OTHER = FIXTURES / "keras/keras2_recurrent.h5"


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def bucket(server):
    return server.bucket()


@pytest.fixture
def here(tmp_path):
    (tmp_path / "tmp").mkdir()
    yield tmp_path
    assert not list((tmp_path / "tmp").iterdir())  # nothing temporary is left, whatever happened


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    top = tmp_path_factory.mktemp("live") / "models"
    (top / "team ü").mkdir(parents=True)
    shutil.copy(H5, top / "a model with spaces.h5")
    shutil.copy(FIXTURES / "keras/keras30_functional.keras", top / "team ü/größe.keras")
    saved = next(p.parent for p in sorted((FIXTURES / "tensorflow").rglob("saved_model.pb")))
    shutil.copytree(saved, top / "saved")
    (top / "sharded").mkdir()
    for i in (1, 2):
        part = {f"w{i}": np.full((200, 300), i, "float32")}
        save_file(part, top / f"sharded/model-0000{i}-of-00002.safetensors")
    index = {"weight_map": {f"w{i}": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}}
    (top / "sharded/model.safetensors.index.json").write_text(json.dumps(index))
    torch = next(p for p in sorted((FIXTURES / "torch").rglob("*.pt")) if p.stat().st_size < 1e6)
    shutil.copy(torch, top / "state.pt")
    (top / "cut.keras").write_bytes(
        (FIXTURES / "keras/keras30_functional.keras").read_bytes()[:900]
    )
    (top / "cut.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    (top / "README.md").write_text("# no model")
    return top


def batch(server, bucket, here, *more, source="models", **environment):
    return convert(
        server, "batch", f"{bucket.url}/{source}", "-o", f"{bucket.url}/out", "--verify", "weights",
        "--json", "--ledger", here / "ledger", *more, cwd=here, **environment,
    )  # fmt: skip


def test_a_bucket_is_a_registry_and_a_destination(server, bucket, here, models):
    bucket.load(models, "models")
    code, out, said = batch(server, bucket, here)
    assert code == 3, said  # the damaged ones
    summary = json.loads(out)["summary"]
    assert summary["counts"] == {"done": 5, "failed": 2}
    local = here / "local"
    code, out, _ = convert(server, "batch", models, "-o", local, "--verify", "weights", cwd=here)
    assert code == 3
    there = {k: v for k, v in bucket.below("out/").items() if not k.startswith(".convert/")}
    files = {p.relative_to(local).as_posix(): p for p in local.rglob("*") if p.is_file()}
    assert there.keys() == files.keys()
    assert {n.split("/")[0] for n in files} >= {"a model with spaces.portable", "team ü", "saved.portable"}  # fmt: skip
    for name, path in files.items():
        if not name.endswith("manifest.json"):  # which has times
            assert there[name] == path.read_bytes(), name
        else:
            mine, theirs = json.loads(there[name]), json.loads(path.read_bytes())
            assert mine["source"] == theirs["source"]
            assert mine["tensors"] == theirs["tensors"]
    before = bucket.times("out/")
    code, out, _ = batch(server, bucket, here)
    assert json.loads(out)["plan"]["todo"] == 0
    assert code == 3
    bucket.put("models/a model with spaces.h5", OTHER.read_bytes())
    _, out, _ = batch(server, bucket, here)
    assert json.loads(out)["summary"]["counts"] == {"done": 1}
    after = bucket.times("out/")
    assert {k.split("/")[1] for k in after if "/.convert/" not in k and after[k] != before.get(k)} == {"a model with spaces.portable"}  # fmt: skip
    _, out, _ = batch(server, bucket, here, "--ledger", here / "of another machine")
    assert json.loads(out)["plan"]["todo"] == 2  # what failed is in no destination
    assert not list(here.glob("*.portable"))


def test_a_server_that_dies_costs_what_is_left_and_no_more(server, bucket, here):
    for i in range(12):
        bucket.put(f"models/{i:02}.h5", H5.read_bytes())
    events = here / "events"
    command = [
        sys.executable, "-m", "converter", "batch", f"{bucket.url}/models", "-o",
        f"{bucket.url}/out", "--verify", "weights", "--events", events, "--ledger", here / "ledger",
        "--jobs", "1",
    ]  # fmt: skip
    environment = os.environ | server.environment | {"TMPDIR": str(here / "tmp")}
    running = subprocess.Popen(
        command, cwd=here, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: events.exists() and events.read_text().count('"finished"') >= 2)
        server.stop()
        try:
            _, said = running.communicate(timeout=100)
        finally:
            server.start()
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 6, said
    assert "cannot be reached" in said
    assert "Traceback" not in said
    complete = [k for k in bucket.below("out/") if k.endswith("/manifest.json")]
    assert 2 <= len(complete) < 12
    code, out, said = batch(server, bucket, here)
    assert code == 0, said
    assert json.loads(out)["summary"]["done_before"] >= 2
    complete = [k for k in bucket.below("out/") if k.endswith("/manifest.json")]
    assert len(complete) == 12


def test_a_large_upload_that_fails_leaves_nothing_and_what_was_left_is_swept(
    server, bucket, here, monkeypatch
):
    import s3fs

    from converter.stores.fsspec_store import PART_BYTES, open_store
    from formats.errors import StorageError

    for key, value in server.environment.items():
        monkeypatch.setenv(key, value)
    big = here / "big"
    with big.open("wb") as file:
        file.truncate(3 * PART_BYTES)
    store = open_store(f"{bucket.url}/out")
    call = s3fs.S3FileSystem._call_s3

    async def failing(self, method, *args, **more):
        if method == "upload_part" and more["PartNumber"] == 2:
            raise PermissionError("Access Denied")
        return await call(self, method, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "_call_s3", failing)
        with pytest.raises(StorageError, match="access denied"):
            store.put(big, "big")
    assert bucket.below("out/") == {}
    assert bucket.uploads() == []
    for key in ("out/m/a", "out/m2/a", "out/m"):
        bucket.abandon(key)
    store.sweep("m")
    assert [u["Key"] for u in bucket.uploads()] == ["out/m2/a"]
    assert store.put(big, "big").nbytes == 3 * PART_BYTES
    store.get(store.stat("big"), here / "again")
    assert (here / "again").stat().st_size == 3 * PART_BYTES


def test_what_is_wrong_is_said_in_one_line(server, bucket, here):
    bucket.put("m.h5", H5.read_bytes())
    iam = server.client("iam")
    iam.create_user(UserName=f"nobody-{bucket.name}")
    key = iam.create_access_key(UserName=f"nobody-{bucket.name}")["AccessKey"]
    nobody = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}  # fmt: skip

    def said(*arguments, **environment):
        code, _, text = convert(server, *arguments, cwd=here, **environment)
        assert text.startswith("convert: error: ")
        assert text.count("\n") == 1
        assert key["SecretAccessKey"] not in text
        return code, text

    assert said("s3://no-such-bucket/m.h5")[0] == 6
    assert "no such bucket" in said("batch", f"{bucket.url}", "-o", "s3://no-such-bucket/o")[1]
    assert said(f"{bucket.url}/none.h5") == (
        3,
        f"convert: error: {bucket.url}/none.h5: is not there any more\n",
    )
    code, text = said(
        "inspect", f"{bucket.url}/m.h5", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""
    )
    assert (code, "no credentials" in text) == (6, True)
    server.demand_permissions(0)
    try:
        code, text = said("inspect", f"{bucket.url}/m.h5", **nobody)
        assert (code, "access denied" in text) == (6, True)
        code, text = said("batch", str(H5), "-o", f"{bucket.url}/out", **nobody)
        assert (code, "access denied" in text) == (6, True)
    finally:
        server.demand_permissions(float("inf"))
    assert {*bucket.below("")} == {"m.h5"}


def test_single_conversions(server, bucket, here, models):
    bucket.load(models, "m")
    code, out, _ = convert(server, "inspect", f"{bucket.url}/m/saved", "--json", cwd=here)
    assert code == 0
    assert json.loads(out)["source"] == f"{bucket.url}/m/saved"
    source = f"{bucket.url}/m/a model with spaces.h5"
    code, out, _ = convert(server, source, "-o", f"{bucket.url}/one.portable", cwd=here)
    assert (code, out) == (0, f"{bucket.url}/one.portable\n")
    assert "manifest.json" in bucket.below("one.portable/")
    code, _, said = convert(server, source, "-o", f"{bucket.url}/one.portable", cwd=here)
    assert (code, "exists" in said) == (2, True)
    code, out, _ = convert(server, "verify", source, f"{bucket.url}/one.portable", cwd=here)
    assert code == 0
    code, out, _ = convert(server, source, "--to", "safetensors", cwd=here)
    assert (code, out) == (0, "a model with spaces.safetensors\n")
    code, out, _ = convert(server, "diff", source, "a model with spaces.safetensors", cwd=here)
    assert code == 0
    code, _, said = convert(server, f"{bucket.url}/m/cut.keras", cwd=here)
    assert code == 3
    assert f"{bucket.url}/m/cut.keras: " in said
    assert "/tmp" not in said
