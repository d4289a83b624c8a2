from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from earmark.analyse import captions as module
from earmark.analyse.captions import CaptionSettings, Tagged, caption_features, listed, most_frequent, tag
from earmark.data.collection import Caption
from earmark.errors import ConfigError, DataError
from earmark.files import read_table

NAMES = [
    "perplexity",
    "words",
    "content_words",
    "nouns",
    "adjectives",
    "frequent_words",
    "frequent_content_words",
    "frequent_nouns",
    "frequent_adjectives",
]
NGRAM = CaptionSettings(language_model="ngram")
needs_spacy = pytest.mark.skipif(
    importlib.util.find_spec(module.SPACY_MODEL) is None, reason="spaCy's model is not installed (extra analyse)"
)


def captions(*texts: str, clip: str = "c", tokens: tuple[str, ...] = ()) -> list[Caption]:
    """One clip a text, with the cells of the column `tokens` where they are given."""
    more = [{"tokens": cell} for cell in tokens] or [{}] * len(texts)
    return [Caption(f"{clip}{k}#1", f"{clip}{k}", text, more[k]) for k, text in enumerate(texts)]


def made_up(texts, auxiliaries=True, progress=None) -> dict[str, Tagged]:
    """Every word an adjective that ends in -y, else a noun; no spaCy is needed."""
    words = {text: tuple(word.strip(".,").lower() for word in text.split()) for text in texts}
    return {
        text: Tagged(found, found, tuple(w for w in found if w[-1:] != "y"), tuple(w for w in found if w[-1:] == "y"))
        for text, found in words.items()
    }


@pytest.fixture
def plain(monkeypatch) -> None:
    monkeypatch.setattr(module, "tag", made_up)
    monkeypatch.setattr(module, "_version", lambda: "0")


# Words


def test_words_are_read_from_the_column_where_every_caption_has_it(plain):
    cells = ("['a', 'dog', 'a', 'dog']", "[]", "['x', 1]")
    found = caption_features(captions("A dog.", "!", "x", tokens=cells), [], NGRAM)
    np.testing.assert_array_equal(found.values["words"], [4, 0, np.nan])
    assert list(found.values) == NAMES
    assert "words: as the column tokens lists them" in found.notes
    assert any("the cells of 1 captions are no lists" in note for note in found.notes)
    assert "words: undefined for 1 of 3 captions" in found.notes


@pytest.mark.parametrize("cells", [(), ("['a']", ""), ("3", "2")])
def test_words_stand_between_white_space_where_one_caption_has_no_list(plain, cells):
    found = caption_features(captions("a  dog\tbarks .", "rain", tokens=cells), [], NGRAM)
    np.testing.assert_array_equal(found.values["words"], [4, 1])
    assert "words: between white space" in found.notes


def test_words_by_spacys_tokens(plain):
    found = caption_features(captions("a dog, barks."), [], CaptionSettings(words="spacy", language_model="ngram"))
    assert found.values["words"] == 3
    assert "words: spaCy's tokens but punctuation" in found.notes


def test_a_column_that_was_asked_for_and_is_not_there_is_refused(plain):
    with pytest.raises(DataError, match="no caption has a cell in the column tokens"):
        caption_features(captions("a"), [], CaptionSettings(words="tokens", language_model="ngram"))


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("['a', 'it\\'s']", ["a", "it's"]),
        ("[]", []),
        (r"['\d']", [r"\d"]),
        ("a b", None),
        ("('a',)", None),
        ("__import__('os')", None),
        ("['a'", None),
        ("[" * 10_000, None),
        ("", None),
        ("\0", None),
    ],
)
def test_a_cell_is_read_and_never_run(cell, words):
    assert listed(cell) == words


