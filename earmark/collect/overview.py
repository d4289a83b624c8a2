"""What a study's owner reads of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, func, select

from earmark.collect.answering import CLOSED, LAST, PAGE
from earmark.collect.assign import time_text
from earmark.collect.store import GivenRating
from earmark.collect.study import Study
from earmark.collect.tables import answers, count_of, given, heard, invites, items, platform_ids, raters
from earmark.measure.raters import failed

AT_WORK = timedelta(minutes=30)
"""Who has answered within it is at work."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a study is; pages and ratings are of task pages."""

    entered: int
    """Raters who opened the study."""
    consented: int
    qualified: int
    """Raters who passed the qualification, or needed none."""
    failed: int
    """Raters who did not."""
    completed: int
    """Raters who have a completion code."""
    at_work: int
    """Raters who were given or submitted a page, or answered, in the last half hour and are not done."""
    pages: int
    """In the pool."""
    full: int
    """Pages that as many raters as asked for have submitted."""
    by_raters: tuple[int, ...]
    """How many pages 0, 1, 2, ... raters have submitted."""
    submitted: int
    """Pages of the pool submitted, over all raters."""
    wanted: int
    """Pages to be submitted: pages × raters a page."""
    ratings: int
    """Items of task pages that have an answer."""
    invites: int
    invites_used: int
    silent: Mapping[str, int]
    """Sounds that could not be played while the study ran: path → raters who came upon it and were not asked."""


@dataclass(frozen=True, slots=True)
class RaterRow:
    """One rater, as the study's owner sees them."""

    rater_id: str
    entered_at: str
    """UTC, ISO 8601; "" below where it has not come about."""
    consented_at: str
    completed_at: str
    code: str
    qualified: bool | None
    """None where it is not decided."""
    sound_passed: bool | None
    """The sound check; None before it."""
    qualification_right: int
    qualification_asked: int
    checks_right: int
    """Known answers of submitted check pages that were right ..."""
    checks_asked: int
    """... of so many."""
    pages: int
    """Task pages submitted."""
    ratings: int
    """Items of task pages that have an answer."""
    seconds: float
    """From when pages were given to when they were submitted, pauses too."""
    played_s: float
    """Seconds listened to the clips of all pages."""
    label: str
    """Of the invitation."""
    platform: Mapping[str, str]
    """The crowd platform's ids, as they were given."""
    forgotten: bool

    def failed_checks(self, share: float) -> bool:
        """Whether fewer than `share` of the checks' known answers were right; never without such answers."""
        return failed(self.checks_right, self.checks_asked, share)


def given_ratings(connection: Connection, *, history: bool = False) -> list[GivenRating]:
    """As `Flow.ratings`: by rater in the order of entering, then by page and place."""
    played = {row.item_id: row for row in connection.execute(_played())}
    of_item = answers.c.item_id == items.c.item_id if history else LAST
    query = (
        select(items, answers, given)
        .select_from(items.join(answers, of_item).join(given, PAGE).join(raters, raters.c.rater_id == given.c.rater_id))
        .order_by(raters.c.entered_at, raters.c.rater_id, items.c.number, items.c.position, answers.c.change)
    )
    return [_rating(row._mapping, played.get(row._mapping[items.c.item_id])) for row in connection.execute(query)]


def _played() -> Any:
    """What all loads of a page come to, an item a row; the first play is that of the first load that played."""
    first = select(
        heard.c.item_id,
        heard.c.first_play_s,
        func.row_number().over(partition_by=heard.c.item_id, order_by=heard.c.number).label("place"),
    ).where(heard.c.first_play_s.is_not(None))
    firsts = first.subquery()
    return (
        select(
            heard.c.item_id,
            func.sum(heard.c.played_s).label("played_s"),
            func.sum(heard.c.plays).label("plays"),
            func.sum(heard.c.seeks).label("seeks"),
            func.min(firsts.c.first_play_s).label("first_play_s"),
        )
        .select_from(heard.outerjoin(firsts, and_(firsts.c.item_id == heard.c.item_id, firsts.c.place == 1)))
        .group_by(heard.c.item_id)
    )


def _rating(row: Any, played: Any | None) -> GivenRating:
    change = row[answers.c.change]
    return GivenRating(
        rater_id=row[items.c.rater_id],
        page_id=row[given.c.page_id],
        kind=row[given.c.kind],
        page_number=row[items.c.number],
        position=row[items.c.position],
        caption_id=row[given.c.caption_id],
        text=row[given.c.text],
        clip_id=row[items.c.clip_id],
        path=row[items.c.path],
        group=row[items.c.group],
        stratum=row[items.c.stratum],
        probability=row[items.c.probability],
        low=row[items.c.low],
        high=row[items.c.high],
        rating=row[answers.c.rating],
        rated_s=row[answers.c.rated_s],
        given_at=row[answers.c.given_at],
        history=change - 1,
        last=change == row[items.c.changes],
        heard=row[items.c.heard],
        played_s=float(played.played_s) if played else 0.0,
        plays=int(played.plays) if played else 0,
        seeks=int(played.seeks) if played else 0,
        first_play_s=played.first_play_s if played else None,
        submitted=row[given.c.submitted_at] is not None,
    )


