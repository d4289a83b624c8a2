"""How much of the exact answer an index gives: `earmark index --check`.

Questions are windows of the index itself, each moved a little (so that none is answered by itself alone), and words
that its files carry. The ten nearest files that users get are compared with the ten nearest of all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.search.engine import Engine
from earmark.search.nearest import NOT_AT_ALL, View, Wanted, vectors_of
from earmark.search.plan import Progress
from earmark.search.query import Filters, Vector
from earmark.search.ranking import both, condition
from earmark.search.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

TOP = 10
MOVED = 0.1
"""Length of what is added to a window's unit vector, in a random direction."""
TIED = 1e-5
"""Cosines that differ by less are equal: products in another order round otherwise."""
WIDE, NARROW = 0.5, 0.01
"""Shares of the files that the filters should let through."""
ENOUGH = 0.95


@dataclass(frozen=True)
class Row:
    """What was measured of one filter."""

    filter: str
    share: float
    """Of the files that it lets through."""
    queries: int
    recall: float
    """Mean share of the exact first ten that are among the ten that were found; NaN where there are none."""
    least: float
    """Of the queries."""
    ms: float
    """Median time of an answer, milliseconds, without the text model."""


@dataclass(frozen=True)
class Checked:
    """What `check` found."""

    index: str
    windows: int
    files: int
    exact: bool
    """Whether all windows are looked at for every question."""
    rows: list[Row]

    @property
    def good(self) -> bool:
        """Whether recall is `ENOUGH` with every filter."""
        return all(not row.recall < ENOUGH for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """What was found, as JSON holds it."""
        return {**asdict(self), "good": self.good}

    def lines(self) -> list[str]:
        """What was found, for people."""
        how = "exact: every window is looked at" if self.exact else "IVF_SQ: the likely windows are looked at"
        found = [f"{self.index}: {self.windows:,} windows of {self.files:,} files, {how}"]
        found += [
            f"  {row.filter}: recall@{TOP} {row.recall:.3f} (least {row.least:.1f}), {row.ms:.1f} ms, "
            f"{row.queries} queries, {100 * row.share:.1f} % of the files"
            for row in self.rows
        ]
        if not self.good:
            found.append(f"recall@{TOP} is below {ENOUGH}: make the index anew with `earmark index --rebuild`.")
        return found


def check(
    store: Store, *, windows: int = 50, words: int = 20, seed: int = 0, progress: Progress | None = None
) -> Checked:
    """Recall@10 by files against exact search, with and without filters, and how long answers take.

    So many windows and words are questions; the index's own model reads the words, and 0 of them does without it.
    """
    engine = Engine(store.folder)
    at = engine.view()
    if not at.count:
        return Checked(str(store.folder), 0, 0, at.exact, [])
    rng = np.random.default_rng(seed)
    questions = _moved(at.sample, windows, rng)
    if words and (asked := _words(at, words, rng)):
        questions = np.concatenate([questions, [engine.vector_of_words(each) for each in asked]])
    filters = some_filters(at)
    exact = _exact(at, questions, list(filters.values()), progress)
    rows = []
    for place, (name, filter_) in enumerate(filters.items()):
        rows.append(_measured(at, name, condition(filter_), questions, exact[place]))
        if progress:
            progress("asking", place + 1, len(filters))
    return Checked(str(store.folder), at.count, at.searched(""), at.exact, rows)


# Questions


def _moved(sample: Vector, count: int, rng: np.random.Generator) -> Vector:
    """Unit vectors near those of some windows."""
    chosen = sample[rng.permutation(len(sample))[:count]]
    away = rng.standard_normal(chosen.shape, dtype=np.float32)
    moved = chosen + MOVED * away / np.linalg.norm(away, axis=1, keepdims=True)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), np.float32)


def _words(at: View, count: int, rng: np.random.Generator) -> list[str]:
    """Single words that files carry."""
    rows = at.table.search().where("window = 0").select(["words"]).limit(5000).to_arrow()
    all_ = sorted({word for text in rows["words"].to_pylist() for word in re.findall(r"[^\W\d_]{3,}", text.lower())})
    return [all_[place] for place in rng.permutation(len(all_))[:count]]


