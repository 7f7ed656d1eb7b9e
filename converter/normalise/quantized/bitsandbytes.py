"""bitsandbytes: 8 bits with a scale for each output, or 4 bits with a table and scales of blocks.

Source: bitsandbytes 0.50, ``functional.py`` (QuantState, int8_vectorwise_dequant)
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from converter.normalise.quantized.forms import Dequantized, Form, lazy_array, lazy_values
from converter.normalise.quantized.layer import BAND, Array, Layer, float_dtype, scale_values
from converter.normalise.quantized.packing import unpack
from formats.core.weights import DTYPES, DType
from formats.errors import CorruptError

PARTS = re.compile(
    r"(?P<layer>.+)\.(?:weight\.(?P<role>absmax|quant_map|nested_absmax|nested_quant_map"
    r"|quant_state\.bitsandbytes__(?:nf4|fp4))|(?P<wide>SCB|weight_format))"
)
STEP = 7.874015718698502e-3  # 1 / 127, as the library has it


def dequantize(layer: Layer) -> Dequantized:
    """Return the weight of either form."""
    state = next((role for role in layer.parts if role.startswith("quant_state")), None)
    return _of_8_bits(layer) if state is None else _of_4_bits(layer, state)


def _of_8_bits(layer: Layer) -> Dequantized:
    """Return ``weight * SCB / 127``."""
    weight, scales = layer.need("weight"), layer.need("SCB", dtype="float")
    layer.check(
        fits=len(weight.shape) == 2 and weight.dtype.name == "int8"
        and scales.shape in ((weight.shape[0],), (weight.shape[0], 1)),
        why="8-bit weights and their scales do not fit",
    )  # fmt: skip

    dtype = model_dtype(layer, "float16")
    return scale_values(layer, "weight", "SCB", dtype=dtype, factor=STEP)


def model_dtype(layer: Layer, default: str) -> DType:
    """Return the dtype that the model's configuration names."""
    name = layer.model.get("dtype") or layer.model.get("torch_dtype")
    return float_dtype(name, DTYPES[default])


@dataclass(frozen=True, slots=True)
class State:
    """What a 4-bit weight records of itself.

    Attributes:
        shape: Of the weight.
        dtype: Of the weight.
        block: Number of elements that share a scale.
        nested_block: Number of scales that share a scale, where they are quantised as well.
        offset: What is added to those.
    """

    shape: tuple[int, ...]
    dtype: DType
    block: int
    nested_block: int
    offset: float

    @classmethod
    def read(cls, layer: Layer, role: str) -> "State":
        """Parse the JSON text in a tensor of bytes.

        Raises:
            CorruptError: It is none, or lacks an entry.
        """
        try:
            state = json.loads(layer.read(role).tobytes())
            return cls(
                tuple(map(int, state["shape"])), DTYPES[state["dtype"]], int(state["blocksize"]),
                int(state.get("nested_blocksize", 0)), float(state.get("nested_offset", 0)),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptError(
                f"a 4-bit weight with an unknown state ({e})", where=layer.name
            ) from None


def _of_4_bits(layer: Layer, role: str) -> Dequantized:
    """Return ``quant_map[weight] * absmax``; the elements are blocks, in order."""
    state = State.read(layer, role)
    count, weight = prod(state.shape), layer.need("weight")
    layer.check(
        fits=layer.need("quant_map", dtype="float").size == 16 and weight.nbytes == -(-count // 2)
        and state.block > 0 and min(state.shape, default=0) > 0,
        why="4-bit weights do not fit their state",
    )  # fmt: skip
    blocks = -(-count // state.block)

    def read_values() -> Iterator[Array]:
        import numpy as np

        stored = np.ascontiguousarray(layer.read("weight")).view(np.uint8).reshape(-1)
        step = max(1, BAND // state.block // 2) * 2 * state.block  # two elements are a byte
        for start in range(0, count, step):
            packed = stored[start // 2 : (start + step) // 2]
            values = unpack(packed[:, None], 4, 2)[:, ::-1].reshape(-1)  # the first is high
            yield values[: count - start]

    def read_table() -> Array:
        import numpy as np

        return layer.read("quant_map").reshape(-1).astype(np.float32)

    def compute() -> Iterator[Array]:
        import numpy as np

        table, scales, first = read_table(), _read_scales(layer, state), 0
        layer.check(fits=len(scales) >= blocks, why="too few scales for the blocks")
        for values in read_values():
            own = scales[first : first + -(-len(values) // state.block)]
            yield table[values] * np.repeat(own, state.block)[: len(values)]
            first += len(own)

    def read_filled() -> Iterator[Array]:
        import numpy as np

        yield from read_values()
        yield np.zeros(blocks * state.block - count, np.uint8)

    return layer.weight(
        state.dtype, state.shape, compute,
        lambda: Form(
            state.dtype,
            lazy_values("uint4", (blocks, state.block), read_filled),
            lazy_array("float32", (blocks, 1), lambda: _read_scales(layer, state)[:blocks]),
            table=lazy_array("float32", (16,), read_table),
            shape=state.shape,
        ),
    )  # fmt: skip


def _read_scales(layer: Layer, state: State) -> Array:
    """Return the scales of the blocks, which may be quantised themselves."""
    import numpy as np

    stored = layer.read("absmax").reshape(-1)
    if stored.dtype != np.uint8:
        return stored.astype(np.float32)
    table = layer.read("nested_quant_map").reshape(-1).astype(np.float32)
    outer = np.repeat(
        layer.read("nested_absmax").reshape(-1).astype(np.float32), state.nested_block
    )
    layer.check(
        fits=table.size == 256 and len(outer) >= len(stored), why="nested scales do not fit"
    )
    scales: Array = table[stored] * outer[: len(stored)] + np.float32(state.offset)
    return scales
