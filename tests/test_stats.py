"""The statistics against scipy, against explicit repetition, and against the coverage that an interval promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError
from earmark.measure import stats
from earmark.measure.stats import (
    Interval,
    compare_means,
    compare_spearman,
    holm,
    kendall,
    kendall_within,
    mean_defined,
    mean_interval,
    pearson,
    percentile_interval,
    rated_measures,
    sign_flip_p,
    spearman,
    spearman_interval,
    spearman_within,
    spearman_within_interval,
)

NAN = float("nan")


def rated_pairs(
    rng: np.random.Generator, captions: int = 40, clips: int = 150, length: int = 17, of_clips: float = 0.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, ratings (half of them 0, many tied), captions and clips of lists as in a graded data set."""
    caption = np.repeat(np.arange(captions), length)
    clip = np.concatenate([rng.choice(clips, length, replace=False) for _ in range(captions)])

    def effects() -> np.ndarray:
        own, shared = 0.5 * rng.standard_normal(captions), of_clips * rng.standard_normal(clips)
        return own[caption] + shared[clip] + rng.standard_normal(len(caption))

    score = effects()
    rating = np.clip(np.round(20 * (score + effects())), 0, 100)
    return score, rating, caption, clip


# Correlations

small = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=12)


@settings(max_examples=150, deadline=None)
@given(rows=small)
def test_correlations_with_ties_are_scipys(rows: list[tuple[int, int, int]]) -> None:
    x, y, _ = np.array(rows, dtype=float).T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert np.isnan([spearman(x, y), kendall(x, y), pearson(x, y)]).all()
        return
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)
    assert kendall(x, y) == pytest.approx(scipy.stats.kendalltau(x, y).statistic, abs=1e-12)
    assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(rows=small)
def test_weights_are_repetitions(rows: list[tuple[int, int, int]]) -> None:
    x, y, w = np.array(rows, dtype=float).T
    repeated = spearman(np.repeat(x, w.astype(int)), np.repeat(y, w.astype(int)))
    np.testing.assert_allclose(spearman(x, y, w), repeated, atol=1e-12)
    np.testing.assert_allclose(spearman(x, y, w / 7), repeated, atol=1e-12)  # only their proportions count


@pytest.mark.case("R09")
def test_constant_predictions_are_undefined() -> None:
    constant, rating = np.full(30, 0.1), np.arange(30.0)
    assert np.isnan([spearman(constant, rating), kendall(constant, rating), pearson(constant, rating)]).all()
    assert np.isnan(spearman(rating, constant))
    assert np.isnan([spearman([], []), kendall([], []), pearson([], [])]).all()
    assert np.isnan([spearman([1], [2]), kendall([1], [2]), pearson([1], [2])]).all()
    measured = rated_measures(constant, rating)
    assert np.isnan([measured["SRCC"], measured["LCC"], measured["KTAU"]]).all()
    assert measured["MSE"] == pytest.approx(np.mean((0.1 - rating) ** 2))
    ids = np.arange(30) % 6, np.arange(30) % 5
    assert np.isnan(spearman_interval(constant, rating, *ids)).all()
    assert np.isnan(spearman_within_interval(constant, rating, *ids)).all()
    difference = compare_spearman(constant, rating, rating, *ids)
    assert np.isnan([difference.difference, *difference.interval, difference.p]).all()


def test_two_pairs_have_a_correlation() -> None:
    assert spearman([1, 2], [5, 3]) == kendall([1, 2], [5, 3]) == -1
    assert pearson([1, 2], [5, 3]) == pytest.approx(-1)


def test_huge_and_tiny_numbers_are_correlated() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50))
    for scale in (1e-200, 1e200):
        assert pearson(x * scale, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
        assert spearman(x * scale, y) == pytest.approx(spearman(x, y))


def test_correlations_within_lists_are_those_of_each_list() -> None:
    rng = np.random.default_rng(1)
    names = rng.choice([f"caption {i}" for i in range(25)], size=300)
    x, y = rng.integers(0, 5, size=(2, 300)).astype(float)
    x[names == "caption 3"] = 1
    y[names == "caption 4"] = 0.1
    rho, tau = spearman_within(names, x, y), kendall_within(names, x, y)
    for at, name in enumerate(np.unique(names)):
        mine = names == name
        np.testing.assert_allclose(rho[at], spearman(x[mine], y[mine]), atol=1e-12)
        np.testing.assert_allclose(tau[at], kendall(x[mine], y[mine]), atol=1e-12)
    assert np.isnan(rho).sum() == np.isnan(tau).sum() == 2
    assert mean_defined(rho) == (pytest.approx(np.nanmean(rho)), 2)
    assert len(spearman_within([], [], [])) == len(kendall_within([], [], [])) == 0


def test_a_mean_of_nothing_defined_is_undefined() -> None:
    mean, undefined = mean_defined([NAN, NAN])
    assert np.isnan(mean)
    assert undefined == 2
    assert mean_defined([1, NAN, 2]) == (1.5, 1)


def test_rated_measures_are_named_as_the_challenge_does() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.uniform(0, 10, size=(2, 100))
    measured = rated_measures(x, y)
    assert list(measured) == ["SRCC", "LCC", "KTAU", "MSE"]
    assert measured["SRCC"] == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert measured["LCC"] == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
    assert measured["KTAU"] == pytest.approx(scipy.stats.kendalltau(x, y).statistic)
    assert measured["MSE"] == pytest.approx(((x - y) ** 2).mean())


# Bootstrap


def test_multiplicities_are_those_of_draws_with_replacement() -> None:
    drawn = stats._multiplicities(50, 4000, np.random.default_rng(0))
    assert (drawn.sum(axis=1) == 50).all()
    assert drawn.mean() == 1
    assert drawn.var() == pytest.approx(1 - 1 / 50, rel=0.02)
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] == pytest.approx(-1 / 49, abs=0.05)


