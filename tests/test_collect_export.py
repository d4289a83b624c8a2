"""What people answered, written and read again: every layout, what counts, and what no spreadsheet may run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from earmark.collect.export import LAYOUTS, export
from earmark.collect.flow import Flow
from earmark.collect.owner import table_of
from earmark.collect.plan import Plan
from earmark.collect.pool import make_study
from earmark.collect.reported import GivenAnswer, Heard
from earmark.collect.sources import counted, explained, read_source, shown_id
from earmark.collect.store import GivenRating, Store, store_of
from earmark.collect.study import Settings, Study
from earmark.commands import ratings as commands
from earmark.data.collection import GUARD, Caption, Clip, Collection
from earmark.data.published import import_published
from earmark.data.rows import guarded, unguarded
from earmark.data.soundscapes import generate
from earmark.errors import ConfigError, DataError
from earmark.files import read_table
from earmark.measure.agreement import agreement
from earmark.relevance import Rating

NASTY = (
    '=HYPERLINK("http://x")',
    "+1",
    "-0Gj8-vB1q4_30",
    "@SUM(A1)",
    "\tcmd",
    "\rcmd",
    "'=x",
    "''-y",
    "'quoted'",
    "plain",
)
"""Texts and ids that a spreadsheet runs, or that look as if they were guarded already."""


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(commands.export)
    made.command()(commands.agreement)
    return made


def run(app: typer.Typer, *arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.stdout, found.stderr


def given(**what: object) -> GivenRating:
    usual = {
        "rater_id": "r1", "page_id": "p1", "kind": "task", "page_number": 1, "position": 2, "caption_id": "a#1",
        "text": "rain", "clip_id": "a", "path": "a.wav", "group": "TP", "stratum": "own", "probability": 0.25,
        "low": None, "high": None, "rating": 62.5, "rated_s": 7.25, "given_at": "2026-01-01T00:00:00Z", "history": 1,
        "last": True, "heard": 0.98765, "played_s": 4.50049, "plays": 2, "seeks": 1, "first_play_s": None,
        "submitted": True,
    }  # fmt: skip
    return GivenRating(**(usual | what))  # type: ignore[arg-type]


@dataclass
class Row:
    rater_id: str
    qualified: bool | None = True


def collection(folder: Path, texts: tuple[str, ...] = ("rain", "a dog", "wind")) -> Collection:
    clips = [Clip(f"c{n}", f"sounds/{n}.wav", "development", more={"source": "field"}) for n in range(len(texts))]
    captions = [Caption(f"c{n}#1", f"c{n}", text) for n, text in enumerate(texts)]
    rng = np.random.default_rng(0)
    ratings = [
        Rating(
            f"c{u}#1", f"c{v}", float(rng.integers(0, 101)), "TP" if u == v else "TN", r, 3.5, "own", 0.5, {"page": "1"}
        )
        for u in range(len(texts))
        for v in range(len(texts))
        for r in "xyz"
    ]
    found = Collection(folder, clips, captions, ratings, kind="generated")
    found.write()
    return found


# A study's answers


def test_only_submitted_task_pages_of_qualified_raters_count_and_the_rest_is_counted():
    every = [
        given(),
        given(kind="check"),
        given(kind="qualification"),
        given(submitted=False),
        given(rater_id="r2"),
        given(rater_id="r3"),
    ]
    rows = [Row("r1"), Row("r2", False), Row("r3", None)]
    found, left_out = counted(every, rows)  # type: ignore[arg-type]
    assert [rating.rater_id for rating in found] == ["r1", "r3"]
    assert left_out == {
        "of check pages": 1,
        "of qualification pages": 1,
        "of pages that were not submitted": 1,
        "of raters who did not pass the qualification": 1,
    }
    assert len(counted(every, rows, unsubmitted=True)[0]) == 3  # type: ignore[arg-type]


def test_how_an_answer_came_about_stands_in_its_row():
    (rating,), _ = counted([given()], [])
    assert rating == Rating(
        "a#1", "a", 62.5, "TP", "r1", 4.5, "own", 0.25,
        {
            "page": "p1", "number": "1", "position": "2", "rated_s": "7.25", "first_play_s": "", "heard": "0.988",
            "plays": "2", "seeks": "1", "changes": "1", "given_at": "2026-01-01T00:00:00Z",
        },
    )  # fmt: skip


def test_what_was_shown_and_the_collection_has_not_is_added_to_it(tmp_path):
    found = collection(tmp_path / "c")
    answers = [
        given(caption_id="c0#1", clip_id="c0", text="rain"),
        given(caption_id="c1#1", clip_id="c1", text="a cat"),
        given(caption_id="c1#1", clip_id="c1", text="a dog", rater_id="r2"),
        given(caption_id="c1#1", clip_id="c2", text="a cat", group="TN"),
        given(caption_id="mine", clip_id="c0", text="my words", group="TN"),
        given(caption_id="mine", clip_id="new", text="my words", path="sounds/new.wav", group="TP"),
        given(caption_id="nobody's", clip_id="c0", text="of no clip", group=""),
    ]
    whole, ratings, notes = explained(found, answers)
    cat = shown_id("c1#1", "a cat")
    assert [(r.caption_id, r.clip_id) for r in ratings] == [
        ("c0#1", "c0"), (cat, "c1"), ("c1#1", "c1"), (cat, "c2"), ("mine", "c0"), ("mine", "new"), ("nobody's", "c0"),
    ]  # fmt: skip
    assert whole.captions == [*found.captions, Caption(cat, "c1", "a cat"), Caption("mine", "new", "my words")]
    assert whole.clips == [*found.clips, Clip("new", "sounds/new.wav", "added")]
    assert len(found.captions) == len(found.clips) == 3
    assert notes == [
        f"caption 'c1#1' has other words than were shown: those are caption {cat!r} (2 ratings).",
        "no caption 'mine' in the collection: it is added (2 ratings).",
        "no clip 'new' in the collection: it is added.",
        'no caption "nobody\'s" in the collection, and no clip is its own: it is not added (1 rating).',
    ]


@pytest.mark.parametrize("edited", ["pool.csv", "captions.csv"])
def test_ratings_of_edited_words_stay_with_the_words_that_were_shown(tmp_path, app, edited):
    """The owner corrects a caption in the study before people are asked, or in the collection after."""
    settings = Settings(qualify=0, check_every=0, pages_a_rater=3, raters_a_page=5)
    own = generate(tmp_path / "sounds", clips=12)
    study = make_study(own, tmp_path / "study", Plan(captions=3, similar=0, random=2, page=3, study=settings))
    caption = study.of_kind("task")[0]
    mine = 2 * sum(len(page.items) for page in study.of_kind("task") if page.caption_id == caption.caption_id)
    file = (study.folder if edited == "pool.csv" else own.root) / edited
    words = {True: caption.text, False: "Words of another kind"}

    def edit() -> None:
        file.write_text(file.read_text().replace(caption.text, words[False]))
        assert words[False] in file.read_text()

    if edited == "pool.csv":
        edit()
    store, clock = Store.open(store_of(study.folder)), [datetime(2026, 1, 1, tzinfo=UTC)]
    flow = Flow(Study.read(study.folder), store, now=lambda: clock[0])
    for number in (0, 3):
        answer(flow, clock, number)
    store.close()
    if edited == "captions.csv":
        edit()
    code, out, _ = run(app, "export", study.folder, "--to", tmp_path / "rated")
    assert code == 0
    assert "has other words than were shown: those are caption" in out
    assert f"({mine} ratings)" in out
    found = Collection.read(tmp_path / "rated")
    assert (len(found.ratings), found.problems) == (2 * sum(len(page.items) for page in study.pages), [])
    shown = words[edited == "captions.csv"]
    new = {each.caption_id: each for each in found.captions}[shown_id(caption.caption_id, shown)]
    assert new.text == shown
    assert sum(rating.caption_id == new.caption_id for rating in found.ratings) == mine
    assert run(app, "agreement", study.folder)[0] == 0


def test_ratings_of_a_caption_of_no_clip_stand_in_tables_and_are_told_beside_a_collection(answered, tmp_path, app):
    place = tmp_path / "study"
    shutil.copytree(answered.folder, place)
    (place / "study.toml").write_text(
        (place / "study.toml").read_text().replace('path = "../sounds"', f'path = "{tmp_path / "sounds"}"')
    )
    shutil.copytree(answered.collection, tmp_path / "sounds")
    gone = next(rating.caption_id for rating in read_source(answered.folder).ratings)
    pool = (place / "study.db").read_bytes()
    with sqlite3.connect(place / "study.db") as base:
        base.execute("UPDATE given SET caption_id = 'strange' WHERE caption_id = ?", [gone])
        base.execute("UPDATE items SET \"group\" = '' WHERE \"group\" = 'TP'")
    assert pool
    every = read_source(place)
    strange = sum(rating.caption_id == "strange" for rating in every.ratings)
    assert strange
    code, _, _ = run(app, "export", place, "--to", tmp_path / "r.csv", "--layout", "ratings")
    assert code == 0
    assert len(read_table(tmp_path / "r.csv")[1]) == len(every.ratings)
    code, out, err = run(app, "export", place, "--to", tmp_path / "rated")
    assert code == 1
    assert f"no caption 'strange': {strange} ratings left out. Tables have them (--layout ratings)." in err
    assert f"{len(every.ratings) - strange} ratings" in out
    assert Collection.read(tmp_path / "rated").problems == []


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> Study:
    """A study that five raters went through: one fails the checks, one leaves in the middle of a page."""
    place = tmp_path_factory.mktemp("answered")
    settings = Settings(qualify=0, check_every=1, pages_a_rater=3, raters_a_page=5)
    plan = Plan(captions=4, similar=0, random=2, page=3, study=settings)
    study = make_study(generate(place / "sounds", clips=30), place / "study", plan)
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = Store.open(store_of(study.folder))
    flow = Flow(study, store, now=lambda: clock[0])
    for number in range(5):
        answer(flow, clock, number)
    store.close()
    return study


def answer(flow: Flow, clock: list[datetime], number: int) -> None:
    rng = np.random.default_rng(number)
    rater, _ = flow.enter(platform={"PROLIFIC_PID": f"secret{number}", "SESSION_ID": "s"})
    flow.consent(rater)
    state = flow.sound_checked(rater)
    while state.step == "task":
        for place, shown in enumerate(flow.page(rater, state.number).items):
            clock[0] += timedelta(seconds=60)
            flow.heard(rater, shown.item_id, Heard("v", [(0.0, 5.0)], 5.0, 1, 0, 1.0), duration_s=5.0)
            item = flow.item(rater, shown.item_id)
            fits = item.low is not None or item.group == "TP"
            fits = not fits if number == 1 else fits  # reversed: fails the checks
            value = float(rng.integers(70, 100) if fits else rng.integers(0, 30))
            flow.answer(rater, shown.item_id, GivenAnswer(f"k{place}", "v", value, 5.0))
            if number == 2 and state.number == 5:
                return
        state = flow.submit(rater, state.number)


def test_a_study_becomes_a_collection_that_is_read_again(answered, tmp_path, app):
    code, out, _ = run(app, "export", answered.folder, "--to", tmp_path / "rated")
    assert code == 0
    assert "(GENERATED) as collection" in out
    assert "of check pages" in out
    assert "left out: 1 of pages that were not submitted" in out
    found, own = Collection.read(tmp_path / "rated"), Collection.read(answered.collection)
    assert (found.kind, found.name, found.problems) == ("generated", own.name, [])
    assert [c.clip_id for c in found.clips] == [c.clip_id for c in own.clips]
    assert found.captions == own.captions
    assert found.audio_path(found.clips[0]) == own.audio_path(own.clips[0])
    assert found.about["collected"]["raters"] == 5
    asked = {(page.caption_id, item.clip_id): item for page in answered.of_kind("task") for item in page.items}
    for rating in found.ratings:
        item = asked[rating.caption_id, rating.clip_id]
        assert (rating.group, rating.stratum) == (item.group, item.stratum)
        assert rating.probability == pytest.approx(item.probability)
        assert rating.played_s == 5
        assert rating.more["plays"] == "1"
    assert "secret" not in (tmp_path / "rated" / "ratings.csv").read_text()


@pytest.mark.case("L08")
def test_raters_who_fail_the_checks_are_left_out_by_choice_and_counted(answered, tmp_path, app):
    source = read_source(answered.folder)
    passed = source.without(["failed"])
    gone = {r.rater_id for r in source.ratings} - {r.rater_id for r in passed.ratings}
    assert len(gone) == 1
    code, out, _ = run(
        app, "export", answered.folder, "--to", tmp_path / "r.csv", "--layout", "ratings", "--without", "failed"
    )
    assert code == 0
    assert "of 1 rater who failed the checks" in out
    _, rows, _ = read_table(tmp_path / "r.csv")
    assert len(rows) == len(passed.ratings)
    assert gone.isdisjoint(row.cells["rater_id"] for row in rows)
    assert source.without(["flagged"]).ratings == passed.ratings  # nobody else has a flag
    with pytest.raises(ConfigError, match="--without lazy; expected failed or flagged"):
        source.without(["lazy"])


def test_answers_of_pages_that_were_not_submitted_count_where_that_is_asked(answered):
    assert len(read_source(answered.folder, unsubmitted=True).ratings) == len(read_source(answered.folder).ratings) + 1


def test_agreement_of_a_study_names_who_failed(answered, tmp_path, app):
    code, out, _ = run(app, "agreement", answered.folder, "--json", tmp_path / "a.json", "--width", "7")
    assert code == 0
    assert "failed checks: 0 of" in out
    assert "a pair's mean within ± 7 points" in out
    told = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert told["raters"]["flagged"] == 1
    assert told["agreement"]["all"]["raters"] == 5
    assert told["needed"]["for_widths"][0]["wanted"] == 7
    assert {"group TP", "group TN"} <= set(told["agreement"])


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("more", [[], ["--all"]])
def test_agreement_can_be_read_on_a_narrow_terminal(answered, tmp_path, width, more):
    """Every number is whole, and no line is longer than the terminal but those of reasons, which it breaks itself."""
    found = collection(tmp_path / "c", ("rain", "a dog", "wind"))
    long = "a rater of a very long name, as platforms give them, 0123456789abcdef0123456789abcdef"
    found.ratings += [Rating("c0#1", f"c{at}", 100.0, "C15", long) for at in range(3)]
    found.clips = [replace(clip, split="a split of a long name, even longer") for clip in found.clips]
    found.write()
    for source in (answered.folder, found.root):
        told = on_terminal(width, "collect", "agreement", source, *more)
        tables = [line for line in told if line[:1] in "┏┃┡│└"]
        assert len(tables) > 20
        assert max(map(len, told)) <= width
        assert "…" not in "".join(tables)
        assert any(re.search(r"│ -?\d\.\d{3} \[-?\d\.\d{3}, -?\d\.\d{3}\] │", line) for line in tables)
    piped = subprocess.run([*EARMARK, "collect", "agreement", str(found.root)], capture_output=True, text=True)
    assert long in piped.stdout
    assert "…" not in piped.stdout


EARMARK = [sys.executable, "-c", "from earmark.cli import main; main()"]


def on_terminal(width: int, *arguments: object) -> list[str]:
    """The lines that a terminal of so many columns is given."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    more = {"COLUMNS": str(width), "TERM": "xterm"}
    running = subprocess.Popen(
        [*EARMARK, *map(str, arguments)], stdin=writer, stdout=writer, stderr=subprocess.DEVNULL, env=os.environ | more
    )
    os.close(writer)
    data = b""
    with contextlib.suppress(OSError):  # Linux tells the end so
        while part := os.read(reader, 1 << 16):
            data += part
    os.close(reader)
    assert running.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode())
    return [line for line in text.replace("\r", "").split("\n") if line[:1] in ("┏", "┃", "┡", "│", "└")]


