"""What is asked: which captions, with which clips, with what chance, on which pages, and the checks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner
from worlds import SOUNDS, tone_world, vector_world

from earmark.collect import frame as frames
from earmark.collect.plan import Plan
from earmark.collect.pool import make_study, summary
from earmark.collect.strata import Others, lists_of, others_of, strata
from earmark.collect.study import Settings, Study
from earmark.commands.pool import pool
from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import ConfigError, DataError, EarmarkError
from earmark.learn.estimates import Scored
from earmark.relevance import Rating

WORDS = ["dog", "rain", "car", "bird", "door", "crowd", "bell", "wind", "train", "cat", "hammer", "fire", "river"]
NO_CHECKS = Settings(check_every=0, qualify=0)


def world(root: Path, clips: int = 24, captions: int = 1, **more: str) -> Collection:
    """Clips of 50 ms, each with its captions; every text is one's own."""
    root.mkdir()
    made, texts = [], []
    for at in range(clips):
        soundfile.write(root / f"{at}.wav", np.full(400, 0.01 * (at + 1)), 8000)
        made.append(Clip(f"c{at}", f"{at}.wav", "all"))
        words = [f"a {WORDS[at % len(WORDS)]} and a {WORDS[(at + k) % len(WORDS)]} {at}" for k in range(captions)]
        texts += [Caption(f"c{at}#{k}", f"c{at}", text) for k, text in enumerate(words)]
    found = Collection(root, made, texts, name="small", kind="generated", **more)
    found.write()
    return Collection.read(root)


def score(caption: str, clip: str) -> float:
    """A score that is the same wherever it is asked: clips of low numbers score high, as in hubs."""
    a, b = (int(name.partition("#")[0][1:]) for name in (caption, clip))
    return ((a * 7 + b * 3) % 11) / 11 + 2 / (1 + b)


def scores(without: Sequence[str] = ()) -> Scored:
    return Scored(
        lambda captions, clips: np.array([[score(one, other) for other in clips] for one in captions], np.float32),
        frozenset(without),
        [],
    )


def pairs(study: Study, *kinds: str) -> list[tuple[str, str]]:
    return [(page.caption_id, item.clip_id) for page in study.of_kind(*kinds or ("task",)) for item in page.items]


def asked(study: Study) -> dict[str, dict[str, list[str]]]:
    """Caption → stratum → clips, of the task pages."""
    found: dict[str, dict[str, list[str]]] = {}
    for page in study.of_kind("task"):
        for item in page.items:
            found.setdefault(page.caption_id, {}).setdefault(item.stratum, []).append(item.clip_id)
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Collection:
    return world(tmp_path_factory.mktemp("pool") / "small")


# Which clips


def test_the_published_set_is_the_default(tmp_path, small, sentence_encoder):
    study = make_study(small, tmp_path / "study", Plan(encoder=sentence_encoder.name, captions=4))
    assert Study.read(study.folder) == study
    assert len(asked(study)) == 4
    texts = {caption.caption_id: caption.text for caption in small.captions}
    vectors = dict(zip(texts, sentence_encoder.encode(list(texts.values())), strict=True))
    for caption_id, of in asked(study).items():
        own = caption_id.partition("#")[0]
        assert {name: len(clips) for name, clips in of.items()} == {"own": 1, "similar": 15, "random": 1}
        assert of["own"] == [own]
        alike = {each: float(vectors[caption_id] @ vectors[each]) for each in texts if each != caption_id}
        best = sorted(alike, key=alike.__getitem__, reverse=True)[:15]
        assert {each.partition("#")[0] for each in best} == set(of["similar"])
        sizes = [len(page.items) for page in study.of_kind("task") if page.caption_id == caption_id]
        assert sorted(sizes) == [4, 4, 4, 5]
    items = [item for page in study.of_kind("task") for item in page.items]
    assert {(item.stratum, item.group) for item in items} == {("own", "TP"), ("similar", "C15"), ("random", "TN")}
    assert {item.probability for item in items if item.stratum != "random"} == {1.0}
    others = len(small.clips) - 1 - 15
    assert all(abs(item.probability - 1 / others) < 0.1 for item in items if item.stratum == "random")
    assert study.chosen["ranked_by"] == f"captions, {sentence_encoder.name}"


