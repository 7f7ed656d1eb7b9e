"""What lies in a folder, against its own manifests: a gate that needs neither source nor framework.

A bundle passes when every file is there and has the digest that the manifest says, no other file is
there, graphs point into it and nowhere else, and what the manifest records of its verification
reaches as far as is required. Nothing is computed: whether a graph still computes what its source
does follows from the digests. Models that lie there without such a record fail: nothing is known of
them. Names that begin with a dot, and what is no model, are passed over.
"""

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from formats import catalog, portable, safetensors
from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import JSON
from formats.core.storage import File, Span, resolve_member
from formats.errors import (
    ConvertError,
    CorruptError,
    SourceError,
    UnknownFormatError,
    VerificationError,
)
from formats.onnx import files as onnx_files

LONG = ("tensors", "topology", "encodings")  # parts of manifests that are not kept
LEVELS = ("none", "weights", "cpu", "device")
GRAPH_SUFFIX = ".onnx"
SAVED_MODEL = {"saved_model.pb", "saved_model.pbtxt"}
SIGNATURE = "model.sig"  # of OpenSSF Model Signing; it is made of all the others
# What MLflow keeps beside a model that it holds.
MLFLOW = "MLmodel"
BESIDE_MLFLOW = {
    MLFLOW, "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta",
    "input_example.json", "serving_input_example.json",
}  # fmt: skip

