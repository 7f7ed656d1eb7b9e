"""The child that runs a torch source in torch: ``python run_torch.py FOLDER``.

Plain, and nothing of the project but the file beside it, `converter.capture.torch_loading` and the
files beside that, so that any Python (3.10 and later) that has torch can run it. ``question.json``
says what those need to load the source (``form``, ``source``, ``arch``, ``trusted``, ``root``), and

    inputs      names of the converted graph's inputs, in order
    dtypes      their dtypes
    fixed       names and values of other arguments
    cases       for each case the numbers of its alternatives: inputs are ``in-NUMBER-INPUT.npy``
    states      attributes that the source keeps between runs: the last inputs are their values
                before the run, and their values after it are the last outputs
    first       numbers of alternatives that run from the state that is stored
    layers      what is wanted too: paths of submodules, or names of an exported program's nodes
    device      in torch's words; none is the CPU, and nothing is said of placement
    allow_tf32  whether a GPU may round products
    in_float64  whether to compute in float64 what the source computes in float32

``answer.json``: a status, ``done``, ``absent`` (not installed, or broken), ``cannot load``,
``refused`` (loading it would run code that nobody trusts), ``mismatch`` (a state dict that is not
the factory's), or ``no device``; versions and device; for each case the alternative that ran, its
outputs' dtypes (they are in ``out-NUMBER-OUTPUT.npy``), and how others were refused; which outputs
are not the same when run again, and the random operations; path, number and dtype of what layers
returned (in ``layer-K.npy``); with a device, the placement as
`converter.verification.placement` has it.

Inputs go by the names of ``forward`` where the graph's are all among them, else by their order.
Outputs are flattened: tuples and lists in their order, dicts and dataclasses in theirs; None is
none, and a number is a tensor without axes. What keeps state between runs begins each anew.
"""

import importlib
import importlib.util
import json
import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

LOADING = Path(__file__).parents[2] / "capture" / "torch_loading.py"
DESCRIBE_ERROR = Path(__file__).parents[2] / "child" / "describe_error.py"
SOURCES = Path(__file__).with_name("load_torch.py")
FLOAT64 = Path(__file__).with_name("torch_float64.py")
SAME = {"float64": 1e-9, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}  # parts of the scale
SEEDS = (20, 21)  # of two runs: what is random shows
MAX_PLACES = 20_000


def load_file(path: Path) -> Any:
    """Return a module that is a file, which lies in no place to import from."""
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


loading, sources = load_file(LOADING), load_file(SOURCES)
describe_error = load_file(DESCRIBE_ERROR).describe_error
flat, place, plain_name = sources.flat, sources.place, sources.plain_name


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    answer = {"python": sys.version.split()[0]} | run(folder, question)
    (folder / "answer.json").write_text(json.dumps(answer))