@pytest.mark.parametrize("width", ["0", "-1", "nan", "inf", "1e-300", "1e9"])
def test_a_width_that_is_none_is_refused_in_one_line_before_the_work(tmp_path, app, width):
    with pytest.raises(ConfigError, match=r"^--width .+; expected 0\.1 to 99\.$"):
        run(app, "agreement", tmp_path / "nothing", f"--width={width}")


def test_a_number_that_rounds_to_nothing_has_no_sign(tmp_path, app):
    rng = np.random.default_rng(3)
    for _ in range(200):
        ratings = [[float(rng.integers(0, 101)) for _ in range(2)] for _ in range(60)]
        answers = [
            Rating(f"t{u}", f"c{u}", value, rater_id=r)
            for u, pair in enumerate(ratings)
            for r, value in zip("ab", pair, strict=True)
        ]
        if -0.0005 < agreement(answers, replicates=1).alpha < 0:
            break
    rows = "".join(f"{a.caption_id},{a.clip_id},{a.rating:g},{a.rater_id}\n" for a in answers)
    (tmp_path / "r.csv").write_text("caption_id,clip_id,rating,rater_id\n" + rows)
    _, out, _ = run(app, "agreement", tmp_path / "r.csv")
    assert "0.000 [" in out
    assert "-0.000" not in out


