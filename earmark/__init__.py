"""Earmark: how well does a sound match words?

`earmark.load(run)` gives the trained model of a run; `Relevance` and `Collection` are the nouns. Importing
earmark loads neither torch nor any model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import ConfigError, DataError, EarmarkError
from earmark.relevance import Rating, Relevance

if TYPE_CHECKING:
    from earmark.model.dual_encoder import DualEncoder

__all__ = [
    "Caption",
    "Clip",
    "Collection",
    "ConfigError",
    "DataError",
    "EarmarkError",
    "Rating",
    "Relevance",
    "load",
]


def load(run: str | Path) -> DualEncoder:
    """The trained model of a run's folder, ready to embed, or the hub's of that name ("owner/name").

    A name is the hub's where it is a str and neither it nor the folder above it is here. Raises `DataError` where
    there is no run.
    """
    from earmark.model.dual_encoder import DualEncoder

    return DualEncoder.load(Path(run)) if Path(run).parent.is_dir() else DualEncoder.from_pretrained(run)
