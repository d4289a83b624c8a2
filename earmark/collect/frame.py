"""What of a collection can be asked: clips that can be heard, each sound once, and their captions, each text once.

Texts are compared as `overlap.plain_text` has them: case, blanks and the punctuation at the end do not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from earmark.audio.decode import decoders_silent, unmixed
from earmark.data.check import Names, is_file, shown
from earmark.data.collection import LISTS, Caption, Clip, Collection
from earmark.data.overlap import plain_text
from earmark.errors import DataError, EarmarkError, Problem

Progress = Callable[[str, int, int], None]
"""Told (what is being done, done, all)."""
Scorer = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Caption ids and clip ids → how well they match, float32 [caption, clip]; NaN where nobody knows."""
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → unit vectors, float32 [text, dim]."""
AT_ONCE = 256
"""Captions whose likeness is computed in one piece."""
NOT_HEARD = "The clip is left out."


@dataclass
class Frame:
    """What can be asked."""

    clips: list[Clip]
    captions: list[Caption]
    """All captions of the clips, in the collection's order."""
    seconds: float
    """The mean length of the clips."""
    problems: list[Problem] = field(default_factory=list)
    """The clips and captions that were left out, and why."""

    def __post_init__(self) -> None:
        self.at = {clip.clip_id: place for place, clip in enumerate(self.clips)}
        self.text = {caption.caption_id: plain_text(caption.text) for caption in self.captions}
        bearing: dict[str, set[int]] = {}
        for caption in self.captions:
            bearing.setdefault(self.text[caption.caption_id], set()).add(self.at[caption.clip_id])
        self.bearing: Mapping[str, set[int]] = bearing
        """Plain text → the places of the clips that bear it."""


def frame(
    collection: Collection,
    split: str | None,
    without: Mapping[str, Problem] | None = None,
    progress: Progress | None = None,
) -> Frame:
    """The clips of the split (None: of all but `*-lists`) that can be heard, and their captions.

    Each sound is decoded whole. `without` are clips that are left out for another reason. Raises `DataError` where no
    clip has a sound.
    """
    gallery = collection.gallery(split)
    problems: dict[str, Problem] = dict(without or {})
    _check_sounds(collection, gallery)
    paths = {clip.clip_id: path for clip, path in _paths(collection, gallery, problems) if clip.clip_id not in problems}
    lengths = _lengths(paths, partial(collection.where, "clips.csv"), problems, progress)
    clips = [clip for clip in gallery if clip.clip_id in lengths]
    if not clips:
        first = next(iter(problems.values()))
        raise DataError(f"{collection.root}: none of {len(gallery)} clips can be heard. First: {first}")
    inside = {clip.clip_id for clip in clips}
    captions = [caption for caption in collection.captions if caption.clip_id in inside]
    odd = [caption for caption in captions if "\0" in caption.caption_id + caption.text]
    ordered = [problems[clip.clip_id] for clip in gallery if clip.clip_id in problems]
    for caption in odd:
        what = "holds a NUL character. The caption is left out."
        ordered.append(Problem(collection.where("captions.csv", caption.caption_id), what))
        captions.remove(caption)
    return Frame(clips, captions, float(np.mean(list(lengths.values()))), ordered)


def _check_sounds(collection: Collection, gallery: Sequence[Clip]) -> None:
    """Raises `DataError` where there are vectors and no sounds."""
    if not gallery:
        why = "Add some to clips.csv."
        if collection.clips:
            why = f"All of {len(collection.clips)} stand in rated lists (*{LISTS}). Name their split."
        elif collection.problems:
            why = f"First of the rows left out: {collection.problems[0]}"
        raise DataError(f"{collection.root}: no clips to ask; expected some with sounds. {why}")
    if not any(clip.path for clip in gallery):
        raise DataError(
            f"{collection.root}: none of {len(gallery)} clips has a sound (the paths in clips.csv are empty); people "
            "can only rate what they hear. Put the sounds there and their paths into clips.csv."
        )


