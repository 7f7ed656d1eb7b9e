"""Recurrent layers. torch's own are used where they compute the same; others step by step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from converter.write.torch.graph_module.elementwise import hard_sigmoid
from converter.write.torch.graph_module.operators import (
    NotSupportedError,
    Tensor,
    operator,
    torch,
)
from converter.write.torch.graph_module.repetition import Tensors, scan

F: Any = torch.nn.functional
LSTM_ORDER = (0, 2, 3, 1)  # torch's input, forget, cell, output among ONNX's i, o, f, c
GRU_ORDER = (1, 0, 2)  # torch's reset, update, new among ONNX's z, r, h
# Takes a row of the sequence, the states, the weights of a direction, and which one it is.
Step = Callable[[Tensor, Tensors, Tensors, int], Tensors]


def _activations(
    names: Sequence[str] | None, defaults: Sequence[str], directions: int,
    alphas: Sequence[float] | None, betas: Sequence[float] | None,
) -> list[Callable[[Tensor], Tensor]]:  # fmt: skip
    """Return the functions of each direction, one after the other."""
    chosen = [str(n) for n in names or [*defaults] * directions]
    alpha, beta = iter(alphas or ()), iter(betas or ())
    made: list[Callable[[Tensor], Tensor]] = []
    for name in chosen:
        match name.lower():
            case "hardsigmoid":
                made.append(partial(hard_sigmoid, alpha=next(alpha, 0.2), beta=next(beta, 0.5)))
            case "leakyrelu":
                made.append(partial(F.leaky_relu, negative_slope=next(alpha, 0.01)))
            case "elu":
                made.append(partial(F.elu, alpha=next(alpha, 1.0)))
            case "affine":
                made.append(partial(_scale, alpha=next(alpha, 1.0), beta=next(beta, 0.0)))
            case "sigmoid" | "tanh" | "relu" | "softplus" | "softsign" as plain:
                made.append(getattr(torch, plain, None) or getattr(F, plain))
            case _:
                raise NotSupportedError(f"a recurrent layer with activation {name}")
    return made


def _scale(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    return alpha * x + beta


def _reorder(matrix: Tensor, order: Sequence[int]) -> Tensor:
    """Return the blocks of a matrix's rows in another order."""
    parts = torch.chunk(matrix, len(order), 0)
    return torch.cat([parts[i] for i in order], 0)


@operator("LSTM")
def run_lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, c: Tensor | None = None, peepholes: Tensor | None = None, *,
    hidden_size: int, direction: str = "forward", activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
    input_forget: int = 0, layout: int = 0,
) -> Tensors:  # fmt: skip
    """Return all hidden states, the last one, and the last cell state."""
    _refuse(layout, clip, input_forget)
    directions = w.shape[0]
    default = ("Sigmoid", "Tanh", "Tanh")
    named = [*(activations or default * directions)]
    state = tuple(_begin(v, x, directions, hidden_size) for v in (h, c))
    if _is_plain(x, lengths) and peepholes is None and named == [*default] * directions:
        weights = _weights(w, r, b, LSTM_ORDER)
        return _in_torch(torch.lstm, x, state, weights, direction)
    functions = _activations(activations, default, directions, activation_alpha, activation_beta)
    biases = torch.zeros_like(w[:, :, 0]).repeat(1, 2) if b is None else b

    if peepholes is None:
        peepholes = torch.zeros_like(w[:, : 3 * hidden_size, 0])

    def step(x: Tensor, state: Tensors, own: Tensors, d: int) -> Tensors:
        f, g, out = functions[3 * d : 3 * d + 3]
        (h, c), (w, r, b, p) = state, own
        added = b[: 4 * hidden_size] + b[4 * hidden_size :]
        i, o, forget, new = torch.chunk(x @ w.t() + h @ r.t() + added, 4, -1)
        pi, po, pf = torch.chunk(p, 3, -1)
        i, forget = f(i + pi * c), f(forget + pf * c)
        cell = forget * c + i * g(new)
        return f(o + po * cell) * out(cell), cell

    return _run(step, x, (w, r, biases, peepholes), state, lengths, direction)


@operator("GRU")
def run_gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, *, hidden_size: int, direction: str = "forward",
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
    linear_before_reset: int = 0, layout: int = 0,
) -> Tensors:  # fmt: skip
    """Return all hidden states, and the last one."""
    _refuse(layout, clip, 0)
    directions = w.shape[0]
    default = ("Sigmoid", "Tanh")
    named = [*(activations or default * directions)]
    state = _begin(h, x, directions, hidden_size)
    if _is_plain(x, lengths) and linear_before_reset and named == [*default] * directions:
        weights = _weights(w, r, b, GRU_ORDER)
        return _in_torch(torch.gru, x, state, weights, direction)
    functions = _activations(activations, default, directions, activation_alpha, activation_beta)
    biases = torch.zeros_like(w[:, :, 0]).repeat(1, 2) if b is None else b

    def step(x: Tensor, state: Tensors, own: Tensors, d: int) -> Tensors:
        f, g = functions[2 * d : 2 * d + 2]
        (h,), (w, r, b) = state, own
        kernel, recurrent = torch.chunk(b, 2, -1)
        xz, xr, xh = torch.chunk(x @ w.t() + kernel, 3, -1)
        rz, rr, rh = torch.chunk(r, 3, 0)
        bz, br, bh = torch.chunk(recurrent, 3, -1)
        update, reset = f(xz + h @ rz.t() + bz), f(xr + h @ rr.t() + br)
        kept = reset * (h @ rh.t() + bh) if linear_before_reset else (reset * h) @ rh.t() + bh
        return ((1 - update) * g(xh + kept) + update * h,)

    return _run(step, x, (w, r, biases), (state,), lengths, direction)


