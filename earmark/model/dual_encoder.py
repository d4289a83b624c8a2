"""The model: an audio encoder and a text head into one space, where relevance is the cosine of two embeddings.

On disk it is two files of a run's folder: `config.toml` (the settings, and under [inputs] what fed the
encoders) and `model.safetensors` (plain tensors; nothing is ever unpickled).
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.config import from_table, read_toml
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import writing
from earmark.model import audio_encoders
from earmark.model.audio_encoders import AudioConfig, Features
from earmark.model.text_encoders import Progress, SentenceEncoder

WINDOWS_A_BATCH = 16
"""Windows of sound embedded at once; of vectors a thousand times as many."""


@dataclass(frozen=True)
class ModelConfig:
    """`[model]` of a recipe."""

    dim: int = 300
    """Size of the shared space."""


@dataclass(frozen=True)
class TextConfig:
    """`[text]` of a recipe."""

    encoder: str = "all-mpnet-base-v2"
    """The name or folder of a sentence encoder (frozen), or "vectors": the collection's caption_vectors.npz."""


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
    """Size of the vectors that stand for clips; 0 where the encoder reads sound."""
    caption_size: int = 0
    """Size of the texts' base vectors."""
    clip_model: str = ""
    """The model that made the clips' vectors, as collection.toml names it."""
    clip_fingerprint: str = ""
    caption_model: str = ""
    """The model that made the captions' vectors."""
    caption_fingerprint: str = ""
    front_end: str = ""
    """The log-mel's settings, as JSON."""


