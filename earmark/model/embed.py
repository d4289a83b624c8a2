"""A collection's vectors by any encoder: `clip_vectors.npz` and `caption_vectors.npz`.

Sounds are read and embedded by several processes, which share the cache on disk: what one has made, none makes
again, so a command that was killed goes on where it was, and two at once do no harm.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from earmark.audio.cache import FeatureCache
from earmark.config import read_toml
from earmark.data.collection import VECTOR_FILES, Collection, VectorTable
from earmark.errors import DataError, EarmarkError, Problem
from earmark.model import hub
from earmark.model.audio_towers import is_named
from earmark.model.dual_encoder import frozen_tower, is_run, text_option
from earmark.model.frozen import Frozen
from earmark.model.pretrained import find
from earmark.model.reading import Place, place_of, read_one
from earmark.model.stored import named_models
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device
from earmark.workers import interrupts_put_off, process_pool

TEXT_MODEL = "all-mpnet-base-v2"
"""Embeds the captions where the model embeds sounds alone."""
CLIPS_A_PROCESS = 50
"""Fewer do not pay for starting it."""


class Embedded(NamedTuple):
    """What was embedded."""

    collection: Collection
    """As it is now on disk."""
    text_model: str
    problems: list[Problem]
    """Clips that have no vector."""
    odd: list[Problem]
    """Clips that have one, and what was odd about their sounds."""


class _Made(NamedTuple):
    vector: NDArray[np.float32] | None
    odd: list[str]
    error: str = ""


def embed(
    collection: Collection, name: str, *, text: str = "", jobs: int = 1, progress: Progress | None = None
) -> Embedded:
    """Writes the vectors of all clips and captions beside the collection's tables, and names their models there.

    `name` is earmark's own name of a model, a hub model or the folder of a run; `text` embeds the captions: where it
    is empty the model itself if it can, else all-mpnet-base-v2. `jobs` processes, 0: one a core (a script that asks
    for several needs its `if __name__ == "__main__"`). Raises `DataError` where no clip can be embedded; the files that
    were there stay then.
    """
    name = str(Path(name).resolve()) if is_run(name) else name  # a run is found again from any folder
    frozen = frozen_tower(name)
    texts = text_option(text or (name if _embeds_texts(name) else TEXT_MODEL))
    _ = frozen.size  # what is wrong with the model is told before the work begins
    ids = [clip.clip_id for clip in collection.clips]
    made = dict(zip(ids, _embed_clips(frozen, collection, jobs, progress), strict=True))
    vectors = {clip: each.vector for clip, each in made.items() if each.vector is not None}
    problems = [Problem(f"clip {clip!r}", each.error) for clip, each in made.items() if each.vector is None]
    if not vectors:
        first = f" ({problems[0]})" if problems else ""
        raise DataError(
            f"{collection.root}: none of its {len(made)} clips can be embedded{first}. Nothing was written."
        )
    captions = VectorTable(
        tuple(caption.caption_id for caption in collection.captions),
        texts.encode([caption.text for caption in collection.captions], progress),
    )
    named = {
        "clip_model": name,
        "clip_fingerprint": frozen.fingerprint,
        "clip_front_end": frozen.front_end,
        "caption_model": texts.name,
        "caption_fingerprint": texts.fingerprint,
    }
    clips = VectorTable(tuple(vectors), np.stack(list(vectors.values())))
    written = _written(collection, (clips, captions), named)
    odd = [Problem(f"clip {clip!r}", what) for clip, each in made.items() for what in each.odd]
    return Embedded(written, texts.name, problems, odd)


def _written(collection: Collection, tables: tuple[VectorTable, VectorTable], named: Mapping[str, str]) -> Collection:
    """The collection as it is once the two tables and the names of their models are written.

    Between the files and their names a kill leaves vectors of no named model, never of a wrong one; after an error or
    Ctrl-C each file that is there has the names of its own models.
    """
    others = {key: value for key, value in named_models(collection).items() if key not in named}
    files = [collection.root / file for file in VECTOR_FILES]

    def under(names: Mapping[str, Any]) -> Collection:
        found = replace(collection, about={**collection.about, "vectors": {**others, **names}})
        found.write_about()
        return found

    with _alone(collection.root):
        earlier = _names_in(collection.root / "collection.toml")  # another process may have embedded meanwhile
        before = list(map(_state, files))
        try:
            under({})
            for table, file in zip(tables, files, strict=True):
                table.write(file)
            return under(named)
        except BaseException:
            names: dict[str, Any] = {}
            for of, file, was in zip(("clip_", "caption_"), files, before, strict=True):
                own = earlier if _state(file) == was else named
                names |= {key: value for key, value in own.items() if key.startswith(of)}
            with suppress(EarmarkError):  # there may be no room for this either
                under(names)
            raise


def _state(path: Path) -> tuple[int, ...]:
    """What changes where another file takes the place of this one; nothing where there is none."""
    if not path.exists():
        return ()
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_mtime_ns


def _names_in(path: Path) -> Mapping[str, Any]:
    """The names of the models of the vectors, by the file as it is now."""
    names = read_toml(path).get("vectors", {}) if path.exists() else {}
    return names if isinstance(names, Mapping) else {}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within the block no other process that asks so writes into the folder; it waits meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _embeds_texts(name: str) -> bool:
    return is_run(name) or (not is_named(name) and hub.is_hub_model(find(name)))


def _embed_clips(frozen: Frozen, collection: Collection, jobs: int, progress: Progress | None) -> Iterator[_Made]:
    """What came of each clip, in order."""
    places = [place_of(collection, clip) for clip in collection.clips]
    usual = (os.cpu_count() or 1) if best_device().type == "cpu" else 1  # one process holds the GPU
    jobs = min(jobs or usual, max(1, len(places) // CLIPS_A_PROCESS))
    for done, made in enumerate(_in_processes(frozen, places, jobs) if jobs > 1 else _here(frozen, places), start=1):
        yield made
        if progress:
            progress("embedding sounds", done, len(places))


def _here(frozen: Frozen, places: Sequence[Place]) -> Iterator[_Made]:
    frozen.move_to(best_device())
    cache = FeatureCache(frozen.made_by)
    return (_made_of(frozen, cache, place) for place in places)


def _in_processes(frozen: Frozen, places: Sequence[Place], jobs: int) -> Iterator[_Made]:
    with process_pool(jobs, _start, frozen.name, frozen.fingerprint, doing="embedded sounds") as pool:
        with interrupts_put_off():  # the processes are started here, and inherit it: Ctrl-C is for this one alone
            found = pool.map(_embed_in_process, places, chunksize=4)
        yield from found


_worker: dict[str, Any] = {}
"""The process's own tower and cache."""


def _start(name: str, fingerprint: str) -> None:
    torch.set_num_threads(1)  # the processes are the parallelism
    frozen = frozen_tower(name, expected=fingerprint)
    frozen.move_to(best_device())
    _worker.update(frozen=frozen, cache=FeatureCache(frozen.made_by))


def _embed_in_process(place: Place) -> _Made:
    return _made_of(_worker["frozen"], _worker["cache"], place)


def _made_of(frozen: Frozen, cache: FeatureCache, place: Place) -> _Made:
    found = read_one(frozen, cache, place)
    if isinstance(found, DataError):
        return _Made(None, [], str(found))
    return _Made(found.windows[0].numpy(), found.odd)
