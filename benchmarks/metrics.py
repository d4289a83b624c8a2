"""The time of earmark's ranking measures beside pytrec_eval's: 5,225 captions against 1,045 clips, five a clip.

    python benchmarks/metrics.py

mAP, mAP@10, R@1, R@5, R@10 and nDCG@10, from the same array of scores; pytrec_eval's time includes the making of its
input, a dict of dicts. Each repetition times both, one after the other; medians are printed. Exit code 1 where earmark
is less than 4 times faster, or where a value differs by more than 1e-6.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import pytrec_eval

from earmark.measure.metrics import retrieval

NAMES = {
    "mAP": "map",
    "mAP@10": "map_cut_10",
    "R@1": "recall_1",
    "R@5": "recall_5",
    "R@10": "recall_10",
    "nDCG@10": "ndcg_cut_10",
}
WANTED = {"map", "map_cut.10", "recall.1,5,10", "ndcg_cut.10"}


def untied_scores(captions: int, clips: int, seed: int) -> np.ndarray:
    """[caption, clip] cosines of which no two in a row are equal: pytrec_eval breaks ties by name."""
    scores = np.random.default_rng(seed).normal(0.1, 0.15, (captions, clips)).astype(np.float32)
    while (tied := (np.diff(np.sort(scores, axis=1), axis=1) == 0).any(axis=1)).any():
        scores[tied] += np.random.default_rng(seed + 1).normal(0, 0.01, (int(tied.sum()), clips)).astype(np.float32)
    return scores


def by_pytrec_eval(scores: np.ndarray, owners: np.ndarray) -> dict[str, np.ndarray]:
    clips = [f"c{clip}" for clip in range(scores.shape[1])]
    qrels = {str(query): {clips[owner]: 1} for query, owner in enumerate(owners)}
    run = {str(query): dict(zip(clips, row, strict=True)) for query, row in enumerate(scores.tolist())}
    found = pytrec_eval.RelevanceEvaluator(qrels, WANTED).evaluate(run)
    return {name: np.array([found[str(q)][other] for q in range(len(owners))]) for name, other in NAMES.items()}


def by_earmark(scores: np.ndarray, owners: np.ndarray) -> dict[str, np.ndarray]:
    values = np.zeros(scores.shape, dtype=np.float32)
    values[np.arange(len(owners)), owners] = 1
    return retrieval(scores, values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=int, default=1045)
    parser.add_argument("--repetitions", type=int, default=5)
    clips, repetitions = (arguments := parser.parse_args()).clips, arguments.repetitions
    owners = np.repeat(np.arange(clips), 5)
    times: list[tuple[float, float, float]] = []
    difference = 0.0
    for repetition in range(repetitions):
        scores = untied_scores(len(owners), clips, seed=100 + repetition)
        begin = time.perf_counter()
        ours = by_earmark(scores, owners)
        between = time.perf_counter()
        theirs = by_pytrec_eval(scores, owners)
        end = time.perf_counter()
        by_earmark(scores.round(2), owners)
        times.append((between - begin, end - between, time.perf_counter() - end))
        difference = max(difference, *(float(np.abs(ours[name] - theirs[name]).max()) for name in NAMES))
    mine, other, tied = np.median(times, axis=0)
    ratio = float(np.median([theirs / ours for ours, theirs, _ in times]))
    print(f"{len(owners):,} captions x {clips:,} clips, median of {repetitions}: {', '.join(NAMES)}")
    print(f"earmark      {mine:8.3f} s, and {tied:.3f} s where scores of two decimals are full of ties")
    print(f"pytrec_eval  {other:8.3f} s, its input included")
    print(f"ratio        {ratio:8.1f} (at least 4)")
    print(f"difference   {difference:8.1e} at most (1e-6)")
    return 0 if ratio >= 4 and difference <= 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
