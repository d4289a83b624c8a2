"""Objectives: which relevance, over which items, by which loss.

An item is a captioning pair (caption and its own clip) or a rated list (a caption and the clips that people
rated for it). An objective scores its own items only: the clips of another's lists are not its negatives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.data.collection import Caption, Collection
from earmark.errors import DataError
from earmark.learn.losses import divergence_floor, infonce, listnet
from earmark.learn.recipe import ObjectiveConfig
from earmark.relevance import Pair, Relevance

LEARNED = (0.01, 1.0)
"""A learned temperature stays between these."""


class Item(NamedTuple):
    """What one draw of an objective brings into a batch."""

    caption_id: str
    clip_ids: tuple[str, ...]
    """A captioning pair's one clip, or a list's clips."""


class Block(NamedTuple):
    """The captions and clips of some items, each once, and their relevance."""

    caption_ids: list[str]
    clip_ids: list[str]
    values: Tensor
    """float32 [caption, clip], 0–1."""
    judged: Tensor
    """bool [caption, clip]."""


class Judged(Protocol):
    """What an objective asks of a `Relevance`, or of `Estimates`."""

    def block(
        self, caption_ids: Sequence[str], clip_ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(values, judged), both [caption, clip]."""


class Objective(nn.Module):
    """Items, their relevance, and the loss over a block of them."""

    def __init__(self, config: ObjectiveConfig, items: Sequence[Item], relevance: Judged) -> None:
        super().__init__()
        self.config = config
        self.items = list(items)
        self.relevance = relevance
        self._learned = nn.Parameter(torch.tensor(0.07).log()) if config.temperature == "learned" else None

    @property
    def temperature(self) -> float | Tensor:
        """τ or ω; a tensor where it is learned."""
        if self._learned is not None:
            return self._learned.exp()
        assert not isinstance(self.config.temperature, str)
        return self.config.temperature

    def share_temperature(self, other: Objective) -> None:
        """Takes the other's learned temperature for its own, so that both are always the same."""
        self._learned = other._learned

    @torch.no_grad()
    def keep_within(self) -> None:
        """Brings a learned temperature back between its bounds, after a step."""
        if self._learned is not None:
            self._learned.clamp_(*map(math.log, LEARNED))

    @property
    def clip_ids(self) -> dict[str, None]:
        """Every clip of its items, once."""
        return {clip: None for item in self.items for clip in item.clip_ids}

    @property
    def batch(self) -> int:
        """Items a step."""
        return self.config.lists if self.config.of_ratings else self.config.batch

    def steps(self) -> list[slice]:
        """How one pass over the items is cut into steps; a tail of one captioning pair joins the step before.

        A pair alone has no negatives, so it would be a step that teaches nothing.
        """
        starts = list(range(0, len(self.items), self.batch))
        if len(starts) > 1 and not self.config.of_ratings and len(self.items) - starts[-1] == 1:
            starts.pop()
        return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(self.items)], strict=True)]

    def passes(self, *seed: int) -> Iterator[Block]:
        """One pass over all items in the order of the seed."""
        order = shuffled(len(self.items), *seed)
        for step in self.steps():
            yield self.block([self.items[at] for at in order[step]])

    def block(self, items: Sequence[Item]) -> Block:
        """The items' captions and clips, each once, with their relevance."""
        captions = list(dict.fromkeys(item.caption_id for item in items))
        clips = list(dict.fromkeys(clip for item in items for clip in item.clip_ids))
        values, judged = self.relevance.block(captions, clips)
        return Block(captions, clips, torch.from_numpy(values), torch.from_numpy(judged))

    def forward(self, scores: Tensor, values: Tensor, judged: Tensor) -> Tensor:
        """The loss over a block of cosines [caption, clip], not yet weighted."""
        if self.config.loss == "infonce":
            return infonce(scores, values, judged, temperature=self.temperature)
        loss = self._listnet(scores, values, judged)
        return (loss + self._listnet(scores.T, values.T, judged.T)) / 2 if self.config.symmetric else loss

    def _listnet(self, scores: Tensor, values: Tensor, judged: Tensor) -> Tensor:
        target, sharpness = self.config.target, self.config.target_temperature
        return listnet(
            scores, values, judged, temperature=self.temperature, target=target, target_temperature=sharpness
        )

    def floor(self, values: Tensor, judged: Tensor) -> float:
        """The least that the loss can be on these lists: the entropy of their targets; 0 for InfoNCE."""
        if self.config.loss == "infonce":
            return 0.0
        target = self.config.target, self.config.target_temperature
        floor = float(divergence_floor(values, judged, *target))
        return (floor + float(divergence_floor(values.T, judged.T, *target))) / 2 if self.config.symmetric else floor


@lru_cache(maxsize=32)
def shuffled(count: int, *seed: int) -> NDArray[np.int64]:
    """The numbers below `count` in an order that the seed alone decides, so that any step can be gone back to."""
    order: NDArray[np.int64] = np.random.default_rng(seed).permutation(count)
    return order


def make_objective(
    config: ObjectiveConfig,
    collection: Collection,
    split: str,
    *,
    seed: int,
    without: Iterable[str] = (),
    estimates: Judged | None = None,
) -> Objective:
    """The objective over the split's items, those clips left out that are named in `without`.

    `estimates` are its relevance where that is estimated, not stated.
    """
    make = _rated_lists if config.of_ratings else _captioning_pairs
    items, relevance = make(config, collection, split, seed, set(without))
    return Objective(config, items, estimates or relevance)


