"""The search page, driven in Chromium: every feature that docs/serve.md names. Without Chromium these tests skip."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
import uvicorn
from indices import random_run, small_sounds, write_sound

from earmark.data.collection import Collection
from earmark.search.app import create_app
from earmark.search.engine import Engine
from earmark.search.index import build

HOSTILE = "<img src=x onerror='window.pwned=1'>.wav"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
LONG_NAME = f"{'a very long name of a gate ' * 9}.wav"


@pytest.fixture(scope="module")
def browser():
    """Chromium: playwright's own, or the system's."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    arguments = ["--no-sandbox", "--disable-gpu", "--mute-audio", "--autoplay-policy=no-user-gesture-required"]
    with api.sync_playwright() as playwright:
        own = shutil.which("chromium") or shutil.which("chromium-browser")
        try:
            launched = playwright.chromium.launch(executable_path=own, args=arguments)
        except api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory, sentence_encoder) -> Path:
    """A folder with `index`, `sounds` and, once someone rated, `ratings`."""
    root = tmp_path_factory.mktemp("page")
    sounds = small_sounds(root / "sounds")
    write_sound(sounds / "odd" / HOSTILE, 1.1, seed=21)
    write_sound(sounds / "odd" / "bell.aiff", 1.2, seed=22, rate=44_100, channels=2)
    write_sound(sounds / "odd" / "gone.wav", 1.3, seed=23)
    write_sound(sounds / "long" / "ocean.wav", 200.0, seed=24, rate=8_000)
    shutil.copyfile(sounds / "dogs" / "dog_bark.wav", sounds / "odd" / "again.wav")
    build([sounds], root / "index", model=str(random_run(root / "run")))
    (sounds / "odd" / "gone.wav").unlink()
    return root


