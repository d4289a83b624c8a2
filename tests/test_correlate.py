"""Correlations of features with targets against scipy, explicit repetition, another formula, and the known figures."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from earmark.analyse.correlate import Correlation, correlations, partial_correlation, stars
from earmark.data.clotho import from_folder
from earmark.data.published import import_published
from earmark.errors import DataError
from earmark.measure.stats import BLOCK, draws, holm
from earmark.relevance import Relevance

NAN = float("nan")


def names(number: int) -> list[str]:
    return [f"caption {at}" for at in range(number)]


def one(x: Any, y: Any, captions: list[str] | None = None, **how: Any) -> Correlation:
    """Of one feature with one target."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    (found,) = correlations({"x": x}, {"y": y}, captions or names(len(x)), **{"replicates": 50, **how})
    return found


def undefined(found: Correlation) -> bool:
    numbers = found.r, found.p, *found.interval, found.p_holm, found.rho, found.rho_p, *found.rho_interval
    return bool(np.isnan([*numbers, found.partial, found.partial_p]).all())


# Against scipy

columns = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, 7.5, NAN])] * 2), max_size=12)


@given(rows=columns)
def test_r_and_p_are_scipys_over_the_pairs_that_define_both(rows: list[tuple[float, float]]) -> None:
    x, y = np.array(rows).reshape(-1, 2).T
    found = one(x, y)
    at = ~np.isnan(x) & ~np.isnan(y)
    assert found.n == at.sum()
    if at.sum() < 3 or np.ptp(x[at]) == 0 or np.ptp(y[at]) == 0:
        assert undefined(found)
        return
    r, rho = scipy.stats.pearsonr(x[at], y[at]), scipy.stats.spearmanr(x[at], y[at])
    assert (found.r, found.p) == pytest.approx((r.statistic, r.pvalue), abs=1e-6)
    assert (found.rho, found.rho_p) == pytest.approx((rho.statistic, rho.pvalue), abs=1e-6)
    assert found.p_holm == found.p


@given(rows=columns, shift=st.floats(-1e3, 1e3), scale=st.floats(1e-3, 1e3))
def test_shift_and_scale_change_nothing_and_a_minus_the_sign(
    rows: list[tuple[float, float]], shift: float, scale: float
) -> None:
    x, y = np.array(rows).reshape(-1, 2).T
    found, moved, turned = one(x, y), one(x * scale + shift, y), one(-scale * x, y)
    for part in ("r", "p", "rho", "rho_p", "interval", "rho_interval"):
        assert getattr(moved, part) == pytest.approx(getattr(found, part), abs=1e-5, nan_ok=True)
    assert (turned.r, turned.rho) == pytest.approx((-found.r, -found.rho), abs=1e-5, nan_ok=True)
    assert turned.interval == pytest.approx([-end for end in found.interval[::-1]], abs=1e-5, nan_ok=True)
    assert (turned.p, turned.rho_p) == pytest.approx((found.p, found.rho_p), abs=1e-5, nan_ok=True)


def test_huge_and_tiny_numbers_are_correlated() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 40))
    plain = one(x, y)
    for scale in (1e-200, 1e200, 1e307):
        for own, scaled in zip(plain[3:8], one(x * scale, y)[3:8], strict=True):
            assert scaled == pytest.approx(own)
    assert one(x + 1e9, y).r == pytest.approx(plain.r, abs=1e-6)
    assert one(x + 1e9, y).interval == pytest.approx(plain.interval, abs=1e-6)


# Intervals


