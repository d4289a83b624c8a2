"""How many raters and how many pairs a wanted interval needs, from the variances of a study that is there.

An answer is μ + unit + rater + rest, of variances u, r and e (points², `agreement.icc`); raters are taken to be drawn
anew for every pair. Then, all 95 %:

- A pair's mean over k raters lies within ± 1.96 √((r + e) / k) points of what all people would say on average.
- ICC(2,k) = k u / (k u + r + e), the reliability of such means (Spearman–Brown).
- The half-width of the interval of α, or of ICC(2,k), falls with the root of the number of pairs n. Of normal answers
  its standard error is √2 (1 − ρ) (1 + (k − 1) ρ) / √(k (k − 1) n) for α and √(2 k / (k − 1)) (1 − ρ) / (1 + (k − 1) ρ)
  / √n for ICC(2,k), with ρ = u / (u + r + e) (Donner, "A review of inference procedures for the intraclass correlation
  coefficient", 1986; the second by the delta method). Real answers are not normal, and pairs share captions: so the
  study's own bootstrap interval is taken, and brought to other n and k by the ratio of these errors. Of the study n
  are the pairs of two raters and more, and k (k − 1) is the mean of theirs: a pair of one rater tells nothing of ρ. As
  there, it is of other captions and the same raters: a few raters who differ in leniency make the true one wider,
  whatever n.

Numbers are rounded up, and pairs are `LEAST_PAIRS` at least. What the study does not tell is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from earmark.errors import ConfigError
from earmark.measure.agreement import Agreement

Z = 1.959964
"""Standard deviations either side of the middle of 95 % of a normal distribution."""
WIDTHS = (20.0, 15.0, 10.0, 5.0)
"""Half-widths of a pair's mean, in points of 100."""
RELIABILITIES = (0.7, 0.8, 0.9)
AGREEMENTS = (0.1, 0.05, 0.02)
"""Half-widths of α and of ICC(2,k)."""
RATERS = (1, 2, 3, 4, 5, 8, 12, 20)
LEAST_PAIRS = {"alpha": 30, "icc": 90}
"""Fewer pairs are never told: their intervals are wider than the formula says (of ICC(2,k), 22 pairs: by half)."""


class ByRaters(NamedTuple):
    """What so many raters a pair give."""

    raters: int
    half: float
    """Half of the 95 % interval of a pair's mean, points of 100."""
    reliability: float
    """ICC(2,k)."""


class Needed(NamedTuple):
    """How many a wish needs."""

    wanted: float
    """A half-width, or a reliability."""
    number: float
    """Whole, or NaN where the study does not tell, or no number is enough."""


class PairsNeeded(NamedTuple):
    """How many pairs, of so many raters each, a wanted half-width needs."""

    raters: int
    wanted: float
    alpha: float
    icc: float


class Panel(NamedTuple):
    """How many raters and pairs are needed; see the module."""

    by_raters: tuple[ByRaters, ...]
    for_widths: tuple[Needed, ...]
    """Raters a pair, for a pair's mean."""
    for_reliabilities: tuple[Needed, ...]
    """Raters a pair, for ICC(2,k)."""
    for_agreements: tuple[PairsNeeded, ...]

    def numbers(self) -> dict[str, Any]:
        """All of it as dicts, lists and numbers."""
        return {name: [each._asdict() for each in rows] for name, rows in self._asdict().items()}


def panel(
    found: Agreement,
    *,
    widths: Sequence[float] = WIDTHS,
    reliabilities: Sequence[float] = RELIABILITIES,
    agreements: Sequence[float] = AGREEMENTS,
    raters: Sequence[int] = RATERS,
) -> Panel:
    """What a study's agreement says of the next one. Raises `ConfigError` on a wish that nothing can meet."""
    check_widths(widths)
    _check("reliability", reliabilities, 0.001, 0.999)
    _check("half-width", agreements, 0.0001, 0.9999)
    return Panel(
        tuple(ByRaters(k, mean_half(found, k), reliability(found, k)) for k in raters),
        tuple(Needed(half, raters_for_mean(found, half)) for half in widths),
        tuple(Needed(wanted, raters_for_reliability(found, wanted)) for wanted in reliabilities),
        tuple(
            PairsNeeded(k, half, *(pairs_for(found, half, k, measure) for measure in ("alpha", "icc")))
            for k in raters
            for half in agreements
            if k in (2, 3, 5)
        ),
    )


def check_widths(widths: Sequence[float]) -> None:
    """Raises `ConfigError` on a half-width of a pair's mean that is none on a scale of 100 points."""
    _check("--width", widths, 0.1, 99)


def _check(name: str, wanted: Sequence[float], least: float, most: float) -> None:
    for each in wanted:
        if not least <= each <= most:  # NaN fails too
            raise ConfigError(f"{name} {each:g}; expected {least:g} to {most:g}.")


def mean_half(found: Agreement, k: int) -> float:
    """Half of the 95 % interval of a pair's mean over k raters, in points of 100."""
    return Z * float(np.sqrt(_noise(found) / k))


def raters_for_mean(found: Agreement, half: float) -> float:
    """The raters a pair whose mean has that half-width at most, at least 1."""
    return _up(max(Z**2 * _noise(found) / half**2, 1))


def reliability(found: Agreement, k: int) -> float:
    """ICC(2,k)."""
    units, noise = found.icc.units, _noise(found)
    return float(k * units / (k * units + noise)) if k * units + noise > 0 else np.nan


def raters_for_reliability(found: Agreement, wanted: float) -> float:
    """The raters a pair whose mean is so reliable; NaN where pairs do not differ."""
    units = found.icc.units
    return _up(max(wanted / (1 - wanted) * _noise(found) / units, 1)) if units > 0 else np.nan


def pairs_for(found: Agreement, half: float, k: int, measure: str) -> float:
    """The pairs, of k raters each, whose interval of `alpha` or `icc` has that half-width at most; NaN for k = 1."""
    now = found.alpha_interval if measure == "alpha" else found.icc.average_interval
    if k < 2 or not found.icc.k > 1 or found.units_of_two < 2:
        return np.nan
    there = (1 + np.sqrt(1 + 8 * found.pairs / found.units_of_two)) / 2
    mean_of = found.icc.k if measure == "icc" else there
    ratio = (now.high - now.low) / 2 / half * _error(found, k, k, measure) / _error(found, there, mean_of, measure)
    return _up(max(found.units_of_two * ratio**2, LEAST_PAIRS[measure]))


def _error(found: Agreement, k: float, mean_of: float, measure: str) -> float:
    """√n times the standard error of normal answers, up to a constant factor, of α or of the ICC of a mean of so many
    raters, from k raters a pair; see the module.
    """
    whole = found.icc.units + _noise(found)
    one = found.icc.units / whole if whole > 0 else np.nan
    alpha = float((1 + (k - 1) * one) / np.sqrt(k * (k - 1)))
    return alpha if measure == "alpha" else alpha * mean_of / (1 + (mean_of - 1) * one) ** 2


def _noise(found: Agreement) -> float:
    """The variance of one answer to a given pair: of raters and the rest, points²."""
    return found.icc.raters + found.icc.rest


def _up(number: float) -> float:
    """Rounded up, but not for what rounding errors add; NaN stays NaN."""
    return float(np.ceil(number - 1e-9))
