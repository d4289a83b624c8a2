"""Correlations of features with targets over rated pairs: Pearson and Spearman, p, intervals, partial, Holm.

Conventions: a pair is a (caption, clip); each column has one number a pair, NaN where it is not defined, and a
correlation is over the pairs that define both sides. Fewer than three such pairs, or a constant side, leave it NaN.
Intervals are 95 %, by bootstrap, with the same draws for every correlation of a call. What is drawn is what another
study would draw anew (see `stats`): where every caption has one clip, clips are drawn and bring their captions along;
where captions cross clips, both are drawn, independently. p is two-sided, against no correlation, and scipy's, which
takes pairs as independent of each other. Where pairs do not `stand_alone` that would be far too bold, and p is that of
r over the bootstrap's standard error, normally distributed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError
from earmark.measure.stats import (
    Floats,
    Interval,
    Ints,
    Ranks,
    codes_of,
    draws,
    holm,
    is_constant,
    pearson,
    percentile_interval,
)

CONTROLS = ("duration_s", "words")
"""Features that a partial correlation holds fixed."""
FEWEST = 3
"""Pairs that a correlation needs."""
ALONE = 0.9
"""Of the number of pairs: as many captions, and as many clips, as a p needs that takes pairs as independent."""


class Correlation(NamedTuple):
    """How a feature goes with a target."""

    feature: str
    target: str
    n: int
    """Pairs that define both."""
    r: float
    """Pearson's."""
    p: float
    """Two-sided; see the module for which it is."""
    interval: Interval
    p_holm: float
    """p corrected for the number of correlations of the call that are defined."""
    rho: float
    """Spearman's."""
    rho_p: float
    rho_interval: Interval
    partial: float
    """Pearson's r given `controls`; NaN where there are none."""
    partial_p: float
    """By Student's t with `partial_n` − 2 − the number of controls degrees of freedom."""
    partial_n: int
    """Pairs that define the feature, the target and the controls."""
    plain: float
    """Pearson's r of these pairs, with nothing held fixed."""
    controls: tuple[str, ...]


def stars(p: float) -> str:
    """The marks of the paper's Table 4: `**` below .01, `*` below .05, else `n.s.`; nothing where p is undefined."""
    return "" if np.isnan(p) else "**" if p < 0.01 else "*" if p < 0.05 else "n.s."


