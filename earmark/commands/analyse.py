"""`earmark analyse`: what ratings go with."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill
from typing import Annotated, Optional

import typer

from earmark import console
from earmark.commands.shared import STDOUT, JsonOption, check_json, exit_with, give_json, read


def analyse(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A collection with ratings.")],
    out: Annotated[Path, typer.Option(metavar="OUT", help="The report's folder.", show_default=False)],
    run: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="RUN", help="A trained run: what it rates, and how far it is from people."),
    ] = None,
    sets: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting: pairs, without_groups, reference, columns, targets, where; captions.words, "
            "captions.auxiliaries, captions.frequent, captions.frequent_words, captions.language_model; clips.tagger, "
            "clips.silence_db. docs/analyse.md explains them.",
        ),
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Find out what ratings go with: features of captions and clips against people's ratings and the machine's.

    Pearson and Spearman correlations with intervals, how far raters agree, and a report in OUT: report.html (one file,
    opens offline), report.md, features.csv, correlations.csv.

    Examples:

    - `earmark analyse clotho --out why`

    - `earmark analyse soundscapes --run runs/first --out why`

    - `earmark analyse soundscapes --out why --set pairs=all --set 'where=["captions.partial=yes"]'`
    """
    check_json(json_to, folder, run)
    with console.progress() as progress:
        progress.starting()
        from earmark.analyse import report
        from earmark.analyse.study import Settings, study

        settings = Settings.of(sets or [])
        report.check_out(out)
        collection = read(folder)
        found = study(collection, settings, run=run, progress=progress)
        progress("drawing", 0, 1)
        written = report.write_report(found, out)
    if json_to is not None:
        give_json(report.as_json(found), json_to)
    if json_to != STDOUT:
        console.say(f"{report.heading(found)}, {report.counts(found.scopes[-1])}")
        console.show_table(*report.short_table(found.scopes[-1]))
        console.say(_lines(report.reading(found)))
        columns, rows = report.quality_table(found.scopes[-1])
        if len(columns) > 1:
            console.show_table(columns, rows, "How far raters agree:")
        for line in report.machine_lines(found):
            console.say(_lines(line))
        for note in report.notes(found):
            console.complain(_lines(f"note: {note}"))
        console.say(f"{out}: {', '.join(path.name for path in written)}, figures/")
    exit_with([*collection.problems, *found.problems], "rows or clips were left out")


def _lines(text: str) -> str:
    """The text in lines that end between words and are no longer than the terminal's; in files and pipes one line."""
    width = console.out().width
    return fill(text, width, subsequent_indent="  ", break_on_hyphens=False) if sys.stdout.isatty() else text
