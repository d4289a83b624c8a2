"""What every page that earmark serves shares: ranges, the guard, uploads, waveforms, sounds for browsers."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import threading
import time
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
import soundfile
from fastapi import FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from earmark.errors import ConfigError, DataError
from earmark.web import guard, peaks, sounds, uploads
from earmark.web.guard import Guard
from earmark.web.ranges import FileBytes, Span, asked_span, disposition
from earmark.web.site import new_site

LOCAL = "http://127.0.0.1"


def serving(path: Path, **options) -> TestClient:
    """A site with one file and one place to send to."""
    site = new_site("test", {}, uploads=["/take"], **options)

    @site.api_route("/file", methods=["GET", "HEAD"])
    def file(request: Request, name: str = ""):
        return FileBytes(request, os.open(path, os.O_RDONLY), "audio/wav", name=name)

    @site.post("/take")
    async def take(request: Request):
        async with uploads.upload(request, most=1000, patience_s=5) as sent:
            return {"bytes": sent.stat().st_size, "path": str(sent)}

    @site.put("/small")
    def small(body: dict):
        return body

    @site.get("/broken")
    def broken():
        raise ZeroDivisionError("secret")

    return TestClient(site, base_url=LOCAL, raise_server_exceptions=False)


# Ranges

ALL = bytes(range(256)) * 4


@pytest.fixture
def client(tmp_path):
    (tmp_path / "f.bin").write_bytes(ALL)
    return serving(tmp_path / "f.bin")


@pytest.mark.case("S04")
@pytest.mark.parametrize(
    ("asked", "status", "start", "stop"),
    [
        ("bytes=0-", 206, 0, 1024),
        ("bytes=100-199", 206, 100, 200),
        ("bytes=-500", 206, 524, 1024),
        ("bytes=-5000", 206, 0, 1024),
        ("bytes=1000-9999", 206, 1000, 1024),
        ("bytes=1023-", 206, 1023, 1024),
        ("BYTES = 0-0", 206, 0, 1),
        ("bytes=999999-", 416, 0, 0),
        ("bytes=1024-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        ("bytes=0-1, 5-9", 206, 0, 2),
        ("bytes=999999-, 5-9", 206, 5, 10),
        ("abc", 200, 0, 1024),
        ("bytes=abc", 200, 0, 1024),
        ("bytes=", 200, 0, 1024),
        ("bytes=-", 200, 0, 1024),
        ("bytes=9-5", 200, 0, 1024),
        ("bytes=+1-5", 200, 0, 1024),
        ("bytes=1_0-50", 200, 0, 1024),
        ("items=0-5", 200, 0, 1024),
        ("bytes=" + ",".join(["0-1"] * 20), 206, 0, 2),
        ("bytes=" + ",".join(["0-1"] * 21), 200, 0, 1024),
        ("bytes=99999999999999999999999-", 416, 0, 0),
        ("bytes=1000-99999999999999999999999", 206, 1000, 1024),
        ("bytes=-99999999999999999999999", 206, 0, 1024),
        ("bytes=00000000000000000000000-9", 206, 0, 10),
        ("bytes=0-" + "9" * 5000, 206, 0, 1024),
    ],
)
def test_ranges_are_answered_as_the_rfc_has_it(client, asked, status, start, stop):
    for method in ("GET", "HEAD"):
        answer = client.request(method, "/file", headers={"range": asked})
        assert answer.status_code == status
        assert answer.headers["accept-ranges"] == "bytes"
        assert int(answer.headers["content-length"]) == stop - start
        assert answer.content == (b"" if method == "HEAD" else ALL[start:stop])
        stated = {206: f"bytes {start}-{stop - 1}/1024", 416: "bytes */1024"}.get(status)
        assert answer.headers.get("content-range") == stated


@pytest.mark.case("S04")
def test_ranges_of_a_file_that_has_changed_are_the_whole_file(client):
    first = client.get("/file")
    tag, changed = first.headers["etag"], first.headers["last-modified"]
    for condition, status in ((tag, 206), (changed, 206), ('"other"', 200), (f"W/{tag}", 200)):
        answer = client.get("/file", headers={"range": "bytes=0-9", "if-range": condition})
        assert answer.status_code == status, condition
    unchanged = client.get("/file", headers={"if-none-match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if-none-match": "TAG"}, 304),
        ({"if-none-match": "W/TAG"}, 304),
        ({"if-none-match": '"a", W/"b,c" ,TAG'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": "TAG", "range": "bytes=0-9"}, 304),
        ({"if-none-match": '"a", "b"'}, 200),
        ({"if-none-match": "TAG".lower()}, 200),
        ({"if-none-match": '"a"', "if-modified-since": "CHANGED"}, 200),
        ({"if-modified-since": "CHANGED"}, 304),
        ({"if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 200),
        ({"if-modified-since": "yesterday"}, 200),
        ({"if-match": "TAG"}, 200),
        ({"if-match": "*"}, 200),
        ({"if-match": '"a", TAG', "range": "bytes=0-9"}, 206),
        ({"if-match": '"a"'}, 412),
        ({"if-match": "W/TAG"}, 412),
        ({"if-match": '"a"', "range": "bytes=0-9"}, 412),
        ({"if-unmodified-since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 412),
        ({"if-unmodified-since": "CHANGED"}, 200),
        ({"if-match": "TAG", "if-unmodified-since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 200),
    ],
)
def test_conditions_are_answered_as_the_rfc_has_it(client, headers, status):
    first = client.get("/file").headers
    told = {name: value.replace("TAG", first["etag"]) for name, value in headers.items()}
    told = {name: value.replace("CHANGED", first["last-modified"]) for name, value in told.items()}
    for method in ("GET", "HEAD"):
        answer = client.request(method, "/file", headers=told)
        assert answer.status_code == status
        assert bool(answer.content) == (method == "GET" and status < 300)


@contextlib.contextmanager
def listening(app):
    """The address of a real server within the block."""
    import uvicorn

    at = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([at],), daemon=True)
    thread.start()
    try:
        yield at.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection_quietly(tmp_path, caplog):
    path = tmp_path / "f.bin"
    path.write_bytes(b"x" * (32 << 20))
    with listening(serving(path).app) as address, socket.create_connection(address) as to:
        to.settimeout(20)
        to.sendall(b"GET /file HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        came = to.recv(1000)
        assert b"content-length: 33554432" in came
        os.truncate(path, 100)
        total = len(came)
        with contextlib.suppress(ConnectionResetError):
            while piece := to.recv(1 << 20):
                total += len(piece)
    assert total < 32 << 20
    assert not [record for record in caplog.records if record.exc_info]


def test_an_empty_file_is_whole_and_no_range_of_it_is_there(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    client = serving(tmp_path / "empty")
    assert (client.get("/file").status_code, client.get("/file").content) == (200, b"")
    assert client.get("/file", headers={"range": "bytes=0-"}).status_code == 416


@given(st.integers(0, 50), st.text("0123456789-, =bytes", max_size=20))
def test_no_header_reaches_beyond_the_file(size, text):
    try:
        span = asked_span(f"bytes={text}", size)
    except ValueError:
        return
    assert span is None or 0 <= span.start < span.stop <= size


def test_descriptors_are_closed(client):
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(20):
        client.get("/file", headers={"range": "bytes=5-9"})
        client.head("/file")
    assert len(list(Path("/dev/fd").iterdir())) <= before + 2


def test_names_of_downloads_are_told_in_any_script():
    assert disposition("a b.wav") == "attachment; filename=\"a b.wav\"; filename*=UTF-8''a%20b.wav"
    hostile = disposition('x"\r\nset-cookie: a=b.wav')
    assert "\r" not in hostile
    assert 'filename="x___set-cookie: a=b.wav"' in hostile
    assert "UTF-8''%E9%9B%A8.wav" in disposition("雨.wav")
    assert disposition("bad\udcff.wav").isascii()


# The guard


def test_every_answer_bears_the_policy(client):
    for address in ("/file", "/nothing", "/web/style.css", "/api", "/broken"):
        answer = client.get(address)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_errors_are_one_line_and_tell_nothing_of_the_inside(client):
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert list(answer.json()) == ["detail"]
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert client.get("/nothing").json() == {"detail": "Not Found"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:8377", "[::1]:8377", "LOCALHOST", "localhost.", "127.0.0.1:80"]
)
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/file", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:8377", "", "[", "10.0.0.1"])
def test_names_of_others_are_not(client, host):
    answer = client.get("/file", headers={"host": host})
    assert answer.status_code == 421
    assert "detail" in answer.json()


def test_pages_of_other_sites_neither_write_nor_read(client):
    own, other = {"origin": LOCAL}, {"origin": "https://evil.example"}
    assert client.put("/small", json={}, headers=own).status_code == 200
    assert client.put("/small", json={}).status_code == 200  # no browser
    for headers in (other, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
        assert client.put("/small", json={}, headers=headers).status_code == 403, headers
    assert client.get("/file", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/file", headers=link).status_code == 200
    assert client.put("/small", json={}, headers=link).status_code == 403


ODD = ("http://[::1", "[", "\x80\xff", "9" * 6000, '=;,="', "W/", "bytes=-", "\t", "%00%ff", "http://[v1.x]", "²")


@pytest.mark.parametrize(
    "name",
    [
        "origin",
        "host",
        "range",
        "if-range",
        "if-none-match",
        "if-match",
        "if-modified-since",
        "cookie",
        "authorization",
        "content-type",
        "accept",
        "sec-fetch-site",
        "content-encoding",
        "transfer-encoding",
        "expect",
        "connection",
    ],
)
def test_no_header_breaks_anything(tmp_path, name):
    (tmp_path / "f.bin").write_bytes(ALL)
    open_to_all, asking = serving(tmp_path / "f.bin"), serving(tmp_path / "f.bin", token="t" * 32)
    for value in ODD:
        for client in (open_to_all, asking):
            for method, address in (("GET", "/file"), ("PUT", "/small"), ("POST", "/take")):
                content = None if method == "GET" else b'{"a": 1}'
                answer = client.request(method, address, headers={name: value.encode("latin-1")}, content=content)
                assert answer.status_code < 500, (value, address)
                assert name != "origin" or method == "GET" or answer.status_code in (401, 403)


@pytest.mark.parametrize("other", ["a b=c", "x@y=1", "a[1]=2; b", '"', "=", "café=1", "k=\x7f"])
def test_cookies_of_others_lock_nobody_out(tmp_path, other):
    (tmp_path / "f.bin").write_bytes(ALL)
    client = serving(tmp_path / "f.bin", token="t" * 32)
    for cookies in (f"{other}; earmark=" + "t" * 32, "earmark=" + "t" * 32 + f"; {other}"):
        assert client.get("/file", headers={"cookie": cookies.encode("latin-1")}).status_code == 200


def test_browsers_without_a_token_get_a_page_to_read(tmp_path):
    (tmp_path / "f.bin").write_bytes(ALL)
    client = serving(tmp_path / "f.bin", token="t" * 32)
    told = client.get("/", headers={"accept": "text/html,application/xhtml+xml"})
    assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer")
    assert told.headers["content-type"].startswith("text/html")
    assert "earmark serve" in told.text
    assert list(client.get("/", headers={"accept": "*/*"}).json()) == ["detail"]
    hostile = serving(tmp_path / "f.bin").get("/", headers={"host": "<b>.example", "accept": "text/html"})
    assert (hostile.status_code, "<b>" in hostile.text) == (421, False)


def test_methods_that_a_path_knows_are_told(client):
    answer = client.put("/file")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert client.get("/small").headers["allow"] == "PUT"
    assert client.delete("/web/style.css").headers["allow"] == "GET, HEAD"


def test_bodies_that_are_no_json_are_wrong_parameters(client):
    for content in (b"{", b"\xff\xfe", b"[" * 60_000, b"", b'"x"'):
        answer = client.put("/small", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 422, content[:10]
        assert list(answer.json()) == ["detail"]


def test_a_full_disk_is_told(client, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(uploads, "_write_all", full)
    answer = client.post("/take", content=b"x")
    assert answer.status_code == 507
    assert "No space left" in answer.json()["detail"]


def test_a_token_is_asked_for_and_kept_as_a_cookie(tmp_path):
    (tmp_path / "f.bin").write_bytes(ALL)
    token = guard.new_token()
    client = serving(tmp_path / "f.bin", token=token)
    assert client.get("/file").status_code == 401
    for wrong in ("x", token[:-1], token + "x", "ü"):
        assert client.get("/file", params={"token": wrong}).status_code == 401
        assert client.get("/file", headers={"authorization": f"Bearer {wrong}".encode()}).status_code == 401
    assert client.get("/file", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert (
        client.get("/file", headers={"host": "sounds.example", "authorization": f"Bearer {token}"}).status_code == 200
    )
    first = client.get(f"/file?token={token}&name=a", follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/file?name=a")
    kept = first.headers["set-cookie"].lower()
    assert "httponly" in kept
    assert "samesite=lax" in kept
    assert client.get("/file").status_code == 200


def test_the_way_on_from_a_token_stays_here(tmp_path):
    (tmp_path / "f.bin").write_bytes(ALL)
    client = serving(tmp_path / "f.bin", token="t" * 32)
    for path in ("//evil.example/", "///evil.example/", "/%5Cevil.example/", "/%0d%0ax: y"):
        answer = client.get(f"{LOCAL}{path}?token=" + "t" * 32, follow_redirects=False)
        assert answer.status_code == 303
        assert re.match(r"/(?![/\\])", answer.headers["location"])
        assert "x" not in answer.headers


def test_websockets_are_not_answered():
    sent = []

    async def send(message):
        sent.append(message)

    import asyncio

    asyncio.run(Guard(FastAPI())({"type": "websocket", "headers": []}, None, send))
    assert not sent


def test_only_loopback_is_this_machine_alone():
    assert all(map(guard.is_loopback, ("127.0.0.1", "127.0.0.5", "::1", "localhost")))
    assert not any(map(guard.is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


# Uploads


def pieces(count: int, size: int = 100):
    for _ in range(count):
        yield b"x" * size


@pytest.mark.case("S05")
def test_uploads_are_bounded_with_and_without_a_stated_length(client):
    assert client.post("/take", content=b"x" * 1000).json()["bytes"] == 1000
    assert client.post("/take", content=pieces(10)).json()["bytes"] == 1000
    assert client.post("/take", content=b"x" * 1001).status_code == 413
    endless = client.post("/take", content=pieces(1_000_000))
    assert endless.status_code == 413
    assert list(endless.json()) == ["detail"]
    assert endless.headers["connection"] == "close"
    assert client.post("/take").status_code == 422


@pytest.mark.case("S05")
def test_a_stated_length_that_is_too_much_is_refused_before_the_body(tmp_path):
    (tmp_path / "f.bin").write_bytes(b"")
    with listening(serving(tmp_path / "f.bin").app) as address:
        for target in (b"POST /take", b"PUT /small"):
            for more in (b"Expect: 100-continue\r\n", b""):
                with socket.create_connection(address) as to:
                    to.settimeout(20)
                    to.sendall(
                        target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n" + more + b"\r\n"
                    )
                    assert to.recv(1000).startswith(b"HTTP/1.1 413")


def test_more_uploads_at_once_than_there_are_places_are_asked_to_come_again():
    import anyio

    async def go():
        places = anyio.CapacityLimiter(1)
        async with anyio.create_task_group() as group:
            with uploads.place(places):
                group.start_soon(refused, places)
                await anyio.sleep(0.01)
        with uploads.place(places):
            pass

    async def refused(places):
        with pytest.raises(uploads.HTTPException) as caught, uploads.place(places):
            pass
        assert (caught.value.status_code, caught.value.headers["retry-after"]) == (503, "5")

    anyio.run(go)


@pytest.mark.case("S05")
def test_bodies_where_no_file_is_taken_are_bounded_too(client):
    for content in (b'{"a": "' + b"x" * 100_000 + b'"}', pieces(1_000_000)):
        answer = client.put("/small", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert "65,536" in answer.json()["detail"]
    most = b'{"a": "' + b"x" * (guard.MOST_BODY - 9) + b'"}'
    assert client.put("/small", content=most, headers={"content-type": "application/json"}).status_code == 200


@pytest.mark.case("S05")
def test_what_was_sent_is_gone_afterwards(client):
    kept = client.post("/take", content=b"x" * 10).json()["path"]
    assert not Path(kept).exists()


@pytest.mark.case("S05")
def test_a_large_body_is_refused_while_it_streams_and_costs_no_memory(tmp_path):
    """A real server: 2 GB would be sent, and a few hundred KB are."""
    import uvicorn

    (tmp_path / "f.bin").write_bytes(b"")
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(serving(tmp_path / "f.bin").app, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        for headers in (b"Content-Length: 2000000000", b"Transfer-Encoding: chunked"):
            with socket.create_connection(listening.getsockname()) as to:
                to.settimeout(30)
                to.sendall(b"POST /take HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + b"\r\n\r\n")
                piece = b"x" * 65_536
                sent, answer = 0, b""
                try:
                    while sent < 2_000_000_000 and not answer:
                        to.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if b"chunked" in headers else piece)
                        sent += len(piece)
                        to.setblocking(False)
                        with contextlib.suppress(BlockingIOError):
                            answer = to.recv(65_536)
                        to.settimeout(30)
                except (ConnectionResetError, BrokenPipeError):
                    answer = answer or b"HTTP/1.1 413 (reset)"
                assert answer.startswith(b"HTTP/1.1 413")
                assert sent < 64 << 20
    finally:
        server.should_exit = True
        thread.join(20)


def test_slow_uploads_end(tmp_path):
    import asyncio

    async def slow():
        while True:
            await asyncio.sleep(10)
            yield b""

    class Slowly:
        stream = staticmethod(slow)
        headers = httpx.Headers()

    async def go():
        async with uploads.upload(Slowly(), patience_s=0.05):
            pass

    with pytest.raises(uploads.HTTPException, match="took more than") as caught:
        asyncio.run(go())
    assert caught.value.status_code == 408


@pytest.mark.case("S05")
def test_sounds_are_bounded_in_length_however_small_the_file(tmp_path, monkeypatch):
    path = tmp_path / "long.flac"
    soundfile.write(path, np.zeros(8000 * 30), 8000)
    assert path.stat().st_size < 20_000
    assert uploads.check_length(path) == uploads.check_length(path, 30) == 30
    with pytest.raises(uploads.HTTPException, match="more than 20 s"):
        uploads.check_length(path, 20)
    monkeypatch.setattr(uploads, "MOST_SAMPLES", 100_000)
    with pytest.raises(uploads.HTTPException, match="more than 100,000 samples"):
        uploads.check_length(path)
    monkeypatch.setattr(uploads, "MOST_SAMPLES", 500_000)
    assert uploads.check_length(path) == 30
    soundfile.write(path, np.zeros((8000 * 30, 4)), 8000)
    with pytest.raises(uploads.HTTPException, match="more than 500,000 samples in 4 channels"):
        uploads.check_length(path)
    (tmp_path / "x").write_bytes(b"no sound at all")
    with pytest.raises(DataError, match="the sound") as caught:
        uploads.check_length(tmp_path / "x")
    assert str(tmp_path) not in str(caught.value)


# Waveforms


def noise(seconds: float, rate: int = 8000) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.9, 0.9, round(seconds * rate)).astype(np.float32)


@pytest.mark.parametrize("size", [1, 7, 1000, 50_000])
def test_an_overview_is_what_numpy_says_whatever_the_blocks(size):
    wave = noise(6.0)
    found = peaks.overview_of((wave[at : at + size] for at in range(0, len(wave), size)), 8000, most=1000)
    assert len(found.pairs) <= 1000
    assert found.samples == len(wave)
    cuts = range(0, len(wave), found.step)
    wanted = [(wave[at : at + found.step].min(), wave[at : at + found.step].max()) for at in cuts]
    assert len(wanted) == len(found.pairs)
    np.testing.assert_allclose(found.pairs / peaks.LEVEL, wanted, atol=0.02)


def test_a_stretch_that_waits_for_its_partner_keeps_its_peaks():
    wave = np.zeros(40, np.float32)
    wave[16:18] = 0.8, -0.4
    found = peaks.overview_of([wave[:20], wave[20:]], 8000, most=4)  # five stretches come first
    assert len(peaks.overview_of([wave[:17]], 8000, most=4).pairs) <= 4  # with the rest
    assert (found.pairs[16 // found.step] / peaks.LEVEL).tolist() == pytest.approx([-0.4, 0.8], abs=0.01)


@pytest.mark.parametrize("points", [1, 3, 100, 1000])
def test_peaks_hold_what_is_loud_and_where(points):
    wave = np.zeros(8000 * 10, np.float32)
    wave[8000 * 7] = 0.8
    whole = peaks.overview_of([wave], 8000)
    drawn = peaks.peaks(whole, points=points)
    assert drawn.pairs.shape == (points, 2)
    assert drawn.pairs.max() == pytest.approx(0.8, abs=0.01)
    at = drawn.pairs[:, 1].argmax() / points * 10
    assert at == pytest.approx(7.0, abs=10 / points)
    part = peaks.peaks(whole, 6.9, 7.1, points=100)
    assert (part.start_s, part.end_s) == pytest.approx((6.9, 7.1), abs=0.001)
    assert part.pairs[:, 1].argmax() == pytest.approx(50, abs=1)
    assert peaks.peaks(whole, 0, 6.9).pairs.max() == 0
    assert peaks.peaks(whole, 0, 0.0013).end_s == pytest.approx(0.0015)  # whole stretches


def test_regions_and_points_that_are_none_are_refused():
    whole = peaks.overview_of([noise(1.0)], 8000)
    for start, end in ((1.0, 2.0), (0.5, 0.5), (-1, 0.5), (0.9, 0.1), (float("nan"), 1)):
        with pytest.raises(ConfigError, match="expected a part of 0 to 1 s"):
            peaks.peaks(whole, start, end)
    for points in (0, 1001):
        with pytest.raises(ConfigError, match="expected 1 to 1,000"):
            peaks.peaks(whole, points=points)


@pytest.mark.case("S11", "S12")
def test_waveforms_of_long_sounds_have_a_fixed_size():
    block = noise(10.0, 2000)
    for minutes in (0.2, 18, 120):
        whole = peaks.overview_of((block for _ in range(int(minutes * 6) or 1)), 2000)
        assert whole.duration_s == pytest.approx(max(10, minutes * 60), abs=10)
        assert len(whole.pairs) <= peaks.MOST
        assert whole.pairs.nbytes <= 1 << 19
        assert len(peaks.peaks(whole).pairs) <= peaks.MOST_POINTS


@pytest.mark.case("S10")
def test_the_drawing_of_a_long_mp3_of_low_rate_is_true_at_its_end(tmp_path):
    """25 minutes at 8 kHz, a click every five minutes: drawn where the decoder has them."""
    rate, clicks = 8000, [1.0, 300.0, 600.0, 900.0, 1200.0, 1499.0]
    wave = np.zeros(25 * 60 * rate, np.float32)
    for at in clicks:
        wave[round(at * rate) : round(at * rate) + 80] = 0.7
    path = tmp_path / "long.mp3"
    soundfile.write(path, wave, rate, format="MP3")
    whole = peaks.overview(path)
    assert whole.duration_s == pytest.approx(1500, abs=0.5)
    decoded, _ = soundfile.read(path, dtype="float32")
    for at in clicks:
        drawn = peaks.peaks(whole, at - 0.5, at + 0.5, points=200)
        loud = np.abs(drawn.pairs).max(axis=1) > 0.3
        seen = drawn.start_s + loud.argmax() / len(loud) * (drawn.end_s - drawn.start_s)
        heard = (np.abs(decoded[round((at - 0.5) * rate) :]) > 0.3).argmax() / rate + at - 0.5
        assert seen == pytest.approx(heard, abs=0.03)
        assert seen == pytest.approx(at, abs=0.2)


def test_an_overview_is_read_by_the_path_that_is_held(tmp_path):
    path, other = tmp_path / "a.wav", tmp_path / "b.wav"
    soundfile.write(path, noise(1.0), 8000)
    soundfile.write(other, noise(3.0), 8000)
    with path.open("rb") as file:
        held = Path(f"/proc/self/fd/{file.fileno()}")
        if not held.exists():
            pytest.skip("no /proc here")
        other.replace(path)
        assert peaks.overview(path, held).duration_s == 1
    assert peaks.overview(path).duration_s == 3


def test_overviews_are_kept_until_the_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "a.wav"
    soundfile.write(path, noise(1.0), 8000)
    first = peaks.overview(path)
    with monkeypatch.context() as patched:
        patched.setattr(peaks, "blocks", None)
        assert np.array_equal(peaks.overview(path).pairs, first.pairs)
    kept = peaks._place(path)
    kept.write_bytes(kept.read_bytes()[:100])  # a damaged one is made anew
    assert np.array_equal(peaks.overview(path).pairs, first.pairs)
    time.sleep(0.01)
    soundfile.write(path, noise(2.0), 8000)
    assert peaks.overview(path).duration_s == 2


# Sounds for browsers


@pytest.mark.parametrize(
    ("name", "options", "kind", "played"),
    [
        ("a.wav", {"subtype": "PCM_16"}, "audio/wav", True),
        ("a.wav", {"subtype": "PCM_24"}, "audio/wav", True),
        ("a.wav", {"subtype": "FLOAT"}, "audio/wav", True),
        ("a.wav", {"subtype": "DOUBLE"}, "audio/wav", False),
        ("a.wav", {"subtype": "ULAW"}, "audio/wav", False),
        ("a.wav", {"subtype": "IMA_ADPCM"}, "audio/wav", False),
        ("a.wav", {"format": "RF64"}, "audio/wav", False),
        ("a.flac", {}, "audio/flac", True),
        ("a.ogg", {}, "audio/ogg", True),
        ("a.mp3", {}, "audio/mpeg", False),
        ("a.aiff", {}, "audio/aiff", False),
        ("a.caf", {"format": "CAF"}, "audio/x-caf", False),
        ("a.wav", {"format": "AIFF"}, "audio/aiff", False),
    ],
)
def test_what_browsers_cannot_play_is_converted_once(tmp_path, name, options, kind, played):
    path = tmp_path / name
    stereo = np.stack([noise(0.5, 44_100), 0.5 * noise(0.5, 44_100)[::-1]], axis=1)
    soundfile.write(path, stereo, 44_100, **options)
    descriptor = os.open(path, os.O_RDONLY)
    assert sounds.media_type(descriptor) == (kind, played)
    os.close(descriptor)
    kept = sounds.converted(path)
    heard, rate = soundfile.read(kept)
    assert (rate, soundfile.info(kept).subtype) == (44_100, "PCM_16")
    own, _ = soundfile.read(path)
    np.testing.assert_allclose(heard, np.clip(own, -1, 1), atol=1e-3)
    assert sounds.converted(path) == kept


def test_only_the_file_that_was_indexed_is_opened(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(b"sound")
    state = path.stat()
    os.close(sounds.open_unchanged(path, state.st_size, state.st_mtime_ns))
    secret = tmp_path / "secret"
    secret.write_bytes(b"other")
    path.unlink()
    with pytest.raises(DataError, match="cannot be read any more"):
        sounds.open_unchanged(path, state.st_size, state.st_mtime_ns)
    path.symlink_to(secret)
    with pytest.raises(DataError, match="has changed since it was indexed"):
        sounds.open_unchanged(path, state.st_size, state.st_mtime_ns)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="has changed"):
        sounds.open_unchanged(path, state.st_size, state.st_mtime_ns)


def test_converted_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sounds, "MOST_KEPT", 40_000)
    kept = []
    for at in range(4):
        path = tmp_path / f"{at}.aiff"
        soundfile.write(path, noise(1.0), 8000)
        kept.append(sounds.converted(path))
        os.utime(kept[-1], (at, at))
    assert [each.exists() for each in kept] == [False, False, True, True]
    sounds.converted(tmp_path / "2.aiff")  # was asked for last
    monkeypatch.setattr(sounds, "MOST_KEPT", 20_000)
    sounds._forget_oldest(kept[2])
    assert [each.exists() for each in kept] == [False, False, True, False]
    monkeypatch.setattr(sounds, "MOST_KEPT", 10_000)  # fewer than one has
    soundfile.write(tmp_path / "4.aiff", noise(1.0), 8000)
    assert sounds.converted(tmp_path / "4.aiff").exists()


# The page of the API


def test_the_description_of_the_api_loads_nothing_from_elsewhere(client):
    for address in ("/api", "/web/api.js", "/web/style.css", "/web/dom.js", "/web/player.js"):
        answer = client.get(address)
        assert answer.status_code == 200
        told = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in told
        assert "https://" not in told
    for address in ("/docs", "/redoc", "/web/../guard.py", "/web/%2e%2e/guard.py", "/web/", "/web/__init__.py"):
        assert client.get(address).status_code == 404


def test_pages_are_asked_for_again_only_when_they_changed(client):
    first = client.get("/web/style.css")
    again = client.get("/web/style.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head("/web/style.css").content == b""


def test_spans_are_plain():
    assert asked_span("bytes=2-3", 10) == Span(2, 4)
    assert httpx.URL(LOCAL).host == "127.0.0.1"
