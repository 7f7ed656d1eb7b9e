"""A bucket on a moto server as registry and as destination, through the command itself."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES
from s3_server import Server, command, wait_for
from safetensors.numpy import save_file

from converter.cli.app import run
from converter.registries.catalog import stage
from converter.stores.fsspec_store import PART_BYTES, open_store
from formats.errors import StorageError

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

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
def here(tmp_path, server, monkeypatch):
    """Return a working folder; nothing temporary is left when a test ends."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    for key, value in server.environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def convert(capfd):
    """Return what runs the command in this process: importing s3fs takes a second."""

    def run_here(*arguments):
        s3fs.S3FileSystem.clear_instance_cache()  # credentials change between two runs
        capfd.readouterr()
        code = run(["SOURCE" if a == "convert" else str(a) for a in arguments])
        out, said = capfd.readouterr()
        return code, out, said

    return run_here


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


def batch(bucket, ledger, *more):
    return (
        "batch", f"{bucket.url}/models", "-o", f"{bucket.url}/out", "--verify", "weights",
        "--ledger", ledger, "--json", *more,
    )  # fmt: skip


def test_a_bucket_is_a_registry_and_a_destination(server, bucket, here, models, convert):
    bucket.load(models, "models")
    code, out, said = command(*batch(bucket, "ledger"), cwd=here)
    assert code == 3, said  # the damaged ones
    assert json.loads(out)["summary"]["counts"] == {"done": 5, "failed": 2}
    code, out, _ = convert(
        "batch", models, "-o", "local", "--verify", "weights", "--engine", "inline"
    )
    assert code == 3
    there = {k: v for k, v in bucket.below("out/").items() if not k.startswith(".convert/")}
    local = here / "local"
    files = {p.relative_to(local).as_posix(): p for p in local.rglob("*") if p.is_file()}
    assert there.keys() == files.keys()
    assert {n.split("/")[0] for n in files} == {
        "a model with spaces.portable",
        "saved.portable",
        "sharded.portable",
        "state.portable",
        "team ü",
    }
    for name, path in files.items():
        if not name.endswith("manifest.json"):  # which has times
            assert there[name] == path.read_bytes(), name
        else:
            mine, theirs = json.loads(there[name]), json.loads(path.read_bytes())
            assert mine["source"] == theirs["source"]
            assert mine["tensors"] == theirs["tensors"]
    before = bucket.times("out/")
    code, out, _ = convert(*batch(bucket, "ledger"))
    assert json.loads(out)["plan"]["todo"] == 0
    assert code == 3
    bucket.put("models/a model with spaces.h5", OTHER.read_bytes())
    _, out, _ = convert(*batch(bucket, "ledger", "--engine", "inline"))
    assert json.loads(out)["summary"]["counts"] == {"done": 1}
    after = bucket.times("out/")
    changed = {k.split("/")[1] for k in after if after[k] != before.get(k)}
    assert changed == {"a model with spaces.portable", ".convert"}
    _, out, _ = convert(*batch(bucket, "of another machine", "--engine", "inline"))
    assert json.loads(out)["plan"]["todo"] == 2  # what failed is in no destination
    assert json.loads(out)["plan"]["done"] == 5