def check_learnable(objective: Objective, collection: Collection, split: str) -> None:
    """Raises `DataError` where the split gives the objective nothing to tell apart."""
    if len(objective.clip_ids) < 2:
        what = "rated lists of two clips or more" if objective.config.of_ratings else "captioned clips"
        raise DataError(
            f"{collection.root}: {len(objective.clip_ids)} clips in {what} of {split!r}; {objective.config.name} "
            "needs at least 2. Add some, or leave the objective out."
        )
    if objective.config.loss == "infonce" and not _has_negatives(objective):
        raise DataError(
            f"{collection.root}: in {split!r} every caption fits every clip; {objective.config.name} needs "
            "some that do not. Add other texts, or leave the objective out."
        )


def unlearned(objectives: Sequence[Objective], collection: Collection, split: str) -> int:
    """How many rated pairs of the split no objective learns from.

    Where ratings only overrule captions that are those whose clip has no caption of its own: it stands in no captioning
    pair.
    """
    pairs = {(pair.caption_id, pair.clip_id) for pair in collection.relevance("ratings", split).pairs()}
    for objective in objectives:
        if "ratings" in objective.config.relevance and objective.config.weight > 0:
            captions, clips = {item.caption_id for item in objective.items}, objective.clip_ids
            pairs = {(caption, clip) for caption, clip in pairs if caption not in captions or clip not in clips}
    return len(pairs)


def _has_negatives(objective: Objective) -> bool:
    """Whether any judged pair of its captions and clips has value 0."""
    assert isinstance(objective.relevance, Relevance)  # InfoNCE takes no estimates
    captions = {item.caption_id for item in objective.items}
    relevance = objective.relevance.restrict(captions, objective.clip_ids)
    positive = sum(pair.value > 0 for pair in relevance.pairs())
    judged = len(relevance) if relevance.unjudged is None else len(captions) * len(objective.clip_ids)
    return positive < judged


def _captioning_pairs(
    config: ObjectiveConfig, collection: Collection, split: str, seed: int, unusable: set[str]
) -> tuple[list[Item], Relevance]:
    """Every caption (or one a clip) of the split's clips, with its own clip."""
    ratings = collection.rated(split)
    wanted = {clip.clip_id for clip in collection.gallery(split)}
    if config.clips == "rated":
        wanted &= {rating.clip_id for rating in ratings}
    captions = [caption for caption in collection.captions if caption.clip_id in wanted]
    if config.captions == "one":
        captions = one_caption_a_clip(captions, {rating.caption_id for rating in ratings}, seed)
    relevance = collection.relevance("captions", split)
    if config.relevance == "captions+ratings":
        relevance = relevance.overlaid_by(collection.relevance("ratings", split, config.aggregate))
    # those that cannot be used leave after the draw, which is the same with and without them
    return [Item(c.caption_id, (c.clip_id,)) for c in captions if c.clip_id not in unusable], relevance


def one_caption_a_clip(captions: Iterable[Caption], rated: set[str], seed: int) -> list[Caption]:
    """Each clip's rated caption where it has one, else one drawn by seed (SuperBiRel)."""
    of_clip: dict[str, list[Caption]] = {}
    for caption in captions:
        of_clip.setdefault(caption.clip_id, []).append(caption)
    rng = np.random.default_rng([seed, 1])
    draws = rng.random(len(of_clip))
    chosen = []
    for each, draw in zip(of_clip.values(), draws, strict=True):
        preferred = [caption for caption in each if caption.caption_id in rated] or each
        chosen.append(preferred[int(draw * len(preferred))])
    return chosen


def _rated_lists(
    config: ObjectiveConfig, collection: Collection, split: str, seed: int, unusable: set[str]
) -> tuple[list[Item], Relevance]:
    """Every rated caption with its rated clips."""
    lists: dict[str, list[Pair]] = {}
    for pair in collection.relevance("ratings", split, config.aggregate).pairs():
        lists.setdefault(pair.caption_id, []).append(pair)
    if config.relevance == "ratings-binary":
        own = {caption.caption_id: caption.clip_id for caption in collection.captions}
        lists = {caption: _binary(pairs, own[caption]) for caption, pairs in lists.items()}
    if config.relevance == "ratings-shuffled":
        rng = np.random.default_rng([seed, 2])
        lists = {caption: _reordered(pairs, rng) for caption, pairs in lists.items()}
    lists = {caption: [pair for pair in pairs if pair.clip_id not in unusable] for caption, pairs in lists.items()}
    # a list of one clip orders nothing, and one of zeros has no target
    lists = {c: pairs for c, pairs in lists.items() if len(pairs) > 1 and any(pair.value > 0 for pair in pairs)}
    items = [Item(caption, tuple(pair.clip_id for pair in pairs)) for caption, pairs in lists.items()]
    return items, Relevance((pair for pairs in lists.values() for pair in pairs), unjudged=None)


def _binary(pairs: Sequence[Pair], own: str) -> list[Pair]:
    """The same pairs with 1 for the caption's own clip and 0 for the others (BiRel)."""
    return [pair._replace(value=float(pair.clip_id == own)) for pair in pairs]


def _reordered(pairs: Sequence[Pair], rng: np.random.Generator) -> list[Pair]:
    """The same clips with the list's values in random order (a control)."""
    order = rng.permutation(len(pairs))
    return [pair._replace(value=pairs[at].value) for pair, at in zip(pairs, order, strict=True)]
