"""Flags of raters: planted ones among real listeners and among simulated ones, and what each number says."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from earmark.data.published import read_published
from earmark.data.soundscapes import raters as simulated_raters
from earmark.errors import DataError
from earmark.measure.honest import (
    CERTAIN,
    STEPS,
    Honest,
    bound_of,
    evidence_of,
    kinds_of,
    spreads,
    steps_of,
    with_shares,
)
from earmark.measure.raters import FEWEST_TIMES, Raters, failed, raters
from earmark.relevance import ANCHOR, Rating


def study(
    seed: int, planted: tuple[str, ...] = (), *, honest: int = 30, each: int = 80, k: int = 4, zeros: float = 0.5
) -> list[Rating]:
    """Honest raters `h0`, … who differ in leniency, scale, noise and lapses, and planted ones named by their kind."""
    rng = np.random.default_rng(seed)
    people = [f"h{number}" for number in range(honest)] + [f"{kind}{number}" for number, kind in enumerate(planted)]
    pairs = len(people) * each // k
    truth = np.where(rng.random(pairs) < zeros, 0, rng.beta(1.2, 0.9, pairs) * 100)
    order = np.concatenate([rng.permutation(pairs) for _ in range(k + 1)])
    found = []
    for number, name in enumerate(people):
        own = np.unique(order[number * each : (number + 1) * each])
        values = honest_answers(truth[own], rng)
        if name.startswith("uniform"):
            values = rng.integers(0, 101, len(own)).astype(float)
        elif name.startswith("constant"):
            values = np.full(len(own), float(rng.integers(0, 101)))
        elif name.startswith("nearly"):
            values = 50 + rng.integers(-3, 4, len(own)).astype(float)
        elif name.startswith("reversed"):
            values = 100 - values
        found += [Rating(f"t{u}", f"c{u}", float(v), rater_id=name) for u, v in zip(own, values, strict=True)]
    return found


def honest_answers(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    lapse = rng.uniform(0.05, 0.2) if rng.random() < 0.3 else 0.02
    noisy = rng.normal(0, 8) + rng.uniform(0.7, 1.3) * truth + rng.uniform(5, 20) * rng.standard_normal(len(truth))
    values = np.where(truth == 0, np.where(rng.random(len(truth)) < 0.85, 0, np.abs(noisy) / 2), noisy)
    return np.where(rng.random(len(truth)) < lapse, rng.uniform(0, 100, len(truth)), values).clip(0, 100).round()


KINDS = {"uniform": "random", "constant": "constant", "nearly": "constant", "reversed": "reversed"}


def flags(found: Raters) -> dict[str, list[str]]:
    return {row.rater_id: [flag.name for flag in row.flags] for row in found.flagged}


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("k", [3, 5])
def test_planted_raters_are_flagged_by_name_and_honest_ones_are_not(zeros, k):
    right = wrong = 0
    for seed in range(4):
        found = flags(raters(study(seed, ("uniform", "uniform", "constant", "reversed", "nearly"), zeros=zeros, k=k)))
        right += sum(names == [KINDS[rater[:-1]]] for rater, names in found.items() if rater[0] != "h")
        wrong += sum(name.startswith("h") for name in found)
    assert right >= 19
    assert wrong <= 1


def test_a_study_without_planted_raters_flags_hardly_anybody():
    found = [raters(study(seed)) for seed in range(5)]
    assert sum(len(each.flagged) for each in found) <= 2  # of 150
    assert all(each.random < 0.1 for each in found)


def test_a_fifth_of_planted_raters_does_not_turn_the_study_over():
    found = flags(raters(study(0, ("reversed",) * 4 + ("uniform",) * 4, each=100)))
    assert sorted(found) == sorted([f"reversed{n}" for n in range(4)] + [f"uniform{n}" for n in range(4, 8)])


def test_few_ratings_are_not_enough_to_tell_and_that_is_said():
    ratings = study(1, each=40)
    few = [replace(rating, rater_id="few") for rating in ratings if rating.rater_id == "h0"][:4]
    row = next(row for row in raters([*ratings, *few]).rows if row.rater_id == "few")
    assert (row.flags, row.unsure) == ((), "4 pairs that others rated too; expected 10 at least")
    small = raters(study(1, each=12, zeros=0, k=3))
    assert 0 < len(small.unsure) < 15
    said = r"[0-9]+ pairs .+ (too few to tell \(z -?[0-9.]+\)|at least)"
    assert all(re.fullmatch(said, row.unsure) for row in small.unsure)


def test_who_shares_no_pair_with_others_is_told_apart_from_the_honest():
    alone = [Rating(f"own {n}", f"own {n}", 10.0 * n, rater_id="alone") for n in range(10)]
    row = next(row for row in raters([*study(2), *alone]).rows if row.rater_id == "alone")
    assert (row.shared, row.flags) == (0, ())
    assert row.unsure == "0 pairs that others rated too; expected 10 at least"


def test_of_two_raters_who_is_wrong_is_not_told():
    ratings = [r for r in study(3, honest=2, k=2) if r.rater_id in ("h0", "h1")]
    found = raters(ratings)
    assert not found.flagged
    assert all("who of them is wrong cannot be told" in row.unsure for row in found.rows)


def test_zeros_that_everybody_gives_are_not_constant_answers():
    """A rater whose every pair is a random one rightly says 0 to all."""
    ratings = study(4)
    zero = [r for r in ratings if r.rater_id != "h0"]
    means: dict[str, list[float]] = {}
    for rating in zero:
        means.setdefault(rating.clip_id, []).append(rating.rating)
    empty = [clip for clip, values in means.items() if len(values) > 1 and max(values) == 0][:15]
    honest = [Rating(f"t{clip[1:]}", clip, 0.0, rater_id="zeros") for clip in empty]
    assert "zeros" not in flags(raters([*ratings, *honest]))
    other = [clip for clip, values in means.items() if len(values) > 1 and np.mean(values) > 20][:15]
    wrong = [Rating(f"t{clip[1:]}", clip, 0.0, rater_id="zeros") for clip in other]
    assert flags(raters([*ratings, *wrong]))["zeros"] == ["constant"]


def test_few_equal_answers_are_not_constant():
    ratings = study(4)
    clips = [r for r in ratings if r.rater_id != "h0"][:10]
    for number, told in ((2, {}), (9, {}), (10, {"beginner": ["constant"]})):
        begun = [replace(r, rating=50.0, rater_id="beginner") for r in clips[:number]]
        assert flags(raters([*ratings, *begun])) == told


def test_numbers_of_a_rater():
    ratings = [Rating(f"c{u}", f"c{u}", v, rater_id="a") for u, v in enumerate([0.0, 0.0, 50.0, 100.0])]
    ratings += [Rating(f"c{u}", f"c{u}", v, rater_id="b") for u, v in enumerate([10.0, 0.0, 50.0, 90.0])]
    ratings += [Rating("c9", "c9", 10.0, rater_id="a"), Rating("c0", "c0", 30.0)]
    row = raters(ratings).rows[0]
    assert (row.rater_id, row.ratings, row.shared, row.same) == ("a", 5, 4, 0.4)
    assert row.mean == pytest.approx(32)
    assert row.sd == pytest.approx(np.std([0, 0, 50, 100, 10], ddof=1))
    assert row.r == pytest.approx(np.corrcoef([0, 0, 50, 100], [10, 0, 50, 90])[0, 1])


def test_who_rates_a_pair_twice_counts_once_with_the_mean():
    ratings = [Rating(f"c{u}", f"c{u}", 20.0 * u, rater_id=r) for u in range(5) for r in "abc"]
    row = raters([*ratings, Rating("c0", "c0", 10.0, rater_id="a")]).rows[0]
    assert (row.ratings, row.mean) == (5, pytest.approx(41))


@pytest.mark.parametrize(
    ("right", "asked", "share", "is_so"),
    [
        (7, 25, 0.28, False),
        (6, 25, 0.28, True),
        (11, 20, 0.55, False),
        (0, 0, 1.0, False),
        (0, 4, 0.0, False),
        (0, 1, 0.5, True),
    ],
)
def test_checks_are_failed_below_the_share(right, asked, share, is_so):
    assert failed(right, asked, share) is is_so  # .28 × 25 is above 7 in floating point


@pytest.mark.case("L08")
def test_failed_checks_are_a_flag_with_the_numbers():
    found = raters(study(5), checks={"h0": (2, 8), "h1": (6, 8), "h2": (0, 0)}, checks_share=0.75)
    rows = {row.rater_id: row for row in found.rows}
    assert [(f.name, f.why) for f in rows["h0"].flags] == [
        ("failed checks", "2 of 8 known answers right; expected 75%.")
    ]
    assert rows["h1"].flags == rows["h2"].flags == ()
    assert (rows["h1"].checks, rows["h3"].checks) == ((6, 8), None)


def test_who_hardly_listens_is_too_fast():
    rng = np.random.default_rng(0)
    timed = [replace(r, played_s=float(rng.uniform(4, 12) * (0.1 if r.rater_id == "h0" else 1))) for r in study(6)]
    found = raters(timed)
    assert flags(found) == {"h0": ["too fast"]}
    few = [r if r.rater_id != "h0" or at % 30 == 0 else replace(r, played_s=None) for at, r in enumerate(timed)]
    assert 0 < sum(r.played_s is not None for r in few if r.rater_id == "h0") < FEWEST_TIMES
    assert flags(raters(few)) == {}
    assert 0.05 < found.rows[0].played < 0.2
    assert all(math.isnan(row.played) for row in raters(study(6)).rows)


@pytest.mark.parametrize(("seconds", "clips", "fast"), [(0.99, 5, True), (1.0, 5, False), (0.99, 4, False)])
def test_time_is_held_against_the_others_own_from_five_clips_on(seconds, clips, fast):
    timed = [Rating(f"c{u}", f"c{u}", 10.0 * u, rater_id="a", played_s=seconds) for u in range(clips)]
    timed += [Rating(f"c{u}", f"c{u}", 10.0 * u, rater_id="b", played_s=4.0) for u in range(clips)]
    found = raters(timed)
    assert found.rows[0].played == pytest.approx(seconds / 4)
    assert flags(found) == ({"a": ["too fast"]} if fast else {})


@pytest.mark.parametrize(("same", "flagged"), [(19, True), (18, False)])
def test_answers_within_five_points_are_one_and_nineteen_of_twenty_are_constant(same, flagged):
    ratings = study(8, zeros=0, k=5)
    pairs = list(dict.fromkeys((rating.caption_id, rating.clip_id) for rating in ratings))[:20]
    values = [50.0, 45.0, 55.0, *[50.0] * (same - 3), *[100.0] * (20 - same)]
    own = [Rating(*pair, value, rater_id="own") for pair, value in zip(pairs, values, strict=True)]
    assert ("constant" in flags(raters([*ratings, *own])).get("own", [])) is flagged


def test_constant_raters_are_no_part_of_the_fit_and_are_among_those_taken_for_bad_ones():
    found = raters(study(0, ("constant", "nearly", "nearly")))
    named = [row for row in found.rows if not row.rater_id.startswith("h")]
    assert [flag.name for row in named for flag in row.flags] == ["constant"] * 3
    assert all(math.isnan(row.evidence) for row in named)
    assert 3 / 33 <= found.random < 5 / 33


@pytest.mark.parametrize(("shared", "known"), [(10, True), (9, False)])
def test_ten_shared_pairs_are_enough_to_be_judged(shared, known):
    ratings = study(2, zeros=0)
    own = [replace(rating, rater_id="few") for rating in ratings if rating.rater_id == "h0"][:shared]
    row = next(row for row in raters([*ratings, *own]).rows if row.rater_id == "few")
    assert (row.shared, math.isnan(row.z)) == (shared, not known)


def test_three_shared_pairs_are_enough_for_a_correlation():
    ratings = [Rating(f"c{u}", f"c{u}", v, rater_id=r) for r in "ab" for u, v in enumerate([0.0, 30.0, 70.0])]
    assert [row.r for row in raters(ratings).rows] == [pytest.approx(1)] * 2
    assert all(math.isnan(row.r) for row in raters([each for each in ratings if each.clip_id != "c2"]).rows)


def test_of_two_raters_nothing_is_fitted():
    found = raters(study(3, ("reversed",), honest=1, k=2))
    assert (found.expected, found.flagged) == (0, [])
    assert math.isnan(found.random)
    assert all(math.isnan(row.evidence) for row in found.rows)


@pytest.mark.parametrize("seed", [3, 11])
def test_who_answers_at_random_often_and_listens_at_times_is_not_flagged(seed):
    ratings, rng = study(seed, zeros=0, each=300, k=5, honest=20), np.random.default_rng(seed)
    made = [
        replace(r, rating=float(rng.integers(0, 101))) if r.rater_id == "h0" and rng.random() < 0.7 else r
        for r in ratings
    ]
    row = raters(made).rows[0]
    assert (row.z > 3, row.evidence > 3, row.flags) == (True, True, ())


# The formulas of `honest`


def test_a_scale_of_few_answers_is_even_where_each_is_given_as_often():
    steps, even = steps_of(np.arange(0, 101, 10.0))
    assert steps.tolist() == list(range(STEPS))
    assert even == pytest.approx(np.full(STEPS, 1 / STEPS))
    _, fine = steps_of(np.arange(0, 101.0))
    assert fine[[0, -1]] == pytest.approx(0.05, abs=1e-3)  # half as wide as the others, whose middle is a ten


def test_kinds_are_four_whose_shares_are_one_and_random_is_two_of_them():
    honest = Honest(1.0, 0.3, 0.2, 0.1)
    assert np.exp(with_shares(np.zeros((4, 1)), honest)).ravel() == pytest.approx([0.7, 0.1, 0.1, 0.1])
    kinds = np.log([[0.5], [0.1], [0.3], [0.02]])
    assert evidence_of(kinds) == pytest.approx(np.log((0.1 + 0.3) / 2 / 0.5))
    assert evidence_of(np.log([[0.1], [0.1], [0.1], [0.4]])) == pytest.approx(np.log(4))


def test_an_even_spread_counts_only_where_answers_are_less_related_than_is_expected():
    spread = np.array([[5.0, 5.0], [0.0, 0.0]])
    kinds = kinds_of(np.array([2.9, 3.1]), np.array([3.0, 3.0]), spread, Honest(1.0, 0.3, 0.05, 0.02))
    assert kinds[2, 0] == pytest.approx(kinds[1, 0] + 5)
    assert kinds[2, 1] == -np.inf


def test_who_is_not_trusted_does_not_tell_how_far_honest_answers_spread():
    rng = np.random.default_rng(0)
    expected = np.tile(rng.dirichlet(np.ones(STEPS)), (9, 1))
    counts = np.array([rng.multinomial(40, row) for row in expected]).astype(float)
    strange = np.zeros((1, STEPS))
    strange[0, 3] = 40
    even, known = np.full(STEPS, 1 / STEPS), np.ones(9)
    alone = spreads(counts, expected, even, known)
    beside = spreads(np.vstack([counts, strange]), np.vstack([expected, expected[:1]]), even, np.append(known, 0))
    assert beside[:, :9] == pytest.approx(alone)


@pytest.mark.parametrize(
    ("s", "evenly", "false_flags", "bound"), [(30, 0, 0.03, CERTAIN), (30, 50, 0.03, CERTAIN), (1, 0, 1, 0)]
)
def test_the_bound_lies_between_nothing_and_certain_where_honest_raters_do_not_pass_it(s, evenly, false_flags, bound):
    spread = np.array([np.full(40, float(evenly)), np.zeros(40)])
    found, passing = bound_of(np.full(40, float(s)), spread, np.ones(40), Honest(1.0, 0.3, 0.05, 0.02), false_flags)
    assert found == bound
    assert passing < 0.2 or s == 1  # z above RELATED passes nothing, however evenly the answers are spread


def test_ratings_without_a_rater_and_none_at_all():
    assert raters([Rating("a", "a", 10.0)]).rows == ()
    assert raters([]).flagged == []


@pytest.mark.parametrize("value", [0.0, 50.0])
def test_where_all_answers_are_equal_nobody_is_wrong(value):
    found = raters([Rating(f"c{u}", f"c{u}", value, rater_id=r) for u in range(30) for r in "abcd"])
    assert not found.flagged
    assert math.isnan(found.random)


def test_a_rating_that_is_not_finite_is_refused():
    with pytest.raises(DataError, match="expected a finite number"):
        raters([Rating("a", "a", math.nan, rater_id="a")])


def test_the_same_ratings_give_the_same_flags_in_any_order_of_raters():
    ratings = study(7, ("uniform", "reversed"))
    turned = [ratings[at] for at in np.random.default_rng(1).permutation(len(ratings))]
    assert flags(raters(ratings)) == flags(raters(turned))
    assert raters(ratings) == raters(ratings)


# A rehearsed study: 12 simulated raters


def rehearsed(seed: int, kind: str, each: int) -> list[Rating]:
    """Pairs rated by 3 of the 12 raters of `soundscapes`; the first of them is reversed, random or constant.

    What fits how well is as in a study's pool: of 17 clips one own, some that share something, most that share nothing.
    """
    people, rng = simulated_raters(seed), np.random.default_rng([seed, 1])
    pairs = len(people) * each // 3
    truth = np.where(rng.random(pairs) < 0.55, 0, np.where(rng.random(pairs) < 0.15, 1, rng.uniform(0, 1, pairs)))
    order, found = [rng.permutation(pairs) for _ in range(4)], []
    dealt = np.concatenate(order)
    for number, person in enumerate(people):
        own = list(dict.fromkeys(dealt[number * each :]))[:each]
        for unit in own:
            value = float(person.rate(rng, float(truth[unit]), 5.0)[0])
            if number == 0:
                value = {"reversed": 100 - value, "random": float(rng.integers(0, 101)), "constant": 50.0}[kind]
            found.append(Rating(f"t{unit}", f"c{unit}", value, rater_id=person.rater_id))
    return found


@pytest.mark.parametrize(("each", "least"), [(49, 12), (18, 12)])
@pytest.mark.parametrize("kind", ["reversed", "random", "constant"])
def test_one_bad_rater_of_a_rehearsed_study_of_twelve_is_named(kind, each, least):
    named = wrong = 0
    for seed in range(12):
        found = flags(raters(rehearsed(seed, kind, each)))
        named += found.pop("rater01", None) == [kind]
        wrong += len(found)
    assert named >= least
    assert wrong <= 3  # of 132


# RELATE


@pytest.fixture(scope="module")
def relate(real_data: Path) -> list[Rating]:
    """RELATE's single ratings, anchors too."""
    path = real_data / "texts" / "relate" / "REL.csv"
    table = read_published(path)
    items = [item for row in table.rows for item in table.layout.items(row.cells, path.stem)]
    return [Rating(i.text, i.clip_id, 10 * float(i.score or 0), i.group, i.rater_id) for i in items]


