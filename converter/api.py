"""The Python API: `Options` as keywords; references are accepted wherever paths are."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from converter.child.trust import Trusted
from converter.inspection import Inspection
from converter.keywords import merge_fields, merge_options, takes_options
from converter.options import Comparison, Options
from converter.references import (
    Source,
    display_name,
    is_reference,
    is_uploaded,
    locate_model,
    output,
)
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import InternalError, UsageError
from formats.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from converter.batch.driver import Event as BatchEvent
    from converter.batch.request import Override
    from converter.doctor.diagnosis import Diagnosis
    from converter.jobs.job import Needs, Outcome
    from converter.pipeline import Conversion, Event
    from converter.registries.filters import Filters
    from converter.tensor_diff import TensorDiff
    from converter.verification.result import Verification
    from formats.core.storage import File

AnyPath: TypeAlias = str | os.PathLike[str]


def convert_steps(
    source: AnyPath,
    out: AnyPath | None,
    options: Options,
    *,
    dry_run: bool = False,
    keep: bool = False,
    attest: Path | None = None,
) -> "Iterator[Event]":
    """Convert one artifact like `converter.pipeline.steps`, and accept references.

    Args:
        source: Path or reference.
        out: Path or URL; None for the source's name with the target's suffix. A folder, in which it
            gets that name, ends in a slash.
        options: Options of the conversion.
        dry_run: Write nothing.
        keep: Keep a fetched source as long as its files are in use.
        attest: Folder for attestations of the output (see `converter.attestation`).

    Raises:
        ConvertError: As `converter.pipeline.steps`; or a reference cannot be read or written.
    """
    from converter.events import Opened, Step
    from converter.pipeline import Conversion, steps
    from converter.write.output_path import choose_target

    local = None if is_reference(source) else locate_model(source)
    options = choose_target(options, local, out)
    out = _place_upload(source, out, options)
    finished: Conversion | None = None
    written: list[Step] = []
    files: Mapping[str, File] = {}
    with output(out, overwrite=options.overwrite) as target, Source(source) as fetched:
        if attest is not None and not dry_run:
            from converter.attestation.attest import check_folder

            check_folder(attest, fetched.path, target, options)
        for event in steps(fetched.path, target, fetched.complete(options), dry_run=dry_run):
            if isinstance(event, Opened):
                files = event.files
                if keep:
                    fetched.keep_with(files.values())
            if isinstance(event, Conversion):
                finished = event
            elif isinstance(event, Step) and event.name == "written":
                written.append(event)
            else:
                yield event
        if attest is not None and finished is not None and not dry_run:
            name = fetched.name if is_reference(source) else Path(fetched.name).name
            yield from _attest(attest, finished, name, files, options)
    yield from written  # and uploaded
    if finished is not None:
        finished = replace(finished, source=fetched.name)
        if out is not None and is_uploaded(out) and not dry_run:
            finished = replace(finished, path=None, url=display_name(out))
        yield finished


def _place_upload(source: AnyPath, out: AnyPath | None, options: Options) -> AnyPath | None:
    """Return the URL of an output; one that ends in a slash gets the default name."""
    from converter.write.catalog import find_target
    from converter.write.output_path import default_output, names_folder

    if out is None or not is_reference(out) or not names_folder(out):
        return out
    name = Path(display_name(source).rstrip("/"))
    return f"{out}{default_output(name, find_target(options.to), options.device)}"


def _attest(
    folder: Path, made: "Conversion", source: str, files: "Mapping[str, File]", options: Options
) -> "Iterator[Event]":
    """Write the attestations of an output."""
    from converter.attestation.attest import attest
    from converter.events import Step

    begin = perf_counter()
    paths = attest(folder, made, source, files, options)
    names = ", ".join(path.name for path in paths)
    yield Step("attested", names, perf_counter() - begin)


@takes_options
def convert(
    source: AnyPath,
    *,
    to: str = "auto",
    out: AnyPath | None = None,
    device: str | None = None,
    precision: str | None = None,
    verify: str = "auto",
    require: str | None = None,
    opset: int | None = None,
    signatures: Iterable[str] = (),
    inputs: Iterable[TensorSpec | str] = (),
    include: Iterable[str] = (),
    strip_prefix: str = "auto",
    max_shard_size: int | str = "50GB",
    trust: Iterable[Trusted | str] | None = None,
    overwrite: bool = False,
    attest: AnyPath | None = None,
    options: Options | None = None,
    on_event: "Callable[[Event], object] | None" = None,
) -> "Conversion":
    """Convert one artifact.

    Set each option once: as a keyword, or in ``options``, which has additional ones.

    Args:
        source: File, folder or checkpoint prefix; or a reference: ``s3://…``, ``models:/name/3``.
        to: Target: ``portable``, ``safetensors``, ``onnx``, … (a row of `converter.write.catalog`);
            ``auto`` is the one that writes files with ``out``'s suffix, or ``portable``.
        out: Path or URL to write; default: the source's name with the target's suffix, in the
            current folder. ``"folder/"`` is a folder for an output of that name.
        device: Device of the output, for targets that name one: ``cpu``, ``cuda:1``, ``GPU:0``.
        precision: ``fp16`` or ``bf16`` for the floating point values of an ONNX graph.
        verify: How far to verify: ``none``, ``smoke``, ``weights``, ``cpu``, ``device``, or
            ``auto``, as far as this machine can.
        require: Level that must be reached: ``weights``, ``cpu`` or ``device``.
        opset: ONNX opset; default: 18, or the lowest higher one that the model needs.
        signatures: TensorFlow signatures to convert; default: all.
        inputs: Inputs of a torch program that does not record them, as specs or as
            ``"image:float32:batch,3,224,224"``.
        include: Groups of training state to keep: ``optimizer``, ``training``.
        strip_prefix: Wrapper prefix to remove from tensor names, ``auto`` or ``none``.
        max_shard_size: Largest safetensors file, in bytes or as ``"5GB"``.
        trust: Modules whose code may run, in child processes: ``"module"`` or ``"module=path"``.
        overwrite: Replace an existing output.
        attest: Folder for what says where the output came from: SLSA provenance as an in-toto
            statement, a CycloneDX bill of materials, and a manifest if the output has none.
        options: All of this in one object.
        on_event: Called with each event of `converter.events` as it happens.

    Returns:
        The conversion: what was written and verified.

    Raises:
        UsageError: The options contradict each other, or the output exists.
        SourceError: The source is unreadable, damaged, unknown or over a limit.
        UnsupportedError: The source is valid, and cannot be converted to this target.
        SafetyError: The source refers to code or to files outside itself, and was refused.
        VerificationError: The output differs from the source, or less was verified than required.
        StorageError: The output cannot be written.
        DependencyError: A required package is not installed.
    """
    from converter.events import Step
    from converter.pipeline import Conversion

    seen: list[Step] = []
    folder = None if attest is None else Path(attest)
    for event in convert_steps(source, out, options or Options(), keep=True, attest=folder):
        if on_event is not None:
            on_event(event)
        if isinstance(event, Conversion):
            return replace(event, steps=tuple(seen))
        if isinstance(event, Step):
            seen.append(event)
    raise InternalError("a conversion ended without a result")


def verify(
    source: AnyPath,
    converted: AnyPath,
    *,
    device: str | None = None,
    atol: float | Mapping[str, float] | None = None,
    rtol: float | Mapping[str, float] | None = None,
    inputs: AnyPath | None = None,
    seed: int = 0,
    timeout: float = 900.0,
    html: AnyPath | None = None,
    options: Options | None = None,
) -> "Verification":
    """Compare a converted artifact with its source: weights bit by bit, graphs by running both.

    Args:
        source: File, folder or checkpoint prefix; or a reference.
        converted: The converted artifact; or a reference.
        device: Device to run both on, in addition to the CPU: ``cuda:0`` or ``GPU:0``.
        atol: Absolute tolerance, for all outputs or by output; default: by dtype.
        rtol: Relative tolerance, likewise.
        inputs: ``.npz`` file with one array for each input; default: random inputs.
        seed: Seed of random inputs.
        timeout: Seconds that each of the two runtimes may take.
        html: File to write a page to: the errors of outputs and of all layers, which are compared
            for it.
        options: Options shared with conversions: trusted modules, signatures, checkpoint, ….

    Returns:
        What was compared, and the level reached. A difference is a result, not an error.

    Raises:
        SourceError: One of the two artifacts is unreadable.
        UsageError: The options do not apply to these artifacts, or contradict each other; or
            ``html`` is a folder.
        StorageError: ``html`` cannot be written.
        DependencyError: A child process died, hung, or took too much memory.
    """
    comparison: dict[str, Any] = {
        "atol": _as_bounds(atol),
        "rtol": _as_bounds(rtol),
        "inputs": None if inputs is None else Path(inputs),
        "seed": seed,
        "timeout": timeout,
    }
    default = Comparison()
    given = {name: x for name, x in comparison.items() if x != getattr(default, name)}
    held = options or Options()
    merged = merge_fields(held.comparison, given, "comparison=Comparison")
    if device is not None:
        held = merge_options(held, {"device": device})
    return verify_artifacts(source, converted, replace(held, comparison=merged), html=html)


def _as_bounds(given: float | Mapping[str, float] | None) -> Mapping[str, float]:
    """Return tolerances by output; the empty name applies to all others."""
    if given is None:
        return {}
    return given if isinstance(given, Mapping) else {"": float(given)}


def verify_artifacts(
    source: AnyPath, converted: AnyPath, options: Options, *, html: AnyPath | None = None
) -> "Verification":
    """Compare like `converter.verification.verify.verify`, accept references, and write a page.

    Raises:
        ConvertError: As in that function; a reference cannot be read; or the page not written.
    """
    from converter.verification.verify import verify as compare

    if html is not None:
        from converter.reports.file import check as check_writable

        check_writable(Path(html), "html=")
        options = replace(options, comparison=replace(options.comparison, layers=True))
    with Source(source) as first, Source(converted, is_one=False) as second:
        found = compare(first.path, second.path, options=options)
    if html is not None:
        from converter.verification_page.page import Compared, write_verification

        write_verification(Path(html), Compared(first.name, second.name), found, options)
    return found


def read(
    source: AnyPath,
    *,
    format: str | None = None,
    checkpoint: AnyPath | None = None,
    limits: Limits = DEFAULT,
) -> Bundle:
    """Read any artifact. No framework is imported, and no code of the artifact is run.

    Args:
        source: File, folder or checkpoint prefix; or a reference.
        format: Row id of `formats.catalog`; default: detected by content.
        checkpoint: Checkpoint with the values of a TensorFlow graph's variables.
        limits: Limits of reading.

    Returns:
        A bundle whose weights are lazy: each is read from the source's files on first access.

    Raises:
        SourceError: The source is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, but not supported yet.
        SafetyError: It refers to files outside itself.
    """
    with Source(source) as fetched:
        artifact = Artifact(fetched.path, limits)
        values = None if checkpoint is None else Artifact(Path(checkpoint), limits)
        bundle = catalog.read(artifact, format, values)
        fetched.keep_with(artifact.opened.values())
    return bundle


def inspect(
    source: AnyPath | Bundle,
    *,
    format: str | None = None,
    html: AnyPath | None = None,
    limits: Limits = DEFAULT,
) -> Inspection:
    """Describe an artifact: format, recorded facts and contents. Without a page, no weight is read.

    Args:
        source: File, folder or checkpoint prefix; a reference; or a bundle.
        format: Row id of `formats.catalog`; default: detected by content.
        html: File to write a page to: facts, layers, histograms of weights, and the graph.
        limits: Limits of reading.

    Raises:
        SourceError: The source is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, but not supported yet.
        SafetyError: It refers to files outside itself.
        UsageError: ``html`` is a folder, or the source is a bundle in memory.
        StorageError: ``html`` cannot be written.
    """
    from converter import inspection

    if isinstance(source, Bundle):
        if html is not None:
            raise UsageError("html= with a bundle in memory", expected="the path of an artifact")
        return inspection.inspect(source, format=format, limits=limits)
    with Source(source) as fetched:
        if html is None:
            found = inspection.inspect(fetched.path, format=format, limits=limits)
        else:
            from converter.inspection_page.page import write_inspection

            found = write_inspection(
                fetched.path, Path(html), name=fetched.name, format=format, limits=limits
            )
    return replace(found, source=fetched.name)


def diff(
    a: AnyPath | Bundle, b: AnyPath | Bundle, *, limits: Limits = DEFAULT
) -> "list[TensorDiff]":
    """Compare the weights of two artifacts of any format.

    Args:
        a: File, folder or checkpoint prefix; a reference; or a bundle.
        b: Likewise.
        limits: Limits of reading each.

    Returns:
        One comparison for each tensor.

    Raises:
        VerificationError: Neither artifact holds a tensor, so nothing would be compared.
        SourceError: An artifact is unreadable, damaged, unknown or over a limit.
        UnsupportedError: One is valid, but not supported yet.
    """
    from converter import tensor_diff

    with ExitStack() as stack:
        sides = [
            x if isinstance(x, Bundle) else stack.enter_context(Source(x)).path for x in (a, b)
        ]
        return tensor_diff.diff(sides[0], sides[1], limits=limits)


def diagnose(
    source: AnyPath | None = None,
    *,
    format: str | None = None,
    python: AnyPath = "",
    fast: bool = False,
    limits: Limits = DEFAULT,
) -> "Diagnosis":
    """Diagnose why an artifact does not load here, or what is wrong with this machine.

    Args:
        source: File, folder or checkpoint prefix; a reference; None for the machine alone.
        format: Row id of `formats.catalog`; default: detected by content.
        python: Python whose packages are examined; default: the running one.
        fast: Import no framework, not even in a child process: what official loaders do is
            predicted; otherwise those that are installed and safe to call are called.
        limits: Limits of reading.

    Raises:
        UsageError: The arguments contradict each other.
        SourceError: The source is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, but not supported yet.
        DependencyError: ``python`` cannot be run.
    """
    from converter.doctor import diagnosis

    settings: dict[str, Any] = {
        "format": format, "python": str(python), "fast": fast, "limits": limits,
    }  # fmt: skip
    if source is None:
        return diagnosis.diagnose(None, **settings)
    with Source(source) as fetched:
        return diagnosis.diagnose(fetched.path, name=fetched.name, **settings)


@takes_options
def convert_many(
    sources: AnyPath | Iterable[AnyPath],
    out: AnyPath,
    *,
    to: str = "auto",
    options: Options | None = None,
    filters: "Filters | None" = None,
    engine: str = "processes",
    jobs: int | None = None,
    needs: "Needs | None" = None,
    address: str | None = None,
    ledger: AnyPath | None = None,
    limit: int | None = None,
    retry_failed: bool = False,
    fail_fast: bool = False,
    overrides: "Sequence[Override]" = (),
    on_event: "Callable[[BatchEvent], object] | None" = None,
) -> "Iterator[Outcome]":
    """Convert the artifacts of folders, globs and registries whose outputs are missing or outdated.

    Args:
        sources: One or more: folder, glob, ``list:FILE``, ``s3://…``, ``models:/…``.
        out: Folder, URL or ``models:/{name}_portable``.
        to: Target, a row of `converter.write.catalog`; ``auto`` is ``portable``.
        options: Options of every conversion.
        filters: Which artifacts to convert; default: all.
        engine: ``processes``, ``inline`` or ``ray``.
        jobs: Number of concurrent conversions; default: the engine's choice.
        needs: Cores, GPUs, memory in bytes and seconds of each conversion.
        address: Address of a Ray cluster.
        ledger: File that records finished work; default: ``OUT.ledger.sqlite``, next to ``out``.
        limit: Maximum number of artifacts.
        retry_failed: Also retry artifacts that failed before and have not changed.
        fail_fast: Stop at the first failure.
        overrides: Options of artifacts with some names; of several that match, a later one decides.
        on_event: Called with each event of `converter.batch.driver`: the plan, each artifact, the
            summary.

    Yields:
        The outcome of each planned artifact as it finishes, including failures.

    Raises:
        UsageError: The request contradicts itself.
        StorageError: The ledger or the destination cannot be used.
        DependencyError: The engine is unavailable.
    """
    from converter.batch import driver
    from converter.batch.request import Request
    from converter.jobs.job import Needs
    from converter.registries.filters import Filters

    several = (sources,) if isinstance(sources, str | os.PathLike) else sources
    request = Request(
        tuple(map(str, several)), str(out), options or Options(), filters or Filters(),
        None if ledger is None else Path(ledger), engine, jobs, needs or Needs(), address,
        limit=limit, retry_failed=retry_failed, fail_fast=fail_fast,
        overrides=tuple(overrides),
    )  # fmt: skip
    driver.check_request(request)
    return _outcomes(driver.run(request), on_event)


def _outcomes(
    events: "Iterator[BatchEvent]", on_event: "Callable[[BatchEvent], object] | None"
) -> "Iterator[Outcome]":
    from converter.batch.driver import Finished

    for event in events:
        if on_event is not None:
            on_event(event)
        if isinstance(event, Finished):
            yield event.outcome
