"""What splits and collections share: every kind of finding, what is no finding, and what costs only itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from test_fingerprint import rustle, tone

from earmark.audio.fingerprint import RATE
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.data.overlap import KINDS, Overlap, overlap, plain_text, sources


def collection(folder: Path, clips: list[Clip], captions: dict[str, list[str]] | None = None) -> Collection:
    """A collection whose clips have those captions, written and read."""
    words = [
        Caption(f"{clip_id}#{number}", clip_id, text)
        for clip_id, texts in (captions or {}).items()
        for number, text in enumerate(texts)
    ]
    Collection(folder, clips, words).write()
    return Collection.read(folder)


def sound(folder: Path, name: str, samples: np.ndarray, **form: object) -> str:
    """The name of a sound that is written there."""
    folder.mkdir(exist_ok=True)
    soundfile.write(folder / name, samples, RATE, **form)
    return name


def ends(found: Overlap, kind: str) -> list[tuple[str, str]]:
    return [(each.here.clip_id, each.there.clip_id) for each in found.shared if each.kind == kind]


def check(*arguments: object, code: int, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `earmark data check`; the exit code must be `code`, and nothing may look like a crash."""
    command = [sys.executable, "-m", "earmark", "data", "check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def leaky(tmp_path):
    """Three splits that share a file, a recording, a text and a source."""
    folder = tmp_path / "leaky"
    one, other = rustle(2.0), rustle(2.0, seed=1)
    clips = [
        Clip("rain", sound(folder, "rain.wav", one), "development"),
        Clip("wind", sound(folder, "7__ann__wind.wav", other), "development"),
        Clip("same", sound(folder, "same.wav", one), "evaluation"),
        Clip("copy", sound(folder, "copy.ogg", 0.3 * other, format="OGG"), "evaluation-lists"),
        Clip(
            "apart",
            sound(folder, "apart.wav", rustle(2.0, seed=2)),
            "validation",
            more={"url": "https://freesound.org/s/7/"},
        ),
    ]
    return collection(folder, clips, {"rain": ["It rains."], "apart": ["it  RAINS", "Wind"], "wind": ["Storm"]})


# Kinds of findings


def test_the_splits_of_a_collection_are_set_against_each_other(leaky):
    found = overlap(leaky)
    assert ends(found, "content") == [("rain", "same")]
    assert ends(found, "sound") == [("wind", "copy")]
    assert ends(found, "text") == [("rain", "apart")]
    assert ends(found, "freesound") == [("wind", "apart")]
    assert found.counts == {"content": 1, "freesound": 1, "youtube": 0, "text": 1, "sound": 1}
    assert found.problems == []
    [copy] = [each for each in found.shared if each.kind == "sound"]
    assert (copy.there.split, copy.there.path) == ("evaluation", "copy.ogg")
    assert "for 2.00 s, from 0.00 s and 0.00 s on" in copy.what


def test_two_collections_are_compared_clip_by_clip_whatever_their_splits(leaky, tmp_path):
    folder = tmp_path / "other"
    clips = [
        Clip("rain", sound(folder, "r.flac", 0.5 * rustle(2.0), format="FLAC"), "development"),
        Clip("new", sound(folder, "n.wav", rustle(2.0, seed=5)), "development"),
    ]
    found = overlap(leaky, collection(folder, clips, {"new": ["Storm!", "storm", "STORM"], "rain": ["Rain"]}))
    assert ends(found, "sound") == [("rain", "rain"), ("same", "rain")]
    assert ends(found, "content") == []
    [text] = [each for each in found.shared if each.kind == "text"]
    assert (text.here.clip_id, text.there.clip_id) == ("wind", "new")
    assert text.what == "'Storm', 1 caption of 1 clip and 3 captions of 1 clip"


def test_a_split_and_its_lists_are_one_side(tmp_path):
    clips = [Clip("a", "", "evaluation"), Clip("b", "", "evaluation-lists")]
    found = overlap(collection(tmp_path / "c", clips, {"a": ["Rain"], "b": ["Rain"]}))
    assert found.shared == []
    assert found.sides == 1


def test_a_text_gives_one_finding_for_two_splits_however_often_it_stands(tmp_path):
    clips = [Clip(f"{split}{n}", "", split) for split in ("development", "validation", "evaluation") for n in range(50)]
    found = overlap(collection(tmp_path / "c", clips, {clip.clip_id: ["Rain", "rain."] for clip in clips}))
    assert len(found.shared) == 3
    assert found.shared[0].what == "'Rain', 100 captions of 50 clips and 100 captions of 50 clips"


def test_many_clips_of_one_source_are_each_listed_once(tmp_path):
    clips = [
        Clip(f"{split}{n}", "", split, more={"sound_id": "5"}) for split in ("development", "test") for n in range(40)
    ]
    found = overlap(collection(tmp_path / "c", clips))
    assert len(found.shared) == 79
    assert {end for pair in ends(found, "freesound") for end in pair} == {clip.clip_id for clip in clips}
    assert "40 × 40 clips" in found.shared[0].what


@pytest.mark.parametrize(
    ("cells", "path", "wanted"),
    [
        ({"url": "https://freesound.org/s/333825/"}, "", {("freesound", "333825")}),
        ({"link": "http://www.freesound.org/people/A_b-c/sounds/66304"}, "", {("freesound", "66304")}),
        ({"link": "https://freesound.org/people/A/sounds/66304/download/66304__a__b.wav"}, "",
         {("freesound", "66304")}),
        ({"x": "http://www.freesound.org/samplesViewSingle.php?id=12"}, "", {("freesound", "12")}),
        ({"x": "https://cdn.freesound.org/previews/333/333825_512-hq.mp3"}, "", {("freesound", "333825")}),
        ({"group": "https://freesound.org/s/1/"}, "", {("freesound", "1")}),
        ({"sound_id": "0123"}, "", {("freesound", "123")}),
        ({"Freesound_ID": " 123 "}, "", {("freesound", "123")}),
        ({"sound_id": "Not found"}, "", set()),
        ({"id": "123", "note": "after https://freesound.org/s/1/ with rain"}, "", set()),
        ({"url": "https://example.org/freesound.org/s/1/"}, "", set()),
        ({}, "a/123456__user__name with blanks.wav", {("freesound", "123456")}),
        ({}, "folder__x__y/plain.wav", set()),
        ({}, "5-9032-A-0.wav", {("freesound", "9032")}),
        ({}, "2024-01-02.wav", set()),
        ({"youtube_id": "AZuzadlAGL0"}, "", {("youtube", "AZuzadlAGL0")}),
        ({"x": "https://www.youtube.com/watch?list=1&v=AZuzadlAGL0&t=3"}, "", {("youtube", "AZuzadlAGL0")}),
        ({"x": "https://youtu.be/AZuzadlAGL0?t=1"}, "", {("youtube", "AZuzadlAGL0")}),
        ({"x": "https://youtu.be/AZuzadlAGL0aa"}, "", set()),
    ],
)  # fmt: skip
def test_sources_are_read_from_links_columns_and_names(cells, path, wanted):
    group = cells.pop("group", "")
    assert sources(Clip("a", path, "development", group, cells)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It  RAINS .", "it rains"),
        ("Straße!?", "strasse"),
        ("cafe\u0301", "caf\u00e9"),
        ("a,\tb…", "a, b"),
        ("...", ""),
    ],
)
def test_texts_are_compared_without_what_does_not_matter(text, wanted):
    assert plain_text(text) == wanted
    assert plain_text(wanted) == wanted


