"""Ratings written: as a collection that trains, as one table, or in the layouts of GrRel and XACLE.

| layout | OUT | rows |
|---|---|---|
| collection | a folder: the collection with these ratings | an answer |
| ratings | a CSV with the columns of ratings.csv | an answer |
| mean | caption_id, clip_id, text, group, stratum, probability, rating (mean), sd (n − 1), n | a pair |
| grrel | tid, fid, fid_group, rating: the mean, 0–100, a half rounded up | a pair |
| xacle | wave_file_name, text, score 0–10, listener_id | an answer |

No cell is a spreadsheet's formula: one that would be (=, +, -, @, a tab or a line break first) begins with a `'`. A
collection says so in collection.toml, and reading it takes the `'` away again, as `read_source` does with the tables;
whoever else reads them finds it before such texts and ids, of which GrRel's and YouTube's are some, or asks for cells
as they are. Numbers are plain decimals, and what is unknown is empty. A table of ratings that are simulated, or not of
recorded sounds, has a column `collection_kind` more, by which that is told when it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path, PurePosixPath

import numpy as np

from earmark.collect.sources import Source, plain
from earmark.data.collection import GUARD, Collection
from earmark.data.rows import KIND_COLUMN, KINDS, RATING_COLUMNS, guarded
from earmark.errors import ConfigError, DataError
from earmark.files import check_new_folder, write_table
from earmark.relevance import Rating

Table = tuple[Sequence[str], list[dict[str, str]]]
"""Columns and rows."""
MEAN_COLUMNS = ("caption_id", "clip_id", "text", "group", "stratum", "probability", "rating", "sd", "n")
DIGITS = 6
"""Decimals of means and standard deviations."""


def export(
    source: Source, out: Path | str, layout: str = "collection", *, guard: bool = True, earlier: bool = False
) -> int:
    """How many rows (of the source's ratings) were written to `out`, which appears whole.

    Without `guard` cells are as they are, formulas too: for programs that know nothing of the `'`. With `earlier` an
    exported collection keeps the ratings that it had before the study, too.
    Raises `ConfigError` on an unknown layout, `DataError` where `out` is there already, or the source has not what the
    layout needs.
    """
    out = Path(out)
    if layout == "collection":
        return _export_collection(source, out, guard, earlier)
    if layout not in LAYOUTS:
        raise ConfigError(f"--layout {layout}; expected {', '.join(('collection', *LAYOUTS))}.")
    if out.exists() or out.is_symlink():
        raise DataError(f"{out}: is there already; expected nothing. Delete it, or name another.")
    columns, rows = of_kind(source.kind, *LAYOUTS[layout](source))
    write_table(out, *(without_formulas(columns, rows) if guard else (columns, rows)))
    return len(rows)


def of_kind(kind: str, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Table:
    """The table with a column that tells the kind, where that is not recorded."""
    if kind == KINDS[0]:
        return columns, [dict(row) for row in rows]
    return [*columns, KIND_COLUMN], [{**row, KIND_COLUMN: kind} for row in rows]


def without_formulas(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Table:
    """The table with every cell `guarded`."""
    cells = [{guarded(column): guarded(cell) for column, cell in row.items()} for row in rows]
    return [guarded(column) for column in columns], cells


def _export_collection(source: Source, out: Path, guard: bool, earlier: bool) -> int:
    """The collection of the source with its ratings, with `earlier` after those it had; sounds stay where they are."""
    source = source.in_collection()
    found = _collection(source, "collection")
    check_new_folder(out)
    about = {**found.about, GUARD: guard, "collected": _about(source)}
    kept = earlier_ratings(source) if earlier else []
    kind = max(source.kind, found.kind, key=KINDS.index) if kept else source.kind
    replace(found, ratings=[*kept, *source.ratings], kind=kind, about=about, problems=[]).write(out)
    return len(source.ratings)


def earlier_ratings(source: Source) -> list[Rating]:
    """The ratings that a study's collection had before the study."""
    of_study = source.collection is not None and source.what == "study"
    return list(source.collection.ratings) if source.collection is not None and of_study else []


def _about(source: Source) -> dict[str, object]:
    """What collection.toml tells of where the ratings are from."""
    raters = {rating.rater_id for rating in source.ratings if rating.rater_id}
    left_out = {why: count for why, count in source.left_out.items() if count}
    return {"from": source.path.resolve().name, "ratings": len(source.ratings), "raters": len(raters)} | (
        {"left_out": left_out} if left_out else {}
    )


def _collection(source: Source, layout: str) -> Collection:
    if source.collection is None:
        raise DataError(
            f"{source.path}: {source.what} names neither sounds nor texts, which --layout {layout} needs; expected a "
            "study, a collection, RELATE's or XACLE's file."
        )
    return source.collection


# Tables


def ratings_table(ratings: Sequence[Rating]) -> Table:
    """The columns of ratings.csv, those of them that hold something, and the others."""
    cells = [
        {
            "caption_id": each.caption_id,
            "clip_id": each.clip_id,
            "rating": plain(each.rating),
            "group": each.group,
            "rater_id": each.rater_id,
            "played_s": _number(each.played_s),
            "stratum": each.stratum,
            "probability": _number(each.probability),
        }
        for each in ratings
    ]
    columns = [name for name in RATING_COLUMNS if name in RATING_COLUMNS[:3] or any(row[name] for row in cells)]
    more = list(dict.fromkeys(column for each in ratings for column in each.more))
    rows = [{**each.more, **row} for each, row in zip(ratings, cells, strict=True)]
    return [*columns, *more], rows


def _number(value: float | None) -> str:
    return "" if value is None else plain(value)


def _means(source: Source) -> Table:
    """A pair a row, in order of first appearance; sd is empty for a single answer."""
    texts = _texts(source) if source.collection is not None else {}
    rows = []
    for answers in _pairs(source.ratings):
        first, values = answers[0], np.array([each.rating for each in answers])
        row = {name: getattr(first, name) for name in ("caption_id", "clip_id", "group", "stratum")}
        row |= {"text": texts.get(first.caption_id, ""), "probability": _number(first.probability)}
        row |= {"rating": plain(round(float(values.mean()), DIGITS)), "n": str(len(values))}
        row["sd"] = plain(round(float(values.std(ddof=1)), DIGITS)) if len(values) > 1 else ""
        rows.append(row)
    return [name for name in MEAN_COLUMNS if name != "text" or texts], rows


def _grrel(source: Source) -> Table:
    """GrRel's: means rounded to whole numbers."""
    rows = []
    for answers in _pairs(source.ratings):
        mean = sum((Decimal(plain(each.rating)) for each in answers), Decimal(0)) / len(answers)
        whole = mean.quantize(Decimal(1), ROUND_HALF_UP)
        first = answers[0]
        rows.append({"tid": first.caption_id, "fid": first.clip_id, "fid_group": first.group, "rating": str(whole)})
    return ("tid", "fid", "fid_group", "rating"), rows


def _xacle(source: Source) -> Table:
    """XACLE's: an answer a row, 0–10."""
    source = source.in_collection()
    texts, names = _texts(source, "xacle"), _names(source)
    rows = [
        {
            "wave_file_name": names[each.clip_id],
            "text": texts[each.caption_id],
            "score": f"{(Decimal(plain(each.rating)) / 10).normalize():f}",
            "listener_id": each.rater_id,
        }
        for each in source.ratings
    ]
    return ("wave_file_name", "text", "score", "listener_id"), rows


LAYOUTS: Mapping[str, Callable[[Source], Table]] = {
    "ratings": lambda source: ratings_table(source.ratings),
    "mean": _means,
    "grrel": _grrel,
    "xacle": _xacle,
}
"""The layouts that are one table."""


def _pairs(ratings: Sequence[Rating]) -> list[list[Rating]]:
    """The ratings of each pair, in order of first appearance."""
    found: dict[tuple[str, str], list[Rating]] = {}
    for rating in ratings:
        found.setdefault((rating.caption_id, rating.clip_id), []).append(rating)
    return list(found.values())


def _texts(source: Source, layout: str = "mean") -> dict[str, str]:
    """The text of each caption."""
    return {caption.caption_id: caption.text for caption in _collection(source, layout).captions}


def _names(source: Source) -> dict[str, str]:
    """What each rated clip's file is called; its id where it has none, or another file has the same name."""
    rated = {rating.clip_id for rating in source.ratings}
    clips = [clip for clip in _collection(source, "xacle").clips if clip.clip_id in rated]
    names = {clip.clip_id: PurePosixPath(clip.path).name or clip.clip_id for clip in clips}
    while len(times := Counter(names.values())) < len(names):  # an id may be another file's name
        names = {clip_id: name if times[name] == 1 else clip_id for clip_id, name in names.items()}
    return names
