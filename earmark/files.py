"""Tables in, and files out that are never half-written.

`read_table` reads any CSV as people's programs write them (RFC 4180, with a byte-order mark, `;` or tabs
between the columns, line breaks within quotes) and knows the line of every row; a row that cannot be read is
left out and told as a `Problem`, and costs no other row. `writing` writes aside and renames, so that a file
is there whole or not at all.
"""

from __future__ import annotations

import codecs
import csv
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from earmark.errors import DataError, EarmarkError, Problem

if TYPE_CHECKING:
    from torch import Tensor


class Row(NamedTuple):
    """A row of a table."""

    line: int
    """The line of the file on which the row begins, counted from 1 (the header)."""
    cells: dict[str, str]


RENAME = "Rename the column."
RENAME_OR_NAME = "Rename the column, or name the one to use."


def check_columns(path: Path, found: Sequence[str], needed: Iterable[str], advice: str = RENAME) -> None:
    """Raises `DataError` where a needed column is missing, with what to do then, or a name stands twice."""
    missing = [column for column in needed if column not in found]
    if missing:
        raise DataError(
            f"{path} line 1: no column {', '.join(map(repr, missing))}; found {', '.join(map(repr, found))}. {advice}"
        )
    twice = sorted({column for column in found if column and found.count(column) > 1})
    if twice:
        raise DataError(f"{path} line 1: column {twice[0]!r} stands twice. Rename one of them.")


SHELLS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""How the paths begin by which a shell hands over what another command writes: `<(sort pairs.csv)`."""


def opened(path: Path) -> io.BufferedReader:
    """The file, open for reading. Raises `DataError` where it cannot be read or is not a regular file.

    A pipe in a folder would be waited for without end; what a shell hands over (`SHELLS`) is read.
    """
    try:
        # not waited for, should it be a pipe
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if str(path).startswith(SHELLS) else os.O_NONBLOCK))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"{path}: cannot be read ({reason}). Check the path.") from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (str(path).startswith(SHELLS) and not stat.S_ISDIR(mode)):
        return os.fdopen(handle, "rb")
    os.close(handle)
    what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise DataError(f"{path}: {what}; expected a file. Check the path.")


def read_text(path: Path, encoding: str = "") -> str:
    """The file's text without a byte-order mark. Raises `DataError` where it is not text of that encoding.

    Without one it is UTF-8 and can be nothing else; with one, "utf-8" too, its user can name another (--encoding).
    """
    may_name, encoding = bool(encoding), encoding or "utf-8"
    try:
        with opened(path) as file:
            data = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    try:
        name = codecs.lookup(encoding).name
        return data.decode(name).removeprefix("\ufeff")  # utf-16-le, say, leaves the mark in
    except LookupError as error:
        raise DataError(f"{path}: encoding {encoding!r} is not known. Try utf-8, cp1252 or utf-16.") from error
    except UnicodeError as error:
        at = error.start if isinstance(error, UnicodeDecodeError) else 0
        line = data.count(b"\n", 0, at) + 1
        found = f"byte 0x{data[at]:02x} is not {encoding}" if at < len(data) else f"is not {encoding}"
        likely = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "cp1252"
        advice = f"Name the file's encoding (--encoding {likely}, say), or save it as UTF-8"
        raise DataError(f"{path} line {line}: {found}. {advice if may_name else 'Save it as UTF-8'}.") from error


class _Lines:
    """The lines of a text, from a place that can be set back."""

    def __init__(self, text: str) -> None:
        self.lines = list(io.StringIO(text, newline=""))
        self.at = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.at == len(self.lines):
            raise StopIteration
        self.at += 1
        return self.lines[self.at - 1]


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Line and cells of every record, or why it is none; after such a one reading goes on with the next *line*.

    So a quote that is opened and never closed costs its own line and not the rest of the file.
    """
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while lines.at < len(lines.lines):
        first = lines.at
        try:
            yield first + 1, next(reader)
        except csv.Error as error:
            yield first + 1, error
            lines.at = first + 1
            reader = csv.reader(lines, delimiter=delimiter, strict=True)


