"""The study's pages, driven in Chromium. Without Chromium these tests skip."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from studies import TOKEN, serving, small_study

from earmark.collect import answering, sound_check
from earmark.collect.app import create_app
from earmark.collect.flow import Flow
from earmark.collect.loudness import playable
from earmark.collect.store import Store
from earmark.collect.study import Settings, Study

HOSTILE = "<img src=x onerror='window.pwned=1'> \"quoted\" & <script>window.pwned=1</script>"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser():
    """Chromium: playwright's own, or the system's."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    arguments = ["--no-sandbox", "--disable-gpu", "--mute-audio"]
    with api.sync_playwright() as playwright:
        own = shutil.which("chromium") or shutil.which("chromium-browser")
        try:
            launched = playwright.chromium.launch(executable_path=own, args=arguments)
        except api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield launched
        launched.close()


@dataclass
class Site:
    """A study that is being served."""

    address: str
    study: Study
    flow: Flow

    @property
    def rater(self) -> str:
        """Of the last one who came."""
        return self.flow.raters()[-1].rater_id


@contextmanager
def site_of(study: Study, root) -> Iterator[Site]:
    """The study, served within the block."""
    study, problems = playable(study)
    assert problems == []
    store = Store.open(root / "study.db")
    with serving(create_app(study, store, owner_token=TOKEN)) as address:
        yield Site(address, study, Flow(study, store))
    store.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two pages of five sounds of 0.4 to 0.6 s, one qualification page before them, one check page between."""
    root = tmp_path_factory.mktemp("page")
    url = "https://platform.example/done?cc={code}"
    settings = Settings(qualify=1, check_every=1, pages_a_rater=2, raters_a_page=1000, completion_url=url)
    with site_of(small_study(root, tasks=2, checks=1, qualifications=1, settings=settings), root) as served:
        yield served


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Three pages of two sounds, nothing before them."""
    root = tmp_path_factory.mktemp("plain")
    settings = Settings(qualify=0, check_every=0, pages_a_rater=3, raters_a_page=1000)
    study = small_study(root, tasks=3, size=2, settings=settings)
    with site_of(replace(study, consent=f"# Consent\n\n{HOSTILE}\n"), root) as served:
        yield served


@contextmanager
def visiting(browser, site: Site, size: str = "desktop", **options) -> Iterator:
    """A page in a browser of its own; the test fails where something broke in it or was loaded from elsewhere."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, base_url=site.address, **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    broken, asked = [], []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("console", lambda said: broken.append(said.text) if "Content Security" in said.text else None)
    page.on("request", lambda each: asked.append(each.url))
    yield page
    assert broken == []
    assert page.evaluate("window.pwned") is None
    assert all(url.startswith((site.address, "blob:", "about:")) for url in asked), asked
    context.close()


@pytest.fixture
def page(browser, plain):
    """A rater's page of `plain`."""
    with visiting(browser, plain) as opened:
        yield opened


def button(page, name: str):
    return page.get_by_role("button", name=name, exact=True)


def begin(page, address: str = "/") -> None:
    """To the first page, past a sound check that is skipped."""
    page.goto(address)
    button(page, "I agree to take part").click()
    button(page, "Go on to the sound check").click()
    button(page, "I hear nothing").click()
    button(page, "Go on without the check").click()
    page.wait_for_selector(".row")


def row(page, number: int):
    return page.locator(".row").nth(number - 1)


def slider(page, number: int):
    return row(page, number).get_by_role("slider", name="how well does it match")


def hear(page, number: int) -> None:
    """Plays a sound until it can be rated."""
    row(page, number).locator(".play").click()
    page.wait_for_function(
        "(at) => document.querySelectorAll('.row')[at].querySelector('.scale input').ariaDisabled === 'false'",
        arg=number - 1,
    )


def rate(page, number: int, rating: int) -> None:
    slider(page, number).fill(str(rating))
    saved(page, number, rating)


def saved(page, number: int, rating: int) -> None:
    row(page, number).get_by_text(f"Rated {rating}. Saved.").wait_for()


def answer_all(page, rating: int = 60) -> None:
    for number in range(1, page.locator(".row").count() + 1):
        hear(page, number)
        rate(page, number, rating + number)


