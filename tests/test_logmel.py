"""Log-mels against librosa, which is the published baselines' own front end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from earmark.audio.decode import load
from earmark.audio.logmel import PANNS, PAPER, YAMNET, LogMel, frame_count, least_samples, log_mel
from earmark.errors import ConfigError, DataError

librosa = pytest.importorskip("librosa")


def by_librosa(samples: np.ndarray, rate: int, settings: LogMel) -> np.ndarray:
    window, hop, size = settings.samples(rate)
    if not settings.centred:  # librosa's frames are as long as the transform, with the window in their middle
        samples = np.pad(samples, ((size - window) // 2, size))
    mel = librosa.feature.melspectrogram(
        y=samples,
        sr=rate,
        n_fft=size,
        win_length=window,
        hop_length=hop,
        center=settings.centred,
        power=settings.power,
        n_mels=settings.n_mels,
        fmin=settings.fmin,
        fmax=settings.fmax,
        htk=settings.scale == "htk",
        norm="slaney" if settings.scale == "slaney" else None,
        dtype=samples.dtype,
    ).T
    return np.log(mel + settings.floor) if settings.log == "natural" else 10 * np.log10(np.maximum(mel, settings.floor))


def sound(seconds: float, rate: int, dtype=np.float64) -> np.ndarray:
    """A sweep that fades, over faint noise: loud and nearly silent bins."""
    t = np.arange(round(seconds * rate)) / rate
    noise = 1e-4 * np.random.default_rng(0).standard_normal(len(t))
    return (np.sin(2 * np.pi * (100 * t + 900 * t**2)) * np.exp(-2 * t) + noise).astype(dtype)


@pytest.mark.parametrize("rate", [44_100, 22_050, 48_000])
def test_the_papers_front_end_equals_librosa_in_float64(rate):
    samples = sound(2.3, rate)
    got = log_mel(samples, rate, PAPER, torch.float64).numpy()
    np.testing.assert_allclose(got, by_librosa(samples, rate, PAPER), atol=1e-4, rtol=0)


@pytest.mark.parametrize("settings", [PANNS, YAMNET], ids=["panns", "yamnet"])
def test_other_front_ends_equal_librosa_in_float64(settings):
    samples = sound(2.3, settings.rate)
    got = log_mel(samples, settings.rate, settings, torch.float64).numpy()
    np.testing.assert_allclose(got, by_librosa(samples, settings.rate, settings)[: len(got)], atol=1e-4, rtol=0)


def test_float32_equals_librosa_in_bins_that_are_not_rounding_alone():
    samples = sound(3.0, 44_100, np.float32)
    got = log_mel(samples, 44_100).numpy()
    expected = by_librosa(samples, 44_100, PAPER)
    heard = np.exp(expected) > 1e-7 * np.exp(expected).max()
    assert np.abs(got - expected)[heard].max() < 1e-3


@pytest.mark.parametrize("settings", [PAPER, PANNS, YAMNET], ids=["paper", "panns", "yamnet"])
def test_real_sounds_equal_librosa(real_data, settings):
    files = sorted((real_data / "clotho_clips").glob("*.wav"))
    assert files
    for path in files:
        samples = load(path, None if settings is PAPER else settings.rate)
        double = samples.samples.astype(np.float64)
        got = log_mel(double, samples.rate, settings, torch.float64).numpy()
        expected = by_librosa(double, samples.rate, settings)[: len(got)]
        np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)
        in_single = log_mel(samples.samples, samples.rate, settings).numpy()
        a_nat = 10 / np.log(10) if settings.log == "decibel" else 1.0
        heard = expected > expected.max() + a_nat * np.log(1e-7)
        assert np.abs(in_single - expected)[heard].max() < 1e-3 * a_nat


def test_the_papers_window_hop_and_transform():
    assert PAPER.samples(44_100) == (1764, 882, 2048)
    assert PANNS.samples(32_000) == (1024, 320, 1024)
    assert YAMNET.samples(16_000) == (400, 160, 512)


@pytest.mark.case("A05", "M03")
@pytest.mark.parametrize("settings", [PAPER, PANNS, YAMNET], ids=["paper", "panns", "yamnet"])
@pytest.mark.parametrize("samples", [1, 100, 399, 400, 401, 559, 560, 561, 1024, 16_000, 44_100])
def test_frame_count_says_how_many_frames_come(settings, samples):
    got = log_mel(np.zeros(samples), settings.rate, settings)
    assert got.shape == (frame_count(samples, settings.rate, settings), 64)
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("settings", [PAPER, PANNS, YAMNET], ids=["paper", "panns", "yamnet"])
def test_least_samples_give_so_many_frames_and_one_less_does_not(settings):
    least = least_samples(64, settings.rate, settings)
    assert frame_count(least, settings.rate, settings) == 64
    assert frame_count(least - 1, settings.rate, settings) == 63


@pytest.mark.case("N08")
def test_silence_is_the_floor_and_finite():
    got = log_mel(np.zeros(44_100, np.float32), 44_100)
    np.testing.assert_allclose(got.numpy(), np.log(2.0**-52), rtol=1e-6)


@pytest.mark.case("M01")
def test_the_same_samples_give_the_same_bits_whatever_holds_them():
    samples = sound(2.0, 44_100, np.float32)
    first = log_mel(samples, 44_100)
    assert torch.equal(first, log_mel(torch.from_numpy(samples), 44_100))
    assert torch.equal(first, log_mel(samples[None, None], 44_100)[0, 0])
    assert log_mel(samples[None, None], 44_100).shape == (1, 1, *first.shape)


def test_without_centring_only_whole_windows_are_frames():
    samples = np.zeros(16_000)
    samples[399] = 1.0  # the last sample of the first window, where the periodic Hann is not 0
    got = log_mel(samples, 16_000, YAMNET, torch.float64)
    silence = np.log(0.001)
    assert got.shape == (98, 64)
    assert [bool((frame > silence + 1e-6).any()) for frame in got[:5]] == [True, True, True, False, False]


def test_a_batch_gives_each_clip_what_it_gives_alone():
    clips = np.stack([sound(1.0, 44_100, np.float32), np.zeros(44_100, np.float32)])
    together = log_mel(clips, 44_100)
    for alone, joint in zip(clips, together, strict=True):
        torch.testing.assert_close(log_mel(alone, 44_100), joint, atol=1e-5, rtol=1e-5)


def test_long_clips_are_cut_for_memory_without_a_seam():
    samples = sound(200.0, 8_000, np.float32)
    got = log_mel(samples, 8_000)
    part = log_mel(samples[5_000 * 160 - 1600 :], 8_000)  # frame 5000 stands ten frames into this part
    torch.testing.assert_close(got[5_001:5_100], part[11:110], atol=1e-5, rtol=1e-5)


def test_what_cannot_be_used_is_refused():
    with pytest.raises(DataError, match="expected samples"):
        log_mel(np.zeros(0), 44_100)
    with pytest.raises(DataError, match="not finite"):
        log_mel(np.array([0.0, np.nan]), 44_100)
    with pytest.raises(DataError, match="not finite"):
        log_mel(np.array([0.0, 1e30]), 44_100)
    with pytest.raises(ConfigError, match="Resample to 32000"):
        log_mel(np.zeros(1000), 16_000, PANNS)
    with pytest.raises(ConfigError, match="too low"):
        log_mel(np.zeros(1000), 20)
