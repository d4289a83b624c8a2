"""Experiments: every run of a grid trained and measured, by several processes where heads alone learn.

What is done is skipped: a run by its model, its evaluation by the file beside it, as long as recipe, data and teachers
are what they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from earmark.data.collection import Collection
from earmark.data.splits import MONITORED, with_monitor_split
from earmark.errors import ConfigError, DataError, EarmarkError, Problem
from earmark.files import folder_alone
from earmark.learn.estimates import teachers_of
from earmark.learn.grid import Grid, RunConfig, as_file_name, folder_of
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.run import check_same, fingerprint
from earmark.measure.evaluate import Evaluation
from earmark.measure.kept import read_about, read_evaluation, write_evaluation
from earmark.model.text_encoders import Progress
from earmark.workers import interrupts_put_off, process_pool

FORMAT = 1
"""Of what is kept of an evaluation; another number measures anew."""
LOOK_S = 0.5
"""Seconds between looks at what the processes are doing."""


class Task(NamedTuple):
    """One run to be trained and measured."""

    name: str
    seed: int
    recipe: Recipe
    folder: Path
    collection: Path
    split: str
    data: str
    """The collection's fingerprint and protocol."""
    one_thread: bool

    @property
    def result(self) -> Path:
        """The file that holds its evaluation."""
        return self.folder / f"evaluation-{as_file_name(self.split)}.npz"

    @property
    def key(self) -> str:
        """Changes with whatever its result depends on; of teachers that are there now."""
        told = [FORMAT, self.recipe.complete(), teachers_of(self.recipe), self.data, self.split]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass
class Results:
    """The evaluations of a grid: by run, by seed."""

    grid: Grid
    collection: Collection
    split: str
    evaluations: dict[str, dict[int, Evaluation]]
    numbers: dict[str, dict[int, dict[str, Any]]]
    """As `evaluate --json` has them."""
    stopped: list[str]
    """The runs whose training the split stopped."""
    seen: list[str]
    """The runs that learned from clips of the split."""
    problems: list[Problem]
    notes: list[str]


def experiment(
    grid: Grid,
    collection: Collection,
    out: Path,
    *,
    split: str,
    jobs: int = 0,
    progress: Progress | None = None,
    report: Callable[[str], None] | None = None,
    working: Callable[[str], None] | None = None,
) -> Results:
    """The evaluations of every run of the grid on the split, trained into `out/runs` where they are not there yet.

    `split = "monitor"` measures each run on the tenth of development that it kept apart for itself. `jobs` processes
    train at a time, 0: one a core where heads alone learn, else one. `report` is told each run that ends, `working`
    what is at work. A run that cannot be trained is a `Problem`; raises `ConfigError` where the grid itself is wrong.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("WORLD_SIZE is set: an experiment starts its processes itself. Start it without torchrun.")
    out = out.resolve()  # teachers are named by it, from whatever folder
    tasks = _tasks(grid, collection, out, split)
    busy = ConfigError(f"{out}: another experiment is at work in it. Wait, or choose another folder.")
    with folder_alone(out, busy):
        waiting = {task.folder: task for task in tasks if _about(task) is None}
        failed: dict[Path, str] = {}
        total, done = len(tasks), len(tasks) - len(waiting)
        if progress:
            progress("runs", done, total)
        for tier in _tiers(grid):
            todo = [task for task in waiting.values() if task.name in tier]
            for task, error in _in_processes(todo, jobs, working):
                done += 1
                if error:
                    failed[task.folder] = error
                if report:
                    report(f"{task.name}, seed {task.seed}: {error or _told(task)}")
                if progress:
                    progress("runs", done, total)
        return _results(grid, collection, split, tasks, failed)


def _tasks(grid: Grid, collection: Collection, out: Path, split: str) -> list[Task]:
    """Every run of the grid. Raises `ConfigError` on a recipe that is wrong, before anything is trained."""
    if "," in str(out):
        raise ConfigError(f"{out}: a comma in the path, which parts the names of teachers. Name another place.")
    if split != MONITORED:
        collection.gallery(split)  # a split that is not there is told now
    data = f"{fingerprint(collection)} {collection.queries}"
    _tiers(grid)
    tasks = []
    for run in grid.runs:
        for seed in grid.seeds:
            recipe = grid.recipe(run, seed, out)
            if split == MONITORED:
                _check_kept_apart(grid, run, recipe, collection)
            folder = folder_of(out, run, seed)
            tasks.append(Task(run.name, seed, recipe, folder, collection.root, split, data, _heads_alone(recipe)))
    return tasks


def _check_kept_apart(grid: Grid, run: RunConfig, recipe: Recipe, collection: Collection) -> None:
    """Raises `ConfigError` where the run, or a teacher of it, learns from the tenth that it is to be measured on."""
    usual = recipe.train.monitor_split == "" and "validation" not in collection.splits
    where = f"{grid.path}: run {run.name!r}"
    if recipe.train.monitor == "last" or not (usual or recipe.train.monitor_split == MONITORED):
        raise ConfigError(
            f"{where}: keeps no tenth of development apart, so it cannot be measured on it (--split {MONITORED}). Set "
            f'train.monitor_split = "{MONITORED}", and no monitor = "last".'
        )
    if grid.taught_by_several(run):
        raise ConfigError(
            f"{where}: teachers of other seeds learned from the tenth that it is measured on (--split {MONITORED}). "
            'Name the one of its own seed: "teacher:NAME@seed".'
        )


def _heads_alone(recipe: Recipe) -> bool:
    from earmark.model.audio_towers import is_frozen

    return is_frozen(recipe.encoders.audio) and not recipe.encoders.text.train


def _tiers(grid: Grid) -> list[set[str]]:
    """The runs' names in the order of their need of each other: teachers first."""
    needs = {run.name: {teacher.name for teacher in grid.teachers(run)} for run in grid.runs}
    tiers: list[set[str]] = []
    placed: set[str] = set()
    while len(placed) < len(needs):
        tier = {name for name, need in needs.items() if name not in placed and need <= placed}
        if not tier:
            raise ConfigError(f"{grid.path}: runs that are each other's teachers: {sorted(set(needs) - placed)}.")
        tiers.append(tier)
        placed |= tier
    return tiers


