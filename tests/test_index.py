from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures.process import BrokenProcessPool
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from indices import NAMES, noise, random_run, small_sounds, write_sound

from earmark.audio import decode
from earmark.errors import DataError, in_short
from earmark.files import LOCK, folder_alone
from earmark.model.dual_encoder import DualEncoder
from earmark.search import index as module
from earmark.search import opening, reading, store
from earmark.search.index import Built, build, forget
from earmark.search.plan import Taken, is_below
from earmark.search.store import (
    ABOUT,
    DESCRIBED,
    Known,
    Stamp,
    Store,
    as_text,
    from_text,
    path_of,
    read_about,
)
from earmark.search.walk import Found
from earmark.search.windows import cut, rows_for

COMMAND = [sys.executable, "-m", "earmark", "index"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, sentence_encoder) -> Path:
    return random_run(tmp_path_factory.mktemp("model") / "run")


@pytest.fixture
def sounds(tmp_path) -> Path:
    """Three short sounds in two folders."""
    for seed, name in enumerate(("a/dog.wav", "a/rain.wav", "b/dog.wav")):
        write_sound(tmp_path / "sounds" / name, 0.5 + 0.2 * seed, seed=seed)
    return tmp_path / "sounds"


@pytest.fixture
def index(tmp_path, sounds, run) -> Path:
    build([sounds], tmp_path / "index", model=str(run))
    return tmp_path / "index"


def rows_of(index: Path) -> list[dict]:
    rows = Store.open(index).windows.to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["path"], row["window"]))


def ids_of(index: Path) -> dict[str, str]:
    """Ids by the last two parts of the path."""
    return {"/".join(path_of(row).parts[-2:]): row["file_id"] for row in rows_of(index)}


def told_of(index: Path) -> list[tuple]:
    """All that an index tells but for its random ids."""
    return [tuple(value for key, value in sorted(row.items()) if key != "file_id") for row in rows_of(index)]


def times(index: Path) -> list[tuple[float, float]]:
    return [(row["start_s"], row["end_s"]) for row in rows_of(index)]


def no_reading(monkeypatch) -> None:
    """From now on nothing is decoded."""

    def refused(*_):
        raise AssertionError("a file was read")

    monkeypatch.setattr(reading, "read_file", refused)


def later(path: Path) -> None:
    """Gives the file another date."""
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))


# What stands in an index


def test_every_file_and_window_stands_once_with_its_facts(tmp_path, run):
    root = small_sounds(tmp_path / "sounds")
    built = build([root], tmp_path / "index", model=str(run))
    rows = rows_of(tmp_path / "index")
    assert (built.files, built.windows, built.indexed) == (len(NAMES) + 1, len(NAMES) + 4, len(NAMES) + 1)
    assert len({(row["file_id"], row["window"]) for row in rows}) == len(rows) == built.windows
    for row in rows:
        path = path_of(row)
        state, info = path.stat(), soundfile.info(path)
        assert row["shown"] == str(path)
        assert row["folder"] == str(path.parent)
        assert (row["size"], row["mtime_ns"]) == (state.st_size, state.st_mtime_ns)
        assert row["content"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (row["rate"], row["channels"]) == (info.samplerate, info.channels)
        assert row["duration_s"] == pytest.approx(info.frames / info.samplerate)
        assert len(row["file_id"]) == 32
        assert np.linalg.norm(row["vector"]) == pytest.approx(1, abs=1e-5)
        assert bool(row["words"]) == bool(row["print"]) == (row["window"] == 0)
    assert "rain on roof" in next(row["words"] for row in rows if path_of(row).name == "rain_on_roof.flac")


@pytest.mark.case("A10", "A12", "A13", "A14")
def test_a_short_files_vector_is_that_of_embed_audio(tmp_path, run):
    root = tmp_path / "sounds"
    for seed, (rate, channels) in enumerate([(8_000, 1), (44_100, 2), (48_000, 1), (192_000, 6), (11_025, 1)]):
        write_sound(root / f"{rate}.wav", 0.7 + seed, seed=seed, rate=rate, channels=channels)
    write_sound(root / "whole.flac", 10.0, seed=9, rate=44_100)
    build([root], tmp_path / "index", model=str(run))
    rows = rows_of(tmp_path / "index")
    expected = DualEncoder.load(run).embed_audio([path_of(row) for row in rows])
    np.testing.assert_allclose(np.array([row["vector"] for row in rows]), expected, atol=1e-6)


@pytest.mark.case("A03", "A04")
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (9.5, [(0, 9.5)]),
        (10, [(0, 10)]),
        (12, [(0, 10), (5, 12)]),
        (15, [(0, 10), (5, 15)]),
        (20, [(0, 10), (5, 15), (10, 20)]),
        (20.5, [(0, 10), (5, 15), (10, 20), (15, 20.5)]),
    ],
)
def test_long_files_are_cut_into_windows_each_once(tmp_path, run, seconds, expected):
    path = write_sound(tmp_path / "x.wav", seconds, rate=8_000)
    build([path], tmp_path / "index", model=str(run))
    assert times(tmp_path / "index") == expected
    samples, model = decode.load(path).samples, DualEncoder.load(run)
    each = [samples[round(start * 8_000) : round(end * 8_000)] for start, end in expected]
    found = np.array([row["vector"] for row in rows_of(tmp_path / "index")])
    np.testing.assert_allclose(found, model.embed_audio(each, rate=8_000), atol=1e-6)


@given(total=st.integers(0, 60), size=st.integers(1, 12), shift=st.integers(0, 11), cuts=st.lists(st.integers(1, 20)))
def test_streamed_windows_are_those_of_the_whole(total, size, shift, cuts):
    hop = max(1, size - shift)
    samples = np.arange(total, dtype=np.float32)
    places = np.unique(np.cumsum([0, *cuts]).clip(0, total))
    blocks = [each for each in np.split(samples, places) if len(each)]
    found = list(cut(blocks, size, hop))
    expected = decode.windows(total, size, hop) if total else []
    assert [span for span, _ in found] == expected
    for (start, end), each in found:
        np.testing.assert_array_equal(each, samples[start:end])


@pytest.mark.case("A25", "A26", "I11")
def test_a_long_file_has_all_windows_in_order_and_is_not_copied(tmp_path, run):
    path = write_sound(tmp_path / "long.wav", 301.5, rate=8_000)
    build([path], tmp_path / "index", model=str(run))
    found = times(tmp_path / "index")
    assert [start for start, _ in found] == [5.0 * place for place in range(60)]
    assert [end for _, end in found] == [min(5.0 * place + 10, 301.5) for place in range(60)]
    size = sum(each.stat().st_size for each in (tmp_path / "index").rglob("*.lance"))
    assert size < path.stat().st_size / 10