def test_clips_without_sounds_are_compared_by_vectors_sources_and_texts(tmp_path):
    clips = [Clip("a", "", "development"), Clip("b", "", "evaluation"), Clip("c", "", "evaluation")]
    made = collection(tmp_path / "c", [*clips, Clip("zero", "", "development"), Clip("nil", "", "evaluation")])
    vectors = np.array([[1, 2], [1, 2], [2, 1], [0, 0], [0, 0]], dtype=np.float32)
    VectorTable(("a", "b", "c", "zero", "nil"), vectors).write(made.root / "clip_vectors.npz")
    found = overlap(Collection.read(made.root))
    assert ends(found, "content") == [("a", "b")]
    assert found.shared[0].what == "the same vector"
    (made.root / "clip_vectors.npz").write_bytes(b"no table")
    found = overlap(Collection.read(made.root))
    assert found.shared == []
    assert "clip_vectors.npz" in str(found.problems[0])


# What is no finding, and what is odd


def test_links_and_repeated_paths_are_the_same_file(tmp_path):
    folder = tmp_path / "c"
    sound(folder, "a.wav", rustle(1.0))
    (folder / "link.wav").symlink_to("a.wav")
    clips = [
        Clip("a", "a.wav", "development"),
        Clip("again", "a.wav", "evaluation"),
        Clip("link", "link.wav", "evaluation"),
    ]
    found = overlap(collection(folder, clips))
    assert ends(found, "content") == [("a", "again"), ("a", "link")]
    assert ends(found, "sound") == []


