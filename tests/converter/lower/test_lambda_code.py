"""Code of Lambdas that Python's own compiler makes here: what it becomes, what not, and bounds."""

import base64
import json
import marshal
import time

import numpy as np
import onnx_run
import pytest

import converter
from converter import Options
from converter.lower.graph import Graph
from converter.lower.keras.builder import KerasBuilder
from converter.lower.keras.lambdas import lambda_
from converter.lower.keras.lowering import lower
from converter.lower.keras.table import Roles, Unsupported
from formats.core.bundle import Bundle, Metadata, Topology
from formats.errors import UnsupportedError

X = np.random.default_rng(3).standard_normal((2, 4, 6)).astype("f4")
TENSORFLOW_1, UNKNOWN, TODAY = (2, 1, "tensorflow"), (2, None, "tensorflow"), (3, 2, "tensorflow")


def recorded(source, closure=None):
    """Return a function as tf.keras records it: the last one that a source defines."""
    code = compile(source, "model.py", "exec")
    functions = [c for c in code.co_consts if hasattr(c, "co_code")]
    while closure is not None and not functions[-1].co_freevars:
        functions = [c for c in functions[-1].co_consts if hasattr(c, "co_code")]
    return [base64.b64encode(marshal.dumps(functions[-1])).decode(), None, closure]


def lower_lambda(source, *arrays, setting=TODAY, **more):
    """Return the graph that a function becomes, and its outputs."""
    graph = Graph("m", 18)
    op = KerasBuilder(graph, {})
    given = [
        op.input(f"x{i}", a.dtype.name, ("batch", *a.shape[1:]))
        for i, a in enumerate(arrays or (X,))
    ]
    structure = given if len(given) > 1 else given[0]
    with op.scope("l"):
        function = recorded(source, more.pop("closure", None))
        made = lambda_(
            op, Roles(op, "l", {}), *given, structure=structure, function=function,
            setting=setting, **more,
        )  # fmt: skip
    made = made if isinstance(made, list) else [made]
    for i, value in enumerate(made):
        op.output(value, f"y{i}")
    return graph


def computed(source, *arrays, **more):
    arrays = arrays or (X,)
    graph = lower_lambda(source, *arrays, **more)
    found = onnx_run.run(graph, *arrays)
    return found if len(found) > 1 else found[0]


# -- what it becomes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("lambda x: x / 255.0 - 0.5", X / 255.0 - 0.5),
        ("lambda x: x[:, -1] if len(x.shape) == 3 else x", X[:, -1]),
        ("lambda x: sum([x[:, i] * i for i in range(4)])", sum(X[:, i] * i for i in range(4))),
        ("lambda x: (lambda f: f(f(x)))(lambda y: y * 2)", X * 4),
        ("lambda x: x * {'a': 1, 'b': 3}['b']", X * 3),
        ("lambda x: x * max(2, 5, 3) + min([4, 1]) - abs(-2)", X * 5 - 1),
        ("lambda x: x[..., ::-1]", X[..., ::-1]),
        ("lambda x: x * float('0.5') if isinstance(x.shape[1], int) else x", X * 0.5),
        ("lambda x: x + sum(sorted([3, 1, 2])[:2]) * len('ab' * 3)", X + 18),
        ("lambda x: x[:, 1:3, tf.newaxis]", X[:, 1:3, None]),
        ("lambda x: tf.reduce_max(x, axis=-1)", X.max(-1)),
        ("lambda x: K.abs(x) if K.ndim(x) == 3 else None", np.abs(X)),
        ("lambda x: x * np.arange(6)[::2].sum()", X * 6),
        ("lambda x: x if x.shape[0] is None else x * 2", X),
        ("lambda x: x * (0 or 3) * (2 and 1)", X * 3),
        ("lambda x: x * math.floor(math.sqrt(10))", X * 3),
    ],
)
def test_code_becomes_what_it_computes(source, expected):
    np.testing.assert_allclose(computed(source), expected, rtol=1e-6, atol=1e-6)


def test_a_whole_function_with_an_import_a_loop_and_a_branch():
    source = """
def f(x, groups=2):
    '''Channels of groups, one of each after another.'''
    import tensorflow as flow
    from tensorflow.keras import backend as B
    parts = []
    for i in range(groups):
        part = x[:, :, i::groups]
        if i:
            part = -part
        parts += [part]
    *first, last = parts
    assert len(first) == 1, 'groups'
    with flow.name_scope('groups'):
        return B.concatenate([*first, last], axis=-1)
"""
    expected = np.concatenate([X[:, :, ::2], -X[:, :, 1::2]], -1)
    np.testing.assert_array_equal(computed(source, arguments={"groups": 2}), expected)


