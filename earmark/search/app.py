"""The search server: REST below /api, and one page for people."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Query
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from earmark.errors import DataError
from earmark.files import table_text
from earmark.search.engine import Engine
from earmark.search.library import Indexed, Library, held, scratch
from earmark.search.query import Hit
from earmark.search.rated import NotKeptError, Rated
from earmark.search.replies import (
    About,
    Asked,
    Facts,
    FileId,
    Found,
    GivenRating,
    KeptRating,
    Result,
    Uploaded,
    Wave,
    Words,
    facts,
)
from earmark.search.store import RATINGS, AwayError
from earmark.web import peaks, sounds, uploads
from earmark.web.guard import cookie_of
from earmark.web.ranges import FileBytes, disposition
from earmark.web.site import answer_heads, is_full, new_site, pages_of

PACKAGE = "earmark.search"
T = TypeVar("T")
UPLOADS = "/api/like"
RATER = "earmark-rater"
"""The cookie that holds a browser's random id."""
RATER_S = 5 * 365 * 24 * 3600
LONGEST_CUT_S = 3600.0
SHORTEST_CUT_S = 0.001
CORES = os.cpu_count() or 2


def create_app(
    engine: Engine,
    *,
    ratings: Path | None = None,
    token: str = "",
    names: Iterable[str] = (),
    cookie: str = "earmark",
) -> FastAPI:
    """The server over an engine; ratings go to a folder of their own, `ratings` in the index if none is named.

    Without a token only names of this machine, and `names`, are answered. Raises `NotKeptError` where ratings cannot
    be kept in the folder that is named; an index that cannot be written is searched all the same.
    """
    pages = {"/": (PACKAGE, "index.html"), **pages_of(PACKAGE, "/search/")}
    title = f"earmark: {engine.store.folder.resolve().name}"
    app = new_site(title, pages, token=token, names=names, uploads=[UPLOADS], cookie=cookie, within=[Raters])
    app.add_exception_handler(AwayError, _told_away)
    app.add_exception_handler(NotKeptError, _told_not_kept)
    library = Library(engine)
    rated = Rated(ratings or engine.store.folder / RATINGS, _cut)
    with suppress(*([NotKeptError] if ratings is None else [])):
        rated.begin()
    _search_routes(app, engine, library)
    _sound_routes(app, library)
    _rating_routes(app, library, rated, engine)
    answer_heads(app)
    return app


def _search_routes(app: FastAPI, engine: Engine, library: Library) -> None:
    """Search, exports, and sounds that are sent to search by."""
    # more at once would only wait for each other; sounds in pieces and facts are never behind them
    searching, embedding = CapacityLimiter(CORES), CapacityLimiter(1)
    sending = CapacityLimiter(uploads.MOST_AT_ONCE)

    def heard(path: Path) -> Uploaded:
        seconds = uploads.check_length(path, uploads.MOST_S)
        return Uploaded(like=library.remember(engine.vector_of_file(path)), duration_s=seconds)

    def found(asked: Asked) -> Any:
        like = _there(library.vector, asked.like) if asked.like else None
        return engine.search(asked.query(like))

    @app.get("/api/about")
    def about() -> About:
        """What the index holds, and the values of the filters."""
        return library.about()

    @app.get("/api/search")
    async def search(asked: Annotated[Asked, Query()]) -> Result:
        """The files that answer words, a sound, or both. Blank words are refused (422)."""
        answer = await to_thread.run_sync(found, asked, limiter=searching)
        return Result(hits=[Found.of(hit) for hit in answer.hits], searched=answer.searched, notes=list(answer.notes))

    @app.get("/api/export", response_class=Response)
    async def export(asked: Annotated[Asked, Query()], form: Literal["m3u", "csv", "json"] = "m3u") -> Response:
        """The hits as a file: a playlist, a table, or as `earmark search --json` writes them."""
        answer = await to_thread.run_sync(found, asked, limiter=searching)
        return await to_thread.run_sync(_exported, answer.hits, form)

    @app.post(UPLOADS, openapi_extra=_body_of_bytes())
    async def like(request: Request) -> Uploaded:
        """Takes a sound (the body is the file) to search by, and gives the id to send as `like`."""
        with uploads.place(sending):
            async with uploads.upload(request, uploads.MOST_BYTES) as path:
                return await _in_thread(heard, path, limiter=embedding)


