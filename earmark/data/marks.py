"""What tells a clip from another one of the same id, in another collection or in this one once it has changed.

Ids say little: every generated collection has a clip `s00000`. A clip's mark is two short hashes, of its sound and of
its captions. A clip is the same where either agrees, so that other splits, ratings, vectors or paths, and corrected
captions of the same sound, make no other clip of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from earmark.data.check import is_file
from earmark.data.collection import Clip, Collection
from earmark.errors import DataError
from earmark.files import opened

DIGITS = 8
"""Hexadecimal digits of each hash: it is compared with that of the same id alone."""
READ = 1 << 16
"""Bytes of a sound that count, at its beginning and in its middle, beside its size: it need not be read whole."""
NOTHING = "-" * DIGITS
"""The hash where there is no sound, or no caption."""


def marks(collection: Collection, clip_ids: Iterable[str]) -> dict[str, str]:
    """Clip id → its mark: the hash of its sound (of its vector where it has no file), a blank, that of its captions."""
    texts, wanted = _texts(collection), set(clip_ids)
    return {
        clip.clip_id: f"{_of_sound(collection, clip)} {_of_texts(texts.get(clip.clip_id, []))}"
        for clip in collection.clips
        if clip.clip_id in wanted
    }


def same_clips(collection: Collection, known: Mapping[str, str]) -> set[str]:
    """Those of the clips with a known mark that the collection holds. Sounds are read only where captions differ."""
    texts = _texts(collection)
    found = set()
    for clip in collection.clips:
        sound, _, said = known.get(clip.clip_id, "").partition(" ")
        if (said not in ("", NOTHING) and said == _of_texts(texts.get(clip.clip_id, []))) or (
            sound not in ("", NOTHING) and sound == _of_sound(collection, clip)
        ):
            found.add(clip.clip_id)
    return found


def _texts(collection: Collection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for caption in collection.captions:
        found.setdefault(caption.clip_id, []).append(caption.text)
    return found


def _of_texts(texts: Iterable[str]) -> str:
    """The hash of texts in any order."""
    ordered = sorted(set(texts))
    return _hash("\0".join(ordered).encode("utf-8", "surrogatepass")) if ordered else NOTHING


def _of_sound(collection: Collection, clip: Clip) -> str:
    """The hash of the clip's file, or of its vector where it has none."""
    try:
        if clip.path and is_file(collection.audio_path(clip)):
            return _hash(_sample(collection.audio_path(clip)))
        table = collection.clip_vectors
    except (DataError, OSError):
        return NOTHING
    there = table is not None and clip.clip_id in table
    return _hash(table.rows([clip.clip_id]).tobytes()) if table is not None and there else NOTHING


def _sample(path: Path) -> bytes:
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        begins = file.read(READ)
        file.seek(size // 2)
        return str(size).encode() + begins + file.read(READ)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]
