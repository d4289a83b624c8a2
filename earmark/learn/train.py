"""Training: one visible loop over epochs and steps, which can be killed at any moment and taken up again.

Everything random follows from the seed and the number of the step, and a checkpoint holds the rest, so a run
that was killed and resumed ends bit-equal to one that was not (on the same machine).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from earmark.data.collection import LISTS, Collection
from earmark.data.splits import TRAINED_ON, with_monitor_split
from earmark.data.vectors import products
from earmark.errors import ConfigError, DataError, Problem
from earmark.learn import processes, run
from earmark.learn.batches import Batch, batch_at, steps_an_epoch
from earmark.learn.card import write_card
from earmark.learn.checkpoint import Learner
from earmark.learn.estimates import Estimates, estimates_of
from earmark.learn.inputs import Inputs, read_inputs
from earmark.learn.objectives import Objective, check_learnable, make_objective, unlearned
from earmark.learn.recipe import Recipe, TrainConfig
from earmark.learn.run import Result
from earmark.measure.evaluate import query_blocks
from earmark.measure.metrics import average_precision
from earmark.model.dual_encoder import DualEncoder
from earmark.model.reading import one_thread
from earmark.model.text_encoders import Progress
from earmark.model.towers import best_device

CHECKPOINT_S = 300.0
"""Seconds between checkpoints within an epoch; there is one after every epoch too."""


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
    """What came of training the recipe's model on the collection, into the folder `out`.

    `report` is given each epoch's line of the log. Raises `DataError` where the collection lacks what the
    recipe needs or a loss is not finite, `ConfigError` where `out` holds another run.
    """
    config = recipe.train
    spared = config.monitor != "last"
    collection, monitor_split = with_monitor_split(collection, config.monitor_split, config.seed, spared=spared)
    with processes.joined(), run.claimed(out, recipe, collection, resume):
        if not processes.is_first():
            progress = report = None
        if progress:
            progress("looking up the encoders", 0, 1)
        model = processes.in_turn(
            lambda: DualEncoder.for_collection(recipe.encoders, collection, seed=config.seed).to(best_device())
        )
        bf16 = uses_bf16(config, model)
        whole = collection
        collection, unread = _readable(model, whole, monitor_split)
        objectives, monitored, inputs, problems = processes.in_turn(
            lambda: _prepared(recipe, collection, monitor_split, model, progress)
        )
        seen = {clip for objective in objectives for clip in objective.clip_ids}
        processes.check_same("recipe, captions or readable clips", (recipe, list(inputs.row), list(inputs.features)))
        processes.first(lambda: run.write_config(out, recipe, whole, monitor_split, model, sorted(seen)))
        learner = Learner(model, objectives, config)
        latest, best = out / "checkpoint" / "latest.safetensors", out / "checkpoint" / "best.safetensors"
        if processes.first(latest.exists):
            learner.take_up(latest)
        elif config.max_epochs == 0:
            processes.first(lambda: learner.save_weights(best))
        processes.take_first_weights(learner)
        state = learner.state
        with _threads_for(model):
            while not state.finished and state.epoch < config.max_epochs:
                started = time.monotonic()
                losses = _epoch(learner, inputs, bf16, latest, progress, checkpoint_s)
                measured = _validated(model, monitored, collection, monitor_split, inputs)
                lr = learner.optimiser.param_groups[0]["lr"]
                _check_defined(measured[config.watched], config.watched, monitor_split)
                if learner.judge(measured[config.watched]):
                    processes.first(lambda: learner.save_weights(best))
                line = {"epoch": state.epoch, "step": state.step, **losses, **measured, "lr": lr}
                line |= {"best_epoch": state.best_epoch, "seconds": round(time.monotonic() - started, 3)}
                state.log_lines = processes.first(partial(run.write_log, out, state.log_lines, line))
                processes.first(lambda: learner.save(latest))
                processes.check_same_weights(learner)
                if report:
                    report(line)
        best_value = math.nan if state.best is None else state.best
        result = Result(
            out,
            state.epoch,
            state.best_epoch,
            config.watched,
            best_value,
            monitor_split,
            spared,
            unlearned(objectives, collection, TRAINED_ON),
            [*unread, *problems],
        )
        processes.first(lambda: _finish(learner, best, recipe, collection, result))
    return result


def _finish(learner: Learner, best: Path, recipe: Recipe, collection: Collection, result: Result) -> None:
    """Writes the best epoch's model and the card."""
    learner.load_weights(best)
    write_card(recipe, collection, result, learner.objectives)
    learner.model.save(result.run)  # last: a run that has its model is whole


# Before the loop


def _readable(model: DualEncoder, collection: Collection, monitor_split: str) -> tuple[Collection, list[Problem]]:
    """The collection without captions that cannot be read, and which of those that are asked for these are."""
    splits = {split + end for split in (TRAINED_ON, monitor_split) for end in ("", LISTS)}
    inside = {clip.clip_id for clip in collection.clips if clip.split in splits}
    asked = {caption.caption_id for caption in collection.captions if caption.clip_id in inside}
    return model.with_caption_features(collection, asked)


