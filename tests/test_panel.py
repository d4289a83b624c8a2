"""How many raters and pairs are needed: the promised intervals against simulated studies."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from earmark.errors import ConfigError
from earmark.measure.agreement import agreement
from earmark.measure.panel import (
    LEAST_PAIRS,
    mean_half,
    pairs_for,
    panel,
    raters_for_mean,
    raters_for_reliability,
    reliability,
)
from earmark.relevance import Rating

UNITS, RATERS, REST = 20.0, 8.0, 15.0
"""Standard deviations in points."""


def simulated(seed: int, units: int, k: int, people: int = 400) -> tuple[list[Rating], np.ndarray]:
    """Ratings of `units` pairs by k raters each, drawn from many, and the true values; a pair has its own caption."""
    rng = np.random.default_rng(seed)
    truth = 50 + UNITS * rng.standard_normal(units)
    lenient = RATERS * rng.standard_normal(people)
    found = []
    for unit in range(units):
        for rater in rng.permutation(people)[:k]:
            answer = truth[unit] + lenient[rater] + REST * rng.standard_normal()
            found.append(Rating(f"caption {unit}", f"clip {unit}", float(answer), rater_id=f"rater {rater}"))
    return found, truth


@pytest.fixture(scope="module")
def pilot():
    return agreement(simulated(0, 500, 3)[0])


def test_the_numbers_are_those_of_the_variances(pilot):
    noise = RATERS**2 + REST**2
    assert mean_half(pilot, 1) == pytest.approx(1.96 * math.sqrt(noise), rel=0.06)
    assert reliability(pilot, 4) == pytest.approx(4 * UNITS**2 / (4 * UNITS**2 + noise), abs=0.03)
    assert raters_for_mean(pilot, 10) == math.ceil((1.959964 / 10) ** 2 * (pilot.icc.raters + pilot.icc.rest))
    assert reliability(pilot, 3) == pytest.approx(pilot.icc.average, abs=1e-9)  # k is 3 here: the study's own number


@pytest.mark.parametrize("half", [20, 10, 7])
def test_the_means_of_so_many_raters_lie_within_the_promised_interval(pilot, half):
    k = int(raters_for_mean(pilot, half))
    ratings, truth = simulated(1, 600, k)
    sums = np.zeros(len(truth))
    for rating in ratings:
        sums[int(rating.clip_id.split()[1])] += rating.rating / k
    assert 0.925 < np.mean(np.abs(sums - truth) <= mean_half(pilot, k)) < 0.975
    assert mean_half(pilot, k) <= half
    assert k == 1 or mean_half(pilot, k - 1) > half


@pytest.mark.parametrize("wanted", [0.7, 0.9])
def test_so_many_raters_reach_the_wanted_reliability(pilot, wanted):
    k = int(raters_for_reliability(pilot, wanted))
    assert reliability(pilot, k) >= wanted
    assert k == 1 or reliability(pilot, k - 1) < wanted
    assert agreement(simulated(2, 500, max(k, 2))[0], replicates=50).icc.average > wanted - 0.03


@pytest.mark.parametrize(("k", "measure"), [(2, "alpha"), (3, "alpha"), (5, "alpha"), (2, "icc"), (5, "icc")])
def test_so_many_pairs_give_an_interval_of_the_promised_width_that_holds_the_true_value(pilot, k, measure):
    half = 0.06
    pairs = int(pairs_for(pilot, half, k, measure))
    one = UNITS**2 / (UNITS**2 + RATERS**2 + REST**2)
    true = one if measure == "alpha" else k * one / (1 + (k - 1) * one)
    halves, off = [], []
    for seed in range(8):
        found = agreement(simulated(10 + seed, pairs, k)[0], replicates=200)
        interval = found.alpha_interval if measure == "alpha" else found.icc.average_interval
        halves.append((interval.high - interval.low) / 2)
        off.append((found.alpha if measure == "alpha" else found.icc.average) - true)
    assert np.mean(halves) < 1.05 * half
    assert np.mean(halves) > 0.7 * half or pairs == LEAST_PAIRS[measure]
    assert np.mean(np.abs(off) <= 1.2 * half) >= 7 / 8


@pytest.mark.parametrize("measure", ["alpha", "icc"])
@pytest.mark.parametrize(("units", "k"), [(900, 1), (300, 2)])
def test_pairs_of_fewer_raters_in_a_study_do_not_change_how_many_the_next_one_needs(measure, units, k):
    whole, _ = simulated(3, 300, 3)
    begun = [replace(each, caption_id=f"{each.caption_id}, later") for each in simulated(4, units, k)[0]]
    alone, beside = (pairs_for(agreement(each, replicates=300), 0.05, 3, measure) for each in (whole, [*whole, *begun]))
    assert 0.6 < beside / alone < 1.67  # told from 300 pairs, either scatters by a quarter


def test_pairs_grow_as_the_standard_errors_of_normal_answers_say(pilot):
    one = pilot.icc.units / (pilot.icc.units + pilot.icc.raters + pilot.icc.rest)
    alpha = {k: (1 + (k - 1) * one) ** 2 / (k * (k - 1)) for k in (2, 3, 5)}
    icc = {k: k / (k - 1) / (1 + (k - 1) * one) ** 2 for k in (2, 3, 5)}
    for measure, by_k in (("alpha", alpha), ("icc", icc)):
        needed = {k: pairs_for(pilot, 0.001, k, measure) for k in by_k}
        assert needed[2] / needed[3] == pytest.approx(by_k[2] / by_k[3], rel=1e-4)
        assert needed[5] / needed[3] == pytest.approx(by_k[5] / by_k[3], rel=1e-4)
        assert pairs_for(pilot, 0.99, 3, measure) == LEAST_PAIRS[measure]


def test_what_rounding_adds_asks_for_no_rater_more(pilot):
    even = replace(pilot, icc=pilot.icc._replace(units=1.0, raters=0.5, rest=0.5))
    assert [raters_for_reliability(even, wanted) for wanted in (0.75, 0.8, 0.9)] == [
        3,
        4,
        9,
    ]  # .9 / (1 − .9) is above 9


def test_one_rater_a_pair_tells_nothing_and_says_so():
    ratings = [Rating(f"c{u}", f"c{u}", 10.0 * u, rater_id="a") for u in range(5)]
    found = panel(agreement(ratings))
    assert all(math.isnan(row.half) and math.isnan(row.reliability) for row in found.by_raters)
    assert all(math.isnan(row.number) for row in (*found.for_widths, *found.for_reliabilities))
    assert all(math.isnan(row.alpha) and math.isnan(row.icc) for row in found.for_agreements)


def test_raters_who_all_say_the_same_need_no_second():
    ratings = [Rating(f"c{u}", f"c{u}", 10.0 * u, rater_id=r) for u in range(8) for r in "abc"]
    found = panel(agreement(ratings, replicates=50))
    assert [row.number for row in found.for_widths] == [1, 1, 1, 1]
    assert [row.number for row in found.for_reliabilities] == [1, 1, 1]


def test_pairs_that_do_not_differ_reach_no_reliability():
    rng = np.random.default_rng(0)
    ratings = [Rating(f"c{u}", f"c{u}", 50 + float(rng.choice([-5, 5])), rater_id=r) for u in range(6) for r in "abc"]
    found = agreement(ratings, replicates=50)
    if found.icc.units == 0:
        assert math.isnan(raters_for_reliability(found, 0.8))
    assert math.isnan(raters_for_reliability(agreement([r for r in ratings if r.rater_id == "a"]), 0.8))


WRONG = [("widths", value) for value in (0.0, -1.0, 1e-300, 1e9, 100.0, math.nan, math.inf, -math.inf)]


@pytest.mark.parametrize(("option", "value"), [*WRONG, ("reliabilities", 1.0), ("agreements", 1e-200)])
def test_wishes_that_nothing_meets_are_refused(pilot, option, value):
    with pytest.raises(ConfigError, match=r"expected 0\.\d+ to [\d.]+\.$"):
        panel(pilot, **{option: [value]})


@pytest.mark.parametrize("value", [0.1, 99.0])
def test_the_narrowest_and_the_widest_wish_have_a_number(pilot, value):
    (row,) = panel(pilot, widths=[value]).for_widths
    assert row.number >= 1
    assert math.isfinite(row.number)