@contextmanager
def serving(root: Path, **options) -> Iterator[str]:
    """The address of a server of `root/index` that is running within the block."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(Engine(root / "index"), ratings=root / "ratings", **options)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def site(made) -> Iterator[str]:
    """The address of a server that is running."""
    with serving(made) as address:
        yield address


@pytest.fixture(params=["desktop"])
def page(browser, site, request):
    """A page that notes what it asks for, and that fails the test where something was not as it must be."""
    width, height = SIZES[request.param]
    context = browser.new_context(viewport={"width": width, "height": height}, base_url=site, accept_downloads=True)
    opened = context.new_page()
    opened.set_default_timeout(10_000)
    asked, broken = [], []
    opened.on("request", lambda each: asked.append(each.url))
    opened.on("pageerror", lambda error: broken.append(str(error)))
    opened.on("console", lambda said: broken.append(said.text) if "Content Security" in said.text else None)
    opened.on("dialog", lambda dialog: (broken.append(dialog.message), dialog.dismiss()))
    yield opened
    assert not broken
    assert opened.evaluate("window.pwned") is None
    assert all(url.startswith((f"{site}/", "blob:")) for url in asked), asked
    context.close()


def search(page, query: str) -> None:
    """Shows what an address asks."""
    page.goto(f"/?{query}")
    page.wait_for_selector(".hit")


def row(page, name: str):
    """The row of a sound."""
    return page.locator(".hit").filter(has=page.locator(".name", has_text=name))


def names(page) -> list[str]:
    return page.locator(".hit .name").all_inner_texts()


def position(of) -> float:
    return float(of.locator("canvas").get_attribute("aria-valuenow"))


def is_playing(page, name: str) -> None:
    """Waits until the sound is playing."""
    row(page, name).get_by_role("button", name=f"Pause {name}").wait_for()


# Searching


def test_words_bring_rows_with_all_that_one_must_know(page):
    page.goto("/")
    page.get_by_text("Say what you hear").wait_for()
    page.get_by_text("index: 14 sounds, ").wait_for()
    page.get_by_label("Words for a sound").fill("river")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit")
    assert page.url.endswith("?q=river")
    first = page.locator(".hit").first
    assert first.locator(".name").inner_text() == "river.wav"
    assert first.locator(".where").inner_text() == "sounds/long"
    told = first.locator(".facts").inner_text()
    assert "23.0 s" in told
    assert "0:" in told
    assert "8 kHz" in told
    assert "named" in told
    assert page.get_by_role("status").inner_text() == "13 of 14 sounds, best first"
    assert page.title() == "river · earmark"


def test_the_waveform_is_drawn_with_the_region(page):
    search(page, "q=river")
    first = row(page, "river.wav")
    first.locator(".wave.loaded").wait_for()
    colours = first.locator("canvas").evaluate(
        """(canvas) => {
            const { width, height } = canvas;
            const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
            const seen = new Set();
            for (let at = 0; at < data.length; at += 4) seen.add([...data.slice(at, at + 4)].join());
            return seen.size;
        }"""
    )
    assert colours > 4  # ground, region, wave in and out of it


def test_more_are_shown_when_asked(page):
    search(page, "q=a&limit=5")
    assert len(names(page)) == 5
    page.get_by_role("button", name="Show more").click()
    page.wait_for_function("() => document.querySelectorAll('.hit').length === 13")
    assert "limit=25" in page.url
    assert page.get_by_role("button", name="Show more").is_hidden()


def test_near_duplicates_stand_behind_the_best_with_a_count(page):
    search(page, "q=dog")
    folded = page.locator(".copies")
    assert folded.count() == 1
    folded.get_by_text("+1 near-duplicate").click()
    shown = {page.locator(".hit").filter(has=folded).locator(".name").inner_text()}
    shown.add(Path(folded.locator("li").inner_text()).name)
    assert shown == {"dog_bark.wav", "again.wav"}
    page.get_by_label("Near-duplicates as one").uncheck()
    asks(page, "fold=false")
    assert {"dog_bark.wav", "again.wav"} <= set(names(page))


def test_nothing_found_and_refusals_are_said(page):
    page.goto("/?q=a&shortest_s=5000")
    page.get_by_text("No sound passes the filters").wait_for()
    assert not names(page)
    page.goto(f"/?like={'0' * 32}@0")
    page.get_by_role("alert").filter(has_text="Search again").wait_for()
    page.goto("/?q=%E2%80%8B")  # U+200B
    page.get_by_role("alert").filter(has_text="blank").wait_for()


# Playing


def test_sounds_play_one_at_a_time(page):
    search(page, "q=dog")
    first, second = row(page, "dog_bark.wav"), row(page, "snare_01.wav")
    second.get_by_role("button", name="Play snare_01.wav").click()
    is_playing(page, "snare_01.wav")
    page.wait_for_function("() => document.querySelector('.hit.playing canvas').getAttribute('aria-valuenow') > 0.3")
    row(page, "door_creak.wav").get_by_role("button", name="Play").click()
    is_playing(page, "door_creak.wav")
    assert page.locator(".hit.playing").count() == 1
    assert first.locator(".playing").count() == 0
    row(page, "door_creak.wav").get_by_role("button", name="Pause").click()
    page.wait_for_function("() => !document.querySelector('.hit.playing')")


def test_what_the_browser_cannot_play_is_played_all_the_same(page):
    search(page, "q=bell")
    row(page, "bell.aiff").get_by_role("button", name="Play bell.aiff").click()
    is_playing(page, "bell.aiff")


def test_clicking_the_waveform_seeks(page):
    search(page, "q=river")
    canvas = row(page, "river.wav").locator("canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.5, "y": 20})
    is_playing(page, "river.wav")
    assert position(row(page, "river.wav")) == pytest.approx(11.5, abs=1.5)
    canvas.click(position={"x": box["width"] * 0.9, "y": 20})
    page.wait_for_timeout(100)
    assert position(row(page, "river.wav")) == pytest.approx(20.7, abs=1.5)
    canvas.press("Home")
    page.wait_for_timeout(100)
    assert position(row(page, "river.wav")) < 2


def test_long_sounds_are_drawn_in_part_and_the_part_follows(page):
    search(page, "q=ocean")
    long = row(page, "ocean.wav")
    long.locator(".wave.loaded").wait_for()
    axis = long.locator(".wave-axis").inner_text().split()
    assert axis != ["0:00", "3:20"]
    long.locator("canvas").press("End")
    page.wait_for_function("() => document.querySelector('.hit .wave-axis').innerText.includes('3:20')")


def test_a_sound_that_is_gone_is_said_to_be(page):
    search(page, "q=gone")
    gone = row(page, "gone.wav")
    gone.get_by_text("cannot be read any more").wait_for()  # before it is played
    assert gone.locator(".wave.failed").count() == 1
    gone.get_by_role("button", name="Play gone.wav").click()
    gone.get_by_role("alert").filter(has_text="cannot be read any more").wait_for()
    assert gone.locator(".wave.failed").count() == 1


MINUTES = "minutes.mp3"
CATCH = """() => {
    const make = document.createElement.bind(document);
    document.createElement = (tag, ...more) => {
        const made = make(tag, ...more);
        if (tag === "audio") window.audio = made;
        return made;
    };
}"""
LOUDNESS = """async () => {
    const context = new AudioContext();
    const analyser = new AnalyserNode(context, { fftSize: 2048 });
    context.createMediaElementSource(window.audio).connect(analyser);
    const samples = new Float32Array(2048);
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    window.loudest = async () => {
        let most = 0;
        for (let at = 0; at < 8; at++) {
            await wait(25);
            analyser.getFloatTimeDomainData(samples);
            for (const each of samples) most = Math.max(most, Math.abs(each));
        }
        return most;
    };
}"""


@pytest.fixture(scope="module")
def second(tmp_path_factory, sentence_encoder) -> Path:
    """Another such folder: a long MP3 of variable bit rate, a sound with a long name, more rates than are offered."""
    root = tmp_path_factory.mktemp("second")
    sounds = root / "sounds"
    write_sound(sounds / LONG_NAME, 1.0, seed=1)
    for at in range(13):
        write_sound(sounds / "rates" / f"rate_{at}.wav", 0.3, seed=at, rate=8_000 + 1_000 * at)
    write_sound(sounds / "rates" / "other.wav", 0.3, seed=9, rate=22_050)
    soundfile.write(sounds / MINUTES, minutes(5), 8_000, bitrate_mode="VARIABLE", compression_level=0.5)
    build([sounds], root / "index", model=str(random_run(root / "run")))
    return root


def minutes(many: int) -> np.ndarray:
    """A beep of 1 s at each minute; noise in the first one, silence in the others: bit rates differ."""
    samples = np.zeros(8_000 * (60 * many + 5), np.float32)
    samples[: 8_000 * 55] = 0.1 * np.random.default_rng(0).standard_normal(8_000 * 55)
    for at in range(1, many + 1):
        samples[8_000 * 60 * at :][:8_000] = 0.5 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    return samples


@contextmanager
def visiting(browser, address: str, **options) -> Iterator:
    """A page of that server, in a browser that knows nothing of it."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    yield page
    context.close()


