"""Models of the hub that embed sounds and texts into one space: CLAP, and those of sentence-transformers.

They are loaded from a folder in the form of transformers, or of sentence-transformers (with a modules.json). Weights
are safetensors, nothing is downloaded, and no code of a model's own is run. A tower holds the layers of its own side
alone; layers that serve sounds and texts alike are in both towers, each with its own copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.errors import ConfigError, DataError, EarmarkError, install
from earmark.model.towers import LONGEST_S, AudioTower, TextTower, cut_tokens, padded, quiet_transformers

HARMLESS = ("position_ids", "token_type_ids", "relative_position_index", "num_batches_tracked")
"""Ends of names that a file of weights may lack: they do not come from training."""
LEAST_S = 0.1
"""Shorter sounds are padded with silence for models of sentence-transformers that do not take a single sample."""
PROBES = ("a dog barks", "heavy rain on a tin roof and wind")
AGREE = 1e-4
"""How far vectors of a tower may be from those of the model that it was taken from."""
FROM_DISK: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
WEIGHTS: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "ignore_mismatched_sizes": True}
"""What does not fit is refused by name, by `_with_all_weights`."""
FLOOR_DB = -100.0
"""Of CLAP's log-mels: its extractor's least energy is 1e-10."""


def is_hub_model(folder: Path) -> bool:
    """Whether the folder holds a model that embeds both sounds and texts, judged by its configuration."""
    return _hears(folder) or _json(folder / "config.json").get("model_type") == "clap"


def text_size(folder: Path) -> int:
    """The size of the model's text vectors, from its configuration. Raises `DataError` where it does not say."""
    with _whole(folder):
        if not _hears(folder):
            return int(_config(folder).projection_dim)
        size = _size_after(_modules(folder))
        if size is None:
            raise ValueError("its configuration does not say how long its vectors are")
        return size


def open_text(folder: Path) -> TextTower:
    """The model's text tower, in evaluation mode. Raises `DataError` where the model is not whole."""
    tower = SentenceTransformersText(folder) if _hears(folder) else ClapText(folder)
    if tower.size != text_size(folder):
        raise DataError(f"{folder}: vectors of {tower.size} values; its configuration says {text_size(folder)}.")
    return tower.eval()


def open_audio(folder: Path) -> AudioTower:
    """The model's audio tower, in evaluation mode. Raises `DataError` where the model is not whole."""
    tower = SentenceTransformersAudio(folder) if _hears(folder) else ClapAudio(folder)
    return tower.eval()


class ClapText(TextTower):
    """CLAP's text layers and projection: unit vectors, equal to `ClapModel.get_text_features` to 1e-5."""

    def __init__(self, folder: Path) -> None:
        """The tower of a folder that holds a CLAP. Raises `DataError` where it is not whole."""
        super().__init__()
        from transformers import AutoTokenizer, ClapTextModelWithProjection

        with _whole(folder):
            config = _config(folder).text_config
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **FROM_DISK)
            first, second = self._tokenizer(list(PROBES))["input_ids"]
            if first == second:  # without its files transformers makes one that knows no words
                raise ValueError("its tokenizer knows no words")
            self.clap = _with_all_weights(ClapTextModelWithProjection, folder, config)
        self.size = config.projection_dim
        self._pad = int(config.pad_token_id or 0)
        self.longest = min(self._tokenizer.model_max_length, config.max_position_embeddings - self._pad - 1)

    def tokens(self, texts: Sequence[str]) -> list[Tensor]:
        """Token ids, int64 [token] each, cut after `longest` with one warning."""
        return cut_tokens(self._tokenizer, texts, self.longest)

    def forward(self, tokens: Sequence[Tensor]) -> Tensor:
        """Unit vectors [text, size] of token ids."""
        device = next(self.parameters()).device
        ids, mask = padded(tokens, self._pad)
        return F.normalize(self.clap(ids.to(device), attention_mask=mask.to(device)).text_embeds, dim=-1)


