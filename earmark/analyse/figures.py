"""A study's pictures, as PNG.

Colours: blue below 0, red above, grey where undefined; people are blue, the machine orange. Drawn without a display and
without pyplot's global state, so that a study can be drawn anywhere.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.correlate import Correlation, stars
from earmark.analyse.features import FEATURES, label
from earmark.analyse.study import Scope, Study
from earmark.analyse.targets import TARGETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"HR": "0–100", "SD-HR": "0–100", "MR": "cosine", "APT": "s"}
"""Of targets; features state theirs."""
PEOPLE, MACHINE, LINE, UNDEFINED = "#2b6ca3", "#c8641b", "#222222", "#dddddd"
OF_MACHINE = {name for name in TARGETS if name.startswith(("MR", "D(H, M)"))}
DPI = 144
STRONGEST = 6
"""Scatter plots that are drawn."""
DOTS = 2000
"""Dots of a scatter plot; of more pairs so many are drawn at random."""
GROUPS = 12
"""Groups whose ratings are drawn."""
WIDEST = 0.5
"""|r| that has the darkest colour, in every heat map: colours compare between studies."""
PARTS, LEAST = 10, 10
"""Parts of the pairs whose means are drawn at most, and pairs a part at least."""
BINS = [5.0 * edge for edge in range(21)]


def with_unit(name: str) -> str:
    """A feature's or target's name with its unit, for axes."""
    unit = FEATURES[name].unit if name in FEATURES else UNITS.get(name, "")
    return f"{label(name)} ({unit})" if unit else label(name)


def figures(study: Study) -> dict[str, bytes]:
    """Name → PNG: the heat map, the strongest correlations, ratings by group, human against machine.

    Those that the data has.
    """
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}):  # a `$` in a name is no formula
        return {name: _png(figure) for name, figure in _drawn(study, study.scopes[-1])}


def _drawn(study: Study, scope: Scope) -> Iterator[tuple[str, Figure]]:
    yield "heatmap", heat_map(scope)
    if chosen := strongest(scope.correlations):
        yield "strongest", scatter_plots(study, scope, chosen)
    yield "ratings", histograms(study.histograms)
    if scope.machine is not None and scope.machine.pairs > 1:
        yield "machine", human_against_machine(study, scope)


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
    axes.set_facecolor(UNDEFINED)
    shown = axes.imshow(np.ma.masked_invalid(r), cmap="RdBu_r", vmin=-WIDEST, vmax=WIDEST, aspect="auto")
    axes.set_xticks(range(len(targets)), [label(name) for name in targets], rotation=35, ha="right")
    axes.set_yticks(range(len(features)), [label(name) for name in features])
    for each in correlations:
        ink = "white" if abs(each.r) > 0.55 * WIDEST else LINE
        place = targets.index(each.target), features.index(each.feature)
        axes.text(*place, _in_cell(each), ha="center", va="center", fontsize=7.5, color=ink)
    figure.colorbar(shown, ax=axes, label="Pearson's r", fraction=0.04, pad=0.03, extend="both")
    axes.set_title(f"{scope.name}: {scope.pairs:,} pairs\n* p < .05, ** p < .01, † p < .05 after Holm", fontsize=9)
    return figure


def marks(found: Correlation) -> str:
    """The paper's stars, and † where p < .05 holds after Holm's correction too."""
    return stars(found.p) + ("†" if found.p_holm < 0.05 else "")


def _in_cell(found: Correlation) -> str:
    """`−0.20**`, "0.00", or "undefined"."""
    if math.isnan(found.r):
        return "undefined"
    value = f"{found.r:+.2f}".replace("-", "−")
    return ("0.00" if value[1:] == "0.00" else value) + marks(found).replace("n.s.", "")


def scatter_plots(study: Study, scope: Scope, chosen: Sequence[Correlation]) -> Figure:
    """The strongest correlations, each with its fitted line."""
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, _ = _figure(3.6 * columns, 2.9 * rows, axes=False)
    at = study.at(scope.name)
    for place, each in enumerate(chosen, start=1):
        axes = figure.add_subplot(rows, columns, place)
        x, y = study.features[each.feature][at], study.targets[each.target][at]
        _dots(axes, x, y, MACHINE if each.target in OF_MACHINE else PEOPLE)
        _line(axes, x, y)
        axes.set_xlabel(with_unit(each.feature))
        axes.set_ylabel(with_unit(each.target))
        axes.set_title(f"r = {each.r:+.3f}{marks(each)}, n = {each.n:,}".replace("-", "−"), fontsize=9)
    return figure


def histograms(of_group: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Ratings by group, as shares of the group's pairs; one small plot a group, the largest `GROUPS` of them."""
    of_group = dict(sorted(of_group.items(), key=lambda group: -len(group[1]))[:GROUPS])
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
    """Cosines against people's mean ratings, with the means of equal parts of the pairs, by cosine."""
    figure, axes = _figure(5.4, 4.0)
    at = study.at(scope.name)
    x, y = study.targets["MR"][at], study.targets["HR"][at]
    _dots(axes, x, y, MACHINE)
    known = np.isfinite(x)
    order = np.argsort(x[known], kind="stable")
    count = max(1, min(PARTS, len(order) // LEAST))
    parts = np.array_split(order, count)
    axes.plot(
        [x[known][part].mean() for part in parts],
        [y[known][part].mean() for part in parts],
        "o-",
        color=LINE,
        label=f"means of {count} equal parts of the pairs",
    )
    axes.set_xlabel("machine: cosine")
    axes.set_ylabel("people: mean rating (0–100)")
    assert scope.machine is not None
    title = f"{scope.name}: ρ = {scope.machine.rho:.3f}, {scope.machine.pairs:,} pairs".replace("-", "−")
    axes.set_title(title, fontsize=9)
    axes.legend(loc="best", fontsize=8)
    return figure


def _figure(width: float, height: float, *, axes: bool = True) -> tuple[Figure, Any]:
    """A figure of so many inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    return figure, figure.add_subplot() if axes else None


def _dots(axes: Any, x: NDArray[np.float64], y: NDArray[np.float64], colour: str) -> None:
    """A dot a pair; whole numbers, which lie on top of each other, are drawn a little apart."""
    defined = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    rng = np.random.default_rng(0)
    some = rng.permutation(defined)[:DOTS]
    across, up = (
        _apart(axis, values[defined], values[some], rng) for axis, values in ((axes.xaxis, x), (axes.yaxis, y))
    )
    axes.scatter(across, up, s=9, alpha=0.35 if len(some) > 200 else 0.6, color=colour, linewidths=0)


def _apart(axis: Any, every: NDArray[np.float64], some: NDArray[np.float64], rng: np.random.Generator) -> Any:
    """Some of the values; where all are whole numbers up to 0.2 off, with such numbers along the axis."""
    from matplotlib.ticker import MaxNLocator

    if not np.array_equal(every, np.round(every)):
        return some
    axis.set_major_locator(MaxNLocator(integer=True))
    return some + rng.uniform(-0.2, 0.2, len(some))


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
