"""A study: a collection's rated pairs with the features of their captions and clips, and what these go with.

The paper's section 5 and more. Rows are rated pairs, by default a caption with its own clip (the paper's true
positives). Features are of captions and clips, targets (`targets.py`) of people and, where a run is given, of the
machine. A pair belongs to the split of its caption's clip, and to the pooled study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.captions import CaptionSettings, caption_features
from earmark.analyse.clips import ClipSettings, clip_features
from earmark.analyse.correlate import Correlation, correlations, stand_alone
from earmark.analyse.features import Features
from earmark.analyse.pairs import Pair, captions_of, chosen, clips_of, numbers, rated_pairs
from earmark.analyse.targets import OfRun, missing, of_run, targets
from earmark.config import from_table, override
from earmark.data.collection import Caption, Collection
from earmark.data.splits import SPLITS, TRAINED_ON
from earmark.errors import ConfigError, DataError, Problem
from earmark.measure.agreement import Agreement, agreement
from earmark.measure.stats import Interval
from earmark.model.dual_encoder import DualEncoder
from earmark.model.text_encoders import Progress
from earmark.relevance import ANCHOR, Rating

Floats = NDArray[np.float64]

POOLED = "pooled"
ALL, STUDIED = "all ratings", "in the study"
"""Which ratings agreement is told of."""
TWICE = "e_class_normalised"
"""A feature that is another one times a constant: whatever that correlates with, it does too."""


@dataclass(frozen=True)
class Settings:
    """How a study is made: `--set` of `earmark analyse`."""

    pairs: Literal["own", "all"] = "own"
    """Captions with their own clips, or every rated pair."""
    without_groups: list[str] = field(default_factory=lambda: [ANCHOR])
    """Groups of ratings that are left out, such as a study's own checks."""
    reference: str = ""
    """Whose captions frequent words and n-grams are counted in: a split, or another collection's folder; empty:
    `development` where there is one, else all."""
    columns: list[str] = field(default_factory=list)
    """More features: columns of numbers or of yes and no, such as `clips.event_count` or `captions.partial`."""
    targets: list[str] = field(default_factory=list)
    """More targets: such columns again."""
    where: list[str] = field(default_factory=list)
    """Only ratings of which all these hold, such as `captions.partial=yes` or `ratings.group=TP`."""
    captions: CaptionSettings = field(default_factory=CaptionSettings)
    clips: ClipSettings = field(default_factory=ClipSettings)

    @classmethod
    def of(cls, sets: Sequence[str]) -> Settings:
        """The settings with `--set` overrides. Raises `ConfigError` on an unknown key or a value of another type."""
        tables: dict[str, Any] = {}
        for assignment in sets:
            override(tables, assignment)
        parts = {"captions": CaptionSettings, "clips": ClipSettings}
        tables |= {name: from_table(part, tables.get(name, {}), f"--set {name}") for name, part in parts.items()}
        return from_table(cls, tables, "--set")


class Scope(NamedTuple):
    """What was found in one split, or in all."""

    name: str
    """A split, or `POOLED`."""
    pairs: int
    captions: int
    stand_alone: bool
    """Whether p is scipy's (see `correlate`)."""
    correlations: list[Correlation]
    agreement: dict[str, Agreement]
    """Of all its ratings, of those "without GROUP, …", and of those in the study, where they differ."""
    machine: Machine | None


class Machine(NamedTuple):
    """How far the run agrees with people on a scope's pairs, and what of them it has seen."""

    rho: float
    """Spearman's, of MR with HR."""
    interval: Interval
    pairs: int
    captions: int
    trained: int
    """Captions that trained the run."""
    stopped_training: bool
    """Whether (some of) the pairs are of a split that stopped its training."""


