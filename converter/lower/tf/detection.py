"""Non-maximum suppression: TensorFlow's versions of it, including the one for several classes.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/image/non_max_suppression_op.cc
"""

from math import inf

from converter.lower.graph import Dim
from converter.lower.ops.nms import as_vector, measure_overlaps, suppress, suppress_by_rounds
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

SCORES = ("selected_indices", "selected_scores", "valid_outputs")
DETECTIONS = ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections")


@tf_op("NonMaxSuppression")
def non_max_suppression(
    op: Context, boxes: Value, scores: Value, max_output_size: Value, /, *,
    iou_threshold: float = 0.5,
) -> Value:  # fmt: skip
    """Indices of the boxes kept by non-maximum suppression, by descending score."""
    iou = op.constant(iou_threshold, "float32")
    return op.cast(suppress(op, boxes, scores, max_output_size, iou), "int32")


@tf_op("NonMaxSuppressionV2")
def non_max_suppression_v2(
    op: Context, boxes: Value, scores: Value, max_output_size: Value, iou_threshold: Value, /
) -> Value:
    """Indices of the boxes kept by non-maximum suppression, by descending score."""
    return op.cast(suppress(op, boxes, scores, max_output_size, iou_threshold), "int32")


@tf_op("NonMaxSuppressionV3")
def non_max_suppression_v3(
    op: Context, boxes: Value, scores: Value, max_output_size: Value, iou_threshold: Value,
    score_threshold: Value, /,
) -> Value:  # fmt: skip
    """Indices of the boxes kept by non-maximum suppression, with scores above a threshold."""
    found = suppress(op, boxes, scores, max_output_size, iou_threshold, score_threshold)
    return op.cast(found, "int32")


@tf_op("NonMaxSuppressionV4", outputs=("selected_indices", "valid_outputs"))
def non_max_suppression_v4(
    op: Context, boxes: Value, scores: Value, max_output_size: Value, iou_threshold: Value,
    score_threshold: Value, /, *, pad_to_max_output_size: bool = False,
) -> list[Value]:  # fmt: skip
    """Indices of the boxes kept, by descending score, padded with zeros, and their count."""
    found = suppress(op, boxes, scores, max_output_size, iou_threshold, score_threshold)
    numbers, count = op.cast(found, "int32"), _count(op, found)
    if pad_to_max_output_size:
        numbers = _fill_up(op, numbers, max_output_size)
    return [numbers, count]


@tf_op("NonMaxSuppressionV5", outputs=SCORES)
def non_max_suppression_v5(
    op: Context, boxes: Value, scores: Value, max_output_size: Value, iou_threshold: Value,
    score_threshold: Value, soft_nms_sigma: Value, /, *, pad_to_max_output_size: bool = False,
) -> list[Value]:  # fmt: skip
    """Indices and scores of the boxes kept; soft suppression lowers scores by overlap."""
    sigma = op.number(soft_nms_sigma, "soft_nms_sigma")
    if sigma:
        single = op.cast(boxes, "float32")
        # With soft suppression, overlap only lowers scores.
        found, left = suppress_by_rounds(
            op, op.cast(scores, "float32"), max_output_size, op.constant(inf, "float32"),
            op.cast(score_threshold, "float32"), measure_overlaps(op, single), fading=-0.5 / sigma,
        )  # fmt: skip
    else:
        found = suppress(op, boxes, scores, max_output_size, iou_threshold, score_threshold)
        left = op.gather(scores, found)
    numbers, count = op.cast(found, "int32"), _count(op, found)
    left = op.cast(left, scores.dtype)
    if pad_to_max_output_size:
        numbers, left = (_fill_up(op, v, max_output_size) for v in (numbers, left))
    return [numbers, left, count]


@tf_op("NonMaxSuppressionWithOverlaps")
def non_max_suppression_with_overlaps(
    op: Context, overlaps: Value, scores: Value, max_output_size: Value,
    overlap_threshold: Value, score_threshold: Value, /,
) -> Value:  # fmt: skip
    """Indices of the boxes kept by non-maximum suppression, with overlaps given as a matrix."""
    found, _ = suppress_by_rounds(
        op, scores, max_output_size, overlap_threshold, score_threshold,
        lambda best: op.squeeze(op.gather(overlaps, best, 1), [1]),
    )  # fmt: skip
    return op.cast(found, "int32")


def _count(op: Context, x: Value) -> Value:
    return op.cast(op.squeeze(op.size(x, 0), [0]), "int32")


def _fill_up(op: Context, x: Value, size: Value) -> Value:
    """Pad a vector with zeros to a size."""
    missing = op.sub(as_vector(op, size, "int64"), op.size(x, 0))
    amounts = op.concat([op.constant([0], "int64"), missing], 0)
    known = op.dims(size)[0]
    return op.emit("Pad", x, amounts, dtype=x.dtype, shape=(known,))


# -- several classes -------------------------------------------------------------------------------


