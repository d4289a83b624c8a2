"""Relevance that nobody stated: own captions, their likeness, and runs that teach."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit
from scipy.stats import spearmanr
from worlds import RECIPE, vector_world

from earmark.config import override
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import ConfigError, DataError
from earmark.learn.estimates import OwnCaptions, estimates_of, fit_logistic, fitted, similar, taught
from earmark.learn.measured import evaluate_run, score, seen
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.measure.evaluate import compare, evaluate
from earmark.model.dual_encoder import DualEncoder, run_fingerprint
from earmark.relevance import Rating

OWN = """
[model]
dim = 12
[audio]
encoder = "own-captions"
[text]
encoder = "vectors"
[train]
max_epochs = 0
[[objective]]
loss = "infonce"
"""
ESTIMATED = """
[model]
dim = 16
[audio]
encoder = "vectors"
hidden = 32
dropout = 0.2
[text]
encoder = "vectors"
[train]
max_epochs = 3
[[objective]]
loss = "listnet"
symmetric = true
batch = 8
"""


def recipe(text: str, *sets: str) -> Recipe:
    tables = tomllib.loads(text)
    for each in sets:
        override(tables, each)
    return Recipe.from_tables(tables, "test")


def estimated(relevance: str, *sets: str) -> Recipe:
    return recipe(ESTIMATED, f'objective.0.relevance="{relevance}"', *sets)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Collection:
    """As `vector_world`, with a third caption a clip, some texts that several clips bear, and a list clip without two.

    Clip 3 says twice the same; clips 0 and 5 bear one text, 1 and 6 another.
    """
    made = vector_world(tmp_path_factory.mktemp("world") / "c")
    third = [Caption(f"clip{i}#3", f"clip{i}", f"caption 3 of sound {i}") for i in range(60)]
    texts = {"clip3#2": "caption 1 of sound 3", "clip5#1": "caption 1 of sound 0", "clip6#2": "caption 2 of sound 1"}
    captions = [replace(c, text=texts.get(c.caption_id, c.text)) for c in [*made.captions, *third]]
    captions.append(Caption("alone#1", "alone", "a sound of one caption"))
    vectors = made.caption_vectors
    assert vectors is not None
    more = np.random.default_rng(1).standard_normal((len(captions) - len(vectors.ids), 12)).astype(np.float32)
    VectorTable(tuple(c.caption_id for c in captions), np.concatenate([vectors.vectors, more])).write(
        made.root / "caption_vectors.npz"
    )
    clips = [*made.clips, Clip("alone", "", "validation-lists")]
    ratings = [*made.ratings, Rating("clip30#1", "alone", 40)]
    changed = Collection(made.root, clips, captions, ratings, name="small", kind="generated")
    changed.write()
    return Collection.read(made.root)


@pytest.fixture(scope="module")
def teachers(world, tmp_path_factory) -> list[str]:
    """Two runs, trained for a while."""
    folder = tmp_path_factory.mktemp("teachers")
    for seed in (0, 1):
        train(recipe(RECIPE, f"train.seed={seed}", "train.max_epochs=12"), world, folder / f"{seed}")
    return [str(folder / f"{seed}") for seed in (0, 1)]


def looped_own(world: Collection, caption_id: str, clip_id: str) -> float:
    """The cosine with the mean of the clip's captions of another text, by definition."""
    vectors = world.caption_vectors
    assert vectors is not None
    asked = next(c for c in world.captions if c.caption_id == caption_id)
    others = [c.caption_id for c in world.captions if c.clip_id == clip_id and c.text != asked.text]
    if not others:
        return np.nan
    units = [v / np.linalg.norm(v) for v in vectors.rows(others).astype(np.float64)]
    mean, query = np.mean(units, axis=0), vectors.rows([caption_id])[0].astype(np.float64)
    return float(query @ mean / np.linalg.norm(query) / np.linalg.norm(mean))


# Own captions


