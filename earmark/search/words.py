"""The words that a file carries: its name, its folders, what is written in it, and what a table says of it.

Of folders count the one that was told and those below it. Names are split where a new word begins (`ClonkDie_02` →
"clonk die 02"). Of what is written in files are taken title, album, genre, comment, description, keywords, category and
the like: ID3, Vorbis comments, MP4, APE, ASF, and of WAV and AIFF the chunks LIST/INFO, bext, iXML, NAME and ANNO. UCS
ids are spelled out (`ucs.py`). Artists are left out: who made a sound tells nothing of how it sounds, and makers' names
are words ("Boom", "Rain").
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from earmark.search.fields import fields
from earmark.search.ucs import category_of, category_of_id

WORDS = 2
"""Raised when other words are made of the same: files that bear those of before get new ones, unread."""
MOST_WORDS, MOST_TAGS = 4000, 64
"""Characters of a file's own words and of a table's, and how many tags of either: none cuts the other away."""
MOST_TEXTS = 100
"""Texts that share them."""
MOST_TAG = 60
"""Characters of a tag: longer ones are sentences."""

_TITLES = {
    *("title", "nam", "inam", "tit1", "tit2", "tit3", "tt1", "tt2", "tt3", "subtitle", "grp", "grouping", "tracktitle"),
    "fxname",
}
_DESCRIPTIONS = {"description", "desc", "ldes", "isbj", "subject", "bext_bwf_description", "bwf_description"}
_TEXTS = {
    *_TITLES,
    *_DESCRIPTIONS,
    *("album", "alb", "talb", "tal", "albumtitle", "iprd", "project", "scene", "instrument"),
    *("comment", "comments", "cmt", "comm", "com", "icmt", "note", "notes"),
}
"""Fields whose text counts as words."""
_TAGS = {
    *("genre", "gen", "tcon", "tco", "ignr", "subgenre", "mood", "tmoo"),
    *("keywords", "keyword", "keyw", "ikey", "tags", "tkwd", "mediacategory"),
    *("category", "catg", "tcat", "subcategory", "usercategory", "vendorcategory", "contenttype"),
}
"""Fields whose parts, between `;`, `,` and `/`, are tags, and words too."""
_IDS = {"catid"}
"""Fields that hold an id of the Universal Category System."""


class Said(NamedTuple):
    """What a table says of a file."""

    texts: tuple[str, ...] = ()
    """Count as words."""
    tags: tuple[str, ...] = ()
    """Parts between `;`, `,` and `/` are tags, and words too."""


NOTHING = Said()


class Carried(NamedTuple):
    """What is written in and around a file."""

    words: str
    """One text for a full-text index."""
    tags: tuple[str, ...]
    """Lower case, each once."""


def carried(path: Path, below: Path, said: Said = NOTHING) -> Carried:
    """The words and tags of a file; the names of the folder `below` and of those between it and the file count.

    Never raises: of a tag that is damaged counts what could be read.
    """
    name, folders = _text_of_name(path.stem), map(_text_of_name, _folders(path, below))
    words = [split_name(name), *map(split_name, folders), " ".join(category_of(name))]
    tags = list(category_of(name))
    for field in sorted(fields(path), key=lambda field: _telling(field.name)):
        if field.name in _IDS:
            category = category_of_id(field.text.strip())
            words.append(" ".join(category))
            tags += category
        elif field.name in _TEXTS or field.name in _TAGS:
            words.append(field.text)
            tags += _parts(field.text) if field.name in _TAGS else []
    told = [tag for text in said.tags for tag in _parts(text)]
    return Carried(_joined(words, [*said.texts, *said.tags]), tuple(dict.fromkeys((*_cleaned(tags), *_cleaned(told)))))


def origin(path: Path, below: Path, said: Said = NOTHING) -> str:
    """What a file's words are made of beside the file itself, as 16 hex digits: they change where its words do."""
    told = json.dumps([WORDS, [os.fsencode(folder).hex() for folder in _folders(path, below)], said])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _telling(name: str) -> int:
    """The smaller, the more a field of that name tells of what is heard."""
    if name in _TITLES:
        return 0
    return 1 if name in _DESCRIPTIONS else 2 if name in _TAGS or name in _IDS else 3


def _parts(text: str) -> list[str]:
    """The tags of a text."""
    return re.split(r"[;,/\n]", text)


def _joined(*kinds: Iterable[str]) -> str:
    """The texts in one, each once; those of each kind share `MOST_WORDS`."""
    seen: set[str] = set()
    joined = []
    for texts in kinds:
        new: dict[str, str] = {}
        for text in map(clean, texts):
            if text and text.casefold() not in seen:
                new.setdefault(text.casefold(), text)
        seen |= new.keys()
        joined.append("; ".join(_fitting(list(new.values())[:MOST_TEXTS])))
    return "; ".join(filter(None, joined))


def _fitting(texts: Sequence[str]) -> list[str]:
    """The texts, of which the longest are cut so that all fit: a short one is whole, whatever stands beside it."""
    room = share = MOST_WORDS - 2 * len(texts)
    for place, size in enumerate(sorted(map(len, texts))):
        share = room // (len(texts) - place)
        if size > share:
            break
        room -= size
    return [text if len(text) <= share else text[:share].rsplit(" ", 1)[0] for text in texts]


def _cleaned(tags: Iterable[str]) -> tuple[str, ...]:
    cleaned = (clean(tag).lower() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in cleaned if 1 < len(tag) <= MOST_TAG))[:MOST_TAGS]


def clean(text: str) -> str:
    """The text in one line: NFC, without control characters, white space single."""
    text = unicodedata.normalize("NFC", text)
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


# Names


def _folders(path: Path, below: Path) -> tuple[str, ...]:
    """The names of the folder `below` and of those between it and the file; none where it is the file itself."""
    return path.relative_to(below.parent).parts[:-1] if path.is_relative_to(below) else ()


def _text_of_name(name: str) -> str:
    """UTF-8, else Latin-1: a name's bytes have no mark that they are anything else."""
    data = os.fsencode(name)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def split_name(name: str) -> str:
    """The words of a name, lower case, and behind them the pieces that were split, whole.

    Split is at marks and white space, where a capital follows a small letter (`ClonkDie`) or stands before one in a row
    of capitals (`RBird`), and between digits and two letters or more (`kick01`, but not `3D`).
    """
    name = unicodedata.normalize("NFC", name)
    pieces = "".join(mark if unicodedata.category(mark)[0] in "LNM" else " " for mark in name).split()
    split = [re.sub(r"\s+", " ", _BORDER.sub(" ", piece)).strip() for piece in pieces]
    whole = [piece for piece, parts in zip(pieces, split, strict=True) if " " in parts]
    return " ".join([*split, *whole]).lower()


_SMALL, _CAPITAL, _LETTER = "[a-zß-öø-ÿ]", "[A-ZÀ-ÖØ-Þ]", r"[^\W\d_]"
_BORDER = re.compile(
    f"(?<={_SMALL})(?={_CAPITAL})|(?<={_CAPITAL})(?={_CAPITAL}{_SMALL})"
    rf"|(?<=\d)(?={_LETTER}{{2}})|(?<={_LETTER}{{2}})(?=\d)"
)
