"""Bidirectional and TimeDistributed.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/rnn
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.cells import CELLS, Cell, flatten
from converter.lower.keras.fold_time import fold_steps, mask_as_given, mask_of_steps, unfold_steps
from converter.lower.keras.inner_layers import call_layer
from converter.lower.keras.recurrent import (
    DIRECTIONS,
    Loop,
    Pass,
    as_given,
    batch_first,
    flip,
    layer_parts,
    masks_of_call,
    result,
    run_passes,
    states_of_call,
)
from converter.lower.keras.table import (
    LAYERS,
    Masked,
    Roles,
    Unsupported,
    compute_dtype,
    is_authors,
    keras_layer,
)
from converter.lower.values import Value
from formats.keras.variable_names import Object, variables

# -- Bidirectional -------------------------------------------------------------------------------


@keras_layer("Bidirectional")
def bidirectional(
    op: Builder, w: Roles, x: Value, /, *given: Value,
    layer: Mapping[str, Any], merge_mode: str | None = "concat",
    backward_layer: Mapping[str, Any] | None = None, weights: Any = None,
    mask: Any = None, masked_beside: bool = False, initial_state: Any = None,
    num_constants: int | None = None,
) -> Masked:  # fmt: skip
    """A recurrent layer in both directions, merged by sum, mul, ave or concat, or not merged."""
    del weights  # initial ones
    if backward_layer is None:
        config = layer["config"]
        turned = {**config, "go_backwards": not config.get("go_backwards", False)}
        backward_layer = {**layer, "config": turned}
    w_forth, w_back = _halves(op, w)
    forth, loop = _recurrent(op, w_forth, layer)
    back, loop_back = _recurrent(op, w_back, backward_layer)
    used, kept = masks_of_call(mask, masked_beside=masked_beside)
    x, used = batch_first(x, used, loop)
    initial = states_of_call(given, initial_state, num_constants)
    half = len(initial) // 2
    stateful = [
        Roles(op, f"{w.layer}/{direction}", inner.tensors, w.dtype) if one.stateful else None
        for direction, inner, one in zip(
            DIRECTIONS, (w_forth, w_back), (loop, loop_back), strict=True
        )
    ]
    runs = run_passes(
        op, x, used,
        [
            Pass(forth, initial[:half], loop.go_backwards, stateful[0]),
            Pass(back, initial[half:], loop_back.go_backwards, stateful[1]),
        ],
    )  # fmt: skip
    outputs = [result(op, run, used, of) for run, of in zip(runs, (loop, loop_back), strict=True)]
    if loop.return_sequences:
        # Each layer gives its outputs in the order it made them; then the second is reversed.
        for n, reversed_ in enumerate((loop.go_backwards, not loop_back.go_backwards)):
            outputs[n] = flip(op, outputs[n], 1) if reversed_ else outputs[n]
    merged = _merge(op, outputs, merge_mode)
    if loop.return_sequences:
        merged = [as_given(v, loop) for v in merged]
    states = [s for run in runs for s in run.states] if loop.return_state else []
    after = kept if loop.return_sequences else None
    return Masked([*merged, *states], [after] * len(merged))


def _merge(op: Builder, outputs: list[Value], mode: str | None) -> list[Value]:
    forth, back = outputs
    if mode is None:
        return outputs
    if mode == "concat":
        return [op.concat(outputs, -1)]
    if mode == "mul":
        return [op.mul(forth, back)]
    if mode in ("sum", "ave"):
        both = op.add(forth, back)
        return [both if mode == "sum" else op.mul(both, 0.5)]
    raise Unsupported(f"merge_mode {mode!r}")


def _recurrent(op: Builder, w: Roles, entry: Mapping[str, Any]) -> tuple[Cell, Loop]:
    """Return the cell and the loop of a wrapped layer.

    Raises:
        Unsupported: It is not one of Keras's recurrent layers, or has an argument we do not know.
    """
    name, config = str(entry.get("class_name")).rpartition(">")[2], entry["config"]
    row = LAYERS.get(name)
    authors = is_authors(entry.get("module"))
    if name not in CELLS or row is None or not row.takes_mask or authors:
        raise Unsupported(f"layer class {name} inside it")
    if unknown := row.unknown(config):
        raise Unsupported(f"argument {', '.join(unknown)} of {name} inside it")
    dtype = _one_dtype(w, entry)
    arguments = {k: v for k, v in config.items() if k in row.arguments}
    roles = Roles(op, w.layer, w.tensors, dtype)
    cell, loop = layer_parts(op, roles, CELLS[name], arguments)
    # tf.keras's ConvLSTM never zeroes what is masked, and does not write that it could.
    if "zero_output_for_mask" in config or not name.startswith("ConvLSTM"):
        loop = replace(loop, zero_output_for_mask=loop.return_sequences)
    return cell, loop


def _one_dtype(w: Roles, entry: Mapping[str, Any]) -> str | None:
    """Return the dtype that a wrapper and its layer compute in.

    Raises:
        Unsupported: They differ; which one the outputs are in depends on the wrapper and the Keras.
    """
    dtype = compute_dtype(entry["config"]) or w.dtype
    if w.dtype is not None and dtype != w.dtype:
        raise Unsupported(
            f"computes in {w.dtype}, and {entry.get('class_name')} inside it in {dtype}"
        )
    return dtype


def _halves(op: Builder, w: Roles) -> tuple[Roles, Roles]:
    """Return the weights of the two layers, by their names, or else the first and second half."""
    parts = list(w.parts())
    forth = [p for p in parts if p.startswith("forward_")]
    if len(parts) == 2 and len(forth) == 1:
        (back,) = (p for p in parts if p != forth[0])
        return w.below(forth[0]), w.below(back)
    if len(parts) == 1 and not forth:
        return _halves(op, w.below(parts[0]))  # of a wrapper around this one
    names = list(w.tensors.items())
    half = len(names) // 2
    first, second = dict(names[:half]), dict(names[half:])
    return Roles(op, w.layer, first, w.dtype), Roles(op, w.layer, second, w.dtype)


# -- TimeDistributed -----------------------------------------------------------------------------


@keras_layer("TimeDistributed")
def time_distributed(
    op: Builder, w: Roles, x: Value, /, *more: Value, layer: Mapping[str, Any], mask: Any = None
) -> Masked:  # fmt: skip
    """A layer applied to each timestep; the mask is passed on."""
    _one_dtype(w, layer)
    return _on_steps(op, w, [x, *more], layer, mask, mask_as_given)


@keras_layer("Keras2TimeDistributed")
def keras_2_time_distributed(
    op: Builder, w: Roles, x: Value, /, *more: Value, layer: Mapping[str, Any], mask: Any = None
) -> Masked:  # fmt: skip
    """A layer applied to each timestep; the mask is that of the layer at each timestep."""
    return _on_steps(op, w, [x, *more], layer, mask, mask_of_steps)


def _on_steps(
    op: Builder, w: Roles, tensors: list[Value], layer: Mapping[str, Any], mask: Any,
    mask_after: Callable[..., Value | None],
) -> Masked:  # fmt: skip
    x = tensors[0]
    mask = mask if isinstance(mask, Value | None) else mask[0]
    inner = None if mask is None else fold_steps(op, mask)
    steps = [fold_steps(op, t) for t in tensors]
    made = call_layer(op, _inside(op, w, layer), layer, *steps, mask=inner)
    made = made if isinstance(made, Masked) else Masked(made, None)
    outputs = [unfold_steps(op, v, x) for v in flatten(made.value)]
    return Masked(outputs, mask_after(op, x, mask, made.mask))


def _inside(op: Builder, w: Roles, layer: Mapping[str, Any]) -> Roles:
    """Return the weights of a wrapped layer: those below its name, or the wrapper's own."""
    config = layer["config"]
    name = str(config.get("name"))
    if name in w.parts():
        return w.below(name)
    if w.tensors and all(r.isdigit() or r.startswith(f"{name}_") for r in w.tensors):
        # Keras 1 wrote them in order, and called them "dense_1_W".
        roles = variables(Object(name, str(layer["class_name"]), config), len(w.tensors))
        tensors = dict(zip(roles, w.tensors.values(), strict=False))
        return Roles(op, w.layer, tensors or w.tensors, w.dtype)
    return w
