"""The rows of a collection's tables: `clips.csv`, `captions.csv` and `ratings.csv`, read and written.

A row that cannot be used (a blank or repeated id, an id that no other table knows, a blank text, a rating that
is none) is left out and told as a `Problem` with its line; it costs no other row, save those that hang on it.
Unknown columns are kept and written back.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from earmark.errors import DataError, Problem
from earmark.files import Row, check_columns, read_table, write_table
from earmark.relevance import Rating

CLIP_COLUMNS = ("clip_id", "path", "split", "group")
CAPTION_COLUMNS = ("caption_id", "clip_id", "text")
RATING_COLUMNS = ("caption_id", "clip_id", "rating", "group", "rater_id", "played_s", "stratum", "probability")
KINDS = ("recorded", "generated", "proxy")
KIND_COLUMN = "collection_kind"
"""Of tables that leave their collection: its kind, where that is not recorded."""
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf", "Mn", "Me")
_FILLERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Of Hangul, and the empty pattern of Braille: letters and signs to Unicode, and blank."""
_PLAIN = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")


@dataclass(frozen=True, slots=True)
class Clip:
    """One sound: a file, or a vector that stands for it."""

    clip_id: str
    path: str
    """Relative to the collection's folder, `/` between the parts; empty where a vector stands for the sound."""
    split: str
    group: str = ""
    """Clips of equal, non-empty group stay together in every split."""
    more: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The other columns of `clips.csv`, as they were."""


@dataclass(frozen=True, slots=True)
class Caption:
    """Words for one clip."""

    caption_id: str
    clip_id: str
    text: str
    more: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The other columns of `captions.csv`, as they were."""


@dataclass
class Tables:
    """What was read."""

    clips: list[Clip] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    ratings: list[Rating] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The line of every row: by (file, id), of ratings by (file, caption_id, clip_id, rater_id)."""
    guarded: bool = False
    """Whether cells were written so that no spreadsheet takes them for a formula, see `guarded`."""


def is_blank(text: str) -> bool:
    """Whether the text has no letter that can be seen.

    Blanks, controls and format characters (U+200B) cannot, nor fillers; marks that stand on a letter (accents,
    variation selectors) count with one only.
    """
    return all(unicodedata.category(letter) in _UNSEEN or letter in _FILLERS for letter in text)


def plain_number(text: str, low: float, high: float) -> float | None:
    """The number that `text` is, or None where it is not a plain decimal from `low` to `high`.

    Refused are signs, exponents, `nan`, decimal commas and surrounding blanks: an export that writes so meant
    something else, and reading it in silence would be a guess.
    """
    value = float(text) if _PLAIN.fullmatch(text) else float("nan")
    return value if low <= value <= high else None


def rating_fault(cells: Mapping[str, str]) -> str:
    """What is wrong with the numbers of a row of ratings, in words; empty where nothing is."""
    rating, played, probability = cells["rating"], cells.get("played_s", ""), cells.get("probability", "")
    if plain_number(rating, 0, 100) is None:
        if re.fullmatch(r"[-+]?[0-9]+(\.[0-9]*)?", rating):
            return f"rating {rating}; expected 0–100. Check the export's scale."
        return f"rating {rating!r}; expected a plain number 0–100, such as 50 or 50.5. Check the export's format."
    if played and plain_number(played, 0, 1e9) is None:
        return f"played_s {played!r}; expected seconds, such as 4.5, or nothing. Check the export's format."
    if probability and not plain_number(probability, 0, 1):
        return f"probability {probability!r}; expected more than 0 and at most 1, or nothing. Check the export."
    return ""


def told_kind(rows: Iterable[Mapping[str, str]]) -> str:
    """The kind of a collection that rows name, the one furthest from recorded where they name several; recorded where
    none does.
    """
    found = {row.get(KIND_COLUMN) for row in rows}
    return next((kind for kind in reversed(KINDS) if kind in found), KINDS[0])


def guarded(text: str) -> str:
    """The cell, with a `'` before it where a spreadsheet would take it for a formula; `unguarded` takes that back.

    A cell that has such a `'` already gets another one, so that every text comes back as it was.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """The text that `guarded` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def read_tables(root: Path, *, guard: bool = False) -> Tables:
    """The rows of the three tables; `ratings.csv` may be missing. Raises `DataError` where more is, or a column.

    `guard`: the cells were written by `guarded`.
    """
    if root.is_dir() and not (root / "clips.csv").exists():
        raise DataError(f"{root}: no clips.csv; expected a collection. Make one with earmark data import.")
    found = Tables(guarded=guard)
    _read_clips(found, root)
    _read_captions(found, root)
    if (root / "ratings.csv").exists():
        _read_ratings(found, root)
    return found


def write_tables(
    root: Path, clips: Sequence[Clip], captions: Sequence[Caption], ratings: Sequence[Rating], *, guard: bool = False
) -> None:
    """Writes each table, whole or not at all; without ratings there is no `ratings.csv`. `guard`: cells `guarded`."""
    _write_rows(root / "clips.csv", CLIP_COLUMNS, 3, clips, guard)
    _write_rows(root / "captions.csv", CAPTION_COLUMNS, 3, captions, guard)
    if ratings:
        _write_rows(root / "ratings.csv", RATING_COLUMNS, 3, ratings, guard)
    else:
        (root / "ratings.csv").unlink(missing_ok=True)


def _rows(found: Tables, root: Path, file: str, needed: Sequence[str]) -> Iterator[Row]:
    """The rows of a table whose ids are there; what cannot be read goes to the collection's problems."""
    _, rows, problems = read_table(root / file, needed)
    prefix = f"{root}{os.sep}"
    found.problems += [Problem(problem.where.removeprefix(prefix), problem.what) for problem in problems]
    ids = [column for column in needed if column.endswith("_id")]
    for row in rows:
        if found.guarded:
            row = Row(row.line, {unguarded(column): unguarded(cell) for column, cell in row.cells.items()})
        blank = [column for column in ids if is_blank(row.cells[column])]
        if blank:
            _leave_out(found, file, row, f"{blank[0]} is blank; expected an id")
        else:
            yield row


