"""Normalization by mean and variance."""

from typing import Any

from converter.write.torch.graph_module.operators import (
    NotSupportedError,
    Tensor,
    operator,
    torch,
)

F: Any = torch.nn.functional


@operator("BatchNormalization")
def normalize_batch(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> Tensor:  # fmt: skip
    """Normalize each channel by recorded statistics."""
    del momentum
    if training_mode:
        raise NotSupportedError("BatchNormalization in training mode")
    return F.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


@operator("InstanceNormalization")
def normalize_instance(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Normalize each channel of each example by its own statistics."""
    axes = [*range(2, x.ndim)]
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    shape = [1, -1, *[1] * len(axes)]
    return (x - mean) / torch.sqrt(variance + epsilon) * scale.reshape(shape) + bias.reshape(shape)


@operator("LayerNormalization")
def normalize_layer(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1,
    epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1,
) -> list[Tensor]:  # fmt: skip
    """Normalize over the last axes."""
    wide = x.float() if stash_type == 1 and x.dtype.itemsize < 4 else x
    axes = [*range(axis % x.ndim, x.ndim)]
    variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
    factor = torch.rsqrt(variance + epsilon)
    made = ((wide - mean) * factor).to(x.dtype) * scale
    return [made if bias is None else made + bias, mean, factor][:outputs]


@operator("RMSNormalization")
def normalize_mean_square(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Divide by the root of the mean square over the last axes."""
    wide = x.float() if stash_type == 1 and x.dtype.itemsize < 4 else x
    axes = [*range(axis % x.ndim, x.ndim)]
    factor = torch.rsqrt(torch.mean(wide * wide, axes, keepdim=True) + epsilon)
    return (wide * factor).to(x.dtype) * scale


@operator("GroupNormalization")
def normalize_groups(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:  # fmt: skip
    """Normalize groups of channels."""
    del stash_type
    if scale.shape[0] == num_groups != x.shape[1]:
        repeats = x.shape[1] // num_groups
        scale, bias = (t.repeat_interleave(repeats) for t in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("MeanVarianceNormalization")
def standardize(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """Subtract the mean and divide by the standard deviation."""
    along = axes if axes is not None else [0, 2, 3]
    variance, mean = torch.var_mean(x, along, correction=0, keepdim=True)
    return (x - mean) / (torch.sqrt(variance) + 1e-9)
