"""What a rater sees next, and what counts: the same on SQLite and PostgreSQL."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import delete, select, update

from earmark.collect import tables
from earmark.collect.answering import MOST_CHANGES, MOST_VIEWS
from earmark.collect.entry import hashed
from earmark.collect.flow import Flow, GivenAnswer, Heard, RefusedError
from earmark.collect.reported import MOST_PARTS, listen_first, share, union
from earmark.collect.store import Store
from earmark.collect.study import Item, Page, Settings, Study
from earmark.errors import DataError

pytest_plugins = ["postgres"]
DURATION_S = 10.0


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 31, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def go(self, **passed: float) -> None:
        self.time += timedelta(**passed)


def a_page(number: int, kind: str = "task", clips: int = 2) -> Page:
    """A page whose first clip is right at 60 and above, and whose second below 40, where its answers are known."""
    known = {} if kind == "task" else {0: (60.0, None), 1: (None, 40.0)}
    items = tuple(
        Item(
            f"{kind}-{number}-{i}", f"{kind}/{number}-{i}.wav", "TP" if i == 0 else "TN", "top", 0.5, *known.get(i, ())
        )
        for i in range(clips)
    )
    return Page(f"{kind}-{number}", kind, f"c-{kind}-{number}", f"Words {number}", items)


def a_study(folder, *, tasks: int = 4, checks: int = 0, qualification: int = 0, clips: int = 2, **settings) -> Study:
    pages = [a_page(i, "task", clips) for i in range(tasks)]
    pages += [a_page(i, "check") for i in range(checks)] + [a_page(i, "qualification") for i in range(qualification)]
    chosen = Settings(**{"check_every": 0, "qualify": 0, "heard_share": 0.0, **settings})
    return Study(folder, chosen, folder, "made", "generated", tuple(pages), "Agree?", "Listen.")


@pytest.fixture
def flow_of(place, tmp_path):
    """Makes a study's flow with a clock of its own (`flow.now`) on an empty database."""
    made = []

    def make(study: Study | None = None, **of_study) -> Flow:
        made.append(Store.open(place))
        return Flow(study or a_study(tmp_path, **of_study), made[-1], now=Clock())

    yield make
    for store in made:
        store.close()


def begin(flow: Flow, **who) -> str:
    """A rater who has agreed and checked the sound."""
    rater, _ = flow.enter(**who)
    flow.consent(rater)
    flow.sound_checked(rater)
    return rater


def answer_page(flow: Flow, rater: str, number: int, rating: float | None = None) -> None:
    """Hears and rates every clip: known answers right, others in the middle, or all as told."""
    for shown in flow.page(rater, number).items:
        flow.now.go(seconds=DURATION_S)
        flow.heard(rater, shown.item_id, Heard("v", [(0, DURATION_S)], DURATION_S, 1), duration_s=DURATION_S)
        item = flow.item(rater, shown.item_id)
        right = 80 if item.low is not None else 20 if item.high is not None else 50
        flow.answer(rater, shown.item_id, GivenAnswer(f"k{rating}", "v", right if rating is None else rating, 3.5))


def go_through(flow: Flow, rater: str, rating: float | None = None):
    """Answers until there is nothing more to do: the last state."""
    state = flow.state(rater)
    while state.step in ("qualification", "task"):
        answer_page(flow, rater, state.number, rating)
        state = flow.submit(rater, state.number)
    return state


def pages_of(flow: Flow, rater: str) -> list:
    """The rater's pages as they are recorded."""
    query = select(tables.given).where(tables.given.c.rater_id == rater).order_by(tables.given.c.number)
    with flow.store.reading() as connection:
        return list(connection.execute(query).all())


def refused(status: int, call, *arguments, **named) -> str:
    """The one line in which it is refused."""
    with pytest.raises(RefusedError) as caught:
        call(*arguments, **named)
    assert caught.value.status == status, caught.value
    assert "\n" not in str(caught.value)
    return str(caught.value)


