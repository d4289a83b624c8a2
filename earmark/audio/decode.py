"""Sound in: any file that soundfile or PyAV reads → mono float32 samples, and what was odd about it.

Channels are averaged; soxr brings the samples to the wanted rate. What a file is is told from its content,
never from its name. Files are streamed: `blocks` needs no more memory for two hours than for two minutes, and
`load` is the same blocks in one array, bit for bit. Samples that are not finite, or that no sound has
(beyond ±`LOUDEST`), become 0 and are reported.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from earmark.audio.headers import Header, not_sound, read_header
from earmark.errors import ConfigError, DataError

Samples = NDArray[np.float32]
Name = str | bytes | Path

SAMPLES_AT_ONCE = 1 << 17
"""Samples, of all channels together, that are decoded or resampled at once: 0.5 MB."""
LOUDEST = 1e10
"""Full scale is 1, integers kept as floats reach 2^31; beyond, energies would overflow float32."""
RATES = (50, 10_000_000)
"""Hz: a header that states a rate outside is damaged."""
SHORT_BY_S = 0.1
"""A file that ends so much before the length that it states is reported (lossy formats state it roughly)."""
SHORT_BY_FRAMES = 4 * 1152
"""The same, in frames: what encoders pad."""
MOST_CHANNELS = 64
"""A table of more channels than that, and than samples, lies on its side."""
MOST_BROKEN = 100
"""Broken packets that are passed over at a file's start."""
GUESSING = ("aac", "ac3", "eac3", "dts", "mp3", "amr", "loas", "mpegts", "mpeg", "truehd")
"""Containers of PyAV whose length is guessed from the bit rate."""


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
    exact: bool
    """Whether the stated length is exact."""
    chunks: Iterator[Samples] = field(default_factory=lambda: iter(()))
    """[frame, channel], as they come, none empty; ends early where the data does."""
    stopped: str = ""
    """Why decoding ended early, where the decoder said so."""
    odd: list[str] = field(default_factory=list)
    """What is odd in the header or at the start."""


def load(path: Name, rate: int | None = None) -> Sound:
    """The whole sound, at `rate` Hz or at the file's own.

    Raises `DataError`, in one line that names the file and the cause, where it holds no sound.
    """
    problems: list[str] = []
    rate = None if rate is None else _whole_rate(rate)
    with closing(_pieces(path, rate, problems)) as pieces:
        native_rate, channels = next(pieces)
        samples = list(pieces)
    joined = samples[0] if len(samples) == 1 else np.concatenate(samples)
    return Sound(joined, rate or native_rate, tuple(problems), channels, native_rate)


def native_rate(path: Name) -> int:
    """Hz of the file, and of the `blocks` for which no rate is asked; only its head is read. Raises as `load`."""
    with closing(_pieces(path, None, [])) as pieces:
        return int(next(pieces)[0])


class Stream(NamedTuple):
    """A file that is being read."""

    rate: int
    """Of the file, Hz."""
    channels: int
    """Of the file."""
    blocks: Iterator[Samples]
    """As `blocks` gives them, at the file's own rate."""


class _Silent:
    """How many blocks of `decoders_silent` are at work, and what the first of them put aside."""

    lock = threading.Lock()
    blocks = 0
    aside: tuple[int, TextIO | None] = -1, None


@contextmanager
def decoders_silent() -> Iterator[None]:
    """Within the block what libraries of C write to standard error is dropped; what Python writes there arrives.

    libmpg123 complains of a file without its name; what is wrong with it, decoding tells itself. It is so for the whole
    process: blocks may lie within each other, and threads may be in several, the last of which sets it back.
    """
    with _Silent.lock:
        entered = int(_Silent.blocks > 0 or _put_aside())
        _Silent.blocks += entered
    try:
        yield
    finally:
        with _Silent.lock:
            _Silent.blocks -= entered
            if entered and not _Silent.blocks:
                real, before = _Silent.aside
                os.dup2(real, 2)
                os.close(real)
                sys.stderr = before


def _put_aside() -> bool:
    """Whether there is a standard error, which then leads to nothing but for Python."""
    try:
        own, real, nowhere = _own_stderr(), os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return False
    _Silent.aside = real, sys.stderr
    with suppress(AttributeError, OSError, ValueError):  # it is no file, or closed
        sys.stderr = own if sys.stderr.fileno() == 2 else sys.stderr
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return True


@lru_cache(maxsize=1)
def _own_stderr() -> TextIO:
    """Standard error for Python alone; never closed, since a progress bar's thread may write there at any time."""
    return open(os.dup(2), "w", 1, errors="backslashreplace", closefd=False)


