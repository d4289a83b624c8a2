"""An index is opened for writing: made where there is none, by one process alone, and never with another model."""

from __future__ import annotations

import os
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.config import from_table, read_toml
from earmark.errors import DataError, EarmarkError
from earmark.files import LOCK, folder_alone
from earmark.search.store import (
    ABOUT,
    AT_WORK,
    DESCRIBED,
    LEFT_OUT,
    MODEL,
    RATINGS,
    WINDOWS,
    About,
    Store,
    WordsTable,
    connected,
    in_one_line,
    write_about,
    written_schema,
)

if TYPE_CHECKING:
    from earmark.model.text_encoders import Progress
    from earmark.search.embedder import Chosen

DEFAULT = "yamnet"
LOOK_S = 1.0
"""Seconds between looks at whether another process is done."""
UNTIDY = ".untidy"
"""Stands in an index that was written to, until nothing but its last version is left; dated as the writing."""
ANEW, WHOLE = ".anew", ".whole"
"""Where an index is made that is to take this one's place, and what stands in it when it is whole."""
PARTS = (MODEL, f"{WINDOWS}.lance", f"{LEFT_OUT}.lance", ABOUT)
"""What an index consists of; index.toml last, since without it there is none."""


@contextmanager
def alone(index: Path, *, wait: bool = False, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """The index's folder, for this process alone, without what killed ones left.

    Raises `DataError` where another process works there (unless `wait`: that it waits is told to `say`, once), or other
    files than an index's are there.
    """
    busy = DataError(f"{index}: another `earmark index` works there. Wait for it (`--wait`), or name another --to.")
    new, waits = not index.exists(), False
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder_alone(index, busy))
                break
            except DataError as error:
                if error is not busy or not wait:
                    raise
                if say is not None and not waits:
                    say(f"{index}: another `earmark index`{_whose(index)} works there; waiting for it")
                waits = True
            except OSError as error:  # some disks in a network know no locks
                what = f"cannot be locked ({error.strerror}). Name a --to on a disk of this machine."
                raise DataError(f"{index}: {what}") from error
            time.sleep(LOOK_S)
        (index / LOCK).write_text(f"{os.getpid()}\n")
        _check_ours(index)
        if (index / ANEW / WHOLE).exists():
            put_in_place(index)
        for left in index.glob(".earmark-*.part"):
            remove(left)
        try:
            yield
        finally:
            if new and [each.name for each in index.iterdir()] == [LOCK]:  # refused before anything was made
                remove(index)


def _whose(index: Path) -> str:
    """Which process works there, as far as it is known."""
    with suppress(OSError, ValueError):
        return f" (process {int((index / LOCK).read_text())})"
    return ""


def _check_ours(index: Path) -> None:
    """Raises `DataError` where something stands there that no index has; one may lack its index.toml for a while."""
    if (index / ABOUT).is_file():
        return
    ours = {LOCK, UNTIDY, ANEW, AT_WORK, RATINGS, *PARTS}
    for each in sorted(index.iterdir()):
        if each.name not in ours and not each.name.startswith(".earmark-"):
            raise DataError(f"{index}: is there and not an index (it holds {each.name!r}). Name another --to.")


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def opened(index: Path, model: str, text: str, progress: Progress | None = None) -> Store:
    """The index, or a new one without sounds; `model` and `text` are empty where none was asked for.

    Raises `DataError` where it was made with another model.
    """
    if not (index / ABOUT).is_file():
        from earmark.search.embedder import chosen

        _check_nothing_lost(index)
        return _new(index, chosen(model or DEFAULT, text), progress)
    store = Store.open(index)
    if DESCRIBED not in store.windows.schema.names:  # made before there were words from tables
        store.windows.add_columns(written_schema(store.about.dim).field(DESCRIBED))
    if model or text:
        from earmark.search.embedder import chosen

        _check_model(store, chosen(model or store.about.model, text, store.about))
    return store


