"""What is relevant to what: a sparse table caption × clip → value in [0, 1].

`unjudged` says what an absent pair means: 0.0 in a closed world (captioning pairs: a clip that a caption was
not written for counts as irrelevant), None where nobody knows (ratings). Where several people rated a pair,
`n`, `sd` and `weight` go with its value. Ratings are 0–100 in files and in `Rating`, nowhere else.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from earmark.errors import ConfigError, DataError
from earmark.files import read_table, read_text, write_table, write_text

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Aggregate = Literal["mean", "standardised"]
ANCHOR = "anchor"
"""The group of a study's own checks on its raters: they say nothing of the pairs that people judge."""
DIGITS = 9
"""Of means over raters and of their spread, 0–100: what is equal on paper is equal here."""
CSV_COLUMNS = ("caption_id", "clip_id", "rating", "n", "sd", "weight")
_DIGITS = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Rating:
    """One person's answer (or the published mean of several) to: how well does this clip match this caption?"""

    caption_id: str
    clip_id: str
    rating: float
    """0–100."""
    group: str = ""
    """How the pair was chosen: TP the caption's own clip, TN a random other, C15 by similarity (GrRel)."""
    rater_id: str = ""
    played_s: float | None = None
    """How long the rater listened, in seconds."""
    stratum: str = ""
    probability: float | None = None
    """With what chance the pair was drawn, in (0, 1]."""
    more: Mapping[str, str] = field(default_factory=dict)
    """The file's other columns."""


def without_anchors(ratings: Sequence[Rating]) -> tuple[list[Rating], list[str]]:
    """The ratings but a study's checks, and a line that counts these."""
    kept = [rating for rating in ratings if rating.group != ANCHOR]
    left = len(ratings) - len(kept)
    return kept, [f"{left:,} ratings of the group {ANCHOR} left out: a study's checks on its raters"] if left else []


def mean_rating(ratings: Sequence[float]) -> float:
    """The mean of a pair's ratings, 0–100, to nine decimals: 15 of {10, 20} as of {15, 15}, in any order."""
    return round(math.fsum(ratings) / len(ratings), DIGITS)


def spread(ratings: Sequence[float]) -> float:
    """The sample standard deviation (n − 1) of a pair's ratings, to nine decimals; NaN for a single one."""
    if len(ratings) < 2:
        return math.nan
    mean = math.fsum(ratings) / len(ratings)
    return round(math.sqrt(math.fsum((rating - mean) ** 2 for rating in ratings) / (len(ratings) - 1)), DIGITS)


class Pair(NamedTuple):
    """One judged pair."""

    caption_id: str
    clip_id: str
    value: float
    """0–1."""
    n: int = 1
    """How many people rated it."""
    sd: float = math.nan
    """Sample standard deviation (n − 1) of their values, 0–1; NaN for a single one."""
    weight: float = 1.0
    """How much the pair counts in a mean over pairs: 1 / the chance with which it was drawn, 1 where unknown."""