def some_filters(at: View) -> dict[str, Filters]:
    """Filters by name: none, one that lets about half of the files through, and one of about a hundredth."""
    columns = ["duration_s", "rate", "channels", "folder"]
    rows = at.table.search().where("window = 0").select(columns).limit(20_000).to_arrow()
    durations = np.sort(rows["duration_s"].to_numpy())
    middle, few = len(durations) // 2, max(1, round(NARROW * len(durations)))
    found = [Filters(longest_s=float(durations[middle]))]
    found += [Filters(rates=(rate,)) for rate in set(rows["rate"].to_pylist())]
    found += [Filters(channels=(count,)) for count in set(rows["channels"].to_pylist())]
    found += [Filters(folder=folder) for folder in sorted(set(rows["folder"].to_pylist()))[:200]]
    for start in (0, middle, len(durations) - few):
        low, high = durations[start], durations[min(start + few, len(durations)) - 1]
        found.append(Filters(shortest_s=float(low), longest_s=float(high)))
    shares = [(_share(rows, each), each) for each in found]
    named = {"no filter": Filters()}
    for name, wanted in (("a wide filter", WIDE), ("a narrow filter", NARROW)):
        share, nearest = min(shares, key=lambda each: abs(np.log((each[0] + 1e-9) / wanted)))
        if 0 < share < 1:
            named[f"{name} ({_in_words(nearest)})"] = nearest
    return named


def _in_words(filters: Filters) -> str:
    """The filters as options of `earmark search`, seconds rounded."""
    told = [f"--shortest {filters.shortest_s:.3g}"] if filters.shortest_s is not None else []
    told += [f"--longest {filters.longest_s:.3g}"] if filters.longest_s is not None else []
    told += [f"--folder {filters.folder}"] if filters.folder else []
    told += [f"--rate {rate}" for rate in filters.rates] + [f"--channels {count}" for count in filters.channels]
    return " ".join(told)


def _share(rows: pa.Table, filters: Filters) -> float:
    """The share of rows that pass, roughly."""
    passing = np.ones(rows.num_rows, bool)
    if filters.longest_s is not None:
        passing &= rows["duration_s"].to_numpy() <= filters.longest_s
    if filters.shortest_s is not None:
        passing &= rows["duration_s"].to_numpy() >= filters.shortest_s
    if filters.rates:
        passing &= rows["rate"].to_numpy() == filters.rates[0]
    if filters.channels:
        passing &= rows["channels"].to_numpy() == filters.channels[0]
    if filters.folder:
        passing &= rows["folder"].to_numpy(zero_copy_only=False) == filters.folder
    return float(passing.mean()) if len(passing) else 0.0


# Answers


def _exact(
    at: View, questions: Vector, filters: Sequence[Filters], progress: Progress | None
) -> list[list[dict[str, float]]]:
    """The nearest files of each question, by filter, each with its cosine: by a product with every window."""
    places: dict[str, int] = {}
    best = np.zeros((0, len(questions)), np.float32)
    done = 0
    for batch in at.table.search().select(["file_id", "vector"]).limit(None).to_batches(8192):
        codes = np.array([places.setdefault(each, len(places)) for each in batch.column("file_id").to_pylist()])
        if len(places) > len(best):
            best = np.concatenate([best, np.full((max(len(places), 4096), len(questions)), -2, np.float32)])
        scores = vectors_of(batch) @ questions.T
        order = np.argsort(codes, kind="stable")
        files, starts = np.unique(codes[order], return_index=True)
        best[files] = np.maximum(best[files], np.maximum.reduceat(scores[order], starts))
        done += len(codes)
        if progress:
            progress("comparing all windows", done, at.count)
    ids = list(places)
    return [_tops(ids, best[: len(ids)], _passing(at, places, filter_)) for filter_ in filters]


def _passing(at: View, places: dict[str, int], filters: Filters) -> NDArray[np.int64]:
    where = both("window = 0", condition(filters))
    rows = at.table.search().where(where).select(["file_id"]).limit(None).to_arrow()
    return np.array([places[each] for each in rows["file_id"].to_pylist()], np.int64)


def _tops(ids: Sequence[str], best: Vector, passing: NDArray[np.int64]) -> list[dict[str, float]]:
    tops = []
    for scores in best[passing].T:
        first = np.argsort(-scores, kind="stable")[:TOP]
        tops.append({ids[passing[each]]: float(scores[each]) for each in first})
    return tops


def _measured(at: View, name: str, where: str, questions: Vector, exact: Sequence[dict[str, float]]) -> Row:
    at.nearest(Wanted(questions[0]), where, TOP)  # what is read from disk once is not the answer's time
    recalls, times = [], []
    for question, expected in zip(questions, exact, strict=True):
        started = time.perf_counter()
        found = at.nearest(Wanted(question), where, TOP)
        times.append(1000 * (time.perf_counter() - started))
        if expected:
            # of files that are as near as the last, any will do
            least_near = min(expected.values()) - TIED
            right = sum(each in expected or found.scores.get(each, NOT_AT_ALL) >= least_near for each in found.order)
            recalls.append(right / len(expected))
    recall, least = (float(np.mean(recalls)), min(recalls)) if recalls else (np.nan, np.nan)
    share = at.searched(where) / max(1, at.searched(""))
    return Row(name, share, len(recalls), recall, least, float(np.median(times)))
