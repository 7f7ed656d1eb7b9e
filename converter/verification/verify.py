"""Compare a converted artifact with its source: weights bit by bit, graphs by running both.

Weights are compared if the converted artifact keeps them under the source's names, or under those
of the target ``keras``. A graph, a `.keras` file, a SavedModel or a torch program is run, and so is
the source. If a device is requested, both are run there too, and their placement is checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from converter.capture.generation import PARTS
from converter.child.process import reuse_children
from converter.devices.names import parse_device
from converter.normalise.groups import select_groups
from converter.normalise.prefixes import strip_prefixes
from converter.normalise.quantized.schemes import find_floats
from converter.options import LEVELS, Options, check
from converter.reading import change_weights, is_changed, is_quantized, read
from converter.tensor_diff import diff
from converter.verification.graphs import verify_graph
from converter.verification.initializers import compare_initializers
from converter.verification.onnx_values import read_interface
from converter.verification.outputs import compare_program
from converter.verification.rebuilt_programs import verify_rebuilt
from converter.verification.report import GraphReport
from converter.verification.result import Verification, Weights, merge_weights
from converter.verification.sources.tensorflow import signatures_of
from converter.write.hugging_face import changed_folder
from converter.write.keras import archive
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import UnsupportedError, UsageError
from formats.onnx import triton

GRAPH, MANIFEST = "model.onnx", "manifest.json"
KEEPS_NAMES = ("portable", "safetensors")  # formats that hold the source's tensors as they are
OF_TORCH = ("torchscript", "torch-export")
LIKE_THE_SOURCE = ("torch", *OF_TORCH)  # formats that do so if the source has the same format
DEFAULT = Options()


def verify(source: Path, converted: Path, *, options: Options = DEFAULT) -> Verification:
    """Compare a converted artifact with its source.

    Args:
        source: The source.
        converted: An ONNX or `.keras` file, or any other output of the conversion.
        options: Tolerances and inputs of the comparison, ``checkpoint``, ``signatures`` (at most
            one), ``device``, ``require``, trusted modules and inputs.

    Returns:
        What was compared, and the level reached. Graphs are named by their files.

    Raises:
        SourceError: One of the two artifacts is unreadable.
        UsageError: The options do not apply to these artifacts.
        DependencyError: A child died, hung, or took too much memory.
    """
    check(options)
    if options.device is not None:
        options = replace(options, verify="device")
    is_host = options.device in (None, "none") or parse_device(str(options.device)).is_host
    if options.require == "device" and is_host:
        raise UsageError(
            "require='device' without a device", expected="device= with cuda:0, GPU:0, …"
        )
    bundle = read(source, checkpoint=options.checkpoint, limits=options.limits)
    bundle = change_weights(bundle, options)
    files = _graph_files(converted)
    if converted.is_dir() and files and not (converted / MANIFEST).exists():
        form = "onnx"  # one file for each signature, or models of Triton
    else:
        form = catalog.detect(Artifact(converted, options.limits)).format.id
    is_float = is_changed(bundle, options)
    if files and form == "onnx" and is_quantized(bundle):
        bundle, is_float = find_floats(bundle)[0], True
    if files and form == "onnx":
        weights = _compare_initializers(bundle, files, options)
    else:
        weights = _compare_weights(bundle, converted, form, options)
    with reuse_children(), ExitStack() as kept:
        if is_float:
            folder = changed_folder(bundle, Artifact(source, options.limits))
            source = kept.enter_context(folder).path
        graphs = _compare_graphs(source, bundle, converted, form, files, options)
    return Verification(weights, graphs)


def exit_code(found: Verification, require: str | None) -> int:
    """Return the exit code of a verification: 0, 1 if it failed, 7 if something is missing.

    Args:
        found: The verification.
        require: The required level, or None.
    """
    if found.failed:
        return 1
    if require is not None and LEVELS.index(found.level) < LEVELS.index(require):
        has_no_device = any(report.device is not None for report in found.reports)
        return 7 if require == "device" and has_no_device else 1
    is_failing = any(report.is_failing for report in found.reports)
    if require is not None or (found.level not in ("none", "smoke") and not is_failing):
        return 0
    return 7 if is_failing or any(report.lacking for report in found.reports) else 1


def _graph_files(converted: Path) -> list[Path]:
    """Return the ONNX files of an artifact, the default one first."""
    if served := triton.find_model(Artifact(converted)):
        return [converted / served]
    if converted.is_dir():
        found = sorted(converted.glob("model*.onnx"), key=lambda p: (p.name != GRAPH, p.name))
        parts = [converted / f"{part}.onnx" for part in PARTS]
        if (converted / GRAPH).is_file():
            return found
        parts = [p for p in parts if p.is_file()] or sorted(converted.glob(f"*/{GRAPH}"))
        return parts or list(_served_files(converted))
    return [converted] if converted.suffix == ".onnx" else []


def _served_files(repository: Path) -> Iterator[Path]:
    """Yield the ONNX files that Triton serves of a repository, the default signature's first."""
    for folder in sorted(path for path in repository.iterdir() if path.is_dir()):
        if served := triton.find_model(Artifact(folder)):
            yield folder / served


