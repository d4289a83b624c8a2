"""Each rater against the others, and flags: who answered the same to everything, at random, or on a reversed scale.

Conventions as in `agreement`: a unit is a rated pair (caption, clip), an answer one rating 0–100; a rater who answered
a unit more than once counts once, with the mean. What is not defined is NaN.

How a flag is decided (`honest` has the formulas): a model is fitted to all raters' answers that tells what an honest
rater would answer where the others' answers are known. It gives the evidence against each rater: the logarithm of how
much likelier the answers are of a random or a reversed rater than of an honest one. A rater is flagged where that is
above a bound that honest raters of this study, by the fitted model, pass with a chance of at most `FALSE_FLAGS`, and
above `CERTAIN` where random ones hardly fail that; never where the answers are related to the others' (z above
`RELATED`), unless that is the wrong way round: where Pearson's r with the mean of the others, each with the chance that
they are honest, has artanh(r) √(n − 3) below −`RELATED`. (Of few pairs of three answers each, one of them reversed, the
model takes a lone high answer for usual, and by z alone 2 of 12 such raters would pass.) So with few ratings each
honest raters are flagged at that rate, however many they are: `Raters.expected` is how many. With many ratings hardly
any is. Raters count for what is said of the others with the chance that they are honest, and all is fitted again.

Where neither can be said (not flagged, and z below `UNSURE`) there are too few ratings to tell, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.measure.agreement import FEWEST, Answers, answers_of, once
from earmark.measure.honest import (
    CLASSES,
    RELATED,
    STEPS,
    Table,
    bound_of,
    classes_of,
    evidence_of,
    expected_of,
    fitted,
    kinds_of,
    related,
    spreads,
    steps_of,
    with_shares,
)
from earmark.measure.stats import Floats, Ints
from earmark.relevance import Rating

FALSE_FLAGS = 0.03
"""The share of honest raters that the bound of the evidence may cost."""
UNSURE = 1.645
"""z below which answers are not related to the others' by much (5 % of random raters lie above)."""
ROUNDS = 5
NEARLY = 5.0
"""Points about a rater's median within which answers are the same one."""
CONSTANT = 0.95
"""The share of answers there that makes them constant, if honest raters would hardly give them."""
FAST = 0.25
"""Of the median time that others listened to the same clips: below it a rater was too fast."""
FEWEST_TIMES = 5
FEWEST_JUDGED = 10
"""Shared units below which nobody is flagged as random or reversed, and answers below which nobody is as constant."""


class Flag(NamedTuple):
    """Why a rater needs a look."""

    name: str
    """constant, random, reversed, failed checks, too fast."""
    why: str


class Rater(NamedTuple):
    """One rater."""

    rater_id: str
    ratings: int
    shared: int
    """Units that somebody else answered too."""
    mean: float
    """Points, as `sd` (n − 1)."""
    sd: float
    same: float
    """The share, 0–1, of the most frequent answer."""
    r: float
    """Pearson's correlation with the mean of the others' answers."""
    z: float
    """How far the answers are related to the others', see the module."""
    evidence: float
    """ln of how much likelier the answers are of a random or reversed rater than of an honest one."""
    checks: tuple[int, int] | None
    """Right, asked; None where nothing is known of them."""
    played: float
    """The median, over clips, of the time listened to the median of the others'; NaN where unknown."""
    flags: tuple[Flag, ...]
    unsure: str
    """Why nothing can be said of the answers, in words; empty where something can."""


@dataclass(frozen=True)
class Raters:
    """All raters, in order of first appearance."""

    rows: tuple[Rater, ...]
    expected: float
    """How many honest raters are flagged as random or reversed by chance, by the fitted model."""
    random: float
    """The share of raters that the fit takes for random or reversed, 0–1; NaN where nothing was fitted."""

    @property
    def flagged(self) -> list[Rater]:
        """Those with a flag."""
        return [rater for rater in self.rows if rater.flags]

    @property
    def unsure(self) -> list[Rater]:
        """Those of whose answers nothing can be said, and who have no flag."""
        return [rater for rater in self.rows if rater.unsure and not rater.flags]


def raters(
    ratings: Sequence[Rating],
    *,
    checks: Mapping[str, tuple[int, int]] | None = None,
    checks_share: float = 0.75,
    false_flags: float = FALSE_FLAGS,
) -> Raters:
    """Every rater with flags; see the module. `checks` tells (right, asked) of each rater's known answers.

    Ratings that name no rater are left out. Raises `DataError` on a rating that is not finite.
    """
    named = [rating for rating in ratings if rating.rater_id]
    answers = once(answers_of(named))
    ids = list(dict.fromkeys(rating.rater_id for rating in named))
    if not ids:
        return Raters((), 0.0, np.nan)
    judged = _Judged(answers, len(ids), false_flags)
    played, places = _played(named), _places(answers.raters, len(ids))
    rows = []
    for at, rater_id in enumerate(ids):
        right = (checks or {}).get(rater_id)
        flags = [
            *judged.flags(at),
            *_check_flags(right, checks_share),
            *_time_flags(*played.get(rater_id, (np.nan, 0))),
        ]
        rows.append(_row(answers, places[at], rater_id, judged, at, right, played, tuple(flags)))
    return Raters(tuple(rows), judged.expected, judged.random)


