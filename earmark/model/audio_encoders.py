"""Sound in: an audio encoder is a tower and a head, from a clip's features to its embedding (not of unit length yet).

A tower that learns is a part of the model; its features are log-mels, say. One that is frozen is looked up by name
when it is first needed, and what it makes of a clip is one vector, computed once: the mean over the clip's windows,
weighted by their length. "vectors" is the same with the vectors in the collection's `clip_vectors.npz`. The head is
what is learned on top:

- plain: the layers of PANNs over a convolutional network, Linear–ReLU–Linear over vectors;
- residual: x + scale · W x with W zero at the start, for towers whose vectors already lie in the texts' space;
- bridge: YAMNet's class probabilities as weights of the class names' text vectors, plus such a residual.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio.cache import Features
from earmark.audio.logmel import PANNS, PAPER
from earmark.errors import ConfigError, DataError
from earmark.model import hub
from earmark.model.aisfx import AiSfx
from earmark.model.cnn import CNNS as CNNS
from earmark.model.cnn import Cnn, kaiming
from earmark.model.cnn import Cnn14 as Cnn14
from earmark.model.pretrained import find, fingerprint
from earmark.model.text_encoders import VECTORS, Residual
from earmark.model.towers import AudioTower
from earmark.model.yamnet import CLASSES, EMBEDDING, YamNet, class_names

LARGEST = 1 << 16
"""Of a layer's width: beyond is a slip of the keyboard."""
LOG_MELS = {"paper": PAPER, "panns": PANNS}


@dataclass(frozen=True)
class AudioConfig:
    """`[audio]` of a recipe."""

    encoder: str = "cnn14"
    """"cnn14", "cnn10", "cnn6", "yamnet", "aisfx", frozen ones joined ("yamnet+aisfx"), the hub name or folder of an
    audio–text model, or "vectors"."""
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


# Heads


class PannsHead(nn.Module):
    """Dropout, Linear, ReLU, dropout, Linear: the paper's authors' head; the first layer is in PANNs' checkpoints."""

    def __init__(self, size: int, dim: int, *, hidden: int = 0, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        self.fc1 = nn.Linear(size, hidden or size)
        self.out = nn.Linear(hidden or size, dim)
        self.apply(kaiming)

    def forward(self, x: Tensor) -> Tensor:
        """[clip, dim] of [clip, size]."""
        x = F.relu(self.fc1(F.dropout(x, self.dropout, self.training)))
        out: Tensor = self.out(F.dropout(x, self.dropout, self.training))
        return out


class Bridge(nn.Module):
    """From YAMNet to the texts' space: Σ √p · t over classes, at unit length, plus scale · W x, W zero at the start.

    p are the class probabilities, t the text vectors of the class names, x the 1,024 values below the classes and the
    vectors of the other towers, each part at unit length. Without training it is a text-like vector of the clip.
    """

    classes: Tensor

    def __init__(self, dim: int, scale: float, *, others: int = 0, dropout: float = 0.0) -> None:
        """`others` are the numbers that other towers add to YAMNet's; dropout is that of x."""
        super().__init__()
        self.sizes = [EMBEDDING, CLASSES, others]
        self.scale = scale
        self.dropout = dropout
        self.register_buffer("classes", torch.zeros(CLASSES, dim))
        self.linear = nn.Linear(EMBEDDING + others, dim)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.linear.requires_grad_(scale > 0)

    def forward(self, x: Tensor) -> Tensor:
        """[clip, dim] of [clip, 1,024 + classes + others]."""
        embedding, probabilities, others = x.split(self.sizes, dim=1)
        named = F.normalize(probabilities.clamp_min(0).sqrt() @ self.classes, dim=1)
        heard = torch.cat([F.normalize(embedding, dim=1), F.normalize(others, dim=1)], dim=1)
        out: Tensor = named + self.scale * self.linear(F.dropout(heard, self.dropout, self.training))
        return out


def _head(config: AudioConfig, size: int, dim: int) -> nn.Module:
    if config.bridge:
        return Bridge(dim, config.residual, others=size - EMBEDDING - CLASSES, dropout=config.dropout)
    if config.residual:
        if size != dim:
            raise ConfigError(
                f"audio.residual = {config.residual}: the vectors have {size} numbers and model.dim is {dim}; expected "
                f"the same. Set model.dim = {size}, or audio.residual = 0."
            )
        return Residual(dim, config.residual, config.dropout)
    if config.encoder in CNNS:
        return PannsHead(size, dim, hidden=config.hidden, dropout=config.dropout)
    hidden = config.hidden or 512
    return nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(hidden, dim))


