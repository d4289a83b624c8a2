"""Hugging Face's audiofolder and Parquet, out and back, and folders that others made."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from earmark.data import audiofolder, export
from earmark.data.audiofolder import import_folder
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import ConfigError, DataError
from earmark.relevance import Rating

NAMES = ("a/kick.wav", "b/kick.wav", "a/Kick.wav", "a/ led, by [x] #1;.wav", "b/雨.flac", "b/0012.ogg", "a/l.wav")
SPLITS = ("development",) * 4 + ("evaluation", "my fold", "evaluation-lists")
TEXTS = ("None", "NA", 'it\'s "quoted"\r\nnew; line', "0012")


def world(root: Path) -> Collection:
    """Odd names, ids, texts and columns; the last clip has no caption, and one has no sound."""
    clips, captions = [], []
    for number, (name, split) in enumerate(zip(NAMES, SPLITS, strict=True)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(root / name, 0.1 * np.sin(np.arange(800 + number)), 8000)
        more = {"file_name": f"o{number}.wav", "audio": f"2020-01-0{number + 1}", "label": ""}
        clips.append(Clip(f"00{number}", name, split, f"g{number}", more))
        captions += [Caption(f"{number}-{k}", f"00{number}", TEXTS[(number + k) % 4], {"k": str(k)}) for k in range(2)]
    clips.append(Clip("silent", "", "evaluation", "g9", {"file_name": "", "audio": "", "label": "x"}))
    ratings = [
        Rating("4-0", "004", 100.0, "TP", "r1", 1.5, more={"note": ""}),
        Rating("4-0", "006", 33.3, "TN", "r1", more={"note": "hm"}),
        Rating("4-1", "silent", 0.0, more={"note": ""}),
    ]
    about = {"licence": "CC0-1.0 (generated)", "deep": {"a": 1}}
    made = Collection(root, clips, captions[:-2], ratings, name='odd: "one"', kind="generated", about=about)
    made.write()
    VectorTable(tuple(clip.clip_id for clip in clips), np.ones((len(clips), 3), np.float32)).write(
        root / "clip_vectors.npz"
    )
    return Collection.read(root)


def plain(collection: Collection) -> Any:
    """All but where the sounds lie."""
    clips = [(clip.clip_id, clip.split, clip.group, clip.more) for clip in collection.clips]
    head = (collection.name, collection.kind, collection.queries, collection.about)
    return clips, collection.captions, collection.ratings, head


def audio(collection: Collection) -> list[bytes]:
    return [collection.audio_path(clip).read_bytes() if clip.path else b"" for clip in collection.clips]


# Out and back


@pytest.mark.parametrize("form", export.FORMS)
def test_what_was_exported_comes_back_as_it_was(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "GROUP_BYTES", 3000)
    made = world(tmp_path / "made")
    done = export.export(made, tmp_path / "hub", form, shard_bytes=4000)
    assert done.rows == {"train": 4, "test": 1, "my_fold": 1, "test_lists": 1}
    assert done.files == (7 if form == "audiofolder" else 5)
    assert [str(problem) for problem in done.problems] == [
        "clips.csv line 9: 1 of 8 clips have no sound file (or one of over 2 GB); they stand in the tables alone."
    ]
    back = import_folder(tmp_path / "hub", tmp_path / "back")
    assert back.problems == []
    assert plain(back) == plain(made)
    assert audio(back) == audio(made)
    assert back.clip_vectors is not None
    assert list(back.clip_vectors.ids) == [clip.clip_id for clip in made.clips]
    if form == "audiofolder":
        assert plain(Collection.read(tmp_path / "hub")) == plain(made)  # it is a collection still
        assert audio(Collection.read(tmp_path / "hub")) == audio(made)


@pytest.mark.parametrize("form", export.FORMS)
def test_rows_are_texts_lists_and_sounds(tmp_path: Path, form: str) -> None:
    export.export(world(tmp_path / "made"), tmp_path / "hub", form)
    shard = {"audiofolder": "train/metadata.parquet", "parquet": "data/train-00000-of-00001.parquet"}[form]
    table = pq.read_table(tmp_path / "hub" / shard)
    rows = table.to_pylist()
    sound = rows[0].pop("audio" if form == "parquet" else "file_name")
    assert rows[0] == {
        "clip_id": "000",
        "captions": ["None", "NA"],
        "caption_ids": ["0-0", "0-1"],
        "group": "g0",
        "filename": "o0.wav",  # `file_name` would be a sound
        "clip_audio": "2020-01-01",
        "label": "",
    }
    if form == "parquet":
        assert sound == {"bytes": (tmp_path / "made" / "a/kick.wav").read_bytes(), "path": "kick.wav"}
        assert json.loads(table.schema.metadata[b"huggingface"])["info"]["features"] == {"audio": {"_type": "Audio"}}
        ratings = pq.read_table(tmp_path / "hub" / "ratings.parquet").to_pylist()
        assert [(row["rating"], row["note"]) for row in ratings] == [(100.0, ""), (33.3, "hm"), (0.0, "")]
    else:
        assert sound == "kick.wav"
        names = sorted(path.name for path in (tmp_path / "hub" / "train").iterdir())
        assert names == [" led, by [x] #1;.wav", "Kick-3.wav", "kick-2.wav", "kick.wav", "metadata.parquet"]
        assert (tmp_path / "hub" / "train" / "kick.wav").samefile(tmp_path / "made" / "a" / "kick.wav")
    shards = [path for path in (tmp_path / "hub").rglob("*.parquet") if path.name != "ratings.parquet"]
    assert len(shards) == 4
    assert all(pq.read_schema(path).equals(table.schema) for path in shards)  # `datasets` refuses others


def test_sounds_are_copied_where_they_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    made = world(tmp_path / "made")
    monkeypatch.setattr(os, "link", refuse)
    export.export(made, tmp_path / "hub", "audiofolder")
    assert audio(Collection.read(tmp_path / "hub")) == audio(made)


def test_the_card_names_splits_counts_and_licence(tmp_path: Path) -> None:
    export.export(world(tmp_path / "made"), tmp_path / "hub", "parquet")
    card = (tmp_path / "hub" / "README.md").read_text()
    for part in (
        'pretty_name: "odd: \\"one\\""\nlicense: cc0-1.0\n',
        '  - split: "my_fold"\n    path: "data/my_fold-*"\n',
        "- config_name: ratings\n  data_files: ratings.parquet\n---\n",
        "GENERATED sound; 8 clips, 12 captions, 3 ratings. Licence: CC0-1.0 (generated).",
        "| development | 4 | 8 | 0 |\n| evaluation | 2 | 2 | 3 |\n",
    ):
        assert part in card


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    made = world(tmp_path / "made")
    with pytest.raises(ConfigError, match="--as zip; expected audiofolder or parquet"):
        export.export(made, tmp_path / "hub", "zip")
    bare = Collection(tmp_path / "bare", [Clip("1", "", "development")], [])
    with pytest.raises(DataError, match="none of 1 clips has a sound"):
        export.export(bare, tmp_path / "hub", "parquet")
    assert not (tmp_path / "hub").exists()
    with pytest.raises(DataError, match="is there already"):
        export.export(made, tmp_path / "made", "parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


# Folders of others


def sound(path: Path, number: int = 0) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * np.sin(np.arange(400 + number)), 8000)
    return path.read_bytes()


def imported(folder: Path, **how: Any) -> Collection:
    found = import_folder(folder, folder.parent / "out", **how)
    again = Collection.read(folder.parent / "out")
    assert again.problems == []
    again.problems = found.problems
    assert again == found
    assert all(found.audio_path(clip).is_file() for clip in found.clips)
    return found


@pytest.mark.parametrize("top", [True, False])
def test_metadata_csv_at_the_top_or_a_split(tmp_path: Path, top: bool) -> None:
    folder = tmp_path / "hub"
    for number, name in enumerate(("train/a.wav", "test/b.wav", "test/loud/c.wav", "validation/d.wav")):
        sound(folder / name, number)
    rows = {"train/a.wav": "Rain", "test/b.wav": "Wind", "test/loud/c.wav": "Rain", "validation/d.wav": "Sea"}
    if top:
        lines = "".join(f"{name},{text},7\n" for name, text in rows.items())
        (folder / "metadata.csv").write_text(f"file_name,transcription,take\n{lines}")
    else:
        for split in ("train", "test", "validation"):
            own = {name.removeprefix(f"{split}/"): text for name, text in rows.items() if name.startswith(split)}
            lines = "".join(f"{name},{text},7\n" for name, text in own.items())
            (folder / split / "metadata.csv").write_text(f"file_name,transcription,take\n{lines}")
    found = imported(folder)
    assert {clip.clip_id: clip.split for clip in found.clips} == {
        "train/a.wav": "development",
        "test/b.wav": "evaluation",
        "test/loud/c.wav": "evaluation",
        "validation/d.wav": "validation",
    }
    assert {c.clip_id: c.text for c in found.captions} == rows
    assert {clip.more["take"] for clip in found.clips} == {"7"}
    assert (found.queries, found.about["imported"]["text"], found.problems) == ("texts", "transcription", [])


def test_metadata_jsonl_with_lists_and_rows_that_cost_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    for number, name in enumerate(("a.wav", "b.wav", "c.wav")):
        sound(folder / name, number)
    lines = [
        '{"file_name": "a.wav", "captions": ["Rain", "It rains"], "tags": ["x", 1]}',
        '{"file_name": "b.wav", "captions": ["Wi',
        "[1]",
        '{"file_name": "gone.wav", "captions": ["Sea"]}',
        '{"file_name": "../hub/b.wav", "captions": ["Sea"]}',
        '{"file_name": "c.wav", "captions": []}',
        "",
        '{"captions": ["Sea"]}',
    ]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-4.0\n---\nlicense: mit\n")
    found = imported(folder)
    assert [(c.caption_id, c.text) for c in found.captions] == [("a.wav#1", "Rain"), ("a.wav#2", "It rains")]
    assert dict(found.clips[0].more) == {"tags": '["x", 1]'}
    assert sorted(problem.where.rpartition(" ")[2] for problem in found.problems) == ["2", "3", "4", "5", "6", "8"]
    assert (found.queries, found.splits, found.about["licence"]) == ("captions", ["development"], "cc-by-4.0")


def shard(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_parquet_of_others_with_a_row_a_caption(tmp_path: Path) -> None:
    folder, one, two = tmp_path / "hub", sound(tmp_path / "1.wav"), sound(tmp_path / "2.flac", 1)
    row = {"caption": "Rain", "start": 3, "labels": [1, 2], "video": {"x": b"1"}}
    shard(
        folder / "data" / "test-00000-of-00002.parquet",
        [
            row | {"audio": {"bytes": one, "path": "../../a/evil.wav"}},
            row | {"audio": {"bytes": two, "path": "evil.wav"}, "caption": "Wind"},
            row | {"audio": {"bytes": None, "path": "far.wav"}},
        ],
    )
    shard(
        folder / "data" / "test-00001-of-00002.parquet",
        [
            row | {"audio": {"bytes": one, "path": "again.wav"}, "caption": "Drops"},
            row | {"audio": {"bytes": two[:-1], "path": ".."}, "caption": " "},
        ],
    )
    found = imported(folder)
    assert [(clip.clip_id, clip.path, clip.split) for clip in found.clips] == [
        ("test/evil.wav", "sounds/test/evil.wav", "evaluation"),
        ("test/evil-2.wav", "sounds/test/evil-2.wav", "evaluation"),
    ]
    assert [(c.caption_id, c.text) for c in found.captions] == [
        ("test/evil.wav#1", "Rain"),
        ("test/evil-2.wav#1", "Wind"),
        ("test/evil.wav#2", "Drops"),
    ]
    assert audio(found) == [one, two]
    assert dict(found.clips[0].more) == {"start": "3", "labels": "[1, 2]"}
    assert ["holds no bytes" in problem.what for problem in found.problems] == [True, False]


def test_names_that_are_none_become_numbers(tmp_path: Path) -> None:
    paths = [None, "", "..", "a\nb.wav", "x" * 300, "metadata.csv", "plain"]
    data = [sound(tmp_path / f"{number}.flac", number) for number in range(len(paths))]
    rows = [{"audio": {"bytes": each, "path": path}, "text": "Rain"} for each, path in zip(data, paths, strict=True)]
    shard(tmp_path / "hub" / "train.parquet", rows)
    found = imported(tmp_path / "hub")
    names = [clip.path.removeprefix("sounds/train/") for clip in found.clips]
    assert names == [*(f"00000{n}.flac" for n in range(1, 6)), "metadata-2.csv", "plain.flac"]
    assert audio(found) == data


def test_a_share_is_held_out_where_the_folder_has_no_splits(tmp_path: Path) -> None:
    for number in range(8):
        sound(tmp_path / "hub" / f"{number}.wav", number)
    lines = "".join(f"{number}.wav,Sound {number}\n" for number in range(8))
    (tmp_path / "hub" / "metadata.csv").write_text(f"file_name,words\n{lines}")
    found = imported(tmp_path / "hub", text="words", holdout=0.25)
    assert {split: len(found.gallery(split)) for split in found.splits} == {"development": 6, "evaluation": 2}


def test_metadata_parquet(tmp_path: Path) -> None:
    made = world(tmp_path / "made")
    export.export(made, tmp_path / "hub", "audiofolder")
    for name in ("clips.csv", "captions.csv"):  # what another program would have left out
        (tmp_path / "hub" / name).unlink()
    found = imported(tmp_path / "hub")
    assert found.queries == "captions"
    assert {clip.clip_id: clip.split for clip in found.clips}["test/雨.flac"] == "evaluation"
    assert [c.text for c in found.captions if c.clip_id == "train/kick.wav"] == ["None", "NA"]
    assert [problem.what for problem in found.problems] == ["no text in 'captions'. The row is left out."]


@pytest.mark.parametrize(
    ("name", "content", "how", "what"),
    [
        ("x.txt", b"", {}, "neither metadata.csv, metadata.jsonl, metadata.parquet nor Parquet shards"),
        ("metadata.csv", b"name,text\na,b\n", {}, "no column 'file_name'; found 'name', 'text'"),
        ("metadata.csv", b"file_name,words\na.wav,b\n", {}, "found file_name, words. Name the one with the captions"),
        ("metadata.csv", b"file_name,text\na.wav,b\n", {"text": "words"}, "no column 'words'"),
        ("metadata.csv", b"file_name,text\na.wav,b\n", {}, "no row can be used; nothing is written. The first: "),
        ("metadata.csv", b"file_name,text\na.wav,caf\xe9\n", {}, "line 2: byte 0xe9 is not utf-8"),
        ("metadata.jsonl", b"", {}, "no row can be used; nothing is written. The first: "),
        ("metadata.jsonl", b"{}", {}, "no column 'file_name'"),
        ("data/train.parquet", b"PAR1 and no more", {}, "cannot be read as Parquet"),
        ("data/train.parquet", b"version https://git-lfs.github.com/spec/v1\nsize 9\n", {}, "a Git-LFS pointer"),
        ("metadata.csv", b"file_name,text\na.wav,b\n", {"holdout": 2.0}, "--holdout 2; expected a share"),
    ],
)
def test_what_cannot_be_read_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str, content: bytes, how: dict[str, Any], what: str
) -> None:
    (tmp_path / "hub" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "hub" / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        import_folder(tmp_path / "hub", tmp_path / "out", **how)
    assert what in str(error.value)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]


def test_parquet_without_sounds_and_a_cut_shard_are_refused(tmp_path: Path) -> None:
    shard(tmp_path / "hub" / "train.parquet", [{"text": "Rain"}])
    with pytest.raises(DataError, match="no column of sounds; found text \\(string\\); expected `audio`"):
        import_folder(tmp_path / "hub", tmp_path / "out")
    made = world(tmp_path / "made")
    export.export(made, tmp_path / "cut", "parquet")
    whole = tmp_path / "cut" / "data" / "train-00000-of-00001.parquet"
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        import_folder(tmp_path / "cut", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def not_utf8(*cells: bytes) -> pa.Array:
    offsets = np.cumsum([0, *map(len, cells)], dtype=np.int32).tobytes()
    return pa.Array.from_buffers(pa.string(), len(cells), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(cells))])


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("text", not_utf8(b"Rain", b"\xff")),
        ("path", not_utf8(b"a.wav", b"\xff")),
        ("when", pa.array([0, 2**31 - 1], pa.date32())),
        ("long", pa.array([0, 2**62], pa.duration("s"))),
    ],
)
def test_a_cell_that_python_cannot_hold_costs_its_row(tmp_path: Path, column: str, cells: pa.Array) -> None:
    (tmp_path / "hub").mkdir()
    data = [sound(tmp_path / f"{number}.wav", number) for number in range(2)]
    path = cells if column == "path" else pa.array(["a.wav", "b.wav"])
    audio = pa.StructArray.from_arrays([pa.array(data), path], ["bytes", "path"])
    others = {} if column == "path" else {column: cells}
    pq.write_table(pa.table({"audio": audio, "text": ["Rain", "Wind"]} | others), tmp_path / "hub" / "train.parquet")
    found = imported(tmp_path / "hub")
    assert [(clip.clip_id, caption.text) for clip, caption in zip(found.clips, found.captions, strict=True)] == [
        ("train/a.wav", "Rain")
    ]
    (problem,) = found.problems
    assert problem.where.endswith("train.parquet row 2")
    assert f"'{'audio' if column == 'path' else column}' cannot be read (" in problem.what


def test_a_cell_of_metadata_parquet_that_is_no_utf8_costs_its_row(tmp_path: Path) -> None:
    for number, name in enumerate(("a.wav", "b.wav")):
        sound(tmp_path / "hub" / name, number)
    table = pa.table({"file_name": ["a.wav", "b.wav"], "text": not_utf8(b"Rain", b"\xff")})
    pq.write_table(table, tmp_path / "hub" / "metadata.parquet")
    found = imported(tmp_path / "hub")
    assert [clip.clip_id for clip in found.clips] == ["a.wav"]
    assert [problem.where.rpartition("/")[2] for problem in found.problems] == ["metadata.parquet row 2"]


@pytest.mark.parametrize("data", [5, "abc", [1, 2]])
def test_sounds_that_are_no_bytes_are_refused(tmp_path: Path, data: Any) -> None:
    shard(tmp_path / "hub" / "train.parquet", [{"audio": {"bytes": data, "path": "a"}, "text": "Rain"}])
    with pytest.raises(DataError, match=r"train\.parquet: column 'audio' has bytes of type .*; expected binary\."):
        import_folder(tmp_path / "hub", tmp_path / "out")


def test_columns_of_another_type_are_told_by_it_and_categories_are_texts(tmp_path: Path) -> None:
    audio = pa.array([{"bytes": sound(tmp_path / "a.wav"), "path": "a.wav"}])
    for name, text in (("bytes", pa.array([b"Rain"])), ("words", pa.array(["Rain"]).dictionary_encode())):
        (tmp_path / name / "hub").mkdir(parents=True)
        pq.write_table(pa.table({"audio": audio, "text": text}), tmp_path / name / "hub" / "train.parquet")
    with pytest.raises(DataError, match=r"none of the columns text, .*; found text \(binary\)\."):
        import_folder(tmp_path / "bytes" / "hub", tmp_path / "out")
    with pytest.raises(DataError, match="column 'text' is binary; expected texts or lists of texts"):
        import_folder(tmp_path / "bytes" / "hub", tmp_path / "out", text="text")
    assert imported(tmp_path / "words" / "hub").captions == [Caption("train/a.wav#1", "train/a.wav", "Rain")]


def test_half_letters_in_keys_cost_their_row(tmp_path: Path) -> None:
    for number, name in enumerate(("a.wav", "b.wav")):
        sound(tmp_path / "hub" / name, number)
    lines = '{"file_name": "a.wav", "text": "Rain"}\n{"file_name": "b.wav", "text": "Wind", "\\ud800": 1}\n'
    (tmp_path / "hub" / "metadata.jsonl").write_text(lines)
    found = imported(tmp_path / "hub")
    assert [clip.clip_id for clip in found.clips] == ["a.wav"]
    assert [problem.where.rpartition("/")[2] for problem in found.problems] == ["metadata.jsonl line 2"]


def test_pipes_folders_and_empty_files_are_no_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    sound(folder / "train" / "a.wav")
    (folder / "train" / "metadata.jsonl").write_text('{"file_name": "a.wav", "text": "Rain"}\n')
    os.mkfifo(folder / "metadata.csv")
    (folder / "metadata.jsonl").write_text("\n")
    (folder / "x.parquet").mkdir()
    (folder / "test").mkdir()
    (folder / "test" / "metadata.csv").mkdir()
    (folder / "test" / "metadata.parquet").touch()
    found = imported(folder)
    assert [clip.clip_id for clip in found.clips] == ["train/a.wav"]
    assert [(Path(problem.where).relative_to(folder).as_posix(), problem.what[:12]) for problem in found.problems] == [
        ("metadata.csv", "not a regula"),
        ("metadata.jsonl", "holds no row"),
        ("test/metadata.parquet", "holds no row"),
    ]


@pytest.mark.parametrize("form", export.FORMS)
def test_sounds_called_like_tables_and_columns_called_like_ours_come_back(tmp_path: Path, form: str) -> None:
    names = ("metadata.parquet", "Metadata.CSV", "data/train-00000-of-00001.parquet", "metadata.parquet.wav")
    more = {"audio": "x", "clip_audio": "y", "file_name": "z", "filename": "w"}
    for number, name in enumerate(names):
        sound(tmp_path / "s.wav", number)
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "s.wav").rename(tmp_path / "made" / name)
    clips = [Clip(str(n), name, "data", more=more) for n, name in enumerate(names)]
    made = Collection(tmp_path / "made", clips, [Caption(f"{n}#1", f"{n}", "Rain") for n in range(4)])
    made.write()
    export.export(made, tmp_path / "hub", form)
    back = import_folder(tmp_path / "hub", tmp_path / "back")
    assert (plain(back), audio(back), back.problems) == (plain(made), audio(made), [])
    table = next((tmp_path / "hub" / "data").glob("*.parquet"))
    assert {"clip_clip_audio", "clip_audio", "clip_filename", "filename"} <= set(pq.read_schema(table).names)


def test_splits_are_quoted_in_the_card_and_two_never_become_one(tmp_path: Path) -> None:
    for number in range(2):
        sound(tmp_path / f"{number}.wav", number)
    for first, second in (("a b", "a_b"), ("train", "development")):
        clips = [Clip("0", "0.wav", first), Clip("1", "1.wav", second)]
        with pytest.raises(DataError, match=f"splits '{first}' and '{second}' would both be"):
            export.export(Collection(tmp_path, clips, []), tmp_path / "hub", "parquet")
    assert not (tmp_path / "hub").exists()
    clips = [Clip("0", "0.wav", "no"), Clip("1", "1.wav", "123")]
    export.export(Collection(tmp_path, clips, []), tmp_path / "hub", "parquet")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert '  - split: "no"\n    path: "data/no-*"\n  - split: "123"\n' in card


def test_vectors_with_any_byte_damaged_are_read_or_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "v.npz", id=np.array(["a", "b"]), vector=np.ones((2, 3), np.float32))
    whole = (tmp_path / "v.npz").read_bytes()
    refused = []
    for place in range(0, len(whole), 3):
        (tmp_path / "v.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:
            VectorTable.read(tmp_path / "v.npz")
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > len(whole) / 9
    assert all("v.npz: no table of vectors (" in what and "\n" not in what for what in refused)


@pytest.mark.parametrize("name", [b"plain text, no npy", b"letters"])
def test_vectors_whose_ids_are_no_texts_are_refused(tmp_path: Path, name: bytes) -> None:
    np.save(tmp_path / "id.npy", np.array([0xFFFFFFFF], np.uint32).view("<U1"))
    with zipfile.ZipFile(tmp_path / "v.npz", "w") as file:
        file.writestr("id.npy", (tmp_path / "id.npy").read_bytes() if name == b"letters" else name)
        np.save(tmp_path / "vector.npy", np.ones((1, 3), np.float32))
        file.write(tmp_path / "vector.npy", "vector.npy")
    with pytest.raises(DataError, match=r"v\.npz: .*; expected"):
        VectorTable.read(tmp_path / "v.npz")


def test_without_pyarrow_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"Install it: pip install '\.\[parquet\]' in earmark's folder"):
        audiofolder.pyarrow_module()
