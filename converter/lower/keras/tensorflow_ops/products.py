"""Functions of matrices: products, diagonals and bands."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations import indexing as i
from converter.lower.keras.operations import products as p
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import TF_FUNCTIONS, operation
from converter.lower.keras.tensorflow_ops.operands import integers, same_dtype
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.values import Value


@operation(TF_FUNCTIONS, "matmul")
def matmul(
    op: Builder, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False,
    adjoint_a: bool = False, adjoint_b: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False, output_type: str | None = None,
) -> Value:  # fmt: skip
    """The matrix product, with either matrix transposed if asked."""
    del a_is_sparse, b_is_sparse  # the matrices hold zeros, which makes no difference
    turned = {"adj_x": transpose_a or adjoint_a, "adj_y": transpose_b or adjoint_b}
    result = call_op(op, "BatchMatMulV2", *same_dtype(op, a, b), **turned)
    return op.cast(result, output_type) if output_type else result


@operation(TF_FUNCTIONS, "matvec")
def matvec(
    op: Builder, a: Any, b: Any, transpose_a: bool = False, adjoint_a: bool = False
) -> Value:
    """Matrices times vectors."""
    left, right = same_dtype(op, a, b)
    column = op.unsqueeze(right, [-1])
    return op.squeeze(matmul(op, left, column, transpose_a, adjoint_a=adjoint_a), [-1])


@operation(TF_FUNCTIONS, "tensordot")
def tensordot(op: Builder, a: Any, b: Any, axes: Any) -> Value:
    """The sum of products over pairs of axes."""
    return p.tensordot(op, *same_dtype(op, a, b), axes=axes)


@operation(TF_FUNCTIONS, "matrix_transpose")
def matrix_transpose(op: Builder, a: Any, conjugate: bool = False) -> Value:
    """Matrices transposed."""
    del conjugate  # there are no complex numbers here
    x = tensor(op, a)
    return op.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@operation(TF_FUNCTIONS, "trace")
def trace(op: Builder, x: Any) -> Value:
    """The sum of the diagonal of matrices."""
    return i.trace(op, x, axis1=-2, axis2=-1)


@operation(TF_FUNCTIONS, "band_part")
def band_part(op: Builder, input: Any, num_lower: Any, num_upper: Any) -> Value:
    """Matrices with zeros outside a band of diagonals; -1 keeps a whole side."""
    band = integers(op, num_lower), integers(op, num_upper)
    return call_op(op, "MatrixBandPart", tensor(op, input), *band)


@operation(TF_FUNCTIONS, "tensor_diag_part")
def tensor_diag_part(op: Builder, input: Any) -> Value:
    """The diagonal of a tensor whose dimensions are those of rows, then of columns."""
    return call_op(op, "DiagPart", tensor(op, input))


@operation(TF_FUNCTIONS, "diag_part")
def diag_part(
    op: Builder, input: Any, name: Any = None, k: Any = 0, padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Value:  # fmt: skip
    """The diagonals of matrices, padded to one length where there are several."""
    del name
    x = tensor(op, input)
    padding = tensor(op, padding_value, x.dtype)
    return call_op(op, "MatrixDiagPartV3", x, integers(op, k), padding, align=align)
