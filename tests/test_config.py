from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from earmark.config import from_table, override
from earmark.errors import ConfigError
from earmark.learn.recipe import Recipe, read_expected

FILES = sorted((Path(__file__).parent.parent / "recipes").glob("*.toml"))
GRIDS = [path for path in FILES if "[[run]]" in path.read_text()]
RECIPES = [path for path in FILES if path not in GRIDS]
SMALL = {"objective": [{"loss": "infonce"}]}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_read_and_states_its_result(path):
    recipe = Recipe.read(path)
    assert recipe.expected is not None
    assert recipe.expected.metrics
    again = Recipe.from_tables(tomllib.loads(path.read_text()), "again")
    assert again == recipe


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_grid_that_is_taken_for_a_recipe_is_told(path):
    with pytest.raises(ConfigError, match="Take `earmark experiment`"):
        Recipe.read(path)


def test_listnets_defaults_are_ratings_and_omega():
    (objective,) = Recipe.from_tables({"objective": [{"loss": "listnet"}]}, "r").objectives
    assert (objective.relevance, objective.temperature) == ("ratings", 0.1)


def test_a_complete_recipe_reads_back_as_itself():
    recipe = Recipe.from_tables({**SMALL, "train": {"seed": 3}}, "r")
    assert Recipe.from_tables(recipe.complete(), "again") == recipe


def test_defaults_are_the_papers_settings():
    recipe = Recipe.from_tables(SMALL, "r")
    assert (recipe.train.lr, recipe.train.lr_patience, recipe.train.stop_patience) == (1e-3, 5, 10)
    assert (recipe.encoders.model.dim, recipe.encoders.audio.encoder) == (300, "cnn14")
    assert recipe.encoders.text.encoder == "all-mpnet-base-v2"
    assert (recipe.objectives[0].temperature, recipe.objectives[0].batch) == (0.07, 32)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({**SMALL, "trian": {}}, "unknown key 'trian'; did you mean 'train'"),
        ({**SMALL, "train": {"sed": 1}}, "r: train: unknown key 'sed'; did you mean 'seed'"),
        ({"objective": [{"loss": "infonce", "temprature": 1}]}, "objective.0: unknown key 'temprature'"),
        ({"objective": [{"loss": "hinge"}]}, 'expected "infonce" or "listnet"'),
        ({"objective": [{}]}, "no loss"),
        ({}, "no \\[\\[objective\\]\\]"),
        ({**SMALL, "train": {"lr": "fast"}}, "train.lr = 'fast'; expected a number"),
        ({**SMALL, "train": {"lr": 0}}, "lr = 0; expected more than 0"),
        ({**SMALL, "train": {"seed": True}}, "seed = True; expected a whole number"),
        ({**SMALL, "train": {"max_epochs": -1}}, "max_epochs = -1; expected 0 or more"),
        ({"objective": [{"loss": "infonce", "batch": 0}]}, "batch = 0; expected 2 or more"),
        ({"objective": [{"loss": "infonce", "weight": -1}]}, "weight = -1; expected 0 or more"),
        ({"objective": [{"loss": "infonce", "temperature": 0}]}, "temperature = 0; expected more than 0"),
        ({**SMALL, "expected": {"split": "x"}}, "expected: no collection"),
        ({**SMALL, "expected": 5}, "expected = 5; expected a table"),
        ({**SMALL, "model": 5}, "model = 5; expected a table"),
        ({"objective": [3]}, "no loss"),
        ({**SMALL, "train": {"seed": 1 << 70}}, "seed = .*below"),
        (
            {
                **SMALL,
                "expected": {
                    "collection": "c",
                    "split": "s",
                    "source": "measured",
                    "metrics": {"mAP": {"value": "x", "tolerance": 1}},
                },
            },
            "expected.metrics.mAP",
        ),
    ],
)
def test_wrong_recipes_are_refused_with_place_and_remedy(tables, message):
    with pytest.raises(ConfigError, match=message):
        Recipe.from_tables(tables, "r")


def test_set_reaches_tables_lists_and_new_keys():
    tables = {"objective": [{"loss": "infonce"}, {"loss": "listnet"}], "train": {}}
    for each in ("objective.1.weight=0.5", "train.seed=3", "audio.encoder=vectors", 'text.encoder="a b"'):
        override(tables, each)
    assert tables["objective"][1]["weight"] == 0.5
    assert tables["train"]["seed"] == 3
    assert tables["audio"]["encoder"] == "vectors"
    assert tables["text"]["encoder"] == "a b"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed", "expected seed=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("objective.5.weight=1", "'5' is not a place in a list of 1"),
        ("objective.first.weight=1", "is not a place"),
        ("objective.0.loss.deep=1", "is a value, not a table"),
    ],
)
def test_wrong_sets_are_refused(assignment, message):
    with pytest.raises(ConfigError, match=message):
        override({"objective": [{"loss": "infonce"}]}, assignment)


def test_expected_is_reached_missed_or_not_meant():
    table = {
        "collection": "c",
        "split": "validation",
        "source": "measured",
        "metrics": {"text_to_audio.mAP": {"value": 0.2, "tolerance": 0.02}},
    }
    expected = read_expected({"expected": table}, "r")
    results = {"collection": "c", "split": "validation", "text_to_audio": {"mAP": 0.19}}
    assert expected.missed(results) == []
    assert expected.missed({**results, "text_to_audio": {"mAP": 0.1}}) == [
        "text_to_audio.mAP is 0.100; expected 0.2 ± 0.02"
    ]
    assert "undefined" in expected.missed({**results, "text_to_audio": {"mAP": None}})[0]
    assert expected.missed({**results, "split": "evaluation", "text_to_audio": {"mAP": 0}}) == []


def test_a_recipe_that_is_not_toml_says_where(tmp_path):
    (tmp_path / "r.toml").write_text("[train]\nseed = \n")
    with pytest.raises(ConfigError, match="line 2"):
        Recipe.read(tmp_path / "r.toml")


@dataclass(frozen=True)
class Listed:
    names: list[str] = field(default_factory=list)
    numbers: list[float | None] = field(default_factory=list)


def test_lists_hold_what_they_say():
    found = from_table(Listed, {"names": ["a"], "numbers": [1, 0.5, None]}, "x")
    assert (found.names, found.numbers) == (["a"], [1, 0.5, None])
    for table in ({"names": [1]}, {"names": [["a"]]}, {"names": "a"}, {"numbers": ["1"]}, {"numbers": [True]}):
        with pytest.raises(ConfigError, match="expected a list, each a "):
            from_table(Listed, table, "x")
