"""Training: one visible loop over epochs and steps, which can be killed at any moment and taken up again.

A run's folder holds `config.toml` (the complete recipe, the data, and what fed the encoders), `log.jsonl` (a line
an epoch), `checkpoint/`, and at the end `model.safetensors` (the best epoch's) and `card.md`. Everything random
follows from the seed and the number of the step, so a run that was killed and resumed ends bit-equal to one that
was not.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from torch import Tensor, nn

from earmark.config import read_toml
from earmark.data.collection import LISTS, Collection, hold_apart
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import write_text
from earmark.learn import checkpoint
from earmark.learn.batches import Batch, batch_at, joined, steps_an_epoch
from earmark.learn.objectives import Objective, check_learnable, make_objective
from earmark.learn.recipe import Recipe, TrainConfig
from earmark.measure.metrics import average_precision
from earmark.model.audio_encoders import Cnn14, Features
from earmark.model.dual_encoder import DualEncoder
from earmark.model.text_encoders import Progress

TRAINED_ON = "development"
MONITORED = "monitor"
"""The name of the tenth of development that is kept apart where there is no validation split."""
LR_FACTOR, LR_THRESHOLD, LR_LEAST = 0.1, 0.005, 1e-6
"""The plateau's settings: the authors' baseline; the threshold is absolute and holds for losses."""
CHECKPOINT_S = 300.0
"""Seconds between checkpoints within an epoch; there is one after every epoch too."""


@dataclass
class Result:
    """What a run came to."""

    run: Path
    epochs: int
    best_epoch: int
    monitor: str
    """`val_loss` or `val_mAP`."""
    best: float
    monitor_split: str
    problems: list[Problem]
    """Clips that could not be read; they and their captions were left out."""


@dataclass
class _Data:
    """What the loop asks for, in memory."""

    features: Mapping[str, Features]
    bases: Tensor
    """Base vectors of captions, float32 [caption, base]."""
    row: Mapping[str, int]
    """Caption id → row of `bases`."""

    def window(self, clip_id: str, epoch: int) -> Tensor:
        """A clip's features; a clip longer than a window shows one window an epoch, in turn."""
        windows = self.features[clip_id].windows
        return windows[epoch % len(windows)]

    def caption_bases(self, caption_ids: Sequence[str]) -> Tensor:
        """Base vectors [caption, base]."""
        return self.bases[[self.row[caption] for caption in caption_ids]]


@dataclass
class _State:
    """Where training is: all that a checkpoint holds beside tensors."""

    epoch: int = 0
    """Epochs that are finished."""
    step: int = 0
    """Steps that are finished, over the whole run."""
    sums: dict[str, float] = field(default_factory=dict)
    """Of this epoch's losses so far."""
    best: float | None = None
    best_epoch: int = 0
    bad_epochs: int = 0
    """Epochs since the best one."""
    log_lines: int = 0
    """Lines of `log.jsonl` that count; later ones were written by a run that was killed."""
    plateau: dict[str, Any] = field(default_factory=dict)
    finished: bool = False


def train(
    recipe: Recipe,
    collection: Collection,
    out: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
    checkpoint_s: float = CHECKPOINT_S,
) -> Result:
    """Trains the recipe's model on the collection into the folder `out`, and gives what came of it.

    `report` is given each epoch's line of the log. Raises `DataError` where the collection lacks what the
    recipe needs or a loss is not finite, `ConfigError` where `out` holds another run.
    """
    config = recipe.train
    collection, monitor_split = with_monitor_split(collection, config)
    with _claimed(out, recipe, collection, resume):
        return _train(recipe, collection, monitor_split, out, progress, report, checkpoint_s)


