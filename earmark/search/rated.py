"""The listener's own ratings of what a search found, kept as a collection that `earmark train` reads.

    history.csv    every rating as it was given, a row each, added to and never changed: what is kept for certain
    clips.csv, captions.csv, ratings.csv, collection.toml
                   the collection, made from the history: the last rating of each rater, query and clip
    sounds/        the rated windows of long files, cut once

A query is the caption of the clip that was rated best for it: its clip is of the split `development`; clips that no
query fits best are of `development-lists`, and stand in rated lists alone. Whoever trains with `relevance =
"captions+ratings"` lets the ratings overrule that choice. Clips that come from one file are of one group.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from earmark.data.collection import LISTS, Caption, Clip, Collection, relative_path
from earmark.data.rows import is_blank, rating_fault
from earmark.errors import DataError
from earmark.files import LOCK, read_table, write_table
from earmark.relevance import Rating

HISTORY, SOUNDS = "history.csv", "sounds"
SPLIT = "development"
LONGEST_QUERY = 2000
"""Letters."""
LEFT_OVER = ".earmark-*.part"
"""Files that were being written when a process was killed (`files.writing`)."""
Key = tuple[str, str, str]
"""Rater, query as it is compared, clip."""


@dataclass(frozen=True)
class Region:
    """What was heard: a window of an indexed file."""

    path: Path
    file_id: str
    content: str
    """SHA-256 of the file's bytes, hex: what the sound is known by, wherever it lies."""
    start_s: float
    end_s: float
    duration_s: float
    """Of the file."""

    @property
    def whole(self) -> bool:
        """Whether it is all of the file."""
        return self.start_s <= 0 and self.end_s >= self.duration_s - 1e-3

    @property
    def clip_id(self) -> str:
        """The same for the same bytes and times."""
        times = "" if self.whole else f"-{round(1000 * self.start_s)}-{round(1000 * self.end_s)}"
        return f"{self.content[:20]}{times}"


@dataclass(frozen=True)
class Mark:
    """A row of history.csv."""

    rater_id: str
    text: str
    """The query, its blanks made single."""
    clip_id: str
    rating: str
    """0–100, or empty where the rater took it back."""
    path: str
    """Of the clip, from the folder."""
    file_id: str
    start_s: str
    end_s: str
    group: str
    stratum: str
    """How what was shown had been found: `search` by words and names, `search-embedding`, `search-like`."""
    rank: str
    """Its place among what was shown, from 1."""
    played_s: str
    """Seconds that the rater had listened."""
    cosine: str
    """Between query and clip, as the model had it."""
    model: str
    """Fingerprint of the index's model."""
    rated_at: str
    """UTC, ISO 8601; the last column, so that a row that ends in Z is whole."""

    @property
    def key(self) -> Key:
        """What one rating stands for: the last one of a key counts."""
        return (self.rater_id, self.text.casefold(), self.clip_id)


COLUMNS = tuple(field.name for field in fields(Mark))
SHOWN_COLUMNS = ("rank", "cosine", "model", "rated_at")
"""Columns of ratings.csv beside those that every collection knows."""


class NotKeptError(DataError):
    """A rating that the disk, or what lies there, did not let us keep."""


def query_text(words: str) -> str:
    """The words as a caption: blanks made single, controls (NUL) taken for blanks.

    Raises `DataError` where nothing of them can be seen, or too much.
    """
    text = " ".join("".join(" " if unicodedata.category(mark) == "Cc" else mark for mark in words).split())
    if is_blank(text):
        raise DataError(f"the words are blank ({words[:40]!r}); a rating needs the words that it is for.")
    if len(text) > LONGEST_QUERY:
        raise DataError(f"words of {len(text):,} letters; expected at most {LONGEST_QUERY:,}.")
    return text


