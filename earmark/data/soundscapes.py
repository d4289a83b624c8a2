"""A GENERATED collection whose relevance is known: synthesised clips, captions, and simulated raters.

Every clip is drawn from its own seed, so that it is the same whatever else is generated. `clips.csv` keeps the
truth (`events`), `captions.csv` what each caption says (`says`, `says_order`, `partial`), in the form that
`scenes.read_events` and `scenes.read_said` read; `scenes.overlap` of the two is the true relevance, which the
raters answer with a bias, a scale and a noise of their own.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from earmark.data.collection import Caption, Clip, Collection
from earmark.data.events import RATE
from earmark.data.scenes import Event, Said, compose, overlap
from earmark.data.wording import caption
from earmark.errors import ConfigError, DataError
from earmark.files import writing_folder
from earmark.relevance import Rating

CAPTIONS_A_CLIP = 5
PARTIAL = 0.4
"""Chance that a caption of a clip of several events leaves some out; the first caption never does."""
SHARES = {"validation": 0.15, "evaluation": 0.15}
"""Of the clips, one at least where there are three; the rest is development."""
RATED = {"development": 2 / 7, "validation": 0.4, "evaluation": 0.4}
"""Share of a split's clips of which one caption is rated: 200, 60 and 60 of 1,000 clips."""
LIST = 17
"""Clips that are rated for a caption (GrRel's): 1 TP, 1 TN and 15 C15; fewer where the split has fewer."""
NEAR_POOL, NEAR = 0.16, 9
"""C15: 9 are drawn of that share of the other clips that has the greatest overlap, 6 and the TN of the rest."""
RATERS, LEAST, MOST = 12, 3, 5
"""A list is rated by 3–5 of 12 raters."""
SURE = 0.7
"""Chance that a rater says 0 of a clip that holds nothing of the caption."""

_CLIPS, _SPLITS, _LISTS, _RATERS = range(4)
"""Streams of random numbers that share nothing."""


def _rng(seed: int, stream: int, index: int = 0) -> Generator:
    return default_rng(SeedSequence([seed, stream, index]))


# Raters


@dataclass(frozen=True, slots=True)
class Rater:
    """A simulated person: rating = 100 · (scale · overlap + bias + noise · N(0, 1)), cut to 0–100 and rounded.

    Where nothing of what is said can be heard (overlap 0), the answer is 0 in `SURE` of the cases.
    """

    rater_id: str
    scale: float
    bias: float
    noise: float
    lapse: float
    """Chance of an answer that has nothing to do with the sound, which is then hardly played."""

    def rate(self, rng: Generator, truth: float, duration_s: float) -> tuple[int, float]:
        """The rating, and the seconds that were played (some sounds twice, some not to their end)."""
        if rng.random() < self.lapse:
            return int(rng.integers(0, 101)), round(float(rng.uniform(0.2, 1.0)), 1)
        nothing = truth == 0 and rng.random() < SURE
        value = 0.0 if nothing else 100 * (self.scale * truth + self.bias + self.noise * rng.standard_normal())
        played = duration_s * rng.choice([rng.uniform(0.6, 1.0), 1.0, 2.0], p=[0.25, 0.6, 0.15])
        return round(min(100.0, max(0.0, value))), round(float(played), 1)


def raters(seed: int) -> list[Rater]:
    """The pool of simulated raters."""
    rng = _rng(seed, _RATERS)
    return [
        Rater(
            f"rater{k:02d}",
            *(float(rng.uniform(*span)) for span in ((0.7, 1.0), (-0.12, 0.1), (0.05, 0.14), (0, 0.04))),
        )
        for k in range(1, RATERS + 1)
    ]


# What is rated


