"""The model of an index: chosen by name, told apart by its fingerprint, kept in the index as a run's folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from earmark.audio import cache
from earmark.errors import ConfigError, DataError
from earmark.files import write_text, writing_folder
from earmark.model.dual_encoder import DualEncoder, inputs_of, is_run, run_fingerprint
from earmark.model.pretrained import find
from earmark.model.settings import DualEncoderConfig
from earmark.model.share import is_hub_name
from earmark.model.text_encoders import Progress
from earmark.model.untrained import untrained_settings
from earmark.search.store import MODEL, About


@dataclass(frozen=True)
class Chosen:
    """A model that was named; nothing of it is loaded yet."""

    name: str
    fingerprint: str
    """32 hex digits: weights, settings, front end, precision, windows."""
    dim: int
    run: Path | None
    """The folder of the run, or None: then `settings`, untrained."""
    settings: DualEncoderConfig | None = None


def chosen(name: str, text: str = "", windows: About | None = None) -> Chosen:
    """The model of that name: a run's folder, a run or an audio–text model at the hub, or yamnet.

    `text` is the sentence encoder beside yamnet; `windows` tells how files are cut. Raises `DataError` or
    `ConfigError` where there is no such model.
    """
    about = windows or About()
    folder = Path(name) if is_run(name) else _fetched_run(name)
    if folder is not None:
        if text:
            raise ConfigError(f"--text-model {text} with the run {name}: it has its own. Leave --text-model out.")
        shown = str(folder.resolve()) if is_run(name) else name
        own: list[Any] = [run_fingerprint(folder)]
        settings, dim = None, _run_dim(folder)
    else:
        shown, settings = name, untrained_settings(name, text)
        own = [asdict(settings), asdict(inputs_of(settings, None))]
        dim = settings.model.dim
    told = json.dumps([own, cache.FORMAT, about.precision, about.window_s, about.hop_s], sort_keys=True)
    return Chosen(shown, hashlib.sha256(told.encode()).hexdigest()[:32], dim, folder, settings)


def _fetched_run(name: str) -> Path | None:
    folder = find(name) if is_hub_name(name) else None
    return folder if folder is not None and is_run(str(folder)) else None


def _run_dim(folder: Path) -> int:
    from earmark.config import read_toml

    config = DualEncoderConfig.from_tables(read_toml(folder / "config.toml"), str(folder / "config.toml"))
    return config.model.dim


def keep(model: Chosen, index: Path, progress: Progress | None = None) -> None:
    """Writes the model into the index, as a run's folder of `config.toml` and `model.safetensors`, whole or not.

    The names of YAMNet's classes are embedded for it, which takes half a minute once on a machine.
    """
    shutil.rmtree(index / MODEL, ignore_errors=True)
    with writing_folder(index / MODEL) as aside:
        if model.run is not None:
            for name in ("config.toml", "model.safetensors"):
                if not (model.run / name).is_file():
                    raise DataError(f"{model.run}: the run is not finished (no {name}). Go on with `--resume`.")
                shutil.copyfile(model.run / name, aside / name)
        else:
            assert model.settings is not None
            made = DualEncoder.for_collection(model.settings, None, progress=progress)
            tables: dict[str, Any] = {**asdict(model.settings), "inputs": asdict(made.inputs)}
            write_text(aside / "config.toml", tomli_w.dumps(tables))
            made.save(aside)


def load(index: Path) -> DualEncoder:
    """The model that embedded the index, in evaluation mode.

    Raises `DataError` where it is not whole, or the pretrained weights below it are not there any more.
    """
    return DualEncoder.load(index / MODEL)
