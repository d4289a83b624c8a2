"""The words for the kinds of synthesised events, their loudness and their repetition.

A kind has subjects and verbs (`a dog` + `barks/barking`), nouns (`a bark`; steady sounds `rain`), plurals where
single sounds are counted (`barks`), and passive clauses (`a bell · is rung, is struck`) where somebody acts.
"""

from __future__ import annotations

from typing import NamedTuple

LOUDNESS = ("quiet", "normal", "loud")
REPETITIONS = ("once", "twice", "several", "continuous")

ADVERBS = {
    "quiet": ["quietly", "softly", "faintly", "at low volume"],
    "normal": ["at a moderate volume", "at medium volume"],
    "loud": ["loudly", "at high volume", "very loudly", "noisily"],
}
ADJECTIVES = {
    "quiet": ["quiet", "soft", "faint", "hushed"],
    "loud": ["loud", "very loud", "noisy", "strong"],
}
OFTEN = {
    "once": ["once", "a single time", "one time"],
    "twice": ["twice", "two times", "once and then once more"],
    "several": ["several times", "repeatedly", "again and again", "a few times"],
    "continuous": ["continuously", "without pause", "on and on", "steadily"],
}
COUNTS = {
    "once": ["a ", "one", "a single"],
    "twice": ["two", "a pair of"],
    "several": ["several", "a few", "repeated", "many"],
    "continuous": ["continuous", "steady", "constant"],
}


class Words(NamedTuple):
    """The words for a kind."""

    subjects: list[str]
    verbs: list[str]
    """`barks/barking`."""
    nouns: list[str]
    plurals: list[str]
    """Empty where the sound is steady."""
    passive: list[str]


def _words(subjects: str, verbs: str, nouns: str, plurals: str = "", passive: str = "") -> Words:
    return Words(*([part for part in text.split("|") if part] for text in (subjects, verbs, nouns, plurals, passive)))


WORDS = {
    "bark": _words(
        "a dog|a hound|the dog",
        "barks/barking|woofs/woofing",
        "a bark|a woof",
        "barks|woofs",
    ),
    "bird": _words(
        "a bird|a small bird|a songbird",
        "chirps/chirping|tweets/tweeting",
        "a chirp|a tweet",
        "chirps|tweets",
    ),
    "cat": _words(
        "a cat|a kitten|the cat",
        "meows/meowing|mews/mewing",
        "a meow",
        "meows",
    ),
    "cow": _words(
        "a cow|the cow",
        "moos/mooing|lows/lowing",
        "a moo",
        "moos",
    ),
    "owl": _words(
        "an owl|a night owl",
        "hoots/hooting|calls/calling",
        "an owl call",
        "owl calls",
    ),
    "frog": _words(
        "a frog|a toad",
        "croaks/croaking",
        "a croak",
        "croaks",
    ),
    "cricket": _words(
        "a cricket|a grasshopper",
        "chirrs/chirring|stridulates/stridulating",
        "cricket song|chirring",
    ),
    "insect": _words(
        "a bee|an insect|a fly",
        "buzzes/buzzing|drones/droning",
        "a buzz|buzzing",
    ),
    "babble": _words(
        "a crowd|a group of people",
        "talks/talking|chatters/chattering|babbles/babbling",
        "chatter|babble of voices|a crowd",
    ),
    "footsteps": _words(
        "someone|a person|a man",
        "walks/walking|strides/striding",
        "footsteps|walking",
        "",
        "a floor · is walked on",
    ),
    "typing": _words(
        "someone|a person|a typist",
        "types/typing|types on a keyboard/typing on a keyboard",
        "typing|keyboard clatter",
        "",
        "a keyboard · is typed on, is used",
    ),
    "heartbeat": _words(
        "a heart|a human heart",
        "beats/beating|thumps/thumping",
        "a heartbeat|a pulse",
    ),
    "whistle": _words(
        "someone|a person|a man",
        "whistles/whistling",
        "a whistle",
        "whistles",
        "a tune · is whistled",
    ),
    "rain": _words(
        "rain",
        "falls/falling|patters/pattering|pours/pouring",
        "rain|rainfall|a shower",
    ),
    "wind": _words(
        "the wind|wind",
        "blows/blowing|howls/howling|gusts/gusting",
        "wind|a breeze",
    ),
    "thunder": _words(
        "thunder",
        "rumbles/rumbling|rolls/rolling|cracks/cracking",
        "a thunderclap|a roll of thunder",
        "thunderclaps",
    ),
    "fire": _words(
        "a fire|a campfire|burning wood",
        "crackles/crackling|pops/popping",
        "a crackling fire|crackling",
    ),
    "drop": _words(
        "water|a tap|a faucet",
        "drips/dripping",
        "a drip|a water drop",
        "drips|water drops",
    ),
    "siren": _words(
        "a siren|an emergency siren|an ambulance",
        "wails/wailing|howls/howling",
        "a siren|a wailing siren",
    ),
    "engine": _words(
        "an engine|a motor|a car engine",
        "idles/idling|runs/running|rumbles/rumbling",
        "an engine|engine noise|a motor",
        "",
        "an engine · is run, is kept running",
    ),
    "plane": _words(
        "a plane|an aeroplane|a jet",
        "flies over/flying over|passes overhead/passing overhead",
        "a plane|a jet|a passing aeroplane",
    ),
    "helicopter": _words(
        "a helicopter|a chopper",
        "hovers/hovering|flies/flying",
        "a helicopter|a chopper",
    ),
    "saw": _words(
        "someone|a person|a carpenter",
        "saws/sawing|saws wood/sawing wood",
        "sawing|a handsaw",
        "",
        "wood · is sawn, is cut with a saw",
    ),
    "horn": _words(
        "a car|a car horn|a driver",
        "honks/honking|hoots/hooting",
        "a honk|a car horn",
        "honks|hoots",
        "a car horn · is sounded, is honked",
    ),
    "beep": _words(
        "an alarm|a device|an electronic alarm",
        "beeps/beeping",
        "a beep|an alarm beep",
        "beeps|alarm beeps",
    ),
    "phone": _words(
        "a phone|a telephone|an old phone",
        "rings/ringing",
        "a phone ring|a telephone ring",
        "phone rings|telephone rings",
    ),
    "laser": _words(
        "a laser gun|a toy laser|a ray gun",
        "zaps/zapping|fires/firing",
        "a laser shot|a zap",
        "laser shots|zaps",
        "a laser gun · is fired, is shot",
    ),
    "clock": _words(
        "a clock|a watch|a wall clock",
        "ticks/ticking",
        "a ticking clock|ticking",
    ),
    "bell": _words(
        "a bell|a church bell",
        "rings/ringing|tolls/tolling",
        "a bell stroke|a bell toll",
        "bell strokes|bell tolls",
        "a bell · is rung, is struck",
    ),
    "glass": _words(
        "a glass|a wine glass",
        "clinks/clinking|tinkles/tinkling",
        "a clink of glass|a glass clink",
        "clinks of glass|glass clinks",
        "a glass · is tapped, is clinked",
    ),
    "knock": _words(
        "someone|a visitor|a person",
        "knocks/knocking|knocks on wood/knocking on wood|knocks at a door/knocking at a door",
        "a knock",
        "knocks",
        "a door · is knocked on",
    ),
    "drum": _words(
        "a drum|a bass drum|a drummer",
        "thuds/thudding|booms/booming",
        "a drum beat|a drum hit",
        "drum beats|drum hits",
        "a drum · is hit, is beaten, is struck",
    ),
}
