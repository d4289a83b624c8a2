"""A run on a collection: its scores, and what of the collection it has seen."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.config import read_toml
from earmark.data.collection import LISTS, Collection
from earmark.data.marks import same_clips
from earmark.data.splits import TRAINED_ON
from earmark.errors import DataError
from earmark.learn.estimates import Scored as Scored
from earmark.learn.estimates import scored
from earmark.learn.run import fingerprint
from earmark.measure.evaluate import Evaluation, evaluate
from earmark.model.dual_encoder import DualEncoder
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device


@dataclass(frozen=True)
class Seen:
    """What a run saw of a split, where it learned from the same collection."""

    clips: int
    """The split's."""
    trained_on: int
    """How many of them it learned from."""
    stopped_training: bool
    """Whether some of them stopped it: numbers on them are no test result."""
    texts: frozenset[str]
    """All captions that it learned from, of the collection's."""

    def counts(self) -> dict[str, Any]:
        """All but the texts, as `evaluate --json` prints them."""
        return {"clips": self.clips, "trained_on": self.trained_on, "stopped_training": self.stopped_training}


def score(model: DualEncoder, collection: Collection, split: str | None, progress: Progress | None = None) -> Scored:
    """The model's scores of the split's clips and captions, and of its rated pairs; None is all but `*-lists`."""
    model.to(best_device())
    rated = {rating.clip_id for rating in collection.rated(split)}
    asked = {rating.caption_id for rating in collection.rated(split)}
    inside = {clip.clip_id for clip in collection.gallery(split)}
    clips = [clip for clip in collection.clips if clip.clip_id in inside | rated]
    captions = [c for c in collection.captions if c.clip_id in inside or c.caption_id in asked]
    return scored(model, collection, clips, captions, progress)


def seen(run: Path, collection: Collection, split: str | None) -> Seen:
    """What the run saw of the split, by its `config.toml`."""
    tables = read_toml(run / "config.toml")
    trained, train = tables.get("data", {}), tables.get("train", {})
    if not isinstance(trained, dict) or not isinstance(train, dict) or not isinstance(trained.get("clips", []), list):
        raise DataError(f"{run / 'config.toml'}: its tables data or train are not as training wrote them.")
    learns = train.get("max_epochs") != 0  # an untrained control saw nothing
    stops = learns and train.get("monitor") != "last"
    gallery = {clip.clip_id for clip in collection.gallery(split)}
    if isinstance(trained.get("marks"), dict):
        same = same_clips(collection, trained["marks"])
        watched = bool(gallery & same & set(map(str, trained.get("watched", []))))
    else:
        same, watched = _same_by_name(run, trained, collection, split)
    learned = same & set(map(str, trained.get("clips", []))) if learns else set()
    texts = frozenset(caption.text for caption in collection.captions if caption.clip_id in learned)
    return Seen(len(gallery), len(gallery & learned), stops and watched, texts)


def _same_by_name(
    run: Path, trained: Mapping[str, Any], collection: Collection, split: str | None
) -> tuple[set[str], bool]:
    """The collection's clips where it is the one that the run learned from, and whether it was stopped by the split.

    For runs of earlier versions, which kept no marks of their clips: by the fingerprint, or by the name or half the
    ids, which two collections may share; then a warning says so.
    """
    learned, here = set(map(str, trained.get("clips", []))), {clip.clip_id for clip in collection.clips}
    if trained.get("fingerprint") != fingerprint(collection):
        # the same sounds may have been imported once more under another name
        if trained.get("name") != collection.name and not 2 * len(learned & here) >= len(learned) > 0:
            return set(), False
        warnings.warn(
            f"{run}: of an earlier version, which kept no marks of its clips: those of {collection.root} count as the "
            "same where their ids are, which another collection may have too. Train again to be sure",
            stacklevel=3,
        )
    watched = trained.get("monitor_split")
    apart = watched not in collection.splits and split == TRAINED_ON  # a tenth that only the run knew
    return here, watched == split or apart or split is None


def evaluate_run(
    run: Path, collection: Collection, split: str | None, progress: Progress | None = None
) -> tuple[Evaluation, Scored, Seen]:
    """The evaluation of a run on a split, the scores that it comes from, and what the run saw of the split."""
    model, known = DualEncoder.load(run), seen(run, collection, split)
    inside = {clip.clip_id for clip in collection.clips if split in (None, clip.split.removesuffix(LISTS))}
    asked = {caption.caption_id for caption in collection.captions if caption.clip_id in inside}
    readable, problems = model.with_caption_features(collection, asked)
    cosines = score(model, readable, split, progress)
    found = evaluate(readable, split, cosines.scorer, without=cosines.without, seen_texts=known.texts)
    return found, cosines._replace(problems=[*problems, *cosines.problems]), known
