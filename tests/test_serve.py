"""The search server's REST, over a small index of a random model, and the ratings that it keeps."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import anyio
import httpx2 as httpx
import numpy as np
import pytest
import soundfile
from indices import NAMES, random_run, small_sounds, write_sound
from starlette.testclient import TestClient

from earmark.commands.serve import serve
from earmark.data.collection import Collection
from earmark.errors import ConfigError, DataError, EarmarkError
from earmark.search import rated as ratings
from earmark.search.app import create_app
from earmark.search.engine import Engine
from earmark.search.index import build
from earmark.search.library import Library
from earmark.search.rated import Rated, Region
from earmark.web import sounds as browsers

LOCAL = "http://127.0.0.1"
HOSTILE = "<img src=x onerror=alert(1)>.wav"
SECRET = "not for you"
REPOSITORY = Path(__file__).resolve().parent.parent
RATED = [
    "text.encoder=all-MiniLM-L6-v2",
    "model.dim=384",
    "train.max_epochs=2",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory, sentence_encoder):
    """A folder with `index`, `sounds`, and beside the sounds a private folder whose name begins alike."""
    root = tmp_path_factory.mktemp("serve")
    sounds = small_sounds(root / "sounds")
    write_sound(sounds / "odd" / HOSTILE, 1.1, seed=3)
    write_sound(sounds / "odd" / "bell.aiff", 1.2, seed=4, rate=44_100, channels=2)
    shutil.copyfile(sounds / NAMES[0], sounds / "odd" / os.fsdecode(b"caf\xe9.wav"))
    write_sound(root / "sounds_private" / "x.wav", 1.0, seed=5)
    (root / "secret.txt").write_text(SECRET)
    build([sounds], root / "index", model=str(random_run(root / "run")))
    return root


@pytest.fixture(scope="module")
def engine(made):
    return Engine(made / "index")


@pytest.fixture
def client(engine, tmp_path):
    return TestClient(create_app(engine, ratings=tmp_path / "ratings"), base_url=LOCAL)


def hit(client: TestClient, name: str) -> dict:
    """The hit of that name."""
    hits = client.get("/api/search", params={"q": "a sound", "limit": 100, "fold": False}).json()["hits"]
    return next(each for each in hits if each["name"] == name)


# Searching


def test_words_bring_files_by_opaque_ids(client):
    answer = client.get("/api/search", params={"q": "dog", "limit": 3}).json()
    assert len(answer["hits"]) == 3
    assert answer["searched"] == 12
    first = answer["hits"][0]
    assert first["named"]
    assert first["name"] in ("dog_bark.wav", "puppy_whine.wav", "caf\\xe9.wav")
    assert all(len(each["id"]) == 32 and set(each["id"]) <= set("0123456789abcdef") for each in answer["hits"])
    assert {"start_s", "end_s", "cosine", "score", "duration_s", "rate", "channels", "others"} <= set(first)


@pytest.mark.case("M08")
@pytest.mark.parametrize("words", ["", " ", "\n", "\u200b"])
def test_blank_words_are_refused_as_the_command_line_does(client, engine, words):
    from earmark.search.query import Query

    for address in ("/api/search", "/api/export"):
        answer = client.get(address, params={"q": words})
        assert answer.status_code == 422
        with pytest.raises(DataError) as caught:
            engine.search(Query(words))
        assert answer.json() == {"detail": str(caught.value)}


def test_filters_narrow(client):
    found = client.get("/api/search", params={"q": "a", "channels": 2, "longest_s": 2.0, "limit": 50}).json()
    assert found["hits"]
    assert found["searched"] == len(found["hits"])
    assert all(each["channels"] == 2 and each["duration_s"] <= 2.0 for each in found["hits"])
    assert [each["rate"] for each in client.get("/api/search", params={"q": "a", "rate": [8000]}).json()["hits"]] == [
        8000
    ]
    only = client.get("/api/search", params={"q": "a", "folder": "weather"}).json()["hits"]
    assert {Path(each["folder"]).name for each in only} == {"weather"}
    none = client.get("/api/search", params={"q": "a", "shortest_s": 1000}).json()
    assert (none["hits"], none["searched"]) == ([], 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 501},
        {"limit": "x"},
        {"like": "../../etc/passwd"},
        {"like": "x@1"},
        {"longest_s": "nan"},
        {"longest_s": -1},
        {"channels": "two"},
        {"q": "x" * 3000},
        {"tag": ["a"] * 30},
    ],
)
def test_wrong_parameters_are_refused_in_one_line(client, wrong):
    answer = client.get("/api/search", params={"q": "rain", **wrong})
    assert answer.status_code == 422
    assert list(answer.json()) == ["detail"]
    assert "\n" not in answer.json()["detail"]


def test_more_like_a_hit_begins_with_itself(client):
    found = hit(client, "rain_on_roof.flac")
    like = f"{found['id']}@{found['start_s']}"
    first = client.get("/api/search", params={"like": like}).json()["hits"][0]
    assert first["id"] == found["id"]
    assert first["cosine"] == pytest.approx(1, abs=1e-4)
    assert client.get("/api/search", params={"like": "0" * 32 + "@0"}).status_code == 404


def test_an_uploaded_sound_finds_itself(client, made):
    sent = client.post("/api/like", content=(made / "sounds" / NAMES[4]).read_bytes())
    assert sent.status_code == 200
    assert sent.json()["duration_s"] == pytest.approx(1.7, abs=0.01)
    found = client.get("/api/search", params={"like": sent.json()["like"]}).json()["hits"]
    assert found[0]["name"] == "door_slam.ogg"
    assert client.get("/api/search", params={"like": "u" + "0" * 32}).status_code == 404


def test_of_sounds_that_were_sent_those_that_were_asked_for_last_are_kept(client, made, monkeypatch):
    monkeypatch.setattr("earmark.search.library.VECTORS_KEPT", 2)
    sound = (made / "sounds" / NAMES[0]).read_bytes()
    first, second = (client.post("/api/like", content=sound).json() for _ in range(2))
    assert client.get("/api/search", params={"like": first["like"]}).status_code == 200
    third = client.post("/api/like", content=sound).json()
    kept = [client.get("/api/search", params={"like": each["like"]}).status_code for each in (first, second, third)]
    assert kept == [200, 404, 200]


def test_a_sound_that_another_model_heard_is_not_searched_by(engine):
    library = Library(engine)
    like = library.remember(np.ones(8, np.float32))
    library._vectors[like] = ("of before", library.vector(like))
    with pytest.raises(DataError, match="not at hand any more"):
        library.vector(like)


@pytest.mark.parametrize("content", [b"", b"no sound", b"RIFF\x00\x00\x00\x00WAVE"])
def test_an_upload_without_sound_is_refused_without_a_path(client, content):
    answer = client.post("/api/like", content=content)
    assert answer.status_code == 422
    assert "/tmp" not in answer.json()["detail"]
    assert ".upload" not in answer.json()["detail"]


@pytest.mark.case("S05")
def test_many_uploads_that_decode_long_block_nobody(engine, tmp_path, monkeypatch):
    """Twenty at once: one is decoded, the others wait or are asked to come again, and a search is answered."""
    from earmark.web import uploads

    running, most, go_on = [], [], threading.Event()

    def long(path, most_s):
        running.append(path)
        most.append(len(running))
        go_on.wait(20)
        running.remove(path)
        raise DataError("no sound")

    monkeypatch.setattr(uploads, "check_length", long)
    with TestClient(create_app(engine, ratings=tmp_path / "r"), base_url=LOCAL) as client:
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(client.post("/api/like", content=b"x").status_code))
            for _ in range(uploads.MOST_AT_ONCE + 4)
        ]
        for each in threads:
            each.start()
        assert client.get("/api/search", params={"q": "dog"}).json()["hits"]
        assert client.get("/api/about").status_code == 200
        until = time.monotonic() + 20
        while found.count(503) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        go_on.set()
        for each in threads:
            each.join()
    assert max(most) == 1
    assert sorted(found) == [422] * uploads.MOST_AT_ONCE + [503] * 4


@pytest.mark.case("S05")
def test_uploads_are_bounded(engine, tmp_path, monkeypatch):
    from earmark.web import uploads

    monkeypatch.setattr(uploads, "MOST_BYTES", 5000)
    monkeypatch.setattr(uploads, "MOST_S", 1.0)
    client = TestClient(create_app(engine, ratings=tmp_path), base_url=LOCAL)
    soundfile.write(tmp_path / "a.flac", np.zeros(8000 * 3), 8000)
    assert (tmp_path / "a.flac").stat().st_size < 5000
    assert "more than 1 s" in client.post("/api/like", content=(tmp_path / "a.flac").read_bytes()).json()["detail"]
    assert client.post("/api/like", content=b"x" * 5001).status_code == 413
    assert client.post("/api/like", content=(b"x" * 1000 for _ in range(10_000))).status_code == 413


def test_what_the_index_holds_is_told(client):
    told = client.get("/api/about").json()
    assert told["files"] == 12
    assert {each["value"]: each["files"] for each in told["rates"]} == {"16000": 10, "8000": 1, "44100": 1}
    assert sum(each["files"] for each in told["channels"]) == 12


def test_the_api_describes_itself_whole(client):
    told = client.get("/openapi.json").json()
    assert set(told["paths"]) == {
        "/api/about",
        "/api/search",
        "/api/export",
        "/api/like",
        "/api/sounds/{file_id}",
        "/api/sounds/{file_id}/facts",
        "/api/sounds/{file_id}/play",
        "/api/sounds/{file_id}/peaks",
        "/api/sounds/{file_id}/cut",
        "/api/ratings",
    }
    for methods in told["paths"].values():
        for about in methods.values():
            assert about["description"]
    assert {"Result", "Found", "GivenRating", "Wave"} <= set(told["components"]["schemas"])
    for address in ("/", "/search/search.js", "/search/hits.js", "/search/filters.js", "/search/keys.js"):
        assert client.get(address).status_code == 200
        assert "http" + "://" not in client.get(address).text


ROUTES = (
    "about",
    "search?q=a%20wolf",
    "export?q=a%20wolf",
    "sounds/ID/facts",
    "sounds/ID",
    "sounds/ID/play",
    "sounds/ID/peaks",
    "sounds/ID/cut?start=0&end=1",
    "search?like=ID@0",
)


@pytest.mark.parametrize("fault", ["removed", "removed while it was asked", "no windows", "damaged", "another version"])
def test_an_index_that_is_away_is_told_on_every_route_and_never_made(made, tmp_path, fault):
    index = tmp_path / "index"
    shutil.copytree(made / "index", index)
    engine = Engine(index)
    client = TestClient(create_app(engine), base_url=LOCAL, raise_server_exceptions=False)
    shutil.rmtree(index / "ratings")
    found = hit(client, "dog_bark.wav")
    if fault.startswith("removed"):
        if "asked" not in fault:
            engine._current = None
        shutil.rmtree(index)
    elif fault == "no windows":
        shutil.rmtree(index / "windows.lance")
    elif fault == "damaged":
        for each in (index / "windows.lance").rglob("*.*"):
            each.write_bytes(b"x")
    else:
        (index / "index.toml").write_text("format = 99\n")
    for route in ROUTES:
        answer = client.get("/api/" + route.replace("ID", found["id"]))
        assert answer.status_code in (200, 404, 503), route
        assert answer.status_code == 503 or not fault.startswith("removed"), route
        assert answer.status_code == 200 or list(answer.json()) == ["detail"]
    answer = put(client, found, "dog", 50)
    assert answer.status_code == 200 or list(answer.json()) == ["detail"]
    assert index.exists() != fault.startswith("removed")
    assert client.get("/").status_code == 200


def test_an_index_that_cannot_be_read_at_the_start_is_one_line(made, tmp_path):
    for text in ("format = 99\n", "format = [\n", "format = 1\nfolders = 3\n"):
        shutil.copytree(made / "index", tmp_path / "index", dirs_exist_ok=True)
        (tmp_path / "index" / "index.toml").write_text(text)
        with pytest.raises(DataError) as caught:
            serve(tmp_path / "index")
        assert "\n" not in str(caught.value)


# Sounds


@pytest.mark.case("S04")
def test_sounds_are_served_by_id_whole_and_in_part(client, made):
    found = hit(client, "kick_01.wav")
    own = (made / "sounds" / NAMES[6]).read_bytes()
    for address in (f"/api/sounds/{found['id']}", f"/api/sounds/{found['id']}/play"):
        answer = client.get(address)
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "audio/wav", own)
        part = client.get(address, headers={"range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, own[100:200])
        assert client.get(address, headers={"range": "bytes=-500"}).content == own[-500:]
        assert client.get(address, headers={"range": "bytes=999999999-"}).status_code == 416
        head = client.head(address)
        assert (head.status_code, head.content, int(head.headers["content-length"])) == (200, b"", len(own))
    saved = client.get(f"/api/sounds/{found['id']}", params={"download": True})
    assert 'filename="kick_01.wav"' in saved.headers["content-disposition"]


def test_what_browsers_cannot_play_is_converted(client, made):
    found = hit(client, "bell.aiff")
    assert client.get(f"/api/sounds/{found['id']}").headers["content-type"] == "audio/aiff"
    played = client.get(f"/api/sounds/{found['id']}/play")
    assert played.headers["content-type"] == "audio/wav"
    heard, rate = soundfile.read(io.BytesIO(played.content))
    own, _ = soundfile.read(made / "sounds" / "odd" / "bell.aiff")
    assert rate == 44_100
    np.testing.assert_allclose(heard, own, atol=1e-4)
    assert client.get(f"/api/sounds/{found['id']}/play", headers={"range": "bytes=0-3"}).content == b"RIFF"


def as_is(client: TestClient, target: str) -> tuple[int, bytes]:
    """Status and body of GET for a target that nothing has tidied, as `curl --path-as-is` sends it."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    anyio.run(client.app, scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.case("S01", "S02")
