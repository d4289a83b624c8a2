"""Stand-in vectors for the sounds of Clotho: real captions and people's ratings, and no audio.

A clip's vector is made of its first two captions: the mean of their embeddings, taken to the first 256 principal
components of all development captions and to unit length, plus noise. Its texts are the captions from the third on.
A rated caption that is one of the first two cannot be set against a clip that it made itself: it belongs to a *twin*, a
clip `clip~caption` of the split `S-lists` that is made of the first two others, has the clip's noise, and takes the
clip's place in that list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.data.collection import LISTS, TWIN, VECTOR_FILES, Caption, Clip, Collection, VectorTable
from earmark.data.splits import SPLITS
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import check_new_folder, writing_folder
from earmark.relevance import Rating

COMPONENTS = 256
NOISE = 1.25
KEPT = ("file_name",)
"""Columns of Clotho's clips that go along: what the data set calls them."""
SEED = 1234
"""Of development's noise; validation's is the next, evaluation's the one after."""
HIDDEN = 2
"""So many captions of a clip make its vector; the others are its texts."""
TEXT_MODEL = "all-mpnet-base-v2"

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to vectors [text, base]."""
Vectors = Mapping[str, NDArray[np.float32]]
"""The embedding of each caption, by its id."""


def make(
    source: Collection,
    root: Path | str,
    encode: Encode,
    *,
    noise: float = NOISE,
    model: str = TEXT_MODEL,
    fingerprint: str = "",
) -> Collection:
    """The collection that it writes into the new folder `root`; its `problems` tell what of `source` was left out.

    It takes the splits that people rated, and GrRel's text where that differs from Clotho's. The noise is Gaussian, of
    variance noise² / 256 a component. `model` and `fingerprint` are those of `encode`, for `collection.toml`.
    Raises `DataError` where `source` holds no ratings or too few captions, or where `root` is there already;
    `ConfigError` on a noise below 0 or not finite, or an encoder of fewer than 256 numbers.
    """
    check_wishes(Path(root), noise)
    splits = _rated_splits(source)
    texts = _texts(source, {SPLITS[0], *splits})
    parts = [_part(source, split, texts) for split in splits]
    _check_enough(source, texts, parts)
    root = Path(root)
    with writing_folder(root) as aside:
        embedded = _embedded(texts, encode)
        axes = _fitted(source, texts, embedded)
        _clip_vectors(parts, embedded, axes, noise).write(aside / VECTOR_FILES[0])
        captions = [caption for part in parts for caption in part.captions]
        _caption_vectors(captions, embedded).write(aside / VECTOR_FILES[1])
        clips = [clip for part in parts for clip in part.clips]
        ratings = [rating for part in parts for rating in part.ratings]
        about = _about(source, noise, model, fingerprint)
        Collection(aside, clips, captions, ratings, f"{source.name}-proxy", "proxy", about=about).write()
    found = Collection.read(root)
    found.problems += [problem for part in parts for problem in part.problems]
    return found


def check_wishes(root: Path, noise: float) -> None:
    """Raises `ConfigError` on a noise below 0 or not finite, `DataError` where `root` is there already."""
    if not (noise >= 0 and math.isfinite(noise)):
        raise ConfigError(f"noise = {noise}; expected 0 or more, such as {NOISE}.")
    check_new_folder(root)


def _rated_splits(source: Collection) -> list[str]:
    found = [split for split in SPLITS if split in source.splits and source.rated(split)]
    if not found:
        raise DataError(
            f"{source.root}: no ratings; expected GrRel's. Make it again with GrRel's files among the others."
        )
    return found


def _check_enough(source: Collection, texts: Mapping[str, Sequence[Caption]], parts: Sequence[_Part]) -> None:
    """Raises `DataError` where no clip has enough captions, or development too few for the components."""
    fitted = sum(len(texts[clip.clip_id]) for clip in source.clips if clip.split == SPLITS[0])
    whole = sum(not clip.split.endswith(LISTS) for part in parts for clip in part.clips)
    if fitted <= COMPONENTS or not whole:
        raise DataError(
            f"{source.root}: {fitted} captions of {SPLITS[0]}, and {whole} clips with {HIDDEN + 1} or more; "
            f"expected more than {COMPONENTS} captions, five a clip. Take all of Clotho."
        )


def _texts(source: Collection, splits: set[str]) -> dict[str, list[Caption]]:
    """The captions of each clip of the splits, in order, in GrRel's words."""
    found: dict[str, list[Caption]] = {clip.clip_id: [] for clip in source.clips if clip.split in splits}
    for caption in source.captions:
        if caption.clip_id in found:
            text = caption.more.get("text_grrel") or caption.text
            found[caption.clip_id].append(Caption(caption.caption_id, caption.clip_id, text))
    return found


def _embedded(texts: Mapping[str, Sequence[Caption]], encode: Encode) -> Vectors:
    captions = [caption for each in texts.values() for caption in each]
    vectors = encode([caption.text for caption in captions])
    return {caption.caption_id: vector for caption, vector in zip(captions, vectors, strict=True)}


def _about(source: Collection, noise: float, model: str, fingerprint: str) -> dict[str, Any]:
    """What else `collection.toml` tells."""
    return {
        "about": "real captions and people's ratings; the clips' vectors are made of captions and stand in for audio",
        "made_of": {"name": source.name, "licence": source.about.get("licence", "")},
        "generator": f"earmark data proxy --noise {noise:g} --text-model {model}",
        "vectors": {"caption_model": model, "caption_fingerprint": fingerprint},
    }


