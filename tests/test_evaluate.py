from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from worlds import vector_world

from earmark.data.collection import Caption, Clip, Collection
from earmark.errors import DataError
from earmark.measure import evaluate as module
from earmark.measure.evaluate import compare, evaluate, write_trec
from earmark.relevance import Rating


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return vector_world(tmp_path_factory.mktemp("world") / "c")


def by_table(table: dict[tuple[str, str], float], otherwise: float = -0.5):
    return lambda texts, clips: np.array([[table.get((t, c), otherwise) for c in clips] for t in texts], np.float32)


def noisy(world: Collection, noise: float, seed: int = 0):
    """A scorer that knows the truth, more or less."""
    rng = np.random.default_rng(seed)
    own = {(c.caption_id, c.clip_id): 1.0 for c in world.captions}
    rated = {(r.caption_id, r.clip_id): r.rating / 100 for r in world.ratings}
    table: dict[tuple[str, str], float] = {}

    def score(texts, clips):
        for t in texts:
            for c in clips:
                key = (t, c)
                table.setdefault(key, rated.get(key, own.get(key, 0.0)) + noise * rng.standard_normal())
        return np.array([[table[t, c] for c in clips] for t in texts], np.float32)

    return score


@pytest.mark.case("M13", "M14")
def test_a_toy_of_two_clips_with_five_captions_each(tmp_path):
    clips = [Clip("a", "", "evaluation"), Clip("b", "", "evaluation")]
    captions = [Caption(f"{c}{k}", c, f"{c} {k}") for c in "ab" for k in range(5)]
    collection = Collection(tmp_path, clips, captions, name="toy")
    # cosines may be below 0; four of a's captions and two of b's find their clip first
    right = {"a0", "a1", "a2", "a3", "b0", "b1"}
    table = {(c.caption_id, clip): -0.1 if (clip == c.clip_id) == (c.caption_id in right) else -0.9
             for c in captions for clip in "ab"}  # fmt: skip
    numbers = evaluate(collection, "evaluation", by_table(table)).numbers()
    there, back = numbers["text_to_audio"], numbers["audio_to_text"]
    assert there["queries"] == 10
    assert there["R@1"] == pytest.approx(0.6)
    assert there["mAP"] == pytest.approx(0.6 + 0.4 / 2)
    assert there["R@5"] == there["hit@10"] == 1
    assert back["queries"] == 2
    assert back["R@10"] == pytest.approx(1)
    assert back["hit@10"] == pytest.approx(1)
    # clip a: above are its four right captions, tied with b's three wrong ones
    assert 0 < back["R@1"] < 1 / 5
    assert numbers["protocol"].startswith("each caption is a query")
    assert (numbers["collection"], numbers["kind"], numbers["split"]) == ("toy", "recorded", "evaluation")


def test_the_keys_are_those_that_other_programs_rely_on(world):
    numbers = evaluate(world, "validation", noisy(world, 0.1)).numbers()
    assert {"collection", "kind", "split", "protocol", "text_to_audio", "audio_to_text", "ratings"} <= set(numbers)
    measures = {"mAP", "mAP@10", "R@1", "R@5", "R@10", "hit@10", "nDCG@10", "queries", "undefined"}
    assert measures <= set(numbers["text_to_audio"])
    assert measures <= set(numbers["audio_to_text"])
    rated = {"spearman", "interval", "spearman_within_lists", "kendall", "nDCG@10(judged)", "pairs", "captions"}
    assert rated <= set(numbers["ratings"])
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_perfect_scores_are_one_and_intervals_hold_the_value(world):
    numbers = evaluate(world, "validation", noisy(world, 0)).numbers()
    assert numbers["ratings"]["spearman"] == pytest.approx(1)
    assert numbers["ratings"]["spearman_within_lists"] == pytest.approx(1)
    assert numbers["ratings"]["nDCG@10(judged)"] == pytest.approx(1)
    numbers = evaluate(world, "validation", noisy(world, 0.4)).numbers()
    low, high = numbers["text_to_audio"]["mAP interval"]
    assert low < numbers["text_to_audio"]["mAP"] < high
    low, high = numbers["ratings"]["interval"]
    assert low < numbers["ratings"]["spearman"] < high


