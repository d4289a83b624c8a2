"""What an index answers: exact and by IVF_SQ, by words and by sounds, filtered, while others index."""

from __future__ import annotations

import json
import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indices import small_index, write_sound
from typer.testing import CliRunner

from earmark.audio import decode
from earmark.cli import app
from earmark.commands.search import lines_of, sound_of
from earmark.errors import DataError, EarmarkError
from earmark.model.untrained import ClassLed
from earmark.search import engine as engines
from earmark.search import keywords, nearest, ranking
from earmark.search.engine import GUESS, UNSURE, Engine, Text
from earmark.search.keywords import keyword_tiers
from earmark.search.nearest import Held, Listed, wanted
from earmark.search.query import Filters, Query
from earmark.search.ranking import condition, fused, prepare
from earmark.search.store import About, Store, windows_schema
from earmark.search.words import carried

DIM = 16


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def of_file(number, vectors, name="", **facts):
    """The rows of a made file with these windows' vectors."""
    path = Path(name or f"/sounds/{number}.wav")
    facts = {"duration_s": 5.0 * (len(vectors) + 1), "rate": 44_100, "channels": 2, "tags": [], "print": b"", **facts}
    words = facts.pop("words", None)
    return [
        {
            "file_id": f"{number:032x}",
            "window": place,
            "path": str(path).encode(),
            "shown": str(path),
            "folder": str(path.parent),
            "start_s": 5.0 * place,
            "end_s": 5.0 * place + 10,
            "content": f"{number:064x}",
            "size": 1,
            "mtime_ns": 1,
            "odd": [],
            "vector": vector,
            "words": "" if place else carried(path, Path("/sounds")).words if words is None else words,
            **facts,
        }
        for place, vector in enumerate(unit(np.asarray(vectors)).tolist())
    ]


def table_of(rows):
    return pa.Table.from_pylist(rows, schema=windows_schema(DIM))


def made(folder, rows, *, ready=True):
    """An engine over an index of these rows; words are read as random vectors, each word its own."""
    folder.mkdir(parents=True, exist_ok=True)
    store = Store.create(folder, About(model="made", fingerprint="made", dim=DIM))
    if rows:
        store.commit(table_of(rows))
    if ready:
        prepare(store)
    return reading(Engine(folder))


def reading(engine, known=True):
    engine._embedded = lambda words: Text(vector_of(words), known)
    return engine


def vector_of(words):
    return unit(np.random.default_rng(sum(words.encode())).standard_normal(DIM))


