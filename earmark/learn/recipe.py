"""A recipe: one TOML file that is one whole run, with the result it must reach.

Its tables are `[model]`, `[audio]`, `[text]` (what is learned), `[train]`, one `[[objective]]` or more (how), and
`[expected]`. An unknown key is refused with the nearest known one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from earmark.config import from_table, override, read_toml, unknown_key
from earmark.errors import ConfigError
from earmark.model.audio_towers import OWN_CAPTIONS
from earmark.model.settings import DualEncoderConfig

TABLES = ("model", "audio", "text", "train", "objective", "expected")
RELEVANCES = ("captions", "captions+ratings", "ratings", "ratings-binary", "ratings-shuffled", "similarity")
"""What a `relevance` may be, beside the teachers."""


@dataclass(frozen=True)
class TrainConfig:
    """`[train]` of a recipe."""

    lr: float = 1e-3
    """Adam's learning rate at the start; divided by ten on a plateau, down to 1e-6."""
    max_epochs: int = 150
    """0 keeps the untrained model: the control."""
    lr_patience: int = 5
    """Epochs without improvement after which the learning rate falls (on the next one: torch's counting)."""
    stop_patience: int = 10
    """Epochs without improvement after which training ends."""
    monitor: Literal["val_loss", "val_mAP", "last"] = "val_loss"
    """What an improvement is measured by; "last": nothing stops training or lowers lr, the last epoch is kept, and no
    tenth of development is kept apart."""
    monitor_split: str = ""
    """The split that it is measured on; empty: `validation`, or else a tenth of development kept apart by group."""
    seed: int = 0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the audio encoder's pass in training; "auto" is bf16 for CNNs that learn, where the machine has it."""

    @property
    def watched(self) -> str:
        """The number that an epoch is told by."""
        return "val_mAP" if self.monitor == "last" else self.monitor


@dataclass(frozen=True)
class ObjectiveConfig:
    """One `[[objective]]` of a recipe."""

    loss: Literal["infonce", "listnet"]
    weight: float = 1.0
    """Its factor in the total loss; an objective of weight 0 is still encoded."""
    temperature: float | Literal["learned"] = 0.07
    """τ of InfoNCE, ω of ListNet (0.1 where a recipe does not say); "learned" starts at 0.07, within 0.01–1."""
    relevance: str = "captions"
    """One of `RELEVANCES`, or "teacher:RUN[,RUN…]": the mean of (1 + cosine) / 2 of these runs, 0–1.

    "ratings-binary": the own clip 100, the list's others 0; "ratings-shuffled": a list's ratings in random order;
    "similarity": a logistic function, fitted to the ratings, of how well a clip's other captions match the caption."""
    clips: Literal["all", "rated"] = "all"
    """Whose captioning pairs: all of the split's clips, or those that stand in rated lists."""
    captions: Literal["all", "one"] = "all"
    """"one": each clip with one caption, the rated one where it has one, else drawn by seed."""
    batch: int = 32
    """Captioning pairs a step."""
    aggregate: Literal["mean", "standardised"] = "mean"
    """Of several raters' answers; "standardised" takes each rater's mean and spread out first."""
    target: Literal["phi", "linear", "softmax"] = "phi"
    """ListNet's map from ratings to probabilities."""
    target_temperature: float = 1.0
    """What "softmax" divides values by: the lower, the sharper."""
    symmetric: bool = False
    """ListNet over a clip's rated captions too, both directions averaged."""
    lists: int = 3
    """Rated lists a step."""

    @property
    def teachers(self) -> tuple[str, ...]:
        """The folders of the runs that it learns from; () where it learns from none."""
        kind, colon, runs = self.relevance.partition(":")
        return tuple(name.strip() for name in runs.split(",")) if (kind, colon) == ("teacher", ":") else ()

    @property
    def of_estimates(self) -> bool:
        """Whether its relevance is estimated, so that every pair has a value and hardly any is 0."""
        return self.relevance == "similarity" or bool(self.teachers)

    @property
    def of_ratings(self) -> bool:
        """Whether its items are rated lists (else captioning pairs)."""
        return self.relevance.startswith("ratings")

    @property
    def name(self) -> str:
        """Loss and relevance: `listnet(ratings)`; of teachers the last part of their paths."""
        relevance = "teacher:" + ",".join(Path(run).name for run in self.teachers) if self.teachers else self.relevance
        return f"{self.loss}({relevance})"


@dataclass(frozen=True)
class Expected:
    """`[expected]` of a recipe: what evaluation must reach, on the named collection and split only."""

    collection: str
    split: str
    metrics: Mapping[str, Mapping[str, float]]
    """Dotted name in `evaluate --json` → {value, tolerance}; reached where the result is value − tolerance or more."""
    source: Literal["measured", "paper, not verified here"]
    about: str = ""

    def speaks_of(self, results: Mapping[str, Any]) -> bool:
        """Whether the results are of the collection and split that it names."""
        return (results["collection"], results["split"]) == (self.collection, self.split)

    def missed(self, results: Mapping[str, Any]) -> list[str]:
        """A line for each metric that fell short; [] where the results are of another collection or split."""
        if not self.speaks_of(results):
            return []
        return [line for name, bound in self.metrics.items() if (line := _missed(name, bound, results))]


def _missed(name: str, bound: Mapping[str, float], results: Mapping[str, Any]) -> str:
    found: Any = results
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    least = bound["value"] - bound["tolerance"]
    if isinstance(found, int | float) and not math.isnan(found) and found >= least:
        return ""
    shown = f"{found:.3f}" if isinstance(found, int | float) else "undefined"
    return f"{name} is {shown}; expected {bound['value']:g} ± {bound['tolerance']:g}"


