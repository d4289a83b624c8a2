"""Taggers: PANNs' SED network against a second computation of it, YAMNet against its own patches, and any sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torch.nn.functional as F
from test_yamnet import made_file

from earmark.errors import ConfigError, DataError
from earmark.model import tagging
from earmark.model.cnn import Cnn14
from earmark.model.tagging import PannsSed, Tagger, located
from earmark.model.yamnet import CLASSES as YAMNET_CLASSES
from earmark.model.yamnet import HOP, PATCH, YamNet


class Small(PannsSed):
    """The published network, 1/32 as wide."""

    def __init__(self) -> None:
        super().__init__(width=2, classes=9)


def random_network(seed: int = 0) -> Small:
    """With statistics of batch-norm that are none of the initial ones, and scores that differ."""
    torch.manual_seed(seed)
    network = Small().eval()
    for name, value in network.state_dict().items():
        if name.endswith(("running_mean", "bias")):
            value.normal_(0, 0.3)
        elif name.endswith("running_var") or (".bn" in name and name.endswith("weight")):
            value.uniform_(0.5, 1.5)
    return network


def saved(network: torch.nn.Module, path: Path) -> Path:
    """A checkpoint as PANNs publish theirs: beside the layers the front end's, and more than the model."""
    extractors = {
        "spectrogram_extractor.stft.conv_real.weight": torch.zeros(513, 1, 1024),
        "logmel_extractor.melW": torch.zeros(513, 64),
    }
    torch.save({"iteration": 600_000, "model": {**extractors, **network.state_dict()}}, path)
    return path