class ClapAudio(AudioTower):
    """CLAP's audio layers and projection: unit vectors, equal to `ClapModel.get_audio_features` to 1e-5.

    A window is never longer than the model takes whole (10 s as published), so nothing is cropped at random, and the
    flag `is_longer` of fused models is false for every window, as it says. (Where no clip of a batch is longer, the
    processor of transformers sets it for one at random, for a clip alone always: a habit from training.)
    """

    unit = True

    def __init__(self, folder: Path) -> None:
        """The tower of a folder that holds a CLAP. Raises `DataError` where it is not whole."""
        super().__init__()
        from transformers import ClapAudioModelWithProjection, ClapFeatureExtractor

        with _whole(folder):
            config = _config(folder).audio_config
            self._extractor = ClapFeatureExtractor.from_pretrained(folder, local_files_only=True)
            self.clap = _with_all_weights(ClapAudioModelWithProjection, folder, config)
            _check_fits(self._extractor, config)
        self.size = config.projection_dim
        self.rate = int(self._extractor.sampling_rate)
        self.longest_s = self._extractor.nb_max_samples / self.rate

    @property
    def front_end(self) -> str:
        """The feature extractor's settings, as JSON."""
        return json.dumps(_settings(self._extractor), sort_keys=True)

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The log-mel [frame, band] of samples at `rate`; shorter ones are repeated as the model's extractor does."""
        made = self._extractor(samples, sampling_rate=self.rate, return_tensors="np")
        return torch.from_numpy(np.array(made["input_features"][0][0]))  # fused: four times the same

    def louder(self, window: Tensor, decibels: float) -> Tensor:
        """The log-mel of the sound made louder; it is in decibels, with a floor."""
        return (window + decibels).clamp_min(FLOOR_DB)

    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """Unit vectors [window, size] of log-mels [frame, band] of one length."""
        log_mels = torch.stack(list(windows)).unsqueeze(1).to(next(self.parameters()).device)
        longer = torch.zeros(len(windows), 1, dtype=torch.bool)
        return F.normalize(self.clap(log_mels, is_longer=longer).audio_embeds, dim=-1)


class SentenceTransformersText(TextTower):
    """The text side of a model of sentence-transformers: equal to its `encode_query` to 1e-5."""

    def __init__(self, folder: Path) -> None:
        """The tower of a folder with a modules.json. Raises `DataError` where it is not whole or reads no texts."""
        super().__init__()
        with _whole(folder), torch.inference_mode(False), torch.enable_grad():
            self.model = _sentence_transformer(folder, "text")
            self._prompt = _prompt(self.model, "query")
            features = self._features(PROBES)
            if not {"input_ids", "attention_mask"} <= set(features) or features["input_ids"].ndim != 2:
                raise ValueError("it reads texts otherwise than by token ids and a mask")
            kept = ("modality", "task", "prompt_length")
            self._fixed: dict[str, Any] = {name: features[name] for name in kept if name in features}
            vectors = _drop_unused(self.model, lambda: _vectors(self.model, self._features(PROBES), "query"))
            self.size = int(vectors.shape[1])
            self.longest = int(self.model.max_seq_length or 10**6)
            if not torch.allclose(self(self.tokens(PROBES)), vectors, atol=AGREE):
                raise ValueError("its vectors of texts cannot be made from token ids alone")

    def _features(self, texts: Sequence[str], **settings: Any) -> dict[str, Any]:
        given = [{"text": text} for text in texts]  # a text that is also the name of a sound stays a text
        options = {"processing_kwargs": {"text": settings}} if settings else {}
        made: dict[str, Any] = self.model.preprocess(given, prompt=self._prompt, task="query", **options)
        return made

    def _tokenized(self, texts: Sequence[str], *, truncation: bool, **_: Any) -> dict[str, list[list[int]]]:
        with quiet_transformers():
            features = self._features(texts, truncation=truncation)
        pairs = zip(features["input_ids"], features["attention_mask"].bool(), strict=True)
        return {"input_ids": [ids[own].tolist() for ids, own in pairs]}

    def tokens(self, texts: Sequence[str]) -> list[Tensor]:
        """Token ids, int64 [token] each, cut after `longest` with one warning."""
        return cut_tokens(self._tokenized, texts, self.longest) if texts else []

    def forward(self, tokens: Sequence[Tensor]) -> Tensor:
        """Vectors [text, size] of token ids."""
        ids, mask = padded(tokens, self.model.tokenizer.pad_token_id or 0)
        return _vectors(self.model, {"input_ids": ids, "attention_mask": mask, **self._fixed}, "query")


