"""Run the tests of tf2onnx with tf2onnx and with us, on the same graphs, and print a table.

    CONVERT_PEER_PYTHON=PYTHON python benchmarks/tf2onnx_suite.py CHECKOUT SCRATCH

CHECKOUT is its source, whose tests/ are not ours to keep (the source distribution has them);
PYTHON has tensorflow, tf2onnx, pytest and parameterized, this one has convert and onnxruntime.
First their test functions build graphs, and TensorFlow computes what these give; then both convert
each graph, onnxruntime runs it, and it is compared within the tolerances of the test. What
TensorFlow itself does not run is nobody's case. TF_USE_LEGACY_KERAS=1 builds recurrent cells, too.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
OPSET = "18"
FILES = (
    "test_backend.py", "test_cond.py", "test_const_fold.py", "test_loops.py", "test_lstm.py",
    "test_gru.py", "test_custom_rnncell.py", "test_string_ops.py", "test_stacked_lstm.py",
)  # fmt: skip


def main() -> None:
    tests, scratch = Path(sys.argv[1]).resolve() / "tests", Path(sys.argv[2]).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    python = os.environ.get("CONVERT_PEER_PYTHON", sys.executable)
    words = {
        "PEER_OUT": str(scratch), "PYTHONPATH": str(HERE), "TF2ONNX_TEST_OPSET": OPSET,
        "TF2ONNX_SKIP_TFLITE_TESTS": "TRUE", "TF2ONNX_SKIP_TFJS_TESTS": "TRUE",
        "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1",
    }  # fmt: skip
    environment = {**os.environ, **words}
    keep = [python, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "--tb", "no",
            "-p", "no:cacheprovider", "-p", "tf2onnx_record"]  # fmt: skip
    if not any(scratch.glob("*/case.json")):
        subprocess.run([*keep, *FILES], cwd=tests, env=environment, check=False)
    convert = [python, str(HERE / "tf2onnx_theirs.py"), str(scratch)]
    subprocess.run(convert, env=environment, check=True)
    from tf2onnx_comparison import drive

    show(drive(scratch, ours), json.loads((scratch / "theirs.json").read_text()))


def ours(folder, case, data):
    import converter
    from converter import passes
    from converter.lower import emit, lower

    bundle = converter.read(folder / ("whole" if case["tables"] else "frozen"))
    graph = passes.run(lower(bundle, int(OPSET)), bundle.weights)
    pieces = emit.model(graph, bundle.weights).pieces()
    model = b"".join(p if isinstance(p, bytes) else p.read() for p in pieces)
    fed = {k.split(":")[0]: data[f"in{i}"] for i, k in enumerate(case["inputs"])}
    fed = {name: fed[name] for name in graph.inputs}
    return model, [f"out{i}" for i in range(len(case["outputs"]))], fed


def show(found: dict[str, str], theirs: dict[str, str]) -> None:
    cases, passed, peers = Counter(), Counter(), Counter()
    for name, result in sorted(found.items()):
        for key in (name.split(".")[0], "all"):
            cases[key] += 1
            passed[key] += result == "passed"
            peers[key] += theirs[name] == "passed"
        for who, said in (("convert", result), ("tf2onnx", theirs[name])):
            if said != "passed":
                print(f"{who}: {name}: {said}")
    print(f"{'':20} {'cases':>8} {'convert':>8} {'tf2onnx':>8}")
    for key in sorted(cases, key=lambda key: (key == "all", key)):
        print(f"{key:20} {cases[key]:8} {passed[key]:8} {peers[key]:8}")


if __name__ == "__main__":
    main()
