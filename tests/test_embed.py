from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from test_model import panns_checkpoint
from test_yamnet import made_file
from worlds import tone_world

from earmark import Collection, load
from earmark.audio.cache import FeatureCache
from earmark.data.collection import Clip, VectorTable
from earmark.errors import DataError
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.model import embed as module
from earmark.model.dual_encoder import frozen_tower
from earmark.model.embed import embed

SMALL = "all-MiniLM-L6-v2"
HEADS = f"""
[model]
dim = 16
[audio]
encoder = "vectors"
hidden = 32
[text]
encoder = "{SMALL}"
[train]
max_epochs = 2
[[objective]]
loss = "infonce"
batch = 4
"""


@pytest.fixture
def world(tmp_path, own_models) -> Collection:
    """Twelve tones, and a made checkpoint of PANNs' smallest network where it is looked for."""
    (own_models / "cnn6").mkdir()
    panns_checkpoint("cnn6", own_models / "cnn6" / "Cnn6.pth")
    return tone_world(tmp_path / "tones")


@pytest.mark.case("A33")
def test_every_clip_gets_its_vector_and_one_bad_sound_costs_itself(world):
    (world.root / "3.wav").write_bytes(b"no sound")
    done = embed(world, "cnn6", text=SMALL, jobs=1)
    assert [problem.where for problem in done.problems] == ["clip 'clip3'"]
    found = Collection.read(world.root)
    assert set(found.clip_vectors.ids) == {clip.clip_id for clip in world.clips} - {"clip3"}
    assert found.clip_vectors.vectors.shape == (11, 512)
    assert found.caption_vectors.vectors.shape == (12, 384)
    named = tomllib.loads((world.root / "collection.toml").read_text())["vectors"]
    assert (named["clip_model"], named["caption_model"]) == ("cnn6", SMALL)
    assert '"rate": 32000' in named["clip_front_end"]
    before = {clip: found.clip_vectors.rows([clip])[0] for clip in found.clip_vectors.ids}
    (world.root / "3.wav").write_bytes((world.root / "4.wav").read_bytes())
    again = embed(Collection.read(world.root), "cnn6", text=SMALL, jobs=1).collection
    assert all(np.array_equal(again.clip_vectors.rows([clip])[0], vector) for clip, vector in before.items())
    assert np.array_equal(*again.clip_vectors.rows(["clip3", "clip4"]))


def test_several_processes_give_what_one_gives(world, tmp_path, monkeypatch):
    alone = embed(world, "cnn6", text=SMALL, jobs=1).collection.clip_vectors
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(module, "CLIPS_A_PROCESS", 2)
    together = embed(Collection.read(world.root), "cnn6", text=SMALL, jobs=2).collection.clip_vectors
    assert together.ids == alone.ids
    np.testing.assert_allclose(together.vectors, alone.vectors, rtol=1e-4)


def test_a_run_on_vectors_embeds_files_through_the_model_that_made_them(world, tmp_path):
    embed(world, "cnn6", text=SMALL, jobs=1)
    collection = Collection.read(world.root)
    (tmp_path / "heads.toml").write_text(HEADS)
    result = train(Recipe.read(tmp_path / "heads.toml"), collection, tmp_path / "run")
    model = load(result.run)
    clips, _, _ = model.embed_collection(collection, collection.clips, [])
    files = model.embed_audio([collection.audio_path(clip) for clip in collection.clips])
    np.testing.assert_allclose(files, clips.vectors, atol=1e-5)
    panns_checkpoint("cnn6", tmp_path / "models" / "cnn6" / "Cnn6.pth")  # other weights of the same name
    with pytest.raises(DataError, match="the model was trained with"):
        load(result.run).embed_audio(collection.audio_path(collection.clips[0]))


