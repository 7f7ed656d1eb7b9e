"""Read every artifact of a corpus, and compare with what the official loaders make of it.

    python tools/corpus/check.py FOLDER --torch-python P --tensorflow-python P [--kind K,...]

FOLDER has an INDEX.tsv with the columns ``kind`` and ``path``. For each artifact our reader's
tensors (name or origin, dtype, shape, SHA-256 of the bytes) must be the official loader's, and
``convert --to portable`` must succeed. Exits 1 unless every difference is in exceptions.tsv, the
one list of files that are allowed to differ, each with its reason.
"""

import argparse
import array
import csv
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import converter
from formats.errors import ConvertError

HERE = Path(__file__).parent
# kind -> oracle module, the environment it runs in, and what its keys are compared with
ORACLES = {
    "torch": ("oracle_torch", "torch"),
    "torchscript": ("oracle_torch", "torch"),
    "pt2": ("oracle_torch", "torch"),
    "keras_h5": ("oracle_keras", "tensorflow"),
    "keras_weights": ("oracle_keras", "tensorflow"),
    "keras_zip": ("oracle_keras", "tensorflow"),
    "savedmodel": ("oracle_tf", "tensorflow"),
    "tf_checkpoint": ("oracle_tf", "tensorflow"),
    "tf1_frozen": ("oracle_tf", "tensorflow"),
    "onnx": ("oracle_tf", "torch"),  # the torch environment has onnx, too
    "safetensors": ("oracle_safetensors", "own"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch-python", required=True)
    parser.add_argument("--tensorflow-python", required=True)
    parser.add_argument("--kind", default="")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    with (options.folder / "INDEX.tsv").open() as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    rows = [r for r in rows if not options.kind or r["kind"] in options.kind.split(",")]
    pythons = {
        "torch": options.torch_python,
        "tensorflow": options.tensorflow_python,
        "own": sys.executable,
    }
    answers = official(rows, options.folder, pythons)
    excepted = exceptions()
    verdicts: Counter[tuple[str, str]] = Counter()
    wrong, used = [], []
    start = time.perf_counter()
    for row, answer in zip(rows, answers, strict=True):
        verdict, detail = judge(row["kind"], options.folder / row["path"], answer)
        if verdict == "WRONG" and row["path"] in excepted:
            verdict, detail = "excepted", excepted[row["path"]]
            used.append((row["path"], detail))
        if verdict == "WRONG":
            wrong.append((row["path"], detail))
        verdicts[row["kind"], verdict] += 1
        if options.verbose or verdict == "WRONG":
            print(f"{verdict:<9} {row['kind']:<13} {row['path']}  {detail}")
    report(verdicts, used)
    print(
        f"{len(rows)} artifacts read, converted and compared in {time.perf_counter() - start:.1f} s"
    )
    print(f"corpus: {len(rows) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not rows else 0


def judge(kind: str, path: Path, answer: dict) -> tuple[str, str]:
    """Return ``equal``, ``read`` (no official loader opens it), ``empty`` or ``WRONG``, and why."""
    try:
        ours = tensors(path, by_origin=kind not in ("torch", "torchscript", "pt2", "onnx"))
        with tempfile.TemporaryDirectory() as folder:
            result = converter.convert(path, to="portable", out=Path(folder) / "out")
    except ConvertError as e:
        return "WRONG", f"{type(e).__name__}: {e}"
    if result.bundle.weights and result.verification.weights is None:
        return "WRONG", "converted without verification"
    theirs = answer.get("tensors")
    if theirs is None:
        count = len(result.bundle.weights)
        return "read", f"{count} tensors; the official loader: {answer.get('error', 'fails')}"[:200]
    theirs = {name: normal(fact) for name, fact in theirs.items()}
    missing = [n for n, fact in theirs.items() if ours.get(n) != fact]
    if missing:
        first = missing[0]
        return "WRONG", (
            f"{len(missing)} of {len(theirs)} differ, first {first!r}: "
            f"official {theirs[first]}, ours {ours.get(first)}"
        )
    return ("equal" if theirs else "empty"), f"{len(theirs)} tensors"


def tensors(path: Path, *, by_origin: bool) -> dict[str, list]:
    """Return our reader's tensors: name or origin -> dtype, shape, sha256 of the bytes."""
    bundle = converter.read(path)
    held = dict(bundle.weights)
    for members in bundle.leftovers.values():
        held.update({name if name not in held else f"{name}~": t for name, t in members.items()})
    found = {}
    for name, tensor in held.items():
        notes = bundle.metadata.tensor_notes.get(name, {})
        fact = [notes.get("dtype", tensor.dtype.name), list(tensor.shape), sha256(tensor.chunks())]
        for key in (tensor.origin if by_origin else name, *notes.get("also_stored_as", ())):
            found[key] = fact
    for encoding in bundle.encodings.values():
        if encoding.kind == "string":
            content, offsets = (held[encoding.parts[part]] for part in ("bytes", "offsets"))
            ends = array.array("q", offsets.tobytes())
            lengths = array.array("q", [b - a for a, b in pairwise(ends)])
            digest = sha256([lengths.tobytes(), content.tobytes()])
            found[content.origin] = ["string", list(encoding.shape), digest]
    for name, value in bundle.metadata.user.items():
        if isinstance(value, str):  # scalar strings of checkpoints travel as plain data
            data = value.encode()
            digest = sha256([array.array("q", [len(data)]).tobytes(), data])
            found.setdefault(name, ["string", [], digest])
    return found


def normal(fact: object) -> list:
    """Return [dtype, shape, sha256], however an oracle spells it."""
    if isinstance(fact, dict):
        return [fact["dtype"], list(fact["shape"]), fact["sha256"]]
    return list(fact)


def sha256(chunks) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def official(rows: list[dict], folder: Path, pythons: dict[str, str]) -> list[dict]:
    """Return the official loaders' answers, each environment asked in one child process."""
    answers: list[dict] = [{} for _ in rows]
    for environment, python in pythons.items():
        queue = [i for i, r in enumerate(rows) if ORACLES[r["kind"]][1] == environment]
        while queue:
            lines = [
                f"{ORACLES[rows[i]['kind']][0]} {json.dumps(arguments(rows[i], folder))}\n"
                for i in queue
            ]
            child = subprocess.run(
                [python, HERE / "serve.py"],
                input="".join(lines),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            found = [json.loads(line) for line in child.stdout.splitlines()]
            for i, answer in zip(queue, found, strict=False):
                answers[i] = answer
            if len(found) == len(queue):
                break
            # The loader took its process down: that is its answer, and the others go on.
            answers[queue[len(found)]] = {"error": f"the loader died ({child.returncode})"}
            queue = queue[len(found) + 1 :]
    return answers


def arguments(row: dict, folder: Path) -> list[str]:
    path = str((folder / row["path"]).resolve())
    return [path, row["kind"]] if ORACLES[row["kind"]][0] == "oracle_torch" else [row["kind"], path]


def exceptions() -> dict[str, str]:
    with (HERE / "exceptions.tsv").open() as f:
        return {r["path"]: r["reason"] for r in csv.DictReader(f, delimiter="\t")}


def report(verdicts: Counter[tuple[str, str]], used: list[tuple[str, str]]) -> None:
    columns = ["equal", "read", "empty", "excepted", "WRONG"]
    print(f"\n{'kind':<14}" + "".join(f"{c:>10}" for c in columns))
    for kind in dict.fromkeys(k for k, _ in verdicts):
        print(f"{kind:<14}" + "".join(f"{verdicts[kind, c]:>10}" for c in columns))
    print("read: no official loader opens it; empty: it holds no tensor, officially as well")
    print(f"\nexceptions used: {len(used)}")
    for path, reason in used:
        print(f"  {path}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
