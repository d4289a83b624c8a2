"""Taking sounds out of what was found: playlists, copies, and cuts of the regions that were found.

A cut has its file's rate, channels and bit depth, and of formats without loss the very samples; of those with loss
(MP3, Ogg, Opus, AAC, Windows Media) it is WAV of 32-bit floats, since what is decoded goes beyond full scale where the
sound nearly did. Nothing is overwritten, what is there already is not written again, and a file that cannot be taken
costs itself only.
"""

from __future__ import annotations

import filecmp
import math
import os
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, count, starmap, takewhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from earmark.audio.decode import opened, shown, unmixed
from earmark.errors import DataError, Problem
from earmark.files import write_text, writing
from earmark.search.query import Hit

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT_ONCE = 1 << 17
"""Samples, of all channels together, that are held."""
LONGEST_NAME = 255
"""Bytes of a file's name on most systems."""
ENDINGS = {
    "WAV": (".wav", ".wave", ".bwf"),
    "WAVEX": (".wav", ".wave", ".bwf"),
    "AIFF": (".aiff", ".aif", ".aifc"),
    "FLAC": (".flac",),
    "AU": (".au", ".snd"),
    "CAF": (".caf",),
    "W64": (".w64",),
    "RF64": (".wav", ".wave", ".bwf"),
}
"""Formats of libsndfile that a cut keeps, and the endings of their files."""
KINDS = {
    **dict.fromkeys(("PCM_16", "PCM_24", "PCM_32", "PCM_U8", "PCM_S8"), "int32"),
    **dict.fromkeys(("ALAC_16", "ALAC_20", "ALAC_24", "ALAC_32"), "int32"),
    **dict.fromkeys(("ULAW", "ALAW"), "int16"),
    "FLOAT": "float32",
    "DOUBLE": "float64",
}
"""Subtypes that a cut keeps, and the type of number that holds their samples without loss."""
WIDE = 0xF000_0000
"""Bytes of sound that a WAV file holds, or a little more."""


# Playlists


def write_m3u(hits: Sequence[Hit], path: Path) -> None:
    """Writes an extended M3U playlist in UTF-8, absolute paths in the order of the hits, whole or not at all.

    A path that one line of text cannot hold (line breaks, white space at its end, bytes that are not UTF-8) is written
    as a `file:` address, which VLC, mpv and others read. Players that know `#EXTVLCOPT` begin at the best region.
    """
    lines = ["#EXTM3U", "#EXTENC:UTF-8"]
    for hit in hits:
        lines.append(f"#EXTINF:{hit.duration_s:.3f},{shown(hit.path.name)}")
        if hit.best.start_s > 0:
            lines.append(f"#EXTVLCOPT:start-time={hit.best.start_s:.3f}")
        lines.append(_in_one_line(Path(os.path.abspath(hit.path))))  # noqa: PTH100  (links stay)
    write_text(path, "\n".join(lines) + "\n")


def _in_one_line(path: Path) -> str:
    name = str(path)
    return name if name == shown(path) and name == name.strip() else path.as_uri()


# Copies and cuts into a folder


class Took(NamedTuple):
    """What came of taking files into a folder."""

    made: list[Path]
    there: list[Path]
    """Those that were there already, of that name and the same sound."""
    problems: list[Problem]
    """Those that could not be made."""


def copy_to(hits: Sequence[Hit], folder: Path) -> Took:
    """The copies of the hits' files in the folder, made if it is not there.

    Two files of one name both arrive, the second as `NAME-2`, unless they are the same byte by byte. Raises `DataError`
    where there can be no such folder.
    """

    def copy(hit: Hit, names: _Names) -> tuple[Path, bool]:
        name = hit.path.stem, hit.path.suffix
        with opened(hit.path) as source:
            for each in names.there(*name):
                if filecmp.cmp(hit.path, each, shallow=False):
                    return each, False
            with writing(to := names.free(*name)) as aside, aside.open("wb") as copied:
                source.seek(0)
                shutil.copyfileobj(source, copied, 1 << 20)
        return to, True

    return _each(hits, folder, copy)


