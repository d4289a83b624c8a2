"""Any CSV of sounds and captions → a collection.

Each row names a sound by its path below a folder and bears one caption or more; rows that repeat a path (one
row a caption, as AudioCaps has it) are one clip with several captions. `clip_id` is that path, `caption_id` the
path, `#` and the caption's place within the clip from 1. Sounds are not copied: the collection leads to them.
A row that cannot be used is left out and told in `Collection.problems`; the CSV's other columns are kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from earmark.data.check import Listing, Names, is_file, is_side_file, shown
from earmark.data.collection import Caption, Clip, Collection, kind_of, relative_path
from earmark.data.rows import CAPTION_COLUMNS, CLIP_COLUMNS, KIND_COLUMN, is_blank, told_kind
from earmark.data.splits import hold_apart
from earmark.errors import DataError, Problem
from earmark.files import RENAME_OR_NAME, Row, check_new_folder, read_table

SPLIT_NAMES = {
    "train": "development",
    "training": "development",
    "val": "validation",
    "valid": "validation",
    "test": "evaluation",
    "testing": "evaluation",
    "eval": "evaluation",
}
"""What other data sets call the three splits. `dev` is validation beside a `train`, else development."""
SPLIT_WORDS = frozenset((*SPLIT_NAMES, "dev", "development", "validation", "evaluation"))
SOUND_ENDINGS = "wav flac mp3 ogg oga opus m4a mp4 webm mkv aac wma aif aiff au caf ac3"
"""Of file names that are looked for by what stands before the ending."""


class Source(NamedTuple):
    """What to take from a table."""

    csv: Path
    audio: Path
    path: str
    texts: tuple[str, ...]
    split: str | None
    group: str | None

    @property
    def columns(self) -> list[str]:
        """The columns that are asked for."""
        return [self.path, *self.texts, *(column for column in (self.split, self.group) if column)]


def import_table(
    csv: Path | str,
    root: Path | str,
    *,
    audio: Path | str,
    path: str,
    texts: Sequence[str],
    encoding: str = "utf-8",
    split: str | None = None,
    holdout: float | None = None,
    group: str | None = None,
    seed: int = 0,
) -> Collection:
    """The collection of a CSV, written to `root`; what was left out stands in its `problems`.

    `path` is the column of paths below the folder `audio`, `texts` are the columns of captions (a single one makes
    each text count once: `queries = "texts"`), `split` is the column of splits (`SPLIT_NAMES` are translated), or
    `holdout` the share of clips that becomes `evaluation`, in whole groups of the column `group`; without both all
    is `development`. `about["imported"]` tells what was done. What is not recorded stays so: the kind is that of the
    collection in whose folder the table lies, or that its column `collection_kind` names. Raises `DataError`, with
    nothing written, where the table, the columns or the folders are not what they should be or no row is left.
    """
    source = Source(Path(csv), Path(audio), path, tuple(texts), split, group)
    root = Path(root)
    _check(source, root, holdout)
    columns, rows, problems = read_table(source.csv, source.columns, encoding=encoding, advice=RENAME_OR_NAME)
    usable = _with_sounds(source, rows, problems)
    if not usable:
        raise DataError(
            f"{source.csv}: none of the {len(rows)} rows can be used; nothing is written. The first: "
            f"{problems[0] if problems else 'there is none'}"
        )
    found = Collection(root, [], [], queries="texts" if len(texts) == 1 else "captions", problems=problems)
    found.kind = told_kind([{KIND_COLUMN: kind_of(source.csv.parent)}, *(row.cells for row in rows)])
    take_rows(found, source, columns, usable)
    if not found.clips:
        raise DataError(f"{source.csv}: no row can be used; nothing is written. The first: {problems[0]}")
    found.about["imported"] = {"csv": source.csv.name, "path": path, "texts": list(texts)}
    if split is not None:
        found.about["imported"]["splits"] = name_splits(found)
    if holdout is not None:
        hold_out(found, source.csv, holdout, seed)
    if group is not None:
        found.about["imported"]["group"] = group
    problems.sort(key=lambda problem: int(problem.where.rpartition(" ")[2]))
    found.write()
    return found


def _check(source: Source, root: Path, holdout: float | None) -> None:
    """Raises `DataError` where the wishes contradict each other or a folder is not what it should be."""
    if not source.texts:
        raise DataError("--text: no column of captions named; expected one at least.")
    twice = sorted({column for column in source.texts if source.texts.count(column) > 1})
    if twice:
        raise DataError(f"--text {twice[0]}: named twice; expected each column once.")
    if holdout is not None and source.split is not None:
        raise DataError(f"--split {source.split} and --holdout {holdout:g}: expected one of the two. Leave one out.")
    check_holdout(holdout)
    if not source.audio.is_dir():
        raise DataError(f"{source.audio}: not a folder; expected the one that the paths start from (--audio).")
    check_new_folder(root)


def check_holdout(holdout: float | None) -> None:
    """Raises `DataError` where the share to hold out is none."""
    if holdout is not None and not 0 < holdout < 1:
        raise DataError(f"--holdout {holdout:g}; expected a share of more than 0 and less than 1, such as 0.2.")


def hold_out(found: Collection, source: Path, share: float, seed: int) -> None:
    """Makes about `share` of the clips `evaluation`, whole groups drawn by seed; told in `about["imported"]`."""
    try:
        apart = hold_apart(found.clips, share, seed)
    except DataError as error:
        problems = found.problems
        left = f" {len(problems)} rows were left out, the first: {problems[0]}" if problems else ""
        raise DataError(f"{source}: {error}{left}") from error
    found.clips = [replace(clip, split="evaluation") if clip.clip_id in apart else clip for clip in found.clips]
    found.about["imported"] |= {"holdout": share, "seed": seed}


class Sounds:
    """The sound files below a folder, found by what a table calls them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = Names()

    def find(self, value: str) -> tuple[str, str]:
        """(path below the root, "") or ("", why there is none). A bare name is looked for in all folders below."""
        relative = self._below(value)
        if is_blank(value) or not relative:
            return "", f"path {value!r}; expected one below {self.root}"
        if not is_file(self.root / relative):
            if "/" in relative:
                return "", self.names.missing(self.root, relative)
            named = sorted(self.by_name.get(relative, []))
            found = [path for path in named if is_file(self.root / path)]
            if named and not found:
                return "", f"{named[0]!r} is not a regular file, or a link that leads nowhere; expected a sound"
            if len(found) > 1:
                there = ", ".join(map(repr, found[:3])) + (", …" if len(found) > 3 else "")
                return "", f"{len(found)} files are called {relative!r} ({there}); expected a path with its folder"
            if not found:
                return "", self.names.describe(relative, self.names.among(relative, self._listing))
            relative = found[0]
        if shown(relative) != relative:
            return "", f"{shown(relative)!r} is a name that is not UTF-8. Rename the file"
        if is_side_file(self.root / relative):
            return "", f"{relative!r} is a side file of macOS, not a sound"
        return relative, ""

    def _below(self, value: str) -> str:
        """The path below the root, `/` between its parts; empty where it leads out of the root."""
        parts = PurePosixPath(value.removeprefix(f"{self.root.absolute()}/").lstrip("/")).parts
        return "" if ".." in parts or not parts else "/".join(parts)

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The paths below the root by file name; links to folders are not followed, so that none leads in a circle."""
        found: dict[str, list[str]] = {}
        for folder, _, files in os.walk(self.root):
            for file in files:
                found.setdefault(file, []).append((Path(folder) / file).relative_to(self.root).as_posix())
        return found

    @cached_property
    def by_stem(self) -> dict[str, list[str]]:
        """The paths of sounds below the root by file name without its ending."""
        found: dict[str, list[str]] = {}
        for name, paths in self.by_name.items():
            stem, _, ending = name.rpartition(".")
            if ending.lower() in SOUND_ENDINGS.split() and not name.startswith("._"):
                found.setdefault(stem, []).extend(
                    path for path in paths if shown(path) == path and is_file(self.root / path)
                )
        return found

    @cached_property
    def _listing(self) -> Listing:
        return Listing.of(self.by_name)


def _with_sounds(source: Source, rows: Iterable[Row], problems: list[Problem]) -> list[tuple[str, Row]]:
    """The rows whose sound is there, with its path; the others go to the problems."""
    sounds = Sounds(source.audio)
    usable = []
    for row in rows:
        found, fault = sounds.find(row.cells[source.path])
        if fault:
            problems.append(_left_out(source, row, fault))
        else:
            usable.append((found, row))
    return usable


def _left_out(source: Source, row: Row, what: str) -> Problem:
    return Problem(f"{source.csv} line {row.line}", f"{what}. The row is left out.")


def take_rows(found: Collection, source: Source, columns: Sequence[str], usable: Sequence[tuple[str, Row]]) -> None:
    """Fills the collection's clips and captions from rows and the paths of their sounds; see the module."""
    of_clip, of_caption = _kept_columns(source, columns, usable)
    clips: dict[str, Clip] = {}
    counts: dict[str, int] = {}
    for name, row in usable:
        cells = row.cells
        texts = [cells[column] for column in source.texts if not is_blank(cells[column])]
        clip = Clip(
            name,
            relative_path(source.audio.resolve() / name, found.root),
            cells[source.split] if source.split else "development",
            cells[source.group] if source.group else "",
            renamed(cells, of_clip, CLIP_COLUMNS),
        )
        known = clips.get(name, clip)
        if not texts:
            found.problems.append(_left_out(source, row, f"no text in {', '.join(map(repr, source.texts))}"))
        elif is_blank(clip.split):
            found.problems.append(_left_out(source, row, f"no split in {source.split!r}"))
        elif (known.split, known.group) != (clip.split, clip.group):
            what = f"{name!r} has split {clip.split!r} and group {clip.group!r}, above {known.split!r}, {known.group!r}"
            found.problems.append(_left_out(source, row, what))
        else:
            clips[name] = known
            _take_texts(found, source, row, name, texts, counts, renamed(cells, of_caption, CAPTION_COLUMNS))
    found.clips = list(clips.values())


