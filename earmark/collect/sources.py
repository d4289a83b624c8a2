"""Ratings to be looked at or written: of a study, a collection, or a published file, with what was left out of them.

What is read, by its layout: a study's folder (study.toml), a collection's (clips.csv); RELATE's and XACLE's files, as
`earmark data import` reads them; GrRel's `tid,fid,fid_group,rating`, which names neither raters nor texts; and
`caption_id,clip_id,rating` with a collection's other columns.

Of a study count the last answers of task pages that were submitted. What else it holds (pages with known answers, pages
that were not submitted, raters who did not pass the qualification) is left out and counted. What was shown and the
collection has not, or has in other words, is added to it (`explained`): no answer is lost by an edit of either.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from earmark.collect.strata import GROUPS
from earmark.data.collection import LISTS, Caption, Clip, Collection
from earmark.data.published import LAYOUTS, import_published
from earmark.data.rows import KIND_COLUMN, RATING_COLUMNS, is_blank, rating_fault, told_kind, unguarded
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import Row, read_table
from earmark.measure.raters import Raters, failed, raters
from earmark.relevance import ANCHOR, Rating

if TYPE_CHECKING:
    from earmark.collect.overview import RaterRow
    from earmark.collect.store import GivenRating

GRREL = ("tid", "fid", "fid_group", "rating")
PLAIN = ("caption_id", "clip_id", "rating")
OF_MEANS = ("sd", "n")
"""What a row of means has beside the mean."""
ANSWERED = ("rater_id", "page", "caption_id", "clip_id", "given_at")
"""What tells the answers to one item, and their order, in a study's own table."""
RATED = ("RELATE", "XACLE")
"""The layouts of `published` whose rows are ratings."""
RELATE_SPLIT = "in RELATE dataset"
"""Its column of splits, which are of ratings, not of sounds."""
Choice = Literal["failed", "flagged"]
ADDED = "added"
"""The split of a clip that was asked with a caption of its own, and that the collection has not."""
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
    notes: tuple[str, ...] = ()
    """What was shown and the collection has not, or has in other words."""

    def judged(self) -> Raters:
        """Each rater, with flags."""
        return raters(self.ratings, checks=self.checks, checks_share=self.checks_share)

    def in_collection(self) -> Source:
        """The same without ratings of captions that the collection has not; those are problems."""
        if self.collection is None:
            return self
        known = {caption.caption_id for caption in self.collection.captions}
        strange = Counter(rating.caption_id for rating in self.ratings if rating.caption_id not in known)
        file, advice = str(self.collection.root / "captions.csv"), "Tables have them (--layout ratings)"
        told = [
            Problem(file, f"no caption {name!r}: {_ratings(count)} left out. {advice}.")
            for name, count in strange.items()
        ]
        kept = tuple(rating for rating in self.ratings if rating.caption_id in known)
        return replace(self, ratings=kept, problems=(*self.problems, *told))

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
            gone = {rater for rater, checks in self.checks.items() if failed(*checks, self.checks_share)}
            why = "failed the checks"
        else:
            gone, why = {rater.rater_id for rater in self.judged().flagged}, "got a flag"
        kept = tuple(rating for rating in self.ratings if rating.rater_id not in gone)
        lost = len(self.ratings) - len(kept)
        there = len(gone & {rating.rater_id for rating in self.ratings})
        counted = (
            {**self.left_out, f"of {there:,} rater{'s' if there != 1 else ''} who {why}": lost}
            if lost
            else self.left_out
        )
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
    elif path.is_dir() and not (path / "clips.csv").exists():
        raise DataError(f"{path}: neither study.toml nor clips.csv; expected a study's folder, or a collection's.")
    elif path.is_dir():
        found = _of_collection(path)
    else:
        found = _of_file(path, encoding)
    if not found.ratings:
        first = f" The first: {found.problems[0]}" if found.problems else ""
        counts = "; ".join(f"{count:,} {why}" for why, count in found.left_out.items())
        if found.what == "study" and not counts:
            raise DataError(
                f"{path}: no rating counts; nobody has submitted a page yet. The owner's page tells how far listeners "
                f"are; answers of a rehearsal are in --store {path / 'rehearsal.db'}."
            )
        raise DataError(f"{path}: no rating counts{f' (left out: {counts})' if counts else ''}.{first}")
    return found


# Of a study


def _of_study(folder: Path, store: str, unsubmitted: bool) -> Source:
    from earmark.collect.flow import Flow
    from earmark.collect.store import Store, store_of
    from earmark.collect.study import Study

    study = Study.read(folder, sounds=False)
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
    kept_answers, left_out = counting(given, rows, unsubmitted=unsubmitted)
    collection, ratings, notes = explained(Collection.read(study.collection), kept_answers)
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
        tuple(collection.problems),
        tuple(notes),
    )


def counted(
    given: Sequence[GivenRating], rows: Sequence[RaterRow], *, unsubmitted: bool = False
) -> tuple[list[Rating], dict[str, int]]:
    """The answers that count, as ratings, and how many were left out, by why."""
    found, lost = counting(given, rows, unsubmitted=unsubmitted)
    return [rating_of(each) for each in found], lost


