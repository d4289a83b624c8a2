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
    """The trained model of a run's folder, ready to embed. Raises `DataError` where the folder is not a run."""
    from earmark.model.dual_encoder import DualEncoder

    return DualEncoder.load(Path(run))
