"""A study's report: `report.html` (one file, opens offline), `report.md` with `figures/`, and the tables behind them.

Tables are laid out as the paper's Table 4: a row a feature, a column a target, Pearson's r with its stars or "n.s.".
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from earmark.analyse.clips import NAMES
from earmark.analyse.correlate import Correlation, stars
from earmark.analyse.figures import figures, label
from earmark.analyse.study import Scope, Study
from earmark.data.collection import SHOUTED
from earmark.errors import ConfigError
from earmark.files import write_table, write_text, writing
from earmark.markdown import table
from earmark.measure.agreement import Agreement
from earmark.measure.evaluate import without_nan

PAIR_COLUMNS = ("caption_id", "clip_id", "split", "group", "ratings")
CORRELATION_COLUMNS = [
    *("collection", "kind", "scope", "feature", "target", "n", "r", "p", "p_holm", "r_low", "r_high"),
    *("rho", "rho_p", "rho_low", "rho_high", "partial_r", "partial_p", "partial_n", "given"),
]
CAPTIONS = {
    "heatmap": "Pearson's r of every feature with every target",
    "strongest": "The strongest correlations (one a feature, p < .05 before correction), with least-squares lines",
    "ratings": "Mean ratings by group",
    "machine": "People against the machine",
}
"""What each picture shows."""
PAPER: dict[str, dict[str, str]] = {
    "e_time": {"HR": "n.s.", "MR": "n.s.", "D(H, M)": "n.s.", "APT": "n.s."},
    "e_class": {"HR": "-0.195**", "MR": "-0.233**", "D(H, M)": "n.s.", "APT": "0.089*"},
    "duration_s": {"HR": "n.s.", "MR": "n.s.", "D(H, M)": "n.s.", "APT": "0.604**"},
    "perplexity": {"HR": "-0.092*", "MR": "n.s.", "D(H, M)": "n.s.", "APT": "n.s."},
    "words": {"HR": "0.130**", "MR": "n.s.", "D(H, M)": "0.108**", "APT": "0.227**"},
    "content_words": {"HR": "0.099*", "MR": "n.s.", "D(H, M)": "0.100*", "APT": "0.213**"},
    "nouns": {"HR": "n.s.", "MR": "n.s.", "D(H, M)": "0.107**", "APT": "0.158**"},
    "adjectives": {"HR": "n.s.", "MR": "n.s.", "D(H, M)": "n.s.", "APT": "0.082*"},
    "frequent_words": {"HR": "0.095*", "MR": "n.s.", "D(H, M)": "n.s.", "APT": "0.113**"},
    "frequent_content_words": {"HR": "0.089*", "MR": "n.s.", "D(H, M)": "n.s.", "APT": "0.127**"},
    "frequent_nouns": {"HR": "n.s.", "MR": "n.s.", "D(H, M)": "0.083*", "APT": "0.095*"},
}
"""The paper's Table 4, of 600 own-clip pairs of Clotho with single raters' answers; shown beside a study of Clotho."""
PUBLISHED_OF = "clotho"


def write_report(study: Study, out: Path) -> list[Path]:
    """Writes the report into the folder, each file whole or not at all, and gives their paths, the page first.

    Raises `ConfigError` where matplotlib or Jinja2 is missing, `DataError` where it cannot be written.
    """
    drawn = figures(study)
    page = html(study, drawn)
    for name, picture in drawn.items():
        with writing(out / "figures" / f"{name}.png") as aside:
            aside.write_bytes(picture)
    write_text(out / "report.html", page)
    write_text(out / "report.md", markdown(study, drawn))
    write_features(study, out / "features.csv")
    rows = ({key: "" if value != value else value for key, value in row.items()} for row in correlation_rows(study))
    write_table(out / "correlations.csv", CORRELATION_COLUMNS, rows)
    return [out / name for name in ("report.html", "report.md", "features.csv", "correlations.csv")]


# What it says


def kind(study: Study) -> str:
    """The collection's kind, in capitals where no result is one on recorded sound."""
    found = study.collection.kind
    return found.upper() if found in SHOUTED else found


def heading(study: Study) -> str:
    """What the study is of."""
    return f"{study.collection.name} ({kind(study)})" + (f", run {study.run}" if study.run else "")


def counts(scope: Scope) -> str:
    """How many pairs a scope's numbers are of."""
    return f"{scope.name}: {scope.pairs:,} rated pairs, {scope.captions:,} captions"


def paper_table(scope: Scope, shown: Callable[[Correlation], str] | None = None) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table in the paper's layout, without features that are undefined for every target."""
    shown = shown or paper_cell
    targets = list(dict.fromkeys(each.target for each in scope.correlations))
    rows: dict[str, dict[str, str]] = {}
    for each in scope.correlations:
        rows.setdefault(each.feature, {})[each.target] = shown(each)
    kept = {name: cells for name, cells in rows.items() if set(cells.values()) != {"undefined"}}
    return ["feature", *map(label, targets)], [
        [label(name), *(cells.get(target, "") for target in targets)] for name, cells in kept.items()
    ]


