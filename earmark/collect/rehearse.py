"""A rehearsal: simulated listeners answer a running study over its HTTP interface, as browsers do.

What fits what they know from the study's collection: of soundscapes what was put into each clip against what a caption
says (`data.scenes.overlap`), of any other collection that a caption fits its own clip and hardly any other. Which clip
they hear they know from the sound's bytes alone: the interface tells no names. Their answers are GENERATED.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import requests
from numpy.random import Generator, SeedSequence, default_rng

from earmark.collect.app import create_app
from earmark.collect.loudness import matched
from earmark.collect.sound_check import by_ear
from earmark.collect.store import Store
from earmark.collect.study import Study
from earmark.data.collection import Collection
from earmark.data.scenes import overlap, read_events, read_said
from earmark.data.soundscapes import Rater, raters
from earmark.errors import DataError
from earmark.files import folder_aside
from earmark.web.listen import beside

REHEARSAL = "rehearsal.db"
"""The store of a rehearsal, in the study's folder."""
Truth = Callable[[str, str], float]
"""(caption_id, clip_id) → how well they fit, 0–1."""
OWN, OTHER = 0.9, 0.05
"""What fits how well where the collection does not tell."""
SPEED = 200.0
"""How many times as fast as people a rehearsal's listeners listen; the server's clock runs as fast."""
AGAIN_S = 0.2
"""Before a request is sent again that nobody answered."""
PATIENCE_S = 60.0
"""How long it is sent again."""


@dataclass
class Rehearsed:
    """What simulated listeners did."""

    raters: int = 0
    """Who came to the end with a code."""
    failed: int = 0
    """Who failed the qualification."""
    pages: int = 0
    ratings: int = 0
    """Acknowledged by the server."""
    stored_s: list[float] = field(default_factory=list)
    """How long the server took to acknowledge each rating that was answered at once."""
    retried: int = 0
    """Requests that had to be sent again."""
    kept: list[tuple[str, str, float]] = field(default_factory=list)
    """(item, key, rating) of every acknowledged rating."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set where the rehearsal was broken off."""


def truth_of(study: Study) -> Truth:
    """What fits what, as the study's collection tells."""
    collection = Collection.read(study.collection)
    events = {clip.clip_id: clip.more.get("events", "") for clip in collection.clips}
    said = {
        each.caption_id: (each.more.get("says", ""), each.more.get("says_order", "")) for each in collection.captions
    }
    own = {each.caption_id: each.clip_id for each in collection.captions}

    def truth(caption_id: str, clip_id: str) -> float:
        if events.get(clip_id) and said.get(caption_id, ("", ""))[0]:
            return overlap(read_said(*said[caption_id]), read_events(events[clip_id]))
        return OWN if own.get(caption_id) == clip_id else OTHER

    return truth