def test_long_mp3_plays_from_the_very_place_that_is_shown(browser, second):
    with serving(second) as address, visiting(browser, address) as page:
        page.add_init_script(f"({CATCH})()")
        search(page, "q=minutes")
        found = row(page, MINUTES)
        with page.expect_response("**/play") as answer:
            found.get_by_role("button", name=f"Play {MINUTES}").click()
        assert answer.value.headers["content-type"] == "audio/wav"
        is_playing(page, MINUTES)
        page.wait_for_function("() => window.audio.readyState > 1")
        assert page.evaluate("window.audio.duration") == pytest.approx(305, abs=0.2)
        page.evaluate(LOUDNESS)
        canvas = found.locator("canvas")
        canvas.press("End")  # the last 80 s are drawn
        found.get_by_text("3:45").wait_for()
        width = canvas.bounding_box()["width"]
        heard = {}
        for place in (232.0, 240.3, 238.0, 300.3, 302.0, 240.3):
            canvas.click(position={"x": (place - 225) / 80 * width, "y": 20})
            page.wait_for_function("() => !window.audio.seeking")
            page.wait_for_timeout(80)
            heard[place] = page.evaluate("window.loudest()") > 0.2
        assert heard == {place: place % 60 < 1 for place in heard}


# Keys


def test_every_key_does_what_the_help_says(page):
    search(page, "q=river")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("j/")  # in a box keys are letters
    assert "j" in page.get_by_label("Words for a sound").input_value()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.locator(".hit.current .name").inner_text() == "river.wav"
    page.keyboard.press("j")
    second = page.locator(".hit.current .name").inner_text()
    assert second == names(page)[1]
    page.keyboard.press("k")
    assert page.locator(".hit.current .name").inner_text() == "river.wav"
    page.keyboard.press("Shift+J")
    assert page.locator(".hit.current .name").inner_text() == second
    page.keyboard.press("Shift+K")
    page.keyboard.press("Space")
    is_playing(page, "river.wav")
    page.keyboard.press("Space")
    page.wait_for_function("() => !document.querySelector('.hit.playing')")
    row(page, "river.wav").locator("canvas").press("End")
    page.locator(".hit").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    start = float(page.locator(".hit a[href*=cut]").first.get_attribute("href").split("start=")[1].split("&")[0])
    assert position(row(page, "river.wav")) == pytest.approx(start, abs=1.0)
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").is_hidden()
    page.keyboard.press("l")
    page.get_by_text("like river.wav").wait_for()
    page.wait_for_function("() => document.querySelector('.hit .name')?.innerText === 'river.wav'")
    assert "like=" in page.url


