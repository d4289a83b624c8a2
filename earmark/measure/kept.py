"""An evaluation on disk: one npz with every query's and pair's value, so that it can be compared without the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from earmark.errors import DataError
from earmark.files import writing
from earmark.measure.evaluate import Direction, Evaluation, Rated

DIRECTIONS = ("text_to_audio", "audio_to_text", "unseen")
COLUMNS = ("captions", "clips", "scores", "ratings", "groups")
"""Of the rated pairs."""


def write_evaluation(path: Path, evaluation: Evaluation, about: Mapping[str, Any]) -> None:
    """Writes the evaluation and what the caller wants to tell about it, whole or not at all."""
    head: dict[str, Any] = {
        name: getattr(evaluation, name) for name in ("collection", "kind", "split", "protocol", "left_out")
    }
    arrays: dict[str, Any] = {}
    for name in DIRECTIONS:
        direction: Direction | None = getattr(evaluation, name)
        if direction is not None:
            arrays |= {f"{name}/queries": _texts(direction.queries), f"{name}/clips": _texts(direction.clips)}
            arrays |= {f"{name}/values/{measure}": values for measure, values in direction.values.items()}
    if (rated := evaluation.rated) is not None:
        arrays |= {f"rated/{name}": np.asarray(getattr(rated, name)) for name in COLUMNS}
        arrays |= {"rated/ndcg": rated.ndcg}
        head["owners"] = {caption: rated.owners[caption] for caption in dict.fromkeys(rated.captions)}
    with writing(path) as aside, aside.open("wb") as file:
        np.savez_compressed(file, about=_texts([json.dumps(dict(about))]), head=_texts([json.dumps(head)]), **arrays)


def read_evaluation(path: Path) -> tuple[Evaluation, dict[str, Any]]:
    """The evaluation and what was told about it. Raises `DataError` where the file is anything else."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = dict(arrays)
        about, head = (json.loads(str(found[name][0])) for name in ("about", "head"))
        owners = head.pop("owners", None)
        parts: dict[str, Any] = {name: _direction(name, found) for name in DIRECTIONS}
        evaluation = Evaluation(**head, **parts, rated=_rated(found, owners))
    except Exception as error:  # zipfile, zlib and numpy let through whatever damage makes them raise
        raise _not_kept(path, error) from error
    return evaluation, about


def read_about(path: Path) -> dict[str, Any]:
    """What was told about the evaluation, alone. Raises `DataError` where the file is no kept evaluation."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            about: dict[str, Any] = json.loads(str(arrays["about"][0]))
    except Exception as error:  # zipfile, zlib and numpy let through whatever damage makes them raise
        raise _not_kept(path, error) from error
    return about


def _not_kept(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: no kept evaluation ({type(error).__name__}: {error}). Delete it.")


def _texts(texts: list[str]) -> Any:
    return np.array(texts, dtype=np.str_)


def _direction(name: str, arrays: Mapping[str, Any]) -> Direction | None:
    prefix = f"{name}/values/"
    if f"{name}/queries" not in arrays:
        return None
    values = {key.removeprefix(prefix): each for key, each in arrays.items() if key.startswith(prefix)}
    return Direction(arrays[f"{name}/queries"].tolist(), arrays[f"{name}/clips"].tolist(), values)


def _rated(arrays: Mapping[str, Any], owners: dict[str, str] | None) -> Rated | None:
    if owners is None:
        return None
    captions, clips, scores, ratings, groups = (arrays[f"rated/{name}"] for name in COLUMNS)
    return Rated(captions.tolist(), clips.tolist(), scores, ratings, owners, arrays["rated/ndcg"], groups.tolist())
