"""Draws of clips for captions: every pair with exactly the chance that is told, every clip about equally often.

First the chances, then a draw that has them. `chances` raises those of clips that would be asked seldom and lowers
those of clips that would be asked often, within bounds. `drawn` rounds a table of chances to 0 and 1 by dependent
rounding (Gandhi, Khuller, Parthasarathy and Srinivasan, J. ACM 53(3), 2006): each pair is drawn with its chance, a
caption gets as many clips as its chances sum to, and a clip is drawn the sum of its chances, rounded up or down.

A table is a sequence of pairs, the pairs of one caption beside each other: arrays `row` (caption) and `column` (clip).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Places = NDArray[np.int64]
Chances = NDArray[np.float64]
WHOLE = 1 << 40
"""Chances are whole numbers of that many parts in the draw, so that sums stay exact."""
ROUNDS = 60
"""Of levelling at most; it ends when no weight changes by a thousandth."""
MOST = 200_000
"""Pairs that are balanced at once, in some seconds; of larger tables a part is drawn first."""


def chances(row: Places, column: Places, counts: Places, expected: Chances, reach: float) -> Chances:
    """The chance of each pair, in (0, 1]: a caption's sum to its `counts`, clips' as equal as may be.

    The chance of clip i for caption c is min(1, λ_c · v_i). v_i is 1 / `reach` to `reach`; the more often the clip is
    asked, `expected` [clip] times elsewhere and here, the lower it is. `reach` 1 gives every clip of a caption the
    same chance. A caption's count is at most the number of its pairs.
    """
    weight = np.ones(len(expected))
    found = _scaled(row, weight[column], counts)
    here = np.unique(column)
    for _ in range(ROUNDS if reach > 1 else 0):
        times = (expected + np.bincount(column, found, len(expected)))[here]
        new = weight[here] * np.sqrt(times.mean() / np.maximum(times, 1e-12))
        new = (new / np.exp(np.log(new).mean())).clip(1 / reach, reach)
        change = abs(new / weight[here] - 1).max()
        weight[here] = new
        found = _scaled(row, weight[column], counts)
        if change < 1e-3:
            break
    return found


def _scaled(row: Places, weight: Chances, counts: Places) -> Chances:
    """min(1, λ · weight) with each row's λ such that its sum is its count."""
    free = np.ones(len(row), dtype=np.bool_)
    while True:
        room = counts - np.bincount(row[~free], minlength=len(counts))
        total = np.bincount(row, weight * free, len(counts))
        found = np.where(free, weight * (room / np.where(total > 0, total, 1))[row], 1.0)
        over = free & (found >= 1)
        if not over.any():
            return found
        free &= ~over


def drawn(row: Places, column: Places, wanted: Chances, rng: Generator) -> NDArray[np.bool_]:
    """Which pairs are drawn: each with its chance in `wanted`; rows have their sums, which must be whole numbers.

    A clip is drawn floor(s) or ceil(s) times, s being the sum of its chances. Of tables of more than `MOST` pairs, t
    times as many pairs as wanted are drawn first, row by row, and s is 1 / t of how often the clip is among those.
    """
    chosen = np.zeros(len(row), dtype=np.bool_)
    if not len(row):
        return chosen
    parts = _in_parts(row, wanted)
    kept = np.flatnonzero(parts)
    if (step := _step(parts)) < WHOLE:
        kept = _thinned(row, parts, step, rng)
        parts[kept] = step
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    # by chance, but the same for all: so cycles are short
    kept = kept[np.lexsort((rng.permutation(columns)[column[kept]], rng.permutation(rows)[row[kept]]))]
    ends = [(int(r), rows + int(c)) for r, c in zip(row[kept], column[kept], strict=True)]
    chosen[kept] = _rounded(ends, parts[kept].tolist(), rng)
    return chosen


