"""ConvLSTM1D, ConvLSTM2D and ConvLSTM3D: LSTM's equations with convolutions for products.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/layers/rnn/conv_lstm.py
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.activations import activate
from converter.lower.keras.cells import Cell, gates
from converter.lower.keras.convolution import normalize_kernel
from converter.lower.keras.fold_time import fold_steps, unfold_steps
from converter.lower.keras.recurrent import recurrent_layer
from converter.lower.keras.table import Roles
from converter.lower.ops.conv import as_given, channels_first, convolve
from converter.lower.ops.recurrent import lstm_step
from converter.lower.values import Value


@recurrent_layer("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
def conv_lstm_cell(
    op: Builder, w: Roles, /, *,
    filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
    data_format: str | None = None, dilation_rate: Any = 1, activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid", use_bias: bool = True, unit_forget_bias: bool = True,
    dropout: float = 0.0, recurrent_dropout: float = 0.0, seed: Any = None,
    implementation: int = 2, kernel_order: Sequence[int] | None = None, flipped: bool = False,
) -> Cell:  # fmt: skip
    """LSTM of images: state h = o * act(c), c = f * c + i * act(g); all from x * W + h * U + b."""
    del kernel_size  # the kernel's own
    del unit_forget_bias, dropout, recurrent_dropout, seed, implementation  # for training

    def today(kernel: Value) -> Value:
        return normalize_kernel(op, kernel, kernel.rank - 2, kernel_order, flipped)

    found = gates(op, w, filters, (0, 2, 1, 3), use_bias=use_bias, today=today)
    kernel, recurrent, bias = found.kernel, found.recurrent, found.bias
    rank = kernel.rank - 2
    sigma, tau = (partial(activate, spec=s) for s in (recurrent_activation, activation))

    def convolved(
        x: Value, kernel: Value, bias: Value | None = None, strides: Any = 1,
        padding: str = "same", dilations: Any = 1,
    ) -> Value:  # fmt: skip
        return convolve(
            op, x, kernel, bias, strides=strides, padding=padding, dilations=dilations,
            data_format="channels_first",
        )  # fmt: skip

    # Inside, gates and channels are axis 1 of a step, whatever the layer's data format.
    def project(x: Value) -> Value:
        if x.rank == rank + 2:
            image = channels_first(op, x, data_format)
            return convolved(image, kernel, bias, strides, padding, dilation_rate)
        if data_format != "channels_first":
            x = op.transpose(x, [0, 1, x.rank - 1, *range(2, x.rank - 1)])
        made = convolved(fold_steps(op, x), kernel, bias, strides, padding, dilation_rate)
        return unfold_steps(op, made, x)

    def step(x: Value, states: list[Value]) -> list[Value]:
        h, c = (channels_first(op, s, data_format) for s in states)
        gates = op.split(op.add(x, convolved(h, recurrent)), 1, [filters] * 4)
        after = lstm_step(op, gates, c, sigma, tau)
        return [as_given(op, s, data_format) for s in after]

    def zeros(x: Value) -> list[Value]:
        one = op.gather(x, op.constant(0, "int64"), 1) if x.rank == rank + 3 else x
        shape = (one.shape[0], filters, *one.shape[2:])
        zero = op.expand(op.constant(0.0, x.dtype), shape, like=one)
        return [as_given(op, zero, data_format)] * 2

    return Cell(project, step, zeros, 2)