def test_a_clip_ranks_by_the_best_of_its_captions(tmp_path):
    found = frames.frame(world(tmp_path / "w", clips=5, captions=3), None)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((15, 6)).astype(np.float32)
    given = frames.likeness(found, lambda texts: vectors)(["c2#1"], ["c0", "c3", "c4"])
    expected = [max(vectors[7] @ vectors[3 * at + k] for k in range(3)) for at in (0, 3, 4)]
    assert given[0] == pytest.approx(expected, abs=1e-5)


def test_strata_of_a_runs_scores(tmp_path, small):
    plan = Plan(similar=3, middle=4, random=5, study=NO_CHECKS)
    study = make_study(small, tmp_path / "study", plan, scores=scores())
    for caption_id, of in asked(study).items():
        own = caption_id.partition("#")[0]
        ranked = sorted(
            (clip.clip_id for clip in small.clips if clip.clip_id != own), key=lambda clip: -score(caption_id, clip)
        )
        assert set(of["top"]) == set(ranked[:3])
        rest = ranked[3:]
        assert set(of["middle"]) == set(rest[8:12])  # 20 are left
        assert len(of["random"]) == 5
        assert not set(of["random"]) & {own, *ranked[:3], *rest[8:12]}
    chances = {item.probability for page in study.of_kind("task") for item in page.items if item.stratum == "random"}
    assert len(chances) > 1
    assert all(5 / 16 / 4 < chance < 4 * 5 / 16 for chance in chances)


def test_of_equal_scores_chance_decides(tmp_path, small):
    flat = Scored(lambda captions, clips: np.zeros((len(captions), len(clips)), np.float32), frozenset(), [])
    study = make_study(small, tmp_path / "study", Plan(similar=3, random=0, study=NO_CHECKS), scores=flat)
    chosen = Counter(clip for of in asked(study).values() for clip in of["top"])
    assert max(chosen.values()) < 12  # 24 were the files' order what decides


def test_known_matches_are_asked_as_nothing_and_clips_of_the_same_group_never_at_random(tmp_path):
    made = world(tmp_path / "w", clips=10)
    made.captions[1] = replace(made.captions[1], text=made.captions[0].text.upper() + ".")
    made.clips[2:4] = [replace(clip, group="one recording") for clip in made.clips[2:4]]
    made.clips.append(Clip("c4~c4#0", "4.wav", "all"))
    soundfile.write(made.root / "other.wav", np.full(400, 0.3), 8000)
    made.clips[-1] = replace(made.clips[-1], path="other.wav")
    study = make_study(made, tmp_path / "study", Plan(similar=4, random=5, study=NO_CHECKS), scores=scores_of(made))
    found = asked(study)
    assert not {"c1", "c0"} & set(found.get("c0#0", found.get("c1#0", {})).get("random", []))
    either = "c0#0" if "c0#0" in found else "c1#0"
    assert ("c0#0" in found) != ("c1#0" in found)  # a text is asked once
    other = {"c0#0": "c1", "c1#0": "c0"}[either]
    assert other not in {clip for clips in found[either].values() for clip in clips}
    assert "c3" not in found["c2#0"]["random"]
    assert "c3" in found["c2#0"]["top"]
    assert "c4~c4#0" not in {clip for clips in found["c4#0"].values() for clip in clips}
    assert any("c4~c4#0" in clips for of in found.values() for clips in of.values())


def scores_of(collection: Collection) -> Scored:
    """Clip 3 is the best for all, others by their place."""
    place = {clip.clip_id: at for at, clip in enumerate(collection.clips)}
    return Scored(
        lambda captions, clips: np.array([[clip == "c3" or -place[clip] / 100 for clip in clips]] * len(captions), "f"),
        frozenset(),
        [],
    )