def at_once(*calls) -> list:
    """What the calls give when threads begin them together; an exception is given as it is."""
    barrier, found = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place: int, call) -> None:
        barrier.wait()
        try:
            found[place] = call()
        except Exception as error:  # the test looks at it
            found[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# Steps


def test_a_page_that_is_rated_and_not_sent_is_still_the_rater_s(flow_of):
    flow = flow_of(tasks=3)
    rater = begin(flow)
    answer_page(flow, rater, 1)
    assert (flow.state(rater).step, flow.state(rater).number, flow.state(rater).done) == ("task", 1, 0)
    assert len(pages_of(flow, rater)) == 1
    (row,) = flow.raters()
    assert (row.consented_at[:10], row.pages, row.completed_at) == (flow.now().isoformat()[:10], 0, "")


def test_the_steps_come_in_order(flow_of):
    flow = flow_of(tasks=3, pages_a_rater=2, completion_url="https://crowd.example/done?cc={code}")
    rater, key = flow.enter()
    assert flow.rater(key) == rater
    assert flow.state(rater).step == "consent"
    refused(404, flow.page, rater, 1)
    refused(409, flow.sound_checked, rater)
    refused(404, flow.submit, rater, 1)
    assert flow.consent(rater).step == "sound"
    refused(404, flow.page, rater, 1)
    state = flow.sound_checked(rater)
    assert (state.step, state.number, state.pages, state.done, state.code) == ("task", 1, 2, 0, "")
    assert flow.consent(rater) == flow.sound_checked(rater) == flow.state(rater) == state  # again changes nothing
    answer_page(flow, rater, 1)
    state = flow.submit(rater, 1)
    assert (state.step, state.number, state.pages, state.done) == ("task", 2, 2, 1)
    answer_page(flow, rater, 2)
    state = flow.submit(rater, 2)
    assert (state.step, state.number, state.pages, state.done) == ("done", 2, 2, 2)
    assert state.url == f"https://crowd.example/done?cc={state.code}"
    assert flow.state(rater) == flow.submit(rater, 2) == state


@pytest.mark.case("L06")
def test_a_sound_check_that_failed_is_told_to_the_owner(flow_of):
    flow = flow_of()
    raters = [flow.enter()[0] for _ in range(3)]
    for rater, passed in zip(raters, (True, False), strict=False):
        flow.consent(rater)
        assert flow.sound_checked(rater, passed=passed).step == "task"
    assert flow.sound_checked(raters[1], passed=True).step == "task"  # the first one counts
    assert {row.rater_id: row.sound_passed for row in flow.raters()} == dict(
        zip(raters, (True, False, None), strict=True)
    )


@pytest.mark.case("L01")
def test_a_page_of_untouched_sliders_is_not_submitted(flow_of):
    flow = flow_of()
    rater = begin(flow)
    shown = flow.page(rater, 1)
    assert [item.rating for item in shown.items] == [None, None]
    assert "2 of 2 clips" in refused(409, flow.submit, rater, 1)
    flow.answer(rater, shown.items[0].item_id, GivenAnswer("a", "v", 0, 1.0))
    assert "1 of 2 clips" in refused(409, flow.submit, rater, 1)
    assert flow.state(rater).done == 0
    assert [item.rating for item in flow.page(rater, 1).items] == [0.0, None]


def test_a_page_that_was_left_in_the_middle_is_as_it_was(flow_of, place):
    flow = flow_of(clips=3)
    rater, key = flow.enter()
    flow.consent(rater)
    flow.sound_checked(rater)
    first, second, _ = flow.page(rater, 1).items
    flow.now.go(seconds=9)
    flow.heard(rater, first.item_id, Heard("v", [(0, 5)], 6.0, 2), duration_s=DURATION_S)
    flow.answer(rater, second.item_id, GivenAnswer("a", "v", 37.5, 1.0))
    again = Store.open(place)
    other = Flow(flow.study, again, now=flow.now)
    assert other.rater(key) == rater
    assert other.state(rater) == flow.state(rater)
    shown = other.page(rater, 1)
    assert shown == flow.page(rater, 1)
    assert [(item.heard, item.played_s, item.plays, item.rating) for item in shown.items] == [
        (0.5, 6.0, 2, None),
        (0.0, 0.0, 0, 37.5),
        (0.0, 0.0, 0, None),
    ]
    again.close()


def test_failing_the_qualification_ends_it_and_keeps_the_record(flow_of):
    flow = flow_of(qualification=3, qualify=2, qualify_share=0.75, failed_url="https://crowd.example/out")
    rater = begin(flow)
    assert flow.state(rater).step == "qualification"
    state = go_through(flow, rater, rating=70)  # right on one clip of each page
    assert (state.step, state.done, state.code) == ("failed", 2, "")
    assert state.url == "https://crowd.example/out"
    assert flow.state(rater) == flow.submit(rater, 2) == state
    assert [page.kind for page in pages_of(flow, rater)] == ["qualification"] * 2
    row = flow.raters()[0]
    assert (row.qualified, row.qualification_right, row.qualification_asked) == (False, 2, 4)
    item = flow.page(rater, 2).items[0].item_id
    refused(409, flow.answer, rater, item, GivenAnswer("late", "v", 99, 1.0))
    assert len(flow.ratings()) == 4


def test_known_answers_decide_the_qualification_as_they_stand_at_the_end(flow_of):
    flow = flow_of(qualification=1, qualify=2, qualify_share=1.0, tasks=1)
    rater = begin(flow)
    answer_page(flow, rater, 1, rating=70)
    answer_page(flow, rater, 1)  # thought better of it
    state = flow.submit(rater, 1)
    assert (state.step, state.number, state.pages) == ("task", 2, 2)
    assert flow.raters()[0].qualified is True


def test_nothing_left_is_told_before_anything_is_asked(flow_of):
    flow = flow_of(tasks=1, raters_a_page=1, qualification=1, qualify=1, return_after_h=1)
    first, late = begin(flow), begin(flow)  # qualification, both
    assert go_through(flow, first).step == "done"
    assert go_through(flow, late).step == "nothing_left"  # the page went in the meantime
    later = begin(flow)
    assert go_through(flow, later).step == "nothing_left"
    assert [len(pages_of(flow, rater)) for rater in (first, late, later)] == [2, 1, 0]
    assert [row.rater_id for row in flow.raters() if row.code] == [first]


def test_who_has_seen_all_that_is_left_is_done_with_a_code(flow_of):
    flow = flow_of(tasks=3, pages_a_rater=20)
    rater = begin(flow)
    assert flow.state(rater).pages == 3
    state = go_through(flow, rater)
    assert (state.step, state.done, len(state.code)) == ("done", 3, 12)


def test_completion_codes_are_each_raters_own(flow_of):
    flow = flow_of(tasks=1, raters_a_page=20)
    codes = {go_through(flow, begin(flow)).code for _ in range(20)}
    assert len(codes) == 20
    assert all(code.isalnum() and code.isupper() for code in codes)


@pytest.mark.case("L04")
def test_a_completion_code_needs_every_answer_of_every_page(flow_of):
    flow = flow_of(tasks=3, pages_a_rater=3)
    rater = begin(flow)
    for number in (1, 2):
        answer_page(flow, rater, number)
        flow.submit(rater, number)
    answer_page(flow, rater, 3)
    lost = flow.page(rater, 1).items[1].item_id
    with flow.store.writing() as connection:
        connection.execute(delete(tables.answers).where(tables.answers.c.item_id == lost))
    state = flow.submit(rater, 3)
    assert (state.step, state.number, state.code) == ("task", 1, "")  # back to what is missing
    refused(409, flow.submit, rater, 1)
    flow.answer(rater, lost, GivenAnswer("again", "v", 5, 1.0))
    assert flow.submit(rater, 1).step == "done"
    assert [rating.rating for rating in flow.ratings() if rating.page_number == 1][1] == 5


@pytest.mark.case("L04")
def test_a_completion_code_needs_every_clip_heard(flow_of):
    flow = flow_of(tasks=2, pages_a_rater=2, heard_share=0.8)
    rater = begin(flow)
    answer_page(flow, rater, 1)
    flow.submit(rater, 1)
    answer_page(flow, rater, 2)
    with flow.store.writing() as connection:
        connection.execute(update(tables.items).where(tables.items.c.number == 1).values(heard=0.1))
    assert flow.submit(rater, 2).number == 1
    assert flow.state(rater).code == ""


# Hearing and rating


def test_a_rating_counts_once_enough_was_heard(flow_of):
    flow = flow_of(heard_share=0.8)
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    flow.now.go(minutes=1)
    given = GivenAnswer("a", "v", 50, 1.0)
    assert "80%" in refused(422, flow.answer, rater, item, given)
    assert flow.heard(rater, item, Heard("v", [(0, 4), (3, 5)], 6), duration_s=DURATION_S) == 0.5
    refused(422, flow.answer, rater, item, given)
    assert flow.heard(rater, item, Heard("w", [(4, 8)], 4), duration_s=DURATION_S) == pytest.approx(0.8)
    flow.answer(rater, item, given)
    assert flow.page(rater, 1).items[0].rating == 50


def test_what_was_heard_is_the_union_over_loads_of_the_page(flow_of):
    flow = flow_of()
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    flow.now.go(minutes=5)

    def heard(view: str, *covered, **more) -> float:
        played = sum(end - start for start, end in covered)
        return flow.heard(rater, item, Heard(view, covered, played, **more), duration_s=DURATION_S)

    assert heard("a", (0, 2), plays=1, first_play_s=1.5) == 0.2
    assert heard("a", (0, 2), (6, 8), plays=2, seeks=1, first_play_s=1.5) == 0.4
    assert heard("a", (0, 2), plays=1, first_play_s=1.5) == 0.4  # came late
    assert heard("b", (1, 3), plays=1, first_play_s=0.5) == 0.5
    assert heard("c", (7, 999), plays=1) == pytest.approx(0.7)
    assert heard("d", (0, 9.9)) == 1.0  # the last moment is not told by players
    flow.answer(rater, item, GivenAnswer("k", "b", 10, 2.0))
    rating = flow.ratings()[0]
    assert (rating.heard, rating.plays, rating.seeks, rating.first_play_s) == (1.0, 4, 1, 1.5)
    assert rating.played_s == pytest.approx(302)  # no more than there was time


def test_nobody_hears_more_than_there_was_time_for(flow_of):
    flow = flow_of(heard_share=0.8)
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    all_of_it = Heard("v", [(0, 60)], 1e9, 1, 0, 1e9)
    assert flow.heard(rater, item, all_of_it, duration_s=60) == pytest.approx(2 / 60)  # the tolerance
    assert flow.heard(rater, item, Heard("w", [(30, 60)], 30), duration_s=60) == pytest.approx(2 / 60)
    refused(422, flow.answer, rater, item, GivenAnswer("k", "v", 1, 1e9))
    flow.now.go(seconds=50)
    assert flow.heard(rater, item, all_of_it, duration_s=60) == pytest.approx(52 / 60)
    flow.answer(rater, item, GivenAnswer("k", "v", 1, 1e9))
    rating = flow.ratings()[0]
    assert (rating.rated_s, rating.first_play_s) == (52, 2)
    assert rating.played_s <= 52 + 2


def test_the_clips_of_a_page_sound_one_after_the_other(flow_of):
    """Five clips, all played through at once in five tabs: what was heard is as long as the time that passed."""
    flow = flow_of(clips=5, heard_share=0.8)
    rater = begin(flow)
    items = [each.item_id for each in flow.page(rater, 1).items]
    flow.now.go(seconds=DURATION_S)
    for item in items:
        flow.heard(rater, item, Heard(f"tab {item}", [(0, DURATION_S)], DURATION_S, 1), duration_s=DURATION_S)
    shown = flow.page(rater, 1).items
    assert sum(each.heard for each in shown) * DURATION_S == pytest.approx(DURATION_S + 2)  # the tolerance
    assert sum(each.played_s for each in shown) == pytest.approx(DURATION_S + 2)
    for item in items[2:]:
        refused(422, flow.answer, rater, item, GivenAnswer("k", "v", 1, 1.0))
    for _ in range(3):  # again and again, in other loads of the page
        for item in items:
            flow.heard(rater, item, Heard(f"{_}", [(_, DURATION_S)], DURATION_S, 1), duration_s=DURATION_S)
    assert sum(each.played_s for each in flow.page(rater, 1).items) == pytest.approx(DURATION_S + 2)
    assert sum(each.heard for each in flow.page(rater, 1).items) * DURATION_S <= DURATION_S + 2.001


def test_tabs_at_once_share_the_time_of_the_page(flow_of):
    flow = flow_of(clips=5)
    rater = begin(flow)
    items = [each.item_id for each in flow.page(rater, 1).items]
    flow.now.go(seconds=DURATION_S)
    told = Heard("v", [(0, DURATION_S)], DURATION_S, 1)
    at_once(*[lambda item=item: flow.heard(rater, item, told, duration_s=DURATION_S) for item in items])
    assert sum(each.heard for each in flow.page(rater, 1).items) * DURATION_S == pytest.approx(DURATION_S + 2)


def test_honest_listening_in_real_time_is_believed_whole(flow_of):
    """Times to the millisecond, rounded up, of clips played one after the other without a pause, some twice."""
    flow = flow_of(clips=5)
    rater = begin(flow)
    rng = random.Random(3)
    items = [each.item_id for each in flow.page(rater, 1).items]
    played = dict.fromkeys(items, 0.0)
    for item in [*items, *rng.sample(items, 3)]:
        seconds = 3.3333
        flow.now.go(seconds=seconds)
        played[item] += seconds
        told = Heard("v", [(0, 3.334)], round(played[item] + 0.0005, 3), 1)
        assert flow.heard(rater, item, told, duration_s=3.3334) == 1.0
    assert [each.played_s for each in flow.page(rater, 1).items] == pytest.approx(list(played.values()), abs=1e-3)


@pytest.mark.parametrize("duration", [0.00002, 0.00009, 0.0004, 0.0011, 0.05, 0.4, 3600.0])
def test_a_clip_of_any_length_that_was_played_to_its_end_was_heard(flow_of, duration):
    flow = flow_of(heard_share=1.0)
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    flow.now.go(hours=2)
    assert flow.heard(rater, item, Heard("v", [(0, duration / 2)], 1), duration_s=duration) < 0.6
    assert flow.heard(rater, item, Heard("v", [(0, duration)], 1), duration_s=duration) == 1.0
    flow.answer(rater, item, GivenAnswer("k", "v", 1, 1.0))


@hypothesis_settings(max_examples=200)
@hypothesis_given(st.floats(0, 1), st.floats(0, 1))
def test_too_little_never_looks_like_enough(needed, heard):
    if heard < needed - 1e-9:
        wanted, there = (int(word.split("%")[0].split()[-1]) for word in listen_first(needed, heard).split(";"))
        assert there < wanted


def test_per_cent_are_told_as_they_are():
    assert listen_first(0.8, 0.7999) == "Listen to 80% of the clip first; 79% was heard."
    assert listen_first(0.55, 0.0) == "Listen to 55% of the clip first; 0% was heard."
    assert listen_first(0.805, 0.8049) == "Listen to 81% of the clip first; 80% was heard."


def test_a_sound_that_cannot_be_played_is_not_asked(flow_of):
    flow = flow_of(tasks=2, clips=3, pages_a_rater=2, heard_share=0.8)
    rater, other = begin(flow), begin(flow)
    gone, answered, last = flow.page(rater, 1).items
    flow.silence(rater, gone.item_id)
    refused(404, flow.silence, other, last.item_id)
    assert [each.silent for each in flow.page(rater, 1).items] == [True, False, False]
    assert "2 of 3 clips" in refused(409, flow.submit, rater, 1)
    flow.now.go(minutes=1)
    for each in (answered, last):
        flow.heard(rater, each.item_id, Heard("v", [(0, 9)], 9), duration_s=DURATION_S)
        flow.answer(rater, each.item_id, GivenAnswer("k", "v", 5, 1.0))
    flow.silence(rater, answered.item_id)
    flow.silence(rater, answered.item_id)
    assert flow.submit(rater, 1).number == 2
    assert len(flow.ratings()) == 2  # what was answered stays
    for each in flow.page(rater, 2).items:
        flow.silence(rater, each.item_id)  # all of a page
    state = flow.submit(rater, 2)
    assert (state.step, len(state.code)) == ("done", 12)
    path = {each.item_id: flow.item(rater, each.item_id).path for each in (gone, answered)}
    assert {path[gone.item_id], path[answered.item_id]} <= set(flow.progress().silent)
    assert set(flow.progress().silent.values()) == {1}
    assert flow.state(other).step == "task"


def test_a_qualification_that_cannot_be_heard_is_passed(flow_of):
    flow = flow_of(qualification=1, qualify=1, qualify_share=1.0)
    rater = begin(flow)
    for each in flow.page(rater, 1).items:
        flow.silence(rater, each.item_id)
    assert flow.submit(rater, 1).step == "task"


@pytest.mark.parametrize(
    "told",
    [
        Heard("v", [(0, float("nan"))], 1),
        Heard("v", [(-1, 2)], 1),
        Heard("v", [(3, 2)], 1),
        Heard("v", [(0, float("inf"))], 1),
        Heard("v", [(0, 10**400)], 1),
        Heard("v", [(0,)], 1),
        Heard("v", [(0, "1")], 1),
        Heard("v", [(0, 1)] * 1001, 1),
        Heard("v", [], -1),
        Heard("v", [], float("nan")),
        Heard("v", [], 1, -1),
        Heard("v", [], 1, 1, 10**400),
        Heard("v", [], 1, 1.5),
        Heard("v", [], 1, True),
        Heard("v", [], 1, 1, 1, float("inf")),
        Heard("", [], 1),
        Heard("v" * 65, [], 1),
        Heard("v\0", [], 1),
        Heard("\ud800", [], 1),
    ],
)
def test_times_that_are_none_are_refused(tmp_path, told):
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path), store, now=Clock())
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    refused(422, flow.heard, rater, item, told, duration_s=DURATION_S)
    assert flow.page(rater, 1).items[0].heard == 0
    store.close()


