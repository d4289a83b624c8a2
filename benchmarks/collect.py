"""A study under load: many simulated listeners at once, and a server that is killed.

    python benchmarks/collect.py WORK [--raters 50] [--kills 10] [--store postgresql://USER@HOST/DATABASE]

Makes soundscapes and a study of them in the new folder WORK, serves it by `earmark collect serve`, and lets simulated
listeners (`earmark/collect/rehearse.py`) answer it over HTTP, all at once, each listening as long as the clips last.
`quiet`: nothing else happens. `killed`: the server is killed (SIGKILL) at random moments and started again each time;
listeners send again what nobody answered. Then every answer that was acknowledged is looked for in the store.
Ends with 1 where one of `BOUNDS` is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import requests
from sqlalchemy import select

from earmark.collect.rehearse import Rehearsed, rehearse
from earmark.collect.store import Store
from earmark.collect.study import Study
from earmark.collect.tables import answers
from earmark.web.listen import listening

BOUNDS_MS = 100.0
"""An answer's, at the 95th percentile."""
SETTINGS = {"pages_a_rater": 3, "check_every": 2, "qualify": 1}


def made(work: Path, raters: int) -> Study:
    """A study of soundscapes with enough pages for so many raters."""
    earmark("data", "soundscapes", work / "sounds", "--clips", "150", "--seed", "0")
    settings = {**SETTINGS, "raters_a_page": raters}
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    earmark("collect", "pool", work / "sounds", "--to", work / "study", "--captions", "12", *sets)
    return Study.read(work / "study")


def earmark(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "earmark", *map(str, arguments)], check=True, stdout=sys.stderr)


class Server:
    """`earmark collect serve` as a process of its own, on one port."""

    def __init__(self, study: Path, store: str) -> None:
        with listening("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self.command = [sys.executable, "-m", "earmark", "collect", "serve", str(study), "--port", str(self.port)]
        self.command += ["--store", store]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        for _ in range(600):
            try:
                requests.get(self.address, timeout=5)
                return
            except (requests.ConnectionError, requests.Timeout):
                time.sleep(0.1)
        raise SystemExit("the server does not answer")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait()


@contextmanager
def killing(server: Server, times: int, within_s: float, seed: int) -> Iterator[list[float]]:
    """Kills the server so many times at random moments of the next seconds, and starts it again each time."""
    moments = sorted(random.Random(seed).uniform(0.03, 0.95) * within_s for _ in range(times))
    done: list[float] = []
    over = threading.Event()

    def act() -> None:
        began = time.monotonic()
        for moment in moments:
            if over.wait(max(0.0, began + moment - time.monotonic())):
                return
            server.end(signal.SIGKILL)
            done.append(time.monotonic() - began)
            server.start()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def lost(store: str, told: Rehearsed) -> int:
    """Acknowledged answers that the store does not hold."""
    kept = Store.open(store)
    with kept.reading() as connection:
        rows = connection.execute(select(answers.c.item_id, answers.c.key, answers.c.rating)).all()
    kept.close()
    found = [tuple(row) for row in rows]
    assert len(found) == len(set(found))
    return len(set(told.kept) - set(found))


def show(name: str, told: Rehearsed, seconds: float) -> float:
    """Prints what happened; gives the 95th percentile in ms."""
    median, most = (float(np.percentile(told.stored_s, share)) * 1000 for share in (50, 95))
    print(
        f"{name}: {told.raters} raters came to the end, {told.failed} failed the qualification, {told.pages} pages, "
        f"{told.ratings} ratings in {seconds:.0f} s; stored in {median:.1f} ms (median), 95 % in {most:.1f} ms; "
        f"{told.retried} requests sent again"
    )
    return most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--raters", type=int, default=50)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--store", default="")
    given = parser.parse_args()
    study = made(given.work, 2 * given.raters)
    store = given.store or str(given.work / "study.db")
    os.environ["OMP_NUM_THREADS"] = "1"
    server = Server(study.folder, store)
    server.start()
    try:
        began = time.monotonic()
        quiet = rehearse(study, server.address, count=given.raters, seed=0)
        seconds = time.monotonic() - began
        most = show("quiet", quiet, seconds)
        began = time.monotonic()
        with killing(server, given.kills, seconds, seed=0) as moments:
            killed = rehearse(study, server.address, count=given.raters, seed=1)
        show("killed", killed, time.monotonic() - began)
    finally:
        server.end()
    gone = lost(store, quiet), lost(store, killed)
    print(f"killed {len(moments)} times; acknowledged answers that the store lacks: {gone[0]} quiet, {gone[1]} killed")
    return int(most > BOUNDS_MS or any(gone) or len(moments) < given.kills)


if __name__ == "__main__":
    sys.exit(main())
