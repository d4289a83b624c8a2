"""Features of clips: entropies by hand, the signal against librosa and pyloudnorm, and whatever a file may hold."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from test_tagging import Small, random_network, saved
from test_yamnet import made_file

from earmark.analyse import clips as analysed
from earmark.analyse.clips import (
    ENTROPIES,
    NAMES,
    ClipSettings,
    clip_features,
    entropies_of,
    entropy,
    signal_features,
)
from earmark.audio import decode
from earmark.audio.cache import FeatureCache
from earmark.data.collection import Clip, Collection
from earmark.errors import ConfigError, DataError
from earmark.model import tagging

NONE = ClipSettings(tagger="none")


def noise(seconds: float, rate: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.1 * rng.standard_normal(max(1, round(seconds * rate)))


def write(path: Path, wave: np.ndarray, rate: int) -> Path:
    soundfile.write(path, wave, rate, subtype="FLOAT")
    return path


def signal(path: Path, silence_db: float = -60) -> dict[str, float]:
    return signal_features(path, silence_db, [])


def collection(root: Path, *clips: Clip) -> Collection:
    return Collection(root, list(clips), [])


# Entropies


def test_entropies_by_hand():
    assert entropy(np.array([0.25, 0.25, 0.5])) == 1.5
    assert entropy(np.array([3.0, 3.0, 0.0, 6.0])) == 1.5
    assert entropy(np.array([0.0, 7.0])) == 0
    assert math.isnan(entropy(np.zeros(5)))
    # over frames: means 0.25, 0.25, 0.5; over classes: sums 0.5 and 1.5
    frames = np.array([[0.25, 0.25], [0.25, 0.25], [0.0, 1.0]], np.float32)
    over_classes = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    expected = 1.5, over_classes, 1.5 / math.log2(3), over_classes
    assert entropies_of([frames]) == pytest.approx(dict(zip(ENTROPIES, expected, strict=True)))
    assert entropies_of([frames[:2], frames[2:]]) == pytest.approx(entropies_of([frames]))


def test_one_frame_has_no_normalised_entropy_over_time():
    e_time, e_class, over_time, over_classes = entropies_of([np.array([[0.5, 0.5, 0.5, 0.5]])]).values()
    assert (e_time, e_class, over_classes) == (0, 2, 1)
    assert math.isnan(over_time)


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=40))
def test_an_entropy_lies_between_none_and_all_equal(values):
    found = entropy(np.array(values))
    assert math.isnan(found) or 0 <= found <= math.log2(len(values)) + 1e-9
    assert math.isnan(found) == (sum(values) == 0)


# The signal


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("seconds", [0.4, 0.9, 6.0])
def test_loudness_is_what_pyloudnorm_measures_at_48_khz(tmp_path, rate, seconds):
    pyloudnorm = pytest.importorskip("pyloudnorm")
    t = np.arange(round(seconds * rate)) / rate
    low = np.convolve(noise(seconds, rate), np.ones(4) / 4, "same")  # little at the top, where resamplers differ
    wave = low * (0.1 + np.sin(2 * t) ** 2)
    path = write(tmp_path / "a.wav", wave, rate)
    meter = pyloudnorm.Meter(48_000, filter_class="DeMan")
    at_48 = decode.load(path, 48_000).samples.astype(np.float64)
    expected = meter.integrated_loudness(np.pad(at_48, (0, max(0, 19_200 - len(at_48)))))
    assert signal(path)["loudness_lufs"] == pytest.approx(expected, abs=0.1)


def test_loudness_of_a_known_tone(tmp_path):
    tone = np.sin(2 * np.pi * 997 * np.arange(3 * 48_000) / 48_000)  # full scale in one channel: −3.01 LUFS (BS.1770)
    assert signal(write(tmp_path / "a.wav", tone, 48_000))["loudness_lufs"] == pytest.approx(-3.01, abs=0.02)
    half = write(tmp_path / "b.wav", np.stack([tone, tone], axis=1) / 2, 48_000)  # the mean of the channels
    assert signal(half)["loudness_lufs"] == pytest.approx(-9.03, abs=0.02)


def test_loudness_leaves_out_what_is_below_the_relative_gate(tmp_path):
    wave = np.concatenate([noise(4, 48_000), 0.001 * noise(8, 48_000)])
    loud = signal(write(tmp_path / "a.wav", wave[: 4 * 48_000], 48_000))["loudness_lufs"]
    assert signal(write(tmp_path / "b.wav", wave, 48_000))["loudness_lufs"] == pytest.approx(loud, abs=0.5)


@pytest.mark.parametrize(
    "wave",
    [noise(0.39, 48_000), np.zeros(48_000), 1e-6 * noise(1, 48_000), 50 * noise(1, 48_000)],
    ids=["short", "silent", "below the gate", "above the scale"],
)
def test_loudness_is_undefined_where_it_cannot_be_measured(tmp_path, wave):
    assert math.isnan(signal(write(tmp_path / "a.wav", wave, 48_000))["loudness_lufs"])


@pytest.mark.filterwarnings("ignore:n_fft=2048 is too large")
@pytest.mark.parametrize("rate", [8_000, 44_100])
@pytest.mark.parametrize("samples", [100, 1023, 1024, 2048, 4097, 131_072, 150_000])
def test_spectra_are_librosas(tmp_path, rate, samples):
    librosa = pytest.importorskip("librosa")
    wave = noise(samples / rate, rate) * np.linspace(1, 0.2, samples)
    wave += 0.3 * np.sin(2 * np.pi * 440 * np.arange(samples) / rate)
    wave = wave.astype(np.float32)
    found = signal(write(tmp_path / "a.wav", wave, rate))
    settings = {"n_fft": 2048, "hop_length": 1024}
    double = wave.astype(np.float64)
    centroid = librosa.feature.spectral_centroid(y=double, sr=rate, **settings)
    flatness = librosa.feature.spectral_flatness(y=double, **settings)
    assert found["centroid_hz"] == pytest.approx(centroid.mean(), rel=1e-6)
    assert found["flatness"] == pytest.approx(flatness.mean(), rel=1e-6)
    assert found["duration_s"] == samples / rate
    assert found["silence_share"] == 0


def test_silent_frames_are_counted_and_enter_no_mean(tmp_path):
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(20 * 1024) / 44_100)
    wave = np.concatenate([tone, 1e-4 * noise(20 * 1024 / 44_100, 44_100)])
    alone, both = signal(write(tmp_path / "a.wav", tone, 44_100)), signal(write(tmp_path / "b.wav", wave, 44_100))
    assert alone["silence_share"] == 0
    assert both["silence_share"] == 20 / 41  # 20 of 1 + 40·1024 / 1024 frames hold nothing of the tone
    assert both["centroid_hz"] == pytest.approx(alone["centroid_hz"], rel=0.02)
    quieter = signal(tmp_path / "b.wav", silence_db=-120)
    assert quieter["silence_share"] == 0
    assert quieter["centroid_hz"] > 2 * both["centroid_hz"]


def test_silence_at_the_ends_of_a_short_sound_is_not_its_own(tmp_path):
    assert signal(write(tmp_path / "a.wav", np.full(20, 0.0011), 44_100))["silence_share"] == 0
    assert signal(write(tmp_path / "b.wav", np.full(20, 0.0009), 44_100))["silence_share"] == 1


def test_digital_silence_has_neither_centroid_nor_flatness(tmp_path):
    found = signal(write(tmp_path / "a.wav", np.zeros(30_000), 44_100), silence_db=-1000)
    assert found["silence_share"] == 1
    assert all(math.isnan(found[name]) for name in ("centroid_hz", "flatness", "loudness_lufs"))


def test_a_click_under_the_windows_zero_is_no_fault(tmp_path):
    wave = np.zeros(8192)
    wave[2048] = 0.9
    found = signal(write(tmp_path / "a.wav", wave, 8000))
    assert 0 < found["flatness"] <= 1
    assert 0 < found["centroid_hz"] < 4000


@pytest.mark.parametrize("rate", [60, 1000, 11_025, 192_000, 3_000_000])
def test_any_rate_is_measured(tmp_path, rate):
    found = signal(write(tmp_path / "a.wav", noise(1, rate), rate))
    assert found["duration_s"] == 1
    assert 0 < found["centroid_hz"] < rate / 2
    assert found["loudness_lufs"] < -10 or rate == 60


def test_blocks_change_nothing(tmp_path, monkeypatch):
    path = write(tmp_path / "a.wav", noise(2.7, 16_000), 16_000)
    whole = signal(path)
    monkeypatch.setattr(decode, "SAMPLES_AT_ONCE", 777)
    assert signal(path) == pytest.approx(whole, rel=1e-9)


# A collection


@pytest.fixture
def small_tagger(own_models, monkeypatch) -> Path:
    """A small SED network where "auto" finds it."""
    monkeypatch.setattr(tagging, "PannsSed", Small)
    (own_models / "panns-sed").mkdir()
    return saved(random_network(), own_models / "panns-sed" / "sed.pth")


def test_all_features_of_a_collection(tmp_path, small_tagger):
    write(tmp_path / "a.wav", noise(3, 16_000), 16_000)
    write(tmp_path / "b.wav", np.stack([noise(0.1, 44_100), noise(0.1, 44_100, 1)], axis=1), 44_100)
    (tmp_path / "c.wav").write_text("no sound")
    clips = [Clip(name, f"{name}.wav", "x") for name in "abcd"]
    seen = []
    found = clip_features(
        collection(tmp_path, *clips), clips, ClipSettings(), lambda what, done, of: seen.append((what, done, of))
    )
    assert tuple(found.values) == NAMES
    assert seen == [("reading sounds", done, 4) for done in (1, 2, 3, 4)]
    assert [problem.where for problem in found.problems] == ["clip 'c'", "clip 'd'"]
    assert all(np.isnan(values[2:]).all() and values.dtype == np.float64 for values in found.values.values())
    expected = entropies_of(tagging.Tagger(*tagging.located("auto")).windows(tmp_path / "a.wav"))
    assert {name: found.values[name][0] for name in ENTROPIES} == pytest.approx(expected, abs=1e-5)  # threads round
    np.testing.assert_array_equal(found.values["duration_s"][:2], [3, 0.1])
    assert found.notes == [
        "entropies: class probabilities by panns-sed, 527 classes every 0.32 s",
        "e_time_normalised: undefined for 1 of 2 sounds (one frame)",
        "loudness_lufs: undefined for 1 of 2 sounds (shorter than 0.4 s, below −70 LUFS or above +10)",
    ]


def test_the_cache_keeps_every_digit_and_knows_what_decided_the_numbers(tmp_path, small_tagger, monkeypatch):
    path = write(tmp_path / "a.wav", noise(1, 16_000), 16_000)
    clip = Clip("a", "a.wav", "x")
    here = collection(tmp_path, clip)
    reader = analysed._Reader(tagging.Tagger(*tagging.located("auto")), -60.0)
    made, kept = reader.read(path), FeatureCache(reader.made_by).features(path, reader.read)
    assert kept.windows[0].dtype == made.windows[0].dtype
    assert kept.windows[0].tolist() == made.windows[0].tolist()
    assert kept.seconds == made.seconds == [1]
    first = clip_features(here, [clip], ClipSettings())
    monkeypatch.setattr(analysed, "signal_features", lambda *_: pytest.fail("measured again"))
    assert {n: v.tolist() for n, v in clip_features(here, [clip], ClipSettings()).values.items()} == {
        n: v.tolist() for n, v in first.values.items()
    }
    saved(random_network(seed=1), small_tagger)
    for other in (ClipSettings(), ClipSettings(silence_db=-50), NONE):
        with pytest.raises(pytest.fail.Exception):
            clip_features(here, [clip], other)


def test_clips_without_a_sound_have_the_duration_that_their_table_states(tmp_path, own_models, monkeypatch):
    monkeypatch.setattr(analysed, "located", lambda name: pytest.fail("looked for a tagger"))
    cells = ["3.25", "", "0", "-1", "nan", "three", "1e3", "12"]
    clips = [Clip(str(at), "", "x", more={"duration_s": cell}) for at, cell in enumerate(cells)]
    clips.append(Clip("none", "", "x"))
    found = clip_features(collection(tmp_path, *clips), clips, ClipSettings())
    np.testing.assert_array_equal(found.values["duration_s"], [3.25, *[np.nan] * 6, 12, np.nan])
    assert all(np.isnan(found.values[name]).all() for name in NAMES if name != "duration_s")
    assert found.problems == []
    assert found.notes == [
        "no clip has a sound: their features are undefined, save duration_s, which clips.csv states for 2 of them",
        "duration_s: 5 cells of clips.csv are undefined, '0' of clip '2' first; expected seconds above 0, as 3.25",
    ]
    assert clip_features(collection(tmp_path), [], ClipSettings()).values["e_time"].shape == (0,)


def test_without_a_tagger_the_entropies_alone_are_undefined(tmp_path, own_models, monkeypatch):
    monkeypatch.setattr("earmark.model.pretrained.PACKAGES", {})
    write(tmp_path / "a.wav", noise(1, 16_000), 16_000)
    clips = [Clip("a", "a.wav", "x"), Clip("b", "", "x")]
    here = collection(tmp_path, *clips)
    found = clip_features(here, clips, ClipSettings())
    undefined = [name for name in NAMES if np.isnan(found.values[name][0])]
    assert undefined == list(NAMES[:4])
    assert re.match(r"entropies: undefined, since no tagger was found .*panns-sed.*yamnet", found.notes[0])
    assert found.notes[1].startswith("1 of 2 clips have no sound")
    assert len(found.notes) == 2
    assert clip_features(here, clips, NONE).notes[0] == "entropies: undefined, since the tagger is none"
    with pytest.raises(ConfigError, match="tagger = 'yamnet'"):
        clip_features(here, clips, ClipSettings(tagger="yamnet"))
    (own_models / "panns-sed").write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match="not a PANNs checkpoint"):  # there, but broken: not passed over in silence
        clip_features(here, clips, ClipSettings())


def test_yamnet_is_taken_where_panns_is_not_there(tmp_path, own_models):
    made_file(own_models / "yamnet")
    write(tmp_path / "a.wav", noise(3, 16_000), 16_000)
    clip = Clip("a", "a.wav", "x")
    found = clip_features(collection(tmp_path, clip), [clip], ClipSettings())
    assert found.notes == ["entropies: class probabilities by yamnet, 521 classes over 0.96 s every 0.48 s"]
    assert 0 < found.values["e_class_normalised"][0] <= 1
    assert found.values["e_time"][0] <= math.log2(6)


@pytest.mark.parametrize("silence_db", [math.nan, 1.0, -math.inf])
def test_a_threshold_that_is_none_is_refused(silence_db):
    with pytest.raises(ConfigError, match="silence_db"):
        ClipSettings(silence_db=silence_db)


EDGES = {
    "one sample": np.full(1, 0.5),
    "silence": np.zeros(40_000),
    "clipped": np.clip(30 * noise(1, 44_100), -1, 1),
    "far above full scale": 1e9 * noise(1, 44_100),
    "not finite": np.where(np.arange(44_100) % 3, 0.1, np.nan),
    "stereo that cancels": np.stack([noise(1, 44_100), -noise(1, 44_100)], axis=1),
    "two minutes": noise(120, 8000),
}


@pytest.mark.parametrize("wave", EDGES.values(), ids=EDGES)
def test_odd_sounds_have_numbers_or_none(tmp_path, small_tagger, wave):
    write(tmp_path / "a.wav", wave, 8000 if len(wave) > 900_000 else 44_100)
    clip = Clip("a", "a.wav", "x")
    found = clip_features(collection(tmp_path, clip), [clip], ClipSettings())
    assert found.problems == []
    assert found.values["duration_s"][0] > 0
    assert 0 <= found.values["silence_share"][0] <= 1
    assert not any(np.isinf(values).any() for values in found.values.values())


def test_every_odd_file_has_numbers_or_is_a_problem(real_data, small_tagger):
    files = sorted((real_data / "odd").iterdir()) + sorted((real_data / "clotho_clips").rglob("*.wav"))
    clips = [Clip(path.name, str(path), "x") for path in files]
    found = clip_features(collection(real_data, *clips), clips, NONE)
    read = np.isfinite(found.values["duration_s"])
    assert read.sum() + len(found.problems) == len(clips)
    assert read[-6:].all()
    assert read.sum() > 0.8 * len(clips)
    for name in ("flatness", "silence_share"):
        values = found.values[name][~np.isnan(found.values[name])]
        assert ((values >= 0) & (values <= 1)).all()