@pytest.mark.parametrize(
    "told",
    [
        GivenAnswer("k", "v", -0.1, 1),
        GivenAnswer("k", "v", 100.1, 1),
        GivenAnswer("k", "v", 50.25, 1),
        GivenAnswer("k", "v", float("nan"), 1),
        GivenAnswer("k", "v", float("inf"), 1),
        GivenAnswer("k", "v", 10**5000, 1),
        GivenAnswer("k", "v", "50", 1),
        GivenAnswer("k", "v", None, 1),
        GivenAnswer("k", "v", True, 1),
        GivenAnswer("k", "v", 50, float("nan")),
        GivenAnswer("k", "v", 50, -1),
        GivenAnswer("", "v", 50, 1),
        GivenAnswer("k" * 65, "v", 50, 1),
        GivenAnswer("k\0", "v", 50, 1),
        GivenAnswer("k", "\udfff", 50, 1),
    ],
)
def test_ratings_that_are_none_are_refused(tmp_path, told):
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path), store, now=Clock())
    rater = begin(flow)
    refused(422, flow.answer, rater, flow.page(rater, 1).items[0].item_id, told)
    assert flow.ratings(history=True) == []
    store.close()


def test_ratings_are_kept_as_given(flow_of):
    flow = flow_of()
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    given = [0, -0.0, 100, 0.1, 99.9, 33.3, 50]
    for i, rating in enumerate(given):
        flow.answer(rater, item, GivenAnswer(f"k{i}", "v", rating, 1.0))
    kept = [rating.rating for rating in flow.ratings(history=True)]
    assert kept == given
    assert str(kept[1]) == "0.0"


