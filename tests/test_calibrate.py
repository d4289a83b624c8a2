"""From cosine to rating: a map that never falls, intervals that hold, and a file that belongs to its run."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.analyse import calibrate
from earmark.analyse.calibrate import CELLS, LEVELS, SMOOTHING, Calibration, Curve, fit, smooth_curve
from earmark.errors import ConfigError, DataError
from earmark.files import write_text


def drawn(captions=40, pairs=17, seed=0):
    """Cosines, ratings and captions: S-shaped, the noise largest in the middle, most ratings low."""
    rng = np.random.default_rng(seed)
    x = rng.beta(1.2, 4, (captions, pairs)) * 1.2 - 0.2 + 0.05 * rng.standard_normal((captions, 1))
    middle = 1 / (1 + np.exp(-8 * (x - 0.35)))
    y = middle + middle * (1 - middle) * (
        rng.standard_normal((captions, pairs)) + 0.7 * rng.standard_normal((captions, 1))
    )
    ids = np.repeat([f"caption{i}" for i in range(captions)], pairs)
    return x.ravel(), (100 * y.clip(0, 1)).round().ravel(), ids


def ordered(values):
    return (np.diff(values) >= -1e-9).all()


# The map and its interval


@given(st.data())
def test_no_end_falls_and_every_number_is_a_rating(data):
    captions = data.draw(st.integers(2, 12))
    sizes = data.draw(st.lists(st.integers(5, 9), min_size=captions, max_size=captions))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    total = sum(sizes)
    x = rng.uniform(-1, 1, total).round(data.draw(st.integers(0, 6)))
    y = (100 * rng.random(total) ** data.draw(st.integers(0, 6))).round()
    found = fit(x, y, np.repeat(np.arange(captions), sizes))
    asked = np.linspace(-1.5, 1.5, 301)
    wider = None
    for level in (0.5, 0.7, 0.9, 0.99):
        expected, low, high = found.rating(asked, level)
        assert ordered(expected)
        assert ordered(low)
        assert ordered(high)
        assert ((low >= 0) & (low <= expected + 1e-9) & (expected <= high + 1e-9) & (high <= 100)).all()
        if wider is not None:
            assert (low <= wider[0] + 1e-9).all()
            assert (high >= wider[1] - 1e-9).all()
        wider = low, high


def test_the_isotonic_part_equals_the_min_max_formula():
    x, y, _ = drawn(4, 9)
    x = x.round(1)  # with ties
    centres, blocks = calibrate._isotonic(x, y)
    distinct = np.unique(x)
    mean = [[y[(x >= a) & (x <= b)].mean() if a <= b else np.nan for b in distinct] for a in distinct]
    wanted = [max(min(mean[a][b] for b in range(i, len(distinct))) for a in range(i + 1)) for i in range(len(distinct))]
    np.testing.assert_allclose(blocks, np.unique(np.round(wanted, 9)), atol=1e-8)
    for centre, value in zip(centres, blocks, strict=True):
        inside = np.isin(x, distinct[np.isclose(wanted, value)])
        assert centre == pytest.approx(x[inside].mean())


def test_the_map_is_the_isotonic_part_under_a_gaussian_over_ranks():
    x, y, _ = drawn(30, 10)
    found = smooth_curve(x, y)
    before = np.interp(found.cosines, *calibrate._isotonic(x, y))
    reach = round(4 * SMOOTHING * CELLS)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / (SMOOTHING * CELLS)) ** 2)
    padded = np.concatenate([[before[0]] * reach, before, [before[-1]] * reach])
    wanted = [(weights * padded[at : at + len(weights)]).sum() / weights.sum() for at in range(CELLS)]
    np.testing.assert_allclose(found.ratings, wanted, atol=1e-6)
    assert abs(found.ratings - before).max() > 3  # the smoothing is not nothing


def test_no_map_that_is_held_against_captions_has_seen_them():
    x, y, ids = drawn(25, 6)
    given = []

    def watched(cosines, ratings):
        given.append(set(cosines.tolist()))
        return smooth_curve(cosines, ratings)

    found = fit(x, y, ids, curve=watched)
    whole, *others = given
    assert (whole, len(others)) == (set(x.tolist()), 10)
    scores, left_out = np.full(len(x), np.nan), []
    for seen in others:
        out = ~np.isin(x, list(seen))
        assert not set(ids[out]) & set(ids[~out])
        left_out += sorted(set(ids[out]))
        curve = smooth_curve(x[~out], y[~out])
        scores[out] = abs(y[out] - np.interp(x[out], curve.cosines, curve.ratings))
        scores[out] /= np.interp(x[out], curve.cosines, curve.widths)
    assert sorted(left_out) == sorted(set(ids))
    assert found.factors == calibrate._factors(scores, np.unique(ids, return_inverse=True)[1])


def test_the_ends_are_moved_outwards_alone():
    middle, widths, factor = np.array([10.0, 20, 30, 40, 90]), np.array([1.0, 30, 2, 25, 3]), 1.5
    made = replace(
        fit(*drawn(9)), cosines=[0.0, 0.1, 0.2, 0.3, 0.4], ratings=[*middle], widths=[*widths], factors=[factor] * 99
    )
    _, low, high = made.rating(made.cosines)
    ends = middle - factor * widths, middle + factor * widths
    np.testing.assert_allclose(low, [max(0, ends[0][at:].min()) for at in range(5)])
    np.testing.assert_allclose(high, [min(100, ends[1][: at + 1].max()) for at in range(5)])


def test_the_interval_is_the_quantile_that_counts_captions_and_one_more():
    scores = np.array([0.1, 0.5, 0.2, 0.9, 0.3, 0.4, 0.8, 0.7]) / 3  # no six digits have them
    owner = np.array([0, 0, 1, 1, 1, 1, 2, 2])
    factors = calibrate._factors(scores, owner)
    for level, factor in zip(LEVELS, factors, strict=True):
        weight = {q: sum(np.mean(scores[owner == k] <= q) for k in range(3)) / 4 for q in sorted(scores)}
        wanted = next((q for q, share in weight.items() if share >= level - 1e-9), None)
        assert (factor is None) == (wanted is None)
        assert factor is None or wanted <= factor < wanted + 1.01e-6  # the rating that decides lies inside


def test_about_as_many_new_ratings_lie_inside_as_the_level_says():
    inside = {level: [] for level in (0.5, 0.8, 0.9, 0.95)}
    for seed in range(40):
        found = fit(*drawn(seed=seed))
        x, y, _ = drawn(captions=100, seed=1000 + seed)
        for level, shares in inside.items():
            _, low, high = found.rating(x, level)
            shares.append(((y >= low) & (y <= high)).mean())
    for level, shares in inside.items():
        assert level - 0.02 < np.mean(shares) < level + 0.05


def test_widths_that_follow_the_cosine_are_narrower_at_the_same_coverage():
    x, y, ids = drawn(captions=80)
    new, truth, _ = drawn(captions=200, seed=1)
    widths, inside = {}, {}
    for curve in (smooth_curve, equal):
        _, low, high = fit(x, y, ids, curve=curve).rating(new, 0.9)
        widths[curve], inside[curve] = (high - low).mean(), ((truth >= low) & (truth <= high)).mean()
    assert widths[smooth_curve] < 0.9 * widths[equal]
    assert abs(inside[smooth_curve] - inside[equal]) < 0.03


def equal(cosines, ratings) -> Curve:
    found = smooth_curve(cosines, ratings)
    return found._replace(widths=np.ones(len(found.widths)))


def test_it_is_nearer_to_new_ratings_than_a_constant_and_the_cosine():
    found = fit(*drawn())
    x, y, _ = drawn(seed=1)
    error = np.mean((found.rating(x)[0] - y) ** 2)
    assert error < np.mean((y.mean() - y) ** 2)
    assert error < np.mean((100 * x.clip(0, 1) - y) ** 2)


def test_the_order_of_the_rows_changes_nothing_and_the_shape_stays():
    x, y, ids = drawn(10)
    order = np.random.default_rng(3).permutation(len(x))
    one, other = fit(x, y, ids), fit(x[order], y[order], ids[order])
    np.testing.assert_allclose(one.rating(x), other.rating(x), atol=1e-4)
    assert [each.shape for each in one.rating(x.reshape(10, -1))] == [(10, 17)] * 3
    assert np.isnan(one.rating(np.nan)).all()
    assert one.rating([])[0].shape == (0,)


def test_too_few_captions_for_a_level_give_the_whole_scale_and_say_so():
    found = fit(*drawn(captions=40))
    _, low, high = found.rating([0.0, 0.5], 0.99)
    assert (low.tolist(), high.tolist()) == ([0, 0], [100, 100])
    assert found.notes(0.99) == ["40 captions fitted on are too few for a 99 % interval (99 at least): it is [0, 100]"]
    assert found.notes(0.9) == []
    assert fit(*drawn(captions=99)).factor(0.99) is not None
    assert fit(*drawn(captions=9)).factor(0.9) is not None
    assert fit(*drawn(captions=8)).factor(0.9) is None


def test_constants_give_values_and_a_note():
    x, y, ids = drawn(12)
    same = fit(np.full(len(x), 0.25), y, ids)
    assert same.rating(0.9)[0] == pytest.approx(y.mean(), abs=1e-5)
    assert same.notes(0.9) == ["all 204 cosines fitted on were 0.25: one rating for all"]
    fixed = fit(x, np.full(len(x), 50), ids)
    assert [float(each) for each in fixed.rating(0.3)] == [50, 50, 50]
    assert fixed.notes(0.9) == ["all 204 ratings fitted on were 50: so is every one expected"]
    against = fit(-x, y, ids)
    assert against.rating(-1)[0] == pytest.approx(y.mean(), abs=1e-5)
    assert "do not rise with the cosine" in against.notes(0.9)[0]
    assert found_numbers(same, fixed, against)


def found_numbers(*each):
    return all(
        np.isfinite(one.rating(np.linspace(-1, 1, 9), level)).all() for one in each for level in (0.5, 0.9, 0.99)
    )


def test_cosines_beyond_those_of_the_fit_are_counted():
    x, y, ids = drawn(5)
    found = fit(x, y, ids)
    assert found.outside(x) == 0
    assert found.outside([x.min() - 0.1, x.mean(), x.max() + 0.1, np.nan]) == 2


@pytest.mark.parametrize("level", [0.49, 0.991, -1, float("nan"), 90])
def test_a_level_beyond_what_is_kept_is_refused(level):
    with pytest.raises(ConfigError, match=r"expected 0\.5–0\.99"):
        fit(*drawn(5)).rating([0.1], level)


def test_a_level_between_kept_ones_is_that_of_the_next():
    found = fit(*drawn(30))
    assert found.factor(0.901) == found.factor(0.905) != found.factor(0.9)


@pytest.mark.parametrize(
    ("x", "y", "ids", "told"),
    [
        ([0.1] * 9, [1] * 9, list("abcabcabc"), "9 rated pairs of 3 captions to fit on; expected 10 of 2 at least"),
        ([0.1] * 20, [1] * 20, ["a"] * 20, "20 rated pairs of 1 captions"),
        ([], [], [], "0 rated pairs of 0 captions"),
        ([0.1] * 11 + [np.nan], [1] * 12, list("ab" * 6), "not finite"),
        ([0.1] * 12, [1] * 11 + [140], list("ab" * 6), "outside 0–100"),
        ([0.1] * 12, [1] * 11 + [np.nan], list("ab" * 6), "outside 0–100"),
        ([0.1] * 12, [1] * 12, ["a", "b"], "one of each a pair"),
    ],
)
def test_what_cannot_be_fitted_on_is_refused(x, y, ids, told):
    with pytest.raises(DataError, match=told):
        fit(x, y, ids)


# On disk


@pytest.fixture
def run(tmp_path):
    """What stands for a run: its settings and its weights."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("[model]\ndim = 2\n")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"weights")
    return tmp_path / "run"


