"""What the sites of earmark share: pages from the package, errors in one line, a description of the API that loads
nothing from elsewhere, and the guard before all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from earmark.errors import DataError, EarmarkError
from earmark.web.guard import HEADERS, Guard

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHARED = "earmark.web"
"""The package whose `pages/` every site serves, below /web/."""


def new_site(
    title: str,
    pages: Mapping[str, tuple[str, str]],
    *,
    token: str = "",
    names: Iterable[str] = (),
    uploads: Iterable[str] = (),
    cookie: str = "earmark",
) -> FastAPI:
    """An application that serves pages; `pages` is address → (package, file of its `pages/`).

    What every site serves stands below /web/ (style.css, player.js, …); the API's description is at /openapi.json, and
    for people at /api.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, swagger_ui_oauth2_redirect_url=None)
    shared = {f"/web/{name}": (SHARED, name) for name in _page_files(SHARED)}
    for address, (package, name) in {**shared, "/api": (SHARED, "api.html"), **pages}.items():
        app.add_api_route(address, _page(package, name), methods=["GET", "HEAD"], include_in_schema=False)
    app.add_exception_handler(HTTPException, _told)
    app.add_exception_handler(RequestValidationError, _told_invalid)
    app.add_exception_handler(EarmarkError, _told_refused)
    app.add_exception_handler(Exception, _told_broken)
    app.add_middleware(Guard, token=token, names=names, uploads=uploads, cookie=cookie)
    return app


def pages_of(package: str, at: str) -> dict[str, tuple[str, str]]:
    """Every file of a package's `pages/`, at that address."""
    return {f"{at}{name}": (package, name) for name in _page_files(package)}


def _page_files(package: str) -> list[str]:
    return [each.name for each in (files(package) / "pages").iterdir() if "." + each.name.rpartition(".")[2] in TYPES]


def _page(package: str, name: str) -> Callable[[Request], Awaitable[Response]]:
    """A route that serves a file of the package, which browsers ask for again only when it has changed."""
    body = (files(package) / "pages" / name).read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    kind = TYPES["." + name.rpartition(".")[2]]

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return page


# Errors, in one line each


def _answer(status: int, what: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"detail": " ".join(what.split())}, status, headers)


def _told(_: Request, error: Any) -> Response:
    return _answer(error.status_code, str(error.detail), error.headers)


def _told_invalid(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body", "path"))
    return _answer(422, f"{where or 'the request'}: {first['msg']}")


def _told_refused(_: Request, error: Any) -> Response:
    return _answer(422 if isinstance(error, DataError) else 400, str(error))


def _told_broken(_: Request, __: Exception) -> Response:
    """Beyond the guard: it sets the headers itself. The server's own output tells what broke."""
    return _answer(500, "something broke; the server's output tells what.", HEADERS)