def _header(text: str, delimiter: str) -> list[str]:
    """The first record that is not blank, or nothing where it cannot be read with that delimiter."""
    for _, values in _records(text, delimiter):
        if isinstance(values, csv.Error):
            return []
        if any(value.strip() for value in values):
            return [value.strip() for value in values]
    return []


def read_table(
    path: Path, needed: Iterable[str] = (), *, encoding: str = "", advice: str = RENAME
) -> tuple[list[str], list[Row], list[Problem]]:
    """The columns, the rows, and a `Problem` for each row that could not be read; blank rows are passed over.

    The encoding is as in `read_text`, `advice` as in `check_columns`. The separator is the one of `,`, `;` and tab
    that a first line `sep=;` names, or that splits the header into most columns. Raises `DataError`
    where the file is missing, empty, not of the encoding, or lacks a needed column.
    """
    text = read_text(path, encoding)
    if not text.strip():
        raise DataError(f"{path}: empty; expected a header and rows.")
    if told := re.match("sep=([,;\t])\r?\n", text):  # as spreadsheets are told
        text = "\n" + text[told.end() :]
    delimiter = told[1] if told else max(",;\t", key=lambda mark: len(_header(text, mark)))
    columns = _header(text, delimiter)
    if not columns:
        raise DataError(f"{path} line 1: cannot be read as CSV; expected a header of column names. Check its quotes.")
    check_columns(path, columns, needed, advice)
    rows: list[Row] = []
    problems: list[Problem] = []
    header_seen = False
    for line, values in _records(text, delimiter):
        where = f"{path} line {line}"
        if isinstance(values, csv.Error):
            problems.append(Problem(where, f"cannot be read as CSV ({values}). The row is left out."))
        elif not any(value.strip() for value in values):
            continue
        elif not header_seen:
            header_seen = True
        elif len(values) != len(columns):
            what = f"{len(values)} cells; expected {len(columns)} (a lone quote or separator?). The row is left out."
            problems.append(Problem(where, what))
        else:
            rows.append(Row(line, {name: value for name, value in zip(columns, values, strict=True) if name}))
    return [name for name in columns if name], rows, problems  # spreadsheets append nameless columns


@contextmanager
def writing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` when the block ends without an error.

    Its permissions are `mode`, from the first on, less those that new files of this process lack. A link stays, and
    what it leads to is replaced. What a killed process left of a file of that name is removed. Raises `DataError` where
    nothing can be written there, or where something other than a file is.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: not a regular file; expected a file or nothing. Name another place.")
    try:
        prefix = _prefix(path)
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=PART, dir=path.parent)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}). Name another place.") from error
    os.close(handle)
    aside = Path(name)
    held = _held(aside)
    try:
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.chmod(mode & ~umask())
        aside.replace(path)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}). Make room, or name another place."
        ) from error
    finally:
        aside.unlink(missing_ok=True)
        _let_go(held)


def check_new_folder(path: Path) -> None:
    """Raises `DataError` where `path` is there and not an empty folder."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise DataError(f"{path}: is there already; expected nothing or an empty folder. Delete it, or name another.")


LOCK = ".lock"
"""The file in a folder that the process at work there holds."""


@contextmanager
def folder_alone(folder: Path, busy: EarmarkError) -> Iterator[None]:
    """The folder, made if it is not there, for this process alone, however others end.

    Raises `busy` where another process holds it, `DataError` where it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")  # who holds it may have written there who it is
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}). Name another place.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield


@contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` to fill; it takes the place of `path` when the block ends without an error.

    Raises `DataError` where `path` is there and not an empty folder, or nothing can be written there.
    """
    check_new_folder(path)
    with folder_aside(path) as aside:
        try:
            yield aside
            aside.chmod(0o777 & ~umask())
            aside.replace(path)
        except OSError as error:
            raise DataError(
                f"{path}: cannot be written ({error.strerror or error}). Make room, or name another place."
            ) from error


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """An empty folder beside `path` to work in, gone when the block ends.

    What a killed process left of one for that name is removed. Raises `DataError` where none can be made.
    """
    try:
        aside = Path(tempfile.mkdtemp(prefix=_prefix(path), suffix=PART, dir=path.parent))
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}). Name another place.") from error
    held = _held(aside)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        _let_go(held)


PART = ".part"
"""How the name of what is not whole yet ends."""
LEFT_S = 60.0
"""Seconds without a change after which what nobody holds is a left-over: it is made before it is held."""


def _prefix(path: Path) -> str:
    """How the names begin of what is written aside for `path`, once left-overs are removed and its folder is there."""
    prefix = f".earmark-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:8]}-"
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_overs(path.parent, prefix)
    return prefix


def _held(path: Path) -> int | None:
    """The file or folder, open and locked until it is closed or the process ends; None where another holds it, or none
    can.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _let_go(held: int | None) -> None:
    if held is not None:
        os.close(held)