class Rated:
    """The ratings in a folder, safe under several threads and several processes."""

    def __init__(self, folder: Path, cut: Callable[[Path, float, float, Path], Path]) -> None:
        """`cut` (path, start, end, to) writes a part of a sound and tells where: the ending is its own choice.

        Nothing is read or written before `begin`, or the first call.
        """
        self.folder = folder
        self._cut = cut
        self._lock = threading.Lock()
        self._marks: dict[Key, Mark] = {}
        self._read: Version | None = None

    def begin(self) -> None:
        """Makes the folder, removes what a killed process left, and makes the tables from the history.

        Raises `NotKeptError` where ratings cannot be kept there.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _not_kept(self.folder, error) from error
        with self._alone():
            for place in (self.folder, self.folder / SOUNDS):
                for each in place.glob(LEFT_OVER):
                    each.unlink(missing_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):  # else the first rating would find out
                pass
            if self._read is not None:
                self._write_collection()

    def rate(
        self,
        region: Region,
        words: str,
        rating: float | None,
        rater_id: str,
        *,
        stratum: str,
        rank: int | None = None,
        played_s: float | None = None,
        cosine: float | None = None,
        model: str = "",
    ) -> Mark:
        """The row that keeps the rating of a region for words, 0–100; None takes an earlier one back.

        A rating has three digits behind the point. Raises `DataError` where the words are blank, the rating is out of
        range, or the sound cannot be cut, `NotKeptError` where it cannot be kept; then nothing of it is.
        """
        text = query_text(words)
        if rating is not None and not 0 <= rating <= 100:
            raise DataError(f"rating {rating:g}; expected 0–100, or none.")
        with self._alone():
            mark = Mark(
                rater_id=rater_id,
                text=text,
                clip_id=region.clip_id,
                rating="" if rating is None else _plain(rating),
                path="" if rating is None else self._path_of(region),
                file_id=region.file_id,
                start_s=f"{region.start_s:.3f}",
                end_s=f"{region.end_s:.3f}",
                group=region.content[:20],
                stratum=stratum,
                rank="" if rank is None else str(rank),
                played_s="" if played_s is None else f"{max(0.0, played_s):.2f}",
                cosine="" if cosine is None else f"{cosine:.4f}",
                model=model,
                rated_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            )
            self._keep(mark)
        return mark

    def own(self, words: str, rater_id: str) -> list[Mark]:
        """What this rater said of these words, as it stands. Raises as `query_text`."""
        text = query_text(words).casefold()
        with self._lock:
            self._read_on()
            return [mark for key, mark in self._marks.items() if key[:2] == (rater_id, text) and mark.rating]

    def __len__(self) -> int:
        with self._lock:
            self._read_on()
            return sum(bool(mark.rating) for mark in self._marks.values())

    # The history

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """For this thread of this process alone, with all that others have added."""
        with self._lock:
            try:
                self.folder.mkdir(exist_ok=True)  # an index that was removed does not come back
                with (self.folder / LOCK).open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    self._read_on()
                    yield
            except OSError as error:
                raise _not_kept(self.folder, error) from error

    def _read_on(self) -> None:
        """Reads the history where it is another than what was read: others add to it, and people change it."""
        path = self.folder / HISTORY
        now = _stamp(path)
        if now == self._read:
            return
        self._marks = {}
        for row in _rows(path):
            mark = Mark(**{name: row[name] for name in COLUMNS})
            if _is_sound(mark):
                self._marks[mark.key] = mark  # in the place of an earlier one
        self._read = now

    def _keep(self, mark: Mark) -> None:
        """Adds a row and makes the tables; where one of them cannot be written the row is taken out again."""
        path = self.folder / HISTORY
        if not _is_sound(mark):  # it would not be read
            raise DataError(f"a rating that cannot be kept: {_line(asdict(mark)).strip()[:200]!r}.")
        _in_our_form(path)
        before = path.stat().st_size if path.exists() else 0
        try:
            _append(path, mark)
            self._marks[mark.key] = mark
            self._read = _stamp(path)
            self._write_collection()
        except (OSError, DataError) as error:
            with suppress(OSError, DataError):
                _shortened(path, before)
            self._read = NEVER
            with suppress(OSError, DataError):
                self._read_on()
                self._write_collection()  # some of the tables may have the row
            raise _not_kept(self.folder, error) from error

    # The collection

    def _path_of(self, region: Region) -> str:
        """The clip's file, from the folder: the sound itself where it is short, else a window that is cut from it."""
        path = relative_path(region.path, self.folder)
        if region.whole and _can_stand_in_csv(path):
            return path
        sounds = self.folder / SOUNDS
        kept = next(sounds.glob(f"{region.clip_id}.*"), None)
        if kept is None:
            sounds.mkdir(exist_ok=True)
            try:
                kept = self._cut(region.path, region.start_s, region.end_s, sounds / f"{region.clip_id}.wav")
            except DataError as error:
                raise (_not_kept(self.folder, error) if "cannot be written" in str(error) else error) from error
        return relative_path(kept, self.folder)

    def _write_collection(self) -> None:
        """Makes the tables of the collection from the history; clips before captions before ratings."""
        marks = [mark for mark in self._marks.values() if mark.rating]
        owners = {caption: _best(each) for caption, each in _by_text(marks).items()}
        captioned = set(owners.values())
        clips = {mark.clip_id: mark for mark in marks}
        first = {mark.text.casefold(): mark.text for mark in reversed(marks)}
        Collection(
            self.folder,
            [
                Clip(clip, mark.path, SPLIT if clip in captioned else SPLIT + LISTS, mark.group)
                for clip, mark in clips.items()
            ],
            [Caption(_caption_id(text), owner, first[text]) for text, owner in owners.items()],
            [_rating(mark) for mark in marks],
            name=f"ratings of {self.folder.resolve().parent.name}",
            about={"about": "a listener's own ratings of what earmark's search found; made from history.csv"},
        ).write()


