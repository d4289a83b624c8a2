"""Sounds to features, many at a time: each looked up in the cache first, and one that cannot be read costs itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from earmark.audio.cache import FeatureCache, Features
from earmark.data.collection import Clip, Collection
from earmark.errors import DataError

Place = Path | DataError
"""Where a clip's sound is, or why it is nowhere."""


class Reader(Protocol):
    """What makes features of a sound: a tower, a frozen one, or whatever else has these two."""

    @property
    def made_by(self) -> str:
        """What decides the features: the key of the cache."""

    def read(self, path: Path) -> Features:
        """The features of a sound file. Raises `DataError` where it holds no sound."""


def place_of(collection: Collection, clip: Clip) -> Place:
    """Where the clip's sound is, or why it is nowhere."""
    try:
        return collection.audio_path(clip)
    except DataError as error:
        return error


def read_one(reader: Reader, cache: FeatureCache, place: Place) -> Features | DataError:
    """The features of a sound, from the cache or made, or why there are none."""
    if isinstance(place, DataError):
        return place
    try:
        return cache.features(place, reader.read)
    except (DataError, OSError) as error:
        return error if isinstance(error, DataError) else DataError(str(error))


def read_all(reader: Reader, places: Sequence[Place]) -> Iterator[Features | DataError]:
    """What came of each sound, in order; all cores read."""
    cache = FeatureCache(reader.made_by)  # what is looked up late is looked up here, before there are threads
    with one_thread(), ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(lambda place: read_one(reader, cache, place), places)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block torch computes each operation on one thread: the callers are the parallelism."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