def _remove_left_overs(parent: Path, prefix: str) -> None:
    """Removes the files and folders of that prefix that no process holds any more."""
    for each in parent.glob(f"{prefix}*{PART}"):
        held = _held(each)
        if held is None:
            continue
        try:
            if time.time() - os.fstat(held).st_mtime > LEFT_S:
                shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink(missing_ok=True)
        finally:
            os.close(held)


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Writes UTF-8 text, whole or not at all, for those whom `mode` lets read it."""
    with writing(path, mode) as aside:
        aside.write_bytes(text.encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Writes a safetensors file, whole or not at all. Raises `DataError` where it cannot be written."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with writing(path) as aside:
        try:
            save_file({name: each.detach().contiguous() for name, each in tensors.items()}, aside, dict(header))
        except SafetensorError as error:
            raise DataError(f"{path}: cannot be written ({error}). Make room, or name another place.") from error


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Writes a CSV (UTF-8, `,`, `\\n`), whole or not at all; a row's missing columns stay empty.

    Raises `DataError` on text that UTF-8 cannot hold (parts of a file name that is not UTF-8).
    """
    text = table_text(columns, rows)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise DataError(f"{path} line {line}: holds a name that is not UTF-8. Rename the file.") from error
    write_text(path, text)


def table_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A CSV (`,`, `\\n`); a row's missing columns stay empty, others are passed over."""
    lines = [_line(columns)]
    lines += [_line([row.get(column, "") for column in columns]) for row in rows]
    return "".join(lines)


def _line(cells: Iterable[object]) -> str:
    texts = [str(cell) for cell in cells]
    if len(texts) == 1 and not texts[0].strip():
        return '""\n'  # a line of nothing would be no row
    return ",".join(_quoted(text) for text in texts) + "\n"


def _quoted(text: str) -> str:
    """The cell as RFC 4180 has it.

    Python 3.11's csv module leaves a lone `\\r` unquoted, and then reads it as a new line; `;` and tabs are quoted
    so that no cell of the header is taken for several.
    """
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',;\t"\r\n') else text


def size_and_time(state: os.stat_result) -> tuple[int, int]:
    """Bytes, and nanoseconds since 1970 of the last change: what tells a changed file. Dates that 64 bits cannot hold
    (before 1678, after 2262) are the nearest that they can.
    """
    return state.st_size, max(-(1 << 63), min(state.st_mtime_ns, (1 << 63) - 1))


def cache_folder() -> Path:
    """`$EARMARK_CACHE`, or `earmark` in the user's cache folder. Everything in it can be made again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("EARMARK_CACHE") or Path(base) / "earmark")


def umask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
