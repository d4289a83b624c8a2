"""Ranking measures: scores × relevance → one number a query.

Conventions, the same for every function here:

- `scores`, `values` and `judged` are [query, item]; what comes back is float64 [query]. The mean over queries is the
  caller's, and so is the count of what is undefined.
- An item is relevant where its value is above 0, or at least `relevant_at` where that is given.
- Unjudged items leave the ranking: those below move up, and only judged items count towards `k`.
- A value that is not defined (nothing relevant; an ideal gain of 0) is NaN, never 0 or 1.
- Equal scores are ties, and each measure is its expected value over the random orders of every group of ties
  (McSherry & Najork, "Computing information retrieval performance measures efficiently in the presence of tied
  scores", ECIR 2008), in closed form: nothing is drawn, and an order of the items in the file cannot help a model.

At position i (from 1), in a group of t tied items of which r are relevant, with j of the group before it and C relevant
items above the group: the item is relevant with probability r / t, and if so, C + 1 + j (r − 1) / (t − 1) relevant
items are expected down to i. Rows are ranked in blocks, so that memory stays small beside the scores themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import ConfigError, DataError

Floats = NDArray[np.float64]

BLOCK = 1 << 18
"""Scores that are ranked at a time: a few MB, so that every step stays in the processor's cache."""


# Checks


def _matrices(scores: ArrayLike, values: ArrayLike, judged: ArrayLike | None) -> tuple[NDArray[Any], ...]:
    """The arrays as given, without a copy, once their shapes are known to agree."""
    found = [np.asarray(scores), np.asarray(values)] + ([] if judged is None else [np.asarray(judged)])
    if found[0].ndim != 2:
        raise DataError(f"scores: shape {found[0].shape}; expected [query, item]. Give a single query as one row.")
    for name, array in zip(("values", "judged"), found[1:], strict=False):
        if array.shape != found[0].shape:
            raise DataError(f"{name}: shape {array.shape}; expected that of the scores, {found[0].shape}.")
    for name, array in zip(("scores", "values"), found, strict=False):
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name}: {array.dtype}; expected real numbers. Convert them first.")
    return tuple(found)


def _check_finite(name: str, array: NDArray[Any], first: int) -> None:
    """Raise `DataError` for the first number that is not finite; `first` is the row at which the block begins."""
    finite = np.isfinite(array)
    if not finite.all():
        query, item = np.argwhere(~finite)[0]
        raise DataError(
            f"{name} of query {first + query}, item {item}: {array[query, item]}; expected a finite number. "
            "Check the embeddings that it came from."
        )


def _check_k(k: int | None) -> None:
    if k is not None and (isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1):
        raise ConfigError(f"k: {k!r}; expected a whole number of at least 1.")


# Ranking


@dataclass(frozen=True, slots=True)
class Ranking:
    """Queries whose items are sorted by descending score, unjudged items last and with gain 0."""

    gains: NDArray[Any]
    """[query, position] the value of the item at each position."""
    judged: NDArray[np.bool_] | None
    """[query, position], None where all are."""
    starts: NDArray[np.intp] | None
    """Where each group of ties begins in the flattened positions; None where nothing is tied."""

    def sizes(self) -> NDArray[np.intp]:
        """The number of items in each group of ties."""
        assert self.starts is not None
        return np.diff(self.starts, append=self.gains.size)

    def shared(self, x: NDArray[Any]) -> NDArray[Any]:
        """[query, position] the mean of `x` over each position's group of ties, which is its expected value there."""
        if self.starts is None:
            return x
        sums = np.add.reduceat(x.ravel(), self.starts, dtype=np.float64)
        sizes = self.sizes()
        return np.repeat(sums / sizes, sizes).reshape(x.shape)

    def relevant(self, at: float | None) -> NDArray[np.bool_]:
        """[query, position] what is relevant: above 0, or at least `at`."""
        found = self.gains > 0 if at is None else self.gains >= at
        return found if self.judged is None or at is None else found & self.judged


def rank(scores: NDArray[Any], values: NDArray[Any], judged: NDArray[Any] | None = None, *, first: int = 0) -> Ranking:
    """The ranking of a block of queries, sorted once for all measures; `first` is its first row, for messages.

    Equal means equal: two scores are tied where the float32 (or float64) numbers are the same. Raises `DataError` for
    scores that are not finite, and for values of judged items that are not.
    """
    _check_finite("score", scores, first)
    keys = np.negative(scores, dtype=scores.dtype if scores.dtype in (np.float32, np.float64) else np.float64)
    mask = None if judged is None else judged.astype(bool, copy=False)
    if mask is not None:
        keys[~mask] = np.inf
        values = np.where(mask, values, 0)
    _check_finite("value", values, first)
    order = np.argsort(keys, axis=1)
    keys = np.take_along_axis(keys, order, axis=1)
    gains = np.take_along_axis(values, order, axis=1)
    return Ranking(gains, None if mask is None else keys < np.inf, _ties(keys))


