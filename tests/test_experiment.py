"""Grids: what they say, that they are trained, skipped, killed and gone on with, and what the tables tell."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from worlds import RECIPE, vector_world

from earmark import Collection
from earmark.data.splits import with_monitor_split
from earmark.errors import ConfigError, DataError
from earmark.learn.comparison import as_json, compared, markdown, rows, write_tables
from earmark.learn.experiment import experiment, texts_of
from earmark.learn.grid import Grid, folder_of

GRID = """
base = "joint.toml"
seeds = [0, 1]

[[run]]
name = "joint"
against = "InfoNCE"

[[run]]
name = "InfoNCE"
set = { train.max_epochs = 2, "objective.1.weight" = 0 }
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return vector_world(tmp_path_factory.mktemp("world") / "c")


@pytest.fixture
def grid(tmp_path) -> Path:
    (tmp_path / "joint.toml").write_text(RECIPE.replace("max_epochs = 6", "max_epochs = 3"))
    return written(tmp_path, GRID)


def written(folder: Path, text: str) -> Path:
    (folder / "grid.toml").write_text(text)
    return folder / "grid.toml"


# What a grid says


def test_runs_are_the_base_with_what_they_set(grid, tmp_path):
    found = Grid.read(grid)
    joint, infonce = found.runs
    assert found.recipe(joint, 1, tmp_path).train.seed == 1
    recipe = found.recipe(infonce, 0, tmp_path)
    assert recipe.train.max_epochs == 2
    assert [each.weight for each in recipe.objectives] == [0.7, 0]
    assert recipe.expected is None


def test_a_list_that_is_set_takes_the_place_of_the_whole(grid, tmp_path):
    text = GRID + '[[run]]\nname = "alone"\nset = { objective = [{ loss = "listnet", lists = 4 }] }\n'
    found = Grid.read(written(tmp_path, text))
    assert [each.lists for each in found.recipe(found.runs[2], 0, tmp_path).objectives] == [4]