def test_a_file_that_several_clips_share_is_matched_for_each_of_them(tmp_path):
    folder = tmp_path / "c"
    sound(folder, "a.wav", rustle(1.0))
    sound(folder, "b.flac", 0.5 * rustle(1.0), format="FLAC")
    clips = [
        Clip("a", "a.wav", "development"),
        Clip("a2", "a.wav", "development"),
        Clip("b", "b.flac", "evaluation"),
        Clip("a3", "a.wav", "evaluation"),
        Clip("b2", "b.flac", "development"),
    ]
    found = overlap(collection(folder, clips))
    assert ends(found, "content") == [("a", "a3"), ("a2", "a3"), ("b2", "b")]
    assert ends(found, "sound") == [("a", "b"), ("a2", "b"), ("b2", "a3")]


def test_silent_sounds_are_shared_only_where_their_bytes_are(tmp_path):
    folder = tmp_path / "c"
    clips = [
        Clip("a", sound(folder, "a.wav", np.zeros(RATE)), "development"),
        Clip("b", sound(folder, "b.wav", np.zeros(RATE)), "evaluation"),
        Clip("c", sound(folder, "c.wav", np.zeros(2 * RATE)), "evaluation"),
        Clip("d", sound(folder, "d.wav", tone(440, 1.0)), "evaluation"),
    ]
    found = overlap(collection(folder, clips))
    assert [(each.kind, each.there.clip_id) for each in found.shared] == [("content", "b")]


def test_what_cannot_be_read_is_named_and_costs_itself(tmp_path):
    folder = tmp_path / "c"
    clips = [
        Clip("a", sound(folder, "a.wav", rustle(1.0)), "development"),
        Clip("b", sound(folder, "b.flac", 0.5 * rustle(1.0), format="FLAC"), "evaluation"),
        Clip("noise", "noise.wav", "development"),
        Clip("noise2", "noise2.wav", "evaluation"),
        Clip("empty", "empty.wav", "development"),
        Clip("empty2", "empty2.wav", "evaluation"),
        Clip("gone", "gone.wav", "evaluation"),
    ]
    for name in ("noise.wav", "noise2.wav"):
        (folder / name).write_bytes(b"no sound at all" * 99)
    for name in ("empty.wav", "empty2.wav"):
        (folder / name).touch()
    found = overlap(collection(folder, clips))
    assert ends(found, "sound") == [("a", "b")]
    assert ends(found, "content") == [("noise", "noise2")]
    told = {problem.where: problem.what for problem in found.problems}
    assert {where.rpartition(" ")[2] for where in told} == {"4", "6", "7", "8"}
    assert all(what.endswith("It is not compared.") for what in told.values())
    assert all(where.startswith(f"{folder}{os.sep}clips.csv line ") for where in told)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses such names")
def test_names_that_are_not_utf_8_are_no_obstacle(tmp_path):
    made, folder = tmp_path / "made", Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    clips = [
        Clip("a", sound(made, "a.wav", rustle(1.0)), "development"),
        Clip("b", sound(made, "b.flac", 0.5 * rustle(1.0), format="FLAC"), "evaluation"),
        Clip("gone", "gone.wav", "evaluation"),
    ]
    collection(made, clips)
    (made / "collection.toml").unlink()  # so that it is named after its folder
    made.rename(folder)
    found = overlap(Collection.read(folder))
    assert ends(found, "sound") == [("a", "b")]
    assert "caf\\udce9" in found.problems[0].where
    done = check(folder, "--against", folder, "--json", tmp_path / "out.json", code=1)
    assert "shared: content 0, freesound 0, youtube 0, text 0, sound 1" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["counts"]["sound"] == 1


def test_progress_is_told_to_the_end(leaky):
    told: dict[str, tuple[int, int]] = {}
    overlap(leaky, progress=lambda what, done, all_: told.__setitem__(what, (done, all_)))
    assert list(told) == ["reading files", "listening", "looking for candidates", "comparing"]
    assert all(done == all_ for done, all_ in told.values())


# The command


