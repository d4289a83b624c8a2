"""What a listener's ratings on the search page are worth to the model that searches next.

    python benchmarks/rated.py INDEX ../shared/data [--seeds 0 1 2 3 4]

INDEX is made by `earmark index ../shared/data/library --to INDEX`. The sounds are recorded, the ratings SIMULATED: for
half of the search terms of `benchmarks/search.py`, drawn by seed, a listener goes through the first 20 hits among half
A of the files (by `group`), by the untrained model and names, and rates those whose text means the term 80 ± 15, others
10 ± 10. Then each recipe is trained on the ratings as the page keeps them, and half B is ranked, by embedding alone,
for the terms that were rated and for the others: mAP and hit@10. Rows: untrained, `library.toml` on captions alone, the
same with `captions+ratings`, `library-rated.toml` (chosen by `--choose`, within half A). Ends with 1 where the last has
a lower mean mAP of the rated terms than the untrained one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from search import Library, file_of

import earmark
from earmark.data.collection import Collection
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.measure.metrics import average_precision, hit_rate
from earmark.search.engine import Engine
from earmark.search.query import Query
from earmark.search.rated import Rated, Region

RECIPES = Path(__file__).parent.parent / "recipes"
HITS = 20
WAYS = {
    "untrained": ("library.toml", ["train.max_epochs=0"]),
    "captions": ("library.toml", []),
    "captions+ratings": ("library.toml", ["objective.0.relevance=captions+ratings"]),
    "library-rated": ("library-rated.toml", []),
}


def rated_by(engine: Engine, library: Library, terms: list[str], inside: np.ndarray, seed: int, to: Path) -> Collection:
    """What the listener's searches leave behind."""
    rng, ratings = np.random.default_rng([seed, 1]), Rated(to, lambda *_: Path())
    ratings.begin()
    place = {file: at for at, file in enumerate(library.files)}
    for term in terms:
        meant, rank = library.meant(term), 0
        for hit in engine.search(Query(term, limit=0, fold=False)).hits:
            at = place[file_of(hit.shown)]
            if not inside[at]:
                continue
            rank += 1
            told = rng.normal(80, 15) if meant[at] else rng.normal(10, 10)
            region = Region(hit.path, hit.file_id, hit.content, 0.0, hit.duration_s, hit.duration_s)
            ratings.rate(region, term, float(np.clip(told, 0, 100).round()), "listener", stratum="search", rank=rank)
            if rank == HITS:
                break
    return Collection.read(to)


def split(library: Library, rng: np.random.Generator, *, choose: bool) -> tuple[np.ndarray, np.ndarray]:
    """[file]: among which the listener searches, and which are ranked: the halves, or two parts of the first."""
    half = library.halves()
    if not choose:
        return half, ~half
    groups = sorted({group for group, there in zip(library.groups, half, strict=True) if there})
    some = {groups[at] for at in rng.permutation(len(groups))[: len(groups) // 2]}
    part = half & np.array([group in some for group in library.groups])
    return part, half & ~part


def measured(
    engine: Engine, library: Library, paths: list[Path], seed: int, folder: Path, *, choose: bool
) -> dict[str, list[float]]:
    """mAP and hit@10 of rated terms, then of others, by way of training."""
    rng = np.random.default_rng([seed, 0])
    inside, ranked = split(library, rng, choose=choose)
    able = [
        term for term in library.queries() if min(library.meant(term)[inside].sum(), library.meant(term)[ranked].sum())
    ]
    order = [able[at] for at in rng.permutation(len(able))]
    rated, others = order[: len(order) // 2], order[len(order) // 2 :]
    collection = rated_by(engine, library, rated, inside, seed, folder / f"ratings{seed}")
    counts = f"{len(rated)} terms rated, {len(others)} others, {len(collection.ratings)} ratings"
    counts += f" of {len(collection.clips)} sounds"
    print(f"seed {seed}: {counts}, ranked {int(ranked.sum())}", flush=True)
    found = {}
    for way, (recipe, sets) in WAYS.items():
        run = folder / f"{way}{seed}"
        train(Recipe.read(RECIPES / recipe, [*sets, f"train.seed={seed}"]), collection, run)
        model = earmark.load(run)
        sounds = model.embed_audio([path for path, there in zip(paths, ranked, strict=True) if there])
        found[way] = []
        for terms in (rated, others):
            relevant = np.array([library.meant(term)[ranked] for term in terms], float)
            scores = model.embed_text(terms) @ sounds.T
            found[way] += [
                float(np.mean(average_precision(scores, relevant))),
                float(np.mean(hit_rate(scores, relevant, k=10))),
            ]
        print(f"  {way:18s}" + "  ".join(f"{value:.3f}" for value in found[way]), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--choose", action="store_true", help="within half A, where the recipe was chosen")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args()
    library, engine = Library.read(given.data), Engine(given.index)
    paths = [given.data / "library" / file for file in library.files]
    print("columns: mAP, hit@10 of the terms that were rated; mAP, hit@10 of others")
    with tempfile.TemporaryDirectory() as folder:
        all_ = [measured(engine, library, paths, seed, Path(folder), choose=given.choose) for seed in given.seeds]
    means = {way: np.mean([each[way] for each in all_], axis=0) for way in WAYS}
    for way, values in means.items():
        print(f"mean of {len(all_)} {way:18s}" + "  ".join(f"{value:.3f}" for value in values))
    gain = np.array([np.array(each["library-rated"]) - np.array(each["untrained"]) for each in all_])
    print("library-rated over untrained, each seed's mAP: " + ", ".join(f"{a:+.3f}/{b:+.3f}" for a, _, b, _ in gain))
    return int(means["library-rated"][0] < means["untrained"][0])


if __name__ == "__main__":
    sys.exit(main())
