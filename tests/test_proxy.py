from __future__ import annotations

import math
import re
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from worlds import clothos_files

from earmark.data import clotho, proxy
from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import ConfigError, DataError
from earmark.model.text_encoders import SentenceEncoder
from earmark.relevance import Rating

BASE = 300
CLIPS = {"development": 60, "validation": 8, "evaluation": 5}


def encode(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors [text, base] that depend on the text alone."""
    drawn = [np.random.default_rng(zlib.crc32(text.encode())).standard_normal(BASE) for text in texts]
    return np.stack([vector / np.linalg.norm(vector) for vector in drawn]).astype(np.float32)


def made(root: Path, *, captions: int = 5) -> Collection:
    """A collection like Clotho's: in each split three are rated, the 2nd and 4th of clip 0 and the 1st of clip 1."""
    clips, texts, ratings = [], [], []
    for split, count in CLIPS.items():
        for k in range(count):
            clip_id = f"{split[0]}{k}"
            clips.append(Clip(clip_id, "", split, "", {"file_name": f"{k}.wav"}))
            for place in range(1, captions + 1):
                differs = "as rated" if (k, place) in ((2, 1), (2, 3)) else ""
                more = {"text_grrel": differs and f"{differs} {split} {place}", "tokens": "x"}
                texts.append(Caption(f"{clip_id}#{place}", clip_id, f"sound {k} of {split}, told {place}", more))
        for k, place in ((0, 2), (0, 4), (1, 1)):
            lists = [k, *(each for each in range(4) if each != k)]
            ratings += [Rating(f"{split[0]}{k}#{place}", f"{split[0]}{j}", float(90 - 10 * j), "C15") for j in lists]
    collection = Collection(root, clips, texts, ratings, name="clotho", about={"licence": "free"})
    collection.write()
    return Collection.read(root)


@pytest.fixture
def source(tmp_path: Path) -> Collection:
    return made(tmp_path / "clotho")


def without(collection: Collection, what: str, pattern: str) -> Collection:
    """The collection as it is read after the lines of a table that match were taken out."""
    path = collection.root / f"{what}.csv"
    kept = [line for line in path.read_text().splitlines(keepends=True) if not re.search(pattern, line)]
    path.write_text("".join(kept))
    return Collection.read(collection.root)


def test_texts_are_the_third_caption_and_those_after_it_in_grrels_words(source: Collection, tmp_path: Path) -> None:
    found = proxy.make(source, tmp_path / "out", encode)
    assert (found.name, found.kind, found.queries, found.problems) == ("clotho-proxy", "proxy", "captions", [])
    assert found.check() == []
    assert found.splits == list(CLIPS)
    for split, count in CLIPS.items():
        assert [clip.clip_id for clip in found.gallery(split)] == [f"{split[0]}{k}" for k in range(count)]
        captions = found.captions_of(split)
        assert [c.caption_id for c in captions] == [f"{split[0]}{k}#{p}" for k in range(count) for p in (3, 4, 5)]
        assert {c.caption_id: c.text for c in captions}[f"{split[0]}2#3"] == f"as rated {split} 3"
    assert not any(clip.path for clip in found.clips)
    assert {clip.more["file_name"] for clip in found.clips} == {clip.more["file_name"] for clip in source.clips}
    assert found.caption_vectors is not None
    assert found.caption_vectors.ids == tuple(caption.caption_id for caption in found.captions)
    assert np.array_equal(found.caption_vectors.vectors, encode([caption.text for caption in found.captions]))


def test_a_hidden_rated_caption_gets_a_twin_in_its_list_alone(source: Collection, tmp_path: Path) -> None:
    found = proxy.make(source, tmp_path / "out", encode)
    for split in CLIPS:
        s = split[0]
        twins = [f"{s}0~{s}0#2", f"{s}1~{s}1#1"]
        assert [clip.clip_id for clip in found.gallery(f"{split}-lists")] == twins
        own = {caption.caption_id: caption.clip_id for caption in found.captions if "~" in caption.clip_id}
        assert {caption: clip for caption, clip in own.items() if clip in twins} == {
            f"{s}0#2": twins[0],
            f"{s}1#1": twins[1],
        }
        lists: dict[str, list[tuple[str, float]]] = {}
        for rating in found.rated(split):
            lists.setdefault(rating.caption_id, []).append((rating.clip_id, rating.rating))
        assert lists == {
            f"{s}0#2": [(twins[0], 90), (f"{s}1", 80), (f"{s}2", 70), (f"{s}3", 60)],
            f"{s}0#4": [(f"{s}0", 90), (f"{s}1", 80), (f"{s}2", 70), (f"{s}3", 60)],
            f"{s}1#1": [(twins[1], 80), (f"{s}0", 90), (f"{s}2", 70), (f"{s}3", 60)],
        }


def expected_signals(source: Collection) -> dict[str, NDArray[np.float64]]:
    """Each clip's and twin's vector before the noise, by a singular value decomposition; signs as they come."""
    texts = {caption.caption_id: caption.more["text_grrel"] or caption.text for caption in source.captions}
    vectors = dict(zip(texts, encode(list(texts.values())).astype(np.float64), strict=True))
    fitted = np.stack([vectors[caption_id] for caption_id in texts if caption_id.startswith("d")])
    mean = fitted.mean(axis=0)
    rows = np.linalg.svd(fitted - mean, full_matrices=False)[2][:256]
    hidden = {clip.clip_id: [f"{clip.clip_id}#1", f"{clip.clip_id}#2"] for clip in source.clips}
    for s in "dve":
        hidden |= {f"{s}0~{s}0#2": [f"{s}0#1", f"{s}0#3"], f"{s}1~{s}1#1": [f"{s}1#2", f"{s}1#3"]}
    along = {clip_id: rows @ (np.mean([vectors[c] for c in its], axis=0) - mean) for clip_id, its in hidden.items()}
    return {clip_id: vector / np.linalg.norm(vector) for clip_id, vector in along.items()}


def test_vectors_are_the_principal_components_of_the_hidden_captions(source: Collection, tmp_path: Path) -> None:
    found = proxy.make(source, tmp_path / "out", encode, noise=0).clip_vectors
    expected = expected_signals(source)
    assert found is not None
    assert set(found.ids) == set(expected)
    theirs = np.stack([expected[clip_id] for clip_id in found.ids])
    signs = np.sign((found.vectors * theirs).sum(axis=0))
    np.testing.assert_allclose(found.vectors, theirs * signs, atol=1e-5)


def test_principal_axes_are_sorted_and_their_greatest_value_is_positive() -> None:
    vectors = encode([str(k) for k in range(400)])
    axes = proxy.principal_axes(vectors, 256)
    np.testing.assert_allclose(axes.directions.T @ axes.directions, np.eye(256), atol=1e-10)
    spread = ((vectors - axes.mean) @ axes.directions).std(axis=0)
    assert (np.diff(spread) <= 1e-9).all()
    greatest = np.abs(axes.directions).argmax(axis=0)
    assert (axes.directions[greatest, np.arange(256)] > 0).all()


def test_every_split_has_its_own_stream_of_noise_and_twins_that_of_their_clip(
    source: Collection, tmp_path: Path
) -> None:
    calm = proxy.make(source, tmp_path / "calm", encode, noise=0).clip_vectors
    loud = proxy.make(source, tmp_path / "loud", encode, noise=2).clip_vectors
    assert calm is not None
    assert loud is not None
    assert calm.ids == loud.ids
    noise = dict(zip(calm.ids, (loud.vectors - calm.vectors) / 2, strict=True))
    for seed, split in enumerate(CLIPS, 1234):
        drawn = np.random.default_rng(seed).standard_normal((CLIPS[split], 256)) / 16
        for k, draw in enumerate(drawn):
            np.testing.assert_allclose(noise[f"{split[0]}{k}"], draw, atol=1e-6)
        for twin, clip in ((f"{split[0]}0~{split[0]}0#2", 0), (f"{split[0]}1~{split[0]}1#1", 1)):
            np.testing.assert_allclose(noise[twin], drawn[clip], atol=1e-6)


def test_the_same_again_is_the_same(source: Collection, tmp_path: Path) -> None:
    for name in ("one", "two"):
        proxy.make(source, tmp_path / name, encode)
    for path in (tmp_path / "one").glob("*.[ct]*"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    one, two = (Collection.read(tmp_path / name).clip_vectors for name in ("one", "two"))
    assert one is not None
    assert two is not None
    assert np.array_equal(one.vectors, two.vectors)


def test_what_made_it_is_told(source: Collection, tmp_path: Path) -> None:
    proxy.make(source, tmp_path / "out", encode, noise=0.5, model="small", fingerprint="f0")
    about = tomllib.loads((tmp_path / "out" / "collection.toml").read_text())
    assert about["generator"] == "earmark data proxy --noise 0.5 --text-model small"
    assert about["vectors"] == {"caption_model": "small", "caption_fingerprint": "f0"}
    assert about["made_of"] == {"name": "clotho", "licence": "free"}


def test_a_clip_of_two_captions_is_left_out_and_changes_no_other(source: Collection, tmp_path: Path) -> None:
    whole = proxy.make(source, tmp_path / "whole", encode)
    less = proxy.make(without(source, "captions", "^v1#[345]"), tmp_path / "less", encode)
    assert [str(problem) for problem in less.problems] == [
        "clips.csv line 63: 2 captions; expected 3 or more. The clip is left out with its ratings."
    ]
    gone = {"v1", "v1~v1#1"}
    assert [clip for clip in whole.clips if clip.clip_id not in gone] == less.clips
    assert [r for r in whole.ratings if r.clip_id not in gone and r.caption_id != "v1#1"] == less.ratings
    assert whole.clip_vectors is not None
    assert less.clip_vectors is not None
    assert np.array_equal(whole.clip_vectors.rows(less.clip_vectors.ids), less.clip_vectors.vectors)


def test_a_split_that_nobody_rated_is_left_out_but_development_is_fitted_all_the_same(
    source: Collection, tmp_path: Path
) -> None:
    whole = proxy.make(source, tmp_path / "whole", encode).clip_vectors
    found = proxy.make(without(source, "ratings", "^[de]"), tmp_path / "out", encode)
    assert found.splits == ["validation"]
    assert whole is not None
    assert found.clip_vectors is not None
    assert np.array_equal(whole.rows(found.clip_vectors.ids), found.clip_vectors.vectors)


def test_what_cannot_be_made_is_refused_and_nothing_is_written(source: Collection, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for noise in (-0.1, math.nan, math.inf):
        with pytest.raises(ConfigError, match=f"noise = {noise}; expected 0 or more"):
            proxy.make(source, out, encode, noise=noise)
    with pytest.raises(ConfigError, match="vectors of 255 numbers; expected 256 or more"):
        proxy.make(source, out, lambda texts: encode(texts)[:, :255])
    with pytest.raises(
        DataError, match="120 captions of development, and 0 clips with 3 or more; expected more than 256"
    ):
        proxy.make(made(tmp_path / "two", captions=2), out, encode)
    with pytest.raises(DataError, match="50 captions of development, and 23 clips with 3 or more"):
        proxy.make(without(made(tmp_path / "few"), "captions", r"^d\d\d#"), out, encode)
    with pytest.raises(DataError, match="is there already"):
        proxy.make(source, source.root, encode)
    with pytest.raises(DataError, match=r"clotho: no ratings; expected GrRel's"):
        proxy.make(without(source, "ratings", "#"), out, encode)
    assert not out.exists()
    assert not list(tmp_path.glob(".earmark-*"))


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "earmark", "data", "proxy", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_command_says_what_it_made_and_refuses_in_one_line(
    source: Collection, tmp_path: Path, sentence_encoder: SentenceEncoder
) -> None:
    without(source, "ratings", "^e")
    small = ("--text-model", sentence_encoder.name)
    done = command(source.root, tmp_path / "out", *small)
    assert done.returncode == 0, done.stderr
    assert "clotho-proxy (PROXY)" in done.stdout
    assert "72 clips (development 60, validation 8, in rated lists alone 4), 208 captions, 24 ratings" in done.stdout
    assert "left out, since nobody rated anything there: evaluation" in done.stdout
    assert "embedding texts" in done.stderr
    about = Collection.read(tmp_path / "out").about["vectors"]
    assert about == {"caption_model": sentence_encoder.name, "caption_fingerprint": sentence_encoder.fingerprint}
    done = command(source.root, tmp_path / "new", *small, "--noise", "nan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "noise = nan; expected 0 or more, such as 1.25.\n"
    assert not (tmp_path / "new").exists()


def test_real_rows_are_those_of_the_published_proxy(real_data: Path, tmp_path: Path) -> None:
    texts = real_data / "texts"
    files = clothos_files(texts, tmp_path / "in")
    source, _ = clotho.from_folder(files, tmp_path / "clotho")
    alone, _ = clotho.from_folder(texts / "clotho_relevance", tmp_path / "grrel")  # the noise goes by this order
    assert [clip.clip_id for clip in alone.clips] == [clip.clip_id for clip in source.clips]
    words = np.random.default_rng(0).standard_normal((4096, 256)).astype(np.float32)

    def encode_fast(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = words[[zlib.crc32(text.encode()) % 4096 for text in texts]]
        return vectors

    found = proxy.make(source, tmp_path / "out", encode_fast)
    published = Collection.read(real_data / "proxy")
    assert found.problems == published.problems == []
    assert [replace(clip, group="", more={}) for clip in found.clips] == published.clips
    assert all(clip.group == clip.clip_id.partition("~")[0] for clip in found.clips)
    assert found.captions == published.captions
    assert found.ratings == published.ratings
    silent = proxy.make(source, tmp_path / "silent", encode_fast, noise=0).clip_vectors
    ours, theirs = found.clip_vectors, published.clip_vectors
    assert silent is not None
    assert ours is not None
    assert theirs is not None
    assert ours.ids == theirs.ids
    lengths = np.linalg.norm(theirs.vectors - (ours.vectors - silent.vectors), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-3)  # without our noise the published vectors are of unit length
