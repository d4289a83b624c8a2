"""What a model is built from, and what fed its encoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from earmark.config import from_table
from earmark.errors import ConfigError
from earmark.model.audio_encoders import check_settings
from earmark.model.audio_towers import OWN_CAPTIONS, AudioConfig
from earmark.model.text_encoders import TextConfig


@dataclass(frozen=True)
class ModelConfig:
    """`[model]` of a recipe."""

    dim: int = 300
    """Size of the shared space."""


@dataclass(frozen=True)
class DualEncoderConfig:
    """What a model is built from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    audio: AudioConfig = field(default_factory=AudioConfig)
    text: TextConfig = field(default_factory=TextConfig)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str) -> DualEncoderConfig:
        """The settings of a recipe's tables `model`, `audio` and `text`; other tables are not looked at."""
        found = cls(
            from_table(ModelConfig, tables.get("model", {}), f"{where}: model"),
            from_table(AudioConfig, tables.get("audio", {}), f"{where}: audio"),
            from_table(TextConfig, tables.get("text", {}), f"{where}: text"),
        )
        check_settings(found.audio, found.model.dim)
        if found.audio.encoder == OWN_CAPTIONS and (found.text.train or found.text.residual):
            raise ConfigError(
                f'{where}: audio.encoder = "own-captions" with text.train = {str(found.text.train).lower()}, '
                f"text.residual = {found.text.residual}: nothing is learned. Leave them out."
            )
        return found


@dataclass(frozen=True)
class Inputs:
    """What fed the encoders when the model was trained; it must be the same whenever it is used."""

    clip_size: int = 0
    """Size of the vectors that stand for clips; 0 where the tower that reads sound is a part of the model."""
    caption_size: int = 0
    """Size of the texts' base vectors."""
    clip_model: str = ""
    """The model that made the clips' vectors: the frozen tower, or as collection.toml names it."""
    clip_fingerprint: str = ""
    caption_model: str = ""
    """The model that made the captions' vectors."""
    caption_fingerprint: str = ""
    front_end: str = ""
    """What the tower makes of sound, as JSON."""
