"""How surprising a text's words are: perplexity under a causal language model, or under n-grams of a reference corpus.

Perplexity is exp(−mean ln p) over a text's tokens: 1 or more, lower where they are expected. Values of two models
cannot be compared, since their tokens differ. The n-grams are our own because nltk's give a word that was never seen
the probability 0, and so most texts no finite value.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.data.collection import base_of
from earmark.errors import DataError

if TYPE_CHECKING:
    from earmark.data.collection import Caption
    from earmark.model.text_encoders import Progress

GPT2 = "gpt2"
"""The language model of the paper; the only one in whose place n-grams stand where it cannot be had."""
NGRAM = "ngram"
"""The setting that asks for n-grams."""
ORDER = 3
"""Words of the longest n-gram: a word is expected from the two before it."""
BEGIN, END, UNKNOWN = "begin of text", "end of text", "unknown word"
"""Marks before and after a text's words, and what stands for every word that was not seen; no word holds a blank."""
LONGEST = 2048
"""Tokens of a text that are read at most, where the language model could read more."""
LEAK = 1e-3
"""How much a token may change what is expected before it, of what it changes after it: rounding, in a causal model."""
SAID_EVERY = 256
"""Clips after which progress is told."""
TOKENS_AT_ONCE = 512
"""Tokens in a forward pass, padding included: the logits over a large vocabulary must fit into memory."""


def perplexities(
    captions: Sequence[Caption], reference: Sequence[Caption], model: str = GPT2, progress: Progress | None = None
) -> tuple[NDArray[np.float64], list[str]]:
    """Each caption's perplexity (NaN where it is not defined), and what a reader must know of them.

    `model` is the name or folder of a causal language model, or "ngram"; `reference` trains the n-grams. Raises
    `DataError` where another model than GPT-2 cannot be found, or cannot be used.
    """
    if model == NGRAM:
        return by_ngrams(captions, reference, progress)
    from earmark.model.pretrained import find, models_folder

    try:
        folder = find(model)
    except DataError:
        if model != GPT2:
            raise
        values, notes = by_ngrams(captions, reference, progress)
        place = models_folder() / GPT2
        return values, [f"perplexity: gpt2 is neither in {place} nor to be had from the hub; n-grams stand in.", *notes]
    values, cut = by_language_model([caption.text for caption in captions], folder, progress)
    notes = [f"perplexity: by the causal language model {model}"]
    if cut:
        notes.append(f"perplexity: {cut} of {len(captions)} captions are longer than the model reads, and were cut")
    return values, notes


# n-grams


def split_words(text: str) -> tuple[str, ...]:
    """The text's lower-cased words between white space; punctuation stays on them."""
    return tuple(text.lower().split())


