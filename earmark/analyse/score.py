"""The ratings that people would give: the map fitted to a run, and asked for sounds and words, CSVs and collections.

A map is fitted on rated captions that did not train the run: it learned neither from their own clip nor from their
words, nor from the split whose lists their clip stands in as a twin (`S-lists`). What is measured against people's
ratings says how many of its captions trained the run, stopped its training, or are those that the map was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.calibrate import Calibration, fit, text_digest
from earmark.analyse.correlate import FEWEST
from earmark.audio.cache import Features
from earmark.config import read_toml
from earmark.data.collection import LISTS, Caption, Collection, base_of
from earmark.data.rows import is_blank, rating_fault
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import read_table
from earmark.learn.estimates import scored
from earmark.learn.measured import seen
from earmark.measure.stats import rated_measures
from earmark.model.audio_towers import OWN_CAPTIONS
from earmark.model.dual_encoder import DualEncoder, run_fingerprint
from earmark.model.reading import Place, read_all
from earmark.model.text_encoders import Progress, check_texts
from earmark.model.towers import best_device
from earmark.relevance import Pair, Rating, Relevance

Floats = NDArray[np.float64]
ANCHOR = "anchor"
"""The group of a study's own checks on its raters: they say nothing of the pairs that people judge."""
HELD = "evaluation"
"""The split that nothing is fitted on unless it is named."""
UNDEFINED = dict.fromkeys(("SRCC", "LCC", "KTAU"), float("nan"))
"""Correlations of fewer than three pairs (`FEWEST`)."""
ADDED = ("cosine", "rating_expected", "low", "high")
"""The columns that are written beside a row's own."""


@dataclass(frozen=True)
class Scores:
    """Pairs of words and sound with their cosines, as they were asked for."""

    rows: list[dict[str, str]]
    """What each pair was asked by: the CSV's cells, or ids."""
    captions: list[str]
    """The caption's id, or the words where none is known: what belongs together when pairs are counted."""
    texts: list[str]
    cosines: Floats
    ratings: Floats
    """People's, 0–100; NaN where nobody says."""
    groups: list[str] = field(default_factory=list)
    """How each pair was chosen (GrRel: TP, TN, C15), "" where nobody says."""
    problems: list[Problem] = field(default_factory=list)
    """Rows, clips and pairs that were left out."""
    notes: list[str] = field(default_factory=list)
    """What the run has seen of them, and what was left out on purpose."""


@dataclass(frozen=True)
class Answer:
    """Scores with the ratings that people would give."""

    scores: Scores
    expected: Floats
    low: Floats
    high: Floats
    """0–100, as the other two."""
    level: float
    measures: dict[str, Any] | None
    """Against people's ratings, by the keys that docs/score.md lists; None where none are known."""
    notes: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """Each pair's own columns, and `ADDED`: cosines to 6 digits, ratings to 2."""
        found = []
        columns = zip(self.scores.rows, self.scores.cosines, self.expected, self.low, self.high, strict=True)
        for row, cosine, *ratings in columns:
            numbers = [round(float(cosine), 6), *(round(float(each), 2) for each in ratings)]
            found.append({**row, **dict(zip(ADDED, numbers, strict=True))})
        return found


@dataclass(frozen=True)
class Fitted:
    """A calibration, and what was not fitted on."""

    calibration: Calibration
    notes: list[str]
    problems: list[Problem]


# Fitting


def fit_run(run: Path, collection: Collection, split: str | None = None, progress: Progress | None = None) -> Fitted:
    """The calibration of the run on the split's rated captions that did not train it; not yet written.

    Without a split on those of every split but `evaluation`. Raises `DataError` where too few are left.
    """
    model = DualEncoder.load(run).to(best_device())
    fingerprint = run_fingerprint(run)
    where = f"{collection.root}, {f'split {split}' if split else 'every split but evaluation'}"
    ratings, notes = _without_anchors(collection.rated(split))
    captions, more = _to_fit_on(run, collection, _captions(collection, ratings), split, where)
    notes += more
    kept = {caption.caption_id for caption in captions}
    found = _pairs_of(model, collection, [r for r in ratings if r.caption_id in kept], progress, where)
    try:
        calibration = fit(found.cosines, found.values, [pair.caption_id for pair in found.pairs])
    except DataError as error:
        raise DataError(f"{where}: {error}{f' {notes[0]}.' if notes else ''}") from error
    used = {pair.caption_id for pair in found.pairs}
    about = replace(
        calibration,
        collection=collection.name,
        kind=collection.kind,
        split=split,
        texts=sorted({text_digest(caption.text) for caption in captions if caption.caption_id in used}),
        fingerprint=fingerprint,
    )
    return Fitted(about, [*notes, *_heard(run, collection, [pair.clip_id for pair in found.pairs])], found.problems)


