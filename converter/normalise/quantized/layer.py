"""A quantised layer: the tensors that stand for one weight, and the weight that they stand for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from formats.core.bundle import JSON
from formats.core.weights import DType, Tensor, numpy_dtype
from formats.errors import CorruptError

if TYPE_CHECKING:
    import numpy as np

BAND = 1 << 20  # elements that are computed at once
Array: TypeAlias = "np.ndarray[Any, Any]"
Settings: TypeAlias = Mapping[str, JSON]

# Models whose layers of these names are transformers' Conv1D, which keeps inputs before outputs.
TRANSPOSED = {
    "gpt2": ("c_attn", "c_proj", "c_fc", "q_attn"),
    "decision_transformer": ("c_attn", "c_proj", "c_fc", "q_attn"),
    "imagegpt": ("c_attn", "c_proj", "c_fc", "q_attn"),
    "openai-gpt": ("c_attn", "c_proj", "c_fc"),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """A quantised weight.

    Attributes:
        name: Of the weight as a float tensor.
        parts: Tensors by their roles, which a scheme names.
        settings: The configuration of the quantisation, as the file has it.
        model: The model's configuration.
    """

    name: str
    parts: Mapping[str, Tensor]
    settings: Settings
    model: Settings

    def need(self, role: str) -> Tensor:
        """Return the tensor of a role.

        Raises:
            CorruptError: It is missing, or empty.
        """
        if role not in self.parts or not self.parts[role].size:
            raise CorruptError(f"a quantised weight without its {role}", where=self.name)
        return self.parts[role]

    def read(self, role: str) -> Array:
        """Return the elements of a tensor."""
        return self.need(role).numpy()

    def check(self, *, fits: bool, why: str) -> None:
        """Raise `CorruptError` where the tensors do not fit each other."""
        if not fits:
            shapes = {role: list(tensor.shape) for role, tensor in self.parts.items()}
            raise CorruptError(f"{why}: {shapes}", where=self.name)

    def floats(
        self, dtype: DType, shape: tuple[int, ...], compute: Callable[[], Iterator[Array]]
    ) -> Tensor:
        """Return the weight, which is computed when it is read and rounded once to its dtype.

        Args:
            dtype: Of the weight.
            shape: Outputs before inputs, as ``torch.nn.Linear`` has them.
            compute: Yields rows one after the other, in more precision.
        """
        models = TRANSPOSED.get(str(self.model.get("model_type")), ())
        is_transposed = self.name.split(".")[-2:-1] and self.name.split(".")[-2] in models

        def pieces() -> Iterator[bytes]:
            import numpy as np

            rows = (np.ascontiguousarray(r).astype(numpy_dtype(dtype)) for r in compute())
            if is_transposed:
                whole = np.concatenate([some.reshape(-1) for some in rows])
                yield whole.reshape(shape).T.tobytes()
                return
            for some in rows:
                yield some.tobytes()

        return Tensor.computed(dtype, shape[::-1] if is_transposed else shape, pieces)


def bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield the rows of a shape, some at a time, which the caches of a processor hold."""
    step = max(1, BAND // max(1, prod(shape[1:])))
    for first in range(0, shape[0], step):
        yield slice(first, first + step)


def in_blocks(values: Array, zeros: Array, factors: Array) -> Array:
    """Return ``(values - zeros) * factors`` of matrices, where columns share both in blocks."""
    import numpy as np

    blocks = values.reshape(len(values), zeros.shape[1], -1).astype(np.float32)
    blocks -= zeros[..., None]
    blocks *= factors[..., None]
    return blocks.reshape(values.shape)


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """Return one value for each element of a shape, of values of blocks of equal sizes."""
    import numpy as np

    while values.ndim < len(shape):
        values = values[..., None]
    for axis, size in enumerate(shape):
        count = values.shape[axis]
        if count not in (1, size):
            values = np.repeat(values, -(-size // count), axis)
            values = values[(slice(None),) * axis + (slice(size),)]
    return values
