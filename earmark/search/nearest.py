"""The files nearest to what is wanted, in one version of an index: all windows looked at, or found by IVF_SQ.

`Held` keeps the vectors in memory, and one product ranks all windows; `Listed` leaves them on disk to LanceDB. Both
answer by file: a file is as near as its best window.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.search.query import Vector
from earmark.search.ranking import EXACT_BELOW, both, has_keywords, partitions
from earmark.search.store import one_of

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.table import Table

SPANS = ["file_id", "window", "start_s", "end_s"]
"""What is told of a window, beside its vector."""
FACTS = ["file_id", "path", "shown", "duration_s", "rate", "channels", "content", "words", "tags"]
"""What is told of a file."""
SAMPLE = 4096
"""Windows by which it is told how far a vector tells the index's windows apart."""
NOT_AT_ALL = -np.inf
"""The score of a window that sounds more like what is excluded."""
MORE_PROBES = 0.7
"""Of the share of files that pass the filters, the power by which there are more probes."""
CONDITIONS = 64
"""Filters whose files are kept at hand."""


class Wanted(NamedTuple):
    """What is searched for, as vectors."""

    towards: Vector
    """[dim], unit length."""
    away: Vector | None = None
    """[dim], unit length: what must not be heard."""
    usual: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 1.0), (0.0, 1.0))
    """Mean and standard deviation over the index of the cosines with `towards`, and with `away`."""

    def scores(self, vectors: Vector) -> Vector:
        """[window] of windows' vectors [window, dim]: cosines, or with `away` z − max(0, z′) of standardised ones.

        A window with z′ above 0 and z is passed over (−∞): it sounds more like what is excluded.
        """
        cosines: Vector = vectors @ self.towards
        if self.away is None:
            return cosines
        (mean, spread), (mean_away, spread_away) = self.usual
        z, z_away = (cosines - mean) / spread, np.maximum((vectors @ self.away - mean_away) / spread_away, 0)
        return np.where((z_away > 0) & (z_away > z), np.float32(NOT_AT_ALL), z - z_away).astype(np.float32)

    @property
    def directions(self) -> list[Vector]:
        """Unit vectors [dim] whose nearest windows are those of the highest scores, about."""
        if self.away is None:
            return [self.towards]
        (_, spread), (_, spread_away) = self.usual
        return [self.towards, _unit(self.towards / spread - self.away / spread_away)]


def wanted(sample: Vector, towards: Sequence[Vector], away: Vector | None) -> Wanted:
    """What is wanted of an index of which `sample` [window, dim] is a part.

    Of several vectors to go towards each counts by how far it tells the index's windows apart: the sum of v / σ, σ the
    standard deviation of the cosines.
    """
    whole = towards[0] if len(towards) == 1 else _unit(np.sum([v / _usual(sample, v)[1] for v in towards], axis=0))
    if away is None:
        return Wanted(whole)
    return Wanted(whole, away, (_usual(sample, whole), _usual(sample, away)))


def _usual(sample: Vector, vector: Vector) -> tuple[float, float]:
    cosines = sample @ vector
    return (float(cosines.mean()), max(float(cosines.std()), 1e-6)) if len(cosines) else (0.0, 1.0)


def _unit(vector: NDArray[Any]) -> Vector:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9), np.float32)


class Near(NamedTuple):
    """Files (ids) that were found."""

    order: list[str]
    """Nearest first."""
    scores: dict[str, float]
    """Of these, and of others that were asked about: their best windows'."""


class Rows(NamedTuple):
    """What an index holds of some files."""

    files: pa.Table
    """`FACTS`, a row a file; `_rowid` is that of its first window."""
    windows: pa.Table
    """`SPANS`, a row a window of these files."""
    vectors: Vector
    """[window, dim]."""


class View(ABC):
    """One version of the table `windows`."""

    sample: Vector
    """Vectors [window, dim] of some windows from all over the index."""
    exact: bool
    """Whether every window is looked at."""
    pool = 200
    """Files that are ranked at least, whatever the limit: what is fused and folded is taken from them."""

    def __init__(self, table: Table) -> None:
        self.table, self.version, self.count = table, int(table.version), int(table.count_rows())
        self.keywords = has_keywords(table)

    @abstractmethod
    def nearest(self, wanted: Wanted, where: str, files: int, also: Iterable[str] = (), least: int = 0) -> Near:
        """The `files` nearest files (0: all) that pass the condition, and the scores of `also` (ids).

        Where a second look would be needed for all, the first may do that found `least`.
        """

    @abstractmethod
    def searched(self, where: str) -> int:
        """Files that pass the condition."""

    @abstractmethod
    def rows(self, file_ids: Sequence[str]) -> Rows:
        """The facts of these files, and all their windows."""

    def prints(self, firsts: Sequence[int]) -> dict[str, bytes]:
        """What files are known by (`search/copies.py`), by id; asked for by `_rowid`."""
        if not firsts:
            return {}
        rows = self.table.take_row_ids(list(firsts)).select(["file_id", "print"]).to_arrow()
        return dict(zip(rows["file_id"].to_pylist(), rows["print"].to_pylist(), strict=True))


