"""Sound in: any file that soundfile or PyAV reads → mono float32 samples, and what was odd about it.

Channels are averaged; soxr brings the samples to the wanted rate. What a file is is told from its content,
never from its name. Files are streamed: `blocks` needs no more memory for two hours than for two minutes, and
`load` is the same blocks in one array, bit for bit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio.headers import declared_frames, not_sound
from earmark.errors import DataError

if TYPE_CHECKING:
    import soundfile

Samples = NDArray[np.float32]
Name = str | bytes | Path

FRAMES_AT_ONCE = 1 << 17
"""Frames that are decoded together: 0.5 MB a channel."""
SHORT_BY_S = 0.1
"""A file that ends so much before the length that it states is reported (lossy formats state it roughly)."""


@dataclass(frozen=True)
class Sound:
    """A decoded file."""

    samples: Samples
    """Mono, [sample], full scale ±1."""
    rate: int
    """Hz."""
    problems: tuple[str, ...] = ()
    """What was odd, a short sentence each: truncated, above full scale, silent, not finite."""
    channels: int = 1
    """Of the file."""
    native_rate: int = 0
    """Of the file, Hz."""


@dataclass
class _Stream:
    """A file that is being decoded."""

    rate: int
    channels: int
    declared: float
    """Frames that the file states, or 0 where it states none."""
    chunks: Iterator[NDArray[np.floating[Any]]]
    """[frame, channel], as they come; ends early where the data does."""
    exact: bool
    """Whether the stated length is exact."""
    stopped: str = ""
    """Why decoding ended early, where the decoder said so."""


def load(path: Name, rate: int | None = None) -> Sound:
    """The whole sound, at `rate` Hz or at the file's own.

    Raises `DataError`, in one line that names the file and the cause, where it holds no sound.
    """
    problems: list[str] = []
    with closing(_stream(path, rate, problems)) as pieces:
        native_rate, channels = next(pieces)
        samples = list(pieces)
    joined = np.concatenate(samples)
    return Sound(joined, rate or native_rate, tuple(problems), channels, native_rate)


def blocks(
    path: Name, rate: int | None = None, seconds: float = 10.0, problems: list[str] | None = None
) -> Iterator[Samples]:
    """Consecutive blocks of `seconds`, the last one shorter and never empty; together they are `load`'s samples.

    `problems` is a list to which what was odd is added by the time the last block has come. Raises as `load`.
    """
    with closing(_stream(path, rate, [] if problems is None else problems)) as pieces:
        native_rate, _ = next(pieces)
        size = max(1, round(seconds * (rate or native_rate)))
        waiting = np.zeros(0, np.float32)
        for piece in pieces:
            waiting = np.concatenate([waiting, piece])
            whole = len(waiting) // size * size
            for start in range(0, whole, size):
                yield waiting[start : start + size]
            waiting = waiting[whole:]
        if len(waiting):
            yield waiting


def resampled(samples: NDArray[Any], rate: int, to: int) -> Samples:
    """Samples [sample] or [sample, channel] at `rate` Hz as mono float32 at `to` Hz.

    Raises `DataError` where they are empty, of another shape, or not finite.
    """
    if samples.ndim not in (1, 2) or not samples.size or rate < 1:
        raise DataError(f"waveform of shape {samples.shape} at {rate} Hz; expected [sample] or [sample, channel].")
    if not np.isfinite(samples).all():
        raise DataError("waveform: samples that are not finite. Mend them before embedding.")
    mono = samples.mean(axis=1) if samples.ndim == 2 else samples
    if np.issubdtype(mono.dtype, np.integer):
        mono = mono / np.iinfo(mono.dtype).max
    mono = mono.astype(np.float32)
    if rate == to:
        return mono
    import soxr

    out: Samples = soxr.resample(mono, rate, to, quality="HQ").astype(np.float32)
    return out


# The stream behind both


def _stream(path: Name, rate: int | None, problems: list[str]) -> Iterator[Any]:
    """First (native rate, channels), then mono float32 pieces at `rate`, none empty."""
    if rate is not None and rate < 1:
        raise DataError(f"rate {rate} Hz; expected 1 or more.")
    where = shown(path)
    with _opened(path, where) as file:
        stream = _decoder(file, path, where)
        yield stream.rate, stream.channels
        counted = _Counted(stream)
        pieces = _at_rate(counted.mono(), stream.rate, rate or stream.rate)
        some = False
        for piece in pieces:
            some = True
            yield piece
        if not some:
            reason = f" ({stream.stopped})" if stream.stopped else ""
            raise DataError(f"{where}: no audio decoded{reason}; the file holds 0 samples. Leave it out.")
        problems.extend(counted.problems())


class _Counted:
    """A stream's frames made mono and finite, and what was seen on the way."""

    def __init__(self, stream: _Stream) -> None:
        self.stream = stream
        self.frames = 0
        self.not_finite = 0
        self.peak = 0.0

    def mono(self) -> Iterator[Samples]:
        """The mean of the channels, [frame]; samples that are not finite become 0."""
        for chunk in self.stream.chunks:
            if not len(chunk):
                continue
            finite = np.isfinite(chunk)
            if not finite.all():
                self.not_finite += int(chunk.size - finite.sum())
                chunk = np.where(finite, chunk, np.zeros((), chunk.dtype))
            self.frames += len(chunk)
            self.peak = max(self.peak, float(np.abs(chunk).max()))
            mono = chunk[:, 0] if chunk.shape[1] == 1 else chunk.mean(axis=1)
            yield np.ascontiguousarray(mono, dtype=np.float32)

    def problems(self) -> list[str]:
        """What was odd, once all frames have passed."""
        stream, found = self.stream, []
        missing = stream.declared - self.frames
        tolerance = 0.5 if stream.exact else SHORT_BY_S * stream.rate
        if stream.declared and missing > tolerance:
            stated = stream.declared / stream.rate
            found.append(f"truncated: {self.frames / stream.rate:.2f} s decoded, the file states {stated:.2f} s")
        elif stream.declared and stream.exact and missing < -tolerance:
            found.append(
                f"wrong length in the header: it states {stream.declared:.0f} frames, the file holds {self.frames}"
            )
        elif stream.stopped:
            found.append(f"decoding stopped after {self.frames / stream.rate:.2f} s: {stream.stopped}")
        if self.not_finite:
            found.append(f"{self.not_finite} samples are not finite; they were set to 0")
        if self.peak == 0:
            found.append("silent: every sample is 0")
        if self.peak > 1.0 + 1e-3:
            found.append(f"peaks at {self.peak:.3g}, above full scale")
        return found


