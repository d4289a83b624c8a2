"""A map fitted to a run: on rated captions that neither trained it nor are kept for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from earmark.analyse.calibrate import Calibration, fit, text_digest
from earmark.analyse.pairs import captions_of, rated_pairs
from earmark.analyse.score import with_cosines
from earmark.analyse.trained import clip_notes, split_of, stopping_notes, trained_captions
from earmark.data.collection import Caption, Collection
from earmark.errors import DataError, Problem
from earmark.model.dual_encoder import DualEncoder, run_fingerprint
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device
from earmark.relevance import without_anchors

HELD = "evaluation"
"""The split that nothing is fitted on unless it is named."""


@dataclass(frozen=True)
class Fitted:
    """A calibration, and what was not fitted on."""

    calibration: Calibration
    notes: list[str]
    problems: list[Problem]


def fit_run(run: Path, collection: Collection, split: str | None = None, progress: Progress | None = None) -> Fitted:
    """The calibration of the run on the split's rated captions that did not train it; not yet written.

    Without a split on those of every split but `evaluation`. Raises `DataError` where nobody rated anything, or too few
    are left.
    """
    model = DualEncoder.load(run).to(best_device())
    fingerprint = run_fingerprint(run)
    where = f"{collection.root}, {f'split {split}' if split else 'every split but evaluation'}"
    rated = collection.rated(split, anchors=True)
    if not rated:
        raise DataError(
            f"{collection.root}: no ratings{f' of split {split}' if split else ''}; expected some to fit on, in "
            f"{collection.root / 'ratings.csv'} (caption_id,clip_id,rating of 0–100). Put them there, or ask people: "
            f"earmark collect pool {collection.root} --to STUDY."
        )
    ratings, notes = without_anchors(rated)
    pairs = rated_pairs(collection, ratings)
    captions, more = _to_fit_on(run, collection, captions_of(pairs), split, where)
    notes += more
    kept = {caption.caption_id for caption in captions}
    asked = [pair for pair in pairs if pair.caption.caption_id in kept]
    found = with_cosines(model, collection, asked, progress, where)
    try:
        calibration = fit(found.cosines, found.ratings, [pair.caption.caption_id for pair in found.pairs])
    except DataError as error:
        raise DataError(f"{where}: {error}{f' {notes[0]}.' if notes else ''}") from error
    heard = [pair.clip.clip_id for pair in found.pairs]
    about = replace(
        calibration,
        collection=collection.name,
        kind=collection.kind,
        split=split,
        texts=sorted({text_digest(caption.text) for caption in captions_of(found.pairs)}),
        fingerprint=fingerprint,
    )
    return Fitted(about, [*notes, *clip_notes(run, collection, heard)], found.problems)


def _to_fit_on(
    run: Path, collection: Collection, captions: Sequence[Caption], split: str | None, where: str
) -> tuple[list[Caption], list[str]]:
    """Those of the captions that neither trained the run nor are kept for tests, and what is to be said of the rest."""
    trained = trained_captions(run, collection, captions)
    splits = split_of(collection)
    held = {c.caption_id for c in captions if split is None and splits[c.clip_id] == HELD} - trained
    left = [caption for caption in captions if caption.caption_id not in trained | held]
    if not left:
        held_out = f"fit on {HELD} (--split {HELD}), which then tests nothing"
        raise DataError(
            f"{where}: no rated caption to fit on; found {len(captions):,}, of which {len(trained):,} trained the run "
            f"and {len(held):,} are of {HELD}, which is kept for tests. Rate others, "
            f"or {held_out if held else 'keep a split from training'}."
        )
    notes = []
    if trained:
        notes.append(f"{len(trained):,} of {len(captions):,} rated captions left out: they trained the run")
    if held:
        notes.append(
            f"{len(held):,} rated captions left out: they are of {HELD}, kept for tests (--split {HELD} fits on it)"
        )
    return left, notes + stopping_notes(run, collection, left)