@pytest.mark.parametrize(
    "place",
    [
        "../sounds_private/x.wav",
        "..%2fsounds_private%2fx.wav",
        "%2e%2e/%2e%2e/secret.txt",
        "..%5c..%5csecret.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "....//....//secret.txt",
        "x%27%20OR%20%271%27=%271",
        "%00",
        "0" * 32,
        "../../secret.txt/facts",
    ],
)
def test_nothing_but_indexed_files_is_reachable(client, place):
    for prefix in ("/api/sounds/", "/search/", "/web/", "/"):
        for suffix in ("", "/play", "/peaks", "/cut?start=0&end=1"):
            status, body = as_is(client, f"{prefix}{place}{suffix}")
            assert status in (404, 405, 422), (prefix, place, suffix)
            assert SECRET.encode() not in body
            assert b"root:" not in body


@pytest.mark.case("S02")
def test_files_that_changed_since_are_not_served(made, tmp_path, sentence_encoder, monkeypatch):
    sounds = tmp_path / "sounds"
    for at in range(3):
        write_sound(sounds / f"{at}.wav", 1.0, seed=at)
    build([sounds], tmp_path / "index", model=str(made / "run"))
    client = TestClient(create_app(Engine(tmp_path / "index")), base_url=LOCAL)
    ids = [hit(client, f"{at}.wav")["id"] for at in range(3)]
    (sounds / "0.wav").unlink()
    (sounds / "1.wav").unlink()
    (sounds / "1.wav").symlink_to(made / "secret.txt")
    write_sound(sounds / "2.wav", 2.0, seed=9)
    for at, what in enumerate(("cannot be read any more", "has changed", "has changed")):
        for part in ("", "/play", "/peaks", "/cut?start=0&end=0.5"):
            answer = client.get(f"/api/sounds/{ids[at]}{part}")
            assert answer.status_code == 404, part
            assert what in answer.json()["detail"]
            assert f"{at}.wav" in answer.json()["detail"]
    write_sound(sounds / "3.aiff", 1.0, seed=3)
    build([sounds], tmp_path / "index")
    real, found = browsers.converted, hit(client, "3.aiff")["id"]
    monkeypatch.setattr(browsers, "converted", lambda path: real(write_sound(path, 2.0, seed=8)))
    assert client.get(f"/api/sounds/{found}/play").status_code == 404  # it changed while it was read
    rating = {"q": "a", "id": ids[0], "start_s": 0, "end_s": 1.0, "rating": 5}
    assert client.put("/api/ratings", json=rating).status_code == 404


