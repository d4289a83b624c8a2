"""`earmark score`: the rating that people would give a sound for words, with an interval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import STDOUT, JsonOption, default_split, exit_with, give_json, read
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.analyse.calibrate import Calibration
    from earmark.analyse.score import Answer, Scores
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
            help="Of --data: evaluation where there is one, else all. Of --fit: all but evaluation.",
            show_default=False,
        ),
    ] = None,
    pairs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="CSV", help="path,text; with --data caption_id,clip_id or text,clip_id."),
    ] = None,
    level: Annotated[float, typer.Option(help="The share of ratings inside the interval, 0.5–0.99.")] = 0.9,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.csv", help="Write every pair with its cosine, rating and interval."),
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Tell the rating, 0–100, that people would give a sound for words, with an interval: fitted once, kept in RUN.

    `--fit` learns it from rated captions that did not train the run. Pairs with ratings are measured against them.

    Examples: `earmark score runs/first --fit soundscapes --split validation`, `earmark score runs/first rain.wav
    "rain on a roof" "a dog barks"`, `earmark score runs/first --data soundscapes`, `earmark score runs/first --pairs
    sounds.csv --out rated.csv`
    """
    _check_wishes(fit_on, file, words, folder, split, pairs, out)
    from earmark.analyse.calibrate import Calibration, check_level

    check_level(level)
    if fit_on is not None:
        _fit(run, fit_on, split, json_to)
        return
    calibration = Calibration.read(run)
    collection = None if folder is None else read(folder)
    if collection is not None and pairs is None:
        split = split or default_split(collection)
    with console.progress() as progress:
        progress.starting()
        from earmark.analyse import score as scoring

        if file is not None:
            scores = scoring.score_file(run, file, words or [], progress)
        elif pairs is not None:
            scores = scoring.score_table(run, pairs, collection, progress)
        else:
            assert collection is not None
            scores = scoring.score_collection(run, collection, split, progress)
        found = scoring.answer(calibration, scores, level)
    about = _about(run, calibration, scores, collection, pairs or file, split)
    if out is not None:
        _write_rows(found, out)
    if json_to is not None:
        give_json(
            {
                **about,
                "level": level,
                "measures": found.measures,
                "notes": found.notes,
                "rows": found.rows(),
                "left_out": [problem._asdict() for problem in scores.problems],
            },
            json_to,
        )
    if json_to != STDOUT:
        _show(found, about, all_rows=file is not None)
        if out is not None:
            console.say(f"{out}: {len(scores.rows):,} rows")
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
    given = [name for name, value in (("--fit", fit_on), ("FILE", file), ("--data", folder or pairs)) if value]
    if len(given) != 1:
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
    if wrong:
        raise ConfigError(f"{wrong}.")


def _fit(run: Path, folder: Path, split: str | None, json_to: Path | None) -> None:
    """Fits the map, writes it into the run, and tells on what."""
    collection = read(folder)
    with console.progress() as progress:
        progress.starting()
        from earmark.analyse.score import fit_run

        found = fit_run(run, collection, split, progress)
    found.calibration.write(run)
    notes = [*found.notes, *found.calibration.notes(0.9)]
    if json_to is not None:
        give_json({"run": run.name, **found.calibration.about(), "notes": notes}, json_to)
    if json_to != STDOUT:
        console.say(f"{run}: {_fitted_on(found.calibration.about())}")
        rows = [[f"{x:+.3f}", f"{y:.1f}", f"[{low:.1f}, {high:.1f}]"] for x, y, low, high in found.calibration.table()]
        console.show_table(["cosine", "rating that people give", "90 % interval"], rows)
        for note in notes:
            console.say(f"note: {note}")
    exit_with([*collection.problems, *found.problems], "rows, clips or pairs were left out")


def _about(
    run: Path,
    calibration: Calibration,
    scores: Scores,
    collection: Collection | None,
    asked: Path | None,
    split: str | None,
) -> dict[str, Any]:
    """What the numbers are numbers of."""
    data = {"collection": collection.name, "kind": collection.kind} if collection else {}
    if asked is None:
        data["split"] = split or "all"
    else:
        data["of"] = str(asked)
    counts = {"pairs": len(scores.rows), "captions": len(set(scores.captions))}
    return {"run": run.name, **data, **counts, "calibration": calibration.about()}


def _fitted_on(about: dict[str, Any]) -> str:
    return (
        f"ratings by a map fitted on {about['collection']} ({console.KIND[about['kind']]}), split "
        f"{about['split'] or 'all but evaluation'}: {about['pairs']:,} pairs, {about['captions']:,} captions"
    )


def _show(found: Answer, about: dict[str, Any], *, all_rows: bool) -> None:
    """Prints the rows where nothing measures them, else the measures; then what a reader must know."""
    data = f" on {about['collection']} ({console.KIND[about['kind']]})" if "collection" in about else ""
    of = f", split {about['split']}" if "split" in about else f": {about['of']}"
    console.say(
        f"{about['run']}{data}{of}: {about['pairs']:,} pairs, {about['captions']:,} texts; "
        f"{_fitted_on(about['calibration'])}."
    )
    if found.measures is None:
        shown = len(found.expected) if all_rows else console.SHOWN
        columns = ["text", "cosine", "expected rating", f"{100 * found.level:g} % interval"]
        console.show_table(columns, [_row(found, place) for place in range(min(shown, len(found.expected)))])
        if len(found.expected) > shown:
            console.say(f"… and {len(found.expected) - shown:,} more; --out FILE.csv writes all")
    else:
        _show_measures(found.measures, found.level)
    for note in found.notes:  # beside the numbers, wherever these go
        console.say(f"note: {note}")


def _row(found: Answer, place: int) -> list[str]:
    words = " ".join(found.scores.texts[place].split())
    words = words if len(words) <= 60 else f"{words[:59]}…"
    interval = f"[{found.low[place]:.1f}, {found.high[place]:.1f}]"
    return [words, f"{found.scores.cosines[place]:.3f}", f"{found.expected[place]:.1f}", interval]


def _show_measures(measured: dict[str, Any], level: float) -> None:
    """Prints the measures against people's ratings."""
    from earmark.measure.evaluate import without_nan

    found = without_nan(measured)
    fitted, here = found["constant_fitted"], found["constant_here"]
    columns = {
        "expected rating": found["expected"],
        "cosine × 100": found["cosine"],
        f"always {fitted['rating']:.1f}, the mean fitted on": fitted,
        f"always {here['rating']:.1f}, the mean here": here,
    }
    rows = [
        [name, *(console.number(of[name], digits) if name in of else "" for of in columns.values())]
        for name, digits in (("SRCC", 3), ("LCC", 3), ("KTAU", 3), ("MSE", 4))
    ]
    title = f"Against people's ratings: {found['pairs']:,} pairs, {found['captions']:,} texts (MSE on 0–1)"
    console.show_table(["measure", *columns], rows, title)
    groups = {"all": found, **found["groups"]}
    rows = [
        [name, f"{each['pairs']:,}", f"{100 * each['coverage']:.1f} %", f"{each['width']:.1f}"]
        for name, each in groups.items()
    ]
    console.show_table(["pairs", "n", f"inside the {100 * level:g} % interval", "its mean width, 0–100"], rows)


def _write_rows(found: Answer, out: Path) -> None:
    """Writes every pair's own columns and what was found of it."""
    from earmark.analyse.score import ADDED
    from earmark.files import write_table

    rows = found.rows()
    columns = dict.fromkeys([*(column for row in found.scores.rows for column in row), *ADDED])
    write_table(out, list(columns), rows)
