"""Words in: sentence encoders, and the cache on disk of those that stay frozen.

A text encoder gives each text a base vector (numpy float32 [text, base]); what is learned on top is the
model's text head. Where the encoder itself is fine-tuned, its tower becomes a part of the model. Texts are taken as
they are: case and punctuation kept.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.data.check import shown
from earmark.data.rows import is_blank
from earmark.errors import ConfigError, DataError
from earmark.files import cache_folder
from earmark.model import hub
from earmark.model.heads import Residual
from earmark.model.pretrained import find, fingerprint
from earmark.model.towers import VECTORS, TextTower, cut_tokens, padded, quiet_transformers

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, done, all)."""
BATCH = 256
"""Texts that are embedded, and then kept, before the next ones."""
TOGETHER = 4
"""Texts a forward pass, all of one number of tokens: none is padded, and the shapes are always the same."""
PROBES = ("a dog barks", "heavy rain on a tin roof", "a crowd of people cheers and claps")
TOLD_APART = 1e-4
"""Vectors of the probes that are nearer than this in every value are the same vector."""


@dataclass(frozen=True)
class TextConfig:
    """`[text]` of a recipe."""

    encoder: str = "all-mpnet-base-v2"
    """The name or folder of a sentence encoder or of an audio–text model, or "vectors": caption_vectors.npz."""
    train: bool = False
    """Whether the encoder itself learns too, or only the head on top."""
    residual: float = 0.0
    """Scale of a learned residual that starts at zero in place of the linear head; 0 is the linear head."""


class TextEncoder(nn.Module):
    """A head on base vectors of texts, and below it the tower where that learns too."""

    def __init__(self, config: TextConfig, size: int, dim: int, *, tower: TextTower | None = None) -> None:
        """`size` is that of the base vectors. Raises `ConfigError` on settings that do not go together."""
        super().__init__()
        if not 0 <= config.residual < 1 << 16 or (config.train and config.encoder == VECTORS):
            raise ConfigError(
                f"text.residual = {config.residual}, text.train = {str(config.train).lower()}; expected a residual of "
                "0 or more, and train only with an encoder."
            )
        if config.residual and size != dim:
            raise ConfigError(
                f"text.residual = {config.residual}: the text vectors have {size} numbers and model.dim is {dim}; "
                f"expected the same. Set model.dim = {size}, or text.residual = 0."
            )
        self.tower = tower
        self.head: nn.Module = Residual(dim, config.residual) if config.residual else nn.Linear(size, dim)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """[text, dim] of base vectors [base], or of token ids [token] where the tower learns."""
        device = next(self.head.parameters()).device
        bases = torch.stack(list(features)).to(device) if self.tower is None else self.tower(features)
        out: Tensor = self.head(bases)
        return out


def check_texts(texts: Sequence[str]) -> None:
    """Raises `DataError` on a text without a visible character; such a query would get an arbitrary ranking.

    Also on one that UTF-8 cannot hold: a shell's word in another encoding, which no tokenizer takes.
    """
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {place}: {type(text).__name__}; expected a text.")
        if is_blank(text):
            raise DataError(f"text {place}: blank ({text!r}); expected words.")
        if shown(text) != text:
            raise DataError(f"text {place}: not UTF-8 ({shown(text)!r}); expected words. Write it in UTF-8.")


class SentenceTower(TextTower):
    """A transformer: mean over tokens of the last hidden layer, brought to unit length.

    Equal to sentence-transformers' encode to 1e-6.
    """

    def __init__(self, folder: Path) -> None:
        """The tower of a folder in the form of transformers. Raises `DataError` where it is not whole."""
        super().__init__()
        self.size = hidden_size(folder)
        _check_pooling(folder)
        limit = folder / "sentence_bert_config.json"
        stated = json.loads(limit.read_text()).get("max_seq_length") if limit.is_file() else None
        self.longest = int(stated or 256)
        self._tokenizer, self.transformer = _loaded(folder)

    def tokens(self, texts: Sequence[str]) -> list[Tensor]:
        """Token ids, int64 [token] each, cut after `longest` with one warning."""
        return cut_tokens(self._tokenizer, texts, self.longest)

    def forward(self, tokens: Sequence[Tensor]) -> Tensor:
        """Unit vectors [text, size] of token ids."""
        device = next(self.parameters()).device
        ids, mask = padded(tokens, self._tokenizer.pad_token_id or 0)
        hidden = self.transformer(ids.to(device), attention_mask=mask.to(device)).last_hidden_state
        share = mask.to(device).unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * share).sum(dim=1) / share.sum(dim=1), dim=1)


