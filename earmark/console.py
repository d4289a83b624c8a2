"""What commands show: progress on standard error, results as tables or JSON on standard output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
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
KIND = {"recorded": "recorded", "generated": "GENERATED", "proxy": "PROXY"}
"""How a collection's kind stands beside every number."""


_shown: list[Console] = []
"""Standard error while bars are shown on it: what is printed by it stands above them."""


def out() -> Console:
    """Standard output; as wide as its text where it is not a terminal, so that nothing is cut in files and pipes."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def err() -> Console:
    """Standard error."""
    return Console(stderr=True)


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


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", *, fold: bool = False) -> None:
    """Prints a table below its title, the first column to the left, the others to the right.

    Where there is no room, the first column is broken over lines with `fold`, and the others without.
    """
    if title:
        say(title)
    table = Table()
    for place, column in enumerate(columns):
        table.add_column(
            Text(visible(column)),
            justify="right" if place else "left",
            no_wrap=bool(place) == fold,
            overflow="fold" if fold else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    out().print(table)


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
    show_table(["run", "measure", "its", f"{first}'s", "difference", "95 % interval", "p", "p (Holm)", "n"], rows)
