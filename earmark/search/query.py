"""What is asked of an index, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Filters:
    """What a file must be to be found; what is empty asks nothing."""

    longest_s: float | None = None
    shortest_s: float | None = None
    folder: str = ""
    """A folder, absolute, or a part of one's path: files anywhere below it."""
    tags: tuple[str, ...] = ()
    """All of them, whatever their case."""
    rates: tuple[int, ...] = ()
    """Hz, any of them."""
    channels: tuple[int, ...] = ()
    """Any of them."""


@dataclass(frozen=True)
class Query:
    """A question: words, a sound, or both."""

    words: str = ""
    like: Vector | None = None
    """The embedding of a sound [dim], unit length."""
    without: str = ""
    """What must not be heard, in words."""
    keywords: bool = True
    """Whether names and tags count too, or the embedding alone."""
    filters: Filters = field(default_factory=Filters)
    limit: int = 20
    """Files; 0: all."""
    fold: bool = True
    """Whether near-duplicates stand behind the best of them."""


@dataclass(frozen=True)
class Region:
    """A window of a file."""

    start_s: float
    end_s: float
    score: float
    """Its cosine with what was asked, −1 to 1."""


@dataclass(frozen=True)
class Hit:
    """A file that was found, by its best window."""

    file_id: str
    path: Path
    shown: str
    """The path in one line of text."""
    best: Region
    score: float
    """What the hits are sorted by, falling: the cosine, or with keywords the sum of reciprocal ranks."""
    named: bool
    """Whether its names or tags hold the words."""
    duration_s: float
    rate: int
    channels: int
    words: str
    """The words that the file carries."""
    tags: tuple[str, ...]
    others: tuple[Region, ...] = ()
    """Its other windows that came near, best first."""
    copies: tuple[str, ...] = ()
    """Paths (shown) of near-duplicates that stand behind it."""
    content: str = ""
    """SHA-256 of the file's bytes, hex, where it is known."""

    def as_json(self) -> dict[str, Any]:
        """As `search --json` writes it: `path`, `start_s`, `end_s`, `score` first."""
        return {
            "path": self.shown,
            "start_s": self.best.start_s,
            "end_s": self.best.end_s,
            "score": self.score,
            "cosine": self.best.score,
            "named": self.named,
            "duration_s": self.duration_s,
            "rate": self.rate,
            "channels": self.channels,
            "tags": list(self.tags),
            "others": [{"start_s": o.start_s, "end_s": o.end_s, "cosine": o.score} for o in self.others],
            "copies": list(self.copies),
        }


@dataclass(frozen=True)
class Answer:
    """What an index answers."""

    hits: list[Hit]
    """Best first."""
    searched: int
    """Files that the filters let through."""
    notes: tuple[str, ...] = ()
    """What the asker should know, a sentence each."""