def many(count=120, seed=0):
    """Files of one to five windows, of several lengths, rates, channels, folders and tags."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        rows += of_file(
            number,
            rng.standard_normal((rng.integers(1, 6), DIM)),
            f"/sounds/kind {number % 3}/it's {number % 4}/{number}.wav",
            duration_s=float(rng.integers(1, 30)),
            rate=int(rng.choice([44_100, 48_000, 96_000])),
            channels=int(rng.integers(1, 3)),
            tags=[each for each in ("loop", "o'clock", "wet") if rng.random() < 0.4],
        )
    return rows


@pytest.fixture(scope="module")
def rows():
    return many()


@pytest.fixture(scope="module")
def engine(tmp_path_factory, rows):
    return made(tmp_path_factory.mktemp("made") / "index", rows)


def names(answer):
    return [hit.path.name for hit in answer.hits]


# Exact search


def test_every_file_stands_once_by_its_best_window(engine, rows):
    asked = vector_of("a dog")
    best = {}
    for row in rows:
        cosine = float(np.float32(row["vector"]) @ asked)
        best[row["file_id"]] = max(best.get(row["file_id"], (-2.0, 0.0)), (cosine, row["start_s"]))
    answer = engine.search(Query("a dog", keywords=False, limit=0))
    assert [hit.file_id for hit in answer.hits] == sorted(best, key=lambda each: -best[each][0])
    assert answer.searched == len(best)
    for hit in answer.hits:
        assert (hit.score, hit.best.start_s) == pytest.approx(best[hit.file_id], abs=1e-6)
        assert hit.best.score == pytest.approx(hit.score, abs=1e-6)


@pytest.mark.parametrize("more", [{}, {"keywords": False}, {"without": "rain"}, {"like": vector_of("wind")}])
def test_scores_fall_and_other_regions_overlap_none(engine, more):
    answer = engine.search(Query("1 wav", limit=0, **more))
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)
    for hit in answer.hits:
        regions = sorted((each.start_s, each.end_s) for each in (hit.best, *hit.others))
        assert all(one[1] <= other[0] for one, other in pairwise(regions))


def test_four_other_regions_are_shown_and_may_begin_where_one_ends(tmp_path):
    towards, other = vector_of("a dog"), vector_of("x")
    vectors = [other if place % 2 else towards + 0.01 * place * other for place in range(13)]
    (hit,) = made(tmp_path / "index", of_file(0, vectors)).search(Query("a dog", keywords=False)).hits
    assert [each.start_s for each in (hit.best, *hit.others)] == [0, 10, 20, 30, 40]


def test_the_limit_holds_and_may_be_beyond_all(engine):
    assert len(engine.search(Query("a dog", limit=7)).hits) == 7
    assert len(engine.search(Query("a dog", limit=1000)).hits) == 120
    assert names(engine.search(Query("a dog", limit=7))) == names(engine.search(Query("a dog", limit=0)))[:7]


@pytest.mark.case("M14")
def test_what_is_unlike_everything_is_ranked_all_the_same(tmp_path):
    towards = vector_of("a dog")
    engine = made(tmp_path / "index", [*of_file(0, [-towards]), *of_file(1, [-towards + 0.1 * vector_of("x")])])
    answer = engine.search(Query("a dog", keywords=False))
    assert len(answer.hits) == 2
    assert all(hit.score < 0 for hit in answer.hits)


@pytest.mark.case("C07")
def test_equal_names_in_two_folders_are_two_hits(tmp_path):
    rows = [*of_file(0, [vector_of("a")], "/sounds/a/kick.wav"), *of_file(1, [vector_of("b")], "/sounds/b/kick.wav")]
    answer = made(tmp_path / "index", rows).search(Query("kick"))
    assert {str(hit.path) for hit in answer.hits} == {"/sounds/a/kick.wav", "/sounds/b/kick.wav"}
    assert len({hit.file_id for hit in answer.hits}) == 2


def test_an_index_of_nothing_answers_nothing(tmp_path):
    answer = made(tmp_path / "index", []).search(Query("a dog"))
    assert (answer.hits, answer.searched) == ([], 0)


# What is asked


@pytest.mark.case("M08")
@pytest.mark.parametrize("words", ["", " ", "\n", "\u200b", " \t\u00a0"])
def test_blank_words_are_refused(engine, words):
    with pytest.raises(DataError):
        engine.search(Query(words))
    with pytest.raises(DataError):
        engine.vector_of_words(words)
    if words:
        with pytest.raises(DataError, match="blank"):
            engine.search(Query("a dog", without=words))
        with pytest.raises(DataError, match="blank"):
            engine.search(Query(words, like=vector_of("a sound")))


@pytest.mark.case("M09")
@pytest.mark.parametrize("words", ["犬の鳴き声", "🐶🔥", "xqzjw", "\udcff", "a" * 3000, "' OR 1=1 --", '"', "*"])
def test_words_of_any_letters_are_answered(engine, words):
    answer = engine.search(Query(words))
    assert len(answer.hits) == 20
    assert np.isfinite([hit.score for hit in answer.hits]).all()


@pytest.mark.case("M09")
def test_words_that_the_model_hardly_knows_are_told(engine):
    reading(engine, known=False)
    try:
        engine._texts.clear()
        assert GUESS in engine.search(Query("xqzjw")).notes
        assert GUESS not in engine.search(Query("sounds")).notes or not engine.search(Query("sounds")).hits[0].named
        assert engine.search(Query("7")).notes == ()  # files are named so
    finally:
        engine._texts.clear()
        reading(engine)


@pytest.mark.case("I05")
def test_a_vector_of_another_width_is_refused(engine):
    with pytest.raises(DataError, match="16 values"):
        engine.search(Query(like=np.ones(8, np.float32)))


def test_like_a_sound_alone_and_with_words(engine, rows):
    own = np.float32(rows[40]["vector"])
    assert engine.search(Query(like=own)).hits[0].file_id == rows[40]["file_id"]
    both = engine.search(Query("a dog", like=own, keywords=False, limit=0))
    place = {hit.file_id: hit.score for hit in both.hits}
    words, sound = vector_of("a dog"), own
    at = engine.view()
    at = at.vectors(np.arange(at.count))
    mixed = unit(words / (at @ words).std() + sound / (at @ sound).std())
    best = {}
    for row in rows:
        best[row["file_id"]] = max(best.get(row["file_id"], -2.0), float(np.float32(row["vector"]) @ mixed))
    assert place == pytest.approx(best, abs=1e-5)


def test_a_hits_vector_and_facts_come_by_its_id(engine, rows):
    row = next(row for row in rows if row["window"] == 2)
    np.testing.assert_array_equal(engine.vector_of_hit(row["file_id"], 9.9), np.float32(row["vector"]))
    hit = engine.file(row["file_id"])
    assert (hit.shown, hit.duration_s, hit.rate) == (row["shown"], row["duration_s"], row["rate"])
    for unknown in ("0" * 31 + "g", "f" * 32, "' OR ''='"):
        with pytest.raises(DataError, match="no file"):
            engine.file(unknown)
        with pytest.raises(DataError, match="no file"):
            engine.vector_of_hit(unknown, 0.0)


# Filters

FILTERS = st.builds(
    Filters,
    longest_s=st.none() | st.floats(0, 30),
    shortest_s=st.none() | st.floats(0, 30),
    folder=st.sampled_from(["", "/sounds", "/sounds/kind 1", "kind 2", "IT'S 3", "kind 1/it's 1", "/sound", "it", "/"]),
    tags=st.sampled_from([(), ("loop",), ("o'clock", "wet"), ("none",)]),
    rates=st.sampled_from([(), (44_100,), (48_000, 96_000), (8_000,)]),
    channels=st.sampled_from([(), (1,), (1, 2)]),
)


def passes(row, filters):
    folder, below = row["folder"] + "/", filters.folder
    inside = (
        folder.startswith(below.rstrip("/") + "/") if below.startswith("/") else f"/{below.lower()}/" in folder.lower()
    )
    return (
        (filters.longest_s is None or row["duration_s"] <= filters.longest_s)
        and (filters.shortest_s is None or row["duration_s"] >= filters.shortest_s)
        and (not below or inside)
        and set(filters.tags) <= set(row["tags"])
        and (not filters.rates or row["rate"] in filters.rates)
        and (not filters.channels or row["channels"] in filters.channels)
    )


@given(FILTERS)
def test_filters_let_through_what_passes(engine, rows, filters):
    expected = {row["file_id"] for row in rows if passes(row, filters)}
    answer = engine.search(Query("wav", filters=filters, limit=0))
    assert {hit.file_id for hit in answer.hits} == expected
    assert answer.searched == len(expected)


def test_a_filter_of_sql_is_a_text(engine):
    for text in ("' OR 1=1 --", "%", "_", "\\", "kind 1' OR 'a'='a"):
        assert engine.search(Query("a dog", filters=Filters(folder=text))).hits == []
        assert engine.search(Query("a dog", filters=Filters(tags=(text,)))).hits == []


# Keywords


def sounds(folder, *paths, **more):
    rng = np.random.default_rng(5)
    rows = [
        row for k, path in enumerate(paths) for row in of_file(k, [rng.standard_normal(DIM)], f"/sounds/{path}", **more)
    ]
    return made(folder / "index", rows)


@pytest.mark.case("M15")
def test_a_name_is_found_whatever_the_model_hears(tmp_path):
    paths = [f"x{number}.wav" for number in range(60)]
    engine = sounds(tmp_path, *paths, "drums/kick_01.wav", duration_s=0.2)
    first = engine.search(Query("kick")).hits[0]
    assert (first.path.name, first.named) == ("kick_01.wav", True)
    assert not engine.search(Query("kick")).hits[1].named


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dog", {"dogs_barking.wav", "DogBark.wav", "dog.wav"}),
        ("dogs", {"dogs_barking.wav", "DogBark.wav", "dog.wav"}),
        ("dog bark", {"dogs_barking.wav", "DogBark.wav"}),
        ("break", {"loopbreakbeat.wav"}),
        ("beat", set()),  # short ones are within too much: "rain" in "ambitrain"
        ("a dog barks", {"dogs_barking.wav", "DogBark.wav"}),
        ("cafe", {"Café.wav"}),
        ("雨", {"雨の音.wav"}),
        ("the", {"the_end.wav", "rain in the woods.wav"}),
        ("in the rain", {"rain in the woods.wav"}),
    ],
)
def test_words_are_found_in_names(tmp_path_factory, words, expected):
    found = _names_index(tmp_path_factory).search(Query(words, limit=0))
    assert {hit.path.name for hit in found.hits if hit.named} == expected


_kept = {}


def _names_index(factory):
    if not _kept:
        names = (
            "dogs_barking",
            "DogBark",
            "dog",
            "loopbreakbeat",
            "Café",
            "雨の音",
            "the_end",
            "train",
            "rain in the woods",
        )
        _kept["engine"] = sounds(factory.mktemp("names"), *(f"{name}.wav" for name in names))
    return _kept["engine"]


def test_files_with_all_words_come_before_those_with_some(tmp_path):
    engine = sounds(tmp_path, "rain.wav", "rain rain rain.wav", "heavy storm with some rain.wav", "storm.wav", "z.wav")
    at = engine.view()
    tiers = keyword_tiers(at, "rain storm", "", 10)
    assert [set(tier) for tier in tiers] == [{f"{2:032x}"}, {f"{0:032x}", f"{1:032x}", f"{3:032x}"}]


def test_equal_keyword_scores_are_ranked_by_the_cosine():
    tiers = [{"a": 2.0, "b": 2.0, "c": 3.0}, {"d": 9.0}]
    assert ranking.in_order(tiers, {"a": 0.1, "b": 0.2, "d": 0.9}) == ["c", "b", "a", "d"]


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(0, 8), st.integers(0, 8))
def test_fusion_is_lancedbs(one, other, first, second):
    from lancedb.rerankers import RRFReranker

    rankings = [list(one)[:first], list(other)[:second]]
    ours = fused(*([str(each) for each in ranking] for ranking in rankings))
    tables = [
        pa.table({"_rowid": pa.array(ranking, pa.uint64()), name: pa.array([0.0] * len(ranking), pa.float32())})
        for ranking, name in zip(rankings, ("_distance", "_score"), strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = RRFReranker(K=ranking.K, return_score="all").rerank_hybrid("", *tables)
    expected = dict(zip(map(str, theirs["_rowid"].to_pylist()), theirs["_relevance_score"].to_pylist(), strict=True))
    assert ours == pytest.approx(expected, rel=1e-5)
    assert list(ours.values()) == sorted(ours.values(), reverse=True)


def test_keywords_pass_the_filters_first(tmp_path):
    paths = [f"rain {number}.wav" for number in range(300)]
    rows = [
        row
        for k, path in enumerate(paths)
        for row in of_file(k, [vector_of(path)], f"/sounds/{path}", channels=1 + (k == 299))
    ]
    answer = made(tmp_path / "index", rows).search(Query("rain", filters=Filters(channels=(2,))))
    assert [(hit.path.name, hit.named) for hit in answer.hits] == [("rain 299.wav", True)]


@pytest.fixture(scope="module")
def rainy(tmp_path_factory):
    """300 files, a third with each of "rain", "storm" and both; every fifth in stereo, 0 to 99 s long."""
    rows = []
    for number in range(300):
        words = " ".join([*["rain"] * (number % 3 < 2), *["storm"] * (number % 3 > 0), *["wind"] * (number % 17)])
        facts = {"words": words, "channels": 1 + (number % 5 == 0), "duration_s": float(number % 100)}
        rows += of_file(number, [vector_of(str(number))], f"/sounds/{number}.wav", **facts)
    return made(tmp_path_factory.mktemp("rainy") / "index", rows).view()


@pytest.mark.parametrize("most", [1, 20, 400])
@pytest.mark.parametrize(
    "filters",
    [Filters(channels=(2,)), Filters(longest_s=50), Filters(channels=(2,), longest_s=0), Filters(folder="/no")],
)
def test_filters_after_the_words_find_what_filters_before_them_find(rainy, monkeypatch, filters, most):
    where = condition(filters)
    after = keyword_tiers(rainy, "rain storm", where, most)
    monkeypatch.setattr(keywords, "MOST_AFTER", 0)
    before = keyword_tiers(rainy, "rain storm", where, most)
    passing = {rainy.ids[place] for place in np.flatnonzero(rainy.passing(where))}
    for one, other in zip(after, before, strict=True):
        assert set(one) <= passing
        assert sorted(one.values()) == pytest.approx(sorted(other.values()))
        assert len(one) <= most


def test_without_an_index_of_words_the_rest_is_searched_and_told(tmp_path):
    engine = made(tmp_path / "index", many(5), ready=False)
    answer = engine.search(Query("wav"))
    assert len(answer.hits) == 5
    assert UNSURE in answer.notes
    assert engine.search(Query("wav", keywords=False)).notes == ()


# What must not be heard


def two_kinds(folder):
    """Twenty files near "a dog", of which every second is nearer "rain", and eighty of neither."""
    rng = np.random.default_rng(3)
    dog, rain = vector_of("a dog"), vector_of("rain")
    rows = []
    for number in range(100):
        vector = 0.5 * unit(rng.standard_normal(DIM)) + (dog * (number < 20))
        vector = vector + (1.2 * rain if number < 20 and number % 2 else 0)
        rows += of_file(number, [vector], words="wet" if number == 4 else "")
    return made(folder / "index", rows)


def test_what_is_excluded_leaves_and_what_is_wanted_stays(tmp_path):
    engine = two_kinds(tmp_path)
    before = engine.search(Query("a dog", keywords=False, limit=20))
    assert sum(int(hit.file_id, 16) % 2 for hit in before.hits) == 10
    after = {
        int(hit.file_id, 16) for hit in engine.search(Query("a dog", keywords=False, without="rain", limit=10)).hits
    }
    assert not after & set(range(1, 20, 2))
    assert len(after & set(range(0, 20, 2))) >= 8


def test_files_that_carry_the_excluded_words_are_out(tmp_path):
    engine = two_kinds(tmp_path)
    kept = {int(hit.file_id, 16) for hit in engine.search(Query("a dog", without="wet", limit=0)).hits}
    assert 4 not in kept
    assert set(range(0, 20, 4)) - kept == {4}


def test_a_name_brings_nothing_back_that_sounds_like_what_is_excluded(tmp_path):
    engine = made(tmp_path / "index", [*many(20), *of_file(99, [vector_of("rain")], words="thunder")])
    found = [engine.search(Query("thunder", without=without, limit=0)).hits for without in ("", "rain")]
    assert [f"{99:032x}" in {hit.file_id for hit in hits} for hits in found] == [True, False]


def test_what_sounds_more_like_what_is_excluded_is_near_nothing(tmp_path):
    at = two_kinds(tmp_path).view()
    asked = wanted(at.sample, [vector_of("a dog")], vector_of("rain"))
    near = at.nearest(asked, "", 0)
    assert set(near.order) == {each for each, score in near.scores.items() if score > nearest.NOT_AT_ALL}
    assert 0 < len(near.order) < 100


def test_scores_with_something_excluded_are_differences_of_standardised_cosines():
    rng = np.random.default_rng(0)
    vectors, towards, away = unit(rng.standard_normal((50, DIM))), vector_of("a"), vector_of("b")
    z, z_away = ((vectors @ each - (vectors @ each).mean()) / (vectors @ each).std() for each in (towards, away))
    found = wanted(vectors, [towards], away).scores(vectors)
    expected = np.where((z_away > 0) & (z_away > z), -np.inf, z - np.maximum(z_away, 0))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_directions_rank_windows_as_their_scores_do():
    vectors = unit(np.random.default_rng(2).standard_normal((300, DIM)))
    asked = wanted(vectors, [vector_of("a")], vector_of("b"))
    scores, hears = asked.scores(vectors), vectors @ asked.away > asked.usual[1][0]
    for direction, some in zip(asked.directions, (~hears, hears & np.isfinite(scores)), strict=True):
        assert some.sum() > 20
        np.testing.assert_array_equal(np.argsort(vectors[some] @ direction), np.argsort(scores[some]))


# Near-duplicates


@pytest.mark.case("I12")
def test_near_duplicates_are_folded_with_a_count(tmp_path):
    import soundfile
    from indices import noise

    from earmark.search.copies import print_of

    samples = noise(3.0, seed=1, rate=44_100)
    rows = []
    for number, name in enumerate(("a.wav", "b.flac", "c.ogg")):
        soundfile.write(tmp_path / name, samples, 44_100)
        known = print_of([decode.load(tmp_path / name).samples], 44_100)
        near = vector_of("a dog") + 0.01 * number * vector_of("x")
        rows += of_file(number, [near], f"/sounds/{name}", print=known, duration_s=3.0)
    other = print_of([noise(3.0, seed=2, rate=44_100)], 44_100)
    rows += of_file(3, [vector_of("a dog") + 0.1 * vector_of("y")], "/sounds/d.wav", print=other, duration_s=3.0)
    engine = made(tmp_path / "index", rows)
    answer = engine.search(Query("a dog", keywords=False, limit=2))
    assert names(answer) == ["a.wav", "d.wav"]
    assert answer.hits[0].copies == ("/sounds/b.flac", "/sounds/c.ogg")
    unfolded = engine.search(Query("a dog", keywords=False, fold=False))
    assert names(unfolded) == ["a.wav", "b.flac", "c.ogg", "d.wav"]
    assert not any(hit.copies for hit in unfolded.hits)


@pytest.mark.case("I12")
def test_places_that_copies_leave_free_are_filled(tmp_path):
    rows = []
    for number in range(60):
        vector = vector_of("a dog") + (0.001 if number < 40 else 0.5) * unit(
            np.random.default_rng(number).standard_normal(DIM)
        )
        rows += of_file(number, [vector], content="same" if number < 40 else f"{number}")
    answer = made(tmp_path / "index", rows).search(Query("a dog", keywords=False, limit=10))
    assert len(answer.hits) == 10
    assert len(answer.hits[0].copies) == 39


# Beside an index run


@pytest.mark.case("I08")
def test_commits_are_seen_and_nothing_breaks_meanwhile(tmp_path):
    engine = made(tmp_path / "index", many(30))
    writer, stop, wrong = Store.open(tmp_path / "index"), threading.Event(), []

    def ask():
        while not stop.is_set():
            try:
                answer = engine.search(Query("1 wav", limit=0))
                ids = [hit.file_id for hit in answer.hits]
                assert len(ids) == len(set(ids)) == answer.searched
            except Exception as error:
                wrong.append(error)
                return

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for each in askers:
        each.start()
    for number in range(1000, 1012):
        removed = [f"{number - 1000:032x}"] if number % 3 == 0 else []
        writer.commit(table_of(of_file(number, [vector_of(str(number))])), removed)
        if number % 4 == 0:
            writer.tidy()
    stop.set()
    for each in askers:
        each.join()
    assert wrong == []
    there = {hit.file_id for hit in engine.search(Query("a dog", limit=0)).hits}
    assert f"{1011:032x}" in there
    assert f"{2:032x}" not in there
    assert len(there) == 30 + 12 - 4


def test_a_version_that_was_tidied_away_is_read_again(engine, monkeypatch):
    calls = []

    def gone(view, *_):
        calls.append(view)
        if len(calls) == 1:
            raise RuntimeError("Not found: data/x.lance")
        return original(view, *_)

    original = Held.searched
    monkeypatch.setattr(Held, "searched", gone)
    assert len(engine.search(Query("a dog")).hits) == 20
    assert calls[0] is not calls[1]
    monkeypatch.setattr(Held, "searched", lambda *_: (_ for _ in ()).throw(OSError("no disk")))
    monkeypatch.setattr(engines, "PAUSES_S", (0.0, 0.0))
    with pytest.raises(DataError, match="no disk"):
        engine.search(Query("a dog"))


def test_an_index_made_anew_in_its_place_is_the_one_that_answers(tmp_path):
    engine = made(tmp_path / "index", many(10))
    assert engine.search(Query("a dog")).searched == 10
    made(tmp_path / "other", of_file(7, [vector_of("new")]))
    shutil.rmtree(tmp_path / "index")
    (tmp_path / "other").rename(tmp_path / "index")
    answer = engine.search(Query("a dog"))
    assert [hit.file_id for hit in answer.hits] == [f"{7:032x}"]


def test_sixty_four_at_once(engine):
    texts = [f"sound {number % 20}" for number in range(256)]
    engine._texts.clear()
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda text: names(engine.search(Query(text, limit=5))), texts))
    assert answers == [names(engine.search(Query(text, limit=5))) for text in texts]


def test_words_are_embedded_once_and_not_kept_for_ever(engine, monkeypatch):
    monkeypatch.setattr(engines, "TEXTS_KEPT", 3)
    asked = []
    monkeypatch.setattr(engine, "_embedded", lambda words: asked.append(words) or Text(vector_of(words), True))
    engine._texts.clear()
    for text in ("a", "b", "a", "c", "a", "d", "b"):
        engine.vector_of_words(text)
    assert asked == ["a", "b", "c", "d", "b"]
    assert len(engine._texts) == 3


# By IVF_SQ


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """An index that is searched by IVF_SQ, and the same held in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "EXACT_BELOW", 500)
        patch.setattr(ranking, "PARTITION", 50)
        rng = np.random.default_rng(1)
        middles = rng.standard_normal((20, DIM))
        rows = []
        for number in range(1200):
            near = middles[number % 20] + 0.6 * rng.standard_normal((1 + number % 3, DIM))
            rows += of_file(number, near, f"/sounds/{number % 20}/{number}.wav", duration_s=float(number % 100))
        engine = made(tmp_path_factory.mktemp("listed") / "index", rows)
        table = engine.store.windows
    table.checkout_latest()
    return engine, Listed(table), Held(table)


