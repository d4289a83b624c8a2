"""A file's bytes over HTTP, whole or in part: RFC 9110, sections 13 and 14.

Starlette's `FileResponse` answers an odd `Range` with 400 where the RFC has it passed over, refuses several ranges if
one of them is beyond the end, and opens the file by its name once more when it sends; here what was checked is what
is sent: one descriptor.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate, parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

AT_ONCE = 1 << 18
"""Bytes that are read and sent at once."""
MOST_RANGES = 20
"""A header that names more of them is passed over."""
_RANGE = re.compile("([0-9]*)-([0-9]*)")
_TAG = re.compile(r'(?:W/)?"[^"]*"')
_BEYOND = 10**18
"""More bytes than a file has: what a larger number is taken for."""


class Span(NamedTuple):
    """Bytes from `start` up to, not with, `stop`."""

    start: int
    stop: int


def asked_span(header: str, size: int) -> Span | None:
    """The first part of a file of `size` bytes that a `Range` header asks for; None where it asks for nothing we know.

    Units other than bytes, and headers that are none, are passed over (section 14.2): the whole file is the answer.
    Raises `ValueError` where everything that is asked for lies beyond the end.
    """
    unit, _, asked = header.partition("=")
    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if unit.strip().lower() != "bytes" or not 0 < len(parts) <= MOST_RANGES:
        return None
    spans = [_span(part, size) for part in parts]
    if None in spans:
        return None
    inside = [span for span in spans if span is not None and span.start < span.stop]
    if not inside:
        raise ValueError(f"bytes={asked}: beyond the end ({size} bytes)")
    return inside[0]


def _span(part: str, size: int) -> Span | None:
    """The bytes of `first-last`, `first-` or `-count`, empty where they lie beyond the end; None where it is none."""
    found = _RANGE.fullmatch(part)
    if not found or part == "-":
        return None
    first, last = found.groups()
    if not first:
        return Span(max(0, size - _number(last)), size) if _number(last) else Span(size, size)
    if last and _number(last) < _number(first):
        return None
    return Span(_number(first), min(size, _number(last) + 1) if last else size)


def _number(digits: str) -> int:
    """However many digits it has, which Python would refuse to read."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= 18 else _BEYOND


def precondition(headers: Mapping[str, str], tag: str, changed: float | None = None) -> int:
    """412 or 304 where a condition of a GET or HEAD says so, else 0: RFC 9110, section 13.2.2.

    `tag` is the file's, a strong one; `changed` is when it last was, in seconds of Unix time.
    """
    if "if-match" in headers and not _named(headers["if-match"], tag, weak=False):
        return 412
    if changed is not None and "if-match" not in headers:
        since = _time(headers.get("if-unmodified-since", ""))
        if since is not None and int(changed) > since:
            return 412
    if "if-none-match" in headers:
        return 304 if _named(headers["if-none-match"], tag, weak=True) else 0
    since = _time(headers.get("if-modified-since", ""))
    return 304 if changed is not None and since is not None and int(changed) <= since else 0


def _named(header: str, tag: str, *, weak: bool) -> bool:
    """Whether a list of tags, or `*`, names the tag; a weak one in the list counts where the comparison is weak."""
    found = _TAG.findall(header)
    return header.strip() == "*" or tag in (each.removeprefix("W/") if weak else each for each in found)


def _time(header: str) -> float | None:
    """Seconds of Unix time; None where it is no date."""
    try:
        return parsedate_to_datetime(header).timestamp()
    except (ValueError, OverflowError):
        return None


class FileBytes(StreamingResponse):
    """The response that sends an open file: 200, 206, 304, 412 or 416; without a body where HEAD asked.

    It closes the file. Where that became shorter meanwhile the connection ends short of what was promised, which tells.
    """

    def __init__(
        self,
        request: Request,
        descriptor: int,
        media_type: str,
        *,
        name: str = "",
        headers: Mapping[str, str] = {},
        known_as: str = "",
    ) -> None:
        """`known_as`: random letters that the tag is made from, so that nothing tells when the file was written."""
        self.descriptor = descriptor
        state = os.fstat(descriptor)
        size, tag = state.st_size, f'"{known_as or format(state.st_mtime_ns, "x")}-{state.st_size:x}"'
        about = {"accept-ranges": "bytes", "etag": tag, **headers}
        changed, since = "", None
        if not known_as:
            changed, since = formatdate(state.st_mtime, usegmt=True), state.st_mtime
            about["last-modified"] = changed
        if name:
            about["content-disposition"] = disposition(name)
        status, span = 200, Span(0, size)
        asked = request.headers.get("range")
        if refused := precondition(request.headers, tag, since):
            status, span = refused, Span(0, 0)
        elif asked and request.headers.get("if-range") in (None, tag, changed or tag):
            try:
                part = asked_span(asked, size)
            except ValueError:
                status, span, about["content-range"] = 416, Span(0, 0), f"bytes */{size}"
            else:
                if part is not None:
                    status, span = 206, part
                    about["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
        if status != 304:
            about["content-length"] = str(span.stop - span.start)
        self.left = 0 if request.method == "HEAD" else span.stop - span.start
        super().__init__(_read(descriptor, span._replace(stop=span.start + self.left)), status, about, media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self.descriptor)

    async def stream_response(self, send: Send) -> None:
        """Starts it, sends what is there, and says that this was all only where it was."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self.body_iterator:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self.left -= len(piece)
        if not self.left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _read(descriptor: int, span: Span) -> AsyncIterator[bytes]:
    at = span.start
    while at < span.stop:
        try:
            piece = await to_thread.run_sync(os.pread, descriptor, min(AT_ONCE, span.stop - at), at)
        except OSError:  # its disk has gone
            return
        if not piece:  # cut since
            return
        yield piece
        at += len(piece)


def disposition(name: str) -> str:
    """`Content-Disposition` of a download of that name (RFC 6266), whatever letters it has."""
    plain = re.sub(r"[^ !#-.0-\[\]-~]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
