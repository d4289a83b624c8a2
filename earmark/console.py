"""What commands show: progress on standard error, results as tables or JSON on standard output."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from earmark.errors import Problem
from earmark.files import write_text

if TYPE_CHECKING:
    from earmark.measure.evaluate import Comparison

SHOWN = 20
"""Problems that are listed before the rest are only counted."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and line break."""
WORD = re.compile(r"\b(?!undefined\b)[^\W\d_]{3}")
"""What a column of numbers has in no cell."""
LEAST_TEXT = 10
"""Letters a line of a column of texts, at least."""
BESIDE = 3
"""A table's columns have between them."""
KIND = {"recorded": "recorded", "generated": "GENERATED", "proxy": "PROXY"}
"""How a collection's kind stands beside every number."""


_shown: list[Console] = []
"""Standard error while bars are shown on it: what is printed by it stands above them."""


def out() -> Console:
    """Standard output; as wide as its text where it is not a terminal, so that nothing is cut in files and pipes."""
    return Console(emoji=False, width=None if sys.stdout.isatty() else 200)


def err() -> Console:
    """Standard error."""
    return Console(emoji=False, stderr=True)


def visible(text: str) -> str:
    """The text with control characters as escapes, so that no name from a file steers the terminal."""
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def say(text: str) -> None:
    """Prints a line to standard output: no markup, no control characters."""
    out().print(visible(text), highlight=False, markup=False, soft_wrap=True)


def complain(text: str) -> None:
    """Prints a line to standard error, above a bar that is shown there: no markup, no control characters."""
    _tell(_shown[-1] if _shown else err(), text)


def _tell(console: Console, text: str) -> None:
    """A line; on a terminal whole words go to the next, elsewhere it is one line whatever its length."""
    console.print(visible(text), highlight=False, markup=False, soft_wrap=not console.is_terminal)


@contextmanager
def progress() -> Iterator[Stages]:
    """A callback (what, done, all) that shows a bar a stage while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    console = err()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        _shown.append(console)
        try:
            yield Stages(bars)
        finally:
            _shown.pop()


class Stages:
    """One bar a stage, which leaves the screen to the next; one line a stage where there is no terminal."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._what = ""

    def __call__(self, what: str, done: int, all_: int) -> None:
        """Shows that `done` of `all_` are done."""
        if what != self._what:
            if not self._bars.console.is_terminal:
                complain(f"{what} ({all_:,})")
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._task, self._what = self._bars.add_task(what, total=all_, now=""), what
        assert self._task is not None
        self._bars.update(self._task, completed=done, total=all_)

    def starting(self) -> None:
        """Shows that something is going on while libraries load; nothing where there is no terminal."""
        if self._bars.console.is_terminal:
            self("starting", 0, 1)

    def now(self, text: str) -> None:
        """Shows beside the bar what is at work; nothing where there is no terminal."""
        if self._task is not None:
            self._bars.update(self._task, now=text)

    def line(self, text: str) -> None:
        """Prints a line above the bars."""
        _tell(self._bars.console, text)


def show_problems(problems: Sequence[Problem], what: str) -> None:
    """Lists what was left out or looks wrong, the first twenty and the count of all, on standard error.

    `what` is told of many: `rows were left out`.
    """
    if not problems:
        return
    for problem in problems[:SHOWN]:
        complain(f"  {problem}")
    if len(problems) > SHOWN:
        complain(f"  … and {len(problems) - SHOWN} more")
    complain(f"{len(problems):,} {what if len(problems) > 1 else _of_one(what)}")


def _of_one(what: str) -> str:
    """`row was left out` of `rows were left out`."""
    return " ".join({"were": "was"}.get(word, re.sub(r"s(,?)$", r"\1", word)) for word in what.split())