def counting(
    given: Sequence[GivenRating], rows: Sequence[RaterRow], *, unsubmitted: bool = False
) -> tuple[list[GivenRating], dict[str, int]]:
    """The answers that count, and how many were left out, by why."""
    unqualified = {row.rater_id for row in rows if row.qualified is False}
    lost: Counter[str] = Counter()
    found = []
    for each in given:
        if each.kind != "task":
            lost[f"of {each.kind} pages"] += 1
        elif each.rater_id in unqualified:
            lost["of raters who did not pass the qualification"] += 1
        elif not each.submitted and not unsubmitted:
            lost["of pages that were not submitted"] += 1
        else:
            found.append(each)
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


def explained(collection: Collection, given: Sequence[GivenRating]) -> tuple[Collection, list[Rating], list[str]]:
    """The collection with all that was shown, the ratings of it, and what was added, in words.

    Words that the collection's caption has not (any more) become a caption of their own, `shown_id`; a caption that it
    has not belongs to the clip that it was asked with as its own (TP), and is not added where there is none; a clip
    that it has not is added with its path, in the split of the caption's clip.
    """
    clips = {clip.clip_id: clip for clip in collection.clips}
    captions = {caption.caption_id: caption for caption in collection.captions}
    owners = {each.caption_id: each.clip_id for each in given if each.group == GROUPS["own"]}
    owners |= {caption.caption_id: caption.clip_id for caption in collection.captions}
    there, told, ratings = set(captions), Counter[str](), []
    for each in given:
        name, owner = each.caption_id, owners.get(each.caption_id)
        if not owner:
            told[f"no caption {name!r} in the collection, and no clip is its own: it is not added"] += 1
        elif captions.setdefault(name, Caption(name, owner, each.text)).text != each.text:
            name = shown_id(name, each.text)
            captions.setdefault(name, Caption(name, owner, each.text))
            told[f"caption {each.caption_id!r} has other words than were shown: those are caption {name!r}"] += 1
        elif name not in there:
            told[f"no caption {name!r} in the collection: it is added"] += 1
        if each.clip_id not in clips:
            split = clips[owner].split if owner in clips else ADDED
            clips[each.clip_id] = Clip(each.clip_id, each.path, split)
            told[f"no clip {each.clip_id!r} in the collection: it is added"] += 0
        ratings.append(replace(rating_of(each), caption_id=name))
    notes = [f"{what} ({_ratings(count)})." if count else f"{what}." for what, count in told.items()]
    return replace(collection, clips=list(clips.values()), captions=list(captions.values())), ratings, notes


def shown_id(caption_id: str, text: str) -> str:
    """The id of the words that were shown in place of a caption's own: the same for the same words."""
    return f"{caption_id}#shown-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _ratings(count: int) -> str:
    return f"{count:,} rating{'s' if count != 1 else ''}"


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
    if {*PLAIN, *OF_MEANS} <= set(columns):
        raise DataError(
            f"{path} line 1: a table of means (columns {', '.join(OF_MEANS)}), which tells no single answer; expected "
            "ratings. Export them with --layout ratings, or name the study."
        )
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
    found, faults, lost = [], list(problems), Counter[str]()
    last = _last(rows)
    for row in rows:
        if row.cells.get("kind") in ("check", "qualification"):
            lost[f"of {row.cells['kind']} pages"] += 1
            continue
        if last.get(_answered(row.cells), row) is not row:
            lost["that were changed later"] += 1
            continue
        cells = {names.get(column, column): cell for column, cell in row.cells.items()}
        cells |= {column: unguarded(cells.get(column, "")) for column in RATING_COLUMNS if column != "rating"}
        blank = [column for column in PLAIN[:2] if is_blank(cells[column])]
        if why := f"{blank[0]} is blank; expected an id." if blank else rating_fault(cells):
            faults.append(Problem(f"{path} line {row.line}", f"{why} The row is left out."))
        else:
            found.append(_rating(cells))
    kind = told_kind(row.cells for row in rows)
    return Source(path, what, path.stem, kind, tuple(found), left_out=dict(lost), problems=tuple(faults))


def _last(rows: Sequence[Row]) -> dict[tuple[str, ...], Row]:
    """The answers that count of a study's table with all that were given, by what was answered."""
    told = [row for row in rows if all(column in row.cells for column in ANSWERED)]
    return {_answered(row.cells): row for row in sorted(told, key=_order)}


def _order(row: Row) -> tuple[int, str]:
    """How often the rater had changed the answer before; the time alone may have been set back."""
    changes = row.cells.get("changes", "")
    return int(changes) if changes.isascii() and changes.isdigit() and len(changes) < 10 else 0, row.cells["given_at"]


def _answered(cells: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(cells.get(column, "") for column in ANSWERED[:-1])


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
        {
            unguarded(column): unguarded(cell)
            for column, cell in cells.items()
            if column not in (*RATING_COLUMNS, KIND_COLUMN)
        },
    )
