"""Recurrent cells: one step of a recurrence, with the weights of a layer.

Keras concatenates the gates of a cell along the last axis of its weights: i, f, c, o of an
LSTM, and z, r, h of a GRU.
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/rnn
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import accumulate
from typing import Any, TypeAlias

from converter.lower.builder import END, Builder
from converter.lower.graph import Attribute
from converter.lower.keras.activations import activate
from converter.lower.keras.table import (
    LAYERS,
    Roles,
    Unsupported,
    is_authors,
    keras_layer,
)
from converter.lower.ops.recurrent import (
    Weights,
    gru_step,
    lstm_step,
    reorder_gates,
    static,
)
from converter.lower.values import Value

Make: TypeAlias = "Callable[..., Cell]"

CELLS: dict[str, Make] = {}  # class of a cell or a layer -> function that makes the cell


@dataclass(frozen=True, slots=True)
class Native:
    """A cell as ONNX's own LSTM, GRU and RNN take it.

    Attributes:
        op_type: Which of them.
        weights: Weights of one direction.
        activations: Name, alpha and beta of each.
        attributes: Further ones of the operator.
    """

    op_type: str
    weights: Weights
    activations: "tuple[Gate, ...]"
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of a recurrence.

    Attributes:
        project: The part of a step that needs no state, for one step or for all along axis 1.
        step: Function of a projected step and the states that returns the new states and further
            outputs.
        zeros: The initial states, for one projected step or all.
        count: Number of states.
        result: Index of the output among the results of a step.
        native: The same for ONNX's own operator, where there is one.
    """

    project: Callable[[Value], Value]
    step: Callable[[Value, list[Value]], list[Value]]
    zeros: Callable[[Value], list[Value]]
    count: int
    result: int = 0
    native: Native | None = None


def cell_layer(*class_names: str) -> Callable[[Make], Make]:
    """Enter cells, for recurrent layers and for models that call them."""

    def enter(make: Make) -> Make:
        for name in class_names:
            CELLS[name] = make
        keras_layer(*class_names)(_one_step(make))
        return make

    return enter


def _one_step(make: Make) -> Callable[..., list[Value]]:
    """Return the handler of a cell that is called as a layer; it returns the output and states."""

    @wraps(make)
    def handler(
        op: Builder, w: Roles, x: Value, /, *given: Value, states: Any = None, **arguments: Any
    ) -> list[Value]:
        cell = make(op, w, **arguments)
        before = [*given, *flatten(states)]
        after = cell.step(cell.project(x), before)
        return [after[cell.result], *after[: cell.count]]

    states = Parameter("states", Parameter.KEYWORD_ONLY, default=None)
    handler.__dict__["__signature__"] = Signature([*keywords(make), states])
    return handler


def keywords(function: Callable[..., Any]) -> list[Parameter]:
    """Return the keyword-only parameters of a function."""
    found = signature(function).parameters.values()
    return [p for p in found if p.kind is Parameter.KEYWORD_ONLY]


def flatten(values: Any) -> list[Value]:
    """Return the tensors in lists at any depth."""
    if values is None:
        return []
    if isinstance(values, Value):
        return [values]
    return [v for part in values for v in flatten(part)]


def cell_of(op: Builder, w: Roles, entry: Mapping[str, Any]) -> Cell:
    """Return the cell that a configuration holds in its serialised form.

    Raises:
        Unsupported: It is not a cell of Keras, or has an unknown argument.
    """
    name = str(entry.get("class_name")).rpartition(">")[2]
    config = entry.get("config")
    if op.supplies is not None:
        found = op.supplies.cell(op, w, entry)
        if isinstance(found, Cell):
            return found
    own = name in CELLS and not is_authors(entry.get("module"))
    if not own or not isinstance(config, Mapping):
        raise Unsupported(f"cell {name}")
    row = LAYERS[name]
    if unknown := row.unknown(config):
        raise Unsupported(f"argument {', '.join(unknown)} of {name} inside it")
    return CELLS[name](op, w, **{k: v for k, v in config.items() if k in row.arguments})


# -- weights -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gates:
    """The weights of a cell, as Keras 2 and later keep them.

    Attributes:
        kernel: [features, gates * units].
        recurrent: [units, gates * units].
        bias: [gates * units], or [2, gates * units] for the input's and the state's product.
    """

    kernel: Value
    recurrent: Value
    bias: Value | None


