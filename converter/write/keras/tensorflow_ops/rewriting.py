"""Replace TensorFlow functions and ops among layers by operations of Keras 3.

One call becomes one operation of keras.ops or a few. The last keeps the call's name, so that all
references to it stay valid. What Keras 3 computes differently, in another dtype or not at all is
unsupported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature

from converter.child.trust import Trusted
from converter.lower.graph import Dim
from converter.lower.keras.lowering import input_spec, lower
from converter.lower.keras.model import Layer, Model, Reference, references
from converter.lower.keras.table import TF_FUNCTIONS, TF_OPS, Unsupported, table_of
from converter.lower.keras.version_upgrades_of_operations import is_type
from converter.lower.keras.weight_mapping import Path, layers_of
from converter.lower.values import inverse
from converter.write.keras.tensorflow_ops import nodes
from converter.write.keras.tensorflow_ops.builder import (
    FUNCTIONS,
    NODES,
    KerasOps,
    Known,
)
from formats.core.bundle import Bundle
from formats.errors import CorruptError, UnsupportedError

TABLES = (nodes,)  # imported for the translators that it registers


def replace_tensorflow_calls(
    model: Model, bundle: Bundle, trust: Sequence[Trusted] = ()
) -> tuple[Model, dict[Path, str]]:
    """Return a model with TensorFlow calls replaced, and why some of them are not.

    A model without such calls is returned as it is. Another one is lowered, to know its dtypes.

    Returns:
        The model, and the reason for each layer that is left, by its path.
    """
    if not _has_tensorflow(model):
        return model, {}
    try:
        graph = lower(bundle, trust=trust)
    except (CorruptError, UnsupportedError) as e:
        reason = f"whose dtypes are not known, as the model is not lowered: {e.found:.120}"
        return model, {p: reason for p, layer in layers_of(model) if _is_tensorflow(layer)}
    known: dict[tuple[str, int], Known] = {}
    for trace in graph.traces:
        spec = graph.specs[trace.value]
        shape = [spec.shape[axis] for axis in inverse(trace.stored)]
        known.setdefault((trace.layer, trace.output), Known(spec.dtype, _sizes(shape)))
    reasons: dict[Path, str] = {}
    return _replace_calls(model, (), known, reasons), reasons


def _sizes(shape: Sequence[Dim]) -> tuple[int | None, ...]:
    return tuple(n if isinstance(n, int) else None for n in shape)


def _is_tensorflow(layer: Layer) -> bool:
    table = table_of(layer.module)
    return table is TF_FUNCTIONS or table is TF_OPS


def _has_tensorflow(model: Model) -> bool:
    return any(
        _is_tensorflow(layer) or (layer.model is not None and _has_tensorflow(layer.model))
        for layer in model.layers.values()
    )


def _replace_calls(
    model: Model, path: Path, known: Mapping[tuple[str, int], Known], reasons: dict[Path, str]
) -> Model:
    layers: dict[str, Layer] = {}
    for name, layer in model.layers.items():
        own = (*path, name)
        if layer.model is not None:
            layers[name] = replace(layer, model=_replace_calls(layer.model, own, known, reasons))
        elif not _is_tensorflow(layer):
            layers[name] = layer
        else:
            try:
                replacement = _translate(model, layer, path, known)
            except Unsupported as gap:
                reasons[own] = str(gap)
                replacement = [layer]
            except (TypeError, ValueError, KeyError, IndexError, AttributeError) as e:
                reasons[own] = f"arguments that do not go together, {e!r:.80},"
                replacement = [layer]
            layers |= {step.name: step for step in replacement}
    return replace(model, layers=layers)


def _translate(
    model: Model, layer: Layer, path: Path, known: Mapping[tuple[str, int], Known]
) -> list[Layer]:
    if len(layer.calls) != 1:
        raise Unsupported("several calls of one function")
    (call,) = layer.calls
    inputs: dict[Reference, Known] = {}
    for reference in references([call.arguments, dict(call.keywords)]):
        source = model.layers[reference.layer]
        if source.class_name == "InputLayer":
            shape, dtype = input_spec(source)
            inputs[reference] = Known(dtype, _sizes(shape))
        elif (
            found := known.get(("/".join((*path, reference.layer)), reference.tensor))
        ) is not None:
            inputs[reference] = found
    is_node = table_of(layer.module) is TF_OPS
    translator = (NODES if is_node else FUNCTIONS).get(layer.class_name)
    if translator is None:
        raise Unsupported("which Keras 3 has no operation for")
    keywords = {key: part for key, part in call.keywords.items() if key != "name"}
    form = signature(translator)
    if is_node:
        taken = form.parameters
        keywords |= {k: v for k, v in layer.config.items() if k in taken or not is_type(k)}
    builder = KerasOps(layer.name, inputs, model.layers)
    try:
        form.bind(builder, *call.arguments, **keywords)
    except TypeError as e:
        raise Unsupported(f"an argument that is not known ({e})") from e
    return builder.finish(translator(builder, *call.arguments, **keywords))
