"""DCASE's files: what stands in them, ties, names, and the command that writes them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from worlds import vector_world

from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import DataError
from earmark.measure import evaluate, submissions
from earmark.measure.submissions import file_names, scores_path, write_dcase


def world(clips: int, texts: Sequence[str]) -> Collection:
    made = [Clip(f"c{number}", f"sounds/{number}, x.wav", "evaluation") for number in range(clips)]
    captions = [Caption(f"q{number}", f"c{number % clips}", text) for number, text in enumerate(texts)]
    return Collection(Path("nowhere"), made, captions)


def cells(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


class Table:
    """Scores by id; remembers how many were asked for at once."""

    def __init__(self, scores: NDArray[np.float32]) -> None:
        self.scores = scores
        self.most = 0

    def __call__(self, captions: Sequence[str], clips: Sequence[str]) -> NDArray[np.float32]:
        self.most = max(self.most, len(captions))
        return self.scores[np.ix_([int(c[1:]) for c in captions], [int(c[1:]) for c in clips])]


def test_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "QUERIES_AT_ONCE", 2)
    texts = ["Rain", 'a "loud", long\r\nbang', "Rain", "=1+1", "Wind; sea"]
    scores = np.random.default_rng(0).standard_normal((5, 12)).astype(np.float32)
    table = Table(scores)
    write_dcase(tmp_path / "out.csv", world(12, texts), "evaluation", table)
    assert table.most == 2
    ranked = cells(tmp_path / "out.csv")
    assert ranked[0] == ["caption", *(f"file_name_{place}" for place in range(1, 11))]
    assert [row[0] for row in ranked[1:]] == texts
    for row, own in zip(ranked[1:], scores, strict=True):
        assert row[1:] == [f"{at}, x.wav" for at in np.argsort(-own)[:10]]
    matrix = cells(tmp_path / "out.scores.csv")
    assert matrix[0] == ["index", *(f"{at}, x.wav" for at in range(12))]
    assert [row[0] for row in matrix[1:]] == ["Rain", texts[1], "=1+1", "Wind; sea"]  # each text once
    np.testing.assert_array_equal(np.array([row[1:] for row in matrix[1:]], dtype=np.float32), scores[[0, 1, 3, 4]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.scores.csv"]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_ties_stand_in_the_order_of_the_clips(values: list[int]) -> None:
    row = np.array([values], dtype=np.float32)
    expected = sorted(range(len(values)), key=lambda at: (-values[at], at))[:10]
    assert list(submissions._best(row)) == [expected]


def test_fewer_than_ten_clips_leave_cells_empty_and_those_without_an_embedding_leave(tmp_path: Path) -> None:
    table = Table(np.array([[1.0, 3.0, 2.0]] * 3, dtype=np.float32))
    write_dcase(tmp_path / "out.csv", world(3, ["A", "B", "C"]), None, table, without=frozenset({"c1"}))
    assert cells(tmp_path / "out.csv")[1:] == [
        ["A", "2, x.wav", "0, x.wav", *[""] * 8],
        ["C", "2, x.wav", "0, x.wav", *[""] * 8],
    ]
    assert cells(tmp_path / "out.scores.csv") == [["index", "0, x.wav", "2, x.wav"], ["A", "1", "2"], ["C", "1", "2"]]


def test_clips_go_by_the_names_of_the_data_set() -> None:
    clips = [Clip("a", "x/1.wav", "s", more={"file_name": "one.wav"}), Clip("b", "x/2.wav", "s"), Clip("c", "", "s")]
    assert file_names(Collection(Path("w"), clips, []), "s") == {"a": "one.wav", "b": "2.wav", "c": "c"}
    twice = Collection(Path("w"), [Clip("a", "x/1.wav", "s"), Clip("b", "y/1.wav", "s"), Clip("c", "y/1.wav", "t")], [])
    with pytest.raises(DataError, match=r"'a' and 'b' are both called '1\.wav'"):
        file_names(twice, "s")
    assert file_names(twice, "t") == {"c": "1.wav"}
    assert scores_path(Path("d/a.b.csv")) == Path("d/a.b.scores.csv")


def test_nothing_is_left_of_files_that_could_not_be_finished(tmp_path: Path) -> None:
    def fails(captions: Sequence[str], clips: Sequence[str]) -> NDArray[np.float32]:
        raise DataError("no scores")

    with pytest.raises(DataError, match="no scores"):
        write_dcase(tmp_path / "out.csv", world(3, ["A"]), None, fails)
    assert list(tmp_path.iterdir()) == []


def test_a_run_writes_them(tmp_path: Path) -> None:
    from typer.testing import CliRunner
    from worlds import RECIPE

    from earmark.cli import app
    from earmark.learn import train
    from earmark.learn.recipe import Recipe

    collection = vector_world(tmp_path / "small")
    (tmp_path / "r.toml").write_text(RECIPE)
    train.train(Recipe.read(tmp_path / "r.toml", ["train.max_epochs=1"]), collection, tmp_path / "run")
    arguments = ["evaluate", tmp_path / "run", "--data", tmp_path / "small", "--dcase", tmp_path / "dcase" / "out.csv"]
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    assert "mAP@16" in done.output
    ranked, matrix = cells(tmp_path / "dcase" / "out.csv"), cells(tmp_path / "dcase" / "out.scores.csv")
    assert (len(ranked), len(matrix), len(matrix[0])) == (31, 31, 16)
    best = np.argmax(np.array([row[1:] for row in matrix[1:]], dtype=np.float32), axis=1)
    assert [row[1] for row in ranked[1:]] == [matrix[0][1 + at] for at in best]
