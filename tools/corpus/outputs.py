"""Everything that convert makes of a corpus, to hold two versions of it against each other.

    PYTHONPATH=VERSION python tools/corpus/outputs.py make CORPUS FOLDER
    python tools/corpus/outputs.py compare BEFORE AFTER

`make` converts each artifact of CORPUS (the rows of its INDEX.tsv, or else every file and folder in
it) to each target without verification, into FOLDER/<artifact>/<target>, with the exit code and
the message in FOLDER/<artifact>/<target>.txt. `compare` names each file that differs, and exits 1
where one does.
"""

import argparse
import contextlib
import csv
import filecmp
import io
import os
import sys
from collections import Counter
from pathlib import Path

TARGETS = {
    "portable": [], "safetensors": [], "onnx": [], "keras": [], "savedmodel": ["--device", "none"],
    "torch": ["--device", "cuda:1"], "torchscript": ["--device", "cuda:1"],
    "pt2": ["--device", "cuda:1"], "triton": ["--device", "cpu"],
}  # fmt: skip


def artifacts(corpus: Path) -> list[Path]:
    """Return the artifacts of a corpus."""
    index = corpus / "INDEX.tsv"
    if index.is_file():
        with index.open(newline="") as rows:
            names = [row["path"] for row in csv.DictReader(rows, delimiter="\t")]
        return [corpus / name for name in names]
    return sorted(p for p in corpus.iterdir() if not p.name.startswith("."))


def make(corpus: Path, folder: Path) -> None:
    """Convert everything to everything."""
    from converter.cli.app import run

    for path in artifacts(corpus.resolve()):
        home = folder / str(path.relative_to(corpus.resolve())).replace("/", "__")
        home.mkdir(parents=True, exist_ok=True)
        for target, more in TARGETS.items():
            said = io.StringIO()
            out = home / target
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                code = run(
                    [
                        "SOURCE",
                        str(path),
                        "--to",
                        target,
                        "-o",
                        str(out),
                        "--verify",
                        "none",
                        "-q",
                        *more,
                    ]
                )
            (home / f"{target}.txt").write_text(f"exit {code}\n{said.getvalue()}")


def compare(before: Path, after: Path) -> int:
    """Name what differs; return how many files do."""
    counts: Counter[str] = Counter()
    names = {
        Path(top, file).relative_to(side)
        for side in (before, after)
        for top, _, files in os.walk(side)
        for file in files
    }
    for name in sorted(names):
        a, b = before / name, after / name
        kind = "messages" if name.suffix == ".txt" and len(name.parts) == 2 else "outputs"
        if not (a.exists() and b.exists()):
            counts[f"{kind} only in {'before' if a.exists() else 'after'}"] += 1
            print(f"only {'before' if a.exists() else 'after'}: {name}")
        elif filecmp.cmp(a, b, shallow=False):
            counts[f"{kind} equal"] += 1
        elif kind == "messages" and a.read_text().split("\n")[0] == b.read_text().split("\n")[0]:
            counts["messages in other words, same exit code"] += 1
        else:
            counts[f"{kind} different"] += 1
            print(f"different: {name}")
    for what, count in sorted(counts.items()):
        print(f"{what}: {count}")
    wrong = ("outputs different", "messages different", "only in")
    return sum(n for what, n in counts.items() if any(w in what for w in wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    asked = parser.parse_args()
    if asked.what == "make":
        make(asked.first, asked.second)
        return 0
    return 1 if compare(asked.first, asked.second) else 0


if __name__ == "__main__":
    sys.exit(main())
