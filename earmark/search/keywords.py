"""Files by the words that they carry: LanceDB's full-text index, BM25."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from earmark.search.nearest import View
from earmark.search.ranking import both
from earmark.search.store import quoted

LEAST_PART = 5
"""Letters of a word that is looked for within longer ones."""
SMALL_WORDS = frozenset({"a", "an", "and", "at", "by", "from", "in", "is", "of", "on", "or", "the", "to", "with"})
"""Beside other words they tell nothing of what is wanted ("a dog barks")."""
MORE = 1.5
"""How many times as many files are looked for as pass on average, where a filter is applied to what was found."""
MOST_AFTER = 2000
"""Files of which a filter passes enough are looked for at most: where more would have to be, it is applied before."""


def keyword_tiers(at: View, words: str, where: str, most: int) -> list[dict[str, float]]:
    """Files (ids) by what of the words they carry, with BM25's score: first those with all words, then those with some.

    Where no file holds all of them as words, and every window of the index is looked at, those that hold them within
    longer ones stand first ("break" in "loopbreakbeat"); all texts are looked through for that.
    """
    from lancedb.query import FullTextOperator

    words = _telling(words)
    whole = _matching(at, words, where, most, FullTextOperator.AND)
    if at.exact and not whole:
        whole = _within(at, words, where, most)
    if len(words.split()) == 1 or len(whole) >= most:
        return [whole]
    some = _matching(at, words, where, most, FullTextOperator.OR)
    return [whole, {file_id: score for file_id, score in some.items() if file_id not in whole}]


def _telling(words: str) -> str:
    """The words without small ones, where others are left."""
    return " ".join(word for word in words.split() if word.lower() not in SMALL_WORDS) or words


def carrying(at: View, words: str, where: str) -> set[str]:
    """Files (ids) that carry all of the words."""
    from lancedb.query import FullTextOperator

    return set(_matching(at, words, where, at.searched(""), FullTextOperator.AND))


def _matching(at: View, words: str, where: str, most: int, operator: Any) -> dict[str, float]:
    """The first `most` files (ids) that pass the condition, with BM25's scores.

    Telling LanceDB which files pass takes longer than finding some more: where many do, those that do not are left out
    of what was found.
    """
    from lancedb.query import MatchQuery

    match = MatchQuery(words, "words", operator=operator)  # type: ignore[call-arg]  # pydantic's defaults

    def found(limit: int, where: str) -> tuple[int, dict[str, float]]:
        """How many were found, and those of them that pass."""
        asked: Any = at.table.search(match, query_type="fts").select(["_rowid", "_score"]).limit(max(1, limit))
        rows = (asked.where(where) if where else asked).to_arrow()
        files = at.files_of(rows["_rowid"].to_numpy())
        pass_ = passing[files]
        ids = [at.ids[place] for place in files[pass_].tolist()]
        return rows.num_rows, dict(zip(ids, rows["_score"].to_numpy()[pass_].tolist(), strict=True))

    passing = at.passing(where)
    limit = min(len(passing), math.ceil(MORE * most * len(passing) / max(1, int(np.sum(passing))))) if where else most
    if limit <= max(most, MOST_AFTER):
        rows, files = found(limit, "")
        if len(files) >= most or rows < limit:
            return dict(list(files.items())[:most])
    return found(most, where)[1]


def _within(at: View, words: str, where: str, most: int) -> dict[str, float]:
    parts = re.findall(r"\w+", words.lower())
    if not parts or min(map(len, parts)) < LEAST_PART:
        return {}
    holds = [f"strpos(lower(words), {quoted(part)}) > 0" for part in parts]
    rows = at.table.search().where(both("window = 0", where, *holds)).select(["file_id"]).limit(most).to_arrow()
    return dict.fromkeys(rows["file_id"].to_pylist(), 0.0)
