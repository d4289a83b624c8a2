from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earmark.analyse import perplexity
from earmark.analyse.perplexity import UNKNOWN, NGrams, by_language_model, by_ngrams, perplexities, split_words
from earmark.data.collection import Caption
from earmark.errors import DataError

TEXT = "a dog barks in the rain while birds sing and water runs over old stones"
WORDS = TEXT.split()
TEXTS = [
    "a dog barks",
    "rain",
    "birds sing in the rain while water runs over old stones and a dog barks",
    "A Dog; barks!",
    "🐕 🌧️",
    "雨 が 降る",
]
POSITIONS = 24


def captions(*texts: str, clip: str = "c") -> list[Caption]:
    """One clip a text, `c0`, `c1`, …"""
    return [Caption(f"{clip}{k}#1", f"{clip}{k}", text) for k, text in enumerate(texts)]


# n-grams

some_texts = st.lists(st.lists(st.sampled_from("abcd"), max_size=5), min_size=1, max_size=6)


@given(some_texts, st.lists(st.sampled_from("abcdz"), max_size=2), st.integers(1, 4))
def test_the_probabilities_over_the_vocabulary_sum_to_1(texts, context, order):
    counted = NGrams(texts, order)
    found = [counted.probability(word, context) for word in counted.vocabulary]
    assert sum(found) == pytest.approx(1)
    assert min(found) > 0


@given(some_texts, some_texts, st.lists(st.sampled_from("abcdz"), max_size=4))
def test_a_text_that_was_taken_away_was_never_there(texts, others, asked):
    counted = NGrams([*texts, *others])
    for text in others:
        counted.count(text, -1)
    assert counted.perplexity(asked) == pytest.approx(NGrams(texts).perplexity(asked), rel=1e-12)
    for text in texts:
        counted.count(text, -1)
    assert math.isnan(counted.perplexity(asked))


def by_hand(word: str, context: tuple[str, ...], texts: list[tuple[str, ...]]) -> float:
    """Witten and Bell's probability, counted anew for every word."""
    marked = [("<", "<", *text, ">") for text in texts]
    vocabulary = {word for text in marked for word in text[2:]}
    size = len(context) + 1
    grams = Counter(text[at - size + 1 : at + 1] for text in marked for at in range(2, len(text)))
    below = by_hand(word, context[1:], texts) if context else 1 / (len(vocabulary) + 1)
    after = {gram: count for gram, count in grams.items() if gram[:-1] == context}
    if not after:
        return below
    return (after.get((*context, word), 0) + len(after) * below) / (sum(after.values()) + len(after))


def test_the_perplexity_equals_one_by_hand():
    texts = [split_words(text) for text in ("a dog barks", "a dog runs", "the dog barks loudly")]
    counted = NGrams(texts)
    for asked in (("a", "dog", "barks"), ("the", "cat"), ()):
        marked = ("<", "<", *asked, ">")
        logs = [math.log(by_hand(marked[at], marked[at - 2 : at], texts)) for at in range(2, len(marked))]
        assert counted.perplexity(asked) == pytest.approx(math.exp(-np.mean(logs)))


def test_words_that_were_never_seen_are_dear_but_possible():
    counted = NGrams([split_words("a dog barks"), split_words("a dog runs")])
    known, unknown = (counted.perplexity(split_words(text)) for text in ("a dog barks", "🐕 雨"))
    assert 1 <= known < unknown < math.inf
    assert counted.probability("zebra") == counted.probability(UNKNOWN)


def test_a_caption_is_scored_without_its_clips_captions_and_equal_ones():
    others = captions("a dog barks", "birds sing", "water runs", clip="o")
    asked = [Caption("x#1", "x", "old stones"), Caption("x#2", "x", "Birds sing"), Caption("y#1", "y", "a dog runs")]
    sibling = Caption("x#3", "x", "stones roll")
    values, notes = by_ngrams(asked, [*others, *asked, sibling])
    of_x = NGrams([split_words(text) for text in ("a dog barks", "water runs", "a dog runs")])
    of_y = NGrams(
        [split_words(c.text) for c in (*others, *asked[:2], sibling)],
    )
    expected = [
        of_x.perplexity(("old", "stones")),
        of_x.perplexity(("birds", "sing")),
        of_y.perplexity(("a", "dog", "runs")),
    ]
    np.testing.assert_allclose(values, expected)
    assert len(notes) == 1
    assert "7 reference captions" in notes[0]
    alone, _ = by_ngrams(asked[2:], [*others, *asked, sibling])
    np.testing.assert_allclose(alone, values[2:])


def test_a_twin_is_scored_without_its_clips_captions_and_a_clip_without_its_twins():
    others = captions("a dog barks", "water runs", clip="o")
    clip, twin, second = (
        Caption(f"{at}#1", at, text) for at, text in (("x", "rain"), ("x~1", "wind"), ("x~2", "hail"))
    )
    left = NGrams([split_words(caption.text) for caption in others])
    expected = [left.perplexity((word,)) for word in ("rain", "wind", "hail")]
    np.testing.assert_allclose(by_ngrams([clip, twin, second], [*others, clip, twin, second])[0], expected)
    for asked, own, value in zip((clip, twin, second), (twin, second, clip), expected, strict=True):
        np.testing.assert_allclose(by_ngrams([asked], [*others, own])[0], value)
    stranger = Caption("xy#1", "xy", "wind in trees")
    counted = NGrams([split_words(caption.text) for caption in (*others, stranger)])
    np.testing.assert_allclose(by_ngrams([twin], [*others, clip, stranger])[0], counted.perplexity(("wind",)))