@pytest.mark.case("S08")
def test_hostile_names_are_text_everywhere(client):
    found = hit(client, HOSTILE)
    facts = client.get(f"/api/sounds/{found['id']}/facts")
    assert facts.headers["content-type"] == "application/json"
    assert facts.json()["name"] == HOSTILE
    saved = client.get(f"/api/sounds/{found['id']}", params={"download": True})
    assert "attachment" in saved.headers["content-disposition"]
    for form in ("m3u", "csv", "json"):
        answer = client.get("/api/export", params={"q": "a", "form": form, "limit": 50})
        assert "html" not in answer.headers["content-type"]


def test_names_that_are_not_utf8_are_served(client, made):
    found = hit(client, "caf\\xe9.wav")
    own = (made / "sounds" / "odd" / os.fsdecode(b"caf\xe9.wav")).read_bytes()
    assert client.get(f"/api/sounds/{found['id']}/play").content == own
    assert client.get(f"/api/sounds/{found['id']}", params={"download": True}).status_code == 200
    assert client.get(f"/api/sounds/{found['id']}/peaks").status_code == 200


@pytest.mark.case("S11", "S12")
def test_waveforms_are_small_whatever_the_sound(client):
    found = hit(client, "river.wav")
    answer = client.get(f"/api/sounds/{found['id']}/peaks").json()
    assert (answer["start_s"], answer["end_s"]) == (0, 23)
    assert len(answer["peaks"]) == 500
    assert all(-1 <= least <= largest <= 1 for least, largest in answer["peaks"])
    part = client.get(f"/api/sounds/{found['id']}/peaks", params={"start": 5, "end": 6, "points": 10}).json()
    assert len(part["peaks"]) == 10
    for wrong in ({"points": 1001}, {"points": 0}, {"start": 30}, {"start": 5, "end": 4}, {"start": "nan"}):
        answer = client.get(f"/api/sounds/{found['id']}/peaks", params=wrong)
        assert answer.status_code in (400, 422), wrong
        assert list(answer.json()) == ["detail"]


