"""What the sites of earmark share: pages from the package, errors in one line, a description of the API that loads
nothing from elsewhere, and the guard before all of it."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from earmark.errors import EarmarkError
from earmark.web.guard import HEADERS, Guard
from earmark.web.ranges import precondition

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHARED = "earmark.web"
"""The package whose `pages/` every site serves, below /web/."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk that holds no more."""


def new_site(
    title: str,
    pages: Mapping[str, tuple[str, str]],
    *,
    token: str = "",
    names: Iterable[str] = (),
    uploads: Iterable[str] = (),
    cookie: str = "earmark",
    within: Sequence[Callable[[ASGIApp], ASGIApp]] = (),
    **guard: Any,
) -> FastAPI:
    """An application that serves pages; `pages` is address → (package, file of its `pages/`).

    What every site serves stands below /web/ (style.css, player.js, …); the API's description is at /openapi.json, and
    for people at /api. `within` are middlewares that see what the guard lets pass; `guard` are more of its arguments.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, swagger_ui_oauth2_redirect_url=None)
    shared = {f"/web/{name}": (SHARED, name) for name in _page_files(SHARED)}
    for address, (package, name) in {**shared, "/api": (SHARED, "api.html"), **pages}.items():
        app.add_api_route(address, _page(package, name), methods=["GET", "HEAD"], include_in_schema=False)
    app.add_exception_handler(HTTPException, _told)
    app.add_exception_handler(RequestValidationError, _told_invalid)
    app.add_exception_handler(EarmarkError, _told_refused)
    app.add_exception_handler(OSError, _told_of_the_system)
    app.add_exception_handler(Exception, _told_broken)
    for each in within:
        app.add_middleware(each)
    app.add_middleware(Guard, token=token, names=names, uploads=uploads, cookie=cookie, **guard)
    return app


def answer_heads(app: FastAPI) -> None:
    """Lets HEAD be asked wherever GET can be: called once all routes are there."""
    gets = [route for route in app.routes if isinstance(route, APIRoute) and route.methods == {"GET"}]
    for route in gets:
        app.add_api_route(
            route.path,
            route.endpoint,
            methods=["HEAD"],
            response_model=route.response_model,
            response_class=route.response_class,
            include_in_schema=False,
        )


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
        if status := precondition(request.headers, tag):
            return Response(status_code=status, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return page


# Errors, in one line each


def _answer(status: int, what: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"detail": " ".join(what.split())}, status, headers)


def _told(request: Request, error: Any) -> Response:
    status, headers = error.status_code, error.headers
    if status == 400 and request.headers.get("content-type", "").startswith("application/json"):
        status = 422  # a body that is no JSON: as every wrong parameter
    if status == 405:
        headers = {"allow": ", ".join(_allowed(request))}
    return _answer(status, str(error.detail), headers)


def _allowed(request: Request) -> list[str]:
    """The methods that a path knows: each stands in a route of its own."""
    path = request.url.path
    routes = [route for route in request.app.routes if isinstance(route, Route) and route.path_regex.match(path)]
    return sorted({method for route in routes for method in route.methods or ()})


def _told_invalid(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body", "path"))
    return _answer(422, f"{where or 'the request'}: {first['msg']}")


def _told_refused(_: Request, error: Any) -> Response:
    return _answer(507 if is_full(error) else 422, str(error))


def is_full(error: BaseException | None) -> bool:
    """Whether a disk that holds no more is the cause."""
    while error is not None and not (isinstance(error, OSError) and error.errno in FULL):
        error = error.__cause__
    return error is not None


def _told_of_the_system(_: Request, error: Any) -> Response:
    if not is_full(error):
        raise error
    return _answer(507, f"{error.strerror}. Make room on the server's disk.")


def _told_broken(_: Request, __: Exception) -> Response:
    """Beyond the guard: it sets the headers itself. The server's own output tells what broke."""
    return _answer(500, "something broke; the server's output tells what.", HEADERS)
