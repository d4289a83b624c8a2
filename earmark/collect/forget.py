"""What is deleted of a rater who asks to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, select, update

from earmark.collect.store import Store
from earmark.collect.tables import answers, count_of, given, invites, items, keys, platform_ids, raters
from earmark.errors import DataError


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What `forget` deleted."""

    rater_id: str
    pages: int
    """That the rater had been given."""
    answers: int
    """All changes counted."""
    kept: bool
    """Whether the answers are kept, under an id that says nothing."""
    wiped: bool
    """Whether the bytes are gone from the database's files too."""
    logged: bool
    """Whether the database's server keeps a log of changes of its own, as PostgreSQL does."""

    def __str__(self) -> str:
        what = "who it was is deleted, the answers are kept" if self.kept else "deleted"
        rest = "" if self.wiped else "; other programs hold the database: close them and forget again"
        if self.logged:
            rest += "; the server's own log of changes, and its backups, keep it until they are recycled"
        return f"{self.rater_id}: {self.pages} pages, {self.answers} answers: {what}{rest}"


def forget(store: Store, who: str, now: str, *, keep_ratings: bool) -> Forgotten:
    """As `Flow.forget`."""
    try:
        rater_id, pages, changes = _deleted(store, who, now, keep_ratings=keep_ratings)
    except DataError:
        store.wipe()  # somebody may have been forgotten while others read the files
        raise
    return Forgotten(rater_id, pages, changes, keep_ratings, store.wipe(), not store.is_file)


def _deleted(store: Store, who: str, now: str, *, keep_ratings: bool) -> tuple[str, int, int]:
    """The rater's id, pages and answers, once they are deleted."""
    with store.giving() as connection:
        rater = _told_by(connection, who)
        rater_id = rater.rater_id
        pages = count_of(connection, given, given.c.rater_id == rater_id)
        of_rater = items.join(answers, answers.c.item_id == items.c.item_id)
        changes = count_of(connection, of_rater, items.c.rater_id == rater_id)
        if keep_ratings:
            for table in (keys, platform_ids):
                connection.execute(delete(table).where(table.c.rater_id == rater_id))
            nobody = {"invite": None, "participant": None, "session": None, "code": None, "forgotten_at": now}
            connection.execute(update(raters).where(raters.c.rater_id == rater_id).values(nobody))
        else:
            connection.execute(delete(raters).where(raters.c.rater_id == rater_id))  # and what hangs on it
        if rater.invite:
            connection.execute(delete(invites).where(invites.c.token_hash == rater.invite))
    return rater_id, pages, changes


def _told_by(connection: Connection, who: str) -> Any:
    """The rater of that id, or the participant of that id on a platform; ids that many share tell nobody."""
    word = who if who.isprintable() else ""
    found = connection.execute(select(raters).where(raters.c.rater_id == word)).all()
    if not found:
        own = raters.c.participant == platform_ids.c.name + "=" + platform_ids.c.value
        having = select(raters).join(platform_ids, and_(platform_ids.c.rater_id == raters.c.rater_id, own))
        found = connection.execute(having.where(platform_ids.c.value == word)).all()
    if not found:
        raise DataError(f"{who!r:.60}: no rater has this id. The owner's page lists those there are.")
    if len(found) > 1:
        raise DataError(f"{who!r:.60}: {len(found)} raters have this id; expected one. Name the rater's own id.")
    return found[0]