@dataclass(frozen=True, slots=True)
class _Made:
    """A clip with its truth, and its captions with what they say."""

    clip_id: str
    duration_s: float
    events: tuple[Event, ...]
    captions: tuple[tuple[str, str, Said], ...]
    """(caption_id, text, what it says)."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    clip: _Made
    truth: float
    group: str
    stratum: str
    probability: float


def _list_of(rng: Generator, own: _Made, said: Said, clips: Sequence[_Made]) -> list[_Chosen]:
    """The clips that are rated for a caption of `own`: 1 TP, 1 TN, up to 15 C15, each once.

    Strata: the own clip, the share `NEAR_POOL` of greatest overlap of the others (ties by chance), all the rest.
    From each so many are drawn without replacement, which gives every pair its chance.
    """
    others = [clip for clip in clips if clip is not own]
    truths = np.array([overlap(said, clip.events) for clip in others])
    order = np.lexsort((rng.random(len(others)), -truths))
    count = min(LIST - 1, len(others))
    pool = min(max(NEAR, round(NEAR_POOL * len(others))), max(0, len(others) - max(1, LIST - 1 - NEAR)))
    near_count = min(NEAR, pool, max(0, count - 1))
    near = rng.choice(order[:pool], near_count, replace=False) if near_count else order[:0]
    far = rng.choice(order[pool:], min(count - near_count, len(others) - pool), replace=False) if count else order[:0]
    chosen = [_Chosen(own, overlap(said, own.events), "TP", "own", 1.0)]
    for k, place in enumerate(far):
        chance = len(far) / (len(others) - pool)
        chosen.append(_Chosen(others[place], float(truths[place]), "C15" if k else "TN", "far", chance))
    chosen += [_Chosen(others[place], float(truths[place]), "C15", "near", near_count / pool) for place in near]
    return chosen


def _ratings(seed: int, pool: Sequence[Rater], split: str, clips: Sequence[_Made]) -> list[Rating]:
    """The ratings of a split: one caption of some of its clips, each list by several raters."""
    draw = _rng(seed, _LISTS, list(RATED).index(split))
    rated = draw.choice(len(clips), max(1, round(RATED[split] * len(clips))), replace=False)
    ratings = []
    for place in sorted(rated):
        own = clips[place]
        caption_id, _, said = own.captions[draw.integers(len(own.captions))]
        people = draw.choice(len(pool), draw.integers(LEAST, MOST + 1), replace=False)
        for chosen in _list_of(draw, own, said, clips):
            for person in sorted(people):
                value, played = pool[person].rate(draw, chosen.truth, chosen.clip.duration_s)
                ratings.append(
                    Rating(
                        caption_id,
                        chosen.clip.clip_id,
                        value,
                        group=chosen.group,
                        rater_id=pool[person].rater_id,
                        played_s=played,
                        stratum=chosen.stratum,
                        probability=round(chosen.probability, 6),
                    )
                )
    return ratings


# Making it


def generate(
    root: Path | str, *, clips: int = 1000, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Collection:
    """The collection that it writes into the new folder `root`; the same seed gives the same bytes.

    Clips are WAV, mono, 16 bits, 44.1 kHz. The folder appears whole at the end; `progress` is told (clips done,
    clips in all). With few clips a rated list holds the clips that its split has. Raises `DataError` where `root` is
    there and not empty, or cannot be written.
    """
    if clips < 1 or seed < 0:
        raise ConfigError(f"clips={clips}, seed={seed}; expected one clip at least, and a seed of 0 or more.")
    root = Path(root)
    with writing_folder(root) as aside:
        try:
            (aside / "audio").mkdir()
            made = []
            for index in range(clips):
                made.append(_clip(aside, seed, index))
                if progress is not None:
                    progress(index + 1, clips)
        except OSError as error:
            raise DataError(
                f"{root}: cannot be written ({error.strerror}). Make room, or name another place."
            ) from error
        _collection(aside, seed, made).write()
    return Collection.read(root)


def _path(clip_id: str) -> str:
    return f"audio/{clip_id}.wav"


def _clip(root: Path, seed: int, index: int) -> _Made:
    """Makes a clip, writes its sound, and words its captions."""
    import soundfile

    rng = _rng(seed, _CLIPS, index)
    clip_id = f"s{index:05d}"
    wave, events = compose(rng)
    file = io.BytesIO()
    soundfile.write(file, wave, RATE, subtype="PCM_16", format="WAV")
    (root / _path(clip_id)).write_bytes(file.getvalue())
    captions: dict[str, Said] = {}
    while len(captions) < CAPTIONS_A_CLIP:
        partial = len(events) > 1 and bool(captions) and rng.random() < PARTIAL
        text, said = caption(rng, events, partial)
        captions.setdefault(text, said)
    named = tuple((f"{clip_id}#{k}", text, said) for k, (text, said) in enumerate(captions.items(), 1))
    return _Made(clip_id, round(len(wave) / RATE, 3), events, named)


def _splits(seed: int, count: int) -> list[str]:
    """The split of every clip: 70 / 15 / 15 %."""
    sizes = {split: max(1, round(share * count)) if count >= 3 else 0 for split, share in SHARES.items()}
    splits = ["development"] * (count - sum(sizes.values())) + [
        split for split, size in sizes.items() for _ in range(size)
    ]
    return [splits[place] for place in _rng(seed, _SPLITS).permutation(count)]


def _collection(root: Path, seed: int, made: Sequence[_Made]) -> Collection:
    """The tables: clips with their truth, captions with what they say, ratings."""
    splits = _splits(seed, len(made))
    clips, captions = [], []
    for clip, split in zip(made, splits, strict=True):
        events = "|".join(map(str, clip.events))
        truth = {"duration_s": f"{clip.duration_s:.3f}", "event_count": str(len(clip.events)), "events": events}
        clips.append(Clip(clip.clip_id, _path(clip.clip_id), split, clip.clip_id, truth))
        for caption_id, text, said in clip.captions:
            says = {
                "says": "|".join(map(str, said.mentions)),
                "says_order": "|".join(map(str, said.order)),
                "partial": "yes" if len(said.mentions) < len(clip.events) else "no",
            }
            captions.append(Caption(caption_id, clip.clip_id, text, says))
    pool, ratings = raters(seed), []
    for split in RATED:
        inside = [clip for clip, its in zip(made, splits, strict=True) if its == split]
        ratings += _ratings(seed, pool, split, inside) if inside else []
    about = {
        "licence": "CC0-1.0 (generated)",
        "generator": f"earmark data soundscapes --clips {len(made)} --seed {seed}",
    }
    return Collection(root, clips, captions, ratings, name="soundscapes", kind="generated", about=about)