@dataclass(frozen=True)
class Study:
    """All that was found; see the module."""

    collection: Collection
    settings: Settings
    run: OfRun | None
    pairs: list[Pair]
    features: dict[str, Floats]
    """Name → one number a pair, NaN where undefined."""
    targets: dict[str, Floats]
    scopes: list[Scope]
    """Each split with pairs, and `POOLED` last where there are several."""
    histograms: dict[str, Floats]
    """Group → the mean ratings of all its pairs, 0–100, whether or not they are in the study."""
    notes: list[str]
    """What a reader must know: readings, models, what is missing, what is undefined and how often."""
    problems: list[Problem]

    def at(self, scope: str) -> NDArray[np.intp]:
        """The places of a scope's pairs."""
        return np.array([i for i, pair in enumerate(self.pairs) if scope in (POOLED, pair.split)], dtype=np.intp)


def study(
    collection: Collection, settings: Settings, *, run: Path | None = None, progress: Progress | None = None
) -> Study:
    """What a collection's ratings go with.

    Raises `DataError` where no rated pair is left or the run is none, `ConfigError` where a setting names what is not
    there.
    """
    ratings = list(filter(chosen(collection, settings.where), collection.ratings))
    every = rated_pairs(collection, [rating for rating in ratings if rating.group not in settings.without_groups])
    pairs = [pair for pair in every if pair.is_own or settings.pairs == "all"]
    if not pairs:
        met = f" that meet {' and '.join(settings.where)}" if settings.where else ""
        own = " of captions with their own clips" if settings.pairs == "own" else ""
        raise DataError(
            f"{collection.root}: no rated pair to study; found {len(collection.ratings):,} ratings, {len(every):,} "
            f"rated pairs{met}, none{own or ' else'}. Add ratings, or ask for others (--set pairs=all, where)."
        )
    if POOLED in collection.splits:
        raise DataError(
            f"{collection.root}: a split is called {POOLED!r}, as all of them together are here. Rename it."
        )
    named, asked = (numbers(pairs, names, collection) for names in (settings.columns, settings.targets))
    reference = _reference(collection, settings)
    model = None if run is None else DualEncoder.load(run)  # refused before the work, not after it
    captions, clips = captions_of(pairs), clips_of(pairs)
    of_captions = caption_features(captions, reference, settings.captions, progress)
    of_clips = clip_features(collection, clips, settings.clips, progress)
    machine = None if run is None or model is None else of_run(run, model, collection, pairs, progress)
    held = targets(pairs, machine)
    found = Study(
        collection=collection,
        settings=settings,
        run=machine,
        pairs=pairs,
        features={
            **_of_pairs(of_clips, [clip.clip_id for clip in clips], [pair.clip.clip_id for pair in pairs]),
            **_of_pairs(of_captions, [c.caption_id for c in captions], [pair.caption.caption_id for pair in pairs]),
            **named.values,
        },
        targets=held | asked.values,
        scopes=[],
        histograms=_histograms(every),
        notes=[
            *_counted(ratings, every, pairs, settings),
            *(machine.notes if machine else []),
            *missing(held, machine),
            *of_clips.notes,
            *of_captions.notes,
            *named.notes,
            *asked.notes,
        ],
        problems=_each_once([*of_clips.problems, *(machine.problems if machine else [])]),
    )
    found.scopes.extend(_scopes(found, rated_pairs(collection, ratings), progress))
    return found