# Clips, texts and ratings


@dataclass
class _Part:
    """What becomes of one split."""

    clips: list[Clip] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    ratings: list[Rating] = field(default_factory=list)
    made_of: dict[str, list[str]] = field(default_factory=dict)
    """The ids of the captions that make each clip's vector."""
    noise: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Each clip's, [component], of variance 1 / 256."""
    problems: list[Problem] = field(default_factory=list)

    def add(self, clip: Clip, hidden: Sequence[str], texts: Sequence[Caption], noise: NDArray[np.float64]) -> None:
        """Adds a clip, the ids of the captions that make it, its texts and its noise."""
        self.clips.append(clip)
        self.captions += texts
        self.made_of[clip.clip_id] = list(hidden)
        self.noise[clip.clip_id] = noise


def _part(source: Collection, split: str, texts: Mapping[str, Sequence[Caption]]) -> _Part:
    """The split's clips and their texts, then the twins and theirs, and the ratings."""
    part, gallery = _Part(), source.gallery(split)
    rng = np.random.default_rng(SEED + SPLITS.index(split))
    draws = rng.standard_normal((len(gallery), COMPONENTS)) / math.sqrt(COMPONENTS)
    for clip, noise in zip(gallery, draws, strict=True):  # a clip that is left out has a draw too: it changes no other
        own = texts[clip.clip_id]
        if len(own) > HIDDEN:
            hidden = [caption.caption_id for caption in own[:HIDDEN]]
            group = clip.group or clip.clip_id  # a twin stays with its clip in every split
            names = {key: clip.more[key] for key in KEPT if key in clip.more}
            part.add(Clip(clip.clip_id, "", split, group, names), hidden, own[HIDDEN:], noise)
        else:
            what = f"{len(own)} captions; expected {HIDDEN + 1} or more. The clip is left out with its ratings."
            part.problems.append(Problem(source.where("clips.csv", clip.clip_id), what))
    _take_ratings(part, source.rated(split, anchors=True), texts)
    return part


def _take_ratings(part: _Part, ratings: Sequence[Rating], texts: Mapping[str, Sequence[Caption]]) -> None:
    """Adds the ratings of the part's captions and clips, and the twins that they ask for."""
    clips = {clip.clip_id: clip for clip in part.clips}
    captions = {caption.caption_id: caption for clip_id in clips for caption in texts[clip_id]}
    for rating in ratings:
        if rating.caption_id not in captions or rating.clip_id not in clips:
            continue
        caption = captions[rating.caption_id]
        own = caption.clip_id
        if rating.caption_id in part.made_of[own]:
            twin = f"{own}{TWIN}{rating.caption_id}"
            if twin not in part.made_of:
                others = [each.caption_id for each in texts[own] if each is not caption]
                clip = replace(clips[own], clip_id=twin, split=clips[own].split + LISTS)
                part.add(clip, others[:HIDDEN], [replace(caption, clip_id=twin)], part.noise[own])
            rating = replace(rating, clip_id=twin) if rating.clip_id == own else rating
        part.ratings.append(rating)


# Vectors


class Axes(NamedTuple):
    """Where vectors lie and in which directions they differ most: `mean` [base], `directions` [base, component]."""

    mean: NDArray[np.float64]
    directions: NDArray[np.float64]

    def unit(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """The vectors along the directions, of unit length: [n, base] → [n, component]."""
        along = (vectors - self.mean) @ self.directions
        length: NDArray[np.float64] = np.linalg.norm(along, axis=1, keepdims=True)
        return along / length


def principal_axes(vectors: NDArray[np.float32], components: int) -> Axes:
    """The first principal components of vectors [n, base]; each direction's greatest value is positive."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors - mean
    directions = np.linalg.eigh(centred.T @ centred)[1][:, : -components - 1 : -1]
    greatest = np.abs(directions).argmax(axis=0)
    return Axes(mean, directions * np.sign(directions[greatest, np.arange(components)]))


def _fitted(source: Collection, texts: Mapping[str, Sequence[Caption]], embedded: Vectors) -> Axes:
    """The axes of all development captions. Raises `ConfigError` where their vectors are too small."""
    inside = [clip.clip_id for clip in source.clips if clip.split == SPLITS[0]]
    fitted = np.stack([embedded[caption.caption_id] for clip_id in inside for caption in texts[clip_id]])
    if fitted.shape[1] < COMPONENTS:
        raise ConfigError(
            f"text model: vectors of {fitted.shape[1]} numbers; expected {COMPONENTS} or more. Name a larger one."
        )
    return principal_axes(fitted, COMPONENTS)


def _clip_vectors(parts: Sequence[_Part], embedded: Vectors, axes: Axes, noise: float) -> VectorTable:
    made_of = {clip_id: captions for part in parts for clip_id, captions in part.made_of.items()}
    means = [np.mean([embedded[each] for each in captions], axis=0, dtype=np.float64) for captions in made_of.values()]
    draws = np.stack([draw for part in parts for draw in part.noise.values()])
    vectors = axes.unit(np.stack(means)) + noise * draws
    return VectorTable(tuple(made_of), vectors.astype(np.float32))


def _caption_vectors(captions: Sequence[Caption], embedded: Vectors) -> VectorTable:
    ids = tuple(caption.caption_id for caption in captions)
    return VectorTable(ids, np.stack([embedded[each] for each in ids]).astype(np.float32))