@pytest.mark.case("A01", "A02", "A05", "A06", "A07")
def test_odd_sounds_are_indexed_with_finite_vectors_or_listed(tmp_path, run):
    root = tmp_path / "sounds"
    root.mkdir()
    for samples in (1, 100, 512):
        soundfile.write(root / f"{samples}.wav", np.full(samples, 0.5, np.float32), 16_000)
    wave = noise(1.0)
    soundfile.write(root / "silent.wav", np.zeros(16_000), 16_000)
    soundfile.write(root / "nan.wav", np.where(np.arange(16_000) == 77, np.nan, wave), 16_000, subtype="FLOAT")
    soundfile.write(
        root / "huge.wav", np.where(np.arange(16_000) == 77, 1e199, wave.astype(float)), 16_000, subtype="DOUBLE"
    )
    soundfile.write(root / "empty.wav", np.zeros(0), 16_000)
    (root / "nothing.wav").write_bytes(b"")
    built = build([root], tmp_path / "index", model=str(run))
    assert {path_of(row).name for row in rows_of(tmp_path / "index")} == {
        *("1.wav", "100.wav", "512.wav", "silent.wav", "nan.wav", "huge.wav")
    }
    for row in rows_of(tmp_path / "index"):
        assert np.isfinite(row["vector"]).all()
        assert np.linalg.norm(row["vector"]) == pytest.approx(1, abs=1e-5)
    assert {Path(problem.where).name: problem.what.split(":")[0] for problem in built.odd} == {
        "silent.wav": "silent",
        "nan.wav": "not finite",
        "huge.wav": "not finite",
    }
    assert [(Path(problem.where).name, problem.what[:5]) for problem in built.left_out] == [
        ("empty.wav", "empty"),
        ("nothing.wav", "empty"),
    ]


@pytest.mark.case("A33")
def test_one_broken_file_costs_itself_and_changes_no_other(tmp_path, run, monkeypatch):
    monkeypatch.setattr(reading, "FILES_A_PROCESS", 5)
    root = tmp_path / "sounds"
    for seed in range(10):
        write_sound(root / f"{seed}.wav", 0.3, seed=seed)
    build([root], tmp_path / "without", model=str(run), jobs=1)
    (root / "4b.wav").write_bytes(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(100))
    built = build([root], tmp_path / "with", model=str(run), jobs=2)
    assert built.indexed == 10
    assert [Path(problem.where).name for problem in built.left_out] == ["4b.wav"]
    assert told_of(tmp_path / "with") == told_of(tmp_path / "without")  # bit for bit, in two processes as in one


def test_a_fault_of_our_own_in_one_file_costs_that_file(tmp_path, sounds, run, monkeypatch):
    from earmark.search import windows

    real = windows.carried

    def carried(path, below, said):
        if path.name == "rain.wav":
            raise KeyError("surprise")
        return real(path, below, said)

    monkeypatch.setattr(windows, "carried", carried)
    built = build([sounds], tmp_path / "index", model=str(run))
    assert built.indexed == 2
    assert built.left_out[0].what.startswith("cannot be read (KeyError: 'surprise').")


@pytest.mark.case("A29", "A30", "A35")
def test_names_of_any_bytes_are_indexed_and_remembered(tmp_path, run):
    root = tmp_path / os.fsdecode(b"folder \xff\n")
    names = [b"-y.wav", b"\xff\xfe.wav", b"new\nline.wav", "雪☃🎧.wav".encode(), b"%41.wav"]
    root.mkdir()
    for seed, name in enumerate(names):
        write_sound(tmp_path / "plain.wav", 0.2, seed=seed).rename(root / os.fsdecode(name))
    (root / os.fsdecode(b"bad\xff.wav")).write_bytes(b"RIFF")
    built = build([root], tmp_path / "index", model=str(run))
    assert [row["path"].rpartition(b"/")[2] for row in rows_of(tmp_path / "index")] == sorted(names)
    assert all(row["shown"].isprintable() for row in rows_of(tmp_path / "index"))
    assert len(built.left_out) == 1
    assert "no audio decoded from WAV" in built.left_out[0].what  # the true cause, not the name
    assert json.dumps([problem._asdict() for problem in built.left_out]).isascii()
    again = build([], tmp_path / "index")
    assert (again.unchanged, again.indexed, len(again.left_out)) == (5, 0, 1)


@pytest.mark.parametrize("name", [b"/a/b", b"/a/\xff", "/é/雪".encode(), b"/x\ny", b"/file:/%41", b"/a\\n"])
def test_remembered_folders_come_back_as_they_were(name):
    path = Path(os.fsdecode(name))
    assert from_text(as_text(path)) == path
    assert as_text(path).isprintable()


# Again


def test_what_is_as_it_was_is_not_touched(index, sounds, monkeypatch):
    before = rows_of(index)
    version = Store.open(index).windows.version
    no_reading(monkeypatch)
    monkeypatch.setattr(module, "content_of", None)
    built = build([sounds], index)
    assert (built.unchanged, built.indexed, built.files) == (3, 0, 3)
    assert rows_of(index) == before
    assert Store.open(index).windows.version == version


def test_nothing_heavy_is_loaded_for_what_is_as_it_was(index, sounds):
    code = (
        "import sys; from pathlib import Path; from earmark.search.index import build;"
        "print(build([], Path(sys.argv[1])).unchanged, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, index], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False"]


def test_a_changed_file_is_replaced_and_keeps_its_id(index, sounds):
    before = rows_of(index)
    write_sound(sounds / "a" / "dog.wav", 12.0, seed=5)
    built = build([sounds], index)
    assert (built.changed, built.unchanged, built.indexed) == (1, 2, 0)
    after = rows_of(index)
    changed = [row for row in after if path_of(row) == sounds / "a" / "dog.wav"]
    assert [row["window"] for row in changed] == [0, 1]
    assert {row["file_id"] for row in changed} == {before[0]["file_id"]}
    assert [row for row in after if row not in changed] == before[1:]
    write_sound(sounds / "a" / "dog.wav", 0.4, seed=5)  # fewer windows than before
    build([sounds], index)
    assert [row["end_s"] for row in rows_of(index) if row["file_id"] == before[0]["file_id"]] == [0.4]


def test_a_new_date_alone_is_no_change(index, sounds, monkeypatch):
    before = rows_of(index)
    later(sounds / "a" / "dog.wav")
    no_reading(monkeypatch)
    built = build([sounds], index)
    assert (built.touched, built.changed, built.unchanged) == (1, 0, 2)
    after = rows_of(index)
    assert after[0]["mtime_ns"] == before[0]["mtime_ns"] + 1_000_000_000
    assert [{**row, "mtime_ns": 0} for row in after] == [{**row, "mtime_ns": 0} for row in before]


