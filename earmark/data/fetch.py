"""Published files from the network: fetched whole or gone on with, their sums checked, archives unpacked whole.

What has come of a file lies in `NAME.part` beside its place, survives whatever ends the process, and is gone on with
(HTTP Range) by the next try, from the same server or another. The sum decides: a file is under its name only with the
right one. An archive is unpacked aside, and its folder, marked with the archive's sum, put in its place when whole.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from earmark.errors import DataError
from earmark.files import LOCK, folder_alone, umask

if TYPE_CHECKING:
    import requests
    from py7zr.py7zr import ArchiveFile

Progress = Callable[[int, int], None]
"""Told (bytes done, bytes in all)."""

TRIES = 5
"""How often in a row a server may fail without one new byte."""
PAUSE = 1.0
"""Seconds before the second try; twice as long before each one after it."""
TIMEOUT = (15, 60)
"""Seconds to wait for a connection, and for more of a file."""
BLOCK = 1 << 14
"""Bytes that are asked for at once; a cut connection costs less than that."""
MARK = ".whole"
"""The file in an unpacked folder that says of which archive it is the whole."""


class Remote(NamedTuple):
    """A published file."""

    name: str
    url: str
    md5: str


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The folder for this process alone, made if it is not there, and gone if nothing has come into it.

    Raises `DataError` where another process is at work in it, or it cannot be written.
    """
    busy = DataError(f"{folder}: another process is fetching into it. Wait, or name another folder.")
    with folder_alone(folder, busy):
        for left in folder.glob(".*.part"):  # what a killed process was unpacking
            shutil.rmtree(left)
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                folder.rmdir()


def fetch(
    remote: Remote, folder: Path, *, progress: Progress | None = None, tries: int = TRIES, pause: float = PAUSE
) -> Path:
    """The file's path in `folder`, its sum checked; nothing is fetched where it is there already.

    One process at a time may do so (`alone`). A cut connection is gone on with after `pause` seconds and more, until
    `tries` in a row have brought nothing. Raises `DataError` where the sum is wrong (nothing of the file is kept),
    the server does not have the file or cannot be reached, or the disk is full (what has come is kept).
    """
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if target.is_file() and _md5(target) == remote.md5:
        return target
    pieced = _download(remote.url, part, progress, tries, pause)
    found = _md5(part)
    if found != remote.md5 and pieced:  # the pieces may be of two files: the server's may have changed
        part.unlink()
        _download(remote.url, part, progress, tries, pause)
        found = _md5(part)
    if found != remote.md5:
        part.unlink()
        raise DataError(
            f"{remote.url}: md5 of {remote.name} is {found}; expected {remote.md5}. It is deleted; try again, or "
            "another server."
        )
    part.replace(target)
    return target


class _CutError(Exception):
    """A connection that may be tried again, and why it ended."""


def _download(url: str, part: Path, progress: Progress | None, tries: int, pause: float) -> bool:
    """Goes on with `part` until it is whole; whether that took several pieces."""
    most, failed = _size(part), 0
    pieced = most > 0
    while True:
        try:
            _go_on(url, part, progress)
            return pieced
        except _CutError as cut:
            most, failed = max(most, _size(part)), 0 if _size(part) > most else failed + 1
            if failed == tries:
                raise DataError(
                    f"{url}: {cut}, {tries} times in a row; {_size(part):,} bytes have come and are kept. Check the "
                    "network and the address, and run the same command again."
                ) from cut
        pieced = pieced or most > 0
        time.sleep(pause * 2 ** max(failed - 1, 0))


def _go_on(url: str, part: Path, progress: Progress | None) -> None:
    """Asks once for what `part` lacks, and adds it; a server that sends the whole file begins it anew."""
    have = _size(part)
    with _answer(url, have) as response:
        if response.status_code == 416:  # there is no more of it: the sum tells whether it is whole
            return
        begin = have if response.status_code == 206 else 0
        total = _total(response, begin)
        try:
            with part.open("ab" if begin else "wb") as file:
                for block in _blocks(response):
                    file.write(block)
                    if progress:
                        progress(file.tell(), max(total, file.tell()))
        except OSError as error:
            raise DataError(
                f"{part}: cannot be written ({error.strerror}). Make room, and run the same command again; what has "
                "come is kept."
            ) from error
    if _size(part) < total:
        raise _CutError(f"cut off at {_size(part):,} of {total:,} bytes")


