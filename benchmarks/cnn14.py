"""CNN14 in training from the cache: bf16 against fp32, and how much of the machine's matrix products it reaches.

    python benchmarks/cnn14.py [--clips 32] [--seconds 10] [--rounds 3]

Clips are noise, their log-mels come memory-mapped from a cache in a temporary folder, as in `earmark train`; a step is
the audio side of one: features to the layers, forward, backward, Adam. FLOPs are counted by torch (two a multiply-add,
forward and backward). The rate of matrix products is the best of several sizes, bf16. Ends with 1 where the bound is
missed: bf16 1.5 times fp32, and half the rate of matrix products.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch.utils.flop_counter import FlopCounterMode

from earmark.audio.cache import FeatureCache, Features
from earmark.model.audio_encoders import AudioConfig, AudioEncoder

SIZES = (1024, 2048, 4096)


def matmul_rate(dtype: torch.dtype, repeats: int = 8) -> float:
    """FLOP a second of the fastest square matrix product."""
    best = 0.0
    for size in SIZES:
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        a @ b
        for _ in range(repeats):
            started = time.perf_counter()
            a @ b
            best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def cached_clips(folder: Path, encoder: AudioEncoder, clips: int, seconds: float) -> list[Features]:
    rng = np.random.default_rng(0)
    reader = encoder.reader
    cache = FeatureCache(reader.made_by, folder / "cache")
    found = []
    for place in range(clips):
        path = folder / f"{place}.wav"
        soundfile.write(path, 0.1 * rng.standard_normal(round(seconds * 44_100)), 44_100)
        found.append(cache.features(path, reader.read))
    return found


def step(encoder: AudioEncoder, optimiser: torch.optim.Optimizer, clips: list[Features], bf16: bool) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        out = encoder([clip.windows[0] for clip in clips])
    loss = out.float().square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def seconds_of(encoder: AudioEncoder, optimiser: torch.optim.Optimizer, clips: list[Features], bf16: bool) -> float:
    started = time.perf_counter()
    step(encoder, optimiser, clips, bf16)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=32, help="clips a step")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a clip")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not torch.cpu._is_avx512_bf16_supported():
        print("this processor has no avx512_bf16: nothing to compare")
        return 0
    torch.manual_seed(0)
    encoder = AudioEncoder(AudioConfig(weights="none"), 300).train()
    optimiser = torch.optim.Adam(encoder.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as name:
        clips = cached_clips(Path(name), encoder, given.clips, given.seconds)
        with FlopCounterMode(display=False) as counted:
            step(encoder, optimiser, clips, bf16=False)
        flops = counted.get_total_flops() / given.clips
        step(encoder, optimiser, clips, bf16=True)
        times: dict[bool, list[float]] = {True: [], False: []}
        rates = []
        for _ in range(given.rounds):  # in turn, so that a busy machine slows both
            for bf16 in (True, False):
                times[bf16].append(seconds_of(encoder, optimiser, clips, bf16))
            rates.append(matmul_rate(torch.bfloat16))
    bf16, fp32 = (given.clips / min(times[each]) for each in (True, False))
    reached = flops * bf16 / max(rates)
    print(f"CNN14, {given.clips} clips of {given.seconds:g} s a step, {torch.get_num_threads()} threads")
    print(f"FLOPs a clip, forward and backward: {flops / 1e9:.1f} G")
    print(f"clips a second: bf16 {bf16:.2f}, fp32 {fp32:.2f}: {bf16 / fp32:.2f} times (bound 1.5)")
    print(
        f"bf16: {flops * bf16 / 1e9:.0f} of {max(rates) / 1e9:.0f} GFLOP/s of matrix products: {reached:.2f} (bound .5)"
    )
    return 0 if bf16 / fp32 >= 1.5 and reached >= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
