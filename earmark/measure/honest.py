"""How likely a rater's answers are of an honest rater, a random one, or one who reads the scale the wrong way round.

Answers become 11 steps of the range that is in use. From all raters a latent class model is fitted (units belong to one
of a few classes, each with its own shares of answers; EM): it tells what a rater who listens would answer to a unit
whose other answers are known, zeros, leaps and all; the rater's own answers to other units do not count in it. Of each
rater's answers two things are then asked.

- Are they related to the others'? z is the sum of the log-likelihoods of the answers where they were given, less what
  dealing the same answers out at random over the same units gives, in standard deviations s of that: 0 ± 1 for whoever
  answers at random, however they like their answers; about s for who answers as the model has it. How raters spread
  about s is fitted to the study (an honest rater's z is normal with mean μs and variance 1 + τ²s²).
- Are they spread as is expected of people for these units, or evenly over the scale? The shares of answers are
  Dirichlet-multinomial about either; how far people are from what is expected is fitted to the study. An even spread
  counts only where z is below what is expected too.

The evidence against a rater is the logarithm of the ratio of the two likelihoods: random (half of them evenly spread,
half as others are) or reversed (z about −μs, what is expected turned over) against honest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from earmark.measure.stats import Floats, Ints

CERTAIN = 3.0
"""ln 20: the bound of the evidence where hardly a random rater is missed by it, `MISSED` at most."""
MISSED = 0.01
RELATED = 3.0
"""z above which nobody is flagged as random: 1 in 700 random raters lies above."""
STEPS = 11
CLASSES = 8
EVEN = 1000.0
"""The concentration of who answers evenly over the scale: nearly, not quite."""


# What the others say of a unit


class Classes(NamedTuple):
    """Units of a few kinds: how likely each kind is, what it is answered with, and of which kind each unit is."""

    log_share: Floats
    """[class] the logarithm of the share of units."""
    counts: Floats
    """[step, class] the answers, weighted."""
    log_answers: Floats
    """[step, class] the logarithm of the shares of answers."""
    log_units: Floats
    """[unit, class] the summed logarithm of the unit's answers."""
    kind: Floats
    """[unit, class] the chance of each class."""


class Table(NamedTuple):
    """Answers in steps, with how much each counts."""

    units: Ints
    steps: Ints
    weights: Floats
    of_step: Floats
    """[step] the weighted share of all answers."""


def steps_of(values: Floats) -> tuple[Ints, Floats]:
    """Each answer's step of the range in use, 0–10, and [step] the share of an even spread over the scale.

    The scale is the answers that occur where these are few (RELATE's 0, 10, … 100), else every number of the range.
    """
    low, width = values.min(), max(float(np.ptp(values)), 1e-9) / (STEPS - 1)
    scale = np.unique(values) if len(np.unique(values)) <= 2 * STEPS else np.linspace(low, values.max(), 1001)
    even = np.bincount(np.rint((scale - low) / width).astype(np.intp), minlength=STEPS)
    return np.rint((values - low) / width).astype(np.intp), even / even.sum()


def classes_of(table: Table, units: int, count: int, kind: Floats | None, iterations: int = 60) -> Classes:
    """The latent class model by EM, from `kind` [unit, class] or from classes by the units' mean step.

    A prior of one answer a step, spread as all answers are, keeps every share above 0.
    """
    given = np.zeros((len(table.steps), STEPS))
    given[np.arange(len(table.steps)), table.steps] = table.weights
    kind = _first_kind(table, units, count) if kind is None else kind
    for _ in range(iterations):
        counts: Floats = np.asarray(given.T @ kind[table.units], dtype=np.float64)
        log_answers, log_share = _log_answers(counts, table.of_step), np.log(kind.mean(axis=0) + 1e-12)
        weighted = table.weights[:, None] * log_answers[table.steps]
        sums = [np.bincount(table.units, each, minlength=units) for each in weighted.T]
        log_units: Floats = np.stack(sums, axis=1).astype(np.float64)
        kind = _normalised(log_units + log_share)
    return Classes(log_share, counts, log_answers, log_units, kind)


