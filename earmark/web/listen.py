"""What serves an application: the socket, the server below it, and the address that people open."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from earmark.errors import ConfigError, install

if TYPE_CHECKING:
    from starlette.types import ASGIApp

QUIET = {"log_level": "warning", "access_log": False, "server_header": False}
TOKEN = re.compile("[A-Za-z0-9_-]{8,}")
"""What nobody guesses at once, and no address needs to escape."""
ENDING_S = 1
"""Seconds that answers under way have when the server ends: a browser that has paused a sound would never let it."""


def needs_uvicorn() -> Any:
    """The module uvicorn. Raises `ConfigError` where what serves pages is not installed."""
    try:
        import fastapi  # noqa: F401
        import sqlalchemy  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ConfigError(f"serving needs the extra `serve` ({install('serve')}): {error}.") from error
    return uvicorn


def token_for(token: str | None, host: str, option: str = "--token") -> str:
    """What visitors must bring; "" for nothing. Raises `ConfigError` where it could be guessed."""
    from earmark.web.guard import is_loopback, new_token

    if token is None:
        return "" if is_loopback(host) else new_token()
    if not TOKEN.fullmatch(token):
        raise ConfigError(f"{option} {token}: expected 8 letters, digits, - or _ at least. Leave it out for a new one.")
    return token


def listening(host: str, port: int) -> socket.socket:
    """The socket. Raises `ConfigError` where it cannot be had."""
    try:
        found = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=256
        )
        # else each answer on a connection that is kept waits 40 ms for the one before to be acknowledged
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = "port" if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        raise ConfigError(
            f"--host {host} --port {port}: cannot listen there ({reason}). Name another {what}."
        ) from error


def address(host: str, port: int, token: str = "") -> str:
    """Where people find a server that listens there."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


def run(app: ASGIApp, on: socket.socket) -> None:
    """Answers until it is told to end (Ctrl-C, SIGTERM)."""
    uvicorn = needs_uvicorn()
    config = uvicorn.Config(app, timeout_graceful_shutdown=ENDING_S, **QUIET)
    logging.getLogger("uvicorn.error").addFilter(_worth_telling)
    # uvicorn ends, and then raises the signal once more: what comes after this call is to be done all the same
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with contextlib.suppress(KeyboardInterrupt):  # how a server ends
            uvicorn.Server(config).run([on])
    finally:
        signal.signal(signal.SIGTERM, before)


def _worth_telling(record: logging.LogRecord) -> bool:
    """Whether what uvicorn says is a fault: not answers that were broken off, by us at the end or by a shrunk file."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    return not record.getMessage().startswith(("Cancel ", "ASGI callable returned without completing"))


@contextlib.contextmanager
def beside(app: ASGIApp) -> Iterator[str]:
    """The address at which a thread of this process answers within the block; this machine alone reaches it."""
    uvicorn = needs_uvicorn()
    server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=ENDING_S, **QUIET))
    with listening("127.0.0.1", 0) as on:
        thread = threading.Thread(target=server.run, args=([on],), name="server")
        thread.start()
        try:
            yield address("127.0.0.1", on.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