# Towers by name


def is_named(name: str) -> bool:
    """Whether the name is one of earmark's own (or several, with + between), not a hub model's."""
    return name == VECTORS or all(part in TOWERS for part in name.split("+"))


def _cnn(config: AudioConfig) -> AudioTower:
    dropout, settings = min(0.2, config.dropout), LOG_MELS[config.log_mel]
    return CNNS[config.encoder](width=config.width, dropout=dropout, settings=settings)


TOWERS: dict[str, Callable[[AudioConfig], AudioTower]] = {
    **dict.fromkeys(CNNS, _cnn),
    "yamnet": lambda config: YamNet(classes=config.bridge),
    "aisfx": lambda config: AiSfx(),
}
"""Name → tower of earmark's own, with random weights; frozen ones may be joined with +."""


def random_tower(config: AudioConfig) -> AudioTower:
    """The tower of these settings with random weights; a hub model's come with it, since its shapes do."""
    if config.encoder in TOWERS:
        return TOWERS[config.encoder](config)
    folder = find(config.encoder)
    if not hub.is_hub_model(folder):
        raise ConfigError(
            f"audio.encoder = {config.encoder!r}: {folder} is no audio–text model; expected CLAP or an audio model of "
            f"sentence-transformers, or one of {', '.join([*TOWERS, VECTORS])}."
        )
    return hub.open_audio(folder)


def weights_of(config: AudioConfig) -> Path:
    """The file or folder of the pretrained weights that the settings name. Raises `DataError` where it is missing."""
    if not is_named(config.encoder):
        return find(config.encoder)
    path = find(config.encoder if config.weights == "pretrained" else config.weights)
    if path.is_file() or config.encoder == "yamnet":
        return path
    files = sorted(path.glob("*.pth"))
    if len(files) != 1:
        raise DataError(f"{path}: {len(files)} files *.pth; expected the one checkpoint of {config.encoder}.")
    return files[0]


def load_pretrained(tower: AudioTower, head: nn.Module | None, config: AudioConfig) -> None:
    """Takes the weights that the settings name into the tower (and PANNs' `fc1` into the head); none for "none"."""
    if config.weights == "none" or not is_named(config.encoder):
        return
    path = weights_of(config)
    if isinstance(tower, Cnn) and isinstance(head, PannsHead):
        tower.load(path, head.fc1)
    else:
        tower.load(path)


