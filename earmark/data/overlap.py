"""What two collections, or the splits of one, share: files, published sources, texts, recordings.

What stands on both sides of a comparison can leak from training into evaluation. Compared are the bytes of the files,
the ids of the published sounds that clips were taken from (from columns, links and file names), the captions' texts,
and the sounds themselves, so that a copy is found that is transcoded, resampled, louder, trimmed or an excerpt. A clip
without a sound is compared by its vector and by the rest. A sound that cannot be read is told and costs itself only.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from earmark.audio.recordings import Progress, attempted, listen, same_recordings
from earmark.data.check import Names, is_file, shown
from earmark.data.collection import LISTS, Clip, Collection, VectorTable
from earmark.errors import DataError, Problem
from earmark.files import opened

KINDS = ("content", "freesound", "youtube", "text", "sound")
NAMES = {"freesound": "Freesound", "youtube": "YouTube"}
MOST_PAIRS = 100
"""Pairs of clips that two sides give for one file, source or recording; beyond, each clip stands in one pair."""

_FREESOUND = re.compile(
    r"https?://(?:www\.|cdn\.)?freesound\.org/"
    r"(?:s/|people/[^/]+/sounds/|apiv2/sounds/|samplesViewSingle\.php\?id=|(?:data/)?previews/\d+/)0*(\d+)(?:\D.*)?"
)
_YOUTUBE = re.compile(
    r"https?://(?:(?:www\.|m\.)?youtube\.com/(?:watch\?(?:.*&)?v=|embed/)|youtu\.be/)([\w-]{11})(?:[^\w-].*)?"
)
_FREESOUND_FILE = re.compile(r"0*(\d+)__[^/]+?__[^/]+|[1-5]-0*(\d+)-[A-Z](?:-\d+)?\.\w+")
_ID_COLUMNS = {
    "freesound_id": ("freesound", re.compile(r"0*(\d+)")),
    "sound_id": ("freesound", re.compile(r"0*(\d+)")),
    "youtube_id": ("youtube", re.compile(r"([\w-]{11})")),
    "ytid": ("youtube", re.compile(r"([\w-]{11})")),
}

Key = TypeVar("Key")
Item = TypeVar("Item")


class Place(NamedTuple):
    """A clip on one side of the comparison."""

    side: int
    """The split's place among the splits, or 0 and 1 for the two collections."""
    clip_id: str
    split: str
    """Without `-lists`."""
    path: str

    def __str__(self) -> str:
        file = f" ({self.path})" if not self.path.endswith(self.clip_id) else ""
        return f"{self.split} {self.clip_id!r}{file}"


class Shared(NamedTuple):
    """What two clips share."""

    kind: str
    what: str
    here: Place
    there: Place

    def __str__(self) -> str:
        return f"{self.here} and {self.there}: {self.what}"

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        here, there = (
            {"clip_id": each.clip_id, "split": each.split, "path": each.path} for each in (self.here, self.there)
        )
        return {"kind": self.kind, "what": self.what, "here": here, "there": there}


@dataclass
class Overlap:
    """What was found."""

    shared: list[Shared] = field(default_factory=list)
    """By kind, then in the order of the clips."""
    problems: list[Problem] = field(default_factory=list)
    """Rows that were left out, and sounds and vectors that could not be compared."""
    sides: int = 0
    """How many splits or collections have clips; fewer than two share nothing."""

    @property
    def counts(self) -> dict[str, int]:
        """How many findings each kind has."""
        return {kind: sum(each.kind == kind for each in self.shared) for kind in KINDS}

    def lines(self, most: int) -> Iterator[str]:
        """The findings for people, `most` a kind, and how many there are."""
        for kind, count in self.counts.items():
            listed = [each for each in self.shared if each.kind == kind][:most]
            yield from (f"  {kind}: {each}" for each in listed)
            if count > most:
                yield f"  {kind}: … and {count - most:,} more"
        if self.sides < 2:
            yield "nothing to compare: fewer than two splits or collections have clips"
        else:
            yield "shared: " + ", ".join(f"{kind} {count:,}" for kind, count in self.counts.items())


class _Entry(NamedTuple):
    """A clip and whose it is."""

    place: Place
    clip: Clip
    collection: Collection

    def problem(self, what: str) -> Problem:
        """What is wrong with the clip's sound."""
        return _problem(self.collection, self.collection.where("clips.csv", self.clip.clip_id), what)