def test_large_indices_are_listed_and_prepared_once(listed, monkeypatch):
    engine, _, held = listed
    monkeypatch.setattr(nearest, "EXACT_BELOW", 500)
    assert isinstance(nearest.view(engine.store.windows), Listed)
    assert isinstance(nearest.view(held.table), Listed)
    monkeypatch.setattr(ranking, "EXACT_BELOW", 500)
    monkeypatch.setattr(ranking, "PARTITION", 50)
    before = engine.store.windows.version
    prepare(engine.store)
    assert engine.store.windows.version == before
    assert ranking.partitions(engine.store.windows) == held.count // 50


@pytest.mark.parametrize(
    "filters", [Filters(), Filters(longest_s=50), Filters(folder="/sounds/7"), Filters(shortest_s=99)]
)
def test_listed_finds_what_held_finds(listed, filters):
    _, some, all_ = listed
    where = condition(filters)
    assert some.searched(where) == all_.searched(where)
    recalls = []
    for number in range(20):
        asked = wanted(all_.sample, [vector_of(f"sound {number}")], None)
        ours, theirs = some.nearest(asked, where, 10), all_.nearest(asked, where, 10)
        assert len(ours.order) == len(theirs.order) == 10
        recalls.append(len(set(ours.order) & set(theirs.order)) / 10)
        for file_id in set(ours.order) & set(theirs.order):
            assert ours.scores[file_id] == pytest.approx(theirs.scores[file_id], abs=1e-5)
    assert np.mean(recalls) >= 0.95


