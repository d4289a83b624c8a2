"""Words in: sentence encoders that stay frozen, their cache on disk, and vectors that stand for captions.

A text encoder gives each text a base vector (numpy float32 [text, base]); what is learned on top is the
model's text head. Texts are taken as they are: case and punctuation kept.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from earmark.data.rows import is_blank
from earmark.errors import DataError
from earmark.model.pretrained import cache_folder, find, fingerprint

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, done, all)."""
BATCH = 64
"""Texts a forward pass, sorted by length, so that little is padding."""


def check_texts(texts: Sequence[str]) -> None:
    """Raises `DataError` on a text without a visible character; such a query would get an arbitrary ranking."""
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {place}: {type(text).__name__}; expected a text.")
        if is_blank(text):
            raise DataError(f"text {place}: blank ({text!r}); expected words.")


class SentenceEncoder:
    """A frozen sentence encoder: mean over tokens of the last hidden layer, brought to unit length.

    `encode` looks texts up in a cache on disk (one SQLite file a model, keyed by the fingerprint of its weights)
    and runs the transformer only for the others. Equal to sentence-transformers' encode to 1e-6.
    """

    def __init__(self, name: str, *, cache: Path | None = None) -> None:
        self.name = name
        self.folder = find(name)
        try:
            self.dim = int(json.loads((self.folder / "config.json").read_text())["hidden_size"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.folder}: no config.json with a hidden_size ({type(error).__name__}); expected the folder of a "
                "transformers model. Put the whole model there."
            ) from error
        self._check_pooling()
        self._cache = cache or cache_folder() / "texts"

    def _check_pooling(self) -> None:
        """Raises `DataError` where the model's own configuration asks for other pooling than the mean."""
        path = self.folder / "1_Pooling" / "config.json"
        if path.is_file() and not json.loads(path.read_text()).get("pooling_mode_mean_tokens", True):
            raise DataError(f"{path}: not mean pooling, which is the one supported here. Choose another model.")

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change with the weights."""
        return fingerprint(self.folder)

    @cached_property
    def longest(self) -> int:
        """Tokens that are read; what a longer text says after them is not."""
        limit = self.folder / "sentence_bert_config.json"
        stated = json.loads(limit.read_text()).get("max_seq_length") if limit.is_file() else None
        return int(stated or 256)

    @cached_property
    def _transformer(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        try:
            with _quiet_transformers():
                tokenizer = AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
                model = AutoModel.from_pretrained(self.folder, local_files_only=True, dtype=torch.float32)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            first = str(error).strip().splitlines()[0][:200]
            raise DataError(f"{self.folder}: not a whole model ({first}). Put all of its files there.") from error
        return tokenizer, model.eval().requires_grad_(False)

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit vectors, float32 [text, dim]; raises `DataError` on blank texts."""
        check_texts(texts)
        with _TextCache(self._cache / f"{self.fingerprint}.sqlite", self.dim) as cache:
            known = cache.get(dict.fromkeys(texts))
            missing = sorted((text for text in dict.fromkeys(texts) if text not in known), key=len)
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                fresh = dict(zip(batch, self._run(batch), strict=True))
                cache.put(fresh)
                known.update(fresh)
                if progress:
                    progress("embedding texts", start + len(batch), len(missing))
        return np.stack([known[text] for text in texts]) if texts else np.zeros((0, self.dim), np.float32)

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        tokenizer, model = self._transformer
        whole = tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        too_long = sum(len(tokens) > self.longest for tokens in whole)
        if too_long:
            warnings.warn(f"{too_long} texts are cut after {self.longest} tokens", stacklevel=4)
        tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=self.longest, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**tokens).last_hidden_state
            mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
            vectors: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors


class _TextCache:
    """Text → vector in one SQLite file; several processes may use it at once."""

    def __init__(self, path: Path, dim: int) -> None:
        self.dim = dim
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = self._opened(path)
        except (OSError, sqlite3.Error) as error:
            warnings.warn(f"{path}: no cache of texts ({error}); they are embedded anew", stacklevel=3)
            self._database = self._opened(":memory:")

    @staticmethod
    def _opened(path: Path | str) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=60)
        database.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        return database

    def __enter__(self) -> _TextCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def get(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of the texts that are there."""
        found = {}
        with closing(self._database.cursor()) as cursor:
            for text in texts:
                row = cursor.execute("SELECT vector FROM vectors WHERE text = ?", (_key(text),)).fetchone()
                if row and len(row[0]) == 4 * self.dim:
                    found[text] = np.frombuffer(row[0], dtype="<f4").astype(np.float32)
        return found

    def put(self, vectors: dict[str, NDArray[np.float32]]) -> None:
        """Adds them in one transaction."""
        rows = [(_key(text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.Error as error:  # full or read-only: the vectors are there all the same
            warnings.warn(f"texts are not cached ({error})", stacklevel=3)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without transformers' own progress bars and notes, which would break into ours."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()