@pytest.mark.case("L03")
def test_the_same_answer_twice_is_one_row(flow_of):
    flow = flow_of()
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    given = GivenAnswer("same", "v", 40, 1.0)
    assert at_once(*[lambda: flow.answer(rater, item, given)] * 8) == [None] * 8
    flow.answer(rater, item, GivenAnswer("same", "v", 41, 2.0))
    assert [(r.rating, r.history, r.last) for r in flow.ratings(history=True)] == [(40, 0, True)]


@pytest.mark.case("L03")
def test_two_tabs_make_one_record_with_its_history(flow_of):
    flow = flow_of()
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    tabs = [lambda i=i: flow.answer(rater, item, GivenAnswer(f"k{i}", f"tab{i % 2}", 10 * i, 1.0)) for i in range(10)]
    assert at_once(*tabs) == [None] * 10
    flow.answer(rater, item, GivenAnswer("last", "tab0", 7, 1.0))
    history = flow.ratings(history=True)
    assert [rating.history for rating in history] == list(range(11))
    assert sorted(rating.rating for rating in history) == sorted([*range(0, 100, 10), 7])
    assert [rating.last for rating in history] == [False] * 10 + [True]
    assert [(rating.rating, rating.history) for rating in flow.ratings()] == [(7, 10)]
    assert flow.page(rater, 1).items[0].rating == 7


def test_an_earlier_page_can_be_changed_until_the_rater_is_done(flow_of):
    flow = flow_of(tasks=2, pages_a_rater=2)
    rater = begin(flow)
    answer_page(flow, rater, 1)
    flow.submit(rater, 1)
    item = flow.page(rater, 1).items[0].item_id
    flow.answer(rater, item, GivenAnswer("back", "v", 12, 1.0))
    assert flow.submit(rater, 1).number == 2  # again: nothing new
    assert len(pages_of(flow, rater)) == 2
    go_through(flow, rater)
    refused(409, flow.answer, rater, item, GivenAnswer("late", "v", 13, 1.0))
    flow.answer(rater, item, GivenAnswer("back", "v", 12, 1.0))  # told again, after a lost connection
    heard = flow.heard(rater, item, Heard("new", [(0, 1)], 1), duration_s=DURATION_S)
    assert heard == 1.0
    assert [r.rating for r in flow.ratings() if r.page_number == 1 and r.history == 1] == [12]


def test_no_page_is_loaded_or_changed_without_end(tmp_path):
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path), store, now=Clock())
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    for i in range(MOST_VIEWS):
        flow.heard(rater, item, Heard(f"v{i}", [(0, 1)], 1), duration_s=DURATION_S)
    refused(409, flow.heard, rater, item, Heard("one more", [(0, 1)], 1), duration_s=DURATION_S)
    flow.answer(rater, item, GivenAnswer("first", "v", 1, 1.0))
    with store.writing() as connection:
        connection.execute(update(tables.items).values(changes=MOST_CHANGES))
    refused(409, flow.answer, rater, item, GivenAnswer("one more", "v", 1, 1.0))
    store.close()


parts = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted), max_size=12)


