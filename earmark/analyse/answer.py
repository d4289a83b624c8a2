"""The ratings that people would give to scores, and how well they fit those that people gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.calibrate import Calibration
from earmark.analyse.correlate import FEWEST
from earmark.analyse.score import ADDED, Scores
from earmark.measure.stats import rated_measures

Floats = NDArray[np.float64]
UNDEFINED = dict.fromkeys(("SRCC", "LCC", "KTAU"), float("nan"))
"""Correlations of fewer than three pairs (`FEWEST`)."""


@dataclass(frozen=True)
class Answer:
    """Scores with the ratings that people would give."""

    scores: Scores
    expected: Floats
    low: Floats
    high: Floats
    """0–100, as the other two."""
    level: float
    measures: dict[str, Any] | None
    """Against people's ratings, by the keys that docs/score.md lists; None where none are known."""
    notes: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """Each pair's own columns, and `ADDED`: cosines to 6 digits, ratings to 2."""
        found = []
        columns = zip(self.scores.rows, self.scores.cosines, self.expected, self.low, self.high, strict=True)
        for row, cosine, *ratings in columns:
            numbers = [round(float(cosine), 6), *(round(float(each), 2) for each in ratings)]
            found.append({**row, **dict(zip(ADDED, numbers, strict=True))})
        return found


def answer(calibration: Calibration, scores: Scores, level: float = 0.9) -> Answer:
    """The scores' expected ratings with intervals, and the measures against people's where some are known."""
    expected, low, high = calibration.rating(scores.cosines, level)
    rated = np.isfinite(scores.ratings)
    notes = list(scores.notes)
    texts = dict(zip(scores.captions, scores.texts, strict=True))
    if known := calibration.fitted_on(texts.values()):
        notes.append(f"THE MAP WAS FITTED ON {known:,} OF THESE {len(texts):,} CAPTIONS: measures on them flatter it")
    notes += calibration.notes(level)
    if outside := calibration.outside(scores.cosines):
        least, most = calibration.cosine_range
        notes.append(
            f"cosines outside {least:.3f} to {most:.3f}, where the map was fitted: {outside:,} of "
            f"{len(scores.cosines):,}; they get the rating and the interval of the nearer end"
        )
    measured = None
    if rated.any():
        parts = [column[rated] for column in (scores.cosines, expected, low, high, scores.ratings)]
        measured = measures(calibration, *parts)
        captions = {caption for caption, has in zip(scores.captions, rated, strict=True) if has}
        measured |= {"captions": len(captions), "level": level}
        measured["groups"] = _group_measures(scores.groups, rated, expected, low, high, scores.ratings)
    return Answer(scores, expected, low, high, level, measured, notes)


def measures(
    calibration: Calibration, cosines: Floats, expected: Floats, low: Floats, high: Floats, ratings: Floats
) -> dict[str, Any]:
    """How well expected ratings and intervals fit people's ratings, all 0–100 [pair]; NaN where undefined.

    SRCC, LCC, KTAU and MSE (on 0–1, as `evaluate` has it) of the expected rating and of the cosine (below 0 as 0 for
    MSE); MSE of two constants, the mean of the ratings that the map was fitted on and of those here, which is the best
    that any constant does; the share of ratings inside the interval, and its mean width in rating points.
    """
    y = ratings / 100
    of_expected = rated_measures(expected / 100, y)
    of_cosine = {**rated_measures(cosines, y), "MSE": float(np.mean((cosines.clip(0, 1) - y) ** 2))}
    return {
        "pairs": len(ratings),
        "expected": of_expected if len(y) >= FEWEST else {**of_expected, **UNDEFINED},
        "cosine": of_cosine if len(y) >= FEWEST else {**of_cosine, **UNDEFINED},
        "constant_fitted": _constant(calibration.mean, ratings),
        "constant_here": _constant(float(ratings.mean()), ratings),
        **_interval_measures(low, high, ratings),
    }


def _constant(value: float, ratings: Floats) -> dict[str, float]:
    return {"rating": value, "MSE": float(np.mean((value - ratings) ** 2)) / 1e4}


def _interval_measures(low: Floats, high: Floats, ratings: Floats) -> dict[str, float]:
    inside = (ratings >= low - 1e-6) & (ratings <= high + 1e-6)  # numbers are kept to six digits
    return {"coverage": float(inside.mean()), "width": float((high - low).mean())}


def _group_measures(groups: Sequence[str], rated: NDArray[np.bool_], *columns: Floats) -> dict[str, Any]:
    """Of each group of pairs how many there are, MSE, coverage and width; {} where no pair names one."""
    return dict(_each_group(np.array(groups, dtype=object), rated, *columns)) if any(groups) else {}


def _each_group(
    groups: NDArray[Any], rated: NDArray[np.bool_], expected: Floats, low: Floats, high: Floats, ratings: Floats
) -> Iterator[tuple[str, dict[str, Any]]]:
    for group in sorted(set(groups[rated]) - {""}):
        at = rated & (groups == group)
        error = float(np.mean((expected[at] - ratings[at]) ** 2)) / 1e4
        yield group, {"pairs": int(at.sum()), "MSE": error, **_interval_measures(low[at], high[at], ratings[at])}
