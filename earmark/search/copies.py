"""Near-duplicates among what was found: a print of each file's beginning, and hits folded behind the first of a kind.

A print is the fingerprint (`audio/fingerprint.py`) of a file's first ten seconds: the same sound as WAV, FLAC, MP3 or
Ogg, resampled, louder or trimmed by some milliseconds has nearly the same one. Excerpts, and copies with much silence
before them, are another matter (`audio/recordings.py` finds those, by the waveforms). Bounds and what they reach:
`benchmarks/copies.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import resampled
from earmark.audio.fingerprint import DELAY, RATE, Samples, Words, fingerprint
from earmark.search.query import Hit

PRINTED_S = 10.0
"""Seconds of a file's beginning that its print tells of."""
FORMAT = 1
"""The first byte of a print."""
HEAD = struct.Struct("<BI")
"""The format and the samples at `RATE` Hz; a word of four bytes a frame follows, then a bit a frame: is it loud?"""
REACH = 16
"""Frames (8 ms each) by which one may begin before the other, beside the difference of their lengths."""
SAME = 0.6
"""The least closeness of copies. Different recordings reach .5 at most, and copies seldom less than .75."""
LEAST_BITS = 50
"""Bits that copies share at least, 1 in 50 of a second of noise: of less (a beep) nothing is said."""
LEAST_SHARE = 0.5
"""Of the bits of either print, so many must lie in what the two have in common."""
NEAR_S, NEAR = 0.3, 0.02
"""Seconds by which the durations of copies differ, and the share of the longer one, at most."""


# Prints


def print_of(blocks: Iterable[Samples], rate: int) -> bytes:
    """What the sound's first `PRINTED_S` seconds are known by, at most 5.2 KB; blocks [sample] mono at `rate` Hz.

    No block is taken beyond those seconds.
    """
    first = np.concatenate([np.zeros(0, np.float32), *_first(blocks, round(PRINTED_S * rate))])
    found = fingerprint([resampled(first, rate, RATE)] if len(first) else [])
    return HEAD.pack(FORMAT, found.samples) + found.words.astype("<u4").tobytes() + np.packbits(found.loud).tobytes()


def _first(blocks: Iterable[Samples], samples: int) -> Iterator[Samples]:
    for block in blocks:
        yield block[:samples]
        samples -= len(block)
        if samples <= 0:
            return


class _Print(NamedTuple):
    """A print that was read."""

    words: Words
    """A word a frame; of silent frames 0."""
    ones: NDArray[np.int64]
    """How many bits the frames before each frame have set, and at last all."""
    seconds: float


@lru_cache(maxsize=1024)
def _read(made: bytes) -> _Print | None:
    """None where it is no print, or one of another version."""
    if len(made) < HEAD.size or made[0] != FORMAT:
        return None
    _, samples = HEAD.unpack_from(made)
    frames = (len(made) - HEAD.size) * 8 // 33
    words = np.frombuffer(made, "<u4", frames, HEAD.size).astype(np.uint32)
    loud = np.unpackbits(np.frombuffer(made, np.uint8, offset=HEAD.size + 4 * frames), count=frames)
    words[loud == 0] = 0
    return _Print(words, _sums(np.bitwise_count(words)), samples / RATE)


def _sums(counts: NDArray[Any]) -> NDArray[np.int64]:
    """The sums of what stands before each place and, at last, of all, along the last axis."""
    sums = np.zeros((*counts.shape[:-1], counts.shape[-1] + 1), np.int64)
    np.cumsum(counts, axis=-1, out=sums[..., 1:])
    return sums


# Likeness


def alike(one: bytes, other: bytes) -> bool:
    """Whether two prints are those of copies of one recording; False where there is too little to tell by."""
    ours, theirs = _read(one), _read(other)
    if ours is None or theirs is None or not _as_long(ours.seconds, theirs.seconds):
        return False
    return _closeness(ours, theirs) >= SAME


def closeness(one: bytes, other: bytes) -> float:
    """How far two prints agree, 0–1: the bits set in both over those set in either, where they agree best.

    Of frames that both have and, where one begins later, of those whose look back (`DELAY`) does not end in the silence
    before it. 0 where they share fewer than `LEAST_BITS`, or less than `LEAST_SHARE` of either lies in those frames.
    """
    ours, theirs = _read(one), _read(other)
    return 0.0 if ours is None or theirs is None else _closeness(ours, theirs)


def _closeness(ours: _Print, theirs: _Print) -> float:
    long, short = (ours, theirs) if len(ours.words) >= len(theirs.words) else (theirs, ours)
    size = len(short.words)
    if not size:
        return 0.0
    silence = np.zeros(REACH, np.uint32)
    places = np.lib.stride_tricks.sliding_window_view(np.concatenate([silence, long.words, silence]), size)
    offsets = np.arange(len(places)) - REACH  # frames of the long one before the short one's first
    shared = _sums(np.bitwise_count(places & short.words))
    first = np.where(offsets == 0, 0, np.maximum(0, -offsets) + DELAY).clip(0, size)
    last = np.minimum(size, len(long.words) - offsets).clip(first)
    rows = np.arange(len(places))
    both = shared[rows, last] - shared[rows, first]
    begin, end = (np.clip(edge + offsets, 0, len(long.words)) for edge in (first, last))
    of_long, of_short = long.ones[end] - long.ones[begin], short.ones[last] - short.ones[first]
    tells = (of_long >= LEAST_SHARE * long.ones[-1]) & (of_short >= LEAST_SHARE * short.ones[-1]) & (both >= LEAST_BITS)
    return float(np.max(both / np.maximum(of_long + of_short - both, 1), where=tells, initial=0.0))


def _as_long(one_s: float, other_s: float) -> bool:
    return abs(one_s - other_s) <= max(NEAR_S, NEAR * max(one_s, other_s))


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
    return _as_long(one.duration_s, other.duration_s) and alike(
        prints.get(one.file_id, b""), prints.get(other.file_id, b"")
    )
