"""Pretrained encoders as a dual encoder in which nothing was learned: sounds and words share a space already.

YAMNet's class names lead its sounds into a sentence encoder's space; CLAP and audio–text models of
sentence-transformers have one of their own.
"""

from __future__ import annotations

from earmark.errors import ConfigError
from earmark.model import hub
from earmark.model.audio_towers import TOWERS, AudioConfig, is_named
from earmark.model.dual_encoder import text_encoder
from earmark.model.pretrained import find
from earmark.model.settings import DualEncoderConfig, ModelConfig
from earmark.model.text_encoders import TextConfig

YAMNET, SENTENCES = "yamnet", "all-mpnet-base-v2"
RESIDUAL = 0.1
"""Any but 0: a residual starts at zero, so that vectors stay as they are."""


def untrained_settings(name: str, text: str = "") -> DualEncoderConfig:
    """The settings of the pretrained model: "yamnet" (or "yamnet+aisfx"), or the name or folder of a hub model.

    `text` is the sentence encoder beside YAMNet, all-mpnet-base-v2 where it is empty. Raises `ConfigError` where the
    model knows no words.
    """
    if name.split("+")[0] == YAMNET and is_named(name):
        encoder = text or SENTENCES
        audio = AudioConfig(encoder=name, train=False, bridge=True)
    elif is_named(name):
        own = ", ".join(each for each in TOWERS if each != YAMNET)
        raise ConfigError(f"{name}: knows no words untrained ({own} do not). Take yamnet, or a run trained on it.")
    elif not hub.is_hub_model(find(name)):
        raise ConfigError(f"{name}: neither a run nor an audio–text model. Take yamnet, a run, or a CLAP of the hub.")
    elif text:
        raise ConfigError(f"--text {text} with {name}: it reads words itself. Leave --text out.")
    else:
        encoder, audio = name, AudioConfig(encoder=name, train=False, residual=RESIDUAL)
    return DualEncoderConfig(
        ModelConfig(dim=text_encoder(encoder).dim), audio, TextConfig(encoder=encoder, residual=RESIDUAL)
    )