def paper_cell(found: Correlation) -> str:
    """`-0.195**`, "n.s." or "undefined"; † where it also holds after Holm's correction over the table."""
    return whole_cell(found) if found.p < 0.05 or math.isnan(found.p) else stars(found.p)


def whole_cell(found: Correlation) -> str:
    """The same, with the number in the place of "n.s."."""
    if math.isnan(found.p):
        return "undefined"
    return f"{found.r:.3f}{stars(found.p).replace('n.s.', '')}" + ("†" if found.p_holm < 0.05 else "")


def published_table() -> tuple[list[str], list[list[str]]]:
    """The paper's Table 4."""
    targets = ["HR", "MR", "D(H, M)", "APT"]
    return ["feature", *targets], [[label(name), *(cells[t] for t in targets)] for name, cells in PAPER.items()]


def detail_table(scope: Scope) -> tuple[list[str], list[list[str]]]:
    """Every correlation with all that belongs to it."""
    columns = [
        "feature",
        "target",
        "n",
        "r",
        "95 % interval",
        "p",
        "p (Holm)",
        "ρ",
        "95 % interval",
        "p",
        "partial r",
        "p",
    ]
    return columns, [
        [
            label(each.feature),
            label(each.target),
            f"{each.n:,}",
            *(signed(each.r), bounds(each.interval), probability(each.p), probability(each.p_holm)),
            *(signed(each.rho), bounds(each.rho_interval), probability(each.rho_p)),
            *(signed(each.partial), probability(each.partial_p)),
        ]
        for each in scope.correlations
    ]


def quality_table(study: Study) -> tuple[list[str], list[list[str]]]:
    """Rating quality, a row a scope and choice of ratings; no rows where no rating names its rater."""
    columns = ["ratings of", "answers", "pairs", "raters", "α (interval)", "95 % interval", "same / within 10"]
    columns += ["ICC(2,k)", "k", "leave one out r / ρ", "split half ρ", "human ceiling of ρ"]
    rows = [
        [f"{scope.name}, {name}", *_quality(found)]
        for scope in study.scopes
        for name, found in scope.agreement.items()
        if found.ratings
    ]
    return columns, rows


def _quality(found: Agreement) -> list[str]:
    return [
        f"{found.ratings:,}",
        f"{found.units:,}",
        f"{found.raters:,}",
        plain(found.alpha, 4),
        bounds(found.alpha_interval),
        f"{plain(found.same, 2)} / {plain(found.near, 2)}",
        plain(found.icc.average),
        plain(found.icc.k, 2),
        f"{plain(found.leave_one_out.pearson)} / {plain(found.leave_one_out.spearman)}",
        plain(found.split_half.rho),
        plain(found.split_half.ceiling),
    ]


def machine_lines(study: Study) -> list[str]:
    """ρ of the machine with people, scope by scope, beside what people reach themselves."""
    lines = []
    for scope in study.scopes:
        if scope.machine is None:
            continue
        found = scope.machine
        line = (
            f"{scope.name}: ρ of MR with HR {plain(found.spearman)} {bounds(found.interval)} over {found.pairs:,} pairs"
        )
        halves = list(scope.agreement.values())[-1].split_half
        if not math.isnan(halves.ceiling):
            line += f"; between people, the ρ of one panel's means with another's: {plain(halves.ceiling)}"
            line += f", and of a model that knew the true means: {plain(halves.limit)}"
        lines.append(line)
    return lines


def notes(study: Study) -> list[str]:
    """What a reader must know, those of rating quality too."""
    rated = {name: found for name, found in study.scopes[-1].agreement.items() if found.ratings}
    told = [f"agreement, {name}: {note}" for name, found in rated.items() for note in found.notes]
    if not rated:
        told.append("agreement: no rating names its rater (column rater_id)")
    without_sound = () if any(pair.clip.path for pair in study.pairs) else NAMES  # the features' own note tells it
    empty = [
        label(name) for name, values in study.features.items() if np.isnan(values).all() and name not in without_sound
    ]
    undefined = [f"undefined for every pair, and left out of the tables: {', '.join(empty)}"] if empty else []
    if study.collection.kind in SHOUTED:
        told.append(f"{kind(study)} data: no number here is a result on recorded sound and people's answers to it")
    return [*study.notes, *undefined, *told]


READING = (
    "Pearson's r with the paper's stars (* p < .05, ** p < .01, not corrected; n.s.: not significant); † also p < .05 "
    "after Holm's correction over the table. Intervals are 95 %, by bootstrap over captions; the partial r is given "
    "audio duration and # words, as far as they are there."
)
"""How to read the tables."""


def is_of_clotho(study: Study) -> bool:
    """Whether the paper's own numbers belong beside it."""
    return (study.collection.name, study.collection.kind, study.settings.pairs) == (PUBLISHED_OF, "recorded", "own")


# Markdown


def markdown(study: Study, drawn: Mapping[str, bytes]) -> str:
    """The report as markdown, its pictures in `figures/`."""
    return "\n".join([*_markdown(study, drawn), ""])


