"""The child that runs a graph in onnxruntime: ``python run_onnxruntime.py FOLDER``.

It knows nothing of the project but the file beside it, and nothing of the project imports it.
``question.json`` says:

    model     path of the ONNX file
    extras    files of bytes to append to the model, one session each; a protobuf's fields may come
              in pieces, so that these add outputs; null for the model as it is
    outputs   for each of them, the names of the outputs to fetch
    inputs    names of the inputs
    cases     their numbers: inputs are ``in-CASE-INPUT.npy``
    prefix    of the outputs written: ``PREFIX-CASE-OUTPUT.npy``, numbered through all sessions
    device    name of the provider to run on, if not the CPU's; empty where there is none
    options   options of that provider

and ``answer.json``: versions, provider, and why it refused the model or failed on a case; with a
device, where each node was (see `converter.verification.placement`).
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

# A session of a model in memory looks for external data here; a file's own folder is the default.
BFLOAT16, BFLOAT16_NUMBER = "tensor(bfloat16)", 16  # https://github.com/onnx/onnx onnx.in.proto
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
# From 1.24 on a session tells which provider has which node; before, its profile does.
RECORD, ASSIGNED = "session.record_ep_graph_assignment_info", "get_provider_graph_assignment_info"
OWN = "/as_float32"  # what names of our own nodes end in
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def beside(name: str) -> Any:
    """Return a module of a path from this file's folder, which is no place to import from."""
    path = Path(__file__).parent / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


