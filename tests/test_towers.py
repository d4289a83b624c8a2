"""What towers and heads promise: augmentation, bridge and residuals, fine-tuned text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_yamnet import made_file
from worlds import tone_world

from earmark import load
from earmark.audio.logmel import PANNS, PAPER, YAMNET, log_mel, louder
from earmark.errors import ConfigError, EarmarkError
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.model.aisfx import AiSfx
from earmark.model.audio_encoders import AudioConfig, AudioEncoder
from earmark.model.cnn import Cnn6
from earmark.model.dual_encoder import DualEncoder
from earmark.model.heads import Bridge, Residual
from earmark.model.text_encoders import TextConfig, TextEncoder
from earmark.model.yamnet import YamNet

SMALL = "all-MiniLM-L6-v2"


# Augmentation


@pytest.mark.parametrize("settings", [PAPER, PANNS, YAMNET], ids=["paper", "panns", "yamnet"])
@pytest.mark.parametrize("decibels", [-6.0, 3.0])
def test_a_gain_on_the_log_mel_is_the_gain_on_the_waveform(settings, decibels):
    wave = 0.1 * np.random.default_rng(0).standard_normal(settings.rate)
    wave[: settings.rate // 2] *= 1e-6  # near the floor
    quiet = log_mel(wave, settings.rate, settings, torch.float64)
    expected = log_mel(wave * 10 ** (decibels / 20), settings.rate, settings, torch.float64)
    found = louder(quiet, decibels, settings)
    if settings.log == "decibel":  # what lies on the floor is lost
        kept = quiet > quiet.min() + 6
        found, expected = found[kept], expected[kept]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_augmentation_varies_training_alone_and_follows_the_seed():
    plain = AudioEncoder(AudioConfig(width=2, weights="none", dropout=0), 8)
    varied = AudioEncoder(AudioConfig(width=2, weights="none", dropout=0, augment="spec+gain"), 8)
    varied.load_state_dict(plain.state_dict())
    clips = [torch.randn(200, 64) * 3 - 20, torch.randn(90, 64) * 3 - 20]
    kept = [clip.clone() for clip in clips]

    def out(encoder: AudioEncoder, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            return encoder(clips)

    plain.eval(), varied.eval()
    assert torch.equal(out(plain, 0), out(varied, 1))
    varied.train()
    for module in varied.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.0  # so that the same input gives the same output again
    assert torch.equal(out(varied, 0), out(varied, 0))
    assert not torch.allclose(out(varied, 0), out(varied, 1))
    assert all(torch.equal(clip, before) for clip, before in zip(clips, kept, strict=True))  # cached ones stay


@pytest.mark.parametrize("tower", [Cnn6(width=2), YamNet(), AiSfx()], ids=["cnn", "yamnet", "aisfx"])
def test_a_gain_on_a_towers_features_is_that_on_the_sound(tower):
    wave = (0.1 * np.random.default_rng(0).standard_normal(2 * tower.rate)).astype(np.float32)
    louder_wave = (wave * 10 ** (4 / 20)).astype(np.float32)
    torch.testing.assert_close(tower.louder(tower.window(wave), 4.0), tower.window(louder_wave), atol=1e-2, rtol=1e-3)


def test_masks_are_stripes_at_the_mean():
    tower = AudioEncoder(AudioConfig(width=2, weights="none"), 8).tower
    clip = torch.randn(300, 64)
    for seed in range(20):
        torch.manual_seed(seed)
        changed = tower.augmented(clip, "spec") != clip
        frames, bands = changed.all(dim=1), changed.all(dim=0)
        assert torch.equal(changed, frames[:, None] | bands[None, :])
        assert frames.sum() <= 2 * 64
        assert bands.sum() <= 2 * 8


def test_what_cannot_be_augmented_is_refused():
    with pytest.raises(ConfigError, match="frozen"):
        AudioEncoder(AudioConfig("vectors", augment="gain"), 8, vector_size=3)


# Heads


def test_residuals_begin_as_what_is_there():
    x = torch.randn(5, 12)
    assert torch.equal(Residual(12, 0.1)(x), F.normalize(x, dim=1))
    assert torch.equal(TextEncoder(TextConfig("vectors", residual=0.5), 12, 12)(list(x)), F.normalize(x, dim=1))
    audio = AudioEncoder(AudioConfig("vectors", residual=0.5), 12, vector_size=12)
    assert torch.equal(audio(list(x)), F.normalize(x, dim=1))
    wrong = ({"residual": 0.5}, {"residual": -1.0}, {"train": True})
    for config in (TextConfig("vectors", **settings) for settings in wrong):
        with pytest.raises(ConfigError, match="expected"):
            TextEncoder(config, 12, 7)


def test_an_untrained_bridge_is_the_sum_of_class_texts_by_the_roots_of_their_probabilities():
    bridge = Bridge(8, 0.1, others=5)
    names = F.normalize(torch.randn(521, 8), dim=1)
    bridge.classes.copy_(names)
    p = torch.zeros(2, 521)
    p[0, 0], p[0, 2], p[1, 1] = 0.81, 0.04, 1.0
    x = torch.cat([torch.randn(2, 1024), p, torch.randn(2, 5)], dim=1)
    expected = torch.stack([0.9 * names[0] + 0.2 * names[2], names[1]])
    torch.testing.assert_close(bridge(x), F.normalize(expected, dim=1))


LIBRARY = f"""
[model]
dim = 384
[audio]
encoder = "yamnet"
train = false
bridge = true
residual = 0.1
[text]
encoder = "{SMALL}"
residual = 0.1
[train]
max_epochs = 2
monitor = "val_mAP"
precision = "fp32"
[[objective]]
loss = "infonce"
batch = 4
"""


@pytest.fixture
def recipe(tmp_path, own_models) -> Path:
    made_file(own_models / "yamnet")
    (tmp_path / "library.toml").write_text(LIBRARY)
    return tmp_path / "library.toml"


def test_a_bridge_is_laid_learned_from_and_embeds_the_same_from_files(recipe, tmp_path):
    collection = tone_world(tmp_path / "tones")
    files = [collection.audio_path(clip) for clip in collection.clips]
    untrained = load(train(Recipe.read(recipe, ["train.max_epochs=0"]), collection, tmp_path / "untrained").run)
    texts = untrained.sentence_encoder.encode(["a tone", "Kind 3, of sound"])
    np.testing.assert_allclose(untrained.embed_text(["a tone", "Kind 3, of sound"]), texts, atol=1e-6)
    assert np.abs(untrained.audio.head.classes[3].numpy() - texts[1]).max() < 1e-6
    trained = load(train(Recipe.read(recipe), collection, tmp_path / "trained").run)
    clips, _, problems = trained.embed_collection(collection, collection.clips, [])
    assert not problems
    np.testing.assert_allclose(trained.embed_audio(files), clips.vectors, atol=1e-5)
    assert np.abs(trained.embed_audio(files) - untrained.embed_audio(files)).max() > 1e-3
    assert not any(name.startswith("audio.tower") for name in trained.state_dict())


def test_yamnet_is_fine_tuned_with_the_bridge(recipe, tmp_path):
    collection = tone_world(tmp_path / "tones")
    sets = ["audio.train=true", "audio.augment=spec+gain", "train.max_epochs=1"]
    result = train(Recipe.read(recipe, sets), collection, tmp_path / "run")
    model = load(result.run)
    start = DualEncoder.for_collection(model.config, collection)
    moved = [name for name, value in start.state_dict().items() if not torch.equal(value, model.state_dict()[name])]
    assert any(name.startswith("audio.tower.layers") for name in moved)
    assert any(name.startswith("audio.tower.classifier") for name in moved)
    assert np.isfinite(model.embed_audio(collection.audio_path(collection.clips[0]))).all()


@pytest.mark.parametrize(
    ("sets", "match"),
    [
        (["model.dim=300"], r"Set model\.dim = 384"),
        (["text.residual=0"], r"Set text\.residual = 0\.1"),
    ],
)
def test_bridges_that_lead_nowhere_are_refused(recipe, tmp_path, sets, match):
    with pytest.raises(ConfigError, match=match):
        train(Recipe.read(recipe, sets), tone_world(tmp_path / "tones"), tmp_path / "run")


# Fine-tuned text


def test_the_text_tower_is_fine_tuned_saved_and_taken_up(recipe, tmp_path):
    collection = tone_world(tmp_path / "tones")
    sets = ["text.train=true", "train.max_epochs=1", "train.lr=1e-4"]
    result = train(Recipe.read(recipe, sets), collection, tmp_path / "run")
    model = load(result.run)
    frozen = load(train(Recipe.read(recipe, ["train.max_epochs=0"]), collection, tmp_path / "untrained").run)
    texts = ["a tone of 200 hertz", "rain"]
    assert np.abs(model.embed_text(texts) - frozen.embed_text(texts)).max() > 1e-4
    np.testing.assert_allclose(model.embed_text(texts)[1], model.embed_text("rain")[0], atol=1e-5)
    _, captions, _ = model.embed_collection(collection, [], collection.captions)
    again = model.embed_text([caption.text for caption in collection.captions])
    np.testing.assert_allclose(captions.vectors, again, atol=1e-5)
    assert any(name.startswith("text.tower.transformer") for name in model.state_dict())


@pytest.mark.parametrize(
    ("sets", "match"),
    [
        (["audio.encoder=yamnett"], "only with YAMNet"),
        (["audio.encoder=yamnett", "audio.bridge=false"], "Did you mean 'yamnet'"),
        (["audio.encoder=cnn14+yamnet"], "YAMNet first"),
        (["audio.encoder=yamnet+cnn6", "audio.train=true"], "several towers are frozen ones"),
        (["audio.weights=none"], "random layers would stay random"),
        (["audio.weights=/dev/zero"], "neither a file nor a folder"),
        (["audio.residual=-1"], r"audio\.residual = -1"),
        (["audio.residual=nan"], r"audio\.residual = nan"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(recipe, tmp_path, sets, match):
    with pytest.raises(EarmarkError, match=match) as caught:
        train(Recipe.read(recipe, sets), tone_world(tmp_path / "tones"), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
