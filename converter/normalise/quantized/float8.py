"""Floats of 8 bits with scales of blocks (DeepSeek), of rows (FBGEMM) or of the tensor.

Source: transformers 5.23, ``integrations/finegrained_fp8.py`` and ``fbgemm_fp8.py``
"""

import re

from converter.normalise.quantized.bitsandbytes import model_dtype
from converter.normalise.quantized.forms import Dequantized
from converter.normalise.quantized.layer import Layer, scale_values

PARTS = re.compile(
    r"(?P<layer>.+)\.(?P<role>weight_scale_inv|weight_scale|input_scale_ub|activation_scale)"
)


def dequantize(layer: Layer) -> Dequantized:
    """Return ``weight * scale``."""
    weight = layer.need("weight", dtype="float8")
    role = "weight_scale_inv" if "weight_scale_inv" in layer.parts else "weight_scale"
    scale = layer.need(role, dtype="float")
    recorded = layer.settings.get("weight_block_size")
    sizes = [n for n in recorded if isinstance(n, int)] if isinstance(recorded, list) else []
    blocks = sizes if len(sizes) == len(scale.shape) == len(weight.shape) else []
    return scale_values(layer, "weight", role, dtype=model_dtype(layer, "bfloat16"), blocks=blocks)
