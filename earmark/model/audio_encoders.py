"""Sound in: audio encoders, from a clip's features to its embedding (not yet of unit length).

An encoder reads a clip as windows of at most `LONGEST_S` seconds, every sample in exactly one window, and
turns each into features (a log-mel [frame, band], or the vector that stands for the clip). `forward` takes
features of any lengths; neither padding nor batch mates change an embedding (in evaluation mode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio import decode
from earmark.audio.logmel import PANNS, PAPER, LogMel, least_samples, log_mel
from earmark.errors import ConfigError, DataError
from earmark.model.pretrained import find

LONGEST_S = 30.0
"""Longer clips are cut into windows of this many seconds; Clotho's clips (15–30 s) stay whole."""
LARGEST = 1 << 16
"""Of a layer's width: beyond is a slip of the keyboard."""
LOG_MELS = {"paper": PAPER, "panns": PANNS}


@dataclass(frozen=True)
class AudioConfig:
    """`[audio]` of a recipe."""

    encoder: Literal["cnn14", "vectors"] = "cnn14"
    weights: str = "pretrained"
    """"pretrained", "none" (random), or the path of a PANNs checkpoint. Vectors have none."""
    train: bool = True
    """Whether the convolutional layers learn too, or only the head on top."""
    width: int = 64
    """Channels of CNN14's first block; 64 is the published size."""
    hidden: int = 0
    """Width of the head's hidden layer; 0 is the encoder's own (CNN14: 32 × width, vectors: 512)."""
    dropout: float = 0.5
    """Of the head, in [0, 1). CNN14's blocks take 0.2, or this where it is less."""
    log_mel: Literal["paper", "panns"] = "paper"


class Features(NamedTuple):
    """What an encoder reads of one clip."""

    windows: list[Tensor]
    """A tensor a window: log-mel [frame, band], or a vector."""
    seconds: list[float]
    """A window's length: its share in the clip's embedding."""


class AudioEncoder(nn.Module):
    """What all audio encoders share."""

    rate: int = 0
    """Hz; sounds are brought to it."""
    front_end: LogMel | None = None

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The features of one window of samples at `rate`."""
        raise ConfigError(
            "this model was trained on vectors, and no encoder here makes such vectors from sounds; files cannot be "
            'embedded. Train on sounds (audio.encoder = "cnn14").'
        )

    def read(self, path: Path | str, odd: list[str] | None = None) -> Features:
        """The features of a sound file; what was odd about it is added to `odd`.

        Raises `DataError` where it holds no sound.
        """
        self.check_reads_sound()
        return self.of_blocks(decode.blocks(path, self.rate, seconds=LONGEST_S, problems=odd))

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The features of mono samples at `rate` Hz."""
        self.check_reads_sound()
        mono = decode.resampled(samples, rate, self.rate)
        step = round(LONGEST_S * self.rate)
        return self.of_blocks(mono[start : start + step] for start in range(0, len(mono), step))

    def check_reads_sound(self) -> None:
        """Raises `ConfigError` where the encoder takes vectors alone."""
        if not self.rate:
            self.window(np.zeros(0, np.float32))

    def of_blocks(self, blocks: Iterable[NDArray[np.float32]]) -> Features:
        """The features of a clip's consecutive blocks."""
        found = Features([], [])
        for block in blocks:
            found.windows.append(self.window(block))
            found.seconds.append(len(block) / self.rate)
        return found


class Vectors(AudioEncoder):
    """A head on vectors that stand for clips: Linear, ReLU, dropout, Linear."""

    def __init__(self, size: int, dim: int = 300, *, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, dim))

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """[clip, dim] from vectors [size]."""
        out: Tensor = self.head(torch.stack(list(features)))
        return out


