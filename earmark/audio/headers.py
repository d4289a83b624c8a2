"""What a file's own bytes say before anything is decoded: what it is, and how long it claims to be.

Decoders quietly shorten a cut file to what is there; the length that its header states tells the cut. Everything here
is read in pieces of a few bytes, however large the file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

UNKNOWN = (0, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""Sizes that a program writes before it knows better (or never does)."""
MOST_CHUNKS = 10_000
"""Chunks that are looked at: a gigabyte of zeros would be a hundred million of them."""
HUGE = 16 << 20
"""Bytes of a tag, or of pictures in one, beyond which decoders do not get to see it: they would hold it whole."""
OGG_PAGE = 65_307
"""Bytes of the longest Ogg page."""


MPEG_PLACES, MPEG_PART = 64, 4096
"""Places of an MP3 file where its bit rate is looked up, and bytes that are read at each."""
MPEG_HERTZ = (44_100, 48_000, 32_000)
MPEG_KBITS = {
    True: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Of layer III, by code from 1 on: MPEG 1, and MPEG 2 and 2.5 (ISO/IEC 11172-3 and 13818-3)."""
CHAINED = "truncated: several Ogg streams, of which only PyAV reads more than the first"
UNCOUNTED = "truncated, perhaps: its bit rate varies and no header counts its frames, of which PyAV alone reads all"


@dataclass(frozen=True)
class Header:
    """What a header states."""

    form: str = "unknown format"
    """What the file is, for messages."""
    frames: float | None = None
    """Frames that it states; 0 where it states none; None where the decoder tells it as well."""
    problem: str = ""
    """What is odd in the header itself, a short sentence."""
    empty: str = ""
    """Why there are no samples, where that is plain."""
    only_pyav: str = ""
    """What is odd if soundfile reads it, where PyAV alone surely reads it to its end."""
    start: int = 0
    """Where the sound begins, behind a tag of more than `HUGE` bytes."""
    cover: int = 0
    """Where the name of an MP4 file's pictures stands, where they have more than `HUGE` bytes."""


FORMS = (
    (0, b"RIFF", "WAV"),
    (0, b"RIFX", "WAV (RIFX)"),
    (0, b"RF64", "WAV (RF64)"),
    (0, b"BW64", "WAV (BW64)"),
    (0, b"riff", "WAV (Wave64)"),
    (0, b"FORM", "AIFF"),
    (0, b".snd", "Sun AU"),
    (0, b"caff", "CAF"),
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"MThd", "MIDI, notes and not sound"),
    (0, b"MAC ", "Monkey's Audio"),
    (0, b"MP+", "Musepack"),
    (0, b"MPCK", "Musepack"),
    (0, b"wvpk", "WavPack"),
    (0, b"DSD ", "DSD (DSF)"),
    (0, b"FRM8", "DSD (DSDIFF)"),
    (0, b"ADIF", "AAC (ADIF)"),
    (0, b"#!AMR", "AMR"),
    (0, b"0&\xb2u", "Windows Media (ASF)"),
    (0, b"\x1aE\xdf\xa3", "Matroska or WebM"),
    (4, b"ftyp", "MP4"),
    (0, b"ID3", "MP3 or another file with an ID3 tag"),
    (0, b"\x89PNG", "PNG picture"),
    (0, b"\xff\xd8\xff", "JPEG picture"),
    (0, b"GIF8", "GIF picture"),
    (0, b"%PDF", "PDF document"),
    (0, b"PK\x03\x04", "ZIP archive"),
    (0, b"7z\xbc\xaf", "7z archive"),
    (0, b"\x1f\x8b", "gzip archive"),
    (0, b"Rar!", "RAR archive"),
    (0, b"\x7fELF", "program (ELF)"),
    (0, b"MZ", "program (Windows)"),
    (0, b"SQLite", "SQLite database"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"\x89HDF", "HDF5 file"),
)
"""Where a format's mark stands, the mark, and the format's name."""

CODECS = {
    0x0001: "PCM",
    0x0002: "MS ADPCM",
    0x0003: "float",
    0x0006: "A-law",
    0x0007: "mu-law",
    0x0011: "IMA ADPCM",
    0x0031: "GSM 6.10",
    0x0050: "MPEG",
    0x0055: "MP3",
    0x0160: "Windows Media",
    0x0161: "Windows Media",
    0x2000: "AC-3",
}
"""Names of WAV's format tags."""


