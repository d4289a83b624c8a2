"""An experiment's tables, as markdown, CSV and JSON: mean ± SD over seeds, and differences paired by seed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from earmark.data.collection import SHOUTED, shouted
from earmark.data.splits import MONITORED
from earmark.errors import DataError, Problem
from earmark.files import write_table, write_text
from earmark.learn.experiment import Results, texts_of
from earmark.markdown import row, table
from earmark.measure import stats
from earmark.measure.evaluate import Evaluation, without_nan
from earmark.measure.seeds import RATINGS, RETRIEVAL, SHOWN, SeedDifference, Spread, differences, spreads
from earmark.model.text_encoders import Progress

COLUMNS = [
    *("collection", "kind", "split"),
    *("run", "against", "measure", "mean", "sd", "seeds"),
    *("interval_low", "interval_high", "p", "p_holm", "bootstrap_low", "bootstrap_high", "higher_in", "published"),
]


class Compared(NamedTuple):
    """A run beside the one that it is set against."""

    run: str
    against: str
    seeds: list[int]
    """Those that both have."""
    found: list[SeedDifference]
    p_holm: list[float]
    """Of each difference's interval over seeds, corrected for all of the experiment's (Holm)."""


class Comparison(NamedTuple):
    """What an experiment came to."""

    results: Results
    spreads: dict[str, dict[str, Spread]]
    """Run → dotted name of a measure → mean and spread."""
    compared: list[Compared]
    published: dict[str, dict[str, float]]
    """Run → dotted name → what is published; empty where the queries are not the published ones."""
    why_not: str
    """Why nothing published stands there; empty where it does, or nothing is published."""


def compared(results: Results, progress: Progress | None = None) -> Comparison:
    """The experiment's means and differences; `progress` is told how many are compared.

    Raises `DataError` where no run has a result.
    """
    if not results.evaluations:
        first = f" The first: {results.problems[0]}" if results.problems else ""
        raise DataError(f"{results.grid.path}: no run has a result.{first}")
    found = {name: spreads(list(of_seed.values())) for name, of_seed in results.numbers.items()}
    asked = [run for run in results.grid.runs if run.against]
    pairs = []
    for done, run in enumerate(asked):
        if progress:
            progress("comparing", done, len(asked))
        pairs.append(_compared(run.name, run.against, results))
    why_not = _why_not_published(results)
    published = {
        run.name: {name: value for name, value in run.published.items() if _is_whole(results, run.name, name)}
        for run in results.grid.runs
        if run.published and not why_not
    }
    return Comparison(results, found, _corrected([pair for pair in pairs if pair.found]), published, why_not)


def _compared(run: str, against: str, results: Results) -> Compared:
    """The differences; where there can be none, why not goes to the results' problems."""
    a, b = results.evaluations.get(run, {}), results.evaluations.get(against, {})
    seeds = [seed for seed in results.grid.seeds if seed in a and seed in b]
    found: list[SeedDifference] = []
    try:
        found = differences(run, [a[s] for s in seeds], against, [b[s] for s in seeds]) if seeds else []
    except DataError as error:
        results.problems.append(Problem(f"{run} − {against}", str(error)))
    return Compared(run, against, seeds, found, [])


def _corrected(pairs: Sequence[Compared]) -> list[Compared]:
    p = iter(stats.holm([each.over_seeds.p for pair in pairs for each in pair.found]))
    return [pair._replace(p_holm=[float(next(p)) for _ in pair.found]) for pair in pairs]


def _is_whole(results: Results, run: str, name: str) -> bool:
    """Whether all rated pairs of the split were scored, or the measure is of none."""
    rated = len({(r.caption_id, r.clip_id) for r in results.collection.rated(results.split)})
    each = results.numbers.get(run, {}).values()
    return not name.startswith("ratings.") or all(numbers.get("ratings", {}).get("pairs") == rated for numbers in each)


