"""Summaries in Markdown: counts, failures, and text that stays text."""

from pathlib import Path

from converter.jobs.record import Record, RecordedError, RecordedVerification, Unsupported
from converter.reports import catalog, markdown
from converter.reports.catalog import Report

RECORDS = [
    Record("/r/a.h5", "a.portable", "a.h5", status="done", exit_code=0, bytes=1 << 20,
           verification=RecordedVerification("cpu", {"tensors": 2, "bytes": 8})),
    Record("/r/b.pt", "b.portable", "b|`.pt", status="failed", exit_code=3,
           error=RecordedError("CorruptError", "/r/b.pt: <b>cut</b> | here\nand more")),
    Record("/r/c.pb", "c.portable", status="done", exit_code=0,
           unsupported=(Unsupported("TensorFlow op Svd", 2),)),
    Record("/r/d", "d", "d", status="skipped", exit_code=None,
           error=RecordedError("UnsupportedError", "a GGUF file. llama.cpp runs it")),
]  # fmt: skip


def written(tmp_path: Path, records: list[Record], **summary: object) -> str:
    path = tmp_path / "summary.md"
    report = Report("models/ | x", lambda: records, {}, summary)
    catalog.check(path)
    catalog.write(report, path)
    return path.read_text()


def test_it_counts_and_names(tmp_path: Path) -> None:
    text = written(tmp_path, RECORDS, ended="finished", options={"to": "portable"})
    assert text.startswith("## 2 of 4 artifacts converted\n")
    assert "| converted | 2 |" in text
    assert "| cpu | 1 |" in text
    assert "| TensorFlow op Svd | 1 | 1 |" in text
    assert "| `d` | a GGUF file. llama.cpp runs it |" in text
    assert "The run ended early" not in text


def test_nothing_in_a_record_is_markup(tmp_path: Path) -> None:
    text = written(tmp_path, RECORDS, ended="interrupted")
    assert r"| `b .pt` | unreadable source | \<b\>cut\</b\> \| here |" in text
    assert "**The run ended early: interrupted**" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace(r"\|", "").count("|") in (3, 4)


def test_long_lists_and_messages_are_cut(tmp_path: Path) -> None:
    failed = [
        Record(f"/{i}", f"{i}", status="failed", exit_code=3, error=RecordedError("E", "x" * 9999))
        for i in range(3 * markdown.MOST)
    ]
    text = written(tmp_path, failed)
    assert f"… and {2 * markdown.MOST} more" in text
    assert len(text) < 1 << 16
