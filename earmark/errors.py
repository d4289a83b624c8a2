"""What earmark raises: one line that tells where, what was found, and what to do.

The command line prints that line and exits with 2. A fault of one item among many is not raised but
kept as a `Problem`: the item is left out, counted and listed, and everything else goes on.
"""

from __future__ import annotations

from typing import NamedTuple


class EarmarkError(Exception):
    """Anything that earmark refuses, in one line: `where: what was found; what was expected. What to do.`"""


class DataError(EarmarkError):
    """Input (a file, a row, an array) that cannot be used as it is."""


class ConfigError(EarmarkError):
    """A setting, a recipe or a combination of them that cannot be carried out."""


def install(extra: str) -> str:
    """What installs an extra, in words; earmark is on no package index, so its folder is named."""
    return f"pip install '.[{extra}]' in earmark's folder"


def in_short(error: BaseException, most: int = 120) -> str:
    """The first line of what another library's error says, of a long one whole sentences, or words and `…`."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if len(line) <= most:
        return line
    sentences, _, more = line[:most].rpartition(". ")
    return f"{sentences}." if sentences and more else f"{line[:most].rsplit(' ', 1)[0]} …"


class Problem(NamedTuple):
    """One item that was left out or looks wrong."""

    where: str
    """File and line, or file, or id: `ratings.csv line 12`."""
    what: str
    """What was found and what was expected: `rating 140; expected 0–100`."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"
