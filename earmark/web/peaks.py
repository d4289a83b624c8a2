"""Waveforms to draw: the least and the largest sample of each stretch of a sound, from decoded frames.

The decoder's frames tell where a sound is loud, so a drawing stays true to it in files whose length browsers guess.
An `Overview` is made once a file, block by block: whatever the length it has at most `MOST` stretches, since two
neighbours become one whenever there are more. It is kept on disk; what a page gets is `points` pairs of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import Samples, blocks, native_rate
from earmark.errors import ConfigError
from earmark.files import cache_folder, writing

VERSION = 1
"""Of what is kept: raised when an overview would come out otherwise."""
MOST = 1 << 18
"""Stretches of an overview: of 0.5 ms up to two minutes of sound, of 32 ms at two hours; 0.5 MB at most."""
FINEST_S = 0.0005
"""Seconds of a stretch, at first."""
MOST_POINTS = 1000
LEVEL = 127
"""An overview's number for full scale."""


@dataclass(frozen=True)
class Overview:
    """A whole sound in few numbers."""

    pairs: NDArray[np.int8]
    """[stretch, 2]: the least and the largest sample, full scale ±127."""
    step: int
    """Samples of a stretch; the last one may be shorter."""
    samples: int
    """Of the whole sound."""
    rate: int
    """Hz."""

    @property
    def duration_s(self) -> float:
        """Seconds of the whole sound."""
        return self.samples / self.rate


@dataclass(frozen=True)
class Peaks:
    """What is drawn."""

    start_s: float
    end_s: float
    pairs: NDArray[np.float32]
    """[point, 2]: the least and the largest sample, −1 to 1, of equal shares of the time from `start_s` to `end_s`."""


def overview_of(pieces: Iterable[Samples], rate: int, most: int = MOST) -> Overview:
    """The overview of consecutive pieces of a sound, [sample] each."""
    step = max(1, round(FINEST_S * rate))
    done = np.empty((0, 2), np.int8)
    rest = np.empty(0, np.float32)
    samples = 0
    for piece in pieces:
        samples += len(piece)
        rest = np.concatenate([rest, piece])
        whole = len(rest) // step * step
        done = np.concatenate([done, _least_and_largest(rest[:whole].reshape(-1, step))])
        rest = rest[whole:]
        while len(done) > most - 1:  # one place for the rest
            odd = len(done) % 2  # an odd one out would shift what follows: it is put back once its partner comes
            assert not odd or len(done) > 1
            done, spare = done[: len(done) - odd], done[len(done) - odd :]
            done = np.stack([done[:, 0].reshape(-1, 2).min(1), done[:, 1].reshape(-1, 2).max(1)], axis=1)
            rest = np.concatenate([_stand_in(spare, step), rest])
            step *= 2
    if len(rest):
        done = np.concatenate([done, _least_and_largest(rest[None])])
    return Overview(done, step, samples, rate)


def _stand_in(spare: NDArray[np.int8], step: int) -> Samples:
    """Samples that have the spare stretch's least and largest."""
    if not len(spare):
        return np.empty(0, np.float32)
    out = np.full(step, spare[0, 0] / LEVEL, np.float32)
    out[-1] = spare[0, 1] / LEVEL
    return out


def _least_and_largest(table: Samples) -> NDArray[np.int8]:
    """[stretch, 2] of [stretch, sample]."""
    both = np.stack([table.min(axis=1), table.max(axis=1)], axis=1) if len(table) else np.empty((0, 2), np.float32)
    out: NDArray[np.int8] = np.rint(np.clip(both, -1, 1) * LEVEL).astype(np.int8)
    return out


def peaks(whole: Overview, start_s: float = 0.0, end_s: float | None = None, points: int = MOST_POINTS) -> Peaks:
    """`points` pairs of the region, fewer where it has fewer stretches; what lies outside the sound is left off.

    Raises `ConfigError` where the region is empty, or the points are not 1 to 1,000.
    """
    end_s = whole.duration_s if end_s is None else min(end_s, whole.duration_s)
    if not 0 <= start_s < end_s:
        raise ConfigError(f"from {start_s:g} s to {end_s:g} s; expected a part of 0 to {whole.duration_s:g} s.")
    if not 1 <= points <= MOST_POINTS:
        raise ConfigError(f"points = {points}; expected 1 to {MOST_POINTS:,}.")
    first = int(start_s * whole.rate / whole.step)
    last = min(len(whole.pairs), max(first + 1, int(np.ceil(end_s * whole.rate / whole.step))))
    edges = np.linspace(first, last, min(points, last - first) + 1)[:-1].astype(np.int64)
    part = whole.pairs[:last]
    least, largest = np.minimum.reduceat(part[:, 0], edges), np.maximum.reduceat(part[:, 1], edges)
    pairs = np.stack([least, largest], axis=1).astype(np.float32) / np.float32(LEVEL)
    end = min(last * whole.step, whole.samples) / whole.rate
    return Peaks(first * whole.step / whole.rate, end, pairs)


def overview(path: Path, held: Path | None = None) -> Overview:
    """The overview of a file, from the cache where it stands there. Raises `DataError` where it holds no sound.

    `held` is another path that leads to the same file, to read it by (/proc/self/fd/9).
    """
    kept = _place(path, held)
    found = _kept(kept)
    if found is None:
        found = overview_of(blocks(held or path, seconds=10.0), native_rate(held or path))
        with writing(kept) as aside, aside.open("wb") as file:
            np.savez(file, pairs=found.pairs, about=np.array([found.step, found.samples, found.rate], np.int64))
    return found


def _place(path: Path, held: Path | None = None) -> Path:
    """Where the overview of a file is kept: by its path, size and time of change."""
    state = (held or path).stat()
    told = f"{VERSION} {state.st_size} {state.st_mtime_ns} ".encode() + os.fsencode(path)
    key = hashlib.sha256(told).hexdigest()[:32]
    return cache_folder() / "peaks" / key[:2] / f"{key}.npz"


def _kept(place: Path) -> Overview | None:
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            step, samples, rate = (int(number) for number in arrays["about"])
            return Overview(arrays["pairs"], step, samples, rate)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
