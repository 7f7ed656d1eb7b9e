"""Any model artifact, as exact, portable weights: `convert`, `read`, `inspect`, `diff`.

>>> import converter
>>> result = converter.convert("model.pt", to="portable", out="model.portable")  # doctest: +SKIP
>>> result.verification.weights.tensors  # doctest: +SKIP
161
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from converter.version import VERSION

if TYPE_CHECKING:
    from converter.inspection import inspect
    from converter.options import Options
    from converter.pipeline import Conversion, convert
    from converter.reading import read
    from converter.tensor_diff import TensorDiff, diff

__version__ = VERSION

# Importing the package costs nothing; each name brings its module when it is first used.
_HOMES = {
    "Options": "converter.options",
    "Conversion": "converter.pipeline",
    "convert": "converter.pipeline",
    "read": "converter.reading",
    "inspect": "converter.inspection",
    "TensorDiff": "converter.tensor_diff",
    "diff": "converter.tensor_diff",
}

__all__ = ["Conversion", "Options", "TensorDiff", "convert", "diff", "inspect", "read"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
