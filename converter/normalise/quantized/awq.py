"""AWQ: 4 bits, groups of inputs share a scale and a zero point for each output.

Source: autoawq 0.2.9, ``modules/linear/gemm.py``, ``gemv.py`` and ``utils/packing_utils.py``
"""

from collections.abc import Iterator

from converter.normalise.quantized.forms import Dequantized
from converter.normalise.quantized.grouped import Grouped
from converter.normalise.quantized.layer import Array, Layer, bands
from converter.normalise.quantized.packing import unpack
from formats.errors import UnsupportedError

BITS, VALUES = 4, 8  # of an integer, and how many there are in a word of 32 bits
ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # where the eight outputs of a word of `gemm` are
VERSIONS = ("gemm", "gemv")


def dequantize(layer: Layer) -> Dequantized:
    """Return ``scales * (qweight - qzeros)``."""
    recorded = layer.settings.get("version") or layer.settings.get("packing_format") or "gemm"
    version = str(recorded).lower()
    version = "gemm" if version == "auto_round:auto_awq" else version
    if version not in VERSIONS:
        raise UnsupportedError(f"AWQ in the version {version}", hint="supported: gemm, gemv")
    words, packed_zeros = (layer.need(r, dtype="int32", rank=2) for r in ("qweight", "qzeros"))
    scales = layer.need("scales", dtype="float", rank=2)
    if version == "gemm":
        inputs, outputs = words.shape[0], words.shape[1] * VALUES
        groups = scales.shape[0]
        fits = scales.shape[1] == outputs and packed_zeros.shape == (groups, words.shape[1])
        size = inputs // groups
    else:
        outputs, inputs = words.shape[0], words.shape[1] * VALUES
        group_size = layer.settings.get("group_size") or layer.settings.get("q_group_size")
        size = group_size if isinstance(group_size, int) and group_size > 0 else inputs
        groups = inputs // size
        fits = scales.shape[0] == packed_zeros.shape[0] == outputs and scales.shape[1] >= groups
    layer.check(fits=fits and inputs == groups * size, why="AWQ's tensors do not fit each other")

    def read_values() -> Iterator[Array]:
        stored = layer.read("qweight")
        if version == "gemv":
            for band in bands((outputs, inputs)):
                yield unpack(stored[band], BITS, inputs)
            return
        for words in bands((outputs // VALUES, inputs * VALUES)):
            part = stored[:, words]
            yield _in_order(unpack(part, BITS, part.shape[1] * VALUES)).T

    def read_zeros() -> Array:
        import numpy as np

        packed = layer.read("qzeros")
        zeros = unpack(packed, BITS, packed.shape[1] * VALUES).astype(np.float32)
        return zeros[:, :groups] if version == "gemv" else _in_order(zeros).T

    def read_scales() -> Array:
        factors = layer.read("scales")
        return factors[:, :groups] if version == "gemv" else factors.T

    return Grouped(
        layer, scales.dtype, (outputs, inputs), groups, BITS, read_values, read_zeros, read_scales
    ).dequantized()


def _in_order(values: Array) -> Array:
    """Return columns of words of eight as `gemm` means them."""
    return values.reshape(len(values), -1, VALUES)[..., ORDER].reshape(len(values), -1)
