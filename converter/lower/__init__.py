"""Lowering: convert a bundle's description of its computation to an ONNX graph."""

from typing import TYPE_CHECKING

from converter.lower.unsupported import MISFITS
from converter.opsets import OPSET
from formats.core.bundle import Bundle
from formats.errors import CorruptError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from converter.child.trust import Trusted
    from converter.lower.graph import Graph
    from formats.core.bundle import TensorSpec

KINDS = (
    "keras_config", "graphdef", "onnx", "torchscript", "exported_program", "torch_modules",
)  # fmt: skip


def lower(
    bundle: Bundle,
    opset: int | None = None,
    trust: "Sequence[Trusted]" = (),
    signature: str | None = None,
    inputs: "Sequence[TensorSpec]" = (),
    state: str = "drop",
) -> "Graph":
    """Return the graph that a bundle's topology describes; its weights stay in the bundle.

    Args:
        bundle: The model.
        opset: Version of ONNX's operators; None for the default, or that of an ONNX file.
        trust: Trusted modules, whose code may supply layers that are not supported otherwise.
        signature: Name of a TensorFlow signature; None for the default one.
        inputs: Input specs of a torch program that does not record them.
        state: ``io`` to make inputs and outputs of the state that the source keeps between runs;
            ``drop`` to leave its assignments out.

    Raises:
        UnsupportedError: The topology is of another kind, or contains operations that are not
            supported; the message lists all of them.
        CorruptError: The topology is damaged.
        UsageError: A trusted module fails, or supplies no valid layer.
        DependencyError: A child process that ran a trusted module died or hung.
    """
    if bundle.topology is None:
        hint = "Convert the weights alone: to='safetensors'"
        if bundle.metadata.framework == "torch":
            hint = f"Name what builds the module: arch='package.module:factory'. {hint}"
        raise UnsupportedError("the source holds weights only, and no graph", hint=hint)
    if bundle.topology.kind not in KINDS:
        raise UnsupportedError(f"graphs of the kind {bundle.topology.kind} are not supported")
    usual = opset or OPSET
    try:
        if bundle.topology.kind == "graphdef":
            from converter.lower.tf.lowering import lower as lower_tf

            return lower_tf(bundle, opset=usual, signature=signature, state=state)
        if bundle.topology.kind == "keras_config":
            from converter.lower.keras.lowering import lower as lower_keras

            return lower_keras(bundle, opset=usual, trust=trust, state=state)
        if bundle.topology.kind == "onnx":
            from converter.lower.onnx.lowering import lower as lower_onnx

            return lower_onnx(bundle, opset=opset)
        from converter.lower.torch.lowering import lower as lower_torch

        return lower_torch(bundle, opset=usual, inputs=inputs, state=state)
    except MISFITS as e:
        raise CorruptError(
            f"the model's parts do not go together ({type(e).__name__}: {e!s:.200})",
            where=bundle.topology.kind,
            hint="If its framework runs the model, this is a bug of convert: please report it",
        ) from e
