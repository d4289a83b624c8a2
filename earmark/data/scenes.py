"""What a generated clip holds, what a caption says of it, and how far the two agree.

An `Event` is one kind of sound in a clip: how loud, how often, from when to when. A `Mention` is what a caption
says of a kind; what it leaves open is empty. `overlap` is the true relevance of the two. `compose` draws a
clip: one to three events (`earmark.data.events`) over a quiet background, one after the other, at the same time,
or two in turn over one that goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from earmark.data.events import CALLS, KINDS, LONG, RATE, STRETCHES, Wave, at_level, faded, placed, samples

LEVELS = {"quiet": -38.0, "normal": -28.0, "loud": -18.0}
"""dB of full scale (see `events.level`); an event is within 1.5 dB of its word's, give or take another 1.5."""
REPETITIONS = ("once", "twice", "several", "continuous")
"""Calls happen once, twice or several (3–5) times, stretches go on."""
SHORTEST_S, LONGEST_S = 3.0, 6.0
GAP_S = 0.15
"""Least silence between two events of which one comes after the other."""
BACKGROUND = (-62.0, -54.0)
"""dB of full scale: 16 dB and more below a quiet event."""
_LEAST_STRETCH_S = 1.3
_PEAK = 0.98


# The truth and what is said of it


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of sound in a clip."""

    kind: str
    loudness: str
    """quiet, normal or loud."""
    repetition: str
    """once, twice, several or continuous."""
    start_s: float
    end_s: float
    """Of all its repetitions together."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.loudness}:{self.repetition}@{self.start_s:.2f}-{self.end_s:.2f}"


@dataclass(frozen=True, slots=True)
class Mention:
    """What a caption says of one kind of sound; empty is left open."""

    kind: str
    loudness: str = ""
    repetition: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.loudness}:{self.repetition}"


class Order(NamedTuple):
    """That one kind comes before another, or sounds while it does."""

    first: str
    relation: str
    """before or while."""
    second: str

    def __str__(self) -> str:
        return f"{self.first} {self.relation} {self.second}"


@dataclass(frozen=True, slots=True)
class Said:
    """All that a caption says."""

    mentions: tuple[Mention, ...]
    order: tuple[Order, ...] = ()


def read_events(text: str) -> tuple[Event, ...]:
    """The events of the column `events` of `clips.csv`: `bark:loud:twice@0.52-1.20|rain:quiet:continuous@0.00-5.00`."""
    events = []
    for part in text.split("|"):
        words, _, span = part.partition("@")
        kind, loudness, repetition = words.split(":")
        start, end = span.split("-")
        events.append(Event(kind, loudness, repetition, float(start), float(end)))
    return tuple(events)


def read_said(mentions: str, order: str) -> Said:
    """What a caption says, from the columns `says` (`bark:loud:|rain::`) and `says_order` (`bark before rain`)."""
    said = tuple(Mention(*part.split(":")) for part in mentions.split("|"))
    return Said(said, tuple(Order(*part.split(" ")) for part in order.split("|") if part))


def relation(a: Event, b: Event) -> str:
    """How `a` stands to `b` in time: before, after, while (they share half of the shorter), or nothing of these."""
    if a.end_s <= b.start_s:
        return "before"
    if b.end_s <= a.start_s:
        return "after"
    shared = min(a.end_s, b.end_s) - max(a.start_s, b.start_s)
    shorter = min(a.end_s - a.start_s, b.end_s - b.start_s)
    return "while" if shared >= 0.5 * shorter else ""


def overlap(said: Said, events: Sequence[Event]) -> float:
    """The true relevance of a clip to a caption, 0–1: said × order × coverage.

    said: the mean over the mentions of 0.7 where the clip holds the kind + 0.15 where the loudness agrees + 0.15
    where the repetition does (half of it for a neighbouring word, all of it where it is left open); order: 1 − 0.2 ×
    the share of said relations between two present kinds that the clip contradicts; coverage: 1 − 0.2 × the share of
    the clip's events that go unmentioned. So a full caption of the clip has 1, a true but partial one 0.87–0.93,
    and one whose kinds are all absent 0.
    """
    present = {event.kind: event for event in events}
    found = [
        0.7
        + 0.15 * _agreement(mention.loudness, present[mention.kind].loudness, tuple(LEVELS))
        + 0.15 * _agreement(mention.repetition, present[mention.kind].repetition, REPETITIONS)
        for mention in said.mentions
        if mention.kind in present
    ]
    wrong = sum(_contradicts(order, present) for order in said.order) / max(1, len(said.order))
    unmentioned = 1 - len(found) / len(present)
    return sum(found) / len(said.mentions) * (1 - 0.2 * wrong) * (1 - 0.2 * unmentioned)


def _agreement(said: str, true: str, scale: tuple[str, ...]) -> float:
    return 1.0 if not said else max(0.0, 1 - abs(scale.index(said) - scale.index(true)) / 2)


def _contradicts(order: Order, present: dict[str, Event]) -> bool:
    if order.first not in present or order.second not in present:
        return False  # the missing kind has been paid for
    return relation(present[order.first], present[order.second]) != order.relation


# How a clip is made


@dataclass
class _Part:
    """An event before its place in time is known."""

    kind: str
    loudness: str
    repetition: str
    wave: Wave | None
    """None for a stretch, which is made when its length is known."""
    length_s: float
    start_s: float = 0.0

    def event(self) -> Event:
        return Event(self.kind, self.loudness, self.repetition, round(self.start_s, 2), round(self.end_s, 2))

    @property
    def end_s(self) -> float:
        return self.start_s + self.length_s


