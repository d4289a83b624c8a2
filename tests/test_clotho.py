from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
from worlds import clothos_files

from earmark.data import clotho
from earmark.data.clotho import Counts, from_folder, table_1
from earmark.data.collection import Collection
from earmark.errors import DataError

ODD_NAMES = (
    " led by a blank.wav",
    "double  blank.wav",
    "comma, semicolon; #1 [x].wav",
    "it&#39;s.wav",
    'say "hi".wav',
    "Bär ☃.wav",
    "x" * 129 + ".wav",
)
CLIPS = 20
SMALL = dict.fromkeys(clotho.SPLITS, Counts(CLIPS, 18, 2))


def names(split: str) -> list[str]:
    """File names of a made split; `same.wav` stands in all three."""
    return [*ODD_NAMES, "same.wav", *(f"{split} {k}.wav" for k in range(CLIPS - len(ODD_NAMES) - 1))]


def fid(split: str, k: int) -> str:
    return f"{split[0]}{k:02d}="


def tid(split: str, k: int, place: int) -> str:
    return f"{split[0]}{k:02d}-{place}="


def write(path: Path, rows: list[dict[str, object]], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def publish(source: Path, split: str) -> None:
    """Writes one split in the published layout: 20 clips, 2 rated captions of 17 clips each, 18 distinct."""
    every = list(enumerate(names(split)))
    text = [[f"{split} {k} text {place}" for place in range(1, 6)] for k, _ in every]
    meta = {
        "keywords": "rain;wind",
        "sound_id": "12",
        "start_end_samples": "[139264, 1293089]",
        "license": "http://cc/by",
    }
    write(
        source / "captions" / f"clotho_captions_{split}.csv",
        [{"file_name": name} | {f"caption_{p + 1}": text[k][p] for p in range(5)} for k, name in every],
    )
    latin = [
        {"file_name": name.encode("latin-1", "replace").decode("latin-1"), **meta, "manufacturer": "é"}
        for _, name in every
    ]
    write(source / "meta" / f"clotho_metadata_{split}.csv", latin, "iso-8859-1")
    write(
        source / "grrel" / f"{split}_audio_metadata.csv",
        [{"fid": fid(split, k), "file_name": name, **meta} for k, name in reversed(every)],
    )
    rows: list[dict[str, object]] = [
        {
            "tid": tid(split, k, p),
            "fid": fid(split, k),
            "text": "differs" if (k, p) == (3, 2) else text[k][p],
            "tokens": "['a', 'b']",
        }
        for k, _ in reversed(every)
        for p in range(5)
    ]
    write(source / "grrel" / f"{split}_text.csv", rows)
    lists = [(3, 2, list(range(17))), (17, 0, list(range(1, 18)))]
    rated = [
        {
            "tid": tid(split, own, place),
            "fid": fid(split, k),
            "fid_group": "TP" if k == own else "TN" if k == 5 else "C15",
            "rating": 100 - k,
        }
        for own, place, clips in lists
        for k in clips
    ]
    write(source / "grrel" / f"{split}_relevances.csv", rated)
    queries = [
        {
            "tid": tid(split, own, place),
            "fid_TN": fid(split, 5),
            "fid_TP": fid(split, own),
            "fid_C15": str([fid(split, k) for k in clips if k not in (own, 5)]),
        }
        for own, place, clips in lists
    ]
    write(source / "grrel" / f"{split}_queries.csv", queries)
    for name in names(split):
        (source / "audio" / split).mkdir(parents=True, exist_ok=True)
        (source / "audio" / split / name).touch()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    for split in clotho.SPLITS:
        publish(folder, split)
    return folder


def made(source: Path, tmp_path: Path) -> tuple[Collection, clotho.Report]:
    found, report = from_folder(source, tmp_path / "out", expected=SMALL)
    again = Collection.read(tmp_path / "out")
    assert again.problems == []
    again.problems = found.problems
    assert again == found
    return found, report


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def test_the_publications_are_joined(source: Path, tmp_path: Path) -> None:
    found, report = made(source, tmp_path)
    assert (found.name, found.kind, found.queries) == ("clotho", "recorded", "captions")
    assert found.splits == list(clotho.SPLITS)
    assert report.missing == []
    by_id = {clip.clip_id: clip for clip in found.clips}
    for split in clotho.SPLITS:
        for k, name in enumerate(names(split)):
            clip = by_id[fid(split, k)]
            assert (clip.split, clip.more["file_name"]) == (split, name)
            assert found.audio_path(clip) == source / "audio" / split / name
            assert clip.more["sound_id"] == ("" if name == "Bär ☃.wav" else "12")
            assert clip.more["duration_s"] == ("" if name == "Bär ☃.wav" else "26.164")
    captions = {caption.caption_id: caption for caption in found.captions}
    for split in clotho.SPLITS:
        assert captions[tid(split, 4, 1)].text == f"{split} 4 text 2"
        assert captions[tid(split, 4, 1)].clip_id == fid(split, 4)
        assert captions[tid(split, 4, 1)].more == {"text_grrel": "", "tokens": "['a', 'b']"}
    first = found.rated("validation")[0]
    assert (first.caption_id, first.clip_id, first.rating, first.group) == (tid("validation", 3, 2), "v00=", 100, "C15")


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("[0, 44100]", "1.000"),
        ("[757760,1851440]", "24.800"),
        ("", ""),
        ("[5]", ""),
        ("[5, 5]", ""),
        ("[9, 5]", ""),
        ("[1, 2, 3]", ""),
        ("[-1, 5]", ""),
        ("nan", ""),
        ("[0, 1" + "0" * 5000 + "]", ""),
    ],
)
def test_a_clips_length_is_that_of_its_samples(source: Path, tmp_path: Path, cell: str, seconds: str) -> None:
    for path in (source / "meta").iterdir():
        path.write_bytes(path.read_bytes().replace(b"[139264, 1293089]", cell.encode()))
    found, _ = made(source, tmp_path)
    assert {clip.more["duration_s"] for clip in found.clips} == {seconds, ""}


