"""Blocks of the documents that are titled "With TensorFlow" print what is shown.

Where TensorFlow is installed, `python tools/docs/sessions.py --update PAGE` records them again.
"""

import pytest

pytest.importorskip("tensorflow")

import pages
import sessions

PAGES = [p for p in pages.read_pages() if any(b.framework == "tensorflow" for b in p.blocks)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_document_shows(page, tmp_path):
    problems = [ran.problem for ran in sessions.run(page, tmp_path) if ran.problem]
    assert not problems, "\n".join(problems)
