"""Six small torch models as libraries write them, and the five forms in which people keep them.

Imported where torch is, and by children that trust it: it needs torch and nothing of
the project. Every model is seeded, in eval mode, and its batch normalisations have seen data, so
that no statistic is zero or one. Inputs are named, with which of their axes are dynamic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - everybody calls it that

SEED = 20
FORMS = ("state_dict", "module", "trace", "script", "pt2")


# -- ResNet18, as torchvision writes it -----------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(width, width), BasicBlock(width, width))
        self.layer2 = self._layer(width, 2 * width)
        self.layer3 = self._layer(2 * width, 4 * width)
        self.layer4 = self._layer(4 * width, 8 * width)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def _layer(inplanes: int, planes: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(inplanes, planes, 2), BasicBlock(planes, planes))

    def forward(self, image: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


# -- MobileNetV3: inverted residuals, squeeze and excitation, hard swish --------------------------


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.activation(self.fc1(self.avgpool(x)))
        return self.scale_activation(self.fc2(scale)) * x


def conv_bn(
    inplanes: int, planes: int, kernel: int, stride: int, groups: int, act: type[nn.Module] | None
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inplanes, planes, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(planes, eps=0.001, momentum=0.01),
    ]
    if act is not None:
        layers.append(act(inplace=True))
    return nn.Sequential(*layers)


class InvertedResidual(nn.Module):
    def __init__(
        self, inplanes: int, expanded: int, planes: int, stride: int, *,
        se: bool, act: type[nn.Module],
    ) -> None:  # fmt: skip
        super().__init__()
        self.use_res_connect = stride == 1 and inplanes == planes
        layers: list[nn.Module] = [
            conv_bn(inplanes, expanded, 1, 1, 1, act),
            conv_bn(expanded, expanded, 5 if se else 3, stride, expanded, act),
        ]
        if se:
            layers.append(SqueezeExcitation(expanded, 8))
        layers.append(conv_bn(expanded, planes, 1, 1, 1, None))
        self.block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        result = self.block(x)
        if self.use_res_connect:
            result += x
        return result


class MobileNet(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(3, 8, 3, 2, 1, nn.Hardswish),
            InvertedResidual(8, 16, 8, 1, se=True, act=nn.ReLU),
            InvertedResidual(8, 24, 12, 2, se=False, act=nn.ReLU6),
            InvertedResidual(12, 24, 12, 1, se=True, act=nn.Hardswish),
            conv_bn(12, 32, 1, 1, 1, nn.Hardswish),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(32, 24), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(24, classes)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = self.avgpool(self.features(image))
        return self.classifier(torch.flatten(x, 1))


# -- Swin: windows, shifted windows, relative positions, merging of patches -----------------------


class WindowAttention(nn.Module):
    relative_position_index: Tensor

    def __init__(self, dim: int, window: int, shift: int, heads: int) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        table = torch.zeros((2 * window - 1) ** 2, heads)
        self.relative_position_bias_table = nn.Parameter(table)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.5)
        axes = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        coords = torch.stack(axes).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + window - 1
        index = relative[..., 0] * (2 * window - 1) + relative[..., 1]
        self.register_buffer("relative_position_index", index.flatten())

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        w, shift, heads = self.window, self.shift, self.heads
        if shift > 0:
            x = torch.roll(x, shifts=(-shift, -shift), dims=(1, 2))
        windows = (height // w) * (width // w)
        x = x.view(batch, height // w, w, width // w, w, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch * windows, w * w, channels)
        qkv = self.qkv(x).reshape(x.size(0), x.size(1), 3, heads, channels // heads)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * (channels // heads) ** -0.5, qkv[1], qkv[2]
        attention = q.matmul(k.transpose(-2, -1))
        bias = self.relative_position_bias_table[self.relative_position_index]
        attention = attention + bias.view(w * w, w * w, heads).permute(2, 0, 1).unsqueeze(0)
        if shift > 0:
            mask = x.new_zeros((height, width))
            ranges = ((0, -w), (-w, -shift), (-shift, 1 << 30))
            count = 0
            for a, b in ranges:
                for c, d in ranges:
                    mask[a:b, c:d] = count
                    count += 1
            mask = mask.view(height // w, w, width // w, w).permute(0, 2, 1, 3)
            mask = mask.reshape(windows, w * w)
            mask = mask.unsqueeze(1) - mask.unsqueeze(2)
            mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
            attention = attention.view(batch, windows, heads, w * w, w * w)
            attention = attention + mask.unsqueeze(1).unsqueeze(0)
            attention = attention.view(-1, heads, w * w, w * w)
        attention = F.softmax(attention, dim=-1)
        x = attention.matmul(v).transpose(1, 2).reshape(batch * windows, w * w, channels)
        x = self.proj(x).view(batch, height // w, width // w, w, w, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        if shift > 0:
            x = torch.roll(x, shifts=(shift, shift), dims=(1, 2))
        return x


class SwinBlock(nn.Module):
    def __init__(self, dim: int, window: int, shift: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-5)
        self.attn = WindowAttention(dim, window, shift, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-5)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[..., 0::2, 0::2, :], x[..., 1::2, 0::2, :],
                 x[..., 0::2, 1::2, :], x[..., 1::2, 1::2, :]]  # fmt: skip
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Permute(nn.Module):
    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return torch.permute(x, self.dims)


class Swin(nn.Module):
    def __init__(self, dim: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, dim, 4, 4), Permute([0, 2, 3, 1]), nn.LayerNorm(dim)),
            nn.Sequential(SwinBlock(dim, 4, 0, 2), SwinBlock(dim, 4, 2, 2)),
            PatchMerging(dim),
            nn.Sequential(SwinBlock(2 * dim, 2, 0, 4), SwinBlock(2 * dim, 2, 1, 4)),
        )
        self.norm = nn.LayerNorm(2 * dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.norm(self.features(image)).permute(0, 3, 1, 2)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


# -- ViT: torch's own attention, a class token, learned positions ---------------------------------


class EncoderBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.ln_1(tokens)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + tokens
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, dim: int = 16, classes: int = 10, size: int = 32) -> None:
        super().__init__()
        self.hidden = dim
        self.conv_proj = nn.Conv2d(3, dim, 8, 8)
        self.class_token = nn.Parameter(torch.randn(1, 1, dim))
        self.pos_embedding = nn.Parameter(torch.randn(1, (size // 8) ** 2 + 1, dim) * 0.2)
        self.layers = nn.Sequential(EncoderBlock(dim, 2), EncoderBlock(dim, 4))
        self.ln = nn.LayerNorm(dim, eps=1e-6)
        self.heads = nn.Linear(dim, classes)

    def forward(self, image: Tensor) -> Tensor:
        n = image.shape[0]
        x = self.conv_proj(image).reshape(n, self.hidden, -1).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(n, -1, -1), x], dim=1) + self.pos_embedding
        return self.heads(self.ln(self.layers(x))[:, 0])


# -- an LSTM that tags words, two layers, both directions -----------------------------------------


class Tagger(nn.Module):
    def __init__(self, words: int = 50, dim: int = 12, hidden: int = 10, tags: int = 7) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.fc = nn.Linear(2 * hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return F.log_softmax(self.fc(states), dim=-1)


# -- a decoder with a causal mask, its head tied to its embedding ---------------------------------


class CausalAttention(nn.Module):
    bias: Tensor

    def __init__(self, dim: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(dim, 3 * dim)
        self.c_proj = nn.Linear(dim, dim)
        mask = torch.tril(torch.ones(context, context)).view(1, 1, context, context)
        self.register_buffer("bias", mask)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        attention = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        attention = attention.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(attention, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class FusedAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class DecoderBlock(nn.Module):
    def __init__(self, dim: int, attention: nn.Module) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = attention
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    def __init__(self, words: int = 50, dim: int = 16, context: int = 24) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, dim)
        self.wpe = nn.Embedding(context, dim)
        self.blocks = nn.Sequential(
            DecoderBlock(dim, CausalAttention(dim, 2, context)),
            DecoderBlock(dim, FusedAttention(dim, 4)),
        )
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(0, tokens.size(1), dtype=torch.long, device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        return self.lm_head(self.ln_f(self.blocks(x)))


# -- the zoo --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Animal:
    """A model of the zoo.

    Attributes:
        make: The class: ``tests.torch_zoo:<name>`` is its factory.
        input: Name of its one input.
        draw: Makes an input for a batch size.
        option: ``--input`` for it, its batch (and the length of texts) dynamic.
    """

    make: Callable[[], nn.Module]
    input: str
    draw: Callable[[int], Tensor]
    option: str

    @property
    def factory(self) -> str:
        """What ``--arch`` calls it."""
        return f"torch_zoo:{self.make.__name__}"  # type: ignore[attr-defined]


def _image(batch: int, *, size: int) -> Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(batch))


def _words(batch: int, *, length: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(0, 50, (batch, length), generator=generator)


def _pictures(make: Callable[[], nn.Module], size: int) -> Animal:
    return Animal(make, "image", partial(_image, size=size), f"image:float32:batch,3,{size},{size}")


ZOO: dict[str, Animal] = {
    "resnet": _pictures(ResNet, 40),
    "mobilenet": _pictures(MobileNet, 32),
    "swin": _pictures(Swin, 32),
    "vit": _pictures(ViT, 32),
    "tagger": Animal(Tagger, "tokens", _words, "tokens:int64:batch,9"),
    "decoder": Animal(Decoder, "tokens", _words, "tokens:int64:batch,9"),
}


def build(name: str) -> nn.Module:
    """Return a model: seeded, its statistics live, in eval mode."""
    torch.manual_seed(SEED)
    animal = ZOO[name]
    model = animal.make()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
    model.train()
    with torch.no_grad():
        for batch in (4, 6):
            model(animal.draw(batch))
    model.eval()
    for parameter in model.parameters():  # no two outputs of dead units
        if parameter.ndim == 1:
            parameter.data += 0.01 * torch.randn_like(parameter)
    return model


def save(name: str, form: str, path: Path, model: nn.Module | None = None) -> Path:
    """Write a model of the zoo in one of `FORMS`, and return where.

    A ``.pt2`` has a dynamic batch; a trace was made with a batch of two.
    """
    animal, model = ZOO[name], build(name) if model is None else model
    example = animal.draw(2)
    if form == "state_dict":
        torch.save(model.state_dict(), path)
    elif form == "module":
        torch.save(model, path)
    elif form == "trace":
        # Without gradients, attention goes another way: the check would compare the two ways.
        torch.jit.trace(model, example, check_trace=False).save(str(path))
    elif form == "script":
        torch.jit.script(model).save(str(path))
    else:
        shapes: dict[str, Any] = {animal.input: {0: torch.export.Dim("batch", min=1, max=64)}}
        torch.export.save(torch.export.export(model, (example,), dynamic_shapes=shapes), path)
    return path


if (
    __name__ == "__main__"
):  # python tests/support/torch_zoo.py FOLDER: all of them, and what they yield
    import sys

    import numpy as np

    folder = Path(sys.argv[1])
    for called in ZOO:
        made = build(called)
        for kind in FORMS:
            save(called, kind, folder / f"{called}-{kind}.{'pt2' if kind == 'pt2' else 'pt'}", made)
        for number in (1, 3):
            x = ZOO[called].draw(number)
            with torch.no_grad():
                np.savez(folder / f"{called}-{number}.npz", x=x.numpy(), y=made(x).numpy())