@hypothesis_settings(max_examples=60)
@hypothesis_given(parts, st.integers(1, 40))
def test_the_union_is_what_counting_gives(given, duration):
    seconds = {second for start, end in given for second in range(start, end) if second < duration}
    found = union(given, duration)
    assert sum(end - start for start, end in found) == len(seconds)
    assert all(start < end for start, end in found)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    assert share(given, duration, 1e9) == pytest.approx(len(seconds) / duration)


# Which page


def test_concurrent_submits_give_the_next_page_once(flow_of):
    flow = flow_of(tasks=9, pages_a_rater=9)
    rater = begin(flow)
    for number in range(1, 5):
        answer_page(flow, rater, number)
        states = at_once(*[lambda n=number: flow.submit(rater, n)] * 6)
        assert {(state.step, state.number) for state in states} == {("task", number + 1)}
    assert len(pages_of(flow, rater)) == 5


def test_pages_go_to_as_many_raters_as_asked_and_never_twice_to_one(flow_of, place):
    flow = flow_of(tasks=7, raters_a_page=3, pages_a_rater=4)
    other = Store.open(place)  # as a second server has it
    flows = [flow, Flow(flow.study, other, now=flow.now)]

    def take(i: int):
        mine = flows[i % 2]
        rater = begin(mine)
        return go_through(mine, rater)

    states = at_once(*[lambda i=i: take(i) for i in range(8)])
    assert {state.step for state in states} <= {"done", "nothing_left"}
    given = [(page.rater_id, page.page_id) for row in flow.raters() for page in pages_of(flow, row.rater_id)]
    assert len(set(given)) == len(given)
    counts = Counter(page for _, page in given)
    assert max(counts.values()) == 3
    assert flow.progress().submitted == sum(counts.values()) == len(given)
    assert all(each.code or each.done == 0 for each in states)
    other.close()


def test_pages_with_fewest_raters_go_first(flow_of):
    flow = flow_of(tasks=6, raters_a_page=4, pages_a_rater=2)
    for rater_number in range(1, 13):
        go_through(flow, begin(flow))
        counts = flow.progress().by_raters
        pages = [n for n, count in enumerate(counts) for _ in range(count)]
        assert max(pages) - min(pages) <= 1, rater_number
    assert flow.progress().by_raters == (0, 0, 0, 0, 6)
    assert go_through(flow, begin(flow)).step == "nothing_left"


def test_a_page_that_was_left_for_long_goes_to_others_too(flow_of):
    flow = flow_of(tasks=1, raters_a_page=1, return_after_h=24)
    away = begin(flow)
    waiting = begin(flow)
    assert flow.state(waiting).step == "nothing_left"
    flow.now.go(hours=23.9)
    assert flow.state(waiting).step == "nothing_left"
    flow.now.go(hours=0.2)
    assert flow.state(waiting).step == "task"
    assert go_through(flow, away).step == "done"  # who comes back loses nothing
    assert go_through(flow, waiting).step == "done"
    assert flow.progress().by_raters == (0, 0, 1)


def test_the_order_is_random_a_rater_and_recorded(flow_of):
    flow = flow_of(tasks=4, clips=5, raters_a_page=30, pages_a_rater=4)
    raters = [begin(flow) for _ in range(12)]
    for rater in raters:
        go_through(flow, rater)
    pages = {tuple(page.page_id for page in pages_of(flow, rater)) for rater in raters}
    assert len(pages) > 4
    ratings = flow.ratings()
    orders = {
        tuple(r.clip_id for r in ratings if r.rater_id == rater and r.page_id == "task-0")  # by position
        for rater in raters
    }
    assert len(orders) > 4
    assert all(sorted(order) == [f"task-0-{i}" for i in range(5)] for order in orders)
    assert [r.position for r in ratings[:10]] == [1, 2, 3, 4, 5] * 2
    assert [r.page_number for r in ratings[:10]] == [1] * 5 + [2] * 5


@pytest.mark.case("L08")
def test_check_pages_rotate_and_never_come_twice(flow_of):
    flow = flow_of(tasks=6, checks=4, check_every=2, pages_a_rater=6, raters_a_page=9)
    raters = [begin(flow) for _ in range(4)]
    assert flow.state(raters[0]).pages == 9
    for rater in raters:
        go_through(flow, rater)
    seen = Counter()
    for rater in raters:
        pages = pages_of(flow, rater)
        assert Counter(page.kind for page in pages) == {"task": 6, "check": 3}
        checks = [page.page_id for page in pages if page.kind == "check"]
        assert len(set(checks)) == 3
        seen.update(checks)
    assert set(seen.values()) == {3}  # 12 in all, over 4 pages
    firsts = {next(page.page_id for page in pages_of(flow, rater) if page.kind == "check") for rater in raters}
    assert len(firsts) > 1


@pytest.mark.parametrize(("every", "tasks", "checks"), [(3, 9, 3), (2, 7, 3), (1, 4, 4), (4, 7, 1)])
def test_nobody_can_count_to_the_next_check(flow_of, every, tasks, checks):
    """A check comes after `check_every` task pages, or one more or less, and as many come in all."""
    flow = flow_of(tasks=tasks, checks=4, check_every=every, pages_a_rater=tasks, raters_a_page=99)
    gaps = Counter()
    for _ in range(16):
        rater = begin(flow)
        planned = flow.state(rater).pages
        go_through(flow, rater)
        kinds = [page.kind for page in pages_of(flow, rater)]
        assert (len(kinds), kinds.count("check")) == (planned, checks)
        gaps.update(map(len, "".join("c" if kind == "check" else "t" for kind in kinds).split("c")[:-1]))
    assert set(gaps) <= ({every - 1, every, every + 1} if every > 1 else {1})
    assert len(gaps) > 1 or every == 1


@pytest.mark.case("L08")
def test_checks_stop_when_each_was_seen_and_failures_are_told(flow_of):
    flow = flow_of(tasks=6, checks=1, check_every=1, pages_a_rater=6)
    good, bad = begin(flow), begin(flow)
    go_through(flow, good)
    assert go_through(flow, bad, rating=100).step == "done"  # kind to the rater
    assert [page.kind for page in pages_of(flow, bad)].count("check") == 1
    rows = {row.rater_id: row for row in flow.raters()}
    assert [(row.checks_right, row.checks_asked) for row in (rows[good], rows[bad])] == [(2, 2), (1, 2)]
    assert [row.failed_checks(0.75) for row in (rows[good], rows[bad])] == [False, True]
    right = [rating.right for rating in flow.ratings() if rating.rater_id == bad]
    assert (right.count(True), right.count(False), right.count(None)) == (1, 1, 12)


