"""One file → what an index keeps of it: its facts, a vector a window, the words it carries, the print of its sound."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.audio import decode
from earmark.errors import DataError
from earmark.search.copies import print_of
from earmark.search.plan import Taken
from earmark.search.query import Vector
from earmark.search.store import DESCRIBED, About, written_schema
from earmark.search.walk import Found
from earmark.search.words import Carried, carried

if TYPE_CHECKING:
    import pyarrow as pa

    from earmark.model.dual_encoder import DualEncoder

AT_ONCE = 16
"""Windows whose features are held at once."""
Span = tuple[int, int]


class Read(NamedTuple):
    """A file that holds sound."""

    rate: int
    channels: int
    duration_s: float
    spans: list[tuple[float, float]]
    """(start, end) of its windows, seconds."""
    vectors: NDArray[np.float32]
    """Unit length, [window, dim]."""
    content: str
    """SHA-256 of its bytes, hex."""
    words: Carried
    print: bytes
    odd: list[str]


class Unread(NamedTuple):
    """A file that holds none, or cannot be read."""

    reason: str
    content: str = ""
    """Empty where another try may go otherwise: the next run makes it."""


def read_file(model: DualEncoder, found: Found, about: About) -> Read | Unread | None:
    """What an index keeps of a file, or why there is nothing; None where the file is not there any more."""
    path, content = found.path, ""
    try:
        if path.is_file():
            content = content_of(path)
        with decode.decoders_silent():
            return _read(model, found, about, content)
    except Exception as error:  # whatever a decoder makes of odd bytes: it is listed, and costs this file alone
        if not os.path.lexists(path):
            return None
        final = isinstance(error, DataError) and "cannot be imported" not in str(error)
        return Unread(_reason(error, path), content if final else "")


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or error}). Check its permissions and its disk."
    said = str(error).removeprefix(f"{decode.shown(path)}: ")
    said = said if isinstance(error, DataError) else f"cannot be read ({type(error).__name__}: {said}). Leave it out."
    return " ".join(decode.shown(said).split())


def content_of(path: Path) -> str:
    """SHA-256 of a regular file's bytes, hex. Raises `OSError` where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(model: DualEncoder, found: Found, about: About, content: str) -> Read:
    odd: list[str] = []
    embedder = _Embedder(model)
    spans: list[Span] = []
    made = b""
    with decode.streamed(found.path, about.hop_s, odd) as stream:
        sizes = round(about.window_s * stream.rate), round(about.hop_s * stream.rate)
        for span, samples in cut(stream.blocks, *sizes):
            made = made or print_of([samples], stream.rate)
            spans.append(span)
            embedder.add(samples, stream.rate)
    rate = stream.rate
    times = [(start / rate, stop / rate) for start, stop in spans]
    vectors, words = embedder.vectors(), carried(found.path, found.below, found.said)
    return Read(rate, stream.channels, times[-1][1], times, vectors, content, words, made, odd)


def cut(blocks: Iterable[decode.Samples], window: int, hop: int) -> Iterator[tuple[Span, decode.Samples]]:
    """The windows of `decode.windows` as their samples come, each once; little more than one is held."""
    held, start, number = np.zeros(0, np.float32), 0, 0
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= window:
            yield (start, start + window), held[:window]
            held, start, number = held[hop:], start + hop, number + 1
    total = start + len(held)
    for begin, end in decode.windows(total, window, hop)[number:] if total else []:
        yield (begin, end), held[begin - start :]


class _Embedder:
    """Windows in, vectors out, some at a time."""

    def __init__(self, model: DualEncoder) -> None:
        self.model, self.reader = model, model.reader()
        self.waiting: list[Any] = []
        self.done: list[Vector] = []

    def add(self, samples: decode.Samples, rate: int) -> None:
        self.waiting.append(self.reader.read_waveform(samples, rate))
        if len(self.waiting) == AT_ONCE:
            self._embed()

    def _embed(self) -> None:
        if self.waiting:
            self.done.append(self.model.embed_features(self.waiting))
            self.waiting = []

    def vectors(self) -> NDArray[np.float32]:
        """[window, dim] of all windows. Raises `DataError` where one is no direction."""
        self._embed()
        vectors = np.concatenate(self.done)
        if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
            raise DataError("its vector is not finite, or zero. Leave it out.")
        return vectors


def rows_of(read: Read, file_id: str, found: Found, dim: int) -> pa.RecordBatch:
    """The file's rows of the table `windows`."""
    import pyarrow as pa

    count = len(read.spans)
    columns: dict[str, Sequence[Any]] = {
        **_about_file(file_id, found, read.words, count),
        "window": range(count),
        "start_s": [start for start, _ in read.spans],
        "end_s": [end for _, end in read.spans],
        "duration_s": [read.duration_s] * count,
        "rate": [read.rate] * count,
        "channels": [read.channels] * count,
        "content": [read.content] * count,
        "print": [read.print, *[b""] * (count - 1)],
        "odd": [read.odd] * count,
    }
    schema = written_schema(dim)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(read.vectors.reshape(-1)), dim)
    arrays = [vectors if each.name == "vector" else pa.array(columns[each.name], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _about_file(file_id: str, found: Found, words: Carried, count: int) -> dict[str, list[Any]]:
    """The columns that tell which file it is, and not how it sounds."""
    return {
        "file_id": [file_id] * count,
        "path": [os.fsencode(found.path)] * count,
        "shown": [decode.shown(found.path)] * count,
        "folder": [decode.shown(found.path.parent)] * count,
        "size": [found.stamp.size] * count,
        "mtime_ns": [found.stamp.mtime_ns] * count,
        "words": [words.words, *[""] * (count - 1)],
        "tags": [list(words.tags)] * count,
        DESCRIBED: [found.origin, *[None] * (count - 1)],
    }


def rows_for(rows: pa.Table, taken: Taken) -> pa.Table | None:
    """A file's rows, made of those of the file that has its sound; None where these are not among `rows`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of_donor = rows.filter((pc.field("file_id") == taken.donor) & (pc.field("content") == taken.content))
    if not of_donor.num_rows:
        return None
    own = of_donor.sort_by("window").combine_chunks()
    found = taken.found
    words = carried(found.path, found.below, found.said)
    for name, values in _about_file(taken.file_id, found, words, own.num_rows).items():
        place = own.schema.get_field_index(name)
        own = own.set_column(place, own.schema.field(name), pa.array(values, own.schema.field(name).type))
    return own
