from __future__ import annotations

import csv
import json
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.data.check import Names
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.data.rows import is_blank, plain_number
from earmark.data.splits import hold_apart
from earmark.errors import DataError, Problem
from earmark.relevance import Rating


def folder(tmp_path: Path, **files: str) -> Path:
    """A collection's folder; `clips="a,,development"` becomes clips.csv with its header."""
    heads = {
        "clips": "clip_id,path,split",
        "captions": "caption_id,clip_id,text",
        "ratings": "caption_id,clip_id,rating",
    }
    root = tmp_path / "made"
    root.mkdir(parents=True, exist_ok=True)
    for name, rows in {"clips": "a,,development\nb,,evaluation", "captions": "a1,a,rain\nb1,b,wind", **files}.items():
        text = rows if name.endswith("toml") else f"{heads[name]}\n{rows}\n"
        (root / ("collection.toml" if name == "toml" else f"{name}.csv")).write_text(text, encoding="utf-8")
    return root


def told(problems: list[Problem], where: str) -> list[str]:
    return [problem.what for problem in problems if problem.where == where]


def sound(path: Path, samples: Any = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = np.sin(np.arange(1600) / 5) / 2 if samples is None else samples
    soundfile.write(path, np.asarray(wave, dtype=np.float32), 16000, subtype="FLOAT", format="WAV")


# Reading


def test_what_is_read(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        clips="a,x/a.wav,development\nb,,evaluation",
        ratings="a1,a,73.5\na1,b,0",
        toml='name = "mine"\nkind = "generated"\nqueries = "texts"\nlicence = "CC0"\n[vectors]\nclip_model = "m"\n',
    )
    found = Collection.read(root)
    assert found.clips == [Clip("a", "x/a.wav", "development"), Clip("b", "", "evaluation")]
    assert found.captions == [Caption("a1", "a", "rain"), Caption("b1", "b", "wind")]
    assert found.ratings == [Rating("a1", "a", 73.5), Rating("a1", "b", 0.0)]
    assert (found.name, found.kind, found.queries) == ("mine", "generated", "texts")
    assert found.about == {"licence": "CC0", "vectors": {"clip_model": "m"}}
    assert found.problems == []
    assert found.audio_path(found.clips[0]) == root / "x" / "a.wav"
    with pytest.raises(DataError, match=r"clips\.csv line 3: the clip has no sound file"):
        found.audio_path(found.clips[1])


def test_without_a_collection_toml_it_is_recorded_and_has_the_folders_name(tmp_path: Path) -> None:
    found = Collection.read(folder(tmp_path))
    assert (found.name, found.kind, found.queries, found.about) == ("made", "recorded", "captions", {})


@pytest.mark.parametrize(
    ("toml", "what"),
    [
        ('kind = "real"', r"kind = 'real'; expected recorded or generated or proxy"),
        ('queries = "text"', r"queries = 'text'; expected captions or texts"),
        ("name = 3", r"name = 3; expected a text in quotes"),
        ("name = ", r"not TOML"),
    ],
)
def test_a_wrong_collection_toml_is_refused(tmp_path: Path, toml: str, what: str) -> None:
    with pytest.raises(DataError, match=rf"collection\.toml: {what}"):
        Collection.read(folder(tmp_path, toml=toml))


def test_a_missing_folder_file_or_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a folder"):
        Collection.read(tmp_path / "none")
    root = folder(tmp_path)
    (root / "captions.csv").unlink()
    with pytest.raises(DataError, match=r"captions\.csv: cannot be read"):
        Collection.read(root)
    (root / "captions.csv").write_text("caption_id,clip,text\n")
    with pytest.raises(DataError, match=r"captions\.csv line 1: no column 'clip_id'; found"):
        Collection.read(root)


@pytest.mark.case("C09")
@pytest.mark.parametrize(
    "rating", ["NaN", "nan", "inf", "1e3", "1e1", '" 50 "', '"50,5"', "-1", "140", "100.01", "", "٥٠", "0x10", "5_0"]
)
def test_a_rating_that_is_none_costs_its_row(tmp_path: Path, rating: str) -> None:
    found = Collection.read(folder(tmp_path, ratings=f"a1,a,100\nb1,b,{rating}\nb1,a,0"))
    assert [r.rating for r in found.ratings] == [100.0, 0.0]
    assert len(found.problems) == 1
    assert found.problems[0].where == "ratings.csv line 3"
    assert "0–100" in found.problems[0].what


def test_the_message_of_a_wrong_scale(tmp_path: Path) -> None:
    found = Collection.read(folder(tmp_path, ratings="a1,a,140"))
    expected = "ratings.csv line 2: rating 140; expected 0–100. Check the export's scale. The row is left out."
    assert str(found.problems[0]) == expected


def test_other_columns_of_a_rating_are_checked_too(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "ratings.csv").write_text(
        "caption_id,clip_id,rating,group,rater_id,played_s,stratum,probability,note\n"
        "a1,a,1,TP,r,2.5,top,0.25,x\na1,b,1,,,,,,\na1,a,1,,,soon,,,\na1,a,1,,,,,0,\na1,a,1,,,,,1.5,\n"
    )
    found = Collection.read(root)
    assert found.ratings == [
        Rating("a1", "a", 1.0, "TP", "r", 2.5, "top", 0.25, {"note": "x"}),
        Rating("a1", "b", 1.0, more={"note": ""}),
    ]
    assert [problem.where for problem in found.problems] == [f"ratings.csv line {line}" for line in (4, 5, 6)]


@pytest.mark.case("R08")
def test_dangling_ids_are_listed_and_left_out(tmp_path: Path) -> None:
    found = Collection.read(folder(tmp_path, captions="a1,a,rain\nc1,c,hail", ratings="a1,a,5\nc1,a,5\na1,c,5\nzz,a,5"))
    assert [caption.caption_id for caption in found.captions] == ["a1"]
    assert [(r.caption_id, r.clip_id) for r in found.ratings] == [("a1", "a")]
    assert told(found.problems, "captions.csv line 3") == ["clip 'c' is not in clips.csv. The row is left out."]
    assert told(found.problems, "ratings.csv line 3") == ["caption 'c1' is not in captions.csv. The row is left out."]
    assert told(found.problems, "ratings.csv line 4") == ["clip 'c' is not in clips.csv. The row is left out."]
    assert len(found.problems) == 4


def test_repeated_ids_cost_the_later_row(tmp_path: Path) -> None:
    found = Collection.read(folder(tmp_path, clips="a,,development\na,,evaluation", captions="k,a,rain\nk,a,wind"))
    assert [clip.split for clip in found.clips] == ["development"]
    assert [caption.text for caption in found.captions] == ["rain"]
    assert "stands in line 2 already" in told(found.problems, "clips.csv line 3")[0]
    assert "stands in line 2 already" in told(found.problems, "captions.csv line 3")[0]


BLANK = ("", " ", '"\n"', "\u200b", " \u2060\ufeff", "\u3000", "\u3164", "\u2800\uffa0", "\u0301", "\ufe0f", "\x00")


@pytest.mark.parametrize("text", BLANK)
def test_a_blank_text_costs_its_row(tmp_path: Path, text: str) -> None:
    assert is_blank(text.strip('"'))
    found = Collection.read(folder(tmp_path, captions=f"a1,a,rain\na2,a,{text}"))
    assert [caption.caption_id for caption in found.captions] == ["a1"]
    assert told(found.problems, "captions.csv line 3") == ["the text is blank; expected words. The row is left out."]


@pytest.mark.parametrize("text", ["雨の音", "🌧", "صوت", "a", "́e", "\u200bx", "❤\ufe0f", "ㅤ가", "⠓", "हा"])
def test_a_text_in_any_script_is_a_text(tmp_path: Path, text: str) -> None:
    assert Collection.read(folder(tmp_path, captions=f"a1,a,{text}")).captions[0].text == text


def test_blank_ids_and_splits_cost_their_rows(tmp_path: Path) -> None:
    found = Collection.read(folder(tmp_path, clips="a,,development\n ,,development\nb,,\n", captions="a1,a,x\n,a,x"))
    assert [clip.clip_id for clip in found.clips] == ["a"]
    assert [problem.where for problem in found.problems] == [
        "clips.csv line 3",
        "clips.csv line 4",
        "captions.csv line 3",
    ]


# Writing

NAME = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zs", "Zl", "Zp")), min_size=1, max_size=8)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
WORDS = TEXT.filter(lambda text: not is_blank(text))
MORE = st.dictionaries(NAME.map("x{}".format), TEXT, max_size=2)
SHARE = st.floats(0, 1, exclude_min=True)


@st.composite
def collections(draw: st.DrawFn) -> dict[str, Any]:
    ids = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    keys = sorted(draw(MORE))
    more = st.fixed_dictionaries(dict.fromkeys(keys, TEXT))
    clips = [Clip(i, draw(TEXT), draw(WORDS), draw(TEXT), draw(more)) for i in ids]
    caption_ids = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    captions = [Caption(i, draw(st.sampled_from(ids)), draw(WORDS), draw(more)) for i in caption_ids]
    rating = st.builds(
        Rating,
        st.sampled_from(caption_ids),
        st.sampled_from(ids),
        st.floats(0, 100).map(abs),
        TEXT,
        TEXT,
        st.none() | st.floats(0, 1e9).map(abs),
        TEXT,
        st.none() | SHARE,
        more,
    )
    about = draw(st.dictionaries(NAME.map("y{}".format), st.integers(0, 9) | TEXT, max_size=2))
    return {"clips": clips, "captions": captions, "ratings": draw(st.lists(rating, max_size=4)), "about": about}


@given(made=collections(), name=WORDS, kind=st.sampled_from(["recorded", "generated", "proxy"]))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)
def test_what_is_written_is_read_back_exactly(
    made: dict[str, Any], name: str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "round" / "trip"
    written = Collection(root, name=name, kind=kind, queries="texts", **made)
    written.write()
    assert Collection.read(root) == written


def test_a_new_folder_appears_whole_and_ratings_that_are_gone_leave_no_file(tmp_path: Path) -> None:
    root = tmp_path / "new"
    found = Collection(root, [Clip("a", "", "development")], [Caption("k", "a", "rain")], [Rating("k", "a", 5)])
    found.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
    assert sorted(path.name for path in root.iterdir()) == [
        "captions.csv", "clips.csv", "collection.toml", "ratings.csv"
    ]  # fmt: skip
    found.ratings = []
    found.write()
    assert not (root / "ratings.csv").exists()
    assert Collection.read(root) == found


def test_written_elsewhere_it_leads_to_the_same_sounds_and_takes_its_vectors_along(tmp_path: Path) -> None:
    root = folder(tmp_path, clips="a,x/a.wav,development\nb,,evaluation")
    VectorTable(("b",), np.ones((1, 3), dtype=np.float32)).write(root / "clip_vectors.npz")
    found = Collection.read(root)
    found.write(tmp_path / "deep" / "er" / "copy")
    copy = Collection.read(tmp_path / "deep" / "er" / "copy")
    assert copy.clips[0].path == "../../../made/x/a.wav"
    assert [copy.audio_path(copy.clips[0])] == [found.audio_path(found.clips[0])]
    assert copy.clips[1] == found.clips[1]
    assert copy.clip_vectors is not None
    assert copy.clip_vectors.rows(["b"]).tolist() == [[1, 1, 1]]


# Splits, queries, relevance


@pytest.fixture
def mixed() -> Collection:
    clips = [
        Clip(i, "", split)
        for i, split in [("a", "development"), ("b", "development"), ("c", "evaluation"), ("a~", "development-lists")]
    ]
    captions = [
        Caption("a1", "a", "rain"),
        Caption("b1", "b", "rain"),
        Caption("b2", "b", "wind"),
        Caption("c1", "c", "rain"),
        Caption("t1", "a~", "rain"),
    ]
    ratings = [Rating("t1", "a~", 80), Rating("t1", "b", 20), Rating("b1", "a", 50), Rating("c1", "c", 100)]
    return Collection(Path("none"), clips, captions, ratings)


def ids(items: list[Any]) -> list[str]:
    return [getattr(item, "caption_id", None) or item.clip_id for item in items]


def test_a_split_is_exactly_its_clips_and_their_captions(mixed: Collection) -> None:
    assert mixed.splits == ["development", "evaluation"]
    assert ids(mixed.gallery("development")) == ["a", "b"]
    assert ids(mixed.gallery()) == ["a", "b", "c"]
    assert ids(mixed.query_captions("development")) == ["a1", "b1", "b2"]
    assert ids(mixed.rated("development")) == ["t1", "t1", "b1"]
    assert ids(mixed.rated("evaluation")) == ["c1"]
    with pytest.raises(DataError, match=r"no clips of split 'evalution'.*Did you mean 'evaluation'"):
        mixed.gallery("evalution")


def test_texts_count_once_where_the_collection_says_so(mixed: Collection) -> None:
    mixed.queries = "texts"
    assert ids(mixed.query_captions("development")) == ["a1", "b2"]
    assert ids(mixed.query_captions()) == ["a1", "b2"]  # one gallery of all clips


def test_clips_of_the_split_that_bear_the_same_text_are_relevant(mixed: Collection) -> None:
    everything = mixed.relevance("captions")
    values, judged = everything.block(["a1", "b1", "b2", "c1", "t1"], ["a", "b", "c", "a~"])
    assert values.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert judged.all()
    assert mixed.relevance("captions", "evaluation").clip_ids == ["c"]
    values, judged = mixed.relevance("ratings", "development").block(["t1", "b1"], ["a~", "b", "a"])
    assert values.round(6).tolist() == [[np.float32(0.8), np.float32(0.2), 0], [0, 0, 0.5]]
    assert judged.tolist() == [[True, True, False], [False, False, True]]
    with pytest.raises(DataError, match="expected 'captions' or 'ratings'"):
        mixed.relevance("both")  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=40),
    share=st.floats(0.02, 0.98),
    seed=st.integers(0, 3),
    alone=st.booleans(),
)
def test_whole_groups_are_held_apart(sizes: list[int], share: float, seed: int, alone: bool) -> None:
    clips = [Clip(f"{g}-{k}", "", "development", f"g{g}") for g, size in enumerate(sizes) for k in range(size)]
    clips = [replace(clip, group="") for clip in clips] if alone else clips
    apart = hold_apart(clips, share, seed)
    assert 0 < len(apart) < len(clips)
    assert apart == hold_apart(clips, share, seed)
    assert alone or {clip.group for clip in clips if clip.clip_id in apart}.isdisjoint(
        clip.group for clip in clips if clip.clip_id not in apart
    )
    assert abs(len(apart) - share * len(clips)) <= (1 if alone else max(sizes))


