"""Rows of fixtures/keras_layers, and the `.keras` files that they become."""

import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from repository import ROOT

import converter
from converter.write.keras import archive
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "keras_layers"
FAMILIES = sorted(path.stem for path in FIXTURES.glob("*.zip"))


@cache
def opened(family):
    return zipfile.ZipFile(FIXTURES / f"{family}.zip")


def sources(family):
    return [name for name in opened(family).namelist() if not name.endswith(".npz")]


def written(tmp_path, family, name, outputs=None):
    """Return the file that a row becomes, or its gap; of some of its outputs, where given."""
    folder = tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    source = tmp_path / f"source{Path(name).suffix}"
    source.write_bytes(opened(family).read(name))
    bundle = converter.read(source)
    try:
        plan = archive.plan_file(bundle if outputs is None else cut(bundle, outputs))
    except UnsupportedError as e:
        return None, str(e)
    for _ in archive.write_file(plan, folder, verify=True, sync=False):
        pass
    return folder / archive.NAME, ""


def cut(bundle, outputs):
    """Return a functional model of some of its outputs."""
    content = bundle.topology.content
    ends = [content["config"]["output_layers"][i] for i in outputs]
    config = {**content["config"], "output_layers": ends}
    return replace(bundle, topology=replace(bundle.topology, content={**content, "config": config}))
