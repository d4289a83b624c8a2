"""The tables of a study's store, as statements name them; `migrations` makes them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, Float, ForeignKey, Integer, MetaData, Table, Text, func, select

TABLES = MetaData()
"""As `migrations` makes them (a test compares the two)."""
gate = Table(
    "gate",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("study", Text),
    Column("rehearsal", Integer),
)
invites = Table(
    "invites",
    TABLES,
    Column("token_hash", Text, primary_key=True),
    Column("label", Text, nullable=False),
    Column("made_at", Text, nullable=False),
)
raters = Table(
    "raters",
    TABLES,
    Column("rater_id", Text, primary_key=True),
    Column("invite", Text, ForeignKey("invites.token_hash")),
    Column("participant", Text),
    Column("session", Text),
    Column("entered_at", Text, nullable=False),
    Column("consented_at", Text),
    Column("sound_at", Text),
    Column("sound_passed", Integer),
    Column("qualified", Integer),
    Column("expected", Integer, nullable=False),
    Column("completed_at", Text),
    Column("code", Text),
    Column("forgotten_at", Text),
)
keys = Table(
    "keys",
    TABLES,
    Column("key_hash", Text, primary_key=True),
    Column("rater_id", Text, ForeignKey("raters.rater_id"), nullable=False),
    Column("made_at", Text, nullable=False),
)
platform_ids = Table(
    "platform_ids",
    TABLES,
    Column("rater_id", Text, ForeignKey("raters.rater_id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
given = Table(
    "given",
    TABLES,
    Column("rater_id", Text, ForeignKey("raters.rater_id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("page_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("caption_id", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("given_at", Text, nullable=False),
    Column("submitted_at", Text),
)
items = Table(
    "items",
    TABLES,
    Column("item_id", Text, primary_key=True),
    Column("rater_id", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("clip_id", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("group", Text, nullable=False),
    Column("stratum", Text, nullable=False),
    Column("probability", Float),
    Column("low", Float),
    Column("high", Float),
    Column("heard", Float, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("silent", Integer, nullable=False),
)
heard = Table(
    "heard",
    TABLES,
    Column("item_id", Text, ForeignKey("items.item_id"), primary_key=True),
    Column("view", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("covered", Text, nullable=False),
    Column("played_s", Float, nullable=False),
    Column("plays", Integer, nullable=False),
    Column("seeks", Integer, nullable=False),
    Column("first_play_s", Float),
)
answers = Table(
    "answers",
    TABLES,
    Column("item_id", Text, ForeignKey("items.item_id"), primary_key=True),
    Column("change", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("view", Text, nullable=False),
    Column("rating", Float, nullable=False),
    Column("rated_s", Float, nullable=False),
    Column("given_at", Text, nullable=False),
)


def count_of(connection: Connection, table: Any, *where: Any) -> int:
    """How many rows of a table, or of tables that are joined, there are for which all of `where` holds."""
    return int(connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one())
