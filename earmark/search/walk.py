"""Files below folders: which may hold sound, each real file once, whatever bytes their names are."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from earmark.audio.decode import shown
from earmark.audio.headers import not_sound, read_header
from earmark.errors import DataError, Problem
from earmark.files import size_and_time
from earmark.search.store import ABOUT, WINDOWS, Stamp
from earmark.search.words import NOTHING, Said, origin

SOUNDS = frozenset(
    {
        *("wav", "wave", "bwf", "rf64", "w64", "aif", "aiff", "aifc", "au", "snd", "caf"),
        *("iff", "8svx", "16svx", "svx"),
        *("flac", "wv", "ape", "tak", "tta", "mpc", "dsf", "dff", "ogg", "oga", "opus", "spx", "voc", "sph"),
        *("mp1", "mp2", "mp3", "mpa", "aac", "m4a", "m4b", "m4r", "f4a", "wma", "ac3", "eac3", "ec3", "dts", "ra"),
        *("amr", "awb", "3ga", "gsm", "mka", "weba"),
        *("mp4", "m4v", "mov", "qt", "mkv", "webm", "avi", "wmv", "asf", "flv", "mpg", "mpeg", "m2ts", "ogv", "ogx"),
        *("rm", "3gp", "3g2"),
    }
)
"""Endings that are tried, and listed where they hold no sound; of others the first bytes decide."""
CONTAINERS = {
    **dict.fromkeys(("WAV", "WAV (RIFX)", "WAV (RF64)", "WAV (BW64)"), (b"WAVE", b"AVI ")),
    "AIFF": (b"AIFF", b"AIFC", b"8SVX", b"16SV"),
}
"""Forms that hold other things too, and what stands in bytes 8 to 11 where it is sound."""
FORMS = {
    *("WAV (Wave64)", "Sun AU", "CAF", "FLAC", "Ogg", "Monkey's Audio", "Musepack", "WavPack", "DSD (DSF)"),
    *("DSD (DSDIFF)", "AAC (ADIF)", "AAC (ADTS)", "AMR", "Windows Media (ASF)", "Matroska or WebM", "MPEG audio"),
    "MP3 or another file with an ID3 tag",
}
"""Forms that hold sound."""
MP4_SOUND = (b"M4A ", b"M4B ", b"mp41", b"mp42", b"isom", b"iso2", b"qt  ", b"3gp4", b"3gp5", b"dash")
"""Brands of MP4 files that are no pictures."""
SIDECAR = "._"
"""How the names of what macOS keeps beside files on foreign disks begin."""


class Found(NamedTuple):
    """A file that may hold sound."""

    path: Path
    """Absolute."""
    below: Path
    """The told folder above it, whose name and those below it are words; of a told file the file itself."""
    stamp: Stamp
    said: Said = NOTHING
    """What a table says of it."""

    @property
    def origin(self) -> str:
        """What its words are made of beside the file (`words.origin`)."""
        return origin(self.path, self.below, self.said)


@dataclass
class Walked:
    """What was found below folders."""

    files: list[Found] = field(default_factory=list)
    """In order of their paths, each once."""
    unknown: list[Path] = field(default_factory=list)
    """Folders that could not be listed, and files that cannot be looked at: nobody knows what is there."""
    problems: list[Problem] = field(default_factory=list)
    """Why."""
    passed: Counter[str] = field(default_factory=Counter)
    """What was passed over: files by their ending (".txt"), "sidecars", "hidden", "links", "special", "vanished"."""


def walk(
    told: Sequence[Path],
    *,
    leave: Collection[Path] = (),
    follow_links: bool = False,
    known: Mapping[Path, Stamp] | None = None,
) -> Walked:
    """The files below these folders and files (absolute), but for those below `leave` and below other indices.

    Links are passed over unless `follow_links`: then each folder and file (each real path: the names of a hard link are
    several) is taken once, by its own name where that is below the folders too. Hidden files are passed over unless
    they were told. A file that `known` has with the same stamp is taken unopened. Raises `DataError` where something
    that was told is not there.
    """
    going = _Walk(leave, follow_links, known or {})
    for path in told:
        going.begin(path)
    going.take_links()
    found = going.found
    found.files = sorted(going.files.values(), key=lambda each: os.fsencode(each.path))
    return found


class _Walk:
    def __init__(self, leave: Collection[Path], follow_links: bool, known: Mapping[Path, Stamp]) -> None:
        self.leave, self.follow_links, self.known = leave, follow_links, known
        self.found = Walked()
        self.files: dict[Path, Found] = {}
        self.folders: set[Path] = set()
        self.real: set[str] = set()
        """Real paths of folders and files, where links are followed."""
        self.links: list[tuple[Path, Path]] = []
        """(link, told folder): taken when all else is known."""

    def begin(self, path: Path) -> None:
        """Takes what was told."""
        try:
            state = path.stat()
        except OSError as error:
            raise DataError(f"{shown(path)}: cannot be read ({error.strerror}). Check the path.") from error
        if stat.S_ISDIR(state.st_mode):
            self.walk(path, path)
        else:
            self.take(path, path, state, told=True)

    def walk(self, top: Path, below: Path) -> None:
        """Takes all files from `top` on; no recursion, since folders may be deep."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            if self.is_new_folder(folder):
                waiting += [Path(each.path) for each in self.entries(folder) if self.goes_into(each, below)]

    def is_new_folder(self, folder: Path) -> bool:
        """Whether the folder is to be looked into; it was, from now on."""
        if folder in self.leave or folder in self.folders:
            return False
        self.folders.add(folder)
        return self.is_new(folder)

    def is_new(self, path: Path) -> bool:
        """Whether links led to it under no other name."""
        if not self.follow_links:
            return True
        real = os.path.realpath(path)
        new = real not in self.real
        self.real.add(real)
        return new

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """What is in a folder, sorted; nothing where it is an index or cannot be listed."""
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: os.fsencode(entry.name))
        except OSError as error:
            self.lose(folder, error, "listed")
            return []
        return [] if {ABOUT, f"{WINDOWS}.lance"} <= {entry.name for entry in entries} else entries

    def lose(self, path: Path, error: OSError, what: str) -> None:
        """Tells that something cannot be looked at; what is gone by now is counted."""
        if isinstance(error, FileNotFoundError):
            self.found.passed["vanished"] += 1
            return
        self.found.unknown.append(path)
        why = f"cannot be {what} ({error.strerror}); what is indexed there stays. Check its permissions."
        self.found.problems.append(Problem(shown(path), why))

    def goes_into(self, entry: os.DirEntry[str], below: Path) -> bool:
        """Whether it is a folder to go into; a file is taken, a link kept for later."""
        if entry.name.startswith("."):
            self.found.passed["sidecars" if entry.name.startswith(SIDECAR) else "hidden"] += 1
        elif entry.is_symlink():
            self.links.append((Path(entry.path), below))
        elif entry.is_dir(follow_symlinks=False):
            return True
        else:
            try:
                self.take(Path(entry.path), below, entry.stat(follow_symlinks=False))
            except OSError as error:
                self.lose(Path(entry.path), error, "looked at")
        return False

    def take(self, path: Path, below: Path, state: os.stat_result, *, told: bool = False) -> None:
        """Takes a file if it may hold sound, or was told."""
        stamp = Stamp(*size_and_time(state))
        if path in self.files or not self.is_new(path):
            return
        if not told and not stat.S_ISREG(state.st_mode):
            self.found.passed["special"] += 1
        elif told or self.known.get(path) == stamp or may_hold_sound(path):
            self.files[path] = Found(path, below, stamp)
        else:
            self.found.passed[_ending(path) or "no ending"] += 1

    def take_links(self) -> None:
        """Takes what links lead to, folders before files, so that a file has its name in a folder."""
        files: list[tuple[Path, Path]] = []
        while self.links:
            link, below = self.links.pop(0)
            if self.follow_links and _is_folder(link):
                self.walk(link, below)
            else:
                files.append((link, below))
        for link, below in files:
            try:
                if not self.follow_links:
                    raise FileNotFoundError
                self.take(link, below, link.stat())
            except OSError:  # broken, or links in a circle
                self.found.passed["links"] += 1


def _is_folder(link: Path) -> bool:
    with suppress(OSError):
        return link.is_dir()
    return False


def _ending(path: Path) -> str:
    """`.wav`, lower case; empty where the name has none."""
    return shown(path.suffix).lower()


def may_hold_sound(path: Path) -> bool:
    """Whether the file is to be tried: by its ending, or where that says nothing by its first bytes."""
    if _ending(path)[1:] in SOUNDS:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            if not_sound(head):
                return False
            form = read_header(file).form.split(",")[0]
    except OSError:
        return False
    if form in CONTAINERS:
        return head[8:12] in CONTAINERS[form]
    return form in FORMS or (form == "MP4" and head[8:12] in MP4_SOUND)
