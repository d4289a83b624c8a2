"""Hits made of an index's rows: a file's regions, and near-duplicates behind the best of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.search.copies import as_long, folded
from earmark.search.nearest import File, Wanted
from earmark.search.query import Hit, Region, Vector

OTHERS = 4
"""Regions of a file shown beside its best."""
AS_NEAR = 0.9
"""The cosine of the first windows of near-duplicates, at least: others are not compared by their prints.

Of 120 sounds of `data/library`, by the untrained default, 2 % of the copies 12 dB softer are below, and 75 % of other
pairs.
"""


class Candidate(NamedTuple):
    """A file that may become a hit."""

    hit: Hit
    first: Vector
    """Of its first window, [dim]."""
    row: int
    """Which row of the index that is."""


def candidates(files: Sequence[File], wanted: Wanted, scores: Mapping[str, float], named: set[str]) -> list[Candidate]:
    """The files as hits, with their scores by id."""
    found = []
    for each in files:
        file_id = each.facts["file_id"]
        order = np.argsort(-wanted.scores(each.vectors), kind="stable")
        regions = _apart(each.spans[order], (each.vectors @ wanted.towards)[order])
        hit = _hit(each.facts, regions, scores[file_id], file_id in named)
        found.append(Candidate(hit, each.vectors[0], each.row))
    return found


def _hit(facts: Mapping[str, Any], regions: Sequence[Region], score: float, named: bool) -> Hit:
    return Hit(
        file_id=facts["file_id"],
        path=Path(os.fsdecode(facts["path"])),
        shown=facts["shown"],
        best=regions[0],
        score=score,
        named=named,
        duration_s=facts["duration_s"],
        rate=facts["rate"],
        channels=facts["channels"],
        words=facts["words"],
        tags=tuple(facts["tags"]),
        others=tuple(regions[1:]),
        content=facts["content"],
    )


def _apart(spans: NDArray[np.float64], cosines: Vector) -> list[Region]:
    """The first region, and the next ones of which none overlaps an earlier one."""
    kept: list[Region] = []
    for (start, end), cosine in zip(spans.tolist(), cosines.tolist(), strict=True):
        if all(end <= each.start_s or start >= each.end_s for each in kept):
            kept.append(Region(start, end, cosine))
            if len(kept) > OTHERS:
                break
    return kept


def fold(found: Sequence[Candidate], prints_of: Callable[[Sequence[int]], Mapping[str, bytes]]) -> list[Hit]:
    """The hits in order, near-duplicates behind the first of them.

    Only files whose first windows are near each other are compared by their prints, which are read for them alone.
    """
    if not found:
        return []
    near = _may_be_copies(found)
    prints = prints_of([found[place].row for place in np.flatnonzero(near.any(axis=1)).tolist()])
    kept: dict[int, Hit] = {}
    for place, each in enumerate(found):
        for earlier in np.flatnonzero(near[place, :place]).tolist():
            if earlier in kept and len(one := folded([kept[earlier], each.hit], prints)) == 1:
                kept[earlier] = one[0]
                break
        else:
            kept[place] = each.hit
    return list(kept.values())


def _may_be_copies(found: Sequence[Candidate]) -> NDArray[np.bool_]:
    """[hit, hit]: whether two have about the same length, and first windows that are near each other."""
    firsts = np.stack([each.first for each in found])
    lengths = np.array([each.hit.duration_s for each in found])
    near: NDArray[np.bool_] = (firsts @ firsts.T >= AS_NEAR) & as_long(lengths[:, None], lengths)
    np.fill_diagonal(near, False)
    return near
