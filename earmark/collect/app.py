"""The study's server: REST below /api, one page for raters, one for the owner.

A rater's browser holds a secret key in a cookie; everything that is asked with it is answered from what belongs to
that rater alone. The owner's page and routes ask for the owner's token, which has a cookie of its own. Nothing tells
who a rater is but the crowd platform's ids: no address and no name of a browser is kept or logged.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Path, Query
from markdown_it import MarkdownIt
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from earmark.collect import loudness, sound_check
from earmark.collect.flow import Flow, Shown, State, utc_now
from earmark.collect.owner import owner_routes
from earmark.collect.replies import (
    About,
    AskedPage,
    Drawn,
    Entering,
    ItemId,
    Listened,
    PageNumber,
    Rated,
    Share,
    SoundAnswers,
    SoundJudged,
    Standing,
)
from earmark.collect.store import RATERS_S, RefusedError, Store, StoreError
from earmark.collect.study import Item, Study
from earmark.errors import DataError
from earmark.files import size_and_time
from earmark.web import peaks
from earmark.web.guard import cookie_of, is_secure
from earmark.web.ranges import FileBytes, asked_span
from earmark.web.site import answer_heads, new_site, pages_of

PACKAGE = "earmark.collect"
T = TypeVar("T")
KEPT_S = 365 * 24 * 3600
"""Seconds that a browser keeps its rater's key."""
AT_ONCE = 16
"""Requests that are at the database at the same time."""
SOUND_S = 3600
"""Seconds that a browser keeps a clip."""
CORES = os.cpu_count() or 2
OWNERS = ("/owner", "/api/owner")
"""The beginnings of the paths that ask for the owner's token."""


def create_app(
    study: Study,
    store: Store,
    *,
    owner_token: str,
    names: Iterable[str] = (),
    cookie: str = "earmark-study",
    public: bool = False,
    now: Callable[[], datetime] = utc_now,
    rehearsal: bool = False,
) -> FastAPI:
    """The server of a study whose answers are kept in `store`.

    Raters need no token. `public`: it is bound elsewhere than to this machine alone, so that it is answered under any
    name; else only names of this machine, and `names`, are. `now` is the study's clock. A sound that vanishes or
    changes from now on is not asked any more. Raises `DataError` on a token that anybody could guess, and on a store
    that can only be read.
    """
    if len(owner_token) < 8:
        raise DataError(f"an owner's token of {len(owner_token)} letters; expected 8 or more.")
    store.check_writable()
    store.busy_s = RATERS_S
    page = (PACKAGE, "index.html")
    pages = {"/": page, "/page/{number}": page, "/owner": (PACKAGE, "owner.html"), **pages_of(PACKAGE, "/collect/")}
    app = new_site(
        study.settings.title,
        pages,
        token=owner_token,
        names=names,
        cookie=f"{cookie}-owner",
        asked=OWNERS,
        any_name=public,
        command="earmark collect serve",
    )
    app.add_exception_handler(RefusedError, _told_refused)
    app.add_exception_handler(StoreError, _told_not_stored)
    app.add_exception_handler(DataError, _told_trouble)
    desk = Desk(study, Flow(study, store, now=now, rehearsal=rehearsal), cookie)
    _entry_routes(app, desk)
    _sound_check_routes(app, desk)
    _page_routes(app, desk)
    _sound_routes(app, desk)
    owner_routes(app, desk.flow)
    answer_heads(app)
    return app


