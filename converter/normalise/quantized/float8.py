"""Floats of 8 bits with scales of blocks (DeepSeek), of rows (FBGEMM) or of the tensor.

Source: transformers 5.23, ``integrations/finegrained_fp8.py`` and ``fbgemm_fp8.py``
"""

import re
from collections.abc import Iterator

from converter.normalise.quantized.bitsandbytes import model_dtype
from converter.normalise.quantized.layer import Array, Layer, check_scale, spread
from formats.core.weights import Tensor

PARTS = re.compile(
    r"(?P<layer>.+)\.(?P<role>weight_scale_inv|weight_scale|input_scale_ub|activation_scale)"
)


def dequantize(layer: Layer) -> Tensor:
    """Return ``weight * scale``."""
    weight = layer.need("weight", dtype="float8")
    role = "weight_scale_inv" if "weight_scale_inv" in layer.parts else "weight_scale"
    scale = layer.need(role, dtype="float")
    recorded = layer.settings.get("weight_block_size")
    sizes = [n for n in recorded if isinstance(n, int)] if isinstance(recorded, list) else []
    blocks = sizes if len(sizes) == len(scale.shape) == len(weight.shape) else []
    check_scale(layer, scale, weight.shape, blocks)

    def compute() -> Iterator[Array]:
        import numpy as np

        factors = spread(layer.read(role).astype(np.float32), weight.shape, blocks)
        yield layer.read("weight").astype(np.float32) * factors

    return layer.floats(model_dtype(layer, "bfloat16"), weight.shape, compute)
