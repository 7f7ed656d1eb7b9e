"""Floats of 8 bits with scales of blocks (DeepSeek), of rows (FBGEMM) or of the tensor.

Source: transformers 5.23, ``integrations/finegrained_fp8.py`` and ``fbgemm_fp8.py``
"""

import re
from collections.abc import Iterator

from converter.normalise.quantized.bitsandbytes import model_dtype
from converter.normalise.quantized.layer import Array, Layer, spread
from formats.core.weights import Tensor

PARTS = re.compile(
    r"(?P<layer>.+)\.(?P<role>weight_scale_inv|weight_scale|input_scale_ub|activation_scale)"
)


def dequantize(layer: Layer) -> Tensor:
    """Return ``weight * scale``."""
    weight = layer.need("weight")
    role = "weight_scale_inv" if "weight_scale_inv" in layer.parts else "weight_scale"
    scale = layer.need(role)
    layer.check(
        fits="float8" in weight.dtype.name and len(scale.shape) <= len(weight.shape)
        and all(0 < m <= n for m, n in zip(scale.shape, weight.shape, strict=False)),
        why="8-bit floats and their scales do not fit",
    )  # fmt: skip
    blocks = layer.settings.get("weight_block_size")

    def compute() -> Iterator[Array]:
        import numpy as np

        factors = layer.read(role).astype(np.float32)
        if isinstance(blocks, list) and factors.ndim == len(blocks) == 2 and factors.size > 1:
            factors = np.repeat(np.repeat(factors, int(str(blocks[0])), 0), int(str(blocks[1])), 1)
            factors = factors[: weight.shape[0], : weight.shape[1]]
            layer.check(fits=factors.shape == weight.shape, why="blocks and scales do not fit")
        yield layer.read("weight").astype(np.float32) * spread(factors, weight.shape)

    return layer.floats(model_dtype(layer, "bfloat16"), weight.shape, compute)
