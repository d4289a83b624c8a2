"""Files as the DCASE challenge takes them: language-based audio retrieval, 2022–2024 and 2025.

2022–2024: `caption,file_name_1,…,file_name_10`, a row a query, best first. 2025: a matrix of scores, the first column
`index` holds the queries' texts (each text once), then a column a clip. Clips go by the names of their files: the
column `file_name` of `clips.csv`, else the path's last part, else the clip's id.

Equal scores stand in the order of the clips, since a list cannot say that they are tied; the measures know (metrics).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.data.collection import Clip, Collection
from earmark.errors import DataError
from earmark.files import writing
from earmark.measure.evaluate import Scorer, query_blocks

LISTED = 10
"""Clips a query in the form of 2022–2024."""


def file_names(collection: Collection, split: str | None) -> dict[str, str]:
    """The file's name of each clip of the gallery, by id. Raises `DataError` where two clips have the same."""
    names: dict[str, str] = {}
    owner: dict[str, str] = {}
    for clip in collection.gallery(split):
        name = _file_name(clip)
        if (first := owner.setdefault(name, clip.clip_id)) != clip.clip_id:
            raise DataError(
                f"{collection.root / 'clips.csv'}: {first!r} and {clip.clip_id!r} are both called {name!r}; a DCASE "
                "file needs a name a clip. Add a column file_name, or choose a split."
            )
        names[clip.clip_id] = name
    return names


def _file_name(clip: Clip) -> str:
    return clip.more.get("file_name") or clip.path.rpartition("/")[2] or clip.clip_id


def scores_path(path: Path) -> Path:
    """Where the matrix of 2025 goes: beside the file, `.scores.csv` in place of its ending."""
    return path.with_name(f"{path.stem}.scores.csv")


def write_dcase(
    path: Path, collection: Collection, split: str | None, scorer: Scorer, *, without: frozenset[str] = frozenset()
) -> None:
    """Writes both files (see the module), each whole or not at all, a part of the queries at a time.

    `without` names clips that have no embedding. Raises `DataError` where two clips' names are the same.
    """
    names = {clip: name for clip, name in file_names(collection, split).items() if clip not in without}
    queries = collection.query_captions(split, without)
    texts = {caption.caption_id: caption.text for caption in queries}
    clips = list(names)
    told = set[str]()
    with ExitStack() as stack:
        ranked, matrix = (
            stack.enter_context(stack.enter_context(writing(each)).open("w", encoding="utf-8", newline="\n"))
            for each in (path, scores_path(path))
        )
        ranked.write(_line("caption", [f"file_name_{place}" for place in range(1, LISTED + 1)]))
        matrix.write(_line("index", map(_quoted, names.values())))
        for some in query_blocks(list(texts)):
            scores = scorer(some, clips)
            for caption, row, best in zip(some, scores, _best(scores), strict=True):
                listed = [_quoted(names[clips[at]]) for at in best]
                text = _quoted(texts[caption])
                ranked.write(_line(text, listed + [""] * (LISTED - len(listed))))
                if text not in told:
                    matrix.write(_line(text, (f"{score:.9g}" for score in row.tolist())))
                    told.add(text)


def _best(scores: NDArray[np.float32]) -> Iterator[Sequence[int]]:
    """The places of each row's ten best, equal scores in the order of their places."""
    for row in scores:
        least = -np.partition(-row, LISTED - 1)[LISTED - 1] if len(row) > LISTED else -np.inf
        places = np.flatnonzero(row >= least)  # all that may stand among the ten, ties included
        yield places[np.argsort(-row[places], kind="stable")][:LISTED].tolist()


def _line(first: str, others: Iterable[str]) -> str:
    return ",".join([first, *others]) + "\n"


def _quoted(text: str) -> str:
    """The cell in quotes, whatever it holds."""
    return '"' + text.replace('"', '""') + '"'
