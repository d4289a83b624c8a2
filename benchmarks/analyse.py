"""Are the planted causes of generated ratings found, and those that are not there left alone?

    EARMARK_MODELS=… python benchmarks/analyse.py WORK [--seeds 5] [--clips 1000]

Makes GENERATED soundscapes in WORK (those that are there are taken), a seed each, and analyses captions with their own
clips. Planted: captions that leave something out are rated lower, and only captions of several events leave any out,
so more events lower the rating; more events raise e-class (YAMNet); raters play a share of the sound, so longer clips
are played longer. Not there: whatever goes with HR or SD-HR among captions that tell all, whose raters add only a bias,
a scale and noise of their own. Both kinds are counted by p < .05 as it is, where chance gives 5 % of the absent ones,
and after Holm's correction over a study's table. Exit code 1 where a planted one is missed by p < .05 in two seeds or
more of five, or an absent one holds after correction in so many.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from earmark.analyse.correlate import Correlation
from earmark.analyse.study import Settings, study
from earmark.console import progress
from earmark.data.collection import Collection
from earmark.data.soundscapes import generate

SETS = ("captions.language_model=ngram", 'columns=["captions.partial", "clips.event_count"]')
PLANTED = {
    ("captions.partial", "HR"): -1,
    ("clips.event_count", "HR"): -1,
    ("e_class", "clips.event_count"): 1,
    ("duration_s", "APT"): 1,
}
"""(feature, target) → the sign that it was planted with."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--clips", type=int, default=1000)
    asked = arguments.parse_args()
    planted: dict[tuple[str, str], list[Correlation]] = {place: [] for place in PLANTED}
    absent: list[list[Correlation]] = []
    for seed in range(asked.seeds):
        collection = made(asked.work / f"soundscapes-{asked.clips}-{seed}", asked.clips, seed)
        found = pooled(collection, *SETS, 'targets=["clips.event_count"]')
        print(f"seed {seed}, GENERATED, {found[0].n} own-clip pairs:")
        for place in PLANTED:
            (each,) = [c for c in found if (c.feature, c.target) == place]
            planted[place].append(each)
            print(f"  {' ~ '.join(place):34} r {each.r:+.3f}  p {each.p:.1e}  Holm {each.p_holm:.1e}")
        whole = pooled(collection, *SETS, 'where=["captions.partial=no"]')
        absent.append([c for c in whole if c.target in ("HR", "SD-HR") and c.n and c.feature != "captions.partial"])
    return int(report(planted, absent))


def report(planted: dict[tuple[str, str], list[Correlation]], absent: list[list[Correlation]]) -> bool:
    """Prints the counts; gives whether too many seeds missed a planted one, or found one that is not there."""
    seeds, missed = len(absent), False
    for place, of_seeds in planted.items():
        right = [c for c in of_seeds if c.r * PLANTED[place] > 0]
        plain, corrected = sum(c.p < 0.05 for c in right), sum(c.p_holm < 0.05 for c in right)
        print(f"planted {' ~ '.join(place):34} found in {plain} of {seeds} seeds, after Holm in {corrected}")
        missed |= 5 * (seeds - plain) >= 2 * seeds
    every = [c for of_seed in absent for c in of_seed]
    wrong = sum(any(c.p_holm < 0.05 for c in of_seed) for of_seed in absent)
    chance = sum(c.p < 0.05 for c in every)
    print(
        f"absent, captions that tell all: {len(every)} correlations with HR and SD-HR, {chance} with p < .05; after "
        f"Holm any in {wrong} of {seeds} seeds"
    )
    return missed or 5 * wrong >= 2 * seeds


def made(folder: Path, clips: int, seed: int) -> Collection:
    """The collection, generated if it is not there."""
    if not folder.is_dir():
        with progress() as shown:
            generate(folder, clips=clips, seed=seed, progress=lambda done, all_: shown("generating clips", done, all_))
    return Collection.read(folder)


def pooled(collection: Collection, *sets: str) -> list[Correlation]:
    """The correlations of all splits together."""
    with progress() as shown:
        return study(collection, Settings.of(sets), progress=shown).scopes[-1].correlations


if __name__ == "__main__":
    sys.exit(main())
