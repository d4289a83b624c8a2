"""`earmark score`: the rating that people would give a sound for words, with an interval."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import STDOUT, JsonOption, check_json, default_split, exit_with, give_json, read, replaces
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.analyse.answer import Answer
    from earmark.analyse.score import Scores
    from earmark.data.collection import Collection


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained run.")],
    file: Annotated[Optional[Path], typer.Argument(metavar="FILE", help="A sound.")] = None,  # noqa: UP045
    words: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar='"WORDS"…', help="A text, or several."),
    ] = None,
    fit_on: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--fit", metavar="DIR", help="Fit the map on this collection's ratings, and keep it in RUN."),
    ] = None,
    folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--data", metavar="DIR", help="Score a collection's rated pairs, or those that --pairs names."),
    ] = None,
    split: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--split",
            help="Of --data: evaluation where there is one, else all. Of --fit: every split but evaluation.",
            show_default=False,
        ),
    ] = None,
    pairs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="CSV", help="path,text; with --data caption_id,clip_id or text,clip_id."),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of the CSV.")] = "utf-8",
    level: Annotated[float, typer.Option(help="The share of ratings inside the interval, 0.5–0.99.")] = 0.9,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.csv", help="Write every pair with its cosine, rating and interval."),
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Tell the rating, 0–100, that people would give a sound for words, with an interval: fitted once, kept in RUN.

    `--fit` learns it from rated captions that did not train the run. Pairs with ratings are measured against them.

    Examples:

    - `earmark score runs/first --fit soundscapes --split validation`

    - `earmark score runs/first rain.wav "rain on a roof" "a dog barks"`

    - `earmark score runs/first --data soundscapes`

    - `earmark score runs/first --pairs sounds.csv --out rated.csv`
    """
    _check_wishes(fit_on, file, words, folder, split, pairs, out)
    check_json(json_to, run, file, pairs, folder, fit_on)
    from earmark.analyse.calibrate import Calibration, check_level

    check_level(level)
    if fit_on is not None:
        _fit(run, fit_on, split, level, json_to)
        return
    calibration = Calibration.read(run)
    with console.progress() as progress:
        progress.starting()
        from earmark.analyse.answer import answer

        if file is not None:
            scores, about = _of_sound(run, file, words or [], progress)
        elif pairs is not None:
            scores, about = _of_table(run, pairs, folder, encoding, progress)
        else:
            assert folder is not None
            scores, about = _of_collection(run, folder, split, progress)
        found = answer(calibration, scores, level)
    counts = {"pairs": len(scores.rows), "captions": len(set(scores.captions))}
    about = {"run": run.name, **about, **counts, "calibration": calibration.about()}
    if out is not None:
        _write_rows(found, out)
    if json_to is not None:
        give_json({**about, **_as_json(found)}, json_to)
    if json_to != STDOUT:
        _show(found, about, of_sound=file is not None)
        if out is not None:
            console.say(f"{out}: {_count(len(scores.rows), 'row')}")
    exit_with(scores.problems, "rows, clips or pairs were left out")


def _check_wishes(
    fit_on: Path | None,
    file: Path | None,
    words: list[str] | None,
    folder: Path | None,
    split: str | None,
    pairs: Path | None,
    out: Path | None,
) -> None:
    """Raises `ConfigError` where what is asked does not go together."""
    wishes = {"--fit": fit_on, "FILE": file, "--pairs": pairs, "--data": folder}
    given = [name for name, value in wishes.items() if value is not None]
    if len(given) != 1 and given != ["--pairs", "--data"]:
        raise ConfigError(
            f"score: {' and '.join(given) or 'nothing'} to do; expected one of: FILE and words, --data DIR, --pairs "
            "CSV, --fit DIR. Name one."
        )
    wrong = ""
    if file is not None and not words:
        wrong = f'{file}: no words to rate it by; expected FILE "words". Add some'
    elif split is not None and (file is not None or pairs is not None):
        wrong = f"--split {split}: pairs that are named have no split. Leave it out"
    elif fit_on is not None and out is not None:
        wrong = f"--out {out}: fitting rates nothing. Leave it out"
    elif out is not None and pairs is not None and replaces(out, pairs):
        wrong = f"--out {out}: the pairs themselves, of which rows that cannot be used would be lost. Name another file"
    if wrong:
        raise ConfigError(f"{wrong}.")


# What is asked for: the pairs with their cosines, and what they are of


def _of_sound(run: Path, file: Path, words: list[str], progress: console.Stages) -> tuple[Scores, dict[str, Any]]:
    from earmark.analyse.score import score_file

    return score_file(run, file, words, progress), {"of": str(file)}


def _of_table(
    run: Path, pairs: Path, folder: Path | None, encoding: str, progress: console.Stages
) -> tuple[Scores, dict[str, Any]]:
    from earmark.analyse.score import score_table

    collection = None if folder is None else read(folder)
    about = {} if collection is None else _data(collection)
    return score_table(run, pairs, collection, progress, encoding=encoding), {**about, "of": str(pairs)}


def _of_collection(
    run: Path, folder: Path, split: str | None, progress: console.Stages
) -> tuple[Scores, dict[str, Any]]:
    from earmark.analyse.score import score_collection

    collection = read(folder)
    split = split or default_split(collection)
    scores = score_collection(run, collection, split, progress)
    return scores, {**_data(collection), "split": split or "all"}


