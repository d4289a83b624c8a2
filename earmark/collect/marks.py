"""What a rater did with one clip of a page: found, heard and rated, as rows of the store.

The statements stand ready: building one costs as much as what the database does with it.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from earmark.collect.store import RefusedError, answers, given, heard, items, raters
from earmark.collect.study import Settings
from earmark.collect.told import GivenAnswer, Heard, merged, plain_rating

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
_ITEM_ALONE = _ITEM.with_for_update(of=items)
_SAME = select(answers.c.change).where(answers.c.item_id == bindparam("item"), answers.c.key == bindparam("word"))
_VIEWS = select(heard).where(heard.c.item_id == bindparam("item"))
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
    )
    .select_from(items.outerjoin(answers, LAST).outerjoin(heard, heard.c.item_id == items.c.item_id))
    .where(items.c.rater_id == bindparam("rater"), items.c.number == bindparam("page"))
    .group_by(items.c.item_id, answers.c.rating, items.c.heard, items.c.position)
    .order_by(items.c.position)
)


def enough(settings: Settings) -> float:
    """The share of a clip from which on it counts as heard; shares are sums, whose last digits vary."""
    return settings.heard_share - 1e-9


def item_of(connection: Connection, rater_id: str, item_id: str, *, alone: bool = False) -> Any:
    """The rater's item with its page's id and time, and whether the rater is done (`closed`).

    `alone`: until the transaction ends nobody else changes it. Raises `RefusedError` 404 where it is not theirs.
    """
    which = {"item": plain_id(item_id), "rater": plain_id(rater_id)}
    found = connection.execute(_ITEM_ALONE if alone else _ITEM, which).first()
    if found is None:
        raise RefusedError("You were not given this clip.", 404)
    return found


def shown_items(connection: Connection, rater_id: str, number: int) -> list[Any]:
    """The items of a page in their order: id, last rating, share heard, seconds played, plays."""
    return list(connection.execute(_SHOWN, {"rater": rater_id, "page": number}).all())


def keep_heard(connection: Connection, item: Any, told: Heard, duration_s: float, most_s: float) -> list[list[float]]:
    """Keeps what a load of the page tells; what of the clip all loads have covered."""
    views = connection.execute(_VIEWS, {"item": item.item_id}).all()
    own = next((view for view in views if view.view == told.view), None)
    row = merged(own, told, duration_s, most_s)
    if own is not None:
        connection.execute(_UPDATE_HEARD, {"item": item.item_id, "load": told.view, **row})
    elif len(views) < MOST_VIEWS:
        first = {"item_id": item.item_id, "view": told.view, "number": len(views) + 1}
        connection.execute(_INSERT_HEARD, first | row)
    else:
        raise RefusedError(f"This page was loaded {MOST_VIEWS} times. Go on in one window.", 429)
    covered = [view.covered for view in views if view is not own] + [row["covered"]]
    return [part for parts in covered for part in json.loads(parts)]


def keep_share(connection: Connection, item: Any, share: float) -> float:
    """The share of the clip that counts as heard: the most that it ever was."""
    if share > item.heard:
        connection.execute(_UPDATE_ITEM, {"item": item.item_id, "heard": share})
    return max(share, float(item.heard))


def is_kept(connection: Connection, item: Any, key: str) -> bool:
    """Whether this answer is there already."""
    return connection.execute(_SAME, {"item": item.item_id, "word": key}).first() is not None


def keep_answer(connection: Connection, item: Any, told: GivenAnswer, most_s: float, now: str) -> None:
    """Adds an answer to the item's history. Raises `RefusedError` 429 where that is full."""
    if item.changes >= MOST_CHANGES:
        raise RefusedError(f"This clip was rated {MOST_CHANGES} times; the last rating stands.", 429)
    change = item.changes + 1
    rating, rated_s = plain_rating(told.rating), min(told.rated_s, most_s)
    row = {"item_id": item.item_id, "change": change, "key": told.key, "view": told.view, "rating": rating}
    connection.execute(_INSERT_ANSWER, row | {"rated_s": rated_s, "given_at": now})
    connection.execute(_UPDATE_ITEM, {"item": item.item_id, "changes": change})


def plain_id(value: object) -> str:
    """The id, or one that nothing has where it cannot be one of ours."""
    return value if isinstance(value, str) and value.isascii() and value.isalnum() and len(value) < 65 else ""