def test_a_caption_is_asked_with_clips_of_its_own_split(tmp_path):
    made = world(tmp_path / "w", clips=12)
    made.clips = [replace(clip, split="ab"[at % 2]) for at, clip in enumerate(made.clips)]
    plan = Plan(similar=2, random=1, study=NO_CHECKS)
    study = make_study(made, tmp_path / "study", plan, scores=scores())
    assert len(asked(study)) == 12
    assert all((int(caption[1:-2]) - int(clip[1:])) % 2 == 0 for caption, clip in pairs(study))
    alone = make_study(made, tmp_path / "b", replace(plan, split="b"), scores=scores())
    assert {int(caption[1:-2]) % 2 for caption in asked(alone)} == {1}
    with pytest.raises(DataError, match="no clips of split 'c'"):
        make_study(made, tmp_path / "c", replace(plan, split="c"), scores=scores())


def test_pairs_that_are_rated_already_are_left_out_unless_asked_again(tmp_path):
    made = world(tmp_path / "w", clips=8)
    made.ratings = [Rating("c0#0", f"c{at}", 50) for at in range(5)] + [Rating("c1#0", "c2", 1)]
    plan = Plan(similar=3, random=3, study=NO_CHECKS)
    study = make_study(made, tmp_path / "study", plan, scores=scores())
    assert not {(rating.caption_id, rating.clip_id) for rating in made.ratings} & set(pairs(study))
    assert {clip for caption, clip in pairs(study) if caption == "c0#0"} == {"c5", "c6", "c7"}
    assert summary(study)["short_lists"] == 1
    again = make_study(made, tmp_path / "again", replace(plan, again=True), scores=scores())
    assert len(pairs(again)) == 8 * 7
    made.ratings = [Rating(f"c{a}#0", f"c{b}", 50) for a in range(8) for b in range(8)]
    with pytest.raises(DataError, match=r"all are rated or known. Add clips, or ask again \(--again\)"):
        make_study(made, tmp_path / "none", plan, scores=scores())
    with pytest.raises(DataError, match="0 not yet rated with their own"):
        make_study(made, tmp_path / "none", replace(plan, study=Settings(), checks=1), scores=scores())


@settings(max_examples=60)
@given(
    counts=st.tuples(*[st.integers(0, 6)] * 3).filter(any),
    own=st.integers(0, 1),
    among=st.sampled_from([0, 6, 20]),
    page=st.integers(1, 7),
    seed=st.integers(0, 1000),
    rated=st.sets(st.tuples(st.integers(0, 23), st.integers(0, 23)), max_size=60),
    balance=st.sampled_from([1.0, 2.0]),
)
def test_no_pair_twice_whatever_is_wanted(small, counts, own, among, page, seed, rated, balance):
    ratings = [Rating(f"c{caption}#0", f"c{clip}", 1) for caption, clip in rated]
    made = replace(small, ratings=ratings)
    similar, middle, random = counts
    plan = Plan(own=own, similar=similar, middle=middle, random=random, among=among, page=page, seed=seed,
                balance=balance, checks=2, study=Settings(qualify=1))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "write", lambda study: None)
        patch.setattr(frames, "_length", lambda path: 1.0)
        study = make_study(made, Path("/nowhere/at-all"), plan, scores=scores())
    everything = pairs(study, "task", "check", "qualification")
    assert len(set(everything)) == len(everything)
    assert not set(everything) & {(rating.caption_id, rating.clip_id) for rating in ratings}
    tasks, checks = study.of_kind("task"), study.of_kind("check", "qualification")
    assert not {page.caption_id for page in tasks} & {page.caption_id for page in checks}
    assert len({page.page_id for page in study.pages}) == len(study.pages)
    for found in tasks:
        assert 1 <= len(found.items) <= page
    for found in asked(study).values():
        sizes = [len(found.get(name, ())) for name in ("own", "top", "middle", "random")]
        assert all(size <= most for size, most in zip(sizes, (own, similar, middle, random), strict=True))
    assert all(0 < item.probability <= 1 for page in tasks for item in page.items)