class SentenceTransformersAudio(AudioTower):
    """The audio side of a model of sentence-transformers: equal to its `encode_document` to 1e-5.

    Windows of different lengths never share a batch, so that no padding is seen. A window is a waveform: the
    model's processor runs in `forward`, since what it makes differs from model to model.
    """

    unit = True

    def __init__(self, folder: Path) -> None:
        """The tower of a folder with a modules.json. Raises `DataError` where it is not whole or reads no sounds."""
        super().__init__()
        with _whole(folder), torch.inference_mode(False), torch.enable_grad():
            self.model = _sentence_transformer(folder, "audio")
            self._prompt = _prompt(self.model, "document")
            extractor = _extractor(self.model)
            self._settings = _settings(extractor)
            self.rate = int(extractor.sampling_rate)
            self.longest_s = _longest_s(extractor)
            self._least = 1 if self._takes_one_sample() else round(LEAST_S * self.rate)
            second = self.window(np.ones(self.rate, np.float32))
            self.size = int(_drop_unused(self.model, lambda: self([second])).shape[1])

    def _takes_one_sample(self) -> bool:
        try:
            return bool(self([torch.ones(1)]).isfinite().all())
        except Exception:  # whatever the model's code raises
            return False

    @property
    def front_end(self) -> str:
        """The settings of the model's feature extractor, as JSON."""
        return json.dumps({**self._settings, "least": self._least}, sort_keys=True)

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The samples at `rate`, padded with silence to 0.1 s where the model needs it."""
        return torch.from_numpy(np.pad(samples, (0, max(0, self._least - len(samples)))))

    reads_log_mels = False

    def louder(self, window: Tensor, decibels: float) -> Tensor:
        """The waveform made louder."""
        return window * 10 ** (decibels / 20)

    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """Vectors [window, size] of waveforms of any lengths."""
        places: dict[int, list[int]] = {}
        for place, window in enumerate(windows):
            places.setdefault(len(window), []).append(place)
        parts = [self._of_one_length([windows[place] for place in each]) for each in places.values()]
        back = torch.tensor([place for each in places.values() for place in each]).argsort()
        return torch.cat(parts)[back]

    def _of_one_length(self, windows: Sequence[Tensor]) -> Tensor:
        given = [{"array": window.cpu().numpy(), "sampling_rate": self.rate} for window in windows]
        features = self.model.preprocess(given, prompt=self._prompt, task="document")
        if "is_longer" in features:  # as in ClapAudio
            features["is_longer"] = torch.zeros_like(features["is_longer"])
        return _vectors(self.model, features, "document")


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _modules(folder: Path, route: str = "text") -> list[tuple[str, Path]]:
    """(class, folder) of the modules of a model of sentence-transformers in order, those of one route of a router."""
    try:
        entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        found = [(entry["type"], folder / entry["path"]) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [each for kind, path in found for each in _routed(kind, path, route)]


def _routed(kind: str, path: Path, route: str) -> Iterator[tuple[str, Path]]:
    """(class, folder) of a module, or of those behind a router that take `route`, "text" or "audio"."""
    routes = _json(path / "router_config.json")
    if not routes:
        yield kind, path
        return
    for names in routes.get("structure", {}).values():
        modules = [(routes["types"][name], path / name) for name in names]
        if modules and route in _takes(modules[0][1]):
            yield from modules
            return


def _takes(folder: Path) -> list[str]:
    """What the module takes: "text", "audio", …; only texts where it does not say."""
    return list(_json(folder / "sentence_bert_config.json").get("modality_config", ["text"]))


def _hears(folder: Path) -> bool:
    """Whether it is a model of sentence-transformers that takes sounds."""
    return any("audio" in _takes(path) for _, path in _modules(folder, "audio"))


def _size_after(modules: list[tuple[str, Path]]) -> int | None:
    """The size of what the modules make, from the last one that changes it."""
    for kind, path in reversed(modules):
        stated = _json(path / "config.json")
        if kind.endswith(".Dense"):
            return int(stated["out_features"])
        if kind.endswith(".Pooling"):
            size = stated["embedding_dimension" if "embedding_dimension" in stated else "word_embedding_dimension"]
            modes = stated.get("pooling_mode", [key for key, on in stated.items() if on is True and "mode_" in key])
            return int(size) * (1 if isinstance(modes, str) else len(modes))
        if kind.endswith(".Transformer"):
            return _transformer_size(path)
    return None


def _transformer_size(folder: Path) -> int | None:
    projects = _json(folder / "sentence_bert_config.json").get("module_output_name") == "sentence_embedding"
    config = _config(folder)
    for part in (config, getattr(config, "text_config", None)):
        for name in ("projection_dim", "hidden_size") if projects else ("hidden_size",):
            if getattr(part, name, None):
                return int(getattr(part, name))
    return None


def _config(folder: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, **FROM_DISK)


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """Raises `DataError` where the libraries cannot load the model, whatever they raise."""
    try:
        with quiet_transformers():
            yield
    except EarmarkError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).split(". ")[0][:200].rstrip(".:") or type(error).__name__
        raise DataError(
            f"{folder}: not a whole model that can be used here ({reason}). Put all of its files there, the weights "
            "as safetensors."
        ) from error


def _with_all_weights(kind: Any, folder: Path, config: Any) -> Any:
    """The model with the weights of the folder; raises `ValueError` where some are not there."""
    model, found = kind.from_pretrained(folder, config=config, output_loading_info=True, **FROM_DISK, **WEIGHTS)
    names = [*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])]
    wrong = sorted(name for name in names if not name.endswith(HARMLESS))
    if wrong:
        raise ValueError(f"{len(wrong)} weights are missing or of another shape, {wrong[0]} first")
    return model


def _check_fits(extractor: Any, config: Any) -> None:
    """Raises `ValueError` where CLAP's layers cannot take what its extractor makes."""
    frames = extractor.nb_max_samples // extractor.hop_length + 1
    most = config.spec_size * (config.spec_size // config.num_mel_bins)
    if extractor.feature_size != config.num_mel_bins or frames > most:
        raise ValueError(
            f"its extractor makes {frames} frames of {extractor.feature_size} bands, its layers take {most} frames "
            f"of {config.num_mel_bins} bands"
        )


def _settings(extractor: Any) -> dict[str, Any]:
    """The settings of a feature extractor that are numbers, words or unset."""
    plain = (str, int, float, bool, type(None))
    given = {name: value for name, value in extractor.to_dict().items() if isinstance(value, plain)}
    return {name: value for name, value in given.items() if name != "processor_class"}


def _sentence_transformer(folder: Path, takes: str) -> Any:
    """The model in float32; raises `ValueError` where it is not whole or does not take "text" or "audio"."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(
            f"{folder}: a model of sentence-transformers, which is not installed ({error}). "
            f"Install it: {install('hub')}."
        ) from error
    for pickled in folder.rglob("pytorch_model.bin"):
        if not pickled.with_name("model.safetensors").exists():
            raise ValueError(f"{pickled.relative_to(folder)} is a pickle")
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs=dict(WEIGHTS), **FROM_DISK).eval()
    if takes not in model.modalities:
        raise ValueError(f"it takes {', '.join(map(str, model.modalities))}, not {takes}")
    for path, module in _transformers(model, folder):
        if takes in module.modalities:
            _with_all_weights(type(module.model), path, module.model.config)
    return model


def _transformers(model: Any, folder: Path) -> Iterator[tuple[Path, Any]]:
    """(folder, module) of the modules that are transformers."""
    from sentence_transformers.sentence_transformer.modules import Router, Transformer

    entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    for entry, module in zip(entries, model.children(), strict=True):
        path = folder / entry["path"]
        routes = _json(path / "router_config.json")["structure"] if isinstance(module, Router) else {}
        inner = [
            (path / name, each)
            for route, names in routes.items()
            for name, each in zip(names, module.sub_modules[route], strict=True)
        ]
        yield from (pair for pair in (inner or [(path, module)]) if isinstance(pair[1], Transformer))


def _prompt(model: Any, task: str) -> str | None:
    """What the model puts before a query or a document."""
    prompt: str | None = model.prompts.get(task, model.prompts.get(model.default_prompt_name))
    return prompt


def _vectors(model: Any, features: dict[str, Any], task: str) -> Tensor:
    """Vectors [item, size] of the features that the model's `preprocess` makes."""
    device = next(model.parameters()).device
    moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in features.items()}
    vectors: Tensor = model(moved, task=task)["sentence_embedding"]
    return vectors