def test_own_captions_equal_a_double_loop_that_leaves_the_asked_text_out(world):
    vectors = world.caption_vectors
    own = OwnCaptions(world.captions, vectors.rows([c.caption_id for c in world.captions]))
    captions = [*(c.caption_id for c in world.captions[::3]), "clip3#1", "clip5#1", "clip6#2", "alone#1"]
    clips = ["clip5", *(clip.clip_id for clip in world.clips), "clip5"]  # ids may repeat
    expected = np.array([[looped_own(world, caption, clip) for clip in clips] for caption in captions])
    np.testing.assert_allclose(own.scores(captions, clips), expected, atol=1e-6)
    assert np.isnan(expected).sum() == captions.count("alone#1")  # the only caption of its clip
    text = {c.caption_id: c.text for c in world.captions}
    bearing = [
        [any(c.clip_id == clip and c.text == text[q] for c in world.captions) for clip in clips] for q in captions
    ]
    np.testing.assert_array_equal(own.bears(captions, clips), bearing)


def test_a_clip_without_captions_has_no_score():
    own = OwnCaptions([Caption("a#1", "a", "rain")], np.ones((1, 3), np.float32))
    assert np.isnan(own.scores(["a#1"], ["silent", "a"])).all()
    assert own.scores([], []).shape == (0, 0)


def test_the_untrained_control_is_a_run_that_is_evaluated_and_compared(world, tmp_path):
    result = train(recipe(OWN), world, tmp_path / "own")
    assert (result.epochs, result.problems) == (0, [])
    evaluation, scored, known = evaluate_run(result.run, world, "validation")
    assert (known.trained_on, known.stopped_training) == (0, False)
    card = (result.run / "card.md").read_text()
    assert "no sound is heard" in card
    assert "AudioSet" not in card
    assert scored.without == {"alone"}
    assert [str(problem) for problem in scored.problems] == [
        "clip 'alone': 1 different caption(s); own-captions needs two, to leave out the one that is asked"
    ]
    queries, clips = ([each.caption_id for each in world.captions_of("validation")], ["clip30", "clip31", "clip44"])
    expected = [[looped_own(world, caption, clip) for clip in clips] for caption in queries]
    np.testing.assert_allclose(scored.scorer(queries, clips), expected, atol=1e-6)
    assert evaluation.rated is not None
    assert "alone" not in evaluation.rated.clips
    assert np.nanmean(evaluation.text_to_audio.values["mAP"]) > 0.3  # chance is .22, and captions 3 are noise
    train(recipe(RECIPE, "train.max_epochs=1"), world, tmp_path / "heard")
    both = {run: score(DualEncoder.load(tmp_path / run), world, "validation") for run in ("own", "heard")}
    without = frozenset().union(*(each.without for each in both.values()))
    found = compare({run: evaluate(world, "validation", each.scorer, without=without) for run, each in both.items()})
    assert [each.measure for each in found] == ["mAP", "R@10", "ρ", "ρ within lists"]


