"""What the study's API takes and gives, so that /openapi.json says it all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from earmark.collect.flow import GivenAnswer, Heard, Shown, State, Step
from earmark.collect.reported import LONGEST_WORD, MOST_PARTS
from earmark.collect.sound_check import MOST_ROUNDS, STAGES, Judged

ItemId = Annotated[str, Field(pattern="^[0-9A-Za-z]{1,64}$")]
PageNumber = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD, pattern="^[ -~]+$")]
Count = Annotated[int, Field(ge=0, le=100_000, strict=True)]
Answers = Annotated[list[Annotated[int, Field(ge=0, le=9, strict=True)]], Field(max_length=MOST_ROUNDS)]


class About(BaseModel):
    """What everyone may know of the study."""

    title: str
    consent: str = Field(description="HTML made from the owner's markdown, without any markup of their own.")
    instructions: str = Field(description="As `consent`.")
    low_end: str = Field(description="What 0 means.")
    high_end: str = Field(description="What 100 means.")
    heard_share: float = Field(description="Of a clip that must have been heard before its rating counts, 0–1.")
    platform_ids: list[str] = Field(description="Parameters of the address that are kept.")


class Entering(BaseModel):
    """Who comes; a known cookie says it too."""

    invite: str = Field("", max_length=200, description="The token of an invitation.")
    platform: dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=500)]] = Field(
        {}, max_length=20, description="A crowd platform's ids, by the names that the study keeps."
    )


class Standing(BaseModel):
    """Where the rater stands."""

    step: Step
    number: int = Field(description="The page to answer now, from 1; 0 where there is none.")
    pages: int = Field(description="Of all kinds, as far as is known now.")
    done: int = Field(description="Pages that were submitted.")
    code: str = Field(description="The completion code, once all is done.")
    url: str = Field(description="The crowd platform's address: with the code in it, or for who did not pass.")

    @classmethod
    def of(cls, state: State) -> Standing:
        """As it is sent."""
        return cls(
            step=state.step,
            number=state.number,
            pages=state.pages,
            done=state.done,
            code=state.code,
            url=state.url,
        )


class SoundAnswers(BaseModel):
    """All answers of the sound check so far, a round each, counted from 0."""

    answers: Answers = []


class SoundJudged(BaseModel):
    """How far the sound check is."""

    right: bool = Field(description="Whether the last answer was.")
    kind: Literal["side", "tones"] | None = Field(description="Of the next question.")
    number: int = Field(description="Of the next question, or the last, counted from 1 ...")
    questions: int = Field(description="... of so many that are to be answered right.")
    finished: bool
    passed: bool

    @classmethod
    def of(cls, judged: Judged) -> SoundJudged:
        """As it is sent."""
        return cls(questions=len(STAGES), **asdict(judged))


class PageItem(BaseModel):
    """A clip of a page."""

    id: str
    duration_s: float
    rating: float | None = Field(description="0–100; null where there is none yet.")
    heard: float = Field(description="Share of the clip, 0–1.")
    played_s: float
    plays: int
    playable: bool = Field(description="False where its sound cannot be played: its rating is not asked.")


class AskedPage(BaseModel):
    """A page as its rater left it."""

    number: int
    of: int
    text: str
    items: list[PageItem]
    submitted: bool

    @classmethod
    def of_shown(cls, shown: Shown, seconds: Sequence[float | None]) -> AskedPage:
        """As it is sent, with the duration of each item, None where it cannot be played."""
        items = [
            PageItem(
                id=item.item_id,
                duration_s=duration or 0.0,
                rating=item.rating,
                heard=math.floor(item.heard * 10_000) / 10_000,
                played_s=item.played_s,
                plays=item.plays,
                playable=duration is not None,
            )
            for item, duration in zip(shown.items, seconds, strict=True)
        ]
        return cls(number=shown.number, of=shown.of, text=shown.text, items=items, submitted=shown.submitted)


class Numbers(BaseModel):
    """What one load of the page has played of a clip so far; each telling holds all of the ones before."""

    covered: list[tuple[Seconds, Seconds]] = Field(
        [], max_length=MOST_PARTS, description="Parts that sounded, in seconds of the clip."
    )
    played_s: Seconds = 0.0
    plays: Count = 0
    seeks: Count = 0
    first_play_s: Seconds | None = Field(None, description="Seconds after the page was shown.")

    def told(self, view: str) -> Heard:
        """To the flow."""
        return Heard(view, self.covered, self.played_s, self.plays, self.seeks, self.first_play_s)


class Listened(Numbers):
    """As `Numbers`, with the load of the page."""

    view: Name = Field(description="Random, made by the page when it is loaded.")


class Rated(BaseModel):
    """An answer."""

    key: Name = Field(description="Random, made by the page for this answer: the same one twice is one answer.")
    view: Name = Field(description="As in `Listened`.")
    rating: float = Field(
        ge=0, le=100, allow_inf_nan=False, strict=True, description="0–100, with one decimal at most."
    )
    rated_s: Seconds = Field(0.0, description="Seconds after the page was shown.")
    heard: Numbers | None = Field(None, description="What was heard by then: it is kept first.")

    def told(self) -> GivenAnswer:
        """To the flow."""
        return GivenAnswer(self.key, self.view, self.rating, self.rated_s)


class Share(BaseModel):
    """How much of a clip was heard."""

    heard: float | None = Field(description="0–1, over all loads of the page; null where nothing was told of it.")


class Drawn(BaseModel):
    """A waveform."""

    start_s: float
    end_s: float
    peaks: list[tuple[float, float]] = Field(
        description="The least and the largest sample of equal stretches, −1 to 1; the clip's largest is 1."
    )
