"""What makes vectors of clips and does not learn: one pretrained tower, or several joined."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio.cache import Features
from earmark.errors import ConfigError, DataError
from earmark.model.audio_towers import AudioConfig, is_named, load_pretrained, random_tower, weights_of
from earmark.model.pretrained import fingerprint
from earmark.model.towers import AudioTower


class Frozen(ABC):
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

    @abstractmethod
    def move_to(self, device: torch.device) -> None:
        """Embeds there from now on."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Of the vectors."""

    @property
    @abstractmethod
    def front_end(self) -> str:
        """What it makes of sound, as JSON."""

    @property
    @abstractmethod
    def made_by(self) -> str:
        """What decides its vectors: the key of the cache."""

    @abstractmethod
    def read(self, path: Path) -> Features:
        """The vector of a sound file, with what was odd about it. Raises `DataError` where it holds no sound."""

    @abstractmethod
    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The vector of mono samples at `rate` Hz."""


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
        odd: list[str] = []
        return self._vector(self.tower.windows_of(path, odd), odd)

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The vector of mono samples at `rate` Hz."""
        return self._vector(self.tower.windows_of_waveform(samples, rate), [])

    @torch.inference_mode()
    def _vector(self, windows: Iterable[tuple[Tensor, float]], odd: list[str]) -> Features:
        """The vector of a clip's windows, of which one is held at a time."""
        tower = self.tower.to(self._device)
        found = [(tower([window.to(self._device)])[0].float().cpu(), seconds) for window, seconds in windows]
        lengths = torch.tensor([seconds for _, seconds in found])
        mean = (torch.stack([vector for vector, _ in found]) * (lengths / lengths.sum())[:, None]).sum(dim=0)
        if not torch.isfinite(mean).all():
            raise DataError(f"its vector by {self.name} is not finite. Leave the sound out.")
        return Features([F.normalize(mean, dim=0) if tower.unit else mean], [float(lengths.sum())], odd)


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
