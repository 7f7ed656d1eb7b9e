"""Random numbers, stateful and stateless.

Values of stateful ops differ between runs or sessions: ONNX draws other values of the same
distribution, seeded if TensorFlow's op is (`converter.lower.ops.random`). Values of stateless ops
are a function of the seed: if seed and shape are static, they are constants, equal to TensorFlow's;
else they are not supported.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import erf, prod, sqrt

import numpy as np

from converter.lower.graph import Attribute
from converter.lower.ops.random import (
    NORMAL,
    UNIFORM,
    draw,
    draw_classes,
    record,
    scale_to_integers,
)
from converter.lower.ops.special import erfinv
from converter.lower.table import Variant
from converter.lower.tf import philox
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

MOST = 1 << 22  # maximum number of elements of a constant of random values
PHILOX, AUTO = 1, 3  # tf.random.Algorithm


def _seed_key(seed: int, seed2: int) -> dict[str, Attribute]:
    if not seed and not seed2:
        return {}
    return {"seed": float((seed ^ (seed2 << 12)) % (1 << 24))}


def _draw(
    op: Context, op_type: str, shape: Value, dtype: str, node: Node, seed: int, seed2: int,
    distribution: Mapping[str, Attribute],
) -> Value:  # fmt: skip
    record(op, node.op, op.at)
    attributes = {**distribution, **_seed_key(seed, seed2)}
    return draw(
        op, op_type, op.dims(shape), lambda: op.cast(shape, "int64"), dtype, attributes
    )  # fmt: skip


@tf_op("RandomUniform")
def random_uniform(
    op: Context, shape: Value, /, *, seed: int = 0, seed2: int = 0, node: Node
) -> Value:
    """Uniform random values in [0, 1); they differ from those that TensorFlow draws."""
    dtype = node.attribute("dtype")
    return _draw(op, "RandomUniform", shape, dtype, node, seed, seed2, UNIFORM)


@tf_op("RandomStandardNormal")
def random_standard_normal(
    op: Context, shape: Value, /, *, seed: int = 0, seed2: int = 0, node: Node
) -> Value:
    """Standard normal values; they differ from those that TensorFlow draws."""
    dtype = node.attribute("dtype")
    return _draw(op, "RandomNormal", shape, dtype, node, seed, seed2, NORMAL)


@tf_op("TruncatedNormal")
def truncated_normal(
    op: Context, shape: Value, /, *, seed: int = 0, seed2: int = 0, node: Node
) -> Value:
    """Standard normal values in (-2, 2); they differ from those that TensorFlow draws."""
    bound = erf(sqrt(2.0))
    shares = _draw(
        op, "RandomUniform", shape, "float64", node, seed, seed2, {"low": -bound, "high": bound}
    )
    return op.cast(op.mul(erfinv(op, shares), sqrt(2.0)), node.attribute("dtype"))


@tf_op("RandomUniformInt")
def random_uniform_int(
    op: Context, shape: Value, minval: Value, maxval: Value, /, *,
    seed: int = 0, seed2: int = 0, node: Node,
) -> Value:  # fmt: skip
    """Random integers in [minval, maxval); they differ from those that TensorFlow draws."""
    shares = _draw(op, "RandomUniform", shape, "float64", node, seed, seed2, UNIFORM)
    return scale_to_integers(op, shares, minval, maxval, minval.dtype)


@tf_op("RandomShuffle")
def random_shuffle(
    op: Context, value: Value, /, *, seed: int = 0, seed2: int = 0, node: Node
) -> Value:
    """Rows in a random order, which differs from the one that TensorFlow draws."""
    if value.rank == 0:
        return value
    count = op.size(value, 0)
    keys = _draw(op, "RandomUniform", count, "float64", node, seed, seed2, UNIFORM)
    _, order = op.node(
        "TopK", [keys, count], [(keys.dtype, keys.shape), ("int64", (value.shape[0],))]
    )
    return op.gather(value, order, 0)


@tf_op("Multinomial")
def multinomial(
    op: Context, logits: Value, num_samples: Value, /, *, seed: int = 0, seed2: int = 0, node: Node
) -> Value:
    """Class indices sampled by logits; they differ from those that TensorFlow draws."""
    count = op.int(num_samples, "num_samples")
    record(op, node.op, op.at)
    return draw_classes(
        op, logits, count, node.attribute("output_dtype", "int64"), _seed_key(seed, seed2)
    )  # fmt: skip


# -- stateless -------------------------------------------------------------------------------------

Draw = Callable[[int, tuple[int, int], int, str], np.ndarray]


def _constant(
    op: Context, shape: Value, key: int, counter: tuple[int, int], dtype: str, draw: Draw
) -> Value:
    sizes = op.ints(shape, "a shape of random numbers")
    count = prod(sizes)
    if count > MOST:
        raise Unsupported(f"{count} random numbers")
    found = draw(key, counter, count, dtype)
    return op.constant(found.astype(dtype).reshape(sizes))


def _between(low: int, high: int) -> Draw:
    return partial(philox.integers, low=low, high=high)


def _of_seed(op: Context, seed: Value) -> tuple[int, tuple[int, int]]:
    found = op.static(seed)
    if found is None:
        raise Unsupported("a seed that is computed from the inputs")
    return philox.key_and_counter(found)


def _of_key(op: Context, key: Value, counter: Value, alg: Value) -> tuple[int, tuple[int, int]]:
    keys, counters = op.static(key), op.static(counter)
    if keys is None or counters is None:
        raise Unsupported("a key that is computed from the inputs")
    if op.int(alg, "an algorithm") not in (PHILOX, AUTO):
        raise Unsupported("numbers by ThreeFry")
    return int(keys[0]), (int(counters[0]), int(counters[1]))


DISTRIBUTIONS: tuple[tuple[str, str, Draw, str], ...] = (
    ("StatelessRandomUniform", "Uniform values from 0 to 1", philox.uniform, "float32"),
    ("StatelessRandomNormal", "Normal values", philox.normal, "float32"),
    ("StatelessTruncatedNormal", "Normal values within 2", philox.truncated_normal, "float32"),
    ("StatelessRandomUniformFullInt", "Integers", philox.full_integers, "uint64"),
)
KNOWN = "of a constant seed, as TensorFlow draws them"


@tf_op(*(Variant(n, f"{what} {KNOWN}.", draw=d, kind=k) for n, what, d, k in DISTRIBUTIONS))
def draw_by_seed(
    op: Context, shape: Value, seed: Value, /, *, draw: Draw, kind: str, node: Node,
) -> Value:  # fmt: skip
    """Random values of a constant seed, equal to those that TensorFlow draws."""
    key, counter = _of_seed(op, seed)
    return _constant(op, shape, key, counter, node.attribute("dtype", kind), draw)


@tf_op(*(Variant(f"{n}V2", f"{what} {KNOWN}.", draw=d, kind=k) for n, what, d, k in DISTRIBUTIONS))
def draw_by_key(
    op: Context, shape: Value, key: Value, counter: Value, alg: Value, /, *, draw: Draw, kind: str,
    node: Node,
) -> Value:  # fmt: skip
    """Random values of a constant key and counter, equal to those that TensorFlow draws."""
    one, many = _of_key(op, key, counter, alg)
    return _constant(op, shape, one, many, node.attribute("dtype", kind), draw)


@tf_op("StatelessRandomUniformInt")
def stateless_random_uniform_int(
    op: Context, shape: Value, seed: Value, minval: Value, maxval: Value, /
) -> Value:
    """Random integers in [minval, maxval) of a constant seed, equal to TensorFlow's."""
    low, high = op.int(minval, "minval"), op.int(maxval, "maxval")
    key, counter = _of_seed(op, seed)
    return _constant(op, shape, key, counter, minval.dtype, _between(low, high))