class Desk:
    """Where raters are answered: who asks, and what their items are."""

    def __init__(self, study: Study, flow: Flow, cookie: str) -> None:
        self.study, self.flow, self.cookie = study, flow, cookie
        self.asking, self.converting = CapacityLimiter(AT_ONCE), CapacityLimiter(1)
        self.sending, self.drawing = CapacityLimiter(AT_ONCE), CapacityLimiter(max(1, CORES - 1))
        self._states: dict[FilePath, tuple[int, int]] = {}
        self._told: set[FilePath] = set()
        for path in {study.sound(item) for page in study.pages for item in page.items}:
            with contextlib.suppress(OSError):
                self._states[path] = size_and_time(path.stat())

    def key(self, request: Request) -> str:
        """The secret in the browser's cookie; "" where there is none."""
        return cookie_of(Headers(scope=request.scope), self.cookie)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives that asks the database."""
        return await to_thread.run_sync(function, *arguments, limiter=self.asking)

    async def of_rater(self, request: Request, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives for the rater who asks, its first argument. Raises 401 where nobody is known."""
        return await self.run(lambda: function(self.rater(request), *arguments))

    def rater(self, request: Request) -> str:
        """The rater's id."""
        key = self.key(request)
        rater_id = self.flow.rater(key) if key else None
        if rater_id is None:
            raise HTTPException(401, "this browser is not known to the study. Open the study's link again.")
        return rater_id

    async def sound(self, request: Request, item_id: str) -> FilePath:
        """The rater's clip as it is played. Raises 410 where it cannot be; its rating is not asked then."""
        item = await self.of_rater(request, self.flow.item, item_id)
        try:
            return await self._played(item)
        except DataError as error:
            self._tell(self.study.sound(item), error)
            await self.of_rater(request, self.flow.silence, item_id)
            raise HTTPException(410, "this sound cannot be played, and its rating is not asked.") from error

    async def seconds(self, request: Request, item_id: str) -> float | None:
        """How long the rater's clip is; None where it cannot be played."""
        try:
            return _seconds(await self.sound(request, item_id))
        except HTTPException as error:
            if error.status_code != 410:
                raise
            return None

    async def _played(self, item: Item) -> FilePath:
        """The clip's file as it is played. Raises `DataError` where it vanished, is another one, or is no sound."""
        path, lufs = self.study.sound(item), self.study.settings.loudness_lufs
        kept = await to_thread.run_sync(self._kept, path, lufs, limiter=self.sending)
        if kept is not None:
            return kept
        return await to_thread.run_sync(loudness.matched, path, lufs, limiter=self.converting)

    def _kept(self, path: FilePath, lufs: float) -> FilePath | None:
        kept = loudness.kept(path, lufs)
        state = size_and_time(path.stat())
        if self._states.setdefault(path, state) != state:
            raise DataError(f"{path}: has changed since the study was started. Put the file back, or start it again.")
        return kept

    def _tell(self, path: FilePath, error: DataError) -> None:
        """Names a sound in the server's output once."""
        if path not in self._told:
            self._told.add(path)
            _say(f"{error} Raters are not asked about this sound.")


def _entry_routes(app: FastAPI, desk: Desk) -> None:
    """Who comes, and where they stand."""
    about = _about(desk.study)
    flow = desk.flow

    @app.get("/api/study")
    def study() -> About:
        """What everyone may know of the study: its title, its owner's words, the ends of its scale."""
        return about

    @app.post("/api/enter")
    async def enter(request: Request, response: Response, given: Entering) -> Standing:
        """Makes the browser a rater's, by its cookie, an invitation or a crowd platform's ids, and sets the cookie."""

        def entered() -> tuple[str, Standing]:
            rater_id, key = flow.enter(key=desk.key(request), invite=given.invite, platform=given.platform)
            return key, Standing.of(flow.state(rater_id))

        key, standing = await desk.run(entered)
        secure = is_secure(request.scope)
        response.set_cookie(desk.cookie, key, max_age=KEPT_S, httponly=True, samesite="lax", secure=secure)
        return standing

    @app.get("/api/state")
    async def state(request: Request) -> Standing:
        """Where the rater stands."""
        return Standing.of(await desk.of_rater(request, flow.state))

    @app.post("/api/consent")
    async def consent(request: Request) -> Standing:
        """The rater agrees to take part."""
        return Standing.of(await desk.of_rater(request, flow.consent))


def _sound_check_routes(app: FastAPI, desk: Desk) -> None:
    """The headphone and sound check."""
    lufs = desk.study.settings.loudness_lufs

    @app.get("/api/sound-check/volume", response_class=Response)
    async def volume(request: Request) -> Response:
        """A noise as loud as the study's sounds, to set the volume by: WAV."""
        await desk.of_rater(request, lambda rater_id: rater_id)
        return _wav(request, await to_thread.run_sync(sound_check.volume, lufs, limiter=desk.sending))

    @app.get("/api/sound-check/{kind}/{at}", response_class=Response)
    async def question(
        request: Request,
        kind: Literal["side", "tones"],
        at: Annotated[int, Path(ge=0, lt=sound_check.MOST_ROUNDS)],
    ) -> Response:
        """The sound of a round, counted from 0: WAV."""
        return _wav(request, await desk.of_rater(request, sound_check.question, kind, at, lufs))

    @app.post("/api/sound-check/answers")
    async def judged(request: Request, given: SoundAnswers) -> SoundJudged:
        """Which question comes next, and whether the last answer was right."""
        return SoundJudged.of(await desk.of_rater(request, sound_check.judge, given.answers))

    @app.post("/api/sound-check")
    async def checked(request: Request, given: SoundAnswers) -> Standing:
        """The rater is done with the check, passed or not, and gets the first page."""
        return Standing.of(await desk.of_rater(request, _sound_checked, desk.flow, given.answers))


def _sound_checked(rater_id: str, flow: Flow, answers: list[int]) -> State:
    return flow.sound_checked(rater_id, passed=sound_check.judge(rater_id, answers).passed)