# A sound to search by


DROP = """(bytes) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(bytes)], "mine.wav", { type: "audio/wav" }));
    for (const name of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, bubbles: true, cancelable: true }));
        if (name === "dragover") window.shown = !document.getElementById("drop").hidden;
    }
}"""


def test_a_dropped_sound_is_searched_by(page, made):
    search(page, "q=dog")
    page.evaluate(DROP, list((made / "sounds" / "doors" / "door_creak.wav").read_bytes()))
    page.get_by_text("like mine.wav").wait_for()
    assert page.evaluate("window.shown")
    assert page.locator("#drop").is_hidden()
    page.wait_for_function("() => document.querySelector('.hit .name')?.innerText === 'door_creak.wav'")
    page.get_by_role("button", name="Do not search by this sound").click()
    page.get_by_text("Say what you hear").wait_for()
    page.go_back()
    page.get_by_text("like mine.wav").wait_for()


def test_a_chosen_file_is_searched_by_and_a_wrong_one_refused(page, made, tmp_path):
    page.goto("/")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="By a sound").click()
    chooser.value.set_files(str(made / "sounds" / "doors" / "door_slam.ogg"))
    page.get_by_text("like door_slam.ogg").wait_for()
    page.wait_for_function("() => document.querySelector('.hit .name')?.innerText === 'door_slam.ogg'")
    (tmp_path / "wrong.wav").write_text("no sound at all")
    page.set_input_files("#file", str(tmp_path / "wrong.wav"))
    page.get_by_role("alert").filter(has_text="wrong.wav is no sound that can be read.").wait_for()
    assert page.get_by_role("status").inner_text() == "13 of 14 sounds, best first"  # as before
    soundfile.write(tmp_path / "long.flac", np.zeros(8000 * 601), 8000)
    page.set_input_files("#file", str(tmp_path / "long.flac"))
    page.get_by_role("alert").filter(has_text="more than 600 s").wait_for()


# Filters, addresses


def asks(page, what: str) -> None:
    """Waits until the address asks it and the answer is there."""
    page.wait_for_function("(what) => location.search.includes(what)", arg=what)
    page.wait_for_function("() => !document.querySelector('#hits').hasAttribute('aria-busy')")