def test_the_untrained_control_embeds_words_and_no_sounds(tmp_path, sentence_encoder):
    world = vector_world(tmp_path / "c", clips=8)
    made = recipe(OWN, 'text.encoder="all-MiniLM-L6-v2"', "model.dim=384")
    model = DualEncoder.load(train(made, world, tmp_path / "own").run)
    np.testing.assert_allclose(model.embed_text("rain"), sentence_encoder.encode(["rain"]), atol=1e-6)
    with pytest.raises(ConfigError, match=r"knows a clip by its captions alone.*sounds cannot be embedded"):
        model.embed_audio(np.zeros(16_000, np.float32), rate=16_000)
    clips, _, _ = model.embed_collection(world, world.gallery("validation"), [])
    mean = sentence_encoder.encode(["caption 1 of sound 4", "caption 2 of sound 4"]).mean(axis=0)
    np.testing.assert_allclose(clips.rows(["clip4"])[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_a_collection_of_one_caption_a_clip_is_refused_by_the_control(tmp_path):
    clips = [Clip(f"{i}", "", split) for i, split in enumerate(["development"] * 3 + ["validation"] * 2)]
    Collection(tmp_path / "c", clips, [Caption(f"{i}#1", f"{i}", f"text {i}") for i in range(5)]).write()
    VectorTable(tuple(f"{i}#1" for i in range(5)), np.eye(5, 12, dtype=np.float32)).write(
        tmp_path / "c" / "caption_vectors.npz"
    )
    with pytest.raises(DataError, match="none of 5 clips has two different captions"):
        train(recipe(OWN), Collection.read(tmp_path / "c"), tmp_path / "run")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("train.max_epochs=3", "max_epochs = 3: it is the untrained control"),
        ("text.residual=0.1", "text.residual = 0.1: nothing is learned"),
        ("text.train=true", "text.train = true"),
        ("audio.residual=0.1", 'audio.residual = 0.1 with "own-captions"'),
        ("audio.augment=gain", "the tower is frozen"),
        ("audio.bridge=true", "audio.bridge = true"),
    ],
)
def test_what_would_learn_is_refused_by_the_control(sets, message):
    with pytest.raises(ConfigError, match=message):
        recipe(OWN, sets)


def test_a_dim_that_is_not_the_text_vectors_is_refused(world, tmp_path):
    with pytest.raises(ConfigError, match=r"text vectors have 12 numbers and model.dim is 300.*Set model.dim = 12"):
        train(recipe(OWN, "model.dim=300"), world, tmp_path / "run")


# Similarity


def test_the_logistic_recovers_known_numbers_and_equals_a_second_optimiser():
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.2, 0.9, 400)
    found = fit_logistic(x, expit(-4.5 + 7.5 * x))
    assert found == pytest.approx((-4.5, 7.5), abs=1e-5)
    noisy = np.clip(expit(-3 + 5 * x) + 0.2 * rng.standard_normal(400), 0, 1)

    def loss(ab):
        p = expit(ab[0] + ab[1] * x)
        return -np.mean(noisy * np.log(p) + (1 - noisy) * np.log(1 - p))

    second = scipy.optimize.minimize(loss, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14})
    found = fit_logistic(x, noisy)
    assert found == pytest.approx(tuple(second.x), abs=1e-4)
    np.testing.assert_allclose(found(x), expit(found.a + found.b * x))


def test_similarity_is_fitted_to_developments_ratings_alone(world):
    model = DualEncoder.for_collection(estimated("similarity").encoders, world)
    pairs = world.relevance("ratings", "development").pairs()
    x, y = np.array([(looped_own(world, p.caption_id, p.clip_id), p.value) for p in pairs]).T
    assert fitted(model, world) == pytest.approx(fit_logistic(x[~np.isnan(x)], y[~np.isnan(x)]), abs=1e-4)
    others = [r if r.caption_id in {c.caption_id for c in world.captions_of("development")} else replace(r, rating=50.0)
              for r in world.ratings]  # fmt: skip
    assert fitted(model, replace(world, ratings=others)) == fitted(model, world)


def test_similaritys_block_is_the_logistic_of_own_captions_and_one_where_the_text_is_borne(world):
    model = DualEncoder.for_collection(estimated("similarity").encoders, world)
    a, b = fitted(model, world)
    captions, clips = ["clip0#1", "clip5#1", "clip3#2", "clip40#3"], ["clip0", "clip5", "clip3", "clip31"]
    values, judged = similar(model, world, ("development", "validation")).block(captions, clips)
    expected = np.array([[expit(a + b * looped_own(world, q, clip)) for clip in clips] for q in captions])
    expected[0, :2] = expected[1, :2] = expected[2, 2] = 1
    np.testing.assert_allclose(values, expected, atol=1e-6)
    assert (values.dtype, judged.dtype, judged.all()) == (np.float32, np.bool_, True)