def test_moved_files_keep_id_and_vectors_and_get_new_words(index, sounds, monkeypatch):
    before = rows_of(index)
    no_reading(monkeypatch)
    (sounds / "a").rename(sounds / "thunder")
    (sounds / "b" / "dog.wav").rename(sounds / "b" / "wolf.wav")
    built = build([sounds], index)
    assert len(built.moved) == 3
    assert (built.removed, built.indexed, built.copies) == ([], 0, 0)
    after = {path_of(row): row for row in rows_of(index)}
    for row, now in zip(before, ("thunder/dog.wav", "thunder/rain.wav", "b/wolf.wav"), strict=True):
        found = after[sounds / now]
        assert (found["file_id"], found["vector"], found["print"]) == (row["file_id"], row["vector"], row["print"])
        assert found["words"] != row["words"]
        assert found["folder"] == str((sounds / now).parent)
    assert "wolf" in after[sounds / "b" / "wolf.wav"]["words"]


def test_of_equal_files_that_are_gone_the_one_of_the_same_name_moved(index, sounds):
    for name in ("x.wav", "y.wav"):
        shutil.copy(sounds / "a" / "dog.wav", sounds / "a" / name)
    build([], index)
    before = ids_of(index)
    (sounds / "a" / "x.wav").unlink()
    (sounds / "a" / "y.wav").rename(sounds / "b" / "y.wav")
    assert build([], index).removed == [str(sounds / "a" / "x.wav")]
    assert ids_of(index)["b/y.wav"] == before["a/y.wav"]


def test_rows_of_another_content_than_was_meant_are_not_taken_over(index):
    table, own = Store.open(index).windows.to_arrow(), rows_of(index)[0]
    found = Found(path_of(own), path_of(own), Stamp(1, 1))
    for content, there in ((own["content"], True), ("0" * 64, False)):
        taken = Taken(found, own["file_id"], own["file_id"], content, True)
        assert (rows_for(table, taken) is not None) == there


def test_everything_is_below_the_root():
    assert is_below(Path("/a/b"), [Path("/")])
    assert is_below(Path("/a"), [Path("/a")])
    assert not is_below(Path("/ab"), [Path("/a")])


def test_a_copy_takes_the_vectors_and_has_an_id_of_its_own(index, sounds, monkeypatch):
    no_reading(monkeypatch)
    shutil.copy(sounds / "a" / "dog.wav", sounds / "b" / "puppy.wav")
    built = build([sounds], index)
    assert (built.copies, built.unchanged, built.moved) == (1, 3, [])
    found = {path_of(row).name: row for row in rows_of(index) if row["path"].endswith((b"a/dog.wav", b"puppy.wav"))}
    assert found["dog.wav"]["vector"] == found["puppy.wav"]["vector"]
    assert found["dog.wav"]["file_id"] != found["puppy.wav"]["file_id"]


@pytest.mark.parametrize(
    "orders", [("Rain",), ("Rain/drops", "Rain"), ("Rain", "Rain/drops"), ("Rain/drops/x.wav", "Rain/drops", "Rain")]
)
def test_folders_names_count_from_the_outermost_told_one_on_whichever_was_told_first(tmp_path, run, orders):
    write_sound(tmp_path / "above" / "Rain" / "drops" / "x.wav", 0.2)
    for order in orders:
        build([tmp_path / "above" / order], tmp_path / "index", model=str(run))
    assert [row["words"] for row in rows_of(tmp_path / "index")] == ["x; rain; drops"]
    assert build([], tmp_path / "index").unchanged == 1


def test_rows_of_an_earlier_version_get_the_words_of_this_one_without_being_read(index, sounds, monkeypatch):
    before = rows_of(index)
    Store.open(index).windows.update(values={"words": "as it was", DESCRIBED: None})
    no_reading(monkeypatch)
    built = build([sounds / "a"], index)
    assert (built.reworded, built.unchanged) == (2, 0)
    assert build([], index).reworded == 1
    assert rows_of(index) == before


def test_the_counts_of_a_run_add_up(index, sounds):
    write_sound(sounds / "c" / "old.wav", 0.3, seed=11)
    write_sound(sounds / "c" / "other.wav", 0.4, seed=12)
    for number in range(4):
        write_sound(sounds / "d" / f"{number}.wav", 0.3, seed=13 + number)
    build([], index)
    before = build([], index).files
    (sounds / "a" / "dog.wav").rename(sounds / "a" / "aside")  # two change places
    (sounds / "a" / "rain.wav").rename(sounds / "a" / "dog.wav")
    (sounds / "a" / "aside").rename(sounds / "a" / "rain.wav")
    (sounds / "b" / "dog.wav").write_bytes(b"RIFF, broken")
    (sounds / "c" / "old.wav").rename(sounds / "c" / "new place.wav")
    write_sound(sounds / "c" / "other.wav", 0.4, seed=20)
    (sounds / "d" / "0.wav").unlink()
    shutil.copy(sounds / "d" / "1.wav", sounds / "d" / "copy.wav")
    later(sounds / "d" / "2.wav")
    write_sound(sounds / "e.wav", 0.2, seed=21)
    built = build([], index)
    assert (built.changed, len(built.moved), built.touched, built.unchanged) == (3, 1, 1, 2)
    assert (built.indexed, built.copies, len(built.left_out)) == (1, 1, 1)
    assert sorted(built.removed) == [str(sounds / "b" / "dog.wav"), str(sounds / "d" / "0.wav")]
    assert built.unseen == 0
    stayed = built.unchanged + built.touched + built.reworded + built.changed + len(built.moved)
    assert stayed + len(built.removed) == before
    assert stayed + built.indexed + built.copies == built.files == len(ids_of(index))


def test_files_elsewhere_are_counted_as_not_looked_at(index, sounds, tmp_path):
    write_sound(tmp_path / "more" / "x.wav", seed=9)
    (sounds / "a" / "dog.wav").unlink()  # nobody looks
    built = build([tmp_path / "more"], index)
    assert (built.indexed, built.unchanged, built.unseen, built.removed, built.files) == (1, 0, 3, [], 4)
    built = build([], index)
    assert (built.unchanged, built.unseen, len(built.removed), built.files) == (3, 0, 1, 3)
    built = forget([tmp_path / "more"], index)
    assert (len(built.removed), built.unseen, built.files) == (1, 2, 2)


