"""aiSFX: a network that learned from libraries of sound effects (Ma and Lerch, ISMIR 2022).

Blocks of 100 frames every 50, each through four blocks of convolutions with 2 × 2 maximum pooling (none after the
last), mean over bands and maximum over time: 512 values. Its front end makes every window as loud as can be. The
package `aisfx` ships the weights (CC-BY 4.0); the class layers on top are not used.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy._core import multiarray
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio.logmel import AISFX
from earmark.errors import DataError
from earmark.model.towers import LogMelTower

BLOCK, HOP = 100, 50
"""Frames of a block, and from one block to the next."""
LOUDEST = 9.457798957824707
"""What the training data's log-mels reached; they are divided by it."""
WIDTHS = (64, 128, 256, 512)
BLOCKS_AT_ONCE = 16
"""In evaluation; bounds memory."""


class AiSfx(LogMelTower):
    """Log-mels of any lengths → the mean over blocks of 512 values."""

    size = WIDTHS[-1]
    in_bf16 = True

    def __init__(self) -> None:
        """Random weights; `load` puts the published ones in place."""
        super().__init__(AISFX, 1)
        for place, (inputs, outputs) in enumerate(pairwise((1, *WIDTHS)), start=1):
            self.add_module(f"conv_block{place}", _ConvBlock(inputs, outputs))

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The log-mel [frame, band] at full scale, lengthened by silent frames (which are 0) to whole blocks.

        Silence in the waveform would add a frame of the click at the sound's end, which the maximum over time hears.
        """
        peak = float(np.abs(samples).max()) or 1.0
        mel = super().window(samples / peak)
        missing = -(len(mel) - BLOCK) % HOP if len(mel) > BLOCK else BLOCK - len(mel)
        return F.pad(mel, (0, 0, 0, missing))

    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """[window, 512] from log-mels [frame, band] of 100 frames or more."""
        blocks = [window.unfold(0, BLOCK, HOP).transpose(1, 2) for window in windows]  # [block, frame, band]
        counts = [len(each) for each in blocks]
        joined = torch.cat(blocks).to(next(self.parameters()).device) / LOUDEST
        parts = [joined] if self.training else joined.split(BLOCKS_AT_ONCE)
        vectors = torch.cat([self._of_blocks(part) for part in parts])
        return torch.stack([part.mean(dim=0) for part in vectors.split(counts)])

    def _of_blocks(self, blocks: Tensor) -> Tensor:
        x = blocks.unsqueeze(1).to(memory_format=torch.channels_last)  # [block, 1, frame, band]
        for place in range(1, len(WIDTHS) + 1):
            x = self.get_submodule(f"conv_block{place}")(x)
            x = F.max_pool2d(x, 2) if place < len(WIDTHS) else x
        return x.mean(dim=3).amax(dim=2)

    def louder(self, window: Tensor, decibels: float) -> Tensor:
        """The same log-mel: every window is brought to full scale first, so a gain changes nothing."""
        return window

    def load(self, path: Path) -> None:
        """Takes the weights of the published checkpoint. Raises `DataError` where it is another file."""
        # the file holds numpy scalars too, which torch's safe loader takes by name only
        named = (multiarray.scalar, "numpy.core.multiarray.scalar")
        allowed: list[Any] = [named, np.dtype, type(np.dtype(np.int64)), type(np.dtype(np.float64))]
        try:
            with torch.serialization.safe_globals(allowed):
                found = torch.load(path, map_location="cpu", weights_only=True)
            state = {name.removeprefix("embedding_net."): value for name, value in found[0].items()}
            self.load_state_dict({name: state[name] for name in self.state_dict()})
        except (OSError, RuntimeError, ValueError, KeyError, IndexError, AttributeError, pickle.PickleError) as error:
            reason = type(error).__name__  # torch's own words speak of its versions
            raise DataError(f"{path}: not aiSFX's checkpoint ({reason}). Install aisfx again.") from error


class _ConvBlock(nn.Module):
    """(3 × 3 convolution, batch-norm, ReLU) twice."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[block, channel, frame, band]."""
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)))