@tf_op("CombinedNonMaxSuppression", outputs=DETECTIONS)
def combined_non_max_suppression(
    op: Context, boxes: Value, scores: Value, max_output_size_per_class: Value,
    max_total_size: Value, iou_threshold: Value, score_threshold: Value, /, *,
    pad_per_class: bool = False, clip_boxes: bool = True,
) -> list[Value]:  # fmt: skip
    """Top boxes of each image, after non-maximum suppression in each class."""
    batch, count, _, _ = boxes.shape
    classes = scores.shape[2]
    shared = boxes.shape[2]
    if not isinstance(classes, int) or not isinstance(shared, int):
        raise Unsupported("a number of classes that is not known")
    each = op.int(max_output_size_per_class, "max_output_size_per_class")
    total = op.int(max_total_size, "max_total_size")
    size = min(total, each * classes) if pad_per_class else total
    by_class = op.plain(op.transpose(scores, [0, 2, 1]))  # [B, C, N]
    flat = op.reshape(by_class, (None,))
    if shared == 1:
        corners = op.squeeze(boxes, [2])
        asked = by_class
    else:  # each class has its own boxes: the classes become batch entries
        turned = op.plain(op.transpose(boxes, [0, 2, 1, 3]))
        corners = _merge_axes(op, turned, [None, count, 4], [op.size(turned, 2), 4])
        asked = _merge_axes(op, by_class, [None, 1, count], [1, op.size(by_class, 2)])
    found = op.emit(
        "NonMaxSuppression", corners, asked, op.constant([each], "int64"),
        as_vector(op, iou_threshold, "float32"), as_vector(op, score_threshold, "float32"),
        dtype="int64", shape=(None, 3),
    )  # fmt: skip
    # Indices into all scores; every other score becomes minus infinity.
    first, second, third = (op.squeeze(op.slice(found, [1], [i], [i + 1]), [1]) for i in range(3))
    rows, columns = op.size(asked, 1), op.size(asked, 2)
    places = op.add(op.mul(op.add(op.mul(first, rows), second), columns), third)
    nothing = op.emit(
        "Expand", op.constant(-inf, "float32"), op.size(flat, 0), dtype="float32", shape=(None,)
    )
    left = op.emit(
        "ScatterElements", nothing, places, op.gather(flat, places), dtype="float32", shape=(None,)
    )
    boxes_in_all = op.mul(op.size(by_class, 1), op.size(by_class, 2))
    every = _merge_axes(op, left, [batch, None], [boxes_in_all], op.size(boxes, 0))
    wanted = op.constant([size], "int64")
    taken = op.elementwise("Min", wanted, op.size(every, 1))
    best, numbers = op.node(
        "TopK", [every, taken], [("float32", (batch, None)), ("int64", (batch, None))]
    )
    boxes_of = _take_boxes(op, boxes, numbers, shared)
    valid = op.elementwise("Greater", best, -inf)
    owner = op.div(numbers, op.size(by_class, 2))
    if clip_boxes:
        boxes_of = op.clip(boxes_of, 0.0, 1.0)
    missing = op.sub(wanted, taken)
    results = [
        op.where(op.unsqueeze(valid, [2]), boxes_of, 0.0), op.where(valid, best, 0.0),
        op.where(valid, op.cast(owner, "float32"), 0.0),
    ]  # fmt: skip
    none = op.constant([0], "int64")
    padded = []
    for value in results:
        rank = value.rank
        amounts = op.concat([*[none] * (rank + 1), missing, *[none] * (rank - 2)], 0)
        shape = (batch, size, *value.shape[2:])
        padded.append(op.emit("Pad", value, amounts, dtype="float32", shape=shape))
    counted = op.reduce("ReduceSum", op.cast(valid, "int32"), [1])
    return [*padded, counted]


def _merge_axes(
    op: Context, x: Value, dims: list[Dim], last: list[Value | int], first: Value | None = None
) -> Value:
    """Reshape a value to the given last sizes; the first size is inferred by default."""
    parts = [op.constant([n], "int64") if isinstance(n, int) else n for n in last]
    start = op.constant([-1], "int64") if first is None else first
    return op.emit("Reshape", x, op.concat([start, *parts], 0), dtype=x.dtype, shape=tuple(dims))


def _take_boxes(op: Context, boxes: Value, numbers: Value, shared: int) -> Value:
    """Gather boxes by indices into the boxes of all classes."""
    if shared == 1:
        table = op.squeeze(boxes, [2])
        places = op.elementwise("Mod", numbers, op.size(table, 1))
    else:
        turned = op.plain(op.transpose(boxes, [0, 2, 1, 3]))
        sizes: list[Value | int] = [op.mul(op.size(turned, 1), op.size(turned, 2)), 4]
        table = _merge_axes(op, turned, [boxes.shape[0], None, 4], sizes, op.size(boxes, 0))
        places = numbers
    shape = (boxes.shape[0], None, 4)
    return op.emit(
        "GatherND", table, op.unsqueeze(places, [2]), dtype="float32", shape=shape, batch_dims=1
    )