@contextmanager
def streamed(path: Name, seconds: float, problems: list[str]) -> Iterator[Stream]:
    """The file, its rate and channels known before its samples. Raises as `load`, at the start and between blocks."""
    with closing(_pieces(path, None, problems)) as pieces:
        rate, channels = next(pieces)
        yield Stream(rate, channels, _regrouped(pieces, max(1, round(seconds * rate))))


@contextmanager
def unmixed(path: Name) -> Iterator[Stream]:
    """The file with its channels: its `blocks` are [frame, channel], as the decoder gives them. Raises as `load`."""
    with opened(path) as file:
        stream = _decoded(file, path, shown(path))
        yield Stream(stream.rate, stream.channels, stream.chunks)


def blocks(
    path: Name, rate: int | None = None, seconds: float = 10.0, problems: list[str] | None = None
) -> Iterator[Samples]:
    """Consecutive blocks of `seconds`, the last one shorter and never empty; together they are `load`'s samples.

    `problems` is a list to which what was odd is added by the time the last block has come. Raises as `load`, when
    the first block is asked for.
    """
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"blocks of {seconds} s; expected more than 0.")
    rate = None if rate is None else _whole_rate(rate)
    with closing(_pieces(path, rate, [] if problems is None else problems)) as pieces:
        native_rate, _ = next(pieces)
        yield from _regrouped(pieces, max(1, round(seconds * (rate or native_rate))))


def resampled(samples: NDArray[Any], rate: int, to: int) -> Samples:
    """Samples [sample] or [sample, channel] at `rate` Hz as mono float32 at `to` Hz, as `load` would give them.

    Integers are brought to ±1, by the full scale of their type. Raises `DataError` where samples are none, of another
    shape or type, or not finite.
    """
    rate, to = _whole_rate(rate), _whole_rate(to)
    samples = _as_floats(np.asarray(samples))
    peak = float(np.abs(samples).max())
    if not peak <= LOUDEST:
        raise DataError("waveform: samples that are not finite. Mend them before embedding.")
    table = (samples if samples.ndim == 2 else samples[:, None]).astype(np.float32, copy=False)
    out = list(_at_rate(_cut(_mono(table)), rate, to))
    return out[0] if len(out) == 1 else np.concatenate(out)


def _as_floats(samples: NDArray[Any]) -> NDArray[Any]:
    """[sample] or [sample, channel] with full scale ±1. Raises `DataError` where they are no such thing."""
    shape, kind = samples.shape, samples.dtype
    if samples.ndim not in (1, 2) or not samples.size:
        raise DataError(f"waveform of shape {shape}; expected [sample] or [sample, channel].")
    if samples.ndim == 2 and shape[1] > max(shape[0], MOST_CHANNELS):
        raise DataError(f"waveform of shape {shape}; expected [sample, channel]. Transpose it.")
    if kind.kind == "f":
        return samples
    if kind.kind not in "iu" or kind.itemsize > 4:  # nobody uses the full scale of 64 bits: all would be silence
        raise DataError(f"waveform of {kind}; expected floats within ±1, or integers of 8 to 32 bits.")
    half = 2.0 ** (8 * kind.itemsize - 1)
    floats: NDArray[Any] = samples / half - (1.0 if kind.kind == "u" else 0.0)
    return floats


def windows(samples: int, window: int, hop: int) -> list[tuple[int, int]]:
    """(start, stop) of the windows that cover so many samples, every `hop`, the last one ending where the sound does.

    Each window stands once: a sound whose length is on the grid gets no further one, and none is empty. A sound
    shorter than a window is one window. With hop = window every sample is in exactly one.
    """
    if samples < 1 or not 1 <= hop <= window:
        raise ConfigError(f"windows of {window} every {hop} over {samples} samples; expected 1 ≤ hop ≤ window.")
    return [(start, min(start + window, samples)) for start in range(0, max(1, samples - window + hop), hop)]


def shown(path: Name) -> str:
    """The name in one line as messages and JSON can hold it: bytes that are not UTF-8 and line breaks are escaped."""
    name = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(mark if mark.isprintable() or mark == " " else repr(mark)[1:-1] for mark in name)


# From chunks of frames to blocks of samples


def _pieces(path: Name, rate: int | None, problems: list[str]) -> Generator[Any, None, None]:
    """First (native rate, channels), then mono float32 pieces at `rate`, at least one and none empty."""
    where = shown(path)
    with opened(path) as file:
        stream = _decoded(file, path, where)
        yield stream.rate, stream.channels
        heard = _Heard()
        yield from _at_rate(heard.mono(stream.chunks), stream.rate, rate or stream.rate)
        problems.extend(filter(None, [*stream.odd, _length_problem(stream, heard.frames), *heard.problems()]))