def not_sound(head: bytes) -> str:
    """Why a file that begins like this holds no sound; empty where it may."""
    if not head:
        return "empty (0 bytes)"
    if head.startswith(b"version https://git-lfs"):
        return "a Git-LFS pointer, not the sound itself (run `git lfs pull`)"
    if head.startswith((b"\x00\x05\x16\x07", b"\x00\x05\x16\x00")):
        return "an AppleDouble sidecar (._ file), not a sound"
    if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "a web page, not a sound"
    if not head.strip(b"\x00") and len(head) < 4096:
        return "nothing but zero bytes"
    if _is_text(head):
        return "text, not a sound"
    return ""


def _is_text(head: bytes) -> bool:
    if head[:4] in (b"#EXT", b"[pla"):  # playlists
        return True
    if _form(head) in ("WAV", "WAV (RIFX)", "WAV (RF64)", "AIFF", "FLAC", "Ogg") or head[4:8] == b"ftyp":
        return False  # cut within the first few bytes of a header
    for encoding in ("utf-8-sig", "utf-16") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",):
        try:
            text = head.decode(encoding)
        except UnicodeDecodeError as error:
            if error.start < len(head) - 4 or len(head) < 4096:  # a character may be cut by the end of the head
                continue
            text = head[: error.start].decode(encoding)
        if text and all(mark.isprintable() or mark in "\t\r\n\f\u200b\ufeff" for mark in text):
            return True
    return False


def _form(head: bytes) -> str:
    for at, mark, name in FORMS:
        if head[at:].startswith(mark):
            return name
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "AAC (ADTS)" if head[1] & 0xF6 == 0xF0 else "MPEG audio"
    return Header.form


def read_header(file: IO[bytes]) -> Header:
    """What the file's header states. Never raises on odd bytes."""
    file.seek(0)
    head = file.read(12)
    form = _form(head)
    try:
        if form in ("WAV", "WAV (RIFX)", "WAV (RF64)", "WAV (BW64)"):
            return _wav(file, form)
        if form == "AIFF" and head[8:11] == b"AIF":
            return Header(form, _aiff_frames(file))
        if form == "Sun AU":
            return _au(file)
        if form == "CAF":
            return Header(form, _caf_frames(file))
        if form == "WAV (Wave64)":
            return Header(form, _wave64_frames(file))
        if form == "Ogg":
            return _ogg(file)
        if form == "MP4":
            return Header(form, cover=_cover(file))
        if head[:3] == b"ID3" or form == "MPEG audio":
            return _mp3(file, form)
    except (struct.error, ArithmeticError, LookupError, OSError, ValueError):
        pass  # cut or nonsense within the header: the decoder says what it makes of it
    return Header(form)


def _heads(file: IO[bytes], size: int) -> Iterator[bytes]:
    """The heads of the chunks that follow; whoever takes one moves the file to the chunk's end."""
    for _ in range(MOST_CHUNKS):
        if len(head := file.read(size)) < size:
            return
        yield head


# WAV


def _wav(file: IO[bytes], form: str) -> Header:
    """The data chunk's size over the format chunk's bytes a frame, and what stands behind it."""
    order = ">" if form == "WAV (RIFX)" else "<"
    file.seek(12)
    a_frame, wide = 0, 0
    for head in _heads(file, 8):
        name, size = head[:4], struct.unpack(order + "I", head[4:])[0]
        if name == b"ds64":
            wide = struct.unpack("<Q", file.read(16)[8:])[0]
            file.seek(size - 16, os.SEEK_CUR)
        elif name == b"fmt ":
            codec, _, _, _, a_frame, bits = struct.unpack(order + "HHIIHH", file.read(16))
            form = f"{form}, {CODECS.get(codec, f'codec 0x{codec:04X}')}, {bits} bits a sample"
            if codec == 0xFFFE and size >= 26:  # the true codec stands in the extension
                codec = struct.unpack(order + "8xH", file.read(10))[0]
                form = f"{form.split(',')[0]}, {CODECS.get(codec, f'codec 0x{codec:04X}')}, {bits} bits a sample"
                file.seek(-10, os.SEEK_CUR)
            if codec not in (1, 3, 6, 7):
                a_frame = 0  # compressed: bytes a frame say nothing of samples
            file.seek(size - 16 + size % 2, os.SEEK_CUR)
        elif name == b"data":
            return _wav_data(file, form, a_frame, wide if size == 0xFFFFFFFF and wide else size)
        else:
            file.seek(size + size % 2, os.SEEK_CUR)
    if file.tell() < _length(file):  # libsndfile would go on through gigabytes
        return Header(form, empty=f"{form} with {MOST_CHUNKS:,} chunks and no sound among them")
    return Header(form)


