"""A run at the hub: three files go up in one commit, and the same three come down; a fourth where the run has it.

`config.toml`, `model.safetensors`, and the card, which is `card.md` at home and `README.md` at the hub; and
`calibration.json`, by which cosines become ratings. Checkpoints, logs and locks stay at home, and nothing is pickled.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from earmark.errors import ConfigError, DataError, EarmarkError
from earmark.model.audio_towers import is_frozen, is_named
from earmark.model.pretrained import HUB, PACKAGES
from earmark.model.settings import DualEncoderConfig, Inputs
from earmark.model.towers import VECTORS

CONFIG, WEIGHTS = "config.toml", "model.safetensors"
CALIBRATION = "calibration.json"
"""Where `earmark score --fit` was run: it goes by the weights' fingerprint, so it is good wherever they are."""
CARDS = ("card.md", "README.md")
"""The card's names, at home and at the hub."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
EXAMPLE = re.compile(r'earmark\.load\("(?:[^"\\\n]|\\.)*"\)')
"""The line of the card's example that names the model."""


def is_hub_name(name: str | Path) -> bool:
    """Whether it is "owner/name" and no file or folder here."""
    return isinstance(name, str) and HUB_NAME.fullmatch(name) is not None and not Path(name).exists()


# What others can load


def check_others_can_load(config: DualEncoderConfig, inputs: Inputs, where: str) -> None:
    """Raises `ConfigError` where the model stands on another one that only this machine has.

    Warns where a path of this machine goes up that is not needed, and where nothing but vectors can be embedded.
    """
    needed = {"audio.encoder": config.audio.encoder, "text.encoder": config.text.encoder}
    if config.audio.encoder == VECTORS:
        needed["inputs.clip_model"] = inputs.clip_model
    if config.text.encoder == VECTORS:
        needed["inputs.caption_model"] = inputs.caption_model
    own_weights = is_named(config.audio.encoder) and config.audio.weights not in ("pretrained", "none")
    if own_weights and is_frozen(config.audio) and config.audio.encoder != VECTORS:
        needed["audio.weights"] = config.audio.weights
    for key, name in needed.items():
        if name and not _is_known_elsewhere(name):
            raise ConfigError(
                f"{where}: {key} = {name!r}, which only this machine has; expected a name that others find too. Push "
                "that model to the hub, and write its name there."
            )
        if not name:
            warnings.warn(f"{where}: no {key}, so those who load it can embed nothing but such vectors", stacklevel=3)
    if own_weights and "audio.weights" not in needed:
        warnings.warn(
            f"{where}: audio.weights = {config.audio.weights!r} goes up with it; loading does not need it", stacklevel=3
        )


def _is_known_elsewhere(name: str) -> bool:
    parts = name.split("+")  # towers that are joined
    return all(is_named(part) or part in HUB or part in PACKAGES or is_hub_name(part) for part in parts)


# Up and down


def push(folder: Path, repo_id: str, *, private: bool | None, token: str | bool | None, commit_message: str) -> str:
    """The address of the commit with the run's files; the repository is made where it is not there.

    Raises `ConfigError` on a name of another form, `DataError` where a file is missing or the hub refuses.
    """
    if not HUB_NAME.fullmatch(repo_id):
        raise ConfigError(f'{repo_id!r}: not a name at the hub; expected "owner/name".')
    card = next((folder / name for name in CARDS if (folder / name).is_file()), None)
    if card is None or not (folder / WEIGHTS).is_file():
        missing = WEIGHTS if card else CARDS[0]
        raise DataError(f"{folder}: no {missing}; expected a finished run. Go on with `earmark train --resume`.")
    text = EXAMPLE.sub(lambda _: f"earmark.load({json.dumps(repo_id)})", card.read_text(encoding="utf-8"))
    with _told(f"{repo_id}: not pushed"):
        from huggingface_hub import CommitOperationAdd, HfApi

        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        here = [name for name in (CONFIG, WEIGHTS, CALIBRATION) if (folder / name).is_file()]
        files: dict[str, Any] = {CARDS[1]: text.encode(), **{name: folder / name for name in here}}
        added = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=file) for name, file in files.items()]
        return str(api.create_commit(repo_id, added, commit_message=commit_message).commit_url)


def fetched(name: str, *, revision: str | None = None, token: str | bool | None = None) -> Path:
    """The folder, in the hub's cache, with the files of the hub's model.

    Raises `DataError` where the hub has no such model or cannot be reached and the cache has none.
    """
    with _told(f"{name}: no such folder here, and not fetched"):
        from huggingface_hub import snapshot_download

        wanted = [CONFIG, WEIGHTS, CALIBRATION, *CARDS]
        folder = Path(snapshot_download(name, revision=revision, token=token, allow_patterns=wanted))
    missing = [file for file in (CONFIG, WEIGHTS) if not (folder / file).is_file()]
    if missing:
        raise DataError(f"{name}: at the hub, but no model of earmark (no {missing[0]}). Check the name.")
    return folder


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raises `DataError` in one line, whatever the hub's library raises."""
    from huggingface_hub import errors

    told: dict[type[BaseException], str] = {
        errors.GatedRepoError: "its owner has to let you in. Ask there, and give your token",
        errors.RepositoryNotFoundError: "no such repository, or not for you. Check the name, or give a token",
        errors.RevisionNotFoundError: "no such revision. Check it",
        errors.HFValidationError: "not a name at the hub. Check it",
        errors.OfflineModeIsEnabled: "HF_HUB_OFFLINE is set. Unset it",
        errors.LocalEntryNotFoundError: "the hub cannot be reached, and no copy is here. Connect, or give a folder",
    }
    try:
        yield
    except EarmarkError:
        raise
    except Exception as error:
        of = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error  # "while uploading"
        found = " ".join(str(of).split())[:200].rstrip(".") or type(of).__name__
        refused = getattr(getattr(of, "response", None), "status_code", 0) in (401, 403)
        todo = "Give a token that may do it (token=…, or `hf auth login`)" if refused else "Try again"
        reason = next((text for kind, text in told.items() if isinstance(error, kind)), f"{found}. {todo}")
        raise DataError(f"{what}: {reason}.") from error
