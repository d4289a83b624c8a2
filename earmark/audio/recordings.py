"""Which of many sound files are the same recording, by their fingerprints and then by their waveforms.

Files are streamed and only their fingerprints are kept (2.3 MB an hour). Those that may be the same are decoded once
more, whole where they are short, in pieces where they are long, and judged by the correlation of what they have in
common. Copies that are transcoded, resampled, louder, trimmed or cut out of a longer file are found, sounds that are
merely alike are not: see `benchmarks/duplicates.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from earmark.audio.decode import blocks
from earmark.audio.fingerprint import DELAY, HOP, RATE, Fingerprint, Index, Samples, distance, fingerprint
from earmark.audio.likeness import NONE, REACH, SURE, UNLIKE, Likeness, likeness
from earmark.errors import EarmarkError

PIECES, PIECE = 5, 3 * RATE
"""An overlap that is longer than so many pieces of so many samples is judged by them: by their median."""
SHORT = 60 * RATE
"""Samples of a sound that is held whole while it is compared."""
AT_ONCE = 1 << 23
"""Samples that are held while pairs are judged together, 34 MB; each sound is decoded once for them."""
FARTHEST = 0.65
"""Bits that differ between fingerprints, at most: between transcoded ones it is .2, seldom .4."""
LEAST_SHARE, LEAST = 0.5, 1 * RATE
"""What is common must be that share of the shorter sound, or so many samples."""
NEARLY = 0.9
"""The share of a sound's loud frames that is nearly all of it, or as long."""

