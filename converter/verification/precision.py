"""Graphs of reduced precision against the same graphs in full precision, both in onnxruntime.

The source is compared with the full one, to the noise of float32; what was lost on purpose is
measured here, and held against what so few bits are expected to lose.
"""

from collections.abc import Sequence
from pathlib import Path

from converter.lower.graph import Graph
from converter.options import Options
from converter.verification.compare import Tolerance
from converter.verification.engine import (
    Pair,
    allowance,
    compare_models,
    lacking_onnxruntime,
    plan_inputs,
)
from converter.verification.inputs import graph_hints
from converter.verification.onnx_values import read_interface
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import GraphReport
from converter.verification.runners import PreparedInputs, RunSkipped, SourceRun, has_onnxruntime
from converter.verification.sources.onnx_file import OnnxSource

DEFAULT = Options()


class _Reduced:
    """A graph of reduced precision, which a CPU may take from another file than a device."""

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
    """Compare two graphs that differ in nothing but their precision.

    Args:
        full: The ONNX file in full precision.
        reduced: The other; its inputs and outputs are of the same names and dtypes.
        graph: The full one, which says what its inputs stand for.
        dtype: The narrow one: what its roundings may lose is allowed (`compare.RELATIVE`).
        on_device: What runs on a device, where CPUs take another file: by default ``reduced``.
        options: Of the conversion: inputs, and the device, if any.

    Returns:
        A report; ``source`` is who ran the full one.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    if not has_onnxruntime():
        return lacking_onnxruntime()
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
    )
    return compare_models(pair, options)