# The history on disk


class Version(NamedTuple):
    """What tells that a file is as it was."""

    inode: int
    size: int
    mtime_ns: int


NEVER = Version(-1, -1, -1)


def _stamp(path: Path) -> Version | None:
    """None where the file is not there."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotKeptError(f"{path}: cannot be read ({error.strerror}).") from error
    return Version(found.st_ino, found.st_size, found.st_mtime_ns)


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a history, none where there is none. Raises `NotKeptError` where it is no table of ours."""
    if not path.exists() or not path.stat().st_size:
        return []
    try:
        return [row.cells for row in read_table(path, COLUMNS)[1]]
    except DataError as error:
        raise NotKeptError(str(error)) from error


def _in_our_form(path: Path) -> None:
    """Writes a history anew that a spreadsheet has saved with other columns or separators: a row that is added fits."""
    head = (",".join(COLUMNS) + "\n").encode()
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(head)) == head:
                return
        write_table(path, COLUMNS, _rows(path))


def _append(path: Path, mark: Mark) -> None:
    """Adds a row, and returns once the disk has it."""
    line = _line(asdict(mark))
    with path.open("ab+") as file:
        if not file.tell():
            line = ",".join(COLUMNS) + "\n" + line
        else:
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else "\n" + line  # a row that was cut by a power failure
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _shortened(path: Path, size: int) -> None:
    """Takes what was added out of a history."""
    with path.open("rb+") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _not_kept(folder: Path, error: OSError | DataError) -> NotKeptError:
    if isinstance(error, NotKeptError):
        return error
    reason = f"{folder}: cannot be written ({error.strerror})." if isinstance(error, OSError) else str(error)
    return NotKeptError(f"{reason} Ratings are not kept: make room, or name another --ratings.")


def _plain(rating: float) -> str:
    """The rating as `plain_number` reads it: no sign, no exponent, three digits behind the point at most."""
    return f"{abs(rating):.3f}".rstrip("0").rstrip(".")


def _line(cells: Mapping[str, str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([cells[name] for name in COLUMNS])
    return out.getvalue()


def _is_sound(mark: Mark) -> bool:
    """Whether the row is whole and says something."""
    rating = mark.rating == "" or (mark.path and not rating_fault(asdict(mark)))
    whole = mark.rated_at.endswith("Z") and not any(is_blank(each) for each in (mark.clip_id, mark.rater_id, mark.text))
    return bool(rating) and whole


def _can_stand_in_csv(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path.isprintable()


def _by_text(marks: list[Mark]) -> dict[str, list[Mark]]:
    found: dict[str, list[Mark]] = {}
    for mark in marks:
        found.setdefault(mark.text.casefold(), []).append(mark)
    return found


def _best(marks: list[Mark]) -> str:
    """The clip whose mean rating is highest; of equal ones that which was rated first."""
    ratings: dict[str, list[float]] = {}
    for mark in marks:
        ratings.setdefault(mark.clip_id, []).append(float(mark.rating))
    return max(ratings, key=lambda clip: sum(ratings[clip]) / len(ratings[clip]))


def _caption_id(text: str) -> str:
    return "q-" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _rating(mark: Mark) -> Rating:
    return Rating(
        caption_id=_caption_id(mark.text.casefold()),
        clip_id=mark.clip_id,
        rating=float(mark.rating),
        rater_id=mark.rater_id,
        played_s=float(mark.played_s) if mark.played_s else None,
        stratum=mark.stratum,
        more={name: getattr(mark, name) for name in SHOWN_COLUMNS},
    )
