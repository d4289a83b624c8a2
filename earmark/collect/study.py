"""A study: what is asked of whom, in a folder of plain files that its owner edits.

    study.toml        `[collection]` where the sounds are, `[study]` the settings, `[pool]` how the pairs were chosen
    pool.csv          the task pages, a row a pair: page,caption_id,clip_id,text,path,group,stratum,probability
    checks.csv        pages with known answers: page,kind,caption_id,clip_id,text,path,low,high
    consent.md        what a listener agrees to
    instructions.md   what a listener is to do

A page is the rows of equal `page`: one caption and its clips. A page that cannot be asked is left out and told in
`Study.problems`; a row that is no row of a table costs itself only. Ratings and known answers are 0–100. The tables are
edited in spreadsheets: cells that would be formulas there begin with a `'`, which reading takes away (`rows.guarded`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import numpy as np
import tomli_w

from earmark.config import from_table, read_toml, unknown_key
from earmark.data.check import Names, is_file
from earmark.data.collection import KINDS, relative_path
from earmark.data.rows import guarded, is_blank, plain_number, unguarded
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import Row, read_table, read_text, write_table, write_text, writing_folder
from earmark.measure.raters import failed

Kind = Literal["task", "check", "qualification"]
STUDY, POOL, CHECKS, CONSENT, INSTRUCTIONS = "study.toml", "pool.csv", "checks.csv", "consent.md", "instructions.md"
POOL_COLUMNS = ("page", "caption_id", "clip_id", "text", "path", "group", "stratum", "probability")
CHECK_COLUMNS = ("page", "kind", "caption_id", "clip_id", "text", "path", "low", "high")
OPTIONAL = ("group", "stratum", "probability", "low", "high")
"""The columns that need not be there."""
RANGES: Mapping[str, tuple[float, float]] = {
    "raters_a_page": (1, 10_000),
    "pages_a_rater": (1, 10_000),
    "check_every": (0, 10_000),
    "qualify": (0, 100),
    "qualify_share": (0, 1),
    "checks_share": (0, 1),
    "heard_share": (0, 1),
    "loudness_lufs": (-60, -5),
    "most_raters": (0, 10_000_000),
    "return_after_h": (0.01, 10_000),
}
"""Lowest and highest of every number in `[study]`."""
BREAKING = ("Cc", "Cs", "Zl", "Zp")
"""What no line holds; other signs that are not seen belong to French (U+00A0), Persian and Hindi (U+200C, U+200D)."""


@dataclass(frozen=True)
class Item:
    """One clip of a page: its rating is asked."""

    clip_id: str
    path: str
    """Of the sound, relative to the collection's folder."""
    group: str = ""
    """TP the caption's own clip, TN a random other, C15 by similarity or score (GrRel's names)."""
    stratum: str = ""
    probability: float | None = None
    """With what chance the pair was drawn, in (0, 1]."""
    low: float | None = None
    """A rating below it is wrong; None where none is."""
    high: float | None = None
    """A rating above it is wrong; None where none is."""


@dataclass(frozen=True)
class Page:
    """One caption with the clips that are rated beside each other."""

    page_id: str
    kind: Kind
    caption_id: str
    text: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Settings:
    """`[study]` of study.toml."""

    title: str = "Listening study"
    raters_a_page: int = 3
    """So many raters are given each task page."""
    pages_a_rater: int = 20
    """Task pages that a rater is asked for; fewer where the pool has fewer left."""
    check_every: int = 5
    """A check page after so many task pages; 0: none."""
    qualify: int = 2
    """Qualification pages; 0: none."""
    qualify_share: float = 0.75
    """Of the known answers of the qualification that must be right to go on, 0–1."""
    checks_share: float = 0.75
    """Of the known answers of the checks; a rater below it failed them."""
    heard_share: float = 0.8
    """Of a clip that must have been heard before its rating counts, 0–1."""
    low_end: str = "does not match at all"
    high_end: str = "matches perfectly"
    loudness_lufs: float = -23.0
    """What every clip is brought to (LUFS)."""
    entry: Literal["open", "invited"] = "open"
    most_raters: int = 0
    """Of an open link; 0: no limit."""
    completion_url: str = ""
    """Of a crowd platform; {code} is replaced by the rater's code."""
    failed_url: str = ""
    """Of a crowd platform, for those who did not pass the qualification: they get no code."""
    platform_ids: tuple[str, ...] = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "workerId", "assignmentId", "hitId")
    """Parameters of the address that are kept, and nothing else of it."""
    return_after_h: float = 24.0
    """A page that a rater was given and did not finish in so many hours is given to others."""


