"""A study's database: its migrations, and that what was acknowledged is there. The same on SQLite and PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import MetaData, inspect, text
from test_flow import GivenAnswer, Heard, a_study, at_once, begin, refused

from earmark.collect import databases, migrations
from earmark.collect.entry import hashed
from earmark.collect.flow import Flow
from earmark.collect.store import RATERS_S, Store, StoreError, store_of
from earmark.collect.tables import TABLES
from earmark.errors import ConfigError, DataError

pytest_plugins = ["postgres"]

VERSION_1 = """
CREATE TABLE earmark_schema (version INTEGER NOT NULL);
INSERT INTO earmark_schema (version) VALUES (1);
CREATE TABLE gate (id INTEGER PRIMARY KEY, study TEXT, rehearsal INTEGER);
INSERT INTO gate (id) VALUES (1);
CREATE TABLE invites (token_hash TEXT PRIMARY KEY, label TEXT NOT NULL, made_at TEXT NOT NULL);
CREATE TABLE raters (
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
);
CREATE TABLE keys (
    key_hash TEXT PRIMARY KEY,
    rater_id TEXT NOT NULL REFERENCES raters (rater_id) ON DELETE CASCADE,
    made_at TEXT NOT NULL
);
CREATE INDEX keys_of_rater ON keys (rater_id);
CREATE TABLE platform_ids (
    rater_id TEXT NOT NULL REFERENCES raters (rater_id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (rater_id, name)
);
CREATE TABLE given (
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
);
CREATE INDEX given_of_page ON given (kind, page_id);
CREATE TABLE items (
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
);
CREATE TABLE heard (
    item_id TEXT NOT NULL REFERENCES items (item_id) ON DELETE CASCADE,
    view TEXT NOT NULL,
    number INTEGER NOT NULL,
    covered TEXT NOT NULL,
    played_s DOUBLE PRECISION NOT NULL,
    plays INTEGER NOT NULL,
    seeks INTEGER NOT NULL,
    first_play_s DOUBLE PRECISION,
    PRIMARY KEY (item_id, view)
);
CREATE TABLE answers (
    item_id TEXT NOT NULL REFERENCES items (item_id) ON DELETE CASCADE,
    change INTEGER NOT NULL,
    key TEXT NOT NULL,
    view TEXT NOT NULL,
    rating DOUBLE PRECISION NOT NULL,
    rated_s DOUBLE PRECISION NOT NULL,
    given_at TEXT NOT NULL,
    PRIMARY KEY (item_id, change),
    UNIQUE (item_id, key)
);
INSERT INTO raters (rater_id, participant, session, entered_at, consented_at, sound_at, expected)
VALUES ('r0123456789abcdef', 'PROLIFIC_PID=p1', 'SESSION_ID=s1', '2026-01-31T08:00:00.000Z',
        '2026-01-31T08:01:00.000Z', '2026-01-31T08:02:00.000Z', 4);
INSERT INTO platform_ids (rater_id, name, value) VALUES ('r0123456789abcdef', 'PROLIFIC_PID', 'p1');
INSERT INTO given (rater_id, number, page_id, kind, caption_id, text, given_at)
VALUES ('r0123456789abcdef', 1, 'task-0', 'task', 'c-task-0', 'Words 0', '2026-01-31T08:02:00.000Z');
INSERT INTO items (item_id, rater_id, number, position, clip_id, path, "group", stratum, probability, heard, changes)
VALUES ('i1', 'r0123456789abcdef', 1, 1, 'task-0-1', 'task/0-1.wav', 'TN', 'top', 0.5, 1.0, 2),
       ('i2', 'r0123456789abcdef', 1, 2, 'task-0-0', 'task/0-0.wav', 'TP', 'top', 0.5, 0.25, 0);
INSERT INTO heard (item_id, view, number, covered, played_s, plays, seeks, first_play_s)
VALUES ('i1', 'v', 1, '[[0, 10]]', 12.5, 2, 0, 1.25), ('i2', 'v', 1, '[[0, 2.5]]', 2.5, 1, 1, 20);
INSERT INTO answers (item_id, change, key, view, rating, rated_s, given_at)
VALUES ('i1', 1, 'a', 'v', 80, 15, '2026-01-31T08:02:15.000Z'),
       ('i1', 2, 'b', 'v', 70.5, 16, '2026-01-31T08:02:16.000Z');
"""
"""A study in the middle, as version 1 kept it. Never changed: people have such files."""


def by_sql(place: str, statements: str) -> None:
    """Runs the statements without a Store."""
    if "://" not in place:
        with sqlite3.connect(place) as connection:
            connection.executescript(statements)
        connection.close()
        return
    import psycopg

    with psycopg.connect(place) as connection:
        connection.execute(statements)


@pytest.fixture
def opened(place):
    """A store on an empty database."""
    store = Store.open(place)
    yield store
    store.close()


# Migrations


def test_the_tables_are_as_the_statements_know_them(opened):
    found = MetaData()
    with opened.reading() as connection:
        found.reflect(connection)
    assert set(found.tables) == {*TABLES.tables, migrations.VERSION_TABLE}
    for name, table in TABLES.tables.items():
        there = found.tables[name]
        assert [column.name for column in there.columns] == [column.name for column in table.columns]
        for column in table.columns:
            assert there.c[column.name].nullable == column.nullable or column.primary_key, column
            assert there.c[column.name].type.python_type == column.type.python_type, column
        assert [column.name for column in there.primary_key] == [column.name for column in table.primary_key]


def test_a_database_of_version_1_goes_on(place, tmp_path):
    by_sql(place, VERSION_1)
    store = Store.open(place)
    flow = Flow(a_study(tmp_path, heard_share=0.8), store)
    rater = "r0123456789abcdef"
    assert flow.enter(platform={"PROLIFIC_PID": "p1", "SESSION_ID": "s1"})[0] == rater
    assert (flow.state(rater).step, flow.state(rater).number, flow.state(rater).pages) == ("task", 1, 4)
    assert [(i.item_id, i.rating, i.heard, i.played_s) for i in flow.page(rater, 1).items] == [
        ("i1", 70.5, 1.0, 12.5),
        ("i2", None, 0.25, 2.5),
    ]
    assert flow.heard(rater, "i2", Heard("w", [(2.5, 10)], 7.5), duration_s=10.0) == 1.0
    flow.answer(rater, "i2", GivenAnswer("c", "w", 3, 1.0))
    assert flow.submit(rater, 1).number == 2
    assert [(r.rating, r.history) for r in flow.ratings(history=True)] == [(80, 0), (70.5, 1), (3, 0)]
    with store.reading() as connection:
        assert connection.execute(text("SELECT version FROM earmark_schema")).scalars().all() == [len(migrations.STEPS)]
    store.close()


def test_version_1_is_what_the_first_step_makes(tmp_path, monkeypatch):
    by_sql(str(tmp_path / "golden.db"), VERSION_1)
    monkeypatch.setattr(migrations, "STEPS", migrations.STEPS[:1])
    Store.open(tmp_path / "made.db").close()
    schemas = []
    for name in ("golden.db", "made.db"):
        with sqlite3.connect(tmp_path / name) as connection:
            rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        connection.close()
        schemas.append([(name, re.sub(r"\s", "", sql or "")) for name, sql in rows])
    assert schemas[0] == schemas[1]


def test_a_newer_database_is_refused_in_one_line(place):
    Store.open(place).close()
    by_sql(place, "UPDATE earmark_schema SET version = 99")
    with pytest.raises(
        DataError, match=rf"version 99 .* knows up to {len(migrations.STEPS)}\. Use the newer earmark\.$"
    ):
        Store.open(place)
    by_sql(place, "DELETE FROM earmark_schema")
    with pytest.raises(DataError, match="expected one version"):
        Store.open(place)


def test_another_programs_database_is_refused_and_left_alone(place):
    by_sql(place, "CREATE TABLE recipes (id INTEGER)")
    with pytest.raises(DataError, match=r"another program \(recipes\)"):
        Store.open(place)
    by_sql(place, "INSERT INTO recipes VALUES (1)")
    with pytest.raises(DataError, match="another program"):
        Store.open(place)


NEXT_STEP = (
    "ALTER TABLE raters ADD COLUMN note TEXT",
    "UPDATE raters SET note = 'migrated'",
    "CREATE TABLE extra (id TEXT)",
)


def test_an_older_database_is_migrated(place, monkeypatch):
    by_sql(place, VERSION_1)
    newest = len(migrations.STEPS)
    monkeypatch.setattr(migrations, "STEPS", [*migrations.STEPS, NEXT_STEP])
    store = Store.open(place)
    with store.reading() as connection:
        assert connection.execute(text("SELECT note FROM raters")).scalars().all() == ["migrated"]
        assert connection.execute(text("SELECT version FROM earmark_schema")).scalars().all() == [newest + 1]
        assert connection.execute(text("SELECT count(*) FROM answers")).scalar() == 2
    store.close()
    monkeypatch.undo()
    with pytest.raises(DataError, match=f"version {newest + 1}"):
        Store.open(place)


def test_a_migration_that_fails_changes_nothing(place, monkeypatch):
    by_sql(place, VERSION_1)
    monkeypatch.setattr(migrations, "STEPS", [*migrations.STEPS[:1], NEXT_STEP, ("INSERT INTO nowhere VALUES (1)",)])
    with pytest.raises(StoreError, match="nowhere"):
        Store.open(place)
    monkeypatch.undo()
    store = Store.open(place)
    with store.reading() as connection:
        assert "extra" not in inspect(connection).get_table_names()
        assert "note" not in [column["name"] for column in inspect(connection).get_columns("raters")]
    store.close()


MIGRATE = """
import sys
from earmark.collect import migrations
from earmark.collect.store import Store
migrations.STEPS[1:] = [("ALTER TABLE raters ADD COLUMN note TEXT", "CREATE TABLE extra (id TEXT)")]
print("ready", flush=True)
sys.stdin.readline()
Store.open(sys.argv[1]).close()
"""


def test_two_processes_at_once_migrate_once(place):
    by_sql(place, VERSION_1)
    command = [sys.executable, "-c", MIGRATE, place]
    started = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in range(3)]
    for process in started:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0


def test_many_threads_open_an_empty_database(place):
    stores = at_once(*[lambda: Store.open(place)] * 12)
    assert {type(store) for store in stores} == {Store}
    for store in stores:
        store.close()


# What was acknowledged is there

KILLED = """
import json, os, random, signal, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from test_flow import a_study
from earmark.collect.flow import Flow, GivenAnswer
from earmark.collect.store import Store

place, study = sys.argv[1], a_study(Path(sys.argv[2]), tasks=40, raters_a_page=50, pages_a_rater=40)

def answer_on(out):
    flow = Flow(study, Store.open(place))
    while True:
        rater, _ = flow.enter()
        flow.consent(rater)
        state = flow.sound_checked(rater)
        while state.step == "task":
            for item in flow.page(rater, state.number).items:
                for change in range(2):
                    rating = random.randint(0, 1000) / 10
                    flow.answer(rater, item.item_id, GivenAnswer(f"k{change}", "v", rating, 1.0))
                    os.write(out, f"{rater} {state.number} {change} {rating}\\n".encode())
            state = flow.submit(rater, state.number)
            os.write(out, f"{rater} {state.number - 1} submitted\\n".encode())

for _ in range(10):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        answer_on(writing)
    os.close(writing)
    with open(reading, "rb", buffering=0) as told:
        for _ in range(random.randint(1, 60)):
            sys.stdout.buffer.write(told.readline())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while line := told.readline():  # it went on telling in the meantime
            sys.stdout.buffer.write(line)
"""


def test_no_acknowledged_answer_is_lost_when_the_process_is_killed(place, tmp_path):
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", KILLED, place, str(tmp_path), here]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stderr) == (0, "")
    store = Store.open(place)
    flow = Flow(a_study(tmp_path, tasks=40), store)
    lines = [line.split() for line in told.stdout.splitlines()]
    assert len(lines) >= 10
    kept = {(r.rater_id, r.page_number, r.history, r.rating) for r in flow.ratings(history=True)}
    submitted = {(r.rater_id, r.page_number) for r in flow.ratings() if r.submitted}
    for rater, number, *rest in lines:
        if rest == ["submitted"]:
            assert (rater, int(number)) in submitted
        else:
            assert (rater, int(number), int(rest[0]), float(rest[1])) in kept
    for rater in {line[0] for line in lines}:
        assert flow.state(rater).step == "task"  # and goes on where it was
    store.close()


def test_sqlite_writes_through(tmp_path):
    store = Store.open(tmp_path / "study.db")
    with store.writing() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "busy_timeout": 20_000,
    }
    store.busy_s = 5.0
    for opened in (store.reading, store.writing):
        with opened() as connection:
            assert 4_000 < connection.exec_driver_sql("PRAGMA busy_timeout").scalar() <= 5_000
    store.close()


# What cannot be kept


def test_a_transaction_is_kept_whole_or_not_at_all(opened):
    def invite_and(then) -> None:
        with opened.writing() as connection:
            connection.execute(text("INSERT INTO invites VALUES ('a', '', '')"))
            then(connection)

    with pytest.raises(ZeroDivisionError):
        invite_and(lambda connection: 1 / 0)
    again = text("INSERT INTO invites VALUES ('a', '', '')")
    with pytest.raises(StoreError, match="Try again") as caught:
        invite_and(lambda connection: connection.execute(again))
    assert caught.value.status == 409
    with opened.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM invites")).scalar() == 0


@pytest.mark.parametrize(("pragma", "said"), [("max_page_count=1", "full.*Make room"), ("query_only=1", "readonly")])
def test_a_disk_that_takes_no_more_keeps_nothing_half(tmp_path, pragma, said):
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path, tasks=200, pages_a_rater=200), store)
    rater = begin(flow)
    answer_page_without_clock(flow, rater, 1)
    with store.reading() as connection:
        connection.exec_driver_sql(f"PRAGMA {pragma}")
    with pytest.raises(StoreError, match=said) as caught:
        go_through_without_clock(flow, rater)  # until there is no room
    assert caught.value.status == 503
    assert "\n" not in str(caught.value)
    assert "Nothing was kept" in str(caught.value)
    store.close()
    again = Store.open(tmp_path / "study.db")
    after = Flow(flow.study, again)
    state = after.state(rater)
    assert state.step == "task"
    answer_page_without_clock(after, rater, state.number, "again")
    assert after.submit(rater, state.number).number == state.number + 1
    again.close()


def answer_page_without_clock(flow: Flow, rater: str, number: int, key: str = "k") -> None:
    for item in flow.page(rater, number).items:
        flow.answer(rater, item.item_id, GivenAnswer(key, "v", 50, 1.0))


@contextmanager
def held(place: str):
    """Another program's transaction, which lets others read and not write."""
    if "://" not in place:
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        import psycopg

        other = psycopg.connect(place)
        other.execute("LOCK TABLE answers IN EXCLUSIVE MODE")
    yield
    other.rollback()
    other.close()


def test_a_locked_database_is_told_in_one_line(place, opened, tmp_path):
    flow = Flow(a_study(tmp_path), opened)
    rater = begin(flow)
    opened.busy_s = 0.05
    with held(place):
        item = flow.page(rater, 1).items[0].item_id  # reading goes on
        said = refused(503, flow.answer, rater, item, GivenAnswer("k", "v", 1, 1.0))
    assert re.search("(database is locked|lock timeout). Nothing was kept. Another program holds it: close that", said)
    flow.answer(rater, item, GivenAnswer("k", "v", 1, 1.0))
    assert [rating.history for rating in flow.ratings(history=True)] == [0]


def test_what_is_no_store_is_refused_in_one_line(tmp_path):
    (tmp_path / "text.db").write_text("no database, but long enough to look like one " * 100)
    (tmp_path / "folder.db").mkdir()
    for place, said in [
        (tmp_path / "text.db", "not a database.*Name another file"),
        (tmp_path / "folder.db", "unable to open.*Check the path"),
        (tmp_path / "nowhere" / "study.db", "unable to open"),
        ("postgresql://me:secret@127.0.0.1:1/study?connect_timeout=2", "Check the URL"),
        ("postgres://me:secret@/study?host=/nowhere", "Check the URL"),
    ]:
        with pytest.raises(StoreError, match=said) as caught:
            Store.open(place)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
    for url in ("mysql://me@host/x", "http://x", "postgresql://me:secret@host:port/x", "://"):
        with pytest.raises(ConfigError, match="expected") as config:
            Store.open(url)
        assert "secret" not in str(config.value)
    assert store_of(tmp_path) == tmp_path / "study.db"


SECRETS = "me:first@127.0.0.1:1/study?connect_timeout=2&password=second&sslpassword=third&sslmode=prefer"


def test_no_secret_of_a_url_is_told(postgres_socket):
    with pytest.raises(StoreError) as caught:
        Store.open(f"postgresql://{SECRETS}")
    said = str(caught.value)
    assert "password=***" in said
    assert "sslpassword=***" in said
    assert "sslmode=prefer" in said
    assert not any(secret in said for secret in ("first", "second", "third"))
    import postgres

    url = postgres.database(postgres_socket)
    store = Store.open(f"{url}&password=second&options=-csearch_path%3Dpublic")
    assert store.place == f"{url}&options=***&password=***".replace(
        postgres_socket, postgres_socket.replace("/", "%2F")
    )
    with pytest.raises(StoreError) as caught, store.reading() as connection:
        connection.execute(text("SELECT 'second' FROM nowhere_second"))
    assert "second" not in str(caught.value)
    store.close()
    postgres.drop(url)


def test_a_closed_store_is_whole_in_its_one_file(tmp_path):
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path), store)
    rater = begin(flow)
    answer_page_without_clock(flow, rater, 1)
    other = sqlite3.connect(tmp_path / "study.db")  # as long as it is open SQLite itself would leave the rest beside
    other.execute("SELECT count(*) FROM gate").fetchall()
    assert (tmp_path / "study.db-wal").stat().st_size
    store.close()
    assert not (tmp_path / "study.db-wal").stat().st_size
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "study.db").write_bytes((tmp_path / "study.db").read_bytes())
    other.close()
    again = Store.open(tmp_path / "alone" / "study.db")
    assert len(Flow(flow.study, again).ratings()) == 2
    again.close()
    again.close()