def _about(task: Task) -> dict[str, Any] | None:
    """What is kept of the task's result; None where it is not there, or of other settings, data or teachers."""
    if not task.result.exists():
        return None
    try:
        about = read_about(task.result)
        return about if about["key"] == task.key else None
    except (DataError, KeyError, OSError):
        return None


def _told(task: Task) -> str:
    numbers = read_about(task.result)["numbers"]
    rho = numbers.get("ratings", {}).get("spearman")
    shown = f"mAP {numbers['text_to_audio']['mAP']:.3f}"
    return shown if rho is None else f"{shown}, ρ {rho:.3f}"


# In the processes that train


def _run(task: Task) -> str:
    """Trains and measures one run, or goes on with it; why that failed, which costs this run alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _measure(task, caught)
        except EarmarkError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename or task.folder}: {error.strerror or error}. Check the disk."
        except (RuntimeError, MemoryError) as error:  # torch's own: out of memory, say
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            return f"{task.folder}: {first}. Smaller batches, or fewer --jobs, may help."
    return ""


def _measure(task: Task, caught: list[warnings.WarningMessage]) -> None:
    """Trains the run if that is not done, and keeps its evaluation with all that was left out."""
    from earmark.learn.train import train

    collection = _collection(task.collection)
    if (task.folder / "model.safetensors").exists():
        check_same(task.folder / "config.toml", task.recipe, collection)
    else:
        train(task.recipe, collection, task.folder, resume=True)
    if task.split == MONITORED:
        collection, _ = with_monitor_split(collection, MONITORED, task.recipe.train.seed)
    evaluation, scored, seen = evaluate_run(task.folder, collection, task.split)
    about = {
        "key": task.key,
        "numbers": evaluation.numbers(),
        "stopped": seen.stopped_training,
        "trained_on": seen.trained_on,
        "problems": [list(problem) for problem in scored.problems],
        "notes": list(dict.fromkeys(str(each.message) for each in caught)),
    }
    write_evaluation(task.result, evaluation, about)


@lru_cache(maxsize=1)
def _collection(root: Path) -> Collection:
    return Collection.read(root)


def _start(one_thread: bool) -> None:
    import torch

    if one_thread:
        torch.set_num_threads(1)  # the processes are the parallelism


def _in_processes(
    tasks: Sequence[Task], jobs: int, working: Callable[[str], None] | None
) -> Iterator[tuple[Task, str]]:
    """Why each run failed, "" where it did not, as they end."""
    if not tasks:
        return
    heads = all(task.one_thread for task in tasks)
    jobs = min(jobs or ((os.cpu_count() or 1) if heads else 1), len(tasks))
    with process_pool(jobs, _start, heads or jobs > 1, doing="trained a run") as pool:
        with interrupts_put_off():
            futures: dict[Future[str], Task] = {pool.submit(_run, task): task for task in tasks}
        while futures:
            ended, _ = wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for future in ended:
                yield futures.pop(future), future.result()
            if working:
                working(_state([task for future, task in futures.items() if future.running()]))


def _state(tasks: Sequence[Task]) -> str:
    """What the first of them is at, and how many more there are: short, since it stands beside a bar."""
    if not tasks:
        return ""
    task, more = tasks[0], f" +{len(tasks) - 1}" if len(tasks) > 1 else ""
    log = task.folder / "log.jsonl"
    epoch = log.read_text().count("\n") + 1 if log.exists() else 1
    at = f"epoch {epoch}" if epoch <= task.recipe.train.max_epochs else "measuring"
    return f"{task.name[:20]} {task.seed}: {at}{more}"


# What came of it


def _results(
    grid: Grid, collection: Collection, split: str, tasks: Sequence[Task], failed: Mapping[Path, str]
) -> Results:
    found = Results(grid, collection, split, {}, {}, [], [], [], [])
    left_out: dict[tuple[str, str, str], list[int]] = {}
    for task in tasks:
        what, about = f"{task.name}, seed {task.seed}", _about(task)
        if about is None:
            found.problems.append(Problem(what, failed.get(task.folder, "no result")))
            continue
        found.evaluations.setdefault(task.name, {})[task.seed] = read_evaluation(task.result)[0]
        found.numbers.setdefault(task.name, {})[task.seed] = about["numbers"]
        for where, why in about["problems"]:
            left_out.setdefault((task.name, where, why), []).append(task.seed)
        found.notes += [note for note in about["notes"] if note not in found.notes]
        for names, is_so in ((found.stopped, about["stopped"]), (found.seen, about["trained_on"])):
            if is_so and task.name not in names:
                names.append(task.name)
    for (name, where, why), seeds in left_out.items():  # mostly the same clips in every seed: told once
        shown = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
        found.problems.append(Problem(f"{name}, {shown}: {where}", why))
    return found


def texts_of(collection: Collection, split: str) -> str:
    """sha256 of the split's captions, sorted: whether published numbers are of the same queries."""
    texts = sorted(caption.text for caption in collection.query_captions(split))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