Kind = Literal["bundle", "folder", "file", "unreadable"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that lies in a folder and has to pass."""

    path: Path
    kind: Kind
    error: ConvertError | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came of one output.

    Attributes:
        path: Where it lies.
        exit_code: 0 where it passed, 1 where not; else that of the error that kept it from being
            looked at (`formats.errors`).
        reached: How far it is verified, as its manifest records it in all its parts.
        problems: Why it failed, one text for each reason.
        reason: Why its verification went no further, in the words of the record.
        files: How many were hashed.
        nbytes: Of these.
        seconds: How long that took.
        manifest: What it records, all but the long parts; nothing where it could not be followed.
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
    """Check all that lies in a folder, in the order of its names.

    Args:
        folder: A bundle, or a folder with outputs at any depth.
        require: How far each must be verified; None for no more than being whole.
        threads: That hash; by default one for each core.

    Raises:
        SourceError: The folder cannot be looked at.
        VerificationError: Nothing of ours lies in it.
    """
    if not folder.is_dir():
        found = "is not a folder" if folder.exists() else "no such folder"
        raise SourceError(found, where=folder, expected="a bundle, or a folder with bundles")
    count = threads or len(os.sched_getaffinity(0))
    nothing = True
    pool = ThreadPoolExecutor(count)  # hashing and reading leave the interpreter to others
    try:
        for checked in pool.map(lambda found: check_output(found, require), find_outputs(folder)):
            nothing = False
            yield checked
    finally:
        pool.shutdown(cancel_futures=True)
    if nothing:
        raise VerificationError(
            "nothing was verified: there is no output of convert", where=folder,
            expected="a portable bundle, or a folder with bundles",
        )  # fmt: skip


def find_outputs(folder: Path) -> Iterator[Candidate]:
    """Yield what lies in a folder, by name; links to folders are followed, each folder once."""
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
            yield from _files(here, [e.name for e in entries if e.name not in within])
            pending += reversed(folders)


def _is_bundle(folder: Path, names: set[str]) -> bool:
    """Tell whether a folder is, or was meant as, a bundle: its manifest may be damaged."""
    if portable.MANIFEST not in names:
        return False
    suffixes = (safetensors.SUFFIX, GRAPH_SUFFIX)
    if any(name.endswith(suffixes) for name in names):
        return True
    try:
        return portable.sniff(Artifact(folder)) is not None
    except ConvertError:
        return True


def _files(folder: Path, names: list[str]) -> Iterator[Candidate]:
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
    """Check one output; what is wrong with it is in the answer, never raised."""
    begin = time.perf_counter()
    path = found.path
    if found.error is not None:
        return CheckResult(path, found.error.exit_code, problems=(_bare(found.error, path),))
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
            hashed = _resources(path, manifest, problems)
            files, nbytes = len(hashed), sum(hashed.values())
            problems += _extra(path, manifest)
            problems += _contradictions(manifest)
            reached, reason = _reached(manifest)
            if not problems:  # else it says little of what is read
                portable.bundle_of(artifact, manifest)
                problems += _graphs(path, manifest, opened)
        except (KeyError, TypeError, AttributeError, ValueError) as e:
            raise CorruptError(
                f"does not follow its schema ({e!r})", where=path / portable.MANIFEST
            ) from e
    except ConvertError as e:
        code = e.exit_code
        problems.append(_bare(e, path))
    finally:
        for file in (file for artifact in opened for file in artifact.opened.values()):
            file.close()
    if code:  # it need not be what it says
        manifest = {}
    if require is not None and not code and LEVELS.index(reached) < LEVELS.index(require):
        problems.append(f"verified as far as {reached}; required: {require}")
    return CheckResult(
        path, code or int(bool(problems)), reached, tuple(problems), reason, files, nbytes,
        time.perf_counter() - begin, {k: v for k, v in manifest.items() if k not in LONG},
    )  # fmt: skip


def _resources(path: Path, manifest: Mapping[str, Any], problems: list[str]) -> dict[str, int]:
    """Hash the files that a manifest names; return their sizes, and tell what is wrong."""
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


def _extra(path: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield what lies in a bundle and belongs to nobody."""
    known = {portable.MANIFEST, SIGNATURE} | {r["name"] for r in manifest["resources"]}
    if (path / MLFLOW).is_file():
        known |= BESIDE_MLFLOW

    def failed(e: OSError) -> None:
        raise SourceError(f"cannot be listed: {e.strerror}", where=e.filename) from e

    for folder, below, names in os.walk(path, onerror=failed):
        links = [name for name in below if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            relative = Path(folder, name).relative_to(path).as_posix()
            if relative not in known:
                yield f"{relative} is not in the manifest"


def _contradictions(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a manifest is not the one that was written: its own sums do not hold."""
    tensors = {t["name"]: (t["dtype"], t["shape"], t["digest"]) for t in manifest["tensors"]}
    sums = {
        "weights_digest": digests.of_weights(tensors),
        "digest": digests.of_files({r["name"]: r["digest"] for r in manifest["resources"]}),
    }
    for key, value in sums.items():
        if manifest[key]["value"] != value:
            yield f"manifest.json was changed: {key} does not follow from what it covers"


def _graphs(path: Path, manifest: Mapping[str, Any], opened: list[Artifact]) -> Iterator[str]:
    """Yield what is wrong with a bundle's graphs, and with where they point."""
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
        beside: JSON = [] if topology is None else topology.summary.get("external_files", [])
        for other in beside if isinstance(beside, list) else ():
            if Path(str(other)).as_posix() not in resources:
                yield f"{name} points to {other}, which is no file of the bundle"


def _reached(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return how far all parts of a bundle are verified, and why no further."""
    verification = manifest["verification"]
    recorded: str = verification["reached"]
    level = LEVELS.index(recorded)
    reason = ""
    if manifest["graph"] is None and recorded in ("none", "weights"):
        return recorded, verification["weights"]["detail"] if recorded == "none" else "no graph"
    for report in (verification["graph"], *verification.get("graphs", {}).values()):
        if report is None:
            part, why = "weights", "no comparison of graphs was asked for"
        elif report["status"] != "passed":
            part, why = "weights", report["reason"]
        else:
            device = report.get("device")
            on_device = device is not None and device["status"] == "passed"
            part = "device" if on_device else "cpu"
            why = "no device was asked for" if device is None else device["reason"]
        if LEVELS.index(part) < level:
            level = LEVELS.index(part)
            reason = why
        reason = reason or why
    return LEVELS[level], str(reason)


def _bare(error: ConvertError, path: Path) -> str:
    """Return an error's text without the path of the output, which is said before it."""
    return str(error).removeprefix(f"{path}: ").removeprefix(f"{path}/")
