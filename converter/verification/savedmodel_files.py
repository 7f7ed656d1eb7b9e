"""A SavedModel that was issued again against its source: both run by TensorFlow.

What is compared is what they compute, without devices; and then, where one is asked for, on that
device: the source put there by us, the other as it places itself. Each signature is run, on the
same inputs, each side in a child of its own.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from converter.lower import lower
from converter.lower.graph import Graph
from converter.verification.compare import Tolerance, coarsest
from converter.verification.device.compare import Question, place, verify_on_device
from converter.verification.device.runs import framework_party
from converter.verification.graphs import Options, cannot_run, check_names, unable
from converter.verification.inputs import draw as inputs
from converter.verification.keras_files import compared
from converter.verification.report import GraphReport
from converter.verification.runners import NoRun, prepare
from converter.verification.sources.keras import TensorFlowSource
from converter.verification.sources.tensorflow import Binding, with_encoded
from formats.core.bundle import Bundle, Signature, TensorSpec
from formats.errors import CorruptError, UnsupportedError, UsageError


def verify_savedmodel(
    source: Path,
    bundle: Bundle,
    written: Path,
    rewritten: Bundle,
    *,
    unlike: str = "",
    options: Options | None = None,
) -> Mapping[str, GraphReport]:
    """Compare a SavedModel with its source, signature by signature.

    Args:
        source: The artifact.
        bundle: As read from it.
        written: The folder of the other.
        rewritten: As read from that.
        unlike: Why the source itself computes something else on one device, where it does.
        options: Tolerances and inputs.

    Returns:
        A report for each signature with outputs; or one, under no name, of why there is none.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
        UsageError: The user's inputs, tolerances or signature are not this model's.
    """
    options = options or Options()
    if unlike:
        return {"": GraphReport("not run", unlike)}
    reports: dict[str, GraphReport] = {}
    known = [s.name for s in bundle.signatures]
    if options.signature not in (None, *known):
        raise UsageError(f"there is no signature {options.signature!r}", expected=", ".join(known))
    for signature in bundle.signatures:
        if not signature.outputs or options.signature not in (None, signature.name):
            continue
        begin = perf_counter()
        report = cannot_run(bundle, options, needs_onnx=False)
        if report is None:
            report = _compared(source, bundle, written, rewritten, signature, options)
        reports[signature.name] = replace(report, seconds=perf_counter() - begin)
    return reports


def _compared(
    source: Path,
    bundle: Bundle,
    written: Path,
    rewritten: Bundle,
    signature: Signature,
    options: Options,
) -> GraphReport:
    specs = list(signature.inputs)
    strange = [s.name for s in (*specs, *signature.outputs) if "(" in s.dtype]
    if strange:
        return GraphReport("not run", f"{strange[0]!r} of {signature.name!r} is no plain tensor")
    names = [spec.name for spec in signature.outputs]
    check_names(options, names)
    binding = Binding(
        signature.name,
        tuple(spec.name for spec in specs),
        tuple(names),
        (f"signature {signature.name!r}",),
    )
    graph = _lowered(bundle, signature.name)
    if graph is not None and graph.encoded:
        # Bytes that hold something are made of what they decode to.
        specs = [_spec(graph, name) for name in graph.inputs]
        binding = with_encoded(binding, graph, binding.feeds)
    on = place(options.device, allow_tf32=options.allow_tf32)
    sides = [
        TensorFlowSource(source, bundle, options.allowance, binding, graph),
        # On a device it must be by itself: as what was written for it says.
        TensorFlowSource(written, rewritten, options.allowance, binding, graph, as_placed=True),
    ]
    precision = coarsest({s.dtype for s in graph.specs.values()}) if graph else "float32"
    tolerance = Tolerance(options.atol, options.rtol, precision)
    known = sides[0].hints()
    found = [known.get(spec.name, inputs.Hint()) for spec in specs]
    plan = (
        inputs.from_file(options.inputs, specs)
        if options.inputs is not None
        else inputs.plan(specs, found, seed=options.seed, samples=max(options.samples, 1))
    )
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        folders = Path(name, "source"), Path(name, "written")
        for folder in folders:
            folder.mkdir()
        before, after = (prepare(folder, specs, plan) for folder in folders)
        there = sides[0].run(before)
        if isinstance(there, NoRun):
            return unable(there, "TensorFlow")
        if there.unstable:
            text = f"the source differs from run to run ({', '.join(there.random)})"
            return GraphReport("not run", text)
        # What the source took of alternatives, the other must take as well.
        after = replace(after, groups=tuple((number,) for number in there.chosen))
        here = sides[1].run(after)
        if isinstance(here, NoRun):
            return GraphReport("failed", f"TensorFlow does not run the output: {here.reason}")
        chosen = [number for number in there.chosen if number in here.chosen]
        report = compared(
            before, after, there, here, chosen, specs, names, tolerance, who="TensorFlow"
        )
        if report.status == "passed" and on is not None:
            cases = {number: before.cases[number].name for number in chosen}
            alike = Question(names, cases, tolerance, options.allow_cpu_nodes)
            asked = framework_party(before, there, lambda p, on: sides[0].run(p, on=on))
            answer = framework_party(after, here, lambda p, on: sides[1].run(p, on=on))
            report = report.with_device(verify_on_device(asked, answer, alike, on))
    seed = None if options.inputs else options.seed
    return replace(report, seed=seed, notes=tuple(sides[0].notes(there)))


def _spec(graph: Graph, name: str) -> TensorSpec:
    """Return an input of a graph as a signature would have it."""
    spec = graph.specs[name]
    sizes = tuple(f"{name}/{i}" if n is None else n for i, n in enumerate(spec.shape))
    return TensorSpec(name, spec.dtype, None if spec.unranked else sizes)


def _lowered(bundle: Bundle, signature: str) -> Graph | None:
    """Return the signature's graph, which says what its inputs stand for."""
    try:
        return lower(bundle, signature=signature)
    except (CorruptError, UnsupportedError):
        return None
