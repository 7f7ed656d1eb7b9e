"""Matrices of integers whose columns share a scale and a zero point in groups, for each row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from converter.normalise.quantized.forms import (
    LARGEST,
    Dequantized,
    Form,
    lazy_array,
    lazy_values,
    scale_dtype,
)
from converter.normalise.quantized.layer import Array, Layer
from formats.core.weights import DType, Tensor

FEW_BITS = 4


@dataclass(frozen=True, slots=True)
class Grouped:
    """A matrix ``(values - zeros) * scales``.

    Attributes:
        layer: The layer.
        dtype: Of the weight and of the stored scales.
        shape: Rows are outputs, columns are inputs.
        groups: Number of groups of columns.
        bits: Of an integer.
        read_values: Yields rows of integers in bytes, some at a time.
        read_zeros: Returns zero points in float32; shape ``(rows, groups)``.
        read_scales: Returns scales as stored; shape ``(rows, groups)``.
        read_groups: Returns the group of each column, as stored; None: each has as many columns,
            one after the other.
    """

    layer: Layer
    dtype: DType
    shape: tuple[int, int]
    groups: int
    bits: int
    read_values: Callable[[], Iterator[Array]]
    read_zeros: Callable[[], Array]
    read_scales: Callable[[], Array]
    read_groups: "Callable[[], Array | None]" = lambda: None

    def dequantized(self) -> Dequantized:
        """Return the weight."""
        return self.layer.weight(self.dtype, self.shape, self._compute, self._find_form)

    def _compute(self) -> Iterator[Array]:
        import numpy as np

        zeros, factors = self.read_zeros(), self.read_scales().astype(np.float32)
        groups, first = self._find_groups(), 0
        for values in self.read_values():
            own = [v[first : first + len(values)] for v in (zeros, factors)]
            yield in_blocks(values, *(own if groups is None else (v[:, groups] for v in own)))
            first += len(values)

    def _find_form(self) -> Form | str:
        import numpy as np

        zeros, groups = self.read_zeros(), self._find_groups()
        dtype = "uint4" if self.bits <= FEW_BITS and zeros.max() <= LARGEST["uint4"] else "uint8"
        is_stored = (zeros >= 0) & (zeros <= LARGEST[dtype]) & (zeros == np.floor(zeros))
        if not is_stored.all():
            return f"a zero point is {zeros[~is_stored][0]:g}"
        order = None
        if groups is not None:
            counts = np.bincount(groups, minlength=self.groups)
            if counts.min() != counts.max():
                return "groups of inputs have different sizes"
            order = np.argsort(groups, kind="stable")
        parts = (self.shape[0], self.groups) if self.groups > 1 else (self.shape[0],)
        stored = scale_dtype(self.dtype, self.dtype)
        return Form(
            self.dtype,
            lazy_values(dtype, self.shape, lambda: self._in_order(order)),
            lazy_array(stored, parts, lambda: self.read_scales().astype(stored)),
            lazy_values(dtype, parts, lambda: [self.read_zeros().astype(np.uint8)]),
            block=self.shape[1] // self.groups if self.groups > 1 else 0,
            order=None if order is None else _invert(order),
        )

    def _find_groups(self) -> "Array | None":
        """Return the group of each column; None: each has as many, one after the other.

        Raises:
            CorruptError: There is no group for a column.
        """
        import numpy as np

        found, columns = self.read_groups(), self.shape[1]
        if found is None:
            return None
        self.layer.check(
            fits=found.shape == (columns,) and found.min() >= 0 and found.max() < self.groups,
            why="g_idx names groups that are not there",
        )
        in_order = np.arange(columns) * self.groups // columns
        return None if not columns % self.groups and (found == in_order).all() else found

    def _in_order(self, order: "Array | None") -> Iterator[Array]:
        for values in self.read_values():
            yield values if order is None else values[:, order]


def _invert(order: Array) -> Tensor:
    """Return the places of the columns that are in an order."""
    import numpy as np

    inverse = np.argsort(order).astype(np.int64)
    return lazy_array("int64", inverse.shape, lambda: inverse)


def in_blocks(values: Array, zeros: Array, factors: Array) -> Array:
    """Return ``(values - zeros) * factors`` of matrices, where columns share both in blocks."""
    import numpy as np

    blocks = values.reshape(len(values), zeros.shape[1], -1).astype(np.float32)
    blocks -= zeros[..., None]
    blocks *= factors[..., None]
    return blocks.reshape(values.shape)