Progress = Callable[[str, int, int], None]
"""Told (what is done, items done, items in all)."""
Span = tuple[int, int]
"""Samples from, to."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Match(NamedTuple):
    """Two files that hold the same recording."""

    one: Path
    other: Path
    starts: tuple[float, float]
    """Seconds of each before what they have in common."""
    seconds: float
    """How long that is."""
    likeness: float
    """0–1."""


class _Pair(NamedTuple):
    one: Path
    other: Path
    offsets: tuple[int, ...]
    """Samples of the other before the first of the one, likeliest first."""


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], what: str, tell: Progress
) -> Iterator[Result]:
    """What the function makes of each item, in order, on all cores."""
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        for done, result in enumerate(pool.map(function, items), start=1):
            yield result
            tell(what, done, len(items))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted comparison does not go on to the last file


def attempted(
    function: Callable[[Path], Result], paths: Sequence[Path], what: str, tell: Progress
) -> tuple[dict[Path, Result], dict[Path, str]]:
    """What the function makes of each path, and of which paths it makes nothing, with the reason."""
    done: dict[Path, Result] = {}
    failed: dict[Path, str] = {}

    def attempt(path: Path) -> None:
        try:
            done[path] = function(path)
        except (EarmarkError, OSError) as error:
            failed[path] = str(error).removeprefix(f"{path}: ").rstrip(".")

    for _ in in_threads(attempt, paths, what, tell):
        pass
    return {path: done[path] for path in paths if path in done}, failed


def listen(paths: Sequence[Path], tell: Progress) -> tuple[dict[Path, Fingerprint], dict[Path, str]]:
    """The fingerprint of each file, and which files cannot be read, with the reason."""
    return attempted(lambda path: fingerprint(blocks(path, RATE)), paths, "listening", tell)


def same_recordings(
    prints: Mapping[Path, Fingerprint], sides: Mapping[Path, set[int]], tell: Progress
) -> Iterator[Match]:
    """The pairs of files on different sides that hold the same recording, each pair once.

    `sides` tells on which sides a file stands; one on several is compared with all.
    """
    pairs = _candidates(prints, sides, tell)
    parts = list(_parts(pairs, prints))
    for matches in in_threads(lambda part: _judged(part, prints), parts, "comparing", tell):
        yield from matches


def _candidates(prints: Mapping[Path, Fingerprint], sides: Mapping[Path, set[int]], tell: Progress) -> list[_Pair]:
    """The pairs that may be the same, those of one long sound behind each other."""
    found: dict[tuple[Path, Path], tuple[int, ...]] = {}
    every = sorted(set[int]().union(*sides.values()))
    asked = {side: [path for path in prints if min(sides[path]) < side] for side in every}
    done, all_ = 0, sum(map(len, asked.values()))
    for side in every:
        inside = {path: place for place, path in enumerate(path for path in prints if side in sides[path])}
        index, names = Index([prints[path] for path in inside] if asked[side] else []), list(inside)
        for path in asked[side]:
            allowed = np.ones(len(names), np.bool_)
            if path in inside:
                allowed[inside[path]] = False
            for candidate in index.candidates(prints[path], allowed):
                other = names[candidate.sound]
                near = [at for at in candidate.offsets if distance(prints[path], prints[other], at) <= FARTHEST]
                if near and (other, path) not in found:
                    found.setdefault((path, other), tuple(near))
            done += 1
            tell("looking for candidates", done, all_)
    pairs = [_Pair(one, other, offsets) for (one, other), offsets in found.items()]
    return sorted(pairs, key=lambda pair: max((prints[path].samples, str(path)) for path in pair[:2]))


# Judgement


def _parts(pairs: Sequence[_Pair], prints: Mapping[Path, Fingerprint]) -> Iterator[list[_Pair]]:
    """The pairs in order, so many together as `AT_ONCE` allows."""
    part: list[_Pair] = []
    held = 0
    for pair in pairs:
        part.append(pair)
        shorter = min(prints[pair.one].samples, prints[pair.other].samples, PIECES * PIECE)
        held += sum(
            length if (length := prints[path].samples) <= SHORT else (shorter + 2 * REACH) * len(pair.offsets)
            for path in pair[:2]
        )
        if held >= AT_ONCE:
            yield part
            part, held = [], 0
    if part:
        yield part


def _judged(pairs: Sequence[_Pair], prints: Mapping[Path, Fingerprint]) -> list[Match]:
    """Those of the pairs that are the same recording."""
    plans = [[_pieces(prints[pair.one], prints[pair.other], offset) for offset in pair.offsets] for pair in pairs]
    wanted: dict[Path, list[Span]] = {}
    for pair, plan in zip(pairs, plans, strict=True):
        wanted.setdefault(pair.one, []).extend(one for pieces in plan for one, _ in pieces)
        wanted.setdefault(pair.other, []).extend(other for pieces in plan for _, other in pieces)
    heard = {path: _cuts(path, prints[path].samples, spans) for path, spans in wanted.items()}
    matches = []
    for pair, plan in zip(pairs, plans, strict=True):
        best = NONE
        for pieces, offset in zip(plan, pair.offsets, strict=True):
            alike = [
                _alike(heard[pair.one][one], heard[pair.other][other], one[0], other[0], offset)
                for one, other in pieces
            ]
            best = max(best, _median(alike)) if alike else best
            if not UNLIKE <= best.value < SURE:
                break
        if match := _match(pair, best, prints):
            matches.append(match)
    return matches


def _alike(one: Samples, other: Samples, start: int, start_of_other: int, offset: int) -> Likeness:
    """The likeness of two cuts, its offset that of the whole sounds."""
    found = likeness(other, one, start + offset - start_of_other)
    return found._replace(offset=found.offset + start_of_other - start)


def _pieces(one: Fingerprint, other: Fingerprint, offset: int) -> list[tuple[Span, Span]]:
    """The spans of both that are compared: all that they have in common, or pieces of it where both are loud."""
    start, stop = _common(one, other, offset)
    spans = [(start, stop)]
    if stop - start > PIECES * PIECE:
        frames = np.arange(start // HOP, stop // HOP)
        frames = frames[one.loud[frames] & other.loud[np.clip(frames + offset // HOP, 0, len(other.loud) - 1)]]
        middles: Any = np.quantile(frames, (np.arange(PIECES) + 0.5) / PIECES) * HOP if len(frames) else []
        spans = [(int(middle) - PIECE // 2, int(middle) + PIECE // 2) for middle in middles]
    return [(_widened(first, last), _widened(first + offset, last + offset)) for first, last in spans]


def _common(one: Fingerprint, other: Fingerprint, offset: int) -> Span:
    """Where in the one stands what the other has too."""
    return max(0, -offset), min(one.samples, other.samples - offset)


def _widened(start: int, stop: int) -> Span:
    return max(0, start - REACH), max(0, stop + REACH)


def _cuts(path: Path, samples: int, spans: Iterable[Span]) -> dict[Span, Samples]:
    """The spans of a file that has so many samples; of a long one no more than them is held."""
    if samples <= SHORT:
        whole = np.concatenate(list(blocks(path, RATE)))
        return {span: whole[slice(*span)] for span in spans}
    parts: dict[Span, list[Samples]] = {span: [] for span in spans}
    at = 0
    for block in blocks(path, RATE):
        for start, stop in parts:
            if start < at + len(block) and stop > at:
                parts[start, stop].append(block[max(0, start - at) : stop - at].copy())
        at += len(block)
    return {span: np.concatenate([np.zeros(0, np.float32), *pieces]) for span, pieces in parts.items()}


def _median(tried: Sequence[Likeness]) -> Likeness:
    """The likeness of the middle one of the pieces, with the traces of all."""
    ranked = sorted(tried, key=lambda each: each.value)
    return ranked[len(ranked) // 2]._replace(traces=sum(each.traces for each in tried))


def _match(pair: _Pair, best: Likeness, prints: Mapping[Path, Fingerprint]) -> Match | None:
    """The match, where they are alike enough over enough."""
    one, other = prints[pair.one], prints[pair.other]
    start, stop = _common(one, other, best.offset)
    if stop - start < min(LEAST, LEAST_SHARE * min(one.samples, other.samples)):
        return None
    loud, loud_of_other = int(one.loud.sum()), int(other.loud.sum())
    inside = int(one.loud[start // HOP : stop // HOP].sum())
    inside_of_other = int(other.loud[(start + best.offset) // HOP : (stop + best.offset) // HOP].sum())
    contained = inside + DELAY >= NEARLY * loud or inside_of_other + DELAY >= NEARLY * loud_of_other
    as_long = min(loud, loud_of_other) + DELAY >= NEARLY * max(loud, loud_of_other)
    if not best.same(contained, as_long):
        return None
    starts = (start / RATE, (start + best.offset) / RATE)
    return Match(pair.one, pair.other, starts, (stop - start) / RATE, min(1.0, best.value))
