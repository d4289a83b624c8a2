"""Synthesised sound events of 32 kinds, each told from the others by its spectrogram.

A *call* is one occurrence (a bark, a knock) and is as long as it is: `CALLS[kind](rng)`. A *stretch* goes on
(rain, a ticking clock) for as many samples as asked: `STRETCHES[kind](rng, n)`. Both give mono float64 at `RATE`
Hz of any level; pitch, speed and timbre are drawn from `rng`, and nothing else is random. `at_level` sets how loud
an event is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Wave = NDArray[np.float64]

RATE = 44_100
"""Hz. The paper's front end asks for it, so that no file of a generated collection has to be resampled."""
LEVEL_WINDOW_S = 0.1
"""An event's level is that of its loudest tenth of a second: the same for a knock and for rain."""
CREST = 5.0
"""Highest peak of an event over its level: a loud click shall not take the headroom of all else."""


# Building blocks


def samples(seconds: float) -> int:
    """How many samples that is."""
    return round(seconds * RATE)


def level(wave: Wave) -> float:
    """The RMS level of the loudest `LEVEL_WINDOW_S`, in dB of full scale (a full square wave is 0 dB)."""
    window = samples(LEVEL_WINDOW_S)
    energy = np.concatenate([[0.0], np.cumsum(wave**2)])
    ends = np.arange(0, len(wave), window // 4)
    loudest = np.max(energy[np.minimum(ends + window, len(wave))] - energy[ends]) / window
    return float(10 * np.log10(loudest + 1e-12))


def at_level(wave: Wave, decibels: float) -> Wave:
    """The wave, amplified to that `level`, within 1 dB; peaks are rounded off at `CREST` times it."""
    ceiling = CREST * 10 ** (decibels / 20)
    for _ in range(9):  # rounding off takes from the level, so the gain is set again
        if abs(missing := decibels - level(wave)) < 0.3:
            break
        wave = ceiling * np.tanh(wave * (10 ** (missing / 20) / ceiling))
    return wave


def faded(wave: Wave, attack_s: float, release_s: float) -> Wave:
    """The wave with cosine slopes at both ends."""
    wave = wave.copy()
    rise, fall = (min(samples(s), len(wave) // 2) for s in (attack_s, release_s))
    wave[:rise] *= 0.5 - 0.5 * np.cos(np.pi * np.arange(rise) / max(rise, 1))
    wave[len(wave) - fall :] *= 0.5 + 0.5 * np.cos(np.pi * np.arange(1, fall + 1) / max(fall, 1))
    return wave


@lru_cache(maxsize=64)
def _sections(low: float, high: float) -> NDArray[np.float64]:
    from scipy.signal import butter

    edges = [max(low, 10.0) / (RATE / 2), min(high, 0.49 * RATE) / (RATE / 2)]
    return np.asarray(butter(2, edges, "bandpass", output="sos"))


def band(wave: Wave, low: float, high: float) -> Wave:
    """The wave between two frequencies in Hz (Butterworth, 12 dB an octave)."""
    from scipy.signal import sosfilt

    return np.asarray(sosfilt(_sections(low, high), wave))


def hiss(rng: Generator, n: int, low: float, high: float) -> Wave:
    """Noise between two frequencies, of RMS 1."""
    wave = band(rng.standard_normal(n), low, high)
    return wave / (float(np.sqrt(np.mean(wave**2))) + 1e-12)


def curve(n: int, *points: float) -> Wave:
    """A line through equally spaced points."""
    return np.interp(np.linspace(0, 1, n), np.linspace(0, 1, len(points)), points)


def wander(rng: Generator, n: int, hertz: float) -> Wave:
    """A slow random curve in 0–1 that turns about `hertz` times a second."""
    return curve(n, *rng.random(max(2, round(n / RATE * hertz) + 2)))


def ringing(n: int, *partials: tuple[float, float, float]) -> Wave:
    """A struck body: for each partial (Hz, gain, seconds to 1/e) a tone that dies away."""
    time = np.arange(n) / RATE
    wave = sum(gain * np.sin(2 * np.pi * hz * time) * np.exp(-time / tau) for hz, gain, tau in partials)
    return faded(np.asarray(wave), 0.0005, 0.01)


def harmonics(hertz: Wave, gains: Iterable[float]) -> Wave:
    """Harmonics 1, 2, 3 … of a moving frequency with those gains (Chebyshev's recurrence: one sine for all)."""
    phase = 2 * np.pi * np.cumsum(hertz) / RATE
    before, now, twice = np.zeros_like(phase), np.sin(phase), 2 * np.cos(phase)
    wave = np.zeros_like(phase)
    for gain in gains:
        wave += gain * now
        before, now = now, twice * now - before
    return wave


def voiced(hertz: Wave, formants: Iterable[tuple[float, float]], tilt: float = 0.03) -> Wave:
    """Harmonics up to 7 kHz that are strong near the formants (Hz, gain)."""
    pitch = float(np.mean(hertz))
    order = np.arange(1, int(7000 / pitch) + 1)
    gains = tilt / np.sqrt(order)
    for centre, gain in formants:
        gains = gains + gain * np.exp(-(((order * pitch - centre) / (0.22 * centre + 60)) ** 2))
    return harmonics(hertz, gains)


def placed(n: int, hits: Iterable[tuple[float, float, Wave]]) -> Wave:
    """A stretch of `n` samples with a wave at each (second, gain, wave); what passes the end is cut."""
    wave = np.zeros(n)
    for second, gain, hit in hits:
        start = samples(second)
        part = hit[: max(0, n - start)]
        wave[start : start + len(part)] += gain * part
    return wave


def _beats(rng: Generator, n: int, period: float, jitter: float) -> list[float]:
    """Seconds of a beat that is nearly regular."""
    count = int(n / RATE / period) + 1
    return [max(0.0, (k + 0.1 + jitter * (rng.random() - 0.5)) * period) for k in range(count)]


# Calls: animals


def _bark(rng: Generator) -> Wave:
    n, pitch = samples(rng.uniform(0.16, 0.26)), rng.uniform(330, 470)
    tone = voiced(pitch * curve(n, 0.8, 1.15, 0.95, 0.65), [(900, 1.0), (1900, 0.6)])
    return faded((tone + 0.5 * hiss(rng, n, 600, 3500)) * curve(n, 1, 0.9, 0.3), 0.008, 0.06)


def _cat(rng: Generator) -> Wave:
    n, pitch = samples(rng.uniform(0.6, 0.9)), rng.uniform(560, 760)
    return faded(voiced(pitch * curve(n, 0.75, 1.1, 1.05, 0.7), [(1400, 1.0), (2900, 0.5)], 0.3), 0.08, 0.2)


def _cow(rng: Generator) -> Wave:
    n, pitch = samples(rng.uniform(1.0, 1.4)), rng.uniform(105, 150)
    return faded(voiced(pitch * curve(n, 0.8, 1, 1.03, 1, 0.75), [(330, 1.0), (760, 0.35)], 0.05), 0.15, 0.3)


def _owl(rng: Generator) -> Wave:
    pitch = rng.uniform(330, 440)
    notes = []
    for start, length in ((0.0, 0.2), (0.35, 0.5)):
        tone = harmonics(pitch * curve(samples(length), 0.94, 1, 0.93), (1, 0.06))
        notes.append((start, 1.0, faded(tone, 0.05, 0.12)))
    return placed(samples(0.85), notes)


def _frog(rng: Generator) -> Wave:
    n, rate, hz = samples(rng.uniform(0.35, 0.55)), rng.uniform(28, 42), rng.uniform(650, 950)
    pulse = ringing(samples(0.03), (hz, 1, 0.008), (2.3 * hz, 0.5, 0.005))
    croak = placed(n, [(k / rate, 1.0, pulse) for k in range(int(n / RATE * rate))])
    return croak * curve(n, 0.3, 1, 1, 0.5)


def _bird(rng: Generator) -> Wave:
    centre, notes, start = rng.uniform(3600, 5200), [], 0.0
    for _ in range(rng.integers(3, 7)):
        n = samples(rng.uniform(0.05, 0.11))
        turns = centre * rng.uniform(0.75, 1.3, 3)
        notes.append((start, rng.uniform(0.6, 1), faded(harmonics(curve(n, *turns), (1,)), 0.01, 0.02)))
        start += n / RATE + rng.uniform(0.02, 0.07)
    return placed(samples(start), notes)


# Calls: things


def _horn(rng: Generator) -> Wave:
    n, pitch = samples(rng.uniform(0.4, 0.8)), rng.uniform(360, 440)
    gains = 1 / np.arange(1, 15) ** 0.6
    chord = harmonics(np.full(n, pitch), gains) + harmonics(np.full(n, 1.26 * pitch), gains)
    return faded(chord, 0.02, 0.05)


def _beep(rng: Generator) -> Wave:
    n = samples(rng.uniform(0.12, 0.2))
    return faded(harmonics(np.full(n, rng.uniform(1900, 2900)), (1, 0, 0.25, 0, 0.1)), 0.003, 0.005)


def _phone(rng: Generator) -> Wave:
    n, rate, hz = samples(rng.uniform(0.8, 1.1)), rng.uniform(19, 25), rng.uniform(1150, 1450)
    strikes = [
        ringing(samples(0.25), (hz * pitch, 1, 0.08), (2.6 * hz * pitch, 0.8, 0.06), (4.7 * hz * pitch, 0.5, 0.04))
        for pitch in (1.0, 1.18)
    ]
    return faded(placed(n, [(k / rate, 1.0, strikes[k % 2]) for k in range(int(n / RATE * rate))]), 0.01, 0.15)


def _laser(rng: Generator) -> Wave:
    n = samples(rng.uniform(0.25, 0.4))
    high, low = rng.uniform(4500, 7000), rng.uniform(150, 350)
    return faded(harmonics(high * (low / high) ** curve(n, 0, 1), (1, 0, 0.33)), 0.003, 0.04)


def _whistle(rng: Generator) -> Wave:
    n, pitch = samples(rng.uniform(0.5, 0.85)), rng.uniform(1150, 1700)
    vibrato = 1 + 0.02 * np.sin(2 * np.pi * rng.uniform(5, 7) * np.arange(n) / RATE)
    tone = harmonics(pitch * vibrato * curve(n, 0.75, 1.1, 1.15, 0.9), (1, 0.04))
    return faded(tone + 0.04 * hiss(rng, n, 1500, 6000), 0.05, 0.1)


def _bell(rng: Generator) -> Wave:
    hz, n = rng.uniform(380, 620), samples(rng.uniform(1.5, 2.2))
    ratios = (0.5, 1, 1.19, 1.5, 2, 2.74, 3.0, 4.1, 5.4)
    return ringing(n, *((hz * r, rng.uniform(0.5, 1) / r**0.3, 0.9 / r**0.7) for r in ratios))


def _glass(rng: Generator) -> Wave:
    hz = rng.uniform(2700, 3500)
    return ringing(samples(0.5), *((hz * r, rng.uniform(0.6, 1), 0.16 / r**0.5) for r in (1, 1.57, 2.43, 3.6, 4.8)))


def _knock(rng: Generator) -> Wave:
    hz, n = rng.uniform(230, 330), samples(0.13)
    body = ringing(n, (hz, 1, 0.02), (2.7 * hz, 0.7, 0.014), (4.4 * hz, 0.4, 0.01))
    return body + 0.25 * hiss(rng, n, 300, 2500) * np.exp(-np.arange(n) / RATE / 0.008)


def _drum(rng: Generator) -> Wave:
    n = samples(0.4)
    time = np.arange(n) / RATE
    sweep = rng.uniform(60, 85) * (1 + 1.2 * np.exp(-time / 0.03))
    skin = harmonics(sweep, (1, 0.3)) * np.exp(-time / rng.uniform(0.11, 0.16))
    return faded(skin + 0.4 * hiss(rng, n, 3000, 10000) * np.exp(-time / 0.05), 0.001, 0.05)


def _drop(rng: Generator) -> Wave:
    n, hz = samples(0.16), rng.uniform(550, 900)
    time = np.arange(n) / RATE
    return faded(harmonics(hz * (1 + 1.6 * (1 - np.exp(-time / 0.03))), (1,)) * np.exp(-time / 0.035), 0.004, 0.02)


def _thunder(rng: Generator) -> Wave:
    n = samples(rng.uniform(2.0, 2.6))
    time = np.arange(n) / RATE
    rumble = hiss(rng, n, 25, 130) * (0.25 + wander(rng, n, 5)) * np.exp(-time / 1.1)
    crack = hiss(rng, n, 100, 2500) * np.exp(-time / rng.uniform(0.12, 0.2)) * (0.4 + 0.6 * wander(rng, n, 30))
    return faded(rumble + 0.7 * crack, 0.01, 0.5)


def _plane(rng: Generator) -> Wave:
    n, whine = samples(rng.uniform(2.3, 2.8)), rng.uniform(1900, 2500)
    middle = rng.uniform(0.4, 0.6)
    bend = 1 / (1 + np.exp((curve(n, 0, 1) - middle) * 14))
    roar = hiss(rng, n, 100, 700) * (1 - 0.5 * bend) + 0.8 * hiss(rng, n, 900, 4000) * bend
    tone = harmonics(whine * (0.6 + 0.4 * bend), (1, 0.6, 0.3))
    return faded((roar + 0.9 * tone) * np.exp(-(((curve(n, 0, 1) - middle) / 0.28) ** 2)), 0.3, 0.3)


# Stretches: machines


def _siren(rng: Generator, n: int) -> Wave:
    turns = np.arange(n) / RATE / rng.uniform(0.8, 1.5) + rng.random()
    swing = 0.5 - 0.5 * np.cos(2 * np.pi * turns)
    return harmonics(rng.uniform(520, 680) * rng.uniform(2.2, 2.6) ** swing, (1, 0.5, 0.4, 0.2, 0.15, 0.1))


def _engine(rng: Generator, n: int) -> Wave:
    pitch = rng.uniform(38, 55) * (1 + 0.08 * wander(rng, n, 2))
    gains = rng.uniform(0.4, 1, 30) / np.arange(1, 31) ** 0.5
    return harmonics(pitch, gains) + 0.3 * hiss(rng, n, 60, 1200)


def _helicopter(rng: Generator, n: int) -> Wave:
    turns = np.arange(n) / RATE * rng.uniform(11, 15)
    thump: Wave = np.exp(-5 * (turns % 1))
    return hiss(rng, n, 60, 600) * thump + 0.5 * hiss(rng, n, 600, 3000) * thump**2


def _clock(rng: Generator, n: int) -> Wave:
    hz = rng.uniform(2400, 3200)
    ticks = [ringing(samples(0.06), (hz * pitch, 1, 0.006), (2.2 * hz * pitch, 0.9, 0.004)) for pitch in (1.0, 0.8)]
    beats = _beats(rng, n, rng.uniform(0.35, 0.5), 0.0)
    return placed(n, [(at, 1.0, ticks[k % 2]) for k, at in enumerate(beats)])


def _typing(rng: Generator, n: int) -> Wave:
    hits, at = [], 0.03
    length = samples(0.07)
    time = np.arange(length) / RATE
    while at < n / RATE:
        click = hiss(rng, length, 1500, 5500) * (np.exp(-time / 0.004) + 0.5 * np.exp(-((time - 0.045) ** 2) / 4e-6))
        hits.append((at, rng.uniform(0.5, 1), click + ringing(length, (rng.uniform(420, 520), 1.3, 0.012))))
        at += rng.uniform(0.08, 0.2)
    return placed(n, hits)


def _saw(rng: Generator, n: int) -> Wave:
    turns = np.arange(n) / RATE * rng.uniform(1.6, 2.4)
    forth = turns % 2 < 1
    teeth = 0.6 + 0.4 * np.sin(2 * np.pi * rng.uniform(70, 100) * np.arange(n) / RATE)
    stroke = np.sin(np.pi * (turns % 1)) ** 0.7 * teeth
    return stroke * np.where(forth, hiss(rng, n, 1800, 5500), 0.8 * hiss(rng, n, 900, 2800))


# Stretches: people and animals


def _footsteps(rng: Generator, n: int) -> Wave:
    length, hits = samples(0.14), []
    time = np.arange(length) / RATE
    low = rng.uniform(500, 900)
    for at in _beats(rng, n, rng.uniform(0.42, 0.58), 0.08):
        scuff = hiss(rng, length, low, 4.5 * low) * np.exp(-time / 0.03) * (1 - np.exp(-time / 0.01))
        hits.append((at, rng.uniform(0.7, 1), scuff + 0.8 * ringing(length, (rng.uniform(85, 115), 1, 0.03))))
    return placed(n, hits)


def _heartbeat(rng: Generator, n: int) -> Wave:
    first, second = (ringing(samples(0.2), (hz, 1, 0.035)) for hz in rng.uniform((42, 55), (50, 68)))
    beats = _beats(rng, n, rng.uniform(0.62, 0.9), 0.04)
    return placed(n, [hit for at in beats for hit in ((at, 1.0, first), (at + 0.24, 0.7, second))])


def _babble(rng: Generator, n: int) -> Wave:
    wave = np.zeros(n)
    for pitch in rng.uniform(95, 230, 3):
        voice = harmonics(pitch * (0.9 + 0.25 * wander(rng, n, 3)), 1 / np.arange(1, 21) ** 0.5)
        for low, high, gain in ((300, 750, 1.0), (900, 1900, 0.7), (2200, 3200, 0.4)):
            wave += gain * band(voice, low, high) * wander(rng, n, 9) ** 2
    return wave


def _cricket(rng: Generator, n: int) -> Wave:
    chirps, rate, inside = rng.uniform(2.4, 3.6), rng.uniform(30, 42), rng.integers(3, 6)
    pulse = faded(harmonics(np.full(samples(0.018), rng.uniform(4100, 5000)), (1, 0.1)), 0.006, 0.006)
    beats = [k / chirps for k in range(int(n / RATE * chirps) + 1)]
    return placed(n, [(at + k / rate, 0.6 + 0.1 * k, pulse) for at in beats for k in range(inside)])


def _insect(rng: Generator, n: int) -> Wave:
    pitch = rng.uniform(190, 250) * (0.85 + 0.3 * wander(rng, n, 6))
    return harmonics(pitch, 1 / np.arange(1, 26) ** 0.35) * (0.4 + 0.6 * wander(rng, n, 4))


# Stretches: weather and fire


def _rain(rng: Generator, n: int) -> Wave:
    shower = hiss(rng, n, rng.uniform(2500, 3500) // 250 * 250, 14000)
    drops = (rng.random(n) < 90 / RATE) * rng.exponential(5, n)
    return (shower + band(drops, 2000, 9000) * 3) * (0.8 + 0.2 * wander(rng, n, 2))


def _wind(rng: Generator, n: int) -> Wave:
    gust = wander(rng, n, 1.5)
    return (1 - gust) * hiss(rng, n, 150, 350) + gust * (hiss(rng, n, 350, 700) + 0.2 * hiss(rng, n, 700, 1500))


def _fire(rng: Generator, n: int) -> Wave:
    rate = rng.uniform(18, 30)
    sparks = (rng.random(n) < rate / RATE) * rng.lognormal(0, 0.8, n)
    body = hiss(rng, samples(0.02), 1500, 14000) * np.exp(-np.arange(samples(0.02)) / RATE / 0.003)
    crackle = placed(n, [(at / RATE, sparks[at], body) for at in np.flatnonzero(sparks)])
    return crackle + 0.12 * hiss(rng, n, 60, 300)


_CALLS = (
    *(_bark, _cat, _cow, _owl, _frog, _bird),
    *(_horn, _beep, _phone, _laser, _whistle, _bell, _glass, _knock, _drum, _drop, _thunder, _plane),
)
_STRETCHES = (
    *(_siren, _engine, _helicopter, _clock, _typing, _saw),
    *(_footsteps, _heartbeat, _babble, _cricket, _insect, _rain, _wind, _fire),
)
CALLS: dict[str, Callable[[Generator], Wave]] = {make.__name__[1:]: make for make in _CALLS}
STRETCHES: dict[str, Callable[[Generator, int], Wave]] = {make.__name__[1:]: make for make in _STRETCHES}
KINDS = (*CALLS, *STRETCHES)
LONG = ("thunder", "plane")
"""Calls that take most of a clip and so happen once."""
