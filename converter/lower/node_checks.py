"""Checks of the sizes and attributes of nodes against the rules of ONNX's operators.

Handlers assume that the framework validated the graph when it was built. A damaged or hand-made
graph may multiply matrices whose sizes do not match; each node is checked here, as far as sizes
are known. `legalize` checks dtypes.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from converter.lower.graph import Attribute, Dim
from converter.lower.legalize import INTEGRAL
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count

REALS = ("alpha", "beta", "gamma", "epsilon")  # attributes that are numbers in every operator
SHAPED = frozenset(("Expand", "Reshape", "Tile"))  # operators with a vector of sizes as 2nd input

Inputs = Sequence[Value | None]
Known = Callable[[Value], "np.ndarray | None"]
Rule = Callable[[Inputs, Mapping[str, Attribute], Known], None]


def check_sizes(
    op_type: str, inputs: Inputs, attributes: Mapping[str, Attribute], known: Known
) -> None:
    """Check that onnxruntime accepts the sizes of a node's inputs, as far as they are known.

    Args:
        op_type: ONNX's name of the operator.
        inputs: Inputs; None for an optional input that is omitted.
        attributes: Attributes under ONNX's names.
        known: Function that returns the elements of a value, or None where they are unknown.

    Raises:
        Unsupported: onnxruntime would reject the node.
    """
    for name in REALS:
        if not isinstance(attributes.get(name, 0.0), int | float):
            raise Unsupported(f"{name} = {attributes[name]!r}")
    if op_type in SHAPED and len(_sizes(inputs[1])) != 1:
        raise Unsupported(f"a shape of {count('axis', len(_sizes(inputs[1])))}")
    rule = _RULES.get(op_type)
    if rule is not None:
        rule(inputs, attributes, known)


def _sizes(value: Value | None) -> tuple[Dim, ...]:
    """Return the sizes of a value in its stored order of axes."""
    assert value is not None
    return tuple(value.shape[axis] for axis in value.stored)


def _differ(m: Dim, n: Dim) -> bool:
    return isinstance(m, int) and isinstance(n, int) and m != n


def _not_together(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Return whether two shapes cannot be broadcast."""
    ends = zip(reversed(a), reversed(b), strict=False)
    return any(_differ(m, n) and 1 not in (m, n) for m, n in ends)