def compose(rng: Generator) -> tuple[NDArray[np.float32], tuple[Event, ...]]:
    """A clip of 3–6 s, mono at `RATE`, its peak below 1, and its events in order of their beginning."""
    kinds = rng.choice(KINDS, rng.choice([1, 2, 3], p=[0.3, 0.4, 0.3]), replace=False)
    duration = float(rng.uniform(SHORTEST_S, LONGEST_S))
    parts = [_part(rng, str(kind)) for kind in kinds]
    duration = _arranged(rng, parts, duration)
    wave = _background(rng, samples(duration))
    for part in parts:
        sound = STRETCHES[part.kind](rng, samples(part.length_s)) if part.wave is None else part.wave
        sound = faded(sound, 0.08, 0.08) if part.wave is None else sound
        loud = at_level(sound, LEVELS[part.loudness] + rng.uniform(-1.5, 1.5))
        wave += placed(len(wave), [(part.start_s, 1.0, loud)])
    wave *= min(1.0, _PEAK / float(np.max(np.abs(wave))))
    return wave.astype(np.float32), tuple(sorted((part.event() for part in parts), key=lambda event: event.start_s))


def _part(rng: Generator, kind: str) -> _Part:
    """One kind with its loudness and repetition; a call is made here."""
    loudness = str(rng.choice(list(LEVELS), p=[0.27, 0.38, 0.35]))
    if kind in STRETCHES:
        return _Part(kind, loudness, "continuous", None, _LEAST_STRETCH_S)
    times = int(rng.choice([1, 2, 3, 4, 5], p=[0.36, 0.3, 0.14, 0.1, 0.1]))
    times = 1 if kind in LONG else times
    call = CALLS[kind](rng)
    while times > 1 and times * (len(call) / RATE + 0.3) > LONGEST_S - 1:
        times -= 1
    wave = _repeated(rng, call, times)
    return _Part(kind, loudness, REPETITIONS[min(times, 3) - 1], wave, len(wave) / RATE)


def _repeated(rng: Generator, call: Wave, times: int) -> Wave:
    """The call several times, a little faster or slower and louder or quieter each time."""
    hits, at = [], 0.0
    for _ in range(times):
        again = np.interp(np.arange(0, len(call) - 1, rng.uniform(0.97, 1.03)), np.arange(len(call)), call)
        hits.append((at, rng.uniform(0.8, 1.0), again))
        length = at + len(again) / RATE
        at = length + rng.uniform(0.12, 0.3)
    return placed(samples(length), hits)


def _arranged(rng: Generator, parts: list[_Part], duration: float) -> float:
    """Places the parts in time and gives the clip's duration, which grows where they need it."""
    stretches = [part for part in parts if part.wave is None]
    bed = stretches[0] if len(parts) == 3 and stretches and rng.random() < 0.5 else None
    rest = [part for part in parts if part is not bed]
    if bed is not None:
        bed.loudness = "normal" if bed.loudness == "loud" else bed.loudness
    in_turn = bed is not None or len(parts) == 1 or rng.random() < 0.6
    duration = max(duration, *(part.length_s + 2 * GAP_S for part in parts))
    if in_turn and _room(rest, LONGEST_S) >= 0:
        duration = min(LONGEST_S, max(duration, duration - _room(rest, duration)))
        _in_turn(rng, rest, duration)
    else:
        _together(rng, rest, duration)
    if bed is not None:
        bed.length_s = duration
    _audible(parts)
    return duration


def _room(parts: list[_Part], duration: float) -> float:
    """Seconds left when the parts follow each other."""
    return duration - sum(part.length_s + GAP_S for part in parts) - GAP_S


def _in_turn(rng: Generator, parts: list[_Part], duration: float) -> None:
    """One after the other; stretches take most of the time that is left over."""
    room = _room(parts, duration)
    stretches = [part for part in parts if part.wave is None]
    for part in stretches:
        part.length_s += room * rng.uniform(0.6, 0.95) / len(stretches)
    pauses = rng.dirichlet(np.ones(len(parts) + 1)) * _room(parts, duration)
    at = GAP_S
    for part, pause in zip(parts, pauses, strict=False):
        part.start_s = at + float(pause)
        at = part.end_s + GAP_S


def _together(rng: Generator, parts: list[_Part], duration: float) -> None:
    """At the same time: every part sounds about the middle of the clip."""
    middle = duration * float(rng.uniform(0.4, 0.6))
    for part in parts:
        if part.wave is None:
            part.length_s = duration * float(rng.uniform(0.75, 1.0))
        earliest, latest = max(0.0, middle - part.length_s), min(middle, duration - part.length_s)
        part.start_s = float(rng.uniform(min(earliest, latest), latest))


def _audible(parts: list[_Part]) -> None:
    """Makes quiet parts normal where they sound together with a loud one, which would mask them."""
    for part in parts:
        others = [other for other in parts if other is not part and other.loudness == "loud"]
        if part.loudness == "quiet" and any(
            relation(part.event(), other.event()) not in ("before", "after") for other in others
        ):
            part.loudness = "normal"


def _background(rng: Generator, n: int) -> Wave:
    """Quiet noise between white and dark, so that every band of a log-mel holds something."""
    from scipy.signal import lfilter

    white = rng.standard_normal(n)
    dark = lfilter([1.0], [1.0, -rng.uniform(0.8, 0.98)], white)
    share = rng.uniform(0.1, 0.9)
    noise = share * white + (1 - share) * dark / np.std(dark)
    return np.asarray(noise / np.std(noise) * 10 ** (rng.uniform(*BACKGROUND) / 20))
