"""Matrix products, einsum and the cross product.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels (matmul_op,
batch_matmul_op, linalg/einsum_op)
"""

from collections.abc import Sequence
from string import ascii_letters

from converter.lower.graph import Dim, Shape
from converter.lower.ops.einsum import contract
from converter.lower.tf.activations import apply_fused
from converter.lower.tf.context import Context
from converter.lower.tf.diagonals import along_diagonal
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value, broadcast

# -- matrices --------------------------------------------------------------------------------------


def transpose_if(op: Context, x: Value, is_turned: bool) -> Value:
    """Transpose the last two axes if `is_turned`."""
    order = list(range(x.rank))
    order[-2:] = reversed(order[-2:])
    return op.transpose(x, order) if is_turned else x


def product(op: Context, a: Value, b: Value, dtype: str | None = None) -> Value:
    """Return the matrix product in a dtype, by default that of `a`."""
    dtype = dtype or a.dtype
    return op.matmul(op.cast(a, dtype), op.cast(b, dtype))


@tf_op("MatMul")
def matmul(
    op: Context, a: Value, b: Value, /, *, transpose_a: bool = False, transpose_b: bool = False,
    grad_a: bool = False, grad_b: bool = False,
) -> Value:  # fmt: skip
    """The product of two matrices, either of which may be transposed."""
    del grad_a, grad_b
    return product(op, transpose_if(op, a, transpose_a), transpose_if(op, b, transpose_b))


@tf_op("SparseMatMul")
def sparse_matmul(
    op: Context, a: Value, b: Value, /, *, transpose_a: bool = False, transpose_b: bool = False,
    a_is_sparse: bool = False, b_is_sparse: bool = False,
) -> Value:  # fmt: skip
    """The product of two mostly zero, densely stored matrices, in float32."""
    del a_is_sparse, b_is_sparse
    return product(
        op, transpose_if(op, a, transpose_a), transpose_if(op, b, transpose_b), "float32"
    )


@tf_op("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(
    op: Context, x: Value, y: Value, /, *, node: Node, adj_x: bool = False, adj_y: bool = False,
    grad_x: bool = False, grad_y: bool = False,
) -> Value:  # fmt: skip
    """The batched product of matrices, with broadcast batch axes; either may be transposed."""
    del grad_x, grad_y
    dtype = node.attribute("Tout", x.dtype)
    return product(op, transpose_if(op, x, adj_x), transpose_if(op, y, adj_y), dtype)


