"""Decoding: every format, every oddity, in blocks and whole; the odd files are made here byte by byte."""

from __future__ import annotations

import csv
import os
import struct
import subprocess
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark.audio import decode, headers
from earmark.audio.logmel import PAPER, log_mel
from earmark.errors import ConfigError, DataError, EarmarkError

av = pytest.importorskip("av")


def tone(seconds: float = 1.0, rate: int = 44_100, hertz: float = 440.0, channels: int = 1) -> np.ndarray:
    """[frame, channel], channel k at half the loudness of channel k − 1."""
    t = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * t)[:, None] * 0.5 ** np.arange(channels)).astype(np.float32)


def wav(data: bytes, *, codec: int = 1, channels: int = 1, rate: int = 8_000, bits: int = 16, **sizes: int) -> bytes:
    """A WAV file by hand; `data_size` and `riff_size` may lie."""
    a_frame = channels * bits // 8
    form = struct.pack("<HHIIHH", codec, channels, rate, rate * a_frame, a_frame, bits)
    riff = sizes.get("riff_size", 36 + len(data))
    head = b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + struct.pack("<I", 16) + form
    return head + b"data" + struct.pack("<I", sizes.get("data_size", len(data))) + data


PCM = (np.sin(np.arange(8_000) / 5) * 20_000).astype("<i2").tobytes()
"""One second at 8 kHz."""


@pytest.fixture
def put(tmp_path):
    """Writes bytes under a name and gives the path."""

    def write(data: bytes, name: str = "clip.wav") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def sound(tmp_path):
    """Writes samples by soundfile and gives the path."""

    def write(samples: np.ndarray, rate: int = 44_100, name: str = "clip.wav", **how: str) -> Path:
        path = tmp_path / name
        soundfile.write(path, samples, rate, **how)
        return path

    return write


def by_pyav(path: Path, samples: np.ndarray, rate: int, codec: str, container: str) -> Path:
    """Writes [frame, channel] by PyAV."""
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[samples.shape[1]]
    with av.open(str(path), "w", format=container) as out:
        track = out.add_stream(codec, rate=rate, layout=layout)
        track.bit_rate = 128_000
        resampler = av.AudioResampler(format=track.codec_context.codec.audio_formats[0], layout=layout, rate=rate)
        for start in range(0, len(samples), 1024):
            part = np.ascontiguousarray(samples[start : start + 1024].T)
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout=layout)
            frame.rate, frame.pts = rate, start
            for each in resampler.resample(frame):
                out.mux(track.encode(each))
        out.mux(track.encode(None))
    return path


