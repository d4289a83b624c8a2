"""An evaluation: scores × relevance → numbers that carry their name, protocol, data, kind and count.

Text-to-audio: each caption of the split's clips is a query, the gallery is the split's clips, and relevant are the
caption's own clip and every clip that bears the same text. Audio-to-text is the same table transposed. Ratings:
the split's rated (caption, clip) pairs, scores against the mean of people's ratings; a study's anchors are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.data.collection import Collection
from earmark.errors import DataError
from earmark.files import write_text
from earmark.measure import metrics, stats
from earmark.relevance import Pair, Relevance, quoted

Scorer = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Caption ids and clip ids → scores, float32 [caption, clip]; higher is more relevant."""
QUERIES_AT_ONCE = 2048
TREC_DEPTH = 1000
"""Items a query in a TREC run."""


class Direction(NamedTuple):
    """Retrieval in one direction."""

    queries: list[str]
    clips: list[str]
    """The clip that each query belongs to: what the bootstrap draws."""
    values: dict[str, NDArray[np.float64]]
    """Measure → [query]; NaN where the query has nothing relevant."""


class Rated(NamedTuple):
    """The rated pairs of a split."""

    captions: list[str]
    clips: list[str]
    scores: NDArray[np.float64]
    ratings: NDArray[np.float64]
    """Means over raters, 0–1."""
    owners: dict[str, str]
    """Caption → its own clip."""
    ndcg: NDArray[np.float64]
    """nDCG@10 among the judged clips, a caption each, in order of first appearance."""
    groups: list[str]
    """How each pair was chosen (GrRel: TP, TN, C15), "" where nobody says."""


@dataclass(frozen=True)
class Evaluation:
    """What a run's scores came to on a split; see the module for the protocol."""

    collection: str
    kind: str
    split: str
    protocol: str
    text_to_audio: Direction
    audio_to_text: Direction
    rated: Rated | None
    left_out: int
    """Clips of the split that could not be embedded; neither they nor their captions count."""
    unseen: Direction | None = None
    """Text to audio again, of the queries alone whose text training never saw; None where it saw none of them."""

    def numbers(self, *, seed: int = 0) -> dict[str, Any]:
        """The evaluation as `evaluate --json` prints it; NaN is None. Intervals are 95 %, by bootstrap (stats)."""
        found: dict[str, Any] = {
            "collection": self.collection,
            "kind": self.kind,
            "split": self.split,
            "protocol": self.protocol,
            "text_to_audio": _direction_numbers(self.text_to_audio, seed),
            "audio_to_text": _direction_numbers(self.audio_to_text, seed),
        }
        if self.unseen is not None:
            found["text_to_audio_unseen_texts"] = _direction_numbers(self.unseen, seed)
        if self.rated is not None:
            found["ratings"] = _rated_numbers(self.rated, seed)
        if self.left_out:
            found["left_out"] = self.left_out
        clean: dict[str, Any] = without_nan(found)
        return clean


def evaluate(
    collection: Collection,
    split: str | None,
    scorer: Scorer,
    *,
    without: frozenset[str] = frozenset(),
    seen_texts: frozenset[str] = frozenset(),
) -> Evaluation:
    """The evaluation of a scorer on a split; None is all clips but those of rated lists.

    `without` names clips that have no embedding, `seen_texts` are the captions that training saw. Raises `DataError`
    where nothing is left to ask or to find.
    """
    gallery = [clip.clip_id for clip in collection.gallery(split)]
    found = [clip for clip in gallery if clip not in without]
    queries = collection.query_captions(split, without)
    if not found or not queries:
        raise DataError(
            f"{collection.root}: {len(found)} clips and {len(queries)} captions in split {split or 'all'!r}; "
            "expected one of each at least. Choose another split."
        )
    relevance = collection.relevance("captions", split)
    ids = [caption.caption_id for caption in queries]
    owners = [caption.clip_id for caption in queries]
    each = "each distinct text" if collection.queries == "texts" else "each caption"
    there = Direction(ids, owners, _retrieval(ids, found, scorer, relevance))
    unseen = [place for place, caption in enumerate(queries) if caption.text not in seen_texts]
    return Evaluation(
        collection.name,
        collection.kind,
        split or "all",
        f"{each} is a query, the gallery is the split's clips, relevant are its own clip and clips of the same text; "
        "ties by expected value",
        there,
        Direction(
            found, found, _retrieval(found, ids, lambda clips, texts: scorer(texts, clips).T, relevance.transpose())
        ),
        _rated(collection, split, scorer, without),
        len(gallery) - len(found),
        _part(there, unseen) if 0 < len(unseen) < len(queries) else None,
    )