@operator("RNN")
def run_rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, *, hidden_size: int, direction: str = "forward",
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None, layout: int = 0,
) -> Tensors:  # fmt: skip
    """Return all hidden states, and the last one."""
    _refuse(layout, clip, 0)
    directions = w.shape[0]
    named = {str(n) for n in activations or ("Tanh",)}
    state = _begin(h, x, directions, hidden_size)
    if _is_plain(x, lengths) and named in ({"Tanh"}, {"Relu"}):
        run = torch.rnn_tanh if named == {"Tanh"} else torch.rnn_relu
        weights = _weights(w, r, b, (0,))
        return _in_torch(run, x, state, weights, direction)
    functions = _activations(activations, ("Tanh",), directions, activation_alpha, activation_beta)
    biases = torch.zeros_like(w[:, :, 0]).repeat(1, 2) if b is None else b

    def step(x: Tensor, state: Tensors, own: Tensors, d: int) -> Tensors:
        w, r, b = own
        added = b[:hidden_size] + b[hidden_size:]
        return (functions[d](x @ w.t() + state[0] @ r.t() + added),)

    return _run(step, x, (w, r, biases), (state,), lengths, direction)


def _refuse(layout: int, clip: float | None, input_forget: int) -> None:
    for name, value in (("layout", layout), ("clip", clip), ("input_forget", input_forget)):
        if value:
            raise NotSupportedError(f"a recurrent layer with {name}={value}")


def _begin(state: Tensor | None, x: Tensor, directions: int, hidden: int) -> Tensor:
    if state is not None:
        return state
    return torch.zeros([directions, x.shape[1], hidden], dtype=x.dtype)


def _weights(w: Tensor, r: Tensor, b: Tensor | None, order: Sequence[int]) -> list[Tensor]:
    """Return a layer's weights in torch's order."""
    made = []
    for d in range(w.shape[0]):
        own, recurrent = (
            (torch.zeros_like(w[d][:, 0]),) * 2 if b is None else torch.chunk(b[d], 2, 0)
        )
        made += [_reorder(t, order) for t in (w[d], r[d], own, recurrent)]
    return made


def _is_plain(x: Tensor, lengths: Tensor | None) -> bool:
    """Return whether torch's own layers do: they fix the length of the sequences in a program."""
    return lengths is None and isinstance(x.shape[0], int)


def _in_torch(
    run: Callable[..., Any], x: Tensor, state: Any, weights: list[Tensor], direction: str
) -> Tensors:
    """Run a layer of torch's; return its states with an axis for directions, and the last ones."""
    is_reverse, is_both = direction == "reverse", direction == "bidirectional"
    settings = {"has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False}
    settings |= {"bidirectional": is_both, "batch_first": False}
    y, *last = run(x.flip(0) if is_reverse else x, state, weights, *settings.values())
    y = y.flip(0) if is_reverse else y
    return y.reshape(y.shape[0], y.shape[1], 1 + is_both, -1).transpose(1, 2), *last


def _run(
    step: Step, x: Tensor, weights: Tensors, state: Tensors, lengths: Tensor | None, direction: str
) -> Tensors:
    """Run steps one after the other; past its length, a sequence keeps its state and returns 0."""
    limits = () if lengths is None else (lengths,)
    outputs, finals = [], []
    for d in range(state[0].shape[0]):

        def advance(state: Tensors, row: Tensors, given: Tensors, d: int = d) -> Any:
            """Return the states after a row of the sequence, and what is put out."""
            after = step(row[1], state, given[: len(weights)], d)
            if lengths is None:
                return after, after[:1]
            is_inside = (row[0] < given[-1])[:, None]
            kept = tuple(map(partial(torch.where, is_inside), after, state))
            return kept, (torch.where(is_inside, after[0], torch.zeros_like(after[0])),)

        final, (found,) = scan(
            advance, tuple(s[d] for s in state), (torch.arange(x.shape[0]), x),
            (*(w[d] for w in weights), *limits), reverse=direction == "reverse" or d == 1,
        )  # fmt: skip
        outputs.append(found)
        finals.append(final)
    states = (torch.stack([f[i] for f in finals]) for i in range(len(state)))
    return torch.stack(outputs, 1), *states
