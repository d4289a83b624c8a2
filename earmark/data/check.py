"""What can be wrong with a sound file, in words, and which name was probably meant.

A name that is not on the disk is compared with those that are: surrounding blanks, the Unicode form
(NFC or NFD), upper and lower case and the padding of numbers are what programs most often change.
"""

from __future__ import annotations

import difflib
import html
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from earmark.errors import EarmarkError
from earmark.files import opened

Progress = Callable[[int, int], None]
"""Told (items done, items in all)."""

_SIDE_FILE = b"\x00\x05\x16\x07"
"""How macOS' side files (AppleDouble, `._kick.wav`) begin."""


def shown(text: str | Path) -> str:
    """The text with what UTF-8 cannot hold (bytes of a file name in another encoding) as escapes, safe to print."""
    return str(text).encode("utf-8", "backslashreplace").decode()


_CHANGES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("its slashes", lambda name: name.replace("\\", "/")),
    ("blanks or marks", lambda name: " ".join(html.unescape(name).replace("\u200b", "").split())),
    ("Unicode form (NFC or NFD)", lambda name: unicodedata.normalize("NFC", name)),
    ("upper and lower case", lambda name: name.casefold()),
    ("the padding of numbers", lambda name: re.sub(r"[0-9]+", lambda digits: digits[0].lstrip("0") or "0", name)),
)


def _key(name: str) -> str:
    for _, change in _CHANGES:
        name = change(name)
    return name


def difference(wanted: str, found: str) -> str:
    """In what two names differ: the last of the usual changes that is needed to make them equal."""
    for what, change in _CHANGES:
        wanted, found = change(wanted), change(found)
        if wanted == found:
            return f"differs in {what}"
    return "is the nearest name"


def is_file(path: Path) -> bool:
    """Whether there is such a file; False, not an error, for names that no file can have."""
    return os.path.isfile(path)  # noqa: PTH113  (Path.is_file raises on a name that is too long)


class Listing(NamedTuple):
    """Names to choose from."""

    names: list[str]
    keyed: dict[str, str]
    """The names by what the usual changes leave of them."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Listing:
        """The listing of these names."""
        ordered = sorted(names)
        return cls(ordered, {_key(name): name for name in reversed(ordered)})


class Names:
    """The names that are on the disk, each folder listed once."""

    def __init__(self, guesses: int = 100) -> None:
        """Names alike in letters only are looked for `guesses` times at most: it is slow in large folders."""
        self._listed: dict[Path, Listing] = {}
        self._guesses = guesses

    def nearest(self, folder: Path, parts: Sequence[str]) -> str | None:
        """The path below `folder` (`/` between the parts) that `parts` probably meant, or None."""
        found: list[str] = []
        for part in parts:
            name = part if os.path.exists(folder / part) else self._alike(folder, part)  # noqa: PTH110
            if name is None:
                return None
            found.append(name)
            folder = folder / name
        return "/".join(found)

    def _alike(self, folder: Path, wanted: str) -> str | None:
        if folder not in self._listed:
            self._listed[folder] = Listing.of(os.listdir(folder) if folder.is_dir() else [])  # noqa: PTH208  (names)
        return self.among(wanted, self._listed[folder])

    def among(self, wanted: str, listing: Listing) -> str | None:
        """The one of the names that `wanted` probably meant, or None."""
        if (name := listing.keyed.get(_key(wanted))) is not None:
            return name
        if self._guesses == 0:
            return None
        self._guesses -= 1
        return next(iter(difflib.get_close_matches(wanted, listing.names, 1, 0.8)), None)

    def missing(self, root: Path, path: str) -> str:
        """Why there is no file `path` below `root`, in words, with the nearest name that is there."""
        parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
        return self.describe(path, self.nearest(root, parts))

    @staticmethod
    def describe(wanted: str, found: str | None) -> str:
        """That there is no file `wanted`, in words, and what there is instead."""
        if found is None:
            return f"no file {wanted!r}"
        if found == wanted:
            return f"{wanted!r} is no file; expected one"
        if shown(found) != found:
            return f"no file {wanted!r}; {shown(found)!r} is there, a name that is not UTF-8. Rename the file"
        return f"no file {wanted!r}; {found!r} is there and {difference(wanted, found)}"


def is_side_file(path: Path) -> bool:
    """Whether the file is what macOS keeps beside a sound on foreign disks (`._kick.wav`), and no sound."""
    if not path.name.startswith("._"):
        return False
    with opened(path) as file:
        return file.read(4) == _SIDE_FILE


def sound_faults(paths: Iterable[Path], progress: Progress | None = None) -> dict[Path, list[str]]:
    """What is wrong or odd with each sound, by path; each is decoded whole, on all cores. Sound ones are left out."""
    distinct = list(dict.fromkeys(paths))
    faults: dict[Path, list[str]] = {}
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        for done, (path, found) in enumerate(zip(distinct, pool.map(_sound_fault, distinct), strict=True), start=1):
            if found:
                faults[path] = found
            if progress is not None:
                progress(done, len(distinct))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted check does not go on to the last sound
    return faults


def _sound_fault(path: Path) -> list[str]:
    from earmark.audio.decode import blocks

    odd: list[str] = []
    try:
        if is_side_file(path):
            return ["a side file of macOS, not a sound. Remove the row"]
        for _ in blocks(path, problems=odd):  # streamed: two hours need no more memory than two minutes
            pass
    except (EarmarkError, OSError) as error:
        odd = [str(error).removeprefix(f"{path}: ")]
    return [shown(what).rstrip(".") for what in odd]
