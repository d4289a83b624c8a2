"""Agreement of raters against other packages, other formulas, simulation and the published figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import krippendorff
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from earmark.data.published import import_published
from earmark.errors import DataError
from earmark.measure import agreement as module
from earmark.measure.agreement import (
    Answers,
    agreement,
    alpha_interval,
    answers_of,
    icc,
    krippendorff_alpha,
    leave_one_out,
    shares,
    split_half,
)
from earmark.measure.stats import draws
from earmark.relevance import Rating

NAN = float("nan")


def of_table(table: np.ndarray, captions: np.ndarray | None = None) -> Answers:
    """The answers of a table [unit, rater] with NaN where nobody answered; every unit has an answer."""
    units, raters = np.nonzero(~np.isnan(table))
    assert len(np.unique(units)) == len(table)
    return Answers(units, raters, table[units, raters], np.arange(len(table)) if captions is None else captions)


def ratings_of(table: np.ndarray) -> list[Rating]:
    rows = np.argwhere(~np.isnan(table))
    return [Rating(f"caption {u}", f"clip {u}", float(table[u, r]), rater_id=f"rater {r}") for u, r in rows]


def simulated(rng: np.random.Generator, units: int, raters: int, share: float = 1.0, spread: float = 15) -> np.ndarray:
    """Answers μ + unit (SD 20) + rater (SD 10) + rest; each rater answers that share of the units, every unit one."""
    table = 50 + 20 * rng.standard_normal((units, 1)) + 10 * rng.standard_normal(raters)
    table = table + spread * rng.standard_normal(table.shape)
    absent = rng.random(table.shape) >= share
    absent[np.arange(units), rng.integers(raters, size=units)] = False
    table[absent] = NAN
    return table


@st.composite
def tables(draw, whole: bool = False) -> np.ndarray:
    """Small tables [unit, rater] of few different answers."""
    units, raters = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    cells = st.sampled_from([0.0, 10.0, 50.0, 70.5, 100.0] if whole else [NAN, 0.0, 10.0, 50.0, 70.5, 100.0])
    rows = draw(st.lists(st.lists(cells, min_size=raters, max_size=raters), min_size=units, max_size=units))
    table = np.array(rows)
    table[np.isnan(table).all(axis=1), 0] = 20
    return table


# α and equal answers


@given(table=tables())
def test_alpha_is_that_of_the_package_krippendorff(table: np.ndarray) -> None:
    counted = table[(~np.isnan(table)).sum(axis=1) > 1]
    ours = krippendorff_alpha(of_table(table))
    if len(np.unique(counted[~np.isnan(counted)])) < 2:
        assert math.isnan(ours)
    else:
        assert ours == pytest.approx(krippendorff.alpha(counted.T, level_of_measurement="interval"), abs=1e-9)


@given(table=tables(), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
def test_alpha_is_of_no_scale(table: np.ndarray, shift: float, scale: float) -> None:
    ours, moved = krippendorff_alpha(of_table(table)), krippendorff_alpha(of_table(table * scale + shift))
    assert moved == pytest.approx(ours, abs=1e-6, nan_ok=True)


@given(table=tables())
def test_shares_are_those_of_a_loop_over_pairs(table: np.ndarray) -> None:
    apart = [
        abs(a - b)
        for row in table
        for at, a in enumerate(row)
        for b in row[at + 1 :]
        if not math.isnan(a) and not math.isnan(b)
    ]
    pairs, same, near = shares(of_table(table))
    assert pairs == len(apart)
    if apart:
        assert same == pytest.approx(np.mean(np.array(apart) == 0))
        assert near == pytest.approx(np.mean(np.array(apart) <= 10))
    else:
        assert math.isnan(same)
        assert math.isnan(near)


@pytest.mark.case("R10")
def test_full_agreement_on_one_number_is_undefined_and_told() -> None:
    for value in (50.0, 0.1):
        found = agreement(ratings_of(np.full((20, 3), value)))
        undefined = found.alpha, *found.alpha_interval, found.icc.single, found.icc.average, found.split_half.rho
        assert np.isnan(undefined).all()
        assert (found.same, found.near, found.pairs, found.units_of_two) == (1, 1, 60, 20)
        assert found.notes[0].startswith("All ratings of pairs that were rated twice are equal: α is undefined (0/0)")
        assert len(found.notes) == 3  # ICC, and each rater against the others
    full = agreement(ratings_of(np.repeat(np.arange(10.0)[:, None], 3, axis=1)))
    assert full.alpha == 1
    assert full.icc.single == pytest.approx(1)
    assert full.notes == ()


@pytest.mark.case("R12")
def test_one_disagreement_has_an_alpha_near_0_and_equal_answers_near_all() -> None:
    table = np.zeros((20, 10))
    table[3, 4] = 100
    found = agreement(ratings_of(table))
    assert found.alpha == pytest.approx(0, abs=0.01)
    assert (found.pairs, found.same, found.near) == (900, 891 / 900, 891 / 900)


def test_the_interval_of_alpha_is_that_of_captions_drawn_with_their_units() -> None:
    rng = np.random.default_rng(0)
    table, captions = simulated(rng, 40, 6, 0.5), np.sort(rng.integers(12, size=40))
    captions = np.unique(captions, return_inverse=True)[1]
    count = captions.max() + 1
    ((weights,),) = draws([count], count, 50, seed=3)
    alphas = [krippendorff_alpha(of_table(np.repeat(table, w[captions].astype(int), axis=0))) for w in weights]
    low, high = np.quantile(alphas, [0.025, 0.975])
    assert alpha_interval(of_table(table, captions), replicates=50, seed=3) == pytest.approx((low, high))
    assert np.isnan(alpha_interval(of_table(table, np.zeros(40, dtype=int)))).all()


def test_the_interval_of_alpha_holds_the_true_one() -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(40):
        low, high = alpha_interval(of_table(20 * rng.standard_normal((100, 1)) + 15 * rng.standard_normal((100, 4))))
        held += low <= 400 / (400 + 225) <= high
    assert held >= 34


# ICC

SHROUT_AND_FLEISS = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7.0]])


def test_icc_of_the_published_example() -> None:
    found = icc(of_table(SHROUT_AND_FLEISS))
    assert (round(found.single, 2), round(found.average, 2), found.k) == (0.29, 0.62, 4)
    assert found.single_interval.low <= found.single <= found.single_interval.high
    assert found.average_interval.low <= found.average <= found.average_interval.high


def anova(table: np.ndarray) -> tuple[float, float, float]:
    """The variances of units, raters and rest of a complete table, by its mean squares."""
    n, k = table.shape
    of_units, of_raters = table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    rest = ((table - of_units - of_raters + table.mean()) ** 2).sum() / ((n - 1) * (k - 1))
    units, raters = k * of_units.var(ddof=1), n * of_raters.var(ddof=1)
    return (units - rest) / k, (raters - rest) / n, rest


def not_below_zero(variances) -> tuple[float, float, float]:
    """Those of raters and rest keep their sum."""
    u, r, e = variances
    if r < 0:
        r, e = 0, e + r
    if e < 0:
        r, e = r + e, 0
    return max(u, 0), max(r, 0), max(e, 0)


@given(table=tables(whole=True))
def test_icc_of_a_complete_table_is_by_analysis_of_variance(table: np.ndarray) -> None:
    found = icc(of_table(table), replicates=2)
    if min(table.shape) < 2 or np.ptp(table) == 0:
        assert math.isnan(found.single)
        return
    u, r, e = not_below_zero(anova(table))
    assert (found.units, found.raters, found.rest) == pytest.approx((u, r, e), abs=1e-6)
    if u + r + e > 1e-6:
        assert found.single == pytest.approx(u / (u + r + e), abs=1e-6)
        assert found.average == pytest.approx(u / (u + (r + e) / table.shape[1]), abs=1e-6)


def henderson(table: np.ndarray) -> np.ndarray:
    """The variances by Method I, from projections and their traces: E[y'Py] = Σ variance · tr(P Z Z')."""
    units, raters = np.nonzero(~np.isnan(table))
    y = table[units, raters] - np.nanmean(table)
    effects = [np.eye(len(table))[units], np.eye(table.shape[1])[raters], np.eye(len(y))]
    effects = [z[:, z.any(axis=0)] for z in effects]
    project = [z @ np.linalg.pinv(z) for z in effects]
    mean = np.full((len(y), len(y)), 1 / len(y))
    forms = [project[0] - mean, project[1] - mean, np.eye(len(y)) - project[0] - project[1] + mean]
    expected = [[np.trace(form @ z @ z.T) for z in effects] for form in forms]
    return not_below_zero(np.linalg.solve(expected, [y @ form @ y for form in forms]))


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_icc_of_an_incomplete_table_is_hendersons(share: float) -> None:
    table = simulated(np.random.default_rng(5), 14, 7, share)
    found, (u, r, e) = icc(of_table(table)), henderson(table)
    k = scipy.stats.hmean((~np.isnan(table)).sum(axis=1))
    assert (found.units, found.raters, found.rest, found.k) == pytest.approx((u, r, e, k))
    assert (found.single, found.average) == pytest.approx((u / (u + r + e), u / (u + (r + e) / k)))


def test_icc_of_weighted_units_is_that_of_repeated_ones() -> None:
    rng = np.random.default_rng(6)
    table, times = simulated(rng, 20, 6, 0.5), rng.integers(0, 4, size=20)
    weighted = module._Variances(of_table(table))(times[None].astype(float))
    repeated = icc(of_table(np.repeat(table, times, axis=0)), replicates=2)
    assert [each[0] for each in weighted] == pytest.approx(repeated[:6])


def test_raters_who_are_alike_make_answers_no_noisier() -> None:
    """Where the raters' variance comes out below 0, that of an answer stays what it is within units."""
    rng, found = np.random.default_rng(11), []
    for _ in range(60):
        table = 50 + 20 * rng.standard_normal((48, 1)) + 9 * rng.standard_normal((48, 13))
        table[rng.random(table.shape) >= 0.22] = NAN
        table = table[(~np.isnan(table)).any(axis=1)]
        counted = (~np.isnan(table)).sum(axis=1)
        within = np.nansum((table - np.nanmean(table, axis=1)[:, None]) ** 2) / (counted - 1).sum()
        one = icc(of_table(table), replicates=2)
        found.append((one.raters + one.rest) / within)
    assert min(found) > 0.8
    assert max(found) < 1.25
    assert np.mean(found) == pytest.approx(1, abs=0.02)