@pytest.mark.case("R09")
def test_constant_scores_are_undefined_correlation_and_chance_ranking(world):
    numbers = evaluate(world, "validation", by_table({})).numbers()
    assert numbers["ratings"]["spearman"] is None
    assert numbers["ratings"]["interval"] == [None, None]
    gallery = len(world.gallery("validation"))
    assert numbers["text_to_audio"]["R@1"] == pytest.approx(1 / gallery)


def test_blocks_of_queries_change_nothing(world, monkeypatch):
    scorer = noisy(world, 0.3)
    whole = evaluate(world, "validation", scorer).numbers()
    monkeypatch.setattr(module, "QUERIES_AT_ONCE", 7)
    assert evaluate(world, "validation", scorer).numbers() == whole


def test_lists_of_the_split_count_their_extra_clips_and_the_gallery_does_not(tmp_path):
    clips = [Clip("a", "", "validation"), Clip("b", "", "validation"), Clip("a~", "", "validation-lists")]
    captions = [Caption("a#1", "a", "rain"), Caption("b#1", "b", "wind"), Caption("a~#1", "a~", "storm")]
    ratings = [Rating("a~#1", "a~", 90), Rating("a~#1", "b", 10), Rating("a~#1", "a", 50)]
    collection = Collection(tmp_path, clips, captions, ratings)
    table = {("a#1", "a"): 1.0, ("b#1", "b"): 1.0, ("a~#1", "a~"): 0.9, ("a~#1", "a"): 0.5, ("a~#1", "b"): 0.1}
    numbers = evaluate(collection, "validation", by_table(table)).numbers()
    assert numbers["text_to_audio"]["queries"] == 2
    assert numbers["audio_to_text"]["queries"] == 2
    assert numbers["text_to_audio"]["mAP"] == 1
    assert numbers["ratings"]["pairs"] == 3
    assert numbers["ratings"]["spearman"] == pytest.approx(1)


def test_clips_without_an_embedding_leave_with_their_captions_and_are_counted(world):
    gone = frozenset({world.gallery("validation")[0].clip_id})
    numbers = evaluate(world, "validation", noisy(world, 0.2), without=gone).numbers()
    assert numbers["left_out"] == 1
    assert numbers["audio_to_text"]["queries"] == len(world.gallery("validation")) - 1
    assert numbers["text_to_audio"]["queries"] == 2 * (len(world.gallery("validation")) - 1)
    assert numbers["ratings"]["pairs"] < len(world.rated("validation"))
    with pytest.raises(DataError, match="0 clips"):
        evaluate(world, "validation", noisy(world, 0.2), without=frozenset(c.clip_id for c in world.clips))


def test_texts_count_once_where_the_collection_says_so(tmp_path):
    clips = [Clip(c, "", "evaluation") for c in "abc"]
    captions = [Caption("a#1", "a", "bell"), Caption("b#1", "b", "bell"), Caption("c#1", "c", "drum")]
    collection = Collection(tmp_path, clips, captions, queries="texts")
    table = {("a#1", "a"): 0.9, ("a#1", "b"): 0.8, ("c#1", "c"): 0.9}
    numbers = evaluate(collection, None, by_table(table, 0.0)).numbers()
    assert numbers["text_to_audio"]["queries"] == 2
    assert numbers["text_to_audio"]["mAP"] == 1
    assert numbers["split"] == "all"
    assert numbers["protocol"].startswith("each distinct text")


def test_the_better_run_is_told_from_the_worse_and_equals_from_themselves(world):
    evaluations = {
        name: evaluate(world, None, noisy(world, noise))
        for name, noise in (("base", 0.6), ("same", 0.6), ("good", 0.1))
    }
    found = {(c.run, c.measure): c for c in compare(evaluations)}
    assert {measure for _, measure in found} == {"mAP", "R@10", "ρ", "ρ within lists"}
    for measure in ("mAP", "ρ", "ρ within lists"):
        better, same = found["good", measure], found["same", measure]
        assert better.difference.difference > 0
        assert better.difference.interval.low > 0
        assert better.p_holm < 0.05
        assert better.p_holm >= better.difference.p
        assert same.difference.difference == 0  # the same noise, so the same scores
        assert better.value - better.reference == pytest.approx(better.difference.difference)


def test_runs_of_different_queries_are_not_compared(world):
    with pytest.raises(DataError, match="different queries"):
        compare(
            {"a": evaluate(world, "validation", noisy(world, 0.1)), "b": evaluate(world, "evaluation", noisy(world, 0))}
        )