def _prepared(
    recipe: Recipe, collection: Collection, monitor_split: str, model: DualEncoder, progress: Progress | None
) -> tuple[list[Objective], list[Objective], Inputs, list[Problem]]:
    """The objectives to learn from, those over the monitored split, what they ask for, and what cannot be read."""
    estimates = estimates_of(recipe, collection, monitor_split, model, progress)
    objectives, monitored = _objectives(recipe, collection, monitor_split, estimates)
    inputs, problems = read_inputs(model, collection, monitor_split, [*objectives, *monitored], progress)
    if problems:  # once more, without the clips that could not be read
        unread = {clip.clip_id for clip in collection.clips} - set(inputs.features)
        try:
            objectives, monitored = _objectives(recipe, collection, monitor_split, estimates, unread)
        except DataError as error:
            raise DataError(f"{error} {len(problems)} clips could not be read, the first: {problems[0]}") from error
    for objective in [*objectives, *monitored]:
        if (known := estimates.get(objective.config.relevance)) is not None:
            known.check_known(list(objective.clip_ids), objective.config.relevance)
    return objectives, monitored, inputs, problems


def _objectives(
    recipe: Recipe,
    collection: Collection,
    monitor_split: str,
    estimates: Mapping[str, Estimates] | None = None,
    unread: Iterable[str] = (),
) -> tuple[list[Objective], list[Objective]]:
    """The objectives to learn from, and the same over the monitored split where that has something for them."""

    def over(split: str) -> list[Objective]:
        seed = recipe.train.seed
        known = ((estimates or {}).get(config.relevance) for config in recipe.objectives)
        return [
            make_objective(config, collection, split, seed=seed, without=unread, estimates=each)
            for config, each in zip(recipe.objectives, known, strict=True)
        ]

    objectives, monitored = over(TRAINED_ON), over(monitor_split)
    for objective in objectives:
        check_learnable(objective, collection, TRAINED_ON)
    for mine, watched in zip(objectives, monitored, strict=True):
        watched.share_temperature(mine)
    able = [objective for objective in monitored if len(objective.clip_ids) > 1]
    for objective in monitored:
        if objective not in able:
            warnings.warn(
                f"{objective.config.name} has nothing in {monitor_split!r}: val_loss leaves it out", stacklevel=2
            )
    if not able:
        check_learnable(monitored[0], collection, monitor_split)
    return objectives, able


def uses_bf16(config: TrainConfig, model: DualEncoder) -> bool:
    """Whether the encoders' pass is bf16 in training: where the machine computes in it, and it is asked for or pays.

    Raises `ConfigError` where the recipe asks for it and the machine cannot.
    """
    cuda = model.device.type == "cuda"
    able = torch.cuda.is_bf16_supported() if cuda else torch.cpu._is_avx512_bf16_supported()
    if config.precision == "bf16" and not able:
        raise ConfigError('train.precision = "bf16": this machine does not compute in bf16. Take "auto" or "fp32".')
    pays = model.audio.tower is not None and model.audio.tower.in_bf16
    return able and (config.precision == "bf16" or (config.precision == "auto" and pays))


# Within the loop


def _threads_for(model: DualEncoder) -> AbstractContextManager[None]:
    """One thread where heads alone learn: they are so small that several would wait for each other."""
    towers_learn = model.audio.tower is not None or model.text.tower is not None
    return nullcontext() if towers_learn else one_thread()


def _epoch(
    learner: Learner, inputs: Inputs, bf16: bool, latest: Path, progress: Progress | None, checkpoint_s: float
) -> dict[str, float]:
    """The mean losses of an epoch's steps, from where the learner stands; the learner has learned from them."""
    config, state = learner.config, learner.state
    objectives = learner.objectives
    steps = steps_an_epoch(objectives)
    saved = time.monotonic()
    learner.train()
    for within in range(state.step - state.epoch * steps, steps):
        torch.manual_seed(_step_seed(config.seed, state.step, processes.rank()))
        batch = batch_at(objectives, state.step, config.seed)
        losses = _losses(learner.model, objectives, batch, inputs, state.epoch, bf16)
        total = torch.stack([o.config.weight * loss for o, loss in zip(objectives, losses, strict=True)]).sum()
        _check_finite(total, batch, f"epoch {state.epoch + 1}, step {within + 1} of {steps}")
        learner.optimiser.zero_grad()
        total.backward()
        processes.add_up(learner.model, learner.learned)
        learner.optimiser.step()
        for objective in objectives:
            objective.keep_within()
        state.step += 1
        _add(state.sums, objectives, batch, losses, total)
        if progress:
            progress(f"epoch {state.epoch + 1} of at most {config.max_epochs}", within + 1, steps)
        if processes.is_first() and time.monotonic() - saved > checkpoint_s and within + 1 < steps:
            learner.save(latest)
            saved = time.monotonic()
    means = {name: total / steps for name, total in state.sums.items()}
    state.epoch, state.sums = state.epoch + 1, {}
    return means


