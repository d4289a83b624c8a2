"""A study and its report: which pairs, which targets, what is said of what is missing, what stands in the files."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from earmark.analyse import report
from earmark.analyse.figures import figures, strongest
from earmark.analyse.study import POOLED, Settings, Study, study
from earmark.config import read_toml
from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import ConfigError, DataError
from earmark.relevance import Rating

NGRAM = "captions.language_model=ngram"
TEXTS = [
    "a dog barks",
    "heavy rain falls on a tin roof",
    "a loud car passes by on the wet road at night",
    "birds sing",
    "an old wooden door creaks and slams shut",
    "two people talk quietly in a large hall",
]


def rated(root: Path, *, clips: int = 24, raters: int = 3, seed: int = 0, **about) -> Collection:
    """Captions of known texts, each rated with its own clip and with another, the better the longer they are."""
    rng = np.random.default_rng(seed)
    made, captions, ratings = [], [], []
    for at in range(clips):
        split = "development" if at < clips // 2 else "validation"
        made.append(Clip(f"c{at}", "", split, more={"events": str(at % 3), "odd": "x", "duration_s": f"{3 + at % 5}"}))
        text = f"{TEXTS[at % len(TEXTS)]} {at}"
        captions.append(Caption(f"t{at}", f"c{at}", text, more={"partial": "yes" if at % 4 == 0 else "no"}))
    for at in range(clips):
        words = len(captions[at].text.split())
        for rater in range(raters):
            value = float(np.clip(30 + 5 * words + rng.normal(0, 4), 0, 100))
            ratings.append(Rating(f"t{at}", f"c{at}", value, "TP", f"r{rater}", played_s=1.0 + at))
        ratings.append(Rating(f"t{at}", f"c{(at + 1) % clips}", 5.0, "TN", "r0", played_s=2.0))
        ratings.append(Rating(f"t{at}", f"c{at}", 100.0, "anchor", "r0"))
    collection = Collection(root, made, captions, ratings, **{"name": "small", **about})
    collection.write()
    return Collection.read(root)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Collection:
    return rated(tmp_path_factory.mktemp("study") / "c")


@pytest.fixture(scope="module")
def found(small) -> Study:
    return study(small, Settings.of([NGRAM]))


def of(study: Study, feature: str, target: str, scope: str = POOLED):
    (scope_found,) = [each for each in study.scopes if each.name == scope]
    return next(each for each in scope_found.correlations if (each.feature, each.target) == (feature, target))


# Which pairs, and what they are held against


def test_own_pairs_without_checks_by_default_split_by_split_and_pooled(found):
    assert [(scope.name, scope.pairs) for scope in found.scopes] == [
        ("development", 12),
        ("validation", 12),
        (POOLED, 24),
    ]
    assert all(pair.is_own and pair.group == "TP" and len(pair.ratings) == 3 for pair in found.pairs)
    assert "in the study: 24 of 48 rated pairs (captions with their own clips)" in found.notes
    assert "left out: 24 of 120 ratings, of group anchor" in found.notes


def test_targets_are_mean_deviation_and_time_played(found):
    ratings = [rating.rating for rating in found.pairs[3].ratings]
    assert found.targets["HR"][3] == pytest.approx(np.mean(ratings))
    assert found.targets["SD-HR"][3] == pytest.approx(np.std(ratings, ddof=1))
    assert found.targets["APT"][3] == 4
    assert set(found.targets) == {"HR", "SD-HR", "APT"}


def test_numbers_equal_scipys_and_the_planted_cause_is_found(found):
    words, hr = found.features["words"], found.targets["HR"]
    each = of(found, "words", "HR")
    assert (each.r, each.p) == pytest.approx(tuple(pearsonr(words, hr)), abs=1e-12)
    assert (each.rho, each.rho_p) == pytest.approx(tuple(spearmanr(words, hr)), abs=1e-12)
    assert each.r > 0.9
    assert each.p_holm < 0.001
    assert of(found, "duration_s", "HR").p_holm > 0.05
    assert each.controls == ("duration_s",)


def test_all_pairs_and_conditions_on_every_table(small):
    assert len(study(small, Settings.of([NGRAM, "pairs=all"])).pairs) == 48
    partial = study(small, Settings.of([NGRAM, 'where=["captions.partial=yes", "clips.split=validation"]']))
    assert [pair.caption.caption_id for pair in partial.pairs] == ["t12", "t16", "t20"]
    assert [scope.name for scope in partial.scopes] == ["validation"]
    of_one = study(small, Settings.of([NGRAM, 'where=["ratings.rater_id=r1"]']))
    assert {len(pair.ratings) for pair in of_one.pairs} == {1}
    assert "SD-HR" not in of_one.targets
    assert of_one.scopes[-1].agreement["all ratings"].raters == 1


def test_columns_are_features_or_targets(small):
    sets = [NGRAM, 'columns=["captions.partial", "clips.odd"]', 'targets=["clips.events"]']
    with_columns = study(small, Settings.of(sets))
    assert with_columns.features["captions.partial"].tolist()[:5] == [1, 0, 0, 0, 1]
    assert np.isnan(with_columns.features["clips.odd"]).all()
    assert "clips.odd: 24 of 24 cells are neither a number nor yes or no" in with_columns.notes
    assert with_columns.targets["clips.events"].tolist()[:4] == [0, 1, 2, 0]
    assert of(with_columns, "captions.partial", "clips.events").n == 24


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (['columns=["clips.evnts"]'], "column 'clips.evnts': clips.csv has none; it has clip_id, split, group, events"),
        (['columns=["events"]'], "column 'events': expected clips.COLUMN or captions.COLUMN or ratings.COLUMN"),
        (['columns=["ratings.group"]'], "a pair has several ratings"),
        (['where=["captions.partial"]'], "expected TABLE.COLUMN=VALUE"),
        (["pears=all"], "unknown key 'pears'; did you mean 'pairs'"),
        (["pairs=some"], 'expected "own" or "all"'),
        (["captions.words=letters"], "captions.words"),
        (["reference=nowhere"], "neither a split (development, validation) nor a collection's folder"),
        (["captions=3"], "expected a table of keys"),
    ],
)
def test_a_wrong_setting_is_one_line(small, sets, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        study(small, Settings.of([NGRAM, *sets] if sets != ["captions=3"] else sets))


def test_no_pair_left_is_refused(small, tmp_path):
    with pytest.raises(
        DataError, match=r"48 pairs with one|none of them asked for|0 pairs with captions.partial=maybe"
    ):
        study(small, Settings.of([NGRAM, 'where=["captions.partial=maybe"]']))
    unrated = Collection(tmp_path / "c", [Clip("a", "", "development")], [Caption("t", "a", "a dog")])
    unrated.write()
    with pytest.raises(DataError, match="0 ratings"):
        study(unrated, Settings.of([NGRAM]))


def test_another_collection_is_the_reference(small, tmp_path):
    other = Collection(
        tmp_path / "other",
        [Clip("a", "", "x")],
        [Caption(f"{k}", "a", text) for k, text in enumerate(("a dog", "dog"))],
    )
    other.write()
    of_other = study(small, Settings.of([NGRAM, f"reference={tmp_path / 'other'}"]))
    texts = [pair.caption.text.split() for pair in of_other.pairs]
    assert of_other.features["frequent_words"].tolist() == [sum(w in ("a", "dog") for w in words) for words in texts]


# The machine


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    from worlds import RECIPE, vector_world

    from earmark.learn.recipe import Recipe
    from earmark.learn.train import train

    root = tmp_path_factory.mktemp("machine")
    collection = vector_world(root / "c")
    (root / "recipe.toml").write_text(RECIPE)
    train(Recipe.read(root / "recipe.toml"), collection, root / "run")
    return collection, root / "run"


def test_machine_ratings_are_cosines_and_distances_theirs(world):
    from earmark.model.dual_encoder import DualEncoder

    collection, run = world
    of_run = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
    clips, captions, _ = DualEncoder.load(run).embed_collection(collection, collection.clips, collection.captions)
    pair = of_run.pairs[5]
    cosine = float((captions.rows([pair.caption.caption_id]) @ clips.rows([pair.clip.clip_id]).T)[0, 0])
    assert of_run.targets["MR"][5] == pytest.approx(cosine, abs=1e-6)
    hr = of_run.targets["HR"][5] / 100
    assert of_run.targets["D(H, M)"][5] == pytest.approx(abs(cosine - hr), abs=1e-6)
    assert of_run.targets["D signed"][5] == pytest.approx(cosine - hr, abs=1e-6)
    assert "D fitted" not in of_run.targets
    assert any("no calibration" in note for note in of_run.notes)
    machine = of_run.scopes[-1].machine
    assert machine is not None
    assert machine.spearman == pytest.approx(spearmanr(of_run.targets["MR"], of_run.targets["HR"]).statistic)
    assert machine.pairs == len(of_run.pairs)


def test_a_calibrated_run_is_also_held_against_people_by_the_rating_it_expects(world):
    from earmark.analyse.calibrate import Calibration, fit

    collection, run = world
    before = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
    ids = [pair.caption.caption_id for pair in before.pairs]
    fit(before.targets["MR"], before.targets["HR"], ids).write(run)
    try:
        after = study(collection, Settings.of([NGRAM, "pairs=all"]), run=run)
        expected = Calibration.read(run).rating(after.targets["MR"])[0]
        np.testing.assert_allclose(after.targets["D fitted"], abs(expected - after.targets["HR"]) / 100)
        np.testing.assert_allclose(after.targets["D fitted signed"], (expected - after.targets["HR"]) / 100)
    finally:
        (run / "calibration.json").unlink()


# The report


class Links(HTMLParser):
    """What a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_report_is_whole(found, tmp_path):
    written = report.write_report(found, tmp_path / "out")
    assert sorted(path.name for path in written) == ["correlations.csv", "features.csv", "report.html", "report.md"]
    page = (tmp_path / "out" / "report.html").read_text()
    links = Links()
    links.feed(page)
    assert links.found
    assert all(link.startswith("data:image/png;base64,") for link in links.found)
    assert "script" not in page
    markdown = (tmp_path / "out" / "report.md").read_text()
    for picture in re.findall(r"\]\((.+?)\)", markdown):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    row = next(line for line in markdown.splitlines() if line.startswith("| # words"))
    assert row.split("|")[2].strip() == f"{of(found, 'words', 'HR').r:.3f}**†"
    assert "| audio duration | n.s. |" in markdown