def test_a_text_tower_that_learns_is_not_what_captions_are_alike_by(world, sentence_encoder):
    made = estimated("similarity", 'text.encoder="all-MiniLM-L6-v2"', "text.train=true")
    model = DualEncoder.for_collection(made.encoders, world)
    frozen = DualEncoder.for_collection(estimated("similarity", 'text.encoder="all-MiniLM-L6-v2"').encoders, world)
    assert fitted(model, world) == fitted(frozen, world)


def test_similarity_without_ratings_is_refused(world, tmp_path):
    with pytest.raises(DataError, match="0 rated pairs of 'development' with 0 different likenesses, to fit"):
        train(estimated("similarity"), replace(world, ratings=[]), tmp_path / "run")


@pytest.mark.parametrize("relevance", ["similarity", "teacher"])
def test_a_run_that_learns_from_estimates_resumes_bit_equal(world, teachers, tmp_path, relevance):
    made = estimated("similarity" if relevance == "similarity" else f"teacher:{teachers[0]}")

    def stop(line: dict) -> None:
        if line["epoch"] == 1:
            raise KeyboardInterrupt

    train(made, world, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(made, world, tmp_path / "stopped", report=stop)
    train(made, world, tmp_path / "stopped", resume=True)
    both = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "stopped")]
    assert both[0] == both[1]
    kept = tomllib.loads((tmp_path / "whole" / "config.toml").read_text())["data"]["estimates"]
    assert kept == (
        {"similarity": fitted(DualEncoder.load(tmp_path / "whole"), world)._asdict()}
        if relevance == "similarity"
        else {f"teacher:{teachers[0]}": {teachers[0]: run_fingerprint(Path(teachers[0]))}}
    )


# Teachers


def test_a_teachers_block_is_the_mean_of_its_runs_cosines(world, teachers):
    values, judged = taught(teachers, world, ("development", "validation")).block(
        captions := [c.caption_id for c in world.captions_of("development")][:7], clips := ["clip1", "clip40", "clip0"]
    )
    expected = np.zeros((7, 3))
    for run in teachers:
        model = DualEncoder.load(Path(run))
        sounds, words, _ = model.embed_collection(world, world.clips[:60], world.captions)
        expected += (1 + words.rows(captions).astype(np.float64) @ sounds.rows(clips).T.astype(np.float64)) / 4
    np.testing.assert_allclose(values, expected, atol=1e-6)
    assert judged.all()
    assert ((values >= 0) & (values <= 1)).all()


def test_the_untrained_control_teaches_by_the_other_captions(world, tmp_path):
    train(recipe(OWN), world, tmp_path / "own")
    values, _ = taught([str(tmp_path / "own")], world, ("development",)).block(["clip0#1"], ["clip0", "clip5", "clip9"])
    expected = [(1 + looped_own(world, "clip0#1", clip)) / 2 for clip in ("clip0", "clip5", "clip9")]
    np.testing.assert_allclose(values[0], expected, atol=1e-6)


def test_a_student_gets_nearer_to_its_teachers_ranking(world, tmp_path):
    train(recipe(RECIPE, "train.max_epochs=0", "train.seed=7"), world, tmp_path / "teacher")  # a view of its own
    teacher = [str(tmp_path / "teacher")]
    soft = ("objective.0.target=softmax", "objective.0.target_temperature=0.1", "objective.0.temperature=0.2")
    train(estimated(f"teacher:{teacher[0]}", "train.max_epochs=12", *soft), world, tmp_path / "student")
    train(estimated("captions", "train.max_epochs=12"), world, tmp_path / "alone")
    captions = [c.caption_id for c in world.captions_of("evaluation")]
    clips = [clip.clip_id for clip in world.gallery("evaluation")]
    wanted = taught(teacher, world, ("evaluation",)).block(captions, clips)[0]
    agreement = {}
    for run in ("student", "alone"):
        scores = score(DualEncoder.load(tmp_path / run), world, "evaluation").scorer(captions, clips)
        agreement[run] = np.mean([spearmanr(*pair).statistic for pair in zip(scores, wanted, strict=True)])
    assert agreement["student"] > agreement["alone"] + 0.15