def test_a_part_is_cut_as_the_file_is(client, made):
    found = hit(client, "bell.aiff")
    answer = client.get(f"/api/sounds/{found['id']}/cut", params={"start": 0.25, "end": 0.75})
    assert answer.status_code == 200
    assert "bell_0.250-0.750.aiff" in answer.headers["content-disposition"]
    heard, rate = soundfile.read(io.BytesIO(answer.content))
    own, _ = soundfile.read(made / "sounds" / "odd" / "bell.aiff")
    assert rate == 44_100
    assert heard.shape == (22_050, 2)
    np.testing.assert_allclose(heard, own[11_025:33_075], atol=1e-4)
    beyond = client.get(f"/api/sounds/{found['id']}/cut", params={"start": 0.25, "end": 9_999})
    assert "bell_0.250-1.200.aiff" in beyond.headers["content-disposition"]
    for wrong in ({"start": 0.5, "end": 0.5}, {"start": 2, "end": 3}, {"start": 1, "end": 0}, {"start": -1, "end": 1}):
        assert client.get(f"/api/sounds/{found['id']}/cut", params=wrong).status_code == 422


@pytest.mark.parametrize("end", [1e-300, 1e-9, 0.0009])
def test_a_part_of_less_than_a_millisecond_is_refused(client, end):
    found = hit(client, "bell.aiff")
    answer = client.get(f"/api/sounds/{found['id']}/cut", params={"start": 0, "end": end})
    assert answer.status_code == 422
    assert "of 0.001 to 3600 s" in answer.json()["detail"]


def test_heads_are_answered_where_gets_are(client):
    found = hit(client, "bell.aiff")
    sound = f"/api/sounds/{found['id']}"
    asked = ["/api/about", "/api/search?q=dog", "/api/export?q=dog", "/api/ratings?q=dog", "/", "/api", "/openapi.json"]
    for address in (*asked, sound, f"{sound}/facts", f"{sound}/play", f"{sound}/peaks", f"{sound}/cut?start=0&end=1"):
        got, head = client.get(address), client.head(address)
        assert (head.status_code, head.content) == (200, b""), address
        assert head.headers["content-type"] == got.headers["content-type"]
    assert client.post("/api/ratings").headers["allow"] == "GET, HEAD, PUT"
    assert client.get("/api/like").headers["allow"] == "POST"


def test_exports_are_the_hits(client):
    question = {"q": "door", "limit": 4}
    hits = client.get("/api/search", params=question).json()["hits"]
    playlist = client.get("/api/export", params={**question, "form": "m3u"})
    assert 'filename="earmark.m3u"' in playlist.headers["content-disposition"]
    assert [line for line in playlist.text.splitlines() if not line.startswith("#")] == [h["path"] for h in hits]
    rows = list(csv.DictReader(io.StringIO(client.get("/api/export", params={**question, "form": "csv"}).text)))
    assert [row["path"] for row in rows] == [each["path"] for each in hits]
    assert list(rows[0])[:4] == ["path", "start_s", "end_s", "score"]
    told = json.loads(client.get("/api/export", params={**question, "form": "json"}).text)
    assert [each["path"] for each in told] == [each["path"] for each in hits]
    assert client.get("/api/export", params={**question, "form": "exe"}).status_code == 422


# Ratings


