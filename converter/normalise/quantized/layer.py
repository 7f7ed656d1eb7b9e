"""A quantised layer: the tensors that stand for one weight, and the weight that they stand for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from formats.core.bundle import JSON
from formats.core.weights import DTYPES, DType, Tensor, numpy_dtype
from formats.errors import CorruptError, UnsupportedError

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

    def need(self, role: str, *, dtype: str = "", rank: int | None = None) -> Tensor:
        """Return the tensor of a role.

        Args:
            role: Its role.
            dtype: What the name of its dtype contains.
            rank: Number of its axes.

        Raises:
            CorruptError: It is missing or empty, or has another dtype or number of axes.
        """
        tensor = self.parts.get(role)
        if tensor is None or not tensor.size:
            raise CorruptError(f"a quantised weight without its {role}", where=self.name)
        if dtype not in tensor.dtype.name or rank not in (None, len(tensor.shape)):
            expected = f"{dtype or 'a tensor'}{'' if rank is None else f' of {rank} axes'}"
            raise CorruptError(
                f"{role} is {tensor.dtype}{list(tensor.shape)}", expected=expected, where=self.name
            )
        return tensor

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

        def rows() -> Iterator[Array]:
            import numpy as np

            source = compute()
            while True:
                with np.errstate(all="ignore"):  # NaN and infinity are values like others
                    some = next(source, None)
                    made = None if some is None else some.astype(numpy_dtype(dtype))
                if made is None:
                    return
                yield made

        def pieces() -> Iterator[bytes]:
            import numpy as np

            if is_transposed:
                whole = np.concatenate([some.reshape(-1) for some in rows()])
                yield whole.reshape(shape).T.tobytes()
                return
            for some in rows():
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


def scale_values(layer: Layer, role: str, blocks: Sequence[int] = ()) -> Tensor:
    """Return ``scale * (values - zero_point)`` of integers or floats that are not packed.

    Args:
        layer: The layer.
        role: Of the values.
        blocks: See `check_scale`.

    Raises:
        CorruptError: The tensors do not fit each other.
        UnsupportedError: The values have more than 8 bits: they may be scaled already.
    """
    values, scale = layer.need(role), layer.need("scale", dtype="float")
    if values.dtype.bits > 8:
        raise UnsupportedError(f"quantised weights of dtype {values.dtype}", where=layer.name)
    check_scale(layer, scale, values.shape, blocks)
    config = layer.settings.get("_data")
    recorded = config.get("dtype") if isinstance(config, dict) else None
    name = recorded.get("_data") if isinstance(recorded, dict) else None

    def compute() -> Iterator[Array]:
        import numpy as np

        found = layer.read(role).astype(np.float32)
        if "zero_point" in layer.parts:
            zeros = layer.read("zero_point").astype(np.float32)
            layer.check(fits=zeros.shape == scale.shape, why="zero points and scales do not fit")
            found = found - spread(zeros, values.shape, blocks)
        factors = layer.read("scale").astype(np.float32)
        yield found * spread(factors, values.shape, blocks)

    return layer.floats(float_dtype(name, scale.dtype), values.shape, compute)


def check_scale(
    layer: Layer, scale: Tensor, shape: tuple[int, ...], blocks: Sequence[int] = ()
) -> None:
    """Raise `CorruptError` where scales are not those of blocks of a shape.

    Args:
        layer: The layer.
        scale: The scales, with as many axes as the shape or fewer.
        shape: Of the weight.
        blocks: Sizes of a block; without them all blocks of an axis are equal.
    """
    sizes = blocks or [
        n // m if n % m == 0 else 0 for m, n in zip(scale.shape, shape, strict=False)
    ]
    pairs = zip(scale.shape, shape, sizes, strict=False)
    layer.check(
        fits=len(scale.shape) <= len(shape)
        and all(m == 1 or (size > 0 and -(-n // size) == m) for m, n, size in pairs),
        why="weight and scales do not fit",
    )


def float_dtype(name: object, default: DType) -> DType:
    """Return the dtype of a name, if it is one of floats of more than 8 bits."""
    dtype = DTYPES.get(str(name).removeprefix("torch."), default)
    return dtype if "float" in dtype.name and dtype.bits > 8 else default


def spread(values: Array, shape: tuple[int, ...], blocks: Sequence[int] = ()) -> Array:
    """Return one value for each element of a shape, of values of blocks (see `check_scale`)."""
    import numpy as np

    while values.ndim < len(shape):
        values = values[..., None]
    for axis, size in enumerate(shape):
        count = values.shape[axis]
        if count not in (1, size):
            values = np.repeat(values, blocks[axis] if blocks else size // count, axis)
            values = values[(slice(None),) * axis + (slice(size),)]
    return values