describe_error = beside("../../child/describe_error").describe_error


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    onnxruntime = importlib.import_module("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    question = json.loads((folder / "question.json").read_text())
    answer: dict[str, Any] = {
        "version": onnxruntime.__version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "errors": {},
    }
    place = Place(onnxruntime, question, folder) if "device" in question else None
    why = place.lacks() if place else ""
    if place is not None and why:
        answer |= {"status": "no device", "error": why}
    else:
        answer |= run_sessions(onnxruntime, question, folder, place)
    (folder / "answer.json").write_text(json.dumps(answer))


def run_sessions(
    onnxruntime: Any, question: dict[str, Any], folder: Path, place: "Place | None"
) -> dict[str, Any]:
    """Run all sessions on all cases."""
    answer: dict[str, Any] = {"errors": {}}
    first = 0
    for extra, names in zip(question["extras"], question["outputs"], strict=True):
        try:
            file = extra and folder / extra
            session = open_session(onnxruntime, question["model"], file, place)
        except Exception as e:  # whatever it refuses a model with, its words are the answer
            answer["refused"] = describe_error(e)
            break
        answer["device"] = session.get_providers()[0]
        types = {spec.name: spec.type for spec in session.get_inputs()}
        for case in question["cases"]:
            try:
                arrays = {
                    name: prepare_input(np.load(folder / f"in-{case}-{i}.npy"), types[name])
                    for i, name in enumerate(question["inputs"])
                }
                results = run(onnxruntime, session, names, arrays, types)
            except Exception as e:
                answer["errors"][str(case)] = describe_error(e)
                continue
            for i, result in enumerate(results, first):
                np.save(folder / f"{question['prefix']}-{case}-{i}.npy", plain(result))
        first += len(names)
        if place is not None:
            place.look(session)
    if place is not None:
        answer |= place.answer()
    return answer


def open_session(
    onnxruntime: Any, model: str, extra: Path | None, place: "Place | None" = None
) -> Any:
    """Return a session on the CPU, and on nothing else; or one that was given a device."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    providers: list[Any] = [CPU]
    if place is not None:
        providers = [(place.provider, place.options), *providers[place.provider == CPU :]]
        place.prepare(options)
    data: str | bytes = model
    if extra is not None:
        options.add_session_config_entry(EXTERNAL_FOLDER, str(Path(model).parent))
        data = Path(model).read_bytes() + extra.read_bytes()
    # Its own fallback would try again without the device, and only print that it does.
    return onnxruntime.InferenceSession(data, options, providers=providers, enable_fallback=0)


class Place:
    """A provider that sessions are given, and what shows whether they took it.

    Attributes:
        provider: Its name.
        options: Its options.
        name: Name of its place, with the index of the device if it has one.
    """

    def __init__(self, onnxruntime: Any, question: dict[str, Any], folder: Path) -> None:
        self.onnxruntime, self.folder = onnxruntime, folder
        self.provider: str = question["device"]
        self.options: dict[str, str] = question["options"]
        self.index = int(self.options.get("device_id", 0))
        self.name = self.name_place(self.provider, self.options)
        self.tf32 = bool(question["allow_tf32"])
        self.has_assignment = hasattr(onnxruntime.InferenceSession, ASSIGNED)
        self.places: dict[tuple[str, str], None] = {}
        self.providers: list[str] = []

    @staticmethod
    def name_place(provider: str, options: Any) -> str:
        """Return what a place is called."""
        return f"{provider}:{options['device_id']}" if "device_id" in options else provider

    def lacks(self) -> str:
        """Return why nothing here can run on it, or nothing; what only shows later, does later."""
        if not self.provider:
            return "onnxruntime has no such device"
        available = self.onnxruntime.get_available_providers()
        if self.provider not in available:
            return f"this build of onnxruntime has no {self.provider}, but {', '.join(available)}"
        if self.provider == CUDA and hasattr(self.onnxruntime, "preload_dlls"):
            self.onnxruntime.preload_dlls()  # CUDA's libraries where packages of pip's have them
        return ""

    def prepare(self, options: Any) -> None:
        """Have a session show where its nodes are, and compute the same each time."""
        options.use_deterministic_compute = True
        if self.has_assignment:
            options.add_session_config_entry(RECORD, "1")
        else:
            options.enable_profiling = True
            options.profile_file_prefix = str(self.folder / "profile")

    def look(self, session: Any) -> None:
        """Note where the nodes of a session are that has run."""
        self.providers = session.get_providers()
        options = session.get_provider_options()
        for name, provider in (
            self.read_assignment(session) if self.has_assignment else read_profile(session)
        ):
            if not name.partition(" (")[0].endswith(OWN):
                self.places[name, self.name_place(provider, options.get(provider, {}))] = None

    def read_assignment(self, session: Any) -> "list[tuple[str, str]]":
        """Return node and provider, as the session has assigned them."""
        found = []
        for number, part in enumerate(getattr(session, ASSIGNED)()):
            found += [
                (f"{node.name or f'#{number}'} ({node.op_type})", part.ep_name)
                for node in part.get_nodes()
            ]
        return found

    def answer(self) -> dict[str, Any]:
        """Return the placement of all nodes, or that they could be nowhere else."""
        cuda = beside("cuda_driver")
        is_nvidia = self.provider in (CUDA, "TensorrtExecutionProvider")
        found: dict[str, Any] = {
            "placement": {
                "reason": "",
                "device": self.name,
                "how": "assignment of nodes" if self.has_assignment else "profile of the run",
                "places": [["node", name, place] for name, place in self.places],
                "facts": (cuda.facts(self.index) if is_nvidia else {}) | build(),
                "switches": {"tf32": self.tf32, "deterministic": True, **self.options},
            }
        }
        if is_nvidia and self.provider not in self.providers:
            why = cuda.lacks(self.index)
            library = Path(self.onnxruntime.__file__).parent / "capi"
            needs = cuda.find_missing(library / "libonnxruntime_providers_cuda.so")
            reason = "; ".join(filter(None, (why, needs)))
            found["placement"]["reason"] = reason
            if why:  # a requested device that is missing is reported; else it is a fallback
                found |= {"status": "no device", "error": reason}
        return found


def read_profile(session: Any) -> "list[tuple[str, str]]":
    """Return node and provider, as a session's profile has them."""
    events = json.loads(Path(session.end_profiling()).read_text())
    found = []
    for event in events:
        about = event.get("args", {})
        if event.get("cat") == "Node" and "provider" in about:
            name = str(event["name"]).removesuffix("_kernel_time")
            found.append((f"{name} ({about.get('op_name', '')})", about["provider"]))
    return found


def build() -> dict[str, str]:
    """Return which CUDA onnxruntime was built for, if any."""
    try:
        about: Any = importlib.import_module("onnxruntime.capi.build_and_package_info")
        return {"built_for_cuda": str(about.cuda_version)} if about.cuda_version else {}
    except (ImportError, AttributeError):  # builds for the CPU say nothing of it
        return {}


def run(
    onnxruntime: Any, session: Any, names: list[str], arrays: dict[str, Any], types: dict[str, str]
) -> list[Any]:
    """Run a session; numpy has no bfloat16, so inputs of that are handed over as onnxruntime's."""
    given = dict(arrays)
    for name, array in arrays.items():
        if types[name] == BFLOAT16:
            bits = array.astype(importlib.import_module("ml_dtypes").bfloat16).view(np.uint16)
            make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
            given[name] = make(bits, BFLOAT16_NUMBER)
    return list(session.run(names, given))


def prepare_input(array: "np.ndarray[Any, Any]", kind: str) -> "np.ndarray[Any, Any]":
    """Return an input in the form that onnxruntime accepts."""
    return array.astype(object) if kind == "tensor(string)" else array


def plain(result: Any) -> "np.ndarray[Any, Any]":
    """Return an output as an .npy file can keep it."""
    array = np.asarray(result)
    return array.astype("U") if array.dtype.kind == "O" else array


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
