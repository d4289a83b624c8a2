"""Where a study's answers are kept: SQLite, or PostgreSQL by its URL; the same tables and statements on both.

`writing` is one transaction: when it ends the disk has all of it, whatever happens to the process then; when it fails
nothing of it is kept. On SQLite one thread of a process writes at a time, and processes wait for each other. A store
of today's version is opened without a write, so that one that cannot be written can still be read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    Connection,
    Engine,
    QueuePool,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from earmark.collect import databases
from earmark.collect.migrations import is_current, migrate
from earmark.collect.tables import gate
from earmark.errors import DataError

RATERS_S = 5.0
"""How long others' transactions are waited for while a rater waits for the answer; else `databases.BUSY_S`."""
CLOSING_S = 0.5
"""How long they are when the process ends."""
DATABASE = "study.db"
"""The store in a study's folder."""


class RefusedError(DataError):
    """What is not done for whoever asked, in one line that they may read."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status
        """Of HTTP."""


class StoreError(RefusedError):
    """The database could not do it, and nothing of it is kept.

    The message tells the owner the place and the reason; `plain` is what anybody may read.
    """

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(message, status)

    @property
    def plain(self) -> str:
        """For who asked for a change."""
        if self.status == 409:
            return "Someone else changed this at the same moment. Try again."
        return "Your answer could not be stored just now. Try again."

    @property
    def cannot_write(self) -> bool:
        """Whether it is that this user, on this disk, may only read."""
        return any(part in str(self) for part in ("readonly", "read-only", "permission denied", "unable to open"))


@dataclass(frozen=True, slots=True)
class GivenRating:
    """One answer of one rater, with how it came about."""

    rater_id: str
    page_id: str
    kind: str
    """task, check or qualification."""
    page_number: int
    """Which of the rater's pages it was, from 1."""
    position: int
    """Place on the page, from 1."""
    caption_id: str
    text: str
    clip_id: str
    path: str
    group: str
    stratum: str
    probability: float | None
    low: float | None
    """The known answer lies from here ..."""
    high: float | None
    """... to here, 0–100; None where it has no such end."""
    rating: float
    """0–100."""
    rated_s: float
    """When it was given, in seconds since the page was shown."""
    given_at: str
    """UTC, ISO 8601."""
    history: int
    """How many answers the rater had given to the same item before."""
    last: bool
    """Whether it is the one that counts."""
    heard: float
    """Share of the clip that was heard, 0–1."""
    played_s: float
    """Seconds that the clip sounded, over all loads of the page."""
    plays: int
    seeks: int
    first_play_s: float | None
    """When the clip was first played, in seconds since the page was shown."""
    submitted: bool
    """Whether the page was submitted."""

    @property
    def right(self) -> bool | None:
        """Whether it is the known answer; None where any answer is right."""
        return is_right(self.rating, self.low, self.high)


def is_right(rating: float, low: float | None, high: float | None) -> bool | None:
    """Whether a rating lies within a known answer, ends included; None where that has no end."""
    if low is None and high is None:
        return None
    return (low is None or rating >= low) and (high is None or rating <= high)


