"""Check bundles against their own manifests, without the source or a framework.

A bundle passes when each file of its manifest is there with the recorded size and digest, no other
file is there, its graphs refer to files of the bundle only, and the verification that its manifest
records reaches the required level. The level is computed again from the recorded comparisons, by
the rule of `converter.verification.result`: a higher level claimed by a manifest is not trusted.

Nothing is run: an unchanged digest shows that a graph is still the verified one. Models without
a manifest fail, since nothing records their verification. Hidden files, and files that are not
models, are ignored.
"""

import os
import time
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from converter.options import LEVELS
from converter.verification.report import graph_level
from converter.verification.result import find_level
from formats import catalog, portable, safetensors
from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import JSON, Bundle
from formats.core.storage import File, Span, resolve_member
from formats.errors import (
    ConvertError,
    CorruptError,
    SourceError,
    UnknownFormatError,
    VerificationError,
)
from formats.onnx import files as onnx_files

LONG = ("tensors", "topology", "encodings")  # keys of manifests omitted from results
GRAPH_SUFFIX = ".onnx"
SAVED_MODEL = {"saved_model.pb", "saved_model.pbtxt"}
SIGNATURE = "model.sig"  # of OpenSSF Model Signing, over all other files
# Files that MLflow writes into the folder of a model.
MLFLOW = "MLmodel"
MLFLOW_FILES = {
    MLFLOW, "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta",
    "input_example.json", "serving_input_example.json",
}  # fmt: skip

