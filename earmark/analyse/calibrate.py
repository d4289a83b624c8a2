"""From a cosine to the rating that people would give, 0–100, with an interval: fitted on rated pairs, kept in a run.

The map is isotonic regression, smoothed over the ranks of the cosines: it never falls, and stands still beyond the
cosines that it was fitted on. The interval is conformal (Vovk, Gammerman & Shafer, "Algorithmic Learning in a Random
World", 2005): residuals of captions that the map did not see, in folds as in cross-validation (Barber, Candès, Ramdas
& Tibshirani, "Predictive inference with the jackknife+", Annals of Statistics 2021), each over the size that residuals
have at its cosine (Lei, G'Sell, Rinaldo, Tibshirani & Wasserman, "Distribution-free predictive inference for
regression", JASA 2018). Pairs of one caption are no independent draws, so captions are what is counted, each alike: K
of them leave 1 / (K + 1) to what none of them shows (Lee, Barber & Willett, "Distribution-free inference with
hierarchical data", 2023), and where that is more than 1 − level the interval is 0–100.

So a share `level` of pairs has its rating inside on average over captions, and over pairs chosen as those of the fit
were; not within every kind of pair. CV+ takes its ends from each fold's own map. Here they lie about the one map of all
captions, which its theorem does not cover; benchmarks/README.md has what was measured.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.config import from_table
from earmark.data.collection import KINDS
from earmark.errors import ConfigError, DataError
from earmark.files import write_text
from earmark.model.dual_encoder import run_fingerprint
from earmark.model.share import CALIBRATION

Floats = NDArray[np.float64]

VERSION = 1
LEVELS = tuple(round(0.5 + 0.005 * step, 3) for step in range(99))
"""0.5 to 0.99: the levels whose widths are kept."""
CELLS = 100
"""Equal shares of the pairs, by cosine; the map has a node in the middle of each."""
SMOOTHING = 0.08
"""Standard deviation of the Gaussian over ranks, as a share of all pairs."""
FOLDS = 10
LEAST_WIDTH = 0.1
"""Of the mean absolute residual, and in rating points: what a local one counts at least."""
LEAST_CAPTIONS, LEAST_PAIRS = 2, 10
DIGITS = 6
"""Of the numbers that are kept."""


@dataclass(frozen=True)
class Calibration:
    """A monotone map from cosine to rating, the width about it, and what both were fitted on."""

    cosines: list[float]
    """[node] rising, −1 to 1."""
    ratings: list[float]
    """[node] the expected rating, 0–100, never falling."""
    widths: list[float]
    """[node] the mean absolute residual there, in rating points; more than 0."""
    factors: list[float | None]
    """[level of `LEVELS`] half of an interval in units of `widths`; None where no width is sure to do."""
    pairs: int
    captions: int
    mean: float
    """Of the ratings that were fitted on, 0–100."""
    cosine_range: list[float]
    """The least and the highest that were fitted on."""
    rating_range: list[float]
    collection: str = ""
    kind: str = "recorded"
    split: str | None = None
    """None: every split but `evaluation`."""
    texts: list[str] | None = None
    """Of each caption that was fitted on, 16 hex digits of its words' SHA-256."""
    fingerprint: str = ""
    """Of the run (`run_fingerprint`): a map belongs to these weights alone."""

    @classmethod
    def read(cls, run: Path) -> Calibration:
        """The calibration of a run's folder.

        Raises `DataError` where there is none, it is damaged, of another version or of other weights.
        """
        path = Path(run) / CALIBRATION
        again = f"Fit one on rated captions that did not train the run: earmark score {run} --fit DIR"
        if not (Path(run) / "config.toml").is_file():
            raise DataError(f"{run}: not a run (no config.toml). Train one with `earmark train`.")
        if not path.exists():
            raise DataError(f"{run}: no {CALIBRATION}, so its cosines stand for no ratings yet. {again}")
        if not path.is_file():  # a pipe would be waited for
            raise DataError(f"{path}: not a regular file. {again}")
        try:
            table = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: not JSON ({str(error)[:100]}). {again}") from error
        found = _checked(table, path, again)
        now = run_fingerprint(Path(run))
        if found.fingerprint != now:
            raise DataError(
                f"{path}: fitted to a run of fingerprint {found.fingerprint[:32]!r}; the one here has {now!r}. {again}"
            )
        return found

    def write(self, run: Path) -> None:
        """Writes `calibration.json` into the run's folder, whole or not at all; its fingerprint is the run's."""
        kept = {"version": VERSION, **asdict(replace(self, fingerprint=self.fingerprint or run_fingerprint(Path(run))))}
        write_text(Path(run) / CALIBRATION, json.dumps(kept, ensure_ascii=False, allow_nan=False) + "\n")

    def rating(self, cosines: ArrayLike, level: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """(expected rating, low end, high end) of each cosine, 0–100, of the cosines' shape; NaN stays NaN.

        A higher cosine has no lower rating and no lower end of either side. `level` is 0.5–0.99, the share of ratings
        inside; raises `ConfigError` otherwise.
        """
        x = np.asarray(cosines, dtype=np.float64)
        expected = np.interp(x, self.cosines, self.ratings)
        factor = self.factor(level)
        if factor is None:
            return expected, np.where(np.isnan(x), np.nan, 0.0), np.where(np.isnan(x), np.nan, 100.0)
        middle, half = np.array(self.ratings), factor * np.array(self.widths)
        # the ends may only rise, and are moved outwards for that, so that none loses a rating
        low = np.minimum.accumulate((middle - half)[::-1])[::-1].clip(0, 100)
        high = np.maximum.accumulate(middle + half).clip(0, 100)
        return expected, np.interp(x, self.cosines, low), np.interp(x, self.cosines, high)

    def about(self) -> dict[str, Any]:
        """What it was fitted on, as JSON has it: all but the map and the captions."""
        names = ("collection", "kind", "split", "pairs", "captions", "mean", "cosine_range", "rating_range")
        return {name: getattr(self, name) for name in names}

    def table(self, level: float = 0.9) -> list[tuple[float, float, float, float]]:
        """(cosine, rating, low, high) at eleven cosines from the least to the highest that were fitted on."""
        cosines = np.linspace(self.cosine_range[0], self.cosine_range[1], 11)
        columns = zip(cosines, *self.rating(cosines, level), strict=True)
        return [(float(x), float(y), float(low), float(high)) for x, y, low, high in columns]

    def factor(self, level: float) -> float | None:
        """Half of the level's interval in units of `widths`, None for 0–100; of the next level that is kept."""
        check_level(level)
        return self.factors[next(place for place, kept in enumerate(LEVELS) if kept >= level - 1e-9)]

    def notes(self, level: float) -> list[str]:
        """What a reader of its ratings must know, a line each."""
        found = []
        if self.cosine_range[0] == self.cosine_range[1]:
            found.append(f"all {self.pairs:,} cosines fitted on were {self.cosine_range[0]:g}: one rating for all")
        elif self.rating_range[0] == self.rating_range[1]:
            found.append(
                f"all {self.pairs:,} ratings fitted on were {self.rating_range[0]:g}: so is every one expected"
            )
        elif self.ratings[0] == self.ratings[-1]:
            found.append("the ratings fitted on do not rise with the cosine: one rating for all")
        if self.factor(level) is None:
            needed = math.ceil(level / (1 - level) - 1e-9)
            found.append(
                f"{self.captions} captions fitted on are too few for a {100 * level:g} % interval ({needed} at least): "
                "it is [0, 100]"
            )
        return found

    def fitted_on(self, texts: Iterable[str]) -> int:
        """How many of these texts are those of captions that it was fitted on."""
        known = set(self.texts or [])
        return sum(text_digest(text) in known for text in texts)

    def outside(self, cosines: ArrayLike) -> int:
        """How many cosines lie beyond those that the map was fitted on, where it stands still."""
        x = np.asarray(cosines, dtype=np.float64).round(DIGITS)
        return int(((x < self.cosine_range[0]) | (x > self.cosine_range[1])).sum())


def text_digest(text: str) -> str:
    """16 hex digits of the words' SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_level(level: float) -> None:
    """Raises `ConfigError` where the level is not 0.5–0.99."""
    if not LEVELS[0] <= level <= LEVELS[-1]:
        raise ConfigError(f"level {level:g}; expected {LEVELS[0]:g}–{LEVELS[-1]:g}, the share of ratings inside.")


# The map and its width


class Curve(NamedTuple):
    """A map and its width, before it is known how many widths an interval needs."""

    cosines: Floats
    """[node] rising."""
    ratings: Floats
    """[node] 0–100, never falling."""
    widths: Floats
    """[node] more than 0, in rating points."""


def smooth_curve(cosines: Floats, ratings: Floats) -> Curve:
    """The smoothed isotonic map of pairs, and the size of their residuals at its nodes, smoothed alike."""
    ranks = (np.arange(CELLS) + 0.5) / CELLS
    at = np.quantile(cosines, ranks).round(DIGITS)  # as they are kept, where they rise still
    nodes, place = np.unique(at, return_inverse=True)
    middle = np.maximum.accumulate(_means(_smoothed(np.interp(at, *_isotonic(cosines, ratings))), place))
    residuals = np.abs(ratings - np.interp(cosines, nodes, middle))
    widths = _means(_smoothed(_by_cell(cosines, residuals)), place)
    return Curve(nodes, middle, np.maximum(widths, LEAST_WIDTH * max(float(residuals.mean()), 1.0)))


def _isotonic(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The blocks of the isotonic regression of y on x: their mean x and their y, both rising."""
    from scipy.optimize import isotonic_regression

    distinct, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    found = isotonic_regression(np.bincount(place, y) / counts, weights=counts)
    starts = found.blocks[:-1]
    centres = np.add.reduceat(distinct * counts, starts) / np.add.reduceat(counts.astype(np.float64), starts)
    return centres, found.x[starts]


def _by_cell(x: Floats, values: Floats) -> Floats:
    """[cell] the mean of the values whose x is in it; a value on the border of two counts by shares."""
    running = np.concatenate([[0.0], np.cumsum(values[np.lexsort((values, x))])])
    at_borders = np.interp(np.linspace(0, len(x), CELLS + 1), np.arange(len(x) + 1), running)
    means: Floats = np.diff(at_borders) * CELLS / len(x)
    return means


def _smoothed(values: Floats) -> Floats:
    from scipy.ndimage import gaussian_filter1d

    found: Floats = gaussian_filter1d(values, SMOOTHING * CELLS, mode="nearest")
    return found


def _means(values: Floats, place: NDArray[np.intp]) -> Floats:
    """[node] the mean over the cells that share the node's cosine."""
    found: Floats = np.bincount(place, values) / np.bincount(place)
    return found


# Fitting


def fit(
    cosines: ArrayLike,
    ratings: ArrayLike,
    captions: ArrayLike,
    *,
    seed: int = 0,
    curve: Callable[[Floats, Floats], Curve] = smooth_curve,
) -> Calibration:
    """The calibration on rated pairs: cosines, ratings 0–100 (means over raters), and the caption's id of each.

    `curve` gives map and widths of cosines and ratings; `seed` deals the captions into folds. Raises `DataError` on
    fewer than 2 captions or 10 pairs, and on numbers that are not finite or no ratings.
    """
    x, y = (np.asarray(column, dtype=np.float64) for column in (cosines, ratings))
    ids = np.asarray(captions)
    _check_pairs(x, y, ids)
    owner = np.unique(ids, return_inverse=True)[1]
    found = curve(x, y)
    return Calibration(
        cosines=_rounded(found.cosines),
        ratings=_rounded(found.ratings),
        widths=_rounded(found.widths),
        factors=_factors(_held_out(x, y, owner, seed, curve), owner),
        pairs=len(x),
        captions=int(owner.max()) + 1,
        mean=round(float(y.mean()), DIGITS),
        cosine_range=_rounded(np.array([x.min(), x.max()])),
        rating_range=_rounded(np.array([y.min(), y.max()])),
    )


def _check_pairs(x: Floats, y: Floats, ids: NDArray[Any]) -> None:
    if x.ndim != 1 or not x.shape == y.shape == ids.shape:
        raise DataError(f"cosines {x.shape}, ratings {y.shape}, captions {ids.shape}; expected one of each a pair.")
    if not np.isfinite(x).all() or not ((y >= 0) & (y <= 100)).all():
        raise DataError("a cosine that is not finite, or a rating outside 0–100. Leave the pair out.")
    if len(x) < LEAST_PAIRS or len(np.unique(ids)) < LEAST_CAPTIONS:
        raise DataError(
            f"{len(x)} rated pairs of {len(np.unique(ids))} captions to fit on; expected {LEAST_PAIRS} of "
            f"{LEAST_CAPTIONS} at least, and 50 captions for intervals worth having. Rate more, or name another split."
        )


def _held_out(
    x: Floats, y: Floats, owner: NDArray[np.intp], seed: int, curve: Callable[[Floats, Floats], Curve]
) -> Floats:
    """[pair] the absolute residual from the map of the other folds, in units of its width there."""
    captions = int(owner.max()) + 1
    folds = min(FOLDS, captions)
    fold_of = np.empty(captions, dtype=np.intp)
    fold_of[np.random.default_rng(seed).permutation(captions)] = np.arange(captions) % folds
    scores = np.empty(len(x))
    for fold in range(folds):
        out = fold_of[owner] == fold
        others = curve(x[~out], y[~out])
        residuals = np.abs(y[out] - np.interp(x[out], others.cosines, others.ratings))
        scores[out] = residuals / np.interp(x[out], others.cosines, others.widths)
    return scores


def _factors(scores: Floats, owner: NDArray[np.intp]) -> list[float | None]:
    """[level] the least score that captions of this weight, K of K + 1, reach the level with; None where none does."""
    sizes = np.bincount(owner)
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(1 / ((len(sizes) + 1) * sizes[owner[order]]))
    places = [int(np.searchsorted(reached, level - 1e-9)) for level in LEVELS]
    # rounded up, so that the rating that decides stays inside
    return [_up(scores[order[place]]) if place < len(order) else None for place in places]


def _up(value: float) -> float:
    return round(math.ceil(value * 1e6) / 1e6, DIGITS)


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), DIGITS) for value in values]


