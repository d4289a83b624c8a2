"""Features of clips: how many kinds of sound a clip holds, how evenly in time, how long, loud, bright, noisy, silent.

Entropies are those of the paper's section 5, over the frames of a tagger (`earmark.model.tagging`); everything else is
measured on the decoded mono sound at the file's own rate, in one pass over its blocks, so that an hour needs no more
memory than a minute. What was measured of a sound is kept on disk, by the sound's content and all that decides the
numbers. Undefined is NaN and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from earmark.analyse.features import Features
from earmark.audio import cache, decode
from earmark.data.collection import Clip, Collection
from earmark.data.rows import plain_number
from earmark.errors import ConfigError, Problem
from earmark.model.reading import place_of, read_all
from earmark.model.tagging import FRAMES, Tagger, located
from earmark.model.text_encoders import Progress

ENTROPIES = ("e_time", "e_class", "e_time_normalised", "e_class_normalised")
"""Bits, bits, 0–1, 0–1."""
SIGNAL = ("duration_s", "loudness_lufs", "centroid_hz", "flatness", "silence_share")
"""Seconds, LUFS, Hz, 0–1, 0–1."""
NAMES = (*ENTROPIES, *SIGNAL)
VERSION = 1
"""Of the formulas: raise it whenever one gives other numbers, or users keep getting the old ones."""
WINDOW, HOP = 2048, 1024
"""Samples of a spectrum's frame, and from one to the next."""
FLOOR = 1e-10
"""Of the power spectrum, under the flatness's logarithm."""
LOUDNESS_RATE = 48_000
"""Hz; the rate that BS.1770 states its filters for. At others the same filters differ, at 8 kHz by half a LU."""
LOUDNESS_S = 0.4
"""Seconds of a gating block: a shorter sound has no integrated loudness."""
LOUDNESS_RANGE = (-70.0, 10.0)
"""LUFS: at the lower end all is below the gate, at the upper end the meter's scale ends."""
LONGEST_S = 1e9
"""Seconds of a clip that `duration_s` may state."""
WHY = {
    "e_time": "a tagger that hears nothing",
    "e_class": "a tagger that hears nothing",
    "e_time_normalised": "one frame",
    "e_class_normalised": "a tagger that hears nothing",
    "loudness_lufs": "shorter than 0.4 s, below −70 LUFS or above +10",
    "centroid_hz": "silence throughout",
    "flatness": "silence throughout",
}
"""Feature → what makes it undefined."""


@dataclass(frozen=True)
class ClipSettings:
    """`[clips]` of an analysis."""

    tagger: str = "auto"
    """"auto" ("panns-sed" where its weights are found, else "yamnet"), either name, "none", or a path to weights."""
    silence_db: float = -60.0
    """Decibels of full scale, RMS: a frame below is silent."""

    def __post_init__(self) -> None:
        if not -math.inf < self.silence_db <= 0:
            raise ConfigError(f"silence_db = {self.silence_db}; expected decibels of full scale, 0 or less. Try -60.")


def clip_features(
    collection: Collection, clips: Sequence[Clip], settings: ClipSettings, progress: Progress | None = None
) -> Features:
    """The features `NAMES` of each clip, with the sounds that could not be read.

    A clip without a sound file has NaN, save `duration_s` where its cell of `clips.csv` holds a number. Sounds are
    read by all cores. Raises `ConfigError` where a tagger that the settings name is not found, `DataError` where its
    weights are not its own; without "auto"'s the entropies are NaN, and a note says where they were looked up.
    """
    table = np.full((len(clips), len(NAMES)), np.nan)
    with_sound = [at for at, clip in enumerate(clips) if clip.path]
    soundless = [at for at, clip in enumerate(clips) if not clip.path]
    notes = _without_sound(clips, soundless, table)
    problems: list[Problem] = []
    if with_sound:
        tagger, of_tagger = _tagger(settings.tagger)
        reader = _Reader(tagger, settings.silence_db)
        problems, odd = _read(collection, clips, with_sound, reader, table, progress)
        notes = [of_tagger, *_undefined(table[with_sound], tagger, len(problems)), *odd, *notes]
    return Features({name: table[:, at].copy() for at, name in enumerate(NAMES)}, notes, problems)


def _without_sound(clips: Sequence[Clip], soundless: Sequence[int], table: NDArray[np.float64]) -> list[str]:
    """Puts the stated durations of clips without a sound into the table; notes that count them."""
    if not soundless:
        return []
    cells = {at: clips[at].more.get("duration_s", "") for at in soundless}
    stated = {at: plain_number(cell, 0, LONGEST_S) or None for at, cell in cells.items() if cell}
    for at, seconds in stated.items():
        table[at, NAMES.index("duration_s")] = np.nan if seconds is None else seconds
    broken = [at for at, seconds in stated.items() if seconds is None]
    some = len(soundless) < len(clips)
    which = f"{len(soundless)} of {len(clips)} clips have no sound" if some else "no clip has a sound"
    known = len(stated) - len(broken)
    save = f", save duration_s, which clips.csv states for {known} of them" if known else ""
    notes = [f"{which}: their features are undefined{save}"]
    if broken:
        first = clips[broken[0]]
        notes.append(
            f"duration_s: {len(broken)} cells of clips.csv are undefined, {cells[broken[0]]!r} of clip "
            f"{first.clip_id!r} first; expected seconds above 0, as 3.25"
        )
    return notes


