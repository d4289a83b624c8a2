"""Ratings to be looked at or written: of a study, a collection, or a published file, with what was left out of them.

What is read, by its layout: a study's folder (study.toml), a collection's (clips.csv); RELATE's and XACLE's files, as
`earmark data import` reads them; GrRel's `tid,fid,fid_group,rating`, which names neither raters nor texts; and
`caption_id,clip_id,rating` with a collection's other columns.

Of a study count the last answers of task pages that were submitted. What else it holds (pages with known answers, pages
that were not submitted, raters who did not pass the qualification) is left out and counted.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from earmark.data.collection import LISTS, Collection
from earmark.data.published import LAYOUTS, import_published
from earmark.data.rows import RATING_COLUMNS, is_blank, rating_fault, unguarded
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import Row, read_table
from earmark.measure.raters import Raters, raters
from earmark.relevance import ANCHOR, Rating

if TYPE_CHECKING:
    from earmark.collect.records import RaterRow
    from earmark.collect.store import GivenRating

GRREL = ("tid", "fid", "fid_group", "rating")
PLAIN = ("caption_id", "clip_id", "rating")
RATED = ("RELATE", "XACLE")
"""The layouts of `published` whose rows are ratings."""
RELATE_SPLIT = "in RELATE dataset"
"""Its column of splits, which are of ratings, not of sounds."""
Choice = Literal["failed", "flagged"]
CHOICES: tuple[Choice, ...] = ("failed", "flagged")
"""Raters that may be left out: who failed the checks, and who has any flag (`measure.raters`)."""


@dataclass(frozen=True)
class Source:
    """Ratings and what is known beside them."""

    path: Path
    what: str
    """study, collection, RELATE, XACLE, GrRel, ratings."""
    name: str
    kind: str
    """recorded, generated, proxy."""
    ratings: tuple[Rating, ...]
    collection: Collection | None = None
    """The clips and captions; None where there are none (GrRel, ratings)."""
    checks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Rater → known answers right, asked."""
    checks_share: float = 0.75
    """Below it a rater failed the checks."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Why, in words → ratings."""
    problems: tuple[Problem, ...] = ()
    """Rows that could not be used."""

    def judged(self) -> Raters:
        """Each rater, with flags."""
        return raters(self.ratings, checks=self.checks, checks_share=self.checks_share)

    def without(self, choices: Iterable[str]) -> Source:
        """The same without the raters chosen, who are counted. Raises `ConfigError` on a choice that is none."""
        found = self
        for choice in dict.fromkeys(choices):
            if choice not in CHOICES:
                raise ConfigError(f"--without {choice}; expected {' or '.join(CHOICES)}.")
            found = found._without(choice)
        return found

    def _without(self, choice: str) -> Source:
        if choice == "failed":
            share = self.checks_share
            gone = {rater for rater, (right, asked) in self.checks.items() if asked and right < share * asked}
            why = "failed the checks"
        else:
            gone, why = {rater.rater_id for rater in self.judged().flagged}, "have a flag"
        kept = tuple(rating for rating in self.ratings if rating.rater_id not in gone)
        lost = len(self.ratings) - len(kept)
        there = len(gone & {rating.rater_id for rating in self.ratings})
        counted = {**self.left_out, f"of {there:,} raters who {why}": lost} if lost else self.left_out
        return replace(self, ratings=kept, left_out=counted)

    def parts(self) -> dict[str, list[Rating]]:
        """The ratings in parts that are worth their own numbers: all, without anchors, each split and each group.

        Splits are without anchors. A part that is all of them stands once.
        """
        every = list(self.ratings)
        plain = [rating for rating in every if rating.group != ANCHOR]
        parts = {"without anchors": plain}
        parts |= {f"split {split}": ratings for split, ratings in self._by_split(plain).items()}
        for group in dict.fromkeys(rating.group for rating in every if rating.group):
            parts[f"group {group}"] = [rating for rating in every if rating.group == group]
        return {"all": every} | {name: part for name, part in parts.items() if 0 < len(part) < len(every)}

    def _by_split(self, ratings: Iterable[Rating]) -> dict[str, list[Rating]]:
        """The ratings by the split of the caption's clip, or by RELATE's own column, in order of appearance."""
        if self.collection is None:
            return {}
        split_of = {clip.clip_id: clip.split.removesuffix(LISTS) for clip in self.collection.clips}
        owner = {caption.caption_id: caption.clip_id for caption in self.collection.captions}
        found: dict[str, list[Rating]] = {}
        for rating in ratings:
            split = rating.more.get(RELATE_SPLIT) or split_of.get(owner.get(rating.caption_id, ""), "")
            if split:
                found.setdefault(split, []).append(rating)
        return found


