from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from worlds import tone_world

from earmark.audio import decode
from earmark.audio.cache import FeatureCache, Features, MappedWindows
from earmark.errors import DataError
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.model.aisfx import AiSfx
from earmark.model.cnn import Cnn6, Cnn14
from earmark.model.yamnet import YamNet

CNN = """
[audio]
encoder = "cnn6"
weights = "none"
width = 2
[text]
encoder = "vectors"
[train]
max_epochs = 2
precision = "fp32"
[[objective]]
loss = "infonce"
batch = 4
"""


def made(path: Path) -> Features:
    """Features that the content decides."""
    seed = len(path.read_bytes())
    windows = [torch.randn(400, 16, generator=torch.Generator().manual_seed(seed + each)) for each in range(2)]
    return Features(windows, [30.0, 12.5], ["clipping: peaks at 1.2"])


def refuse(path: Path) -> Features:
    raise AssertionError(f"{path} was read again")


@pytest.fixture
def sound(tmp_path) -> Path:
    path = tmp_path / "a.wav"
    path.write_bytes(b"\xff\xfb\x90\x01" * 30)
    return path


def test_what_is_kept_is_what_was_made(sound, tmp_path):
    cache = FeatureCache("front end", tmp_path / "cache")
    first = cache.features(sound, made)
    again = FeatureCache("front end", tmp_path / "cache").features(sound, refuse)
    for found in (first, again):
        assert isinstance(found.windows, MappedWindows)
        assert (found.seconds, found.odd) == ([30.0, 12.5], ["clipping: peaks at 1.2"])
        for window, expected in zip(found.windows, made(sound).windows, strict=True):
            assert torch.equal(window, expected)
    assert torch.equal(again.windows[-1], again.windows[1])
    with pytest.raises(IndexError):
        again.windows[2]


def test_the_key_is_the_content_and_what_made_it(sound, tmp_path):
    cache = FeatureCache("front end", tmp_path / "cache")
    cache.features(sound, made)
    renamed = sound.rename(tmp_path / "b.flac")
    cache.features(renamed, refuse)
    assert FeatureCache("other", tmp_path / "cache").entry(renamed) != cache.entry(renamed)
    before = cache.entry(renamed)
    renamed.write_bytes(b"\xff\xfb\x90\x02" * 30)
    assert cache.entry(renamed) != before


