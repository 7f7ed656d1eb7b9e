"""Functions that models carry as Python bytecode, decoded as data; nothing runs.

This is all that other packages import of it: `read_code`, and the `Code` that it returns, whose
`Step` s are the same for every version of Python.
"""

from formats.python_bytecode.steps import Code, Step

__all__ = ["Code", "Step", "read_code"]


def read_code(data: bytes) -> Code:
    """Return the code that marshalled bytes hold.

    Raises:
        CorruptError: They are damaged.
        UnsupportedError: The code does what steps cannot say (it awaits, catches), or is of a
            version that is not known, or of two that differ in what it does.
        LimitError: It is larger than any function.
    """
    from formats.python_bytecode.decoder import read  # few models carry code: 2,000 lines

    return read(data)
