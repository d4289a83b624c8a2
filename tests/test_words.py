"""The words that a file carries are found wherever programs write them, and nothing in a file can hurt its reader."""

from __future__ import annotations

import csv
import os
import re
import struct
import tracemalloc
import unicodedata
import zlib
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark.audio.decode import load
from earmark.audio.headers import HUGE, read_header
from earmark.search import ucs
from earmark.search.fields import MOST_TEXT, fields
from earmark.search.tags import text_of
from earmark.search.words import _IDS, _TAGS, _TEXTS, MOST_TAGS, MOST_WORDS, carried, split_name

pytest.importorskip("mutagen", reason="the extra `search` is not installed")


def chunk(name: bytes, data: bytes, order: str = "<") -> bytes:
    return name + struct.pack(order + "I", len(data)) + data + b"\0" * (len(data) % 2)


def wave(*chunks: bytes, mark: bytes = b"RIFF") -> bytes:
    """A WAV file of a few samples, the chunks behind them."""
    order = ">" if mark == b"RIFX" else "<"
    form = chunk(b"fmt ", struct.pack(order + "HHIIHH", 1, 1, 8000, 16000, 2, 16), order)
    body = b"WAVE" + form + chunk(b"data", bytes(200), order) + b"".join(chunks)
    return mark + struct.pack(order + "I", len(body)) + body


def info(**texts: bytes) -> bytes:
    return chunk(b"LIST", b"INFO" + b"".join(chunk(name.encode(), text) for name, text in texts.items()))


def id3(*frames: bytes, version: int = 4, flags: int = 0) -> bytes:
    body = b"".join(frames)
    size = bytes(len(body) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3" + bytes([version, 0, flags]) + size + body


def frame(name: bytes, content: bytes, flags: int = 0, version: int = 4) -> bytes:
    size = len(content)
    coded = bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) if version == 4 else size.to_bytes(4)
    return name + coded + bytes([0, flags]) + content


def of_bytes(folder: Path, data: bytes, name: str = "x.wav"):
    (folder / name).write_bytes(data)
    return carried(folder / name, folder / name)


# Names


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ClonkDie", "clonk die clonkdie"),
        ("RBird2", "r bird 2 rbird2"),
        ("BBQ", "bbq"),
        ("kick_01.v2-final mix", "kick 01 v2 final mix"),
        ("door3close", "door 3 close door3close"),
        ("3D-Door", "3d door"),
        ("ÄhmÖl", "ähm öl ähmöl"),
        ("雨の音_02", "雨の音 02"),
        ("हिन्दी", "हिन्दी"),
        ("rain☂on🏠roof", "rain on roof"),
        ("e5471f5b5839", "e5471f5b5839"),
        ("...", ""),
    ],
)
def test_names_are_split_where_a_new_word_begins(name, words):
    assert split_name(name) == words


@given(st.text(max_size=40))
def test_splitting_loses_no_letter_and_no_digit(name):
    name = unicodedata.normalize("NFC", name)
    kept = [mark for mark in name if unicodedata.category(mark)[0] in "LNM"]
    split = split_name(name)
    assert "".join(split.split()).startswith("".join(kept).lower())
    assert split == " ".join(split.split())


def test_the_told_folder_and_those_between_count_and_those_above_do_not(tmp_path):
    path = tmp_path / "Rain Sounds" / "OnRoof" / "take_1.wav"
    path.parent.mkdir(parents=True)
    path.write_bytes(wave())
    assert carried(path, tmp_path / "Rain Sounds").words == "take 1; rain sounds; on roof onroof"
    assert carried(path, path.parent).words == "take 1; on roof onroof"
    assert carried(path, path).words == "take 1"
    assert carried(path, Path("/elsewhere")).words == "take 1"


@pytest.mark.case("A29", "A30")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (b"caf\xe9 noir.wav", "café noir"),
        ("cafe\u0301.wav".encode(), "café"),
        ("雨☃🏠.wav".encode(), "雨"),
        (b"-y.wav", "y"),
        (b"\xff\xfeabcd.wav", "ÿþabcd"),
        ("\ufeffmark.wav".encode(), "mark"),
        (b"a\nb\tc.wav", "a b c"),
    ],
)
def test_any_name_gives_words_in_one_form(tmp_path, name, words):
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(wave())
    found = carried(path, path).words
    assert found == words
    assert found.encode().decode() == unicodedata.normalize("NFC", found)


