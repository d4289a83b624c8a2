"""An index on disk: a LanceDB folder of windows, the model that embedded them, and what could not be indexed.

    index.toml       what it is: the model's name and fingerprint, the windows, the folders
    model/           the model itself, as a run's folder: an index goes on answering when the run is trained again
    windows.lance    a row a window: its vector, and the file's facts
    left_out.lance   a row a file that holds no sound that can be read, and why
    ratings/         the listener's own ratings, where the server was told no other place (`rated.py`)

Beside them stand `.lock`, and while work is under way or was broken off `.untidy`, `.reading` and `.anew`.

Every change is one commit of one table, so a process that is killed leaves what the last commit left. One process
writes at a time (`files.folder_alone`); readers see the last commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

import tomli_w

from earmark.audio.decode import shown
from earmark.config import from_table, read_toml
from earmark.errors import ConfigError, DataError, EarmarkError, in_short, install
from earmark.files import write_text

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.table import Table

FORMAT = 1
"""Of index.toml and of the tables."""
ABOUT, MODEL, WINDOWS, LEFT_OUT, RATINGS = "index.toml", "model", "windows", "left_out", "ratings"
AT_WORK = ".reading"
"""Stands in an index while a process reads a file itself, and names it."""
DESCRIBED = "described"
"""A column of `windows`: what the words are made of beside the file (`words.origin`); null but in window 0."""
KEPT = timedelta(minutes=10)
"""How long versions before the last are kept: a search that is under way still reads them."""


@dataclass(frozen=True)
class WordsTable:
    """A table that says something of sound files, and what to take from it."""

    table: str = ""
    """Absolute, as `as_text` writes it; empty: there is none."""
    path: str = ""
    """The column of paths, and below the columns of texts; empty: those that are usual."""
    texts: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    encoding: str = "utf-8"


@dataclass(frozen=True)
class About:
    """index.toml."""

    format: int = FORMAT
    model: str = ""
    """As the user named it: a name, or the absolute path of a run."""
    fingerprint: str = ""
    """32 hex digits of the weights, the front end, the precision and the windows."""
    dim: int = 0
    window_s: float = 10.0
    hop_s: float = 5.0
    precision: str = "float32"
    folders: list[str] = field(default_factory=list)
    """The folders and files that were indexed, absolute; one that is no line of UTF-8 as a `file:` URI (`as_text`)."""
    follow_links: bool = False
    """Whether links below them are followed."""
    words: WordsTable = field(default_factory=WordsTable)


class AwayError(DataError):
    """An index that is not there, or that cannot be read."""


class Stamp(NamedTuple):
    """What tells, without reading it, that a file is as it was."""

    size: int
    """Bytes."""
    mtime_ns: int


class Known(NamedTuple):
    """A file of the index, or one that was left out (`file_id` is empty then)."""

    file_id: str
    stamp: Stamp
    content: str
    """SHA-256 of the file's bytes, hex."""
    reason: str = ""
    """Why it was left out."""
    described: str = ""
    """What its words were made of beside the file."""


