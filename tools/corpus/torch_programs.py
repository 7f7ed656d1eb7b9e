"""What some state dicts and pickles of the corpus are of: the least that has their keys.

Written from the shapes of their tensors and what their repositories' readers say they compute; test
data, for the weights of strangers need a program to be run.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


class Mnist(nn.Module):
    """ThoAus/learn-ligthning: two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Net(nn.Module):
    """tracel-ai/burn: digits, with convolutions; its pickle calls the class ``__main__.Net``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.conv3 = nn.Conv2d(16, 24, 3)
        self.norm1 = nn.BatchNorm2d(24)
        self.dropout1 = nn.Dropout(0.3)
        self.fc1 = nn.Linear(24 * 22 * 22, 32)
        self.fc2 = nn.Linear(32, 10)
        self.norm2 = nn.BatchNorm1d(10)

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            x = F.relu(conv(x))
        x = self.dropout1(self.norm1(x)).flatten(1)
        return F.log_softmax(self.norm2(self.fc2(F.relu(self.fc1(x)))), dim=1)


class ActorCritic(nn.Module):
    """nikhilbarhate99/PPO-PyTorch: two small networks."""

    def __init__(self) -> None:
        super().__init__()

        def network(outputs: int) -> list[nn.Module]:
            return [
                nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
            ]  # fmt: skip

        self.actor = nn.Sequential(*network(4), nn.Tanh())
        self.critic = nn.Sequential(*network(1))

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(state), self.critic(state)


class RNet(nn.Module):
    """timesler/facenet-pytorch: the second of three that find faces."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 28, 3)
        self.prelu1 = nn.PReLU(28)
        self.conv2 = nn.Conv2d(28, 48, 3)
        self.prelu2 = nn.PReLU(48)
        self.conv3 = nn.Conv2d(48, 64, 2)
        self.prelu3 = nn.PReLU(64)
        self.dense4 = nn.Linear(576, 128)
        self.prelu4 = nn.PReLU(128)
        self.dense5_1 = nn.Linear(128, 2)
        self.dense5_2 = nn.Linear(128, 4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = F.max_pool2d(self.prelu1(self.conv1(image)), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.prelu2(self.conv2(x)), 3, 2, ceil_mode=True)
        x = self.prelu3(self.conv3(x)).permute(0, 3, 2, 1).contiguous()
        x = self.prelu4(self.dense4(x.flatten(1)))
        return self.dense5_2(x), torch.softmax(self.dense5_1(x), dim=1)


class Normed(nn.Module):
    """tracel-ai/burn: one normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(5)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm1(x)


class Shifted(nn.Module):
    """tracel-ai/burn: one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.zeros(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.buffer
