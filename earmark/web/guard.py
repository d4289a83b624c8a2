"""Who is answered, and what browsers are told never to do.

- On loopback only names of this machine are answered, so that no page of another site can reach us by letting its own
  name point here (DNS rebinding). Elsewhere a token is asked for, which is kept as a cookie after the first visit.
- Pages of other sites neither write (their `Origin`) nor read (`Sec-Fetch-Site`).
- A body is refused when it is larger than a form of ours; routes that take files read their own bound.
- A strict content policy: what is not served from here is not loaded, and no script or style stands in a page.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
from collections.abc import Iterable
from html import escape
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
LOCAL = ("localhost", "127.0.0.1", "::1")
MOST_BODY = 64 << 10
"""Bytes of a body that is no file."""
KEPT_S = 30 * 24 * 3600
"""Seconds that a browser keeps the token."""


def new_token() -> str:
    """A token that nobody guesses: 192 random bits."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that is bound there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """An ASGI application that lets through to another what may pass.

    `token` "" asks for none; `asked` are the beginnings of the paths that ask for it. Only names of this machine and
    `names` are answered, unless `any_name` says otherwise: left to itself, where everything asks for a token.
    `uploads` are paths whose bodies may be files; `command` is what printed the address with the token.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str = "",
        names: Iterable[str] = (),
        uploads: Iterable[str] = (),
        cookie: str = "earmark",
        asked: Iterable[str] = ("/",),
        any_name: bool | None = None,
        command: str = "earmark serve",
    ) -> None:
        self.app, self.token, self.cookie, self.command = app, token, cookie, command
        self.names, self.asked = {*LOCAL, *names}, tuple(asked)
        self.any_name = bool(token) if any_name is None else any_name
        self.uploads = frozenset(uploads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets
        headers = Headers(scope=scope)
        answer = self._refusal(scope, headers)
        if answer is not None:
            if answer.status_code >= 400 and scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
                answer = _readable(answer)
            await answer(scope, receive, _with_headers(send))
            return
        if scope["path"] not in self.uploads:
            receive = _bounded(receive)
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """What is answered instead, or None where the request may pass."""
        host = headers.get("host", "")
        if not self.any_name and _name(host) not in self.names:
            what = f"host {host!r}; expected one of this machine ({', '.join(sorted(self.names))})."
            return _refused(421, what)
        if elsewhere := _from_elsewhere(scope["method"], headers, host):
            return _refused(403, elsewhere)
        if scope["path"] not in self.uploads and stated_length(headers) > MOST_BODY:
            return _refused(413, f"a body of more than {MOST_BODY:,} bytes.", {"connection": "close"})
        asks = self.token and scope["path"].startswith(self.asked)
        return self._without_token(scope, headers) if asks else None

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        """None where the token is there; where the address brings it, a way on that keeps it as a cookie."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token", "")
        if given and self._is_token(given):
            if scope["method"] not in ("GET", "HEAD"):
                return None
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            onward = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else ""), 303)
            secure = is_secure(scope)
            onward.set_cookie(self.cookie, given, max_age=KEPT_S, httponly=True, samesite="lax", secure=secure)
            return onward
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return None
        if self._is_token(cookie_of(headers, self.cookie)):
            return None
        where = f"Open the address that `{self.command}` printed"
        what = f"a token is needed. {where}, or send `Authorization: Bearer TOKEN`."
        return _refused(401, what, {"www-authenticate": "Bearer"})

    def _is_token(self, given: str) -> bool:
        """Compared in a time that tells nothing."""
        return hmac.compare_digest(given.encode(), self.token.encode())


def cookie_of(headers: Headers, name: str) -> str:
    """The value of a cookie, "" where there is none. Cookies of others that break the rules are passed over."""
    return cookie_parser(headers.get("cookie", "")).get(name, "")


def is_secure(scope: Scope) -> bool:
    """Whether the browser came by https: to us, or to a web server before us whose word uvicorn takes for it."""
    return scope.get("scheme") == "https"


def _name(host: str) -> str:
    """The name in a `Host` header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _place(origin: str) -> str:
    """Name and port of an `Origin` header; "" where it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _from_elsewhere(method: str, headers: Headers, host: str) -> str:
    """Why a request of another site's page is refused; empty where it is not one."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    writes = method not in ("GET", "HEAD", "OPTIONS")
    if writes and origin is not None and _place(origin) != host:
        return f"a request of {origin[:100]!r}; only this server's own pages may write."
    opens = headers.get("sec-fetch-mode") == "navigate" and not writes
    if site not in ("same-origin", "none") and not opens:
        return "a request of another site's page; only this server's own pages may ask."
    return ""


def stated_length(headers: Headers) -> int:
    """The bytes that `Content-Length` tells, 0 where it tells none; of ever so many digits 10 to the 18th."""
    stated = headers.get("content-length", "")
    if not (stated.isascii() and stated.isdecimal()):
        return 0
    return int(stated) if len(stated) <= 18 else 10**18


def _refused(status: int, what: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": what}, status, headers)


def _readable(answer: Response) -> Response:
    """The refusal as a page, for a browser that opens an address."""
    what = escape(json.loads(bytes(answer.body))["detail"])
    page = "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    page += f"<title>earmark</title><h1>earmark</h1><p>{what[:1].upper()}{what[1:]}</p>"
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    return HTMLResponse(page, answer.status_code, headers)


def _bounded(receive: Receive) -> Receive:
    """The body, up to `MOST_BODY`."""
    came = 0

    async def bounded() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > MOST_BODY:
            raise HTTPException(413, f"a body of more than {MOST_BODY:,} bytes.", {"connection": "close"})
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sending
