"""The files nearest to what is wanted, in one version of an index: all windows looked at, or found by IVF_SQ.

`Held` keeps the vectors in memory, and one product ranks all windows; `Listed` leaves them on disk to LanceDB. Both
answer by file: a file is as near as its best window. Whatever else is told of files and windows either keeps in memory:
from disk each column costs as much as the vectors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.search.query import Vector
from earmark.search.ranking import EXACT_BELOW, both, has_keywords, partitions

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


class File(NamedTuple):
    """What an index holds of a file."""

    facts: dict[str, Any]
    """`FACTS`, by name."""
    spans: NDArray[np.float64]
    """[window, 2]: when its windows start and end, seconds, in the order of time."""
    vectors: Vector
    """[window, dim] of these."""
    row: int
    """Lance's id of its first window."""


class View(ABC):
    """One version of the table `windows`: facts and spans in memory (some 120 MB of a million windows), vectors not."""

    exact: bool
    """Whether every window is looked at."""
    pool = 200
    """Files that are ranked at least, whatever the limit: what is fused and folded is taken from them."""

    def __init__(self, table: Table) -> None:
        import pyarrow.compute as pc

        self.table, self.version = table, int(table.version)
        self.keywords = has_keywords(table)
        windows = table.search().select(SPANS).with_row_id(True).limit(None).to_arrow()
        self._facts = table.search().where("window = 0").select(FACTS).limit(None).to_arrow().combine_chunks()
        self.ids: list[str] = self._facts["file_id"].to_pylist()
        """Of the files; a place in it is what the arrays below tell a file by."""
        self._place = {file_id: place for place, file_id in enumerate(self.ids)}
        self.count = windows.num_rows
        self._row_ids = windows["_rowid"].to_numpy()
        self._by_row_id: NDArray[np.int64] = np.argsort(self._row_ids, kind="stable")
        self._spans = np.stack([windows["start_s"].to_numpy(), windows["end_s"].to_numpy()], axis=1)
        ids = self._facts["file_id"].combine_chunks()
        self._file_of: NDArray[np.int64] = pc.index_in(windows["file_id"], value_set=ids).to_numpy().astype(np.int64)
        # the windows of a file side by side, in the order of time, so that its best is a maximum over a stretch
        self._order: NDArray[np.int64] = np.lexsort((windows["window"].to_numpy(), self._file_of))
        self._starts = np.searchsorted(self._file_of[self._order], np.arange(len(self.ids) + 1))
        self.passing = lru_cache(CONDITIONS)(self._passing)

    @abstractmethod
    def nearest(self, wanted: Wanted, where: str, files: int, also: Iterable[str] = (), least: int = 0) -> Near:
        """The `files` nearest files (0: all) that pass the condition, and the scores of `also` (ids).

        Where a second look would be needed for all, the first may do that found `least`.
        """

    @abstractmethod
    def vectors(self, windows: NDArray[np.int64]) -> Vector:
        """[window, dim] of windows, told by their places."""

    @cached_property
    def sample(self) -> Vector:
        """Vectors [window, dim] of some windows from all over the index."""
        return self.vectors(np.linspace(0, self.count - 1, min(SAMPLE, self.count)).astype(np.int64))

    def _passing(self, where: str) -> NDArray[np.bool_]:
        """[file]: whether it passes the condition; `passing` keeps the last ones."""
        if not where:
            return np.ones(len(self.ids), np.bool_)
        rows = self.table.search().where(both("window = 0", where)).select(["_rowid"]).limit(None).to_arrow()
        passing = np.zeros(len(self.ids), np.bool_)
        passing[self.files_of(rows["_rowid"].to_numpy())] = True
        return passing

    def searched(self, where: str) -> int:
        """Files that pass the condition."""
        return int(np.count_nonzero(self.passing(where)))

    def windows_of(self, row_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The places of windows."""
        return self._by_row_id[np.searchsorted(self._row_ids, row_ids, sorter=self._by_row_id)]

    def files_of(self, row_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The places in `ids` of the files of windows."""
        return self._file_of[self.windows_of(row_ids)]

    def files(self, file_ids: Iterable[str]) -> list[File]:
        """Those of the files that are there, in that order, with all their windows."""
        places = [self._place[each] for each in file_ids if each in self._place]
        stretches = [self._order[self._starts[place] : self._starts[place + 1]] for place in places]
        if not stretches:
            return []
        vectors = np.split(self.vectors(np.concatenate(stretches)), np.cumsum([len(each) for each in stretches])[:-1])
        facts = self._facts.take(places).to_pylist()
        return [
            File(told, self._spans[windows], of_windows, int(self._row_ids[windows[0]]))
            for told, windows, of_windows in zip(facts, stretches, vectors, strict=True)
        ]

    def prints(self, rows: Sequence[int]) -> dict[str, bytes]:
        """What files are known by (`search/copies.py`), by id; asked for by `File.row`."""
        if not rows:
            return {}
        found = self.table.take_row_ids(list(rows)).select(["file_id", "print"]).to_arrow()
        return dict(zip(found["file_id"].to_pylist(), found["print"].to_pylist(), strict=True))


def view(table: Table) -> View:
    """The table's version, ready to be asked: in memory below `EXACT_BELOW` windows."""
    return Held(table) if table.count_rows() < EXACT_BELOW else Listed(table)


class Held(View):
    """The vectors in memory too, float32: 307 MB of 100,000 windows of 768 values."""

    exact = True

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._vectors = np.empty((self.count, table.schema.field("vector").type.list_size), np.float32)
        for batch in table.search().select(["_rowid", "vector"]).limit(None).to_batches(8192):
            self._vectors[self.windows_of(batch.column("_rowid").to_numpy())] = vectors_of(batch)

    def vectors(self, windows: NDArray[np.int64]) -> Vector:
        """[window, dim] of windows, told by their places."""
        return self._vectors[windows]

    def nearest(self, wanted: Wanted, where: str, files: int, also: Iterable[str] = (), least: int = 0) -> Near:
        """The `files` nearest files (0: all) that pass the condition, and the scores of `also` (ids)."""
        if not self.ids:
            return Near([], {})
        best = np.maximum.reduceat(wanted.scores(self._vectors)[self._order], self._starts[:-1])
        among = np.flatnonzero(self.passing(where) & (best > NOT_AT_ALL))
        if 0 < files < len(among):
            among = among[np.argpartition(-best[among], files - 1)[:files]]
        among = among[np.argsort(-best[among], kind="stable")]
        order = [self.ids[place] for place in among.tolist()]
        asked = [each for each in also if each in self._place]
        scores = dict(zip(asked, best[[self._place[each] for each in asked]].tolist(), strict=True)) if asked else {}
        return Near(order, scores | dict(zip(order, best[among].tolist(), strict=True)))


class Listed(View):
    """The vectors on disk, found by IVF_SQ."""

    exact = False
    probes, refine = 20, 2
    """Partitions that are looked into, and how many times as many windows are compared by their exact vectors."""
    windows_a_file = 2
    """Windows that are asked for per file that is wanted, at first."""
    also_at_most = 30
    """Files whose scores are looked up, where something is excluded: each costs reading its vectors."""
    pool = 60

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._partitions = partitions(table)

    def vectors(self, windows: NDArray[np.int64]) -> Vector:
        """[window, dim] of windows, told by their places."""
        asked = self._row_ids[windows]
        found = self.table.take_row_ids(asked.tolist()).select(["_rowid", "vector"]).to_arrow()
        there = found["_rowid"].to_numpy()
        order = np.argsort(there)
        vectors: Vector = vectors_of(found)[order[np.searchsorted(there, asked, sorter=order)]]
        return vectors

    def nearest(self, wanted: Wanted, where: str, files: int, also: Iterable[str] = (), least: int = 0) -> Near:
        """The `files` nearest files (0: all) that pass the condition, and the scores of `also` (ids)."""
        files, whole = min(files or self.count, self.searched(where)), not files
        if not files:
            return Near([], {})
        found: dict[str, float] = {}
        for direction in wanted.directions:
            _keep_best(found, self._along(direction, wanted, where, files, min(least or files, files), whole=whole))
        order = sorted((each for each in found if found[each] > NOT_AT_ALL), key=lambda each: -found[each])[:files]
        if wanted.away is not None:
            missing = [each for each in also if each not in found][: self.also_at_most]
            for each in self.files(missing):
                found[each.facts["file_id"]] = float(wanted.scores(each.vectors).max())
        return Near(order, found)

    def _along(
        self, direction: Vector, wanted: Wanted, where: str, files: int, least: int, *, whole: bool
    ) -> Iterable[tuple[str, float]]:
        """(file, score) of the windows nearest to a direction, of `least` files or more, or of all that pass."""
        column = "_distance" if wanted.away is None else "vector"
        most = self.count if whole else self.windows_a_file * files
        probes = self._partitions if whole else self._probes(where)
        while True:
            search: Any = self.table.search(direction, "vector")
            search = search.distance_type("l2").nprobes(max(1, probes)).refine_factor(self.refine)
            search = search.select(["_rowid", column]).limit(most)
            rows = (search.where(where, prefilter=True) if where else search).to_arrow()
            places = self.files_of(rows["_rowid"].to_numpy())
            if len(np.unique(places)) >= least or (len(places) < most and probes >= self._partitions):
                break
            most, probes = (most, 4 * probes) if len(places) < most else (4 * most, probes)
        cosines = 1 - rows["_distance"].to_numpy() / 2 if wanted.away is None else wanted.scores(vectors_of(rows))
        return zip([self.ids[place] for place in places.tolist()], cosines.tolist(), strict=True)

    def _probes(self, where: str) -> int:
        """The fewer pass, the more partitions are looked into: those who pass may be anywhere."""
        share = self.searched(where) / max(1, self.searched(""))
        return min(self._partitions, math.ceil(self.probes / math.pow(max(share, 1e-9), MORE_PROBES)))


def vectors_of(rows: pa.Table | pa.RecordBatch) -> Vector:
    """The column `vector`, [row, dim]."""
    column = rows.column("vector")
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return np.asarray(column.flatten().to_numpy().reshape(len(column), column.type.list_size), np.float32)


def _keep_best(best: dict[str, float], found: Iterable[tuple[str, float]]) -> None:
    for file_id, score in found:
        if score > best.get(file_id, NOT_AT_ALL) or file_id not in best:
            best[file_id] = score
