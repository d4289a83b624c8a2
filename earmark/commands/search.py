"""`earmark search`: sounds by words, by a sound, or both."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.cells import cell_len

from earmark import console
from earmark.commands.shared import STDOUT, JsonOption, check_json, exit_with, give_json, say_written
from earmark.errors import ConfigError, Problem

if TYPE_CHECKING:
    from earmark.search.query import Answer, Filters, Hit, Query

TIMES = re.compile(r"(?P<file>.+)@(?P<at>[0-9]+(?:\.[0-9]+)?)", re.DOTALL)


def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="An index that `earmark index` made.")],
    words: Annotated[
        Optional[list[str]],  # noqa: UP045  (typer reads this at run time)
        typer.Argument(metavar='"WORDS"', help="What to find.", show_default=False),
    ] = None,
    like: Annotated[
        str,
        typer.Option(metavar="FILE[@SECONDS]", help="A sound to search by, whole or from there.", show_default=False),
    ] = "",
    without: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--not", metavar='"WORDS"', help="What must not be heard.", show_default=False),
    ] = None,
    longest: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SECONDS", help="Files of at most so many seconds.", show_default=False),
    ] = None,
    shortest: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SECONDS", help="Files of at least so many.", show_default=False),
    ] = None,
    folder: Annotated[
        str, typer.Option(help="Files below it: a folder's path, or a part of one.", show_default=False)
    ] = "",
    tag: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Files that bear the tag; several: all of them.", show_default=False),
    ] = None,
    rate: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option(metavar="HZ", help="Files of that rate; several: any of them.", show_default=False),
    ] = None,
    channels: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option(metavar="N", help="Files of so many channels; several: any of them.", show_default=False),
    ] = None,
    no_keywords: Annotated[
        bool, typer.Option("--no-keywords", help="By how it sounds alone: names and tags do not count.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Files; 0: all.", min=0)] = 20,
    all_copies: Annotated[
        bool, typer.Option("--all-copies", help="Near-duplicates too, each as a hit of its own.")
    ] = False,
    json_to: JsonOption = None,
    m3u: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--m3u", metavar="FILE", help="Write a playlist.", show_default=False),
    ] = None,
    copy_to: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Copy the files there.", show_default=False),
    ] = None,
    cut: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Cut each hit's region out, as it was recorded.", show_default=False),
    ] = None,
) -> None:
    """Find sounds by words, by a sound, or both: the files that come nearest, each by its best region.

    Files whose names or tags hold the words count too. There is always a first; how good it is, the ear decides.

    Examples:

    - `earmark search sounds.index "rain on a tin roof"`

    - `earmark search sounds.index "animal" --not "dog" --longest 5`

    - `earmark search sounds.index --like door.wav@12.5 --m3u doors.m3u`
    """
    filters = _filters(longest, shortest, folder, tag or [], rate or [], channels or [])
    asked = _checked(" ".join(words) if words else None, like, without)
    check_json(json_to, index, sound_of(like)[0] if like else None)
    with console.progress() as progress:
        progress.starting()
        from dataclasses import replace

        from earmark.search.engine import Engine

        engine = Engine(index)
        if like:
            asked = replace(asked, like=engine.vector_of_file(*sound_of(like)))
        asked = replace(asked, filters=filters, keywords=not no_keywords, limit=limit, fold=not all_copies)
        answer = engine.search(asked)
    if json_to is not None:
        give_json([hit.as_json() for hit in answer.hits], json_to)
    if json_to != STDOUT:
        _show(answer, asked, like)
        say_written(json_to)
    for note in answer.notes:
        console.complain(f"note: {note}")
    exit_with(_take(answer.hits, m3u, copy_to, cut, quiet=json_to == STDOUT), "files were left out")


def _filters(
    longest: float | None,
    shortest: float | None,
    folder: str,
    tags: Sequence[str],
    rates: Sequence[int],
    channels: Sequence[int],
) -> Filters:
    from earmark.search.query import Filters

    for name, value in (("--longest", longest), ("--shortest", shortest)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} {value}: expected seconds, 0 or more.")
    if folder.split("/")[0] in (".", "..", "~"):
        folder = os.path.realpath(Path(folder).expanduser())  # as the index names it
    return Filters(longest, shortest, folder, tuple(each.lower() for each in tags), tuple(rates), tuple(channels))


def _checked(words: str | None, like: str, without: str | None) -> Query:
    """The question without its sound. Raises `DataError` where words are blank, or there is nothing to search for."""
    from earmark.data.rows import is_blank
    from earmark.search.query import Query

    for name, text in (("the words", words), ("--not", without)):
        if text is not None and is_blank(text):
            raise ConfigError(f"{name}: blank ({text!r}); expected something to search for.")
    if words is None and not like:
        raise ConfigError('nothing to search for; expected words, --like FILE, or both: earmark search INDEX "rain".')
    return Query(words or "", without=without or "")


def sound_of(text: str) -> tuple[Path, float | None]:
    """The file, and from when on: of `FILE` or `FILE@SECONDS`. A file that is there is never cut at its @."""
    found = TIMES.fullmatch(text)
    if found is None or Path(text).exists():
        return Path(text), None
    return Path(found["file"]), float(found["at"])


# What was found


def _show(answer: Answer, asked: Query, like: str) -> None:
    """Prints the hits, two lines each."""
    sought = " and ".join(filter(None, [f'"{asked.words}"' if asked.words else "", f"like {like}" if like else ""]))
    sought += f', not "{asked.without}"' if asked.without else ""
    if not answer.hits:
        console.say(f"{sought}: nothing found ({_why_nothing(answer, asked)})")
        return
    console.say(f"{sought}: {len(answer.hits):,} of {answer.searched:,} files")
    width = console.out().width if sys.stdout.isatty() else 0
    for rank, hit in enumerate(answer.hits, start=1):
        for line in lines_of(rank, hit, width):
            console.say(line)


def _why_nothing(answer: Answer, asked: Query) -> str:
    if answer.searched:
        return "all of it sounds like what must not be heard"
    return "nothing passes the filters" if asked.filters != type(asked.filters)() else "the index holds no sound yet"


def lines_of(rank: int, hit: Hit, width: int = 0) -> list[str]:
    """A hit for people: rank, cosine, times, duration, name and copies; below them the folder.

    `width` columns at most, which costs names their middle; 0: as long as they are.
    """
    from earmark.audio.decode import shown

    times = f"{_time(hit.best.start_s)}–{_time(hit.best.end_s)} of {_time(hit.duration_s)}"
    copies = f"  (+{len(hit.copies)} {'copy' if len(hit.copies) == 1 else 'copies'})" if hit.copies else ""
    named = "  (by its words too)" if hit.named else ""
    head = f"{rank:>3}  {hit.best.score:5.2f}  {times}  "
    name, folder = shown(hit.path.name), shown(hit.path.parent)
    if width:
        name = fitted(name, width - len(head) - len(copies))
        folder = fitted(folder, width - 12 - len(named))
    return [f"{head}{name}{copies}", f"{'':12}{folder}{named}"]


def fitted(text: str, width: int) -> str:
    """The text, without its middle where it takes more columns; a dozen letters stay."""
    front, back = text[: len(text) // 2], text[len(text) // 2 :]
    width = max(width, 13)
    if cell_len(text) <= width:
        return text
    while cell_len(front) + 1 + cell_len(back) > width:
        front, back = (front[:-1], back) if cell_len(front) >= cell_len(back) else (front, back[1:])
    return f"{front}…{back}"


def _time(seconds: float) -> str:
    """`m:ss.s`."""
    tenths = round(10 * seconds)
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"


def _take(
    hits: Sequence[Hit], m3u: Path | None, copy_to: Path | None, cut: Path | None, *, quiet: bool
) -> list[Problem]:
    """Writes what was asked for; the files that could not be taken."""
    from earmark.search import take

    problems: list[Problem] = []
    if m3u is not None:
        take.write_m3u(hits, m3u)
        if not quiet:
            console.say(f"{m3u}: {len(hits):,} files")
    for folder, taking, what in ((copy_to, take.copy_to, "copies"), (cut, take.cut_to, "cuts")):
        if folder is not None:
            took = taking(hits, folder)
            problems += took.problems
            if not quiet:
                there = f", {len(took.there):,} were there already" if took.there else ""
                console.say(f"{folder}: {len(took.made):,} {what}{there}")
    return problems
