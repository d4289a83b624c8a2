"""Log-mel spectrograms: how loud each of a few bands is, a frame at a time.

A waveform [..., sample] at `rate` Hz becomes [..., frame, band]. `PAPER` is the paper's front end, `PANNS`,
`YAMNET` and `AISFX` are those of pretrained models. Window and hop are in seconds, so every setting works at every
rate; `settings.rate` is the one that its encoder asks the decoder for. A frame is centred on its time (silence
is padded at both ends) unless `centred` is false. In float64 equal to librosa to 1e-4; in float32 to 1e-3 in bins
above 1e-7 of the clip's peak, below which rounding rules both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.errors import ConfigError, DataError

FRAMES_AT_ONCE = 256
"""Frames that are transformed together: fits the processor's cache, and bounds memory on long clips."""
LOUDEST = 1e10
"""Full scale is 1; far beyond, energies overflow float32."""


@dataclass(frozen=True)
class LogMel:
    """The settings of a log-mel."""

    rate: int
    """Hz that the encoder wants."""
    window_s: float
    """Seconds of the Hann window (periodic)."""
    hop_s: float
    n_mels: int = 64
    fmin: float = 0.0
    """Hz."""
    fmax: float | None = None
    """Hz; None is half the rate."""
    scale: Literal["slaney", "htk"] = "slaney"
    """Of the bands."""
    norm: Literal["scale", "sum"] = "scale"
    """"scale": Slaney's bands have equal areas, HTK's a peak of 1; "sum": each band's weights sum to 1."""
    power: float = 2.0
    """2 is energy, 1 is magnitude."""
    log: Literal["natural", "decibel", "compressed"] = "natural"
    """ln(x + floor), 10·log10(max(x, floor)), or log10(1 + x / floor)."""
    floor: float = 2.0**-52
    centred: bool = True

    def samples(self, rate: int) -> tuple[int, int, int]:
        """Window, hop and transform size in samples; the transform is the next power of two of the window."""
        window, hop = round(self.window_s * rate), round(self.hop_s * rate)
        if window < 2 or hop < 1:
            raise ConfigError(f"rate {rate} Hz: too low for a window of {self.window_s} s. Resample to {self.rate} Hz.")
        return window, hop, 2 ** math.ceil(math.log2(window))


PAPER = LogMel(rate=44_100, window_s=0.040, hop_s=0.020)
"""1764 and 882 samples at 44.1 kHz, 64 bands from 0 Hz, natural logarithm of (mel + 2.2204e-16)."""
PANNS = LogMel(rate=32_000, window_s=0.032, hop_s=0.010, fmin=50, fmax=14_000, log="decibel", floor=1e-10)
YAMNET = LogMel(
    rate=16_000,
    window_s=0.025,
    hop_s=0.010,
    fmin=125,
    fmax=7_500,
    scale="htk",
    power=1,
    floor=0.001,
    centred=False,
)
AISFX = LogMel(
    rate=44_100,
    window_s=2048 / 44_100,
    hop_s=1024 / 44_100,
    n_mels=96,
    scale="htk",
    norm="sum",
    log="compressed",
    floor=1e-4,
)


def frame_count(samples: int, rate: int, settings: LogMel = PAPER) -> int:
    """How many frames so many samples give; without centring at least one (the clip is padded to one window)."""
    window, hop, _ = settings.samples(rate)
    return 1 + samples // hop if settings.centred else 1 + max(0, samples - window) // hop


def least_samples(frames: int, rate: int, settings: LogMel = PAPER) -> int:
    """The fewest samples that give so many frames."""
    window, hop, _ = settings.samples(rate)
    return max(1, (frames - 1) * hop) if settings.centred else window + (frames - 1) * hop