def _leave_out(found: Tables, file: str, row: Row, what: str) -> None:
    found.problems.append(Problem(f"{file} line {row.line}", f"{what}. The row is left out."))


def _is_new(found: Tables, file: str, row: Row, column: str) -> bool:
    name = row.cells[column]
    first = found.lines.setdefault((file, name), row.line)
    if first != row.line:
        _leave_out(found, file, row, f"{column} {name!r} stands in line {first} already; expected each id once")
    return first == row.line


def _more(row: Row, known: Sequence[str]) -> dict[str, str]:
    return {column: cell for column, cell in row.cells.items() if column not in known}


def _read_clips(found: Tables, root: Path) -> None:
    file = "clips.csv"
    for row in _rows(found, root, file, CLIP_COLUMNS[:3]):
        cells = row.cells
        if is_blank(cells["split"]):
            _leave_out(found, file, row, f"clip {cells['clip_id']!r} has no split; expected development, say")
        elif _is_new(found, file, row, "clip_id"):
            more = _more(row, CLIP_COLUMNS)
            found.clips.append(Clip(cells["clip_id"], cells["path"], cells["split"], cells.get("group", ""), more))


def _read_captions(found: Tables, root: Path) -> None:
    file = "captions.csv"
    for row in _rows(found, root, file, CAPTION_COLUMNS):
        cells = row.cells
        if ("clips.csv", cells["clip_id"]) not in found.lines:
            _leave_out(found, file, row, f"clip {cells['clip_id']!r} is not in clips.csv")
        elif is_blank(cells["text"]):
            _leave_out(found, file, row, "the text is blank; expected words")
        elif _is_new(found, file, row, "caption_id"):
            more = _more(row, CAPTION_COLUMNS)
            found.captions.append(Caption(cells["caption_id"], cells["clip_id"], cells["text"], more))


def _read_ratings(found: Tables, root: Path) -> None:
    file = "ratings.csv"
    for row in _rows(found, root, file, RATING_COLUMNS[:3]):
        cells = row.cells
        caption_id, clip_id = cells["caption_id"], cells["clip_id"]
        if ("captions.csv", caption_id) not in found.lines:
            _leave_out(found, file, row, f"caption {caption_id!r} is not in captions.csv")
        elif ("clips.csv", clip_id) not in found.lines:
            _leave_out(found, file, row, f"clip {clip_id!r} is not in clips.csv")
        elif what := rating_fault(cells):
            found.problems.append(Problem(f"{file} line {row.line}", f"{what} The row is left out."))
        else:
            found.ratings.append(_rating(cells))
            found.lines[file, caption_id, clip_id, cells.get("rater_id", "")] = row.line


def _rating(cells: Mapping[str, str]) -> Rating:
    played, probability = cells.get("played_s", ""), cells.get("probability", "")
    return Rating(
        caption_id=cells["caption_id"],
        clip_id=cells["clip_id"],
        rating=float(cells["rating"]),
        group=cells.get("group", ""),
        rater_id=cells.get("rater_id", ""),
        played_s=float(played) if played else None,
        stratum=cells.get("stratum", ""),
        probability=float(probability) if probability else None,
        more={column: cell for column, cell in cells.items() if column not in RATING_COLUMNS},
    )


def _cell(value: object) -> str:
    """A cell's text: floats as short as they can be read back exactly, without an exponent."""
    if value is None:
        return ""
    return np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value)


def _write_rows(path: Path, known: Sequence[str], needed: int, items: Sequence[Any], guard: bool) -> None:
    """Writes the first `needed` columns, those of the others that hold something, and the unknown ones."""
    optional = [name for name in known[needed:] if any(getattr(item, name) not in ("", None) for item in items)]
    columns = [*known[:needed], *optional]
    more = list(dict.fromkeys(column for item in items for column in item.more))
    check_columns(path, [*columns, *more], ())
    rows = ({**item.more, **{name: _cell(getattr(item, name)) for name in columns}} for item in items)
    if guard:
        rows = ({guarded(column): guarded(cell) for column, cell in row.items()} for row in rows)
    write_table(path, [guarded(column) if guard else column for column in (*columns, *more)], rows)