def test_what_varies_becomes_a_run_for_every_combination(grid, tmp_path):
    text = 'base = "joint.toml"\nseeds = [0]\n[[run]]\nname = "a"\nset = { train.max_epochs = 1 }\n'
    text += 'vary = { "train.lr" = [0.1, 0.2], "objective.0.weight" = [0.5], "objective.1.weight" = [0.5, 0.7] }\n'
    found = Grid.read(written(tmp_path, text))
    names = [run.name for run in found.runs]
    assert len(names) == 4
    assert names[0] == "a, lr 0.1, objective.0.weight 0.5, objective.1.weight 0.5"
    recipes = [found.recipe(run, 0, tmp_path) for run in found.runs]
    assert [(each.train.lr, each.objectives[1].weight) for each in recipes] == [
        (0.1, 0.5),
        (0.1, 0.7),
        (0.2, 0.5),
        (0.2, 0.7),
    ]
    assert {each.train.max_epochs for each in recipes} == {1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = [0, 1]", "seeds = [0, 0]"), "expected each once"),
        (("seeds = [0, 1]", "seeds = []"), "expected whole numbers"),
        (("seeds = [0, 1]", "seeds = [-1]"), "expected whole numbers"),
        (("seeds = [0, 1]", "sedes = [0]"), "did you mean 'seeds'"),
        (('against = "InfoNCE"', 'against = "InfoNCEE"'), "expected another run"),
        (('against = "InfoNCE"', 'agianst = "InfoNCE"'), "did you mean 'against'"),
        (('name = "InfoNCE"', 'name = "joint"'), "stands twice"),
        (('name = "InfoNCE"', 'name = "JOINT"'), "stands twice"),
        (('name = "InfoNCE"', 'name = ""'), "no name"),
        (('base = "joint.toml"', ""), "no base"),
        (('base = "joint.toml"', 'base = "none.toml"'), "none.toml: cannot be read"),
        (('against = "InfoNCE"', "published = { mAP = 0.1 }"), "there is no table"),
        (("train.max_epochs = 2", "train.max_epoch = 2"), "did you mean 'max_epochs'"),
        (('"objective.1.weight" = 0', '"objective.5.weight" = 0'), "not a place in a list"),
        (("set = {", "vary = {"), "expected a list of values"),
        (("train.max_epochs = 2", "train.seed = 2"), "which the grid's seeds are for"),
        (('name = "InfoNCE"', 'name = "%s"' % ("x" * 200)), "Shorten its name|expected another run"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_is_trained(world, grid, tmp_path, change, message):
    written(tmp_path, GRID.replace(*change))
    with pytest.raises((ConfigError, DataError), match=message) as refused:
        experiment(Grid.read(grid), world, tmp_path / "out", split="validation")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("published", "message"),
    [
        ('[published]\nsource = "s"\n', "published: no collection; expected a text"),
        (
            '[published]\nsource = "s"\ncollection = "c"\nsplit = "s"\nqueries = "q"\n',
            "did you mean 'text_to_audio.mAP'",
        ),
    ],
)
def test_published_numbers_need_their_source_and_known_names(grid, tmp_path, published, message):
    text = GRID.replace('against = "InfoNCE"', "published = { text_to_audio.map = 0.1 }") + published
    with pytest.raises(ConfigError, match=message):
        Grid.read(written(tmp_path, text))


def test_a_mistyped_teacher_is_told_before_anything_is_trained(world, grid, tmp_path):
    run = '[[run]]\nname = "taught"\nset = { objective = [{ loss = "listnet", relevance = "teacher:jiont" }] }\n'
    with pytest.raises(ConfigError, match="no such teacher; did you mean 'joint'"):
        experiment(Grid.read(written(tmp_path, GRID + run)), world, tmp_path / "out", split="validation")
    assert not (tmp_path / "out").exists()


def test_a_slip_of_a_billion_runs_is_refused_at_once(grid, tmp_path):
    values = ", ".join(f'"train.k{n}" = {list(range(10))}' for n in range(9))
    with pytest.raises(ConfigError, match="vary asks for 1,000,000,000 runs"):
        Grid.read(written(tmp_path, GRID.replace('against = "InfoNCE"', f"vary = {{ {values} }}")))


def test_a_splits_name_leads_nowhere_else(world, grid, tmp_path):
    shutil.copytree(world.root, tmp_path / "c")
    table = (tmp_path / "c" / "clips.csv").read_text()
    (tmp_path / "c" / "clips.csv").write_text(table.replace(",evaluation", ",../../../../evil"))
    (tmp_path / "joint.toml").write_text(RECIPE.replace("max_epochs = 6", "max_epochs = 1"))
    text = GRID.replace("[0, 1]", "[0]").replace("train.max_epochs = 2", "train.max_epochs = 1")
    found = experiment(
        Grid.read(written(tmp_path, text)),
        Collection.read(tmp_path / "c"),
        tmp_path / "a" / "out",
        split="../../../../evil",
    )
    assert sorted(found.evaluations) == ["InfoNCE", "joint"]
    assert [path.name for path in tmp_path.rglob("*evil*")] == ["evaluation-evil.npz"] * 2


def test_a_grid_without_required_keys_is_refused(grid, tmp_path):
    with pytest.raises(ConfigError, match=r"no \[\[run\]\]"):
        Grid.read(written(tmp_path, 'base = "joint.toml"\nseeds = [0]\n'))
    with pytest.raises(ConfigError, match="seeds"):
        Grid.read(written(tmp_path, GRID.replace("seeds = [0, 1]\n", "")))


def test_the_grids_recipes_in_the_repository_are_sound(tmp_path):
    folder = Path(__file__).parent.parent / "recipes"
    grids = [path for path in folder.glob("*.toml") if "[[run]]" in path.read_text()]
    assert len(grids) >= 4
    for path in grids:
        found = Grid.read(path)
        for run in found.runs:
            found.recipe(run, found.seeds[0], tmp_path)


# What comes of it


@pytest.fixture(scope="module")
def done(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    (folder / "joint.toml").write_text(RECIPE.replace("max_epochs = 6", "max_epochs = 3"))
    told = []
    path = written(folder, GRID)
    results = experiment(Grid.read(path), world, folder / "out", split="validation", jobs=2, report=told.append)
    return path, results, told


def test_every_run_is_trained_measured_and_told(world, done, tmp_path):
    path, results, told = done
    assert len(told) == 4
    assert {name: sorted(each) for name, each in results.evaluations.items()} == {"joint": [0, 1], "InfoNCE": [0, 1]}
    from earmark.learn.measured import evaluate_run

    folder = folder_of(path.parent / "out", results.grid.runs[0], 1)
    assert evaluate_run(folder, world, "validation")[0].numbers() == results.numbers["joint"][1]


def test_what_is_done_is_skipped(world, done):
    path, results, _ = done
    told = []
    again = experiment(Grid.read(path), world, path.parent / "out", split="validation", report=told.append)
    assert told == []
    assert again.numbers == results.numbers
    assert again.stopped == results.stopped == ["joint", "InfoNCE"]


def test_another_split_is_measured_without_training_again(world, done):
    path, _, _ = done
    before = {file: file.stat().st_mtime_ns for file in path.parent.rglob("model.safetensors")}
    told = []
    found = experiment(Grid.read(path), world, path.parent / "out", split="evaluation", report=told.append)
    assert len(told) == 4
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert found.stopped == []


def test_a_run_that_another_grid_began_is_told_and_the_others_go_on(world, done, tmp_path):
    path, _, _ = done
    other = path.parent / "other.toml"
    other.write_text(GRID.replace("train.max_epochs = 2", "train.max_epochs = 1"))
    found = experiment(Grid.read(other), world, path.parent / "out", split="validation")
    assert [problem.where for problem in found.problems] == ["InfoNCE, seed 0", "InfoNCE, seed 1"]
    assert "another train" in found.problems[0].what
    assert sorted(found.evaluations) == ["joint"]
    text = markdown(compared(found))
    assert "Not all seeds have a result: InfoNCE." in text


def test_the_tables_tell_what_they_are_numbers_of(done, tmp_path):
    _, results, _ = done
    found = compared(results)
    text = markdown(found)
    assert "small (GENERATED), split validation" in text
    assert "30 queries against 15 clips" in text
    assert "This split also stopped the training of every run: no test result." in text
    mean = np.mean([numbers["text_to_audio"]["mAP"] for numbers in results.numbers["joint"].values()])
    row = next(line for line in text.splitlines() if line.startswith("| joint | 2 |"))
    assert f"{mean:.3f}".removeprefix("0") in row
    assert "joint − InfoNCE" in text
    write_tables(found, tmp_path)
    assert (tmp_path / "tables.md").read_text() == text
    table = list(csv.DictReader((tmp_path / "tables.csv").read_text().splitlines()))
    assert len(table) == len(list(rows(found)))
    assert {row["run"] for row in table} == {"joint", "InfoNCE"}
    read = json.loads((tmp_path / "tables.json").read_text())
    assert read == json.loads(json.dumps(as_json(found)))
    assert read["runs"]["joint"]["text_to_audio.mAP"]["mean"] == pytest.approx(mean)
    differing = next(each for each in read["differences"] if each["measure"] == "text_to_audio.mAP")
    assert differing["difference"] == pytest.approx(np.mean(differing["values"]))


def test_published_numbers_stand_beside_the_same_queries_only(world, done, grid, tmp_path):
    _, results, _ = done
    text = GRID.replace('against = "InfoNCE"', 'published = { "text_to_audio.mAP" = 0.123 }')
    about = '[published]\nsource = "a paper"\ncollection = "small"\nsplit = "validation"\nqueries = "{}"\n'

    def shown(queries: str, kind: str) -> str:
        results.grid = Grid.read(written(tmp_path, text + about.format(queries)))
        results.collection = Collection(world.root, world.clips, world.captions, world.ratings, "small", kind)
        return markdown(compared(results))

    right = texts_of(world, "validation")
    assert "[.123]" in shown(right, "recorded")
    assert "In brackets: a paper" in shown(right, "recorded")
    assert "[.123]" not in shown(right, "proxy")
    assert "Published numbers are left out: they are of small (recorded)" in shown(right, "proxy")
    assert "captions are not those" in shown("0" * 64, "recorded")


def test_a_grid_without_any_result_is_refused(world, grid, tmp_path):
    text = GRID.replace("[[run]]", '[[run]]\nset = { "train.lr" = 1e30 }\n', 1).split('[[run]]\nname = "InfoNCE"')[0]
    found = experiment(
        Grid.read(written(tmp_path, text.replace('against = "InfoNCE"', ""))),
        world,
        tmp_path / "out",
        split="validation",
    )
    assert len(found.problems) == 2
    with pytest.raises(DataError, match=r"no run has a result\. The first: joint, seed 0"):
        compared(found)


def test_each_run_can_be_measured_on_the_tenth_that_it_kept_apart(world, grid, tmp_path):
    text = GRID.replace("train.max_epochs = 2", 'train.max_epochs = 1, train.monitor_split = "monitor"')
    text = text.replace(
        'against = "InfoNCE"', 'against = "InfoNCE"\nset = { train.max_epochs = 1, train.monitor_split = "monitor" }'
    )
    found = experiment(Grid.read(written(tmp_path, text)), world, tmp_path / "out", split="monitor")
    for seed, each in found.evaluations["joint"].items():
        apart = with_monitor_split(world, "monitor", seed)[0].gallery("monitor")
        assert sorted(each.audio_to_text.queries) == sorted(clip.clip_id for clip in apart)
    shown = compared(found)
    assert "split monitor" in markdown(shown)
    assert "Each seed keeps a tenth of development apart for itself" in markdown(shown)
    (pair,) = shown.compared
    assert len(pair.found[0].values) == 2
    assert np.isnan(pair.found[0].over_all.interval.low)


COMMAND = [sys.executable, "-m", "earmark", "experiment"]


def is_free(lock: Path) -> bool:
    import fcntl

    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_killed_command_leaves_no_process_and_goes_on(world, grid, tmp_path):
    written(tmp_path, GRID.replace("train.max_epochs = 2", "train.max_epochs = 3"))
    arguments = [*COMMAND, str(grid), "--data", str(world.root), "--out", str(tmp_path / "out"), "--jobs", "2"]
    arguments += ["--split", "validation"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").rglob("log.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    locks = list((tmp_path / "out" / "runs").rglob(".lock"))
    assert locks
    while not all(map(is_free, locks)) and time.monotonic() < deadline:  # what it started ends with it
        time.sleep(0.1)
    assert all(map(is_free, locks))
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tables.md" in done.stdout
    whole = experiment(Grid.read(grid), world, tmp_path / "whole", split="validation", jobs=2)
    read = json.loads((tmp_path / "out" / "tables.json").read_text())
    for name, of_seed in whole.numbers.items():
        expected = [numbers["text_to_audio"]["mAP"] for numbers in of_seed.values()]
        assert read["runs"][name]["text_to_audio.mAP"]["values"] == expected


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="no pgrep to find the processes by")
@pytest.mark.parametrize("interrupted", [True, False])
def test_ctrl_c_and_a_process_that_dies_end_it_at_once_and_say_so(world, grid, tmp_path, interrupted):
    (tmp_path / "joint.toml").write_text(RECIPE.replace("max_epochs = 6", "max_epochs = 10000\nstop_patience = 10000"))
    written(tmp_path, 'base = "joint.toml"\nseeds = [0, 1]\n[[run]]\nname = "long"\n')
    arguments = [*COMMAND, str(grid), "--data", str(world.root), "--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen([*arguments, "--split", "validation"], stderr=subprocess.PIPE, text=True)
    while len(list((tmp_path / "out").rglob("log.jsonl"))) < 2 and process.poll() is None:
        time.sleep(0.02)
    if interrupted:
        process.send_signal(signal.SIGINT)
    else:
        listed = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "spawn_main"], capture_output=True, text=True)
        os.kill(int(listed.stdout.split()[0]), signal.SIGKILL)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if interrupted else 2)
    assert "Traceback" not in told
    assert interrupted or "a process that trained a run died" in told.splitlines()[-1]


