"""Batches that are killed, stopped, or out of space: the next run makes all as if nothing was."""

import ctypes
import json
import os
import signal
import subprocess
import time

import batches
import pytest
from batches import Place, bear_kills, make_registry, write_safetensors

from converter.executors.processes import QUEUED

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a function: a registry of so many artifacts, and where it was converted."""
    made = {}

    def converted(count):
        if count not in made:
            root = tmp_path_factory.mktemp(f"undisturbed{count}")
            place = Place(root / "reference", make_registry(root / "registry", count))
            assert place.run()[0] == 3
            assert len(place.outputs()) == 2 * sum(n % 20 != 7 for n in range(count))
            assert place.leftovers() == []
            made[count] = place
        return made[count]

    return converted


def wait_for_outputs(place, count):
    until = time.monotonic() + 60
    while len(place.inodes()) < count:
        assert time.monotonic() < until
        time.sleep(0.005)


# -- killed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kills", "count", "seed"),
    [
        pytest.param(2, 24, 9, id="few"),
        pytest.param(20, 24, 6, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_killed_at_random_points(undisturbed, tmp_path, kills, count, seed, capsys):
    reference = undisturbed(count)
    tally = bear_kills(tmp_path, reference.registry, reference, kills, seed)
    with capsys.disabled():
        print(f"\n{count} artifacts: {tally}")
    assert sum(tally.killed.values()) == kills
    # Not more than the workers were given and the driver had not yet written down.
    assert tally.most_again <= batches.JOBS * (1 + QUEUED)


@pytest.mark.slow
def test_a_killed_driver_takes_all_its_processes_along(undisturbed, tmp_path):
    reference = undisturbed(24)
    place = Place(tmp_path / "place", reference.registry)
    child = place.start()
    wait_for_outputs(place, 3)
    child.kill()
    child.communicate()
    until = time.monotonic() + 10
    while place.processes() and time.monotonic() < until:
        time.sleep(0.01)
    assert place.processes() == []
    assert place.run()[0] == 3
    place.check_same(reference)


# -- stopped --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["Ctrl-C", *(pytest.param(h, marks=pytest.mark.slow) for h in ("SIGINT", "SIGTERM"))]
)
def test_stopped_by_the_user(undisturbed, tmp_path, how):
    reference = undisturbed(24)
    place = Place(tmp_path / "place", reference.registry)
    child = place.start(start_new_session=True)
    wait_for_outputs(place, 3)
    begin = time.monotonic()
    if how == "Ctrl-C":  # of a terminal: it tells the whole group
        os.killpg(child.pid, signal.SIGINT)
    else:
        child.send_signal(getattr(signal, how))
    said = child.communicate(timeout=60)[1]
    if child.returncode != 3:  # it was not faster
        assert child.returncode == 130, said
        assert time.monotonic() - begin < 20
    assert "Traceback" not in said
    assert place.leftovers() == []
    assert place.processes() == []
    before = place.inodes()
    assert place.run()[0] == 3
    after = place.inodes()
    assert sum(after[name] != inode for name, inode in before.items()) <= batches.JOBS
    place.check_same(reference)


@pytest.mark.slow
def test_what_a_stopped_batch_says(undisturbed, tmp_path):
    place = Place(tmp_path / "place", undisturbed(24).registry)
    command = [part for part in place.command() if part != "-q"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_outputs(place, 1)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=60)[1]
    if child.returncode != 3:
        assert "interrupted" in said
        assert "run it again to go on" in said


# -- two at once ----------------------------------------------------------------------------------


def test_two_drivers_on_one_destination(undisturbed, tmp_path):
    reference = undisturbed(24)
    place = Place(tmp_path / "place", reference.registry)
    drivers = [place.start("--json", stdout=subprocess.PIPE) for _ in range(2)]
    printed = [driver.communicate(timeout=100) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [3, 3], printed
    ends = [json.loads(out)["summary"] for out, _ in printed]
    # Each artifact once; and each driver knows of all of them.
    assert sum(sum(end["counts"].values()) for end in ends) == 24
    for end in ends:
        known = end["done_before"] + end["failed_before"] + end["elsewhere"]
        assert known + sum(end["counts"].values()) == 24
    place.check_same(reference)


@pytest.mark.slow
def test_shards_on_one_destination_at_once(undisturbed, tmp_path):
    reference = undisturbed(24)
    place = Place(tmp_path / "place", reference.registry)
    drivers = [place.start("--shard", f"{i}/3") for i in (1, 2, 3)]
    for driver in drivers:
        said = driver.communicate(timeout=100)[1]
        assert driver.returncode in (0, 3), said
    place.check_same(reference)


@pytest.mark.slow
def test_one_takes_over_from_one_that_is_killed(undisturbed, tmp_path):
    reference = undisturbed(24)
    place = Place(tmp_path / "place", reference.registry)
    victim, other = place.start(), place.start()
    wait_for_outputs(place, 5)
    victim.kill()
    victim.communicate()
    said = other.communicate(timeout=100)[1]
    assert other.returncode == 3, said
    place.check_same(reference)


# -- no space, no permission ----------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """Return a function that mounts a small disk."""
    mounted = []

    def mount(*options):
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a small tmpfs needs root")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(
    "ledger", ["on the disk", pytest.param("elsewhere", marks=pytest.mark.slow)]
)
def test_a_full_disk(tmp_path, disk, ledger):
    registry = tmp_path / "registry"
    for i in range(6):
        write_safetensors(registry / "team" / f"{i}.safetensors", i, size=100_000)
    reference = Place(tmp_path / "reference", registry)
    assert reference.run()[0] == 0
    folder = disk("size=2m")
    place = Place(tmp_path / "place", registry)
    place.out = folder / "out"
    if ledger == "on the disk":
        place.ledger = folder / "out.ledger.sqlite"
        (folder / "filler").write_bytes(bytes(1 << 20))  # not even the ledger has room for long
    else:
        place.more = ("--ledger", str(place.ledger))
    code, said = place.run()
    assert code == 6, said
    assert not [p for p in folder.rglob("*") if ".convert-" in p.name]
    for output in place.inodes():
        manifest = json.loads((place.out / output / "manifest.json").read_text())
        for one in manifest["resources"]:
            assert (place.out / output / one["name"]).stat().st_size == one["size"]
    (folder / "filler").unlink(missing_ok=True)
    subprocess.run(["mount", "-o", "remount,size=50m", folder], check=True)
    assert place.run()[0] == 0
    assert place.outputs() == reference.outputs()


def test_a_read_only_destination(tmp_path, disk):
    registry = make_registry(tmp_path / "registry", 3)
    folder = disk("ro")
    place = Place(tmp_path / "place", registry)
    place.out = folder / "out"
    code, said = place.run()
    assert code == 6
    assert "Read-only" in said
    assert not place.ledger.exists()
    assert place.leftovers() == []


@pytest.mark.slow
def test_a_place_beside_the_destination_that_is_read_only(tmp_path, disk):
    """The ledger cannot be beside it, and the message says where it can be."""
    registry = make_registry(tmp_path / "registry", 3)
    folder = disk("size=20m")
    (folder / "out").mkdir()
    place = Place(tmp_path / "place", registry)
    place.out = folder / "out"
    subprocess.run(["mount", "--bind", folder / "out", folder / "out"], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        code, said = place.run()
        assert code == 6, said
        assert "--ledger FILE" in said
        assert place.run("--ledger", str(tmp_path / "place/out.ledger.sqlite"))[0] == 0
    finally:
        subprocess.run(["umount", folder / "out"], check=True)


def without_privileges():
    """Let the permissions of files hold for root too."""
    if os.geteuid() == 0:
        prctl, drop = ctypes.CDLL(None).prctl, 24  # PR_CAPBSET_DROP
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            prctl(drop, capability, 0, 0, 0)


@pytest.mark.slow
def test_files_that_may_not_be_read(tmp_path):
    registry = make_registry(tmp_path / "registry", 3)
    secret = registry / "team1/model-001.safetensors"
    secret.chmod(0)
    place = Place(tmp_path / "place", registry)
    child = place.start(preexec_fn=without_privileges)
    said = child.communicate(timeout=60)[1]
    assert child.returncode in (3, 6), said
    assert len(place.inodes()) == 2
    assert place.leftovers() == []
    secret.chmod(0o644)
    child = place.start(preexec_fn=without_privileges)
    assert child.communicate(timeout=60)[1] == ""
    assert child.returncode == 0
    assert len(place.inodes()) == 3