class NGrams:
    """What follows what in texts, counted; texts can be taken away again."""

    def __init__(self, texts: Sequence[Sequence[str]] = (), order: int = ORDER) -> None:
        """`texts` are sequences of words; `order` is the length of the longest n-gram, 1 or more."""
        self.order = order
        self._after: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self._seen: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            self.count(text)

    @property
    def vocabulary(self) -> list[str]:
        """The words that were seen, the end mark, and what stands for all others."""
        return [*self._after[()], UNKNOWN]

    def count(self, text: Sequence[str], times: int = 1) -> None:
        """Adds a text's words; `times=-1` takes a text away that was added."""
        for context, word in self._events(text):
            for start in range(len(context) + 1):
                after = self._after[context[start:]]
                after[word] += times
                self._seen[context[start:]] += times
                if not after[word]:
                    del after[word]

    def _events(self, text: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Each word, and the end mark, after the `order` − 1 words before it."""
        marked = (*[BEGIN] * (self.order - 1), *text, END)
        for at in range(self.order - 1, len(marked)):
            yield marked[at - self.order + 1 : at], marked[at]

    def probability(self, word: str, context: Sequence[str] = ()) -> float:
        """p(word | the `order` − 1 words before it), above 0; over the vocabulary it sums to 1.

        Witten and Bell (1991), interpolated: p(w | h) = (c(h, w) + t(h) p(w | h′)) / (c(h) + t(h)), where c counts,
        t(h) is the number of different words that follow h, and h′ is h without its first word. Below single words
        lies the uniform distribution over the vocabulary.
        """
        found = 1 / (len(self._after[()]) + 1)
        for start in range(len(context), -1, -1):
            history = tuple(context[start:])
            after = self._after.get(history)
            if after:
                found = (after.get(word, 0) + len(after) * found) / (self._seen[history] + len(after))
        return found

    def perplexity(self, text: Sequence[str]) -> float:
        """exp(−mean ln p) over the text's words and its end mark; NaN where nothing was counted."""
        if not self._after[()]:
            return float("nan")
        surprises = [-math.log(self.probability(word, context)) for context, word in self._events(text)]
        return math.exp(sum(surprises) / len(surprises))


def by_ngrams(
    captions: Sequence[Caption], reference: Sequence[Caption], progress: Progress | None = None
) -> tuple[NDArray[np.float64], list[str]]:
    """Each caption's perplexity under n-grams of the reference, and what a reader must know of them.

    A caption is scored without the reference's captions of its clip, and without those of the same words as one of
    the captions of its clip: a model that has seen a caption is not surprised by it. NaN where nothing is left.
    """
    texts = [split_words(caption.text) for caption in reference]
    counted, standing = NGrams(texts), _standing(reference, texts)
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, caption in enumerate(captions):
        places[base_of(caption.clip_id)].append(at)
    values = np.full(len(captions), np.nan)
    for done, (clip_id, own) in enumerate(places.items(), 1):
        asked = [split_words(captions[at].text) for at in own]
        keys: list[str | tuple[str, ...]] = [clip_id, *asked]
        left_out = {at for key in keys for at in standing.get(key, [])}
        for at in left_out:
            counted.count(texts[at], -1)
        values[own] = [counted.perplexity(text) for text in asked]
        for at in left_out:
            counted.count(texts[at])
        if progress and (done % SAID_EVERY == 0 or done == len(places)):
            progress("perplexity", done, len(places))
    return values, _told(len(reference), int(np.isnan(values).sum()))


def _told(reference: int, undefined: int) -> list[str]:
    notes = [
        f"perplexity: by n-grams of {ORDER} words (Witten–Bell) of {reference:,} reference captions, each caption "
        "without its own clip's and without equal ones"
    ]
    if undefined:
        notes.append(f"perplexity: for {undefined} captions nothing of the reference is left that n-grams could count")
    return notes


def _standing(
    reference: Sequence[Caption], texts: Sequence[tuple[str, ...]]
) -> Mapping[str | tuple[str, ...], Sequence[int]]:
    """Where the reference has a clip's captions (by its id, its twins' too), and where it has these words."""
    found: defaultdict[str | tuple[str, ...], list[int]] = defaultdict(list)
    for at, (caption, text) in enumerate(zip(reference, texts, strict=True)):
        found[base_of(caption.clip_id)].append(at)
        found[text].append(at)
    return found


# Language models


def by_language_model(
    texts: Sequence[str], folder: Path, progress: Progress | None = None
) -> tuple[NDArray[np.float64], int]:
    """Each text's perplexity under the causal language model of a folder, and how many texts were cut.

    The first token is expected from the token that begins a text, or from the one that ends it where the model has
    none that begins. NaN where a text has no token, or the model gives no number. Raises `DataError` where the folder
    holds no causal language model of transformers.
    """
    model = LanguageModel(folder)
    distinct = list(dict.fromkeys(texts))
    tokens = dict(zip(distinct, model.tokens(distinct), strict=True))
    found = dict.fromkeys(distinct, math.nan)
    asked = sorted((text for text in distinct if tokens[text]), key=lambda text: len(tokens[text]))
    done = 0
    for batch in _batches(asked, [min(len(tokens[text]), model.longest) for text in asked]):
        surprises = model.surprises([tokens[text][: model.longest] for text in batch])
        found.update(zip(batch, surprises, strict=True))
        done += len(batch)
        if progress:
            progress("perplexity", done, len(asked))
    with np.errstate(over="ignore"):
        values = np.exp(np.array([found[text] for text in texts], dtype=np.float64))
    values[~np.isfinite(values)] = np.nan
    return values, sum(len(tokens[text]) > model.longest for text in texts)


def _batches(texts: Sequence[str], lengths: Sequence[int]) -> Iterator[list[str]]:
    """The texts in their order, shortest first, so many at once that they hold `TOKENS_AT_ONCE` tokens at most."""
    batch: list[str] = []
    for text, length in zip(texts, lengths, strict=True):
        if batch and (len(batch) + 1) * length > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


class LanguageModel:
    """A causal language model of transformers in float32, and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        """The model of a folder. Raises `DataError` where it is not whole, is not causal, or lacks a first token."""
        from earmark.model.towers import best_device

        self._tokenizer, model = _loaded(folder)
        self._device = best_device()
        self._model = model.eval().requires_grad_(False).to(self._device)
        self._size = int(model.get_input_embeddings().num_embeddings)
        self._start = self._first_token(folder)
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or LONGEST
        self.longest = min(int(positions), int(self._tokenizer.model_max_length), LONGEST)
        self._check_causal(folder)

    def _first_token(self, folder: Path) -> int:
        known = (self._tokenizer.bos_token_id, self._tokenizer.eos_token_id)
        found = next((token for token in known if token is not None), None)
        if found is None or max(found, len(self._tokenizer) - 1) >= self._size:
            raise DataError(
                f"{folder}: the tokenizer has {len(self._tokenizer)} tokens, {found} begins a text, and the model "
                f"knows {self._size}; expected a token that begins or ends texts, and a model that knows all of them. "
                "Put the model's own tokenizer there."
            )
        return int(found)

    def _check_causal(self, folder: Path) -> None:
        """Raises `DataError` where a later token changes what is expected before it, or nothing is a number."""
        import torch

        probes = torch.tensor([[self._start, 0, 1 % self._size], [self._start, 0, 2 % self._size]])
        with torch.inference_mode():
            one, other = self._model(probes.to(self._device), use_cache=False).logits.float()
        *before, itself = (one - other).abs().amax(dim=1).tolist()
        if not max(before) <= LEAK * itself:  # nor where they are NaN
            raise DataError(
                f"{folder}: the model reads words ahead; expected a causal language model, which expects each token "
                "from those before it. Choose another model."
            )

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, uncut, without marks of begin and end."""
        if not texts:
            return []
        found: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return found

    def surprises(self, tokens: Sequence[Sequence[int]]) -> list[float]:
        """−mean ln p of each text's tokens; each has one at least, and `longest` at most."""
        import torch
        import torch.nn.functional as F

        from earmark.model.towers import padded

        targets, mask = padded([torch.tensor(ids) for ids in tokens], 0)
        given = torch.cat([torch.full((len(targets), 1), self._start), targets[:, :-1]], dim=1)
        targets, mask, given = (each.to(self._device) for each in (targets, mask, given))
        with torch.inference_mode():
            logits = self._model(given, attention_mask=mask, use_cache=False).logits.float()
            lost = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        means: list[float] = ((lost.double() * mask).sum(dim=1) / mask.sum(dim=1)).tolist()
        return means


def _loaded(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder. Raises `DataError` where the libraries cannot load them whole."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from earmark.model.hub import FROM_DISK, HARMLESS, WEIGHTS
    from earmark.model.towers import quiet_transformers

    try:
        with quiet_transformers():
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, **FROM_DISK)
            both: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **FROM_DISK, **WEIGHTS)
        model, found = both
        names = [*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])]
        if set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids):  # made up where its files are missing
            raise ValueError("the tokenizer's files are missing")
        if wrong := sorted(name for name in names if not name.endswith(HARMLESS)):
            raise ValueError(f"{len(wrong)} weights are missing or of another shape, {wrong[0]} first")
    except Exception as error:  # the libraries raise what they like
        reason = " ".join(str(error).split())[:200].rstrip(".:") or type(error).__name__
        raise DataError(
            f"{folder}: not a causal language model of transformers ({reason}). Put all of its files there, the "
            "weights as safetensors."
        ) from error
    return tokenizer, model
