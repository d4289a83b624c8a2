"""`card.md`: what a run learned from what, and what its numbers mean, in the form of the hub's model cards.

A front matter in YAML for the hub, then sections for people. Nothing in it is a test result.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from earmark.data.collection import SHOUTED, Collection, shouted
from earmark.data.splits import TRAINED_ON
from earmark.files import write_text
from earmark.learn.objectives import Objective
from earmark.learn.recipe import Recipe, TrainConfig
from earmark.learn.run import Result
from earmark.model.audio_towers import OWN_CAPTIONS, AudioConfig, is_frozen, is_named
from earmark.model.pretrained import HUB
from earmark.model.share import HUB_NAME, is_hub_name
from earmark.model.stored import named_models
from earmark.model.towers import VECTORS

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

TAGS = ("audio-text-retrieval", "text-to-audio-retrieval", "audio-to-text-retrieval", "sentence-similarity")
METRICS = {"val_loss": "loss", "val_mAP": "map"}
"""Name in the log → the hub's name."""
LICENCES = (
    "apache-2.0 mit bsd-2-clause bsd-3-clause gpl-3.0 lgpl-3.0 agpl-3.0 mpl-2.0 unlicense cc0-1.0 cc-by-2.0 cc-by-2.5 "
    "cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 "
    "cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 odc-by odbl pddl cdla-permissive-1.0 "
    "cdla-permissive-2.0 cdla-sharing-1.0 c-uda"
)
"""Identifiers of the hub that data come under."""
NETWORKS = {
    "cnn14": "PANNs' CNN14",
    "cnn10": "PANNs' CNN10",
    "cnn6": "PANNs' CNN6",
    "yamnet": "YAMNet",
    "aisfx": "aiSFX",
}
LEARNED_FROM = {"aisfx": "libraries of sound effects, whose sounds"}
"""What the published weights learned from; AudioSet where it is not said."""
CITATION = """\
@article{xie_continuous_binary,
  title  = {Integrating Continuous and Binary Relevances in Audio-Text Relevance Learning},
  author = {Xie, Huang and Khorrami, Khazar and R{\\"a}s{\\"a}nen, Okko and Virtanen, Tuomas},
  note   = {the joint ListNet and InfoNCE objective}
}
@software{earmark,
  title  = {earmark: audio-text relevance learned from captions and from people's ratings},
  author = {{The earmark authors}}
}"""


def write_card(recipe: Recipe, collection: Collection, result: Result, objectives: Sequence[Objective]) -> None:
    """Writes `card.md`: what was learned from what, and what the numbers mean."""
    sections = {
        "Model details": _details(recipe, collection),
        "Uses": _uses(recipe, collection, result),
        "Training data": _data(collection, result),
        "Training procedure": _procedure(recipe, result, objectives),
        "Evaluation": _evaluation(recipe, collection, result),
        "Limitations": _limitations(recipe, collection),
        "How to cite": ["The method's paper and the program:", "", "```bibtex", CITATION, "```"],
    }
    lines = [_front_matter(recipe, collection, result), f"# {result.run.resolve().name}", ""]
    lines += ["A dual encoder of sounds and texts: how well they fit is the cosine of their embeddings."]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *body]
    write_text(result.run / "card.md", "\n".join(lines) + "\n")


# For the hub