def _tagger(name: str) -> tuple[Tagger | None, str]:
    """The tagger of that name, or None, and what a reader must know of it."""
    if name == "none":
        return None, "entropies: undefined, since the tagger is none"
    try:
        kind, path = located(name)
    except ConfigError as error:
        if name != "auto":
            raise
        return None, f"entropies: undefined, since no tagger was found ({error})"
    return Tagger(kind, path), f"entropies: class probabilities by {kind}, {FRAMES[kind]}"


def _read(
    collection: Collection,
    clips: Sequence[Clip],
    with_sound: Sequence[int],
    reader: _Reader,
    table: NDArray[np.float64],
    progress: Progress | None,
) -> tuple[list[Problem], list[str]]:
    """Puts what was measured of the sounds into the table; sounds that could not be read, and a note of odd ones."""
    problems, odd = [], []
    results = read_all(reader, [place_of(collection, clips[at]) for at in with_sound])
    for done, (at, result) in enumerate(zip(with_sound, results, strict=True), start=1):
        if isinstance(result, cache.Features):
            table[at] = result.windows[0].numpy()
            odd += [f"{clips[at].path}: {what}" for what in result.odd]
        else:
            problems.append(Problem(f"clip {clips[at].clip_id!r}", str(result)))
        if progress:
            progress("reading sounds", done, len(with_sound))
    return problems, [f"{len(odd)} oddities of sounds, {odd[0]} (`earmark data check` lists all)"] if odd else []


def _undefined(read: NDArray[np.float64], tagger: Tagger | None, unreadable: int) -> list[str]:
    """A note a feature that is undefined for some of the sounds that were read."""
    names = [name for name in NAMES if name in WHY and (tagger or name not in ENTROPIES)]
    counts = {name: int(np.isnan(read[:, NAMES.index(name)]).sum()) - unreadable for name in names}
    sounds = len(read) - unreadable
    return [f"{name}: undefined for {n} of {sounds} sounds ({WHY[name]})" for name, n in counts.items() if n]


@dataclass(frozen=True)
class _Reader:
    """Sounds → the features `NAMES`, one float64 vector each, for `read_all`."""

    tagger: Tagger | None
    silence_db: float

    @property
    def made_by(self) -> str:
        """What decides the features: the key of the cache."""
        tagger = self.tagger.made_by if self.tagger else "no tagger"
        return f"clip features {VERSION}: {', '.join(NAMES)}; {tagger}; silence below {self.silence_db!r} dB"

    def read(self, path: Path) -> cache.Features:
        """The features of a sound file. Raises `DataError` where it holds no sound."""
        odd: list[str] = []
        found = signal_features(path, self.silence_db, odd)
        found |= entropies_of(self.tagger.windows(path)) if self.tagger else dict.fromkeys(ENTROPIES, math.nan)
        vector = torch.tensor([found[name] for name in NAMES], dtype=torch.float64)  # the cache keeps the type
        return cache.Features([vector], [found["duration_s"]], odd)


# Entropies


def entropies_of(windows: Iterable[NDArray[np.floating[Any]]]) -> dict[str, float]:
    """`ENTROPIES` of class probabilities [frame, class] that come a window at a time.

    Over time: of the frames' means over classes. Over classes: of the classes' means over frames. Normalised: divided
    by log2 of the number of frames or classes, NaN where that is 1.
    """
    classes: NDArray[np.float64] = np.zeros(1)
    frames: list[NDArray[np.float64]] = []
    for window in windows:
        classes = classes + window.sum(axis=0, dtype=np.float64)
        frames.append(window.mean(axis=1, dtype=np.float64))
    over_time = np.concatenate(frames)
    e_time, e_class = entropy(over_time), entropy(classes)
    return {
        "e_time": e_time,
        "e_class": e_class,
        "e_time_normalised": _share(e_time, len(over_time)),
        "e_class_normalised": _share(e_class, len(classes)),
    }


def entropy(weights: NDArray[np.floating[Any]]) -> float:
    """−Σ p log2 p in bits, p the weights ≥ 0 brought to the sum 1 (paper, section 5); NaN where all are 0."""
    total = weights.sum(dtype=np.float64)
    if not total > 0:
        return math.nan
    p = weights[weights > 0] / total
    return max(0.0, -float((p * np.log2(p)).sum()))


def _share(bits: float, count: int) -> float:
    return min(1.0, bits / math.log2(count)) if count > 1 else math.nan


# The signal


