"""What captions of generated clips say: what happens, how loud, how often, in which order; and how true it is.

`Event` is what a clip holds, `Said` what a caption tells of it, `overlap` how far the two agree. `caption` writes
a true sentence about a clip's events, of some or all of them. Both are kept in a collection's extra columns:
`events` of `clips.csv` (`bark:loud:twice@0.50-1.20|rain:quiet:continuous@0.00-5.00`) and `said` of `captions.csv`
(`bark:loud|rain;bark&rain`: a `<` says before, a `&` at the same time; what is not told is left out).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from earmark.data.words import ADJECTIVES, ADVERBS, COUNTS, LOUDNESS, OFTEN, REPETITIONS, WORDS

Random = np.random.Generator


class Event(NamedTuple):
    """Something that sounds in a clip, from `start` to `end` in seconds."""

    kind: str
    loudness: str
    repetition: str
    start: float
    end: float


class Told(NamedTuple):
    """What a caption tells of one event; what it leaves open is empty."""

    kind: str
    loudness: str = ""
    repetition: str = ""


class Relation(NamedTuple):
    """That the first kind comes before (`<`) or sounds together with (`&`) the second."""

    first: str
    order: str
    second: str


class Said(NamedTuple):
    """All that a caption tells."""

    events: tuple[Told, ...]
    relations: tuple[Relation, ...] = ()


# Truth in files


def write_events(events: Sequence[Event]) -> str:
    """The column `events`."""
    return "|".join(f"{e.kind}:{e.loudness}:{e.repetition}@{e.start:.2f}-{e.end:.2f}" for e in events)


def read_events(text: str) -> list[Event]:
    """The events of the column `events`."""
    found = []
    for part in text.split("|"):
        what, _, when = part.partition("@")
        kind, loudness, repetition = what.split(":")
        start, end = map(float, when.split("-"))
        found.append(Event(kind, loudness, repetition, start, end))
    return found


def write_said(said: Said) -> str:
    """The column `said`."""
    told = "|".join(":".join(part).rstrip(":") for part in said.events)
    return ";".join([told, *("".join(relation) for relation in said.relations)])


def read_said(text: str) -> Said:
    """What the column `said` tells."""
    told, *relations = text.split(";")
    events = tuple(Told(*part.split(":")) for part in told.split("|"))
    order = ["<" if "<" in relation else "&" for relation in relations]
    pairs = zip(relations, order, strict=True)
    return Said(events, tuple(Relation(r.split(o)[0], o, r.split(o)[1]) for r, o in pairs))


# How far words and sound agree


def overlap(said: Said, events: Sequence[Event]) -> float:
    """The true relevance of a clip to a caption, 0–1: precision × order × (0.7 + 0.3 coverage).

    An event that is said counts 0 where its kind is not in the clip, else 1 less 0.15 for each step that the said
    loudness (quiet, normal, loud) and the said repetition (once, twice, several, continuous) are off. Precision is
    the mean over what is said; coverage the share of the clip's events that are said. Order is 1 less 0.3 × the mean
    fault of the said relations whose kinds are both there: 1 for the reverse, 0.5 for together instead of before
    or before instead of together.
    """
    there = {event.kind: event for event in events}
    precision = sum(_match(told, there.get(told.kind)) for told in said.events) / len(said.events)
    coverage = len({told.kind for told in said.events} & set(there)) / len(there)
    faults = [_fault(r, there) for r in said.relations if r.first in there and r.second in there]
    order = 1 - 0.3 * sum(faults) / len(faults) if faults else 1.0
    return precision * order * (0.7 + 0.3 * coverage)


def _match(told: Told, event: Event | None) -> float:
    if event is None:
        return 0.0
    steps = 0
    for said, true, scale in (
        (told.loudness, event.loudness, LOUDNESS),
        (told.repetition, event.repetition, REPETITIONS),
    ):
        steps += abs(scale.index(said) - scale.index(true)) if said else 0
    return 1 - 0.15 * steps


def _fault(said: Relation, there: dict[str, Event]) -> float:
    true = relation(there[said.first], there[said.second])
    if true == said:
        return 0.0
    return 0.5 if "&" in (true.order, said.order) else 1.0


def relation(a: Event, b: Event) -> Relation:
    """How two events lie in time, said from `a` where they sound together, else from the earlier one."""
    if a.end <= b.start:
        return Relation(a.kind, "<", b.kind)
    if b.end <= a.start:
        return Relation(b.kind, "<", a.kind)
    return Relation(a.kind, "&", b.kind)


# Words for one event


def _pick(rng: Random, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _tell(rng: Random, event: Event) -> Told:
    """What is told of an event: seldom that its loudness is normal, more often that it is repeated."""
    loudness = event.loudness if rng.random() < (0.1 if event.loudness == "normal" else 0.55) else ""
    repetition = event.repetition if rng.random() < (0.3 if event.repetition == "continuous" else 0.6) else ""
    return Told(event.kind, loudness, repetition)


def _tail(rng: Random, told: Told) -> str:
    """Adverbs of loudness and repetition."""
    loudness = _pick(rng, ADVERBS[told.loudness]) if told.loudness else ""
    often = _pick(rng, OFTEN[told.repetition]) if told.repetition else ""
    return "".join(f" {word}" for word in (loudness, often) if word)


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _clause(rng: Random, told: Told) -> str:
    """`a dog barks loudly twice`, `a bell is rung`."""
    words = WORDS[told.kind]
    if words.passive and rng.random() < 0.3:
        subject, verbs = _pick(rng, words.passive).split(" · ")
        verb = _pick(rng, verbs.split(", "))
    else:
        subject, verb = _pick(rng, words.subjects), _pick(rng, words.verbs).split("/")[0]
    return f"{subject} {verb}{_tail(rng, told)}"


def _fragment(rng: Random, told: Told) -> str:
    """`a dog barking twice`, `two loud barks`, `soft rain`."""
    words = WORDS[told.kind]
    adjective = _pick(rng, ADJECTIVES.get(told.loudness, [""]))
    steady = not words.plurals
    if told.loudness == "normal" or (not told.repetition and not steady) or rng.random() < 0.4:
        return f"{_pick(rng, words.subjects)} {_pick(rng, words.verbs).split('/')[1]}{_tail(rng, told)}"
    if told.repetition in ("twice", "several"):
        return " ".join(filter(None, (_pick(rng, COUNTS[told.repetition]), adjective, _pick(rng, words.plurals))))
    noun = _pick(rng, words.nouns)
    count = _pick(rng, COUNTS[told.repetition]) if told.repetition else ""
    article, _, bare = noun.partition(" ") if noun.startswith(("a ", "an ")) else ("", "", noun)
    phrase = " ".join(filter(None, (count.removeprefix("a "), adjective, bare)))
    return _with_article(phrase) if article and told.repetition != "once" or count.startswith("a ") else phrase


# Sentences


def _joined(rng: Random, parts: list[str], shape: str, finite: bool) -> str:
    """The parts in one of the shape's patterns; `{0}` is the first, and of an `over` shape the last is all along."""
    return _pick(rng, PATTERNS[shape, finite]).format(*parts)