def test_arguments_and_closures_are_what_the_file_says():
    source = "def outer(scale):\n    def inner(x, add): return x * scale + add\n    return inner"
    found = computed(
        source, closure=[2.0], arguments={"add": {"type": "ndarray", "value": [1, 2, 3, 4, 5, 6]}}
    )
    np.testing.assert_allclose(found, X * 2 + np.arange(1, 7), rtol=1e-6)


def test_several_inputs_and_outputs():
    first, second = computed("lambda t: [t[0] + t[1], t[0] - t[1]]", X, X[::-1].copy())
    np.testing.assert_array_equal(first, X + X[::-1])
    np.testing.assert_array_equal(second, X - X[::-1])


def test_a_sampling_draws_numbers_and_the_graph_says_so():
    source = """
def sampling(args):
    mean, log_var = args
    shape = (K.shape(mean)[0], K.int_shape(mean)[1], 6)
    return mean + K.exp(log_var / 2) * K.random_normal(shape=shape, mean=0., stddev=1.)
"""
    zeros = np.zeros((50, 40, 6), "f4")
    graph = lower_lambda(source, zeros, zeros)
    assert [*graph.random.values()] == ["RandomNormal"]
    found = computed(source, zeros, zeros)
    assert found.shape == zeros.shape
    assert abs(found.mean()) < 0.05
    assert abs(found.std() - 1) < 0.05


@pytest.mark.parametrize(
    ("call", "setting"),
    [("K.dropout(x, 0.25)", TODAY), ("tf.nn.dropout(x, 0.25)", TODAY),
     ("tf.nn.dropout(x, 0.75)", TENSORFLOW_1), ("tf.nn.dropout(x, rate=0.25)", UNKNOWN)],
)  # fmt: skip
def test_a_dropout_that_code_calls_is_one_whenever_the_graph_runs(call, setting):
    ones = np.ones((40, 50, 6), "f4")
    found = computed(f"lambda x: {call}", ones, setting=setting)
    assert set(np.unique(found.round(4))) == {np.float32(0), np.float32(4 / 3).round(4)}
    assert abs((found == 0).mean() - 0.25) < 0.05


def test_what_names_were_read_as_is_in_the_notes():
    graph = lower_lambda("lambda x: K.mean(tf.abs(x), axis=1) * np.pi")
    names = "'K' as keras.backend, 'np' as numpy, 'tf' as tensorflow"
    assert graph.notes == [f"Lambda layer l: its code was read, not run, {names}"]


def test_resizing_is_that_of_the_tensorflow_of_its_time():
    source = "lambda x: tf.image.resize(x, (8, 8))"
    image = np.random.default_rng(0).standard_normal((1, 4, 5, 3)).astype("f4")
    old = computed(source.replace("resize(", "resize_images("), image, setting=TENSORFLOW_1)
    new = computed(source, image)
    assert old.shape == new.shape == (1, 8, 8, 3)
    np.testing.assert_allclose(old[:, ::2, 0], image[:, :, 0], rtol=1e-6)  # points at corners
    assert np.abs(new[:, ::2, 0] - image[:, :, 0]).max() > 0.1
    with pytest.raises(Unsupported, match="which TensorFlow 1 and 2 do differently"):
        lower_lambda(source, image, setting=UNKNOWN)


def test_tensorflow_0_took_axes_first():
    pair = X, X[::-1].copy()
    found = computed("lambda t: tf.concat(2, [t[0], t[1]])", *pair, setting=TENSORFLOW_1)
    np.testing.assert_array_equal(found, np.concatenate(pair, 2))
    parts = computed("lambda x: tf.split(1, 2, x)", setting=TENSORFLOW_1)
    np.testing.assert_array_equal(parts[1], X[:, 2:])


