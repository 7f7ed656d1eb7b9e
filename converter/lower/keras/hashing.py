"""Features in bins by their hashes.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/preprocessing (hashing,
hashed_crossing)
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.preprocessing import dense, dtype_named, encoded
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.ops import hashing
from converter.lower.values import Value


@keras_layer("Hashing")
def hashing_layer(
    op: Builder, w: Roles, x: Value, /, *,
    num_bins: int, mask_value: Any = None, salt: Any = None, output_mode: str = "int",
    sparse: bool = False, dtype: Any = None,
) -> Value:  # fmt: skip
    """The bin of a number's decimal digits by FarmHash; bin 0 for what is masked."""
    del w
    dense(sparse)
    if x.dtype == "string":
        raise Unsupported("strings that are hashed: ONNX has no hash (integers are hashed)")
    if salt is not None:
        raise Unsupported("a salt: keyed hashes (without one, integers are hashed)")
    numbers = op.cast(x, "int64")
    if output_mode == "one_hot" and x.rank and x.shape[-1] == 1:
        numbers = op.squeeze(numbers, [-1])
    reserved = mask_value is not None and num_bins > 1
    fingerprints = hashing.fingerprint_of_decimal(op, numbers)
    bins = hashing.modulo(op, fingerprints, num_bins - reserved)
    if reserved:
        is_masked = op.elementwise("Equal", numbers, op.constant(mask_value, "int64"))
        bins = op.where(is_masked, op.constant(0, "int64"), op.add(bins, op.constant(1, "int64")))
    return encoded(op, bins, output_mode, num_bins, dtype_named(dtype, "int64"))


@keras_layer("HashedCrossing")
def hashed_crossing(
    op: Builder,
    w: Roles,
    /,
    *features: Value,
    num_bins: int,
    output_mode: str = "int",
    sparse: bool = False,
    dtype: Any = None,
) -> Value:
    """The bin of several numbers together."""
    del w
    dense(sparse)
    if any(x.dtype == "string" for x in features):
        raise Unsupported("strings that are hashed: ONNX has no hash (integers are hashed)")
    crossed = hashing.concatenate(op, [op.cast(x, "int64") for x in features])
    return encoded(
        op, hashing.modulo(op, crossed, num_bins), output_mode, num_bins,
        dtype_named(dtype, "int64"),
    )  # fmt: skip
