"""A generated registry of all formats, some of it damaged: benchmarks/registry.py, small."""

from pathlib import Path

import numpy as np
import pytest
import registry as bench
import registry_zoo
from safetensors.numpy import load_file

from converter.registries.catalog import open_registry
from converter.registries.entry import Entry
from converter.registries.filters import Filters
from formats import catalog

pytestmark = pytest.mark.thorough

COUNT = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    folder = tmp_path_factory.mktemp("zoo") / "registry"
    return folder, registry_zoo.make(folder, COUNT, seed=7)


def test_every_artifact_is_listed_once_under_what_opens_it(
    made: tuple[Path, dict[str, int]],
) -> None:
    folder, expected = made
    found = [e for e in open_registry(str(folder), Filters()).find() if isinstance(e, Entry)]
    assert sorted(e.source for e in found) == sorted(expected)
    formats = {e.format for e in found} - {""}
    assert formats == {f.id for f in catalog.FORMATS}
    unknown = [e.source for e in found if not e.format]
    assert all(expected[source] for source in unknown)


def test_no_two_artifacts_have_the_same_weights(made: tuple[Path, dict[str, int]]) -> None:
    files = [p.read_bytes() for p in sorted(made[0].rglob("*.safetensors")) if p.stat().st_size]
    assert len(files) > COUNT // 4
    assert len(set(files)) == len(files)


def test_the_good_ones_are_converted_and_the_bad_ones_named(
    made: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    folder, expected = made
    done = bench.run(folder, tmp_path / "out", "--to", "safetensors", "--jobs", "2")
    assert not bench.wrong(expected, done.rows)
    assert done.code == max(expected.values()) == 5
    outputs = [row["output"] for row in done.rows.values() if row["exit_code"] == 0]
    assert len(set(outputs)) == len(outputs) == list(expected.values()).count(0)
    # What another program reads of source and output is the same.
    compared = 0
    for source, row in done.rows.items():
        if row["exit_code"] == 0 and row["format"] == "safetensors" and Path(source).is_file():
            before, after = load_file(source), load_file(row["output"])
            assert before.keys() == after.keys()
            for name, array in before.items():
                np.testing.assert_array_equal(array, after[name])
            compared += 1
    assert compared > COUNT // 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.jsonl", "out.ledger.sqlite"]
    again = bench.run(folder, tmp_path / "out", "--to", "safetensors", "--jobs", "2")
    assert again.code == 5
    assert {s: r["exit_code"] for s, r in again.rows.items()} == expected
    assert again.seconds < done.seconds