def test_what_is_written_is_read_back_and_belongs_to_the_weights(run):
    made = replace(fit(*drawn(6)), collection="small", kind="proxy", split="held", texts=["0" * 16])
    made.write(run)
    found = Calibration.read(run)
    assert replace(found, fingerprint="") == made
    assert set(json.loads((run / "calibration.json").read_text())["factors"]) > {None}
    (run / "model.safetensors").write_bytes(b"others")
    with pytest.raises(DataError, match=r"fitted to a run of fingerprint .* earmark score .* --fit DIR"):
        Calibration.read(run)


def test_a_run_without_one_names_the_command(run, tmp_path):
    with pytest.raises(DataError, match=r"no calibration\.json.*earmark score .*run --fit DIR"):
        Calibration.read(run)
    with pytest.raises(DataError, match="not a run"):
        Calibration.read(tmp_path)


def broken(**changes):
    return lambda table: {**table, **changes}


DAMAGE = {
    "not JSON": lambda table: "{",
    "nothing": lambda table: "",
    "nested": lambda table: "[" * 100_000,
    "another version": broken(version=2),
    "a list": lambda table: [],
    "no version": lambda table: {"cosines": []},
    "no map": lambda table: {key: value for key, value in table.items() if key != "ratings"},
    "more": broken(more=1),
    "no nodes": broken(cosines=[], ratings=[], widths=[]),
    "fewer nodes": lambda table: {**table, "cosines": table["cosines"][1:]},
    "falling": lambda table: {**table, "ratings": table["ratings"][::-1]},
    "cosines falling": lambda table: {**table, "cosines": table["cosines"][::-1]},
    "texts for numbers": lambda table: {**table, "ratings": [str(each) for each in table["ratings"]]},
    "beyond the scale": lambda table: {**table, "ratings": [each + 90 for each in table["ratings"]]},
    "not finite": lambda table: {**table, "widths": [float("nan")] * len(table["widths"])},
    "no width": lambda table: {**table, "widths": [0] * len(table["widths"])},
    "fewer levels": broken(factors=[1.0]),
    "numbers for captions": broken(texts=[1]),
    "kind": broken(kind="imagined"),
    "a huge number": broken(mean=10**400),
    "mean beyond the scale": broken(mean=500),
    "fewer than no pairs": broken(pairs=-1),
    "more captions than pairs": broken(captions=10**6),
    "a range that falls": broken(cosine_range=[1, -1]),
    "a range beyond the scale": broken(rating_range=[-500, 500]),
    "cosines that are none": lambda table: {**table, "cosines": [1e3 * each for each in table["cosines"]]},
    "a narrower interval for more": lambda table: {**table, "factors": table["factors"][::-1]},
    "a number after none": lambda table: {**table, "factors": [None, *table["factors"][1:]]},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(run, damage):
    fit(*drawn(6)).write(run)
    path = run / "calibration.json"
    table = DAMAGE[damage](json.loads(path.read_text()))
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    with pytest.raises(DataError, match="--fit DIR") as caught:
        Calibration.read(run)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_bytes_and_a_folder_in_its_place_are_refused(run):
    path = run / "calibration.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError):
        Calibration.read(run)
    path.unlink()
    os.mkfifo(path)  # which would be waited for
    with pytest.raises(DataError, match="not a regular file"):
        Calibration.read(run)
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError):
        Calibration.read(run)
    with pytest.raises(DataError, match="not a regular file"):
        fit(*drawn(3)).write(run)


def test_whoever_reads_while_others_write_finds_a_whole_file(run):
    made = [replace(fit(*drawn(6, seed=seed)), split=str(seed)) for seed in range(2)]
    made[0].write(run)
    writers = [threading.Thread(target=lambda one=one: [one.write(run) for _ in range(20)]) for one in made]
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        found = Calibration.read(run)
        assert replace(found, fingerprint="") in made
    for each in writers:
        each.join()
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_nothing_is_left_where_it_cannot_be_written(run):
    made = fit(*drawn(6))
    with pytest.raises(DataError, match="cannot be written"):
        write_text(run / "config.toml" / "calibration.json", "")
    with pytest.raises(DataError):
        made.write(run / "config.toml")
    assert sorted(path.name for path in run.iterdir()) == ["config.toml", "model.safetensors"]