def correlations(
    features: Mapping[str, Floats],
    targets: Mapping[str, Floats],
    captions: Sequence[str],
    clips: Sequence[str],
    *,
    controls: Sequence[str] = CONTROLS,
    independent: bool | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> list[Correlation]:
    """Each feature with each target, features outermost; `captions` and `clips` name those of each pair.

    Pearson's r, Spearman's ρ and, where pairs stand alone, their p are scipy's. The partial correlation is that of the
    residuals of feature and target after least squares on the controls: those of `controls` that are features here, not
    the feature itself, defined for half of the pairs at least and not constant there; it has no p where pairs do not
    stand alone (`independent` says so, else `stand_alone`). Raises `DataError` on columns of other lengths, or with
    infinity.
    """
    x, y = (_columns(each, len(captions)) for each in (features, targets))
    found = [_correlation(x, name, other, y[other], controls) for name in x for other in y]
    drawn = _replicates(x, y, found, _units(captions, clips), replicates, seed)
    if not (stand_alone(captions, clips) if independent is None else independent):
        found = [_by_bootstrap(each, *of_each) for each, of_each in zip(found, drawn, strict=True)]
    p_holm = holm([each.p for each in found])
    return [
        each._replace(p_holm=float(p), interval=percentile_interval(of_r), rho_interval=percentile_interval(of_rho))
        for each, p, (of_r, of_rho) in zip(found, p_holm, drawn, strict=True)
    ]


def stand_alone(captions: Sequence[str], clips: Sequence[str]) -> bool:
    """Whether captions are nine tenths as many as the pairs at least, and clips too, so that p may be scipy's."""
    return min(len(set(captions)), len(set(clips))) >= ALONE * len(captions)


def crossed(captions: Sequence[str], clips: Sequence[str]) -> bool:
    """Whether a caption stands in pairs with several clips, so that captions and clips are drawn both."""
    return len(set(zip(captions, clips, strict=True))) > len(set(captions))


def _units(captions: Sequence[str], clips: Sequence[str]) -> list[Ints]:
    """What is drawn, as codes of each pair: its clip, or its caption and its clip where captions cross clips."""
    of_clips = codes_of("clips", clips, len(captions))
    return [codes_of("captions", captions, len(captions)), of_clips] if crossed(captions, clips) else [of_clips]


def _by_bootstrap(found: Correlation, of_r: Floats, of_rho: Floats) -> Correlation:
    """With p by r and ρ over the standard deviations of their replicates; the partial r's is not known."""
    return found._replace(p=_normal_p(found.r, of_r), rho_p=_normal_p(found.rho, of_rho), partial_p=np.nan)


def _normal_p(value: float, replicates: Floats) -> float:
    """Two-sided; NaN where no two replicates differ, as with a feature of clips and but two clips."""
    from scipy.special import ndtr

    defined = replicates[~np.isnan(replicates)]
    if len(defined) < 2 or np.isnan(value) or defined.std() < 1e-9:  # what is below is rounding
        return np.nan
    return float(2 * ndtr(-abs(value) / defined.std(ddof=1)))


def _columns(columns: Mapping[str, Floats], pairs: int) -> dict[str, Floats]:
    """The columns as float64. Raises `DataError`, see `correlations`."""
    found = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    for name, column in found.items():
        if column.shape != (pairs,):
            raise DataError(f"{name}: shape {column.shape}; expected one number for each of the {pairs} pairs.")
        if np.isinf(column).any():
            at = int(np.flatnonzero(np.isinf(column))[0])
            raise DataError(f"{name} at {at}: {column[at]}; expected a finite number, or NaN where it is undefined.")
    return found


def _standard(column: Floats) -> Floats:
    """The column with mean 0 and a largest deviation of 1, which no correlation notices; zeros where it is constant."""
    if is_constant(column):
        return np.zeros(len(column))
    scaled = column / np.abs(column).max()  # so that no sum overflows
    centred: Floats = scaled - scaled.mean()
    centred /= np.abs(centred).max()
    return centred


# One correlation


def _correlation(
    features: Mapping[str, Floats], name: str, target: str, y: Floats, controls: Sequence[str]
) -> Correlation:
    """All but the intervals, and p not yet corrected."""
    from scipy.stats import pearsonr, spearmanr

    none = Interval(np.nan, np.nan)
    x = features[name]
    defined = ~np.isnan(x) & ~np.isnan(y)
    partial = _given(features, name, y, defined, controls)
    nan = np.nan
    found = Correlation(name, target, int(defined.sum()), nan, nan, none, nan, nan, nan, none, *partial)
    if not _correlated(x[defined], y[defined]):
        return found
    of_values = pearsonr(_standard(x[defined]), _standard(y[defined]))
    of_ranks = spearmanr(x[defined], y[defined])
    return found._replace(
        r=float(of_values.statistic),
        p=float(of_values.pvalue),
        rho=float(of_ranks.statistic),
        rho_p=float(of_ranks.pvalue),
    )


def _correlated(x: Floats, y: Floats) -> bool:
    """Whether their correlation is defined."""
    return len(x) >= FEWEST and not is_constant(x) and not is_constant(y)


def _given(
    features: Mapping[str, Floats], name: str, y: Floats, defined: NDArray[np.bool_], controls: Sequence[str]
) -> tuple[float, float, int, float, tuple[str, ...]]:
    """(partial r, its p, pairs, plain r, controls given) over those of the pairs `defined` that define the controls."""
    given = []
    for control in controls:
        if control != name and control in features:
            known = features[control][defined & ~np.isnan(features[control])]
            if 2 * len(known) >= np.count_nonzero(defined) and not is_constant(known):
                given.append(control)
    if not given:
        return np.nan, np.nan, 0, np.nan, ()
    kept = defined & ~np.isnan([features[control] for control in given]).any(axis=0)
    x, y = features[name][kept], y[kept]
    r, p = partial_correlation(x, y, [features[control][kept] for control in given])
    return r, p, int(kept.sum()), pearson(x, y) if len(x) >= FEWEST else np.nan, tuple(given)


def partial_correlation(x: Floats, y: Floats, controls: Sequence[Floats]) -> tuple[float, float]:
    """Pearson's r of what least squares on the controls leave of x and of y, and its two-sided p.

    p is by Student's t with n − 2 − k degrees of freedom, k the number of controls that do not follow from each other.
    NaN where fewer than one degree is left, or where the controls explain x or y wholly.
    """
    from scipy.special import stdtr

    if not _correlated(x, y):
        return np.nan, np.nan
    both = np.stack([_standard(x), _standard(y)], axis=1)
    design = np.stack([np.ones(len(x)), *map(_standard, controls)], axis=1)
    slopes, _, rank, _ = np.linalg.lstsq(design, both, rcond=None)
    u, v = (both - design @ slopes).T
    degrees = len(x) - 1 - int(rank)
    if degrees < 1 or min(u @ u / (both[:, 0] @ both[:, 0]), v @ v / (both[:, 1] @ both[:, 1])) < 1e-20:
        return np.nan, np.nan
    r = float(np.clip(u @ v / np.sqrt((u @ u) * (v @ v)), -1, 1))
    t = abs(r) * np.sqrt(degrees / (1 - r**2)) if abs(r) < 1 else np.inf
    return r, float(2 * stdtr(degrees, -t))


# Bootstrap


def _replicates(
    features: Mapping[str, Floats],
    targets: Mapping[str, Floats],
    found: Sequence[Correlation],
    units: Sequence[Ints],
    replicates: int,
    seed: int,
) -> list[tuple[Floats, Floats]]:
    """[replicate] r and ρ of each correlation; none where it is undefined, or there is but one of a unit to draw."""
    alike: dict[bytes, list[int]] = {}
    for at, each in enumerate(found):
        defined = ~np.isnan(features[each.feature]) & ~np.isnan(targets[each.target])
        if not np.isnan(each.r) and all(len(np.unique(codes[defined])) > 1 for codes in units):
            alike.setdefault(defined.tobytes(), []).append(at)
    groups = [
        _SamePairs(features, targets, [found[at] for at in places], np.frombuffer(key, dtype=np.bool_), units)
        for key, places in alike.items()
    ]
    drawn: list[list[tuple[Floats, Floats]]] = [[] for _ in groups]
    if groups:
        size = len(units[0]) * max(group.columns for group in groups)
        for weights in draws([int(codes.max()) + 1 for codes in units], size, replicates, seed):
            for group, blocks in zip(groups, drawn, strict=True):
                of_cells = group.weights(weights)
                blocks.append((group.pearson(of_cells), group.spearman(of_cells)))
    of_each = [(np.empty(0), np.empty(0))] * len(found)
    for places, blocks in zip(alike.values(), drawn, strict=True):
        r, rho = (np.concatenate(each) for each in zip(*blocks, strict=True))
        for place, of_r, of_rho in zip(places, r.T, rho.T, strict=True):
            of_each[place] = of_r, of_rho
    return of_each


class _SamePairs:
    """Correlations over the same pairs, under changing weights of what is drawn.

    Pairs that share all that is drawn are a cell: they weigh the same in every draw.
    """

    def __init__(
        self,
        features: Mapping[str, Floats],
        targets: Mapping[str, Floats],
        of: Sequence[Correlation],
        defined: NDArray[np.bool_],
        units: Sequence[Ints],
    ) -> None:
        names, others = (list(dict.fromkeys(each)) for each in zip(*((c.feature, c.target) for c in of), strict=True))
        self.rows = [names.index(each.feature) for each in of]
        self.across = [others.index(each.target) for each in of]
        self.cells, self.cell = np.unique(np.stack([c[defined] for c in units], axis=1), axis=0, return_inverse=True)
        x, y = [features[name][defined] for name in names], [targets[name][defined] for name in others]
        self.ranks = [Ranks(column) for column in x], [Ranks(column) for column in y]
        self.columns = len(x) + len(y)
        u, v = (np.stack([_standard(column) for column in side]) for side in (x, y))
        u, v = u / u.std(axis=1, keepdims=True), v / v.std(axis=1, keepdims=True)
        each = [np.ones(len(self.cell)), *u, *v, *u**2, *v**2, *(u[self.rows] * v[self.across])]
        self.sums = np.stack([np.bincount(self.cell, column, minlength=len(self.cells)) for column in each], axis=1)

    def weights(self, of_units: Sequence[Floats]) -> Floats:
        """[replicate, cell] the product of how often its units were drawn, from [replicate, unit] of each kind."""
        found: Floats = np.prod([np.take(w, c, axis=1) for w, c in zip(of_units, self.cells.T, strict=True)], axis=0)
        return found

    def pearson(self, weights: Floats) -> Floats:
        """[replicate, correlation] r for weights [replicate, cell], NaN where a side is constant."""
        sums = weights @ self.sums
        total = sums[:, :1]
        means = np.divide(sums[:, 1:], total, where=total > 0, out=np.zeros_like(sums[:, 1:]))
        first, second, products = np.split(means, [self.columns, 2 * self.columns], axis=1)
        at = len(self.ranks[0]) + np.array(self.across)
        variances = second - first**2  # of columns whose variance is 1 under equal weights
        covariances = products - first[:, self.rows] * first[:, at]
        return _ratio(covariances, variances[:, self.rows], variances[:, at], np.array(1e-12))

    def spearman(self, weights: Floats) -> Floats:
        """[replicate, correlation] ρ under the same weights: Pearson's r of weighted midranks."""
        of_pairs = np.take(weights, self.cell, axis=1)
        total = of_pairs.sum(axis=1)
        x, y = (self._deviations(ranks, of_pairs, total) for ranks in self.ranks)
        weighted, scaled = x * of_pairs[:, None], y * of_pairs[:, None]
        covariances = (weighted @ y.transpose(0, 2, 1))[:, self.rows, self.across]
        xx, yy = (np.einsum("rcp,rcp->rc", *each) for each in ((weighted, x), (scaled, y)))
        return _ratio(covariances, xx[:, self.rows], yy[:, self.across], 1e-12 * total[:, None] ** 3)

    def _deviations(self, ranks: Sequence[Ranks], weights: Floats, total: Floats) -> Floats:
        """[replicate, column, pair] midranks, less half of the whole weight, which is their weighted mean."""
        found = np.empty((len(weights), len(ranks), weights.shape[1]))
        for place, each in enumerate(ranks):
            np.subtract(each(weights), total[:, None] / 2, out=found[:, place])
        return found


def _ratio(xy: Floats, xx: Floats, yy: Floats, least: Floats) -> Floats:
    """xy / √(xx · yy), from −1 to 1, NaN where xx or yy is no more than rounding."""
    defined = (xx > least) & (yy > least)
    below = np.sqrt(xx * yy, where=defined, out=np.ones_like(xx))
    found: Floats = np.where(defined, np.clip(xy / below, -1, 1), np.nan)
    return found
