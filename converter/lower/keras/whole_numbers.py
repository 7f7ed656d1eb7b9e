"""The dtypes of layers called on integers, which Keras does not cast to a layer's dtype.

Keras casts floating point inputs alone. Some layers turn integers into floating point ones
themselves, some keep them, and the others Keras 3 refuses on one backend or another, or computes
in a dtype that depends on it: those are not supported.
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.table import Row, Unsupported
from converter.lower.values import Value

# Modules whose layers take integers as they are, but for EXCEPTED; and single layers.
KEPT = frozenset((
    "core", "hashing", "images", "lambdas", "lookup", "merging", "preprocessing", "reshaping",
    "wrappers",
))  # fmt: skip
ALONE = ("Embedding ", "ReversibleEmbedding ", "SpectralNormalization")  # quantized, or of one
EXCEPTED = frozenset(("Bidirectional", "EinsumDense"))
# Layers that compute in floating point whatever they are given.
FLOATING = frozenset((
    "Bidirectional", "EinsumDense", "GRU", "LSTM", "RNN", "SimpleRNN",
    "BatchNormalization", "GlobalAveragePooling1D", "GlobalAveragePooling2D",
    "GlobalAveragePooling3D", "MultiHeadAttention", "SyncBatchNormalization",
))  # fmt: skip
# Others, by the dtypes that they and ONNX's operators take.
SOME = {
    "Activation": ("int32", "int64"),
    "GlobalMaxPooling1D": ("int32", "int64", "uint8"),
    "GlobalMaxPooling2D": ("int32", "int64", "uint8"),
    "GlobalMaxPooling3D": ("int32", "int64", "uint8"),
    **dict.fromkeys(("MaxPooling1D", "MaxPooling2D", "MaxPooling3D"), ("uint8", "int32")),
    **dict.fromkeys(
        ("UpSampling1D", "UpSampling2D", "UpSampling3D"), ("uint8", "int8", "int32")
    ),
}  # fmt: skip
MASKS = {("Softmax", 1)}  # classes and positions of arguments that are masks
AS_IT_IS = ("linear", "relu")  # activations that integers stay whole in


def as_taken(
    op: Builder, row: Row, class_name: str, position: int, settings: dict[str, Any], value: Any,
    dtype: str | None,
) -> Any:  # fmt: skip
    """Return an input of one of Keras's layers as the layer computes with it.

    Args:
        op: Builder.
        row: The layer's.
        class_name: Its class.
        position: Of the argument in the call.
        settings: Its arguments.
        value: The input; only values of integers are looked at.
        dtype: Dtype in which the layer computes.

    Raises:
        Unsupported: Integers are not what this layer takes.
    """
    if not isinstance(value, Value) or not value.dtype.startswith(("int", "uint")):
        return value
    if (class_name, position) in MASKS:
        return op.cast(value, "bool")
    if class_name in FLOATING and not settings.get("keeps_dtype"):
        return op.cast(value, dtype or "float32")
    package, _, module = row.module.rpartition(".")
    if package != __name__.rpartition(".")[0]:
        return value  # a user's own, or one that looks through its arguments itself
    taken = SOME.get(class_name)
    kept = module in KEPT or class_name.startswith(ALONE)
    if taken is None and kept and class_name not in EXCEPTED:
        return value
    named = str(settings.get("activation", "linear"))
    kept = named in AS_IT_IS and settings.get("interpolation", "nearest") == "nearest"
    if value.dtype in (taken or ()) and kept:
        return value
    raise Unsupported(f"whole numbers, {value.dtype}, as its input")
