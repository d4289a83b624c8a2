"""Captions of generated clips: a small grammar that says true things in many ways, and keeps what it said.

A kind is named by clauses ("a dog barks") or by nouns ("two loud barks of a dog"), with or without its loudness
and repetition; kinds are joined by words of order that hold in the clip, or by "and", which says none. A partial
caption leaves events out and says nothing false.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from numpy.random import Generator

from earmark.data.scenes import Event, Mention, Order, Said, relation

CLAUSES = {
    "bark": ("a dog|barks|barking", "a hound|barks|barking", "a puppy|yaps|yapping", "a dog|woofs|woofing"),
    "cat": ("a cat|meows|meowing", "a kitten|mews|mewing", "a cat|cries|crying"),
    "cow": ("a cow|moos|mooing", "a cow|lows|lowing", "cattle|low|lowing"),
    "owl": ("an owl|hoots|hooting", "an owl|calls|calling"),
    "frog": ("a frog|croaks|croaking", "a toad|croaks|croaking", "a frog|ribbits|ribbiting"),
    "bird": ("a bird|chirps|chirping", "a songbird|sings|singing", "a small bird|tweets|tweeting"),
    "horn": ("a car horn|honks|honking", "a vehicle|honks|honking", "a car horn|is blown|being blown"),
    "beep": ("an alarm|beeps|beeping", "an electronic device|beeps|beeping", "a timer|beeps|beeping"),
    "phone": ("a telephone|rings|ringing", "an old phone|rings|ringing", "a phone|rings|ringing"),
    "laser": ("a laser|zaps|zapping", "a ray gun|is fired|being fired", "a space weapon|zaps|zapping"),
    "whistle": ("a person|whistles|whistling", "someone|whistles|whistling", "a whistler|whistles|whistling"),
    "bell": ("a bell|tolls|tolling", "a church bell|rings|ringing", "a large bell|is struck|being struck"),
    "glass": ("a glass|clinks|clinking", "a wine glass|is tapped|being tapped", "glassware|clinks|clinking"),
    "knock": ("someone|knocks on wood|knocking on wood", "a door|is knocked on|being knocked on"),
    "drum": ("a drum|is hit|being hit", "a drum|is beaten|being beaten", "a drummer|hits a drum|hitting a drum"),
    "drop": ("water|drips|dripping", "a tap|drips|dripping", "a droplet|plops|plopping"),
    "thunder": ("thunder|rumbles|rumbling", "thunder|cracks and rolls|cracking and rolling", "thunder|booms|booming"),
    "plane": ("a plane|flies past|flying past", "an aeroplane|passes by|passing by", "a jet|flies over|flying over"),
    "siren": ("a siren|wails|wailing", "a police siren|howls|howling", "an emergency vehicle|wails|wailing"),
    "engine": ("an engine|runs|running", "a motor|idles|idling", "a truck engine|hums|humming"),
    "helicopter": ("a helicopter|hovers|hovering", "a chopper|whirs|whirring", "helicopter blades|chop|chopping"),
    "clock": ("a clock|ticks|ticking", "a wall clock|ticks away|ticking away", "a watch|ticks|ticking"),
    "typing": ("a typist|types|typing", "someone|types on a keyboard|typing on a keyboard", "keys|clatter|clattering"),
    "saw": ("a saw|rasps|rasping", "someone|saws wood|sawing wood", "wood|is sawn|being sawn"),
    "footsteps": ("a person|walks|walking", "someone|walks along|walking along", "a walker|strides|striding"),
    "heartbeat": ("a heart|beats|beating", "a heart|thumps|thumping", "a pulse|throbs|throbbing"),
    "babble": ("people|chatter|chattering", "a crowd|babbles|babbling", "several voices|talk|talking"),
    "cricket": ("a cricket|chirrs|chirring", "crickets|chirr|chirring", "a grasshopper|stridulates|stridulating"),
    "insect": ("an insect|buzzes|buzzing", "a fly|buzzes around|buzzing around", "a bee|buzzes|buzzing"),
    "rain": ("rain|falls|falling", "rain|pours down|pouring down", "a shower|patters|pattering"),
    "wind": ("the wind|blows|blowing", "wind|howls|howling", "a breeze|gusts|gusting"),
    "fire": ("a fire|crackles|crackling", "a campfire|burns|burning", "flames|crackle|crackling"),
}
"""Subject, verb, and its -ing form."""
NOUNS = {
    "bark": ("bark of a dog|barks of a dog", "dog bark|dog barks", "woof|woofs"),
    "cat": ("meow of a cat|meows of a cat", "cat meow|cat meows"),
    "cow": ("moo of a cow|moos of a cow", "cow moo|cow moos"),
    "owl": ("hoot of an owl|hoots of an owl", "owl call|owl calls"),
    "frog": ("croak of a frog|croaks of a frog", "frog croak|frog croaks"),
    "bird": ("bird call|bird calls", "burst of birdsong|bursts of birdsong"),
    "horn": ("honk of a car|honks of a car", "car horn blast|car horn blasts"),
    "beep": ("beep of an alarm|beeps of an alarm", "electronic beep|electronic beeps", "beep|beeps"),
    "phone": ("phone ring|phone rings", "ring of a telephone|rings of a telephone"),
    "laser": ("laser zap|laser zaps", "laser shot|laser shots", "zap of a ray gun|zaps of a ray gun"),
    "whistle": ("whistle of a person|whistles of a person", "human whistle|human whistles"),
    "bell": ("bell stroke|bell strokes", "toll of a bell|tolls of a bell", "bell chime|bell chimes"),
    "glass": ("clink of glass|clinks of glass", "glass clink|glass clinks"),
    "knock": ("knock on a door|knocks on a door", "rap on wood|raps on wood", "knock|knocks"),
    "drum": ("drum hit|drum hits", "beat of a drum|beats of a drum", "drumbeat|drumbeats"),
    "drop": ("water drop|water drops", "plop of water|plops of water", "drip|drips"),
    "thunder": ("clap of thunder|claps of thunder", "thunderclap|thunderclaps"),
    "plane": ("plane pass-by|plane pass-bys", "flyover of a jet|flyovers of a jet"),
    "siren": ("wail of a siren", "siren"),
    "engine": ("hum of an engine", "drone of a motor", "engine noise"),
    "helicopter": ("whir of a helicopter", "chopping of helicopter blades"),
    "clock": ("ticking of a clock", "tick-tock of a clock"),
    "typing": ("clatter of a keyboard", "typing on a keyboard"),
    "saw": ("rasp of a saw", "sawing of wood"),
    "footsteps": ("sound of footsteps", "patter of feet"),
    "heartbeat": ("beating of a heart", "heartbeat"),
    "babble": ("chatter of people", "babble of a crowd", "murmur of voices"),
    "cricket": ("chirring of crickets", "song of a cricket"),
    "insect": ("buzz of an insect", "buzzing of a fly"),
    "rain": ("patter of rain", "drumming of rain", "rainfall"),
    "wind": ("howling of the wind", "rush of wind", "roar of the wind"),
    "fire": ("crackle of a fire", "crackling of flames"),
}
"""Calls: one and several of them; stretches: what goes on."""
LOUD_ADJECTIVES = {"quiet": ("quiet", "soft", "faint"), "normal": (), "loud": ("loud", "very loud", "noisy")}
LOUD_ADVERBS = {
    "quiet": ("quietly", "softly", "faintly", "at low volume"),
    "normal": ("at medium volume", "at normal volume"),
    "loud": ("loudly", "very loudly", "noisily", "at high volume"),
}
TIMES = {
    "once": ("once", "one time", "a single time"),
    "twice": ("twice", "two times"),
    "several": ("several times", "a few times", "repeatedly", "again and again"),
    "continuous": ("continuously", "without a break", "non-stop", "on and on"),
}
QUANTIFIERS = {"twice": ("two", "a pair of"), "several": ("several", "a few", "a series of", "multiple")}
GOING_ON = ("continuous", "steady", "constant", "ongoing")
TO_CLAUSE = {
    "before": (", then {}", " and then {}", " before {}", ", and after that {}", ". Then {}", " and a moment later {}"),
    "after": (" after {}", ", but first {}"),
    "while": (" while {}", " as {}", " and at the same time {}", ", and meanwhile {}", ". Meanwhile, {}"),
    "": (" and {}", ", and {}", ". Also, {}"),
}
TO_NOUN = {
    "before": (", followed by {}", ", then {}", " before {}", " and, afterwards, {}"),
    "after": (" after {}", ", preceded by {}", " following {}"),
    "while": (", accompanied by {}", ", along with {} at the same time", ", with {} at the same time"),
    "": (" and {}", " as well as {}", ", plus {}"),
}
TURNED = {
    "before": (("After {n}, {c}", "nc"), ("First {c}, then {c}", "cc"), ("Following {n}, {c}", "nc")),
    "while": (("While {c}, {c}", "cc"), ("As {c}, {c}", "cc"), ("During the same moments, {c} and {c}", "cc")),
    "": (("Both {n} and {n} can be heard", "nn"), ("{c}; {c}", "cc")),
}
"""Of two kinds, with the word of order in front: the form (clause or noun) that each takes."""
NOUN_OPENINGS = ("", "", "", "The sound of ", "I can hear ", "We hear ", "A recording of ", "One hears ")
CLAUSE_OPENINGS = ("",) * 8 + ("In this recording, ", "It sounds like ", "You can hear that ", "Here ")
NOUN_ENDINGS = {False: (" is heard", " can be heard", " is audible"), True: (" are heard", " can be heard")}


class _Phrase(NamedTuple):
    text: str
    mention: Mention
    plural: bool = False


def caption(rng: Generator, events: Sequence[Event], partial: bool) -> tuple[str, Said]:
    """A text and what it says; partial leaves out at least one of several events."""
    count = int(rng.integers(1, len(events))) if partial else len(events)
    chosen = [events[k] for k in rng.permutation(len(events))[:count]]
    if len(chosen) > 2 or rng.random() < 0.6:  # "a, then c and b" would put b after a, so three keep their order
        chosen.sort(key=lambda event: event.start_s)
    if len(chosen) == 1:
        text, said = _alone(rng, chosen[0])
    elif len(chosen) == 2 and rng.random() < 0.3:
        text, said = _turned(rng, *chosen)
    else:
        text, said = _chained(rng, chosen)
    return _styled(rng, text), said


def _one(rng: Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _attributes(rng: Generator, event: Event) -> tuple[str, str]:
    """The loudness and the repetition, each said or left open."""
    loudness = event.loudness if rng.random() < (0.12 if event.loudness == "normal" else 0.6) else ""
    repetition = event.repetition if rng.random() < (0.3 if event.repetition == "once" else 0.6) else ""
    return loudness, repetition


def _adverbs(rng: Generator, loudness: str, repetition: str) -> str:
    words = [_one(rng, table[key]) for table, key in ((LOUD_ADVERBS, loudness), (TIMES, repetition)) if key]
    return "".join(f" {word}" for word in (words if rng.random() < 0.6 else words[::-1]))


def _words(rng: Generator, kind: str) -> tuple[str, str, str, bool]:
    """Subject, verb and -ing form of a kind, and whether the subject is plural (its verb then has no s)."""
    subject, verb, ing = _one(rng, CLAUSES[kind]).split("|")
    return subject, verb, ing, not verb.split()[0].endswith("s")


def _clause(rng: Generator, event: Event) -> _Phrase:
    """ "a dog barks loudly twice", "a dog is barking", or "two barks of a dog can be heard"."""
    if rng.random() < 0.15:
        noun = _noun(rng, event)
        return _Phrase(noun.text + _one(rng, NOUN_ENDINGS[noun.plural]), noun.mention)
    loudness, repetition = _attributes(rng, event)
    subject, verb, ing, plural = _words(rng, event.kind)
    if rng.random() < 0.3:
        verb = f"{'are' if plural else 'is'} {ing}"
    text = f"{subject} {verb}{_adverbs(rng, loudness, repetition)}"
    return _Phrase(text, Mention(event.kind, loudness, repetition))


def _noun(rng: Generator, event: Event) -> _Phrase:
    """ "two loud barks of a dog", "the constant patter of rain", or "a dog barking loudly"."""
    loudness, repetition = _attributes(rng, event)
    if rng.random() < 0.35:
        subject, _, ing, plural = _words(rng, event.kind)
        text = f"{subject} {ing}{_adverbs(rng, loudness, repetition)}"
        return _Phrase(text, Mention(event.kind, loudness, repetition), plural)
    adjectives = LOUD_ADJECTIVES[loudness] if loudness else ()
    words = [_one(rng, adjectives)] if adjectives else []
    mention = Mention(event.kind, loudness if words else "", event.repetition)
    one, _, several = _one(rng, NOUNS[event.kind]).partition("|")
    if event.repetition == "continuous":
        words += [_one(rng, GOING_ON)] if repetition else []
        mention = Mention(event.kind, mention.loudness, repetition)
        return _Phrase(" ".join(["the", *words, one]), mention)
    if event.repetition == "once":
        words = ["single", *words] if repetition else words
        return _Phrase(_article(" ".join([*words, one])), mention)
    return _Phrase(" ".join([_one(rng, QUANTIFIERS[event.repetition]), *words, several]), mention, True)


def _alone(rng: Generator, event: Event) -> tuple[str, Said]:
    if rng.random() < 0.5:
        phrase = _clause(rng, event)
        return _one(rng, CLAUSE_OPENINGS) + phrase.text, Said((phrase.mention,))
    phrase = _noun(rng, event)
    there = "There are " if phrase.plural else "There is "
    return _one(rng, (*NOUN_OPENINGS, there)) + phrase.text, Said((phrase.mention,))


def _order(a: Event, how: str, b: Event) -> tuple[Order, ...]:
    """What "a HOW b" says."""
    if how == "after":
        return (Order(b.kind, "before", a.kind),)
    return (Order(a.kind, how, b.kind),) if how else ()


def _turned(rng: Generator, a: Event, b: Event) -> tuple[str, Said]:
    how = relation(a, b) if rng.random() < 0.85 else ""
    if how == "after":
        a, b, how = b, a, "before"
    options = TURNED[how]
    template, forms = options[int(rng.integers(len(options)))]
    phrases = [_clause(rng, e) if form == "c" else _noun(rng, e) for e, form in zip((a, b), forms, strict=True)]
    text = template.replace("{c}", "{}").replace("{n}", "{}").format(*(phrase.text for phrase in phrases))
    return text, Said(tuple(phrase.mention for phrase in phrases), _order(a, how, b))


def _chained(rng: Generator, events: Sequence[Event]) -> tuple[str, Said]:
    """Each kind joined to the one before it."""
    nouns = rng.random() < 0.45
    first = (_noun if nouns else _clause)(rng, events[0])
    text, mentions, order = first.text, [first.mention], list[Order]()
    for a, b in pairwise(events):
        how = relation(a, b) if rng.random() < 0.8 else ""
        noun_next = nouns or (rng.random() < 0.3 and how != "")
        phrase = (_noun if noun_next else _clause)(rng, b)
        text += _one(rng, (TO_NOUN if noun_next else TO_CLAUSE)[how]).format(phrase.text)
        mentions.append(phrase.mention)
        order += _order(a, how, b)
    openings = NOUN_OPENINGS if nouns else CLAUSE_OPENINGS
    return _one(rng, openings) + text, Said(tuple(mentions), tuple(order))


def _styled(rng: Generator, text: str) -> str:
    """With or without a capital and a final period; a text of several sentences has both."""
    draw = rng.random()
    several = ". " in text
    if several or draw < 0.65:
        text = text[0].upper() + text[1:]
    else:
        text = text[0].lower() + text[1:] if not text.startswith("I ") else text
    return text + "." if several or draw < 0.5 or draw > 0.9 else text
