"""Small runs and small indices of made sounds that several tests search."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import tomli_w
from worlds import SOUNDS

from earmark.model.dual_encoder import DualEncoder
from earmark.model.settings import DualEncoderConfig

RATE = 16_000
"""Hz of the made sounds."""
NAMES = (
    "dogs/dog_bark.wav",
    "dogs/puppy_whine.wav",
    "weather/rain_on_roof.flac",
    "weather/thunder_storm.wav",
    "doors/door_slam.ogg",
    "doors/door_creak.wav",
    "music/kick_01.wav",
    "music/snare_01.wav",
)


def random_run(folder: Path, *, dim: int = 8, seed: int = 0) -> Path:
    """A finished run of random weights over sounds and words; it needs the small sentence encoder."""
    tables = tomllib.loads(SOUNDS)
    tables["model"]["dim"] = dim
    config = DualEncoderConfig.from_tables(tables, "random")
    made = DualEncoder.for_collection(config, None, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(tomli_w.dumps({**asdict(config), "inputs": asdict(made.inputs)}))
    made.save(folder)
    return folder


def noise(seconds: float, *, seed: int = 0, rate: int = RATE) -> np.ndarray:
    """Noise through a resonance of its own: no two seeds sound alike."""
    rng = np.random.default_rng(seed)
    samples = max(1, round(seconds * rate))
    pitch = 150 * 1.5 ** (seed % 9)
    tone = np.sin(2 * np.pi * pitch * np.arange(samples) / rate)
    return (0.2 * tone + 0.1 * rng.standard_normal(samples) * np.linspace(1, 0.1, samples)).astype(np.float32)


def write_sound(path: Path, seconds: float = 1.0, *, seed: int = 0, rate: int = RATE, channels: int = 1) -> Path:
    """A sound file of the kind that its name says."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    samples = noise(seconds, seed=seed, rate=rate)
    soundfile.write(path, np.repeat(samples[:, None], channels, axis=1), rate)
    return path


def small_sounds(folder: Path) -> Path:
    """Eight short sounds in four folders, and `long/river.wav` of 23 s in four windows."""
    for seed, name in enumerate(NAMES):
        write_sound(folder / name, 0.5 + 0.3 * seed, seed=seed, channels=1 + seed % 2)
    write_sound(folder / "long" / "river.wav", 23.0, seed=8, rate=8_000)
    return folder


def small_index(root: Path) -> Path:
    """The index `root/index` of `root/sounds` (`small_sounds`) by `root/run` (`random_run`)."""
    from earmark.search.index import build

    small_sounds(root / "sounds")
    build([root / "sounds"], root / "index", model=str(random_run(root / "run")))
    return root / "index"
