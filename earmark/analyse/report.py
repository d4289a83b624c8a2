"""A study's report: `report.html` (one file, opens offline), `report.md` with `figures/`, and the tables behind them.

Tables are laid out as the paper's Table 4: a row a feature, a column a target, Pearson's r with its stars or "n.s.".
"""

from __future__ import annotations

import base64
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from earmark.analyse.captions import SPACY_MODEL
from earmark.analyse.clips import NAMES
from earmark.analyse.correlate import CONTROLS, Correlation, crossed, stars
from earmark.analyse.features import FEATURES, label
from earmark.analyse.figures import DOTS, DPI, GROUPS, figures, marks
from earmark.analyse.study import Scope, Study
from earmark.analyse.targets import TARGETS
from earmark.data.collection import SHOUTED, shouted
from earmark.errors import ConfigError, DataError, install
from earmark.files import write_table, write_text, writing
from earmark.markdown import table
from earmark.measure.agreement import Agreement
from earmark.measure.evaluate import without_nan
from earmark.measure.stats import Floats, is_constant

PAIR_COLUMNS = ("caption_id", "clip_id", "split", "group", "ratings")
CORRELATION_COLUMNS = [
    *("collection", "kind", "scope", "feature", "target", "n", "r", "p", "p_holm", "r_low", "r_high"),
    *("rho", "rho_p", "rho_low", "rho_high", "partial_r", "partial_p", "partial_n", "r_of_these", "given"),
]
CAPTIONS = {
    "heatmap": "Pearson's r of every feature with every target",
    "strongest": "The strongest correlations, one a feature, of p < .05 before correction, with least-squares lines; "
    f"whole numbers are drawn a little apart, and of more than {DOTS:,} pairs so many at random",
    "ratings": f"Mean ratings by group, how pairs were chosen: the largest {GROUPS} groups",
    "machine": "People against the machine",
}
"""What each picture shows."""
FEW = 30
"""Pairs below which a scope's numbers tell next to nothing."""
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
UNDEFINED = "undefined"
Table = tuple[list[str], list[list[str]]]
"""Columns and rows."""


class Section(NamedTuple):
    """A part of the report, in whatever form."""

    title: str = ""
    lines: Sequence[str] = ()
    table: Table | None = None
    picture: str = ""
    """A key of `CAPTIONS`."""
    folded: bool = False
    """Whether a page shows it only when asked."""