class Relevance:
    """A sparse table of judged pairs; see the module. Immutable: every method gives a new table."""

    def __init__(self, pairs: Iterable[Pair], *, unjudged: float | None) -> None:
        """Takes each (caption, clip) once, with a value in [0, 1]; raises `DataError` otherwise."""
        if unjudged not in (None, 0.0):
            raise ConfigError(f"unjudged={unjudged!r}; expected 0.0 (closed world) or None (nobody knows)")
        self.unjudged = unjudged
        self._pairs = tuple(pairs)
        self._row = {c: i for i, c in enumerate(dict.fromkeys(pair.caption_id for pair in self._pairs))}
        self._column = {c: i for i, c in enumerate(dict.fromkeys(pair.clip_id for pair in self._pairs))}
        self._values = np.array([pair.value for pair in self._pairs], dtype=np.float64)
        self._entries = self._table()

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], *, unjudged: float | None = 0.0) -> Relevance:
        """Value 1 for every (caption_id, clip_id) given; every other pair is irrelevant. Repeated pairs count once."""
        return cls((Pair(caption, clip, 1.0) for caption, clip in dict.fromkeys(pairs)), unjudged=unjudged)

    @classmethod
    def from_ratings(cls, ratings: Iterable[Rating], aggregate: Aggregate = "mean") -> Relevance:
        """A pair's value is the mean of its ratings (`mean_rating`) / 100; pairs that nobody rated are unjudged.

        Every rating given counts: a study's anchors are left out before (`without_anchors`).

        With `aggregate="standardised"` each rater's ratings are first brought to the mean and the standard
        deviation of all ratings (a rater's leniency and spread drop out; ratings without a rater stay as they
        are) and cut to 0–100. Raises `DataError` on a rating that is not finite or outside 0–100.
        """
        rows = list(ratings)
        for rating in rows:
            _check_rating(rating)
        if aggregate not in ("mean", "standardised"):
            raise ConfigError(f'aggregate={aggregate!r}; expected "mean" or "standardised"')
        values = np.array([rating.rating for rating in rows], dtype=np.float64)
        if aggregate == "standardised":
            values = _standardised(values, [rating.rater_id for rating in rows])
        places: dict[tuple[str, str], list[int]] = {}
        for place, rating in enumerate(rows):
            places.setdefault((rating.caption_id, rating.clip_id), []).append(place)
        return cls((_aggregated(rows, values, at) for at in places.values()), unjudged=None)

    def __len__(self) -> int:
        """The number of judged pairs that the table holds."""
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same pairs, in any order."""
        if not isinstance(other, Relevance):
            return NotImplemented
        return self.unjudged == other.unjudged and sorted(map(repr, self._pairs)) == sorted(map(repr, other._pairs))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Relevance({len(self)} pairs, {len(self._row)} captions, {len(self._column)} clips, {self.unjudged=})"

    @property
    def caption_ids(self) -> list[str]:
        """The captions that have a pair, in order of first appearance."""
        return list(self._row)

    @property
    def clip_ids(self) -> list[str]:
        """The clips that have a pair, in order of first appearance."""
        return list(self._column)

    def pairs(self) -> Iterator[Pair]:
        """Every judged pair that the table holds, in the order given."""
        return iter(self._pairs)

    def get(self, caption_id: str, clip_id: str) -> Pair | None:
        """The pair, or None where the table does not hold it."""
        if caption_id not in self._row or clip_id not in self._column:
            return None
        entry = int(self._entries[self._row[caption_id], self._column[clip_id]])
        return self._pairs[entry - 1] if entry else None

    def block(
        self, caption_ids: Sequence[str], clip_ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(values, judged), both [caption, clip]; an absent pair has value 0 and is judged only where `unjudged=0.0`.

        Ids that the table does not know are absent pairs; ids may repeat.
        """
        values = np.zeros((len(caption_ids), len(clip_ids)), dtype=np.float32)
        judged = np.full(values.shape, self.unjudged is not None)
        rows = np.array([self._row.get(caption, -1) for caption in caption_ids], dtype=np.int64)
        columns = np.array([self._column.get(clip, -1) for clip in clip_ids], dtype=np.int64)
        known_rows, known_columns = np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0)
        if not (len(known_rows) and len(known_columns)):
            return values, judged
        entries = self._entries[rows[known_rows]][:, columns[known_columns]].tocoo()
        at = known_rows[entries.row], known_columns[entries.col]
        values[at] = self._values[entries.data - 1]
        judged[at] = True
        return values, judged

    def threshold(self, at: float) -> Relevance:
        """The binary table: 1 where the value is `at` or more, else 0. Pairs stay judged."""
        return self._map(lambda pair: Pair(pair.caption_id, pair.clip_id, float(pair.value >= at), weight=pair.weight))

    def transpose(self) -> Relevance:
        """The same pairs with captions and clips in each other's place, for audio-to-text."""
        return self._map(lambda pair: pair._replace(caption_id=pair.clip_id, clip_id=pair.caption_id))

    def restrict(self, captions: Iterable[str] | None = None, clips: Iterable[str] | None = None) -> Relevance:
        """Only the pairs of these captions and these clips; None keeps all."""
        wanted_captions = None if captions is None else set(captions)
        wanted_clips = None if clips is None else set(clips)
        kept = (
            pair
            for pair in self._pairs
            if (wanted_captions is None or pair.caption_id in wanted_captions)
            and (wanted_clips is None or pair.clip_id in wanted_clips)
        )
        return Relevance(kept, unjudged=self.unjudged)

    def overlaid_by(self, other: Relevance) -> Relevance:
        """This table with each pair that `other` holds taken from `other`: ratings overrule a closed world's zeros."""
        merged = {(pair.caption_id, pair.clip_id): pair for pair in self._pairs}
        merged.update({(pair.caption_id, pair.clip_id): pair for pair in other._pairs})
        return Relevance(merged.values(), unjudged=self.unjudged)

    def write_csv(self, path: Path) -> None:
        """Writes `caption_id,clip_id,rating,n,sd,weight`, rating and sd in 0–100; `read_csv` gives the same table."""
        rows = (
            dict(
                zip(
                    CSV_COLUMNS,
                    (p.caption_id, p.clip_id, _percent(p.value), p.n, _percent(p.sd), p.weight),
                    strict=True,
                )
            )
            for p in self._pairs
        )
        write_table(path, CSV_COLUMNS, rows)

    @classmethod
    def read_csv(cls, path: Path, *, unjudged: float | None = None) -> Relevance:
        """The table of a file of `caption_id,clip_id,rating` (0–100) and, if there, `n,sd,weight`.

        An empty `n` is 1, an empty `sd` undefined, an empty `weight` 1. Raises `DataError` with the line on anything
        that cannot be read.
        """
        _, rows, problems = read_table(path, CSV_COLUMNS[:3])
        if problems:
            raise DataError(f"{problems[0]}. Mend the row.")
        return cls((_pair(f"{path} line {line}", cells) for line, cells in rows), unjudged=unjudged)

    def write_qrels(self, path: Path) -> None:
        """Writes TREC qrels, `caption 0 clip grade`, grades whole numbers 0–100.

        A value above 0 has grade 1 at least, so that what is relevant stays so. White
        space and % in ids are percent-encoded, since columns are parted by white space.
        """
        lines = (
            f"{quoted(p.caption_id)} 0 {quoted(p.clip_id)} {max(round(100 * p.value), int(p.value > 0))}\n"
            for p in self._pairs
        )
        write_text(path, "".join(lines))

    @classmethod
    def read_qrels(cls, path: Path, *, highest: float = 100.0, unjudged: float | None = 0.0) -> Relevance:
        """The table of a TREC qrels file; `highest` is the grade that stands for 1.0, grades are from 0 to that.

        Raises `DataError` with the line.
        """
        if not (highest > 0 and math.isfinite(highest)):
            raise DataError(f"{path}: highest = {highest:g}; expected the grade that stands for 1.0, a number above 0.")
        pairs = []
        for line, text in enumerate(read_text(path).splitlines(), start=1):
            cells = text.split()
            if cells and len(cells) != 4:
                raise DataError(f"{path} line {line}: {len(cells)} columns; expected `query 0 item grade`.")
            if cells:
                grade = float(_number(f"{path} line {line}", "grade", cells[3], highest))
                pairs.append(Pair(unquote(cells[0]), unquote(cells[2]), grade / highest))
        return cls(pairs, unjudged=unjudged)

    def _map(self, change: Callable[[Pair], Pair]) -> Relevance:
        return Relevance(map(change, self._pairs), unjudged=self.unjudged)

    def _table(self) -> csr_array:
        """Sparse [caption, clip] of 1 + the pair's place in the list: values of 0 stay apart from absent pairs."""
        from scipy.sparse import coo_array

        for pair in self._pairs:
            if not 0 <= pair.value <= 1:
                raise DataError(
                    f"pair ({pair.caption_id}, {pair.clip_id}): relevance {pair.value:g}; expected 0–1 (rating 0–100). "
                    "Check the file's scale."
                )
        rows = np.array([self._row[pair.caption_id] for pair in self._pairs], dtype=np.int64)
        columns = np.array([self._column[pair.clip_id] for pair in self._pairs], dtype=np.int64)
        places = np.arange(1, len(self._pairs) + 1, dtype=np.int64)
        table = coo_array((places, (rows, columns)), shape=(len(self._row), len(self._column))).tocsr()
        if table.nnz < len(self._pairs):
            raise DataError(f"{len(self._pairs) - table.nnz} pairs stand twice; expected each (caption, clip) once.")
        return table