def _front_matter(recipe: Recipe, collection: Collection, result: Result) -> str:
    from huggingface_hub import ModelCardData

    found = _measured(result)
    name = result.run.resolve().name
    data = ModelCardData(
        library_name="earmark",
        pipeline_tag="feature-extraction",
        tags=[*TAGS, *(kind for kind in SHOUTED if kind == collection.kind)],
        license=_licence(collection),
        datasets=[_slug(collection.name)],
        base_model=_base_models(recipe, collection) or None,
        metrics=[METRICS[name] for name in found] or None,
        model_name=name,
        eval_results=[_result(collection, result, name, value) for name, value in found.items()] or None,
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _result(collection: Collection, result: Result, name: str, value: float) -> EvalResult:
    from huggingface_hub import EvalResult

    return EvalResult(
        task_type="audio-text-retrieval",
        task_name=f"Audio-text retrieval on {result.monitor_split}, {_not_a_test(result)}",
        dataset_type=_slug(collection.name),
        dataset_name=_data_name(collection),
        dataset_split=result.monitor_split,
        metric_type=METRICS[name],
        metric_name=f"{name} of the kept epoch",
        metric_value=round(value, 4),
    )


def _measured(result: Result) -> dict[str, float]:
    """What the kept epoch reached on the monitored split, from the log; {} of an untrained model."""
    log = result.run / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    kept = next((line for line in lines if line["epoch"] == result.best_epoch), {result.monitor: result.best})
    return {name: kept[name] for name in METRICS if math.isfinite(kept.get(name, math.nan))}


def _licence(collection: Collection) -> str | None:
    """The hub's identifier of the collection's licence, None where it states none of them."""
    stated = re.sub(r"\(.*?\)", "", str(collection.about.get("licence", ""))).strip().lower()
    found = re.sub(r"[\s_]+", "-", stated)
    return found if found in LICENCES.split() else None


def _slug(name: str) -> str:
    """The name as the hub's identifiers are: letters, digits, `-`, `_`, `.`."""
    plain = re.sub(r"[^\w.]+", "-", name, flags=re.ASCII)
    return name if HUB_NAME.fullmatch(name) else re.sub(r"\.+", ".", plain).strip("-.")[:96] or "unnamed"


def _base_models(recipe: Recipe, collection: Collection) -> list[str]:
    """The hub's names of the models that it stands on."""
    names = [HUB.get(name, name) for name in _encoders(recipe, collection)]
    return list(dict.fromkeys(name for name in names if is_hub_name(name)))


# For people


def _encoders(recipe: Recipe, collection: Collection) -> list[str]:
    """The names of the audio and the text encoder; of vectors, the model that made them ("" where it is not named)."""
    named = named_models(collection)
    encoders = {"clip_model": recipe.encoders.audio.encoder, "caption_model": recipe.encoders.text.encoder}
    return [str(named.get(key, "")) if name == VECTORS else name for key, name in encoders.items()]


def _details(recipe: Recipe, collection: Collection) -> list[str]:
    config = recipe.encoders
    made_clips, made_captions = _encoders(recipe, collection)
    audio, text = _tower(config.audio, made_clips), _shown(config.text.encoder, made_captions, "caption_vectors.npz")
    if config.audio.encoder == OWN_CAPTIONS:
        heard = ["- The untrained control: a clip is the mean text vector of its captions, and no sound is heard."]
    else:
        heard = [f"- Audio encoder: {audio}; on it {_head(config.audio)}."]
    residual = f"a residual of scale {config.text.residual:g}" if config.text.residual else "a linear layer"
    on_text = "nothing" if config.audio.encoder == OWN_CAPTIONS else residual
    return [
        *heard,
        f"- Text encoder: {text} ({'fine-tuned too' if config.text.train else 'frozen'}); on it {on_text}.",
        f"- Embeddings: {config.model.dim} values of unit length; relevance is the cosine, −1 to 1.",
        "- Every setting is in `config.toml`; the weights are `model.safetensors`. Nothing is pickled.",
    ]


def _tower(config: AudioConfig, made_by: str) -> str:
    """The audio encoder and what became of it: "PANNs' CNN14, weights pretrained, trained too"."""
    if config.encoder == VECTORS:
        return _shown(VECTORS, made_by, "clip_vectors.npz")
    weights = config.weights if config.weights in ("pretrained", "none") else Path(config.weights).name
    started = f"weights {weights}" if is_named(config.encoder) else "weights as published"
    width = f" of width {config.width}" if config.encoder.startswith("cnn") and config.width != 64 else ""
    learned = "frozen" if is_frozen(config) else "fine-tuned" if weights != "none" else "learned from the start"
    names = " and ".join(NETWORKS.get(part, _plain(part)) for part in _parts(config.encoder))
    return f"{names}{width} ({started}, {learned})"


def _parts(encoder: str) -> list[str]:
    """The towers that are joined ("yamnet+aisfx"), mostly one."""
    return encoder.split("+") if is_named(encoder) else [encoder]


def _shown(encoder: str, made_by: str, file: str) -> str:
    if encoder != VECTORS:
        return _plain(encoder)
    return f"vectors of the collection's {file}, " + (f"made by {_plain(made_by)}" if made_by else "of no named model")


def _head(config: AudioConfig) -> str:
    residual = f"a residual of scale {config.residual:g}" if config.residual else ""
    if config.bridge:
        return ", plus ".join(
            filter(None, ["the text vectors of YAMNet's class names, by their probabilities", residual])
        )
    return residual or f"two layers (dropout {config.dropout:g})"


def _plain(name: str) -> str:
    """The name in one line; of a path of this machine only the last part."""
    name = " ".join(name.split())
    return Path(name).name if name.startswith(("/", "~", ".")) else name


def _uses(recipe: Recipe, collection: Collection, result: Result) -> list[str]:
    load = f'import earmark\n\nmodel = earmark.load("{_quoted(str(result.run))}")'
    load += "  # the run's folder, or its name at the hub"
    whole = all(_encoders(recipe, collection))
    return [
        "Ranking sounds by words, words by sounds, and telling how well a sound fits a text. It is no source of",
        "probabilities, and not made for decisions about people.",
        ""
        if whole
        else "\nIt learned from vectors that no model is named for, so it embeds collections that hold such.\n",
        "```python",
        load,
        *(EMBEDS_ANYTHING if whole else EMBEDS_VECTORS),
        "```",
    ]


EMBEDS_ANYTHING = (
    'words = model.embed_text(["a dog barks in the rain"])  # float32 [text, dim]',
    'sounds = model.embed_audio(["rain.wav"])               # float32 [sound, dim], any length and rate',
    "print(words @ sounds.T)                                # cosines [text, sound]",
)
EMBEDS_VECTORS = (
    'collection = earmark.Collection.read("collection")',
    "clips, captions, _ = model.embed_collection(collection, collection.clips, collection.captions)",
    "print(captions.vectors @ clips.vectors.T)  # cosines [caption, clip]",
)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _data(collection: Collection, result: Result) -> list[str]:
    licence = " ".join(str(collection.about.get("licence", "not stated")).split())
    about = {
        "generated": "The sounds are synthesised, and their relevance is that of the generator.",
        "proxy": "Vectors stand in for the sounds, so no number here is one on sound.",
    }
    captions = sum(problem.where.startswith("caption ") for problem in result.problems)
    return [
        f"- Data: {_data_name(collection)}, licence {licence}.",
        *(f"- {text}" for kind, text in about.items() if kind == collection.kind),
        f"- Clips left out because they could not be read: {len(result.problems) - captions}.",
        *([f"- Captions left out because they could not be read: {captions}."] if captions else []),
    ]


def _data_name(collection: Collection) -> str:
    kind = shouted(collection.kind)
    return f"{' '.join(collection.name.split())} ({kind})"


def _procedure(recipe: Recipe, result: Result, objectives: Sequence[Objective]) -> list[str]:
    train = recipe.train
    return [
        *map(_objective, objectives),
        f"- Adam, learning rate {train.lr:g}{_stopping(train)}",
        f"- Seed {train.seed}; {result.epochs} epochs, kept is epoch {result.best_epoch}.",
    ]


def _stopping(train: TrainConfig) -> str:
    if train.monitor == "last":
        return f"; {train.max_epochs} epochs, of which the last is kept."
    return (
        f", a tenth of it after a plateau of {train.lr_patience} epochs; stopped after {train.stop_patience} without "
        f"improvement of {train.monitor}, or at {train.max_epochs}."
    )


def _objective(objective: Objective) -> str:
    config = objective.config
    items = "rated lists" if config.of_ratings else "captioning pairs"
    return (
        f"- Objective: {config.name}, weight {config.weight:g}: {len(objective.items):,} {items}, "
        f"{len(objective.clip_ids):,} clips; {objective.batch} a step, temperature {_temperature(objective)}."
    )


def _temperature(objective: Objective) -> str:
    found = objective.temperature
    return f"{found:.3g}" if isinstance(found, float | int) else f"{found.item():.3g} (learned)"


def _evaluation(recipe: Recipe, collection: Collection, result: Result) -> list[str]:
    found = _measured(result)
    if not found:
        return ["Nothing was measured: the model is untrained."]
    unread = {problem.where for problem in result.problems}
    clips = [clip for clip in collection.gallery(result.monitor_split) if f"clip {clip.clip_id!r}" not in unread]
    left = {clip.clip_id for clip in collection.gallery(result.monitor_split)} - {clip.clip_id for clip in clips}
    queries = collection.query_captions(result.monitor_split, left)
    by = result.monitor if result.decided else ""
    chosen = {name: ", by which the epoch was chosen" if name == by else "" for name in found}
    return [
        f"On {_data_name(collection)}, split {result.monitor_split}, {_not_a_test(result)}; "
        f"{len(queries):,} captions against {len(clips):,} clips, at the kept epoch:",
        "",
        *(f"- {name} {value:.4f} on {result.monitor_split}{chosen[name]}." for name, value in found.items()),
        "",
        "val_mAP is mean average precision from text to sound: a caption's own clip, and clips that bear the same",
        "text, are relevant, all others are not. val_loss is the training's loss on that split, comparable between",
        "runs of the same objectives only. A test result comes from `earmark evaluate`, with intervals.",
    ]


def _not_a_test(result: Result) -> str:
    if result.monitor_split == TRAINED_ON:
        return "which the model learned from: no test result"
    return "which also stopped training: no test result" if result.decided else "which decided nothing"


def _limitations(recipe: Recipe, collection: Collection) -> list[str]:
    return [f"- {text}" for text in _limits(recipe, collection)]


def _limits(recipe: Recipe, collection: Collection) -> Iterator[str]:
    audio = recipe.encoders.audio
    if collection.kind in SHOUTED:
        yield f"What it learned from is {collection.kind.upper()}: how it does on recorded sounds is not known."
    yield "The sentence encoder learned from texts of the web, which may hold captions of the data."
    if audio.encoder == VECTORS:
        yield "Whatever made the clips' vectors may have learned from sounds of the data."
    elif audio.encoder == OWN_CAPTIONS:
        yield "It scores clips that have captions, and no others."
    elif not is_named(audio.encoder):
        yield f"What {_plain(audio.encoder)} was pretrained on may overlap with the data: see its own card."
    elif audio.weights != "none":
        sources = {LEARNED_FROM.get(part, "AudioSet, whose sounds"): None for part in _parts(audio.encoder)}
        for source in sources:
            yield f"The pretrained audio weights learned from {source} may overlap with the data."
    yield "It knows the kinds of sounds and the language of its captions; for others its cosines may mean little."
    yield "A cosine ranks; it is no probability, and no rating until a map is fitted (`earmark score --fit`)."
