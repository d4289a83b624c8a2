"""How many copies `data check --against` finds, a kind of change, how many false pairs, and how fast.

    OMP_NUM_THREADS=1 python benchmarks/duplicates.py --data ../shared/data/library

Copies of 150 sounds of the folder a kind of change, drawn by seed among those that are long enough, are made by
soundfile (mp3, ogg, opus, flac), by gain, rate, channels, trimming and excerpts, and compared with all sounds of the
folder. A copy whose original is not found is a miss. A pair of a copy and another sound, or of two sounds of the
folder, is false unless the two are one recording by a second computation: in most of seven octaves, the plain
correlation of what they have in common is at least .5 within a millisecond of one delay. Copies of silence are left
out. Synthesised sounds that are alike and not the same are set against each other too. Exit code 1 where recall is
below .98 of plain copies or .95 of excerpts of 1.5 s and more, or a pair is false (bells of one pitch are told only).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.signal
import soundfile
import soxr

from earmark.audio.decode import load
from earmark.audio.fingerprint import RATE, Fingerprint
from earmark.audio.recordings import Match, listen, same_recordings

SOUNDS = {".flac", ".mp3", ".ogg", ".opus", ".wav"}
OCTAVES = (60, 120, 240, 480, 960, 1920, 3840, 7500)
Audio = np.ndarray
"""[frame, channel]."""
Prints = dict[Path, Fingerprint]


def resampled(samples: Audio, rate: int, to: int) -> Audio:
    return samples if rate == to else soxr.resample(samples, rate, to)


def write(path: Path, samples: Audio, rate: int, form: str, **more: object) -> None:
    """Writes at a rate that the format has."""
    to = 48_000 if form == "OPUS" or (form == "MP3" and rate > 48_000) else rate
    container = {"OPUS": "OGG"}.get(form, form)
    subtype = {"OPUS": "OPUS", "OGG": "VORBIS", "MP3": "MPEG_LAYER_III"}.get(form, "PCM_16")
    soundfile.write(path, resampled(samples, rate, to), to, format=container, subtype=subtype, **more)


def part(samples: Audio, rate: int, seconds: float, chance: np.random.Generator) -> Audio:
    begin = chance.integers(0, len(samples) - round(seconds * rate))
    return samples[begin : begin + round(seconds * rate)]


# Kind of copy → (least recall, least seconds of the original, what is written)
Change = Callable[[Path, Audio, int, np.random.Generator], None]
CHANGES: dict[str, tuple[float, float, Change]] = {
    "flac": (0.98, 0, lambda path, x, rate, _: write(path, x, rate, "FLAC")),
    "mp3": (0.98, 0, lambda path, x, rate, _: write(path, x, rate, "MP3")),
    "mp3, lowest quality": (0, 0, lambda path, x, rate, _: write(path, x, rate, "MP3", compression_level=0.95)),
    "ogg": (0.98, 0, lambda path, x, rate, _: write(path, x, rate, "OGG")),
    "ogg, lowest quality": (0, 0, lambda path, x, rate, _: write(path, x, rate, "OGG", compression_level=0.95)),
    "opus": (0.98, 0, lambda path, x, rate, _: write(path, x, rate, "OPUS")),
    "-20 dB": (0.98, 0, lambda path, x, rate, _: write(path, 0.1 * x, rate, "WAV")),
    "+3 dB, clipping": (0.98, 0, lambda path, x, rate, _: write(path, 1.4125 * x, rate, "WAV")),
    "-10 dB, mp3": (0.98, 0, lambda path, x, rate, _: write(path, 0.316 * x, rate, "MP3")),
    "48 kHz": (0.98, 0, lambda path, x, rate, _: write(path, resampled(x, rate, 48_000), 48_000, "WAV")),
    "22.05 kHz": (0.98, 0, lambda path, x, rate, _: write(path, resampled(x, rate, 22_050), 22_050, "WAV")),
    "8 kHz": (0.98, 0, lambda path, x, rate, _: write(path, resampled(x, rate, 8000), 8000, "WAV")),
    "8 bits": (0, 0, lambda path, x, rate, _: soundfile.write(path, x, rate, format="WAV", subtype="PCM_U8")),
    "mono": (0.98, 0, lambda path, x, rate, _: write(path, x.mean(axis=1, keepdims=True), rate, "WAV")),
    "2 s of silence around": (
        0.98,
        0,
        lambda path, x, rate, _: write(path, np.pad(x, ((2 * rate, 2 * rate), (0, 0))), rate, "MP3"),
    ),
    "10 % off both ends": (0, 0.3, lambda path, x, rate, _: write(path, x[len(x) // 10 : -len(x) // 10], rate, "MP3")),
    **{
        f"{seconds} s of it, {form.lower()}": (
            0.95 if seconds >= 1.5 else 0,
            2 * seconds,
            lambda path, x, rate, chance, seconds=seconds, form=form: write(
                path, part(x, rate, seconds, chance), rate, form
            ),
        )
        for seconds in (0.5, 1.5, 3.0)
        for form in ("WAV", "MP3", "OGG")
    },
}


def made(paths: list[Path], count: int, folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """(kind, copy, original) of every copy."""
    numbers = dict.fromkeys(CHANGES, 0)
    for number in np.random.default_rng(0).permutation(len(paths)):
        samples, rate = soundfile.read(paths[number], dtype="float32", always_2d=True)
        for kind, (_, least, change) in CHANGES.items():
            if len(samples) and len(samples) >= least * rate and numbers[kind] < count:
                numbers[kind] += 1
                copy = folder / f"{number}-{kind}"
                change(copy, samples, rate, np.random.default_rng(number))
                yield kind, copy, paths[number]


def synthesised() -> dict[str, np.ndarray]:
    """Sounds that are alike and not the same: noises, tones, hums, rhythms of one stroke, sweeps, and struck bells.

    Bells of a pitch have three partials of nearly the same ratios, of other phases and other length.
    """
    chance = np.random.default_rng(0)
    sounds: dict[str, np.ndarray] = {}

    def time_of(seconds: float) -> np.ndarray:
        return np.arange(round(seconds * RATE)) / RATE

    def wave(hertz: float, t: np.ndarray) -> np.ndarray:
        return np.sin(2 * np.pi * hertz * t + chance.uniform(0, 2 * np.pi))

    stroke = np.exp(-time_of(0.2) / 0.05) * np.sin(2 * np.pi * 60 * time_of(0.2))
    for number in range(60):
        t = time_of(chance.choice([0.1, 0.3, 1, 3]))
        sounds[f"white-{number}"] = 0.1 * chance.standard_normal(len(t))
        sounds[f"brown-{number}"] = scipy.signal.lfilter([0.02], [1, -0.98], chance.standard_normal(len(t)))
        low = chance.uniform(100, 4000)
        band = scipy.signal.butter(4, [low, 1.3 * low], "band", fs=RATE, output="sos")
        sounds[f"band-{number}"] = scipy.signal.sosfilt(band, chance.standard_normal(len(t)))
        pitch, t, decay = 110 * (2 + number % 4), time_of(chance.uniform(0.3, 2)), chance.uniform(0.05, 0.5)
        partials = [pitch * ratio * (1 + 1e-3 * chance.standard_normal()) for ratio in (1, 2.76, 5.4)]
        sounds[f"bell-{number}"] = sum(
            np.exp(-t * k / decay) * wave(hertz, t) / k for k, hertz in enumerate(partials, start=1)
        ) + 0.01 * chance.standard_normal(len(t)) * np.exp(-t / 0.01)
    for number in range(30):
        hum = sum(wave(50 * k, time_of(3)) / k for k in range(1, 20))
        sounds[f"hum-{number}"] = 0.1 * hum + 0.02 * chance.standard_normal(3 * RATE)
        ends = 100 + 30 * number, 2000 + 130 * (7 * number % 30)  # no two alike in both
        sounds[f"sweep-{number}"] = 0.3 * scipy.signal.chirp(time_of(1), ends[0], 1, ends[1])
        sounds[f"rhythm-{number}"] = np.zeros(3 * RATE)
        for beat in chance.choice(22, 8, replace=False):
            sounds[f"rhythm-{number}"][beat * 2000 : beat * 2000 + len(stroke)] += stroke
    for hertz in (100, 200, 300, 440, 442, 445, 466, 880, 1000, 1010, 2000, 3000, 5000):
        sounds |= {f"tone-{hertz}-{seconds}": 0.5 * wave(hertz, time_of(seconds)) for seconds in (0.1, 0.3, 1, 3)}
    return sounds


def is_one_recording(match: Match) -> bool:
    """By the second computation."""
    cuts = []
    for path, start in zip((match.one, match.other), match.starts, strict=True):
        whole = load(path, RATE).samples
        cuts.append(whole[round(start * RATE) :][: round(match.seconds * RATE)].astype(np.float64))
    length = min(map(len, cuts))
    agreeing = []
    for low, high in pairwise(OCTAVES):
        band = scipy.signal.butter(3, [low, high], "band", fs=RATE, output="sos")
        one, other = (scipy.signal.sosfiltfilt(band, cut[:length], padlen=min(27, length - 1)) for cut in cuts)
        if np.square(one).sum() * np.square(other).sum() > 1e-12 * np.square(cuts[0]).sum() * np.square(cuts[1]).sum():
            curve = scipy.signal.fftconvolve(one, other[::-1]) / np.sqrt(np.square(one).sum() * np.square(other).sum())
            near = np.abs(curve[length - 1 - 16 : length - 1 + 17]).max()
            agreeing.append(near >= 0.5)
    return sum(agreeing) > len(agreeing) / 2


def quiet(what: str, done: int, all_: int) -> None:
    """Progress that nobody sees."""


def among_real_sounds(prints: Prints, folder: Path) -> tuple[list[Match], bool]:
    """The pairs that are found among the sounds themselves, and whether none is false."""
    begin = time.perf_counter()
    found = list(same_recordings(prints, {path: {0, 1} for path in prints}, quiet))
    pairs = len(prints) * (len(prints) - 1) // 2
    false = [match for match in found if not is_one_recording(match)]
    print(f"  comparing {pairs:,} pairs {time.perf_counter() - begin:.1f} s")
    print(f"  {len(found)} pairs are found, {len(false)} of them false (none)")
    for match in sorted(found, key=lambda each: each.likeness):
        names = " | ".join(str(path.relative_to(folder)) for path in (match.one, match.other))
        print(f"    {match.likeness:.3f}  {match.seconds:5.2f} s  {names}{'  FALSE' if match in false else ''}")
    return found, not false


def among_synthesised() -> bool:
    """Whether no sounds that are merely alike are taken for one recording, bells of one pitch apart."""
    with tempfile.TemporaryDirectory() as folder:
        alike = {Path(folder) / f"{name}.wav": sound for name, sound in synthesised().items()}
        for path, sound in alike.items():
            soundfile.write(path, 0.9 * sound / np.abs(sound).max(), RATE)
        heard, _ = listen(list(alike), quiet)
        taken = list(same_recordings(heard, {path: {0, 1} for path in alike}, quiet))
    kinds = [{path.stem.split("-")[0] for path in (match.one, match.other)} for match in taken]
    bells = sum(each == {"bell"} for each in kinds)
    print(f"{len(alike)} synthesised sounds: {bells} pairs of bells of 420 with one pitch are taken for one recording,")
    print(f"  and {len(taken) - bells} other pairs (none)")
    return bells == len(taken)


def of_copies(prints: Prints, paths: list[Path], count: int, found: list[Match]) -> bool:
    """Whether copies of every kind are found often enough, and no other sound is taken for one."""
    with tempfile.TemporaryDirectory() as folder:
        copies = list(made(paths, count, Path(folder)))
        copied, _ = listen([copy for _, copy, _ in copies], quiet)
        both = {**prints, **{path: each for path, each in copied.items() if each.loud.sum() >= 10}}
        matches = list(same_recordings(both, {path: {int(path in copied)} for path in both}, quiet))
        original = {copy: path for _, copy, path in copies}
        known = {frozenset((match.one, match.other)) for match in found}
        recalled, others = set(), []
        for match in matches:
            copy, path = (match.one, match.other) if match.one in copied else (match.other, match.one)
            if original[copy] == path:
                recalled.add(copy)
            elif frozenset((original[copy], path)) not in known:
                others.append(match)
        wrong = [match for match in others if not is_one_recording(match)]
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for kind, copy, _ in copies:
        if copy in both:
            by_kind[kind].append(copy in recalled)
    print("recall:")
    for kind, hits in by_kind.items():
        least = CHANGES[kind][0]
        print(f"  {kind:24}{np.mean(hits):6.3f} of {len(hits):3}{f'  (at least {least})' if least else ''}")
    confirmed = len(others) - len(wrong)
    print(f"  {len(wrong)} false pairs of a copy and another sound (none); {confirmed} more are confirmed")
    for match in wrong:
        print(f"    {match.likeness:.3f}  {match.seconds:5.2f} s  {match.one.name} | {match.other.name}")
    return not wrong and all(np.mean(hits) >= CHANGES[kind][0] for kind, hits in by_kind.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    data = Path(os.environ.get("EARMARK_TEST_DATA", "../shared/data")) / "library"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--copies-of", type=int, default=150)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    paths = sorted(path for path in arguments.data.rglob("*") if path.suffix in SOUNDS)
    if not paths:
        print(f"{arguments.data}: no sounds")
        return 2
    begin = time.perf_counter()
    prints, failed = listen(paths, quiet)
    hours = sum(each.samples for each in prints.values()) / RATE / 3600
    print(f"{len(prints)} sounds ({len(failed)} unreadable), {hours:.2f} h:")
    print(f"  decoding and fingerprints {time.perf_counter() - begin:.1f} s")
    found, none_false = among_real_sounds(prints, arguments.data)
    good = [none_false, among_synthesised(), of_copies(prints, paths, arguments.copies_of, found)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
