"""What a recording is known by: a spectral fingerprint, and an index that finds the sounds that may be the same.

After Haitsma and Kalker, "A Highly Robust Audio Fingerprinting System" (ISMIR 2002): a frame's 32 bits tell where
the difference of the amplitudes of neighbouring bands grew, which neither gain nor lossy coding changes much. Here
the window is short, so that sounds of a tenth of a second have frames enough, and a rise below `LEAST_RISE` of the
loudest band is none, so that bands of noise alone set no bits. Parts of a frame's bits are its keys in an inverted
index; where two keys meet, the frames around must agree (`FARTHEST`). Everything is mono at `RATE` Hz; offsets are in
samples. What the index finds are candidates: `likeness` judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
"""Hz."""
WINDOW = 1024
"""Samples of a frame, 64 ms."""
HOP = 128
"""Samples from one frame to the next, 8 ms."""
DELAY = 8
"""Frames between the two that are compared: one window, so that they share no sample."""
BANDS = (80.0, 6500.0, 33)
"""From, to (Hz), and how many of equal ratio: 33 bands are 32 differences of neighbours."""
LEAST_RISE = 0.003
"""Of the loudest band of both frames."""
QUIET = (1e-6, 1e-4)
"""Frames of less energy are silence: than that share of the loudest frame's (−60 dB), or than that (−92 dB)."""
KEYS = (0, 6, 12)
"""The lowest bit of each key, the highest bands' first: without its highest bands a sound keeps the others."""
KEY_BITS = 20
LEAST_ONES = 3
"""Bits that a key has set: fewer are a steady sound, which is like every other."""
MOST_COMMON = 300
"""A key that stands more often in the index tells nothing."""
AROUND = 16
"""Frames to each side of a meeting that must agree, every second is looked at."""
FARTHEST = 0.5
"""Of the bits that are set in either, at most so many differ; .67 do in unrelated frames."""
OFFSETS = 4
"""Offsets that are kept for a candidate: loops meet themselves at several."""
CANDIDATES = 100
"""Sounds that are kept for a query, those that most keys lead to."""

Samples = NDArray[np.float32]
Words = NDArray[np.uint32]


class Fingerprint(NamedTuple):
    """A sound's frames, one every `HOP` samples; frame k ends with sample (k + 1) · `HOP`."""

    words: Words
    loud: NDArray[np.bool_]
    """Which frames are no silence."""
    samples: int
    """Of the sound."""


class Candidate(NamedTuple):
    """A sound of the index that may be, hold or be part of the query's recording."""

    sound: int
    """Its place in the index."""
    offsets: tuple[int, ...]
    """Samples of it before the query's first (negative where the query begins earlier), ±`HOP`, likeliest first."""


# Fingerprints


def fingerprint(blocks: Iterable[Samples]) -> Fingerprint:
    """The fingerprint of a sound that comes in blocks [sample] at `RATE` Hz; one block is held at a time.

    Bit b of a frame is set where A[b] − A[b + 1] is larger than `DELAY` frames ago, A being the amplitudes of the
    bands (square roots of the energies), by more than `LEAST_RISE`. Silence is put before and after the sound.
    """
    words, energies = [np.zeros(0, np.uint32)], [np.zeros(0, np.float32)]
    before = np.zeros((DELAY, BANDS[2]), np.float32)
    heard = _Counted(blocks)
    for frames in _frames(heard):
        amplitudes = np.concatenate([before, _amplitudes(frames)])
        words.append(_words(amplitudes))
        energies.append(np.square(amplitudes[DELAY:]).sum(axis=1))
        before = amplitudes[-DELAY:]
    energy = np.concatenate(energies)
    least = max(QUIET[0] * float(energy.max(initial=0)), QUIET[1])
    return Fingerprint(np.concatenate(words), energy > least, heard.samples)


