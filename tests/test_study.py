"""A study: which pairs, which features and targets, which splits, what is said of what is missing."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from worlds import NGRAM, RECIPE, TEXTS, clothos_files, rated_world, vector_world

from earmark.analyse.calibrate import Calibration, fit, text_digest
from earmark.analyse.pairs import rated_pairs
from earmark.analyse.study import ALL, POOLED, STUDIED, Scope, Settings, Study, _each_once, study
from earmark.data.clotho import from_folder
from earmark.data.collection import Caption, Clip, Collection
from earmark.data.published import import_published
from earmark.errors import ConfigError, DataError, Problem
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.measure.agreement import agreement
from earmark.model.dual_encoder import DualEncoder, run_fingerprint
from earmark.relevance import Rating

WITHOUT = "without anchor"


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Collection:
    return rated_world(tmp_path_factory.mktemp("study") / "c")


@pytest.fixture(scope="module")
def found(small) -> Study:
    return study(small, Settings.of([NGRAM]))


def scope_of(study: Study, name: str) -> Scope:
    (found,) = [each for each in study.scopes if each.name == name]
    return found


def of(study: Study, feature: str, target: str, scope: str = POOLED):
    correlations = scope_of(study, scope).correlations
    return next(each for each in correlations if (each.feature, each.target) == (feature, target))


# Which pairs


def test_own_pairs_without_checks_by_default_split_by_split_and_pooled(found):
    assert [(scope.name, scope.pairs) for scope in found.scopes] == [
        ("development", 12),
        ("validation", 12),
        (POOLED, 24),
    ]
    assert all(pair.is_own and pair.group == "TP" and len(pair.ratings) == 3 for pair in found.pairs)
    assert "in the study: 24 of 48 rated pairs (captions with their own clips)" in found.notes
    assert "left out: 24 of 120 ratings, of group anchor" in found.notes


def test_all_pairs_and_conditions_on_every_table(small):
    assert len(study(small, Settings.of([NGRAM, "pairs=all"])).pairs) == 48
    partial = study(small, Settings.of([NGRAM, 'where=["captions.partial=yes", "clips.split=validation"]']))
    assert [pair.caption.caption_id for pair in partial.pairs] == ["t12", "t16", "t20"]
    assert [scope.name for scope in partial.scopes] == ["validation"]
    of_one = study(small, Settings.of([NGRAM, 'where=["ratings.rater_id=r1"]']))
    assert {len(pair.ratings) for pair in of_one.pairs} == {1}
    assert "SD-HR" not in of_one.targets
    assert any(note.startswith("SD-HR: no pair has two ratings") for note in of_one.notes)
    assert of_one.scopes[-1].agreement[ALL].raters == 1


@pytest.fixture
def crossing(tmp_path) -> Collection:
    """Captions of two splits and of a list, rated with clips of other splits."""
    clips = [Clip("a", "", "validation"), Clip("b", "", "development"), Clip("a~t", "", "validation-lists")]
    captions = [Caption("ta", "a", "a dog"), Caption("tb", "b", "rain"), Caption("tl", "a~t", "a bird")]
    rated = [("ta", "a"), ("ta", "b"), ("tb", "b"), ("tb", "a"), ("tl", "a~t"), ("tl", "b")]
    ratings = [Rating(*pair, 10.0 * at, rater_id="r") for at, pair in enumerate(rated)]
    collection = Collection(tmp_path / "crossing", clips, captions, ratings)
    collection.write()
    return collection


def test_a_pair_is_of_the_split_of_its_captions_clip_without_lists(crossing):
    pairs = {
        (pair.caption.caption_id, pair.clip.clip_id): pair.split for pair in rated_pairs(crossing, crossing.ratings)
    }
    assert pairs == {
        ("ta", "a"): "validation",
        ("ta", "b"): "validation",
        ("tb", "b"): "development",
        ("tb", "a"): "development",
        ("tl", "a~t"): "validation",
        ("tl", "b"): "validation",
    }
    found = study(crossing, Settings.of([NGRAM, "pairs=all"]))
    assert [(scope.name, scope.pairs) for scope in found.scopes] == [("development", 2), ("validation", 4), (POOLED, 6)]


def test_a_pair_is_of_its_first_ratings_group(crossing):
    ratings = [Rating("ta", "a", 50, group) for group in ("TP", "check", "")]
    (pair,) = rated_pairs(crossing, ratings)
    assert pair.group == "TP"
    assert pair.ratings == ratings


def test_a_split_called_as_all_together_are_is_refused(tmp_path):
    named = Collection(tmp_path, [Clip("a", "", "pooled")], [Caption("t", "a", "a dog")], [Rating("t", "a", 5.0)])
    with pytest.raises(DataError, match="a split is called 'pooled'"):
        study(named, Settings.of([NGRAM]))


def test_no_pair_left_is_refused(small, tmp_path):
    for where, found in (("captions.partial=maybe", 0), ("ratings.group=TN", 24)):
        said = f"found 120 ratings, {found} rated pairs that meet {where}, none of captions with their own clips"
        with pytest.raises(DataError, match=re.escape(said)):
            study(small, Settings.of([NGRAM, f'where=["{where}"]']))
    unrated = Collection(tmp_path / "c", [Clip("a", "", "development")], [Caption("t", "a", "a dog")])
    unrated.write()
    with pytest.raises(DataError, match="found 0 ratings"):
        study(unrated, Settings.of([NGRAM]))


# What they are held against


def test_targets_are_mean_deviation_and_mean_time_played(found):
    ratings = [rating.rating for rating in found.pairs[3].ratings]
    assert found.targets["HR"][3] == pytest.approx(np.mean(ratings))
    assert found.targets["SD-HR"][3] == pytest.approx(np.std(ratings, ddof=1))
    assert found.targets["APT"][3] == pytest.approx(4 + (0 + 1 + 4) / 3)
    assert list(found.targets) == ["HR", "SD-HR", "APT"]


def test_numbers_equal_scipys_and_the_planted_cause_is_found(found):
    words, hr = found.features["words"], found.targets["HR"]
    each = of(found, "words", "HR")
    assert (each.r, each.p) == pytest.approx(tuple(pearsonr(words, hr)), abs=1e-12)
    assert (each.rho, each.rho_p) == pytest.approx(tuple(spearmanr(words, hr)), abs=1e-12)
    assert each.r > 0.9
    assert each.p_holm < 0.001
    assert of(found, "duration_s", "HR").p_holm > 0.05
    assert each.controls == ("duration_s",)


def test_a_splits_numbers_are_of_that_split_alone(found):
    for split, places in (("development", slice(0, 12)), ("validation", slice(12, 24))):
        each = of(found, "words", "HR", split)
        assert each.r == pytest.approx(pearsonr(found.features["words"][places], found.targets["HR"][places]).statistic)
        assert each.n == scope_of(found, split).captions == 12


def test_agreement_is_of_the_scopes_ratings_alone_all_without_checks_and_in_the_study(found):
    ratings = found.collection.ratings
    for scope in found.scopes:
        split = {"development": range(12), "validation": range(12, 24)}.get(scope.name, range(24))
        inside = [rating for rating in ratings if int(rating.caption_id[1:]) in split]
        kept = [rating for rating in inside if rating.group != "anchor"]
        studied = [rating for rating in kept if rating.group == "TP"]
        assert list(scope.agreement) == [ALL, WITHOUT, STUDIED]
        for name, of_choice in ((ALL, inside), (WITHOUT, kept), (STUDIED, studied)):
            assert scope.agreement[name] == agreement(of_choice)
    assert [each.ratings for each in found.scopes[-1].agreement.values()] == [120, 96, 72]


def test_agreement_is_told_once_where_nothing_is_left_out(small):
    found = study(small, Settings.of([NGRAM, "pairs=all", 'where=["ratings.group=TP"]']))
    assert list(found.scopes[-1].agreement) == [ALL]


def test_histograms_are_of_means_over_raters_by_group(found):
    of_own = [
        [r.rating for r in found.collection.ratings if r.caption_id == f"t{at}" and r.group == "TP"] for at in range(24)
    ]
    assert all(len(set(ratings)) == 3 for ratings in of_own)
    assert list(found.histograms) == ["TP", "TN"]
    np.testing.assert_allclose(found.histograms["TP"], np.mean(of_own, axis=1))
    assert found.histograms["TN"].tolist() == [5] * 24


# Columns and references


def test_columns_are_features_or_targets(small):
    sets = [NGRAM, 'columns=["captions.partial", "clips.odd"]', 'targets=["clips.events"]']
    with_columns = study(small, Settings.of(sets))
    assert with_columns.features["captions.partial"].tolist()[:5] == [1, 0, 0, 0, 1]
    assert np.isnan(with_columns.features["clips.odd"]).all()
    assert "clips.odd: 24 of 24 pairs have neither a number nor yes or no" in with_columns.notes
    assert with_columns.targets["clips.events"].tolist()[:4] == [0, 1, 2, 0]
    assert of(with_columns, "captions.partial", "clips.events").n == 24


def test_columns_of_ratings_are_means_over_a_pairs_ratings_that_have_a_number(small):
    found = study(small, Settings.of([NGRAM, 'columns=["ratings.sure", "ratings.played_s", "ratings.rating"]']))
    assert found.features["ratings.sure"].tolist() == [at + 1.5 for at in range(24)]  # rater 0 does not say
    np.testing.assert_allclose(found.features["ratings.played_s"], found.targets["APT"])
    np.testing.assert_allclose(found.features["ratings.rating"], found.targets["HR"])
    assert not [note for note in found.notes if note.startswith("ratings.")]


def test_development_is_the_reference_by_default(found):
    """Each caption's last word is its number, which no other caption has."""
    of_split = [pair.split == "development" for pair in found.pairs]
    lengths = [len(pair.caption.text.split()) for pair in found.pairs]
    expected = [length - (not inside) for length, inside in zip(lengths, of_split, strict=True)]
    assert found.features["frequent_words"].tolist() == expected


