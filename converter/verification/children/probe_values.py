"""The child that looks at values inside a graph: ``python probe_values.py FOLDER``.

It imports only its siblings in this folder, and nothing of the project imports it. It runs the
graph in onnxruntime and says which ranges of a node's input were reached, not the values.

``question.json`` has the fields of `run_onnxruntime`, whose outputs are the values to look at, and:

    probes     for each value, the least and the greatest number of each range
    groups     lists of cases: alternatives, the first of which that runs is used

and ``answer.json``: for each group, the case that ran (or null) and, for each value, for each
range, whether an element was in it; or why there is none.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def load_sibling(name: str) -> Any:
    """Return a module that lies in this folder, which is not on the path of imports."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    runner = load_sibling("run_onnxruntime")
    onnxruntime = importlib.import_module("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    try:
        answer = {"status": "done", "groups": probe(onnxruntime, runner, question, folder)}
    except Exception as e:  # whatever it fails with, its words are the answer
        answer = {"status": "failed", "error": runner.describe_error(e)}
    (folder / "answer.json").write_text(json.dumps(answer))


def probe(onnxruntime: Any, runner: Any, question: dict[str, Any], folder: Path) -> list[Any]:
    """Return the case that ran and the ranges that were reached, for each group."""
    found: list[Any] = [[None, []] for _ in question["groups"]]
    probes = iter(question["probes"])
    for extra, names in zip(question["extras"], question["outputs"], strict=True):
        session = runner.open_session(onnxruntime, question["model"], extra and folder / extra)
        types = {spec.name: spec.type for spec in session.get_inputs()}
        ranges = [next(probes) for _ in names]
        for answer, group in zip(found, question["groups"], strict=True):
            for case in [answer[0]] if answer[0] is not None else group:
                try:
                    arrays = {
                        name: runner.prepare_input(
                            np.load(folder / f"in-{case}-{i}.npy"), types[name]
                        )
                        for i, name in enumerate(question["inputs"])
                    }
                    results = runner.run(onnxruntime, session, names, arrays, types)
                except Exception:  # noqa: S112 - the next alternative may fit
                    continue
                answer[0] = case
                answer[1] += [
                    find_reached(r, some) for r, some in zip(results, ranges, strict=True)
                ]
                break
    return found


def find_reached(result: Any, ranges: list[list[float]]) -> list[bool]:
    """Return whether a value has an element in each range."""
    array = np.asarray(result)
    if array.dtype.kind not in "fiub":
        return [True] * len(ranges)
    return [bool(((array >= low) & (array <= high)).any()) for low, high in ranges]


if __name__ == "__main__":
    # Modules of this folder may have the names of others: it must not be on the path.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
