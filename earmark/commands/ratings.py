"""`earmark collect export` and `earmark collect agreement`: what people answered, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import STDOUT, JsonOption, SeedOption, check_json, exit_with, give_json
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.collect.sources import Source
    from earmark.measure.agreement import Agreement
    from earmark.measure.panel import Panel
    from earmark.measure.raters import Raters

NEAR = 10
"""Points of `Agreement.near`."""
UNSURE_SHOWN = 5
"""Raters that cannot be told, of whom the reason is shown."""
SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE", help="A study, a collection with ratings, or a file as RELATE, XACLE or GrRel have it."
    ),
]
WithoutOption = Annotated[
    Optional[list[str]],  # noqa: UP045  (typer reads this at run time)
    typer.Option(
        metavar="failed|flagged",
        help="Leave out raters who failed the checks, or who have any flag; they are counted.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        envvar="EARMARK_STORE",
        help="Where a study's answers are kept.  [default: STUDY/study.db]",
        show_default=False,
    ),
]
UnsubmittedOption = Annotated[
    bool, typer.Option("--unsubmitted", help="Answers count too whose page was not submitted.")
]


def export(
    source: SourceArgument,
    to: Annotated[Path, typer.Option("--to", metavar="OUT", help="A new folder, or a new file.", show_default=False)],
    layout: Annotated[str, typer.Option(help="collection, ratings, mean, grrel or xacle.")] = "collection",
    without: WithoutOption = None,
    unsubmitted: UnsubmittedOption = False,
    unguarded: Annotated[
        bool,
        typer.Option("--unguarded", help="Cells as they are, even where a spreadsheet would take them for formulas."),
    ] = False,
    earlier: Annotated[
        bool, typer.Option("--earlier", help="A collection keeps the ratings that it had before the study, too.")
    ] = False,
    store: StoreOption = "",
    encoding: Annotated[str, typer.Option(help="Of a file.")] = "utf-8",
) -> None:
    """Write the ratings: a collection that `earmark train` reads, or a table in one of the published layouts.

    Only task pages count, once they are submitted, of raters who passed the qualification; what else there is, is
    counted. `ratings` is a row an answer, `mean` a row a pair with mean, SD and number of raters; `grrel` and `xacle`
    are as these sets were published. A cell that a spreadsheet would take for a formula (=, +, -, @ first) begins with
    a `'`; what earmark reads again is as it was.

    Examples:

    - `earmark collect export study --to rated --without failed`

    - `earmark collect export study --to ratings.csv --layout ratings`
    """
    from earmark.collect.export import earlier_ratings
    from earmark.collect.export import export as write

    if earlier and layout != "collection":
        raise ConfigError(f"--earlier with --layout {layout}: only a collection has earlier ratings. Leave it out.")
    found = _read(source, store, unsubmitted, encoding, without)
    if layout in ("collection", "xacle"):
        found = found.in_collection()
    rows = write(found, to, layout, guard=not unguarded, earlier=earlier)
    raters = len({rating.rater_id for rating in found.ratings if rating.rater_id})
    written = console.count(rows, "pair" if layout in ("mean", "grrel") else "rating")
    kind = console.KIND[found.kind]
    console.say(f"{to}: {found.name} ({kind}) as {layout}: {written} of {console.count(raters, 'rater')}")
    before = console.count(len(earlier_ratings(found)), "earlier rating") if layout == "collection" else ""
    if earlier:
        console.say(f"kept: {before} of the collection")
    elif before and earlier_ratings(found):
        console.say(f"left out: {before} of the collection, from before the study (--earlier keeps them)")
    _say_left_out(found)
    exit_with(found.problems, "rows or ratings were left out")


def _read(source: Path, store: str, unsubmitted: bool, encoding: str, without: Sequence[str] | None) -> Source:
    from earmark.collect.sources import read_source

    found = read_source(source, store=store, unsubmitted=unsubmitted, encoding=encoding)
    return found.without(without or [])


def _say_left_out(found: Source) -> None:
    for why, count in found.left_out.items():
        console.say(f"left out: {count:,} {why}")
    for note in found.notes:
        console.say(f"note: {note}")


def agreement(
    source: SourceArgument,
    without: WithoutOption = None,
    width: Annotated[
        Optional[list[float]],  # noqa: UP045
        typer.Option(
            metavar="POINTS", help="Wanted half-width of a pair's mean; may be given several times.", show_default=False
        ),
    ] = None,
    all_raters: Annotated[
        bool, typer.Option("--all", help="Show every rater, not those alone who need a look.")
    ] = False,
    unsubmitted: UnsubmittedOption = False,
    store: StoreOption = "",
    encoding: Annotated[str, typer.Option(help="Of a file.")] = "utf-8",
    json_to: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Tell how far raters agree, who needs a look, and how many raters and pairs a wanted interval needs.

    Krippendorff's α (interval) and ICC(2,k) with 95 % intervals by bootstrap, shares of equal answers, each rater
    against the mean of the others, and flags: constant, random, reversed, failed checks, too fast.

    Examples:

    - `earmark collect agreement study --without failed`

    - `earmark collect agreement REL.csv --json relate.json`
    """
    check_json(json_to, source)
    with console.progress() as progress:
        progress.starting()
        from earmark.measure.agreement import agreement as agree
        from earmark.measure.panel import WIDTHS, check_widths, panel

        check_widths(width or WIDTHS)
        found = _read(source, store, unsubmitted, encoding, without)
        parts = {name: agree(ratings, seed=seed) for name, ratings in found.parts().items()}
        judged = found.judged()
        basis = "without anchors" if "without anchors" in parts else "all"
        needed = panel(parts[basis], widths=width or WIDTHS)
    if json_to is not None:
        give_json(as_json(found, parts, judged, basis, needed), json_to)
    if json_to != STDOUT:
        _show_agreement(found, parts, basis)
        _show_raters(judged, all_raters)
        _show_panel(needed, basis)
    exit_with(found.problems, "rows or ratings were left out")