def check_out(out: Path) -> None:
    """Raises `ConfigError` where a library of study or report is missing, `DataError` where `out` is no folder."""
    missing = [
        name for name in ("spacy", SPACY_MODEL, "matplotlib", "jinja2") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ConfigError(f"analyse needs {' and '.join(missing)}, of the extra `analyse` ({install('analyse')}).")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: not a folder; expected one for the report, or nothing. Name another place.")


def write_report(study: Study, out: Path) -> list[Path]:
    """Writes the report into the folder, each file whole or not at all, and gives their paths, the page first.

    Pictures that an earlier report left there and this one does not have are deleted. Raises `DataError` where it
    cannot be written.
    """
    drawn = figures(study)
    found = list(sections(study, drawn))
    page = html(study, found, drawn)
    for name in CAPTIONS:
        path = out / "figures" / f"{name}.png"
        if name not in drawn:
            path.unlink(missing_ok=True)
            continue
        with writing(path) as aside:
            aside.write_bytes(drawn[name])
    write_features(study, out / "features.csv")
    rows = ({key: "" if value != value else value for key, value in row.items()} for row in correlation_rows(study))
    write_table(out / "correlations.csv", CORRELATION_COLUMNS, rows)
    write_text(out / "report.md", markdown(study, found))
    write_text(out / "report.html", page)
    return [out / name for name in ("report.html", "report.md", "features.csv", "correlations.csv")]


# What it says


def heading(study: Study) -> str:
    """What the study is of."""
    of = f"{study.collection.name} ({shouted(study.collection.kind)})"
    return f"{of}, run {study.run.name}" if study.run else of


def title(study: Study) -> str:
    """The report's."""
    return f"What ratings go with: {heading(study)}"


def counts(scope: Scope) -> str:
    """How many pairs a scope's numbers are of."""
    few = f" (fewer than {FEW}: they tell next to nothing)" if scope.pairs < FEW else ""
    return f"{scope.name}: {scope.pairs:,} rated pairs, {scope.captions:,} captions{few}"


def sections(study: Study, drawn: Iterable[str]) -> Iterator[Section]:
    """The report's parts, in order; `drawn` are the pictures that there are."""
    *splits, whole = study.scopes
    yield Section(counts(whole), table=paper_table(whole))
    yield from (Section(picture=name) for name in drawn)
    if study.run is not None:
        yield Section("Human against machine", machine_lines(study))
    for scope in (whole, *splits):
        if scope is not whole:
            yield Section(counts(scope), table=paper_table(scope))
        if any(found.ratings for found in scope.agreement.values()):
            yield Section(f"How far raters agree, {scope.name}", table=quality_table(scope))
    if is_of_clotho(study):
        yield Section("Published: the paper's Table 4, 600 pairs", table=published_table())
    yield Section("Notes", notes(study))
    yield Section("What the names mean", glossary(study))
    if study.problems:
        yield Section("Left out", list(map(str, study.problems)))
    for scope in (whole, *splits):
        yield Section(f"Every correlation, {counts(scope)}", table=detail_table(scope), folded=True)


def glossary(study: Study) -> list[str]:
    """What each feature and target of the study is that is defined for any pair."""
    known = [name for name, values in study.features.items() if name in FEATURES and not np.isnan(values).all()]
    features = [f"{label(name)}: {FEATURES[name].meaning}" for name in known]
    return [*(f"{name}: {TARGETS[name]}" for name in study.targets if name in TARGETS), *features]


def paper_table(scope: Scope, shown: Callable[[Correlation], str] | None = None) -> Table:
    """The table in the paper's layout, without features that are undefined for every target."""
    shown = shown or paper_cell
    targets = list(dict.fromkeys(each.target for each in scope.correlations))
    rows: dict[str, dict[str, str]] = {}
    for each in scope.correlations:
        rows.setdefault(each.feature, {})[each.target] = shown(each)
    kept = {name: cells for name, cells in rows.items() if set(cells.values()) != {UNDEFINED}}
    return ["feature", *map(label, targets)], [
        [label(name), *(cells.get(target, "") for target in targets)] for name, cells in kept.items()
    ]


def short_table(scope: Scope) -> Table:
    """The same with r in the place of "n.s.", and of D(H, M) the paper's form alone: for a terminal."""
    columns, rows = paper_table(scope, whole_cell)
    kept = [at for at, name in enumerate(columns) if not name.startswith("D(H, M) ")]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def paper_cell(found: Correlation) -> str:
    """`-0.195**`, "n.s." or "undefined"; † where it also holds after Holm's correction over the table."""
    return whole_cell(found) if found.p < 0.05 or math.isnan(found.p) else stars(found.p)


def whole_cell(found: Correlation) -> str:
    """The same, with the number in the place of "n.s."."""
    return UNDEFINED if math.isnan(found.p) else f"{found.r:z.3f}{marks(found).replace('n.s.', '')}"


def published_table() -> Table:
    """The paper's Table 4."""
    targets = ["HR", "MR", "D(H, M)", "APT"]
    return ["feature", *targets], [[label(name), *(cells[t] for t in targets)] for name, cells in PAPER.items()]


def detail_table(scope: Scope) -> Table:
    """Every correlation with all that belongs to it; partial r stands beside r over the same pairs."""
    columns = ["feature", "target", "n", "r", "95 % interval", "p", "p (Holm)", "ρ", "95 % interval", "p"]
    columns += ["partial r", "p", "its n", "r of these", "given"]
    return columns, [
        [
            *(label(each.feature), each.target, f"{each.n:,}"),
            *(signed(each.r), bounds(each.interval), probability(each.p), probability(each.p_holm)),
            *(signed(each.rho), bounds(each.rho_interval), probability(each.rho_p)),
            *(signed(each.partial), probability(each.partial_p), f"{each.partial_n:,}", signed(each.plain)),
            ", ".join(map(label, each.controls)) or "nothing",
        ]
        for each in scope.correlations
    ]


QUALITY: dict[str, Callable[[Agreement], str]] = {
    "answers": lambda found: f"{found.ratings:,}",
    "rated pairs": lambda found: f"{found.units:,}",
    "rated pairs of two raters and more": lambda found: f"{found.units_of_two:,}",
    "raters": lambda found: f"{found.raters:,}",
    "Krippendorff's α (interval)": lambda found: plain(found.alpha, 4),
    "α, 95 % interval": lambda found: bounds(found.alpha_interval),
    "two people's answers are equal, share": lambda found: plain(found.same),
    "two people's answers within 10 points": lambda found: plain(found.near),
    "ICC(2,1), of one rater": lambda found: plain(found.icc.single),
    "ICC(2,k), of the mean of k raters": lambda found: plain(found.icc.average),
    "k": lambda found: plain(found.icc.k, 2),
    "each rater against the others' mean, r": lambda found: plain(found.leave_one_out.pearson),
    "each rater against the others' mean, ρ": lambda found: plain(found.leave_one_out.spearman),
    "raters of whom these two are defined": lambda found: f"{found.leave_one_out.raters:,}",
    "split half ρ": lambda found: plain(found.split_half.rho),
    "human ceiling of ρ": lambda found: plain(found.split_half.ceiling),
    "ceiling of a model that knows true means": lambda found: plain(found.split_half.limit),
}
"""Measure → how it is shown."""


def quality_table(scope: Scope) -> Table:
    """How far a scope's raters agree: a row a measure, a column a choice of ratings."""
    told = {name: found for name, found in scope.agreement.items() if found.ratings}
    return [scope.name, *told], [[name, *map(shown, told.values())] for name, shown in QUALITY.items()]


def machine_lines(study: Study) -> list[str]:
    """ρ of the machine with people, scope by scope, what the run has seen, and what people reach themselves."""
    return [line for scope in study.scopes for line in _machine_line(scope)]


def _machine_line(scope: Scope) -> Iterator[str]:
    found = scope.machine
    if found is None:
        return
    line = f"{scope.name}: ρ of MR with HR {plain(found.rho)} {bounds(found.interval)} over {found.pairs:,} pairs"
    line += f"; {found.trained:,} of {found.captions:,} captions trained the run"
    if found.stopped_training:
        line += ", and a split among them stopped its training"
    line += ": no test result" if found.trained or found.stopped_training else ""
    *_, studied = scope.agreement.values()
    halves = studied.split_half
    if not math.isnan(halves.ceiling):
        line += f". Human ceiling {plain(halves.ceiling)} over {halves.units:,} pairs of two raters and more"
    yield line


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
    if same := [label(name) for name, values in study.features.items() if _is_one(values)]:
        undefined.append(f"the same for every pair, and left out of the tables: {', '.join(same)}")
    if study.collection.kind in SHOUTED:
        kind = shouted(study.collection.kind)
        told.append(f"{kind} data: no number here is a result on recorded sound and people's answers to it")
    return [*study.notes, *undefined, *told]


def _is_one(values: Floats) -> bool:
    """Whether all that is defined is one number."""
    defined = values[~np.isnan(values)]
    return len(defined) > 0 and is_constant(defined)


def reading(study: Study) -> str:
    """How to read the tables."""
    controls = " and ".join(map(label, CONTROLS))
    p_of = "scipy's, which takes pairs as independent of each other"
    if not study.scopes[-1].stand_alone:
        p_of = "of r over the bootstrap's standard error, since many pairs share captions or clips"
    both = crossed([p.caption.caption_id for p in study.pairs], [p.clip.clip_id for p in study.pairs])
    drawn = "captions and clips" if both else "clips, which bring their captions along"
    return (
        "Pearson's r; ** p < .01 and * p < .05 before correction, n.s. or no mark: neither; † p < .05 after Holm's "
        f"correction over the table. p is {p_of}. Intervals are 95 %, by bootstrap over {drawn}. The partial r is "
        f"given {controls}, as far as they are known. C-words are content words (nouns, verbs, adjectives, adverbs), "
        "fr- those among the most frequent of the reference captions."
    )


def is_of_clotho(study: Study) -> bool:
    """Whether the paper's own numbers belong beside it."""
    return (study.collection.name, study.collection.kind, study.settings.pairs) == (PUBLISHED_OF, "recorded", "own")


# Forms


def markdown(study: Study, found: Iterable[Section]) -> str:
    """The report as markdown, its pictures in `figures/`."""
    return "\n".join(["# " + _line(title(study)), "", reading(study), "", *_markdown(found)])


def _markdown(found: Iterable[Section]) -> Iterator[str]:
    for section in found:
        if section.title:
            yield f"## {_line(section.title)}"
            yield ""
        if section.lines:
            yield from (f"- {_item(line)}" for line in section.lines)
            yield ""
        if section.table is not None:
            yield from table(*section.table)
        if section.picture:
            yield f"![{CAPTIONS[section.picture]}](figures/{section.picture}.png)"
            yield ""


def _line(text: str) -> str:
    """The text in one line, no part of it HTML."""
    return " ".join(text.split()).replace("<", "&lt;")


def _item(line: str) -> str:
    """The line as a list's item: in one line, and neither a title nor a list itself (`# words` is a name)."""
    told = _line(line)
    return f"\\{told}" if told.startswith(("#", ">", "-", "+", "*")) else told


def html(study: Study, found: Sequence[Section], drawn: Mapping[str, bytes]) -> str:
    """The report as one page that needs nothing beside it."""
    from jinja2 import Environment, StrictUndefined

    template = resources.files("earmark.analyse").joinpath("report.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters["code"] = _code
    pictures = {name: "data:image/png;base64," + base64.b64encode(each).decode() for name, each in drawn.items()}
    return page.from_string(template).render(
        title=title(study),
        reading=reading(study),
        sections=found,
        pictures=pictures,
        widths={name: _width(each) for name, each in drawn.items()},
        captions=CAPTIONS,
    )


def _width(png: bytes) -> int:
    """How wide a picture is meant to be, in CSS's pixels of 1/96 inch."""
    return int.from_bytes(png[16:20], "big") * 96 // DPI  # the header's first number


def _code(line: str) -> Any:
    """The line as HTML, what stands between backticks as code."""
    from markupsafe import Markup, escape

    parts = [
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(line.split("`"))
    ]
    return Markup("").join(parts) if line.count("`") % 2 == 0 else escape(line)


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
                *(each.partial, each.partial_p, each.partial_n, each.plain, " ".join(each.controls)),
            )
            yield of_all | dict(zip(CORRELATION_COLUMNS[2:], cells, strict=True))


def as_json(study: Study) -> dict[str, Any]:
    """Everything but the single pairs, as `analyse --json` prints it; what is undefined is None."""
    found: dict[str, Any] = without_nan(
        {
            "collection": study.collection.name,
            "kind": study.collection.kind,
            "run": study.run.name if study.run else None,
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
                    "machine": scope.machine and {**scope.machine._asdict(), "interval": list(scope.machine.interval)},
                }
                for scope in study.scopes
            ],
        }
    )
    return found


# Numbers in words


def plain(value: float, digits: int = 3) -> str:
    """A number, or "undefined"."""
    return UNDEFINED if math.isnan(value) else f"{value:z.{digits}f}"


def signed(value: float) -> str:
    """A number with its sign, or "undefined"."""
    return UNDEFINED if math.isnan(value) else f"{value:+z.3f}"


def probability(value: float) -> str:
    """`.041`, or "< .001"."""
    if math.isnan(value):
        return UNDEFINED
    return "< .001" if value < 0.001 else f"{value:.3f}"


def bounds(interval: Sequence[float]) -> str:
    """`[-0.021, 0.114]`."""
    return UNDEFINED if math.isnan(interval[0]) else f"[{interval[0]:z.3f}, {interval[1]:z.3f}]"