def _step(parts: Places) -> int:
    """What each pair that is drawn first weighs: a power of two parts, no less than any chance; `WHOLE` where the table
    is small or a chance is high.
    """
    if len(parts) <= MOST:
        return WHOLE
    least = max(int(parts.max()), int(parts.sum()) // MOST)
    return min(WHOLE, 1 << (least - 1).bit_length())


def _in_parts(row: Places, wanted: Chances) -> Places:
    """The chances in whole parts, each row's sum exact: what rounding leaves over goes to the middlemost pair."""
    parts = np.rint(wanted * WHOLE).astype(np.int64)
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    sums = np.add.reduceat(parts, starts)
    for start, end, over in zip(starts, [*starts[1:], len(row)], sums - _whole(sums), strict=True):
        if over:
            parts[start + np.argmin(abs(parts[start:end] - WHOLE // 2))] -= over
    return parts


def _whole(sums: Places) -> Places:
    found: Places = (sums + WHOLE // 2) // WHOLE * WHOLE
    return found


def _thinned(row: Places, parts: Places, step: int, rng: Generator) -> Places:
    """The places of the pairs that are drawn first, each with the chance parts / `step`: a systematic draw a row."""
    order = np.lexsort((rng.random(len(row)), row))
    reached = np.cumsum(parts[order])
    start = rng.integers(0, step, int(row.max()) + 1)[row[order]]
    # rows begin at multiples of WHOLE, so that each has its own start and WHOLE / step draws a wanted clip
    found: Places = order[(reached + start) // step > (reached - parts[order] + start) // step]
    return found


def _rounded(ends: Sequence[tuple[int, int]], parts: list[int], rng: Generator) -> list[bool]:
    """Each edge's parts brought to 0 or `WHOLE`, along cycles and longest paths of those that are neither yet."""
    at: list[list[int]] = [[] for _ in range(1 + max(max(pair) for pair in ends))]
    for edge, (one, other) in enumerate(ends):
        at[one].append(edge)
        at[other].append(edge)
    for start in range(len(at)):
        while _next(at[start], parts, -1) is not None:
            path, closed, last = _walk(start, ends, at, parts)
            if not closed:
                path, _, _ = _walk(last, ends, at, parts)
            _shift(path, parts, rng)
    return [part == WHOLE for part in parts]


def _next(edges: list[int], parts: Sequence[int], last: int) -> int | None:
    """An edge of a corner that is neither 0 nor whole, and not `last`; those that are done are forgotten."""
    while edges and parts[edges[-1]] in (0, WHOLE):
        edges.pop()
    if edges and edges[-1] != last:
        return edges[-1]
    while len(edges) > 1 and parts[edges[-2]] in (0, WHOLE):
        del edges[-2]
    return edges[-2] if len(edges) > 1 else None


def _walk(
    start: int, ends: Sequence[tuple[int, int]], at: list[list[int]], parts: Sequence[int]
) -> tuple[list[int], bool, int]:
    """The edges of a cycle that a walk from `start` closes, or of a path; whether closed; its end."""
    path: list[int] = []
    place, corner = {start: 0}, start
    while (edge := _next(at[corner], parts, path[-1] if path else -1)) is not None:
        path.append(edge)
        corner = ends[edge][0] + ends[edge][1] - corner
        if corner in place:
            return path[place[corner] :], True, corner
        place[corner] = len(path)
    return path, False, corner


def _shift(path: Sequence[int], parts: list[int], rng: Generator) -> None:
    """Moves parts between every other edge and the rest, until one is 0 or whole; on average by nothing."""
    up, down = path[::2], path[1::2]
    more = min([WHOLE - parts[edge] for edge in up] + [parts[edge] for edge in down])
    less = min([parts[edge] for edge in up] + [WHOLE - parts[edge] for edge in down])
    by = more if rng.random() * (more + less) < less else -less
    for edge in up:
        parts[edge] += by
    for edge in down:
        parts[edge] -= by
