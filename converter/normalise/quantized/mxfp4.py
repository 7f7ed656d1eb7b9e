"""MXFP4 of gpt-oss: 4-bit floats in blocks of 32 that share an exponent, for all experts at once.

Source: transformers 5.23, ``integrations/mxfp4.py`` (convert_moe_packed_tensors)
"""

import re
from collections.abc import Iterator

from converter.normalise.quantized.forms import Dequantized, Form, float4_form, lazy_array
from converter.normalise.quantized.layer import Array, Layer
from converter.normalise.quantized.packing import unpack_float4
from formats.core.weights import DTYPES

PARTS = re.compile(r"(?P<layer>.+)_(?P<role>blocks|scales)")
BIAS = 127  # of the exponents
LARGEST = 254  # exponent of a float32 power of two


def dequantize(layer: Layer) -> Dequantized:
    """Return the weight of all experts, inputs before outputs."""
    blocks, scales = layer.need("blocks"), layer.need("scales")
    layer.check(
        fits=len(blocks.shape) == 4 and blocks.shape[:-1] == scales.shape
        and {blocks.dtype.name, scales.dtype.name} == {"uint8"},
        why="blocks and their exponents do not fit",
    )  # fmt: skip
    experts, outputs, groups, width = blocks.shape

    def compute() -> Iterator[Array]:
        import numpy as np

        stored, exponents = layer.read("blocks"), layer.read("scales").astype(np.int32) - BIAS
        for blocks, own in zip(stored, exponents, strict=True):
            values = np.ldexp(unpack_float4(blocks), own[..., None])
            yield values.reshape(1, outputs, -1).transpose(0, 2, 1)

    def read_scales() -> Array:
        import numpy as np

        return np.ldexp(np.float32(1), layer.read("scales").astype(np.int32) - BIAS)

    def find_form() -> Form | str:
        if layer.read("scales").max() > LARGEST:
            return "an exponent is past float32"
        factors = lazy_array("float32", scales.shape, read_scales)
        return float4_form(dtype, blocks, factors, shape, (0, 2, 1))

    dtype, shape = DTYPES["bfloat16"], (experts, outputs, 2 * groups * width)
    return layer.weight(dtype, (experts, shape[2], outputs), compute, find_form)