def test_a_file_that_a_kill_left_among_those_left_out_is_taken_off_that_list(index, sounds):
    path = sounds / "a" / "dog.wav"
    store = Store.open(index)
    store.leave_out({path: Known("", Stamp(1, 1), "", "as it was before the kill")})
    assert build([], index).unchanged == 3
    assert Store.open(index).known_left_out() == {}


@pytest.mark.parametrize("lost", ["all", "a file"])
def test_lost_indices_are_made_again(index, sounds, lost):
    from earmark.search.keywords import keyword_tiers
    from earmark.search.nearest import view

    folder = index / "windows.lance" / "_indices"
    if lost == "all":
        shutil.rmtree(folder)
    else:
        max(folder.rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0).unlink()
    assert build([], index).unchanged == 3
    assert list(keyword_tiers(view(Store.open(index).windows), "rain", "", 9)[0]) == [ids_of(index)["a/rain.wav"]]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("dim = 16", r"index\.toml: dim = 16; the windows have 8 values"),
        ("dim = 'x'", "dim"),
        ("hop_s = 0.0", "expected 0 < hop_s ≤ window_s"),
        ("window_s = nan", "expected 0 < hop_s ≤ window_s"),
        ("folders = 3", "folders"),
        ("folders = [3]", "folders"),
        ("follow_links = 'yes'", "follow_links"),
        ("model = 3", "model"),
        ("words = 3", "words"),
        ("= = =", "index.toml"),
    ],
)
def test_damaged_values_of_index_toml_are_told_in_one_line_and_rebuild_mends_them(index, sounds, run, line, told):
    path = index / ABOUT
    tables = tomllib.loads(path.read_text())
    tables.pop(line.split(" =")[0], None)
    path.write_text(f"{line}\n{tomli_w.dumps(tables)}")
    with pytest.raises(DataError, match=told) as raised:
        build([sounds], index)
    assert "\n" not in str(raised.value)
    assert build([sounds], index, model=str(run), rebuild=True).files == 3


def test_a_folder_is_forgotten_with_what_is_below_it_alone(index, sounds, tmp_path):
    write_sound(tmp_path / "more" / "x.wav")
    (tmp_path / "more" / "broken.wav").write_bytes(b"RIFF")
    build([tmp_path / "more", sounds / "a"], index)
    with pytest.raises(DataError, match=r"index: not made of .*sounds/b; it is part of .*sounds\. Name a folder"):
        forget([sounds / "b"], index)
    built = forget([tmp_path / "more"], index)
    assert (built.removed, built.files) == ([str(tmp_path / "more" / "x.wav")], 3)
    assert Store.open(index).known_left_out() == {}
    assert forget([sounds], index).removed == [str(sounds / "b" / "dog.wav")]  # a was told too
    assert read_about(index).folders == [str(sounds / "a")]
    assert build([], index).files == 2


def test_what_another_library_says_is_cut_where_a_sentence_or_a_word_ends():
    assert in_short(ValueError("short")) == "short"
    assert in_short(ValueError("")) == "ValueError"
    assert in_short(OSError("Cannot reach the hub. Check the network. " + "More " * 40), 50) == (
        "Cannot reach the hub. Check the network."
    )
    assert in_short(OSError("word " * 40 + "\nsecond"), 52) == "word " * 10 + "…"


def test_hard_links_are_files_of_their_own(tmp_path, run):
    write_sound(tmp_path / "sounds" / "a.wav", 0.2)
    os.link(tmp_path / "sounds" / "a.wav", tmp_path / "sounds" / "b.wav")
    (tmp_path / "sounds" / "c.wav").symlink_to("a.wav")
    built = build([tmp_path / "sounds"], tmp_path / "index", model=str(run), follow_links=True)
    assert (built.files, set(ids_of(tmp_path / "index"))) == (2, {"sounds/a.wav", "sounds/b.wav"})


def test_what_decoders_write_to_standard_error_is_dropped_and_pythons_own_is_not(capfd):
    from earmark.audio import decode

    decode._own_stderr.cache_clear()
    with decode.decoders_silent():
        os.write(2, b"Warning: chatter\n")
        print("a real failure", file=sys.stderr)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "a real failure\nafter\n"
    decode._own_stderr.cache_clear()


def test_files_that_changed_places_have_each_others_vectors(index, sounds, monkeypatch):
    before = {path_of(row).name: row for row in rows_of(index) if b"/a/" in row["path"]}
    for old, new in (("dog.wav", "aside"), ("rain.wav", "dog.wav"), ("aside", "rain.wav")):
        (sounds / "a" / old).rename(sounds / "a" / new)
    build([sounds], index)
    after = {path_of(row).name: row for row in rows_of(index) if b"/a/" in row["path"]}
    assert len(rows_of(index)) == 3
    for one, other in (("dog.wav", "rain.wav"), ("rain.wav", "dog.wav")):
        assert after[one]["vector"] == before[other]["vector"]
        assert after[one]["content"] == before[other]["content"]
        assert after[one]["file_id"] == before[one]["file_id"]


def test_deleted_files_are_taken_out_below_what_was_told_alone(index, sounds, tmp_path):
    write_sound(tmp_path / "more" / "x.wav")
    build([tmp_path / "more"], index)
    (sounds / "a" / "dog.wav").unlink()
    (sounds / "b" / "dog.wav").unlink()
    (tmp_path / "more" / "x.wav").unlink()
    built = build([sounds / "a"], index)
    assert built.removed == [str(sounds / "a" / "dog.wav")]
    assert set(ids_of(index)) == {"a/rain.wav", "b/dog.wav", "more/x.wav"}
    built = build([], index)  # all that it was made of
    assert set(ids_of(index)) == {"a/rain.wav"}
    assert built.files == 1