def test_filters_narrow_and_stand_in_the_address(page):
    search(page, "q=a+sound&limit=50")
    everything = len(names(page))
    filters = page.get_by_role("complementary", name="Filters")
    filters.get_by_label("stereo").check()
    asks(page, "channels=2")
    assert len(names(page)) == 5
    filters.get_by_label("Longest").fill("1.5")
    filters.get_by_label("Longest").press("Enter")
    asks(page, "longest_s=1.5")
    assert set(names(page)) == {"puppy_whine.wav", "thunder_storm.wav", "bell.aiff"}
    filters.get_by_label("44.1 kHz").check()
    asks(page, "rate=44100")
    assert names(page) == ["bell.aiff"]
    assert filters.locator("#filters-set").inner_text() == "3 set"
    filters.get_by_role("button", name="Clear filters").click()
    page.wait_for_function("() => !location.search.includes('channels')")
    page.wait_for_function("(all) => document.querySelectorAll('.hit').length === all", arg=everything)
    filters.get_by_label("Folder").fill("doors")
    filters.get_by_label("Folder").press("Enter")
    asks(page, "folder=doors")
    assert set(names(page)) == {"door_slam.ogg", "door_creak.wav"}
    filters.get_by_label("Tags", exact=True).fill("Wood")
    filters.get_by_label("Tags", exact=True).press("Enter")
    asks(page, "tag=wood")
    page.get_by_text("No sound passes the filters").wait_for()
    filters.get_by_role("button", name="Without the tag wood").click()
    page.wait_for_function("() => !location.search.includes('tag')")
    assert page.evaluate("document.activeElement.id") == "tag"
    filters.get_by_label("Without", exact=True).fill("a slam")
    filters.get_by_label("Without", exact=True).press("Enter")
    asks(page, "not=a+slam")
    filters.get_by_label("Names and tags count too").uncheck()
    asks(page, "keywords=false")
    assert page.locator(".facts .badge").count() == 0


def test_an_address_can_be_shared_and_back_leads_back(page, browser, site):
    search(page, "q=door")
    page.get_by_label("mono").check()
    asks(page, "channels=1")
    shown = names(page)
    other = browser.new_page()
    other.goto(page.url)
    other.wait_for_selector(".hit")
    assert names(other) == shown
    assert other.get_by_label("Words for a sound").input_value() == "door"
    assert other.get_by_label("mono").is_checked()
    other.close()
    page.get_by_label("Words for a sound").fill("dog")
    page.get_by_label("Words for a sound").press("Enter")
    asks(page, "q=dog")
    page.go_back()
    asks(page, "q=door")
    assert page.get_by_label("Words for a sound").input_value() == "door"
    page.wait_for_function("(first) => document.querySelector('.hit .name')?.innerText === first", arg=shown[0])
    page.go_back()
    page.wait_for_function("() => !location.search.includes('channels')")
    assert not page.get_by_label("mono").is_checked()
    page.go_forward()
    asks(page, "channels=1")


def test_what_is_like_a_sound_is_sought_with_the_same_filters(page, made):
    search(page, "q=dog&channels=1&longest_s=20&limit=50")
    page.keyboard.press("j")
    page.keyboard.press("Shift+L")
    asks(page, "like=")
    assert "channels=1" in page.url
    assert "longest_s=20" in page.url
    assert "q=" not in page.url
    page.evaluate(DROP, list((made / "sounds" / "doors" / "door_creak.wav").read_bytes()))
    page.get_by_text("like mine.wav").wait_for()
    assert "channels=1" in page.url
    page.get_by_role("button", name="Do not search by this sound").click()
    assert page.evaluate("document.activeElement.id") == "q"


def test_all_filters_are_in_sight_and_values_of_the_address_are_kept(browser, second):
    with serving(second) as address, visiting(browser, address) as page:
        page.goto("/?q=rate&rate=22050&rate=96000&channels=7")
        filters = page.get_by_role("complementary", name="Filters")
        filters.get_by_label("8 kHz").first.wait_for()
        for label in ("22.05 kHz", "96 kHz", "7 channels"):
            assert filters.get_by_label(label).is_checked(), label
        last = filters.get_by_role("button", name="Clear filters").bounding_box()
        assert last["y"] + last["height"] < 900
        filters.get_by_label("7 channels").uncheck()
        page.wait_for_function("() => !location.search.includes('channels')")
        assert "rate=22050" in page.url
        assert "rate=96000" in page.url


def test_a_long_name_takes_two_lines(browser, second):
    with serving(second) as address, visiting(browser, address) as page:
        search(page, "q=gate")
        name = row(page, "a very long name").locator(".name")
        height, line = name.evaluate("(each) => [each.clientHeight, parseFloat(getComputedStyle(each).lineHeight)]")
        assert height <= 2 * line + 2
        assert name.get_attribute("title").endswith(LONG_NAME)


