"""`earmark collect`: a study from its pairs to its ratings."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from earmark import console
from earmark.commands.pool import pool
from earmark.commands.ratings import agreement, export
from earmark.commands.shared import SeedOption
from earmark.errors import ConfigError, DataError
from earmark.web import listen

if TYPE_CHECKING:
    from earmark.collect.store import Store
    from earmark.collect.study import Study

collect = typer.Typer(help="Ask people: choose pairs, run the study, export the ratings.", no_args_is_help=True)
collect.command()(pool)

StudyArgument = Annotated[Path, typer.Argument(metavar="STUDY", help="A study that `earmark collect pool` made.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        envvar="EARMARK_STORE",
        help="Where answers are kept: a file, or postgresql://USER@HOST/DB.  [default: STUDY/study.db]",
        show_default=False,
    ),
]


def _opened(folder: Path, store: str, *, sounds: bool = True) -> tuple[Study, Store]:
    """The study, its problems told, and its store; without `sounds` it is not to be served."""
    listen.needs_uvicorn()
    from earmark.collect.store import Store, store_of
    from earmark.collect.study import Study

    study = Study.read(folder, sounds=sounds)
    console.show_problems(study.problems, "problems in the study")
    return study, Store.open(store or store_of(folder))


@collect.command()
def serve(
    study: StudyArgument,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for all of the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8378,
    name: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="HOST",
            help="A name under which listeners reach it, as behind a web server that passes requests on.",
        ),
    ] = None,
    owner_token: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="TOKEN",
            envvar="EARMARK_OWNER_TOKEN",
            help="What the owner's page asks for; kept in STUDY/owner.token, made up at first.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = "",
) -> None:
    """Run the study: listeners take part at the address it prints, its owner follows at another.

    Examples:

    - `earmark collect serve study`

    - `earmark collect serve study --host 0.0.0.0 --store postgresql://earmark@localhost/study`
    """
    for each in name or []:
        if not re.fullmatch(r"[A-Za-z0-9.-]+", each):
            raise ConfigError(f"--name {each}: expected a host's name alone, as study.example.org.")
    with contextlib.ExitStack() as opened:
        with console.progress() as progress:
            progress.starting()
            found, kept = _opened(study, store)
            opened.callback(kept.close)
            from earmark.collect.app import create_app
            from earmark.collect.loudness import playable
            from earmark.web.guard import is_loopback

            token = _owner_token(study, owner_token)
            found, silent = playable(found, progress)
            listening = opened.enter_context(listen.listening(host, port))
            port = listening.getsockname()[1]
            app = create_app(
                found,
                kept,
                owner_token=token,
                names=[host, *(name or [])],
                cookie=found.cookie,
                public=not is_loopback(host),
            )
        console.show_problems(silent, "sounds that cannot be played")
        at = listen.address(host, port)
        invited = " (with an invitation: earmark collect invite)" if found.settings.entry == "invited" else ""
        console.say(f"listeners: {at}{invited}")
        console.say(f"owner: {at}owner?token={token}")
        console.complain("Ctrl-C ends it.")
        listen.run(app, listening)


def _owner_token(folder: Path, given: str | None) -> str:
    """The owner's token: the given one, or the study's own, which stays the same from one start to the next."""
    from earmark.files import read_text, write_text
    from earmark.web.guard import new_token

    if given is not None:
        return listen.token_for(given, "", "--owner-token")
    place = folder / "owner.token"
    if not place.exists():
        write_text(place, new_token() + "\n", mode=0o600)
    token = read_text(place).strip()
    if not listen.TOKEN.fullmatch(token):
        raise DataError(f"{place}: holds no token. Delete it for a new one.")
    return token


@collect.command()
def invite(
    study: StudyArgument,
    count: Annotated[int, typer.Argument(metavar="N", help="How many.", min=1, max=100_000)] = 1,
    label: Annotated[str, typer.Option(help="What the invitations are called in the owner's tables.")] = "",
    address: Annotated[str, typer.Option(help="Where the study is served.")] = "http://127.0.0.1:8378/",
    store: StoreOption = "",
) -> None:
    """Make invitations: an address each, for one listener each. They are shown once, and kept as digests.

    Examples:

    - `earmark collect invite study 20 --address https://study.example.org/ > invitations.txt`
    """
    from urllib.parse import urlencode, urlsplit

    where = urlsplit(address)
    more = where.path.strip("/") or where.query or where.fragment
    if where.scheme not in ("http", "https") or not where.hostname or more:
        raise ConfigError(
            f"--address {address}: expected the host where the study is served, as https://study.example.org/."
        )
    found, kept = _opened(study, store)
    from earmark.collect.flow import Flow

    if found.settings.entry == "open":
        console.complain('note: the study is open to all: set entry = "invited" in study.toml to ask for invitations.')
    with contextlib.closing(kept):
        for token in Flow(found, kept).invite(count, label):
            console.say(f"{address.rstrip('/')}/?{urlencode({'invite': token})}")


@collect.command()
def forget(
    study: StudyArgument,
    rater: Annotated[str, typer.Argument(metavar="RATER", help="A rater's id, or the id that a crowd platform gave.")],
    keep_ratings: Annotated[
        bool, typer.Option("--keep-ratings", help="Forget who it was, and keep the ratings without a name.")
    ] = False,
    store: StoreOption = "",
) -> None:
    """Delete a rater: the platform's ids, the way back in, and the answers.

    Examples:

    - `earmark collect forget study 5f3c9a0b1d2e4f60`

    - `earmark collect forget study 60ab12cd34ef56 --keep-ratings`
    """
    found, kept = _opened(study, store, sounds=False)  # whose sounds may be long gone
    from earmark.collect.flow import Flow

    with contextlib.closing(kept):
        console.say(str(Flow(found, kept).forget(rater, keep_ratings=keep_ratings)))


@collect.command()
def rehearse(
    study: StudyArgument,
    raters: Annotated[int, typer.Option(help="Simulated listeners, all at once.", min=1, max=200)] = 12,
    seed: SeedOption = 0,
) -> None:
    """Try a study before people are asked: simulated listeners answer it over its HTTP interface.

    Their answers are GENERATED and go to STUDY/rehearsal.db, beside what people answer.

    Examples:

    - `earmark collect rehearse study`

    - `earmark collect export study --store study/rehearsal.db --to rehearsed`
    """
    listen.needs_uvicorn()
    with console.progress() as progress:
        progress.starting()
        from earmark.collect.loudness import playable
        from earmark.collect.rehearse import REHEARSAL, serve_and_rehearse
        from earmark.collect.study import Study

        found = Study.read(study)
        if (study / REHEARSAL).exists():
            raise DataError(f"{study / REHEARSAL}: is there already. Delete it to rehearse again.")
        found, _ = playable(found, progress)  # what cannot be played is in its problems then
        done = serve_and_rehearse(found, raters, seed, lambda done, all_: progress("listening", done, all_))
    console.show_problems(found.problems, "problems in the study")
    console.say(
        f"{raters} simulated listeners: {done.raters} came to the end, {done.failed} failed the qualification; "
        f"{done.pages:,} pages, {done.ratings:,} ratings (GENERATED) in {study / REHEARSAL}"
    )
    if done.stored_s:
        import numpy as np

        median, most = 1000 * np.median(done.stored_s), 1000 * np.percentile(done.stored_s, 95)
        console.say(f"an answer was stored in {median:.0f} ms (median), 95 % within {most:.0f} ms")
    console.complain(f"What they say: earmark collect export {study} --store {study / REHEARSAL} --to OUT")


collect.command()(export)
collect.command()(agreement)
