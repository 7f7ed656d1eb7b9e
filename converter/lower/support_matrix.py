"""The support matrices that ``convert ops`` prints, from the tables."""

from collections.abc import Callable
from typing import Any

from converter.lower.table import summarize

Matrix = list[dict[str, Any]]


def _keras() -> Matrix:
    """Return a row for each layer and operation, and for each activation that is named."""
    from converter.lower.keras.activations import FUNCTIONS, LAMBDA
    from converter.lower.keras.table import LAYERS, OPERATIONS, TF_FUNCTIONS, TF_OPS

    activations = [
        {"name": f"activation {name}", "computes": summarize(function.__doc__), "arguments": []}
        for name, function in sorted(FUNCTIONS.items())
        if name != LAMBDA
    ]
    return [
        *LAYERS.support_matrix(),
        *OPERATIONS.support_matrix("keras.ops "),
        *TF_FUNCTIONS.support_matrix("tf "),
        *(row | {"name": f"TensorFlow op {row['name']}"} for row in _tf() if row["name"] in TF_OPS),
        *activations,
    ]


def _tf() -> Matrix:
    from converter.lower.tf.table import OPS

    own = "_Loop"  # internal op that replaces cycles; files do not contain it
    return [row for row in OPS.support_matrix() if row["name"] != own]


def _torch() -> Matrix:
    from converter.lower.torch.table import OPS

    return OPS.support_matrix()


# A front end is imported only on request: importing all its families takes a second.
MATRICES: dict[str, Callable[[], Matrix]] = {"keras": _keras, "tf": _tf, "torch": _torch}
