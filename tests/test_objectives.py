from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from worlds import vector_world

from earmark.data.collection import Caption, Clip, Collection
from earmark.learn.batches import batch_at, steps_an_epoch
from earmark.learn.losses import listnet
from earmark.learn.objectives import Item, Objective, make_objective, one_caption_a_clip, unlearned
from earmark.learn.recipe import ObjectiveConfig
from earmark.relevance import Rating, Relevance


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return vector_world(tmp_path_factory.mktemp("world") / "c")


def objective(world, split="development", **config) -> Objective:
    return make_objective(ObjectiveConfig(**config), world, split, seed=0)


def test_captioning_pairs_are_all_captions_of_the_split(world):
    made = objective(world, loss="infonce")
    assert len(made.items) == 60
    assert {item.caption_id.split("#")[0] for item in made.items} == set(made.clip_ids)
    assert all(item.clip_ids == (item.caption_id.split("#")[0],) for item in made.items)


def test_rated_clips_with_one_caption_each_are_superbirel(world):
    made = objective(world, loss="infonce", clips="rated", captions="one")
    rated = {rating.clip_id for rating in world.rated("development")}
    assert set(made.clip_ids) == rated
    assert len(made.items) == len(rated)
    asked = {rating.caption_id for rating in world.rated("development")}
    for item in made.items:
        if item.clip_ids[0] + "#1" in asked:
            assert item.caption_id in asked


