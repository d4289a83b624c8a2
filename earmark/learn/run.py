"""A run's folder: whose it is, and what is written into it.

It holds `config.toml` (the complete recipe, what fed the encoders, the data), `log.jsonl` (a line an epoch),
`checkpoint/`, and at the end `model.safetensors` (the best epoch's weights) and `card.md` (`card.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from earmark.config import read_toml
from earmark.data.collection import Collection
from earmark.data.marks import marks
from earmark.errors import ConfigError, EarmarkError, Problem
from earmark.files import LOCK, folder_alone, opened, write_text
from earmark.learn import processes
from earmark.learn.estimates import about, teachers_of
from earmark.learn.recipe import Recipe
from earmark.model.dual_encoder import DualEncoder


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    run: Path
    epochs: int
    best_epoch: int
    monitor: str
    """`val_loss` or `val_mAP`."""
    best: float
    monitor_split: str
    decided: bool
    """Whether that split stopped training and chose the epoch; false where the last epoch is kept in any case."""
    unlearned: int
    """Rated pairs that no objective learns from."""
    problems: list[Problem]
    """Clips that could not be read; they and their captions were left out. Captions that could not, with ratings."""


@contextmanager
def claimed(out: Path, recipe: Recipe, collection: Collection, resume: bool) -> Iterator[None]:
    """The folder for this process alone, or for those that learn together, of which the first holds it.

    Raises `ConfigError` where it holds another run, anything else, or a run that is at work.
    """
    with ExitStack() as held:
        processes.first(lambda: held.enter_context(_held(out, recipe, collection, resume)))
        yield


@contextmanager
def _held(out: Path, recipe: Recipe, collection: Collection, resume: bool) -> Iterator[None]:
    if (out / "config.toml").exists():
        if not resume:
            raise ConfigError(f"{out}: holds a run already. Go on with it (--resume), or choose another folder.")
        check_same(out / "config.toml", recipe, collection)
    elif out.exists() and (not out.is_dir() or not all(map(_is_left_over, out.iterdir()))):
        raise ConfigError(f"{out}: not empty and not a run. Choose another folder.")
    busy = ConfigError(f"{out}: another process is training in it. Wait, or choose another folder.")
    with folder_alone(out, busy):
        for part in out.rglob(".*.part"):  # what a killed process was writing
            part.unlink()
        new = not (out / "config.toml").exists()
        try:
            yield
        except EarmarkError:
            if new and not (out / "checkpoint").exists():  # nothing was learned: the corrected command may come
                (out / "config.toml").unlink(missing_ok=True)
                (out / LOCK).unlink()
                with suppress(OSError):  # something else is in it
                    out.rmdir()
            raise


def _is_left_over(path: Path) -> bool:
    """Whether a killed process left the file before its run began."""
    return path.name == LOCK or (path.name.startswith(".") and path.suffix == ".part")


def check_same(config: Path, recipe: Recipe, collection: Collection) -> None:
    """Raises `ConfigError` where the run was started with another recipe or other data."""
    found = read_toml(config)
    wanted: dict[str, Any] = json.loads(json.dumps(recipe.complete()))
    differing = [key for key in wanted if key != "expected" and wanted[key] != found.get(key)]
    data = found.get("data", {})
    if data.get("fingerprint") != fingerprint(collection):
        differing.append("data")
    taught = {name: made for name, made in data.get("estimates", {}).items() if name.startswith("teacher:")}
    if (out := config.parent / "model.safetensors").exists() and taught != teachers_of(recipe):
        differing.append(f"teacher (than those of {out.name})")
    if differing:
        raise ConfigError(
            f"{config}: the run was started with another {' and '.join(differing)}. "
            "Resume with what it was started with, or choose another folder."
        )


def fingerprint(collection: Collection) -> str:
    """32 hex digits that change with any clip, caption, rating or vector (not with the bytes of sounds)."""
    digest = hashlib.sha256()
    for name in ("clips.csv", "captions.csv", "ratings.csv", "clip_vectors.npz", "caption_vectors.npz"):
        path = collection.root / name
        digest.update(name.encode())
        if path.exists():
            with opened(path) as file:
                digest.update(file.read())
    return digest.hexdigest()[:32]


def write_config(
    out: Path, recipe: Recipe, collection: Collection, monitor_split: str, model: DualEncoder, trained_on: Sequence[str]
) -> None:
    """Writes `config.toml`; `trained_on` are the clips that training sees.

    Their marks, and those of the clips that are watched, tell later whether another collection's clips are these.
    Raises `ConfigError` where the run was started with another model below it or other readable clips.
    """
    data: dict[str, Any] = {
        "name": collection.name,
        "kind": collection.kind,
        "fingerprint": fingerprint(collection),
        "monitor_split": monitor_split,
        "clips": sorted(trained_on),
        "watched": sorted(clip.clip_id for clip in collection.gallery(monitor_split)),
    }
    data["marks"] = marks(collection, [*data["clips"], *data["watched"]])
    if estimated := about(recipe, collection, model):
        data["estimates"] = estimated
    tables = {**recipe.complete(), "inputs": asdict(model.inputs), "data": data}
    path = out / "config.toml"
    if path.exists():
        found = read_toml(path)
        before, now = found.get("data", {}), dict(data)
        for later in ("watched", "marks"):  # runs of earlier versions kept neither; a sound's bytes may change
            now[later] = before.get(later, now[later])
            before = {**before, later: now[later]}
        if (found.get("inputs"), before) != (tables["inputs"], now):
            raise ConfigError(
                f"{path}: the run was started with another text model, front end, teacher, or other readable clips. "
                "Bring them back, or choose another folder."
            )
    write_text(path, tomli_w.dumps(tables))


def write_log(out: Path, kept: int, line: Mapping[str, Any]) -> int:
    """Appends a line to `log.jsonl` after its first `kept` ones, and gives how many there are now."""
    path = out / "log.jsonl"
    lines = path.read_text().splitlines()[:kept] if path.exists() else []
    lines.append(json.dumps(line))
    write_text(path, "\n".join(lines) + "\n")
    return len(lines)