def _data(collection: Collection) -> dict[str, str]:
    return {"collection": collection.name, "kind": collection.kind}


# Fitting


def _fit(run: Path, folder: Path, split: str | None, level: float, json_to: Path | None) -> None:
    """Fits the map, writes it into the run, and tells on what."""
    collection = read(folder)
    with console.progress() as progress:
        progress.starting()
        from earmark.analyse.fitting import fit_run

        found = fit_run(run, collection, split, progress)
    found.calibration.write(run)
    notes = [*found.notes, *found.calibration.notes(level)]
    if json_to is not None:
        give_json({"run": run.name, **found.calibration.about(), "notes": notes}, json_to)
    if json_to != STDOUT:
        console.say(f"{run}: {_fitted_on(found.calibration.about())}")
        table = found.calibration.table(level)
        rows = [[f"{x:+.3f}", f"{y:.1f}", f"[{low:.1f}, {high:.1f}]"] for x, y, low, high in table]
        console.show_table(["cosine", "rating that people give", f"{100 * level:g} % interval"], rows)
        _complain(notes)
    exit_with([*collection.problems, *found.problems], "rows, clips or pairs were left out")


def _fitted_on(about: dict[str, Any]) -> str:
    split = f"split {about['split']}" if about["split"] else "every split but evaluation"
    data = f"{about['collection']} ({console.KIND[about['kind']]}), {split}"
    return f"ratings by a map fitted on {data}: {_counts(about)}"


def _counts(about: dict[str, Any]) -> str:
    return f"{_count(about['pairs'], 'pair')}, {_count(about['captions'], 'caption')}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# What came of it


def _as_json(found: Answer) -> dict[str, Any]:
    return {
        "level": found.level,
        "measures": found.measures,
        "notes": found.notes,
        "rows": found.rows(),
        "left_out": [problem._asdict() for problem in found.scores.problems],
    }


def _show(found: Answer, about: dict[str, Any], *, of_sound: bool) -> None:
    """Prints pairs that were named, measures where ratings are known, then what a reader must know."""
    data = f" on {about['collection']} ({console.KIND[about['kind']]})" if "collection" in about else ""
    of = f", split {about['split']}" if "split" in about else f": {about['of']}"
    console.say(f"{about['run']}{data}{of}: {_counts(about)}; {_fitted_on(about['calibration'])}")
    if of_sound:
        _show_rows(found, len(found.expected), with_sounds=False)
    elif "of" in about:
        _show_rows(found, min(len(found.expected), console.SHOWN), with_sounds=True)
    if found.measures is not None:
        _show_measures(found.measures)
    _complain(found.notes)


def _complain(notes: list[str]) -> None:
    for note in notes:
        console.complain(f"note: {note}")


def _show_rows(found: Answer, most: int, *, with_sounds: bool) -> None:
    """Prints the first pairs: words, people's ratings where some are known, and what the run says."""
    scores, shown = found.scores, range(most)
    columns = {"text": [_cut(" ".join(scores.texts[at].split()), 60) for at in shown]}
    if with_sounds:
        sounds = [scores.rows[at].get("path") or scores.rows[at]["clip_id"] for at in shown]
        columns["sound"] = [_cut(each[::-1], 40)[::-1] for each in sounds]  # a path tells most at its end
    if found.measures is not None:
        columns["rated"] = [_rating(scores.ratings[at]) for at in shown]
    columns["cosine"] = [f"{scores.cosines[at]:.3f}" for at in shown]
    columns["expected rating"] = [f"{found.expected[at]:.1f}" for at in shown]
    interval = f"{100 * found.level:g} % interval"
    columns[interval] = [f"[{found.low[at]:.1f}, {found.high[at]:.1f}]" for at in shown]
    console.show_table(list(columns), list(zip(*columns.values(), strict=True)))
    if len(found.expected) > most:
        console.say(f"… and {len(found.expected) - most:,} more; --out FILE.csv writes all")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _rating(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def _show_measures(measured: dict[str, Any]) -> None:
    """Prints the measures against people's ratings."""
    from earmark.measure.evaluate import without_nan

    found = without_nan(measured)
    fitted, here = found["constant_fitted"], found["constant_here"]
    columns = {
        "expected rating": found["expected"],
        "cosine × 100": found["cosine"],
        f"mean fitted on, {fitted['rating']:.1f}": fitted,
        f"mean here, {here['rating']:.1f}": here,
    }
    rows = [
        [name, *(console.number(of[name], digits) if name in of else "" for of in columns.values())]
        for name, digits in (("SRCC", 3), ("LCC", 3), ("KTAU", 3), ("MSE", 4))
    ]
    console.show_table(["measure", *columns], rows, f"Against people's ratings: {_counts(found)} (MSE on 0–1)")
    rows = [
        [name, f"{each['pairs']:,}", f"{100 * each['coverage']:.1f} %", f"{each['width']:.1f}"]
        for name, each in [("all pairs", found), *found["groups"].items()]
    ]
    inside = f"inside the {100 * found['level']:g} % interval"
    console.show_table(["group", "pairs", inside, "its mean width, 0–100"], rows)


def _write_rows(found: Answer, out: Path) -> None:
    """Writes every pair's own columns and what was found of it."""
    from earmark.analyse.score import ADDED
    from earmark.files import write_table

    rows = found.rows()
    columns = dict.fromkeys([*(column for row in found.scores.rows for column in row), *ADDED])
    write_table(out, list(columns), rows)