def _axis(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    """Check that the attribute ``axis`` is within the rank."""
    del known
    rank = len(_sizes(inputs[0]))
    axis = attributes.get("axis", 0)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise Unsupported(f"axis {axis!r} of {rank} axes")


def _axes(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    """Check that the axes in the second operand are within the rank and distinct."""
    del attributes
    rank = len(_sizes(inputs[0]))
    axes = _numbers(inputs, 1, known) or []
    if any(not -rank <= n < rank for n in axes) or len({n % rank for n in axes}) < len(axes):
        raise Unsupported(f"axes {axes} of {rank} axes")


def _numbers(inputs: Inputs, number: int, known: Known) -> list[int] | None:
    value = inputs[number] if number < len(inputs) else None
    found = None if value is None else known(value)
    return None if found is None else [int(n) for n in found.reshape(-1)]


def _squeeze(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    _axes(inputs, attributes, known)
    sizes = _sizes(inputs[0])
    for axis in _numbers(inputs, 1, known) or ():
        if _differ(sizes[axis], 1):
            raise Unsupported(f"a squeeze of an axis of size {sizes[axis]}")


def _unsqueeze(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes
    axes = _numbers(inputs, 1, known) or []
    rank = len(_sizes(inputs[0])) + len(axes)
    if any(not -rank <= n < rank for n in axes) or len({n % rank for n in axes}) < len(axes):
        raise Unsupported(f"new axes {axes} of a result with {rank} axes")


def _matmul(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes, known
    a, b = _sizes(inputs[0]), _sizes(inputs[1])
    if not a or not b:
        raise Unsupported("a product of a matrix and a scalar")
    meets = b[-2] if len(b) > 1 else b[-1]
    if _differ(a[-1], meets) or _not_together(a[:-2], b[:-2]):
        raise Unsupported(f"a product of matrices of {list(a)} and {list(b)}")


def _concat(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    _axis(inputs, attributes, known)
    first = _sizes(inputs[0])
    axis = attributes["axis"]
    assert isinstance(axis, int)
    for value in inputs[1:]:
        other = _sizes(value)
        same = len(other) == len(first) and not any(
            _differ(m, n)
            for i, (m, n) in enumerate(zip(first, other, strict=True))
            if i != axis % len(first)
        )
        if not same:
            raise Unsupported(f"{list(first)} and {list(other)} concatenated along axis {axis}")


def _expand(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes
    target = _numbers(inputs, 1, known)
    sizes = _sizes(inputs[0])
    if target is not None and (min(target, default=0) < 0 or _not_together(sizes, target)):
        raise Unsupported(f"{list(sizes)} broadcast to {target}")


def _reshape(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    numbers = _numbers(inputs, 1, known)
    if numbers is None:
        return
    target: list[Dim] = list(numbers)
    sizes = _sizes(inputs[0])
    if not attributes.get("allowzero"):
        if any(n == 0 and i >= len(sizes) for i, n in enumerate(target)):
            raise Unsupported(f"{list(sizes)} reshaped to {target}")
        target = [sizes[i] if n == 0 else n for i, n in enumerate(target)]
    if min((n for n in target if isinstance(n, int)), default=0) < -1 or target.count(-1) > 1:
        raise Unsupported(f"a reshape to {target}")
    if all(isinstance(n, int) for n in (*sizes, *target)):
        before, after = _product(sizes), _product([n for n in target if n != -1])
        if after >= 1 << 63:
            raise Unsupported(f"a reshape to {target}")
        fits = before == after if -1 not in target else bool(after) and before % after == 0
        if not fits:
            raise Unsupported(f"{list(sizes)} reshaped to {target}")


def _product(sizes: Sequence[Dim]) -> int:
    result = 1
    for n in sizes:
        assert isinstance(n, int)
        result *= n
    return result


def _convolution(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del known
    x, w = _sizes(inputs[0]), _sizes(inputs[1])
    groups = attributes.get("group", 1)
    assert isinstance(groups, int)
    if len(x) < 3 or len(x) != len(w) or groups < 1:
        raise Unsupported(f"a convolution of {list(x)} with {list(w)} in {groups} groups")
    channels = w[1] * groups if isinstance(w[1], int) else w[1]
    if _differ(x[1], channels):
        raise Unsupported(f"a convolution of {x[1]} channels with a kernel for {channels}")
    if isinstance(w[0], int) and w[0] % groups:
        raise Unsupported(f"a convolution to {w[0]} channels in {groups} groups")


def _normalization(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes, known
    x = _sizes(inputs[0])
    for value in inputs[1:]:
        sizes = _sizes(value)
        if len(x) < 2 or len(sizes) != 1 or _differ(x[1], sizes[0]):
            raise Unsupported(f"a normalization of {list(x)} by {list(sizes)}")


def _top(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    _axis(inputs, attributes, known)
    axis = attributes.get("axis", -1)
    assert isinstance(axis, int)
    size = _sizes(inputs[0])[axis]
    for n in _numbers(inputs, 1, known) or ():
        if n < 0 or (isinstance(size, int) and n > size):
            raise Unsupported(f"the largest {n} elements of an axis of size {size}")


def _split(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    _axis(inputs, attributes, known)
    axis = attributes.get("axis", 0)
    assert isinstance(axis, int)
    parts = _numbers(inputs, 1, known)
    size = _sizes(inputs[0])[axis]
    if parts is not None and (min(parts, default=0) < 0 or _differ(size, sum(parts))):
        raise Unsupported(f"{size} split into {parts[:10]}")


def _division(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes
    divisor = inputs[1]
    assert divisor is not None
    found = known(divisor) if divisor.dtype in INTEGRAL else None
    if found is not None and (found == 0).any():
        raise Unsupported("a division of integers by zero")


def _resize(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes, known
    rank = len(_sizes(inputs[0]))
    for value in inputs[2:]:
        if value is not None and any(_differ(n, rank) and n != 0 for n in _sizes(value)):
            raise Unsupported(f"{rank} axes resized by {_sizes(value)[0]} sizes or scales")


def _blocks(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del known
    size = attributes["blocksize"]
    if not isinstance(size, int) or size < 1 or len(_sizes(inputs[0])) != 4:
        raise Unsupported(f"a block size of {size!r}, or an input without 4 axes")


def _einsum(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del known
    equation = attributes["equation"]
    assert isinstance(equation, str)
    terms = equation.partition("->")[0].split(",")
    if len(terms) != len(inputs):
        raise Unsupported(f"{equation} of {len(inputs)} tensors")
    if not equation.isascii():
        raise Unsupported(f"{equation!r}, with letters that ONNX does not support")
    found: dict[str, Dim] = {}
    for term, value in zip(terms, inputs, strict=True):
        sizes = _sizes(value)
        before, dots, behind = (part.strip().replace(" ", "") for part in term.partition("..."))
        named = len(before) + len(behind)
        if named > len(sizes) or (not dots and named < len(sizes)):
            raise Unsupported(f"{equation} of {len(sizes)} axes")
        pairs = [*zip(before, sizes, strict=False)]
        pairs += zip(behind, sizes[len(sizes) - len(behind) :], strict=True)
        for letter, size in pairs:
            known_size = found.get(letter)
            if _differ(known_size, size) and 1 not in (known_size, size):
                raise Unsupported(f"{equation} with {letter} = {known_size} and {size}")
            if known_size is None or known_size == 1:
                found[letter] = size


def _gather_nd(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del known
    x, index = _sizes(inputs[0]), _sizes(inputs[1])
    batch = attributes.get("batch_dims", 0)
    assert isinstance(batch, int)
    last = index[-1] if index else None
    if not index or batch >= min(len(x), len(index)):
        raise Unsupported(f"indices {list(index)} for {list(x)}, with {batch} batch axes")
    if isinstance(last, int) and last > len(x) - batch:
        raise Unsupported(f"indices of {last} coordinates for {count('axis', len(x))}")


def _at_least(rank: int) -> Rule:
    def rule(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
        del attributes, known
        if len(_sizes(inputs[0])) < rank:
            raise Unsupported(
                f"{count('axis', len(_sizes(inputs[0])))}; at least {rank} are required"
            )

    return rule


def _pad(inputs: Inputs, attributes: Mapping[str, Attribute], known: Known) -> None:
    del attributes
    pads = inputs[1]
    sizes = _sizes(inputs[0])
    length = None if pads is None else _sizes(pads)
    axes = inputs[3] if len(inputs) > 3 else None
    if (
        axes is None
        and length is not None
        and (len(length) != 1 or _differ(length[0], 2 * len(sizes)))
    ):
        raise Unsupported(f"{list(sizes)} padded by amounts of shape {list(length)}")
    for n in _numbers(inputs, 1, known) or ():
        if abs(n) > 1 << 40:
            raise Unsupported(f"a padding of {n}")


_RULES: dict[str, Rule] = {
    **dict.fromkeys((
        "ArgMax", "ArgMin", "Gather", "GatherElements", "LogSoftmax", "ScatterElements", "Softmax",
    ), _axis),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _axes),
    **dict.fromkeys((
        "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN", "LpPool", "MaxPool",
    ), _at_least(3)),
    "BatchNormalization": _normalization, "Concat": _concat, "Conv": _convolution,
    "Div": _division, "GRU": _at_least(3), "LSTM": _at_least(3), "RNN": _at_least(3),
    "Resize": _resize, "DepthToSpace": _blocks, "SpaceToDepth": _blocks, "Split": _split,
    "Einsum": _einsum, "Expand": _expand, "GatherND": _gather_nd, "InstanceNormalization":
    _normalization, "MatMul": _matmul, "Pad": _pad, "Reshape": _reshape, "Squeeze": _squeeze,
    "ReverseSequence": _at_least(2), "TopK": _top, "Trilu": _at_least(2), "Unsqueeze": _unsqueeze,
}  # fmt: skip