def test_replicates_are_the_statistic_of_repeated_pairs() -> None:
    x, y, captions, clips = rated_pairs(np.random.default_rng(3), captions=12, clips=30)
    found = stats._spearman_replicates([x], y, captions, clips, 5, seed=7)[0]
    ((w_captions, w_clips),) = stats.draws([12, len(np.unique(clips))], len(x), 5, seed=7)
    clip_codes = np.unique(clips, return_inverse=True)[1]
    for value, of_captions, of_clips in zip(found, w_captions, w_clips, strict=True):
        times = (of_captions[captions] * of_clips[clip_codes]).astype(int)
        wanted = scipy.stats.spearmanr(np.repeat(x, times), np.repeat(y, times)).statistic
        assert value == pytest.approx(wanted, abs=1e-12)


def test_intervals_repeat_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = rated_pairs(np.random.default_rng(4))
    values, clips = np.random.default_rng(5).random(500), np.arange(500) // 5

    def intervals(seed: int) -> list[Interval]:
        settings = {"replicates": 50, "seed": seed}
        return [
            mean_interval(values, clips, **settings),  # type: ignore[arg-type]
            spearman_interval(*pairs, **settings),  # type: ignore[arg-type]
            spearman_within_interval(*pairs, **settings),  # type: ignore[arg-type]
        ]

    first = intervals(0)
    assert intervals(0) == first
    assert all(a != b for a, b in zip(intervals(1), first, strict=True))
    monkeypatch.setattr(stats, "BLOCK", 2000)
    np.testing.assert_allclose(intervals(0), first, atol=1e-12)


def test_an_interval_lies_about_the_estimate() -> None:
    x, y, captions, clips = rated_pairs(np.random.default_rng(6), captions=400, clips=900)
    low, high = spearman_interval(x, y, captions, clips, replicates=200)
    assert low < spearman(x, y) < high
    low, high = spearman_within_interval(x, y, captions, clips, replicates=200)
    assert low < mean_defined(spearman_within(captions, x, y))[0] < high
    narrow = spearman_interval(x, y, captions, clips, replicates=200, level=0.5)
    assert narrow.high - narrow.low < 0.5 * (high - low)


def test_the_ids_and_the_order_of_pairs_change_nothing() -> None:
    x, y, captions, clips = rated_pairs(np.random.default_rng(7))
    order = np.random.default_rng(8).permutation(len(x))
    named = (
        np.char.add("t", np.char.zfill(captions.astype(str), 5)),
        np.char.add("f", np.char.zfill(clips.astype(str), 5)),
    )
    plain = spearman_interval(x, y, captions, clips, replicates=30)
    np.testing.assert_allclose(spearman_interval(x, y, *named, replicates=30), plain, atol=1e-12)
    shuffled = spearman_interval(x[order], y[order], captions[order], clips[order], replicates=30)
    np.testing.assert_allclose(shuffled, plain, atol=1e-12)


def test_what_is_undefined_is_left_out_of_the_mean() -> None:
    values, clips = np.array([0.1, 0.5, NAN, 0.4, 0.9, NAN]), np.array(["a", "a", "b", "c", "d", "d"])
    kept = ~np.isnan(values)
    assert mean_interval(values, clips) == mean_interval(values[kept], clips[kept])
    assert np.isnan(mean_interval([0.5, 0.7, NAN], ["a", "a", "b"])).all()  # one clip says nothing of others
    assert np.isnan(mean_interval([NAN, NAN], ["a", "b"])).all()
    assert np.isnan(spearman_interval([1, 2, 3], [1, 2, 3], ["a", "a", "a"], ["x", "y", "z"])).all()
    assert percentile_interval([NAN, 1.0, 1.0]) == (1, 1)


