"""SQLite and PostgreSQL: their addresses, how each is opened, waited for and emptied of what was deleted."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

from earmark.collect.tables import TABLES
from earmark.errors import ConfigError, install

BUSY_S = 20.0
"""How long a process waits for another one's transaction."""
POOL = 16
"""Connections that are kept open."""


def url_of(place: str | Path) -> URL:
    """The address of a file, or of what a URL names. Raises `ConfigError` on a URL of another kind."""
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


HARMLESS = {
    *("host", "hostaddr", "port", "dbname", "user", "application_name", "connect_timeout", "target_session_attrs"),
    *("sslmode", "sslrootcert", "sslcert", "service", "gssencmode", "channel_binding", "client_encoding"),
}
"""What of a URL's query is shown; of all else, which may be a secret, only that it is there."""


def in_words(url: URL) -> str:
    """The URL without a secret."""
    shown = {name: value if name in HARMLESS else "***" for name, value in url.query.items()}
    url = url.set(drivername=url.get_backend_name(), query=shown)
    return url.render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def without_secrets(said: str, url: URL) -> str:
    """What a driver said, where it repeats a secret of the URL without that."""
    given = [url.password, *(value for name, value in url.query.items() if name not in HARMLESS)]
    for each in given:
        for secret in (each,) if isinstance(each, str) else each or ():
            said = said.replace(secret, "***") if secret else said
    return said


Mode = Literal["", "mode=ro", "mode=ro&immutable=1"]
"""Of SQLite: to write, to read beside a program that may write, to read a file that nobody writes."""


def ways_to_read(path: Path, beside: Path) -> Iterator[Mode]:
    """How a file can be read that could not be opened to write.

    Immutable, SQLite passes over what lies beside the file: answers would be missing where something does.
    """
    if path.is_file():
        yield "mode=ro"
        if not beside.exists() or not beside.stat().st_size:
            yield "mode=ro&immutable=1"


def wait_for(connection: Connection, seconds: float) -> None:
    """Has the database wait so long for other processes, from here on in this connection."""
    raw: Any = connection.connection.dbapi_connection
    setting = "PRAGMA busy_timeout" if connection.dialect.name == "sqlite" else "SET lock_timeout"
    raw.execute(f"{setting} = {max(1, round(seconds * 1000))}")  # 0 would be for ever


def sqlite(url: URL, mode: Mode = "") -> Engine:
    """Of a file; a transaction begins as the option `begin` of its connection says."""
    to_read: dict[str, Any] = {}
    if mode:
        address = f"file:{quote(str(Path(str(url.database)).absolute()))}?{mode}"
        to_read = {"creator": lambda: sqlite3.connect(address, uri=True, check_same_thread=False)}
    engine = create_engine(
        url, poolclass=QueuePool, pool_size=POOL, max_overflow=-1, connect_args={"timeout": BUSY_S}, **to_read
    )

    @event.listens_for(engine, "connect")
    def prepare(raw: Any, _: Any) -> None:
        raw.isolation_level = None  # or the driver begins transactions where it likes
        if not mode:
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


def postgresql(url: URL) -> Engine:
    """Of a server. Raises `ConfigError` where its driver is not installed."""
    try:
        return create_engine(url, pool_size=POOL, max_overflow=POOL, pool_pre_ping=True)
    except ImportError as error:
        raise ConfigError(f"PostgreSQL needs psycopg. Install it: {install('postgres')}.") from error


def wiped(connection: Connection, wait_s: float) -> bool:
    """Whether PostgreSQL wrote its tables anew, without what was deleted, also where it counts their values."""
    since = int(connection.exec_driver_sql("SELECT txid_current()").scalar_one())
    older = text(
        "SELECT count(*) FROM pg_stat_activity WHERE age(backend_xmin) > age(CAST(CAST(:since AS text) AS xid))"
    ).bindparams(since=str(since % (1 << 32)))
    until = time.monotonic() + wait_s
    while connection.execute(older).scalar():  # who began before still sees it: it would be kept
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    for table in (*TABLES.tables, "pg_statistic"):
        connection.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {table}")
    return True