# Chances and balance


def test_clips_of_equal_score_rank_alike_for_every_seed_and_not_for_every_text(small):
    found = frames.frame(small, None)
    first, again = (
        [
            each.ranked.tolist()
            for each in others_of(found, found.captions, {}, lambda _, clips: np.full((1, len(clips)), 0.5), rng)
        ]
        for rng in (np.random.default_rng(0), np.random.default_rng(1))
    )
    assert first == again
    assert len({ranked[0] for ranked in first}) > 10


@pytest.mark.parametrize("steps", [2, 10**6])  # of scores: with two to a point most are equal
def test_pairs_are_asked_as_often_as_their_probability_says(small, steps):
    """Over 250 draws, of all pairs of 24 captions."""
    found = frames.frame(small, None)
    plan = Plan(similar=3, middle=2, random=2, among=8, run="scores")
    scorer = lambda *pair: np.floor(steps * scores().scorer(*pair)) / steps  # noqa: E731
    draws = 250
    seen: Counter[tuple[int, int, str]] = Counter()
    told: dict[tuple[int, int, str], float] = {}
    for seed in range(draws):
        others = others_of(found, found.captions, {}, scorer, np.random.default_rng(seed))
        for at, of in enumerate(lists_of(found, plan, others, np.random.default_rng([seed, 1]))):
            assert len(of) == 8
            for each in of:
                key = (at, each.place, each.stratum)
                seen[key] += 1
                assert told.setdefault(key, each.probability) == each.probability
    sure = [key for key, chance in told.items() if chance == 1]
    assert all(seen[key] == draws for key in sure)
    drawn = [key for key in told if told[key] < 1]
    assert len(drawn) > 400
    z = [(seen[key] / draws - told[key]) / np.sqrt(told[key] * (1 - told[key]) / draws) for key in drawn]
    assert max(np.abs(z)) < 4.5
    assert 0.85 < np.std(z) < 1.15
    for name, count in (("top", 3), ("middle", 2), ("random", 2)):
        assert sum(chance for key, chance in told.items() if key[2] == name) == pytest.approx(24 * count, rel=0.01)


def test_every_clip_is_asked_about_equally_often(small, tmp_path):
    uses = {}
    for balance in (1.0, 3.0):
        spread = []
        for seed in range(8):
            plan = Plan(similar=6, random=2, among=12, balance=balance, seed=seed, study=NO_CHECKS)
            study = make_study(small, tmp_path / f"{balance}{seed}", plan, scores=scores())
            spread.append(list(Counter(clip for _, clip in pairs(study)).values()))
        uses[balance] = np.std(spread)
    assert uses[3.0] < 0.7 * uses[1.0]


def test_random_clips_alone_are_asked_equally_often_but_for_one(small, tmp_path):
    plan = Plan(similar=0, random=5, study=NO_CHECKS)
    study = make_study(small, tmp_path / "study", plan)  # no ranks, so no encoder
    uses = Counter(clip for _, clip in pairs(study))
    assert set(uses.values()) <= {5, 6, 7}
    assert sum(uses.values()) == 24 * 6


def test_where_clips_are_few_room_is_left_for_the_random_ones():
    places = np.arange(6)
    found = {name: (len(of), wanted) for name, of, wanted in strata(Plan(), Others(9, places, places))}
    assert found == {"similar": (5, 5), "middle": (0, 0), "random": (1, 1)}
    nothing = strata(Plan(middle=2), Others(9, places[:0], places[:0]))
    assert [each.wanted for each in nothing] == [0, 0, 0]
    _, middle, random = strata(Plan(similar=0, middle=9, random=2), Others(9, places, places))
    assert (middle.places.tolist(), random.places.tolist()) == ([1, 2, 3, 4], [0, 5])


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(small, tmp_path):
    plan = Plan(similar=3, random=2, among=6, seed=7)
    for name, each in (("a", plan), ("b", plan), ("c", replace(plan, seed=8))):
        make_study(small, tmp_path / name, each, scores=scores())
    first, second, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("a", "b", "c")
    )
    assert first == second
    assert set(first) == {"study.toml", "pool.csv", "checks.csv", "consent.md", "instructions.md"}
    assert first["pool.csv"] != other["pool.csv"]
    assert first["checks.csv"] != other["checks.csv"]