def _compare_initializers(
    bundle: Bundle, files: Sequence[Path], options: Options
) -> Weights | None:
    """Compare the weights inside ONNX files, each with those of the signature that fits best."""
    wanted = next(iter(options.signatures), None)
    has_several = len(bundle.signatures) > 1 and _kind(bundle) == "graphdef"
    found = []
    for file in (read_interface(path, options.limits) for path in files):
        likely = signatures_of(bundle, file, wanted) if has_several else [wanted]
        inputs = tuple(options.inputs)
        compared = [compare_initializers(bundle, file, signature, inputs) for signature in likely]
        known = [one for one in compared if one is not None]
        found.append(max(known, key=lambda w: (not w.different, w.tensors), default=None))
    return merge_weights(found)


def _compare_weights(
    bundle: Bundle, converted: Path, format: str, options: Options
) -> Weights | None:
    """Compare the weights if the converted artifact keeps them under the source's names."""
    if format == "keras":
        return _compare_variables(bundle, converted, options)
    is_alike = format in LIKE_THE_SOURCE and format == bundle.metadata.format
    if not bundle.weights or not (format in KEEPS_NAMES or is_alike):
        return None
    artifact = Artifact(converted, options.limits)
    written = catalog.read(artifact, format)
    catalog.check_expansion(written, artifact)
    found = diff(bundle, written)
    wrong = tuple(f"{d.a} ({d.kind})" for d in found if d.kind in ("changed", "only in A"))
    return Weights(sum(d.kind in ("equal", "renamed") for d in found), different=wrong)


def _compare_variables(bundle: Bundle, converted: Path, options: Options) -> Weights | None:
    """Compare a `.keras` file's variables with those that we would write for the source."""
    try:
        model = strip_prefixes(select_groups(bundle, ()), "auto")
        wanted = archive.plan_file(model, options.trust).variables
    except UnsupportedError:
        return None  # not written by us: its variables have other paths
    found = archive.read_again(converted)
    if not wanted or not any(path in found for path in wanted):
        return None
    wrong = [f"{path} (only in A)" for path in wanted if path not in found]
    equal = 0
    for path in (path for path in wanted if path in found):
        a, b = wanted[path], found[path]
        if (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes():
            equal += 1
        else:
            wrong.append(f"{path} (changed)")
    return Weights(equal, different=tuple(wrong))


def _compare_graphs(
    source: Path,
    bundle: Bundle,
    converted: Path,
    format: str,
    files: Sequence[Path],
    options: Options,
) -> Mapping[str, GraphReport]:
    """Return a report for each graph of a converted artifact, by file name."""
    signature = next(iter(options.signatures), None)
    if files:
        top = converted if converted.is_dir() else converted.parent
        return {
            str(file.relative_to(top)): verify_graph(
                source, bundle, file, options=options, signature=signature
            )
            for file in files
        }
    if format not in ("keras", "savedmodel", *OF_TORCH):
        return {}
    if format == "torch-export" != bundle.metadata.format:
        options = replace(options, device=_named_device(converted, format, options))
        return {converted.name: verify_rebuilt(source, bundle, converted, options=options)}
    if format in OF_TORCH and format != bundle.metadata.format:
        reason = f"{converted.name} is {format}, and is compared with a source of the same format"
        return {converted.name: GraphReport("not run", reason)}
    if format in OF_TORCH:
        options = replace(options, device=_named_device(converted, format, options))
    if format == "savedmodel" and _kind(bundle) != "graphdef":
        reason = "a SavedModel is compared with what TensorFlow runs, and the source is none"
        return {converted.name: GraphReport("not run", reason)}
    found = compare_program(source, bundle, converted, format, options, signature=signature)
    return {name or converted.name: report for name, report in found.items()}


def _kind(bundle: Bundle) -> str:
    """Return the kind of a source's topology, or ""."""
    return bundle.topology.kind if bundle.topology is not None else ""


def _named_device(converted: Path, format: str, options: Options) -> str:
    """Return the device of a torch program: the requested one, or the one that it names."""
    if options.device not in (None, "none"):
        return parse_device(str(options.device)).torch
    recorded = catalog.read(Artifact(converted, options.limits), format).metadata.devices
    return next((name for name in recorded if name != "cpu"), "cpu")