def goes_on(page, name: str = "Next") -> None:
    """Presses it, and waits for what comes."""
    page.wait_for_timeout(450)  # sooner it would be the second of two clicks
    page.evaluate("document.querySelector('.task').dataset.old = 1")
    button(page, name).click()
    page.wait_for_function("() => !document.querySelector('.task[data-old]')")


def ratings(site: Site, **more) -> list[tuple[int, int, float, int]]:
    """(page, place, rating, how many before it) of the last rater."""
    own = [each for each in site.flow.ratings(**more) if each.rater_id == site.rater]
    return [(each.page_number, each.position, each.rating, each.history) for each in own]


# The whole way


def pass_sound_check(page, site: Site, wrong: int = 0) -> None:
    """Answers as a listener with headphones does, after so many wrong answers."""
    button(page, "Play the noise").click()
    button(page, "I hear it well").click()
    for at, kind in enumerate(["side"] * wrong + ["side", "tones", "tones"]):
        choices = {"side": ["Left", "Right"], "tones": ["First", "Second", "Third"]}[kind]
        right = sound_check.truth(site.rater, kind, at)
        page.wait_for_selector(f"[data-round='{at}']")
        page.get_by_text(f"Question {max(1, at - wrong + 1)} of 3.").wait_for()
        button(page, "Play the sound").click()
        chosen = (right + 1) % len(choices) if at < wrong else right
        button(page, choices[chosen]).click()
        if at < wrong:
            page.get_by_text("That was the other side.").wait_for()


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_from_consent_to_the_code(browser, site, size):
    with visiting(browser, site, size, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/?PROLIFIC_PID=p-" + size + "&SESSION_ID=s&utm_source=mail")
        page.get_by_role("heading", name="Your consent").wait_for()
        assert page.url == f"{site.address}/"  # the ids have left the address
        button(page, "I agree to take part").click()
        page.get_by_role("heading", name="What to do").wait_for()
        button(page, "Go on to the sound check").click()
        pass_sound_check(page, site, wrong=1)
        page.get_by_role("heading", name="Your sound works").wait_for()
        button(page, "Begin").click()
        page.get_by_text("Page 1 of 4").wait_for()
        numbers = []
        while not page.locator(".code").count():
            page.wait_for_selector(".row")
            numbers.append(page.locator(".row").count())
            assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
            answer_all(page)
            goes_on(page, "Finish" if page.locator(".progress").inner_text() == "Page 4 of 4" else "Next")
            page.wait_for_selector(".row, .code")
        assert sorted(numbers) == [1, 1, 5, 5]
        code = page.locator(".code").inner_text()
        assert page.get_by_role("link", name="Finish on the platform").get_attribute("href") == (
            f"https://platform.example/done?cc={code}"
        )
        button(page, "Copy").click()
        page.get_by_text("Copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == code
        (given,) = [each for each in site.flow.raters() if each.platform.get("PROLIFIC_PID") == f"p-{size}"]
        assert (given.code, given.platform, given.sound_passed) == (
            code,
            {"PROLIFIC_PID": f"p-{size}", "SESSION_ID": "s"},
            True,
        )
        page.reload()
        page.get_by_text(code).wait_for()
        page.go_back()
        page.get_by_text(code).wait_for()
    kept = [each for each in site.flow.ratings() if each.rater_id == given.rater_id]
    assert len(kept) == 12
    for each in kept:
        assert each.rating == 60 + each.position
        assert each.plays == 1
        assert each.heard == 1.0
        assert each.played_s == pytest.approx(0.5, abs=0.2)
        assert each.first_play_s > 0
        assert each.rated_s > each.first_play_s


def test_the_sound_check_can_be_repeated_and_goes_on_after_some_tries(browser, plain):
    with visiting(browser, plain) as page:
        page.goto("/")
        button(page, "I agree to take part").click()
        button(page, "Go on to the sound check").click()
        assert button(page, "I hear it well").is_disabled()  # nothing was played yet
        button(page, "Play the noise").click()
        button(page, "I hear it well").click()
        for at in range(sound_check.MOST_ROUNDS):
            page.wait_for_selector(f"[data-round='{at}']")
            assert button(page, "Left").is_disabled()  # it is to be listened to
            button(page, "Play the sound").click()
            wrong = 1 - sound_check.truth(plain.rater, "side", at)
            button(page, ["Left", "Right"][wrong]).click()
        page.get_by_role("heading", name="Let us go on").wait_for()
        button(page, "Check once more").click()
        button(page, "Play the noise").wait_for()
        button(page, "I hear nothing").click()
        page.get_by_text("Is the device muted").wait_for()
        button(page, "Go on without the check").click()
        page.wait_for_selector(".row")
        assert plain.flow.raters()[-1].sound_passed is False


def test_who_does_not_agree_is_thanked(page):
    page.goto("/")
    button(page, "I do not want to take part").click()
    page.get_by_role("heading", name="Thank you all the same").wait_for()
    button(page, "Back to the consent").click()
    button(page, "I agree to take part").wait_for()


# What must be there


@pytest.mark.case("L01")
def test_a_slider_is_unset_and_locked_until_its_sound_was_heard(page, plain):
    begin(page)
    first = slider(page, 1)
    assert first.get_attribute("aria-valuetext") == "not rated"
    assert first.get_attribute("aria-disabled") == "true"
    assert row(page, 1).locator(".scale-value").inner_text() == "–"
    row(page, 1).locator(".scale").click()
    row(page, 1).get_by_text("Play it first. Then it can be rated.").wait_for()
    first.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("status").filter(has_text="Play it first").wait_for()
    page.wait_for_timeout(500)
    assert first.get_attribute("aria-valuetext") == "not rated"
    hear(page, 1)
    assert first.get_attribute("aria-valuetext") == "not rated"  # heard is not rated
    row(page, 1).get_by_text("Not rated yet.").wait_for()
    page.get_by_role("status").filter(has_text="Sound 1 can be rated now.").wait_for()
    first.click()  # the middle counts as every other answer
    saved(page, 1, 50)
    assert ratings(plain) == [(1, 1, 50, 0)]


@pytest.mark.case("L01")
def test_next_says_what_is_missing_and_leads_there(page, plain):
    begin(page)
    page.wait_for_timeout(450)
    button(page, "Next").click()
    page.get_by_role("alert").filter(has_text="please listen to and rate sounds 1 and 2.").wait_for()
    assert page.evaluate("document.activeElement.ariaLabel") == "Play sound 1"
    hear(page, 1)
    page.get_by_role("alert").filter(has_text="listen to and rate sound 2, and rate sound 1.").wait_for()
    rate(page, 1, 30)
    button(page, "Next").click()
    assert page.evaluate("document.activeElement.ariaLabel") == "Play sound 2"
    hear(page, 2)
    button(page, "Next").click()
    page.get_by_role("alert").filter(has_text="please rate sound 2.").wait_for()
    assert page.evaluate("document.activeElement.type") == "range"
    rate(page, 2, 40)
    page.wait_for_function("() => document.querySelector('#missing').hidden")
    assert page.url.endswith("/page/1")
    goes_on(page)
    assert page.url.endswith("/page/2")


def test_a_part_that_was_heard_does_not_unlock_and_parts_add_up(browser, tmp_path):
    settings = Settings(qualify=0, check_every=0, pages_a_rater=1)
    with (
        site_of(small_study(tmp_path, tasks=1, size=1, seconds=2.0, settings=settings), tmp_path) as long,
        visiting(browser, long) as page,
    ):
        begin(page)
        play = row(page, 1).locator(".play")
        play.click()
        page.wait_for_function("() => document.querySelector('.wave-canvas').ariaValueNow > 0.7")
        play.click()
        row(page, 1).get_by_text("It can be rated once 80 % were heard.").wait_for()
        canvas = row(page, 1).locator("canvas")
        canvas.click(position={"x": canvas.bounding_box()["width"] * 0.3, "y": 20})
        page.wait_for_timeout(300)
        page.reload()  # with a second of it heard
        page.wait_for_selector(".row")
        assert "Heard" in row(page, 1).locator(".row-note").inner_text()
        canvas = row(page, 1).locator("canvas")
        canvas.click(position={"x": canvas.bounding_box()["width"] * 0.3, "y": 20})
        page.wait_for_function("() => document.querySelector('.scale input').ariaDisabled === 'false'")
        rate(page, 1, 77)
        (given,) = long.flow.ratings()
        assert given.plays == 3
        assert given.seeks == 2
        assert 0.8 <= given.heard <= 1
        assert given.played_s > 1.9


# Nothing is lost


def test_a_refresh_in_mid_task_shows_answers_and_what_was_heard(page, plain):
    begin(page)
    hear(page, 1)
    rate(page, 1, 33)
    hear(page, 2)
    page.wait_for_timeout(200)
    order = page.evaluate("[...document.querySelectorAll('.row')].map((each) => each.getAttribute('aria-labelledby'))")
    page.reload()
    saved(page, 1, 33)
    assert slider(page, 1).get_attribute("aria-valuetext") == "33 of 100"
    assert slider(page, 2).get_attribute("aria-disabled") == "false"
    assert slider(page, 2).get_attribute("aria-valuetext") == "not rated"
    again = page.evaluate("[...document.querySelectorAll('.row')].map((each) => each.getAttribute('aria-labelledby'))")
    assert again == order


def test_keys_that_still_rest_are_kept_when_the_page_is_left(page, plain):
    begin(page)
    hear(page, 1)
    slider(page, 1).focus()
    page.keyboard.press("ArrowRight")
    page.goto("about:blank")  # at once
    page.wait_for_timeout(300)
    assert ratings(plain) == [(1, 1, 51, 0)]


@pytest.mark.case("L03")
def test_back_shows_the_earlier_page_whose_answers_may_be_changed(page, plain):
    begin(page)
    for _ in range(2):
        answer_all(page)
        goes_on(page)
    assert page.url.endswith("/page/3")
    page.wait_for_selector("text=Page 3 of 3")
    page.go_back()
    page.wait_for_selector("text=Page 2 of 3")
    page.go_back()
    page.wait_for_selector("text=Page 1 of 3")
    saved(page, 1, 61)
    rate(page, 1, 10)
    goes_on(page)
    page.wait_for_selector("text=Page 2 of 3")
    button(page, "Back").click()
    saved(page, 1, 10)
    assert [each for each in ratings(plain, history=True) if each[:2] == (1, 1)] == [(1, 1, 61, 0), (1, 1, 10, 1)]
    page.goto("/page/3")
    page.wait_for_selector("text=Page 3 of 3")
    page.goto("/page/99")
    page.wait_for_selector("text=Page 3 of 3")
    assert page.url.endswith("/page/3")
    page.goto("/")
    page.wait_for_selector("text=Page 3 of 3")


@pytest.mark.case("L03")
def test_two_tabs_make_one_record(page, plain):
    begin(page)
    other = page.context.new_page()
    other.goto("/")
    other.wait_for_selector(".row")
    assert len(plain.flow.raters()) >= 1
    hear(page, 1)
    rate(page, 1, 20)
    other.bring_to_front()
    other.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # headless tabs are never hidden
    saved(other, 1, 20)
    rate(other, 1, 25)
    hear(other, 2)
    rate(other, 2, 30)
    goes_on(other)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    saved(page, 2, 30)
    goes_on(page)
    assert page.url.endswith("/page/2")
    page.wait_for_selector("text=Page 2 of 3")
    assert ratings(plain, history=True) == [(1, 1, 20, 0), (1, 1, 25, 1), (1, 2, 30, 0)]
    assert plain.flow.state(plain.rater).number == 2


@pytest.mark.case("L03")
def test_a_double_click_on_next_is_one_submit(page, plain):
    begin(page)
    answer_all(page)
    sent = []
    page.on("request", lambda each: sent.append(each.url) if "submit" in each.url else None)
    page.wait_for_timeout(450)
    button(page, "Next").dblclick()
    page.wait_for_selector("text=Page 2 of 3")
    page.wait_for_timeout(300)
    assert page.locator("#missing").is_hidden()
    assert len(sent) == 1
    assert plain.flow.state(plain.rater).done == 1


def test_a_lost_connection_loses_nothing(page, plain):
    begin(page)
    hear(page, 1)
    hear(page, 2)
    page.wait_for_timeout(200)
    page.context.set_offline(True)
    slider(page, 1).fill("15")
    page.get_by_text("Not saved: no connection. Trying again…").first.wait_for()
    row(page, 1).get_by_text("Rated 15. Not saved yet.").wait_for()
    # the clock is set back
    page.evaluate("() => { const now = Date.now; Date.now = () => now() - 3600000; }")
    slider(page, 1).fill("18")
    slider(page, 2).fill("44")
    page.wait_for_timeout(450)
    button(page, "Next").click()  # it waits
    page.wait_for_timeout(300)
    assert page.url.endswith("/page/1")
    assert ratings(plain) == []
    page.context.set_offline(False)
    page.wait_for_selector("text=Page 2 of 3")
    assert ratings(plain, history=True) == [(1, 1, 15, 0), (1, 1, 18, 1), (1, 2, 44, 0)]


def test_what_could_not_be_sent_is_sent_when_the_study_is_opened_again(page, plain):
    begin(page)
    hear(page, 1)
    page.wait_for_timeout(200)
    page.route("**/rating", lambda route: route.abort())
    slider(page, 1).fill("12")
    page.get_by_text("Not saved: no connection.").first.wait_for()
    slider(page, 1).fill("83")
    row(page, 1).get_by_text("Rated 83. Not saved yet.").wait_for()
    page.goto("about:blank")  # a closed laptop: what is sent then, past the page, may come or not; only the last one is
    page.unroute("**/rating")
    page.goto("/")
    saved(page, 1, 83)
    assert ratings(plain) == [(1, 1, 83, 0)]
    assert page.evaluate("Object.keys(localStorage)") == []


def test_a_busy_server_is_asked_again_and_a_refusal_is_told(page, plain):
    begin(page)
    hear(page, 1)
    page.wait_for_timeout(200)
    times = iter([503, 500])

    def busy(route):
        status = next(times, 0)
        route.fulfill(status=status, json={"detail": "busy."}) if status else route.continue_()

    page.route("**/rating", busy)
    slider(page, 1).fill("21")
    saved(page, 1, 21)
    page.unroute("**/rating")
    page.route("**/rating", lambda route: route.fulfill(status=422, json={"detail": "no such rating."}))
    slider(page, 1).fill("99")
    row(page, 1).get_by_role("alert").filter(has_text="This rating was not kept: no such rating.").wait_for()
    assert slider(page, 1).get_attribute("aria-valuetext") == "21 of 100"
    assert ratings(plain) == [(1, 1, 21, 0)]


def test_a_rating_that_was_changed_too_often_stands_and_the_study_goes_on(page, plain, monkeypatch):
    monkeypatch.setattr(answering, "MOST_CHANGES", 1)
    begin(page)
    answer_all(page, rating=60)
    slider(page, 1).fill("20")
    row(page, 1).get_by_role("alert").filter(has_text="the last rating stands").wait_for()
    assert slider(page, 1).get_attribute("aria-valuetext") == "61 of 100"
    goes_on(page)
    page.get_by_text("Page 2 of 3").wait_for()


def test_a_lost_connection_at_the_door_is_told_and_tried_again(browser, plain):
    with visiting(browser, plain) as page:
        page.route("**/api/enter", lambda route: route.abort())
        page.goto("/?PROLIFIC_PID=late&SESSION_ID=s")
        page.get_by_text("The server cannot be reached. Trying again…").wait_for()
        assert page.url == f"{plain.address}/"
        page.unroute("**/api/enter")
        page.reload()  # the ids are not in the address any more, and not lost
        button(page, "I agree to take part").wait_for()
        assert plain.flow.raters()[-1].platform == {"PROLIFIC_PID": "late", "SESSION_ID": "s"}


# To whom


def test_the_keyboard_alone_is_enough(page, plain):
    page.goto("/")
    button(page, "I agree to take part").focus()
    page.keyboard.press("Enter")
    button(page, "Go on to the sound check").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    button(page, "I hear nothing").focus()
    page.keyboard.press("Space")
    button(page, "Go on without the check").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".row")
    assert page.evaluate("document.activeElement.id") == "caption"
    for number in (1, 2):
        page.keyboard.press(str(number))
        page.wait_for_function(
            "(at) => document.querySelectorAll('.scale input')[at].ariaDisabled === 'false'", arg=number - 1
        )
        slider(page, number).focus()
        for key in ("End", "PageDown", "ArrowLeft"):
            page.keyboard.press(key)
        page.keyboard.press("Tab")
        saved(page, number, 89)
    row(page, 2).locator("canvas").focus()
    page.keyboard.press("Space")
    row(page, 2).get_by_role("button", name="Pause sound 2").wait_for()
    page.keyboard.press("Home")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Help").is_visible()
    page.keyboard.press("Escape")
    button(page, "Next").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Page 2 of 3")
    assert page.evaluate("document.activeElement.id") == "caption"


def test_screen_readers_find_names_landmarks_and_news(page):
    begin(page)
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("banner").count() == 1
    assert page.get_by_role("heading", level=1, name="Listening study").count() == 1
    assert page.get_by_role("heading", level=2).count() == 1
    assert page.get_by_role("list").first.get_by_role("listitem").count() == 2
    name = "Sound 1: how well does it match the text? 0 does not match at all, 100 matches perfectly"
    scale = page.get_by_role("slider", name=name)
    described = scale.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").inner_text() == "Play it first. Then it can be rated."
    assert page.get_by_role("slider", name="Position in Sound 1").count() == 1
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, canvas")].filter((each) => each.checkVisibility()
            && !(each.getAttribute("aria-label") || each.innerText || each.labels?.length || each.title))
            .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    assert page.locator("#live").get_attribute("aria-live") == "polite"


