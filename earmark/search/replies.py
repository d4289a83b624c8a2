"""What the search server's API takes and gives, so that /openapi.json says it all."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from earmark.search.query import Filters, Hit, Query, Region, Vector
from earmark.search.rated import LONGEST_QUERY, Mark

MOST_HITS = 500
"""Of one answer."""
MOST_LETTERS = LONGEST_QUERY
"""Of words."""
Words = Annotated[str, Field(max_length=MOST_LETTERS)]
FileId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class Asked(BaseModel):
    """A question, as an address holds it."""

    q: str = Field("", max_length=MOST_LETTERS, description="What to find, in words.")
    without: str = Field("", alias="not", max_length=MOST_LETTERS, description="What must not be heard, in words.")
    like: str = Field(
        "",
        pattern="^([0-9a-f]{32}@[0-9]{1,9}([.][0-9]{1,18})?|u[0-9a-f]{32})?$",
        description="A sound to search by: `file_id@seconds`, or the id that an upload was given.",
    )
    keywords: bool = Field(True, description="Whether names and tags count too, or the embedding alone.")
    fold: bool = Field(True, description="Whether near-duplicates stand behind the best of them.")
    limit: int = Field(20, ge=1, le=MOST_HITS, description="Files, at most.")
    longest_s: float | None = Field(None, ge=0, allow_inf_nan=False, description="Seconds that a file may last.")
    shortest_s: float | None = Field(None, ge=0, allow_inf_nan=False, description="Seconds that it must last.")
    folder: str = Field("", max_length=4096, description="A folder, or a part of one's path.")
    tag: list[str] = Field([], max_length=20, description="Tags, all of them.")
    rate: list[Annotated[int, Field(ge=1, le=10_000_000)]] = Field([], max_length=20, description="Hz, any of them.")
    channels: list[Annotated[int, Field(ge=1, le=1024)]] = Field([], max_length=20, description="Any of them.")

    def query(self, like: Vector | None) -> Query:
        """The question to the engine."""
        filters = Filters(
            longest_s=self.longest_s,
            shortest_s=self.shortest_s,
            folder=self.folder,
            tags=tuple(self.tag),
            rates=tuple(self.rate),
            channels=tuple(self.channels),
        )
        return Query(
            words=self.q,
            like=like,
            without=self.without,
            keywords=self.keywords,
            filters=filters,
            limit=self.limit,
            fold=self.fold,
        )


class Part(BaseModel):
    """A window of a file."""

    start_s: float
    end_s: float
    cosine: float = Field(description="With what was asked, −1 to 1.")

    @classmethod
    def of(cls, region: Region) -> Part:
        """As it is sent."""
        return cls(start_s=region.start_s, end_s=region.end_s, cosine=round(region.score, 6))


class Facts(BaseModel):
    """What is known of a file."""

    id: str = Field(description="32 hex digits, by which its sound is asked for.")
    name: str
    folder: str
    path: str
    duration_s: float
    rate: int = Field(description="Hz.")
    channels: int
    words: str = Field(description="The words that it carries: its name, its tags.")
    tags: list[str]


class Found(Facts):
    """A file that was found."""

    start_s: float = Field(description="Of its best window.")
    end_s: float
    cosine: float = Field(description="Of its best window, −1 to 1.")
    score: float = Field(description="What the hits are sorted by.")
    named: bool = Field(description="Whether its names or tags hold the words.")
    others: list[Part] = Field(description="Its other windows that came near, best first.")
    copies: list[str] = Field(description="Paths of near-duplicates that stand behind it.")

    @classmethod
    def of(cls, hit: Hit) -> Found:
        """As it is sent."""
        return cls(
            **facts(hit).model_dump(),
            start_s=hit.best.start_s,
            end_s=hit.best.end_s,
            cosine=round(hit.best.score, 6),
            score=round(hit.score, 6),
            named=hit.named,
            others=[Part.of(each) for each in hit.others],
            copies=list(hit.copies),
        )


class Result(BaseModel):
    """An answer."""

    hits: list[Found] = Field(description="Best first.")
    searched: int = Field(description="Files that the filters let through.")
    notes: list[str] = Field(description="What the asker should know, a sentence each.")


class Uploaded(BaseModel):
    """A sound that was sent, to search by."""

    like: str = Field(description="What to send as `like`; forgotten when the server ends.")
    duration_s: float


class Wave(BaseModel):
    """A waveform to draw."""

    start_s: float
    end_s: float
    peaks: list[tuple[float, float]] = Field(
        description="The least and the largest sample, −1 to 1, of equal shares of the time."
    )


class GivenRating(BaseModel):
    """A listener's rating of a region of a file for words."""

    q: str = Field(max_length=MOST_LETTERS, description="The words that it is rated for.")
    id: FileId
    start_s: float = Field(ge=0, allow_inf_nan=False)
    end_s: float = Field(gt=0, allow_inf_nan=False)
    rating: float | None = Field(ge=0, le=100, allow_inf_nan=False, description="0–100; null takes it back.")
    stratum: Literal["search", "search-embedding", "search-like"] = Field(
        "search", description="How it had been found: by words and names, by the embedding alone, by a sound."
    )
    rank: int | None = Field(None, ge=1, le=1_000_000, description="Its place among the hits, from 1.")
    played_s: float | None = Field(None, ge=0, le=1e6, allow_inf_nan=False, description="Seconds listened to.")
    cosine: float | None = Field(None, ge=-1.01, le=1.01, allow_inf_nan=False)


class KeptRating(BaseModel):
    """A rating as it is kept."""

    id: str
    start_s: float
    end_s: float
    rating: float

    @classmethod
    def of(cls, mark: Mark) -> KeptRating:
        """As it is sent."""
        return cls(id=mark.file_id, start_s=float(mark.start_s), end_s=float(mark.end_s), rating=float(mark.rating))


class Choice(BaseModel):
    """A value of a filter, and how many files have it."""

    value: str
    files: int


class About(BaseModel):
    """What the index holds."""

    name: str
    model: str
    roots: list[str] = Field(description="The folders that were indexed.")
    files: int
    hours: float
    left_out: int
    folders: list[Choice]
    tags: list[Choice]
    rates: list[Choice]
    channels: list[Choice]
    longest_s: float
    most_upload_bytes: int
    most_upload_s: float


def facts(hit: Hit) -> Facts:
    """A file's facts as they are sent."""
    folder, _, name = hit.shown.rpartition("/")
    return Facts(
        id=hit.file_id,
        name=name,
        folder=folder,
        path=hit.shown,
        duration_s=hit.duration_s,
        rate=hit.rate,
        channels=hit.channels,
        words=hit.words,
        tags=list(hit.tags),
    )
