"""What a table says of sound files: archivists and sound designers keep descriptions in spreadsheets, too.

A row names a file by its path below a folder that was indexed or below the table's own, or by its absolute path. Else
the file is meant whose path ends like the row's, as far as its name where only one file bears that: a catalogue's paths
are often those of another machine. A row that means no file, or one of several, is a `Problem` and says nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from earmark.audio.decode import shown
from earmark.data.check import Listing, Names, difference
from earmark.data.rows import is_blank
from earmark.errors import DataError, Problem
from earmark.files import RENAME_OR_NAME, Row, read_table
from earmark.search.store import WordsTable, as_text, from_text
from earmark.search.words import Said

PATHS = ("path", "filepath", "file", "filename", "file_name")
"""Columns of paths, the first there is, in upper or lower case."""
TEXTS = ("text", "caption", "description", "title", "keywords")
"""Columns of texts, all there are."""
GUESSES = 100_000
"""Names that are compared letter by letter to tell which was probably meant."""


class Table(NamedTuple):
    """A table that was read."""

    file: Path
    path: str
    """The column of paths."""
    texts: tuple[str, ...]
    tags: tuple[str, ...]
    rows: list[Row]
    problems: list[Problem]
    """Rows that could not be read."""

    @property
    def shown(self) -> str:
        """The file's path in one line of text."""
        return shown(self.file)


def words_table(
    csv: Path, *, path: str = "", texts: Sequence[str] = (), tags: Sequence[str] = (), encoding: str = "utf-8"
) -> WordsTable:
    """What `build` takes and remembers: the table's file, the columns of paths, texts and tags; empty: usual ones."""
    file = Path(os.path.realpath(csv.parent)) / csv.name
    return WordsTable(as_text(file), path, list(dict.fromkeys(texts)), list(dict.fromkeys(tags)), encoding)


def read(asked: WordsTable, *, remembered: bool = False) -> Table:
    """The table. Raises `DataError` where it cannot be read, or lacks what is to be taken from it."""
    file = from_text(asked.table)
    if remembered and not file.exists():
        what = "the table whose words the index has is not there any more. Put it back, name another by --words"
        raise DataError(f"{shown(file)}: {what}, or do without (`--no-words`).")
    needed = dict.fromkeys([*filter(None, [asked.path]), *asked.texts, *asked.tags])
    columns, rows, problems = read_table(file, needed, encoding=asked.encoding, advice=RENAME_OR_NAME)
    path = asked.path or next(iter(_there(columns, PATHS)), "")
    texts = asked.texts or [each for each in _there(columns, TEXTS) if each not in (path, *asked.tags)]
    found = f"found {', '.join(map(repr, columns))}"
    if not path:
        raise DataError(
            f"{shown(file)} line 1: no column {' or '.join(map(repr, PATHS))}; {found}. Name one by --path."
        )
    if not texts and not asked.tags:
        raise DataError(
            f"{shown(file)} line 1: no column {' or '.join(map(repr, TEXTS))}; {found}. Name one by --text."
        )
    return Table(file, path, tuple(texts), tuple(asked.tags), rows, problems)


