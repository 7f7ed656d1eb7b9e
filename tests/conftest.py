"""Settings that all tests share."""

import importlib.util
import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings

# A busy machine is no bug: how long a reader may take is what tests/attacks measures. CI repeats
# the same examples, so that it fails only for what changed.
settings.register_profile("patient", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def _warm_python(tmp_path_factory):
    """A Python that has TensorFlow imported, or nothing where there is none."""
    from converter.child.process import PYTHON_VARIABLE

    python = os.environ.get(PYTHON_VARIABLE)
    if not python and importlib.util.find_spec("tensorflow") is None:
        yield None
        return
    from warm_python import warm

    with warm(python or sys.executable, tmp_path_factory.mktemp("w"), "tensorflow") as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def warm_tensorflow(_warm_python):
    """Children with TensorFlow and Keras begin where these are imported already (see there)."""
    from converter.child.process import PYTHON_VARIABLE

    with pytest.MonkeyPatch.context() as patched:
        if _warm_python is not None:
            patched.setenv(PYTHON_VARIABLE, str(_warm_python))
            # Where code of the user's is traced, which asks the Python that it is in first.
            here = SimpleNamespace(executable=str(_warm_python))
            patched.setattr("converter.lower.keras.trusted.sys", here)
        yield


TORCH = ("torch", "torch.export.pt2_archive._package", "torch._export.serde.serialize")


@pytest.fixture(scope="session")
def _warm_torch_python(tmp_path_factory):
    """A Python that has torch imported."""
    from warm_python import warm

    from converter.child.process import TORCH_PYTHON_VARIABLE

    python = os.environ.get(TORCH_PYTHON_VARIABLE) or sys.executable
    with warm(python, tmp_path_factory.mktemp("t"), *TORCH) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def warm_torch(_warm_torch_python):
    """Children with torch begin where it is imported already."""
    from converter.child.process import TORCH_PYTHON_VARIABLE

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(TORCH_PYTHON_VARIABLE, str(_warm_torch_python))
        yield