def as_json(found: Source, parts: Mapping[str, Agreement], judged: Raters, basis: str, needed: Panel) -> dict[str, Any]:
    """All that `agreement` tells, as JSON has it."""
    rows = [{**row._asdict(), "flags": [flag._asdict() for flag in row.flags]} for row in judged.rows]
    return {
        "source": found.path.name,
        "layout": found.what,
        "name": found.name,
        "kind": found.kind,
        "left_out": dict(found.left_out),
        "agreement": {name: part.numbers() for name, part in parts.items()},
        "raters": {
            "flagged": len(judged.flagged),
            "unsure": len(judged.unsure),
            "expected_by_chance": judged.expected,
            "rows": rows,
        },
        "needed": {"from": basis, **needed.numbers()},
    }


# Shown


def _show_agreement(found: Source, parts: Mapping[str, Agreement], basis: str) -> None:
    console.say(f"{found.name} ({console.KIND[found.kind]}), {found.what} in {found.path}")
    _say_left_out(found)
    console.show_table(
        ["ratings of", "ratings", "pairs", "raters", "equal", f"within {NEAR:g}"],
        [
            [name, f"{part.ratings:,}", f"{part.units:,}", f"{part.raters:,}", _share(part.same), _share(part.near)]
            for name, part in parts.items()
        ],
        "How many there are; shares of pairs of answers that are equal, and that are within so many points",
    )
    console.show_table(
        ["ratings of", "α [95 %]", "ICC(2,k) [95 %]", "k"],
        [
            [
                name,
                _with_interval(part.alpha, part.alpha_interval),
                _with_interval(part.icc.average, part.icc.average_interval),
                _figure(part.icc.k, 1),
            ]
            for name, part in parts.items()
        ],
        "Krippendorff's α (interval); ICC(2,k), of the mean of k raters",
    )
    one, half = parts[basis].leave_one_out, parts[basis].split_half
    console.say(
        f"each rater against the others' mean ({basis}): r {_figure(one.pearson)}, ρ {_figure(one.spearman)} (mean of "
        f"{one.raters:,} raters); halves against each other: ρ {_figure(half.rho)}; as many other "
        f"raters would reach {_figure(half.ceiling)}"
    )
    for note in parts["all"].notes:
        console.say(f"note: {note}")


