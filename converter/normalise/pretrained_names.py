"""Weights of transformers' Flax and TensorFlow classes, with the names and layouts of torch's.

transformers 5 has classes for torch alone, and torch's names. The rules are those by which
transformers 4 loaded such weights into them; a tensor becomes one tensor, none is computed.
Spec: https://github.com/huggingface/transformers/blob/v4.57.6/src/transformers/
modeling_flax_pytorch_utils.py and modeling_tf_pytorch_utils.py
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from converter.normalise.layouts import permute, reshape
from formats import hugging_face
from formats.core import digests
from formats.core.bundle import Bundle, LeftOut, Normalisation
from formats.core.weights import Tensor
from formats.errors import CorruptError

FLAX_NAMES = {
    "kernel": "weight", "scale": "weight", "embedding": "weight",
    "mean": "running_mean", "var": "running_var",
}  # fmt: skip
TENSORFLOW_NAMES = {
    "kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias",
    "pointwise_kernel": "pointwise.weight", "depthwise_kernel": "depthwise.weight",
    "moving_mean": "running_mean", "moving_variance": "running_var",
}  # fmt: skip
COLLECTIONS = ("params", "batch_stats")  # of Flax's variables, where there are several
# weight_g is that of a convolution whose norm is kept apart.
KERNELS = ("kernel", "pointwise_kernel", "depthwise_kernel", "weight_g")
WITH_AXIS = {"bias": 2, "logit_scale": 1}  # axes, where the first of size 1 is TensorFlow's own
MATRICES = {"emb_projs", "out_projs"}  # of Transformer-XL, which are no kernels
IMAGE_KERNEL = 4  # axes


class Renamed(NamedTuple):
    """A tensor's name in torch, and the tensor as torch has it."""

    name: str
    tensor: Tensor


def rename_for_torch(bundle: Bundle) -> Bundle:
    """Return a folder's weights as torch's classes have them; any other bundle as it is.

    Raises:
        CorruptError: Two tensors have the same name in torch, and other values.
    """
    rename = RULES.get(bundle.metadata.format)
    topology = bundle.topology
    if rename is None or topology is None or topology.kind != hugging_face.KIND:
        return bundle
    weights: dict[str, Tensor] = {}
    left_out = []
    turned = 0
    for name, tensor in bundle.weights.items():
        renamed = rename(name, tensor)
        known = weights.get(renamed.name)
        if known is None:
            weights[renamed.name] = renamed.tensor
            turned += renamed.tensor is not tensor
        elif digests.of_tensor(known) == digests.of_tensor(renamed.tensor):
            left_out.append(LeftOut(name, "another copy of a variable that several layers share"))
        else:
            raise CorruptError(f"{name!r} is {renamed.name!r} in torch, as another tensor is")
    detail = f"as in transformers' torch classes; the layout of {turned} is another, too"
    change = Normalisation("tensors renamed", len(weights), detail)
    about = bundle.metadata
    metadata = replace(
        about,
        normalisations=(*about.normalisations, change),
        left_out=(*about.left_out, *left_out),
    )
    return replace(bundle, weights=weights, metadata=metadata)


def _of_flax(name: str, tensor: Tensor) -> Renamed:
    """Return a tensor of Flax as torch has it, by its path."""
    *modules, last = name.split("/")
    if modules and modules[0] in COLLECTIONS:
        del modules[0]
    for i in range(len(modules) - 1, 0, -1):  # `layer/layer_0` is `layer.0`
        modules[i] = re.sub(rf"{re.escape(modules[i - 1])}_(\d+)", r"\1", modules[i])
    renamed = ".".join([*modules, FLAX_NAMES.get(last, last)])
    return Renamed(renamed, _turn_kernel(tensor) if last == "kernel" else tensor)


def _of_tensorflow(name: str, tensor: Tensor) -> Renamed:
    """Return a variable of TensorFlow as torch has it, by its path in the file."""
    del name  # it lacks the scopes in front of a layer's
    shard, _, path = tensor.origin.partition(":/")
    is_sharded = shard.endswith(".h5")
    variable = path if is_sharded else tensor.origin.removeprefix("/").partition("/")[2]
    variable = re.sub(r":\d+$", "", variable)
    # `a___b` is `b` in torch, and `a_._b` is `a.b`.
    variable = re.sub(r"/[^/]*___([^/]*)/", r"/\1/", variable).replace("_._", "/")
    levels = [level for level in variable.split("/") if level]
    if not is_sharded and len(levels) > 1:
        del levels[0]  # the model's own name
    *modules, last = levels
    if last in KERNELS or not MATRICES.isdisjoint(levels):
        tensor = _turn_kernel(tensor)
    elif tensor.shape[:1] == (1,) and len(tensor.shape) == WITH_AXIS.get(last):
        tensor = reshape(tensor, tensor.shape[1:])
    return Renamed(".".join([*modules, TENSORFLOW_NAMES.get(last, last)]), tensor)


def _turn_kernel(tensor: Tensor) -> Tensor:
    """Return a kernel of [spatial…, in, out] as torch has it, [out, in, spatial…]."""
    rank = len(tensor.shape)
    return permute(tensor, (3, 2, 0, 1) if rank == IMAGE_KERNEL else range(rank)[::-1])


# Format of the folder -> the rule.
RULES: Mapping[str, Callable[[str, Tensor], Renamed]] = {
    "flax": _of_flax,
    "hf-tensorflow": _of_tensorflow,
}
