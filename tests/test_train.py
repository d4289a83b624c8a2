"""Training: it learns, it can be killed, and it says what it was given."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from worlds import RECIPE, tone_world, vector_world

from earmark import Collection, load
from earmark.analyse.score import cosines_of
from earmark.data.splits import MONITORED, with_monitor_split
from earmark.data.vectors import VectorTable
from earmark.errors import ConfigError, DataError
from earmark.learn.checkpoint import Learner
from earmark.learn.measured import evaluate_run
from earmark.learn.objectives import make_objective
from earmark.learn.recipe import Recipe, TrainConfig
from earmark.learn.train import train, uses_bf16
from earmark.model.dual_encoder import DualEncoder

CNN = RECIPE.replace('encoder = "vectors"\nhidden = 32', 'encoder = "cnn14"\nweights = "none"\nwidth = 2').replace(
    '[text]\nencoder = "vectors"', '[text]\nencoder = "all-MiniLM-L6-v2"'
)


def recipe(*sets: str, text: str = RECIPE) -> Recipe:
    tables = tomllib.loads(text)
    from earmark.config import override

    for each in sets:
        override(tables, each)
    return Recipe.from_tables(tables, "test")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return vector_world(tmp_path_factory.mktemp("world") / "c")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def assert_same_weights(a: Path, b: Path) -> None:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_learns_and_leaves_a_whole_run(world, tmp_path):
    lines = []
    untrained = train(recipe("train.max_epochs=0"), world, tmp_path / "untrained")
    result = train(recipe("train.max_epochs=15"), world, tmp_path / "run", report=lines.append)
    assert untrained.epochs == 0
    assert np.isnan(untrained.best)
    assert result.problems == []
    assert lines[-1]["val_loss"] < lines[0]["val_loss"]
    assert max(line["val_mAP"] for line in lines) > 0.6
    assert [json.loads(line) for line in (result.run / "log.jsonl").read_text().splitlines()] == lines
    assert {path.name for path in result.run.iterdir()} == {
        ".lock",
        "config.toml",
        "log.jsonl",
        "checkpoint",
        "model.safetensors",
        "card.md",
    }
    card = (result.run / "card.md").read_text()
    assert "small (GENERATED)" in card
    assert "no test result" in card
    best = min(lines, key=lambda line: line["val_loss"])
    assert result.best_epoch == best["epoch"]
    model = load(result.run)
    clips, _, _ = model.embed_collection(world, world.clips, world.captions)
    assert clips.vectors.shape == (60, 16)


def test_the_kept_weights_are_the_best_epochs(world, tmp_path):
    lines = []
    result = train(recipe("train.max_epochs=12"), world, tmp_path / "long", report=lines.append)
    best = result.best_epoch
    train(recipe(f"train.max_epochs={best}"), world, tmp_path / "short")
    assert_same_weights(tmp_path / "long", tmp_path / "short")


def test_same_seed_same_weights_and_another_seed_others(world, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(recipe("train.max_epochs=2", f"train.seed={seed}"), world, tmp_path / name)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_same_weights(tmp_path / "a", tmp_path / "c")


KILLED = """
import sys, pathlib, tomllib
from earmark import Collection
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
text, data, out = sys.argv[1:4]
recipe = Recipe.from_tables(tomllib.loads(text), "r")
train(recipe, Collection.read(data), pathlib.Path(out), resume=True, checkpoint_s=0)
"""


def run_and_kill(text: str, data: Path, out: Path, after: float, started: str) -> bool:
    """Trains in another process and kills it `after` seconds after `started` is in the run; False if it ended."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, text, str(data), str(out)])
    deadline = time.monotonic() + 120
    while not (out / started).exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(after)
    if process.poll() is not None:
        assert process.returncode == 0
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def test_a_run_killed_at_random_moments_ends_bit_equal(world, tmp_path):
    """A checkpoint follows every step here, so most kills fall into mid-epoch or mid-checkpoint."""
    train(recipe(), world, tmp_path / "whole")
    rng = random.Random(0)
    kills = 0
    for _ in range(5):
        kills += run_and_kill(RECIPE, world.root, tmp_path / "killed", rng.uniform(0, 0.25), "config.toml")
    assert kills >= 3
    train(recipe(), world, tmp_path / "killed", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    whole, killed = (
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("whole", "killed")
    )
    for a, b in zip(whole, killed, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    assert not list((tmp_path / "killed").rglob("*.part"))


def test_cnn14_trains_on_files_and_resumes_bit_equal(tmp_path, sentence_encoder):
    world = tone_world(tmp_path / "tones")
    text = CNN.replace("lists = 2", "").split("[[objective]]")
    text = text[0] + "[[objective]]" + text[1]
    train(recipe("train.max_epochs=3", text=text), world, tmp_path / "whole")
    short = text.replace("max_epochs = 6", "max_epochs = 3")
    run_and_kill(short, world.root, tmp_path / "killed", 0.05, "checkpoint/latest.safetensors")
    train(recipe(text=short), world, tmp_path / "killed", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.case("N08", "A33")
def test_a_silent_clip_trains_and_a_broken_one_costs_itself(tmp_path, sentence_encoder):
    import soundfile

    world = tone_world(tmp_path / "tones", clips=9)
    soundfile.write(world.root / "0.wav", np.zeros(44_100), 44_100)
    (world.root / "1.wav").write_bytes(b"RIFF no sound at all" * 3)
    text = CNN.split("[[objective]]")
    made = recipe("train.max_epochs=1", text=text[0] + "[[objective]]" + text[1])
    with pytest.warns(UserWarning, match=r"1 oddities of sounds, 0\.wav: silent"):
        result = train(made, world, tmp_path / "run")
    assert np.isfinite(result.best)
    (problem,) = result.problems
    assert "clip1" in problem.where
    assert "1.wav" in problem.what
    trained_on = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]["clips"]
    assert trained_on == ["clip0", "clip2", "clip3", "clip4", "clip5"]


def test_runs_are_not_overwritten_mixed_or_shared(world, tmp_path):
    train(recipe("train.max_epochs=1"), world, tmp_path / "run")
    with pytest.raises(ConfigError, match="holds a run already"):
        train(recipe("train.max_epochs=1"), world, tmp_path / "run")
    with pytest.raises(ConfigError, match="started with another train"):
        train(recipe("train.max_epochs=2"), world, tmp_path / "run", resume=True)
    other = vector_world(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match="another data"):
        train(recipe("train.max_epochs=1"), other, tmp_path / "run", resume=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("dear")
    with pytest.raises(ConfigError, match="not a run"):
        train(recipe(), world, tmp_path / "full")
    before = weights(tmp_path / "run")
    train(recipe("train.max_epochs=1"), world, tmp_path / "run", resume=True)  # finished: nothing changes
    assert all(torch.equal(value, before[name]) for name, value in weights(tmp_path / "run").items())


def test_of_two_processes_on_one_run_the_second_is_refused(world, tmp_path):
    import fcntl

    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process"):
            train(recipe(), world, tmp_path / "run")


def test_a_checkpoint_that_is_broken_is_refused(world, tmp_path):
    train(recipe("train.max_epochs=1"), world, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "latest.safetensors").write_bytes(b"\x08" + b"\0" * 20)
    with pytest.raises(DataError, match="not a checkpoint"):
        train(recipe("train.max_epochs=1"), world, tmp_path / "run", resume=True)


def test_without_a_validation_split_a_tenth_is_kept_apart_by_group(world):
    from dataclasses import replace

    clips = [replace(c, split="development", group=f"g{int(c.clip_id[4:]) // 3}") for c in world.clips]
    collection, split = with_monitor_split(replace(world, clips=clips), "", 0)
    assert split == MONITORED
    apart = {c.clip_id for c in collection.gallery(split)}
    assert 3 <= len(apart) <= 9
    assert len({c.group for c in collection.gallery(split)} & {c.group for c in collection.gallery("development")}) == 0
    learned = make_objective(recipe().objectives[1], collection, "development", seed=0)
    assert not apart & set(learned.clip_ids)


@pytest.mark.case("N06")
@pytest.mark.parametrize(("clips", "watched"), [(2, "development"), (3, "development"), (4, MONITORED), (6, MONITORED)])
def test_a_handful_of_clips_trains_too(world, tmp_path, clips, watched):
    from dataclasses import replace

    kept = [replace(clip, split="development") for clip in world.clips[:clips]]
    ids = {clip.clip_id for clip in kept}
    small = replace(world, clips=kept, captions=[c for c in world.captions if c.clip_id in ids], ratings=[])
    text = RECIPE.split("[[objective]]")
    result = train(recipe("train.max_epochs=1", text="[[objective]]".join(text[:2])), small, tmp_path / "run")
    assert result.monitor_split == watched
    assert result.best > 0
    _, split = with_monitor_split(small, "", 0)
    assert split == watched


def test_the_split_that_is_watched_can_be_named_and_must_exist(world):
    assert with_monitor_split(world, "", 0)[1] == "validation"
    assert with_monitor_split(world, "evaluation", 0)[1] == "evaluation"
    with pytest.raises(ConfigError, match="monitor_split = 'dev'"):
        with_monitor_split(world, "dev", 0)


def test_a_collection_without_what_the_recipe_needs_is_refused(world, tmp_path):
    from dataclasses import replace

    unrated = replace(world, ratings=[])
    with pytest.raises(DataError, match=r"rated lists.*needs at least 2"):
        train(recipe(), unrated, tmp_path / "a")
    elsewhere = replace(world, clips=[replace(clip, split="test") for clip in world.clips])
    with pytest.raises(DataError, match="no clips of split 'development'; found test"):
        train(recipe(), elsewhere, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_loss_that_is_not_finite_stops_with_the_place(world, tmp_path, monkeypatch):
    monkeypatch.setattr("earmark.learn.objectives.infonce", lambda *_, **__: torch.tensor(float("nan")))
    with pytest.raises(DataError, match=r"epoch 1, step 1 of \d+: the loss is nan, with clips clip"):
        train(recipe(), world, tmp_path / "run")


def learner(config: TrainConfig, world: Collection) -> Learner:
    r = recipe()
    objectives = [make_objective(each, world, "development", seed=0) for each in r.objectives]
    return Learner(DualEncoder.for_collection(r.encoders, world), objectives, config)


def test_learning_rate_falls_on_the_sixth_bad_epoch_and_training_stops_on_the_tenth(world):
    made = learner(TrainConfig(lr_patience=5, stop_patience=10), world)
    rates = []
    for epoch in range(1, 30):
        made.state.epoch = epoch
        made.judge(1.0)
        rates.append(made.optimiser.param_groups[0]["lr"])
        if made.state.finished:
            break
    assert epoch == 11  # the first one is the best
    assert rates[:6] == [1e-3] * 6
    assert rates[6] == pytest.approx(1e-4)
    assert made.state.best_epoch == 1


def test_val_map_is_watched_upwards(world):
    made = learner(TrainConfig(monitor="val_mAP"), world)
    made.state.epoch = 1
    assert made.judge(0.2)
    made.state.epoch = 2
    assert made.judge(0.3)
    assert not made.judge(0.25)
    assert (made.state.best, made.state.best_epoch) == (0.3, 2)


def test_bf16_is_for_cnn14_on_machines_that_have_it(world, monkeypatch):
    model = DualEncoder.for_collection(recipe().encoders, world)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    assert not uses_bf16(TrainConfig(), model)
    assert uses_bf16(TrainConfig(precision="bf16"), model)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: False)
    with pytest.raises(ConfigError, match="does not compute in bf16"):
        uses_bf16(TrainConfig(precision="bf16"), model)


def test_an_objective_of_weight_zero_is_encoded_but_does_not_teach(world, tmp_path):
    lines = []
    train(recipe("objective.1.weight=0", "train.max_epochs=1"), world, tmp_path / "zero", report=lines.append)
    assert lines[0]["listnet(ratings)"] > 0
    assert lines[0]["train_loss"] == pytest.approx(0.7 * lines[0]["infonce(captions)"])


def test_a_learned_temperature_survives_a_resume(world, tmp_path):
    sets = ('objective.0.temperature="learned"', "train.max_epochs=2")
    train(recipe(*sets), world, tmp_path / "a")
    state = load_file(tmp_path / "a" / "checkpoint" / "latest.safetensors")
    (name,) = [name for name in state if "learned" in name and "optimiser" not in name]
    assert float(state[name].exp()) != pytest.approx(0.07, abs=1e-6)


def test_a_clip_that_cannot_be_read_changes_no_other_draw(world):
    config = recipe('objective.0.clips="rated"', 'objective.0.captions="one"').objectives[0]
    whole = make_objective(config, world, "development", seed=0)
    without = make_objective(config, world, "development", seed=0, without=["clip3"])
    assert without.items == [item for item in whole.items if item.clip_ids != ("clip3",)]


@pytest.mark.case("N06")
def test_what_cannot_teach_is_refused(world, tmp_path):
    from dataclasses import replace

    with pytest.raises(ConfigError, match="every objective's weight is 0"):
        recipe("objective.0.weight=0", "objective.1.weight=0")
    with pytest.raises(ConfigError, match="batch = 1; expected 2 or more"):
        recipe("objective.0.batch=1")
    alike = replace(world, captions=[replace(caption, text="rain") for caption in world.captions])
    with pytest.raises(DataError, match="every caption fits every clip"):
        train(recipe(), alike, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_refused_run_leaves_its_folder_to_the_corrected_one(world, tmp_path):
    from dataclasses import replace

    with pytest.raises(DataError):
        train(recipe(), replace(world, ratings=[]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".lock").touch()
    (tmp_path / "killed" / ".earmark-abc.part").touch()
    assert train(recipe("train.max_epochs=1"), world, tmp_path / "killed").epochs == 1


def test_two_objectives_of_one_kind_are_logged_apart(world, tmp_path):
    lines = []
    made = recipe("objective.1.loss=infonce", "objective.1.relevance=captions", "train.max_epochs=1")
    train(made, world, tmp_path / "run", report=lines.append)
    assert {"infonce(captions) 0", "infonce(captions) 1"} <= set(lines[0])


def test_vectors_of_another_size_are_refused_with_the_cause(world, tmp_path):
    from earmark.data.collection import VectorTable

    train(recipe("train.max_epochs=0"), world, tmp_path / "run")
    model = load(tmp_path / "run")
    other = vector_world(tmp_path / "other")
    ids = other.clip_vectors.ids
    VectorTable(ids, np.ones((len(ids), 3), np.float32)).write(other.root / "clip_vectors.npz")
    other = Collection.read(other.root)
    with pytest.raises(DataError, match="vectors of 3 numbers; expected 16"):
        model.embed_collection(other, other.clips, other.captions)


def test_validation_sees_the_learned_temperature(world, tmp_path):
    from earmark.learn.train import _objectives

    mine, watched = _objectives(recipe('objective.0.temperature="learned"'), world, "validation")
    with torch.no_grad():
        next(iter(mine[0].parameters())).fill_(-1.0)
    assert watched[0].temperature.item() == mine[0].temperature.item()


def test_an_objective_without_items_in_the_watched_split_is_told(world, tmp_path):
    from dataclasses import replace

    inside = {clip.clip_id for clip in world.gallery("development")}
    unrated = replace(world, ratings=[r for r in world.ratings if r.clip_id in inside])
    with pytest.warns(UserWarning, match=r"listnet\(ratings\) has nothing in 'validation'"):
        train(recipe("train.max_epochs=1"), unrated, tmp_path / "run")


def test_without_a_monitor_all_of_development_learns_and_the_last_epoch_is_kept(world, tmp_path):
    from dataclasses import replace

    clips = [clip for clip in world.clips if clip.split != "validation"]
    inside = {clip.clip_id for clip in clips}
    smaller = replace(
        world,
        clips=clips,
        captions=[caption for caption in world.captions if caption.clip_id in inside],
        ratings=[each for each in world.ratings if each.clip_id in inside],
    )
    smaller.write(tmp_path / "smaller")
    collection = Collection.read(tmp_path / "smaller")
    sets = ("train.monitor=last", "train.max_epochs=4", "train.stop_patience=0", "train.lr=1")
    result = train(recipe(*sets), collection, tmp_path / "run")
    assert (result.epochs, result.best_epoch, result.monitor_split) == (4, 4, "development")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert {line["lr"] for line in log} == {1.0}
    trained_on = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]["clips"]
    assert set(trained_on) == {clip.clip_id for clip in collection.gallery("development")}
    card = (tmp_path / "run" / "card.md").read_text()
    assert "4 epochs, of which the last is kept" in card


def test_a_split_that_decides_nothing_is_not_said_to_have_stopped_training(world, tmp_path):
    from earmark.learn.measured import seen

    last = train(recipe("train.monitor=last", "train.max_epochs=2"), world, tmp_path / "last")
    watched = train(recipe("train.max_epochs=2"), world, tmp_path / "watched")
    assert (last.monitor_split, last.decided, watched.decided) == ("validation", False, True)
    assert [seen(run.run, world, "validation").stopped_training for run in (last, watched)] == [False, True]
    cards = [(run.run / "card.md").read_text() for run in (last, watched)]
    assert ["stopped training" in card for card in cards] == [False, True]
    assert ["by which the epoch was chosen" in card for card in cards] == [False, True]


def test_a_cnn_that_was_stopped_and_resumed_ends_bit_equal(tmp_path, sentence_encoder):
    world = tone_world(tmp_path / "tones", clips=9)
    text = CNN.split("[[objective]]")
    made = recipe("train.max_epochs=3", "audio.augment=spec+gain", text=text[0] + "[[objective]]" + text[1])

    def stop(line: dict) -> None:
        if line["epoch"] == 1:
            raise KeyboardInterrupt

    train(made, world, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(made, world, tmp_path / "stopped", report=stop)
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    train(made, world, tmp_path / "stopped", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")


def without_vector(root: Path, name: str, value: float | None) -> None:
    """The caption's vector is gone, or holds that value."""
    path = root / "caption_vectors.npz"
    table = VectorTable.read(path)
    keep = [at for at, each in enumerate(table.ids) if value is not None or each != name]
    vectors = table.vectors[keep].copy()
    if value is not None:
        vectors[table.ids.index(name)] = value
    VectorTable(tuple(table.ids[at] for at in keep), vectors).write(path)


@pytest.mark.parametrize(("value", "what"), [(None, "no vector"), (np.nan, "not finite")])
def test_a_caption_without_a_whole_vector_costs_itself_alone(tmp_path, value, what):
    found = vector_world(tmp_path / "c")
    without_vector(found.root, "clip0#1", value)  # rated, of development
    result = train(recipe("train.max_epochs=1"), Collection.read(found.root), tmp_path / "run")
    assert [(each.where, what in each.what) for each in result.problems] == [("caption 'clip0#1'", True)]
    card = (tmp_path / "run" / "card.md").read_text()
    assert "Clips left out because they could not be read: 0." in card
    assert "Captions left out because they could not be read: 1." in card
    train(recipe("train.max_epochs=1"), Collection.read(found.root), tmp_path / "run", resume=True)
    evaluation, scored, seen = evaluate_run(tmp_path / "run", Collection.read(found.root), "development")
    assert [each.where for each in scored.problems] == ["caption 'clip0#1'"]
    assert (evaluation.numbers()["text_to_audio"]["queries"], seen.trained_on) == (59, 30)
    assert evaluate_run(tmp_path / "run", Collection.read(found.root), "evaluation")[1].problems == []
    asked = [("clip0#1", "clip1"), ("clip1#1", "clip1")]
    cosines, problems = cosines_of(DualEncoder.load(tmp_path / "run"), Collection.read(found.root), asked, None)
    assert np.isfinite(cosines).tolist() == [False, True]
    assert [each.where for each in problems] == ["caption 'clip0#1'"]


def test_where_no_caption_has_a_vector_nothing_is_trained(tmp_path):
    found = vector_world(tmp_path / "c")
    VectorTable(tuple(c.caption_id for c in found.captions), np.full((120, 12), np.nan, np.float32)).write(
        found.root / "caption_vectors.npz"
    )
    with pytest.raises(DataError, match="no caption's vector is finite"):
        train(recipe("train.max_epochs=1"), Collection.read(found.root), tmp_path / "run")


def other_words(found: Collection) -> Collection:
    return replace(found, captions=[replace(each, text=f"other {each.text}") for each in found.captions])


def test_clips_of_another_collection_of_the_same_name_trained_nothing(world, tmp_path):
    from earmark.learn.measured import seen

    run = train(recipe("train.max_epochs=1"), world, tmp_path / "run").run
    elsewhere = other_words(vector_world(tmp_path / "other", seed=1))
    assert elsewhere.name == world.name
    assert [seen(run, elsewhere, split).trained_on for split in ("development", "validation")] == [0, 0]
    assert not seen(run, elsewhere, "validation").stopped_training
    assert seen(run, elsewhere, "development").texts == frozenset()


def test_the_same_clips_are_known_by_their_sounds_or_their_words(world, tmp_path):
    from earmark.learn.measured import seen

    run = train(recipe("train.max_epochs=1"), world, tmp_path / "run").run
    clips = [replace(each, split="all") for each in world.clips]
    for same in (
        replace(world, name="imported again", ratings=[], clips=clips),
        replace(other_words(world), clips=clips),  # the vectors stand for the sounds
        replace(vector_world(tmp_path / "embedded anew", seed=1), clips=clips),  # of the same words
    ):
        known = seen(run, same, "all")
        assert (known.clips, known.trained_on, known.stopped_training) == (60, 30, True)
    part = replace(world, clips=[each for each in world.clips if each.split == "validation"])
    assert seen(run, part, "validation").stopped_training


def test_sounds_tell_clips_apart_that_have_no_captions_in_common(tmp_path):
    from earmark.data.marks import marks, same_clips

    world = tone_world(tmp_path / "w")
    known = marks(world, [clip.clip_id for clip in world.clips])
    assert same_clips(other_words(world), known) == set(known)
    (world.root / "3.wav").write_bytes((world.root / "4.wav").read_bytes())
    assert same_clips(other_words(world), known) == set(known) - {"clip3"}
    assert same_clips(world, known) == set(known)


def test_a_run_of_an_earlier_version_goes_by_names_and_says_so(world, tmp_path):
    from earmark.learn.measured import seen

    run = train(recipe("train.max_epochs=1"), world, tmp_path / "run").run
    tables = tomllib.loads((run / "config.toml").read_text())
    del tables["data"]["marks"], tables["data"]["watched"]
    (run / "config.toml").write_text(tomli_w.dumps(tables))
    assert seen(run, world, "development").trained_on == 30  # its fingerprint is the same: nothing to say
    elsewhere = other_words(vector_world(tmp_path / "other", seed=1))
    with pytest.warns(UserWarning, match="of an earlier version, which kept no marks"):
        assert seen(run, elsewhere, "development").trained_on == 30
    assert seen(run, replace(elsewhere, name="x", clips=elsewhere.clips[30:]), "validation").trained_on == 0
    train(recipe("train.max_epochs=1"), world, run, resume=True)
