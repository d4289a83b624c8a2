"""The study's server over HTTP: every route, on good and on hostile input."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sqlite3
from dataclasses import replace

import numpy as np
import pyloudnorm
import pytest
import soundfile
from starlette.testclient import TestClient
from studies import TOKEN, small_study, tone

from earmark.collect import app as app_module
from earmark.collect import loudness, sound_check
from earmark.collect.app import create_app
from earmark.collect.flow import Flow
from earmark.collect.loudness import level, matched, playable
from earmark.collect.store import Store, StoreError
from earmark.collect.study import Settings
from earmark.errors import DataError

LOCAL = "http://127.0.0.1"
OWNER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return small_study(tmp_path_factory.mktemp("app"), tasks=2, checks=1, qualifications=1, size=3)


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "study.db")
    yield opened
    opened.close()


@pytest.fixture
def app(study, store):
    return create_app(study, store, owner_token=TOKEN)


@pytest.fixture
def client(app):
    return TestClient(app, base_url=LOCAL)


def served(study, store, **options) -> TestClient:
    """A client of another study."""
    return TestClient(create_app(study, store, owner_token=TOKEN, **options), base_url=LOCAL)


def begin(client: TestClient, **entering) -> dict:
    """From the door to the first page."""
    assert client.post("/api/enter", json=entering).json()["step"] == "consent"
    assert client.post("/api/consent", json={}).json()["step"] == "sound"
    return client.post("/api/sound-check", json={"answers": []}).json()


def hear(client: TestClient, item: dict, share: float = 1.0, view: str = "v") -> float:
    told = {"view": view, "covered": [[0, share * item["duration_s"]]], "played_s": item["duration_s"], "plays": 1}
    return client.put(f"/api/items/{item['id']}/heard", json=told).json()["heard"]


def rate(client: TestClient, item: dict, rating: float = 70, key: str = "", **more):
    told = {"key": key or f"k{rating}", "view": "v", "rating": rating, "rated_s": 1.5, **more}
    return client.put(f"/api/items/{item['id']}/rating", json=told)


def finish(client: TestClient, state: dict, rating: float = 70) -> dict:
    """Answers every page that is left."""
    while state["step"] in ("qualification", "task"):
        for item in client.get(f"/api/pages/{state['number']}").json()["items"]:
            hear(client, item)
            assert rate(client, item, rating).status_code == 200
        state = client.post(f"/api/pages/{state['number']}/submit").json()
    return state


# The whole way


def test_from_the_door_to_the_code(client, study):
    about = client.get("/api/study").json()
    assert about["title"] == "Listening study"
    assert about["instructions"].startswith("<h1>What to do</h1>")
    state = begin(client)
    assert state == {"step": "qualification", "number": 1, "pages": 4, "done": 0, "code": "", "url": ""}
    page = client.get("/api/pages/1").json()
    assert set(page) == {"number", "of", "text", "items", "submitted"}
    assert set(page["items"][0]) == {"id", "duration_s", "rating", "heard", "played_s", "plays", "playable"}
    state = finish(client, state)
    assert (state["step"], state["done"], len(state["code"])) == ("done", 4, 12)
    assert client.get("/api/state").json() == state
    again = client.post("/api/enter", json={}).json()
    assert again == state


def test_nothing_that_a_rater_sees_tells_the_clips_or_the_groups(client, study):
    state = begin(client)
    seen = []
    while state["step"] in ("qualification", "task"):
        answer = client.get(f"/api/pages/{state['number']}")
        seen.append(answer.text)
        for item in answer.json()["items"]:
            sound = client.get(f"/api/items/{item['id']}/sound")
            assert sound.headers["cache-control"].startswith("private")  # no cache on the way keeps it
            seen += [str(sound.headers), str(sound.url)]
            hear(client, item)
            seen.append(rate(client, item).text)
        answer = client.post(f"/api/pages/{state['number']}/submit")
        state = answer.json()
    told = "\n".join(seen).lower()
    for secret in ("tone0", "clip_id", ".flac", '"tp"', '"tn"', "pool", "check", "stratum"):
        assert secret not in told.replace("a check of number", "").replace("last-modified", ""), secret


def test_a_failed_qualification_ends_kindly_without_a_code(client):
    state = finish(client, begin(client), rating=3)
    assert (state["step"], state["code"], state["done"]) == ("failed", "", 1)


# Who it is


def test_without_a_cookie_every_rater_route_answers_401(client, app):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]["id"]
    stranger = TestClient(app, base_url=LOCAL)
    asked = [
        ("GET", "/api/state", None),
        ("POST", "/api/consent", {}),
        ("POST", "/api/sound-check", {}),
        ("POST", "/api/sound-check/answers", {}),
        ("GET", "/api/sound-check/volume", None),
        ("GET", "/api/sound-check/side/0", None),
        ("GET", "/api/pages/1", None),
        ("POST", "/api/pages/1/submit", {}),
        ("GET", f"/api/items/{item}/sound", None),
        ("HEAD", f"/api/items/{item}/sound", None),
        ("GET", f"/api/items/{item}/peaks", None),
        ("PUT", f"/api/items/{item}/heard", {"view": "v"}),
        ("PUT", f"/api/items/{item}/rating", {"key": "k", "view": "v", "rating": 3}),
    ]
    for method, path, body in asked:
        for cookie in (b"", b"earmark-study=" + b"x" * 32, b"earmark-study=\xc3\xa9", b"earmark-study=;;=,"):
            answer = stranger.request(method, path, json=body, headers=[(b"cookie", cookie)])
            assert answer.status_code == 401, (method, path)
            assert "www-authenticate" not in answer.headers
            assert method == "HEAD" or list(answer.json()) == ["detail"]


def test_what_belongs_to_another_rater_is_not_there(client, app):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    other = TestClient(app, base_url=LOCAL)
    begin(other)
    for method, path, body in (
        ("GET", f"/api/items/{item['id']}/sound", None),
        ("GET", f"/api/items/{item['id']}/peaks", None),
        ("PUT", f"/api/items/{item['id']}/heard", {"view": "v", "covered": [[0, 1]]}),
        ("PUT", f"/api/items/{item['id']}/rating", {"key": "k", "view": "v", "rating": 3}),
        ("GET", "/api/pages/2", None),
        ("GET", "/api/items/..%2f..%2fetc/sound", None),
        ("GET", "/api/items/0000/sound", None),
    ):
        answer = other.request(method, path, json=body)
        assert answer.status_code in (404, 422), path
        assert list(answer.json()) == ["detail"]
    assert client.get("/api/pages/1").json()["items"][0]["rating"] is None


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(client):
    told = client.post("/api/enter", json={}).headers["set-cookie"].lower()
    assert "httponly" in told
    assert "samesite=lax" in told
    assert "path=/" in told
    assert "secure" not in told  # over http it would never come back
    over_tls = TestClient(client.app, base_url="https://127.0.0.1").post("/api/enter", json={})
    assert "; secure" in over_tls.headers["set-cookie"].lower()


@pytest.mark.parametrize(("base", "secure"), [(LOCAL, False), ("https://127.0.0.1", True)])
def test_the_owners_cookie_is_as_safe_as_a_raters(app, base, secure):
    """By the scheme that uvicorn tells: a header that anybody can send changes nothing."""
    for claimed in ({}, {"x-forwarded-proto": "https"}, {"x-forwarded-proto": "http"}):
        browser = TestClient(app, base_url=base, headers=claimed)
        raters = browser.post("/api/enter", json={}).headers["set-cookie"].lower()
        owners = browser.get("/owner", params={"token": TOKEN}, follow_redirects=False).headers["set-cookie"].lower()
        assert [("; secure" in each) for each in (raters, owners)] == [secure, secure]


def test_pages_of_other_sites_neither_write_nor_read(client):
    begin(client)
    for method, path, headers in (
        ("POST", "/api/enter", {"origin": "https://evil.example"}),
        ("PUT", "/api/items/x/rating", {"origin": "null"}),
        ("GET", "/api/state", {"sec-fetch-site": "cross-site"}),
    ):
        assert client.request(method, path, headers=headers, json={}).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/?PROLIFIC_PID=x", headers=link).status_code == 200  # a platform's link


def test_names_of_other_machines_are_answered_only_in_public(study, store):
    rebound = {"host": "evil.example"}
    assert served(study, store).get("/api/study", headers=rebound).status_code == 421
    assert (
        served(study, store, names=["study.example.org"])
        .get("/api/study", headers={"host": "study.example.org"})
        .is_success
    )
    assert served(study, store, public=True).get("/api/study", headers={"host": "study.example.org"}).is_success


def test_invitations_open_the_study_and_nothing_else_does(study, store):
    invited = replace(study, settings=replace(study.settings, entry="invited"))
    client = served(invited, store)
    assert client.post("/api/enter", json={}).status_code == 403
    refused = client.post("/api/enter", json={"invite": "made up"})
    assert (refused.status_code, "invitation" in refused.json()["detail"]) == (403, True)
    (token,) = Flow(invited, store).invite(1)
    assert client.post("/api/enter", json={"invite": token}).json()["step"] == "consent"
    assert client.post("/api/consent", json={}).is_success
    elsewhere = served(invited, store)
    assert elsewhere.post("/api/enter", json={"invite": token}).json()["step"] == "sound"  # the same rater


def test_a_platforms_ids_are_kept_and_tell_who_came_before(client, app, store, study):
    ids = {"PROLIFIC_PID": "p1", "SESSION_ID": "s1", "utm_source": "tracking"}
    begin(client, platform=ids)
    (row,) = Flow(study, store).raters()
    assert row.platform == {"PROLIFIC_PID": "p1", "SESSION_ID": "s1"}
    other = TestClient(app, base_url=LOCAL)
    assert other.post("/api/enter", json={"platform": ids}).json()["step"] == "qualification"  # another browser
    third = TestClient(app, base_url=LOCAL)
    refused = third.post("/api/enter", json={"platform": {**ids, "SESSION_ID": "s2"}})
    assert (refused.status_code, "already" in refused.json()["detail"]) == (409, True)


def test_a_full_study_says_so(study, store):
    client = served(replace(study, settings=replace(study.settings, most_raters=1)), store)
    begin(client)
    late = TestClient(client.app, base_url=LOCAL)
    assert late.post("/api/enter", json={}).status_code == 410


def test_the_completion_url_holds_the_code(study, store):
    settings = replace(study.settings, completion_url="https://platform.example/done?cc={code}", qualify=0)
    state = finish(client := served(replace(study, settings=settings), store), begin(client))
    assert state["url"] == f"https://platform.example/done?cc={state['code']}"


# Answers


@pytest.mark.case("L03")
def test_the_same_answer_twice_is_one_and_changes_are_history(client, store, study):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    hear(client, item)
    for key, rating in (("a", 60), ("a", 60), ("b", 80), ("a", 60)):
        assert rate(client, item, rating, key).status_code == 200
    assert client.get("/api/pages/1").json()["items"][0]["rating"] == 80
    given = Flow(study, store).ratings(history=True)
    assert [(each.rating, each.history) for each in given] == [(60, 0), (80, 1)]
    first = client.post("/api/pages/1/submit").json()
    assert client.post("/api/pages/1/submit").json() == first
    assert first["number"] == 2
    assert rate(client, item, 90, "c").status_code == 200  # back: the earlier page may be changed
    assert client.get("/api/state").json() == first


def test_a_clip_must_be_heard_before_its_rating_counts(client):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    refused = rate(client, item)
    assert (refused.status_code, "80%" in refused.json()["detail"]) == (422, True)
    assert hear(client, item, 0.5) == pytest.approx(0.5, abs=0.01)
    assert rate(client, item).status_code == 422
    half = item["duration_s"] / 2
    told = {"view": "w", "covered": [[half, 2 * half]], "played_s": half, "plays": 1, "seeks": 1}
    assert client.put(f"/api/items/{item['id']}/heard", json=told).json() == {"heard": 1.0}  # after a reload
    assert rate(client, item).json() == {"heard": None}
    page = client.get("/api/pages/1").json()["items"][0]
    assert (page["rating"], page["heard"], page["plays"]) == (70, 1.0, 2)


def test_an_answer_may_bring_what_was_heard(client):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    heard = {"covered": [[0, item["duration_s"]]], "played_s": 0.4, "plays": 1, "seeks": 0, "first_play_s": 0.1}
    assert rate(client, item, heard=heard).json() == {"heard": 1.0}


def test_the_clips_duration_is_the_servers_own(client):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    told = {"view": "v", "covered": [[0, 0.01]], "duration_s": 0.01, "played_s": 0.01}
    assert client.put(f"/api/items/{item['id']}/heard", json=told).json()["heard"] < 0.1


@pytest.mark.case("L01", "L04")
def test_a_page_with_something_missing_is_not_submitted(client):
    state = begin(client)
    refused = client.post("/api/pages/1/submit")
    assert (refused.status_code, "no rating" in refused.json()["detail"]) == (409, True)
    item = client.get("/api/pages/1").json()["items"][0]
    hear(client, item)
    assert client.post("/api/pages/1/submit").status_code == 409  # heard is not rated
    assert client.get("/api/state").json() == state
    assert client.get("/api/pages/2").status_code == 404


HOSTILE = [
    {"rating": 140},
    {"rating": -1},
    {"rating": "NaN"},
    {"rating": "50"},
    {"rating": True},
    {"rated_s": "1"},
    {"rated_s": True},
    {"heard": {"plays": "1"}},
    {"heard": {"plays": True}},
    {"heard": {"seeks": False}},
    {"heard": {"played_s": True}},
    {"heard": {"first_play_s": "0"}},
    {"heard": {"covered": [["0", 1]]}},
    {"heard": {"covered": [[False, True]]}},
    {"rating": None},
    {"rating": 50.55},
    {"rating": [50]},
    {"key": ""},
    {"key": "k" * 65},
    {"key": "\x00"},
    {"key": "ключ"},
    {"view": "v\n"},
    {"rated_s": -1},
    {"rated_s": 1e300},
    {"heard": {"covered": [[1, 0]]}},
    {"heard": {"covered": [[0, 1]] * 1001}},
    {"heard": {"covered": [[0]]}},
    {"heard": {"covered": "all"}},
    {"heard": {"plays": -1}},
    {"heard": {"played_s": "1e400"}},
]


@pytest.mark.parametrize("wrong", HOSTILE, ids=lambda wrong: json.dumps(wrong)[:40])
def test_what_is_no_answer_is_refused_in_one_line(client, store, study, wrong):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    hear(client, item)
    body = {"key": "k", "view": "v", "rating": 50, "rated_s": 1, **wrong}
    answer = client.put(f"/api/items/{item['id']}/rating", content=json.dumps(body), headers=JSON)
    assert answer.status_code == 422
    assert list(answer.json()) == ["detail"]
    assert "\n" not in answer.json()["detail"]
    assert Flow(study, store).ratings() == []


JSON = {"content-type": "application/json"}


def test_bodies_that_are_none_or_too_large_are_refused(client):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    address = f"/api/items/{item['id']}/rating"
    for content in (b"", b"{", b"[]", b"\xff\xfe", b'{"rating": NaN, "key": "k", "view": "v"}', b"null"):
        assert client.put(address, content=content, headers=JSON).status_code == 422
    assert client.put(address, content=b" " * (70 << 10), headers=JSON).status_code == 413
    assert client.put(address, content=(b" " * 1000 for _ in range(80)), headers=JSON).status_code == 413
    for wrong in ({"platform": {"a": "x" * 501}}, {"invite": "x" * 300}, {"platform": {str(n): "" for n in range(30)}}):
        assert client.post("/api/enter", json=wrong).status_code == 422
    assert client.post("/api/enter", json={"platform": {"PROLIFIC_PID": "a\nb"}}).status_code == 422


@pytest.mark.parametrize("number", ["0", "-1", "1e3", "x", "99999999999999999999"])
def test_numbers_that_are_no_page_are_refused(client, number):
    begin(client)
    assert client.get(f"/api/pages/{number}").status_code in (404, 422)
    assert client.post(f"/api/pages/{number}/submit").status_code in (404, 422)


def test_steps_are_taken_in_order(client):
    client.post("/api/enter", json={})
    assert client.post("/api/sound-check", json={}).status_code == 409
    assert client.get("/api/pages/1").status_code == 404


# The sound check


def test_the_sound_check_ends_passed_after_three_right_answers(client, store, study):
    client.post("/api/enter", json={})
    client.post("/api/consent", json={})
    rater = Flow(study, store).raters()[0].rater_id
    answers: list[int] = []
    kinds = []
    while not (told := client.post("/api/sound-check/answers", json={"answers": answers}).json())["finished"]:
        kinds.append(told["kind"])
        sound = client.get(f"/api/sound-check/{told['kind']}/{len(answers)}")
        samples, _ = soundfile.read(io.BytesIO(sound.content))
        assert (told["number"], told["questions"]) == (len(answers) + 1, 3)
        answers.append(heard_of(told["kind"], samples))
        assert sound_check.by_ear(told["kind"], sound.content) == answers[-1]
        assert answers[-1] == sound_check.truth(rater, told["kind"], len(answers) - 1)
    assert (kinds, told["passed"], told["right"]) == (["side", "tones", "tones"], True, True)
    assert client.post("/api/sound-check", json={"answers": answers}).json()["step"] == "qualification"
    assert Flow(study, store).raters()[0].sound_passed is True


def heard_of(kind: str, samples: np.ndarray) -> int:
    """What a listener with headphones answers."""
    loud = np.sqrt((samples**2).mean(axis=0))
    if kind == "side":
        assert loud.min() == 0
        return int(loud.argmax())
    third = len(samples) // 3
    tones = [np.sqrt((samples[third * at : third * (at + 1)] ** 2).mean()) for at in range(3)]
    return int(np.argmin(tones))


def test_from_loudspeakers_the_opposed_tone_is_the_quietest():
    for at in range(6):
        samples, _ = soundfile.read(io.BytesIO(sound_check.question("r1", "tones", at, -23.0)))
        mixed = samples.mean(axis=1)
        third = len(mixed) // 3
        loud = [np.abs(mixed[third * place : third * (place + 1)]).max() for place in range(3)]
        assert int(np.argmin(loud)) != sound_check.truth("r1", "tones", at)
        assert np.abs(samples).max() < 1


@pytest.mark.parametrize("lufs", [-60.0, -23.0, -5.0])
def test_sounds_of_the_check_are_as_loud_as_the_clips_and_never_clip(lufs):
    volume, rate = soundfile.read(io.BytesIO(sound_check.volume(lufs)))
    assert np.abs(volume).max() < sound_check.LOUDEST + 1e-4
    if lufs == -23:
        assert pyloudnorm.Meter(rate).integrated_loudness(volume[:, 0]) == pytest.approx(lufs, abs=0.1)
    for kind in ("side", "tones"):
        samples, _ = soundfile.read(io.BytesIO(sound_check.question("r1", kind, 0, lufs)))
        assert 0 < np.abs(samples).max() < sound_check.LOUDEST + 1e-4


def test_answers_after_the_end_of_the_sound_check_count_nothing():
    wrong = [1 - sound_check.truth("r", "side", at) for at in range(sound_check.MOST_ROUNDS)]
    late = [sound_check.truth("r", kind, len(wrong) + at) for at, kind in enumerate(sound_check.STAGES)]
    assert sound_check.judge("r", [*wrong, *late]) == sound_check.judge("r", wrong)
    assert not sound_check.judge("r", wrong).passed
    right = sound_check.judge("r", [sound_check.truth("r", kind, at) for at, kind in enumerate(sound_check.STAGES)])
    assert (right.passed, right.number) == (True, len(sound_check.STAGES))


def test_the_sound_check_is_never_a_dead_end_and_its_outcome_is_kept(client, store, study):
    client.post("/api/enter", json={})
    client.post("/api/consent", json={})
    rater = Flow(study, store).raters()[0].rater_id
    answers: list[int] = []
    for at in range(sound_check.MOST_ROUNDS):
        told = client.post("/api/sound-check/answers", json={"answers": answers}).json()
        assert (told["kind"], told["finished"], told["number"]) == ("side", False, 1)
        answers.append(1 - sound_check.truth(rater, "side", at))
    told = client.post("/api/sound-check/answers", json={"answers": answers}).json()
    assert (told["finished"], told["passed"], told["kind"]) == (True, False, None)
    assert client.post("/api/sound-check", json={"answers": answers}).json()["step"] == "qualification"
    assert Flow(study, store).raters()[0].sound_passed is False


def test_sounds_of_the_check_have_ranges_and_wrong_ones_are_refused(client):
    client.post("/api/enter", json={})
    whole = client.get("/api/sound-check/volume")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "audio/wav")
    part = client.get("/api/sound-check/volume", headers={"range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, whole.content[4:8])
    assert part.headers["content-range"] == f"bytes 4-7/{len(whole.content)}"
    assert client.get("/api/sound-check/volume", headers={"range": "bytes=99999999-"}).status_code == 416
    for path in ("side/-1", f"side/{sound_check.MOST_ROUNDS}", "other/0", "side/x"):
        assert client.get(f"/api/sound-check/{path}").status_code == 422
    for wrong in ([0] * 9, [-1], ["x"], [100], ["0"], [True], [0.5]):
        assert client.post("/api/sound-check/answers", json={"answers": wrong}).status_code == 422


# Sounds


@pytest.mark.case("S04", "L07")
def test_clips_are_served_whole_and_in_part(client):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    address = f"/api/items/{item['id']}/sound"
    whole = client.get(address)
    assert (whole.status_code, whole.headers["content-type"]) == (200, "audio/wav")
    body, size = whole.content, len(whole.content)
    cases = {"bytes=0-": body, "bytes=100-199": body[100:200], "bytes=-500": body[-500:]}
    for asked, expected in cases.items():
        answer = client.get(address, headers={"range": asked})
        assert (answer.status_code, answer.content) == (206, expected), asked
    assert client.get(address, headers={"range": "bytes=100-199"}).headers["content-range"] == f"bytes 100-199/{size}"
    beyond = client.get(address, headers={"range": "bytes=99999999-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert client.get(address, headers={"range": "abc"}).status_code == 200
    head = client.head(address)
    assert (head.status_code, head.content, int(head.headers["content-length"])) == (200, b"", size)
    tag = {"if-none-match": whole.headers["etag"]}
    assert client.get(address, headers=tag).status_code == 304


@pytest.mark.case("L06")
def test_clips_of_a_page_have_one_loudness(client, study):
    state = begin(client)
    found = []
    while state["number"] < 2:
        for item in client.get(f"/api/pages/{state['number']}").json()["items"]:
            hear(client, item)
            rate(client, item)
        state = client.post(f"/api/pages/{state['number']}/submit").json()
    for item in client.get("/api/pages/2").json()["items"]:
        samples, rate_hz = soundfile.read(io.BytesIO(client.get(f"/api/items/{item['id']}/sound").content))
        found.append(pyloudnorm.Meter(rate_hz).integrated_loudness(samples))
        assert item["duration_s"] == pytest.approx(len(samples) / rate_hz)
    assert found == pytest.approx([study.settings.loudness_lufs] * 3, abs=0.3)


def test_the_waveform_fills_its_height(client):
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    drawn = client.get(f"/api/items/{item['id']}/peaks", params={"points": 10}).json()
    assert len(drawn["peaks"]) == 10
    assert max(max(pair) for pair in drawn["peaks"]) == 1.0
    for wrong in ({"points": 0}, {"points": 5000}, {"start": 99}, {"end": "x"}, {"start": "nan"}):
        assert client.get(f"/api/items/{item['id']}/peaks", params=wrong).status_code == 422


def test_nothing_of_a_clips_headers_tells_which_file_it_is(app, client):
    """Tags and dates of files that were made one after the other follow their order."""
    tags = {}
    for browser in (client, TestClient(app, base_url=LOCAL)):
        begin(browser)
        item = browser.get("/api/pages/1").json()["items"][0]["id"]
        answer = browser.get(f"/api/items/{item}/sound")
        assert "last-modified" not in answer.headers
        tags[item] = answer.headers["etag"]
        assert answer.headers["etag"] == f'"{item}-{len(answer.content):x}"'
        part = browser.get(f"/api/items/{item}/sound", headers={"range": "bytes=0-3", "if-range": tags[item]})
        assert part.status_code == 206
        for since in ("Wed, 21 Oct 2065 07:28:00 GMT", ""):
            dated = browser.get(f"/api/items/{item}/sound", headers={"range": "bytes=0-3", "if-range": since})
            assert dated.status_code == 200
            assert browser.get(f"/api/items/{item}/sound", headers={"if-modified-since": since}).status_code == 200
    assert len(set(tags.values())) == 2


# Sounds that vanish


def taking(study, store, capsys):
    """A rater at the first page, the owner, and how the page stands before anything happens."""
    client = served(study, store)
    begin(client)
    page = client.get("/api/pages/1").json()
    assert all(item["playable"] for item in page["items"])
    assert capsys.readouterr().err == ""
    return client, TestClient(client.app, base_url=LOCAL, headers=OWNER), page["items"]


def replaced(path) -> None:
    tone(path, 0.7, 2_000)


def same_size_another_time(path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))


def no_sound(path) -> None:
    path.write_text("no sound")


@pytest.mark.parametrize("gone", [lambda path: path.unlink(), replaced, same_size_another_time, no_sound])
def test_a_sound_that_vanishes_is_told_once_and_raters_go_on_without_it(tmp_path, store, capsys, gone):
    study = small_study(tmp_path, tasks=1, size=2)
    client, owner, items = taking(study, store, capsys)
    gone(tmp_path / "sounds" / "tone1.wav")
    shown = client.get("/api/pages/1")
    found = {item["id"]: item["playable"] for item in shown.json()["items"]}
    assert sorted(found.values()) == [False, True]
    silent, other = sorted(found, key=lambda each: found[each])
    for method, path, body in (
        ("GET", "sound", None),
        ("GET", "peaks", None),
        ("PUT", "heard", {"view": "v", "covered": [[0, 0.1]]}),
    ):
        answer = client.request(method, f"/api/items/{silent}/{path}", json=body)
        assert answer.status_code == 410
        assert answer.json() == {"detail": "this sound cannot be played, and its rating is not asked."}
    told = capsys.readouterr().err
    assert (told.count("tone1.wav"), told.count("\n")) == (1, 1)
    assert client.post("/api/pages/1/submit").status_code == 409  # the other one is asked
    (item,) = (item for item in items if item["id"] == other)
    hear(client, item)
    assert rate(client, item).status_code == 200
    assert rate(client, {"id": silent}, heard={"covered": [[0, 0.4]]}).status_code == 422  # nobody has heard it
    assert client.post("/api/pages/1/submit").json()["step"] == "done"
    assert owner.get("/api/owner/progress").json()["progress"]["silent"] == {"tone1.wav": 1}
    assert len(rows_of(owner.get("/api/owner/export"))) == 1


def test_an_answer_to_a_sound_that_was_heard_before_it_vanished_is_kept(tmp_path, store, capsys):
    study = small_study(tmp_path, tasks=1, size=1)
    client, _, (item,) = taking(study, store, capsys)
    hear(client, item)
    (tmp_path / "sounds" / "tone0.wav").unlink()
    assert rate(client, item, heard={"covered": [[0, 0.4]]}).status_code == 200
    assert client.post("/api/pages/1/submit").json()["step"] == "done"
    assert len(Flow(study, store).ratings()) == 1


def test_a_sound_that_comes_back_as_it_was_is_asked_of_who_comes_then(tmp_path, store, capsys):
    study = small_study(tmp_path, tasks=1, size=1)
    client, _, _ = taking(study, store, capsys)
    path = tmp_path / "sounds" / "tone0.wav"
    path.rename(tmp_path / "away.wav")
    assert not client.get("/api/pages/1").json()["items"][0]["playable"]
    (tmp_path / "away.wav").rename(path)
    assert not client.get("/api/pages/1").json()["items"][0]["playable"]  # what was said stays said
    late = TestClient(client.app, base_url=LOCAL)
    begin(late)
    assert late.get("/api/pages/1").json()["items"][0]["playable"]


@pytest.mark.parametrize("samples", [1, 4, 17, 48])
def test_a_clip_of_a_few_samples_can_be_heard_to_its_end(tmp_path, store, samples):
    study = small_study(tmp_path, tasks=1, size=1)
    soundfile.write(tmp_path / "sounds" / "tone0.wav", np.full(samples, 0.1), 48_000)
    client = served(study, store)
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    assert item["duration_s"] == pytest.approx(samples / 48_000)
    told = {"view": "v", "covered": [[0, round(item["duration_s"], 6)]], "played_s": 0.0}  # as the page rounds
    assert client.put(f"/api/items/{item['id']}/heard", json=told).json() == {"heard": 1.0}
    assert rate(client, item).status_code == 200


# What the store's troubles tell


def test_a_rater_never_reads_where_answers_are_kept(study, store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(app_module, "RATERS_S", 0.05)
    client = served(study, store)
    begin(client)
    item = client.get("/api/pages/1").json()["items"][0]
    hear(client, item)
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    asked = (
        lambda: rate(client, item),
        lambda: hear_answer(client, item),
        lambda: client.post("/api/enter", json={"invite": "x"}),
    )
    for ask in asked:
        answer = ask()
        assert answer.json() == {"detail": "Your answer could not be stored just now. Try again."}
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        told = capsys.readouterr().err
        assert str(tmp_path / "study.db") in told
        assert (told.count("\n"), "locked" in told) == (1, True)
    assert client.get("/api/state").status_code == 200  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    assert rate(client, item).status_code == 200


def hear_answer(client, item):
    return client.put(f"/api/items/{item['id']}/heard", json={"view": "w", "covered": [[0, 0.1]]})


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (StoreError("postgresql://me@secret.host/db: gone\nfar", 503), 503, "The study cannot be reached just now."),
        (StoreError("/secret/study.db: changed", 409), 409, "Someone else changed this at the same moment."),
        (DataError("/secret/sounds: cannot be read"), 503, "This cannot be done just now."),
    ],
)
def test_no_route_tells_a_path(study, store, monkeypatch, capsys, error, status, said):
    client = served(study, store)
    begin(client)

    def broken(*_):
        raise error

    monkeypatch.setattr(Flow, "rater", broken)
    for path in ("/api/state", "/api/pages/1", "/api/items/a/sound", "/api/items/a/peaks", "/api/sound-check/volume"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (status, {"detail": f"{said} Try again."}), path
        assert "secret" in (told := capsys.readouterr().err)
        assert told.count("\n") == 1


def test_a_study_whose_store_can_only_be_read_is_not_served(study, store):
    with store.reading() as connection:
        connection.exec_driver_sql("PRAGMA query_only=1")
    with pytest.raises(StoreError, match="Let this user write"):
        create_app(study, store, owner_token=TOKEN)


# Loudness


@pytest.fixture
def noise():
    return 0.02 * np.random.default_rng(0).standard_normal(48_000)


def brought(path, samples, rate=48_000, target=-23.0):
    """The samples as a file of that loudness."""
    soundfile.write(path, samples, rate, subtype="FLOAT")
    return soundfile.read(matched(path, target), always_2d=True)


def test_mono_and_stereo_match_in_the_ears(tmp_path, noise):
    mono, rate = brought(tmp_path / "mono.wav", noise)
    both, _ = brought(tmp_path / "both.wav", np.stack([noise, noise], axis=1))
    opposed, _ = brought(tmp_path / "opposed.wav", np.stack([noise, -noise], axis=1))
    assert (mono.shape[1], both.shape[1], rate) == (1, 2, 48_000)
    np.testing.assert_allclose(both[:, 0], mono[:, 0], atol=1e-3)
    np.testing.assert_allclose(opposed[:, 1], -mono[:, 0], atol=1e-3)
    assert pyloudnorm.Meter(rate).integrated_loudness(mono[:, 0]) == pytest.approx(-23, abs=0.2)
    assert pyloudnorm.Meter(rate).integrated_loudness(both) == pytest.approx(-20, abs=0.2)  # the sum of two


def test_a_gain_never_clips_nor_lifts_a_recorders_noise(tmp_path, noise):
    click = np.zeros(48_000)
    click[100] = 0.5
    samples, _ = brought(tmp_path / "click.wav", click)
    assert 20 * math.log10(np.abs(samples).max()) == pytest.approx(-1, abs=0.1)
    hiss = noise * 1e-3
    samples, _ = brought(tmp_path / "hiss.wav", hiss)
    assert np.abs(samples).max() / np.abs(hiss).max() == pytest.approx(100, rel=0.05)  # 40 dB
    loud, _ = brought(tmp_path / "loud.wav", noise * 1e4)
    assert np.abs(loud).max() < 0.9


def test_silence_stays_silence(tmp_path):
    samples, _ = brought(tmp_path / "silent.wav", np.zeros(4_000))
    assert not samples.any()
    assert level(tmp_path / "silent.wav").lufs == -math.inf


def test_short_sounds_are_measured_with_the_silence_behind_them(tmp_path, noise):
    soundfile.write(tmp_path / "short.wav", noise[:9_600], 48_000, subtype="FLOAT")  # 0.2 s
    soundfile.write(tmp_path / "long.wav", np.concatenate([noise[:9_600], np.zeros(9_600)]), 48_000, subtype="FLOAT")
    assert level(tmp_path / "short.wav").lufs == pytest.approx(level(tmp_path / "long.wav").lufs, abs=0.01)
    assert math.isfinite(level(tmp_path / "short.wav").lufs)


def test_the_peak_is_that_between_the_samples(tmp_path):
    tone = 0.9 * np.hanning(48_000) * np.sin(np.pi / 2 * np.arange(48_000) + np.pi / 4)  # no sample is above .64
    soundfile.write(tmp_path / "tone.wav", tone, 48_000, subtype="FLOAT")
    assert level(tmp_path / "tone.wav").peak == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("rate", [4_000, 96_000, 192_000])
def test_rates_that_browsers_may_not_play_are_brought_to_48_khz(tmp_path, noise, rate):
    given = np.repeat(noise[: rate // 4, None], 2, axis=1)
    samples, found = brought(tmp_path / "odd.wav", given, rate)
    assert found == 48_000
    assert len(samples) == pytest.approx(12_000, abs=50)
    assert samples.shape[1] == 2


def test_a_sound_that_no_wav_file_holds_is_told(tmp_path, noise, monkeypatch):
    monkeypatch.setattr(loudness, "MOST_BYTES", 2 * len(noise) - 2)
    with pytest.raises(DataError, match="too long to be played here"):
        brought(tmp_path / "long.wav", noise)
    monkeypatch.setattr(loudness, "MOST_BYTES", 2 * len(noise))
    assert len(brought(tmp_path / "long.wav", noise)[0]) == len(noise)


def test_a_clip_that_cannot_be_played_is_told_and_left_out_of_its_page(tmp_path):
    study = small_study(tmp_path, tasks=2, size=2)
    (tmp_path / "sounds" / "tone0.wav").write_text("no sound")
    told: list = []
    usable, problems = playable(study, lambda *state: told.append(state))
    assert [problem.where for problem in problems] == ["tone0.wav"]
    assert "left out" in problems[0].what
    assert [len(page.items) for page in usable.pages] == [1, 1]
    assert told[-1] == ("matching loudness", 2, 2)
    tone(tmp_path / "sounds" / "tone0.wav", 0.4)
    assert playable(study) == (study, [])


def test_a_page_none_of_whose_clips_can_be_played_is_left_out(tmp_path):
    study = small_study(tmp_path, tasks=2, size=1)
    study.sound(study.pages[0].items[0]).write_text("no sound")
    usable, _ = playable(study)
    assert usable.pages == study.pages[1:]


# The owner


def test_the_owners_page_asks_for_the_owners_token(client, app):
    for path in ("/owner", "/api/owner/progress", "/api/owner/raters", "/api/owner/agreement", "/api/owner/export"):
        assert client.get(path).status_code == 401, path
        assert client.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get(path, params={"token": "wrong"}).status_code == 401
    begin(client)
    assert client.get("/api/owner/progress").status_code == 401  # a rater's cookie is no owner's
    shown = client.get("/owner", headers={"accept": "text/html"})
    assert (shown.status_code, "<h1>" in shown.text, "earmark collect serve" in shown.text) == (401, True, True)
    owner = TestClient(app, base_url=LOCAL)
    first = owner.get("/owner", params={"token": TOKEN}, follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/owner")
    assert "httponly" in first.headers["set-cookie"].lower()
    assert first.headers["set-cookie"].startswith("earmark-study-owner=")
    assert owner.get("/owner").status_code == 200
    assert owner.get("/api/owner/progress").status_code == 200
    assert owner.get("/api/state").status_code == 401  # and the owner's is no rater's


def test_the_owner_sees_progress_agreement_and_raters(app):
    for rating, pid in ((70, "p1"), (80, "=cmd|calc")):
        client = TestClient(app, base_url=LOCAL)
        finish(client, begin(client, platform={"PROLIFIC_PID": pid}), rating)
    owner = TestClient(app, base_url=LOCAL, headers=OWNER)
    told = owner.get("/api/owner/progress").json()
    assert (told["progress"]["completed"], told["progress"]["submitted"], told["progress"]["wanted"]) == (2, 4, 6)
    assert {each["group"]: (each["pairs"], each["ratings"], each["wanted"]) for each in told["strata"]} == {
        "TN": (4, 8, 12),
        "TP": (2, 4, 6),
    }
    rows = owner.get("/api/owner/raters").json()
    assert [row["platform"]["PROLIFIC_PID"] for row in rows["raters"]] == ["p1", "=cmd|calc"]
    assert {"flags", "unsure", "checks_right", "failed_checks", "sound_passed"} <= set(rows["raters"][0])
    agrees = owner.get("/api/owner/agreement").json()
    assert (agrees["all"]["ratings"], agrees["all"]["raters"], agrees["all"]["units_of_two"]) == (12, 2, 6)
    assert "NaN" not in owner.get("/api/owner/agreement").text


def rows_of(answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_the_owner_exports_what_counts(app, store, study):
    client = TestClient(app, base_url=LOCAL)
    finish(client, begin(client))
    late = TestClient(app, base_url=LOCAL)
    state = begin(late)
    item = late.get(f"/api/pages/{state['number']}").json()["items"][0]
    hear(late, item)
    rate(late, item, 60, "a")
    rate(late, item, 65, "b")
    owner = TestClient(app, base_url=LOCAL, headers=OWNER)
    answer = owner.get("/api/owner/export")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    counted = rows_of(answer)
    assert len(counted) == 6
    first = counted[0]
    assert {first["group"], first["stratum"], float(first["probability"])} <= {"TP", "TN", "pool", 0.5}
    assert float(first["rating"]) == 70
    assert len(rows_of(owner.get("/api/owner/export", params={"what": "all"}))) == 6 + 2 + 1
    assert len(rows_of(owner.get("/api/owner/export", params={"what": "history"}))) == 6 + 2 + 2
    assert owner.get("/api/owner/export", params={"what": "../x"}).status_code == 422


def test_raters_who_fail_the_checks_are_left_out_by_choice(tmp_path, store):
    settings = Settings(qualify=0, check_every=1, pages_a_rater=2)
    study = small_study(tmp_path, tasks=2, checks=1, size=2, settings=settings)
    client = served(study, store)
    finish(client, begin(client), 10)  # 50 and more are right
    other = served(study, store)
    finish(other, begin(other), 90)
    owner = served(study, store)
    owner.headers.update(OWNER)
    assert len(rows_of(owner.get("/api/owner/export"))) == 8
    kept = rows_of(owner.get("/api/owner/export", params={"what": "passed"}))
    assert {float(row["rating"]) for row in kept} == {90}
    agrees = owner.get("/api/owner/agreement").json()
    assert (agrees["failed_raters"], agrees["all"]["raters"], agrees["passed"]["raters"]) == (1, 2, 1)


def test_a_token_that_could_be_guessed_is_refused(study, store):
    with pytest.raises(DataError, match="8 or more"):
        create_app(study, store, owner_token="7letter")


# The pages


@pytest.mark.case("S08")
def test_the_owners_words_are_markdown_without_markup(study, store):
    hostile = "<script>alert(1)</script>\n\n[x](javascript:alert(1)) <img src=x onerror=alert(1)>\n\n**bold**"
    told = served(replace(study, consent=hostile, instructions=hostile), store).get("/api/study").json()
    for html in (told["consent"], told["instructions"]):
        assert "<script" not in html
        assert "<img" not in html
        assert "href=" not in html
        assert "<strong>bold</strong>" in html


def test_pages_are_served_with_a_strict_policy(client):
    for path in ("/", "/page/3", "/collect/study.js", "/collect/study.css", "/web/slider.js", "/web/player.js", "/api"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert client.head(path).status_code == 200
        assert "http" + "://" not in answer.text
        assert "style=" not in answer.text or path.endswith(".js")
        assert "<script>" not in answer.text
    for path in ("/page/1/2", "/collect/../app.py", "/collect/%2e%2e/app.py", "/owner/x"):
        assert client.get(path).status_code in (401, 404)


def test_the_api_describes_itself_whole(client):
    told = client.get("/openapi.json").json()
    assert set(told["paths"]) == {
        "/api/study",
        "/api/enter",
        "/api/state",
        "/api/consent",
        "/api/sound-check",
        "/api/sound-check/answers",
        "/api/sound-check/volume",
        "/api/sound-check/{kind}/{at}",
        "/api/pages/{number}",
        "/api/pages/{number}/submit",
        "/api/items/{item_id}/heard",
        "/api/items/{item_id}/rating",
        "/api/items/{item_id}/sound",
        "/api/items/{item_id}/peaks",
        "/api/owner/progress",
        "/api/owner/raters",
        "/api/owner/agreement",
        "/api/owner/export",
    }
    for methods in told["paths"].values():
        for about in methods.values():
            assert about["description"]


def test_no_address_and_no_browser_is_kept(app, tmp_path):
    client = TestClient(
        app, base_url=LOCAL, headers={"user-agent": "A Very Rare Browser", "x-forwarded-for": "10.9.8.7"}
    )
    finish(client, begin(client))
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("study.db*"))
    assert b"Rare Browser" not in kept
    assert b"10.9.8.7" not in kept
    assert b"127.0.0.1" not in kept