def needs_lancedb() -> Any:
    """The module lancedb. Raises `ConfigError` where it is not installed."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # else it warns of every new table
    try:
        import lancedb
    except ImportError as error:
        raise ConfigError(f"searching needs the extra `search` ({install('search')}): {error}.") from error
    return lancedb


def connected(folder: Path) -> Any:
    """LanceDB's connection. Raises `DataError` where the folder's name is none that LanceDB can say."""
    path = os.path.abspath(folder)  # noqa: PTH100  a relative name with a colon would be an address
    if shown(path) != path:
        raise DataError(f"{shown(path)}: an index's path is one line of UTF-8. Name another --to.")
    return needs_lancedb().connect(path, read_consistency_interval=timedelta(0))


@contextmanager
def in_one_line(folder: Path) -> Iterator[None]:
    """Within the block what LanceDB raises is a `DataError` that says what to do."""
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        first = re.sub(r", /\S+\.rs:\S+", "", (str(error).strip() or type(error).__name__).splitlines()[0])[:200]
        raise DataError(
            f"{folder}: cannot be read or written ({first}). Make room if the disk is full (what is done is kept), or "
            f"make it anew: `earmark index --to {folder} --rebuild`."
        ) from error


def windows_schema(dim: int) -> pa.Schema:
    """The columns of `windows`."""
    import pyarrow as pa

    return pa.schema(
        [
            ("file_id", pa.string()),  # 32 random hex digits: what a page may know of a file
            ("window", pa.int32()),  # 0, 1, …
            ("path", pa.binary()),  # absolute, the system's bytes
            ("shown", pa.string()),  # the path in one line of text
            ("folder", pa.string()),  # of the path, shown
            ("start_s", pa.float64()),
            ("end_s", pa.float64()),
            ("duration_s", pa.float64()),  # of the file, decoded
            ("rate", pa.int32()),  # of the file, Hz
            ("channels", pa.int32()),  # of the file
            ("content", pa.string()),  # SHA-256 of the file's bytes, hex
            ("size", pa.int64()),  # bytes
            ("mtime_ns", pa.int64()),
            ("words", pa.string()),  # that the file carries; empty but in window 0, so that a file counts once
            ("tags", pa.list_(pa.string())),  # lower case
            ("print", pa.binary()),  # what its sound is known by, in window 0 (`search/copies.py`)
            ("odd", pa.list_(pa.string())),  # what was odd about the sound, a sentence each
            ("vector", pa.list_(pa.float32(), dim)),  # unit length
        ]
    )


def written_schema(dim: int) -> pa.Schema:
    """The columns of `windows` with the last, which may be missing where rows are added."""
    import pyarrow as pa

    return windows_schema(dim).append(pa.field(DESCRIBED, pa.string()))


def left_out_schema() -> pa.Schema:
    """The columns of `left_out`."""
    import pyarrow as pa

    return pa.schema(
        [
            ("path", pa.binary()),
            ("shown", pa.string()),
            ("size", pa.int64()),
            ("mtime_ns", pa.int64()),
            ("content", pa.string()),
            ("reason", pa.string()),
        ]
    )


class Store:
    """An index that is open."""

    def __init__(self, folder: Path, about: About, windows: Table, left_out: Table) -> None:
        self.folder, self.about, self.windows, self.left_out = folder, about, windows, left_out

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The index of a folder. Raises `AwayError` where there is none, or it is of another version."""
        about = read_about(folder)
        database = connected(folder)
        try:
            tables = [database.open_table(name) for name in (WINDOWS, LEFT_OUT)]
        except (ValueError, OSError, RuntimeError) as error:
            raise AwayError(
                f"{folder}: the index is damaged ({in_short(error)}). Make it anew with `earmark index --rebuild`."
            ) from error
        held = tables[0].schema.field("vector").type.list_size
        if held != about.dim:
            raise AwayError(
                f"{folder / ABOUT}: dim = {about.dim}; the windows have {held} values. Put {held} there, or make the "
                "index anew with `earmark index --rebuild`."
            )
        return cls(folder, about, *tables)

    @classmethod
    def create(cls, folder: Path, about: About) -> Store:
        """A new index without sounds. index.toml is written last: before it stands there, there is no index."""
        database = connected(folder)
        fingerprint = {"earmark.fingerprint": about.fingerprint}
        windows = database.create_table(
            WINDOWS, schema=written_schema(about.dim).with_metadata(fingerprint), mode="overwrite"
        )
        left_out = database.create_table(LEFT_OUT, schema=left_out_schema(), mode="overwrite")
        write_about(folder, about)
        return cls(folder, about, windows, left_out)

    # Reading

    def known(self) -> dict[Path, Known]:
        """What is known of every file, by path: of those that were indexed, and of those that were left out."""
        found = self.known_left_out()
        columns = ["path", "size", "mtime_ns", "content", "file_id", DESCRIBED]
        rows = self.windows.search().where("window = 0").select(columns).limit(None).to_arrow()
        for row in rows.to_pylist():
            stamp, described = Stamp(row["size"], row["mtime_ns"]), row[DESCRIBED] or ""
            found[path_of(row)] = Known(row["file_id"], stamp, row["content"], described=described)
        return found

    def known_left_out(self) -> dict[Path, Known]:
        """What the table `left_out` says, by path; a run that was killed may have left files there that are indexed."""
        columns = ["path", "size", "mtime_ns", "content", "reason"]
        rows = self.left_out.search().select(columns).limit(None).to_arrow().to_pylist()
        return {
            path_of(row): Known("", Stamp(row["size"], row["mtime_ns"]), row["content"], row["reason"]) for row in rows
        }

    def rows(self, file_ids: Iterable[str], columns: Sequence[str] | None = None) -> pa.Table:
        """All windows of these files."""
        search = self.windows.search().where(one_of("file_id", file_ids)).limit(None)
        return (search.select(list(columns)) if columns else search).to_arrow()

    # Writing

    def commit(self, added: pa.Table | None, removed: Sequence[str] = ()) -> None:
        """Puts windows in and takes the windows of files (ids) out, in one commit: both happen, or neither.

        An id may stand in both: then its windows are replaced.
        """
        if added is not None and added.num_rows and removed:
            (
                self.windows.merge_insert(["file_id", "window"])
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .when_not_matched_by_source_delete(one_of("file_id", removed))
                .execute(added)
            )
        elif added is not None and added.num_rows:
            self.windows.add(added)
        elif removed:
            self.windows.delete(one_of("file_id", removed))

    def leave_out(self, files: Mapping[Path, Known]) -> None:
        """Replaces the list of what was left out, by path, in one commit."""
        import pyarrow as pa

        rows = [
            {
                "path": os.fsencode(path),
                "shown": shown(path),
                "size": known.stamp.size,
                "mtime_ns": known.stamp.mtime_ns,
                "content": known.content,
                "reason": known.reason,
            }
            for path, known in files.items()
        ]
        self.left_out.add(pa.Table.from_pylist(rows, schema=left_out_schema()), mode="overwrite")

    def drop_lost_indices(self) -> bool:
        """Whether indices of the table were there whose files are not: they hinder every search, and are dropped."""
        lost = [each.name for each in self.windows.list_indices() if not self._is_whole(each)]
        for name in lost:
            self.windows.drop_index(name)
        return bool(lost)

    def _is_whole(self, index: Any) -> bool:
        folder = self.folder / f"{WINDOWS}.lance" / "_indices" / str(index.index_uuid)
        size = sum(each.stat().st_size for each in folder.glob("*"))
        return size > 0 and (index.num_segments != 1 or size >= (index.size_bytes or 0))

    def tidy(self) -> None:
        """Joins small pieces, brings the table's indices up to date, drops earlier versions and what a kill left."""
        for table in (self.windows, self.left_out):
            table.optimize(cleanup_older_than=KEPT, delete_unverified=True)