def _train(
    recipe: Recipe,
    collection: Collection,
    monitor_split: str,
    out: Path,
    progress: Progress | None,
    report: Callable[[dict[str, Any]], None] | None,
    checkpoint_s: float,
) -> Result:
    config = recipe.train
    model = DualEncoder.for_collection(recipe.encoders, collection, seed=config.seed)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    objectives, monitored = _objectives(recipe, collection, monitor_split)
    data, problems = _read(model, collection, monitor_split, [*objectives, *monitored], progress)
    if problems:  # again, without the clips that could not be read
        unread = {clip.clip_id for clip in collection.clips} - set(data.features)
        objectives, monitored = _objectives(recipe, collection, monitor_split, unread)
    _write_config(out, recipe, collection, monitor_split, model)

    learner = nn.ModuleDict({"model": model, "objectives": nn.ModuleList(objectives)})
    optimiser = torch.optim.Adam([p for p in learner.parameters() if p.requires_grad], lr=config.lr)
    plateau = _plateau(optimiser, config)
    state = _take_up(out, learner, optimiser, plateau)
    best = out / "checkpoint" / "best.safetensors"
    if not state.finished and state.best is None:
        checkpoint.save(best, learner, optimiser, {})
    steps = steps_an_epoch(objectives)
    bf16 = uses_bf16(config, model)
    saved = time.monotonic()

    while not state.finished and state.epoch < config.max_epochs:
        started = time.monotonic()
        learner.train()
        for within in range(state.step - state.epoch * steps, steps):
            torch.manual_seed(_step_seed(config.seed, state.step))
            batch = batch_at(objectives, state.step, config.seed)
            losses = _losses(model, objectives, batch, data, state.epoch, bf16)
            total = sum((o.config.weight * loss for o, loss in zip(objectives, losses, strict=True)), torch.tensor(0.0))
            _check_finite(total, batch, f"epoch {state.epoch + 1}, step {within + 1} of {steps}")
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            state.step += 1
            _add(state.sums, objectives, batch, losses, total)
            if progress:
                progress(f"epoch {state.epoch + 1} (at most {config.max_epochs})", within + 1, steps)
            if time.monotonic() - saved > checkpoint_s and within + 1 < steps:
                _save(out, learner, optimiser, plateau, state)
                saved = time.monotonic()

        state.epoch += 1
        line = {"epoch": state.epoch, "step": state.step, **_means(state.sums, steps)}
        line |= _validated(model, monitored, collection, monitor_split, data) | {"lr": optimiser.param_groups[0]["lr"]}
        state.sums = {}
        if _improved(line[config.monitor], state.best, config.monitor):
            state.best, state.best_epoch, state.bad_epochs = line[config.monitor], state.epoch, 0
            checkpoint.save(best, learner, optimiser, {})
        else:
            state.bad_epochs += 1
        plateau.step(line[config.monitor])
        state.finished = state.bad_epochs >= config.stop_patience or state.epoch >= config.max_epochs
        line |= {"best_epoch": state.best_epoch, "seconds": round(time.monotonic() - started, 3)}
        _log(out, state, line)
        _save(out, learner, optimiser, plateau, state)
        saved = time.monotonic()
        if report:
            report(line)

    checkpoint.load(best, learner, optimiser)
    model.save(out)
    result = Result(out, state.epoch, state.best_epoch, config.monitor, _or_nan(state.best), monitor_split, problems)
    write_text(out / "card.md", _card(recipe, collection, result, objectives))
    return result


# Before the loop


def with_monitor_split(collection: Collection, config: TrainConfig) -> tuple[Collection, str]:
    """The collection and the split that training watches: the recipe's, `validation`, or a tenth of development.

    That tenth is kept apart by group, and its clips leave development's rated lists too.
    """
    if TRAINED_ON not in collection.splits:
        found = ", ".join(collection.splits) or "none"
        raise DataError(f"{collection.root}: no clips of split {TRAINED_ON!r}; found {found}. Training needs some.")
    for split in (config.monitor_split, "validation"):
        if split and split in collection.splits:
            return collection, split
    if config.monitor_split:
        found = ", ".join(collection.splits)
        raise ConfigError(f"train.monitor_split = {config.monitor_split!r}; the collection has {found}.")
    apart = hold_apart(collection.gallery(TRAINED_ON), 0.1, config.seed)
    clips = [replace(clip, split=MONITORED) if clip.clip_id in apart else clip for clip in collection.clips]
    owner = {caption.caption_id: caption.clip_id for caption in collection.captions}
    ratings = [r for r in collection.ratings if (r.clip_id in apart) <= (owner[r.caption_id] in apart)]
    return replace(collection, clips=clips, ratings=ratings), MONITORED


