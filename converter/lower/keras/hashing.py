"""Hashing and HashedCrossing: categories as bins of their hashes.

Strings are hashed outside the graph (`hashed_strings`); integers are hashed in it (`ops.hashing`).
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/preprocessing (hashing,
hashed_crossing)
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.builder import Builder
from converter.lower.hashed_strings import fingerprints
from converter.lower.keras.preprocessing import dense, dtype_named, encode
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.ops import hashing
from converter.lower.values import Value


@keras_layer("Hashing")
def hashing_layer(
    op: Builder, w: Roles, x: Value, /, *,
    num_bins: int, mask_value: Any = None, salt: int | Sequence[int] | None = None,
    output_mode: str = "int", sparse: bool = False, dtype: Any = None,
) -> Value:  # fmt: skip
    """The hash of each string or integer modulo `num_bins`; bin 0 is reserved for `mask_value`."""
    del w
    dense(sparse)
    given = x if x.dtype == "string" else op.cast(x, "int64")
    reserved = mask_value is not None and num_bins > 1
    bins = hashing.modulo(op, _hashes(op, given, salt), num_bins - reserved)
    if reserved:
        mask = op.constant(mask_value, given.dtype)
        if x.dtype == "string":
            given, mask = fingerprints(op, given), fingerprints(op, mask)
        is_masked = op.elementwise("Equal", given, mask)
        bins = op.where(is_masked, op.constant(0, "int64"), op.add(bins, op.constant(1, "int64")))
    return encode(op, bins, output_mode, num_bins, dtype_named(dtype, "int64"))


def _hashes(op: Builder, x: Value, salt: int | Sequence[int] | None) -> Value:
    """Return the hashes of strings, or of the decimal digits of int64 numbers."""
    if salt is None:
        is_text = x.dtype == "string"
        return fingerprints(op, x) if is_text else hashing.fingerprint_of_decimal(op, x)
    if x.dtype == "string":
        raise Unsupported("a salt for strings: their SipHash cannot be computed in ONNX")
    low, high = (salt, salt) if isinstance(salt, int) else salt
    return hashing.siphash_of_decimal(op, x, (low, high))


@keras_layer("HashedCrossing")
def hashed_crossing(
    op: Builder, w: Roles, /, *features: Value,
    num_bins: int, output_mode: str = "int", sparse: bool = False, dtype: Any = None,
) -> Value:  # fmt: skip
    """The hash of a tuple of strings and integers modulo `num_bins`."""
    del w
    dense(sparse)
    numbers = [
        fingerprints(op, x) if x.dtype == "string" else op.cast(x, "int64") for x in features
    ]
    bins = hashing.modulo(op, hashing.concatenate(op, numbers), num_bins)
    return encode(op, bins, output_mode, num_bins, dtype_named(dtype, "int64"))
