"""LanceDB's part: the indices of `windows`, filters as one condition of SQL; and fusion by rank."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from earmark.audio.decode import shown
from earmark.data.rows import is_blank
from earmark.errors import DataError
from earmark.search.query import Filters
from earmark.search.store import Store, quoted

if TYPE_CHECKING:
    from lancedb.table import Table

EXACT_BELOW = 100_000
"""Windows: below, every one is looked at; from there on IVF_SQ finds the near ones."""
K = 60
"""Of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): as LanceDB's RRFReranker has it."""
SCALARS = {
    **{"file_id": "BTree", "window": "Bitmap", "folder": "BTree", "duration_s": "BTree"},
    **{"rate": "Bitmap", "channels": "Bitmap", "tags": "LabelList"},
}
"""Columns that are indexed from `EXACT_BELOW` windows on, and how: each filter then costs milliseconds."""
PARTITION = 1000
"""Windows of a partition. It is told as LanceDB's target: what it is not told, `optimize` joins to ones of 8,192."""
PARTITIONS = re.compile(r"vector_in_(\d+)")
"""The name of the vectors' index tells how many partitions it had at first."""
OUTGROWN = 2
"""So many times as many partitions would be right before they are made anew."""


# Indices


def prepare(store: Store) -> None:
    """Makes the indices that the table lacks; those that are there are left to `Store.tidy`, which is quick."""
    from lancedb import index as kinds

    table = store.windows
    there = _indexed(table)
    if "words" not in there:
        # ICU cuts words of every script; names are full of underscores, so at delimiters too
        table.create_index("words", config=kinds.FTS(base_tokenizer="icu/split", stem=True, remove_stop_words=False))
    if (rows := table.count_rows()) < EXACT_BELOW:
        return
    for column, kind in SCALARS.items():
        if column not in there:
            table.create_index(column, config=getattr(kinds, kind)())
    before, right = partitions(table), max(1, rows // PARTITION)
    if right > OUTGROWN * before:
        # of unit vectors the distance ranks as the cosine does; k-means by the dot product makes uneven partitions
        config = kinds.IvfSq(distance_type="l2", target_partition_size=PARTITION, sample_rate=64, max_iterations=20)
        table.create_index("vector", config=config, name=f"vector_in_{right}")
        for name in _vector_indices(table):
            if name != f"vector_in_{right}":
                table.drop_index(name)


def has_keywords(table: Table) -> bool:
    """Whether the words that files carry are indexed."""
    return "words" in _indexed(table)


def partitions(table: Table) -> int:
    """Of the vectors' index; 0 where there is none."""
    found = [PARTITIONS.fullmatch(name) for name in _vector_indices(table)]
    return max((int(each[1]) for each in found if each), default=0)


def _vector_indices(table: Table) -> list[str]:
    return [each.name for each in table.list_indices() if each.columns == ["vector"]]


def _indexed(table: Table) -> set[str]:
    """The columns that have an index."""
    return {column for each in table.list_indices() for column in each.columns}


# Filters


def condition(filters: Filters) -> str:
    """The filters in SQL; empty where all files pass. Raises `DataError` where one is none (−1 Hz, blank)."""
    _check(filters)
    parts = []
    if filters.longest_s is not None:
        parts.append(f"duration_s <= {float(filters.longest_s)!r}")
    if filters.shortest_s is not None:
        parts.append(f"duration_s >= {float(filters.shortest_s)!r}")
    if filters.folder:
        parts.append(_below(filters.folder))
    parts += [f"array_has(tags, {quoted(shown(tag.lower()))})" for tag in filters.tags]
    for column, values in (("rate", filters.rates), ("channels", filters.channels)):
        if values:
            parts.append(f"{column} IN ({', '.join(str(int(value)) for value in values)})")
    return " AND ".join(parts)


def _check(filters: Filters) -> None:
    for name, seconds in (("shortest", filters.shortest_s), ("longest", filters.longest_s)):
        if seconds is not None and not math.isfinite(seconds):
            raise DataError(f"{name}: {seconds} s; expected a number of seconds.")
    for name, values in (("rate", filters.rates), ("channels", filters.channels)):
        if any(not 0 < value < 1 << 31 for value in values):
            raise DataError(f"{name}: {', '.join(map(str, values))}; expected whole numbers from 1 on.")
    for name, texts in (("tag", filters.tags), ("folder", (filters.folder,) if filters.folder else ())):
        if any(is_blank(text) for text in texts):
            raise DataError(f"{name}: blank; expected a text, or no such filter.")


def _below(folder: str) -> str:
    """Files below an absolute folder, or below any folder that ends so, whatever its case."""
    name = shown(folder).rstrip("/")
    if name.startswith("/") or not name:
        return f"(folder = {quoted(name or '/')} OR starts_with(folder, {quoted(name + '/')}))"
    return f"strpos(lower(concat(folder, '/')), {quoted('/' + name.strip('/').lower() + '/')}) > 0"


def both(*conditions: str) -> str:
    """All of the conditions; empty ones ask nothing."""
    return " AND ".join(f"({each})" for each in conditions if each)


# Fusion


def in_order(tiers: Sequence[Mapping[str, float]], cosines: Mapping[str, float]) -> list[str]:
    """Files by tier, then by BM25's score, ties by the cosine."""
    ranked: list[str] = []
    for tier in tiers:
        ranked += sorted(tier, key=lambda each: (-round(tier[each], 4), -cosines.get(each, -1.0)))
    return ranked


def fused(*rankings: Sequence[str]) -> dict[str, float]:
    """Σ 1 / (K + rank) over the rankings that hold the file, best first; ties in the order of the first ranking."""
    sums: dict[str, float] = {}
    for ranking in rankings:
        for rank, file_id in enumerate(ranking, start=1):
            sums[file_id] = sums.get(file_id, 0.0) + 1 / (K + rank)
    return dict(sorted(sums.items(), key=lambda each: -each[1]))
