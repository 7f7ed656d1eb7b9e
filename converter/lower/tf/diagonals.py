"""Diagonals of matrices: extraction, replacement, construction.

Element (i, j) is on diagonal j - i. Several diagonals are the rows of a matrix, the highest first,
padded to the longest; shorter ones are aligned to the left or the right of their row (``align``:
the alignment of those above the main diagonal, and of those below).
Spec: https://www.tensorflow.org/api_docs/python/tf/raw_ops/MatrixDiagPartV3
"""

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.known_values import Numbers, count, shape_of, size, vector, whole
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

ALIGNED = ("LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT")


def bounds(op: Context, k: Value, *, several: bool | None = None) -> tuple[Numbers, Numbers, bool]:
    """Return the lowest and highest diagonal, and whether there is only one.

    Args:
        op: The builder.
        k: One diagonal, or the lowest and the highest.
        several: Whether there are several where `k` is a computed pair; None if unknown.

    Raises:
        Unsupported: Whether there is only one is not static.
    """
    if k.rank == 0 or k.shape == (1,):
        only = whole(op, k if k.rank == 0 else op.squeeze(k, [0]))
        return only, only, True
    if several is not None and op.static(k) is None and k.shape == (2,):
        first, last = (op.reshape(op.slice(k, [0], [i], [i + 1]), ()) for i in range(2))
        return whole(op, first), whole(op, last), not several
    low, high = op.ints(k, "diagonals")
    return whole(op, low), whole(op, high), low == high


def _known(value: Numbers) -> Dim:
    return None if value.known is None else int(value.known)


def _lengths(rows: Numbers, columns: Numbers, number: Numbers) -> Numbers:
    """Return the length of a diagonal."""
    return (rows + number.least(0)).least(columns - number.most(0))


def _offset(length: Numbers, longest: Numbers, number: Numbers, align: str) -> Numbers:
    """Return the offset of a diagonal in its row."""
    if align not in ALIGNED:
        raise Unsupported(f"align {align!r}")
    above, below = align.split("_")
    away = longest - length
    if above == below:
        return away if above == "RIGHT" else away * 0
    is_above = number >= 0 if above == "RIGHT" else whole(number.op, 0) < number
    return is_above.choose(away, 0) if above == "RIGHT" else is_above.choose(0, away)


# -- extraction ------------------------------------------------------------------------------------


def take_diagonals(
    op: Context, x: Value, low: Numbers, high: Numbers, *, single: bool, align: str,
    padding: Value | None,
) -> Value:  # fmt: skip
    """Extract diagonals of matrices."""
    rows, columns = size(op, x, -2), size(op, x, -1)
    longest = (rows + high.least(0)).least(columns - low.most(0))
    places = count(op, longest)
    number = high
    if not single:
        number = high - count(op, high - low + 1).column()
    length = _lengths(rows, columns, number)
    place = places - _offset(length, longest, number, align)
    index = (place - number.least(0)) * columns + place + number.most(0)
    inside = (place >= 0) & (place < length)
    is_whole = single or inside.holds()
    if not is_whole:
        index = inside.choose(index, 0)
    flat = op.emit("Reshape", x, _flat(op, x), dtype=x.dtype, shape=(*x.shape[:-2], None))
    last = _known(longest)
    if last is None and single and _known(number) == 0:
        last = dims.least(x.shape[-2], x.shape[-1])
    inner = (last,) if single else (_known(high - low + 1), last)
    found = op.emit("Gather", flat, index.value, dtype=x.dtype, shape=(*x.shape[:-2], *inner),
                    axis=x.rank - 2)  # fmt: skip
    if is_whole:
        return found
    return op.where(inside.value, found, 0 if padding is None else padding)


def _flat(op: Context, x: Value) -> Value:
    """Return the shape of matrices whose last two axes are flattened."""
    leading: list[Numbers | int] = [size(op, x, i) for i in range(x.rank - 2)]
    return vector(op, [*leading, -1])


