"""torchao: tensor subclasses, which safetensors files hold in parts, described in the metadata.

Source: torchao 0.18, ``prototype/safetensors`` and ``quantization/quantize_/workflows``
"""

from converter.normalise.quantized.forms import Dequantized
from converter.normalise.quantized.layer import Layer, float_dtype, scale_values
from formats.errors import UnsupportedError

CLASSES = ("Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor")


def dequantize(layer: Layer) -> Dequantized:
    """Return ``scale * (qdata - zero_point)``, by what the file says of the tensor."""
    name = layer.settings.get("_type")
    if name not in CLASSES or not isinstance(layer.settings.get("_data"), dict):
        raise UnsupportedError(
            f"torchao's {name}", where=layer.name, hint=f"supported: {', '.join(CLASSES)}"
        )
    if "act_pre_scale" in layer.parts:
        raise UnsupportedError("torchao's weights with a scale of inputs", where=layer.name)
    roles = layer.settings.get("_tensor_data_names")
    for role in roles if isinstance(roles, list) else ():
        layer.need(str(role))
    config = layer.settings.get("_data")
    recorded = config.get("dtype") if isinstance(config, dict) else None
    dtype = recorded.get("_data") if isinstance(recorded, dict) else None
    scale = layer.need("scale", dtype="float")
    return scale_values(layer, "qdata", dtype=float_dtype(dtype, scale.dtype))