def overlap(here: Collection, there: Collection | None = None, progress: Progress | None = None) -> Overlap:
    """What the clips of two collections share; without `there`, what the splits of `here` share, pairwise.

    Clips of `S-lists` count as clips of S. Two clips give one finding of a kind at most; a text gives one for two
    sides. Clips whose files are equal are not compared as sounds.
    """
    tell = progress or (lambda what, done, all_: None)
    entries = list(_entries(here, there))
    found = Overlap(sides=len({each.place.side for each in entries}))
    for collection in (here,) if there is None else (here, there):
        found.problems += [_problem(collection, problem.where, problem.what) for problem in collection.problems]
    sounds = _contents(entries, found, tell)
    for digest, members in sounds.items():
        found.shared += _pairs("content", f"the same bytes, sha256 {digest[:12]}…", [each.place for each in members])
    for places in _grouped(_vectors(entries, found)).values():
        found.shared += _pairs("content", "the same vector", places)
    named = _grouped((source, each.place) for each in entries for source in sorted(sources(each.clip)))
    for (kind, source), places in named.items():
        found.shared += _pairs(kind, f"{NAMES[kind]} {source}", places)
    found.shared += _texts(entries)
    found.shared += _recordings(sounds, found, tell)
    order = {each.place: number for number, each in enumerate(entries)}
    found.shared.sort(key=lambda each: (KINDS.index(each.kind), order[each.here], order[each.there]))
    return found


def _entries(here: Collection, there: Collection | None) -> Iterator[_Entry]:
    splits: dict[str, int] = {}
    for side, collection in enumerate((here,) if there is None else (here, there)):
        for clip in collection.clips:
            split = clip.split.removesuffix(LISTS)
            at = splits.setdefault(split, len(splits)) if there is None else side
            yield _Entry(Place(at, clip.clip_id, split, clip.path), clip, collection)


def _problem(collection: Collection, where: str, what: str) -> Problem:
    return Problem(shown(f"{collection.root}{os.sep}{where}"), shown(what))


def _grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def _pairs(kind: str, what: str, places: Sequence[Place], others: Sequence[Place] | None = None) -> Iterator[Shared]:
    """The pairs of clips on different sides: among `places`, or of these with `others`."""
    ours, theirs = (_grouped((each.side, each) for each in part) for part in (places, others or places))
    for (side, one), (side_of_other, other) in product(ours.items(), theirs.items()):
        if side == side_of_other or (others is None and side > side_of_other):
            continue
        pairs, note = list[tuple[Place, Place]](), ""
        if len(one) * len(other) <= MOST_PAIRS:
            pairs = list(product(one, other))
        else:
            note = f"; {len(one)} × {len(other)} clips share it, each is listed once"
            pairs = [(each, other[0]) for each in one] + [(one[0], each) for each in other[1:]]
        yield from (Shared(kind, what + note, min(pair), max(pair)) for pair in pairs)


# Files and vectors


def _contents(entries: Sequence[_Entry], found: Overlap, tell: Progress) -> dict[str, list[_Entry]]:
    """The clips by the sha256 of their files' bytes; a file is read once, whatever links and paths lead to it."""
    names = Names()
    files: dict[Path, list[_Entry]] = {}
    for each in entries:
        if not each.clip.path:
            continue
        path = each.collection.audio_path(each.clip)
        if is_file(path):
            files.setdefault(path.resolve(), []).append(each)
        else:
            missing = names.missing(each.collection.root.resolve(), each.clip.path)
            found.problems.append(each.problem(f"{missing}. It is not compared."))
    digests, failed = attempted(_digest, list(files), "reading files", tell)
    found.problems += [files[path][0].problem(_unread(path, why)) for path, why in failed.items()]
    same = _grouped((digest, path) for path, digest in digests.items())
    return {digest: [each for path in paths for each in files[path]] for digest, paths in same.items()}


def _digest(path: Path) -> str:
    with opened(path) as file:
        if not os.fstat(file.fileno()).st_size:
            raise DataError(f"{path}: empty; expected a sound.")
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unread(path: Path, why: str) -> str:
    return f"{path.name}: {why}. It is not compared."


