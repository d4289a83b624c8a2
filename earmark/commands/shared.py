"""What several commands share: options, how a collection is told, how a command ends."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from earmark.data.collection import Collection

LEFT_OUT = 1
REFUSED = 2
STDOUT = Path("-")

DataOption = Annotated[Path, typer.Option("--data", help="The collection's folder.", show_default=False)]
SplitOption = Annotated[
    Optional[str],  # noqa: UP045  (typer reads this at run time)
    typer.Option("--split", help="evaluation where there is one, else all clips but *-lists.", show_default=False),
]
JsonOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--json", help="Write JSON to FILE, or without FILE to standard output.", metavar="[FILE]"),
]
SeedOption = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]


def read(folder: Path) -> Collection:
    """The collection of a folder."""
    from earmark.data.collection import Collection

    return Collection.read(folder)


def default_split(collection: Collection) -> str | None:
    """`evaluation` where there is one, else None: all clips but `*-lists`."""
    return "evaluation" if "evaluation" in collection.splits else None


def stage(progress: console.Stages, what: str) -> Any:
    """Progress of one stage, told (done, all)."""
    return lambda done, all_: progress(what, done, all_)


def say_collection(found: Collection) -> None:
    """Prints what a collection holds, split by split."""
    counts = [f"{split} {len(found.gallery(split)):,}" for split in found.splits]
    if in_lists := len(found.clips) - len(found.gallery()):
        counts.append(f"in rated lists alone {in_lists:,}")
    console.say(
        f"{found.name} ({console.KIND[found.kind]}) in {found.root}: {console.count(len(found.clips), 'clip')} "
        f"({', '.join(counts)}), {console.count(len(found.captions), 'caption')}, "
        f"{console.count(len(found.ratings), 'rating')}"
    )


def oddities(number: int) -> str:
    """`1 oddity of a sound`, `2 oddities of sounds`."""
    return "1 oddity of a sound" if number == 1 else f"{number:,} oddities of sounds"


def exit_with(problems: Sequence[Problem], what: str) -> None:
    """Lists problems and ends with exit code 1 where there are any."""
    console.show_problems(problems, what)
    if problems:
        raise typer.Exit(LEFT_OUT)


def check_json(to: Path | None, *inputs: Path | str | None) -> None:
    """Raises `DataError` where JSON cannot be written, `ConfigError` where it would take the place of an input.

    Asked before the work. What an input folder holds is an input, but for JSON that an earlier command wrote there.
    """
    if to is not None and to != STDOUT:
        for each in (Path(each) for each in inputs if each):
            if replaces(to, each) or (each.is_dir() and to.suffix != ".json" and _stands_in(to, each)):
                raise ConfigError(f"--json {to}: what is read, which would be lost. Name another file.")
    if to is None or to == STDOUT or (to.exists() and not to.is_file() and not to.is_dir()):
        return
    real = Path(os.path.realpath(to))
    folder = next(each for each in real.parents if each.exists())
    try:
        if real.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a folder")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"{to}: JSON cannot be written there ({error.strerror}). Name another file.") from error


def replaces(out: Path, source: Path) -> bool:
    """Whether what is written to `out` takes the place of the file `source`."""
    return out.is_file() and source.is_file() and out.samefile(source)


def _stands_in(path: Path, folder: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def folder_of(text: str) -> Path:
    """The path that an argument names. Raises `ConfigError` where it is empty, which would be the current folder."""
    if not text:
        raise ConfigError("'': an empty path; expected a folder. Name it (`.` is the current one).")
    return Path(text)


def say_written(json_to: Path | None) -> None:
    """Says that JSON was written to a file, where it was."""
    if json_to is not None and json_to != STDOUT:
        console.say(f"{json_to}: written")


def give_json(value: Any, to: Path) -> None:
    """Prints JSON, or writes it to a file; NaN is null."""
    from earmark.measure.evaluate import without_nan

    value = without_nan(value)
    console.show_json(value, None if to == STDOUT else to)