def _step_seed(seed: int, step: int, rank: int) -> int:
    """Dropout's seed: it depends on nothing but the run's seed, the step and the process."""
    entropy = [seed, step, rank] if rank else [seed, step]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


def _losses(
    model: DualEncoder, objectives: Sequence[Objective], batch: Batch, inputs: Inputs, epoch: int, bf16: bool
) -> list[Tensor]:
    """Each objective's loss on the batch, embedded in one pass over its distinct clips and captions."""
    device = model.device
    none = torch.zeros(0, model.dim, device=device)

    def embed_clips(clip_ids: Sequence[str]) -> Tensor:
        return model.embed_clips([inputs.window(clip, epoch) for clip in clip_ids])

    def embed_captions(caption_ids: Sequence[str]) -> Tensor:
        return model.embed_captions(inputs.captions_of(caption_ids))

    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        clips = processes.shared(batch.clip_ids, embed_clips, none)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16 and model.text.tower is not None):
        captions = processes.shared(batch.caption_ids, embed_captions, none)
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


def _check_defined(value: float, monitor: str, split: str) -> None:
    if not math.isfinite(value):
        raise DataError(f"{monitor} on {split!r} is {value}: nothing to watch. Check the split, or lower train.lr.")


def _add(
    sums: dict[str, float], objectives: Sequence[Objective], batch: Batch, losses: Sequence[Tensor], total: Tensor
) -> None:
    """Adds a step's losses to the epoch's sums: the total, each objective's, and ListNet's excess over its floor."""
    found = {"train_loss": float(total.detach())}
    names = [objective.config.name for objective in objectives]
    for place, (objective, part, loss) in enumerate(zip(objectives, batch.parts, losses, strict=True)):
        name = names[place] if names.count(names[place]) == 1 else f"{names[place]} {place}"
        found[name] = float(loss.detach())
        if objective.config.loss == "listnet":
            found[f"{name} divergence"] = found[name] - objective.floor(part.values, part.judged)
    for name, value in found.items():
        sums[name] = sums.get(name, 0.0) + value


@torch.inference_mode()
def _validated(
    model: DualEncoder, objectives: Sequence[Objective], collection: Collection, split: str, inputs: Inputs
) -> dict[str, float]:
    """`val_loss` and `val_mAP` on the monitored split.

    The loss is the same objectives over their items in one fixed order, in steps of the same size, the short tail
    counted by its items.
    """
    wanted = dict.fromkeys(clip for objective in objectives for clip in objective.clip_ids)
    gallery = [clip.clip_id for clip in collection.gallery(split) if clip.clip_id in inputs.features]
    wanted |= dict.fromkeys(gallery)
    place = {clip: at for at, clip in enumerate(wanted)}
    none = torch.zeros(0, model.dim)

    def embed_clips(clip_ids: Sequence[str]) -> Tensor:
        return torch.from_numpy(model.embed_features([inputs.features[clip] for clip in clip_ids]))

    def embed_captions(caption_ids: Sequence[str]) -> Tensor:
        return torch.from_numpy(model.embed_text_features(inputs.captions_of(caption_ids)))

    clips = processes.shared(list(wanted), embed_clips, none)
    unread = {clip.clip_id for clip in collection.gallery(split)} - set(inputs.features)
    queries = [caption.caption_id for caption in collection.query_captions(split, unread)]
    asked = dict.fromkeys([*queries, *(item.caption_id for objective in objectives for item in objective.items)])
    row = {caption: at for at, caption in enumerate(asked)}
    captions = processes.shared(list(asked), embed_captions, none)

    def scores(caption_ids: Sequence[str], clip_ids: Sequence[str]) -> Tensor:
        asked, sounds = captions[[row[c] for c in caption_ids]], clips[[place[c] for c in clip_ids]]
        return torch.from_numpy(products(asked.numpy(), sounds.numpy()))

    return processes.first(lambda: _measured(objectives, collection, split, queries, gallery, scores))


def _measured(
    objectives: Sequence[Objective],
    collection: Collection,
    split: str,
    queries: Sequence[str],
    gallery: Sequence[str],
    scores: Callable[[Sequence[str], Sequence[str]], Tensor],
) -> dict[str, float]:
    total = 0.0
    for at, objective in enumerate(objectives):
        summed = 0.0
        for block, step in zip(objective.passes(0, at), objective.steps(), strict=True):
            loss = objective(scores(block.caption_ids, block.clip_ids), block.values, block.judged)
            summed += float(loss) * (step.stop - step.start)
        total += objective.config.weight * summed / len(objective.items)
    relevance = collection.relevance("captions", split)
    precision = [
        average_precision(scores(some, gallery).numpy(), relevance.block(some, gallery)[0])
        for some in query_blocks(queries)
    ]
    return {"val_loss": total, "val_mAP": float(np.nanmean(np.concatenate(precision)))}