@contextmanager
def _claimed(out: Path, recipe: Recipe, collection: Collection, resume: bool) -> Iterator[None]:
    """The folder for this process alone. Raises `ConfigError` where it holds another run, or one is at work in it."""
    config = out / "config.toml"
    if config.exists():
        if not resume:
            raise ConfigError(f"{out}: holds a run already. Go on with it (--resume), or choose another folder.")
        found = read_toml(config)
        wanted = json.loads(json.dumps({**recipe.complete(), "data": _fingerprint(collection)}))
        differing = [key for key, value in wanted.items() if key != "expected" and _told(found, key) != value]
        if differing:
            raise ConfigError(
                f"{config}: the run was started with another {' and '.join(differing)}. "
                "Resume with what it was started with, or choose another folder."
            )
    elif out.is_dir() and any(path.name != ".lock" for path in out.iterdir()):
        raise ConfigError(f"{out}: not empty and not a run. Choose another folder.")
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{out}: another process is training in it. Wait for it, or choose another folder."
            ) from None
        yield


def _told(found: Mapping[str, Any], key: str) -> Any:
    return found.get("data", {}).get("fingerprint") if key == "data" else found.get(key)


def _fingerprint(collection: Collection) -> str:
    """32 hex digits that change with any clip, caption, rating or vector (not with the bytes of sounds)."""
    digest = hashlib.sha256()
    for name in ("clips.csv", "captions.csv", "ratings.csv", "clip_vectors.npz", "caption_vectors.npz"):
        path = collection.root / name
        digest.update(name.encode() + (path.read_bytes() if path.exists() else b""))
    return digest.hexdigest()[:32]


def _objectives(
    recipe: Recipe, collection: Collection, monitor_split: str, unread: set[str] | None = None
) -> tuple[list[Objective], list[Objective]]:
    """The objectives to learn from, and the same over the monitored split where that has something for them."""
    made: list[list[Objective]] = []
    for split in (TRAINED_ON, monitor_split):
        made.append(
            [
                make_objective(config, collection, split, seed=recipe.train.seed, without=unread or ())
                for config in recipe.objectives
            ]
        )
    for objective in made[0]:
        check_learnable(objective, collection, TRAINED_ON)
    monitored = [objective for objective in made[1] if len(objective.clip_ids) > 1]
    if not monitored:
        check_learnable(made[1][0], collection, monitor_split)
    return made[0], monitored


def _read(
    model: DualEncoder,
    collection: Collection,
    monitor_split: str,
    objectives: Sequence[Objective],
    progress: Progress | None,
) -> tuple[_Data, list[Problem]]:
    """The features of all clips and the base vectors of all captions that training and monitoring ask for."""
    clip_ids = {clip for objective in objectives for clip in objective.clip_ids}
    clip_ids |= {clip.clip_id for clip in collection.gallery(monitor_split)}
    caption_ids = {item.caption_id for objective in objectives for item in objective.items}
    caption_ids |= {caption.caption_id for caption in collection.query_captions(monitor_split)}
    clips = [clip for clip in collection.clips if clip.clip_id in clip_ids]
    captions = [caption for caption in collection.captions if caption.caption_id in caption_ids]
    features, problems = model.clip_features(collection, clips, progress)
    bases = torch.from_numpy(model.caption_bases(collection, captions, progress))
    return _Data(features, bases, {caption.caption_id: row for row, caption in enumerate(captions)}), problems