# Tags


def test_wav_chunks_are_read(tmp_path):
    xml = b"""<?xml version="1.0" encoding="UTF-8"?><BWFXML><PROJECT>Winter</PROJECT><SCENE>12A</SCENE>
    <NOTE>windy take</NOTE><TRACK_LIST><TRACK><NAME>Boom mic</NAME></TRACK></TRACK_LIST>
    <BEXT><BWF_DESCRIPTION>gravel &amp; ice</BWF_DESCRIPTION></BEXT>
    <USER><KEYWORDS>Cold, Crunchy; steps/boots</KEYWORDS><CATID>FEETHmn</CATID><FXNAME>Slow Walk</FXNAME></USER>
    <ASWG><subCategory>HUMAN</subCategory></ASWG></BWFXML>"""
    data = wave(
        info(INAM=b"Footsteps\0", ICMT="hörbar".encode("latin-1"), IGNR=b"Foley", IART=b"Somebody"),
        chunk(b"bext", b"Snow walk, slow".ljust(256, b"\0") + b"Originator".ljust(346, b"\0")),
        chunk(b"iXML", xml),
        chunk(b"id3 ", id3(frame(b"TIT2", b"\x03Boots"), frame(b"TCON", b"\0(17)"))),
    )
    found = of_bytes(tmp_path, data)
    assert found.words.split("; ")[1:] == [
        *("Footsteps", "Slow Walk", "Boots", "Snow walk, slow", "gravel & ice"),
        *("Foley", "Cold, Crunchy", "steps/boots", "footsteps human", "HUMAN", "Rock"),
        *("hörbar", "Winter", "12A", "windy take"),
    ]
    assert found.tags == ("foley", "cold", "crunchy", "steps", "boots", "footsteps", "human", "rock")


@pytest.mark.case("A24")
def test_rf64_rifx_and_aiff_are_read_too(tmp_path):
    text = chunk(b"bext", b"Thunder far away".ljust(602, b"\0"))
    plain = bytearray(wave(text, mark=b"RF64"))
    at = plain.index(b"data")
    plain[4:8] = plain[at + 4 : at + 8] = b"\xff" * 4
    wide = bytes(plain[:12]) + chunk(b"ds64", struct.pack("<QQQI", len(plain), 200, 100, 0)) + bytes(plain[12:])
    assert "Thunder far away" in of_bytes(tmp_path, wide).words
    assert "Thunder far away" in of_bytes(tmp_path, wide.replace(b"RF64", b"BW64", 1)).words
    assert "Drip" in of_bytes(tmp_path, wave(chunk(b"id3 ", id3(frame(b"TIT2", b"\0Drip")), ">"), mark=b"RIFX")).words
    soundfile.write(tmp_path / "x.aiff", np.zeros(100), 8000)
    aiff = (tmp_path / "x.aiff").read_bytes()
    more = chunk(b"NAME", b"Gong", ">") + chunk(b"ANNO", b"struck once", ">")
    more += chunk(b"ID3 ", id3(frame(b"COMM", b"\x01eng\xff\xfe\0\0\xff\xfe" + "soft mallet".encode("utf-16-le"))), ">")
    assert of_bytes(tmp_path, aiff + more, "x.aiff").words == "x; Gong; struck once; soft mallet"


