"""A module that a user trusts, and which does what it should not.

``odd.py ROOT`` prints what comes of it; ROOT is the project's.
"""

import json
import random
import sys

import numpy as np
import tensorflow as tf
from keras import layers, ops

CALLS = []


def gives_nothing(x):
    return None


def gives_a_number(x):
    return 3.0


def gives_an_array(x):
    return np.ones((2, 3), "float32")


def raises(x):
    raise ValueError("no such luck")


def leaves(x):
    sys.exit(0)


def counts(x):
    CALLS.append(1)
    return x * float(len(CALLS))


def by_chance(x):
    return x * random.random()


def by_chance_in_tensorflow(x):
    return tf.nn.relu(x) * tf.random.uniform(())


def decides(x):
    return x if ops.sum(x) > 0 else -x


def loops(x):
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.square(y)), (0, x))[1]


@tf.function
def calls_a_function(x):
    return tf.square(x) + 1.0


class Fails(layers.Layer):
    def __init__(self, at, **kwargs):
        super().__init__(**kwargs)
        self.at = at
        if at == "init":
            raise ValueError("no such luck")

    def build(self, input_shape):
        if self.at == "build":
            raise ValueError("no such luck")

    def call(self, x):
        if self.at == "call":
            raise ValueError("no such luck")
        return x


class Chance(layers.Layer):
    """A number that is another one each time the layer is made."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.factor = random.random()

    def call(self, x):
        return x * self.factor


class Table(layers.Layer):
    """Numbers that are computed when it is built, and always the same."""

    def build(self, input_shape):
        self.table = np.arange(input_shape[-1], dtype="float32")

    def call(self, x):
        return x + self.table


class Training(layers.Layer):
    """Its default is what no inference does."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = layers.Dropout(0.5)

    def call(self, x, training=True):
        return ops.tanh(self.drop(x, training=training)) if training else self.drop(x)


FUNCTIONS = (
    "gives_nothing", "gives_a_number", "gives_an_array", "raises", "leaves", "counts", "by_chance",
    "by_chance_in_tensorflow", "decides", "loops", "calls_a_function",
)  # fmt: skip
CLASSES = {
    "init": ("Fails", {"at": "init"}), "build": ("Fails", {"at": "build"}),
    "call": ("Fails", {"at": "call"}), "argument": ("Fails", {"at": "", "beside": 1}),
    "chance": ("Chance", {}), "table": ("Table", {}),
    "training": ("Training", {}),
}  # fmt: skip


def questions():
    about = {
        "arguments": [{"__value__": 0}],
        "keywords": {},
        "values": [["float32", [None, 3], None]],
    }
    for name in FUNCTIONS:
        yield name, {"subject": "function", "name": name, "config": None, **about}
    for case, (name, config) in CLASSES.items():
        yield case, {"subject": "class", "name": name, "config": config, **about}


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    from converter.lower.keras.trusted_child import trace_code

    found = {
        case: trace_code({"modules": [["odd", __file__]], **question})
        for case, question in questions()
    }
    answers = {}
    for case, answer in found.items():
        layers_of = answer.get("model", {"config": {"layers": []}})["config"]["layers"]
        ops_of = [(e["config"].get("node_def") or {}).get("op", e["class_name"]) for e in layers_of]
        answers[case] = [answer["status"], answer.get("gap", ""), ops_of]
    sys.stdout.write(f"\n{json.dumps(answers)}\n")