def _whole_rate(rate: float) -> int:
    """The rate as a whole number of Hz. Raises `ConfigError` where it is none that a sound has."""
    whole = isinstance(rate, (int, float, np.integer, np.floating)) and RATES[0] <= rate <= RATES[1]
    if not whole or rate != int(rate):  # soxr would never return from one that is not a number
        raise ConfigError(f"rate {rate!r} Hz; expected a whole number, {RATES[0]} to {RATES[1]:,}.")
    return int(rate)


class _Heard:
    """What was seen of the samples on their way."""

    def __init__(self) -> None:
        self.frames = 0
        self.not_finite = 0
        self.peak = 0.0
        self.sounds = False
        """Whether any sample of the mean of the channels is not 0."""

    def mono(self, chunks: Iterable[Samples]) -> Iterator[Samples]:
        """The mean of the channels, [frame], in pieces; samples that are not finite become 0."""
        for chunk in chunks:
            peak = max(float(chunk.max()), -float(chunk.min()))
            if not peak <= LOUDEST:  # not a number fails too
                usable = np.abs(chunk) <= LOUDEST
                self.not_finite += int(chunk.size - usable.sum())
                chunk = np.where(usable, chunk, np.float32(0))
                peak = float(np.abs(chunk).max())
            self.frames += len(chunk)
            self.peak = max(self.peak, peak)
            mono = _mono(chunk)
            self.sounds = self.sounds or bool(mono.any())
            yield mono

    def problems(self) -> list[str]:
        """What was odd, once all frames have passed."""
        found = []
        if self.not_finite:
            found.append(f"not finite: {self.not_finite} samples, set to 0")
        if self.peak == 0:
            found.append("silent: every sample is 0")
        elif not self.sounds:
            found.append("silent: the channels cancel each other")
        if self.peak > 1.0 + 1e-3:
            found.append(f"clipping: peaks at {self.peak:.3g}, above full scale")
        return found


def _length_problem(stream: _Stream, frames: int) -> str:
    """How the decoded length differs from the stated one, or that the decoder gave up; empty where nothing is odd."""
    missing, decoded_s = stream.declared - frames, frames / stream.rate
    tolerance = 0.5 if stream.exact else max(SHORT_BY_S * stream.rate, SHORT_BY_FRAMES)
    why = f" ({stream.stopped})" if stream.stopped else ""
    if stream.declared and missing > tolerance:
        stated_s = stream.declared / stream.rate
        return f"truncated: {decoded_s:.2f} s decoded, the file states {stated_s:.2f} s{why}"
    if stream.declared and stream.exact and missing < -tolerance:
        return f"wrong length: the header states {stream.declared:.0f} frames, the file holds {frames}"
    if stream.stopped and not stream.declared:
        return f"truncated: decoding stopped after {decoded_s:.2f} s{why}"
    return ""


def _mono(chunk: Samples) -> Samples:
    """The mean of the channels of [frame, channel]; column by column, which is fastest."""
    mono = np.ascontiguousarray(chunk[:, 0])
    if chunk.shape[1] == 1:
        return mono
    mono = mono + chunk[:, 1]
    for channel in range(2, chunk.shape[1]):
        mono += chunk[:, channel]
    mono *= np.float32(1 / chunk.shape[1])
    return mono


