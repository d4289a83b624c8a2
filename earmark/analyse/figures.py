"""A study's pictures, as PNG.

Colours: blue below 0, red above, grey where undefined; people are blue, the machine orange. Drawn without a display and
without pyplot's global state, so that a study can be drawn anywhere.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.correlate import Correlation, stars
from earmark.analyse.study import Scope, Study
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "e_time": "e-time",
    "e_class": "e-class",
    "e_time_normalised": "e-time, normalised",
    "e_class_normalised": "e-class, normalised",
    "duration_s": "audio duration",
    "loudness_lufs": "loudness",
    "centroid_hz": "spectral centroid",
    "flatness": "spectral flatness",
    "silence_share": "silence share",
    "perplexity": "perplexity",
    "words": "# words",
    "content_words": "# C-words",
    "nouns": "# nouns",
    "adjectives": "# adjectives",
    "frequent_words": "# fr-words",
    "frequent_content_words": "# fr-C-words",
    "frequent_nouns": "# fr-nouns",
    "frequent_adjectives": "# fr-adjectives",
    "D signed": "D(H, M) signed",
    "D fitted": "D(H, M) fitted",
    "D fitted signed": "D(H, M) fitted, signed",
}
"""Features and targets as the paper's Table 4 names them, and those beyond it."""
UNITS = {
    "e_time": "bits",
    "e_class": "bits",
    "duration_s": "s",
    "loudness_lufs": "LUFS",
    "centroid_hz": "Hz",
    "HR": "0–100",
    "SD-HR": "0–100",
    "MR": "cosine",
    "APT": "s",
}
PEOPLE, MACHINE, LINE, UNDEFINED = "#2b6ca3", "#c8641b", "#222222", "#dddddd"
STRONGEST = 6
"""Scatter plots that are drawn."""
DOTS = 2000
"""Dots of a scatter plot; of more pairs so many are drawn at random."""
BINS = [5.0 * edge for edge in range(21)]


def label(name: str) -> str:
    """A feature's or target's name as tables show it."""
    return LABELS.get(name, name)


def with_unit(name: str) -> str:
    """The same with its unit, for axes."""
    return f"{label(name)} ({UNITS[name]})" if name in UNITS else label(name)


def figures(study: Study) -> dict[str, bytes]:
    """Name → PNG: the heat map, the strongest correlations, ratings by group, human against machine.

    Those that the data has. Raises `ConfigError` where matplotlib is missing.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigError("pictures need the extra `analyse` (pip install 'earmark[analyse]').") from error
    scope = study.scopes[-1]
    drawn = {"heatmap": heat_map(scope)}
    if chosen := strongest(scope.correlations):
        drawn["strongest"] = scatter_plots(study, scope, chosen)
    drawn["ratings"] = histograms(study.histograms)
    if scope.machine is not None and scope.machine.pairs > 1:
        drawn["machine"] = human_against_machine(study, scope)
    return {name: _png(figure) for name, figure in drawn.items()}


def strongest(found: Sequence[Correlation]) -> list[Correlation]:
    """The correlations of greatest |r|, at most one a feature, of those that hold by p < .05."""
    chosen: dict[str, Correlation] = {}
    for each in sorted((c for c in found if c.p < 0.05), key=lambda c: -abs(c.r)):
        chosen.setdefault(each.feature, each)
    return list(chosen.values())[:STRONGEST]


def heat_map(scope: Scope) -> Figure:
    """Pearson's r of every feature with every target, with the paper's stars."""
    defined = {each.feature for each in scope.correlations if each.n > 0}
    correlations = [each for each in scope.correlations if each.feature in defined]
    features = list(dict.fromkeys(each.feature for each in correlations))
    targets = list(dict.fromkeys(each.target for each in correlations))
    r = np.full((len(features), len(targets)), np.nan)
    for each in correlations:
        r[features.index(each.feature), targets.index(each.target)] = each.r
    figure, axes = _figure(2.6 + 0.95 * max(len(targets), 2), 1.3 + 0.34 * len(features))
    widest = max(0.3, float(np.nanmax(abs(r)))) if np.isfinite(r).any() else 0.3
    axes.set_facecolor(UNDEFINED)
    shown = axes.imshow(np.ma.masked_invalid(r), cmap="RdBu_r", vmin=-widest, vmax=widest, aspect="auto")
    axes.set_xticks(range(len(targets)), [label(name) for name in targets], rotation=35, ha="right")
    axes.set_yticks(range(len(features)), [label(name) for name in features])
    for each in correlations:
        ink = "white" if abs(each.r) > 0.55 * widest else LINE
        place = targets.index(each.target), features.index(each.feature)
        axes.text(*place, _in_cell(each), ha="center", va="center", fontsize=7.5, color=ink)
    figure.colorbar(shown, ax=axes, label="Pearson's r", fraction=0.04, pad=0.03)
    axes.set_title(f"{scope.name}: {scope.pairs:,} pairs; * p < .05, ** p < .01, not corrected", fontsize=9)
    return figure


def _in_cell(found: Correlation) -> str:
    """`−0.20**`, "0.00", or "undefined"."""
    if math.isnan(found.r):
        return "undefined"
    value = f"{found.r:+.2f}".replace("-", "−")
    return ("0.00" if value[1:] == "0.00" else value) + stars(found.p).replace("n.s.", "")


def scatter_plots(study: Study, scope: Scope, chosen: Sequence[Correlation]) -> Figure:
    """The strongest correlations, each with its fitted line."""
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, _ = _figure(3.6 * columns, 2.9 * rows, axes=False)
    at = study.at(scope.name)
    for place, each in enumerate(chosen, start=1):
        axes = figure.add_subplot(rows, columns, place)
        x, y = study.features[each.feature][at], study.targets[each.target][at]
        _dots(axes, x, y, PEOPLE if each.target not in ("MR", "D(H, M)") else MACHINE)
        _line(axes, x, y)
        axes.set_xlabel(with_unit(each.feature))
        axes.set_ylabel(with_unit(each.target))
        axes.set_title(f"r = {each.r:+.3f}{stars(each.p)}, n = {each.n:,}".replace("-", "−"), fontsize=9)
    return figure


def histograms(of_group: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Ratings by group, as shares of the group's pairs; one small plot a group."""
    figure, _ = _figure(6.4, 0.6 + 1.4 * len(of_group), axes=False)
    first: Any = None
    for place, (name, values) in enumerate(of_group.items(), start=1):
        axes = figure.add_subplot(len(of_group), 1, place, sharex=first)
        first = first or axes
        axes.hist(values, bins=BINS, weights=np.full(len(values), 100 / len(values)), color=PEOPLE, edgecolor="white")
        axes.set_ylabel("% of pairs")
        axes.set_title(f"{name}: {len(values):,} pairs, mean {values.mean():.1f}", fontsize=9, loc="left")
        axes.tick_params(labelbottom=place == len(of_group))
    axes.set_xlabel("mean rating (0–100)")
    return figure


