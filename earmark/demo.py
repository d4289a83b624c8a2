"""The demo: the main job on a generated collection, from nothing to a table of results, in minutes.

    python -m earmark.demo FOLDER

Generates soundscapes, trains by ListNet, by InfoNCE and by both together, and measures them beside the untrained
model on clips that none of them has seen. Then it brings the joint model's cosines to ratings with intervals, tells
what people's ratings go with, and searches those clips by words. Ends with exit code 1 where the joint model does not
clearly beat the untrained one. What is there already from an earlier call is used again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from earmark import Collection, console
from earmark.analyse.answer import answer
from earmark.analyse.fitting import fit_run
from earmark.analyse.report import counts, write_report
from earmark.analyse.score import score_collection
from earmark.analyse.study import Settings, study
from earmark.data import soundscapes
from earmark.errors import EarmarkError
from earmark.learn.measured import evaluate_run
from earmark.learn.recipe import Recipe
from earmark.learn.train import train
from earmark.measure.evaluate import Evaluation, compare
from earmark.search.engine import Engine
from earmark.search.index import build
from earmark.search.query import Query

CLIPS = 300
FOUND = 3
"""Sounds that are shown of a search."""
LISTNET: dict[str, Any] = {"loss": "listnet", "temperature": 0.1, "relevance": "ratings"}
INFONCE: dict[str, Any] = {"loss": "infonce"}
RUNS: dict[str, tuple[int, list[dict[str, Any]]]] = {
    "untrained": (0, [INFONCE]),
    "ListNet": (8, [LISTNET | {"lists": 8}]),
    "InfoNCE": (6, [INFONCE]),
    "joint": (6, [INFONCE | {"weight": 0.7}, LISTNET | {"weight": 0.3, "lists": 1}]),
}
"""Name → epochs at most, objectives."""


def recipe(epochs: int, objectives: list[dict[str, Any]]) -> Recipe:
    """A very narrow CNN14 from scratch on the small sentence encoder."""
    tables = {
        "audio": {"encoder": "cnn14", "weights": "none", "width": 8, "dropout": 0.1},
        "text": {"encoder": "all-MiniLM-L6-v2"},
        "train": {"max_epochs": epochs, "monitor": "val_mAP"},
        "objective": objectives,
    }
    return Recipe.from_tables(tables, "demo")


def collection_in(folder: Path) -> Collection:
    """The demo's soundscapes, generated where they are not there yet."""
    if (folder / "clips.csv").exists():
        return Collection.read(folder)
    with console.progress() as progress:
        return soundscapes.generate(
            folder, clips=CLIPS, seed=0, progress=lambda done, all_: progress("generating clips", done, all_)
        )


def evaluation_of(name: str, collection: Collection, runs: Path) -> Evaluation:
    """Trains the run of this name, or goes on with it, and measures it on the evaluation split."""
    with console.progress() as progress:
        epochs, objectives = RUNS[name]
        train(recipe(epochs, objectives), collection, runs / name, resume=True, progress=progress)
        return evaluate_run(runs / name, collection, "evaluation", progress)[0]


def main(folder: Path) -> int:
    """Runs the demo in `folder`; gives the exit code."""
    collection = collection_in(folder / "soundscapes")
    console.say(
        f"{collection.name} (GENERATED): {len(collection.clips):,} clips of synthesised events, "
        f"{len(collection.captions):,} captions, {len(collection.ratings):,} ratings by simulated raters"
    )
    evaluations = {}
    for name in RUNS:
        evaluations[name] = evaluation_of(name, collection, folder / "runs")
        console.say(f"{name}: done")
    _show(evaluations, collection)
    better = {c.measure: c for c in compare({each: evaluations[each] for each in ("untrained", "joint")})}
    clearly = all(better[measure].difference.interval.low > 0 for measure in ("mAP", "ρ"))
    console.say(
        "The joint model clearly beats the untrained one (95 % intervals of the differences in mAP and ρ are above 0)."
        if clearly
        else "The joint model does NOT clearly beat the untrained one: something is wrong."
    )
    _analyse(collection, folder / "runs" / "joint", folder / "why")
    _search(collection, folder / "runs" / "joint", folder / "index")
    return 0 if clearly else 1


def _analyse(collection: Collection, run: Path, out: Path) -> None:
    """Scores with intervals, and the report on what ratings go with."""
    with console.progress() as progress:
        calibration = fit_run(run, collection, progress=progress).calibration
        calibration.write(run)
        scored = answer(calibration, score_collection(run, collection, "evaluation", progress))
        settings = Settings.of(["captions.language_model=ngram", 'columns=["captions.partial", "clips.event_count"]'])
        found = study(collection, settings, run=run, progress=progress)
        write_report(found, out)
    measured = scored.measures
    assert measured is not None
    console.say(
        f"Ratings expected by the joint model, fitted on {calibration.pairs:,} pairs of validation: the 90 % interval "
        f"holds {measured['coverage']:.0%} of evaluation's {measured['pairs']:,}; mean squared error "
        f"{measured['expected']['MSE']:.3f} on 0–1, of the best constant {measured['constant_here']['MSE']:.3f}"
    )
    console.say(f"What ratings go with ({counts(found.scopes[-1])}): {out / 'report.html'}")


def _search(collection: Collection, run: Path, index: Path) -> None:
    """The clips that training never saw, searched by a caption of one of them."""
    gallery = collection.gallery("evaluation")
    caption = next(each for each in collection.captions if each.clip_id == gallery[0].clip_id)
    with console.progress() as progress:
        # trained again, the run is another model: then the index is made anew
        build([collection.audio_path(clip) for clip in gallery], index, model=str(run), rebuild=True, progress=progress)
    answer = Engine(index).search(Query(words=caption.text, keywords=False, limit=FOUND))
    texts = {each.clip_id: each.text for each in reversed(collection.captions)}
    names = {collection.audio_path(clip).name: texts[clip.clip_id] for clip in gallery}
    console.show_table(
        ["sound", "cosine", "its first caption"],
        [[hit.path.name, console.number(hit.best.score), names[hit.path.name]] for hit in answer.hits],
        f"The first {len(answer.hits)} of {answer.searched} sounds that training never saw, by {caption.text!r}",
    )
    console.say(f"Search them yourself: earmark search {index} WORDS, or as a page: earmark serve {index}")


def _show(evaluations: dict[str, Evaluation], collection: Collection) -> None:
    rows = []
    for name, evaluation in evaluations.items():
        numbers = evaluation.numbers()
        there, rated = numbers["text_to_audio"], numbers["ratings"]
        retrieval = [
            console.number(there["mAP"]),
            console.interval(there["mAP interval"]),
            console.number(there["R@10"]),
        ]
        rows.append([name, *retrieval, console.number(rated["spearman"]), console.interval(rated["interval"])])
    clips = len(collection.gallery("evaluation"))
    console.show_table(
        ["trained by", "mAP", "95 % interval", "R@10", "Spearman ρ", "95 % interval"],
        rows,
        f"GENERATED soundscapes, split evaluation: {there['queries']} captions against {clips} clips; "
        f"ρ over {rated['pairs']} rated pairs",
    )


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")))
    except EarmarkError as error:
        console.complain(str(error))
        sys.exit(2)
