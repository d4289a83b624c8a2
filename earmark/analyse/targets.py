"""What features are held against: people's ratings, what a run makes of the pairs, how far the two are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.calibrate import Calibration
from earmark.analyse.pairs import Pair, captions_of
from earmark.analyse.score import cosines_of
from earmark.analyse.trained import stopping_splits, trained_captions
from earmark.data.collection import Collection, shouted
from earmark.errors import Problem
from earmark.model.dual_encoder import DualEncoder
from earmark.model.share import CALIBRATION
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device
from earmark.relevance import DIGITS, spread

Floats = NDArray[np.float64]

TARGETS = {
    "HR": "mean rating over raters, 0–100",
    "SD-HR": "standard deviation (n − 1) over raters, of pairs that two or more rated",
    "MR": "the run's cosine",
    "D(H, M)": "|MR − HR / 100|, the paper's form",
    "D(H, M) signed": "MR − HR / 100: above 0 the machine rates higher",
    "D(H, M) fitted": "the paper's form with the rating that the run's calibration expects in the place of MR",
    "D(H, M) fitted signed": "(expected rating − HR) / 100",
    "APT": "mean seconds that raters played the sound",
}
"""What each is, in the order of tables."""


class OfRun(NamedTuple):
    """What a run makes of pairs, and what of them it has seen."""

    name: str
    cosines: Floats
    """One a pair; NaN where it has none."""
    expected: Floats | None
    """The ratings that its calibration expects, 0–100; None where it has no calibration."""
    trained: frozenset[str]
    """The captions that trained it, by id."""
    stopped: frozenset[str]
    """The splits that stopped its training."""
    notes: list[str]
    problems: list[Problem]


def of_run(
    run: Path, model: DualEncoder, collection: Collection, pairs: Sequence[Pair], progress: Progress | None = None
) -> OfRun:
    """The run's cosines of the pairs, and the ratings that they stand for. Raises `DataError` on another run's map."""
    calibration = Calibration.read(run) if (run / CALIBRATION).exists() else None
    asked = [(pair.caption.caption_id, pair.clip.clip_id) for pair in pairs]
    cosines, problems = cosines_of(model.to(best_device()), collection, asked, progress)
    captions = captions_of(pairs)
    trained = frozenset(trained_captions(run, collection, captions))
    if calibration is None:
        notes = [f"D(H, M) fitted: {run.name} has no calibration (`earmark score {run} --fit DIR` makes one)"]
    else:
        notes = [f"D(H, M) fitted: {_provenance(calibration, [caption.text for caption in captions])}"]
    return OfRun(
        run.name,
        cosines,
        calibration.rating(cosines)[0] if calibration else None,
        trained,
        stopping_splits(run, collection, {pair.split for pair in pairs}),
        notes,
        problems,
    )


def _provenance(calibration: Calibration, texts: Sequence[str]) -> str:
    """What the map was fitted on, and how many of the study's texts are among that."""
    distinct = set(texts)
    known = calibration.fitted_on(distinct)
    told = f"by a map fitted on {calibration.pairs:,} pairs of {calibration.captions:,} captions of "
    told += f"{calibration.collection} ({shouted(calibration.kind)}), "
    told += f"split {calibration.split}" if calibration.split else "every split but evaluation"
    flatters = f"; {known:,} of the study's {len(distinct):,} texts are among them, which flatters it"
    return told + (flatters if known else "")


def targets(pairs: Sequence[Pair], run: OfRun | None) -> dict[str, Floats]:
    """Those of `TARGETS` that the data has, in that order: one number a pair, NaN where undefined."""
    played = [[rating.played_s for rating in pair.ratings if rating.played_s is not None] for pair in pairs]
    hr = np.array([pair.rating for pair in pairs])
    found = {
        "HR": hr,
        "SD-HR": np.array([spread([rating.rating for rating in pair.ratings]) for pair in pairs], dtype=np.float64),
        "APT": _rounded([np.mean(each) if each else np.nan for each in played]),
    }
    if run is not None:
        found |= {"MR": run.cosines} | _distances("D(H, M)", run.cosines - hr / 100)
    if run is not None and run.expected is not None:
        found |= _distances("D(H, M) fitted", (run.expected - hr) / 100)
    return {name: found[name] for name in TARGETS if name in found and not np.isnan(found[name]).all()}


def _rounded(values: Sequence[Any]) -> Floats:
    return np.array(values, dtype=np.float64).round(DIGITS)


def _distances(name: str, signed: Floats) -> dict[str, Floats]:
    return {name: abs(signed), f"{name} signed": signed}


def missing(found: Mapping[str, Floats], run: OfRun | None) -> Iterator[str]:
    """The targets that the data does not have, and why, a line each."""
    if "SD-HR" not in found:
        yield "SD-HR: no pair has two ratings (the file may hold means over raters)"
    if "APT" not in found:
        yield "APT: no rating says how long the sound was played (column played_s)"
    if run is None:
        yield "MR, D(H, M): no run was given (--run)"
    elif "MR" not in found:
        yield "MR, D(H, M): no pair has a cosine"
