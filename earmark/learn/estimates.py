"""Relevance that nobody stated: of any caption to any clip, estimated from captions' likeness or by trained runs.

Both are computed a block at a time from vectors, never as a table of all pairs. How well a clip's *other* captions
match a caption (`OwnCaptions`) is also what the untrained control `encoder = "own-captions"` scores by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from earmark.data.collection import Caption, Clip, Collection
from earmark.data.splits import TRAINED_ON
from earmark.data.vectors import products
from earmark.errors import ConfigError, DataError, Problem
from earmark.learn.recipe import Recipe
from earmark.measure.evaluate import Scorer
from earmark.model.audio_towers import OWN_CAPTIONS
from earmark.model.dual_encoder import DualEncoder, is_run, run_fingerprint
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device
from earmark.relevance import Pair

DIGITS = 6
"""Of the logistic's two numbers, so that they are the same wherever they are fitted again."""


@dataclass(frozen=True)
class Estimates:
    """The relevance of any caption to any clip that they know; every pair counts as judged."""

    values: Scorer
    """Caption ids and clip ids → relevance, 0–1, float32 [caption, clip]."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Clips without an estimate, and why."""

    def block(
        self, caption_ids: Sequence[str], clip_ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(values, judged), both [caption, clip]."""
        values = self.values(caption_ids, clip_ids).clip(0, 1).astype(np.float32, copy=False)
        return values, np.ones(values.shape, dtype=np.bool_)

    def check_known(self, clip_ids: Sequence[str], name: str) -> None:
        """Raises `DataError` where a clip has no estimate."""
        missing = [clip for clip in clip_ids if clip in self.unknown]
        if missing:
            raise DataError(
                f"{name}: no estimate of {len(missing)} of {len(clip_ids)} clips, the first: "
                f"{self.unknown[missing[0]]}. Leave those clips out, or the objective."
            )


def estimates_of(
    recipe: Recipe, collection: Collection, monitor_split: str, model: DualEncoder, progress: Progress | None = None
) -> dict[str, Estimates]:
    """The estimates that the recipe's objectives learn from, by the name of their relevance.

    They know the captions and clips of what is trained on and of the monitored split. `model` is the one that learns:
    captions are alike by its frozen sentence encoder. Raises `DataError` or `ConfigError` where they cannot be had.
    """
    found: dict[str, Estimates] = {}
    for config in recipe.objectives:
        if config.teachers and config.relevance not in found:
            found[config.relevance] = taught(config.teachers, collection, (TRAINED_ON, monitor_split), progress)
        elif config.relevance == "similarity" and config.relevance not in found:
            found[config.relevance] = similar(model, collection, (TRAINED_ON, monitor_split), progress)
    return found


def about(recipe: Recipe, collection: Collection, model: DualEncoder) -> dict[str, dict[str, Any]]:
    """What the recipe's estimates come from, as `config.toml` keeps it: each teacher's fingerprint, the logistic."""
    found: dict[str, dict[str, Any]] = {}
    for config in recipe.objectives:
        if config.relevance == "similarity":
            found[config.relevance] = fitted(model, collection)._asdict()
    return found | teachers_of(recipe)


def teachers_of(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Relevance → teacher → the fingerprint of the run that is there now."""
    return {
        config.relevance: {name: run_fingerprint(Path(name)) for name in config.teachers}
        for config in recipe.objectives
        if config.teachers
    }


# Captions that are alike


class OwnCaptions:
    """How well a clip's other captions match a caption: the cosine of its vector with the mean of theirs.

    Other captions are those of another text, so that only a caption's own clip, and clips that bear the same text,
    leave any out.
    """

    def __init__(self, captions: Sequence[Caption], vectors: NDArray[np.float32]) -> None:
        """`vectors` are the captions', [caption, dim]; each counts at unit length."""
        self._unit = _unit(vectors)
        self._row = {caption.caption_id: row for row, caption in enumerate(captions)}
        self._text = [caption.text for caption in captions]
        self._of: dict[str, list[int]] = {}
        self._bearing: dict[str, dict[str, None]] = {}
        for row, caption in enumerate(captions):
            self._of.setdefault(caption.clip_id, []).append(row)
            self._bearing.setdefault(caption.text, {})[caption.clip_id] = None
        self._column = {clip: column for column, clip in enumerate(self._of)}
        # the last row stands for clips without captions
        self._means = np.full((len(self._of) + 1, vectors.shape[1]), np.nan, np.float32)
        for column, rows in enumerate(self._of.values()):
            self._means[column] = self._mean(rows)

    def _mean(self, rows: Sequence[int]) -> NDArray[np.float32]:
        # in float64, where the order of the captions changes nothing
        mean: NDArray[np.float32] = _unit(self._unit[rows].mean(axis=0, keepdims=True, dtype=np.float64))[0]
        return mean

    def scores(self, caption_ids: Sequence[str], clip_ids: Sequence[str]) -> NDArray[np.float32]:
        """Cosines, float32 [caption, clip]; NaN where a clip has no other caption."""
        rows = [self._row[caption] for caption in caption_ids]
        scores = products(self._unit[rows], self._means[[self._column.get(c, -1) for c in clip_ids]])
        for at, place in self._bearers(caption_ids, clip_ids):
            row = rows[at]
            others = [other for other in self._of[clip_ids[place]] if self._text[other] != self._text[row]]
            scores[at, place] = products(self._unit[[row]], self._mean(others)[None])[0, 0] if others else np.nan
        return scores

    def bears(self, caption_ids: Sequence[str], clip_ids: Sequence[str]) -> NDArray[np.bool_]:
        """Which clips bear the caption's text, [caption, clip]: its own, and those of the same text."""
        found = np.zeros((len(caption_ids), len(clip_ids)), dtype=np.bool_)
        for pair in self._bearers(caption_ids, clip_ids):
            found[pair] = True
        return found

    def _bearers(self, caption_ids: Sequence[str], clip_ids: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The places (caption, clip) of the pairs where the clip bears the caption's text."""
        places: dict[str, list[int]] = {}
        for place, clip in enumerate(clip_ids):
            places.setdefault(clip, []).append(place)
        for at, caption in enumerate(caption_ids):
            for clip in self._bearing[self._text[self._row[caption]]]:
                for place in places.get(clip, ()):
                    yield at, place


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)


class Logistic(NamedTuple):
    """σ(a + b · x)."""

    a: float
    b: float

    def __call__(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """Its values, of x's shape."""
        from scipy.special import expit

        out: NDArray[np.float64] = expit(self.a + self.b * x.astype(np.float64))
        return out


def fit_logistic(x: NDArray[np.float64], y: NDArray[np.float64]) -> Logistic:
    """The a and b with the least mean cross entropy −y log p − (1 − y) log(1 − p), p = σ(a + b x), of soft y in 0–1."""
    from scipy.optimize import minimize
    from scipy.special import expit

    inputs = np.stack([np.ones_like(x), x])

    def loss(ab: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = ab @ inputs
        return float(np.mean(np.logaddexp(0, z) - y * z)), inputs @ (expit(z) - y) / len(x)

    def curvature(ab: NDArray[np.float64]) -> NDArray[np.float64]:
        p = expit(ab @ inputs)
        out: NDArray[np.float64] = (inputs * p * (1 - p)) @ inputs.T / len(x)
        return out

    found = minimize(loss, np.zeros(2), jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-10})
    return Logistic(*(round(float(each), DIGITS) for each in found.x))


def fitted(model: DualEncoder, collection: Collection, progress: Progress | None = None) -> Logistic:
    """The logistic from `OwnCaptions.scores` to the ratings of what is trained on (its rated lists).

    Pairs whose clip has no other caption are left out. Raises `DataError` where fewer than two are left.
    """
    lists: dict[str, list[Pair]] = {}
    for pair in collection.relevance("ratings", TRAINED_ON).pairs():
        lists.setdefault(pair.caption_id, []).append(pair)
    clips = {pair.clip_id for pairs in lists.values() for pair in pairs}
    own = _own_captions(model, collection, clips, lists, progress)
    found = [own.scores([caption], [pair.clip_id for pair in pairs])[0] for caption, pairs in lists.items()]
    scores = np.concatenate([np.zeros(0), *found])
    values = np.array([pair.value for pairs in lists.values() for pair in pairs], dtype=np.float64)
    known = np.isfinite(scores)
    if len(np.unique(scores[known])) < 2:
        raise DataError(
            f"{collection.root}: {int(known.sum())} rated pairs of {TRAINED_ON!r} with {len(np.unique(scores[known]))} "
            'different likenesses, to fit relevance = "similarity" to; expected two at least. Add ratings, look at the '
            "caption vectors, or take another relevance."
        )
    return fit_logistic(scores[known], values[known])


def similar(
    model: DualEncoder, collection: Collection, splits: Sequence[str], progress: Progress | None = None
) -> Estimates:
    """Relevance from the likeness of captions: σ(a + b · s), s = `OwnCaptions.scores`; 1 where a clip bears the text.

    a and b are `fitted`. After arXiv 2412.01356, which takes the likeness of two clips' captions.
    """
    logistic = fitted(model, collection, progress)
    clips = [clip.clip_id for split in splits for clip in collection.gallery(split)]
    own = _own_captions(model, collection, clips, (), progress)

    def values(caption_ids: Sequence[str], clip_ids: Sequence[str]) -> NDArray[np.float32]:
        estimated = logistic(own.scores(caption_ids, clip_ids))
        return np.where(own.bears(caption_ids, clip_ids), 1, estimated).astype(np.float32)

    return Estimates(values)


def _own_captions(
    model: DualEncoder,
    collection: Collection,
    clip_ids: Iterable[str],
    asked: Iterable[str],
    progress: Progress | None,
) -> OwnCaptions:
    """Of all captions of these clips, and of the captions that are asked."""
    inside, wanted = set(clip_ids), set(asked)
    captions = [c for c in collection.captions if c.clip_id in inside or c.caption_id in wanted]
    return OwnCaptions(captions, base_vectors(model, collection, captions, progress))


def base_vectors(
    model: DualEncoder, collection: Collection, captions: Sequence[Caption], progress: Progress | None = None
) -> NDArray[np.float32]:
    """What the model's sentence encoder, frozen, makes of captions: float32 [caption, base]."""
    if not captions:
        return np.zeros((0, model.inputs.caption_size), np.float32)
    if model.text.tower is not None:  # it learns: the frozen one is another copy
        return model.sentence_encoder.encode([caption.text for caption in captions], progress)
    found: NDArray[np.float32] = torch.stack(model.caption_features(collection, captions, progress)).numpy()
    return found


# Runs that teach


class Scored(NamedTuple):
    """The cosines of a model's embeddings of some captions and clips."""

    scorer: Scorer
    without: frozenset[str]
    """Clips that have no embedding."""
    problems: list[Problem]
    """Why they have none."""


def scored(
    model: DualEncoder,
    collection: Collection,
    clips: Sequence[Clip],
    captions: Sequence[Caption],
    progress: Progress | None = None,
) -> Scored:
    """The model's scores of these captions against these clips.

    The untrained control of own captions scores a clip by its captions but those of the text that is asked.
    """
    if model.config.audio.encoder == OWN_CAPTIONS:
        features, problems = model.clip_features(collection, clips, progress)
        asked = [caption.caption_id for caption in captions]
        own = _own_captions(model, collection, (clip.clip_id for clip in clips), asked, progress)
        return Scored(own.scores, frozenset(clip.clip_id for clip in clips) - set(features), problems)
    clip_vectors, caption_vectors, problems = model.embed_collection(collection, clips, captions, progress)
    without = frozenset(clip.clip_id for clip in clips) - set(clip_vectors.ids)
    return Scored(
        lambda texts, sounds: products(caption_vectors.rows(texts), clip_vectors.rows(sounds)), without, problems
    )


def taught(
    teachers: Sequence[str], collection: Collection, splits: Sequence[str], progress: Progress | None = None
) -> Estimates:
    """Relevance as trained runs see it: the mean over them of (1 + cosine) / 2.

    Each is loaded, embeds the clips and captions of the splits, and is let go. Raises `ConfigError` where one is not
    there, `DataError` where it is not finished or cannot embed the collection.
    """
    clips = list({clip.clip_id: clip for split in splits for clip in collection.gallery(split)}.values())
    inside = {clip.clip_id for clip in clips}
    captions = [caption for caption in collection.captions if caption.clip_id in inside]
    found = [_one_teacher(name, collection, clips, captions, progress) for name in teachers]

    def values(caption_ids: Sequence[str], clip_ids: Sequence[str]) -> NDArray[np.float32]:
        total = np.zeros((len(caption_ids), len(clip_ids)), np.float32)
        for each in found:
            total += (1 + each.scorer(caption_ids, clip_ids)) / 2
        return total / np.float32(len(found))

    reasons = {p.where: p for each in found for p in each.problems}
    without = frozenset[str]().union(*(each.without for each in found))
    unknown = {clip: str(reasons.get(f"clip {clip!r}", f"clip {clip!r}")) for clip in without}
    return Estimates(values, unknown)


def _one_teacher(
    name: str, collection: Collection, clips: Sequence[Clip], captions: Sequence[Caption], progress: Progress | None
) -> Scored:
    if not is_run(name):
        raise ConfigError(f"teacher {name!r}: no run there (no config.toml). Train it first, or correct the path.")
    try:
        model = DualEncoder.load(Path(name)).to(best_device())
        return scored(model, collection, clips, captions, progress)
    except (DataError, ConfigError) as error:
        raise DataError(f"teacher {name!r}: {error}") from error