def _show_raters(judged: Raters, every: bool) -> None:
    """The raters who need a look, or all, and why below them."""
    flagged, unsure = judged.flagged, judged.unsure
    have = "has" if 1 in (len(flagged), len(judged.rows)) else "have"
    console.say(
        f"{len(flagged):,} of {console.count(len(judged.rows), 'rater')} {have} a flag; of honest raters about "
        f"{judged.expected:.1f} are taken for random or reversed by chance"
    )
    shown = list(judged.rows) if every else flagged[: console.SHOWN]
    rows = [
        [
            row.rater_id,
            f"{row.ratings:,}",
            _figure(row.mean, 1),
            _figure(row.sd, 1),
            _share(row.same),
            _figure(row.r, 2),
            f"{row.checks[0]} of {row.checks[1]}" if row.checks else "",
        ]
        for row in shown
    ]
    if rows:
        console.show_table(["rater", "ratings", "mean", "SD", "same", "r", "checks"], rows)
    for row in shown:
        for flag in row.flags:
            console.say(f"{row.rater_id}: {flag.name}: {flag.why}")
    if len(flagged) > len(shown):
        console.say(f"… and {len(flagged) - len(shown):,} more: see --all or --json")
    if unsure:
        console.say(f"{console.count(len(unsure), 'rater')} cannot be told from random ones:")
    for row in unsure if every else unsure[:UNSURE_SHOWN]:
        console.say(f"{row.rater_id}: {row.unsure}")
    if not every and len(unsure) > UNSURE_SHOWN:
        console.say(f"… and {len(unsure) - UNSURE_SHOWN:,} more: see --all or --json")


def _show_panel(needed: Panel, basis: str) -> None:
    """How many raters and pairs are needed."""
    if all(math.isnan(row.half) for row in needed.by_raters):
        console.say(f"How many raters and pairs are needed cannot be told from these ratings ({basis}).")
        return
    console.show_table(
        ["raters a pair", "95 % of a pair's mean, ± points", "ICC(2,k)"],
        [[str(row.raters), _figure(row.half, 1), _figure(row.reliability)] for row in needed.by_raters],
        f"What so many raters a pair give, by the variances of this study ({basis})",
    )
    for row in needed.for_widths:
        console.say(f"a pair's mean within ± {row.wanted:g} points: {_raters(row.number)} a pair")
    for row in needed.for_reliabilities:
        console.say(f"ICC(2,k) of {row.wanted:g}: {_raters(row.number)} a pair")
    console.show_table(
        ["raters a pair", "wanted", "pairs for α", "pairs for ICC(2,k)"],
        [
            [str(row.raters), f"± {row.wanted:g}", _pairs(row.alpha, "alpha"), _pairs(row.icc, "icc")]
            for row in needed.for_agreements
        ],
        "Pairs for an interval so wide, of other captions and the same raters",
    )


def _figure(value: float, digits: int = 3) -> str:
    return "undefined" if math.isnan(value) else console.number(value, digits)


def _with_interval(value: float, bounds: Sequence[float]) -> str:
    return _figure(value) + ("" if math.isnan(bounds[0]) else f" {console.interval(bounds)}")


def _share(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.0%}"


def _raters(value: float) -> str:
    return f"{_count(value)} rater{'' if value == 1 else 's'}"


def _pairs(value: float, measure: str) -> str:
    from earmark.measure.panel import LEAST_PAIRS

    return f"{'≤ ' if value == LEAST_PAIRS[measure] else ''}{_count(value)}"


def _count(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:,.0f}"
