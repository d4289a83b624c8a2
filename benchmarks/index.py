"""Indexing: speed a core, memory of all processes, a second run, a file of two hours, and kill -9 at random moments.

    python benchmarks/index.py WORK --data ../shared/data/library [--kills 10] [--hours 2] [--text all-mpnet-base-v2]

Seconds are those of all processes' own work, so that a busy machine does not count; what starting and loading the
model take is taken off, by indexing 110 of the files alone. Memory is the sum of the resident memory of all processes
(pages that they share count for each). Ends with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

SPEED, RESIDENT, LONG_RESIDENT, SECOND_S = 80, 1.5e9, 2e9, 5.0
FEW = 110
"""Files that are enough for two processes."""
COMMAND = [sys.executable, "-m", "earmark", "index"]


class Ran(NamedTuple):
    """A command that ended."""

    spent_s: float
    """Of all its processes' cores."""
    wall_s: float
    resident: int
    """Bytes of all its processes, at most."""
    told: dict


def family(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def resident(pid: int) -> int:
    total = 0
    for each in family(pid):
        try:
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * resource.getpagesize()
        except (OSError, IndexError):
            continue
    return total


def ran(*arguments: object, log: Path) -> Ran:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    most = 0
    with log.open("w") as errors:
        going = subprocess.Popen(
            [*COMMAND, *map(str, arguments), "--json", str(log) + ".json"], stderr=errors, stdout=errors
        )
        while going.poll() is None:
            most = max(most, resident(going.pid))
            time.sleep(0.05)
    if going.returncode not in (0, 1):
        raise SystemExit(log.read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(spent, time.perf_counter() - started, most, json.loads(Path(f"{log}.json").read_text()))


def told_of(index: Path) -> dict[tuple[bytes, int], tuple]:
    """Every window by path and number: all but the random id, vectors bit by bit."""
    from earmark.search.store import Store

    rows = Store.open(index).windows.to_arrow().drop_columns(["file_id"]).to_pylist()
    found = {
        (row["path"], row["window"]): (
            np.float32(row.pop("vector")).tobytes(),
            json.dumps(row, default=str, sort_keys=True),
        )
        for row in rows
    }
    assert len(found) == len(rows), "a window stands twice"
    return found


def long_file(path: Path, hours: float) -> Path:
    """Noise that swells and falls, 44.1 kHz, 16 bits, written a minute at a time."""
    import soundfile

    rng = np.random.default_rng(0)
    with soundfile.SoundFile(path, "w", 44_100, 1) as file:
        for _ in range(round(hours * 60)):
            swell = np.sin(np.arange(60 * 44_100) * 2 * np.pi / 44_100 / 7)
            file.write((0.1 * swell * rng.standard_normal(60 * 44_100)).astype(np.float32))
    return path


def kills(work: Path, data: Path, models: list[str], whole: Path, count: int, wall_s: float) -> str:
    """Kills runs at random moments, so often in all; each index that a run ended must be that without kills.

    What was kept after each kill, windows, "|" between one index and the next.
    """
    rng, index, kept = random.Random(0), work / "killed.index", []
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    killed = 0
    while killed < count or index.exists():
        going = subprocess.Popen([*COMMAND, str(data), "--to", str(index), *models], **quiet)
        try:
            going.wait(rng.uniform(0.02, 0.9) * wall_s if killed < count else None)
        except subprocess.TimeoutExpired:
            going.kill()
            going.wait()
            killed += 1
            kept.append(str(len(told_of(index)) if (index / "index.toml").exists() else 0))
            continue
        assert told_of(index) == told_of(whole), "another index than without kills"
        assert not list(index.glob(".earmark*")), "leftovers of killed runs"
        shutil.rmtree(index)
        kept.append("|")
    return " ".join(kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="a folder for what is made; emptied first")
    parser.add_argument("--data", type=Path, required=True, help="a folder of sounds")
    parser.add_argument("--model", default="yamnet")
    parser.add_argument("--text", default="")
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    models = ["--model", given.model, *(["--text-model", given.text] if given.text else [])]
    missed = []

    def tell(what: str, fine: bool) -> None:
        print(what if fine else f"{what}  <- missed", flush=True)
        if not fine:
            missed.append(what)

    index = given.work / "whole.index"
    whole = ran(given.data, "--to", index, *models, log=given.work / "whole.log")
    some = sorted(path for path in given.data.rglob("*") if path.is_file())
    few = some[:: max(1, len(some) // FEW)][:FEW]
    start = ran(*few, "--to", given.work / "few.index", *models, log=given.work / "few.log")
    heard = whole.told["heard_s"] - start.told["heard_s"]
    speed = heard / (whole.spent_s - start.spent_s)
    tell(
        f"{whole.told['files']} files, {whole.told['heard_s']:.0f} s of sound, {whole.told['windows']} windows: "
        f"{whole.wall_s:.1f} s by the clock, {whole.spent_s:.1f} s of cores",
        True,
    )
    tell(
        f"{speed:.0f} times real time a core, starting and loading apart ({len(few)} files alone: "
        f"{start.spent_s:.1f} s); bound {SPEED}",
        speed >= SPEED,
    )
    tell(f"{whole.resident / 1e9:.2f} GB resident, all processes; bound {RESIDENT / 1e9}", whole.resident < RESIDENT)
    second = ran(given.data, "--to", index, log=given.work / "second.log")
    tell(
        f"second run: {second.wall_s:.1f} s by the clock, {second.spent_s:.1f} s of cores, "
        f"{second.told['unchanged']} unchanged; bound {SECOND_S:g}",
        second.spent_s < SECOND_S and second.told["unchanged"] == whole.told["files"],
    )
    if given.hours:
        path = long_file(given.work / "long.wav", given.hours)
        long = ran(path, "--to", given.work / "long.index", *models, log=given.work / "long.log")
        expected = round(given.hours * 720) - 1
        tell(
            f"{given.hours:g} h in one file: {long.told['windows']} windows of {expected}, {long.wall_s:.0f} s, "
            f"{long.resident / 1e9:.2f} GB resident; bound {LONG_RESIDENT / 1e9}",
            long.resident < LONG_RESIDENT and long.told["windows"] == expected,
        )
        path.unlink()
    if given.kills:
        kept = kills(given.work, given.data, models, index, given.kills, whole.wall_s)
        tell(f"killed {given.kills} times, windows kept: {kept}; each then whole, bit by bit", True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
