"""`earmark index`: folders of sounds become searchable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import (
    LEFT_OUT,
    STDOUT,
    JsonOption,
    check_json,
    exit_with,
    folder_of,
    give_json,
    oddities,
    say_written,
)
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.search.index import Built
    from earmark.search.store import WordsTable


def index(
    to: Annotated[
        Path, typer.Option(metavar="INDEX", help="The index's folder.", show_default=False, parser=folder_of)
    ],
    folders: Annotated[
        Optional[list[Path]],  # noqa: UP045  (typer reads this at run time)
        typer.Argument(
            metavar="DIR…", help="Folders and files; none: those that the index was made of.", parser=folder_of
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A run's folder, yamnet, or an audio–text model of the hub; the index's own, yamnet for a new one.",
            show_default=False,
        ),
    ] = "",
    text_model: Annotated[
        str, typer.Option(metavar="NAME", help="The sentence encoder beside yamnet: all-mpnet-base-v2.")
    ] = "",
    words: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="CSV", help="A table that describes the files, taken from now on."),
    ] = None,
    path: Annotated[
        str, typer.Option(metavar="COL", help="Its column of paths: path, filepath, file, …", show_default=False)
    ] = "",
    text: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="COL", help="A column of texts, several times: all of text, caption, description, …"),
    ] = None,
    tags: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="COL", help="A column of tags (`a; b, c`), several times."),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of the table.")] = "utf-8",
    no_words: Annotated[bool, typer.Option("--no-words", help="Forget the table and its words.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes; 0 is one a core.", min=0)] = 0,
    follow_links: Annotated[bool, typer.Option("--follow-links", help="Links too, from now on.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make it anew, then put it in the old one's place.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Take out what is below folders that are gone or empty.")
    ] = False,
    forget: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(metavar="DIR", help="Index nothing: take a folder, and what is below it, out.", parser=folder_of),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another process that indexes there.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Index nothing: measure how much of exact search the index finds.")
    ] = False,
    json_to: JsonOption = None,
) -> None:
    """Make folders of sounds searchable, or bring their index up to date: only what is new or changed is read.

    Long files are cut into windows of 10 s every 5 s. A run that was killed is gone on with.

    Examples:

    - `earmark index ~/sounds --to sounds.index`

    - `earmark index --to sounds.index`

    - `earmark index ~/sounds --to mine.index --model runs/mine`

    - `earmark index ~/sounds --to sounds.index --words sounds.csv --path Filename --text Description --tags Keywords`
    """
    columns = {"--path": path, "--text": text, "--tags": tags, "--encoding": encoding != "utf-8"}
    table = _words_table(words, no_words, columns, encoding)
    check_json(json_to, words, to)
    working = folders or model or text_model or rebuild or prune or follow_links or table is not None
    if check:
        if working or forget:
            raise ConfigError("--check looks at an index as it is. Name --to alone.")
        _check(to, json_to)
        return
    if forget:
        if working:
            raise ConfigError("--forget takes folders out and indexes nothing. Name --to alone beside it.")
        _forget(forget, to, json_to, wait=wait)
        return
    with console.progress() as progress:
        progress.starting()
        from earmark.search.index import build

        built = build(
            folders or [],
            to,
            model=model,
            text=text_model,
            words=table,
            jobs=jobs,
            follow_links=follow_links,
            rebuild=rebuild,
            prune=prune,
            wait_for_others=wait,
            progress=progress,
            now=progress.now,
            say=console.complain,
        )
    _give(built, json_to)
    console.show_problems(built.left_rows, "rows of the table were left out")
    exit_with(built.left_out, "files or folders were left out")
    if built.left_rows:
        raise typer.Exit(LEFT_OUT)


def _give(built: Built, json_to: Path | None) -> None:
    """Shows what was done, or writes it as JSON."""
    if json_to is not None:
        give_json(_as_json(built), json_to)
    if json_to != STDOUT:
        _show(built)
        say_written(json_to)


def _forget(folders: list[Path], to: Path, json_to: Path | None, *, wait: bool) -> None:
    from earmark.search.index import forget

    _give(forget(folders, to, wait_for_others=wait, say=console.complain), json_to)


def _words_table(csv: Path | None, forget: bool, columns: dict[str, Any], encoding: str) -> WordsTable | None:
    """What is asked of tables: one with its columns, none from now on, or (None) that of before."""
    given = [name for name, value in columns.items() if value]
    if csv is None and given and not forget:
        hint = " (the sentence encoder is --text-model)" if "--text" in given else ""
        raise ConfigError(f"{', '.join(given)}: tell what to take from a table{hint}. Name it by --words.")
    if csv is not None:
        given = ["--words", *given]
    if forget and given:
        raise ConfigError(f"--no-words forgets the table; it does not go with {', '.join(given)}. Leave one out.")
    if csv is None and not forget:
        return None
    from earmark.search.described import words_table
    from earmark.search.store import WordsTable

    if csv is None:
        return WordsTable()
    path, texts, tags = columns["--path"], columns["--text"] or [], columns["--tags"] or []
    return words_table(csv, path=path, texts=texts, tags=tags, encoding=encoding)


def _check(to: Path, json_to: Path | None) -> None:
    """Measures the index's recall, tells it, and ends with exit code 1 where it is too low."""
    from earmark.search.store import Store

    store = Store.open(to)
    with console.progress() as progress:
        progress.starting()
        from earmark.search.recall import check

        found = check(store, progress=progress)
    if json_to is not None:
        give_json(found.as_json(), json_to)
    if json_to != STDOUT:
        for line in found.lines():
            console.say(line)
        say_written(json_to)
    if not found.good:
        raise typer.Exit(LEFT_OUT)