def test_estimates_enter_val_loss_beside_infonce(world, teachers, tmp_path):
    text = ESTIMATED.replace("[[objective]]", '[[objective]]\nloss = "infonce"\nbatch = 8\n[[objective]]', 1)
    lines: list[dict] = []
    names = f"teacher:{teachers[0]}"
    train(recipe(text, f'objective.1.relevance="{names}"'), world, tmp_path / "both", report=lines.append)
    assert "listnet(teacher:0)" in lines[0]
    lighter = recipe(text, f'objective.1.relevance="{names}"', "objective.1.weight=0.5")
    others: list[dict] = []
    train(lighter, world, tmp_path / "lighter", report=others.append)
    assert others[0]["val_loss"] < lines[0]["val_loss"]


def test_resuming_with_another_teacher_is_refused(world, tmp_path):
    teacher = tmp_path / "teacher"
    train(recipe(RECIPE, "train.max_epochs=1"), world, teacher)
    made = estimated(f"teacher:{teacher}", "train.max_epochs=2")

    def stop(line: dict) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(made, world, tmp_path / "run", report=stop)
    train(recipe(RECIPE, "train.max_epochs=1", "train.seed=5"), world, tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(teacher / "model.safetensors")
    with pytest.raises(ConfigError, match=r"started with another .*teacher"):
        train(made, world, tmp_path / "run", resume=True)


def test_a_teacher_that_is_missing_unfinished_or_of_other_vectors_is_refused(world, tmp_path):
    with pytest.raises(ConfigError, match=r"teacher '.*nowhere': no run there"):
        train(estimated(f"teacher:{tmp_path / 'nowhere'}"), world, tmp_path / "run")
    train(recipe(RECIPE, "train.max_epochs=0"), world, tmp_path / "teacher")
    other = vector_world(tmp_path / "other", clips=20)
    vectors = other.clip_vectors
    VectorTable(vectors.ids, vectors.vectors[:, :9]).write(other.root / "clip_vectors.npz")
    with pytest.raises(DataError, match=r"teacher '.*teacher': .*vectors of 9 numbers; expected 16"):
        train(estimated(f"teacher:{tmp_path / 'teacher'}"), Collection.read(other.root), tmp_path / "run")
    (tmp_path / "teacher" / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"teacher '.*teacher': .*not finished"):
        train(estimated(f"teacher:{tmp_path / 'teacher'}"), world, tmp_path / "run")


def test_a_clip_that_a_teacher_cannot_embed_is_refused_unless_nobody_can(tmp_path):
    world = vector_world(tmp_path / "c", clips=20)
    train(recipe(RECIPE, "train.max_epochs=0"), world, tmp_path / "heard")
    captions = [c for c in world.captions if c.caption_id != "clip4#2"]
    thinned = replace(world, captions=captions)
    thinned.write()
    train(recipe(OWN), thinned, tmp_path / "own")
    with pytest.raises(DataError, match=r"teacher:.*no estimate of 1 of 10 clips, the first: clip 'clip4'"):
        train(estimated(f"teacher:{tmp_path / 'own'}"), thinned, tmp_path / "run")
    vectors = world.clip_vectors
    kept = [at for at, clip in enumerate(vectors.ids) if clip != "clip4"]
    VectorTable(tuple(vectors.ids[at] for at in kept), vectors.vectors[kept]).write(world.root / "clip_vectors.npz")
    result = train(estimated(f"teacher:{tmp_path / 'heard'}"), Collection.read(world.root), tmp_path / "run")
    assert [problem.where for problem in result.problems] == ["clip 'clip4'"]


# Recipes


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("objective.0.relevance=teachers", 'expected "captions".*or "teacher:RUN'),
        ("objective.0.relevance=teacher", "relevance = 'teacher'"),
        ("objective.0.relevance=teacher:", "relevance = 'teacher:'"),
        ("objective.0.relevance=teacher:a,,b", "relevance = 'teacher:a,,b'"),
        ("objective.0.target_temperature=0", "target_temperature = 0; expected more than 0"),
        ("objective.0.target_temperature=0.5", 'with target = "phi", which has none'),
    ],
)
def test_a_relevance_or_temperature_that_is_none_is_refused(sets, message):
    with pytest.raises(ConfigError, match=message):
        recipe(ESTIMATED, sets)