class _Counted:
    """The same blocks, their samples counted on the way."""

    def __init__(self, blocks: Iterable[Samples]) -> None:
        self.blocks, self.samples = blocks, 0

    def __iter__(self) -> Iterator[Samples]:
        for block in self.blocks:
            self.samples += len(block)
            yield block


def _frames(blocks: Iterable[Samples]) -> Iterator[Samples]:
    """[frame, sample], some hundreds at a time."""
    rest = np.zeros(WINDOW - HOP, np.float32)
    for block in chain(blocks, [np.zeros(WINDOW, np.float32)]):
        rest = np.concatenate([rest, block])
        if len(rest) >= WINDOW:
            views = np.lib.stride_tricks.sliding_window_view(rest, WINDOW)[::HOP]
            yield from (views[start : start + 512] for start in range(0, len(views), 512))
            rest = rest[len(views) * HOP :]


def _amplitudes(frames: Samples) -> Samples:
    """[frame, band]: square roots of the energies of the Hann-windowed frames' bands."""
    import scipy.fft

    spectrum = scipy.fft.rfft(frames * _window(), axis=1)
    energies: Samples = (spectrum.real**2 + spectrum.imag**2) @ _bands()
    return np.sqrt(energies)


@lru_cache(maxsize=1)
def _window() -> Samples:
    return np.hanning(WINDOW + 1)[:-1].astype(np.float32)


@lru_cache(maxsize=1)
def _bands() -> Samples:
    """[bin, band]: how much of each bin is within each band."""
    low, high, count = BANDS
    edges = low * (high / low) ** (np.arange(count + 1) / count)
    width = RATE / WINDOW
    bins = np.arange(WINDOW // 2 + 1)[:, None] * width
    inside = np.minimum(bins + width / 2, edges[1:]) - np.maximum(bins - width / 2, edges[:-1])
    shares: Samples = np.clip(inside / width, 0, 1).astype(np.float32)
    return shares


def _words(amplitudes: Samples) -> Words:
    """32 bits a frame of [DELAY + frame, band], the lowest band's first."""
    differences = amplitudes[:, :-1] - amplitudes[:, 1:]
    loudest = amplitudes.max(axis=1)
    least = LEAST_RISE * np.maximum(loudest[DELAY:], loudest[:-DELAY])
    rises = differences[DELAY:] - differences[:-DELAY] > least[:, None]
    return np.packbits(rises, axis=1).view(">u4")[:, 0].astype(np.uint32)


# Candidates


class Index:
    """Fingerprints, found by the keys of their frames."""

    def __init__(self, prints: Sequence[Fingerprint]) -> None:
        """Holds the frames of all, and of every second loud one its keys."""
        lengths = [len(each.words) for each in prints]
        self.starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.words = np.concatenate([np.zeros(0, np.uint32), *(each.words for each in prints)])
        self.loud = np.concatenate([np.zeros(0, np.bool_), *(each.loud for each in prints)])
        self.sound = np.repeat(np.arange(len(prints)), lengths)
        within = np.arange(len(self.words)) - self.starts[self.sound]
        places = np.flatnonzero(self.loud & (within % 2 == 0))
        self._tables = [self._table(places, _keys(self.words[places], shift)) for shift in KEYS]

    def _table(self, places: NDArray[Any], keys: Words) -> tuple[Words, NDArray[Any]]:
        """Sorted keys and where they stand, without those of steady sounds."""
        kept = _ones(keys) >= LEAST_ONES
        kept[1:] &= (keys[1:] != keys[:-1]) | (np.diff(self.sound[places]) != 0)
        keys, places = keys[kept], places[kept]
        order = np.argsort(keys, kind="stable")
        return keys[order], places[order]

    def candidates(self, query: Fingerprint, allowed: NDArray[np.bool_]) -> list[Candidate]:
        """The sounds, among those allowed [sound], that agree with the query around a frame, likeliest first."""
        asked, found = self._meetings(query)
        inside = allowed[self.sound[found]]
        asked, found = asked[inside], found[inside]
        sounds = self.sound[found]
        frames = found - self.starts[sounds] - asked
        _, first, met = np.unique((sounds << 40) + frames, return_index=True, return_counts=True)
        scores = met * (1 - self._distances(query, asked[first], found[first]) / FARTHEST)
        offsets: dict[int, list[tuple[float, int]]] = {}
        for place in np.flatnonzero(scores > 0):
            at = first[place]
            offsets.setdefault(int(sounds[at]), []).append((float(scores[place]), int(frames[at]) * HOP))
        ranked = [(sound, sorted(each, reverse=True)) for sound, each in offsets.items()]
        ranked.sort(key=lambda pair: -sum(score for score, _ in pair[1]))
        return [Candidate(sound, tuple(at for _, at in each[:OFFSETS])) for sound, each in ranked[:CANDIDATES]]

    def _meetings(self, query: Fingerprint) -> tuple[NDArray[Any], NDArray[Any]]:
        """Frames of the query and of the index that share a key, as far as the key is not too common."""
        loud = np.flatnonzero(query.loud)
        asked, found = [loud[:0]], [loud[:0]]
        for shift, (keys, places) in zip(KEYS, self._tables, strict=True):
            wanted = _keys(query.words[loud], shift)
            left, right = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))
            counts = np.where(right - left > MOST_COMMON, 0, right - left)
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            asked.append(np.repeat(loud, counts))
            found.append(places[np.repeat(left, counts) + within])
        return np.concatenate(asked), np.concatenate(found)

    def _distances(self, query: Fingerprint, asked: NDArray[Any], found: NDArray[Any]) -> NDArray[np.float64]:
        """The share of bits that differ around each meeting, of those set in either, silent frames left out."""
        steps = np.arange(-AROUND, AROUND + 1, 2)
        ours, theirs = asked[:, None] + steps, found[:, None] + steps
        sounds = self.sound[found][:, None]
        both = (ours >= 0) & (ours < len(query.words))
        both &= (theirs >= self.starts[sounds]) & (theirs < self.starts[sounds + 1])
        ours, theirs = np.where(both, ours, 0), np.where(both, theirs, 0)
        both &= query.loud[ours] & self.loud[theirs]
        one, other = query.words[ours], self.words[theirs]
        either = (_ones(one | other) * both).sum(axis=1)
        differing: NDArray[np.float64] = (_ones(one ^ other) * both).sum(axis=1) / np.maximum(either, 1)
        return differing


