"""Compare graphs of reduced precision with their full-precision versions, both in onnxruntime.

The source is compared with the full-precision graph, to the noise of float32. The loss due to the
reduction is measured here, and compared with the expected rounding errors of the narrow dtype.
"""

from collections.abc import Sequence
from pathlib import Path

from converter.lower.graph import Graph
from converter.options import Options
from converter.verification.compare import Tolerance
from converter.verification.engine import allowance, compare_models, plan_inputs
from converter.verification.inputs import graph_hints
from converter.verification.obstacles import report_missing_onnxruntime
from converter.verification.onnx_values import read_interface
from converter.verification.pair import Pair
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import GraphReport
from converter.verification.runners import PreparedInputs, RunSkipped, SourceRun, has_onnxruntime
from converter.verification.sources.onnx_file import OnnxSource

DEFAULT = Options()
# Units in the last place of a narrow dtype, in those of float32.
UNITS = {"float16": 2.0**13, "bfloat16": 2.0**16}


class _Reduced:
    """A graph of reduced precision; CPU and device may use different files."""

    def __init__(self, on_cpu: OnnxSource, on_device: OnnxSource) -> None:
        self._on_cpu, self._on_device = on_cpu, on_device

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it in onnxruntime."""
        side = self._on_cpu if on.device is None else self._on_device
        return side.run(prepared, layers, on)


def verify_precision(
    full: Path,
    reduced: Path,
    graph: Graph,
    dtype: str,
    *,
    on_device: Path | None = None,
    options: Options = DEFAULT,
) -> GraphReport:
    """Compare two graphs that differ only in their precision.

    Args:
        full: The ONNX file in full precision.
        reduced: The other file; its inputs and outputs have the same names and dtypes.
        graph: The full-precision graph, which describes its inputs.
        dtype: The narrow dtype, which sets the tolerance (`compare.RELATIVE`).
        on_device: The file to run on a device, if CPUs need another one; default: ``reduced``.
        options: Options of the conversion: inputs, and the device, if any.

    Returns:
        A report; ``source`` is the runtime of the full-precision graph.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    if not has_onnxruntime():
        return report_missing_onnxruntime()
    file = read_interface(full, options.limits)

    def model(path: Path) -> OnnxSource:
        return OnnxSource(path, file, allowance(options), graph)

    pair = Pair(
        reference=model(full),
        candidate=_Reduced(model(reduced), model(on_device or reduced)),
        framework="onnxruntime",
        runtime=f"onnxruntime in {dtype}",
        specs=file.inputs,
        outputs=[spec.name for spec in file.outputs],
        plan=plan_inputs(file.inputs, graph_hints.find_hints(graph), options, is_varied=True),
        tolerance=Tolerance(precision=dtype),
        allowance=allowance(options),
        noise_graph=lambda _: (full, file),
        noise_scale=UNITS[dtype],
    )
    return compare_models(pair, options)