def _ties(keys: NDArray[Any]) -> NDArray[np.intp] | None:
    """Where groups of equal keys begin, flattened; unjudged items (infinite keys) stand alone, having no gain."""
    new = np.ones(keys.shape, dtype=bool)
    np.not_equal(keys[:, 1:], keys[:, :-1], out=new[:, 1:])
    new[:, 1:] |= np.isinf(keys[:, 1:])
    return None if new.all() else np.flatnonzero(new)


def _rankings(arrays: tuple[NDArray[Any], ...]) -> Iterator[tuple[slice, Ranking]]:
    """Blocks of queries, each ranked."""
    queries, items = arrays[0].shape
    step = max(1, BLOCK // max(items, 1))
    for first in range(0, queries, step):
        rows = slice(first, min(first + step, queries))
        yield rows, rank(*(array[rows] for array in arrays), first=first)


def _by_query(
    measure: Callable[[Ranking], Floats], scores: ArrayLike, values: ArrayLike, judged: ArrayLike | None
) -> Floats:
    """[query] the measure of every block, one after another."""
    parts = [measure(ranking) for _, ranking in _rankings(_matrices(scores, values, judged))]
    return np.concatenate(parts) if parts else np.empty(0)


def _ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    """`above / below`, NaN where `below` is 0."""
    found: Floats = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return found


# Measures of a ranking


def _average_precision(ranking: Ranking, k: int | None, at: float | None) -> Floats:
    relevant = ranking.relevant(at)
    total = np.count_nonzero(relevant, axis=1)
    positions = np.arange(1, relevant.shape[1] + 1)[:k]
    if ranking.starts is None:
        row, place = np.nonzero(relevant[:, :k])  # few are relevant, so only those are looked at
        found: NDArray[Any] = np.arange(1, len(row) + 1) - np.searchsorted(row, row)
    else:
        probability, down_to = _expected_found(ranking, relevant)
        row, place = np.nonzero(probability[:, :k])
        found = probability[row, place] * down_to[row, place]
    return _ratio(np.bincount(row, found / positions[place], minlength=len(total)), total)


def _expected_found(ranking: Ranking, relevant: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """[query, position] P(the item is relevant), and relevant items expected down to it if it is: r / t and C + 1 + ….

    Where no item of the group is relevant the second is of no account, since the first is 0.
    """
    assert ranking.starts is not None
    sizes = ranking.sizes()
    inside = np.add.reduceat(relevant.ravel(), ranking.starts, dtype=np.int64)
    row = ranking.starts // relevant.shape[1]
    down_to = np.cumsum(inside)
    above = down_to - inside - np.concatenate(([0], np.cumsum(relevant.sum(axis=1))))[row]
    slope: NDArray[Any] = (inside - 1) / np.maximum(sizes - 1, 1)
    j = np.arange(relevant.size) - np.repeat(ranking.starts, sizes)
    probability: Floats = np.repeat(inside / sizes, sizes).reshape(relevant.shape)
    found: NDArray[Any] = np.repeat(above + 1, sizes) + j * np.repeat(slope, sizes)
    return probability, found.reshape(relevant.shape)


def _recall(ranking: Ranking, k: int, at: float | None) -> Floats:
    relevant = ranking.relevant(at)
    return _ratio(ranking.shared(relevant)[:, :k].sum(axis=1), np.count_nonzero(relevant, axis=1))


def _hit_rate(ranking: Ranking, k: int, at: float | None) -> Floats:
    """1 − Π over positions to k of (t − r − j) / (t − j), the chance to draw an irrelevant one after j such draws."""
    relevant = ranking.relevant(at)
    if ranking.starts is None:
        hit = relevant[:, :k].any(axis=1).astype(np.float64)
    else:
        sizes = ranking.sizes()
        left = np.repeat(sizes, sizes) - (np.arange(relevant.size) - np.repeat(ranking.starts, sizes))
        inside = np.add.reduceat(relevant.ravel(), ranking.starts, dtype=np.int64)
        miss = np.maximum(left - np.repeat(inside, sizes), 0) / left
        hit = 1.0 - miss.reshape(relevant.shape)[:, :k].prod(axis=1)
    return np.where(relevant.any(axis=1), hit, np.nan)


def _ndcg(ranking: Ranking, k: int | None) -> Floats:
    gains = ranking.gains
    if (gains < 0).any():
        raise DataError(f"values: {gains.min()}; expected gains of at least 0. Shift or clip the values for nDCG.")
    width = gains.shape[1] if k is None else min(k, gains.shape[1])
    discounts = 1 / np.log2(np.arange(2, width + 2))
    # Not by a matrix product, whose rounding would depend on how many queries stand in the block.
    ideal = (_largest(gains, width) * discounts).sum(axis=1)
    return _ratio((ranking.shared(gains)[:, :width] * discounts).sum(axis=1), ideal)


def _largest(gains: NDArray[Any], width: int) -> Floats:
    """[query, width] the largest gains of each query, in descending order."""
    if 0 < width < gains.shape[1]:
        gains = np.partition(gains, gains.shape[1] - width, axis=1)[:, -width:]
    return np.sort(gains, axis=1)[:, ::-1].astype(np.float64)


# Measures


def average_precision(
    scores: ArrayLike,
    values: ArrayLike,
    judged: ArrayLike | None = None,
    *,
    k: int | None = None,
    relevant_at: float | None = None,
) -> Floats:
    """[query] the average precision: Σ over relevant items (down to rank k) of precision at their rank, / R.

    R is *all* relevant items of the query, also where k is smaller, as in trec_eval's map_cut. Ties by expected value
    (McSherry & Najork 2008). In [0, 1]; NaN where nothing is relevant. Raises `DataError` for scores that are not
    finite and for shapes that differ.
    """
    _check_k(k)
    return _by_query(lambda ranking: _average_precision(ranking, k, relevant_at), scores, values, judged)


def recall(
    scores: ArrayLike,
    values: ArrayLike,
    judged: ArrayLike | None = None,
    *,
    k: int,
    relevant_at: float | None = None,
) -> Floats:
    """[query] the share of the relevant items that stand among the first k, expected over ties.

    In [0, 1]; NaN where nothing is relevant. Not the hit rate, which differs as soon as two items are relevant.
    """
    _check_k(k)
    return _by_query(lambda ranking: _recall(ranking, k, relevant_at), scores, values, judged)


def hit_rate(
    scores: ArrayLike,
    values: ArrayLike,
    judged: ArrayLike | None = None,
    *,
    k: int,
    relevant_at: float | None = None,
) -> Floats:
    """[query] 1 where a relevant item stands among the first k, else 0; with ties the probability (hypergeometric).

    NaN where nothing is relevant. With several relevant items to a query (a clip with five captions) this is what
    many papers call R@k.
    """
    _check_k(k)
    return _by_query(lambda ranking: _hit_rate(ranking, k, relevant_at), scores, values, judged)


def ndcg(scores: ArrayLike, values: ArrayLike, judged: ArrayLike | None = None, *, k: int | None = None) -> Floats:
    """[query] DCG / ideal DCG, where DCG = Σ over ranks i (to k) of value / log2(i + 1).

    The gain is linear, the value itself, not 2^value − 1. The ideal order is that of all judged items, found or not.
    Does not depend on the values' scale. In [0, 1]; NaN where the ideal is 0. Raises `DataError` for values below 0.
    """
    _check_k(k)
    return _by_query(lambda ranking: _ndcg(ranking, k), scores, values, judged)


def retrieval(
    scores: ArrayLike, values: ArrayLike, judged: ArrayLike | None = None, *, relevant_at: float | None = None
) -> dict[str, Floats]:
    """The measures that are reported together, by name, each [query]; the scores are sorted once for all of them.

    mAP, mAP@10, R@1, R@5, R@10, hit@10, nDCG@10: each equal to its own function. `relevant_at` does not touch nDCG.
    """
    measures: dict[str, Callable[[Ranking], Floats]] = {
        "mAP": lambda ranking: _average_precision(ranking, None, relevant_at),
        "mAP@10": lambda ranking: _average_precision(ranking, 10, relevant_at),
        "R@1": lambda ranking: _recall(ranking, 1, relevant_at),
        "R@5": lambda ranking: _recall(ranking, 5, relevant_at),
        "R@10": lambda ranking: _recall(ranking, 10, relevant_at),
        "hit@10": lambda ranking: _hit_rate(ranking, 10, relevant_at),
        "nDCG@10": lambda ranking: _ndcg(ranking, 10),
    }
    arrays = _matrices(scores, values, judged)
    found = {name: np.empty(len(arrays[0])) for name in measures}
    for rows, ranking in _rankings(arrays):
        for name, measure in measures.items():
            found[name][rows] = measure(ranking)
    return found
