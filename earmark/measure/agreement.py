"""How far raters agree: Krippendorff's α, ICC(2,k), each rater against the others, halves against each other.

Conventions: a unit is a rated pair (caption, clip); an answer is one rating, 0–100, of a unit by a rater. Answers
without a rater are left out and counted. Every answer counts in α and in the shares of equal answers; elsewhere a
rater who answered a unit more than once counts once, with the mean of those answers. What is not defined is NaN.
Intervals are 95 %, by bootstrap: captions are drawn and bring all their units along (see stats). Raters are taken as
they are: what an interval says is of other captions and the same raters. Where these are few and differ in leniency,
other raters would give numbers outside it far more often than 5 %: of 400 simulated studies of 200 units with four
answers each, a rater variance of 200 in 700, the intervals of ICC held the true one in .43 with 4 raters in all, .67
with 10 and .88 with 60; those of α likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError
from earmark.measure.stats import (
    Floats,
    Interval,
    Ints,
    draws,
    is_constant,
    mean_defined,
    percentile_interval,
    spearman,
    spearman_within,
)
from earmark.relevance import Rating

NEAR = 10.0
"""Points of 100 within which two answers nearly agree."""
FEWEST = 3
"""Units that a rater must share with others for a correlation with them."""


class Answers(NamedTuple):
    """Who answered what: one place an answer in `units`, `raters` and `values`; codes are whole numbers from 0."""

    units: Ints
    raters: Ints
    values: Floats
    captions: Ints
    """[unit] the caption that each unit belongs to."""


class Icc(NamedTuple):
    """Intraclass correlations, two-way random, absolute agreement, and the variances that they are made of.

    The intervals are of other captions and the same raters: too narrow for a few others, see the module.
    """

    single: float
    """ICC(2,1): of one rater's answers."""
    average: float
    """ICC(2,k): of the mean of `k` raters."""
    k: float
    """The harmonic mean of the number of raters a unit."""
    units: float
    """Variance of units, in points², as the next two; below 0 is 0."""
    raters: float
    """Of raters: how lenient they are."""
    rest: float
    single_interval: Interval
    average_interval: Interval


class LeaveOneOut(NamedTuple):
    """Correlations of each rater's answers with the mean of the others' on the same units: means over raters."""

    pearson: float
    spearman: float
    raters: int
    """Raters whose two correlations are defined."""
    undefined: int
    """The others: under three units that somebody else rated too, or a constant side."""


class SplitHalf(NamedTuple):
    """How well the means of two halves of each unit's raters correlate over units."""

    rho: float
    """Spearman's ρ between the halves, the mean over halvings."""
    ceiling: float
    """2ρ / (1 + ρ), Spearman–Brown; NaN for ρ below 0."""
    limit: float
    """√ceiling."""
    units: int
    """Those of two raters and more."""
    halvings: int
    """Those of defined ρ."""