def rater_rows(connection: Connection, study: Study) -> list[RaterRow]:
    """As `Flow.raters`."""
    by_rater: dict[str, list[GivenRating]] = {}
    for rating in given_ratings(connection):
        by_rater.setdefault(rating.rater_id, []).append(rating)
    pages: dict[str, list[Any]] = {}
    for page in connection.execute(select(given)):
        pages.setdefault(page.rater_id, []).append(page)
    ids: dict[str, dict[str, str]] = {}
    for rater_id, name, value in connection.execute(select(platform_ids).order_by(platform_ids.c.name)):
        ids.setdefault(rater_id, {})[name] = value
    query = select(raters, func.coalesce(invites.c.label, "").label("label")).select_from(
        raters.outerjoin(invites, invites.c.token_hash == raters.c.invite)
    )
    return [
        _rater_row(row, by_rater.get(row.rater_id, []), pages.get(row.rater_id, []), ids.get(row.rater_id, {}))
        for row in connection.execute(query.order_by(raters.c.entered_at, raters.c.rater_id))
    ]


def _rater_row(row: Any, own: list[GivenRating], pages: list[Any], ids: Mapping[str, str]) -> RaterRow:
    def known(kind: str) -> list[bool]:
        return [r.right for r in own if r.kind == kind and r.submitted and r.right is not None]

    submitted = [page for page in pages if page.submitted_at]
    return RaterRow(
        rater_id=row.rater_id,
        entered_at=row.entered_at,
        consented_at=row.consented_at or "",
        completed_at=row.completed_at or "",
        code=row.code or "",
        qualified=None if row.qualified is None else bool(row.qualified),
        sound_passed=None if row.sound_passed is None else bool(row.sound_passed),
        qualification_right=sum(known("qualification")),
        qualification_asked=len(known("qualification")),
        checks_right=sum(known("check")),
        checks_asked=len(known("check")),
        pages=sum(page.kind == "task" for page in submitted),
        ratings=sum(rating.kind == "task" for rating in own),
        seconds=sum(_seconds(page.given_at, page.submitted_at) for page in submitted),
        played_s=sum(rating.played_s for rating in own),
        label=row.label,
        platform=ids,
        forgotten=row.forgotten_at is not None,
    )


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def progress(connection: Connection, study: Study, now: datetime) -> Progress:
    """As `Flow.progress`."""
    counts = connection.execute(
        select(
            func.count(),
            func.count(raters.c.consented_at),
            func.count().filter(raters.c.qualified == 1),
            func.count().filter(raters.c.qualified == 0),
            func.count(raters.c.completed_at),
            func.count(raters.c.invite),
        )
    ).one()
    tasks = {page.page_id for page in study.of_kind("task")}
    found = connection.execute(
        select(given.c.page_id, func.count(given.c.submitted_at).label("n"))
        .where(given.c.kind == "task")
        .group_by(given.c.page_id)
    ).all()
    submitted: dict[str, int] = {row.page_id: row.n for row in found}
    histogram = Counter(submitted.get(page_id, 0) for page_id in tasks)
    asked = study.settings.raters_a_page
    return Progress(
        entered=counts[0],
        consented=counts[1],
        qualified=counts[2],
        failed=counts[3],
        completed=counts[4],
        at_work=_at_work(connection, time_text(now - AT_WORK)),
        pages=len(tasks),
        full=sum(n for count, n in histogram.items() if count >= asked),
        by_raters=tuple(histogram[count] for count in range(max(histogram, default=0) + 1)),
        submitted=sum(submitted.get(page_id, 0) for page_id in tasks),
        wanted=asked * len(tasks),
        ratings=count_of(connection, items.join(answers, LAST).join(given, PAGE), given.c.kind == "task"),
        invites=count_of(connection, invites),
        invites_used=counts[5],
        silent=_silent(connection),
    )


def _silent(connection: Connection) -> dict[str, int]:
    """Sounds that could not be played, by path."""
    query = select(items.c.path, func.count(items.c.rater_id.distinct())).where(items.c.silent == 1)
    found = connection.execute(query.group_by(items.c.path).order_by(items.c.path)).all()
    return {row[0]: row[1] for row in found}


def _at_work(connection: Connection, since: str) -> int:
    answered = select(items.c.rater_id).join(answers, LAST).where(answers.c.given_at > since)
    paged = select(given.c.rater_id).where((given.c.given_at > since) | (given.c.submitted_at > since))
    return count_of(connection, raters, ~CLOSED, raters.c.rater_id.in_(answered.union(paged)))
