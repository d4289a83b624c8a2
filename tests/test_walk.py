from __future__ import annotations

import os
import shutil
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from indices import write_sound

from earmark.errors import DataError
from earmark.search import walk as module
from earmark.search.store import Stamp
from earmark.search.walk import walk

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
NAMES = [
    b"plain.wav",
    b"-y.wav",
    b"--help.wav",
    "雪 ☃ 🎧.wav".encode(),
    unicodedata.normalize("NFC", "é.wav").encode(),
    unicodedata.normalize("NFD", "é.wav").encode(),
    b"not utf-8 \xff\xfe.wav",
    b"two\nlines.wav",
    b" space .WAV",
    b"<img src=x onerror=alert(1)>.wav",
    b"'; DROP TABLE.wav",
]


def names(walked: module.Walked, root: Path) -> list[str]:
    return [str(each.path.relative_to(root)) for each in walked.files]


def touch(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.case("A29", "A30")
def test_names_of_any_bytes_are_found_and_come_back_as_they_are(tmp_path):
    for name in NAMES:
        (tmp_path / os.fsdecode(name)).write_bytes(b"RIFF")
    found = walk([tmp_path]).files
    assert [os.fsencode(each.path.name) for each in found] == sorted(NAMES)
    assert all(each.path.is_absolute() and each.path.exists() and each.below == tmp_path for each in found)


def test_the_ending_decides_and_where_it_says_nothing_the_first_bytes(tmp_path):
    sound = write_sound(tmp_path / "a.wav")
    shutil.copy(sound, tmp_path / "sound without ending")
    shutil.copy(sound, tmp_path / "sound.bin")
    touch(tmp_path / "b.WAV", b"no sound, but it says so")
    for name, content in (("n.txt", b"notes"), ("p.png", PICTURE), ("m.txt", b"more"), ("q", b"\x00\x01\x02" * 99)):
        touch(tmp_path / name, content)
    touch(tmp_path / "picture.heic", b"\x00\x00\x00\x18ftypheic" + bytes(99))
    touch(tmp_path / "font.sf2", b"RIFF\x00\x01\x00\x00sfbk" + bytes(99))
    walked = walk([tmp_path])
    assert names(walked, tmp_path) == ["a.wav", "b.WAV", "sound without ending", "sound.bin"]
    assert walked.passed == {".txt": 2, ".png": 1, "no ending": 1, ".heic": 1, ".sf2": 1}


@pytest.mark.parametrize(
    "head", [b"RIFF\x00\x00\x00\x00AVI LIST", b"\x00\x00\x00\x20ftypM4A \x00\x00", b"OggS\x00\x02"]
)
def test_a_video_or_sound_without_its_ending_is_tried(tmp_path, head):
    touch(tmp_path / "what", head + bytes(range(256)))
    assert names(walk([tmp_path]), tmp_path) == ["what"]


@pytest.mark.case("A31")
def test_side_files_and_hidden_ones_are_passed_over_and_counted(tmp_path):
    sound = write_sound(tmp_path / "a.wav")
    touch(tmp_path / "._a.wav", b"\x00\x05\x16\x07" + bytes(80))
    shutil.copy(sound, tmp_path / ".hidden.wav")
    shutil.copy(sound, touch(tmp_path / ".git" / "b.wav"))
    walked = walk([tmp_path])
    assert names(walked, tmp_path) == ["a.wav"]
    assert walked.passed == {"sidecars": 1, "hidden": 2}
    assert not walked.problems
    assert names(walk([tmp_path / ".git"]), tmp_path) == [".git/b.wav"]  # told, so it is meant


@pytest.mark.case("A32")
def test_links_are_passed_over_and_loops_end(tmp_path):
    music = tmp_path / "music"
    touch(music / "a" / "kick.wav")
    touch(tmp_path / "elsewhere" / "snare.wav")
    (music / "loop").symlink_to("..")
    (music / "a" / "self").symlink_to(".")
    (music / "twice.wav").symlink_to("a/kick.wav")
    (music / "more").symlink_to("../elsewhere")
    (music / "broken.wav").symlink_to("nowhere")
    (music / "circle").symlink_to("circle")
    walked = walk([music])
    assert names(walked, music) == ["a/kick.wav"]
    assert walked.passed == {"links": 6}
    followed = walk([music], follow_links=True)
    assert names(followed, music) == ["a/kick.wav", "loop/elsewhere/snare.wav"]
    assert followed.passed == {"links": 2}


@pytest.mark.case("A32")
def test_a_file_that_many_links_lead_to_is_found_once(tmp_path):
    touch(tmp_path / "far" / "deep" / "a.wav")
    near = tmp_path / "near"
    near.mkdir()
    (near / "1.wav").symlink_to(tmp_path / "far" / "deep" / "a.wav")
    (near / "2.wav").symlink_to(tmp_path / "far" / "deep" / "a.wav")
    (near / "far").symlink_to(tmp_path / "far")
    (near / "deep").symlink_to(tmp_path / "far" / "deep")
    found = walk([near], follow_links=True)
    assert len(found.files) == 1
    assert found.files[0].below == near


@pytest.mark.case("C07")
def test_names_that_are_alike_in_two_folders_are_two_files(tmp_path):
    for folder in "ab":
        touch(tmp_path / folder / "kick.wav")
    assert names(walk([tmp_path]), tmp_path) == ["a/kick.wav", "b/kick.wav"]


def test_folders_that_overlap_give_each_file_once(tmp_path):
    touch(tmp_path / "a" / "b" / "x.wav")
    walked = walk([tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "x.wav"])
    assert [(each.path.name, each.below.name) for each in walked.files] == [("x.wav", "a")]


def test_a_file_that_is_told_is_taken_whatever_it_is(tmp_path):
    notes = touch(tmp_path / "notes.txt", b"words")
    assert [each.path for each in walk([notes]).files] == [notes]


def test_what_is_told_must_be_there(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: cannot be read \(No such file"):
        walk([tmp_path / "nowhere"])


def test_indices_are_no_sounds(tmp_path):
    touch(tmp_path / "a.wav")
    touch(tmp_path / "own" / "b.wav")
    for name in ("index.toml", "windows.lance/data", "model/c.wav"):
        touch(tmp_path / "other.index" / name)
    for name in ("index.toml", "d.wav"):  # of something else
        touch(tmp_path / "pack" / name)
    assert names(walk([tmp_path], leave=[tmp_path / "own"]), tmp_path) == ["a.wav", "pack/d.wav"]


def test_pipes_are_passed_over(tmp_path):
    os.mkfifo(tmp_path / "pipe.wav")
    walked = walk([tmp_path])
    assert (walked.files, walked.passed) == ([], Counter(special=1))


def test_a_folder_that_cannot_be_listed_costs_itself(tmp_path, monkeypatch):
    touch(tmp_path / "a.wav")
    touch(tmp_path / "locked" / "b.wav")
    real = os.scandir

    def scandir(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    walked = walk([tmp_path])
    assert names(walked, tmp_path) == ["a.wav"]
    assert walked.unknown == [tmp_path / "locked"]
    assert "locked: cannot be listed (Permission denied); what is indexed there stays." in str(walked.problems[0])


@pytest.mark.case("I09")
def test_what_vanishes_between_listing_and_looking_is_counted(tmp_path, monkeypatch):
    touch(tmp_path / "a.wav")
    touch(tmp_path / "gone" / "b.wav")
    real = os.scandir

    def scandir(path):
        if Path(path).name == "gone":
            Path(path).rename(tmp_path.parent / "went")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    walked = walk([tmp_path])
    assert names(walked, tmp_path) == ["a.wav"]
    assert walked.passed == {"vanished": 1}
    assert not walked.problems


def test_a_known_file_is_not_opened_again(tmp_path, monkeypatch):
    sound = write_sound(tmp_path / "sound.wav").rename(tmp_path / "sound")
    state = sound.stat()
    monkeypatch.setattr(module, "may_hold_sound", lambda path: False)
    assert not walk([tmp_path]).files
    known = {sound: Stamp(state.st_size, state.st_mtime_ns)}
    assert [each.path for each in walk([tmp_path], known=known).files] == [sound]


def test_deep_folders_are_walked(tmp_path):
    folder = tmp_path
    for _ in range(300):
        folder = folder / "d"
    folder.mkdir(parents=True)
    touch(folder / "a.wav")
    assert len(walk([tmp_path]).files) == 1
