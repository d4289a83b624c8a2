"""Experiments: a grid of settings × seeds, trained, measured, and set beside each other in tables.

A grid is one TOML file: `base` is a recipe, `[[run]]` has a `name` and what it `set`s in it. What is done is skipped:
a run by its folder, its evaluation by the file in it. Runs are trained by several processes where heads alone learn.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from earmark.config import assign, from_table, read_toml
from earmark.data.collection import Collection
from earmark.data.splits import MONITORED, with_monitor_split
from earmark.errors import ConfigError, DataError, EarmarkError, Problem
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.run import check_same, fingerprint
from earmark.measure.evaluate import Evaluation
from earmark.measure.kept import read_evaluation, write_evaluation
from earmark.workers import interrupts_put_off, process_pool

FORMAT = 1
"""Of what is kept of an evaluation; another number measures anew."""
TEACHER, SAME_SEED = "teacher:", "@seed"
LOOK_S = 0.5
"""Seconds between looks at what the processes are doing."""


@dataclass(frozen=True)
class RunConfig:
    """One `[[run]]` of a grid."""

    name: str
    set: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the base: `"objective.0.weight" = 0.5`, `train.lr = 1e-4`, or a whole table or list."""
    vary: Mapping[str, Any] = field(default_factory=dict)
    """Lists of values, as in `set`: one run for every combination, named after its values."""
    base: str = ""
    """Another recipe than the grid's."""
    against: str = ""
    """The run that it is compared with, seed by seed."""
    published: Mapping[str, float] = field(default_factory=dict)
    """What is published of it: dotted names as in `evaluate --json`."""

    @property
    def folder(self) -> str:
        """Its name as a folder's."""
        return re.sub(r"[^\w.+-]+", "-", self.name).strip("-.") or "run"


@dataclass(frozen=True)
class Published:
    """What published numbers are numbers of: they stand beside ours only where the queries are the same."""

    source: str
    collection: str
    split: str
    queries: str
    """sha256 of the split's texts (`texts_of`)."""


@dataclass(frozen=True)
class Grid:
    """Settings × seeds."""

    path: Path
    runs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    base: str = ""
    published: Published | None = None

    @classmethod
    def read(cls, path: Path) -> Grid:
        """The grid of a TOML file. Raises `ConfigError` naming the file and the key."""
        tables = read_toml(path)
        listed = tables.pop("run", [])
        found = from_table(_GridTable, tables, str(path))
        if not isinstance(listed, list) or not listed:
            raise ConfigError(f"{path}: no [[run]]; expected one or more.")
        given = [from_table(RunConfig, _named(run, where), where) for run, where in _placed(listed, path)]
        runs = tuple(each for run in given for each in _varied(run, f"{path}: run {run.name!r}"))
        published = from_table(Published, found.published, f"{path}: published") if found.published else None
        grid = cls(path, runs, tuple(found.seeds), found.base, published)
        grid._check()
        return grid

    def _check(self) -> None:
        folders = [run.folder.casefold() for run in self.runs]
        twice = sorted({run.name for run in self.runs if folders.count(run.folder.casefold()) > 1})
        if twice:
            raise ConfigError(f"{self.path}: run {twice[0]!r}: its folder's name stands twice. Rename one.")
        if not self.seeds or not all(isinstance(s, int) and 0 <= s < 1 << 63 for s in self.seeds):
            raise ConfigError(f"{self.path}: seeds = {list(self.seeds)}; expected whole numbers, 0 or more.")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"{self.path}: seeds = {list(self.seeds)}; expected each once.")
        names = {run.name for run in self.runs}
        for run in self.runs:
            if run.against and (run.against not in names or run.against == run.name):
                raise ConfigError(f"{self.path}: run {run.name!r}: against = {run.against!r}; expected another run.")
            if not (run.base or self.base):
                raise ConfigError(f"{self.path}: no base; expected the path of a recipe.")
            if run.published and not self.published:
                raise ConfigError(f"{self.path}: run {run.name!r}: published, but there is no table [published].")

    def recipe(self, run: RunConfig, seed: int, out: Path) -> Recipe:
        """The whole recipe of a run.

        `teacher:NAME` becomes the folders of the grid's run of that name, all its seeds as one ensemble;
        `teacher:NAME@seed` that of the same seed alone.
        """
        tables, where = self._tables(run)
        assign(tables, "train.seed", seed, where)
        for objective, name in _relevances(tables):
            if teacher := self._teacher(name):
                seeds = [seed] if name.endswith(SAME_SEED) else self.seeds
                objective["relevance"] = TEACHER + ",".join(str(folder_of(out, teacher, each)) for each in seeds)
        return Recipe.from_tables(tables, where)

    def _tables(self, run: RunConfig) -> tuple[dict[str, Any], str]:
        """The base's tables with what the run sets, and what to call them in messages."""
        base = self.path.parent / (run.base or self.base)
        where = f"{self.path}: run {run.name!r} ({base})"
        tables = read_toml(base)
        tables.pop("expected", None)
        for path, value in _leaves(run.set):
            assign(tables, path, deepcopy(value), f"{where}: set")
        return tables, where

    def _teacher(self, relevance: str) -> RunConfig | None:
        """The run of this grid that a relevance names as the teacher."""
        name = relevance.removeprefix(TEACHER).removesuffix(SAME_SEED)
        return next((run for run in self.runs if relevance.startswith(TEACHER) and run.name == name), None)

    def teachers(self, run: RunConfig) -> list[RunConfig]:
        """The runs of the grid that must be there before this one."""
        found = [self._teacher(name) for _, name in _relevances(self._tables(run)[0])]
        return [teacher for teacher in found if teacher is not None]


