"""Torch's programs into a graph, without torch: which front end reads which kind."""

from collections.abc import Sequence

from converter.lower.graph import Graph
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import UnsupportedError


def lower(
    bundle: Bundle, *, opset: int, inputs: Sequence[TensorSpec] = (), state: str = "drop"
) -> Graph:
    """Return the graph of a torch program.

    Args:
        bundle: Its topology is of kind ``exported_program``, ``torchscript`` or ``torch_modules``.
        opset: Version of ONNX's operators.
        inputs: Inputs that the user declares, for programs that do not record them.
        state: ``io`` to make inputs and outputs of the state that the program assigns.

    Raises:
        UnsupportedError: It needs what we do not do; all of it is named.
        CorruptError: It is damaged.
        UsageError: Inputs are needed, or contradict what the program says.
    """
    kind = bundle.topology.kind if bundle.topology is not None else "none"
    if kind == "exported_program":
        from converter.lower.torch.exported import lower_exported

        return lower_exported(bundle, opset=opset, inputs=inputs, state=state)
    if kind == "torchscript":
        from converter.lower.torch.script.lowering import lower_script

        return lower_script(bundle, opset=opset, inputs=inputs, state=state)
    if kind == "torch_modules":
        from converter.lower.torch.modules import lower_modules

        return lower_modules(bundle, opset=opset, inputs=inputs)
    raise UnsupportedError(f"not supported: graphs of kind {kind}")