def _paths(
    collection: Collection, gallery: Sequence[Clip], problems: dict[str, Problem]
) -> Iterator[tuple[Clip, Path]]:
    """The files of the clips that have one, each file once; why others have none goes to the problems."""
    names, first = Names(), dict[Path, str]()
    for clip in gallery:
        where = collection.where("clips.csv", clip.clip_id)
        path = collection.audio_path(clip) if clip.path else None
        if "\0" in clip.clip_id:
            what = "the clip's id holds a NUL character"
        elif path is None:
            what = "no sound (the path is empty)"
        elif not is_file(path):
            what = names.missing(collection.root.resolve(), clip.path)
        elif (same := first.setdefault(path, where)) != where:
            what = f"the same sound as {same}"
        else:
            yield clip, path
            continue
        problems.setdefault(clip.clip_id, Problem(where, f"{what}. {NOT_HEARD}"))


def _lengths(
    paths: Mapping[str, Path], where: Callable[[str], str], problems: dict[str, Problem], progress: Progress | None
) -> dict[str, float]:
    """Seconds by clip; each sound is decoded whole, on all cores. Why it cannot be goes to the problems."""
    found: dict[str, float] = {}
    with decoders_silent():
        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        try:
            lengths = zip(paths, pool.map(_length, paths.values()), strict=True)
            for done, (clip_id, length) in enumerate(lengths, start=1):
                if isinstance(length, float):
                    found[clip_id] = length
                else:
                    problems[clip_id] = Problem(where(clip_id), f"{length}. {NOT_HEARD}")
                if progress:
                    progress("decoding sounds", done, len(paths))
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def _length(path: Path) -> float | str:
    """Seconds, or why nobody can hear the sound."""
    try:
        with unmixed(path) as sound:
            frames, silent = 0, True
            for block in sound.blocks:
                frames += len(block)
                silent = silent and not block.any()
            return "silent: every sample is 0" if silent else frames / sound.rate
    except (EarmarkError, OSError) as error:
        return shown(str(error).removeprefix(f"{path}: ")).rstrip(".")


def in_turn(found: Frame, rng: Generator) -> list[Caption]:
    """Every text once, in random order: a second caption of a clip comes after the first of every clip."""
    of: dict[str, list[Caption]] = {}
    for place in rng.permutation(len(found.captions)):
        caption = found.captions[place]
        of.setdefault(caption.clip_id, []).append(caption)
    seen: set[str] = set()
    ordered: list[Caption] = []
    while of:
        for clip_id in [*of]:
            captions = of[clip_id]
            while captions and found.text[captions[0].caption_id] in seen:
                captions.pop(0)
            if captions:
                ordered.append(captions.pop(0))
                seen.add(found.text[ordered[-1].caption_id])
            if not captions:
                del of[clip_id]
    return ordered


def split_of(clip: Clip) -> str:
    """The split whose clips stand beside this one in lists."""
    return clip.split.removesuffix(LISTS)


def likeness(found: Frame, encode: Encode) -> Scorer:
    """How like a caption the best caption of a clip is: cosine of the texts' vectors; NaN of clips without captions."""
    vectors = encode([caption.text for caption in found.captions])
    row = {caption.caption_id: place for place, caption in enumerate(found.captions)}
    owners = np.array([found.at[caption.clip_id] for caption in found.captions], dtype=np.int64)
    order = np.argsort(owners, kind="stable")
    sorted_vectors = vectors[order].T
    captioned, starts = np.unique(owners[order], return_index=True)

    def scores(caption_ids: Sequence[str], clip_ids: Sequence[str]) -> NDArray[np.float32]:
        best = np.full((len(caption_ids), len(found.clips)), np.nan, np.float32)
        for at in range(0, len(caption_ids), AT_ONCE):
            asked = vectors[[row[caption] for caption in caption_ids[at : at + AT_ONCE]]]
            best[at : at + AT_ONCE, captioned] = np.maximum.reduceat(asked @ sorted_vectors, starts, axis=1)
        return best[:, [found.at[clip] for clip in clip_ids]]

    return scores
