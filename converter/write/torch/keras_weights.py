"""Map Keras weights to torch.nn's names and layouts, for layers that torch.nn has.

If the configuration gives the class of a weight's layer, ``dense/kernel`` becomes ``dense.weight``,
and so on by the tables below; slashes between layers become dots. A layer that torch.nn does not
have, or that is used in a way that it does not support, keeps its names and layouts, and so do all
weights whose layers are unknown. Kernels are:
    Dense                   [in, out]                → Linear            [out, in]
    Conv1D, 2D, 3D          [k…, in/groups, out]     → Conv              [out, in/groups, k…]
    Conv…DTranspose         [k…, out, in]            → ConvTranspose     [in, out, k…]
    DepthwiseConv1D, 2D     [k…, in, multiplier]     → Conv, groups=in   [in*multiplier, 1, k…]
    SeparableConv1D, 2D     both of these            → depthwise, pointwise
    LSTM, GRU, SimpleRNN    [in, gates*units]        → weight_ih_l0      [gates*units, in]
The gates of a GRU are update, reset, new in Keras, and reset, update, new in torch. torch has no
GRU whose reset gate is applied before the product. torch adds two biases where Keras's LSTM has
one: the second is zero. Layouts between layers do not change: the columns of a Dense after a
Flatten of images stay in Keras's order (rows, columns, channels).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from converter.normalise.keras_kernels import (
    KERAS1_GATES,
    current_kernel,
    from_cudnn,
    join_gates,
)
from converter.normalise.layouts import compute_tensor, permute, reshape, zeros
from formats.core.bundle import JSON, Bundle
from formats.core.plurals import count
from formats.core.weights import Tensor
from formats.errors import CorruptError, UnsupportedError

if TYPE_CHECKING:
    from converter.lower.keras.model import Layer

Roles: TypeAlias = Mapping[str, str]  # role, below the layer → name in the bundle
Config: TypeAlias = Mapping[str, Any]


class NoTorchLayerError(Exception):
    """torch.nn has no layer for these weights; the text says why. Never shown as an error."""


@dataclass(frozen=True, slots=True)
class TorchWeight:
    """A tensor of the state dict.

    Attributes:
        name: Below its layer.
        tensor: Its value.
        sources: Names of the bundle's tensors that it is computed from.
        layout: How its layout differs from the sources'.
    """

    name: str
    tensor: Tensor
    sources: tuple[str, ...]
    layout: str = "as it is"


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one layer, by the last part of their roles."""

    roles: Roles
    tensors: Mapping[str, Tensor]

    def allow_only(self, *known: str) -> None:
        """Raise `NoTorchLayerError` if there are other roles than these."""
        others = sorted(set(self.roles) - set(known))
        if others:
            raise NoTorchLayerError(f"it has {', '.join(others)}")

    def rename(self, pairs: Mapping[str, str]) -> list[TorchWeight]:
        """Return weights under other names, with the same values."""
        self.allow_only(*pairs)
        return [
            TorchWeight(new, self.tensors[self.roles[old]], (self.roles[old],))
            for old, new in pairs.items()
            if old in self.roles
        ]

    def take(self, role: str, rank: int | None = None) -> tuple[str, Tensor]:
        """Return the name and tensor of a role.

        Raises:
            NoTorchLayerError: There is none, or it has another rank.
        """
        name = self.roles.get(role)
        if name is None:
            raise NoTorchLayerError(f"it has no {role}")
        tensor = self.tensors[name]
        if rank is not None and len(tensor.shape) != rank:
            raise NoTorchLayerError(
                f"its {role} has {count('axis', len(tensor.shape))}, not {rank}"
            )
        return name, tensor


KERAS = frozenset({"keras", "tf_keras", "tensorflow", "builtins"})  # modules of Keras layers
Family: TypeAlias = Callable[[str, Config, Weights], list[TorchWeight]]
FAMILIES: dict[str, Family] = {}


def family(*kinds: str) -> Callable[[Family], Family]:
    """Register a function for classes of layers."""

    def enter(function: Family) -> Family:
        FAMILIES.update(dict.fromkeys(kinds, function))
        return function

    return enter


