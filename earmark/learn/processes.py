"""Several processes that learn as one: torch.distributed in a page.

`torchrun` starts them. Each makes the same batch, embeds its share of it, and computes the whole loss on the embeddings
of all; the gradient that goes through its own rows is its part, and the parts' sum is one process's gradient. So all
take the same step and hold the same weights. What is done once is done by the first. In one process every function
here does just what it is given, and torch.distributed is not imported.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.errors import ConfigError, DataError, EarmarkError

T = TypeVar("T")

PATIENCE = timedelta(days=1)
"""The others wait so long for the first, which may read many sounds; a process that ends is noticed at once."""
APART = 1e-6
"""Share of the weights' sum by which processes may differ."""


@dataclass(frozen=True)
class _Here:
    """This process among all."""

    rank: int = 0
    count: int = 1
    store: Any = None
    """What all can ask and tell while the group stands, even where one of them is gone."""


_here = _Here()


@contextmanager
def joined() -> Iterator[None]:
    """Within the block the processes of `torchrun` are one group: NCCL where there are GPUs, one a process, else gloo.

    Only the first one's warnings are shown. Raises `ConfigError` where the environment is not torchrun's whole one.
    """
    global _here
    if _here.count > 1 or _number("WORLD_SIZE", 1) == 1:
        yield
        return
    import torch.distributed as dist

    _here = _met()
    try:
        with warnings.catch_warnings():
            if not is_first():
                warnings.simplefilter("ignore")
            yield
    finally:
        _here = _Here()
        dist.destroy_process_group()


