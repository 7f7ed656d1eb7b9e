"""Keras's layers as torch.nn: weights from our file, Keras's own inputs, Keras's own outputs.

Each row of fixtures/keras_layers that is one layer with a twin becomes a file of torch; its state
dict is loaded, strictly, into the layer of torch.nn that the configuration describes, and that
must compute what Keras did.
"""

import io
import json
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.lower.keras.lowering import model_of
from converter.options import Options
from formats.errors import ConvertError

torch = pytest.importorskip("torch")
nn = torch.nn

FIXTURES = ROOT / "fixtures" / "keras_layers"
FAMILIES = (
    "convolution", "core", "normalization", "recurrent", "recurrent_wrappers", "recurrent_old",
    "attention", "activations", "legacy", "keras1_theano", "keras1_tensorflow",
)  # fmt: skip
ACTIVATIONS = {
    None: lambda x: x, "linear": lambda x: x, "relu": torch.relu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "softmax": lambda x: torch.softmax(x, -1), "elu": nn.functional.elu,
    "selu": torch.selu, "softplus": nn.functional.softplus,
}  # fmt: skip
# How many rows of each class must be proven; fewer means that the test no longer sees them.
LEAST = {
    "Dense": 10, "Conv1D": 6, "Conv2D": 8, "Conv3D": 4, "Conv1DTranspose": 2, "Conv2DTranspose": 4,
    "Conv3DTranspose": 2, "DepthwiseConv1D": 1, "DepthwiseConv2D": 2, "SeparableConv1D": 2,
    "SeparableConv2D": 3, "BatchNormalization": 6, "LayerNormalization": 4,
    "GroupNormalization": 2, "Embedding": 2, "PReLU": 1, "LSTM": 6, "GRU": 4, "SimpleRNN": 6,
    "Bidirectional": 3, "MultiHeadAttention": 1,
}  # fmt: skip


class Elsewhere(Exception):  # noqa: N818
    """The row uses a layer in a way that this test has no torch for."""


def need(condition: bool) -> None:
    if not condition:
        raise Elsewhere


def rows():
    for family in FAMILIES:
        path = FIXTURES / f"{family}.zip"
        if path.exists():
            with zipfile.ZipFile(path) as z:
                for name in z.namelist():
                    if not name.endswith(".npz"):
                        arrays = np.load(io.BytesIO(z.read(f"{Path(name).stem}.npz")))
                        yield f"{family}:{name}", Path(name).suffix, z.read(name), arrays


def test_torch_computes_what_keras_did(tmp_path):
    proven, without, differing = Counter(), Counter(), []
    for i, (name, suffix, data, arrays) in enumerate(rows()):
        source = tmp_path / f"{i}{suffix}"
        source.write_bytes(data)
        try:
            layer = only_layer(source)
            module, forward = TWINS[layer.class_name](layer.config, arrays)
        except (Elsewhere, KeyError):
            continue
        out = tmp_path / f"{i}.pt"
        converter.convert(source, to="torch", out=out, options=Options(to="torch", device="cpu"))
        state = torch.load(out, weights_only=True)
        source.unlink()
        out.unlink()
        prefixes = {key.partition(".")[0] for key in state}
        if len(prefixes) != 1 or any("/" in key for key in state):
            without[layer.class_name] += 1
            if '"reset_after": false' not in json.dumps(layer.config):
                differing.append((name, list(state)))
            continue
        (prefix,) = prefixes
        module.load_state_dict({k.removeprefix(f"{prefix}."): v for k, v in state.items()})
        module.eval()
        with torch.no_grad():
            found = forward(module, [torch.from_numpy(np.array(arrays[k])) for k in inputs(arrays)])
        expected = arrays["out0"]
        if found.shape != expected.shape or not np.allclose(found, expected, 2e-5, 2e-5):
            differing.append(name)
        proven[layer.class_name] += 1
    assert differing == [], "\n".join(map(str, differing))
    assert set(without) <= {"GRU", "Bidirectional"}  # a reset gate before the product
    assert without["GRU"]
    assert {kind: n for kind, n in LEAST.items() if proven[kind] < n} == {}, json.dumps(proven)


def inputs(arrays) -> list[str]:
    return [k for k in arrays.files if k.startswith("in")]


def one(arrays) -> str:
    need(len(inputs(arrays)) == 1)
    return inputs(arrays)[0]


