"""How many planted raters are flagged, and how many honest ones are: in RELATE's real ratings, and in studies made up.

    OMP_NUM_THREADS=1 python benchmarks/raters.py relate ../shared/data/texts/relate/REL.csv
    OMP_NUM_THREADS=1 python benchmarks/raters.py studies

RELATE: a planted rater takes over the pairs of listeners (10 of one's 21, all of one's, 40 of two's, 100 of five's), so
that the share of planted ratings is as told. Constants were chosen on listeners of even number, and those of odd number
are counted (`--half 0`: the others). 27 of the 1,370 share no pair with anybody: nobody can tell what is planted there.
Studies: 34 honest raters of many tempers and 5 planted ones. Exit code 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from earmark.data.published import read_published
from earmark.measure.raters import Raters, raters
from earmark.relevance import ANCHOR, Rating

KINDS = ("uniform", "constant", "reversed")


def relate(path: Path, anchors: bool) -> list[Rating]:
    """RELATE's single ratings; a pair is a sound with a text."""
    table = read_published(path)
    items = [item for row in table.rows for item in table.layout.items(row.cells, path.stem)]
    return [
        Rating(item.text, item.clip_id, 10 * float(item.score or 0), item.group, item.rater_id)
        for item in items
        if anchors or item.group != ANCHOR
    ]