def _check_rating(rating: Rating) -> None:
    if not 0 <= rating.rating <= 100:  # NaN fails too
        raise DataError(
            f"rating of ({rating.caption_id}, {rating.clip_id}): {rating.rating:g}; expected 0–100. Check the scale."
        )


def _aggregated(rows: Sequence[Rating], values: NDArray[np.float64], at: Sequence[int]) -> Pair:
    """One pair from the places of its ratings, of values 0–100."""
    first = rows[at[0]]
    several = values[at].tolist()
    chances = [chance for i in at if (chance := rows[i].probability)]
    weight = len(chances) / sum(chances) if chances else 1.0
    return Pair(first.caption_id, first.clip_id, mean_rating(several) / 100, len(at), spread(several) / 100, weight)


def _standardised(values: NDArray[np.float64], raters: Sequence[str]) -> NDArray[np.float64]:
    """Ratings 0–100 with each named rater's mean and standard deviation brought to those of all ratings."""
    out = values.copy()
    ids = np.array(raters)
    for rater in dict.fromkeys(raters):
        own = ids == rater
        if rater and values[own].std() > 0:  # a rater of one answer has no scale to take out
            z = (values[own] - values[own].mean()) / values[own].std()
            out[own] = values.mean() + z * values.std()
    return out.clip(0, 100)


