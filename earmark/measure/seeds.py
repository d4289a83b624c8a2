"""Settings that were trained with several seeds: mean and spread of each measure, and differences paired by seed.

A measure goes by its place in what `evaluate --json` prints: `text_to_audio.mAP`, `ratings.groups.C15.spearman`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError
from earmark.measure import stats
from earmark.measure.evaluate import Evaluation, Rated

COMPARED = (
    "text_to_audio.mAP",
    "text_to_audio.R@10",
    "ratings.spearman",
    "ratings.spearman_within_lists",
    "ratings.groups.C15.spearman",
)
"""What differences are told of, where both settings have it."""
Floats = NDArray[np.float64]


class Spread(NamedTuple):
    """A measure over the seeds that define it."""

    mean: float
    sd: float
    """Sample standard deviation (n − 1); NaN for one seed."""
    values: list[float]
    """By seed; NaN where undefined."""


class SeedDifference(NamedTuple):
    """How much higher a setting is than another in a measure, seed by seed."""

    measure: str
    values: list[float]
    """By seed."""
    over_seeds: stats.Difference
    """Interval of Student's t over the paired seeds: what other seeds would give on these queries."""
    over_all: stats.Difference
    """Interval over seeds, captions and clips, by bootstrap: what another study would give."""


def measures(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The dotted name and value of every number of an evaluation; NaN where it is undefined."""
    found: dict[str, float] = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            found |= measures(value, f"{prefix}{key}.")
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            found[prefix + key] = math.nan if value is None else float(value)
    return found


def spreads(numbers: Sequence[Mapping[str, Any]]) -> dict[str, Spread]:
    """Each measure's mean and standard deviation over evaluations of one setting, a seed each."""
    each = [measures(some) for some in numbers]
    names = dict.fromkeys(name for found in each for name in found)
    return {name: spread([found.get(name, math.nan) for found in each]) for name in names}


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation of the values that are defined."""
    defined = [value for value in values if not math.isnan(value)]
    mean = float(np.mean(defined)) if defined else math.nan
    return Spread(mean, float(np.std(defined, ddof=1)) if len(defined) > 1 else math.nan, list(values))


def differences(
    first: str, a: Sequence[Evaluation], second: str, b: Sequence[Evaluation], *, seed: int = 0
) -> list[SeedDifference]:
    """How much higher `a` is than `b` in each of `COMPARED`, evaluations of the same seeds in the same order.

    Raises `DataError` where they are not of the same queries and rated pairs.
    """
    every = [*a, *b]
    same = {(each.split, tuple(each.text_to_audio.queries), tuple(_pairs(each.rated))) for each in every}
    if len(a) != len(b) or len(same) > 1:
        raise DataError(
            f"{first} and {second}: {len(a)} and {len(b)} evaluations of {len(same)} kinds of queries or rated pairs; "
            "expected as many of the same. Compare on one collection and split."
        )
    found = [_difference(name, a, b, seed) for name in COMPARED]
    return [each for each in found if each is not None]


def _pairs(rated: Rated | None) -> list[tuple[str, str]]:
    return list(zip(rated.captions, rated.clips, strict=True)) if rated else []


def _difference(name: str, a: Sequence[Evaluation], b: Sequence[Evaluation], seed: int) -> SeedDifference | None:
    part, _, measure = name.partition(".")
    if part == "text_to_audio":
        x, y = (np.stack([each.text_to_audio.values[measure] for each in some]) for some in (a, b))
        over_all = stats.compare_means_of_seeds(x, y, a[0].text_to_audio.clips, seed=seed)
        values = np.array([stats.mean_defined(u)[0] - stats.mean_defined(v)[0] for u, v in zip(x, y, strict=True)])
    elif a[0].rated is None:
        return None
    elif measure == "spearman_within_lists":
        x, y = (_within(some) for some in (a, b))
        lists = [a[0].rated.owners[caption] for caption in sorted(set(a[0].rated.captions))]
        over_all = stats.compare_means_of_seeds(x, y, lists, seed=seed)
        values = np.array([stats.mean_defined(u)[0] - stats.mean_defined(v)[0] for u, v in zip(x, y, strict=True)])
    else:
        group = measure.split(".")[1] if measure.startswith("groups.") else None
        at = [place for place, each in enumerate(a[0].rated.groups) if group in (None, each)]
        if not at:
            return None
        x, y = (np.stack([each.rated.scores[at] for each in some if each.rated]) for some in (a, b))
        ratings = a[0].rated.ratings[at]
        captions, clips = ([ids[place] for place in at] for ids in (a[0].rated.captions, a[0].rated.clips))
        over_all = stats.compare_spearman_of_seeds(x, y, ratings, captions, clips, seed=seed)
        values = np.array([stats.spearman(u, ratings) - stats.spearman(v, ratings) for u, v in zip(x, y, strict=True)])
    return SeedDifference(name, values.tolist(), stats.compare_seeds(values), over_all)


def _within(evaluations: Sequence[Evaluation]) -> Floats:
    """[seed, list] ρ within each list."""
    return np.stack(
        [
            stats.spearman_within(each.rated.captions, each.rated.scores, each.rated.ratings)
            for each in evaluations
            if each.rated
        ]
    )
