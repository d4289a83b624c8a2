"""What is written in sound files: their tags' fields, as names and texts.

Of WAV (RF64, BW64 too) and AIFF the chunks LIST/INFO, bext, iXML, ID3, NAME and ANNO; ID3 and APE of MP3; and what
`tags.py` reads of Ogg, Opus, FLAC, MP4, ASF, WavPack, Musepack and Monkey's Audio. Files are anybody's, so nothing here
believes what it reads: pieces are bounded, nothing that is compressed is unpacked, XML with a document type (and so
with entities of its own) is not read. What is damaged ends the reading of one tag and no more.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.parsers import expat

from earmark.audio.decode import opened
from earmark.errors import ConfigError, DataError, install
from earmark.search.tags import MOST_BYTES, MOST_PIECES, Field, ape, flac, genre, reader_of, text_of

MOST_TEXT = 20_000
"""Characters of a field."""


def fields(path: Path) -> Iterator[Field]:
    """The fields of a file's tags. Never raises for what the file holds; raises `ConfigError` without mutagen."""
    needs_mutagen()
    try:
        raw: Any = opened(path)
    except DataError:
        return
    with BufferedReader(raw) as file:
        for reader in _readers(file):
            yield from (field._replace(text=field.text[:MOST_TEXT]) for field in _readable(reader))


def _readers(file: IO[bytes]) -> list[Iterator[Field]]:
    """Who reads the tags of such a file."""
    file.seek(0)
    head = file.read(12)
    if head[:4] in _RIFF and head[8:] == b"WAVE":
        return [_riff(file, ">" if head[:4] == b"RIFX" else "<")]
    if head[:4] == b"FORM" and head[8:11] == b"AIF":
        return [_riff(file, ">")]
    if head[:3] == b"ID3":
        start = 10 + _synchsafe(head[6:10])
        file.seek(start)
        behind = flac(file, start) if file.read(4) == b"fLaC" else ape(file)
        return [_id3(file), _id3_at_the_end(file), behind]
    return [_id3_at_the_end(file), reader_of(head)(file)]


def needs_mutagen() -> Any:
    """The module mutagen. Raises `ConfigError` where it is not installed."""
    try:
        import mutagen
    except ImportError as error:
        raise ConfigError(f"reading tags needs the extra `search` ({install('search')}): {error}.") from error
    return mutagen


def _readable(found: Iterator[Field]) -> Iterator[Field]:
    """The fields as far as they can be read."""
    try:
        yield from found
    except Exception:  # whatever a parser makes of bytes that anybody wrote: the sound is worth more than its tags
        return


# WAV and AIFF

_RIFF = (b"RIFF", b"RIFX", b"RF64", b"BW64")


def _riff(file: IO[bytes], order: str) -> Iterator[Field]:
    """Of the chunks behind the file's first 12 bytes; `order` is that of the bytes of sizes."""
    end = file.seek(0, 2)
    at, wide = 12, 0
    for _ in range(MOST_PIECES):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8 or not all(32 <= byte < 127 for byte in head[:4]):
            return
        name, size = head[:4].strip().lower(), struct.unpack(order + "I", head[4:])[0]
        if name == b"ds64":
            wide = struct.unpack("<8xQ", file.read(16))[0]
        elif name == b"data" and size == 0xFFFFFFFF and wide:
            size = wide
        elif name in _CHUNKS:
            yield from _readable(_CHUNKS[name](file.read(min(size, MOST_BYTES, end - at - 8)), order))
        elif name == b"id3":
            yield from _readable(_id3(_Part(file, at + 8, min(size, end - at - 8))))
        at += 8 + size + size % 2