class DualEncoder(nn.Module):
    """Clips and texts → unit embeddings of one space, float32 [item, dim]."""

    def __init__(self, config: DualEncoderConfig, inputs: Inputs) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs
        self.audio = audio_encoders.build(config.audio, config.model.dim, inputs.clip_size)
        self.text = nn.Linear(inputs.caption_size, config.model.dim)

    # Making, saving, loading

    @classmethod
    def for_collection(cls, config: DualEncoderConfig, collection: Collection, *, seed: int = 0) -> DualEncoder:
        """A model with random heads (and pretrained layers where the settings name them) that fits the collection."""
        torch.manual_seed(seed)
        model = cls(config, _inputs(config, collection))
        audio_encoders.load_pretrained(model.audio, config.audio)
        return model

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
        model._check_front_end(path)
        try:
            model.load_state_dict(load_file(weights))
        except (SafetensorError, RuntimeError, OSError) as error:
            first = str(error).strip().splitlines()[0]
            raise DataError(f"{weights}: does not fit config.toml ({first}). Take both from one run.") from error
        return model.eval()

    def _check_front_end(self, path: Path) -> None:
        now = _front_end(self.audio)
        if self.inputs.front_end != now:
            raise DataError(
                f"{path}: trained on the log-mel {self.inputs.front_end}, this version makes {now}. "
                "Use the version that trained it, or train again."
            )

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        """The frozen encoder of texts.

        Raises `ConfigError` where the model was trained on vectors of no named model.
        """
        name = self.config.text.encoder if self.config.text.encoder != "vectors" else self.inputs.caption_model
        if not name:
            raise ConfigError(
                "this model was trained on caption vectors, and its collection.toml does not name the model that made "
                "them; new texts cannot be embedded. Name it under [vectors] as caption_model, and train again."
            )
        encoder = SentenceEncoder(name)
        if self.inputs.caption_fingerprint not in ("", encoder.fingerprint):
            raise DataError(
                f"{encoder.folder}: fingerprint {encoder.fingerprint}; the model was trained with "
                f"{self.inputs.caption_fingerprint}. Put the same {name} there."
            )
        return encoder

    # Embeddings of tensors: what training and embedding share

    def embed_clips(self, features: Sequence[Tensor]) -> Tensor:
        """Unit embeddings [clip, dim] of one window's features each."""
        return F.normalize(self.audio(features).float(), dim=1)

    def embed_bases(self, bases: Tensor) -> Tensor:
        """Unit embeddings [text, dim] of base vectors [text, base]."""
        return F.normalize(self.text(bases).float(), dim=1)

    @torch.inference_mode()
    def embed_features(self, clips: Sequence[Features], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit embeddings [clip, dim]: the mean of the windows' embeddings, weighted by their length in seconds."""
        self.eval()
        windows = [(place, window) for place, clip in enumerate(clips) for window in clip.windows]
        owner = torch.tensor([place for place, _ in windows], dtype=torch.int64)
        weight = torch.tensor([share for clip in clips for share in clip.seconds])
        # windows of like length go together, so that little is padding
        order = sorted(range(len(windows)), key=lambda at: len(windows[at][1]))
        size = WINDOWS_A_BATCH * (1 if self.audio.rate else 1000)
        embedded = torch.zeros(len(windows), self.config.model.dim)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            embedded[batch] = self.embed_clips([windows[at][1].to(self.device) for at in batch]).cpu()
            if progress:
                progress("embedding sounds", start + len(batch), len(order))
        sums = torch.zeros(len(clips), embedded.shape[1]).index_add(0, owner, embedded * weight[:, None])
        out: NDArray[np.float32] = F.normalize(sums, dim=1).numpy()
        return out

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.text.weight.device

    # Embeddings of sounds and words

    def embed_audio(
        self, sounds: Path | str | NDArray[Any] | Sequence[Path | str | NDArray[Any]], rate: int | None = None
    ) -> NDArray[np.float32]:
        """Unit embeddings, float32 [sound, dim], of paths or of mono waveforms at `rate` Hz.

        Raises `DataError` on a file without sound and `ConfigError` on a waveform without a rate.
        """
        each = [sounds] if isinstance(sounds, str | Path | np.ndarray) else list(sounds)
        return self.embed_features([self._features(sound, rate) for sound in each])

    def _features(self, sound: Path | str | NDArray[Any], rate: int | None) -> Features:
        if isinstance(sound, str | Path | bytes):
            return self.audio.read(sound)
        if rate is None:
            raise ConfigError("a waveform without its rate; expected embed_audio(waveform, rate=44100), say.")
        return self.audio.read_waveform(np.asarray(sound), rate)

    def embed_text(self, texts: str | Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit embeddings, float32 [text, dim]. Raises `DataError` on blank texts."""
        each = [texts] if isinstance(texts, str) else list(texts)
        return self._embedded(self.sentence_encoder.encode(each, progress))

    @torch.inference_mode()
    def _embedded(self, bases: NDArray[np.float32]) -> NDArray[np.float32]:
        out: NDArray[np.float32] = self.eval().embed_bases(torch.from_numpy(bases).to(self.device)).cpu().numpy()
        return out

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
            out = self.embed_features(
                [self._features(*_sound(one)) for one in each]  # a str among sounds is a mistake, not a path
            )
        out = out[0] if single else out
        return torch.from_numpy(out) if convert_to_tensor or not convert_to_numpy else out

    # Inputs and embeddings of a collection

    def clip_features(
        self, collection: Collection, clips: Sequence[Clip], progress: Progress | None = None
    ) -> tuple[dict[str, Features], list[Problem]]:
        """What the audio encoder reads of each clip, by clip id, and the clips that could not be read."""
        if not self.audio.rate:
            return _vector_features(_table(collection, "clip", self.inputs), clips)
        found: dict[str, Features] = {}
        problems: list[Problem] = []

        odd: list[str] = []

        def read(clip: Clip) -> Features | Problem:
            noticed: list[str] = []
            try:
                found = self.audio.read(collection.audio_path(clip), noticed)
            except (DataError, OSError) as error:
                return Problem(f"clip {clip.clip_id!r}", str(error))
            odd.extend(f"{clip.path}: {what}" for what in noticed)
            return found

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done, (clip, result) in enumerate(zip(clips, pool.map(read, clips), strict=True), start=1):
                if isinstance(result, Problem):
                    problems.append(result)
                else:
                    found[clip.clip_id] = result
                if progress:
                    progress("reading sounds", done, len(clips))
        if odd:
            warnings.warn(f"{len(odd)} oddities of sounds, {min(odd)} (`earmark data check` lists all)", stacklevel=2)
        return found, problems

    def caption_bases(
        self, collection: Collection, captions: Sequence[Caption], progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """The captions' base vectors, float32 [caption, base]."""
        if self.config.text.encoder == "vectors":
            ids = [caption.caption_id for caption in captions]
            rows = _table(collection, "caption", self.inputs).rows(ids)
            broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            if len(broken):
                raise DataError(
                    f"{collection.root / 'caption_vectors.npz'}: the vector of {ids[broken[0]]!r} is not finite "
                    f"({len(broken)} such). Embed the captions again."
                )
            return rows
        return self.sentence_encoder.encode([caption.text for caption in captions], progress)

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
        bases = self.caption_bases(collection, captions, progress)
        return (
            VectorTable(tuple(features), clip_vectors),
            VectorTable(tuple(caption.caption_id for caption in captions), self._embedded(bases)),
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


def _front_end(encoder: audio_encoders.AudioEncoder) -> str:
    return json.dumps(asdict(encoder.front_end), sort_keys=True) if encoder.front_end else ""


def _inputs(config: DualEncoderConfig, collection: Collection) -> Inputs:
    """What the collection feeds the encoders of these settings. Raises `DataError` where it lacks them."""
    named = _named_models(collection)
    found: dict[str, Any] = {}
    if config.audio.encoder == "vectors":
        found["clip_size"] = _table(collection, "clip").vectors.shape[1]
        found["clip_model"] = str(named.get("clip_model", ""))
        found["clip_fingerprint"] = str(named.get("clip_fingerprint", ""))
    else:
        found["front_end"] = _front_end(audio_encoders.build(config.audio, 1))
    if config.text.encoder == "vectors":
        found["caption_size"] = _table(collection, "caption").vectors.shape[1]
        found["caption_model"] = str(named.get("caption_model", ""))
        found["caption_fingerprint"] = str(named.get("caption_fingerprint", ""))
    else:
        encoder = SentenceEncoder(config.text.encoder)
        found |= {
            "caption_size": encoder.dim,
            "caption_model": encoder.name,
            "caption_fingerprint": encoder.fingerprint,
        }
    return Inputs(**found)