def second(state: dict[str, torch.Tensor], mel: torch.Tensor) -> torch.Tensor:
    """PANNs' Cnn14_DecisionLevelMax on a log-mel [frame, band], in plain functions: [step, class]."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        values = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (state[f"{name}.{each}"].view(1, -1, 1, 1) for each in values)
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    x = norm(mel.T[None, :, :, None], "bn0").permute(0, 3, 2, 1)  # [1, 1, frame, band]
    for block in range(1, 7):
        for step in (1, 2):
            x = F.conv2d(x, state[f"conv_block{block}.conv{step}.weight"], padding=1)
            x = F.relu(norm(x, f"conv_block{block}.bn{step}"))
        x = F.avg_pool2d(x, 2 if block < 6 else 1)
    x = x.mean(dim=3)  # [1, channel, step]
    around = F.pad(x, (1, 1), value=-torch.inf).unfold(2, 3, 1)
    x = around.amax(dim=3) + F.pad(x, (1, 1)).unfold(2, 3, 1).sum(dim=3) / 3
    x = F.relu(F.linear(x.transpose(1, 2), state["fc1.weight"], state["fc1.bias"]))
    return torch.sigmoid(F.linear(x, state["fc_audioset.weight"], state["fc_audioset.bias"]))[0]


def write(path: Path, seconds: float, rate: int = 16_000, seed: int = 0) -> Path:
    wave = 0.1 * np.random.default_rng(seed).standard_normal(max(1, round(seconds * rate)))
    soundfile.write(path, wave, rate, subtype="FLOAT")
    return path


@pytest.mark.parametrize("frames", [32, 33, 63, 64, 101, 700])
def test_the_sed_network_is_what_a_second_computation_gives(frames):
    network = random_network()
    mel = torch.randn(frames, 64) * 10 - 30
    with torch.inference_mode():
        found = network.probabilities(mel)
    assert found.shape == (frames // 32, 9)
    torch.testing.assert_close(found, second(network.state_dict(), mel), atol=1e-5, rtol=1e-5)
    assert found.std(dim=1).min() > 0.01


def test_only_the_last_pooling_differs_from_cnn14():
    sed, plain = Small().eval(), Cnn14(width=2, settings=Small().settings).eval()
    plain.load_state_dict({name: sed.state_dict()[name] for name in plain.state_dict()})
    mel = torch.randn(128, 64)
    with torch.inference_mode():
        x, steps = sed.steps([mel])
        y, halves = plain.steps([mel])
    assert (x.shape[1], y.shape[1], steps.item(), halves.item()) == (4, 2, 4, 2)
    assert sed.least == 31 * 320
    assert plain.least == 63 * 320


def test_a_checkpoint_as_published_loads(tmp_path):
    network, mel = random_network(), torch.randn(96, 64)
    other = Small().eval()
    other.load(saved(network, tmp_path / "sed.pth"))
    with torch.inference_mode():
        assert torch.equal(network.probabilities(mel), other.probabilities(mel))


def test_the_published_names_are_those_of_the_network():
    names = set(Small().state_dict())
    blocks = {f"conv_block{b}.{part}" for b in range(1, 7) for part in ("conv1.weight", "conv2.weight")}
    assert blocks | {"bn0.weight", "fc1.weight", "fc1.bias", "fc_audioset.weight", "fc_audioset.bias"} <= names


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", {"model": 3}, {"model": {"bn0.weight": "no tensor"}}, 3])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "sed.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(DataError, match=r"sed\.pth: .*(not a PANNs checkpoint|Zenodo record 3987831)"):
        Small().load(path)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    network = Cnn14(width=2, settings=Small().settings)
    with pytest.raises(DataError, match=r"4 of \d+ layers are missing or of another shape, fc1.weight first"):
        Small().load(saved(network, tmp_path / "cnn14.pth"))
    with pytest.raises(DataError, match="layers are missing or of another shape"):
        PannsSed(width=1).load(saved(network, tmp_path / "wide.pth"))


def test_taggers_are_found_by_name_or_path(own_models, monkeypatch):
    monkeypatch.setattr(tagging, "PannsSed", Small)
    folder = made_file(own_models / "yamnet")
    assert located("auto") == ("yamnet", folder)
    assert located(str(folder / "model.onnx")) == ("yamnet", folder / "model.onnx")
    (own_models / "panns-sed").mkdir()
    file = saved(random_network(), own_models / "panns-sed" / "Cnn14_DecisionLevelMax_mAP=0.385.pth")
    for name in ("auto", "panns-sed", str(file), str(file.parent)):
        assert located(name) == ("panns-sed", file)
    assert located("yamnet") == ("yamnet", folder)
    first, other = Tagger(*located("auto")), Tagger(*located("yamnet"))
    assert first.made_by.startswith(f"class probabilities by panns-sed {first.fingerprint}: Small")
    assert other.made_by.startswith(f"class probabilities by yamnet {other.fingerprint}: YamNet")
    saved(random_network(), file.parent / "second.pth")
    with pytest.raises(DataError, match=r"2 files \*\.pth; expected one"):
        located("panns-sed")


def test_what_is_not_found_is_refused_and_says_where_it_was_looked_up(own_models, monkeypatch):
    monkeypatch.setattr("earmark.model.pretrained.PACKAGES", {})
    for name in ("panns-sed", "pann", "models/none.pth"):
        with pytest.raises(ConfigError, match=r"tagger = .*expected auto, none, panns-sed, yamnet"):
            located(name)
    with pytest.raises(ConfigError) as caught:
        located("auto")
    assert str(own_models / "panns-sed") in str(caught.value)
    assert str(own_models / "yamnet") in str(caught.value)


@pytest.mark.parametrize("kind", ["panns-sed", "yamnet"])
@pytest.mark.parametrize(("seconds", "steps"), [(0, (1, 1)), (0.1, (1, 1)), (0.64, (2, 1)), (2.0, (6, 4))])
def test_a_sound_of_any_length_is_tagged(tmp_path, monkeypatch, kind, seconds, steps):
    monkeypatch.setattr(tagging, "PannsSed", Small)
    weights = made_file(tmp_path / "w") if kind == "yamnet" else saved(random_network(), tmp_path / "w.pth")
    found = Tagger(kind, weights).probabilities(write(tmp_path / "a.wav", seconds))
    assert found.dtype == np.float32
    assert found.shape == ((steps[0], 9) if kind == "panns-sed" else (steps[1], YAMNET_CLASSES))
    assert ((found >= 0) & (found <= 1)).all()


def test_yamnet_gives_its_patches(tmp_path):
    folder, sound = made_file(tmp_path / "w"), write(tmp_path / "a.wav", 3.3)
    network = YamNet(classes=True).eval()
    network.load(folder)
    [window] = network.read(sound).windows
    patches = [window[at : at + PATCH] for at in range(0, len(window) - PATCH + 1, HOP)]
    with torch.inference_mode():
        expected = torch.cat([network([patch]) for patch in patches])[:, 1024:]
    found = Tagger("yamnet", folder).probabilities(sound)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_a_long_sound_comes_a_window_at_a_time(tmp_path):
    odd: list[str] = []
    found = Tagger("yamnet", made_file(tmp_path / "w"))
    sound = write(tmp_path / "a.wav", 61, rate=8000)
    windows = list(found.windows(sound, odd))
    assert [len(window) for window in windows] == [62, 62, 2]
    assert len(found.probabilities(sound)) == 126
    assert odd == []


def test_probabilities_that_are_not_finite_cost_the_sound(tmp_path, monkeypatch):
    monkeypatch.setattr(tagging, "PannsSed", Small)
    network = random_network()
    network.fc1.bias.data.fill_(torch.nan)
    found = Tagger("panns-sed", saved(network, tmp_path / "w.pth"))
    with pytest.raises(DataError, match="not finite"):
        found.probabilities(write(tmp_path / "a.wav", 1))
    with pytest.raises(DataError, match="cannot be read"):
        found.probabilities(tmp_path / "none.wav")