def _relevances(tables: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The objectives of a recipe's tables, and what each calls its relevance."""
    listed = tables.get("objective", [])
    tabled = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [(each, str(each.get("relevance", ""))) for each in tabled]


@dataclass(frozen=True)
class _GridTable:
    """A grid's own keys."""

    seeds: list[int] = field(default_factory=list)
    base: str = ""
    published: dict[str, Any] = field(default_factory=dict)


def _named(run: Any, where: str) -> Any:
    if not isinstance(run, Mapping) or not isinstance(run.get("name"), str) or not run["name"].strip():
        raise ConfigError(f'{where}: no name; expected name = "…".')
    return run


def _placed(listed: Sequence[Any], path: Path) -> Iterator[tuple[Any, str]]:
    return ((run, f"{path}: run.{at}") for at, run in enumerate(listed))


def _varied(run: RunConfig, where: str) -> Iterator[RunConfig]:
    """The run, or one for every combination of what it varies: `NAME, lr 0.001, weight 0.3`."""
    varied = dict(_leaves(run.vary))
    for key, values in varied.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}: vary.{key} = {values!r}; expected a list of values.")
    for combination in itertools.product(*varied.values()):
        chosen = dict(zip(varied, combination, strict=True))
        name = ", ".join([run.name, *(f"{_short(key, list(varied))} {value}" for key, value in chosen.items())])
        yield replace(run, name=name, set={**run.set, **chosen}, vary={})


def _short(key: str, keys: Sequence[str]) -> str:
    """The key's last part, or all of it where that is another's too."""
    last = key.rpartition(".")[2]
    return last if sum(each.rpartition(".")[2] == last for each in keys) == 1 else key


