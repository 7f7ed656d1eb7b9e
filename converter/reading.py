"""Read any artifact into a device-neutral bundle of lazy weights."""

from collections.abc import Generator, Sequence
from pathlib import Path
from time import perf_counter

from converter import safety
from converter.byte_sizes import readable_size
from converter.events import Opened, Started, Step
from converter.normalise.adapters import merge_adapter
from converter.normalise.pretrained_names import RULES, rename_for_torch
from converter.normalise.quantized.schemes import dequantize
from converter.options import Options
from formats import catalog, hugging_face
from formats.artifact import Artifact
from formats.core.bundle import Bundle, SafetyFinding
from formats.core.plurals import count, list_counts
from formats.errors import SafetyError
from formats.limits import DEFAULT, Limits


def read(
    source: str | Path,
    *,
    format: str | None = None,
    checkpoint: str | Path | None = None,
    limits: Limits = DEFAULT,
) -> Bundle:
    """Read any artifact into a device-neutral bundle of lazy weights.

    Raises:
        SourceError: It is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, but not supported yet.
        SafetyError: It refers to files outside itself.
    """
    values = None if checkpoint is None else Artifact(checkpoint, limits)
    return catalog.read(Artifact(source, limits), format, values)


def read_steps(
    artifact: Artifact, options: Options
) -> Generator[Step | Started | Opened, None, tuple[catalog.Match, Bundle]]:
    """Detect a source's format, read it, and report suspicious content.

    Returns:
        The format with its evidence, and the bundle.

    Raises:
        SourceError: It is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, but not supported yet.
        SafetyError: It refers to files outside itself, or ``strict_safety`` found something.
    """
    yield Started("reading", artifact.path.name)
    begin = perf_counter()
    checkpoint = options.checkpoint
    if checkpoint is None:
        match = catalog.detect(artifact, options.format)
        yield Step("detected", f"{match.format.id}: {match.evidence}")
        bundle = match.format.read(artifact)
    else:
        match = catalog.detect_graph(artifact, options.format)
        evidence = f"{match.evidence}, with checkpoint {checkpoint}"
        yield Step("detected", f"{match.format.id}: {evidence}")
        bundle = catalog.read_joined(artifact, Artifact(checkpoint, options.limits))
    catalog.check_expansion(bundle, artifact)
    yield Step("read", describe_bundle(bundle), perf_counter() - begin)
    stored = bundle
    bundle = change_weights(stored, options)
    if bundle is not stored:
        yield Step("changed", f"{describe_bundle(bundle)}")
    yield Opened(match.format.id, match.evidence, bundle, artifact.opened)
    findings = bundle.metadata.findings
    for finding in findings:
        yield Step("warning", f"the source {safety.explain(finding)}")
    if options.strict_safety:
        refuse(findings, artifact.path)
    return match, bundle


def is_changed(bundle: Bundle, options: Options) -> bool:
    """Return whether an output has other weights, or names of them, than the source."""
    is_renamed = bundle.metadata.format in RULES
    return options.dequantize or options.merge_adapter is not None or is_renamed


def change_weights(bundle: Bundle, options: Options) -> Bundle:
    """Return a bundle as torch's classes have it, with the changes that were asked for.

    Raises:
        UsageError: It is no adapter, or nothing says that it is quantised.
        UnsupportedError: It is of a kind that is not merged, or not made floats.
        SourceError: The base is unreadable, or tensors do not fit each other.
    """
    bundle = rename_for_torch(bundle)
    if options.merge_adapter is not None:
        base = catalog.read(Artifact(options.merge_adapter, options.limits))
        base = rename_for_torch(base)
        return merge_adapter(bundle, dequantize(base) if options.dequantize else base)
    return dequantize(bundle) if options.dequantize else bundle


def is_quantized(bundle: Bundle) -> bool:
    """Return whether a bundle is that of a model of transformers' whose weights are quantised."""
    topology = bundle.topology
    return (
        topology is not None
        and topology.kind == hugging_face.KIND
        and hugging_face.find_quantization(topology.content) is not None
    )


def refuse(findings: Sequence[SafetyFinding], where: str | Path) -> None:
    """Refuse a source that refers to code, or to files outside itself.

    Raises:
        SafetyError: There are findings.
    """
    if findings:
        number = count("safety finding", len(findings))
        raise SafetyError(
            f"{number}, first: {safety.describe(findings[0])}",
            where=where,
            hint="Without strict_safety=True it is converted, and nothing of it is run",
        )


def describe_bundle(bundle: Bundle) -> str:
    """Return a one-line summary of a bundle: variant, tensors, bytes, recorded devices."""
    about = bundle.metadata
    total = sum(t.nbytes for t in {t.identity: t for t in bundle.weights.values()}.values())
    text = f"{about.variant}: {count('tensor', len(bundle.weights))}, {readable_size(total)}"
    if about.devices:
        text += f", devices {list_counts(about.devices)}"
    return text
