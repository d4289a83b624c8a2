"""Near-duplicates among what was found: a print of each file's beginning, and hits folded behind the first of a kind.

A print tells of a file's first ten seconds: their fingerprint (`audio/fingerprint.py`), and the waveform from the first
sound on, as much of it as there is room for. The same sound as WAV, FLAC, MP3 or Ogg, resampled, louder or trimmed by
some milliseconds has nearly the same fingerprint, and its waveform is the same by `audio/likeness.py`, which tells two
strokes of one bell and two beeps apart. Excerpts, and copies with seconds of silence before them, are another matter
(`audio/recordings.py` finds those). Bounds and what they reach: `benchmarks/copies.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.audio.decode import resampled
from earmark.audio.fingerprint import DELAY, HOP, RATE, WINDOW, Samples, Words, fingerprint
from earmark.audio.likeness import Likeness, likeness
from earmark.search.query import Hit

PRINTED_S = 10.0
"""Seconds of a file's beginning that its print tells of."""
MOST_BYTES = 8192
"""Of a print."""
FORMAT = 1
"""The first byte of a print."""
HEAD = struct.Struct("<BIHI")
"""The format, samples at `RATE` Hz, frames, and the sample with which the waveform begins.

A word of four bytes a frame follows, a bit a frame (is it loud?), and the waveform, a byte a sample, its peak ±127.
"""
REACH = 16
"""Frames (8 ms each) by which one may begin before the other, beside the difference of their lengths."""
SAME = 0.6
"""The least closeness of fingerprints: different recordings seldom reach .5, copies seldom less than .75."""
LEAST_SHARE = 0.5
"""Of the bits of either print, so many must lie in what the two have in common."""
ONSET = 0.1
"""A sound begins where it reaches that share of its peak (−20 dB), and its waveform is kept from 64 ms before on."""
NEAR_S, NEAR = 0.1, 0.02
"""Seconds by which the durations of copies differ, and the share of the longer one, at most."""


# Prints


def print_of(blocks: Iterable[Samples], rate: int) -> bytes:
    """What the sound's first `PRINTED_S` seconds are known by; blocks [sample] mono at `rate` Hz.

    No block is taken beyond those seconds.
    """
    samples = _beginning(blocks, rate)
    found = fingerprint([samples])
    told = found.words.astype("<u4").tobytes() + np.packbits(found.loud).tobytes()
    start, wave = _piece(samples, MOST_BYTES - HEAD.size - len(told))
    return HEAD.pack(FORMAT, len(samples), len(found.words), start) + told + wave.tobytes()


def _piece(samples: Samples, size: int) -> tuple[int, NDArray[np.int8]]:
    """So many samples from the onset on, in a byte each, and the first one's place; sooner where the sound is short."""
    loudness = np.abs(samples)
    onset = int(np.argmax(loudness >= ONSET * loudness.max())) if len(samples) else 0
    start = max(0, min(onset - WINDOW, len(samples) - size))
    wave = samples[start : start + size]
    peak = max(float(np.abs(wave).max(initial=0)), float(np.finfo(np.float32).tiny))
    return start, np.round(127 * (wave / peak)).astype(np.int8)


def _beginning(blocks: Iterable[Samples], rate: int) -> Samples:
    """The first `PRINTED_S` seconds, or all there is, at `RATE` Hz."""
    held, missing = [np.zeros(0, np.float32)], round(PRINTED_S * rate)
    for block in blocks:
        held.append(block[:missing])
        missing -= len(block)
        if missing <= 0:
            break
    first = np.concatenate(held)
    return resampled(first, rate, RATE) if len(first) else first


class _Print(NamedTuple):
    """A print that was read."""

    words: Words
    """A word a frame; of silent frames 0."""
    ones: NDArray[np.int64]
    """How many bits the frames before each frame have set, and at last all."""
    seconds: float
    start: int
    """The sample with which the waveform begins."""
    wave: Samples
    """±1."""


