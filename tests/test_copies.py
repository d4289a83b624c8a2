"""Copies of a recording fold behind the first, whatever was done to the file; sounds that are merely alike do not."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.audio.decode import load
from earmark.audio.fingerprint import DELAY, RATE
from earmark.search.copies import HEAD, LEAST_SHARE, MOST_BYTES, REACH, alike, closeness, folded, print_of
from earmark.search.query import Hit, Region


def rustle(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    """Noise of changing colour and loudness, as recordings have it."""
    chance = np.random.default_rng(seed)
    pieces = []
    for _ in range(max(1, round(seconds / 0.1))):
        low = chance.uniform(150, 2500)
        band = scipy.signal.butter(2, [low, low * chance.uniform(1.5, 3)], "band", fs=rate, output="sos")
        pieces.append(scipy.signal.sosfilt(band, chance.standard_normal(rate // 10)) * chance.uniform(0.05, 0.3))
    return np.concatenate(pieces)[: round(seconds * rate)].astype(np.float32)


def tone(hertz: float, seconds: float) -> np.ndarray:
    return (0.4 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def printed(samples: np.ndarray, rate: int = RATE) -> bytes:
    return print_of([samples.astype(np.float32)], rate)


def hit(name: str, duration_s: float = 2.0, content: str = "") -> Hit:
    region = Region(0.0, duration_s, 0.5)
    return Hit(name, Path(name), name, region, 0.5, False, duration_s, RATE, 1, "", (), content=content)


# Prints


def test_a_print_is_small_and_takes_no_block_beyond_its_seconds():
    def blocks():
        for number in range(4):
            assert number < 3
            yield rustle(4.0, number)

    made = print_of(blocks(), RATE)
    assert len(made) == MOST_BYTES
    assert len(printed(rustle(0.1))) < 2200
    assert made == printed(np.concatenate([rustle(4.0, number) for number in range(3)])[: 10 * RATE])


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9000), max_size=6))
def test_the_blocks_in_which_a_sound_comes_make_no_difference(cuts):
    sound = rustle(1.0)
    edges = sorted({0, len(sound), *(cut for cut in np.cumsum(cuts) if cut < len(sound))})
    assert print_of((sound[a:b] for a, b in pairwise(edges)), RATE) == printed(sound)


# Likeness

CHANGES = {
    "quiet": lambda sound: 0.1 * sound,
    "loud": lambda sound: np.clip(1.41 * sound / np.abs(sound).max(), -1, 1),
    "inverted": lambda sound: -sound,
    "50 ms off the front": lambda sound: sound[RATE // 20 :],
    "50 ms off the end": lambda sound: sound[: -RATE // 20],
    "50 ms of silence before": lambda sound: np.concatenate([np.zeros(RATE // 20, np.float32), sound]),
    "noisy": lambda sound: sound + 0.0003 * np.random.default_rng(7).standard_normal(len(sound)),
    "24 kHz": lambda sound: soxr.resample(soxr.resample(sound, RATE, 24_000), 24_000, RATE),
}


@pytest.mark.case("I12")
@pytest.mark.parametrize("seconds", [0.3, 1.0, 12.0])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_alike_and_another_sound_is_not(change, seconds):
    prints = [printed(rustle(seconds, seed)) for seed in range(3)]
    copy = printed(CHANGES[change](rustle(seconds)))
    assert [alike(copy, each) for each in prints] == [True, False, False]
    assert [alike(each, copy) for each in prints] == [True, False, False]


@pytest.mark.case("I12")
@pytest.mark.parametrize("rate", [16_000, 44_100, 96_000])
def test_wav_flac_ogg_and_mp3_of_one_sound_are_alike(tmp_path, rate):
    sound = np.stack([rustle(2.0, rate=rate), 0.5 * rustle(2.0, rate=rate)], axis=1)
    prints = []
    for form in ("WAV", "FLAC", "OGG", "MP3"):
        low = min(rate, 48_000) if form == "MP3" else rate
        soundfile.write(tmp_path / "x", soxr.resample(sound, rate, low), low, format=form)
        found = load(tmp_path / "x")
        prints.append(printed(found.samples, found.rate))
    assert all(alike(one, other) for one, other in combinations(prints, 2))


def test_tones_silence_and_lengths_that_differ_are_not_alike():
    sounds = [tone(440, 0.3), tone(450, 0.3), tone(440, 0.1), tone(442, 1.0), tone(440, 1.0)]
    sounds += [np.zeros(RATE), np.zeros(0), np.ones(1), rustle(1.0), rustle(0.01)]
    prints = [printed(sound) for sound in sounds]
    assert not any(alike(one, other) for one, other in combinations(prints, 2))
    assert not alike(prints[5], prints[5])  # of silence nothing is said, not even that it is the same
    assert not alike(printed(rustle(3.0)), printed(rustle(3.0)[: 2 * RATE]))
    assert closeness(printed(rustle(3.0)), printed(rustle(3.0)[: 2 * RATE])) > 0.9


def test_what_is_no_print_or_of_another_version_is_like_nothing():
    made = printed(rustle(1.0))
    assert alike(made, made)
    for other in (b"", b"\x01", b"\x02" + made[1:], made[:9], made[:300], HEAD.pack(1, 0, 0, 0), b"\x01" + bytes(3000)):
        assert not alike(made, other)
        assert not alike(other, made)
        assert closeness(made, other) < 0.6


def frames_of(made: bytes) -> list[int]:
    """The words of a print, silent frames 0, without the tricks."""
    count = HEAD.unpack_from(made)[2]
    words = [int.from_bytes(made[HEAD.size + 4 * n :][:4], "little") for n in range(count)]
    loud = made[HEAD.size + 4 * count :]
    return [word if loud[n // 8] >> (7 - n % 8) & 1 else 0 for n, word in enumerate(words)]


@settings(max_examples=30)
@given(st.floats(0.02, 0.3), st.floats(0.02, 0.3), st.integers(0, 1), st.integers(0, 300))
def test_closeness_is_the_share_of_common_bits_where_they_agree_best(one_s, other_s, seed, late):
    one, other = printed(rustle(one_s)), printed(rustle(other_s, seed)[late:])
    ours, theirs = sorted((frames_of(one), frames_of(other)), key=len, reverse=True)
    whole = [sum(map(int.bit_count, each)) for each in (ours, theirs)]
    best = 0.0
    for offset in range(-REACH, len(ours) - len(theirs) + REACH + 1):
        pairs = [(ours[n + offset], word) for n, word in enumerate(theirs) if 0 <= n + offset < len(ours)]
        pairs = pairs[DELAY:] if offset else pairs
        both = sum((a & b).bit_count() for a, b in pairs)
        inside = [sum(pair[side].bit_count() for pair in pairs) for side in (0, 1)]
        if both and all(a >= LEAST_SHARE * b for a, b in zip(inside, whole, strict=True)):
            best = max(best, both / (sum(inside) - both))
    assert closeness(one, other) == pytest.approx(best)
    assert closeness(other, one) == pytest.approx(best)


# Hits


@pytest.mark.case("I12")
def test_copies_fold_behind_the_first_and_the_order_stays():
    prints = {"a.wav": rustle(2.0), "b.wav": rustle(2.0, 1), "a.flac": 0.3 * rustle(2.0), "a.mp3": -rustle(2.0)}
    found = folded([hit(name) for name in ("b.wav", "a.wav", "a.flac", "c.wav", "a.mp3")], _prints(prints))
    assert [(each.shown, each.copies) for each in found] == [
        ("b.wav", ()),
        ("a.wav", ("a.flac", "a.mp3")),
        ("c.wav", ()),
    ]


def _prints(sounds: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: printed(sound) for name, sound in sounds.items()}


def test_equal_files_fold_without_a_print_and_what_is_known_of_neither_does_not():
    hits = [hit("a", content="1"), hit("b", content="2"), hit("c", content="1"), hit("d"), hit("e")]
    assert [(each.shown, each.copies) for each in folded(hits, {})] == [("a", ("c",)), ("b", ()), ("d", ()), ("e", ())]


def test_files_of_other_lengths_do_not_fold_though_they_begin_alike():
    prints = _prints({"a": rustle(12.0), "b": rustle(12.0)})
    assert len(folded([hit("a", 12.0), hit("b", 12.2)], prints)) == 1
    assert len(folded([hit("a", 12.0), hit("b", 60.0)], prints)) == 2
    assert len(folded([hit("a", 3600.0), hit("b", 3673.0)], prints)) == 1  # 2 % of the longer one are 73.5 s
    assert len(folded([hit("a", 3600.0), hit("b", 3674.0)], prints)) == 2


def test_folding_again_keeps_what_was_folded():
    prints = _prints({"a": rustle(2.0), "b": rustle(2.0), "c": rustle(2.0)})
    first = folded([hit("b"), hit("c")], prints)
    assert folded([hit("a"), *first], prints)[0].copies == ("b", "c")


def test_real_duplicates_of_the_library_are_alike_and_their_neighbours_are_not(real_data):
    folder = real_data / "library" / "esc10" / "010 - Fire crackling"
    prints = {}
    for path in sorted(folder.iterdir())[:12]:
        sound = load(path)
        prints[path.name] = printed(sound.samples, sound.rate)
    same = {pair for pair in combinations(prints, 2) if alike(*(prints[name] for name in pair))}
    assert same <= {("2-28314-A.ogg", "2-30322-A.ogg")}
    assert len(prints) == 12