@dataclass(frozen=True)
class Study:
    """What is asked, and how."""

    folder: Path
    settings: Settings
    collection: Path
    """The collection's folder, from which the sounds' paths start."""
    name: str
    """The collection's."""
    kind: str
    """The collection's: recorded, generated or proxy."""
    pages: tuple[Page, ...]
    consent: str
    """Markdown."""
    instructions: str
    """Markdown."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """`[pool]` of study.toml: how the pairs were chosen."""
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    """The rows and pages that were left out, and what looks wrong."""

    @classmethod
    def read(cls, folder: Path | str, *, sounds: bool = True) -> Study:
        """The study of a folder; without `sounds` nobody is to be asked, and whether these are there does not count.

        Raises `ConfigError` on a setting that cannot be, `DataError` where a file cannot be read or no task page is
        left. Pages that cannot be asked are in `problems`.
        """
        folder = Path(folder)
        tables = _read_settings(folder)
        collection = _collection(folder, tables["collection"], sounds)
        settings = settings_of(tables["study"], f"{folder / STUDY}: study")
        checks_needed = bool(settings.check_every or settings.qualify)
        pages = _Pages(folder, collection, sounds)
        pages.read(POOL, POOL_COLUMNS)
        if checks_needed or (folder / CHECKS).exists():
            pages.read(CHECKS, CHECK_COLUMNS)
        pages.check()
        pages.problems += [*_too_few(settings, pages.kept), *_one_number(settings, pages.kept)]
        about = tables["collection"]
        return cls(
            folder,
            settings,
            collection,
            about["name"],
            about["kind"],
            tuple(pages.kept),
            _words(folder / CONSENT),
            _words(folder / INSTRUCTIONS),
            tables["pool"],
            tuple(pages.problems),
        )

    def write(self) -> None:
        """Writes all files of the study: a new folder appears whole, an existing one file by file."""
        filled = self.folder.is_dir() and any(self.folder.iterdir())
        with contextlib.nullcontext(self.folder) if filled else writing_folder(self.folder) as aside:
            about = {"path": relative_path(self.collection, self.folder), "name": self.name, "kind": self.kind}
            settings = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self.settings).items()}
            tables = {"collection": about, "study": settings, "pool": dict(self.chosen)}
            write_text(aside / STUDY, tomli_w.dumps(tables))
            write_table(aside / POOL, POOL_COLUMNS, _rows(self.of_kind("task")))
            write_table(aside / CHECKS, CHECK_COLUMNS, _rows(self.of_kind("check", "qualification")))
            write_text(aside / CONSENT, self.consent)
            write_text(aside / INSTRUCTIONS, self.instructions)

    @property
    def id(self) -> str:
        """What tells this study's answers from another's; empty where nobody gave it one."""
        return str(self.chosen.get("id", ""))

    @property
    def cookie(self) -> str:
        """The name of its raters' cookie: the same by every server that serves it, another for every study."""
        told = self.id or str(self.folder.resolve())
        return f"earmark-study-{hashlib.sha256(told.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"

    def page(self, page_id: str) -> Page:
        """The page of that id. Raises `DataError` where the study has none."""
        if page_id not in self._by_id:
            raise DataError(f"{self.folder}: no page {page_id!r}. Was it taken out of {POOL} or {CHECKS}?")
        return self._by_id[page_id]

    def of_kind(self, *kinds: Kind) -> list[Page]:
        """The pages of these kinds, in the order of the files."""
        return [page for page in self.pages if page.kind in kinds]

    def sound(self, item: Item) -> Path:
        """The absolute path of the clip's file."""
        return _sound(self.collection, item.path)

    @cached_property
    def _by_id(self) -> dict[str, Page]:
        return {page.page_id: page for page in self.pages}


def _sound(collection: Path, path: str) -> Path:
    return Path(os.path.normpath(collection.resolve() / path))


# Settings