@lru_cache(maxsize=1024)
def _read(made: bytes) -> _Print | None:
    """None where it is no print, or one of another version."""
    if len(made) < HEAD.size or made[0] != FORMAT:
        return None
    _, samples, frames, start = HEAD.unpack_from(made)
    loud_at, wave_at = HEAD.size + 4 * frames, HEAD.size + 4 * frames - (-frames // 8)
    if len(made) < wave_at or frames == 0:
        return None
    words = np.frombuffer(made, "<u4", frames, HEAD.size).astype(np.uint32)
    loud = np.unpackbits(np.frombuffer(made, np.uint8, wave_at - loud_at, loud_at), count=frames)
    words[loud == 0] = 0
    wave = np.frombuffer(made, np.int8, offset=wave_at).astype(np.float32) / np.float32(127)
    return _Print(words, _sums(np.bitwise_count(words)), samples / RATE, start, wave)


def _sums(counts: NDArray[Any]) -> NDArray[np.int64]:
    """The sums of what stands before each place and, at last, of all, along the last axis."""
    sums = np.zeros((*counts.shape[:-1], counts.shape[-1] + 1), np.int64)
    np.cumsum(counts, axis=-1, out=sums[..., 1:])
    return sums


# Likeness


@lru_cache(maxsize=4096)
def alike(one: bytes, other: bytes) -> bool:
    """Whether two prints are those of copies of one recording; False where there is too little to tell by."""
    ours, theirs = _read(one), _read(other)
    if ours is None or theirs is None or not as_long(ours.seconds, theirs.seconds):
        return False
    close, offset = _closeness(ours, theirs)
    return close >= SAME and _likeness(ours, theirs, offset).same(contained=True, as_long=True)


def closeness(one: bytes, other: bytes) -> float:
    """How far the fingerprints of two prints agree, 0–1: the bits set in both over those set in either, at their best.

    Of frames that both have and, where one begins later, of those whose look back (`DELAY`) does not end in the silence
    before it. 0 where less than `LEAST_SHARE` of the bits of either lies in those frames.
    """
    ours, theirs = _read(one), _read(other)
    return 0.0 if ours is None or theirs is None else _closeness(ours, theirs)[0]


def _closeness(ours: _Print, theirs: _Print) -> tuple[float, int]:
    """The closeness, and the frames of ours before their first (below 0 where they begin earlier)."""
    if len(ours.words) < len(theirs.words):
        close, offset = _closeness(theirs, ours)
        return close, -offset
    size = len(theirs.words)
    silence = np.zeros(REACH, np.uint32)
    places = np.lib.stride_tricks.sliding_window_view(np.concatenate([silence, ours.words, silence]), size)
    offsets = np.arange(len(places)) - REACH
    shared = _sums(np.bitwise_count(places & theirs.words))
    first = np.where(offsets == 0, 0, np.maximum(0, -offsets) + DELAY).clip(0, size)
    last = np.minimum(size, len(ours.words) - offsets).clip(first)
    rows = np.arange(len(places))
    both = shared[rows, last] - shared[rows, first]
    begin, end = (np.clip(edge + offsets, 0, len(ours.words)) for edge in (first, last))
    of_ours, of_theirs = ours.ones[end] - ours.ones[begin], theirs.ones[last] - theirs.ones[first]
    inside = (of_ours >= LEAST_SHARE * ours.ones[-1]) & (of_theirs >= LEAST_SHARE * theirs.ones[-1])
    values = np.where(inside, both / np.maximum(of_ours + of_theirs - both, 1), 0.0)
    best = int(np.argmax(values))
    return float(values[best]), int(offsets[best])


def _likeness(ours: _Print, theirs: _Print, offset: int) -> Likeness:
    """Of the waveforms, where ours begins `offset` frames, ±2, before theirs."""
    return likeness(ours.wave, theirs.wave, theirs.start + offset * HOP - ours.start, reach=2 * HOP)


def as_long(one_s: ArrayLike, other_s: ArrayLike) -> NDArray[np.bool_]:
    """Whether sounds of so many seconds each may be copies of each other by that alone; arrays broadcast."""
    differ = np.abs(np.subtract(one_s, other_s))
    return np.asarray(differ <= np.maximum(NEAR_S, NEAR * np.maximum(one_s, other_s)))


# Hits


def folded(hits: Sequence[Hit], prints: Mapping[str, bytes]) -> list[Hit]:
    """The hits in order, near-duplicates behind the first of their kind: their paths stand in its `copies`.

    Copies are files of one `content`, and those whose `prints` (by `file_id`) are alike; a file without a print is a
    copy by its content alone. Each hit is compared with the first ones alone, so that no chain of small differences
    joins what is not alike.
    """
    kept: list[Hit] = []
    for hit in hits:
        for place, first in enumerate(kept):
            if _copies(first, hit, prints):
                kept[place] = replace(first, copies=(*first.copies, hit.shown, *hit.copies))
                break
        else:
            kept.append(hit)
    return kept


def _copies(one: Hit, other: Hit, prints: Mapping[str, bytes]) -> bool:
    if one.content and one.content == other.content:
        return True
    return bool(as_long(one.duration_s, other.duration_s)) and alike(
        prints.get(one.file_id, b""), prints.get(other.file_id, b"")
    )