def _wav_data(file: IO[bytes], form: str, a_frame: int, size: int) -> Header:
    """What a data chunk of `size` bytes says, the file standing at its first byte."""
    start = file.tell()
    left = _length(file) - start
    if size == 0 and _only_chunks(file, start):
        return Header(form, 0.0, empty=f"empty, {form} with 0 samples")
    if size in UNKNOWN:
        stated = "0" if size == 0 else f"0x{size:X}"
        return Header(form, 0.0, f"the header states {stated} bytes of sound; the file holds {left}")
    problem = ""
    if size < left and not _only_chunks(file, start + size + size % 2):
        problem = f"wrong length: the header states {size} bytes of sound; {left - size} more follow it unread"
    return Header(form, size // a_frame if a_frame else None, problem)


def _only_chunks(file: IO[bytes], at: int) -> bool:
    """Whether from here to the end there are only well-formed chunks, or padding, or nothing."""
    end = _length(file)
    for _ in range(MOST_CHUNKS):
        if at >= end:
            return True
        file.seek(at)
        head = file.read(8)
        if not head.strip(b"\x00") and not file.read(4096).strip(b"\x00"):
            return True
        if len(head) < 8 or not all(32 <= byte < 127 for byte in head[:4]):
            return False
        size = min(struct.unpack("<I", head[4:])[0], struct.unpack(">I", head[4:])[0])  # RIFF or RIFX
        if at + 8 + size > end:
            return False
        at += 8 + size + size % 2
    return False


def _length(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


# Others


def _aiff_frames(file: IO[bytes]) -> float | None:
    """The frames that the COMM chunk states."""
    file.seek(12)
    for head in _heads(file, 8):
        size = struct.unpack(">I", head[4:])[0]
        if head[:4] == b"COMM":
            return float(struct.unpack(">hI", file.read(6))[1])
        file.seek(size + size % 2, os.SEEK_CUR)
    return None


def _caf_frames(file: IO[bytes]) -> float | None:
    """The data chunk's bytes over bytes a packet; 0 where the chunk goes to the end, None where packets vary."""
    file.seek(8)
    a_packet, frames = 0, 0
    for head in _heads(file, 12):
        size = struct.unpack(">q", head[4:])[0]
        if head[:4] == b"desc":
            a_packet, frames = struct.unpack(">16xII8x", file.read(32))
            size -= 32
        elif head[:4] == b"data":
            return 0.0 if size < 0 else (size - 4) // a_packet * frames if a_packet else None
        if size < 0:
            return None
        file.seek(size, os.SEEK_CUR)
    return None


def _wave64_frames(file: IO[bytes]) -> float | None:
    """As of WAV, with names of 16 bytes, and sizes of 8 that count their own head."""
    file.seek(40)
    a_frame = 0
    for head in _heads(file, 24):
        size = struct.unpack("<Q", head[16:])[0] - 24
        if head[:4] == b"data":
            return 0.0 if size <= 0 else size // a_frame if a_frame else None
        start = file.tell()
        if head[:4] == b"fmt ":
            codec, a_frame = struct.unpack("<H10xH", file.read(14))
            a_frame = a_frame if codec in (1, 3, 6, 7, 0xFFFE) else 0
        if size < 0:
            return None
        file.seek(start + size + -size % 8)
    return None


def _au(file: IO[bytes]) -> Header:
    """Bytes of sound over bytes a frame, for the encodings of whole bytes a sample."""
    file.seek(4)
    start, size, encoding, _, channels = struct.unpack(">IIIII", file.read(20))
    width = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 27: 1}.get(encoding)
    if size == 0 and start >= _length(file):
        return Header("Sun AU", 0.0, empty="empty, Sun AU with 0 samples")
    if size in UNKNOWN or not width:
        return Header("Sun AU")  # 0xFFFFFFFF is how this format says that it was streamed
    return Header("Sun AU", size // (width * channels))


def _ogg(file: IO[bytes]) -> Header:
    """Whether the file ends as it should, and with the stream (by its serial number) with which it begins."""
    length = _length(file)
    file.seek(14)
    serial = file.read(4)
    file.seek(max(0, length - 2 * OGG_PAGE))
    tail = file.read(2 * OGG_PAGE)
    last = tail[max(0, tail.rfind(b"OggS")) :]
    chained = len(last) > 18 and last[14:18] != serial  # web radio
    return Header("Ogg", problem=_ogg_end(tail), only_pyav=CHAINED if chained else "")


def _ogg_end(tail: bytes) -> str:
    """What is odd at the end of an Ogg file, whose pages state no length: the last page bears an end mark."""
    at = tail.rfind(b"OggS")
    if at < 0:
        return "truncated: no Ogg page near the end"
    page = tail[at:]
    segments = page[27 : 27 + page[26]] if len(page) > 26 else b""
    if len(page) < 27 or len(segments) < page[26] or len(page) < 27 + len(segments) + sum(segments):
        return "truncated: the file ends within an Ogg page"
    return "" if page[5] & 4 else "truncated: the last Ogg page bears no end mark"


def atoms(file: IO[bytes], at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(name, start, end) of what each of an MP4 file's atoms between the two places holds."""
    for _ in range(MOST_CHUNKS):
        file.seek(at)
        head = file.read(16)
        if at + 8 > end or len(head) < 8:
            return
        size, start = int.from_bytes(head[:4]), at + 8
        if size == 1:
            size, start = int.from_bytes(head[8:]), at + 16
        size = size or end - at  # 0: to the end
        if at + size < start:
            return
        yield head[4:8], start, min(at + size, end)
        at += size


def tags_of_mp4(file: IO[bytes]) -> tuple[int, int]:
    """(start, end) of the atoms that describe an MP4 file, twice 0 where there are none."""
    start, end = 0, file.seek(0, os.SEEK_END)
    for name in (b"moov", b"udta", b"meta", b"ilst"):
        inside = next(((at, stop) for found, at, stop in atoms(file, start, end) if found == name), None)
        if inside is None:
            return 0, 0
        start, end = inside[0] + 4 * (name == b"meta"), inside[1]
    return start, end


def _cover(file: IO[bytes]) -> int:
    """Where the name of the pictures' atom stands, where it is huge, else 0."""
    inside = atoms(file, *tags_of_mp4(file))
    return next((start - 4 for name, start, end in inside if name == b"covr" and end - start > HUGE), 0)


def _mp3(file: IO[bytes], form: str) -> Header:
    """MPEG frames that a Xing or Info header states, times samples a frame."""
    file.seek(0)
    head = file.read(10)
    start = 0
    if head[:3] == b"ID3":
        start = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
        if start >= (length := _length(file)):
            return Header(form, empty=f"cut within its ID3 tag, which states {start} bytes where the file has {length}")
    behind = start if start > HUGE else 0
    file.seek(start)
    window = file.read(4096)
    frame = window.find(b"\xff")
    for mark in (b"Xing", b"Info"):
        # the mark stands 13 to 36 bytes into the first frame
        at = window.find(mark, max(0, frame), max(0, frame) + 40)
        if 0 <= frame < at and struct.unpack(">I", window[at + 4 : at + 8])[0] & 1:
            samples = 1152 if window[frame + 1] & 0x08 else 576  # MPEG 1, or 2 and 2.5
            return Header(form, float(struct.unpack(">I", window[at + 8 : at + 12])[0] * samples), start=behind)
    return Header(form, only_pyav=UNCOUNTED if len(_bit_rates(file, start)) > 1 else "", start=behind)


def _bit_rates(file: IO[bytes], start: int) -> set[int]:
    """The bit rates, by their codes, of MPEG frames in places all over the file."""
    rates, length = set(), _length(file)
    for place in range(MPEG_PLACES):
        file.seek(start + place * max(0, length - start) // MPEG_PLACES)
        part = file.read(MPEG_PART)
        at = part.find(b"\xff")
        while 0 <= at < len(part) - 4:
            size = _mpeg_frame(part[at : at + 4])
            following = part[at + size : at + size + 4]
            # a frame is one where another of its kind follows; the rest is chance
            if size and len(following) == 4 and following[:2] == part[at : at + 2] and _mpeg_frame(following):
                rates.add(part[at + 2] >> 4)
                break
            at = part.find(b"\xff", at + 1)
    return rates


def _mpeg_frame(head: bytes) -> int:
    """The bytes of the layer III frame with these first four, 0 where it is none."""
    version, layer, code, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    if head[0] != 0xFF or head[1] < 0xE0 or version == 1 or layer != 1 or code in (0, 15) or rate == 3:
        return 0
    first = version == 3  # MPEG 1; 2 and 2.5 have half its rates, and a quarter
    hertz = MPEG_HERTZ[rate] >> (0 if first else 1 if version == 2 else 2)
    return (144 if first else 72) * 1000 * MPEG_KBITS[first][code - 1] // hertz + (head[2] >> 1 & 1)