@tf_op("_FusedMatMul")
def fused_matmul(
    op: Context, a: Value, b: Value, /, *args: Value, transpose_a: bool = False,
    transpose_b: bool = False, fused_ops: Sequence[str] = (), num_args: int = 0,
    epsilon: float = 1e-4, leakyrelu_alpha: float = 0.2,
) -> Value:  # fmt: skip
    """The product of two matrices, with fused bias and activation."""
    del num_args, epsilon
    result = matmul(op, a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    given = iter(args)
    for name in fused_ops:
        if name in ("BiasAdd", "Add"):
            result = op.add(result, next(given))
        else:
            result = apply_fused(op, name, result, leakyrelu_alpha)
    return result


# -- einsum ----------------------------------------------------------------------------------------


@tf_op("Einsum")
def einsum(op: Context, *inputs: Value, equation: str) -> Value:
    """Einstein summation; ellipses are broadcast, repeated letters take diagonals."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not arrow:
        letters = sorted({c for c in left if c.isalpha() and left.count(c) == 1})
        right = ("..." if "..." in left else "") + "".join(letters)
    if len(terms) != len(inputs):
        raise Unsupported(f"the equation {equation!r} of {len(inputs)} tensors")
    values = list(inputs)
    for i, term in enumerate(terms):
        terms[i], values[i] = _without_repeats(op, term, values[i])
    single = "".join(dict.fromkeys(right.replace("...", "")))
    if len(single) < len(right.replace("...", "")):
        raise Unsupported(
            f"the equation {equation!r}, whose result has elements on diagonals alone"
        )
    terms, values, right = _expand_ellipses(op, terms, values, right)
    shape = _einsum_shape(terms, values, right)
    return contract(op, f"{','.join(terms)}->{right}", *values, shape=shape)


def _without_repeats(op: Context, term: str, x: Value) -> tuple[str, Value]:
    """Return a term without repeated letters, and the diagonal of its tensor."""
    before, dots, after = term.partition("...")
    count = x.rank - len(before) - len(after) if dots else 0
    places = list(before) + ["."] * count + list(after)
    for letter in dict.fromkeys(before + after):
        while places.count(letter) > 1:
            first = places.index(letter)
            second = places.index(letter, first + 1)
            rest = [i for i in range(x.rank) if i not in (first, second)]
            x = along_diagonal(op, op.transpose(x, [*rest, first, second]))
            places = [places[i] for i in rest] + [letter]
    # The diagonal is now the last axis, so the ellipsis may be anywhere before it.
    text = "".join(places)
    return (text.replace("." * count, "...") if count else
            text if not dots else _with_dots(before, text)), x  # fmt: skip


def _with_dots(before: str, text: str) -> str:
    """Return a term with an ellipsis of no axes."""
    where = min(len(before), len(text))
    return f"{text[:where]}...{text[where:]}"


def _expand_ellipses(
    op: Context, terms: Sequence[str], values: Sequence[Value], right: str
) -> tuple[list[str], list[Value], str]:
    """Replace ellipses by letters, where their axes differ in shape.

    ONNX requires equal axes. An axis of size 1 is squeezed and gets no letter: so it is broadcast.
    """
    parts = []
    for term, value in zip(terms, values, strict=True):
        before, dots, after = term.partition("...")
        count = value.rank - len(before) - len(after) if dots else 0
        parts.append((before, value.shape[len(before) : len(before) + count], after))
    if len({shape for _, shape, _ in parts}) == 1 or "..." not in "".join(terms):
        return list(terms), list(values), right
    rank = max(len(shape) for _, shape, _ in parts)
    used = set("".join(terms) + right)
    letters = [c for c in ascii_letters if c not in used][:rank]
    wide: Shape = ()
    for _, shape, _ in parts:
        wide = broadcast(wide, shape)
    texts, made = [], []
    for (before, shape, after), value in zip(parts, values, strict=True):
        skipped = rank - len(shape)
        gone = [i for i, n in enumerate(shape) if n == 1 and wide[skipped + i] != 1]
        names = [letters[skipped + i] for i in range(len(shape)) if i not in gone]
        texts.append(before + "".join(names) + after)
        made.append(op.squeeze(value, [len(before) + i for i in gone]) if gone else value)
    return texts, made, right.replace("...", "".join(letters))


def _einsum_shape(terms: Sequence[str], values: Sequence[Value], right: str) -> Shape:
    sizes: dict[str, Dim] = {}
    wide: Shape = ()
    for term, value in zip(terms, values, strict=True):
        before, dots, after = term.partition("...")
        count = value.rank - len(before) - len(after)
        if count and not dots:
            raise Unsupported(f"a term {term!r} of {value.rank} axes")
        axes = value.shape
        middle = axes[len(before) : len(before) + count]
        wide = broadcast(wide, middle)
        rest = axes[: len(before)] + axes[len(before) + count :]
        for letter, size in zip(before + after, rest, strict=True):
            known = sizes.get(letter)
            if not isinstance(known, int):
                sizes[letter] = size if size is not None and size != 1 else known or size
    before, dots, after = right.partition("...")
    return (*(sizes[c] for c in before), *(wide if dots else ()), *(sizes[c] for c in after))


# -- cross product ---------------------------------------------------------------------------------


@tf_op("Cross")
def cross(op: Context, a: Value, b: Value, /) -> Value:
    """The cross product of vectors of three elements."""
    turn, back = op.constant([1, 2, 0], "int64"), op.constant([2, 0, 1], "int64")
    first = op.mul(op.gather(a, turn, -1), op.gather(b, back, -1))
    return op.sub(first, op.mul(op.gather(a, back, -1), op.gather(b, turn, -1)))
