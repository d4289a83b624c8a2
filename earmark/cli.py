"""The commands, one a step.

Exit 0: done; 1: done, but something was left out or `[expected]` was missed; 2: refused.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional

import typer

from earmark import console
from earmark.errors import ConfigError, EarmarkError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earmark.data.collection import Collection
    from earmark.learn.measured import Seen

LEFT_OUT = 1
REFUSED = 2
STDOUT = Path("-")

app = typer.Typer(
    name="earmark",
    help="How well does a sound match words? Learns it from captions and from people's ratings, and measures it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
data = typer.Typer(help="Make and check collections: clips, captions and ratings in a folder.", no_args_is_help=True)
app.add_typer(data, name="data")

DataOption = Annotated[Path, typer.Option("--data", help="The collection's folder.", show_default=False)]
SplitOption = Annotated[
    Optional[str],  # noqa: UP045  (typer reads this at run time)
    typer.Option("--split", help="evaluation where there is one, else all clips but *-lists.", show_default=False),
]
JsonOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--json", help="Write JSON to FILE, or without FILE to standard output.", metavar="[FILE]"),
]
SeedOption = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]


# Collections


@data.command("soundscapes")
def data_soundscapes(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    clips: Annotated[int, typer.Option(help="How many clips, 3–6 s each.", min=1)] = 1000,
    seed: SeedOption = 0,
) -> None:
    """Generate a collection whose relevance is known: synthesised events, captions, simulated raters.

    Example: `earmark data soundscapes soundscapes --clips 1000 --seed 0`
    """
    from earmark.data import soundscapes

    with console.progress() as progress:
        found = soundscapes.generate(folder, clips=clips, seed=seed, progress=_stage(progress, "generating clips"))
    _say_collection(found)


@data.command("import")
def data_import(
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILE… | FOLDER", help="A table, published files, or a data set's folder.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    audio: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="ROOT", help="The folder with the sounds, which their paths start from."),
    ] = None,
    path: Annotated[Optional[str], typer.Option(metavar="COL", help="The column with the sounds' paths.")] = None,  # noqa: UP045
    text: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="COL", help="A column with a caption; may be given several times."),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of the files.")] = "utf-8",
    split: Annotated[Optional[str], typer.Option(metavar="COL", help="The column with the splits.")] = None,  # noqa: UP045
    holdout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SHARE", help="Keep this share of the clips apart as `evaluation`."),
    ] = None,
    group: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="COL", help="Clips that are equal here stay together in every split."),
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Make a collection of any captions CSV, of published files, or of a Hugging Face data set's folder.

    A CSV of your own with `--path` and `--text`; AudioCaps', WavCaps', XACLE's, RELATE's and DCASE 2025's files and
    audiofolders (`metadata.csv`, `.jsonl`, `.parquet`) or Parquet shards as they are. Sounds stay where they are, but
    those in Parquet.

    Examples: `earmark data import sounds.csv mine --audio ~/sounds --path file --text description --holdout 0.2`,
    `earmark data import val.csv test.csv audiocaps --audio ~/audiocaps`
    """
    own = {"--path": path, "--split": split, "--group": group}
    if sources[0].is_dir():
        _refuse_options(sources[0], "a folder, whose own files tell these", {**own, "--audio": audio})
        found = _import_folder(sources, folder, text or [], holdout, seed)
    elif path is None and not text:
        _refuse_options(sources[0], "these go with --path and --text", own)
        found = _import_published(sources, folder, audio, encoding=encoding, holdout=holdout, seed=seed)
    else:
        from earmark.data import published, tables

        if published.is_json(sources[0]):
            raise ConfigError(f"{sources[0]}: JSON, whose keys are known. Leave --path and --text out.")
        if len(sources) > 1 or path is None or not text or audio is None:
            raise ConfigError(f"{sources[0]}: a table of your own; expected it alone, with --audio, --path and --text.")
        found = tables.import_table(
            sources[0],
            folder,
            audio=audio,
            path=path,
            texts=text,
            encoding=encoding,
            split=split,
            holdout=holdout,
            group=group,
            seed=seed,
        )
    _say_collection(found)
    _exit_with(found.problems, "rows were left out or need a look")


