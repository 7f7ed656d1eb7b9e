"""Errors of layers in a report: the worst output of each, and what is noted of them."""

from dataclasses import replace

import numpy as np

from converter.verification.compare import Array, Tolerance, compare
from converter.verification.report import GraphReport, LayerError
from converter.verification.verdict import Evidence


def measure(difference):
    expected = np.linspace(-2, 2, 9, dtype=np.float32)
    other = Array(expected + np.float32(difference), "float32")
    return compare("layer", Array(expected, "float32"), other, Tolerance())


def test_the_worst_output_counts():
    near, far = measure(0), measure(0.5)
    one = LayerError.of("a/b", "LSTM", [near, far], [1e-7, 4e-7])
    assert (one.layer, one.class_name, one.passed) == ("a/b", "LSTM", False)
    assert one.error == far.max_rel
    assert one.noise == 4e-7 / far.scale
    assert LayerError.of("a", "Dense", [near], [None]).noise is None


def test_errors_are_fractions_of_the_scale():
    exact = np.linspace(-2, 2, 9)
    noise = np.full(9, 1e-7)
    evidence = Evidence(noise**2, noise, exact)
    other = Array((exact + 1e-7).astype(np.float32), "float32")
    found = compare("layer", Array(exact.astype(np.float32), "float32"), other, Tolerance(),
                    evidence=evidence)  # fmt: skip
    one = LayerError.of("a", "Dense", [found], [evidence.level])
    assert (one.verdict, one.dtype, one.shape) == ("explained", "float32", (9,))
    assert one.bound == found.atol / 2
    assert one.source_error == found.source_error / 2 < one.converted_error
    assert one.plain()["shape"] == [9]


def test_a_report_has_them_and_says_what_they_show():
    fine = LayerError("a", "Dense", True, 1e-7, 2e-7)
    wrong = LayerError("b", "Dense", False, float("inf"), None)
    report = GraphReport("passed", "").with_layer_errors((fine, wrong))
    assert report.notes == ("outputs agree, but layers differ by more than their noise: 'b'",)
    plain = report.plain()["layer_errors"]
    assert [one["error"] for one in plain] == [1e-7, None]
    assert replace(report, status="failed", notes=()).with_layer_errors((wrong,)).notes == ()


def test_none_is_noted():
    (note,) = GraphReport("passed", "").with_layer_errors(()).notes
    assert note.startswith("no layers were compared")
