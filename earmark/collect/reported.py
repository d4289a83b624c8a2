"""What a rater's browser tells, checked: nothing is believed that cannot be.

`check_...` raise `RefusedError` 422. Times are seconds; a rating is 0–100.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from earmark.collect.store import RefusedError

TOLERANCE_S = 2.0
"""By how much a browser's times may run before ours."""
EDGE_S = 0.25
"""What may be missing of a clip that was heard to its end: players stop telling a moment before it."""
MOST_PARTS = 1000
MOST_COUNT = 100_000
LONGEST_WORD = 64

Parts = Sequence[Sequence[float]]
"""Of a clip: (start, end) in seconds of the clip."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one load of a page (`view`) has played of a clip so far; each telling holds all of the ones before."""

    view: str
    """Random, made by the page when it is loaded; at most 64 letters."""
    covered: Parts
    """What of the clip has sounded."""
    played_s: float
    """How long it sounded; parts that were played twice count twice."""
    plays: int = 0
    seeks: int = 0
    first_play_s: float | None = None
    """When it was first played, in seconds since the page was shown."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """One position of a slider that the rater let go of."""

    key: str
    """Random, made by the page for this answer: the same one twice is one answer. At most 64 letters."""
    view: str
    """Of the load of the page, as in `Heard`."""
    rating: float
    """0–100, with one decimal at most."""
    rated_s: float
    """In seconds since the page was shown."""


def check_heard(told: Heard) -> None:
    """Raises where a time is none, a part ends before it starts, or there are too many of them."""
    _check_word(told.view, "view")
    if len(told.covered) > MOST_PARTS:
        raise RefusedError(f"{len(told.covered)} parts of a clip; expected at most {MOST_PARTS}.", 422)
    for part in told.covered:
        if len(part) != 2:
            raise RefusedError(f"{len(part)} times of a part of a clip; expected start and end.", 422)
        _check_seconds(*part)
        if part[0] > part[1]:
            raise RefusedError(f"a part of a clip from {part[0]:g} s to {part[1]:g} s; expected its start first.", 422)
    _check_seconds(told.played_s, 0.0 if told.first_play_s is None else told.first_play_s)
    for count in (told.plays, told.seeks):
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST_COUNT:
            raise RefusedError(f"plays and seeks: expected whole numbers from 0 to {MOST_COUNT:,}.", 422)


def check_answer(told: GivenAnswer) -> None:
    """Raises where the rating or the time is none."""
    _check_word(told.key, "key")
    _check_word(told.view, "view")
    _check_seconds(told.rated_s)
    rating = told.rating
    if not _is_finite(rating) or not 0 <= rating <= 100 or abs(rating - round(rating, 1)) > 1e-9:
        raise RefusedError("rating: expected a number from 0 to 100 with one decimal at most.", 422)


def plain_rating(rating: float) -> float:
    """The rating with one decimal, and zero without a sign."""
    return abs(round(float(rating), 1))


def _check_word(value: object, what: str) -> None:
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= LONGEST_WORD
        or not (value.isascii() and value.isprintable())
    ):
        raise RefusedError(f"{what}: expected 1 to {LONGEST_WORD} ASCII letters.", 422)


def _check_seconds(*values: object) -> None:
    for value in values:
        if not _is_finite(value) or value < 0:  # type: ignore[operator]
            raise RefusedError("a time that is none; expected seconds, finite and not below 0.", 422)


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


# What was heard


def union(parts: Parts, duration_s: float) -> list[tuple[float, float]]:
    """The parts of a clip as ones that do not touch, in order, up to its duration."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted((min(start, duration_s), min(end, duration_s)) for start, end in parts):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined


def share(parts: Parts, duration_s: float, most_s: float) -> float:
    """Of the clip's duration what the parts cover together, 0–1, as if at most `most_s` seconds."""
    covered = min(sum(end - start for start, end in union(parts, duration_s)), most_s)
    return 1.0 if duration_s - covered <= min(EDGE_S, duration_s / 20) else covered / duration_s


def seconds_of(parts: Parts) -> float:
    """How long the parts of a clip are together, each moment once."""
    return sum(end - start for start, end in union(parts, math.inf))


def listen_first(needed: float, heard: float) -> str:
    """What is told where too little was heard, in whole per cent: what was heard never looks like enough."""
    return f"Listen to {math.ceil(round(needed * 100, 6))}% of the clip first; {math.floor(heard * 100)}% was heard."


def merged(
    before: Any | None, told: Heard, duration_s: float, most_s: float, left_s: float, played_s: float
) -> dict[str, Any]:
    """The columns of `heard` of one load of a page: what it told before, and what it tells now.

    No moment is above `most_s`, the seconds that there were. Of what is covered only the first `left_s` seconds are
    kept, and it sounded for `played_s` at most: the rest of the time other clips of the page, or other loads, sounded.
    """
    parts = json.loads(before.covered) if before else []
    first = [each for each in (before and before.first_play_s, told.first_play_s) if each is not None]
    return {
        "covered": json.dumps(_beginning(union([*parts, *told.covered], duration_s), left_s)),
        "played_s": min(max(told.played_s, before.played_s if before else 0.0), played_s),
        "plays": max(told.plays, before.plays if before else 0),
        "seeks": max(told.seeks, before.seeks if before else 0),
        "first_play_s": min(*first, most_s) if first else None,
    }


def _beginning(parts: Parts, most_s: float) -> list[tuple[float, float]]:
    """The first `most_s` seconds of the parts, to the microsecond: clips of a few samples have parts too."""
    kept = []
    for start, end in parts:
        if most_s <= 0:
            break
        kept.append((round(start, 6), round(min(end, start + most_s), 6)))
        most_s -= end - start
    return kept
