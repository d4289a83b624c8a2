"""Batches: the items that all objectives bring to one step, each distinct clip and caption once.

An epoch is one pass of the first objective; the others go round and round, shuffled anew each time. What a
step holds follows from the seed and the step's number alone, so a run can be taken up at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from earmark.learn.objectives import Block, Objective, shuffled


class Part(NamedTuple):
    """One objective's share of a batch."""

    captions: Tensor
    """Places of its captions among the batch's, int64."""
    clips: Tensor
    """Places of its clips among the batch's, int64."""
    values: Tensor
    judged: Tensor


class Batch(NamedTuple):
    """Distinct captions and clips, to be embedded in one pass, and what each objective asks of their scores."""

    caption_ids: list[str]
    clip_ids: list[str]
    parts: list[Part]


def steps_an_epoch(objectives: Sequence[Objective]) -> int:
    """How many steps one pass of the first objective takes."""
    return len(objectives[0].steps())


def batch_at(objectives: Sequence[Objective], step: int, seed: int) -> Batch:
    """The batch of a step, counted from 0 over the whole run."""
    return joined(_block_at(objective, place, step, seed) for place, objective in enumerate(objectives))


def _block_at(objective: Objective, place: int, step: int, seed: int) -> Block:
    steps = objective.steps()
    cycle, within = divmod(step, len(steps))
    order = shuffled(len(objective.items), seed, place, cycle)
    return objective.block([objective.items[at] for at in order[steps[within]]])


def joined(blocks: Iterable[Block]) -> Batch:
    """One batch from the objectives' blocks."""
    caption_ids: dict[str, int] = {}
    clip_ids: dict[str, int] = {}
    parts = [
        Part(
            torch.tensor([caption_ids.setdefault(each, len(caption_ids)) for each in block.caption_ids]),
            torch.tensor([clip_ids.setdefault(each, len(clip_ids)) for each in block.clip_ids]),
            block.values,
            block.judged,
        )
        for block in blocks
    ]
    return Batch(list(caption_ids), list(clip_ids), parts)
