"""Every layer that Keras exports is lowered and has a row that proves it, or is named here.

So has every operation of our tables, which the modules of Keras and TensorFlow define by the
thousand: what is in no table is a gap that names it.
"""

import json
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from repository import ROOT

import converter
from converter.lower.keras import version_upgrades
from converter.lower.keras.lowering import model_of
from converter.lower.keras.table import LAYERS, OPERATIONS, TF_FUNCTIONS, TF_OPS, table_of
from converter.lower.keras.weight_mapping import layers_of
from converter.lower.tf.table import OPS

FIXTURES = ROOT / "fixtures" / "keras_layers"
TABLES = {"layer": LAYERS, "keras.ops": OPERATIONS, "tf": TF_FUNCTIONS}

# Class -> why it has no handler. An entry goes when that is no longer so.
ABSENT = {
    "AbstractRNNCell": "a base class; a cell of one's own is code",
    "DenseFeatures": "feature columns, which only a graph of TensorFlow describes",
    "DynamicEmbedding": "a table that grows while it is trained, in a resource of TensorFlow",
    "DynamicLookup": "a table that grows while it is trained, in a resource of TensorFlow",
    "FlaxLayer": "a module of Flax, which the configuration only names",
    "InputLayer": "no operation: an input of the graph",
    "JaxLayer": "a function of JAX, which the configuration only names",
    "PreprocessingLayer": "a base class, which cannot be called",
    "TFSMLayer": "a SavedModel elsewhere, which the configuration only names",
    "TorchModuleWrapper": "a module of torch, which the configuration only names",
    "Wrapper": "a base class, which cannot be called",
}


@cache
def exported():
    """Return the classes of the layers that Keras 3 and tf_keras export."""
    document = json.loads((FIXTURES / "layers.json").read_text())
    return {kind for library in document.values() for kind in library["layers"].values()}


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """Return what the models of all rows are made of, in today's words: names, by table.

    Under ``rules`` are the names of the rules that changed any of them.
    """
    source_of = tmp_path_factory.mktemp("rows").joinpath
    found = {name: set() for name in (*map(id, [*TABLES.values(), TF_OPS]), "rules")}
    watched = [watch(rule, found["rules"]) for rule in version_upgrades.RULES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(version_upgrades, "RULES", watched)
        for path in sorted(FIXTURES.glob("*.zip")):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".npz"):
                        continue
                    source = source_of(f"model{Path(name).suffix}")
                    source.write_bytes(archive.read(name))
                    for _, layer in layers_of(model_of(converter.read(source))):
                        found[id(table_of(layer.module))].add(layer.class_name)
                        found[id(LAYERS)].update(inside(layer.config))
    return found


def watch(rule, changed):
    def apply(layer, age):
        result = rule(layer, age)
        if result is not None:
            changed.add(rule.__name__)
        return result

    return apply


def inside(config):
    """Yield the classes of the layers that a layer's arguments hold."""
    for entry in [config.get(key) for key in version_upgrades.INNER] + [
        *(config.get("cells") or ()),
        *(config.get("layers") or ()),
    ]:
        if isinstance(entry, Mapping):
            yield entry["class_name"]
            yield from inside(entry["config"])


def handler_of(kind):
    return version_upgrades.NAMES.get(kind, kind)


@pytest.mark.parametrize("kind", sorted(exported() - set(ABSENT)))
def test_a_layer_has_a_handler_and_a_row(proven, kind):
    assert handler_of(kind) in LAYERS, "no handler"
    assert handler_of(kind) in proven[id(LAYERS)], "no row in fixtures/keras_layers/rows"


@pytest.mark.parametrize("kind", sorted(ABSENT))
def test_what_is_absent_is_exported_and_has_no_handler(kind):
    assert kind in exported(), "Keras does not export it"
    assert handler_of(kind) not in LAYERS, "it has a handler: remove the entry"


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_is_proven(proven, name):
    """Classes of older versions of Keras, and modes of quantisation, are rows, too."""
    ours = {n for n, row in TABLES[name].items() if row.module in TABLES[name].families}
    renamed = ours & version_upgrades.NAMES.keys()  # public names, of which files have the class's
    assert sorted(ours - renamed - proven[id(TABLES[name])]) == []


def test_ops_of_tensorflow_are_rows_of_its_own_table(proven):
    """What they compute is proven there; that a node calls them, by so many here."""
    assert set(OPS) >= set(TF_OPS) >= proven[id(TF_OPS)]
    assert len(proven[id(TF_OPS)]) > 130
    assert not {"VarHandleOp", "While", "DecodeJpeg"} & set(TF_OPS)


def test_every_rule_has_changed_a_model_of_a_row(proven):
    assert sorted({rule.__name__ for rule in version_upgrades.RULES} - proven["rules"]) == []
