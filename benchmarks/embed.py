"""Embedding files with YAMNet: how many seconds of sound a second of one core, model loading apart.

    python benchmarks/embed.py --data ../shared/data/library [--model yamnet] [--files 400]

Everything that `earmark embed` does with a file counts: decoding, resampling, log-mel, network, keeping the vector in
the cache (a temporary one). One thread; seconds are the process's own, so that a busy machine does not count. Ends with
1 below the bound of 80.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from earmark.audio import decode
from earmark.audio.cache import FeatureCache
from earmark.errors import DataError
from earmark.model.dual_encoder import frozen_tower

BOUND = 80


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of sounds")
    parser.add_argument("--model", default="yamnet")
    parser.add_argument("--files", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    frozen = frozen_tower(given.model)
    paths = sorted(path for path in given.data.rglob("*") if path.is_file())
    paths = paths[:: max(1, len(paths) // given.files)]
    lengths = []
    for path in paths:
        try:
            sound = decode.load(path)
        except DataError:
            continue
        lengths.append((path, len(sound.samples) / sound.rate))
    frozen.read(lengths[0][0])  # loads the model, and what torch loads at first use
    with tempfile.TemporaryDirectory() as folder:
        cache = FeatureCache(frozen.made_by, Path(folder))
        started, wall = time.process_time(), time.perf_counter()
        for path, _ in lengths:
            cache.features(path, frozen.read)
        spent, wall = time.process_time() - started, time.perf_counter() - wall
    heard = sum(seconds for _, seconds in lengths)
    mean = heard / len(lengths)
    print(f"{given.model}: {len(lengths)} files of {given.data.name}, {heard:.0f} s of sound, mean {mean:.1f} s")
    print(f"{spent:.1f} s of one core ({wall:.1f} s by the clock): {heard / spent:.0f} times real time (bound {BOUND})")
    return int(heard / spent < BOUND)


if __name__ == "__main__":
    sys.exit(main())