def _pair(where: str, cells: Mapping[str, str]) -> Pair:
    """The pair of a row of `write_csv`."""
    n, sd, weight = (cells.get(column, "").strip() for column in CSV_COLUMNS[3:])
    return Pair(
        cells["caption_id"],
        cells["clip_id"],
        float(_number(where, "rating", cells["rating"].strip(), 100) / 100),
        _count(where, "n", n) if n else 1,
        float(_number(where, "sd", sd, 100) / 100) if sd else math.nan,
        float(_number(where, "weight", weight, sys.float_info.max)) if weight else 1.0,
    )


def _percent(value: float) -> str:
    """0–1 as 0–100, in decimal, so that reading it back gives the same float."""
    return "" if math.isnan(value) else str(Decimal(repr(float(value))) * 100)


def _number(where: str, column: str, text: str, highest: float) -> Decimal:
    """The number from 0 to `highest` that the text is, in digits and perhaps an exponent, as Python writes floats."""
    try:
        if _DIGITS.fullmatch(text) and 0 <= float(text) <= highest:
            return Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        pass
    most = "0 or more" if highest == sys.float_info.max else f"0–{highest:g}"
    raise DataError(f"{where}: {column} {text!r}; expected a number, {most}. Mend the row.")


def _count(where: str, column: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise DataError(f"{where}: {column} {text!r}; expected a whole number, 1 or more. Mend the row.")
    return int(text)


def quoted(text: str) -> str:
    """The id as TREC files need it: white space and % percent-encoded, everything else as it is."""
    return "".join(quote(mark, safe="") if mark.isspace() or mark == "%" else mark for mark in text)
