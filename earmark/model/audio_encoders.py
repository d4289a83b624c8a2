"""Sound in: an audio encoder is a tower and a head, from a clip's features to its embedding (not of unit length yet).

A tower that learns is a part of the model; its features are log-mels, say. One that is frozen is looked up by name
when it is first needed, and what it makes of a clip is one vector, computed once: the mean over the clip's windows,
weighted by their length. "vectors" is the same with the vectors in the collection's `clip_vectors.npz`, "own-captions"
with the mean text vector of a clip's captions, on which nothing is learned. The head is what is learned on top:

- plain: the layers of PANNs over a convolutional network, Linear–ReLU–Linear over vectors;
- residual: x + scale · W x with W zero at the start, for towers whose vectors already lie in the texts' space;
- bridge: YAMNet's class probabilities as weights of the class names' text vectors, plus such a residual.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from earmark.errors import ConfigError
from earmark.model.audio_towers import OWN_CAPTIONS, is_frozen, is_named, load_pretrained, random_tower
from earmark.model.audio_towers import AudioConfig as AudioConfig
from earmark.model.cnn import CNNS as CNNS
from earmark.model.cnn import Cnn14 as Cnn14
from earmark.model.frozen import Frozen, FrozenTower
from earmark.model.heads import AsIs, Bridge, PannsHead, Residual
from earmark.model.towers import VECTORS, AudioTower
from earmark.model.yamnet import CLASSES, EMBEDDING
from earmark.model.yamnet import YamNet as YamNet

LARGEST = 1 << 16
"""Of a layer's width: beyond is a slip of the keyboard."""


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
        if self.config.encoder == OWN_CAPTIONS:
            raise ConfigError(
                "this model knows a clip by its captions alone (own-captions, the untrained control), so sounds cannot "
                "be embedded. Train one that hears."
            )
        if reader is None:
            raise ConfigError(
                "this model was trained on vectors whose collection.toml names no model, so files cannot be embedded. "
                "Make the vectors by `earmark embed`, or train on sounds."
            )
        return reader


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
    elif config.encoder == OWN_CAPTIONS and config.residual:
        wrong = f'audio.residual = {config.residual} with "own-captions": nothing is learned'
    elif config.weights == "none" and is_frozen(config) and config.encoder not in (VECTORS, OWN_CAPTIONS):
        wrong = 'audio.weights = "none" with audio.train = false: random layers would stay random'
    if wrong:
        raise ConfigError(f"{wrong}. Change one of them.")


def _head(config: AudioConfig, size: int, dim: int) -> nn.Module:
    if config.bridge:
        return Bridge(dim, config.residual, others=size - EMBEDDING - CLASSES, dropout=config.dropout)
    if config.encoder == OWN_CAPTIONS:
        if size != dim:
            raise ConfigError(
                f'audio.encoder = "own-captions": the text vectors have {size} numbers and model.dim is {dim}; '
                f"expected the same. Set model.dim = {size}."
            )
        return AsIs()
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
