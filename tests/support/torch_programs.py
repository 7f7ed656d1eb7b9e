"""Programs that take, yield and decide things otherwise than the zoo's; trusted by tests."""

import torch
from torch import Tensor, nn


class Many(nn.Module):
    """Inputs of several types, one with a default, and outputs in a dict and a tuple."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.dense = nn.Linear(6, 6)

    def forward(self, ids: Tensor, scale: Tensor, mask: Tensor):
        x = self.dense(self.table(ids)) * scale
        kept = torch.where(mask.unsqueeze(-1), x, torch.zeros_like(x))
        return {"hidden": kept, "pooled": (kept.sum(1), kept.amax(1))}


class Optional(nn.Module):
    """An input that may be left away, and one behind it."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None, shift: Tensor | None = None):
        y = self.dense(x)
        if mask is not None:
            y = y * mask
        if shift is not None:
            y = y + shift
        return y


class Decides(nn.Module):
    """What it computes depends on the numbers that it is given."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dense(x)
        if bool(x.sum() > 0):
            y = torch.relu(y)
        else:
            y = y * 3.0
            y = y + 1.0
        return y


class Rolls(nn.Module):
    """Loops over a size, with lists, tuples and numbers."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.names = ["a", "b"]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.zeros(x.size(0), 4)
        seen: list[Tensor] = []
        for i in range(x.size(1)):
            state = torch.tanh(self.cell(x[:, i] + state))
            if i % 2 == 0 or len(self.names) > 5:
                seen.append(state)
        assert x.dim() == 3, "three axes"
        return torch.stack(seen, 1), state * float(len(seen)) / 2


class Buffers(nn.Module):
    """Half and integer tensors, and one that is no parameter and no buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3000, dtype=torch.float16))
        self.register_buffer("shift", torch.arange(3000))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.float() + self.shift


class Encoder(nn.Module):
    """Attention that torch fuses where no gradients are wanted."""

    def __init__(self):
        super().__init__()
        first = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        second = nn.TransformerEncoderLayer(
            8, 4, 12, batch_first=True, norm_first=True, activation="gelu"
        )
        self.layers = nn.ModuleList([first, second])
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.attention(x, x, x, need_weights=False)[0]


def make(dim: int = 4, *, tall: bool = False) -> nn.Module:
    """A factory with arguments."""
    return nn.Sequential(nn.Linear(dim, 5), nn.ReLU(), nn.Linear(5, 3 if tall else 2))
