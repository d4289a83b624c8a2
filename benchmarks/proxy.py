"""Learning quality on the PROXY collection: five recipes × three seeds, against what they must reach.

    python benchmarks/proxy.py PROXY_COLLECTION [--seeds 0 1 2]

Numbers are of the validation split, which also stops training: they show that learning works, and are no test
results. Nothing here is audio: clip vectors stand in for sound. Exits 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from earmark import Collection
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.train import train

RECIPES = Path(__file__).parent.parent / "recipes"
BOUNDS = {
    "proxy-listnet-grrel": {"mAP": 0.09, "ρ": 0.53},
    "proxy-listnet-birel": {},
    "proxy-infonce-superbirel": {"mAP": 0.18, "ρ": 0.59},
    "proxy-infonce-clotho": {"mAP": 0.24, "ρ": 0.60},
    "proxy-joint": {},
}
GRREL_OVER_BIREL = 2.5


def measured(name: str, seed: int, collection: Collection) -> dict[str, float]:
    recipe = Recipe.read(RECIPES / f"{name}.toml", [f"train.seed={seed}"])
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        train(recipe, collection, Path(folder) / "run")
        seconds = time.perf_counter() - started
        numbers = evaluate_run(Path(folder) / "run", collection, "validation")[0].numbers()
    return {"mAP": numbers["text_to_audio"]["mAP"], "ρ": numbers["ratings"]["spearman"], "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    collection = Collection.read(arguments.collection)
    means: dict[str, dict[str, float]] = {}
    missed = []
    for name, bounds in BOUNDS.items():
        runs = [measured(name, seed, collection) for seed in arguments.seeds]
        means[name] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
        spread = {key: float(np.std([run[key] for run in runs], ddof=1)) if len(runs) > 1 else 0.0 for key in runs[0]}
        shown = "  ".join(f"{key} {means[name][key]:.3f} ± {spread[key]:.3f}" for key in ("mAP", "ρ"))
        print(f"PROXY validation  {name:26s} {shown}  {means[name]['seconds']:.0f} s a run", flush=True)
        missed += [f"{name}: {key} below {least}" for key, least in bounds.items() if means[name][key] < least]
    ratio = means["proxy-listnet-grrel"]["mAP"] / means["proxy-listnet-birel"]["mAP"]
    print(f"ListNet on GrRel over ListNet on BiRel, mAP: {ratio:.1f} (at least {GRREL_OVER_BIREL})")
    if ratio < GRREL_OVER_BIREL:
        missed.append("GrRel over BiRel")
    for line in missed:
        print("missed:", line)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
