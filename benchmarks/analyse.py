"""Are the planted causes of generated ratings found, and those that are not there left alone?

    EARMARK_MODELS=… python benchmarks/analyse.py WORK [--seeds 5] [--clips 1000]

Makes GENERATED soundscapes in WORK (those that are there are taken), a seed each, and analyses them. Planted: captions
that leave something out are rated lower; more events raise e-class (YAMNet) and, since only captions of several events
leave any out, lower the rating; raters play a share of the sound, so longer clips are played longer. Not there:
whatever goes with HR or SD-HR among captions that tell all, whose raters add only a bias, a scale and noise of their
own. Prints r with Holm's p, seed by seed, and how many of the absent ones have p < .05 before and after correction:
5 % before is what chance gives. Exit code 1 where a planted one is missed by two seeds or more in five.
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
    missed = dict.fromkeys(PLANTED, 0)
    absent: list[Correlation] = []
    for seed in range(asked.seeds):
        collection = made(asked.work / f"soundscapes-{asked.clips}-{seed}", asked.clips, seed)
        found = pooled(collection, *SETS, 'targets=["clips.event_count"]')
        print(f"seed {seed}, GENERATED, {found[0].n} own-clip pairs:")
        for place, sign in PLANTED.items():
            (each,) = [c for c in found if (c.feature, c.target) == place]
            missed[place] += not (sign * each.r > 0 and each.p < 0.05)
            print(f"  {' ~ '.join(place):34} r {each.r:+.3f}  p {each.p:.1e}  Holm {each.p_holm:.1e}")
        whole = pooled(collection, *SETS, 'where=["captions.partial=no"]')
        absent += [c for c in whole if c.target in ("HR", "SD-HR") and c.n and c.feature != "captions.partial"]
    chance, corrected = (sum(p < 0.05 for p in ps) for ps in ([c.p for c in absent], [c.p_holm for c in absent]))
    print(
        f"absent, captions that tell all: {len(absent)} correlations with HR and SD-HR, {chance} with p < .05, "
        f"{corrected} after Holm's correction"
    )
    print(f"planted ones missed (p >= .05, or the other sign), of {asked.seeds} seeds: {missed}")
    return int(any(5 * count >= 2 * asked.seeds for count in missed.values()))


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
