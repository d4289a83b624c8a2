"""What of a collection a run has learned from, and what must be said of numbers on it.

A caption trained the run if the run learned from it, from its words or from its clip; a twin and the clip that it
stands for are one, and so are a run and its teachers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from earmark.config import read_toml
from earmark.data.collection import LISTS, Caption, Collection, base_of
from earmark.learn.measured import seen


def trained_captions(run: Path, collection: Collection, captions: Sequence[Caption]) -> set[str]:
    """The ids of the captions that the run, or a teacher of it that is still there, learned from.

    By words, by clip (a twin and what it stands for being one), or as a twin in the lists of a split learned from.
    """
    texts, clips = _learned_from(run, collection)
    return {each.caption_id for each in captions if each.text in texts or base_of(each.clip_id) in clips}


def _learned_from(run: Path, collection: Collection) -> tuple[frozenset[str], set[str]]:
    """The texts of the collection that the run or its teachers learned from, and the clips, each twin by its base."""
    known = [(split, seen(each, collection, split)) for each in _with_teachers(run) for split in collection.splits]
    texts = frozenset[str]().union(*(each.texts for _, each in known))
    lists = {split + LISTS for split, each in known if each.trained_on}
    # a clip that was learned from has no other text; one text in common makes no clip so
    others = {caption.clip_id for caption in collection.captions if caption.text not in texts}
    clips = {caption.clip_id for caption in collection.captions} - others
    clips |= {clip.clip_id for clip in collection.clips if clip.split in lists}
    return texts, {base_of(clip) for clip in clips}


def _with_teachers(run: Path) -> list[Path]:
    """The run and, once each, the teachers that it and they learned from, as far as they are there."""
    found, asked = [run], [run]
    while asked:
        estimates = read_toml(asked.pop() / "config.toml").get("data", {}).get("estimates", {})
        taught = [Path(name) for of, made in estimates.items() if of.startswith("teacher:") for name in made]
        named = [folder for folder in taught if (folder / "config.toml").is_file()]
        new = [each for each in dict.fromkeys(named) if each not in found]
        found, asked = [*found, *new], [*asked, *new]
    return found


def stopping_splits(run: Path, collection: Collection, splits: Iterable[str]) -> frozenset[str]:
    """Those of the splits that stopped the run's training."""
    there = set(splits) & set(collection.splits)
    return frozenset(split for split in there if seen(run, collection, split).stopped_training)


def stopping_notes(run: Path, collection: Collection, captions: Sequence[Caption]) -> list[str]:
    """A line for each split that the captions are of and that stopped training."""
    splits = split_of(collection)
    stopped = stopping_splits(run, collection, (splits[caption.clip_id] for caption in captions))
    return [f"split {split} also stopped training: no test result" for split in sorted(stopped)]


def clip_notes(run: Path, collection: Collection, clip_ids: Sequence[str]) -> list[str]:
    """A line on the pairs whose clip trained the run, though their caption may not have."""
    clips = _learned_from(run, collection)[1]
    count = sum(base_of(clip) in clips for clip in clip_ids)
    what = f"{count:,} of {len(clip_ids):,} pairs are with clips that trained the run"
    return [f"{what}: with others, ratings may lie farther from what is expected"] if count else []


def seen_notes(run: Path, collection: Collection, captions: Sequence[Caption], clip_ids: Sequence[str]) -> list[str]:
    """What the run has seen of the captions and of each pair's clip, a line each."""
    trained = len(trained_captions(run, collection, captions))
    found = f"{trained:,} of {len(captions):,} captions trained the run"
    told = [f"{found}: no test result" if trained else found, *stopping_notes(run, collection, captions)]
    return told + clip_notes(run, collection, clip_ids)


def split_of(collection: Collection) -> dict[str, str]:
    """Clip → split, that of a twin being the one whose lists it stands in."""
    return {clip.clip_id: clip.split.removesuffix(LISTS) for clip in collection.clips}