@dataclass(frozen=True)
class Agreement:
    """All measures of a set of ratings."""

    ratings: int
    """Those that name their rater; the numbers below are of these."""
    without_rater: int
    repeated: int
    """Answers beyond a rater's first of a unit."""
    units: int
    raters: int
    units_of_two: int
    """Units of two answers and more: α is of these alone."""
    pairs: int
    """Pairs of answers to one unit."""
    same: float
    """The share of these pairs, 0–1, whose answers are equal."""
    near: float
    """The share whose answers lie 10 points or fewer apart."""
    alpha: float
    alpha_interval: Interval
    icc: Icc
    leave_one_out: LeaveOneOut
    split_half: SplitHalf
    notes: tuple[str, ...]
    """Why something is undefined, and what was left out, in words."""

    def numbers(self) -> dict[str, Any]:
        """All of it as dicts, lists and numbers; what is undefined is NaN."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def agreement(ratings: Sequence[Rating], *, replicates: int = 1000, seed: int = 0) -> Agreement:
    """All measures of the ratings; what one rater, or one rating a unit, leaves undefined is NaN and told in `notes`.

    Raises `DataError` on a rating that is not finite.
    """
    answers = answers_of(ratings)
    counts, pairs, same, near = _counts(answers), *shares(answers)
    found = Agreement(
        ratings=len(answers.values),
        without_rater=len(ratings) - len(answers.values),
        repeated=len(answers.values) - len(once(answers).values),
        units=len(counts),
        raters=len(np.unique(answers.raters)),
        units_of_two=int((counts > 1).sum()),
        pairs=pairs,
        same=same,
        near=near,
        alpha=krippendorff_alpha(answers),
        alpha_interval=alpha_interval(answers, replicates=replicates, seed=seed),
        icc=icc(answers, replicates=replicates, seed=seed),
        leave_one_out=leave_one_out(answers),
        split_half=split_half(answers, seed=seed),
        notes=(),
    )
    return replace(found, notes=tuple(_notes(found)))


def _notes(found: Agreement) -> Iterator[str]:
    """What a reader must know beside the numbers, a line each."""
    if found.without_rater:
        yield f"Ratings left out, since they name no rater: {found.without_rater:,}."
    if found.repeated:
        yield (
            f"Ratings of a pair that their rater had rated already: {found.repeated:,}; each counts in α and in the "
            "shares of equal answers, elsewhere the rater's mean."
        )
    if not found.units_of_two:
        yield "No pair has two ratings that name their rater: agreement is undefined."
        return
    if found.raters == 1:
        yield "One rater: α is of their repeated answers, and says nothing of agreement with others."
    if np.isnan(found.alpha):
        yield "All ratings of pairs that were rated twice are equal: α is undefined (0/0), see the share of equal ones."
    if np.isnan(found.icc.average):
        yield "ICC is undefined: these ratings do not tell pairs, raters and the rest apart."
    if found.leave_one_out.undefined:
        yield (
            f"Raters without a correlation with the others (fewer than {FEWEST} pairs that others rated too, or a "
            f"constant side): {found.leave_one_out.undefined:,} of {found.raters:,}."
        )
    if found.split_half.rho < 0:
        yield "Halves of the raters disagree (ρ below 0): the ceiling is undefined."


def _plain(value: Any) -> Any:
    """The same with records as dicts, and intervals and notes as lists."""
    if isinstance(value, tuple) and hasattr(value, "_asdict") and not isinstance(value, Interval):
        return {key: _plain(each) for key, each in value._asdict().items()}
    return list(value) if isinstance(value, tuple) else value


# Answers


def answers_of(ratings: Sequence[Rating]) -> Answers:
    """The ratings that name their rater, in order; units, raters and captions in order of first appearance."""
    named = [rating for rating in ratings if rating.rater_id]
    units = _coded([(rating.caption_id, rating.clip_id) for rating in named])
    owners = dict(zip(units.tolist(), (rating.caption_id for rating in named), strict=True))
    values = np.array([rating.rating for rating in named], dtype=np.float64)
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(f"rating {at} of those with a rater: {values[at]}; expected a finite number. Leave it out.")
    return Answers(units, _coded([r.rater_id for r in named]), values, _coded(list(owners.values())))


def _coded(keys: Sequence[Any]) -> Ints:
    """Whole numbers from 0, in order of first appearance."""
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return np.array([places[key] for key in keys], dtype=np.intp)


def _counts(answers: Answers) -> Ints:
    """[unit] the number of answers."""
    return np.bincount(answers.units, minlength=len(answers.captions))


def _sums(answers: Answers, values: Floats) -> Floats:
    """[unit] the sum of the answers' values."""
    return np.bincount(answers.units, values, minlength=len(answers.captions)).astype(np.float64)