def test_a_run_embeds_a_collection_too(world, tmp_path, monkeypatch):
    embed(world, "cnn6", text=SMALL, jobs=1)
    (tmp_path / "heads.toml").write_text(HEADS)
    first = train(Recipe.read(tmp_path / "heads.toml"), Collection.read(world.root), tmp_path / "run")
    soundfile.write(world.root / "0.wav", 0.1 * np.sin(np.arange(40 * 8000) / 3), 8000)  # longer than a window
    monkeypatch.chdir(tmp_path)
    done = embed(Collection.read(world.root), "run", jobs=1)
    monkeypatch.chdir("/")
    assert done.text_model == str(tmp_path / "run")  # found again from any folder
    model, made = load(first.run), done.collection
    files = [made.audio_path(clip) for clip in made.clips]
    np.testing.assert_allclose(made.clip_vectors.vectors, model.embed_audio(files), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(made.clip_vectors.vectors, axis=1), 1, atol=1e-5)
    texts = [caption.text for caption in made.captions]
    np.testing.assert_allclose(made.caption_vectors.vectors, model.embed_text(texts), atol=1e-5)
    heads = Recipe.read(tmp_path / "heads.toml", ["text.encoder=vectors"])
    second = train(heads, made, tmp_path / "second")
    assert load(second.run).embed_text("a tone").shape == (1, 16)
    assert load(second.run).embed_audio(files[:2]).shape == (2, 16)


def test_joined_towers_of_several_rates_embed_the_same_below_another_run(world, tmp_path):
    made_file(tmp_path / "models" / "yamnet")
    (tmp_path / "heads.toml").write_text(HEADS)
    sets = ["audio.encoder=cnn6+yamnet", "audio.train=false"]
    first = train(Recipe.read(tmp_path / "heads.toml", sets), world, tmp_path / "run")
    model = load(first.run)
    assert model.inputs.clip_size == 512 + 1024
    made = embed(world, str(tmp_path / "run"), jobs=1).collection
    files = [made.audio_path(clip) for clip in made.clips]
    np.testing.assert_allclose(made.clip_vectors.vectors, model.embed_audio(files), atol=1e-5)


def test_vectors_that_are_not_finite_are_told_and_not_written(world, own_models):
    path = own_models / "cnn6" / "Cnn6.pth"
    broken = torch.load(path, weights_only=True)
    broken["model"]["conv_block4.bn1.running_var"] -= 2
    torch.save(broken, path)
    with pytest.raises(DataError, match=r"none of its 12 clips .* its vector by cnn6 is not finite"):
        embed(world, "cnn6", text=SMALL)
    assert not (world.root / "clip_vectors.npz").exists()


def test_where_nothing_can_be_embedded_the_old_vectors_stay(world):
    clips = [Clip(f"clip{i}", "", "development") for i in range(2)]
    stand_in = replace(world, clips=clips, captions=world.captions[:2])
    VectorTable(("clip0", "clip1"), np.ones((2, 3), np.float32)).write(world.root / "clip_vectors.npz")
    with pytest.raises(DataError, match="none of its 2 clips can be embedded"):
        embed(stand_in, "cnn6", text=SMALL, jobs=1)
    assert VectorTable.read(world.root / "clip_vectors.npz").vectors.shape == (2, 3)


@pytest.mark.parametrize(
    ("fails", "clip_model", "dim"), [("clip_vectors.npz", "old", 3), ("caption_vectors.npz", "cnn6", 512)]
)
def test_after_an_error_each_file_of_vectors_has_the_names_of_its_own_models(
    world, tmp_path, monkeypatch, fails, clip_model, dim
):
    ids, texts = (tuple(c.clip_id for c in world.clips), tuple(c.caption_id for c in world.captions))
    VectorTable(ids, np.ones((len(ids), 3), np.float32)).write(world.root / "clip_vectors.npz")
    VectorTable(texts, np.ones((len(texts), 3), np.float32)).write(world.root / "caption_vectors.npz")
    world.about["vectors"] = {"clip_model": "old", "clip_fingerprint": "1", "caption_model": "older", "by": "hand"}
    world.write_about()
    write = VectorTable.write

    def full(table, path):
        if path.name == fails:
            raise DataError(f"{path}: cannot be written (No space left on device).")
        write(table, path)

    monkeypatch.setattr(VectorTable, "write", full)
    with pytest.raises(DataError, match="No space left"):
        embed(Collection.read(world.root), "cnn6", text=SMALL, jobs=1)
    named = Collection.read(world.root).about["vectors"]
    assert (named["clip_model"], named["caption_model"], named["by"]) == (clip_model, "older", "hand")
    assert VectorTable.read(world.root / "clip_vectors.npz").vectors.shape[1] == dim