def hidden_size(folder: Path) -> int:
    """The size of a transformer's vectors, from its config.json. Raises `DataError` where there is none."""
    try:
        return int(json.loads((folder / "config.json").read_text())["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: no config.json with a hidden_size ({type(error).__name__}); expected the folder of a "
            "transformers model. Put the whole model there."
        ) from error


def _check_pooling(folder: Path) -> None:
    """Raises `DataError` where the model's own configuration asks for other pooling than the mean."""
    path = folder / "1_Pooling" / "config.json"
    if path.is_file() and not json.loads(path.read_text()).get("pooling_mode_mean_tokens", True):
        raise DataError(f"{path}: not mean pooling, which is the one supported here. Choose another model.")


def _loaded(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0][:200]
        raise DataError(f"{folder}: not a whole model ({first}). Put all of its files there.") from error
    return tokenizer, model


class SentenceEncoder:
    """A frozen sentence encoder.

    `encode` looks texts up in a cache on disk (one SQLite file a model, keyed by the fingerprint of its weights)
    and runs the tower only for the others.
    """

    def __init__(self, name: str, *, cache: Path | None = None) -> None:
        self.name = name
        self.folder = find(name)
        self._hub = hub.is_hub_model(self.folder)
        self.dim = hub.text_size(self.folder) if self._hub else hidden_size(self.folder)
        self._cache = cache or cache_folder() / "texts"

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change with the weights."""
        return fingerprint(self.folder)

    def trainable(self) -> TextTower:
        """The layers as a part of a model, to be fine-tuned; another copy than the frozen ones."""
        return self._checked().requires_grad_(True)

    @cached_property
    def tower(self) -> TextTower:
        """The layers, in evaluation mode."""
        return self._checked()

    def _checked(self) -> TextTower:
        """The layers, in evaluation mode.

        Raises `DataError` where the model is not whole, or gives different texts the same vector.
        """
        tower = hub.open_text(self.folder) if self._hub else SentenceTower(self.folder)
        tower.eval().requires_grad_(False)
        with torch.inference_mode():
            vectors = tower(tower.tokens(PROBES))
        if not torch.isfinite(vectors).all() or (vectors - vectors[0]).abs().max() < TOLD_APART:
            raise DataError(
                f"{self.folder}: gives {len(PROBES)} different texts the same vector, so its text weights were not "
                "loaded or are broken. Download it again, or choose another model."
            )
        return tower

    @property
    def max_seq_length(self) -> int:
        """Tokens of a text that are read."""
        return self.tower.longest

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit vectors, float32 [text, dim]; raises `DataError` on blank texts."""
        check_texts(texts)
        with _TextCache(self._cache / f"{self.fingerprint}.sqlite", self.dim) as cache:
            known = cache.get(list(dict.fromkeys(texts)))
            missing = sorted((text for text in dict.fromkeys(texts) if text not in known), key=len)
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                fresh = dict(zip(batch, self._run(batch), strict=True))
                cache.put(fresh)
                known.update(fresh)
                if progress:
                    progress("embedding texts", start + len(batch), len(missing))
        return np.stack([known[text] for text in texts]) if texts else np.zeros((0, self.dim), np.float32)

    @torch.inference_mode()
    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[text, dim], each to the last bit the same whatever else is embedded with it: the cache keeps them."""
        tokens = self.tower.tokens(texts)
        vectors = np.zeros((len(texts), self.dim), np.float32)
        by_length = sorted(range(len(texts)), key=lambda at: len(tokens[at]))
        for _, group in groupby(by_length, key=lambda at: len(tokens[at])):
            places = list(group)
            for some in (places[start : start + TOGETHER] for start in range(0, len(places), TOGETHER)):
                filled = [*some, *some[:1] * (TOGETHER - len(some))]
                vectors[some] = self.tower([tokens[at] for at in filled])[: len(some)].float().numpy()
        return vectors


class _TextCache:
    """Text → vector in one SQLite file; several processes may use it at once.

    Each vector is kept with a checksum: what a disk has damaged is not believed. A file that SQLite cannot read costs
    its texts, with one warning, and is made anew.
    """

    def __init__(self, path: Path, dim: int) -> None:
        self.path = path
        self.dim = dim
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = self._opened(path)
        except (OSError, sqlite3.Error) as error:
            self._begin_anew(error)

    @staticmethod
    def _opened(path: Path | str) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=60)
        try:
            database.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _begin_anew(self, error: Exception) -> None:
        """Goes on with an empty file where this one is damaged, and with none where no file can be had."""
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            warnings.warn(f"{self.path}: a damaged cache of texts ({error}); it is made anew", stacklevel=4)
            with suppress(OSError, sqlite3.Error):
                self.path.unlink()
                self._database = self._opened(self.path)
                return
        warnings.warn(f"{self.path}: no cache of texts ({error}); they are embedded anew", stacklevel=4)
        self._database = self._opened(":memory:")

    def __enter__(self) -> _TextCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def get(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of the texts that are there, whole and finite."""
        found: dict[str, NDArray[np.float32]] = {}
        try:
            with closing(self._database.cursor()) as cursor:
                for text in texts:
                    row = cursor.execute("SELECT vector FROM vectors WHERE text = ?", (_key(text),)).fetchone()
                    vector = _checked(_key(text), row[0], self.dim) if row else None
                    if vector is not None:
                        found[text] = vector
        except sqlite3.Error as error:
            self._database.close()
            self._begin_anew(error)
        return found

    def put(self, vectors: dict[str, NDArray[np.float32]]) -> None:
        """Adds them in one transaction."""
        rows = [(_key(text), _with_checksum(_key(text), vector)) for text, vector in vectors.items()]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:  # full or read-only: the vectors are there all the same
            warnings.warn(f"texts are not cached ({error})", stacklevel=3)
        except sqlite3.Error as error:
            self._database.close()
            self._begin_anew(error)


CHECKSUM = 8
"""Bytes that stand behind each vector in the cache."""


def _with_checksum(key: bytes, vector: NDArray[np.float32]) -> bytes:
    data = vector.astype("<f4").tobytes()
    return data + hashlib.sha256(key + data).digest()[:CHECKSUM]


def _checked(key: bytes, kept: Any, dim: int) -> NDArray[np.float32] | None:
    """The vector that was kept, or None where it is of another length, damaged or not finite."""
    if not isinstance(kept, bytes) or len(kept) != 4 * dim + CHECKSUM:
        return None
    vector = np.frombuffer(kept[:-CHECKSUM], dtype="<f4").astype(np.float32)
    return vector if np.isfinite(vector).all() and _with_checksum(key, vector) == kept else None


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
