"""Non-maximum suppression: indices of the boxes that are kept, by descending score.

Plain suppression is ONNX's operator. Where scores decay (soft-NMS) or overlaps are an input, each
iteration of a Loop selects the box with the highest score.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from converter.lower.builder import Builder
from converter.lower.graph import Dim, needed
from converter.lower.values import Value


def suppress(
    op: Builder, boxes: Value, scores: Value, max_count: Value, iou_threshold: Value,
    score_threshold: Value | None = None,
) -> Value:  # fmt: skip
    """Return the indices (int64) of the boxes that are kept.

    Args:
        op: Builder.
        boxes: [boxes, 4]: two opposite corners of each box.
        scores: [boxes].
        max_count: Maximum number of boxes; this and the thresholds have one element.
        iou_threshold: Boxes whose IoU with a kept box is above it are removed.
        score_threshold: Boxes whose score is not above it are removed.
    """
    inputs = [
        op.plain(op.unsqueeze(op.cast(boxes, "float32"), [0])),
        op.plain(op.unsqueeze(op.cast(scores, "float32"), [0, 1])),
        as_vector(op, max_count, "int64"), as_vector(op, iou_threshold, "float32"),
        None if score_threshold is None else as_vector(op, score_threshold, "float32"),
    ]  # fmt: skip
    found = op.emit("NonMaxSuppression", *inputs, dtype="int64", shape=(None, 3))
    return op.squeeze(op.slice(found, [1], [2], [3]), [1])


def as_vector(op: Builder, x: Value, dtype: str) -> Value:
    """Return a scalar as a vector of one element, which ONNX's operator expects."""
    return op.cast(op.reshape(x, (1,)), dtype)


def measure_overlaps(op: Builder, boxes: Value) -> Callable[[Value], Value]:
    """Return a function from the index of a box to its intersection over union with each box."""
    sides = [op.squeeze(op.slice(boxes, [1], [i], [i + 1]), [1]) for i in range(4)]
    low = [op.elementwise("Min", sides[i], sides[i + 2]) for i in (0, 1)]
    high = [op.elementwise("Max", sides[i], sides[i + 2]) for i in (0, 1)]
    area = op.mul(op.sub(high[0], low[0]), op.sub(high[1], low[1]))

    def overlaps(best: Value) -> Value:
        own = op.gather(area, best)
        lengths = []
        for start, end in zip(low, high, strict=True):
            first = op.elementwise("Max", start, op.gather(start, best))
            last = op.elementwise("Min", end, op.gather(end, best))
            lengths.append(op.elementwise("Max", op.sub(last, first), 0.0))
        common = op.mul(*lengths)
        union = op.sub(op.add(area, own), common)
        some = op.elementwise("And", *(op.elementwise("Greater", v, 0.0) for v in (area, own)))
        return op.where(some, op.div(common, op.where(some, union, 1.0)), 0.0)

    return overlaps


def suppress_by_rounds(
    op: Builder, scores: Value, max_count: Value, limit: Value, least: Value,
    overlaps: Callable[[Value], Value], *, fading: float = 0.0,
) -> tuple[Value, Value]:  # fmt: skip
    """Return the indices and scores of the selected boxes, one for each iteration of a Loop.

    Args:
        op: Builder.
        scores: One score for each box.
        max_count: Maximum number of boxes.
        limit: Boxes that overlap a selected one by more are removed.
        least: Boxes whose score is not above it are removed.
        overlaps: Function from the index of a box (a vector of one) to its overlap with each box.
        fading: Factor of soft-NMS: scores are multiplied by exp(fading * overlap ** 2); 0 for none.
    """
    nothing = op.constant(-inf, "float32")
    limit, least = op.reshape(limit, ()), op.reshape(least, ())

    def has_any(x: Value) -> Value:
        some = op.cast(op.elementwise("Greater", x, nothing), "int32")
        return op.elementwise("Greater", op.reduce("ReduceSum", some, [0]), 0)

    start = op.where(op.elementwise("Greater", scores, least), scores, nothing)
    keep = has_any(start)
    trips = op.cast(op.reshape(max_count, ()), "int64")
    size: tuple[Dim, ...] = (scores.shape[0],)
    with op.body("body") as body:
        op.input(op.unique("round"), "int64", ())
        op.input(op.unique("keep"), "bool", ())
        now = op.input(op.unique("scores"), "float32", size)
        best = op.node("ArgMax", [now], [("int64", (1,))], attributes={"axis": 0, "keepdims": 1})[0]
        score = op.gather(now, best)
        common = overlaps(best)
        after = now
        if fading:
            square = op.mul(op.mul(op.constant(fading, "float32"), common), common)
            after = op.mul(now, op.unary("Exp", square))
        stays = op.elementwise("Greater", after, least)
        far = op.unary("Not", op.elementwise("Greater", common, limit))
        after = op.where(op.elementwise("And", stays, far), after, nothing)
        after = op.emit(
            "ScatterElements", after, best, op.reshape(nothing, (1,)), dtype="float32", shape=size
        )
        outputs = [has_any(after), after, op.squeeze(best, [0]), op.squeeze(score, [0])]
        body.outputs = [v.name for v in outputs]
    made = op.node(
        "Loop", [trips, replace(keep, is_constant=False), start],
        [("float32", size), ("int64", (None,)), ("float32", (None,))],
        attributes={"body": needed(body)},
    )  # fmt: skip
    return made[1], made[2]