def _row(
    answers: Answers,
    own: Ints,
    rater_id: str,
    judged: _Judged,
    at: int,
    right: tuple[int, int] | None,
    played: Mapping[str, tuple[float, int]],
    flags: tuple[Flag, ...],
) -> Rater:
    values = answers.values[own]
    return Rater(
        rater_id=rater_id,
        ratings=len(own),
        shared=int(judged.shared[own].sum()),
        mean=float(values.mean()),
        sd=float(values.std(ddof=1)) if len(own) > 1 else np.nan,
        same=float(np.unique(values, return_counts=True)[1].max() / len(own)),
        r=_correlation(values, judged.others[own], judged.shared[own]),
        z=float(judged.z[at]),
        evidence=float(judged.evidence[at]),
        checks=right,
        played=played.get(rater_id, (np.nan, 0))[0],
        flags=flags,
        unsure=judged.unsure(at),
    )


def _correlation(x: Floats, y: Floats, shared: NDArray[np.bool_]) -> float:
    """Pearson's r over at least `FEWEST` shared units; NaN for fewer, or a constant side."""
    x, y = x[shared], y[shared].round(9)
    if len(x) < FEWEST or not np.ptp(x) or not np.ptp(y):
        return np.nan
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1))


def _places(codes: Ints, count: int) -> list[Ints]:
    """[code] the places at which it stands."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])


# Who is flagged


class _Judged:
    """All raters of a study, judged."""

    def __init__(self, answers: Answers, raters: int, false_flags: float) -> None:
        counts = np.bincount(answers.units, minlength=len(answers.captions))[answers.units]
        sums = np.bincount(answers.units, answers.values, minlength=len(answers.captions))[answers.units]
        self.answers, self.shared = answers, counts > 1
        self.others = np.where(self.shared, (sums - answers.values) / np.maximum(counts - 1, 1), np.nan)
        self.places = _places(answers.raters, raters)
        self.z = np.full(raters, np.nan)
        self.s, self.evidence, self.turned, self.against = (self.z.copy() for _ in range(4))
        self.usual = np.zeros((raters, STEPS))
        self.constant: dict[int, str] = {}
        self.expected, self.random, self.bound = 0.0, np.nan, 0.0
        self.enough = raters > 2 and bool(self.shared.any()) and float(np.ptp(answers.values)) > 0
        if self.enough:
            self._judge(false_flags)

    def _judge(self, false_flags: float) -> None:
        steps, even = steps_of(self.answers.values)
        trust, kind = np.ones(len(self.z)), None
        counts = np.zeros((len(self.z), STEPS))
        np.add.at(counts, (self.answers.raters, steps), 1)
        for _ in range(ROUNDS):
            kind = self._relate(steps, trust, kind)
            trust = self._weigh(spreads(counts, self.usual, even, trust), false_flags)
        self._oppose(np.maximum(trust, 1e-3)[self.answers.raters])

    def _oppose(self, weights: Floats) -> None:
        """Finds how far each rater's answers go along with the weighted mean of the others', in standard deviations."""
        answers, units = self.answers, len(self.answers.captions)
        of_unit = np.bincount(answers.units, weights, minlength=units)[answers.units] - weights
        sums = np.bincount(answers.units, weights * answers.values, minlength=units)[answers.units]
        means = np.divide(
            sums - weights * answers.values, of_unit, where=self.shared, out=np.full(len(of_unit), np.nan)
        )
        for at, own in enumerate(self.places):
            shared = int(self.shared[own].sum())
            r = _correlation(answers.values[own], means[own], self.shared[own])
            if shared >= FEWEST_JUDGED and not np.isnan(r):
                self.against[at] = np.arctanh(np.clip(r, -0.999999, 0.999999)) * np.sqrt(shared - 3)

    def _relate(self, steps: Ints, trust: Floats, kind: Floats | None) -> Floats:
        """Fits the classes with each rater's trust, finds z and s of all, and who is constant."""
        answers = self.answers
        weights = np.maximum(trust, 1e-3)[answers.raters]
        of_step = np.bincount(steps, weights, minlength=STEPS)
        table = Table(answers.units, steps, weights, of_step / of_step.sum())
        units = len(answers.captions)
        count = int(np.clip(len(steps) // (8 * STEPS), 2, CLASSES))
        found = classes_of(table, units, count, kind)
        self.constant = {}
        for at, own in enumerate(self.places):
            chances, shared = expected_of(table, found, own), self.shared[own]
            self.usual[at] = chances.mean(axis=0)
            if why := self._constant(chances, steps[own], answers.values[own]):
                self.constant[at] = why
            if shared.sum() >= FEWEST_JUDGED:
                self.z[at], self.s[at] = related(chances[shared], steps[own[shared]])
        return found.kind

    def _constant(self, chances: Floats, steps: Ints, values: Floats) -> str:
        """Why the answers are constant, or nothing: nearly all the same where honest raters would hardly give them."""
        from scipy.stats import binom

        middle = float(np.median(values))
        near = np.abs(values - middle) <= NEARLY
        if len(values) < FEWEST_JUDGED or near.mean() < CONSTANT:
            return ""
        usual = chances[:, np.unique(steps[near])].sum(axis=1).mean()
        if binom.sf(near.sum() - 1, len(values), min(usual, 1)) > 0.001:
            return ""
        return f"{near.sum()} of {len(values)} answers within {NEARLY:g} points of {middle:g}; expected {usual:.0%}"

    def _weigh(self, spread: Floats, false_flags: float) -> Floats:
        """Fits how raters spread, and finds the evidence against each and the bound; how far each is to be trusted."""
        from scipy.special import logsumexp

        known = ~np.isnan(self.z)
        known[list(self.constant)] = False
        z, s, spread = self.z[known], self.s[known], spread[:, known]
        honest = fitted(z, s, spread)
        kinds = kinds_of(z, s, spread, honest)
        self.evidence[:] = np.nan
        self.evidence[known] = evidence_of(kinds)
        self.turned[known] = kinds[3] - kinds[1:3].max(axis=0)
        weighted = with_shares(kinds, honest)
        chance = np.exp(weighted[0] - logsumexp(weighted, axis=0))
        self.bound, self.expected = bound_of(s, spread, chance, honest, false_flags)
        judged = len(z) + len(self.constant)
        self.random = (float((1 - chance).sum()) + len(self.constant)) / judged if judged else np.nan
        trust = np.ones(len(self.z))
        trust[known], trust[list(self.constant)] = chance, 0
        return trust

    def flags(self, at: int) -> Iterator[Flag]:
        """What the rater's answers are flagged for."""
        if at in self.constant:
            yield Flag("constant", f"{self.constant[at]}.")
        elif self.evidence[at] > self.bound:
            if self.against[at] < -RELATED:
                yield Flag("reversed", f"high where others are low ({self.against[at]:.1f} standard deviations).")
            elif self.turned[at] > 0 and self.z[at] < 0:
                far = f"z {self.z[at]:.1f}; honest about {self.s[at]:.1f}"
                yield Flag("reversed", f"high where others are low ({far}).")
            elif self.z[at] < RELATED:
                far = f"z {self.z[at]:.1f}; random 0 ± 1, honest about {self.s[at]:.1f}"
                yield Flag("random", f"hardly related to the others' ({far}).")

    def unsure(self, at: int) -> str:
        """Why nothing can be said of the rater's answers; empty where something can."""
        own = self.places[at]
        shared = int(self.shared[own].sum())
        if len(self.z) == 2:
            return f"{len(self.z)} raters: who of them is wrong cannot be told"
        if shared < FEWEST_JUDGED and at not in self.constant:
            return f"{shared} pairs that others rated too; expected {FEWEST_JUDGED} at least"
        if at in self.constant or self.z[at] > UNSURE or self.evidence[at] > self.bound:
            return ""
        if np.isnan(self.z[at]):
            return "the answers, or what others said of these pairs, do not differ"
        return f"{shared} pairs that others rated too are too few to tell (z {self.z[at]:.1f})"


# What is known beside the answers


def failed(right: int, asked: int, share: float) -> bool:
    """Whether fewer than `share` of the known answers were right; never without such answers."""
    return asked > 0 and right / asked < share  # share * asked can round to above 7 where share is .28


def _check_flags(checks: tuple[int, int] | None, share: float) -> Iterator[Flag]:
    """Whether too few of the known answers were right."""
    if checks and failed(*checks, share):
        yield Flag("failed checks", f"{checks[0]} of {checks[1]} known answers right; expected {share:.0%}.")


def _time_flags(played: float, clips: int) -> Iterator[Flag]:
    """Whether the rater listened for far less time than others did."""
    if clips >= FEWEST_TIMES and played < FAST:
        yield Flag("too fast", f"listened for {played:.0%} of the others' time (median of {clips} clips).")


def _played(ratings: Sequence[Rating]) -> dict[str, tuple[float, int]]:
    """Rater → (median of the time listened to the others' median on the same clip, clips); those with times alone."""
    timed = [rating for rating in ratings if rating.played_s is not None]
    of_clip: dict[str, list[tuple[str, float]]] = {}
    for rating in timed:
        of_clip.setdefault(rating.clip_id, []).append((rating.rater_id, float(rating.played_s or 0)))
    found: dict[str, list[float]] = {}
    for listened in of_clip.values():
        for rater_id, seconds in listened:
            others = [other for name, other in listened if name != rater_id]
            if others and np.median(others) > 0:
                found.setdefault(rater_id, []).append(seconds / float(np.median(others)))
    return {rater_id: (float(np.median(each)), len(each)) for rater_id, each in found.items()}