def _read_settings(folder: Path) -> dict[str, Any]:
    """The tables of study.toml, each a table."""
    path = folder / STUDY
    if not path.exists():
        raise DataError(f"{folder}: no {STUDY}; expected a study's folder. Make one with earmark collect pool.")
    tables = read_toml(path)
    for key in tables:
        if key not in ("collection", "study", "pool"):
            raise unknown_key(str(path), key, ("collection", "study", "pool"))
    for key in ("collection", "study", "pool"):
        if not isinstance(tables.setdefault(key, {}), dict):
            raise ConfigError(f"{path}: {key} = {tables[key]!r}; expected a table [{key}].")
    return tables


def _collection(folder: Path, about: dict[str, Any], there: bool) -> Path:
    """The collection's folder, which must be `there`; `about` is checked, and a missing name or kind filled in."""
    path = folder / STUDY
    for key, value in about.items():
        if key not in ("path", "name", "kind"):
            raise unknown_key(f"{path}: collection", key, ("path", "name", "kind"))
        if not isinstance(value, str) or is_blank(value):
            raise ConfigError(f"{path}: collection.{key} = {value!r}; expected a text.")
    if "path" not in about:
        raise ConfigError(f"{path}: no collection.path; expected the folder that the sounds' paths start from.")
    root = Path(folder.resolve() / about["path"]).resolve()
    if there and not root.is_dir():
        raise DataError(f"{path}: collection.path = {about['path']!r}: no folder {root}. Correct the path.")
    about.setdefault("name", root.name)
    if about.setdefault("kind", "recorded") not in KINDS:
        raise ConfigError(f"{path}: collection.kind = {about['kind']!r}; expected {' or '.join(KINDS)}.")
    return root


def settings_of(table: Mapping[str, Any], where: str) -> Settings:
    """The settings of a table `[study]`, checked. Raises `ConfigError` with the setting."""
    ids = table.get("platform_ids", [])
    names = isinstance(ids, list) and all(isinstance(each, str) and not is_blank(each) for each in ids)
    if not names or len(set(ids)) < len(ids):
        raise ConfigError(f'{where}.platform_ids = {ids!r}; expected a list of names, such as ["PROLIFIC_PID"].')
    given = {key: tuple(value) if key == "platform_ids" else value for key, value in table.items()}
    settings = from_table(Settings, given, where)
    check_settings(settings, where)
    return settings


def check_settings(settings: Settings, where: str) -> None:
    """Raises `ConfigError` on a setting outside its range, a blank text, or an address that is none."""
    for key, (low, high) in RANGES.items():
        value = getattr(settings, key)
        if not low <= value <= high:  # NaN fails too
            raise ConfigError(f"{where}.{key} = {value:g}; expected {low:,} to {high:,}.")
    for key in ("title", "low_end", "high_end"):
        value = getattr(settings, key)
        if is_blank(value) or any(unicodedata.category(each) in BREAKING for each in value):
            raise ConfigError(f"{where}.{key} = {value!r}; expected words, in one line.")
    for key in ("completion_url", "failed_url"):
        if value := getattr(settings, key):
            _check_address(value, f"{where}.{key}")


def _check_address(value: str, where: str) -> None:
    """Raises `ConfigError` on an address that leads nowhere, or has another place than {code}."""
    try:
        found = urlsplit(value.replace("{code}", ""))
    except ValueError as error:  # https://[
        raise ConfigError(f"{where} = {value!r}; expected an address ({error}).") from error
    if found.scheme not in ("https", "http") or not found.netloc or not value.isprintable():
        raise ConfigError(f"{where} = {value!r}; expected an address that starts with https:// and names a host.")
    if set("{}") & set(found.geturl()):
        raise ConfigError(f"{where} = {value!r}; expected {{code}} in place of the rater's code, and no other braces.")


def _words(path: Path) -> str:
    """The owner's words. Raises `DataError` where there are none."""
    text = read_text(path)
    if is_blank(text) or "\0" in text:
        raise DataError(
            f"{path}: {'blank' if is_blank(text) else 'holds NUL characters'}; expected words for the listener."
        )
    return text


def checks_seen(settings: Settings, task_pages: int) -> int:
    """How many check pages a rater sees in a study of so many task pages."""
    return min(settings.pages_a_rater, task_pages) // settings.check_every if settings.check_every else 0