def test_another_split_or_collection_is_the_reference(small, tmp_path):
    of_split = study(small, Settings.of([NGRAM, "reference=validation"]))
    lengths = [len(pair.caption.text.split()) - (pair.split == "development") for pair in of_split.pairs]
    assert of_split.features["frequent_words"].tolist() == lengths
    captions = [Caption(f"{k}", "a", text) for k, text in enumerate(("a dog", "dog"))]
    Collection(tmp_path / "other", [Clip("a", "", "x")], captions).write()
    of_other = study(small, Settings.of([NGRAM, f"reference={tmp_path / 'other'}"]))
    texts = [pair.caption.text.split() for pair in of_other.pairs]
    assert of_other.features["frequent_words"].tolist() == [sum(w in ("a", "dog") for w in words) for words in texts]


def test_without_development_every_caption_is_the_reference(tmp_path):
    clips = [Clip("a", "", "x"), Clip("b", "", "y")]
    captions = [Caption("ta", "a", "one two"), Caption("tb", "b", "three")]
    other = Collection(tmp_path / "c", clips, captions, [Rating("ta", "a", 5), Rating("tb", "b", 7)])
    other.write()
    assert study(other, Settings.of([NGRAM])).features["frequent_words"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (['columns=["clips.evnts"]'], "column 'clips.evnts': clips.csv has none; it has clip_id, "),
        (['columns=["events"]'], "column 'events': expected clips.COLUMN or captions.COLUMN or ratings.COLUMN"),
        (['targets=["ratings.group_"]'], "column 'ratings.group_': ratings.csv has none; it has caption_id, "),
        (['where=["captions.partial"]'], "expected TABLE.COLUMN=VALUE"),
        (["pears=all"], "unknown key 'pears'; did you mean 'pairs'"),
        (["pairs=some"], 'expected "own" or "all"'),
        (["captions.words=letters"], "captions.words"),
        (["captions=3"], "expected a table of keys"),
    ],
)
def test_a_wrong_setting_is_one_line(small, sets, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        study(small, Settings.of([NGRAM, *sets] if sets != ["captions=3"] else sets))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "run", "said"),
    [
        ([], "run", "not a run"),
        (["reference=nowhere"], None, "neither a split (development, validation) nor a collection's folder"),
        (["captions.words=tokens"], None, "no caption has a cell in the column tokens"),
        (["captions.language_model=no-such-model"], None, "no-such-model"),
    ],
)
def test_what_cannot_be_is_refused_before_sounds_are_read(small, tmp_path, monkeypatch, sets, run, said):
    def read(*arguments):
        raise AssertionError("sounds were read")

    monkeypatch.setattr("earmark.analyse.study.clip_features", read)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((ConfigError, DataError), match=re.escape(said)):
        study(small, Settings.of([NGRAM, *sets]), run=run and tmp_path / run)


