"""Several processes learn what one would, and end together, whatever ends one of them."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from worlds import RECIPE, vector_world

from earmark import Collection
from earmark.audio.cache import Features
from earmark.errors import ConfigError
from earmark.learn import processes
from earmark.learn.batches import Batch, Part, batch_at, steps_an_epoch
from earmark.learn.checkpoint import Learner
from earmark.learn.inputs import Inputs
from earmark.learn.objectives import make_objective
from earmark.learn.recipe import Recipe
from earmark.learn.train import _losses, train
from earmark.model.dual_encoder import DualEncoder

TESTS = Path(__file__).resolve().parent
PLAIN = RECIPE.replace("dropout = 0.2", "dropout = 0.0")
"""What two processes learn from as one does: nothing in it is drawn."""
LEARNED = PLAIN.replace("weight = 0.7", 'weight = 0.7\ntemperature = "learned"')
CNN = LEARNED.replace('encoder = "vectors"\nhidden = 32', 'encoder = "cnn14"\nweights = "none"\nwidth = 2', 1)


def torchrun(*arguments: object, log: Path | None = None, count: int = 2) -> subprocess.CompletedProcess[str]:
    """Runs a script (or `-m` a module) in so many processes; with `log` what they say goes into files there."""
    apart = ["--redirects", "3", "--log-dir", log] if log else []
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, *apart]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    command = [sys.executable, *map(str, [*start, *arguments])]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


def said(log: Path) -> list[str]:
    """The lines on standard error of all processes, in their order."""
    return [line for path in sorted(log.glob("*/*/*/stderr.log")) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return vector_world(tmp_path_factory.mktemp("world") / "c")


@pytest.fixture(scope="module")
def place(tmp_path_factory, world):
    """A folder with a recipe, and with what one process and two made of it."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "recipe.toml").write_text(PLAIN)
    train(Recipe.read(folder / "recipe.toml"), world, folder / "one")
    done = torchrun("-m", "earmark", *command(folder, world, "two"), log=folder / "log")
    assert done.returncode == 0, said(folder / "log")
    return folder


def command(folder: Path, world: Collection, run: str, *more: object) -> list[object]:
    return ["train", folder / "recipe.toml", "--data", world.root, "--out", folder / run, *more]


def log_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) | {"seconds": 0} for line in (run / "log.jsonl").read_text().splitlines()]


def apart(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of any number in both, in units of its tensor's largest one where that is above 1."""
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) / max(1.0, float(a[name].abs().max())) for name in a)


def weights_apart(a: Path, b: Path) -> float:
    return apart(load_file(a / "model.safetensors"), load_file(b / "model.safetensors"))


# One step


def learner_of(text: str, world: Collection) -> Learner:
    recipe = Recipe.from_tables(tomllib.loads(text), "test")
    objectives = [make_objective(each, world, "development", seed=0) for each in recipe.objectives]
    return Learner(DualEncoder.for_collection(recipe.encoders, world), objectives, recipe.train)


def inputs_of(text: str, world: Collection, kind: torch.dtype) -> Inputs:
    """The vectors of the world; for a CNN small log-mels of different lengths in place of sounds."""
    torch.manual_seed(1)
    clips = torch.from_numpy(world.clip_vectors.vectors)
    if "cnn14" in text:
        clips = [torch.randn(64 + 3 * (place % 5), 64, dtype=kind) for place in range(len(clips))]
    features = {clip: Features([each], [1.0], []) for clip, each in zip(world.clip_vectors.ids, clips, strict=True)}
    ids = world.caption_vectors.ids
    captions = list(torch.from_numpy(world.caption_vectors.vectors).to(kind))
    return Inputs(features, captions, {caption: row for row, caption in enumerate(ids)})


