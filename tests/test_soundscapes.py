"""Generated collections: what is heard, what is said of it, and what the simulated raters answer."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.stats import spearmanr

from earmark.audio.logmel import log_mel
from earmark.data import soundscapes
from earmark.data.collection import Collection
from earmark.data.events import CALLS, CREST, KINDS, RATE, STRETCHES, Wave, at_level, level, samples
from earmark.data.scenes import LEVELS, Event, Mention, Order, Said, compose, overlap, read_events, read_said, relation
from earmark.data.wording import CLAUSES, NOUNS, caption
from earmark.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return soundscapes.generate(tmp_path_factory.mktemp("generated") / "soundscapes", clips=160, seed=3)


def _truth(made: Collection) -> dict[str, tuple[Event, ...]]:
    return {clip.clip_id: read_events(clip.more["events"]) for clip in made.clips}


def _said(made: Collection) -> dict[str, Said]:
    return {c.caption_id: read_said(c.more["says"], c.more["says_order"]) for c in made.captions}


# Kinds


def _sound(kind: str, seed: int) -> Wave:
    rng = default_rng([seed, 5])
    return CALLS[kind](rng) if kind in CALLS else STRETCHES[kind](rng, samples(2.0))


def _statistics(kind: str, seed: int) -> Wave:
    """Mean, maximum and standard deviation of each band of the log-mel, over a quiet room."""
    wave = np.pad(at_level(_sound(kind, seed), -26.0), 2000)
    wave = wave + 10 ** (-58 / 20) * default_rng([seed, 6]).standard_normal(len(wave))
    bands = log_mel(wave.astype(np.float32), RATE).numpy()
    return np.concatenate([bands.mean(0), bands.max(0), bands.std(0)])


def test_kinds_are_told_apart_by_the_nearest_centroid_of_their_spectrograms() -> None:
    assert len(KINDS) >= 24
    centroids = np.array([np.mean([_statistics(kind, seed) for seed in range(5)], axis=0) for kind in KINDS])
    right = [
        KINDS[int(np.argmin(((centroids - _statistics(kind, 100 + fresh)) ** 2).sum(axis=1)))] == kind
        for kind in KINDS
        for fresh in range(3)
    ]
    assert fmean(right) >= 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_finite_audible_varied_and_reproducible(kind: str) -> None:
    first, again, other = _sound(kind, 1), _sound(kind, 1), _sound(kind, 2)
    assert np.isfinite(first).all()
    assert np.array_equal(first, again)
    assert len(other) != len(first) or not np.allclose(other, first)
    assert 0.1 <= len(first) / RATE <= 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_the_level_of_an_event_is_as_asked(kind: str) -> None:
    for decibels in LEVELS.values():
        wave = at_level(_sound(kind, 4), decibels)
        assert level(wave) == pytest.approx(decibels, abs=1.0)
        assert np.max(np.abs(wave)) <= CREST * 10 ** (decibels / 20)


def test_every_kind_has_words() -> None:
    assert set(CLAUSES) == set(NOUNS) == set(KINDS)


# Clips


@pytest.mark.parametrize("seed", range(12))
def test_a_clip_holds_one_to_three_kinds_within_its_3_to_6_seconds(seed: int) -> None:
    wave, events = compose(default_rng(seed))
    assert 3.0 <= len(wave) / RATE <= 6.01
    assert 1 <= len(events) == len({event.kind for event in events}) <= 3
    assert all(0 <= event.start_s < event.end_s <= len(wave) / RATE + 0.02 for event in events)
    assert 0 < np.max(np.abs(wave)) < 1


def test_an_event_is_heard_where_the_truth_says() -> None:
    louder = []
    for seed in range(60):
        wave, events = compose(default_rng(seed))
        if len(events) == 1 and events[0].start_s > 0.6:
            start, end = (round(second * RATE) for second in (events[0].start_s, events[0].end_s))
            louder.append(level(wave[start:end].astype(np.float64)) - level(wave[: start - 2000].astype(np.float64)))
    assert len(louder) > 5
    assert min(louder) > 10


def test_files_are_mono_16_bit_and_not_clipped(made: Collection) -> None:
    for clip in made.clips[:40]:
        info = soundfile.info(made.audio_path(clip))
        assert (info.channels, info.samplerate, info.subtype) == (1, RATE, "PCM_16")
        assert abs(soundfile.read(made.audio_path(clip), dtype="int16")[0].astype(int)).max() < 32767


def test_everything_varies(made: Collection) -> None:
    events = [event for held in _truth(made).values() for event in held]
    assert {event.loudness for event in events} == {"quiet", "normal", "loud"}
    assert {event.repetition for event in events} == {"once", "twice", "several", "continuous"}
    assert {len(held) for held in _truth(made).values()} == {1, 2, 3}
    assert {event.kind for event in events} == set(KINDS)
    pairs = [relation(a, b) for held in _truth(made).values() for a, b in pairwise(held)]
    assert min(Counter(pairs)[how] for how in ("before", "while")) > 20


def test_the_collection_is_sound_and_says_what_it_is(made: Collection) -> None:
    assert made.kind == "generated"
    assert made.name == "soundscapes"
    assert made.about["licence"].startswith("CC0-1.0")
    assert made.check() == []
    assert Counter(clip.split for clip in made.clips) == {"development": 112, "validation": 24, "evaluation": 24}


# Captions

WORDS = {
    "heartbeat": r"\bheart|pulse",
    "helicopter": r"helicopter|chopper",
    "thunder": r"thunder",
    "siren": r"siren|emergency vehicle",
    "rain": r"\brain|shower",
    "typing": r"typ(?:ist|es|ing)|keyboard|\bkeys\b",
    "saw": r"\bsaw|sawing|sawn|wood (?:is|being) sawn",
    "drum": r"\bdrum(?!ming of rain)",
    "bark": r"\bdog|hound|puppy|woof",
    "cat": r"\bcat\b|kitten",
    "cricket": r"cricket|grasshopper",
    "plane": r"plane|\bjet\b",
    "clock": r"clock|watch\b",
}


def test_captions_name_the_kinds_that_they_say_and_no_others(made: Collection) -> None:
    """An independent reading of the words of some kinds agrees with the column `says`."""
    seen: Counter[str] = Counter()
    for caption_row, said in zip(made.captions, _said(made).values(), strict=True):
        kinds = {mention.kind for mention in said.mentions}
        for kind, pattern in WORDS.items():
            assert bool(re.search(pattern, caption_row.text.lower())) == (kind in kinds), (kind, caption_row.text)
            seen[kind] += kind in kinds
    assert len(seen) == len(WORDS)


def test_captions_say_nothing_false(made: Collection) -> None:
    truth = _truth(made)
    for row in made.captions:
        held = {event.kind: event for event in truth[row.clip_id]}
        said = read_said(row.more["says"], row.more["says_order"])
        for mention in said.mentions:
            event = held[mention.kind]
            assert mention.loudness in ("", event.loudness)
            assert mention.repetition in ("", event.repetition)
        for order in said.order:
            assert relation(held[order.first], held[order.second]) == order.relation


@pytest.mark.parametrize(
    ("word", "value"),
    [(r"\btwice\b", "twice"), (r"again and again|several times", "several"), (r"non-stop|on and on", "continuous")],
)
def test_words_of_repetition_are_in_what_is_said(made: Collection, word: str, value: str) -> None:
    rows = [row for row in made.captions if re.search(word, row.text)]
    assert rows
    assert all(any(m.repetition == value for m in _said(made)[row.caption_id].mentions) for row in rows)


def test_words_of_order_and_loudness_are_in_what_is_said(made: Collection) -> None:
    said = _said(made)
    for row in made.captions:
        if re.search(r"\b(before|after|followed|preceded|while|meanwhile)\b", row.text.lower()):
            assert said[row.caption_id].order, row.text
        if re.search(r"\b(loudly|loud|softly|faint|faintly)\b", row.text):
            assert any(mention.loudness for mention in said[row.caption_id].mentions), row.text


def test_five_captions_a_clip_are_varied_and_some_are_partial(made: Collection) -> None:
    by_clip = defaultdict(list)
    for row in made.captions:
        by_clip[row.clip_id].append(row)
    assert all(len(rows) == 5 and len({row.text for row in rows}) == 5 for rows in by_clip.values())
    texts = [row.text for row in made.captions]
    assert len(set(texts)) / len(texts) > 0.95
    truth, said = _truth(made), _said(made)
    partial = [len(said[row.caption_id].mentions) < len(truth[row.clip_id]) for row in made.captions]
    assert 0.1 < fmean(partial) < 0.5
    assert [row.more["partial"] == "yes" for row in made.captions] == partial
    assert {text[0].isupper() for text in texts} == {text.endswith(".") for text in texts} == {True, False}


# Overlap

CLIP = (Event("bark", "loud", "twice", 0.5, 1.2), Event("rain", "quiet", "continuous", 1.5, 5.0))
FULL = (Mention("bark", "loud", "twice"), Mention("rain", "quiet", "continuous"))
THEN = (Order("bark", "before", "rain"),)


def test_overlap_is_graded() -> None:
    assert overlap(Said(FULL, THEN), CLIP) == 1
    assert overlap(Said((Mention("siren"), Mention("drum"))), CLIP) == 0
    partial = overlap(Said((Mention("bark"),)), CLIP)
    half = overlap(Said((Mention("bark"), Mention("siren"))), CLIP)
    assert 0 < half < partial < 1


@pytest.mark.parametrize(
    "wrong",
    [
        Said(FULL, (Order("rain", "before", "bark"),)),
        Said(FULL, (Order("bark", "while", "rain"),)),
        Said((Mention("bark", "quiet", "twice"), FULL[1]), THEN),
        Said((Mention("bark", "loud", "several"), FULL[1]), THEN),
        Said((Mention("bark", "loud", "twice"), Mention("wind")), THEN),
        Said((*FULL, Mention("siren")), THEN),
    ],
)
def test_what_is_wrong_lowers_the_overlap(wrong: Said) -> None:
    assert 0 < overlap(wrong, CLIP) < 1


def test_the_further_the_loudness_is_off_the_lower_the_overlap() -> None:
    values = [overlap(Said((Mention("bark", word),)), CLIP[:1]) for word in ("loud", "normal", "quiet")]
    assert values == sorted(set(values), reverse=True)


@given(st.integers(0, 10_000), st.booleans())
def test_a_full_caption_of_a_clip_has_overlap_1_and_a_partial_one_less(seed: int, partial: bool) -> None:
    rng = default_rng(seed)
    kinds = [str(kind) for kind in rng.choice(KINDS, 3, replace=False)]
    starts = sorted(float(start) / 100 for start in rng.integers(0, 400, 3))
    often = [["continuous"] if kind in STRETCHES else ["once", "twice", "several"] for kind in kinds]
    held = tuple(
        Event(kind, str(rng.choice(list(LEVELS))), str(rng.choice(words)), start, round(start + 1, 2))
        for kind, words, start in zip(kinds, often, starts, strict=True)
    )
    text, said = caption(rng, held, partial)
    assert text.strip()
    assert overlap(said, held) == 1 if not partial else 0 < overlap(said, held) < 1
    assert read_said("|".join(map(str, said.mentions)), "|".join(map(str, said.order))) == said
    assert read_events("|".join(map(str, held))) == held


# Ratings


def test_a_rated_list_has_17_clips_of_its_split_and_one_tp_and_tn(made: Collection) -> None:
    split_of = {clip.clip_id: clip.split for clip in made.clips}
    owner = {row.caption_id: row.clip_id for row in made.captions}
    lists: dict[str, dict[str, str]] = defaultdict(dict)
    people = Counter((rating.caption_id, rating.clip_id) for rating in made.ratings)
    for rating in made.ratings:
        lists[rating.caption_id][rating.clip_id] = rating.group
    assert set(made.splits) == {split_of[owner[caption_id]] for caption_id in lists}
    for caption_id, groups in lists.items():
        assert Counter(groups.values()) == {"TP": 1, "TN": 1, "C15": 15}
        assert groups[owner[caption_id]] == "TP"
        assert {split_of[clip_id] for clip_id in groups} == {split_of[owner[caption_id]]}
    assert set(people.values()) <= {3, 4, 5}


def test_lists_are_graded(made: Collection) -> None:
    truth, said = _truth(made), _said(made)
    lists = defaultdict(set)
    for rating in made.ratings:
        lists[rating.caption_id].add((rating.clip_id, overlap(said[rating.caption_id], truth[rating.clip_id])))
    between = [sum(0 < value < 0.95 for _, value in pairs) for pairs in lists.values()]
    assert fmean(between) > 2


def test_ratings_follow_the_true_overlap_and_raters_differ(made: Collection) -> None:
    truth, said = _truth(made), _said(made)
    true = [overlap(said[r.caption_id], truth[r.clip_id]) for r in made.ratings]
    assert 0.7 < spearmanr(true, [r.rating for r in made.ratings]).statistic < 0.99
    own = defaultdict(list)
    for rating in made.ratings:
        if rating.group == "TP":
            own[rating.rater_id].append(rating.rating)
    means = [fmean(ratings) for ratings in own.values() if len(ratings) > 3]
    assert len({rating.rater_id for rating in made.ratings}) == 12
    assert np.ptp(means) > 8


def test_ratings_are_whole_numbers_with_rater_stratum_and_time(made: Collection) -> None:
    for rating in made.ratings:
        assert rating.rating == int(rating.rating)
        assert 0 <= rating.rating <= 100
        assert rating.rater_id
        assert rating.stratum
        assert rating.played_s is not None
        assert 0 < rating.played_s <= 12.1
        assert rating.probability is None or 0 < rating.probability <= 1


# Writing


def _bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_same_seed_same_bytes_and_other_seed_other_sounds(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        soundscapes.generate(tmp_path / name, clips=6, seed=seed)
    assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")
    first, other = _bytes(tmp_path / "a"), _bytes(tmp_path / "c")
    assert all(first[name] != other[name] for name in first if name.endswith(".wav"))


@pytest.mark.parametrize("clips", [1, 2, 3, 12])
def test_small_collections_work(tmp_path: Path, clips: int) -> None:
    told = []
    made = soundscapes.generate(tmp_path / "few", clips=clips, progress=lambda done, of: told.append((done, of)))
    assert told == [(k + 1, clips) for k in range(clips)]
    assert len(made.clips) == clips
    assert made.ratings
    assert made.check() == []
    assert clips < 3 or set(made.splits) == {"development", "validation", "evaluation"}
    for rating in made.ratings:
        assert rating.probability is None or rating.probability > 0


def test_a_clip_does_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    few, more = (soundscapes.generate(tmp_path / str(clips), clips=clips, seed=9) for clips in (2, 4))
    for a, b in zip(few.clips, more.clips, strict=False):
        assert few.audio_path(a).read_bytes() == more.audio_path(b).read_bytes()
        assert a.more == b.more


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("kept")
    with pytest.raises(DataError, match="empty"):
        soundscapes.generate(tmp_path / "there", clips=3)
    assert [path.name for path in tmp_path.rglob("*")] == ["there", "mine.txt"]


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        soundscapes.generate(tmp_path / "new", clips=4, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_no_half_collection(tmp_path: Path) -> None:
    script = """
import os, pathlib, signal, sys
from earmark.data import soundscapes
stop = lambda done, of: done < 3 or os.kill(os.getpid(), signal.SIGKILL)
soundscapes.generate(pathlib.Path(sys.argv[1]), clips=4, progress=stop)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "new")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "new").exists()
    assert len(soundscapes.generate(tmp_path / "new", clips=4).clips) == 4


@pytest.mark.parametrize(("clips", "seed"), [(0, 0), (-3, 0), (5, -1)])
def test_impossible_numbers_are_refused(tmp_path: Path, clips: int, seed: int) -> None:
    with pytest.raises(ConfigError, match="expected"):
        soundscapes.generate(tmp_path / "new", clips=clips, seed=seed)
    assert list(tmp_path.iterdir()) == []
