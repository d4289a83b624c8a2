"""How much of the exact answer an index gives: exact below 100,000 windows, measured above."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_engine import made, many, reading, vector_of
from typer.testing import CliRunner

from earmark.cli import app
from earmark.search import nearest, ranking, recall
from earmark.search.engine import Engine
from earmark.search.nearest import Listed
from earmark.search.query import Filters
from earmark.search.recall import ENOUGH, check, some_filters


@pytest.fixture(autouse=True)
def made_words(monkeypatch):
    """Words are read as random vectors: no model is loaded."""
    monkeypatch.setattr(recall, "Engine", lambda folder: reading(Engine(folder)))


@pytest.fixture
def many_windows(tmp_path, monkeypatch):
    """Some 3,000 windows, searched by IVF_SQ."""
    for module in (ranking, nearest):
        monkeypatch.setattr(module, "EXACT_BELOW", 500)
    monkeypatch.setattr(ranking, "PARTITION", 50)
    return made(tmp_path / "index", many(1000)).store


def test_small_indices_are_exact(tmp_path):
    found = check(made(tmp_path / "index", many(120)).store)
    assert found.exact
    assert found.good
    assert [row.recall for row in found.rows] == [1.0] * len(found.rows)
    assert len(found.rows) == 3
    assert "exact" in found.lines()[0]


def test_of_files_that_sound_the_same_any_will_do(tmp_path, monkeypatch):
    at = made(tmp_path / "index", many(60)).view()
    question = np.stack([vector_of("a")])
    exact = recall._exact(at, question, [Filters()], None)[0]
    last = min(exact[0].values())
    found = nearest.Near([*list(exact[0])[:9], "twin"], {"twin": last + 1e-7})
    monkeypatch.setattr(type(at), "nearest", lambda *_, **__: found)
    assert recall._measured(at, "", "", question, exact).recall == 1.0


def test_what_users_get_is_compared_with_exact_search(many_windows):
    found = check(many_windows, windows=30, words=10)
    assert not found.exact
    assert [row.queries for row in found.rows] == [32] * 3  # the files carry two words of three letters or more
    assert found.good
    assert "IVF_SQ" in found.lines()[0]
    assert json.loads(json.dumps(found.as_json()))["good"] is True


def test_too_little_recall_is_told_with_what_to_do(many_windows, monkeypatch):
    monkeypatch.setattr(Listed, "nearest", lambda *_, **__: nearest.Near([], {}))
    found = check(many_windows, windows=10, words=0)
    assert not found.good
    assert [row.recall for row in found.rows] == [0.0] * 3
    assert f"below {ENOUGH}" in found.lines()[-1]
    assert "--rebuild" in found.lines()[-1]


def test_recall_is_the_share_of_the_exact_ten(tmp_path, monkeypatch):
    engine = made(tmp_path / "index", many(60))
    at = engine.view()
    question = np.stack([vector_of("a")])
    exact = recall._exact(at, question, [Filters()], None)[0]
    order = at.nearest(nearest.Wanted(question[0]), "", 10).order
    assert list(exact[0]) == order
    monkeypatch.setattr(type(at), "nearest", lambda *_, **__: nearest.Near([*order[:7], "x"], {}))
    row = recall._measured(at, "no filter", "", question, exact)
    assert (row.recall, row.least, row.queries) == (0.7, 0.7, 1)


def test_filters_are_wide_and_narrow(tmp_path):
    at = made(tmp_path / "index", many(600)).view()
    named = some_filters(at)
    assert list(named)[:2] == ["no filter", "a wide filter (--longest 15)"]
    shares = [at.searched(ranking.condition(filters)) / 600 for filters in named.values()]
    assert shares[0] == 1.0
    assert shares[1] == pytest.approx(0.5, abs=0.1)
    assert 0 < shares[2] < 0.06


def test_an_index_of_nothing_has_nothing_to_measure(tmp_path):
    found = check(made(tmp_path / "index", []).store)
    assert (found.windows, found.rows, found.good) == (0, [], True)


def test_the_command_measures(tmp_path):
    made(tmp_path / "index", many(40))
    result = CliRunner().invoke(app, ["index", "--to", str(tmp_path / "index"), "--check", "--json", "-"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["exact"] is True
