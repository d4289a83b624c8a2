"""Vectors that stand for clips or captions: a file of `id` [n] and `vector` [n, d], read without pickle.

What they score with one another has its one home here, `products`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, Problem
from earmark.files import opened, writing

GRID = 26
"""Binary places below a vector's length that count in a product: twice 26, and one above, are a float64's 53."""


def products(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Dot products, float32 [one, other]; a product depends on its two vectors alone, so equal vectors score equally.

    A product in float32 is rounded by the place of its row and column in the matrix, so that the same clip twice is not
    tied. Here each vector is first rounded to multiples of 2⁻²⁶ of its length (to a power of two; of a unit vector,
    each number to 2⁻²⁶): every partial sum then fits a float64, and the sum is exact in any order, on any machine. Of
    d numbers and lengths l, m it lies within 1.5 √d 2⁻²⁶ l m of the true product, in practice nearer than a float32
    product does. One rounding to float32 follows. Zero vectors give 0, those that are not finite NaN or infinity, as in
    any product.
    """
    return (_on_grid(one) @ _on_grid(other).T).astype(np.float32)


def _on_grid(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The vectors as float64, rounded to the grid of their length: sums of products stay below 2 in its units."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    # 2/3–4/3 of the unit, so that lengths about 1, which rounding leaves above or below it, are of one grid
    _, exponents = np.frexp(np.where(np.isfinite(lengths), 0.75 * lengths, 1))
    wide *= np.ldexp(1.0, GRID - exponents)[:, None]
    np.rint(wide, out=wide)
    wide *= np.ldexp(1.0, exponents - GRID)[:, None]
    return wide


@dataclass(frozen=True, eq=False)
class VectorTable:
    """A vector for each id: `vectors` is float32 [id, dimension]. Of an id that stands twice the first counts."""

    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    path: Path | None = None

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in reversed(list(enumerate(self.ids)))}

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of `ids`, float32 [len(ids), dimension]. Raises `DataError` naming the first id without one."""
        missing = [name for name in ids if name not in self._row_of]
        if missing:
            raise DataError(
                f"{self.path or 'vectors'}: no vector for {missing[0]!r} ({len(missing)} of {len(ids)} ids have none); "
                f"{len(self.ids)} ids found. Embed the collection again."
            )
        return self.vectors[[self._row_of[name] for name in ids]]

    @classmethod
    def read(cls, path: Path) -> VectorTable:
        """The table of an npz file with `id` [n] and `vector` [n, d], floats of any width.

        Raises `DataError` where it is anything else; nothing in it is ever unpickled.
        """
        try:
            with opened(path) as file, np.load(file, allow_pickle=False) as arrays:
                ids, vectors = np.asarray(arrays["id"]), np.asarray(arrays["vector"])  # bytes, where a member is no npy
                values = ids.tolist()
        except DataError:
            raise
        except Exception as error:
            # a damaged file fails wherever the damage lies: zip (BadZipFile, NotImplementedError, RuntimeError), zlib,
            # the header's Python literal (tokenize, RecursionError), its sizes (MemoryError, OverflowError), letters
            reason = str(error).splitlines()[0] if str(error).strip() else type(error).__name__
            raise DataError(f"{path}: no table of vectors ({reason}); expected an npz of id and vector.") from error
        fits = vectors.ndim == 2 and ids.shape == vectors.shape[:1]
        if not fits or vectors.dtype.kind != "f" or ids.dtype.kind not in "USiu":
            raise DataError(
                f"{path}: id is {ids.dtype}{list(ids.shape)} and vector {vectors.dtype}{list(vectors.shape)}; "
                "expected texts [n] and floats [n, d]. Write it again."
            )
        names = (name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in values)
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes infinite, and `faults` tells it
            return cls(tuple(names), np.ascontiguousarray(vectors, dtype=np.float32), path)

    def write(self, path: Path) -> None:
        """Writes the npz, whole or not at all."""
        with writing(path) as aside, aside.open("wb") as file:
            np.savez(file, id=np.array(self.ids, dtype=np.str_), vector=self.vectors)

    def faults(self, known: Iterable[str]) -> list[Problem]:
        """What is wrong with the table: ids that stand twice, values that are not finite, vectors of length 0.

        Ids that are not among `known` are told in one line, since they do no harm.
        """
        file = self.path.name if self.path else "vectors"
        problems = [
            Problem(f"{file} {name!r}", f"stands {count} times; the first counts. Expected each id once.")
            for name, count in Counter(self.ids).items()
            if count > 1
        ]
        finite = np.isfinite(self.vectors).all(axis=1)
        zero = ~self.vectors.any(axis=1)
        problems += [
            Problem(f"{file} {self.ids[row]!r}", "holds values that are not finite. Embed it again.")
            for row in np.flatnonzero(~finite)
        ]
        problems += [
            Problem(f"{file} {self.ids[row]!r}", "is all zeros, which has no direction. Embed it again.")
            for row in np.flatnonzero(zero)
        ]
        inside = set(known)
        unknown = [name for name in self._row_of if name not in inside]
        if unknown:
            problems.append(Problem(file, f"{len(unknown)} ids are not in the collection, {unknown[0]!r} first."))
        return problems