def put(client: TestClient, found: dict, words: str, rating: float | None, **more) -> httpx.Response:
    row = {"q": words, "id": found["id"], "start_s": found["start_s"], "end_s": found["end_s"], "rating": rating}
    return client.put("/api/ratings", json={**row, **more})


def test_a_rating_is_kept_with_what_was_shown(client, tmp_path):
    found = client.get("/api/search", params={"q": "dog"}).json()["hits"]
    more = {"rank": 1, "played_s": 0.4, "cosine": found[0]["cosine"], "stratum": "search"}
    assert put(client, found[0], "a  dog", 80, **more).status_code == 200
    assert put(client, found[1], "A Dog", 20.5, rank=2).status_code == 200  # the first spelling stays
    kept = Collection.read(tmp_path / "ratings")
    assert kept.check() == []
    assert [caption.text for caption in kept.captions] == ["a dog"]
    first, second = kept.ratings
    assert (first.rating, second.rating) == (80, 20.5)
    assert (first.stratum, first.played_s, first.more["rank"]) == ("search", 0.4, "1")
    assert first.rater_id == second.rater_id != ""
    assert first.more["model"]
    assert kept.captions[0].clip_id == first.clip_id
    assert [clip.split for clip in kept.clips] == ["development", "development-lists"]
    own = client.get("/api/ratings", params={"q": "A dog"}).json()
    assert {each["id"]: each["rating"] for each in own} == {found[0]["id"]: 80, found[1]["id"]: 20.5}
    client.cookies.clear()
    assert client.get("/api/ratings", params={"q": "a dog"}).json() == []


def test_the_last_rating_counts_and_all_are_kept(client, tmp_path):
    found = client.get("/api/search", params={"q": "dog"}).json()["hits"]
    for rating in (10, 90, 40):
        put(client, found[0], "dog", rating)
    put(client, found[1], "dog", 60)
    kept = Collection.read(tmp_path / "ratings")
    assert [rating.rating for rating in kept.ratings] == [40, 60]
    assert kept.captions[0].clip_id == kept.ratings[1].clip_id
    assert put(client, found[1], "dog", None).json() is None
    kept = Collection.read(tmp_path / "ratings")
    assert [rating.rating for rating in kept.ratings] == [40]
    assert kept.check() == []
    put(client, found[0], "dog", None)
    kept = Collection.read(tmp_path / "ratings")
    assert (kept.ratings, kept.captions, kept.clips) == ([], [], [])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "ratings" / "history.csv").read_text())))
    assert [row["rating"] for row in rows] == ["10", "90", "40", "60", "", ""]


def test_windows_of_long_files_are_cut_once(client, tmp_path):
    found = hit(client, "river.wav")
    put(client, found, "a river", 70)
    put(client, found, "water", 60)
    kept = Collection.read(tmp_path / "ratings")
    assert kept.check() == []
    (clip,) = kept.clips
    assert clip.path == f"sounds/{clip.clip_id}.wav"
    assert soundfile.info(kept.audio_path(clip)).duration == pytest.approx(found["end_s"] - found["start_s"])
    short = hit(client, "kick_01.wav")
    put(client, short, "a drum", 50)
    kept = Collection.read(tmp_path / "ratings")
    assert kept.audio_path(kept.clips[-1]) == Path(short["path"])
    assert [path.name for path in (tmp_path / "ratings" / "sounds").iterdir()] == [f"{clip.clip_id}.wav"]


def test_sounds_whose_names_no_table_holds_are_copied(client, tmp_path):
    put(client, hit(client, "caf\\xe9.wav"), "a cup", 70)
    kept = Collection.read(tmp_path / "ratings")
    assert kept.check() == []
    assert kept.clips[0].path.startswith("sounds/")


@pytest.mark.parametrize(
    "wrong", [{"rating": 101}, {"rating": -1}, {"rating": "NaN"}, {"q": " "}, {"q": "\u200b"}, {"stratum": "x"}]
)
def test_wrong_ratings_are_refused(client, tmp_path, wrong):
    found = hit(client, "dog_bark.wav")
    row = {"q": "dog", "id": found["id"], "start_s": 0, "end_s": found["end_s"], "rating": 50}
    answer = client.put("/api/ratings", json={**row, **wrong})
    assert answer.status_code == 422
    assert list(answer.json()) == ["detail"]
    assert not (tmp_path / "ratings" / "history.csv").exists()


def test_only_windows_of_indexed_files_are_rated(client):
    found = hit(client, "river.wav")
    assert put(client, {**found, "end_s": 7.3}, "water", 50).status_code == 404
    assert put(client, {**found, "id": "0" * 32}, "water", 50).status_code == 404
    client.cookies.set(ratings.HISTORY, "x")
    client.cookies.set("earmark-rater", "../../evil")
    assert put(client, found, "water", 50).status_code == 200


def region(at: int, tmp_path: Path) -> Region:
    return Region(tmp_path / f"{at}.wav", f"{at:032x}", f"{at:064x}"[::-1], 0.0, 1.0, 1.0)


def no_cut(path, start_s, end_s, to):
    raise AssertionError("nothing is to be cut")