@pytest.mark.parametrize("share", [0.0, 1.0, -1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(DataError, match="expected more than 0 and less than 1"):
        hold_apart([Clip("a", "", "s"), Clip("b", "", "s")], share)


def test_one_group_cannot_be_held_apart() -> None:
    with pytest.raises(DataError, match="expected two groups at least"):
        hold_apart([Clip("a", "", "s", "g"), Clip("b", "", "s", "g")], 0.5)


# Vectors


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_vectors_of_any_width_are_read_as_float32(tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "v.npz", id=np.array(["雨", "b"]), vector=np.array([[1.5, 2], [3, 4]], dtype=kind))
    table = VectorTable.read(tmp_path / "v.npz")
    assert table.vectors.dtype == np.float32
    assert table.rows(["b", "雨", "b"]).tolist() == [[3, 4], [1.5, 2], [3, 4]]
    with pytest.raises(DataError, match=r"v\.npz: no vector for 'c' \(1 of 2 ids have none\)"):
        table.rows(["b", "c"])
    table.write(tmp_path / "w.npz")
    assert VectorTable.read(tmp_path / "w.npz").ids == ("雨", "b")


@pytest.mark.parametrize(
    "arrays",
    [
        {"id": np.array(["a"])},
        {"id": np.array(["a"]), "vector": np.ones(1)},
        {"id": np.array(["a"]), "vector": np.ones((2, 3))},
        {"id": np.array(["a"]), "vector": np.array([["x"]])},
        {"id": np.array(["a"], dtype=object), "vector": np.ones((1, 3))},
    ],
)
def test_other_arrays_are_refused_and_nothing_is_unpickled(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(DataError, match=r"v\.npz: .*; expected"):
        VectorTable.read(tmp_path / "v.npz")


@pytest.mark.parametrize("data", [b"", b"not an npz", b"PK\x03\x04cut short"])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "v.npz").write_bytes(data)
    with pytest.raises(DataError, match="no table of vectors"):
        VectorTable.read(tmp_path / "v.npz")


# Check


def test_a_sound_collection_has_no_problems(tmp_path: Path) -> None:
    root = folder(tmp_path, clips="a,x/a.wav,development\nb,b.wav,evaluation")
    sound(root / "x" / "a.wav")
    sound(root / "b.wav")
    seen: list[tuple[int, int]] = []
    assert Collection.read(root).check(progress=lambda done, total: seen.append((done, total))) == []
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.case("A29", "C06")
@pytest.mark.parametrize(
    ("wanted", "there", "how"),
    [
        ("Kick.wav", "kick.WAV", "upper and lower case"),
        ("0002.wav", "00002.wav", "the padding of numbers"),
        (unicodedata.normalize("NFC", "Bär ☃.wav"), unicodedata.normalize("NFD", "Bär ☃.wav"), "Unicode form"),
        ("rain.wav\n", "rain.wav", "blanks or marks"),
        ("it&#39;s.wav", "it's.wav", "blanks or marks"),
        ("deep\\down.wav", "deep/down.wav", "its slashes"),
        ("Deep/down\\kick.wav", "deep/down/kick.wav", "upper and lower case"),
        ("rain_shwer.wav", "rain_shower.wav", "is the nearest name"),
    ],
)
def test_a_missing_file_is_told_with_the_nearest_name(tmp_path: Path, wanted: str, there: str, how: str) -> None:
    root = folder(tmp_path, clips=f'a,"{wanted}",development\nb,b.wav,evaluation')
    sound(root / there)
    sound(root / "b.wav")
    problems = Collection.read(root).check()
    assert [problem.where for problem in problems] == ["clips.csv line 2"]
    assert f"no file {wanted!r}; {there!r} is there and " in problems[0].what
    assert how in problems[0].what


@pytest.mark.case("A29")
def test_names_in_any_script_are_found_and_bytes_that_are_no_utf8_are_told(tmp_path: Path) -> None:
    root = folder(tmp_path, clips="a,雨/☃ 🌧.wav,development\nb,f?.wav,evaluation")
    sound(root / "雨" / "☃ 🌧.wav")
    sound(root / "x.wav")
    (root / "x.wav").rename(root / os.fsdecode(b"f\xff.wav"))
    problems = Collection.read(root).check()
    assert [problem.where for problem in problems] == ["clips.csv line 3"]
    assert "a name that is not UTF-8" in problems[0].what
    json.dumps([str(problem) for problem in problems]).encode()


@pytest.mark.case("A31", "A33")
def test_one_bad_sound_costs_that_one(tmp_path: Path) -> None:
    names = [f"{i}.wav" for i in range(5)]
    root = folder(
        tmp_path,
        clips="\n".join(f"{name},{name},development" for name in (*names, "._0.wav", "text.wav")),
        captions="\n".join(f"{name}#1,{name},words" for name in (*names, "._0.wav", "text.wav")),
    )
    for name in names:
        sound(root / name)
    (root / "._0.wav").write_bytes(b"\x00\x05\x16\x07" + bytes(60))
    (root / "text.wav").write_text("no sound at all")
    problems = Collection.read(root).check()
    assert [problem.where for problem in problems] == ["clips.csv line 7", "clips.csv line 8"]
    assert "a side file of macOS" in problems[0].what
    assert problems[1].what.startswith("text.wav: ")


@pytest.mark.case("A01", "A06")
def test_odd_sounds_are_told_by_line(tmp_path: Path) -> None:
    root = folder(tmp_path, clips="a,a.wav,development\nb,b.wav,evaluation")
    sound(root / "a.wav", [])
    sound(root / "b.wav", [0.1, float("nan")] * 800)
    problems = Collection.read(root).check()
    assert {problem.where for problem in problems} == {"clips.csv line 2", "clips.csv line 3"}
    assert any(word in told(problems, "clips.csv line 2")[0] for word in ("empty", "0 samples"))
    assert "finite" in " ".join(told(problems, "clips.csv line 3"))


@pytest.mark.case("C06")
def test_when_no_sound_is_there_that_is_told_first(tmp_path: Path) -> None:
    problems = Collection.read(folder(tmp_path, clips="a,a.wav,development\nb,b.wav,evaluation")).check()
    assert problems[0].what.startswith("none of the 2 sound files is there")
    assert len(problems) == 3


@pytest.mark.case("C07")
def test_files_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    root = folder(tmp_path, clips="a,a/kick.wav,development\nb,b/kick.wav,evaluation")
    sound(root / "a" / "kick.wav")
    sound(root / "b" / "kick.wav", np.linspace(-0.5, 0.5, 1600))
    assert Collection.read(root).check() == []


def test_check_tells_every_other_fault(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        clips="a,a.wav,development\nb,a.wav,evaluation\nc,,evaluation\nd,/etc/hostname,evaluation\ne,e.wav,bare",
        captions="a1,a,rain\nb1,b,wind\nc1,c,hail",
        ratings="a1,b,3",
    )
    (root / "ratings.csv").write_text("caption_id,clip_id,rating,rater_id\na1,b,3,r\na1,a,4,r\na1,a,5,r\nb1,b,9,\n")
    sound(root / "a.wav")
    sound(root / "e.wav")
    problems = Collection.read(root).check(sounds=False)
    assert told(problems, "clips.csv line 3") == ["the same sound as clips.csv line 2; expected each file once."]
    assert told(problems, "clips.csv line 4") == ["the clip has neither a sound file nor a vector."]
    assert told(problems, "ratings.csv line 2") == ["a caption of 'development' with a clip of 'evaluation'."]
    assert told(problems, "ratings.csv line 4") == ["(a1, a) is rated more than once by 'r'."]
    assert "1 of 3 clips of 'evaluation' have no caption, this one first." in told(problems, "clips.csv line 5")
    assert told(problems, "clips.csv line 6") == ["1 of 1 clips of 'bare' have no caption, this one first."]


def test_a_group_in_two_splits_is_told_but_lists_belong_to_their_split(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "clips.csv").write_text(
        "clip_id,path,split,group\na,,development,g\na~,,development-lists,g\nb,,evaluation,g\n"
    )
    np.savez(root / "clip_vectors.npz", id=np.array(["a", "a~", "b"]), vector=np.ones((3, 2)))
    problems = Collection.read(root).check()
    assert [problem.where for problem in problems] == ["clips.csv line 4"]
    assert problems[0].what.startswith("group 'g' stands in 'development' and in 'evaluation'")


def test_faults_of_vectors_are_told_by_id(tmp_path: Path) -> None:
    root = folder(tmp_path, clips="a,,development\nb,,evaluation\nc,,evaluation", captions="a1,a,x\nb1,b,y\nc1,c,z")
    vectors = np.array([[1, 2], [1, np.nan], [0, 0], [1, 1]], dtype=np.float64)
    np.savez(root / "clip_vectors.npz", id=np.array(["a", "b", "a", "other"]), vector=vectors)
    (root / "caption_vectors.npz").write_bytes(b"broken")
    problems = Collection.read(root).check()
    assert told(problems, "clip_vectors.npz 'a'")[0].startswith("stands 2 times")
    assert told(problems, "clip_vectors.npz 'b'")[0].startswith("holds values that are not finite")
    assert told(problems, "clip_vectors.npz 'a'")[1].startswith("is all zeros")
    assert told(problems, "clip_vectors.npz") == ["1 ids are not in the collection, 'other' first."]
    assert told(problems, "clips.csv line 4")[0].startswith("'c' has no vector in clip_vectors.npz")
    assert told(problems, "caption_vectors.npz")[0].startswith("no table of vectors")
    assert len(problems) == 6


def test_names_that_no_file_can_have_are_missing_and_no_error(tmp_path: Path) -> None:
    root = folder(tmp_path, clips=f"a,{'x' * 300}.wav,development\nb,{'../' * 30}nowhere.wav,evaluation")
    problems = Collection.read(root).check()
    assert [problem.where for problem in problems] == ["clips.csv", "clips.csv line 2", "clips.csv line 3"]


def test_nearest_names_are_found_fast_among_many(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"take {number:05d}.wav").touch()
    names = Names(guesses=2)
    assert names.nearest(tmp_path, ["Take 17.WAV"]) == "take 00017.wav"
    assert names.nearest(tmp_path, ["tak 00017.wav"]) == "take 00017.wav"
    assert names.nearest(tmp_path, ["something else"]) is None
    assert names.nearest(tmp_path, ["tke 00018.wav"]) is None  # no guess is left


@pytest.mark.parametrize(("text", "value"), [("50", 50), ("50.5", 50.5), (".5", 0.5), ("50.", 50), ("050", 50)])
def test_plain_numbers(text: str, value: float) -> None:
    assert plain_number(text, 0, 100) == value


# Real collections


def test_the_proxy_collection_is_whole(real_data: Path) -> None:
    found = Collection.read(real_data / "proxy")
    assert (found.name, found.kind, found.splits) == ("clotho-proxy", "proxy", ["development", "validation"])
    assert found.check() == []
    sizes: Mapping[str, tuple[int, ...]] = {
        split: (len(found.gallery(split)), len(found.query_captions(split)), len(found.rated(split)))
        for split in found.splits
    }
    assert sizes == {"development": (3839, 11517, 3400), "validation": (1045, 3135, 3400)}
    assert found.clip_vectors is not None
    assert found.clip_vectors.rows([clip.clip_id for clip in found.clips]).shape == (5042, 256)


def test_captions_in_many_scripts_survive(real_data: Path, tmp_path: Path) -> None:
    with (real_data / "texts" / "tuxpaint_multilingual.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    captions = [Caption(str(number), "c", row["text"], {"lang": row["lang"]}) for number, row in enumerate(rows)]
    written = Collection(tmp_path / "t", [Clip("c", "", "development")], captions)
    written.write()
    assert Collection.read(tmp_path / "t") == written
    assert len({caption.more["lang"] for caption in captions}) > 50


@pytest.mark.case("A33", "A35")
def test_odd_files_are_told_in_one_line_each_and_cost_no_neighbour(real_data: Path) -> None:
    names = [*sorted(path.name for path in (real_data / "odd").iterdir()), "../clotho_clips/Flipping Pages.wav"]
    clips = [Clip(name, name, "development") for name in names]
    found = Collection(real_data / "odd", clips, [Caption(name, name, "words") for name in names])
    problems = found.check()
    assert all("\n" not in str(problem) for problem in problems)
    told_of = {problem.where.split("'")[1] for problem in problems}
    assert "hound__crash-e879de4eb4d206c59e21f0e01def16457af80fdc.wav" in told_of
    assert {"aiff__kick.aif", names[-1]}.isdisjoint(told_of)
