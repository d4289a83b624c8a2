"""The fields of MP4's atoms, of APE and ASF tags, and of Vorbis comments in FLAC and Ogg: texts without the pictures.

Read piece by piece, what is no text being passed over: a cover may have 500 MB, and mutagen holds the whole tag, some
of them three times.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple
from uuid import UUID

from earmark.audio.headers import atoms, tags_of_mp4

MOST_BYTES = 1 << 20
"""Of a piece that is looked at; none of those read here is longer unless it holds pictures."""
MOST_PIECES = 10_000
"""Pieces of a tag that are looked at."""


class Field(NamedTuple):
    """A text of a tag."""

    name: str
    """As the format calls it, lower case: `title`, `tit2`, `icmt`, `bext_bwf_description`."""
    text: str


Fields = Iterator[Field]


def text_of(data: bytes) -> str:
    """The text of bytes that end with the first NUL: UTF-8, else Latin-1; UTF-16 where a mark says so.

    Of a letter that a full field cut in two nothing is kept.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "ignore").split("\x00", 1)[0]
    data = data.split(b"\x00", 1)[0]
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        whole = error.start if error.reason == "unexpected end of data" and not data[: error.start].isascii() else 0
        return data[:whole].decode("utf-8-sig") if whole else data.decode("latin-1")


def genre(text: str) -> str:
    """A genre by its name, where it stands as a number."""
    import mutagen.id3 as id3

    frame: Any = id3.TCON
    return "; ".join(frame(encoding=3, text=[text]).genres)


def reader_of(head: bytes) -> Callable[[IO[bytes]], Fields]:
    """Who reads the tags of a file that begins like this; APE's stand at the end of many kinds."""
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return mp4
    if head.startswith(ASF_HEADER[:12]):
        return asf
    return {b"OggS": ogg, b"fLaC": flac}.get(head[:4], ape)


# MP4


def mp4(file: IO[bytes]) -> Fields:
    """Of the atoms in moov/udta/meta/ilst: texts, and those that bear names of their own."""
    for name, at, stop in atoms(file, *tags_of_mp4(file)):
        own = name.decode("latin-1").lstrip("\xa9").lower()
        for part, begin, behind in atoms(file, at, stop):
            file.seek(begin)
            if part == b"name":
                own = text_of(file.read(min(behind - begin, MOST_BYTES))[4:]).lower()
            elif part == b"data" and name != b"covr":
                yield from _atom_fields(own, file.read(min(behind - begin, MOST_BYTES)))


def _atom_fields(name: str, data: bytes) -> Fields:
    """Of a `data` atom: its type in four bytes, a language in four, and what it says."""
    kind, said = int.from_bytes(data[1:4]), data[8:]
    if name == "gnre":
        yield Field("gen", genre(str(int.from_bytes(said) - 1)))
    elif kind == 2:
        yield Field(name, said.decode("utf-16-be", "ignore"))
    elif kind in (0, 1):
        yield Field(name, text_of(said))


# APE

APE = b"APETAGEX"


