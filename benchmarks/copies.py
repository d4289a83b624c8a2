"""How many copies search folds behind the first, by kind, how many different recordings, and how fast prints are made.

    OMP_NUM_THREADS=1 python benchmarks/copies.py --data ../shared/data

The sounds of `library.csv` are halved by its column `group` (numpy's `default_rng(0)` shuffles the groups): the bounds
of `search/copies.py` were chosen on the first half, and what is told here is of the second. Copies of so many of its
sounds are made a kind, by seed 0, and set against their originals as search does; all pairs of the half's sounds are
set against each other, and a pair that is folded is false unless `audio/recordings.py` finds, by the waveforms, that
the two are one recording. So are all pairs of the synthesised sounds of `duplicates.py`, which are alike and not the
same. Exit code 1 where fewer copies are folded than the kind must reach, or a pair of the half's sounds is false.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr
from duplicates import quiet, synthesised

from earmark.audio.decode import load, resampled
from earmark.audio.fingerprint import RATE
from earmark.audio.recordings import listen, same_recordings
from earmark.search.copies import PRINTED_S, alike, closeness, print_of

Audio = np.ndarray
"""[frame, channel]."""
AT_ONCE = 1 << 14
"""Frames that are written at once: libsndfile ends the process where Vorbis gets a minute in one piece."""


def write(path: Path, samples: Audio, rate: int, form: str = "WAV", subtype: str = "PCM_16") -> None:
    with soundfile.SoundFile(path, "w", rate, samples.shape[1], subtype, format=form) as out:
        for start in range(0, len(samples), AT_ONCE):
            out.write(samples[start : start + AT_ONCE])


def write_mp3(path: Path, samples: Audio, rate: int, kilobits: int) -> None:
    if rate not in (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000):
        samples, rate = soxr.resample(samples, rate, 44_100), 44_100
    layout = ("mono", "stereo")[min(2, samples.shape[1]) - 1]
    with av.open(str(path), "w", format="mp3") as out:
        track = out.add_stream("libmp3lame", rate=rate, layout=layout, bit_rate=1000 * kilobits)
        planes = np.ascontiguousarray(samples[:, :2].T.clip(-1, 1), np.float32)
        frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout=layout)
        frame.sample_rate = rate
        for each in (frame, None):
            out.mux(track.encode(each))


# Kind of copy → (least share that is folded, what is written)
KINDS: dict[str, tuple[float, Callable[[Path, Audio, int], None]]] = {
    "wav, 16 bits": (0.98, write),
    "flac": (0.98, lambda path, x, rate: write(path, x, rate, "FLAC")),
    "mp3, 128 kbit/s": (0.98, lambda path, x, rate: write_mp3(path, x, rate, 128)),
    "mp3, 64 kbit/s": (0.98, lambda path, x, rate: write_mp3(path, x, rate, 64)),
    "ogg": (0.98, lambda path, x, rate: write(path, x, rate, "OGG", "VORBIS")),
    "16 kHz": (0.98, lambda path, x, rate: write(path, soxr.resample(x, rate, 16_000), 16_000)),
    "-12 dB": (0.98, lambda path, x, rate: write(path, x * 10 ** (-12 / 20), rate)),
    "50 ms off the front": (0.9, lambda path, x, rate: write(path, x[round(0.05 * rate) :], rate)),
    "50 ms off, mp3": (0.9, lambda path, x, rate: write_mp3(path, x[round(0.05 * rate) :], rate, 128)),
}
SHORT_S = 0.3


def printed(path: Path) -> tuple[bytes, float]:
    """A file's print, and its duration."""
    sound = load(path)
    return print_of([sound.samples], sound.rate), len(sound.samples) / sound.rate