def test_a_rater_cannot_tell_a_check_from_a_task(flow_of):
    flow = flow_of(tasks=2, checks=1, check_every=1, pages_a_rater=2)
    rater = begin(flow)
    states = [flow.state(rater)]
    while states[-1].step == "task":
        answer_page(flow, rater, states[-1].number)
        states.append(flow.submit(rater, states[-1].number))
    assert [(state.step, state.number, state.done, state.pages) for state in states] == [
        ("task", 1, 0, 3),
        ("task", 2, 1, 3),
        ("task", 3, 2, 3),
        ("done", 3, 3, 3),
    ]
    ids = [item.item_id for number in (1, 2, 3) for item in flow.page(rater, number).items]
    assert len({len(each) for each in ids}) == 1
    assert not any(word in json.dumps(ids) for word in ("task", "check"))


def test_what_was_asked_is_kept_when_the_study_is_edited(flow_of, tmp_path):
    flow = flow_of(tasks=2, pages_a_rater=2)
    rater = begin(flow)
    go_through(flow, rater)
    moved = Page("task-0", "task", "c-task-0", "Words 0", (Item("task-0-0", "new/place.wav"),))
    edited = Study(
        tmp_path, flow.study.settings, tmp_path, "made", "generated", (moved, a_page(9)), "Agree?", "Listen."
    )
    later = Flow(edited, flow.store, now=flow.now)
    asked = {(r.page_id, r.clip_id, r.text, r.group, r.stratum, r.probability) for r in later.ratings()}
    assert ("task-1", "task-1-1", "Words 1", "TN", "top", 0.5) in asked
    assert len(asked) == 4
    paths = {
        r.clip_id: later.item(rater, each.item_id).path
        for n in (1, 2)
        for each, r in zip(later.page(rater, n).items, [r for r in later.ratings() if r.page_number == n], strict=True)
    }
    assert paths["task-0-0"] == "new/place.wav"
    assert paths["task-1-0"] == "task/1-0.wav"


# Who it is


def test_a_known_key_is_the_same_rater(flow_of):
    flow = flow_of()
    rater, key = flow.enter()
    assert flow.enter(key=key) == (rater, key)
    other, other_key = flow.enter()
    assert other != rater
    assert other_key != key
    assert flow.enter(key="unknown")[0] not in (rater, other)
    for wrong in ("", "x", "x" * 10_000, "\0", "\ud800", "ключ"):
        assert flow.rater(wrong) is None
    with flow.store.reading() as connection:
        kept = connection.execute(select(tables.keys.c.key_hash)).scalars().all()
    assert hashed(key) in kept
    assert key not in kept


def test_an_invitation_is_for_one_rater_in_any_browser(flow_of):
    flow = flow_of(entry="invited", most_raters=1)
    refused(403, flow.enter)
    for wrong in ("x", "x" * 10_000, "\0", "\ud800"):
        refused(403, flow.enter, invite=wrong)
    one, two = flow.invite(2, "Pilot, Zürich")
    assert len({one, two}) == 2
    assert min(len(one), len(two)) >= 32
    rater, key = flow.enter(invite=one)
    assert flow.enter(key=key, invite=one) == (rater, key)
    again, other_key = flow.enter(invite=one)
    assert (again, flow.rater(other_key), flow.rater(key)) == (rater, rater, rater)
    second, _ = flow.enter(key=key, invite=two)  # another person at the same computer
    assert second != rater
    refused(403, flow.enter, key="unknown")
    assert flow.enter(key=key)[0] == rater
    assert {row.label for row in flow.raters()} == {"Pilot, Zürich"}
    assert (flow.progress().invites, flow.progress().invites_used) == (2, 2)
    with flow.store.reading() as connection:
        assert set(connection.execute(select(tables.invites.c.token_hash)).scalars()) == {hashed(one), hashed(two)}


def test_invitations_are_made_within_bounds(flow_of):
    flow = flow_of()
    for count, label in ((0, ""), (10**9, ""), (1, "two\nlines"), (1, "x" * 201), (1, "\0")):
        with pytest.raises(DataError, match="expected"):
            flow.invite(count, label)
    assert flow.progress().invites == 0


def test_an_invitation_opened_twice_at_once_is_one_rater(flow_of):
    flow = flow_of()
    token = flow.invite(1)[0]
    found = at_once(*[lambda: flow.enter(invite=token)] * 6)
    assert len({rater for rater, _ in found}) == 1
    assert len({key for _, key in found}) == 6
    assert flow.progress().entered == 1


def test_a_rater_has_so_many_browsers(flow_of):
    flow = flow_of()
    token = flow.invite(1)[0]
    found = []
    for _ in range(22):
        flow.now.go(seconds=1)
        found.append(flow.enter(invite=token)[1])
    assert [flow.rater(key) is None for key in found] == [True] * 2 + [False] * 20


def test_an_open_link_has_its_limit_under_concurrency(flow_of):
    flow = flow_of(most_raters=3)
    found = at_once(*[flow.enter] * 10)
    assert sum(isinstance(each, tuple) for each in found) == 3
    assert {each.status for each in found if not isinstance(each, tuple)} == {410}
    rater, key = next(each for each in found if isinstance(each, tuple))
    assert flow.enter(key=key) == (rater, key)  # who is in stays in
    flow.consent(rater)
    assert flow.enter(invite=flow.invite(1)[0])  # takes no place of the link


def test_a_place_is_held_for_an_hour(flow_of):
    flow = flow_of(most_raters=1)
    slow, _ = flow.enter()
    flow.now.go(minutes=59)
    refused(410, flow.enter)
    flow.now.go(minutes=2)
    quick, _ = flow.enter()
    assert "taken" in refused(410, flow.consent, slow)
    assert flow.consent(quick).step == "sound"
    flow.now.go(hours=5)
    refused(410, flow.enter)
    refused(410, flow.consent, slow)


def test_a_platforms_participant_is_one_rater(flow_of):
    flow = flow_of()
    ids = {"PROLIFIC_PID": "p1", "STUDY_ID": "s1", "SESSION_ID": "one", "utm_source": "mail", "SECRET": "x"}
    rater, key = flow.enter(platform=ids)
    assert flow.raters()[0].platform == {"PROLIFIC_PID": "p1", "STUDY_ID": "s1", "SESSION_ID": "one"}
    assert flow.enter(platform=ids)[0] == rater  # another browser, the same session
    assert flow.enter(key=key, platform={**ids, "SESSION_ID": "two"}) == (rater, key)  # the same browser
    assert "already" in refused(409, flow.enter, platform={**ids, "SESSION_ID": "two"})
    refused(409, flow.enter, platform={"PROLIFIC_PID": "p1"})
    other, _ = flow.enter(key=key, platform={**ids, "PROLIFIC_PID": "p2"})  # another person in the same browser
    assert other != rater
    assert flow.enter(platform={"workerId": "p1", "assignmentId": "one"})[0] not in (rater, other)
    assert len({each for each, _ in at_once(*[lambda: flow.enter(platform={**ids, "PROLIFIC_PID": "p3"})] * 6)}) == 1