def ape(file: IO[bytes]) -> Fields:
    """Of an APE tag at the file's end, before an ID3v1 tag and lyrics perhaps, or at its start."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 128 - 15))
    tail = file.read(15 + 128)
    before = end - 128 * (tail[15:18] == b"TAG")
    if tail[6:15] == b"LYRICS200" and tail[:6].isdigit():
        before -= 15 + int(tail[:6])
    for at in (end - 32, before - 32, 0):
        file.seek(max(0, at))
        head = file.read(32)
        if head[:8] == APE and len(head) == 32:
            size, count = struct.unpack("<II", head[12:20])
            yield from _ape_items(file, 32 if at == 0 else at + 32 - size, count)
            return


def _ape_items(file: IO[bytes], at: int, count: int) -> Fields:
    """Of the items from there on: sizes, kinds, names, and what they say, NULs between several."""
    for _ in range(min(count, MOST_PIECES)):
        file.seek(at)
        head = file.read(8 + 256)
        size, flags = struct.unpack("<II", head[:8])
        name = head[8:].split(b"\0", 1)[0]
        at += 8 + len(name) + 1
        if not flags >> 1 & 3:  # text
            file.seek(at)
            said = file.read(min(size, MOST_BYTES)).decode("utf-8", "replace")
            yield Field(name.decode("latin-1").lower(), said.replace("\0", "; "))
        at += size


# Vorbis comments


def flac(file: IO[bytes], start: int = 0) -> Fields:
    """Of the comments among the blocks of a FLAC stream that begins at `start`."""
    at = start + 4
    for _ in range(MOST_PIECES):
        file.seek(at)
        head = file.read(4)
        if len(head) < 4:
            return
        if head[0] & 0x7F == 4:
            yield from _comments(file.read, lambda size: file.seek(size, 1))
            return
        at += 4 + int.from_bytes(head[1:])
        if head[0] & 0x80:
            return


def _comments(read: Callable[[int], bytes], skip: Callable[[int], Any]) -> Fields:
    """Of Vorbis comments: who wrote them, their number, and `NAME=text` each behind its length."""

    def number() -> int:
        return int(struct.unpack("<I", read(4))[0])

    skip(number())
    for _ in range(min(number(), MOST_PIECES)):
        size = number()
        name, mark, said = read(min(size, 256)).partition(b"=")
        more = read(min(size, MOST_BYTES) - 256) if size > 256 and not _is_picture(name) else b""
        skip(size - min(size, 256) - len(more))
        if mark and not _is_picture(name):
            yield Field(name.decode("latin-1").lower(), (said + more).decode("utf-8", "replace"))


def _is_picture(name: bytes) -> bool:
    return name.lower() in (b"metadata_block_picture", b"coverart")


OGG_HEADS = {b"\x01vorbis": 7, b"OpusHead": 8, b"Speex   ": 0, b"\x7fFLAC": 4}
"""How a stream begins that bears comments, and how many bytes stand before these in its second packet."""


def ogg(file: IO[bytes]) -> Fields:
    """Of the comments of the first stream that bears some."""
    file.seek(0)
    for _ in range(MOST_PIECES):
        page = _page(file)
        if page is None:
            return
        serial, size = page
        head = file.read(min(size, 8))
        file.seek(size - len(head), 1)
        before = next((before for mark, before in OGG_HEADS.items() if head.startswith(mark)), None)
        if before is not None:
            pages = _Pages(file, serial)
            pages.skip(before)
            yield from _comments(pages.read, pages.skip)
            return


def _page(file: IO[bytes]) -> tuple[int, int] | None:
    """Serial number and size of the Ogg page whose head stands here, the file then behind the head; None: none does."""
    head = file.read(27)
    if head[:4] != b"OggS" or len(head) < 27:
        return None
    return int.from_bytes(head[14:18], "little"), sum(file.read(head[26]))


class _Pages:
    """What a stream's pages hold from here on, as one file."""

    def __init__(self, file: IO[bytes], serial: int) -> None:
        self.file, self.serial, self.left = file, serial, 0

    def read(self, size: int) -> bytes:
        return b"".join(self.file.read(part) for part in self._parts(size))

    def skip(self, size: int) -> None:
        for part in self._parts(size):
            self.file.seek(part, 1)

    def _parts(self, size: int) -> Iterator[int]:
        """Sizes of the next stretches, together `size`; whoever takes one moves the file behind it."""
        while size > 0:
            while not self.left:
                page = _page(self.file)
                if page is None:
                    return
                if page[0] == self.serial:
                    self.left = page[1]
                else:
                    self.file.seek(page[1], 1)
            part = min(size, self.left)
            self.left -= part
            size -= part
            yield part


# ASF


def _guid(text: str) -> bytes:
    return UUID(text).bytes_le


ASF_HEADER = _guid("75B22630-668E-11CF-A6D9-00AA0062CE6C")
ASF_MORE = _guid("5FBF03B5-A92E-11CF-8EE3-00C00C205365")
ASF_CONTENT = _guid("75B22633-668E-11CF-A6D9-00AA0062CE6C")
ASF_EXTENDED = _guid("D2D0A440-E307-11D2-97F0-00A0C95EA850")
ASF_METADATA = (_guid("C5F8CBEA-5BAF-4877-8467-AA8C44FA4CCA"), _guid("44231C94-9498-49D1-A141-1D134E457054"))


def asf(file: IO[bytes]) -> Fields:
    """Of the header's objects that describe the content (ASF specification 3.10, 3.11, 4.7, 4.8)."""
    file.seek(0)
    size = struct.unpack("<16xQ", file.read(24))[0]
    for name, start, end in _objects(file, 30, size):
        for each, at, stop in _objects(file, start + 22, end) if name == ASF_MORE else [(name, start, end)]:
            file.seek(at)
            if each == ASF_CONTENT:
                lengths = struct.unpack("<5H", file.read(10))
                for called, length in zip(("title", "author", "copyright", "description"), lengths, strict=False):
                    yield Field(called, _wide(file.read(length)))
            elif each == ASF_EXTENDED or each in ASF_METADATA:
                yield from _descriptors(file, stop, extended=each == ASF_EXTENDED)


def _objects(file: IO[bytes], at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(GUID, start, end) of what each object between the two places holds."""
    for _ in range(MOST_PIECES):
        file.seek(at)
        head = file.read(24)
        if at + 24 > end or len(head) < 24:
            return
        size = struct.unpack("<16xQ", head)[0]
        if size < 24:
            return
        yield head[:16], at + 24, min(at + size, end)
        at += size


def _descriptors(file: IO[bytes], end: int, *, extended: bool) -> Fields:
    """Of (name, type, value)s behind their number; those of type 0 are texts."""
    for _ in range(struct.unpack("<H", file.read(2))[0]):
        if extended:
            name = file.read(*struct.unpack("<H", file.read(2)))
            kind, size = struct.unpack("<HH", file.read(4))
        else:
            length, kind, size = struct.unpack("<4xHHI", file.read(12))
            name = file.read(length)
        behind = file.tell() + size
        if behind > end:
            return
        if kind == 0:
            yield Field(_wide(name).lower().removeprefix("wm/"), _wide(file.read(min(size, MOST_BYTES))))
        file.seek(behind)


def _wide(data: bytes) -> str:
    """Text of UTF-16 up to the first NUL."""
    return data.decode("utf-16-le", "ignore").split("\0", 1)[0]