def _at_rate(pieces: Iterator[Samples], rate: int, to: int) -> Iterator[Samples]:
    if rate == to:
        yield from pieces
        return
    import soxr

    resampler = soxr.ResampleStream(rate, to, 1, dtype="float32", quality="HQ")
    for piece in pieces:
        out = resampler.resample_chunk(piece)
        if len(out):
            yield out
    rest = resampler.resample_chunk(np.zeros(0, np.float32), last=True)
    if len(rest):
        yield rest


# Opening


def shown(path: Name) -> str:
    """The name as messages and JSON can hold it: bytes that are not UTF-8 are escaped."""
    return os.fsdecode(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _opened(path: Name, where: str) -> IO[bytes]:
    """The file, open for reading. Raises `DataError` with the true cause where it cannot hold sound."""
    try:
        state = os.stat(path)  # noqa: PTH116  (bytes names too)
        if stat.S_ISDIR(state.st_mode):
            raise DataError(f"{where}: a folder; expected a sound file.")
        if not stat.S_ISREG(state.st_mode):
            raise DataError(f"{where}: not a regular file; expected a sound file.")
        file = open(path, "rb")  # noqa: SIM115, PTH123
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"{where}: cannot be read ({reason}). Check the path.") from error
    head = file.read(4096)
    file.seek(0)
    if reason := not_sound(head):
        file.close()
        raise DataError(f"{where}: {reason}. Leave it out, or put the sound there.")
    return file