# The machine


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple[Collection, Path]:
    """Vectors, and a run that development trained and validation stopped."""
    root = tmp_path_factory.mktemp("machine")
    collection = vector_world(root / "c")
    (root / "recipe.toml").write_text(RECIPE)
    train(Recipe.read(root / "recipe.toml"), collection, root / "run")
    return collection, root / "run"


def test_machine_ratings_are_cosines_and_distances_theirs(world):
    collection, run = world
    of_run = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
    clips, captions, _ = DualEncoder.load(run).embed_collection(collection, collection.clips, collection.captions)
    pair = of_run.pairs[5]
    cosine = float((captions.rows([pair.caption.caption_id]) @ clips.rows([pair.clip.clip_id]).T)[0, 0])
    assert of_run.targets["MR"][5] == pytest.approx(cosine, abs=1e-5)
    hr = of_run.targets["HR"][5] / 100
    assert of_run.targets["D(H, M)"][5] == pytest.approx(abs(cosine - hr), abs=1e-5)
    assert of_run.targets["D(H, M) signed"][5] == pytest.approx(cosine - hr, abs=1e-5)
    assert "D(H, M) fitted" not in of_run.targets
    assert any(note.startswith(f"D(H, M) fitted: {run.name} has no calibration") for note in of_run.notes)