def test_tags_of_vorbis_flac_mp4_and_ape_are_read(tmp_path):
    from mutagen.apev2 import APEv2
    from mutagen.flac import FLAC
    from mutagen.oggopus import OggOpus
    from mutagen.oggvorbis import OggVorbis

    silence = np.zeros(48_000)
    soundfile.write(tmp_path / "x.ogg", silence, 48_000)
    soundfile.write(tmp_path / "x.opus", silence, 48_000, "OPUS", format="OGG")
    soundfile.write(tmp_path / "x.flac", silence, 48_000)
    for ending, kind in (("ogg", OggVorbis), ("opus", OggOpus), ("flac", FLAC)):
        tagged = kind(tmp_path / f"x.{ending}")
        tagged["title"], tagged["genre"], tagged["KEYWORDS"] = "Café door", ["Foley", "Hard FX"], "wood, Heavy"
        tagged["artist"] = "Somebody"
        tagged.save()
        found = carried(tmp_path / f"x.{ending}", tmp_path / f"x.{ending}")
        assert found.words.split("; ")[:2] == ["x", "Café door"], ending
        assert set(found.words.split("; ")[2:]) == {"Foley", "Hard FX", "wood, Heavy"}, ending
        assert set(found.tags) == {"foley", "hard fx", "wood", "heavy"}
    soundfile.write(tmp_path / "x.mp3", silence, 48_000)
    ape = APEv2()
    ape["Title"], ape["Genre"] = "Old gate", ["Creak", "Metal"]
    ape.save(tmp_path / "x.mp3")
    found = carried(tmp_path / "x.mp3", tmp_path / "x.mp3")
    assert found == ("x; Old gate; Creak; Metal", ("creak", "metal"))


def test_an_ape_tag_at_the_start_is_read(tmp_path):
    title = struct.pack("<II", 3, 0) + b"Title\0Owl"
    head = b"APETAGEX" + struct.pack("<IIII8x", 2000, 32 + len(title), 1, 0xA0000000)
    assert of_bytes(tmp_path, head + title + bytes(5000), "x.mpc").words == "x; Owl"