class _Part:
    """A part of a file, as a file of its own."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self.file, self.start, self.size = file, start, size

    def seek(self, at: int) -> int:
        return self.file.seek(self.start + at) - self.start

    def read(self, size: int) -> bytes:
        return self.file.read(max(0, min(size, self.start + self.size - self.file.tell())))


def _info(data: bytes, order: str) -> Iterator[Field]:
    """Of a LIST chunk of the kind INFO: a chunk a field."""
    if data[:4] != b"INFO":
        return
    at = 4
    while at + 8 <= len(data):
        size = struct.unpack_from(order + "I", data, at + 4)[0]
        yield Field(text_of(data[at : at + 4]).lower(), text_of(data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2


def _xml(data: bytes, order: str) -> Iterator[Field]:
    """Of the elements of an XML document that hold text, to its end or to where it is none any more."""
    text = "".join(mark if mark.isprintable() else " " for mark in text_of(data))
    text = re.sub(r"&(?!#?\w+;)", "&amp;", text).lstrip()  # as many programs write it
    found: list[Field] = []
    inside: list[tuple[str, list[str]]] = []

    def end(name: str) -> None:
        name, pieces = inside.pop()
        if said := "".join(pieces).strip():
            found.append(Field(name.lower(), said))

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse
    parser.StartElementHandler = lambda name, _: inside.append((name, []))
    parser.EndElementHandler = end
    parser.CharacterDataHandler = lambda said: inside[-1][1].append(said)
    with suppress(expat.ExpatError, ValueError):
        parser.Parse(text, True)
    yield from found


def _refuse(*_: Any) -> None:
    raise ValueError("a document type")


_CHUNKS: dict[bytes, Any] = {
    b"list": _info,
    b"ixml": _xml,
    b"bext": lambda data, _: iter([Field("description", text_of(data[:256]))]),
    b"name": lambda data, _: iter([Field("title", text_of(data))]),
    b"anno": lambda data, _: iter([Field("comment", text_of(data))]),
}


# ID3


def _id3(file: IO[bytes] | _Part) -> Iterator[Field]:
    """Of the text frames of an ID3v2 tag with which the file begins; nothing else of it is read.

    Not by mutagen: that unpacks whatever is compressed, and copies the rest of the tag for each of its frames.
    """
    file.seek(0)
    head = file.read(10)
    if head[:3] != b"ID3" or not 2 <= head[3] <= 4:
        return
    tag = _Id3(file, head[3], bool(head[5] & 0x80), 10, 10 + _synchsafe(head[6:]))
    if tag.unsynchronised and tag.version < 4:  # sizes are those before zeros were put in
        whole = file.read(min(tag.end - 10, 16 * MOST_BYTES)).replace(b"\xff\x00", b"\xff")
        tag = tag._replace(file=BytesIO(whole), at=0, end=len(whole))
    if head[5] & 0x40 and tag.version > 2:
        tag.file.seek(tag.at)
        more = tag.file.read(4)
        tag = tag._replace(at=tag.at + (_synchsafe(more) if tag.version == 4 else 4 + int.from_bytes(more)))
    yield from tag.fields()


def _synchsafe(data: bytes) -> int:
    """A number of seven bits a byte."""
    number = 0
    for byte in data:
        number = number << 7 | byte & 0x7F
    return number


class _Id3(NamedTuple):
    """An ID3v2 tag: its frames stand between `at` and `end` of the file."""

    file: Any
    version: int
    """2, 3 or 4."""
    unsynchronised: bool
    at: int
    end: int

    def fields(self) -> Iterator[Field]:
        """Of every text frame and comment."""
        at = self.at
        for _ in range(MOST_PIECES):
            name, length = self.name_at(at), 6 if self.version == 2 else 10
            if not name:
                return
            self.file.seek(at)
            head = self.file.read(length)
            size = self.size_at(at, head)
            if name[:1] == "T" or name in ("COM", "COMM"):
                content = self.content(self.file.read(min(size, MOST_BYTES)), head[9] if length == 10 else 0)
                yield from _frame_fields(name, content)
            at += length + size

    def name_at(self, at: int) -> str:
        """The name of the frame that begins there, or nothing where none does."""
        width = 3 if self.version == 2 else 4
        self.file.seek(at)
        name = self.file.read(width) if at < self.end else b""
        return name.decode() if re.fullmatch(rb"[A-Z][A-Z0-9]{2,3}", name) else ""

    def size_at(self, at: int, head: bytes) -> int:
        """How many bytes the frame has behind its head; iTunes wrote sizes of version 4 as those of version 3."""
        size = int.from_bytes(head[3:6] if self.version == 2 else head[4:8])
        safe = _synchsafe(head[4:8])
        plain = self.version < 4 or (not self.name_at(at + 10 + safe) and bool(self.name_at(at + 10 + size)))
        self.file.seek(at + len(head))
        return size if plain else safe

    def content(self, data: bytes, flags: int) -> bytes:
        """What a frame holds, unpacked as far as it can matter."""
        four = self.version == 4
        if flags & (0x04 if four else 0x40):  # encrypted
            return b""
        packed = bool(flags & (0x08 if four else 0x80))
        if (four and flags & 0x01) or (packed and not four):
            data = data[4:]
        if four and (flags & 0x02 or self.unsynchronised):
            data = data.replace(b"\xff\x00", b"\xff")
        return zlib.decompressobj().decompress(data, 4 * MOST_TEXT) if packed else data


def _frame_fields(name: str, data: bytes) -> Iterator[Field]:
    """Of a frame's content: the encoding, for a comment its language, its own name, and texts, NULs between them."""
    if not data:
        return
    encoding = {0: "latin-1", 1: "utf-16", 2: "utf-16-be", 3: "utf-8"}.get(data[0], "latin-1")
    comment = name in ("COM", "COMM")
    texts = data[4 if comment else 1 :].decode(encoding, "ignore").replace("\ufeff", "").split("\x00")
    if (comment or name in ("TXX", "TXXX")) and len(texts) > 1:
        own, *texts = texts
        if comment and own.startswith("iTun"):  # loudness in hexadecimal digits, and the like
            return
        name = name if comment else own
    for text in filter(None, texts):
        yield Field(name.lower(), genre(text) if name in ("TCO", "TCON") else text)


def _id3_at_the_end(file: IO[bytes]) -> Iterator[Field]:
    """Of an ID3v1 tag, the file's last 128 bytes."""
    file.seek(max(0, file.seek(0, 2) - 128))
    tag = file.read(128)
    if len(tag) == 128 and tag[:3] == b"TAG":
        texts = zip(("title", "album", "comment"), (tag[3:33], tag[63:93], tag[97:125]), strict=True)
        yield from (Field(name, text_of(text)) for name, text in texts)
        yield Field("genre", genre(str(tag[127])) if tag[127] < 255 else "")
