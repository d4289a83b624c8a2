"""The search engine: a question in, files out, best first.

Safe under many threads at once, and beside an index run: each question is answered from one version of the index,
the last that was committed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from earmark.audio import decode
from earmark.data.rows import is_blank
from earmark.errors import DataError, EarmarkError, in_short
from earmark.search import embedder, ranking
from earmark.search.hits import Candidate, candidates, fold
from earmark.search.keywords import carrying, keyword_tiers
from earmark.search.nearest import NOT_AT_ALL, File, View, Wanted, view, wanted
from earmark.search.query import Answer, Hit, Query, Vector
from earmark.search.store import ABOUT, WINDOWS, AwayError, Store, check_there, connected
from earmark.search.windows import cut

if TYPE_CHECKING:
    from earmark.model.dual_encoder import DualEncoder
    from earmark.model.untrained import ClassLed

TEXTS_KEPT = 1024
"""Texts whose vectors are kept at hand."""
SPARE = 10
"""Files looked at beyond the limit, some of which may be near-duplicates."""
PAUSES_S = (0.0, 0.2, 1.0)
"""Before an index is read again that could not be read."""
GUESS = "The model hardly knows these words: what comes first is a guess."
UNSURE = "No keywords yet: `earmark index` has not finished its first run."


Keywords = tuple[list[dict[str, float]], set[str]]
"""Files that carry the words, in tiers, with BM25's scores; and files that carry what is excluded."""


class Model(NamedTuple):
    """The model of an index."""

    fingerprint: str
    encoder: DualEncoder
    led: ClassLed | None
    """How it reads words where nothing was learned."""


class Text(NamedTuple):
    """Words that were embedded."""

    vector: Vector
    known: bool
    """Whether the model seems to know them."""