def _to_fit_on(
    run: Path, collection: Collection, captions: Sequence[Caption], split: str | None, where: str
) -> tuple[list[Caption], list[str]]:
    """Those of the captions that neither trained the run nor are kept for tests, and what is to be said of the rest."""
    trained = trained_captions(run, collection, captions)
    splits = _split_of(collection)
    held = {c.caption_id for c in captions if split is None and splits[c.clip_id] == HELD} - trained
    left = [caption for caption in captions if caption.caption_id not in trained | held]
    if not left:
        raise DataError(
            f"{where}: no rated caption to fit on; found {len(captions):,}, of which {len(trained):,} trained the run "
            f"and {len(held):,} are of {HELD}, which is kept for tests. Rate others, keep a split from training, or "
            f"fit on {HELD} (--split {HELD}), which then tests nothing."
        )
    notes = []
    if trained:
        notes.append(f"{len(trained):,} of {len(captions):,} rated captions left out: they trained the run")
    if held:
        notes.append(
            f"{len(held):,} rated captions left out: they are of {HELD}, kept for tests (--split {HELD} fits on it)"
        )
    return left, notes + _stopping(run, collection, left)


def trained_captions(run: Path, collection: Collection, captions: Sequence[Caption]) -> set[str]:
    """The ids of the captions that the run, or a teacher of it that is still there, learned from.

    By words, by clip (a twin and what it stands for being one), or as a twin in the lists of a split learned from.
    """
    texts, clips = _learned_from(run, collection)
    return {each.caption_id for each in captions if each.text in texts or base_of(each.clip_id) in clips}


def _learned_from(run: Path, collection: Collection) -> tuple[frozenset[str], set[str]]:
    """The texts of the collection that the run or its teachers learned from, and the clips, each twin by its base."""
    known = [(split, seen(each, collection, split)) for each in _with_teachers(run) for split in collection.splits]
    texts = frozenset[str]().union(*(each.texts for _, each in known))
    lists = {split + LISTS for split, each in known if each.trained_on}
    # a clip that was learned from has no other text; one text in common makes no clip so
    others = {caption.clip_id for caption in collection.captions if caption.text not in texts}
    clips = {caption.clip_id for caption in collection.captions} - others
    clips |= {clip.clip_id for clip in collection.clips if clip.split in lists}
    return texts, {base_of(clip) for clip in clips}


def _with_teachers(run: Path) -> list[Path]:
    """The run and, once each, the teachers that it and they learned from, as far as they are there."""
    found, asked = [run], [run]
    while asked:
        estimates = read_toml(asked.pop() / "config.toml").get("data", {}).get("estimates", {})
        named = [Path(name) for made in estimates.values() for name in made if (Path(name) / "config.toml").is_file()]
        new = [each for each in dict.fromkeys(named) if each not in found]
        found, asked = [*found, *new], [*asked, *new]
    return found


def stopping_splits(run: Path, collection: Collection, splits: Iterable[str]) -> frozenset[str]:
    """Those of the splits that stopped the run's training."""
    there = set(splits) & set(collection.splits)
    return frozenset(split for split in there if seen(run, collection, split).stopped_training)


def _stopping(run: Path, collection: Collection, captions: Sequence[Caption]) -> list[str]:
    """A line for each split that the captions are of and that stopped training."""
    splits = _split_of(collection)
    stopped = stopping_splits(run, collection, (splits[caption.clip_id] for caption in captions))
    return [f"split {split} also stopped training: no test result" for split in sorted(stopped)]


def _heard(run: Path, collection: Collection, clip_ids: Sequence[str]) -> list[str]:
    """A line on the pairs whose clip trained the run, though their caption may not have."""
    clips = _learned_from(run, collection)[1]
    count = sum(base_of(clip) in clips for clip in clip_ids)
    what = f"{count:,} of {len(clip_ids):,} pairs are with clips that trained the run"
    return [f"{what}: with others, ratings may lie farther from what is expected"] if count else []


def _split_of(collection: Collection) -> dict[str, str]:
    """Clip → split, that of a twin being the one whose lists it stands in."""
    return {clip.clip_id: clip.split.removesuffix(LISTS) for clip in collection.clips}