def covered(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


@pytest.mark.parametrize(("of_clip", "of_caption"), [(0.0, 1.0), (1.0, 1.0), (1.0, 0.2)])
def test_the_mean_is_covered_as_often_as_promised(of_clip: float, of_caption: float) -> None:
    rng, clips = np.random.default_rng(9), np.repeat(np.arange(80), 5)
    found = []
    for seed in range(300):
        values = of_clip * rng.standard_normal(80)[clips] + of_caption * rng.standard_normal(400)
        found.append(mean_interval(values, clips, replicates=300, seed=seed))
    assert 0.91 <= covered(found, 0) <= 0.98


def test_the_correlations_are_covered_at_least_as_often_as_promised() -> None:
    rng = np.random.default_rng(10)
    studies = [rated_pairs(rng, of_clips=1.0) for _ in range(100)]
    more = [rated_pairs(rng, of_clips=1.0) for _ in range(400)]
    truth = float(np.mean([spearman(x, y) for x, y, _, _ in more]))
    within = float(np.mean([mean_defined(spearman_within(captions, x, y))[0] for x, y, captions, _ in more]))
    assert covered([spearman_interval(*s, replicates=150, seed=i) for i, s in enumerate(studies)], truth) >= 0.92
    found = [spearman_within_interval(*s, replicates=150, seed=i) for i, s in enumerate(studies)]
    assert covered(found, within) >= 0.92
    # Captions alone, as if no clip stood in two lists, promise too much.
    alone = [
        mean_interval(spearman_within(captions, x, y), np.unique(captions), replicates=150, seed=i)
        for i, (x, y, captions, _) in enumerate(studies)
    ]
    assert covered(alone, within) < 0.9


# Paired comparisons


def test_signs_flip_as_all_combinations_say() -> None:
    rng = np.random.default_rng(11)
    clips = np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 5])
    values = rng.normal(0.4, 1, size=10)
    sums = np.array([values[clips == clip].sum() for clip in range(6)])
    all_signs = np.array(list(itertools.product([-1, 1], repeat=6)))
    exact = np.mean(np.abs(all_signs @ sums) >= abs(sums.sum()) - 1e-12)
    assert sign_flip_p(values, clips) == exact
    drawn = sign_flip_p(values, clips, permutations=50)  # fewer than 2^6: drawn
    assert drawn == sign_flip_p(values, clips, permutations=50)
    assert drawn == pytest.approx(exact, abs=0.2)
    assert sign_flip_p(-values, clips) == exact
    assert sign_flip_p(np.append(values, NAN), np.append(clips, 6)) == exact
    assert sign_flip_p([0, 0, 0], [1, 2, 3]) == 1
    assert np.isnan(sign_flip_p([NAN], [1]))


def test_chance_differences_are_found_as_often_as_promised() -> None:
    rng, clips = np.random.default_rng(12), np.repeat(np.arange(40), 5)
    p = np.array(
        [
            sign_flip_p(rng.standard_normal(40)[clips] + rng.standard_normal(200), clips, permutations=199, seed=seed)
            for seed in range(400)
        ]
    )
    assert 0.02 <= np.mean(p <= 0.05) <= 0.09
    assert np.mean(p) == pytest.approx(0.5, abs=0.06)


def test_two_runs_are_compared_on_the_same_draws() -> None:
    rng, clips = np.random.default_rng(13), np.repeat(np.arange(100), 5)
    b = rng.random(500)
    a = b + 0.02 + 0.05 * rng.standard_normal(500)
    a[7] = b[9] = NAN
    found = compare_means(a, b, clips)
    assert found.difference == pytest.approx(np.nanmean(a - b))
    assert found.interval.low > 0
    assert found.interval == mean_interval(a - b, clips)
    assert found.p == 1 / 10_000
    assert found.n == 498
    apart = mean_interval(a, clips)
    assert found.interval.high - found.interval.low < (apart.high - apart.low) / 2
    same = compare_means(a, a, clips)
    assert (same.difference, same.interval, same.p) == (0, (0, 0), 1)


def test_two_correlations_are_compared_on_the_same_pairs() -> None:
    rng = np.random.default_rng(14)
    x, y, captions, clips = rated_pairs(rng, captions=100, clips=400)
    worse = x + rng.standard_normal(len(x))
    found = compare_spearman(x, worse, y, captions, clips, replicates=400)
    assert found.difference == pytest.approx(spearman(x, y) - spearman(worse, y))
    assert 0 < found.interval.low < found.difference < found.interval.high
    assert found.p == pytest.approx(2 / 401)
    assert found.n == len(x)
    other = compare_spearman(worse, x, y, captions, clips, replicates=400)
    np.testing.assert_allclose(other.interval, [-found.interval.high, -found.interval.low], atol=1e-12)
    same = compare_spearman(x, x, y, captions, clips, replicates=50)
    assert (same.difference, same.interval, same.p) == (0, (0, 0), 1)


def test_holm_corrects_in_order() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, NAN, 0.9, 0.01]), [1, NAN, 1, 0.03])
    assert len(holm([])) == 0
    assert np.isnan(holm([NAN])).all()
    with pytest.raises(DataError, match="from 0 to 1"):
        holm([1.2])


# What is refused


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"y: shape \(2,\); expected one number a pair"):
        spearman([1, 2, 3], [1, 2])
    with pytest.raises(DataError, match="x at 1: nan; expected a finite number"):
        kendall([1, NAN], [1, 2])
    with pytest.raises(DataError, match="weights: -1"):
        spearman([1, 2], [1, 2], [1, -1])
    with pytest.raises(DataError, match="clips: shape"):
        mean_interval([1, 2], ["a"])
    with pytest.raises(DataError, match="b: shape"):
        compare_means([1, 2], [1], ["a", "b"])