def test_many_rate_at_once_and_nothing_is_lost(tmp_path):
    """Two servers on one folder, eight threads each."""
    both = [Rated(tmp_path / "r", no_cut) for _ in range(2)]

    def work(rater: int) -> None:
        for at in range(6):
            both[rater % 2].rate(region(at, tmp_path), "rain", 10 * at, f"r{rater}", stratum="search")

    threads = [threading.Thread(target=work, args=(rater,)) for rater in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = Collection.read(tmp_path / "r")
    assert not kept.problems
    assert len(kept.ratings) == 48
    assert len(kept.clips) == 6
    assert len(both[0].own("rain", "r3")) == 6
    assert len(Rated(tmp_path / "r", no_cut)) == 48


def test_a_torn_row_costs_itself(tmp_path):
    kept = Rated(tmp_path / "r", no_cut)
    for at in range(3):
        kept.rate(region(at, tmp_path), "rain", 50, "me", stratum="search")
    history = tmp_path / "r" / "history.csv"
    whole = history.read_bytes()
    for cut in range(len(whole) - 2, len(whole) - 120, -7):
        history.write_bytes(whole[:cut])
        again = Rated(tmp_path / "r", no_cut)
        assert len(again) == 2
        again.rate(region(7, tmp_path), "rain", 20, "me", stratum="search")
        assert len(Rated(tmp_path / "r", no_cut)) == 3


KILLED = """
import sys
from pathlib import Path
from urllib.parse import unquote
from earmark.search.rated import Rated, Region
kept = Rated(Path(sys.argv[1]), None)
for at in range(10_000):
    print(at, flush=True)
    kept.rate(Region(Path(f"{at}.wav"), f"{at:032x}", f"{at:064x}"[::-1], 0.0, 1.0, 1.0), "rain", at % 101, "me",
              stratum="search")
"""


@pytest.mark.parametrize("after", [1, 9, 23])
def test_ratings_outlive_kill_9(tmp_path, after):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == after:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    kept = Rated(tmp_path / "r", no_cut)
    kept.begin()
    assert after <= len(kept)
    found = Collection.read(tmp_path / "r")
    assert not found.problems
    assert len(found.ratings) == len(kept)


def test_what_a_killed_server_left_is_removed_at_start(tmp_path):
    kept = Rated(tmp_path / "r", no_cut)
    kept.rate(region(0, tmp_path), "rain", 50, "me", stratum="search")
    (tmp_path / "r" / "sounds").mkdir()
    left = [tmp_path / "r" / ".earmark-x.part", tmp_path / "r" / "sounds" / ".earmark-y.part"]
    for each in left:
        each.write_bytes(b"half")
    (tmp_path / "r" / "ratings.csv").unlink()
    again = Rated(tmp_path / "r", no_cut)
    again.begin()
    assert not any(each.exists() for each in left)
    assert len(again) == len(Collection.read(tmp_path / "r").ratings) == 1


@pytest.mark.parametrize(
    ("given", "written"),
    [(1e-300, "0"), (-0.0, "0"), (1e-5, "0"), (0.0004, "0"), (99.9999, "100"), (33.33333, "33.333"), (100, "100")],
)
def test_what_is_kept_is_read_again(client, tmp_path, given, written):
    found = hit(client, "dog_bark.wav")
    assert put(client, found, "dog", given).json()["rating"] == float(written)
    assert client.get("/api/ratings", params={"q": "dog"}).json()[0]["rating"] == float(written)
    assert [each.rating for each in Collection.read(tmp_path / "ratings").ratings] == [float(written)]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "ratings" / "history.csv").read_text())))
    assert [row["rating"] for row in rows] == [written]
    assert len(Rated(tmp_path / "ratings", no_cut)) == 1


