"""A study's files: what is written is read again, and what is wrong in them is told by file and line."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.collect.study import Item, Page, Settings, Study, check_settings
from earmark.errors import ConfigError, DataError


@pytest.fixture
def study(tmp_path) -> Study:
    """A small study on disk: two task pages, two checks, one qualification page."""
    return made(tmp_path)


@pytest.fixture(scope="module")
def anywhere(tmp_path_factory) -> Study:
    """One to write over."""
    return made(tmp_path_factory.mktemp("texts"))


def made(root: Path) -> Study:
    """The same, in any folder."""
    (root / "sounds").mkdir()
    for name in "abcd":
        (root / "sounds" / f"{name}.wav").write_bytes(b"not decoded when a study is read")
    pages = [
        Page("t1", "task", "x", "a dog <b>barks</b>", (item("a", "TP", "own", 1.0), item("b", "TN", "random", 1 / 3))),
        Page("t2", "task", "x", "a dog <b>barks</b>", (item("c", "C15", "similar", 1e-6),)),
    ]
    pages += [check("c1", "y"), check("c2", "z"), replace(check("q1", "w"), kind="qualification")]
    own = Settings(qualify=1, check_every=1)
    chosen = {"seed": 3, "mean_clip_s": 2.5}
    found = Study(root / "study", own, root / "sounds", "mine", "generated", tuple(pages), "# Yes\n", "Do.\n", chosen)
    found.write()
    return found


def item(clip: str, group: str = "", stratum: str = "", probability: float | None = None) -> Item:
    return Item(clip, f"{clip}.wav", group, stratum, probability)


def check(page: str, caption: str) -> Page:
    items = (Item("d", "d.wav", low=50.0), Item("a", "a.wav", high=40.0))
    return Page(page, "check", caption, f"check {caption}", items)


def change(study: Study, file: str, old: str, new: str) -> Study:
    """The study, read again after a change to one of its files."""
    path = study.folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return Study.read(study.folder)


def test_what_is_written_is_read_again(study):
    again = Study.read(study.folder)
    assert again == study
    assert again.problems == ()
    assert again.page("c1").items[0].low == 50
    assert again.sound(again.pages[0].items[0]) == (study.folder.parent / "sounds" / "a.wav")
    assert [page.page_id for page in again.of_kind("check", "qualification")] == ["c1", "c2", "q1"]
    with pytest.raises(DataError, match="no page 'nothing'"):
        again.page("nothing")


def test_the_folders_may_move_together(study, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (tmp_path / "sounds").rename(moved / "sounds")
    study.folder.rename(moved / "study")
    assert Study.read(moved / "study").collection == moved / "sounds"


def test_every_setting_stands_in_the_file_without_comments(study):
    text = (study.folder / "study.toml").read_text()
    assert set(tomllib.loads(text)["study"]) == set(Settings.__dataclass_fields__)
    assert "#" not in text


@settings(max_examples=40)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
def test_any_text_is_read_as_it_was_written(anywhere, text):
    page = replace(anywhere.pages[0], text=text + "x")
    replace(anywhere, pages=(page, *anywhere.pages[2:])).write()
    assert Study.read(anywhere.folder).pages[0] == page


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("raters_a_page = 3", "rater_a_page = 3", "unknown key 'rater_a_page'; did you mean 'raters_a_page'?"),
        ("raters_a_page = 3", "raters_a_page = 0", "study.raters_a_page = 0; expected 1 to 10,000"),
        ("raters_a_page = 3", "raters_a_page = 2.5", "study.raters_a_page = 2.5; expected a whole number"),
        ("heard_share = 0.8", "heard_share = 80", "study.heard_share = 80; expected 0 to 1"),
        ("heard_share = 0.8", "heard_share = nan", "study.heard_share = nan; expected 0 to 1"),
        ("loudness_lufs = -23.0", "loudness_lufs = 23", "study.loudness_lufs = 23; expected -60 to -5"),
        ('entry = "open"', 'entry = "opened"', 'study.entry = \'opened\'; expected "open" or "invited"'),
        ('completion_url = ""', 'completion_url = "javascript:x"', "expected an address that starts with https://"),
        (
            'failed_url = ""',
            'failed_url = "data:x"',
            "failed_url = 'data:x'; expected an address that starts with https://",
        ),
        ('completion_url = ""', 'completion_url = "https://"', "and names a host"),
        ('completion_url = ""', 'completion_url = "https://["', "expected an address (Invalid IPv6 URL)"),
        ('completion_url = ""', 'completion_url = "https://x.org/{cod}"', "expected {code} in place of the rater's"),
        ('title = "Listening study"', 'title = " "', "study.title = ' '; expected words, in one line"),
        ('title = "Listening study"', 'title = "a\\nb"', "expected words, in one line"),
        ("most_raters = 0", "most_raters = -1", "study.most_raters = -1; expected 0 to 10,000,000"),
        ('"PROLIFIC_PID",', '"PROLIFIC_PID", "PROLIFIC_PID",', "expected a list of names"),
        ("check_every = 1", "check_every = true", "study.check_every = True; expected a whole number"),
        ('"PROLIFIC_PID",', '"PROLIFIC_PID", 3,', "expected a list of names"),
        ("[pool]", "[pools]", "unknown key 'pools'; did you mean 'pool'?"),
        ("[pool]", "[pool", "not TOML"),
        ('path = "../sounds"', 'path = "../sound"', "Correct the path"),
        ('path = "../sounds"', 'paths = "../sounds"', "unknown key 'paths'; did you mean 'path'?"),
        ('path = "../sounds"', "", "no collection.path"),
        ('kind = "generated"', 'kind = "made"', "collection.kind = 'made'"),
        ('name = "mine"', "name = 3", "collection.name = 3; expected a text"),
    ],
)
def test_a_setting_that_cannot_be_stops_in_one_line(study, old, new, told):
    with pytest.raises((ConfigError, DataError)) as caught:
        change(study, "study.toml", old, new)
    assert told in str(caught.value)
    assert "study.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("title", ["Bruit\u00a0: oui ou non\u00a0?", "می\u200cشود", "\U0001f469\u200d\U0001f52c"])
def test_words_of_any_language_are_words(study, title):
    found = change(study, "study.toml", 'title = "Listening study"', f'title = "{title}"')
    assert found.settings.title == title


@pytest.mark.parametrize("sign", ["\\u0000", "\\u0085", "\\u2028", "\\u2029"])
def test_what_breaks_a_line_is_no_title(study, sign):
    with pytest.raises(ConfigError, match=r"study\.title = .*; expected words, in one line"):
        change(study, "study.toml", 'title = "Listening study"', f'title = "a{sign}b"')


def test_a_study_that_is_over_is_read_without_its_sounds(study):
    (study.collection / "a.wav").unlink()
    assert Study.read(study.folder, sounds=False) == study
    shutil.rmtree(study.collection)
    assert Study.read(study.folder, sounds=False).pages == study.pages
    with pytest.raises(DataError, match="no folder"):
        Study.read(study.folder)


def test_defaults_can_be_and_settings_may_be_left_out(study):
    check_settings(Settings(), "defaults")
    (study.folder / "study.toml").write_text('[collection]\npath = "../sounds"\n')
    found = Study.read(study.folder)
    assert found.settings == Settings()
    assert (found.name, found.kind) == ("sounds", "recorded")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("t2,x,c", "t2,x,a", "line 4: the pair ('x', 'a') stands on page 't1' already"),
        ("t2,x,c", "t2,v,c", ""),
        ("t2,x,c,a dog <b>barks</b>", "t2,x,c,a cat", "line 4: caption 'x' has another text on a page before"),
        ("t2,x,c,a dog <b>barks</b>", "t2,x,c,\u200b", "line 4: the text is blank"),
        ("t2,x,c", "t2,x, ", "line 4: clip_id is blank"),
        ("t2,x,c", " t2,x,c", "line 4: page has blanks around it"),
        ("t2,x,c,a dog <b>barks</b>,c.wav", "t2,x,c,a dog <b>barks</b>,../sounds", "'../sounds' is no file; expected"),
        ("t2,x,c,a dog <b>barks</b>,c.wav", "t2,x,c,a dog <b>barks</b>,C.wav", "'c.wav' is there and differs in upper"),
        ("t2,x,c,a dog <b>barks</b>,c.wav", "t2,x,c,a dog <b>barks</b>,..", "'..' is no file"),
        ("t2,x,c,a dog <b>barks</b>", "t2,v,a,a cat", "line 4: clip 'a' has another path, 'a.wav', on a page before"),
        ("0.000001", "0", "probability '0'; expected more than 0"),
        ("0.000001", "1e-6", "probability '1e-6'"),
        ("t1,x,b", "t2,x,a", "stands on page 't1' already"),
    ],
)
def test_a_page_that_cannot_be_asked_costs_that_page(study, old, new, told):
    found = change(study, "pool.csv", old, new)
    assert len(found.of_kind("task")) == (1 if told else 2)
    if told:
        assert any(told in str(problem) and problem.where.startswith("pool.csv line") for problem in found.problems)
        assert re.search(r"Page ' ?t2' is left out.", found.problems[0].what)
    assert len(found.of_kind("check")) == 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "t1,x,b",
            "t1,y,b",
            "line 3: caption_id 'y' on a page whose first row has 'x'; expected one caption_id a page",
        ),
        ("t1,x,b", "t1,x,a", "line 3: clip_id 'a' stands in line 2 already"),
        ("b.wav", "a.wav", "line 3: path 'a.wav' stands in line 2 already"),
    ],
)
def test_a_page_of_one_caption_and_different_clips(study, old, new, told):
    found = change(study, "pool.csv", old, new)
    assert [page.page_id for page in found.of_kind("task")] == ["t2"]
    assert told in str(found.problems[0])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("c1,check", "c1,checks", "kind 'checks'; expected check or qualification"),
        ("50,\n", "150,\n", "low '150'; expected a plain number 0–100"),
        (",40\n", ',"40,5"\n', "high '40,5'"),
        ("50,\n", "50,40\n", "low 50 is above high 40"),
        ("c1,check,y,d,check y", "t1,check,y,d,check y", "page 't1' stands in pool.csv too"),
        ("c1,check,y,a", "c1,check,v,a", "caption_id 'v' on a page whose first row has 'y'"),
    ],
)
def test_a_check_that_cannot_be_asked_costs_that_check(study, old, new, told):
    found = change(study, "checks.csv", old, new)
    assert told in str(found.problems[0])
    assert found.problems[0].where in ("checks.csv line 2", "checks.csv line 3")
    assert len(found.of_kind("task")) == 2
    assert len(found.of_kind("check")) < 2 or "t1" in told


def test_rows_that_are_no_rows_are_told_by_line(study):
    path = study.folder / "pool.csv"
    path.write_text(path.read_text() + 't3,x,"d,half a row\n,x,d,a dog <b>barks</b>,d.wav,,,\n')
    found = Study.read(study.folder)
    assert [problem.where for problem in found.problems] == ["pool.csv line 5", "pool.csv line 6"]
    assert len(found.of_kind("task")) == 2


def test_a_spreadsheets_way_to_write_a_table_is_read(study):
    path = study.folder / "checks.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_text().replace(",", ";").replace("\n", "\r\n").encode())
    assert Study.read(study.folder) == study


def test_too_few_checks_are_told_and_none_are_needed_where_none_are_wanted(study):
    (study.folder / "checks.csv").write_text("page,kind,caption_id,clip_id,text,path,low,high\n")
    found = Study.read(study.folder)
    assert "0 check pages; a rater is due 2" in str(found.problems[0])
    assert "0 qualification pages; expected 1" in str(found.problems[1])
    (study.folder / "checks.csv").unlink()
    with pytest.raises(DataError, match=r"checks.csv: cannot be read"):
        Study.read(study.folder)
    replace(study, settings=Settings(check_every=0, qualify=0), pages=study.pages[:2]).write()
    (study.folder / "checks.csv").unlink()
    assert Study.read(study.folder).problems == ()


@pytest.mark.case("L08")
@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ([(50, None), (None, 50)], ["50 for everything passes the check pages (2 of 2 known answers right"]),
        ([(60, None), (None, 40), (None, 40), (None, 30)], ["30 for everything passes the check pages (3 of 4"]),
        ([(60, None), (70, None), (80, None), (None, 30)], ["80 for everything passes the check pages (3 of 4"]),
        ([(60, None), (None, 40)], []),
        ([(60, None), (None, 40), (None, None)], []),
        ([(20, 30), (40, 60)], []),
    ],
)
def test_known_answers_that_one_number_gives_are_told_and_cost_nothing(study, bounds, told):
    items = tuple(Item("abcd"[at], f"{'abcd'[at]}.wav", low=low, high=high) for at, (low, high) in enumerate(bounds))
    pages = [each for each in study.pages if each.kind != "check"]
    pages += [Page(name, "check", name, f"words {name}", items) for name in ("c1", "c2")]
    replace(study, pages=tuple(pages)).write()
    found = Study.read(study.folder)
    assert len(found.pages) == len(pages)
    assert [problem.where for problem in found.problems] == ["checks.csv"] * len(told)
    for problem, what in zip(found.problems, told, strict=True):
        assert what.replace("2 of 2", "4 of 4").replace("3 of 4", "6 of 8") in problem.what
        assert "study.checks_share = 0.75" in problem.what


def test_no_cell_of_the_tables_is_a_formula_and_all_come_back(study):
    first = replace(study.pages[0], page_id="-t1", caption_id="=x", text="+1 dog", items=study.pages[0].items)
    given = replace(study, pages=(first, *study.pages[1:]))
    given.write()
    table = (study.folder / "pool.csv").read_text()
    assert not re.search(r"(^|,)[=+\-@]", table, re.MULTILINE)
    assert Study.read(study.folder).pages == given.pages


@pytest.mark.parametrize(("text", "told"), [(" ", "blank; expected"), ("a\0b", "holds NUL characters; expected")])
def test_words_that_are_none_are_told(study, text, told):
    (study.folder / "consent.md").write_text(text)
    with pytest.raises(DataError, match=told):
        Study.read(study.folder)


def test_a_share_of_nothing_asks_for_no_known_answer(study):
    found = change(study, "study.toml", "qualify_share = 0.75", "qualify_share = 0.0")
    told = [str(problem) for problem in found.problems]
    assert not [each for each in told if "qualification" in each]


def test_checks_that_nobody_is_due_are_read_where_they_are_there(study):
    (study.folder / "study.toml").write_text(
        (study.folder / "study.toml").read_text().replace("check_every = 1", "check_every = 0")
    )
    found = change(study, "study.toml", "qualify = 1", "qualify = 0")
    assert found.pages == study.pages


def test_one_rating_alone_may_be_right(study):
    found = change(study, "checks.csv", "d.wav,50,", "d.wav,50,50")
    assert [page.items[0].high for page in found.of_kind("check")] == [50.0, None]


def test_pages_without_any_known_answer_are_told(study):
    found = study
    for old, new in (("d.wav,50,", "d.wav,,"), ("a.wav,,40", "a.wav,,")):
        while old in (study.folder / "checks.csv").read_text():
            found = change(study, "checks.csv", old, new)
    assert [problem.what for problem in found.problems] == [
        f"no {kind} page has a known answer: every rater passes. Fill in `low` or `high`."
        for kind in ("qualification", "check")
    ]


def test_one_page_that_one_number_gives_is_told_by_name(study):
    change(study, "study.toml", "checks_share = 0.75", "checks_share = 0.9")
    found = change(study, "checks.csv", "c2,check,z,a,check z,a.wav,,40", "c2,check,z,a,check z,a.wav,,55")
    assert [str(problem) for problem in found.problems if "c2" in str(problem)] == [
        "checks.csv: page 'c2': 50 for everything is right. It tells nothing."
    ]
    assert len(found.of_kind("check")) == 2


def test_words_that_are_not_utf8_are_told_without_an_option_that_is_none(study):
    for file in ("pool.csv", "checks.csv", "consent.md", "instructions.md", "study.toml"):
        path = study.folder / file
        before = path.read_bytes()
        path.write_bytes(before + "# Bär".encode("cp1252"))
        with pytest.raises((DataError, ConfigError), match=r"is not utf-8\. Save it as UTF-8\.$"):
            Study.read(study.folder)
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("pool.csv", "page,caption_id,clip_id,text,path\n", "no page can be asked"),
        ("pool.csv", "", "empty; expected a header"),
        ("pool.csv", "page,caption_id,clip_id,text\nt1,x,a,b\n", "no column 'path'"),
        ("pool.csv", "page,caption_id,clip_id,text,path\nt1,x,a,b,z.wav\n", "no sound of any page is below"),
        ("consent.md", "\n", "blank; expected words for the listener"),
        ("instructions.md", "\u200b", "blank; expected words for the listener"),
    ],
)
def test_a_study_without_anything_to_ask_or_say_is_refused(study, file, text, told):
    (study.folder / file).write_text(text)
    with pytest.raises(DataError) as caught:
        Study.read(study.folder)
    assert told in str(caught.value)
    assert file in str(caught.value)


def test_no_study_is_told_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match="earmark collect pool"):
        Study.read(tmp_path)
