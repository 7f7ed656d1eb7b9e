"""Convert each signature of a TensorFlow graph to ONNX, and compare it with TensorFlow itself.

    python tools/corpus/tensorflow_graphs.py SOURCE SCRATCH

Prints verdicts and details as JSON, in the words of `graphs`. CONVERT_TENSORFLOW_PYTHON names the
Python that has TensorFlow.
"""

import json
import resource
import sys
import traceback
from pathlib import Path

import onnxruntime

import converter
from converter import passes
from converter.lower import emit, lower
from converter.options import Comparison, Options
from converter.verification.graphs import verify_graph
from formats.errors import ConvertError, UnsupportedError

SECONDS = 120  # for each of the two runtimes
MEMORY_BYTES = 6 << 30  # of address space


def main() -> None:
    source, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        bundle = converter.read(source)
    except ConvertError as e:
        rows = [("WRONG", f"cannot be read: {e}")]
    else:
        names = [s.name for s in bundle.signatures if s.outputs] or [None]
        rows = [judge(source, bundle, name, scratch / f"{i}.onnx") for i, name in enumerate(names)]
        rows = [
            (verdict, f"[{n or ''}] {detail}")
            for n, (verdict, detail) in zip(names, rows, strict=True)
        ]
    print(json.dumps(rows))


def judge(source, bundle, name, file):
    """Return a verdict on one signature, and what there is to say."""
    if bundle.topology is None or bundle.topology.kind != "graphdef":
        return "no graph", "a checkpoint without a meta graph"
    try:
        graph = passes.run(lower(bundle, signature=name), bundle.weights)
        with file.open("wb") as f:
            for piece in emit.model(graph, bundle.weights).pieces():
                f.write(piece if isinstance(piece, bytes) else piece.read())
    except UnsupportedError as e:
        return "gap", one_line(e)
    except Exception as e:  # noqa: BLE001 - whatever it is, it is a bug
        return "WRONG", f"{one_line(e)} {one_line(traceback.format_exc())[-300:]}"
    try:
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as e:  # noqa: BLE001 - whatever it raises is its answer
        return "WRONG", f"onnxruntime refuses it: {one_line(e)}"
    try:
        options = Options(comparison=Comparison(timeout=SECONDS, samples=2))
        report = verify_graph(source, bundle, file, options=options, signature=name)
    except ConvertError as e:
        return "WRONG", one_line(e)
    if report.status == "passed":
        little = sum(m.says_little for m in report.outputs.values())
        note = f", {little} say little but {report.layers} layers agree" if little else ""
        skipped = f"; skipped {report.skipped}" if report.skipped else ""
        count = (
            f"{len(report.outputs)} outputs, {len(graph.nodes)} nodes, {len(report.cases)} cases"
        )
        return "agrees", f"max rel {report.max_rel:.1e} in {count}{note}{skipped}"
    if report.status == "not run":
        is_random = "not comparable" in report.reason
        findings = any("code of its own" in report.reason for _ in bundle.metadata.findings)
        return "random" if is_random else "own code" if findings else "no run", report.reason
    failed = [m for m in report.outputs.values() if not m.passed]
    if failed and all("has no element to compare" in " ".join(m.problems) for m in failed):
        return "empty", f"{len(failed)} of {len(report.outputs)} outputs"
    return "WRONG", f"{report.reason} ({report.skipped})"


def one_line(error) -> str:
    return " ".join(f"{error}".split())[:600]


if __name__ == "__main__":
    main()