SMALL = """() => [...document.querySelectorAll("button, a, input, canvas")].filter((each) => {
    const box = each.getBoundingClientRect();
    return each.checkVisibility({ visibilityProperty: true }) && !each.closest(".hidden, .skip, .prose")
        && (box.height < 39.5 || box.width < 39.5);
}).map((each) => each.outerHTML.slice(0, 80))"""


def test_on_a_phone_nothing_is_wider_than_the_screen_and_targets_are_large(browser, plain):
    with visiting(browser, plain, "phone", has_touch=True, is_mobile=True) as page:
        page.goto("/")
        for name in ("I agree to take part", "Go on to the sound check", "I hear nothing", "Go on without the check"):
            button(page, name).wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.evaluate(SMALL) == []
            button(page, name).tap()
        page.wait_for_selector(".row")
        assert page.evaluate(SMALL) == []
        row(page, 1).locator(".play").tap()
        row(page, 1).get_by_text("Not rated yet.").wait_for()
        slider(page, 1).scroll_into_view_if_needed()
        slider(page, 1).tap()
        saved(page, 1, 50)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.case("S08")
def test_words_that_are_hostile_are_text(browser, plain, tmp_path):
    with visiting(browser, plain) as page:
        page.goto("/")
        page.get_by_role("heading", name="Consent").wait_for()
        assert page.locator("main img, main script").count() == 0
        assert "<img src=x" in page.locator("main .prose").inner_text()
    settings = Settings(title=HOSTILE, low_end=HOSTILE, qualify=0, check_every=0, pages_a_rater=1)
    study = small_study(tmp_path, tasks=1, size=1, settings=settings)
    pages = tuple(replace(each, text=HOSTILE * 4) for each in study.pages)
    with site_of(replace(study, pages=pages), tmp_path) as hostile, visiting(browser, hostile, "phone") as page:
        begin(page)
        assert page.locator(".caption").inner_text() == HOSTILE * 4
        assert page.locator("img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


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
    return [...document.querySelectorAll("body *")].filter((each) => each.checkVisibility() && !each.disabled
        && [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())).map((each) => {
        const [one, other] = [light(parse(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => b - a);
        return [(one + 0.05) / (other + 0.05), each.className || each.tagName];
    }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser, plain, scheme):
    with visiting(browser, plain, color_scheme=scheme) as page:
        begin(page)
        hear(page, 1)
        page.wait_for_timeout(450)
        button(page, "Next").click()
        assert page.evaluate(CONTRAST) == []
        page.goto(f"/owner?token={TOKEN}")
        page.get_by_text("flagged").first.wait_for()
        assert page.evaluate(CONTRAST) == []


# Ends


def test_a_failed_qualification_and_refusals_are_kind(browser, site, tmp_path):
    with visiting(browser, site) as page:
        begin(page)
        hear(page, 1)
        rate(page, 1, 3)
        goes_on(page)
        page.get_by_role("heading", name="Thank you for your time").wait_for()
        page.goto("/page/1")
        page.get_by_role("heading", name="Thank you for your time").wait_for()
    with visiting(browser, site) as page:
        page.goto("/?invite=nobody")
        page.get_by_role("heading", name="This link does not open the study").wait_for()
        page.get_by_text("This invitation is not known.").wait_for()
    with visiting(browser, site) as page:
        site.flow.enter(platform={"PROLIFIC_PID": "p-known", "SESSION_ID": "one"})
        page.goto("/?PROLIFIC_PID=p-known&SESSION_ID=another")
        page.get_by_role("heading", name="You have taken part already").wait_for()


def test_a_full_study_and_one_without_anything_left_say_so(browser, tmp_path):
    settings = Settings(qualify=0, check_every=0, pages_a_rater=1, raters_a_page=1, most_raters=2)
    with site_of(small_study(tmp_path, tasks=1, size=1, settings=settings), tmp_path) as small:
        with visiting(browser, small) as page:
            begin(page)
            with visiting(browser, small) as second:
                second.goto("/")
                button(second, "I agree to take part").click()
                button(second, "Go on to the sound check").click()
                button(second, "I hear nothing").click()
                button(second, "Go on without the check").click()
                second.get_by_role("heading", name="Nothing is left to rate").wait_for()
                button(second, "Look again").click()
                second.get_by_role("heading", name="Nothing is left to rate").wait_for()
        with visiting(browser, small) as third:
            third.goto("/")
            third.get_by_role("heading", name="The study is full").wait_for()


def test_a_browser_that_lost_its_cookie_is_told(page):
    begin(page)
    page.context.clear_cookies()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_role("heading", name="This browser is not known here").wait_for()


# The owner


def test_the_owner_sees_how_far_it_is(browser, plain):
    with visiting(browser, plain) as page:
        begin(page)
        answer_all(page)
        goes_on(page)
        page.goto("/owner")
        page.get_by_text("A token is needed.").wait_for()
        page.goto(f"/owner?token={TOKEN}")
        assert page.url == f"{plain.address}/owner"
        page.get_by_role("table", name="Ratings by stratum").wait_for()
        page.get_by_role("table", name="Raters").wait_for()
        page.get_by_role("table", name="Agreement").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="Ratings", exact=True).click()
        assert download.value.suggested_filename.startswith("ratings-")
        button(page, "Refresh").click()
        page.get_by_text("As of ").wait_for()
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_api_describes_itself_on_a_page_of_its_own(browser, plain):
    with visiting(browser, plain) as page:
        page.goto("/api")
        page.get_by_role("heading", name="PUT /api/items/{item_id}/rating").wait_for()


ASKED_OR_NOT = """(at) => {
    const row = document.querySelectorAll('.row')[at];
    return row.innerText.includes('You are not asked') || row.querySelector('.scale input').ariaDisabled === 'false';
}"""


def test_a_page_whose_sound_vanished_goes_on_without_it(browser, tmp_path):
    settings = Settings(qualify=0, check_every=0, pages_a_rater=2, raters_a_page=1000)
    study = small_study(tmp_path, tasks=2, size=2, settings=settings)
    with site_of(study, tmp_path) as served, visiting(browser, served) as page:
        begin(page)
        (tmp_path / "sounds" / "tone1.wav").rename(tmp_path / "away.wav")
        asked = []
        for number in (1, 2):
            row(page, number).locator(".play").click()
            page.wait_for_function(ASKED_OR_NOT, arg=number - 1)
            if "not asked" not in row(page, number).inner_text():
                rate(page, number, 40)
                asked.append(number)
        assert len(asked) == 1
        assert row(page, 3 - asked[0]).locator(".play").is_disabled()
        button(page, "Next").click()
        page.get_by_text("Page 2 of 2").wait_for()
        page.reload()
        page.get_by_text("cannot be played. You are not asked").wait_for()
        left = 1 if "not asked" not in row(page, 1).inner_text() else 2
        hear(page, left)
        rate(page, left, 30)
        button(page, "Finish").click()
        page.get_by_role("heading", name="Thank you").wait_for()
        page.goto(f"/owner?token={TOKEN}")
        page.get_by_text("Sounds that cannot be played").first.wait_for()
        assert page.get_by_text("tone1.wav").count()