def _why_not_published(results: Results) -> str:
    """Why the published numbers may not stand beside ours; empty where they may."""
    published, collection = results.grid.published, results.collection
    if published is None:
        return ""
    here = (collection.name, collection.kind, results.split)
    if here != (published.collection, "recorded", published.split):
        return f"they are of {published.collection} (recorded), split {published.split}"
    if texts_of(collection, results.split) != published.queries:
        return "the split's captions are not those that they are of"
    if any(numbers.get("left_out") for each in results.numbers.values() for numbers in each.values()):
        return "clips were left out"
    return ""


# For people


def markdown(comparison: Comparison) -> str:
    """The tables as markdown, with what they are numbers of."""
    return "\n".join([*_heading(comparison), *_measures(comparison), *_differences(comparison), ""])


def _heading(comparison: Comparison) -> Iterator[str]:
    results = comparison.results
    collection = results.collection
    kind = shouted(collection.kind)
    of_run = {run: _counts(next(iter(of_seed.values()))) for run, of_seed in results.evaluations.items()}
    counts = next(iter(of_run.values()))
    if results.split == MONITORED:
        counts = f"Each seed keeps a tenth of development apart for itself, the first one {counts}"
    yield f"# {results.grid.path.stem}: {collection.name} ({kind}), split {results.split}"
    yield ""
    yield f"{counts}; seeds {', '.join(map(str, results.grid.seeds))}; mean ± SD over seeds."
    for run, other in of_run.items():
        if other != next(iter(of_run.values())):
            yield f"{run}: {other}."
    yield f"Protocol: {next(iter(next(iter(results.evaluations.values())).values())).protocol}."
    if collection.kind in SHOUTED:
        yield f"{kind} numbers compare with each other, and with none on recorded sound: not with the paper's either."
    if results.seen:
        yield f"It holds clips that {_listed(results.seen)} learned from: no test result."
    if results.stopped:
        stopped = "every run" if len(results.stopped) == len(results.evaluations) else _listed(results.stopped)
        yield f"This split also stopped the training of {stopped}: no test result."
    if comparison.published and results.grid.published:
        yield f"In brackets: {results.grid.published.source}, of the same queries."
    elif comparison.why_not:
        yield f"Published numbers are left out: {comparison.why_not}."
    missing = [
        run.name for run in results.grid.runs if len(results.evaluations.get(run.name, {})) < len(results.grid.seeds)
    ]
    if missing:
        yield f"Not all seeds have a result: {_listed(missing)}."
    yield ""


def _counts(evaluation: Evaluation) -> str:
    """What an evaluation is over, in words."""
    clips = len(evaluation.audio_to_text.queries)
    counts = f"{len(evaluation.text_to_audio.queries):,} queries against {clips:,} clips"
    if evaluation.rated is not None:
        captions = len(set(evaluation.rated.captions))
        counts += f", {len(evaluation.rated.scores):,} rated pairs of {captions:,} captions"
    return counts


def _measures(comparison: Comparison) -> Iterator[str]:
    for columns in (RETRIEVAL, RATINGS):
        shown = {
            label: name for name, label in columns.items() if any(name in each for each in comparison.spreads.values())
        }
        if not shown:
            continue
        yield from table(
            ["run", "seeds", *shown],
            (
                [
                    run,
                    str(len(comparison.results.evaluations[run])),
                    *(_cell(comparison, run, found.get(name), name) for name in shown.values()),
                ]
                for run, found in comparison.spreads.items()
            ),
        )


def _cell(comparison: Comparison, run: str, found: Spread | None, name: str) -> str:
    """`.192 ± .007 [.173]`."""
    if found is None or math.isnan(found.mean):
        return "—"
    spread = "" if math.isnan(found.sd) else f" ± {_short(found.sd)}"
    published = comparison.published.get(run, {}).get(name)
    return f"{_short(found.mean)}{spread}" + (f" [{_short(published)}]" if published is not None else "")