def test_the_draws_do_not_depend_on_how_many_are_made_at_a_time() -> None:
    ((whole,),) = draws([23], 1, 30, seed=4)
    assert (np.concatenate([w for (w,) in draws([23], BLOCK // 7, 30, seed=4)]) == whole).all()


def test_intervals_are_those_of_captions_drawn_with_their_pairs() -> None:
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(15, size=60), return_inverse=True)[1]
    x = {"one": rng.integers(0, 5, size=60).astype(float), "two": np.where(rng.random(60) < 0.3, NAN, rng.random(60))}
    y = {"mean": np.where(rng.random(60) < 0.2, NAN, rng.integers(0, 9, size=60)), "sd": x["one"] + rng.normal(size=60)}
    found = correlations(x, y, [f"caption {code:02d}" for code in codes], replicates=40, seed=3)
    ((weights,),) = draws([codes.max() + 1], 1, 40, seed=3)
    assert [(each.feature, each.target) for each in found] == [(f, t) for f in ("one", "two") for t in ("mean", "sd")]
    for each in found:
        a, b = x[each.feature], y[each.target]
        at = np.flatnonzero(~np.isnan(a) & ~np.isnan(b))
        drawn = [np.repeat(at, w[codes[at]].astype(int)) for w in weights]
        for interval, of in ((each.interval, scipy.stats.pearsonr), (each.rho_interval, scipy.stats.spearmanr)):
            replicates = [of(a[i], b[i]).statistic for i in drawn]
            assert interval == pytest.approx(tuple(np.quantile(replicates, [0.025, 0.975])))


def test_intervals_hold_the_true_correlation() -> None:
    held, true = 0, 0.5
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=120)
        found = one(x, true * x + np.sqrt(1 - true**2) * rng.normal(size=120), replicates=200)
        held += found.interval.low <= true <= found.interval.high
    assert 51 <= held <= 60


def test_replicates_without_a_correlation_are_left_out() -> None:
    x = np.array([0.0] * 9 + [1])  # more than a third of the draws leave the last pair out
    found = one(x, np.arange(10.0))
    assert np.isfinite([*found.interval, *found.rho_interval]).all()


def test_pairs_of_one_caption_have_no_interval() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 9))
    x[6:] = NAN
    found = one(x, y, ["a"] * 6 + ["b", "c", "d"])
    assert np.isfinite([found.r, found.p, found.rho]).all()
    assert np.isnan([*found.interval, *found.rho_interval]).all()


# Partial


def by_inverse(x: np.ndarray, y: np.ndarray, controls: list[np.ndarray]) -> float:
    """The partial correlation from the inverse of the correlation matrix."""
    inverse = np.linalg.inv(np.corrcoef([x, y, *controls]))
    return float(-inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1]))


