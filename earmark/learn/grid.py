"""Grids: settings × seeds in one TOML file, and the recipe of each.

`base` is a recipe, `[[run]]` has a `name` and what it `set`s in it, or lists of values that it `vary`s.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from earmark.config import assign, from_table, read_toml, unknown_key
from earmark.errors import ConfigError
from earmark.learn.recipe import Recipe
from earmark.measure.seeds import SHOWN
from earmark.model.dual_encoder import is_run

TEACHER, SAME_SEED = "teacher:", "@seed"
SEED = "train.seed"
MOST = 1000
"""Runs that one `vary` may ask for: more is a slip."""
LONGEST = 150
"""Letters of a run's folder."""


def as_file_name(name: str) -> str:
    """The name without anything that leads elsewhere or that a shell would mind."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.")


@dataclass(frozen=True)
class RunConfig:
    """One `[[run]]` of a grid."""

    name: str
    set: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the base: `"objective.0.weight" = 0.5`, `train.lr = 1e-4`; a list is set whole."""
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
        return as_file_name(self.name) or "run"


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
        runs = tuple(replace(run, published=dict(_leaves(run.published))) for run in runs)
        grid = cls(path, runs, tuple(found.seeds), found.base, published)
        grid._check()
        return grid

    def _check(self) -> None:
        folders = [run.folder.casefold() for run in self.runs]
        twice = sorted({run.name for run in self.runs if folders.count(run.folder.casefold()) > 1})
        if twice:
            raise ConfigError(f"{self.path}: run {twice[0]!r}: its folder's name stands twice. Rename one.")
        too_long = [run.name for run in self.runs if len(run.folder.encode()) > LONGEST]
        if too_long:
            raise ConfigError(f"{self.path}: run {too_long[0][:40]!r}…: over {LONGEST} letters. Shorten its name.")
        if not self.seeds or not all(type(seed) is int and 0 <= seed < 1 << 63 for seed in self.seeds):
            raise ConfigError(f"{self.path}: seeds = {list(self.seeds)}; expected whole numbers, 0 or more.")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"{self.path}: seeds = {list(self.seeds)}; expected each once.")
        names = {run.name for run in self.runs}
        for run in self.runs:
            self._check_published(run)
            if SEED in (key for table in (run.set, run.vary) for key, _ in _leaves(table)):
                raise ConfigError(f"{self.path}: run {run.name!r} sets {SEED}, which the grid's seeds are for.")
            if run.against and (run.against not in names or run.against == run.name):
                raise ConfigError(f"{self.path}: run {run.name!r}: against = {run.against!r}; expected another run.")
            if not (run.base or self.base):
                raise ConfigError(f"{self.path}: no base; expected the path of a recipe.")

    def _check_published(self, run: RunConfig) -> None:
        where = f"{self.path}: run {run.name!r}: published"
        if run.published and not self.published:
            raise ConfigError(f"{where}, but there is no table [published].")
        for name, value in run.published.items():
            if name not in SHOWN:
                raise unknown_key(where, name, SHOWN)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{where}.{name} = {value!r}; expected a number.")

    def recipe(self, run: RunConfig, seed: int, out: Path) -> Recipe:
        """The whole recipe of a run.

        `teacher:NAME` becomes the folders of the grid's run of that name, all its seeds as one ensemble;
        `teacher:NAME@seed` that of the same seed alone.
        """
        tables, where = self._tables(run)
        assign(tables, "train.seed", seed, where)
        for objective, name in _relevances(tables):
            if teacher := self._teacher(name, where):
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

    def _teacher(self, relevance: str, where: str) -> RunConfig | None:
        """The run of this grid that a relevance names as the teacher; None where it names none, or others' runs.

        Raises `ConfigError` where it names nothing that is there.
        """
        if not relevance.startswith(TEACHER):
            return None
        name = relevance.removeprefix(TEACHER).removesuffix(SAME_SEED)
        found = next((run for run in self.runs if run.name == name), None)
        if found is None and not all(is_run(each.strip()) for each in relevance.removeprefix(TEACHER).split(",")):
            near = difflib.get_close_matches(name, [run.name for run in self.runs], 1)
            hint = f"did you mean {near[0]!r}?" if near else "expected a run of the grid, or folders of runs."
            raise ConfigError(f"{where}: relevance = {relevance!r}: no such teacher; {hint}")
        return found

    def teachers(self, run: RunConfig) -> list[RunConfig]:
        """The runs of the grid that must be there before this one."""
        tables, where = self._tables(run)
        found = [self._teacher(name, where) for _, name in _relevances(tables)]
        return [teacher for teacher in found if teacher is not None]

    def taught_by_several(self, run: RunConfig) -> bool:
        """Whether runs of other seeds than its own teach it."""
        return bool(self.teachers(run)) and not all(
            name.endswith(SAME_SEED) for _, name in _relevances(self._tables(run)[0]) if name.startswith(TEACHER)
        )


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
    many = math.prod(map(len, varied.values()))
    if many > MOST:
        raise ConfigError(f"{where}: vary asks for {many:,} runs; expected {MOST:,} or fewer. Vary less at a time.")
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