def gates(
    op: Builder, w: Roles, units: int, keras_1: Sequence[int], *, use_bias: bool,
    today: Callable[[Value], Value] = lambda matrix: matrix,
) -> Gates:  # fmt: skip
    """Return the weights of a cell from any version of Keras.

    Args:
        op: Builder.
        w: Weights: by name, or by order where they are Keras 1's: W, U, b of all gates, or of
            each gate in turn.
        units: Size of a gate.
        keras_1: For each gate, its index among those of Keras 1.
        use_bias: Whether there is a bias.
        today: Function of a stored matrix that returns it with the axes of current Keras.
    """
    count = len(keras_1)
    if "kernel" in w:
        bias = w["bias"] if use_bias else None
        stored = Gates(today(w["kernel"]), today(w["recurrent_kernel"]), bias)
        return _from_cudnn(op, stored, units, count)
    names = list(w.tensors)
    if len(names) == 3 * count and count > 1:
        parts = [[w[names[3 * place + i]] for place in keras_1] for i in range(3)]
        matrices = [op.concat([today(matrix) for matrix in part], -1) for part in parts[:2]]
        return Gates(matrices[0], matrices[1], op.concat(parts[2], -1))
    if len(names) == 2 + use_bias and not any("/" in name for name in names):
        kernel, recurrent = (today(w[name]) for name in names[:2])
        stored = Gates(kernel, recurrent, w[names[2]] if use_bias else None)
        return _from_cudnn(op, stored, units, count)
    have = ", ".join(w.tensors) or "none"
    raise Unsupported(f"has no weights of a recurrent cell (it has {have})")


def _from_cudnn(op: Builder, gates: Gates, units: int, count: int) -> Gates:
    """Return weights in the layout of Keras; a bias of twice the size tells those of cuDNN.

    cuDNN's matrices are [units, features] for each gate, under the shape [features, units].
    Spec: _convert_rnn_weights in tf_keras/src/saving/legacy/hdf5_format.py
    """
    features = gates.kernel.shape[0]
    if count == 1 or gates.bias is None or gates.bias.shape != (2 * count * units,):
        return gates
    cut = op.transpose(op.reshape(gates.kernel, (features, count, units)), (1, 0, 2))
    turned = op.transpose(op.reshape(cut, (count, units, features)), (2, 0, 1))
    kernel = op.reshape(turned, (features, count * units))
    cut = op.transpose(op.reshape(gates.recurrent, (units, count, units)), (2, 1, 0))
    recurrent = op.reshape(cut, (units, count * units))
    return Gates(kernel, recurrent, op.reshape(gates.bias, (2, count * units)))


def _native(
    op: Builder, op_type: str, gates: Gates, order: str, activations: Sequence[Any],
    **attributes: Attribute,
) -> Native | None:  # fmt: skip
    """Return a cell as ONNX's own operator takes it, or None where it cannot."""
    if op.supplies is not None and any(map(op.supplies.has_activation, activations)):
        return None
    known = [gate_activation(spec) for spec in activations]
    found = tuple(gate for gate in known if gate is not None)
    if len(found) < len(known):
        return None
    kernel, recurrent = (
        reorder_gates(op, op.transpose(matrix, (1, 0)), 0, op_type, order)
        for matrix in (gates.kernel, gates.recurrent)
    )
    bias = gates.bias
    if bias is not None:
        width = bias.shape[-1]
        bias = reorder_gates(op, bias, -1, op_type, order)
        if bias.rank == 1:  # of the input's product alone
            bias = op.concat([bias, op.constant([0] * static(width), bias.dtype)], 0)
        else:
            bias = op.reshape(bias, (2 * static(width),))
    return Native(op_type, Weights(kernel, recurrent, bias), found, attributes)


# -- activations ---------------------------------------------------------------------------------

Gate: TypeAlias = tuple[str, float | None, float | None]

# fmt: off
# Keras's name -> ONNX's, alpha, beta. Any other activation needs a Scan.
ACTIVATIONS: dict[str, Gate] = {
    "tanh":                ("Tanh", None, None),
    "sigmoid":             ("Sigmoid", None, None),
    "relu":                ("Relu", None, None),
    "linear":              ("Affine", 1.0, 0.0),
    "hard_sigmoid":        ("HardSigmoid", 1 / 6, 0.5),
    "keras2_hard_sigmoid": ("HardSigmoid", 0.2, 0.5),
    "sparse_sigmoid":      ("HardSigmoid", 0.5, 0.5),
    "elu":                 ("Elu", 1.0, None),
    "leaky_relu":          ("LeakyRelu", 0.2, None),
    "softplus":            ("Softplus", None, None),
    "softsign":            ("Softsign", None, None),
}
# fmt: on


def gate_activation(spec: Any) -> Gate | None:
    """Return an activation as ONNX's recurrent operators name it, or None."""
    if isinstance(spec, Mapping) and isinstance(spec.get("config"), str):
        spec = spec["config"]  # Keras 3: {"class_name": "function", "config": name}
    if spec is None:
        spec = "linear"
    return ACTIVATIONS.get(spec) if isinstance(spec, str) else None