def _sound_routes(app: FastAPI, library: Library) -> None:
    """Files by id: facts, bytes, what browsers play, waveforms, cuts."""
    drawing, cutting = CapacityLimiter(max(1, CORES - 1)), CapacityLimiter(max(1, CORES - 1))

    @app.get("/api/sounds/{file_id}/facts")
    def file_facts(file_id: FileId) -> Facts:
        """What is known of a file."""
        return facts(_there(library.facts, file_id))

    @app.head("/api/sounds/{file_id}", include_in_schema=False)
    @app.get("/api/sounds/{file_id}", response_class=Response)
    def sound(request: Request, file_id: FileId, download: bool = False) -> Response:
        """The file's bytes, whole or the range that is asked for."""
        file = _there(library.file, file_id)
        return _bytes(request, _there(library.open, file), file.path.name if download else "")

    @app.head("/api/sounds/{file_id}/play", include_in_schema=False)
    @app.get("/api/sounds/{file_id}/play", response_class=Response)
    async def play(request: Request, file_id: FileId) -> Response:
        """As the file's bytes, of files that browsers play; of others a WAV file that sounds the same."""
        file = await to_thread.run_sync(_there, library.file, file_id)
        descriptor = _there(library.open, file)
        if sounds.media_type(descriptor)[1]:
            return _bytes(request, descriptor)
        os.close(descriptor)
        kept = await _in_thread(sounds.converted, file.path, limiter=drawing)
        _there(library.checked, file)  # what was read was still the file of the index
        return _bytes(request, os.open(kept, os.O_RDONLY | os.O_CLOEXEC))

    @app.get("/api/sounds/{file_id}/peaks")
    async def wave(
        request: Request,
        file_id: FileId,
        start: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
        end: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
        points: Annotated[int, Query(ge=1, le=peaks.MOST_POINTS)] = 500,
    ) -> Wave:
        """The waveform from `start` to `end`, in at most so many points, whatever the length."""
        file = await to_thread.run_sync(_there, library.file, file_id)
        async with drawing:
            if await request.is_disconnected():  # the page went on: others wait
                raise HTTPException(499, "nobody waits for it any more.")
            whole = await _in_thread(_overview, library, file)
        drawn = peaks.peaks(whole, start, end, points)
        return Wave(start_s=drawn.start_s, end_s=drawn.end_s, peaks=drawn.pairs.round(3).tolist())

    @app.get("/api/sounds/{file_id}/cut", response_class=Response)
    async def cut(
        file_id: FileId,
        start: Annotated[float, Query(ge=0, allow_inf_nan=False)],
        end: Annotated[float, Query(gt=0, allow_inf_nan=False)],
        request: Request,
    ) -> Response:
        """A part of the file, at its own rate, channels and depth, to download."""
        file = await to_thread.run_sync(_there, library.file, file_id)
        return await _in_thread(_cut_of, request, library, file, start, end, limiter=cutting)


def _rating_routes(app: FastAPI, library: Library, rated: Rated, engine: Engine) -> None:
    """The listener's own ratings."""

    @app.get("/api/ratings")
    def own_ratings(request: Request, q: Words) -> list[KeptRating]:
        """This browser's ratings for these words."""
        return [KeptRating.of(mark) for mark in rated.own(q, _rater(request))]

    @app.put("/api/ratings")
    def rate(request: Request, given: GivenRating) -> KeptRating | None:
        """Keeps a rating, 0–100, of a region of a file for words, in the place of an earlier one of this browser."""
        region = _there(library.region, given.id, given.start_s, given.end_s)
        mark = rated.rate(
            region,
            given.q,
            given.rating,
            _rater(request),
            stratum=given.stratum,
            rank=given.rank,
            played_s=given.played_s,
            cosine=given.cosine,
            model=engine.store.about.fingerprint,
        )
        return KeptRating.of(mark) if mark.rating else None


