"""What is measured of captions and clips: one number each a feature, and what a reader of the numbers must know."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from earmark.errors import Problem


@dataclass(frozen=True)
class Features:
    """Features of a sequence of captions or clips."""

    values: dict[str, NDArray[np.float64]]
    """Name → one number an item, in the items' order; NaN where it is not defined."""
    notes: list[str] = field(default_factory=list)
    """How they were read, what could not be had, and how many are undefined: a line each."""
    problems: list[Problem] = field(default_factory=list)
    """Items that could not be read."""