def _page_routes(app: FastAPI, desk: Desk) -> None:
    """Pages, what was heard of their clips, and answers."""
    flow = desk.flow

    @app.get("/api/pages/{number}")
    async def page(request: Request, number: PageNumber) -> AskedPage:
        """A page that the rater was given, as it stands."""
        shown: Shown = await desk.of_rater(request, flow.page, number)
        seconds = [None if item.silent else await desk.seconds(request, item.item_id) for item in shown.items]
        return AskedPage.of_shown(shown, seconds)

    @app.put("/api/items/{item_id}/heard")
    async def heard(request: Request, item_id: ItemId, told: Listened) -> Share:
        """Keeps what was played of a clip, and gives the share of it that was heard in all."""
        duration = _seconds(await desk.sound(request, item_id))

        def keep(rater_id: str) -> float:
            return flow.heard(rater_id, item_id, told.told(told.view), duration_s=duration)

        return Share(heard=await desk.of_rater(request, keep))

    @app.put("/api/items/{item_id}/rating")
    async def rate(request: Request, item_id: ItemId, told: Rated) -> Share:
        """Keeps an answer, durably by the time this is answered; refused (422) while too little was heard."""
        duration = await desk.seconds(request, item_id) if told.heard else None

        def keep(rater_id: str) -> float | None:
            share = None
            if told.heard and duration is not None:  # a sound that has gone may have been heard before
                share = flow.heard(rater_id, item_id, told.heard.told(told.view), duration_s=duration)
            flow.answer(rater_id, item_id, told.told())
            return share

        return Share(heard=await desk.of_rater(request, keep))

    @app.post("/api/pages/{number}/submit")
    async def submit(request: Request, number: PageNumber) -> Standing:
        """Ends a page, once however often it is asked; refused (409) while something is missing."""
        return Standing.of(await desk.of_rater(request, flow.submit, number))


def _sound_routes(app: FastAPI, desk: Desk) -> None:
    """The clips, by ids that say nothing of them."""

    @app.get("/api/items/{item_id}/sound", response_class=Response)
    async def sound(request: Request, item_id: ItemId) -> Response:
        """The clip, at the study's loudness, whole or the range that is asked for: WAV."""
        path = await desk.sound(request, item_id)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        headers = {"cache-control": f"private, max-age={SOUND_S}"}
        return FileBytes(request, descriptor, "audio/wav", headers=headers, known_as=item_id)

    @app.get("/api/items/{item_id}/peaks")
    async def wave(
        request: Request,
        item_id: ItemId,
        start: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
        end: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
        points: Annotated[int, Query(ge=1, le=peaks.MOST_POINTS)] = 500,
    ) -> Drawn:
        """The waveform from `start` to `end`, in at most so many points, whatever the length."""
        path = await desk.sound(request, item_id)
        whole = await to_thread.run_sync(peaks.overview, path, limiter=desk.drawing)
        drawn = peaks.peaks(whole, start, end, points)
        loudest = max(1, int(abs(whole.pairs.astype(int)).max())) / peaks.LEVEL  # clips of one loudness fill the height
        pairs = (drawn.pairs.astype(float) / loudest).round(3).tolist()
        return Drawn(start_s=drawn.start_s, end_s=drawn.end_s, peaks=pairs)


@lru_cache(maxsize=1 << 14)
def _seconds(path: FilePath) -> float:
    """Of a converted clip."""
    import soundfile

    return float(soundfile.info(path).duration)


def _wav(request: Request, body: bytes) -> Response:
    """A short sound, whole or the range that is asked for: some browsers play nothing without ranges."""
    headers = {"cache-control": "no-store", "accept-ranges": "bytes"}
    try:
        span = asked_span(request.headers.get("range", ""), len(body))
    except ValueError:
        return Response(status_code=416, headers={**headers, "content-range": f"bytes */{len(body)}"})
    if span is None:
        return Response(body, 200, headers, "audio/wav")
    headers["content-range"] = f"bytes {span.start}-{span.stop - 1}/{len(body)}"
    return Response(body[span.start : span.stop], 206, headers, "audio/wav")


def _about(study: Study) -> About:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    settings = study.settings
    return About(
        title=settings.title,
        consent=markdown.render(study.consent),
        instructions=markdown.render(study.instructions),
        low_end=settings.low_end,
        high_end=settings.high_end,
        heard_share=settings.heard_share,
        platform_ids=list(settings.platform_ids),
    )


def _told_refused(_: Request, error: Any) -> Response:
    return JSONResponse({"detail": " ".join(str(error).split())}, error.status)


def _told_not_stored(request: Request, error: Any) -> Response:
    """Place and reason are the owner's: they go to the server's output."""
    _say(str(error))
    headers = {"retry-after": "2"} if error.status == 503 else None
    reads = request.method in ("GET", "HEAD") and error.status == 503
    what = "The study cannot be reached just now. Try again." if reads else error.plain
    return JSONResponse({"detail": what}, error.status, headers)


def _told_trouble(_: Request, error: Any) -> Response:
    """As what is wrong with the study's files, which names them."""
    _say(str(error))
    return JSONResponse({"detail": "This cannot be done just now. Try again."}, 503, {"retry-after": "10"})


def _say(what: str) -> None:
    """One line in the server's output, without control characters."""
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(what.split()))
    print(line, file=sys.stderr, flush=True)
