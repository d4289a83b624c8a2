"""A collection: clips, their captions and people's ratings, in a folder of plain files.

`clips.csv` (`clip_id,path,split`), `captions.csv` (`caption_id,clip_id,text`), `ratings.csv` where people
rated (`caption_id,clip_id,rating`, 0–100), `collection.toml` (name, kind, queries, and whatever else one
wants to tell), and vectors in `clip_vectors.npz` and `caption_vectors.npz`. Unknown columns are kept.

A split's gallery is its clips and its queries are their captions, exactly; clips of `S-lists` stand only in
rated lists of the split S. A row that cannot be used is left out and told in `Collection.problems`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import tomllib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import tomli_w

from earmark.data.check import Names, Progress, is_file, sound_faults
from earmark.data.rows import KINDS as KINDS
from earmark.data.rows import Caption as Caption
from earmark.data.rows import Clip as Clip
from earmark.data.rows import read_tables, write_tables
from earmark.data.vectors import VectorTable as VectorTable
from earmark.errors import DataError, Problem
from earmark.files import read_text, write_text, writing, writing_folder
from earmark.relevance import Aggregate, Rating, Relevance, without_anchors

SHOUTED = ("generated", "proxy")
"""Kinds that are written in capitals: no result on them is one on recorded sound."""
QUERIES = ("captions", "texts")
VECTOR_FILES = ("clip_vectors.npz", "caption_vectors.npz")
LISTS = "-lists"
"""Clips of the split `S-lists` stand in the rated lists of S, but not in its gallery."""
GUARD = "formula_guard"
"""The key of collection.toml that says, as `true`, that no cell of the tables is a spreadsheet's formula: those that
would be begin with a `'`, which reading takes away (`rows.guarded`)."""
TWIN = "~"
"""A clip `c~caption` is a twin of `c`: the same sound, rebuilt without that caption (`data proxy`)."""


@dataclass
class Collection:
    """Clips, captions and ratings, and what was wrong with the rows that were left out."""

    root: Path
    clips: list[Clip]
    captions: list[Caption]
    ratings: list[Rating] = field(default_factory=list)
    name: str = ""
    kind: str = "recorded"
    queries: str = "captions"
    about: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, repr=False, compare=False)
    """The line of every row that was read: by (file, id), of ratings by (file, caption_id, clip_id, rater_id)."""

    def __post_init__(self) -> None:
        self.root = Path(self.root)
        self.name = self.name or self.root.resolve().name
        for what, value, known in (("kind", self.kind, KINDS), ("queries", self.queries, QUERIES)):
            if value not in known:
                raise DataError(
                    f"{self.root / 'collection.toml'}: {what} = {value!r}; expected {' or '.join(known)}. Correct it."
                )

    # Reading and writing

    @classmethod
    def read(cls, root: Path | str) -> Collection:
        """The collection of a folder. Raises `DataError` where a file or column is missing or cannot be read at all."""
        root = Path(root)
        about = _read_about(root)
        rows = read_tables(root, guard=about.get(GUARD) is True)
        head = {key: about.pop(key) for key in ("name", "kind", "queries") if key in about}
        found = cls(root, rows.clips, rows.captions, rows.ratings, about=about, problems=rows.problems, **head)
        found.lines = rows.lines
        return found

    def write(self, root: Path | str | None = None) -> None:
        """Writes the tables and `collection.toml`: a new folder appears whole, an existing one file by file.

        In another folder than its own, the clips' paths are rewritten to lead to the same files, and the files of
        vectors are copied.
        """
        root = self.root if root is None else Path(root)
        moved = root.resolve() != self._folder
        clips = [self._rebased(clip, root) for clip in self.clips] if moved else self.clips
        filled = root.is_dir() and any(root.iterdir())
        with contextlib.nullcontext(root) if filled else writing_folder(root) as aside:
            for name in VECTOR_FILES if moved else ():
                if (self.root / name).exists():
                    with writing(aside / name) as copy:
                        shutil.copyfile(self.root / name, copy)
            write_tables(aside, clips, self.captions, self.ratings, guard=self.guarded)
            self.write_about(aside)

    def write_about(self, root: Path | None = None) -> None:
        """Writes `collection.toml` alone, into its own folder or another."""
        head = {"name": self.name, "kind": self.kind, "queries": self.queries}
        write_text((root or self.root) / "collection.toml", tomli_w.dumps({**head, **self.about}))

    def _rebased(self, clip: Clip, root: Path) -> Clip:
        return replace(clip, path=relative_path(self.audio_path(clip), root)) if clip.path else clip

    @property
    def guarded(self) -> bool:
        """Whether its tables are written so that no spreadsheet takes a cell for a formula, see `GUARD`."""
        return self.about.get(GUARD) is True

    # What belongs to a split

    @property
    def splits(self) -> list[str]:
        """The splits in order of appearance, without the `*-lists`."""
        return list(dict.fromkeys(clip.split for clip in self.clips if not clip.split.endswith(LISTS)))

    def gallery(self, split: str | None = None) -> list[Clip]:
        """The clips of the split, exactly; of all splits but `*-lists` where it is None."""
        if split is None:
            return [clip for clip in self.clips if not clip.split.endswith(LISTS)]
        self._check_split(split)
        return [clip for clip in self.clips if clip.split == split]

    def captions_of(self, split: str | None = None) -> list[Caption]:
        """Every caption of the split's clips."""
        inside = {clip.clip_id for clip in self.gallery(split)}
        return [caption for caption in self.captions if caption.clip_id in inside]

    def query_captions(self, split: str | None = None, without: Container[str] = ()) -> list[Caption]:
        """The captions of the split's clips but those named in `without`; each text once where `queries` says so."""
        captions = [caption for caption in self.captions_of(split) if caption.clip_id not in without]
        if self.queries == "captions":
            return captions
        first: dict[str, Caption] = {}
        for caption in captions:
            first.setdefault(caption.text, caption)
        return list(first.values())

    def rated(self, split: str | None = None, *, anchors: bool = False) -> list[Rating]:
        """The ratings whose caption's clip is in the split or in its `-lists`, a study's `anchors` where asked for."""
        ratings = self.ratings if anchors else without_anchors(self.ratings)[0]
        if split is None:
            return list(ratings)
        self._check_split(split)
        inside = {clip.clip_id for clip in self.clips if clip.split in (split, split + LISTS)}
        asked = {caption.caption_id for caption in self.captions if caption.clip_id in inside}
        return [rating for rating in ratings if rating.caption_id in asked]

    def relevance(
        self,
        source: Literal["captions", "ratings"],
        split: str | None = None,
        aggregate: Aggregate = "mean",
    ) -> Relevance:
        """What is relevant to what, from captions (closed world) or from people's ratings (unjudged unknown).

        From captions: a caption is relevant to its clip and to every clip of the gallery (the split's; all clips but
        `*-lists` where it is None) that bears the same text. From ratings: those of `rated`, without anchors.
        """
        if source == "ratings":
            return Relevance.from_ratings(self.rated(split), aggregate=aggregate)
        if source != "captions":
            raise DataError(f"relevance {source!r}; expected 'captions' or 'ratings'.")
        captions = self.captions_of(split)
        bearing: dict[str, dict[str, None]] = {}
        for caption in captions:
            bearing.setdefault(caption.text, {})[caption.clip_id] = None
        return Relevance.from_pairs(
            (caption.caption_id, clip_id) for caption in captions for clip_id in bearing[caption.text]
        )

    def _check_split(self, split: str) -> None:
        found = list(dict.fromkeys(clip.split for clip in self.clips))
        if split not in found:
            near = difflib.get_close_matches(split, found, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Name one of them."
            raise DataError(
                f"{self.root}: no clips of split {split!r}; found {', '.join(self.splits) or 'none'}. {hint}"
            )

    # Files beside the tables

    @cached_property
    def clip_vectors(self) -> VectorTable | None:
        """The vectors that stand for clips, or None where there is no `clip_vectors.npz`."""
        return self._vectors(VECTOR_FILES[0])

    @cached_property
    def caption_vectors(self) -> VectorTable | None:
        """The vectors that stand for captions, or None where there is no `caption_vectors.npz`."""
        return self._vectors(VECTOR_FILES[1])

    def _vectors(self, name: str) -> VectorTable | None:
        path = self.root / name
        return VectorTable.read(path) if path.exists() else None

    @cached_property
    def _folder(self) -> Path:
        return self.root.resolve()

    def audio_path(self, clip: Clip) -> Path:
        """The absolute path of the clip's sound. Raises `DataError` where the clip has none."""
        if not clip.path:
            raise DataError(f"{self.where('clips.csv', clip.clip_id)}: the clip has no sound file (its path is empty).")
        return Path(os.path.normpath(self._folder / clip.path))

    # Checks

    def where(self, file: str, *key: str) -> str:
        """The place of a row, for messages: `clips.csv line 12`, or the id where the row was not read."""
        line = self.lines.get((file, *key))
        return f"{file} line {line}" if line else f"{file} {key[0]!r}"

    def check(self, sounds: bool = True, progress: Progress | None = None) -> list[Problem]:
        """Everything that is wrong or odd, by file and line; `sounds` decodes every sound whole.

        `progress` is told (sounds done, sounds in all).
        """
        problems = [*self.problems, *self._split_faults(), *self._rating_faults()]
        for name, known in zip(VECTOR_FILES, (self._clip_ids, self._caption_ids), strict=True):
            problems += self._vector_faults(name, known)
        return problems + self._file_faults(sounds, progress)

    @property
    def _clip_ids(self) -> list[str]:
        return [clip.clip_id for clip in self.clips]

    @property
    def _caption_ids(self) -> list[str]:
        return [caption.caption_id for caption in self.captions]

    def _split_faults(self) -> Iterator[Problem]:
        """Splits without captions, clips without, and groups that stand in several splits."""
        captioned = {caption.clip_id for caption in self.captions}
        if not self.clips:
            yield Problem("clips.csv", "no clip can be used; expected one at least.")
        for split in self.splits:
            without = [clip.clip_id for clip in self.gallery(split) if clip.clip_id not in captioned]
            if without:
                what = f"{len(without)} of {len(self.gallery(split))} clips of {split!r} have no caption"
                yield Problem(self.where("clips.csv", without[0]), f"{what}, this one first.")
        split_of: dict[str, str] = {}
        for clip in self.clips:
            split = clip.split.removesuffix(LISTS)
            if clip.group and split_of.setdefault(clip.group, split) != split:
                what = f"group {clip.group!r} stands in {split_of[clip.group]!r} and in {split!r}"
                yield Problem(self.where("clips.csv", clip.clip_id), f"{what}; expected each group in one split.")

    def _rating_faults(self) -> Iterator[Problem]:
        """Rated pairs across splits, and pairs that the same person rated twice."""
        split_of = {clip.clip_id: clip.split.removesuffix(LISTS) for clip in self.clips}
        owner = {caption.caption_id: caption.clip_id for caption in self.captions}
        seen: set[tuple[str, str, str]] = set()
        for rating in self.ratings:
            key = (rating.caption_id, rating.clip_id, rating.rater_id)
            asked, rated = split_of[owner[rating.caption_id]], split_of[rating.clip_id]
            if asked != rated:
                yield Problem(self.where("ratings.csv", *key), f"a caption of {asked!r} with a clip of {rated!r}.")
            if rating.rater_id and key in seen:
                pair = f"({rating.caption_id}, {rating.clip_id})"
                yield Problem(
                    self.where("ratings.csv", *key), f"{pair} is rated more than once by {rating.rater_id!r}."
                )
            seen.add(key)

    def _vector_faults(self, name: str, ids: Sequence[str]) -> list[Problem]:
        table_name = "clips.csv" if name == VECTOR_FILES[0] else "captions.csv"
        try:
            table = self._vectors(name)
        except DataError as error:
            where, _, what = str(error).removeprefix(f"{self.root}{os.sep}").partition(": ")
            return [Problem(where, what)]
        if table is None:
            return []
        return table.faults(ids) + [
            Problem(self.where(table_name, item), f"{item!r} has no vector in {name}. Embed the collection again.")
            for item in ids
            if item not in table
        ]

    def _file_faults(self, sounds: bool, progress: Progress | None) -> list[Problem]:
        """Sound files that are missing, named twice, or (where `sounds`) that cannot be decoded or are odd."""
        problems: list[Problem] = []
        present: dict[Path, str] = {}
        names = Names()
        with_path = [clip for clip in self.clips if clip.path]
        for clip in with_path:
            where, path = self.where("clips.csv", clip.clip_id), self.audio_path(clip)
            if not is_file(path):
                problems.append(Problem(where, f"{names.missing(self._folder, clip.path)}."))
            elif Path(clip.path).is_absolute():
                problems.append(Problem(where, f"path {clip.path!r}; expected one relative to the collection."))
            elif (first := present.setdefault(path, where)) != where:
                problems.append(Problem(where, f"the same sound as {first}; expected each file once."))
        if with_path and not any(is_file(self.audio_path(clip)) for clip in with_path):
            what = f"none of the {len(with_path)} sound files is there. Paths start from the collection's folder."
            problems.insert(0, Problem("clips.csv", what))
        if not (self.root / VECTOR_FILES[0]).exists():
            problems += [
                Problem(self.where("clips.csv", clip.clip_id), "the clip has neither a sound file nor a vector.")
                for clip in self.clips
                if not clip.path
            ]
        found = sound_faults(present, progress) if sounds else {}
        return problems + [Problem(present[path], f"{path.name}: {what}.") for path in found for what in found[path]]


def shouted(kind: str) -> str:
    """The kind as it stands beside numbers: in capitals where no result is one on recorded sound."""
    return kind.upper() if kind in SHOUTED else kind


def base_of(clip_id: str) -> str:
    """The clip that a twin stands for; any other clip's own id."""
    return clip_id.partition(TWIN)[0] or clip_id


def relative_path(path: Path, root: Path) -> str:
    """The way from a collection's folder to a file, `/` between the parts."""
    return Path(os.path.relpath(path, root.resolve())).as_posix()


def kind_of(root: Path) -> str:
    """The kind that a folder's collection.toml states, or recorded. Raises `DataError` where that is no kind."""
    return Collection(root, [], [], kind=_read_about(root).get("kind", KINDS[0])).kind


def _read_about(root: Path) -> dict[str, Any]:
    path = root / "collection.toml"
    if not root.is_dir():
        raise DataError(f"{root}: not a folder; expected a collection (a folder with clips.csv and captions.csv).")
    if not path.exists():
        return {}
    try:
        about = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not TOML ({error}). Correct it.") from error
    for key in ("name", "kind", "queries"):
        if not isinstance(about.get(key, ""), str):
            raise DataError(f"{path}: {key} = {about[key]!r}; expected a text in quotes.")
    return about
