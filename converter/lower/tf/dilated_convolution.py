"""Dilated convolutions of TensorFlow 1: SpaceToBatchND, a convolution, and BatchToSpaceND."""

from collections.abc import Sequence
from typing import Any

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.tf.context import Context
from converter.lower.tf.convolution import convolve_windows, group_kernel
from converter.lower.tf.graphdef import Node
from converter.lower.tf.session import Session
from converter.lower.tf.windows import Windows
from converter.lower.values import Value


def lower_dilated(op: Session, node: Node, block_shape: Value, crops: Value) -> Value | None:
    """Lower a BatchToSpaceND whose input is a convolution of a SpaceToBatchND.

    It becomes one convolution with dilations and padding. Return None for other patterns.

    Args:
        op: Builder.
        node: The BatchToSpaceND.
        block_shape: Its block shape.
        crops: Its crops at both ends of each axis.
    """
    activation = op.walker.current
    if activation is None:
        return None
    body = activation.body.nodes
    inner = body.get(node.inputs[0].node)
    lines = inner is not None and inner.op == "Squeeze"  # of images of one row
    if inner is not None and lines:
        inner = body.get(inner.inputs[0].node)
    if inner is None or inner.op not in ("Conv2D", "DepthwiseConv2dNative") or not _is_bare(inner):
        return None
    outer = body.get(inner.inputs[0].node)
    if outer is not None and lines:
        outer = body.get(outer.inputs[0].node) if outer.op == "ExpandDims" else None
    if outer is None or outer.op != "SpaceToBatchND":
        return None
    image, blocks, paddings, kernel = (
        op.walker.value(activation, port) for port in (*outer.inputs, inner.inputs[1])
    )
    values = [v for v in (image, blocks, paddings, kernel) if isinstance(v, Value)]
    if len(values) < 4:
        return None
    found = _spread(op, values, block_shape, crops)
    if found is None:
        return None
    windows, image, kernel = found
    groups = None
    if inner.op == "DepthwiseConv2dNative":
        kernel, groups = group_kernel(op, kernel)
    if not lines:
        return convolve_windows(op, image, kernel, windows, "NHWC", groups=groups)
    wide = op.unsqueeze(image, [1])
    return op.squeeze(convolve_windows(op, wide, kernel, windows, "NHWC", groups=groups), [1])


def _is_bare(node: Node) -> bool:
    """Return whether a convolution has no padding, and strides and dilations of 1."""
    ones = [*node.attribute("strides"), *(node.attribute("dilations") or ())]
    plain = node.attribute("data_format", "NHWC") == "NHWC"
    return plain and node.attribute("padding") == "VALID" and all(n == 1 for n in ones)


def _spread(
    op: Context, values: Sequence[Value], block_shape: Value, crops: Value
) -> tuple[Windows, Value, Value] | None:
    """Return the windows, image and kernel of a dilated convolution, or None if it is not one."""
    image, blocks, paddings, kernel = values
    before, after = op.static(blocks), op.static(block_shape)
    added, cut = op.elements(paddings), op.elements(crops)
    if before is None or after is None or added is None or cut is None:
        return None
    lengths = [n for n in kernel.shape[:2] if isinstance(n, int)]
    rank = before.size
    if before.tolist() != after.tolist() or len(lengths) < 2 or image.rank != rank + 2:
        return None
    if rank == 1 and lengths[0] != 1:
        return None
    left = [dims.sub(_dim(p), _dim(c)) for p, c in zip(added.flat, cut.flat, strict=True)]
    pads = [n for n in left if isinstance(n, int) and n >= 0]
    if len(pads) < 2 * rank:
        return None
    spreads = [int(n) for n in before.flat]
    if rank == 1:
        spreads, pads = [1, *spreads], [0, 0, *pads]
    windows = Windows(
        (lengths[0], lengths[1]), (1, 1), (spreads[0], spreads[1]), "EXPLICIT",
        (pads[0], pads[2]), (pads[1], pads[3]),
    )  # fmt: skip
    return windows, image, kernel


def _dim(n: Any) -> Dim:
    return n if n is None or isinstance(n, str) else int(n)
