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

RETRIEVAL = {
    "text_to_audio.mAP": "mAP",
    "text_to_audio.mAP@10": "mAP@10",
    "text_to_audio.R@1": "R@1",
    "text_to_audio.R@5": "R@5",
    "text_to_audio.R@10": "R@10",
    "text_to_audio.nDCG@10": "nDCG@10",
    "audio_to_text.mAP": "mAP, audio to text",
}
RATINGS = {
    "ratings.spearman": "ρ",
    "ratings.spearman_within_lists": "ρ within lists",
    "ratings.groups.C15.spearman": "ρ among C15",
    "ratings.kendall": "τ",
    "ratings.nDCG@10(judged)": "nDCG@10 (judged)",
}
SHOWN = RETRIEVAL | RATINGS
"""What tables show of a setting, and its short name."""
COMPARED = (
    "text_to_audio.mAP",
    "text_to_audio.R@10",
    "ratings.spearman",
    "ratings.spearman_within_lists",
    "ratings.groups.C15.spearman",
)
"""What differences are told of, where both settings have it."""
Floats = NDArray[np.float64]
UNDEFINED = stats.Difference(math.nan, stats.Interval(math.nan, math.nan), math.nan, 0)


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
    """Interval over seeds, captions and clips, by bootstrap: what another study would give; NaN where seeds differ in
    their queries."""


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

    Where every seed has queries of its own there is no interval over queries. Raises `DataError` where the two
    evaluations of a seed are not of the same queries and rated pairs.
    """
    kinds = [(_asked(x), _asked(y)) for x, y in zip(a, b, strict=False)]
    if len(a) != len(b) or any(x != y for x, y in kinds):
        raise DataError(
            f"{first} and {second}: {len(a)} and {len(b)} evaluations of different queries or rated pairs; expected as "
            "many of the same. Compare on one collection and split."
        )
    over_queries = all(x == kinds[0][0] for x, _ in kinds)
    found = [_difference(name, a, b, seed, over_queries) for name in COMPARED]
    return [each for each in found if each is not None]


def _asked(evaluation: Evaluation) -> tuple[Any, ...]:
    """What an evaluation is of: its split, queries and rated pairs."""
    return evaluation.split, evaluation.text_to_audio.queries, _pairs(evaluation.rated)


def _pairs(rated: Rated | None) -> list[tuple[str, str]]:
    return list(zip(rated.captions, rated.clips, strict=True)) if rated else []


def _difference(
    name: str, a: Sequence[Evaluation], b: Sequence[Evaluation], seed: int, over_queries: bool
) -> SeedDifference | None:
    """In one measure; None where the evaluations do not have it."""
    part, _, measure = name.partition(".")
    rated = [each.rated for each in (*a, *b) if each.rated is not None]
    if part == "text_to_audio":
        x, y = ([each.text_to_audio.values[measure].copy() for each in some] for some in (a, b))
        clips = a[0].text_to_audio.clips
    elif len(rated) < len(a) + len(b):
        return None
    elif measure == "spearman_within_lists":
        within = [stats.spearman_within(each.captions, each.scores, each.ratings) for each in rated]
        x, y = within[: len(a)], within[len(a) :]
        clips = [rated[0].owners[caption] for caption in sorted(set(rated[0].captions))]
    else:
        group = measure.split(".")[1] if measure.startswith("groups.") else None
        return _correlation(name, rated[: len(a)], rated[len(a) :], group, seed, over_queries)
    for u, v in zip(x, y, strict=True):  # what one leaves undefined counts for neither
        u[np.isnan(v)] = v[np.isnan(u)] = np.nan
    values = [stats.mean_defined(u)[0] - stats.mean_defined(v)[0] for u, v in zip(x, y, strict=True)]
    over_all = stats.compare_means_of_seeds(np.stack(x), np.stack(y), clips, seed=seed) if over_queries else UNDEFINED
    return SeedDifference(name, values, stats.compare_seeds(values), over_all)


def _correlation(
    name: str, a: Sequence[Rated], b: Sequence[Rated], group: str | None, seed: int, over_queries: bool
) -> SeedDifference | None:
    """In the pooled ρ over the pairs of a group, or all; None where there are none."""
    at = [[place for place, each in enumerate(rated.groups) if group in (None, each)] for rated in a]
    if not all(at):
        return None
    x, y = ([rated.scores[places] for rated, places in zip(some, at, strict=True)] for some in (a, b))
    ratings = [rated.ratings[places] for rated, places in zip(a, at, strict=True)]
    values = [stats.spearman(u, known) - stats.spearman(v, known) for u, v, known in zip(x, y, ratings, strict=True)]
    over_all = UNDEFINED
    if over_queries:
        captions, clips = ([ids[place] for place in at[0]] for ids in (a[0].captions, a[0].clips))
        over_all = stats.compare_spearman_of_seeds(np.stack(x), np.stack(y), ratings[0], captions, clips, seed=seed)
    return SeedDifference(name, values, stats.compare_seeds(values), over_all)