@given(seed=st.integers(0, 1000), controls=st.integers(1, 3), n=st.integers(7, 30))
def test_partial_correlations_are_those_of_the_inverse(seed: int, controls: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    given_ = list(rng.normal(size=(controls, n)) * 100)
    x, y = rng.normal(size=(2, n)) + 0.01 * np.sum(given_, axis=0)
    r, p = partial_correlation(x, y, given_)
    assert r == pytest.approx(by_inverse(x, y, given_), abs=1e-6)
    t = abs(r) * np.sqrt((n - 2 - controls) / (1 - r**2))
    assert p == pytest.approx(2 * scipy.stats.t.sf(t, n - 2 - controls), abs=1e-9)


def test_a_cause_of_both_is_taken_out() -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(5, 20, size=500).astype(float)
    features = {"words": words, "nouns": words / 3 + rng.normal(size=500)}
    found = correlations(features, {"rating": 3 * words + 5 * rng.normal(size=500)}, names(500), replicates=20)
    assert [each.controls for each in found] == [(), ("words",)]
    assert np.isnan([found[0].partial, found[0].partial_p]).all()
    assert found[0].partial_n == 0
    assert found[1].r > 0.6
    assert (abs(found[1].partial) < 0.1, found[1].partial_p > 0.05, found[1].partial_n) == (True, True, 500)


def test_controls_are_given_where_they_are_defined_and_vary() -> None:
    rng = np.random.default_rng(3)
    x, y, words, duration = rng.normal(size=(4, 40))
    duration[:18] = NAN
    half = {"x": x, "words": words, "duration_s": duration}
    found = correlations(half, {"y": y}, names(40), replicates=2)[0]
    assert (found.n, found.partial_n, found.controls) == (40, 22, ("duration_s", "words"))
    assert found.partial == pytest.approx(by_inverse(x[18:], y[18:], [duration[18:], words[18:]]))
    few = {**half, "duration_s": np.where(np.arange(40) < 21, NAN, duration)}
    assert correlations(few, {"y": y}, names(40), replicates=2)[0].controls == ("words",)
    constant = {**half, "words": np.full(40, 0.1)}
    assert correlations(constant, {"y": y}, names(40), replicates=2)[0].controls == ("duration_s",)
    assert correlations(half, {"y": y}, names(40), controls=["other"], replicates=2)[0].controls == ()


def test_what_controls_explain_wholly_has_no_partial_correlation() -> None:
    x, y, other = np.random.default_rng(4).normal(size=(3, 20))
    assert np.isnan(partial_correlation(x, y, [3 * x + 1])).all()
    assert np.isnan(partial_correlation(x, y, [other, 0.1 * y - other])).all()
    assert np.isnan(partial_correlation(x[:3], y[:3], [other[:3]])).all()  # no degree of freedom is left
    twice = partial_correlation(x, y, [other, 2 * other, np.full(20, 0.1)])
    assert twice == pytest.approx(partial_correlation(x, y, [other]))
    assert partial_correlation(other, 2 * other + 1, [x]) == pytest.approx((1, 0))


# All of a call


def test_p_is_corrected_over_the_call_where_it_is_defined() -> None:
    rng = np.random.default_rng(5)
    x = {"a": rng.normal(size=30), "constant": np.full(30, 0.1), "b": rng.normal(size=30), "none": np.full(30, NAN)}
    y = {"mean": x["a"] + rng.normal(size=30), "sd": rng.normal(size=30)}
    found = correlations(x, y, names(30), replicates=2)
    assert [undefined(each) for each in found] == [each.feature in ("constant", "none") for each in found]
    defined = [each for each in found if not undefined(each)]
    assert [each.p_holm for each in defined] == pytest.approx(holm([each.p for each in defined]))
    assert defined[0].p_holm == pytest.approx(4 * defined[0].p)


def test_constant_columns_single_pairs_and_none_are_undefined() -> None:
    assert undefined(one([1, 2], [3, 4]))
    assert undefined(one([1], [3]))
    assert undefined(one([], []))
    assert undefined(one([1, 2, NAN, 4], [1, NAN, 3, 4]))
    assert undefined(one(np.arange(30), np.full(30, 50)))
    assert undefined(one(np.full(30, 0.1), np.arange(30)))
    assert correlations({}, {"y": np.arange(3.0)}, names(3)) == []
    assert correlations({"x": np.arange(3.0)}, {}, names(3)) == []


def test_three_pairs_on_a_line_have_a_correlation() -> None:
    found = one([1, 2, 3], [6, 4, 2])
    assert (found.r, found.rho, found.rho_p) == pytest.approx((-1, -1, 0))
    assert found.p == pytest.approx(0, abs=1e-6)


def test_columns_that_do_not_fit_are_refused() -> None:
    x = np.arange(4.0)
    with pytest.raises(DataError, match=r"words: shape \(3,\); expected one number for each of the 4 pairs"):
        correlations({"words": x[:3]}, {"y": x}, names(4))
    with pytest.raises(DataError, match=r"y at 2: inf; expected a finite number, or NaN where it is undefined"):
        correlations({"words": x}, {"y": np.array([0, 1, np.inf, 3])}, names(4))


def test_stars_are_the_papers() -> None:
    marks = {0.0: "**", 0.0099: "**", 0.01: "*", 0.049: "*", 0.05: "n.s.", 1.0: "n.s.", NAN: ""}
    assert [stars(p) for p in marks] == list(marks.values())


# Real ratings


def test_relates_ratings_go_with_words_and_spread_as_is_known(real_data: Path, tmp_path: Path) -> None:
    found = import_published([real_data / "texts" / "relate" / "REL.csv"], tmp_path / "out")
    pairs = list(Relevance.from_ratings(rating for rating in found.ratings if rating.group != "anchor").pairs())
    text = {caption.caption_id: caption.text for caption in found.captions}
    words = np.array([len(text[pair.caption_id].split()) for pair in pairs], dtype=float)
    mean, spread = (np.array([getattr(pair, name) for pair in pairs]) for name in ("value", "sd"))
    captions = [pair.caption_id for pair in pairs]
    found = correlations({"words": words, "mean": mean}, {"mean": mean, "sd": spread}, captions, replicates=100)
    assert (found[0].n, round(found[0].r, 3), stars(found[0].p)) == (5928, -0.191, "**")
    assert (found[3].n, round(found[3].r, 3)) == (5442, -0.453)
    assert found[0].interval.low < found[0].r < found[0].interval.high
    assert np.diff(found[0].interval) == pytest.approx(2 * 1.96 * (1 - found[0].r ** 2) / np.sqrt(5928), rel=0.2)


def test_ratings_of_own_clips_go_with_words_as_is_known(real_data: Path, tmp_path: Path) -> None:
    texts = real_data / "texts"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "grrel").symlink_to(texts / "clotho_relevance")
    for path in (texts / "clotho_v2.1").glob("*captions*"):
        shutil.copyfile(path, tmp_path / "in" / path.name)
    found, _ = from_folder(tmp_path / "in", tmp_path / "out")
    captions = {caption.caption_id: caption for caption in found.captions}
    known = {"development": (200, 0.046, "n.s."), "validation": (200, 0.142, "*")}
    for split, (n, r, marks) in known.items():
        own = [rating for rating in found.rated(split) if captions[rating.caption_id].clip_id == rating.clip_id]
        words = [len(ast.literal_eval(captions[rating.caption_id].more["tokens"])) for rating in own]
        each = one(words, [rating.rating for rating in own], [rating.caption_id for rating in own])
        assert (each.n, round(each.r, 3), stars(each.p)) == (n, r, marks)