def test_the_caption_that_is_drawn_depends_on_the_seed_alone():
    captions = [Caption(f"{i}#{k}", str(i), "text") for i in range(50) for k in range(5)]
    first, again, other = (one_caption_a_clip(captions, set(), seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert len({caption.caption_id[-1] for caption in first}) == 5


def test_ratings_that_nothing_is_learned_from_are_counted(tmp_path):
    """Two searches, as the search page keeps them: the best sound of each has the words, the others stand in lists."""
    clips = [Clip(f"c{at}", "", "development" if at in (0, 3) else "development-lists") for at in range(6)]
    captions = [Caption("a", "c0", "rain"), Caption("b", "c3", "a dog")]
    rows = [("a", 0, 90), ("a", 1, 60), ("a", 2, 0), ("b", 3, 80), ("b", 4, 10), ("b", 0, 0)]
    ratings = [Rating(caption, f"c{at}", float(rating)) for caption, at, rating in rows]
    found = Collection(tmp_path, clips, captions, ratings)
    lists = objective(found, loss="listnet", relevance="ratings")
    best = objective(found, loss="infonce", relevance="captions+ratings")
    off = objective(found, loss="listnet", relevance="ratings", weight=0.0)
    count = [unlearned(of, found, "development") for of in ([lists], [best], [best, off], [best, lists], [])]
    assert count == [0, 3, 3, 0, 6]


def test_binary_and_shuffled_lists_hold_the_same_pairs(world):
    plain, binary, mixed = (
        objective(world, loss="listnet", relevance=each) for each in ("ratings", "ratings-binary", "ratings-shuffled")
    )
    assert plain.items == binary.items == mixed.items
    for item in plain.items:
        values = [each.relevance.block([item.caption_id], item.clip_ids)[0][0] for each in (plain, binary, mixed)]
        own = [clip == item.caption_id.split("#")[0] for clip in item.clip_ids]
        np.testing.assert_array_equal(values[1], own)
        assert sorted(values[0]) == sorted(values[2])
    assert plain.relevance != mixed.relevance


def test_ratings_overrule_the_closed_world_where_asked(world):
    made = objective(world, loss="infonce", relevance="captions+ratings")
    rating = next(r for r in world.rated("development") if r.rating > 60 and not r.caption_id.startswith(r.clip_id))
    values, judged = made.relevance.block([rating.caption_id], [rating.clip_id])
    assert values[0, 0] == np.float32(rating.rating / 100)
    assert judged[0, 0]


def test_clips_that_cannot_be_read_leave_pairs_and_lists(world):
    gone = "clip0"
    made = make_objective(ObjectiveConfig("listnet", relevance="ratings"), world, "development", seed=0, without=[gone])
    assert gone not in made.clip_ids
    pairs = make_objective(ObjectiveConfig("infonce"), world, "development", seed=0, without=[gone])
    assert gone not in pairs.clip_ids
    assert len(pairs.items) == 58


@pytest.mark.case("N05", "N06")
@pytest.mark.parametrize(("items", "expected"), [(3, [3]), (8, [8]), (9, [9]), (10, [8, 2]), (17, [8, 9]), (1, [1])])
def test_a_tail_of_one_pair_joins_the_step_before_and_no_step_is_dropped(items, expected):
    pairs = [Item(f"c{i}", (f"a{i}",)) for i in range(items)]
    made = Objective(ObjectiveConfig("infonce", batch=8), pairs, Relevance.from_pairs((p[0], p[1][0]) for p in pairs))
    assert [step.stop - step.start for step in made.steps()] == expected


def test_an_epoch_shows_every_pair_once_and_lists_go_round(world):
    objectives = [
        objective(world, loss="infonce", batch=8),
        objective(world, loss="listnet", relevance="ratings", lists=5),
    ]
    steps = steps_an_epoch(objectives)
    shown = [batch_at(objectives, step, 0) for step in range(2 * steps)]
    pairs = [batch.caption_ids[at] for batch in shown[:steps] for at in batch.parts[0].captions]
    assert sorted(pairs) == sorted(item.caption_id for item in objectives[0].items)
    cycle = len(objectives[1].steps())
    lists = [batch.caption_ids[at] for batch in shown[:cycle] for at in batch.parts[1].captions]
    assert sorted(lists) == sorted(item.caption_id for item in objectives[1].items)
    again = [batch.caption_ids[at] for batch in shown[cycle : 2 * cycle] for at in batch.parts[1].captions]
    assert sorted(again) == sorted(lists)
    assert again != lists


def test_a_batch_holds_every_clip_and_caption_once_and_objectives_see_their_own_only(world):
    objectives = [
        objective(world, loss="infonce", batch=8),
        objective(world, loss="listnet", relevance="ratings", lists=3),
    ]
    batch = batch_at(objectives, 5, seed=3)
    assert len(set(batch.clip_ids)) == len(batch.clip_ids)
    assert len(set(batch.caption_ids)) == len(batch.caption_ids)
    first, second = batch.parts
    assert first.values.shape == (len(first.captions), len(first.clips))
    assert len(first.captions) == 8
    assert len(first.clips) <= 8
    assert first.judged.all()
    assert len(second.captions) == 3
    assert second.judged.sum() == 18  # three lists of six; the other pairs of the block are unjudged
    other = batch_at(objectives, 5, seed=4)
    assert other.caption_ids != batch.caption_ids
    same = batch_at(objectives, 5, seed=3)
    assert same.caption_ids == batch.caption_ids
    assert same.clip_ids == batch.clip_ids


@pytest.mark.case("N01")
def test_two_captions_of_a_clip_and_equal_texts_are_positives_in_a_block(tmp_path):
    clips = [Clip(name, "", "development") for name in "abc"]
    texts = {"a#1": "rain", "a#2": "heavy rain", "b#1": "rain", "c#1": "wind"}
    collection = Collection(tmp_path, clips, [Caption(k, k[0], text) for k, text in texts.items()])
    made = objective(collection, loss="infonce")
    block = made.block(made.items)
    values = dict(zip(block.caption_ids, block.values.tolist(), strict=True))
    assert block.clip_ids == ["a", "b", "c"]
    assert values == {"a#1": [1, 1, 0], "a#2": [1, 0, 0], "b#1": [1, 1, 0], "c#1": [0, 0, 1]}


def test_a_learned_temperature_learns_and_stays_within_bounds():
    config = ObjectiveConfig("infonce", temperature="learned")
    made = Objective(config, [Item("c", ("a",)), Item("d", ("b",))], Relevance.from_pairs([("c", "a"), ("d", "b")]))
    scores = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    loss = made(scores, torch.eye(2), torch.ones(2, 2, dtype=torch.bool))
    loss.backward()
    (parameter,) = made.parameters()
    assert parameter.grad.abs() > 0
    assert made.temperature.item() == pytest.approx(0.07)
    with torch.no_grad():
        parameter.fill_(10.0)
    made.keep_within()
    assert made.temperature.item() == pytest.approx(1.0)


def test_symmetric_listnet_is_the_mean_of_both_directions():
    generator = torch.Generator().manual_seed(0)
    scores, values = torch.rand(4, 4, generator=generator), torch.rand(4, 4, generator=generator)
    judged = torch.ones(4, 4, dtype=torch.bool)
    made = Objective(ObjectiveConfig("listnet", symmetric=True, temperature=0.1), [], Relevance([], unjudged=None))
    expected = (
        listnet(scores, values, judged, temperature=0.1) + listnet(scores.T, values.T, judged, temperature=0.1)
    ) / 2
    assert made(scores, values, judged).item() == pytest.approx(expected.item())


def test_standardised_ratings_reach_the_lists(tmp_path):
    clips = [Clip(name, "", "development") for name in "ab"]
    ratings = [Rating("a#1", clip, value, rater_id=rater) for rater, shift in (("x", 0), ("y", 40)) for clip, value in
               (("a", 60 + shift), ("b", 20 + shift))]  # fmt: skip
    collection = Collection(tmp_path, clips, [Caption("a#1", "a", "rain")], ratings)
    plain, standardised = (
        objective(collection, loss="listnet", relevance="ratings", aggregate=each) for each in ("mean", "standardised")
    )
    assert plain.relevance.get("a#1", "a").sd > 0.2
    assert standardised.relevance.get("a#1", "a").sd == pytest.approx(0)


class Halves:
    """Estimates of one value."""

    def block(self, caption_ids, clip_ids):
        shape = len(caption_ids), len(clip_ids)
        return np.full(shape, 0.5, np.float32), np.ones(shape, dtype=np.bool_)


def test_estimates_are_the_relevance_of_captioning_pairs(world):
    config = ObjectiveConfig("listnet", relevance="similarity", clips="rated", captions="one", batch=5)
    made = make_objective(config, world, "development", seed=0, without=["clip0"], estimates=Halves())
    stated = make_objective(
        ObjectiveConfig("infonce", clips="rated", captions="one"), world, "development", seed=0, without=["clip0"]
    )
    assert made.items == stated.items
    assert all(len(item.clip_ids) == 1 for item in made.items)
    block = next(made.passes(0))
    assert block.values.shape == (len(block.caption_ids), len(block.clip_ids)) == (5, 5)
    assert (block.values == 0.5).all()
    assert block.judged.all()


def test_the_floor_of_symmetric_listnet_is_reached_by_scores_that_are_the_target():
    values = torch.tensor([[0.9, 0.2], [0.1, 0.4], [0.3, 0.8]], dtype=torch.float64)
    judged = torch.ones(3, 2, dtype=torch.bool)
    config = ObjectiveConfig("listnet", temperature=0.1, target="softmax", target_temperature=0.1, symmetric=True)
    made = Objective(config, [], Relevance([], unjudged=None))
    assert made(values, values, judged).item() == pytest.approx(made.floor(values, judged))
    one_way = Objective(replace(config, symmetric=False), [], Relevance([], unjudged=None))
    assert one_way(values, values, judged).item() == pytest.approx(one_way.floor(values, judged))
    assert made.floor(values, judged) != pytest.approx(one_way.floor(values, judged))


def test_anchors_are_no_ratings_to_learn_from(world):
    own = [Rating(c.caption_id, c.clip_id, 100.0, "anchor") for c in world.captions_of("development")]
    more = replace(world, ratings=[*own, *world.ratings])
    for config in (
        {"loss": "listnet", "relevance": "ratings"},
        {"loss": "infonce", "relevance": "captions+ratings", "clips": "rated", "captions": "one"},
    ):
        with_them, without = objective(more, **config), objective(world, **config)
        assert with_them.items == without.items
        assert with_them.relevance == without.relevance