def view(table: Table) -> View:
    """The table's version, ready to be asked: in memory below `EXACT_BELOW` windows."""
    return Held(table) if table.count_rows() < EXACT_BELOW else Listed(table)


class Held(View):
    """The vectors in memory, float32: 307 MB of 100,000 windows of 768 values."""

    exact = True

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.vectors, self.facts = _read(table)
        ids = self.facts["file_id"].combine_chunks().dictionary_encode()
        self._ids: list[str] = ids.dictionary.to_pylist()
        self._place = {file_id: place for place, file_id in enumerate(self._ids)}
        # the windows of a file side by side, so that its best is a maximum over a stretch
        files = ids.indices.to_numpy()
        self._order = np.argsort(files, kind="stable")
        self._starts = np.searchsorted(files[self._order], np.arange(len(self._ids) + 1))
        self.sample = self.vectors[:: max(1, len(self.vectors) // SAMPLE)]
        self._passing = lru_cache(CONDITIONS)(self._passes)

    def _passes(self, where: str) -> NDArray[np.int64]:
        """The places of the files that pass the condition."""
        if not where:
            return np.arange(len(self._ids))
        rows = self.table.search().where(both("window = 0", where)).select(["file_id"]).limit(None).to_arrow()
        return np.sort([self._place[file_id] for file_id in rows["file_id"].to_pylist()]).astype(np.int64)

    def nearest(self, wanted: Wanted, where: str, files: int, also: Iterable[str] = (), least: int = 0) -> Near:
        """The `files` nearest files (0: all) that pass the condition, and the scores of `also` (ids)."""
        if not self._ids:
            return Near([], {})
        best = np.maximum.reduceat(wanted.scores(self.vectors)[self._order], self._starts[:-1])
        among = self._passing(where)
        among = among[best[among] > NOT_AT_ALL]
        if 0 < files < len(among):
            among = among[np.argpartition(-best[among], files - 1)[:files]]
        among = among[np.argsort(-best[among], kind="stable")]
        order = [self._ids[place] for place in among.tolist()]
        asked = [each for each in also if each in self._place]
        scores = dict(zip(asked, best[[self._place[each] for each in asked]].tolist(), strict=True)) if asked else {}
        return Near(order, scores | dict(zip(order, best[among].tolist(), strict=True)))

    def searched(self, where: str) -> int:
        """Files that pass the condition."""
        return len(self._passing(where))

    def _places(self, file_ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows of the windows of these files."""
        places = [self._place[each] for each in file_ids if each in self._place]
        stretches = [self._order[self._starts[place] : self._starts[place + 1]] for place in places]
        return np.concatenate([np.zeros(0, np.int64), *stretches])

    def rows(self, file_ids: Sequence[str]) -> Rows:
        """The facts of these files, and all their windows."""
        places = self._places(file_ids)
        rows = self.facts.take(places)
        return Rows(rows.filter(_first(rows)).select([*FACTS, "_rowid"]), rows.select(SPANS), self.vectors[places])


def _read(table: Table) -> tuple[Vector, pa.Table]:
    """The vectors [window, dim], and facts and spans, of all windows."""
    import pyarrow as pa

    dim = table.schema.field("vector").type.list_size
    vectors = np.empty((table.count_rows(), dim), np.float32)
    columns = [*dict.fromkeys([*FACTS, *SPANS])]
    asked = table.search().select([*columns, "vector"]).with_row_id(True).limit(None)
    parts, at = [], 0
    for batch in asked.to_batches(8192):
        some = vectors_of(batch)
        vectors[at : at + len(some)] = some
        at += len(some)
        parts.append(batch.drop_columns(["vector"]))
    if not parts:
        empty = table.schema.empty_table().select(columns)
        return vectors, empty.append_column("_rowid", pa.array([], pa.uint64()))
    return vectors, pa.Table.from_batches(parts).combine_chunks()


def _first(rows: pa.Table) -> pa.Array:
    """Which rows are of a file's first window."""
    import pyarrow.compute as pc

    return pc.equal(rows["window"], 0)


class Listed(View):
    """The vectors on disk, found by IVF_SQ."""

    exact = False
    probes, refine = 20, 2
    """Partitions that are looked into, and how many times as many windows are compared by their exact vectors."""
    windows_a_file = 2
    """Windows that are asked for per file that is wanted, at first."""
    also_at_most = 30
    """Files whose scores are looked up, which takes as long as finding the nearest, where something is excluded."""
    pool = 60

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._partitions = partitions(table)
        self._count = lru_cache(CONDITIONS)(lambda where: int(table.count_rows(both("window = 0", where))))
        some = np.linspace(0, self.count - 1, min(SAMPLE, self.count)).astype(np.int64)
        self.sample = vectors_of(table.take_offsets(some.tolist()).select(["vector"]).to_arrow())

    def nearest(self, wanted: Wanted, where: str, files: int, also: Iterable[str] = (), least: int = 0) -> Near:
        """The `files` nearest files (0: all) that pass the condition, and the scores of `also` (ids)."""
        files, whole = min(files or self.count, self.searched(where)), not files
        if not files:
            return Near([], {})
        found: dict[str, float] = {}
        for direction in wanted.directions:
            _keep_best(found, self._along(direction, wanted, where, files, min(least or files, files), whole=whole))
        order = sorted((each for each in found if found[each] > NOT_AT_ALL), key=lambda each: -found[each])[:files]
        missing = [each for each in also if each not in found][: self.also_at_most]
        if missing and wanted.away is not None:
            windows, vectors = self._windows(missing)
            _keep_best(found, zip(windows["file_id"].to_pylist(), wanted.scores(vectors).tolist(), strict=True))
        return Near(order, found)

    def _along(
        self, direction: Vector, wanted: Wanted, where: str, files: int, least: int, *, whole: bool
    ) -> Iterable[tuple[str, float]]:
        """(file, score) of the windows nearest to a direction, of `least` files or more, or of all that pass."""
        columns = ["file_id", "_distance"] if wanted.away is None else ["file_id", "vector"]
        most = self.count if whole else self.windows_a_file * files
        probes = self._partitions if whole else self._probes(where)
        while True:
            search: Any = self.table.search(direction, "vector")
            search = search.distance_type("l2").nprobes(max(1, probes)).refine_factor(self.refine)
            search = search.select(columns).limit(most)
            rows = (search.where(where, prefilter=True) if where else search).to_arrow()
            ids = rows["file_id"].to_pylist()
            if len(set(ids)) >= least or (rows.num_rows < most and probes >= self._partitions):
                break
            most, probes = (most, 4 * probes) if rows.num_rows < most else (4 * most, probes)
        if wanted.away is None:
            return zip(ids, (1 - rows["_distance"].to_numpy() / 2).tolist(), strict=True)
        return zip(ids, wanted.scores(vectors_of(rows)).tolist(), strict=True)

    def _probes(self, where: str) -> int:
        """The fewer pass, the more partitions are looked into: those who pass may be anywhere."""
        share = self.searched(where) / max(1, self.searched(""))
        return min(self._partitions, math.ceil(self.probes / math.pow(max(share, 1e-9), MORE_PROBES)))

    def searched(self, where: str) -> int:
        """Files that pass the condition."""
        return self._count(where)

    def rows(self, file_ids: Sequence[str]) -> Rows:
        """The facts of these files, and all their windows."""
        windows, vectors = self._windows(file_ids)
        firsts = windows.filter(_first(windows))["_rowid"].to_pylist()
        # facts are read once a file: a column of a row costs as much as its vector
        files = self.table.take_row_ids(firsts).select([*FACTS, "_rowid"]).to_arrow()
        return Rows(files, windows.select(SPANS), vectors)

    def _windows(self, file_ids: Sequence[str]) -> tuple[pa.Table, Vector]:
        """All windows of these files, with `_rowid`, and their vectors [window, dim]."""
        asked = self.table.search().where(one_of("file_id", file_ids)).select([*SPANS, "vector"])
        found = asked.with_row_id(True).limit(None).to_arrow()
        return found.drop_columns(["vector"]), vectors_of(found)


def vectors_of(rows: pa.Table | pa.RecordBatch) -> Vector:
    """The column `vector`, [row, dim]."""
    column = rows.column("vector")
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return np.asarray(column.flatten().to_numpy().reshape(len(column), column.type.list_size), np.float32)


def _keep_best(best: dict[str, float], found: Iterable[tuple[str, float]]) -> None:
    for file_id, score in found:
        if score > best.get(file_id, NOT_AT_ALL) or file_id not in best:
            best[file_id] = score