def test_comments_of_ogg_are_those_of_one_stream(tmp_path):
    def page(serial: int, data: bytes) -> bytes:
        head = b"OggS" + bytes(10) + serial.to_bytes(4, "little") + bytes(8)
        return head + bytes([len(data) // 255 + 1]) + b"\xff" * (len(data) // 255) + bytes([len(data) % 255]) + data

    said = b"title=" + b"owl hoots " * 40
    tags = b"OpusTags" + struct.pack("<II", 0, 1) + struct.pack("<I", len(said)) + said
    pages = [page(1, b"OpusHead" + bytes(11)), page(2, b"\x80video" * 9), page(1, tags[:255]), page(2, b"x" * 99)]
    assert of_bytes(tmp_path, b"".join([*pages, page(1, tags[255:])]), "x.ogg").words.count("hoots") == 40


@pytest.mark.parametrize("version", [3, 4])
def test_mp3_tags_of_any_encoding_are_read(tmp_path, version):
    def text(name: bytes, content: bytes, flags: int = 0) -> bytes:
        return frame(name, content, flags, version)

    packed = zlib.compress(b"\x03packed words")
    size = len(b"\x03packed words")
    sized = bytes([0, 0, 0, size])
    data = id3(
        text(b"APIC", b"\0image/png\0\3\0" + bytes(2 << 20)),
        text(b"TIT2", b"\x01\xff\xfe" + "Чайка".encode("utf-16-le")),
        text(b"TALB", b"\x02" + "Seagulls".encode("utf-16-be")),
        text(b"TXXX", b"\x03Keywords\0coast; harbour"),
        text(b"COMM", b"\x00eng\0two birds"),
        text(b"COMM", b"\x00engiTunNORM\0 0000 0001"),
        text(b"TCON", b"\x03Nature\0Birds"),
        text(b"TIT3", sized + packed, 0x09 if version == 4 else 0x80),
        version=version,
    )
    found = of_bytes(tmp_path, data + b"\xff\xfb\x90\x64" + bytes(413), "x.mp3")
    assert found.words == "x; Чайка; packed words; coast; harbour; Nature; Birds; Seagulls; two birds"
    assert found.tags == ("coast", "harbour", "nature", "birds")


def test_real_odd_files_give_what_mutagen_gives(real_data):
    expected = {
        "mutagen__issue_29.wma": "Señor Flamingos Adieu",
        "audiofile__video.mp4": "Big Buck Bunny",
        "taglib__compressed_id3_frame.mp3": "Techno-Dance",
        "taglib__ape.mp3": "Title",
        "taglib__tagged.wv": "TestAlbum",
        "mutagen__bad-POPM-frame.mp3": "Emit and exude",
        "mutagen__52-too-short-block-size.flac": "Folk-Rock",
        "cpython__pluck-pcm16.aiff": "Audacity Pluck + Wahwah",
        "wavefile__Audacity-16bit.wav": "test suite",
        "taglib__duplicate_tags.wav": "Title1",
    }
    for name, words in expected.items():
        assert words in carried(real_data / "odd" / name, real_data / "odd").words, name


def test_all_odd_files_carry_at_least_their_name(real_data):
    paths = sorted((real_data / "odd").iterdir())
    assert len(paths) == 172
    for path in paths:
        words, tags = carried(path, path.parent)
        assert words.startswith(split_name(path.stem)[:20]), path.name
        assert words.isprintable()
        assert len(words) <= MOST_WORDS
        assert all(tag == tag.lower() for tag in tags)


@pytest.mark.case("M15")
def test_labels_that_come_from_names_are_carried_by_the_library(real_data):
    with (real_data / "library.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["how"] == "file name without prefix and numbers"]
    for row in rows:
        words = carried(real_data / "library" / row["file"], real_data / "library").words.split()
        assert set(re.findall(r"\w+", row["text"].lower())) <= {word.strip(";") for word in words}, row["file"]
    assert len(rows) == 218


# What is hostile or damaged


def test_text_is_cleaned_and_bounded(tmp_path):
    keywords = b", ".join(b"word%d" % number for number in range(500))
    data = wave(
        info(INAM=b"a\x07b\x1b[31mc\r\n\xc2\x9bd", ISBJ=b"x" * 50_000, IKEY=b"a," + keywords + b"," + b"long" * 50)
    )
    found = of_bytes(tmp_path, data, "n.wav")
    assert found.words.startswith("n; a b [31mc d; xxx")
    assert found.words.isprintable()
    assert len(found.words) <= MOST_WORDS
    assert len(found.tags) == MOST_TAGS
    assert found.tags[:2] == ("word0", "word1")
    assert max(len(field.text) for field in fields(tmp_path / "n.wav")) == MOST_TEXT


def test_a_long_comment_pushes_no_title_out(tmp_path):
    from mutagen.oggvorbis import OggVorbis

    soundfile.write(tmp_path / "x.ogg", np.zeros(48_000), 48_000)
    tagged = OggVorbis(tmp_path / "x.ogg")
    tagged["comment"], tagged["title"], tagged["description"] = "blah " * 9_000, "Owl", "hoots " * 9_000
    tagged.save()
    words = carried(tmp_path / "x.ogg", tmp_path / "x.ogg").words
    assert words.startswith("x; Owl; hoots hoots")
    assert words.count("hoots") > 300 < words.count("blah")
    assert MOST_WORDS - 20 < len(words) <= MOST_WORDS
    tagged["comment"] = [f"take {number}" for number in range(3_000)]
    tagged.save()
    assert carried(tmp_path / "x.ogg", tmp_path / "x.ogg").words.startswith("x; Owl; hoots hoots")


def test_xml_with_a_document_type_is_not_read_and_cannot_grow(tmp_path):
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "boom">{entities}]><BWFXML><NOTE>&e11;</NOTE></BWFXML>'
    file = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]><BWFXML><NOTE>&e;</NOTE></BWFXML>'
    for text in (bomb, file):
        for data in (text.encode(), b"\xff\xfe" + text.encode("utf-16-le"), b"\xef\xbb\xbf" + text.encode()):
            assert of_bytes(tmp_path, wave(chunk(b"iXML", data))).words == "x"


def test_broken_xml_gives_what_stands_before_the_break(tmp_path):
    text = b"<BWFXML><NOTE>first & foremost</NOTE><SCENE>two</SCENE><PROJECT>three</BWFXML>"
    assert of_bytes(tmp_path, wave(chunk(b"iXML", text))).words == "x; first & foremost; two"
    deep = b"<a>" * 20_000 + b"<NOTE>deep</NOTE>"
    assert of_bytes(tmp_path, wave(chunk(b"iXML", b"<x><NOTE>up</NOTE>" + deep))).words == "x; up; deep"


def test_sizes_that_lie_cost_what_is_behind_them(tmp_path):
    lying = b"bext" + struct.pack("<I", 0xFFFFFFF0) + b"Rain".ljust(602, b"\0")
    assert of_bytes(tmp_path, wave(info(INAM=b"Drops"), lying)).words == "x; Drops; Rain"
    assert of_bytes(tmp_path, wave(info(INAM=b"Drops"), b"\0\1\2\3" * 100)).words == "x; Drops"
    huge = frame(b"TIT2", b"\x03Rain")[:4] + b"\x7f" * 4 + b"\0\0\x03Rain"
    assert of_bytes(tmp_path, id3(huge), "x.mp3").words == "x; Rain"
    nested = chunk(b"LIST", b"INFO" + b"INAM" + struct.pack("<I", 1 << 31) + b"Drops")
    assert of_bytes(tmp_path, wave(nested)).words == "x; Drops"


def test_what_is_packed_cannot_fill_the_memory_nor_many_tiny_frames(tmp_path):
    bomb = b"\0\0\0\0" + zlib.compress(b"\x03" + bytes(40 << 20), 9)
    tiny = id3(*[frame(b"TIT2", b"\x03a")] * 30_000)
    tracemalloc.start()
    assert of_bytes(tmp_path, id3(frame(b"TIT2", bomb, 0x09), frame(b"TALB", b"\x03Sea")), "x.mp3").words == "x; Sea"
    assert of_bytes(tmp_path, tiny, "x.mp3").words == "x; a"
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 << 20


COVER = 60 << 20


def with_cover(folder: Path, kind: str) -> Path:
    """A sound with a title, and before that a picture of `COVER` bytes (of zeros that take no room on the disk)."""
    path = folder / f"x.{kind}"
    atom = lambda name, *parts: (8 + sum(map(len, parts))).to_bytes(4) + name + b"".join(parts)  # noqa: E731
    if kind == "m4a":
        meta = atom(b"data", bytes([0, 0, 0, 1, 0, 0, 0, 0]), b"Owl hoots")
        head = [atom(b"ftyp", b"M4A \0\0\0\0"), atom(b"\xa9nam", meta)]
        sizes = [len(head[1]) + 8 + COVER + 8 + extra for extra in (0, 12, 20, 28)]  # ilst, meta, udta, moov
        names = (b"moov", b"udta", b"meta", b"ilst")
        above = [size.to_bytes(4) + name for size, name in zip(sizes[::-1], names, strict=True)]
        above[2] += bytes(4)
        parts = [head[0], *above, (8 + COVER).to_bytes(4) + b"covr", COVER, head[1]]
    elif kind == "ape":
        title = struct.pack("<II", 9, 0) + b"Title\0Owl hoots"
        items = [struct.pack("<II", COVER, 2) + b"Cover Art (Front)\0", COVER, title]
        size = 32 + sum(each if isinstance(each, int) else len(each) for each in items)
        parts = [b"MAC " + bytes(300), *items, b"APETAGEX" + struct.pack("<IIII8x", 2000, size, 2, 0)]
    elif kind == "flac":
        soundfile.write(path, np.zeros(100), 8_000)
        sound = path.read_bytes()
        said = b"title=Owl hoots"
        comment = struct.pack("<II", 0, 1) + struct.pack("<I", len(said)) + said
        pictures = [b"\6" + (15 << 20).to_bytes(3), 15 << 20] * 4
        parts = [sound[:42].replace(sound[4:5], b"\0", 1), *pictures, b"\x84" + len(comment).to_bytes(3) + comment]
    else:
        picture, title = frame(b"APIC", b"")[:4] + _safe(COVER) + b"\0\0", frame(b"TIT2", b"\3Owl hoots")
        parts = [b"ID3\4\0\0" + _safe(len(picture) + COVER + len(title)), picture, COVER, title, bytes(500)]
    with path.open("wb") as file:
        for part in parts:
            file.seek(part, 1) if isinstance(part, int) else file.write(part)
    return path


def _safe(size: int) -> bytes:
    return bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))


