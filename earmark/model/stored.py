"""Vectors that stand in a collection's files in place of sounds or texts, and which models made them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from earmark.audio.cache import Features
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import DataError, Problem
from earmark.model.settings import Inputs


def vectors_of(collection: Collection, of: Literal["clip", "caption"], trained: Inputs | None = None) -> VectorTable:
    """The collection's vectors of clips or captions.

    Raises `DataError` where there are none, or they are not of the size and the model that was trained on.
    """
    vectors: VectorTable | None = getattr(collection, f"{of}_vectors")
    path = collection.root / f"{of}_vectors.npz"
    if vectors is None:
        raise DataError(f'{path}: not there, and the encoder is "vectors". Embed first.')
    found = vectors.vectors.shape[1]
    wanted = getattr(trained, f"{of}_size") if trained else 0
    if not found or wanted not in (0, found):
        raise DataError(
            f"{path}: vectors of {found} numbers; expected {wanted or 'some'}, as the model was trained on."
        )
    for key in (f"{of}_model", f"{of}_fingerprint"):
        before, now = getattr(trained, key, ""), str(named_models(collection).get(key, ""))
        if before and now and before != now:
            raise DataError(f"{path}: {key} is {now!r}; the model was trained on {before!r}. Embed with that one.")
    return vectors


def named_models(collection: Collection) -> Mapping[str, Any]:
    """The table `vectors` of collection.toml: which models made the vectors."""
    named = collection.about.get("vectors", {})
    if not isinstance(named, Mapping):
        raise DataError(f"{collection.root / 'collection.toml'}: vectors = {named!r}; expected a table.")
    return named


def vector_features(table: VectorTable, clips: Iterable[Clip]) -> tuple[dict[str, Features], list[Problem]]:
    """The clips' vectors as features, by clip id, and the clips that have none or a broken one."""
    found: dict[str, Features] = {}
    problems = []
    for clip in clips:
        if clip.clip_id not in table:
            problems.append(Problem(f"clip {clip.clip_id!r}", "no vector in clip_vectors.npz"))
            continue
        vector = table.rows([clip.clip_id])[0]
        if not np.isfinite(vector).all():
            problems.append(Problem(f"clip {clip.clip_id!r}", "its vector is not finite"))
            continue
        found[clip.clip_id] = Features([torch.from_numpy(vector)], [1.0])
    return found, problems


def with_caption_vectors(
    collection: Collection, inputs: Inputs, asked: Container[str]
) -> tuple[Collection, list[Problem]]:
    """The collection without captions whose stored vector is missing or not finite, and which of the asked these are.

    Each costs itself and its ratings, as a clip without a vector does. `inputs` are the model's. Raises `DataError`
    where no caption has a vector.
    """
    table = vectors_of(collection, "caption", inputs)
    whole = set(np.array(table.ids, dtype=object)[np.isfinite(table.vectors).all(axis=1)])
    problems, kept = [], []
    for caption in collection.captions:
        if caption.caption_id in table and caption.caption_id in whole:
            kept.append(caption)
        elif caption.caption_id in asked:
            missing = caption.caption_id not in table
            what = "no vector in caption_vectors.npz" if missing else "its vector is not finite"
            problems.append(Problem(f"caption {caption.caption_id!r}", what))
    if len(kept) == len(collection.captions):
        return collection, []
    if not kept:
        table.rows([caption.caption_id for caption in collection.captions])
        raise DataError(f"{table.path}: no caption's vector is finite. Embed the captions again.")
    there = {caption.caption_id for caption in kept}
    ratings = [rating for rating in collection.ratings if rating.caption_id in there]
    return replace(collection, captions=kept, ratings=ratings), problems


def own_caption_features(
    clips: Iterable[Clip], captions: Sequence[Caption], vectors: Sequence[Tensor]
) -> tuple[dict[str, Features], list[Problem]]:
    """Each clip's mean caption vector, of vectors at unit length, and the clips that have no two captions.

    Two captions of one text are one: whoever asks by it must find another. Raises `DataError` where no clip has two.
    """
    of: dict[str, list[int]] = {}
    for row, caption in enumerate(captions):
        of.setdefault(caption.clip_id, []).append(row)
    found: dict[str, Features] = {}
    problems = []
    for clip in clips:
        rows = of.get(clip.clip_id, [])
        texts = {captions[row].text for row in rows}
        if len(texts) < 2:
            what = f"{len(texts)} different caption(s); own-captions needs two, to leave out the one that is asked"
            problems.append(Problem(f"clip {clip.clip_id!r}", what))
            continue
        mean = F.normalize(torch.stack([vectors[row] for row in rows]), dim=1).mean(dim=0)
        found[clip.clip_id] = Features([mean], [1.0])
    if problems and not found:
        raise DataError(
            f"none of {len(problems)} clips has two different captions; own-captions leaves out the one that is asked "
            "and matches it with the others. Take a collection with several captions a clip."
        )
    return found, problems