def read_source(path: Path | str, *, store: str = "", unsubmitted: bool = False, encoding: str = "utf-8") -> Source:
    """The ratings of a study, a collection or a published file; see the module.

    `store` is where a study's answers are, if not in its folder; `unsubmitted` lets answers count whose page was not
    submitted. Raises `DataError` where there is none of these, or no rating.
    """
    path = Path(path)
    if (path / "study.toml").exists():
        found = _of_study(path, store, unsubmitted)
    elif path.is_dir():
        found = _of_collection(path)
    else:
        found = _of_file(path, encoding)
    if not found.ratings:
        first = f" The first: {found.problems[0]}" if found.problems else ""
        counts = "; ".join(f"{count:,} {why}" for why, count in found.left_out.items())
        raise DataError(f"{path}: no rating counts{f' (left out: {counts})' if counts else ''}.{first}")
    return found


# Of a study


def _of_study(folder: Path, store: str, unsubmitted: bool) -> Source:
    from earmark.collect.flow import Flow
    from earmark.collect.store import Store, store_of
    from earmark.collect.study import Study

    study = Study.read(folder)
    place = store or store_of(folder)
    if "://" not in str(place) and not Path(place).exists():
        raise DataError(f"{place}: is not there; no answers yet. Run the study, or name its store (--store).")
    kept = Store.open(place)
    try:
        simulated = kept.of_rehearsal
        flow = Flow(study, kept, rehearsal=simulated)
        given, rows = flow.ratings(), flow.raters()
    finally:
        kept.close()
    ratings, left_out = counted(given, rows, unsubmitted=unsubmitted)
    collection = Collection.read(study.collection)
    ratings, problems = against(collection, ratings, {each.caption_id: each.text for each in given})
    return Source(
        folder,
        "study",
        study.name,
        "generated" if simulated else collection.kind,
        tuple(ratings),
        collection,
        {row.rater_id: (row.checks_right, row.checks_asked) for row in rows if row.checks_asked},
        study.settings.checks_share,
        left_out,
        (*collection.problems, *problems),
    )


def counted(
    given: Sequence[GivenRating], rows: Sequence[RaterRow], *, unsubmitted: bool = False
) -> tuple[list[Rating], dict[str, int]]:
    """The answers that count, as ratings, and how many were left out, by why."""
    failed = {row.rater_id for row in rows if row.qualified is False}
    lost: Counter[str] = Counter()
    found = []
    for each in given:
        if each.kind != "task":
            lost[f"of {each.kind} pages"] += 1
        elif each.rater_id in failed:
            lost["of raters who did not pass the qualification"] += 1
        elif not each.submitted and not unsubmitted:
            lost["of pages that were not submitted"] += 1
        else:
            found.append(rating_of(each))
    return found, dict(lost)


def rating_of(given: GivenRating) -> Rating:
    """The answer as a row of ratings.csv; how it came about stands in its other columns."""
    numbers = {"rated_s": given.rated_s, "first_play_s": given.first_play_s, "heard": given.heard}
    return Rating(
        given.caption_id,
        given.clip_id,
        given.rating,
        given.group,
        given.rater_id,
        round(given.played_s, 3),
        given.stratum,
        given.probability,
        {
            "page": given.page_id,
            "number": str(given.page_number),
            "position": str(given.position),
            **{name: "" if value is None else plain(round(value, 3)) for name, value in numbers.items()},
            "plays": str(given.plays),
            "seeks": str(given.seeks),
            "changes": str(given.history),
            "given_at": given.given_at,
        },
    )


