"""One operation means the same in every front end that has it.

A row is an operation: inputs, a reference in Python's floats or NumPy, a tolerance, and how each
front end spells it (`spellings`).
"""

import math

import numpy as np
import onnx_run
import pytest
import spellings as s

EDGES = [0.0, -0.0, 1e-40, -1e-8, 1e-8, 0.3, -0.7, 1.0, -1.0, 2.5, 5.0, -5.0, 9.0]
BEYOND = [math.inf, -math.inf, math.nan]


def each(function, dtype="float32"):
    """Return a reference that computes element by element, in Python's own floats."""
    return lambda x: np.vectorize(function, otypes=["float64"])(x.astype("float64")).astype(dtype)


def floats(*numbers, dtype="float32"):
    return np.array([numbers], dtype)


def unary(tf=None, keras=None, function=None, script=None, program=None):
    """Return how each front end spells a function of one tensor, as far as it has it."""
    made = {}
    if tf:
        made["tensorflow"] = lambda folder, specs: s.tensorflow(folder, tf, specs)
    if keras:
        module, name = keras
        made["keras.ops"] = lambda folder, specs: s.keras_operation(folder, name, specs, module)
    if function:
        made["tf function"] = lambda folder, specs: s.keras_function(folder, function, specs)
    if script:
        made["script"] = lambda folder, specs: s.torch_script(folder, f"torch.{script}(x0)", specs)
    if program:
        made["program"] = lambda folder, specs: s.torch_program(
            folder, f"aten.{program}.default", specs, specs
        )
    return made


def inverse_of_erf(x):
    """By bisection of erf, and below 1e-3 by the first terms of its series."""
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    if abs(x) < 1e-3:
        return math.sqrt(math.pi) / 2 * (x + math.pi / 12 * x**3)
    low, high = -6.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return low


def log_gamma(x):
    if math.isnan(x):
        return x
    if math.isinf(x) or (x <= 0 and x == int(x)):
        return math.inf
    return math.lgamma(x)


