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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class Ranking:
    """Queries whose items are sorted by descending score, unjudged items last, irrelevant and with gain 0.

    What several measures need is computed once.
    """

    gains: NDArray[Any]
    """[query, position] the value of the item at each position."""
    relevant: NDArray[np.bool_]
    """[query, position] whether it is relevant."""
    starts: NDArray[np.intp] | None = None
    """Where each group of ties begins in the flattened positions; None where nothing is tied."""

    @cached_property
    def total(self) -> NDArray[np.intp]:
        """[query] R, the number of relevant items."""
        total: NDArray[np.intp] = np.count_nonzero(self.relevant, axis=1)
        return total

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """[group] t, the number of items tied."""
        return np.diff(self.groups, append=self.gains.size)

    @cached_property
    def groups(self) -> NDArray[np.intp]:
        """[group] where it begins in the flattened positions, be it of one item."""
        return np.arange(self.gains.size) if self.starts is None else self.starts

    @cached_property
    def tied_relevant(self) -> NDArray[np.intp]:
        """[group] r, the number of relevant items among those tied."""
        return np.add.reduceat(self.relevant.ravel(), self.groups, dtype=np.intp)

    @cached_property
    def probability(self) -> NDArray[Any]:
        """[query, position] r / t, how probably a relevant item stands there."""
        return self.relevant if self.starts is None else self.spread(self.tied_relevant / self.sizes)

    @cached_property
    def expected_gains(self) -> NDArray[Any]:
        """[query, position] the mean gain of those tied."""
        if self.starts is None:
            return self.gains
        return self.spread(np.add.reduceat(self.gains.ravel(), self.starts, dtype=np.float64) / self.sizes)

    def spread(self, x: NDArray[Any]) -> NDArray[Any]:
        """[query, position] in place of [group]."""
        return np.repeat(x, self.sizes).reshape(self.gains.shape)


def rank(
    scores: NDArray[Any],
    values: NDArray[Any],
    judged: NDArray[Any] | None = None,
    *,
    relevant_at: float | None = None,
    first: int = 0,
) -> list[tuple[NDArray[np.intp], Ranking]]:
    """The ranking of a block of queries, sorted once for all measures: (rows, those without ties), (rows, those with).

    Equal means equal: two scores are tied where the float32 (or float64) numbers are the same. Among many float32
    cosines a few are so by chance, and ties take longer to reckon with, hence the parting. `first` is the block's first
    row, for messages. Raises `DataError` for scores that are not finite, and for values of judged items that are not.
    """
    _check_finite("score", scores, first)
    keys = np.negative(scores, dtype=scores.dtype if scores.dtype in (np.float32, np.float64) else np.float64)
    if judged is not None:
        judged = judged.astype(bool, copy=False)
        keys[~judged] = np.inf
        values = np.where(judged, values, 0)
    _check_finite("value", values, first)
    order = np.argsort(keys, axis=1)
    keys = np.take_along_axis(keys, order, axis=1)
    gains = np.take_along_axis(values, order, axis=1)
    relevant = gains > 0 if relevant_at is None else (gains >= relevant_at) & (keys < np.inf)
    new = _new_groups(keys)
    tied = np.asarray(~new.all(axis=1))
    if not tied.any():
        return [(np.arange(len(tied)), Ranking(gains, relevant))]
    rows, others = np.flatnonzero(tied), np.flatnonzero(~tied)
    return [
        (others, Ranking(gains[others], relevant[others])),
        (rows, Ranking(gains[rows], relevant[rows], np.flatnonzero(new[rows]))),
    ]


