"""A collection's rated pairs, and what the rows of its tables say of them.

A column is named by its table: `clips.split`, `captions.partial`, `ratings.rater_id`. A condition is
`TABLE.COLUMN=VALUE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from earmark.analyse.features import Features
from earmark.data.collection import LISTS, Caption, Clip, Collection
from earmark.data.rows import CAPTION_COLUMNS, CLIP_COLUMNS, RATING_COLUMNS
from earmark.errors import ConfigError
from earmark.measure.stats import mean_defined
from earmark.relevance import Rating, mean_rating

YES_NO = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
OWN_COLUMNS = {"clips": CLIP_COLUMNS, "captions": CAPTION_COLUMNS, "ratings": RATING_COLUMNS}
"""The columns that every collection has; others are a row's `more`."""


class Pair(NamedTuple):
    """A rated pair."""

    caption: Caption
    clip: Clip
    split: str
    """Of the caption's clip, without `-lists`."""
    ratings: list[Rating]

    @property
    def group(self) -> str:
        """How it was chosen, "" where nobody says."""
        return self.ratings[0].group

    @property
    def rating(self) -> float:
        """The mean over raters, 0–100: that of `Relevance`, times 100."""
        return mean_rating([rating.rating for rating in self.ratings])

    @property
    def is_own(self) -> bool:
        """Whether the clip is the caption's own."""
        return self.caption.clip_id == self.clip.clip_id


def rated_pairs(collection: Collection, ratings: Sequence[Rating]) -> list[Pair]:
    """The pairs of these ratings, in their order."""
    captions = {caption.caption_id: caption for caption in collection.captions}
    clips = {clip.clip_id: clip for clip in collection.clips}
    found: dict[tuple[str, str], list[Rating]] = {}
    for rating in ratings:
        found.setdefault((rating.caption_id, rating.clip_id), []).append(rating)
    return [
        Pair(captions[caption], clips[clip], clips[captions[caption].clip_id].split.removesuffix(LISTS), of_pair)
        for (caption, clip), of_pair in found.items()
    ]


def captions_of(pairs: Sequence[Pair]) -> list[Caption]:
    """The pairs' captions, each once."""
    return list({pair.caption.caption_id: pair.caption for pair in pairs}.values())


def clips_of(pairs: Sequence[Pair]) -> list[Clip]:
    """The pairs' clips, each once."""
    return list({pair.clip.clip_id: pair.clip for pair in pairs}.values())


def chosen(collection: Collection, where: Sequence[str]) -> Callable[[Rating], bool]:
    """Whether a rating meets every `TABLE.COLUMN=VALUE`.

    Raises `ConfigError` where one is no condition, or no row has its column.
    """
    captions = {caption.caption_id: caption for caption in collection.captions}
    clips = {clip.clip_id: clip for clip in collection.clips}
    wanted = []
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set where: {text!r}; expected TABLE.COLUMN=VALUE, such as captions.partial=yes.")
        wanted.append((*column(name.strip(), collection), value.strip()))

    def holds(rating: Rating) -> bool:
        rows: dict[str, Clip | Caption | Rating] = {
            "clips": clips[rating.clip_id],
            "captions": captions[rating.caption_id],
            "ratings": rating,
        }
        return all(cell(rows[table], key) == value for table, key, value in wanted)

    return holds


def column(name: str, collection: Collection) -> tuple[str, str]:
    """A column's table and its name there. Raises `ConfigError` where the collection has no such column."""
    table, _, key = name.partition(".")
    if table not in OWN_COLUMNS:
        raise ConfigError(f"column {name!r}: expected {' or '.join(f'{each}.COLUMN' for each in OWN_COLUMNS)}.")
    rows: Sequence[Clip | Caption | Rating] = getattr(collection, table)
    known = dict.fromkeys([*OWN_COLUMNS[table], *(key for row in rows for key in row.more)])
    if key not in known:
        raise ConfigError(f"column {name!r}: {table}.csv has none; it has {', '.join(known)}. Name one of these.")
    return table, key


def cell(row: Clip | Caption | Rating, key: str) -> str:
    """What stands in a row's column; "" where nothing does."""
    found = row.more.get(key, getattr(row, key, ""))
    return "" if found is None else str(found).strip()


def numbers(pairs: Sequence[Pair], names: Sequence[str], collection: Collection) -> Features:
    """Columns as numbers, yes as 1 and no as 0; of ratings the mean over a pair's ratings that have a number.

    Cells without a number are undefined, and counted in a note. Raises `ConfigError` where there is no such column.
    """
    found = Features({})
    for name in names:
        table, key = column(name, collection)
        values = np.array([_mean_of(pair, table, key) for pair in pairs])
        found.values[name] = values
        if undefined := int(np.isnan(values).sum()):
            found.notes.append(f"{name}: {undefined:,} of {len(values):,} pairs have neither a number nor yes or no")
    return found


def _mean_of(pair: Pair, table: str, key: str) -> float:
    rows: dict[str, Sequence[Clip | Caption | Rating]] = {"clips": [pair.clip], "captions": [pair.caption]}
    numbers = [_number(cell(row, key)) for row in rows.get(table, pair.ratings)]
    return mean_defined(numbers)[0]


def _number(cell: str) -> float:
    try:
        value = YES_NO.get(cell.lower())
        value = float(cell) if value is None else value
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
