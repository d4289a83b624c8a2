"""The circle on GENERATED sounds: what simulated listeners' ratings are worth to the next model.

    python benchmarks/circle.py WORK [--clips 300] [--captions 60] [--raters 12] [--seeds 10]

Makes soundscapes, embeds them (YAMNet, all-MiniLM-L6-v2), pools pairs from development, lets simulated listeners rate
each pair twice over HTTP, exports their ratings, and trains heads by `recipes/frozen-joint.toml` (dropout .5) with them
and without (InfoNCE alone), seed by seed. Measured on evaluation: mAP, and Spearman's ρ with the soundscapes' own
ratings.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from earmark.collect.export import export
from earmark.collect.plan import Plan
from earmark.collect.pool import make_study
from earmark.collect.rehearse import REHEARSAL, serve_and_rehearse
from earmark.collect.sources import read_source
from earmark.collect.study import Settings
from earmark.data import soundscapes
from earmark.data.collection import Collection
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.model.embed import embed

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "frozen-joint.toml"
RATERS_A_PAGE = 2


def rated(work: Path, clips: int, captions: int, raters: int) -> tuple[Collection, Collection]:
    """The soundscapes, and the same with the ratings that simulated listeners gave."""
    sounds = soundscapes.generate(work / "sounds", clips=clips, seed=0)
    embed(sounds, "yamnet", text="all-MiniLM-L6-v2")
    plan = Plan(captions=captions, split="development", again=True, encoder="all-MiniLM-L6-v2")
    pages = len(make_study(sounds, work / "draft", plan).of_kind("task"))
    settings = Settings(raters_a_page=RATERS_A_PAGE, pages_a_rater=-(-RATERS_A_PAGE * pages // raters))
    study = make_study(sounds, work / "study", replace(plan, study=settings))
    done = serve_and_rehearse(study, raters, 0)
    print(f"{done.raters} simulated listeners, {done.ratings} ratings, checks among them (GENERATED)", flush=True)
    export(read_source(study.folder, store=str(study.folder / REHEARSAL)), work / "rated")
    return Collection.read(work / "sounds"), Collection.read(work / "rated")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    for name, default in (("--clips", 300), ("--captions", 60), ("--raters", 12), ("--seeds", 10)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    sounds, collected = rated(given.work, given.clips, given.captions, given.raters)
    found = []
    for seed in range(given.seeds):
        for name, weight in (("with", 0.3), ("without", 0.0)):
            sets = [f"train.seed={seed}", f"objective.1.weight={weight}", "audio.dropout=0.5"]
            run = given.work / f"{name}-{seed}"
            train(Recipe.read(RECIPE, sets), collected, run)
            numbers = evaluate_run(run, sounds, "evaluation")[0].numbers()
            found.append((numbers["text_to_audio"]["mAP"], numbers["ratings"]["spearman"]))
    values = np.array(found).reshape(given.seeds, 2, 2)
    for at, measure in enumerate(("mAP", "ρ")):
        more, less = values[:, 0, at], values[:, 1, at]
        gain = more - less
        print(
            f"{measure}: {more.mean():.3f} with their ratings, {less.mean():.3f} without; difference "
            f"{gain.mean():+.3f}, SD {gain.std(ddof=1):.3f}, above zero in {(gain > 0).sum()} of {given.seeds} seeds"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
