"""Every row of fixtures/keras_layers becomes a `.keras` file of equal weights, or a named gap."""

import json
import re
import zipfile

import pytest
from keras_rows import FAMILIES, sources, written

import converter
from converter.write.keras import archive

pytestmark = pytest.mark.thorough

# A gap says what it is, and where.
GAP = re.compile(r"^not supported:.+, at .+", re.DOTALL)


def weights(path):
    """Return the variables of a written file by their paths, as its own reader finds them."""
    found = archive.read_again(path)
    return {place: tensor.tobytes() for place, tensor in found.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_written_and_read_again_or_its_gap_is_named(tmp_path, family):
    for name in sources(family):
        path, gap = written(tmp_path, family, name)
        if path is None:
            assert GAP.match(gap), gap
            continue
        config = json.loads(zipfile.ZipFile(path).read("config.json"))
        assert config["class_name"] in ("Sequential", "Functional")
        # What was written is read as Keras's own, and is written again alike.
        again = archive.plan_file(converter.read(path)).variables
        assert {p: t.tobytes() for p, t in again.items()} == weights(path)