@contextmanager
def only_readable(there: Path):
    """Within the block the file, or the folder with all in it, cannot be written by us, who are not root then."""
    for path in [*(there.iterdir() if there.is_dir() else ()), there]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    us = os.geteuid()
    if not us:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(us)
        there.chmod(0o755)


@pytest.fixture
def open_folder():
    """A folder that every user may read."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("claimed", [True, False])
def test_a_store_that_cannot_be_written_can_be_read(open_folder, tmp_path, claimed):
    place = open_folder / "study.db"
    store = Store.open(place)
    flow = Flow(a_study(tmp_path), store)
    rater = begin(flow)
    answer_page_without_clock(flow, rater, 1)
    expected = (flow.ratings(), flow.raters())
    if not claimed:
        with store.writing() as connection:
            connection.execute(text("UPDATE gate SET study = NULL"))
    store.close()
    before = place.read_bytes()
    with only_readable(open_folder):
        read = Store.open(place)
        assert not read.of_rehearsal
        flow = Flow(flow.study, read)
        assert (flow.ratings(), flow.raters(), flow.progress().entered) == (*expected, 1)
        for call in (read.check_writable, lambda: flow.invite(1), flow.enter):
            with pytest.raises(StoreError, match=r"readonly.*Let this user write") as caught:
                call()
            assert caught.value.status == 503
        read.close()
    assert place.read_bytes() == before
    assert [path.name for path in open_folder.iterdir()] == ["study.db"]
    open_folder.chmod(0o777)
    with only_readable(open_folder / "study.db"):
        read = Store.open(place)
        assert Flow(flow.study, read).ratings() == expected[0]
        with pytest.raises(StoreError, match="readonly"):
            read.check_writable()
        read.close()


def test_answers_beside_a_file_that_cannot_be_written_are_not_passed_over(open_folder, tmp_path):
    place = open_folder / "study.db"
    store = Store.open(place)
    flow = Flow(a_study(tmp_path), store)
    answer_page_without_clock(flow, begin(flow), 1)
    copy = open_folder / "copy"
    copy.mkdir()
    for name in ("study.db", "study.db-wal"):
        (copy / name).write_bytes((open_folder / name).read_bytes())
    with only_readable(copy), pytest.raises(StoreError, match=r"study\.db-wal holds answers too"):
        Store.open(copy / "study.db")
    store.close()


def test_a_store_of_an_older_version_that_cannot_be_written_is_refused(open_folder):
    by_sql(str(open_folder / "study.db"), VERSION_1)
    with only_readable(open_folder), pytest.raises(StoreError, match=r"Let this user write|Check the path"):
        Store.open(open_folder / "study.db")


def test_reading_and_claiming_again_writes_nothing(place, tmp_path):
    store = Store.open(place)
    Flow(a_study(tmp_path), store)
    store.close()
    again = Store.open(place)
    again.writing = None  # type: ignore[method-assign]
    Flow(a_study(tmp_path), again).progress()
    again.close()


def test_nobody_waits_long_for_other_threads_either(tmp_path):
    store = Store.open(tmp_path / "study.db")
    store.busy_s = 0.2
    flow = Flow(a_study(tmp_path), store)
    with store.writing():
        began = time.monotonic()
        found = at_once(*[flow.enter] * 4)
        assert time.monotonic() - began < 2
    assert {each.status for each in found} == {503}
    assert RATERS_S < databases.BUSY_S
    assert flow.enter()[0]
    store.close()


def test_postgresql_comes_back_after_a_break(postgres_socket, tmp_path):
    import postgres

    url = postgres.database(postgres_socket)
    store = Store.open(url)
    flow = Flow(a_study(tmp_path), store)
    rater = begin(flow)
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    by_sql(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    assert flow.state(rater).step == "task"
    store.close()
    postgres.drop(url)


# Forgetting


def test_forgetting_leaves_no_byte_in_the_files(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    store = Store.open(folder / "study.db")
    flow = Flow(a_study(tmp_path, tasks=4, raters_a_page=999, pages_a_rater=1), store)
    token = flow.invite(1, "label of Ada Lovelace")[0]
    raters = {}
    for i in range(60):
        name = f"participant-{i:04d}-" + "x" * (i % 40)
        raters[name], _ = flow.enter(platform={"PROLIFIC_PID": name, "SESSION_ID": f"session-of-{i:04d}"})
        flow.consent(raters[name])
    invited, _ = flow.enter(invite=token)
    flow.consent(invited)
    flow.sound_checked(invited)
    go_through_without_clock(flow, invited)
    code = flow.state(invited).code
    names = list(raters)
    assert every_byte(folder).count(b"participant-0003") >= 1
    for name in names[:30]:
        assert flow.forget(name).wiped
    assert flow.forget(invited, keep_ratings=True).wiped
    everything = every_byte(folder)
    for i, name in enumerate(names):
        gone = i < 30
        for trace in (name[:16], f"session-of-{i:04d}", raters[name]):
            assert (trace.encode() not in everything) == gone, trace
    for trace in ("Ada Lovelace", code, hashed(token)):
        assert trace.encode() not in everything
    assert invited.encode() in everything
    store.close()


def test_forgetting_leaves_no_byte_in_postgresql_s_files(postgres_socket, tmp_path):
    import postgres

    url = postgres.database(postgres_socket)
    store, beside = Store.open(url), Store.open(url)
    flow = Flow(a_study(tmp_path, tasks=4, raters_a_page=999, pages_a_rater=1), store)
    token = flow.invite(1, "label of Ada Lovelace")[0]
    flow.enter(invite=token, platform={"PROLIFIC_PID": "participant-of-the-invitation"})
    for i in range(300):
        flow.enter(
            platform={"PROLIFIC_PID": f"participant-{i:04d}-" + "x" * (i % 40), "SESSION_ID": f"session-of-{i:04d}"}
        )
    by_sql(url, "ANALYZE")  # which keeps values beside the table
    files = Path(postgres_socket) / "data" / "base"
    assert b"participant-0003" in every_byte_below(url, files)
    for i in range(0, 300, 30):
        done = flow.forget(f"participant-{i:04d}-" + "x" * (i % 40))
        assert done.wiped
        assert "log of changes" in str(done)
    assert flow.forget("participant-of-the-invitation").wiped
    everything = every_byte_below(url, files)
    for i in range(300):
        for trace in (f"participant-{i:04d}", f"session-of-{i:04d}"):
            assert (trace.encode() in everything) == (i % 30 != 0), trace
    for trace in ("Ada Lovelace", "participant-of-the-invitation", hashed(token)):
        assert trace.encode() not in everything
    with beside.reading() as connection:  # who began before still sees the rater
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        connection.execute(text("SELECT count(*) FROM raters")).scalar()
        store.busy_s = 0.2
        done = flow.forget("participant-0001-x")
        assert not done.wiped
        assert "forget again" in str(done)
    with pytest.raises(DataError, match="no rater"):
        flow.forget("participant-0001-x")
    assert b"participant-0001" not in every_byte_below(url, files)
    for each in (store, beside):
        each.close()
    postgres.drop(url)


def every_byte_below(url: str, folder: Path) -> bytes:
    """Of the cluster's files, once the server has written what it holds. Skips where they cannot be read."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    try:
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    except PermissionError:
        pytest.skip("the cluster's files cannot be read by who runs the tests")