def once(answers: Answers) -> Answers:
    """One answer of each rater a unit: the mean of what they said."""
    if not len(answers.values):
        return answers
    raters = answers.raters.max() + 1
    keys, place = np.unique(answers.units * raters + answers.raters, return_inverse=True)
    means = np.bincount(place, answers.values) / np.bincount(place)
    return Answers(keys // raters, keys % raters, means, answers.captions)


# Shares of equal answers, and α


def shares(answers: Answers) -> tuple[int, float, float]:
    """(pairs of answers to one unit, the share of them that are equal, the share that are `NEAR` or nearer)."""
    m = _counts(answers)
    pairs = int((m * (m - 1)).sum()) // 2
    if not pairs:
        return 0, np.nan, np.nan
    order = np.lexsort((answers.values, answers.units))
    values = answers.values[order] - answers.values.min()
    at = values + answers.units[order] * (values.max() + 2 * NEAR)  # answers to two units lie further apart than NEAR
    equal, near = (int((np.searchsorted(at, at + far, "right") - np.arange(1, len(at) + 1)).sum()) for far in _WITHIN)
    return pairs, equal / pairs, near / pairs


_WITHIN = 1e-6, NEAR + 1e-6
"""Points, with what rounding may add."""


def krippendorff_alpha(answers: Answers) -> float:
    """Krippendorff's α with the interval metric: 1 − observed / expected disagreement; NaN where all are equal.

    Of the n answers to units with m ≥ 2 of them: observed is Σ m / (m − 1) · SS(unit) / n, expected SS(all) / (n − 1),
    SS being the sum of squares about the mean. 1 is full agreement, 0 that of answers dealt out at random. It is the
    closed form of the coincidence matrix of Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011.
    """
    return float(_alphas(_disagreement(answers).sum(axis=0)[None])[0])


def alpha_interval(answers: Answers, *, replicates: int = 1000, level: float = 0.95, seed: int = 0) -> Interval:
    """The bootstrap interval of α, captions drawn with all their units; NaN for fewer than two of them.

    Raters are not drawn: where few of them differ in leniency it is too narrow for others, see the module.
    """
    of_unit = _disagreement(answers)
    captions = _coded(answers.captions[of_unit[:, 0] > 0].tolist())
    if not len(captions) or captions.max() < 1:
        return Interval(np.nan, np.nan)
    sums = np.stack([np.bincount(captions, each) for each in of_unit[of_unit[:, 0] > 0].T], axis=1)
    found = [_alphas(w @ sums) for (w,) in draws([len(sums)], len(sums), replicates, seed)]
    return percentile_interval(np.concatenate(found), level)


def _disagreement(answers: Answers) -> Floats:
    """[unit, 4] answers, their sum, their sum of squares and m / (m − 1) · SS; 0 for units of one answer.

    Sums are of answers less their overall mean, so that no difference of large numbers is taken.
    """
    m = _counts(answers).astype(np.float64)
    counted = m > 1
    values = _centred(answers.values, counted[answers.units])
    means = np.divide(_sums(answers, values), m, where=counted, out=np.zeros(len(m)))
    inner = _sums(answers, (values - means[answers.units]) ** 2)
    observed = np.divide(m * inner, m - 1, where=counted, out=np.zeros(len(m)))
    columns: Floats = np.stack([m, _sums(answers, values), _sums(answers, values**2), observed], axis=1)
    return columns * counted[:, None]


def _centred(values: Floats, counted: NDArray[np.bool_]) -> Floats:
    """The values less the mean of those counted, exactly 0 where these are all equal."""
    origin = values[counted][:1] if is_constant(values[counted]) else values[counted].mean()
    return values - origin if counted.any() else values


def _alphas(sums: Floats) -> Floats:
    """[replicate] α of the sums [replicate, 4] over units; NaN where all answers are equal, or there are none."""
    n, first, second, observed = sums.T
    total = second - np.divide(first**2, n, where=n > 0, out=np.zeros(len(n)))
    defined = total > 1e-12 * second  # what is below is rounding
    expected = np.divide(total, n - 1, where=defined, out=np.ones(len(n)))
    return np.where(defined, 1 - np.divide(observed, n, where=defined, out=np.zeros(len(n))) / expected, np.nan)


# ICC


def icc(answers: Answers, *, replicates: int = 1000, level: float = 0.95, seed: int = 0) -> Icc:
    """ICC(2,1), ICC(2,k) for k the harmonic mean of the number of raters a unit, and bootstrap intervals over captions.

    An answer is μ + unit + rater + rest, of variances u, r and e: ICC(2,1) = u / (u + r + e) and ICC(2,k) =
    u / (u + (r + e) / k). The variances are by Henderson's Method I, which needs no complete table (Searle, Casella and
    McCulloch, "Variance Components", 1992, chapter 5); on a complete one that is the two-way analysis of variance of
    Shrout and Fleiss ("Intraclass Correlations", 1979), but never below 0. NaN where units, raters and rest cannot be
    told apart, as with one rating a unit, or where all answers are equal.
    """
    answers = once(answers)
    none = Interval(np.nan, np.nan)
    if is_constant(answers.values):
        return Icc(np.nan, np.nan, _harmonic(_counts(answers)), np.nan, np.nan, np.nan, none, none)
    of, captions = _Variances(answers), int(answers.captions.max()) + 1
    single, average, k, units, raters, rest = (float(each[0]) for each in of(np.ones((1, len(answers.captions)))))
    found = [(np.empty(0), np.empty(0))]
    if captions > 1 and not np.isnan(single):
        size = max(len(answers.captions), int(answers.raters.max()) + 1)
        for (w,) in draws([captions], size, replicates, seed):
            found.append(of(w[:, answers.captions])[:2])
    intervals = [percentile_interval(np.concatenate(each), level) for each in zip(*found, strict=True)]
    return Icc(single, average, k, units, raters, rest, intervals[0], intervals[1])


def _harmonic(counts: Ints) -> float:
    return float(len(counts) / (1 / counts).sum()) if len(counts) else np.nan


class _Variances:
    """The variances of units, raters and rest under changing weights of units: sums of squares and what they expect."""

    def __init__(self, answers: Answers) -> None:
        from scipy.sparse import csr_array

        values = answers.values - answers.values.mean()
        shape = answers.raters.max() + 1, len(answers.captions)
        at = answers.raters, answers.units
        self.values = csr_array((values, at), shape=shape)
        self.present = csr_array((np.ones(len(values)), at), shape=shape)
        self.n = _counts(answers).astype(np.float64)
        sums = _sums(answers, values)
        self.of_unit = np.stack(
            [self.n, sums, _sums(answers, values**2), sums**2 / self.n, self.n**2, 1 / self.n], axis=1
        )
        self.spread = values.var()

    def __call__(self, weights: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
        """[replicate] ICC(2,1), ICC(2,k), k and the three variances for weights [replicate, unit]."""
        n, total, squares, of_units, n_units, inverse = (weights @ self.of_unit).T
        units = weights.sum(axis=1)
        answers = np.asarray(self.present @ weights.T)  # [rater, replicate]
        sums = np.asarray(self.values @ weights.T)
        of_raters = np.divide(sums**2, answers, where=answers > 0, out=np.zeros_like(sums)).sum(axis=0)
        raters = (answers > 0).sum(axis=0)
        a, b, mean, ones = n_units / n, (answers**2).sum(axis=0) / n, total**2 / n, np.ones(len(n))
        observed = np.stack([squares, of_units, of_raters, mean], axis=1)
        expected = np.stack([[n, n, n], [n, units, units], [raters, n, raters], [a, b, ones]]).transpose(2, 0, 1)
        u, r, e = _not_below_zero(_solved(_CONTRASTS @ expected, observed @ _CONTRASTS.T)).T
        k, whole = units / inverse, u + r + e
        defined = whole > 1e-12 * self.spread
        single = np.divide(u, whole, where=defined, out=np.full(len(n), np.nan))
        average = np.divide(u, u + (r + e) / k, where=defined, out=np.full(len(n), np.nan))
        return single, average, k, u, r, e


_CONTRASTS = np.array([[0.0, 1, 0, -1], [0, 0, 1, -1], [1, -1, -1, 1]])
"""Sums of squares of units, raters and rest from those of all answers, of units, of raters and of the mean."""


def _not_below_zero(variances: Floats) -> Floats:
    """[replicate, 3] the variances of units, raters and rest, none below 0.

    Raters and rest keep their sum, which is the variance of an answer to a unit: where one comes out below 0 the other
    has the whole, or answers would look noisier than they are.
    """
    units, raters, rest = variances.T
    noise = np.maximum(raters + rest, 0)
    raters = np.where(rest < 0, noise, np.clip(raters, 0, noise))
    return np.stack([np.maximum(units, 0), raters, noise - raters], axis=1)


def _solved(coefficients: Floats, sums: Floats) -> Floats:
    """[replicate, 3] what the equations [replicate, 3, 3] give, NaN where they do not determine it."""
    defined = np.linalg.cond(coefficients) < 1e10
    safe = np.where(defined[:, None, None], coefficients, np.eye(3))
    found: Floats = np.linalg.solve(safe, sums[..., None])[..., 0].astype(np.float64)
    found[~defined] = np.nan
    return found


# Raters against raters


def leave_one_out(answers: Answers) -> LeaveOneOut:
    """The mean over raters of how each correlates with the mean of the others, over at least three units."""
    raters = len(np.unique(answers.raters))
    answers = once(answers)
    counts, sums = _counts(answers)[answers.units], _sums(answers, answers.values)[answers.units]
    shared = counts > 1
    own, who = answers.values[shared], answers.raters[shared]
    others = ((sums[shared] - own) / (counts[shared] - 1)).round(9)  # equal means stay equal
    enough = np.bincount(who, minlength=1)[who] >= FEWEST
    own, others, who = own[enough], others[enough], who[enough]
    rho = spearman_within(who, own, others)
    r = np.where(np.isnan(rho), np.nan, _pearson_within(who, own, others))
    (r_mean, undefined), (rho_mean, _) = mean_defined(r), mean_defined(rho)
    return LeaveOneOut(r_mean, rho_mean, len(rho) - undefined, raters - len(rho) + undefined)


def _pearson_within(lists: Ints, x: Floats, y: Floats) -> Floats:
    """[list] Pearson's r among the pairs of each list; lists in sorted order."""
    codes = np.unique(lists, return_inverse=True)[1]
    n = np.bincount(codes)
    u, v = (column - (np.bincount(codes, column) / n)[codes] for column in (x, y))
    xx, yy, xy = (np.bincount(codes, product) for product in (u * u, v * v, u * v))
    below = np.sqrt(xx * yy)
    r: Floats = np.clip(np.divide(xy, below, where=below > 0, out=np.full(len(n), np.nan)), -1, 1)
    return r


def split_half(answers: Answers, *, halvings: int = 20, seed: int = 0) -> SplitHalf:
    """How well two halves of each unit's raters agree, the mean over random halvings, and what it says of all raters.

    `ceiling` is the ρ that the mean of all of a unit's raters would have with the mean of as many others
    (Spearman–Brown): what a model reaches that judges as well as all of them together. It is no bound: one that knew
    what everybody thinks on average would have up to √ceiling, `limit`, with the mean of these raters. Both are of
    means over raters; for one rater's answers see ICC(2,1) and `leave_one_out`.

    Of an odd number of raters one half has the smaller part, and Spearman–Brown, which is of equal halves, is a little
    low (of normal answers with a variance of units of 400 in 1,100: .612 for .632 with three raters a unit, .735 for
    .741 with five); for even numbers it is right.
    """
    answers = once(answers)
    counts = _counts(answers)
    units = int((counts > 1).sum())
    rng = np.random.default_rng(seed)
    found, undefined = mean_defined([_halves_rho(answers, counts, rng) for _ in range(halvings)] if units > 1 else [])
    ceiling = 2 * found / (1 + found) if found >= 0 else np.nan
    return SplitHalf(found, ceiling, float(np.sqrt(ceiling)), units, halvings - undefined if units > 1 else 0)


def _halves_rho(answers: Answers, counts: Ints, rng: np.random.Generator) -> float:
    """Spearman's ρ over units of two answers and more between the means of a random half of them and of the rest."""
    order = np.lexsort((rng.random(len(answers.units)), answers.units))
    units, values = answers.units[order], answers.values[order]
    place = np.arange(len(units)) - (np.cumsum(counts) - counts)[units]
    first = place < counts[units] // 2
    means = []
    for half in (first, ~first):
        n = np.bincount(units[half], minlength=len(counts))[counts > 1]
        means.append((np.bincount(units[half], values[half], minlength=len(counts))[counts > 1] / n).round(9))
    return spearman(*means)
