"""What attention of older Keras meant otherwise, and TensorFlow's operations as layers of tf.keras.

A `TFOpLambda` becomes a call of the function that it names, a `TensorFlowOpLayer` a call of the op
of its node: their class name is then that function or op, and their module TensorFlow's.
"""

from dataclasses import replace

from converter.lower.keras.model import Layer
from converter.lower.keras.rules import Age, rule


@rule
def masks_of_heads(layer: Layer, age: Age) -> Layer | None:
    """MultiHeadAttention of Keras 2 adds to masked scores, and leaves no zeros behind."""
    if layer.class_name != "MultiHeadAttention" or age.major > 2:
        return None
    return replace(layer, config={"softmax_robust_masking": False, **layer.config})
