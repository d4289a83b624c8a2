"""What a table says of files joins their words, each row at the file that it means; a changed table is no new sound."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from indices import random_run, write_sound

from earmark.errors import DataError
from earmark.search import index as module
from earmark.search import reading
from earmark.search.described import read, said_of, words_table
from earmark.search.fields import Field
from earmark.search.index import build
from earmark.search.store import ABOUT, DESCRIBED, Store, WordsTable, path_of, read_about, windows_schema
from earmark.search.words import MOST_TAGS, MOST_WORDS, Said, carried

COMMAND = [sys.executable, "-m", "earmark", "index"]


def table(path: Path, rows: list[list[str]], header: tuple[str, ...] = ("path", "text"), **how: str) -> Path:
    """A CSV of these rows."""
    with path.open("w", encoding=how.get("encoding", "utf-8"), newline="") as file:
        csv.writer(file, delimiter=how.get("delimiter", ",")).writerows([header, *rows])
    return path


def found(folder: Path, values: list[str], files: list[str], bases: tuple[str, ...] = ("/s",)) -> dict[str, str]:
    """Which of the files each of these paths means, or what is told of its row."""
    made = read(words_table(table(folder / "t.csv", [[value, value or "-"] for value in values])))
    try:
        said, problems = said_of(made, map(Path, files), map(Path, bases))
    except DataError as error:
        return {"": str(error)}
    lines = {str(row.line): row.cells["path"] for row in made.rows}
    told = {lines[problem.where.rpartition(" ")[2]]: problem.what for problem in problems}
    return told | {text: str(path) for path, each in said.items() for text in each.texts}


# Which file is meant


@pytest.mark.parametrize(
    ("value", "file"),
    [
        ("a/kick.wav", "/s/a/kick.wav"),
        ("./a//kick.wav", "/s/a/kick.wav"),
        ("/s/b/kick.wav", "/s/b/kick.wav"),
        ("b\\kick.wav", "/s/b/kick.wav"),
        ("/Volumes/FX/b/kick.wav", "/s/b/kick.wav"),
        ("D:\\FX\\b\\kick.wav", "/s/b/kick.wav"),
        ("snare.wav", "/s/a/snare.wav"),
        ("elsewhere/snare.wav", "/s/a/snare.wav"),
    ],
)
def test_a_row_means_a_file_by_its_path_or_its_end(tmp_path, value, file):
    assert found(tmp_path, [value], ["/s/a/kick.wav", "/s/b/kick.wav", "/s/a/snare.wav"]) == {value: file}


def test_a_bare_name_and_a_path_of_another_folder_may_mean_one_file(tmp_path):
    told = found(tmp_path, ["snare.wav", "elsewhere/snare.wav"], ["/s/a/snare.wav"])
    assert set(told.values()) == {"/s/a/snare.wav"}


def test_paths_start_from_the_tables_folder_and_from_each_folder_that_was_indexed(tmp_path):
    near = str(tmp_path / "a" / "x.wav")
    files = [near, "/s/b/x.wav", "/t/c/x.wav"]
    assert found(tmp_path, ["a/x.wav", "b/x.wav", "c/x.wav"], files, ("/s", "/t")) == {
        "a/x.wav": near,
        "b/x.wav": "/s/b/x.wav",
        "c/x.wav": "/t/c/x.wav",
    }


@pytest.mark.case("C07")
def test_a_name_that_several_files_bear_is_told(tmp_path):
    told = found(tmp_path, ["kick.wav", "c/kick.wav", "snare.wav"], ["/s/a/kick.wav", "/s/b/kick.wav", "/s/snare.wav"])
    expected = "2 files are called 'kick.wav' ('/s/a/kick.wav', '/s/b/kick.wav'); expected a path with its folder."
    assert told["kick.wav"] == told["c/kick.wav"] == f"{expected} The row is left out."
    assert told["snare.wav"] == "/s/snare.wav"
    told = found(tmp_path, ["x.wav", "a/y.wav"], ["/s/x.wav", "/t/x.wav", "/s/a/y.wav"], ("/s", "/t"))
    assert told["x.wav"].startswith("2 files are called 'x.wav'")


def test_a_file_that_is_named_by_its_path_is_not_meant_by_paths_of_other_folders(tmp_path):
    files = ["/s/a/kick.wav", "/s/x/b/rain.wav"]
    told = found(tmp_path, ["a/kick.wav", "z/kick.wav", "b/rain.wav", "c/rain.wav"], files)
    assert (told["a/kick.wav"], told["b/rain.wav"]) == tuple(files)
    assert told["z/kick.wav"] == (
        "no file 'z/kick.wav' is indexed; 'a/kick.wav' is there and is the nearest name. The row is left out."
    )
    assert told["c/rain.wav"].startswith("no file 'c/rain.wav' is indexed; 'b/rain.wav' is there")


def test_of_paths_of_other_folders_the_one_that_ends_most_alike_is_meant(tmp_path):
    told = found(tmp_path, ["/old/z/b/kick.wav", "/old/a/kick.wav", "k.wav"], ["/s/b/kick.wav", "/s/k.wav"])
    assert told["/old/z/b/kick.wav"] == "/s/b/kick.wav"
    assert told["/old/a/kick.wav"].startswith("no file '/old/a/kick.wav' is indexed")
    told = found(tmp_path, ["/old/a/kick.wav", "/old/z/kick.wav", "k.wav"], ["/s/b/kick.wav", "/s/k.wav"])
    assert told["/old/a/kick.wav"] == told["/old/z/kick.wav"]
    assert told["/old/a/kick.wav"].startswith("2 paths of the table may mean '/s/b/kick.wav'")


@pytest.mark.case("C06")
def test_names_that_differ_a_little_are_told_with_the_nearest(tmp_path):
    files = ["/s/a/Rain.wav", "/s/" + unicodedata.normalize("NFD", "café.wav"), "/s/00002.wav", "/s/there.wav"]
    told = found(tmp_path, ["a/rain.wav", "café.wav", "0002.wav", "xyz", "\u200b", "there.wav"], files)
    assert "'a/Rain.wav' is there and differs in upper and lower case" in told["a/rain.wav"]
    assert "differs in Unicode form (NFC or NFD)" in told["café.wav"]
    assert "'00002.wav' is there and differs in the padding of numbers" in told["0002.wav"]
    assert told["xyz"] == "no file 'xyz' is indexed. The row is left out."
    assert told["\u200b"].startswith("path '\\u200b'; expected that of a sound")


@given(st.lists(st.text(alphabet="ab/\\.\0é:", max_size=8), min_size=1, max_size=6))
def test_whatever_stands_in_a_column_of_paths_is_a_file_or_a_problem(values):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = read(words_table(table(Path(folder) / "t.csv", [["a", "x"], *([value, "x"] for value in values)])))
        said, problems = said_of(made, map(Path, ["/s/a", "/s/b/a", "/s/b/b"]), [Path("/s")])
    assert len(problems) <= len(values)
    assert Path("/s/a") in said


# What is taken from it


@pytest.mark.case("C02", "C03", "C10")
def test_any_separator_and_encoding_and_the_usual_columns_are_taken(tmp_path):
    rows = [["a.wav", "Grüße; laut", "1"], ["b.wav", "", "2"]]
    path = table(tmp_path / "t.csv", rows, ("Filename", "Description", "take"), delimiter=";", encoding="cp1252")
    made = read(words_table(path, encoding="cp1252"))
    assert (made.path, made.texts, made.tags) == ("Filename", ("Description",), ())
    said, problems = said_of(made, [tmp_path / "a.wav", tmp_path / "b.wav"], [])
    assert said == {tmp_path / "a.wav": Said(("Grüße; laut",)), tmp_path / "b.wav": Said()}
    assert problems == []
    with pytest.raises(DataError, match="not utf-8"):
        read(words_table(path))


def test_rows_of_a_file_add_up_and_bad_rows_are_told_by_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "\ufefffile,title,keywords,text\na.wav,One,k,first\na.wav\nb.wav,,,\na.wav,One,l,second\nc.wav,x,,\n"
    )
    said, problems = said_of(read(words_table(path)), [tmp_path / "a.wav", tmp_path / "b.wav"], [])
    assert said[tmp_path / "a.wav"] == Said(("first", "One", "k", "second", "l"))
    assert [each.where.rpartition(" ")[2] for each in problems] == ["3", "6"]
    assert problems[0].what.startswith("1 cells; expected 4")
    said, _ = said_of(read(words_table(path, texts=["title"], tags=["keywords"])), [tmp_path / "a.wav"], [])
    assert said[tmp_path / "a.wav"] == Said(("One",), ("k", "l"))


def test_missing_columns_are_refused_with_those_that_are_there(tmp_path):
    path = table(tmp_path / "t.csv", [["a.wav", "x"]], ("sound", "says"))
    with pytest.raises(DataError, match=r"no column 'path' or .*; found 'sound', 'says'\. Name one by --path\."):
        read(words_table(path))
    with pytest.raises(DataError, match=r"no column 'text' or .*; found 'sound', 'says'\. Name one by --text\."):
        read(words_table(path, path="sound"))
    with pytest.raises(DataError, match=r"no column 'what'; found 'sound', 'says'\."):
        read(words_table(path, path="sound", texts=["what"]))
    assert read(words_table(path, path="sound", tags=["says"])).texts == ()


def test_the_tables_words_and_tags_are_not_cut_away_by_the_files_own(tmp_path, monkeypatch):
    from earmark.search import words

    long = [Field("comment", "long " * 2000), Field("keywords", ",".join(f"tag {n}" for n in range(99)))]
    monkeypatch.setattr(words, "fields", lambda _: iter(long))
    path = tmp_path / "x.wav"
    own, both = carried(path, tmp_path), carried(path, tmp_path, Said(("A  creaky\ndoor", "X"), ("Wood; Old/Rusty",)))
    assert both.words == f"{own.words}; A creaky door; Wood; Old/Rusty"  # X stands in the file's name
    assert both.tags == (*own.tags, "wood", "old", "rusty")
    many = carried(path, tmp_path, Said(("word " * 9999,), tuple(f"more {n}" for n in range(99))))
    assert MOST_WORDS - 10 < len(own.words) <= MOST_WORDS
    assert len(own.tags) == MOST_TAGS
    assert len(many.words) <= 2 * MOST_WORDS + 2
    assert len(many.tags) == 2 * MOST_TAGS


# In an index


@pytest.fixture(scope="module")
def run(tmp_path_factory, sentence_encoder) -> Path:
    return random_run(tmp_path_factory.mktemp("model") / "run")


@pytest.fixture
def sounds(tmp_path) -> Path:
    """Three short sounds in two folders, and a table of two of them."""
    for seed, name in enumerate(("a/one.wav", "a/two.wav", "b/one.wav")):
        write_sound(tmp_path / "sounds" / name, 0.5 + 0.2 * seed, seed=seed)
    table(tmp_path / "t.csv", [["a/one.wav", "thunder"], ["two.wav", "rain"]])
    return tmp_path / "sounds"


@pytest.fixture
def index(tmp_path, sounds, run) -> Path:
    build([sounds], tmp_path / "index", model=str(run), words=words_table(tmp_path / "t.csv"))
    return tmp_path / "index"


def rows_of(index: Path) -> dict[str, dict]:
    """First windows by the last two parts of the path."""
    rows = Store.open(index).windows.to_arrow().to_pylist()
    return {"/".join(path_of(row).parts[-2:]): row for row in rows if row["window"] == 0}


def words_of(index: Path) -> dict[str, str]:
    return {name: row["words"] for name, row in rows_of(index).items()}


def no_reading(monkeypatch) -> None:
    """From now on nothing is decoded, and no content is looked at."""

    def refused(*_):
        raise AssertionError("a file was read")

    monkeypatch.setattr(reading, "read_file", refused)
    monkeypatch.setattr(module, "content_of", refused)


FIRST = {"a/one.wav": "one; sounds; a; thunder", "a/two.wav": "two; sounds; a; rain", "b/one.wav": "one; sounds; b"}


def test_the_tables_words_join_the_files_own_and_the_table_is_remembered(index, sounds, tmp_path, monkeypatch):
    assert words_of(index) == FIRST
    assert read_about(index).words == WordsTable(str(tmp_path / "t.csv"))
    version = Store.open(index).windows.version
    no_reading(monkeypatch)
    built = build([], index)
    assert (built.unchanged, built.reworded, built.described) == (3, 0, 2)
    assert Store.open(index).windows.version == version


def test_a_changed_table_changes_words_and_tags_of_its_files_alone(index, sounds, tmp_path, monkeypatch):
    before = rows_of(index)
    no_reading(monkeypatch)
    later = table(
        tmp_path / "t.csv", [["a/one.wav", "thunder", ""], ["b/one.wav", "door", "Wood, old"]], ("path", "text", "kind")
    )
    built = build([], index)
    assert (built.unchanged, built.reworded, built.touched) == (1, 2, 0)
    assert words_of(index) == {**FIRST, "a/two.wav": "two; sounds; a", "b/one.wav": "one; sounds; b; door"}
    built = build([], index, words=words_table(later, tags=["kind"]))
    assert (built.unchanged, built.reworded) == (2, 1)
    after = rows_of(index)
    assert (after["b/one.wav"]["words"], after["b/one.wav"]["tags"]) == (
        "one; sounds; b; door; Wood, old",
        ["wood", "old"],
    )
    for name, row in before.items():
        same = row.keys() - {"words", "tags", DESCRIBED}
        assert {key: after[name][key] for key in same} == {key: row[key] for key in same}


def test_the_table_is_forgotten_and_its_words_go(index, monkeypatch):
    no_reading(monkeypatch)
    built = build([], index, words=WordsTable())
    assert (built.unchanged, built.reworded, built.table) == (1, 2, None)
    assert words_of(index) == {name: "; ".join(words.split("; ")[:3]) for name, words in FIRST.items()}
    assert "words" not in (index / ABOUT).read_text()
    assert build([], index).unchanged == 3


def test_a_file_that_comes_later_can_make_a_name_ambiguous(index, sounds):
    write_sound(sounds / "c" / "two.wav", 0.3, seed=7)
    built = build([], index)
    assert (built.indexed, built.reworded, len(built.left_rows)) == (1, 1, 1)
    assert (words_of(index)["a/two.wav"], words_of(index)["c/two.wav"]) == ("two; sounds; a", "two; sounds; c")
    (sounds / "a" / "two.wav").unlink()
    assert build([], index).reworded == 1
    assert words_of(index)["c/two.wav"] == "two; sounds; c; rain"


def test_moved_copied_and_touched_files_have_the_words_of_their_new_paths(index, sounds, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "read_file", None)
    table(
        tmp_path / "t.csv", [["d/one.wav", "thunder"], ["a/two.wav", "rain"], ["copy.wav", "echo"], ["b/one.wav", "x"]]
    )
    (sounds / "a" / "one.wav").rename((sounds / "d").mkdir() or sounds / "d" / "one.wav")
    shutil.copy(sounds / "a" / "two.wav", sounds / "b" / "copy.wav")
    os.utime(sounds / "b" / "one.wav")
    built = build([], index)
    assert (len(built.moved), built.copies, built.touched, built.reworded, built.unchanged) == (1, 1, 1, 0, 1)
    assert words_of(index) == {
        "d/one.wav": "one; sounds; d; thunder",
        "a/two.wav": "two; sounds; a; rain",
        "b/copy.wav": "copy; sounds; b; echo",
        "b/one.wav": "one; sounds; b; x",
    }


def test_rows_may_mean_files_elsewhere_in_the_index(index, sounds, tmp_path):
    write_sound(tmp_path / "more" / "owl.wav", 0.3)
    table(tmp_path / "t.csv", [["a/one.wav", "storm"], ["two.wav", "rain"], ["owl.wav", "hoot"]])
    built = build([tmp_path / "more"], index)
    assert (built.left_rows, built.described) == ([], 3)
    assert words_of(index) == {**FIRST, "more/owl.wav": "owl; more; hoot"}  # others when they are looked at
    assert build([], index).reworded == 1
    assert words_of(index)["a/one.wav"] == "one; sounds; a; storm"


def test_rebuild_takes_the_table_again(index, sounds, tmp_path):
    built = build([], index, rebuild=True)
    assert (built.indexed, built.described) == (3, 2)
    assert words_of(index) == FIRST
    assert read_about(index).words == WordsTable(str(tmp_path / "t.csv"))
    build([], index, rebuild=True, words=WordsTable())
    assert words_of(index)["a/one.wav"] == "one; sounds; a"
    assert read_about(index).words == WordsTable()


def test_a_table_that_means_no_file_or_is_gone_is_refused_before_any_work(index, sounds, tmp_path, run):
    version, about = Store.open(index).windows.version, read_about(index)
    other = table(tmp_path / "other.csv", [["x.wav", "y"]])
    with pytest.raises(DataError, match=r"other.csv: no row names one of the 3 files by its column 'path'\. .*line 2"):
        build([], index, words=words_table(other))
    (tmp_path / "t.csv").rename(tmp_path / "aside.csv")
    with pytest.raises(DataError, match=r"t\.csv: the table whose words the index has is not there any more\. Put"):
        build([], index)
    assert (Store.open(index).windows.version, read_about(index)) == (version, about)
    with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read"):
        build([sounds], tmp_path / "new", model=str(run), words=words_table(tmp_path / "nowhere.csv"))
    assert not (tmp_path / "new").exists()
    assert build([], index, words=words_table(tmp_path / "aside.csv")).unchanged == 3


def test_an_index_of_no_files_any_more_may_have_a_table(index, sounds):
    shutil.rmtree(sounds)
    built = build([], index, prune=True)
    assert (built.files, len(built.left_rows)) == (0, 2)


def test_an_index_from_before_tables_takes_one(tmp_path, sounds, run):
    build([sounds], tmp_path / "index", model=str(run))
    Store.open(tmp_path / "index").windows.drop_columns([DESCRIBED])
    assert Store.open(tmp_path / "index").windows.schema.names == windows_schema(8).names
    assert build([], tmp_path / "index", words=words_table(tmp_path / "t.csv")).reworded == 3
    assert words_of(tmp_path / "index") == FIRST
    write_sound(sounds / "b" / "two too.wav", 0.3)
    assert build([], tmp_path / "index").indexed == 1


@pytest.mark.case("I08")
def test_a_run_that_is_killed_while_words_change_is_gone_on_with(tmp_path, run):
    for seed in range(30):
        write_sound(tmp_path / "sounds" / f"{seed}.wav", 0.2, seed=seed)
    build([tmp_path / "sounds"], tmp_path / "index", model=str(run))
    table(tmp_path / "t.csv", [[f"{seed}.wav", f"said {seed}"] for seed in range(30)])
    code = (
        "import sys, time; from pathlib import Path; from earmark.search import described, index\n"
        "index.COMMIT_FILES = 2\n"
        "real = index._Writer.flush\n"
        "def flush(self): real(self); time.sleep(0.05)\n"
        "index._Writer.flush = flush\n"
        "index.build([], Path(sys.argv[1]), words=described.words_table(Path(sys.argv[2])))"
    )
    going = subprocess.Popen([sys.executable, "-c", code, tmp_path / "index", tmp_path / "t.csv"])
    while going.poll() is None and not any("said" in words for words in words_of(tmp_path / "index").values()):
        time.sleep(0.02)
    going.send_signal(signal.SIGKILL)
    going.wait()
    there = sum("said" in words for words in words_of(tmp_path / "index").values())
    assert 0 < there < 30
    built = build([], tmp_path / "index")  # it was remembered before the work
    assert (built.unchanged, built.reworded, built.indexed) == (there, 30 - there, 0)
    assert words_of(tmp_path / "index") == {f"sounds/{n}.wav": f"{n}; sounds; said {n}" for n in range(30)}


# The command


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_command_says_what_was_taken_and_lists_rows_that_say_nothing(tmp_path, sounds, run):
    table(tmp_path / "t.csv", [["a/one.wav", "x", "k"], ["absent", "y", ""]], ("file", "title", "Keywords"))
    done = command("sounds", "--to", "index", "--model", run, "--words", "t.csv", "--tags", "Keywords", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}/t.csv: describes 1 file; title, Keywords (tags), by file\n" in done.stdout
    assert f"{tmp_path}/t.csv line 3: no file 'absent' is indexed. The row is left out." in done.stderr
    assert "1 row of the table was left out" in done.stderr
    done = command("--to", "index", "--json", cwd=tmp_path)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["unchanged"], told["reworded"]) == (3, 0)
    assert told["words"]["texts"] == ["title"]
    assert len(told["words"]["left_out"]) == 1
    done = command("--to", "index", "--no-words", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "index: 1 with other words, 2 unchanged")


def test_the_command_refuses_columns_without_a_table(tmp_path):
    for arguments, told in (
        (
            ["--text", "all-MiniLM-L6-v2"],
            "--text: tell what to take from a table (the sentence encoder is --text-model).",
        ),
        (
            ["--path", "x", "--encoding", "cp1252"],
            "--path, --encoding: tell what to take from a table. Name it by --words.",
        ),
        (["--no-words", "--words", "t.csv"], "--no-words forgets the table; it does not go with --words."),
        (["--words", "t.csv"], "t.csv: cannot be read (No such file or directory)."),
        (["--check", "--no-words"], "--check looks at an index as it is."),
    ):
        done = command(".", "--to", "index", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "index").exists()


# Real data


def test_every_row_of_the_librarys_table_means_its_file(real_data):
    made = read(words_table(real_data / "library.csv", path="file", texts=["text", "title"]))
    files = [path for path in (real_data / "library").rglob("*") if path.is_file()]
    said, problems = said_of(made, files, [real_data / "library"])
    assert problems == []
    for row in made.rows:
        own = said[real_data / "library" / row.cells["file"]]
        assert row.cells["text"] in own.texts
    bare = made._replace(
        rows=[row._replace(cells={**row.cells, "file": Path(row.cells["file"]).name}) for row in made.rows]
    )
    by_name, problems = said_of(bare, files, [])
    assert len(problems) + sum(len(each) for each in by_name.values()) > 0
    assert all("files are called" in problem.what for problem in problems)