def _differences(comparison: Comparison) -> Iterator[str]:
    if not comparison.compared:
        return
    if comparison.results.split == MONITORED:
        yield "Differences paired by seed, with Student's 95 % interval over seeds, each with queries of its own."
    else:
        yield "Differences paired by seed, with 95 % intervals: Student's t over seeds (what other seeds would give on"
        yield "these queries), and a bootstrap over seeds, captions and clips (what other queries would give too)."
    yield ""
    yield row(["run − against", "measure", "difference", "over seeds", "over seeds, captions, clips", "higher in"])
    yield row(["---", "---", "---:", "---:", "---:", "---:"])
    for pair in comparison.compared:
        for at, each in enumerate(pair.found):
            yield row(
                [
                    f"{pair.run} − {pair.against}" if not at else "",
                    SHOWN[each.measure],
                    f"{each.over_seeds.difference:+.4f}",
                    _interval(each.over_seeds.interval),
                    _interval(each.over_all.interval),
                    f"{_higher(each)} of {len(pair.seeds)}",
                ]
            )


def _listed(names: Iterable[str]) -> str:
    return "; ".join(names)


def _short(value: float) -> str:
    """Three digits without the zero before the point."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def _interval(bounds: Sequence[float]) -> str:
    return "—" if math.isnan(bounds[0]) else f"[{bounds[0]:+.4f}, {bounds[1]:+.4f}]"


def _higher(difference: SeedDifference) -> int:
    return sum(value > 0 for value in difference.values)


# For programs


def rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """A row a run and measure, then a row a difference and measure, by the names of `COLUMNS`."""
    results = comparison.results
    of_all = {"collection": results.collection.name, "kind": results.collection.kind, "split": results.split}
    for each in _rows(comparison):
        yield of_all | each


def _rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for run, found in comparison.spreads.items():
        for name, each in found.items():
            published = comparison.published.get(run, {}).get(name, "")
            defined = sum(not math.isnan(value) for value in each.values)
            yield {
                "run": run,
                "measure": name,
                "mean": each.mean,
                "sd": each.sd,
                "seeds": defined,
                "published": published,
            }
    for pair in comparison.compared:
        for difference, p_holm in zip(pair.found, pair.p_holm, strict=True):
            over, everything = difference.over_seeds, difference.over_all
            yield {
                "run": pair.run,
                "against": pair.against,
                "measure": difference.measure,
                "mean": over.difference,
                "seeds": len(pair.seeds),
                "interval_low": over.interval.low,
                "interval_high": over.interval.high,
                "p": over.p,
                "p_holm": p_holm,
                "bootstrap_low": everything.interval.low,
                "bootstrap_high": everything.interval.high,
                "higher_in": _higher(difference),
            }


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, every seed's value too."""
    results = comparison.results
    found: dict[str, Any] = without_nan(
        {
            "grid": results.grid.path.stem,
            "collection": results.collection.name,
            "kind": results.collection.kind,
            "split": results.split,
            "seeds": list(results.grid.seeds),
            "stopped_training": results.stopped,
            "trained_on": results.seen,
            "runs": {
                run: {name: each._asdict() for name, each in found.items()} for run, found in comparison.spreads.items()
            },
            "differences": [
                {
                    "run": pair.run,
                    "against": pair.against,
                    "seeds": pair.seeds,
                    "measure": each.measure,
                    "values": each.values,
                    "difference": each.over_seeds.difference,
                    "interval": list(each.over_seeds.interval),
                    "p": each.over_seeds.p,
                    "p_holm": p_holm,
                    "bootstrap_interval": list(each.over_all.interval),
                    "bootstrap_p": each.over_all.p,
                }
                for pair in comparison.compared
                for each, p_holm in zip(pair.found, pair.p_holm, strict=True)
            ],
            "published": comparison.published,
            "problems": [problem._asdict() for problem in results.problems],
        }
    )
    return found


def write_tables(comparison: Comparison, out: Path) -> None:
    """Writes `tables.md`, `tables.csv` and `tables.json`, each whole or not at all."""
    write_text(out / "tables.md", markdown(comparison))
    plain = ({key: "" if value != value else value for key, value in each.items()} for each in rows(comparison))
    write_table(out / "tables.csv", COLUMNS, plain)
    write_text(out / "tables.json", json.dumps(as_json(comparison), indent=2, ensure_ascii=False) + "\n")