def run(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Load the source and run it on every case."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        torch: Any = importlib.import_module("torch")
        np: Any = importlib.import_module("numpy")
    except Exception as e:  # a broken installation may raise anything
        return {"status": "absent", "error": describe_error(e)}
    about = {"versions": versions(torch, np)}
    device = question.get("device") or "cpu"
    try:
        torch.ones(1, device=device).add(1).item()
    except Exception as e:
        return about | {"status": "no device", "error": describe_error(e)}
    switches = set_switches(torch, allow_tf32=bool(question.get("allow_tf32")))
    try:
        runner = Runner(torch, np, folder, question, device)
    except loading.RefusedError as e:
        return about | {"status": "refused", "error": str(e)}
    except loading.MismatchError as e:
        return about | {"status": "mismatch", "error": str(e)}
    except Exception as e:
        return about | {"status": "cannot load", "error": describe_error(e)}
    found = [runner.first_that_runs(alternatives) for alternatives in question["cases"]]
    chosen = [case["chosen"] for case in found if case["chosen"] is not None]
    answer: dict[str, Any] = about | {
        "status": "done",
        "cases": found,
        "device": device,
        "inputs": runner.list_inputs(),
        "layers": runner.layers(chosen),
        "unstable": sorted(runner.unstable),
        "random": sorted(runner.source.random()),
        "notes": runner.notes(),
    }
    if question.get("device") and chosen:
        answer["placement"] = runner.placement(chosen[0], switches)
    return answer


def versions(torch: Any, np: Any) -> dict[str, str]:
    """Return the versions of the packages that compute."""
    found = {"torch": torch.__version__, "numpy": np.__version__}
    if torch.version.cuda and torch.cuda.is_available():
        found |= {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
    return found


def set_switches(torch: Any, *, allow_tf32: bool) -> dict[str, Any]:
    """Make runs comparable, and return the settings for that."""
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    torch.backends.cudnn.allow_tf32 = allow_tf32
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003 - likewise
    # It fills what is only allocated, and nothing that is computed depends on that.
    torch.utils.deterministic.fill_uninitialized_memory = False
    return {"tf32": allow_tf32, "deterministic": True, "cudnn_benchmark": False}


# -- running -------------------------------------------------------------------------------------


class Runner:
    """The cases of a question, one after the other.

    Attributes:
        source: What is run.
        unstable: Numbers of outputs that were not the same when they were computed again.
        keeps_state: Whether a run changes what the next one gives: each has a source of its own.
    """

    def __init__(
        self, torch: Any, np: Any, folder: Path, question: dict[str, Any], device: str
    ) -> None:
        self.torch, self.np, self.folder, self.question = torch, np, folder, question
        self.device = device
        self.unstable: set[int] = set()
        self.states = question.get("states", [])
        self.names = question["inputs"][: len(question["inputs"]) - len(self.states)]
        self.keeps_state = bool(self.states)
        self.has_run = False
        self.float64 = load_file(FLOAT64) if question.get("in_float64") else None
        self.source = self.fresh()

    def fresh(self) -> Any:
        """Return the source as it is when nothing has been run in it."""
        loaded = loading.load(self.torch, self.question, self.device)
        if self.float64 is not None:
            self.float64.widen_module(self.torch, loaded.module)
        if loaded.program is not None:
            return sources.Program(self.torch, loaded, self.names)
        wanted = loading.parameters(loaded.module)
        fixed = self.question["fixed"]
        return sources.Modules(self.torch, loaded, self.names, wanted, fixed)

    def list_inputs(self) -> list[list[Any]]:
        """Return name, dtype and shape of the inputs: the dtype that was fed, if none is said."""
        specs = [*self.source.specs(), *[(None, None)] * len(self.states)]
        names, dtypes = self.question["inputs"], self.question["dtypes"]
        if len(specs) != len(names):  # none of the cases ran
            return [["", dtype or "", shape] for dtype, shape in specs]
        rows = zip(names, dtypes, specs, strict=True)
        return [[name, said or dtype, shape] for name, dtype, (said, shape) in rows]

    def notes(self) -> list[str]:
        """Return deviations from torch's own behaviour."""
        kept = "the source keeps state between runs: each began with what is stored"
        return [*self.source.notes, *([kept] if self.keeps_state and not self.states else [])]

    def first_that_runs(self, alternatives: list[int]) -> dict[str, Any]:
        """Run the source on the first of several inputs of which it makes something."""
        refused = {}
        chosen: tuple[int, list[tuple[Any, str]]] | None = None
        best = False, False  # whether it has elements, and numbers among them
        for number in alternatives:
            try:
                found = self.outputs(number)
            except Exception as e:
                refused[number] = describe_error(e)
                continue
            is_finite = all(self.is_finite(array) for array, _ in found)
            worth = not found or any(array.size for array, _ in found), is_finite
            if chosen is None or worth > best:
                chosen, best = (number, found), worth
            if all(worth):
                break
        if chosen is None:
            return {"chosen": None, "dtypes": [], "refused": refused}
        number, found = chosen
        if not self.has_run:
            found = self.compare_runs(number, found)
        for i, (array, _) in enumerate(found):
            self.np.save(self.folder / f"out-{number}-{i}.npy", array)
        return {"chosen": number, "dtypes": [dtype for _, dtype in found], "refused": refused}

    def outputs(self, number: int, seed: int = SEEDS[0]) -> list[tuple[Any, str]]:
        """Run the source on a case; return its outputs, and the states after the run."""
        tensors = self.prepare(number)
        self.torch.manual_seed(seed)
        mode = nullcontext() if self.float64 is None else self.float64.make_mode(self.torch)
        with mode:
            found = [self.plain(value) for value in flat(self.source.call(tensors))]
        return [*found, *map(self.plain, map(self.source.get_state, self.states))]

    def prepare(self, number: int) -> list[Any]:
        """Return the tensors of a case, with the source in the state that the case begins with."""
        if self.keeps_state:
            self.source = self.fresh()
        tensors = self.inputs(number)
        own, states = tensors[: len(self.names)], tensors[len(self.names) :]
        if states and number not in self.question["first"]:
            # What else changes with the first run has changed: shapes of states, flags.
            self.source.call(self.inputs(number)[: len(self.names)])
            for path, value in zip(self.states, states, strict=True):
                self.source.set_state(path, value)
        return own

    def compare_runs(self, number: int, found: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
        """Run again, and note which outputs are random, and whether runs change the source."""
        self.has_run = True
        different = self.different(found, self.outputs(number, SEEDS[1]))
        if not different:
            return found
        # State, or chance? Sources in which nothing has been run tell.
        self.keeps_state = True
        found = self.outputs(number)
        self.unstable = self.different(found, self.outputs(number, SEEDS[1]))
        self.keeps_state = bool(self.states) or bool(different - self.unstable)
        return found

    def different(self, a: list[tuple[Any, str]], b: list[tuple[Any, str]]) -> set[int]:
        """Return the indices of outputs that differ between two runs."""
        if len(a) != len(b):
            return set(range(max(len(a), len(b))))
        pairs = enumerate(zip(a, b, strict=True))
        return {i for i, ((x, dtype), (y, _)) in pairs if not self.is_same(x, y, dtype)}

    def is_same(self, a: Any, b: Any, dtype: str) -> bool:
        """Return whether two runs are equal but for rounding errors."""
        np = self.np
        if a.shape != b.shape:
            return False
        if dtype not in SAME:
            return bool(np.array_equal(a, b))
        a, b = a.astype("float64"), b.astype("float64")
        finite = np.isfinite(a)
        scale = float(np.abs(a[finite]).max()) if finite.any() else 0.0
        return bool(np.allclose(a, b, rtol=0, atol=SAME[dtype] * scale, equal_nan=True))

    def is_finite(self, array: Any) -> bool:
        """Return whether an output of floats has a finite element; others always pass."""
        is_real = array.dtype.kind == "f" and array.size
        return not is_real or bool(self.np.isfinite(array).any())

    def inputs(self, number: int) -> list[Any]:
        """Return a case's arrays as torch takes them: its own, for a source may write to them."""
        found = []
        specs = self.source.specs()
        for i, dtype in enumerate(self.question["dtypes"]):
            array = self.np.load(self.folder / f"in-{number}-{i}.npy")
            wanted = specs[i][0] if i < len(specs) and specs[i][0] else dtype
            tensor = self.torch.from_numpy(self.np.array(array, order="C"))
            if self.float64 is not None and wanted == "float32":
                wanted = "float64"
            found.append(tensor.to(self.device, getattr(self.torch, wanted)))
        return found

    def plain(self, value: Any) -> tuple[Any, str]:
        """Return an output as an .npy file can keep it, and the dtype it really has."""
        np, torch = self.np, self.torch
        if isinstance(value, str):
            return np.array(value), "string"
        if isinstance(value, (bool, int, float)):
            value = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"an output is a {type(value).__name__}, no tensor")
        if value.is_quantized:
            raise TypeError("an output is quantised, which no graph's is")
        if value.layout != torch.strided:
            value = value.to_dense()
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        dtype = plain_name(tensor.dtype)
        if dtype == "bfloat16" or dtype.startswith("float8"):
            tensor = tensor.float()
        return np.ascontiguousarray(tensor.numpy()).reshape(tensor.shape), dtype

    def layers(self, chosen: list[int]) -> list[tuple[str, int, str]]:
        """Write what layers return that are wanted too, and return what they are."""
        wanted = self.question["layers"]
        found: list[tuple[str, int, str]] = []

        def save(path: str, i: int, value: Any) -> None:
            array, dtype = self.plain(value)
            self.np.save(self.folder / f"layer-{len(found)}.npy", array)
            found.append((path, i, dtype))

        for number in chosen if wanted else ():
            with suppress(Exception):  # it ran without being watched: that is what counts
                tensors = self.prepare(number)
                self.source.run_watched(wanted, tensors, save)
        return found

    def placement(self, number: int, switches: dict[str, Any]) -> dict[str, Any]:
        """Return where parameters, buffers and outputs are, and where operations left theirs."""
        rows = [list(row) for row in self.source.list_places()]
        tensors = self.prepare(number)
        seen: list[list[str]] = []
        with watch(self.torch, seen):
            outputs = [*flat(self.source.call(tensors))]
        rows += [
            ["output", str(i), place(value.device)]
            for i, value in enumerate(outputs)
            if isinstance(value, self.torch.Tensor)
        ]
        return {
            "device": place(self.torch.device(self.device)),
            "how": "devices of parameters, of buffers and of what each operation returned",
            "places": (rows + seen)[:MAX_PLACES],
            "facts": facts(self.torch, self.device),
            "switches": switches,
        }


def watch(torch: Any, seen: list[list[str]]) -> Any:
    """Return a context in which operations are noted, and the devices of what they return."""
    modes: Any = importlib.import_module("torch.utils._python_dispatch")

    class Watch(modes.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            for value in flat(result):
                if isinstance(value, torch.Tensor):
                    seen.append(["node", f"{function}#{len(seen)}", place(value.device)])
                    break
            return result

    return Watch()


def facts(torch: Any, device: str) -> dict[str, Any]:
    """Return what torch says of a device."""
    if not device.startswith("cuda"):
        return {}
    about = torch.cuda.get_device_properties(device)
    return {
        "name": about.name,
        "compute_capability": f"{about.major}.{about.minor}",
        "memory_bytes": about.total_memory,
        "driver": driver(torch),
    }


def driver(torch: Any) -> str:
    """Return the newest CUDA that the driver knows."""
    try:
        number = int(torch._C._cuda_getDriverVersion())
    except Exception:
        return ""
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
