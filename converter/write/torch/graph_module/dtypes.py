"""Numbers of ONNX's dtypes, and torch's and NumPy's of the same name.

Spec: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3 (TensorProto.DataType)
"""

from typing import Any

import numpy as np

from converter.write.torch.graph_module.operators import NotSupportedError, torch

NAMES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
}  # fmt: skip
# Known values have no other dtypes.
NUMPY_DTYPES = {
    number: np.dtype(name if hasattr(np, name) or name == "bool" else "float32")
    for number, name in NAMES.items()
}


def torch_dtype(number: int) -> Any:
    """Return torch's dtype.

    Raises:
        NotSupportedError: torch has none of this name.
    """
    found = getattr(torch, NAMES.get(number, ""), None)
    if found is None:
        raise NotSupportedError(f"dtype {NAMES.get(number, number)}")
    return found