def halves(table: Path) -> tuple[list[Path], list[Path]]:
    """The sounds of both halves."""
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    groups = sorted({row["group"] for row in rows})
    np.random.default_rng(0).shuffle(groups)
    first = set(groups[: len(groups) // 2])
    paths = [(table.with_suffix("") / row["file"], row["group"] in first) for row in rows]
    return [path for path, inside in paths if inside], [path for path, inside in paths if not inside]


def of_copies(paths: list[Path], prints: dict[Path, bytes], count: int) -> bool:
    """Whether so many copies of every kind are folded as must be."""
    chosen = [paths[place] for place in np.random.default_rng(0).permutation(len(paths))[:count]]
    good = True
    for kind, (least, change) in KINDS.items():
        folded: list[tuple[bool, bool]] = []
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(chosen):
                samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
                if kind.startswith("50 ms") and len(samples) < 0.1 * rate:
                    continue  # half of it would be gone
                copy = Path(folder) / str(number)
                change(copy, samples, rate)
                folded.append((alike(prints[path], printed(copy)[0]), len(samples) < SHORT_S * rate))
                copy.unlink()
        share, short = np.mean([same for same, _ in folded]), [same for same, brief in folded if brief]
        good &= share >= least
        told = f"{kind:22}{share:6.3f} of {len(folded)} (at least {least})"
        print(f"  {told}; of sounds under {SHORT_S} s {np.mean(short):.3f} of {len(short)}")
    return good


def of_others(paths: list[Path], prints: dict[Path, bytes]) -> bool:
    """Whether no two different recordings are folded."""
    pairs = list(combinations(paths, 2))
    begin = time.process_time()
    folded = [pair for pair in pairs if alike(prints[pair[0]], prints[pair[1]])]
    micro = (time.process_time() - begin) / len(pairs) * 1e6
    heard, _ = listen(sorted({path for pair in folded for path in pair}), quiet)
    found = same_recordings(heard, {path: {0, 1} for path in heard}, quiet)
    same = {frozenset((match.one, match.other)) for match in found}
    false = [pair for pair in folded if frozenset(pair) not in same]
    print(
        f"  {len(folded)} of {len(pairs):,} pairs are folded, {len(false)} of them false (none); {micro:.0f} µs a pair"
    )
    for one, other in folded:
        mark = "  FALSE" if (one, other) in false else ""
        print(f"    {closeness(prints[one], prints[other]):.3f}  {one.name} | {other.name}{mark}")
    return not false


def of_synthesised() -> None:
    """Tells how many pairs of sounds that are alike and not the same are folded."""
    made = {name: print_of([np.float32(0.9 * x / np.abs(x).max())], RATE) for name, x in synthesised().items()}
    pairs = [pair for pair in combinations(made, 2) if alike(made[pair[0]], made[pair[1]])]
    kinds = sorted({" and ".join(sorted({name.split("-")[0] for name in pair})) for pair in pairs})
    print(f"  {len(made)} synthesised sounds: {len(pairs)} pairs are folded ({', '.join(kinds) or 'none'})")


def speed(paths: list[Path]) -> None:
    """Tells how many seconds of sound a second prints are made of."""
    sounds = [load(path) for path in paths[:60]]
    seconds = sum(min(PRINTED_S, len(sound.samples) / sound.rate) for sound in sounds)
    times = []
    for make in (
        lambda sound: resampled(sound.samples[: round(PRINTED_S * sound.rate)], sound.rate, RATE),
        lambda sound: print_of([sound.samples], sound.rate),
    ):
        begin = time.process_time()
        for sound in sounds:
            make(sound)
        times.append(time.process_time() - begin)
    whole, resampling = seconds / times[1], times[0] / times[1]
    print(f"  a print at {whole:,.0f} times real time a core, decoding apart; {resampling:.0%} of it is resampling")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("EARMARK_TEST_DATA", "../shared/data")))
    parser.add_argument("--copies-of", type=int, default=150)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not (arguments.data / "library.csv").is_file():
        print(f"{arguments.data}: no library.csv")
        return 2
    _, paths = halves(arguments.data / "library.csv")
    prints = {path: printed(path)[0] for path in paths}
    longest = max(map(len, prints.values()))
    print(f"{len(paths)} sounds of the second half; a print has {longest:,} bytes at most")
    speed(paths)
    good = of_copies(paths, prints, arguments.copies_of)
    good &= of_others(paths, prints)
    of_synthesised()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