def go_through_without_clock(flow: Flow, rater: str) -> None:
    state = flow.state(rater)
    while state.step == "task":
        answer_page_without_clock(flow, rater, state.number)
        state = flow.submit(rater, state.number)


def every_byte(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_forgetting_while_others_answer(place, tmp_path):
    store = Store.open(place)
    flow = Flow(a_study(tmp_path, tasks=30, raters_a_page=99, pages_a_rater=30), store)
    staying, leaving = begin(flow), begin(flow)

    def live(rater: str) -> None:
        go_through_without_clock(flow, rater)

    found = at_once(lambda: live(staying), lambda: live(leaving), lambda: (time.sleep(0.05), flow.forget(leaving)))
    assert found[0] is None
    assert found[1] is None or found[1].status in (404, 409)
    assert [row.rater_id for row in flow.raters()] == [staying]
    assert {rating.rater_id for rating in flow.ratings()} == {staying}
    store.close()


@pytest.mark.parametrize("keep_ratings", [False, True])
def test_forgetting(opened, tmp_path, keep_ratings):
    flow = Flow(a_study(tmp_path, tasks=2, raters_a_page=2, pages_a_rater=2), opened)
    token = flow.invite(1, "someone")[0]
    rater, key = flow.enter(invite=token)
    flow.consent(rater)
    flow.sound_checked(rater)
    answer_page_without_clock(flow, rater, 1)
    flow.submit(rater, 1)
    other, other_key = flow.enter(platform={"PROLIFIC_PID": "p", "STUDY_ID": "all", "SESSION_ID": "s"})
    third, _ = flow.enter(platform={"PROLIFIC_PID": "q", "STUDY_ID": "all", "SESSION_ID": "s2", "hitId": "h"})
    for pid in ("PROLIFIC_PID", "workerId"):
        flow.enter(platform={pid: "both"})
    done = flow.forget(rater, keep_ratings=keep_ratings)
    assert (done.rater_id, done.pages, done.answers, done.kept, done.wiped) == (rater, 2, 2, keep_ratings, True)
    assert ("kept" in str(done)) == keep_ratings
    assert flow.rater(key) is None
    for call in (flow.state, flow.consent, flow.sound_checked):
        refused(404, call, rater)
    refused(404, flow.page, rater, 1)
    refused(403, flow.enter, invite=token)
    assert len(flow.ratings()) == (2 if keep_ratings else 0)
    rows = {row.rater_id: row for row in flow.raters()}
    assert (rater in rows) == keep_ratings
    if keep_ratings:
        assert (rows[rater].forgotten, rows[rater].label, rows[rater].code, rows[rater].platform) == (True, "", "", {})
    assert flow.progress().invites == 0
    with pytest.raises(DataError, match=r"2 raters have this id"):
        flow.forget("both")
    for shared in ("all", "s", "s2", "h", "PROLIFIC_PID=p"):  # of a study, a session: they are nobody's own
        with pytest.raises(DataError, match="no rater has this id"):
            flow.forget(shared)
    assert flow.forget("p").rater_id == other
    assert flow.rater(other_key) is None
    assert flow.enter(platform={"PROLIFIC_PID": "p", "SESSION_ID": "new"})[0] != other  # may come back as someone new
    for nobody in ("nobody", "", "\0", "x\n", "\ud800", "x" * 100_000):
        with pytest.raises(DataError, match="no rater has this id") as caught:
            flow.forget(nobody)
        assert len(str(caught.value)) < 200
    assert third in {row.rater_id for row in flow.raters()}


def test_a_forgotten_raters_open_page_goes_to_others(opened, tmp_path):
    flow = Flow(a_study(tmp_path, tasks=1, raters_a_page=1), opened)
    first = begin(flow)
    waiting = begin(flow)
    assert flow.state(waiting).step == "nothing_left"
    flow.forget(first, keep_ratings=True)
    assert flow.state(waiting).step == "task"


def test_forgetting_is_told_where_others_hold_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "BUSY_S", 0.05)
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path), store)
    rater, key = flow.enter()
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM raters").fetchall()
    done = flow.forget(rater)
    assert not done.wiped
    assert "forget again" in str(done)
    assert flow.rater(key) is None  # deleted all the same
    other.close()
    store.close()


