"""Checkpoints: the whole state of training in one file that is there whole or not at all.

Tensors (weights, Adam's moments) and numbers (as JSON in the file's header) go into one safetensors file, so
nothing is ever unpickled and no two files can disagree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from earmark.errors import DataError
from earmark.files import writing


def save(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, numbers: dict[str, Any]) -> None:
    """Writes the state; `numbers` is anything that JSON can hold."""
    from safetensors.torch import save_file

    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    state = optimiser.state_dict()
    for place, values in state["state"].items():
        tensors |= {f"optimiser.{place}.{name}": torch.as_tensor(value) for name, value in values.items()}
    groups = [{**group, "params": list(group["params"])} for group in state["param_groups"]]
    header = {"state": json.dumps({"numbers": numbers, "groups": groups})}
    with writing(path) as aside:
        save_file({name: value.detach().contiguous().clone() for name, value in tensors.items()}, aside, header)


def load(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Puts the state back in place and gives the numbers. Raises `DataError` where the file does not fit."""
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                _, place, key = name.split(".")
                state.setdefault(int(place), {})[key] = value
        optimiser.load_state_dict({"state": state, "param_groups": header["groups"]})
    except (SafetensorError, RuntimeError, ValueError, KeyError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: not a checkpoint of this run ({reason}). Start again in another folder.") from error
    numbers: dict[str, Any] = header["numbers"]
    return numbers