def _answer(url: str, have: int) -> requests.Response:
    """The server's answer, 200, 206 or 416, when asked for all after `have` bytes."""
    import requests

    asked = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = requests.get(url, headers=asked, stream=True, timeout=TIMEOUT)
    except (requests.RequestException, UnicodeError) as error:
        if isinstance(error, ValueError):  # requests' word for an address that is none
            raise DataError(f"{url}: not an address ({error}); expected http:// or https://.") from error
        raise _CutError(f"cannot be reached ({_reason(error)})") from error
    status = response.status_code
    if status == 200 or (have and status == 416) or (status == 206 and _starts_at(response) == have):
        return response
    response.close()
    what = f"the server answers {status} {response.reason}"
    if status in (206, 408, 429) or status >= 500:
        raise _CutError(what)
    raise DataError(f"{url}: {what}; expected the file. Check the address; what has come of other files is kept.")


def _blocks(response: requests.Response) -> Iterator[bytes]:
    import requests

    try:
        yield from response.iter_content(BLOCK)
    except requests.RequestException as error:
        raise _CutError(f"cut off ({_reason(error)})") from error


def _starts_at(response: requests.Response) -> int:
    """The place of the first byte that is sent, -1 where the server does not say."""
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _total(response: requests.Response, begin: int) -> int:
    """How many bytes the whole file has, 0 where the server does not say."""
    length = response.headers.get("Content-Length", "")
    known = length.isdecimal() and "Content-Encoding" not in response.headers
    return begin + int(length) if known else 0


def _reason(error: BaseException) -> str:
    """Why it came to this, without the layers of libraries around it."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# Archives


def is_whole(folder: Path, md5: str) -> bool:
    """Whether the folder is what the archive of that sum holds, all of it."""
    mark = folder / MARK
    return mark.is_file() and mark.read_text(errors="replace") == md5


def unpack(archive: Path, folder: Path, md5: str, *, progress: Progress | None = None) -> None:
    """Puts what a 7z archive holds, all of it below one folder of `folder`'s name, in the place of `folder`.

    It is there whole, marked with the archive's `md5`, or as it was before. Raises `DataError`, with nothing written,
    where a member is a link or would lie anywhere else (`../`, absolute); and where the archive is damaged or the
    disk full. What a killed process leaves, `alone` clears away. No more than 128 MB of a member is in memory.
    """
    from py7zr import SevenZipFile

    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".part", dir=folder.parent))
    try:
        with _Watched(io.FileIO(archive)) as file, _damage(archive), SevenZipFile(file) as opened:
            _check_members(archive, opened.files, folder.name)
            file.progress = progress
            opened.extractall(aside)
        _settle(aside)
        (aside / folder.name / MARK).write_text(md5)
        shutil.rmtree(folder, ignore_errors=True)
        (aside / folder.name).replace(folder)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be unpacked ({error.strerror or error}). Make room, and run the same command again."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


class _Watched(io.BufferedReader):
    """A file that tells how far it is read."""

    progress: Progress | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self.progress:
            self.progress(self.tell(), os.fstat(self.fileno()).st_size)
        return data


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    """Whatever reading a damaged archive raises becomes a `DataError`; what the disk raises goes on."""
    try:
        yield
    except (OSError, DataError):
        raise
    except Exception as error:  # py7zr lets through what its decompressors and parsers raise
        what = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{archive}: damaged or not 7z ({what}). Delete it, and fetch it again.") from error


def _check_members(archive: Path, members: Sequence[ArchiveFile] | Any, folder: str) -> None:
    """Raises `DataError` where a member is not a file below `folder` or a folder, or stands twice."""
    seen: set[str] = set()
    for member in members:
        name = member.filename
        first, *others = name.split("/")
        if member.is_symlink or member.is_junction:
            what = "is a link"
        elif first != folder or {"", ".", ".."} & set(others) or not (member.is_file or member.is_directory):
            what = "would lie elsewhere"
        else:
            what = "stands twice" if name in seen else ""
        if what:
            raise DataError(
                f"{archive}: its member {name!r} {what}; expected files below {folder}/ only. Nothing is unpacked."
            )
        seen.add(name)
    if not any(name.startswith(f"{folder}/") for name in seen):
        raise DataError(f"{archive}: holds nothing; expected files below {folder}/. Fetch another.")


def _settle(folder: Path) -> None:
    """Brings all that is in the folder to the disk, with the permissions of new files, whatever the archive says."""
    mask = umask()
    for place, below, names in os.walk(folder):
        for name in below:
            (Path(place) / name).chmod(0o777 & ~mask)
        for name in names:
            path = Path(place) / name
            path.chmod(0o666 & ~mask)
            with path.open("rb") as file:
                os.fsync(file.fileno())
