"""A quantised layer: the tensors that stand for one weight, and the weight that they stand for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from converter.normalise.quantized.forms import (
    Dequantized,
    FindForm,
    Form,
    lazy_array,
    scale_dtype,
)
from formats.core.bundle import JSON
from formats.core.weights import DTYPES, DType, Tensor, numpy_dtype
from formats.errors import CorruptError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np

BAND = 1 << 20  # elements that are computed at once
MATRIX = 2  # axes
DEQUANTIZED = (  # dtypes of DequantizeLinear
    "int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
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

    def weight(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        compute: Callable[[], Iterator[Array]],
        find_form: FindForm,
    ) -> Dequantized:
        """Return the weight, which is computed when it is read and rounded once to its dtype.

        Args:
            dtype: Of the weight.
            shape: Outputs before inputs, as ``torch.nn.Linear`` has them.
            compute: Yields rows one after the other, in more precision.
            find_form: See `Dequantized`.
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

        def find_turned_form() -> Form | str:
            form = find_form()
            return replace(form, axes=(1, 0)) if isinstance(form, Form) else form

        if is_transposed:
            return Dequantized(Tensor.computed(dtype, shape[::-1], pieces), find_turned_form)
        return Dequantized(Tensor.computed(dtype, shape, pieces), find_form)


def bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield the rows of a shape, some at a time, which the caches of a processor hold."""
    step = max(1, BAND // max(1, prod(shape[1:])))
    for first in range(0, shape[0], step):
        yield slice(first, first + step)


def scale_values(
    layer: Layer, role: str, scale_role: str = "scale", *, dtype: DType | None = None,
    blocks: Sequence[int] = (), factor: float | None = None,
) -> Dequantized:  # fmt: skip
    """Return ``scale * (values - zero_point)`` of integers or floats that are not packed.

    Args:
        layer: The layer.
        role: Of the values.
        scale_role: Of the scales.
        dtype: Of the weight; by default that of the scales.
        blocks: See `check_scale`.
        factor: Of the product, before it is rounded.

    Raises:
        CorruptError: The tensors do not fit each other.
        UnsupportedError: The values have more than 8 bits: they may be scaled already.
    """
    values, scale = layer.need(role), layer.need(scale_role, dtype="float")
    if values.dtype.bits > 8:
        raise UnsupportedError(f"quantised weights of dtype {values.dtype}", where=layer.name)
    check_scale(layer, scale, values.shape, blocks)
    shape, dtype = values.shape, dtype or scale.dtype
    zeros = layer.parts.get("zero_point")
    layer.check(
        fits=zeros is None or zeros.shape == scale.shape, why="zero points and scales do not fit"
    )

    def compute() -> Iterator[Array]:
        import numpy as np

        found = layer.read(role).astype(np.float32)
        if zeros is not None:
            found = found - spread(zeros.numpy().astype(np.float32), shape, blocks)
        found = found * spread(layer.read(scale_role).astype(np.float32), shape, blocks)
        yield found if factor is None else found * np.float32(factor)

    def find_form() -> Form | str:
        if values.dtype.name not in DEQUANTIZED:
            return f"ONNX dequantises no {values.dtype}"
        if zeros is not None and not _fits(zeros, values.dtype):
            return f"a zero point is no {values.dtype}"
        count = scale.shape[-1] if len(scale.shape) == len(shape) else 1
        by_block = scale.size > 1 and (count > 1 or len(shape) != MATRIX)
        places = (*shape[:-1], count) if by_block else shape[:1] if scale.size > 1 else ()

        def reshape_part(part: Tensor, kind: str) -> Tensor:
            def make() -> Array:
                found = _of_rows(part.numpy(), shape, blocks) if places else part.numpy()
                return found.reshape(places).astype(numpy_dtype(DTYPES[kind]))

            return lazy_array(kind, places, make)

        size = blocks[-1] if blocks and count > 1 else shape[-1] // count
        kind = scale_dtype(scale.dtype, dtype) if factor is None else "float32"
        return Form(
            dtype, values, reshape_part(scale, kind),
            None if zeros is None else reshape_part(zeros, values.dtype.name),
            block=size if by_block else 0, factor=factor,
        )  # fmt: skip

    return layer.weight(dtype, shape, compute, find_form)


def _fits(zeros: Tensor, dtype: DType) -> bool:
    """Return whether zero points are integers of a dtype; a float of 8 bits has none."""
    import numpy as np

    if "int" not in dtype.name:
        return False
    found = zeros.numpy()
    with np.errstate(all="ignore"):
        return bool((found.astype(numpy_dtype(dtype)).astype(np.float64) == found).all())


def _of_rows(values: Array, shape: tuple[int, ...], blocks: Sequence[int]) -> Array:
    """Return values of blocks for each row of a shape, and for each block of its last axis."""
    import numpy as np

    while values.ndim < len(shape):
        values = values[..., None]
    whole = spread(values, (*shape[:-1], values.shape[-1]), blocks)
    return np.broadcast_to(whole, (*shape[:-1], values.shape[-1]))


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