def _refuse_options(source: Path, why: str, options: dict[str, Any]) -> None:
    """Raises `ConfigError` where one of the options is given."""
    given = [f"{name} {value}" for name, value in options.items() if value is not None]
    if given:
        raise ConfigError(f"{source}: {', '.join(given)}: {why}. Leave {'it' if len(given) == 1 else 'them'} out.")


def _import_folder(sources: list[Path], folder: Path, text: list[str], holdout: float | None, seed: int) -> Collection:
    from earmark.data.audiofolder import import_folder

    if len(sources) > 1 or len(text) > 1:
        raise ConfigError(f"{sources[0]}: a folder; expected it alone, and one --text at most.")
    with console.progress() as progress:
        told = _stage(progress, "reading files")
        return import_folder(sources[0], folder, text="".join(text), holdout=holdout, seed=seed, progress=told)


def _import_published(sources: list[Path], folder: Path, audio: Path | None, **how: Any) -> Collection:
    """The collection; says what the files were taken for, and under which names their sounds were found."""
    from earmark.data.published import import_published

    found = import_published(sources, folder, audio=audio, **how)
    imported = found.about["imported"]
    sounds = ", ".join(f"{count:,} as {pattern}" for pattern, count in imported.get("sounds", {}).items())
    if audio is None:
        sounds = f"no --audio, so the paths of all {len(found.clips):,} clips are empty"
    console.say(f"{imported['layout']}; sounds: {sounds or 'none found'}")
    return found


@data.command("export")
def data_export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A collection.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")],
    form: Annotated[str, typer.Option("--as", metavar="FORM", help="audiofolder or parquet.", show_default=False)],
) -> None:
    """Write a collection as a data set that Hugging Face's `datasets.load_dataset(OUT)` reads, with its card.

    `earmark data import OUT DIR` gives back the same collection. Example: `earmark data export mine hub --as parquet`
    """
    from earmark.data.export import export

    collection = _read(folder)
    with console.progress() as progress:
        done = export(collection, out, form, progress=_stage(progress, "writing clips"))
    counts = ", ".join(f"{split} {count:,}" for split, count in done.rows.items())
    files = "sounds" if form == "audiofolder" else "Parquet files"
    console.say(
        f"{out}: {collection.name} ({console.KIND[collection.kind]}) as {form}: {sum(done.rows.values()):,} clips "
        f"({counts}) in {done.files:,} {files}, {len(collection.captions):,} captions, "
        f"{len(collection.ratings):,} ratings"
    )
    _exit_with([*collection.problems, *done.problems], "rows or clips were left out")


@data.command("clotho")
def data_clotho(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    source: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--from", metavar="FOLDER", help="Fetch nothing: the published files are here, at any depth; some may miss."
        ),
    ] = None,
    without_sounds: Annotated[bool, typer.Option("--without-sounds", help="Fetch the tables alone, a few MB.")] = False,
    mirror: Annotated[
        str, typer.Option(metavar="URL", help="Fetch from here; all files lie directly below it.", show_default=False)
    ] = "",
) -> None:
    """Make a collection of Clotho v2.1 and its graded ratings (GrRel), fetched or from files of the published names.

    What is fetched goes to DIR/published; the same command goes on where it was ended.
    Examples: `earmark data clotho clotho`, `earmark data clotho clotho --from ~/downloads`
    """
    from earmark.data import clotho

    if source is None:
        with console.progress() as progress:
            files = clotho.published(sounds=not without_sounds, mirror=mirror)
            found, report = clotho.from_publishers(folder, files=files, progress=progress)
    elif without_sounds or mirror:
        raise ConfigError("--from fetches nothing; expected it without --mirror and --without-sounds. Leave one out.")
    else:
        found, report = clotho.from_folder(source, folder)
    _say_collection(found)
    console.show_table(
        ["Table 1", "relevance", *(f"{split}: clips / captions" for split in clotho.SPLITS)],
        [row.cells() for row in report.table],
    )
    for part in report.missing:
        console.say(f"not there: {part}")
    if report.differing:
        rated = sum(each.rated for each in report.differing)
        console.say(
            f"{len(report.differing)} captions ({rated} of them rated) differ between Clotho and GrRel; "
            "Clotho's text is kept, GrRel's stands in the column text_grrel of captions.csv"
        )
    _exit_with(report.problems, "files or rows are not as published")