def test_listed_looks_away_as_held_does(listed):
    _, some, all_ = listed
    middle = all_.vectors(np.array([0]))[0]
    asked = wanted(all_.sample, [middle], vector_of("rain"))
    ours, theirs = some.nearest(asked, "", 10), all_.nearest(asked, "", 10)
    assert len(set(ours.order) & set(theirs.order)) >= 8
    assert ours.scores[ours.order[0]] == pytest.approx(theirs.scores[ours.order[0]], abs=1e-4)


def test_listed_gives_rows_scores_and_all_files(listed):
    _, some, all_ = listed
    asked = wanted(all_.sample, [vector_of("a")], None)
    assert set(some.nearest(asked, "", 0).order) == set(all_.nearest(asked, "", 0).order)
    asked = wanted(all_.sample, [vector_of("a")], vector_of("b"))
    last = all_.nearest(asked, "", 0).order[-1]
    assert some.nearest(asked, "", 5, [last]).scores[last] == pytest.approx(
        all_.nearest(asked, "", 5, [last]).scores[last]
    )
    ids = [f"{number:032x}" for number in (3, 5)]
    asked = [ids[1], "nothing", ids[0]]
    for mine, his in zip(some.files(asked), all_.files(asked), strict=True):
        assert mine.facts == his.facts
        assert mine.row == his.row
        np.testing.assert_array_equal(mine.spans, his.spans)
        np.testing.assert_array_equal(mine.vectors, his.vectors)
    assert [each.facts["file_id"] for each in some.files(asked)] == [ids[1], ids[0]]
    assert [len(each.spans) for each in some.files(ids)] == [1, 3]
    for at in (some, all_):
        assert at.prints([each.row for each in at.files(ids)]) == dict.fromkeys(ids, b"")
        assert (at.files(["nothing"]), at.prints([])) == ([], {})


