"""The ratings that people would give: fitted on captions that did not train the run, and asked in every form."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import tomli_w
from scipy.stats import kendalltau, pearsonr, spearmanr
from test_calibrate import drawn
from test_estimates import ESTIMATED, OWN, recipe
from typer.testing import CliRunner
from worlds import RECIPE, SOUNDS, tone_world, vector_world

from earmark.analyse.answer import answer
from earmark.analyse.calibrate import Calibration, fit, text_digest
from earmark.analyse.fitting import fit_run
from earmark.analyse.score import score_collection, score_file, score_table
from earmark.analyse.trained import trained_captions
from earmark.cli import app
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.data.marks import marks
from earmark.errors import ConfigError, DataError, EarmarkError
from earmark.learn.measured import score as all_scores
from earmark.learn.train import train
from earmark.model.dual_encoder import DualEncoder, run_fingerprint
from earmark.relevance import Rating


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A collection of vectors with ratings, a run on it, and what was fitted on its validation."""
    folder = tmp_path_factory.mktemp("score")
    collection = vector_world(folder / "c", clips=80, rated=20)
    run = train(recipe(RECIPE), collection, folder / "run").run
    fitted = fit_run(run, collection)
    fitted.calibration.write(run)
    return SimpleNamespace(folder=folder, collection=collection, run=run, fitted=fitted, map=fitted.calibration)


@pytest.fixture(scope="module")
def tones(tmp_path_factory, sentence_encoder):
    """A model that reads sounds and words, with some map, and files to ask for."""
    folder = tmp_path_factory.mktemp("tones")
    run = train(recipe(SOUNDS, "train.max_epochs=0"), tone_world(folder / "world"), folder / "run").run
    replace(fit(*drawn(60)), collection="made", kind="generated").write(run)
    (folder / "sounds").mkdir()
    for name in ("a", "b"):
        wave = np.random.default_rng(ord(name)).standard_normal(40_000).astype(np.float32) * 0.1
        soundfile.write(folder / "sounds" / f"{name}.wav", wave, 16_000)
    (folder / "sounds" / "broken.wav").write_bytes(b"RIFF no sound")
    (folder / "sounds" / "folder").mkdir()
    return SimpleNamespace(folder=folder, run=run)


