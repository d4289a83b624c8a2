"""Weights of runs that earlier versions wrote."""

from __future__ import annotations

from torch import Tensor


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