def log_mel(
    waveform: NDArray[Any] | Tensor, rate: int, settings: LogMel = PAPER, dtype: torch.dtype = torch.float32
) -> Tensor:
    """[..., frame, band] of a waveform [..., sample] at `rate` Hz.

    A frame is |rfft(frame × Hann)|^power summed under the bands' triangles, then the logarithm. The silence at a
    centred clip's ends is librosa's default, `pad_mode="constant"`. Raises `DataError` on an empty waveform or one with
    samples that are not finite, `ConfigError` where the rate is too low for the settings.
    """
    samples = torch.as_tensor(waveform).to(dtype)
    if samples.ndim < 1 or not samples.shape[-1]:
        raise DataError(f"waveform of shape {tuple(samples.shape)}; expected samples in the last dimension.")
    if not samples.abs().amax() <= LOUDEST:  # not a number fails too
        raise DataError("waveform: samples that are not finite. Decode it with earmark.audio.decode, which mends them.")
    window, hop, size = settings.samples(rate)
    padded = _padded(samples, window, size, settings.centred)
    bands = _filter_bank(rate, size, settings).to(samples)
    shape = _window(window, size if settings.centred else window).to(samples)
    frames = padded.unfold(-1, len(shape), hop)  # [..., frame, sample], a view
    parts = [
        _logarithm(_spectrum(frames[..., at : at + FRAMES_AT_ONCE, :] * shape, size, settings.power) @ bands, settings)
        for at in range(0, frames.shape[-2], FRAMES_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def louder(mel: Tensor, decibels: float, settings: LogMel) -> Tensor:
    """The log-mel that the waveform would have, made louder by so many decibels."""
    factor = 10 ** (decibels / 20 * settings.power)
    floor = settings.floor
    if settings.log == "decibel":
        return (mel + 10 * math.log10(factor)).clamp_min(10 * math.log10(floor))
    if settings.log == "compressed":
        return ((10**mel - 1).clamp_min(0) * factor + 1).log10()
    return ((mel.exp() - floor).clamp_min(0) * factor + floor).log()


def _padded(samples: Tensor, window: int, size: int, centred: bool) -> Tensor:
    """With silence at both ends, half a transform each; without centring at the end alone, up to one window."""
    if centred:
        return torch.nn.functional.pad(samples, (size // 2, size // 2))
    return torch.nn.functional.pad(samples, (0, max(0, window - samples.shape[-1])))


def _spectrum(frames: Tensor, size: int, power: float) -> Tensor:
    spectrum = torch.fft.rfft(frames, n=size)
    energy: Tensor = spectrum.real.square() + spectrum.imag.square()
    return energy if power == 2 else energy.sqrt() if power == 1 else energy.pow(power / 2)


def _logarithm(mel: Tensor, settings: LogMel) -> Tensor:
    if settings.log == "natural":
        return (mel + settings.floor).log()
    if settings.log == "compressed":
        return (mel / settings.floor + 1).log10()
    return 10 * mel.clamp_min(settings.floor).log10()


@lru_cache(maxsize=32)
def _window(window: int, size: int) -> Tensor:
    """A periodic Hann window in the middle of `size` samples, float64."""
    left = (size - window) // 2
    hann = torch.hann_window(window, periodic=True, dtype=torch.float64)
    return torch.nn.functional.pad(hann, (left, size - window - left))


@lru_cache(maxsize=32)
def _filter_bank(rate: int, size: int, settings: LogMel) -> Tensor:
    """Triangles over the transform's bins, float64 [bin, band]."""
    highest = settings.fmax or rate / 2
    if highest > rate / 2:
        raise ConfigError(f"rate {rate} Hz: the bands reach {highest:g} Hz. Resample to {settings.rate} Hz.")
    to_mel, to_hz = (_slaney_mel, _slaney_hz) if settings.scale == "slaney" else (_htk_mel, _htk_hz)
    edges = to_hz(np.linspace(to_mel(settings.fmin), to_mel(highest), settings.n_mels + 2))
    bins = np.arange(size // 2 + 1) * (rate / size)
    rising = (bins[:, None] - edges[:-2]) / np.diff(edges)[:-1]  # straight on the frequency axis, as librosa has them
    falling = (edges[2:] - bins[:, None]) / np.diff(edges)[1:]
    bank = np.maximum(0, np.minimum(rising, falling))
    if settings.norm == "sum":
        bank /= bank.sum(axis=0)
    elif settings.scale == "slaney":
        bank *= 2 / (edges[2:] - edges[:-2])
    return torch.from_numpy(bank)


def _slaney_mel(hz: Any) -> Any:
    """Linear below 1 kHz (200/3 Hz a mel), logarithmic above (27 mels to a factor of 6.4)."""
    hz = np.asarray(hz, dtype=np.float64)
    return np.where(hz < 1000, hz * 3 / 200, 15 + np.log(np.maximum(hz, 1e-9) / 1000) * 27 / np.log(6.4))


def _slaney_hz(mel: Any) -> Any:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


def _htk_mel(hz: Any) -> Any:
    return 1127 * np.log1p(np.asarray(hz, dtype=np.float64) / 700)


def _htk_hz(mel: Any) -> Any:
    return 700 * np.expm1(mel / 1127)