def test_texts_that_differ_are_kept_both_and_listed(source: Path, tmp_path: Path) -> None:
    found, report = made(source, tmp_path)
    captions = {caption.caption_id: caption for caption in found.captions}
    caption = captions[tid("evaluation", 3, 2)]
    assert (caption.text, caption.more["text_grrel"]) == ("evaluation 3 text 3", "differs")
    assert len(report.differing) == 3
    assert report.differing[2] == ("evaluation", caption.caption_id, "evaluation 3 text 3", "differs", True)


def test_table_1_is_counted(source: Path, tmp_path: Path) -> None:
    (source / "grrel" / "evaluation_relevances.csv").unlink()
    found, report = made(source, tmp_path)
    assert table_1(found) == report.table
    assert [row.cells() for row in report.table] == [
        ["GrRel", "graded", "18 / 2", "18 / 2", "—"],
        ["BiRel", "binary", "18 / 2", "18 / 2", "—"],
        ["SuperBiRel", "binary", "18 / 18", "18 / 18", "—"],
        ["Clotho", "binary", "20 / 100", "20 / 100", "20 / 100"],
    ]


def test_files_that_are_not_the_published_ones_are_told(source: Path, tmp_path: Path) -> None:
    found, report = made(source, tmp_path)
    assert len(report.problems) == 18
    assert all("md5 is not the published" in problem.what for problem in report.problems)
    assert found.problems == report.problems


def test_without_grrel_ids_are_split_and_name(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "grrel")
    found, report = made(source, tmp_path)
    ids = [clip.clip_id for clip in found.clips]
    assert ids == [f"{split}/{name}" for split in clotho.SPLITS for name in names(split)]
    assert found.captions[1].caption_id == "development/ led by a blank.wav#2"
    assert found.ratings == []
    assert "validation: validation_text.csv" in report.missing
    assert all(row.cells()[2:] == ["—"] * 3 for row in report.table[:3])


def test_without_clothos_tables_grrel_alone_is_taken(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "captions")
    shutil.rmtree(source / "meta")
    shutil.rmtree(source / "audio")
    found, report = made(source, tmp_path)
    assert len(found.clips) == 3 * CLIPS
    assert len(found.ratings) == 3 * 34
    assert {clip.path for clip in found.clips} == {""}
    assert (
        "evaluation: sounds (a folder evaluation/; clotho_audio_evaluation.7z is not there); every path is empty"
        in (report.missing)
    )


def test_ratings_without_the_texts_are_told(source: Path, tmp_path: Path) -> None:
    (source / "grrel" / "development_text.csv").unlink()
    found, report = made(source, tmp_path)
    assert len(found.rated("development")) == 0
    assert len(found.rated("validation")) == 34
    assert any("development: ratings, which need development_text.csv" in what for what in report.missing)
    assert found.captions[0].caption_id == "d00=#1"


