"""Lists of references: whatever a line names, and what it is called."""

import io
import os
import shutil
import sys
from pathlib import Path

import pytest
from repository import FIXTURES

from converter.registries.catalog import open_registry, stage
from converter.registries.entry import Entry
from converter.registries.filters import Filters
from formats.artifact import Artifact
from formats.errors import SourceError, StorageError, UsageError


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("a/m.pt", "b/m.pt", "b/deep/n.pt", "x y/ü#1.pt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIXTURES / "torch" / "torch2.4-state.pth", tmp_path / name)
    shutil.copytree(FIXTURES / "tensorflow" / "module_tf2", tmp_path / "saved")
    return tmp_path


def listed(path: Path, text: str | bytes, filters: Filters | None = None) -> dict[str, str]:
    path.write_bytes(text if isinstance(text, bytes) else os.fsencode(text))
    found = list(open_registry(f"list:{path}", filters or Filters()).find())
    return {e.name: e.format for e in found if isinstance(e, Entry)}


def test_each_line_is_a_reference_relative_to_the_list(models: Path) -> None:
    text = "\ufeff# all of it\r\n\r\n a/m.pt \r\nb\r\n\t# no more\nx y/ü#1.pt\nsaved\n*/deep/*.pt\n"
    assert listed(models / "all.txt", text) == {
        "a/m.pt": "torch",
        "b/m.pt": "torch",
        "b/deep/n.pt": "torch",
        "x y/ü#1.pt": "torch",
        "saved": "savedmodel",
    }


def test_sources_are_found_from_anywhere(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (models / "l.txt").write_text("a/m.pt\n./b/../b/m.pt")
    monkeypatch.chdir(models / "b")
    found = [e for e in open_registry("list:../l.txt", Filters()).find() if isinstance(e, Entry)]
    assert [e.source for e in found] == [str(models / "a/m.pt"), str(models / "b/m.pt")]


def test_names_are_relative_to_what_the_paths_have_in_common(models: Path) -> None:
    lines = "\n".join(str(p) for p in sorted(models.glob("b/**/*.pt")))
    assert set(listed(models / "l.txt", lines)) == {"m.pt", "deep/n.pt"}
    assert set(listed(models / "l.txt", str(models / "a" / "m.pt"))) == {"m.pt"}


def test_what_find_prints_with_nuls(models: Path) -> None:
    odd = models / "b" / "line\nbreak\udcff.pt"
    shutil.copyfile(models / "a" / "m.pt", odd)
    text = b"\0".join([os.fsencode(odd), os.fsencode(models / "a/m.pt"), b""])
    assert set(listed(models / "l.txt", text)) == {"b/line\nbreak\udcff.pt", "a/m.pt"}


def test_standard_input(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a/m.pt\nb\n")))
    found = [e for e in open_registry("list:-", Filters()).find() if isinstance(e, Entry)]
    assert [e.name for e in found] == ["a/m.pt", "b/m.pt", "b/deep/n.pt"]


def test_a_line_that_leads_nowhere_is_an_artifact_that_fails(models: Path) -> None:
    text = "a/m.pt\ngone/m.pt\nno/*.pt\nb/m.pt"
    assert listed(models / "l.txt", text) == {
        "a/m.pt": "torch",
        "gone/m.pt": "",
        "no/*.pt": "",
        "b/m.pt": "torch",
    }
    gone = stage(str(models / "gone/m.pt"), models).path
    with pytest.raises(SourceError):
        Artifact(gone)


def test_a_malformed_line_costs_itself_alone(models: Path) -> None:
    text = "a/m.pt\nmodels:/a/b/c/d\nb/m.pt"
    found = listed(models / "l.txt", text)
    assert {"a/m.pt", "b/m.pt"} < set(found)
    assert len(found) == 3


def test_lists_in_lists_but_not_in_themselves(models: Path) -> None:
    (models / "sub").mkdir()
    (models / "sub" / "inner.txt").write_text("../a/m.pt\n../b/m.pt")
    assert set(listed(models / "l.txt", "list:sub/inner.txt\nx y")) == {
        "a/m.pt",
        "b/m.pt",
        "x y/ü#1.pt",
    }
    (models / "sub" / "inner.txt").write_text("list:../l.txt")
    with pytest.raises(UsageError, match="contains itself"):
        listed(models / "l.txt", "list:sub/inner.txt")
    with pytest.raises(SourceError, match="no such list") as info:
        listed(models / "l.txt", "list:nothing.txt")
    assert "l.txt" in info.value.__notes__[0]


def test_filters_are_of_the_whole_names(models: Path) -> None:
    text = "a\nb"
    assert set(listed(models / "l.txt", text, Filters(("b",)))) == {"b/m.pt", "b/deep/n.pt"}
    assert set(listed(models / "l.txt", text, Filters((), ("b/deep",)))) == {"a/m.pt", "b/m.pt"}
    assert listed(models / "l.txt", "gone\na", Filters((), ("gone",))) == {"a/m.pt": "torch"}


def test_no_list(tmp_path: Path) -> None:
    for reference in (f"list:{tmp_path}/none", f"list:{tmp_path}"):
        with pytest.raises(SourceError):
            open_registry(reference, Filters())
    with pytest.raises(UsageError):
        open_registry("list:", Filters())
    with pytest.raises(UsageError):
        stage("list:x", tmp_path)


def test_a_list_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        open_registry(f"list:{tmp_path}/l", Filters())


def test_an_empty_list_has_nothing(tmp_path: Path) -> None:
    assert listed(tmp_path / "l.txt", "# nothing\n\n") == {}
