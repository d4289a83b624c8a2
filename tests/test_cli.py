"""The commands as people run them: in a process of their own, judged by what they print and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from worlds import RECIPE, tone_world, vector_world

from earmark import console

COMMANDS = [
    (),
    ("data",),
    ("data", "soundscapes"),
    ("data", "import"),
    ("data", "export"),
    ("data", "clotho"),
    ("data", "proxy"),
    ("data", "check"),
    ("train",),
    ("evaluate",),
    ("compare",),
    ("experiment",),
    ("score",),
    ("embed",),
    ("doctor",),
]


def earmark(*arguments: object, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command; the exit code must be `code`, and nothing may look like a crash."""
    done = subprocess.run(
        [sys.executable, "-m", "earmark", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def refused(*arguments: object) -> str:
    """The one line with which a command refuses."""
    done = earmark(*arguments, code=2)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    return lines[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a collection, a recipe and two runs."""
    folder = tmp_path_factory.mktemp("cli")
    vector_world(folder / "c")
    (folder / "recipe.toml").write_text(RECIPE)
    for seed in (0, 1):
        earmark("train", folder / "recipe.toml", "--data", folder / "c", "--out", folder / f"run{seed}",
                "--set", f"train.seed={seed}")  # fmt: skip
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_says_what_and_gives_an_example(command):
    shown = earmark(*command, "--help").stdout
    assert "Usage" in shown
    if command not in ((), ("data",)):
        assert "Example" in shown


def test_help_answers_at_once_and_loads_no_torch():
    code = "import sys; sys.argv = ['earmark', '--help']\nimport earmark.cli\nassert 'torch' not in sys.modules"
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert time.monotonic() - started < 10


def test_train_evaluate_compare(place):
    log = [json.loads(line) for line in (place / "run0" / "log.jsonl").read_text().splitlines()]
    assert len(log) == 6
    shown = earmark("evaluate", place / "run0", "--data", place / "c").stdout
    assert "small (GENERATED), split evaluation: 15 clips, 0 of them in the run's training data" in shown
    assert "Protocol: each caption is a query" in shown
    assert "Spearman ρ, pooled" in shown
    watched = earmark("evaluate", place / "run0", "--data", place / "c", "--split", "validation").stdout
    assert "also stopped training" in watched
    compared = earmark("compare", place / "run0", place / "run1", "--data", place / "c", "--split", "evaluation").stdout
    assert "p (Holm)" in compared
    assert "small (GENERATED), split evaluation" in compared


def test_json_goes_to_standard_output_or_to_a_file(place):
    printed = json.loads(earmark("evaluate", place / "run0", "--data", place / "c", "--json").stdout)
    shown = earmark("evaluate", place / "run0", "--data", place / "c", "--json", place / "out.json").stdout
    assert json.loads((place / "out.json").read_text()) == printed
    assert "mAP" in shown
    first = json.loads(earmark("evaluate", "--json", "--data", place / "c", place / "run0").stdout)
    assert first == printed
    rows = json.loads(earmark("compare", place / "run0", place / "run1", "--data", place / "c", "--json").stdout)
    assert {row["measure"] for row in rows} == {"mAP", "R@10", "ρ", "ρ within lists"}
    assert all(row["kind"] == "generated" for row in rows)


def test_trec_files_are_written(place):
    earmark("evaluate", place / "run0", "--data", place / "c", "--trec", place / "trec")
    names = {"captions.qrels", "captions.run", "ratings.qrels", "ratings.run"}
    assert {path.name for path in (place / "trec").iterdir()} == names


def test_a_missed_expectation_ends_with_1_and_says_which(place, tmp_path):
    table = """
[expected]
collection = "small"
split = "evaluation"
source = "measured"
[expected.metrics]
"text_to_audio.mAP" = { value = 2.0, tolerance = 0.1 }
"""
    (tmp_path / "recipe.toml").write_text(RECIPE + table)
    earmark("train", tmp_path / "recipe.toml", "--data", place / "c", "--out", tmp_path / "run",
            "--set", "train.max_epochs=1")  # fmt: skip
    done = earmark("evaluate", tmp_path / "run", "--data", place / "c", code=1)
    assert "[expected] missed: text_to_audio.mAP is 0." in done.stderr
    earmark("evaluate", tmp_path / "run", "--data", place / "c", "--split", "validation")  # not the split it names


def test_resume_goes_on_and_says_where(place):
    arguments = ("train", place / "recipe.toml", "--data", place / "c", "--out", place / "run0")
    assert "holds a run already" in refused(*arguments)
    assert "6 epochs" in earmark(*arguments, "--resume").stdout
    assert "another train" in refused(*arguments, "--resume", "--set", "train.seed=5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "missing.toml", "--data", "c", "--out", "r"), "missing.toml: cannot be read"),
        (("train", "recipe.toml", "--data", "nowhere", "--out", "r"), "nowhere"),
        (("train", "recipe.toml", "--data", "c", "--out", "r", "--set", "train.sed=1"), "did you mean 'seed'"),
        (("evaluate", "nowhere", "--data", "c"), "nowhere: not a run"),
        (("evaluate", "run0", "--data", "c", "--split", "evaluatoin"), "Did you mean 'evaluation'"),
        (("compare", "run0", "--data", "c"), "expected two different ones"),
        (("compare", "run0", "run0", "--data", "c"), "expected two different ones"),
        (("data", "check", "nowhere"), "nowhere"),
        (("data", "import", "nowhere.csv", "new", "--audio", ".", "--path", "file", "--text", "text"), "nowhere.csv"),
        (("data", "clotho", "new", "--from", "nowhere"), "nowhere: not a folder"),
    ],
)
def test_refusals_are_one_line_with_place_and_remedy(place, arguments, message, monkeypatch):
    monkeypatch.chdir(place)
    assert message in refused(*arguments)
    assert not (place / "r").exists()
    assert not (place / "new").exists()


def test_unknown_options_and_commands_end_with_2():
    assert "No such option" in earmark("train", "--lern", code=2).stderr
    assert "No such command" in earmark("lern", code=2).stderr


@pytest.mark.case("A33", "C09")
def test_one_bad_row_costs_itself_is_listed_and_ends_with_1(tmp_path):
    world = vector_world(tmp_path / "c")
    with (world.root / "ratings.csv").open("a") as file:
        file.write("clip0#1,clip1,140\n")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    done = earmark("train", tmp_path / "recipe.toml", "--data", world.root, "--out", tmp_path / "run",
                   "--set", "train.max_epochs=1", code=1)  # fmt: skip
    assert "rating 140; expected 0–100" in done.stderr
    assert "1 row or clip was left out" in done.stderr
    assert (tmp_path / "run" / "model.safetensors").exists()
    done = earmark("evaluate", tmp_path / "run", "--data", world.root, "--json", code=1)
    assert json.loads(done.stdout)["text_to_audio"]["queries"] == 30


def test_check_lists_problems_and_says_so_where_there_are_none(tmp_path):
    world = tone_world(tmp_path / "tones")
    assert "no problems" in earmark("data", "check", world.root).stdout
    (world.root / "3.wav").unlink()
    done = earmark("data", "check", world.root, code=1)
    assert "3.wav" in done.stderr
    assert "1 problem" in done.stderr
    rows = json.loads(earmark("data", "check", world.root, "--json", code=1).stdout)
    assert len(rows) == 1
    assert set(rows[0]) == {"where", "what"}


@pytest.mark.case("C10")
def test_import_says_what_it_made_and_what_it_left_out(tmp_path):
    world = tone_world(tmp_path / "sounds", clips=4)
    text = "file;label\n0.wav;Glocke läutet\n1.wav;drum\nmissing.wav;nothing\n2.wav;horn\n"
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    arguments = ("data", "import", tmp_path / "t.csv", tmp_path / "new", "--audio", world.root,
                 "--path", "file", "--text", "label")  # fmt: skip
    assert "is not utf-8" in refused(*arguments)
    assert not (tmp_path / "new").exists()
    done = earmark(*arguments, "--encoding", "cp1252", code=1)
    assert "3 clips" in done.stdout
    assert "missing.wav" in done.stderr


@pytest.mark.case("A30")
def test_names_that_look_like_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vector_world(tmp_path / "-c")
    assert "clips" in earmark("data", "check", "--", "-c").stdout


def test_doctor_tells_what_is_there():
    done = subprocess.run([sys.executable, "-m", "earmark", "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    for what in ("torch", "soundfile", "model all-mpnet-base-v2", "bf16", "cache folder"):
        assert what in done.stdout


def test_a_broken_pipe_is_quiet(place):
    command = f"{sys.executable} -m earmark doctor | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_special_files_and_links_are_written_through_not_replaced(place, tmp_path):
    import os

    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    earmark("evaluate", place / "run0", "--data", place / "c", "--json", tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert "mAP" in (tmp_path / "real.json").read_text()
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE, text=True)
    earmark("evaluate", place / "run0", "--data", place / "c", "--json", tmp_path / "pipe")
    assert "mAP" in reader.communicate(timeout=30)[0]
    assert (tmp_path / "pipe").is_fifo()
    done = earmark("evaluate", place / "run0", "--data", place / "c", "--json", tmp_path, code=2)
    assert "not a regular file" in done.stderr.splitlines()[-1]


def test_output_that_cannot_hold_a_letter_still_comes(place):
    import os

    done = subprocess.run(
        [sys.executable, "-m", "earmark", "evaluate", str(place / "run0"), "--data", str(place / "c")],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"mAP" in done.stdout


def test_names_do_not_steer_the_terminal(capsys):
    console.say("a\x1b[31mred\x9b\r, [bold]b[/bold]\ttab\nline")
    console.show_table(["\x1b[2J", "[red]x[/red]"], [["\x07a", "[bold]b[/bold]"]])
    shown = capsys.readouterr().out
    assert "a\\x1b[31mred\\x9b\\r, [bold]b[/bold]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert all(text in shown for text in ("\\x1b[2J", "[red]x[/red]", "\\x07a", "[bold]b[/bold]"))


COMPARED = ["run", "measure", "value", "other's", "difference", "95 % interval", "p", "p (Holm)", "n"]
OF_TWO = ["runs/a", "text_to_audio.mAP@10", "0.123", "0.231", "-0.123", "[-0.263, 0.363]", "0.001", "1", "1,229"]
SCORED = ["text", "sound", "cosine", "expected rating", "90 % interval"]
OF_ONE = ["rain on a tin roof falling " * 4, "…sounds/one/two/three/s0123.wav", "0.123", "62.1", "[20.1, 100.0]"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize(
    ("columns", "row"), [(COMPARED, OF_TWO), (SCORED, OF_ONE), (["雨の音の測定値", "a"], ["雨" * 70, "undefined"])]
)
def test_tables_break_texts_and_never_numbers(monkeypatch, capsys, width, columns, row):
    monkeypatch.setattr(console, "out", lambda: Console(width=width))
    console.show_table(columns, [row, row])
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].startswith("┏") or width < 160
    if lines[0].startswith("┏"):
        assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
        assert cell_len(lines[0]) <= width
        assert all(sum(cell in line for line in lines) >= 2 for cell in row if not console.WORD.search(cell))
    else:
        assert all("".join(text.split()) in "".join(shown.split()) for text in (*row, *columns[2:]))
    assert shown.count("…") == 2 * (row is OF_ONE)


def test_names_with_colons_stay_as_they_are(capsys):
    console.say("st:x:A :fire: `code`")
    console.complain("ex/:cat:.csv")
    console.show_table([":dog:", "n"], [[":x:", "1"]])
    shown = capsys.readouterr()
    assert "st:x:A :fire: `code`" in shown.out
    assert ":dog:" in shown.out
    assert ":x:" in shown.out
    assert "ex/:cat:.csv" in shown.err
