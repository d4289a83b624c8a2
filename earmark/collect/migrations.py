"""The tables of a study's database, as numbered steps from nothing to today.

Step n makes version n of version n - 1, by SQL that SQLite and PostgreSQL both read. A step that has been released is
never changed: a new one is added. Times are UTC, ISO 8601 to the millisecond (`2026-01-31T09:00:00.000Z`), so that they
sort as text; ids and secrets are random.
"""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from earmark.errors import DataError

STEPS: list[tuple[str, ...]] = [
    (
        # one row: who holds it (SELECT ... FOR UPDATE) gives places and pages, one after another
        "CREATE TABLE gate (id INTEGER PRIMARY KEY, study TEXT, rehearsal INTEGER)",
        "INSERT INTO gate (id) VALUES (1)",
        """CREATE TABLE invites (
            token_hash TEXT PRIMARY KEY,
            label TEXT NOT NULL,
            made_at TEXT NOT NULL
        )""",
        """CREATE TABLE raters (
            rater_id TEXT PRIMARY KEY,
            invite TEXT UNIQUE REFERENCES invites (token_hash),
            participant TEXT UNIQUE,
            session TEXT,
            entered_at TEXT NOT NULL,
            consented_at TEXT,
            sound_at TEXT,
            sound_passed INTEGER,
            qualified INTEGER,
            expected INTEGER NOT NULL,
            completed_at TEXT,
            code TEXT UNIQUE,
            forgotten_at TEXT
        )""",
        """CREATE TABLE keys (
            key_hash TEXT PRIMARY KEY,
            rater_id TEXT NOT NULL REFERENCES raters (rater_id) ON DELETE CASCADE,
            made_at TEXT NOT NULL
        )""",
        "CREATE INDEX keys_of_rater ON keys (rater_id)",
        """CREATE TABLE platform_ids (
            rater_id TEXT NOT NULL REFERENCES raters (rater_id) ON DELETE CASCADE,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (rater_id, name)
        )""",
        """CREATE TABLE given (
            rater_id TEXT NOT NULL REFERENCES raters (rater_id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            page_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            caption_id TEXT NOT NULL,
            text TEXT NOT NULL,
            given_at TEXT NOT NULL,
            submitted_at TEXT,
            PRIMARY KEY (rater_id, number),
            UNIQUE (rater_id, page_id)
        )""",
        "CREATE INDEX given_of_page ON given (kind, page_id)",
        """CREATE TABLE items (
            item_id TEXT PRIMARY KEY,
            rater_id TEXT NOT NULL,
            number INTEGER NOT NULL,
            position INTEGER NOT NULL,
            clip_id TEXT NOT NULL,
            path TEXT NOT NULL,
            "group" TEXT NOT NULL,
            stratum TEXT NOT NULL,
            probability DOUBLE PRECISION,
            low DOUBLE PRECISION,
            high DOUBLE PRECISION,
            heard DOUBLE PRECISION NOT NULL,
            changes INTEGER NOT NULL,
            UNIQUE (rater_id, number, position),
            FOREIGN KEY (rater_id, number) REFERENCES given (rater_id, number) ON DELETE CASCADE
        )""",
        """CREATE TABLE heard (
            item_id TEXT NOT NULL REFERENCES items (item_id) ON DELETE CASCADE,
            view TEXT NOT NULL,
            number INTEGER NOT NULL,
            covered TEXT NOT NULL,
            played_s DOUBLE PRECISION NOT NULL,
            plays INTEGER NOT NULL,
            seeks INTEGER NOT NULL,
            first_play_s DOUBLE PRECISION,
            PRIMARY KEY (item_id, view)
        )""",
        """CREATE TABLE answers (
            item_id TEXT NOT NULL REFERENCES items (item_id) ON DELETE CASCADE,
            change INTEGER NOT NULL,
            key TEXT NOT NULL,
            view TEXT NOT NULL,
            rating DOUBLE PRECISION NOT NULL,
            rated_s DOUBLE PRECISION NOT NULL,
            given_at TEXT NOT NULL,
            PRIMARY KEY (item_id, change),
            UNIQUE (item_id, key)
        )""",
    ),
    # its sound could not be played when it was asked: its rating is not
    ("ALTER TABLE items ADD COLUMN silent INTEGER NOT NULL DEFAULT 0",),
]
"""Each a list of statements."""
VERSION_TABLE = "earmark_schema"
LOCK = 0x6561726D61726B
"""What processes that migrate on PostgreSQL wait for each other by ("earmark")."""


def migrate(connection: Connection, place: str) -> tuple[int, int]:
    """Brings the tables to today's version, within the transaction that `connection` is in: from and to which version.

    Raises `DataError` where the database is newer than this program, or another program's.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    before = _version(connection, place)
    newest = len(STEPS)
    if before > newest:
        raise DataError(
            f"{place}: version {before} of the tables; this earmark knows up to {newest}. Use the newer earmark."
        )
    for step in STEPS[before:]:
        for statement in step:
            connection.exec_driver_sql(statement)
    if before < newest:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version = :version"), {"version": newest})
    return before, newest


def is_current(connection: Connection) -> bool:
    """Whether the tables are of today's version: nothing is to be migrated."""
    if VERSION_TABLE not in inspect(connection).get_table_names():
        return False
    return list(connection.execute(text(f"SELECT version FROM {VERSION_TABLE}")).scalars()) == [len(STEPS)]


def _version(connection: Connection, place: str) -> int:
    """The version of the tables; 0, and the table that tells it, in an empty database."""
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        found = connection.execute(text(f"SELECT version FROM {VERSION_TABLE}")).scalars().all()
        if len(found) != 1 or not isinstance(found[0], int):
            raise DataError(f"{place}: {VERSION_TABLE} holds {found}; expected one version. Restore a copy of it.")
        return found[0]
    if tables:
        raise DataError(
            f"{place}: holds tables of another program ({', '.join(sorted(tables)[:3])}); expected an empty database, "
            "or a study's. Name another one."
        )
    connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version INTEGER NOT NULL)")
    connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} (version) VALUES (0)")
    return 0
