"""Cosines of sounds and words, as they are asked for: a file and texts, a collection's rated pairs, a CSV's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.pairs import Pair, captions_of, rated_pairs
from earmark.analyse.trained import seen_notes
from earmark.audio.cache import Features
from earmark.data.collection import Collection
from earmark.data.rows import is_blank, rating_fault
from earmark.data.vectors import products
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import read_table
from earmark.learn.estimates import scored
from earmark.model.audio_towers import OWN_CAPTIONS
from earmark.model.dual_encoder import DualEncoder
from earmark.model.reading import Place, read_all
from earmark.model.text_encoders import Progress, check_texts
from earmark.model.towers import best_device
from earmark.relevance import without_anchors

Floats = NDArray[np.float64]
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


# Pairs, and their cosines


class Found(NamedTuple):
    """Rated pairs that have a cosine."""

    pairs: list[Pair]
    cosines: Floats
    ratings: Floats
    """Means over raters, 0–100."""
    problems: list[Problem]


def with_cosines(
    model: DualEncoder, collection: Collection, pairs: Sequence[Pair], progress: Progress | None, where: str
) -> Found:
    """The pairs that have a cosine, with it; those that have none are problems. Raises `DataError` where none has."""
    asked = [(pair.caption.caption_id, pair.clip.clip_id) for pair in pairs]
    cosines, problems = cosines_of(model, collection, asked, progress)
    places = np.flatnonzero(np.isfinite(cosines))
    if not len(places):
        raise DataError(
            f"{where}: none of {len(pairs):,} rated pairs has a cosine, the first: {str(problems[0]).rstrip('.')}. "
            "Bring the sounds or vectors, or name another split."
        )
    kept = [pairs[int(place)] for place in places]
    return Found(kept, cosines[places], np.array([pair.rating for pair in kept]), problems)


def cosines_of(
    model: DualEncoder, collection: Collection, asked: Sequence[tuple[str, str]], progress: Progress | None
) -> tuple[Floats, list[Problem]]:
    """[pair] the cosines of (caption id, clip id), and why some are NaN: a caption, a clip, or a pair."""
    collection, lost = model.with_caption_features(collection, {caption for caption, _ in asked})
    there = {caption.caption_id for caption in collection.captions}
    of_caption: dict[str, list[int]] = {}
    for place, (caption, _) in enumerate(asked):
        if caption in there:
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
        pair
        for pair, x in zip(asked, cosines, strict=True)
        if not np.isfinite(x) and pair[0] in there and pair[1] not in found.without
    ]
    more = (Problem(f"pair ({c}, {k})", "its cosine is not finite") for c, k in broken)
    return cosines, [*lost, *found.problems, *more]


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
    return _finite(
        rows, list(texts), products(words, sound[None])[:, 0].astype(np.float64), np.full(len(texts), np.nan), []
    )


def score_collection(run: Path, collection: Collection, split: str | None, progress: Progress | None = None) -> Scores:
    """Every rated pair of the split (None: of the collection) with the mean of its ratings; `anchor`s are left out."""
    ratings, notes = without_anchors(collection.rated(split, anchors=True))
    where = f"{collection.root}, {f'split {split}' if split else 'every split'}"
    if not ratings:
        raise DataError(
            f"{where}: nobody rated anything; expected ratings. Name another split, or the pairs to score: --pairs CSV."
        )
    pairs = rated_pairs(collection, ratings)
    found = with_cosines(DualEncoder.load(run).to(best_device()), collection, pairs, progress, where)
    rows = [
        {
            "caption_id": pair.caption.caption_id,
            "clip_id": pair.clip.clip_id,
            "group": pair.group,
            "rating": f"{pair.rating:.6g}",
        }
        for pair in found.pairs
    ]
    return Scores(
        rows,
        [pair.caption.caption_id for pair in found.pairs],
        [pair.caption.text for pair in found.pairs],
        found.cosines,
        found.ratings,
        [pair.group for pair in found.pairs],
        [*collection.problems, *found.problems],
        [*notes, *seen_notes(run, collection, captions_of(pairs), [pair.clip.clip_id for pair in found.pairs])],
    )


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
        notes = seen_notes(run, collection, asked, [row.cells["clip_id"] for row in rows])
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
        cosines[place] = products(words[row.cells["text"]][None], sound[None])[0, 0]
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