def along_diagonal(op: Context, x: Value) -> Value:
    """Extract the main diagonals of matrices as the last axis."""
    zero = whole(op, 0)
    return take_diagonals(op, x, zero, zero, single=True, align="LEFT_LEFT", padding=None)


@tf_op("MatrixDiagPart")
def matrix_diag_part(op: Context, input: Value, /) -> Value:
    """The main diagonals of matrices."""
    return along_diagonal(op, input)


@tf_op("MatrixDiagPartV2")
def matrix_diag_part_v2(op: Context, input: Value, k: Value, padding_value: Value, /) -> Value:
    """Diagonals of matrices, the highest first, aligned to the left."""
    return matrix_diag_part_v3(op, input, k, padding_value, align="LEFT_LEFT")


@tf_op("MatrixDiagPartV3")
def matrix_diag_part_v3(
    op: Context, input: Value, k: Value, padding_value: Value, /, *, align: str = "RIGHT_LEFT"
) -> Value:
    """Diagonals of matrices, the highest first."""
    low, high, single = bounds(op, k)
    return take_diagonals(op, input, low, high, single=single, align=align, padding=padding_value)


@tf_op("DiagPart")
def diag_part(op: Context, input: Value, /) -> Value:
    """Diagonal of a tensor of shape [*dims, *dims], as [*dims]."""
    half = input.rank // 2
    sides = [size(op, input, i) for i in range(half)]
    total: Numbers = whole(op, 1)
    for n in sides:
        total = total * n
    side = _known(total)
    square = op.emit("Reshape", input, vector(op, [total, total]), dtype=input.dtype,
                     shape=(side, side))  # fmt: skip
    found = along_diagonal(op, square)
    if half == 1:
        return found
    return op.emit("Reshape", found, vector(op, list(sides)), dtype=input.dtype,
                   shape=input.shape[:half])  # fmt: skip


# -- replacement and construction ------------------------------------------------------------------


def spread(
    op: Context, diagonals: Value, low: Numbers, high: Numbers, rows: Numbers, columns: Numbers, *,
    single: bool, align: str,
) -> tuple[Value, Numbers]:  # fmt: skip
    """Return matrices with these diagonals, and a mask of them; other elements are arbitrary."""
    longest = size(op, diagonals, -1)
    down, along = count(op, rows).column(), count(op, columns)
    number = along - down
    place = along - number.most(0)
    if not single:
        length = _lengths(rows, columns, number)
        place = place + _offset(length, longest, number, align) + (high - number) * longest
    inside = (number >= low) & (number <= high)
    index = inside.choose(place, 0)
    flat = diagonals
    if not single:
        # The exact number of elements: a wrong number of diagonals fails at run time.
        target = vector(op, [*(size(op, flat, i) for i in range(flat.rank - 2)),
                             (high - low + 1) * longest])  # fmt: skip
        flat = op.emit("Reshape", flat, target, dtype=flat.dtype,
                       shape=(*flat.shape[:-2], None))  # fmt: skip
    shape = (*flat.shape[:-1], *shape_of(index))
    found = op.emit("Gather", flat, index.value, dtype=flat.dtype, shape=shape, axis=flat.rank - 1)
    return found, inside


def make_matrices(
    op: Context, diagonals: Value, low: Numbers, high: Numbers, rows: Numbers, columns: Numbers, *,
    single: bool, align: str, padding: Value | None,
) -> Value:  # fmt: skip
    """Build matrices with these diagonals; a size of -1 means the smallest that fits."""
    longest = size(op, diagonals, -1)
    least_rows, least_columns = longest - high.least(0), longest + low.most(0)
    square = least_rows.most(least_columns)
    any_rows, any_columns = rows < 0, columns < 0
    rows, columns = (
        any_rows.choose(any_columns.choose(square, least_rows), rows),
        any_columns.choose(any_rows.choose(square, least_columns), columns),
    )
    found, inside = spread(op, diagonals, low, high, rows, columns, single=single, align=align)
    return op.where(inside.value, found, 0 if padding is None else padding)


