"""What an artifact is: a file, a folder or a prefix, and what it says of paths that are neither."""

import pytest

from converter.cli.app import run
from formats.artifact import Artifact
from formats.errors import SourceError


@pytest.mark.parametrize("length", [1, 249, 250, 255, 256, 300, 5000])
def test_a_missing_path_of_any_length_is_a_source_error(tmp_path, length):
    with pytest.raises(SourceError):
        Artifact(tmp_path / ("a" * length))


@pytest.mark.parametrize("command", [["SOURCE"], ["inspect"], ["doctor"]])
def test_the_command_exits_with_three(tmp_path, command):
    assert run([*command, str(tmp_path / ("a" * 255))]) == 3


def test_a_name_without_room_for_a_suffix_is_read(tmp_path):
    path = tmp_path / ("a" * 255)
    path.write_bytes(b"x")
    assert Artifact(path).is_file
