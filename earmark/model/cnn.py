"""PANNs' convolutional networks: CNN6, CNN10 and CNN14, from log-mels to one vector a clip.

Kong et al., 2020, as the paper's authors use CNN14: 2 × 2 pooling after every block. Parameters bear the names of
the published checkpoints. Batch-norm counts the clips' own frames only, so padding changes nothing, in training too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.audio.logmel import PAPER, LogMel, least_samples
from earmark.errors import DataError
from earmark.model.towers import LogMelTower

FEW_BANDS = 4
"""Maps of so many bands or fewer are convolved by a matrix product."""


class Cnn(LogMelTower):
    """Blocks of convolutions over the log-mel, mean over bands, maximum + mean over time: [clip, size]."""

    in_bf16 = True
    kernels: tuple[int, ...]
    """Sizes of the kernels within a block."""
    widths: tuple[int, ...]
    """Channels of the blocks, in units of `width`."""
    last_pool: int = 2
    """Of the last block: 2 halves frames and bands as the others do, 1 keeps them."""
    remedy: str = "Use audio.width = 64, and audio.hidden = 0."
    """What to do where a checkpoint does not fit."""

    def __init__(self, *, width: int = 64, dropout: float = 0.2, settings: LogMel = PAPER) -> None:
        """`width` are the channels of the first block, 64 as published; `dropout` is that of the blocks."""
        pools = [2] * (len(self.widths) - 1) + [self.last_pool]
        super().__init__(settings, least_samples(math.prod(pools), settings.rate, settings))
        self.dropout = dropout
        self.size = width * self.widths[-1]
        channels = [1, *(width * each for each in self.widths)]
        self.bn0 = nn.BatchNorm2d(settings.n_mels)
        for place, (inputs, outputs) in enumerate(pairwise(channels), start=1):
            self.add_module(f"conv_block{place}", _ConvBlock(inputs, outputs, self.kernels, pools[place - 1]))
        self.apply(kaiming)

    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """[clip, size] from log-mels [frame, band] of 2^blocks frames or more."""
        return _pooled(*self.steps(windows))

    def steps(self, windows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """[clip, step, size], the mean over bands of what the blocks make of log-mels, and how many are each clip's."""
        device = self.bn0.weight.device
        lengths = torch.tensor([len(each) for each in windows], device=device)
        x = nn.utils.rnn.pad_sequence([each.to(device) for each in windows], batch_first=True)  # [clip, frame, band]
        x = _norm(self.bn0, x.unsqueeze(2), lengths).transpose(2, 3)  # bands are what bn0 normalises
        for place in range(len(self.widths)):
            block = self.get_submodule(f"conv_block{place + 1}")
            assert isinstance(block, _ConvBlock)
            x = F.dropout(block(x, lengths), self.dropout, self.training)
            lengths = lengths // block.pool
        return x.mean(dim=2), lengths

    def load(self, path: Path, fc1: nn.Linear | None = None) -> None:
        """Takes the layers, and `fc1` on top of them, from a published checkpoint of PANNs.

        Raises `DataError` where the file is none, or names or shapes differ.
        """
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever the bytes make it raise
            raise DataError(f"{path}: not a PANNs checkpoint ({type(error).__name__}). Download it again.") from error
        state = state.get("model", state) if isinstance(state, dict) else {}
        above = {f"fc1.{name}": value for name, value in fc1.state_dict().items()} if fc1 else {}
        own = self.state_dict() | above
        state = state if isinstance(state, dict) else {}
        wrong = [name for name, value in own.items() if getattr(state.get(name), "shape", None) != value.shape]
        if wrong:
            raise DataError(
                f"{path}: {len(wrong)} of {len(own)} layers are missing or of another shape, {wrong[0]} first; "
                f"expected {type(self).__name__} of 64 bands. {self.remedy}"
            )
        self.load_state_dict({name: state[name] for name in self.state_dict()})
        if fc1:
            fc1.load_state_dict({name: state[f"fc1.{name}"] for name in fc1.state_dict()})


class Cnn14(Cnn):
    """CNN14: six blocks of two 3 × 3 convolutions. Six poolings need 64 frames."""

    kernels = (3, 3)
    widths = (1, 2, 4, 8, 16, 32)


class Cnn10(Cnn):
    """CNN10: four blocks of two 3 × 3 convolutions."""

    kernels = (3, 3)
    widths = (1, 2, 4, 8)


class Cnn6(Cnn):
    """CNN6: four blocks of one 5 × 5 convolution."""

    kernels = (5,)
    widths = (1, 2, 4, 8)


CNNS: dict[str, type[Cnn]] = {"cnn14": Cnn14, "cnn10": Cnn10, "cnn6": Cnn6}