def test_a_split_may_be_missing_and_sounds_may_be_too(source: Path, tmp_path: Path) -> None:
    for path in source.rglob("*validation*"):
        shutil.rmtree(path) if path.is_dir() and path.exists() else path.unlink(missing_ok=True)
    for path in list((source / "audio" / "development").iterdir())[3:]:
        path.unlink()
    (source / "clotho_audio_evaluation.7z").touch()
    shutil.rmtree(source / "audio" / "evaluation")
    found, report = made(source, tmp_path)
    assert found.splits == ["development", "evaluation"]
    assert sum(bool(clip.path) for clip in found.clips) == 3
    assert report.sounds == {"development": 3, "evaluation": 0}
    assert any(what.startswith("validation: everything") for what in report.missing)
    assert any("clotho_audio_evaluation.7z is there, but not unpacked" in what for what in report.missing)
    assert any(what.startswith("development: 3 of 20 sounds") for what in report.missing)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("captions/clotho_captions_development.csv", "19 rows; expected 20"),
        ("meta/clotho_metadata_validation.csv", "19 rows; expected 20"),
        ("grrel/evaluation_audio_metadata.csv", "19 rows; expected 20"),
        ("grrel/evaluation_text.csv", "99 rows; expected 100"),
        ("grrel/evaluation_relevances.csv", "33 rows; expected 34"),
        ("grrel/evaluation_queries.csv", "1 rows; expected 2"),
    ],
)
def test_wrong_counts_are_refused_and_nothing_is_written(source: Path, tmp_path: Path, file: str, what: str) -> None:
    path = source / file
    data = path.read_bytes()
    path.write_bytes(data[: data.rstrip().rindex(b"\n") + 1])
    with pytest.raises(DataError, match=rf"{path.name}: {what} for \w+\. Fetch it again"):
        from_folder(source, tmp_path / "out", expected=SMALL)
    assert not (tmp_path / "out").exists()
    path.write_bytes(data[: data.index(b"\n") + 1])
    with pytest.raises(DataError, match=rf"{path.name}: 0 rows"):
        from_folder(source, tmp_path / "out", expected=SMALL)


def test_wrong_counts_of_rated_clips_are_refused(source: Path, tmp_path: Path) -> None:
    edit(source / "grrel" / "validation_relevances.csv", lambda text: text.replace("v00=", "v01="))
    with pytest.raises(DataError, match="GrRel, validation: 17 rated clips and 2 rated captions; expected 18 and 2"):
        from_folder(source, tmp_path / "out", expected=SMALL)


def test_the_small_set_is_refused_against_the_published_counts(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"clotho_captions_development\.csv: 20 rows; expected 3839"):
        from_folder(source, tmp_path / "out")


@pytest.mark.case("C09", "R08")
def test_bad_ratings_and_unknown_ids_cost_their_rows(source: Path, tmp_path: Path) -> None:
    edit(
        source / "grrel" / "validation_relevances.csv",
        lambda text: text.replace("v16=,C15,84", "v16=,C15,nan", 1).replace("v10=,C15,90", "zzz=,C15,90", 1),
    )
    found, report = made(source, tmp_path)
    assert len(found.rated("validation")) == 32
    whats = [str(problem) for problem in report.problems if "md5" not in problem.what]
    assert any("validation_relevances.csv line 12: fid 'zzz=' is in no other file" in what for what in whats)
    assert any("rating 'nan'; expected a plain number 0–100" in what for what in whats)
    assert any("validation_queries.csv line 2: the list of" in what for what in whats)