def _first_kind(table: Table, units: int, count: int) -> Floats:
    """[unit, class] by how near the unit's mean step is to each of the quantiles of all."""
    n = np.bincount(table.units, table.weights, minlength=units)
    sums = np.bincount(table.units, table.weights * table.steps, minlength=units)
    means = np.divide(sums, n, where=n > 0, out=np.full(units, STEPS / 2))
    middles = np.quantile(means, (np.arange(count) + 0.5) / count)
    return _normalised(-(((means[:, None] - middles) / 1.5) ** 2) / 2)


def _log_answers(counts: Floats, of_step: Floats) -> Floats:
    """[step, class] the logarithm of the shares of answers, with a prior of one answer a step."""
    found: Floats = np.log((counts + STEPS * (of_step[:, None] + 1e-6)) / (counts.sum(axis=0) + STEPS))
    return found


def _normalised(log_chances: Floats) -> Floats:
    """The chances of each row, which sum to 1."""
    chances: Floats = np.exp(log_chances - log_chances.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances


def expected_of(table: Table, found: Classes, own: Ints) -> Floats:
    """[answer, step] the chances that the model gives each answer of one rater (`own`) without any of the rater's."""
    rest = found.log_units[table.units[own]] - table.weights[own, None] * found.log_answers[table.steps[own]]
    counts = found.counts.copy()
    np.add.at(counts, table.steps[own], -table.weights[own, None] * found.kind[table.units[own]])
    answers = np.exp(_log_answers(np.maximum(counts, 0), table.of_step))
    chances: Floats = _normalised(rest + found.log_share) @ answers.T
    chances /= chances.sum(axis=1, keepdims=True)
    return chances


def related(chances: Floats, steps: Ints) -> tuple[float, float]:
    """(z, s) of one rater's answers; NaN where they or the units do not differ.

    z = (Σ L[i, aᵢ] − its mean) / s under all orders of the answers a, whose variance is Σ D² / (n − 1) for L with the
    means of its rows and columns taken off (Hoeffding 1951). s is what z is on average for who answers as L has it.
    """
    logs, shares = np.log(chances), np.bincount(steps, minlength=STEPS) / len(steps)
    centred = logs - logs.mean(axis=0) - (logs @ shares)[:, None] + logs.mean(axis=0) @ shares
    variance = float((centred**2 @ shares).sum() * len(steps) / max(len(steps) - 1, 1))
    if variance < 1e-6:
        return np.nan, np.nan
    return float(centred[np.arange(len(steps)), steps].sum() / np.sqrt(variance)), float(np.sqrt(variance))


# How honest raters spread


class Honest(NamedTuple):
    """How raters spread, by one study."""

    mu: float
    """z is about μs, with variance 1 + τ²s²."""
    tau: float
    random: float
    """The share of raters who answer at random, as `reversed`."""
    reversed: float

    def wide(self, s: Floats) -> Floats:
        """The standard deviation of z at s."""
        found: Floats = np.sqrt(1 + (self.tau * s) ** 2)
        return found


def kinds_of(z: Floats, s: Floats, spread: Floats, honest: Honest) -> Floats:
    """[kind, rater] the log-likelihood of z and of the answers' shares, less a part that all kinds have.

    Kinds are honest, random as others are spread, random and evenly spread, reversed; `spread` [2, rater] is of
    `spreads`.
    """
    of_honest, of_reversed = (_log_normal(z, sign * honest.mu * s, honest.wide(s)) for sign in (1, -1))
    at_random = _log_normal(z, 0, 1)
    evenly = np.where(z < honest.mu * s, at_random + spread[0], -np.inf)  # an even spread alone proves nothing
    return np.stack([of_honest, at_random, evenly, of_reversed + spread[1]])


def _log_normal(x: Floats, mean: Floats | float, sd: Floats | float) -> Floats:
    found: Floats = -(((x - mean) / sd) ** 2) / 2 - np.log(sd) - np.log(2 * np.pi) / 2
    return found


def with_shares(kinds: Floats, honest: Honest) -> Floats:
    """[kind, rater] with the logarithm of the kinds' shares."""
    shares = [1 - honest.random - honest.reversed, honest.random / 2, honest.random / 2, honest.reversed]
    return kinds + np.log(shares)[:, None]


def fitted(z: Floats, s: Floats, spread: Floats) -> Honest:
    """The kinds' shares and how honest raters spread: the maximum of likelihood × prior.

    The prior is worth a few raters: μ about 1 (what the model expects) within a factor of 1.6, τ about .3 likewise,
    2 of 40 raters random and 1 reversed.
    """
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    def unpacked(p: Floats) -> Honest:
        mu, tau = np.exp(np.clip(p[:2], -4, 4))
        shares = np.exp([0, *np.clip(p[2:], -12, 12)])
        _, random, reversed_ = shares / shares.sum()
        return Honest(float(mu), float(tau), float(random), float(reversed_))

    def lost(p: Floats) -> float:
        at = unpacked(p)
        prior = -((p[0] / 0.5) ** 2) / 2 - ((p[1] - np.log(0.3)) / 0.5) ** 2 / 2
        prior += 37 * np.log(1 - at.random - at.reversed) + 2 * np.log(at.random) + np.log(at.reversed)
        return -float(logsumexp(with_shares(kinds_of(z, s, spread, at), at), axis=0).sum() + prior)

    start = np.array([0.0, np.log(0.3), np.log(2 / 37), np.log(1 / 37)])
    found = minimize(lost, start, method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-3, "fatol": 1e-3})
    return unpacked(found.x)


