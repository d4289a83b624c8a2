"""`earmark data …`: collections are made, brought in and out, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import (
    LEFT_OUT,
    STDOUT,
    JsonOption,
    SeedOption,
    check_json,
    exit_with,
    give_json,
    read,
    say_collection,
    stage,
)
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.data.collection import Collection

data = typer.Typer(help="Make and check collections: clips, captions and ratings in a folder.", no_args_is_help=True)


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
        found = soundscapes.generate(folder, clips=clips, seed=seed, progress=stage(progress, "generating clips"))
    say_collection(found)


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

    Examples:

    - `earmark data import sounds.csv mine --audio ~/sounds --path file --text description --holdout 0.2`

    - `earmark data import val.csv test.csv audiocaps --audio ~/audiocaps`
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
    say_collection(found)
    exit_with(found.problems, "rows were left out or need a look")


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
        told = stage(progress, "reading files")
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

    collection = read(folder)
    with console.progress() as progress:
        done = export(collection, out, form, progress=stage(progress, "writing clips"))
    counts = ", ".join(f"{split} {count:,}" for split, count in done.rows.items())
    file = "sound" if form == "audiofolder" else "Parquet file"
    console.say(
        f"{out}: {collection.name} ({console.KIND[collection.kind]}) as {form}: "
        f"{console.count(sum(done.rows.values()), 'clip')} ({counts}) in {console.count(done.files, file)}, "
        f"{console.count(len(collection.captions), 'caption')}, {console.count(len(collection.ratings), 'rating')}"
    )
    exit_with([*collection.problems, *done.problems], "rows or clips were left out")


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

    Examples:

    - `earmark data clotho clotho`

    - `earmark data clotho clotho --from ~/downloads`
    """
    from earmark.data import clotho
    from earmark.data.splits import SPLITS

    if source is None:
        with console.progress() as progress:
            files = clotho.published(sounds=not without_sounds, mirror=mirror)
            found, report = clotho.from_publishers(folder, files=files, progress=progress)
    elif without_sounds or mirror:
        raise ConfigError("--from fetches nothing; expected it without --mirror and --without-sounds. Leave one out.")
    else:
        found, report = clotho.from_folder(source, folder)
    say_collection(found)
    console.show_table(
        ["Table 1", "relevance", *(f"{split}: clips / captions" for split in SPLITS)],
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
    exit_with(report.problems, "files or rows are not as published")


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
    source = read(clotho)
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
    say_collection(found)
    unrated = [split for split in source.splits if split not in found.splits]
    if unrated:
        console.say(f"left out, since nobody rated anything there: {', '.join(unrated)}")
    exit_with([*source.problems, *found.problems], "rows or clips were left out")


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

    Examples:

    - `earmark data check soundscapes`

    - `earmark data check clotho --against clotho`
    """
    check_json(json_to, folder, against)
    found = read(folder)
    if against is not None:
        from earmark.data.check import shown
        from earmark.data.overlap import overlap

        other = read(against)
        itself = found.root.resolve() == other.root.resolve()
        with console.progress() as progress:
            both = overlap(found, None if itself else other, progress)
        if json_to is not None:
            names = {"collection": shown(found.name), "against": shown(other.name)}
            shared = [each.as_json() for each in both.shared]
            give_json({**names, "counts": both.counts, "shared": shared}, json_to)
        if json_to != STDOUT:
            for each in (found,) if itself else (found, other):
                say_collection(each)
            for line in both.lines(console.SHOWN):
                console.say(line)
        console.show_problems(both.problems, "rows or sounds were left out")
        raise typer.Exit(LEFT_OUT if both.shared or both.problems else 0)
    with console.progress() as progress:
        problems = found.check(progress=stage(progress, "checking sounds"))
    if json_to is not None:
        give_json([problem._asdict() for problem in problems], json_to)
        raise typer.Exit(LEFT_OUT if problems else 0)
    say_collection(found)
    exit_with(problems, "problems")
    console.say("no problems")