@data.command("proxy")
def data_proxy(
    clotho: Annotated[Path, typer.Argument(metavar="CLOTHO", help="A collection made by `data clotho`, with ratings.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")],
    noise: Annotated[float, typer.Option(help="How far vectors are from their captions; 0 or more.")] = 1.25,
    text_model: Annotated[
        str, typer.Option(metavar="NAME", help="The sentence encoder that captions are embedded by.")
    ] = "all-mpnet-base-v2",
) -> None:
    """Make stand-in vectors for Clotho's sounds from its captions, to see that learning works where there is no audio.

    Captions and ratings are real; every number on it is marked PROXY. Example: `earmark data proxy clotho clotho-proxy`
    """
    from earmark.data import proxy

    proxy.check_wishes(out, noise)
    source = _read(clotho)
    from earmark.model.text_encoders import SentenceEncoder

    encoder = SentenceEncoder(text_model)
    with console.progress() as progress:
        found = proxy.make(
            source,
            out,
            lambda texts: encoder.encode(texts, progress),
            noise=noise,
            model=encoder.name,
            fingerprint=encoder.fingerprint,
        )
    _say_collection(found)
    unrated = [split for split in source.splits if split not in found.splits]
    if unrated:
        console.say(f"left out, since nobody rated anything there: {', '.join(unrated)}")
    _exit_with([*source.problems, *found.problems], "rows or clips were left out")


@data.command("check")
def data_check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A collection.")],
    against: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="OTHER", help="Tell what it shares with this one; with DIR: what its splits share."),
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """List every problem of a collection by file and line; decodes every sound.

    With `--against`: the files, Freesound and YouTube sources, texts and recordings that both have, so that nothing
    leaks from training into evaluation. Exit code 1 where anything is shared.

    Examples: `earmark data check soundscapes`, `earmark data check clotho --against clotho`
    """
    found = _read(folder)
    if against is not None:
        from earmark.data.check import shown
        from earmark.data.overlap import overlap

        other = _read(against)
        itself = found.root.resolve() == other.root.resolve()
        with console.progress() as progress:
            both = overlap(found, None if itself else other, progress)
        if json_to is not None:
            names = {"collection": shown(found.name), "against": shown(other.name)}
            shared = [each.as_json() for each in both.shared]
            _json({**names, "counts": both.counts, "shared": shared}, json_to)
        if json_to != STDOUT:
            for each in (found,) if itself else (found, other):
                _say_collection(each)
            for line in both.lines(console.SHOWN):
                console.say(line)
        console.show_problems(both.problems, "rows or sounds were left out")
        raise typer.Exit(LEFT_OUT if both.shared or both.problems else 0)
    with console.progress() as progress:
        problems = found.check(progress=_stage(progress, "checking sounds"))
    if json_to is not None:
        _json([problem._asdict() for problem in problems], json_to)
        raise typer.Exit(LEFT_OUT if problems else 0)
    _say_collection(found)
    _exit_with(problems, "problems")
    console.say("no problems")


# Learning and measuring