# Which captions


def test_one_caption_a_clip_until_all_clips_are_used(tmp_path):
    made = world(tmp_path / "w", clips=6, captions=3)
    plan = Plan(similar=0, random=1, captions=6, study=NO_CHECKS)
    owners = [Counter(caption.partition("#")[0] for caption in asked(make_study(made, tmp_path / f"{count}", each)))
              for count, each in ((6, plan), (9, replace(plan, captions=9)))]  # fmt: skip
    assert set(owners[0].values()) == {1}
    assert len(owners[0]) == 6
    assert sorted(owners[1].values()) == [1, 1, 1, 2, 2, 2]


def test_more_captions_than_there_are_is_refused_and_none_named_is_all_but_those_of_checks(tmp_path, small):
    plan = Plan(similar=1, checks=3)
    assert len(asked(make_study(small, tmp_path / "all", plan, scores=scores()))) == 24 - 3 - 2
    with pytest.raises(DataError, match=r"24 different captions.*expected 20 to ask, and 5 more .*--captions"):
        make_study(small, tmp_path / "many", replace(plan, captions=20), scores=scores())
    with pytest.raises(DataError, match=r"Ask fewer checks \(--checks, --set qualify=0\)"):
        make_study(small, tmp_path / "checks", replace(plan, checks=30), scores=scores())
    assert not (tmp_path / "many").exists()


# Checks


@pytest.mark.case("L08")
def test_checks_have_known_answers_are_asked_nowhere_else_and_suffice_for_a_rater(tmp_path):
    made = world(tmp_path / "w", clips=30)
    plan = Plan(similar=2, captions=8, own_low=60, other_high=20, study=Settings(pages_a_rater=10, check_every=2))
    study = make_study(made, tmp_path / "study", plan, scores=scores())
    checks, qualification = study.of_kind("check"), study.of_kind("qualification")
    assert (len(checks), len(qualification)) == (7, 2)  # a rater sees 5
    captions = [page.caption_id for page in study.of_kind("check", "qualification")]
    assert len(set(captions)) == len(captions)
    assert not set(captions) & set(asked(study))
    for page in checks + qualification:
        own = page.caption_id.partition("#")[0]
        assert len(page.items) == 4  # as all task pages
        assert {(item.low, item.high) for item in page.items if item.clip_id == own} == {(60.0, None)}
        others = Counter((item.low, item.high) for item in page.items if item.clip_id != own)
        assert others == {(None, 20.0): 2, (None, None): 1}
        ranked = sorted((f"c{at}" for at in range(30) if f"c{at}" != own), key=lambda c: -score(page.caption_id, c))
        assert not {item.clip_id for item in page.items} & set(ranked[:14])  # none that may match after all
    assert len({page.items[0].clip_id == page.caption_id.partition("#")[0] for page in checks}) == 2
    assert Study.read(study.folder).problems == ()


