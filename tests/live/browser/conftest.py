"""Chromium, started once for each file of tests. Its profile is in the test's own folder."""

import pytest
from chromium import CHROMIUM, Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Return a browser."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_refused(browser):
    """Fail where a page throws an exception, or does what its policy forbids."""
    browser.complaints.clear()
    yield
    assert browser.complaints == []