def _without_anchors(ratings: Sequence[Rating]) -> tuple[list[Rating], list[str]]:
    kept = [rating for rating in ratings if rating.group != ANCHOR]
    left = len(ratings) - len(kept)
    return kept, [f"{left:,} ratings of the group {ANCHOR} left out: a study's checks on its raters"] if left else []


def _captions(collection: Collection, ratings: Sequence[Rating]) -> list[Caption]:
    asked = {rating.caption_id for rating in ratings}
    return [caption for caption in collection.captions if caption.caption_id in asked]


# Cosines of a collection's pairs


class _Found(NamedTuple):
    pairs: list[Pair]
    cosines: Floats
    values: Floats
    """Ratings, 0–100."""
    problems: list[Problem]


def _pairs_of(
    model: DualEncoder, collection: Collection, ratings: Sequence[Rating], progress: Progress | None, where: str
) -> _Found:
    """The rated pairs, each once with the mean of its ratings, and their cosines; those without one are problems.

    Raises `DataError` where none has one.
    """
    pairs = list(Relevance.from_ratings(ratings).pairs())
    cosines, problems = cosines_of(model, collection, [(pair.caption_id, pair.clip_id) for pair in pairs], progress)
    places = np.flatnonzero(np.isfinite(cosines))
    if not len(places):
        raise DataError(
            f"{where}: none of {len(pairs):,} rated pairs has a cosine, the first: {str(problems[0]).rstrip('.')}. "
            "Bring the sounds or vectors, or name another split."
        )
    kept = [pairs[place] for place in places]
    return _Found(kept, cosines[places], np.array([100 * pair.value for pair in kept]), problems)


def cosines_of(
    model: DualEncoder, collection: Collection, asked: Sequence[tuple[str, str]], progress: Progress | None
) -> tuple[Floats, list[Problem]]:
    """[pair] the cosines of (caption id, clip id), and why some are NaN: a clip, or a pair."""
    of_caption: dict[str, list[int]] = {}
    for place, (caption, _) in enumerate(asked):
        of_caption.setdefault(caption, []).append(place)
    named = {clip for _, clip in asked}
    clips = [clip for clip in collection.clips if clip.clip_id in named]
    captions = [caption for caption in collection.captions if caption.caption_id in of_caption]
    found = scored(model, collection, clips, captions, progress)
    cosines = np.full(len(asked), np.nan)
    for caption, places in of_caption.items():
        here = [place for place in places if asked[place][1] not in found.without]
        if here:
            cosines[here] = found.scorer([caption], [asked[place][1] for place in here])[0]
    broken = [
        pair for pair, x in zip(asked, cosines, strict=True) if not np.isfinite(x) and pair[1] not in found.without
    ]
    return cosines, [*found.problems, *(Problem(f"pair ({c}, {k})", "its cosine is not finite") for c, k in broken)]


# What is asked for


def score_file(run: Path, file: Path, texts: Sequence[str], progress: Progress | None = None) -> Scores:
    """A sound with each of the texts. Raises `DataError` where it cannot be read or a text is blank."""
    if file.is_dir():
        raise DataError(f"{file}: a folder; expected a sound. For many sounds: --pairs CSV, of path and text.")
    check_texts(texts)
    model = DualEncoder.load(run).to(best_device())
    sound = _sounds(model, [file], progress)[0]
    if isinstance(sound, DataError):
        raise DataError(f"{file}: {str(sound).removeprefix(f'{file}: ')}") from sound
    rows = [{"path": str(file), "text": text} for text in texts]
    words = model.embed_text(texts, progress)
    return _finite(rows, list(texts), (words @ sound).astype(np.float64), np.full(len(texts), np.nan), [])