def test_partitions_are_made_anew_when_the_index_has_outgrown_them(tmp_path, monkeypatch):
    monkeypatch.setattr(ranking, "EXACT_BELOW", 300)
    monkeypatch.setattr(ranking, "PARTITION", 50)
    engine = made(tmp_path / "index", many(150))
    before = ranking.partitions(engine.store.windows)
    engine.store.commit(table_of([{**row, "file_id": f"b{row['file_id'][1:]}"} for row in many(100, seed=8)]))
    prepare(engine.store)
    assert ranking.partitions(engine.store.windows) == before
    engine.store.commit(table_of([{**row, "file_id": f"a{row['file_id'][1:]}"} for row in many(900, seed=9)]))
    prepare(engine.store)
    assert ranking.partitions(engine.store.windows) > ranking.OUTGROWN * before
    assert len([each for each in engine.store.windows.list_indices() if each.columns == ["vector"]]) == 1


# Class names lead words


def test_class_names_near_the_words_are_raised():
    rng = np.random.default_rng(0)
    names = unit(rng.standard_normal((6, DIM)) + 0.5)
    led = ClassLed(names)
    words = unit(names[2] + 0.2 * vector_of("x"))
    found = led.led(words)
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    before, after = names @ words, names @ found
    assert after.argmax() == 2
    assert after[2] - np.delete(after, 2).max() > before[2] - np.delete(before, 2).max()
    assert led.knows(names[0])
    assert not led.knows(unit(np.linalg.svd(names)[2][-1]))  # at right angles to all of them