def uses_bf16(config: TrainConfig, model: DualEncoder) -> bool:
    """Whether the audio encoder's pass is bf16 in training: CNN14 on a machine that computes in it.

    Raises `ConfigError` where the recipe asks for it and the machine cannot.
    """
    cuda = model.device.type == "cuda"
    able = torch.cuda.is_bf16_supported() if cuda else torch.cpu._is_avx512_bf16_supported()
    if config.precision == "bf16" and not able:
        raise ConfigError('train.precision = "bf16": this machine does not compute in bf16. Take "auto" or "fp32".')
    return able and (config.precision == "bf16" or (config.precision == "auto" and isinstance(model.audio, Cnn14)))


def _plateau(optimiser: torch.optim.Optimizer, config: TrainConfig) -> torch.optim.lr_scheduler.ReduceLROnPlateau:
    is_loss = config.monitor == "val_loss"
    return torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser,
        mode="min" if is_loss else "max",
        factor=LR_FACTOR,
        patience=config.lr_patience,
        threshold=LR_THRESHOLD if is_loss else 0.0,
        threshold_mode="abs",
        min_lr=LR_LEAST,
    )


# Within the loop


def _step_seed(seed: int, step: int) -> int:
    """Dropout's seed: it depends on nothing but the run's seed and the step."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def _losses(
    model: DualEncoder, objectives: Sequence[Objective], batch: Batch, data: _Data, epoch: int, bf16: bool
) -> list[Tensor]:
    """Each objective's loss on the batch, embedded in one pass over its distinct clips and captions."""
    device = model.device
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        clips = model.embed_clips([data.window(clip, epoch).to(device) for clip in batch.clip_ids])
    captions = model.embed_bases(data.caption_bases(batch.caption_ids).to(device))
    scores = captions @ clips.T  # [caption, clip], float32 whatever the encoder computed in
    return [
        objective(scores[part.captions][:, part.clips], part.values.to(device), part.judged.to(device))
        for objective, part in zip(objectives, batch.parts, strict=True)
    ]


def _check_finite(total: Tensor, batch: Batch, where: str) -> None:
    if not torch.isfinite(total):
        raise DataError(
            f"{where}: the loss is {total.item()}, with clips {', '.join(batch.clip_ids[:3])}, … in the batch. "
            "Check those sounds (earmark data check), or lower train.lr."
        )


def _add(
    sums: dict[str, float], objectives: Sequence[Objective], batch: Batch, losses: Sequence[Tensor], total: Tensor
) -> None:
    """Adds a step's losses to the epoch's sums."""
    sums["train_loss"] = sums.get("train_loss", 0.0) + float(total.detach())
    for place, (objective, part, loss) in enumerate(zip(objectives, batch.parts, losses, strict=True)):
        sums[f"{place}.loss"] = sums.get(f"{place}.loss", 0.0) + float(loss.detach())
        floor = objective.floor(part.values, part.judged)
        sums[f"{place}.divergence"] = sums.get(f"{place}.divergence", 0.0) + float(loss.detach()) - floor


def _means(sums: Mapping[str, float], steps: int) -> dict[str, float]:
    return {name: total / steps for name, total in sums.items()}


def _validated(
    model: DualEncoder, objectives: Sequence[Objective], collection: Collection, split: str, data: _Data
) -> dict[str, float]:
    """`val_loss`: the same objectives over the monitored split, in one fixed order, every item counted; `val_mAP`."""
    clip_ids = list(data.features)
    clips = dict(zip(clip_ids, torch.from_numpy(model.embed_features(list(data.features.values()))), strict=True))
    with torch.inference_mode():
        captions = model.embed_bases(data.bases.to(model.device)).cpu()
    total = 0.0
    with torch.inference_mode():
        for place, objective in enumerate(objectives):
            summed = 0.0
            for block, step in zip(objective.passes(0, place), objective.steps(), strict=True):
                part = joined([block]).parts[0]
                rows = captions[[data.row[caption] for caption in block.caption_ids]]
                scores = rows @ torch.stack([clips[clip] for clip in block.clip_ids]).T
                summed += float(objective(scores, part.values, part.judged)) * (step.stop - step.start)
            total += objective.config.weight * summed / len(objective.items)
    gallery = [clip.clip_id for clip in collection.gallery(split) if clip.clip_id in clips]
    queries = [caption.caption_id for caption in collection.query_captions(split)]
    scores = captions[[data.row[query] for query in queries]] @ torch.stack([clips[clip] for clip in gallery]).T
    values, _ = collection.relevance("captions", split).block(queries, gallery)
    return {"val_loss": total, "val_mAP": float(np.nanmean(average_precision(scores.numpy(), values)))}


