"""The ranking measures against brute force over tied orders, against pytrec_eval, and on inputs that broke others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import ConfigError, DataError
from earmark.measure import metrics
from earmark.measure.metrics import average_precision, hit_rate, ndcg, recall, retrieval

# The definitions, one query in one fixed order at a time


def ap_of(gains: list[float], k: int | None) -> float:
    hits = [i for i, gain in enumerate(gains, 1) if gain > 0]
    kept = [hit for hit in hits if k is None or hit <= k]
    return sum(n / hit for n, hit in enumerate(kept, 1)) / len(hits) if hits else math.nan


def recall_of(gains: list[float], k: int | None) -> float:
    found, total = sum(gain > 0 for gain in gains[:k]), sum(gain > 0 for gain in gains)
    return found / total if total else math.nan


def hit_of(gains: list[float], k: int | None) -> float:
    return float(any(gain > 0 for gain in gains[:k])) if any(gain > 0 for gain in gains) else math.nan


def dcg_of(gains: list[float], k: int | None) -> float:
    return sum(gain / math.log2(i + 1) for i, gain in enumerate(gains[:k], 1))


def ndcg_of(gains: list[float], k: int | None) -> float:
    ideal = dcg_of(sorted(gains, reverse=True), k)
    return dcg_of(gains, k) / ideal if ideal else math.nan


MEASURES: dict[str, tuple[Callable[..., np.ndarray], Callable[[list[float], int | None], float]]] = {
    "average_precision": (average_precision, ap_of),
    "recall": (recall, recall_of),
    "hit_rate": (hit_rate, hit_of),
    "ndcg": (ndcg, ndcg_of),
}


def expected(
    measure: Callable[[list[float], int | None], float], scores: list[int], gains: list[float], k: int
) -> float:
    """The mean over all orders that sort the scores: every permutation of every group of ties."""
    groups = [
        [gain for score, gain in zip(scores, gains, strict=True) if score == level]
        for level in sorted(set(scores), reverse=True)
    ]
    orders = itertools.product(*(itertools.permutations(group) for group in groups))
    return float(np.mean([measure(list(itertools.chain(*order)), k) for order in orders]))


@st.composite
def tied_queries(draw: st.DrawFn) -> tuple[list[int], list[float], list[bool]]:
    items = draw(st.integers(1, 7))
    scores = draw(st.lists(st.integers(-2, 1), min_size=items, max_size=items))
    gains = draw(st.lists(st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0]), min_size=items, max_size=items))
    judged = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=items, max_size=items))
    return scores, gains, judged


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=120, deadline=None)
@given(query=tied_queries(), k=st.integers(1, 8))
def test_ties_count_their_mean_over_all_orders(
    name: str, query: tuple[list[int], list[float], list[bool]], k: int
) -> None:
    ours, definition = MEASURES[name]
    scores, gains, judged = query
    kept = [i for i, seen in enumerate(judged) if seen]
    wanted = expected(definition, [scores[i] for i in kept], [gains[i] for i in kept], k) if kept else math.nan
    found = ours(np.array([scores]), np.array([gains]), np.array([judged]), k=k)
    np.testing.assert_allclose(found, [wanted], atol=1e-12)


@pytest.mark.parametrize("name", ["average_precision", "ndcg"])
@settings(max_examples=40, deadline=None)
@given(query=tied_queries())
def test_without_k_the_whole_ranking_counts(name: str, query: tuple[list[int], list[float], list[bool]]) -> None:
    ours, definition = MEASURES[name]
    scores, gains, _ = query
    found = ours(np.array([scores], dtype=np.float32), np.array([gains], dtype=np.float32))
    np.testing.assert_allclose(found, [expected(definition, scores, gains, len(scores))], atol=1e-12)


# pytrec_eval


def test_untied_scores_give_what_pytrec_eval_gives() -> None:
    rng = np.random.default_rng(5)
    scores = rng.permuted(np.tile(np.linspace(-1, 1, 300), (60, 1)), axis=1)
    gains = rng.choice([0, 0, 0, 0, 0, 0, 1, 2, 3], size=scores.shape)
    qrels = {f"q{q}": {f"d{i}": int(gain) for i, gain in enumerate(row)} for q, row in enumerate(gains)}
    run = {f"q{q}": {f"d{i}": float(score) for i, score in enumerate(row)} for q, row in enumerate(scores)}
    wanted = {"map", "map_cut.10,16", "recall.1,5,10", "success.1,5,10", "ndcg", "ndcg_cut.10"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run)
    ours = retrieval(scores, gains) | {"nDCG": ndcg(scores, gains)}
    ours |= {f"hit@{k}": hit_rate(scores, gains, k=k) for k in (1, 5)}
    names = {"mAP": "map", "mAP@10": "map_cut_10", "mAP@16": "map_cut_16", "nDCG": "ndcg", "nDCG@10": "ndcg_cut_10"}
    names |= {f"R@{k}": f"recall_{k}" for k in (1, 5, 10)} | {f"hit@{k}": f"success_{k}" for k in (1, 5, 10)}
    assert set(names) == set(ours)
    for name, other in names.items():
        np.testing.assert_allclose(ours[name], [theirs[f"q{q}"][other] for q in range(60)], atol=1e-6, err_msg=name)


# All at once, blocks


def random_case(queries: int = 40, items: int = 37) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(queries, items)).round(1).astype(np.float32)
    values = rng.choice([0, 0, 0, 0.3, 1], size=scores.shape).astype(np.float32)
    return scores, values, rng.random(scores.shape) < 0.8


@pytest.mark.parametrize("masked", [False, True])
def test_retrieval_is_each_measure_by_itself(masked: bool) -> None:
    scores, values, judged = random_case()
    mask = judged if masked else None
    singly = {
        "mAP": average_precision(scores, values, mask),
        "mAP@10": average_precision(scores, values, mask, k=10),
        "mAP@16": average_precision(scores, values, mask, k=16),
        "R@1": recall(scores, values, mask, k=1),
        "R@5": recall(scores, values, mask, k=5),
        "R@10": recall(scores, values, mask, k=10),
        "hit@10": hit_rate(scores, values, mask, k=10),
        "nDCG@10": ndcg(scores, values, mask, k=10),
    }
    together = retrieval(scores, values, mask)
    assert list(together) == list(singly)
    for name, array in singly.items():
        np.testing.assert_array_equal(together[name], array)
        assert array.dtype == np.float64
        assert array.shape == (len(scores),)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, values, judged = random_case()
    scores[::2] += np.random.default_rng(3).normal(0, 0.01, scores[::2].shape)  # every second row without ties
    whole = retrieval(scores, values, judged)
    for block in (1, 100):  # one row, two rows at a time
        monkeypatch.setattr(metrics, "BLOCK", block)
        for name, array in retrieval(scores, values, judged).items():
            np.testing.assert_array_equal(array, whole[name])


@pytest.mark.case("R03")
def test_the_order_of_the_items_changes_nothing() -> None:
    scores, values, judged = random_case()
    order = np.random.default_rng(2).permutation(scores.shape[1])
    first, again = (average_precision(scores, values, judged, k=10) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    shuffled = retrieval(scores[:, order], values[:, order], judged[:, order])
    for name, array in retrieval(scores, values, judged).items():
        np.testing.assert_allclose(shuffled[name], array, atol=1e-12)


def test_scores_in_float32_are_tied_as_they_stand() -> None:
    near = np.array([[0.1, 0.1 + 1e-9]])
    values = [[1, 0]]
    assert average_precision(near, values)[0] == 0.5
    assert average_precision(near.astype(np.float32), values)[0] == 0.75
    assert average_precision(np.array([[0.0, -0.0]]), values)[0] == 0.75


# Rows of cases.md


@pytest.mark.case("R02", "R03")
def test_a_constant_model_gets_the_expected_value() -> None:
    found = [ndcg([[0.5] * 5], [[10, 0, 0, 1, 5]])[0] for _ in range(2)]
    assert found[0] == found[1] == pytest.approx(0.690979, abs=1e-6)
    # A second computation, also what scikit-learn's ndcg_score says: the mean gain at every rank.
    discounts = 1 / np.log2(np.arange(2, 7))
    assert found[0] == pytest.approx(16 / 5 * discounts.sum() / (np.array([10, 5, 1, 0, 0]) @ discounts))
    assert recall([[7.0] * 4], [[1, 0, 0, 0]], k=1)[0] == 0.25
    assert hit_rate([[7.0] * 4], [[1, 1, 0, 0]], k=2)[0] == pytest.approx(5 / 6)


@pytest.mark.case("R06")
def test_the_ideal_counts_relevant_items_that_were_not_found() -> None:
    scores = -np.arange(12.0)[None]
    values = np.zeros((1, 12))
    values[0, [0, 11]] = 1  # one at rank 1, one beyond rank 10
    assert ndcg(scores, values, k=10)[0] == pytest.approx(0.613147, abs=5e-7)
    assert average_precision(scores, values, k=10)[0] == 0.5  # over all relevant, not over those found
    values[0, 0] = 0
    assert ndcg(scores, values, k=10)[0] == 0  # a failed query counts as 0 and stays in the mean
    assert average_precision(scores, values, k=10)[0] == 0


@pytest.mark.case("R07")
def test_the_gain_is_linear() -> None:
    values = np.array([[3, 2, 3, 0, 1, 2]])
    scores = -np.arange(6.0)[None]
    linear = ndcg(scores, values)[0]
    exponential = ndcg(scores, 2.0**values - 1)[0]
    assert linear == pytest.approx(0.960808, abs=1e-6)
    assert exponential == pytest.approx(0.948811, abs=1e-6)
    theirs = pytrec_eval.RelevanceEvaluator({"q": {f"d{i}": int(v) for i, v in enumerate(values[0])}}, {"ndcg"})
    assert linear == pytest.approx(theirs.evaluate({"q": {f"d{i}": -float(i) for i in range(6)}})["q"]["ndcg"])
    assert ndcg(scores, values / 100)[0] == pytest.approx(linear)


@pytest.mark.case("M13")
def test_two_clips_of_five_captions() -> None:
    # Rows: captions 1–5 of clip A, then of B. Eight of ten find their clip first.
    to_a = np.array([0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.1, 0.3, 0.0, 0.65])
    to_b = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.35])
    scores, values = np.stack([to_a, to_b], axis=1), np.repeat(np.eye(2), 5, axis=0)
    assert recall(scores, values, k=1).mean() == 0.8
    assert recall(scores, values, k=2).mean() == 1
    assert average_precision(scores, values).mean() == pytest.approx(0.9)
    # From sound to text a clip has five captions. A finds its own at ranks 1–4 and 10 (its fifth is tied with one of
    # B's at ranks 8 and 9), and R@k is the share of the five, hit@k is whether any is there.
    assert hit_rate(scores.T, values.T, k=1).tolist() == [1, 1]
    np.testing.assert_allclose(recall(scores.T, values.T, k=1), [0.2, 0.2])
    np.testing.assert_allclose(recall(scores.T, values.T, k=5), [0.8, 0.8])
    np.testing.assert_allclose(recall(scores.T, values.T, k=8), [0.9, 1])
    np.testing.assert_allclose(recall(scores.T, values.T, k=10), [1, 1])


# What is left out, undefined or refused


def test_negative_scores_of_relevant_items_count() -> None:
    assert average_precision([[-0.9, -0.1, -0.5]], [[0, 1, 0]])[0] == 1
    assert hit_rate([[-0.9, -0.1, -0.5]], [[1, 0, 0]], k=3)[0] == 1


def test_unjudged_items_leave_the_ranking() -> None:
    scores = [[5.0, 4.0, 3.0, 2.0, 1.0]]
    values, judged = np.array([[1.0, 0, 1, 0, np.nan]]), np.array([[False, True, True, True, False]])
    assert average_precision(scores, values, judged)[0] == 0.5
    assert recall(scores, values, judged, k=2)[0] == 1
    assert ndcg(scores, values, judged)[0] == pytest.approx(1 / math.log2(3))
    assert np.isnan(average_precision(scores, values, np.zeros((1, 5), dtype=bool))[0])


def test_relevant_at_moves_the_threshold() -> None:
    scores, values = [[3.0, 2.0, 1.0]], [[0.2, 0.5, 0.9]]
    assert average_precision(scores, values)[0] == 1
    assert average_precision(scores, values, relevant_at=0.5)[0] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert recall(scores, values, k=1, relevant_at=0.5)[0] == 0
    assert hit_rate(scores, values, k=3, relevant_at=0.9)[0] == 1
    judged = [[True, True, False]]
    assert recall(scores, values, judged, k=1, relevant_at=0.0)[0] == 0.5  # what is unjudged is not relevant at 0
    assert retrieval(scores, values, relevant_at=0.9)["mAP"][0] == pytest.approx(1 / 3)


def test_map_at_16_is_divided_by_all_relevant() -> None:
    scores, values = -np.arange(40.0)[None], np.zeros((1, 40))
    values[0, [0, 15, 16, 30]] = 1  # ranks 1, 16, 17, 31
    assert retrieval(scores, values)["mAP@16"][0] == pytest.approx((1 / 1 + 2 / 16) / 4)
    assert retrieval(scores, values)["mAP@10"][0] == pytest.approx(1 / 4)


@pytest.mark.parametrize("name", MEASURES)
def test_a_query_with_nothing_relevant_is_undefined(name: str) -> None:
    found = MEASURES[name][0]([[0.1, 0.2], [0.1, 0.2]], [[0, 0], [0, 1]], k=5)
    assert np.isnan(found).tolist() == [True, False]
    assert MEASURES[name][0](np.zeros((0, 3)), np.zeros((0, 3)), k=1).shape == (0,)
    assert np.isnan(MEASURES[name][0](np.zeros((2, 0)), np.zeros((2, 0)), k=1)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BLOCK", 6)  # the third row is in the second block
    scores = np.zeros((4, 3), dtype=np.float32)
    scores[2, 1] = bad
    with pytest.raises(DataError, match=f"score of query 2, item 1: {bad}; expected a finite number"):
        average_precision(scores, np.ones((4, 3)))
    with pytest.raises(DataError, match="value of query 2, item 1"):
        recall(np.zeros((4, 3)), scores, k=1)


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"values: shape \(2, 2\); expected that of the scores, \(2, 3\)"):
        average_precision(np.zeros((2, 3)), np.zeros((2, 2)))
    with pytest.raises(DataError, match="judged: shape"):
        retrieval(np.zeros((2, 3)), np.zeros((2, 3)), np.ones(3, dtype=bool))
    with pytest.raises(DataError, match=r"expected \[query, item\]"):
        ndcg(np.zeros(3), np.zeros(3))
    with pytest.raises(DataError, match="expected real numbers"):
        retrieval(np.array([["a"]]), np.zeros((1, 1)))
    with pytest.raises(DataError, match="expected gains of at least 0"):
        ndcg([[1.0, 2.0]], [[-1.0, 1.0]])
    for k in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="whole number of at least 1"):
            recall(np.zeros((1, 2)), np.zeros((1, 2)), k=k)  # type: ignore[arg-type]


def test_inputs_are_left_as_they_are() -> None:
    arrays = random_case()
    copies = [array.copy() for array in arrays]
    retrieval(*arrays)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
