"""What two collections, or the splits of one, share: files, Freesound and YouTube sources, texts, recordings.

Whatever stands on both sides of a comparison can leak from training into evaluation. Compared are the files' bytes,
the ids of the published sounds they were taken from (from columns, links and file names), the captions' texts, and
the sounds themselves, so that a transcoded, resampled, louder, trimmed or excerpted copy is found (`audio.fingerprint`).
A clip without a sound is compared by its vector and by the rest. A sound that cannot be read is a `Problem` and costs
only itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from earmark.audio.decode import blocks
from earmark.audio.fingerprint import (
    DELAY,
    ENOUGH,
    HOP,
    RATE,
    SURE,
    TONE,
    WINDOW,
    Candidate,
    Fingerprint,
    Index,
    Likeness,
    Samples,
    fingerprint,
    likeness,
)
from earmark.data.check import Names, is_file, shown
from earmark.data.collection import LISTS, Clip, Collection
from earmark.errors import DataError, EarmarkError, Problem

KINDS = ("content", "freesound", "youtube", "text", "sound")
MOST_PAIRS = 100
"""Pairs of clips that one file, source or recording gives; where more share it, each clip stands in one pair."""
PIECES = (5, 3 * RATE)
"""An overlap longer than all of them is judged by so many pieces of so many samples."""
SHORT = 60 * RATE
"""Samples of a sound that is held whole while it is compared."""
AT_ONCE = 16
"""Pairs of sounds that are judged together: each sound is decoded once for them."""

_FREESOUND = re.compile(
    r"https?://(?:www\.|cdn\.)?freesound\.org/"
    r"(?:s/|people/[^/]+/sounds/|apiv2/sounds/|samplesViewSingle\.php\?id=|(?:data/)?previews/\d+/)0*(\d+)(?:\D.*)?"
)
_FREESOUND_FILE = re.compile(r"0*(\d+)__[^/]+?__[^/]+|[1-5]-0*(\d+)-[A-Z](?:-\d+)?\.\w+")
"""Freesound's own names of downloads (`123__user__name.wav`), and ESC-50's (`1-123-A-0.wav`)."""
_YOUTUBE = re.compile(
    r"https?://(?:(?:www\.|m\.)?youtube\.com/(?:watch\?(?:.*&)?v=|embed/)|youtu\.be/)([\w-]{11})(?:\W.*)?"
)
_ID_COLUMNS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "freesound_id": ("freesound", re.compile(r"0*(\d+)")),
    "sound_id": ("freesound", re.compile(r"0*(\d+)")),
    "youtube_id": ("youtube", re.compile(r"([\w-]{11})")),
    "ytid": ("youtube", re.compile(r"([\w-]{11})")),
}

Progress = Callable[[str, int, int], None]
"""Told (what is done, items done, items in all)."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Place(NamedTuple):
    """A clip on one side of the comparison."""

    side: int
    """The split's place among the splits, or 0 and 1 for the two collections."""
    clip_id: str
    split: str
    """Without `-lists`."""
    path: str


class Shared(NamedTuple):
    """What two clips share."""

    kind: str
    what: str
    here: Place
    there: Place

    def __str__(self) -> str:
        ends = (f"{each.split} {each.clip_id!r}{f' ({each.path})' if each.path else ''}" for each in self[2:])
        return f"{' — '.join(ends)}: {self.what}"

    def as_json(self) -> dict[str, Any]:
        """The same for programs: kind, what, here and there."""
        ends = [{"clip_id": each.clip_id, "split": each.split, "path": each.path} for each in (self.here, self.there)]
        return {"kind": self.kind, "what": self.what, "here": ends[0], "there": ends[1]}


@dataclass
class Overlap:
    """What was found."""

    shared: list[Shared] = field(default_factory=list)
    """By kind, then in the order of the clips."""
    problems: list[Problem] = field(default_factory=list)
    """Sounds and vectors that could not be read, and so were not compared."""
    sides: list[tuple[str, int]] = field(default_factory=list)
    """What was set against what, and how many clips each has."""

    @property
    def counts(self) -> dict[str, int]:
        """How many findings each kind has."""
        return {kind: sum(each.kind == kind for each in self.shared) for kind in KINDS}


def overlap(here: Collection, there: Collection | None = None, progress: Progress | None = None) -> Overlap:
    """What the clips of two collections share; without `there`, what the splits of `here` share, pairwise.

    Clips of `S-lists` count as clips of S. Of one kind a pair of clips gives one finding, of one text a pair of sides
    does; clips whose files are equal are not compared as sounds.
    """
    tell = progress or (lambda what, done, all_: None)
    clips = list(_clips(here, there))
    found = Overlap(sides=_sides(here, there, clips))
    sounds = _read(clips, found, tell)
    for content, members in sounds.items():
        found.shared += _pairs("content", f"the same bytes, sha256 {content[:12]}…", members)
    found.shared += _equal_vectors(clips, found)
    for (kind, source), members in _grouped((key, each.place) for each in clips for key in sources(each.clip)).items():
        found.shared += _pairs(kind, f"{'Freesound' if kind == 'freesound' else 'YouTube'} {source}", members)
    found.shared += _same_texts(clips)
    found.shared += _same_sounds(sounds, clips, found, tell)
    order = {each.place: number for number, each in enumerate(clips)}
    found.shared.sort(key=lambda each: (KINDS.index(each.kind), order[each.here], order[each.there]))
    return found
