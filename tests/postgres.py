"""A PostgreSQL server of the test run's own: Debian's package, a data directory that is thrown away, a socket only.

A test module that says `pytest_plugins = ["postgres"]` has the fixtures: `place` gives its tests an empty database on
SQLite and on PostgreSQL. PostgreSQL refuses to run as root: then it runs as
the user `postgres`, whom the package makes. A process beside the tests watches over it, so that it ends with them even
when they are killed.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt")
USER = "earmark"
OPTIONS = "-c fsync=off -c full_page_writes=off -c listen_addresses= -c max_connections=200 -c shared_buffers=16MB"
WATCH = """
import os, shutil, signal, sys, time
parent, server, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
while os.getppid() == parent:
    time.sleep(0.5)
try:
    os.kill(server, signal.SIGQUIT)
    for _ in range(100):
        os.kill(server, 0)
        time.sleep(0.1)
except ProcessLookupError:
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


@pytest.fixture(scope="session")
def postgres_socket() -> Iterator[str]:
    """The folder of the socket of the session's server."""
    with server() as socket:
        yield socket


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path) -> Iterator[str]:
    """An empty database of each kind: a file's path, and a URL."""
    if request.param == "sqlite":
        yield str(tmp_path / "study.db")
        return
    url = database(request.getfixturevalue("postgres_socket"))
    yield url
    drop(url)


def programs() -> Path | None:
    """The folder of the newest installed server's programs; None where there is none."""
    found = [path for place in PLACES for path in Path(place).glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    newest = sorted(found, key=lambda path: [int(n) for n in path.parts[-3].split(".") if n.isdigit()])
    return newest[-1].parent if newest else Path(on_path).parent if on_path else None


@contextmanager
def server() -> Iterator[str]:
    """The folder of the socket of a running server. Skips, saying so, where no PostgreSQL is installed."""
    bin_ = programs()
    if bin_ is None:
        pytest.skip("no PostgreSQL server here; install Debian's package postgresql")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        pytest.skip("no psycopg here; pip install 'psycopg[binary]'")
    folder = Path(tempfile.mkdtemp(prefix="earmark-pg-", dir="/tmp"))  # a socket's path holds 107 letters
    user = _user(folder)
    try:
        data = folder / "data"
        _run(
            user, bin_ / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8"
        )
        _run(user, bin_ / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", f"{OPTIONS} -k {folder}", "start")
        pid = int((data / "postmaster.pid").read_text().split()[0])
        watch = subprocess.Popen([sys.executable, "-c", WATCH, str(os.getpid()), str(pid), str(folder)])
        try:
            yield str(folder)
        finally:
            _run(user, bin_ / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
            watch.send_signal(signal.SIGKILL)
            watch.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def database(socket: str) -> str:
    """The URL of a new, empty database."""
    import psycopg

    name = f"study_{secrets.token_hex(6)}"
    with psycopg.connect(host=socket, user=USER, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return f"postgresql://{USER}@/{name}?host={socket}"


def drop(url: str) -> None:
    """Drops the database, whoever is connected."""
    import psycopg

    name, socket = url.split("@/")[1].split("?host=")
    with psycopg.connect(host=socket, user=USER, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _user(folder: Path) -> str | None:
    """Who the server runs as, None for ourselves; the folder is theirs then."""
    if os.getuid():
        return None
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        shutil.rmtree(folder)
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres; install Debian's package")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return user.pw_name


def _run(user: str | None, *command: object) -> None:
    """Raises with the program's words where it fails."""
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [str(each) for each in command],
        user=user,
        group=user,
        extra_groups=[] if user else None,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the server keeps it open: a pipe would never end
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}")
