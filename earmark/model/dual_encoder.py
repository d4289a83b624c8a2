"""The model: an audio encoder and a text head into one space, where relevance is the cosine of two embeddings.

On disk it is two files of a run's folder: `config.toml` (the settings, and under [inputs] what fed the
encoders) and `model.safetensors` (plain tensors; nothing is ever unpickled).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio.cache import FeatureCache, Features
from earmark.config import from_table, read_toml
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import writing
from earmark.model.audio_encoders import (
    AudioConfig,
    AudioEncoder,
    Bridge,
    Frozen,
    class_texts,
    is_frozen,
    load_pretrained,
    random_tower,
)
from earmark.model.pretrained import fingerprint
from earmark.model.text_encoders import VECTORS, Progress, SentenceEncoder, TextConfig, TextEncoder, check_texts
from earmark.model.towers import AudioTower, front_ends_agree

SOUNDS_AT_ONCE = 64
"""Sounds whose features are held at once where nothing keeps them."""


@dataclass(frozen=True)
class ModelConfig:
    """`[model]` of a recipe."""

    dim: int = 300
    """Size of the shared space."""


@dataclass(frozen=True)
class DualEncoderConfig:
    """What a model is built from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    audio: AudioConfig = field(default_factory=AudioConfig)
    text: TextConfig = field(default_factory=TextConfig)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str) -> DualEncoderConfig:
        """The settings of a recipe's tables `model`, `audio` and `text`; other tables are not looked at."""
        return cls(
            from_table(ModelConfig, tables.get("model", {}), f"{where}: model"),
            from_table(AudioConfig, tables.get("audio", {}), f"{where}: audio"),
            from_table(TextConfig, tables.get("text", {}), f"{where}: text"),
        )


@dataclass(frozen=True)
class Inputs:
    """What fed the encoders when the model was trained; it must be the same whenever it is used."""

    clip_size: int = 0
    """Size of the vectors that stand for clips; 0 where the tower that reads sound is a part of the model."""
    caption_size: int = 0
    """Size of the texts' base vectors."""
    clip_model: str = ""
    """The model that made the clips' vectors: the frozen tower, or as collection.toml names it."""
    clip_fingerprint: str = ""
    caption_model: str = ""
    """The model that made the captions' vectors."""
    caption_fingerprint: str = ""
    front_end: str = ""
    """What the tower makes of sound, as JSON."""


