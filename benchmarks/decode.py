"""Files a second of earmark's decoder beside librosa's `load`, and an hour of MP3: time and peak memory of both.

    python benchmarks/decode.py --data ../shared/data/library

Files: every one of the folder, at its own rate and brought to 22,050 Hz (librosa's default); each repetition times both
over all files, one after the other. The hour is made here (stereo, 44.1 kHz) and read by each in fresh processes that
take turns: by earmark in blocks, by librosa whole, as it offers. Medians are printed. Exit code 1 where earmark is
slower over the files, less than 1.8 times faster over the hour, or takes more than a tenth of the memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import soundfile

SOUNDS = {".flac", ".mp3", ".ogg", ".opus", ".wav"}

ONE_FILE = """
import sys, time
how, path, small, rate = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) or None
if how == "librosa":
    import librosa
    read = lambda path: len(librosa.load(path, sr=rate)[0])
else:
    from earmark.audio.decode import blocks
    read = lambda path: sum(len(block) for block in blocks(path, rate))
read(small)  # what is imported once is not counted
begin = time.perf_counter()
samples = read(path)
seconds = time.perf_counter() - begin
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
print(samples, seconds, int(peak) / 1024)
"""


def seconds_over(paths: list[Path], rate: int | None) -> tuple[float, float]:
    """Seconds of earmark and of librosa over all files."""
    import librosa

    from earmark.audio.decode import load

    begin = time.perf_counter()
    for path in paths:
        load(path, rate)
    between = time.perf_counter()
    for path in paths:
        librosa.load(path, sr=rate)
    return between - begin, time.perf_counter() - between


def make_mp3(path: Path, minutes: int) -> None:
    chance = np.random.default_rng(0)
    t = np.arange(44_100 * 10) / 44_100
    with soundfile.SoundFile(path, "w", 44_100, 2, format="MP3", subtype="MPEG_LAYER_III") as file:
        for part in range(6 * minutes):
            left = 0.3 * np.sin(2 * np.pi * (200 + part) * t) + 0.05 * chance.standard_normal(len(t))
            file.write(np.stack([left, 0.8 * left + 0.01 * chance.standard_normal(len(t))], axis=1))


def one_file(how: str, path: Path, small: Path, rate: int | None) -> tuple[int, float, float]:
    """Samples, seconds and peak MB of one process."""
    command = [sys.executable, "-W", "ignore", "-c", ONE_FILE, how, str(path), str(small), str(rate or 0)]
    samples, seconds, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(samples), float(seconds), float(peak)


def compare_files(paths: list[Path], repetitions: int) -> bool:
    good = True
    for rate in (None, 22_050):
        seconds_over(paths[:20], rate)  # imports
        times = [seconds_over(paths, rate) for _ in range(repetitions)]
        ours, theirs = np.median(times, axis=0)
        ratio = float(np.median([their / our for our, their in times]))
        print(f"{len(paths)} files at {f'{rate} Hz' if rate else 'their own rates'}, median of {repetitions}:")
        print(f"  earmark {len(paths) / ours:6.0f} files a second, librosa {len(paths) / theirs:6.0f}", end="")
        print(f"; ratio {ratio:.2f} (at least 1)")
        good &= ratio >= 1
    return good


def compare_hour(small: Path, minutes: int, repetitions: int) -> bool:
    good = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.mp3"
        make_mp3(path, minutes)
        for rate in (None, 22_050):
            found = [
                (one_file("earmark", path, small, rate), one_file("librosa", path, small, rate))
                for _ in range(repetitions)
            ]
            ratio = float(np.median([theirs[1] / ours[1] for ours, theirs in found]))
            memory = max(ours[2] for ours, _ in found) / min(theirs[2] for _, theirs in found)
            (samples, *_), (theirs, *_) = found[0]
            print(f"{minutes} minutes of MP3 at {f'{rate} Hz' if rate else 'its own rate'}, median of {repetitions}:")
            for place, name in enumerate(("earmark", "librosa")):
                seconds, peak = np.median([pair[place][1:] for pair in found], axis=0)
                print(f"  {name} {seconds:6.2f} s, {peak:6.0f} MB at most")
            print(f"  ratio {ratio:.2f} (at least 1.8), memory {memory:.3f} of librosa's (at most 0.1)")
            good &= ratio >= 1.8 and memory <= 0.1 and abs(samples - theirs) <= 1
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    data = Path(os.environ.get("EARMARK_TEST_DATA", "../shared/data")) / "library"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    paths = sorted(path for path in arguments.data.rglob("*") if path.suffix in SOUNDS)
    if not paths:
        print(f"{arguments.data}: no sounds")
        return 2
    files = compare_files(paths, arguments.repetitions)
    return 0 if compare_hour(paths[0], arguments.minutes, arguments.repetitions) and files else 1


if __name__ == "__main__":
    sys.exit(main())