def _too_few(settings: Settings, pages: Sequence[Page]) -> Iterator[Problem]:
    """What the settings ask for and checks.csv has not."""
    found = Counter(page.kind for page in pages)
    seen = checks_seen(settings, found["task"])
    if found["check"] < seen:
        what = f"{found['check']} check pages; a rater is due {seen} (study.check_every = {settings.check_every})"
        yield Problem(CHECKS, f"{what}. Add some, or the last are left out.")
    if found["qualification"] < settings.qualify:
        what = f"{found['qualification']} qualification pages; expected {settings.qualify} (study.qualify)"
        yield Problem(CHECKS, f"{what}. Add some, or so many are asked as there are.")


def _one_number(settings: Settings, pages: Sequence[Page]) -> Iterator[Problem]:
    """Where one number for everything is right, on pages whose answers are known."""
    for kind, needed, share, name in (
        ("qualification", settings.qualify, settings.qualify_share, "qualify_share"),
        ("check", settings.check_every, settings.checks_share, "checks_share"),
    ):
        known = {page.page_id: [each for each in page.items if _is_known(each)] for page in pages if page.kind == kind}
        every = [item for items in known.values() for item in items]
        if not needed or not share or kind not in {page.kind for page in pages}:
            continue
        if not every:
            yield Problem(CHECKS, f"no {kind} page has a known answer: every rater passes. Fill in `low` or `high`.")
            continue
        number, right = _best_number(every)
        if not failed(right, len(every), share):
            what = f"{number:g} for everything passes the {kind} pages ({right} of {len(every)} known answers right"
            advice = "Let `low` of some clips lie above `high` of others, and have about as many of both"
            yield Problem(CHECKS, f"{what}; study.{name} = {share:g}). {advice}.")
            continue
        for page_id, items in known.items():
            number, right = _best_number(items) if len(items) > 1 else (0, 0)
            if right == len(items) > 1:
                yield Problem(CHECKS, f"page {page_id!r}: {number:g} for everything is right. It tells nothing.")


def _is_known(item: Item) -> bool:
    return item.low is not None or item.high is not None


def _best_number(items: Sequence[Item]) -> tuple[float, int]:
    """The rating that is right for most of the items, the one nearest to the middle of the scale, and for how many."""
    tried = {50.0} | {bound for item in items for bound in (item.low, item.high) if bound is not None}
    right = {
        number: sum((item.low or 0) <= number <= (100 if item.high is None else item.high) for item in items)
        for number in tried
    }
    best = max(right, key=lambda number: (right[number], -abs(number - 50), number))
    return best, right[best]


# Pages


