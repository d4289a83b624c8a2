"""The time of earmark's log-mels beside librosa's, one thread each, over real sounds.

    OMP_NUM_THREADS=1 python benchmarks/logmel.py --data ../shared/data/library

The paper's settings (window 40 ms, hop 20 ms, 64 bands) on the files' own rates, in float32. Files are decoded before;
each repetition times both, one after the other, and medians are printed. Also printed: the largest difference in
float64, and in float32 in bins above 1e-7 of the clip's peak. Exit code 1 where either is larger than promised
(1e-4 and 1e-3 nats).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import librosa
import numpy as np
import torch

from earmark.audio.decode import load
from earmark.audio.logmel import PAPER, log_mel
from earmark.errors import DataError

SOUNDS = {".flac", ".mp3", ".ogg", ".opus", ".wav"}


def by_librosa(samples: np.ndarray, rate: int) -> np.ndarray:
    window, hop, size = PAPER.samples(rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # clips shorter than a window
        mel = librosa.feature.melspectrogram(
            y=samples, sr=rate, n_fft=size, win_length=window, hop_length=hop, n_mels=PAPER.n_mels
        )
    return np.log(mel + mel.dtype.type(PAPER.floor)).T


def differences(samples: np.ndarray, rate: int) -> tuple[float, float]:
    double = samples.astype(np.float64)
    exact = by_librosa(double, rate)
    in_double = np.abs(log_mel(double, rate, dtype=torch.float64).numpy() - exact).max()
    single = by_librosa(samples, rate)
    energy = np.exp(single)
    heard = (energy > 1e-7 * energy.max()) & (energy.max() > 1e-9)
    in_single = np.abs(log_mel(samples, rate).numpy() - single)[heard].max(initial=0.0)
    return float(in_double), float(in_single)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("EARMARK_TEST_DATA", "../shared/data")) / "library"
    )
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sounds = []
    for path in sorted(path for path in arguments.data.rglob("*") if path.suffix in SOUNDS)[: arguments.files]:
        try:
            sound = load(path)
        except DataError as error:
            print(error)
            continue
        sounds.append((sound.samples, sound.rate))
    seconds = sum(len(samples) / rate for samples, rate in sounds)
    times = []
    for repetition in range(arguments.repetitions + 1):
        begin = time.perf_counter()
        for samples, rate in sounds:
            log_mel(samples, rate)
        between = time.perf_counter()
        for samples, rate in sounds:
            by_librosa(samples, rate)
        if repetition:  # the first one fills the caches of both
            times.append((between - begin, time.perf_counter() - between))
    ours, theirs = np.median(times, axis=0)
    double, single = np.max([differences(samples, rate) for samples, rate in sounds], axis=0)
    print(f"{len(sounds)} files, {seconds:.0f} s of sound, one thread, median of {arguments.repetitions}")
    print(f"earmark     {seconds / ours:8.0f} s of sound a second")
    print(f"librosa     {seconds / theirs:8.0f} s of sound a second")
    print(f"ratio       {np.median([their / our for our, their in times]):8.2f}")
    print(f"difference  {double:8.1e} nats in float64 (1e-4), {single:.1e} in float32 (1e-3)")
    return 0 if double <= 1e-4 and single <= 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
