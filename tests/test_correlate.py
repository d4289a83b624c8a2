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

from earmark.analyse.correlate import Correlation, correlations, partial_correlation, stand_alone, stars
from earmark.data.clotho import from_folder
from earmark.data.published import import_published
from earmark.errors import DataError
from earmark.measure.stats import BLOCK, draws, holm
from earmark.relevance import Relevance

NAN = float("nan")


Names = tuple[list[str], list[str]]


def named(captions: Any, clips: Any) -> Names:
    """The captions and clips of these numbers."""
    return [f"caption {at:03}" for at in captions], [f"clip {at:03}" for at in clips]


def alone(pairs: int) -> Names:
    """Captions and clips of pairs that share neither."""
    return named(range(pairs), range(pairs))


def crossed(captions: int, clips: int) -> Names:
    """Each caption with each clip, captions outermost."""
    return named(np.repeat(np.arange(captions), clips), np.tile(np.arange(clips), captions))


def one(x: Any, y: Any, of: Names | None = None, **how: Any) -> Correlation:
    """Of one feature with one target, over pairs that stand alone unless they are named."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    (found,) = correlations({"x": x}, {"y": y}, *(of or alone(len(x))), **{"replicates": 50, **how})
    return found


def undefined(found: Correlation) -> bool:
    numbers = found.r, found.p, *found.interval, found.p_holm, found.rho, found.rho_p, *found.rho_interval
    return bool(np.isnan([*numbers, found.partial, found.partial_p, found.plain]).all())


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


def by_hand(of: Any, x: np.ndarray, y: np.ndarray, times: np.ndarray) -> np.ndarray:
    """[replicate] the correlation of the defined pairs, each as many times as it was drawn."""
    at = np.flatnonzero(~np.isnan(x) & ~np.isnan(y))
    drawn = [np.repeat(at, each[at].astype(int)) for each in times]
    return np.array([of(x[i], y[i]).statistic for i in drawn])


def fivefold(clips: int) -> Names:
    """Five captions of each clip."""
    return named(range(5 * clips), np.repeat(np.arange(clips), 5))


@pytest.mark.parametrize("of", [alone(50), fivefold(12), crossed(10, 6)], ids=["alone", "five a clip", "crossed"])
def test_clips_are_drawn_with_their_captions_and_captions_that_cross_them_too(of: Names) -> None:
    rng, n = np.random.default_rng(0), len(of[0])
    captions, clips = (np.unique(each, return_inverse=True)[1] for each in of)
    x = {"one": rng.integers(0, 5, size=n).astype(float), "two": np.where(rng.random(n) < 0.3, NAN, rng.random(n))}
    y = {"mean": np.where(rng.random(n) < 0.2, NAN, rng.integers(0, 9, size=n)), "sd": x["one"] + rng.normal(size=n)}
    found = correlations(x, y, *of, replicates=40, seed=3)
    assert [(each.feature, each.target) for each in found] == [(f, t) for f in ("one", "two") for t in ("mean", "sd")]
    if of == crossed(10, 6):
        ((of_captions, of_clips),) = draws([10, 6], 1, 40, seed=3)
        times = of_captions[:, captions] * of_clips[:, clips]
    else:
        ((of_clips,),) = draws([clips.max() + 1], 1, 40, seed=3)
        times = of_clips[:, clips]
    for each in found:
        a, b = x[each.feature], y[each.target]
        r, rho = (by_hand(how, a, b, times) for how in (scipy.stats.pearsonr, scipy.stats.spearmanr))
        assert each.interval == pytest.approx(tuple(np.quantile(r, [0.025, 0.975])))
        assert each.rho_interval == pytest.approx(tuple(np.quantile(rho, [0.025, 0.975])))
        if of == alone(50):
            at = ~np.isnan(a) & ~np.isnan(b)
            assert each.p == pytest.approx(scipy.stats.pearsonr(a[at], b[at]).pvalue)
        else:
            assert each.p == pytest.approx(2 * scipy.stats.norm.sf(abs(each.r) / r.std(ddof=1)))
            assert each.rho_p == pytest.approx(2 * scipy.stats.norm.sf(abs(each.rho) / rho.std(ddof=1)))
    assert [each.p_holm for each in found] == pytest.approx(holm([each.p for each in found]))


@pytest.mark.parametrize(("captions", "clips"), [(30, 5), (12, 12)])
def test_captions_and_clips_of_their_own_leniency_do_not_pass_for_a_correlation(captions: int, clips: int) -> None:
    far, bold = np.zeros(3), 0
    of = crossed(captions, clips)
    caption, clip = np.repeat(np.arange(captions), clips), np.tile(np.arange(clips), captions)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, y = (rng.normal(size=captions)[caption] + rng.normal(size=clips)[clip] for _ in range(2))
        x, y = x + rng.normal(size=len(x)), y + rng.normal(size=len(y))
        found = one(x, y, of, replicates=150, seed=seed)
        intervals = found.interval, found.rho_interval
        far += [*(not low <= 0 <= high for low, high in intervals), found.p < 0.05]
        bold += scipy.stats.pearsonr(x, y).pvalue < 0.05
    assert ((far >= 4) & (far <= 18)).all()  # 2–9 % of 200
    assert bold > 40  # as if pairs were independent


def test_pairs_that_share_captions_or_clips_have_no_p_of_a_partial_correlation() -> None:
    x, y, words = np.random.default_rng(6).normal(size=(3, 60))
    for of, known in ((alone(60), True), (fivefold(12), False), (crossed(10, 6), False)):
        found = correlations({"x": x, "words": words}, {"y": y}, *of, replicates=20)[0]
        assert found.partial == pytest.approx(by_inverse(x, y, [words]))
        assert (found.partial_n, np.isfinite(found.partial_p)) == (60, known)


def test_pairs_stand_alone_where_captions_and_clips_are_nine_tenths_as_many() -> None:
    for pairs in (10, 70, 200):
        few, fewer = (np.arange(pairs) % (pairs * 9 // 10 - less) for less in (0, 1))
        assert stand_alone(*named(few, few))
        assert not stand_alone(*named(fewer, range(pairs)))
        assert not stand_alone(*named(range(pairs), fewer))
    assert stand_alone([], [])
    x, y = np.random.default_rng(7).normal(size=(2, 10))
    plain = scipy.stats.pearsonr(x, y).pvalue
    assert one(x, y, named(range(10), [0, *range(9)])).p == pytest.approx(plain)
    assert one(x, y, named(range(10), [0, 0, *range(8)])).p != plain


def test_p_by_bootstrap_is_undefined_where_no_two_replicates_differ() -> None:
    of = named(range(20), np.arange(20) // 2)
    x, y = np.random.default_rng(8).normal(size=(2, 20))
    for other in (2 * x + 1, -0.1 * x):
        found = one(x, other, of)
        assert (abs(found.r), abs(found.rho)) == pytest.approx((1, 1))
        assert np.isnan([found.p, found.rho_p, found.p_holm]).all()
    of_two = one(np.arange(20) % 2, y, named(range(20), np.arange(20) % 2))  # a feature of clips, and but two clips
    assert np.isfinite(of_two.r)
    assert np.isnan([of_two.p, of_two.p_holm]).all()


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


def test_pairs_of_one_clip_have_no_interval() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 9))
    x[6:] = NAN
    found = one(x, y, named(range(9), [0, 0, 0, 0, 0, 0, 1, 2, 3]))
    assert np.isfinite([found.r, found.rho]).all()
    assert np.isnan([*found.interval, *found.rho_interval, found.p, found.rho_p]).all()
    for of in (named([0] * 9, range(9)), named([0] * 6 + [1, 2, 3], [*range(6), 0, 1, 2])):  # one caption in these too
        found = one(x, y, of)
        assert np.isfinite([found.r, found.rho]).all()
        assert np.isnan([*found.interval, found.p]).all()


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
    found = correlations(features, {"rating": 3 * words + 5 * rng.normal(size=500)}, *alone(500), replicates=20)
    assert [each.controls for each in found] == [(), ("words",)]
    assert np.isnan([found[0].partial, found[0].partial_p]).all()
    assert found[0].partial_n == 0
    assert found[1].r > 0.6
    assert (abs(found[1].partial) < 0.1, found[1].partial_p > 0.05, found[1].partial_n) == (True, True, 500)


def test_controls_are_given_where_they_are_defined_and_vary() -> None:
    rng = np.random.default_rng(3)
    x, y, words, duration = rng.normal(size=(4, 40))
    duration[:20] = NAN
    half = {"x": x, "words": words, "duration_s": duration}

    def first(features: dict[str, np.ndarray], **how: Any) -> Correlation:
        return correlations(features, {"y": y}, *alone(40), replicates=2, **how)[0]

    found = first(half)
    assert (found.n, found.partial_n, found.controls) == (40, 20, ("duration_s", "words"))
    assert found.partial == pytest.approx(by_inverse(x[20:], y[20:], [duration[20:], words[20:]]))
    assert found.plain == pytest.approx(scipy.stats.pearsonr(x[20:], y[20:]).statistic)
    assert found.r == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
    few = first({**half, "duration_s": np.where(np.arange(40) < 21, NAN, duration)})
    assert (few.controls, few.partial_n, few.plain) == (("words",), 40, pytest.approx(few.r))
    last = np.arange(40) >= 25
    fewer = first({"x": np.where(np.arange(40) < 10, NAN, x), "words": np.where(last, words, NAN)})
    assert (fewer.n, fewer.partial_n, fewer.controls) == (30, 15, ("words",))  # half of the pairs with a feature
    constant = {**half, "words": np.full(40, 0.1)}
    assert first(constant).controls == ("duration_s",)
    other = first(half, controls=["other"])
    assert (other.controls, other.partial_n, np.isnan(other.plain)) == ((), 0, True)


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
    found = correlations(x, y, *alone(30), replicates=2)
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
    assert correlations({}, {"y": np.arange(3.0)}, *alone(3)) == []
    assert correlations({"x": np.arange(3.0)}, {}, *alone(3)) == []


def test_three_pairs_on_a_line_have_a_correlation() -> None:
    found = one([1, 2, 3], [6, 4, 2])
    assert (found.r, found.rho, found.rho_p) == pytest.approx((-1, -1, 0))
    assert found.p == pytest.approx(0, abs=1e-6)


def test_columns_that_do_not_fit_are_refused() -> None:
    x = np.arange(4.0)
    with pytest.raises(DataError, match=r"words: shape \(3,\); expected one number for each of the 4 pairs"):
        correlations({"words": x[:3]}, {"y": x}, *alone(4))
    with pytest.raises(DataError, match=r"y at 2: inf; expected a finite number, or NaN where it is undefined"):
        correlations({"words": x}, {"y": np.array([0, 1, np.inf, 3])}, *alone(4))


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
    of = [pair.caption_id for pair in pairs], [pair.clip_id for pair in pairs]
    found = correlations({"words": words, "mean": mean}, {"mean": mean, "sd": spread}, *of, replicates=100)
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
        ids = [rating.caption_id for rating in own], [rating.clip_id for rating in own]
        each = one(words, [rating.rating for rating in own], ids)
        assert (each.n, round(each.r, 3), stars(each.p)) == (n, r, marks)