def test_a_wrong_like_and_a_wrong_token_are_told_in_a_sentence(page, browser, made):
    page.goto("/?like=nothing")
    page.get_by_role("alert").filter(has_text="The address names no sound to search by:").wait_for()
    page.get_by_label("Words for a sound").fill("dog")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit")
    assert page.url.endswith("/?q=dog")
    with serving(made, token="opensesame") as address, visiting(browser, address) as other:
        other.goto("/?token=opensesame")
        other.get_by_text("Say what you hear").wait_for()
        other.context.clear_cookies()
        other.get_by_label("Words for a sound").fill("dog")
        other.keyboard.press("Enter")
        other.get_by_role("alert").filter(has_text="The server wants its token").wait_for()
        other.goto("/")
        other.get_by_text("A token is needed. Open the address").wait_for()


def test_of_two_dropped_files_the_first_is_taken(page, made):
    page.goto("/")
    page.get_by_text("Say what you hear").wait_for()
    drop = DROP.replace("for (const", 'transfer.items.add(new File([], "b.wav")); for (const', 1)
    page.evaluate(drop, list((made / "sounds" / "doors" / "door_creak.wav").read_bytes()))
    page.get_by_text("Of 2 files that were dropped, the first is searched by: mine.wav.").wait_for()


def test_a_hit_dragged_onto_the_box_leaves_it_as_it_is(page):
    search(page, "q=river")
    row(page, "river.wav").locator(".name").drag_to(page.locator("#q"))
    assert page.locator("#q").input_value() == "river"


# Taking sounds out