def test_icc_finds_the_variances_that_were_put_in() -> None:
    found = icc(of_table(simulated(np.random.default_rng(7), 3000, 300, 0.02)))
    assert (found.units, found.raters, found.rest) == pytest.approx((400, 100, 225), rel=0.12)
    assert found.single_interval.low < found.single < found.single_interval.high


# Raters against raters


def test_leave_one_out_is_that_of_a_loop() -> None:
    table = np.round(simulated(np.random.default_rng(8), 30, 9, 0.4), -1)
    table[:, 2] = np.where(np.isnan(table[:, 2]), NAN, 50)  # a rater of one answer
    table[:, 3] = np.where(np.arange(30) < 2, [60.0, 20.0] * 15, NAN)  # one of two units
    table[:, 4] = np.where(np.arange(30) < 3, [60.0, 20.0, 90.0] * 10, NAN)  # one of three: as many as it takes
    table[np.isnan(table).all(axis=1), 0] = 40
    r, rho = [], []
    for rater, own in enumerate(table.T):
        rest = np.delete(table, rater, axis=1)
        at = ~np.isnan(own) & ~np.isnan(rest).all(axis=1)
        if at.sum() >= 3 and np.ptp(own[at]) and np.ptp(np.nanmean(rest[at], axis=1)):
            others = np.nanmean(rest[at], axis=1).round(9)
            r.append(scipy.stats.pearsonr(own[at], others).statistic)
            rho.append(scipy.stats.spearmanr(own[at], others).statistic)
    found = leave_one_out(of_table(table))
    assert (found.raters, found.undefined) == (len(r), 9 - len(r)) == (7, 2)
    assert (found.pearson, found.spearman) == pytest.approx((np.mean(r), np.mean(rho)))


