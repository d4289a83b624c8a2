"""What is measured of captions and clips: one number each a feature, and what a reader of the numbers must know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.errors import Problem


class About(NamedTuple):
    """What a feature is."""

    label: str
    """As tables and pictures name it; the paper's Table 4 where it has it."""
    unit: str
    """Empty for counts and shares."""
    meaning: str


FEATURES = {
    "e_time": About("e-time", "bits", "entropy over time of the tagger's class probabilities, averaged over classes"),
    "e_class": About("e-class", "bits", "entropy over classes of the tagger's probabilities, averaged over time"),
    "e_time_normalised": About("e-time, normalised", "", "e-time over log2 of the number of frames, 0–1"),
    "e_class_normalised": About("e-class, normalised", "", "e-class over log2 of the number of classes, 0–1"),
    "duration_s": About("audio duration", "s", "length of the sound"),
    "loudness_lufs": About("loudness", "LUFS", "integrated loudness (ITU-R BS.1770) of the sound mixed to mono"),
    "centroid_hz": About(
        "spectral centroid", "Hz", "mean frequency, weighted by magnitude, of frames that are not silent"
    ),
    "flatness": About("spectral flatness", "", "geometric over arithmetic mean of the power spectrum, 0–1"),
    "silence_share": About("silence share", "", "share of silent frames, 0–1"),
    "perplexity": About("perplexity", "", "how surprising the caption is to a language model"),
    "words": About("# words", "", "number of words"),
    "content_words": About("# C-words", "", "nouns, verbs, adjectives and adverbs"),
    "nouns": About("# nouns", "", "number of nouns"),
    "adjectives": About("# adjectives", "", "number of adjectives"),
    "frequent_words": About("# fr-words", "", "words among the most frequent of the reference captions"),
    "frequent_content_words": About("# fr-C-words", "", "content words among the most frequent content words"),
    "frequent_nouns": About("# fr-nouns", "", "nouns among the most frequent nouns"),
    "frequent_adjectives": About("# fr-adjectives", "", "adjectives among the most frequent adjectives"),
}
"""Every feature of captions and clips."""


def label(name: str) -> str:
    """A feature's name as tables show it; any other name as it is."""
    return FEATURES[name].label if name in FEATURES else name


@dataclass(frozen=True)
class Features:
    """Features of a sequence of captions or clips."""

    values: dict[str, NDArray[np.float64]]
    """Name → one number an item, in the items' order; NaN where it is not defined."""
    notes: list[str] = field(default_factory=list)
    """How they were read, what could not be had, and how many are undefined: a line each."""
    problems: list[Problem] = field(default_factory=list)
    """Items that could not be read."""