def score_collection(run: Path, collection: Collection, split: str | None, progress: Progress | None = None) -> Scores:
    """Every rated pair of the split (None: of the collection) with the mean of its ratings; `anchor`s are left out."""
    ratings, notes = _without_anchors(collection.rated(split))
    where = f"{collection.root}, {f'split {split}' if split else 'every split'}"
    if not ratings:
        raise DataError(
            f"{where}: nobody rated anything; expected ratings. Name another split, or the pairs to score: --pairs CSV."
        )
    found = _pairs_of(DualEncoder.load(run).to(best_device()), collection, ratings, progress, where)
    captions = {caption.caption_id: caption for caption in _captions(collection, ratings)}
    group = {(rating.caption_id, rating.clip_id): rating.group for rating in ratings}
    groups = [group[pair.caption_id, pair.clip_id] for pair in found.pairs]
    rows = [
        {"caption_id": pair.caption_id, "clip_id": pair.clip_id, "group": chosen, "rating": f"{value:.6g}"}
        for pair, chosen, value in zip(found.pairs, groups, found.values, strict=True)
    ]
    return Scores(
        rows,
        [pair.caption_id for pair in found.pairs],
        [captions[pair.caption_id].text for pair in found.pairs],
        found.cosines,
        found.values,
        groups,
        [*collection.problems, *found.problems],
        [*notes, *_seen_of(run, collection, list(captions.values()), [pair.clip_id for pair in found.pairs])],
    )


def _seen_of(run: Path, collection: Collection, captions: Sequence[Caption], clip_ids: Sequence[str]) -> list[str]:
    """What the run has seen of the captions and of each pair's clip, a line each."""
    trained = len(trained_captions(run, collection, captions))
    found = f"{trained:,} of {len(captions):,} captions trained the run"
    told = [f"{found}: no test result" if trained else found, *_stopping(run, collection, captions)]
    return told + _heard(run, collection, clip_ids)


def score_table(
    run: Path,
    table: Path,
    collection: Collection | None,
    progress: Progress | None = None,
    *,
    encoding: str = "utf-8",
) -> Scores:
    """The pairs of a CSV: `caption_id,clip_id` or `text,clip_id` of a collection, else `path,text` from its folder.

    `rating` (0–100) and `group` may stand beside them. A row that cannot be used is left out and told.
    """
    by, rows, problems = _asked(table, collection, encoding)
    model = DualEncoder.load(run).to(best_device())
    known = {caption.caption_id: caption.text for caption in collection.captions} if collection else {}
    texts = [row.cells["text"] if by == "text" else known[row.cells["caption_id"]] for row in rows]
    if collection is None:
        cosines, more = _of_files(model, rows, table.parent, progress)
        notes = ["what the run has seen of these sounds and words is not known, since they are of no collection"]
    else:
        of_rows = _of_texts if by == "text" else _of_captions
        cosines, more = of_rows(model, rows, collection, progress)
        same = {row.cells["caption_id"] for row in rows} if by == "caption_id" else set()
        words = set(texts) if by == "text" else set()
        asked = [c for c in collection.captions if c.caption_id in same or c.text in words]
        notes = _seen_of(run, collection, asked, [row.cells["clip_id"] for row in rows])
    ratings = np.array([float(row.cells.get("rating") or "nan") for row in rows])
    found = _finite([row.cells for row in rows], texts, cosines, ratings, [row.cells.get("group", "") for row in rows])
    of_collection = collection.problems if collection is not None else []
    return replace(found, problems=[*of_collection, *problems, *more], notes=notes)


def _asked(table: Path, collection: Collection | None, encoding: str) -> tuple[str, list[_Row], list[Problem]]:
    """By what the words are named (`text` or `caption_id`), the rows that can be used, and why others cannot."""
    needed = ("path", "text") if collection is None else ("clip_id",)
    columns, rows, problems = read_table(table, needed, encoding=encoding)
    if taken := [column for column in ADDED if column in columns]:
        raise DataError(
            f"{table} line 1: column {taken[0]!r}, which is what is written beside a row's own. Rename or drop the "
            f"columns {', '.join(ADDED)}."
        )
    if collection is not None and not {"caption_id", "text"} & set(columns):
        found = ", ".join(map(repr, columns))
        raise DataError(f"{table} line 1: no column 'caption_id' or 'text'; found {found}. Rename the column.")
    if not rows and not problems:
        raise DataError(f"{table}: no rows; expected a pair each. Add some.")
    by = "caption_id" if collection is not None and "caption_id" in columns else "text"
    faults = [_fault(row.cells, collection, by) for row in rows]
    bad = [(row, what) for row, what in zip(rows, faults, strict=True) if what]
    problems += [Problem(f"{table} line {row.line}", f"{what} The row is left out.") for row, what in bad]
    good = [row for row, what in zip(rows, faults, strict=True) if not what]
    return by, [_Row(f"{table} line {row.line}", row.cells) for row in good], problems


class _Row(NamedTuple):
    where: str
    cells: dict[str, str]