class Engine:
    """An index that answers."""

    def __init__(self, index: Path) -> None:
        """Raises `DataError` where there is no index."""
        self.store = Store.open(index)
        self._texts: OrderedDict[tuple[str, str], Text] = OrderedDict()
        self._embedding, self._loading = threading.RLock(), threading.Lock()
        self._beside = ThreadPoolExecutor(os.cpu_count(), "keywords")
        self._model: Model | None = None
        self._current: View | None = None
        self._stamp = _stamp(index)

    # Vectors

    def _the_model(self) -> Model:
        """The model of the index. Raises `DataError` where it is not whole."""
        with self._embedding:
            fingerprint = self.store.about.fingerprint
            if self._model is None or self._model.fingerprint != fingerprint:
                from earmark.model.untrained import ClassLed

                try:
                    encoder = embedder.load(self.store.folder)
                except EarmarkError as error:
                    raise AwayError(str(error)) from error
                self._model = Model(fingerprint, encoder, ClassLed.of(encoder))
            return self._model

    def vector_of_words(self, words: str) -> Vector:
        """The unit vector [dim] of words. Raises `DataError` on blank ones."""
        return self._text(words).vector

    def _text(self, words: str) -> Text:
        if is_blank(words):
            raise DataError(f"blank words ({words!r}); expected something to search for.")
        words = _letters(words)
        key = (self.store.about.fingerprint, words)
        with self._embedding:
            if key not in self._texts:
                self._texts[key] = self._embedded(words)
                if len(self._texts) > TEXTS_KEPT:
                    self._texts.popitem(last=False)
            self._texts.move_to_end(key)
            return self._texts[key]

    def _embedded(self, words: str) -> Text:
        from earmark.model.reading import one_thread

        model = self._the_model()
        with one_thread():  # a few words do not pay for several, and these wait for each other where others compute
            plain = model.encoder.embed_text([words])[0]
        return Text(plain, True) if model.led is None else Text(model.led.led(plain), model.led.knows(plain))

    def vector_of_file(self, path: Path, at_s: float | None = None) -> Vector:
        """The unit vector [dim] of a sound file: of the window from `at_s` on, or of the whole file.

        That of the whole is the mean of the windows' vectors by their seconds. Little more than a window is held.
        Raises `DataError` where there is no sound.
        """
        total = np.zeros(self.store.about.dim, np.float64)
        window_s, begin = self.store.about.window_s, at_s or 0.0
        with decode.streamed(path, 1.0, []) as stream:
            skipped, size = round(begin * stream.rate), round(window_s * stream.rate)
            for (start, stop), samples in cut(_after(stream.blocks, skipped), size, size):
                total += (stop - start) * self._embed_sound(samples, stream.rate)
                if at_s is not None:
                    break
        norm = float(np.linalg.norm(total))
        if not norm > 0:
            raise DataError(f"{decode.shown(path)}: no sound from {begin:g} s on. Name an earlier time.")
        return np.asarray(total / norm, np.float32)

    def _embed_sound(self, samples: decode.Samples, rate: int) -> Vector:
        model = self._the_model().encoder
        with self._embedding:
            vector: Vector = model.embed_audio(samples, rate)[0]
        return vector

    def vector_of_hit(self, file_id: str, start_s: float) -> Vector:
        """The unit vector [dim] of the file's window that starts nearest to `start_s`."""
        file = self._file(file_id)
        vector: Vector = file.vectors[int(np.argmin(np.abs(file.spans[:, 0] - start_s)))]
        return vector

    # The version of the index that is asked

    def view(self) -> View:
        """The last version that was committed; while one thread reads it, others answer from the one before."""
        current = self._current
        if not self._loading.acquire(blocking=current is None) and current is not None:
            return current
        try:
            self._look_for_another_index()
            if self._current is None or self._current.version != self.store.windows.version:
                self._current = _opened(self.store.folder)
            return self._current
        finally:
            self._loading.release()

    def _look_for_another_index(self) -> None:
        """Opens the index again where one that was made anew has taken its place."""
        now = _stamp(self.store.folder)
        if now is None or now == self._stamp:
            return
        self._stamp = now
        self.store = Store.open(self.store.folder)
        self._current = None

    # Answers

    def search(self, query: Query) -> Answer:
        """The files that answer, best first.

        Raises `DataError` on blank words and on a query of neither words nor a sound, `AwayError` where the index
        cannot be read.
        """
        check(query)
        query = replace(query, words=_letters(query.words), without=_letters(query.without))
        for pause_s in PAUSES_S:
            try:
                return self._answer(query, self.view())
            except (AwayError, OSError, RuntimeError, ValueError) as error:
                # a version that was tidied away meanwhile, or an index that was made anew
                away = error if isinstance(error, AwayError) else unreadable(self.store.folder, error)
                self._current = None
                time.sleep(pause_s)
        raise away

    def _answer(self, query: Query, at: View) -> Answer:
        where = ranking.condition(query.filters)
        searched, asked = at.searched(where), self._wanted(query, at.sample)
        files = min(query.limit or searched, searched)
        pool = max(at.pool, 3 * files) if query.limit else 0
        # LanceDB looks for the keywords in one thread, and for the nearest windows in another
        keywords = self._beside.submit(self._keywords, query, at, where, pool or searched)
        near = at.nearest(asked, where, pool, _carriers(keywords), files + SPARE)
        tiers, barred = keywords.result()
        barred |= {each for each, score in near.scores.items() if score == NOT_AT_ALL}
        scores = {each: near.scores[each] for each in near.order if each not in barred}
        if any(tiers):
            carriers = [each for each in ranking.in_order(tiers, near.scores) if each not in barred]
            scores = ranking.fused(carriers, list(scores))
        named = set(tiers[0]) if tiers else set()
        hits = self._hits(at, asked, scores, named, files, fold_copies=query.fold)
        return Answer(hits, searched, tuple(self._notes(query, at, named)))

    def _wanted(self, query: Query, sample: Vector) -> Wanted:
        towards = [self.vector_of_words(query.words)] if query.words else []
        if query.like is not None:
            towards.append(query.like)
        for each in towards:
            if each.shape != (self.store.about.dim,):
                raise DataError(f"a vector of shape {each.shape}; the index has {self.store.about.dim} values.")
        return wanted(sample, towards, self.vector_of_words(query.without) if query.without else None)

    def _keywords(self, query: Query, at: View, where: str, most: int) -> Keywords:
        """Files by what of the words they carry, and those that carry the excluded ones."""
        if not query.keywords or not at.keywords:
            return [], set()
        tiers = []
        if query.words:
            tiers = keyword_tiers(at, query.words, where, most)
        return tiers, carrying(at, query.without, where) if query.without else set()

    def _hits(
        self, at: View, asked: Wanted, scores: dict[str, float], named: set[str], files: int, *, fold_copies: bool
    ) -> list[Hit]:
        """The first files as hits; those that near-duplicates leave free are filled."""
        ids, found, hits = list(scores), list[Candidate](), list[Hit]()
        while len(hits) < files and len(found) < len(ids):
            some = ids[len(found) : len(found) + files - len(hits) + (SPARE if fold_copies else 0)]
            found += candidates(at.files(some), asked, scores, named)
            hits = fold(found, at.prints) if fold_copies else [each.hit for each in found]
        return hits[:files]

    def _notes(self, query: Query, at: View, named: set[str]) -> list[str]:
        notes = []
        if query.words and not named and not self._text(query.words).known:
            notes.append(GUESS)
        if query.words and query.keywords and not at.keywords:
            notes.append(UNSURE)
        return notes

    def file(self, file_id: str) -> Hit:
        """A file's facts by its id. Raises `DataError` where it is not there."""
        nothing = Wanted(np.zeros(self.store.about.dim, np.float32))
        return candidates([self._file(file_id)], nothing, {file_id: 0.0}, set())[0].hit

    def _file(self, file_id: str) -> File:
        """Raises `DataError` where it is not there."""
        files = self.view().files([file_id])
        if not files:
            raise DataError(f"{self.store.folder}: no file {file_id[:40]!r} is indexed any more. Search again.")
        return files[0]


def _carriers(keywords: Future[Keywords]) -> Iterator[str]:
    """The files that carry keywords, waited for when the first of them is asked for."""
    for tier in keywords.result()[0]:
        yield from tier


def unreadable(index: Path, error: Exception) -> AwayError:
    """What a reader says of LanceDB's error."""
    return AwayError(f"{index}: cannot be searched ({in_short(error, 200)}). Search again, or index anew.")


def check(query: Query) -> None:
    """Raises `DataError` on blank words, and on a query of neither words nor a sound."""
    for words in (query.words, query.without):
        if words and is_blank(words):
            raise DataError(f"blank words ({words!r}); expected something to search for.")
    if not query.words and query.like is None:
        raise DataError("nothing to search for; expected words, a sound, or both.")


def _letters(words: str) -> str:
    """The words without halves of letters, which no tokenizer takes."""
    return words.encode("utf-8", "replace").decode()


def _after(blocks: Iterable[decode.Samples], skipped: int) -> Iterator[decode.Samples]:
    """The blocks without the first so many samples."""
    for block in blocks:
        if len(rest := block[skipped:]):
            yield rest
        skipped = max(0, skipped - len(block))


def _opened(index: Path) -> View:
    """The last version that was committed."""
    check_there(index)
    table = connected(index).open_table(WINDOWS)
    table.checkout(table.version)
    return view(table)


def _stamp(index: Path) -> tuple[int, int] | None:
    """What changes when index.toml is another; None where it is not there (it is being replaced)."""
    try:
        found = (index / ABOUT).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