def _vectors(entries: Sequence[_Entry], found: Overlap) -> Iterator[tuple[bytes, Place]]:
    """The vectors of clips that have no sound; those without a direction tell nothing."""
    tables: dict[int, VectorTable | None] = {}
    for place, clip, collection in entries:
        if clip.path:
            continue
        if id(collection) not in tables:
            try:
                tables[id(collection)] = collection.clip_vectors
            except DataError as error:
                tables[id(collection)] = None
                found.problems.append(Problem(*shown(str(error)).split(": ", 1)))
        table = tables[id(collection)]
        if table is not None and clip.clip_id in table:
            vector = table.rows([clip.clip_id])
            if np.isfinite(vector).all() and vector.any():
                yield vector.tobytes(), place


# Sources and texts


def sources(clip: Clip) -> set[tuple[str, str]]:
    """The published sounds that a clip names: (`freesound` or `youtube`, id).

    From cells that are a link, from the columns `freesound_id`, `sound_id`, `youtube_id` and `ytid`, and from file
    names as Freesound (`123__user__name.wav`) and ESC-50 (`1-123-A-0.wav`) give them.
    """
    found = set[tuple[str, str]]()
    for column, cell in {**clip.more, "group": clip.group}.items():
        cell = cell.strip()
        patterns = [("freesound", _FREESOUND), ("youtube", _YOUTUBE)]
        if column.strip().casefold() in _ID_COLUMNS:
            patterns.append(_ID_COLUMNS[column.strip().casefold()])
        found |= {(kind, match[1]) for kind, pattern in patterns if (match := pattern.fullmatch(cell))}
    if match := _FREESOUND_FILE.fullmatch(clip.path.rpartition("/")[2]):
        found.add(("freesound", match[1] or match[2]))
    return found


def plain_text(text: str) -> str:
    """The text as it is compared: NFC, case folded, single blanks, without the punctuation at its end."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    words = " ".join(folded.split())
    while words and (words[-1] == " " or unicodedata.category(words[-1]).startswith("P")):
        words = words[:-1]
    return words


def _texts(entries: Sequence[_Entry]) -> Iterator[Shared]:
    """One finding for a text and two sides, with how often each has it."""
    collections = {id(each.collection): each.collection for each in entries}
    places = {(id(each.collection), each.clip.clip_id): each.place for each in entries}
    bearing: dict[str, dict[int, list[tuple[Place, str]]]] = {}
    for number, collection in collections.items():
        for caption in collection.captions:
            place = places[number, caption.clip_id]
            if text := plain_text(caption.text):
                bearing.setdefault(text, {}).setdefault(place.side, []).append((place, caption.text))
    for sides in bearing.values():
        for one, other in combinations(sorted(sides), 2):
            (here, text), (there, _) = sides[one][0], sides[other][0]
            yield Shared("text", f"{text!r}, {_times(sides[one])} and {_times(sides[other])}", here, there)


def _times(captions: Sequence[tuple[Place, str]]) -> str:
    clips = len({place for place, _ in captions})
    return f"{len(captions)} caption{'s' * (len(captions) > 1)} of {clips} clip{'s' * (clips > 1)}"


# Recordings


def _recordings(sounds: Mapping[str, Sequence[_Entry]], found: Overlap, tell: Progress) -> Iterator[Shared]:
    """The pairs of clips with the same recording in files that differ."""
    members = {each[0].collection.audio_path(each[0].clip): each for each in sounds.values()}
    sides = {path: {each.place.side for each in entries} for path, entries in members.items()}
    if len(set[int]().union(*sides.values())) < 2:
        return
    prints, failed = listen(list(members), tell)
    found.problems += [members[path][0].problem(_unread(path, why)) for path, why in failed.items()]
    for match in same_recordings(prints, {path: sides[path] for path in prints}, tell):
        ours, theirs = ([each.place for each in members[path]] for path in (match.one, match.other))
        for each in _pairs("sound", "", ours, theirs):
            starts = match.starts if each.here in ours else match.starts[::-1]
            what = f"the same recording for {match.seconds:.2f} s, from {starts[0]:.2f} s and {starts[1]:.2f} s on"
            yield each._replace(what=f"{what}; likeness {match.likeness:.2f}{each.what}")
