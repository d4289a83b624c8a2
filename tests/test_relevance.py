from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.analyse.pairs import Pair as AnalysedPair
from earmark.data.collection import Caption, Clip
from earmark.errors import ConfigError, DataError
from earmark.relevance import Pair, Rating, Relevance

IDS = st.text(min_size=1, max_size=6)
TABLES = st.dictionaries(st.tuples(IDS, IDS), st.floats(0, 1), max_size=20).map(
    lambda values: Relevance((Pair(c, a, v) for (c, a), v in values.items()), unjudged=None)
)


def test_pairs_are_a_closed_world_and_ratings_are_not():
    captions = Relevance.from_pairs([("c1", "a"), ("c2", "b"), ("c1", "a")])
    values, judged = captions.block(["c1", "c2"], ["a", "b", "unknown"])
    assert values.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert judged.all()
    ratings = Relevance.from_ratings([Rating("c1", "a", 80), Rating("c1", "b", 0)])
    values, judged = ratings.block(["c1", "c2"], ["a", "b", "unknown"])
    assert values.tolist() == [[np.float32(0.8), 0, 0], [0, 0, 0]]
    assert judged.tolist() == [[True, True, False], [False, False, False]]
    assert values.dtype == np.float32
    assert judged.dtype == np.bool_


@given(TABLES, st.lists(IDS, max_size=5), st.lists(IDS, max_size=5))
def test_a_block_says_what_the_pairs_say(table, captions, clips):
    captions, clips = captions + table.caption_ids[:3], clips + table.clip_ids[:3]
    values, judged = table.block(captions, clips)
    for i, caption in enumerate(captions):
        for j, clip in enumerate(clips):
            pair = table.get(caption, clip)
            assert judged[i, j] == (pair is not None)
            assert values[i, j] == (np.float32(pair.value) if pair else 0)


@given(TABLES)
def test_transpose_twice_is_the_same(table):
    assert table.transpose().transpose() == table
    values, judged = table.block(table.caption_ids, table.clip_ids)
    turned, turned_judged = table.transpose().block(table.clip_ids, table.caption_ids)
    np.testing.assert_array_equal(values.T, turned)
    np.testing.assert_array_equal(judged.T, turned_judged)


def test_several_raters_give_mean_n_and_sd():
    rows = [Rating("c", "a", value, rater_id=str(value)) for value in (20, 50, 80)]
    pair = Relevance.from_ratings(rows).get("c", "a")
    assert (pair.value, pair.n) == (0.5, 3)
    assert pair.sd == pytest.approx(0.3)
    single = Relevance.from_ratings(rows[:1]).get("c", "a")
    assert (single.value, single.n) == (0.2, 1)
    assert math.isnan(single.sd)


def test_weight_is_one_over_the_chance_of_being_asked():
    rows = [Rating("c", "a", 10, probability=0.25), Rating("c", "b", 10)]
    table = Relevance.from_ratings(rows)
    assert table.get("c", "a").weight == 4
    assert table.get("c", "b").weight == 1


def test_standardised_ratings_take_leniency_and_spread_out():
    truth = {"a": 20, "b": 50, "c": 80}
    strict = [Rating("x", clip, value / 2, rater_id="strict") for clip, value in truth.items()]
    lenient = [Rating("x", clip, 40 + value / 2, rater_id="lenient") for clip, value in truth.items()]
    strict_only = Relevance.from_ratings([*strict, *lenient[:1]], aggregate="standardised")
    assert strict_only.get("x", "a").n == 2
    both = Relevance.from_ratings([*strict, *lenient], aggregate="standardised")
    apart = [Relevance.from_ratings(each, "mean") for each in (strict, lenient)]
    assert apart[0].get("x", "a").value != apart[1].get("x", "a").value
    assert both.get("x", "a").sd == pytest.approx(0)  # once standardised, the two agree
    assert both.get("x", "a").value < both.get("x", "b").value < both.get("x", "c").value


