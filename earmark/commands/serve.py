"""`earmark serve`: the search server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from earmark import console
from earmark.errors import ConfigError

QUIET = {"log_level": "warning", "access_log": False, "server_header": False}
ENDING_S = 1
"""Seconds that answers under way have when the server ends: a browser that has paused a sound would never let it."""


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
        uvicorn = _needs_uvicorn()
        import torch

        from earmark.search.app import create_app
        from earmark.search.engine import Engine

        engine, token = Engine(index), _token(token, host)
        listening = _listening(host, port)
        port = listening.getsockname()[1]
        app = create_app(engine, ratings=ratings, token=token, names=[host], cookie=f"earmark-{port}")
        torch.set_num_threads(1)  # many are answered at once, a core each; more threads would wait for each other
        engine.vector_of_words("a sound")  # the model is loaded before the first visitor waits for it
    address = _address(host, port, token)
    console.say(f"earmark serves {index} at {address}")
    console.complain("Ctrl-C ends it.")
    if open_page:
        import webbrowser

        webbrowser.open(address)
    if ratings is None and not os.access(index, os.W_OK):
        console.complain(f"{index}: cannot be written, so no rating can be kept there. Name --ratings.")
    config = uvicorn.Config(app, timeout_graceful_shutdown=ENDING_S, **QUIET)
    logging.getLogger("uvicorn.error").addFilter(_worth_telling)
    with contextlib.suppress(KeyboardInterrupt):  # how a server ends
        uvicorn.Server(config).run([listening])


def _needs_uvicorn() -> Any:
    """The module uvicorn. Raises `ConfigError` where what serves pages is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ConfigError(f"serving needs the extra `serve` (pip install 'earmark[serve]'): {error}.") from error
    return uvicorn


def _token(token: str | None, host: str) -> str:
    """What visitors must bring; "" for nothing. Raises `ConfigError` where it could be guessed."""
    from earmark.web.guard import is_loopback, new_token

    if token is None:
        return "" if is_loopback(host) else new_token()
    if not re.fullmatch("[A-Za-z0-9_-]{8,}", token):
        raise ConfigError(f"--token {token}: expected 8 letters, digits, - or _ at least. Leave it out for a new one.")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """The socket. Raises `ConfigError` where it cannot be had."""
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=256
        )
        # else each answer on a connection that is kept waits 40 ms for the one before to be acknowledged
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"--host {host} --port {port}: cannot listen there ({reason}). Name another port.") from error


def _worth_telling(record: logging.LogRecord) -> bool:
    """Whether what uvicorn says is a fault: not answers that were broken off, by us at the end or by a shrunk file."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    return not record.getMessage().startswith(("Cancel ", "ASGI callable returned without completing"))


def _address(host: str, port: int, token: str) -> str:
    shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
