"""Element by element: arithmetic, comparison, functions of one number."""

from converter.lower.tf.context import Context
from converter.lower.tf.table import tf_op
from converter.lower.values import Value


def _binary(name: str, op_type: str, meaning: str) -> None:
    def handler(op: Context, x: Value, y: Value, /) -> Value:
        return op.elementwise(op_type, x, y)

    handler.__doc__ = meaning
    tf_op(name)(handler)


_binary("AddV2", "Add", "x + y.")
_binary("Sub", "Sub", "x - y.")
_binary("Mul", "Mul", "x * y.")