def test_threshold_restrict_overlay():
    captions = Relevance.from_pairs([("c1", "a"), ("c2", "b")])
    ratings = Relevance.from_ratings([Rating("c1", "b", 60), Rating("c1", "a", 90)])
    overlaid = captions.overlaid_by(ratings)
    values, judged = overlaid.block(["c1", "c2"], ["a", "b"])
    np.testing.assert_allclose(values, [[0.9, 0.6], [0, 1]])
    assert judged.all()
    assert overlaid.threshold(0.7).block(["c1"], ["a", "b"])[0].tolist() == [[1, 0]]
    assert ratings.threshold(0.7).block(["c1"], ["a", "b"])[1].all()  # judged pairs stay judged
    assert overlaid.restrict(captions=["c2"]).caption_ids == ["c2"]
    assert overlaid.restrict(clips=["b"]).clip_ids == ["b"]


@given(TABLES)
def test_csv_round_trip_is_exact(table):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "relevance.csv"
        printable = Relevance(
            (p for p in table.pairs() if (p.caption_id + p.clip_id).isprintable() and p.clip_id.strip()),
            unjudged=None,
        )
        if not len(printable):
            return
        printable.write_csv(path)
        assert Relevance.read_csv(path) == printable


def test_qrels_round_trip_with_names_that_hold_blanks(tmp_path):
    table = Relevance.from_ratings([Rating("split/a clip  100%.wav#1", "d\u00a0f", 30), Rating("c", "e", 0.2)])
    table.write_qrels(tmp_path / "q")
    read = Relevance.read_qrels(tmp_path / "q", unjudged=None)
    assert read.get("split/a clip  100%.wav#1", "d\u00a0f").value == 0.3
    assert read.get("c", "e").value == 0.01  # above 0 stays relevant
    assert all(len(line.split()) == 4 for line in (tmp_path / "q").read_text().splitlines())


@pytest.mark.case("R08")
def test_qrels_of_unknown_items_change_nothing_but_themselves(tmp_path):
    (tmp_path / "q").write_text("c1 0 here 1\nc1 0 gone 1\n")
    table = Relevance.read_qrels(tmp_path / "q", highest=1)
    assert table.block(["c1"], ["here", "other"])[0].tolist() == [[1, 0]]


@pytest.mark.parametrize("rating", [140, -1, math.nan, math.inf])
def test_ratings_out_of_range_are_refused(rating):
    with pytest.raises(DataError, match="expected 0–100"):
        Relevance.from_ratings([Rating("c", "a", rating)])


def test_what_cannot_be_a_table_is_refused(tmp_path):
    with pytest.raises(DataError, match="twice"):
        Relevance([Pair("c", "a", 1), Pair("c", "a", 0)], unjudged=None)
    with pytest.raises(DataError, match="expected 0–1"):
        Relevance([Pair("c", "a", 1.5)], unjudged=None)
    with pytest.raises(ConfigError, match="unjudged"):
        Relevance([], unjudged=0.5)
    with pytest.raises(ConfigError, match="aggregate"):
        Relevance.from_ratings([], aggregate="median")
    (tmp_path / "q").write_text("c1 0 a 1\nc1 a 1\n")
    with pytest.raises(DataError, match="line 2"):
        Relevance.read_qrels(tmp_path / "q")
    (tmp_path / "r.csv").write_text("caption_id,clip_id,rating\nc,a,fifty\n")
    with pytest.raises(DataError, match="line 2"):
        Relevance.read_csv(tmp_path / "r.csv")


