"""The page as a file: one, of our own scripts only, its data whole. What it shows: in a browser."""

import re
from itertools import chain

import pytest
from html_pages import check_page, read_page
from report_records import HOSTILE, compared, good, hostile, many, report_of, some

from converter.reports import catalog


def parsed(folder, records, **about):
    path = folder / "report.html"
    catalog.write(report_of(records, **about), path)
    return read_page(path)


def data(page):
    """Return rows, details and what they share."""
    (shared,) = page.data("shared")
    rows, details = (chain.from_iterable(page.data(name)) for name in ("rows", "details"))
    return [*rows], [*details], shared


@pytest.mark.parametrize("records", [some, hostile])
def test_it_is_one_file_that_loads_nothing(tmp_path, records):
    page = parsed(tmp_path, records(), title=HOSTILE[0])
    check_page(page)


def test_every_text_arrives_as_it_was(tmp_path):
    records = hostile()
    rows, details, shared = data(parsed(tmp_path, records, title=HOSTILE[0]))
    assert [row[0] for row in rows] == [record["name"] for record in records]
    assert [d["warnings"] for d in details][:9] == [[text] for text in HOSTILE[:9]]
    assert shared["title"] == HOSTILE[0]
    scripts = len(re.findall("</script", (tmp_path / "report.html").read_text("utf-8")))
    assert scripts == 4  # rows, details, what they share, and what runs


def test_rows_and_details_belong_together(tmp_path):
    records = [*many(300)]
    rows, details, shared = data(parsed(tmp_path, records))
    assert len(rows) == len(details) == shared["total"] == 300
    columns = shared["columns"]
    for row, detail, record in zip(rows, details, records, strict=True):
        shown = dict(zip(columns, row, strict=True))
        assert (shown["name"], detail["source"]) == (record["name"], record["source"])
        assert shared["words"][shown["format"]] == record["format"]
        assert detail["bytes" if "bytes" in detail else "tensors"] == record["tensors"]
        assert [shared["words"][g] for g in shown["gaps"]] == [g["what"] for g in record["gaps"]]
    assert shared["converted"] == sum(record["status"] == "done" for record in records)


def test_gaps_and_copies_across_the_registry(tmp_path):
    rows, _, shared = data(parsed(tmp_path, some()))
    gaps = [[shared["words"][what], *figures] for what, *figures in shared["gaps"]]
    assert gaps == [
        ["TensorFlow op ParseExample", 3, 4, 1], ["TensorFlow op Svd", 1, 3, 2],
        ["TensorFlow op DecodeWav", 1, 1, 3],
    ]  # fmt: skip
    assert shared["blocked"] == 3
    ((size, places),) = shared["copies"]
    assert size == 900
    assert {rows[place][0] for place in places} == {"plain.pt.portable", "copy.pt.portable"}


def test_what_a_lower_precision_costs_is_no_difference_from_the_source(tmp_path):
    graphs = {"": compared(1e-6), "in fp16": compared(1e-3), "serve in bf16": compared(1e-2)}
    found = {"reached": "cpu", "weights": None, "graphs": graphs}
    (row,), (detail,), shared = data(parsed(tmp_path, [good("half", verification=found)]))
    assert 0 < row[shared["columns"].index("error")] < 2e-6
    assert [*detail["verification"]["graphs"]] == [*graphs]


def test_long_lists_and_texts_are_cut_and_say_so(tmp_path):
    record = good("long", warnings=["w" * 5000] * 250, recorded={f"k{i}": "v" for i in range(150)})
    _, (detail,), _ = data(parsed(tmp_path, [record]))
    assert len(detail["warnings"]) == 101
    assert detail["warnings"][-1] == {"more": 150}
    assert len(detail["warnings"][0]) == 4000
    assert detail["recorded"]["…"] == "50 more"


def test_a_thousand_artifacts_take_little_room(tmp_path):
    parsed(tmp_path, lambda: many(1000))
    assert (tmp_path / "report.html").stat().st_size < 300_000
