"""Which page a rater gets next, and when they are done.

The order: qualification pages, then task pages with a check page after every `check_every` of them, or one task page
earlier by chance, so that nobody can count to the next. A page is never given twice to one rater. Task pages that
fewest raters have go first, and none goes to more than `raters_a_page`; one that was given long ago and never submitted
counts as not given (whoever comes back to it then makes one more). Check and qualification pages that were given least
go first, so that different raters get different ones. Ties and the order of a page's items are random, from the
system's source of randomness, and what was given is recorded as it was given.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, func, insert, or_, select, update

from earmark.collect.answering import LAST, PAGE, enough
from earmark.collect.store import is_right
from earmark.collect.study import Page, Settings, Study
from earmark.collect.tables import answers, given, items, raters
from earmark.measure.raters import failed

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Of completion codes: none that is taken for another."""
CODE_LETTERS = 12
_RANDOM = secrets.SystemRandom()


def time_text(time: datetime) -> str:
    """UTC, ISO 8601 to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def open_page(connection: Connection, rater_id: str, heard_share: float) -> Any | None:
    """The first of the rater's pages (number, kind) that is not submitted or lacks something; None where none does."""
    pages = connection.execute(
        select(given.c.number, given.c.kind, given.c.submitted_at)
        .where(given.c.rater_id == rater_id)
        .order_by(given.c.number)
    ).all()
    whole = dict(_whole_items(connection, rater_id, heard_share))
    for page in pages:
        every, there = whole.get(page.number, (0, 0))
        if page.submitted_at is None or not every or there < every:
            return page
    return None


def missing(connection: Connection, rater_id: str, number: int, heard_share: float) -> tuple[int, int]:
    """How many items of the page lack an answer that counts, and how many there are.

    One whose sound cannot be played lacks none: nobody is asked what they cannot hear.
    """
    every, there = dict(_whole_items(connection, rater_id, heard_share, number)).get(number, (0, 0))
    return every - there, every


def _whole_items(
    connection: Connection, rater_id: str, heard_share: float, number: int | None = None
) -> Iterable[tuple[int, tuple[int, int]]]:
    """Of each page of the rater: how many items it has, and how many are answered and were heard enough, or silent."""
    whole = or_(items.c.silent == 1, and_(answers.c.item_id.is_not(None), items.c.heard >= heard_share))
    query = (
        select(items.c.number, func.count(), func.count().filter(whole))
        .select_from(items.outerjoin(answers, LAST))
        .where(items.c.rater_id == rater_id)
        .group_by(items.c.number)
    )
    if number is not None:
        query = query.where(items.c.number == number)
    for page, every, there in connection.execute(query):
        yield page, (every, there)


def advance(connection: Connection, study: Study, rater_id: str, now: datetime) -> None:
    """Gives the rater the next page, or a completion code, or neither, where no page of theirs is open.

    Within `Store.giving`.
    """
    rater = connection.execute(select(raters).where(raters.c.rater_id == rater_id)).one()
    ready = rater.consented_at and rater.sound_at and not rater.forgotten_at
    if not ready or rater.completed_at or rater.qualified == 0:
        return
    if open_page(connection, rater_id, enough(study.settings)) is not None:
        return
    turn = _Turn(connection, study, rater, now)
    page = turn.next()
    changes: dict[str, Any] = {"qualified": turn.qualified}
    if page is not None:
        turn.give(page)
        changes["expected"] = turn.expected(page)
    elif turn.qualified and turn.had["task"]:
        changes |= {"completed_at": time_text(now), "code": new_code(), "expected": len(turn.seen)}
    connection.execute(update(raters).where(raters.c.rater_id == rater_id).values(changes))


