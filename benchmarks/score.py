"""Ratings with intervals on captions that neither trained the run nor fitted the map: coverage, width, error.

    python benchmarks/score.py COLLECTION [--recipe recipes/proxy-joint.toml] [--on validation] [--seeds 0 1 2 …]

For each seed the own clips of a random fifth of development's rated captions, with all clips of their group, are
moved to a split `calibration` (twins to `calibration-lists`; they leave development's lists), the recipe is trained on
the rest, the map is fitted on `calibration` as `earmark score --fit --split calibration` does, and measured on another
split as `earmark score --data` does; beside it one whose intervals are equally wide everywhere. Exits 1 where the 90 %
interval covers less than 85 or more than 95 % in any seed, or the mean error is not below those of the best constant
and of cosine × 100.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from earmark import Collection
from earmark.analyse.answer import answer
from earmark.analyse.calibrate import Calibration, Curve, fit, smooth_curve, text_digest
from earmark.analyse.fitting import fit_run
from earmark.analyse.score import Scores, score_collection
from earmark.console import KIND
from earmark.data.collection import LISTS, base_of
from earmark.learn.recipe import Recipe
from earmark.learn.train import train

RECIPE = Path(__file__).parent.parent / "recipes" / "proxy-joint.toml"
FROM, TO = "development", "calibration"
LEVELS = (0.5, 0.8, 0.9, 0.95)
BOUND = (0.85, 0.95)
Row = dict[str, float]


def with_calibration(collection: Collection, seed: int, root: Path) -> Collection:
    """A copy whose split `calibration` has the own clips of a fifth of development's rated captions."""
    group = {clip.clip_id: clip.group or base_of(clip.clip_id) for clip in collection.clips}
    owner = {caption.caption_id: caption.clip_id for caption in collection.captions}
    rated = sorted({group[owner[rating.caption_id]] for rating in collection.rated(FROM)})
    apart = set(np.random.default_rng(seed).permutation(rated)[: round(len(rated) / 5)].tolist())
    moved = {
        clip.clip_id: TO + clip.split.removeprefix(FROM)
        for clip in collection.clips
        if clip.split in (FROM, FROM + LISTS) and group[clip.clip_id] in apart
    }
    clips = [replace(clip, split=moved.get(clip.clip_id, clip.split)) for clip in collection.clips]
    ratings = [r for r in collection.ratings if owner[r.caption_id] in moved or r.clip_id not in moved]
    replace(collection, clips=clips, ratings=ratings).write(root)
    return Collection.read(root)


def measured(recipe: Path, seed: int, collection: Collection, on: str) -> tuple[Row, str]:
    """The seed's numbers, and what was fitted on."""
    with tempfile.TemporaryDirectory() as folder:
        made = with_calibration(collection, seed, Path(folder) / "collection")
        run = train(Recipe.read(recipe, [f"train.seed={seed}"]), made, Path(folder) / "run").run
        fitted = fit_run(run, made, TO).calibration
        equal = with_equal_widths(fitted, score_collection(run, made, TO))
        scores = score_collection(run, made, on)
    found = answer(fitted, scores).measures
    assert found is not None
    row = {
        "MSE": found["expected"]["MSE"],
        "MSE of the cosine": found["cosine"]["MSE"],
        "MSE of the mean fitted on": found["constant_fitted"]["MSE"],
        "MSE of the mean here": found["constant_here"]["MSE"],
        **{name: found["expected"][name] for name in ("SRCC", "LCC", "KTAU")},
        **{f"coverage {name}": each["coverage"] for name, each in found["groups"].items()},
        **{f"width {name}": each["width"] for name, each in found["groups"].items()},
    }
    row |= by_level(fitted, scores) | by_level(equal, scores, ", equal widths")
    return row, f"{fitted.captions} captions, {fitted.pairs} pairs"


def with_equal_widths(fitted: Calibration, scores: Scores) -> Calibration:
    """The same map of the same captions, its intervals equally wide before they are cut to 0–100."""
    texts = set(fitted.texts or [])
    kept = np.array([text_digest(text) in texts for text in scores.texts])
    captions = np.array(scores.captions)[kept]
    return fit(scores.cosines[kept], scores.ratings[kept], captions, curve=equal_curve)


def equal_curve(cosines: np.ndarray, ratings: np.ndarray) -> Curve:
    found = smooth_curve(cosines, ratings)
    return found._replace(widths=np.ones(len(found.widths)))


def by_level(fitted: Calibration, scores: Scores, how: str = "") -> Row:
    """Coverage and mean width at each level."""
    found = {level: answer(fitted, scores, level).measures for level in LEVELS}
    return {
        f"{name} {100 * level:g} %{how}": each[name]
        for level, each in found.items()
        if each
        for name in ("coverage", "width")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--on", default="validation", metavar="SPLIT")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    arguments = parser.parse_args()
    collection = Collection.read(arguments.collection)
    rows = []
    for seed in arguments.seeds:
        row, fitted_on = measured(arguments.recipe, seed, collection, arguments.on)
        rows.append(row)
        print(f"seed {seed}: fitted on {fitted_on}", flush=True)
    print(f"{collection.name} ({KIND[collection.kind]}), {arguments.recipe.stem}, measured on {arguments.on}")
    print(f"{'':30}{'mean':>9}" + "".join(f"{f'seed {seed}':>9}" for seed in arguments.seeds))
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    for name, mean in means.items():
        digits = 1 if name.startswith("width") else 4 if name.startswith("MSE") else 3
        print(f"{name:30}{mean:9.{digits}f}" + "".join(f"{row[name]:9.{digits}f}" for row in rows))
    missed = [
        f"seed {seed}: coverage {row['coverage 90 %']:.3f}"
        for seed, row in zip(arguments.seeds, rows, strict=True)
        if not BOUND[0] <= row["coverage 90 %"] <= BOUND[1]
    ]
    missed += [f"MSE not below {name}" for name in means if name.startswith("MSE of") and means[name] <= means["MSE"]]
    for line in missed:
        print("missed:", line)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