@pytest.mark.parametrize("kind", ["m4a", "ape", "flac", "mp3"])
def test_words_beside_a_huge_picture_are_read_and_the_picture_is_not(tmp_path, kind):
    path = with_cover(tmp_path, kind)
    assert path.stat().st_size > COVER
    tracemalloc.start()
    assert "Owl hoots" in carried(path, path).words
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 << 20


def test_of_ogg_and_asf_the_texts_beside_a_picture_are_read(tmp_path, real_data):
    from mutagen.asf import ASF, ASFByteArrayAttribute
    from mutagen.oggvorbis import OggVorbis

    soundfile.write(tmp_path / "x.ogg", np.zeros(48_000), 48_000)
    (tmp_path / "x.wma").write_bytes((real_data / "odd" / "mutagen__silence-2.wma").read_bytes())
    tagged = OggVorbis(tmp_path / "x.ogg")
    tagged["metadata_block_picture"], tagged["title"] = "A" * (1 << 20), "Owl hoots"
    tagged.save()
    asf = ASF(tmp_path / "x.wma")
    asf["WM/Picture"], asf["Title"] = [ASFByteArrayAttribute(bytes(3 << 20))], "Owl hoots"
    asf["WM/Mood"] = "calm"
    asf.save()
    for name in ("x.ogg", "x.wma"):
        tracemalloc.start()
        assert "Owl hoots" in carried(tmp_path / name, tmp_path / name).words
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1 << 20, name
    assert "calm" in carried(tmp_path / "x.wma", tmp_path / "x.wma").tags