@app.command()
def embed(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A collection.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="yamnet, aisfx, yamnet+aisfx, cnn14, a hub model, or a run's folder.",
            show_default=False,
        ),
    ],
    text: Annotated[
        str, typer.Option(metavar="NAME", help="Embeds the captions; the model itself, else all-mpnet-base-v2.")
    ] = "",
    jobs: Annotated[int, typer.Option(help="Processes; 0 is one a core.", min=0)] = 0,
) -> None:
    """Write the vectors of a collection's clips and captions, for heads that learn in seconds.

    Example: `earmark embed mine --model yamnet`
    """
    collection = _read(folder)
    from earmark.model.embed import embed as embed_collection

    with console.progress() as progress:
        done = embed_collection(collection, model, text=text, jobs=jobs, progress=progress)
    kept = len(collection.clips) - len(done.problems)
    kind = console.KIND[collection.kind]
    console.say(
        f"{collection.name} ({kind}): {kept:,} of {len(collection.clips):,} clips by {model}, "
        f"{len(collection.captions):,} captions by {done.text_model}"
    )
    if done.odd:
        console.complain(f"note: {len(done.odd)} oddities of sounds, {done.odd[0]} (`earmark data check` lists all)")
    _exit_with([*collection.problems, *done.problems], "rows or clips were left out")


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, such as recipes/joint.toml.")],
    folder: DataOption,
    out: Annotated[Path, typer.Option(metavar="RUN", help="A new folder for the run.", show_default=False)],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    sets: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key: train.seed=3, objective.0.weight=0.5."),
    ] = None,
) -> None:
    """Learn a recipe's model from a collection.

    Example: `earmark train recipes/soundscapes.toml --data soundscapes --out runs/first`
    """
    from earmark.learn import processes
    from earmark.learn.recipe import Recipe

    with processes.joined(), processes.one_voice(REFUSED):
        loaded = Recipe.read(recipe, sets or [])
        collection = _read(folder)
        from earmark.data.splits import TRAINED_ON
        from earmark.learn import train as learn

        shown = console.progress() if processes.is_first() else nullcontext()
        with shown as progress:
            report = (lambda line: progress.line(_epoch(line))) if progress else None
            result = learn.train(loaded, collection, out, resume=resume, progress=progress, report=report)
        if not processes.is_first():
            return
    kind = console.KIND[collection.kind]
    kept = f"kept epoch {result.best_epoch}, {result.monitor} {result.best:.4f} on {result.monitor_split}"
    if result.monitor_split == TRAINED_ON:
        kept += " (which the model learned from: not a test result)"
    elif result.decided:
        kept += " (the split that stopped training: not a test result)"
    console.say(
        f"{out}: {result.epochs} epochs on {collection.name} ({kind}); {kept if result.epochs else 'untrained'}"
    )
    _exit_with([*collection.problems, *result.problems], "rows or clips were left out")


def _epoch(line: dict[str, Any]) -> str:
    """An epoch's line of the log, for people."""
    star = "  *" if line["best_epoch"] == line["epoch"] else ""
    return (
        f"epoch {line['epoch']:3d}  train loss {line['train_loss']:.4f}  val loss {line['val_loss']:.4f}  "
        f"val mAP {line['val_mAP']:.4f}  lr {line['lr']:.0e}  {line['seconds']:.1f} s{star}"
    )


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained run.")],
    folder: DataOption,
    split: SplitOption = None,
    json_to: JsonOption = None,
    trec: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Write TREC qrels and runs there."),
    ] = None,
    dcase: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write the ten best clips a caption there, and all scores beside it."),
    ] = None,
) -> None:
    """Measure a run: retrieval in both directions, and its correlation with people's ratings.

    Example: `earmark evaluate runs/first --data soundscapes --json result.json`
    """
    from earmark.learn.measured import evaluate_run
    from earmark.measure import submissions
    from earmark.measure.evaluate import write_trec

    collection = _read(folder)
    split = split or _default_split(collection)
    if dcase is not None:
        submissions.file_names(collection, split)  # refused before the work, not after it
    with console.progress() as progress:
        evaluation, scored, seen = evaluate_run(run, collection, split, progress)
    numbers = evaluation.numbers()
    if trec is not None:
        write_trec(trec, collection, split, scored.scorer, without=scored.without)
    if dcase is not None:
        submissions.write_dcase(dcase, collection, split, scored.scorer, without=scored.without)
        console.complain(f"written: {dcase}, {submissions.scores_path(dcase)}")
    if json_to is not None:
        _json({**numbers, **seen.counts()}, json_to)
    if json_to != STDOUT:
        console.show_evaluation(numbers, _heading(run, collection, split, seen))
    missed = _missed(run, numbers)
    for line in missed or []:
        console.complain(f"[expected] missed: {line}")
    if missed == []:
        console.complain("[expected] reached")
    problems = [*collection.problems, *scored.problems]
    console.show_problems(problems, "rows or clips were left out")
    raise typer.Exit(LEFT_OUT if missed or problems else 0)


