"""`earmark serve`: the search server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from earmark import console
from earmark.web import listen


def serve(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="An index that `earmark index` made.")],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for all of the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8377,
    token: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="What visitors must bring; made up where --host is not this machine alone.", show_default=False
        ),
    ] = None,
    ratings: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Where ratings are kept.  [default: INDEX/ratings]", show_default=False),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Search an index in the browser, and by REST: a page for people at the address it prints, the API at /api.

    Examples:

    - `earmark serve index`

    - `earmark serve index --host 0.0.0.0`
    """
    with console.progress() as progress:
        progress.starting()
        listen.needs_uvicorn()
        import torch

        from earmark.search.app import create_app
        from earmark.search.engine import Engine

        engine, token = Engine(index), listen.token_for(token, host)
        listening = listen.listening(host, port)
        port = listening.getsockname()[1]
        app = create_app(engine, ratings=ratings, token=token, names=[host], cookie=f"earmark-{port}")
        torch.set_num_threads(1)  # many are answered at once, a core each; more threads would wait for each other
        engine.vector_of_words("a sound")  # the model is loaded before the first visitor waits for it
    address = listen.address(host, port, token)
    console.say(f"earmark serves {index} at {address}")
    console.complain("Ctrl-C ends it.")
    if open_page:
        import webbrowser

        webbrowser.open(address)
    if ratings is None and not os.access(index, os.W_OK):
        console.complain(f"{index}: cannot be written, so no rating can be kept there. Name --ratings.")
    listen.run(app, listening)
