"""Compute in float64 what a torch source computes in float32: its own rounding errors show.

Plain, and nothing of the project, as the files beside it. Every operation gets float64 for float32,
and complex128 for complex64, as tensors and as dtypes to convert to. What is narrower stays: a
source that rounds to float16 means to.
"""

import importlib
from typing import Any


def make_mode(torch: Any) -> Any:
    """Return a context in which operations compute in float64."""
    modes: Any = importlib.import_module("torch.utils._python_dispatch")
    pytree: Any = importlib.import_module("torch.utils._pytree")
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(wide[value.dtype]) if value.dtype in wide else value
        return wide.get(value, value) if isinstance(value, torch.dtype) else value

    class Float64(modes.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            args, kwargs = pytree.tree_map(widen, (args, kwargs or {}))
            return function(*args, **kwargs)

    return Float64()


def widen_module(torch: Any, module: Any) -> None:
    """Make a module's float32 tensors float64: layers look at dtypes before they compute."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype == torch.float32:
            tensor.data = tensor.data.double()