def _improved(value: float, best: float | None, monitor: str) -> bool:
    if best is None:
        return not math.isnan(value)
    return value < best if monitor == "val_loss" else value > best


# What is written


def _take_up(
    out: Path, learner: nn.Module, optimiser: torch.optim.Optimizer, plateau: torch.optim.lr_scheduler.ReduceLROnPlateau
) -> _State:
    """The state of the last checkpoint, put in place; a new one where there is none."""
    path = out / "checkpoint" / "state.safetensors"
    if not path.exists():
        return _State()
    state = _State(**checkpoint.load(path, learner, optimiser))
    plateau.load_state_dict(state.plateau)
    return state


def _save(
    out: Path,
    learner: nn.Module,
    optimiser: torch.optim.Optimizer,
    plateau: torch.optim.lr_scheduler.ReduceLROnPlateau,
    state: _State,
) -> None:
    state.plateau = plateau.state_dict()
    checkpoint.save(out / "checkpoint" / "state.safetensors", learner, optimiser, asdict(state))


def _log(out: Path, state: _State, line: Mapping[str, Any]) -> None:
    """Appends a line to `log.jsonl`, after dropping those that the state does not count."""
    path = out / "log.jsonl"
    kept = path.read_text().splitlines()[: state.log_lines] if path.exists() else []
    state.log_lines = len(kept) + 1
    write_text(path, "\n".join([*kept, json.dumps(line)]) + "\n")


def _write_config(out: Path, recipe: Recipe, collection: Collection, monitor_split: str, model: DualEncoder) -> None:
    trained_on = sorted(clip.clip_id for clip in collection.clips if clip.split in (TRAINED_ON, TRAINED_ON + LISTS))
    about = {
        "name": collection.name,
        "kind": collection.kind,
        "fingerprint": _fingerprint(collection),
        "monitor_split": monitor_split,
        "clips": trained_on,
    }
    write_text(out / "config.toml", tomli_w.dumps({**recipe.complete(), "inputs": asdict(model.inputs), "data": about}))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _card(recipe: Recipe, collection: Collection, result: Result, objectives: Sequence[Objective]) -> str:
    """The run's card: what was learned from what, and what the numbers mean."""
    audio, text = recipe.encoders.audio, recipe.encoders.text
    pretrained = audio.encoder == "cnn14" and audio.weights != "none"
    lines = [
        f"# {result.run.name}",
        "",
        f"- Data: {collection.name} ({collection.kind.upper()}), licence {collection.about.get('licence', 'not stated')}.",
        *(
            f"- Objective: {o.config.name}, weight {o.config.weight}: {len(o.items)} "
            f"{'rated lists' if o.config.of_ratings else 'captioning pairs'}, {len(o.clip_ids)} clips."
            for o in objectives
        ),
        f"- Audio encoder: {audio.encoder}"
        + (f", {audio.weights} weights" if audio.encoder == "cnn14" else f" ({collection.name}'s clip_vectors.npz)")
        + f"; text encoder: {text.encoder} (frozen).",
        f"- Seed {recipe.train.seed}; {result.epochs} epochs, the best was {result.best_epoch}.",
        f"- {result.monitor} {result.best:.4f} on {result.monitor_split}, which also stopped training: not a test result.",
        f"- Clips left out because they could not be read: {len(result.problems)}.",
    ]
    if pretrained:
        lines.append("- The pretrained audio weights saw AudioSet, whose clips may overlap with the data's sources.")
    lines.append("- The sentence encoder was trained on web text that may hold captions of the data.")
    return "\n".join(lines) + "\n"
