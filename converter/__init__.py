"""Convert model artifacts to exact, portable weights and graphs, without their frameworks.

>>> import converter
>>> result = converter.convert("model.pt", out="model.portable")  # doctest: +SKIP
>>> result.verification.level  # doctest: +SKIP
'weights'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from converter.version import VERSION

if TYPE_CHECKING:
    from converter.api import convert, convert_many, diagnose, diff, inspect, read, verify
    from converter.listing import ListedModel, list_models
    from converter.options import Arch, Comparison, Options
    from converter.pipeline import Conversion
    from converter.tensor_diff import TensorDiff
    from converter.verification.result import Verification
    from formats.core.bundle import Bundle
    from formats.errors import (
        ConvertError,
        CorruptError,
        DependencyError,
        InternalError,
        LimitError,
        SafetyError,
        SourceError,
        StorageError,
        UnknownFormatError,
        UnsupportedError,
        UsageError,
        VerificationError,
    )

__version__ = VERSION

# Names are imported lazily: each imports its module on first use.
_HOMES = {
    "converter.api": ("convert", "convert_many", "diagnose", "diff", "inspect", "read", "verify"),
    "converter.listing": ("ListedModel", "list_models"),
    "converter.options": ("Arch", "Comparison", "Options"),
    "converter.pipeline": ("Conversion",),
    "converter.tensor_diff": ("TensorDiff",),
    "converter.verification.result": ("Verification",),
    "formats.core.bundle": ("Bundle",),
    "formats.errors": (
        "ConvertError", "CorruptError", "DependencyError", "InternalError", "LimitError",
        "SafetyError", "SourceError", "StorageError", "UnknownFormatError", "UnsupportedError",
        "UsageError", "VerificationError",
    ),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Arch", "Bundle", "Comparison", "Conversion", "ConvertError", "CorruptError",
    "DependencyError", "InternalError", "LimitError", "ListedModel", "Options", "SafetyError",
    "SourceError", "StorageError", "TensorDiff", "UnknownFormatError", "UnsupportedError",
    "UsageError", "Verification", "VerificationError", "convert", "convert_many", "diagnose",
    "diff", "inspect", "list_models", "read", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