def test_what_stands_below_a_folder_that_cannot_be_listed_stays(index, sounds, monkeypatch):
    real = os.scandir

    def scandir(path):
        if Path(path).name == "b":
            raise OSError(5, "Input/output error", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    built = build([sounds], index)
    assert len(ids_of(index)) == 3
    assert "b: cannot be listed (Input/output error)" in str(built.left_out[0])


def test_a_folder_that_is_not_there_is_refused(index, sounds, tmp_path):
    with pytest.raises(DataError, match=r"nowhere: not there\. Check the path\."):
        build([tmp_path / "nowhere"], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    shutil.move(sounds, tmp_path / "unmounted")
    with pytest.raises(DataError, match=r"sounds: not there any more\. Mount it, or take .* out with `--prune`\."):
        build([], index)
    assert len(ids_of(index)) == 3
    built = build([], index, prune=True)
    assert (len(built.removed), built.files) == (3, 0)
    assert read_about(index).folders == []


def test_a_folder_that_lost_all_its_many_files_is_refused(tmp_path, run, monkeypatch):
    monkeypatch.setattr(module, "MANY", 2)
    for seed in range(3):
        write_sound(tmp_path / "disk" / f"{seed}.wav", 0.2, seed=seed)
    build([tmp_path / "disk"], tmp_path / "index", model=str(run))
    for each in (tmp_path / "disk").iterdir():
        each.unlink()
    with pytest.raises(DataError, match=r"disk: holds no sound any more, and 3 files below it are in the index\."):
        build([tmp_path / "disk"], tmp_path / "index")
    assert len(ids_of(tmp_path / "index")) == 3
    assert len(build([tmp_path / "disk"], tmp_path / "index", prune=True).removed) == 3


def test_a_slip_in_the_name_of_an_index_makes_none(tmp_path, run):
    with pytest.raises(DataError, match="no index there"):
        build([], tmp_path / "index", model=str(run))
    assert not (tmp_path / "index").exists()


@pytest.mark.case("A32")
def test_links_are_followed_from_the_time_on_that_it_is_asked_for(index, sounds, tmp_path):
    write_sound(tmp_path / "far" / "owl.wav")
    (sounds / "link").symlink_to(tmp_path / "far")
    assert build([sounds], index).passed == {"links": 1}
    assert build([sounds], index, follow_links=True).indexed == 1
    assert build([], index).unchanged == 4
    assert "link/owl.wav" in ids_of(index)


# What cannot be read


def test_what_was_left_out_is_listed_again_and_not_read_again(index, sounds, monkeypatch):
    broken = sounds / "a" / "broken.wav"
    broken.write_bytes(b"RIFF and no more")
    first = build([sounds], index)
    no_reading(monkeypatch)
    again = build([sounds], index)
    assert first.left_out == again.left_out
    assert again.left_out[0].where == str(broken)
    broken.rename(sounds / "b" / "broken too.wav")  # moved: known by its content
    moved = build([sounds], index)
    assert [problem.where for problem in moved.left_out] == [str(sounds / "b" / "broken too.wav")]
    assert moved.left_out[0].what == first.left_out[0].what


def test_what_was_left_out_comes_in_when_it_is_mended_and_out_when_it_breaks(index, sounds):
    path = sounds / "a" / "dog.wav"
    path.write_bytes(b"RIFF and no more")
    built = build([sounds], index)
    assert (len(built.left_out), built.files, built.removed) == (1, 2, [str(path)])  # out, and listed with its reason
    write_sound(path, 0.4, seed=3)
    built = build([sounds], index)
    assert (len(built.left_out), built.files, built.indexed) == (0, 3, 1)
    path.unlink()
    assert build([sounds], index).files == 2


def test_what_becomes_the_same_as_a_file_without_sound_goes_out(index, sounds):
    (sounds / "a" / "broken.wav").write_bytes(b"RIFF and no more")
    build([sounds], index)
    (sounds / "a" / "dog.wav").write_bytes(b"RIFF and no more")
    built = build([sounds], index)
    assert (built.removed, len(built.left_out)) == ([str(sounds / "a" / "dog.wav")], 2)
    assert set(ids_of(index)) == {"a/rain.wav", "b/dog.wav"}


def test_a_file_that_a_missing_library_would_read_is_tried_again(tmp_path, sounds, run, monkeypatch):
    from earmark.search import windows

    def needs_more(*_):
        raise DataError("x: av cannot be imported (no such module).")

    with monkeypatch.context() as patched:
        patched.setattr(windows, "_read", needs_more)
        assert len(build([sounds], tmp_path / "index", model=str(run)).left_out) == 3
    assert build([sounds], tmp_path / "index").indexed == 3


def test_a_window_whose_vector_is_zero_costs_its_file(tmp_path, run, monkeypatch):
    real = DualEncoder.embed_features
    monkeypatch.setattr(DualEncoder, "embed_features", lambda *given: real(*given) * [[1], [0]])
    write_sound(tmp_path / "sounds" / "long.wav", 12.0, rate=8_000)
    (problem,) = build([tmp_path / "sounds"], tmp_path / "index", model=str(run)).left_out
    assert "not finite, or zero" in problem.what


def test_a_file_that_may_not_be_read_is_tried_again(index, sounds, monkeypatch):
    from earmark.search import windows

    write_sound(sounds / "a" / "secret.wav")
    real = windows.content_of

    def content_of(path):
        if path.name == "secret.wav":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(windows, "content_of", content_of)
        built = build([sounds], index)
        assert built.left_out[0].what == "cannot be read (Permission denied). Check its permissions and its disk."
    assert build([sounds], index).indexed == 1


@pytest.mark.case("I09")
def test_a_file_that_vanishes_before_it_is_read_is_counted(tmp_path, sounds, run, monkeypatch):
    real = module.plan

    def plan(*arguments):
        made = real(*arguments)
        (sounds / "a" / "rain.wav").unlink()
        return made

    monkeypatch.setattr(module, "plan", plan)
    built = build([sounds], tmp_path / "index", model=str(run))
    assert (built.indexed, built.vanished, built.left_out) == (2, 1, [])
    monkeypatch.setattr(module, "plan", real)
    build([sounds], tmp_path / "index")
    write_sound(sounds / "a" / "rain.wav", seed=8)
    build([sounds], tmp_path / "index")
    write_sound(sounds / "a" / "rain.wav", 0.9, seed=9)
    monkeypatch.setattr(module, "plan", plan)
    built = build([sounds], tmp_path / "index")  # one that was there is not counted twice
    assert (built.removed, built.vanished) == ([str(sounds / "a" / "rain.wav")], 0)


def test_a_file_that_changes_while_it_is_read_is_read_again_the_next_time(tmp_path, sounds, run, monkeypatch):
    from earmark.search import windows

    real = windows.print_of

    def print_of(blocks, rate):
        write_sound(sounds / "a" / "rain.wav", 0.9, seed=7)
        later(sounds / "a" / "rain.wav")
        return real(blocks, rate)

    with monkeypatch.context() as patched:
        patched.setattr(windows, "print_of", print_of)
        build([sounds], tmp_path / "index", model=str(run))
    build([sounds], tmp_path / "index")
    state = (sounds / "a" / "rain.wav").stat()
    row = next(row for row in rows_of(tmp_path / "index") if path_of(row).name == "rain.wav")
    assert (row["mtime_ns"], row["duration_s"]) == (state.st_mtime_ns, 0.9)
    assert build([sounds], tmp_path / "index").unchanged == 3


# Models


@pytest.mark.case("I03", "I04", "I05")
def test_a_model_of_another_fingerprint_is_refused_and_rebuild_takes_it(index, sounds, run, tmp_path):
    own = shutil.copytree(run, tmp_path / "own")
    build([sounds], tmp_path / "mine", model=str(own))
    ids, before = ids_of(tmp_path / "mine"), rows_of(tmp_path / "mine")
    random_run(own, seed=1)  # trained again
    with pytest.raises(DataError, match=r"own is not as it was .* or make the index anew with `--rebuild`\."):
        build([sounds], tmp_path / "mine", model=str(own))
    wide = random_run(tmp_path / "wide", dim=16)
    with pytest.raises(DataError, match=r"made with .*own \(8 values\), asked for .*wide \(16 values\)"):
        build([sounds], tmp_path / "mine", model=str(wide))
    assert rows_of(tmp_path / "mine") == before
    write_sound(sounds / "b" / "new.wav", 0.3)
    build([sounds], tmp_path / "mine")  # by its own copy, so that all vectors are of one model
    assert [row for row in rows_of(tmp_path / "mine") if path_of(row).name != "new.wav"] == before
    built = build([], tmp_path / "mine", model=str(wide), rebuild=True)
    assert (built.indexed, built.model) == (4, str(wide))
    assert {len(row["vector"]) for row in rows_of(tmp_path / "mine")} == {16}
    assert not set(ids.values()) & set(ids_of(tmp_path / "mine").values())
    assert sorted(each.name for each in (tmp_path / "mine").iterdir()) == sorted([LOCK, opening.UNTIDY, *opening.PARTS])


def test_an_index_outlives_the_run_that_it_was_made_with(sounds, run, tmp_path):
    own = shutil.copytree(run, tmp_path / "own")
    build([sounds], tmp_path / "index", model=str(own))
    shutil.rmtree(own)
    write_sound(sounds / "b" / "new.wav", 0.3)
    assert build([sounds], tmp_path / "index").indexed == 1


@pytest.mark.parametrize("at", range(8))
def test_a_rebuild_that_is_killed_while_it_takes_its_place_is_gone_on_with(index, sounds, tmp_path, monkeypatch, at):
    (index / "ratings").mkdir()  # where `earmark serve` keeps the listener's own
    (index / reading.AT_WORK).write_bytes(b"/gone.wav")
    wide = random_run(tmp_path / "wide", dim=16)
    left = at
    real = Path.rename

    def rename(path, to):
        nonlocal left
        if path.parent in (index, index / opening.ANEW):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return real(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        if at < 7:  # three parts of the old one, four of the new
            with pytest.raises(KeyboardInterrupt):
                build([], index, model=str(wide), rebuild=True)
        else:
            build([], index, model=str(wide), rebuild=True)
    assert build([], index).unchanged == 3
    assert read_about(index).dim == 16
    assert {len(row["vector"]) for row in rows_of(index)} == {16}


def test_a_rebuild_that_is_killed_leaves_the_index_as_it_was(index, sounds, tmp_path, monkeypatch):
    wide = random_run(tmp_path / "wide", dim=16)
    before = rows_of(index)

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(reading, "read_file", stopped)
        with pytest.raises(KeyboardInterrupt):
            build([], index, model=str(wide), rebuild=True)
    assert rows_of(index) == before
    build([], index)
    assert not (index / opening.ANEW).exists()


# Several processes


@pytest.mark.case("I06")
def test_of_two_at_once_the_second_is_refused_or_waits(index, sounds, monkeypatch):
    write_sound(sounds / "b" / "new.wav", 0.3)
    with folder_alone(index, DataError("busy")), pytest.raises(DataError, match=r"another `earmark index` works there"):
        build([sounds], index)
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with folder_alone(index, DataError("busy")):
            inside.set()
            leave.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    threading.Timer(0.3, leave.set).start()
    monkeypatch.setattr(opening, "LOOK_S", 0.05)
    said = []
    assert build([sounds], index, wait_for_others=True, say=said.append).indexed == 1
    holder.join()
    assert said == [f"{index}: another `earmark index` (process {os.getpid()}) works there; waiting for it"]


@pytest.mark.case("I10")
def test_a_disk_without_locks_is_told(tmp_path, sounds, run, monkeypatch):
    def flock(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(DataError, match=r"index: cannot be locked \(No locks available\)\. Name a --to on a disk"):
        build([sounds], tmp_path / "index", model=str(run))


def test_earlier_versions_go_when_nobody_reads_them_any_more(index, sounds, monkeypatch):
    def size() -> int:
        return sum(each.stat().st_size for each in (index / "windows.lance").rglob("*") if each.is_file())

    for seed in range(3):
        write_sound(sounds / "a" / "dog.wav", 0.4, seed=seed)
        build([sounds], index)
    before, untidy = size(), index / opening.UNTIDY
    build([sounds], index)  # a search that is under way may read them
    assert untidy.exists()
    for each in (store, module):
        monkeypatch.setattr(each, "KEPT", timedelta(milliseconds=1))
    build([sounds], index)
    assert not untidy.exists()
    assert size() < before


@pytest.mark.case("I08")
def test_kills_at_any_moment_lose_nothing_and_double_nothing(tmp_path, run):
    root = tmp_path / "sounds"
    for seed in range(40):
        write_sound(root / f"{seed}.wav", 0.3 + (seed == 17) * 30, seed=seed)
    build([root], tmp_path / "whole", model=str(run))
    code = (
        "import sys; from pathlib import Path; from earmark.search import index; index.COMMIT_FILES = 3;"
        "index.build([Path(sys.argv[1])], Path(sys.argv[2]), model=sys.argv[3], jobs=1)"
    )
    kept = []
    for files in (0, 1, 10, 25):  # killed when so many are there
        going = subprocess.Popen([sys.executable, "-c", code, root, tmp_path / "index", run])
        while going.poll() is None:
            if files == 0 and (tmp_path / "index" / LOCK).exists():
                break
            if files and (tmp_path / "index" / ABOUT).exists() and len(ids_of(tmp_path / "index")) >= files:
                break
            time.sleep(0.02)
        going.send_signal(signal.SIGKILL)
        going.wait()
        kept.append(len(ids_of(tmp_path / "index")) if files else 0)
    assert kept == sorted(kept)
    before = ids_of(tmp_path / "index")
    built = build([root], tmp_path / "index", model=str(run))
    assert built.unchanged == len(before) == kept[-1]
    assert told_of(tmp_path / "index") == told_of(tmp_path / "whole")
    assert before.items() <= ids_of(tmp_path / "index").items()
    assert sorted(each.name for each in (tmp_path / "index").iterdir()) == sorted(
        [LOCK, opening.UNTIDY, *opening.PARTS]
    )


@pytest.mark.case("I08")
def test_an_index_of_another_version_says_what_to_do(index, sounds, run):
    path = index / ABOUT
    path.write_text(path.read_text().replace("format = 1", "format = 99"))
    with pytest.raises(DataError, match="format = 99"):
        build([sounds], index)
    assert build([], index, rebuild=True).indexed == 3


def test_a_folder_of_other_things_is_no_place_for_an_index(sounds, run):
    with pytest.raises(DataError, match=r"is there and not an index \(it holds 'a'\)"):
        build([sounds], sounds, model=str(run))
    assert build([sounds], sounds / "index", model=str(run)).indexed == 3  # within it is
    assert build([sounds], sounds / "index").unchanged == 3


def test_a_disk_that_is_full_keeps_what_is_done(tmp_path, sounds, run, monkeypatch):
    real = Store.commit
    done = []

    def commit(self, added, removed=()):
        done.append(added)
        if len(done) > 1:
            raise RuntimeError("lance error: LanceError(IO): No space left on device (os error 28)")
        real(self, added, removed)

    monkeypatch.setattr(module, "COMMIT_FILES", 1)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", commit)
        with pytest.raises(
            DataError, match=r"cannot be read or written \(.*No space left.*\)\. Make room .*what is done is kept"
        ):
            build([sounds], tmp_path / "index", model=str(run))
    assert len(done) == 2
    assert len(ids_of(tmp_path / "index")) == 1
    assert build([sounds], tmp_path / "index").indexed == 2


def test_what_was_committed_when_the_rest_failed_is_not_doubled(tmp_path, sounds, run, monkeypatch):
    def leave_out(*_):
        raise OSError(28, "No space left on device")

    (sounds / "broken.wav").write_bytes(b"RIFF")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "leave_out", leave_out)
        with pytest.raises(DataError, match="No space left"):
            build([sounds], tmp_path / "index", model=str(run))
    built = build([sounds], tmp_path / "index")
    assert (built.unchanged, built.windows, len(built.left_out)) == (3, 3, 1)


DEADLY = """
import importlib.util, os, sys
own = os.path.dirname(__file__)
spec = importlib.util.spec_from_file_location("soundfile", os.environ["REAL_SOUNDFILE"])
real = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
globals().update({name: getattr(real, name) for name in dir(real) if not name.startswith("__")})
class SoundFile(real.SoundFile):
    def __init__(self, file, *arguments, **named):
        if "deadly" in os.readlink(f"/proc/self/fd/{file}"):
            os.abort()
        super().__init__(file, *arguments, **named)
"""
"""soundfile, but for a fault that ends the process: where a file's name says so."""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_a_file_that_kills_the_process_that_reads_it_costs_itself(tmp_path, run):
    root = tmp_path / "sounds"
    for seed in range(5):
        write_sound(root / f"{seed}.wav", 0.2, seed=seed)
    write_sound(root / "3 deadly.wav", 0.2)
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "soundfile.py").write_text(DEADLY)
    code = (
        "import sys; from pathlib import Path; from earmark.search import index, reading\n"
        "if __name__ == '__main__':\n"
        "    reading.FILES_A_PROCESS = 3\n"
        "    built = index.build([Path(sys.argv[1])], Path(sys.argv[2]), model=sys.argv[3], jobs=2)\n"
        "    print(built.indexed, *built.left_out)\n"
    )
    (tmp_path / "script.py").write_text(code)
    environment = {**os.environ, "REAL_SOUNDFILE": soundfile.__file__}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "path"), *sys.path[1:]])
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", root, tmp_path / "index", run],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("5 ")
    assert "3 deadly.wav: the process that read it died" in done.stdout