def human_against_machine(study: Study, scope: Scope) -> Figure:
    """Cosines against people's mean ratings, with the mean rating of each tenth of the pairs by cosine."""
    figure, axes = _figure(5.4, 4.0)
    at = study.at(scope.name)
    x, y = study.targets["MR"][at], study.targets["HR"][at]
    _dots(axes, x, y, MACHINE)
    known = np.isfinite(x)
    order = np.argsort(x[known], kind="stable")
    tenths = [part for part in np.array_split(order, 10) if len(part)]
    axes.plot(
        [x[known][part].mean() for part in tenths],
        [y[known][part].mean() for part in tenths],
        "o-",
        color=LINE,
        label="mean of each tenth of the pairs",
    )
    axes.set_xlabel("machine: cosine")
    axes.set_ylabel("people: mean rating (0–100)")
    assert scope.machine is not None
    axes.set_title(f"{scope.name}: ρ = {scope.machine.spearman:.3f}, {scope.machine.pairs:,} pairs", fontsize=9)
    axes.legend(loc="best", fontsize=8)
    return figure


def _figure(width: float, height: float, *, axes: bool = True) -> tuple[Figure, Any]:
    """A figure of so many inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=144, layout="constrained")
    return figure, figure.add_subplot() if axes else None


def _dots(axes: Any, x: NDArray[np.float64], y: NDArray[np.float64], colour: str) -> None:
    """A dot a pair; whole numbers, which lie on top of each other, are drawn a little apart."""
    from matplotlib.ticker import MaxNLocator

    defined = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    rng = np.random.default_rng(0)
    some = rng.permutation(defined)[:DOTS]
    apart = np.zeros(len(some))
    if np.array_equal(x[defined], np.round(x[defined])):
        apart = rng.uniform(-0.2, 0.2, len(some))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.scatter(x[some] + apart, y[some], s=9, alpha=0.35, color=colour, linewidths=0)


def _line(axes: Any, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """The least-squares line."""
    defined = np.isfinite(x) & np.isfinite(y)
    ends = np.array([x[defined].min(), x[defined].max()])
    slope, intercept = np.polyfit(x[defined] - ends[0], y[defined], 1)
    axes.plot(ends, intercept + slope * (ends - ends[0]), color=LINE, linewidth=1.5)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