def test_only_a_bridge_that_has_not_learned_is_led(sentence_encoder, tmp_path):
    from types import SimpleNamespace

    import torch
    from indices import random_run

    from earmark.model.dual_encoder import DualEncoder
    from earmark.model.heads import Bridge, Residual

    bridge, text = Bridge(DIM, 0.1), Residual(DIM, 0.1)
    bridge.classes.copy_(torch.from_numpy(unit(np.random.default_rng(0).standard_normal((521, DIM)))))
    model = SimpleNamespace(audio=SimpleNamespace(head=bridge), text=text)
    assert ClassLed.of(model) is not None
    text.linear.weight.data[0, 0] = 0.1
    assert ClassLed.of(model) is None
    assert ClassLed.of(DualEncoder.load(random_run(tmp_path / "run"))) is None


# Sounds to search by, and the command


@pytest.fixture(scope="module")
def index(tmp_path_factory, sentence_encoder):
    return small_index(tmp_path_factory.mktemp("search"))


def test_a_files_vector_is_that_of_its_windows(index):
    engine = Engine(index)
    root = index.parent / "sounds"
    for name in ("dogs/dog_bark.wav", "doors/door_slam.ogg"):
        hit = engine.search(Query(like=engine.vector_of_file(root / name))).hits[0]
        assert hit.path == root / name
        assert hit.score == pytest.approx(1, abs=1e-5)
    river = next(
        hit for hit in engine.search(Query(like=engine.vector_of_file(root / "long" / "river.wav"), limit=0)).hits
    )
    np.testing.assert_allclose(
        engine.vector_of_file(root / "long" / "river.wav", 5.0), engine.vector_of_hit(river.file_id, 5.0), atol=1e-5
    )
    whole = decode.load(root / "long" / "river.wav")
    parts = [whole.samples[start : start + 10 * whole.rate] for start in range(0, len(whole.samples), 10 * whole.rate)]
    lengths = [len(part) / whole.rate for part in parts]
    vectors = [engine._the_model().encoder.embed_audio(part, whole.rate)[0] for part in parts]
    mean = sum(seconds * vector for seconds, vector in zip(lengths, vectors, strict=True))
    np.testing.assert_allclose(engine.vector_of_file(root / "long" / "river.wav"), unit(mean), atol=1e-5)