def earmark(*arguments, code=0):
    """Runs the command in this process."""
    done = CliRunner().invoke(app, ["score", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def refused(*arguments):
    """The one line that the command is refused with; nothing may stand on standard output."""
    done = CliRunner().invoke(app, ["score", *map(str, arguments)])
    assert isinstance(done.exception, EarmarkError), done.output
    assert done.stdout == ""
    assert "\n" not in str(done.exception)
    return str(done.exception)


def table(path, *rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


# Fitting


def test_it_is_fitted_on_what_neither_trained_the_run_nor_is_kept_for_tests(world):
    held = {c.caption_id for c in world.collection.captions_of("validation")}
    pairs = {(r.caption_id, r.clip_id) for r in world.collection.ratings if r.caption_id in held}
    assert (world.map.pairs, world.map.captions) == (len(pairs), 20)
    assert (world.map.collection, world.map.kind, world.map.split) == ("small", "generated", None)
    assert world.map.fingerprint == run_fingerprint(world.run)
    assert world.map.mean == pytest.approx(
        np.mean([r.rating for r in world.collection.ratings if r.caption_id in held])
    )
    texts = {c.text for c in world.collection.captions if c.caption_id in {caption for caption, _ in pairs}}
    assert world.map.texts == sorted(map(text_digest, texts))
    assert world.fitted.notes == [
        "20 of 60 rated captions left out: they trained the run",
        "20 rated captions left out: they are of evaluation, kept for tests (--split evaluation fits on it)",
        "split validation also stopped training: no test result",
    ]


def test_a_split_that_is_named_is_fitted_on_alone(world):
    found = fit_run(world.run, world.collection, "evaluation")
    assert (found.calibration.captions, found.calibration.split, found.notes) == (20, "evaluation", [])
    with pytest.raises(
        DataError, match=r"split development: no rated caption to fit on; found 20, of which 20 trained"
    ):
        fit_run(world.run, world.collection, "development")
    with pytest.raises(DataError, match=r"no clips of split 'evaluatoin'.*Did you mean"):
        fit_run(world.run, world.collection, "evaluatoin")


def test_where_nobody_rated_anything_it_is_told_where_ratings_go(world):
    bare = replace(world.collection, ratings=[])
    for split, of in ((None, ""), ("evaluation", " of split evaluation")):
        with pytest.raises(DataError) as error:
            fit_run(world.run, bare, split)
        root = bare.root
        assert str(error.value) == (
            f"{root}: no ratings{of}; expected some to fit on, in {root / 'ratings.csv'} (caption_id,clip_id,rating of "
            f"0–100). Put them there, or ask people: earmark collect pool {root} --to STUDY."
        )


def test_a_twin_and_the_same_words_trained_the_run_too(world):
    clips = list(world.collection.clips)
    twin = next(at for at, clip in enumerate(clips) if clip.split == "validation")
    clips[twin] = replace(clips[twin], split="development-lists")
    learned = next(c for c in world.collection.captions if c.clip_id == "clip0")
    other = next(c for c in world.collection.captions if c.clip_id == clips[-1].clip_id)
    captions = [replace(c, text=learned.text) if c is other else c for c in world.collection.captions]
    found = replace(world.collection, clips=clips, captions=captions)
    trained = trained_captions(world.run, found, captions)
    wanted = {c.caption_id for c in captions if c.clip_id in {*(f"clip{i}" for i in range(40)), clips[twin].clip_id}}
    assert trained == {*wanted, other.caption_id}
    elsewhere = replace(found, name="another", clips=[replace(clip, clip_id=f"x{clip.clip_id}") for clip in clips])
    moved = [replace(c, clip_id=f"x{c.clip_id}") for c in captions]
    assert trained_captions(world.run, replace(elsewhere, captions=moved), moved) == set()


def test_a_twin_and_its_clip_are_one_whichever_trained_the_run(world, tmp_path):
    learned, unseen = "clip0", world.collection.clips[-1].clip_id
    names = [learned, f"{learned}~t", f"{unseen}~t"]
    clips = [*world.collection.clips, *(Clip(name, "", "validation-lists") for name in names[1:])]
    captions = [c for c in world.collection.captions if c.clip_id != learned]
    asked = [Caption(f"{name} asked", name, f"words of {name}") for name in names]
    more = replace(world.collection, clips=clips, captions=[*captions, *asked])
    assert trained_captions(world.run, more, asked) == {f"{learned} asked", f"{learned}~t asked"}
    run = tmp_path / "run"
    shutil.copytree(world.run, run)
    tables = tomllib.loads((run / "config.toml").read_text())
    clips = [f"{clip}~t" if clip == learned else clip for clip in tables["data"]["clips"]]
    tables["data"] |= {"clips": clips, "marks": marks(more, clips)}
    (run / "config.toml").write_text(tomli_w.dumps(tables))
    assert trained_captions(run, more, asked) == {f"{learned} asked", f"{learned}~t asked"}


def test_a_text_in_common_makes_no_clip_one_that_trained_the_run(world):
    learned = world.collection.captions[0].text
    other = world.collection.captions_of("evaluation")[1]
    captions = [replace(c, text=learned) if c is other else c for c in world.collection.captions]
    found = score_collection(world.run, replace(world.collection, captions=captions), "evaluation")
    assert not any("pairs are with clips" in note for note in found.notes)


def test_what_a_teacher_learned_from_trained_the_run_too(world, tmp_path):
    half = [c if c.split != "validation" else replace(c, split="development") for c in world.collection.clips]
    wider = replace(world.collection, clips=half)
    teacher = train(recipe(RECIPE, "train.max_epochs=1", "train.monitor_split=evaluation"), wider, tmp_path / "t").run
    student = recipe(ESTIMATED, f'objective.0.relevance="teacher:{teacher}"', "train.max_epochs=1")
    run = train(student, world.collection, tmp_path / "s").run
    captions = world.collection.captions_of("validation")
    assert trained_captions(world.run, world.collection, captions) == set()
    assert trained_captions(run, world.collection, captions) == {caption.caption_id for caption in captions}
    shutil.rmtree(teacher)
    assert trained_captions(run, world.collection, captions) == set()


def test_passes_over_a_collection_do_not_grow_with_what_is_rated(world):
    class Counted(list):
        passes = 0

        def __iter__(self):
            Counted.passes += 1
            return super().__iter__()

    found = []
    rated = list(dict.fromkeys(r.caption_id for r in world.collection.rated("validation")))
    for few in (rated[:5], rated[:15]):
        Counted.passes = 0
        ratings = [r for r in world.collection.ratings if r.caption_id in few]
        clips, captions = Counted(world.collection.clips), Counted(world.collection.captions)
        more = replace(world.collection, clips=clips, captions=captions, ratings=ratings)
        fit_run(world.run, more)
        found.append(Counted.passes)
    assert found[0] == found[1] > 0


def test_checks_of_a_study_are_left_out_and_several_raters_are_one_pair(world):
    first = next(r for r in world.collection.rated("evaluation"))
    checks = [replace(first, rating=100, group="anchor", rater_id=str(n)) for n in range(3)]
    second = replace(first, rating=first.rating / 2, rater_id="two")
    more = replace(world.collection, ratings=[*world.collection.ratings, second, *checks])
    found = score_collection(world.run, more, "evaluation")
    plain = score_collection(world.run, world.collection, "evaluation")
    assert found.notes[0] == "3 ratings of the group anchor left out: a study's checks on its raters"
    assert len(found.rows) == len(plain.rows)
    assert found.ratings[0] == pytest.approx(0.75 * plain.ratings[0])
    assert fit_run(world.run, more, "evaluation").notes == found.notes[:1]


def test_it_is_told_how_many_pairs_are_with_clips_that_trained_the_run(world):
    asked = next(c for c in world.collection.captions_of("evaluation"))
    more = [Rating(asked.caption_id, f"clip{i}", 10.0) for i in range(3)]
    found = fit_run(world.run, replace(world.collection, ratings=[*world.collection.ratings, *more]), "evaluation")
    wanted = (
        "3 of 123 pairs are with clips that trained the run: with others, ratings may lie farther from what is expected"
    )
    assert found.notes == [wanted]


def test_too_few_ratings_are_refused_with_what_was_found(world):
    first = world.collection.rated("evaluation")[0].caption_id
    one = replace(world.collection, ratings=[r for r in world.collection.ratings if r.caption_id == first])
    with pytest.raises(DataError, match=r"6 rated pairs of 1 captions to fit on; expected 10 of 2 at least"):
        fit_run(world.run, one, "evaluation")
    with pytest.raises(DataError, match="found 1, of which 0 trained the run and 1 are of evaluation"):
        fit_run(world.run, one)


def test_a_clip_without_a_finite_vector_costs_its_pairs(world, tmp_path):
    root = tmp_path / "c"
    shutil.copytree(world.folder / "c", root)
    vectors = world.collection.clip_vectors
    lost = next(r.clip_id for r in world.collection.rated("validation"))
    rows = vectors.vectors.copy()
    rows[vectors.ids.index(lost)] = np.nan
    VectorTable(vectors.ids, rows).write(root / "clip_vectors.npz")
    found = fit_run(world.run, Collection.read(root))
    gone = sum(r.clip_id == lost for r in world.collection.rated("validation"))
    assert found.calibration.pairs == world.map.pairs - gone
    assert [str(problem) for problem in found.problems] == [f"clip '{lost}': its vector is not finite"]


def test_a_collection_whose_sounds_are_missing_is_told_as_that(tones, tmp_path):
    bare = rated_tones(tones, tmp_path / "c")
    told = r"none of 12 rated pairs has a cosine, the first: clip 'clip8': .* no sound file .*Bring the sounds"
    with pytest.raises(DataError, match=rf"c, every split but evaluation: {told}"):
        fit_run(tones.run, bare)
    with pytest.raises(DataError, match=rf"c, split validation: {told}"):
        score_collection(tones.run, bare, "validation")


def rated_tones(tones, root):
    """The tones without their files, three ratings a caption of validation."""
    made = Collection.read(tones.folder / "world")
    asked = made.captions_of("validation")
    ratings = [Rating(c.caption_id, o.clip_id, 10.0 + at) for c in asked for at, o in enumerate(asked[:3])]
    clips = [replace(clip, path="") for clip in made.clips]
    replace(made, root=root, clips=clips, ratings=ratings).write(root)
    return Collection.read(root)


# Measures


def test_measures_equal_second_computations(world):
    scores = score_collection(world.run, world.collection, "evaluation")
    found = answer(world.map, scores, 0.8)
    every = all_scores(DualEncoder.load(world.run), world.collection, "evaluation")
    for row, cosine in zip(scores.rows, scores.cosines, strict=True):
        assert cosine == pytest.approx(every.scorer([row["caption_id"]], [row["clip_id"]])[0, 0], abs=1e-5)
    expected, low, high = world.map.rating(scores.cosines, 0.8)
    truth = np.array([float(row["rating"]) for row in scores.rows])
    measured = found.measures
    assert (measured["pairs"], measured["captions"], measured["level"]) == (120, 20, 0.8)
    assert measured["expected"]["SRCC"] == pytest.approx(spearmanr(expected, truth).statistic)
    assert measured["expected"]["LCC"] == pytest.approx(pearsonr(expected, truth).statistic)
    assert measured["expected"]["KTAU"] == pytest.approx(kendalltau(expected, truth).statistic)
    assert measured["expected"]["MSE"] == pytest.approx(np.mean((expected - truth) ** 2) / 1e4)
    assert measured["cosine"]["MSE"] == pytest.approx(np.mean((scores.cosines.clip(0, 1) - truth / 100) ** 2))
    assert measured["constant_here"] == {"rating": pytest.approx(truth.mean()), "MSE": pytest.approx(truth.var() / 1e4)}
    assert measured["constant_fitted"]["rating"] == world.map.mean
    assert measured["coverage"] == pytest.approx(((truth >= low) & (truth <= high)).mean())
    assert measured["width"] == pytest.approx((high - low).mean())
    assert measured["expected"]["MSE"] < measured["constant_here"]["MSE"]
    assert found.notes[0] == "0 of 20 captions trained the run"


def test_what_was_fitted_on_trained_or_stopped_training_is_told(world):
    here = answer(world.map, score_collection(world.run, world.collection, "validation"))
    assert "split validation also stopped training: no test result" in here.notes
    assert any(note.startswith("THE MAP WAS FITTED ON 20 OF THESE 20 CAPTIONS") for note in here.notes)
    learned = answer(world.map, score_collection(world.run, world.collection, "development"))
    assert "20 of 20 captions trained the run: no test result" in learned.notes
    everything = score_collection(world.run, world.collection, None)
    assert everything.notes[0] == "20 of 60 captions trained the run: no test result"


def test_groups_are_measured_apart(world):
    ratings = [
        replace(r, group="TP" if r.caption_id.split("#")[0] == r.clip_id else "TN") for r in world.collection.ratings
    ]
    grouped = replace(world.collection, ratings=ratings)
    found = answer(world.map, score_collection(world.run, grouped, "evaluation")).measures
    assert {name: each["pairs"] for name, each in found["groups"].items()} == {"TN": 100, "TP": 20}
    whole = sum(each["coverage"] * each["pairs"] for each in found["groups"].values())
    assert whole / 120 == pytest.approx(found["coverage"])
    for key, of_all in (("MSE", found["expected"]["MSE"]), ("width", found["width"])):
        assert sum(each[key] * each["pairs"] for each in found["groups"].values()) / 120 == pytest.approx(of_all)


@pytest.mark.parametrize(("pairs", "defined"), [(1, False), (2, False), (3, True)])
def test_fewer_than_three_pairs_leave_correlations_undefined(world, pairs, defined):
    own = [r for r in world.collection.rated("evaluation") if r.rating == 100][:pairs]
    few = [replace(r, rating=10.0 * at) for at, r in enumerate(own)]
    found = answer(world.map, score_collection(world.run, replace(world.collection, ratings=few), "evaluation"))
    for of in ("expected", "cosine"):
        assert {name: bool(np.isfinite(found.measures[of][name])) for name in ("SRCC", "LCC", "KTAU", "MSE")} == {
            **dict.fromkeys(("SRCC", "LCC", "KTAU"), defined),
            "MSE": True,
        }


def test_constant_ratings_leave_correlations_undefined_and_nothing_else(world):
    ratings = [replace(r, rating=50.0) for r in world.collection.ratings]
    found = answer(world.map, score_collection(world.run, replace(world.collection, ratings=ratings), "evaluation"))
    assert np.isnan(found.measures["expected"]["SRCC"])
    assert found.measures["constant_here"]["MSE"] == 0
    assert np.isfinite([found.measures["coverage"], found.measures["width"]]).all()


def test_a_control_that_knows_clips_by_their_captions_is_scored_too(world, tmp_path):
    run = train(recipe(OWN), world.collection, tmp_path / "own").run
    fit_run(run, world.collection).calibration.write(run)
    found = score_collection(run, world.collection, "evaluation")
    assert np.isfinite(found.cosines).all()
    asked = table(tmp_path / "t.csv", ["text", "clip_id"], ["a sound", "clip1"])
    with pytest.raises(ConfigError, match="own-captions"):
        score_table(run, asked, world.collection)


# CSVs


def test_pairs_of_a_collection_by_caption(world, tmp_path):
    asked = table(
        tmp_path / "pairs.csv",
        ["note", "caption_id", "clip_id", "rating"],
        ["a", "clip70#1", "clip70", "90"],
        ["b", "clip70#1", "clip71", ""],
        [],
        ["", "", "", ""],
        ["c", "nobody", "clip70", "10"],
        ["d", "clip70#1", "nothing", "10"],
        ["e", "clip71#1", "clip71", "140"],
        ["f", "clip71#1", "clip71", "high"],
        ["g", "clip71#2", "clip70", "0"],
    )
    found = score_table(world.run, asked, world.collection)
    assert [row["note"] for row in found.rows] == ["a", "b", "g"]
    np.testing.assert_array_equal(found.ratings, [90, np.nan, 0])
    assert [problem.where.rsplit(" ", 1)[-1] for problem in found.problems] == ["6", "7", "8", "9"]
    told = " ".join(str(problem) for problem in found.problems)
    for what in (
        "caption_id 'nobody' is not in",
        "clip_id 'nothing' is not in",
        "rating 140; expected 0–100",
        "'high'",
    ):
        assert what in told
    measured = answer(world.map, found).measures
    assert (measured["pairs"], measured["captions"]) == (2, 2)
    whole = {(r["caption_id"], r["clip_id"]): x for r, x in _of(world, "evaluation")}
    assert found.cosines[0] == pytest.approx(whole["clip70#1", "clip70"], abs=1e-5)


def _of(world, split):
    scores = score_collection(world.run, world.collection, split)
    return zip(scores.rows, scores.cosines, strict=True)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([["a", "b"], ["1", "2"]], "no column 'clip_id'"),
        ([["clip_id", "words"], ["clip1", "2"]], "no column 'caption_id' or 'text'"),
        ([["clip_id", "caption_id"]], "no rows"),
        ([], "empty"),
    ],
)
def test_a_csv_of_other_columns_is_refused(world, tmp_path, rows, told):
    with pytest.raises(DataError, match=told):
        score_table(world.run, table(tmp_path / "pairs.csv", *rows), world.collection)


def test_pairs_of_files_by_path(tones):
    long = "wind " * 2000
    asked = table(
        tones.folder / "sounds" / "pairs.csv",
        ["path", "text", "rating"],
        ["a.wav", "a tone", "80"],
        ["b.wav", "🎉🎉🎉", "20"],
        ["../sounds/a.wav", long, ""],
        ["gone.wav", "a tone", ""],
        ["broken.wav", "a tone", "50"],
        ["folder", "a tone", ""],
        ["", "a tone", ""],
        ["a.wav", "\u200b", ""],
        ["a\0.wav", "a tone", ""],
    )
    with pytest.warns(UserWarning, match="1 texts are cut"):
        found = score_table(tones.run, asked, None)
    assert [row["text"] for row in found.rows] == ["a tone", "🎉🎉🎉", long]
    assert [problem.where.rsplit(" ", 1)[-1] for problem in found.problems] == ["8", "9", "10", "5", "6", "7"]
    model = DualEncoder.load(tones.run)
    sound = model.embed_audio(tones.folder / "sounds" / "b.wav")[0]
    assert found.cosines[1] == pytest.approx(float(model.embed_text("🎉🎉🎉")[0] @ sound), abs=1e-5)
    assert found.notes == [
        "what the run has seen of these sounds and words is not known, since they are of no collection"
    ]
    single = score_file(tones.run, tones.folder / "sounds" / "b.wav", ["🎉🎉🎉"])
    assert single.cosines[0] == pytest.approx(found.cosines[1], abs=1e-5)


def test_what_a_csv_says_is_neither_overwritten_nor_lost(tones):
    folder = tones.folder / "sounds"
    with pytest.raises(DataError, match="column 'low', which is what is written"):
        score_table(tones.run, table(folder / "low.csv", ["path", "text", "low"], ["a.wav", "a tone", "x"]), None)
    asked = table(folder / "same.csv", ["path", "text"], ["a.wav", "a tone"], ["b.wav", ""])
    before = asked.read_bytes()
    assert "rows that cannot be used would be lost" in refused(tones.run, "--pairs", asked, "--out", asked)
    assert asked.read_bytes() == before


def test_a_csv_of_another_encoding_is_read_by_its_name(tones):
    asked = tones.folder / "sounds" / "old.csv"
    asked.write_bytes("path,text\na.wav,caf\xe9\n".encode("cp1252"))
    assert "--encoding cp1252" in refused(tones.run, "--pairs", asked)
    found = json.loads(earmark(tones.run, "--pairs", asked, "--encoding", "cp1252", "--json", "-").stdout)
    assert [row["text"] for row in found["rows"]] == ["café"]


def test_a_group_may_be_called_all(tones):
    rows = (["a.wav", "a tone", "80", "all"], ["b.wav", "a dog", "20", "x"])
    asked = table(tones.folder / "sounds" / "groups.csv", ["path", "text", "rating", "group"], *rows)
    said = earmark(tones.run, "--pairs", asked).stdout
    assert re.search(r"all pairs\W+2\W", said)
    assert re.search(r"all\W+1\W", said)


def test_pairs_of_a_collection_by_words(tones, tmp_path):
    collection = Collection.read(tones.folder / "world")
    caption = collection.captions[3]
    asked = table(
        tmp_path / "p.csv", ["text", "clip_id"], [caption.text, caption.clip_id], [" ", "clip0"], ["x", "clip99"]
    )
    found = score_table(tones.run, asked, collection)
    every = all_scores(DualEncoder.load(tones.run), collection, None)
    wanted = every.scorer([caption.caption_id], [caption.clip_id])[0, 0]
    assert found.cosines == pytest.approx([wanted], abs=1e-5)
    assert len(found.problems) == 2
    assert found.notes == ["0 of 1 captions trained the run"]  # an untrained control saw nothing


def test_a_table_of_words_and_clips_tells_what_trained_the_run(world, tmp_path):
    learned, new = world.collection.captions[0], world.collection.captions[-1]
    model = DualEncoder.load(world.run)
    model.embed_text = lambda texts, progress=None: np.zeros((len(texts), 16), np.float32)
    rows = [["a new text", learned.clip_id], [learned.text, new.clip_id], [new.text, new.clip_id]]
    notes = score_rows(world, model, table(tmp_path / "p.csv", ["text", "clip_id"], *rows))
    assert notes == [
        "1 of 2 captions trained the run: no test result",
        "1 of 3 pairs are with clips that trained the run: with others, ratings may lie farther from what is expected",
    ]


def score_rows(world, model, asked):
    """Notes of a table, of a model of vectors whose words are made up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DualEncoder, "load", lambda run: model)
        return score_table(world.run, asked, world.collection).notes


def test_a_csv_of_nothing_but_bad_rows_gives_none(tones, tmp_path):
    found = score_table(tones.run, table(tmp_path / "p.csv", ["path", "text"], ["no.wav", "x"]), None)
    assert (found.rows, len(found.problems)) == ([], 1)
    assert answer(Calibration.read(tones.run), found).measures is None


# As people run it


def test_a_sound_and_words_from_the_command(tones):
    sound = tones.folder / "sounds" / "a.wav"
    shown = earmark(tones.run, sound, "a tone", "rain", "--level", 0.8).stdout
    assert "fitted on made (GENERATED)" in shown
    assert "80 % interval" in shown
    found = json.loads(earmark(tones.run, sound, "a tone", "rain", "--json", "-").stdout)
    assert [row["text"] for row in found["rows"]] == ["a tone", "rain"]
    for row in found["rows"]:
        assert 0 <= row["low"] <= row["rating_expected"] <= row["high"] <= 100
    assert (found["level"], found["measures"], found["left_out"]) == (0.9, None, [])


def test_a_collection_from_the_command(world, tmp_path):
    out, told = tmp_path / "rated.csv", tmp_path / "found.json"
    done = earmark(world.run, "--data", world.folder / "c", "--out", out, "--json", told)
    assert "small (GENERATED), split evaluation: 120 pairs, 20 captions" in done.stdout
    assert "small (GENERATED), every split but evaluation: 120 pairs, 20 captions" in done.stdout
    assert "inside the 90 % interval" in done.stdout
    assert "note: 0 of 20 captions trained the run" in done.stderr
    assert "note:" not in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 100
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["caption_id", "clip_id", "group", "rating", "cosine", "rating_expected", "low", "high"]
    found = json.loads(told.read_text())
    assert len(rows) == len(found["rows"]) == found["pairs"] == found["measures"]["pairs"] == 120
    assert [float(row["cosine"]) for row in rows] == [row["cosine"] for row in found["rows"]]
    assert (found["captions"], found["calibration"]["captions"], found["calibration"]["split"]) == (20, 20, None)


def test_a_csv_from_the_command_keeps_its_columns_and_counts_bad_rows(world, tmp_path):
    asked = table(
        tmp_path / "p.csv", ["who", "clip_id", "caption_id"], ["Zoë, 3", "clip70", "clip70#1"], ["x", "y", "z"]
    )
    done = earmark(world.run, "--pairs", asked, "--data", world.folder / "c", "--out", tmp_path / "o.csv", code=1)
    assert "clip_id 'y' is not in" in done.stderr
    assert "1 row, clip or pair was left out" in done.stderr
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["who"] == "Zoë, 3"
    assert set(row) == {"who", "clip_id", "caption_id", "cosine", "rating_expected", "low", "high"}


def test_pairs_that_are_named_are_shown_beside_their_measures(world, tmp_path):
    rows = [[f"clip{70 + at % 10}#1", f"clip{60 + at}", at if at else ""] for at in range(20)] + [
        ["clip70#1", "clip9", 7]
    ]
    asked = table(tmp_path / "p.csv", ["caption_id", "clip_id", "rating"], *rows)
    shown = earmark(world.run, "--pairs", asked, "--data", world.folder / "c").stdout
    assert "21 pairs, 10 captions" in shown
    assert "Against people's ratings: 20 pairs, 10 captions (MSE on 0–1)" in shown
    (first,) = [line for line in shown.splitlines() if " clip60 │" in line]
    assert [cell.strip() for cell in first.split("│")[1:4]] == ["caption 1 of sound 70", "clip60", ""]
    (last,) = [line for line in shown.splitlines() if " clip79 │" in line]
    assert last.split("│")[3].strip() == "19"
    assert "… and 1 more; --out FILE.csv writes all" in shown
    assert max(map(len, shown.splitlines()[1:])) <= 100
    one = earmark(
        world.run,
        "--pairs",
        table(tmp_path / "1.csv", ["caption_id", "clip_id"], rows[0][:2]),
        "--data",
        world.folder / "c",
    )
    assert "1 pair, 1 caption;" in one.stdout


def test_fitting_from_the_command(world, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(world.run, run)
    done = earmark(run, "--fit", world.folder / "c", "--split", "evaluation", "--json", tmp_path / "fit.json")
    assert "fitted on small (GENERATED), split evaluation: 120 pairs, 20 captions" in done.stdout
    assert json.loads((tmp_path / "fit.json").read_text())["mean"] == Calibration.read(run).mean
    (run / "calibration.json").unlink()
    (run / "calibration.json").mkdir()
    assert "not a regular file" in refused(run, "--fit", world.folder / "c", "--split", "evaluation")


def test_fitting_shows_the_interval_of_the_level_that_is_asked(world, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(world.run, run)
    done = earmark(run, "--fit", world.folder / "c", "--level", 0.5)
    assert "50 % interval" in done.stdout
    _, _, low, high = Calibration.read(run).table(0.5)[5]
    assert f"[{low:.1f}, {high:.1f}]" in done.stdout
    assert "note: 20 of 60 rated captions left out: they trained the run" in done.stderr
    assert "note:" not in done.stdout
    few = earmark(run, "--fit", world.folder / "c", "--level", 0.99, "--json", "-")
    told = json.loads(few.stdout)
    assert "20 captions fitted on are too few for a 99 % interval (99 at least): it is [0, 100]" in told["notes"]
    assert told["split"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "nothing to do; expected one of"),
        (("{sounds}/a.wav",), 'expected FILE "words"'),
        (("{sounds}/a.wav", ""), "blank"),
        (("{sounds}", "rain"), "a folder; expected a sound"),
        (("{sounds}/gone.wav", "rain"), "cannot be read"),
        (("{sounds}/broken.wav", "rain"), "broken.wav"),
        (("{sounds}/a.wav", "rain", "--level", "90"), "level 90"),
        (("{sounds}/a.wav", "rain", "--split", "evaluation"), "--split evaluation"),
        (("{sounds}/a.wav", "rain", "--data", "{world}"), "FILE and --data"),
        (("--fit", "{world}", "--pairs", "{sounds}/p.csv"), "--fit and --pairs"),
        (("--fit", "{world}", "--data", "{world}"), "--fit and --data"),
        (("--fit", "{world}", "--out", "x.csv"), "--out x.csv"),
        (("--fit", "{world}"), "world: no ratings; expected some to fit on, in"),
        (("--data", "{world}"), "nobody rated anything"),
        (("--data", "{sounds}"), "clips.csv"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(tones, arguments, told):
    places = {"sounds": tones.folder / "sounds", "world": tones.folder / "world"}
    assert told in refused(tones.run, *(each.format(**places) for each in arguments))


def test_in_a_process_of_its_own_it_answers_and_refuses_in_one_line(tones):
    command = [sys.executable, "-m", "earmark", "score", tones.run, tones.folder / "sounds" / "a.wav", "rain"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rows"][0]["text"] == "rain"
    failed = subprocess.run([*command, "--level", "90"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.splitlines() == ["level 90; expected 0.5–0.99, the share of ratings inside."]


def test_a_run_without_a_map_or_of_vectors_of_no_named_model_says_so(world, tones, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(tones.run, bare)
    (bare / "calibration.json").unlink()
    sound = tones.folder / "sounds" / "a.wav"
    assert f"earmark score {bare} --fit DIR" in refused(bare, sound, "rain")
    assert "whose collection.toml names no model" in refused(world.run, sound, "rain")
    assert "not a run" in refused(tmp_path, sound, "rain")


# On PROXY data


def test_on_proxy_data_a_map_of_evaluation_like_captions_holds(real_data, tmp_path):
    """Real ratings, no training: an untrained control, fitted on development and measured on validation."""
    collection = Collection.read(real_data / "proxy")
    text = OWN.replace("dim = 12", "dim = 768")
    run = train(recipe(text), collection, tmp_path / "own").run
    found = fit_run(run, collection, "development")
    measured = answer(found.calibration, score_collection(run, collection, "validation")).measures
    assert measured["pairs"] > 2500
    assert 0.85 < measured["coverage"] < 0.95
    assert measured["expected"]["MSE"] < min(measured["constant_here"]["MSE"], measured["cosine"]["MSE"])
    assert set(measured["groups"]) == {"C15", "TN", "TP"}


def test_json_never_takes_the_place_of_what_is_read(world, tmp_path):
    pairs = table(tmp_path / "p.csv", "caption_id,clip_id", "clip0#1,clip1")
    link = tmp_path / "link.json"
    link.symlink_to(pairs)
    before, captions = pairs.read_bytes(), world.collection.root / "captions.csv"
    for to in (pairs, link, captions):
        asked = (world.run, "--pairs", pairs, "--data", world.collection.root, "--json", to)
        assert refused(*asked) == f"--json {to}: what is read, which would be lost. Name another file."
    assert pairs.read_bytes() == before
    whole = captions.read_bytes()
    for command in (
        ["data", "check", world.collection.root],
        ["analyse", world.collection.root, "--out", tmp_path / "a"],
    ):
        done = CliRunner().invoke(app, [*map(str, command), "--json", str(captions)])
        assert isinstance(done.exception, ConfigError)
        assert captions.read_bytes() == whole
    for command in (
        ["collect", "agreement", str(pairs)],
        ["index", "--to", str(tmp_path / "i"), "--words", str(pairs)],
    ):
        done = CliRunner().invoke(app, [*command, "--json", str(pairs)])
        assert isinstance(done.exception, ConfigError), done.output
        assert pairs.read_bytes() == before


def test_words_that_are_not_utf_8_are_refused_in_one_line(tones):
    assert refused(tones.run, tones.folder / "sounds" / "a.wav", "caf\udce9").startswith("text 0: not UTF-8")