class _ConvBlock(nn.Module):
    """(Convolution, batch-norm, ReLU) once or twice, then average pooling. Frames past a clip's end stay 0.

    x is [clip, frame, band, channel] in memory throughout ("channels last"), which is what processors and GPUs
    convolve fastest.
    """

    def __init__(self, inputs: int, outputs: int, kernels: Sequence[int], pool: int = 2) -> None:
        super().__init__()
        self.steps, self.pool = len(kernels), pool
        for step, kernel in enumerate(kernels, start=1):
            convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
            self.add_module(f"conv{step}", convolution.to(memory_format=torch.channels_last))  # type: ignore[call-overload]
            self.add_module(f"bn{step}", nn.BatchNorm2d(outputs))
            inputs = outputs

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[clip, frame, band, channel] → 1 / `pool` of the frames and bands."""
        for step in range(1, self.steps + 1):
            convolution, norm = self.get_submodule(f"conv{step}"), self.get_submodule(f"bn{step}")
            assert isinstance(convolution, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            x = _norm(norm, _convolved(convolution, x), lengths, F.relu)
        x = F.avg_pool2d(x.permute(0, 3, 1, 2), self.pool).permute(0, 2, 3, 1)
        own = _own(lengths // self.pool, x.shape[1])  # an odd last frame goes, in a batch as alone
        return x if own.all() else x * own[:, :, None, None]


def _convolved(convolution: nn.Conv2d, x: Tensor) -> Tensor:
    """The convolution of x [clip, frame, band, channel], padded so that frames and bands stay.

    Where few bands are left, and many channels, it is one matrix product over the kernel's places side by side: up to
    three times as fast as the library's convolution there.
    """
    if x.shape[2] > FEW_BANDS:
        convolved: Tensor = convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return convolved
    frames, bands = x.shape[1:3]
    size, pad = convolution.kernel_size[0], convolution.kernel_size[0] // 2
    x = F.pad(x, (0, 0, pad, pad, pad, pad))
    places = [x[:, i : i + frames, j : j + bands] for i in range(size) for j in range(size)]
    return F.linear(torch.cat(places, dim=3), convolution.weight.permute(0, 2, 3, 1).flatten(1))


def _own(lengths: Tensor, frames: int) -> Tensor:
    """Which frames are a clip's own, bool [clip, frame]."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


def _norm(norm: nn.BatchNorm2d, x: Tensor, lengths: Tensor, then: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    """Batch-norm over the last dimension of x [clip, frame, band, channel], and `then`, of the clips' own frames.

    Frames past a clip's end come out as 0 and enter no statistics, so that the next convolution sees what it
    would see without padding.
    """
    own = _own(lengths, x.shape[1])
    if own.all():
        return then(norm(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)
    if not norm.training:
        return then(norm(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1) * own[:, :, None, None]
    rows = own.flatten().nonzero().squeeze(1)
    kept = _TakeRows.apply(x.flatten(0, 1), rows)  # type: ignore[no-untyped-call]  # [frame, band, channel]
    normed = then(norm(kept.permute(2, 0, 1).unsqueeze(0))).squeeze(0).permute(1, 2, 0)
    out: Tensor = _PutRows.apply(normed, rows, x.shape[0] * x.shape[1])  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:2], *out.shape[1:])


class _TakeRows(torch.autograd.Function):
    """x[rows] of rows that differ: going back is a copy, not a sum, which is several times faster."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        """[row, …] of x [all, …]."""
        ctx.save_for_backward(rows)
        ctx.count = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """0 for the rows that were not taken."""
        (rows,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.count, *gradient.shape[1:]).index_copy_(0, rows, gradient), None


class _PutRows(torch.autograd.Function):
    """The other way round: rows back in their places, 0 elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, count: int) -> Tensor:
        """[count, …] of x [row, …]."""
        ctx.save_for_backward(rows)
        return x.new_zeros(count, *x.shape[1:]).index_copy_(0, rows, x.contiguous())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradients of the rows."""
        (rows,) = ctx.saved_tensors
        return gradient.index_select(0, rows), None, None


def _pooled(x: Tensor, lengths: Tensor) -> Tensor:
    """Maximum over time + mean over time of the clips' own frames, [clip, frame, channel] → [clip, channel]."""
    own = _own(lengths, x.shape[1])[:, :, None]
    mean = (x * own).sum(dim=1) / lengths[:, None]
    return x.masked_fill(~own, -torch.inf).amax(dim=1) + mean


def kaiming(module: nn.Module) -> None:
    """He initialisation of convolutions and linear layers (`nn.Module.apply`)."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