def test_of_two_files_of_a_name_the_published_one_is_taken(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    path = source / "captions" / "clotho_captions_development.csv"
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(clotho.PARTS, "captions", ("clotho_captions_{}.csv", (md5, "-", "-")))  # type: ignore[arg-type]
    (source / "a copy").mkdir()
    (source / "a copy" / path.name).write_text("file_name\nx\n")
    found, _ = made(source, tmp_path)
    assert len(found.gallery("development")) == CLIPS


def test_links_to_folders_are_followed_and_circles_do_no_harm(source: Path, tmp_path: Path) -> None:
    (source / "audio").rename(tmp_path / "elsewhere")
    (source / "sounds").symlink_to(tmp_path / "elsewhere")
    (source / "grrel" / "loop").symlink_to(source)
    found, report = made(source, tmp_path)
    assert set(report.sounds.values()) == {CLIPS}
    assert all(found.audio_path(clip).is_file() for clip in found.clips)


def test_folders_that_cannot_be_used_are_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no clotho_captions_development\.csv or other published name below it"):
        from_folder(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(DataError, match="not a folder"):
        from_folder(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(DataError, match="is there already"):
        from_folder(source, source, expected=SMALL)


@pytest.fixture(scope="module")
def real(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, clotho.Report]:
    """The real texts, the ratings that are there, and six real sounds of the evaluation split."""
    place = tmp_path_factory.mktemp("clotho")
    texts = real_data / "texts"
    clothos_files(texts, place / "in")
    (place / "in" / "evaluation").symlink_to(real_data / "clotho_clips")
    found, report = from_folder(place / "in", place / "out")
    again = Collection.read(place / "out")
    assert again.problems == []
    again.problems = found.problems
    assert again == found
    return found, report


def test_real_counts_are_those_of_table_1(real: tuple[Collection, clotho.Report]) -> None:
    found, report = real
    assert [row.cells() for row in report.table] == [
        ["GrRel", "graded", "2186 / 200", "1004 / 200", "—"],
        ["BiRel", "binary", "2186 / 200", "1004 / 200", "—"],
        ["SuperBiRel", "binary", "2186 / 2186", "1004 / 1004", "—"],
        ["Clotho", "binary", "3839 / 19195", "1045 / 5225", "1045 / 5225"],
    ]
    assert len(found.ratings) == 6800
    assert sorted({rating.group for rating in found.ratings}) == ["C15", "TN", "TP"]
    texts: dict[str, set[str]] = {}
    for caption in found.captions:
        texts.setdefault(caption.text, set()).add(caption.clip_id)
    assert sum(len(clips) > 1 for clips in texts.values()) == 30


def test_real_faults_are_the_known_ones(real: tuple[Collection, clotho.Report]) -> None:
    _, report = real
    assert [sum(d.split == split for d in report.differing) for split in clotho.SPLITS] == [35, 15, 6]
    assert sum(d.rated for d in report.differing) == 4
    assert [Path(problem.where).name for problem in report.problems] == [
        f"clotho_metadata_{split}.csv" for split in clotho.SPLITS
    ]  # the rebuilt ones
    assert report.missing[2:4] == ["evaluation: evaluation_relevances.csv", "evaluation: evaluation_queries.csv"]


def test_real_names_survive(real: tuple[Collection, clotho.Report]) -> None:
    found, report = real
    file_names = [clip.more["file_name"] for clip in found.clips]
    assert sum(name.startswith(" ") for name in file_names) == 3
    assert max(map(len, file_names)) == 133
    assert len(file_names) - len(set(file_names)) == 4
    assert report.sounds["evaluation"] == 6
    there = [clip for clip in found.clips if clip.path]
    assert sorted(found.audio_path(clip).name for clip in there) == sorted(c.more["file_name"] for c in there)
    assert all(found.audio_path(clip).is_file() for clip in there)


def test_real_lengths_are_those_of_the_sounds(real: tuple[Collection, clotho.Report]) -> None:
    found, _ = real
    assert sum(bool(clip.more["duration_s"]) for clip in found.clips) == 2653 + 763 + 739
    there = [clip for clip in found.clips if clip.path and clip.more["duration_s"]]
    seconds = [soundfile.info(found.audio_path(clip)).duration for clip in there]
    assert [clip.more["duration_s"] for clip in there] == [f"{each:.3f}" for each in seconds]
    assert len(there) == 5


def test_real_ratings_are_the_proxys(real: tuple[Collection, clotho.Report], real_data: Path) -> None:
    found, _ = real
    proxy = Collection.read(real_data / "proxy")
    ours = {(r.caption_id, r.clip_id): r.rating for r in found.ratings}
    theirs = {(r.caption_id.split("~")[0], r.clip_id.split("~")[0]): r.rating for r in proxy.ratings}
    assert ours == theirs
    texts = {caption.caption_id: caption.text for caption in found.captions}
    same = [texts[caption.caption_id] == caption.text for caption in proxy.captions if caption.caption_id in texts]
    assert sum(same) > 0.99 * len(same)
