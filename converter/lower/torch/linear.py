"""Products of matrices, and sums of products."""

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase

from converter.lower.graph import Dim
from converter.lower.ops.einsum import contract
from converter.lower.torch.arithmetic import scale
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar, Tensors
from converter.lower.torch.promotion import kind, result_type
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@aten("linear")
def linear(op: Context, input: Value, weight: Value, bias: Value | None = None) -> Value:
    """`x @ weight.T + bias`."""
    if weight.rank == 1:
        found = product(op, input, weight)
    elif input.rank == 2 and bias is not None and kind(input.dtype) == 2:
        return _gemm(op, input, weight, bias, transposed=True)
    else:
        found = product(op, input, weight.transposed([1, 0]))
    return found if bias is None else op.add(found, bias)


def _gemm(op: Context, a: Value, b: Value, c: Value, *, transposed: bool) -> Value:
    """Return a @ b + c for matrices; a transposed b stays as it is stored."""
    if a.dtype == "bfloat16":
        made = op.matmul(a, b.transposed([1, 0]) if transposed else b)
        return op.add(made, c)
    shape = (a.shape[0], b.shape[0 if transposed else 1])
    inputs = [op.outer(a), op.outer(b), op.outer(c)]
    more = {"transB": 1} if transposed else {}
    return op.node("Gemm", inputs, [(a.dtype, shape)], attributes=more)[0]


def product(op: Context, a: Value, b: Value) -> Value:
    """Return the product of matrices, vectors, or batches of them, as numpy's matmul.

    Raises:
        Unsupported: One has no axes, or they are not of one dtype.
    """
    if not a.rank or not b.rank:
        raise Unsupported("a product of a scalar")
    if a.dtype != b.dtype:
        raise Unsupported(f"a product of {a.dtype} and {b.dtype}")
    left = op.unsqueeze(a, [0]) if a.rank == 1 else a
    right = op.unsqueeze(b, [1]) if b.rank == 1 else b
    made = op.matmul(left, right)
    gone = ([-2] if a.rank == 1 else []) + ([-1] if b.rank == 1 else [])
    return op.squeeze(made, gone) if gone else made


@aten("matmul", "linalg_matmul", "vdot")
def matmul(op: Context, self: Value, other: Value) -> Value:
    """The matrix product of matrices, vectors or batches."""
    return product(op, self, other)


@aten("mm", "bmm")
def mm(op: Context, self: Value, mat2: Value) -> Value:
    """The product of matrices, or of batches of them."""
    return product(op, self, mat2)


@aten("mv")
def mv(op: Context, self: Value, vec: Value) -> Value:
    """The product of a matrix and a vector."""
    return product(op, self, vec)


@aten("dot")
def dot(op: Context, self: Value, tensor: Value) -> Value:
    """The dot product of two vectors."""
    return product(op, self, tensor)


