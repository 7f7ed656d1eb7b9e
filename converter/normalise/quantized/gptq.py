"""GPTQ: groups of inputs share a scale and a zero point for each output.

Source: auto_gptq 0.7.1, ``nn_modules/qlinear/qlinear_cuda.py``; gptqmodel 7.7, ``utils/model.py``
"""

import re
from collections.abc import Iterator

from converter.normalise.quantized.forms import Dequantized
from converter.normalise.quantized.grouped import Grouped
from converter.normalise.quantized.layer import Array, Layer, bands
from converter.normalise.quantized.packing import unpack
from formats.errors import UnsupportedError

PARTS = re.compile(r"(?P<layer>.+)\.(?P<role>qweight|qzeros|scales|g_idx)")
FORMATS = {"gptq": 1, "gptq_v2": 0, "auto_round:auto_gptq": 1, "auto_round:gptq": 1}


def dequantize(layer: Layer) -> Dequantized:
    """Return ``scales * (qweight - zeros)``, the zeros one more than what is stored in format 1."""
    recorded = layer.settings.get("checkpoint_format") or layer.settings.get("packing_format")
    form = str(recorded or "gptq").lower()
    if form not in FORMATS or layer.settings.get("is_marlin_format"):
        raise UnsupportedError(
            f"GPTQ in the format {form}", hint=f"supported: {', '.join(FORMATS)}"
        )
    words, packed_zeros = (layer.need(r, dtype="int32", rank=2) for r in ("qweight", "qzeros"))
    scales = layer.need("scales", dtype="float", rank=2)
    layer.check(
        fits=packed_zeros.shape[1] * 32 % scales.shape[1] == 0, why="GPTQ's tensors do not fit"
    )
    groups, outputs = scales.shape
    bits = packed_zeros.shape[1] * 32 // outputs
    inputs = words.shape[0] * 32 // max(bits, 1)
    is_ordered = layer.settings.get("desc_act") or "g_idx" in layer.parts
    order = layer.need("g_idx", dtype="int") if is_ordered else None
    fits = inputs % groups == 0 if order is None else order.shape == (inputs,)
    layer.check(
        fits=fits and bits in (2, 3, 4, 8) and words.shape[1] == outputs
        and packed_zeros.shape[0] == groups,
        why=f"GPTQ's tensors do not fit each other at {bits} bits",
    )  # fmt: skip

    def read_values() -> Iterator[Array]:
        stored = layer.read("qweight")
        for band in bands((outputs, inputs)):
            yield unpack(stored[:, band].T, bits, inputs)

    def read_zeros() -> Array:
        import numpy as np

        return unpack(layer.read("qzeros"), bits, outputs).T.astype(np.float32) + FORMATS[form]

    return Grouped(
        layer, scales.dtype, (outputs, inputs), groups, bits, read_values, read_zeros,
        lambda: layer.read("scales").T, lambda: None if order is None else order.numpy(),
    ).dequantized()  # fmt: skip
