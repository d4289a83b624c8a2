"""Statistics of an evaluation: correlations, intervals by bootstrap, paired comparisons.

Conventions: a pair is a (caption, clip) with a score and a rating; `captions` and `clips` are the ids of each pair, of
any kind numpy can sort. What is not defined (a correlation with a constant) is NaN, and is left out of means, where it
is counted. Equal numbers share the middle of their ranks. Every draw is seeded: same numbers in, same numbers out.

What is resampled is what another study would draw anew, captions and clips, never single pairs as if they were
independent of each other:

- A caption's query belongs to one clip. Clips are drawn, and bring all their captions along (the cluster bootstrap).
- Rated pairs cross captions with clips. Both are drawn, independently, and a pair counts the product of the two
  multiplicities: the pigeonhole bootstrap (Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 2007). It
  errs on the wide side, the more so the more of the variance belongs to the pairs themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BLOCK = 1 << 20
"""Weights that are drawn at a time: 8 MB."""


class Interval(NamedTuple):
    """A percentile interval of a bootstrap; NaN where fewer than two units could be drawn."""

    low: float
    high: float


class Difference(NamedTuple):
    """How much higher the first of two runs is, on the same queries or pairs."""

    difference: float
    interval: Interval
    p: float
    """Two-sided, not corrected for several comparisons: see `holm`."""
    n: int
    """Queries or pairs that both runs define."""


# Checks


def _columns(**columns: ArrayLike) -> list[Floats]:
    """The columns as float64 of one length; raises `DataError` where they differ or are not finite."""
    found = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    shape = next(iter(found.values())).shape
    for name, column in found.items():
        if column.ndim != 1 or column.shape != shape:
            raise DataError(f"{name}: shape {column.shape}; expected one number a pair, like the others: {shape}.")
        if not np.isfinite(column).all():
            at = int(np.flatnonzero(~np.isfinite(column))[0])
            raise DataError(f"{name} at {at}: {column[at]}; expected a finite number. Leave the pair out.")
    return list(found.values())


def codes_of(name: str, ids: ArrayLike, length: int) -> Ints:
    """Whole numbers from 0 in place of the ids, in the ids' sorted order."""
    array = np.asarray(ids)
    if array.shape != (length,):
        raise DataError(f"{name}: shape {array.shape}; expected one id for each of the {length}.")
    return np.unique(array, return_inverse=True)[1]


# Ranks and correlations


class Ranks:
    """The midranks of fixed numbers under changing weights: sorted once, then cumulative weights."""

    def __init__(self, *keys: NDArray[Any]) -> None:
        """Sort by the first key, then the next."""
        self.order = np.lexsort(keys[::-1])
        new = np.ones(len(self.order), dtype=bool)
        new[1:] = np.any([key[self.order[1:]] != key[self.order[:-1]] for key in keys], axis=0)
        self.starts = np.flatnonzero(new)
        self.group = np.empty(len(new), dtype=np.intp)
        self.group[self.order] = np.cumsum(new) - 1

    def __call__(self, weights: Floats) -> Floats:
        """[replicate, item] the weight below each item's group of ties, and half of the group's."""
        of_group = np.add.reduceat(np.take(weights, self.order, axis=1), self.starts, axis=1)
        middle: Floats = np.cumsum(of_group, axis=1) - of_group / 2
        return np.take(middle, self.group, axis=1)


class _Spearman:
    """Spearman's ρ of each list's pairs under changing weights; a single list gives the pooled ρ."""

    def __init__(self, x: Floats, y: Floats, lists: Ints | None = None) -> None:
        lists = np.zeros(len(x), dtype=np.intp) if lists is None else lists
        self.order = np.argsort(lists, kind="stable")
        lists = lists[self.order]
        self.sizes = np.bincount(lists)
        self.starts = np.cumsum(self.sizes) - self.sizes
        # Ranks go on from list to list: a list's own ranks plus a constant, which its mean takes away.
        self.ranks = Ranks(lists, x[self.order]), Ranks(lists, y[self.order])

    def __call__(self, weights: Floats) -> Floats:
        """[replicate, list] ρ for weights [replicate, pair], NaN where either side is constant."""
        weights = weights[:, self.order]
        total = self._sums(weights)
        x, y = (self._deviations(ranks(weights), weights, total) for ranks in self.ranks)
        xx, yy, xy = (self._sums(weights * product) for product in (x * x, y * y, x * y))
        least = 1e-12 * total**3  # ranks of two distinct values have more; what is below is rounding
        defined = (xx > least) & (yy > least)
        below = np.sqrt(xx * yy, where=defined, out=np.ones_like(xx))
        rho: Floats = np.where(defined, np.clip(xy / below, -1, 1), np.nan)
        return rho

    def _sums(self, x: Floats) -> Floats:
        found: Floats = np.add.reduceat(x, self.starts, axis=1)
        return found

    def _deviations(self, ranks: Floats, weights: Floats, total: Floats) -> Floats:
        mean: Floats = np.divide(self._sums(weights * ranks), total, out=np.zeros_like(total), where=total > 0)
        deviations: Floats = ranks - np.repeat(mean, self.sizes, axis=1)
        return deviations


