"""Heads: what is learned on top of a tower, from its vectors into the space that sounds and texts share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.errors import ConfigError
from earmark.model.cnn import kaiming
from earmark.model.yamnet import CLASSES, EMBEDDING


class AsIs(nn.Module):
    """The vectors as they are, times a 1 that tells where the model is and gives the optimiser something to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """[item, dim] of [item, dim]."""
        return x * self.one


class Residual(nn.Module):
    """x + scale · W x, of x brought to unit length, W zero at the start: what is there stays, and learning adds."""

    def __init__(self, dim: int, scale: float, dropout: float = 0.0) -> None:
        """`dropout` is that of x on its way to W."""
        super().__init__()
        self.scale = scale
        self.dropout = dropout
        self.linear = nn.Linear(dim, dim)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[item, dim] of [item, dim]."""
        x = F.normalize(x, dim=1)
        out: Tensor = x + self.scale * self.linear(F.dropout(x, self.dropout, self.training))
        return out


class PannsHead(nn.Module):
    """Dropout, Linear, ReLU, dropout, Linear: the paper's authors' head; the first layer is in PANNs' checkpoints."""

    def __init__(self, size: int, dim: int, *, hidden: int = 0, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        self.fc1 = nn.Linear(size, hidden or size)
        self.out = nn.Linear(hidden or size, dim)
        self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        """[clip, dim] of [clip, size]."""
        x = F.relu(self.fc1(F.dropout(x, self.dropout, self.training)))
        out: Tensor = self.out(F.dropout(x, self.dropout, self.training))
        return out


class Bridge(nn.Module):
    """From YAMNet to the texts' space: Σ √p · t over classes, at unit length, plus scale · W x, W zero at the start.

    p are the class probabilities, t the text vectors of the class names, x the 1,024 values below the classes and the
    vectors of the other towers, each part at unit length. Without training it is a text-like vector of the clip.
    """

    classes: Tensor

    def __init__(self, dim: int, scale: float, *, others: int = 0, dropout: float = 0.0) -> None:
        """`others` are the numbers that other towers add to YAMNet's; dropout is that of x."""
        super().__init__()
        if others < 0:
            raise ConfigError(f"audio.bridge over {EMBEDDING + CLASSES + others} numbers; YAMNet gives more.")
        self.sizes = [EMBEDDING, CLASSES, others]
        self.scale = scale
        self.dropout = dropout
        self.register_buffer("classes", torch.zeros(CLASSES, dim))
        self.linear = nn.Linear(EMBEDDING + others, dim)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.linear.requires_grad_(scale > 0)

    def forward(self, x: Tensor) -> Tensor:
        """[clip, dim] of [clip, 1,024 + classes + others]."""
        embedding, probabilities, others = x.split(self.sizes, dim=1)
        named = F.normalize(probabilities.clamp_min(0).sqrt() @ self.classes, dim=1)
        heard = torch.cat([F.normalize(embedding, dim=1), F.normalize(others, dim=1)], dim=1)
        out: Tensor = named + self.scale * self.linear(F.dropout(heard, self.dropout, self.training))
        return out