def test_halves_are_those_of_a_loop() -> None:
    table = np.round(simulated(np.random.default_rng(9), 25, 6, 0.5), -1)
    answers, rng = of_table(table), np.random.default_rng(4)
    found = []
    for _ in range(3):
        keys, first, second = rng.random(len(answers.units)), [], []
        for unit in range(len(table)):
            at = np.flatnonzero(answers.units == unit)
            mine = answers.values[at[np.argsort(keys[at])]]
            if len(mine) > 1:
                first.append(mine[: len(mine) // 2].mean())
                second.append(mine[len(mine) // 2 :].mean())
        found.append(scipy.stats.spearmanr(np.round(first, 9), np.round(second, 9)).statistic)
    halves = split_half(answers, halvings=3, seed=4)
    assert (halves.rho, halves.units, halves.halvings) == pytest.approx((np.mean(found), len(first), 3))
    assert halves.ceiling == pytest.approx(2 * halves.rho / (1 + halves.rho))
    assert split_half(answers, halvings=3, seed=4) == halves


def test_the_ceiling_is_of_as_many_other_raters_and_the_limit_of_the_truth() -> None:
    rng = np.random.default_rng(10)
    truth = 20 * rng.standard_normal((3000, 1))
    ours, others = (truth + 30 * rng.standard_normal((3000, 4)) for _ in range(2))
    found = split_half(of_table(ours))
    again = scipy.stats.spearmanr(ours.mean(axis=1), others.mean(axis=1)).statistic
    best = scipy.stats.spearmanr(ours.mean(axis=1), truth[:, 0]).statistic
    assert (found.ceiling, found.limit) == pytest.approx((again, best), abs=0.03)


def test_halves_that_disagree_have_no_ceiling() -> None:
    table = np.array([[0, 100], [100, 0], [20, 80], [80, 20], [10, 90.0]])
    found = agreement(ratings_of(np.vstack([table] * 3)))
    assert found.split_half.rho < 0
    assert np.isnan([found.split_half.ceiling, found.split_half.limit]).all()
    assert "Halves of the raters disagree (ρ below 0): the ceiling is undefined." in found.notes


# All of it


def test_what_is_not_there_is_undefined_and_told() -> None:
    nobody = "No pair has two ratings that name their rater: agreement is undefined."
    single = agreement([Rating("a", f"clip {n}", 10.0 * n, rater_id="r") for n in range(5)])
    assert (single.ratings, single.units, single.raters, single.units_of_two) == (5, 5, 1, 0)
    one_each = agreement([Rating("a", f"clip {n}", 10.0 * n, rater_id=f"{n}") for n in range(5)])
    assert (one_each.raters, one_each.units_of_two) == (5, 0)
    alone = agreement([Rating("a", "b", 5, rater_id="r")])
    nothing = agreement([Rating("a", "b", 5), Rating("a", "b", 6)])
    empty = agreement([])
    for found in (single, one_each, alone, nothing, empty):
        numbers = found.alpha, *found.alpha_interval, found.icc.single, found.icc.average, found.same, found.near
        assert np.isnan([*numbers, *found.split_half[:3], *found.leave_one_out[:2]]).all()
        assert nobody in found.notes
    assert nothing.notes[0] == "Ratings left out, since they name no rater: 2."
    assert (nothing.ratings, nothing.without_rater, empty.ratings, empty.pairs) == (0, 2, 0, 0)


def test_one_unit_has_equal_answers_and_no_more() -> None:
    found = agreement([Rating("a", "b", value, rater_id=str(value)) for value in (10, 20, 90)])
    assert (found.units_of_two, found.pairs, found.same, found.near) == (1, 3, 0, 1 / 3)
    assert found.alpha == pytest.approx(0)  # its disagreement is all that there is
    assert np.isnan([*found.alpha_interval, found.icc.single, found.split_half.rho, found.leave_one_out.pearson]).all()
    assert "ICC is undefined: these ratings do not tell pairs, raters and the rest apart." in found.notes


def test_who_rates_twice_counts_once_beside_alpha() -> None:
    table = np.round(simulated(np.random.default_rng(11), 12, 4), 0)
    once = ratings_of(table)
    twice = [*once, Rating("caption 0", "clip 0", float(table[0, 0]) + 8, rater_id="rater 0")]
    mean = table.copy()
    mean[0, 0] += 4
    found = agreement(twice)
    assert (found.ratings, found.repeated, found.units, found.pairs) == (49, 1, 12, 11 * 6 + 10)
    assert found.icc == icc(answers_of(ratings_of(mean)))
    assert found.leave_one_out == leave_one_out(answers_of(ratings_of(mean)))
    assert found.split_half == split_half(answers_of(ratings_of(mean)))
    wider = np.column_stack([table, np.full(12, NAN)])
    wider[0, 4] = table[0, 0] + 8
    assert found.alpha == pytest.approx(krippendorff_alpha(of_table(wider)))
    assert found.notes[0].startswith("Ratings of a pair that their rater had rated already: 1; each counts in α")


def test_units_are_pairs_and_captions_bring_theirs() -> None:
    rows = [("a", "x", "1"), ("a", "y", "1"), ("b", "x", "2"), ("a", "x", "2"), ("c", "z", "")]
    found = answers_of([Rating(caption, clip, 5, rater_id=rater) for caption, clip, rater in rows])
    assert [each.tolist() for each in found] == [[0, 1, 2, 0], [0, 0, 1, 1], [5.0] * 4, [0, 0, 1]]


def test_numbers_are_json() -> None:
    found = agreement(ratings_of(simulated(np.random.default_rng(12), 15, 5)))
    numbers = json.loads(json.dumps(found.numbers(), allow_nan=False))
    assert numbers["alpha"] == found.alpha
    assert type(found.numbers()["icc"]["single_interval"]) is list
    assert numbers["alpha_interval"] == list(found.alpha_interval)
    assert list(numbers["icc"]) == list(found.icc._fields)
    assert numbers["icc"]["single_interval"] == list(found.icc.single_interval)
    assert (numbers["leave_one_out"], numbers["split_half"]) == (
        found.leave_one_out._asdict(),
        found.split_half._asdict(),
    )
    assert (numbers["leave_one_out"]["raters"], numbers["split_half"]["units"], numbers["notes"]) == (5, 15, [])


def test_a_rating_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="rating 1 of those with a rater: nan; expected a finite number"):
        agreement([Rating("a", "b", 5, rater_id="r"), Rating("a", "c", NAN, rater_id="r")])


# Real ratings


@pytest.fixture(scope="module")
def relate(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Rating]:
    root = tmp_path_factory.mktemp("relate") / "out"
    return import_published([real_data / "texts" / "relate" / "REL.csv"], root).ratings


def test_relate_agrees_as_is_known(relate: list[Rating]) -> None:
    found = agreement(relate, replicates=200)
    assert (found.ratings, found.units, found.raters, found.units_of_two) == (28770, 6917, 1370, 6350)
    assert round(found.alpha, 4) == 0.5686
    assert found.alpha_interval == pytest.approx((0.556, 0.581), abs=0.004)
    test = [rating for rating in relate if rating.more["in RELATE dataset"] == "test"]
    assert round(krippendorff_alpha(answers_of(test)), 4) == 0.4257


def test_relate_without_anchors_has_the_known_ceiling(relate: list[Rating]) -> None:
    found = agreement([rating for rating in relate if rating.group != "anchor"], replicates=200)
    assert (found.ratings, found.units, found.units_of_two) == (24660, 5928, 5442)
    assert round(found.alpha, 4) == 0.3942
    assert found.split_half.rho == pytest.approx(0.540, abs=0.005)
    assert found.split_half.ceiling == pytest.approx(0.702, abs=0.005)
    assert found.icc.single == pytest.approx(found.alpha, abs=0.005)
    assert found.leave_one_out.raters + found.leave_one_out.undefined == 1370
    assert (found.same, found.near) == pytest.approx((0.249, 0.437), abs=0.001)