@tf_op("StatelessRandomUniformIntV2")
def stateless_random_uniform_int_v2(
    op: Context, shape: Value, key: Value, counter: Value, alg: Value, minval: Value,
    maxval: Value, /,
) -> Value:  # fmt: skip
    """Random integers in [minval, maxval) of a constant key, equal to TensorFlow's."""
    low, high = op.int(minval, "minval"), op.int(maxval, "maxval")
    one, many = _of_key(op, key, counter, alg)
    return _constant(op, shape, one, many, minval.dtype, _between(low, high))


@tf_op("StatelessRandomGetKeyCounter", outputs=("key", "counter"))
def stateless_random_get_key_counter(op: Context, seed: Value, /) -> list[Value]:
    """The Philox key and counter of a constant seed."""
    key, counter = _of_seed(op, seed)
    return [
        op.constant(np.array([key], np.uint64)), op.constant(np.array(counter, np.uint64))
    ]  # fmt: skip


@tf_op("StatelessRandomGetAlg")
def stateless_random_get_alg(op: Context) -> Value:
    """The random number algorithm of the CPU: Philox."""
    return op.constant(PHILOX, "int32")


@tf_op("StatelessRandomGetKeyCounterAlg", outputs=("key", "counter", "alg"))
def stateless_random_get_key_counter_alg(op: Context, seed: Value, /) -> list[Value]:
    """The key, the counter and the algorithm of a constant seed."""
    return [*stateless_random_get_key_counter(op, seed), stateless_random_get_alg(op)]
