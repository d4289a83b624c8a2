"""Clips kept apart: by group, drawn by seed, for evaluation or for what stops training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earmark.data.collection import LISTS, Clip, Collection
from earmark.errors import ConfigError, DataError

SPLITS = ("development", "validation", "evaluation")
"""In the order in which they are used, and told."""
TRAINED_ON = "development"
MONITORED = "monitor"
"""The tenth of development that is kept apart where there is no validation split, or that split is to stay unseen."""
LEAST_GROUPS = 4
"""Fewer cannot be parted into two that learn and two that watch: one clip alone tells nothing of ranking."""


def hold_apart(clips: Sequence[Clip], share: float, seed: int = 0) -> set[str]:
    """The ids of about `share` of the clips, drawn by seed in whole groups; never none and never all.

    A clip without a group is a group of its own. Groups are drawn in random order, each taken where it brings the
    count nearer to `share`. Raises `DataError` where `share` is not between 0 and 1 or all clips are one group.
    """
    if not 0 < share < 1:
        raise DataError(f"share {share:g} to hold apart; expected more than 0 and less than 1.")
    groups: dict[tuple[bool, str], list[str]] = {}
    for clip in clips:
        groups.setdefault((bool(clip.group), clip.group or clip.clip_id), []).append(clip.clip_id)
    if len(groups) < 2:
        raise DataError(
            f"{len(clips)} clips in {len(groups)} group(s); expected two groups at least, to hold one apart."
        )
    members = list(groups.values())
    order = [members[index] for index in np.random.default_rng(seed).permutation(len(members))]
    wanted, taken = share * len(clips), set[str]()
    for ids in order:
        if abs(len(taken) + len(ids) - wanted) < abs(len(taken) - wanted) and len(taken) + len(ids) < len(clips):
            taken.update(ids)
    smallest: list[str] = min(order, key=len)
    return taken or set(smallest)


def with_monitor_split(
    collection: Collection, monitor_split: str, seed: int, *, spared: bool = True
) -> tuple[Collection, str]:
    """The collection and the split that training watches: the named one, `validation`, or a tenth of development.

    `monitor_split = "monitor"` asks for that tenth whatever else is there, so that validation stays unseen. It is kept
    apart by group, two groups at least; clips of `development-lists` that are of its groups become `monitor-lists`, and
    what is kept apart leaves development's rated lists. Of fewer than four groups none can be spared, and where
    `spared` is false none is: development itself is watched.
    """
    found = ", ".join(collection.splits) or "none"
    if TRAINED_ON not in collection.splits:
        raise DataError(f"{collection.root}: no clips of split {TRAINED_ON!r}; found {found}. Training needs some.")
    for split in (monitor_split, "" if monitor_split == MONITORED else "validation"):
        if split and split in collection.splits:
            return collection, split
        if split == monitor_split and split not in ("", MONITORED):
            raise ConfigError(f"train.monitor_split = {split!r}: not in {collection.root}; found {found}.")
    development = collection.gallery(TRAINED_ON)
    groups = {clip.group or clip.clip_id for clip in development}
    if len(groups) < LEAST_GROUPS or not spared:
        return collection, TRAINED_ON
    apart = hold_apart(development, max(0.1, 2 / len(groups)), seed)
    theirs = {clip.group for clip in development if clip.clip_id in apart and clip.group}
    moved = dict.fromkeys(apart, MONITORED) | {
        clip.clip_id: MONITORED + LISTS
        for clip in collection.clips
        if clip.split == TRAINED_ON + LISTS and clip.group in theirs
    }
    clips = [replace(clip, split=moved.get(clip.clip_id, clip.split)) for clip in collection.clips]
    owner = {caption.caption_id: caption.clip_id for caption in collection.captions}
    ratings = [r for r in collection.ratings if owner[r.caption_id] in moved or r.clip_id not in moved]
    return replace(collection, clips=clips, ratings=ratings), MONITORED
