"""The spine: detect, read, normalise, write, verify, publish. It reads as that sentence.

`steps` yields what happened as it happens, and last the `Result`; `convert` only returns that.
Nothing here prints.
"""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Literal

from converter.background import Background
from converter.normalise import select, strip_prefixes
from converter.publish import check_target, publish, staging, sync_tree
from converter.sizes import readable_size
from converter.verify.weights import WeightsReport, Written, compare
from formats import catalog, digests, portable
from formats.artifact import Artifact
from formats.bundle import JSON, Bundle, LeftOut
from formats.errors import (
    InternalError,
    SafetyError,
    StorageError,
    UnsupportedError,
    UsageError,
    VerificationError,
)
from formats.limits import DEFAULT, Limits
from formats.output import Output
from formats.portable import Resource
from formats.safetensors_files import DEFAULT_SHARD_BYTES, Plan, create, fill, plan
from formats.storage import File, Span

Target = Literal["portable", "safetensors"]
TARGETS: tuple[Target, ...] = ("portable", "safetensors")
LEVELS = ("none", "weights", "cpu", "device")


@dataclass(frozen=True, slots=True)
class Options:
    """What a conversion may be told. None means the default, which is written here once.

    Attributes:
        to: Target.
        from_format: The source's format, where detection shall not decide it.
        include: Groups of training state to keep with the weights.
        strip_prefix: ``auto``, ``none`` or a prefix of tensor names.
        verify: How far to verify: ``none``, ``weights``, or ``auto``, the most there is.
        require: The least that must be verified, or the conversion fails.
        max_shard_bytes: Where safetensors files are cut.
        strict_safety: Refuse a source that names code or files outside itself.
        force: Replace an existing output.
        sync: Wait until the output is on the disk, not only in its cache. Without it, what
            replaces an existing output still does: a power cut may cost the new output, of which
            the source is still there, but never the old one.
    """

    to: Target = "portable"
    from_format: str | None = None
    include: tuple[str, ...] = ()
    strip_prefix: str = "auto"
    verify: str = "auto"
    require: str | None = None
    max_shard_bytes: int = DEFAULT_SHARD_BYTES
    strict_safety: bool = False
    force: bool = False
    sync: bool = False
    limits: Limits = DEFAULT


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the road, done.

    Attributes:
        name: ``detected``, ``read``, ``normalised``, ``left out``, ``warning``, ``written``,
            ``verified`` or ``planned``.
        text: What there is to say of it.
        seconds: How long it took, where that says something.
    """

    name: str
    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Result:
    """A finished conversion.

    Attributes:
        path: What was written; None after a dry run.
        source: The artifact converted.
        bundle: What was written, its weights still in the source's files.
        report: The comparison of weights, or None where none was asked for.
        format: Row id of the source's format.
        evidence: Why it was taken for that.
    """

    path: Path | None
    source: Path
    bundle: Bundle
    report: WeightsReport | None
    format: str
    evidence: str
    steps: tuple[Step, ...] = field(default=())


def read(source: str | Path, *, from_format: str | None = None, limits: Limits = DEFAULT) -> Bundle:
    """Read any artifact into a device-neutral bundle of lazy weights.

    Raises:
        SourceError: It is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, and not supported yet.
        SafetyError: It names files outside itself.
    """
    return catalog.read(Artifact(source, limits), from_format)


def convert(
    source: str | Path,
    *,
    to: Target = "portable",
    out: str | Path | None = None,
    options: Options | None = None,
) -> Result:
    """Convert one artifact.

    Args:
        source: File, folder or checkpoint prefix.
        to: Target.
        out: Where to write; by default the source's name with the target's suffix, here.
        options: Everything else.

    Raises:
        ConvertError: As `steps`; nothing is left half-written.
    """
    options = replace(options or Options(), to=to)
    seen: list[Step] = []
    for event in steps(source, out, options):
        if isinstance(event, Result):
            return replace(event, steps=tuple(seen))
        if isinstance(event, Step):
            seen.append(event)
    raise InternalError("steps() ended without a result")


def default_out(source: Path, to: Target) -> Path:
    """Return the output's path where none was given: the source's stem in the current folder."""
    name = source.name or source.resolve().name
    known = {s for row in catalog.FORMATS for s in row.suffixes}
    stem = name
    while Path(stem).suffix.lower() in known | {".weights"} and Path(stem).stem:
        stem = Path(stem).stem
    return Path(f"{stem}.{to}")


def steps(
    source: str | Path, out: str | Path | None, options: Options, *, dry_run: bool = False
) -> Iterator[Step | Progress | Result]:
    """Convert one artifact, yielding each step as it is done, and the result last.

    Raises:
        UsageError: The options contradict each other or the target exists.
        SourceError: The source is unreadable.
        UnsupportedError: Source, target or verification are not supported yet.
        SafetyError: ``strict_safety`` found something.
        StorageError: The output could not be written.
        VerificationError: The output is not the source, or less was verified than required.
    """
    source = Path(source)
    _check(options)
    target = Path(out) if out is not None else default_out(source, options.to)
    if not dry_run:
        _check_apart(source, target)
        check_target(target, force=options.force)

    clock = perf_counter()
    artifact = Artifact(source, options.limits)
    match = catalog.detect(artifact, options.from_format)
    yield Step("detected", f"{match.format.id}: {match.evidence}")

    bundle = match.format.read(artifact)
    catalog.check_expansion(bundle, artifact)
    yield Step("read", _read_line(bundle), perf_counter() - clock)
    for finding in bundle.metadata.findings:
        yield Step("warning", f"{finding.kind}: {finding.subject} in {finding.where}")
    if options.strict_safety and bundle.metadata.findings:
        raise SafetyError(
            f"{len(bundle.metadata.findings)} safety findings, first: "
            f"{bundle.metadata.findings[0].subject}",
            where=source,
            hint="Without --strict-safety it converts; nothing of it is run",
        )

    bundle = _graph_left_out(strip_prefixes(select(bundle, options.include), options.strip_prefix))
    for change in bundle.metadata.normalisations:
        yield Step("normalised", f"{change.name}: {change.count}, {change.detail}")
    if bundle.metadata.left_out:
        yield Step("left out", _left_out_line(bundle.metadata.left_out))
    if not bundle.weights and options.to == "safetensors":
        raise UnsupportedError("holds no tensors", where=source)

    if not bundle.weights and options.require is not None:
        raise VerificationError(
            f"--require {options.require}: there is no tensor to compare", where=source
        )

    layout = plan(bundle.weights, bundle.encodings, max_shard_bytes=options.max_shard_bytes)
    target = _sharded_target(target, out, layout, options.to)
    if dry_run:
        yield Step("planned", f"{target}: {_files_line(layout)}")
        yield Result(None, source, bundle, None, match.format.id, match.evidence)
        return
    check_target(target, force=options.force)
    with staging(target) as folder:
        payload = folder / "payload"
        payload.mkdir()
        sync = options.sync or os.path.lexists(target)
        sources = digests.FileDigests(artifact.opened) if options.to == "portable" else None
        report = yield from _transfer(bundle, layout, payload, sources, options, sync=sync)
        _write_assets(bundle, payload, sync=sync)
        if sources is not None:
            document = _manifest(bundle, layout, artifact, payload, sources, report, options)
            portable.write_manifest(document, payload, sync=sync)
        for file in artifact.opened.values():
            file.check_unchanged()
        if sync:
            sync_tree(payload)
        is_one_file = options.to == "safetensors" and layout.index is None
        publish(
            payload / layout.shards[0].name if is_one_file else payload, target, force=options.force
        )
    yield Result(target, source, bundle, report, match.format.id, match.evidence)


def _transfer(
    bundle: Bundle,
    layout: Plan,
    payload: Path,
    sources: digests.FileDigests | None,
    options: Options,
    *,
    sync: bool,
) -> Generator[Step | Progress, None, WeightsReport | None]:
    """Write the weights, and compare what is written while the rest of it still is."""
    begin = perf_counter()
    create(layout, payload, sync=sync)
    written, comparison = Written(), None
    if bundle.weights and (sources is not None or options.verify != "none"):
        output = catalog.read(Artifact(payload), "safetensors").weights
        comparison = Background(
            partial(
                compare,
                bundle.weights,
                output,
                with_digests=sources is not None,
                written=written,
            )
        )
    done, total = 0, layout.nbytes
    try:
        watch = None if sources is None else sources.follow
        for n in fill(layout, payload, watch=watch, sync=sync):
            written.advance(n)
            done += n
            yield Progress("written", done, total)
    finally:
        written.end()
        if comparison is not None:
            comparison.wait()
    yield Step("written", _files_line(layout), perf_counter() - begin)
    report = comparison.result() if comparison is not None else None
    if report is not None and options.verify != "none":
        size = readable_size(report.nbytes)
        text = f"weights: {report.tensors} tensors, {size}, equal bit for bit"
        yield Step("verified", text, perf_counter() - begin)
    return report


def _check(options: Options) -> None:
    if options.to not in TARGETS:
        raise UsageError(f"--to {options.to}", expected=" or ".join(TARGETS))
    if options.verify not in (*LEVELS, "auto"):
        raise UsageError(f"--verify {options.verify}", expected=", ".join((*LEVELS, "auto")))
    if options.require not in (None, *LEVELS[1:]):
        raise UsageError(f"--require {options.require}", expected=", ".join(LEVELS[1:]))
    if options.verify in ("cpu", "device"):
        raise UnsupportedError(
            f"--verify {options.verify} needs a graph, and graphs are not converted yet",
            expected="weights",
        )
    if options.require in ("cpu", "device"):
        raise VerificationError(
            f"--require {options.require} cannot be met: graphs are not converted yet",
            expected="--require weights",
        )
    if options.require == "weights" and options.verify == "none":
        raise UsageError("--require weights contradicts --verify none")
    if options.max_shard_bytes < 1:
        raise UsageError(f"--max-shard-size {options.max_shard_bytes}", expected="at least 1 byte")


def _check_apart(source: Path, target: Path) -> None:
    """Refuse an output that would replace its own source, or lie inside it."""
    try:
        here, there = (Path(os.path.realpath(p)) for p in (source, target))
    except ValueError as e:
        raise UsageError(f"no file can have this name: {e}", where=repr(source)) from e
    if here == there or there.is_relative_to(here) or here.is_relative_to(there):
        raise UsageError("the output would stand in its own source", where=target)


def _sharded_target(target: Path, out: str | Path | None, layout: Plan, to: Target) -> Path:
    """Shards need a folder; one that would be called a file gets a name of its own."""
    if to == "safetensors" and layout.index is not None and target.suffix == ".safetensors":
        if out is not None:
            raise UsageError(
                f"the weights need {len(layout.shards)} shards, so the output is a folder",
                where=target,
                hint="Give -o a folder's name, or raise --max-shard-size",
            )
        return target.with_name(f"{target.stem}-safetensors")
    return target


def _graph_left_out(bundle: Bundle) -> Bundle:
    if bundle.topology is None:
        return bundle
    entry = LeftOut(
        f"graph ({bundle.topology.kind})",
        "computation is not converted yet: the manifest keeps what the source says about it",
    )
    metadata = replace(bundle.metadata, left_out=(*bundle.metadata.left_out, entry))
    return replace(bundle, metadata=metadata)


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _write_assets(bundle: Bundle, payload: Path, *, sync: bool) -> None:
    for name, span in bundle.assets.items():
        parts = name.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in name:
            raise SafetyError(f"an asset is named {name!r:.80}", where=span.name)
        path = payload.joinpath("assets", *parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:  # too long, or a folder where another asset is a file
            raise StorageError.writing(path, e) from e
        with Output(path) as out:
            for _ in out.append([span]):
                pass
            if sync:
                out.sync()


def _manifest(
    bundle: Bundle,
    layout: Plan,
    artifact: Artifact,
    payload: Path,
    sources: digests.FileDigests,
    report: WeightsReport | None,
    options: Options,
) -> dict[str, JSON]:
    verified = report is not None and options.verify != "none"
    weights: dict[str, JSON] = {
        "status": "passed" if verified else "not run",
        "detail": "the output was read again and compared bit for bit with the source"
        if verified
        else ("--verify none" if report is not None else "there are no tensors"),
        "tensors": report.tensors if verified and report else 0,
        "bytes": report.nbytes if verified and report else 0,
    }
    known = report.files if report else {}
    files = {p.relative_to(payload).as_posix(): File(p) for p in _files(payload)}
    found = {
        name: known.get(file.path) or digests.of_span(Span.whole(file))
        for name, file in files.items()
    }
    from converter import environment  # 20 ms of importlib.metadata, for portable bundles only

    return portable.manifest(
        bundle,
        layout,
        source_name=artifact.name,
        source_files=_resources(artifact.opened, sources.finish()),
        tensor_digests=report.digests if report else {},
        resources=_resources(files, found),
        verification={"reached": "weights" if verified else "none", "weights": weights},
        environment=environment.describe(),
    )


def _resources(files: Mapping[str, File], found: Mapping[str, str]) -> list[Resource]:
    return [Resource(name, file.size, found[name]) for name, file in files.items()]


def _read_line(bundle: Bundle) -> str:
    about = bundle.metadata
    total = sum(t.nbytes for t in {t.identity: t for t in bundle.weights.values()}.values())
    text = f"{about.variant}: {len(bundle.weights)} tensors, {readable_size(total)}"
    if about.devices:
        text += ", devices " + ", ".join(f"{d} x{n}" for d, n in about.devices.items())
    return text


def _files_line(layout: Plan) -> str:
    count = len(layout.shards)
    return f"{count} file{'s' if count > 1 else ''}, {readable_size(layout.nbytes)}"


def _left_out_line(entries: Sequence[LeftOut]) -> str:
    reasons: dict[str, int] = {}
    for entry in entries:
        reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    return "; ".join(f"{n} x {reason}" for reason, n in reasons.items())
