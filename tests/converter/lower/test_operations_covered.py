"""Every operation that is in a table is in a model that Keras itself has computed."""

import zipfile
from functools import cache
from pathlib import Path

import pytest

import converter
from converter.lower.keras.lowering import normalised
from converter.lower.keras.model import parse
from converter.lower.keras.owners import layers_of
from converter.lower.keras.table import LAYERS, OPERATIONS, TF_FUNCTIONS, TF_OPS, table_of

FIXTURES = Path(__file__).parents[3] / "fixtures" / "keras_layers"
FAMILIES = ("attention", "operations", "quantized", "tensorflow_ops")


@cache
def computed(folder):
    """Names of what the models of these families are made of, by table."""
    found = {id(table): set() for table in (LAYERS, OPERATIONS, TF_FUNCTIONS, TF_OPS)}
    for family in FAMILIES:
        with zipfile.ZipFile(FIXTURES / f"{family}.zip") as archive:
            for name in archive.namelist():
                if name.endswith(".npz"):
                    continue
                source = folder / f"{family}-{name}"
                source.write_bytes(archive.read(name))
                bundle = converter.read(source)
                version = str(bundle.metadata.recorded.get("keras_version", ""))
                for _, layer in layers_of(normalised(parse(bundle.topology.content), version)):
                    found[id(table_of(layer.module))].add(layer.class_name)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("covered")


@pytest.mark.parametrize(
    "table", [OPERATIONS, TF_FUNCTIONS, TF_OPS], ids=["keras.ops", "tf", "ops of TensorFlow"]
)
def test_every_operation_has_a_row(folder, table):
    assert sorted(set(table) - computed(folder)[id(table)]) == []


def test_every_mode_of_quantisation_and_every_attention_has_a_row(folder):
    homes = ("converter.lower.keras.quantized", "converter.lower.keras.attention")
    names = {name for name, row in LAYERS.items() if row.handler.__module__ in homes}
    names.remove("GroupQueryAttention")  # its public name; files have that of the class
    assert sorted(names - computed(folder)[id(LAYERS)]) == []