# fmt: off
RENAMED: Mapping[str, Mapping[str, str]] = {
    "BatchNormalization":     {"gamma": "weight", "beta": "bias",
                               "moving_mean": "running_mean", "moving_variance": "running_var"},
    "SyncBatchNormalization": {"gamma": "weight", "beta": "bias",
                               "moving_mean": "running_mean", "moving_variance": "running_var"},
    "LayerNormalization":     {"gamma": "weight", "beta": "bias"},
    "GroupNormalization":     {"gamma": "weight", "beta": "bias"},
    "RMSNormalization":       {"scale": "weight"},
    "Embedding":              {"embeddings": "weight"},
}
# fmt: on


@family(*RENAMED)
def rename_weights(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """Return the weights of a layer that differ from torch's only in their names."""
    if kind == "RMSNormalization" or not config.get("rms_scaling"):
        return weights.rename(RENAMED[kind])
    raise NoTorchLayerError("it scales by a root mean square")


def _current_kernel(kind: str, config: Config, name: str, tensor: Tensor) -> Tensor:
    """Return a kernel in the layout of the current Keras."""
    order, flipped = config.get("kernel_order"), bool(config.get("flipped"))
    return current_kernel(name, tensor, kind, order, flipped=flipped).tensor({name: tensor})


def _describe_source(config: Config) -> str:
    """Describe the layout that axes refer to."""
    turned = ", which Theano kept turned around," if config.get("flipped") else ""
    return f" of today's Keras{turned}"


@family("Dense", "Conv1D", "Conv2D", "Conv3D",
        "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")  # fmt: skip
def dense(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """[spatial…, a, b] → [b, a, spatial…], for a layer's kernel."""
    weights.allow_only("kernel", "bias")
    rank = 2 if kind == "Dense" else 2 + int(kind[4])
    name, tensor = weights.take("kernel")
    tensor = _current_kernel(kind, config, name, tensor)
    if len(tensor.shape) != rank:
        raise NoTorchLayerError(f"its kernel has {count('axis', len(tensor.shape))}, not {rank}")
    axes = (rank - 1, rank - 2, *range(rank - 2))
    return [
        TorchWeight(
            "weight", permute(tensor, axes), (name,), f"axes {list(axes)}{_describe_source(config)}"
        ),
        *_bias(weights, "bias"),
    ]


@family("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D")
def depthwise(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """[spatial…, in, multiplier] → [in * multiplier, 1, spatial…]; channels stay neighbours."""
    separable = kind.startswith("Separable")
    role = "depthwise_kernel" if "depthwise_kernel" in weights.roles else "kernel"
    weights.allow_only(role, "bias", *(["pointwise_kernel"] if separable else []))
    rank = 2 + int(kind[-2])
    name, tensor = weights.take(role)
    tensor = _current_kernel(kind, config, name, tensor)
    if len(tensor.shape) != rank:
        raise NoTorchLayerError(f"its {role} has {count('axis', len(tensor.shape))}, not {rank}")
    *sizes, channels, multiplier = tensor.shape
    axes = (rank - 2, rank - 1, *range(rank - 2))
    turned = permute(tensor, axes, (channels * multiplier, 1, *sizes))
    layout = f"axes {list(axes)}{_describe_source(config)}, the first two made one"
    if not separable:
        return [TorchWeight("weight", turned, (name,), layout), *_bias(weights, "bias")]
    inner, matrix = weights.take("pointwise_kernel")
    matrix = _current_kernel(kind, config, inner, matrix)
    if len(matrix.shape) != rank:
        raise NoTorchLayerError(
            f"its pointwise_kernel has {count('axis', len(matrix.shape))}, not {rank}"
        )
    back = (rank - 1, rank - 2, *range(rank - 2))
    return [
        TorchWeight("depthwise.weight", turned, (name,), layout),
        TorchWeight("pointwise.weight", permute(matrix, back), (inner,),
              f"axes {list(back)}{_describe_source(config)}"),
        *_bias(weights, "pointwise.bias"),
    ]  # fmt: skip


@family("PReLU")
def prelu(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """[1, …, channels] → [channels]: torch has a slope for each channel, or one."""
    del kind, config
    weights.allow_only("alpha")
    name, tensor = weights.take("alpha")
    if any(n != 1 for n in tensor.shape[:-1]) or not tensor.shape:
        raise NoTorchLayerError("it has a slope for each place")
    return [TorchWeight("weight", reshape(tensor, tensor.shape[-1:]), (name,), "its last axis")]


# For each of torch's gates, its index among those of the current Keras.
GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2), "SimpleRNN": (0,)}
RECURRENT = ("kernel", "recurrent_kernel", "bias")


@family("LSTM", "GRU", "SimpleRNN")
def recurrent(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """[in, gates * units] → [gates * units, in], the gates in torch's order."""
    return _recurrent(kind, config, weights, "l0")


def _recurrent(kind: str, config: Config, weights: Weights, end: str) -> list[TorchWeight]:
    weights.allow_only(*RECURRENT)
    order = GATES[kind]
    count, rows = len(order), "gates in torch's order, " if kind == "GRU" else ""
    names = [weights.take(role, 2) for role in RECURRENT[:2]]
    (_, units), wide = names[1][1].shape[::-1], names[1][1].shape[1]
    if wide != count * units or config.get("units", units) != units:
        raise NoTorchLayerError("its kernels are not of so many gates")
    if names[0][1].shape[1] != wide:
        raise NoTorchLayerError("its kernels are not of so many gates")
    found = [
        TorchWeight(
            f"weight_{where}_{end}", _transpose_gates(tensor, order), (name,), f"{rows}transposed"
        )
        for where, (name, tensor) in zip(("ih", "hh"), names, strict=True)
    ]
    if "bias" not in weights.roles:
        if kind == "GRU" and config.get("reset_after") is not True:
            raise NoTorchLayerError("its reset gate is applied before the product")
        return found
    name, bias = weights.take("bias")
    both = (2, wide)
    if kind == "GRU":
        if bias.shape != both:
            raise NoTorchLayerError("its reset gate is applied before the product")
        for row, where in enumerate(("ih", "hh")):
            part = compute_tensor([bias], (wide,), _pick_bias(row, order))
            layout = f"row {row}, gates in torch's order"
            found.append(TorchWeight(f"bias_{where}_{end}", part, (name,), layout))
        return found
    if bias.shape != (wide,):
        raise NoTorchLayerError(f"its bias has shape {list(bias.shape)}")
    found.append(TorchWeight(f"bias_ih_{end}", bias, (name,)))
    nothing = zeros(bias, (wide,))
    found.append(TorchWeight(f"bias_hh_{end}", nothing, (), "zeros: Keras has one bias, torch two"))
    return found


def _transpose_gates(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Return the transpose of a matrix of gates, with these in another order."""
    shape = tensor.shape[::-1]
    if list(order) == sorted(order):
        return permute(tensor, (1, 0))

    def make(parts: Sequence[Any]) -> Any:
        import numpy as np

        split = np.split(parts[0], len(order), 1)
        return np.concatenate([split[place] for place in order], 1).T

    return compute_tensor([tensor], shape, make)


def _pick_bias(row: int, order: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    def make(parts: Sequence[Any]) -> Any:
        import numpy as np

        split = np.split(parts[0][row], len(order))
        return np.concatenate([split[place] for place in order])

    return make


@family("Bidirectional")
def bidirectional(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """Both directions of one recurrent layer: ``_l0`` and ``_l0_reverse``."""
    del kind
    inner = config.get("layer")
    if not isinstance(inner, Mapping) or not isinstance(inner.get("config"), Mapping):
        raise NoTorchLayerError("its layer is not described")
    cls = str(inner.get("class_name")).rpartition(">")[2]
    if cls not in GATES:
        raise NoTorchLayerError(f"torch has no {cls} of two directions")
    heads = list(dict.fromkeys(role.split("/")[0] for role in weights.roles))
    if len(heads) != 2 or not heads[0].startswith("forward"):
        raise NoTorchLayerError("its directions cannot be distinguished")
    found = []
    for head, end in zip(heads, ("l0", "l0_reverse"), strict=True):
        own = {r: n for r, n in weights.roles.items() if r.startswith(f"{head}/")}
        found += _recurrent(cls, inner["config"], _shorten_roles(own, weights.tensors), end)
    return found


PROJECTIONS = ("query", "key", "value")


@family("MultiHeadAttention")
def attention(kind: str, config: Config, weights: Weights) -> list[TorchWeight]:
    """Three kernels [E, heads, E/heads] → in_proj_weight [3 E, E]; the output's → [E, E]."""
    del kind, config
    kernels = [weights.take(f"{role}/kernel", 3) for role in PROJECTIONS]
    out, matrix = weights.take("attention_output/kernel", 3)
    size = matrix.shape[2]
    shapes = {(tensor.shape[0], tensor.shape[1] * tensor.shape[2]) for _, tensor in kernels}
    if shapes != {(size, size)} or matrix.shape[0] * matrix.shape[1] != size:
        raise NoTorchLayerError("its heads are not parts of its features")
    sources = tuple(name for name, _ in kernels)
    projections = compute_tensor([t for _, t in kernels], (3 * size, size), _stack_projections)
    output = compute_tensor([matrix], (size, size), lambda parts: parts[0].reshape(size, size).T)
    below = "query, key and value below each other, transposed"
    found = [
        TorchWeight("in_proj_weight", projections, sources, below),
        TorchWeight("out_proj.weight", output, (out,), "heads made one axis, transposed"),
    ]
    known = {f"{role}/kernel" for role in (*PROJECTIONS, "attention_output")}
    if "query/bias" in weights.roles:
        biases = [weights.take(f"{role}/bias", 2) for role in PROJECTIONS]
        last, bias = weights.take("attention_output/bias", 1)
        joined = compute_tensor([t for _, t in biases], (3 * size,), _concatenate)
        names = tuple(name for name, _ in biases)
        found += [
            TorchWeight("in_proj_bias", joined, names, "one behind the other"),
            TorchWeight("out_proj.bias", bias, (last,)),
        ]
        known |= {f"{role}/bias" for role in (*PROJECTIONS, "attention_output")}
    weights.allow_only(*known)
    return found


def _stack_projections(parts: Sequence[Any]) -> Any:
    import numpy as np

    return np.concatenate([part.reshape(part.shape[0], -1).T for part in parts])


def _concatenate(parts: Sequence[Any]) -> Any:
    import numpy as np

    return np.concatenate([part.reshape(-1) for part in parts])


def _bias(weights: Weights, new: str) -> list[TorchWeight]:
    name = weights.roles.get("bias")
    return [] if name is None else [TorchWeight(new, weights.tensors[name], (name,))]


def map_keras_weights(bundle: Bundle, own: Sequence[str]) -> tuple[Bundle, dict[str, JSON], str]:
    """Return a bundle with torch's names and layouts, as far as its layers are known.

    Args:
        bundle: Any bundle; one without a Keras configuration is returned as it is.
        own: Names of the weights that belong to the model, not to training.

    Returns:
        The bundle; the change of each tensor, by its new name; and why a Keras model is unchanged,
        or "".
    """
    if bundle.topology is None or bundle.topology.kind != "keras_config":
        return bundle, {}, ""
    from converter.lower.keras.lowering import model_of
    from converter.lower.keras.weight_mapping import layers_of, map_weights

    weights = {name: bundle.weights[name] for name in own if name in bundle.weights}
    try:
        model = model_of(bundle)
        layers, owners = dict(layers_of(model)), map_weights(model, weights)
    except (UnsupportedError, CorruptError) as e:
        return bundle, {}, f"names and layouts stay Keras's: {e.found}"
    encoded = {part for e in bundle.encodings.values() for part in e.parts.values()}
    found: dict[str, tuple[str, list[TorchWeight]]] = {}  # first tensor of a layer → its own
    changes: dict[str, JSON] = {}
    for path, roles in owners.items():
        if not roles:
            continue
        try:
            layer_weights = _convert_layer(layers[path], roles, weights, encoded)
        except NoTorchLayerError as e:
            reason = f"{layers[path].class_name}: {e}"
            changes |= {
                name: _describe_change((name,), "as it is", reason) for name in roles.values()
            }
        else:
            found[next(iter(roles.values()))] = (_prefix(path, roles), layer_weights)
    return _replace_weights(bundle, found, changes)


def _replace_weights(
    bundle: Bundle, found: Mapping[str, tuple[str, list[TorchWeight]]], changes: dict[str, JSON]
) -> tuple[Bundle, dict[str, JSON], str]:
    """Replace the weights of each converted layer, at the position of its first one."""
    replaced = {
        n for _, layer_weights in found.values() for named in layer_weights for n in named.sources
    }
    weights: dict[str, Tensor] = {}
    notes = dict(bundle.metadata.tensor_notes)
    for name, tensor in bundle.weights.items():
        prefix, layer_weights = found.get(name, ("", []))
        for named in layer_weights:
            new = f"{prefix}.{named.name}"
            if new in weights or (new in bundle.weights and new not in replaced):
                why = f"names and layouts stay Keras's: two weights would be called {new}"
                return bundle, {}, why
            weights[new] = named.tensor
            changes[new] = _describe_change(named.sources, named.layout)
            if len(named.sources) == 1 and named.sources[0] in notes:
                notes[new] = notes[named.sources[0]]
        if name not in replaced:
            weights[name] = tensor
    metadata = replace(bundle.metadata, tensor_notes=notes)
    return replace(bundle, weights=weights, metadata=metadata), changes, ""


def _convert_layer(
    layer: "Layer", roles: Roles, tensors: Mapping[str, Tensor], encoded: Set[str]
) -> list[TorchWeight]:
    if not encoded.isdisjoint(roles.values()):
        raise NoTorchLayerError("its weights are encoded")
    if layer.module is not None and layer.module.partition(".")[0] not in KERAS:
        raise NoTorchLayerError(f"its class is of {layer.module}")
    kind, config = layer.class_name, layer.config
    while kind in ("TimeDistributed", "Keras2TimeDistributed"):
        inner = config.get("layer")
        if not isinstance(inner, Mapping) or not isinstance(inner.get("config"), Mapping):
            raise NoTorchLayerError("its layer is not described")
        kind, config = str(inner.get("class_name")).rpartition(">")[2], inner["config"]
    function = FAMILIES.get(kind.removeprefix("CuDNN"))
    if function is None:
        raise NoTorchLayerError("torch.nn has no such layer")
    if kind in ("Bidirectional", "MultiHeadAttention"):
        return function(kind, config, Weights(roles, tensors))
    joined: Mapping[str, tuple[str, ...]] = {}
    if function is recurrent:
        kind, roles, tensors, joined = _current_cell(kind, config, roles, tensors)
    found = function(kind, config, _shorten_roles(roles, tensors))
    return [
        replace(named, sources=tuple(x for n in named.sources for x in joined.get(n, (n,))))
        for named in found
    ]


def _current_cell(
    kind: str, config: Config, roles: Roles, tensors: Mapping[str, Tensor]
) -> tuple[str, Roles, Mapping[str, Tensor], Mapping[str, tuple[str, ...]]]:
    """Return a recurrent layer's weights in the layout of the current Keras.

    Returns:
        The class; the weights by role; the tensors; and the sources of those that are computed.
    """
    plain = kind.removeprefix("CuDNN")
    names, count = list(roles.values()), len(GATES[plain])
    by_role = dict(zip(RECURRENT, names, strict=False))
    if count > 1 and len(names) == 3 * count:  # Keras 1: each gate's own
        stored = [join_gates(names[i::3], KERAS1_GATES[plain]) for i in range(3)]
        ready = {n: s.tensor(tensors) for n, s in zip(names, stored, strict=False)}
        return plain, by_role, ready, {n: tuple(names[i::3]) for i, n in enumerate(names[:3])}
    if len(names) > 3:
        raise NoTorchLayerError(f"it has {len(names)} weights")
    units = config.get("units", 0)
    if len(names) == 3 and count > 1 and tensors[names[-1]].shape == (2 * count * units,):
        stored = from_cudnn(names, units, count, reset_after=plain == "GRU")
        ready = {n: s.tensor(tensors) for n, s in zip(names, stored, strict=True)}
        return plain, by_role, ready, {}
    if all(role.isdigit() for role in roles):  # known by their order alone
        return plain, by_role, tensors, {}
    return plain, roles, tensors, {}


def _shorten_roles(roles: Roles, tensors: Mapping[str, Tensor]) -> Weights:
    """Return weights by the last part of their roles, if these are distinct."""
    short = {role.rpartition("/")[2]: name for role, name in roles.items()}
    return Weights(short if len(short) == len(roles) else roles, tensors)


def _prefix(path: Sequence[str], roles: Roles) -> str:
    """Return the layer's name in torch: the bundle's name for it, with dots."""
    labels = {name.removesuffix(f"/{role}") for role, name in roles.items()
              if name.endswith(f"/{role}")}  # fmt: skip
    label = labels.pop() if len(labels) == 1 else "/".join(path)
    return label.replace("/", ".")


def _describe_change(sources: Sequence[str], layout: str, reason: str = "") -> JSON:
    entry: dict[str, JSON] = {"from": list(sources), "layout": layout}
    return entry | ({"reason": reason} if reason else {})
