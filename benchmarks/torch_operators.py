"""Torch's own database of operators through our conversion, beside torch's exporter to ONNX.

    PYTHONPATH=. python benchmarks/torch_operators.py [--samples 3] [--names cov,cdist]
        [--part 0/4] [--peer 10] [--record FILE.jsonl] [--write FILE.md]

Each operator of ``torch.testing``'s op_db is called with some of its samples, as an exported
program and as a traced TorchScript archive; what onnxruntime makes of our graph is compared with
what torch computes. A cell is the worst of an operator's samples: `wrong` numbers, shapes or
dtypes, `error` (a graph that does not run, or no graph and no refusal), `not supported`, `ok`.
Operators whose results torch itself draws at random are left out. With ``--peer N``, every Nth
operator goes through torch.onnx's dynamo exporter, too. ``--record`` appends the outcomes to a
file, whose operators are not measured again; ``--write`` makes a document of all of them. Nothing
is asserted. Needs torch, onnxruntime and expecttest; the peer needs onnxscript.
"""

import argparse
import json
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import converter
from converter.graphs import ASKED
from converter.lower import emit, lower
from converter.options import parse_inputs
from formats.errors import UnsupportedError

STATES = {  # the worst first
    "wrong": "numbers, shapes or dtypes are not torch's",
    "error": "the graph does not run, or there is none and no refusal",
    "not supported": "refused by name",
    "ok": "onnxruntime computes what torch computes",
    "no program": "torch makes no program of any sample, or there is none to make",
}
Run = Callable[["Call", list[torch.Tensor], Path], list[np.ndarray]]


class Call(torch.nn.Module):
    """One call of an operator: tensors are inputs, everything else is fixed."""

    def __init__(self, op, sample) -> None:
        super().__init__()
        self.op = op
        leaves, self.spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]

    def forward(self, *tensors):
        given = iter(tensors)
        pairs = zip(self.fixed, self.is_tensor, strict=True)
        leaves = [next(given) if is_tensor else leaf for leaf, is_tensor in pairs]
        first, args, kwargs = tree_unflatten(leaves, self.spec)
        made = tree_flatten(self.op(first, *args, **kwargs))[0]
        return tuple(one for one in made if isinstance(one, torch.Tensor))


class NotSupportedError(Exception):
    """A route refuses a call, and says so."""


class NoProgramError(Exception):
    """Torch itself cannot export or trace a call."""


def run_ours(path: Path, tensors: list[torch.Tensor], inputs: tuple[str, ...]) -> list[np.ndarray]:
    """Return what onnxruntime computes with our graph of a file."""
    bundle = converter.read(path)
    more = {"inputs": parse_inputs(inputs)} if inputs else {}
    try:
        graph = lower(bundle, **more)
    except UnsupportedError as e:  # as `convert` does without --opset
        if not (asked := ASKED.search(str(e))):
            raise
        graph = lower(bundle, int(asked[1]), **more)
    pieces = emit.model(graph, bundle.weights).pieces()
    return run_model(b"".join(p if isinstance(p, bytes) else p.read() for p in pieces), tensors)


def run_model(model: bytes | str, tensors: list[torch.Tensor]) -> list[np.ndarray]:
    """Return what onnxruntime computes; inputs that a graph does not read it does not have."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [spec.name for spec in session.get_inputs()]
    if len(names) != len(tensors):
        raise NotSupportedError(f"{len(tensors)} inputs, of which the graph has {len(names)}")
    arrays = [t.detach().resolve_conj().resolve_neg().numpy() for t in tensors]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def run_exported(call: Call, tensors: list[torch.Tensor], folder: Path) -> list[np.ndarray]:
    """Return what our conversion of an exported program computes."""
    path = folder / "program.pt2"
    try:
        torch.export.save(torch.export.export(call, tuple(tensors), strict=False), path)
    except Exception as e:
        raise NoProgramError from e
    return run_ours(path, tensors, ())


def run_traced(call: Call, tensors: list[torch.Tensor], folder: Path) -> list[np.ndarray]:
    """Return what our conversion of a traced archive computes."""
    path = folder / "traced.pt"
    try:
        traced = torch.jit.trace(call, tuple(tensors), check_trace=False)
        traced.save(path)
    except Exception as e:
        raise NoProgramError from e
    names = re.findall(r"(\w+): Tensor", traced.code.partition("->")[0])
    inputs = tuple(
        f"{name}:{str(t.dtype).removeprefix('torch.')}:{','.join(map(str, t.shape))}"
        for name, t in zip(names, tensors, strict=True)
    )
    return run_ours(path, tensors, inputs)


def run_peer(call: Call, tensors: list[torch.Tensor], folder: Path) -> list[np.ndarray]:
    """Return what torch's own exporter makes."""
    path = str(folder / "peer.onnx")
    try:
        torch.onnx.export(call, tuple(tensors), path, dynamo=True, verbose=False)
    except Exception as e:
        raise NotSupportedError(str(e)[:200]) from e
    return run_model(path, tensors)


