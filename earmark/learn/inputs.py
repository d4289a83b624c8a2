"""What the loop asks for at every step: the clips' and captions' features, read once before it begins.

Log-mels stay on disk, memory-mapped; vectors and token ids are held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from earmark.audio.cache import Features
from earmark.data.collection import Collection
from earmark.errors import Problem
from earmark.learn.objectives import Objective
from earmark.model.dual_encoder import DualEncoder
from earmark.model.text_encoders import Progress


@dataclass
class Inputs:
    """The features of everything that a run asks for."""

    features: Mapping[str, Features]
    """By clip id."""
    captions: Sequence[Tensor]
    """Base vectors, or token ids where the text tower learns."""
    row: Mapping[str, int]
    """Caption id → place in `captions`."""

    def window(self, clip_id: str, epoch: int) -> Tensor:
        """A clip's features; a clip longer than a window shows one window an epoch, in turn, short ends left out."""
        found = self.features[clip_id]
        whole = [place for place, length in enumerate(found.seconds) if length >= found.seconds[0] / 2]
        return found.windows[whole[epoch % len(whole)]]

    def captions_of(self, caption_ids: Sequence[str]) -> list[Tensor]:
        """The captions' features."""
        return [self.captions[self.row[caption]] for caption in caption_ids]


def read_inputs(
    model: DualEncoder,
    collection: Collection,
    monitor_split: str,
    objectives: Sequence[Objective],
    progress: Progress | None,
) -> tuple[Inputs, list[Problem]]:
    """The features of all clips and captions that training and monitoring ask for, and what cannot be read."""
    clip_ids = {clip for objective in objectives for clip in objective.clip_ids}
    clip_ids |= {clip.clip_id for clip in collection.gallery(monitor_split)}
    caption_ids = {item.caption_id for objective in objectives for item in objective.items}
    caption_ids |= {caption.caption_id for caption in collection.captions_of(monitor_split)}
    clips = [clip for clip in collection.clips if clip.clip_id in clip_ids]
    captions = [caption for caption in collection.captions if caption.caption_id in caption_ids]
    features, problems = model.clip_features(collection, clips, progress)
    read = model.caption_features(collection, captions, progress)
    return Inputs(features, read, {caption.caption_id: row for row, caption in enumerate(captions)}), problems