class Frozen:
    """What makes one vector of a clip and does not learn: looked up when it is first needed, and no part of the model.

    Also read and asked for by `embed`, as a tower that learns is by training.
    """

    def __init__(self, name: str, fingerprint: Callable[[], str], *, expected: str = "") -> None:
        """`expected` is the fingerprint that the weights had when the model was trained; empty: any."""
        self.name = name
        self._fingerprint, self._expected = fingerprint, expected

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits of the weights. Raises `DataError` where they are not those that were trained on."""
        found = self._fingerprint()
        if self._expected not in ("", found):
            raise DataError(
                f"{self.name}: its weights have the fingerprint {found}; the model was trained with {self._expected}. "
                "Put those weights there."
            )
        return found

    def move_to(self, device: torch.device) -> None:
        """Embeds there from now on."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Of the vectors."""
        raise NotImplementedError

    @property
    def front_end(self) -> str:
        """What it makes of sound, as JSON."""
        raise NotImplementedError

    @property
    def made_by(self) -> str:
        """What decides its vectors: the key of the cache."""
        raise NotImplementedError

    def read(self, path: Path) -> Features:
        """The vector of a sound file, with what was odd about it. Raises `DataError` where it holds no sound."""
        raise NotImplementedError

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The vector of mono samples at `rate` Hz."""
        raise NotImplementedError


class FrozenTower(Frozen):
    """A pretrained tower: the mean of its vectors over a clip's windows, weighted by length."""

    def __init__(self, config: AudioConfig, *, expected: str = "") -> None:
        super().__init__(config.encoder, lambda: fingerprint(weights_of(config)), expected=expected)
        self._config = config
        self._device = torch.device("cpu")

    @cached_property
    def tower(self) -> AudioTower:
        """The tower, in evaluation mode."""
        _ = self.fingerprint
        tower = random_tower(self._config)
        load_pretrained(tower, None, self._config)
        return tower.eval().requires_grad_(False)

    def move_to(self, device: torch.device) -> None:
        """Embeds there from now on."""
        self._device = device

    @property
    def size(self) -> int:
        """Of the vectors."""
        return self.tower.size

    @property
    def front_end(self) -> str:
        """What the tower makes of sound, as JSON."""
        return self.tower.front_end

    @property
    def made_by(self) -> str:
        """What decides its vectors: the key of the cache."""
        made_by = f"{self.name} {self.fingerprint}: {self.size} values, {self.tower.made_by}"
        return f"vectors of {made_by}, on {self._device.type}"

    def read(self, path: Path) -> Features:
        """The vector of a sound file, with what was odd about it. Raises `DataError` where it holds no sound."""
        return self._vector(self.tower.read(path))

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The vector of mono samples at `rate` Hz."""
        return self._vector(self.tower.read_waveform(samples, rate))

    @torch.inference_mode()
    def _vector(self, features: Features) -> Features:
        tower = self.tower.to(self._device)
        parts = [tower([window.to(self._device)])[0].float().cpu() for window in features.windows]
        weights = torch.tensor(features.seconds) / sum(features.seconds)
        mean = (torch.stack(parts) * weights[:, None]).sum(dim=0)
        vector = F.normalize(mean, dim=0) if tower.unit else mean
        return Features([vector], [sum(features.seconds)], features.odd)


class Joined(Frozen):
    """Several frozen towers: the vector is theirs, one behind the other."""

    def __init__(self, parts: Sequence[Frozen], *, expected: str = "") -> None:
        self.parts = parts
        super().__init__("+".join(part.name for part in parts), self._of_all, expected=expected)

    def move_to(self, device: torch.device) -> None:
        """Embeds there from now on."""
        for part in self.parts:
            part.move_to(device)

    def _of_all(self) -> str:
        return hashlib.sha256("+".join(part.fingerprint for part in self.parts).encode()).hexdigest()[:32]

    @property
    def size(self) -> int:
        """Of the joined vectors."""
        return sum(part.size for part in self.parts)

    @property
    def front_end(self) -> str:
        """What the towers make of sound, as JSON: one entry a tower."""
        return json.dumps({part.name: json.loads(part.front_end) for part in self.parts}, sort_keys=True)

    @property
    def made_by(self) -> str:
        """What decides its vectors: the key of the cache."""
        return " + ".join(part.made_by for part in self.parts)

    def read(self, path: Path) -> Features:
        """The vector of a sound file, with what was odd about it. Raises `DataError` where it holds no sound."""
        return self._joined([part.read(path) for part in self.parts])

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The vector of mono samples at `rate` Hz."""
        return self._joined([part.read_waveform(samples, rate) for part in self.parts])

    def _joined(self, found: Sequence[Features]) -> Features:
        vector = torch.cat([each.windows[0] for each in found])
        return Features([vector], found[0].seconds, found[0].odd)


def frozen_of(config: AudioConfig, *, expected: str = "") -> Frozen:
    """The frozen tower, or towers, of these settings."""
    names = config.encoder.split("+") if is_named(config.encoder) else [config.encoder]
    if len(names) == 1:
        return FrozenTower(config, expected=expected)
    if config.weights != "pretrained":
        raise ConfigError(f'audio.weights = {config.weights!r} with {config.encoder!r}; expected "pretrained".')
    return Joined([FrozenTower(replace(config, encoder=name)) for name in names], expected=expected)