def _there(columns: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The usual ones of the columns, in their order."""
    return [column for name in usual for column in columns if column.casefold() == name]


def said_of(table: Table, files: Iterable[Path], bases: Iterable[Path]) -> tuple[dict[Path, Said], list[Problem]]:
    """What the table says of these files, and which rows say nothing, by line; paths may start from `bases`.

    Rows of one file add up. Raises `DataError` where there are files, and no row means one.
    """
    files = list(files)
    meant = _Meant(files, dict.fromkeys([*bases, table.file.parent]))
    meant.find(dict.fromkeys(row.cells[table.path] for row in table.rows))
    rows: dict[Path, list[Row]] = defaultdict(list)
    problems = list(table.problems)
    for row in table.rows:
        value = row.cells[table.path]
        if value in meant.file:
            rows[meant.file[value]].append(row)
        else:
            problems.append(Problem(f"{table.file} line {row.line}", f"{meant.fault[value]}. The row is left out."))
    if files and not rows:
        why = f"no row names one of the {len(files):,} files by its column {table.path!r}"
        first = f" The first: {problems[0]}" if problems else ""
        raise DataError(f"{shown(table.file)}: {why}. Name another --path, or do without (`--no-words`).{first}")
    said = {path: Said(_cells(own, table.texts), _cells(own, table.tags)) for path, own in rows.items()}
    return said, sorted(problems, key=lambda problem: int(problem.where.rpartition(" ")[2]))


def _cells(rows: Sequence[Row], columns: Sequence[str]) -> tuple[str, ...]:
    cells = (row.cells[column] for row in rows for column in columns)
    return tuple(dict.fromkeys(cell for cell in cells if not is_blank(cell)))


class _Meant:
    """Which file each of the table's paths means, or why none."""

    def __init__(self, files: Sequence[Path], bases: Iterable[Path]) -> None:
        self.files, self.bases = files, list(bases)
        self.file: dict[str, Path] = {}
        self.fault: dict[str, str] = {}
        self.names = Names(GUESSES // max(1, len(files)))
        self.listings: dict[int, Listing] = {}

    def find(self, values: Iterable[str]) -> None:
        """Fills `file` and `fault` for these paths."""
        by_path = {str(file): file for file in self.files}
        left = []
        for value in values:
            found = {by_path[path]: None for path in self._places(value) if path in by_path}
            if is_blank(value):
                self.fault[value] = f"path {value!r}; expected that of a sound"
            elif len(found) > 1:
                self.fault[value] = self._several(value, list(found))
            elif found:
                self.file[value] = next(iter(found))
            else:
                left.append(value)
        self._find_by_end(left)

    def _places(self, value: str) -> Iterable[str]:
        """Where the path leads from each base, with slashes of Windows too."""
        for form in dict.fromkeys((value, value.replace("\\", "/"))):
            for base in self.bases:
                yield os.path.normpath(os.path.join(base, form))  # noqa: PTH118  (much quicker)

    def _find_by_end(self, values: Sequence[str]) -> None:
        """Gives these paths the files whose paths end like theirs; a path that is known whole goes before others."""
        ends = self._ends({_parts(value)[-1:] for value in values})
        taken = set(self.file.values())
        claims: dict[Path, dict[str, int]] = defaultdict(dict)
        for value in values:
            parts = _parts(value)
            alike = next((length for length in range(len(parts), 0, -1) if parts[-length:] in ends), 0)
            found = ends[parts[-alike:]] if alike else []
            if len(found) > 1:
                self.fault[value] = self._several("/".join(parts[-alike:]), found)
            elif found and alike == len(parts):
                self.file[value] = found[0]
                taken |= set(found if alike > 1 else [])
            elif found:
                claims[found[0]][value] = alike
            else:
                self.fault[value] = self._none(value)
        for file, lengths in claims.items():
            best = [value for value, length in lengths.items() if length == max(lengths.values())]
            for value in lengths:
                if file in taken or value not in best:
                    self.fault[value] = self._none(value)
                elif len(best) > 1:
                    what = f"{len(best)} paths of the table may mean {shown(file)!r}; expected one below a folder"
                    self.fault[value] = f"{what} that was indexed"
                else:
                    self.file[value] = file

    def _ends(self, names: set[tuple[str, ...]]) -> dict[tuple[str, ...], list[Path]]:
        """The files of these names by the last parts of their paths, one, two and so on."""
        ends: dict[tuple[str, ...], list[Path]] = defaultdict(list)
        for file in self.files:
            if (file.name,) in names:
                for length in range(1, len(file.parts)):
                    ends[file.parts[-length:]].append(file)
        return ends

    def _several(self, value: str, files: Sequence[Path]) -> str:
        there = ", ".join(repr(shown(file)) for file in files[:3]) + (", …" if len(files) > 3 else "")
        return f"{len(files)} files are called {value!r} ({there}); expected a path with its folder"

    def _none(self, value: str) -> str:
        """That there is no such file, with the nearest by its name and its folder's."""
        parts = _parts(value)[-2:]
        if len(parts) not in self.listings:
            ends = {"/".join(file.parts[1:][-len(parts) :]) for file in self.files}
            self.listings[len(parts)] = Listing.of(map(shown, ends))
        end = "/".join(parts)
        near = self.names.among(end, self.listings[len(parts)])
        there = "" if near in (None, end) else f"; {near!r} is there and {difference(end, str(near))}"
        return f"no file {value!r} is indexed{there}"


def _parts(value: str) -> tuple[str, ...]:
    """The names in a path, of whatever system."""
    parts = PurePosixPath(value.replace("\\", "/")).parts
    return tuple(part for part in parts if part not in ("/", "//", ".."))