def test_a_time_beyond_the_end_and_what_is_no_sound_are_refused(index, tmp_path):
    engine = Engine(index)
    with pytest.raises(DataError, match="no sound from 99 s on"):
        engine.vector_of_file(index.parent / "sounds" / "dogs" / "dog_bark.wav", 99.0)
    (tmp_path / "a.wav").write_text("not a sound")
    with pytest.raises(DataError, match=r"a\.wav"):
        engine.vector_of_file(tmp_path / "a.wav")


def test_words_are_read_by_the_indexs_own_model(index):
    engine = Engine(index)
    np.testing.assert_array_equal(engine.vector_of_words("a dog"), engine._the_model().encoder.embed_text(["a dog"])[0])
    shutil.rmtree(index.parent / "run")
    assert engine.search(Query("thunder")).hits[0].path.name == "thunder_storm.wav"


def run(*arguments):
    """Exit code and standard output of the command; refusals as the message."""
    result = CliRunner().invoke(app, ["search", *map(str, arguments)])
    if isinstance(result.exception, EarmarkError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_the_command_tells_what_it_found(index):
    code, out = run(index, "rain on a roof", "--limit", "3")
    assert code == 0
    assert "rain_on_roof.flac" in out.splitlines()[1]
    assert max(map(len, out.splitlines()[1::2])) <= 80
    code, out = run(index, "rain", "roof", "--json", "-", "--shortest", "1")
    found = json.loads(out)
    assert list(found[0])[:4] == ["path", "start_s", "end_s", "score"]
    assert found[0]["path"].endswith("rain_on_roof.flac")


def test_nothing_found_says_so(index, tmp_path):
    code, out = run(index, "rain", "--longest", "0.01")
    assert code == 0
    assert "nothing found (nothing passes the filters)" in out
    empty = Store.create(tmp_path, Store.open(index).about).folder
    shutil.copytree(index / "model", empty / "model")
    code, out = run(empty, "rain")
    assert code == 0
    assert "nothing found (the index holds no sound yet)" in out
    code, out = run(index, "rain", "--longest", "0.01", "--json", "-")
    assert (code, json.loads(out)) == (0, [])


@pytest.mark.case("M08")
@pytest.mark.parametrize("words", ["", " ", "\n", "\u200b"])
def test_the_command_refuses_blank_words(index, words):
    for arguments in ([words], ["rain", "--not", words], ["--like", "", words]):
        code, out = run(index, *arguments)
        assert code == 2
        assert "blank" in out
    assert run(index)[0] == 2


@pytest.mark.parametrize("wrong", [["--longest", "nan"], ["--shortest", "-1"], ["--like", "nothing.wav@3"]])
def test_the_command_refuses_in_one_line(index, wrong):
    code, out = run(index, "rain", *wrong)
    assert code == 2
    assert "\n" not in out


def test_a_sound_and_a_time_are_told_apart_from_a_name(index, tmp_path):
    odd = write_sound(tmp_path / "odd.wav", 1.0).rename(tmp_path / "odd@12.5")
    assert sound_of(str(odd)) == (odd, None)
    assert sound_of("rain.wav@12.5") == (Path("rain.wav"), 12.5)
    assert sound_of("a@b.wav@3") == (Path("a@b.wav"), 3.0)
    assert sound_of("a@b.wav") == (Path("a@b.wav"), None)
    river = index.parent / "sounds" / "long" / "river.wav"
    code, out = run(index, "--like", f"{river}@5", "--json", "-", "--limit", "1")
    assert code == 0
    assert json.loads(out)[0]["start_s"] == 5.0


def test_hits_are_taken_along(index, tmp_path):
    arguments = [
        "door",
        "--limit",
        "2",
        "--m3u",
        tmp_path / "a.m3u",
        "--copy-to",
        tmp_path / "c",
        "--cut",
        tmp_path / "d",
    ]
    assert run(index, *arguments)[0] == 0
    assert len([line for line in (tmp_path / "a.m3u").read_text().splitlines() if line.startswith("/")]) == 2
    assert len(list((tmp_path / "c").iterdir())) == len(list((tmp_path / "d").iterdir())) == 2


def test_a_hit_takes_two_lines_that_hold_no_controls(engine):
    hit = engine.search(Query("a dog", limit=1)).hits[0]
    hit = replace(hit, copies=("a", "b"), path=Path("/sounds/bad\x1b[31mname\n.wav"), duration_s=3671.26)
    first, second = lines_of(3, hit)
    assert first.startswith("  3  ")
    assert "of 61:11.3" in first
    assert "(+2 copies)" in first
    assert "\x1b" not in first + second
    assert second.strip() == "/sounds"
