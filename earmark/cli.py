"""The commands, one a step (`commands/`), and how they end.

Exit 0: done; 1: done, but something was left out or `[expected]` was missed; 2: refused.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from earmark import console
from earmark.commands import learn
from earmark.commands.analyse import analyse
from earmark.commands.collect import collect
from earmark.commands.data import data
from earmark.commands.index import index
from earmark.commands.score import score
from earmark.commands.search import search
from earmark.commands.serve import serve
from earmark.commands.shared import LEFT_OUT, REFUSED
from earmark.errors import EarmarkError

app = typer.Typer(
    name="earmark",
    help="How well does a sound match words? Learns it from captions and ratings, measures it, searches by it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.add_typer(data, name="data")
app.add_typer(collect, name="collect")
LEARNING = (learn.embed, learn.train, learn.evaluate, learn.compare, learn.experiment)
for command in (*LEARNING, analyse, score, index, search, serve):
    app.command()(command)


@app.command()
def doctor() -> None:
    """Tell what this machine has: libraries, precision, models, folders.

    Example: `earmark doctor`
    """
    from earmark.doctor import findings

    rows = findings()
    for row in rows:
        console.say(f"{row.what:26}{row.found}{'' if row.fine else '   <- look here'}")
    raise typer.Exit(0 if all(row.fine for row in rows) else LEFT_OUT)


def _with_json_target(arguments: Sequence[str]) -> list[str]:
    """The arguments with `-` put after a `--json` that no file follows (typer has no options with optional values)."""
    out: list[str] = []
    for place, argument in enumerate(arguments):
        out.append(argument)
        following = arguments[place + 1] if place + 1 < len(arguments) else "--"
        if argument == "--json" and following.startswith("-") and following != "-":
            out.append("-")
    return out


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    console.complain(f"note: {message}")


def main() -> None:
    """The entry point: errors become one line and exit code 2."""
    warnings.showwarning = _warn
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough ends us quietly
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter still shows the rest
    try:
        app(args=_with_json_target(sys.argv[1:]))  # usage errors end here too, with exit code 2
    except EarmarkError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename or 'earmark'}: {error.strerror or error}. Check the path and the disk.")


def _refuse(message: str) -> NoReturn:
    console.complain(" ".join(message.split()))
    sys.exit(REFUSED)
