"""Functions of mathematics that ONNX has not: those that TensorFlow's ops are made of.

Spec: https://docs.pytorch.org/docs/2.13/special.html
"""

from typing import Any

from converter.lower.tf import special
from converter.lower.torch.context import Context
from converter.lower.torch.elementwise import real
from converter.lower.torch.table import aten
from converter.lower.values import Value


def _shared(op: Context) -> Any:
    """Return the builder as functions for TensorFlow's ops take it: any builder will do."""
    return op


@aten("erfinv", "special_erfinv")
def erfinv(op: Context, self: Value) -> Value:
    """The inverse of the error function."""
    return special.erfinv(_shared(op), real(op, self))


@aten("special_ndtri")
def ndtri(op: Context, self: Value) -> Value:
    """The number below which is a share of the normal ones."""
    return special.ndtri(_shared(op), real(op, self))


@aten("lgamma", "special_gammaln")
def lgamma(op: Context, self: Value) -> Value:
    """The logarithm of the gamma function's absolute value."""
    return special.lgamma(_shared(op), real(op, self))


@aten("digamma", "special_digamma", "special_psi")
def digamma(op: Context, self: Value) -> Value:
    """The derivative of the gamma function's logarithm."""
    return special.digamma(_shared(op), real(op, self))