def small_batch(captions: int, clips: int, objectives: int) -> Batch:
    """So many captions and clips, a caption relevant to the clip of its number where there is one."""
    values = torch.eye(captions, clips)
    part = Part(torch.arange(captions), torch.arange(clips), values, torch.ones_like(values, dtype=torch.bool))
    return Batch([f"clip{i}#1" for i in range(captions)], [f"clip{i}" for i in range(clips)], [part] * objectives)


def steps_of(text: str, world: Collection, train_mode: bool = False) -> dict[str, torch.Tensor]:
    """The loss and all gradients of several batches, an epoch's last one and uneven ones among them."""
    kind = torch.float64 if "cnn14" in text else torch.float32  # twelve layers in float32 round off more than 1e-6
    learner, inputs = learner_of(text, world).to(kind), inputs_of(text, world, kind)
    learner.train(train_mode)
    objectives = learner.objectives
    batches = {f"step {at}": batch_at(objectives, at, 0) for at in (0, steps_an_epoch(objectives) - 1)}
    batches |= {f"{shape}": small_batch(*shape, len(objectives)) for shape in ((2, 1), (1, 3), (3, 3), (1, 1))}
    found = {}
    for name, batch in batches.items():
        losses = _losses(learner.model, objectives, batch, inputs, 0, False)
        total = torch.stack([o.config.weight * loss for o, loss in zip(objectives, losses, strict=True)]).sum()
        learner.optimiser.zero_grad()
        total.backward()
        processes.add_up(learner.model, learner.learned)
        found[f"{name}: loss"] = total.detach()
        for key, parameter in learner.named_parameters():
            found[f"{name}: {key}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    statistics = {key: each for key, each in learner.state_dict().items() if "running" in key}
    return {key: each.contiguous() for key, each in (found | statistics).items()}


CASES = {"vectors": (LEARNED, False), "cnn14": (CNN, False), "cnn14 in training": (CNN, True)}


def write_steps(root: Path, to: Path) -> None:
    """What each of several processes makes of the cases, and the threads that gloo leaves behind."""
    rank, world = os.environ["RANK"], Collection.read(root)
    with processes.joined():
        for name, (text, train_mode) in CASES.items():
            save_file(steps_of(text, world, train_mode), to / f"{name}.{rank}")
    threads = [(each / "comm").read_text().strip() for each in Path("/proc/self/task").glob("*")]
    (to / f"threads.{rank}").write_text("\n".join(threads))


@pytest.fixture(scope="module")
def steps(tmp_path_factory, world):
    """A folder with what two processes make of the cases."""
    folder = tmp_path_factory.mktemp("steps")
    script = (
        f"from pathlib import Path\nfrom test_processes import write_steps\nwrite_steps(Path({str(world.root)!r}), "
    )
    (folder / "steps.py").write_text(f"{script}Path({str(folder)!r}))\n")
    done = torchrun(folder / "steps.py")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", ["vectors", "cnn14"])
def test_loss_and_all_gradients_are_those_of_one_process(case, steps, world):
    one = steps_of(*CASES[case][:1], world)
    two = load_file(steps / f"{case}.0")
    assert max(float(each.abs().max()) for name, each in one.items() if "loss" not in name) > 0.01
    assert any("learned" in name and float(each.abs()) > 0.01 for name, each in one.items() if "step 0" in name)
    assert apart(one, two) < 1e-6
    assert apart(two, load_file(steps / f"{case}.1")) == 0


def test_batch_norm_statistics_are_the_mean_over_processes(steps, world):
    first, second = load_file(steps / "cnn14 in training.0"), load_file(steps / "cnn14 in training.1")
    running = [name for name in first if "running" in name]
    assert running
    assert all(torch.equal(first[name], second[name]) for name in running)
    one = steps_of(CNN, world, True)
    means = [name for name in running if name.endswith("bn0.running_mean")]
    assert all((first[name] - one[name]).abs().max() < 0.1 for name in means)


def test_no_thread_outlives_the_group(steps):
    for rank in (0, 1):
        assert "gloo" not in (steps / f"threads.{rank}").read_text()


# A whole run


def test_two_processes_learn_what_one_does(place):
    assert weights_apart(place / "one", place / "two") < 1e-5
    for one, two in zip(log_of(place / "one"), log_of(place / "two"), strict=True):
        assert one.keys() == two.keys()
        assert all(math.isclose(one[name], two[name], abs_tol=1e-5) for name in one)
    names = [{path.name for path in (place / run).iterdir()} for run in ("one", "two")]
    assert names[0] == names[1]


def test_the_first_process_alone_speaks(place):
    lines = said(place / "log")
    assert sum("epoch   1  train loss" in line for line in lines) == 1
    printed = [path.read_text() for path in sorted((place / "log").glob("*/*/*/stdout.log"))]
    assert "6 epochs on small (GENERATED)" in printed[0]
    assert printed[1] == ""


FAULTY = """
import os, signal, sys
from earmark.cli import main
from earmark.errors import DataError
from earmark.learn import train as loop

whole, calls, fault = loop._losses, [], sys.argv.pop(1)

def losses(*arguments):
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 20:
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise DataError("disk 7: burnt. Buy another.")
    return whole(*arguments)

loop._losses = losses
loop.train.__kwdefaults__["checkpoint_s"] = 0
main()
"""
"""`earmark` whose second process fails in the fourth step of the third epoch, with a checkpoint after every step."""


def test_a_run_of_which_a_process_was_killed_is_taken_up_by_two_and_by_one(place, world):
    (place / "faulty.py").write_text(FAULTY)
    done = torchrun(place / "faulty.py", "kill", *command(place, world, "killed"), log=place / "log of killed")
    assert done.returncode == 1
    assert "Signal 9 (SIGKILL) received" in done.stderr
    assert not any("Traceback" in line for line in said(place / "log of killed"))
    assert not (place / "killed" / "model.safetensors").exists()
    assert len(log_of(place / "killed")) == 2
    shutil.copytree(place / "killed", place / "killed too")
    train(Recipe.read(place / "recipe.toml"), world, place / "killed too", resume=True)
    faulty = [place / "faulty.py", "kill", *command(place, world, "killed", "--resume")]
    done = torchrun("--max-restarts", 1, *faulty)  # and killed once more, which torchrun takes up by itself
    assert done.returncode == 0, done.stderr
    assert weights_apart(place / "two", place / "killed") == 0
    assert log_of(place / "two") == log_of(place / "killed")
    assert weights_apart(place / "one", place / "killed too") < 1e-5


def test_an_error_of_one_process_ends_all_and_is_told_once(place, world):
    (place / "faulty.py").write_text(FAULTY)
    done = torchrun(place / "faulty.py", "error", *command(place, world, "faulty"), log=place / "log of faulty")
    assert done.returncode == 1
    told = [line for line in said(place / "log of faulty") if "epoch" not in line and "looking up" not in line]
    assert told == ["disk 7: burnt. Buy another."]
    assert "exitcode  : 2" in done.stderr


def test_a_refused_folder_ends_all_with_2_and_one_line(place, world):
    before = log_of(place / "two")
    done = torchrun("-m", "earmark", *command(place, world, "two"), log=place / "log of refused")
    assert done.returncode == 1  # torchrun's own
    assert "exitcode  : 2" in done.stderr
    (line,) = said(place / "log of refused")
    assert line.endswith("two: holds a run already. Go on with it (--resume), or choose another folder.")
    assert log_of(place / "two") == before


# Without a group


def test_one_process_is_left_alone(world):
    rows = torch.randn(3, 4)
    assert processes.shared([0, 1, 2], lambda some: rows[some], rows[:0]).equal(rows)
    assert (processes.rank(), processes.is_first(), processes.first(lambda: 7)) == (0, True, 7)


def test_an_environment_that_is_not_torchruns_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="RANK = '' in the environment; expected a number"), processes.joined():
        pass