@pytest.mark.case("L08")
@pytest.mark.parametrize("page", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_no_number_for_everything_passes_qualification_or_checks(tmp_path, page, share):
    made = world(tmp_path / "w", clips=60)
    settings = Settings(qualify=4, qualify_share=share, checks_share=share, pages_a_rater=10)
    plan = Plan(similar=7, random=2, captions=20, page=page, checks=8, study=settings)
    study = make_study(made, tmp_path / "study", plan, scores=scores())
    assert Study.read(study.folder).problems == ()
    for kind in ("check", "qualification"):
        known = [item for each in study.of_kind(kind) for item in each.items if (item.low, item.high) != (None, None)]
        for number in np.arange(0, 100.5, 0.5):
            right = [(item.low or 0) <= number <= (100 if item.high is None else item.high) for item in known]
            assert np.mean(right) < share, (kind, number)
        assert {item.low for item in known} == {50.0, None}
        assert {item.high for item in known} == {40.0, None}


@pytest.mark.parametrize(("low", "high"), [(50, 50), (40, 60), (0, 0), (100, 100)])
def test_bounds_that_one_number_keeps_are_refused(low, high, tmp_path, small):
    with pytest.raises(ConfigError, match=f"{low} for everything would be right. Give --own-low a higher number"):
        Plan(own_low=low, other_high=high)
    code, _, err = command(small.root, "--to", tmp_path / "s", "--own-low", low, "--other-high", high)
    assert code == 2
    assert "for everything would be right" in err


def test_no_page_is_told_from_others_by_its_size(tmp_path):
    """Check and qualification pages have the sizes of task pages, in the same shares; the same seed gives the same."""
    made = world(tmp_path / "w", clips=90)
    plan = Plan(similar=4, random=2, captions=40, page=4, checks=24, study=Settings(qualify=8))
    made.ratings = [Rating(f"c{at}#0", f"c{other}", 50) for at in range(0, 90, 2) for other in range(87)]
    study = make_study(made, tmp_path / "study", plan, scores=scores())
    sizes = {kind: Counter(len(each.items) for each in study.of_kind(kind)) for kind in ("task", "check")}
    assert len(sizes["task"]) > 1
    assert set(sizes["check"]) <= set(sizes["task"])
    for size, count in sizes["task"].items():
        share = count / sizes["task"].total()
        assert (
            abs(share - (sizes["check"] + Counter(len(p.items) for p in study.of_kind("qualification")))[size] / 32)
            < 2 / 32
        )
    again = make_study(made, tmp_path / "again", plan, scores=scores())
    assert again.pages == study.pages


def test_no_checks_where_none_are_wanted(tmp_path, small):
    study = make_study(small, tmp_path / "study", Plan(similar=2, study=NO_CHECKS), scores=scores())
    assert {page.kind for page in study.pages} == {"task"}
    assert Study.read(study.folder) == study


# What cannot be asked


def test_clips_that_cannot_be_heard_are_left_out_with_a_reason_each(tmp_path):
    made = world(tmp_path / "w", clips=10)
    (made.root / "1.wav").unlink()
    (made.root / "2.wav").write_bytes(b"RIFF not a sound")
    made.clips[3] = replace(made.clips[3], path="4.wav")
    made.clips[5] = replace(made.clips[5], path="")
    study = make_study(made, tmp_path / "study", Plan(similar=2, study=NO_CHECKS), scores=scores(["c6"]))
    told = [str(problem) for problem in study.problems]
    assert len(told) == 5
    for line, what in ((3, "no file '1.wav'"), (4, ""), (6, "the same sound as"), (7, "no sound"), (8, "cannot score")):
        assert any(f"clips.csv line {line}" in each and what in each and "out." in each for each in told)
    left = {f"c{at}" for at in (0, 3, 7, 8, 9)}
    assert {clip for _, clip in pairs(study)} == left
    assert set(asked(study)) == {f"{clip}#0" for clip in left}
    assert summary(study)["left_out"] == 5


def test_a_caption_that_no_table_of_answers_could_hold_is_left_out(tmp_path):
    made = world(tmp_path / "w", clips=4)
    made.captions[2] = replace(made.captions[2], text="a \0 bell")
    study = make_study(made, tmp_path / "study", Plan(similar=1, study=NO_CHECKS), scores=scores())
    assert [str(problem) for problem in study.problems] == [
        "captions.csv line 4: holds a NUL character. The caption is left out."
    ]
    assert "c2#0" not in asked(study)


def test_vectors_alone_are_refused_in_one_line(tmp_path):
    made = vector_world(tmp_path / "w")
    with pytest.raises(DataError, match=r"none of 60 clips has a sound .*Put the sounds there") as caught:
        make_study(made, tmp_path / "study", Plan(), scores=scores())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "study").exists()
    gone = world(tmp_path / "gone", clips=3)
    for path in gone.root.glob("*.wav"):
        path.unlink()
    with pytest.raises(DataError, match=r"none of 3 clips can be heard\. First: clips.csv line 2: no file '0.wav'"):
        make_study(gone, tmp_path / "study", Plan(), scores=scores())


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("", "First of the rows left out: clips.csv line 2: clip 'c0' has no split; expected development, say."),
        ("all-lists", r"All of 3 stand in rated lists \(\*-lists\). Name their split."),
    ],
)
def test_where_no_clip_is_left_the_reason_is_told(tmp_path, split, told):
    made = world(tmp_path / "w", clips=3)
    made.clips = [replace(clip, split=split) for clip in made.clips]
    made.write()
    with pytest.raises(DataError, match=rf"no clips to ask; expected some with sounds\. {told}"):
        make_study(Collection.read(made.root), tmp_path / "study", Plan(similar=0))


