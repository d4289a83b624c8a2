"""How far two waveforms are one, and from where on it is one recording rather than two sounds that are alike.

The judgement follows how much there is to tell by. A sound of many frequencies that agrees with another in phase is
the same recording; two beeps of one pitch agree as well and are not, so of few frequencies more is asked. The bounds
are those of `benchmarks/duplicates.py` and of synthesised bells, tones, chirps and rhythms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.audio.fingerprint import RATE, WINDOW, Samples

PARTS = (60, 150, 300, 550, 900, 1400, 2000, 2800, 3800, 5200, 7500)
"""Hz, the bands whose energies are compared: one that either sound lacks altogether does not count."""
REACH = 4 * WINDOW
"""Samples by which an offset may be wrong: a ringing sound meets itself early and late."""
LEAST_SAMPLES = 256
"""Of an overlap, 16 ms: of less nothing is said."""
FADE = 128
"""Samples, 8 ms, over which an overlap fades in and out: cut where it is loud, it would begin and end with a click."""
ONSET, TOGETHER = 0.2, RATE // 250
"""A sound begins where it reaches that share of its peak; two begin together within 4 ms."""
PEAKS, APART = 4, RATE // 500
"""Delays that are tried: of a ringing sound several are nearly as good. They are 2 ms apart."""
UNLIKE, SURE = 0.3, 0.95
"""Likenesses below and above which no other delay is tried."""
RINGING, BEEP = 250.0, 30.0
"""Traces: a sound of fewer rings, one of fewer still is a tone."""
SAME, SAME_RINGING, EQUAL_RINGING = 0.77, 0.97, 0.88
"""The least value of one recording; where it rings; where it rings, is as long and begins together."""


class Likeness(NamedTuple):
    """How far two waveforms are one, where they agree best."""

    value: float
    """0–1."""
    traces: float
    """How many frequencies there are to tell by: few of a tone, most of noise (bandwidth × length)."""
    offset: int
    """Samples of the first before the second's first."""
    together: bool
    """Whether their onsets stand together."""

    def same(self, contained: bool, as_long: bool) -> bool:
        """Whether it is one recording; `contained`: nearly all of one is in both, `as_long`: both are equally long."""
        if self.traces >= RINGING:
            return self.value >= SAME
        if not contained or (self.traces < BEEP and not as_long):
            return False
        return self.value >= (EQUAL_RINGING if as_long and self.together else SAME_RINGING)


NONE = Likeness(0.0, 0.0, 0, False)
"""Of sounds that share no part long enough, or are silent."""


def likeness(first: Samples, second: Samples, offset: int, reach: int = REACH) -> Likeness:
    """How far two sounds are one where `second` begins `offset` ± `reach` samples after `first` does.

    With the spectra of the overlap X and Y: max over the delay τ of |Σ X Y* / √|X Y| · e^{iωτ}|, over the sum over the
    bands of √(Σ|X| Σ|Y|), which is 1 of equal sounds whatever their gain and polarity. The square root (half-way to a
    phase correlation) lets the quiet frequencies have their say, which tell two strokes of one bell apart. The
    traces are (Σ √|X Y|)² / Σ |X Y|.
    """
    common = _Common.of(*_overlap(first, second, offset), reach)
    best = NONE
    for delay in common.delays(reach, PEAKS) if common else ():
        best = max(best, _judged(first, second, offset + delay))
        if not UNLIKE <= best.value < SURE:
            break
    return best


def _judged(first: Samples, second: Samples, offset: int) -> Likeness:
    """The likeness at an offset, to 4 samples."""
    common = _Common.of(*_overlap(first, second, offset), 4)
    if common is None:
        return NONE
    [delay] = common.delays(4, 1)
    offset += delay
    together = abs(_onset(first) - _onset(second) - offset) <= TOGETHER
    return Likeness(common.peak(delay), common.traces(), offset, together)


def _overlap(first: Samples, second: Samples, offset: int) -> tuple[Samples, Samples]:
    first, second = first[max(0, offset) :], second[max(0, -offset) :]
    length = min(len(first), len(second))
    return first[:length], second[:length]


def _onset(samples: Samples) -> int:
    loudness = np.abs(samples)
    return int(np.argmax(loudness >= ONSET * loudness.max()))


class _Common(NamedTuple):
    """What the spectra of two equally long sounds have in common."""

    products: NDArray[Any]
    """X Y* / √|X Y| [frequency], from the first of `PARTS` to the last."""
    energies: NDArray[np.float64]
    """|X Y| [frequency]."""
    whole: float
    """What the products add up to at most."""
    low: int
    """The bin of the first frequency."""
    size: int
    """Of the transform."""
    samples: int

    @classmethod
    def of(cls, first: Samples, second: Samples, reach: int) -> _Common | None:
        """The common spectrum with room for a delay of `reach` samples; None where there is nothing to tell by."""
        import scipy.fft

        if len(first) < LEAST_SAMPLES:
            return None
        size = scipy.fft.next_fast_len(len(first) + reach + 1)
        shape = np.ones(len(first), np.float32)
        ramp = np.sin(np.pi / 2 * (np.arange(FADE, dtype=np.float32) + 0.5) / FADE) ** 2
        shape[:FADE], shape[-FADE:] = ramp, ramp[::-1]
        low, *edges, high = np.ceil(np.array(PARTS) * size / RATE).astype(int)
        ours, theirs = (scipy.fft.rfft(each * shape, size)[low:high] for each in (first, second))
        parts = np.unique([0, *(edge - low for edge in edges)])
        most = np.sqrt(np.add.reduceat(np.abs(ours), parts) * np.add.reduceat(np.abs(theirs), parts))
        products = ours * np.conj(theirs)
        energies = np.abs(products).astype(np.float64)
        if not energies.any() or not most.any():
            return None
        products /= np.sqrt(np.maximum(energies, np.finfo(np.float32).tiny)).astype(np.float32)
        return cls(products, energies, float(most.sum()), int(low), size, len(first))

    def delays(self, reach: int, count: int) -> list[int]:
        """The delays within ±`reach` samples at which the sounds agree best, best first."""
        import scipy.fft

        spectrum = np.zeros(self.size, self.products.dtype)
        spectrum[self.low : self.low + len(self.products)] = self.products
        curve = np.abs(scipy.fft.ifft(spectrum))
        curve = np.concatenate([curve[-reach:], curve[: reach + 1]])
        found = []
        for _ in range(count):
            found.append(int(np.argmax(curve)) - reach)
            curve[max(0, found[-1] + reach - APART) : found[-1] + reach + APART + 1] = 0
        return found

    def peak(self, delay: int) -> float:
        """The likeness around a delay, by quarters of a sample: a copy's samples lie between ours."""
        turns = 2j * np.pi / self.size * np.arange(self.low, self.low + len(self.products))
        products = self.products * np.exp(turns * (delay - 0.5)).astype(self.products.dtype)
        quarter = np.exp(turns / 4).astype(self.products.dtype)
        peaks = []
        for _ in range(5):
            peaks.append(float(np.abs(products.sum())))
            products = products * quarter
        return max(peaks) / self.whole

    def traces(self) -> float:
        """How many frequencies bear the roots of the energies."""
        return float(np.sqrt(self.energies).sum() ** 2 / self.energies.sum() * self.samples / self.size)
