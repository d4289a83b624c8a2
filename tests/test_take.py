"""What is taken arrives whole: playlists that players can read, copies of equal names, cuts to the very sample."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
import soundfile
from rich.cells import cell_len

from earmark.audio.decode import load, unmixed
from earmark.commands.search import lines_of
from earmark.errors import DataError
from earmark.search.query import Hit, Region
from earmark.search.take import WIDE, _wav, copy_to, cut, cut_to, write_m3u

RATE = 48_000


def noise(seconds: float, channels: int = 1, rate: int = RATE) -> np.ndarray:
    """[frame, channel], well below full scale, every channel its own."""
    return 0.2 * np.random.default_rng(channels).standard_normal((round(seconds * rate), channels)).clip(-4, 4)


def hit(path: Path, start_s: float = 0.0, end_s: float = 1.0) -> Hit:
    return Hit("0", path, str(path), Region(start_s, end_s, 0.5), 0.5, False, 12.345, RATE, 1, "", ())


@pytest.fixture
def wav(tmp_path) -> Path:
    soundfile.write(tmp_path / "rain.wav", noise(2.0), RATE)
    return tmp_path / "rain.wav"


# Playlists


def test_a_playlist_holds_absolute_paths_in_order_with_times(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_m3u([hit(Path("b/rain.wav"), 12.5, 22.5), hit(tmp_path / "雨 ☃.flac")], tmp_path / "found.m3u8")
    assert (tmp_path / "found.m3u8").read_bytes().decode().splitlines() == [
        "#EXTM3U",
        "#EXTENC:UTF-8",
        "#EXTINF:12.345,rain.wav",
        "#EXTVLCOPT:start-time=12.500",
        str(tmp_path / "b/rain.wav"),
        "#EXTINF:12.345,雨 ☃.flac",
        str(tmp_path / "雨 ☃.flac"),
    ]


@pytest.mark.case("A29", "A30")
@pytest.mark.parametrize("name", [b"two\nlines.wav", b"caf\xe9.wav", b"end ", b"tab\t.wav", b"-y.wav", b"#1 100%.wav"])
def test_any_name_stands_in_a_playlist_as_one_line_that_leads_to_it(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    write_m3u([hit(path)], tmp_path / "found.m3u8")
    [_, _, title, line] = (tmp_path / "found.m3u8").read_bytes().decode().splitlines()
    assert title.startswith("#EXTINF:12.345,")
    plain = unquote_to_bytes(line.removeprefix("file://")) if line.startswith("file://") else line.encode()
    assert plain == os.fsencode(path)


# Copies


@pytest.mark.case("C07")
def test_files_of_one_name_all_arrive_and_nothing_is_overwritten(tmp_path):
    paths = [tmp_path / "a/kick.wav", tmp_path / "b/kick.wav", tmp_path / "c/Kick.WAV"]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        soundfile.write(path, noise(0.1 + number / 10), RATE, format="WAV")
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "kick-2.wav").write_bytes(b"mine")
    made, there, problems = copy_to([hit(path) for path in paths], folder)
    assert not problems + there
    assert [path.name for path in made] == ["kick.wav", "kick-3.wav", "Kick-4.WAV"]
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in paths]
    assert (folder / "kick-2.wav").read_bytes() == b"mine"


@pytest.mark.parametrize("ending", ["wav", "flac", "mp3"])
def test_what_is_there_already_is_not_written_again_and_another_gets_a_name_of_its_own(tmp_path, ending):
    path = tmp_path / f"rain.{ending}"
    soundfile.write(path, noise(2.0), RATE)
    for take in (copy_to, cut_to):
        first = take([hit(path)], tmp_path / "taken")
        written = {each: each.stat().st_mtime_ns for each in (tmp_path / "taken").iterdir()}
        again = take([hit(path), hit(path)], tmp_path / "taken")
        assert (again.made, again.there, again.problems) == ([], 2 * first.made, [])
        assert {each: each.stat().st_mtime_ns for each in (tmp_path / "taken").iterdir()} == written
    soundfile.write(path, 0.5 * noise(2.0), RATE)
    for take, name in ((copy_to, "rain-2"), (cut_to, "rain_0.000-1.000-2")):
        for expected in (1, 0):
            took = take([hit(path)], tmp_path / "taken")
            assert (len(took.made), len(took.there)) == (expected, 1 - expected)
            assert {each.stem for each in (*took.made, *took.there)} == {name}


@pytest.mark.case("A29")
@pytest.mark.parametrize("name", [b"caf\xe9.wav", "雨☃.wav".encode(), b"-y.wav", b"a\nb.wav", b"x" * 251 + b".wav"])
def test_odd_names_are_copied_and_cut(tmp_path, wav, name):
    path = tmp_path / "in" / os.fsdecode(name)
    path.parent.mkdir()
    shutil.copyfile(wav, path)
    for take in (copy_to, cut_to):
        made, there, problems = take([hit(path, 0.5, 1.0), hit(path, 0.5, 1.0)], tmp_path / "taken")
        assert not problems
        assert len(made) == 1
        assert there == made  # the second is the same
        assert all(len(load(each).samples) > 0 for each in made)


def test_a_file_that_cannot_be_taken_costs_itself_only(tmp_path, wav):
    (tmp_path / "text.wav").write_text("no sound\n" * 100)
    hits = [hit(tmp_path / "gone.wav"), hit(tmp_path / "text.wav"), hit(tmp_path), hit(wav)]
    for take, name in ((copy_to, "rain.wav"), (cut_to, "rain_0.000-1.000.wav")):
        made, _, problems = take(hits, tmp_path / "taken")
        assert [path.name for path in made] == [name]
        assert [problem.where for problem in problems] == [str(each.path) for each in hits[:3]]
        assert "cannot be read" in problems[0].what
        assert all("\n" not in str(problem) for problem in problems)
    assert sorted(path.name for path in (tmp_path / "taken").iterdir()) == ["rain.wav", "rain_0.000-1.000.wav"]


def test_a_folder_that_cannot_be_is_refused(tmp_path, wav):
    with pytest.raises(DataError, match="cannot be a folder"):
        copy_to([hit(wav)], wav / "below")


# Lines for people


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize(
    "name", ["dog.wav", "RAINConc_Heavy Rain On Concrete With Thunder_" * 2 + "01.wav", "雨の音" * 20 + ".wav"]
)
def test_a_hit_fits_a_terminal_and_is_whole_elsewhere(width, name):
    found = hit(Path("/home/me/sounds/libraries/A Library Of Rain/Recorded In 2021/Designed") / name)
    found = replace(found, named=True, copies=("/a.wav",))
    lines = lines_of(1, found, width)
    assert max(map(cell_len, lines)) <= max(width, 65)  # times and a dozen letters of the name always stand
    assert lines[0].endswith(f"{name[-5:]}  (+1 copy)")
    whole = lines_of(1, found)
    assert name in whole[0]
    assert str(found.path.parent) in whole[1]
    assert lines == whole or any("…" in line for line in lines)


# Cuts

EXACT = [
    ("WAV", "PCM_U8", 1, "int32"),
    ("WAV", "PCM_16", 2, "int32"),
    ("WAV", "PCM_24", 1, "int32"),
    ("WAV", "PCM_32", 2, "int32"),
    ("WAV", "FLOAT", 1, "float32"),
    ("WAV", "DOUBLE", 2, "float64"),
    ("WAV", "ALAW", 1, "int16"),
    ("WAVEX", "PCM_24", 8, "int32"),
    ("FLAC", "PCM_16", 2, "int32"),
    ("FLAC", "PCM_24", 6, "int32"),
    ("AIFF", "PCM_24", 2, "int32"),
    ("AIFF", "PCM_S8", 1, "int32"),
    ("CAF", "ALAC_24", 2, "int32"),
    ("AU", "PCM_32", 1, "int32"),
    ("W64", "PCM_16", 1, "int32"),
]


@pytest.mark.parametrize(("form", "subtype", "channels", "kind"), EXACT)
def test_a_cut_is_the_very_samples_in_the_same_form(tmp_path, form, subtype, channels, kind):
    source = tmp_path / f"rain.{'wav' if form == 'WAVEX' else form.lower()}"
    soundfile.write(source, noise(3.0, channels), RATE, subtype, format=form)
    made = cut(source, 1.00001, 2.5, tmp_path / "part.xyz")
    found, told = soundfile.info(made), soundfile.info(source)
    assert (found.format, found.subtype, found.samplerate, found.channels) == (form, subtype, RATE, channels)
    assert told.subtype == subtype
    assert made.suffix == {"WAVEX": ".wav"}.get(form, f".{form.lower()}")
    wanted, _ = soundfile.read(source, dtype=kind, always_2d=True)
    got, _ = soundfile.read(made, dtype=kind, always_2d=True)
    assert got.dtype == wanted.dtype
    assert np.array_equal(got, wanted[48_000:120_000])
    assert len(np.unique(got)) > 50  # else equal silence


def test_big_endian_wav_stays_and_floats_beyond_full_scale_do(tmp_path):
    soundfile.write(tmp_path / "big.wav", 5 * noise(1.0), RATE, "FLOAT", endian="BIG")
    made = cut(tmp_path / "big.wav", 0.25, 0.75, tmp_path / "part.wav")
    assert made.read_bytes()[:4] == b"RIFX"
    got, wanted = soundfile.read(made)[0], soundfile.read(tmp_path / "big.wav")[0]
    assert np.array_equal(got, wanted[12_000:36_000])
    assert np.abs(got).max() > 1


def test_cuts_that_hold_no_number_are_written_once_too(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.array([0.1, np.nan] * RATE), RATE, "FLOAT")
    for _ in range(2):
        took = cut_to([hit(tmp_path / "a.wav")], tmp_path / "to")
    assert (len(took.made), len(took.there)) == (0, 1)


def test_what_may_be_too_long_for_wav_is_rf64():
    assert [_wav(samples) for samples in (WIDE // 8 - 1, WIDE // 8)] == ["WAV", "RF64"]


@pytest.mark.case("A24")
def test_a_cut_of_rf64_is_plain_wav(tmp_path):
    soundfile.write(tmp_path / "long.wav", noise(2.0, 2), RATE, "PCM_24", format="RF64")
    made = cut(tmp_path / "long.wav", 0.5, 1.0, tmp_path / "part.wav")
    assert made.read_bytes()[:4] == b"RIFF"
    assert soundfile.info(made).subtype == "PCM_24"
    got, wanted = (soundfile.read(path, dtype="int32")[0] for path in (made, tmp_path / "long.wav"))
    assert np.array_equal(got, wanted[24_000:48_000])


@pytest.mark.parametrize("form", ["MP3", "OGG", "OPUS"])
def test_a_cut_of_a_lossy_file_is_what_is_decoded_in_32_bit_floats(tmp_path, form):
    source = tmp_path / f"rain.{form.lower()}"
    subtype = {"MP3": "MPEG_LAYER_III", "OGG": "VORBIS", "OPUS": "OPUS"}[form]
    soundfile.write(source, noise(4.0, 2), RATE, subtype, format="OGG" if form == "OPUS" else form)
    with unmixed(source) as stream:
        whole = np.concatenate(list(stream.blocks))
    made = cut(source, 1.5, 2.5, tmp_path / "part.ogg")
    assert made == tmp_path / "part.wav"
    assert soundfile.info(made).subtype == "FLOAT"
    got, rate = soundfile.read(made, dtype="float32")
    assert (rate, got.shape) == (RATE, (RATE, 2))
    assert np.array_equal(got, whole[72_000:120_000])


def test_what_only_pyav_reads_is_cut_with_its_channels(real_data, tmp_path):
    for name in ("taglib__lossless.wma", "taglib__flac96.m4a", "mutagen__no-tags.m4a"):
        source = real_data / "odd" / name
        with unmixed(source) as stream:
            whole, rate, channels = np.concatenate(list(stream.blocks)), stream.rate, stream.channels
        end_s = len(whole) / rate
        made = cut(source, end_s / 3, end_s, tmp_path / "part.m4a")
        got, found = soundfile.read(made, dtype="float32", always_2d=True)
        assert (found, got.shape[1], made.suffix) == (rate, channels, ".wav")
        assert np.array_equal(got, whole[round(end_s / 3 * rate) :])


def test_a_part_beyond_the_end_ends_there_and_an_empty_one_is_refused(tmp_path, wav):
    assert soundfile.info(cut(wav, 1.5, 9.0, tmp_path / "part.wav")).frames == RATE // 2
    for start_s, end_s in ((1.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (0.0, float("nan")), (0.0, float("inf"))):
        with pytest.raises(DataError, match="expected 0 or more, and an end behind the start"):
            cut(wav, start_s, end_s, tmp_path / "other.wav")
    with pytest.raises(DataError, match=r"ends before 2 s"):
        cut(wav, 2.0, 3.0, tmp_path / "other.wav")
    assert not (tmp_path / "other.wav").exists()


@pytest.mark.case("A22")
def test_a_truncated_flac_gives_what_is_there_and_never_hangs(tmp_path):
    soundfile.write(tmp_path / "whole.flac", noise(20.0), RATE)
    data = (tmp_path / "whole.flac").read_bytes()
    (tmp_path / "half.flac").write_bytes(data[: len(data) // 2])
    assert soundfile.info(cut(tmp_path / "half.flac", 3.0, 4.0, tmp_path / "part.flac")).frames == RATE
    assert 0 < soundfile.info(cut(tmp_path / "half.flac", 7.0, 19.0, tmp_path / "part.flac")).frames < 4 * RATE
    for start_s in (15.0, 19.9, 7200.0):
        with pytest.raises(DataError, match="ends before"):
            cut(tmp_path / "half.flac", start_s, start_s + 1, tmp_path / "other.flac")


def test_a_wav_that_was_streamed_and_states_no_length_is_cut(tmp_path, wav):
    data = bytearray(wav.read_bytes())
    at = data.index(b"data") + 4
    for stated in (0, 0xFFFFFFFF):
        data[at : at + 4] = struct.pack("<I", stated)
        (tmp_path / "streamed.wav").write_bytes(data)
        made = cut(tmp_path / "streamed.wav", 0.5, 1.5, tmp_path / "part.wav")
        got, wanted = soundfile.read(made)[0], soundfile.read(wav)[0]
        assert np.allclose(got, wanted[24_000:72_000], atol=1e-6)


def test_cuts_of_one_file_bear_their_times_and_keep_its_ending(tmp_path):
    soundfile.write(tmp_path / "gong.AIF", noise(30.0), RATE, format="AIFF")
    made, _, problems = cut_to(
        [hit(tmp_path / "gong.AIF", 12.5, 22.5), hit(tmp_path / "gong.AIF", 5, 15)], tmp_path / "to"
    )
    assert not problems
    assert [path.name for path in made] == ["gong_12.500-22.500.AIF", "gong_5.000-15.000.AIF"]
    assert {soundfile.info(path).frames for path in made} == {10 * RATE}


def test_a_long_cut_is_held_a_block_at_a_time(tmp_path):
    import tracemalloc

    soundfile.write(tmp_path / "long.wav", np.zeros((120 * 8000, 2), np.int16), 8000)
    cut(tmp_path / "long.wav", 0.0, 1.0, tmp_path / "part.wav")  # imports
    tracemalloc.start()
    cut(tmp_path / "long.wav", 0.0, 120.0, tmp_path / "part.wav")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20  # the part is 7.7 MB as int32


def test_every_odd_file_that_can_be_read_can_be_cut(real_data, tmp_path):
    cuts = refused = 0
    for path in sorted((real_data / "odd").iterdir()):
        try:
            with unmixed(path) as stream:
                shape = (sum(map(len, stream.blocks)), stream.channels)
        except DataError:
            with pytest.raises(DataError):
                cut(path, 0.0, 0.05, tmp_path / "part.wav")
            refused += 1
            continue
        made = cut(path, 0.0, shape[0] / stream.rate, tmp_path / "part.wav")
        got = soundfile.info(made)
        assert (got.samplerate, got.channels) == (stream.rate, shape[1]), path.name
        assert got.frames == shape[0], path.name
        cuts += 1
    assert cuts + refused == 172
    assert cuts > 140
