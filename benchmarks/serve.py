"""How fast the search server answers: one client, and 64 at once.

    python benchmarks/serve.py INDEX [--clients 64] [--seconds 60] [--words QUERIES.csv]

Starts `earmark serve INDEX` as a process of its own. First one client asks words that were never asked before, one
after the other: milliseconds from words to hits, the text model included. Then many clients at once, each on a
connection of its own, do for a minute what pages do: search, ask for waveforms, read ranges of sounds, rate a few.
Exits 1 where any request fails, or one client waits longer than 150 ms (median, two cores).
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

BOUND_MS = 150.0
ALONE = 200
"""Questions of the one client."""
WORDS = ["rain", "thunder", "dog", "bark", "door", "slam", "glass", "wind", "water", "wood", "metal", "crowd", "engine"]
WORDS += ["bell", "bird", "footsteps", "laugh", "horn"]


def started(index: Path, ratings: Path) -> tuple[subprocess.Popen[str], str]:
    """The server and its address."""
    command = [sys.executable, "-m", "earmark", "serve", str(index), "--port", "0", "--ratings", str(ratings)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    if "http" not in line:
        sys.exit("the server did not start")
    return server, line.split()[-1]


def queries(path: Path | None) -> list[str]:
    """Words to ask: a file's first column, or pairs of common ones."""
    if path is None:
        return [f"{one} {other}" for one in WORDS for other in WORDS if one != other]
    with path.open(newline="") as file:
        return [row[0] for row in list(csv.reader(file))[1:] if row and row[0].strip()]


def alone(address: str, texts: list[str]) -> list[float]:
    """Milliseconds of each question of one client."""
    took = []
    with httpx.Client(base_url=address, timeout=60) as client:
        client.get("/api/search", params={"q": "a first question"}).raise_for_status()
        for text in texts[:ALONE]:
            start = time.perf_counter()
            client.get("/api/search", params={"q": text}).raise_for_status()
            took.append(1000 * (time.perf_counter() - start))
    return took


async def visitor(address: str, texts: list[str], until: float, seed: int, took: dict[str, list[float]], bad: Counter):
    """One client: what a person's page does, without the person's pauses."""
    dice = random.Random(seed)

    async with httpx.AsyncClient(base_url=address, timeout=60) as client:

        async def ask(what: str, method: str, path: str, expected: int = 200, **more: Any) -> httpx.Response | None:
            start = time.perf_counter()
            try:
                answer = await client.request(method, path, **more)
            except httpx.HTTPError as error:
                bad[f"{what}: {type(error).__name__}"] += 1
                return None
            took[what].append(1000 * (time.perf_counter() - start))
            if answer.status_code != expected:
                bad[f"{what}: {answer.status_code} {answer.text[:80]}"] += 1
                return None
            return answer

        while time.perf_counter() < until:
            words = dice.choice(texts)
            found = await ask("search", "GET", "/api/search", params={"q": words})
            for hit in (found.json()["hits"] if found else [])[:3]:
                sound = f"/api/sounds/{hit['id']}"
                await ask("peaks", "GET", f"{sound}/peaks")
                await ask("range", "GET", sound, 206, headers={"range": "bytes=0-65535"})
            if found and dice.random() < 0.05:
                hit = found.json()["hits"][0]
                row = {"q": words, "rating": dice.randint(0, 100), "rank": 1}
                row |= {name: hit[name] for name in ("id", "start_s", "end_s")}
                await ask("rating", "PUT", "/api/ratings", json=row)


async def together(
    address: str, texts: list[str], clients: int, seconds: float
) -> tuple[dict[str, list[float]], Counter]:
    """Milliseconds of each kind of request, and what went wrong."""
    took: dict[str, list[float]] = {"search": [], "peaks": [], "range": [], "rating": []}
    bad: Counter = Counter()
    until = time.perf_counter() + seconds
    await asyncio.gather(*(visitor(address, texts, until, seed, took, bad) for seed in range(clients)))
    return took, bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--words", type=Path)
    given = parser.parse_args()
    texts = queries(given.words)
    with tempfile.TemporaryDirectory() as folder:
        server, address = started(given.index, Path(folder) / "ratings")
        try:
            one = alone(address, texts)
            took, bad = asyncio.run(together(address, texts, given.clients, given.seconds))
        finally:
            server.terminate()
            server.wait(60)
    median = float(np.median(one))
    print(
        f"one client, {len(one)} new queries: median {median:.0f} ms, 95th percentile {np.percentile(one, 95):.0f} ms"
    )
    every = [each for kind in took.values() for each in kind]
    print(f"{given.clients} clients, {given.seconds:g} s: {len(every):,} requests, {len(every) / given.seconds:.0f}/s")
    for kind, each in {"all": every, **took}.items():
        if each:
            p95 = np.percentile(each, 95)
            print(f"  {kind}: {len(each):,}, median {np.median(each):.0f} ms, 95th percentile {p95:.0f} ms")
    print(f"errors: {sum(bad.values())} {dict(bad) or ''}")
    return int(bool(bad) or median > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