@pytest.mark.parametrize("wrong", [{"words": "letters"}, {"frequent_words": "tokens"}, {"frequent": 0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ConfigError, match=str(next(iter(wrong.values())))):
        CaptionSettings(**wrong)


# Frequent words


def test_the_most_frequent_words_and_the_alphabet_where_they_are_even():
    texts = [["b", "a", "c"], ["c", "b", "d"], ["c"]]
    assert most_frequent(texts, 1) == {"c"}
    assert most_frequent(texts, 3) == {"c", "b", "a"}
    assert most_frequent(texts[::-1], 3) == {"c", "b", "a"}
    assert most_frequent(texts, 9) == {"a", "b", "c", "d"}


def test_frequent_words_are_counted_as_often_as_a_caption_has_them(plain):
    reference = captions("Dog dog dog windy windy rain.", "tall tree", clip="r")
    asked = captions("Dog and dog, Windy tree", "cat")
    settings = CaptionSettings(frequent=1, language_model="ngram")
    found = caption_features(asked, reference, settings)
    np.testing.assert_array_equal(found.values["frequent_words"], [1, 0])
    np.testing.assert_array_equal(found.values["frequent_content_words"], [2, 0])
    np.testing.assert_array_equal(found.values["frequent_nouns"], [2, 0])
    np.testing.assert_array_equal(found.values["frequent_adjectives"], [1, 0])
    spacy = CaptionSettings(frequent=1, frequent_words="spacy", language_model="ngram")
    np.testing.assert_array_equal(caption_features(asked, reference, spacy).values["frequent_words"], [2, 0])
    assert any("among the 1 most frequent of 2 reference captions" in note for note in found.notes)


def test_frequent_words_of_a_kind_are_the_captions_own_of_that_kind(monkeypatch):
    found = {
        "light light rain.": Tagged(("light", "light", "rain"), ("light", "light", "rain"), ("light",) * 2, ()),
        "light wind": Tagged(("light", "wind"), ("light", "wind"), ("wind",), ("light",)),
        "loud loud.": Tagged(("loud", "loud"), ("loud", "loud"), (), ("loud", "loud")),
        "a light.": Tagged(("a", "light"), ("light",), ("light",), ()),
    }
    monkeypatch.setattr(module, "tag", lambda *how: found)
    monkeypatch.setattr(module, "_version", lambda: "0")
    reference = captions("light light rain.", "loud loud.", clip="r")
    asked = captions("light wind", "a light.", "loud loud.")
    values = caption_features(asked, reference, CaptionSettings(frequent=1, language_model="ngram")).values
    np.testing.assert_array_equal(values["frequent_words"], [1, 0, 0])  # between white space the last is "light."
    np.testing.assert_array_equal(values["frequent_content_words"], [1, 1, 0])
    np.testing.assert_array_equal(values["frequent_nouns"], [0, 1, 0])  # an adjective is no noun, however frequent
    np.testing.assert_array_equal(values["frequent_adjectives"], [0, 0, 2])


def test_without_a_reference_what_is_frequent_is_undefined(plain):
    found = caption_features(captions("a dog", "rain"), [], NGRAM)
    for name in (NAMES[0], *NAMES[5:]):
        assert np.isnan(found.values[name]).all()
        assert f"{name}: undefined for 2 of 2 captions" in found.notes
    assert [len(values) for values in caption_features([], [], NGRAM).values.values()] == [0] * 9


# Tags


def test_without_spacy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, module.SPACY_MODEL, None)
    with pytest.raises(DataError, match=r"pip install '\.\[analyse\]' in earmark's folder") as refused:
        caption_features(captions("a dog"), [], NGRAM)
    assert "\n" not in str(refused.value)


@needs_spacy
def test_kinds_of_words_are_those_of_the_tags():
    text = "A large dog is barking loudly, and birds sing."
    told = []
    found = tag([text, "rain", text], progress=lambda *how: told.append(how))
    assert list(found) == [text, "rain"]
    assert found[text] == Tagged(
        ("a", "large", "dog", "is", "barking", "loudly", "and", "birds", "sing"),
        ("large", "dog", "is", "barking", "loudly", "birds", "sing"),
        ("dog", "birds"),
        ("large",),
    )
    assert told == [("tagging captions", 2, 2)]
    assert tag([text], auxiliaries=False)[text].content_words == ("large", "dog", "barking", "loudly", "birds", "sing")


@needs_spacy
def test_odd_captions_give_values_or_none():
    odd = ["🐕🌧️ 🐦", " ".join(["a dog barks"] * 167), "rain", "雨が降る", "\u200b", "...", "أمطار", "\u0301", "\x00"]
    found = caption_features(captions(*odd), captions("a dog barks", clip="r"), NGRAM)
    assert list(found.values) == NAMES
    for values in found.values.values():
        assert values.shape == (len(odd),)
        assert np.isfinite(values).all()
    assert found.values["words"][1] == found.values["frequent_words"][1] == 501
    assert found.values["nouns"][5] == found.values["content_words"][5] == 0


# What was published


@pytest.fixture(scope="module")
def own_clip_pairs(real_data) -> dict[str, tuple[list[Caption], np.ndarray]]:
    """The published captions that were rated with their own clips, and those ratings, by split."""
    found = {}
    for split in ("development", "validation"):
        texts, ratings = (next(Path(real_data).rglob(f"{split}_{what}.csv"), None) for what in ("text", "relevances"))
        if texts is None or ratings is None:
            pytest.skip(f"no published ratings of {split} below {real_data}")
        rows = {row.cells["tid"]: row.cells for row in read_table(texts, ["tid", "fid", "text", "tokens"])[1]}
        own = [row.cells for row in read_table(ratings, ["tid", "fid", "fid_group", "rating"])[1]]
        own = [cells for cells in own if cells["fid"] == rows[cells["tid"]]["fid"]]
        asked = [rows[cells["tid"]] for cells in own]
        tokens = [Caption(cells["tid"], cells["fid"], cells["text"], {"tokens": cells["tokens"]}) for cells in asked]
        found[split] = (tokens, np.array([float(cells["rating"]) for cells in own]))
    return found


def test_longer_captions_are_rated_higher_as_published(own_clip_pairs):
    from scipy.stats import pearsonr

    for split, expected in (("development", 0.046), ("validation", 0.142)):
        asked, ratings = own_clip_pairs[split]
        words = [len(listed(caption.more["tokens"]) or []) for caption in asked]
        assert len(asked) == 200
        assert pearsonr(words, ratings).statistic == pytest.approx(expected, abs=5e-4)


@needs_spacy
def test_neither_nouns_nor_adjectives_go_with_the_rating_as_published(own_clip_pairs):
    from scipy.stats import pearsonr

    asked = [caption for captions, _ in own_clip_pairs.values() for caption in captions]
    ratings = np.concatenate([ratings for _, ratings in own_clip_pairs.values()])
    found = caption_features(asked, [], NGRAM)
    assert len(asked) == 400
    assert not np.isnan(found.values["words"]).any()
    for name in ("nouns", "adjectives"):
        assert pearsonr(found.values[name], ratings).pvalue > 0.05
    assert Counter(found.notes)["words: as the column tokens lists them"] == 1
