"""What vectors score with one another: exactly, wherever they stand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.data.vectors import products


def unit(count: int, size: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_equal_vectors_score_equally_wherever_they_stand():
    for size, count in ((16, 15), (300, 37), (384, 101), (1024, 333)):
        asked, sounds = unit(61, size), unit(count, size, 1)
        sounds[-1] = sounds[0]
        sounds[count // 2] = sounds[3]
        scores = products(asked, sounds)
        assert scores.dtype == np.float32
        np.testing.assert_array_equal(scores[:, -1], scores[:, 0])
        np.testing.assert_array_equal(scores[:, count // 2], scores[:, 3])


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3, 64, 300]), st.randoms(use_true_random=False))
def test_the_order_of_the_vectors_and_what_else_is_asked_change_nothing(rows, columns, size, random):
    asked, sounds = unit(rows, size), unit(columns, size, 1)
    scores = products(asked, sounds)
    i, j = random.sample(range(rows), rows), random.sample(range(columns), columns)
    np.testing.assert_array_equal(products(asked[i], sounds[j]), scores[i][:, j])
    np.testing.assert_array_equal(products(asked[:1], sounds[-1:]), scores[:1, -1:])
    np.testing.assert_array_equal(products(sounds, asked), scores.T)
    assert all(products(asked, np.asfortranarray(sounds))[0] == scores[0])


def test_they_are_no_farther_from_the_true_products_than_those_in_float32():
    asked, sounds = unit(30, 1024), unit(30, 1024, 1)
    exact = np.array([[math.fsum((a.astype(float) * b).tolist()) for b in sounds] for a in asked])
    error = np.abs(products(asked, sounds) - exact).max()
    assert error < 3e-8 < np.abs(asked @ sounds.T - exact).max()


@pytest.mark.parametrize(("a", "b"), [(1e-30, 1e20), (1e-4, 3.0), (123.0, 1e15), (0.9999999, 1.0000001), (1.33, 1.34)])
def test_lengths_do_not_matter(a, b):
    asked, sounds = (unit(8, 50) * np.float32(a)), (unit(8, 50, 1) * np.float32(b))
    exact = asked.astype(np.float64) @ sounds.T.astype(np.float64)
    np.testing.assert_allclose(products(asked, sounds), exact, atol=1.5 * 50**0.5 * 2**-26 * a * b, rtol=2**-23)
    np.testing.assert_array_equal(products(asked[::-1], sounds), products(asked, sounds)[::-1])


def test_zero_is_zero_and_what_is_not_finite_stays_so():
    sounds = unit(4, 5)
    sounds[0] = 0
    sounds[1, 2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = products(unit(3, 5, 1), sounds)
    assert (scores[:, 0] == 0).all()
    assert np.isnan(scores[:, 1]).all()
    assert np.isfinite(scores[:, 2:]).all()
    assert products(np.array([[np.inf, 1]], np.float32), np.array([[1, 1]], np.float32)) == np.inf
    assert products(np.zeros((0, 5), np.float32), sounds).shape == (0, 4)
    assert products(np.zeros((2, 0), np.float32), np.zeros((3, 0), np.float32)).tolist() == [[0] * 3] * 2