Kind = Literal["bundle", "folder", "file", "unreadable"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model, or a path that cannot be read, found in a folder."""

    path: Path
    kind: Kind
    error: ConvertError | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of the check of one output.

    Attributes:
        path: Path of the output.
        exit_code: 0 if it passed, 1 if it failed; if it could not be read, the exit code of that
            error (see `formats.errors`).
        reached: Level of verification that all its graphs and weights reach.
        problems: Why it failed, one message for each reason.
        reason: Why its verification did not reach a higher level, as recorded.
        files: Number of files that were hashed.
        nbytes: Their size in bytes.
        seconds: Duration of the check.
        manifest: Its manifest without the long parts; empty if it is invalid.
    """

    path: Path
    exit_code: int
    reached: str = "none"
    problems: tuple[str, ...] = ()
    reason: str = ""
    files: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    manifest: Mapping[str, Any] = field(default_factory=dict)


def check_folder(
    folder: Path, require: str | None, *, threads: int | None = None
) -> Iterator[CheckResult]:
    """Check all outputs in a folder, and yield the results in the order of their names.

    Args:
        folder: A bundle, or a folder with outputs at any depth.
        require: Level that each output must reach; None checks files and digests only.
        threads: Number of threads that hash; by default one for each core.

    Raises:
        SourceError: The folder cannot be read.
        VerificationError: It contains no output of ours.
    """
    if not folder.is_dir():
        found = "is not a folder" if folder.exists() else "no such folder"
        raise SourceError(
            found,
            where=folder,
            expected="a bundle, or a folder with bundles",
            hint="`convert verify SOURCE CONVERTED` compares a source with its output",
        )
    count = threads or len(os.sched_getaffinity(0))
    is_empty = True
    pool = ThreadPoolExecutor(count)  # hashing and reading release the GIL
    try:
        for checked in pool.map(lambda found: check_output(found, require), find_outputs(folder)):
            is_empty = False
            yield checked
    finally:
        pool.shutdown(cancel_futures=True)
    if is_empty:
        raise VerificationError(
            "nothing was verified: there is no output of convert", where=folder,
            expected="a portable bundle, or a folder with bundles",
        )  # fmt: skip


def find_outputs(folder: Path) -> Iterator[Candidate]:
    """Yield the outputs in a folder, by name; follow links to folders, each folder once."""
    pending, seen = [folder], set[tuple[int, int]]()
    while pending:
        here = pending.pop()
        try:
            status = here.stat()
            with os.scandir(here) as listed:
                entries = sorted((e for e in listed if e.name[0] != "."), key=lambda e: e.name)
            folders = [here / e.name for e in entries if e.is_dir()]
        except OSError as e:
            error = SourceError(f"cannot be listed: {e.strerror}", where=here)
            yield Candidate(here, "unreadable", error)
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        names = {e.name for e in entries}
        if _is_bundle(here, names):
            yield Candidate(here, "bundle")
        elif names & SAVED_MODEL:
            yield Candidate(here, "folder")
        else:
            within = {path.name for path in folders}
            yield from _find_models(here, [e.name for e in entries if e.name not in within])
            pending += reversed(folders)


def _is_bundle(folder: Path, names: set[str]) -> bool:
    """Return whether a folder is a bundle, or one whose manifest is damaged."""
    if portable.MANIFEST not in names:
        return False
    suffixes = (safetensors.SUFFIX, GRAPH_SUFFIX)
    if any(name.endswith(suffixes) for name in names):
        return True
    try:
        return portable.sniff(Artifact(folder)) is not None
    except ConvertError:
        return True


def _find_models(folder: Path, names: list[str]) -> Iterator[Candidate]:
    """Yield the models among the files of a folder."""
    for name in names:
        path = folder / name
        try:
            artifact = Artifact(path)
            if artifact.is_file and artifact.head:
                catalog.detect(artifact)
                yield Candidate(path, "file")
        except UnknownFormatError:
            continue
        except ConvertError as e:
            yield Candidate(path, "unreadable", e)


def check_output(found: Candidate, require: str | None) -> CheckResult:
    """Check one output. Errors are part of the result, never raised."""
    begin = time.perf_counter()
    path = found.path
    if found.error is not None:
        return CheckResult(path, found.error.exit_code, problems=(_message(found.error, path),))
    if found.kind != "bundle":
        problem = "has no record of its digests and its verification"
        return CheckResult(path, 1, problems=(problem,))
    opened: list[Artifact] = []
    manifest: dict[str, Any] = {}
    problems: list[str] = []
    code, reached, reason, nbytes, files = 0, "none", "", 0, 0
    try:
        artifact = Artifact(path)
        opened.append(artifact)
        manifest = portable.read_manifest(artifact)
        try:
            hashed = _check_files(path, manifest, problems)
            files, nbytes = len(hashed), sum(hashed.values())
            problems += _find_extra_files(path, manifest)
            problems += _check_manifest_digests(manifest)
            reached, reason = find_verified_level(manifest)
            if not problems:  # files that do not match the manifest are not read
                bundle = portable.bundle_of(artifact, manifest)
                problems += _check_tensor_digests(bundle, manifest)
                problems += _check_graphs(path, manifest, opened)
        except (KeyError, TypeError, AttributeError, ValueError) as e:
            raise CorruptError(
                f"does not follow its schema ({e!r})", where=path / portable.MANIFEST
            ) from e
    except ConvertError as e:
        code = e.exit_code
        problems.append(_message(e, path))
    finally:
        for file in (file for artifact in opened for file in artifact.opened.values()):
            file.close()
    if code:  # its manifest cannot be trusted
        manifest = {}
    if require is not None and not code and LEVELS.index(reached) < LEVELS.index(require):
        problems.append(f"verified as far as {reached}; required: {require}")
    return CheckResult(
        path, code or int(bool(problems)), reached, tuple(problems), reason, files, nbytes,
        time.perf_counter() - begin, {k: v for k, v in manifest.items() if k not in LONG},
    )  # fmt: skip


def _check_files(path: Path, manifest: Mapping[str, Any], problems: list[str]) -> dict[str, int]:
    """Hash the files of a manifest; return their sizes by name, and append to `problems`."""
    sizes: dict[str, int] = {}
    for resource in manifest["resources"]:
        name, expected = resource["name"], resource["size"]
        if resource["algorithm"] != digests.ALGORITHM:
            raise CorruptError(
                f"{name} has a digest of {resource['algorithm']!r}",
                expected=digests.ALGORITHM, where=path / portable.MANIFEST,
            )  # fmt: skip
        if name in sizes:
            raise CorruptError(f"names {name!r} twice", where=path / portable.MANIFEST)
        if not os.path.lexists(path / name):
            problems.append(f"{name} is missing")
            continue
        file = File(resolve_member(path, name))
        sizes[name] = file.size
        if file.size != expected:
            problems.append(f"{name} has {file.size} bytes; expected {expected}")
        elif digests.of_span(Span.whole(file)) != resource["digest"]:
            problems.append(f"{name} is not what was written: its digest differs")
        file.close()
    return sizes


def _find_extra_files(path: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files of a bundle that its manifest does not list."""
    known = {portable.MANIFEST, SIGNATURE} | {r["name"] for r in manifest["resources"]}
    if (path / MLFLOW).is_file():
        known |= MLFLOW_FILES

    def failed(e: OSError) -> None:
        raise SourceError(f"cannot be listed: {e.strerror}", where=e.filename) from e

    for folder, below, names in os.walk(path, onerror=failed):
        links = [name for name in below if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            relative = Path(folder, name).relative_to(path).as_posix()
            if relative not in known:
                yield f"{relative} is not in the manifest"


def _check_tensor_digests(bundle: Bundle, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tensors whose bytes do not have the digest that the manifest records of each."""
    known: dict[Hashable, str] = {}
    for entry in manifest["tensors"]:
        tensor = bundle.weights.get(entry["name"])
        if tensor is None:
            continue
        if tensor.identity not in known:
            known[tensor.identity] = digests.of_tensor(tensor)
        if known[tensor.identity] != entry["digest"]:
            yield f"tensor {entry['name']!r} is not what the manifest records: its digest differs"


def _check_manifest_digests(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests over a manifest's entries that do not match them."""
    tensors = {t["name"]: (t["dtype"], t["shape"], t["digest"]) for t in manifest["tensors"]}
    computed = {
        "weights_digest": digests.of_weights(tensors),
        "digest": digests.of_files({r["name"]: r["digest"] for r in manifest["resources"]}),
    }
    for key, value in computed.items():
        if manifest[key]["value"] != value:
            yield f"manifest.json was changed: {key} does not follow from what it covers"


def _check_graphs(path: Path, manifest: Mapping[str, Any], opened: list[Artifact]) -> Iterator[str]:
    """Yield graphs that are missing or unlisted, and references to files outside the bundle."""
    resources = {r["name"] for r in manifest["resources"]}
    stored = {name for name in resources if "/" not in name and name.endswith(GRAPH_SUFFIX)}
    graphs = [g for g in (manifest["graph"], *manifest.get("graphs", ())) if g is not None]
    named = {g["file"] for g in graphs}
    for name in sorted(stored ^ named):
        what = "is no graph of the manifest's" if name in stored else "is missing"
        yield f"{name} {what}"
    for name in sorted(stored & named):
        opened.append(Artifact(path / name))
        topology = onnx_files.read(opened[-1]).topology
        external: JSON = [] if topology is None else topology.summary.get("external_files", [])
        for other in external if isinstance(external, list) else ():
            if Path(str(other)).as_posix() not in resources:
                yield f"{name} points to {other}, which is no file of the bundle"
            elif (path / str(other)).is_symlink() or (path / str(other)).stat().st_nlink > 1:
                yield f"{name} points to {other}, a link, which onnx refuses to load"


def find_verified_level(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the level that a bundle's comparisons reach, and why it is not a higher one."""
    verification = manifest["verification"]
    weights = verification["weights"]
    has_weights = weights["status"] == "passed" and weights["tensors"] > 0
    graphs = [
        graph for graph in (manifest["graph"], *manifest.get("graphs", ())) if graph is not None
    ]
    reports = [verification["graph"], *verification.get("graphs", {}).values()]
    reports += [None] * (len(graphs) - len(reports))  # a graph without a record was not run
    levels = [
        None
        if report is None
        else graph_level(report["status"], _status(report, "device"), _status(report, "smoke"))
        for report in reports
    ]
    # Comparisons of reduced precision are in the recorded level only.
    level = min(
        verification["reached"], find_level(weights=has_weights, graphs=levels), key=LEVELS.index
    )
    if not graphs:
        return level, "no graph" if level != "none" else str(weights["detail"])
    least = min(range(len(levels)), key=lambda i: LEVELS.index(levels[i] or "none"))
    return level, _limit(reports[least])


def _status(report: Mapping[str, Any], part: str) -> str | None:
    found = report.get(part)
    return None if found is None else found["status"]


def _limit(report: Mapping[str, Any] | None) -> str:
    """Return why a graph did not reach a higher level."""
    if report is None:
        return "no comparison of graphs was asked for"
    if report["status"] != "passed":
        return str(report["reason"])
    device = report.get("device")
    return "no device was asked for" if device is None else str(device["reason"])


def _message(error: ConvertError, path: Path) -> str:
    """Return an error's message without the path of the output, which is printed before it."""
    return str(error).removeprefix(f"{path}: ").removeprefix(f"{path}/")
