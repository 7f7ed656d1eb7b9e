"""Functions in Lambda layers that mean harm: what they would do is looked at, and never done.

Each model converts or is refused with a gap; in both cases quickly, in little memory, and without
anything of what its function names having happened.
"""

import base64
import io
import json
import marshal
import zipfile

import pytest
from attacks.arena import a_file, size
from attacks.bases import weights_h5

FAR = size(10**7, 10**12)


def archive(code, closure=None, defaults=None):
    """Return a model of one Lambda layer, as Keras 3 writes it."""
    function = {"code": code, "defaults": defaults, "closure": closure}
    layer = {"name": "f", "function": {"class_name": "__lambda__", "config": function}}
    entrance = {"name": "x", "batch_shape": [None, 4], "dtype": "float32"}
    layers = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": entrance},
        {"module": "keras.layers", "class_name": "Lambda", "config": layer},
    ]
    config = {"name": "m", "layers": layers}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as parts:
        parts.writestr("metadata.json", json.dumps({"keras_version": "3.5.0"}))
        model = {"module": "keras", "class_name": "Sequential", "config": config}
        parts.writestr("config.json", json.dumps(model))
        parts.writestr("model.weights.h5", weights_h5())
    return data.getvalue()


def dumped(function):
    return base64.b64encode(marshal.dumps(function.__code__)).decode()


def function(source):
    """Return what a source is or defines; FAR stands for a number that is in the code."""
    names = {}
    source = source.replace("FAR", str(FAR))
    if source.startswith("lambda"):
        return eval(source)
    exec(source, names)
    return names["f"]


FUNCTIONS = {
    "reading": "lambda x: x + float(open('/etc/passwd').read() and 1)",
    "evaluating": """lambda x: eval("__import__('os').system('touch happened')") or x""",
    "importing": "def f(x):\n  import os\n  os.system('touch happened')\n  return x",
    "escaping": "lambda x: [k for k in ().__class__.__base__.__subclasses__() if k.__name__ =="
    " 'Popen'][0](['touch', 'happened'])",
    "endless": "def f(x):\n  while True:\n    x = x + 1",
    "spinning": "def f(x):\n  n = 0\n  while True:\n    n += 1",
    "counting": "def f(x):\n  for _ in range(FAR):\n    x = x * 1\n  return x",
    "doubling": "def f(x):\n  y = [x]\n  for _ in range(60):\n    y = y + y\n  return y",
    "doubling in place": "def f(x):\n  y = [x]\n  for _ in range(60):\n    y += y\n  return y[0]",
    "doubling text": "def f(x):\n  y = 'a'\n  for _ in range(60):\n    y += y\n  return x * len(y)",
    "nesting": "def f(x):\n  y = (x,)\n  for _ in range(9999):\n    y = (y, y)\n  return y[0]",
    "inside itself": "def f(x):\n  y = [x]\n  y.append(y)\n  return y",
    "recursive": "def f(x):\n  def g(y):\n    return g(y)\n  return g(x)",
    "fibonacci": "def f(x):\n  def g(n):\n    return g(n - 1) + g(n - 2) if n > 1 else n\n"
    "  return x * g(35)",
    "power": "lambda x: x * 9**9**9**9",
    "powers": "def f(x):\n  n = 7\n  for _ in range(50):\n    n = n * n\n  return x * n",
    "shift": "lambda x, n=1: x * (n << FAR)",
    "text": "lambda x, n=FAR: x * len('a' * n)",
    "format": "lambda x, n=FAR: x * len(f'{1:>{n}}')",
    "percent": "lambda x, n=FAR: x * len('%*d' % (n, 1))",
    "just": "lambda x, n=FAR: x * len('a'.ljust(n))",
    "join": "lambda x: x * len(('a' * 100000).join('b' * 100000))",
    "replace": "lambda x: x * len(('a' * 100000).replace('a', 'b' * 100000))",
    "list": "lambda x, n=FAR: x + len([0] * n)",
    "range": "lambda x, n=FAR: x + sum(range(n))",
    "listed": "lambda x, n=FAR: x + len(list(range(n)))",
    "unpacked": "lambda x, n=FAR: x + len([*range(n)])",
    "in range": "lambda x, n=FAR: x * (0.5 in range(n))",
    "multiplied": "lambda x: x + sum([sum([i * j for i in range(9999)]) for j in range(9999)])",
    "zeros": "lambda x, n=FAR: x + __import__('numpy').zeros((n, n)).sum()",
    "numpy": "def f(x):\n  import numpy as np\n  return x + np.ones((FAR, FAR)).sum()",
    "arange": "def f(x):\n  import numpy as np\n  return x + np.arange(FAR).sum()",
    "constants": "def f(x):\n  import tensorflow as tf\n  return x + tf.ones((FAR, 4))[0]",
    "tiles": "def f(x):\n  import tensorflow as tf\n  return tf.tile(x, [FAR, FAR])",
    "repeats": "def f(x):\n  from keras import backend as K\n  return K.repeat_elements(x, FAR, 1)",
    "splits": "def f(x):\n  import tensorflow as tf\n  return tf.split(x, FAR, 1)",
    "concatenates": "def f(x):\n  import tensorflow as tf\n  for _ in range(40):\n"
    "    x = tf.concat([x, x], 1)\n  return x",
    "generator": "lambda x: x + max(i for i in iter(int, 1))",
    "zipped": "lambda x, n=FAR: x * len(list(zip(range(n), range(n))))",
    "sorted": "lambda x, n=FAR: x * sorted(range(n))[0]",
    "indexed": "lambda x, n=FAR: x[n, n, ..., n]",
    "sliced": "lambda x, n=FAR: x[:, ::n] + 'abc' [::n]",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_functions_would_do(arena, name):
    made = function(FUNCTIONS[name])
    attack = a_file(name, "m.keras", archive(dumped(made), None, made.__defaults__))
    (outcome,) = arena.one(attack, ("onnx",))
    assert outcome.code in (0, 4), outcome
    assert not list(arena.corners[0].root.rglob("happened"))


def doubled(depth):
    """Return a constant of 2 ** depth values, which is written in few bytes."""
    data = b"\xa9\x02NN"
    for at in range(depth):
        data = b"\xa9\x02" + data + b"r" + (depth - at).to_bytes(4, "little")
    return data


CODES = {
    "nothing": b"",
    "no code": b"N",
    "deep": b")\x01" * 300_000 + b"N",
    "doubled": doubled(50),
    "long": b"\xe3" + b"\0" * 20 + b"s" + b"\xff\xff\xff\x7f",
    "large": b"c" * (1 << 22),
}


@pytest.mark.parametrize("name", CODES)
def test_what_is_no_function(arena, name):
    code = base64.b64encode(CODES[name]).decode()
    (outcome,) = arena.one(a_file(name, "m.keras", archive(code)), ("onnx",))
    assert outcome.code in (3, 4), outcome


def test_functions_inside_defaults(arena):
    """Each default is a function whose default is one, and so on."""
    code = dumped(lambda x=1: x)
    inside = None
    for _ in range(200):
        parts = {"code": code, "defaults": [inside], "closure": None}
        inside = {"class_name": "__lambda__", "config": parts}
    (outcome,) = arena.one(a_file("inside", "m.keras", archive(code, None, [inside])), ("onnx",))
    assert outcome.code in (3, 4), outcome


def test_sound_function_converts(arena):
    """Or the tests above would show nothing."""
    (outcome,) = arena.one(
        a_file("sound", "m.keras", archive(dumped(lambda x: x * 2 + 1))), ("onnx",)
    )
    assert outcome.code == 0, outcome