def _take_texts(
    found: Collection,
    source: Source,
    row: Row,
    name: str,
    texts: Sequence[str],
    counts: dict[str, int],
    more: Mapping[str, str],
) -> None:
    for text in texts:
        counts[name] = counts.get(name, 0) + 1
        found.captions.append(Caption(f"{name}#{counts[name]}", name, text, more))
    blank = len(source.texts) - len(texts)
    if blank:
        what = f"{blank} of {len(source.texts)} texts are blank and left out."
        found.problems.append(Problem(f"{source.csv} line {row.line}", what))


def _kept_columns(
    source: Source, columns: Sequence[str], usable: Sequence[tuple[str, Row]]
) -> tuple[list[str], list[str]]:
    """The other columns: those that all rows of a clip agree on go to the clips, the rest to the captions."""
    others = [column for column in columns if column and column not in (*source.columns, KIND_COLUMN)]
    first: dict[str, Row] = {}
    differing = {
        column
        for name, row in usable
        for column in others
        if first.setdefault(name, row).cells[column] != row.cells[column]
    }
    return [c for c in others if c not in differing], [c for c in others if c in differing]


def renamed(cells: Mapping[str, str], columns: Iterable[str], taken: Sequence[str]) -> dict[str, str]:
    """The cells, those under a name that the collection's own table needs as `csv_NAME`."""
    return {f"csv_{column}" if column in taken else column: cells[column] for column in columns}


def split_word(name: str) -> str:
    """The last word of a file's or folder's name that names a split, as it is, or nothing."""
    words = re.findall(r"[a-z]+", name.casefold())
    return next((word for word in reversed(words) if word in SPLIT_WORDS), "")


def name_splits(found: Collection) -> dict[str, str]:
    """Translates the usual names of splits in place; gives those that were translated."""
    names = {clip.split for clip in found.clips}
    has_train = any(name.casefold() in ("train", "training", "development") for name in names)
    known = SPLIT_NAMES | {"dev": "validation" if has_train else "development"}
    ours = {name: known[name.strip().casefold()] for name in sorted(names) if name.strip().casefold() in known}
    found.clips = [replace(clip, split=ours.get(clip.split, clip.split)) for clip in found.clips]
    return ours
