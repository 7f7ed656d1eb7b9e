"""What a Lambda layer's function may be, and what is found in it."""

import pytest

from formats.core.bundle import SafetyFinding
from formats.keras.config import read_config

EVIL = 'lambda x: eval(\'__import__("os").system("true")\')'


def test_a_function_in_place_of_a_layer():
    layer = {"module": "keras.utils", "class_name": "get_file", "config": {"origin": "x"}}
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [layer]}}
    (finding,) = read_config(config, "config.json").findings
    assert (finding.kind, finding.subject) == ("keras-function", "keras.utils.get_file")


@pytest.mark.parametrize(
    ("function", "finding"),
    [
        ({"function": EVIL, "function_type": "raw"}, ("lambda-text", "layer 'l'")),
        ({"function": EVIL, "function_type": "function"}, ("lambda-text", "layer 'l'")),
        ({"function": EVIL}, ("lambda-text", "layer 'l'")),
        (
            {"function": "my_own", "function_type": "function"},
            ("custom-object", "function 'my_own' of layer 'l'"),
        ),
        ({"function": ["4wEA", None, None]}, ("lambda-bytecode", "layer 'l'")),
        ({"function": "4wEA", "function_type": "lambda"}, ("lambda-bytecode", "layer 'l'")),
        ({"function": "relu"}, None),
    ],
)
def test_a_lambda_layers_function(function, finding):
    layer = {"class_name": "Lambda", "config": {"name": "l", "trainable": True, **function}}
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [layer]}}
    expected = () if finding is None else (SafetyFinding(*finding, "model_config"),)
    assert read_config(config, "model_config").findings == expected