def test_a_participant_who_returns_with_another_invitation_has_taken_part(flow_of):
    flow = flow_of(entry="invited")
    one, two, three = flow.invite(3)
    ids = {"PROLIFIC_PID": "p1", "SESSION_ID": "one"}
    rater, key = flow.enter(invite=one, platform=ids)
    for session in ("two", ""):
        said = refused(409, flow.enter, invite=two, platform={**ids, "SESSION_ID": session})
        assert said.startswith("You have taken part already")
    assert flow.enter(invite=two, platform=ids)[0] == rater  # the same session, in another browser
    assert flow.enter(key=key, invite=two, platform={**ids, "SESSION_ID": "two"}) == (rater, key)  # the same browser
    assert flow.progress().invites_used == 1
    other, _ = flow.enter(invite=two, platform={"PROLIFIC_PID": "p2", "SESSION_ID": "x"})
    assert other != rater
    assert (
        flow.enter(invite=one, platform={"PROLIFIC_PID": "p2", "SESSION_ID": "x"})[0] == rater
    )  # its own link decides
    found = at_once(*[lambda: flow.enter(invite=three, platform={"PROLIFIC_PID": "p3", "SESSION_ID": "y"})] * 4)
    assert len({each for each, _ in found}) == 1


def test_a_participant_of_the_open_link_takes_no_invitation(flow_of):
    flow = flow_of()
    (token,) = flow.invite(1)
    flow.enter(platform={"PROLIFIC_PID": "p1", "SESSION_ID": "one"})
    refused(409, flow.enter, invite=token, platform={"PROLIFIC_PID": "p1", "SESSION_ID": "two"})
    assert flow.progress().invites_used == 0
    assert flow.enter(invite=token, platform={"PROLIFIC_PID": "p2"})[0]


def test_another_platforms_first_id_is_the_participant(flow_of):
    flow = flow_of(platform_ids=("participant", "round"))
    rater, _ = flow.enter(platform={"participant": "a", "round": "1", "PROLIFIC_PID": "p"})
    assert flow.raters()[0].platform == {"participant": "a", "round": "1"}
    assert flow.enter(platform={"participant": "a", "round": "1"})[0] == rater
    refused(409, flow.enter, platform={"participant": "a", "round": "2"})


@pytest.mark.parametrize("value", ["x" * 201, "a\0b", "a\nb", "\ud800", 7, ["a"]])
def test_ids_that_cannot_be_kept_are_refused(tmp_path, value):
    store = Store.open(tmp_path / "study.db")
    flow = Flow(a_study(tmp_path), store, now=Clock())
    refused(422, flow.enter, platform={"PROLIFIC_PID": value})
    assert flow.progress().entered == 0
    store.close()


HOSTILE = ["", "x", "x" * 100_000, "\0", "\ud800", "' OR 1=1 --", "r\n", None, 7, "１２"]


def test_nothing_of_one_rater_is_another_ones(flow_of):
    flow = flow_of(heard_share=0)
    mine, yours = begin(flow), begin(flow)
    item = flow.page(yours, 1).items[0].item_id
    answer = GivenAnswer("k", "v", 5, 1.0)
    for rater, what in [(mine, item), *((yours, each) for each in HOSTILE), *((each, item) for each in HOSTILE)]:
        refused(404, flow.item, rater, what)
        refused(404, flow.heard, rater, what, Heard("v", [(0, 1)], 1), duration_s=DURATION_S)
        refused(404, flow.answer, rater, what, answer)
    for rater in HOSTILE:
        for call in (flow.state, flow.consent, flow.sound_checked):
            refused(404, call, rater)
        refused(404, flow.page, rater, 1)
        refused(404, flow.submit, rater, 1)
    for number in (0, -1, 2, 1 << 31, 1 << 64, 10**30, "1", None, 1.5):
        refused(404, flow.page, mine, number)
        refused(404, flow.submit, mine, number)
    assert flow.ratings(history=True) == []
    assert not any(each.heard for each in flow.page(yours, 1).items)


# The owner


def test_progress_counts(flow_of):
    flow = flow_of(tasks=3, checks=1, check_every=1, qualification=1, qualify=1, raters_a_page=2, pages_a_rater=2)
    flow.enter()
    go_through(flow, begin(flow), rating=50)  # fails
    done, half = begin(flow), begin(flow)
    assert go_through(flow, done).step == "done"
    for number in (1, 2):
        answer_page(flow, half, number)
        flow.submit(half, number)
    flow.now.go(minutes=10)
    found = flow.progress()
    assert (found.entered, found.consented, found.qualified, found.failed, found.completed) == (4, 3, 2, 1, 1)
    assert (found.pages, found.submitted, found.wanted, found.ratings) == (3, 3, 6, 6)
    assert sum(found.by_raters) == 3
    assert sum(n * count for n, count in enumerate(found.by_raters)) == 3
    assert found.full == found.by_raters[2] if len(found.by_raters) > 2 else not found.full
    assert found.at_work == 1
    flow.now.go(minutes=30)
    assert flow.progress().at_work == 0
    rows = {row.rater_id: row for row in flow.raters()}
    assert len(rows) == 4
    assert (rows[done].pages, rows[done].ratings, rows[done].seconds, rows[done].played_s) == (2, 4, 80, 80)
    assert (rows[half].pages, rows[half].completed_at, rows[half].code) == (1, "", "")


def test_pages_that_were_taken_out_of_the_pool_are_not_of_those_that_are_wanted(flow_of, place, tmp_path):
    flow = flow_of(tasks=3, raters_a_page=1, pages_a_rater=3)
    go_through(flow, begin(flow))
    less = Flow(a_study(tmp_path, tasks=1, raters_a_page=1), flow.store, now=flow.now)
    assert (less.progress().submitted, less.progress().wanted) == (1, 1)


def random_life(flow: Flow, seed: int) -> None:
    """A rater who presses things twice, comes back late, looks at earlier pages and changes their mind."""
    rng = random.Random(seed)
    rater = begin(flow)
    state = flow.state(rater)
    while state.step in ("task", "qualification"):
        items = list(flow.page(rater, state.number).items)
        rng.shuffle(items)
        for shown in items:
            for change in range(rng.choice((1, 1, 2, 3))):
                given = GivenAnswer(f"{state.number}-{change}", "v", rng.randint(0, 1000) / 10, 1.0)
                for _ in range(rng.choice((1, 2))):
                    flow.answer(rater, shown.item_id, given)
        if rng.random() < 0.3:
            flow.page(rater, rng.randint(1, state.number))
        for _ in range(rng.choice((1, 2))):
            new = flow.submit(rater, state.number)
        state = new


