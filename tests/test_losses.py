"""Formulas against a second computation, written as plain loops over the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from earmark.errors import ConfigError, DataError
from earmark.learn.losses import descending_rank, divergence_floor, infonce, listnet, top_one

BLOCKS = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, shape, elements=st.floats(-1, 1)),
        arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.0, 0.2, 0.5, 0.7, 1.0])),
        arrays(np.bool_, shape, elements=st.booleans()),
    )
)


def looped_infonce(scores, values, judged, temperature):
    losses = {"rows": [], "columns": []}
    n_captions, n_clips = scores.shape
    for caption in range(n_captions):
        for clip in range(n_clips):
            if not judged[caption, clip] or values[caption, clip] < 0.5:
                continue
            own = math.exp(scores[caption, clip] / temperature)
            row = [j for j in range(n_clips) if judged[caption, j] and values[caption, j] == 0]
            column = [i for i in range(n_captions) if judged[i, clip] and values[i, clip] == 0]
            losses["rows"].append(-math.log(own / (own + sum(math.exp(scores[caption, j] / temperature) for j in row))))
            losses["columns"].append(
                -math.log(own / (own + sum(math.exp(scores[i, clip] / temperature) for i in column)))
            )
    return sum(sum(each) / len(each) for each in losses.values() if each)


def looped_listnet(scores, values, judged, temperature):
    losses = []
    for s, v, known in zip(scores, values, judged, strict=True):
        at = [i for i in range(len(s)) if known[i]]
        phi = [v[i] / math.log2(1 + sum(v[j] > v[i] for j in at) + 1) for i in at]
        if sum(phi) == 0:
            continue
        q = {i: math.exp(s[i] / temperature) / sum(math.exp(s[j] / temperature) for j in at) for i in at}
        losses.append(-sum(f / sum(phi) * math.log(q[i]) for f, i in zip(phi, at, strict=True)))
    return sum(losses) / len(losses) if losses else 0.0


@given(BLOCKS)
def test_infonce_equals_a_loop_over_its_definition(block):
    scores, values, judged = block
    got = infonce(*map(torch.from_numpy, block), temperature=0.3)
    assert got.item() == pytest.approx(looped_infonce(scores, values, judged, 0.3), abs=1e-9)


@given(BLOCKS, st.sampled_from([0.02, 0.07]))
def test_infonce_is_the_same_whether_logits_lie_near_or_far_apart(block, temperature):
    scores, values, judged = map(torch.from_numpy, block)
    exact = []
    for apart in (0.0, 1e9):
        leaf = scores.clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("earmark.learn.losses.LOGITS_APART", apart)
            loss = infonce(leaf, values, judged, temperature=temperature)
        loss.backward()
        exact.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(*(each[0] for each in exact))
    torch.testing.assert_close(*(each[1] for each in exact))


@given(BLOCKS)
def test_listnet_equals_a_loop_over_its_definition(block):
    got = listnet(*map(torch.from_numpy, block), temperature=0.3)
    assert got.item() == pytest.approx(looped_listnet(*block, 0.3), abs=1e-9)


@given(BLOCKS)
def test_gradients_are_finite_and_vanish_for_unjudged_pairs(block):
    scores, values, judged = map(torch.from_numpy, block)
    for loss in (infonce, listnet):
        leaf = scores.clone().requires_grad_()
        loss(leaf, values, judged, temperature=0.07).backward()
        assert torch.isfinite(leaf.grad).all()
        assert (leaf.grad[~judged] == 0).all()


def test_losses_at_chance():
    eye = torch.eye(32)
    everything = torch.ones(32, 32, dtype=torch.bool)
    assert infonce(torch.zeros(32, 32), eye, everything, temperature=0.07).item() == pytest.approx(2 * math.log(32))
    values = torch.rand(3, 17, generator=torch.Generator().manual_seed(0))
    judged = torch.ones(3, 17, dtype=torch.bool)
    assert listnet(torch.zeros(3, 17), values, judged, temperature=0.1).item() == pytest.approx(math.log(17))


@pytest.mark.case("N01")
def test_captions_of_one_clip_and_equal_captions_are_not_pushed_apart():
    # captions 0 and 1 belong to clip 0, and caption 2 (of clip 1) has the same text as caption 3 (of clip 2)
    values = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1]])
    scores = torch.zeros(4, 3, requires_grad=True)
    infonce(scores, values, torch.ones(4, 3, dtype=torch.bool), temperature=0.07).backward()
    assert (scores.grad[values == 1] < 0).all()  # every positive pair is pulled together
    assert (scores.grad[values == 0] > 0).all()


@pytest.mark.case("N11")
def test_infonce_and_listnet_do_not_grow_with_copies_of_the_batch():
    generator = torch.Generator().manual_seed(1)
    scores, values = torch.rand(4, 5, generator=generator), torch.rand(4, 5, generator=generator)
    judged = torch.ones(4, 5, dtype=torch.bool)
    once = listnet(scores, values, judged, temperature=0.1)
    twice = listnet(scores.repeat(2, 1), values.repeat(2, 1), judged.repeat(2, 1), temperature=0.1)
    assert twice.item() == pytest.approx(once.item(), rel=1e-6)
    block = torch.block_diag(torch.eye(4), torch.eye(4))
    judged = torch.block_diag(torch.ones(4, 4), torch.ones(4, 4)).bool()  # two independent batches in one call
    pairs = torch.rand(4, 4, generator=generator)
    once = infonce(pairs, torch.eye(4), torch.ones(4, 4, dtype=torch.bool), temperature=0.1)
    assert infonce(torch.block_diag(pairs, pairs), block, judged, temperature=0.1).item() == pytest.approx(once.item())


def test_middling_relevance_is_neither_positive_nor_negative():
    values = torch.tensor([[1.0, 0.3, 0.0]])
    scores = torch.zeros(1, 3, requires_grad=True)
    infonce(scores, values, torch.ones(1, 3, dtype=torch.bool), temperature=0.1).backward()
    assert scores.grad[0, 1] == 0
    assert scores.grad[0, 2] > 0


def test_target_of_the_paper_on_a_small_list():
    values = torch.tensor([[0.5, 1.0, 0.5, 0.0]])
    phi = np.array([0.5 / math.log2(3), 1.0, 0.5 / math.log2(3), 0.0])  # both 0.5 share rank 2
    got = top_one(values, torch.ones(1, 4, dtype=torch.bool))
    np.testing.assert_allclose(got[0].numpy(), phi / phi.sum(), rtol=1e-6)


def test_rank_shares_the_smallest():
    assert descending_rank(torch.tensor([[3.0, 1, 3, 2, 1]])).tolist() == [[1, 4, 1, 3, 4]]


@given(st.floats(0.01, 100))
def test_phi_does_not_depend_on_the_scale(scale):
    values = torch.tensor([[0.2, 0.9, 0.2, 0.0, 0.55]], dtype=torch.float64)
    everything = torch.ones(1, 5, dtype=torch.bool)
    torch.testing.assert_close(top_one(values, everything), top_one(values * scale, everything))


def test_order_within_a_list_changes_nothing():
    generator = torch.Generator().manual_seed(0)
    values = torch.tensor([[1.0, 0.5, 0.5, 0.5, 0, 0]])
    scores, judged = torch.rand(1, 6, generator=generator), torch.ones(1, 6, dtype=torch.bool)
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    first = listnet(scores, values, judged, temperature=0.1)
    assert listnet(scores[:, order], values[:, order], judged, temperature=0.1).item() == pytest.approx(first.item())


def test_a_list_of_zeros_is_left_out_of_sum_and_count():
    scores = torch.tensor([[0.3, 0.1], [0.2, 0.9]])
    judged = torch.ones(2, 2, dtype=torch.bool)
    both = listnet(scores, torch.tensor([[1.0, 0.5], [0.0, 0.0]]), judged, temperature=0.1)
    alone = listnet(scores[:1], torch.tensor([[1.0, 0.5]]), judged[:1], temperature=0.1)
    assert both.item() == alone.item()
    assert listnet(scores, torch.zeros(2, 2), judged, temperature=0.1).item() == 0


def test_listnet_reaches_the_entropy_of_its_target_and_no_less():
    values = torch.tensor([[1.0, 0.5, 0.2]], dtype=torch.float64)
    judged = torch.ones(1, 3, dtype=torch.bool)
    floor = divergence_floor(values, judged)
    best = top_one(values, judged).log() * 0.1
    assert listnet(best, values, judged, temperature=0.1).item() == pytest.approx(floor.item())
    assert listnet(best + torch.tensor([[0, 0.1, 0]]), values, judged, temperature=0.1) > floor


def test_wrong_shapes_and_targets_are_refused():
    block = torch.zeros(2, 3)
    with pytest.raises(DataError, match="one shape"):
        infonce(block, block.T, block.bool(), temperature=0.1)
    with pytest.raises(ConfigError, match="target="):
        listnet(block, block + 1, block.bool() | True, temperature=0.1, target="cubic")


@given(BLOCKS, st.sampled_from([0.035, 0.2, 1.0, 5.0]))
def test_a_softmax_target_with_a_temperature_equals_its_formula(block, sharpness):
    scores, values, judged = block
    rows = []
    for s, v, known in zip(scores, values, judged, strict=True):
        at = np.flatnonzero(known)
        if not v[at].sum():
            continue
        p = np.exp(v[at] / sharpness) / np.exp(v[at] / sharpness).sum()
        q = np.exp(s[at] / 0.3) / np.exp(s[at] / 0.3).sum()
        rows.append((-(p * np.log(q)).sum(), -(p[p > 0] * np.log(p[p > 0])).sum()))
    loss, floor = np.mean(rows, axis=0) if rows else (0.0, 0.0)
    tensors = [torch.from_numpy(each) for each in block]
    how = {"target": "softmax", "target_temperature": sharpness}
    assert listnet(*tensors, temperature=0.3, **how).item() == pytest.approx(loss, abs=1e-9)
    assert divergence_floor(*tensors[1:], **how).item() == pytest.approx(floor, abs=1e-9)


def test_only_the_softmax_target_reads_its_temperature():
    values = torch.tensor([[0.2, 0.9, 0.0]])
    judged = torch.ones(1, 3, dtype=torch.bool)
    for target in ("phi", "linear"):
        torch.testing.assert_close(top_one(values, judged, target, 0.1), top_one(values, judged, target))
    assert top_one(values, judged, "softmax", 0.1)[0, 1] > top_one(values, judged, "softmax")[0, 1]
