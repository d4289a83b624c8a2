"""InfoNCE at 512 pairs, forward and backward, against a loop over anchors.

    python benchmarks/losses.py

Both give the same loss and gradient (checked); medians of repeated runs, one after the other. The ratio must be 100.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from earmark.learn.losses import infonce

PAIRS, TEMPERATURE, BOUND = 512, 0.07, 100


def looped(scores: Tensor, values: Tensor) -> Tensor:
    """The definition, anchor by anchor, each with a log-softmax of its positive against its negatives."""
    total = scores.new_zeros(())
    for matrix, relevant in ((scores, values), (scores.T, values.T)):
        losses = []
        for anchor in range(len(matrix)):
            row = matrix[anchor] / TEMPERATURE
            negatives = row[relevant[anchor] == 0]
            for positive in row[relevant[anchor] == 1]:
                losses.append(torch.cat([positive[None], negatives]).logsumexp(0) - positive)
        total = total + torch.stack(losses).mean()
    return total


def seconds(loss: Callable[[Tensor], Tensor], scores: Tensor, repeats: int) -> tuple[float, Tensor, Tensor]:
    """The median time of a forward and a backward pass, the first one left out, the loss, the gradient."""
    times = []
    for _ in range(repeats + 1):
        leaf = scores.clone().requires_grad_()
        started = time.perf_counter()
        value = loss(leaf)
        value.backward()
        times.append(time.perf_counter() - started)
    assert leaf.grad is not None
    return statistics.median(times[1:]), value.detach(), leaf.grad


def main() -> int:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(PAIRS, PAIRS, generator=generator) * 2 - 1
    values, judged = torch.eye(PAIRS), torch.ones(PAIRS, PAIRS, dtype=torch.bool)
    slow, slow_value, slow_gradient = seconds(lambda s: looped(s, values), scores, 5)
    fast, fast_value, fast_gradient = seconds(lambda s: infonce(s, values, judged, temperature=TEMPERATURE), scores, 50)
    torch.testing.assert_close(fast_value, slow_value)
    torch.testing.assert_close(fast_gradient, slow_gradient, atol=1e-6, rtol=1e-4)
    ratio = slow / fast
    print(f"InfoNCE at {PAIRS} pairs: loop {1e3 * slow:.1f} ms, earmark {1e3 * fast:.2f} ms, ratio {ratio:.0f}")
    return int(ratio < BOUND)


if __name__ == "__main__":
    sys.exit(main())