def signal_features(path: Path, silence_db: float, odd: list[str]) -> dict[str, float]:
    """`SIGNAL` of a sound file, read in blocks; what was odd about it is added to `odd`.

    Raises `DataError` where it holds no sound.
    """
    rate = decode.native_rate(path)
    loudness, spectra, samples = Loudness(rate), _Spectra(rate, silence_db), 0
    for block in decode.blocks(path, None, decode.SAMPLES_AT_ONCE / rate, odd):
        loudness.add(block)
        spectra.add(block)
        samples += len(block)
    seconds = samples / rate
    lufs = loudness.integrated()
    return {
        "duration_s": seconds,
        "loudness_lufs": lufs if seconds >= LOUDNESS_S else math.nan,
        **spectra.means(),
    }


class Loudness:
    """Integrated loudness (ITU-R BS.1770-4) of samples that come in blocks, by ffmpeg's ebur128 at 48 kHz.

    Of two channels it is the sum of their energies, as the standard has it.
    """

    def __init__(self, rate: int, channels: int = 1, *, peaks: bool = False) -> None:
        import av

        layout = {1: "mono", 2: "stereo"}[channels]
        self.rate, self.layout, self.samples, self.lufs = rate, layout, 0, math.nan
        self.peak = 0.0
        """The largest true peak of any channel, full scale 1, where `peaks` asks for it."""
        self.graph = av.filter.Graph()
        self.graph.threads = 1
        self.source = self.graph.add_abuffer(sample_rate=rate, format="flt", layout=layout, time_base=Fraction(1, rate))
        meter = self.graph.add("ebur128", f"metadata=1:framelog=quiet{':peak=true' if peaks else ''}")
        self.sink = self.graph.add("abuffersink")
        self.graph.link_nodes(self.source, self.graph.add("aresample", str(LOUDNESS_RATE)), meter, self.sink)
        self.graph.configure()

    def add(self, block: NDArray[np.float32]) -> None:
        """The next samples, [sample] or [sample, channel]."""
        import av

        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), format="flt", layout=self.layout)
        frame.sample_rate, frame.time_base, frame.pts = self.rate, Fraction(1, self.rate), self.samples
        self.samples += len(block)
        self._push(frame)

    def integrated(self) -> float:
        """LUFS, once all samples have passed; NaN where nothing is above the gate, or the meter's scale ends."""
        self._push(None)
        low, high = LOUDNESS_RANGE
        return self.lufs if low < self.lufs < high else math.nan

    def _push(self, frame: Any) -> None:
        import av

        self.source.push(frame)
        while True:
            try:
                measured = self.sink.pull().metadata
            except (av.BlockingIOError, av.EOFError):  # it wants more, or has given all
                return
            self.lufs = float(measured.get("lavfi.r128.I", self.lufs))
            self.peak = max(self.peak, float(measured.get("lavfi.r128.true_peak", 0.0)))


class _Spectra:
    """Centroid, flatness and silence, frame by frame, of mono samples that come in blocks.

    Frames of 2048 samples every 1024, each centred on its time (silence at both ends, as librosa has it).
    """

    def __init__(self, rate: int, silence_db: float) -> None:
        self.hz = np.fft.rfftfreq(WINDOW, 1 / rate)
        self.hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
        self.silent_rms = 10 ** (silence_db / 20)
        self.waiting = np.zeros(HOP)
        self.ahead = HOP
        """Samples of `waiting` that are not the sound's own."""
        self.frames = self.silent = self.heard = 0
        self.centroids = self.flatnesses = 0.0

    def add(self, block: NDArray[np.float32]) -> None:
        """The next samples."""
        samples = np.concatenate([self.waiting, block])
        count = max(0, (len(samples) - WINDOW) // HOP + 1)
        if count:
            own = np.full(count, WINDOW)
            own[0] -= self.ahead
            self._measure(np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP][:count], own)
            self.ahead = 0
        self.waiting = samples[count * HOP :]

    def means(self) -> dict[str, float]:
        """Mean centroid in Hz, mean flatness, and the share of silent frames, once all samples have passed.

        The means are over the frames that are not silent, NaN where all are.
        """
        last = np.concatenate([self.waiting, np.zeros(HOP)])[:WINDOW]
        self._measure(last[None], np.array([len(self.waiting) - self.ahead]))
        centroid, flatness = (
            total / self.heard if self.heard else math.nan for total in (self.centroids, self.flatnesses)
        )
        return {"centroid_hz": centroid, "flatness": flatness, "silence_share": self.silent / self.frames}

    def _measure(self, frames: NDArray[np.float64], own: NDArray[np.int_]) -> None:
        """Adds frames [frame, sample], of whose samples so many are the sound's own: silence at its ends is not."""
        energy = np.square(frames).sum(axis=1)
        silent = (np.sqrt(energy / own) < self.silent_rms) | (energy == 0)
        self.frames += len(frames)
        self.silent += int(silent.sum())
        magnitude = np.abs(np.fft.rfft(frames[~silent] * self.hann))  # [frame, bin]
        magnitude = magnitude[magnitude.any(axis=1)]  # a click at a frame's very start is under the window's 0
        self.heard += len(magnitude)
        self.centroids += float((magnitude @ self.hz / magnitude.sum(axis=1)).sum())
        power = np.maximum(np.square(magnitude), FLOOR)
        self.flatnesses += float((np.exp(np.log(power).mean(axis=1)) / power.mean(axis=1)).sum())
