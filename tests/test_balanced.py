"""Draws with exact chances: sums, bounds, and frequencies over many draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.collect import balanced


def table(captions: int, clips: int, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`size` clips for each caption, some clips far more often than others."""
    rng = np.random.default_rng(seed)
    odds = rng.gamma(1, 1, clips) + 0.01
    columns = [np.sort(rng.choice(clips, size, replace=False, p=odds / odds.sum())) for _ in range(captions)]
    return np.repeat(np.arange(captions), size), np.concatenate(columns)


@st.composite
def tables(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Row, column, counts and how many clips there are."""
    clips = draw(st.integers(1, 9))
    rows = draw(st.lists(st.sets(st.integers(0, clips - 1)), min_size=1, max_size=8))
    counts = [draw(st.integers(0, len(each))) for each in rows]
    full = [sorted(each) if count else [] for each, count in zip(rows, counts, strict=True)]
    row = np.repeat(np.arange(len(rows)), [len(each) for each in full])
    return row, np.array([at for each in full for at in each], dtype=np.int64), np.array(counts), clips


@given(tables(), st.sampled_from([1.0, 2.0, 10.0]), st.integers(0, 2**32))
def test_every_caption_gets_its_count_and_every_clip_its_chances_rounded(made, reach, seed):
    row, column, counts, clips = made
    if not len(row):
        return
    chances = balanced.chances(row, column, counts, np.zeros(clips), reach)
    assert ((chances > 0) & (chances <= 1)).all()
    assert np.bincount(row, chances, len(counts)) == pytest.approx(counts)
    taken = balanced.drawn(row, column, chances, np.random.default_rng(seed))
    assert (np.bincount(row[taken], minlength=len(counts)) == counts).all()
    times, sums = np.bincount(column[taken], minlength=clips), np.bincount(column, chances, clips)
    assert (times >= np.floor(sums + 1e-9) - 1e-9).all()
    assert (times <= np.ceil(sums - 1e-9) + 1e-9).all()


def test_frequencies_over_many_draws_are_the_chances():
    row, column = table(12, 20, 8)
    chances = balanced.chances(row, column, np.full(12, 3), np.zeros(20), 2.0)
    assert chances.std() > 0.03  # not all alike
    draws = 1500
    seen = sum(balanced.drawn(row, column, chances, np.random.default_rng(seed)) for seed in range(draws))
    sure = chances > 1 - 1e-9
    assert (seen[sure] == draws).all()
    z = (seen / draws - chances)[~sure] / np.sqrt(chances * (1 - chances) / draws)[~sure]
    assert abs(z).max() < 4  # 96 of them
    assert 0.8 < z.std() < 1.2


def test_frequencies_are_the_chances_where_a_part_is_drawn_first(monkeypatch):
    monkeypatch.setattr(balanced, "MOST", 60)
    row, column = table(6, 30, 25)
    chances = balanced.chances(row, column, np.full(6, 2), np.zeros(30), 2.0)
    draws = 1500
    seen = np.zeros(len(row))
    for seed in range(draws):
        taken = balanced.drawn(row, column, chances, np.random.default_rng(seed))
        assert (np.bincount(row[taken], minlength=6) == 2).all()
        seen += taken
    z = (seen / draws - chances) / np.sqrt(chances * (1 - chances) / draws)
    assert abs(z).max() < 4
    assert 0.8 < z.std() < 1.2


def test_of_a_large_table_every_clip_is_drawn_nearly_as_often_as_expected(monkeypatch):
    monkeypatch.setattr(balanced, "MOST", 20_000)
    row, column = table(200, 180, 150)
    chances = balanced.chances(row, column, np.full(200, 3), np.zeros(180), 1.0)
    taken = balanced.drawn(row, column, chances, np.random.default_rng(0))
    sums = np.bincount(column, chances, 180)
    away = np.bincount(column[taken], minlength=180) - sums
    assert abs(away).max() < 3
    assert away.std() < 0.4 * np.sqrt(sums.mean())  # about 1 times that where each caption's clips are drawn alone


def test_chances_of_clips_that_are_asked_often_are_lowered_within_reach():
    row, column = table(40, 30, 10)
    even = balanced.chances(row, column, np.full(40, 4), np.zeros(30), 1.0)
    assert even == pytest.approx(np.full(400, 0.4))
    found = balanced.chances(row, column, np.full(40, 4), np.zeros(30), 2.0)
    asked = [np.bincount(column, chances, 30) for chances in (even, found)]
    assert asked[1].std() < 0.7 * asked[0].std()
    assert found.min() > 0.4 / 4
    rare = int(asked[0].argmin() if asked[0].all() else np.flatnonzero(asked[0])[0])
    elsewhere = np.where(np.arange(30) == rare, 50.0, 0.0)
    lower = balanced.chances(row, column, np.full(40, 4), elsewhere, 2.0)
    assert lower[column == rare].mean() < found[column == rare].mean()
