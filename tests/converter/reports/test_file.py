"""A report's file is whole or absent, and JSON lines are strict and in one order."""

import json
import math
import re
import resource

import pytest
from report_records import HOSTILE, good, hostile, report_of, some
from repository import ROOT

from converter.inspection_page import page as inspection
from converter.reports import catalog, html_page
from converter.reports.json_lines import strict
from converter.verification_page import page as verification
from formats.errors import ConvertError, StorageError, UsageError

SUFFIXES = [".jsonl", ".xml", ".html"]


def test_json_lines_hold_every_key_of_every_record_in_one_order(tmp_path):
    path = tmp_path / "report.jsonl"
    catalog.write(report_of(some()), path)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == some()
    assert {tuple(json.loads(line)) for line in lines} == {tuple(good("x"))}


def test_what_is_not_finite_is_null(tmp_path):
    odd = {"a": [math.nan, {"b": math.inf}], "c": (1.5, -math.inf, True, None, 10**30)}
    assert json.loads(strict(odd)) == {
        "a": [None, {"b": None}],
        "c": [1.5, None, True, None, 10**30],
    }
    path = tmp_path / "report.jsonl"
    catalog.write(report_of(hostile()), path)
    for line in path.read_text("ascii").splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_line_is_a_record_whatever_its_texts_hold(tmp_path):
    path = tmp_path / "report.jsonl"
    catalog.write(report_of(hostile()), path)
    content = path.read_bytes()
    assert content.count(b"\n") == len(HOSTILE)
    assert not set(content) & set(range(32)) - {10}
    assert [json.loads(line)["warnings"] for line in content.splitlines()] == [[h] for h in HOSTILE]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_old_report_stays_until_the_new_one_is_whole(tmp_path, suffix):
    path = tmp_path / f"report{suffix}"
    path.write_text("old")

    def broken():
        yield from some()
        raise StorageError("the ledger is gone")

    with pytest.raises(StorageError, match="the ledger is gone"):
        catalog.write(report_of(broken), path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    catalog.write(report_of(some()), path)
    assert path.stat().st_size > 1000
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_without_room_is_said(tmp_path, suffix):
    path = tmp_path / f"report{suffix}"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(StorageError, match=f"{path.name}: cannot be written"):
            catalog.write(report_of(some()), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_of_nothing_there_is_a_report_as_well(tmp_path, suffix):
    path = tmp_path / f"report{suffix}"
    catalog.write(report_of([]), path)
    assert path.exists()


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "report.jsonl"
    link.symlink_to(tmp_path / "there/file")
    catalog.write(report_of(some()), link)
    assert link.is_symlink()
    assert len((tmp_path / "there/file").read_text().splitlines()) == len(some())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_links_in_circles_are_replaced(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.symlink_to(tmp_path / f"b{suffix}")
    (tmp_path / f"b{suffix}").symlink_to(path)
    catalog.check(path)
    catalog.write(report_of(some()), path)
    assert path.exists()
    assert {file.name for file in tmp_path.iterdir()} == {f"a{suffix}", f"b{suffix}"}


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("report.txt", UsageError, r"expected a file ending in \.jsonl, \.html, \.xml"),
        ("report", UsageError, "expected a file ending in"),
        ("folder.html", UsageError, "is a folder"),
        ("nowhere/report.html", StorageError, "no folder that exists"),
    ],
)
def test_where_no_report_can_stand_is_said_before_the_batch(tmp_path, name, kind, said):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ConvertError, match=said) as caught:
        catalog.check(tmp_path / name)
    assert type(caught.value) is kind


def test_suffixes_are_taken_as_people_write_them(tmp_path):
    for name in ("A.HTML", "b.Xml", "c.jsonl"):
        catalog.check(tmp_path / name)
        catalog.write(report_of(some()), tmp_path / name)
    assert (tmp_path / "A.HTML").read_text().startswith("<!doctype html>")


def test_the_parts_of_the_page_are_in_the_package():
    parts = [html_page.PARTS, inspection.PARTS, verification.PARTS]
    named = {name for part in parts for name in (part.body, *part.styles, *part.scripts)}
    packages = ("reports", "inspection_page", "verification_page")
    folders = {f"converter.{name}": ROOT / "converter" / name / "page" for name in packages}
    there = {f"{name}:{file.name}" for name, at in folders.items() for file in at.iterdir()}
    assert there == {*named, "converter.reports:frame.html"}
    settings = (ROOT / "pyproject.toml").read_text()
    for name in packages:
        assert f'"{name}/page/*"' in settings


@pytest.mark.parametrize("parts", [html_page.PARTS, inspection.PARTS, verification.PARTS])
def test_scripts_of_a_page_share_no_name(parts):
    """They are one script in the page: a name that is declared again is a syntax error."""
    declared = []
    for name in parts.scripts:
        package, _, file = name.partition(":")
        text = ROOT.joinpath(*package.split("."), "page", file).read_text()
        declared += re.findall(r"^(?:const|let|(?:async )?function) +(\w+)", text, re.MULTILINE)
    assert len(declared) == len(set(declared))