def _new_groups(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a key differs from the one before; unjudged items (infinite keys) stand alone, having no gain to share."""
    new = np.ones(keys.shape, dtype=bool)
    np.not_equal(keys[:, 1:], keys[:, :-1], out=new[:, 1:])
    new[:, 1:] |= np.isinf(keys[:, 1:])
    return new


def _by_query(
    measures: Mapping[str, Callable[[Ranking], Floats]],
    scores: ArrayLike,
    values: ArrayLike,
    judged: ArrayLike | None,
    relevant_at: float | None = None,
) -> dict[str, Floats]:
    """Each measure, [query]; block by block, each ranked once."""
    arrays = _matrices(scores, values, judged)
    queries, items = arrays[0].shape
    found = {name: np.empty(queries) for name in measures}
    step = max(1, BLOCK // max(items, 1))
    for first in range(0, queries, step):
        block = (array[first : first + step] for array in arrays)
        for rows, ranking in rank(*block, relevant_at=relevant_at, first=first):
            for name, measure in measures.items():
                found[name][first + rows] = measure(ranking)
    return found


def _ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    """`above / below`, NaN where `below` is 0."""
    found: Floats = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return found


# Measures of a ranking


def _average_precision(ranking: Ranking, k: int | None) -> Floats:
    row, place = np.nonzero(ranking.probability[:, :k])  # few items are relevant, so only those are looked at
    if ranking.starts is None:
        found: NDArray[Any] = np.arange(1, len(row) + 1) - np.searchsorted(row, row)
    else:
        found = ranking.probability[row, place] * _expected_down_to(ranking, row, place)
    return _ratio(np.bincount(row, found / (place + 1), minlength=len(ranking.total)), ranking.total)


def _expected_down_to(ranking: Ranking, row: NDArray[np.intp], place: NDArray[np.intp]) -> NDArray[Any]:
    """C + 1 + j (r − 1) / (t − 1): relevant items expected down to these positions, where one is relevant."""
    at = row * ranking.gains.shape[1] + place
    group = np.searchsorted(ranking.groups, at, side="right") - 1
    inside = ranking.tied_relevant[group]
    earlier_rows = np.cumsum(ranking.total) - ranking.total
    above = (np.cumsum(ranking.tied_relevant) - ranking.tied_relevant)[group] - earlier_rows[row]
    below = (at - ranking.groups[group]) * ((inside - 1) / np.maximum(ranking.sizes[group] - 1, 1))
    expected: NDArray[Any] = above + 1 + below
    return expected


def _recall(ranking: Ranking, k: int) -> Floats:
    return _ratio(ranking.probability[:, :k].sum(axis=1), ranking.total)


def _hit_rate(ranking: Ranking, k: int) -> Floats:
    """1 − Π over positions to k of (t − r − j) / (t − j), the chance to draw an irrelevant one after j such draws."""
    if ranking.starts is None:
        hit = ranking.relevant[:, :k].any(axis=1).astype(np.float64)
    else:
        width = ranking.gains.shape[1]
        ends = ranking.spread(ranking.groups + ranking.sizes)[:, :k]
        left = ends - (np.arange(len(ends))[:, None] * width + np.arange(ends.shape[1]))
        miss = np.maximum(left - ranking.spread(ranking.tied_relevant)[:, :k], 0) / left
        hit = 1.0 - miss.prod(axis=1)
    return np.where(ranking.total > 0, hit, np.nan)


def _ndcg(ranking: Ranking, k: int | None) -> Floats:
    gains = ranking.gains
    if (gains < 0).any():
        raise DataError(f"values: {gains.min()}; expected gains of at least 0. Shift or clip the values for nDCG.")
    width = gains.shape[1] if k is None else min(k, gains.shape[1])
    discounts = 1 / np.log2(np.arange(2, width + 2))
    # Not by a matrix product, whose rounding would depend on how many queries stand in the block.
    ideal = (_largest(gains, width) * discounts).sum(axis=1)
    return _ratio((ranking.expected_gains[:, :width] * discounts).sum(axis=1), ideal)


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
    measure = {"": lambda ranking: _average_precision(ranking, k)}
    return _by_query(measure, scores, values, judged, relevant_at)[""]


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
    measure = {"": lambda ranking: _recall(ranking, k)}
    return _by_query(measure, scores, values, judged, relevant_at)[""]


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
    measure = {"": lambda ranking: _hit_rate(ranking, k)}
    return _by_query(measure, scores, values, judged, relevant_at)[""]


def ndcg(scores: ArrayLike, values: ArrayLike, judged: ArrayLike | None = None, *, k: int | None = None) -> Floats:
    """[query] DCG / ideal DCG, where DCG = Σ over ranks i (to k) of value / log2(i + 1).

    The gain is linear, the value itself, not 2^value − 1. The ideal order is that of all judged items, found or not.
    Does not depend on the values' scale. In [0, 1]; NaN where the ideal is 0. Raises `DataError` for values below 0.
    """
    _check_k(k)
    return _by_query({"": lambda ranking: _ndcg(ranking, k)}, scores, values, judged)[""]


def retrieval(
    scores: ArrayLike, values: ArrayLike, judged: ArrayLike | None = None, *, relevant_at: float | None = None
) -> dict[str, Floats]:
    """The measures that are reported together, by name, each [query]; the scores are sorted once for all of them.

    mAP, mAP@10, mAP@16, R@1, R@5, R@10, hit@10, nDCG@10: each equal to its own function. `relevant_at` does not
    touch nDCG.
    """
    measures: dict[str, Callable[[Ranking], Floats]] = {
        "mAP": lambda ranking: _average_precision(ranking, None),
        "mAP@10": lambda ranking: _average_precision(ranking, 10),
        "mAP@16": lambda ranking: _average_precision(ranking, 16),
        "R@1": lambda ranking: _recall(ranking, 1),
        "R@5": lambda ranking: _recall(ranking, 5),
        "R@10": lambda ranking: _recall(ranking, 10),
        "hit@10": lambda ranking: _hit_rate(ranking, 10),
        "nDCG@10": lambda ranking: _ndcg(ranking, 10),
    }
    return _by_query(measures, scores, values, judged, relevant_at)