def _drop_unused(model: Any, embed: Callable[[], Tensor]) -> Tensor:
    """What `embed` gives, after the routes and the largest parts of transformers that had no share in it were removed.

    They stay where the model's code cannot do without them.
    """
    from sentence_transformers.sentence_transformer.modules import Router, Transformer

    vectors = embed()
    used = _leaves(vectors)
    parents: list[nn.Module] = [each.sub_modules for each in model.modules() if isinstance(each, Router)]
    parents += [each.model for each in model.modules() if isinstance(each, Transformer)]
    unused = [(parent, *each) for parent in parents for each in parent.named_children() if _is_unused(each[1], used)]
    for parent, name, _ in unused:
        if isinstance(parent, nn.ModuleDict):
            del parent[name]
        else:
            parent.add_module(name, nn.Identity())
    try:
        without = embed()
    except Exception:  # whatever the model's code raises
        without = torch.full_like(vectors, torch.nan)
    if not torch.allclose(without, vectors, atol=AGREE):
        for parent, name, part in unused:
            parent.add_module(name, part)
    return vectors


def _is_unused(part: nn.Module, used: set[int]) -> bool:
    weights = {id(weight) for weight in part.parameters()}
    return bool(weights) and not weights & used


def _leaves(vectors: Tensor) -> set[int]:
    """The ids of the parameters that the vectors were computed from."""
    found, seen, ahead = set(), set(), [vectors.grad_fn]
    while ahead:
        step = ahead.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        if hasattr(step, "variable"):
            found.add(id(step.variable))
        ahead += [earlier for earlier, _ in step.next_functions]
    return found


def _extractor(model: Any) -> Any:
    """The feature extractor of the module that takes sounds."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    for module in model.modules():
        if isinstance(module, Transformer) and "audio" in module.modalities:
            return getattr(module.processor, "feature_extractor", module.processor)
    raise ValueError("it has no module that takes sounds")


def _longest_s(extractor: Any) -> float:
    """Seconds that the extractor takes whole; it would crop the rest. 30 where it takes any length."""
    if type(extractor).__name__ == "ASTFeatureExtractor":
        stated = extractor.max_length / 100  # frames of 10 ms
    else:
        stated = getattr(extractor, "max_length_s", None) or getattr(extractor, "chunk_length", None)
    return min(LONGEST_S, float(stated or LONGEST_S))
