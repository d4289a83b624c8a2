"""What a rater sees next, and what of their answers counts.

The steps of a rater: consent, sound check, qualification, tasks, done. Everything that a rater's browser asks for is
asked of a `Flow` with the rater's id, and only what belongs to that rater is answered; ids that a rater sees are random
and say nothing of clips or groups. What is refused is a `RefusedError`: one line with an HTTP status. Times are UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import Connection, and_, func, select, update

from earmark.collect.answering import (
    enough,
    is_kept,
    item_of,
    keep_answer,
    keep_heard,
    keep_silent,
    plain_id,
    shown_items,
)
from earmark.collect.assign import advance, missing, open_page, time_text
from earmark.collect.entry import Entry, hashed
from earmark.collect.forget import Forgotten, forget
from earmark.collect.overview import Progress, RaterRow, given_ratings, progress, rater_rows
from earmark.collect.reported import (
    TOLERANCE_S,
    GivenAnswer,
    Heard,
    check_answer,
    check_heard,
    listen_first,
)
from earmark.collect.store import GivenRating, RefusedError, Store
from earmark.collect.study import Item, Study
from earmark.collect.tables import given, keys, raters

__all__ = [
    "Flow",
    "Forgotten",
    "GivenAnswer",
    "Heard",
    "Progress",
    "RaterRow",
    "RefusedError",
    "Shown",
    "ShownItem",
    "State",
]

Step = Literal["consent", "sound", "qualification", "task", "failed", "nothing_left", "done"]


@dataclass(frozen=True, slots=True)
class State:
    """Where a rater stands."""

    step: Step
    """A check page is a task for its rater. "nothing_left": no page was left for them, and they have done none."""
    number: int = 0
    """The page to answer now, from 1; 0 where there is none. At "done" and "failed" the last one."""
    pages: int = 0
    """Of all kinds, as far as is known now; 0 before the first is given."""
    done: int = 0
    """Pages of all kinds that were submitted: check pages do not show."""
    code: str = ""
    """The completion code, only at "done"."""
    url: str = ""
    """The crowd platform's address, where the study has one: with the code in it at "done", the other at "failed"."""


@dataclass(frozen=True, slots=True)
class ShownItem:
    """A clip of a page as its rater left it."""

    item_id: str
    rating: float | None
    """0–100; None where there is none yet."""
    heard: float
    """Share of the clip, 0–1."""
    played_s: float
    plays: int
    silent: bool
    """Whether its sound could not be played: its rating is not asked."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as its rater sees it; the items in the order of this rater."""

    number: int
    of: int
    text: str
    items: tuple[ShownItem, ...]
    submitted: bool


def utc_now() -> datetime:
    """The clock that a study is dated by."""
    return datetime.now(UTC)