# -- cells ---------------------------------------------------------------------------------------


def _projection(op: Builder, kernel: Value, bias: Value | None) -> Callable[[Value], Value]:
    def project(x: Value) -> Value:
        product = op.matmul(x, kernel)
        return product if bias is None else op.add(product, bias)

    return project


def _zeros(op: Builder, units: int, count: int) -> Callable[[Value], list[Value]]:
    def zeros(x: Value) -> list[Value]:
        return [op.expand(op.constant(0.0, x.dtype), (x.shape[0], units), like=x)] * count

    return zeros


@cell_layer("LSTMCell")
def lstm_cell(
    op: Builder, w: Roles, /, *,
    units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid",
    use_bias: bool = True, unit_forget_bias: bool = True, dropout: float = 0.0,
    recurrent_dropout: float = 0.0, seed: Any = None, implementation: int = 2,
    enable_caching_device: bool = True,
) -> Cell:  # fmt: skip
    """State h = o * act(c), c = f * c + i * act(g); g and the gates i, f, o from xW + hU + b."""
    del unit_forget_bias, dropout, recurrent_dropout, seed  # for training
    del implementation, enable_caching_device  # how, not what
    found = gates(op, w, units, (0, 2, 1, 3), use_bias=use_bias)
    bias = found.bias
    if bias is not None and bias.rank == 2:
        # One bias of the input's product and one of the state's: only their sum matters.
        bias = op.add(*_rows(op, bias))
    sigma, tau = (partial(activate, spec=s) for s in (recurrent_activation, activation))

    def step(x: Value, states: list[Value]) -> list[Value]:
        h, c = states
        gates = op.split(op.add(x, op.matmul(h, found.recurrent)), -1, [units] * 4)
        return list(lstm_step(op, gates, c, sigma, tau))

    native = _native(op, "LSTM", found, "ifco", [recurrent_activation, activation, activation])
    project = _projection(op, found.kernel, bias)
    return Cell(project, step, _zeros(op, units, 2), 2, native=native)


@cell_layer("GRUCell")
def gru_cell(
    op: Builder, w: Roles, /, *,
    units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid",
    use_bias: bool = True, dropout: float = 0.0, recurrent_dropout: float = 0.0,
    reset_after: bool = True, seed: Any = None, implementation: int = 2,
    enable_caching_device: bool = True,
) -> Cell:  # fmt: skip
    """State h = z * h + (1 - z) * act(xW + r * hU + b), with r before or after the product hU."""
    del dropout, recurrent_dropout, seed  # for training
    del implementation, enable_caching_device  # how, not what
    found = gates(op, w, units, (0, 1, 2), use_bias=use_bias)
    bias, inner_bias = found.bias, None
    if bias is not None and bias.rank == 2:
        bias, inner_bias = _rows(op, bias)
    whole = _projection(op, found.recurrent, inner_bias)
    cut = 2 * units
    first = _projection(op, op.slice(found.recurrent, [1], [0], [cut]), None)
    last = _projection(op, op.slice(found.recurrent, [1], [cut], [END]), None)
    sigma, tau = (partial(activate, spec=s) for s in (recurrent_activation, activation))

    def step(x: Value, states: list[Value]) -> list[Value]:
        (h,) = states
        z_x, r_x, new_x = op.split(x, -1, [units] * 3)
        z_h, r_h, *new_h = (
            op.split(whole(h), -1, [units] * 3)
            if reset_after
            else op.split(first(h), -1, [units] * 2)
        )

        def recur(r: Value) -> Value:
            return op.mul(r, new_h[0]) if reset_after else last(op.mul(r, h))

        z, r = op.add(z_x, z_h), op.add(r_x, r_h)
        return [gru_step(op, z, r, new_x, h, recur, sigma, tau)]

    native = _native(
        op, "GRU", found, "zrh", [recurrent_activation, activation],
        linear_before_reset=int(reset_after),
    )  # fmt: skip
    project = _projection(op, found.kernel, bias)
    return Cell(project, step, _zeros(op, units, 1), 1, native=native)


def _rows(op: Builder, matrix: Value) -> tuple[Value, Value]:
    """Return both rows of a bias that has two."""
    first, second = (op.gather(matrix, op.constant(n, "int64")) for n in (0, 1))
    return first, second