def test_the_machine_is_told_split_by_split_with_what_it_has_seen(world):
    collection, run = world
    found = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
    seen = {}
    for scope in found.scopes:
        at, machine = found.at(scope.name), scope.machine
        assert machine is not None
        expected = spearmanr(found.targets["MR"][at], found.targets["HR"][at]).statistic
        assert machine.rho == pytest.approx(expected)
        assert machine.interval.low < machine.rho < machine.interval.high
        assert machine.pairs == len(at) == scope.pairs
        seen[scope.name] = machine.captions, machine.trained, machine.stopped_training
    assert seen == {
        "development": (12, 12, False),
        "validation": (12, 0, True),
        "evaluation": (12, 0, False),
        POOLED: (36, 12, True),
    }


def test_a_calibrated_run_is_also_held_against_people_by_the_rating_it_expects(world, tmp_path):
    collection, trained = world
    run = shutil.copytree(trained, tmp_path / "fitted")
    before = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
    pairs = [at for at, pair in enumerate(before.pairs) if pair.split == "validation"]
    ids = [before.pairs[at].caption.caption_id for at in pairs]
    texts = sorted({text_digest(before.pairs[at].caption.text) for at in pairs})
    about = {"collection": "others", "kind": "proxy", "split": "validation", "texts": texts}
    made = fit(before.targets["MR"][pairs], before.targets["HR"][pairs], ids)
    replace(made, **about, fingerprint=run_fingerprint(run)).write(run)
    after = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
    expected = Calibration.read(run).rating(after.targets["MR"])[0]
    np.testing.assert_allclose(after.targets["D(H, M) fitted"], abs(expected - after.targets["HR"]) / 100)
    np.testing.assert_allclose(after.targets["D(H, M) fitted signed"], (expected - after.targets["HR"]) / 100)
    assert (
        f"D(H, M) fitted: by a map fitted on {len(pairs)} pairs of 12 captions of others (PROXY), split validation; "
        "12 of the study's 36 texts are among them, which flatters it"
    ) in after.notes


# Odd data


def test_one_pair_is_a_study_too(tmp_path):
    one = Collection(
        tmp_path / "c", [Clip("c", "", "x")], [Caption("t", "c", "a dog")], [Rating("t", "c", 70.0, rater_id="a")]
    )
    one.write()
    found = study(one, Settings.of([NGRAM]))
    assert found.targets["HR"].tolist() == [70]
    assert [scope.name for scope in found.scopes] == ["x"]


# Known causes


@pytest.fixture(scope="module")
def soundscapes(tmp_path_factory) -> Collection:
    from earmark.data.soundscapes import generate

    return generate(tmp_path_factory.mktemp("known") / "c", clips=300, seed=0)


def test_planted_causes_are_found(soundscapes):
    sets = [NGRAM, "clips.tagger=none", 'columns=["captions.partial", "clips.event_count"]']
    found = study(soundscapes, Settings.of(sets))
    holds = {(c.feature, c.target): c.r for c in found.scopes[-1].correlations if c.p_holm < 0.05}
    assert holds["captions.partial", "HR"] < -0.3  # what is left unsaid lowers the rating
    assert holds["duration_s", "APT"] > 0.5  # raters play a share of the sound