def _fault(cells: Mapping[str, str], collection: Collection | None, by: str) -> str:
    """What is wrong with a row, in words; empty where nothing is."""
    if cells.get("rating") and (what := rating_fault({"rating": cells["rating"]})):
        return what
    if by == "text" and is_blank(cells["text"]):
        return f"text {cells['text']!r}: blank; expected words."
    if collection is None:
        plain = cells["path"].strip() and "\0" not in cells["path"]
        return "" if plain else f"path {cells['path']!r}; expected a sound's."
    for column, file in (("clip_id", "clips.csv"), ("caption_id", "captions.csv")):
        if column in ("clip_id", by) and (file, cells[column]) not in collection.lines:
            return f"{column} {cells[column]!r} is not in {collection.root / file}."
    return ""


def _of_captions(
    model: DualEncoder, rows: Sequence[_Row], collection: Collection, progress: Progress | None
) -> tuple[Floats, list[Problem]]:
    """[row] the cosines of a collection's captions and clips, NaN where there is none, and why."""
    asked = [(row.cells["caption_id"], row.cells["clip_id"]) for row in rows]
    return cosines_of(model, collection, asked, progress) if asked else (np.zeros(0), [])


def _of_files(
    model: DualEncoder, rows: Sequence[_Row], folder: Path, progress: Progress | None
) -> tuple[Floats, list[Problem]]:
    """[row] the cosines of words and sound files, NaN where a file cannot be read, and why."""
    paths = list(dict.fromkeys(row.cells["path"] for row in rows))
    sounds = dict(zip(paths, _sounds(model, [folder / path for path in paths], progress), strict=True))
    return _of_vectors([sounds[row.cells["path"]] for row in rows], model, rows, progress)


def _of_texts(
    model: DualEncoder, rows: Sequence[_Row], collection: Collection, progress: Progress | None
) -> tuple[Floats, list[Problem]]:
    """[row] the cosines of words and a collection's clips, NaN where a clip has no embedding, and why."""
    if model.config.audio.encoder == OWN_CAPTIONS:
        raise ConfigError(
            f"{model.source}: knows a clip by its captions (own-captions), and must know which one is asked. Name "
            "captions by a column caption_id."
        )
    named = {row.cells["clip_id"] for row in rows}
    clips = [clip for clip in collection.clips if clip.clip_id in named]
    features, problems = model.clip_features(collection, clips, progress)
    vectors = dict(zip(features, model.embed_features(list(features.values()), progress), strict=True))
    why = {problem.where: problem.what for problem in problems}
    missing = {clip: DataError(why.get(f"clip {clip!r}", "it has no embedding")) for clip in named - set(vectors)}
    sounds = {**vectors, **missing}
    return _of_vectors([sounds[row.cells["clip_id"]] for row in rows], model, rows, progress)


def _of_vectors(
    sounds: Sequence[NDArray[np.float32] | DataError],
    model: DualEncoder,
    rows: Sequence[_Row],
    progress: Progress | None,
) -> tuple[Floats, list[Problem]]:
    """[row] the cosines of each row's sound and words, NaN where it has no sound, and why."""
    texts = list(dict.fromkeys(row.cells["text"] for row in rows))
    words = dict(zip(texts, model.embed_text(texts, progress), strict=True)) if texts else {}
    cosines, problems = np.full(len(rows), np.nan), []
    for place, (row, sound) in enumerate(zip(rows, sounds, strict=True)):
        if isinstance(sound, DataError):
            problems.append(Problem(row.where, f"{' '.join(str(sound).split()).rstrip('.')}. The row is left out."))
            continue
        cosines[place] = words[row.cells["text"]] @ sound
        if not np.isfinite(cosines[place]):
            problems.append(Problem(row.where, "its cosine is not finite. The row is left out."))
    return cosines, problems


def _sounds(
    model: DualEncoder, paths: Sequence[Path], progress: Progress | None
) -> list[NDArray[np.float32] | DataError]:
    """The embedding of each sound, or why it has none."""
    read: list[Features | DataError] = []
    places: list[Place] = list(paths)
    for result in read_all(model.reader(), places):
        read.append(result)
        if progress:
            progress("reading sounds", len(read), len(paths))
    vectors = iter(model.embed_features([each for each in read if not isinstance(each, DataError)], progress))
    return [each if isinstance(each, DataError) else next(vectors) for each in read]