# -- what it cannot ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("lambda x: x * latent_dim", "uses 'latent_dim' of the module that it was written in"),
        ("lambda x: K.ctc_batch_cost(x, x, x, x)", "calls keras.backend.ctc_batch_cost"),
        ("lambda x: tf.py_func(print, [x], 'float32')", "calls tensorflow.py_func"),
        ("lambda x: x if x > 0 else -x", "a branch on a tensor"),
        ("lambda x: x * x.shape[0]", "a tensor and None"),
        ("lambda x: x * (x.shape[0] * 2)", "arithmetic with a size that is not known"),
        ("lambda x: tf.keras.layers.Dense(3)(x)", "arguments that are not named|by name"),
        ("lambda x: tf.keras.layers.Dense(units=3)(x)", "has no weight 'kernel'"),
        ("lambda x: tf.map_fn(lambda y: y, x)", "map_fn over an axis of unknown size"),
        ("lambda x: tf.scan(lambda a, y: a, x)", "calls tensorflow.scan|function <lambda> as an"),
        ("lambda x: x.numpy()", "attribute numpy of a tensor"),
        ("lambda x: 'text'", "its function gives a str"),
        ("lambda x: None", "its function gives a NoneType"),
        ("lambda x: x[9, 9, 9, 9]", "4 indices for a tensor of 3 axes"),
        ("lambda x: x[:, 7]", "number 7 of an axis of 4"),
        ("lambda x: tf.split(x, 5, 1)", "an axis of 4 cut in 5 equal parts"),
        ("lambda x: x + x[:, :3]", "do not go together"),
        ("lambda x, y: x + y", "no argument y"),
        ("lambda x: __import__('os').system('id')", "uses '__import__'"),
        ("lambda x: eval('1')", "uses 'eval'"),
        ("lambda x: x.__class__.__mro__", "attribute __class__ of a tensor"),
        ("lambda x: (1).__class__", "attribute __class__"),
        ("lambda x: ''.__class__.__base__.__subclasses__()", "attribute __class__"),
        ("lambda x: np.load('/etc/passwd')", "numpy.load"),
        ("lambda x: np.ndarray.tofile(x, '/tmp/x')", "numpy.ndarray.tofile"),
        ("lambda x: np.array([1]).tofile('/tmp/x')", "attribute tofile of an array"),
        ("lambda x: np.array([1], dtype='O')", "numpy.array"),
        ("lambda x: open('/etc/passwd')", "uses 'open'"),
        ("lambda x: '{0.__class__}'.format(1)", "a format of text"),
        ("lambda x: getattr(x, 'shape')", "uses 'getattr'"),
        ("def f(x):\n    import os\n    return os.system('id')", "calls os.system"),
        ("def f(x):\n    global g\n    g = 1\n    return x", "store global"),
        ("lambda x: (x for _ in ()).gi_frame", "attribute gi_frame"),
    ],
)
def test_what_is_not_done_is_a_gap_that_says_it(source, said):
    with pytest.raises(Unsupported, match=said):
        lower_lambda(source)


def test_a_graph_of_another_model_is_not_made_when_dtypes_do_not_fit():
    with pytest.raises(Unsupported, match="a fraction that meets a tensor of whole numbers"):
        lower_lambda("lambda x: x * 0.5", np.zeros((2, 3), "i4"))
    with pytest.raises(Unsupported, match="tensors of float32 and int32"):
        lower_lambda("lambda t: t[0] * t[1]", X, np.zeros((2, 4, 6), "i4"))


def test_a_comparison_of_tensors_in_tensorflow_1():
    assert computed("lambda x: x == x").all()
    with pytest.raises(Unsupported, match="== of tensors, which in TensorFlow 1"):
        lower_lambda("lambda x: x == x", setting=TENSORFLOW_1)


# -- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "lambda x: 10 ** 10 ** 10",
        "lambda x: 1 << 10 ** 9",
        "lambda x: 'a' * 10 ** 9",
        "lambda x: [0] * 10 ** 9",
        "lambda x: [i for i in range(10 ** 9)]",
        "lambda x: sum(range(10 ** 9))",
        "lambda x: '%1000000000d' % 1",
        "lambda x: f'{1:1000000000}'",
        "lambda x: 'a'.replace('a', 'b' * 50000).replace('b', 'c' * 50000)",
        "lambda x: np.zeros((10 ** 6, 10 ** 6))",
        "lambda x: np.ones(10 ** 6)[:, None] + np.ones(10 ** 6)",
        "lambda x: np.outer(np.ones(10 ** 6), np.ones(10 ** 6))",
        "lambda x: np.eye(10 ** 5)",
        "lambda x: tf.eye(10 ** 5)",
        "lambda x: K.one_hot(K.cast(x, 'int32'), 10 ** 9)",
        "lambda x: (lambda f: f(f))(lambda f: f(f))",
        "def f(x):\n    while True: pass",
        "def f(x):\n    while True: x = x + 1",
        "def f(x):\n    n = 3\n    while True: n = n * n",
        "def f(x):\n    a = []\n    a.append(a)\n    return tf.stack(a)",
        "def f(x):\n    a = [x]\n    for i in range(40): a = a + a\n    return a",
        "def f(x):\n    a = [x]\n    for i in range(60): a = [a, a]\n    return a",
        "def f(x):\n    a = [x]\n    for i in range(60): a = [a, a]\n    return a == a",
        "def f(x):\n    a = [x]\n    for i in range(60): a = (a, a)\n    return {1: a}",
        "def f(x):\n    a = np.arange(900000)\n    while True: a = np.sort(a)[::-1] + 1",
        "def f(x):\n    n = 2000\n    while True:\n        n -= 1\n        x = x + tf.eye(n)[0, 0]",
        "lambda x: tf.image.resize(tf.expand_dims(x, 3), (2 ** 31 - 1, 10 ** 5))",
        "lambda x: tf.image.resize(tf.expand_dims(x, 3), (9e9, 1))",
        "lambda x: K.repeat_elements(x, 10 ** 9, 1)",
        "lambda x: tf.split(tf.reshape(x, [-1]), 10 ** 6)",
        "def f(x):\n    d = dict\n    for i in range(10 ** 6): d = dict(a=d)\n    return d",
    ],
)
def test_code_that_would_never_end_ends(source):
    begin = time.process_time()
    with pytest.raises(Unsupported):
        lower_lambda(source)
    assert time.process_time() - begin < 5  # seconds