class Store:
    """A study's database, safe under several threads and several processes."""

    def __init__(self, engine: Engine, place: str) -> None:
        """Use `Store.open`."""
        self.place = place
        """The database in words, without a password."""
        self.busy_s: float | None = None
        """How long others are waited for; None: `databases.BUSY_S`."""
        self._engine = engine
        self.is_file = engine.dialect.name == "sqlite"
        self._writes = engine.execution_options(begin="BEGIN IMMEDIATE")
        outside: dict[str, str] = {"begin": ""} if self.is_file else {"isolation_level": "AUTOCOMMIT"}
        self._outside = engine.execution_options(**outside)
        self._lock = threading.Lock()

    @classmethod
    def open(cls, place: str | Path) -> Store:
        """The database of a file, or of a URL (`postgresql://...`), made or migrated where it needs to be.

        One that cannot be written is opened to be read where its tables are today's. Raises `ConfigError` on a URL of
        another kind, `DataError` (`StoreError`) where it cannot be opened or is newer than this program.
        """
        url = databases.url_of(place)
        if url.drivername != "sqlite":
            return cls(databases.postgresql(url), databases.in_words(url))._made()
        words = str(url.database)
        try:
            return cls(databases.sqlite(url), words)._made()
        except StoreError as error:
            if not error.cannot_write:
                raise
            beside = Path(f"{words}-wal")
            for mode in databases.ways_to_read(Path(words), beside):
                with suppress(DataError):
                    return cls(databases.sqlite(url, mode), words)._made()
            if Path(words).is_file() and beside.is_file() and beside.stat().st_size:
                raise StoreError(
                    f"{error} {beside} holds answers too: both can be read where both are written."
                ) from error
            raise

    def _made(self) -> Store:
        """Itself, with today's tables."""
        try:
            with self.reading() as connection:
                current = is_current(connection)
            if not current:
                with self.writing() as connection:
                    migrate(connection, self.place)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends all connections; a file is whole then without those that SQLite keeps beside it."""
        pool = self._engine.pool
        if self.is_file and isinstance(pool, QueuePool) and pool.checkedin():  # else it was never opened
            with suppress(SQLAlchemyError, StoreError), self._alone(CLOSING_S), self._outside.connect() as connection:
                databases.wait_for(connection, CLOSING_S)
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read by."""
        with self._told(), self._patient(self._engine, self._wait_s) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection whose changes are kept together, and durably, when the block ends; none when it raises."""
        with (
            self._alone(self._wait_s) as left_s,
            self._told(),
            self._patient(self._writes, left_s) as connection,
            connection.begin(),
        ):
            yield connection

    def check_writable(self) -> None:
        """Raises `StoreError` where it can only be read."""
        with self.giving() as connection:  # SQLite lets a transaction begin all the same
            connection.execute(update(gate).values(rehearsal=gate.c.rehearsal))

    @property
    def _wait_s(self) -> float:
        return databases.BUSY_S if self.busy_s is None else self.busy_s

    @contextmanager
    def _alone(self, wait_s: float) -> Iterator[float]:
        """The seconds that are left to wait, in the one thread that may write to a file."""
        if not self.is_file:
            yield wait_s
            return
        until = time.monotonic() + wait_s
        if not self._lock.acquire(timeout=wait_s):
            raise StoreError(f"{self.place}: database is locked, by others of this process. Nothing was kept.")
        try:
            yield max(0.0, until - time.monotonic())
        finally:
            self._lock.release()

    @contextmanager
    def _patient(self, engine: Engine, wait_s: float) -> Iterator[Connection]:
        """A connection that waits so long for other processes."""
        with engine.connect() as connection:
            databases.wait_for(connection, wait_s)
            yield connection

    @contextmanager
    def giving(self) -> Iterator[Connection]:
        """`writing`, with nobody else giving places or pages at the same time."""
        with self.writing() as connection:
            connection.execute(select(gate.c.id).with_for_update())
            yield connection

    def claim(self, study: str, *, rehearsal: bool = False) -> None:
        """Takes the store for a study's answers, or for those of a rehearsal of it; "" is a study without an id.

        A store that can only be read is not taken, and may be read. Raises `DataError` where it holds those of another
        study, or of people where a rehearsal is to be kept.
        """
        asked = select(gate.c.study, gate.c.rehearsal)
        with self.reading() as connection:
            known = connection.execute(asked).one()
        if known.study is None:
            try:
                with self.giving() as connection:
                    values = {"study": study, "rehearsal": int(rehearsal)}
                    connection.execute(update(gate).where(gate.c.study.is_(None)).values(values))
                    known = connection.execute(asked).one()
            except StoreError as error:
                if not error.cannot_write:
                    raise
        if study and known.study and known.study != study:
            raise DataError(f"{self.place}: holds the answers of another study. Name another store.")
        if bool(known.rehearsal) != rehearsal:
            whose = "of a rehearsal" if known.rehearsal else "of people"
            raise DataError(f"{self.place}: holds answers {whose}. Name another store.")

    @property
    def of_rehearsal(self) -> bool:
        """Whether simulated listeners gave the answers."""
        with self.reading() as connection:
            return bool(connection.execute(select(gate.c.rehearsal)).scalar())

    def wipe(self) -> bool:
        """Whether nothing of what was deleted is left in the database's files; not where others hold them just now.

        PostgreSQL's log of changes keeps it until the server recycles that.
        """
        try:
            with self._alone(self._wait_s) as left_s, self._patient(self._outside, left_s) as connection:
                if not self.is_file:
                    return databases.wiped(connection, self._wait_s)
                connection.exec_driver_sql("VACUUM")  # secure_delete alone leaves copies where pages were split
                busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
                return not busy
        except (SQLAlchemyError, StoreError):
            return False

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns the database's errors into one line each."""
        try:
            yield
        except IntegrityError as error:
            raise StoreError(f"{self.place}: changed by someone else at this moment. Try again.", 409) from error
        except SQLAlchemyError as error:
            raise StoreError(f"{self.place}: {databases.without_secrets(_reason(error), self._engine.url)}") from error


def store_of(folder: Path) -> Path:
    """Where a study's answers are kept unless another place is named."""
    return folder / DATABASE


def _reason(error: SQLAlchemyError) -> str:
    """The database's own words, in one line, and what to do."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
    advice = next((words for part, words in ADVICE.items() if part in said), "")
    return f"{said}. Nothing was kept.{' ' if advice else ''}{advice}"


ADVICE = {
    "disk is full": "Make room on the disk.",
    "readonly": "Let this user write the file and its folder.",
    "unable to open": "Check the path.",
    "not a database": "Name another file.",
    "locked": "Another program holds it: close that, or try again.",
    "lock timeout": "Another program holds it: close that, or try again.",
    "onnection": "Check the URL, and that the server runs.",
}
"""By a part of what the database says."""