def _met() -> _Here:
    """This process, once all of them are there."""
    import torch.distributed as dist

    # before there is a group, which it would keep in its functions' defaults (Adam imports it): gloo's threads would
    # outlive the block, and now and then abort the process at its end
    import torch.distributed.nn.functional
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    rank, count, local = (_number(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    gpus = torch.cuda.device_count()
    if 0 < gpus <= local:
        raise ConfigError(f"LOCAL_RANK = {local} with {gpus} GPUs; expected a GPU a process. Start fewer processes.")
    if gpus:
        torch.cuda.set_device(local)  # "cuda" is this one from now on
    with _together(count):
        agent, _, _ = next(rendezvous("env://"))
        store = PrefixStore(f"attempt {_number('TORCHELASTIC_RESTART_COUNT', 0)}", agent)  # after a restart: anew
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    return _Here(rank, count, store)


def _number(name: str, usual: int | None = None) -> int:
    found = os.environ.get(name, "")
    if not found and usual is not None:
        return usual
    if not found.isdigit():
        raise ConfigError(f"{name} = {found!r} in the environment; expected a number. Start it by torchrun.")
    return int(found)


@contextmanager
def _together(count: int) -> Iterator[None]:
    """Turns the failure of what all do together into a `DataError`."""
    try:
        yield
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0].split(". ")[0]
        raise DataError(
            f"another of the {count} processes ended or cannot be reached ({first}). See what it said, and --resume."
        ) from error


@contextmanager
def one_voice(code: int) -> Iterator[None]:
    """Within the block an error is raised by the process that meets it first; the others end with the exit code."""
    try:
        yield
    except (EarmarkError, OSError):
        if not _speaks():
            time.sleep(1)  # as soon as one has ended, torchrun ends all: the one that speaks is to have spoken
            raise SystemExit(code) from None
        raise


def _speaks() -> bool:
    """Whether no other process has told of an error before."""
    if _here.count == 1:
        return True
    try:
        return bool(_here.store.add("errors", 1) == 1)
    except RuntimeError:  # the store went with the process that had an error
        return False


def rank() -> int:
    """This process's number, from 0."""
    return _here.rank


def is_first() -> bool:
    """Whether this is the one process that writes and speaks."""
    return _here.rank == 0


# What all do together


def first(make: Callable[[], T]) -> T:
    """What `make` gives in the first process, in all of them; what it raises there is raised in all."""
    if _here.count == 1:
        return make()
    import torch.distributed as dist

    told: list[Any] = [None, None]
    if is_first():
        try:
            told[0] = make()
        except (EarmarkError, OSError) as error:
            told[1] = error
    with _together(_here.count):
        dist.broadcast_object_list(told, src=0)
    if told[1] is not None:
        raise told[1]
    made: T = told[0]
    return made


def in_turn(make: Callable[[], T]) -> T:
    """What `make` gives in this process; the others begin when the first is done, and find what it left in caches."""
    made: list[T] = []
    first(lambda: made.extend([make()]))
    return made[0] if made else make()


def check_same(what: str, value: Any) -> None:
    """Raises `DataError` where the value is not that of the first process."""
    if first(lambda: value) != value:
        raise DataError(f"process {rank()} has other {what} than the first. Give all of them the same files.")


def shared(items: Sequence[T], embed: Callable[[Sequence[T]], Tensor], like: Tensor) -> Tensor:
    """The rows [item, dim] that `embed` makes of the items, in every process, each having embedded its own share.

    Shares are slices, the first ones the longer ones; the last may be empty. Backward ends at the own rows. Rows have
    the type and device of `like` [0, dim].
    """
    if _here.count == 1:
        return embed(items)
    import torch.distributed as dist

    bounds = [-(-len(items) * place // _here.count) for place in range(_here.count + 1)]
    mine = items[bounds[rank()] : bounds[rank() + 1]]
    # without a share there is still something for backward to end at
    own = embed(mine) if mine else like.clone().requires_grad_(torch.is_grad_enabled())
    padded = F.pad(own.detach(), (0, 0, 0, bounds[1] - len(mine))).contiguous()
    parts = [torch.empty_like(padded) for _ in range(_here.count)]
    with _together(_here.count):
        dist.all_gather(parts, padded)
    rows = [part[: stop - start] for part, (start, stop) in zip(parts, pairwise(bounds), strict=True)]
    rows[rank()] = own
    return torch.cat(rows)


@torch.no_grad()
def add_up(encoders: nn.Module, objectives: nn.Module) -> None:
    """Brings all processes to one gradient after backward, and to one state.

    The encoders' gradients are summed: each process has the part of its own rows. Those of the objectives (learned
    temperatures) each has whole: the first one's count. Running statistics of batch-norm become their mean.
    """
    if _here.count == 1:
        return
    learned = _gradients(objectives)
    if not is_first():
        for each in learned:
            each.zero_()
    running = list(_running_statistics(encoders))
    for each in running:
        each /= _here.count
    for some in ([*_gradients(encoders), *running], learned):  # apart: they may be on different devices
        _sum(some)


def _gradients(module: nn.Module) -> list[Tensor]:
    """The gradients of all that learns, zeros where this process has none."""
    found = []
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            found.append(parameter.grad)
    return found


def _running_statistics(module: nn.Module) -> Iterator[Tensor]:
    for each in module.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.training and each.running_mean is not None:
            assert each.running_var is not None
            yield from (each.running_mean, each.running_var)


def _sum(tensors: Sequence[Tensor]) -> None:
    """Puts in place of each tensor its sum over processes, in one exchange."""
    if not tensors:
        return
    import torch.distributed as dist

    flat = torch.cat([each.flatten() for each in tensors])
    with _together(_here.count):
        dist.all_reduce(flat)
    for each, summed in zip(tensors, flat.split([each.numel() for each in tensors]), strict=True):
        each.copy_(summed.view(each.shape))


@torch.no_grad()
def take_first_weights(module: nn.Module) -> None:
    """Puts the first process's weights in place."""
    if _here.count == 1:
        return
    import torch.distributed as dist

    for each in module.state_dict().values():
        whole = each.contiguous()
        with _together(_here.count):
            dist.broadcast(whole, src=0)
        each.copy_(whole)


@torch.no_grad()
def check_same_weights(module: nn.Module) -> None:
    """Raises `DataError` where the weights' absolute sum differs from the first process's."""
    if _here.count == 1:
        return
    own = sum(float(each.double().abs().sum()) for each in module.parameters())
    of_first = first(lambda: own)
    if abs(own - of_first) > APART * of_first:
        raise DataError(
            f"the weights of process {rank()} have come apart from the first one's (absolute sum {own}; expected "
            f"{of_first}). Go on from the last checkpoint with --resume."
        )
