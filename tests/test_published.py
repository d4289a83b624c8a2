"""Published files: AudioCaps, WavCaps, XACLE, RELATE, DCASE 2025; real ones where they are there, and hostile ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.data.collection import Collection
from earmark.data.published import import_published, names_in
from earmark.errors import DataError

AUDIOCAPS = "audiocap_id,youtube_id,start_time,caption\n"
XACLE = "wave_file_name,text,score,listener_id\n"
DCASE = "query,audio_filenames\n"


def file(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def sounds(tmp_path: Path, *names: str) -> Path:
    for name in names:
        path = tmp_path / "sounds" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "sounds"


def imported(tmp_path: Path, *files: Path, **how: Any) -> Collection:
    found = import_published(files, tmp_path / "out", **how)
    again = Collection.read(tmp_path / "out")
    assert again.problems == []
    again.problems = found.problems
    assert again == found
    return found


def refused(tmp_path: Path, *files: Path, **how: Any) -> str:
    with pytest.raises(DataError) as error:
        import_published(files, tmp_path / "out", **how)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
    return str(error.value)


# Real files


def test_audiocaps(real_data: Path, tmp_path: Path) -> None:
    texts = real_data / "texts" / "audiocaps_v1"
    found = imported(tmp_path, texts / "val.csv", texts / "test.csv")
    assert {split: len(found.gallery(split)) for split in found.splits} == {"validation": 495, "evaluation": 975}
    assert (len(found.captions), found.queries, found.problems) == (7350, "captions", [])
    assert len(found.query_captions("evaluation")) == 4875
    assert found.clips[0].more == {"youtube_id": "vfY_TJq7n_U", "start_time": "130"}
    assert found.captions[0].caption_id == "97151"


@pytest.mark.parametrize(
    ("name", "clips", "captions", "split"),
    [("sb_final.json", 1232, 1232, "development"), ("retrieval_Clotho_val.json", 1045, 5225, "validation")],
)
def test_wavcaps(real_data: Path, tmp_path: Path, name: str, clips: int, captions: int, split: str) -> None:
    found = imported(tmp_path, real_data / "texts" / "wavcaps_json" / name)
    assert (len(found.clips), len(found.captions), found.splits, found.problems) == (clips, captions, [split], [])
    assert found.clips[0].more["duration"]


def test_relate(real_data: Path, tmp_path: Path) -> None:
    found = imported(tmp_path, real_data / "texts" / "relate" / "REL.csv")
    assert (len(found.ratings), len(found.captions), len(found.clips)) == (28770, 6917, 5938)
    assert (len({rating.rater_id for rating in found.ratings}), found.problems) == (1370, [])
    assert len(found.relevance("ratings")) == 5928  # without the anchors of 989 captions
    assert {split: len(found.gallery(split)) for split in found.splits} == {
        "development": 2862,
        "validation": 1287,
        "evaluation": 1311,
        "excluded": 478,
    }
    owner = {caption.caption_id: caption.clip_id for caption in found.captions}
    assert all(owner[rating.caption_id] == rating.clip_id for rating in found.ratings)
    assert Counter(rating.more["anchor label"] for rating in found.ratings) == {"False": 24660, "True": 4110}
    assert all(r.group == {"True": "anchor", "False": ""}[r.more["anchor label"]] for r in found.ratings)
    assert set(found.ratings[0].more) == {"audio type", "anchor label", "in RELATE dataset", "in AudioCaps"}
    assert {rating.rating for rating in found.ratings} == set(range(0, 101, 10))


def test_a_git_lfs_pointer_is_told(real_data: Path, tmp_path: Path) -> None:
    pointer = real_data / "texts" / "wavcaps_json" / "fsd_final.lfs_pointer.json"
    what = refused(tmp_path, pointer)
    assert what.endswith(
        "a Git-LFS pointer, not the data of 147,300,685 bytes. Fetch it with `git lfs pull`, or download the file."
    )
    assert "Git-LFS" in refused(tmp_path, file(tmp_path, "t.csv", pointer.read_bytes()))


# Where the sounds are


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("val/abcdefghijk_30.wav", "{youtube_id}_{start_time}"),
        ("Yabcdefghijk.wav", "Y{youtube_id}"),
        ("abcdefghijk.m4a", "{youtube_id}"),
        ("train/11.ogg", "{audiocap_id}"),
        ("abcdefghijk_30_40.flac", "{youtube_id}_{start}_{end}"),
        ("Yabcdefghijk_30.000_40.000.wav", "Y{youtube_id}_{start}_{end}, three decimals"),
        ("abcdefghijk_30000_40000.wav", "{youtube_id}_{start}_{end}, milliseconds"),
    ],
)
def test_audiocaps_sounds_are_found_under_the_usual_names(tmp_path: Path, name: str, pattern: str) -> None:
    table = file(tmp_path, "train.csv", AUDIOCAPS + "10,abcdefghijk,30,A dog\n11,abcdefghijk,30,It barks\n")
    found = imported(tmp_path, table, audio=sounds(tmp_path, name, "abcdefghijk_30.txt"))
    assert [clip.path for clip in found.clips] == [f"../sounds/{name}"]
    assert found.about["imported"]["sounds"] == {pattern: 1}
    assert found.splits == ["development"]


def test_missing_sounds_are_one_counted_line_and_the_rest_stands(tmp_path: Path) -> None:
    table = file(tmp_path, "test.csv", AUDIOCAPS + "1,aaaaaaaaaaa,0,A\n2,bbbbbbbbbbb,0,B\n3,ccccccccccc,0,C\n")
    root = sounds(tmp_path, "aaaaaaaaaaa.wav", "x/bbbbbbbbbbb.wav", "y/bbbbbbbbbbb.wav")
    found = imported(tmp_path, table, audio=root)
    assert [bool(clip.path) for clip in found.clips] == [True, False, False]
    assert [problem.what for problem in found.problems] == [
        f"2 of 3 clips have no sound below {root}; the first: 2 files may be 'bbbbbbbbbbb' "
        "('x/bbbbbbbbbbb.wav', 'y/bbbbbbbbbbb.wav'); expected one. Their paths stay empty."
    ]


def test_wavcaps_of_audioset_is_found_as_flac_and_known_by_its_video(tmp_path: Path) -> None:
    items = [{"id": "Yabcdefghijk.wav", "caption": "Rain.", "duration": 10.0}, {"id": "7", "caption": "Wind."}]
    table = file(tmp_path, "as_final.json", json.dumps({"data": items}))
    root = sounds(tmp_path, "AudioSet_SL/Yabcdefghijk.flac", "FreeSound/7.flac")
    found = import_published([table], tmp_path / "out", audio=root)
    assert [clip.path for clip in found.clips] == [
        "../sounds/AudioSet_SL/Yabcdefghijk.flac",
        "../sounds/FreeSound/7.flac",
    ]
    assert found.clips[0].more["youtube_id"] == "abcdefghijk"
    assert [clip.clip_id for clip in found.clips] == ["as_final/Yabcdefghijk", "as_final/7"]


def test_a_sound_of_another_folder_is_not_taken_for_the_rated_one(tmp_path: Path) -> None:
    text = "wavname,text,score,listener_id\n/tango/test/1.wav,Rain,3,a\n/audiocaps/test/2.wav,Rain,3,a\n"
    found = imported(
        tmp_path,
        file(tmp_path, "REL.csv", text),
        audio=sounds(tmp_path, "audiocaps/test/1.wav", "r/audiocaps/test/2.mp3"),
    )
    assert [clip.path for clip in found.clips] == ["", "../sounds/r/audiocaps/test/2.mp3"]


# What rows say


def test_xacle_has_a_rating_a_listener_and_a_caption_a_pair(tmp_path: Path) -> None:
    text = XACLE + "1.wav,Rain,7.3,a\n1.wav,Rain,10,b\n1.wav,Wind,0,a\n2.wav,Rain,.5,a\n"
    found = imported(tmp_path, file(tmp_path, "train.csv", text), audio=sounds(tmp_path, "1.wav", "wav/2.wav"))
    assert [(c.caption_id, c.text) for c in found.captions] == [
        ("1.wav#1", "Rain"),
        ("1.wav#2", "Wind"),
        ("2.wav#1", "Rain"),
    ]
    assert [(r.caption_id, r.clip_id, r.rating, r.rater_id) for r in found.ratings] == [
        ("1.wav#1", "1.wav", 73.0, "a"),
        ("1.wav#1", "1.wav", 100.0, "b"),
        ("1.wav#2", "1.wav", 0.0, "a"),
        ("2.wav#1", "2.wav", 5.0, "a"),
    ]
    assert [clip.path for clip in found.clips] == ["../sounds/1.wav", "../sounds/wav/2.wav"]
    assert found.queries == "texts"


def test_a_query_of_several_clips_is_one_query_with_all_of_them_relevant(tmp_path: Path) -> None:
    text = DCASE + "Rain falls,\"['a, b.wav', 'c.wav']\"\nWind,\"['c.wav', 'c.wav']\"\n"
    found = imported(tmp_path, file(tmp_path, "multi.csv", text))
    assert found.splits == ["evaluation"]
    assert [caption.text for caption in found.query_captions("evaluation")] == ["Rain falls", "Wind"]
    relevance = found.relevance("captions", "evaluation")
    assert {pair.clip_id for pair in relevance.pairs() if pair.caption_id == "a, b.wav#1"} == {"a, b.wav", "c.wav"}
    assert len(found.captions) == 3


def test_a_clip_that_is_excluded_here_and_not_there_is_of_the_split_there(tmp_path: Path) -> None:
    text = "wavname,text,score,listener_id,in RELATE dataset\n/1.wav,Rain,3,a,excluded\n/1.wav,Rain,3,b,test\n"
    found = imported(tmp_path, file(tmp_path, "REL.csv", text))
    assert found.splits == ["evaluation"]
    assert len(found.ratings) == 2


def test_a_clip_in_two_splits_and_an_id_that_stands_twice_cost_their_rows(tmp_path: Path) -> None:
    one = file(tmp_path, "train.csv", AUDIOCAPS + "1,aaaaaaaaaaa,0,A\n1,bbbbbbbbbbb,0,B\n")
    two = file(tmp_path, "test.csv", AUDIOCAPS + "3,aaaaaaaaaaa,0,A again\n4,ccccccccccc,0,C\n")
    found = imported(tmp_path, one, two)
    assert [caption.caption_id for caption in found.captions] == ["1", "4"]
    assert [problem.what for problem in found.problems] == [
        "caption '1' stands above already; expected each id once. It is left out.",
        "'aaaaaaaaaaa_0' has split 'test', above 'train'. It is left out.",
    ]


def test_a_share_is_held_out_where_no_split_is_named(tmp_path: Path) -> None:
    items = [{"id": f"{number}", "caption": f"Sound {number}."} for number in range(20)]
    table = file(tmp_path, "bbc_final.json", json.dumps({"data": items}))
    found = imported(tmp_path, table, holdout=0.25)
    assert len(found.gallery("evaluation")) == 5
    other = file(tmp_path, "val.csv", AUDIOCAPS + "1,aaaaaaaaaaa,0,A\n")
    with pytest.raises(DataError, match=r"the files name splits \(validation\)"):
        import_published([other], tmp_path / "other", holdout=0.25)


# Hostile files


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("t.csv", "a,b\n1,2\n", "found 'a, b'; expected the columns of a published set (AudioCaps: audiocap_id"),
        ("t.csv", "", "empty"),
        ("t.csv", AUDIOCAPS, "no row can be used; nothing is written. The first: there is none"),
        ("t.csv", AUDIOCAPS.encode() + b"1,aaaaaaaaaaa,0,caf\xe9\n", "line 2: byte 0xe9 is not utf-8"),
        ("t.json", '{"data": [{"id": "1", "capt', "not JSON (Unterminated string"),
        ("t.json", "[" * 100_000, "not JSON ("),
        ("t.json", '{"Freesound": ["1"]}', "no list `data`"),
        ("t.json", '{"data": [1, {"id": ""}, {"id": "1"}, {"id": "2", "caption": " "}]}', "no row can be used"),
        ("t.json", b'{"data": "\xff"}', "byte 0xff is not utf-8"),
        ("t.csv", XACLE + "1.wav,Rain,nan,a\n", "score 'nan'; expected a plain number 0–10. Check the export's scale."),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, name: str, text: str | bytes, what: str) -> None:
    assert what in refused(tmp_path, file(tmp_path, name, text))


def test_files_of_two_sets_are_refused(tmp_path: Path) -> None:
    one, two = file(tmp_path, "a.csv", AUDIOCAPS + "1,v,0,A\n"), file(tmp_path, "b.csv", XACLE + "1.wav,A,1,a\n")
    assert "XACLE, but" in refused(tmp_path, one, two)
    assert "cannot be read (No such file" in refused(tmp_path, tmp_path / "none.csv")
    assert "not a folder" in refused(tmp_path, one, audio=tmp_path / "none")


@pytest.mark.parametrize("score", ["11", "nan", "inf", "-1", "1e1", " 5", "5,5", "", "NaN"])
def test_a_score_that_is_none_costs_its_row(tmp_path: Path, score: str) -> None:
    text = XACLE + f'1.wav,Rain,"{score}",a\n1.wav,Rain,5,b\n'
    found = imported(tmp_path, file(tmp_path, "train.csv", text))
    assert [rating.rating for rating in found.ratings] == [50.0]
    assert [problem.where for problem in found.problems] == [f"{tmp_path / 'train.csv'} line 2"]
    assert "expected a plain number 0–10" in found.problems[0].what


def test_a_row_that_says_nothing_costs_itself(tmp_path: Path) -> None:
    items: list[Any] = [
        {"id": "1", "caption": "Rain."},
        {"caption": "Wind."},
        {"id": "3"},
        4,
        {"id": "5", "captions": ["A", "B", ""]},
    ]
    found = imported(tmp_path, file(tmp_path, "x.json", json.dumps({"data": items})))
    assert [caption.text for caption in found.captions] == ["Rain.", "A", "B"]
    assert sorted(problem.where.rpartition(" ")[2] for problem in found.problems) == ["2", "3", "4"]


@pytest.mark.parametrize(
    "literal",
    [
        "__import__('os').system('touch ran')",
        "[__import__('os').system('touch ran')]",
        "['a.wav'",
        "'a.wav'",
        "[]",
        "[1]",
        "['']",
        "{'a.wav'}",
        "[" * 10_000,
        "a.wav",
        "",
        "['a' * 10**9]",
    ],
)
def test_a_list_that_is_none_costs_its_row_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, literal: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"expected a list such as \['a\.wav', 'b\.wav'\]"):
        names_in(literal)
    found = imported(tmp_path, file(tmp_path, "q.csv", DCASE + f"Rain,\"{literal}\"\nWind,['b.wav']\n"))
    assert [clip.clip_id for clip in found.clips] == ["b.wav"]
    assert len(found.problems) == 1
    assert not (tmp_path / "ran").exists()


@given(st.lists(st.text(min_size=1).filter(lambda name: "\0" not in name), min_size=1))
def test_any_names_are_read_back(names: list[str]) -> None:
    assert names_in(repr(names)) == list(dict.fromkeys(names))


def test_a_cell_of_ten_megabytes_costs_its_row(tmp_path: Path) -> None:
    text = AUDIOCAPS + f"1,aaaaaaaaaaa,0,{'rain ' * 2_000_000}\n2,bbbbbbbbbbb,0,Wind\n"
    found = imported(tmp_path, file(tmp_path, "val.csv", text))
    assert [caption.text for caption in found.captions] == ["Wind"]
    assert "field larger than field limit" in found.problems[0].what


def test_half_letters_and_our_own_column_names_do_no_harm(tmp_path: Path) -> None:
    item = '{"id": "1", "caption": "Rain \\ud83d", "path": "p", "split": "s", "tags": ["a", 1], "none": null}'
    found = imported(tmp_path, file(tmp_path, "x.json", f'{{"data": [{item}]}}'))
    assert found.captions[0].text == "Rain ?"
    more = {"id": "1", "csv_path": "p", "csv_split": "s", "tags": '["a", 1]', "none": ""}
    assert dict(found.clips[0].more) == more


def test_half_letters_in_keys_and_in_names_of_sounds_cost_their_row(tmp_path: Path) -> None:
    items = '{"id": "1", "caption": "Rain"}, {"id": "2", "caption": "Wind", "\\ud800": 1}'
    queries = DCASE + "Rain,\"['a.wav']\"\nWind,\"['\\ud800.wav']\"\n"
    one, two = file(tmp_path, "x.json", f'{{"data": [{items}]}}'), file(tmp_path, "q.csv", queries)
    for table, place in ((one, "item 2"), (two, "line 3")):
        found = import_published([table], tmp_path / table.stem)
        assert [caption.text for caption in found.captions] == ["Rain"]
        assert [problem.where for problem in found.problems] == [f"{table} {place}"]
        assert "half a letter of UTF-16" in found.problems[0].what


# The command


def said(*arguments: object) -> str:
    """What a command says where it is done, or the error's line where it is refused."""
    from typer.testing import CliRunner

    from earmark.cli import app

    done = CliRunner().invoke(app, [str(each) for each in ("data", *arguments)])
    return str(done.exception) if done.exit_code == 1 and done.exception else f"{done.exit_code} {done.output}"


