"""One arena for all attacks of a session."""

import os

import pytest
from attacks.arena import Arena


@pytest.fixture(scope="session")
def arena(tmp_path_factory):
    with Arena(tmp_path_factory.mktemp("arena"), workers=min(2, os.cpu_count() or 1)) as arena:
        yield arena