PATTERNS = {
    ("one", True): ["{0}"],
    ("one", False): ["{0}"],
    ("two", True): ["{0} and {1}", "{1} and {0}", "{0}, and {1}"],
    ("two", False): ["{0} and {1}", "{1} and {0}", "{0} as well as {1}", "{1}, and {0}"],
    ("three", True): ["{0}, {1} and {2}", "{2}, {0} and {1}", "{1}, {2}, and {0}"],
    ("three", False): ["{0}, {1} and {2}", "{1}, {0} and {2}", "{2}, {0}, and also {1}"],
    ("then", True): [
        "{0}, then {1}",
        "{0} and then {1}",
        "{0} before {1}",
        "{1} after {0}",
        "after {0}, {1}",
        "before {1}, {0}",
        "first {0}, then {1}",
        "{0} and afterwards {1}",
        "{0}; later {1}",
    ],
    ("then", False): [
        "{0} followed by {1}",
        "{0}, then {1}",
        "{1} after {0}",
        "{0} before {1}",
        "{1}, preceded by {0}",
        "first {0} and then {1}",
    ],
    ("while", True): [
        "{0} while {1}",
        "while {1}, {0}",
        "{0} as {1}",
        "as {1}, {0}",
        "{1} and at the same time {0}",
        "{1}; meanwhile {0}",
    ],
    ("while", False): [
        "{0} together with {1}",
        "{0} during {1}",
        "{0} and {1} at the same time",
        "{0} at the same time as {1}",
    ],
    ("then then", True): [
        "{0}, then {1}, then {2}",
        "first {0}, then {1} and finally {2}",
        "{0} and then {1}, and after that {2}",
        "{0}, next {1}, and at the end {2}",
    ],
    ("then then", False): [
        "{0}, then {1}, then {2}",
        "{0} followed by {1} and finally {2}",
        "first {0}, then {1}, and in the end {2}",
    ],
    ("over", True): [
        "{0} and then {1} while {2}",
        "while {2}, {0} and then {1}",
        "{2}; meanwhile {0} and afterwards {1}",
        "as {2}, first {0}, then {1}",
    ],
    ("over", False): [
        "{0} followed by {1}, together with {2} all along",
        "{0} and then {1} during {2}",
        "throughout {2}, {0} and then {1}",
    ],
}
"""Ways to join what is told, by shape and by whether the parts are finite clauses."""
BEGINNINGS = {
    True: ["", "", "", "", "here ", "in this recording ", "in the clip, ", "it sounds as if "],
    False: ["", "", "", "we hear ", "one can hear ", "the sound of ", "a recording of "],
}


def _shape(rng: Random, events: list[Event]) -> tuple[str, list[Event], tuple[Relation, ...]]:
    """A shape for the events, the events in its order, and the relations that it tells: the true ones, or none."""
    n = len(events)
    events = sorted(events, key=lambda event: event.start)
    if n == 1 or rng.random() < 0.3:
        return ("one", "two", "three")[n - 1], events, ()
    pairs = [(a, b) for place, a in enumerate(events) for b in events[place + 1 :]]
    if all(relation(a, b).order == "<" for a, b in pairs):
        shape = "then" if n == 2 else "then then"
        return shape, events, tuple(relation(a, b) for a, b in pairs)
    longest = max(events, key=lambda event: event.end - event.start)
    rest = [event for event in events if event is not longest]
    if n == 3 and relation(*rest).order == "&":
        return "three", events, ()
    told = [relation(*rest)] if n == 3 else []
    return ("while" if n == 2 else "over"), [*rest, longest], (*told, *(relation(longest, e) for e in rest))


def caption(rng: Random, events: Sequence[Event]) -> tuple[str, Said]:
    """A sentence that tells something true of each of the events, and what it says."""
    shape, ordered, relations = _shape(rng, list(events))
    told = [_tell(rng, event) for event in ordered]
    finite = bool(rng.random() < 0.6)
    say = _clause if finite else _fragment
    text = _pick(rng, BEGINNINGS[finite]) + _joined(rng, [say(rng, part) for part in told], shape, finite)
    if rng.random() < 0.7:
        text = text[0].upper() + text[1:]
    return text + ("." if rng.random() < 0.6 else ""), Said(tuple(told), relations)