def planted(
    ratings: list[Rating], kind: str, length: int, share: float, half: int, rng: np.random.Generator
) -> tuple[list[Rating], set[str], set[str]]:
    """The ratings with planted raters, the ids of those of the half that is looked at, and of its other raters."""
    of: dict[str, list[Rating]] = {}
    for rating in ratings:
        of.setdefault(rating.rater_id, []).append(rating)
    each = max(1, round(length / len(next(iter(of.values())))))
    gone: set[str] = set()
    made: list[Rating] = []
    bad: set[str] = set()
    for part in (0, 1):
        names = list(of)[part::2]
        taken = rng.permutation(len(names))[: round(share * len(names)) // each * each].reshape(-1, each)
        gone |= {names[at] for at in taken.ravel()}
        for number, lists in enumerate(taken):
            pool = list({(r.caption_id, r.clip_id): r for at in lists for r in of[names[at]]}.values())
            name, same = f"planted {part} {number}", float(rng.integers(11)) * 10
            bad |= {name} if part == half else set()
            for at in rng.permutation(len(pool))[:length]:
                values = {"uniform": float(rng.integers(11)) * 10, "constant": same, "reversed": 100 - pool[at].rating}
                made.append(replace(pool[at], rating=values[kind], rater_id=name))
    rest = [rating for rating in ratings if rating.rater_id not in gone]
    return rest + made, bad, set(list(of)[half::2]) - gone


def rates(found: Raters, bad: set[str], good: set[str]) -> tuple[float, float, float, float, float]:
    """Shares: flagged of the planted, of those of them who share pairs with others, flagged or unsure; flagged of the
    honest; what the fit expects of these.
    """
    flagged = {row.rater_id for row in found.flagged}
    unsure = {row.rater_id for row in found.unsure}
    shared = bad & {row.rater_id for row in found.rows if row.shared}
    return (
        len(flagged & bad) / len(bad),
        len(flagged & shared) / len(shared),
        len((flagged | unsure) & bad) / len(bad),
        len(flagged & good) / len(good),
        found.expected / len(found.rows),
    )


# Studies that are made up


def study(
    rng: np.random.Generator, honest: int = 34, bad: int = 5, *, zeros: float = 0.5, most: int = 200, k: int = 4
) -> tuple[list[Rating], set[str], set[str]]:
    """Honest raters of many tempers, some of whom lapse, and planted ones; a pair has k answers."""
    lengths = rng.integers(60, most + 1, honest + bad)
    pairs = int(lengths.sum() // k)
    truth = np.where(rng.random(pairs) < zeros, 0, rng.beta(1.2, 0.9, pairs) * 100)
    order = np.concatenate([rng.permutation(pairs) for _ in range(k + 1)])
    tempers = {
        "lenient": rng.normal(0, 8, honest),
        "scale": rng.uniform(0.7, 1.3, honest),
        "noise": rng.uniform(5, 20, honest),
        "lapse": np.where(rng.random(honest) < 0.3, rng.uniform(0.05, 0.2, honest), 0.02),
    }
    ratings, at = [], 0
    for rater in range(honest + bad):
        own = list(dict.fromkeys(order[at : at + lengths[rater]].tolist()))
        at += lengths[rater]
        if rater < honest:
            values = _answers(truth[own], {name: float(each[rater]) for name, each in tempers.items()}, rng)
        else:
            values = _planted(truth[own], KINDS[(rater - honest) % 3], rng)
        name = f"{'honest' if rater < honest else 'planted'} {rater}"
        ratings += [Rating(f"text {u}", f"clip {u}", float(v), rater_id=name) for u, v in zip(own, values, strict=True)]
    names = {rating.rater_id for rating in ratings}
    return ratings, {name for name in names if name[0] == "p"}, {name for name in names if name[0] == "h"}


def _answers(truth: np.ndarray, temper: dict[str, float], rng: np.random.Generator) -> np.ndarray:
    """Answers 0–100 of one honest rater: zeros mostly stay zeros; lapses are answers to something else."""
    noisy = temper["lenient"] + temper["scale"] * truth + temper["noise"] * rng.standard_normal(len(truth))
    values = np.where(truth == 0, np.where(rng.random(len(truth)) < 0.85, 0, np.abs(noisy) * 0.5), noisy)
    lapsed = rng.random(len(truth)) < temper["lapse"]
    return np.where(lapsed, rng.uniform(0, 100, len(truth)), values).clip(0, 100).round()


def _planted(truth: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "uniform":
        return rng.integers(0, 101, len(truth)).astype(float)
    if kind == "constant":
        return np.full(len(truth), float(rng.integers(0, 101)))
    return 100 - _answers(truth, {"lenient": 0, "scale": 1, "noise": 12, "lapse": 0}, rng)


# Printed


def show_relate(path: Path, half: int, seeds: int) -> Iterator[bool]:
    """Prints a line a setting; gives whether each bound holds."""
    for anchors in (True, False):
        ratings = relate(path, anchors)
        whole = raters(ratings)
        what = "with anchors" if anchors else "without anchors"
        print(
            f"{what}: {len(whole.flagged)} of {len(whole.rows)} listeners flagged ({whole.expected:.1f} expected of "
            f"honest ones), {len(whole.unsure)} unsure; random by the fit: {whole.random:.3f}"
        )
        print(
            "share  ratings  kind      flagged  of those not alone  or unsure  others flagged  expected of honest ones"
        )
        for share in (0.05, 0.2):
            for length in (10, 21 if anchors else 18, 40, 100):
                for kind in KINDS:
                    found = []
                    for seed in range(seeds):
                        made, bad, good = planted(ratings, kind, length, share, half, np.random.default_rng(seed))
                        found.append(rates(raters(made), bad, good))
                    mean = np.mean(found, axis=0)
                    cells = f"{mean[0]:7.3f}  {mean[1]:17.3f}  {mean[2]:9.3f}  {mean[3]:14.4f}  {mean[4]:.4f}"
                    print(f"{share:5.2f}  {length:7d}  {kind:8s}  {cells}", flush=True)
                    if length >= 40 and kind != "reversed":
                        yield bool(mean[1] >= 0.95 and mean[3] <= 0.04)


def show_studies(seeds: int) -> Iterator[bool]:
    """Prints a line a setting; gives whether nearly all studies come out right."""
    print("zeros  raters a pair  ratings  studies right  planted missed  honest flagged")
    for zeros in (0.5, 0.0):
        for k in (3, 4, 5):
            for most in (60, 200):
                right = missed = wrong = bads = goods = 0
                for seed in range(seeds):
                    made, bad, good = study(np.random.default_rng(seed), zeros=zeros, most=most, k=k)
                    flagged = {row.rater_id for row in raters(made).flagged}
                    missed, wrong = missed + len(bad - flagged), wrong + len(flagged & good)
                    right, bads, goods = right + (flagged == bad), bads + len(bad), goods + len(good)
                cells = f"{missed:4d} of {bads}  {wrong:6d} of {goods}"
                print(f"{zeros:5.1f}  {k:13d}  60–{most:<4d}  {right:6d} of {seeds:4d}  {cells}", flush=True)
                yield right >= 0.9 * seeds


def main() -> int:
    """Exit code 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("relate", "studies"))
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--half", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    held = show_relate(asked.path, asked.half, asked.seeds) if asked.what == "relate" else show_studies(asked.seeds)
    return 0 if all(list(held)) else 1


if __name__ == "__main__":
    sys.exit(main())