class _Pages:
    """The pages that were read, and what was wrong with the others."""

    def __init__(self, folder: Path, collection: Path, sounds: bool) -> None:
        self.folder, self.collection, self.sounds = folder, collection, sounds
        self.kept: list[Page] = []
        self.problems: list[Problem] = []
        self._ids: dict[str, str] = {}
        self._pairs: dict[tuple[str, str], str] = {}
        self._texts: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._names = Names()
        self._missing = 0

    def read(self, file: str, columns: Sequence[str]) -> None:
        """Reads a table's pages. Raises `DataError` where it cannot be read or lacks a column."""
        path = self.folder / file
        _, rows, problems = read_table(path, [name for name in columns if name not in OPTIONAL])
        self.problems += [Problem(p.where.removeprefix(f"{self.folder}{os.sep}"), p.what) for p in problems]
        found: dict[str, list[Row]] = {}
        for row in (Row(each.line, {name: unguarded(cell) for name, cell in each.cells.items()}) for each in rows):
            if is_blank(row.cells["page"]):
                self.problems.append(Problem(f"{file} line {row.line}", "page is blank. The row is left out."))
            else:
                found.setdefault(row.cells["page"], []).append(row)
        for page_id, rows in found.items():
            self._take(file, page_id, rows)

    def _take(self, file: str, page_id: str, rows: list[Row]) -> None:
        """Keeps the page, or the first fault that it has."""
        for line, what in self._faults(file, page_id, rows):
            self.problems.append(Problem(f"{file} line {line}", f"{what}. Page {page_id!r} is left out."))
            return
        cells = rows[0].cells
        kind = cast(Kind, cells.get("kind", "task"))
        items = tuple(_item(row.cells) for row in rows)
        self.kept.append(Page(page_id, kind, cells["caption_id"], cells["text"], items))
        self._ids[page_id] = file
        self._texts[cells["caption_id"]] = cells["text"]
        for item in items:
            self._pairs[cells["caption_id"], item.clip_id] = page_id
            self._paths[item.clip_id] = item.path

    def check(self) -> None:
        """Raises `DataError` where no task page is left."""
        if any(page.kind == "task" for page in self.kept):
            return
        if self._missing:
            raise DataError(
                f"{self.folder / POOL}: no sound of any page is below {self.collection}. Correct collection.path in "
                f"{STUDY}."
            )
        first = f" First: {self.problems[0]}" if self.problems else ""
        raise DataError(f"{self.folder / POOL}: no page can be asked; expected one at least.{first}")

    def _faults(self, file: str, page_id: str, rows: Sequence[Row]) -> Iterator[tuple[int, str]]:
        """Line and words of what is wrong with a page."""
        if page_id in self._ids:
            yield rows[0].line, f"page {page_id!r} stands in {self._ids[page_id]} too"
        if not page_id.isprintable() or page_id != page_id.strip():
            yield rows[0].line, "page has blanks around it, or holds characters that cannot be seen"
        first, clips, sounds = rows[0], dict[str, int](), dict[str, int]()
        for row in rows:
            yield from ((row.line, what) for what in _row_faults(row.cells))
            for column in ("caption_id", "text", "kind"):
                if row.cells.get(column) != first.cells.get(column):
                    what = f"{column} {row.cells[column]!r} on a page whose first row has {first.cells[column]!r}"
                    yield row.line, f"{what}; expected one {column} a page"
            yield from ((row.line, what) for what in self._pair_faults(row.cells))
            for seen, column in ((clips, "clip_id"), (sounds, "path")):
                if (line := seen.setdefault(row.cells[column], row.line)) != row.line:
                    yield row.line, f"{column} {row.cells[column]!r} stands in line {line} already"
            if self.sounds and not is_file(_sound(self.collection, row.cells["path"])):
                self._missing += 1
                yield row.line, self._names.missing(self.collection, row.cells["path"])

    def _pair_faults(self, cells: Mapping[str, str]) -> Iterator[str]:
        """What is wrong with a pair in view of the pages before."""
        caption_id, text = cells["caption_id"], cells["text"]
        if (pair := (caption_id, cells["clip_id"])) in self._pairs:
            yield f"the pair {pair} stands on page {self._pairs[pair]!r} already; expected each pair once"
        if self._texts.get(caption_id, text) != text:
            yield f"caption {caption_id!r} has another text on a page before"
        if (path := self._paths.get(cells["clip_id"], cells["path"])) != cells["path"]:
            yield f"clip {cells['clip_id']!r} has another path, {path!r}, on a page before"


def _row_faults(cells: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a row by itself."""
    for column in ("caption_id", "clip_id", "path"):
        if is_blank(cells[column]):
            yield f"{column} is blank"
    if is_blank(cells["text"]):
        yield "the text is blank; expected words"
    if any("\0" in cell for cell in cells.values()):
        yield "a cell holds a NUL character"
    if cells.get("kind", "check") not in ("check", "qualification"):
        yield f"kind {cells['kind']!r}; expected check or qualification"
    if (chance := cells.get("probability", "")) and not plain_number(chance, 0, 1):
        yield f"probability {chance!r}; expected more than 0 and at most 1, or nothing"
    for column in ("low", "high"):
        if (bound := cells.get(column, "")) and plain_number(bound, 0, 100) is None:
            yield f"{column} {bound!r}; expected a plain number 0–100, or nothing"
            return
    low, high = _number(cells.get("low", "")), _number(cells.get("high", ""))
    if low is not None and high is not None and low > high:
        yield f"low {low:g} is above high {high:g}"


def _item(cells: Mapping[str, str]) -> Item:
    probability, low, high = (_number(cells.get(key, "")) for key in ("probability", "low", "high"))
    clip_id, path, group, stratum = (cells.get(key, "") for key in ("clip_id", "path", "group", "stratum"))
    return Item(clip_id, path, group, stratum, probability, low, high)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _rows(pages: Iterable[Page]) -> Iterator[dict[str, object]]:
    """The rows of a table, numbers as short as they can be read back exactly; no cell is a spreadsheet's formula."""
    for page in pages:
        for item in page.items:
            row = {"page": page.page_id, "kind": page.kind, "caption_id": page.caption_id, "text": page.text}
            yield {key: guarded(_cell(value)) for key, value in (row | asdict(item)).items()}


def _cell(value: object) -> str:
    if value is None:
        return ""
    return np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value)