def only_layer(source: Path):
    """Return the only layer that does anything."""
    bundle = converter.read(source)
    try:
        model = model_of(bundle)
    except ConvertError:
        raise Elsewhere from None
    layers = [x for x in model.layers.values() if x.class_name != "InputLayer"]
    need(len(layers) == 1 and layers[0].model is None and bool(bundle.weights))
    need(all(not call.keywords for call in layers[0].calls))  # masks, and what is causal
    need('"mixed_' not in json.dumps(layers[0].config))
    need({t.dtype.name for t in bundle.weights.values()} == {"float32"})
    return layers[0]


def first(x: torch.Tensor) -> torch.Tensor:
    """Channels last → channels first."""
    return x.movedim(-1, 1)


def last(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(1, -1)


def tuple_of(value, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,) * rank


def spatial(config, rank: int):
    need(config.get("data_format", "channels_last") in (None, "channels_last"))
    need(config.get("padding", "valid") in ("valid", "same", "causal"))  # Theano has others
    return [tuple_of(config.get(k, 1), rank) for k in ("kernel_size", "strides", "dilation_rate")]


def padded(x: torch.Tensor, padding: str, kernel, strides, dilation) -> torch.Tensor:
    pads = []
    for n, k, s, d in zip(x.shape[2:], kernel, strides, dilation, strict=True):
        reach = (k - 1) * d + 1
        if padding == "causal":
            pads.append((reach - 1, 0))
        elif padding == "same":
            total = max((-(-n // s) - 1) * s + reach - n, 0)
            pads.append((total // 2, total - total // 2))
        else:
            pads.append((0, 0))
    return nn.functional.pad(x, [p for pair in reversed(pads) for p in pair])


def act(config, key: str = "activation"):
    need(isinstance(config.get(key), str | None) and config.get(key) in ACTIVATIONS)
    return ACTIVATIONS[config.get(key)]


def dense(config, arrays):
    name = one(arrays)
    act_ = act(config)
    module = nn.Linear(arrays[name].shape[-1], config["units"], config.get("use_bias", True))
    return module, lambda m, x: act_(m(x[0])).numpy()


def conv(rank: int):
    def make(config, arrays):
        name = one(arrays)
        kernel, strides, dilation = spatial(config, rank)
        act_, groups = act(config), config.get("groups", 1) or 1
        module = getattr(nn, f"Conv{rank}d")(
            arrays[name].shape[-1], config["filters"], kernel, strides, 0, dilation, groups,
            config.get("use_bias", True),
        )  # fmt: skip
        padding = config.get("padding", "valid")

        def forward(m, x):
            return act_(last(m(padded(first(x[0]), padding, kernel, strides, dilation)))).numpy()

        return module, forward

    return make


def depthwise(rank: int, separable: bool):
    def make(config, arrays):
        name = one(arrays)
        kernel, strides, dilation = spatial(config, rank)
        channels, times = arrays[name].shape[-1], config.get("depth_multiplier", 1)
        act_, bias = act(config), config.get("use_bias", True)
        kind = getattr(nn, f"Conv{rank}d")
        inner = kind(
            channels, channels * times, kernel, strides, 0, dilation, channels,
            bias and not separable,
        )  # fmt: skip
        module = inner
        if separable:
            module = nn.Module()
            module.depthwise = inner
            module.pointwise = kind(channels * times, config["filters"], 1, bias=bias)
        padding = config.get("padding", "valid")

        def forward(m, x):
            wide = padded(first(x[0]), padding, kernel, strides, dilation)
            made = m.pointwise(m.depthwise(wide)) if separable else m(wide)
            return act_(last(made)).numpy()

        return module, forward

    return make


def transposed(rank: int):
    def make(config, arrays):
        name = one(arrays)
        kernel, strides, dilation = spatial(config, rank)
        need(set(dilation) == {1} and config.get("output_padding") is None)
        need(config.get("output_shape") is None)
        need(all(k >= s for k, s in zip(kernel, strides, strict=True)))
        act_ = act(config)
        module = getattr(nn, f"ConvTranspose{rank}d")(
            arrays[name].shape[-1], config["filters"], kernel, strides,
            bias=config.get("use_bias", True),
        )  # fmt: skip
        same = config.get("padding", "valid") == "same"

        def forward(m, x):
            made = m(first(x[0]))
            for axis, (n, k, s) in enumerate(zip(x[0].shape[1:-1], kernel, strides, strict=True)):
                if same:
                    made = made.narrow(2 + axis, (k - s) // 2, n * s)
            return act_(last(made)).numpy()

        return module, forward

    return make


def batch_norm(config, arrays):
    name = one(arrays)
    axis = config.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) else axis
    need(axis in (-1, arrays[name].ndim - 1) and config["scale"] and config["center"])
    need(not config.get("renorm"))
    module = nn.BatchNorm1d(arrays[name].shape[-1], config["epsilon"])
    return module, lambda m, x: m(x[0].reshape(-1, x[0].shape[-1])).reshape(x[0].shape).numpy()


def layer_norm(config, arrays):
    name = one(arrays)
    axes = config.get("axis", -1)
    axes = sorted(a % arrays[name].ndim for a in (axes if isinstance(axes, list) else [axes]))
    need(axes == list(range(arrays[name].ndim - len(axes), arrays[name].ndim)))
    need(config["scale"] and config["center"] and not config.get("rms_scaling"))
    module = nn.LayerNorm(arrays[name].shape[axes[0] :], config["epsilon"])
    return module, lambda m, x: m(x[0]).numpy()


def group_norm(config, arrays):
    name = one(arrays)
    channels, groups = arrays[name].shape[-1], config["groups"]
    need(config.get("axis", -1) in (-1, arrays[name].ndim - 1))
    need(config["scale"] and config["center"])
    groups = channels if groups == -1 else groups
    return nn.GroupNorm(groups, channels, config["epsilon"]), lambda m, x: last(
        m(first(x[0]))
    ).numpy()


def rms_norm(config, arrays):
    name = one(arrays)
    need(config.get("axis", -1) in (-1, arrays[name].ndim - 1))
    module = nn.RMSNorm(arrays[name].shape[-1], config["epsilon"])
    return module, lambda m, x: m(x[0]).numpy()


def embedding(config, arrays):
    need(not config.get("mask_zero"))
    module = nn.Embedding(config["input_dim"], config["output_dim"])
    return module, lambda m, x: m(x[0].long()).numpy()


def prelu(config, arrays):
    name = one(arrays)
    shared = config.get("shared_axes") or []
    need(set(shared) >= set(range(1, arrays[name].ndim - 1)))
    module = nn.PReLU(1 if arrays[name].ndim - 1 in shared else arrays[name].shape[-1])
    return module, lambda m, x: m(x[0].reshape(-1, x[0].shape[-1])).reshape(x[0].shape).numpy()


CELLS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "SimpleRNN": nn.RNN}


def recurrent(kind: str):
    def make(config, arrays, *, both: bool = False):
        name = one(arrays)
        need(arrays[name].ndim == 3 and config.get("activation", "tanh") == "tanh")
        need(config.get("recurrent_activation", "sigmoid") == "sigmoid")
        need(not config.get("go_backwards") and not config.get("return_state"))
        need(not config.get("stateful") and not config.get("time_major"))
        module = CELLS[kind](
            arrays[name].shape[-1], config["units"], batch_first=True, bidirectional=both,
            bias=config.get("use_bias", True),
        )  # fmt: skip

        def forward(m, x):
            made, state = m(x[0])
            if config.get("return_sequences"):
                return made.numpy()
            state = state[0] if isinstance(state, tuple) else state
            return torch.cat(list(state), -1).numpy()

        return module, forward

    return make


def bidirectional(config, arrays):
    need(config.get("merge_mode") == "concat" and not config.get("backward_layer"))
    inner = config["layer"]
    kind = inner["class_name"]
    need(kind in CELLS)
    return recurrent(kind)(inner["config"], arrays, both=True)


def attention(config, arrays):
    names = inputs(arrays)
    need(all(arrays[n].ndim == 3 for n in names) and len(names) in (1, 2))
    size, heads = arrays[names[0]].shape[-1], config["num_heads"]
    need(heads * config["key_dim"] == size and config.get("value_dim") in (None, config["key_dim"]))
    need(config.get("output_shape") is None)
    need(not any("window" in key and value for key, value in config.items()))
    module = nn.MultiheadAttention(size, heads, batch_first=True, bias=config.get("use_bias", True))

    def forward(m, x):
        query, value = x[0], x[-1]
        return m(query, value, value)[0].numpy()

    return module, forward


TWINS = {
    "Dense": dense, "BatchNormalization": batch_norm, "LayerNormalization": layer_norm,
    "GroupNormalization": group_norm, "RMSNormalization": rms_norm, "Embedding": embedding,
    "CuDNNLSTM": recurrent("LSTM"), "CuDNNGRU": recurrent("GRU"),
    "PReLU": prelu, "Bidirectional": bidirectional, "MultiHeadAttention": attention,
    **{kind: recurrent(kind) for kind in CELLS},
    **{f"Conv{n}D": conv(n) for n in (1, 2, 3)},
    **{f"Conv{n}DTranspose": transposed(n) for n in (1, 2, 3)},
    **{f"DepthwiseConv{n}D": depthwise(n, separable=False) for n in (1, 2)},
    **{f"SeparableConv{n}D": depthwise(n, separable=True) for n in (1, 2)},
}  # fmt: skip
