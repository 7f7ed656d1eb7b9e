"""Verifications as the engine reports them: one that passed, and one that failed."""

from dataclasses import replace

import numpy as np

from converter.verification.compare import Array, Tolerance, compare
from converter.verification.measure import Measure, Runtime
from converter.verification.report import (
    CaseReport,
    Coverage,
    GraphReport,
    LayerDifference,
    LayerError,
)
from converter.verification.verdict import Evidence

NOISE = 2e-7
SOURCE = Runtime("keras", "3.15.0", "CPU:0", {"numpy": "2.4.6"})
CONVERTED = Runtime("onnxruntime", "1.31.1", "CPUExecutionProvider", {"numpy": "2.4.6"})


def measured(name: str, difference: float) -> Measure:
    """Return the measure of an output that differs by a fraction of its scale."""
    expected = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 20)
    found = expected + np.float32(difference) * np.float32((-1.0) ** np.arange(20))
    noise = np.full(expected.shape, NOISE)
    evidence = Evidence(noise**2, 3 * noise, expected.astype(np.float64) + 1e-8)
    arrays = Array(expected, "float32"), Array(found.astype(np.float32), "float32")
    return compare(name, *arrays, Tolerance(), "3x20", evidence)


def layers(name: str = "layer", count: int = 9, wrong: int | None = None) -> tuple[LayerError, ...]:
    """Return errors of layers: the first is equal, and those from ``wrong`` on differ."""
    one = LayerError(name, "Dense", True, 1e-7, NOISE, "explained", "float32", (3, 20), 4 * NOISE,
                     3e-8, 5e-8)  # fmt: skip
    found = [one._replace(layer=f"{name} {i}", error=(1 + i % 5) * 1e-7) for i in range(count)]
    found[0] = found[0]._replace(
        error=0.0, verdict="equal", source_error=None, converted_error=None
    )
    for i in range(count if wrong is None else wrong, count):
        found[i] = found[i]._replace(passed=False, error=0.5, verdict="unexplained",
                                     source_error=0.3)  # fmt: skip
    if wrong is not None:
        found[-1] = found[-1]._replace(error=float("inf"))
    return tuple(found)


def passed(count: int = 9) -> GraphReport:
    """Return the report of a graph that computes the same."""
    return GraphReport(
        "passed", source=SOURCE, converted=CONVERTED, seed=0,
        cases=(CaseReport("1x20", {"x": ("float32", (1, 20))}),
               CaseReport("3x20", {"x": ("float32", (3, 20))})),
        outputs={name: measured(name, 1e-7) for name in ("scores", "boxes")},
        coverage=Coverage(6, 5, ("relu (Relu): below zero",)), seconds=4.2,
    ).with_layer_errors(layers(count=count))  # fmt: skip


def failed() -> GraphReport:
    """Return the report of a graph that differs from its eighth layer on."""
    wrong = measured("scores", 0.1)
    first = LayerDifference("layer 7", "Dense", replace(wrong, name="layer 7"), (), "layer 6")
    report = replace(passed(), status="failed", outputs={"scores": wrong}, first_difference=first,
                     reason="the output 'scores' differs by 9 times the noise")  # fmt: skip
    return report.with_layer_errors(layers(wrong=7))
