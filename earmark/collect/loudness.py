"""The clips as raters hear them: 16-bit WAV files of one loudness, kept below the cache folder.

Loudness is that of ITU-R BS.1770-4 (`analyse/clips.py`'s meter), with the *mean* of the channels' energies: a mono
sound comes out of both sides, and so matches a stereo one in the listener's ears (a stereo meter shows such a file
3.01 LU louder). A sound shorter than 0.4 s is measured with silence after it up to 0.4 s: its momentary loudness (EBU
Tech 3341). One whose loudness is below the meter's −70 LUFS is measured without weighting and gates: −0.691 dB + its
mean square in decibels. Every sound is amplified by one number, so that its dynamics stay; that number is bounded by a
true peak of −1 dBFS, and by 40 dB, so that a recorder's own noise stays what it is. Silence stays silence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import LOUDEST, Stream, decoders_silent, shown, unmixed
from earmark.collect.study import Study
from earmark.errors import DataError, Problem
from earmark.files import cache_folder, writing

VERSION = 1
"""Of what is kept: raised when a file would come out otherwise."""
PEAK_DB = -1.0
"""Decibels of full scale that no true peak exceeds, where the sound was amplified."""
MOST_GAIN_DB = 40.0
SHORT_S = 0.4
"""Seconds of the meter's block."""
RATES = (8_000, 48_000)
"""Hz: a sound of another rate is brought to the upper one, which every browser plays."""
MOST_CHANNELS = 2
"""More are averaged."""
MOST_BYTES = (4 << 30) - (1 << 16)
"""Bytes of sound in a WAV file, whose header counts to 4 GiB."""
WAV = {"subtype": "PCM_16", "format": "WAV"}
Progress = Callable[[str, int, int], None]
Block = NDArray[np.float32]
_alone = threading.Lock()
"""One conversion at a time: more would only wait for each other."""


@dataclass(frozen=True)
class Level:
    """What was measured of a sound."""

    lufs: float
    """Its loudness, −inf where it is silent."""
    peak: float
    """The largest true peak, full scale 1."""

    def gain(self, target_lufs: float) -> float:
        """What every sample is multiplied by."""
        if not self.peak > 0:
            return 1.0
        decibels = min(target_lufs - self.lufs, PEAK_DB - 20 * math.log10(self.peak), MOST_GAIN_DB)
        return float(10 ** (decibels / 20))


def playable(study: Study, progress: Progress | None = None) -> tuple[Study, list[Problem]]:
    """The study with every sound converted, without the clips that cannot be; those are told.

    A page whose clips all cannot be is left out.
    """
    broken: dict[str, str] = {}
    sounds = sorted({item.path: item for page in study.pages for item in page.items}.items())
    for done, (path, item) in enumerate(sounds, start=1):
        try:
            matched(study.sound(item), study.settings.loudness_lufs)
        except DataError as error:
            broken[path] = str(error)
        if progress:
            progress("matching loudness", done, len(sounds))
    if not broken:
        return study, []
    kept = [
        dataclasses.replace(page, items=tuple(item for item in page.items if item.path not in broken))
        for page in study.pages
    ]
    pages = tuple(page for page in kept if page.items)
    problems = [Problem(path, f"{what} The clip is left out of its pages.") for path, what in broken.items()]
    return dataclasses.replace(study, pages=pages, problems=(*study.problems, *problems)), problems


def matched(path: Path, target_lufs: float) -> Path:
    """The sound as a WAV file of that loudness, from the cache where it stands there.

    Raises `DataError` where the file holds no sound, or too much.
    """
    found = kept(path, target_lufs)
    if found is not None:
        return found
    place = _place(path, target_lufs)
    with _alone:
        if not place.exists():
            with decoders_silent():
                gain = level(path).gain(target_lufs)
                with writing(place) as aside:
                    _write(path, gain, aside)
    return place


def kept(path: Path, target_lufs: float) -> Path | None:
    """The same, where it stands in the cache already. Raises `DataError` where the file is not there."""
    place = _place(path, target_lufs)
    return place if place.exists() else None


def _place(path: Path, target_lufs: float) -> Path:
    """Where the sound is kept: by its path, size and time of change."""
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be read ({error.strerror}). Check the path.") from error
    told = f"{VERSION} {target_lufs!r} {state.st_size} {state.st_mtime_ns} ".encode() + os.fsencode(path)
    key = hashlib.sha256(told).hexdigest()[:32]
    return cache_folder() / "matched" / key[:2] / f"{key}.wav"


def level(path: Path) -> Level:
    """Loudness and peak of a sound file. Raises `DataError` where it holds no sound."""
    from earmark.analyse.clips import Loudness  # which brings torch

    with _two_channels(path) as sound:
        meter = Loudness(sound.rate, sound.channels, peaks=True)
        frames, energy, peak = 0, 0.0, 0.0
        for block in sound.blocks:
            meter.add(block)
            frames += len(block)
            energy += float(np.square(block, dtype=np.float64).mean(axis=1).sum())
            peak = max(peak, float(np.abs(block).max()))
    if not frames:
        raise DataError(f"{shown(path)}: no samples; expected a sound.")
    short = math.ceil(SHORT_S * sound.rate) - frames
    if short > 0:
        meter.add(np.zeros((short, sound.channels), np.float32))
    lufs = meter.integrated() - 10 * math.log10(sound.channels)
    if math.isnan(lufs):
        lufs = -0.691 + 10 * math.log10(energy / frames) if energy else -math.inf
    return Level(lufs, max(peak, meter.peak))


def _write(path: Path, gain: float, to: Path) -> None:
    """Writes the sound, every sample times `gain`."""
    import soundfile

    with _two_channels(path) as sound, soundfile.SoundFile(to, "w", sound.rate, sound.channels, **WAV) as out:
        for block in sound.blocks:
            if (out.tell() + len(block)) * sound.channels * 2 > MOST_BYTES:
                raise DataError(f"{shown(path)}: too long to be played here. Cut it into parts.")
            out.write(np.clip(block * np.float32(gain), -1, 1))


@contextmanager
def _two_channels(path: Path) -> Iterator[Stream]:
    """The sound in one or two channels, [frame, channel], finite, at a rate that browsers play."""
    with unmixed(path) as sound:
        channels = sound.channels if sound.channels <= MOST_CHANNELS else 1
        blocks = (_finite(block, channels) for block in sound.blocks)
        if RATES[0] <= sound.rate <= RATES[1]:
            yield Stream(sound.rate, channels, blocks)
        else:
            with closing(_at_rate(blocks, sound.rate, channels)) as brought:
                yield Stream(RATES[1], channels, brought)


def _finite(block: Block, channels: int) -> Block:
    usable = np.where(np.abs(block) <= LOUDEST, block, np.float32(0))  # not a number fails too
    mixed = usable if usable.shape[1] == channels else usable.mean(axis=1, keepdims=True)
    return np.ascontiguousarray(mixed, np.float32)


def _at_rate(blocks: Iterator[Block], rate: int, channels: int) -> Generator[Block]:
    import soxr

    stream = soxr.ResampleStream(rate, RATES[1], channels, dtype="float32")
    nothing = np.empty((0, channels), np.float32)
    for block in chain(blocks, [nothing]):
        if len(out := stream.resample_chunk(block, last=block is nothing).reshape(-1, channels)):
            yield out
