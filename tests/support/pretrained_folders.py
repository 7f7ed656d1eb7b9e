"""The folders of fixtures/pretrained, as they were saved."""

import shutil
import zipfile
from pathlib import Path

from repository import FIXTURES

STORED = FIXTURES / "pretrained"


def unpack_folders(to: Path) -> Path:
    """Write the folders of Flax's and TensorFlow's weights below a path, and return it."""
    with zipfile.ZipFile(STORED / "folders.zip") as archive:
        archive.extractall(to)
    for folder in (path for path in STORED.iterdir() if path.is_dir()):
        shutil.copytree(folder, to / folder.name)
    return to