def test_towers_that_pad_otherwise_never_share_entries(tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    soundfile.write(tmp_path / "short.wav", np.full(2000, 0.1), 44_100)
    towers = [Cnn6(width=2), Cnn14(width=2), YamNet(), AiSfx()]
    found = [FeatureCache(each.made_by).features(tmp_path / "short.wav", each.read).windows[0] for each in towers]
    assert [len(window) for window in found] == [16, 64, 96, 100]


@pytest.mark.parametrize("damage", [b"", b"x" * 30, None])
def test_a_damaged_entry_is_made_anew(sound, tmp_path, damage):
    cache = FeatureCache("front end", tmp_path / "cache")
    cache.features(sound, made)
    entry = cache.entry(sound)
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert torch.equal(cache.features(sound, made).windows[1], made(sound).windows[1])
    assert torch.equal(cache.features(sound, refuse).windows[1], made(sound).windows[1])


def test_what_is_no_entry_of_this_sound_is_made_anew(sound, tmp_path):
    from safetensors.torch import load_file, save_file

    cache = FeatureCache("front end", tmp_path / "cache")
    cache.features(sound, made)
    entry, other = cache.entry(sound), tmp_path / "other.wav"
    other.write_bytes(b"\xff\xfb\x90\x03" * 50)
    cache.features(other, made)
    whole, tensors = entry.read_bytes(), load_file(entry)
    flipped = bytearray(whole)
    flipped[-5] ^= 1

    def header(**changed: str) -> bytes:
        save_file(tensors, tmp_path / "made", {"seconds": "[30.0, 12.5]", "odd": "[]", "check": "", **changed})
        return (tmp_path / "made").read_bytes()

    hostile = [
        cache.entry(other).read_bytes(),
        bytes(flipped),
        header(),
        header(seconds="[]"),
        header(seconds="[1, 2, 3]"),
    ]
    for content in hostile:
        entry.write_bytes(content)
        assert torch.equal(cache.features(sound, made).windows[1], made(sound).windows[1])
        cache.features(sound, refuse)


def test_a_cache_that_is_emptied_in_use_is_told(sound, tmp_path):
    cache = FeatureCache("front end", tmp_path / "cache")
    found = cache.features(sound, made)
    cache.entry(sound).unlink()
    with pytest.raises(DataError, match="not in the cache any more"):
        found.windows[0]


def test_where_nothing_can_be_kept_the_features_are_given_with_one_warning(sound, tmp_path):
    (tmp_path / "cache").write_text("a file stands where the folder should be")
    cache = FeatureCache("front end", tmp_path / "cache")
    with pytest.warns(UserWarning, match="not cached") as caught:
        found = [cache.features(sound, made) for _ in range(3)]
    assert len(caught) == 1
    assert torch.equal(found[2].windows[0], made(sound).windows[0])


def test_a_full_disk_costs_the_cache_alone(sound, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.warns(UserWarning, match="not cached .*No space left"):
        found = FeatureCache("front end", tmp_path / "cache").features(sound, made)
    assert torch.equal(found.windows[0], made(sound).windows[0])


def test_what_cannot_be_read_is_refused_and_not_kept(tmp_path):
    cache = FeatureCache("front end", tmp_path / "cache")
    os.mkfifo(tmp_path / "pipe.wav")
    for path, reason in ((tmp_path / "pipe.wav", "not a regular file"), (tmp_path, "a folder")):
        with pytest.raises(DataError, match=reason):
            cache.features(path, made)
    with pytest.raises(DataError, match=r"gone\.wav: cannot be read"):
        cache.features(tmp_path / "gone.wav", made)
    assert not (tmp_path / "cache").exists()


FILL = """
import sys
from pathlib import Path
from earmark.audio.cache import FeatureCache
from earmark.model.cnn import Cnn6
tower = Cnn6(width=2)
cache = FeatureCache(tower.made_by, Path(sys.argv[1]))
print("ready", flush=True)
for path in sorted(Path(sys.argv[2]).glob("*.wav")):
    cache.features(path, tower.read)
"""


def test_several_processes_fill_it_and_killed_ones_leave_only_whole_entries(tmp_path):
    tone_world(tmp_path / "tones", clips=12)
    arguments = [sys.executable, "-c", FILL, tmp_path / "cache", tmp_path / "tones"]
    fillers = [subprocess.Popen(arguments, stdout=subprocess.PIPE) for _ in range(3)]
    for filler in fillers:
        assert filler.stdout is not None
        with filler.stdout:
            filler.stdout.readline()
    time.sleep(0.02)
    fillers[0].send_signal(signal.SIGKILL)
    assert [filler.wait() for filler in fillers] == [-signal.SIGKILL, 0, 0]
    tower = Cnn6(width=2)
    cache = FeatureCache(tower.made_by, tmp_path / "cache")
    entries = list(cache.folder.rglob("*.safetensors"))
    assert len(entries) == 12
    for path in (tmp_path / "tones").glob("*.wav"):
        found = cache.features(path, refuse)
        assert torch.equal(found.windows[0], tower.read(path).windows[0])


def test_training_from_it_decodes_nothing_twice(tmp_path, monkeypatch):
    from earmark.data.collection import VectorTable

    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    collection = tone_world(tmp_path / "tones")
    ids = tuple(caption.caption_id for caption in collection.captions)
    rng = np.random.default_rng(0)
    VectorTable(ids, rng.standard_normal((len(ids), 6)).astype(np.float32)).write(
        collection.root / "caption_vectors.npz"
    )
    (tmp_path / "cnn.toml").write_text(CNN)
    decoded: list[Path] = []
    blocks = decode.blocks
    monkeypatch.setattr(decode, "blocks", lambda path, *rest: decoded.append(path) or blocks(path, *rest))
    first = train(Recipe.read(tmp_path / "cnn.toml"), collection, tmp_path / "first")
    assert len(decoded) == len(set(decoded)) == len(collection.clips)
    second = train(Recipe.read(tmp_path / "cnn.toml"), collection, tmp_path / "second")
    assert len(decoded) == len(collection.clips)
    weights = [(run.run / "model.safetensors").read_bytes() for run in (first, second)]
    assert weights[0] == weights[1]
    assert os.listdir(tmp_path / "cache") == ["sounds"]  # noqa: PTH208