def _missed(run: Path, numbers: dict[str, Any]) -> list[str] | None:
    """What of `[expected]` was missed; None where it speaks of another collection or split, or there is none."""
    from earmark.config import read_toml
    from earmark.learn.recipe import read_expected

    path = run / "config.toml"
    expected = read_expected(read_toml(path), f"{path}: expected")
    return expected.missed(numbers) if expected and expected.speaks_of(numbers) else None


def _heading(run: Path, collection: Collection, split: str | None, seen: Seen) -> str:
    """What the numbers below it are numbers of, and what the run has seen of it."""
    notes = [f"{seen.clips:,} clips, {seen.trained_on:,} of them in the run's training data"]
    if seen.stopped_training:
        notes.append("this split also stopped training: not a test result")
    kind = console.KIND[collection.kind]
    return f"{run.name} on {collection.name} ({kind}), split {split or 'all'}: {'; '.join(notes)}."


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN …", help="Two or more; each is set against the first.")
    ],
    folder: DataOption,
    split: SplitOption = None,
    json_to: JsonOption = None,
) -> None:
    """Compare runs pairwise on the same queries and rated pairs, with intervals and corrected p values.

    Example: `earmark compare runs/infonce runs/joint --data soundscapes --split evaluation`
    """
    from earmark.learn.measured import score
    from earmark.learn.measured import seen as seen_of
    from earmark.measure.evaluate import compare as compare_evaluations
    from earmark.measure.evaluate import evaluate as measure
    from earmark.model.dual_encoder import DualEncoder

    if len(runs) < 2 or len(set(runs)) < len(runs):
        raise ConfigError(
            f"compare: {len(runs)} runs, {len(set(runs))} of them different; expected two different ones."
        )
    collection = _read(folder)
    split = split or _default_split(collection)
    with console.progress() as progress:
        scored = {str(run): score(DualEncoder.load(run), collection, split, progress) for run in runs}
    without = frozenset[str]().union(*(each.without for each in scored.values()))  # all runs on the same queries
    problems = list(dict.fromkeys([*collection.problems, *(p for each in scored.values() for p in each.problems)]))
    found = {run: measure(collection, split, each.scorer, without=without) for run, each in scored.items()}
    comparisons = compare_evaluations(found)
    if json_to is not None:
        _json([_comparison(c, runs[0], collection, split) for c in comparisons], json_to)
    if json_to != STDOUT:
        for run in runs:
            console.say(_heading(run, collection, split, seen_of(run, collection, split)))
        console.show_comparisons(comparisons, str(runs[0]))
    _exit_with(problems, "rows or clips were left out")


def _comparison(comparison: Any, first: Path, collection: Collection, split: str | None) -> dict[str, Any]:
    difference = comparison.difference
    return {
        "collection": collection.name,
        "kind": collection.kind,
        "split": split or "all",
        "run": comparison.run,
        "reference": str(first),
        "measure": comparison.measure,
        "value": comparison.value,
        "reference_value": comparison.reference,
        "difference": difference.difference,
        "interval": list(difference.interval),
        "p": difference.p,
        "p_holm": comparison.p_holm,
        "n": difference.n,
    }