class DualEncoder(nn.Module):
    """Clips and texts → unit embeddings of one space, float32 [item, dim]."""

    def __init__(self, config: DualEncoderConfig, inputs: Inputs) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs
        self.audio = AudioEncoder(
            config.audio, config.model.dim, vector_size=inputs.clip_size, frozen=_frozen(config.audio, inputs)
        )
        learns = config.text.train and config.text.encoder != VECTORS
        tower = SentenceEncoder(config.text.encoder).trainable() if learns else None
        self.text = TextEncoder(config.text, inputs.caption_size, config.model.dim, tower=tower)

    # Making, saving, loading

    @classmethod
    def for_collection(cls, config: DualEncoderConfig, collection: Collection, *, seed: int = 0) -> DualEncoder:
        """A model with random heads (and pretrained layers where the settings name them) that fits the collection."""
        inputs = _inputs(config, collection)
        torch.manual_seed(seed)
        model = cls(config, inputs)
        if config.audio.encoder != VECTORS:
            reader = model.audio.reader
            load_pretrained(reader.tower if isinstance(reader, Frozen) else reader, model.audio.head, config.audio)
        if isinstance(model.audio.head, Bridge):
            model._lay_bridge(model.audio.head)
        return model

    def _lay_bridge(self, bridge: Bridge) -> None:
        names = torch.from_numpy(self.sentence_encoder.encode(class_texts(self.config.audio)))
        if names.shape[1] != self.config.model.dim:
            raise ConfigError(
                f"audio.bridge: the text vectors have {names.shape[1]} numbers and model.dim is "
                f"{self.config.model.dim}; expected the same. Set model.dim = {names.shape[1]}."
            )
        if not self.config.text.residual:
            raise ConfigError(
                "audio.bridge with text.residual = 0: a linear text head would leave the space that the bridge leads "
                "to. Set text.residual = 0.1, say."
            )
        bridge.classes.copy_(names)

    def save(self, folder: Path) -> None:
        """Writes `model.safetensors`, whole or not at all; `config.toml` is the run's, written by who trains."""
        save_tensors(folder / "model.safetensors", self.state_dict(), {})

    @classmethod
    def load(cls, folder: Path) -> DualEncoder:
        """The model of a run's folder, in evaluation mode. Raises `DataError` where it is not a (finished) run."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path, weights = folder / "config.toml", folder / "model.safetensors"
        if not path.is_file():
            raise DataError(f"{folder}: not a run (no config.toml). Train one with `earmark train`.")
        if not weights.is_file():
            raise DataError(f"{folder}: the run is not finished (no model.safetensors). Go on with `--resume`.")
        tables = read_toml(path)
        inputs = from_table(Inputs, tables.get("inputs", {}), f"{path}: inputs")
        model = cls(DualEncoderConfig.from_tables(tables, str(path)), inputs)
        model.source = str(path)
        if model.audio.tower is not None:
            model._reader()
        try:
            model.load_state_dict(load_file(weights))
        except (SafetensorError, RuntimeError, OSError) as error:
            first = str(error).strip().splitlines()[0]
            raise DataError(f"{weights}: does not fit config.toml ({first}). Take both from one run.") from error
        return model.eval()

    source: str = "model"
    """Where the model comes from, for messages."""

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder | RunTexts:
        """The frozen encoder of texts.

        Raises `ConfigError` where the model was trained on vectors of no named model.
        """
        name = self.config.text.encoder if self.config.text.encoder != VECTORS else self.inputs.caption_model
        if not name:
            raise ConfigError(
                "this model was trained on caption vectors, and its collection.toml does not name the model that made "
                "them; new texts cannot be embedded. Make the vectors by `earmark embed`, and train again."
            )
        encoder = text_encoder(name)
        if self.inputs.caption_fingerprint not in ("", encoder.fingerprint):
            raise DataError(
                f"{name}: fingerprint {encoder.fingerprint}; the model was trained with "
                f"{self.inputs.caption_fingerprint}. Put the same {name} there."
            )
        return encoder

    # Embeddings of tensors: what training and embedding share

    def embed_clips(self, features: Sequence[Tensor]) -> Tensor:
        """Unit embeddings [clip, dim] of one window's features each."""
        return F.normalize(self.audio(features).float(), dim=1)

    def embed_captions(self, features: Sequence[Tensor]) -> Tensor:
        """Unit embeddings [text, dim] of texts' features: base vectors, or token ids where the text tower learns."""
        return F.normalize(self.text(features).float(), dim=1)

    @torch.inference_mode()
    def embed_features(self, clips: Sequence[Features], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit embeddings [clip, dim]: the mean of the windows' embeddings, weighted by their length in seconds."""
        self.eval()
        places = [(clip, place) for clip, each in enumerate(clips) for place in range(len(each.windows))]
        lengths = [clips[clip].seconds[place] for clip, place in places]
        # windows of like length go together, so that little is padding
        order = sorted(range(len(places)), key=lengths.__getitem__)
        embedded = torch.zeros(len(places), self.config.model.dim)
        size = self.audio.windows_a_batch
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            windows = [clips[clip].windows[place] for clip, place in map(places.__getitem__, batch)]
            embedded[batch] = self.embed_clips(windows).cpu()
            if progress:
                progress("embedding sounds", start + len(batch), len(order))
        owner = torch.tensor([clip for clip, _ in places], dtype=torch.int64)
        sums = torch.zeros(len(clips), embedded.shape[1]).index_add(0, owner, embedded * torch.tensor(lengths)[:, None])
        out: NDArray[np.float32] = F.normalize(sums, dim=1).numpy()
        return out

    @torch.inference_mode()
    def embed_text_features(self, features: Sequence[Tensor], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit embeddings [text, dim] of texts' features."""
        self.eval()
        size = 64 if self.text.tower is not None else 16_000
        order = sorted(range(len(features)), key=lambda at: len(features[at]))
        embedded = torch.zeros(len(features), self.config.model.dim)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            embedded[batch] = self.embed_captions([features[at] for at in batch]).cpu()
            if progress and self.text.tower is not None:
                progress("embedding texts", start + len(batch), len(order))
        out: NDArray[np.float32] = embedded.numpy()
        return out

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.text.head.parameters()).device

    # Embeddings of sounds and words

    def embed_audio(
        self, sounds: Path | str | NDArray[Any] | Sequence[Path | str | NDArray[Any]], rate: int | None = None
    ) -> NDArray[np.float32]:
        """Unit embeddings, float32 [sound, dim], of paths or of mono waveforms at `rate` Hz.

        Raises `DataError` on a file without sound and `ConfigError` on a waveform without a rate.
        """
        each = [sounds] if isinstance(sounds, str | Path | np.ndarray) else list(sounds)
        return self._embed_sounds((sound, rate) for sound in each)

    def _embed_sounds(self, sounds: Iterable[tuple[Any, int | None]]) -> NDArray[np.float32]:
        """Unit embeddings of (sound, rate), few read at a time."""
        found = [np.zeros((0, self.config.model.dim), np.float32)]
        for some in _in_parts(sounds, SOUNDS_AT_ONCE):
            found.append(self.embed_features([self._features(sound, rate) for sound, rate in some]))
        return np.concatenate(found)

    def _features(self, sound: Path | str | NDArray[Any], rate: int | None) -> Features:
        if isinstance(sound, str | Path | bytes):
            return self._reader().read(Path(os.fsdecode(sound)))
        if rate is None:
            raise ConfigError("a waveform without its rate; expected embed_audio(waveform, rate=44100), say.")
        return self._reader().read_waveform(np.asarray(sound), rate)

    def _reader(self) -> AudioTower | Frozen:
        """What reads sounds. Raises `DataError` where it would read them otherwise than in training."""
        reader = self.audio.reader
        if isinstance(reader, Frozen):
            reader.device = self.device
        if self.inputs.front_end and not front_ends_agree(self.inputs.front_end, reader.front_end):
            raise DataError(
                f"{self.source}: trained on the front end {self.inputs.front_end}, this version makes "
                f"{reader.front_end}. Use the version that trained it, or train again."
            )
        return reader

    def embed_text(self, texts: str | Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit embeddings, float32 [text, dim]. Raises `DataError` on blank texts."""
        each = [texts] if isinstance(texts, str) else list(texts)
        return self.embed_text_features(self.text_features(each, progress), progress)

    def text_features(self, texts: Sequence[str], progress: Progress | None = None) -> list[Tensor]:
        """What the text encoder reads of each text: its base vector, or its token ids where the tower learns."""
        if self.text.tower is not None:
            check_texts(texts)
            return self.text.tower.tokens(texts)
        return list(torch.from_numpy(self.sentence_encoder.encode(texts, progress)))

    def encode(
        self,
        sentences: Any,
        *,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = True,
        **_: Any,
    ) -> Any:
        """Unit embeddings as sentence-transformers gives them.

        Texts are str; sounds are Path, or a dict of `array` and `sampling_rate`. One input gives one vector [dim],
        a list gives [input, dim].
        """
        single = isinstance(sentences, str | Path | dict)
        each = [sentences] if single else list(sentences)
        if all(isinstance(one, str) for one in each):
            out = self.embed_text(each)
        else:
            out = self._embed_sounds(map(_sound, each))  # a str among sounds is a mistake, not a path
        out = out[0] if single else out
        return torch.from_numpy(out) if convert_to_tensor or not convert_to_numpy else out

    # Inputs and embeddings of a collection

    def clip_features(
        self, collection: Collection, clips: Sequence[Clip], progress: Progress | None = None
    ) -> tuple[dict[str, Features], list[Problem]]:
        """What the audio encoder reads of each clip, by clip id, and the clips that could not be read.

        Sounds are read by all cores; what was made of them is kept on disk and found there the next time.
        """
        if self.config.audio.encoder == VECTORS:
            return _vector_features(_table(collection, "clip", self.inputs), clips)
        reader = self._reader()
        cache = FeatureCache(reader.made_by)

        def read(clip: Clip) -> Features | Problem:
            try:
                return cache.features(collection.audio_path(clip), reader.read)
            except (DataError, OSError) as error:
                return Problem(f"clip {clip.clip_id!r}", str(error))

        found: dict[str, Features] = {}
        problems: list[Problem] = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done, (clip, result) in enumerate(zip(clips, pool.map(read, clips), strict=True), start=1):
                if isinstance(result, Problem):
                    problems.append(result)
                else:
                    found[clip.clip_id] = result
                if progress:
                    progress("reading sounds", done, len(clips))
        odd = [f"{clip.path}: {what}" for clip in clips if clip.clip_id in found for what in found[clip.clip_id].odd]
        if odd:
            warnings.warn(f"{len(odd)} oddities of sounds, {odd[0]} (`earmark data check` lists all)", stacklevel=2)
        return found, problems

    def caption_features(
        self, collection: Collection, captions: Sequence[Caption], progress: Progress | None = None
    ) -> list[Tensor]:
        """What the text encoder reads of each caption."""
        if self.config.text.encoder != VECTORS:
            return self.text_features([caption.text for caption in captions], progress)
        ids = [caption.caption_id for caption in captions]
        rows = _table(collection, "caption", self.inputs).rows(ids)
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(broken):
            raise DataError(
                f"{collection.root / 'caption_vectors.npz'}: the vector of {ids[broken[0]]!r} is not finite "
                f"({len(broken)} such). Embed the captions again."
            )
        return list(torch.from_numpy(rows))

    def embed_collection(
        self,
        collection: Collection,
        clips: Sequence[Clip],
        captions: Sequence[Caption],
        progress: Progress | None = None,
    ) -> tuple[VectorTable, VectorTable, list[Problem]]:
        """The embeddings of clips, of captions, and the clips that could not be read (they have none)."""
        features, problems = self.clip_features(collection, clips, progress)
        clip_vectors = self.embed_features(list(features.values()), progress)
        caption_vectors = self.embed_text_features(self.caption_features(collection, captions, progress), progress)
        return (
            VectorTable(tuple(features), clip_vectors),
            VectorTable(tuple(caption.caption_id for caption in captions), caption_vectors),
            problems,
        )


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Writes a safetensors file, whole or not at all. Raises `DataError` where it cannot be written."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with writing(path) as aside:
        try:
            save_file({name: each.detach().contiguous() for name, each in tensors.items()}, aside, dict(header))
        except SafetensorError as error:
            raise DataError(f"{path}: cannot be written ({error}). Make room, or name another place.") from error


def _sound(sound: Any) -> tuple[Any, int | None]:
    if isinstance(sound, Mapping):
        return sound["array"], int(sound["sampling_rate"])
    if isinstance(sound, Path):
        return sound, None
    raise ConfigError(f"encode: {type(sound).__name__} among sounds; expected Path or dict(array, sampling_rate).")


def _table(collection: Collection, of: Literal["clip", "caption"], trained: Inputs | None = None) -> VectorTable:
    """The collection's vectors of clips or captions.

    Raises `DataError` where there are none, or they are not of the size and the model that was trained on.
    """
    vectors: VectorTable | None = getattr(collection, f"{of}_vectors")
    path = collection.root / f"{of}_vectors.npz"
    if vectors is None:
        raise DataError(f'{path}: not there, and the encoder is "vectors". Embed first.')
    found = vectors.vectors.shape[1]
    wanted = getattr(trained, f"{of}_size") if trained else 0
    if not found or wanted not in (0, found):
        raise DataError(
            f"{path}: vectors of {found} numbers; expected {wanted or 'some'}, as the model was trained on."
        )
    for key in (f"{of}_model", f"{of}_fingerprint"):
        before, now = getattr(trained, key, ""), str(_named_models(collection).get(key, ""))
        if before and now and before != now:
            raise DataError(f"{path}: {key} is {now!r}; the model was trained on {before!r}. Embed with that one.")
    return vectors


def _named_models(collection: Collection) -> Mapping[str, Any]:
    """The table `vectors` of collection.toml: which models made the vectors."""
    named = collection.about.get("vectors", {})
    if not isinstance(named, Mapping):
        raise DataError(f"{collection.root / 'collection.toml'}: vectors = {named!r}; expected a table.")
    return named


def _vector_features(table: VectorTable, clips: Iterable[Clip]) -> tuple[dict[str, Features], list[Problem]]:
    found: dict[str, Features] = {}
    problems = []
    for clip in clips:
        if clip.clip_id not in table:
            problems.append(Problem(f"clip {clip.clip_id!r}", "no vector in clip_vectors.npz"))
            continue
        vector = table.rows([clip.clip_id])[0]
        if not np.isfinite(vector).all():
            problems.append(Problem(f"clip {clip.clip_id!r}", "its vector is not finite"))
            continue
        found[clip.clip_id] = Features([torch.from_numpy(vector)], [1.0])
    return found, problems


def _in_parts(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    part: list[Any] = []
    for item in items:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _frozen(config: AudioConfig, inputs: Inputs) -> Frozen | None:
    """The tower below the model, or None where it is a part of the model or nobody knows what made the vectors."""
    if config.encoder == VECTORS:
        return frozen_tower(inputs.clip_model, expected=inputs.clip_fingerprint) if inputs.clip_model else None
    return Frozen.of(config, expected=inputs.clip_fingerprint) if is_frozen(config) else None


def frozen_tower(name: str, *, expected: str = "") -> Frozen:
    """The tower that `earmark embed --model NAME` embeds with: a run's, or a pretrained model's.

    PANNs' networks read their own log-mel.
    """
    if is_run(name):
        return Frozen(name, lambda: run_fingerprint(Path(name)), lambda: RunTower(Path(name)), expected=expected)
    return Frozen.of(AudioConfig(encoder=name, train=False, log_mel="panns"), expected=expected)


def text_encoder(name: str) -> SentenceEncoder | RunTexts:
    """The encoder of texts that bears the name: a run's, or a pretrained model's."""
    return RunTexts(Path(name)) if is_run(name) else SentenceEncoder(name)


def is_run(name: str) -> bool:
    """Whether the name is the folder of a run."""
    return (Path(name) / "config.toml").is_file()


def run_fingerprint(folder: Path) -> str:
    """32 hex digits that change with the run's weights."""
    return fingerprint(folder / "model.safetensors")


class RunTower(AudioTower):
    """A whole trained model as a tower below another one: unit embeddings of windows."""

    unit = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._model = (DualEncoder.load(folder),)  # a tuple, so that its weights are no part of this module's
        reader = self._model[0].audio.reader
        tower = reader.tower if isinstance(reader, Frozen) else reader
        self.rate, self.longest_s, self.size = tower.rate, tower.longest_s, self._model[0].config.model.dim
        self._front_end = tower.front_end

    @property
    def front_end(self) -> str:
        """What the model's own tower makes of sound, as JSON."""
        return self._front_end

    def window(self, samples: NDArray[np.float32]) -> Tensor:
        """The unit embedding [dim] of one window."""
        return torch.from_numpy(self._model[0].embed_audio(samples, self.rate)[0])

    def forward(self, windows: Sequence[Tensor]) -> Tensor:
        """[window, dim]."""
        return torch.stack(list(windows))


class RunTexts:
    """A whole trained model as the encoder of texts below another one."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.folder = folder
        self._model = DualEncoder.load(folder)
        self.dim = self._model.config.model.dim

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change with the run's weights."""
        return run_fingerprint(self.folder)

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit vectors, float32 [text, dim]."""
        return self._model.embed_text(texts, progress)


def _inputs(config: DualEncoderConfig, collection: Collection) -> Inputs:
    """What the collection feeds the encoders of these settings. Raises `DataError` where it lacks them."""
    named = _named_models(collection)
    found: dict[str, Any] = {}
    if config.audio.encoder == VECTORS:
        found["clip_size"] = _table(collection, "clip").vectors.shape[1]
        found["clip_model"] = str(named.get("clip_model", ""))
        found["clip_fingerprint"] = str(named.get("clip_fingerprint", ""))
        found["front_end"] = str(named.get("clip_front_end", ""))
    elif (frozen := _frozen(config.audio, Inputs())) is not None:
        found["clip_size"] = frozen.tower.size
        found["clip_model"] = frozen.name
        found["clip_fingerprint"] = frozen.fingerprint
        found["front_end"] = frozen.tower.front_end
    else:
        found["front_end"] = random_tower(config.audio).front_end
    if config.text.encoder == VECTORS:
        found["caption_size"] = _table(collection, "caption").vectors.shape[1]
        found["caption_model"] = str(named.get("caption_model", ""))
        found["caption_fingerprint"] = str(named.get("caption_fingerprint", ""))
    else:
        encoder = text_encoder(config.text.encoder)
        found |= {
            "caption_size": encoder.dim,
            "caption_model": encoder.name,
            "caption_fingerprint": encoder.fingerprint,
        }
    return Inputs(**found)