@pytest.mark.case("I06")
def test_two_at_once_leave_the_vectors_of_one_with_its_name(world, tmp_path, monkeypatch):
    write = VectorTable.write

    def slowly(table: VectorTable, path: Path) -> None:
        write(table, path)
        if threading.current_thread().name.endswith("_0"):
            time.sleep(0.2)  # time for the other one to come between

    monkeypatch.setattr(VectorTable, "write", slowly)
    (tmp_path / "models" / "cnn10").mkdir()
    panns_checkpoint("cnn10", tmp_path / "models" / "cnn10" / "Cnn10.pth")
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            both = [pool.submit(embed, Collection.read(world.root), name, text=SMALL) for name in ("cnn6", "cnn10")]
            by = {each.result().collection.about["vectors"]["clip_model"]: each.result().collection for each in both}
            named = tomllib.loads((world.root / "collection.toml").read_text())["vectors"]["clip_model"]
            stored = VectorTable.read(world.root / "clip_vectors.npz").vectors
            assert np.array_equal(stored, expected_of(by[named], named))


def expected_of(collection: Collection, name: str) -> np.ndarray:
    """The vectors of the model, from the cache."""
    frozen = frozen_tower(name)
    cache = FeatureCache(frozen.made_by)
    return np.stack([cache.features(collection.audio_path(c), frozen.read).windows[0] for c in collection.clips])


COMMAND = [sys.executable, "-m", "earmark", "embed"]


def test_a_killed_command_goes_on_where_it_was(world, tmp_path):
    rng = np.random.default_rng(0)
    for clip in world.clips:  # long enough that a kill falls between two
        soundfile.write(world.audio_path(clip), 0.1 * rng.standard_normal(60 * 16_000), 16_000)
    arguments = [*COMMAND, world.root, "--model", "cnn6", "--text", SMALL, "--jobs", "1"]
    kept = tmp_path / "cache" / "sounds"
    killed = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(kept.rglob("*.safetensors")) and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in kept.rglob("*.safetensors")}
    assert 0 < len(done) < 12
    assert not (world.root / "clip_vectors.npz").exists()
    subprocess.run(arguments, check=True, stderr=subprocess.DEVNULL)
    assert all(path.stat().st_mtime_ns == when for path, when in done.items())
    assert len(Collection.read(world.root).clip_vectors) == 12
    assert sorted(os.listdir(world.root))[-1] == "collection.toml"  # noqa: PTH208


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc to look processes up in")
def test_a_killed_command_leaves_no_process_behind(world, tmp_path, monkeypatch):
    for clip in world.clips:
        soundfile.write(world.audio_path(clip), 0.1 * np.random.default_rng(0).standard_normal(300 * 16_000), 16_000)
    code = (
        "import sys; from pathlib import Path; from earmark import Collection; from earmark.model import embed as e;"
        "e.CLIPS_A_PROCESS = 2; e.embed(Collection.read(sys.argv[1]), 'cnn6', text=sys.argv[2], jobs=2)"
    )
    killed = subprocess.Popen([sys.executable, "-c", code, world.root, SMALL], stderr=subprocess.DEVNULL)

    def family() -> set[int]:
        """The processes that carry this test's folder in their environment."""
        mark = f"EARMARK_CACHE={tmp_path}".encode()
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes() and int(path.parent.name) != os.getpid():
                    found.add(int(path.parent.name))
        return found

    deadline = time.monotonic() + 120
    while len(family()) < 4 and killed.poll() is None and time.monotonic() < deadline:  # itself, a tracker, two workers
        time.sleep(0.02)
    assert len(family()) >= 4
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    while family() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not family()


def test_the_command_tells_what_it_did_and_what_is_wrong(world, tmp_path):
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)

    done = run(world.root, "--model", "cnn6", "--text", SMALL, "--jobs", "1")
    assert done.returncode == 0
    assert "12 of 12 clips by cnn6, 12 captions by all-MiniLM-L6-v2" in done.stdout
    (world.root / "1.wav").unlink()
    assert run(world.root, "--model", "cnn6", "--text", SMALL, "--jobs", "1").returncode == 1
    for name in ("cnn61", SMALL, "vectors"):
        refused = run(world.root, "--model", name)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
    assert run(tmp_path / "none", "--model", "cnn6").returncode == 2