def test_exports_and_cuts_are_downloads(page, made):
    search(page, "q=river&limit=3")
    for label, name in (("Playlist", "earmark.m3u"), ("CSV", "earmark.csv"), ("JSON", "earmark.json")):
        with page.expect_download() as download:
            page.get_by_role("link", name=label).click()
        assert download.value.suggested_filename == name
        assert "river.wav" in Path(download.value.path()).read_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download 0:").first.click()
    assert download.value.suggested_filename.startswith("river_")
    assert soundfile.info(download.value.path()).duration == pytest.approx(10, abs=2.1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download river.wav").click()
    assert Path(download.value.path()).read_bytes() == (made / "sounds" / "long" / "river.wav").read_bytes()


DRAG = """(element) => {
    const transfer = new DataTransfer();
    element.dispatchEvent(new DragEvent("dragstart", { dataTransfer: transfer, bubbles: true, cancelable: true }));
    const types = ["DownloadURL", "text/uri-list", "text/plain"];
    return Object.fromEntries(types.map((type) => [type, transfer.getData(type)]));
}"""


def test_a_hit_is_dragged_out_as_a_file(page, made, site):
    search(page, "q=river")
    first = row(page, "river.wav")
    file = first.locator(".name").evaluate(DRAG)
    kind, name, address = file["DownloadURL"].split(":", 2)
    assert (kind, name) == ("application/octet-stream", "river.wav")
    assert address == file["text/uri-list"]
    assert address.startswith(f"{site}/api/sounds/")
    assert page.request.get(address).body() == (made / "sounds" / "long" / "river.wav").read_bytes()
    assert file["text/plain"].endswith("long/river.wav")
    assert first.locator(".name").get_attribute("draggable") == "true"
    part = first.locator("a[href*=cut]").evaluate(DRAG)
    assert "/cut?start=" in part["DownloadURL"]
    assert page.request.get(part["text/uri-list"]).ok


# Rating


def rated(made: Path) -> dict[str, float]:
    """Rating by the sound's name."""
    kept = Collection.read(made / "ratings")
    assert kept.check(sounds=False) == []
    path = {clip.clip_id: clip.path for clip in kept.clips}
    return {Path(path[each.clip_id]).name: each.rating for each in kept.ratings}


def test_the_slider_keeps_ones_own_rating(page, made):
    search(page, "q=a+barking+dog")
    first = row(page, "dog_bark.wav")
    slider = first.get_by_role("slider", name="How well dog_bark.wav fits “a barking dog”, 0 to 100")
    assert slider.get_attribute("aria-valuetext") == "not rated"
    assert "unset" in slider.get_attribute("class")
    first.get_by_role("button", name="Play dog_bark.wav").click()
    page.wait_for_timeout(700)
    with page.expect_response(lambda answer: answer.request.method == "PUT") as kept:
        slider.fill("80")
    assert kept.value.ok
    assert slider.get_attribute("aria-valuetext") == "80 of 100"
    assert rated(made) == {"dog_bark.wav": 80}
    (rating,) = Collection.read(made / "ratings").ratings
    assert rating.played_s > 0.1
    assert rating.stratum == "search"
    assert rating.more["rank"] == str(names(page).index("dog_bark.wav") + 1)
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        row(page, "puppy_whine.wav").get_by_role("slider", name="How well").click()  # the middle
    assert rated(made)["puppy_whine.wav"] == pytest.approx(50, abs=2)
    slider.focus()
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        page.keyboard.press("ArrowRight")
    assert rated(made)["dog_bark.wav"] == 81
    page.reload()
    page.wait_for_selector(".hit")
    again = row(page, "dog_bark.wav")
    assert again.get_by_role("slider", name="How well").get_attribute("aria-valuetext") == "81 of 100"
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        again.get_by_role("button", name="Take the rating of dog_bark.wav back").click()
    assert page.evaluate("document.activeElement.type") == "range"
    assert "dog_bark.wav" not in rated(made)
    assert again.get_by_role("slider", name="How well").get_attribute("aria-valuetext") == "not rated"


def kept_by(page) -> list:
    """Ratings that the page sends, as it sends them."""
    sent: list = []
    page.on("request", lambda each: sent.append(each.post_data_json["rating"]) if each.method == "PUT" else None)
    return sent


def test_keys_rate_once_they_rest_and_when_the_page_is_left(page, made):
    search(page, "q=a+creaking+door")
    slider = row(page, "door_creak.wav").get_by_role("slider", name="How well")
    sent = kept_by(page)
    slider.focus()
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        for _ in range(7):
            page.keyboard.press("ArrowRight")
    page.wait_for_timeout(600)
    assert sent == [57]
    page.keyboard.press("ArrowRight")
    page.locator("#q").focus()  # at once
    page.wait_for_timeout(100)
    assert sent == [57, 58]
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.goto("about:blank")
    page.wait_for_timeout(300)
    assert rated(made)["door_creak.wav"] == 59


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_enter_and_space_rate_what_an_unset_slider_shows(page, key):
    search(page, f"q=a+key+{key}")
    first = page.locator(".hit").first
    sent = kept_by(page)
    first.get_by_role("slider", name="How well").press(key)
    assert first.locator(".rate-value").inner_text() == "50"
    page.wait_for_timeout(100)
    assert sent == [50]
    assert page.locator(".hit.playing").count() == 0


def test_a_rating_that_is_not_kept_shows_the_one_before(page):
    search(page, "q=a+slamming+door")
    first = page.locator(".hit").first
    slider = first.get_by_role("slider", name="How well")
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        slider.fill("70")
    page.route("**/api/ratings", lambda route: route.fulfill(status=500, json={"detail": "the disk is full."}))
    slider.fill("20")
    first.get_by_role("alert").filter(has_text="The rating was not kept: the disk is full.").wait_for()
    assert slider.get_attribute("aria-valuetext") == "70 of 100"


def touch(page, kind: str, *points: tuple[float, float]) -> None:
    """A touch of a finger, as Chromium's own input takes it."""
    page.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})


def test_a_swipe_over_a_slider_scrolls_and_a_tap_rates(browser, site):
    with visiting(browser, site, has_touch=True, is_mobile=True) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.session = page.context.new_cdp_session(page)
        search(page, "q=swiped")
        sent = kept_by(page)
        slider = page.get_by_role("slider", name="How well").nth(1)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        x, y = box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2
        before = page.evaluate("scrollY")
        touch(page, "touchStart", (x, y))
        for step in range(1, 11):
            touch(page, "touchMove", (x, y - 20 * step))
            page.wait_for_timeout(16)
        touch(page, "touchEnd")
        page.wait_for_timeout(300)
        assert page.evaluate("scrollY") > before + 50
        assert slider.get_attribute("aria-valuetext") == "not rated"
        assert sent == []
        box = slider.bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(300)
        assert sent == [50]
        slider = page.get_by_role("slider", name="How well").nth(2)
        box = slider.bounding_box()
        y = box["y"] + box["height"] / 2
        touch(page, "touchStart", (box["x"] + box["width"] / 2, y))
        for step in range(1, 6):
            touch(page, "touchMove", (box["x"] + box["width"] * (0.5 + step * 0.08), y))
        touch(page, "touchEnd")
        page.wait_for_timeout(300)
        assert len(sent) == 2
        assert sent[1] > 80


