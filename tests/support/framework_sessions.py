"""Blocks of the documents that are titled "With …" print what is shown, where that is installed.

There, `python tools/docs/sessions.py --update PAGE` records them again.
"""

import pages
import pytest
import sessions


def session_test(framework: str):
    """Return a test for the pages that have blocks for a framework."""
    pytest.importorskip(framework)
    found = [p for p in pages.read_pages() if any(b.framework == framework for b in p.blocks)]

    @pytest.mark.parametrize("page", found, ids=lambda page: page.name)
    def test_commands_print_what_the_document_shows(page, tmp_path):
        problems = [ran.problem for ran in sessions.run(page, tmp_path) if ran.problem]
        assert not problems, "\n".join(problems)

    return test_commands_print_what_the_document_shows
