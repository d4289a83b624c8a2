"""Sound files as browsers take them: opened safely, told by what they are, converted where browsers cannot play them.

Browsers play PCM and float WAV, FLAC, Ogg, MP4 and WebM as they lie. Everything else (AIFF, WavPack, Windows Media,
A-law, 64-bit floats, …) is converted once to 16-bit WAV at its own rate, and kept below the cache folder. So are MP3
and bare AAC, which browsers do play: their frames state no time, so that a browser guesses where a second lies, and
seconds off plays another part than was found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import threading
from pathlib import Path

import numpy as np

from earmark.audio.decode import shown, unmixed
from earmark.audio.headers import read_header
from earmark.errors import DataError
from earmark.files import cache_folder, size_and_time, writing

PLAYED = (
    ("audio/wav", r"WAV, (PCM, (8|16|24|32)|float, 32) bits a sample"),
    ("audio/flac", "FLAC"),
    ("audio/ogg", "Ogg"),
    ("audio/mp4", "MP4"),
    ("audio/webm", "Matroska or WebM"),
)
"""Media types that browsers play, at the very place that is asked for, and what `headers.read_header` calls them."""
OTHERS = (
    ("audio/wav", "WAV.*"),
    ("audio/mpeg", r"MP3 or .*|MPEG audio"),
    ("audio/aiff", "AIFF"),
    ("audio/basic", "Sun AU"),
    ("audio/x-caf", "CAF"),
    ("audio/aac", r"AAC.*"),
    ("audio/amr", "AMR"),
    ("audio/x-wavpack", "WavPack"),
    ("audio/x-ape", "Monkey's Audio"),
    ("audio/x-musepack", "Musepack"),
    ("audio/x-ms-wma", "Windows Media.*"),
)
MOST_CHANNELS = 2
"""Channels of a converted file; more are averaged."""
MOST_KEPT = 4 << 30
"""Bytes of converted files that are kept; the oldest leave first."""
MOST_BYTES = (4 << 30) - (1 << 16)
"""Bytes of sound in a WAV file, whose header counts to 4 GiB."""
_converting = [threading.Lock() for _ in range(16)]
"""One conversion of a file at a time; other files need not wait for it."""


def open_unchanged(path: Path, size: int, mtime_ns: int) -> int:
    """A descriptor of the file, if it is the one of that size and time of change; who calls closes it.

    A file that was deleted, or replaced by another or by a link to another, is not there: `DataError`.
    """
    where = shown(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would never open
    except OSError as error:
        raise DataError(f"{where}: cannot be read any more ({error.strerror}). Index again.") from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or size_and_time(state) != (size, mtime_ns):
        os.close(descriptor)
        raise DataError(f"{where}: has changed since it was indexed. Index again.")
    return descriptor


def media_type(descriptor: int) -> tuple[str, bool]:
    """The media type of an open file, and whether browsers play it as it lies."""
    with open(os.dup(descriptor), "rb", buffering=0) as file:  # noqa: PTH123
        header = read_header(file)
    for kinds, played in ((PLAYED, True), (OTHERS, False)):
        for name, pattern in kinds:
            if re.fullmatch(pattern, header.form):
                return name, played and not header.only_pyav  # browsers read no more of it than libsndfile
    return "application/octet-stream", False


def converted(path: Path) -> Path:
    """The sound as a 16-bit WAV file in the cache. Raises `DataError` where it holds no sound, or too much."""
    state = path.stat()
    key = hashlib.sha256(f"{state.st_size} {state.st_mtime_ns} ".encode() + os.fsencode(path)).hexdigest()[:32]
    kept = cache_folder() / "played" / f"{key}.wav"
    with _converting[int(key, 16) % len(_converting)]:
        if kept.exists():
            os.utime(kept)
            return kept
        with writing(kept) as aside:
            _convert(path, aside)
        _forget_oldest(kept)
    return kept


def _convert(path: Path, to: Path) -> None:
    """Writes the sound, with its channels where they are few, else their mean."""
    import soundfile

    with unmixed(path) as sound:
        channels = sound.channels if sound.channels <= MOST_CHANNELS else 1
        with soundfile.SoundFile(to, "w", sound.rate, channels, "PCM_16", format="WAV") as out:
            for block in sound.blocks:
                if (out.tell() + len(block)) * channels * 2 > MOST_BYTES:
                    raise DataError(f"{shown(path)}: too long to be played here. Cut or download it instead.")
                usable = np.nan_to_num(block, posinf=0, neginf=0)
                out.write(np.clip(usable if channels > 1 else usable.mean(axis=1), -1, 1))


def _forget_oldest(newest: Path) -> None:
    """Deletes converted files until at most `MOST_KEPT` bytes are kept, beside the newest."""
    states = {}
    for each in newest.parent.glob("*.wav"):
        with contextlib.suppress(FileNotFoundError):  # another conversion has just deleted it
            states[each] = each.stat()
    total = 0
    for each, state in sorted(states.items(), key=lambda pair: pair[1].st_mtime, reverse=True):
        total += state.st_size
        if total > MOST_KEPT and each != newest:
            each.unlink(missing_ok=True)