@tf_op("MatrixDiag")
def matrix_diag(op: Context, diagonal: Value, /) -> Value:
    """Matrices with these main diagonals and zeros elsewhere."""
    zero, least = whole(op, 0), whole(op, -1)
    return make_matrices(op, diagonal, zero, zero, least, least, single=True, align="LEFT_LEFT",
                padding=None)  # fmt: skip


@tf_op("MatrixDiagV2")
def matrix_diag_v2(
    op: Context, diagonal: Value, k: Value, num_rows: Value, num_cols: Value,
    padding_value: Value, /,
) -> Value:  # fmt: skip
    """Matrices with these diagonals, aligned to the left; by default of the smallest size."""
    return matrix_diag_v3(op, diagonal, k, num_rows, num_cols, padding_value, align="LEFT_LEFT")


@tf_op("MatrixDiagV3")
def matrix_diag_v3(
    op: Context, diagonal: Value, k: Value, num_rows: Value, num_cols: Value,
    padding_value: Value, /, *, align: str = "RIGHT_LEFT",
) -> Value:  # fmt: skip
    """Matrices with these diagonals and a padding value elsewhere; by default the smallest."""
    low, high, single = bounds(op, k, several=diagonal.rank > 1 or None)
    rows, columns = whole(op, num_rows), whole(op, num_cols)
    return make_matrices(
        op, diagonal, low, high, rows, columns, single=single, align=align, padding=padding_value
    )


@tf_op("Diag")
def diag(op: Context, diagonal: Value, /) -> Value:
    """Tensor of shape [*dims, *dims] with this diagonal and zeros elsewhere."""
    flat = op.reshape(diagonal, (None,)) if diagonal.rank != 1 else diagonal
    matrix = matrix_diag(op, flat)
    if diagonal.rank == 1:
        return matrix
    sides = [size(op, diagonal, i) for i in range(diagonal.rank)]
    return op.emit("Reshape", matrix, vector(op, [*sides, *sides]), dtype=diagonal.dtype,
                   shape=(*diagonal.shape, *diagonal.shape))  # fmt: skip


def _set(
    op: Context, x: Value, diagonal: Value, low: Numbers, high: Numbers, *, single: bool, align: str
) -> Value:
    rows, columns = size(op, x, -2), size(op, x, -1)
    found, inside = spread(op, diagonal, low, high, rows, columns, single=single, align=align)
    return op.where(inside.value, found, x)


@tf_op("MatrixSetDiag")
def matrix_set_diag(op: Context, input: Value, diagonal: Value, /) -> Value:
    """Matrices with their main diagonals replaced."""
    zero = whole(op, 0)
    return _set(op, input, diagonal, zero, zero, single=True, align="LEFT_LEFT")


@tf_op("MatrixSetDiagV2")
def matrix_set_diag_v2(op: Context, input: Value, diagonal: Value, k: Value, /) -> Value:
    """Matrices with diagonals replaced; the new ones are aligned to the left."""
    return matrix_set_diag_v3(op, input, diagonal, k, align="LEFT_LEFT")


@tf_op("MatrixSetDiagV3")
def matrix_set_diag_v3(
    op: Context, input: Value, diagonal: Value, k: Value, /, *, align: str = "RIGHT_LEFT"
) -> Value:
    """Matrices with diagonals replaced."""
    low, high, single = bounds(op, k, several=diagonal.rank == input.rank)
    return _set(op, input, diagonal, low, high, single=single, align=align)


# -- bands -----------------------------------------------------------------------------------------


@tf_op("MatrixBandPart")
def matrix_band_part(op: Context, input: Value, num_lower: Value, num_upper: Value, /) -> Value:
    """Matrices with zeros outside a band; a negative number keeps all diagonals of that side."""
    x = input
    for number, upper in ((num_upper, 0), (num_lower, 1)):
        known = op.static(number)
        if known is not None and int(known) < 0:
            continue
        edge = whole(op, number)
        edge = (edge < 0).choose(1 << 31, edge)
        if upper:
            edge = edge * -1
        x = op.emit("Trilu", x, edge.value, dtype=x.dtype, shape=x.shape, upper=upper)
    return op.cast(x, input.dtype)
