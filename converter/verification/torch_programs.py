"""Compare torch programs moved to another device with their sources; torch runs both.

On the CPU both run as they are where they name no other device, else moved there. On the device,
where it is here, the output runs as it is, and the source moved there.
"""

from dataclasses import replace
from pathlib import Path

from converter.devices.names import parse_torch_device
from converter.options import Options
from converter.verification.compare import Tolerance, coarsest_dtype
from converter.verification.engine import allowance, compare_models, plan_inputs
from converter.verification.inputs import graph_hints
from converter.verification.noise_graph import lower_quietly, write_noise_graph
from converter.verification.obstacles import find_obstacle
from converter.verification.pair import Pair
from converter.verification.report import GraphReport
from converter.verification.sources.torch import (
    RunInTorch,
    Torch,
    fixed_arguments,
    list_named_devices,
    topology_kind,
)
from formats.artifact import Artifact
from formats.core.bundle import Bundle, TensorSpec
from formats.core.weights import DTYPES
from formats.torch import script as torch_script

DEFAULT = Options()


def verify_program(
    source: Path, bundle: Bundle, written: Path, *, options: Options = DEFAULT
) -> GraphReport:
    """Compare a TorchScript or exported program with the same program on another device.

    Args:
        source: The source's archive.
        bundle: As read from the source.
        written: The output.
        options: Of the conversion; ``device`` is the one that the output is for, in torch's words.

    Returns:
        A report; ``failed`` where outputs differ, or torch does not run the output.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
        UsageError: The user's inputs are not this program's.
    """
    if bundle.metadata.format == "torch-export" and len(bundle.signatures) != 1:
        return GraphReport("not run", "several programs in one archive are not run yet")
    if obstacle := find_obstacle(bundle, options, needs_onnx=False):
        return obstacle
    fixed = fixed_arguments(options.inputs)
    specs = tuple(spec for spec in options.inputs if spec.name not in fixed)
    specs = specs or _recorded_inputs(source, bundle, options)
    unknown = [s.name for s in specs if s.shape is None or s.dtype not in DTYPES]
    if not specs or unknown:
        return GraphReport(
            "not run",
            f"the program does not record its inputs ({', '.join(unknown) or 'none'}): "
            "inputs=['NAME:DTYPE:SIZES'] declares them",
        )
    device = parse_torch_device(options.device)
    precision = coarsest_dtype({t.dtype.name for t in bundle.weights.values()})
    graph = lower_quietly(bundle, inputs=options.inputs or specs)
    hints = {} if graph is None else graph_hints.find_hints(graph)  # torch decides what it accepts
    outputs = bundle.signatures[0].outputs if bundle.signatures else ()
    moved = [] if device.kind == "cpu" else ["on the CPU, the output was run moved back there"]
    allowed = allowance(options)
    asked = Torch(
        source, topology_kind(bundle, None), tuple(spec.dtype for spec in specs), options.trust,
        fixed=fixed,
    )  # fmt: skip
    pair = Pair(
        reference=RunInTorch(replace(asked, devices=list_named_devices(bundle)), allowed),
        candidate=RunInTorch(
            replace(asked, path=written, devices=frozenset({str(device)})), allowed
        ),
        framework="torch",
        runtime="torch",
        specs=specs,
        outputs=[spec.name for spec in outputs],
        plan=plan_inputs(specs, hints, options, is_varied=True),
        tolerance=Tolerance(options.comparison.atol, options.comparison.rtol, precision),
        allowance=allowed,
        notes=lambda there, _: [*there.notes, *moved],
        noise_graph=lambda folder: write_noise_graph(graph, bundle, folder),
        has_more_outputs=True,
    )
    return compare_models(pair, options)


def _recorded_inputs(source: Path, bundle: Bundle, options: Options) -> tuple[TensorSpec, ...]:
    """Return what is recorded of the inputs: of a trace, names, types and sizes of its example."""
    if bundle.metadata.format == "torch-export":
        return bundle.signatures[0].inputs
    declared = next((s.inputs for s in bundle.signatures if s.name == "forward"), ())
    traced = torch_script.list_traced_inputs(Artifact(source, options.limits))
    if len(traced) != len(declared):
        return declared
    pairs = zip(declared, traced, strict=True)
    return tuple(TensorSpec(spec.name, dtype, shape) for spec, (dtype, shape) in pairs)