def test_many_lambdas_have_one_budget():
    slow = recorded("def f(x):\n    for i in range(40000): pass\n    return x")
    begin = time.process_time()
    with pytest.raises(UnsupportedError, match="more than 400000 steps of its code"):
        lower(bundle(*[{"function": slow}] * 100))
    assert time.process_time() - begin < 10  # seconds


# -- in a model ----------------------------------------------------------------------------------


def bundle(*lambdas, version="2.21.0"):
    layers = [
        {
            "class_name": "InputLayer",
            "config": {"batch_input_shape": [None, 4, 6], "dtype": "float32", "name": "x"},
        }
    ]
    for i, config in enumerate(lambdas):
        layers.append({"class_name": "Lambda", "config": {"name": f"l{i}", **config}})
    content = {"class_name": "Sequential", "config": {"name": "m", "layers": layers}}
    metadata = Metadata("keras-h5", "whole model", recorded={"keras_version": version})
    return Bundle(metadata, {}, topology=Topology("keras_config", {}, content))


def test_a_function_that_is_not_in_the_file_is_named_with_the_way_out():
    named = {"function": "scaled", "function_type": "function", "arguments": {"by": 2}}
    broken = {"function": ["4wEAAAABAAAA", None, None], "function_type": "lambda"}
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle(named, broken))
    text = str(caught.value)
    assert "Lambda ×2, at l0 (its function 'scaled' is not in the file, arguments=" in text  # noqa: RUF001
    assert ", l1 (" in text
    assert "4wEA" not in text
    assert "trust=" in text


def test_numbers_that_are_drawn_for_training_alone_are_not_in_the_graph():
    source = "lambda x: K.in_train_phase(x + tf.random.uniform(tf.shape(x)), x) * 2.0"
    graph = lower(bundle({"function": recorded(source)}))
    assert graph.random == {}
    assert [node.op_type for node in graph.nodes] == ["Mul", "Identity"]


def test_functions_of_a_loop_that_are_all_the_last_one_are_said_to_be():
    source = "def outer():\n    i = 0\n    return lambda x: x * i"
    config = {"function": recorded(source, closure=[2])}
    graph = Graph("m", 18)
    op = KerasBuilder(graph, {})
    x = op.input("x", "float32", ("batch", 4, 6))
    for name in ("a", "b"):
        lambda_(op, Roles(op, name, {}), x, structure=x, setting=TODAY, **config)
    assert [note.split(":")[0] for note in graph.notes if "loop" in note] == [
        "Lambda b is the same function of the same input as a"
    ]


def test_whole_numbers_are_not_what_other_back_ends_make_of_them():
    numbers = np.arange(6).reshape(2, 3).astype("i4")
    with pytest.raises(Unsupported, match="of which jax has its own ideas"):
        lower_lambda("lambda x: x / 2", numbers, setting=(3, 2, "jax"))
    np.testing.assert_array_equal(computed("lambda x: x / 2", numbers), numbers / 2)


def test_a_gap_in_code_is_named_with_its_layer_and_the_way_out():
    config = {"function": recorded("lambda x: x * unknown"), "function_type": "lambda"}
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle(config))
    assert "its code uses 'unknown'" in str(caught.value)
    assert ", at l0" in str(caught.value)
    assert "trust=" in str(caught.value)


def test_a_whole_conversion_says_that_code_was_read_and_was_not_run(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "m.h5"
    content = bundle({"function": recorded("lambda x: K.abs(x)"), "function_type": "lambda"})
    with h5py.File(path, "w") as f:
        f.attrs["model_config"] = json.dumps(content.topology.content)
        f.attrs["keras_version"] = "2.21.0"
        f.create_group("model_weights").attrs["layer_names"] = np.array([], "S1")
    converter.convert(path, to="portable", out=tmp_path / "out", options=Options(verify="weights"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    text = json.dumps(manifest)
    assert "its code was read, not run, 'K' as keras.backend" in text
    assert "lambda-bytecode" in text