@pytest.mark.parametrize("file", ["clips.csv", "ratings.csv", "collection.toml"])
@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EIO, 500)])
def test_a_refused_rating_does_not_count(client, tmp_path, monkeypatch, file, number, status):
    found = hit(client, "dog_bark.wav")
    assert put(client, found, "dog", 10).status_code == 200
    history = (tmp_path / "ratings" / "history.csv").read_bytes()
    true = Path.replace

    def full(path, to):
        if Path(to).name == file:
            raise OSError(number, os.strerror(number))
        return true(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        for words in ("dog", "cat"):
            refused = put(client, found, words, 90)
            assert refused.status_code == status
            assert "are not kept" in refused.json()["detail"]
    assert (tmp_path / "ratings" / "history.csv").read_bytes() == history
    assert [each["rating"] for each in client.get("/api/ratings", params={"q": "dog"}).json()] == [10]
    assert client.get("/api/ratings", params={"q": "cat"}).json() == []
    assert put(client, found, "rain", 30).status_code == 200
    kept = Collection.read(tmp_path / "ratings")
    assert {each.rating for each in kept.ratings} == {10, 30}
    assert kept.check() == []


def test_half_a_row_on_a_full_disk_is_taken_out(client, tmp_path, monkeypatch):
    found = hit(client, "dog_bark.wav")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert put(client, found, "dog", 90).status_code == 507
    assert put(client, found, "dog", 40).json()["rating"] == 40
    assert [each.rating for each in Collection.read(tmp_path / "ratings").ratings] == [40]


def test_a_history_that_people_change_is_read_again(tmp_path):
    kept = Rated(tmp_path / "r", no_cut)
    for at in range(3):
        kept.rate(region(at, tmp_path), "rain", 50 + at, "me", stratum="search")
    history = tmp_path / "r" / "history.csv"
    whole = history.read_text()
    history.write_text(whole.replace(",50,", ",57,"))  # of the same size
    assert sorted(mark.rating for mark in kept.own("rain", "me")) == ["51", "52", "57"]
    changed = whole.replace(",51,", ",lots,").replace("search,,,", "search,,4 s,", 1)
    history.write_text(changed)
    kept.rate(region(5, tmp_path), "rain", 5, "me", stratum="search")
    assert sorted(mark.rating for mark in kept.own("rain", "me")) == ["5", "52"]
    assert not Collection.read(tmp_path / "r").problems
    history.unlink()
    assert kept.own("rain", "me") == []
    kept.rate(region(6, tmp_path), "rain", 6, "me", stratum="search")
    assert len(kept) == len(Collection.read(tmp_path / "r").ratings) == 1


def test_a_history_that_a_spreadsheet_saved_goes_on(tmp_path):
    kept = Rated(tmp_path / "r", no_cut)
    kept.rate(region(0, tmp_path), "rain", 50, "me", stratum="search")
    history = tmp_path / "r" / "history.csv"
    rows = list(csv.reader(io.StringIO(history.read_text())))
    history.write_text("\ufeff" + "".join(";".join(["note", *reversed(row)]) + "\r\n" for row in rows))
    kept.rate(region(1, tmp_path), "rain", 60, "me", stratum="search")
    assert len(kept) == len(Rated(tmp_path / "r", no_cut)) == 2
    history.write_text("something else\n")
    with pytest.raises(ratings.NotKeptError, match="no column"):
        kept.rate(region(2, tmp_path), "rain", 60, "me", stratum="search")
    assert history.read_text() == "something else\n"


@pytest.mark.parametrize("words", ["a\x00 dog", "\x07a\x1b dog\x9f", "a\r\n\tdog"])
def test_controls_in_words_are_not_kept(client, tmp_path, words):
    assert put(client, hit(client, "dog_bark.wav"), words, 50).status_code == 200
    assert [caption.text for caption in Collection.read(tmp_path / "ratings").captions] == ["a dog"]
    assert len(client.get("/api/ratings", params={"q": words}).json()) == 1
    assert client.get("/api/search", params={"q": words}).status_code == 200


@pytest.mark.parametrize("words", ["", " ", "\u200b", "\u3164", "\u2800", "\ufe0f", "\x00"])
def test_blank_words_are_refused_everywhere(client, words):
    found = hit(client, "dog_bark.wav")
    answers = [client.get(f"/api/{each}", params={"q": words}) for each in ("search", "export", "ratings")]
    for answer in [*answers, put(client, found, words, 50)]:
        assert answer.status_code == 422
        assert "blank" in answer.json()["detail"] or not words


def test_words_of_one_length_are_taken_everywhere(client):
    found = hit(client, "dog_bark.wav")
    for letters, status in ((2000, 200), (2001, 422)):
        words = "d" * letters
        assert client.get("/api/search", params={"q": words, "not": words}).status_code == status
        assert put(client, found, words, 50).status_code == status
        assert client.get("/api/ratings", params={"q": words}).status_code == status


def test_a_browser_has_its_id_with_the_page(client, engine, tmp_path):
    found = client.get("/api/search", params={"q": "dog"}).json()["hits"]
    for first in ("/", "/api/about"):
        fresh = TestClient(client.app, base_url=LOCAL)
        kept = fresh.get(first).headers["set-cookie"].lower()
        assert "earmark-rater=" in kept
        assert "httponly" in kept
        for each in found[:3]:
            answer = put(fresh, each, f"{first} dog", 50)
            assert "set-cookie" not in answer.headers
        assert len(fresh.get("/api/ratings", params={"q": f"{first} dog"}).json()) == 3
    for address in ("/search/search.js", "/api/sounds/x"):
        assert "set-cookie" not in TestClient(client.app, base_url=LOCAL).get(address).headers


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "r", Path("/proc/earmark")):
        with pytest.raises(ratings.NotKeptError, match="cannot be written"):
            Rated(place, no_cut).begin()
    with pytest.raises(DataError, match="cannot be written"):
        Rated(tmp_path / "file" / "r", no_cut).rate(region(0, tmp_path), "rain", 50, "me", stratum="search")