def test_one_raters_repeated_answers_are_told_from_agreement(tmp_path, app):
    rows = "".join(f"t{u},c{u},{10 * u + k},a\n" for u in range(6) for k in range(2))
    (tmp_path / "r.csv").write_text("caption_id,clip_id,rating,rater_id\n" + rows)
    _, out, _ = run(app, "agreement", tmp_path / "r.csv")
    assert "note: One rater: α is of their repeated answers, and says nothing of agreement with others." in out


def test_a_study_that_nobody_answered_is_refused_in_one_line(answered, tmp_path):
    with pytest.raises(DataError, match=r"none\.db: is not there; no answers yet"):
        read_source(answered.folder, store=str(tmp_path / "none.db"))


# Layouts


@pytest.mark.parametrize("layout", ["collection", *LAYOUTS])
def test_what_is_there_is_never_written_over(tmp_path, layout):
    found = collection(tmp_path / "c")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="is there already"):
        export(read_source(found.root), tmp_path / "out", layout)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_an_unknown_layout_is_refused(tmp_path):
    found = collection(tmp_path / "c")
    with pytest.raises(ConfigError, match="--layout cvs; expected collection, ratings, mean, grrel, xacle"):
        export(read_source(found.root), tmp_path / "out", "cvs")


def test_ratings_come_back_from_a_table_as_they_were(tmp_path):
    found = collection(tmp_path / "c")
    export(read_source(found.root), tmp_path / "r.csv", "ratings")
    again = read_source(tmp_path / "r.csv")
    assert (again.what, list(again.ratings)) == ("ratings", found.ratings)


