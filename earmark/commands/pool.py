"""`earmark collect pool`: what to ask people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from earmark import console
from earmark.commands.shared import STDOUT, JsonOption, SeedOption, check_json, exit_with, give_json, read
from earmark.errors import ConfigError

if TYPE_CHECKING:
    from earmark.collect.study import Settings
    from earmark.data.collection import Collection
    from earmark.learn.estimates import Scored

STRATA = {"top": "similar", "middle": "middle", "random": "random"}
"""Name in `--strata` → setting of a plan."""


def pool(
    folder: Annotated[Path, typer.Argument(metavar="DATA", help="A collection with sounds.")],
    to: Annotated[Path, typer.Option(metavar="STUDY", help="A new folder for the study.", show_default=False)],
    captions: Annotated[int, typer.Option(help="Captions to ask; 0: all but those of checks, 200 at most.", min=0)] = 0,
    split: Annotated[str, typer.Option(help="Ask of this split alone; else of all.", show_default=False)] = "",
    own: Annotated[int, typer.Option(help="A caption's own clip (TP): 1 or 0.", min=0, max=1)] = 1,
    random: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Random other clips a caption (TN).  [default: 1]", min=0, show_default=False),
    ] = None,
    similar: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Clips whose captions are most like the caption (C15), or that a run scores highest.  [default: 15]",
            min=0,
            show_default=False,
        ),
    ] = None,
    among: Annotated[int, typer.Option(help="Draw these from so many ranks; 0: take the first.", min=0)] = 0,
    run: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="RUN", help="Rank clips by a trained run instead of by captions."),
    ] = None,
    strata: Annotated[
        str,
        typer.Option(
            metavar="top=5,middle=5,random=5",
            help="Of the run's ranks: the highest, those in the middle of the rest, random ones of all the rest.",
            show_default=False,
        ),
    ] = "",
    page: Annotated[int, typer.Option(help="Clips a page, at most.", min=1)] = 5,
    checks: Annotated[
        int, typer.Option(help="Check pages; -1: twice as many as a rater sees, if captions suffice.", min=-1)
    ] = -1,
    own_low: Annotated[
        float, typer.Option(help="In a check the own clip is to be rated so high.", min=0, max=100)
    ] = 50,
    other_high: Annotated[
        float, typer.Option(help="In a check random clips are to be rated no higher.", min=0, max=100)
    ] = 40,
    balance: Annotated[
        float, typer.Option(help="How far a clip's chance may be changed to ask all equally often; 1: not.", min=1)
    ] = 2.0,
    again: Annotated[bool, typer.Option("--again", help="Ask pairs too that ratings.csv holds already.")] = False,
    encoder: Annotated[
        str, typer.Option(metavar="NAME", help="The sentence encoder that captions are alike by.")
    ] = "all-mpnet-base-v2",
    seed: SeedOption = 0,
    sets: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the study: raters_a_page=3, pages_a_rater=20, qualify=2; study.toml lists all.",
        ),
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Choose what to ask people, and write a study: pool.csv, checks.csv, study.toml, consent.md, instructions.md.

    For each caption its own clip, others of like captions, and random ones, each once, in pages of five clips; edit the
    files as you like, then run `earmark collect serve`.

    Examples:

    - `earmark collect pool mine --to study --captions 40`

    - `earmark collect pool mine --to study --run runs/first --strata top=5,middle=5,random=5`
    """
    counts = _counts(strata, run, similar, random)
    check_json(json_to, folder, run)
    with console.progress() as progress:
        progress.starting()
        from earmark.collect.pool import Plan, make_study, summary
        from earmark.files import check_new_folder

        plan = Plan(
            captions,
            split,
            own,
            among=among,
            balance=balance,
            again=again,
            page=page,
            checks=checks,
            own_low=own_low,
            other_high=other_high,
            seed=seed,
            encoder=encoder,
            run=str(run or ""),
            study=_settings(sets or []),
            **counts,
        )
        check_new_folder(to)
        collection = read(folder)
        scores = _scores(run, collection, split or None, progress) if run else None
        study = make_study(collection, to, plan, scores=scores, progress=progress)
    made = summary(study)
    if json_to is not None:
        give_json(made, json_to)
    if json_to != STDOUT:
        _tell(made)
    exit_with([*collection.problems, *study.problems], "rows or clips were left out")


def _counts(strata: str, run: Path | None, similar: int | None, random: int | None) -> dict[str, int]:
    """How many of each stratum."""
    if not strata:
        return {"similar": 15 if similar is None else similar, "random": 1 if random is None else random}
    if run is None:
        raise ConfigError(f"--strata {strata}: strata of which run? Name it: --run RUN.")
    if similar is not None or random is not None:
        raise ConfigError(f"--strata {strata}: it says how many are asked. Leave --similar and --random out.")
    found: dict[str, int] = {}
    for part in strata.split(","):
        name, _, count = (each.strip() for each in part.partition("="))
        if name not in STRATA or not (count.isascii() and count.isdigit() and len(count) < 6):
            raise ConfigError(f"--strata {strata}: {part!r}; expected top, middle or random with a count: top=5.")
        if STRATA[name] in found:
            raise ConfigError(f"--strata {strata}: {name} twice; expected each once.")
        found[STRATA[name]] = int(count)
    return dict.fromkeys(STRATA.values(), 0) | found


def _settings(assignments: list[str]) -> Settings:
    """The study's settings, those of `--set` in place of the defaults."""
    from earmark.collect.study import settings_of
    from earmark.config import override

    table: dict[str, Any] = {}
    for assignment in assignments:
        override(table, assignment.strip().removeprefix("study."))
    return settings_of(table, "--set study")


def _scores(run: Path, collection: Collection, split: str | None, progress: console.Stages) -> Scored:
    """The run's scores of the collection."""
    from earmark.learn.measured import score
    from earmark.model.dual_encoder import DualEncoder

    return score(DualEncoder.load(run), collection, split, progress)


def _tell(made: Mapping[str, Any]) -> None:
    """Prints what was made, and what comes next."""
    kind, count = console.KIND[made["kind"]], console.count
    strata = ", ".join(f"{name} {count:,}" for name, count in made["strata"].items())
    console.say(
        f"{made['study']}: {count(made['captions'], 'caption')} of {made['collection']} ({kind}), "
        f"{count(made['pairs'], 'pair')} ({strata}) on {count(made['pages'], 'page')}; {count(made['clips'], 'clip')}, "
        f"each {count(made['most_uses'], 'time')} at most"
    )
    console.say(
        f"{count(made['checks'], 'check page')}, {count(made['qualification'], 'qualification page')}, with known "
        "answers"
    )
    console.say(
        f"a rater is asked for about {count(round(made['minutes_a_rater']), 'minute')} (each clip heard once, 5 s an "
        f"answer); {count(made['rater_pages'], 'page')} {'is' if made['rater_pages'] == 1 else 'are'} to be rated: "
        f"{count(made['raters'], 'rater')} or more"
    )
    if made["short_lists"]:
        console.complain(
            f"note: captions with fewer pairs than wanted (few clips, or rated pairs): {made['short_lists']:,}"
        )
    console.say(f"Look through its files, then: {made['next']}")
