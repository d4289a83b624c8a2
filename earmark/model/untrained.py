"""Pretrained encoders as a dual encoder in which nothing was learned: sounds and words share a space already.

YAMNet's class names lead its sounds into a sentence encoder's space; CLAP and audio–text models of
sentence-transformers have one of their own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.errors import ConfigError
from earmark.model import hub
from earmark.model.audio_towers import TOWERS, AudioConfig, is_named
from earmark.model.dual_encoder import DualEncoder, is_run, text_option
from earmark.model.heads import Bridge
from earmark.model.pretrained import find
from earmark.model.settings import DualEncoderConfig, ModelConfig
from earmark.model.text_encoders import TextConfig

YAMNET, SENTENCES = "yamnet", "all-mpnet-base-v2"
RESIDUAL = 0.1
"""Any but 0: a residual starts at zero, so that vectors stay as they are."""
RAISED, SHARPNESS, RIDGE = 2.0, 0.03, 0.01
"""Chosen on half of `data/library` by `group`, as benchmarks/search.py measures it."""
KNOWN = 0.45
"""The cosine of words with the nearest class name, below which they say little to the model. By all-mpnet-base-v2 it is
there of .87 of 100 words of random letters and of .92 of 50 pairs of them, and of .22 of 400 drawn from the 2,000 most
frequent of `freesound_search_terms.csv` ("mysterious", "idea", "hardstyle").
"""


def untrained_settings(name: str, text: str = "") -> DualEncoderConfig:
    """The settings of the pretrained model: "yamnet" (or "yamnet+aisfx"), or the name or folder of a hub model.

    `text` is the sentence encoder beside YAMNet, all-mpnet-base-v2 where it is empty. Raises `ConfigError` where the
    model knows no words.
    """
    if name.split("+")[0] == YAMNET and is_named(name):
        encoder = str(Path(text).resolve()) if is_run(text) else text or SENTENCES
        audio = AudioConfig(encoder=name, train=False, bridge=True)
    elif is_named(name):
        own = ", ".join(each for each in TOWERS if each != YAMNET)
        raise ConfigError(f"{name}: knows no words untrained ({own} do not). Take yamnet, or a run trained on it.")
    elif not hub.is_hub_model(find(name)):
        raise ConfigError(f"{name}: neither a run nor an audio–text model. Take yamnet, a run, or a CLAP of the hub.")
    elif text:
        raise ConfigError(f"--text-model {text} with {name}: it reads words itself. Leave --text-model out.")
    else:
        encoder, audio = name, AudioConfig(encoder=name, train=False, residual=RESIDUAL)
    return DualEncoderConfig(
        ModelConfig(dim=text_option(encoder, "--text-model").dim), audio, TextConfig(encoder=encoder, residual=RESIDUAL)
    )


class ClassLed:
    """How words are read beside a bridge in which nothing was learned.

    A clip's vector is a sum over class names there, Σ √p · t, and every name is a little like any words: hundreds of
    classes that were not meant drown the few that were. So the names nearest to the words are raised:
    q + `RAISED` · Σ s d, s = softmax(T q / `SHARPNESS`), where the duals d, (T Tᵀ + `RIDGE` I)⁻¹ T, tell each name t
    (the rows of T) apart from the others: d · t is nearly 1, and nearly 0 with the others. Clips' vectors stay.
    """

    def __init__(self, names: NDArray[np.float32]) -> None:
        """`names` are the unit vectors [class, dim] of the class names."""
        self.names = names
        self.duals = np.linalg.solve(names @ names.T + RIDGE * np.eye(len(names), dtype=np.float32), names)

    @classmethod
    def of(cls, model: DualEncoder) -> ClassLed | None:
        """For this model; None where it has no bridge, or has learned."""
        head = model.audio.head
        learned = [*head.parameters(), *model.text.parameters()]
        if not isinstance(head, Bridge) or any(bool(each.any()) for each in learned):
            return None
        return cls(head.classes.cpu().numpy())

    def led(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """The unit vector [dim] to search by, of the unit vector [dim] of words."""
        likeness = self.names @ words / SHARPNESS
        share = np.exp(likeness - likeness.max())
        asked = words + RAISED * (share / share.sum()) @ self.duals
        return np.asarray(asked / np.linalg.norm(asked), np.float32)

    def knows(self, words: NDArray[np.float32]) -> bool:
        """Whether some class name is near the words' unit vector [dim]."""
        return float((self.names @ words).max()) >= KNOWN
