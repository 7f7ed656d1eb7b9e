"""Dtypes by name: their ONNX element types and NumPy dtypes."""

import numpy as np

from formats.core.weights import DTYPES, numpy_dtype

# fmt: off
# TensorProto.DataType, https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.in.proto
ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "string": 8, "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
    "complex64": 14, "complex128": 15, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18,
    "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4_e2m1fn": 23,
    "float8_e8m0fnu": 24, "uint2": 25, "int2": 26,
}
# fmt: on


def element_type(dtype: str) -> int:
    """Return the ONNX element type (TensorProto.DataType) of a dtype."""
    return ELEMENT_TYPES[dtype]


def numpy_type(dtype: str) -> "np.dtype[np.generic]":
    """Return the NumPy dtype of a name; object for strings."""
    return np.dtype(object) if dtype == "string" else numpy_dtype(DTYPES[dtype])
