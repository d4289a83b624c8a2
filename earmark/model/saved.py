"""Weights on disk: plain tensors in safetensors files, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from earmark.errors import DataError
from earmark.files import writing


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Writes a safetensors file, whole or not at all. Raises `DataError` where it cannot be written."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with writing(path) as aside:
        try:
            save_file({name: each.detach().contiguous() for name, each in tensors.items()}, aside, dict(header))
        except SafetensorError as error:
            raise DataError(f"{path}: cannot be written ({error}). Make room, or name another place.") from error


def of_today(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a run by the names that they have now; version 0.1.0 had no towers."""
    if "text.weight" not in state:
        return state
    renamed = {}
    for name, value in state.items():
        side, _, rest = name.partition(".")
        if side == "text":
            rest = f"head.{rest}"
        elif rest.startswith(("bn0.", "conv_block")):
            rest = f"tower.{rest}"
        elif rest.startswith("fc1."):
            rest = f"head.{rest}"
        elif rest in ("head.weight", "head.bias"):
            rest = rest.replace("head.", "head.out.")
        renamed[f"{side}.{rest}"] = value
    return renamed
