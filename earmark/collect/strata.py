"""Which clips a caption is asked with: its own, others that rank high or in the middle, and random ones.

| group | stratum | what |
|---|---|---|
| TP | own | the caption's own clip |
| C15 | similar | the others that rank highest by their best caption's likeness to the caption |
| C15 | top | the same, by a run's scores |
| C15 | middle | the others in the middle of the ranks that are left |
| TN | random | others of all that are left |

The groups are GrRel's (1 TP, 15 C15, 1 TN), whatever the counts. The others are the clips of the caption's split but

- clips that bear the caption's text, and twins of its clip: their match is known, and they are asked as nothing;
- pairs that `ratings.csv` holds already, unless `again`.

Clips of the own clip's group (parts of one recording, say) may rank high, but are never drawn as random ones.

The strata of a caption share no clip, and `probability` is the exact chance of the pair, given the captions that are
asked: 1 where a stratum is taken whole, else the chance with which it was drawn (`balanced`). With `among` 50, the 15
highest are drawn from the 50 highest. Clips of equal score, as those of the same words are, rank in an order that the
caption's text gives: the same for every seed, or their chance would not be 1, and another for every text, or the same
clips would always be the last.

Clips that would be asked seldom get more, others less, by a factor within 1 / `balance` to `balance` before a caption's
chances are brought to its count. In the draw from each stratum a clip is taken the sum of its chances, rounded up or
down; where captions × clips are more than 200,000, as often within 3 (`tests/test_balanced.py`). Strata that are taken
whole cannot be balanced. Measured on 280 generated clips with 200 captions, 15 of the 50 most similar and a random one:
clips are asked 4–30 times (SD 4.4) without balance, 7–18 times (SD 1.1) with 2, 11–13 times (SD 0.7) with 4; taken
whole, 5–23 times (SD 3.5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from earmark.collect import balanced
from earmark.collect.balanced import Places
from earmark.collect.frame import Frame, Progress, Scorer, split_of
from earmark.collect.plan import Plan
from earmark.data.collection import Caption, base_of

RANKS = 6
"""Digits of scores that count."""
DIGITS = 9
"""Of probabilities."""
SWEEPS = 3
"""How often each stratum is levelled in view of the others."""
GROUPS = {"own": "TP", "similar": "C15", "top": "C15", "middle": "C15", "random": "TN"}
"""Stratum → group."""


class Stratum(NamedTuple):
    """Clips of which some are asked with a caption."""

    name: str
    places: Places
    """Of the frame's clips."""
    wanted: int
    """How many are drawn."""


class Others(NamedTuple):
    """What a caption may be asked with; places of the frame's clips."""

    own: int | None
    """Its own clip; None where it is not asked."""
    ranked: Places
    """Others, the highest score first; those without a score are left out."""
    distant: Places
    """Others that are not of the own clip's group."""


class Asked(NamedTuple):
    """A clip that is asked with a caption."""

    place: int
    stratum: str
    probability: float


def others_of(
    found: Frame, captions: Sequence[Caption], rated: Mapping[str, set[int]], scorer: Scorer | None, rng: Generator
) -> list[Others]:
    """For each caption the clips that it may be asked with, the distant ones in random order."""
    splits = np.array([split_of(clip) for clip in found.clips])
    groups = np.array([clip.group for clip in found.clips])
    bases = np.array([base_of(clip.clip_id) for clip in found.clips])
    made = []
    for caption in captions:
        own, text = found.at[caption.clip_id], found.text[caption.caption_id]
        known = rated.get(text, set())
        fine = (splits == splits[own]) & (bases != bases[own])
        fine[[*found.bearing[text], *known]] = False
        places = np.flatnonzero(fine)
        distant = rng.permutation(places[(groups[places] != groups[own]) | (groups[own] == "")])
        ranked = _ranked(found, caption, _in_turn(text).permutation(places), scorer)
        made.append(Others(None if own in known else own, ranked, distant))
    return made