def test_a_huge_picture_is_kept_from_decoders_and_changes_no_sample(tmp_path, real_data):
    from mutagen.id3 import APIC, ID3
    from mutagen.mp4 import MP4, MP4Cover

    (tmp_path / "x.m4a").write_bytes((real_data / "odd" / "mutagen__no-tags.m4a").read_bytes())
    soundfile.write(tmp_path / "x.mp3", 0.1 * np.random.default_rng(0).standard_normal(48_000), 48_000)
    before = [load(tmp_path / name) for name in ("x.m4a", "x.mp3")]
    picture = bytes(HUGE + 1)
    tagged, tag = MP4(tmp_path / "x.m4a"), ID3()
    tagged["covr"] = [MP4Cover(picture)]
    tagged.save()
    tag.add(APIC(encoding=0, mime="image/png", type=3, data=picture))
    tag.save(tmp_path / "x.mp3")
    for name, was in zip(("x.m4a", "x.mp3"), before, strict=True):
        with (tmp_path / name).open("rb") as file:
            header = read_header(file)
            assert header.start > HUGE or (file.seek(header.cover) and file.read(4) == b"covr")
        now = load(tmp_path / name)
        np.testing.assert_array_equal(now.samples, was.samples)
        assert now.problems == was.problems


def test_all_fields_of_real_files_are_those_that_mutagen_gives(real_data):
    from mutagen import File
    from mutagen.asf import ASF
    from mutagen.flac import FLAC
    from mutagen.mp4 import MP4
    from mutagen.oggopus import OggOpus
    from mutagen.oggvorbis import OggVorbis

    compared = 0
    for path in sorted((real_data / "odd").iterdir()):
        try:
            tags = File(path, options=[OggVorbis, OggOpus, FLAC, MP4, ASF]).tags or {}
        except Exception:  # damaged, or of another kind
            continue
        wanted = set()
        for key, values in tags.items():
            name = key.lower().rpartition(":")[2].lstrip("\xa9").removeprefix("wm/")
            texts = [getattr(each, "value", each) for each in (values if isinstance(values, list) else [values])]
            wanted |= {(name, each.strip()) for each in texts if isinstance(each, str) and each.strip()}
        wanted = {pair for pair in wanted if pair[0] in _TEXTS | _TAGS}
        assert wanted <= {(field.name, field.text.strip()) for field in fields(path)}, path.name
        compared += len(wanted)
    assert compared >= 12


