"""Where a study's answers are kept: SQLite, or PostgreSQL by its URL; the same tables and statements on both.

`writing` is one transaction: when it ends the disk has all of it, whatever happens to the process then; when it fails
nothing of it is kept. On SQLite one thread of a process writes at a time, and processes wait for each other.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from earmark.collect.migrations import migrate
from earmark.errors import ConfigError, DataError

BUSY_S = 20.0
"""How long a process waits for another one's transaction."""
DATABASE = "study.db"
"""The store in a study's folder."""
POOL = 16
"""Connections that are kept open."""


class RefusedError(DataError):
    """What is not done for whoever asked, in one line that they may read."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status
        """Of HTTP."""


class StoreError(RefusedError):
    """The database could not do it, and nothing of it is kept."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(message, status)


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
        if self.low is None and self.high is None:
            return None
        return (self.low is None or self.rating >= self.low) and (self.high is None or self.rating <= self.high)


TABLES = MetaData()
"""As `migrations` makes them (a test compares the two)."""
gate = Table(
    "gate",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("study", Text),
    Column("rehearsal", Integer),
)
invites = Table(
    "invites",
    TABLES,
    Column("token_hash", Text, primary_key=True),
    Column("label", Text, nullable=False),
    Column("made_at", Text, nullable=False),
)
raters = Table(
    "raters",
    TABLES,
    Column("rater_id", Text, primary_key=True),
    Column("invite", Text, ForeignKey("invites.token_hash")),
    Column("participant", Text),
    Column("session", Text),
    Column("entered_at", Text, nullable=False),
    Column("consented_at", Text),
    Column("sound_at", Text),
    Column("sound_passed", Integer),
    Column("qualified", Integer),
    Column("expected", Integer, nullable=False),
    Column("completed_at", Text),
    Column("code", Text),
    Column("forgotten_at", Text),
)
keys = Table(
    "keys",
    TABLES,
    Column("key_hash", Text, primary_key=True),
    Column("rater_id", Text, ForeignKey("raters.rater_id"), nullable=False),
    Column("made_at", Text, nullable=False),
)
platform_ids = Table(
    "platform_ids",
    TABLES,
    Column("rater_id", Text, ForeignKey("raters.rater_id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
given = Table(
    "given",
    TABLES,
    Column("rater_id", Text, ForeignKey("raters.rater_id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("page_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("caption_id", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("given_at", Text, nullable=False),
    Column("submitted_at", Text),
)
items = Table(
    "items",
    TABLES,
    Column("item_id", Text, primary_key=True),
    Column("rater_id", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("clip_id", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("group", Text, nullable=False),
    Column("stratum", Text, nullable=False),
    Column("probability", Float),
    Column("low", Float),
    Column("high", Float),
    Column("heard", Float, nullable=False),
    Column("changes", Integer, nullable=False),
)
heard = Table(
    "heard",
    TABLES,
    Column("item_id", Text, ForeignKey("items.item_id"), primary_key=True),
    Column("view", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("covered", Text, nullable=False),
    Column("played_s", Float, nullable=False),
    Column("plays", Integer, nullable=False),
    Column("seeks", Integer, nullable=False),
    Column("first_play_s", Float),
)
answers = Table(
    "answers",
    TABLES,
    Column("item_id", Text, ForeignKey("items.item_id"), primary_key=True),
    Column("change", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("view", Text, nullable=False),
    Column("rating", Float, nullable=False),
    Column("rated_s", Float, nullable=False),
    Column("given_at", Text, nullable=False),
)


class Store:
    """A study's database, safe under several threads and several processes."""

    def __init__(self, engine: Engine, place: str) -> None:
        """Use `Store.open`."""
        self.place = place
        """The database in words, without a password."""
        self._engine = engine
        self.is_file = engine.dialect.name == "sqlite"
        self._writes = engine.execution_options(begin="BEGIN IMMEDIATE")
        outside: dict[str, str] = {"begin": ""} if self.is_file else {"isolation_level": "AUTOCOMMIT"}
        self._outside = engine.execution_options(**outside)
        self._lock = threading.Lock() if self.is_file else nullcontext()

    @classmethod
    def open(cls, place: str | Path) -> Store:
        """The database of a file, or of a URL (`postgresql://...`), made or migrated where it needs to be.

        Raises `ConfigError` on a URL of another kind, `DataError` (`StoreError`) where it cannot be opened or is newer
        than this program.
        """
        url = _url(place)
        words = str(url.database) if url.drivername == "sqlite" else url.render_as_string(hide_password=True)
        store = cls(_sqlite(url) if url.drivername == "sqlite" else _postgresql(url), words)
        try:
            with store.writing() as connection:
                migrate(connection, words)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Ends all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read by."""
        with self._told(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection whose changes are kept together, and durably, when the block ends; none when it raises."""
        with self._lock, self._told(), self._writes.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def giving(self) -> Iterator[Connection]:
        """`writing`, with nobody else giving places or pages at the same time."""
        with self.writing() as connection:
            connection.execute(select(gate.c.id).with_for_update())
            yield connection

    def claim(self, study: str, *, rehearsal: bool = False) -> None:
        """Takes the store for a study's answers, or for those of a rehearsal of it; "" is a study without an id.

        Raises `DataError` where it holds those of another study, or of people where a rehearsal is to be kept.
        """
        asked = select(gate.c.study, gate.c.rehearsal)
        with self.reading() as connection:
            known = connection.execute(asked).one()
        if known.study is None:
            with self.giving() as connection:
                values = {"study": study, "rehearsal": int(rehearsal)}
                connection.execute(update(gate).where(gate.c.study.is_(None)).values(values))
                known = connection.execute(asked).one()
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
            with self._lock, self._outside.connect() as connection:
                if self.is_file:
                    connection.exec_driver_sql("VACUUM")  # secure_delete alone leaves copies where pages were split
                    busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
                    return not busy
                for table in TABLES.tables:
                    connection.exec_driver_sql(f"VACUUM {table}")
                return True
        except SQLAlchemyError:
            return False

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns the database's errors into one line each."""
        try:
            yield
        except IntegrityError as error:
            raise StoreError(f"{self.place}: changed by someone else at this moment. Try again.", 409) from error
        except SQLAlchemyError as error:
            raise StoreError(f"{self.place}: {_reason(error)}") from error


def store_of(folder: Path) -> Path:
    """Where a study's answers are kept unless another place is named."""
    return folder / DATABASE


def _url(place: str | Path) -> URL:
    if isinstance(place, Path) or "://" not in place:
        return URL.create("sqlite", database=str(place))
    try:
        url = make_url(place)
    except (ArgumentError, ValueError) as error:
        raise ConfigError("the store's URL cannot be read; expected postgresql://USER@HOST/DATABASE.") from error
    if url.drivername == "sqlite" and url.database:
        return url
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError(f"a store of {url.drivername!r}; expected a file or postgresql://USER@HOST/DATABASE.")


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, pool_size=POOL, max_overflow=-1, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def prepare(raw: Any, _: Any) -> None:
        raw.isolation_level = None  # or the driver begins transactions where it likes
        _write_ahead(raw)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
            raw.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # a transaction that begins by reading and then writes fails at once where another wrote in between
        if statement := connection.get_execution_options().get("begin", "BEGIN"):
            connection.exec_driver_sql(statement)

    return engine


def _write_ahead(raw: sqlite3.Connection) -> None:
    """Has SQLite write ahead, so that reading and writing go on beside each other.

    For this change alone SQLite does not wait for others, who make it at the same moment on a new file.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            raw.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _postgresql(url: URL) -> Engine:
    try:
        return create_engine(url, pool_size=POOL, max_overflow=POOL, pool_pre_ping=True)
    except ImportError as error:
        raise ConfigError("PostgreSQL needs psycopg. Install earmark[serve].") from error


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
    "onnection": "Check the URL, and that the server runs.",
}
"""By a part of what the database says."""