class _Turn:
    """One rater, all of whose pages are submitted, at the moment of getting the next."""

    def __init__(self, connection: Connection, study: Study, rater: Any, now: datetime) -> None:
        self.connection, self.study, self.now = connection, study, now
        self.settings: Settings = study.settings
        self.rater_id: str = rater.rater_id
        self.qualified: int | None = rater.qualified
        pages = connection.execute(select(given.c.page_id, given.c.kind).where(given.c.rater_id == self.rater_id)).all()
        self.seen = {page.page_id for page in pages}
        self.had = Counter(page.kind for page in pages)
        self.tasks = self._free_tasks()

    def next(self) -> Page | None:
        """The page to give; sets `qualified` where that is decided now."""
        if not self.tasks and not self.had["task"]:
            return None  # nobody is asked to qualify for nothing
        if self.qualified is None:
            if self.had["qualification"] < self.settings.qualify and (page := self._least_given("qualification")):
                return page
            self.qualified = int(self._is_qualified())
        if not self.qualified:
            return None
        if self.had["check"] < self._checks_due() and (page := self._least_given("check")):
            return page
        if self.tasks and self.had["task"] < self.settings.pages_a_rater:
            return _RANDOM.choice(self.tasks)
        return None

    def give(self, page: Page) -> None:
        """Records the page, and its items in an order of their own."""
        number = len(self.seen) + 1
        row = {"kind": page.kind, "page_id": page.page_id, "caption_id": page.caption_id, "text": page.text}
        when = time_text(self.now)
        self.connection.execute(insert(given).values(rater_id=self.rater_id, number=number, given_at=when, **row))
        order = list(page.items)
        _RANDOM.shuffle(order)
        self.connection.execute(
            insert(items),
            [
                {
                    "item_id": secrets.token_hex(12),
                    "rater_id": self.rater_id,
                    "number": number,
                    "position": position,
                    "clip_id": item.clip_id,
                    "path": item.path,
                    "group": item.group,
                    "stratum": item.stratum,
                    "probability": item.probability,
                    "low": item.low,
                    "high": item.high,
                    "heard": 0.0,
                    "changes": 0,
                    "silent": 0,
                }
                for position, item in enumerate(order, 1)
            ],
        )

    def expected(self, page: Page) -> int:
        """How many pages the rater will have had, as far as that is known, when `page` is the newest."""
        had = self.had + Counter([page.kind])
        tasks = self._tasks_in_all(had["task"], self._free_count - (page.kind == "task"))
        qualification = had["qualification"]
        if self.qualified is None:
            qualification = max(qualification, min(self.settings.qualify, len(self.study.of_kind("qualification"))))
        checks = had["check"]
        if self.settings.check_every:
            checks = max(checks, min(tasks // self.settings.check_every, len(self.study.of_kind("check"))))
        return tasks + qualification + checks

    def _tasks_in_all(self, had: int, left: int) -> int:
        """How many task pages the rater will have had, who had so many, when so many more can be given."""
        return min(max(self.settings.pages_a_rater, had), had + left)

    def _checks_due(self) -> int:
        """How many check pages are due by now. Each comes in its place or one task page earlier: gaps vary by 1."""
        every, had = self.settings.check_every, self.had["task"]
        if not every:
            return 0
        early = every > 1 and (had + 1) % every == 0 and had + 1 <= self._tasks_in_all(had, self._free_count)
        return had // every + int(early and _RANDOM.random() < 0.5)

    def _free_tasks(self) -> list[Page]:
        """The task pages that may be given to this rater and have fewest raters."""
        cutoff = time_text(self.now - timedelta(hours=self.settings.return_after_h))
        at_work = and_(given.c.given_at > cutoff, raters.c.forgotten_at.is_(None))
        found = self.connection.execute(
            select(given.c.page_id, func.count().label("n"))
            .select_from(given.join(raters))
            .where(given.c.kind == "task", or_(given.c.submitted_at.is_not(None), at_work))
            .group_by(given.c.page_id)
        ).all()
        counts: dict[str, int] = {row.page_id: row.n for row in found}
        free = [
            page
            for page in self.study.of_kind("task")
            if page.page_id not in self.seen and counts.get(page.page_id, 0) < self.settings.raters_a_page
        ]
        self._free_count = len(free)
        return _least(free, counts)

    def _least_given(self, kind: Any) -> Page | None:
        """One of the pages of that kind that the rater has not had and fewest raters have."""
        found = self.connection.execute(
            select(given.c.page_id, func.count().label("n")).where(given.c.kind == kind).group_by(given.c.page_id)
        ).all()
        counts: dict[str, int] = {row.page_id: row.n for row in found}
        pages = _least([page for page in self.study.of_kind(kind) if page.page_id not in self.seen], counts)
        return _RANDOM.choice(pages) if pages else None

    def _is_qualified(self) -> bool:
        """Whether enough of the known answers of the qualification were right; also where there were none."""
        right, asked = right_and_asked(self.connection, self.rater_id, "qualification")
        return not failed(right, asked, self.settings.qualify_share)


def right_and_asked(connection: Connection, rater_id: str, kind: str) -> tuple[int, int]:
    """How many known answers on the rater's submitted pages of that kind were right, and how many there were."""
    found = connection.execute(
        select(answers.c.rating, items.c.low, items.c.high)
        .select_from(items.join(answers, LAST).join(given, PAGE))
        .where(items.c.rater_id == rater_id, given.c.kind == kind, given.c.submitted_at.is_not(None))
    )
    known = [right for row in found if (right := is_right(*row)) is not None]
    return sum(known), len(known)


def new_code() -> str:
    """A completion code: 60 random bits in letters and digits that are not taken for each other."""
    return "".join(secrets.choice(LETTERS) for _ in range(CODE_LETTERS))


def _least(pages: Sequence[Page], counts: dict[str, int]) -> list[Page]:
    """Those of the pages that fewest raters have."""
    fewest = min((counts.get(page.page_id, 0) for page in pages), default=0)
    return [page for page in pages if counts.get(page.page_id, 0) == fewest]