def test_the_command_lists_what_is_shared_and_ends_with_1(leaky):
    done = check(leaky.root, "--against", leaky.root, code=1)
    assert "content: development 'rain' (rain.wav) and evaluation 'same' (same.wav): the same bytes" in done.stdout
    assert "freesound: development 'wind' (7__ann__wind.wav) and validation 'apart' (apart.wav)" in done.stdout
    assert done.stdout.endswith("shared: content 1, freesound 1, youtube 0, text 1, sound 1\n")
    assert done.stderr.splitlines()[0] == "reading files (5)"


def test_json_holds_every_finding(leaky, tmp_path):
    done = check(leaky.root, "--against", leaky.root / ".", "--json", code=1)
    found = json.loads(done.stdout)
    assert list(found) == ["collection", "against", "counts", "shared"]
    assert (found["collection"], found["against"]) == ("leaky", "leaky")
    assert list(found["counts"]) == list(KINDS)
    assert [each["kind"] for each in found["shared"]] == ["content", "freesound", "text", "sound"]
    content = found["shared"][0]
    assert list(content) == ["kind", "what", "here", "there"]
    assert content["here"] == {"clip_id": "rain", "split": "development", "path": "rain.wav"}
    assert content["there"] == {"clip_id": "same", "split": "evaluation", "path": "same.wav"}


def test_nothing_shared_ends_with_0_and_20_of_a_kind_are_listed(tmp_path):
    clips = [Clip(f"{split}{n}", "", split) for split in ("development", "evaluation") for n in range(25)]
    apart = collection(tmp_path / "apart", clips, {clip.clip_id: [clip.clip_id] for clip in clips})
    assert "text 0" in check(apart.root, "--against", apart.root, code=0).stdout
    same = {clip.clip_id: [f"text {clip.clip_id.lstrip('abcdefghijklmnopqrstuvwxyz')}"] for clip in clips}
    shared = collection(tmp_path / "shared", clips, same)
    out = check(shared.root, "--against", shared.root, code=1).stdout
    assert out.count("  text: development") == 20
    assert "  text: … and 5 more\n" in out


def test_one_split_or_an_empty_collection_has_nothing_to_compare(tmp_path):
    one = collection(tmp_path / "one", [Clip("a", "", "development")], {"a": ["Rain"]})
    empty = collection(tmp_path / "empty", [])
    assert "nothing to compare" in check(one.root, "--against", one.root, code=0).stdout
    assert "nothing to compare" in check(one.root, "--against", empty.root, code=0).stdout


def test_rows_that_are_left_out_are_told_with_their_folder(tmp_path):
    one = collection(tmp_path / "one", [Clip("a", "", "development")], {"a": ["Rain"]})
    other = collection(tmp_path / "other", [Clip("b", "", "development")], {"b": ["Wind"]})
    with (other.root / "captions.csv").open("a") as file:
        file.write("x,nobody,Rain\n")
    done = check(one.root, "--against", other.root, code=1)
    assert f"{other.root}{os.sep}captions.csv line 3: clip 'nobody' is not in clips.csv" in done.stderr
    assert "text 0" in done.stdout


def test_a_folder_that_is_no_collection_is_refused(leaky, tmp_path):
    done = check(leaky.root, "--against", tmp_path / "nowhere", code=2)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_real_library_and_its_copies(real_data, tmp_path):
    """Thirty sounds of the library against the same as mp3: 30 found, nothing else."""
    folders = [tmp_path / "library", tmp_path / "copies"]
    folders[1].mkdir()
    paths = sorted((real_data / "library" / "openclonk").rglob("*.ogg"))[:60]
    clips: list[list[Clip]] = [[], []]
    for number, path in enumerate(paths):
        samples, rate = soundfile.read(path, always_2d=True)
        if len(clips[0]) < 30 and len(samples) > 0.3 * rate and np.abs(samples).max() > 0.02:
            copy = soxr.resample(samples, rate, min(rate, 44_100))
            soundfile.write(folders[1] / f"{number}.mp3", copy, min(rate, 44_100), format="MP3")
            clips[0].append(Clip(str(number), os.path.relpath(path, folders[0]), "development"))
            clips[1].append(Clip(str(number), f"{number}.mp3", "development"))
    found = overlap(*(collection(folder, each) for folder, each in zip(folders, clips, strict=True)))
    assert found.problems == []
    assert len(clips[0]) == 30
    assert ends(found, "sound") == [(clip.clip_id, clip.clip_id) for clip in clips[0]]
