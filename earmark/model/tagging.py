"""Taggers: how likely each of AudioSet's classes is heard, a frame at a time.

`panns-sed` is PANNs' CNN14 for sound event detection (Kong et al., 2020: `Cnn14_DecisionLevelMax`), 527 classes every
0.32 s; `yamnet` is YAMNet, 521 classes over 0.96 s every 0.48 s. Long sounds are cut into windows of `LONGEST_S`, of
which one is in memory at a time; a frame hears nothing of the next window. What is shorter than a network's least
input is padded with silence in the waveform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio.logmel import PANNS
from earmark.errors import ConfigError, DataError
from earmark.model.cnn import Cnn14
from earmark.model.pretrained import find, fingerprint
from earmark.model.towers import LogMelTower
from earmark.model.yamnet import EMBEDDING, HOP, PATCH, YamNet

SED, YAMNET = "panns-sed", "yamnet"
CLASSES = 527
"""Of PANNs' networks."""


class PannsSed(Cnn14):
    """CNN14 whose sixth block keeps its frames, and class probabilities at every step of 32 frames.

    The network gives a probability a step; PANNs' own code repeats it 32 times over the frames, which changes no
    mean and adds 5 bits to every entropy over time. Here a frame is a step.
    """

    last_pool = 1
    remedy = "Use Cnn14_DecisionLevelMax_mAP=0.385.pth of Zenodo record 3987831."

    def __init__(self, *, width: int = 64, classes: int = CLASSES) -> None:
        """Random weights; `load` puts the published ones in place."""
        super().__init__(width=width, settings=PANNS)
        self.fc1 = nn.Linear(self.size, self.size)
        self.fc_audioset = nn.Linear(self.size, classes)

    def probabilities(self, window: Tensor) -> Tensor:
        """[step, class] of a log-mel [frame, band] of 32 frames or more."""
        x = self.steps([window])[0].transpose(1, 2)  # [1, channel, step]
        x = F.max_pool1d(x, 3, 1, 1) + F.avg_pool1d(x, 3, 1, 1)
        x = F.relu(self.fc1(x.transpose(1, 2)))
        scores: Tensor = self.fc_audioset(x)[0]
        return scores.sigmoid()


Probabilities = Callable[[Tensor], Tensor]
"""From a log-mel [frame, band] to [frame, class]."""


def _sed(path: Path) -> tuple[LogMelTower, Probabilities]:
    network = PannsSed()
    network.load(path)
    return network, network.probabilities


def _yamnet(path: Path) -> tuple[LogMelTower, Probabilities]:
    network = YamNet(classes=True)
    network.load(path)
    return network, lambda window: network.patch_vectors(window.unfold(0, PATCH, HOP).transpose(1, 2))[:, EMBEDDING:]


NETWORKS = {SED: _sed, YAMNET: _yamnet}
"""Name → network with its weights, the one to prefer first."""
FRAMES = {SED: "527 classes every 0.32 s", YAMNET: "521 classes over 0.96 s every 0.48 s"}
"""What the frames of each are, for readers."""


class Tagger:
    """A network with its weights: sounds → class probabilities, float32 [frame, class]."""

    def __init__(self, kind: str, path: Path) -> None:
        """`kind` is a name of `NETWORKS`. Raises `DataError` where the weights at `path` are not that network's."""
        self.name = kind
        self.network, self._probabilities = NETWORKS[kind](path)
        self.network.eval().requires_grad_(False)
        self.fingerprint = fingerprint(path)

    @property
    def made_by(self) -> str:
        """What decides the probabilities: for the key of a cache."""
        return f"class probabilities by {self.name} {self.fingerprint}: {self.network.made_by}"

    def windows(self, path: Path, odd: list[str] | None = None) -> Iterator[NDArray[np.float32]]:
        """Class probabilities [frame, class] of a file's windows, one at a time.

        What was odd about the sound is added to `odd` by the last. Raises `DataError` where it holds no sound.
        """
        for window, _ in self.network.windows_of(path, [] if odd is None else odd):
            yield self._of_window(window)

    @torch.inference_mode()
    def _of_window(self, window: Tensor) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._probabilities(window).numpy()
        if not np.isfinite(found).all():
            raise DataError(f"its class probabilities by {self.name} are not finite. Leave the sound out.")
        return found

    def probabilities(self, path: Path) -> NDArray[np.float32]:
        """Class probabilities [frame, class] of a whole file. Raises `DataError` where it holds no sound."""
        return np.concatenate(list(self.windows(path)))


def located(name: str) -> tuple[str, Path]:
    """(kind, weights) of "panns-sed", "yamnet", a path to either's weights, or "auto": the first of them that is found.

    They are looked up as all pretrained models are; nothing is downloaded. Raises `ConfigError` where none is found,
    naming the places that were asked.
    """
    missing = []
    for each in NETWORKS if name == "auto" else (name,):
        try:
            path = find(each, fetch=False)
        except DataError as error:
            missing.append(str(error))
            continue
        kind = each if each in NETWORKS else _kind(path)
        return kind, _checkpoint(path) if kind == SED else path
    known = f"expected auto, none, {', '.join(NETWORKS)}, or a path to either's weights"
    raise ConfigError(f"tagger = {name!r}: {known}. {' '.join(missing)}")


def _kind(path: Path) -> str:
    return YAMNET if path.suffix == ".onnx" or (path / "model.onnx").is_file() else SED


def _checkpoint(path: Path) -> Path:
    """The file, or the one checkpoint in the folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.pth"))
    if len(files) != 1:
        raise DataError(f"{path}: {len(files)} files *.pth; expected one. {PannsSed.remedy}")
    return files[0]