def test_a_server_that_dies_costs_what_is_left_and_no_more(
    server, bucket, here, convert, monkeypatch
):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for i in range(6):
        bucket.put(f"models/{i}.h5", H5.read_bytes())
    arguments = batch(bucket, "ledger", "--events", "events", "--jobs", "1")
    running = subprocess.Popen(
        [sys.executable, "-m", "converter", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    events = here / "events"
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
    assert "Traceback" not in said
    assert "cannot be reached" in events.read_text()
    done = [k for k in bucket.below("out/") if k.endswith("/manifest.json")]
    assert 2 <= len(done) < 6
    code, out, said = convert(*batch(bucket, "ledger", "--engine", "inline"))
    assert code == 0, said
    assert json.loads(out)["summary"]["done_before"] >= 2
    done = [k for k in bucket.below("out/") if k.endswith("/manifest.json")]
    assert len(done) == 6


def test_a_large_upload_that_fails_leaves_nothing_and_what_was_left_is_swept(
    server, bucket, here, monkeypatch
):
    s3fs.S3FileSystem.clear_instance_cache()
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


def test_what_is_wrong_is_said_in_one_line(server, bucket, here, convert, monkeypatch):
    bucket.put("m.h5", H5.read_bytes())
    iam = server.client("iam")
    iam.create_user(UserName=f"nobody-{bucket.name}")
    key = iam.create_access_key(UserName=f"nobody-{bucket.name}")["AccessKey"]

    def said(*arguments):
        code, _, text = convert(*arguments)
        assert text.startswith("convert: error: ")
        assert text.count("convert: error: ") == 1
        assert key["SecretAccessKey"] not in text
        return code, text

    code, text = said("convert", "s3://no-such-bucket/m.h5")
    assert (code, "no such bucket" in text) == (6, True)
    code, text = said("batch", bucket.url, "-o", "s3://no-such-bucket/o")
    assert (code, "no such bucket" in text) == (6, True)
    none = f"{bucket.url}/none.h5"
    assert said("convert", none) == (3, f"convert: error: {none}: is not there\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    code, text = said("inspect", f"{bucket.url}/m.h5")
    assert (code, "no credentials" in text) == (6, True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    server.demand_permissions(0)
    try:
        code, text = said("inspect", f"{bucket.url}/m.h5")
        assert (code, "access denied" in text) == (6, True)
        code, text = said("batch", H5, "-o", f"{bucket.url}/out")
        assert (code, "access denied" in text) == (6, True)
    finally:
        server.demand_permissions(float("inf"))
    assert {*bucket.below("")} == {"m.h5"}


def test_single_conversions(server, bucket, here, models, convert):
    bucket.load(models, "m")
    code, out, _ = convert("inspect", f"{bucket.url}/m/saved", "--json")
    assert code == 0
    assert json.loads(out)["source"] == f"{bucket.url}/m/saved"
    source = f"{bucket.url}/m/a model with spaces.h5"
    weights = ("--verify", "weights")
    code, out, _ = convert("convert", source, "-o", f"{bucket.url}/one.portable", *weights)
    assert (code, out) == (0, f"{bucket.url}/one.portable\n")
    assert "manifest.json" in bucket.below("one.portable/")
    code, _, said = convert("convert", source, "-o", f"{bucket.url}/one.portable", *weights)
    assert (code, "exists" in said) == (2, True)
    code, out, _ = convert("verify", f"{bucket.url}/one.portable")
    assert code == 0, out
    code, out, _ = convert("convert", source, "--to", "safetensors")
    assert (code, out) == (0, "a model with spaces.safetensors\n")
    code, out, _ = convert("diff", source, "a model with spaces.safetensors")
    assert code == 0
    code, _, said = convert("convert", f"{bucket.url}/m/cut.keras")
    assert code == 3
    assert f"{bucket.url}/m/cut.keras: " in said
    assert "tmp" not in said


def test_staging_takes_what_s3fs_takes(server, bucket, here, capsys):
    """Print both times: ours has a look before and after, and the same transfer in between."""
    s3fs.S3FileSystem.clear_instance_cache()
    data = np.random.default_rng(0).bytes(32 << 20)
    bucket.put("m/big.bin", data)
    files = s3fs.S3FileSystem(use_listings_cache=False)
    files.info(f"{bucket.name}/m/big.bin")  # its connection is open
    times = {"s3fs": [], "ours": []}
    for _ in range(5):  # a busy machine is given more tries
        begin = time.perf_counter()
        files.get_file(f"{bucket.name}/m/big.bin", str(here / "plain"))
        times["s3fs"].append(time.perf_counter() - begin)
        scratch = Path(tempfile.mkdtemp(dir=here))
        begin = time.perf_counter()
        staged = stage(f"{bucket.url}/m/big.bin", scratch)
        times["ours"].append(time.perf_counter() - begin)
        assert staged.path.read_bytes() == data
        best = {name: min(found) for name, found in times.items()}
        if best["ours"] < 3 * best["s3fs"] + 1:
            break
    with capsys.disabled():
        print(f"\n32 MiB: s3fs {best['s3fs']:.2f} s, staged {best['ours']:.2f} s")
    assert best["ours"] < 3 * best["s3fs"] + 1
