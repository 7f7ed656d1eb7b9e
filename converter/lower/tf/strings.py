"""String ops, as far as ONNX supports them: mostly opset 20 (concat, split, regex match).

Ops of constants only are folded while lowering.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from converter.lower.fingerprints import fingerprint
from converter.lower.graph import Attribute
from converter.lower.table import Variant
from converter.lower.tf import extents
from converter.lower.tf.arrays import fill_like
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.session import Session
from converter.lower.tf.state import texts
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.tf.tables import ML
from converter.lower.values import Value

NEWER = 20  # the opset that has StringConcat, StringSplit and RegexFullMatch


def _newer(op: Context, what: str) -> None:
    """Check that the opset has string operators.

    Raises:
        Unsupported: The opset is older than 20.
    """
    if op.graph.opset < NEWER:
        raise Unsupported(f"{what} takes opset={NEWER}")


def _bytes(array: np.ndarray) -> list[bytes]:
    return [t if isinstance(t, bytes) else str(t).encode() for t in array.reshape(-1)]


def _fold(op: Context, x: Value, function: Callable[[bytes], bytes]) -> Value | None:
    """Apply a function to constant strings; return None for others."""
    known = op.static(x)
    if known is None:
        return None
    return op.constant(texts([function(t) for t in _bytes(known)], known.shape))


# -- numbers ---------------------------------------------------------------------------------------


@tf_op("AsString")
def as_string(
    op: Context, input: Value, /, *, precision: int = -1, scientific: bool = False,
    shortest: bool = False, width: int = -1, fill: str = "",
) -> Value:  # fmt: skip
    """Values formatted as strings."""
    if input.dtype == "string":
        return input
    if width > 0:
        raise Unsupported(f"numbers of {width} letters, filled with {fill!r}")
    if input.is_float:
        # onnxruntime formats as C's "%.8g", but spells inf and NaN differently.
        if input.dtype != "float32" or not shortest or scientific or precision != 8:
            raise Unsupported(
                f"{input.dtype} as text, but float32 with shortest=True and precision=8"
            )
        made = op.cast(input, "string")
        for bad, word in ((math.inf, "inf"), (-math.inf, "-inf")):
            is_so = op.elementwise("Equal", input, op.constant(bad, input.dtype))
            made = op.where(is_so, op.constant(np.array(word, object)), made)
        return op.where(op.unary("IsNaN", input), op.constant(np.array("nan", object)), made)
    if input.dtype == "bool":
        yes, no = (op.constant(np.array(t, object)) for t in ("true", "false"))
        return op.where(input, yes, no)
    return op.cast(input, "string")


@tf_op("StringToNumber")
def string_to_number(op: Context, string_tensor: Value, /, *, node: Node) -> Value:
    """Strings parsed as numbers."""
    return op.cast(string_tensor, node.attribute("out_type", "float32"))


@tf_op("StringToHashBucketFast")
def hash_bucket_fast(op: Session, input: Value, /, *, num_buckets: int) -> Value:
    """The hash bucket of each string; for a graph input, its fingerprints become the input."""
    if num_buckets == 1:
        return hash_bucket(op, input, num_buckets=1)
    known = op.static(input)
    if known is not None:
        try:
            found = [fingerprint(text) % num_buckets for text in _bytes(known)]
        except ValueError as e:
            raise Unsupported(str(e)) from e
        return op.constant(np.array(found, np.int64).reshape(known.shape))
    numbers = op.cast(op.decoded.fingerprint(op.plain(input)), "uint64")
    return op.cast(op.elementwise("Mod", numbers, op.constant(num_buckets, "uint64")), "int64")


@tf_op("StringToHashBucket")
def hash_bucket(op: Context, input: Value, /, *, num_buckets: int) -> Value:
    """The hash bucket of each string; only for one bucket."""
    if num_buckets != 1:
        raise Unsupported(f"hashes of strings, in {num_buckets} buckets")
    return fill_like(op, input, op.constant(0, "int64"))


@tf_op("StringToHashBucketStrong")
def hash_bucket_strong(
    op: Context, input: Value, /, *, num_buckets: int, key: Sequence[int]
) -> Value:
    """The hash bucket of each string; only for one bucket."""
    del key
    return hash_bucket(op, input, num_buckets=num_buckets)


# -- characters ------------------------------------------------------------------------------------


def _ascii(text: bytes, *, upper: bool) -> bytes:
    return text.upper() if upper else text.lower()  # of bytes: changes ASCII letters only


@tf_op(
    Variant("StringLower", "Strings in lower case.", upper=False),
    Variant("StringUpper", "Strings in upper case.", upper=True),
)
def change_case(op: Context, input: Value, /, *, upper: bool, encoding: str = "") -> Value:
    """Strings in lower or upper case."""

    def change(text: bytes) -> bytes:
        if encoding == "utf-8":
            whole = text.decode(errors="replace")
            return (whole.upper() if upper else whole.lower()).encode()
        return _ascii(text, upper=upper)

    found = _fold(op, input, change)
    if found is not None:
        return found
    if encoding:
        raise Unsupported(
            "the case of letters beyond ASCII's, which depends on where the file runs"
        )
    count = extents.product(op, extents.of_all(op, input))
    made = op.emit(
        "StringNormalizer", extents.reshape_to(op, input, [count]), dtype="string",
        shape=(count.dim,), case_change_action="UPPER" if upper else "LOWER", locale="C",
    )  # fmt: skip
    return extents.reshape_to(op, made, extents.of_all(op, input))


@tf_op("StringStrip")
def string_strip(op: Context, input: Value, /) -> Value:
    """Strings without leading and trailing white space."""
    found = _fold(op, input, bytes.strip)
    if found is None:
        raise Unsupported("white space of strings that are computed")
    return found


@tf_op("StringLength")
def string_length(op: Context, input: Value, /, *, unit: str = "BYTE") -> Value:
    """The length of strings, in bytes or characters."""
    known = op.static(input)
    if known is None:
        raise Unsupported("the length of strings that are computed")
    sizes = [len(t.decode(errors="replace") if unit == "UTF8_CHAR" else t) for t in _bytes(known)]
    return op.constant(np.array(sizes, np.int32).reshape(known.shape))


@tf_op("Substr")
def substr(op: Session, input: Value, pos: Value, len: Value, /, *, unit: str = "BYTE") -> Value:
    """A substring of each string; of an encoded image input, the first bytes of a PNG file."""
    first, count = op.static(pos), op.static(len)
    if first is None or count is None or first.size != 1 or count.size != 1:
        raise Unsupported("substrings at positions that are computed")
    begin, many = int(first.reshape(-1)[0]), int(count.reshape(-1)[0])
    if op.static(input) is None:
        # A graph that reads the first bytes selects a decoder by them.
        return op.constant(texts([op.decoded.begins(input, begin, many)], ()))
    if begin < 0 or many < 0:
        raise Unsupported(f"a part of a text from {begin}, {many} long")

    def cut(text: bytes) -> bytes:
        if unit == "UTF8_CHAR":
            return text.decode(errors="replace")[begin : begin + many].encode()
        return text[begin : begin + many]

    found = _fold(op, input, cut)
    assert found is not None
    return found


# -- joining and splitting -------------------------------------------------------------------------


@tf_op("StringJoin")
def string_join(op: Context, *inputs: Value, separator: str = "") -> Value:
    """Strings joined elementwise, with a separator."""
    known = [op.static(v) for v in inputs]
    arrays = [a for a in known if a is not None]
    if len(arrays) == len(inputs):
        wide = np.broadcast_arrays(*arrays)
        rows = zip(*(_bytes(a) for a in wide), strict=True)
        return op.constant(texts([separator.encode().join(r) for r in rows], wide[0].shape))
    if len(inputs) == 1:
        return inputs[0]
    _newer(op, "concatenation of strings")
    between = op.constant(np.array(separator, object))
    made = inputs[0]
    for value in inputs[1:]:
        if separator:
            made = op.elementwise("StringConcat", made, between)
        made = op.elementwise("StringConcat", made, value)
    return made


@tf_op("ReduceJoin")
def reduce_join(
    op: Context, inputs: Value, reduction_indices: Value, /, *,
    keep_dims: bool = False, separator: str = "",
) -> Value:  # fmt: skip
    """Strings joined along axes, of which the first named changes fastest."""
    axes = [inputs.axis(a) for a in op.ints(reduction_indices, "axes")]
    if not axes:
        return inputs
    order = [i for i in range(inputs.rank) if i not in axes] + axes[::-1]
    count = 1
    for axis in axes:
        size = inputs.shape[axis]
        if not isinstance(size, int):
            raise Unsupported("joining an unknown number of strings")
        count *= size
    if not count:
        raise Unsupported("joining no strings")
    kept = [i for i in range(inputs.rank) if i not in axes]
    sides = [extents.of(op, inputs, i) for i in kept]
    flat = extents.reshape_to(op, op.transpose(inputs, order), [*sides, extents.number(op, count)])
    known = op.static(inputs)
    if known is not None:
        rows = known.transpose(order).reshape(-1, count)
        between = separator.encode()
        whole = texts([between.join(_bytes(r)) for r in rows], tuple(known.shape[i] for i in kept))
        made = op.constant(whole)
    else:
        parts = op.split(flat, -1, [1] * count) if count > 1 else [flat]
        made = string_join(op, *(op.squeeze(p, [-1]) for p in parts), separator=separator)
    return op.unsqueeze(made, sorted(axes)) if keep_dims else made


def _not_empty(op: Context, x: Value) -> Value:
    """Return the mask of non-empty strings, by LabelEncoder: opset 18 cannot compare strings."""
    attributes: dict[str, Attribute] = {
        "keys_strings": [""], "values_int64s": [0], "default_int64": 1,
    }  # fmt: skip
    (found,) = op.node(
        "LabelEncoder", [x], [("int64", x.shape)], attributes=attributes, stored=x.stored,
        domain=ML,
    )  # fmt: skip
    return op.cast(found, "bool")


def _split(
    op: Context, input: Value, delimiter: str | None, limit: int, *,
    skipped: bool = False, of_nothing: int = 0,
) -> list[Value]:  # fmt: skip
    """Split strings [n]; return indices [m, 2], values [m] and shape of a sparse tensor.

    Args:
        op: The builder.
        input: The strings.
        delimiter: Delimiter, or None for white space.
        limit: Maximum number of splits, or -1.
        skipped: Whether empty parts are dropped.
        of_nothing: Number of parts of an empty string, 0 or 1; onnxruntime returns none.
    """
    attributes: dict[str, Any] = {}
    if delimiter is not None:
        attributes["delimiter"] = delimiter
    if limit >= 0:
        attributes["maxsplit"] = limit
    count = input.shape[0]
    parts, lengths = op.node(
        "StringSplit", [op.plain(input)], [("string", (count, None)), ("int64", (count,))],
        attributes=attributes,
    )  # fmt: skip
    if of_nothing:
        one = extents.number(op, 1)
        blank = op.constant(np.array("", object))
        column = extents.fill(op, blank, [extents.of(op, input, 0), one])
        parts = op.concat([parts, column], 1)
        lengths = op.elementwise("Max", lengths, op.constant(1, "int64"))
    line = extents.count_to(op, extents.of(op, parts, 1))
    there = op.elementwise("Less", line, op.unsqueeze(lengths, [1]))
    if skipped:
        there = op.elementwise("And", there, _not_empty(op, parts))
    numbers = op.cast(there, "int64")
    found = op.transpose(op.emit("NonZero", there, dtype="int64", shape=(2, None)), [1, 0])
    values = op.emit("GatherND", parts, found, dtype="string", shape=(None,))
    places = found
    if skipped:
        lengths = op.reduce("ReduceSum", numbers, [1])
        axis = op.constant(1, "int64")
        seen = op.emit("CumSum", numbers, axis, dtype="int64", shape=numbers.shape)
        columns = op.emit("GatherND", seen, found, dtype="int64", shape=(None,))
        columns = op.sub(op.unsqueeze(columns, [1]), op.constant(1, "int64"))
        places = op.concat([op.slice(found, [1], [0], [1]), columns], 1)
    some = op.concat([op.constant([0], "int64"), lengths], 0)  # there may be no strings
    longest = op.reduce("ReduceMax", some, [0], keepdims=True)
    return [places, values, op.concat([op.size(input, 0), longest], 0)]


@tf_op("StringSplitV2", outputs=("indices", "values", "shape"))
def string_split_v2(op: Context, input: Value, sep: Value, /, *, maxsplit: int = -1) -> list[Value]:
    """Strings split at a separator or at white space, as a sparse tensor."""
    _newer(op, "splitting strings")
    found = op.static(sep)
    if found is None:
        raise Unsupported("a separator that is computed")
    text = str(found.reshape(-1)[0])
    if maxsplit == 0 or (maxsplit > 0 and not text):
        raise Unsupported(f"maxsplit {maxsplit}{'' if text else ' at white space'}")
    return _split(op, input, text or None, maxsplit, of_nothing=int(bool(text)))


@tf_op("StringSplit", outputs=("indices", "values", "shape"))
def string_split(
    op: Context, input: Value, delimiter: Value, /, *, skip_empty: bool = True
) -> list[Value]:
    """Strings split at a character, as a sparse tensor."""
    _newer(op, "splitting strings")
    found = op.static(delimiter)
    if found is None or len(str(found.reshape(-1)[0])) != 1:
        raise Unsupported("splitting strings at several characters, or at each")
    return _split(op, input, str(found.reshape(-1)[0]), -1, skipped=skip_empty)


# -- patterns --------------------------------------------------------------------------------------


@tf_op("StaticRegexFullMatch")
def static_full_match(op: Context, input: Value, /, *, pattern: str) -> Value:
    """Whether each string fully matches a regular expression."""
    _newer(op, "matching strings")
    return op.unary("RegexFullMatch", input, dtype="bool", pattern=pattern)


@tf_op("RegexFullMatch")
def full_match(op: Context, input: Value, pattern: Value, /) -> Value:
    """Whether each string fully matches a regular expression."""
    found = op.static(pattern)
    if found is None:
        raise Unsupported("a pattern that is computed")
    return static_full_match(op, input, pattern=str(found.reshape(-1)[0]))


PLAIN = re.compile(r"[\w \-/:,;%@=!<>&'\"~`]*", re.ASCII)


@tf_op("StaticRegexReplace")
def static_replace(
    op: Context, input: Value, /, *, pattern: str, rewrite: str, replace_global: bool = True
) -> Value:
    """Strings with matches of a pattern replaced; only for patterns of plain text."""
    if not PLAIN.fullmatch(pattern) or "\\" in rewrite or not pattern:
        raise Unsupported(f"the pattern {pattern!r}, replaced")
    found = _fold(
        op, input,
        lambda t: t.replace(pattern.encode(), rewrite.encode(), -1 if replace_global else 1),
    )  # fmt: skip
    if found is None:
        raise Unsupported("replacement of a pattern in strings that are computed")
    return found


@tf_op("RegexReplace")
def regex_replace(
    op: Context, input: Value, pattern: Value, rewrite: Value, /, *, replace_global: bool = True
) -> Value:
    """Strings with matches of a pattern replaced; only for patterns of plain text."""
    known = [op.static(v) for v in (pattern, rewrite)]
    if known[0] is None or known[1] is None:
        raise Unsupported("a pattern that is computed")
    return static_replace(
        op, input, pattern=str(known[0].reshape(-1)[0]), rewrite=str(known[1].reshape(-1)[0]),
        replace_global=replace_global,
    )  # fmt: skip
