"""Non-maximum suppression means the same in every front end, against a greedy loop in Python."""

import math

import numpy as np
import onnx_run
import pytest
import spellings as s

RANDOM = np.random.default_rng(11)
CORNERS = RANDOM.uniform(0, 8, (12, 2))
BOXES = np.concatenate([CORNERS, CORNERS + RANDOM.uniform(1, 5, (12, 2))], 1).astype("float32")
SCORES = RANDOM.permutation(np.linspace(0.05, 0.95, 12)).astype("float32")


def overlap(a, b):
    width, height = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    common = max(width, 0) * max(height, 0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return common / (areas - common) if areas > common else 0.0


def kept(boxes, scores, iou, most=100, least=-math.inf):
    """Return indices by descending score."""
    result = []
    for i in np.argsort(-scores):
        free = all(overlap(boxes[i], boxes[j]) <= iou for j in result)
        if free and scores[i] > least and len(result) < most:
            result.append(int(i))
    return result


def faded(boxes, scores, sigma, most, least):
    """Return indices and scores of soft suppression."""
    left, result = scores.astype("float64").copy(), []
    while len(result) < most and left.max() > least:
        best = int(left.argmax())
        result.append((best, left[best]))
        for i in range(len(left)):
            left[i] *= math.exp(-0.5 / sigma * overlap(boxes[i], boxes[best]) ** 2)
        left[best] = -math.inf
    return result


def tf(folder, name, specs, constants, **options):
    given = [np.array(n, "int32" if isinstance(n, int) else "float32") for n in constants]
    return s.tensorflow(folder, name, specs, given, **options)


@pytest.mark.parametrize("count", [12, 1, 0])
@pytest.mark.parametrize("size", ["static", "symbolic"])
@pytest.mark.parametrize("iou", [0.0, 0.3, 1.0])
def test_the_plain_kind(iou, size, count, tmp_path):
    boxes, scores = BOXES[:count], SCORES[:count]
    n = count if size == "static" else None
    specs = [("float32", (n, 4)), ("float32", (n,))]
    expected = kept(boxes, scores, iou)
    graph, weights = tf(tmp_path, "NonMaxSuppressionV2", specs, [100, iou], result="int32")
    (found,) = onnx_run.run(graph, boxes, scores, weights=weights)
    assert found.tolist() == expected
    graph, weights = s.torch_script(tmp_path, f"ops.torchvision.nms(x0, x1, {iou})", specs)
    (found,) = onnx_run.run(graph, boxes, scores, weights=weights)
    assert found.dtype == "int64"
    assert found.tolist() == expected


def test_bounds_of_scores_and_of_their_number(tmp_path):
    specs = [("float32", (None, 4)), ("float32", (None,))]
    graph, weights = tf(tmp_path, "NonMaxSuppressionV3", specs, [3, 0.5, 0.4], result="int32")
    (found,) = onnx_run.run(graph, BOXES, SCORES, weights=weights)
    assert found.tolist() == kept(BOXES, SCORES, 0.5, 3, 0.4)


def test_soft_suppression(tmp_path):
    specs = [("float32", (None, 4)), ("float32", (None,))]
    expected = faded(BOXES, SCORES, 0.5, 8, 0.1)
    for output, column, dtype in (("y:0", 0, "int32"), ("y:1", 1, "float32")):
        graph, weights = tf(
            tmp_path, "NonMaxSuppressionV5", specs, [8, 0.5, 0.1, 0.5], output=output, result=dtype
        )
        (found,) = onnx_run.run(graph, BOXES, SCORES, weights=weights)
        np.testing.assert_allclose(found, [pair[column] for pair in expected], rtol=1e-5)


def test_overlaps_that_are_given(tmp_path):
    overlaps = np.array([[overlap(a, b) for b in BOXES] for a in BOXES], "float32")
    specs = [("float32", (None, 12)), ("float32", (None,))]
    graph, weights = tf(
        tmp_path, "NonMaxSuppressionWithOverlaps", specs, [5, 0.3, 0.2], result="int32"
    )
    (found,) = onnx_run.run(graph, overlaps, SCORES, weights=weights)
    assert found.tolist() == kept(BOXES, SCORES, 0.3, 5, 0.2)