RICH = wave(
    info(INAM=b"Footsteps", IGNR=b"Foley"),
    chunk(b"bext", b"Snow walk".ljust(602, b"\0")),
    chunk(b"iXML", b"<BWFXML><NOTE>windy</NOTE><USER><CATID>AMBForst</CATID></USER></BWFXML>"),
    chunk(b"id3 ", id3(frame(b"TIT2", b"\x03Boots"), frame(b"COMM", b"\0eng\0slow"), frame(b"TCON", b"\0(17)"))),
)


@given(cut=st.integers(0, len(RICH)), at=st.integers(0, len(RICH) - 1), bytes_=st.binary(min_size=1, max_size=8))
def test_no_damage_stops_the_reading(tmp_path_factory, cut, at, bytes_):
    folder = tmp_path_factory.getbasetemp()
    damaged = RICH[:at] + bytes_ + RICH[at + len(bytes_) :]
    for data in (RICH[:cut], damaged, damaged[RICH.index(b"ID3") :]):
        words, tags = of_bytes(folder, data, "damaged.wav")
        assert words.startswith("damaged")
        assert words.isprintable()
        assert all(isinstance(tag, str) for tag in tags)


def test_what_is_not_there_or_no_file_carries_its_name(tmp_path):
    assert carried(tmp_path / "gone.wav", tmp_path / "gone.wav") == ("gone", ())
    (tmp_path / "folder.wav").mkdir()
    assert carried(tmp_path / "folder.wav", tmp_path / "folder.wav") == ("folder", ())


def test_a_field_is_words_or_tags_or_an_id():
    assert not (_TEXTS & _TAGS) | (_TEXTS & _IDS) | (_TAGS & _IDS)
    assert all(name == name.lower() for name in _TEXTS | _TAGS | _IDS)


# The Universal Category System


def test_the_list_has_its_753_ids_in_82_categories():
    assert len(ucs.ids()) == 753
    assert len({category for category, _ in ucs.ids().values()}) == 82
    assert ucs.ids()["AMBRest"] == ("ambience", "restaurant & bar")
    assert ucs.ids()["WEAPSwrd"] == ("weapons", "sword")
    assert ucs.ids()["THUN"] == ("weather", "thunder")
    for cat_id, (category, subcategory) in ucs.ids().items():
        assert re.fullmatch(r"[A-Z]{2,5}([A-Z][a-z]{1,6})?", cat_id)
        assert category == category.lower()
        assert subcategory


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("AMBForst_Autumn Wind_JS_LIB", ("ambience", "forest")),
        ("DOORWood-OLD_Creak_JS_LIB", ("doors", "wood")),
        ("RAINConc_heavy", ("rain", "concrete")),
        ("ANMLMisc_growl", ("animals",)),
        ("WOODHndl_plank", ("wood", "handle")),
        ("ANMLDeer_call", ("animals", "deer")),
        ("WIND_Howl_JS_LIB", ("wind",)),
        ("TEST_Sweep_JS_LIB", ("archived", "test tone")),
        ("TEST_01", ()),
        ("MIX_final", ()),
        ("AMBForst", ("ambience", "forest")),
        ("AMBForst Autumn", ("ambience", "forest")),
        ("DOORWood 01", ("doors", "wood")),
        ("DOORWood01", ("doors", "wood")),
        ("DOORWooden 01", ()),
        ("ANMLDeer", ()),
        ("RAIN 01", ()),
        ("KICKHard_01", ()),
        ("ROCKsong_01", ()),
        ("DOORopen_01", ()),
        ("ambforst_x", ()),
        ("USAirport_1", ()),
    ],
)
def test_a_name_is_in_the_system_only_with_an_id_of_its_form(name, category):
    assert ucs.category_of(name) == category


def test_ids_are_words_and_tags(tmp_path):
    found = of_bytes(tmp_path, wave(), "AMBRest_Busy Cafe_JS_LIB.wav")
    assert found.tags == ("ambience", "restaurant & bar")
    assert "ambience restaurant & bar" in found.words
    assert "busy cafe" in found.words


def test_of_a_letter_that_a_full_field_cut_in_two_nothing_is_kept():
    assert text_of("café naïve".encode() + "é".encode()[:1]) == "café naïve"
    assert text_of("café".encode("latin-1")) == "café"  # no UTF-8 before it: Latin-1