def test_the_command_tells_the_layout_and_takes_several_files(tmp_path: Path) -> None:
    one = file(tmp_path, "val.csv", AUDIOCAPS + "1,aaaaaaaaaaa,0,A\n")
    two = file(tmp_path, "test.csv", AUDIOCAPS + "2,bbbbbbbbbbb,0,B\n")
    bare = said("import", one, two, tmp_path / "bare")
    assert bare.startswith("0 AudioCaps; sounds: no --audio, so the paths of all 2 clips are empty\n")
    assert "2 clips (validation 1, evaluation 1)" in bare
    found = said("import", one, tmp_path / "found", "--audio", sounds(tmp_path, "Yaaaaaaaaaaa.wav"))
    assert found.startswith("0 AudioCaps; sounds: 1 as Y{youtube_id}\n")


def test_the_command_exports_and_imports_a_folder(tmp_path: Path) -> None:
    from worlds import tone_world

    tone_world(tmp_path / "tones", clips=3)
    out = said("export", tmp_path / "tones", tmp_path / "hub", "--as", "parquet")
    assert "tones (GENERATED) as parquet: 3 clips (train 2, validation 1) in 2 Parquet files, 3 captions" in out
    assert "3 clips (development 2, validation 1)" in said("import", tmp_path / "hub", tmp_path / "back")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("x.json", "out", "--path", "p", "--text", "t", "--audio", "."), "JSON, whose keys are known. Leave --path"),
        (("x.json", "out", "--split", "s"), "--split s: these go with --path and --text. Leave it out."),
        ((".", "out", "--path", "p", "--audio", "."), "--path p, --audio .: a folder, whose own files tell these"),
        ((".", "x.csv", "out"), "expected it alone"),
        (("x.csv", "out", "--path", "p", "--audio", "."), "expected it alone, with --audio, --path and --text"),
        (("x.csv", "y.csv", "out", "--path", "p", "--text", "t", "--audio", "."), "expected it alone"),
        (("x.csv", "out", "--path", "p", "--text", "t"), "expected it alone, with --audio"),
    ],
)
def test_options_that_contradict_the_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "x.json", "{}")
    assert what in said("import", *arguments)
    assert not (tmp_path / "out").exists()