@pytest.mark.parametrize("what", ["all", "history"])
def test_the_owners_tables_of_all_answers_count_as_the_study_does(answered, tmp_path, what):
    store = Store.open(store_of(answered.folder))
    (tmp_path / "table.csv").write_text(table_of(Flow(answered, store), what))
    store.close()
    found, own = read_source(tmp_path / "table.csv"), read_source(answered.folder, unsubmitted=True)
    assert found.ratings == tuple(replace(each, more={"kind": "task", **each.more}) for each in own.ratings)
    assert found.left_out == own.left_out


def test_of_answers_that_were_changed_the_last_counts_and_the_others_are_counted(tmp_path):
    rows = [
        *("a,x,10,r,p1,task,2026-01-01T00:00:02.000Z", "a,x,20,r,p1,task,2026-01-01T00:00:01.000Z"),
        *("a,x,30,s,p1,task,2026-01-01T00:00:01.000Z", "a,x,40,r,p2,task,2026-01-01T00:00:01.000Z"),
    ]
    text = "\n".join(["caption_id,clip_id,rating,rater_id,page,kind,given_at", *rows])
    (tmp_path / "history.csv").write_text(text)
    found = read_source(tmp_path / "history.csv")
    assert [rating.rating for rating in found.ratings] == [10, 30, 40]
    assert found.left_out == {"that were changed later": 1}


