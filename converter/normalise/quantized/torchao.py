"""torchao: tensor subclasses, which safetensors files hold in parts, described in the metadata.

Source: torchao 0.18, ``prototype/safetensors`` and ``quantization/quantize_/workflows``
"""

from collections.abc import Iterator

from converter.normalise.quantized.layer import Array, Layer, spread
from formats.core.weights import DTYPES, Tensor
from formats.errors import UnsupportedError

CLASSES = ("Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor")


def dequantize(layer: Layer) -> Tensor:
    """Return ``scale * (qdata - zero_point)``, by what the file says of the tensor."""
    name, told = layer.settings.get("_type"), layer.settings.get("_data")
    if name not in CLASSES or not isinstance(told, dict):
        raise UnsupportedError(
            f"torchao's {name}", where=layer.name, hint=f"supported: {', '.join(CLASSES)}"
        )
    if "act_pre_scale" in layer.parts:
        raise UnsupportedError("torchao's weights with a scale of inputs", where=layer.name)
    roles = layer.settings.get("_tensor_data_names")
    for role in roles if isinstance(roles, list) else ():
        layer.need(str(role))
    values, scale = layer.need("qdata"), layer.need("scale")
    recorded = told.get("dtype")
    named = recorded.get("_data") if isinstance(recorded, dict) else None
    dtype = DTYPES.get(str(named), scale.dtype)
    layer.check(
        fits=values.dtype.bits <= 8
        and len(scale.shape) <= len(values.shape)
        and all(0 < m <= n for m, n in zip(scale.shape, values.shape, strict=False)),
        why="values and scales do not fit",
    )

    def compute() -> Iterator[Array]:
        import numpy as np

        found = layer.read("qdata").astype(np.float32)
        if "zero_point" in layer.parts:
            zeros = layer.read("zero_point").astype(np.float32)
            layer.check(fits=zeros.shape == scale.shape, why="zero points and scales do not fit")
            found = found - spread(zeros, values.shape)
        yield found * spread(layer.read("scale").astype(np.float32), values.shape)

    return layer.floats(dtype, values.shape, compute)