# The encoder


class AudioEncoder(nn.Module):
    """A tower and a head: what a clip's features become in the shared space."""

    def __init__(self, config: AudioConfig, dim: int, *, vector_size: int = 0, frozen: Frozen | None = None) -> None:
        """The encoder of these settings, randomly initialised.

        `vector_size` is the size of the vectors that a frozen tower makes, or that stand in the collection. Raises
        `ConfigError` on settings out of range.
        """
        super().__init__()
        check_settings(config, dim)
        self.config = config
        self.frozen = frozen
        self.tower = None if is_frozen(config) else random_tower(config)
        if self.tower is not None and "spec" in config.augment and not self.tower.reads_log_mels:
            raise ConfigError(
                f'audio.augment = "{config.augment}": {config.encoder} reads no log-mels. Take "gain", or "none".'
            )
        self.head = _head(config, self.tower.size if self.tower else vector_size, dim)

    def load_pretrained(self) -> None:
        """Takes the weights that the settings name."""
        if self.tower is not None:
            load_pretrained(self.tower, self.head, self.config)
        elif isinstance(self.frozen, FrozenTower) and isinstance(self.head, PannsHead):
            load_pretrained(self.frozen.tower, self.head, self.config)

    @property
    def windows_a_batch(self) -> int:
        """How many windows are embedded at once."""
        return self.tower.windows_a_batch if self.tower else 16_000

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """[clip, dim] of one window's features each."""
        if self.tower is None:
            x = torch.stack(list(features)).to(next(self.head.parameters()).device)
        else:
            if self.training and self.config.augment != "none":
                features = [self.tower.augmented(each, self.config.augment) for each in features]
            x = self.tower(features)
        out: Tensor = self.head(x)
        return out

    @property
    def reader(self) -> AudioTower | Frozen:
        """What reads sounds. Raises `ConfigError` where nothing does."""
        reader = self.frozen if self.tower is None else self.tower
        if reader is None:
            raise ConfigError(
                "this model was trained on vectors whose collection.toml names no model, so files cannot be embedded. "
                "Make the vectors by `earmark embed`, or train on sounds."
            )
        return reader


def is_frozen(config: AudioConfig) -> bool:
    """Whether only the head learns."""
    return config.encoder == VECTORS or not config.train


def check_settings(config: AudioConfig, dim: int) -> None:
    """Raises `ConfigError` on settings out of range, or that do not go together."""
    sizes = 1 <= config.width <= 1024 and 0 <= config.hidden <= LARGEST and 1 <= dim <= LARGEST
    if not 0 <= config.dropout < 1 or not sizes or not 0 <= config.residual < LARGEST:
        raise ConfigError(
            f"audio.dropout = {config.dropout}, audio.width = {config.width}, audio.hidden = {config.hidden}, "
            f"audio.residual = {config.residual}, model.dim = {dim}; expected dropout in [0, 1), width 1–1,024, "
            f"the others to {LARGEST:,}."
        )
    wrong = ""
    if config.bridge and config.encoder.split("+")[0] != "yamnet":
        wrong = f"audio.bridge = true: only with YAMNet's classes, YAMNet first, not {config.encoder!r}"
    elif "+" in config.encoder and is_named(config.encoder) and config.train:
        wrong = f"audio.train = true with {config.encoder!r}: several towers are frozen ones"
    elif config.augment != "none" and is_frozen(config):
        wrong = f'audio.augment = "{config.augment}": the tower is frozen, so nothing would be varied'
    elif config.weights == "none" and is_frozen(config) and config.encoder != VECTORS:
        wrong = 'audio.weights = "none" with audio.train = false: random layers would stay random'
    if wrong:
        raise ConfigError(f"{wrong}. Change one of them.")


def class_texts(config: AudioConfig) -> list[str]:
    """The class names of YAMNet, in the order of its probabilities."""
    path = weights_of(replace(config, encoder="yamnet"))
    return class_names(path if path.is_dir() else path.parent)
