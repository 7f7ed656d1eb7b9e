"""One line of an exception names its cause, wherever a framework puts that."""

import pytest

from converter.child.describe_error import describe_error

TENSORFLOW = """Graph execution error:

Detected at node 'model/dense/MatMul' defined at (most recent call last):
<stack traces unavailable>
Matrix size-incompatible: In[0]: [1,3], In[1]: [4,2]
\t [[{{node model/dense/MatMul}}]] [Op:__inference_signature_wrapper_12]

Function call stack:
signature_wrapper
"""
KERAS_3 = """Exception encountered when calling Dense.call().

\x1b[1mMatrix size-incompatible: In[0]: [1,3], In[1]: [4,2]\x1b[0m

Arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(1, 3), dtype=float32)
"""
TORCHSCRIPT = """The following operation failed in the TorchScript interpreter.
Traceback of TorchScript, serialized code (most recent call last):
  File "code/__torch__.py", line 8, in forward
    return torch.mm(x, y)
           ~~~~~~~~ <--- HERE
RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3 and 4x2)
"""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (TENSORFLOW, "Matrix size-incompatible: In[0]: [1,3], In[1]: [4,2]"),
        (KERAS_3, "Matrix size-incompatible: In[0]: [1,3], In[1]: [4,2]"),
        (
            TORCHSCRIPT,
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3 and 4x2)",
        ),
        ("two\n  lines", "two lines"),
        ("\t[[{{node x}}]]", "[[{{node x}}]]"),
        ("a\x07b", "a b"),
        ("x" * 999, "x" * 400),
    ],
)
def test_the_cause_is_named(message, said):
    assert describe_error(ValueError(message)) == f"ValueError: {said}"


def test_an_exception_without_a_message():
    assert describe_error(KeyboardInterrupt()) == "KeyboardInterrupt"