@dataclass(frozen=True)
class Recipe:
    """A whole run's configuration."""

    encoders: DualEncoderConfig
    train: TrainConfig
    objectives: tuple[ObjectiveConfig, ...]
    expected: Expected | None = None

    @classmethod
    def read(cls, path: Path, sets: Sequence[str] = ()) -> Recipe:
        """The recipe of a TOML file with `--set` overrides. Raises `ConfigError` naming the file and the key."""
        tables = read_toml(path)
        for assignment in sets:
            override(tables, assignment)
        return cls.from_tables(tables, str(path))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str) -> Recipe:
        """The recipe of parsed TOML."""
        if "run" in tables:
            raise ConfigError(f"{where}: [[run]] is a grid's, and not a recipe's. Take `earmark experiment`.")
        for key in tables:
            if key not in TABLES:
                raise unknown_key(where, key, TABLES)
        listed = tables.get("objective", [])
        if not isinstance(listed, list) or not listed:
            raise ConfigError(f"{where}: no [[objective]]; expected one or more.")
        objectives = tuple(_objective(table, f"{where}: objective.{at}") for at, table in enumerate(listed))
        train = from_table(TrainConfig, tables.get("train", {}), f"{where}: train")
        _check_train(train, f"{where}: train")
        if train.max_epochs and not any(objective.weight for objective in objectives):
            raise ConfigError(f"{where}: every objective's weight is 0, so nothing would be learned. Raise one.")
        expected = read_expected(tables, f"{where}: expected")
        encoders = DualEncoderConfig.from_tables(tables, where)
        if encoders.audio.encoder == OWN_CAPTIONS and train.max_epochs:
            raise ConfigError(
                f'{where}: audio.encoder = "own-captions" with train.max_epochs = {train.max_epochs}: it is the '
                "untrained control, and nothing is learned. Set train.max_epochs = 0."
            )
        return cls(encoders, train, objectives, expected)

    def complete(self) -> dict[str, Any]:
        """Every table with every key, defaults filled in, as `config.toml` keeps it."""
        tables = {
            "model": asdict(self.encoders.model),
            "audio": asdict(self.encoders.audio),
            "text": asdict(self.encoders.text),
            "train": asdict(self.train),
            "objective": [asdict(objective) for objective in self.objectives],
        }
        return tables if self.expected is None else tables | {"expected": asdict(self.expected)}


def _objective(table: Mapping[str, Any], where: str) -> ObjectiveConfig:
    if not isinstance(table, Mapping) or "loss" not in table:
        raise ConfigError(f'{where}: no loss; expected loss = "infonce" or "listnet".')
    usual = {"relevance": "ratings", "temperature": 0.1} if table["loss"] == "listnet" else {}
    found = from_table(ObjectiveConfig, {**usual, **table}, where)
    for name, least in (("weight", 0), ("batch", 2), ("lists", 1)):  # a captioning pair alone teaches nothing
        if not least <= getattr(found, name) < math.inf:
            raise ConfigError(f"{where}.{name} = {getattr(found, name)}; expected {least} or more.")
    if isinstance(found.temperature, float | int) and not 0 < found.temperature < math.inf:
        raise ConfigError(f"{where}.temperature = {found.temperature}; expected more than 0.")
    _check_relevance(found, where)
    return found


def _check_relevance(found: ObjectiveConfig, where: str) -> None:
    if found.relevance not in RELEVANCES and not (found.teachers and all(found.teachers)):
        known = ", ".join(f'"{name}"' for name in RELEVANCES)
        raise ConfigError(f'{where}.relevance = {found.relevance!r}; expected {known} or "teacher:RUN[,RUN…]".')
    if found.of_estimates and found.loss == "infonce":
        raise ConfigError(
            f"{where}.relevance = {found.relevance!r} with InfoNCE, whose negatives have relevance 0; estimates have "
            'none. Take loss = "listnet".'
        )
    if not 0 < found.target_temperature < math.inf:
        raise ConfigError(f"{where}.target_temperature = {found.target_temperature}; expected more than 0.")
    if found.target_temperature != 1 and found.target != "softmax":
        raise ConfigError(
            f'{where}.target_temperature = {found.target_temperature} with target = "{found.target}", which has none. '
            'Take target = "softmax", or leave it out.'
        )


def _check_train(train: TrainConfig, where: str) -> None:
    if not 0 < train.lr < math.inf:
        raise ConfigError(f"{where}.lr = {train.lr}; expected more than 0.")
    for name in ("max_epochs", "lr_patience", "stop_patience", "seed"):
        if not 0 <= getattr(train, name) < 1 << 63:
            raise ConfigError(f"{where}.{name} = {getattr(train, name)}; expected 0 or more, below 2^63.")


def read_expected(tables: Mapping[str, Any], where: str) -> Expected | None:
    """The table `expected` of a recipe or of a run's configuration, None where there is none."""
    if "expected" not in tables:
        return None
    table = tables["expected"]
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {table!r}; expected a table.")
    missing = [key for key in ("collection", "split", "metrics", "source") if key not in table]
    if missing:
        raise ConfigError(f"{where}: no {missing[0]}; expected collection, split, metrics and source.")
    found = from_table(Expected, table, where)
    for name, bound in found.metrics.items():
        numbers = isinstance(bound, Mapping) and all(isinstance(each, int | float) for each in bound.values())
        if not numbers or set(bound) != {"value", "tolerance"}:
            raise ConfigError(f"{where}.metrics.{name} = {bound!r}; expected {{ value = …, tolerance = … }}.")
    return found
