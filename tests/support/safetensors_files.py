"""Safetensors files, written byte by byte: names, dtypes and shapes may be any."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

CODES = {"float32": "F32", "int64": "I64"}


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write arrays in their order, and return the path."""
    head, data = {}, []
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        code = CODES[array.dtype.name]
        head[name] = {"dtype": code, "shape": [*array.shape], "data_offsets": [begin, end]}
        data.append(array.tobytes())
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return path