def _leaves(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of everything that is set; lists are whole values."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def folder_of(out: Path, run: RunConfig, seed: int) -> Path:
    """Where a run of an experiment lies."""
    return out / "runs" / run.folder / f"seed-{seed}"


class Task(NamedTuple):
    """One run to be trained and measured."""

    name: str
    seed: int
    recipe: Recipe
    folder: Path
    collection: Path
    split: str
    key: str
    """Changes with whatever its result depends on."""
    one_thread: bool

    @property
    def result(self) -> Path:
        """The file that holds its evaluation."""
        return self.folder / f"evaluation-{self.split}.npz"


class Outcome(NamedTuple):
    """What came of a run."""

    notes: list[str]
    """Warnings."""
    problems: list[Problem]
    """Clips that were left out."""
    error: str = ""
    """Why there is no result."""


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
    problems: list[Problem]
    notes: list[str]


def experiment(
    grid: Grid,
    collection: Collection,
    out: Path,
    *,
    split: str,
    jobs: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    report: Callable[[str], None] | None = None,
    working: Callable[[str], None] | None = None,
) -> Results:
    """The evaluations of every run of the grid on the split, trained into `out/runs` where they are not there yet.

    `split = "monitor"` measures each run on the tenth of development that it kept apart for itself. `jobs` processes
    train at a time, 0: one a core where heads alone learn, else one. `report` is told each run that ends, `working`
    what is at work. A run that cannot be trained is a `Problem`; raises `ConfigError` where the grid itself is wrong.
    """
    tasks = _tasks(grid, collection, out, split)
    problems: dict[Path, list[Problem]] = {
        task.folder: [] for task in tasks
    }  # in the grid's order, whatever ends first
    notes: dict[str, None] = {}
    waiting = {task.folder: task for task in tasks if not _is_done(task)}
    total, done = len(tasks), len(tasks) - len(waiting)
    if progress:
        progress("runs", done, total)
    for tier in _tiers(grid):
        todo = [task for task in waiting.values() if task.name in tier]
        for task, outcome in _in_processes(todo, jobs, working):
            done += 1
            notes |= dict.fromkeys(outcome.notes)
            what = f"{task.name}, seed {task.seed}"
            faults = [Problem(what, outcome.error)] if outcome.error else []
            faults += [Problem(f"{what}: {each.where}", each.what) for each in outcome.problems]
            problems[task.folder] = faults
            if report:
                report(f"{what}: {outcome.error or _told(task)}")
            if progress:
                progress("runs", done, total)
    return _results(grid, collection, split, tasks, [p for each in problems.values() for p in each], list(notes))


def _tasks(grid: Grid, collection: Collection, out: Path, split: str) -> list[Task]:
    """Every run of the grid. Raises `ConfigError` on a recipe that is wrong, before anything is trained."""
    data = fingerprint(collection)
    if split != MONITORED:
        collection.gallery(split)  # a split that is not there is told now
    tasks = []
    for run in grid.runs:
        for seed in grid.seeds:
            recipe = grid.recipe(run, seed, out)
            key = hashlib.sha256(json.dumps([FORMAT, recipe.complete(), data, split], sort_keys=True).encode())
            heads = _heads_alone(recipe)
            folder = folder_of(out, run, seed)
            tasks.append(Task(run.name, seed, recipe, folder, collection.root, split, key.hexdigest(), heads))
    return tasks


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


def _is_done(task: Task) -> bool:
    if not task.result.exists():
        return False
    try:
        return bool(read_evaluation(task.result)[1].get("key") == task.key)
    except DataError:
        return False


def _told(task: Task) -> str:
    numbers = read_evaluation(task.result)[1]["numbers"]
    rho = numbers.get("ratings", {}).get("spearman")
    return f"mAP {numbers['text_to_audio']['mAP']:.3f}" + (f", ρ {rho:.3f}" if rho is not None else "")


# In the processes that train


def _run(task: Task) -> Outcome:
    """Trains and measures one run, or goes on with it; what is refused costs this run alone."""
    from earmark.learn.train import train

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            collection = _collection(task.collection)
            if (task.folder / "model.safetensors").exists():  # trained, and now to be measured on another split
                check_same(task.folder / "config.toml", task.recipe, collection)
                problems = []
            else:
                problems = train(task.recipe, collection, task.folder, resume=True).problems
            if task.split == MONITORED:
                collection, _ = with_monitor_split(collection, MONITORED, task.recipe.train.seed)
            evaluation, scored, seen = evaluate_run(task.folder, collection, task.split)
            about = {"key": task.key, "numbers": evaluation.numbers(), "stopped": seen.stopped_training}
            write_evaluation(task.result, evaluation, about)
            outcome = Outcome([], [*problems, *scored.problems])
        except EarmarkError as error:
            outcome = Outcome([], [], str(error))
        except OSError as error:
            outcome = Outcome([], [], f"{error.filename or task.folder}: {error.strerror or error}. Check the disk.")
    return outcome._replace(notes=[str(each.message) for each in caught])


@lru_cache(maxsize=1)
def _collection(root: Path) -> Collection:
    return Collection.read(root)


def _start(one_thread: bool) -> None:
    import torch

    if one_thread:
        torch.set_num_threads(1)  # the processes are the parallelism


def _in_processes(
    tasks: Sequence[Task], jobs: int, working: Callable[[str], None] | None
) -> Iterator[tuple[Task, Outcome]]:
    """What came of each run, as they end."""
    if not tasks:
        return
    heads = all(task.one_thread for task in tasks)
    jobs = min(jobs or ((os.cpu_count() or 1) if heads else 1), len(tasks))
    with process_pool(jobs, _start, heads or jobs > 1, doing="trained a run") as pool:
        with interrupts_put_off():
            futures: dict[Future[Outcome], Task] = {pool.submit(_run, task): task for task in tasks}
        while futures:
            ended, _ = wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for future in ended:
                yield futures.pop(future), future.result()
            if working:
                working("; ".join(_state(task) for future, task in futures.items() if future.running())[:70])


def _state(task: Task) -> str:
    try:
        epochs = (task.folder / "log.jsonl").read_text().count("\n")
    except OSError:
        epochs = 0
    return f"{task.name} {task.seed}: epoch {epochs + 1}"


# What came of it


def _results(
    grid: Grid, collection: Collection, split: str, tasks: Sequence[Task], problems: list[Problem], notes: list[str]
) -> Results:
    found = Results(grid, collection, split, {}, {}, [], problems, notes)
    for task in tasks:
        if not _is_done(task):
            continue
        evaluation, about = read_evaluation(task.result)
        found.evaluations.setdefault(task.name, {})[task.seed] = evaluation
        found.numbers.setdefault(task.name, {})[task.seed] = about["numbers"]
        if about["stopped"] and task.name not in found.stopped:
            found.stopped.append(task.name)
    return found


def texts_of(collection: Collection, split: str) -> str:
    """sha256 of the split's captions, sorted: whether published numbers are of the same queries."""
    texts = sorted(caption.text for caption in collection.query_captions(split))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
