"""What was made of sounds, kept on disk: log-mels, memory-mapped, so that no sound is decoded twice.

An entry is one safetensors file, named by what made it (settings of the front end, or a frozen model's
fingerprint) and by the content of the sound: renaming a file keeps its entry, changing a byte or a setting makes
another. A file is there whole or not at all, so several processes may fill the cache at once, and one that is
killed leaves what it finished. Everything in it can be made again; delete it whenever the disk is needed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, overload

from torch import Tensor

from earmark.audio import decode
from earmark.errors import DataError
from earmark.files import cache_folder, write_tensors, write_text

FORMAT = 2
"""Of entries, and of how sounds are read: raise it whenever decoding, a log-mel or a tower gives other numbers."""
HELD = 8192
"""Entries of so many numbers or fewer (vectors) are held in memory."""


@dataclass(frozen=True)
class Features:
    """What an encoder reads of one clip."""

    windows: Sequence[Tensor]
    """A tensor a window: log-mel [frame, band], or one vector for the clip."""
    seconds: list[float]
    """A window's length: its share in the clip's embedding."""
    odd: list[str] = field(default_factory=list)
    """What was odd about the sound, a short sentence each."""


Make = Callable[[Path], Features]


class FeatureCache:
    """The entries that one maker made: `made_by` is a text that changes whenever its results would."""

    def __init__(self, made_by: str, folder: Path | None = None) -> None:
        name = hashlib.sha256(f"{FORMAT} {made_by}".encode()).hexdigest()[:32]
        self.folder = (folder or cache_folder() / "sounds") / name
        self.made_by = made_by
        self._told = False

    def entry(self, path: Path) -> Path:
        """Where the features of this sound are kept. Raises `DataError` where the sound cannot be read."""
        with decode.opened(path) as file:
            file.seek(0)
            content = _digest(file)
        return self.folder / content[:2] / f"{content}.safetensors"

    def features(self, path: Path, make: Make) -> Features:
        """The features of a sound file, from the cache, or made and kept.

        Where nothing can be kept (a full or read-only disk) they are given all the same, with one warning. Raises
        what `make` raises.
        """
        entry = self.entry(path)
        with suppress(DataError):  # not there, or damaged: it is made anew
            return self._read(entry)
        made = make(path)
        try:
            self._keep(entry, made)
            return self._read(entry)
        except DataError as error:
            if not self._told:
                warnings.warn(f"features of sounds are not cached ({error})", stacklevel=2)
            self._told = True
            return made

    def _keep(self, entry: Path, made: Features) -> None:
        about = self.folder / "made_by.txt"
        if not about.exists():
            write_text(about, self.made_by + "\n")
        windows = [window.contiguous() for window in made.windows]
        header = {"seconds": json.dumps(made.seconds), "odd": json.dumps(made.odd)}
        header["check"] = self._check(entry, header, windows)
        write_tensors(entry, {str(place): window for place, window in enumerate(windows)}, header)

    def _read(self, entry: Path) -> Features:
        """The features of an entry. Raises `DataError` where it is not there, damaged or another one's."""
        from safetensors import SafetensorError

        with _opened(entry) as file:
            try:
                header = file.metadata()
                seconds, odd = json.loads(header["seconds"]), json.loads(header["odd"])
                windows = [file.get_tensor(str(place)) for place in range(len(seconds))]
                if header["check"] != self._check(entry, header, windows):
                    raise ValueError("its check does not hold")
            except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError, SafetensorError) as error:
                raise DataError(f"{entry}: not an entry of the cache ({error}). Delete it.") from error
        if sum(window.numel() for window in windows) <= HELD:  # no file is opened for them again
            return Features([window.clone() for window in windows], seconds, odd)
        return Features(MappedWindows(entry, len(seconds)), seconds, odd)

    def _check(self, entry: Path, header: Mapping[str, str], windows: Sequence[Tensor]) -> str:
        """What tells an entry that is damaged, or was copied from another's place."""
        digest = hashlib.sha256(f"{self.made_by} {entry.name} {header['seconds']} {header['odd']}".encode())
        for window in windows:
            digest.update(f"{window.dtype} {tuple(window.shape)}".encode())
            digest.update(window.numpy().data)
        return digest.hexdigest()


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while part := file.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()


class MappedWindows(Sequence[Tensor]):
    """An entry's windows, each mapped into memory when it is asked for and let go with its last use.

    So a collection of any size needs no memory and no open files of its own.
    """

    def __init__(self, entry: Path, count: int) -> None:
        self._entry, self._count = entry, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> list[Tensor]: ...
    def __getitem__(self, place: int | slice) -> Tensor | list[Tensor]:
        """The window as float32 [frame, band]. Raises `DataError` where the cache was emptied meanwhile."""
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self._count))]
        name = str(range(self._count)[place])
        try:
            with _opened(self._entry) as file:
                window: Tensor = file.get_tensor(name)
        except RuntimeError as error:  # gone between opening and mapping
            raise _gone(self._entry, error) from error
        return window


def _opened(entry: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(entry, framework="pt")
    except (OSError, RuntimeError, SafetensorError) as error:
        raise _gone(entry, error) from error


def _gone(entry: Path, error: Exception) -> DataError:
    return DataError(f"{entry}: not in the cache any more ({error}). Start the command again.")
