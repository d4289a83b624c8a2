"""Settings with several seeds: spreads, paired differences, their intervals, and evaluations kept on disk."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import vector_world

from earmark.errors import DataError
from earmark.measure import stats
from earmark.measure.evaluate import Evaluation, evaluate, without_nan
from earmark.measure.kept import read_evaluation, write_evaluation
from earmark.measure.seeds import COMPARED, differences, measures, spread, spreads
from earmark.relevance import Rating

NAN = np.nan


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    collection = vector_world(tmp_path_factory.mktemp("world") / "c")
    names = ["TP", *["C15"] * 4, "TN"]
    collection.ratings = [
        Rating(each.caption_id, each.clip_id, each.rating, names[place % 6])
        for place, each in enumerate(collection.ratings)
    ]
    return collection


def evaluation(world, seed: int, noise: float = 1.0) -> Evaluation:
    """An evaluation whose scores are the truth and noise by seed."""
    captions = {caption.caption_id: at for at, caption in enumerate(world.captions)}
    clips = {clip.clip_id: at for at, clip in enumerate(world.clips)}
    own = np.repeat(np.eye(len(clips)), 2, axis=0)
    scores = own + noise * np.random.default_rng(seed).standard_normal(own.shape)
    scores = scores.astype(np.float32)
    return evaluate(world, "evaluation", lambda q, c: scores[np.ix_([captions[x] for x in q], [clips[x] for x in c])])


def test_a_kept_evaluation_is_read_back_whole(world, tmp_path):
    before = evaluation(world, 0)
    write_evaluation(tmp_path / "e.npz", before, {"key": "k", "numbers": before.numbers()})
    after, about = read_evaluation(tmp_path / "e.npz")
    assert about == {"key": "k", "numbers": before.numbers()}
    assert after.numbers() == before.numbers()
    assert after.rated.groups == before.rated.groups
    assert differences("a", [after], "b", [before])[0].values == [0]


def test_without_ratings_it_is_kept_too(tmp_path):
    world = vector_world(tmp_path / "c", rated=0)
    before = evaluation(world, 0)
    write_evaluation(tmp_path / "e.npz", before, {})
    after, _ = read_evaluation(tmp_path / "e.npz")
    assert after.rated is None
    assert after.numbers() == before.numbers()
    assert [each.measure for each in differences("a", [after], "b", [before])] == list(COMPARED[:2])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half", b"{}"])
def test_a_file_that_is_no_kept_evaluation_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "e.npz").write_bytes(content)
    with pytest.raises(DataError, match="no kept evaluation") as refused:
        read_evaluation(tmp_path / "e.npz")
    assert "\n" not in str(refused.value)


def test_whatever_a_bit_flips_it_is_read_or_refused(world, tmp_path):
    path = tmp_path / "e.npz"
    write_evaluation(path, evaluation(world, 0), {})
    whole, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for at in rng.integers(8 * len(whole), size=200):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:  # any other error is a fault
            read_evaluation(path)
        except DataError:
            refused += 1
    assert refused > 50
    path.write_bytes(whole)
    assert read_evaluation(path)[0].numbers() == evaluation(world, 0).numbers()


def test_measures_have_dotted_names_and_undefined_is_nan(world):
    numbers = evaluation(world, 0).numbers()
    found = measures({**numbers, "more": {"none": None, "text": "t", "yes": True}})
    assert found["text_to_audio.mAP"] == numbers["text_to_audio"]["mAP"]
    assert found["ratings.groups.C15.spearman"] == numbers["ratings"]["groups"]["C15"]["spearman"]
    assert np.isnan(found["more.none"])
    assert "more.text" not in found
    assert "more.yes" not in found


def test_a_spread_counts_the_defined_seeds_alone():
    found = spread([1.0, NAN, 3.0])
    assert (found.mean, found.sd) == (2.0, pytest.approx(np.sqrt(2)))
    assert np.isnan(spread([1.0]).sd)
    assert np.isnan(spread([NAN]).mean)
    assert spreads([{"a": {"b": 1}}, {"a": {"b": 3}}])["a.b"].mean == 2


def test_groups_are_measured_apart_and_the_rated_measures_bear_the_challenges_names(world):
    found = evaluation(world, 0)
    numbers = found.numbers()["ratings"]
    at = [place for place, group in enumerate(found.rated.groups) if group == "C15"]
    expected = stats.spearman(found.rated.scores[at], found.rated.ratings[at])
    assert numbers["groups"]["C15"] == {"spearman": expected, "pairs": len(at)}
    assert sum(each["pairs"] for each in numbers["groups"].values()) == numbers["pairs"]
    assert numbers["SRCC"] == numbers["spearman"]
    assert numbers["KTAU"] == numbers["kendall"]
    assert numbers["LCC"] == pytest.approx(np.corrcoef(found.rated.scores, found.rated.ratings)[0, 1])
    assert numbers["MSE"] == pytest.approx(np.mean((np.clip(found.rated.scores, 0, 1) - found.rated.ratings) ** 2))


def test_the_better_setting_is_higher_in_every_measure_and_seed(world):
    good = [evaluation(world, seed, 0.2) for seed in range(4)]
    bad = [evaluation(world, seed, 2.0) for seed in range(4)]
    found = {each.measure: each for each in differences("good", good, "bad", bad)}
    assert list(found) == list(COMPARED)
    for each in found.values():
        assert each.over_seeds.difference == pytest.approx(np.mean(each.values))
        assert each.over_all.difference == pytest.approx(np.mean(each.values), abs=1e-9)
    numbers = [spreads([each.numbers() for each in some]) for some in (good, bad)]
    for name in COMPARED:  # the same differences as those of the two settings' own numbers
        assert found[name].over_seeds.difference == pytest.approx(numbers[0][name].mean - numbers[1][name].mean)
    for name in ("text_to_audio.mAP", "ratings.spearman"):
        assert min(found[name].values) > 0
        assert found[name].over_seeds.interval.low > 0
        assert found[name].over_all.interval.low > 0
    same = {each.measure: each for each in differences("good", good, "good again", good)}
    assert all(each.over_seeds.interval == (0, 0) and each.over_all.interval == (0, 0) for each in same.values())


def test_settings_of_different_queries_are_not_compared(world, tmp_path):
    other = vector_world(tmp_path / "other", clips=40)
    with pytest.raises(DataError, match="a and b: 1 and 1 evaluations of different queries"):
        differences("a", [evaluation(world, 0)], "b", [evaluation(other, 0)])
    with pytest.raises(DataError, match="1 and 2 evaluations"):
        differences("a", [evaluation(world, 0)], "b", [evaluation(world, 0), evaluation(world, 1)])


# Statistics


def test_students_interval_over_seeds_equals_scipys():
    from scipy.stats import ttest_1samp

    values = [0.02, 0.01, -0.005, 0.03, 0.012]
    found, expected = stats.compare_seeds(values), ttest_1samp(values, 0)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.n == 5
    one = stats.compare_seeds([0.02, NAN])
    assert (one.difference, one.n) == (0.02, 1)
    assert np.isnan(one.interval.low)
    assert stats.compare_seeds([0.0, 0.0]).p == 1
    assert stats.compare_seeds([0.1, 0.1]).p == 0


def test_means_over_seeds_and_clips_equal_a_loop_over_the_same_draws():
    rng = np.random.default_rng(0)
    clips = np.repeat([f"c{i:02}" for i in range(12)], 3)
    a, b = rng.random((4, 36)), rng.random((4, 36))
    a[1, 5] = NAN
    found = stats.compare_means_of_seeds(a, b, clips, replicates=50)
    kept = [query for query in range(36) if query != 5]
    drawn = []
    for w_clips, w_seeds in stats.draws([12, 4], 16, 50, 0):
        for of_clips, of_seeds in zip(w_clips, w_seeds, strict=True):
            weights = [[of_seeds[s] * of_clips[q // 3] for q in kept] for s in range(4)]
            drawn.append(np.average((a - b)[:, kept], weights=weights))
    assert found.difference == pytest.approx((a - b)[:, kept].mean())
    assert found.interval == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
    assert found.n == 35


def test_the_interval_over_seeds_and_clips_holds_both_variances():
    rng = np.random.default_rng(1)
    seeds, clips = rng.standard_normal((10, 1)), 5 * rng.standard_normal((1, 200))
    both = stats.compare_means_of_seeds(seeds + clips, np.zeros((10, 200)), range(200))
    expected = np.sqrt(seeds.var() / 10 + clips.var() / 200)
    assert (both.interval.high - both.interval.low) / (2 * 1.96) == pytest.approx(expected, rel=0.12)


def test_correlations_over_seeds_equal_the_mean_of_each_seeds():
    rng = np.random.default_rng(2)
    captions, clips = np.repeat(np.arange(30), 6), rng.integers(60, size=180)
    y = rng.random(180)
    a = y + 0.3 * rng.standard_normal((3, 180))
    b = y + 0.6 * rng.standard_normal((3, 180))
    found = stats.compare_spearman_of_seeds(a, b, y, captions, clips, replicates=200)
    expected = np.mean([stats.spearman(u, y) - stats.spearman(v, y) for u, v in zip(a, b, strict=True)])
    assert found.difference == pytest.approx(expected)
    assert found.interval.low < found.difference < found.interval.high
    single = stats.compare_spearman_of_seeds(a[:1], b[:1], y, captions, clips, replicates=200)
    plain = stats.compare_spearman(a[0], b[0], y, captions, clips, replicates=200)
    assert single == plain


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"b: shape \(2, 2\); expected \[seed, query\]"):
        stats.compare_means_of_seeds([[1, 2]], [[1, 2], [1, 2]], ["a", "b"])
    with pytest.raises(DataError, match=r"b: shape \(2,\)"):
        stats.compare_spearman_of_seeds([[1, 2]], [1, 2], [1, 2], ["a", "b"], ["c", "d"])


def test_numbers_can_be_written_as_json(world):
    assert without_nan({"a": [NAN, 1.0]}) == {"a": [None, 1.0]}
