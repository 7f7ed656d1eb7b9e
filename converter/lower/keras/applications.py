"""Layers that models of keras.applications bring with them: no part of keras.layers.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/applications
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.values import Value


@keras_layer("LayerScale")
def layer_scale(
    op: Builder, w: Roles, x: Value, /, *, init_values: Any = None, projection_dim: int
) -> Value:
    """`x * gamma` for each channel (ConvNeXt)."""
    del init_values
    if len(w.tensors) != 1:
        raise Unsupported("weights that are not one")
    (role,) = w.tensors  # Keras 3 gives it no name
    gamma = w[role]
    if gamma.shape != (projection_dim,):
        raise Unsupported(f"a factor of shape {list(gamma.shape)}")
    return op.mul(x, gamma)


@keras_layer("StochasticDepth")
def stochastic_depth(op: Builder, w: Roles, x: Value, /, *, drop_path_rate: float) -> Value:
    """The input: paths are dropped in training only (ConvNeXt)."""
    del op, w, drop_path_rate
    return x


@keras_layer("CustomScaleLayer")
def custom_scale_layer(
    op: Builder, w: Roles, x: Value, residual: Value, /, *, scale: float
) -> Value:
    """`x + residual * scale` (InceptionResNetV2)."""
    del w
    return op.add(x, op.mul(residual, scale))