def show_json(value: Any, to: Path | None) -> None:
    """Prints JSON, or writes it to a file."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    if to is None:
        sys.stdout.write(text)
    elif to.exists() and not to.is_file() and not to.is_dir():  # a pipe or a device takes what it is given
        to.write_text(text, encoding="utf-8")
    else:
        write_text(to, text)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Prints a table below its title, the first column and other texts to the left, numbers to the right.

    Where there is no room texts are broken over lines, and so are headings; numbers never. Where they have no room side
    by side, each row is lines of text.
    """
    if title:
        say(title)
    headings, cells = [visible(column) for column in columns], [[visible(cell) for cell in row] for row in rows]
    by_column = [[row[place] for row in cells] for place in range(len(columns))]
    texts = [not place or any(map(WORD.search, each)) for place, each in enumerate(by_column)]
    widths = [max(map(cell_len, each), default=0) for each in by_column]
    console = out()
    room = console.width - BESIDE * len(columns) - 1
    if sum(map(max, widths, map(cell_len, headings))) > room:
        headings = [_broken(heading, width) for heading, width in zip(headings, widths, strict=True)]
        least = [max(cell_len(line) for line in heading.split("\n")) for heading in headings]
        if sum(map(max, least, [min(w, LEAST_TEXT) if t else w for w, t in zip(widths, texts, strict=True)])) > room:
            _show_lines([visible(column) for column in columns], cells, texts)
            return
    table = Table()
    for heading, is_text in zip(headings, texts, strict=True):
        table.add_column(Text(heading), justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _broken(heading: str, width: int) -> str:
    """The heading over lines, between words, as wide as its column or its longest word."""
    longest = max(map(len, heading.split()), default=1)
    return textwrap.fill(heading, max(width, longest), break_long_words=False, break_on_hyphens=False)


def _show_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[bool]) -> None:
    """Prints rows that are too wide for a table: their texts, and below them each number with its heading."""
    for row in rows:
        told = list(zip(headings, row, texts, strict=True))
        say("  ".join(cell for _, cell, is_text in told if is_text and cell))
        numbers = Text("; ".join(f"{heading} {cell}" for heading, cell, is_text in told if not is_text and cell))
        out().print(Padding(numbers, (0, 0, 0, 2), expand=False))


def show_markdown(text: str) -> None:
    """Prints markdown: laid out for a terminal, as it is elsewhere."""
    from rich.markdown import Markdown

    if sys.stdout.isatty():
        out().print(Markdown(text))
    else:
        say(text)


def number(value: Any, digits: int = 3) -> str:
    """A number as tables show it; "undefined" for None."""
    if value is None:
        return "undefined"
    return f"{value:z.{digits}f}" if isinstance(value, float) else f"{value:,}"


def count(number: int, what: str) -> str:
    """`1 page`, `2,000 pages`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def interval(bounds: Sequence[Any] | None) -> str:
    """`[0.187, 0.210]`."""
    return f"[{number(bounds[0])}, {number(bounds[1])}]" if bounds else ""


def show_evaluation(numbers: Mapping[str, Any], heading: str) -> None:
    """Prints an evaluation's numbers with what they are numbers of."""
    say(heading)
    say(f"Protocol: {numbers['protocol']}.")
    columns = {"text → audio": numbers["text_to_audio"], "audio → text": numbers["audio_to_text"]}
    if "text_to_audio_unseen_texts" in numbers:
        columns["text → audio, texts not in training"] = numbers["text_to_audio_unseen_texts"]
    measures = [
        key for key in numbers["text_to_audio"] if "interval" not in key and key not in ("queries", "undefined")
    ]
    rows = [[key, *(number(found[key]) for found in columns.values())] for key in (*measures, "queries", "undefined")]
    rows.insert(1, ["  95 % interval", *(interval(found["mAP interval"]) for found in columns.values())])
    show_table(["retrieval", *columns], rows)
    if "ratings" in numbers:
        rated = numbers["ratings"]
        rows = [
            ["Spearman ρ, pooled", number(rated["spearman"]), interval(rated["interval"])],
            [
                "Spearman ρ within lists, mean",
                number(rated["spearman_within_lists"]),
                interval(rated["spearman_within_lists interval"]),
            ],
            ["Kendall τ, pooled", number(rated["kendall"]), ""],
            ["Kendall τ within lists, mean", number(rated["kendall_within_lists"]), ""],
            ["nDCG@10 (judged clips)", number(rated["nDCG@10(judged)"]), ""],
        ]
        pairs = f"ratings: {rated['pairs']:,} pairs, {rated['captions']:,} captions"
        show_table([pairs, "value", "95 % interval"], rows)


def show_comparisons(comparisons: Sequence[Comparison], first: str) -> None:
    """Prints each run's paired differences from the first."""
    rows = [
        [
            c.run,
            c.measure,
            number(c.value),
            number(c.reference),
            f"{c.difference.difference:+.3f}",
            interval(c.difference.interval),
            number(c.difference.p),
            number(c.p_holm),
            number(c.difference.n),
        ]
        for c in comparisons
    ]
    show_table(["run", "measure", "value", f"{first}'s", "difference", "95 % interval", "p", "p (Holm)", "n"], rows)
