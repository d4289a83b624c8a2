from __future__ import annotations

import csv
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from earmark.data.collection import Caption, Clip, Collection
from earmark.data.tables import import_table
from earmark.errors import DataError


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """A folder of files that bear names; `import` does not look into them."""
    folder = tmp_path / "sounds"
    for name in ("a/kick.wav", "b/kick.wav", "a/snare.wav", "rain.wav", " led by a blank.wav", "雨/☃, a; #[1].wav"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def table(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def imported(tmp_path: Path, audio: Path, text: str, **how: Any) -> Collection:
    settings = {"path": "file", "texts": ["text"], **how}
    found = import_table(table(tmp_path, text), tmp_path / "out", audio=audio, **settings)
    again = Collection.read(tmp_path / "out")
    assert again.problems == []
    again.problems = found.problems
    assert again == found
    return found


def refused(tmp_path: Path, audio: Path, text: str, **how: Any) -> str:
    before = sorted(tmp_path.iterdir())
    settings = {"path": "file", "texts": ["text"], **how}
    path = table(tmp_path, text)
    with pytest.raises(DataError) as error:
        import_table(path, tmp_path / "out", audio=audio, **settings)
    assert sorted(tmp_path.iterdir()) == sorted({*before, path})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_table_of_a_collection_hands_its_kind_on(tmp_path: Path, audio: Path) -> None:
    text = "file,text\nrain.wav,Rain\n"
    (tmp_path / "collection.toml").write_text('name = "made"\nkind = "generated"\n')
    assert imported(tmp_path, audio, text).kind == "generated"
    (tmp_path / "collection.toml").write_text('kind = "synthetic"\n')
    with pytest.raises(DataError, match=r"collection\.toml: kind = 'synthetic'; expected recorded or"):
        import_table(tmp_path / "table.csv", tmp_path / "other", audio=audio, path="file", texts=["text"])
    assert not (tmp_path / "other").exists()


def test_a_table_that_names_its_kind_keeps_it(tmp_path: Path, audio: Path) -> None:
    found = imported(tmp_path, audio, "file,text,collection_kind\nrain.wav,Rain,generated\n")
    assert (found.kind, found.clips[0].more) == ("generated", {})


def test_one_text_column_makes_texts_count_once(tmp_path: Path, audio: Path) -> None:
    found = imported(tmp_path, audio, "file,text,source\nrain.wav,Rain,web\na/kick.wav,Kick,me\n")
    assert found.queries == "texts"
    assert found.clips == [
        Clip("rain.wav", "../sounds/rain.wav", "development", "", {"source": "web"}),
        Clip("a/kick.wav", "../sounds/a/kick.wav", "development", "", {"source": "me"}),
    ]
    assert found.captions == [
        Caption("rain.wav#1", "rain.wav", "Rain"),
        Caption("a/kick.wav#1", "a/kick.wav", "Kick"),
    ]
    assert all(found.audio_path(clip).is_file() for clip in found.clips)
    assert found.problems == []


def test_several_text_columns_give_several_captions(tmp_path: Path, audio: Path) -> None:
    found = imported(tmp_path, audio, "file,t1,t2\nrain.wav,Rain,It rains\na/kick.wav, ,A kick\n", texts=["t1", "t2"])
    assert found.queries == "captions"
    assert [(c.caption_id, c.text) for c in found.captions] == [
        ("rain.wav#1", "Rain"),
        ("rain.wav#2", "It rains"),
        ("a/kick.wav#1", "A kick"),
    ]
    assert [problem.where for problem in found.problems] == [f"{tmp_path / 'table.csv'} line 3"]


def test_rows_that_repeat_a_path_are_one_clip(tmp_path: Path, audio: Path) -> None:
    text = "id,file,text,start\n1,rain.wav,Rain,5\n2,a/snare.wav,Snare,7\n3,rain.wav,Drops,5\n"
    found = imported(tmp_path, audio, text)
    assert [(clip.clip_id, clip.more) for clip in found.clips] == [
        ("rain.wav", {"start": "5"}),
        ("a/snare.wav", {"start": "7"}),
    ]
    assert [(c.caption_id, c.more) for c in found.captions] == [
        ("rain.wav#1", {"id": "1"}),
        ("a/snare.wav#1", {"id": "2"}),
        ("rain.wav#2", {"id": "3"}),
    ]


def test_rows_of_a_clip_in_two_splits_are_told(tmp_path: Path, audio: Path) -> None:
    text = "file,text,s\nrain.wav,Rain,train\nrain.wav,Drops,test\nrain.wav,Wet,train\n"
    found = imported(tmp_path, audio, text, split="s")
    assert [c.text for c in found.captions] == ["Rain", "Wet"]
    assert [problem.where.rpartition(" ")[2] for problem in found.problems] == ["3"]


@pytest.mark.case("C07")
def test_the_key_is_the_path_and_an_ambiguous_name_costs_its_row(tmp_path: Path, audio: Path) -> None:
    text = "file,text\na/kick.wav,low\nb/kick.wav,high\nkick.wav,which\nsnare.wav,found below\n"
    found = imported(tmp_path, audio, text)
    assert [clip.clip_id for clip in found.clips] == ["a/kick.wav", "b/kick.wav", "a/snare.wav"]
    assert len(found.problems) == 1
    assert found.problems[0].where.endswith("line 4")
    assert found.problems[0].what == (
        "2 files are called 'kick.wav' ('a/kick.wav', 'b/kick.wav'); expected a path with its folder. "
        "The row is left out."
    )


@pytest.mark.case("C06")
def test_missing_files_cost_their_rows_and_are_told_with_the_nearest_name(tmp_path: Path, audio: Path) -> None:
    (audio / "00002.wav").touch()
    (audio / unicodedata.normalize("NFD", "Bär.wav")).touch()
    nfc = unicodedata.normalize("NFC", "Bär.wav")
    text = f'file,text\nrain.wav,1\n0002.wav,2\n{nfc},3\nA/KICK.wav,4\n"rain.wav\n",5\nSNARE.wav,6\nno such.mp3,7\n,8\n'
    found = imported(tmp_path, audio, text)
    assert [clip.clip_id for clip in found.clips] == ["rain.wav"]
    whats = [problem.what for problem in found.problems]
    for what, near in zip(whats, ["00002.wav", "Bär.wav", "a/kick.wav", "rain.wav", "snare.wav"], strict=False):
        assert f"{unicodedata.normalize('NFD', near)!r} is there and differs in" in what
    assert whats[5] == "no file 'no such.mp3'. The row is left out."
    assert "path ''; expected one below" in whats[6]
    assert len(whats) == 7


@pytest.mark.case("C06")
def test_when_all_files_are_missing_nothing_is_written(tmp_path: Path, audio: Path) -> None:
    what = refused(tmp_path, audio, "file,text\nRain.wav,x\nsun.wav,y\n")
    assert "none of the 2 rows can be used; nothing is written. The first: " in what
    assert "no file 'Rain.wav'; 'rain.wav' is there and differs in upper and lower case" in what


def test_paths_are_kept_below_the_folder(tmp_path: Path, audio: Path) -> None:
    (tmp_path / "outside.wav").touch()
    paths = ["../outside.wav", tmp_path / "outside.wav", audio / "rain.wav", "/a/kick.wav", "./a//snare.wav"]
    text = "file,text\n" + "".join(f"{path},words\n" for path in paths)
    found = imported(tmp_path, audio, text)
    assert [clip.clip_id for clip in found.clips] == ["rain.wav", "a/kick.wav", "a/snare.wav"]
    assert [problem.where[-6:] for problem in found.problems] == ["line 2", "line 3"]


@pytest.mark.case("A29", "A30", "A31")
def test_names_are_taken_as_they_are(tmp_path: Path, audio: Path) -> None:
    (audio / "-y.wav").touch()
    (audio / "._side.wav").write_bytes(b"\x00\x05\x16\x07" + bytes(20))
    (audio / os.fsdecode(b"caf\xe9")).mkdir()
    (audio / os.fsdecode(b"caf\xe9") / "bell.wav").touch()
    text = 'file,text\n" led by a blank.wav",1\n"雨/☃, a; #[1].wav",2\n-y.wav,3\n._side.wav,4\nbell.wav,5\n'
    found = imported(tmp_path, audio, text)
    assert [clip.clip_id for clip in found.clips] == [" led by a blank.wav", "雨/☃, a; #[1].wav", "-y.wav"]
    assert "a side file of macOS" in found.problems[0].what
    assert "a name that is not UTF-8" in found.problems[1].what
    assert len(found.problems) == 2


@pytest.mark.case("A32")
def test_links_that_lead_in_a_circle_do_no_harm(tmp_path: Path, audio: Path) -> None:
    (audio / "a" / "loop").symlink_to(audio)
    found = imported(tmp_path, audio, "file,text\nsnare.wav,1\n")
    assert [clip.clip_id for clip in found.clips] == ["a/snare.wav"]


def test_blank_texts_cost_their_rows(tmp_path: Path, audio: Path) -> None:
    found = imported(tmp_path, audio, "file,text\nrain.wav,Rain\na/kick.wav,\u200b\nb/kick.wav, \n")
    assert [clip.clip_id for clip in found.clips] == ["rain.wav"]
    assert [problem.what for problem in found.problems] == ["no text in 'text'. The row is left out."] * 2


@pytest.mark.parametrize(
    ("names", "ours"),
    [
        (["train", "val", "test"], ["development", "validation", "evaluation"]),
        (["Train", "dev", "eval"], ["development", "validation", "evaluation"]),
        (["dev", "valid", "testing"], ["development", "validation", "evaluation"]),
        (["development", "validation", "evaluation"], ["development", "validation", "evaluation"]),
        (["fold1", "fold2", "train-lists"], ["fold1", "fold2", "train-lists"]),
    ],
)
def test_the_usual_names_of_splits_are_translated(
    tmp_path: Path, audio: Path, names: list[str], ours: list[str]
) -> None:
    text = "file,text,s\n" + "".join(
        f"{file},x,{name}\n" for file, name in zip(["rain.wav", "a/kick.wav", "b/kick.wav"], names, strict=True)
    )
    found = imported(tmp_path, audio, text, split="s")
    assert [clip.split for clip in found.clips] == ours
    said = {name: our for name, our in zip(names, ours, strict=True) if name != our}
    assert found.about["imported"]["splits"] == said


def test_a_blank_split_costs_its_row(tmp_path: Path, audio: Path) -> None:
    found = imported(tmp_path, audio, "file,text,s\nrain.wav,x,test\na/kick.wav,y,\n", split="s")
    assert found.splits == ["evaluation"]
    assert found.problems[0].what == "no split in 's'. The row is left out."


def test_whole_groups_are_held_out(tmp_path: Path, audio: Path) -> None:
    rows = []
    for number in range(40):
        (audio / f"{number}.wav").touch()
        rows.append(f"{number}.wav,text {number % 7},g{number // 4}")
    text = "file,text,g\n" + "\n".join(rows)
    found = imported(tmp_path, audio, text, holdout=0.2, group="g", seed=3)
    assert len(found.gallery("evaluation")) == 8
    held = {clip.group for clip in found.gallery("evaluation")}
    assert held.isdisjoint(clip.group for clip in found.gallery("development"))
    assert found.about["imported"]["seed"] == 3
    other = import_table(
        tmp_path / "table.csv", tmp_path / "other", audio=audio, path="file", texts=["text"], holdout=0.2, group="g"
    )
    assert {clip.group for clip in other.gallery("evaluation")} != held


def test_columns_under_our_names_are_kept_under_others(tmp_path: Path, audio: Path) -> None:
    found = imported(tmp_path, audio, "file,text,group,split,clip_id,path\nrain.wav,x,g,test,7,p\n")
    assert found.clips[0].group == ""
    assert found.clips[0].split == "development"
    assert found.clips[0].more == {"csv_group": "g", "csv_split": "test", "csv_clip_id": "7", "csv_path": "p"}


@pytest.mark.case("C10", "C03")
def test_an_excel_export_is_read_when_its_encoding_is_named(tmp_path: Path, audio: Path) -> None:
    text = 'file;text\r\nrain.wav;Ein Bär; brüllt\r\na/kick.wav;"Bär; laut"\r\n'
    (tmp_path / "table.csv").write_bytes(text.encode("cp1252"))
    where = {"audio": audio, "path": "file", "texts": ["text"]}
    with pytest.raises(DataError, match=r"table\.csv line 2: byte 0xe4 is not utf-8"):
        import_table(tmp_path / "table.csv", tmp_path / "out", **where)
    found = import_table(tmp_path / "table.csv", tmp_path / "out", encoding="cp1252", **where)
    assert [caption.text for caption in found.captions] == ["Bär; laut"]
    assert found.problems[0].what.startswith("3 cells; expected 2")


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"holdout": 0.0}, "--holdout 0; expected a share"),
        ({"holdout": 1.0}, "--holdout 1; expected a share"),
        ({"holdout": float("nan")}, "--holdout nan; expected a share"),
        ({"holdout": 0.2, "split": "s"}, "expected one of the two"),
        ({"holdout": 0.2, "group": "s"}, "expected two groups at least"),
        ({"texts": []}, "no column of captions named"),
        ({"texts": ["text", "text"]}, "named twice"),
        ({"texts": ["words"]}, "no column 'words'; found 'file', 'text', 's'"),
        ({"path": "name"}, "no column 'name'"),
        ({"split": "fold"}, "no column 'fold'"),
        ({"group": "who"}, "no column 'who'"),
        ({"texts": ["blank"]}, "no column 'blank'"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(tmp_path: Path, audio: Path, how: dict[str, Any], what: str) -> None:
    assert what in refused(tmp_path, audio, "file,text,s\nrain.wav,x,one\na/kick.wav,y,one\n", **how)


def test_a_table_without_usable_rows_is_refused(tmp_path: Path, audio: Path) -> None:
    assert "none of the 0 rows" in refused(tmp_path, audio, "file,text\n")
    assert "no text in 'text'" in refused(tmp_path, audio, "file,text\nrain.wav, \n")
    assert "not a folder" in refused(tmp_path, tmp_path / "nowhere", "file,text\nrain.wav,x\n")


def test_nothing_that_is_there_is_overwritten(tmp_path: Path, audio: Path) -> None:
    imported(tmp_path, audio, "file,text\nrain.wav,x\n")
    assert "is there already" in refused(tmp_path, audio, "file,text\nrain.wav,x\n")


def test_the_library(real_data: Path, tmp_path: Path) -> None:
    found = import_table(
        real_data / "library.csv",
        tmp_path / "library",
        audio=real_data / "library",
        path="file",
        texts=["text"],
        holdout=0.2,
        group="group",
    )
    assert found.problems == []
    assert (len(found.clips), len({caption.text for caption in found.captions})) == (1229, 824)
    assert abs(len(found.gallery("evaluation")) - 0.2 * 1229) < 10
    again = Collection.read(tmp_path / "library")
    assert again == found
    assert again.check(sounds=False) == []


@pytest.mark.parametrize(
    ("name", "path", "text", "clips", "captions"),
    [
        ("tuxpaint_multilingual.csv", "file", "text", 107, 6991),
        ("audiocaps_v1/test.csv", "youtube_id", "caption", 975, 4875),
    ],
)
def test_one_row_a_caption(
    real_data: Path, tmp_path: Path, name: str, path: str, text: str, clips: int, captions: int
) -> None:
    with (real_data / "texts" / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            place = tmp_path / "sounds" / row[path]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    found = import_table(
        real_data / "texts" / name, tmp_path / "out", audio=tmp_path / "sounds", path=path, texts=[text]
    )
    assert (len(found.clips), len(found.captions), found.problems) == (clips, captions, [])
    assert Collection.read(tmp_path / "out") == found


def test_a_pipe_or_a_dead_link_is_no_sound_wherever_it_lies(tmp_path, audio):
    os.mkfifo(audio / "a" / "pipe.wav")
    os.mkfifo(audio / "a" / "._side.wav")
    (audio / "a" / "dead.wav").symlink_to(tmp_path / "nowhere")
    (audio / "b" / "pipe.wav").touch()
    names = ("._side.wav", "dead.wav", "a/pipe.wav")
    rows = "".join(f"{name},x\n" for name in (*names, "pipe.wav"))
    found = imported(tmp_path, audio, f"file,text\n{rows}")
    assert [clip.clip_id for clip in found.clips] == ["b/pipe.wav"]  # the one of that name that is a file
    assert [problem.where.rpartition(" ")[2] for problem in found.problems] == ["2", "3", "4"]
    assert "'a/._side.wav' is not a regular file" in found.problems[0].what


def test_tables_and_vectors_that_are_pipes_are_told_and_not_waited_for(tmp_path, audio):
    found = imported(tmp_path, audio, "file,text\nrain.wav,x\n")
    os.mkfifo(found.root / "clip_vectors.npz")
    assert any("clip_vectors.npz" in each.where and "regular" in each.what for each in found.check(sounds=False))
    os.mkfifo(found.root / "ratings.csv")
    with pytest.raises(DataError, match=r"ratings\.csv: not a regular file"):
        Collection.read(found.root)