def _markdown(study: Study, drawn: Mapping[str, bytes]) -> Iterator[str]:
    yield f"# Why pairs are rated as they are: {heading(study)}"
    yield ""
    yield READING
    yield ""
    for scope in reversed(study.scopes):
        yield f"## {counts(scope)}"
        yield ""
        yield from table(*paper_table(scope))
    if is_of_clotho(study):
        yield "## Published: the paper's Table 4, 600 pairs"
        yield ""
        yield from table(*published_table())
    columns, rows = quality_table(study)
    if rows:
        yield "## How far raters agree"
        yield ""
        yield from table(columns, rows)
    if lines := machine_lines(study):
        yield "## Human against machine"
        yield ""
        yield from (f"- {line}" for line in lines)
        yield ""
    yield "## Notes"
    yield ""
    yield from (f"- {note}" for note in notes(study))
    yield ""
    for name in drawn:
        yield f"![{CAPTIONS[name]}](figures/{name}.png)"
        yield ""
    for scope in reversed(study.scopes):
        yield f"## Every correlation, {counts(scope)}"
        yield ""
        yield from table(*detail_table(scope))


# The page


def html(study: Study, drawn: Mapping[str, bytes]) -> str:
    """The report as one page that needs nothing beside it."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ConfigError("the report needs the extra `analyse` (pip install 'earmark[analyse]').") from error
    template = resources.files("earmark.analyse").joinpath("report.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return page.from_string(template).render(
        heading=heading(study),
        reading=READING,
        scopes=[
            {"counts": counts(scope), "paper": paper_table(scope), "detail": detail_table(scope)}
            for scope in reversed(study.scopes)
        ],
        published=published_table() if is_of_clotho(study) else None,
        quality=quality_table(study),
        machine=machine_lines(study),
        notes=notes(study),
        problems=list(map(str, study.problems)),
        figures={
            name: (CAPTIONS[name], "data:image/png;base64," + base64.b64encode(picture).decode())
            for name, picture in drawn.items()
        },
    )


# For programs


def write_features(study: Study, path: Path) -> None:
    """Writes `features.csv`: a row a pair, its ids, then every feature and target; undefined cells stay empty."""
    numbers = {**study.features, **study.targets}
    rows = []
    for at, pair in enumerate(study.pairs):
        ids = (pair.caption.caption_id, pair.clip.clip_id, pair.split, pair.group, len(pair.ratings))
        cells = {name: "" if math.isnan(values[at]) else f"{values[at]:.10g}" for name, values in numbers.items()}
        rows.append({**dict(zip(PAIR_COLUMNS, ids, strict=True)), **cells})
    write_table(path, [*PAIR_COLUMNS, *numbers], rows)


def correlation_rows(study: Study) -> Iterator[dict[str, Any]]:
    """A row a scope, feature and target, by the names of `CORRELATION_COLUMNS`."""
    of_all = {"collection": study.collection.name, "kind": study.collection.kind}
    for scope in study.scopes:
        for each in scope.correlations:
            cells = (
                *(scope.name, each.feature, each.target, each.n, each.r, each.p, each.p_holm, *each.interval),
                *(each.rho, each.rho_p, *each.rho_interval),
                *(each.partial, each.partial_p, each.partial_n, " ".join(each.controls)),
            )
            yield of_all | dict(zip(CORRELATION_COLUMNS[2:], cells, strict=True))


def as_json(study: Study) -> dict[str, Any]:
    """Everything but the single pairs, as `analyse --json` prints it; what is undefined is None."""
    found: dict[str, Any] = without_nan(
        {
            "collection": study.collection.name,
            "kind": study.collection.kind,
            "run": study.run or None,
            "pairs": study.settings.pairs,
            "notes": notes(study),
            "problems": [problem._asdict() for problem in study.problems],
            "scopes": [
                {
                    "scope": scope.name,
                    "pairs": scope.pairs,
                    "captions": scope.captions,
                    "correlations": [row for row in correlation_rows(study) if row["scope"] == scope.name],
                    "agreement": {name: each.numbers() for name, each in scope.agreement.items() if each.ratings},
                    "machine": scope.machine
                    and {
                        "spearman": scope.machine.spearman,
                        "interval": list(scope.machine.interval),
                        "pairs": scope.machine.pairs,
                    },
                }
                for scope in study.scopes
            ],
        }
    )
    return found


# Numbers in words


def plain(value: float, digits: int = 3) -> str:
    """A number, or "undefined"."""
    return "undefined" if math.isnan(value) else f"{value:.{digits}f}"


def signed(value: float) -> str:
    """A number with its sign, or "undefined"."""
    return "undefined" if math.isnan(value) else f"{value:+.3f}"


def probability(value: float) -> str:
    """`.041`, or "< .001"."""
    if math.isnan(value):
        return "undefined"
    return "< .001" if value < 0.001 else f"{value:.3f}"


def bounds(interval: Sequence[float]) -> str:
    """`[-0.021, 0.114]`."""
    return "undefined" if math.isnan(interval[0]) else f"[{interval[0]:.3f}, {interval[1]:.3f}]"