def distance(one: Fingerprint, other: Fingerprint, offset: int) -> float:
    """The share of bits that differ in all frames that both have, of those set in either; 1 where both have none.

    `one` begins `offset` samples after `other`. Silent frames are left out.
    """
    frames = np.arange(max(0, -(offset // HOP)), min(len(one.words), len(other.words) - offset // HOP))
    frames = frames[one.loud[frames] & other.loud[frames + offset // HOP]]
    ours, theirs = one.words[frames], other.words[frames + offset // HOP]
    either = int(_ones(ours | theirs).sum(dtype=np.int64))
    return int(_ones(ours ^ theirs).sum(dtype=np.int64)) / either if either else 1.0


def _keys(words: Words, shift: int) -> Words:
    return (words >> np.uint32(shift)) & np.uint32((1 << KEY_BITS) - 1)


def _ones(words: Words) -> NDArray[np.uint8]:
    """How many bits are set."""
    counts = _ones_of_16()
    ones: NDArray[np.uint8] = counts[words & np.uint32(0xFFFF)] + counts[words >> np.uint32(16)]
    return ones


@lru_cache(maxsize=1)
def _ones_of_16() -> NDArray[np.uint8]:
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    counts: NDArray[np.uint8] = np.unpackbits(numbers, axis=1).sum(axis=1, dtype=np.uint8)
    return counts
