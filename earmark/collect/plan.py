"""What to ask, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from earmark.collect.study import Settings, check_settings
from earmark.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """What to ask."""

    captions: int = 0
    """0: as many as there are beside those of checks.csv, 200 at most."""
    split: str = ""
    """Empty: all splits but `*-lists`; a caption is only asked with clips of its own split."""
    own: int = 1
    """1 or 0: whether the caption's own clip is asked."""
    random: int = 1
    similar: int = 15
    """How many of the others that rank highest."""
    middle: int = 0
    """How many in the middle of the ranks that are left."""
    among: int = 0
    """How many ranks `similar` and `middle` are drawn from; 0: as many as are drawn."""
    balance: float = 2.0
    """How far a clip's chance may be raised or lowered, so that clips are asked equally often; 1: not at all."""
    again: bool = False
    """Whether pairs are asked that are rated already."""
    page: int = 5
    """Clips a page, at most."""
    checks: int = -1
    """Check pages; −1: twice as many as a rater sees, fewer where captions are few."""
    own_low: float = 50.0
    """A check's own clip rated lower is wrong, 0–100."""
    other_high: float = 40.0
    """A check's random clip rated higher is wrong, 0–100."""
    seed: int = 0
    encoder: str = "all-mpnet-base-v2"
    """The sentence encoder that captions are alike by; unused with a run's scores."""
    run: str = ""
    """The run whose scores clips are ranked by, for the record."""
    study: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for key, (low, high) in _RANGES.items():
            value = getattr(self, key)
            if not low <= value <= high:  # NaN fails too
                raise ConfigError(f"pool: {key.replace('_', '-')} = {value:g}; expected {low:g} to {high:g}.")
        if self.own + self.random + self.similar + self.middle == 0:
            raise ConfigError("pool: own, random, similar and middle are all 0: nothing is asked. Raise one of them.")
        if self.among and self.among < max(self.similar, self.middle):
            raise ConfigError(
                f"pool: among = {self.among}; expected {max(self.similar, self.middle)} or more, as many as are drawn."
            )
        if self.own_low <= self.other_high:
            raise ConfigError(
                f"pool: own-low = {self.own_low:g} and other-high = {self.other_high:g}: {self.own_low:g} for "
                "everything would be right. Give --own-low a higher number than --other-high."
            )
        check_settings(self.study, "pool: study")

    @property
    def known_others(self) -> int:
        """So many other clips of a check page have a known answer, one at least: more tell more, as long as one number
        for all of them gets fewer right than `qualify_share` and `checks_share` ask for.
        """
        share = min(self.study.qualify_share, self.study.checks_share)
        return max([1, *(count for count in range(1, self.page) if count / (count + 1) < share)])


_RANGES: Mapping[str, tuple[float, float]] = {
    "captions": (0, 10_000_000),
    "own": (0, 1),
    "random": (0, 10_000),
    "similar": (0, 10_000),
    "middle": (0, 10_000),
    "among": (0, 1_000_000),
    "balance": (1, 100),
    "page": (1, 100),
    "checks": (-1, 100_000),
    "own_low": (0, 100),
    "other_high": (0, 100),
    "seed": (0, 2**63 - 1),
}
