"""The files of an index as a server hands them out: by opaque id, and only as they were indexed."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from earmark.audio.decode import shown
from earmark.errors import DataError
from earmark.search.engine import Engine, unreadable
from earmark.search.query import Hit, Vector
from earmark.search.rated import Region
from earmark.search.replies import About, Choice
from earmark.search.store import Stamp, Store, check_there, path_of
from earmark.web.sounds import open_unchanged
from earmark.web.uploads import MOST_BYTES, MOST_S

COLUMNS = ("file_id", "window", "path", "start_s", "end_s", "duration_s", "content", "size", "mtime_ns")
MOST_CHOICES = 300
"""Values of a filter that are offered."""
FILES_KEPT = 4096
"""Files that were asked for last: a page asks for each several times."""
VECTORS_KEPT = 256
"""Sounds to search by that were sent."""


class Indexed(NamedTuple):
    """A file of the index."""

    file_id: str
    path: Path
    stamp: Stamp
    content: str
    duration_s: float
    windows: list[tuple[float, float]]


class State(NamedTuple):
    """What the library's answers hold for."""

    store: Store
    version: int


class Library:
    """Files by id, sounds that were sent to search by, and what the index holds."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._vectors: OrderedDict[str, tuple[str, Vector]] = OrderedDict()
        self._files: OrderedDict[str, Indexed] = OrderedDict()
        self._files_of: State | None = None
        self._about: tuple[State, About] | None = None
        self._lock = threading.Lock()

    def _state(self) -> State:
        """What changes with every commit, and when the index is made anew."""
        check_there(self.engine.store.folder)
        store = self.engine.store
        return State(store, store.windows.version)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within it the index is read; raises `AwayError` where that cannot be."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            raise unreadable(self.engine.store.folder, error) from error

    def file(self, file_id: str) -> Indexed:
        """The file of that id. Raises `DataError` where there is none."""
        with self._reading():
            return self._file(file_id)

    def facts(self, file_id: str) -> Hit:
        """What is known of a file. Raises `DataError` where there is none."""
        with self._reading():
            return self.engine.file(file_id)

    def _file(self, file_id: str) -> Indexed:
        state = self._state()
        with self._lock:
            if self._files_of != state:
                self._files, self._files_of = OrderedDict(), state
            known = self._files.get(file_id)
        if known is None:
            known = self._looked_up(file_id)
            with self._lock:
                self._files[file_id] = known
                if len(self._files) > FILES_KEPT:
                    self._files.popitem(last=False)
        return known

    def _looked_up(self, file_id: str) -> Indexed:
        if not re.fullmatch("[0-9a-f]{32}", file_id):
            raise DataError(f"no file {file_id[:40]!r} is indexed; expected 32 hex digits.")
        rows = self.engine.store.rows([file_id], COLUMNS).to_pylist()
        if not rows:
            raise DataError(f"no file {file_id!r} is indexed any more. Search again.")
        rows.sort(key=lambda row: row["window"])
        first = rows[0]
        stamp = Stamp(first["size"], first["mtime_ns"])
        windows = [(row["start_s"], row["end_s"]) for row in rows]
        return Indexed(file_id, path_of(first), stamp, first["content"], first["duration_s"], windows)

    def open(self, file: Indexed) -> int:
        """A descriptor of it; who calls closes it. Raises `DataError` where it is not as it was indexed."""
        return open_unchanged(file.path, *file.stamp)

    def checked(self, file: Indexed) -> Path:
        """Its path, once it is seen to be as it was indexed."""
        os.close(self.open(file))
        return file.path

    def region(self, file_id: str, start_s: float, end_s: float) -> Region:
        """A window of a file. Raises `DataError` where the file has none of these times, or has changed."""
        file = self.file(file_id)
        for start, end in file.windows:
            if abs(start - start_s) < 0.01 and abs(end - end_s) < 0.01:
                return Region(self.checked(file), file_id, file.content, start, end, file.duration_s)
        raise DataError(f"{start_s:g} to {end_s:g} s is no window of that file. Search again.")

    # Sounds to search by

    def remember(self, vector: Vector) -> str:
        """The id of a sound that was sent."""
        key = "u" + secrets.token_hex(16)
        with self._lock:
            self._vectors[key] = (self.engine.store.about.fingerprint, vector)
            if len(self._vectors) > VECTORS_KEPT:
                self._vectors.popitem(last=False)
        return key

    def vector(self, like: str) -> Vector:
        """The vector of `file_id@seconds`, or of a sound that was sent. Raises `DataError` where it is not there."""
        if like.startswith("u"):
            with self._lock:
                fingerprint, vector = self._vectors.get(like, ("", None))
                if vector is not None and fingerprint == self.engine.store.about.fingerprint:
                    self._vectors.move_to_end(like)
                    return vector
            raise DataError("that sound is not at hand any more. Drop it once more.")
        file_id, _, start = like.partition("@")
        with self._reading():
            return self.engine.vector_of_hit(file_id, float(start))

    # What the index holds

    def about(self) -> About:
        """Counts and the values of filters, of the last commit."""
        with self._reading():
            state = self._state()
            if self._about is None or self._about[0] != state:
                self._about = (state, self._counted())
            return self._about[1]

    def _counted(self) -> About:
        import pyarrow.compute as pc

        store = self.engine.store
        columns = ["folder", "tags", "rate", "channels", "duration_s"]
        rows = store.windows.search().where("window = 0").select(columns).limit(None).to_arrow()
        seconds = rows["duration_s"]
        return About(
            name=store.folder.resolve().name,
            model=store.about.model,
            roots=list(store.about.folders),
            files=rows.num_rows,
            hours=round((pc.sum(seconds).as_py() or 0.0) / 3600, 3),
            left_out=store.left_out.count_rows(),
            folders=_choices(rows["folder"]),
            tags=_choices(pc.list_flatten(rows["tags"])),
            rates=_choices(rows["rate"]),
            channels=_choices(rows["channels"]),
            longest_s=pc.max(seconds).as_py() or 0.0,
            most_upload_bytes=MOST_BYTES,
            most_upload_s=MOST_S,
        )


def _choices(column: Any) -> list[Choice]:
    """The most frequent values, sorted by count."""
    counted = [(entry["values"], entry["counts"]) for entry in column.value_counts().to_pylist()]
    counted.sort(key=lambda each: (-each[1], str(each[0])))
    return [Choice(value=str(value), files=files) for value, files in counted[:MOST_CHOICES] if value not in ("", None)]


@contextmanager
def held(file: Indexed, descriptor: int) -> Iterator[Path]:
    """A path that leads to an open file, whatever takes its place meanwhile; it is closed when the block ends.

    Where the system has no /proc (macOS) it is the file's own path.
    """
    there = Path(f"/proc/self/fd/{descriptor}")
    try:
        yield there if there.exists() else file.path
    except DataError as error:
        raise DataError(str(error).replace(str(there), shown(file.path))) from error
    finally:
        os.close(descriptor)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="earmark-") as folder:
        yield Path(folder)
