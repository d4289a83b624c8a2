"""How far two waveforms are one, and from where on it is one recording rather than two sounds that are alike.

The judgement follows how much there is to tell by. A sound of many frequencies that agrees with another in phase is
the same recording; two beeps of one pitch agree as well and are not, so of few frequencies more is asked.
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
ONSET, TOGETHER = 0.2, RATE // 250
"""A sound begins where it reaches that share of its peak; two begin together within 4 ms."""
TONAL, BEEP = (25.0, 400.0), 3.0
"""Sounds of fewer frequencies ring, or are one tone."""
SAME, SAME_TONAL, EQUAL_TONAL = 0.76, 0.97, 0.88
"""The least value of one recording; where it rings; where it rings, is as long and begins together."""


class Likeness(NamedTuple):
    """How far two waveforms are one, where they agree best."""

    value: float
    """0–1."""
    frequencies: float
    """How many bear the energy that both have: 1 of a tone, bandwidth × length of noise."""
    traces: float
    """How many bear its square root: so many of a tone that begins, ends, or has noise beside it."""
    offset: int
    """Samples of the first before the second's first."""
    together: bool
    """Whether their onsets stand together."""

    def same(self, contained: bool, as_long: bool) -> bool:
        """Whether it is one recording; `contained`: nearly all of one is in both, `as_long`: both are equally long."""
        if self.frequencies >= TONAL[0] or self.traces >= TONAL[1]:
            return self.value >= SAME
        if not contained or (self.frequencies < BEEP and not as_long):
            return False
        return self.value >= (EQUAL_TONAL if as_long and self.together else SAME_TONAL)


NONE = Likeness(0.0, 0.0, 0.0, 0, False)
"""Of sounds that share no part long enough, or are silent."""


def likeness(first: Samples, second: Samples, offset: int, reach: int = REACH) -> Likeness:
    """How far two sounds are one where `second` begins `offset` ± `reach` samples after `first` does.

    With the spectra of the overlap X and Y: max over the delay τ of |Σ X Y* / √|X Y| · e^{iωτ}|, over the sum over the
    bands of √(Σ|X| Σ|Y|), which is 1 of equal sounds whatever their gain and polarity. The square root (half-way to a
    phase correlation) lets the quiet frequencies have their say, which tell two strokes of one bell apart. The
    frequencies are (Σ|X Y|)² / Σ|X Y|².
    """
    offset += _correlation(*_overlap(first, second, offset), reach).offset
    found = _correlation(*_overlap(first, second, offset), 4)
    offset += found.offset
    together = abs(_onset(first) - _onset(second) - offset) <= TOGETHER
    return found._replace(offset=offset, together=together) if found.value else NONE


def _overlap(first: Samples, second: Samples, offset: int) -> tuple[Samples, Samples]:
    first, second = first[max(0, offset) :], second[max(0, -offset) :]
    length = min(len(first), len(second))
    return first[:length], second[:length]


def _correlation(first: Samples, second: Samples, reach: int) -> Likeness:
    """The likeness of two equally long sounds with a delay of `reach` samples at most."""
    import scipy.fft

    if len(first) < LEAST_SAMPLES:
        return NONE
    size = scipy.fft.next_fast_len(len(first) + reach + 1)
    hertz = scipy.fft.rfftfreq(size, 1 / RATE)
    low, high = np.searchsorted(hertz, [PARTS[0], PARTS[-1]])
    ours, theirs = (scipy.fft.rfft(each, size)[low:high] for each in (first, second))
    edges = np.unique(np.searchsorted(hertz[low:high], PARTS[:-1]))
    whole = float(np.sqrt(np.add.reduceat(np.abs(ours), edges) * np.add.reduceat(np.abs(theirs), edges)).sum())
    products = ours * np.conj(theirs)
    energies = np.abs(products).astype(np.float64)
    if not energies.sum() > 0 or not whole > 0:
        return NONE
    products /= np.sqrt(np.maximum(energies, np.finfo(np.float32).tiny)).astype(np.float32)
    spectrum = np.zeros(size, products.dtype)
    spectrum[low:high] = products
    curve = np.abs(scipy.fft.ifft(spectrum))
    delay = int(np.argmax(np.concatenate([curve[-reach:], curve[: reach + 1]]))) - reach
    frequencies, traces = (
        float(each.sum() ** 2 / np.square(each).sum() * len(first) / size) for each in (energies, np.sqrt(energies))
    )
    return Likeness(_peak(products, hertz[low:high], delay) / whole, frequencies, traces, delay, False)


def _onset(samples: Samples) -> int:
    loudness = np.abs(samples)
    return int(np.argmax(loudness >= ONSET * loudness.max()))


def _peak(products: NDArray[Any], hertz: NDArray[Any], delay: int) -> float:
    """The height of the correlation around a delay, by quarters of a sample: a copy's samples lie between ours."""
    turns = (2j * np.pi / RATE) * hertz
    products = products * np.exp(turns * (delay - 0.5)).astype(products.dtype)
    quarter = np.exp(turns / 4).astype(products.dtype)
    peaks = []
    for _ in range(5):
        peaks.append(float(np.abs(products.sum())))
        products = products * quarter
    return max(peaks)
