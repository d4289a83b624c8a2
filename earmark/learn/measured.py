"""A run on a collection: its scores, and what of the collection it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.config import read_toml
from earmark.data.collection import Collection
from earmark.data.splits import TRAINED_ON
from earmark.errors import DataError
from earmark.learn.estimates import Scored as Scored
from earmark.learn.estimates import scored
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
    learned = set(map(str, trained.get("clips", []))) if learns else set()
    here = {clip.clip_id for clip in collection.clips}
    # the same sounds may have been imported once more under another name
    same = trained.get("name") == collection.name or 2 * len(learned & here) >= len(learned) > 0
    learned = learned if same else set()
    watched = trained.get("monitor_split")
    apart = watched not in collection.splits and split == TRAINED_ON  # a tenth that only the run knew
    watched_here = watched == split or apart or split is None
    texts = frozenset(caption.text for caption in collection.captions if caption.clip_id in learned)
    return Seen(len(gallery), len(gallery & learned), same and stops and watched_here, texts)


def evaluate_run(
    run: Path, collection: Collection, split: str | None, progress: Progress | None = None
) -> tuple[Evaluation, Scored, Seen]:
    """The evaluation of a run on a split, the scores that it comes from, and what the run saw of the split."""
    cosines, known = score(DualEncoder.load(run), collection, split, progress), seen(run, collection, split)
    found = evaluate(collection, split, cosines.scorer, without=cosines.without, seen_texts=known.texts)
    return found, cosines, known