def test_where_processes_die_of_no_file_fewer_are_started_and_not_for_ever(index, monkeypatch):
    asked = []

    def dying(store, coming, at_work, jobs, ahead):
        asked.append(jobs)
        assert len(asked) < 9
        raise DataError("they died") from BrokenProcessPool()
        yield

    monkeypatch.setattr(reading, "_in_pool", dying)
    monkeypatch.setattr(reading, "_loaded", lambda _: None)
    with pytest.raises(DataError, match="they died"):
        list(reading._in_processes(Store.open(index), [None], 3))
    assert asked == [3, 2, 1, 1, 1, 1]


def test_a_model_that_cannot_be_loaded_is_told_by_its_name(tmp_path, sounds, run, monkeypatch):
    monkeypatch.setattr(reading, "FILES_A_PROCESS", 1)
    own = shutil.copytree(run, tmp_path / "own")
    build([sounds / "a"], tmp_path / "index", model=str(own))
    (tmp_path / "index" / "model" / "model.safetensors").write_bytes(b"damaged")
    write_sound(sounds / "b" / "other.wav", 0.2)
    with pytest.raises(DataError, match="does not fit config"):
        build([sounds], tmp_path / "index", jobs=2)


# The command


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.case("A30")
def test_the_command_tells_what_it_did_and_ends_with_1_where_something_was_left_out(tmp_path, run):
    write_sound(tmp_path / "-y.wav", 0.3)
    done = command("--to", "index", "--model", run, "--", "-y.wav", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"index: 1 indexed\n1 file in 1 window, by {run}\n"
    done = command("--to", "index", "--json", "told.json", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "told.json: written"
    assert json.loads((tmp_path / "told.json").read_text())["unchanged"] == 1
    (tmp_path / "told.json").unlink()
    (tmp_path / "bad\x1b[31m.wav").write_bytes(b"RIFF")
    (tmp_path / "notes.txt").write_text("words")
    done = command(tmp_path, "--to", "index", "--json", cwd=tmp_path)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["files"], told["reworded"], told["indexed"]) == (1, 1, 0)  # its folder's name is a word now
    assert told["passed_over"] == {".txt": 1}
    assert [Path(each["where"]).name for each in told["left_out"]] == ["bad\\x1b[31m.wav"]
    assert "1 file or folder was left out" in done.stderr
    assert "\x1b" not in done.stderr
    write_sound(tmp_path / "more" / "x.wav", 0.2)
    done = command("more", "--to", "index", "--json", cwd=tmp_path)
    assert (json.loads(done.stdout)["not_looked_at"], json.loads(done.stdout)["indexed"]) == (1, 1)
    done = command("--to", "index", "--forget", "more", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "index: 2 not looked at"
    done = command("--to", "index", "--forget", tmp_path, "--forget", tmp_path / "-y.wav", cwd=tmp_path)
    assert done.stdout.splitlines() == ["index: 2 removed", f"0 files in 0 windows, by {run}"]


def test_the_command_refuses_in_one_line(tmp_path):
    for arguments, told in (
        (["nowhere", "--to", "index"], "nowhere: not there. Check the path."),
        (["--check", "--to", "index"], "index: not an index (no index.toml)."),
        ([".", "--to", "index", "--check"], "--check looks at an index as it is."),
        (["", "--to", "index"], "'': an empty path; expected a folder."),
        ([".", "--to", ""], "'': an empty path; expected a folder."),
        ([".", "--to", "index", "--json", "/dev/null/x.json"], "/dev/null/x.json: JSON cannot be written there"),
        ([".", "--to", "index", "--json", "."], ".: JSON cannot be written there (a folder)"),
        (["--to", "index", "--forget", "x"], "index: not an index (no index.toml)."),
        ([".", "--to", "index", "--forget", "x"], "--forget takes folders out and indexes nothing."),
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "index").exists()


# Real sounds


def test_every_odd_file_is_indexed_or_listed_with_its_reason(real_data, tmp_path, run):
    built = build([real_data / "odd"], tmp_path / "index", model=str(run), jobs=1)
    files = sorted(path for path in (real_data / "odd").iterdir() if path.is_file())
    indexed = {path_of(row) for row in rows_of(tmp_path / "index")}
    listed = {Path(problem.where): problem.what for problem in built.left_out}
    assert sorted(indexed | set(listed)) == files
    assert not indexed & set(listed)
    assert all(what and "\n" not in what for what in listed.values())
    assert len(indexed) >= 145
    assert np.isfinite([row["vector"] for row in rows_of(tmp_path / "index")]).all()


def test_real_sounds_are_indexed_once_each(real_data, tmp_path, run):
    folder = next(path for path in sorted((real_data / "library").iterdir()) if path.is_dir())
    built = build([folder], tmp_path / "index", model=str(run), jobs=1)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert [path_of(row) for row in rows_of(tmp_path / "index") if row["window"] == 0] == paths
    assert isinstance(built, Built)
    assert built.left_out == []


# What an attack found


def test_a_told_file_that_is_gone_is_taken_out_even_where_another_folder_stopped_the_run(tmp_path, run):
    one = write_sound(tmp_path / "one.wav")
    for seed in range(module.MANY + 2):
        write_sound(tmp_path / "disk" / f"{seed}.wav", 0.3, seed=seed)
    build([one, tmp_path / "disk"], tmp_path / "index", model=str(run))
    one.unlink()
    (tmp_path / "disk").rename(tmp_path / "away")
    (tmp_path / "disk").mkdir()
    with pytest.raises(DataError, match="holds no sound any more"):
        build([], tmp_path / "index")
    (tmp_path / "disk").rmdir()
    (tmp_path / "away").rename(tmp_path / "disk")
    assert build([], tmp_path / "index").removed == [str(one)]
    assert read_about(tmp_path / "index").folders == [str(tmp_path / "disk")]


@pytest.mark.parametrize("year", [1600, 2400])
def test_dates_beyond_64_bits_cost_nothing(tmp_path, run, year):
    path = write_sound(tmp_path / "sounds" / "a.wav")
    (tmp_path / "sounds" / "broken.wav").write_bytes(b"RIFF")
    seconds = (year - 1970) * 31_556_952
    for each in (path, path.with_name("broken.wav")):
        os.utime(each, (seconds, seconds))
    build([path.parent], tmp_path / "index", model=str(run))
    assert build([], tmp_path / "index").unchanged == 1


KILLING = """
import os, sys
from pathlib import Path
from earmark.search import reading
read = reading._read_task
def deadly(model, about, task):
    if task.found.path.name == "z.wav":
        os.kill(os.getpid(), 9)
    return read(model, about, task)
reading._read_task = deadly
from earmark.search.index import build
if __name__ == "__main__":
    built = build([Path(sys.argv[1])], Path(sys.argv[2]), model=sys.argv[3])
    print(built.files, [problem.where for problem in built.left_out])
"""


def test_a_file_that_kills_the_only_process_is_listed_by_the_next_run(tmp_path, run):
    for seed, name in enumerate(("a.wav", "z.wav", "zz.wav")):
        write_sound(tmp_path / "sounds" / name, seed=seed)
    (tmp_path / "deadly.py").write_text(KILLING)
    command = [sys.executable, tmp_path / "deadly.py", tmp_path / "sounds", tmp_path / "index", run]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ended.stdout.split(" ", 1) == ["2", f"['{tmp_path}/sounds/z.wav']\n"]
    assert not (tmp_path / "index" / reading.AT_WORK).exists()


def test_a_good_file_that_was_at_work_when_a_run_was_killed_is_indexed(index, sounds):
    write_sound(sounds / "new.wav", seed=7)
    (index / reading.AT_WORK).write_bytes(os.fsencode(sounds / "new.wav"))
    built = build([], index)
    assert (built.indexed, built.left_out) == (1, [])


def test_a_damaged_table_is_told_in_one_line_and_made_anew(index):
    for data in (index / "windows.lance" / "data").iterdir():
        os.truncate(data, 100)
    with pytest.raises(DataError, match=r"cannot be read or written .* --rebuild") as told:
        build([], index)
    assert "\n" not in str(told.value)
    assert build([], index, rebuild=True).files == 3


def test_a_pipe_is_never_opened_to_compare_it(tmp_path, sounds, index):
    (sounds / "empty.wav").touch()
    build([], index)
    os.mkfifo(tmp_path / "pipe.wav")
    built = build([tmp_path / "pipe.wav"], index)
    assert "not a regular file" in built.left_out[0].what


def test_an_index_may_have_a_name_that_looks_like_an_address(tmp_path, sounds, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert build([sounds], Path("s3:mine.index"), model=str(run)).files == 3
    assert Store.open(Path("s3:mine.index")).windows.count_rows() == 3
    for name in ("two\nlines.index", os.fsdecode(b"\xff.index")):
        with pytest.raises(DataError, match="one line of UTF-8"):
            build([sounds], Path(name), model=str(run))


def test_an_index_is_made_anew_by_its_own_model_though_the_run_is_gone_or_another(tmp_path, sounds, run):
    own = tmp_path / "run"
    shutil.copytree(run, own)
    build([sounds], tmp_path / "index", model=str(own))
    before = told_of(tmp_path / "index")
    random_run(own, seed=5)
    build([], tmp_path / "index", rebuild=True)
    assert told_of(tmp_path / "index") == before
    shutil.rmtree(own)
    build([], tmp_path / "index", rebuild=True)
    assert told_of(tmp_path / "index") == before
    assert read_about(tmp_path / "index").model == str(own)


def test_windows_without_index_toml_are_not_thrown_away(index, sounds, run):
    (index / ABOUT).unlink()
    with pytest.raises(DataError, match=r"3 windows and no index\.toml"):
        build([sounds], index)
    assert build([sounds], index, model=str(run), rebuild=True).files == 3
