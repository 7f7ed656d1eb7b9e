"""Compare the doctor's predictions with what the official loaders did, per format.

    python tools/corpus/doctor.py FOLDER [-v]

FOLDER has an INDEX.tsv with the columns ``kind``, ``path`` and ``official_tools_today``: the
outcomes of keras 3.15, tf_keras 2.21, tensorflow 2.21 and torch 2.13 on a machine without a GPU.
The doctor predicts for such a host. Prints, per kind and loader, how often the outcome is right,
and how often the message begins as predicted where both fail.
"""

import argparse
import csv
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from converter.doctor.host import Host, Package
from converter.doctor.predictions import predict
from converter.doctor.source import read_source
from formats.errors import ConvertError

HOST = Host(
    python="3.11.7",
    system="Linux",
    machine="x86_64",
    packages={
        "torch": (Package("torch", "2.13.0+cpu"),),
        "tensorflow": (Package("tensorflow", "2.21.0"),),
        "keras": (Package("keras", "3.15.1"),),
        "tf-keras": (Package("tf-keras", "2.21.0"),),
        "onnxruntime": (Package("onnxruntime", "1.31.1"),),
        "safetensors": (Package("safetensors", "0.8.0"),),
    },
)
# Call as INDEX.tsv names it → loader that the doctor predicts.
CALLS = {
    "keras 3.15.1 load_model(compile=False)": "keras.models.load_model(path)",
    "tf_keras 2.21 load_model(compile=False)": "tf_keras.models.load_model(path)",
    "tf 2.21 saved_model.load": "tf.saved_model.load(path)",
    "tf 2.21 import_graph_def": "tf.graph_util.import_graph_def(graph_def)",
    "tf 2.21 train.load_checkpoint": "tf.train.load_checkpoint(path)",
    "torch 2.13 load(weights_only=True)": "torch.load(path)",
    "torch 2.13 load(weights_only=True,map_location='cpu')": 'torch.load(path, map_location="cpu")',
    "torch 2.13 jit.load()": "torch.jit.load(path)",
    "torch 2.13 jit.load(map_location='cpu')": 'torch.jit.load(path, map_location="cpu")',
    "onnx 1.23 checker + onnxruntime 1.31 session": "onnxruntime.InferenceSession(path)",
    "safetensors 0.8 load_file": "safetensors.safe_open(path)",
}
MESSAGE = 40  # characters that must agree; INDEX.tsv keeps about a hundred


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    with (options.folder / "INDEX.tsv").open() as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        for call, verdict, detail in judge(row, options.folder):
            counts[row["kind"], call, verdict] += 1
            if options.verbose or verdict not in ("right", "right, and its message"):
                print(f"{verdict}: {row['path']}\n    {call}\n    {detail}")
    return report(counts)


def judge(row, folder):
    """Yield call, verdict and detail for each recorded outcome of one artifact."""
    recorded = {}
    for part in re.split(
        r"; (?=(?:keras|tf_keras|tf|tf2onnx|torch|onnx|safetensors) [\d.C])",
        row["official_tools_today"],
    ):
        call, _, outcome = part.partition(" = ")
        if call in CALLS:
            recorded[call] = outcome
    try:
        source = read_source(str(folder / row["path"]))
        if source.keras is not None:  # the index has compile=False
            source = replace(source, keras=replace(source.keras, training=None))
        predictions = {p.loader: p for p in predict(source, HOST)}
    except ConvertError as e:
        yield "-", "unreadable", f"{type(e).__name__}: {e}"
        return
    for call, outcome in recorded.items():
        loader = CALLS[call]
        p = predictions.get(loader)
        if p is None and "map_location" in loader:
            p = predictions.get(loader.replace(', map_location="cpu"', ""))
        if p is None:
            yield call, "not predicted", outcome
            continue
        really = "loads" if outcome.startswith("ok") else "fails"
        if p.outcome != really:
            yield (
                call,
                "WRONG",
                f"predicted {p.outcome} ({p.cause} {p.message[:80]}), was {outcome[:160]}",
            )
        elif really == "loads":
            yield call, "right", outcome
        else:
            found = outcome.partition("(")[2]
            said = f"{p.error}: {p.message}"
            size = min(MESSAGE, len(said))
            same = found[:size] == said[:size]
            yield (
                call,
                "right, and its message" if same else "right, other message",
                (f"predicted {said[:110]!r}\n    was       {found[:110]!r}"),
            )


def report(counts) -> int:
    total = right = failing = messages = 0
    print(f"\n{'kind':<14} {'loader':<56} {'right':>9} {'message':>9}")
    for kind, call in dict.fromkeys((k, c) for k, c, _ in counts):
        of = {v: n for (k, c, v), n in counts.items() if (k, c) == (kind, call)}
        n = sum(of.values())
        fails = of.get("right, and its message", 0) + of.get("right, other message", 0)
        good = of.get("right", 0) + fails
        same = of.get("right, and its message", 0)
        total, right, failing, messages = total + n, right + good, failing + fails, messages + same
        print(f"{kind:<14} {CALLS.get(call, call):<56} {good:>4}/{n:<4} {same:>4}/{fails:<4}")
    print(
        f"\ndoctor: {right} of {total} outcomes predicted ({100 * right / max(total, 1):.1f} %), "
        f"{messages} of {failing} messages"
    )
    return 0 if total and right / total > 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