class Flow:
    """The study with its answers, safe under several threads and several processes."""

    def __init__(
        self, study: Study, store: Store, *, now: Callable[[], datetime] = utc_now, rehearsal: bool = False
    ) -> None:
        """`now` is the clock that everything is dated by; `rehearsal`: simulated listeners answer.

        Raises `DataError` where the store holds other answers than those of this study, see `Store.claim`.
        """
        store.claim(study.id, rehearsal=rehearsal)
        self.study, self.store, self.now = study, store, now
        self._entry = Entry(study.settings, store)
        self._enough = enough(study.settings)
        self._paths = {(page.page_id, item.clip_id): item.path for page in study.pages for item in page.items}

    # Who it is

    def enter(self, *, key: str = "", invite: str = "", platform: Mapping[str, str] | None = None) -> tuple[str, str]:
        """The rater's id, and the key to keep in their browser: a secret, of which the store has only the hash.

        An invitation that was used says who it is, then a crowd platform's participant, then, without an invitation, a
        known key (which is given back); whoever is none of these is a new rater. Of `platform` the parameters in
        `settings.platform_ids` are kept as they are. Raises `RefusedError`: 403 without a valid invitation where one is
        needed, 409 for a participant who is known from another session or invitation, 410 where the open link's places
        are taken, 422 for ids that cannot be kept.
        """
        return self._entry.enter(self.now(), key, invite, platform or {})

    def rater(self, key: str) -> str | None:
        """The id of the rater who holds this key; None where nobody does."""
        with self.store.reading() as connection:
            found = connection.execute(select(keys.c.rater_id).where(keys.c.key_hash == hashed(key))).scalar()
        return None if found is None else str(found)

    # Steps

    def state(self, rater_id: str) -> State:
        """Where the rater stands. Raises `RefusedError` 404 for an unknown rater, as every call below."""
        with self.store.reading() as connection:
            state = self._state(connection, rater_id)
        if state.step != "nothing_left":
            return state
        return self._advanced(rater_id)  # a page may have come free

    def consent(self, rater_id: str) -> State:
        """The state after the rater agreed. Raises `RefusedError` 410 where the study is full by now."""
        with self.store.giving() as connection:
            rater = self._rater(connection, rater_id)
            if not rater.consented_at:
                self._entry.check_place(connection, self.now(), rater)
                values = {"consented_at": time_text(self.now())}
                connection.execute(update(raters).where(raters.c.rater_id == rater_id).values(values))
            return self._state(connection, rater_id)

    def sound_checked(self, rater_id: str, *, passed: bool = True) -> State:
        """The state after the sound check, passed or not; gives the first page. Raises `RefusedError` 409 before
        consent."""
        with self.store.giving() as connection:
            rater = self._rater(connection, rater_id)
            if not rater.consented_at:
                raise RefusedError("The sound check comes after consent. Agree first.", 409)
            if not rater.sound_at:
                values = {"sound_at": time_text(self.now()), "sound_passed": int(passed)}
                connection.execute(update(raters).where(raters.c.rater_id == rater_id).values(values))
            advance(connection, self.study, rater_id, self.now())
            return self._state(connection, rater_id)

    def page(self, rater_id: str, number: int) -> Shown:
        """A page that the rater was given, as it stands. Raises `RefusedError` 404 where it was not."""
        with self.store.reading() as connection:
            rater = self._rater(connection, rater_id)
            page = self._page(connection, rater_id, number)
            shown = tuple(ShownItem(*row) for row in shown_items(connection, rater_id, number))
        return Shown(number, rater.expected, page.text, shown, page.submitted_at is not None)

    def item(self, rater_id: str, item_id: str) -> Item:
        """The clip behind an id that the rater was given. Raises `RefusedError` 404 where it is not theirs."""
        with self.store.reading() as connection:
            row = item_of(connection, rater_id, item_id)
        path = self._paths.get((row.page_id, row.clip_id), row.path)  # the owner may have moved the sound
        return Item(row.clip_id, path, row.group, row.stratum, row.probability, row.low, row.high)

    def silence(self, rater_id: str, item_id: str) -> None:
        """Keeps that the item's sound cannot be played: its rating is not asked of this rater, then or later.

        An answer that is there already stays. Raises `RefusedError` 404 where the item is not theirs.
        """
        with self.store.writing() as connection:
            keep_silent(connection, item_of(connection, rater_id, item_id, alone=True))

    def submit(self, rater_id: str, number: int) -> State:
        """The state after the page was submitted; gives the next page, once however often it is called.

        Raises `RefusedError` 409 while an item of it has no rating or was not heard enough.
        """
        with self.store.giving() as connection:
            self._rater(connection, rater_id)
            page = self._page(connection, rater_id, number)
            lacking, asked = missing(connection, rater_id, number, self._enough)
            if lacking or not asked:
                raise RefusedError(f"{lacking} of {asked} clips have no rating yet. Rate all of them, then go on.", 409)
            if page.submitted_at is None:
                here = and_(given.c.rater_id == rater_id, given.c.number == number)
                connection.execute(update(given).where(here).values(submitted_at=time_text(self.now())))
            advance(connection, self.study, rater_id, self.now())
            return self._state(connection, rater_id)

    # Answers

    def heard(self, rater_id: str, item_id: str, told: Heard, *, duration_s: float) -> float:
        """The share of the clip that the rater has heard over all loads of the page, 0–1, with `told` kept.

        `duration_s` is the clip's, as the server knows it. Telling the same, or less, again changes nothing. Nobody
        hears more, of all clips of a page together, than the time since the page was given. Raises `RefusedError` 422
        on times that are none.
        """
        check_heard(told)
        with self.store.writing() as connection:
            item = item_of(connection, rater_id, item_id, alone=True)
            if item.closed:
                return float(item.heard)
            return keep_heard(connection, item, told, duration_s, self._elapsed(item.given_at))

    def answer(self, rater_id: str, item_id: str, told: GivenAnswer) -> None:
        """Keeps an answer: it is on the disk when this returns. Every change is a row, and the last one counts.

        Raises `RefusedError`: 422 on a rating that is none and while too little of the clip was heard, 409 once the
        rater is done.
        """
        check_answer(told)
        with self.store.writing() as connection:
            item = item_of(connection, rater_id, item_id, alone=True)
            if is_kept(connection, item, told.key):
                return
            if item.closed:
                raise RefusedError("You are done: ratings can no longer be changed.", 409)
            if item.heard < self._enough:
                raise RefusedError(listen_first(self.study.settings.heard_share, item.heard), 422)
            keep_answer(connection, item, told, self._elapsed(item.given_at), time_text(self.now()))

    # For the owner

    def progress(self) -> Progress:
        """How far the study is."""
        with self.store.reading() as connection:
            return progress(connection, self.study, self.now())

    def raters(self) -> list[RaterRow]:
        """Every rater who entered, in that order."""
        with self.store.reading() as connection:
            return rater_rows(connection, self.study)

    def ratings(self, *, history: bool = False) -> list[GivenRating]:
        """The answer that counts of every item that has one, of all kinds of pages; with `history` every answer."""
        with self.store.reading() as connection:
            return given_ratings(connection, history=history)

    def invite(self, count: int, label: str = "") -> list[str]:
        """Tokens of new invitations, 192 random bits each; the store has only their hashes. Raises `DataError`."""
        return self._entry.invite(self.now(), count, label)

    def forget(self, who: str, *, keep_ratings: bool = False) -> Forgotten:
        """What was deleted of a rater, told by their id or a platform's participant id: all, or all that tells who.

        Raises `DataError` where no rater has that id, or several have.
        """
        return forget(self.store, who, time_text(self.now()), keep_ratings=keep_ratings)

    # What is whose

    def _advanced(self, rater_id: str) -> State:
        with self.store.giving() as connection:
            advance(connection, self.study, rater_id, self.now())
            return self._state(connection, rater_id)

    def _state(self, connection: Connection, rater_id: str) -> State:
        rater = self._rater(connection, rater_id)
        if not rater.consented_at:
            return State("consent")
        if not rater.sound_at:
            return State("sound")
        pages = connection.execute(
            select(func.count(), func.count(given.c.submitted_at)).where(given.c.rater_id == rater_id)
        ).one()
        number, done = pages
        if rater.qualified == 0:
            return State("failed", number, number, done, url=self.study.settings.failed_url)
        if rater.completed_at:
            return State("done", number, number, done, rater.code, self._url(rater.code))
        page = open_page(connection, rater_id, self._enough)
        if page is None:
            return State("nothing_left", 0, number, done)
        return State("qualification" if page.kind == "qualification" else "task", page.number, rater.expected, done)

    def _url(self, code: str) -> str:
        return self.study.settings.completion_url.replace("{code}", code)

    def _rater(self, connection: Connection, rater_id: str) -> Any:
        here = and_(raters.c.rater_id == plain_id(rater_id), raters.c.forgotten_at.is_(None))
        found = connection.execute(select(raters).where(here)).first()
        if found is None:
            raise RefusedError("This rater is not known here. Open the study's link again.", 404)
        return found

    def _page(self, connection: Connection, rater_id: str, number: int) -> Any:
        here = and_(given.c.rater_id == plain_id(rater_id), given.c.number == _number(number))
        found = connection.execute(select(given).where(here)).first()
        if found is None:
            raise RefusedError("You were not given this page.", 404)
        return found

    def _elapsed(self, since: str) -> float:
        """Seconds since then, and a little more; without end where that is yet to come.

        Then a clock was set back, or another server's is ahead, and no listener is to wait for that.
        """
        seconds = (self.now() - datetime.fromisoformat(since)).total_seconds()
        return seconds + TOLERANCE_S if seconds >= 0 else math.inf


def _number(value: object) -> int:
    """The number of a page, or 0 where it cannot be one."""
    return value if isinstance(value, int) and 0 < value < 1 << 31 else 0