# What is read back


def _checked(table: Any, path: Path, again: str) -> Calibration:
    """The calibration of a file's table. Raises `DataError` where it is not one that `write` wrote."""
    if not isinstance(table, dict) or table.get("version") != VERSION:
        version = table.get("version") if isinstance(table, dict) else None
        raise DataError(f"{path}: version {version!r}; this earmark reads {VERSION}. {again}")
    try:
        found = from_table(Calibration, {key: value for key, value in table.items() if key != "version"}, "its table")
        _check_numbers(found)
    except (ConfigError, ValueError) as error:
        raise DataError(f"{path}: damaged ({str(error).rstrip('.')[:200]}). {again}") from error
    return found


def _check_numbers(found: Calibration) -> None:
    """Raises `ValueError` where the numbers are no map."""
    nodes = len(found.cosines)
    lists: dict[str, tuple[Sequence[Any], int]] = {
        "cosines": (found.cosines, nodes),
        "ratings": (found.ratings, nodes),
        "widths": (found.widths, nodes),
        "factors": ([math.inf if each is None else each for each in found.factors], len(LEVELS)),
        "cosine_range": (found.cosine_range, 2),
        "rating_range": (found.rating_range, 2),
        "mean": ([found.mean], 1),
        "pairs": ([found.pairs], 1),
        "captions": ([found.captions], 1),
    }
    for name, (values, length) in lists.items():
        if not values or len(values) != length or not all(_is_number(each) or each == math.inf for each in values):
            raise ValueError(f"{name} is not {length or 'some'} finite numbers")
    rising = (np.diff(found.cosines) > 0).all() and (np.diff(found.ratings) >= 0).all()
    within = found.ratings[0] >= 0 and found.ratings[-1] <= 100 and min(found.widths) > 0
    if not rising or not within or not -1.01 <= found.cosines[0] <= found.cosines[-1] <= 1.01:
        raise ValueError("its nodes are no rising map from cosines to 0–100")
    factors = lists["factors"][0]
    if factors[0] < 0 or any(after < before for before, after in pairwise(factors)):
        raise ValueError("factors: a higher level has a narrower interval")
    ranges = (found.cosine_range, -1.01, 1.01), (found.rating_range, 0, 100), ([found.mean] * 2, 0, 100)
    if any(not low <= least <= most <= high for (least, most), low, high in ranges):
        raise ValueError("mean, cosine_range or rating_range are not of cosines and ratings")
    if not LEAST_CAPTIONS <= found.captions <= found.pairs:
        raise ValueError(f"{found.captions} captions of {found.pairs} pairs")
    if found.kind not in KINDS or not all(isinstance(each, str) for each in found.texts or []):
        raise ValueError(f"kind {found.kind!r} or its texts are not as they were written")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9  # NaN is not