def spearman(x: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Spearman's ρ, the Pearson correlation of the midranks; NaN where `x` or `y` is constant.

    `weights` (at least 0) are multiplicities: whole ones give what repeated pairs would.
    """
    x, y, w = _columns(x=x, y=y, weights=np.ones(np.shape(x)) if weights is None else weights)
    if (w < 0).any():
        raise DataError(f"weights: {w.min()}; expected at least 0.")
    return float(_Spearman(x, y)(w[None])[0, 0]) if len(x) else np.nan


def is_constant(x: Floats) -> bool:
    """Whether no two numbers differ; true of none at all, and decided without the rounding of a variance."""
    return len(x) == 0 or bool((x == x[0]).all())


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's r; NaN where `x` or `y` is constant."""
    columns = _columns(x=x, y=y)
    if any(is_constant(column) for column in columns):
        return np.nan
    u, v = (c / np.abs(c).max() for c in (column - column.mean() for column in columns))  # so that no square overflows
    return float(np.clip(u @ v / np.sqrt((u @ u) * (v @ v)), -1, 1))


def kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's τ-b, (concordant − discordant) / √(pairs untied in x · those in y); NaN where one is constant."""
    from scipy.stats import kendalltau

    x, y = _columns(x=x, y=y)
    return np.nan if is_constant(x) or is_constant(y) else float(kendalltau(x, y).statistic)


def spearman_within(lists: ArrayLike, x: ArrayLike, y: ArrayLike) -> Floats:
    """[list] Spearman's ρ among the pairs of each list (a caption's), NaN where undefined; lists in sorted order."""
    x, y = _columns(x=x, y=y)
    return _Spearman(x, y, codes_of("lists", lists, len(x)))(np.ones((1, len(x))))[0] if len(x) else np.empty(0)


def kendall_within(lists: ArrayLike, x: ArrayLike, y: ArrayLike) -> Floats:
    """[list] Kendall's τ-b among the pairs of each list, NaN where undefined; lists in sorted order."""
    x, y = _columns(x=x, y=y)
    codes = codes_of("lists", lists, len(x))
    order = np.argsort(codes, kind="stable")
    x, y, codes = x[order], y[order], codes[order]
    sums = np.zeros((3, codes.max(initial=-1) + 1))
    at, lag = np.arange(len(x)), 0
    while len(at):  # every pair of a list stands `lag` apart for one lag: as many steps as the longest list has items
        lag += 1
        at = at[at + lag < len(x)]
        at = at[codes[at + lag] == codes[at]]
        dx, dy = np.sign(x[at + lag] - x[at]), np.sign(y[at + lag] - y[at])
        for total, product in zip(sums, (dx * dy, dx * dx, dy * dy), strict=True):
            total += np.bincount(codes[at], product, minlength=len(total))
    below = np.sqrt(sums[1] * sums[2])
    tau: Floats = np.divide(sums[0], below, out=np.full(len(below), np.nan), where=below > 0)
    return tau


def mean_defined(values: ArrayLike) -> tuple[float, int]:
    """The mean of the values that are defined (NaN where none is), and how many are not."""
    array = np.asarray(values, dtype=np.float64)
    defined = array[~np.isnan(array)]
    return (float(defined.mean()) if len(defined) else np.nan), len(array) - len(defined)


def rated_measures(predicted: ArrayLike, rated: ArrayLike) -> dict[str, float]:
    """SRCC, LCC (Pearson), KTAU (τ-b) and MSE of predicted against rated values on one scale, as XACLE reports them."""
    x, y = _columns(predicted=predicted, rated=rated)
    error = float(np.mean((x - y) ** 2)) if len(x) else np.nan
    return {"SRCC": spearman(x, y), "LCC": pearson(x, y), "KTAU": kendall(x, y), "MSE": error}


# Bootstrap


def _multiplicities(units: int, replicates: int, rng: np.random.Generator) -> Floats:
    """[replicate, unit] how often each unit is drawn when as many are drawn as there are."""
    drawn = rng.integers(units, size=(replicates, units)) + units * np.arange(replicates)[:, None]
    return np.bincount(drawn.ravel(), minlength=replicates * units).reshape(replicates, units).astype(np.float64)


def draws(units: Sequence[int], size: int, replicates: int, seed: int) -> Iterator[list[Floats]]:
    """Blocks of replicates: the multiplicities of each kind of unit, each kind from its own stream of draws."""
    streams = np.random.default_rng(seed).spawn(len(units))
    step = max(1, BLOCK // max(size, 1))
    for first in range(0, replicates, step):
        count = min(step, replicates - first)
        yield [_multiplicities(n, count, rng) for n, rng in zip(units, streams, strict=True)]


def percentile_interval(replicates: ArrayLike, level: float = 0.95) -> Interval:
    """The interval that leaves (1 − level) / 2 of the defined replicates on either side."""
    values = np.asarray(replicates, dtype=np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return Interval(np.nan, np.nan)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _mean_replicates(values: Floats, clips: ArrayLike, replicates: int, seed: int) -> Floats:
    """[replicate] the mean over the defined values of the clips drawn; none for fewer than two clips."""
    codes = codes_of("clips", clips, len(values))
    defined = ~np.isnan(values)
    codes = np.unique(codes[defined], return_inverse=True)[1]
    counts = np.bincount(codes)
    if len(counts) < 2:
        return np.empty(0)
    sums = np.bincount(codes, values[defined])
    found = [(w @ sums) / (w @ counts) for (w,) in draws([len(counts)], len(counts), replicates, seed)]
    return np.concatenate(found)


def mean_interval(
    values: ArrayLike, clips: ArrayLike, *, replicates: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The bootstrap interval of the mean of per-query values, where `clips` names the clip that each query belongs to.

    Clips are drawn and bring their captions along. Captions are nested in clips, so this resamples both; the product
    weights of crossed captions and clips would be 1.2 to 1.7 times too wide here. The gallery stays as it is.
    """
    values = np.asarray(values, dtype=np.float64)
    return percentile_interval(_mean_replicates(values, clips, replicates, seed), level)


def _pair_weights(
    captions: ArrayLike, clips: ArrayLike, pairs: int, replicates: int, seed: int
) -> Iterator[tuple[Floats, Floats, Ints, Ints]]:
    """Blocks of caption and clip multiplicities, with each pair's caption and clip; none for fewer than two of each."""
    rows, columns = codes_of("captions", captions, pairs), codes_of("clips", clips, pairs)
    units = rows.max(initial=-1) + 1, columns.max(initial=-1) + 1
    if min(units) >= 2:
        for w_captions, w_clips in draws(units, pairs, replicates, seed):
            yield w_captions, w_clips, rows, columns


def _spearman_replicates(
    xs: Sequence[Floats], y: Floats, captions: ArrayLike, clips: ArrayLike, replicates: int, seed: int
) -> Floats:
    """[x, replicate] the pooled ρ of each x with y, all under the same draws."""
    ranked = [_Spearman(x, y) for x in xs] if len(y) else []
    found = []
    for w_captions, w_clips, rows, columns in _pair_weights(captions, clips, len(y), replicates, seed):
        weights = w_captions[:, rows] * w_clips[:, columns]
        found.append(np.stack([of(weights)[:, 0] for of in ranked]))
    return np.concatenate(found, axis=1) if found else np.empty((len(xs), 0))


def spearman_interval(
    x: ArrayLike,
    y: ArrayLike,
    captions: ArrayLike,
    clips: ArrayLike,
    *,
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The pigeonhole bootstrap interval of the pooled Spearman ρ over (caption, clip) pairs."""
    x, y = _columns(x=x, y=y)
    return percentile_interval(_spearman_replicates([x], y, captions, clips, replicates, seed)[0], level)


def spearman_within_interval(
    x: ArrayLike,
    y: ArrayLike,
    captions: ArrayLike,
    clips: ArrayLike,
    *,
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The pigeonhole interval of the mean over captions of ρ within each caption's list.

    A clip drawn twice is a tie within a list, and ρ in a short list so drawn is lower (by 0.02 in lists of 17) however
    many lists there are: the replicates are shifted to lie about the measured mean. `mean_interval` of the lists' own
    values is narrower but takes no account of clips that stand in several lists.
    """
    x, y = _columns(x=x, y=y)
    found = [np.empty(0)]
    within = _Spearman(x, y, codes_of("captions", captions, len(x))) if len(x) else None
    for w_captions, w_clips, _, columns in _pair_weights(captions, clips, len(x), replicates, seed):
        assert within is not None
        rho = within(w_clips[:, columns])
        weight = w_captions * ~np.isnan(rho)
        total = weight.sum(axis=1)
        found.append(np.divide((weight * np.nan_to_num(rho)).sum(axis=1), total, where=total > 0, out=total * np.nan))
    replicated, _ = mean_defined(np.concatenate(found))
    measured, _ = mean_defined(spearman_within(captions, x, y))
    return percentile_interval(np.clip(np.concatenate(found) - replicated + measured, -1, 1), level)


# Paired comparisons


def sign_flip_p(differences: ArrayLike, clips: ArrayLike, *, permutations: int = 9999, seed: int = 0) -> float:
    """The two-sided p of a mean difference of 0: how often random signs reach a mean as far from 0.

    The signs of one clip's queries flip together. All combinations are tried where there are no more of them than
    `permutations`; otherwise p = (1 + as far) / (1 + permutations). NaN where nothing is defined.
    """
    values = np.asarray(differences, dtype=np.float64)
    defined = ~np.isnan(values)
    if not defined.any():
        return np.nan
    sums = np.bincount(codes_of("clips", clips, len(values))[defined], values[defined])
    sums = sums[sums != 0]  # their signs change nothing
    far = abs(sums.sum()) - 1e-12 * np.abs(sums).sum()
    if 2 ** min(len(sums), 64) <= permutations:
        signs = 1 - 2 * (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums)) & 1)
        return float(np.mean(np.abs(signs @ sums) >= far))
    rng, step, reached = np.random.default_rng(seed), max(1, BLOCK // len(sums)), 0
    for first in range(0, permutations, step):
        flips = rng.integers(2, size=(min(step, permutations - first), len(sums)), dtype=np.int8)
        reached += int(np.count_nonzero(np.abs((1.0 - 2.0 * flips) @ sums) >= far))
    return (1 + reached) / (1 + permutations)


def compare_means(
    a: ArrayLike,
    b: ArrayLike,
    clips: ArrayLike,
    *,
    replicates: int = 1000,
    level: float = 0.95,
    permutations: int = 9999,
    seed: int = 0,
) -> Difference:
    """The mean of a − b over the queries that both define, its interval (same draws for both) and sign-flip p.

    `a` and `b` are two runs' values of the same queries in the same order, `clips` the clip of each.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(f"b: shape {second.shape}; expected one value a query, as many as a has: {first.shape}.")
    values = first - second
    mean, undefined = mean_defined(values)
    interval = mean_interval(values, clips, replicates=replicates, level=level, seed=seed)
    p = sign_flip_p(values, clips, permutations=permutations, seed=seed)
    return Difference(mean, interval, p, len(values) - undefined)


def compare_spearman(
    a: ArrayLike,
    b: ArrayLike,
    y: ArrayLike,
    captions: ArrayLike,
    clips: ArrayLike,
    *,
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """The pooled ρ of a with y minus that of b with y, over the same (caption, clip) pairs.

    The interval is the pigeonhole bootstrap's, the same draws for both runs; p is the smallest 1 − level whose interval
    leaves 0 out. Both err on the cautious side, as the pigeonhole bootstrap does.
    """
    a, b, y = _columns(a=a, b=b, y=y)
    of_a, of_b = _spearman_replicates([a, b], y, captions, clips, replicates, seed)
    return _difference(spearman(a, y) - spearman(b, y), of_a - of_b, level, len(y))


def compare_seeds(differences: ArrayLike, *, level: float = 0.95) -> Difference:
    """The mean of one difference a seed, with Student's t interval and p: what other seeds would give.

    Two runs that share a seed share what is drawn by it (the clips kept apart, and batches and dropout as far as their
    settings are the same), so their difference is paired. The queries stay the same ones: see
    `compare_means_of_seeds` for an interval that draws them too. Fewer than two seeds have no interval.
    """
    from scipy.stats import t as student

    values = np.asarray(differences, dtype=np.float64)
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return Difference(mean_defined(values)[0], Interval(np.nan, np.nan), np.nan, len(values))
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    half = error * float(student.ppf((1 + level) / 2, len(values) - 1))
    far = np.inf if error == 0 and mean else mean / error if error else 0.0
    p = float(2 * student.sf(abs(far), len(values) - 1))
    return Difference(mean, Interval(mean - half, mean + half), p, len(values))


def compare_means_of_seeds(
    a: ArrayLike, b: ArrayLike, clips: ArrayLike, *, replicates: int = 1000, level: float = 0.95, seed: int = 0
) -> Difference:
    """The mean of a − b, both [seed, query], with an interval over seeds and clips: both are drawn, independently.

    A clip brings its queries along in every seed. Queries that either leaves undefined in any seed are left out; p is
    as in `compare_spearman`.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise DataError(f"b: shape {second.shape}; expected [seed, query] as a has it: {first.shape}.")
    values = first - second
    kept = ~np.isnan(values).any(axis=0)
    codes = codes_of("clips", clips, values.shape[1])[kept]
    codes = np.unique(codes, return_inverse=True)[1]
    counts = np.bincount(codes)
    sums = np.stack([np.bincount(codes, each, minlength=len(counts)) for each in values[:, kept]])
    drawn = [np.empty(0)]
    if len(counts) >= 2:
        for w_clips, w_seeds in draws([len(counts), len(values)], len(counts) + len(values), replicates, seed):
            drawn.append(((w_seeds @ sums) * w_clips).sum(axis=1) / (w_clips @ counts) / len(values))
    mean = float(values[:, kept].mean()) if kept.any() else np.nan
    return _difference(mean, np.concatenate(drawn), level, int(kept.sum()))


def compare_spearman_of_seeds(
    a: ArrayLike,
    b: ArrayLike,
    y: ArrayLike,
    captions: ArrayLike,
    clips: ArrayLike,
    *,
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """The mean over seeds of the pooled ρ of a with y minus that of b with y, `a` and `b` being [seed, pair].

    The interval is over seeds, captions and clips: seeds are drawn beside the pigeonhole bootstrap's captions and
    clips, the same draws for both. p is as in `compare_spearman`.
    """
    first, second = (np.asarray(each, dtype=np.float64) for each in (a, b))
    if first.ndim != 2 or first.shape != second.shape:
        raise DataError(f"b: shape {second.shape}; expected [seed, pair] as a has it: {first.shape}.")
    seeds = len(first)
    columns = _columns(y=y, **{f"scores {at}": each for at, each in enumerate([*first, *second])})
    found = _spearman_replicates(columns[1:], columns[0], captions, clips, replicates, seed)
    of_seed = found[:seeds] - found[seeds:]
    weights = _multiplicities(seeds, of_seed.shape[1], np.random.default_rng([seed, 1]))
    means = [spearman(x, columns[0]) for x in columns[1:]]
    mean = float(np.mean(means[:seeds]) - np.mean(means[seeds:]))
    return _difference(mean, (weights.T * of_seed).sum(axis=0) / seeds, level, len(columns[0]))


def _difference(mean: float, drawn: Floats, level: float, n: int) -> Difference:
    """With the percentile interval of the replicates; p is the smallest 1 − level whose interval leaves 0 out."""
    drawn = drawn[~np.isnan(drawn)]
    tail = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0))
    p = min(1.0, 2 * (1 + tail) / (1 + len(drawn))) if len(drawn) else np.nan
    return Difference(mean, percentile_interval(drawn, level), p, n)


def holm(p_values: ArrayLike) -> Floats:
    """The p values corrected for their number (Holm 1979): the i-th smallest of m times m − i + 1, never decreasing.

    NaN stays NaN and does not count.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():
        raise DataError("p_values: expected a list of numbers from 0 to 1.")
    corrected = np.full(len(p), np.nan)
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1) if len(order) else steps
    return corrected
