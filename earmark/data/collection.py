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
import re
import shutil
import tempfile
import tomllib
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w

from earmark.data import check as checks
from earmark.errors import DataError, Problem
from earmark.files import Row, check_columns, read_table, read_text, write_table, write_text, writing
from earmark.relevance import Rating, Relevance

KINDS = ("recorded", "generated", "proxy")
QUERIES = ("captions", "texts")
LISTS = "-lists"
"""Clips of the split `S-lists` stand in the rated lists of S, but not in its gallery."""
_PLAIN = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Clip:
    """One sound: a file, or a vector that stands for it."""

    clip_id: str
    path: str
    """Relative to the collection's folder, `/` between the parts; empty where a vector stands for the sound."""
    split: str
    group: str = ""
    """Clips of equal, non-empty group stay together in every split."""
    more: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The other columns of `clips.csv`, as they were."""


@dataclass(frozen=True, slots=True)
class Caption:
    """Words for one clip."""

    caption_id: str
    clip_id: str
    text: str
    more: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The other columns of `captions.csv`, as they were."""


@dataclass(frozen=True)
class VectorTable:
    """A vector for each id: `vectors` is float32 [id, dimension]."""

    ids: tuple[str, ...]
    vectors: np.ndarray[Any, np.dtype[np.float32]]
    path: Path | None = None

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in reversed(list(enumerate(self.ids)))}

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    def rows(self, ids: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The vectors of `ids`, float32 [len(ids), dimension]. Raises `DataError` naming the first id without one."""
        missing = [name for name in ids if name not in self._row_of]
        if missing:
            raise DataError(
                f"{self.path or 'vectors'}: no vector for {missing[0]!r} ({len(missing)} of {len(ids)} ids have none); "
                f"found {len(self.ids)}. Embed the collection again."
            )
        return self.vectors[[self._row_of[name] for name in ids]]

    @classmethod
    def read(cls, path: Path) -> VectorTable:
        """The table of an npz file with `id` [n] and `vector` [n, d]. Nothing in it is ever unpickled."""
        try:
            with np.load(path, allow_pickle=False) as file:
                ids, vectors = file["id"], file["vector"]
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{path}: not a table of vectors ({reason}); expected an npz with id and vector.") from error
        if vectors.dtype.kind != "f" or vectors.ndim != 2 or ids.shape != vectors.shape[:1] or ids.dtype.kind not in "UiuS":
            raise DataError(
                f"{path}: id is {ids.dtype}{list(ids.shape)} and vector {vectors.dtype}{list(vectors.shape)}; "
                "expected texts [n] and floats [n, d]. Write it again."
            )
        names = (name.decode() if isinstance(name, bytes) else str(name) for name in ids.tolist())
        with np.errstate(over="ignore"):
            return cls(tuple(names), np.ascontiguousarray(vectors, dtype=np.float32), path)

    def write(self, path: Path) -> None:
        """Writes the npz, whole or not at all."""
        with writing(path) as aside, aside.open("wb") as file:
            np.savez(file, id=np.array(self.ids, dtype=np.str_), vector=self.vectors)


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
        found = cls(
            root,
            [],
            [],
            name=about.pop("name", ""),
            kind=about.pop("kind", "recorded"),
            queries=about.pop("queries", "captions"),
            about=about,
        )
        _read_clips(found)
        _read_captions(found)
        if (root / "ratings.csv").exists():
            _read_ratings(found)
        return found

    def write(self, root: Path | str | None = None) -> None:
        """Writes the tables and `collection.toml`: a new folder appears whole, an existing one file by file.

        In another folder than its own, the clips' paths are rewritten to lead to the same files, and the files of
        vectors are copied.
        """
        root = self.root if root is None else Path(root)
        moved = root.resolve() != self.root.resolve()
        clips = [replace(clip, path=_relative(self.audio_path(clip), root)) if moved and clip.path else clip for clip in self.clips]
        with _folder(root) as aside:
            if moved:
                for name in ("clip_vectors.npz", "caption_vectors.npz"):
                    if (self.root / name).exists():
                        with writing(aside / name) as copy:
                            shutil.copyfile(self.root / name, copy)
            _write_rows(aside / "clips.csv", ("clip_id", "path", "split"), ("group",), clips)
            _write_rows(aside / "captions.csv", ("caption_id", "clip_id", "text"), (), self.captions)
            if self.ratings:
                optional = ("group", "rater_id", "played_s", "stratum", "probability")
                _write_rows(aside / "ratings.csv", ("caption_id", "clip_id", "rating"), optional, self.ratings)
            else:
                (aside / "ratings.csv").unlink(missing_ok=True)
            head = {"name": self.name, "kind": self.kind, "queries": self.queries}
            write_text(aside / "collection.toml", tomli_w.dumps({**head, **self.about}))

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

    def query_captions(self, split: str | None = None) -> list[Caption]:
        """The captions of the split's clips; where `queries` is "texts", of equal texts the first only."""
        captions = self.captions_of(split)
        if self.queries == "captions":
            return captions
        return list({caption.text: caption for caption in reversed(captions)}.values())[::-1]

    def rated(self, split: str | None = None) -> list[Rating]:
        """The ratings whose caption's clip is in the split or in its `-lists`."""
        if split is None:
            return list(self.ratings)
        self._check_split(split)
        inside = {clip.clip_id for clip in self.clips if clip.split in (split, split + LISTS)}
        asked = {caption.caption_id for caption in self.captions if caption.clip_id in inside}
        return [rating for rating in self.ratings if rating.caption_id in asked]

    def relevance(
        self,
        source: Literal["captions", "ratings"],
        split: str | None = None,
        aggregate: Literal["mean", "standardised"] = "mean",
    ) -> Relevance:
        """What is relevant to what, from captions (closed world) or from people's ratings (unjudged unknown).

        From captions: a caption is relevant to its clip and to every clip of the same split that bears the same text.
        """
        if source == "ratings":
            return Relevance.from_ratings(self.rated(split), aggregate=aggregate)
        if source != "captions":
            raise DataError(f"relevance {source!r}; expected 'captions' or 'ratings'.")
        split_of = {clip.clip_id: clip.split for clip in self.gallery(split)}
        captions = self.captions_of(split)
        bearing: dict[tuple[str, str], dict[str, None]] = {}
        for caption in captions:
            bearing.setdefault((split_of[caption.clip_id], caption.text), {})[caption.clip_id] = None
        return Relevance.from_pairs(
            (caption.caption_id, clip_id)
            for caption in captions
            for clip_id in bearing[split_of[caption.clip_id], caption.text]
        )

    def _check_split(self, split: str) -> None:
        found = list(dict.fromkeys(clip.split for clip in self.clips))
        if split not in found:
            near = difflib.get_close_matches(split, found, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Name one of them."
            raise DataError(f"{self.root}: no clips of split {split!r}; found {', '.join(self.splits) or 'none'}. {hint}")

    # Files beside the tables

    @cached_property
    def clip_vectors(self) -> VectorTable | None:
        """The vectors that stand for clips, or None where there is no `clip_vectors.npz`."""
        return self._vectors("clip_vectors.npz")

    @cached_property
    def caption_vectors(self) -> VectorTable | None:
        """The vectors that stand for captions, or None where there is no `caption_vectors.npz`."""
        return self._vectors("caption_vectors.npz")

    def _vectors(self, name: str) -> VectorTable | None:
        path = self.root / name
        return VectorTable.read(path) if path.exists() else None

    def audio_path(self, clip: Clip) -> Path:
        """The absolute path of the clip's sound. Raises `DataError` where the clip has none."""
        if not clip.path:
            raise DataError(f"{self.root / 'clips.csv'}: clip {clip.clip_id!r} has no sound file (its path is empty).")
        return Path(os.path.abspath(self.root / clip.path))  # noqa: PTH100  (not resolve: links stay as they are)

    def where(self, file: str, *key: str) -> str:
        """The place of a row, for messages: `clips.csv line 12`, or the id where the row was not read."""
        line = self.lines.get((file, *key))
        return f"{file} line {line}" if line else f"{file} {key[0]!r}"

    def check(self, sounds: bool = True, progress: Callable[[int, int], None] | None = None) -> list[Problem]:
        """Everything that is wrong or odd, by file and line; `sounds` decodes every sound whole.

        `progress` is told (sounds done, sounds in all).
        """
        return checks.check(self, sounds=sounds, progress=progress)


def hold_apart(clips: Sequence[Clip], share: float, seed: int = 0) -> set[str]:
    """The ids of about `share` of the clips, drawn by seed in whole groups; never none and never all.

    A clip without a group is a group of its own. Groups are drawn in random order, each taken where it brings the
    count nearer to `share`. Raises `DataError` where `share` is not between 0 and 1 or all clips are one group.
    """
    if not 0 < share < 1:
        raise DataError(f"share {share:g} to hold apart; expected more than 0 and less than 1.")
    groups: dict[tuple[bool, str], list[str]] = {}
    for clip in clips:
        groups.setdefault((bool(clip.group), clip.group or clip.clip_id), []).append(clip.clip_id)
    if len(groups) < 2:
        raise DataError(f"{len(clips)} clips in {len(groups)} group(s); expected two groups at least, to hold one apart.")
    members = list(groups.values())
    order = [members[index] for index in np.random.default_rng(seed).permutation(len(members))]
    wanted, taken = share * len(clips), set[str]()
    for ids in order:
        if abs(len(taken) + len(ids) - wanted) < abs(len(taken) - wanted) and len(taken) + len(ids) < len(clips):
            taken.update(ids)
    return taken or set(min(order, key=len))


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: blanks, controls and format characters (U+200B) only."""
    return all(unicodedata.category(letter) in ("Zs", "Zl", "Zp", "Cc", "Cf") for letter in text)


def plain_number(text: str, low: float, high: float) -> float | None:
    """The number that `text` is, or None where it is not a plain decimal from `low` to `high`.

    Refused are signs, exponents, `nan`, decimal commas and surrounding blanks: what an export wrote so was meant
    for something else, and a silent reading of it would be a guess.
    """
    value = float(text) if _PLAIN.fullmatch(text) else float("nan")
    return value if low <= value <= high else None


def _read_about(root: Path) -> dict[str, Any]:
    path = root / "collection.toml"
    if not root.is_dir():
        raise DataError(f"{root}: not a folder; expected a collection (a folder with clips.csv and captions.csv).")
    if not path.exists():
        return {}
    try:
        about = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML ({error}). Correct it.") from error
    for key in ("name", "kind", "queries"):
        if not isinstance(about.get(key, ""), str):
            raise DataError(f"{path}: {key} = {about[key]!r}; expected a text in quotes.")
    return about


def _rows(found: Collection, file: str, needed: Sequence[str]) -> Iterator[Row]:
    """The rows of a table whose ids are there; what cannot be read goes to the collection's problems."""
    columns, rows, problems = read_table(found.root / file, needed)
    prefix = f"{found.root}{os.sep}"
    found.problems += [Problem(problem.where.removeprefix(prefix), problem.what) for problem in problems]
    ids = [column for column in needed if column.endswith("_id")]
    for row in rows:
        blank = [column for column in ids if is_blank(row.cells[column])]
        if blank:
            _leave_out(found, file, row, f"{blank[0]} is blank; expected an id")
        else:
            yield row


def _leave_out(found: Collection, file: str, row: Row, what: str) -> None:
    found.problems.append(Problem(f"{file} line {row.line}", f"{what}. The row is left out."))


def _is_new(found: Collection, file: str, row: Row, column: str) -> bool:
    name = row.cells[column]
    first = found.lines.setdefault((file, name), row.line)
    if first != row.line:
        _leave_out(found, file, row, f"{column} {name!r} stands in line {first} already; expected each id once")
    return first == row.line


def _more(row: Row, known: Sequence[str]) -> dict[str, str]:
    return {column: cell for column, cell in row.cells.items() if column not in known}


def _read_clips(found: Collection) -> None:
    file = "clips.csv"
    for row in _rows(found, file, ("clip_id", "path", "split")):
        cells = row.cells
        if is_blank(cells["split"]):
            _leave_out(found, file, row, f"clip {cells['clip_id']!r} has no split; expected development, say")
        elif _is_new(found, file, row, "clip_id"):
            more = _more(row, ("clip_id", "path", "split", "group"))
            found.clips.append(Clip(cells["clip_id"], cells["path"], cells["split"], cells.get("group", ""), more))


def _read_captions(found: Collection) -> None:
    file = "captions.csv"
    for row in _rows(found, file, ("caption_id", "clip_id", "text")):
        cells = row.cells
        if ("clips.csv", cells["clip_id"]) not in found.lines:
            _leave_out(found, file, row, f"clip {cells['clip_id']!r} is not in clips.csv")
        elif is_blank(cells["text"]):
            _leave_out(found, file, row, "the text is blank; expected words")
        elif _is_new(found, file, row, "caption_id"):
            more = _more(row, ("caption_id", "clip_id", "text"))
            found.captions.append(Caption(cells["caption_id"], cells["clip_id"], cells["text"], more))


def _read_ratings(found: Collection) -> None:
    file = "ratings.csv"
    for row in _rows(found, file, ("caption_id", "clip_id", "rating")):
        cells = row.cells
        caption_id, clip_id = cells["caption_id"], cells["clip_id"]
        if ("captions.csv", caption_id) not in found.lines:
            _leave_out(found, file, row, f"caption {caption_id!r} is not in captions.csv")
        elif ("clips.csv", clip_id) not in found.lines:
            _leave_out(found, file, row, f"clip {clip_id!r} is not in clips.csv")
        elif what := rating_fault(cells):
            found.problems.append(Problem(f"{file} line {row.line}", what))
        else:
            found.ratings.append(_rating(cells))
            found.lines.setdefault((file, caption_id, clip_id, cells.get("rater_id", "")), row.line)


def rating_fault(cells: Mapping[str, str]) -> str:
    """What is wrong with the numbers of a row of ratings, in words; empty where nothing is."""
    rating, played, probability = cells["rating"], cells.get("played_s", ""), cells.get("probability", "")
    if plain_number(rating, 0, 100) is None:
        if re.fullmatch(r"[-+]?[0-9.]+", rating):
            return f"rating {rating}; expected 0–100. Check the export's scale. The row is left out."
        return f"rating {rating!r}; expected a plain number 0–100, such as 50 or 50.5. The row is left out."
    if played and plain_number(played, 0, float("inf")) is None:
        return f"played_s {played!r}; expected seconds, such as 4.5, or nothing. The row is left out."
    if probability and not plain_number(probability, 0, 1):
        return f"probability {probability!r}; expected more than 0 and 1 at most, or nothing. The row is left out."
    return ""


_RATING_COLUMNS = ("caption_id", "clip_id", "rating", "group", "rater_id", "played_s", "stratum", "probability")


def _rating(cells: Mapping[str, str]) -> Rating:
    played, probability = cells.get("played_s", ""), cells.get("probability", "")
    return Rating(
        caption_id=cells["caption_id"],
        clip_id=cells["clip_id"],
        rating=float(cells["rating"]),
        group=cells.get("group", ""),
        rater_id=cells.get("rater_id", ""),
        played_s=float(played) if played else None,
        stratum=cells.get("stratum", ""),
        probability=float(probability) if probability else None,
        more={column: cell for column, cell in cells.items() if column not in _RATING_COLUMNS},
    )


def _cell(value: object) -> str:
    """A cell's text: floats as short as they can be read back exactly, without an exponent."""
    if value is None:
        return ""
    return np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value)


def _write_rows(path: Path, needed: Sequence[str], optional: Sequence[str], items: Sequence[Any]) -> None:
    used = [name for name in optional if any(getattr(item, name) not in ("", None) for item in items)]
    columns = [*needed, *used]
    more = list(dict.fromkeys(column for item in items for column in item.more))
    check_columns(path, [*columns, *more], ())
    rows = ({**item.more, **{name: _cell(getattr(item, name)) for name in columns}} for item in items)
    write_table(path, [*columns, *more], rows)


def _relative(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root.resolve())).as_posix()


@contextlib.contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """The folder to write to: `root` itself where it holds something, else one aside that is renamed at the end."""
    if root.is_dir() and any(root.iterdir()):
        yield root
        return
    if root.exists() and not root.is_dir():
        raise DataError(f"{root}: a file; expected a folder to write to. Name another one.")
    root.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".earmark-", suffix=".part", dir=root.parent))
    try:
        aside.chmod(0o755)
        yield aside
        aside.rename(root)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def texts_of(captions: Iterable[Caption]) -> list[str]:
    """The captions' texts, in order."""
    return [caption.text for caption in captions]