def test_many_raters_at_once_leave_a_sound_record(flow_of):
    flow = flow_of(
        tasks=12, checks=4, qualification=2, check_every=2, qualify=1, qualify_share=0, raters_a_page=5, pages_a_rater=5
    )
    assert at_once(*[lambda i=i: random_life(flow, i) for i in range(10)]) == [None] * 10
    rows = flow.raters()
    assert all(row.code and row.pages for row in rows)
    assert len({row.code for row in rows}) == 10
    counts = Counter()
    for row in rows:
        pages = pages_of(flow, row.rater_id)
        assert [page.number for page in pages] == list(range(1, len(pages) + 1))
        assert len({page.page_id for page in pages}) == len(pages)
        counts.update(page.page_id for page in pages if page.kind == "task")
    assert sum(counts.values()) == 50
    assert set(counts.values()) <= {4, 5}
    history, last = flow.ratings(history=True), flow.ratings()
    by_item: dict = {}
    for rating in history:
        by_item.setdefault((rating.rater_id, rating.page_id, rating.clip_id), []).append(rating)
    assert [each[-1] for each in by_item.values()] == last
    assert all([r.history for r in each] == list(range(len(each))) for each in by_item.values())
    assert len(last) == 2 * sum(len(pages_of(flow, row.rater_id)) for row in rows)


# Edges


def test_a_participant_without_a_session_returns_in_their_own_browser_alone(flow_of):
    flow = flow_of(platform_ids=("participant", "round"))
    for ids in ({"PROLIFIC_PID": "p1"}, {"participant": "a"}):
        each = flow if "participant" in ids else flow_of()
        rater, key = each.enter(platform=ids)
        assert each.enter(key=key, platform=ids) == (rater, key)
        refused(409, each.enter, platform=ids)


def test_who_was_invited_or_forgotten_takes_no_place_of_the_link(flow_of):
    flow = flow_of(most_raters=1)
    invited, _ = flow.enter(invite=flow.invite(1)[0])
    assert flow.consent(invited).step == "sound"
    rater = begin(flow)
    refused(410, flow.enter)
    late, _ = flow.enter(invite=flow.invite(1)[0])
    assert flow.consent(late).step == "sound"  # with the link full
    flow.forget(rater, keep_ratings=True)
    assert flow.state(begin(flow)).step == "task"


def test_a_forgotten_raters_clips_are_nobodys(flow_of):
    flow = flow_of()
    gone = begin(flow)
    item = flow.page(gone, 1).items[0].item_id
    flow.forget(gone, keep_ratings=True)
    refused(404, flow.item, gone, item)
    refused(404, flow.answer, gone, item, GivenAnswer("k", "v", 5, 1.0))


def test_the_last_check_may_come_before_the_last_task_page_too(flow_of):
    flow = flow_of(tasks=2, checks=1, check_every=2, pages_a_rater=2, raters_a_page=99)
    places = set()
    for _ in range(24):
        rater = begin(flow)
        go_through(flow, rater)
        places.add([page.kind for page in pages_of(flow, rater)].index("check"))
    assert places == {1, 2}


def test_nobody_is_told_of_fewer_pages_than_they_had_when_less_is_asked_from_now_on(flow_of, tmp_path):
    flow = flow_of(tasks=6, checks=2, check_every=3, pages_a_rater=6, raters_a_page=9)
    rater = begin(flow)
    for number in range(1, 5):
        answer_page(flow, rater, number)
        flow.submit(rater, number)
    less = a_study(tmp_path, tasks=6, checks=2, check_every=1, pages_a_rater=2, raters_a_page=9)
    state = Flow(less, flow.store, now=flow.now).state(rater)
    assert state.pages >= state.number == 5


def test_what_was_heard_stays_heard_when_a_clock_is_put_back(flow_of):
    flow = flow_of(heard_share=0.8)
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    flow.now.go(seconds=DURATION_S)
    told = Heard("v", [(0, DURATION_S)], DURATION_S, 1)
    assert flow.heard(rater, item, told, duration_s=DURATION_S) == 1
    flow.now.go(hours=-1)
    assert flow.heard(rater, item, told, duration_s=DURATION_S) == 1
    flow.answer(rater, item, GivenAnswer("k", "v", 5, 1.0))


def test_what_is_played_after_the_end_is_not_kept(flow_of):
    flow = flow_of(tasks=1, pages_a_rater=1)
    rater = begin(flow)
    go_through(flow, rater)
    before = flow.ratings()
    flow.now.go(hours=1)
    item = flow.page(rater, 1).items[0].item_id
    assert flow.heard(rater, item, Heard("late", [(0, 10)], 99.0, 9), duration_s=DURATION_S) == 1
    assert flow.ratings() == before


def test_when_a_page_was_first_submitted_is_what_is_kept(flow_of):
    flow = flow_of(tasks=2, pages_a_rater=2)
    rater = begin(flow)
    answer_page(flow, rater, 1)
    flow.submit(rater, 1)
    (first, *_) = pages_of(flow, rater)
    flow.now.go(minutes=5)
    flow.submit(rater, 1)
    assert pages_of(flow, rater)[0].submitted_at == first.submitted_at


def test_as_many_parts_as_are_allowed_and_parts_of_no_length_can_be_told(flow_of):
    flow = flow_of()
    rater = begin(flow)
    item = flow.page(rater, 1).items[0].item_id
    flow.heard(rater, item, Heard("v", [(1, 1)] * MOST_PARTS, 0.0), duration_s=DURATION_S)
    refused(422, flow.heard, rater, item, Heard("v", [(1, 1)] * (MOST_PARTS + 1), 0.0), duration_s=DURATION_S)


def test_who_was_given_a_page_is_at_work_and_checks_count_once_they_are_submitted(flow_of):
    flow = flow_of(tasks=1, checks=1, check_every=1, pages_a_rater=1, raters_a_page=1)
    rater = begin(flow)
    assert flow.progress().at_work == 1
    answer_page(flow, rater, 1)
    flow.submit(rater, 1)
    assert (flow.progress().full, flow.progress().by_raters) == (1, (0, 1))
    answer_page(flow, rater, 2)
    assert [row.checks_asked for row in flow.raters()] == [0]
    flow.submit(rater, 2)
    assert [row.checks_asked for row in flow.raters()] == [2]


def test_a_clock_that_was_set_back_refuses_no_listener(flow_of):
    flow = flow_of()
    rater = begin(flow)
    shown = flow.page(rater, 1).items[0]
    flow.now.go(seconds=-3600)
    heard = Heard("v", [(0, DURATION_S)], DURATION_S, 1)
    assert flow.heard(rater, shown.item_id, heard, duration_s=DURATION_S) == 1.0
    flow.answer(rater, shown.item_id, GivenAnswer("k", "v", 50, 3.5))
