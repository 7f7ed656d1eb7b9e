"""Recurrent operators in float64, for the evaluator of the onnx package.

Its own read neither sequence lengths nor activations. Specifications:
https://onnx.ai/onnx/operators/onnx__LSTM.html, onnx__GRU.html and onnx__RNN.html.
"""

import importlib
from functools import partial
from typing import Any

import numpy as np

# Name → the numbers that it takes, by default, and the function.
ACTIVATIONS: dict[str, tuple[tuple[float, ...], Any]] = {
    "sigmoid": ((), lambda x: 1 / (1 + np.exp(-x))),
    "tanh": ((), np.tanh),
    "relu": ((), lambda x: np.maximum(x, 0)),
    "softsign": ((), lambda x: x / (1 + np.abs(x))),
    "softplus": ((), lambda x: np.logaddexp(x, 0)),
    "elu": ((1.0,), lambda x, a: np.where(x < 0, a * np.expm1(x), x)),
    "leakyrelu": ((0.01,), lambda x, a: np.where(x < 0, a * x, x)),
    "thresholdedrelu": ((1.0,), lambda x, a: np.where(x > a, x, 0)),
    "affine": ((1.0, 0.0), lambda x, a, b: a * x + b),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
}
GATES = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}


def define_ops() -> list[Any]:
    """Return the recurrent operators as the evaluator takes them."""
    base = importlib.import_module("onnx.reference.op_run").OpRun

    def define(kind: str) -> Any:
        def _run(self: Any, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
            del self
            return run_recurrent(kind, inputs, attributes)

        return type(kind, (base,), {"op_domain": "", "_run": _run})

    return [define(kind) for kind in GATES]


def run_recurrent(kind: str, inputs: Any, attributes: dict[str, Any]) -> tuple[Any, ...]:
    """Run an RNN, GRU or LSTM operator in each of its directions."""
    padded: list[Any] = [*inputs, *[None] * (8 - len(inputs))]
    x, w, r, bias, lengths, h0, c0, peepholes = padded
    batch_first = bool(attributes.get("layout"))
    if batch_first:
        x = x.transpose(1, 0, 2)
        h0, c0 = (None if s is None else s.transpose(1, 0, 2) for s in (h0, c0))
    steps, batch, _ = x.shape
    directions, _, size = r.shape
    lengths = np.full(batch, steps) if lengths is None else lengths
    kinds = attributes.get("direction") or "forward"
    functions = activations(kind, directions, attributes)
    outputs, last_h, last_c = [], [], []
    for i in range(directions):
        backwards = kinds == "reverse" or i == 1
        order = reverse_order(steps, lengths) if backwards else np.arange(steps)[:, None]
        order = np.broadcast_to(order, (steps, batch))
        h = np.zeros((batch, size)) if h0 is None else h0[i]
        c = np.zeros((batch, size)) if c0 is None else c0[i]
        b = np.zeros(2 * w.shape[1]) if bias is None else bias[i]
        p = np.zeros(3 * size) if peepholes is None else peepholes[i]
        found = np.zeros((steps, batch, size))
        for t in range(steps):
            here = order[t], np.arange(batch)
            new_h, new_c = step(kind, x[here], h, c, w[i], r[i], b, p, functions[i], attributes)
            active = (t < lengths)[:, None]
            h, c = np.where(active, new_h, h), np.where(active, new_c, c)
            found[here] = np.where(active, new_h, 0)
        outputs.append(found)
        last_h.append(h)
        last_c.append(c)
    y, y_h, y_c = np.stack(outputs, 1), np.stack(last_h), np.stack(last_c)
    if batch_first:
        y, y_h, y_c = y.transpose(2, 0, 1, 3), y_h.transpose(1, 0, 2), y_c.transpose(1, 0, 2)
    return (y, y_h, y_c) if kind == "LSTM" else (y, y_h)


def apply(function: Any, numbers: list[float], x: Any) -> Any:
    """Return an activation of a gate."""
    return function(x, *numbers)


def reverse_order(steps: int, lengths: Any) -> Any:
    """Return the index of the input of each step: each sequence backwards, its padding last."""
    t = np.arange(steps)[:, None]
    return np.where(t < lengths, lengths - 1 - t, t)


def activations(kind: str, directions: int, attributes: dict[str, Any]) -> list[list[Any]]:
    """Return the functions of each direction, with their numbers bound."""
    names = [str(name).lower() for name in attributes.get("activations") or ()]
    names = names or [*GATES[kind]] * directions
    given = [attributes.get("activation_alpha") or (), attributes.get("activation_beta") or ()]
    queues = [iter(numbers) for numbers in given]
    found = []
    for name in names:
        defaults, function = ACTIVATIONS[name]
        numbers = [float(next(queue, n)) for queue, n in zip(queues, defaults, strict=False)]
        found.append(partial(apply, function, numbers))
    count = len(GATES[kind])
    return [found[i * count : (i + 1) * count] for i in range(directions)]


def step(
    kind: str, x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, p: Any, functions: Any,
    attributes: dict[str, Any],
) -> tuple[Any, Any]:  # fmt: skip
    """Return the state and the cell after one step."""
    clip = attributes.get("clip") or np.inf

    def limit(gate: Any) -> Any:
        return np.clip(gate, -clip, clip)

    size = h.shape[-1]
    wb, rb = np.split(b, 2)
    if kind == "RNN":
        return functions[0](limit(x @ w.T + h @ r.T + wb + rb)), c
    if kind == "GRU":
        f, g = functions
        rz = limit((x @ w.T + wb)[:, : 2 * size] + (h @ r.T + rb)[:, : 2 * size])
        z, reset = f(rz[:, :size]), f(rz[:, size:])
        wh, rh = w[2 * size :], r[2 * size :]
        if attributes.get("linear_before_reset"):
            inner = reset * (h @ rh.T + rb[2 * size :])
        else:
            inner = (reset * h) @ rh.T + rb[2 * size :]
        new = g(limit(x @ wh.T + wb[2 * size :] + inner))
        return (1 - z) * new + z * h, c
    f, g, out = functions
    i, o, forget, cell = np.split(x @ w.T + h @ r.T + wb + rb, 4, axis=-1)
    pi, po, pf = np.split(p, 3)
    gate_i = f(limit(i + pi * c))
    gate_f = 1 - gate_i if attributes.get("input_forget") else f(limit(forget + pf * c))
    c = gate_f * c + gate_i * g(limit(cell))
    return f(limit(o + po * c)) * out(c), c