class Raters:
    """Gives each browser a random id, with the page or the first answer: ratings sent side by side share it then."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands the request on, `rater` in its state."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        known = _known_rater(Headers(scope=scope))
        rater = known or secrets.token_hex(8)
        scope.setdefault("state", {})["rater"] = rater
        given = not known and (scope["path"] == "/" or scope["path"].startswith("/api/"))

        async def sending(message: Message) -> None:
            if given and message["type"] == "http.response.start" and message["status"] < 400:
                told = Response()
                told.set_cookie(RATER, rater, max_age=RATER_S, httponly=True, samesite="lax")
                MutableHeaders(scope=message).append("set-cookie", told.headers["set-cookie"])
            await send(message)

        return await self.app(scope, receive, sending)


def _known_rater(headers: Headers) -> str:
    """The browser's id, if it is one of ours."""
    given = cookie_of(headers, RATER)
    return given if len(given) == 16 and all(mark in "0123456789abcdef" for mark in given) else ""


def _rater(request: Request) -> str:
    rater: str = request.state.rater
    return rater


async def _in_thread(function: Callable[..., T], *arguments: Any, limiter: CapacityLimiter | None = None) -> T:
    """What a function gives that may take long; a server that ends does not wait for it."""
    return await to_thread.run_sync(function, *arguments, limiter=limiter, abandon_on_cancel=True)


def _told_away(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": " ".join(str(error).split())}, 503, {"retry-after": "10"})


def _told_not_kept(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": " ".join(str(error).split())}, 507 if is_full(error) else 500)


def _there(function: Any, *arguments: Any) -> Any:
    """What a function gives; where it says that something is not there, 404."""
    try:
        return function(*arguments)
    except AwayError:
        raise
    except DataError as error:
        raise HTTPException(404, str(error)) from error


def _bytes(request: Request, descriptor: int, download: str = "") -> Response:
    try:
        kind = sounds.media_type(descriptor)[0]
        return FileBytes(request, descriptor, kind, name=download, headers={"cache-control": "private, no-cache"})
    except BaseException:
        os.close(descriptor)
        raise


def _body_of_bytes() -> dict[str, Any]:
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


# Exports and cuts


def _exported(hits: list[Hit], form: str) -> Response:
    kinds = {"m3u": "audio/x-mpegurl", "csv": "text/csv; charset=utf-8", "json": "application/json"}
    if form == "m3u":
        body = _playlist(hits)
    elif form == "csv":
        body = _table(hits).encode()
    else:
        body = json.dumps([hit.as_json() for hit in hits], indent=2, ensure_ascii=False).encode()
    headers = {"content-disposition": disposition(f"earmark.{form}")}
    return Response(body, media_type=kinds[form], headers=headers)


def _playlist(hits: list[Hit]) -> bytes:
    from earmark.search.take import write_m3u

    with scratch() as folder:
        write_m3u(hits, folder / "hits.m3u")
        return (folder / "hits.m3u").read_bytes()


def _table(hits: list[Hit]) -> str:
    columns = ["path", "start_s", "end_s", "score", "cosine", "named", "duration_s", "rate", "channels", "tags"]
    rows = [hit.as_json() for hit in hits]
    return table_text(columns, [{**row, "tags": "; ".join(row["tags"])} for row in rows])


def _cut(path: Path, start_s: float, end_s: float, to: Path) -> Path:
    from earmark.search.take import cut

    return cut(path, start_s, end_s, to)


def _overview(library: Library, file: Indexed) -> peaks.Overview:
    """The overview of the very file that was indexed."""
    with held(file, _there(library.open, file)) as path:
        return peaks.overview(file.path, path)


def _cut_of(request: Request, library: Library, file: Indexed, start_s: float, end_s: float) -> Response:
    """The response that sends a part of a file."""
    end_s = min(end_s, file.duration_s)
    if not SHORTEST_CUT_S <= end_s - start_s <= LONGEST_CUT_S:
        what = f"from {start_s:g} to {end_s:g} s; expected a part of 0 to {file.duration_s:g} s"
        raise HTTPException(422, f"{what}, of {SHORTEST_CUT_S:g} to {LONGEST_CUT_S:g} s.")
    with scratch() as folder, held(file, _there(library.open, file)) as path:
        made = _cut(path, start_s, end_s, folder / f"cut{file.path.suffix}")
        name = f"{file.path.stem}_{start_s:.3f}-{end_s:.3f}{made.suffix}"
        descriptor = os.open(made, os.O_RDONLY | os.O_CLOEXEC)  # which outlives the name
    return _bytes(request, descriptor, name)