def test_a_store_is_one_study_s_and_a_rehearsal_s_apart(place):
    store = Store.open(place)
    store.claim("one")
    store.claim("one")
    store.claim("")  # a study that nobody gave an id
    assert not store.of_rehearsal
    with pytest.raises(DataError, match="answers of another study"):
        store.claim("two")
    with pytest.raises(DataError, match="answers of people"):
        store.claim("one", rehearsal=True)
    store.close()


def test_a_study_that_was_given_an_id_meanwhile_keeps_its_answers(place):
    store = Store.open(place)
    store.claim("")
    store.claim("one")
    store.close()


def test_nobody_waits_for_ever_nor_not_at_all(place):
    store = Store.open(place)
    with store.reading() as connection:
        databases.wait_for(connection, 0.0)
        asked = "PRAGMA busy_timeout" if store.is_file else "SHOW lock_timeout"
        assert connection.exec_driver_sql(asked).scalar() in (1, "1ms")  # 0 is for ever, or at once
    store.close()


def test_a_file_beside_which_answers_lie_is_not_read_without_them(tmp_path):
    kept, beside = tmp_path / "study.db", tmp_path / "study.db-wal"
    assert list(databases.ways_to_read(kept, beside)) == []
    kept.touch()
    assert list(databases.ways_to_read(kept, beside)) == ["mode=ro", "mode=ro&immutable=1"]
    beside.touch()
    assert list(databases.ways_to_read(kept, beside)) == ["mode=ro", "mode=ro&immutable=1"]
    beside.write_bytes(b"answers")
    assert list(databases.ways_to_read(kept, beside)) == ["mode=ro"]


def test_no_flow_of_another_study_opens_a_store(opened, tmp_path):
    study = a_study(tmp_path)
    Flow(replace(study, chosen={"id": "one"}), opened)
    with pytest.raises(DataError, match="answers of another study"):
        Flow(replace(study, chosen={"id": "two"}), opened)


def test_a_rehearsal_s_store_takes_no_people(place):
    store = Store.open(place)
    store.claim("one", rehearsal=True)
    assert store.of_rehearsal
    with pytest.raises(DataError, match="answers of a rehearsal"):
        store.claim("one")
    store.close()