def _decoder(file: IO[bytes], path: Name, where: str) -> _Stream:
    """The stream of the first decoder that reads the file: soundfile, then PyAV."""
    import soundfile

    declared = declared_frames(file)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    try:
        return _by_soundfile(soundfile.SoundFile(file.fileno(), closefd=False), declared)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        first = str(error).strip().removesuffix(".").split(": ", 1)[-1]
    import av

    file.seek(0)
    name = os.fsdecode(os.path.abspath(path))  # noqa: PTH100  (bytes names too)
    try:
        # by name where it can be said in UTF-8: PyAV's own reading stands more than its reading of Python's files
        return _by_pyav(file if name != shown(name) else f"file:{name}")
    except (av.FFmpegError, OSError, ValueError, LookupError) as error:
        second = _reason(error)
        raise DataError(f"{where}: no sound that can be decoded (soundfile: {first}; PyAV: {second}).") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).splitlines()[0]


def _by_soundfile(sound: soundfile.SoundFile, declared: float | None) -> _Stream:
    if sound.samplerate < 1 or sound.channels < 1:
        raise ValueError(f"rate {sound.samplerate} Hz, {sound.channels} channels")
    exact = sound.format not in ("MP3", "OGG")  # these count the encoder's padding, or guess
    stream = _Stream(sound.samplerate, sound.channels, 0.0, iter(()), exact)
    stream.declared = sound.frames if declared is None else declared
    if not 0 < stream.declared < 1 << 40:  # a streamed file states none, or the largest number there is
        stream.declared = 0.0
    stream.chunks = _soundfile_chunks(sound, stream)
    return stream


def _soundfile_chunks(sound: soundfile.SoundFile, stream: _Stream) -> Iterator[NDArray[np.floating[Any]]]:
    import soundfile

    at_once = max(1, FRAMES_AT_ONCE // stream.channels)
    kind = "float64" if sound.subtype == "DOUBLE" else "float32"  # huge doubles are infinite as float32
    with sound:
        while True:
            try:
                chunk = sound.read(at_once, dtype=kind, always_2d=True)
            except (soundfile.SoundFileError, RuntimeError) as error:
                stream.stopped = str(error).strip().removesuffix(".")
                return
            if not len(chunk):
                return
            yield _in_float32(chunk)


def _in_float32(chunk: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return chunk.astype(np.float32, copy=False)


def _by_pyav(file: IO[bytes] | str) -> _Stream:
    """Raises `LookupError` where the container holds no sound, and what PyAV raises where it cannot be opened."""
    import av

    av.logging.set_level(av.logging.PANIC)
    container = av.open(file, metadata_errors="ignore")
    if not container.streams.audio:
        raise LookupError(f"{container.format.long_name} without a sound track")
    track = container.streams.audio[0]
    if not getattr(track, "rate", 0) or not getattr(track, "channels", 0):
        raise LookupError("a sound track whose codec is not known")
    length = float(track.duration * track.time_base) if track.duration and track.time_base else 0.0
    stream = _Stream(track.rate, track.channels, length * track.rate, iter(()), exact=False)
    stream.chunks = _pyav_chunks(container, track, stream)
    return stream


def _pyav_chunks(container: Any, track: Any, stream: _Stream) -> Iterator[NDArray[np.float32]]:
    import av

    same = av.AudioResampler(format="fltp", layout=track.layout, rate=track.rate)  # of format, not of rate
    waiting: list[NDArray[np.float32]] = []
    size = 0
    with container:
        packets = container.demux(track)
        while True:
            try:
                packet = next(packets, None)
                frames = [] if packet is None else packet.decode()
            except (av.FFmpegError, OSError, ValueError) as error:
                # a broken packet ends the sound: what follows it would stand at the wrong time
                stream.stopped = _reason(error)
                break
            for frame in frames:
                for part in same.resample(frame):
                    waiting.append(part.to_ndarray().T)
                    size += len(waiting[-1])
            if size >= FRAMES_AT_ONCE:
                yield np.concatenate(waiting)
                waiting, size = [], 0
            if packet is None:
                break
    if size:
        yield np.concatenate(waiting)
