"""compressed-tensors: integers or floats with scales of tensors, rows, groups or blocks.

Source: compressed_tensors 0.20, ``compressors/`` and ``quantization/lifecycle/forward.py``
"""

import re
from collections.abc import Iterator

from converter.normalise.quantized.forms import Dequantized, Form, float4_form, lazy_array
from converter.normalise.quantized.grouped import Grouped
from converter.normalise.quantized.layer import (
    Array,
    Layer,
    bands,
    check_scale,
    scale_values,
    spread,
)
from converter.normalise.quantized.packing import unpack, unpack_float4
from formats.core.bundle import JSON
from formats.core.weights import DTYPES
from formats.errors import UnsupportedError

PARTS = re.compile(
    r"(?P<layer>.+)\.weight_(?P<role>packed|scale|zero_point|shape|g_idx|global_scale)"
)
MX_BIAS = 127  # of exponents that are scales


def dequantize(layer: Layer) -> Dequantized:
    """Return ``scale * (weight - zero_point)`` of the form that the tensors have."""
    if "packed" not in layer.parts:
        return scale_values(layer, "weight", blocks=_blocks(layer))
    dtype = layer.need("packed").dtype.name
    if dtype == "int32":
        return _packed(layer)
    if dtype == "uint8":
        return _of_4_bit_floats(layer)
    raise UnsupportedError(f"compressed-tensors packed as {dtype}", where=layer.name)


def _packed(layer: Layer) -> Dequantized:
    """Return a weight of integers that are packed in words of 32 bits, more than the sign is."""
    scale = layer.need("scale", dtype="float", rank=2)
    layer.need("packed", dtype="int32", rank=2)
    layer.need("shape", dtype="int")
    bits = _bits(layer)
    shape = tuple(map(int, layer.read("shape").reshape(-1)))
    rows, words = layer.need("packed").shape
    layer.check(
        fits=len(shape) == 2 and rows == shape[0] and words == -(-shape[1] * bits // 32),
        why=f"packed weights do not fit {bits} bits",
    )
    check_scale(layer, scale, shape)
    half, groups = 1 << (bits - 1), scale.shape[1]

    def read_values() -> Iterator[Array]:
        stored = layer.read("packed")
        for band in bands((rows, shape[1])):
            yield unpack(stored[band], bits, shape[1])

    def for_rows(values: Array) -> Array:
        import numpy as np

        return np.broadcast_to(spread(values, (rows, groups)), (rows, groups))

    def read_zeros() -> Array:
        import numpy as np

        zeros = np.zeros(scale.shape, np.float32)
        if "zero_point" in layer.parts:
            points = layer.read("zero_point")
            if points.dtype == np.int32:  # packed along the rows
                zeros = unpack(points.T, bits, scale.shape[0]).T.astype(np.float32) - half
            else:
                zeros = points.astype(np.float32)
            layer.check(fits=zeros.shape == scale.shape, why="zero points and scales do not fit")
        return for_rows(zeros + half)

    def find_groups() -> "Array | None":
        found = layer.read("g_idx") if "g_idx" in layer.parts else None
        return None if found is None or found.min() < 0 else found

    return Grouped(
        layer, scale.dtype, (rows, shape[1]), groups, bits, read_values, read_zeros,
        lambda: for_rows(layer.read("scale")), find_groups,
    ).dequantized()  # fmt: skip


def _weight_settings(layer: Layer) -> list[dict[str, JSON]]:
    """Return how the weights of each group of layers are quantised."""
    groups = layer.settings.get("config_groups")
    listed = groups.values() if isinstance(groups, dict) else ()
    found = [group.get("weights") for group in listed if isinstance(group, dict)]
    return [weights for weights in found if isinstance(weights, dict)]


def _blocks(layer: Layer) -> list[int]:
    """Return the sizes of the blocks that share a scale, if all groups of layers have the same."""
    found = [weights.get("block_structure") for weights in _weight_settings(layer)]
    first = found[0] if found and all(sizes == found[0] for sizes in found) else None
    sizes = [n for n in first if isinstance(n, int)] if isinstance(first, list) else []
    return sizes if len(sizes) == len(layer.need("scale").shape) == 2 else []


def _bits(layer: Layer) -> int:
    """Return the number of bits, which the configuration has for groups of layers.

    Raises:
        CorruptError: All groups have zero points, and this layer has none.
        UnsupportedError: No number of theirs fits the packed weights, or several do.
    """
    found = _weight_settings(layer)
    if found and all(weights.get("symmetric") is False for weights in found):
        layer.need("zero_point")
    words, columns = layer.need("packed").shape[-1], int(layer.read("shape").reshape(-1)[-1])
    numbers = {n for weights in found if isinstance(n := weights.get("num_bits"), int)}
    fitting = [n for n in numbers if 0 < n <= 8 and words == -(-columns * n // 32)]
    if len(fitting) != 1:
        raise UnsupportedError(
            f"packed weights of {sorted(numbers) or 'an unknown number of'} bits", where=layer.name
        )
    return fitting[0]


def _of_4_bit_floats(layer: Layer) -> Dequantized:
    """Return a weight of 4-bit floats: NVFP4 with a global scale, MXFP4 with exponents."""
    packed, scale = layer.need("packed"), layer.need("scale")
    shape = (*packed.shape[:-1], 2 * packed.shape[-1])
    check_scale(layer, scale, shape)

    def read_scales() -> Array:
        import numpy as np

        factors = layer.read("scale").astype(np.float32)
        if scale.dtype.name == "uint8":
            factors = np.ldexp(np.float32(1), factors.astype(np.int32) - MX_BIAS)
        if "global_scale" in layer.parts:
            factors = factors / layer.read("global_scale").astype(np.float32).reshape(1, 1)
        return factors

    def compute() -> Iterator[Array]:
        yield unpack_float4(layer.read("packed")) * spread(read_scales(), shape)

    def find_form() -> Form | str:
        if scale.shape[:-1] != shape[:-1]:
            return "rows share a scale"
        factors = lazy_array("float32", scale.shape, read_scales)
        return float4_form(DTYPES["bfloat16"], packed, factors, shape)

    return layer.weight(DTYPES["bfloat16"], shape, compute, find_form)