@cell_layer("SimpleRNNCell")
def simple_rnn_cell(
    op: Builder, w: Roles, /, *,
    units: int, activation: Any = "tanh", use_bias: bool = True, dropout: float = 0.0,
    recurrent_dropout: float = 0.0, seed: Any = None, implementation: int = 2,
    enable_caching_device: bool = True,
) -> Cell:  # fmt: skip
    """State h = act(xW + hU + b)."""
    del dropout, recurrent_dropout, seed  # for training
    del implementation, enable_caching_device  # how, not what
    found = gates(op, w, units, (0,), use_bias=use_bias)

    def step(x: Value, states: list[Value]) -> list[Value]:
        (h,) = states
        return [activate(op, op.add(x, op.matmul(h, found.recurrent)), activation)]

    native = _native(op, "RNN", found, "h", [activation])
    project = _projection(op, found.kernel, found.bias)
    return Cell(project, step, _zeros(op, units, 1), 1, native=native)


@cell_layer("StackedRNNCells")
def stacked_cells(op: Builder, w: Roles, /, *, cells: Sequence[Mapping[str, Any]]) -> Cell:
    """Stacked cells: the output of each is the input of the next."""
    parts = _weights_of_cells(op, w, cells)
    stack = [cell_of(op, part, entry) for part, entry in zip(parts, cells, strict=True)]
    starts = list(accumulate((cell.count for cell in stack), initial=0))

    def step(x: Value, states: list[Value]) -> list[Value]:
        after: list[Value] = []
        for n, cell in enumerate(stack):
            projected = cell.project(x) if n else x
            made = cell.step(projected, states[starts[n] : starts[n + 1]])
            x = made[cell.result]
            after += made[: cell.count]
        return [*after, x]

    def zeros(x: Value) -> list[Value]:
        return [state for cell in stack for state in cell.zeros(x)]

    return Cell(stack[0].project, step, zeros, starts[-1], starts[-1])


@cell_layer("ResidualWrapper")
def residual_cell(
    op: Builder, w: Roles, /, *, cell: Mapping[str, Any], residual_fn: Any = None,
    residual_fn_type: Any = None, residual_fn_module: Any = None,
) -> Cell:  # fmt: skip
    """A cell whose output is added to its input (`tf.nn.RNNCellResidualWrapper`)."""
    if residual_fn is not None:
        raise Unsupported("a residual function of the author's, which is code")
    del residual_fn_type, residual_fn_module
    inner = cell_of(op, w, cell)

    def step(x: Value, states: list[Value]) -> list[Value]:
        made = inner.step(inner.project(x), states)
        return [*made[: inner.count], op.add(x, made[inner.result])]

    return Cell(lambda x: x, step, inner.zeros, inner.count, inner.count)


@cell_layer("DeviceWrapper")
def cell_on_device(op: Builder, w: Roles, /, *, cell: Mapping[str, Any], device: Any) -> Cell:
    """The cell itself; its device has no meaning here (`tf.nn.RNNCellDeviceWrapper`)."""
    del device
    return cell_of(op, w, cell)


@cell_layer("DropoutWrapper")
def cell_with_dropout(
    op: Builder, w: Roles, /, *, cell: Mapping[str, Any], input_keep_prob: float = 1.0,
    output_keep_prob: float = 1.0, state_keep_prob: float = 1.0, variational_recurrent: Any = None,
    input_size: Any = None, seed: Any = None, dropout_fn: Any = None,
) -> Cell:  # fmt: skip
    """The cell itself, with keep probabilities of 1 (`tf.nn.RNNCellDropoutWrapper`)."""
    if dropout_fn is not None or min(input_keep_prob, output_keep_prob, state_keep_prob) < 1:
        raise Unsupported("DropoutWrapper, which drops elements at random in inference, too")
    del variational_recurrent, input_size, seed
    return cell_of(op, w, cell)


def _weights_of_cells(op: Builder, w: Roles, cells: Sequence[Mapping[str, Any]]) -> list[Roles]:
    """Return the weights of each cell of a stack, by name or else in order."""
    names = [str(entry["config"].get("name")) for entry in cells]
    while len(parts := list(w.parts())) == 1 and parts[0] not in names:
        w = w.below(parts[0])  # the stack itself
    if len(set(names)) == len(names) and all(name in w.parts() for name in names):
        return [w.below(name) for name in names]
    left = list(w.tensors.values())
    found = []
    for name, entry in zip(names, cells, strict=True):
        if str(entry.get("class_name")) not in CELLS or is_authors(entry.get("module")):
            raise Unsupported(f"weights of cell {name}, which are not named after it")
        roles = ("kernel", "recurrent_kernel", "bias")[: 2 + entry["config"].get("use_bias", True)]
        tensors = dict(zip(roles, left, strict=False))
        left = left[len(roles) :]
        found.append(Roles(op, f"{w.layer}/{name}", tensors, w.dtype))
    if left:
        raise Unsupported(f"has weights that no cell takes ({', '.join(left)})")
    return found