def loudness(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def in_a_process(code: str, *arguments: str | Path) -> str:
    """What the code prints in a fresh process; a hang is an error."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Formats


SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]


@pytest.mark.case("A12", "A15", "A16")
@pytest.mark.parametrize(
    ("form", "subtype", "channels"),
    [
        *((form, subtype, channels) for form in ("WAV", "WAVEX") for subtype in SUBTYPES for channels in (1, 2, 8)),
        *(("WAV", subtype, channels) for subtype in ("IMA_ADPCM", "MS_ADPCM") for channels in (1, 2)),
    ],
)
def test_every_kind_of_wav_decodes(sound, form, subtype, channels):
    samples = tone(0.2, channels=channels)
    got = decode.load(sound(samples, format=form, subtype=subtype))
    assert (got.rate, got.native_rate, got.channels, got.problems) == (44_100, 44_100, channels, ())
    error = got.samples[: len(samples)] - samples.mean(axis=1)
    assert loudness(error) < 0.03 * loudness(samples)


@pytest.mark.case("A12", "A17")
@pytest.mark.parametrize(
    ("form", "subtype", "how"),
    [
        ("AIFF", "PCM_S8", {}),
        ("AIFF", "PCM_16", {"endian": "LITTLE"}),  # sowt
        ("AIFF", "PCM_24", {}),
        ("AIFF", "FLOAT", {}),
        ("AIFF", "DOUBLE", {}),  # fl64
        ("AIFF", "ALAW", {}),
        ("AU", "PCM_24", {}),
        ("CAF", "PCM_16", {}),
        ("CAF", "ALAC_16", {}),
        ("W64", "PCM_16", {}),
        ("RF64", "PCM_16", {}),
        ("FLAC", "PCM_24", {}),
        ("OGG", "VORBIS", {}),
        ("OGG", "OPUS", {}),
        ("MP3", "MPEG_LAYER_III", {}),
        ("NIST", "PCM_16", {}),
        ("VOC", "PCM_16", {}),
    ],
)
def test_other_formats_decode_whatever_the_name_says(sound, form, subtype, how):
    samples = tone(1.0, 48_000, channels=2)
    got = decode.load(sound(samples, 48_000, "clip.txt", format=form, subtype=subtype, **how))
    assert (got.rate, got.channels, got.problems) == (48_000, 2, ())
    assert abs(len(got.samples) - len(samples)) <= 2 * 1152
    assert loudness(got.samples) == pytest.approx(loudness(samples.mean(axis=1)), rel=0.05)


@pytest.mark.case("A12")
@pytest.mark.parametrize(
    ("codec", "container", "channels"),
    [
        ("aac", "mp4", 2),
        ("aac", "mp4", 6),
        ("aac", "adts", 1),
        ("ac3", "ac3", 2),
        ("wmav2", "asf", 2),
        ("flac", "matroska", 2),
        ("opus", "webm", 2),
        ("wavpack", "wv", 1),
        ("tta", "tta", 2),
        ("pcm_s16le", "avi", 1),
    ],
)
def test_what_soundfile_does_not_read_pyav_does(tmp_path, codec, container, channels):
    samples = tone(1.0, 48_000, channels=channels)
    got = decode.load(by_pyav(tmp_path / "clip.wav", samples, 48_000, codec, container))
    assert (got.rate, got.channels, got.problems) == (48_000, channels, ())
    assert abs(len(got.samples) - len(samples)) <= 4096
    # ten milliseconds of the lossy codecs' start are left out
    assert loudness(got.samples[4800:-4800]) == pytest.approx(loudness(samples.mean(axis=1)[4800:-4800]), rel=0.1)


@pytest.mark.case("A17")
def test_aiff_c_of_an_unknown_kind_is_refused_by_its_name(put):
    comm = struct.pack(">hIh", 1, 100, 24) + b"\x40\x0e\xac\x44" + bytes(6) + b"in24\x00\x00"
    body = b"AIFCCOMM" + struct.pack(">I", len(comm)) + comm + b"SSND" + struct.pack(">I", 308) + bytes(8) + b"\1" * 300
    path = put(b"FORM" + struct.pack(">I", len(body)) + body, "a.aifc")
    try:
        assert len(decode.load(path).samples) == 100
    except DataError as error:
        assert "AIFF" in str(error)  # noqa: PT017  (either is right)


@pytest.mark.case("A18")
@pytest.mark.parametrize("before", ["zeros", "junk", "picture"])
def test_mp3_behind_zeros_junk_or_two_megabytes_of_picture(sound, put, before):
    mp3 = sound(tone(2.0), format="MP3").read_bytes()
    size = 2_000_000
    tag = b"ID3\x03\x00\x00" + bytes((size >> shift) & 0x7F for shift in (21, 14, 7, 0))
    front = {"zeros": bytes(4096), "junk": b"\x11\x90junk" * 100, "picture": tag + b"\xff\xd8\xff" + bytes(size - 3)}
    got = decode.load(put(front[before] + mp3, "clip.mp3"))
    assert abs(len(got.samples) - 2 * 44_100) < 3 * 1152
    assert loudness(got.samples) == pytest.approx(0.3535, rel=0.05)


@pytest.mark.case("A15")
def test_refusals_name_the_real_format(put):
    with pytest.raises(DataError, match=r"WAV, PCM, 36 bits a sample"):
        decode.load(put(wav(bytes(45), bits=36)))
    with pytest.raises(DataError, match=r"WAV, codec 0x1234"):
        decode.load(put(wav(PCM, codec=0x1234)))
    for head, name in {b"MThd\0\0\0\6": "MIDI", b"\x89PNG\r\n\x1a\n": "PNG picture", b"PK\3\4": "ZIP archive"}.items():
        with pytest.raises(DataError, match=name):
            decode.load(put(head + bytes(range(256)) * 8))


# Channels and rates


@pytest.mark.case("A10")
def test_stereo_is_the_mean_of_its_channels_and_as_long_as_it_is(sound):
    left, silent = tone(6.0), np.zeros_like(tone(6.0))
    both = decode.load(sound(np.hstack([left, left]), subtype="FLOAT"))
    assert len(both.samples) == 6 * 44_100
    np.testing.assert_array_equal(both.samples, left[:, 0])
    for pair in (np.hstack([left, silent]), np.hstack([silent, left])):
        np.testing.assert_array_equal(decode.load(sound(pair, subtype="FLOAT")).samples, left[:, 0] / 2)


@pytest.mark.case("A13", "A14")
@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000, 192_000])
def test_a_tone_of_any_rate_is_brought_to_the_wanted_one(sound, rate):
    path = sound(tone(2.0, rate, 1_000.0), rate, subtype="FLOAT")
    got = decode.load(path, 16_000)
    assert (got.rate, got.native_rate, len(got.samples)) == (16_000, rate, 32_000)
    # away from the ends, the very same tone; soxr's HQ is flat to 1e-3 far below both Nyquist frequencies
    np.testing.assert_allclose(got.samples[2000:-2000], tone(2.0, 16_000, 1_000.0)[2000:-2000, 0], atol=2e-3)


@pytest.mark.case("A13")
def test_arrays_need_their_rate_and_come_out_as_files_do(sound):
    samples = tone(3.0, 22_050, channels=2)
    from_file = decode.load(sound(samples, 22_050, subtype="FLOAT"), 16_000)
    np.testing.assert_array_equal(decode.resampled(samples, 22_050, 16_000), from_file.samples)
    whole = (samples * 32_768).round().astype(np.int16)
    np.testing.assert_allclose(decode.resampled(whole, 22_050, 16_000), from_file.samples, atol=1e-4)
    unsigned = (samples[:, 0] * 128 + 128).astype(np.uint8)
    np.testing.assert_allclose(decode.resampled(unsigned, 22_050, 22_050), samples[:, 0], atol=0.01)
    with pytest.raises(DataError, match="expected"):
        decode.resampled(np.zeros((2, 2, 2)), 8_000, 8_000)
    with pytest.raises(DataError, match="not finite"):
        decode.resampled(np.array([0.0, np.nan]), 8_000, 8_000)
    with pytest.raises(DataError, match="not finite"):
        decode.resampled(np.array([0.0, 1e199]), 8_000, 8_000)


@pytest.mark.case("A13")
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((2, 44_100)), "Transpose it"),
        (np.zeros(10, np.int64), "int64; expected floats"),  # at the full scale of 64 bits all would be silence
        (np.zeros(10, bool), "bool"),
        (np.zeros(10, complex), "complex"),
        (np.array(["a"]), "<U1"),
        (np.array([None]), "object"),
        (np.zeros(0), "expected"),
    ],
)
def test_arrays_that_are_no_waveform_are_refused(samples, message):
    with pytest.raises(DataError, match=message):
        decode.resampled(samples, 44_100, 16_000)


@pytest.mark.case("A13")
@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 16_000.5, 0, "16000", None])
def test_rates_that_are_no_whole_number_are_refused_and_never_hang(rate):
    code = """
import sys
import numpy as np
from earmark.audio import decode, headers
from earmark.errors import ConfigError
rate = eval(sys.argv[1], {"nan": float("nan"), "inf": float("inf")})
for pair in ((rate, 16_000), (16_000, rate)):
    try:
        decode.resampled(np.zeros(100), *pair)
    except ConfigError as error:
        print(error)
"""
    lines = in_a_process(code, repr(rate)).splitlines()
    assert len(lines) == 2
    assert all("expected a whole number" in line for line in lines)


def test_rates_that_no_sound_has_are_refused(sound, put):
    path = sound(tone(0.1))
    for rate in (0, -1, 10**9):
        with pytest.raises(ConfigError, match="expected a whole number, 50 to"):
            decode.load(path, rate)
    with pytest.raises(DataError, match="1 Hz and 1 channels"):
        decode.load(put(wav(PCM, rate=1)))


# Lengths: short, empty, on the grid


@pytest.mark.case("A05")
@pytest.mark.parametrize("samples", [1, 2, 100, 1024])
@pytest.mark.parametrize("rate", [None, 8_000, 96_000])
def test_very_short_clips_decode_at_any_rate_and_have_a_log_mel(sound, samples, rate):
    got = decode.load(sound(tone(1.0)[:samples], subtype="FLOAT"), rate)
    assert len(got.samples) == max(1, round(samples * got.rate / 44_100))
    assert np.isfinite(got.samples).all()
    assert np.isfinite(log_mel(got.samples, got.rate, PAPER).numpy()).all()


@pytest.mark.case("A01", "A02", "A19")
@pytest.mark.parametrize("form", ["WAV", "AIFF", "AU", "OGG", "CAF", "FLAC", "with a list behind"])
def test_no_samples_is_an_error_that_names_the_file(sound, put, form):
    if form == "with a list behind":
        path = put(wav(b"") + b"LIST" + struct.pack("<I", 400) + b"INFO" + b"ab" * 198)
    elif form == "FLAC":  # libsndfile writes nothing at all
        path = put(b"fLaC\x80\x00\x00\x22\x10\x00\x10\x00" + bytes(6) + b"\x0a\xc4\x40\xf0" + bytes(20))
    else:
        path = sound(np.zeros((0, 1), np.float32), format=form)
    for call in (decode.load, lambda path: list(decode.blocks(path))):
        with pytest.raises(DataError, match=r"^\S*clip.wav: .*\b0 samples") as caught:
            call(path)
        assert "\n" not in str(caught.value)


@pytest.mark.case("A01")
def test_a_file_of_no_bytes_is_called_empty(put):
    with pytest.raises(DataError, match=r"clip.wav: empty \(0 bytes\)"):
        decode.load(put(b""))


@pytest.mark.case("A19")
@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100])
def test_an_mp3_of_varying_bit_rate_is_read_to_its_end_though_no_header_counts_its_frames(tmp_path, rate):
    samples = np.concatenate([np.zeros(rate * 20), 0.3 * np.random.default_rng(0).standard_normal(rate * 40)])
    path = tmp_path / "vbr.mp3"
    soundfile.write(path, samples, rate, format="MP3", bitrate_mode="VARIABLE", compression_level=0.5)
    whole = path.read_bytes()
    mark = whole.index(b"Xing")
    begin = whole.index(b"\xff", mark)  # the frame behind the one that counts
    while headers._mpeg_frame(whole[begin : begin + 4]) == 0:
        begin = whole.index(b"\xff", begin + 1)
    path.write_bytes(whole[begin:])
    got = decode.load(path)
    assert len(got.samples) / rate == pytest.approx(60, abs=0.3)
    assert not any("truncated" in problem for problem in got.problems)


def test_the_lengths_of_mpeg_frames_are_those_of_the_standard():
    assert headers._mpeg_frame(bytes([0xFF, 0xFB, 0x90, 0x00])) == 417  # MPEG 1, 128 kbit/s, 44.1 kHz
    assert headers._mpeg_frame(bytes([0xFF, 0xFB, 0x92, 0x00])) == 418  # padded
    assert headers._mpeg_frame(bytes([0xFF, 0xF3, 0x80, 0x00])) == 208  # MPEG 2, 64 kbit/s, 22.05 kHz
    assert headers._mpeg_frame(bytes([0xFF, 0xE3, 0x48, 0x00])) == 288  # MPEG 2.5, 32 kbit/s, 8 kHz
    assert headers._mpeg_frame(bytes([0xFF, 0xFB, 0xF0, 0x00])) == 0


def test_an_mp3_without_frames_has_no_audio(put):
    with pytest.raises(DataError, match="no audio decoded"):
        decode.load(put(b"\xff\xfb\x90\x00" + bytes(50) + bytes(range(1, 255)), "clip.mp3"))
    with pytest.raises(DataError, match="cut within its ID3 tag"):
        decode.load(put(b"ID3\x03\x00\x00\x00\x00\x7f\x7f" + bytes(range(256)), "clip.mp3"))


@pytest.mark.case("A03", "A26", "M03")
@pytest.mark.parametrize("extra", [-1, 0, 1, 4000])
@pytest.mark.parametrize("rate", [None, 16_000])
def test_blocks_hold_every_sample_once_and_none_is_empty(sound, extra, rate):
    path = sound(tone(1.0 * 30 + extra / 8_000, 8_000, channels=2), 8_000)
    whole = decode.load(path, rate)
    parts = list(decode.blocks(path, rate, seconds=10.0))
    a_block = 10 * whole.rate
    assert [len(part) for part in parts] == [
        min(a_block, len(whole.samples) - start) for start in range(0, len(whole.samples), a_block)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole.samples)


@pytest.mark.case("M01")
@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_load_is_the_blocks_bit_for_bit_whatever_their_length(sound, form):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (44_100 * 9, 2)).astype(np.float32)
    path = sound(noise, format=form)
    whole = decode.load(path, 16_000)
    for seconds in (0.01, 1.0, 3.3, 1e6):
        np.testing.assert_array_equal(np.concatenate(list(decode.blocks(path, 16_000, seconds))), whole.samples)
    np.testing.assert_array_equal(decode.load(path, 16_000).samples, whole.samples)


def test_blocks_of_no_length_are_refused(sound):
    for seconds in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="expected more than 0"):
            list(decode.blocks(sound(tone(0.1)), seconds=seconds))


@pytest.mark.case("A03", "A04")
def test_windows_stand_once_each():
    assert decode.windows(15, 10, 5) == [(0, 10), (5, 15)]
    assert decode.windows(20, 10, 10) == [(0, 10), (10, 20)]
    assert decode.windows(21, 10, 10) == [(0, 10), (10, 20), (20, 21)]
    assert decode.windows(10, 10, 5) == [(0, 10)]
    assert decode.windows(1, 10, 5) == [(0, 1)]
    for wrong in ((0, 10, 5), (10, 10, 0), (10, 5, 10)):
        with pytest.raises(ConfigError, match="expected"):
            decode.windows(*wrong)


@given(st.integers(1, 500), st.integers(1, 60), st.data())
def test_windows_cover_every_sample_and_none_lies_within_another(samples, window, data):
    hop = data.draw(st.integers(1, window))
    found = decode.windows(samples, window, hop)
    assert found[0][0] == 0
    assert found[-1][1] == samples
    assert all(0 < stop - start <= window for start, stop in found)
    assert all(b[0] == a[0] + hop and b[0] <= a[1] < b[1] for a, b in pairwise(found))


# Samples that are odd


@pytest.mark.case("A06")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rate", [None, 8_000])
def test_samples_that_are_not_finite_become_0_and_are_counted(sound, value, rate):
    samples = tone(1.0, channels=2)
    samples[1000, 0] = value
    got = decode.load(sound(samples, subtype="FLOAT"), rate)
    assert np.isfinite(got.samples).all()
    assert got.problems == ("not finite: 1 samples, set to 0",)
    if rate is None:
        samples[1000, 0] = 0
        np.testing.assert_array_equal(got.samples, samples.mean(axis=1))


@pytest.mark.case("A07")
@pytest.mark.parametrize(("subtype", "value"), [("DOUBLE", 1e199), ("FLOAT", 3e38), ("DOUBLE", -1e38)])
def test_huge_values_are_not_finite_and_not_loud(sound, subtype, value):
    samples = tone(1.0, channels=2).astype(np.float64)
    samples[5] = value
    got = decode.load(sound(samples, subtype=subtype), 16_000)
    assert np.abs(got.samples).max() < 1
    assert got.problems == ("not finite: 2 samples, set to 0",)
    assert np.isfinite(log_mel(got.samples, 16_000).numpy()).all()


def test_loud_silent_and_cancelling_files_are_reported(sound):
    loud = decode.load(sound(6 * tone(0.1), subtype="FLOAT"))
    assert loud.problems == ("clipping: peaks at 3, above full scale",)
    assert loud.samples.max() > 2.9
    assert decode.load(sound(np.zeros(1000), subtype="PCM_16")).problems == ("silent: every sample is 0",)
    cancelling = np.hstack([tone(0.1), -tone(0.1)])
    assert decode.load(sound(cancelling, subtype="FLOAT")).problems == ("silent: the channels cancel each other",)
    assert decode.load(sound(np.ones(100), subtype="PCM_16")).problems == ()


# Lengths that are not what the header says


@pytest.mark.case("A23")
@pytest.mark.parametrize("riff_size", [0, 8, 36, 0xFFFFFFFF])
@pytest.mark.parametrize("data_size", [0, 0xFFFFFFFF])
def test_streaming_wavs_are_read_to_their_end(put, data_size, riff_size):
    got = decode.load(put(wav(PCM, data_size=data_size, riff_size=riff_size)))
    np.testing.assert_array_equal(got.samples, np.frombuffer(PCM, "<i2").astype(np.float32) / 32768)
    stated = "0 bytes" if data_size == 0 else "0xFFFFFFFF bytes"
    assert got.problems == (f"the header states {stated} of sound; the file holds 16000",)


def test_lengths_that_are_wrong_are_reported(put):
    cut = decode.load(put(wav(PCM)[:-8000]))
    assert len(cut.samples) == 4000
    assert cut.problems == ("truncated: 0.50 s decoded, the file states 1.00 s",)
    longer = decode.load(put(wav(PCM, data_size=8000)))
    assert len(longer.samples) == 4000
    assert "wrong length: the header states 8000 bytes of sound; 8000 more follow it unread" in longer.problems
    chunks = wav(PCM) + b"LIST" + struct.pack("<I", 4) + b"INFO" + b"id3 " + struct.pack("<I", 3) + b"abc\0"
    assert decode.load(put(chunks)).problems == ()


@pytest.mark.case("A22")
@pytest.mark.parametrize("form", ["FLAC", "AIFF", "AU", "CAF", "W64", "RF64", "OGG", "MP3"])
@pytest.mark.parametrize("share", [0.9, 0.5])
def test_a_cut_file_keeps_what_it_holds_says_so_and_never_hangs(sound, put, form, share):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (44_100 * 6, 1)).astype(np.float32)
    data = sound(noise, format=form).read_bytes()
    path = put(data[: int(len(data) * share)], f"cut{share}")
    code = (
        "import sys; from earmark.audio import decode; s = decode.load(sys.argv[1]); print(len(s.samples), s.problems)"
    )
    frames, problems = in_a_process(code, path).split(" ", 1)
    assert 0.5 * share * len(noise) < int(frames) < len(noise) * min(1, share + 0.1)
    assert "truncated" in problems


@pytest.mark.parametrize(("codec", "container"), [("flac", "matroska"), ("alac", "ipod"), ("wmav2", "asf")])
def test_a_cut_file_that_pyav_reads_says_so_or_cannot_be_decoded(tmp_path, put, codec, container):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (44_100 * 6, 1)).astype(np.float32)
    data = by_pyav(tmp_path / "whole", noise, 44_100, codec, container).read_bytes()
    path = put(data[: len(data) // 2])
    if container == "ipod":  # its table of contents stands at the end
        with pytest.raises(DataError, match="no audio decoded from MP4"):
            decode.load(path)
        return
    got = decode.load(path)
    assert 44_100 < len(got.samples) < 4 * 44_100
    assert any("truncated" in problem for problem in got.problems)


@pytest.mark.case("A24")
def test_rf64_and_sizes_beyond_32_bits(put):
    form = struct.pack("<HHIIHH", 1, 1, 8_000, 16_000, 2, 16)
    ds64 = struct.pack("<QQQI", 28 + 36 + len(PCM), len(PCM), 8_000, 0)
    head = b"RF64\xff\xff\xff\xffWAVEds64" + struct.pack("<I", 28) + ds64 + b"fmt " + struct.pack("<I", 16) + form
    got = decode.load(put(head + b"data\xff\xff\xff\xff" + PCM))
    assert (len(got.samples), got.problems) == (8_000, ())
    huge = struct.pack("<QQQI", 1 << 40, 1 << 34, 1 << 33, 0)  # states 16 GB, of which it has one second
    got = decode.load(put(head.replace(ds64, huge) + b"data\xff\xff\xff\xff" + PCM))
    assert len(got.samples) == 8_000
    assert got.problems == ("truncated: 1.00 s decoded, the file states 1073741.82 s",)


@pytest.mark.case("A24")
def test_five_gigabytes_are_streamed_from_their_start_to_their_end(tmp_path):
    path = tmp_path / "huge.wav"
    size = 5 << 30
    form = struct.pack("<HHIIHH", 1, 2, 192_000, 768_000, 4, 16)
    ds64 = struct.pack("<QQQI", size + 72, size, size // 4, 0)
    with path.open("wb") as file:  # sparse: takes no room
        file.write(b"RF64\xff\xff\xff\xffWAVEds64" + struct.pack("<I", 28) + ds64)
        file.write(b"fmt " + struct.pack("<I", 16) + form + b"data\xff\xff\xff\xff" + PCM)
        file.truncate(80 + size)
    stream = decode.blocks(path, seconds=0.02)
    assert np.abs(next(stream)).max() > 0.5
    stream.close()
    with path.open("rb") as file:
        header = decode.read_header(file)
    assert (header.frames, header.problem) == (size // 4, "")


def test_a_gigabyte_of_zeros_behind_a_header_is_given_up_at_once(tmp_path):
    path = tmp_path / "allocated.wav"
    with path.open("wb") as file:  # as a download or a recording that never came leaves it
        file.write(b"RIFF\xff\xff\xff\xffWAVE")
        file.truncate(1 << 30)
    begin = time.perf_counter()
    with pytest.raises(DataError, match=r"allocated.wav: WAV with 10,000 chunks and no sound among them"):
        decode.load(path)
    assert time.perf_counter() - begin < 10  # libsndfile takes over a minute


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_ogg_streams_one_behind_the_other_are_read_to_the_end(sound, put, subtype):
    parts = [sound(tone(seconds, 48_000), 48_000, format="OGG", subtype=subtype).read_bytes() for seconds in (1.0, 2.0)]
    serials = {part[14:18] for part in parts}
    assert len(serials) == 2
    path = put(b"".join(parts), "radio.ogg")
    got = decode.load(path)
    assert len(got.samples) == pytest.approx(3 * 48_000, abs=2048)
    assert got.problems == ()
    code = """
import sys
sys.modules["av"] = None
from earmark.audio import decode, headers
print(decode.load(sys.argv[1]).problems)
"""
    assert "truncated: several Ogg streams" in in_a_process(code, path)


@pytest.mark.parametrize("gone", [137, 5000])
def test_a_recording_that_begins_within_a_packet_is_read_from_the_next_one(tmp_path, put, gone):
    data = by_pyav(tmp_path / "whole", tone(2.0, 48_000), 48_000, "ac3", "ac3").read_bytes()
    got = decode.load(put(data[gone:], "cut.ac3"))
    assert len(got.samples) > 1.5 * 48_000
    assert got.problems == ("truncated: begins with broken packets, 1 left out",)


def test_a_damaged_flac_that_only_pyav_reads_on_says_so(sound, put):
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, 44_100 * 2)
    data = bytearray(sound(noise, format="FLAC").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4000] = bytes(4000)
    got = decode.load(put(bytes(data), "hurt.flac"))
    assert 0.9 * len(noise) < len(got.samples) < len(noise)
    assert got.problems == ("damaged: soundfile gave up (flac decoder lost sync)",)


# Memory and processes


@pytest.mark.case("A25")
def test_two_hours_are_streamed_in_little_memory(tmp_path):
    path = tmp_path / "long.flac"
    with soundfile.SoundFile(path, "w", 16_000, 1, format="FLAC") as file:
        minute = tone(60.0, 16_000)
        for _ in range(120):
            file.write(minute)
    code = """
import sys
from pathlib import Path
from earmark.audio import decode, headers
lengths = [len(block) for block in decode.blocks(sys.argv[1], 44_100)]
assert not {"torch", "scipy", "av"} & set(sys.modules), "heavy imports"
status = Path("/proc/self/status").read_text()  # getrusage would count what this process was forked from
print(sum(lengths), len(lengths), int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""
    if not Path("/proc/self/status").is_file():
        pytest.skip("peak memory is read from /proc")
    samples, count, megabytes = map(int, in_a_process(code, path).split())
    assert samples == 7_200 * 44_100
    assert count == 720
    assert megabytes < 150


@pytest.mark.case("A25")
@pytest.mark.parametrize("container", ["matroska", "adts"])
def test_what_pyav_reads_is_streamed_in_little_memory_too(tmp_path, container):
    codec = "flac" if container == "matroska" else "aac"
    path = by_pyav(tmp_path / "long", np.tile(tone(10.0, 16_000), (30, 1)), 16_000, codec, container)
    for _ in decode.blocks(path):  # what is imported once is not counted
        break
    tracemalloc.start()
    total = sum(len(block) for block in decode.blocks(path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == pytest.approx(300 * 16_000, abs=4096)
    assert most < 5e6  # all of it takes 19e6


@pytest.mark.case("A34")
def test_without_pyav_soundfile_still_reads_and_the_rest_says_what_is_missing(sound, tmp_path):
    good = sound(tone(0.5))
    other = by_pyav(tmp_path / "clip.m4a", tone(0.5), 44_100, "aac", "mp4")
    code = """
import sys
sys.modules["av"] = None
from earmark.audio import decode, headers
print(len(decode.load(sys.argv[1]).samples))
try:
    decode.load(sys.argv[2])
except decode.DataError as error:
    print(error)
"""
    frames, message = in_a_process(code, good, other).splitlines()
    assert frames == "22050"
    assert "MP4" in message
    assert "PyAV: cannot be imported" in message


@pytest.mark.case("A33")
def test_a_corrupt_file_leaves_its_neighbours_alone(sound, put, tmp_path):
    good = [sound(tone(0.3, hertz=200 + 50 * k), name=f"{k}.flac", format="FLAC") for k in range(10)]
    bad = put(b"fLaC" + bytes(range(256)) * 4, "bad.flac")
    alone = [decode.load(path).samples for path in good]
    together = []
    for path in [*good[:5], bad, *good[5:]]:
        try:
            together.append(decode.load(path).samples)
        except DataError as error:
            assert path == bad, error  # noqa: PT017
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


# Names and things that are no sound


@pytest.mark.case("A29")
@pytest.mark.parametrize(
    "name",
    ["音声☃🎵.wav", "cafe\u0301.wav", "caf\u00e9.wav", b"caf\xe9\xff.wav", " a;b,c#[d] .wav", "a\nb.wav", "a%d.wav"],
)
@pytest.mark.parametrize("form", ["WAV", "m4a"])
def test_any_name_is_read_and_can_be_said(tmp_path, name, form):
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))  # noqa: PTH118
    samples = tone(0.2)
    soundfile.write(tmp_path / "plain", samples, 44_100, format="WAV")
    if form == "m4a":
        by_pyav(tmp_path / "plain", samples, 44_100, "aac", "mp4")
    try:
        os.rename(os.fsencode(tmp_path / "plain"), path)  # noqa: PTH104
    except OSError:
        pytest.skip("the file system refuses the name")
    for said in (path, os.fsdecode(path), Path(os.fsdecode(path))):
        assert len(decode.load(said).samples) >= len(samples)
    with open(path, "wb"):  # noqa: PTH123
        pass
    with pytest.raises(DataError, match="empty") as caught:
        decode.load(path)
    assert "\n" not in str(caught.value)
    str(caught.value).encode()  # can be printed and written as JSON


@pytest.mark.case("A30")
@pytest.mark.parametrize("name", ["-y.wav", "-show_entries", "-", "pipe:0", "concat:a.wav", "http://a", "-i"])
def test_names_that_look_like_options_or_addresses_are_files(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    by_pyav(tmp_path / "plain", tone(0.2), 44_100, "aac", "mp4")
    Path("plain").rename(name)
    assert len(decode.load(name).samples) >= 8820


def test_a_playlist_opens_no_other_file(sound, put, tmp_path):
    sound(tone(0.2), name="a.wav")
    for text in (
        f"#EXTM3U\n{tmp_path}/a.wav\n",
        f"ffconcat version 1.0\nfile {tmp_path}/a.wav\n",
        f"{tmp_path}/ä.wav\n",
    ):
        with pytest.raises(DataError, match="text, not a sound"):
            decode.load(put(text.encode(), "list.wav"))


@pytest.mark.case("A31", "A35")
@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X" + bytes(80), "AppleDouble"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n", "Git-LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "a web page"),
        (b"file_name,caption_1\na.wav,A dog barks\n", "text"),
        ("Übergröße\n".encode() * 600, "text"),  # cut within a character
        ("name,text\n".encode("utf-16"), "text"),
        (bytes(100), "nothing but zero bytes"),
        (b"RIFF", "WAV"),
        (b"OggS", "Ogg"),
    ],
)
def test_what_is_no_sound_is_called_what_it_is(put, data, cause):
    with pytest.raises(DataError, match=rf"^\S*._kick.wav: .*{cause}") as caught:
        decode.load(put(data, "._kick.wav"))
    assert "\n" not in str(caught.value)


@pytest.mark.case("A35")
def test_files_that_cannot_be_opened_say_why(sound, tmp_path):
    with pytest.raises(DataError, match=r"nowhere.wav: cannot be read \(No such file or directory\)"):
        decode.load(tmp_path / "nowhere.wav")
    with pytest.raises(DataError, match="a folder"):
        decode.load(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        decode.load("a\0b.wav")
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(DataError, match="not a regular file"):
        decode.load(tmp_path / "pipe.wav")
    path = sound(tone(0.1), name="locked.wav")
    path.chmod(0)
    if os.access(path, os.R_OK):
        return  # root reads everything
    with pytest.raises(DataError, match="Permission denied"):
        decode.load(path)


# Anything at all


def mutated(data: bytes, seed: int) -> bytes:
    """A few bytes changed, most of them in the header, perhaps a part cut out."""
    chance = np.random.default_rng(seed)
    out = bytearray(data)
    for _ in range(int(chance.integers(1, 12))):
        reach = len(out) if chance.random() < 0.3 else min(len(out), 80)
        out[int(chance.integers(reach))] = int(chance.choice([0, 1, 127, 128, 255, chance.integers(256)]))
    if chance.random() < 0.3:
        del out[int(chance.integers(len(out))) :]
    return bytes(out)


@pytest.mark.parametrize("form", ["WAV", "AIFF", "FLAC", "OGG", "MP3", "CAF", "AU", "m4a", "mka"])
def test_damaged_files_give_finite_samples_or_one_line(sound, tmp_path, form):
    if form in ("m4a", "mka"):
        path = by_pyav(tmp_path / "whole", tone(0.2), 44_100, "aac", "mp4" if form == "m4a" else "matroska")
    else:
        path = sound(tone(0.2), format=form)
    data = path.read_bytes()
    folder = tmp_path / "damaged"
    folder.mkdir()
    for seed in range(60):
        (folder / f"{seed}").write_bytes(mutated(data, seed))
    # in a process of its own: a crash of a decoder would end it
    assert in_a_process(EVERY_FILE, folder).splitlines()[-1] == "60"


EVERY_FILE = """
import sys
from pathlib import Path
import numpy as np
from earmark.audio import decode, headers
count = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        found = decode.load(path, 16_000)
        assert found.samples.dtype == np.float32 and len(found.samples) and np.isfinite(found.samples).all(), path
        assert all(problem and "\\n" not in problem for problem in found.problems), path
        print(path.name, len(found.samples), *found.problems, sep="\\t")
    except decode.DataError as error:
        assert str(error).startswith(str(path)) and "\\n" not in str(error), error
        print(path.name, 0, str(error), sep="\\t")
    count += 1
print(count)
"""


# Real files


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_odd_file_decodes_or_says_why_not(real_data):
    rows = rows_of(real_data / "odd.csv")
    *lines, count = in_a_process(EVERY_FILE, real_data / "odd").splitlines()
    assert int(count) == len(rows) == len(lines)
    found = {line.split("\t")[0]: line.split("\t")[1:] for line in lines}
    for row in rows:
        length, *said = found[row["file"]]
        if row["libsndfile_reads"] == "yes":
            expected = int(row["frames"]) * 16_000 / int(row["samplerate"])
            assert abs(int(length) - expected) <= 1, row
        if "cut short" in row["odd"] or (row["libsndfile_reads"] == "partly" and "MPEG" in row["format"]):
            stated = int(row["frames"]) / int(row["samplerate"])
            if "cut short" in row["odd"] or stated - int(length) / 16_000 > 0.11:
                assert "truncated" in " ".join(said), row
        if row["libsndfile_reads"] == "no" and not int(length):
            assert said, row


def test_the_library_decodes_to_the_lengths_and_peaks_of_its_table(real_data):
    for row in rows_of(real_data / "library.csv"):
        got = decode.load(real_data / "library" / row["file"])
        assert (got.rate, got.channels) == (int(row["samplerate"]), int(row["channels"])), row
        assert len(got.samples) / got.rate == pytest.approx(float(row["decoded_s"]), abs=1e-3), row
        if got.channels == 1:
            assert np.abs(got.samples).max() == pytest.approx(float(row["peak"]), abs=2e-4), row
        clipping = f"clipping: peaks at {float(row['peak']):.3g}, above full scale"
        assert [problem[:12] for problem in got.problems] == ([clipping[:12]] if float(row["peak"]) > 1.001 else []), (
            row
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what librosa imports
def test_real_files_resample_as_librosa_does(real_data):
    librosa = pytest.importorskip("librosa")
    for row in rows_of(real_data / "library.csv")[::60]:
        path = real_data / "library" / row["file"]
        expected, _ = librosa.load(path, sr=16_000)
        got = decode.load(path, 16_000).samples
        size = min(len(got), len(expected))
        assert abs(len(got) - len(expected)) <= 1
        np.testing.assert_allclose(got[:size], expected[:size], atol=1e-3)


def test_earmark_errors_are_what_is_raised():
    assert issubclass(DataError, EarmarkError)
