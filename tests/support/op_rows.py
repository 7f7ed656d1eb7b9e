"""Rows of op tables: archives of one model each, beside what its framework computed.

A family is a zip or a compressed tar; a row is a model and an `.npz` of the same stem.
"""

import io
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx_run
import pytest
from repository import FIXTURES

import converter
from converter.cli.spelling import spell_flags
from converter.lower import OPSET
from formats.errors import UnsupportedError


@cache
def members(folder, family):
    """Return what reads the members of a family, by their names."""
    path = FIXTURES / folder / family
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(path)
        return {name: lambda name=name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(path) as tar:
        held = {member.name: tar.extractfile(member).read() for member in tar}
    return {name: lambda data=data: data for name, data in held.items()}


def rows(folder, suffix=""):
    """Return a parameter for each model of the families of a folder."""
    families = [
        p.name for p in sorted((FIXTURES / folder).iterdir()) if p.suffix in (".zip", ".xz")
    ]
    return [
        pytest.param(family, name, id=f"{family.split('.')[0]}:{name}")
        for family in families
        for name in members(folder, family)
        if name.endswith(suffix) and not name.endswith(".npz")
    ]


def opened(folder, family, name, scratch):
    """Return a row's bundle, and its arrays; those of several models may be one file's."""
    held = members(folder, family)
    source = scratch / f"model{Path(name).suffix}"
    source.write_bytes(held[name]())
    stem = name.removesuffix(Path(name).suffix)
    arrays = held.get(f"{stem}.npz") or held[f"{stem.rpartition('.')[0]}.npz"]
    return converter.read(source), np.load(io.BytesIO(arrays()))


def lower_row(lower, bundle, stored):
    """Return a row's graph; None where it stores what its gap says, and that is said."""
    opset = int(stored["opset"]) if "opset" in stored.files else OPSET
    if "gap" not in stored.files:
        return lower(bundle, opset=opset)
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle, opset=opset)
    assert str(stored["gap"]) in spell_flags(str(caught.value))  # as the command line says it
    return None


class Row:
    """A row's graph in onnxruntime."""

    def __init__(self, graph, bundle, tolerances):
        self.graph, self.relative = graph, tolerances[onnx_run.narrowest(graph)]
        onnx_run.cast_bfloat16(graph)
        self.session = onnx_run.session(graph, bundle.weights)
        self.inputs, self.outputs = self.session.get_inputs(), self.session.get_outputs()

    def check(self, fed, expected, wanted=None):
        """Run it on arrays by name, and compare what it gives and declares."""
        wanted = self.outputs if wanted is None else wanted
        fed = {name: onnx_run.feedable(array) for name, array in fed.items()}
        found = self.session.run([spec.name for spec in wanted], fed)
        for ours, theirs, spec in zip(found, expected, wanted, strict=True):
            onnx_run.agree(ours, theirs, self.relative, spec.name)
            if not self.graph.specs[spec.name].unranked:
                onnx_run.as_declared(spec, ours)