@pytest.mark.parametrize("relevance", ["similarity", "teacher:runs/a"])
def test_infonce_takes_no_estimates(relevance):
    with pytest.raises(ConfigError, match="InfoNCE, whose negatives have relevance 0"):
        recipe(OWN, f"objective.0.relevance={relevance}")


def test_estimates_of_a_relevance_are_made_once_and_none_of_stated_ones(world):
    text = ESTIMATED + '[[objective]]\nloss = "listnet"\nrelevance = "similarity"\n[[objective]]\nloss = "infonce"\n'
    made = recipe(text, "objective.0.relevance=similarity")
    model = DualEncoder.for_collection(made.encoders, world)
    assert list(estimates_of(made, world, "validation", model)) == ["similarity"]
    assert estimates_of(recipe(RECIPE), world, "validation", model) == {}


def test_an_untrained_run_saw_nothing(world, tmp_path):
    train(recipe(RECIPE, "train.max_epochs=0"), world, tmp_path / "run")
    assert seen(tmp_path / "run", world, "development").counts() == {
        "clips": 30,
        "trained_on": 0,
        "stopped_training": False,
    }


def test_the_same_sound_twice_is_tied_whatever_the_order_of_the_rows(world, tmp_path):
    train(recipe(RECIPE, "train.max_epochs=0", "model.dim=300", "audio.hidden=200"), world, tmp_path / "run")
    vectors = world.clip_vectors
    gallery = [clip.clip_id for clip in world.gallery("evaluation")]
    twin = dict(zip(gallery[1::2], gallery[::2], strict=False))
    doubled = VectorTable(vectors.ids, vectors.rows([twin.get(clip, clip) for clip in vectors.ids]))
    captions = VectorTable(world.caption_vectors.ids, world.caption_vectors.vectors)
    found = []
    for name, clips in (
        ("as", world.clips),
        ("reversed", world.clips[::-1]),
        ("parted", world.clips[::2] + world.clips[1::2]),
    ):
        collection = Collection(tmp_path / name, list(clips), world.captions, world.ratings, name="small")
        collection.write()
        doubled.write(tmp_path / name / "clip_vectors.npz")
        captions.write(tmp_path / name / "caption_vectors.npz")
        evaluation, scored, _ = evaluate_run(tmp_path / "run", Collection.read(tmp_path / name), "evaluation")
        scores = scored.scorer([caption.caption_id for caption in world.captions_of("evaluation")], gallery)
        pairs = len(gallery) // 2
        np.testing.assert_array_equal(scores[:, 1 : 2 * pairs : 2], scores[:, 0 : 2 * pairs : 2])
        found.append(evaluation)
    for other in found[1:]:
        for measure, values in found[0].text_to_audio.values.items():
            np.testing.assert_array_equal(other.text_to_audio.values[measure], values)


def test_the_order_of_a_clips_captions_changes_no_score():
    captions = [Caption(f"{clip}{k}", clip, f"text {clip} {k}") for clip in "abc" for k in range(5)]
    vectors = np.random.default_rng(0).standard_normal((15, 50)).astype(np.float32)
    vectors[5:10] = vectors[:5]  # the captions of b mean what those of a do
    order = [*range(5), 9, 7, 5, 8, 6, *range(10, 15)]
    own = OwnCaptions([captions[at] for at in order], vectors[order])
    scores = own.scores([f"c{k}" for k in range(5)], ["a", "b"])
    np.testing.assert_array_equal(scores[:, 0], scores[:, 1])