ROUTES: dict[str, Run] = {"exported": run_exported, "traced": run_traced, "torch.onnx": run_peer}


def find_difference(found: list[np.ndarray], wanted: list[torch.Tensor]) -> str | None:
    """Return in what arrays differ from tensors, or None where they agree."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs in place of {len(wanted)}"
    for a, t in zip(found, wanted, strict=True):
        b = t.detach().resolve_conj().resolve_neg().numpy()
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)} in place of {b.dtype}{list(b.shape)}"
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
            at = tuple(np.argwhere(~np.isclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True))[0])
            return f"{a[at]} in place of {b[at]} at {[int(n) for n in at]}"
    return None


def judge(route: Run, call: Call, wanted: list[torch.Tensor], folder: Path) -> tuple[str, str]:
    """Return the state of one call by one route, and why."""
    tensors = [t.clone() for t in call.tensors]
    try:
        found = route(call, tensors, folder)
    except NoProgramError:
        return "no program", ""
    except (NotSupportedError, UnsupportedError) as e:
        return "not supported", str(e)
    except Exception as e:  # noqa: BLE001 - errors are what is sought
        return "error", f"{type(e).__name__}: {e}"
    difference = find_difference(found, wanted)
    return ("ok", "") if difference is None else ("wrong", difference)


def calls(op, count: int, dtype: torch.dtype | None) -> Iterator[tuple[Call, list[torch.Tensor]]]:
    """Yield some calls of an operator, with torch's answers."""
    kinds = (torch.float32, torch.int64, torch.bool) if dtype is None else (dtype,)
    chosen = next((d for d in kinds if d in op.dtypes), None)
    if chosen is None:
        return
    samples = list(islice(op.sample_inputs("cpu", chosen), 200))
    for sample in samples[:: max(1, len(samples) // count)][:count]:
        call = Call(op.op, sample)
        if not call.tensors or not all(map(is_plain, call.tensors)):
            continue
        answers = list(call(*(t.clone() for t in call.tensors)))
        if answers and all(map(is_plain, answers)):
            yield call, answers


def is_random(op) -> bool:
    """Return whether results are any: seeded by torch's database, or what was in the memory."""
    code = getattr(op.op, "__code__", None)
    is_seeded = code is not None and "wrapper_set_seed" in code.co_names
    return is_seeded or op.name in ("empty_like", "new_empty", "new_empty_strided")


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether NumPy and an ONNX graph's interface have such a tensor."""
    strange = (torch.bfloat16, torch.complex32)
    is_known = tensor.dtype not in strange and not tensor.is_quantized
    return is_known and not tensor.is_complex() and tensor.layout is torch.strided


def judge_operator(
    op, routes: list[str], count: int, dtype: torch.dtype | None, folder: Path
) -> dict[str, tuple[str, str]]:
    """Return the worst state of an operator by each route, with its reason."""
    worst, order = dict.fromkeys(routes, ("no program", "")), [*STATES]
    for call, wanted in calls(op, count, dtype):
        for route in routes:
            state = judge(ROUTES[route], call, wanted, folder)
            if order.index(state[0]) < order.index(worst[route][0]):
                shapes = ", ".join(str(list(t.shape)) for t in call.tensors)
                fixed = [leaf for leaf in call.fixed if leaf is not None]
                worst[route] = (state[0], f"{state[1]} (inputs {shapes}; {fixed})")
    return worst


def measure(
    op, routes: list[str], count: int, dtype: torch.dtype | None, folder: Path
) -> dict[str, tuple[str, str]]:
    """Return `judge_operator`; an operator of which torch itself makes no sample has no program."""
    torch.manual_seed(0)
    try:
        return judge_operator(op, routes, count, dtype, folder)
    except Exception as e:  # noqa: BLE001 - whatever torch raises
        return dict.fromkeys(routes, ("no program", f"{type(e).__name__}: {e}"))


def list_outcomes(rows: list[dict]) -> list[tuple[str, str, str, str]]:
    """Return state, route, operator and reason of all that is not ok, the worst first."""
    return [
        (state, route, row["name"], " ".join(reason.split())[:240])
        for wanted in [*STATES][:3]
        for row in sorted(rows, key=lambda row: row["name"])
        for route, (state, reason) in row["outcomes"].items()
        if state == wanted
    ]


def count_states(rows: list[dict]) -> dict[str, Counter]:
    """Return the number of operators in each state, by route."""
    return {
        route: Counter(row["outcomes"][route][0] for row in rows if route in row["outcomes"])
        for route in ROUTES
    }


def write_document(rows: list[dict], path: Path, samples: int) -> None:
    """Write the counts, and what is not ok, as tables."""
    theirs = sum("torch.onnx" in row["outcomes"] for row in rows)
    command = f"python benchmarks/torch_operators.py --samples {samples}"
    lines = [
        "# Operators of torch's own database", "",
        f"`{command}`: the outcome of an operator is the worst of its {samples} samples.", "",
        f"- torch {torch.__version__}", f"- onnxruntime {onnxruntime.__version__}",
        f"- {len(rows)} operators with determined results; {theirs} by torch.onnx, too", "",
        f"| | {' | '.join(STATES)} | ok of those with a program |", f"|---|{'---:|' * 6}",
    ]  # fmt: skip
    for route, counts in count_states(rows).items():
        if total := counts.total() - counts["no program"]:
            share = f"{counts['ok']} of {total}, {counts['ok'] / total:.1%}"
            cells = (route, *(counts[state] for state in STATES), share)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", *(f"- {state}: {words}" for state, words in STATES.items()), ""]
    lines += ["## Not ok by `convert`", "", "| operator | form | outcome | |", "|---|---|---|---|"]
    for state, route, name, reason in list_outcomes(rows):
        if ROUTES[route] is not run_peer:
            words = reason.removeprefix("not supported: ").replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| `{name}` | {route} | {state} | {words} |")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Print a line for each operator that is not ok, the worst first, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=3, help="of each operator")
    parser.add_argument("--dtype", help="of the samples; float32 by default, else int64 or bool")
    parser.add_argument("--names", help="of operators, with commas; all by default")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth operator from the Ith on")
    parser.add_argument("--peer", type=int, default=0, help="N: every Nth by torch.onnx, too")
    parser.add_argument("--record", type=Path, help="JSON lines, one for each operator")
    parser.add_argument("--write", type=Path, help="a document of all outcomes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, options.dtype) if options.dtype else None
    at, parts = map(int, options.part.split("/"))
    names = options.names.split(",") if options.names else None
    rows: list[dict] = []
    if options.record is not None and options.record.exists():
        rows = [json.loads(line) for line in options.record.read_text().splitlines()]
    known = {row["name"] for row in rows}
    wanted = [op for op in op_db if names is None or op.name in names][at::parts]
    with tempfile.TemporaryDirectory() as folder:
        for number, op in enumerate(wanted):
            if op.formatted_name in known or is_random(op):
                continue
            peer = options.peer and number % options.peer == 0
            routes = [route for route in ROUTES if peer or route != "torch.onnx"]
            outcomes = measure(op, routes, options.samples, dtype, Path(folder))
            rows.append({"name": op.formatted_name, "outcomes": outcomes})
            if options.record is not None:
                with options.record.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    for state, route, name, reason in list_outcomes(rows):
        print(f"{state:14}{route:12}{name:40}{reason}")
    for route, counts in count_states(rows).items():
        print(f"{route:12}", *(f"{state} {counts[state]}" for state in STATES))
    if options.write is not None:
        write_document(rows, options.write, options.samples)


if __name__ == "__main__":
    main()
