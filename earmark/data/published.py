"""Captions and ratings as they were published → a collection: AudioCaps, WavCaps, XACLE, RELATE, DCASE 2025 task 6.

A file's layout is known by its columns, WavCaps by being JSON. Sounds are looked for below a folder under the names
that downloads of the set usually bear; a clip without one keeps an empty path, so that vectors can stand for it. The
split is told by the file's name (`val.csv`, `xacle_train.csv`), RELATE's by its column.

| layout | clip_id | caption_id | a text counts |
|---|---|---|---|
| AudioCaps | `{youtube_id}_{start_time}` | `audiocap_id` | for every caption |
| WavCaps | `{file}/{id}`, or `wav` where that is given | `{clip_id}#{k}` | for every caption |
| XACLE, RELATE | the sound's name | `{clip_id}#{k}` | once |
| DCASE 2025 | the sound's name | `{clip_id}#{k}` | once |

A rated text is a caption of the very clip that it was played with, once a pair; scores of 0–10 become 0–100. RELATE's
ratings whose `anchor label` is True have the group `anchor`.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from earmark.data.collection import Caption, Clip, Collection, relative_path
from earmark.data.rows import CLIP_COLUMNS, KIND_COLUMN, RATING_COLUMNS, is_blank, plain_number, told_kind, unguarded
from earmark.data.tables import Sounds, check_holdout, hold_out, name_splits, renamed, split_word
from earmark.errors import DataError, Problem
from earmark.files import Row, check_new_folder, opened, read_table, read_text
from earmark.relevance import ANCHOR, Rating

LFS = "version https://git-lfs.github.com/spec/"
"""How a Git-LFS pointer begins, which stands where the data was not fetched."""
EXCLUDED = "excluded"
"""What RELATE calls ratings that are in none of its splits."""


class Item(NamedTuple):
    """What a row says: one text of one clip, rated or not."""

    clip_id: str
    text: str
    names: tuple[tuple[str, str], ...]
    """What the sound may be called, likeliest first: (pattern, name without its ending, or path)."""
    caption_id: str = ""
    split: str = ""
    """Empty where the file tells it."""
    clip_more: Mapping[str, str] = {}
    rater_id: str = ""
    score: str | None = None
    """0–10; None where nobody rated."""
    group: str = ""
    """How the rated pair was chosen."""
    rating_more: Mapping[str, str] = {}


class Layout(NamedTuple):
    """A published form."""

    name: str
    columns: tuple[str, ...]
    """Those that it is known by; none is JSON."""
    items: Callable[[Mapping[str, str], str], list[Item]]
    """(cells, the file's stem) → what the row says. Raises `ValueError`, in words, where it says nothing."""
    queries: str
    split: str = "development"
    """Where the file's name tells none."""


# Layouts


def _audiocaps(cells: Mapping[str, str], stem: str) -> list[Item]:
    video, start, number = cells["youtube_id"], cells["start_time"], cells["audiocap_id"]
    if is_blank(video) or is_blank(number):
        raise ValueError("youtube_id or audiocap_id is blank; expected an id")
    names = (
        ("{youtube_id}_{start_time}", f"{video}_{start}"),
        ("Y{youtube_id}", f"Y{video}"),
        ("{youtube_id}", video),
        ("{audiocap_id}", number),
        *_by_seconds(video, start),
    )
    more = {"youtube_id": video, "start_time": start}
    return [Item(f"{video}_{start}", cells["caption"], names, number, clip_more=more)]


def _by_seconds(video: str, start: str) -> list[tuple[str, str]]:
    """Names with start and end of the ten seconds, as programs that fetch AudioSet give them."""
    if plain_number(start, 0, 1e6) is None:
        return []
    first = float(start)
    return [
        ("{youtube_id}_{start}_{end}", f"{video}_{first:g}_{first + 10:g}"),
        ("Y{youtube_id}_{start}_{end}, three decimals", f"Y{video}_{first:.3f}_{first + 10:.3f}"),
        ("{youtube_id}_{start}_{end}, milliseconds", f"{video}_{first * 1000:.0f}_{first * 1000 + 10_000:.0f}"),
    ]


def _wavcaps(cells: Mapping[str, str], stem: str) -> list[Item]:
    name, wav = cells.get("id", ""), cells.get("wav", "")
    if is_blank(name) and is_blank(wav):
        raise ValueError("neither id nor wav; expected one of them")
    texts = [cells[key] for key in cells if re.fullmatch(r"caption(_[0-9]+)?|captions?\[[0-9]+\]", key)]
    texts = [text for text in texts if not is_blank(text)]
    if not texts:
        raise ValueError("no caption")
    bare = re.sub(r"\.wav$", "", name)  # AudioSet's ids end so, and the files in .flac
    names = (("wav", wav), ("{id}", bare)) if wav else (("{id}", bare),)
    more = {key: cell for key, cell in cells.items() if not key.startswith("caption")}
    if match := re.fullmatch(r"Y([\w-]{11})\.wav", name):
        more["youtube_id"] = match[1]
    return [Item(wav or f"{stem}/{bare}", text, names, clip_more=more) for text in texts]


def _rated(cells: Mapping[str, str], sound: str, split: str = "", group: str = "") -> list[Item]:
    cells = {column: unguarded(cell) for column, cell in cells.items()}  # as `collect export` writes them
    name = cells[sound].lstrip("/")
    if is_blank(name):
        raise ValueError(f"{sound} is blank; expected a sound's name")
    used = (sound, "text", "score", "listener_id", KIND_COLUMN)
    more = {key: cell for key, cell in cells.items() if key not in used}
    return [
        Item(
            name,
            cells["text"],
            ((sound, name),),
            split=split,
            rater_id=cells["listener_id"],
            score=cells["score"],
            group=group,
            rating_more=more,
        )
    ]


def _relate(cells: Mapping[str, str], stem: str) -> list[Item]:
    group = ANCHOR if cells.get("anchor label", "").strip().lower() == "true" else ""
    return _rated(cells, "wavname", cells.get("in RELATE dataset", ""), group)


def _xacle(cells: Mapping[str, str], stem: str) -> list[Item]:
    return _rated(cells, "wave_file_name")


def _dcase2025(cells: Mapping[str, str], stem: str) -> list[Item]:
    return [Item(name, cells["query"], (("audio_filenames", name),)) for name in names_in(cells["audio_filenames"])]


def names_in(literal: str) -> list[str]:
    """The texts of a Python list literal; nothing is run. Raises `ValueError` where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a name is odd, but plain
            found = ast.literal_eval(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list | tuple) or not found or not all(isinstance(name, str) and name for name in found):
        raise ValueError(f"audio_filenames {_short(literal)}; expected a list such as ['a.wav', 'b.wav']")
    if half := half_letter(found):  # "\ud800" in the literal
        raise ValueError(half)
    return list(dict.fromkeys(found))


LAYOUTS = (
    Layout("AudioCaps", ("audiocap_id", "youtube_id", "start_time", "caption"), _audiocaps, "captions"),
    Layout("RELATE", ("wavname", "text", "score", "listener_id"), _relate, "texts"),
    Layout("XACLE", ("wave_file_name", "text", "score", "listener_id"), _xacle, "texts"),
    Layout("DCASE 2025 task 6", ("query", "audio_filenames"), _dcase2025, "texts", "evaluation"),
)
WAVCAPS = Layout("WavCaps", (), _wavcaps, "captions")


# Reading


class Table(NamedTuple):
    """One published file."""

    path: Path
    layout: Layout
    rows: list[Row]
    problems: list[Problem]
    unit: str
    """What a row is counted in: `line` or `item`."""

    @property
    def split(self) -> str:
        """The last word of the file's name that names a split, else the layout's."""
        return split_word(self.path.stem) or self.layout.split


def is_json(path: Path) -> bool:
    """Whether the file is JSON, or a Git-LFS pointer in the place of one, by its name."""
    return path.suffix.lower() == ".json"


def read_published(path: Path, encoding: str = "utf-8") -> Table:
    """The rows of a published file and its layout. Raises `DataError` where it has none of those that are known."""
    refuse_pointer(path)
    if is_json(path):
        return _read_json(path, encoding)
    columns, rows, problems = read_table(path, encoding=encoding)
    for layout in LAYOUTS:
        if set(layout.columns) <= set(columns):
            return Table(path, layout, rows, problems, "line")
    known = "; ".join(f"{layout.name}: {', '.join(layout.columns)}" for layout in LAYOUTS)
    raise DataError(
        f"{path} line 1: found {_short(', '.join(columns))}; expected the columns of a published set ({known}). "
        "Name yours with --path and --text."
    )


def refuse_pointer(path: Path) -> None:
    """Raises `DataError` where the file is a Git-LFS pointer, or cannot be read."""
    with opened(path) as file:
        head = file.read(1024)
    if head.startswith(LFS.encode()):
        size = re.search(rb"^size ([0-9]+)$", head, re.MULTILINE)
        stated = f" of {int(size[1]):,} bytes" if size else ""
        raise DataError(
            f"{path}: a Git-LFS pointer, not the data{stated}. Fetch it with `git lfs pull`, or download the file."
        )


def _read_json(path: Path, encoding: str) -> Table:
    try:
        found = json.loads(read_text(path, encoding))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error}). Is the download whole?") from error
    items = found.get("data") if isinstance(found, dict) else None
    if not isinstance(items, list):
        raise DataError(f"{path}: no list `data`; expected WavCaps' JSON, a list `data` of id, caption, duration, ….")
    rows, problems = [], []
    for number, item in enumerate(items, start=1):
        if isinstance(item, dict):
            rows.append(Row(number, dict(_cells(item))))
        else:
            what = f"{_short(json.dumps(item))}; expected id, caption, …. The item is left out."
            problems.append(Problem(f"{path} item {number}", what))
    return Table(path, WAVCAPS, rows, problems, "item")


def _cells(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The item as texts; a list of captions as `caption[0]`, `caption[1]`, …."""
    for key, value in item.items():
        if key in ("caption", "captions") and isinstance(value, list):
            yield from ((f"{key}[{place}]", text_of(each)) for place, each in enumerate(value))
        else:
            yield key, text_of(value)


def text_of(value: Any) -> str:
    """The value as a cell: a text as it is, nothing for None, else as JSON has it; half a letter of UTF-16 is `?`."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


def half_letter(texts: Iterable[str]) -> str:
    """What is wrong, in words, where a text holds half a letter of UTF-16, which no file can; else nothing."""
    for text in texts:
        if re.search("[\ud800-\udfff]", text):
            return f"{_short(text)} holds half a letter of UTF-16; expected whole ones"
    return ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


# To a collection


def import_published(
    files: Sequence[Path | str],
    root: Path | str,
    *,
    audio: Path | str | None = None,
    encoding: str = "utf-8",
    holdout: float | None = None,
    seed: int = 0,
) -> Collection:
    """The collection of one or more published files of one layout, written to `root`; see the module.

    `audio` is the folder whose sounds are looked for, at any depth. `about["imported"]` tells files, layout and how the
    sounds were found: pattern → count. `holdout` makes that share of the clips `evaluation` where no file names a split
    but development. What was left out stands in `problems`. Raises `DataError`, with nothing written, where a file is
    of no known layout, the files are of several, or nothing of them can be used.
    """
    root, paths = Path(root), [Path(file) for file in files]
    check_new_folder(root)
    check_holdout(holdout)
    if audio is not None and not Path(audio).is_dir():
        raise DataError(f"{audio}: not a folder; expected the one with the sounds (--audio).")
    tables = [read_published(path, encoding) for path in paths]
    layout = tables[0].layout
    for table in tables:
        if table.layout != layout:
            raise DataError(
                f"{table.path}: {table.layout.name}, but {paths[0]} is {layout.name}. Import one at a time."
            )
    found = Collection(root, [], [], queries=layout.queries)
    making = _Making(found, Sounds(Path(audio)) if audio is not None else None, layout.queries == "texts")
    for table in tables:
        making.take(table)
    found.kind = told_kind(row.cells for table in tables for row in table.rows)
    if not found.clips:
        first = found.problems[0] if found.problems else "there is none"
        raise DataError(f"{paths[0]}: no row can be used; nothing is written. The first: {first}")
    found.about["imported"] = {"files": [path.name for path in paths], "layout": layout.name}
    making.find_sounds(paths[0])
    if splits := name_splits(found):
        found.about["imported"]["splits"] = splits
    if holdout is not None:
        if found.splits != ["development"]:
            raise DataError(f"--holdout {holdout:g}: the files name splits ({', '.join(found.splits)}). Leave it out.")
        hold_out(found, paths[0], holdout, seed)
    found.write()
    return found


@dataclass
class _Making:
    """A collection that grows row by row."""

    found: Collection
    sounds: Sounds | None
    once: bool
    """Whether a text stands once a clip, however many rows repeat it."""
    clips: dict[str, Clip] = field(default_factory=dict)
    names: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)
    captions: dict[tuple[str, str], str] = field(default_factory=dict)
    """(clip, text) → the caption's id."""
    counts: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)

    def take(self, table: Table) -> None:
        """Adds what the rows of a file say."""
        self.found.problems += table.problems
        for row in table.rows:
            try:
                if half := half_letter((*row.cells, *row.cells.values())):  # of JSON's keys, or some encodings
                    raise ValueError(half)
                items = table.layout.items(row.cells, table.path.stem)
            except ValueError as fault:
                self._leave_out(table, row, fault)
                continue
            for item in items:
                try:
                    self._add(item, item.split or table.split)
                except ValueError as fault:
                    self._leave_out(table, row, fault)
        self.found.clips = list(self.clips.values())

    def _leave_out(self, table: Table, row: Row, fault: ValueError) -> None:
        self.found.problems.append(Problem(f"{table.path} {table.unit} {row.line}", f"{fault}. It is left out."))

    def _add(self, item: Item, split: str) -> None:
        """Adds a clip, a caption and a rating, what of them is new. Raises `ValueError`, with nothing added."""
        known = self.clips.get(item.clip_id)
        if known and split != known.split and EXCLUDED not in (split, known.split):
            raise ValueError(f"{item.clip_id!r} has split {split!r}, above {known.split!r}")
        if is_blank(item.text):
            raise ValueError("the text is blank; expected words")
        rating = None if item.score is None else _rating(item)
        caption_id = self.captions.get((item.clip_id, item.text), "") if self.once else ""
        if not caption_id:
            caption_id = item.caption_id or f"{item.clip_id}#{self.counts[item.clip_id] + 1}"
            if caption_id in self.ids:
                raise ValueError(f"caption {caption_id!r} stands above already; expected each id once")
            self.ids.add(caption_id)
            self.counts[item.clip_id] += 1
            self.captions[item.clip_id, item.text] = caption_id
            self.found.captions.append(Caption(caption_id, item.clip_id, item.text))
        if known is None:
            more = renamed(item.clip_more, item.clip_more, CLIP_COLUMNS)
            self.clips[item.clip_id] = Clip(item.clip_id, "", split, more=more)
        elif known.split == EXCLUDED != split:
            self.clips[item.clip_id] = replace(known, split=split)
        self.names.setdefault(item.clip_id, {}).update(dict.fromkeys(item.names))
        if rating is not None:
            self.found.ratings.append(replace(rating, caption_id=caption_id))

    def find_sounds(self, source: Path) -> None:
        """Gives each clip its path, and tells in one line how many have none."""
        if self.sounds is None:
            return
        patterns: Counter[str] = Counter()
        clips, faults = [], []
        for clip in self.found.clips:
            pattern, path, why = self._find(self.sounds, clip)
            patterns[pattern] += bool(path)
            if not path:
                faults.append(why)
            clips.append(replace(clip, path=self._path(path)) if path else clip)
        self.found.clips = clips
        self.found.about["imported"]["sounds"] = {pattern: count for pattern, count in patterns.items() if count}
        if faults:
            what = f"{len(faults):,} of {len(clips):,} clips have no sound below {self.sounds.root}"
            self.found.problems.append(Problem(str(source), f"{what}; the first: {faults[0]}. Their paths stay empty."))

    def _path(self, path: str) -> str:
        assert self.sounds is not None
        return relative_path(self.sounds.root.resolve() / path, self.found.root)

    def _find(self, sounds: Sounds, clip: Clip) -> tuple[str, str, str]:
        """(pattern, path below the root, why there is none)."""
        names = list(self.names[clip.clip_id])
        for pattern, name in names:
            path, _ = sounds.find(name) if pattern in _PATHS else ("", "")
            paths = [path] if path else _by_stem(sounds, name, pattern)
            if len(paths) == 1:
                return pattern, paths[0], ""
            if paths:
                there = ", ".join(map(repr, sorted(paths)[:3]))
                return pattern, "", f"{len(paths)} files may be {name!r} ({there}); expected one"
        wanted = ", ".join(repr(name) for _, name in names[:4])
        return "", "", f"{clip.clip_id!r}, looked for as {wanted}"


def _by_stem(sounds: Sounds, name: str, pattern: str) -> list[str]:
    """The sounds of that name, whatever their ending, in the folders that the name gives; WavCaps' lie elsewhere."""
    if pattern not in _PATHS:
        return sounds.by_stem.get(name, [])
    whole = _without_ending(name)
    found = sounds.by_stem.get(whole.rpartition("/")[2], [])
    return [path for path in found if pattern == "wav" or f"/{_without_ending(path)}".endswith(f"/{whole}")]


def _without_ending(name: str) -> str:
    return re.sub(r"\.\w+$", "", name)


_PATHS = ("wav", "wavname", "wave_file_name", "audio_filenames")
"""Columns that name a file with its ending, and often its folder."""


def _rating(item: Item) -> Rating:
    """The rating, with its caption yet to be named. Raises `ValueError`, in words, where the score is none."""
    score = item.score or ""
    if plain_number(score, 0, 10) is None:
        raise ValueError(f"score {_short(score)}; expected a plain number 0–10. Check the export's scale")
    more = renamed(item.rating_more, item.rating_more, RATING_COLUMNS)
    return Rating("", item.clip_id, float(Decimal(score) * 10), item.group, item.rater_id, more=more)