def _in_turn(text: str) -> Generator:
    """What orders clips of equal score beside that text."""
    return np.random.default_rng(list(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()))


def _ranked(found: Frame, caption: Caption, places: Places, scorer: Scorer | None) -> Places:
    """The places by score, the highest first; those of equal score stay as they come."""
    if scorer is None or not len(places):
        return places[:0]
    scores = scorer([caption.caption_id], [found.clips[at].clip_id for at in places])[0]
    order = np.argsort(-np.round(scores, RANKS), kind="stable")
    ranked: Places = places[order[np.isfinite(scores[order])]]
    return ranked


def strata(plan: Plan, others: Others) -> list[Stratum]:
    """The strata of a caption, which share no clip; where clips are few, room for the random ones is left."""
    free = max(0, len(others.ranked) - plan.random)
    high = others.ranked[: min(free, max(plan.similar, plan.among)) if plan.similar else 0]
    left = others.ranked[len(high) :]
    room = min(max(0, len(left) - plan.random), max(plan.middle, plan.among)) if plan.middle else 0
    start = (len(left) - room) // 2
    middle = left[start : start + room]
    rest = others.distant[~np.isin(others.distant, np.concatenate([high, middle]))]
    top = "top" if plan.run else "similar"
    wanted = ((top, high, plan.similar), ("middle", middle, plan.middle), ("random", rest, plan.random))
    return [Stratum(name, places, min(count, len(places))) for name, places, count in wanted]


def lists_of(
    found: Frame, plan: Plan, others: Sequence[Others], rng: Generator, progress: Progress | None = None
) -> list[list[Asked]]:
    """For each caption what is asked with it."""
    lists = [[Asked(each.own, "own", 1.0)] if plan.own and each.own is not None else [] for each in others]
    times = np.bincount([each.place for asked in lists for each in asked], minlength=len(found.clips))
    layers = [layer for each in zip(*(strata(plan, each) for each in others), strict=True) if (layer := _layer(each))]
    for done, (layer, chances) in enumerate(zip(layers, _levelled(layers, times, plan.balance), strict=True)):
        if progress:
            progress("drawing clips", done, len(layers))
        for at in np.flatnonzero(balanced.drawn(layer.row, layer.column, chances, rng)):
            asked = Asked(int(layer.column[at]), layer.name, round(float(chances[at]), DIGITS))
            lists[layer.row[at]].append(asked)
    return lists


class _Layer(NamedTuple):
    """One stratum of all captions: the pairs that may be drawn, and how many are wanted a caption."""

    name: str
    row: Places
    column: Places
    wanted: Places


def _layer(of: Sequence[Stratum]) -> _Layer | None:
    """The stratum of each caption as a table; None where nothing is wanted of it."""
    sizes = [len(stratum.places) if stratum.wanted else 0 for stratum in of]
    column = np.concatenate([stratum.places[:size] for stratum, size in zip(of, sizes, strict=True)])
    wanted = np.array([stratum.wanted for stratum in of], dtype=np.int64)
    return _Layer(of[0].name, np.repeat(np.arange(len(of)), sizes), column, wanted) if len(column) else None


def _levelled(layers: Sequence[_Layer], own: Places, balance: float) -> list[balanced.Chances]:
    """The chances of every layer's pairs, each layer levelled in view of the others."""
    nothing = np.zeros(len(own))
    found = [balanced.chances(each.row, each.column, each.wanted, nothing, 1.0) for each in layers]
    times = [np.bincount(each.column, chances, len(own)) for each, chances in zip(layers, found, strict=True)]
    for _ in range(SWEEPS if balance > 1 else 0):
        for at, each in enumerate(layers):
            elsewhere = own + np.sum([*times[:at], *times[at + 1 :], nothing], axis=0)
            found[at] = balanced.chances(each.row, each.column, each.wanted, elsewhere, balance)
            times[at] = np.bincount(each.column, found[at], len(own))
    return found
