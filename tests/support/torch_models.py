"""Small modules that tests give to torch; a child that is to open a pickle of one trusts this."""

import torch
from torch import Tensor, nn


class Heads(nn.Module):
    """Two inputs, two outputs, and state that is no parameter."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(6, 4, bias=False)
        self.register_buffer("factor", torch.tensor(1.5))

    def forward(self, alpha: Tensor, zeta: Tensor):
        near = torch.tanh(self.first(zeta)) * self.factor
        return self.second(alpha) - near, near


class Other(nn.Module):
    def __init__(self, hidden=4):
        super().__init__()
        self.first = nn.Linear(6, hidden)
        self.third = nn.Linear(6, 4)

    def forward(self, alpha, zeta):
        return self.first(alpha), self.third(zeta)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.count


class Noisy(nn.Module):
    def forward(self, x: Tensor):
        return x + torch.rand_like(x), x * 2


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) * 2


class Many(nn.Module):
    def forward(self, x: Tensor, parts: list[Tensor]):
        return (
            {"z": x * 2, "a": parts[0] + parts[1]},
            (x.sum(), [x - 1]),
            x.shape[1],
        )


class Scalars(nn.Module):
    def forward(self, x: Tensor, n: int, scale: float, other: Tensor | None = None) -> Tensor:
        y = x * scale + n
        return y if other is None else y + other


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.relu(self.one(x)))