def test_a_wrong_grid_ends_the_command_with_2_in_one_line(world, grid, tmp_path):
    written(tmp_path, GRID.replace('InfoNCE"\n\n', 'nobody"\n\n'))
    arguments = [*COMMAND, str(grid), "--data", str(world.root), "--out", str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "expected another run" in done.stderr


def test_a_teacher_is_a_run_of_the_grid_all_its_seeds_or_the_same_one(grid, tmp_path):
    run = '[[run]]\nname = "%s"\nset = { objective = [{ loss = "listnet", relevance = "teacher:%s" }] }\n'
    text = GRID + run % ("taught", "joint") + run % ("self", "joint@seed")
    found = Grid.read(written(tmp_path, text))
    taught, own = found.runs[2:]
    out = tmp_path / "out"
    folders = [str(folder_of(out, found.runs[0], seed)) for seed in (0, 1)]
    assert found.recipe(taught, 1, out).objectives[0].teachers == tuple(folders)
    assert found.recipe(own, 1, out).objectives[0].teachers == (folders[1],)
    assert [run.name for run in found.teachers(taught)] == ["joint"]
    assert found.teachers(found.runs[0]) == []


def test_teachers_come_before_those_that_they_teach(world, grid, tmp_path):
    taught = '[[run]]\nname = "taught"\nagainst = "joint"\nset = { objective = [{ loss = "listnet", batch = 8, '
    taught += 'relevance = "teacher:joint", target = "softmax", target_temperature = 0.05 }], train.max_epochs = 2 }\n'
    told = []
    grid = written(tmp_path, GRID.replace("[[run]]", taught + "\n[[run]]", 1))
    results = experiment(Grid.read(grid), world, tmp_path / "out", split="validation", jobs=2, report=told.append)
    assert results.problems == []
    assert {line.partition(",")[0] for line in told[-2:]} == {"taught"}


def test_a_teacher_that_was_trained_again_teaches_again(world, grid, tmp_path):
    taught = '[[run]]\nname = "taught"\nset = { objective = [{ loss = "listnet", relevance = "teacher:joint" }], '
    taught += "train.max_epochs = 1 }\n"
    found = Grid.read(written(tmp_path, GRID.replace("[0, 1]", "[0]") + taught))
    experiment(found, world, tmp_path / "out", split="validation")
    shutil.rmtree(tmp_path / "out" / "runs" / "joint")
    changed = GRID.replace("[0, 1]", "[0]").replace('against = "InfoNCE"', "set = { train.lr = 0.01 }")
    found = Grid.read(written(tmp_path, changed + taught))
    again = experiment(found, world, tmp_path / "out", split="validation")
    assert [problem.where for problem in again.problems] == ["taught, seed 0"]
    assert "another teacher" in again.problems[0].what
    assert sorted(again.evaluations) == ["InfoNCE", "joint"]


def test_runs_of_other_queries_are_not_compared_and_cost_nothing_else(world, grid, tmp_path):
    odd = Collection.read(world.root)
    alone = odd.gallery("validation")[0].clip_id
    odd.captions = [c for c in odd.captions if c.caption_id != f"{alone}#2"]
    shutil.copytree(world.root, tmp_path / "c")
    odd.write(tmp_path / "c")
    own = '[[run]]\nname = "own"\nset = { model.dim = 12, audio.encoder = "own-captions", audio.hidden = 0, '
    own += 'train.max_epochs = 0, objective = [{ loss = "infonce" }] }\n'
    text = GRID.replace('against = "InfoNCE"', 'against = "own"').replace("[0, 1]", "[0]") + own
    found = experiment(
        Grid.read(written(tmp_path, text)), Collection.read(tmp_path / "c"), tmp_path / "out", split="validation"
    )
    assert any("1 different caption" in problem.what for problem in found.problems)
    shown = compared(found)
    assert shown.compared == []
    assert any(problem.where == "joint − own" for problem in found.problems)
    assert "own: 28 queries against 14 clips" in markdown(shown)
    told_again = experiment(Grid.read(grid), Collection.read(tmp_path / "c"), tmp_path / "out", split="validation")
    assert [each for each in told_again.problems if "1 different" in each.what]


@pytest.mark.parametrize("setting", ["", 'train.monitor_split = "monitor", train.monitor = "last", '])
def test_a_tenth_that_was_not_kept_apart_is_not_measured(world, grid, tmp_path, setting):
    text = GRID.replace("train.max_epochs = 2", setting + "train.max_epochs = 2")
    with pytest.raises(ConfigError, match="keeps no tenth of development apart"):
        experiment(Grid.read(written(tmp_path, text)), world, tmp_path / "out", split="monitor")


def test_an_ensemble_of_other_seeds_may_not_teach_what_the_tenth_measures(world, grid, tmp_path):
    text = GRID.replace("train.max_epochs = 2", 'train.max_epochs = 2, train.monitor_split = "monitor"')
    text = text.replace('against = "InfoNCE"', 'set = { train.monitor_split = "monitor" }')
    text += '[[run]]\nname = "t"\nset = { objective = [{ loss = "listnet", relevance = "teacher:joint" }], '
    text += 'train.monitor_split = "monitor" }\n'
    with pytest.raises(ConfigError, match="teachers of other seeds"):
        experiment(Grid.read(written(tmp_path, text)), world, tmp_path / "out", split="monitor")


def test_what_a_run_learned_from_is_no_test_result(world, done):
    path, _, _ = done
    found = experiment(Grid.read(path), world, path.parent / "out", split="development")
    assert found.seen == ["joint", "InfoNCE"]
    assert "It holds clips that joint; InfoNCE learned from: no test result." in markdown(compared(found))


def test_two_experiments_at_once_in_one_folder_are_refused(world, grid, tmp_path):
    import fcntl

    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another experiment is at work"):
            experiment(Grid.read(grid), world, tmp_path / "out", split="validation")


def test_torchrun_is_refused(world, grid, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="without torchrun"):
        experiment(Grid.read(grid), world, tmp_path / "out", split="validation")


def test_runs_that_teach_each_other_are_refused(world, grid, tmp_path):
    each = 'set = { objective = [{ loss = "listnet", relevance = "teacher:%s" }] }\n'
    text = 'base = "joint.toml"\nseeds = [0]\n[[run]]\nname = "a"\n' + each % "b" + '[[run]]\nname = "b"\n' + each % "a"
    with pytest.raises(ConfigError, match="each other's teachers"):
        experiment(Grid.read(written(tmp_path, text)), world, tmp_path / "out", split="validation")