def test_training_reads_the_ratings(client, made, tmp_path):
    """Searching makes training data: what was rated trains a model, ratings overruling captions."""
    from earmark.learn.recipe import Recipe
    from earmark.learn.train import train

    hits = client.get("/api/search", params={"q": "dog", "limit": 6}).json()["hits"]
    for at, words in enumerate(("a dog", "rain", "a door", "music")):
        for rank, found in enumerate(hits):
            assert put(client, found, words, 20 * ((at + rank) % 6), rank=rank + 1).status_code == 200
    kept = Collection.read(tmp_path / "ratings")
    assert kept.check() == []
    tables = {
        "model": {"dim": 8},
        "audio": {"encoder": "cnn6", "weights": "none", "width": 2},
        "text": {"encoder": "all-MiniLM-L6-v2"},
        "train": {"max_epochs": 1, "monitor": "last"},
        "objective": [
            {"loss": "infonce", "relevance": "captions+ratings", "batch": 4},
            {"loss": "listnet", "relevance": "ratings", "lists": 2},
        ],
    }
    train(Recipe.from_tables(tables, "ratings"), kept, tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_real_sounds_are_found_rated_and_learned_from(real_data, tmp_path, sentence_encoder):
    """The untrained default over real sounds, and a recipe of the repository over what was rated there."""
    from earmark.learn.recipe import Recipe
    from earmark.learn.train import train

    for kind in ("001 - Dog bark", "002 - Rain", "009 - Rooster"):
        (tmp_path / "sounds" / kind).mkdir(parents=True)
        found = sorted((real_data / "library" / "esc10" / kind).glob("*.ogg"))[:4]
        for at, path in enumerate(found):
            shutil.copyfile(path, tmp_path / "sounds" / kind / f"{at}.ogg")
    try:
        build([tmp_path / "sounds"], tmp_path / "index", model="yamnet", text="all-MiniLM-L6-v2", jobs=1)
    except EarmarkError as error:
        pytest.skip(str(error))
    client = TestClient(create_app(Engine(tmp_path / "index")), base_url=LOCAL)
    for words, kind in (
        ("a dog barks", "001 - Dog bark"),
        ("rain", "002 - Rain"),
        ("a rooster crows", "009 - Rooster"),
    ):
        hits = client.get("/api/search", params={"q": words, "keywords": False}).json()["hits"]
        assert sum(kind in each["folder"] for each in hits[:4]) >= 3
        for each in hits:
            assert put(client, each, words, 90 if kind in each["folder"] else 0).status_code == 200
    dog = (tmp_path / "sounds" / "001 - Dog bark" / "0.ogg").read_bytes()
    like = client.post("/api/like", content=dog).json()["like"]
    assert "Dog" in client.get("/api/search", params={"like": like, "not": "rain"}).json()["hits"][0]["folder"]
    kept = Collection.read(tmp_path / "index" / "ratings")
    assert kept.check() == []
    assert len(kept.ratings) == 36
    recipe = Recipe.read(REPOSITORY / "recipes" / "library-rated.toml", RATED)
    learned = [train(recipe, kept, tmp_path / "run").unlearned]
    best = {caption.clip_id for caption in kept.captions}
    others = [each if each.clip_id in best else replace(each, rating=40.0) for each in kept.ratings]
    other = replace(kept, ratings=others)
    other.write(tmp_path / "other")
    learned.append(train(recipe, Collection.read(tmp_path / "other"), tmp_path / "changed").unlearned)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "changed")]
    assert weights[0] != weights[1]  # ratings of sounds that no words fit best count too
    assert learned == [0, 0]
    again = build([tmp_path / "sounds"], tmp_path / "mine", model=str(tmp_path / "run"), jobs=1)
    assert again.files == 12


# The command


def test_the_command_serves_and_prints_the_address(made):
    command = [sys.executable, "-m", "earmark", "serve", str(made / "index"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        assert httpx.get(f"{address}api/search", params={"q": "dog"}, timeout=60).json()["hits"]
        assert httpx.get(f"{address}?token=x", timeout=60).status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "Traceback" not in error


@contextlib.contextmanager
def served(index: Path, *options: str):
    """A process that serves, and its address."""
    command = [sys.executable, "-m", "earmark", "serve", str(index), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, httpx.URL(process.stdout.readline().split()[-1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_soon_with_streams_open_and_says_nothing(tmp_path, made, how):
    """A browser that has paused a long sound, and one that waits on a connection that it keeps."""
    shutil.copytree(made / "index", tmp_path / "index")
    long = tmp_path / "sounds" / "long.wav"
    long.parent.mkdir()
    soundfile.write(long, np.zeros(48_000 * 200, np.float32), 48_000)
    build([long.parent], tmp_path / "index", jobs=1)
    with served(tmp_path / "index") as (process, address), contextlib.ExitStack() as opened:
        found = httpx.get(
            f"{address}api/search", params={"q": "long", "longest_s": 1000, "shortest_s": 100}, timeout=60
        ).json()
        sound = f"/api/sounds/{found['hits'][0]['id']}"
        for target in (sound, "/api/about"):
            to = opened.enter_context(socket.create_connection((address.host, address.port)))
            to.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert to.recv(100).startswith(b"HTTP/1.1 200")
        process.send_signal(how)
        _, error = process.communicate(timeout=60)
    assert "Traceback" not in error
    assert error.splitlines()[-1] == "Ctrl-C ends it."
    assert process.returncode in (0, -how)


def test_answers_on_a_connection_that_is_kept_wait_for_nothing():
    from earmark.web.listen import listening

    with listening("127.0.0.1", 0) as at, socket.create_connection(at.getsockname()):
        accepted, _ = at.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_ratings_that_cannot_be_kept_are_refused_at_the_start(made, tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "earmark", "serve", str(made / "index"), "--port", "0"]
    command += ["--ratings", str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert "cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_elsewhere_a_token_is_made_up_and_asked_for(made):
    command = [sys.executable, "-m", "earmark", "serve", str(made / "index"), "--port", "0", "--host", "0.0.0.0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = httpx.URL(process.stdout.readline().split()[-1])
        assert len(address.params["token"]) >= 32
        local = f"http://127.0.0.1:{address.port}"
        assert httpx.get(f"{local}/api/about", timeout=60).status_code == 401
        with httpx.Client(follow_redirects=True, timeout=60) as visitor:
            first = visitor.get(f"{local}/?token={address.params['token']}")
            assert first.status_code == 200
            assert "token" not in str(first.url)
            assert visitor.get(f"{local}/api/about").json()["files"] == 12
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"host": "no.such.host.invalid", "port": 0}, ConfigError, "cannot listen there"),
        ({"port": 0, "token": "ü"}, ConfigError, "expected 8 letters"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(made, options, error, message):
    with pytest.raises(error, match=message) as caught:
        serve(made / "index", **options)
    assert "\n" not in str(caught.value)


def test_a_port_that_is_taken_and_a_folder_that_is_no_index_are_told(made, tmp_path):
    with pytest.raises(DataError, match="not an index"):
        serve(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen there"):
        serve(made / "index", port=taken.getsockname()[1])


def test_without_the_extra_the_command_says_what_to_install(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[serve\]' in earmark's folder"):
        serve(made / "index")