def _each_once(problems: Sequence[Problem]) -> list[Problem]:
    """The first problem of each place: a sound that cannot be read fails for features and machine alike."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.where, problem)
    return list(first.values())


def _reference(collection: Collection, settings: Settings) -> list[Caption]:
    """The captions that frequent words and n-grams are counted in."""
    name = settings.reference
    if not name:
        return collection.captions_of(TRAINED_ON if TRAINED_ON in collection.splits else None)
    if name in collection.splits:
        return collection.captions_of(name)
    if Path(name).is_dir():
        return Collection.read(name).captions
    raise ConfigError(
        f"--set reference={name}: neither a split ({', '.join(collection.splits)}) nor a collection's folder."
    )


def _of_pairs(features: Features, items: Sequence[str], of_pair: Sequence[str]) -> dict[str, Floats]:
    """Features of items as features of the pairs that they stand in."""
    place = {item: at for at, item in enumerate(items)}
    at = [place[item] for item in of_pair]
    return {name: values[at] for name, values in features.values.items()}


def _counted(
    ratings: Sequence[Rating], every: Sequence[Pair], pairs: Sequence[Pair], settings: Settings
) -> Iterator[str]:
    """What is in the study, and what is not."""
    asked = "captions with their own clips" if settings.pairs == "own" else "whatever their clip"
    yield f"in the study: {len(pairs):,} of {len(every):,} rated pairs ({'; '.join([asked, *settings.where])})"
    checks = sum(rating.group in settings.without_groups for rating in ratings)
    if checks:
        groups = ", ".join(settings.without_groups)
        yield f"left out: {checks:,} of {len(ratings):,} ratings, of group {groups}"


# What they go with


def _scopes(found: Study, answered: Sequence[Pair], progress: Progress | None) -> Iterator[Scope]:
    """What was found in each split, and pooled; `answered` are the pairs with all their ratings, checks too."""
    there = dict.fromkeys(pair.split for pair in found.pairs)
    names = [split for split in SPLITS if split in there] + [split for split in there if split not in SPLITS]
    names = [*names, POOLED] if len(names) > 1 else names
    alone = stand_alone(*_ids(found.pairs))  # of all, so that p is the same thing in every table
    for done, name in enumerate(names):
        if progress:
            progress("correlating", done, len(names))
        at = found.at(name)
        pairs = [found.pairs[i] for i in at]
        ids = _ids(pairs)
        features = {key: values[at] for key, values in found.features.items() if key != TWICE}
        held = {key: values[at] for key, values in found.targets.items()}
        inside = [pair for pair in answered if name in (POOLED, pair.split)]
        yield Scope(
            name,
            len(at),
            len(set(ids[0])),
            alone,
            correlations(features, held, *ids, independent=alone),
            _agreements(inside, pairs, found.settings.without_groups),
            _against(found, pairs, held, *ids),
        )


def _ids(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The captions and the clips of pairs, by id."""
    return [pair.caption.caption_id for pair in pairs], [pair.clip.clip_id for pair in pairs]


def _agreements(answered: Sequence[Pair], pairs: Sequence[Pair], without: Sequence[str]) -> dict[str, Agreement]:
    """Of all ratings, of those of groups that are not left out, and of the study's own, where these differ."""
    every, studied = ([rating for pair in each for rating in pair.ratings] for each in (answered, pairs))
    kept = [rating for rating in every if rating.group not in without]
    found = {ALL: every, f"without {', '.join(without)}": kept, STUDIED: studied}
    sizes = [len(ratings) for ratings in found.values()]
    return {
        name: agreement(ratings)
        for place, (name, ratings) in enumerate(found.items())
        if len(ratings) not in sizes[:place]
    }


def _against(
    found: Study, pairs: Sequence[Pair], held: Mapping[str, Floats], captions: list[str], clips: list[str]
) -> Machine | None:
    """ρ of MR with HR over the scope's pairs that have both."""
    if found.run is None or "MR" not in held:
        return None
    (each,) = correlations({"MR": held["MR"]}, {"HR": held["HR"]}, captions, clips)
    splits = {pair.split for pair in pairs}
    trained = len(found.run.trained & set(captions))
    return Machine(each.rho, each.rho_interval, each.n, len(set(captions)), trained, bool(found.run.stopped & splits))


def _histograms(pairs: Sequence[Pair]) -> dict[str, Floats]:
    groups: dict[str, list[float]] = {}
    for pair in pairs:
        groups.setdefault(pair.group or "all", []).append(pair.rating)
    return {name: np.array(values) for name, values in groups.items()}