@aten("addmm")
def addmm(
    op: Context, self: Value, mat1: Value, mat2: Value, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """`beta * a + alpha * b @ c`."""
    stored = mat2.transposed([1, 0])
    if beta == alpha == 1 and kind(mat1.dtype) == 2:
        if stored.is_plain and not mat2.is_plain:
            return _gemm(op, mat1, stored, self, transposed=True)
        return _gemm(op, mat1, mat2, self, transposed=False)
    return _sum(op, self, product(op, mat1, mat2), beta, alpha)


@aten("addbmm")
def addbmm(
    op: Context, self: Value, batch1: Value, batch2: Value, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """`beta * a + alpha * sum(b @ c)`, summed over the batch."""
    made = op.reduce("ReduceSum", product(op, batch1, batch2), [0])
    return _sum(op, self, made, beta, alpha)


@aten("baddbmm")
def baddbmm(
    op: Context, self: Value, batch1: Value, batch2: Value, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """`beta * a + alpha * b @ c`, for batches."""
    return _sum(op, self, product(op, batch1, batch2), beta, alpha)


@aten("addmv")
def addmv(
    op: Context, self: Value, mat: Value, vec: Value, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """`beta * a + alpha * b @ c` for a vector c."""
    return _sum(op, self, product(op, mat, vec), beta, alpha)


@aten("addr")
def addr(
    op: Context, self: Value, vec1: Value, vec2: Value, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """`beta * a + alpha * outer(b, c)`."""
    return _sum(op, self, outer(op, vec1, vec2), beta, alpha)


def _sum(op: Context, a: Value, b: Value, beta: Scalar, alpha: Scalar) -> Value:
    dtype = result_type(a, b)
    second = scale(op, b, alpha, dtype)
    assert isinstance(second, Value)
    if isinstance(beta, int | float) and beta == 0:  # what a holds does not matter, NaN included
        return op.expand(second, op.broadcast(op.named(a).shape, op.named(b).shape))
    first = scale(op, a, beta, dtype)
    assert isinstance(first, Value)
    return op.add(first, second)


@aten("outer", "ger")
def outer(op: Context, self: Value, vec2: Value) -> Value:
    """The outer product of two vectors."""
    dtype = result_type(self, vec2)
    column, row = op.unsqueeze(op.cast(self, dtype), [1]), op.unsqueeze(op.cast(vec2, dtype), [0])
    return op.mul(column, row)


@aten("bilinear")
def bilinear(
    op: Context, input1: Value, input2: Value, weight: Value, bias: Value | None = None
) -> Value:
    """`a @ weight @ b` for each matrix of the weight."""
    shape = (*op.named(input1).shape[:-1], weight.shape[0])
    half = einsum(op, "...i,oij->...oj", [input1, weight])
    found = op.reduce("ReduceSum", op.mul(half, op.unsqueeze(input2, [-2])), [-1])
    found = op.shaped(found, shape)
    return found if bias is None else op.add(found, bias)


@aten("_trilinear")
def trilinear(
    op: Context, i1: Value, i2: Value, i3: Value, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """Products of three expanded tensors, summed over axes."""
    del unroll_dim  # how
    wide = [
        op.unsqueeze(x, axes) if axes else x
        for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    return op.reduce("ReduceSum", op.mul(op.mul(wide[0], wide[1]), wide[2]), sumdim)


@aten("einsum")
def einsum(
    op: Context, equation: str, tensors: Tensors, path: Sequence[int] | None = None
) -> Value:
    """An einsum."""
    del path  # in which order it is computed
    text = equation.replace(" ", "")
    terms, out = _expand_ellipses(text, tensors)
    known: dict[str, Dim] = {}
    values = []
    for term, x in zip(terms, tensors, strict=True):
        named = op.named(x)
        for letter, n in zip(term, named.shape, strict=True):
            if known.get(letter, 1) == 1:
                known[letter] = n
        values.append(named)
    shape = tuple(known[letter] for letter in out)
    if any(
        n == 1 and known[letter] != 1
        for term, x in zip(terms, values, strict=True)
        for letter, n in zip(term, x.shape, strict=True)
    ):
        raise Unsupported("einsum that broadcasts axes of one element")
    return contract(op, f"{','.join(terms)}->{out}", *values, shape=shape)


def _expand_ellipses(text: str, tensors: Tensors) -> tuple[list[str], str]:
    """Return the letters of each tensor and of the result, with ellipses replaced."""
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise Unsupported(f"einsum {text!r} of {len(tensors)} tensors")
    free = [c for c in ascii_lowercase + ascii_uppercase if c not in text]
    spelled = []
    most = 0
    for term, x in zip(terms, tensors, strict=True):
        count = x.rank - len(term.replace("...", "")) if "..." in term else 0
        if count < 0 or count > len(free):
            raise Unsupported(f"einsum {text!r} of {x.rank} axes")
        most = max(most, count)
        spelled.append((term, count))
    dots = "".join(free[:most])
    found = [term.replace("...", dots[most - n :]) for term, n in spelled]
    if any(len(t) != x.rank for t, x in zip(found, tensors, strict=True)):
        raise Unsupported(f"einsum {text!r}")
    if arrow:
        return found, out.replace("...", dots)
    letters = "".join(t for t in found)
    once = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots)
    return found, dots + "".join(once)


@aten("tensordot")
def tensordot(
    op: Context, self: Value, other: Value, dims_self: Sequence[int], dims_other: Sequence[int]
) -> Value:
    """A tensor contraction over axes of both; axes of size 1 are broadcast."""
    for a, b in zip(dims_self, dims_other, strict=True):
        if self.shape[a] == 1 != other.shape[b]:
            other = op.reduce("ReduceSum", other, [b], keepdims=True)
        elif other.shape[b] == 1 != self.shape[a]:
            self = op.reduce("ReduceSum", self, [a], keepdims=True)
    first = list(ascii_lowercase[: self.rank])
    second = list(ascii_uppercase[: other.rank])
    for a, b in zip(dims_self, dims_other, strict=True):
        second[other.axis(b)] = first[self.axis(a)]
    out = [c for c in first if c not in second] + [c for c in second if c not in first]
    return einsum(op, f"{''.join(first)},{''.join(second)}->{''.join(out)}", [self, other])


@aten("chain_matmul")
def chain_matmul(op: Context, matrices: Tensors) -> Value:
    """The product of several matrices."""
    return multi_dot(op, matrices)


@aten("linalg_multi_dot")
def multi_dot(op: Context, tensors: Tensors) -> Value:
    """The product of several matrices."""
    found = tensors[0]
    for other in tensors[1:]:
        found = product(op, found, other)
    return found