def test_where_nothing_is_left_to_count_it_is_undefined_and_said():
    asked = captions("a dog barks", "a dog barks")
    for reference in ([], asked):
        values, notes = by_ngrams(asked, reference)
        assert np.isnan(values).all()
        assert "for 2 captions nothing of the reference is left" in notes[1]
    assert by_ngrams([], asked)[0].shape == (0,)


# Language models


def save_tokenizer(folder: Path, **special: str) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: at for at, word in enumerate(["<unk>", "<end>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **special).save_pretrained(folder)


def save_model(folder: Path, *, words: int = len(WORDS) + 2, kind: str = "GPT2LMHeadModel") -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=words, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    getattr(transformers, kind)(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A GPT-2 that nobody trained, with a word a token."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tokenizer(folder, eos_token="<end>")
    save_model(folder)
    return folder


def one_at_a_time(folder: Path, text: str) -> float:
    from transformers import AutoTokenizer, GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"][:POSITIONS]
    with torch.no_grad():
        logits = model(torch.tensor([[1, *ids[:-1]]])).logits[0].double()
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids)).exp())


def test_the_perplexity_equals_that_of_one_text_at_a_time(tiny, monkeypatch):
    expected = [one_at_a_time(tiny, text) for text in TEXTS]
    told = []
    values, cut = by_language_model(TEXTS, tiny, lambda *how: told.append(how))
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert np.ptp(values) > 1
    assert not cut
    assert told[-1] == ("perplexity", len(TEXTS), len(TEXTS))
    monkeypatch.setattr(perplexity, "TOKENS_AT_ONCE", 1)
    np.testing.assert_allclose(by_language_model(TEXTS[::-1], tiny)[0][::-1], values, rtol=1e-5)


def test_long_and_empty_captions_give_a_value_or_none(tiny):
    long = " ".join((WORDS * 40)[:500])
    asked = captions(long, "rain", " ", long)
    values, notes = perplexities(asked, [], str(tiny))
    assert values[0] == values[3] == pytest.approx(one_at_a_time(tiny, long), rel=1e-5)
    assert np.isfinite(values[1])
    assert np.isnan(values[2])
    assert "2 of 4 captions are longer than the model reads" in notes[1]
    assert perplexities([], [], str(tiny))[0].shape == (0,)


def test_the_token_that_begins_a_text_goes_before_the_one_that_ends_it(tmp_path, tiny):
    save_tokenizer(tmp_path, eos_token="<end>", bos_token="rain")
    save_model(tmp_path)
    assert by_language_model(["a dog"], tmp_path)[0] != pytest.approx(by_language_model(["a dog"], tiny)[0])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: (save_tokenizer(folder), save_model(folder)), "expected a token that begins or ends texts"),
        (lambda folder: (save_tokenizer(folder, eos_token="<end>"), save_model(folder, words=9)), "the model knows 9"),
        (save_model, "tokenizer's files are missing"),
        (lambda folder: save_tokenizer(folder, eos_token="<end>"), "not a causal language model"),
        (lambda folder: (save_tokenizer(folder, eos_token="<end>"), save_bert(folder)), "reads words ahead"),
        (lambda folder: (save_tokenizer(folder, eos_token="<end>"), save_broken(folder)), "weights are missing"),
    ],
)
def test_what_is_no_causal_language_model_is_refused(tmp_path, make, what):
    make(tmp_path)
    with pytest.raises(DataError, match=what) as refused:
        by_language_model(["a dog"], tmp_path)
    assert "\n" not in str(refused.value)


def save_bert(folder: Path) -> None:
    from transformers import BertConfig, BertLMHeadModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertLMHeadModel(BertConfig(vocab_size=40, is_decoder=True, **sizes)).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_decoder": False}))


def save_broken(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_model(folder)
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in weights if name.endswith("ln_f.weight"))]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def test_ngrams_stand_in_for_gpt2_alone(own_models, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked, reference = captions("a dog barks"), captions("birds sing", clip="o")
    values, notes = perplexities(asked, reference)
    np.testing.assert_array_equal(values, perplexities(asked, reference, "ngram")[0])
    assert "gpt2 is neither" in notes[0]
    with pytest.raises(DataError, match="not found"):
        perplexities(asked, reference, "gpt3")


def test_gpt2_is_looked_up_like_all_models(own_models):
    save_tokenizer(own_models / "gpt2", eos_token="<end>")
    save_model(own_models / "gpt2")
    values, notes = perplexities(captions("a dog barks"), [])
    assert values[0] == pytest.approx(one_at_a_time(own_models / "gpt2", "a dog barks"), rel=1e-5)
    assert notes == ["perplexity: by the causal language model gpt2"]