def _part(direction: Direction, places: Sequence[int]) -> Direction:
    """The direction with the queries at these places alone, against the same items."""
    queries, clips = ([names[at] for at in places] for names in (direction.queries, direction.clips))
    return Direction(queries, clips, {name: values[list(places)] for name, values in direction.values.items()})


def query_blocks(queries: Sequence[str]) -> Iterator[Sequence[str]]:
    """The queries in parts, so that no more than a part's scores are held at once."""
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        yield queries[start : start + QUERIES_AT_ONCE]


def _retrieval(
    queries: Sequence[str], items: Sequence[str], scorer: Scorer, relevance: Relevance
) -> dict[str, NDArray[np.float64]]:
    """Every measure, [query]."""
    parts = [metrics.retrieval(scorer(some, items), relevance.block(some, items)[0]) for some in query_blocks(queries)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rated(collection: Collection, split: str | None, scorer: Scorer, without: frozenset[str]) -> Rated | None:
    relevance = collection.relevance("ratings", split)
    relevance = relevance.restrict(clips=[clip for clip in relevance.clip_ids if clip not in without])
    pairs = list(relevance.pairs())
    if not pairs:
        return None
    scores: dict[tuple[str, str], float] = {}
    ndcg = []
    for captions in query_blocks(relevance.caption_ids):
        clips = relevance.restrict(captions=captions).clip_ids
        values, judged = relevance.block(captions, clips)
        block = scorer(captions, clips)
        ndcg.append(metrics.ndcg(block, values, judged, k=10))
        at = np.argwhere(judged)
        scores |= {(captions[i], clips[j]): block[i, j] for i, j in at}
    return Rated(
        [pair.caption_id for pair in pairs],
        [pair.clip_id for pair in pairs],
        np.array([scores[pair.caption_id, pair.clip_id] for pair in pairs], dtype=np.float64),
        np.array([pair.value for pair in pairs]),
        {caption.caption_id: caption.clip_id for caption in collection.captions},
        np.concatenate(ndcg),
        _groups(collection, split, pairs),
    )


def _groups(collection: Collection, split: str | None, pairs: Sequence[Pair]) -> list[str]:
    group = {(rating.caption_id, rating.clip_id): rating.group for rating in collection.rated(split)}
    return [group[pair.caption_id, pair.clip_id] for pair in pairs]


def _direction_numbers(direction: Direction, seed: int) -> dict[str, Any]:
    means = {name: stats.mean_defined(values) for name, values in direction.values.items()}
    interval = stats.mean_interval(direction.values["mAP"], direction.clips, seed=seed)
    return {
        **{name: mean for name, (mean, _) in means.items()},
        "mAP interval": list(interval),
        "queries": len(direction.queries),
        "undefined": means["mAP"][1],
    }


def _rated_numbers(rated: Rated, seed: int) -> dict[str, Any]:
    x, y, captions, clips = rated.scores, rated.ratings, rated.captions, rated.clips
    within, undefined = stats.mean_defined(stats.spearman_within(captions, x, y))
    return {
        "spearman": stats.spearman(x, y),
        "interval": list(stats.spearman_interval(x, y, captions, clips, seed=seed)),
        "spearman_within_lists": within,
        "spearman_within_lists interval": list(stats.spearman_within_interval(x, y, captions, clips, seed=seed)),
        "kendall": stats.kendall(x, y),
        "kendall_within_lists": stats.mean_defined(stats.kendall_within(captions, x, y))[0],
        "nDCG@10(judged)": stats.mean_defined(rated.ndcg)[0],
        "pairs": len(x),
        "captions": len(set(captions)),
        "undefined_lists": undefined,
        "groups": _group_numbers(rated),
        # XACLE's names. A cosine below 0 counts as 0; MSE is on 0–1: times 100 it is that of a scale of 0–10
        **stats.rated_measures(x, y),
        "MSE": float(np.mean((np.clip(x, 0, 1) - y) ** 2)),
    }


def _group_numbers(rated: Rated) -> dict[str, Any]:
    """Of each group of pairs its pooled ρ and count; {} where no pair names one."""
    found: dict[str, Any] = {}
    for group in sorted(set(rated.groups) - {""}):
        at = [place for place, each in enumerate(rated.groups) if each == group]
        found[group] = {"spearman": stats.spearman(rated.scores[at], rated.ratings[at]), "pairs": len(at)}
    return found


def without_nan(value: Any) -> Any:
    """The same with NaN as None, which JSON can say."""
    if isinstance(value, Mapping):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


# Comparing runs


class Comparison(NamedTuple):
    """How much a run differs from the first one in a measure, on the same queries or pairs."""

    run: str
    measure: str
    value: float
    reference: float
    difference: stats.Difference
    p_holm: float
    """Corrected for all comparisons of the call (Holm)."""


def compare(evaluations: Mapping[str, Evaluation], *, seed: int = 0) -> list[Comparison]:
    """Each run against the first, paired: mAP and R@10 of text-to-audio, pooled ρ and mean ρ within lists."""
    (first, reference), *others = evaluations.items()
    found = [
        Comparison(name, measure, value, base, difference, math.nan)
        for name, evaluation in others
        for measure, value, base, difference in _differences(first, reference, name, evaluation, seed)
    ]
    corrected = stats.holm([comparison.difference.p for comparison in found])
    return [comparison._replace(p_holm=float(p)) for comparison, p in zip(found, corrected, strict=True)]


def _differences(
    first: str, a: Evaluation, name: str, b: Evaluation, seed: int
) -> Iterator[tuple[str, float, float, stats.Difference]]:
    """(measure, b's value, a's value, b − a)."""
    if (a.split, a.text_to_audio.queries) != (b.split, b.text_to_audio.queries):
        raise DataError(f"{first} and {name}: evaluated on different queries. Compare on one collection and split.")
    for measure in ("mAP", "R@10"):
        x, y = b.text_to_audio.values[measure], a.text_to_audio.values[measure]
        difference = stats.compare_means(x, y, a.text_to_audio.clips, seed=seed)
        yield measure, stats.mean_defined(x)[0], stats.mean_defined(y)[0], difference
    if a.rated is None or b.rated is None:
        return
    captions, clips, ratings = a.rated.captions, a.rated.clips, a.rated.ratings
    rho = stats.compare_spearman(b.rated.scores, a.rated.scores, ratings, captions, clips, seed=seed)
    yield "ρ", stats.spearman(b.rated.scores, ratings), stats.spearman(a.rated.scores, ratings), rho
    x, y = (stats.spearman_within(captions, each.rated.scores, ratings) for each in (b, a) if each.rated)
    owners = [a.rated.owners[caption] for caption in sorted(set(captions))]
    within = stats.compare_means(x, y, owners, seed=seed)
    yield "ρ within lists", stats.mean_defined(x)[0], stats.mean_defined(y)[0], within


# Files for other programs


def write_trec(
    folder: Path, collection: Collection, split: str | None, scorer: Scorer, *, without: frozenset[str] = frozenset()
) -> None:
    """Writes `captions.qrels` and `captions.run` (the first 1,000 clips a query) for trec_eval and its kin.

    Where the split has ratings, `ratings.qrels` and `ratings.run` (judged clips only) too. Ids are percent-encoded
    where they hold white space.
    """
    gallery = [clip.clip_id for clip in collection.gallery(split) if clip.clip_id not in without]
    queries = [caption.caption_id for caption in collection.query_captions(split, without)]
    relevance = collection.relevance("captions", split).restrict(queries, gallery)
    relevance.write_qrels(folder / "captions.qrels")
    write_text(folder / "captions.run", "".join(_trec_lines(queries, gallery, scorer)))
    rated = collection.relevance("ratings", split)
    rated = rated.restrict(clips=[clip for clip in rated.clip_ids if clip not in without])
    if len(rated):
        rated.write_qrels(folder / "ratings.qrels")
        write_text(folder / "ratings.run", "".join(_trec_lines(rated.caption_ids, rated.clip_ids, scorer, rated)))


def _trec_lines(
    queries: Sequence[str], items: Sequence[str], scorer: Scorer, judged: Relevance | None = None
) -> Iterator[str]:
    """`query Q0 item rank score earmark`, best first."""
    names = [quoted(item) for item in items]
    for some in query_blocks(queries):
        scores = scorer(some, items)
        keep = judged.block(some, items)[1] if judged else np.ones(scores.shape, dtype=np.bool_)
        order = np.argsort(np.where(keep, -scores, np.inf), axis=1, kind="stable")[:, :TREC_DEPTH]
        for row, query in enumerate(some):
            kept = order[row][keep[row, order[row]]]
            for rank, at in enumerate(kept, start=1):
                yield f"{quoted(query)} Q0 {names[at]} {rank} {scores[row, at]:.9g} earmark\n"
