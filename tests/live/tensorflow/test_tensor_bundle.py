"""Tensor bundles that the tests write are those that TensorFlow reads."""

import numpy as np
import pytest
from sstable_files import entry, tensor_bundle

tf = pytest.importorskip("tensorflow")
FLOAT = 1


def test_tensorflow_reads_what_these_tests_write(tmp_path):
    a = np.arange(6, dtype=">f4").reshape(2, 3)
    entries = {"a": entry(FLOAT, [2, 3], size=24, data=a.tobytes())}
    prefix = tensor_bundle(tmp_path, entries, a.tobytes(), big=True, compressed=True)
    assert np.array_equal(tf.train.load_checkpoint(str(prefix)).get_tensor("a"), a)
