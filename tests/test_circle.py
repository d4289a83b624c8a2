"""The circle: pairs are pooled from generated sounds, simulated listeners rate them over HTTP, and a model learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.collect.export import export
from earmark.collect.flow import Flow
from earmark.collect.plan import Plan
from earmark.collect.pool import make_study
from earmark.collect.rehearse import REHEARSAL, serve_and_rehearse, truth_of
from earmark.collect.sources import read_source
from earmark.collect.store import Store
from earmark.collect.study import Settings, Study
from earmark.data import soundscapes
from earmark.data.collection import Collection
from earmark.errors import DataError
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.measure.raters import raters
from earmark.model.embed import embed

ROOT = Path(__file__).resolve().parent.parent
LISTENERS = 12
CAPTIONS, RATERS_A_PAGE, PAGES_A_RATER = 24, 2, 18
"""Two pages a rater more than all need: else the last page may be left to someone who has had it."""


@pytest.fixture(scope="module")
def sounds(tmp_path_factory, sentence_encoder) -> Collection:
    made = soundscapes.generate(tmp_path_factory.mktemp("circle") / "sounds", clips=100, seed=0)
    embed(made, "yamnet", text="all-MiniLM-L6-v2")
    return Collection.read(made.root)


@pytest.fixture(scope="module")
def rehearsed(sounds):
    # of twelve honest listeners one fails the usual qualification (.75) in one rehearsal of twelve
    settings = Settings(raters_a_page=RATERS_A_PAGE, pages_a_rater=PAGES_A_RATER, qualify_share=0.5)
    plan = Plan(captions=CAPTIONS, split="development", again=True, encoder="all-MiniLM-L6-v2", study=settings)
    study = make_study(sounds, sounds.root.parent / "study", plan)
    return study, serve_and_rehearse(study, LISTENERS, 0)


@pytest.fixture(scope="module")
def rated(rehearsed, sounds) -> Collection:
    study, _ = rehearsed
    source = read_source(study.folder, store=str(study.folder / REHEARSAL))
    export(source, sounds.root.parent / "rated")
    return Collection.read(sounds.root.parent / "rated")


def test_all_listeners_come_to_the_end(rehearsed):
    study, done = rehearsed
    tasks = len(study.of_kind("task")) * RATERS_A_PAGE
    assert tasks == LISTENERS * (PAGES_A_RATER - 2)
    assert (done.raters, done.failed, done.retried) == (LISTENERS, 0, 0)
    store = Store.open(study.folder / REHEARSAL)
    assert [each.sound_passed for each in Flow(study, store, rehearsal=True).raters()] == [True] * LISTENERS
    store.close()
    assert done.pages >= tasks  # and checks
    assert done.ratings == len(done.kept) == len(set(done.kept))


def test_what_is_exported_is_what_they_answered(rehearsed, rated):
    study, _ = rehearsed
    asked = {(page.caption_id, item.clip_id) for page in study.of_kind("task") for item in page.items}
    assert len(rated.ratings) == RATERS_A_PAGE * len(asked)
    assert {(each.caption_id, each.clip_id) for each in rated.ratings} == asked
    assert len({each.rater_id for each in rated.ratings}) == LISTENERS
    assert rated.kind == "generated"
    truth = truth_of(study)
    means = {pair: [] for pair in asked}
    for each in rated.ratings:
        means[each.caption_id, each.clip_id].append(each.rating)
        assert each.played_s > 0
        assert float(each.more["rated_s"]) >= each.played_s - 0.001  # the study's clock, on which it was heard first
        assert each.stratum in ("own", "similar", "random")
        assert 0 < each.probability <= 1
    told, true = zip(*((np.mean(values), truth(*pair)) for pair, values in means.items()), strict=True)
    assert np.corrcoef(told, true)[0, 1] > 0.85


def test_honest_listeners_have_no_flag(rated):
    assert not raters(rated.ratings).flagged


@pytest.mark.filterwarnings("ignore:listnet.* has nothing in 'validation'")  # the listeners were asked of development
@pytest.mark.parametrize("name", ["joint", "ratings"])
def test_models_learn_from_their_ratings(name, sounds, rated, tmp_path):
    tables = (ROOT / "recipes" / "frozen-joint.toml").read_text()
    (tmp_path / "recipe.toml").write_text(tables)
    weights = {"joint": 0.7, "ratings": 0.0, "captions": 0.7}

    def rho(run: str, ratings: float, epochs: int = 40) -> float:
        sets = [f"objective.0.weight={weights[run]}", f"objective.1.weight={ratings}"]
        sets += [f"train.max_epochs={epochs}", "train.monitor=val_mAP", "audio.dropout=0.5"]
        train(Recipe.read(tmp_path / "recipe.toml", sets), rated, tmp_path / f"{run}{epochs}")
        return float(
            evaluate_run(tmp_path / f"{run}{epochs}", sounds, "evaluation")[0].numbers()["ratings"]["spearman"]
        )

    found = rho(name, 0.3)
    print(f"Spearman ρ with the simulated ratings of evaluation, GENERATED: {found:.3f}")
    if name == "joint":
        without = rho("captions", 0.0)
        print(f"without the listeners' ratings: {without:.3f}")
        assert found > without - 0.1
        assert found > 0.1
    else:
        untrained = rho("ratings", 0.3, epochs=0)
        print(f"untrained: {untrained:.3f}")
        assert found > untrained + 0.1


def test_a_rehearsal_is_not_repeated_over_another(rehearsed, tmp_path):
    from typer.testing import CliRunner

    from earmark.cli import app

    study, _ = rehearsed
    said = CliRunner().invoke(app, ["collect", "rehearse", str(study.folder)])
    assert isinstance(said.exception, DataError)
    assert "is there already" in str(said.exception)


def test_a_study_reads_back(rehearsed):
    study, _ = rehearsed
    assert Study.read(study.folder) == study
