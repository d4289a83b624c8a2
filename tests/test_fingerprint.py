"""The same recording is found whatever was done to the file, and sounds that are merely alike are not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st

from earmark.audio import recordings
from earmark.audio.fingerprint import HOP, RATE, WINDOW, Index, distance, fingerprint
from earmark.audio.likeness import likeness
from earmark.audio.recordings import attempted, listen, same_recordings
from earmark.errors import DataError


def quiet(what: str, done: int, all_: int) -> None:
    """Progress that nobody sees."""


def rustle(seconds: float, seed: int = 0) -> np.ndarray:
    """Noise of changing colour and loudness, as recordings have it."""
    chance = np.random.default_rng(seed)
    pieces = []
    for _ in range(max(1, round(seconds / 0.1))):
        low = chance.uniform(150, 2500)
        band = scipy.signal.butter(2, [low, low * chance.uniform(1.5, 3)], "band", fs=RATE, output="sos")
        pieces.append(scipy.signal.sosfilt(band, chance.standard_normal(RATE // 10)) * chance.uniform(0.05, 0.3))
    return np.concatenate(pieces)[: round(seconds * RATE)].astype(np.float32)


def tone(hertz: float, seconds: float, phase: float = 0.0) -> np.ndarray:
    return (0.4 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE + phase)).astype(np.float32)


def matches(folder: Path, here: dict[str, np.ndarray], there: dict[str, np.ndarray]) -> set[tuple[str, str]]:
    """The names of the sounds that are the same, of two sides that are written as wav files."""
    sides = {}
    for side, sounds in enumerate((here, there)):
        for name, samples in sounds.items():
            path = folder / f"{side}-{name}.wav"
            soundfile.write(path, samples, RATE, subtype="FLOAT")
            sides[path] = {side}
    prints, failed = listen(list(sides), quiet)
    assert not failed
    found = same_recordings(prints, sides, quiet)
    return {tuple(path.stem.partition("-")[2] for path in (match.one, match.other)) for match in found}  # type: ignore[misc]


# Fingerprints


def test_a_frame_ends_with_every_hop_and_silence_is_not_loud():
    sound = rustle(1.0)
    found = fingerprint([np.concatenate([np.zeros(4 * WINDOW, np.float32), sound])])
    assert found.samples == len(sound) + 4 * WINDOW
    assert len(found.words) == len(found.loud) == 1 + (found.samples + WINDOW - HOP) // HOP
    assert not found.loud[: 4 * WINDOW // HOP].any()
    assert found.loud[4 * WINDOW // HOP + 8 : -8].all()


@given(st.lists(st.integers(1, 9000), max_size=6))
def test_the_blocks_in_which_a_sound_comes_make_no_difference(cuts):
    sound = rustle(1.5)
    edges = sorted({0, len(sound), *(cut for cut in np.cumsum(cuts) if cut < len(sound))})
    whole, parts = fingerprint([sound]), fingerprint(sound[a:b] for a, b in pairwise(edges))
    assert whole.samples == parts.samples
    assert np.array_equal(whole.loud, parts.loud)
    assert np.mean(whole.words != parts.words) < 0.02  # matrices of another size round otherwise


def test_gain_and_polarity_change_few_bits_and_another_sound_changes_most():
    one = fingerprint([rustle(2.0)])
    assert distance(one, fingerprint([-0.1 * rustle(2.0)]), 0) < 0.01
    assert distance(one, fingerprint([rustle(2.0, seed=1)]), 0) > 0.6
    assert distance(one, fingerprint([np.zeros(RATE, np.float32)]), 0) == 1.0


def test_what_has_no_frames_has_no_candidates():
    nothing = fingerprint([np.zeros(RATE, np.float32)])
    index = Index([nothing, fingerprint([rustle(1.0)]), fingerprint([]), fingerprint([np.ones(1, np.float32)])])
    assert index.candidates(nothing, np.ones(4, np.bool_)) == []
    assert Index([]).candidates(fingerprint([rustle(1.0)]), np.ones(0, np.bool_)) == []


def test_the_index_tells_where_an_excerpt_stands_and_keeps_to_what_is_allowed():
    whole = rustle(6.0)
    index = Index([fingerprint([rustle(6.0, seed=1)]), fingerprint([whole])])
    excerpt = fingerprint([whole[40_000:64_000]])
    [found] = index.candidates(excerpt, np.ones(2, np.bool_))
    assert found.sound == 1
    assert abs(found.offsets[0] - 40_000) <= 2 * HOP
    assert index.candidates(excerpt, np.array([True, False])) == []


# Likeness


@pytest.mark.parametrize("gain", [1.0, 0.1, -0.5])
def test_equal_sounds_have_likeness_1_at_their_offset(gain):
    sound = rustle(2.0)
    found = likeness(sound, gain * sound[5000:20_000], 4700)
    assert found.value == pytest.approx(1, abs=1e-3)
    assert found.offset == 5000
    assert found.same(contained=True, as_long=False)


def test_likeness_is_the_correlation_of_square_rooted_spectra():
    """Against the sum as the docstring has it, without bands and Fourier tricks."""
    first, second = rustle(0.5), rustle(0.5)
    second = (second + 0.3 * rustle(0.5, seed=1)).astype(np.float32)
    size = scipy.fft.next_fast_len(len(first) + 5)
    x, y = np.fft.rfft(first, size), np.fft.rfft(second, size)
    hertz = np.fft.rfftfreq(size, 1 / RATE)
    product = x * np.conj(y) / np.sqrt(np.abs(x * y))
    edges = (60, 150, 300, 550, 900, 1400, 2000, 2800, 3800, 5200, 7500)
    above = abs(product[(hertz >= 60) & (hertz < 7500)].sum())
    below = sum(
        np.sqrt(np.abs(x[inside]).sum() * np.abs(y[inside]).sum())
        for inside in ((hertz >= low) & (hertz < high) for low, high in pairwise(edges))
    )
    assert likeness(first, second, 0, reach=4).value == pytest.approx(above / below, abs=1e-3)


def test_unrelated_silent_and_tiny_sounds_have_none():
    assert likeness(rustle(2.0), rustle(2.0, seed=1), 0).value < 0.3
    assert likeness(rustle(1.0), np.zeros(RATE, np.float32), 0).value == 0
    assert likeness(rustle(1.0)[:100], rustle(1.0), 0).value == 0
    assert likeness(rustle(1.0), rustle(1.0), 3 * RATE).value == 0


def test_a_copy_whose_samples_lie_between_ours_is_as_like():
    fine = soxr.resample(rustle(2.0), RATE, 3 * RATE)
    assert likeness(fine[::3].copy(), fine[1::3].copy(), 0).value > 0.98


# Recordings


CHANGES = {
    "quiet": lambda sound: 0.1 * sound,
    "loud": lambda sound: np.clip(sound * 1.41 / np.abs(sound).max(), -1, 1),
    "inverted": lambda sound: -sound,
    "8 kHz": lambda sound: soxr.resample(soxr.resample(sound, RATE, 8000), 8000, RATE),
    "between silence": lambda sound: np.concatenate([np.zeros(9999), sound, np.zeros(20_001)]),
    "trimmed": lambda sound: sound[len(sound) // 10 : -len(sound) // 10],
    "noisy": lambda sound: sound + 0.001 * np.random.default_rng(7).standard_normal(len(sound)),
}


@pytest.mark.parametrize("seconds", [0.15, 0.5, 3.0])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found_and_nothing_else(tmp_path, change, seconds):
    originals = {str(seed): rustle(seconds, seed) for seed in range(4)}
    copies = {name: CHANGES[change](sound) for name, sound in originals.items()}
    assert matches(tmp_path, originals, copies) == {(name, name) for name in originals}


@pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate", [8000, 22_050, 48_000])
def test_a_transcoded_copy_is_found_with_its_place(tmp_path, form, rate):
    sound = rustle(4.0)
    soundfile.write(tmp_path / "one.wav", np.stack([sound, 0.5 * sound], axis=1), RATE)
    excerpt = soxr.resample(sound[16_000:48_000], RATE, rate)
    soundfile.write(tmp_path / "other", excerpt, rate, format=form)
    sides = {tmp_path / "one.wav": {0}, tmp_path / "other": {1}}
    [match] = same_recordings(listen(list(sides), quiet)[0], sides, quiet)
    begin = dict(zip((match.one, match.other), match.starts, strict=True))
    assert begin[tmp_path / "one.wav"] - begin[tmp_path / "other"] == pytest.approx(1.0, abs=0.06)  # coders' delay
    assert match.seconds == pytest.approx(2.0, abs=0.1)
    assert match.likeness > 0.8


def test_an_excerpt_of_a_long_sound_and_long_copies_are_found(tmp_path, monkeypatch):
    """Long sounds are decoded in pieces; here 20 s are long already."""
    monkeypatch.setattr(recordings, "SHORT", 20 * RATE)
    long = rustle(60.0)
    there = {"excerpt": long[700_000:724_000], "copy": 0.3 * long, "later": long[400_000:], "another": rustle(60.0, 9)}
    assert matches(tmp_path, {"long": long}, there) == {("long", each) for each in ("excerpt", "copy", "later")}


def test_sounds_that_share_too_little_are_not_the_same(tmp_path):
    first, second = rustle(4.0), rustle(4.0, seed=1)
    joined = np.concatenate([first[-8000:], second])  # half a second of one, then another
    assert matches(tmp_path, {"first": first}, {"joined": joined}) == set()


def test_silence_noise_and_tones_are_nobodys_copy(tmp_path):
    chance = np.random.default_rng(0)
    sounds = {f"white{n}": 0.1 * chance.standard_normal(RATE) for n in range(8)}
    sounds |= {f"brown{n}": scipy.signal.lfilter([0.01], [1, -0.99], chance.standard_normal(RATE)) for n in range(8)}
    sounds |= {f"tone{hertz}": tone(hertz, 1.0) for hertz in (100, 220, 440, 442, 880, 1000, 1010, 3000)}
    sounds |= {f"short{hertz}": tone(hertz, 0.2) for hertz in (300, 450, 2000)}
    sounds |= {f"dither{n}": np.round(chance.standard_normal(RATE) * 0.6) / 32768 for n in range(3)}
    sounds |= {"silence": np.zeros(RATE), "short silence": np.zeros(100), "constant": np.full(RATE, 0.3)}
    found = matches(tmp_path, sounds, sounds)
    assert {pair for pair in found if pair[0] != pair[1]} == set()
    assert not {"silence", "short silence"} & {name for pair in found for name in pair}


def test_beeps_of_one_pitch_and_different_length_are_not_the_same(tmp_path):
    here = {str(hertz): tone(hertz, 0.3) for hertz in (440, 1000)}
    there = {str(hertz): tone(hertz, 2.0, phase=1.0) for hertz in (440, 1000)}
    assert matches(tmp_path, here, there) == set()


def test_one_stroke_in_two_rhythms_is_not_the_same_recording(tmp_path):
    t = np.arange(RATE // 5) / RATE
    stroke = np.exp(-t / 0.05) * np.sin(2 * np.pi * 60 * t)
    loops = {}
    for name, beats in {"waltz": (0, 6, 12), "march": (0, 4, 8, 13)}.items():
        loops[name] = np.zeros(3 * RATE)
        for beat in beats:
            loops[name][beat * 3000 : beat * 3000 + len(stroke)] += stroke
    assert matches(tmp_path, {"waltz": loops["waltz"]}, {"march": loops["march"]}) == set()


def test_a_file_that_stands_on_both_sides_is_not_compared_with_itself_and_pairs_come_once(tmp_path):
    paths = [tmp_path / f"{name}.wav" for name in "abc"]
    for number, path in enumerate(paths):
        soundfile.write(path, (1 - 0.2 * number) * rustle(1.0), RATE)
    prints, _ = listen(paths, quiet)
    pairs = [{match.one, match.other} for match in same_recordings(prints, {path: {0, 1} for path in paths}, quiet)]
    assert sorted(map(sorted, pairs)) == [[paths[0], paths[1]], [paths[0], paths[2]], [paths[1], paths[2]]]
    assert list(same_recordings(prints, {path: {0} for path in paths}, quiet)) == []


def test_what_fails_is_told_and_costs_itself(tmp_path):
    paths = [tmp_path / "good", tmp_path / "bad", tmp_path / "gone"]
    paths[0].write_text("good")
    paths[1].write_text("bad")
    seen = []

    def read(path: Path) -> str:
        if path.read_text() == "bad":
            raise DataError(f"{path}: is bad. Mend it.")
        return "read"

    done, failed = attempted(read, paths, "reading", lambda *told: seen.append(told))
    assert done == {paths[0]: "read"}
    assert failed[paths[1]] == "is bad. Mend it"
    assert "No such file" in failed[paths[2]]
    assert seen[-1] == ("reading", 3, 3)


def test_real_sounds_are_found_in_other_forms_and_only_they(real_data, tmp_path):
    """Every twentieth sound of the library, as quiet mp3 and as an excerpt in ogg; 0 false pairs in all."""
    paths = sorted(path for path in (real_data / "library").rglob("*") if path.is_file())[::20]
    sides, wanted = {}, set()
    for number, path in enumerate(paths):
        samples, rate = soundfile.read(path, always_2d=True)
        if len(samples) < 0.15 * rate or not np.abs(samples).max() > 0.01:
            continue
        sides[path] = {0}
        rate_of_copy = min(rate, 48_000)
        copy = soxr.resample(0.2 * samples, rate, rate_of_copy)
        soundfile.write(tmp_path / f"{number}.mp3", copy, rate_of_copy, format="MP3")
        sides[tmp_path / f"{number}.mp3"] = {1}
        wanted.add((path, tmp_path / f"{number}.mp3"))
        if len(samples) > 4 * rate and np.abs(samples[rate : 3 * rate]).max() > 0.05:
            soundfile.write(tmp_path / f"{number}.ogg", samples[rate : 3 * rate], rate, format="OGG")
            sides[tmp_path / f"{number}.ogg"] = {1}
            wanted.add((path, tmp_path / f"{number}.ogg"))
    prints, failed = listen(list(sides), quiet)
    assert not failed
    found = {(match.one, match.other) for match in same_recordings(prints, sides, quiet)}
    assert found <= wanted
    assert len(found) >= 0.95 * len(wanted) > 50
