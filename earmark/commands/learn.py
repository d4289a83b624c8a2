"""`earmark embed`, `train`, `evaluate`, `compare`, `experiment`: learning, and what it came to."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import (
    LEFT_OUT,
    REFUSED,
    STDOUT,
    DataOption,
    JsonOption,
    SplitOption,
    default_split,
    exit_with,
    give_json,
    read,
)
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.data.collection import Collection
    from earmark.learn.measured import Seen


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
    collection = read(folder)
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
    exit_with([*collection.problems, *done.problems], "rows or clips were left out")


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
        collection = read(folder)
        from earmark.data.splits import TRAINED_ON
        from earmark.learn import train as learn

        shown = console.progress() if processes.is_first() else nullcontext()
        with shown as progress:
            report = (lambda line: progress.line(_epoch(line))) if progress else None
            result = learn.train(loaded, collection, out, resume=resume, progress=progress, report=report)
        if not processes.is_first():
            return
    if any("ratings" in each.relevance for each in loaded.objectives):
        _say_anchors(collection, None)
    if result.unlearned and result.epochs:
        why = (
            'an objective with loss = "listnet" would: recipes/joint.toml, or library-rated.toml for one\'s own sounds.'
        )
        if any(each.of_ratings and each.weight > 0 for each in loaded.objectives):
            why = "a list of one clip, or of zeros alone, orders nothing."
        console.complain(f"note: nothing is learned from {console.count(result.unlearned, 'rated pair')}: {why}")
    kind = console.KIND[collection.kind]
    kept = f"kept epoch {result.best_epoch}, {result.monitor} {result.best:.4f} on {result.monitor_split}"
    if result.monitor_split == TRAINED_ON:
        kept += " (which the model learned from: not a test result)"
    elif result.decided:
        kept += " (the split that stopped training: not a test result)"
    epochs = console.count(result.epochs, "epoch")
    console.say(f"{out}: {epochs} on {collection.name} ({kind}); {kept if result.epochs else 'untrained'}")
    exit_with([*collection.problems, *result.problems], "rows or clips were left out")


def _say_anchors(collection: Collection, split: str | None) -> None:
    """Says how many of the split's ratings are a study's checks, which count nowhere; None is every split."""
    from earmark.relevance import without_anchors

    for note in without_anchors(collection.rated(split, anchors=True))[1]:
        console.complain(f"note: {note}")


def _epoch(line: dict[str, Any]) -> str:
    """An epoch's line of the log, for people."""
    star = "  *" if line["best_epoch"] == line["epoch"] else ""
    return (
        f"epoch {line['epoch']:3d}  train loss {line['train_loss']:.4f}  val loss {line['val_loss']:.4f}  "
        f"val mAP {line['val_mAP']:.4f}  lr {line['lr']:.0e}  {line['seconds']:.1f} s{star}"
    )


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

    collection = read(folder)
    split = split or default_split(collection)
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
        give_json({**numbers, **seen.counts()}, json_to)
    if json_to != STDOUT:
        console.show_evaluation(numbers, _heading(run, collection, split, seen))
    _say_anchors(collection, split)
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
    collection = read(folder)
    split = split or default_split(collection)
    with console.progress() as progress:
        scored = {str(run): score(DualEncoder.load(run), collection, split, progress) for run in runs}
    without = frozenset[str]().union(*(each.without for each in scored.values()))  # all runs on the same queries
    problems = list(dict.fromkeys([*collection.problems, *(p for each in scored.values() for p in each.problems)]))
    found = {run: measure(collection, split, each.scorer, without=without) for run, each in scored.items()}
    comparisons = compare_evaluations(found)
    if json_to is not None:
        give_json([_comparison(c, runs[0], collection, split) for c in comparisons], json_to)
    if json_to != STDOUT:
        for run in runs:
            console.say(_heading(run, collection, split, seen_of(run, collection, split)))
        console.show_comparisons(comparisons, str(runs[0]))
    _say_anchors(collection, split)
    exit_with(problems, "rows or clips were left out")


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

        collection = read(folder)
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
    _say_anchors(collection, None)
    exit_with([*collection.problems, *results.problems], "runs, rows or clips were left out")
