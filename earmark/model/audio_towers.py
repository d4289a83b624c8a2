"""Towers of sound by name: how `[audio]` of a recipe names them, where their weights are, which of them learn."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import nn

from earmark.audio.logmel import PANNS, PAPER
from earmark.errors import ConfigError, DataError
from earmark.model import hub
from earmark.model.aisfx import AiSfx
from earmark.model.cnn import CNNS, Cnn
from earmark.model.heads import PannsHead
from earmark.model.pretrained import find
from earmark.model.towers import VECTORS, AudioTower, LogMelTower
from earmark.model.yamnet import YamNet, class_names

OWN_CAPTIONS = "own-captions"
"""The untrained control: a clip is the mean text vector of its captions, and nothing is heard or learned."""
LOG_MELS = {"paper": PAPER, "panns": PANNS}


@dataclass(frozen=True)
class AudioConfig:
    """`[audio]` of a recipe."""

    encoder: str = "cnn14"
    """"cnn14", "cnn10", "cnn6", "yamnet", "aisfx", frozen ones joined ("yamnet+aisfx"), the hub name or folder of an
    audio–text model, "vectors", or "own-captions": the mean text vector of a clip's captions, the untrained control."""
    weights: str = "pretrained"
    """"pretrained", "none" (random), or the path of a checkpoint of PANNs or a folder of YAMNet."""
    train: bool = True
    """Whether the tower learns too, or only the head on top."""
    width: int = 64
    """Channels of the first block of a CNN; 64 is the published size."""
    hidden: int = 0
    """Width of the head's hidden layer; 0 is the encoder's own (a CNN's size, 512 over other vectors)."""
    dropout: float = 0.5
    """Of the head, in [0, 1). A CNN's blocks take 0.2, or this where it is less."""
    log_mel: Literal["paper", "panns"] = "paper"
    """Of the CNNs."""
    augment: Literal["none", "spec", "gain", "spec+gain"] = "none"
    """How log-mels are varied in training: SpecAugment's masks, a gain of ±6 dB, or both."""
    bridge: bool = False
    """YAMNet: start from the text vectors of the class names."""
    residual: float = 0.0
    """Scale of the learned residual; 0 is a plain head (or, with the bridge, nothing learned)."""


def is_frozen(config: AudioConfig) -> bool:
    """Whether only the head learns."""
    return config.encoder in (VECTORS, OWN_CAPTIONS) or not config.train


def is_named(name: str) -> bool:
    """Whether the name is one of earmark's own (or several, with + between), not a hub model's."""
    return name in (VECTORS, OWN_CAPTIONS) or all(part in TOWERS for part in name.split("+"))


def _cnn(config: AudioConfig) -> LogMelTower:
    dropout, settings = min(0.2, config.dropout), LOG_MELS[config.log_mel]
    return CNNS[config.encoder](width=config.width, dropout=dropout, settings=settings)


TOWERS: dict[str, Callable[[AudioConfig], LogMelTower]] = {
    **dict.fromkeys(CNNS, _cnn),
    "yamnet": lambda config: YamNet(classes=config.bridge),
    "aisfx": lambda config: AiSfx(),
}
"""Name → tower of earmark's own, with random weights; frozen ones may be joined with +."""


def random_tower(config: AudioConfig) -> AudioTower:
    """The tower of these settings with random weights; a hub model's come with it, since its shapes do."""
    if config.encoder in TOWERS:
        return TOWERS[config.encoder](config)
    return hub.open_audio(_hub_folder(config.encoder))


def _hub_folder(name: str) -> Path:
    """The folder of a hub model. Raises `ConfigError` where there is none of that name."""
    names = [*TOWERS, VECTORS, OWN_CAPTIONS]
    expected = f"expected {', '.join(names)}, or an audio–text model (CLAP, or one of sentence-transformers)"
    near = [each for part in name.split("+") for each in difflib.get_close_matches(part, names, 1)]
    hint = f" Did you mean {'+'.join(near)!r}?" if near and "/" not in name else ""
    try:
        folder = find(name)
    except DataError as error:
        raise ConfigError(f"audio.encoder = {name!r}: {expected}.{hint} ({error})") from error
    if not hub.is_hub_model(folder):
        raise ConfigError(f"audio.encoder = {name!r}: {folder} is none; {expected}.{hint}")
    return folder


def weights_of(config: AudioConfig) -> Path:
    """The file or folder of the pretrained weights that the settings name. Raises `DataError` where it is missing."""
    if not is_named(config.encoder):
        return _hub_folder(config.encoder)
    path = find(config.encoder if config.weights == "pretrained" else config.weights)
    if path.is_file() or config.encoder == "yamnet":
        return path
    files = sorted(path.glob("*.pth"))
    if len(files) != 1:
        raise DataError(f"{path}: {len(files)} files *.pth; expected the one checkpoint of {config.encoder}.")
    return files[0]


def load_pretrained(tower: AudioTower, head: nn.Module | None, config: AudioConfig) -> None:
    """Takes the weights that the settings name into the tower (and PANNs' `fc1` into the head); none for "none"."""
    if config.weights == "none" or not isinstance(tower, LogMelTower):  # a hub model's come with it
        return
    path = weights_of(config)
    if isinstance(tower, Cnn) and isinstance(head, PannsHead):
        tower.load(path, head.fc1)
    else:
        tower.load(path)


def class_texts(config: AudioConfig) -> list[str]:
    """The class names of YAMNet, in the order of its probabilities."""
    path = weights_of(replace(config, encoder="yamnet"))
    return class_names(path if path.is_dir() else path.parent)
