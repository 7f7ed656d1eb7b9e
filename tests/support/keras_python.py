"""The Python that has Keras: this one, or the one that CONVERT_TENSORFLOW_PYTHON names."""

import importlib.util
import os

import pytest

from converter.child.process import PYTHON_VARIABLE

HAS_KERAS = PYTHON_VARIABLE in os.environ or importlib.util.find_spec("keras") is not None
NEEDS_KERAS = [
    pytest.mark.usefixtures("warm_tensorflow"),
    pytest.mark.skipif(not HAS_KERAS, reason=f"no Keras here, nor by {PYTHON_VARIABLE}"),
]