def test_trec_files_give_pytrec_eval_the_same_numbers(world, tmp_path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scorer = noisy(world, 0.3)
    write_trec(tmp_path, world, "validation", scorer)
    numbers = evaluate(world, "validation", scorer).numbers()

    def read(name: str, value) -> dict[str, dict[str, float]]:
        out: dict[str, dict[str, float]] = {}
        for line in (tmp_path / name).read_text().splitlines():
            cells = line.split()
            out.setdefault(cells[0], {})[cells[2]] = value(cells[3] if name.endswith("qrels") else cells[4])
        return out

    got = pytrec_eval.RelevanceEvaluator(read("captions.qrels", int), {"map"}).evaluate(read("captions.run", float))
    assert np.mean([each["map"] for each in got.values()]) == pytest.approx(numbers["text_to_audio"]["mAP"], abs=1e-6)
    judged = read("ratings.run", float)
    assert {(q, c) for q, each in judged.items() for c in each} == {
        (r.caption_id, r.clip_id) for r in world.rated("validation")
    }


def test_a_text_whose_first_bearer_cannot_be_read_is_asked_all_the_same(tmp_path):
    clips = [Clip(c, "", "evaluation") for c in "abc"]
    captions = [Caption("a#1", "a", "dog"), Caption("b#1", "b", "dog"), Caption("c#1", "c", "rain")]
    collection = Collection(tmp_path, clips, captions, queries="texts")
    table = {("b#1", "b"): 0.9, ("c#1", "c"): 0.9}
    with_bad = evaluate(collection, None, by_table(table), without=frozenset("a")).numbers()
    alone = evaluate(Collection(tmp_path, clips[1:], captions[1:], queries="texts"), None, by_table(table)).numbers()
    assert with_bad["text_to_audio"] == alone["text_to_audio"]
    assert with_bad["text_to_audio"]["queries"] == 2


def test_texts_that_training_saw_are_counted_apart(tmp_path):
    clips = [Clip(f"c{i}", "", "evaluation") for i in range(4)]
    texts = ["rain", "dog", "rain", "bell"]
    captions = [Caption(f"c{i}#1", f"c{i}", text) for i, text in enumerate(texts)]
    collection = Collection(tmp_path, clips, captions)
    scores = np.array([[4, 3, 2, 1], [1, 4, 3, 2], [1, 2, 4, 3], [4, 3, 2, 1]], dtype=np.float32)
    place = {f"c{i}": i for i in range(4)}

    def scorer(texts, sounds):
        return scores[[place[text[:2]] for text in texts]][:, [place[sound] for sound in sounds]]

    found = evaluate(collection, "evaluation", scorer, seen_texts=frozenset({"rain", "wind"})).numbers()
    assert (found["text_to_audio"]["queries"], found["text_to_audio_unseen_texts"]["queries"]) == (4, 2)
    assert found["text_to_audio_unseen_texts"]["mAP"] == pytest.approx((1 + 1 / 4) / 2)
    for seen in ((), ("wind",), ("rain", "dog", "bell")):  # none or all of them: nothing to tell apart
        numbers = evaluate(collection, "evaluation", scorer, seen_texts=frozenset(seen)).numbers()
        assert "text_to_audio_unseen_texts" not in numbers


def test_a_studys_anchors_count_nowhere(world, tmp_path):
    scorer = noisy(world, 0.3)
    first = world.rated("validation")[0]
    own = [Rating(c.caption_id, c.clip_id, 100.0, "anchor", "x") for c in world.captions_of("validation")]
    more = replace(world, ratings=[*own, *world.ratings, replace(first, rating=0.0, group="anchor")])
    whole = evaluate(world, "validation", scorer)
    found = evaluate(more, "validation", scorer)
    assert found.numbers() == whole.numbers()
    assert found.rated.groups == whole.rated.groups
    for name, each in (("with", more), ("without", world)):
        write_trec(tmp_path / name, each, "validation", scorer)
    for file in ("ratings.qrels", "ratings.run"):
        assert (tmp_path / "with" / file).read_text() == (tmp_path / "without" / file).read_text()
    assert more.rated("validation") == world.rated("validation")
    assert len(more.rated("validation", anchors=True)) == len(world.rated("validation")) + len(own) + 1
    assert len(more.rated(anchors=True)) == len(more.ratings)
    only = replace(world, ratings=own)
    assert evaluate(only, "validation", scorer).rated is None
    assert not len(only.relevance("ratings"))