def plain(value: float) -> str:
    """The number without an exponent, as short as it can be read back exactly; nothing for NaN."""
    return "" if np.isnan(value) else np.format_float_positional(value, trim="-")


def against(
    collection: Collection, ratings: Sequence[Rating], shown: Mapping[str, str]
) -> tuple[list[Rating], list[Problem]]:
    """The ratings of captions and clips that the collection has, and with the words that were shown; the others."""
    texts = {caption.caption_id: caption.text for caption in collection.captions}
    clips = {clip.clip_id for clip in collection.clips}
    kept, faults = [], Counter[tuple[str, str]]()
    for rating in ratings:
        if rating.caption_id not in texts:
            faults["captions.csv", f"no caption {rating.caption_id!r}"] += 1
        elif rating.clip_id not in clips:
            faults["clips.csv", f"no clip {rating.clip_id!r}"] += 1
        elif texts[rating.caption_id] != shown.get(rating.caption_id, texts[rating.caption_id]):
            faults["captions.csv", f"caption {rating.caption_id!r} has other words than were shown"] += 1
        else:
            kept.append(rating)
    return kept, [
        Problem(str(collection.root / file), f"{what}; its {count:,} ratings are left out.")
        for (file, what), count in faults.items()
    ]


# Of collections and files


def _of_collection(folder: Path) -> Source:
    found = Collection.read(folder)
    return Source(
        folder, "collection", found.name, found.kind, tuple(found.ratings), found, problems=tuple(found.problems)
    )


def _of_file(path: Path, encoding: str) -> Source:
    columns, rows, problems = read_table(path, encoding=encoding)
    if set(GRREL) <= set(columns):
        return _of_rows(path, "GrRel", rows, problems, {"tid": "caption_id", "fid": "clip_id", "fid_group": "group"})
    if set(PLAIN) <= set(columns):
        return _of_rows(path, "ratings", rows, problems, {})
    if any(set(layout.columns) <= set(columns) for layout in LAYOUTS if layout.name in RATED):
        return _of_published(path, encoding)
    known = [f"{each.name}: {', '.join(each.columns)}" for each in LAYOUTS if each.name in RATED]
    known += [f"GrRel: {', '.join(GRREL)}", f"a collection: {', '.join(PLAIN)}"]
    shown = ", ".join(columns)
    raise DataError(
        f"{path} line 1: found {shown[:80]}; expected a study's or a collection's folder, or the columns of "
        f"{'; '.join(known)}."
    )


def _of_published(path: Path, encoding: str) -> Source:
    """RELATE's or XACLE's file, as `data import` makes a collection of it; nothing is kept of that."""
    with tempfile.TemporaryDirectory() as place:
        found = import_published([path], Path(place) / "read", encoding=encoding)
    what = str(found.about["imported"]["layout"])
    return Source(path, what, path.stem, found.kind, tuple(found.ratings), found, problems=tuple(found.problems))


def _of_rows(
    path: Path, what: str, rows: Sequence[Row], problems: Sequence[Problem], names: Mapping[str, str]
) -> Source:
    """A table of ratings, whose columns are called as a collection's once `names` are translated."""
    found, faults = [], list(problems)
    for row in rows:
        cells = {names.get(column, column): cell for column, cell in row.cells.items()}
        cells |= {column: unguarded(cells.get(column, "")) for column in RATING_COLUMNS if column != "rating"}
        blank = [column for column in PLAIN[:2] if is_blank(cells[column])]
        if why := f"{blank[0]} is blank; expected an id." if blank else rating_fault(cells):
            faults.append(Problem(f"{path} line {row.line}", f"{why} The row is left out."))
        else:
            found.append(_rating(cells))
    return Source(path, what, path.stem, "recorded", tuple(found), problems=tuple(faults))


def _rating(cells: Mapping[str, str]) -> Rating:
    played, probability = cells["played_s"], cells["probability"]
    return Rating(
        cells["caption_id"],
        cells["clip_id"],
        float(cells["rating"]),
        cells["group"],
        cells["rater_id"],
        float(played) if played else None,
        cells["stratum"],
        float(probability) if probability else None,
        {column: unguarded(cell) for column, cell in cells.items() if column not in RATING_COLUMNS},
    )
