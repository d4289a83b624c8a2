"""Learning quality on real sounds: a recipe against its own untrained model, over five holdouts.

    python benchmarks/library.py ../shared/data/library.csv [--recipe recipes/library.toml] [--seeds 0 1 2 3 4]

A holdout keeps a fifth of the clips apart by `group`; each distinct text is a query against the clips kept apart.
Nothing of them is seen in training; the recipe was chosen on inner holdouts of their development parts, so a clip of
one holdout can have stood in another's inner evaluation (LAB.md). "unseen" counts the queries alone whose
text stands in no training clip's caption. Ends with 1 where the mean mAP is below 1.3 times the untrained one, of all
texts or of the unseen ones.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from earmark.data.tables import import_table
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.train import train

RECIPE = Path(__file__).parent.parent / "recipes" / "library.toml"
BOUND = 1.3
COLUMNS = ("mAP", "hit@10", "mAP, unseen texts")


def measured(recipe: Path, sets: list[str], table: Path, seed: int, folder: Path) -> dict[str, list[float]]:
    """Untrained and trained: mAP, hit@10 and mAP over texts that training never saw, of one holdout."""
    data = folder / f"library{seed}"
    collection = import_table(
        table, data, audio=table.parent / "library", path="file", texts=["text"], holdout=0.2, group="group", seed=seed
    )
    found = {}
    for name, more in (("untrained", ["train.max_epochs=0"]), ("trained", [])):
        started = time.perf_counter()
        run = folder / f"{name}{seed}"
        train(Recipe.read(recipe, [*sets, *more]), collection, run)
        seconds = time.perf_counter() - started
        numbers = evaluate_run(run, collection, "evaluation")[0].numbers()
        there, unseen = numbers["text_to_audio"], numbers["text_to_audio_unseen_texts"]
        found[name] = [there["mAP"], there["hit@10"], unseen["mAP"]]
        clips = len(collection.gallery("evaluation"))
        counts = f"{there['queries']} texts, {unseen['queries']} of them unseen, {clips} clips"
        shown = "  ".join(f"{value:.3f}" for value in found[name])
        print(f"seed {seed} {name:9s} {shown}   {counts}, {seconds:.0f} s")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--set", dest="sets", action="append", default=[], help="override a key of the recipe")
    given = parser.parse_args()
    print("columns:", ", ".join(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        all_ = [measured(given.recipe, given.sets, given.table, seed, Path(folder)) for seed in given.seeds]
    means = {name: np.mean([each[name] for each in all_], axis=0) for name in ("untrained", "trained")}
    ratios = np.array([np.array(each["trained"]) / np.array(each["untrained"]) for each in all_])
    for name, values in means.items():
        print(f"mean of {len(all_)} {name:9s} " + "  ".join(f"{value:.3f}" for value in values))
    ratio = means["trained"] / means["untrained"]
    print("trained over untrained: " + ", ".join(f"{c} {r:.2f}" for c, r in zip(COLUMNS, ratio, strict=True)))
    print(f"per holdout, mAP: {', '.join(f'{value:.2f}' for value in ratios[:, 0])}")
    return int(min(ratio[0], ratio[2]) < BOUND)


if __name__ == "__main__":
    sys.exit(main())