def sounds_of(study: Study) -> dict[str, str]:
    """Which clip a sound is: SHA-256 of the bytes that the server sends → clip_id."""
    paths = {item.clip_id: study.sound(item) for page in study.pages for item in page.items}
    return {_digest(matched(path, study.settings.loudness_lufs).read_bytes()): clip for clip, path in paths.items()}


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def rehearse(
    study: Study,
    address: str,
    *,
    count: int = 12,
    seed: int = 0,
    speed: float = 1.0,
    invites: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Rehearsed:
    """So many simulated listeners go through the study at `address`, all at once; gives what they did.

    At a `speed` above 1 they listen that much faster than they say; the server's clock has to run as fast, or it does
    not believe them. Raises `DataError` where the server refuses them.
    """
    done, lock = Rehearsed(), threading.Lock()
    truth, heard, people = truth_of(study), sounds_of(study), raters(seed)
    captions = {page.text: page.caption_id for page in study.pages}

    def one(number: int) -> None:
        listener = _Listener(
            address.rstrip("/"),
            people[number % len(people)],
            default_rng(SeedSequence([seed, number])),
            lambda text, sound: truth(captions[text], heard[_digest(sound)]),
            done,
            lock,
            speed,
        )
        listener.take_part(invites[number] if invites else "")
        if progress is not None:
            with lock:
                progress(done.raters + done.failed, count)

    with ThreadPoolExecutor(count, "listener") as pool:
        try:
            for each in [pool.submit(one, number) for number in range(count)]:
                each.result()
        except BaseException:
            done.over.set()  # the others go home too
            raise
    return done


@dataclass
class _Listener:
    """One simulated person in a browser of their own."""

    address: str
    person: Rater
    rng: Generator
    truth: Callable[[str, bytes], float]
    done: Rehearsed
    lock: threading.Lock
    speed: float
    browser: requests.Session = field(default_factory=requests.Session)

    def take_part(self, invite: str) -> None:
        """From the first page to the last."""
        state = self.send("POST", "/api/enter", {"invite": invite, "platform": {}})
        while state["step"] not in ("done", "failed", "nothing_left"):
            if state["step"] == "consent":
                state = self.send("POST", "/api/consent", {})
            elif state["step"] == "sound":
                state = self.sound_check()
            else:
                state = self.page(state["number"])
        with self.lock:
            self.done.raters += state["step"] == "done"
            self.done.failed += state["step"] == "failed"

    def sound_check(self) -> Mapping[str, Any]:
        """Answers what is heard, on headphones."""
        answers: list[int] = []
        while kind := self.send("POST", "/api/sound-check/answers", {"answers": answers})["kind"]:
            answers.append(by_ear(kind, self.bytes(f"/api/sound-check/{kind}/{len(answers)}")))
        state: Mapping[str, Any] = self.send("POST", "/api/sound-check", {"answers": answers})
        return state

    def page(self, number: int) -> Mapping[str, Any]:
        """Answers a page and sends it."""
        shown, view, began = self.send("GET", f"/api/pages/{number}"), secrets.token_hex(8), time.monotonic()
        for item in shown["items"]:
            self.item(shown["text"], item, view, began)
        state: Mapping[str, Any] = self.send("POST", f"/api/pages/{number}/submit", {})
        with self.lock:
            self.done.pages += 1
        return state

    def item(self, text: str, item: Mapping[str, Any], view: str, began: float) -> None:
        """Listens to a clip and rates it."""
        sound, duration = self.bytes(f"/api/items/{item['id']}/sound"), float(item["duration_s"])
        rating, played = self.person.rate(self.rng, self.truth(text, sound), duration)
        played = max(played, duration)  # a lapsing listener would not be let on
        time.sleep(played / self.speed)
        report = {
            "view": view,
            "covered": [[0.0, duration]],
            "played_s": round(played, 3),
            "plays": max(1, int(np.ceil(played / duration))),
            "seeks": 0,
            "first_play_s": self.since(began),
        }
        self.send("PUT", f"/api/items/{item['id']}/heard", report)
        key = secrets.token_hex(8)
        answer = {"key": key, "view": view, "rating": rating, "rated_s": self.since(began)}
        started, before = time.perf_counter(), self.done.retried
        self.send("PUT", f"/api/items/{item['id']}/rating", answer)
        with self.lock:
            self.done.ratings += 1
            self.done.kept.append((item["id"], key, float(rating)))
            if self.done.retried == before:
                self.done.stored_s.append(time.perf_counter() - started)

    def since(self, began: float) -> float:
        """Seconds on the study's clock."""
        return round((time.monotonic() - began) * self.speed, 3)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the server answers, as JSON."""
        return self.asked(method, path, body).json()

    def bytes(self, path: str) -> bytes:
        """What the server answers, as it is."""
        return self.asked("GET", path, None).content

    def asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> requests.Response:
        """The answer; a server that is away for a while is asked again, as the page does.

        Raises `DataError` where it refuses, or stays away.
        """
        if self.done.over.is_set():
            raise DataError("the rehearsal was broken off.")
        until, why = time.monotonic() + PATIENCE_S, "it does not answer"
        while time.monotonic() < until:
            try:
                answer = self.browser.request(method, self.address + path, json=body, timeout=PATIENCE_S)
                if answer.ok:
                    return answer
                why = f"{answer.status_code} {answer.text[:300]}"
                if answer.status_code < 500:
                    break
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
                pass
            with self.lock:
                self.done.retried += 1
            time.sleep(AGAIN_S)
        raise DataError(f"{method} {self.address}{path}: {why}. Is the study still served there?")


def serve_and_rehearse(
    study: Study, count: int, seed: int, progress: Callable[[int, int], None] | None = None
) -> Rehearsed:
    """A rehearsal on a server of its own, whose answers go to `REHEARSAL` in the study's folder, once it is whole.

    It is open to all its listeners, whatever the study's entry and limit.
    """
    most = study.settings.most_raters
    settings = dataclasses.replace(study.settings, entry="open", most_raters=max(most, count) if most else 0)
    with folder_aside(study.folder / REHEARSAL) as aside:
        place = aside / REHEARSAL
        done = _rehearsed(dataclasses.replace(study, settings=settings), place, count, seed, progress)
        place.rename(study.folder / REHEARSAL)
    return done


def _rehearsed(
    study: Study, place: Path, count: int, seed: int, progress: Callable[[int, int], None] | None
) -> Rehearsed:
    store = Store.open(place)
    try:
        began = datetime.now(UTC)
        app = create_app(
            study,
            store,
            owner_token=secrets.token_urlsafe(24),
            now=lambda: began + SPEED * (datetime.now(UTC) - began),
            rehearsal=True,
        )
        with beside(app) as address:
            return rehearse(study, address, count=count, seed=seed, speed=SPEED, progress=progress)
    finally:
        store.close()
