"""A study: a collection's rated pairs with the features of their captions and clips, and what these correlate with.

The paper's section 5 and more. Rows are rated pairs, by default a caption with its own clip (the paper's true
positives). Features come from captions and clips, targets from people and, where a run is given, from the machine:

- HR, the mean rating over raters, 0–100; SD-HR, its sample standard deviation (n − 1) where two or more rated
- MR, the run's cosine; APT, the mean seconds that raters played the sound
- D(H, M), how far the two are apart: |MR − HR / 100| as the paper has it, its signed form (above 0: the machine rates
  higher), and both with the rating that the run's calibration expects (`calibrate.py`), where it has one, in the
  place of MR

A pair belongs to the split of its caption's clip, and to the pooled study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.calibrate import Calibration
from earmark.analyse.captions import CaptionSettings, caption_features
from earmark.analyse.clips import ClipSettings, clip_features
from earmark.analyse.correlate import Correlation, correlations
from earmark.analyse.features import Features
from earmark.analyse.pairs import Pair, chosen, numbers, rated_pairs
from earmark.analyse.score import trained_captions
from earmark.config import from_table, override
from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import ConfigError, DataError, Problem
from earmark.learn.estimates import scored
from earmark.measure import stats
from earmark.measure.agreement import Agreement, agreement
from earmark.model.dual_encoder import DualEncoder
from earmark.model.share import CALIBRATION
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device
from earmark.relevance import Rating

Floats = NDArray[np.float64]

POOLED = "pooled"
ALL, STUDIED = "all ratings", "in the study"
"""Which ratings agreement is told of."""
REFERENCE = "development"
TARGETS = ("HR", "SD-HR", "MR", "D(H, M)", "D signed", "D fitted", "D fitted signed", "APT")
"""In the order of tables; those that the data has are used."""


@dataclass(frozen=True)
class Settings:
    """How a study is made: `--set` of `earmark analyse`."""

    pairs: Literal["own", "all"] = "own"
    """Captions with their own clips, or every rated pair."""
    without_groups: list[str] = field(default_factory=lambda: ["anchor"])
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
    correlations: list[Correlation]
    agreement: dict[str, Agreement]
    """Of all its ratings, of those "without GROUP, …", and of those in the study, where they differ."""
    machine: Machine | None


class Machine(NamedTuple):
    """How far the run agrees with people on a scope's pairs."""

    spearman: float
    interval: stats.Interval
    pairs: int


@dataclass(frozen=True)
class Study:
    """All that was found; see the module."""

    collection: Collection
    settings: Settings
    run: str
    """Empty where there is none."""
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

    Raises `DataError` where no rated pair is left, `ConfigError` where a setting names a column that is not there.
    """
    ratings = list(filter(chosen(collection, settings.where), collection.ratings))
    every = rated_pairs(collection, [rating for rating in ratings if rating.group not in settings.without_groups])
    pairs = [pair for pair in every if pair.is_own or settings.pairs == "all"]
    if not pairs:
        raise DataError(
            f"{collection.root}: {len(collection.ratings):,} ratings, {len(every):,} pairs with "
            f'{" and ".join(settings.where) or "one"}, and none of them asked for (pairs = "{settings.pairs}"). '
            "Ask for others, or add ratings."
        )
    named, asked = (numbers(pairs, names, collection) for names in (settings.columns, settings.targets))
    captions, clips = captions_of(pairs), clips_of(pairs)
    of_clips = clip_features(collection, clips, settings.clips, progress)
    of_captions = caption_features(captions, _reference(collection, settings), settings.captions, progress)
    machine = _machine(collection, pairs, run, progress)
    targets = _targets(pairs, machine.values)
    order = [name for name in TARGETS if name in targets]
    found = Study(
        collection,
        settings,
        run.name if run else "",
        pairs,
        {
            **_of_pairs(of_clips, [clip.clip_id for clip in clips], [pair.clip.clip_id for pair in pairs]),
            **_of_pairs(of_captions, [c.caption_id for c in captions], [pair.caption.caption_id for pair in pairs]),
            **named.values,
        },
        {**{name: targets[name] for name in order}, **asked.values},
        [],
        _histograms(every),
        [
            *_counted(ratings, every, pairs, settings),
            *of_clips.notes,
            *of_captions.notes,
            *named.notes,
            *asked.notes,
            *machine.notes,
            *_missing(targets, run),
        ],
        [*of_clips.problems, *machine.problems],
    )
    found.scopes.extend(_scopes(found, rated_pairs(collection, ratings), progress))
    return found


def captions_of(pairs: Sequence[Pair]) -> list[Caption]:
    """The pairs' captions, each once."""
    return list({pair.caption.caption_id: pair.caption for pair in pairs}.values())


def clips_of(pairs: Sequence[Pair]) -> list[Clip]:
    """The pairs' clips, each once."""
    return list({pair.clip.clip_id: pair.clip for pair in pairs}.values())