def test_columns_that_are_formulas_come_back_too(tmp_path):
    source = read_source(collection(tmp_path / "c").root)
    source = replace(source, ratings=tuple(replace(each, more={"=note": "=1"}) for each in source.ratings))
    export(source, tmp_path / "r.csv", "ratings")
    assert (tmp_path / "r.csv").read_text().splitlines()[0].endswith(",'=note,collection_kind")
    assert read_source(tmp_path / "r.csv").ratings == source.ratings


def test_raters_without_a_rating_are_not_counted_among_those_left_out(tmp_path):
    found = replace(read_source(collection(tmp_path / "c").root), checks={"x": (0, 4), "nobody": (0, 4)})
    assert list(found.without(["failed"]).left_out) == ["of 1 rater who failed the checks"]


def test_means_have_sd_and_n(tmp_path):
    found = collection(tmp_path / "c")
    found.ratings = [*found.ratings, Rating("c0#1", "c1", 33.0, rater_id="w")]
    single = [Rating("c2#1", "c0", 12.5, rater_id="x")]
    kept = [r for r in found.ratings if (r.caption_id, r.clip_id) != ("c2#1", "c0")]
    source = replace(read_source(found.root), ratings=(*kept, *single))
    assert export(source, tmp_path / "m.csv", "mean") == 9
    _, rows, _ = read_table(tmp_path / "m.csv")
    by_pair = {(row.cells["caption_id"], row.cells["clip_id"]): row.cells for row in rows}
    values = [r.rating for r in kept if (r.caption_id, r.clip_id) == ("c0#1", "c1")]
    cells = by_pair["c0#1", "c1"]
    assert float(cells["rating"]) == pytest.approx(np.mean(values), abs=1e-6)
    assert float(cells["sd"]) == pytest.approx(np.std(values, ddof=1), abs=1e-6)
    assert (cells["n"], cells["text"], cells["probability"]) == ("4", "rain", "0.5")
    assert (by_pair["c2#1", "c0"]["sd"], by_pair["c2#1", "c0"]["rating"]) == ("", "12.5")
    assert "nan" not in (tmp_path / "m.csv").read_text().lower()


def test_grrels_layout_has_rounded_means_and_is_read_again(tmp_path):
    found = collection(tmp_path / "c")
    source = replace(
        read_source(found.root),
        kind="recorded",
        ratings=(
            Rating("c0#1", "c0", 72.0, "TP", "a"),
            Rating("c0#1", "c0", 73.0, "TP", "b"),  # a half is rounded up, to even or not
            Rating("c0#1", "c1", 0.4, "TN", "a"),
        ),
    )
    export(source, tmp_path / "development_relevances.csv", "grrel")
    written = (tmp_path / "development_relevances.csv").read_text()
    assert written == "tid,fid,fid_group,rating\nc0#1,c0,TP,73\nc0#1,c1,TN,0\n"
    again = read_source(tmp_path / "development_relevances.csv")
    assert again.what == "GrRel"
    assert again.ratings == (Rating("c0#1", "c0", 73.0, "TP"), Rating("c0#1", "c1", 0.0, "TN"))


