"""The two losses: cross entropies over the judged pairs of a block of captions × clips.

Scores are cosine similarities; values are relevances in [0, 1]; judged says which pairs anybody knows about.
All three are [caption, clip]. Unjudged pairs, and pairs that are neither positive nor 0, are left out by masks.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from earmark.errors import ConfigError, DataError

Target = Literal["phi", "linear", "softmax"]
LOGITS_APART = 80.0
"""e^−80 is about the smallest number that float32 holds whole; cosines over τ = 0.07 lie 29 apart at most."""


def check_block(scores: Tensor, values: Tensor, judged: Tensor) -> None:
    """Raises `DataError` where the three are not of one shape [caption, clip]."""
    if scores.ndim != 2 or scores.shape != values.shape or scores.shape != judged.shape:
        shapes = f"{tuple(scores.shape)}, {tuple(values.shape)}, {tuple(judged.shape)}"
        raise DataError(f"scores, values, judged have shapes {shapes}; expected one shape [caption, clip]")


def infonce(
    scores: Tensor, values: Tensor, judged: Tensor, *, temperature: float | Tensor, positive: float = 0.5
) -> Tensor:
    """The mean over positive pairs of −log(e^s⁺ / (e^s⁺ + Σ e^s)), captions' direction plus clips' direction.

    s = score / temperature; the sum runs over the judged pairs of value 0 in the positive pair's row (then, in
    its column). A positive pair has a value of `positive` or more, so a clip's other captions, and clips that
    bear the same text, are never each other's negatives. With B pairs and equal scores it is 2·ln B. Without a
    positive pair it is 0. Paper, section 2.2 (sum of both directions); InfoNCE: van den Oord et al., 2018.
    """
    check_block(scores, values, judged)
    rows, columns = (judged & (values >= positive)).nonzero(as_tuple=True)
    if not len(rows):
        return scores.sum() * 0
    logits = scores / temperature
    own = logits[rows, columns]
    of_row, of_column = _log_sums(logits, ~judged | (values != 0))
    # softplus(rest − s⁺) = −log(e^s⁺ / (e^s⁺ + e^rest)); without negatives rest is −∞ and nothing is lost
    return F.softplus(of_row[rows] - own).mean() + F.softplus(of_column[columns] - own).mean()


def _log_sums(logits: Tensor, without: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ e^s of each row and of each column, `without` left out; −∞ of none.

    One exponential serves both directions, unless the logits lie so far apart that it would lose the small ones.
    """
    lowest, highest = logits.detach().aminmax()
    others = logits.masked_fill(without, -torch.inf)
    if highest - lowest > LOGITS_APART:
        return others.logsumexp(dim=1), others.logsumexp(dim=0)
    shares = others.sub_(highest).exp_()  # in place: at this size memory takes longer than arithmetic
    sums = shares.sum(dim=1), shares.sum(dim=0)
    row, column = ((each.masked_fill(each == 0, 1).log() + highest).masked_fill(each == 0, -torch.inf) for each in sums)
    return row, column


def listnet(
    scores: Tensor,
    values: Tensor,
    judged: Tensor,
    *,
    temperature: float | Tensor,
    target: Target = "phi",
    target_temperature: float = 1.0,
) -> Tensor:
    """The mean over rated lists (rows) of −Σ p(y) log q(y), in nats. Paper, equations 1–4.

    q is the softmax of score / temperature over a row's judged clips; p is `top_one` of its values, which alone reads
    `target_temperature`. A row whose
    judged values are all 0 has no target and is left out of the sum and of the count; without any other row
    the loss is 0.
    """
    check_block(scores, values, judged)
    kept = (judged & (values > 0)).any(dim=1)
    if not kept.any():
        return scores.sum() * 0
    p = top_one(values[kept], judged[kept], target, target_temperature)
    logits = torch.where(judged[kept], scores[kept] / temperature, -torch.inf)
    log_q = torch.where(judged[kept], logits.log_softmax(dim=1), 0)
    return -(p * log_q).sum(dim=1).mean()


def top_one(values: Tensor, judged: Tensor, target: Target = "phi", target_temperature: float = 1.0) -> Tensor:
    """Each clip's probability of standing on top, [caption, clip], rows summing to 1 (0 for unjudged clips).

    "phi" is φ(s) = s / log2(r(s) + 1), r the descending rank where equal ratings share the smallest (paper,
    equation 2); it does not depend on the ratings' scale. "linear" is s itself; "softmax" is e^(s / target_temperature)
    over s in 0–1, at 1 the original ListNet's (Cao et al., 2007), below it distillation's sharper one (Hinton et al.,
    2015).
    """
    if target == "softmax":
        return torch.where(judged, values / target_temperature, -torch.inf).softmax(dim=1)
    if target not in ("phi", "linear"):
        raise ConfigError(f'target={target!r}; expected "phi", "linear" or "softmax"')
    gain = torch.where(judged, values, 0)
    if target == "phi":
        gain = gain / torch.log2(descending_rank(gain) + 1)  # unjudged clips stand at 0, below or level with all
    return gain / gain.sum(dim=1, keepdim=True)


def descending_rank(values: Tensor) -> Tensor:
    """1 + how many values of the row are larger: equal values share the smallest rank ("min")."""
    ascending = values.sort(dim=1).values
    not_larger = torch.searchsorted(ascending, values.contiguous(), right=True)
    return (values.shape[1] - not_larger + 1).to(values.dtype)  # log2 of whole numbers would round to float32


def divergence_floor(values: Tensor, judged: Tensor, target: Target = "phi", target_temperature: float = 1.0) -> Tensor:
    """The mean entropy of the rows' targets in nats: the least that `listnet` can reach on them."""
    kept = (judged & (values > 0)).any(dim=1)
    if not kept.any():
        return values.sum() * 0
    p = top_one(values[kept], judged[kept], target, target_temperature)
    floor: Tensor = torch.special.entr(p).sum(dim=1).mean()
    return floor