def plant(ratings: list[Rating], kind: str, share: float, seed: int) -> tuple[list[Rating], set[str]]:
    """The ratings of that share of the listeners replaced by planted ones, and who these are."""
    rng = np.random.default_rng(seed)
    names = list(dict.fromkeys(rating.rater_id for rating in ratings))
    bad = {names[at] for at in rng.permutation(len(names))[: round(share * len(names))]}
    same = {name: float(rng.integers(11)) * 10 for name in names}
    made = []
    for rating in ratings:
        value = {"uniform": float(rng.integers(11)) * 10, "constant": same[rating.rater_id]}
        value |= {"reversed": 100 - rating.rating}
        made.append(replace(rating, rating=value[kind]) if rating.rater_id in bad else rating)
    return made, bad


def test_few_of_relates_listeners_are_flagged(relate):
    found = raters(relate)
    assert len(found.rows) == 1370
    assert 0.01 < len(found.flagged) / 1370 < 0.035
    assert found.expected < 0.035 * 1370


@pytest.mark.parametrize(("kind", "share", "least"), [("uniform", 0.05, 0.88), ("uniform", 0.2, 0.85)])
def test_raters_planted_in_relate_at_random_are_flagged(relate, kind, share, least):
    """21 ratings each; about 2 % of the listeners share no pair with anybody."""
    made, bad = plant(relate, kind, share, 0)
    flagged = set(flags(raters(made)))
    assert len(flagged & bad) / len(bad) > least
    assert len(flagged - bad) / (1370 - len(bad)) < 0.04


@pytest.mark.parametrize(("kind", "least"), [("constant", 0.99), ("reversed", 0.95)])
def test_raters_planted_in_relate_who_are_constant_or_reversed_are_flagged(relate, kind, least):
    made, bad = plant(relate, kind, 0.05, 1)
    flagged = flags(raters(made))
    assert len(set(flagged) & bad) / len(bad) >= least
    assert len(set(flagged) - bad) / (1370 - len(bad)) < 0.04


def test_without_anchors_relates_eighteen_ratings_are_often_too_few_and_that_is_said(relate):
    made, bad = plant([rating for rating in relate if rating.group != ANCHOR], "uniform", 0.05, 2)
    found = raters(made)
    told = {row.rater_id for row in (*found.flagged, *found.unsure)}
    assert len(bad & set(flags(found))) / len(bad) > 0.75
    assert len(bad & told) / len(bad) > 0.95