def test_xacles_layout_is_imported_again(tmp_path):
    found = collection(tmp_path / "c")
    export(read_source(found.root), tmp_path / "x.csv", "xacle")
    again = import_published([tmp_path / "x.csv"], tmp_path / "again")
    assert again.problems == []
    texts = {caption.caption_id: caption.text for caption in found.captions}
    asked = {caption.caption_id: caption.text for caption in again.captions}
    assert [(asked[r.caption_id], r.clip_id, r.rating, r.rater_id) for r in again.ratings] == [
        (texts[r.caption_id], f"{r.clip_id[1:]}.wav", r.rating, r.rater_id) for r in found.ratings
    ]
    assert [r.rating for r in read_source(tmp_path / "x.csv").ratings] == [r.rating for r in found.ratings]


def test_sounds_of_one_name_are_told_apart_in_xacles_layout(tmp_path):
    found = collection(tmp_path / "c")
    found.clips = [replace(clip, path=f"{clip.clip_id}/kick.wav") for clip in found.clips]
    found.write()
    export(read_source(found.root), tmp_path / "x.csv", "xacle")
    _, rows, _ = read_table(tmp_path / "x.csv")
    assert {row.cells["wave_file_name"] for row in rows} == {"c0", "c1", "c2"}


@pytest.mark.parametrize("layout", ["collection", "xacle"])
def test_a_table_without_texts_is_no_collection(tmp_path, layout):
    (tmp_path / "g.csv").write_text("tid,fid,fid_group,rating\na,b,TP,50\n")
    with pytest.raises(DataError, match=f"names neither sounds nor texts, which --layout {layout} needs"):
        export(read_source(tmp_path / "g.csv"), tmp_path / "out", layout)


# Spreadsheets


@pytest.mark.parametrize("text", [*NASTY, "", "'", "'a"])
def test_what_is_guarded_comes_back_and_is_no_formula(text):
    assert unguarded(guarded(text)) == text
    assert guarded(text)[:1] not in ("=", "+", "-", "@", "\t", "\r", "\n")


def nasty(folder: Path) -> Collection:
    """A collection whose texts and ids are all formulas."""
    ids = [each for each in NASTY if each.strip() == each]
    clips = [Clip(each, f"{each}.wav", "development", more={"=more": each}) for each in ids]
    captions = [Caption(f"-{each}", each, text) for each, text in zip(ids, NASTY, strict=False)]
    ratings = [Rating(f"-{each}", each, 50.0, "=TP", rater_id=f"@{r}", stratum="+s") for each in ids for r in "ab"]
    found = Collection(folder, clips, captions, ratings)
    found.write()
    return found


@pytest.mark.parametrize("layout", ["collection", *LAYOUTS])
def test_no_cell_that_is_written_is_a_formula(tmp_path, layout):
    found = nasty(tmp_path / "c")
    export(read_source(found.root), tmp_path / "out", layout)
    files = list((tmp_path / "out").glob("*.csv")) if layout == "collection" else [tmp_path / "out"]
    assert len(files) == (3 if layout == "collection" else 1)
    for file in files:
        columns, rows, problems = read_table(file)
        cells = [*columns, *(cell for row in rows for cell in row.cells.values())]
        assert not problems
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")]


def test_a_collection_of_formulas_is_read_as_it_was_however_often_it_is_exported(tmp_path):
    found = nasty(tmp_path / "c")
    export(read_source(found.root), tmp_path / "once")
    export(read_source(tmp_path / "once"), tmp_path / "twice")
    for folder in ("once", "twice"):
        again = Collection.read(tmp_path / folder)
        assert again.about[GUARD] is True
        assert again.captions == found.captions
        assert again.ratings == found.ratings
        assert [clip.clip_id for clip in again.clips] == [clip.clip_id for clip in found.clips]
        assert [clip.more for clip in again.clips] == [clip.more for clip in found.clips]
        assert again.audio_path(again.clips[0]) == found.audio_path(found.clips[0])
    assert list(read_source(tmp_path / "once").ratings) == found.ratings


def test_cells_are_as_they_are_where_that_is_asked(tmp_path):
    found = nasty(tmp_path / "c")
    export(read_source(found.root), tmp_path / "out", guard=False)
    again = Collection.read(tmp_path / "out")
    assert (again.captions, again.ratings, again.about[GUARD]) == (found.captions, found.ratings, False)
    assert "'=HYPERLINK" not in (tmp_path / "out" / "captions.csv").read_text()


def test_a_table_of_formulas_is_read_as_it_was(tmp_path):
    found = nasty(tmp_path / "c")
    export(read_source(found.root), tmp_path / "r.csv", "ratings")
    assert list(read_source(tmp_path / "r.csv").ratings) == found.ratings


def test_a_published_layout_of_formulas_is_read_as_it_was(tmp_path):
    found = nasty(tmp_path / "c")
    export(read_source(found.root), tmp_path / "x.csv", "xacle")
    again = read_source(tmp_path / "x.csv")
    assert [caption.text for caption in again.collection.captions] == [caption.text for caption in found.captions]
    assert {rating.rater_id for rating in again.ratings} == {"@a", "@b"}
    assert {clip.clip_id for clip in again.collection.clips} == {Path(clip.path).name for clip in found.clips}


