"""Mixtures of experts: rows grouped by expert, each group times a matrix of its own.

Spec: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.grouped_mm.html and
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/integrations/moe.py
"""

from converter.lower.builder import END
from converter.lower.torch.context import Context
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 512  # experts of one layer: each is a node or two


@aten("transformers.grouped_mm_fallback")
def grouped_mm_fallback(op: Context, input: Value, weight: Value, offs: Value) -> Value:
    """Groups of rows times the matrices of their experts."""
    experts, width = weight.shape[0], weight.shape[2]
    if not isinstance(experts, int) or not isinstance(width, int) or not 0 < experts <= MOST:
        raise Unsupported(f"{experts} experts; 1 to {MOST} are supported")
    x, ends = op.named(input), op.cast(offs, "int64")
    start, axis = op.constant([0], "int64"), op.constant([0], "int64")
    parts = []
    for i in range(experts):
        end = op.slice(ends, [0], [i], [i + 1])
        rows = op.emit("Slice", x, start, end, axis, dtype=x.dtype, shape=(None, x.shape[1]))
        matrix = op.squeeze(op.slice(weight, [0], [i], [i + 1]), [0])
        parts.append(op.matmul(rows, matrix))
        start = end
    # Rows behind the last group are zeros.
    rest = op.emit("Slice", x, start, op.constant([END], "int64"), axis, dtype=x.dtype,
                   shape=(None, x.shape[1]))  # fmt: skip
    sizes = op.concat([op.measured(rest, 0), op.constant([width], "int64")], 0)
    zero = op.constant(0, x.dtype)
    parts.append(op.emit("Expand", zero, sizes, dtype=x.dtype, shape=(None, width)))
    return op.shaped(op.concat(parts, 0), (x.shape[0], width))


@aten("_grouped_mm")
def grouped_mm(
    op: Context, self: Value, mat2: Value, offs: Value | None = None, bias: Value | None = None,
    out_dtype: int | None = None,
) -> Value:  # fmt: skip
    """Groups of rows, which offsets delimit, times the matrices of their experts."""
    if (
        offs is None
        or self.rank != 2
        or mat2.rank != 3
        or bias is not None
        or out_dtype is not None
    ):
        raise Unsupported("groups other than of the rows of a matrix, without bias")
    return grouped_mm_fallback(op, self, mat2, offs)