def _at_rate(pieces: Iterable[Samples], rate: int, to: int) -> Iterator[Samples]:
    """The pieces at the rate `to`; some sound always comes where some went in."""
    if rate == to:
        yield from pieces
        return
    import soxr

    resampler = soxr.ResampleStream(rate, to, 1, dtype="float32", quality="HQ")
    at_once = max(1, SAMPLES_AT_ONCE * rate // max(rate, to))
    came = went = 0
    for piece in chain.from_iterable(_cut(piece, at_once) for piece in pieces):
        came += len(piece)
        out = resampler.resample_chunk(piece)
        went += len(out)
        if len(out):
            yield out
    # a sound shorter than one sample of the new rate is lengthened by silence to be one
    rest = resampler.resample_chunk(np.zeros(max(0, -(-rate // to) - came), np.float32), last=True)
    if len(rest) or not went:
        yield rest if len(rest) else np.zeros(1, np.float32)


def _cut(samples: Samples, size: int = SAMPLES_AT_ONCE) -> Iterator[Samples]:
    return (samples[start : start + size] for start in range(0, len(samples), size))


def _regrouped(pieces: Iterable[Samples], size: int) -> Iterator[Samples]:
    """The same samples in arrays of `size`, the last one shorter."""
    waiting: list[Samples] = []
    missing = size
    for piece in pieces:
        while len(piece) >= missing:
            yield np.concatenate([*waiting, piece[:missing]])
            piece, waiting, missing = piece[missing:], [], size
        if len(piece):
            waiting.append(piece)
            missing -= len(piece)
    if waiting:
        yield np.concatenate(waiting)


# From a file to chunks of frames


def opened(path: Name) -> IO[bytes]:
    """The file, open for reading. Raises `DataError` with the true cause where it cannot hold sound."""
    where = shown(path)
    try:
        state = os.stat(path)  # noqa: PTH116  (bytes names too)
        if stat.S_ISDIR(state.st_mode):
            raise DataError(f"{where}: a folder; expected a sound file.")
        if not stat.S_ISREG(state.st_mode):
            raise DataError(f"{where}: not a regular file; expected a sound file.")
        # not buffered: libsndfile moves the descriptor's position behind Python's back
        file = open(path, "rb", buffering=0)  # noqa: SIM115, PTH123
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"{where}: cannot be read ({reason}). Check the path.") from error
    head = file.read(4096)
    if reason := not_sound(head):
        file.close()
        raise DataError(f"{where}: {reason}. Leave it out, or put the sound there.")
    return file


def _decoded(file: IO[bytes], path: Name, where: str) -> _Stream:
    """The stream of the first decoder that finds samples in the file: soundfile, then PyAV.

    Of Ogg streams one behind the other soundfile reads the first alone, and of an MP3 whose bit rate varies and whose
    frames no header counts as many as it guesses: there PyAV has the first word.
    """
    header = read_header(file)
    if header.empty:
        raise DataError(f"{where}: {header.empty}. Leave it out.")
    decoders = [("soundfile", _by_soundfile), ("PyAV", _by_pyav)]
    reasons, odd = [], [header.problem]
    for name, decoder in decoders[::-1] if header.only_pyav else decoders:
        file.seek(0)
        try:
            stream = decoder(file, path, header)
        except _UnreadableError as error:
            reasons.append(f"{name}: {error}")
            continue
        first = next(stream.chunks, None)
        if first is not None:
            if header.only_pyav and name == "soundfile":
                odd.append(header.only_pyav)
            stream.chunks, stream.odd = chain([first], stream.chunks), [*odd, *stream.odd]
            return stream
        if stream.stopped:
            odd.append(f"damaged: {name} gave up ({stream.stopped})")
        reasons.append(f"{name}: 0 samples{f', {stream.stopped}' if stream.stopped else ''}")
    raise DataError(
        f"{where}: no audio decoded from {header.form} ({'; '.join(reasons)}). Leave it out, or convert it."
    )


class _UnreadableError(Exception):
    """Why a decoder cannot read the file at all."""


def _reason(error: Exception) -> str:
    """A decoder's complaint in a few words, without the file's name."""
    said = str(getattr(error, "strerror", None) or error or type(error).__name__)
    if "possibly a pipe" in said:  # which it is not: libsndfile says so where it finds no MPEG frames
        return "no MPEG frames found"
    return " ".join(re.sub(r"^Error : |^.*?Error opening \S+: |; last error log.*$", "", said).split()).strip(" .")


def _check_format(rate: int, channels: int) -> None:
    if not RATES[0] <= rate <= RATES[1] or channels < 1:
        raise _UnreadableError(f"a header of {rate} Hz and {channels} channels")


def _by_soundfile(file: IO[bytes], path: Name, header: Header) -> _Stream:
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise _UnreadableError(f"cannot be imported, {_reason(error)}") from error
    os.lseek(file.fileno(), header.start, os.SEEK_SET)
    try:
        # by descriptor: any name works, and libsndfile sees the content alone, from where it stands
        sound = soundfile.SoundFile(file.fileno(), closefd=False)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise _UnreadableError(_reason(error)) from error
    _check_format(sound.samplerate, sound.channels)
    declared = sound.frames if header.frames is None else header.frames
    if not 0 < declared < 1 << 40:  # a streamed file states none, or the largest number there is
        declared = 0.0
    exact = sound.format not in ("MP3", "OGG")  # these count the encoder's padding, or guess
    stream = _Stream(sound.samplerate, sound.channels, declared, exact)
    stream.chunks = _soundfile_chunks(sound, stream)
    return stream


def _soundfile_chunks(sound: Any, stream: _Stream) -> Iterator[Samples]:
    import soundfile

    at_once = max(1, SAMPLES_AT_ONCE // stream.channels)
    kind = "float64" if sound.subtype == "DOUBLE" else "float32"  # of huge doubles libsndfile makes odd floats
    with sound:
        while True:
            try:
                chunk = sound.read(at_once, dtype=kind, always_2d=True)
            except (soundfile.SoundFileError, RuntimeError) as error:
                stream.stopped = _reason(error)
                return
            if not len(chunk):
                return
            with np.errstate(over="ignore"):
                floats = chunk.astype(np.float32, copy=False)
            yield floats  # outside: whoever stops early may do so in another thread


def _by_pyav(file: IO[bytes], path: Name, header: Header) -> _Stream:
    try:
        import av
    except (ImportError, OSError) as error:
        raise _UnreadableError(f"cannot be imported, {_reason(error)}") from error
    av.logging.set_level(av.logging.PANIC)
    name = os.fsdecode(os.path.abspath(path))  # noqa: PTH100  (bytes names too)
    # by name where it can be said in UTF-8, as a file, so that no name is an option or an address
    source: Any = f"file:{name}" if name.isprintable() else file
    if header.start or header.cover:
        source = _WithoutTag(file, header)
    try:
        container = av.open(source, metadata_errors="ignore", options={"protocol_whitelist": "file"})
    except (av.FFmpegError, OSError, ValueError, LookupError) as error:
        raise _UnreadableError(_reason(error)) from error
    if not container.streams.audio:
        container.close()
        raise _UnreadableError(f"{container.format.long_name} without a sound track")
    track = container.streams.audio[0]
    rate, channels = getattr(track, "rate", 0) or 0, getattr(track, "channels", 0) or 0
    if not rate or not channels:
        container.close()
        raise _UnreadableError(f"{container.format.long_name} with a codec that is not known")
    _check_format(rate, channels)
    stream = _Stream(rate, channels, _stated_length(container, track) * rate, exact=False)
    if header.frames is not None:
        stream.declared, stream.exact = header.frames, container.format.name != "mp3"
    stream.chunks = _pyav_chunks(container, track, stream)
    return stream


class _WithoutTag:
    """A file as PyAV takes it, without the tag that stands before it, its pictures under the name of free space."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        self.file, self.start, self.cover = file, header.start, header.cover
        self.seek(0)

    def read(self, size: int) -> bytes:
        at = self.file.tell()
        data = self.file.read(size)
        if not at - 4 < self.cover < at + len(data) or not self.cover:
            return data
        patched = bytearray(data)
        for place, byte in enumerate(b"free", self.cover - at):
            if 0 <= place < len(data):
                patched[place] = byte
        return bytes(patched)

    def seek(self, to: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(to + self.start * (whence == os.SEEK_SET), whence) - self.start

    def tell(self) -> int:
        return self.file.tell() - self.start


def _stated_length(container: Any, track: Any) -> float:
    """Seconds that the container states, 0 where it only guesses."""
    if container.format.name in GUESSING:
        return 0.0
    if track.duration and track.time_base:
        return max(0.0, float(track.duration * track.time_base))
    alone = len(container.streams) == 1  # else it is the length of the pictures, perhaps
    return max(0.0, container.duration / 1e6) if container.duration and alone else 0.0


def _pyav_chunks(container: Any, track: Any, stream: _Stream) -> Iterator[Samples]:
    waiting: list[Samples] = []
    size = 0
    with container:
        for part in _pyav_parts(container, track, stream):
            waiting.append(part)
            size += part.size
            if size >= SAMPLES_AT_ONCE:
                yield np.concatenate(waiting)
                waiting, size = [], 0
    if size:
        yield np.concatenate(waiting)


def _pyav_parts(container: Any, track: Any, stream: _Stream) -> Iterator[Samples]:
    """[frame, channel] of each decoded frame, to the end or to the first broken packet.

    Broken packets at the start are passed over: recordings of broadcasts begin in the middle of one.
    """
    import av

    begun, passed = False, 0
    try:
        same = av.AudioResampler(format="fltp", layout=track.layout, rate=track.rate)  # of format, not of rate
        for packet in container.demux(track):
            try:
                frames = packet.decode()
            except av.FFmpegError:
                # later ones end the sound: what follows would stand at the wrong time
                if begun or passed == MOST_BROKEN:
                    raise
                passed += 1
                continue
            for frame in frames:
                if passed and not begun:
                    stream.odd.append(f"truncated: begins with broken packets, {passed} left out")
                begun = True
                for part in same.resample(frame):
                    yield part.to_ndarray().T.astype(np.float32, copy=False)
    except (av.FFmpegError, OSError, ValueError, LookupError) as error:
        stream.stopped = _reason(error)
