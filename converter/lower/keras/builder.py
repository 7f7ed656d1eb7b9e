"""The builder of a Keras model's graph."""

from converter.lower.builder import Builder
from converter.lower.tf.context import Context


class KerasBuilder(Context):
    """A builder on which TensorFlow's rows can be called as well.

    All inputs name their batch alike, and yet may differ in it: each tensor tells its own sizes.
    """

    size = Builder.size