class Cnn14(AudioEncoder):
    """PANNs' CNN14 as the paper's authors use it: 2 × 2 pooling after all six blocks, then a head of two layers.

    Kong et al., 2020; settings from the authors' baseline for DCASE 2023. Parameters bear the names of the
    published checkpoint. Six poolings need 64 frames; shorter clips are padded with silence in the waveform.
    """

    BLOCKS = 6

    def __init__(
        self,
        dim: int = 300,
        *,
        width: int = 64,
        hidden: int = 0,
        dropout: float = 0.5,
        front_end: LogMel = PAPER,
    ) -> None:
        super().__init__()
        self.front_end = front_end
        self.rate = front_end.rate
        self.shortest = least_samples(2**self.BLOCKS, self.rate, front_end)
        self.dropout = dropout
        channels = [1, *(width * 2**block for block in range(self.BLOCKS))]
        self.bn0 = nn.BatchNorm2d(front_end.n_mels)
        for block in range(self.BLOCKS):
            self.add_module(f"conv_block{block + 1}", _ConvBlock(channels[block], channels[block + 1]))
        self.fc1 = nn.Linear(channels[-1], hidden or channels[-1])
        self.head = nn.Linear(hidden or channels[-1], dim)
        self.apply(_kaiming)

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The log-mel [frame, band] of samples at `rate`, padded with silence to the least length."""
        padded = np.pad(samples, (0, max(0, self.shortest - len(samples))))
        assert self.front_end is not None
        return log_mel(padded, self.rate, self.front_end)

    def blocks(self) -> list[nn.Module]:
        """The layers below the head."""
        return [self.bn0, *(self.get_submodule(f"conv_block{block + 1}") for block in range(self.BLOCKS))]

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """[clip, dim] from log-mels [frame, band] of any lengths from 64 frames on."""
        lengths = torch.tensor([len(each) for each in features], device=self.head.weight.device)
        x = nn.utils.rnn.pad_sequence(list(features), batch_first=True)  # [clip, frame, band]
        x = _norm(self.bn0, x.unsqueeze(2), lengths).transpose(2, 3)  # bands are what bn0 normalises
        drop = min(0.2, self.dropout)
        for block in self.blocks()[1:]:
            x = F.dropout(block(x, lengths), drop, block.training)
            lengths = lengths // 2
        x = _pooled(x.mean(dim=2), lengths)
        x = F.dropout(x, self.dropout, self.training)
        x = F.dropout(F.relu(self.fc1(x)), self.dropout, self.training)
        out: Tensor = self.head(x)
        return out

    def train(self, mode: bool = True) -> Cnn14:
        """Training mode for what learns; frozen blocks keep their statistics and drop nothing."""
        super().train(mode)
        for block in self.blocks():
            block.train(mode and next(block.parameters()).requires_grad)
        return self

    def load_panns(self, path: Path) -> None:
        """Takes the layers below the head from a PANNs checkpoint. Raises `DataError` where names or shapes differ."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever the bytes make it raise
            raise DataError(f"{path}: not a PANNs checkpoint ({type(error).__name__}). Download it again.") from error
        state = state.get("model", state) if isinstance(state, dict) else {}
        own = {name: value for name, value in self.state_dict().items() if not name.startswith("head.")}
        wrong = [name for name, value in own.items() if name not in state or state[name].shape != value.shape]
        if wrong:
            raise DataError(
                f"{path}: {len(wrong)} of {len(own)} layers are missing or of another shape, {wrong[0]} first; "
                "expected CNN14 of 64 bands. Use audio.width = 64 and audio.hidden = 2048."
            )
        self.load_state_dict({name: state[name] for name in own}, strict=False)


class _ConvBlock(nn.Module):
    """(3 × 3 convolution, batch-norm, ReLU) twice, then 2 × 2 average pooling. Frames past a clip's end stay 0.

    x is [clip, frame, band, channel] in memory throughout ("channels last"), which is what processors and GPUs
    convolve fastest.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[clip, frame, band, channel] → half the frames and bands."""
        for convolution, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2)):
            convolved = convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            x = _norm(norm, convolved, lengths, F.relu)
        x = F.avg_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
        half = _own(lengths // 2, x.shape[1])  # an odd last frame goes, in a batch as alone
        return x if half.all() else x * half[:, :, None, None]


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


def _kaiming(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _cnn14(config: AudioConfig, dim: int, vector_size: int) -> AudioEncoder:
    encoder = Cnn14(
        dim,
        width=config.width,
        hidden=config.hidden,
        dropout=config.dropout,
        front_end=LOG_MELS[config.log_mel],
    )
    for block in encoder.blocks():
        block.requires_grad_(config.train)
    return encoder


def _vectors(config: AudioConfig, dim: int, vector_size: int) -> AudioEncoder:
    return Vectors(vector_size, dim, hidden=config.hidden or 512, dropout=config.dropout)


ENCODERS = {"cnn14": _cnn14, "vectors": _vectors}


def build(config: AudioConfig, dim: int, vector_size: int = 0) -> AudioEncoder:
    """The encoder of this configuration, randomly initialised. Raises `ConfigError` on settings out of range."""
    sizes = 1 <= config.width <= 1024 and 0 <= config.hidden <= LARGEST and 1 <= dim <= LARGEST
    if not 0 <= config.dropout < 1 or not sizes:
        raise ConfigError(
            f"audio.dropout = {config.dropout}, audio.width = {config.width}, audio.hidden = {config.hidden}, "
            f"model.dim = {dim}; expected dropout in [0, 1), width 1–1,024, the others to {LARGEST:,}."
        )
    return ENCODERS[config.encoder](config, dim, vector_size)


def load_pretrained(encoder: AudioEncoder, config: AudioConfig) -> None:
    """Takes the weights that `config.weights` names; nothing for "none" and for vectors."""
    if not isinstance(encoder, Cnn14) or config.weights == "none":
        return
    path = find("cnn14" if config.weights == "pretrained" else config.weights)
    files = [path] if path.is_file() else sorted(path.glob("*.pth"))
    if len(files) != 1:
        raise DataError(f"{path}: {len(files)} files *.pth; expected the one checkpoint of PANNs' CNN14.")
    encoder.load_panns(files[0])
