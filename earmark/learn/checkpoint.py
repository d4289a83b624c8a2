"""What changes while a model learns, and its checkpoints: one file that is there whole or not at all.

Tensors (weights, Adam's moments) and numbers (as JSON in the file's header) go into one safetensors file, so
nothing is ever unpickled and no two files can disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from earmark.config import from_table
from earmark.errors import DataError
from earmark.files import write_tensors
from earmark.learn.objectives import Objective
from earmark.learn.recipe import TrainConfig
from earmark.model.dual_encoder import DualEncoder

LR_FACTOR, LR_THRESHOLD, LR_LEAST = 0.1, 0.005, 1e-6
"""The plateau's settings, from the authors' baseline; the threshold is absolute and for losses."""


@dataclass
class State:
    """Where training is: all that a checkpoint holds beside tensors."""

    epoch: int = 0
    """Epochs that are finished."""
    step: int = 0
    """Steps that are finished, over the whole run."""
    sums: dict[str, float] = field(default_factory=dict)
    """Of this epoch's losses so far."""
    best: float | None = None
    best_epoch: int = 0
    bad_epochs: int = 0
    """Epochs since the best one."""
    log_lines: int = 0
    """Lines of `log.jsonl` that count; later ones were written by a run that was killed."""
    finished: bool = False


class Learner(nn.Module):
    """A model, the objectives it learns by, and how far it has come."""

    def __init__(self, model: DualEncoder, objectives: Sequence[Objective], config: TrainConfig) -> None:
        super().__init__()
        self.model = model
        self.objectives = list(objectives)
        self.learned = nn.ModuleList(objectives)
        """The objectives again, where torch finds their learned temperatures."""
        self.config = config
        self.state = State()
        self.optimiser = torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=config.lr, fused=True)
        is_loss = config.monitor == "val_loss"
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimiser,
            mode="min" if is_loss else "max",
            factor=LR_FACTOR,
            patience=config.lr_patience,
            threshold=LR_THRESHOLD if is_loss else 0.0,
            threshold_mode="abs",
            min_lr=LR_LEAST,
        )

    def judge(self, value: float) -> bool:
        """Ends an epoch with the monitored value: tells whether it is the best so far, lowers lr, or finishes."""
        state = self.state
        if self.config.monitor == "last":
            state.best, state.best_epoch = value, state.epoch
            return True
        is_best = state.best is None or (
            value < state.best if self.config.monitor == "val_loss" else value > state.best
        )
        if is_best:
            state.best, state.best_epoch, state.bad_epochs = value, state.epoch, 0
        else:
            state.bad_epochs += 1
        self.plateau.step(value)
        state.finished = state.bad_epochs >= self.config.stop_patience
        return is_best

    def save_weights(self, path: Path) -> None:
        """Writes the weights alone, whole or not at all."""
        write_tensors(path, self.state_dict(), {})

    def load_weights(self, path: Path) -> None:
        """Puts the weights of `save_weights` in place. Raises `DataError` where the file does not fit."""
        from safetensors.torch import load_file

        with _refusing(path):
            self.load_state_dict(load_file(path))

    def save(self, path: Path) -> None:
        """Writes everything, whole or not at all."""
        tensors = dict(self.state_dict())
        optimiser = self.optimiser.state_dict()
        for place, values in optimiser["state"].items():
            tensors |= {f"optimiser.{place}.{name}": torch.as_tensor(value) for name, value in values.items()}
        numbers = {
            "state": asdict(self.state),
            "groups": optimiser["param_groups"],
            "plateau": self.plateau.state_dict(),
        }
        write_tensors(path, tensors, {"numbers": json.dumps(numbers)})

    def take_up(self, path: Path) -> None:
        """Puts everything back in place as the file has it. Raises `DataError` where it does not fit."""
        from safetensors import safe_open

        weights: dict[str, Tensor] = {}
        moments: dict[int, dict[str, Tensor]] = {}
        with _refusing(path):
            with safe_open(path, framework="pt") as file:
                numbers: dict[str, Any] = json.loads(file.metadata()["numbers"])
                for name in file.keys():  # noqa: SIM118  (not a dict)
                    if name.startswith("optimiser."):
                        _, place, key = name.split(".")
                        moments.setdefault(int(place), {})[key] = file.get_tensor(name)
                    else:
                        weights[name] = file.get_tensor(name)
            self.load_state_dict(weights)
            self.optimiser.load_state_dict({"state": moments, "param_groups": numbers["groups"]})
            self._lay_moments()
            self.plateau.load_state_dict(numbers["plateau"])
            self.state = from_table(State, numbers["state"], f"{path}: state")

    def _lay_moments(self) -> None:
        """Brings Adam's moments into the memory order of their parameters, which the fused step takes for granted."""
        for parameter, state in self.optimiser.state.items():
            for name, value in state.items():
                if value.shape == parameter.shape:
                    state[name] = torch.empty_like(parameter).copy_(value)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turns what a file that does not fit raises into a `DataError`."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, RuntimeError, ValueError, KeyError, TypeError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: not a checkpoint of this run ({reason}). Start again in another folder.") from error