@app.command()
def experiment(
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="A TOML file, such as recipes/paper-proxy.toml.")],
    folder: DataOption,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Its runs and tables.", show_default=False)],
    split: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--split",
            help="evaluation where there is one, else validation; monitor: each run's own tenth of development.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Runs at a time; 0 is one a core where heads alone learn, else one.", min=0)
    ] = 0,
) -> None:
    """Train and measure a grid of settings × seeds, and set them beside each other: tables.md, .csv, .json.

    What is done is skipped, so a command that was stopped goes on.

    Example: `earmark experiment recipes/paper-proxy.toml --data proxy --out paper-proxy --split validation`
    """
    with console.progress() as progress:
        progress.starting()
        from earmark.learn import comparison
        from earmark.learn import experiment as experiments
        from earmark.learn.grid import Grid

        collection = _read(folder)
        loaded = Grid.read(grid)
        split = split or ("evaluation" if "evaluation" in collection.splits else "validation")
        progress.line(f"{grid.stem} on {collection.name} ({console.KIND[collection.kind]}), split {split}:")
        results = experiments.experiment(
            loaded,
            collection,
            out,
            split=split,
            jobs=jobs,
            progress=progress,
            report=progress.line,
            working=progress.now,
        )
        found = comparison.compared(results, progress)
    comparison.write_tables(found, out)
    console.show_markdown(comparison.markdown(found))
    console.say(f"{out}: tables.md, tables.csv, tables.json")
    for note in results.notes:
        console.complain(f"note: {note}")
    _exit_with([*collection.problems, *results.problems], "runs, rows or clips were left out")


@app.command()
def doctor() -> None:
    """Tell what this machine has: libraries, precision, models, folders.

    Example: `earmark doctor`
    """
    from earmark.doctor import findings

    rows = findings()
    for row in rows:
        console.say(f"{row.what:26}{row.found}{'' if row.fine else '   <- look here'}")
    raise typer.Exit(0 if all(row.fine for row in rows) else LEFT_OUT)


# What several commands share


def _read(folder: Path) -> Collection:
    from earmark.data.collection import Collection

    return Collection.read(folder)


def _default_split(collection: Collection) -> str | None:
    return "evaluation" if "evaluation" in collection.splits else None


def _stage(progress: console.Stages, what: str) -> Any:
    return lambda done, all_: progress(what, done, all_)


def _say_collection(found: Collection) -> None:
    counts = ", ".join(f"{split} {len(found.gallery(split)):,}" for split in found.splits)
    console.say(
        f"{found.name} ({console.KIND[found.kind]}) in {found.root}: {len(found.clips):,} clips ({counts}), "
        f"{len(found.captions):,} captions, {len(found.ratings):,} ratings"
    )


def _exit_with(problems: Sequence[Problem], what: str) -> None:
    """Lists problems and ends with exit code 1 where there are any."""
    console.show_problems(problems, what)
    if problems:
        raise typer.Exit(LEFT_OUT)


def _json(value: Any, to: Path) -> None:
    from earmark.measure.evaluate import without_nan

    value = without_nan(value)
    console.show_json(value, None if to == STDOUT else to)


def _with_json_target(arguments: Sequence[str]) -> list[str]:
    """The arguments with `-` put after a `--json` that no file follows (typer has no options with optional values)."""
    out: list[str] = []
    for place, argument in enumerate(arguments):
        out.append(argument)
        following = arguments[place + 1] if place + 1 < len(arguments) else "--"
        if argument == "--json" and following.startswith("-") and following != "-":
            out.append("-")
    return out


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    console.complain(f"note: {message}")


def main() -> None:
    """The entry point: errors become one line and exit code 2."""
    warnings.showwarning = _warn
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough ends us quietly
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter still shows the rest
    try:
        app(args=_with_json_target(sys.argv[1:]))  # usage errors end here too, with exit code 2
    except EarmarkError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename or 'earmark'}: {error.strerror or error}. Check the path and the disk.")


def _refuse(message: str) -> NoReturn:
    console.complain(" ".join(message.split()))
    sys.exit(REFUSED)
