"""What a rater did with one clip of a page: found, heard and rated, as rows of the store.

The statements stand ready: building one costs as much as what the database does with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from earmark.collect.reported import GivenAnswer, Heard, merged, plain_rating, seconds_of, share
from earmark.collect.store import RefusedError
from earmark.collect.study import Settings
from earmark.collect.tables import answers, given, heard, items, raters

MOST_VIEWS = 200
"""Loads of a page that are told apart."""
MOST_CHANGES = 1000
"""Of one rating."""

LAST = and_(answers.c.item_id == items.c.item_id, answers.c.change == items.c.changes)
"""The answer of an item that counts."""
PAGE = and_(given.c.rater_id == items.c.rater_id, given.c.number == items.c.number)
"""The page of an item."""
CLOSED = raters.c.completed_at.is_not(None) | (func.coalesce(raters.c.qualified, 1) == 0)
"""Whether a rater is done, or failed."""

_ITEM = (
    select(items, given.c.page_id, given.c.given_at, CLOSED.label("closed"))
    .select_from(items.join(given, PAGE).join(raters, raters.c.rater_id == items.c.rater_id))
    .where(
        items.c.item_id == bindparam("item"), items.c.rater_id == bindparam("rater"), raters.c.forgotten_at.is_(None)
    )
)
_ITEM_ALONE = _ITEM.with_for_update(of=[items, given])
_SAME = select(answers.c.change).where(answers.c.item_id == bindparam("item"), answers.c.key == bindparam("word"))
_VIEWS = (
    select(heard)
    .join(items, items.c.item_id == heard.c.item_id)
    .where(items.c.rater_id == bindparam("rater"), items.c.number == bindparam("page"))
)
_INSERT_ANSWER, _INSERT_HEARD = insert(answers), insert(heard)
_UPDATE_HEARD = update(heard).where(heard.c.item_id == bindparam("item"), heard.c.view == bindparam("load"))
_UPDATE_ITEM = update(items).where(items.c.item_id == bindparam("item"))
_SHOWN = (
    select(
        items.c.item_id,
        answers.c.rating,
        items.c.heard,
        func.coalesce(func.sum(heard.c.played_s), 0.0),
        func.coalesce(func.sum(heard.c.plays), 0),
        items.c.silent == 1,
    )
    .select_from(items.outerjoin(answers, LAST).outerjoin(heard, heard.c.item_id == items.c.item_id))
    .where(items.c.rater_id == bindparam("rater"), items.c.number == bindparam("page"))
    .group_by(items.c.item_id, answers.c.rating, items.c.heard, items.c.silent, items.c.position)
    .order_by(items.c.position)
)


def enough(settings: Settings) -> float:
    """The share of a clip from which on it counts as heard; shares are sums, whose last digits vary."""
    return settings.heard_share - 1e-9


def item_of(connection: Connection, rater_id: str, item_id: str, *, alone: bool = False) -> Any:
    """The rater's item with its page's id and time, and whether the rater is done (`closed`).

    `alone`: until the transaction ends nobody else changes anything on its page. Raises `RefusedError` 404 where it is
    not theirs.
    """
    which = {"item": plain_id(item_id), "rater": plain_id(rater_id)}
    found = connection.execute(_ITEM_ALONE if alone else _ITEM, which).first()
    if found is None:
        raise RefusedError("You were not given this clip.", 404)
    return found


def shown_items(connection: Connection, rater_id: str, number: int) -> list[Any]:
    """The items of a page in their order: id, last rating, share heard, seconds played, plays, whether it is silent."""
    return list(connection.execute(_SHOWN, {"rater": rater_id, "page": number}).all())


def keep_heard(connection: Connection, item: Any, told: Heard, duration_s: float, most_s: float) -> float:
    """The share of the clip that was heard, 0–1, with what a load of the page tells kept.

    One clip sounds at a time: all clips of the page together were heard, and played, for `most_s` seconds at most.
    """
    page = connection.execute(_VIEWS, {"rater": item.rater_id, "page": item.number}).all()
    views = [view for view in page if view.item_id == item.item_id]
    own = next((view for view in views if view.view == told.view), None)
    left_s = max(0.0, most_s - _heard_beside(page, item.item_id))
    played_s = max(0.0, most_s - sum(view.played_s for view in page if view is not own))
    row = merged(own, told, duration_s, most_s, left_s, played_s)
    if own is not None:
        connection.execute(_UPDATE_HEARD, {"item": item.item_id, "load": told.view, **row})
    elif len(views) < MOST_VIEWS:
        first = {"item_id": item.item_id, "view": told.view, "number": len(views) + 1}
        connection.execute(_INSERT_HEARD, first | row)
    else:
        raise RefusedError(f"This page was loaded {MOST_VIEWS} times. Go on in one window.", 409)
    covered = [view.covered for view in views if view is not own] + [row["covered"]]
    return _keep_share(
        connection, item, share([part for each in covered for part in json.loads(each)], duration_s, left_s)
    )


def _heard_beside(page: Sequence[Any], item_id: str) -> float:
    """Seconds of the page's other clips that were heard, over all loads."""
    parts: dict[str, list[list[float]]] = {}
    for view in page:
        if view.item_id != item_id:
            parts.setdefault(view.item_id, []).extend(json.loads(view.covered))
    return sum(seconds_of(each) for each in parts.values())


def keep_silent(connection: Connection, item: Any) -> None:
    """Marks the item as one whose sound cannot be played: its rating is not asked."""
    connection.execute(_UPDATE_ITEM, {"item": item.item_id, "silent": 1})


def _keep_share(connection: Connection, item: Any, now: float) -> float:
    """The share of the clip that counts as heard: the most that it ever was."""
    if now > item.heard:
        connection.execute(_UPDATE_ITEM, {"item": item.item_id, "heard": now})
    return max(now, float(item.heard))


def is_kept(connection: Connection, item: Any, key: str) -> bool:
    """Whether this answer is there already."""
    return connection.execute(_SAME, {"item": item.item_id, "word": key}).first() is not None


def keep_answer(connection: Connection, item: Any, told: GivenAnswer, most_s: float, now: str) -> None:
    """Adds an answer to the item's history. Raises `RefusedError` 409 where that is full."""
    if item.changes >= MOST_CHANGES:
        raise RefusedError(f"This clip was rated {MOST_CHANGES} times; the last rating stands.", 409)
    change = item.changes + 1
    rating, rated_s = plain_rating(told.rating), min(told.rated_s, most_s)
    row = {"item_id": item.item_id, "change": change, "key": told.key, "view": told.view, "rating": rating}
    connection.execute(_INSERT_ANSWER, row | {"rated_s": rated_s, "given_at": now})
    connection.execute(_UPDATE_ITEM, {"item": item.item_id, "changes": change})


def plain_id(value: object) -> str:
    """The id, or one that nothing has where it cannot be one of ours."""
    return value if isinstance(value, str) and value.isascii() and value.isalnum() and len(value) < 65 else ""