def one_of(column: str, values: Iterable[str]) -> str:
    """A condition of SQL: the column holds one of these texts."""
    listed = ", ".join(map(quoted, values))
    return f"{column} IN ({listed})" if listed else "false"


def quoted(text: str) -> str:
    """The text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def read_about(folder: Path) -> About:
    """What index.toml says. Raises `AwayError` where there is no index, or one of another version."""
    check_there(folder)
    path = folder / ABOUT
    try:
        return _about(path, read_toml(path))
    except AwayError:
        raise
    except EarmarkError as error:
        raise AwayError(str(error)) from error


def _about(path: Path, tables: Mapping[str, Any]) -> About:
    if tables.get("format") != FORMAT:
        raise AwayError(
            f"{path}: format = {tables.get('format')!r}; this version reads {FORMAT}. Make the index anew: `--rebuild`."
        )
    words = from_table(WordsTable, tables.get("words", {}), f"{path} words")
    about = from_table(About, {**tables, "words": words}, str(path))
    if not 0 < about.hop_s <= about.window_s < float("inf"):
        what = f"window_s = {about.window_s}, hop_s = {about.hop_s}; expected 0 < hop_s ≤ window_s."
        raise AwayError(f"{path}: {what} Put them right, or make the index anew: `--rebuild`.")
    return about


def check_there(folder: Path) -> None:
    """Raises `AwayError` where no index is: asked before LanceDB connects, which makes the folder."""
    if not (folder / ABOUT).is_file():
        raise AwayError(f"{folder}: not an index (no {ABOUT}). Make one with `earmark index DIR --to {folder}`.")


def write_about(folder: Path, about: About) -> None:
    """Writes index.toml, whole or not at all."""
    told = asdict(about)
    if not about.words.table:
        del told["words"]
    write_text(folder / ABOUT, tomli_w.dumps(told))


def as_text(path: Path) -> str:
    """An absolute path as a text that tells it whole: itself, or a `file:` URI where it is no line of UTF-8."""
    return str(path) if shown(path) == str(path) else path.as_uri()


def from_text(text: str) -> Path:
    """The path that `as_text` wrote."""
    if not text.startswith("file://"):
        return Path(text)
    return Path(os.fsdecode(unquote_to_bytes(text.removeprefix("file://"))))


def path_of(row: Mapping[str, Any]) -> Path:
    """The file of a row."""
    return Path(os.fsdecode(row["path"]))