def _as_json(built: Built) -> dict[str, Any]:
    return {
        "index": str(built.index),
        "model": built.model,
        "files": built.files,
        "windows": built.windows,
        "indexed": built.indexed,
        "changed": built.changed,
        "copies": built.copies,
        "unchanged": built.unchanged,
        "not_looked_at": built.unseen,
        "touched": built.touched,
        "reworded": built.reworded,
        "vanished": built.vanished,
        "heard_s": built.heard_s,
        "moved": [{"from": before, "to": now} for before, now in built.moved],
        "removed": built.removed,
        "left_out": [problem._asdict() for problem in built.left_out],
        "odd": [problem._asdict() for problem in built.odd],
        "passed_over": dict(built.passed.most_common()),
        "words": _table_as_json(built),
    }


def _table_as_json(built: Built) -> dict[str, Any] | None:
    table = built.table
    if table is None:
        return None
    return {
        "table": table.shown,
        "path": table.path,
        "texts": list(table.texts),
        "tags": list(table.tags),
        "files": built.described,
        "left_out": [problem._asdict() for problem in built.left_rows],
    }


def _show(built: Built) -> None:
    """Prints what was done, what was passed over, and what is in the index now."""
    done = {
        "indexed": built.indexed,
        "changed": built.changed,
        "copies of known ones": built.copies,
        "moved": len(built.moved),
        "with a new date": built.touched,
        "with other words": built.reworded,
        "removed": len(built.removed),
        "vanished meanwhile": built.vanished,
        "unchanged": built.unchanged,
        "not looked at": built.unseen,
    }
    told = ", ".join(f"{count:,} {what}" for what, count in done.items() if count)
    console.say(f"{built.index}: {told or 'nothing to index'}")
    if built.passed:
        console.say("passed over: " + ", ".join(f"{count:,} {what}" for what, count in built.passed.most_common()))
    if (table := built.table) is not None:
        taken = ", ".join([*table.texts, *(f"{tag} (tags)" for tag in table.tags)])
        console.say(f"{table.shown}: describes {console.count(built.described, 'file')}; {taken}, by {table.path}")
    if built.odd:
        console.complain(f"note: {oddities(len(built.odd))}, {built.odd[0]} (--json lists all)")
    held = f"{console.count(built.files, 'file')} in {console.count(built.windows, 'window')}"
    console.say(f"{held}, by {built.model}")