@pytest.mark.parametrize("layout", ["collection", *LAYOUTS])
@pytest.mark.parametrize("kind", ["recorded", "generated", "proxy"])
def test_what_is_not_recorded_is_told_so_wherever_it_goes(tmp_path, layout, kind):
    found = collection(tmp_path / "c")
    replace(found, kind=kind).write()
    export(read_source(found.root), tmp_path / "out.csv", layout)
    if layout == "mean":
        assert {row.cells.get("collection_kind", "recorded") for row in read_table(tmp_path / "out.csv")[1]} == {kind}
        return
    again = read_source(tmp_path / "out.csv")
    assert (again.kind, len(again.ratings) > 0) == (kind, True)
    assert not [rating for rating in again.ratings if "collection_kind" in rating.more]
    if layout == "xacle":
        assert import_published([tmp_path / "out.csv"], tmp_path / "in").kind == kind


def test_means_are_no_answers(tmp_path):
    export(read_source(collection(tmp_path / "c").root), tmp_path / "means.csv", "mean")
    with pytest.raises(DataError, match=r"means\.csv line 1: a table of means \(columns sd, n\)"):
        read_source(tmp_path / "means.csv")


def test_names_of_xacles_layout_are_unique_where_ids_are_names_of_others(tmp_path):
    found = collection(tmp_path / "c", ("rain", "a dog", "wind"))
    ids, paths = ("z.wav", "y", "c"), ("a/dup.wav", "b/dup.wav", "c/z.wav")
    now = dict(zip([clip.clip_id for clip in found.clips], ids, strict=True))
    found.clips = [replace(c, clip_id=now[c.clip_id], path=p) for c, p in zip(found.clips, paths, strict=True)]
    found.captions = [replace(each, clip_id=now[each.clip_id]) for each in found.captions]
    found.ratings = [Rating(found.captions[0].caption_id, clip_id, 50.0, "TP", "r") for clip_id in ids]
    found.write()
    export(read_source(found.root), tmp_path / "x.csv", "xacle")
    rows = read_table(tmp_path / "x.csv")[1]
    assert [row.cells["wave_file_name"] for row in rows] == ["z.wav", "y", "c"]


def test_ratings_from_before_the_study_are_counted_or_kept(answered, tmp_path, app):
    earlier = Collection.read(answered.collection).ratings
    _, told, _ = run(app, "export", answered.folder, "--to", tmp_path / "without")
    assert f"left out: {len(earlier):,} earlier ratings of the collection" in told
    _, told, _ = run(app, "export", answered.folder, "--to", tmp_path / "with", "--earlier")
    assert f"kept: {len(earlier):,} earlier ratings" in told
    alone, both = (Collection.read(tmp_path / name).ratings for name in ("without", "with"))
    assert (len(both), both[-len(alone) :]) == (len(earlier) + len(alone), alone)
    with pytest.raises(ConfigError, match="--earlier with --layout mean"):
        run(app, "export", answered.folder, "--to", tmp_path / "x.csv", "--layout", "mean", "--earlier")


def test_of_changed_answers_the_most_changed_counts_whatever_the_clock_said(tmp_path):
    rows = ["c,k,10,r,1,task,1,2026-01-01T10:00:00Z", "c,k,20,r,1,task,2,2026-01-01T09:00:00Z"]
    (tmp_path / "h.csv").write_text("\n".join(["caption_id,clip_id,rating,rater_id,page,kind,changes,given_at", *rows]))
    found = read_source(tmp_path / "h.csv")
    assert ([each.rating for each in found.ratings], found.left_out) == ([20.0], {"that were changed later": 1})


def test_a_folder_that_is_nothing_is_told_so(tmp_path):
    with pytest.raises(DataError, match="neither study"):
        read_source(tmp_path)


# Commands and published files


def test_a_row_that_cannot_be_used_costs_itself_and_ends_with_1(tmp_path, app):
    (tmp_path / "g.csv").write_text("tid,fid,fid_group,rating\na,b,TP,50\na,c,TN,140\na,,TN,1\n")
    code, _, err = run(app, "export", tmp_path / "g.csv", "--to", tmp_path / "out.csv", "--layout", "mean")
    assert code == 1
    assert "g.csv line 3: rating 140; expected 0–100" in err
    assert "2 rows or ratings were left out" in err
    assert (tmp_path / "out.csv").exists()
    assert run(app, "agreement", tmp_path / "g.csv")[0] == 1


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "tid,fid,fid_group,rating\n"])
def test_a_file_without_ratings_is_refused(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=r"expected a study's or a collection's folder|no rating counts"):
        read_source(tmp_path / "x.csv")


