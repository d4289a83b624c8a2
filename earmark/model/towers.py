"""Towers: the layers, mostly pretrained, from a sound or a text to one vector, below the head that is learned.

A tower makes its features of one item (a log-mel, token ids) and turns batches of features of any lengths into
vectors. Neither padding nor batch mates change a vector (in evaluation mode).
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio import decode
from earmark.audio.cache import Features
from earmark.audio.logmel import LogMel, log_mel, louder

VECTORS = "vectors"
"""The encoder's name where vectors in the collection's files stand for sounds or texts."""
LONGEST_S = 30.0
"""Longer clips are cut into windows of this many seconds; Clotho's clips (15–30 s) stay whole."""
TIME_MASKS, BAND_MASKS = (2, 64), (2, 8)
"""SpecAugment's masks: how many, and the widest in frames and in bands; PANNs' settings."""
GAIN_DB = 6.0
"""Clips are made louder or quieter by so much at most."""


class AudioTower(nn.Module, ABC):
    """What all towers of sound share."""

    rate: int
    """Hz; sounds are brought to it."""
    size: int
    """Of the vectors."""
    longest_s: float = LONGEST_S
    """Seconds of a window: longer clips are cut."""
    windows_a_batch: int = 16
    """Windows embedded at once."""
    unit: bool = False
    """Whether a clip's vector is brought to unit length: where sounds and texts share a space."""
    reads_log_mels: bool = True
    """Whether the features are log-mels [frame, band]."""
    in_bf16: bool = False
    """Whether training computes in bf16 where the machine does and the recipe leaves it open."""

    @property
    @abstractmethod
    def front_end(self) -> str:
        """What it makes of a window of samples, as JSON: it must be the same whenever the model is used."""

    @abstractmethod
    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The features of one window of mono samples at `rate`, of any length from 1 on."""

    @abstractmethod
    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """Vectors [window, size] of features of any lengths."""

    def augmented(self, window: Tensor, how: str) -> Tensor:
        """The features as they are varied in training: `how` is "spec", "gain" or "spec+gain".

        Stripes of time and of bands at the clip's mean (SpecAugment, Park et al., 2019), louder or quieter by a random
        gain, or both. Random numbers are torch's.
        """
        if "gain" in how:
            window = self.louder(window, (2 * float(torch.rand(())) - 1) * GAIN_DB)
        return _masked(window) if "spec" in how else window

    @abstractmethod
    def louder(self, window: Tensor, decibels: float) -> Tensor:
        """The features that the sound would have, made louder by so many decibels."""

    @property
    def made_by(self) -> str:
        """What decides its features: the key of the cache."""
        return f"{type(self).__name__}: {self.front_end}, windows of {self.longest_s:g} s"

    def read(self, path: Path) -> Features:
        """The features of a sound file, with what was odd about it. Raises `DataError` where it holds no sound."""
        odd: list[str] = []
        return collected(self.windows_of(path, odd), odd)

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The features of mono samples at `rate` Hz."""
        return collected(self.windows_of_waveform(samples, rate), [])

    def windows_of(self, path: Path, odd: list[str]) -> Iterator[tuple[Tensor, float]]:
        """A file's windows, one at a time, with their seconds; what was odd is added to `odd` by the last."""
        for block in decode.blocks(path, self.rate, self.longest_s, odd):
            yield self.window(block), len(block) / self.rate

    def windows_of_waveform(self, samples: NDArray[Any], rate: int) -> Iterator[tuple[Tensor, float]]:
        """The windows of mono samples at `rate` Hz, one at a time, with their seconds."""
        mono = decode.resampled(samples, rate, self.rate)
        step = round(self.longest_s * self.rate)
        for start in range(0, len(mono), step):
            yield self.window(mono[start : start + step]), len(mono[start : start + step]) / self.rate


def collected(windows: Iterable[tuple[Tensor, float]], odd: list[str]) -> Features:
    """The features of all windows of a clip."""
    found = list(windows)
    return Features([window for window, _ in found], [seconds for _, seconds in found], odd)


class TextTower(nn.Module, ABC):
    """What all towers of texts share."""

    size: int
    """Of the vectors."""
    longest: int
    """Tokens that are read; what a longer text says after them is not."""

    @abstractmethod
    def tokens(self, texts: Sequence[str]) -> list[Tensor]:
        """The features of texts: token ids, int64 [token] each, cut after `longest` with one warning."""

    @abstractmethod
    def forward(self, tokens: Sequence[Tensor]) -> Tensor:
        """Vectors [text, size] of token ids; unit length where the model makes them so."""


class LogMelTower(AudioTower):
    """A tower that reads log-mels; shorter clips than it can take are padded with silence in the waveform."""

    def __init__(self, settings: LogMel, least: int) -> None:
        """`least` is the fewest samples that it can take."""
        super().__init__()
        self.settings = settings
        self.rate = settings.rate
        self.least = least

    @abstractmethod
    def load(self, path: Path) -> None:
        """Takes the published weights of a file or folder. Raises `DataError` where it holds others."""

    @property
    def front_end(self) -> str:
        """The log-mel's settings, as JSON."""
        return json.dumps(asdict(self.settings), sort_keys=True)

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The log-mel [frame, band] of samples at `rate`, padded with silence to the least length."""
        padded = np.pad(samples, (0, max(0, self.least - len(samples))))
        return log_mel(padded, self.rate, self.settings)

    def louder(self, window: Tensor, decibels: float) -> Tensor:
        """The log-mel that the sound would have, made louder by so many decibels."""
        return louder(window, decibels, self.settings)


def _masked(window: Tensor) -> Tensor:
    masked, fill = window.clone(), window.mean()
    for dimension, (count, widest) in enumerate((TIME_MASKS, BAND_MASKS)):
        size = window.shape[dimension]
        for _ in range(count):
            width = int(torch.randint(0, min(widest, size // 2) + 1, ()))
            start = int(torch.randint(0, size - width + 1, ()))
            masked.narrow(dimension, start, width).fill_(fill)
    return masked


def best_device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def cut_tokens(tokenizer: Any, texts: Sequence[str], longest: int) -> list[Tensor]:
    """Token ids by a tokenizer of transformers, int64 [token] each, cut after `longest` with one warning."""
    whole = tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
    too_long = [place for place, ids in enumerate(whole) if len(ids) > longest]
    if too_long:
        warnings.warn(f"{len(too_long)} texts are cut after {longest} tokens", stacklevel=5)
        cut = tokenizer([texts[at] for at in too_long], truncation=True, max_length=longest)["input_ids"]
        for at, ids in zip(too_long, cut, strict=True):
            whole[at] = ids
    return [torch.tensor(ids, dtype=torch.int64) for ids in whole]


def padded(tokens: Sequence[Tensor], pad: int) -> tuple[Tensor, Tensor]:
    """Token ids [text, token] in one tensor, and which of them are texts' own, int64 0 or 1."""
    ids = nn.utils.rnn.pad_sequence(list(tokens), batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(each) for each in tokens])
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).to(torch.int64)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' own progress bars and notes, which would break into ours."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()


def front_ends_agree(trained: str, now: str) -> bool:
    """Whether every setting that the run names is the same now; settings that came later do not count."""
    try:
        before, after = json.loads(trained), json.loads(now)
    except ValueError:
        return False
    return isinstance(before, dict) and _stands_in(before, after)


def _stands_in(before: Any, after: Any) -> bool:
    """Whether all that `before` names is the same in `after`, tables within tables too."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return bool(before == after)
    return all(key in after and _stands_in(value, after[key]) for key, value in before.items())