def test_features_csv_has_a_row_a_pair_with_its_ids(found, tmp_path):
    report.write_report(found, tmp_path)
    rows = list(csv.DictReader((tmp_path / "features.csv").read_text().splitlines()))
    assert len(rows) == 24
    assert rows[3]["caption_id"] == "t3"
    assert float(rows[3]["words"]) == found.features["words"][3]
    assert float(rows[3]["HR"]) == pytest.approx(found.targets["HR"][3])
    assert rows[3]["e_class"] == ""
    correlated = list(csv.DictReader((tmp_path / "correlations.csv").read_text().splitlines()))
    one = next(r for r in correlated if (r["scope"], r["feature"], r["target"]) == (POOLED, "words", "HR"))
    assert float(one["r"]) == of(found, "words", "HR").r


def test_json_says_everything_and_no_nan(found):
    text = json.dumps(report.as_json(found), allow_nan=False)
    told = json.loads(text)
    assert [scope["scope"] for scope in told["scopes"]] == ["development", "validation", POOLED]
    assert told["kind"] == "recorded"
    assert told["scopes"][-1]["agreement"]["in the study"]["ratings"] == 72
    assert told["scopes"][-1]["agreement"]["all ratings"]["ratings"] == 120


def test_hostile_names_are_text_in_the_page_and_one_row_in_markdown(tmp_path):
    evil = rated(tmp_path / "c", name='<script>alert("x")</script> | a\nb')
    found = study(evil, Settings.of([NGRAM, 'columns=["clips.events"]']))
    report.write_report(found, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "report.md" in [path.name for path in (tmp_path / "out").iterdir()]


@pytest.mark.parametrize("kind", ["generated", "proxy"])
def test_kinds_that_are_no_results_on_recorded_sound_are_shouted(tmp_path, kind):
    made = study(rated(tmp_path / "c", kind=kind), Settings.of([NGRAM]))
    assert f"small ({kind.upper()})" in report.markdown(made, {})
    assert any(note.startswith(f"{kind.upper()} data") for note in report.notes(made))


def test_the_papers_table_stands_beside_a_study_of_clotho_alone(tmp_path, found):
    assert "Table 4" not in report.markdown(found, {})
    clotho = study(rated(tmp_path / "c", name="clotho"), Settings.of([NGRAM]))
    assert "| # words | 0.130** | n.s. | 0.108** | 0.227** |" in report.markdown(clotho, {})


# Odd data


def test_constant_ratings_a_single_rater_and_odd_captions_are_undefined_or_a_value(tmp_path):
    clips = [Clip(f"c{k}", "", "development") for k in range(4)]
    texts = ["🎉🎉🎉", "word " * 500, "雨が降る", "a"]
    captions = [Caption(f"t{k}", f"c{k}", text) for k, text in enumerate(texts)]
    ratings = [Rating(f"t{k}", f"c{k}", 50.0, rater_id="only") for k in range(4)]
    odd = Collection(tmp_path / "c", clips, captions, ratings)
    odd.write()
    found = study(odd, Settings.of([NGRAM]))
    assert np.isfinite(found.features["words"]).all()
    assert all(np.isnan(each.r) for each in found.scopes[-1].correlations)
    assert strongest(found.scopes[-1].correlations) == []
    report.write_report(found, tmp_path / "out")
    assert "undefined" in (tmp_path / "out" / "report.md").read_text()
    json.dumps(report.as_json(found), allow_nan=False)


def test_one_pair_is_a_study_too(tmp_path):
    one = Collection(
        tmp_path / "c", [Clip("c", "", "x")], [Caption("t", "c", "a dog")], [Rating("t", "c", 70.0, rater_id="a")]
    )
    one.write()
    found = study(one, Settings.of([NGRAM]))
    assert set(figures(found)) == {"heatmap", "ratings"}
    assert found.targets["HR"].tolist() == [70]


# The command


def command(*arguments) -> tuple[int, str]:
    from typer.testing import CliRunner

    from earmark.cli import app

    done = CliRunner().invoke(app, ["analyse", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_command_prints_the_table_and_names_its_files(small, tmp_path):
    code, said = command(small.root, "--out", tmp_path / "out", "--set", NGRAM)
    assert code == 0
    assert "small (recorded), pooled: 24 rated pairs, 24 captions" in said
    assert "How far raters agree" in said
    assert "report.html, report.md, features.csv, correlations.csv" in said
    assert read_toml(small.root / "collection.toml")["name"] == "small"


def test_the_command_prints_json_alone(small, tmp_path):
    code, said = command(small.root, "--out", tmp_path / "out", "--set", NGRAM, "--json", "-")
    assert code == 0
    assert json.loads(said[said.index("{") :])["collection"] == "small"


# Known causes


@pytest.fixture(scope="module")
def soundscapes(tmp_path_factory) -> Collection:
    from earmark.data.soundscapes import generate

    return generate(tmp_path_factory.mktemp("known") / "c", clips=300, seed=0)


def test_planted_causes_are_found(soundscapes):
    sets = [NGRAM, "clips.tagger=none", 'columns=["captions.partial", "clips.event_count"]']
    found = study(soundscapes, Settings.of(sets))
    holds = {(c.feature, c.target): c.r for c in found.scopes[-1].correlations if c.p_holm < 0.05}
    assert holds["captions.partial", "HR"] < -0.3  # what is left unsaid lowers the rating
    assert holds["duration_s", "APT"] > 0.5  # raters play a share of the sound


def test_absent_causes_are_not_found(soundscapes):
    """The captions that tell all are rated by nothing but the raters' own bias, scale and noise."""
    sets = [NGRAM, "clips.tagger=none", 'columns=["clips.event_count"]', 'where=["captions.partial=no"]']
    found = study(soundscapes, Settings.of(sets))
    assert found.scopes[-1].pairs > 60
    assert not [c for c in found.scopes[-1].correlations if c.target in ("HR", "SD-HR") and c.p_holm < 0.05]


def test_more_events_are_heard_as_more_classes(soundscapes):
    from earmark.model.pretrained import find

    try:
        find("yamnet")
    except DataError as error:
        pytest.skip(str(error))
    found = study(soundscapes, Settings.of([NGRAM, 'targets=["clips.event_count"]']))
    each = of(found, "e_class", "clips.event_count")
    assert each.r > 0.1
    assert each.p < 0.05