def adaptive(function, m=3):
    """Return a reference: windows from floor(i n / m) to ceil((i + 1) n / m) of the last axis."""

    def reference(x):
        n = x.shape[-1]
        cells = [function(x[..., i * n // m : -(-(i + 1) * n // m)], -1) for i in range(m)]
        return np.stack(cells, -1)

    return reference


def adaptive_pooling(kind):
    name = {"Max": "adaptive_max_pool1d", "Average": "adaptive_avg_pool1d"}[kind]
    call = f"torch.{name}(x0, [3])"
    lines = [f"_0, _1 = {call}", "return _0"] if kind == "Max" else [f"return {call}"]

    def layer(sizes):
        return lambda folder, specs: s.keras_layer(
            folder, f"Adaptive{kind}Pooling1D",
            [(dtype, (*shape[:2], sizes(shape[2]))) for dtype, shape in specs],
            {"output_size": 3, "data_format": "channels_first"},
        )  # fmt: skip

    def script(sizes):
        return lambda folder, specs: s.torch_script(
            folder, lines, [(dtype, (*shape[:2], sizes(shape[2]))) for dtype, shape in specs]
        )

    return {
        "script": script(lambda n: n), "script of any size": script(lambda n: None),
        "keras": layer(lambda n: n), "keras of any size": layer(lambda n: None),
    }  # fmt: skip


def convolved(padding, strides):
    """Return a reference: cross-correlation of [N, H, W, C] with a kernel of [h, w, C, M]."""

    def reference(x, kernel):
        if padding == "same":
            pads = [max((-(-n // strides) - 1) * strides + k - n, 0)
                    for n, k in zip(x.shape[1:3], kernel.shape, strict=False)]  # fmt: skip
            x = np.pad(x, [(0, 0), *((p // 2, p - p // 2) for p in pads), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))
        found = np.einsum("nxychw,hwcm->nxym", windows.astype("float64"), kernel)
        return found[:, ::strides, ::strides].astype(x.dtype)

    return reference


def convolution(padding, strides):
    """Return the spellings: the sizes of the kernel are an input's, and none of them is known."""
    config = {"strides": strides, "padding": padding}

    def script(folder, specs):
        pads = "1" if padding == "same" else "0"
        image, kernel = "torch.permute(x0, [0, 3, 1, 2])", "torch.permute(x1, [3, 2, 0, 1])"
        call = f"torch.conv2d({image}, {kernel}, None, [{strides}, {strides}], [{pads}, {pads}])"
        free = [(specs[0][0], specs[0][1]), (specs[1][0], (None, None, 3, 4))]
        return s.torch_script(folder, f"torch.permute({call}, [0, 2, 3, 1])", free)

    def keras(folder, specs):
        free = [(specs[0][0], specs[0][1]), (specs[1][0], (None, None, 3, 4))]
        return s.keras_operation(folder, "Conv", free, "nn", config)

    ways = {"keras.ops": keras}
    if padding == "valid" or strides == 1:  # torch's own padding is symmetric
        ways["script"] = script
    return ways


ENDS = [0.0, -0.0, 1.0, -2.5, 1e30, -1e-30, math.inf, -math.inf, math.nan]
PAIRS = [np.array([[a for a in ENDS for _ in ENDS]], "float32"),
         np.array([ENDS * len(ENDS)], "float32")]  # fmt: skip


def of_pair(tf=None, keras=None, function=None, aten=None):
    """Return how each front end spells a function of two tensors."""
    ways = {}
    if tf:
        ways["tensorflow"] = lambda folder, specs: s.tensorflow(folder, tf, specs)
    if keras:
        ways["keras.ops"] = lambda folder, specs: s.keras_operation(folder, keras, specs)
    if function:
        ways["tf function"] = lambda folder, specs: s.keras_function(
            folder, function, specs, second="x"
        )
    if aten:
        ways["script"] = lambda folder, specs: s.torch_script(
            folder, f"torch.{aten}(x0, x1)", specs
        )
        ways["program"] = lambda folder, specs: s.torch_program(
            folder, f"aten.{aten}.default", specs, specs[:1]
        )
    return ways


def quietly(function):
    """Return a reference in float64, without NumPy's warnings of overflow."""

    def reference(*xs):
        with np.errstate(all="ignore"):
            return function(*(x.astype("float64") for x in xs)).astype(xs[0].dtype)

    return reference


def nearest(x, size=32):
    """The pixel floor(i * n / m), in exact arithmetic."""
    at = np.arange(size) * x.shape[-1] // size
    return x[..., at]


WRAPPED = np.array([[2**31 - 1, 2**31 - 1, 5], [-(2**31), -1, 0]], "int32")
SHORT = [np.array([[-3, 7, 32767]], "int16"), np.array([[4, -9, -32768]], "int16")]
WIDE = [np.array([[3, 7, 65535]], "uint16"), np.array([[4, 0, 1]], "uint16")]
IMAGE = np.random.default_rng(0).normal(size=(1, 1, 14)).astype("float32")


def of_two(name):
    return {
        "tensorflow": lambda folder, specs: s.tensorflow(folder, name, specs),
        "keras.ops": lambda folder, specs: s.keras_operation(folder, name, specs),
    }


# Operation -> inputs, reference, relative tolerance of each element, spellings.
ROWS = {
    "erfc": (
        [floats(*EDGES, *BEYOND)], each(math.erfc), 2e-6,
        unary(tf="Erfc", function="math.erfc", script="special_erfc", program="special_erfc"),
    ),
    "erfc of float64": (
        [floats(*EDGES, *BEYOND, dtype="float64")], each(math.erfc, "float64"), 1e-13,
        unary(tf="Erfc", script="erfc", program="erfc"),
    ),
    "erfinv": (  # TensorFlow's own rounds (x + 1) / 2 first: it has rows in fixtures/tf_ops
        [floats(0.0, 1e-8, -1e-8, 1e-4, 0.3, -0.999, 1, -1, 1.5, -math.inf, math.nan)],
        each(inverse_of_erf), 2e-6,
        unary(keras=("math", "Erfinv"), script="erfinv", program="erfinv"),
    ),
    "erfinv of float64": (
        [floats(0.0, 1e-8, 1e-4, 0.3, -0.999, 0.9999999, 1, -2, math.nan, dtype="float64")],
        each(inverse_of_erf, "float64"), 1e-9,
        unary(keras=("math", "Erfinv"), script="erfinv", program="erfinv"),
    ),
    "log1p": (
        [floats(0, 1e-40, 1e-8, -1e-8, 0.4, 0.6, -0.9, -1, 1e30, math.inf, math.nan)],
        each(lambda x: -math.inf if x == -1 else math.log1p(x)), 4e-6,
        unary("Log1p", ("numpy", "Log1p"), "math.log1p", "log1p", "log1p"),
    ),
    "expm1": (
        [floats(0, 1e-40, 1e-8, -1e-8, 0.4, -0.6, 5, -90, math.inf, -math.inf, math.nan)],
        each(math.expm1), 4e-6,
        unary("Expm1", ("numpy", "Expm1"), "math.expm1", "expm1", "expm1"),
    ),
    "atan2": (
        PAIRS, quietly(np.arctan2), 2e-6, of_pair("Atan2", "Arctan2", "math.atan2", "atan2"),
    ),
    "hypot": (PAIRS, quietly(np.hypot), 2e-6, of_pair(keras="Hypot", aten="hypot")),
    "logaddexp": (
        PAIRS, quietly(np.logaddexp), 2e-6, of_pair(keras="Logaddexp", aten="logaddexp"),
    ),
    "lgamma": (
        [floats(0.0, -1, -0.5, 1e-8, 0.5, 1, 2, 3.7, 40, math.inf, math.nan)],
        each(log_gamma), 4e-6, unary(tf="Lgamma", script="lgamma", program="lgamma"),
    ),
    "sum of int32 that wraps around": (
        [WRAPPED], lambda x: x.astype("int64").sum(1).astype("int32"), 0,
        {
            "tensorflow": lambda folder, specs: s.tensorflow(
                folder, "Sum", specs, [np.array([1], "int32")]
            ),
            "keras.ops": lambda folder, specs: s.keras_operation(
                folder, "Sum", specs, config={"axis": 1}
            ),
            "tf function": lambda folder, specs: s.keras_function(
                folder, "math.reduce_sum", specs, {"axis": 1}
            ),
        },
    ),
    "mean of no elements": (
        [np.zeros((2, 0), "float32")], lambda x: np.full(len(x), math.nan, "float32"), 0,
        {
            "tensorflow": lambda folder, specs: s.tensorflow(
                folder, "Mean", specs, [np.array([1], "int32")]
            ),
            "keras.ops": lambda folder, specs: s.keras_operation(
                folder, "Mean", specs, config={"axis": 1}
            ),
            "script": lambda folder, specs: s.torch_script(
                folder, "torch.mean(x0, [1], False, dtype=None)", specs
            ),
        },
    ),
    "division cut off towards zero": (
        PAIRS, quietly(lambda a, b: np.trunc(a / b)), 0, of_pair("TruncateDiv"),
    ),
    "maximum of int16": (
        SHORT, np.maximum, 0,
        {**of_two("Maximum"),
         "program": lambda folder, specs: s.torch_program(
             folder, "aten.maximum.default", specs, specs[:1]
         ),
         "script": lambda folder, specs: s.torch_script(folder, "torch.maximum(x0, x1)", specs)},
    ),
    "minimum of uint16": (WIDE, np.minimum, 0, of_two("Minimum")),
    "nearest of a size": (
        [IMAGE], nearest, 0,
        {
            "program": lambda folder, specs: s.torch_program(
                folder, "aten.upsample_nearest1d.default", specs, [("float32", (1, 1, 32))],
                [[32]],
            ),
            "script": lambda folder, specs: s.torch_script(
                folder, "torch.upsample_nearest1d(x0, [32], None)", specs
            ),
        },
    ),
    "adaptive max pooling 10 to 3": (
        [np.random.default_rng(1).normal(size=(2, 3, 10)).astype("float32")],
        adaptive(np.max), 0, adaptive_pooling("Max"),
    ),
    "adaptive mean pooling 10 to 3": (
        [np.random.default_rng(2).normal(size=(2, 3, 10)).astype("float32")],
        adaptive(np.mean), 1e-5, adaptive_pooling("Average"),
    ),
    "adaptive max pooling where all are equal": (
        [np.full((2, 3, 10), -2, "float32")], adaptive(np.max), 0, adaptive_pooling("Max"),
    ),
    **{
        f"convolution with a kernel of any size, {padding} {strides}": (
            [np.random.default_rng(3).normal(size=(2, 9, 9, 3)).astype("float32"),
             np.random.default_rng(4).normal(size=(3, 3, 3, 4)).astype("float32")],
            convolved(padding, strides), 2e-5, convolution(padding, strides),
        )
        for padding in ("valid", "same") for strides in (1, 2)
    },
}  # fmt: skip


SQUARES = np.random.default_rng(5).normal(size=(2, 4, 6)).astype("float32")
EDGED = np.array([1.5, math.inf, -2.0, math.nan, 0.0], "float32")
LINES = np.random.default_rng(6).normal(size=(3, 7)).astype("float32")
# Operations of keras.ops (and torch's text) of sizes that only the run knows.
OF_ANY_SIZE = [
    ("Diagonal", {"offset": 1, "axis1": 1, "axis2": 2}, SQUARES,
     lambda x: np.diagonal(x, 1, 1, 2), "torch.diagonal(x0, 1, 1, 2)"),
    ("Diagonal", {"offset": -2, "axis1": 2, "axis2": 1}, SQUARES,
     lambda x: np.diagonal(x, -2, 2, 1), "torch.diagonal(x0, -2, 2, 1)"),
    ("Diagonal", {"offset": 9, "axis1": 1, "axis2": 2}, SQUARES,
     lambda x: np.diagonal(x, 9, 1, 2), "torch.diagonal(x0, 9, 1, 2)"),
    ("Diag", {"k": 0}, EDGED, np.diag, "torch.diag_embed(x0)"),
    ("Diag", {"k": 2}, EDGED, lambda x: np.diag(x, 2), "torch.diag_embed(x0, 2)"),
    ("Diag", {"k": -1}, EDGED, lambda x: np.diag(x, -1), "torch.diag_embed(x0, -1)"),
    ("Trace", {"axis1": 1, "axis2": 2}, SQUARES, lambda x: np.trace(x, 0, 1, 2), None),
    ("Quantile", {"q": 0.3, "axis": 1}, LINES,
     lambda x: np.quantile(x.astype("float64"), 0.3, 1).astype("float32"), None),
    ("Quantile", {"q": [0.1, 0.9], "axis": [1, 2]}, SQUARES,
     lambda x: np.quantile(x.astype("float64"), [0.1, 0.9], (1, 2)).astype("float32"), None),
    ("Median", {"axis": -1}, LINES, lambda x: np.median(x, -1), None),
    ("Cumprod", {"axis": 1}, LINES, lambda x: np.cumprod(x, 1), "torch.cumprod(x0, 1)"),
    ("Roll", {"shift": 2, "axis": 1}, LINES, lambda x: np.roll(x, 2, 1),
     "torch.roll(x0, [2], [1])"),
    ("Roll", {"shift": -9, "axis": 1}, LINES, lambda x: np.roll(x, -9, 1),
     "torch.roll(x0, [-9], [1])"),
]  # fmt: skip


@pytest.mark.parametrize("front_end", ["keras.ops", "script"])
@pytest.mark.parametrize(
    ("name", "config", "x", "reference", "script"), OF_ANY_SIZE,
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_an_operation_of_any_size(front_end, name, config, x, reference, script, tmp_path):
    expected = reference(x)
    for shape in (x.shape, (None,) * x.ndim):
        specs = [(x.dtype.name, shape)]
        if front_end == "keras.ops":
            graph, weights = s.keras_operation(tmp_path, name, specs, config=config)
        elif script is None:
            return
        else:
            graph, weights = s.torch_script(tmp_path, script, specs)
        (found,) = onnx_run.run(graph, x, weights=weights)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)


def test_statistics_of_half_precision_do_not_overflow(tmp_path):
    x = np.random.default_rng(7).normal(200, 90, (3, 8)).astype("float16")
    graph, weights = s.keras_operation(
        tmp_path, "Moments", [("float16", (None, 8))], "nn", {"axes": [1]}
    )
    assert not any(
        node.op_type.startswith("Reduce") and graph.specs[node.outputs[0]].dtype == "float16"
        for node in graph.nodes
    )
    (mean,) = onnx_run.run(graph, x, weights=weights)
    np.testing.assert_array_equal(mean, x.astype("float32").mean(1).astype("float16"))


def test_boundaries_that_are_an_input(tmp_path):
    """tf.contrib's kernel is std::upper_bound: NaN is above all."""
    x = np.array([[1, 2, 2.5], [9, -1, np.nan]], "float32")
    specs = [("float32", (None, 3)), ("float32", (None,))]
    graph, weights = s.tensorflow(
        tmp_path, "BucketizeWithInputBoundaries", specs, result="int32"
    )  # fmt: skip
    found = onnx_run.run(graph, x, np.array([1, 2, 3], "float32"), weights=weights)[0]
    np.testing.assert_array_equal(found, np.array([[1, 2, 2], [3, 0, 3]], "int32"))


def test_an_axis_that_is_kept_because_its_size_is_not_known_is_noted(tmp_path):
    for graph, _ in (
        s.keras_operation(tmp_path, "Squeeze", [("float32", (2, None, 3))]),
        s.torch_script(tmp_path, "torch.squeeze(x0, 1)", [("float32", (2, None, 3))]),
    ):
        assert any("squeeze keeps axes of unknown size" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("row", "front_end"), [(row, way) for row, (*_, ways) in ROWS.items() for way in ways]
)
def test_every_front_end_computes_the_same(row, front_end, tmp_path):
    inputs, reference, tolerance, ways = ROWS[row]
    expected = reference(*inputs)
    shapes = [(None, *x.shape[1:]) for x in inputs], [x.shape for x in inputs]
    for given in shapes if front_end != "program" else shapes[1:]:
        specs = [(x.dtype.name, shape) for x, shape in zip(inputs, given, strict=True)]
        graph, weights = ways[front_end](tmp_path, specs)
        found = onnx_run.run(graph, *inputs, weights=weights)[0]
        assert found.dtype == expected.dtype
        least = 1e-37 if row.startswith("erf") else 1e-14
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=least)