def cut_to(hits: Sequence[Hit], folder: Path) -> Took:
    """The best regions of the hits as files of the folder, `NAME_12.500-22.500.wav`; of one sound one file.

    Raises `DataError` where there can be no such folder.
    """

    def cut_one(hit: Hit, names: _Names) -> tuple[Path, bool]:
        start_s, end_s = hit.best.start_s, hit.best.end_s
        with _part(hit.path, start_s, end_s) as part:
            name = f"{hit.path.stem}_{start_s:.3f}-{end_s:.3f}", part.ending(hit.path.suffix)
            before = list(names.there(*name))
            part.write(to := names.free(*name))
        for each in before:
            if _is_same_sound(to, each):
                names.give_back(to)
                return each, False
        return to, True

    return _each(hits, folder, cut_one)


def _is_same_sound(one: Path, other: Path) -> bool:
    """Whether they are alike to the last sample; in their bytes floats differ, by when they were written."""
    import soundfile

    try:
        with one.open("rb") as first, other.open("rb") as second:
            sounds = [soundfile.SoundFile(file.fileno(), closefd=False) for file in (first, second)]
            kinds = [(each.samplerate, each.channels, each.format, each.subtype, each.frames) for each in sounds]
            frames = max(1, AT_ONCE // sounds[0].channels)
            blocks = (each.blocks(frames, dtype="float64") for each in sounds)
            return kinds[0] == kinds[1] and all(starmap(_is_equal, zip(*blocks, strict=True)))
    except (soundfile.SoundFileError, RuntimeError, OSError, ValueError):  # a file of that name that is no sound
        return False


def _is_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    import numpy as np

    return np.array_equal(one, other, equal_nan=True)


def _each(hits: Sequence[Hit], folder: Path, take: Callable[[Hit, _Names], tuple[Path, bool]]) -> Took:
    """Takes each hit's file; `take` gives where it is, and whether it had to be made."""
    names, took = _Names(folder), Took([], [], [])
    for hit in hits:
        where = shown(hit.path)
        try:
            path, made = take(hit, names)
            (took.made if made else took.there).append(path)
        except DataError as error:
            took.problems.append(Problem(where, str(error).removeprefix(f"{where}: ")))
        except OSError as error:
            took.problems.append(Problem(where, f"cannot be read ({error.strerror or error}). Check it."))
    return took


class _Names:
    """Names that are free in a folder; those that differ in case or in how they are composed are one name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.taken = {self._key(each.name): each for each in folder.iterdir()}
        except OSError as error:
            what = f"cannot be a folder ({error.strerror}). Name another place."
            raise DataError(f"{shown(folder)}: {what}") from error

    def free(self, stem: str, ending: str) -> Path:
        """`STEM.ENDING`, or `STEM-2.ENDING` and so on; a stem that is too long is cut."""
        path = next(each for each in self._like(stem, ending) if self._key(each.name) not in self.taken)
        self.taken[self._key(path.name)] = path
        return path

    def there(self, stem: str, ending: str) -> Iterator[Path]:
        """The files that have these names already."""
        keys = (self._key(each.name) for each in self._like(stem, ending))
        return (self.taken[key] for key in takewhile(self.taken.__contains__, keys))

    def give_back(self, path: Path) -> None:
        """Removes a file that was made under a free name."""
        path.unlink()
        del self.taken[self._key(path.name)]

    def _like(self, stem: str, ending: str) -> Iterator[Path]:
        for number in count(1):
            rest = (f"-{number}" if number > 1 else "") + ending
            while len(os.fsencode(stem + rest)) > LONGEST_NAME and len(stem) > 1:
                stem = stem[:-1]
            yield self.folder / (stem + rest)

    @staticmethod
    def _key(name: str) -> str:
        return unicodedata.normalize("NFC", name).casefold()


# Cuts


def cut(path: Path, start_s: float, end_s: float, to: Path) -> Path:
    """The part of a file from `start_s` to `end_s`, written to `to`: what was written bears the ending of its format.

    A part that goes beyond the end ends there; of a long file no more than a block is held. Raises `DataError` where
    the part is empty or begins behind the end, or the file holds no sound.
    """
    with _part(path, start_s, end_s) as part:
        to = to.with_suffix(part.ending(to.suffix))
        part.write(to)
    return to


class _Part(NamedTuple):
    """A part of a sound that is being read."""

    rate: int
    channels: int
    form: str
    """Of libsndfile, as are the next two."""
    subtype: str
    endian: str
    blocks: Iterator[NDArray[Any]]
    """[frame, channel], at least one."""

    def ending(self, wanted: str) -> str:
        """The ending that was wanted, where it is one of the format's, else the format's first."""
        endings = ENDINGS[self.form]
        return wanted if wanted.lower() in endings else endings[0]

    def write(self, to: Path) -> None:
        """Writes the part, whole or not at all."""
        import soundfile

        with writing(to) as aside, aside.open("r+b", buffering=0) as file:
            kind = (self.rate, self.channels, self.subtype, self.endian, self.form)
            try:
                with soundfile.SoundFile(file.fileno(), "w", *kind, closefd=False) as out:  # by descriptor: any name
                    for block in self.blocks:
                        out.write(block)
            except (soundfile.SoundFileError, RuntimeError) as error:
                what = f"cannot be written ({error}). Make room, or name another place."
                raise DataError(f"{shown(to)}: {what}") from error


@contextmanager
def _part(path: Path, start_s: float, end_s: float) -> Iterator[_Part]:
    """The part of the file: of formats without loss from where it begins, else decoded from the file's beginning."""
    where = shown(path)
    if not 0 <= start_s < end_s < math.inf:
        raise DataError(f"{where}: from {start_s:g} to {end_s:g} s; expected 0 or more, and an end behind the start.")
    with opened(path) as file, _lossless(file) as sound:
        part = _begun(_exact(sound, start_s, end_s)) if sound is not None else None
        if part is not None:
            yield part
            return
    with unmixed(path) as stream:
        start, stop = round(start_s * stream.rate), round(end_s * stream.rate)
        form, blocks = _wav((stop - start) * stream.channels), _between(stream.blocks, start, stop)
        part = _begun(_Part(stream.rate, stream.channels, form, "FLOAT", "FILE", blocks))
        if part is None:
            raise DataError(f"{where}: ends before {start_s:g} s. Index it again.")
        yield part


def _begun(part: _Part) -> _Part | None:
    """The same part, its first block read; None where there is none."""
    first = next(part.blocks, None)
    return None if first is None else part._replace(blocks=chain([first], part.blocks))


def _lossless(file: IO[bytes]) -> Any:
    """The file opened by libsndfile; within `with` None where that cannot, or may not go to a sample exactly.

    In Ogg Vorbis it lands up to a thousand samples away.
    """
    import soundfile

    os.lseek(file.fileno(), 0, os.SEEK_SET)
    try:
        sound = soundfile.SoundFile(file.fileno(), closefd=False)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OverflowError):
        return nullcontext()
    if sound.subtype in KINDS:
        return sound
    sound.close()
    return nullcontext()