def test_without_words_there_is_nothing_to_rate(page):
    search(page, "q=river")
    page.keyboard.press("j")
    page.keyboard.press("l")
    page.get_by_text("like river.wav").wait_for()
    page.wait_for_function("() => !document.querySelector('.hit input[type=range]')")


# How it looks, and to whom


@pytest.mark.case("S08")
@pytest.mark.parametrize("page", ["desktop", "phone"], indirect=True)
def test_hostile_names_are_text(page):
    search(page, "q=img+src")
    assert row(page, "<img").locator(".name").inner_text() == HOSTILE
    assert page.locator("#hits img").count() == 0
    row(page, "<img").get_by_role("button", name="Play").click()
    is_playing(page, HOSTILE)
    row(page, "<img").locator(".name").click()
    page.keyboard.press("l")
    page.locator("#given").get_by_text(HOSTILE).wait_for()


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_on_a_phone_nothing_is_wider_than_the_screen_and_targets_are_large(page):
    for query in ("", "?q=river", f"?q={'very' * 40}"):
        page.goto(f"/{query}")
        page.wait_for_selector(".hit" if query else "#holds:not(:empty)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("stereo").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, summary, canvas")].filter((each) => {
            const box = (each.closest("label") || each).getBoundingClientRect();
            return each.checkVisibility({ visibilityProperty: true }) && !each.closest(".hidden, .skip, .brand")
                && (box.height < 39.5 || box.width < 39.5);
        }).map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert small == []


def test_light_and_dark_follow_the_system(page):
    def ground() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="light")
    search(page, "q=river")
    light = ground()
    page.emulate_media(color_scheme="dark")
    assert ground() != light


CONTRAST = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = (each) => {
        for (let at = each; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll("body *")].filter((each) => each.checkVisibility()
        && [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())).map((each) => {
        const [one, other] = [light(parse(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => b - a);
        return [(one + 0.05) / (other + 0.05), each.className || each.tagName];
    }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(page, scheme):
    page.emulate_media(color_scheme=scheme)
    search(page, "q=river")
    page.keyboard.press("j")
    assert page.evaluate(CONTRAST) == []


def test_screen_readers_find_landmarks_names_and_news(page):
    search(page, "q=river")
    for role in ("main", "search", "complementary", "banner"):
        assert page.get_by_role(role).count() >= 1, role
    assert page.get_by_role("list").count() >= 1
    assert page.locator("ol#hits > li").count() == 13
    assert page.locator("#status").get_attribute("aria-live") == "polite"
    assert page.get_by_role("main", name="Sounds").get_by_role("heading", level=2, name="Sounds").count() == 1
    canvas = row(page, "river.wav").get_by_role("slider", name="Position in river.wav")
    assert canvas.get_attribute("aria-valuetext").endswith("of 0:23.0")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, canvas")].filter((each) => each.checkVisibility()
            && !(each.getAttribute("aria-label") || each.innerText || each.labels?.length || each.title))
            .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_less_motion_is_respected(page):
    page.emulate_media(reduced_motion="reduce")
    search(page, "q=river")
    assert page.evaluate("getComputedStyle(document.querySelector('#hits')).transitionDuration") == "0s"


def test_the_api_describes_itself_on_a_page_of_its_own(page):
    page.goto("/api")
    page.get_by_role("heading", name="GET /api/search").wait_for()
    page.get_by_role("heading", name="PUT /api/ratings").wait_for()
    assert page.get_by_text("Seconds that a file may last.").first.is_visible()
