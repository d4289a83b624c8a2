"""Tables in markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def row(cells: Iterable[str]) -> str:
    """A table's row; a `|` in a cell is escaped, `<` is no HTML, a line break becomes a blank."""
    return "| " + " | ".join(" ".join(_escaped(cell).split()) for cell in cells) + " |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, the first column to the left, the others to the right, and a blank line after it."""
    yield row(columns)
    yield row(["---", *["---:"] * (len(columns) - 1)])
    yield from map(row, rows)
    yield ""