def _exact(sound: Any, start_s: float, end_s: float) -> _Part:
    import soundfile

    start, stop = round(start_s * sound.samplerate), round(end_s * sound.samplerate)
    subtype, form, endian = sound.subtype, sound.format, sound.endian
    if form == "RF64" or form not in ENDINGS:
        form, endian = _wav((stop - start) * sound.channels), "FILE"
        subtype = subtype if soundfile.check_format(form, subtype) else "PCM_16"  # 8 bits with a sign
    if not soundfile.check_format(form, subtype, endian):  # what it reads and does not write
        endian = "FILE"
    blocks = _read(sound, start, stop, KINDS[sound.subtype])
    return _Part(sound.samplerate, sound.channels, form, subtype, endian, blocks)


def _wav(samples: int) -> str:
    """WAV where its sizes, which are of 32 bits, hold so many samples, else RF64."""
    return "WAV" if samples * 8 < WIDE else "RF64"


def _read(sound: Any, start: int, stop: int, kind: str) -> Iterator[NDArray[Any]]:
    """[frame, channel] from `start` to `stop`, or to where the sound ends or is damaged."""
    import soundfile

    try:
        sound.seek(start)
        while start < stop:
            block = sound.read(min(stop - start, max(1, AT_ONCE // sound.channels)), kind, always_2d=True)
            if not len(block):
                return
            yield block
            start += len(block)
    except (soundfile.SoundFileError, RuntimeError):
        return


def _between(blocks: Iterable[NDArray[Any]], start: int, stop: int) -> Iterator[NDArray[Any]]:
    """The frames from `start` to `stop`, of blocks that come from the first on."""
    at = 0
    for block in blocks:
        part = block[max(0, start - at) : max(0, stop - at)]
        if len(part):
            yield part
        at += len(block)
        if at >= stop:
            return