def _check_nothing_lost(index: Path) -> None:
    """Raises `DataError` where windows lie in an index without its index.toml; one that was never finished has none."""
    if (index / f"{WINDOWS}.lance").is_dir():
        with in_one_line(index):
            count = connected(index).open_table(WINDOWS).count_rows()
        if count:
            raise DataError(
                f"{index}: {count:,} windows and no {ABOUT}. Put it back, or make the index anew with `--rebuild`."
            )


def _new(index: Path, asked: Chosen, progress: Progress | None) -> Store:
    from earmark.search.embedder import keep

    keep(asked, index, progress)
    return Store.create(index, About(model=asked.name, fingerprint=asked.fingerprint, dim=asked.dim))


def _check_model(store: Store, asked: Chosen) -> None:
    about = store.about
    if asked.fingerprint == about.fingerprint:
        return
    if asked.name == about.model and asked.dim == about.dim:
        what = f"{about.model} is not as it was (other weights, settings or --text-model: {asked.fingerprint[:8]}, "
        what += f"then {about.fingerprint[:8]})"
    elif asked.name == about.model:
        what = f"made with {about.model} beside {_text_of(store.folder, about.model)}, asked for another --text-model"
    else:
        what = f"made with {about.model} ({about.dim} values), asked for {asked.name} ({asked.dim} values)"
    raise DataError(f"{store.folder}: {what}. Name another --to, or make the index anew with `--rebuild`.")


# Made anew


def opened_anew(index: Path, model: str, text: str, progress: Progress | None = None) -> Store:
    """An index within this one that is to take its place, with its folders and its table; a killed one is gone on with.

    `model` and `text` are those of before where none is asked for.
    """
    from earmark.search.embedder import chosen

    before = _remembered(index)
    named = str(before.get("model", ""))
    if not model and not text:
        text = _text_of(index, named)
    if not model and Path(named).is_absolute() and (index / MODEL / "config.toml").is_file():
        # the run itself may have been trained again, or be gone
        asked = replace(chosen(str(index / MODEL), text), name=named)
    else:
        asked = chosen(model or named or DEFAULT, text)
    anew = index / ANEW
    with suppress(EarmarkError):  # none there, or none that can be gone on with
        store = Store.open(anew)
        if store.about.fingerprint == asked.fingerprint:
            return store
    remove(anew)
    anew.mkdir()
    store = _new(anew, asked, progress)
    named_folders, links = before.get("folders"), bool(before.get("follow_links", False))
    folders = [each for each in named_folders if isinstance(each, str)] if isinstance(named_folders, list) else []
    words = WordsTable()
    with suppress(EarmarkError):
        words = from_table(WordsTable, before.get("words", {}), ABOUT)
    store.about = replace(store.about, folders=folders, follow_links=links, words=words)
    write_about(anew, store.about)
    return store


def _remembered(index: Path) -> dict[str, Any]:
    """What index.toml says, of whatever version; nothing where it cannot be read."""
    try:
        return tomllib.loads((index / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _text_of(index: Path, model: str) -> str:
    """The sentence encoder beside YAMNet; empty where the model is another."""
    path = index / MODEL / "config.toml"
    if model.split("+")[0] != DEFAULT or not path.is_file():
        return ""
    return str(read_toml(path).get("text", {}).get("encoder", ""))


def put_in_place(index: Path) -> None:
    """Puts the index that was made anew in this one's place; where it was killed while at it, goes on.

    Without index.toml there is no index, so nobody reads one of mixed parts.
    """
    anew = index / ANEW
    (anew / WHOLE).touch()
    if (anew / ABOUT).exists():
        (index / ABOUT).unlink(missing_ok=True)
    for name in PARTS:
        if (anew / name).exists():
            if (index / name).exists():
                (index / name).rename(anew / f"old-{name}-{time.time_ns()}")
            (anew / name).rename(index / name)
    (index / UNTIDY).touch()
    remove(anew)