def test_an_empty_table_answers():
    values, judged = Relevance.from_ratings([]).block(["c"], ["a", "b"])
    assert values.tolist() == [[0, 0]]
    assert not judged.any()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_means_that_are_equal_on_paper_are_equal_in_any_order(tenths, random):
    ratings = [tenth / 10 for tenth in tenths]
    shuffled = random.sample(ratings, len(ratings))
    one, other = (Relevance.from_ratings(Rating("c", "a", each) for each in some) for some in (ratings, shuffled))
    assert repr(one.get("c", "a")) == repr(other.get("c", "a"))
    mean = Fraction(sum(tenths), 10 * len(tenths))
    assert one.get("c", "a").value == pytest.approx(float(mean) / 100, abs=1e-11)
    if mean.denominator <= 10:  # as one rating of the mean
        assert one.get("c", "a").value == Relevance.from_ratings([Rating("c", "b", float(mean))]).get("c", "b").value


def test_a_pair_of_the_analysis_has_the_mean_that_its_relevance_has():
    rng = np.random.default_rng(0)
    several = [[Rating("c", "a", float(x)) for x in rng.integers(0, 1001, n) / 10] for n in rng.integers(1, 12, 300)]
    for ratings in [[Rating("c", "a", 10), Rating("c", "a", 20)], *several]:
        rated = AnalysedPair(Caption("c", "a", "x"), Clip("a", "", ""), "", ratings)
        assert Relevance.from_ratings(ratings).get("c", "a").value == rated.rating / 100
    assert rated.rating == pytest.approx(np.mean([rating.rating for rating in ratings]))
    assert Relevance.from_ratings(ratings).get("c", "a").sd == pytest.approx(
        np.std([rating.rating / 100 for rating in ratings], ddof=1)
    )


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        *((f"{rating},1,1,1", f"rating {rating!r}; expected a number, 0–100") for rating in (
            "sNaN", "NaN", "1_0", "101", "-1", "inf", "1e400", "", "1e-99999999999999999999", "５")),
        *((f"5,{n},1,1", f"n {n!r}; expected a whole number, 1 or more") for n in (
            "inf", "nan", "-1", "0", "1.5", "1e400", "1_0", "x", "9" * 5000)),
        *((f"5,1,{sd},1", f"sd {sd!r}; expected a number, 0–100") for sd in ("sNaN", "-1", "101", "inf")),
        *((f"5,1,1,{w}", f"weight {w!r}; expected a number, 0 or more") for w in ("sNaN", "-1", "inf", "1e400")),
    ],
)  # fmt: skip
def test_a_number_that_is_none_is_told_with_its_line(tmp_path, cells, told):
    (tmp_path / "r.csv").write_text(f"caption_id,clip_id,rating,n,sd,weight\nc,b,5,1,,\nc,a,{cells}\n")
    with pytest.raises(DataError, match=rf"r\.csv line 3: {re.escape(told)}"):
        Relevance.read_csv(tmp_path / "r.csv")


def test_numbers_are_read_as_python_writes_them(tmp_path):
    (tmp_path / "r.csv").write_text("caption_id,clip_id,rating,n,sd,weight\nc,a,1E-7,,,\nc,b, 5.0,2,1e1,2.5e+3\n")
    table = Relevance.read_csv(tmp_path / "r.csv")
    assert repr(table.get("c", "a")) == repr(Pair("c", "a", 1e-9))
    assert table.get("c", "b") == Pair("c", "b", 0.05, 2, 0.1, 2500.0)


@pytest.mark.parametrize("grade", ["sNaN", "nan", "inf", "1_0", "-1", "3.1", "x"])
def test_a_grade_that_is_none_is_told_with_its_line(tmp_path, grade):
    (tmp_path / "q").write_text(f"a 0 b 3\na 0 c {grade}\n")
    with pytest.raises(DataError, match=rf"q line 2: grade '{re.escape(grade)}'; expected a number, 0–3"):
        Relevance.read_qrels(tmp_path / "q", highest=3)


@pytest.mark.parametrize("highest", [0, -1, math.nan, math.inf])
def test_a_highest_grade_that_is_none_is_refused(tmp_path, highest):
    (tmp_path / "q").write_text("a 0 b 0\n")
    with pytest.raises(DataError, match="expected the grade that stands for 1"):
        Relevance.read_qrels(tmp_path / "q", highest=highest)