def test_a_folder_that_is_not_empty_is_refused(tmp_path, small):
    (tmp_path / "study").mkdir()
    make_study(small, tmp_path / "study", Plan(similar=1, study=NO_CHECKS), scores=scores())
    before = (tmp_path / "study" / "pool.csv").read_bytes()
    with pytest.raises(DataError, match="is there already"):
        make_study(small, tmp_path / "study", Plan(similar=1, seed=1, study=NO_CHECKS), scores=scores())
    assert (tmp_path / "study" / "pool.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"own": 2}, "own = 2; expected 0 to 1"),
        ({"page": 0}, "page = 0; expected 1 to 100"),
        ({"balance": 0.5}, "balance = 0.5; expected 1 to 100"),
        ({"balance": float("nan")}, "balance = nan"),
        ({"own": 0, "random": 0, "similar": 0}, "nothing is asked"),
        ({"among": 5}, "among = 5; expected 15 or more"),
        ({"among": 5, "similar": 0, "middle": 6}, "among = 5; expected 6 or more"),
        ({"own_low": 101}, "own-low = 101; expected 0 to 100"),
        ({"study": Settings(raters_a_page=0)}, "raters_a_page = 0"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(wrong, told):
    with pytest.raises(ConfigError, match=told):
        Plan(**wrong)


def test_text_that_looks_like_markup_or_a_formula_stays_as_it_is(tmp_path):
    made = world(tmp_path / "w", clips=4)
    texts = ["<script>alert(1)</script>", '=HYPERLINK("http://x")', "**bold**; {code}\r\nnew line", "日本語 'a', \"b\""]
    made.captions = [replace(each, text=text) for each, text in zip(made.captions, texts, strict=True)]
    study = make_study(made, tmp_path / "study", Plan(similar=1, study=NO_CHECKS), scores=scores())
    assert {page.text for page in Study.read(study.folder).pages} == set(texts)


# The command


def command(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    app = typer.Typer()
    app.command()(pool)
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    if isinstance(done.exception, EarmarkError):
        return 2, done.stdout, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_the_command_says_what_was_made_and_what_comes_next(tmp_path, small):
    study = tmp_path / "study"
    code, out, err = command(small.root, "--to", study, "--similar", 0, "--random", 4, "--captions", 10, "--checks", 4,
                             "--set", "raters_a_page=2", "--set", "title=Ours")  # fmt: skip
    assert code == 0, err
    assert "10 captions of small (GENERATED), 50 pairs (" in out
    assert "own 10" in out
    assert "random 40" in out
    assert "4 check pages, 2 qualification pages" in out
    assert "20 pages are to be rated: 2 raters or more" in out
    assert out.strip().splitlines()[-1].endswith(f"earmark collect serve {study}")
    assert Study.read(study).settings.title == "Ours"
    minutes = (50 + 2 * 5 + 2 * 5) * (0.05 + 5) / 60
    assert f"about {minutes:.0f} minutes" in out


def test_the_command_gives_the_same_as_json(tmp_path, small):
    code, out, _ = command(small.root, "--to", tmp_path / "s", "--similar", 0, "--captions", 10, "--json", "-")
    made = json.loads(out)
    assert code == 0
    assert made["strata"] == {"own": 10, "random": 10}
    assert (made["pages"], made["rater_pages"], made["raters"]) == (10, 30, 3)
    assert made["next"] == f"earmark collect serve {tmp_path / 's'}"
    assert made["kind"] == "generated"


def test_the_command_ends_with_1_where_clips_were_left_out(tmp_path):
    made = world(tmp_path / "w", clips=20)
    (made.root / "3.wav").unlink()
    code, _, err = command(made.root, "--to", tmp_path / "s", "--similar", 0)
    assert code == 1
    assert "clips.csv line 5: no file '3.wav'" in err
    assert "1 row or clip was left out" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--strata", "top=5"], "strata of which run"),
        (["--strata", "best=5", "--run", "r"], "'best=5'; expected top, middle or random"),
        (["--strata", "top=3,random=1,top=4", "--run", "r"], "top twice; expected each once"),
        (["--strata", "top=-5", "--run", "r"], "'top=-5'; expected"),
        (["--strata", "top=5", "--run", "r", "--similar", "3"], "Leave --similar and --random out"),
        (["--strata", "top=5", "--run", "r", "--random", "3"], "Leave --similar and --random out"),
        (["--strata", "top=" + "9" * 5000, "--run", "r"], "expected top, middle or random with a count"),
        (["--set", "rater_a_page=3"], "did you mean 'raters_a_page'?"),
        (["--set", "qualify=1000"], "qualify = 1000; expected 0 to 100"),
        (["--encoder", "no-such-model"], "--encoder"),
    ],
)
def test_the_command_refuses_in_one_line(tmp_path, small, arguments, told):
    code, out, err = command(small.root, "--to", tmp_path / "s", *arguments)
    assert code == 2
    assert told in err
    assert out == ""
    assert not (tmp_path / "s").exists()


def test_the_command_ranks_by_a_trained_run(tmp_path, sentence_encoder):
    from earmark.learn.measured import score as scored
    from earmark.learn.recipe import Recipe
    from earmark.learn.train import train
    from earmark.model.dual_encoder import DualEncoder

    made = tone_world(tmp_path / "tones")
    (tmp_path / "recipe.toml").write_text(SOUNDS)
    train(Recipe.read(tmp_path / "recipe.toml", ["train.max_epochs=0"]), made, tmp_path / "run")
    code, out, err = command(made.root, "--to", tmp_path / "s", "--run", tmp_path / "run",
                             "--strata", "top=2,random=1", "--checks", 0, "--set", "qualify=0")  # fmt: skip
    assert code == 0, err
    assert "top 24" in out
    study = Study.read(tmp_path / "s")
    found = scored(DualEncoder.load(tmp_path / "run"), made, None)
    for caption_id, of in asked(study).items():
        own = caption_id.partition("#")[0]
        split = {clip.clip_id: clip.split for clip in made.clips}
        clips = [clip for clip in split if clip != own and split[clip] == split[own]]
        best = np.argsort(-found.scorer([caption_id], clips)[0])[:2]
        assert {clips[at] for at in best} == set(of["top"])
    assert study.chosen["ranked_by"] == f"run {tmp_path / 'run'}"


def test_silence_is_neither_asked_nor_a_known_answer(tmp_path):
    found = world(tmp_path / "c")
    for at in (0, 5):
        soundfile.write(found.root / f"{at}.wav", np.zeros((400, 2)), 8000)
    soundfile.write(found.root / "7.wav", np.outer(np.full(400, 0.1), [1, -1]), 8000)  # the channels cancel: heard
    study = make_study(found, tmp_path / "study", Plan(captions=12, similar=0, random=3, seed=1))
    asked_clips = {item.clip_id for page in study.pages for item in page.items}
    assert asked_clips.isdisjoint({"c0", "c5"})
    assert sorted(problem.where for problem in study.problems) == ["clips.csv line 2", "clips.csv line 7"]
    assert all("silent: every sample is 0" in problem.what for problem in study.problems)