def _reference(collection: Collection, settings: Settings) -> list[Caption]:
    """The captions that frequent words and n-grams are counted in."""
    name = settings.reference
    if not name:
        return collection.captions_of(REFERENCE if REFERENCE in collection.splits else None)
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


# Targets


def _machine(collection: Collection, pairs: Sequence[Pair], run: Path | None, progress: Progress | None) -> Features:
    """MR, and the rating that the run's calibration expects where it has one ("fitted")."""
    if run is None:
        return Features({}, ["MR, D(H, M): no run was given (--run)"])
    model = DualEncoder.load(run).to(best_device())
    cosines = scored(model, collection, clips_of(pairs), captions_of(pairs), progress)
    values = np.full(len(pairs), np.nan)
    for at, pair in enumerate(pairs):
        if pair.clip.clip_id not in cosines.without:
            values[at] = cosines.scorer([pair.caption.caption_id], [pair.clip.clip_id])[0, 0]
    captions = captions_of(pairs)
    trained = len(trained_captions(run, collection, captions))
    found = Features(
        {"MR": values}, [f"MR: {trained:,} of {len(captions):,} captions trained {run.name}"], list(cosines.problems)
    )
    if (run / CALIBRATION).exists():
        calibration = Calibration.read(run)
        defined = np.isfinite(values)
        found.values["fitted"] = np.full(len(pairs), np.nan)
        found.values["fitted"][defined] = calibration.rating(values[defined])[0]
        if known := calibration.fitted_on(caption.text for caption in captions):
            found.notes.append(
                f"D fitted: the map was fitted on {known:,} of {len(captions):,} captions, which flatters it"
            )
    else:
        found.notes.append(f"D fitted: {run.name} has no calibration (`earmark score {run} --fit DIR` makes one)")
    return found


def _targets(pairs: Sequence[Pair], machine: Mapping[str, Floats]) -> dict[str, Floats]:
    """The targets that the data has, one number a pair."""
    ratings = [np.array([rating.rating for rating in pair.ratings]) for pair in pairs]
    played = [[rating.played_s for rating in pair.ratings if rating.played_s is not None] for pair in pairs]
    hr = np.array([each.mean() for each in ratings])
    found = {
        "HR": hr,
        "SD-HR": np.array([each.std(ddof=1) if len(each) > 1 else np.nan for each in ratings]),
        "APT": np.array([np.mean(each) if each else np.nan for each in played]),
    }
    if "MR" in machine:
        found |= {"MR": machine["MR"]}
        found |= {"D(H, M)": abs(machine["MR"] - hr / 100), "D signed": machine["MR"] - hr / 100}
    if "fitted" in machine:
        signed = (machine["fitted"] - hr) / 100
        found |= {"D fitted": abs(signed), "D fitted signed": signed}
    return {name: values for name, values in found.items() if not np.isnan(values).all()}


def _missing(targets: Mapping[str, Floats], run: Path | None) -> Iterator[str]:
    """What the data does not have, in words."""
    if "SD-HR" not in targets:
        yield "SD-HR: no pair has two ratings (the published file may hold means over raters)"
    if "APT" not in targets:
        yield "APT: no rating says how long the sound was played (column played_s)"
    if run is not None and "MR" not in targets:
        yield "MR, D(H, M): no clip could be embedded"


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
    names = list(dict.fromkeys(pair.split for pair in found.pairs))
    names = [*names, POOLED] if len(names) > 1 else names
    for done, name in enumerate(names):
        if progress:
            progress("correlating", done, len(names))
        at = found.at(name)
        captions = [found.pairs[i].caption.caption_id for i in at]
        features, targets = (
            {key: values[at] for key, values in each.items()} for each in (found.features, found.targets)
        )
        inside = [pair for pair in answered if name in (POOLED, pair.split)]
        yield Scope(
            name,
            len(at),
            len(set(captions)),
            correlations(features, targets, captions),
            _agreements(inside, [found.pairs[i] for i in at], found.settings.without_groups),
            _against(found, at),
        )


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


def _against(found: Study, at: NDArray[np.intp]) -> Machine | None:
    """Pooled ρ of MR with HR over the pairs that have both."""
    if "MR" not in found.targets:
        return None
    at = at[np.isfinite(found.targets["MR"][at])]
    mr, hr = found.targets["MR"][at], found.targets["HR"][at]
    captions = [found.pairs[i].caption.caption_id for i in at]
    clips = [found.pairs[i].clip.clip_id for i in at]
    return Machine(stats.spearman(mr, hr), stats.spearman_interval(mr, hr, captions, clips), len(at))


def _histograms(pairs: Sequence[Pair]) -> dict[str, Floats]:
    groups: dict[str, list[float]] = {}
    for pair in pairs:
        groups.setdefault(pair.group or "all", []).append(float(np.mean([rating.rating for rating in pair.ratings])))
    return {name: np.array(values) for name, values in groups.items()}