def _finite(
    rows: Sequence[dict[str, str]], texts: Sequence[str], cosines: Floats, ratings: Floats, groups: Sequence[str]
) -> Scores:
    """The rows whose cosine is finite."""
    at = [int(place) for place in np.flatnonzero(np.isfinite(cosines))]
    of_each = [groups[place] for place in at] if groups else [""] * len(at)
    kept, words = [rows[i] for i in at], [texts[i] for i in at]
    captions = [row.get("caption_id") or text for row, text in zip(kept, words, strict=True)]
    return Scores(kept, captions, words, cosines[at], ratings[at], of_each)


# Ratings, and how good they are


def answer(calibration: Calibration, scores: Scores, level: float = 0.9) -> Answer:
    """The scores' expected ratings with intervals, and the measures against people's where some are known."""
    expected, low, high = calibration.rating(scores.cosines, level)
    rated = np.isfinite(scores.ratings)
    notes = list(scores.notes)
    texts = dict(zip(scores.captions, scores.texts, strict=True))
    fitted = set(calibration.texts or [])
    if known := sum(text_digest(text) in fitted for text in texts.values()):
        notes.append(f"THE MAP WAS FITTED ON {known:,} OF THESE {len(texts):,} CAPTIONS: measures on them flatter it")
    notes += calibration.notes(level)
    if outside := calibration.outside(scores.cosines):
        least, most = calibration.cosine_range
        notes.append(
            f"cosines outside {least:.3f} to {most:.3f}, where the map was fitted: {outside:,} of "
            f"{len(scores.cosines):,}; they get the rating and the interval of the nearer end"
        )
    measured = None
    if rated.any():
        parts = [column[rated] for column in (scores.cosines, expected, low, high, scores.ratings)]
        measured = measures(calibration, *parts)
        captions = {caption for caption, has in zip(scores.captions, rated, strict=True) if has}
        measured |= {"captions": len(captions), "level": level}
        measured["groups"] = _group_measures(scores.groups, rated, expected, low, high, scores.ratings)
    return Answer(scores, expected, low, high, level, measured, notes)


def measures(
    calibration: Calibration, cosines: Floats, expected: Floats, low: Floats, high: Floats, ratings: Floats
) -> dict[str, Any]:
    """How well expected ratings and intervals fit people's ratings, all 0–100 [pair]; NaN where undefined.

    SRCC, LCC, KTAU and MSE (on 0–1, as `evaluate` has it) of the expected rating and of the cosine (below 0 as 0 for
    MSE); MSE of two constants, the mean of the ratings that the map was fitted on and of those here, which is the best
    that any constant does; the share of ratings inside the interval, and its mean width in rating points.
    """
    y = ratings / 100
    of_expected = rated_measures(expected / 100, y)
    of_cosine = {**rated_measures(cosines, y), "MSE": float(np.mean((cosines.clip(0, 1) - y) ** 2))}
    return {
        "pairs": len(ratings),
        "expected": of_expected if len(y) >= FEWEST else {**of_expected, **UNDEFINED},
        "cosine": of_cosine if len(y) >= FEWEST else {**of_cosine, **UNDEFINED},
        "constant_fitted": _constant(calibration.mean, ratings),
        "constant_here": _constant(float(ratings.mean()), ratings),
        **_interval_measures(low, high, ratings),
    }


def _constant(value: float, ratings: Floats) -> dict[str, float]:
    return {"rating": value, "MSE": float(np.mean((value - ratings) ** 2)) / 1e4}


def _interval_measures(low: Floats, high: Floats, ratings: Floats) -> dict[str, float]:
    inside = (ratings >= low - 1e-6) & (ratings <= high + 1e-6)  # numbers are kept to six digits
    return {"coverage": float(inside.mean()), "width": float((high - low).mean())}


def _group_measures(groups: Sequence[str], rated: NDArray[np.bool_], *columns: Floats) -> dict[str, Any]:
    """Of each group of pairs how many there are, MSE, coverage and width; {} where no pair names one."""
    return dict(_each_group(np.array(groups, dtype=object), rated, *columns)) if any(groups) else {}


def _each_group(
    groups: NDArray[Any], rated: NDArray[np.bool_], expected: Floats, low: Floats, high: Floats, ratings: Floats
) -> Iterator[tuple[str, dict[str, Any]]]:
    for group in sorted(set(groups[rated]) - {""}):
        at = rated & (groups == group)
        error = float(np.mean((expected[at] - ratings[at]) ** 2)) / 1e4
        yield group, {"pairs": int(at.sum()), "MSE": error, **_interval_measures(low[at], high[at], ratings[at])}