def test_absent_causes_are_not_found(soundscapes):
    """The captions that tell all are rated by nothing but the raters' own bias, scale and noise."""
    sets = [NGRAM, "clips.tagger=none", 'columns=["clips.event_count"]', 'where=["captions.partial=no"]']
    found = study(soundscapes, Settings.of(sets))
    assert found.scopes[-1].pairs > 60
    assert not [c for c in found.scopes[-1].correlations if c.target in ("HR", "SD-HR") and c.p_holm < 0.05]


def test_more_events_are_heard_as_more_classes(soundscapes):
    from earmark.model.pretrained import find

    try:
        find("yamnet")
    except DataError as error:
        pytest.skip(str(error))
    found = study(soundscapes, Settings.of([NGRAM, 'targets=["clips.event_count"]']))
    each = of(found, "e_class", "clips.event_count")
    assert each.r > 0.1
    assert each.p < 0.05


# Published ratings


@pytest.fixture(scope="module")
def few_words(tmp_path_factory) -> str:
    """A reference of one caption: what is frequent, and perplexity, are not what the published numbers are of."""
    root = tmp_path_factory.mktemp("few") / "c"
    Collection(root, [Clip("a", "", "x")], [Caption("t", "a", TEXTS[0])]).write()
    return f"reference={root}"


def test_clothos_graded_ratings_give_the_published_numbers(real_data, tmp_path, few_words):
    texts = real_data / "texts"
    files = clothos_files(texts, tmp_path / "in")
    clotho, _ = from_folder(files, tmp_path / "clotho")
    found = study(clotho, Settings.of([NGRAM, few_words]))
    assert [(scope.name, scope.pairs) for scope in found.scopes] == [
        ("development", 200),
        ("validation", 200),
        (POOLED, 400),
    ]
    assert "words: as the column tokens lists them" in found.notes
    assert of(found, "words", "HR", "development").r == pytest.approx(0.046, abs=5e-4)
    assert of(found, "words", "HR", "validation").r == pytest.approx(0.142, abs=5e-4)
    assert of(found, "words", "HR", "validation").p < 0.05
    assert of(found, "words", "HR").r == pytest.approx(0.079, abs=5e-4)
    for feature in ("words", "nouns", "adjectives"):
        assert of(found, feature, "HR").p > 0.1


def test_relates_single_ratings_give_the_published_numbers(real_data, tmp_path, few_words):
    relate = import_published([real_data / "texts" / "relate" / "REL.csv"], tmp_path / "relate")
    found = study(relate, Settings.of([NGRAM, few_words]))
    pooled = found.scopes[-1]
    assert pooled.pairs == 5928
    assert pooled.agreement[ALL].ratings == 28770
    assert pooled.agreement[ALL].alpha == pytest.approx(0.5686, abs=5e-5)
    assert pooled.agreement[WITHOUT].alpha == pytest.approx(0.3942, abs=5e-5)
    assert pooled.agreement[WITHOUT].split_half.ceiling == pytest.approx(0.70, abs=0.01)
    assert of(found, "words", "HR").r == pytest.approx(-0.191, abs=5e-4)


def test_p_is_the_bootstraps_in_every_table_where_pairs_share_captions_and_clips(small):
    crossed = study(small, Settings.of([NGRAM, "pairs=all"]))
    for scope in crossed.scopes:
        at = crossed.at(scope.name)
        each = of(crossed, "words", "HR", scope.name)
        assert not scope.stand_alone
        assert each.p != pytest.approx(pearsonr(crossed.features["words"][at], crossed.targets["HR"][at]).pvalue)
        assert np.isnan(each.partial_p)


def test_a_sound_that_is_missing_is_told_once(tmp_path):
    clips = [Clip("a", "gone.wav", "x"), Clip("b", "", "x")]
    captions = [Caption("t", "a", "a dog"), Caption("u", "b", "rain")]
    missing = Collection(tmp_path, clips, captions, [Rating("t", "a", 5.0), Rating("u", "b", 9.0)])
    assert [each.where for each in study(missing, Settings.of([NGRAM, "clips.tagger=none"])).problems] == ["clip 'a'"]
    twice = [Problem("a", "first"), Problem("b", "other"), Problem("a", "again")]
    assert _each_once(twice) == twice[:2]
