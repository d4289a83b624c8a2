"""Who a rater is: keys of browsers, invitations, and a crowd platform's ids.

A key and an invitation's token are 192 random bits; the store has only their SHA-256. Of a crowd platform's ids one
tells the participant and one the session; the names of Prolific and Mechanical Turk are known, of other platforms the
first name in `settings.platform_ids` is the participant's and the others together are the session.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, or_, select

from earmark.collect.assign import time_text
from earmark.collect.store import RefusedError, Store
from earmark.collect.study import Settings
from earmark.collect.tables import invites, keys, platform_ids, raters
from earmark.errors import DataError

PARTICIPANTS = ("PROLIFIC_PID", "workerId")
SESSIONS = ("SESSION_ID", "assignmentId")
STUDIES = ("STUDY_ID", "hitId")
LONGEST_ID = 200
LONGEST_LABEL = 200
MOST_INVITES = 100_000
MOST_KEYS = 20
"""Browsers of one rater; the oldest is forgotten."""
HELD = timedelta(hours=1)
"""So long a place of an open link is held for who has not agreed yet."""


def hashed(secret: object) -> str:
    """SHA-256, hex; "" where it is no secret of ours."""
    if not isinstance(secret, str) or not secret.isascii() or not 0 < len(secret) <= 100:
        return ""
    return hashlib.sha256(secret.encode()).hexdigest()


class Entry:
    """The door of a study."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings, self.store = settings, store

    def enter(self, now: datetime, key: str, invite: str, platform: Mapping[str, str]) -> tuple[str, str]:
        """As `Flow.enter`."""
        kept = self._kept(platform)
        participant, session = self._who(kept)
        with self.store.giving() as connection:
            rater_id = self._by_invite(connection, invite) if invite else None
            if rater_id is None and participant:  # whoever has taken part does not begin again with another invitation
                rater_id = self._by_participant(connection, key, participant, session)
            elif not invite:
                rater_id = _by_key(connection, key)
            if rater_id is not None and rater_id == _by_key(connection, key):
                return rater_id, key
            if rater_id is None:
                rater_id = self._new(connection, now, invite, kept)
            return rater_id, _new_key(connection, rater_id, now)

    def check_place(self, connection: Connection, now: datetime, rater: Any | None = None) -> None:
        """Raises `RefusedError` 410 where the open link has no place for a new rater, or for this one.

        A place is taken by who has agreed, and for an hour by who has not; invitations take none.
        """
        most = self.settings.most_raters
        if not most or (rater is not None and rater.invite):
            return
        held = or_(raters.c.consented_at.is_not(None), raters.c.entered_at > time_text(now - HELD))
        query = (
            select(func.count())
            .select_from(raters)
            .where(raters.c.invite.is_(None), raters.c.forgotten_at.is_(None), held)
        )
        if rater is not None:
            query = query.where(raters.c.rater_id != rater.rater_id)
        if connection.execute(query).scalar_one() >= most:
            raise RefusedError("All places of this study are taken. Thank you for coming.", 410)

    def invite(self, now: datetime, count: int, label: str) -> list[str]:
        """As `Flow.invite`."""
        if not 0 < count <= MOST_INVITES:
            raise DataError(f"{count} invitations; expected 1 to {MOST_INVITES:,}.")
        if not _can_be_kept(label, LONGEST_LABEL):
            raise DataError(f"label {label!r:.60}; expected one line of at most {LONGEST_LABEL} letters.")
        tokens = [secrets.token_urlsafe(24) for _ in range(count)]
        made = [{"token_hash": hashed(token), "label": label, "made_at": time_text(now)} for token in tokens]
        with self.store.writing() as connection:
            connection.execute(insert(invites), made)
        return tokens

    def _kept(self, platform: Mapping[str, str]) -> dict[str, str]:
        """The ids that the study keeps, as they were given."""
        kept = {name: platform[name] for name in self.settings.platform_ids if platform.get(name)}
        for name, value in kept.items():
            if not _can_be_kept(value, LONGEST_ID):
                raise RefusedError(f"{name} in the address cannot be read. Open the study by its link again.", 422)
        return kept

    def _who(self, kept: Mapping[str, str]) -> tuple[str, str]:
        """Participant and session; "" where they are not told."""
        own = [name for name in self.settings.platform_ids if name not in (*PARTICIPANTS, *SESSIONS, *STUDIES)]
        name = next((name for name in (*PARTICIPANTS, *own[:1]) if name in kept), "")
        sessions = [f"{each}={kept[each]}" for each in (*SESSIONS, *own[1:]) if each in kept]
        return (f"{name}={kept[name]}" if name else ""), "&".join(sessions)

    def _by_invite(self, connection: Connection, invite: str) -> str | None:
        """The rater of an invitation; None where nobody has used it yet."""
        found = connection.execute(select(invites).where(invites.c.token_hash == hashed(invite))).first()
        if found is None:
            raise RefusedError("This invitation is not known. Check that its link is whole.", 403)
        return connection.execute(select(raters.c.rater_id).where(raters.c.invite == found.token_hash)).scalar()

    def _by_participant(self, connection: Connection, key: str, participant: str, session: str) -> str | None:
        """The rater of a participant in the same session or browser; None where the participant is new."""
        found = connection.execute(select(raters).where(raters.c.participant == participant)).first()
        if found is None:
            return None
        if found.rater_id == _by_key(connection, key) or (session and found.session == session):
            return str(found.rater_id)
        raise RefusedError("You have taken part already, in another session. Go on in the browser you began in.", 409)

    def _new(self, connection: Connection, now: datetime, invite: str, kept: Mapping[str, str]) -> str:
        """A new rater."""
        if not invite:
            if self.settings.entry == "invited":
                raise RefusedError("This study is for invited listeners. Open the link of your invitation.", 403)
            self.check_place(connection, now)
        participant, session = self._who(kept)
        rater_id = "r" + secrets.token_hex(8)
        connection.execute(
            insert(raters).values(
                rater_id=rater_id,
                invite=hashed(invite) or None,
                participant=participant or None,
                session=session or None,
                entered_at=time_text(now),
                expected=0,
            )
        )
        if kept:
            rows = [{"rater_id": rater_id, "name": name, "value": value} for name, value in kept.items()]
            connection.execute(insert(platform_ids), rows)
        return rater_id


def _by_key(connection: Connection, key: str) -> str | None:
    return connection.execute(select(keys.c.rater_id).where(keys.c.key_hash == hashed(key))).scalar()


def _new_key(connection: Connection, rater_id: str, now: datetime) -> str:
    """A key for another browser of the rater."""
    key = secrets.token_urlsafe(24)
    connection.execute(insert(keys).values(key_hash=hashed(key), rater_id=rater_id, made_at=time_text(now)))
    newest = select(keys.c.key_hash).where(keys.c.rater_id == rater_id).order_by(keys.c.made_at.desc())
    kept = connection.execute(newest.limit(MOST_KEYS)).scalars().all()
    connection.execute(delete(keys).where(and_(keys.c.rater_id == rater_id, keys.c.key_hash.not_in(kept))))
    return key


def _can_be_kept(value: object, longest: int) -> bool:
    """Whether it is one line of text that every database and file can hold."""
    return isinstance(value, str) and len(value) <= longest and (value.isprintable() or not value)