def test_one_rating_a_pair_leaves_agreement_undefined_and_says_so(tmp_path, app):
    (tmp_path / "g.csv").write_text("tid,fid,fid_group,rating\na,b,TP,50\na,c,TN,0\n")
    code, out, _ = run(app, "agreement", tmp_path / "g.csv", "--json", tmp_path / "a.json")
    assert code == 0
    assert "Ratings left out, since they name no rater: 2." in out
    assert json.loads((tmp_path / "a.json").read_text())["agreement"]["all"]["alpha"] is None


@pytest.mark.case("R10")
def test_full_agreement_is_undefined_with_a_note_and_equal_answers_are_told(tmp_path, app):
    rows = "".join(f"t{u},c{u},50,{r}\n" for u in range(12) for r in "abcd")
    (tmp_path / "r.csv").write_text("caption_id,clip_id,rating,rater_id\n" + rows)
    code, out, _ = run(app, "agreement", tmp_path / "r.csv")
    assert code == 0
    assert "α is undefined (0/0)" in out
    assert "100%" in out
    assert "0 of 4 raters have a flag" in out


@pytest.mark.case("R12")
def test_one_disagreement_among_many_has_its_percent_agreement_beside_alpha(tmp_path, app):
    rows = "".join(f"t{u},c{u},{1 if (u, r) == (3, 4) else 0},r{r}\n" for u in range(20) for r in range(10))
    (tmp_path / "r.csv").write_text("caption_id,clip_id,rating,rater_id\n" + rows)
    run(app, "agreement", tmp_path / "r.csv", "--json", tmp_path / "a.json")
    told = json.loads((tmp_path / "a.json").read_text())["agreement"]["all"]
    assert told["same"] == pytest.approx(1 - 9 / 900)
    assert abs(told["alpha"]) < 0.01


def test_agreement_stands_by_the_split_of_the_caption_s_clip_without_anchors(tmp_path, app):
    found = collection(tmp_path / "c")
    clips = [replace(found.clips[0], split="evaluation-lists"), *found.clips[1:]]
    anchors = [Rating("c1#1", "c1", 90.0, "anchor", "x")]
    replace(found, clips=clips, ratings=[*found.ratings, *anchors]).write()
    parts = read_source(found.root).parts()
    assert {name: len(part) for name, part in parts.items()} == {
        "all": 28,
        "without anchors": 27,
        "split evaluation": 9,
        "split development": 18,
        "group TP": 9,
        "group TN": 18,
        "group anchor": 1,
    }
    assert {rating.caption_id for rating in parts["split evaluation"]} == {"c0#1"}
    run(app, "agreement", found.root, "--json", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["needed"]["from"] == "without anchors"


def test_relate_is_read_as_a_study_with_its_known_agreement(real_data, tmp_path, app):
    path = real_data / "texts" / "relate" / "REL.csv"
    found = read_source(path)
    assert (found.what, len(found.ratings), found.problems) == ("RELATE", 28_770, ())
    code, out, _ = run(app, "agreement", path, "--json", tmp_path / "a.json")
    assert code == 0
    told = json.loads((tmp_path / "a.json").read_text())["agreement"]
    alphas = [round(told[part]["alpha"], 4) for part in ("all", "without anchors", "split test")]
    assert alphas == [0.5686, 0.3942, 0.4257]
    assert "of 1,370 raters have a flag" in out
    export(found, tmp_path / "x.csv", "xacle")
    again = read_source(tmp_path / "x.csv")
    assert [(r.clip_id, r.rating, r.rater_id) for r in again.ratings] == [
        (r.clip_id, r.rating, r.rater_id) for r in found.ratings
    ]


def test_grrels_published_ratings_come_back_to_the_letter(real_data, tmp_path):
    path = real_data / "texts" / "clotho_relevance" / "relevance_data" / "validation_relevances.csv"
    if not path.exists():
        pytest.skip(f"no {path.name}")
    export(read_source(path), tmp_path / "again.csv", "grrel", guard=False)
    assert read_table(tmp_path / "again.csv")[1] == read_table(path)[1]
    export(read_source(path), tmp_path / "guarded.csv", "grrel")  # some of its ids begin with - or +
    assert "\n'-" not in (tmp_path / "again.csv").read_text()
    assert read_source(tmp_path / "guarded.csv").ratings == read_source(path).ratings


def test_one_rater_alone_is_told_in_one_line_what_cannot_be(app, tmp_path):
    table = tmp_path / "one.csv"
    table.write_text("caption_id,clip_id,rating,rater_id\n" + "".join(f"c{at},s{at},{10 * at},me\n" for at in range(9)))
    _, said, _ = run(app, "agreement", table)
    assert "How many raters and pairs are needed cannot be told from these ratings (all)." in said
    assert "raters a pair" not in said
