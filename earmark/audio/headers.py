"""What a file's first bytes and chunk headers say: whether it can be sound at all, and how long it claims to be.

Decoders quietly shorten a cut file to what is there; the length that its header states tells the cut.
"""

from __future__ import annotations

import struct
from typing import IO

UNKNOWN = (0, 0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""Sizes that a program writes before it knows better (or never does)."""


def not_sound(head: bytes) -> str:
    """Why a file that begins like this holds no sound; empty where it may."""
    if not head:
        return "empty (0 bytes)"
    if head.startswith(b"version https://git-lfs"):
        return "a Git-LFS pointer, not the sound itself (run `git lfs pull`)"
    if head.startswith(b"\x00\x05\x16\x07"):
        return "an AppleDouble sidecar (._ file), not a sound"
    if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "a web page, not a sound"
    if not head.strip(b"\x00") and len(head) < 4096:
        return "nothing but zero bytes"
    if len(head) > 4 and _is_text(head):
        return "text, not a sound"
    return ""


def _is_text(head: bytes) -> bool:
    if head[:4] in (b"#EXT", b"[pla"):  # playlists
        return True
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError:
        return False
    return all(mark.isprintable() or mark in "\t\r\n" for mark in text)


def declared_frames(file: IO[bytes]) -> float | None:
    """Frames that the header states, where the header must be read for it; None leaves it to the decoder.

    Of WAV and AIFF the decoder tells what is there, not what was promised; of MP3 the Xing header tells.
    """
    file.seek(0)
    magic = file.read(12)
    file.seek(0)
    try:
        if magic[:4] in (b"RIFF", b"RIFX", b"RF64"):
            return _wav_frames(file)
        if magic[:4] == b"FORM" and magic[8:11] == b"AIF":
            return _aiff_frames(file)
        if magic[:3] == b"ID3" or (magic[0] == 0xFF and magic[1] & 0xE0 == 0xE0):
            return _mp3_frames(file)
    except (struct.error, ZeroDivisionError, IndexError):
        return None
    return None


def _wav_frames(file: IO[bytes]) -> float | None:
    """The data chunk's size over the format chunk's bytes a frame."""
    order = {b"RIFF": "<", b"RIFX": ">", b"RF64": "<"}.get(file.read(4))
    if order is None:
        return None
    file.seek(12)
    a_frame, wide = 0, 0
    while len(head := file.read(8)) == 8:
        name, size = head[:4], struct.unpack(order + "I", head[4:])[0]
        if name == b"ds64":
            wide = struct.unpack("<Q", file.read(16)[8:])[0]
            file.seek(size - 16, 1)
        elif name == b"fmt ":
            form, _, _, _, a_frame, bits = struct.unpack(order + "HHIIHH", file.read(16))
            if form not in (1, 3, 6, 7, 0xFFFE) or bits % 8:
                return None  # compressed: bytes a frame say nothing of samples
            file.seek(size - 16 + size % 2, 1)
        elif name == b"data":
            size = wide if size == 0xFFFFFFFF and wide else size
            return 0.0 if size in UNKNOWN else size // a_frame
        else:
            file.seek(size + size % 2, 1)
    return None


def _aiff_frames(file: IO[bytes]) -> float | None:
    """The frames that the COMM chunk states."""
    file.seek(12)
    while len(head := file.read(8)) == 8:
        size = struct.unpack(">I", head[4:])[0]
        if head[:4] == b"COMM":
            return float(struct.unpack(">hI", file.read(6))[1])
        file.seek(size + size % 2, 1)
    return None


def _mp3_frames(file: IO[bytes]) -> float | None:
    """MPEG frames that a Xing or Info header states, times samples a frame; None where there is no such header."""
    head = file.read(10)
    start = 0
    if head[:3] == b"ID3":
        start = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    file.seek(start)
    window = file.read(4096)
    for mark in (b"Xing", b"Info"):
        at = window.find(mark)
        if at >= 0 and struct.unpack(">I", window[at + 4 : at + 8])[0] & 1:
            frame = window.rfind(b"\xff", 0, at)
            first = window.find(b"\xff")
            frame = first if 0 <= first < frame else frame
            samples = 1152 if window[frame + 1] & 0x08 else 576  # MPEG 1, or 2 and 2.5
            return float(struct.unpack(">I", window[at + 8 : at + 12])[0] * samples)
    return None
