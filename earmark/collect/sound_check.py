"""The headphone and sound check: sounds that are made here, a question to each, and which answer is right.

First on which side a noise is; then twice which of three tones is the quietest. One of the louder tones comes out of
the two sides in opposite phase: from loudspeakers it is taken for the quietest, on headphones it is not (Woods, Siegel,
Traer and McDermott 2017, Headphone screening to facilitate web-based auditory experiments, Attention, Perception &
Psychophysics 79). A wrong answer brings another sound of the same kind; after `MOST_ROUNDS` the check ends all the
same. What is right follows from the rater's id, which the browser does not know, so nothing need be remembered.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Asked = Literal["side", "tones"]
STAGES: tuple[Asked, ...] = ("side", "tones", "tones")
"""What must be answered right."""
CHOICES = {"side": 2, "tones": 3}
"""How many answers a question has, counted from 0: left and right; the first, second and third tone."""
MOST_ROUNDS = 8
"""Answers after which the check ends, passed or not."""
RATE = 44_100
TONE_HZ = 200.0
TONE_S, GAP_S = 0.7, 0.3
RAMP_S = 0.05
QUIETER = 0.5
"""Amplitude of the quietest tone beside the others: 6 dB less."""
NOISE_S = 3.0
SIDE_S = 1.0
LOUDEST = 0.89
"""Amplitude that none exceeds: −1 dBFS."""
FULL_LUFS = -0.691
"""Loudness of a tone of 1 kHz of mean square 1 (ITU-R BS.1770-4)."""
Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """How far the check is."""

    right: bool
    """Whether the last answer was; False before the first."""
    kind: Asked | None
    """Of the next question; None where there is none."""
    number: int
    """Of the next question, or the last, counted from 1: after a wrong answer one of the same number is asked."""
    finished: bool
    passed: bool


def judge(rater_id: str, answers: Sequence[int]) -> Judged:
    """How far the check is after these answers, a round each; answers after its end count nothing."""
    stage, right = 0, False
    for at, answer in enumerate(answers[:MOST_ROUNDS]):
        if stage == len(STAGES):
            break
        right = answer == truth(rater_id, STAGES[stage], at)
        stage += right
    passed = stage == len(STAGES)
    finished = passed or len(answers) >= MOST_ROUNDS
    return Judged(right, None if finished else STAGES[stage], min(stage + 1, len(STAGES)), finished, passed)


def by_ear(kind: Asked, body: bytes) -> int:
    """What someone answers to the file of a question who hears both sides, each by itself."""
    import soundfile

    samples, _ = soundfile.read(io.BytesIO(body))
    power = samples**2
    if kind == "side":
        return int(power.sum(axis=0).argmax())
    return int(np.argmin([part.sum() for part in np.array_split(power, CHOICES[kind])]))


def truth(rater_id: str, kind: Asked, at: int) -> int:
    """The right answer of a round."""
    return _drawn(rater_id, kind, at) % CHOICES[kind]


def question(rater_id: str, kind: Asked, at: int, lufs: float) -> bytes:
    """The sound of a round, a WAV file in stereo."""
    right = truth(rater_id, kind, at)
    if kind == "side":
        return _side(right, lufs)
    others = [place for place in range(3) if place != right]
    return _tones(right, others[_drawn(rater_id, "phase", at) % 2], lufs)


def _drawn(rater_id: str, what: str, at: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{rater_id} {what} {at}".encode()).digest()[:8])


@lru_cache(maxsize=4)
def volume(lufs: float) -> bytes:
    """Noise on both sides as loud as the study's sounds, to set the volume by: a WAV file in stereo."""
    noise = _ramped(_noise(NOISE_S))
    return _wav(np.stack([noise, noise], axis=1), lufs)


@lru_cache(maxsize=8)
def _side(right: int, lufs: float) -> bytes:
    both = np.zeros((round(SIDE_S * RATE), 2))
    both[:, right] = _ramped(_noise(SIDE_S))
    return _wav(both, lufs)


@lru_cache(maxsize=16)
def _tones(quiet: int, opposed: int, lufs: float) -> bytes:
    tone = _ramped(np.sin(2 * np.pi * TONE_HZ * np.arange(round(TONE_S * RATE)) / RATE)) * np.sqrt(2)
    gap = np.zeros((round(GAP_S * RATE), 2))
    parts = [gap]
    for place in range(3):
        left = tone * (QUIETER if place == quiet else 1.0)
        parts += [np.stack([left, -left if place == opposed else left], axis=1), gap]
    return _wav(np.concatenate(parts), lufs)


@lru_cache(maxsize=4)
def _noise(seconds: float) -> Samples:
    """Pink noise (its power falls by 3 dB an octave), 100 Hz to 8 kHz, as loud as a tone of 1 kHz of mean square 1."""
    from earmark.analyse.clips import Loudness  # which brings torch

    samples = round(seconds * RATE)
    hz = np.fft.rfftfreq(samples, 1 / RATE)
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(samples))
    inside = (hz >= 100) & (hz <= 8000)
    pink: Samples = np.fft.irfft(np.where(inside, spectrum / np.sqrt(np.maximum(hz, 1)), 0), samples)
    meter = Loudness(RATE, 1)
    meter.add((pink / np.abs(pink).max())[:, None].astype(np.float32))
    out: Samples = pink / np.abs(pink).max() * 10 ** ((FULL_LUFS - meter.integrated()) / 20)
    return out


def _ramped(samples: Samples) -> Samples:
    """Without a click at either end."""
    ramp = np.sin(np.linspace(0, np.pi / 2, round(RAMP_S * RATE))) ** 2
    out = samples.copy()
    out[: len(ramp)] *= ramp
    out[-len(ramp) :] *= ramp[::-1]
    return out


def _wav(samples: Samples, lufs: float) -> bytes:
    """Samples [frame, side], of `FULL_LUFS` on a side, as a file of about that loudness, within full scale."""
    import soundfile

    gain = min(10 ** ((lufs - FULL_LUFS) / 20), LOUDEST / float(np.abs(samples).max()))
    out = io.BytesIO()
    soundfile.write(out, samples * gain, RATE, "PCM_16", format="WAV")
    return out.getvalue()