def spreads(counts: Floats, expected: Floats, even: Floats, trust: Floats) -> Floats:
    """[2, rater] ln of how much likelier the rater's answers are from an even spread, and from what is expected turned
    over, than from what is expected of honest raters, `expected` [rater, step].

    All are Dirichlet-multinomial, of the concentration that fits the trusted raters best, or `EVEN`.
    """
    from scipy.optimize import minimize_scalar

    def lost(x: float) -> float:
        return -float(trust @ _dirichlet(counts, np.exp(x) * expected)) + ((x - 3) / 2) ** 2 / 2

    much = float(np.exp(minimize_scalar(lost, bounds=(-1, 8), method="bounded").x))
    own, turned = (_dirichlet(counts, much * each) for each in (expected, expected[:, ::-1]))
    return np.stack([_dirichlet(counts, np.broadcast_to(EVEN * even, counts.shape)) - own, turned - own])


def _dirichlet(counts: Floats, alpha: Floats) -> Floats:
    """[rater] the log-likelihood of the counts, in their order, under a Dirichlet-multinomial of α [rater, step]."""
    from scipy.special import gammaln

    alpha = np.maximum(alpha, 1e-6)
    whole = gammaln(alpha.sum(axis=1)) - gammaln(alpha.sum(axis=1) + counts.sum(axis=1))
    found: Floats = whole + (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=1)
    return found


def evidence_of(kinds: Floats) -> Floats:
    """[rater] ln of how much likelier they are random (either way) or reversed than honest."""
    random = np.logaddexp(kinds[1], kinds[2]) - np.log(2)
    found: Floats = np.maximum(random, kinds[3]) - kinds[0]
    return found


def bound_of(
    s: Floats, spread: Floats, chance: Floats, honest: Honest, false_flags: float, draws: int = 400
) -> tuple[float, float]:
    """The bound of the evidence, and how many honest raters pass it.

    It is what honest raters pass with a chance of `false_flags`, or more where random ones pass that too: up to
    `CERTAIN` as long as `MISSED` of them do not, and never below 0. Both are drawn by the fitted model: z anew, all
    else as the study's raters have it, each with the chance that they are honest.
    """
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2, draws, len(s)))
    z = np.stack([honest.mu * s + honest.wide(s) * noise[0], noise[1]])
    evidence = np.stack([[evidence_of(kinds_of(each, s, spread, honest)) for each in of] for of in z])
    evidence = np.where(z < RELATED, evidence, -np.inf)
    weights = np.broadcast_to(chance, evidence.shape[1:]).ravel()
    passed = _above(evidence[0].ravel(), weights, false_flags)
    bound = max(0.0, passed, min(CERTAIN, _above(evidence[1].ravel(), weights, 1 - MISSED)))
    return bound, float((weights * (evidence[0].ravel() > bound)).sum() / draws)


def _above(values: Floats, weights: Floats, share: float) -> float:
    """The number above which so large a share of the weights lies at most."""
    order = np.argsort(-values)
    within = np.cumsum(weights[order]) <= share * weights.sum()
    return float(values[order][np.count_nonzero(within)]) if not within.all() else -np.inf
