"""The model: an audio encoder and a text head into one space, where relevance is the cosine of two embeddings.

On disk it is two files of a run's folder: `config.toml` (the settings, and under [inputs] what fed the
encoders) and `model.safetensors` (plain tensors; nothing is ever unpickled).
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from earmark.audio.cache import Features
from earmark.config import from_table, read_toml
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import write_tensors
from earmark.model import encoding, share
from earmark.model.audio_encoders import LARGEST, AudioEncoder
from earmark.model.audio_towers import OWN_CAPTIONS, AudioConfig, class_texts, is_frozen, random_tower
from earmark.model.frozen import Frozen, frozen_of
from earmark.model.heads import AsIs, Bridge
from earmark.model.pretrained import fingerprint
from earmark.model.reading import place_of, read_all
from earmark.model.saved import of_today
from earmark.model.settings import DualEncoderConfig, Inputs
from earmark.model.stored import named_models, own_caption_features, vector_features, vectors_of, with_caption_vectors
from earmark.model.text_encoders import Progress, SentenceEncoder, TextEncoder, check_texts
from earmark.model.towers import VECTORS, AudioTower, front_ends_agree

SOUNDS_AT_ONCE = 64
"""Sounds whose features are held at once where nothing keeps them."""


class DualEncoder(nn.Module, encoding.Encodes):
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
        if config.audio.encoder == OWN_CAPTIONS:
            self.text.head = AsIs()

    # Making, saving, loading

    @classmethod
    def for_collection(
        cls,
        config: DualEncoderConfig,
        collection: Collection | None,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> DualEncoder:
        """A model with random heads (and pretrained layers where the settings name them) that fits the collection.

        None fits where the encoders read sounds and texts, and no vectors of a collection.
        """
        inputs = inputs_of(config, collection)
        torch.manual_seed(seed)
        model = cls(config, inputs)
        model.audio.load_pretrained()
        if isinstance(model.audio.head, Bridge):
            model._lay_bridge(model.audio.head, progress)
        return model

    def _lay_bridge(self, bridge: Bridge, progress: Progress | None) -> None:
        names = torch.from_numpy(self.sentence_encoder.encode(class_texts(self.config.audio), progress))
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
        write_tensors(folder / "model.safetensors", self.state_dict(), {})

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
        if not all(0 <= size <= LARGEST for size in (inputs.clip_size, inputs.caption_size)):
            raise DataError(
                f"{path}: inputs.clip_size = {inputs.clip_size}, inputs.caption_size = {inputs.caption_size}; expected "
                f"0 to {LARGEST:,}. Take the file as training wrote it."
            )
        model = cls(DualEncoderConfig.from_tables(tables, str(path)), inputs)
        model.source = str(path)
        if model.audio.tower is not None:
            model.reader()
        try:
            model.load_state_dict(of_today(load_file(weights)))
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

        def window(at: int) -> Tensor:
            clip, place = places[at]
            return clips[clip].windows[place]

        told = partial(progress, "embedding sounds") if progress else None
        embedded = self._in_batches(self.embed_clips, window, order, self.audio.windows_a_batch, told)
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
        told = partial(progress, "embedding texts") if progress and self.text.tower is not None else None
        out: NDArray[np.float32] = self._in_batches(
            self.embed_captions, features.__getitem__, order, size, told
        ).numpy()
        return out

    def _in_batches(
        self,
        embed: Callable[[Sequence[Tensor]], Tensor],
        features: Callable[[int], Tensor],
        order: Sequence[int],
        size: int,
        told: Callable[[int, int], None] | None,
    ) -> Tensor:
        """Embeddings [item, dim], made in this order, `size` items at a time; `told` (items done, items in all).

        Equal features are embedded once: the same item at two places of a batch may come out unequal in its last bits.
        """
        embedded = torch.zeros(len(order), self.config.model.dim)
        first: dict[bytes, int] = {}
        same = list(range(len(order)))
        for start in range(0, len(order), size):
            fresh: dict[int, Tensor] = {}
            for at in order[start : start + size]:
                found = features(at)
                same[at] = first.setdefault(_digest(found), at)
                if same[at] == at:
                    fresh[at] = found
            if fresh:
                embedded[list(fresh)] = embed(list(fresh.values())).cpu()
            if told:
                told(min(start + size, len(order)), len(order))
        return embedded[same]

    @property
    def dim(self) -> int:
        """Size of the embeddings."""
        return self.config.model.dim

    @property
    def max_seq_length(self) -> int:
        """Tokens of a text that are read. Raises `ConfigError` where the model cannot read texts."""
        return self.text.tower.longest if self.text.tower is not None else self.sentence_encoder.max_seq_length

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
        return self.embed_sounds([(sound, rate) for sound in each])

    def embed_sounds(
        self, sounds: Sequence[tuple[Any, int | None]], size: int = SOUNDS_AT_ONCE, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Unit embeddings, float32 [sound, dim], of (path or waveform, rate), of which `size` are held at a time."""
        found = [np.zeros((0, self.config.model.dim), np.float32)]
        for start in range(0, len(sounds), size):
            some = sounds[start : start + size]
            found.append(self.embed_features([self._features(sound, rate) for sound, rate in some]))
            if progress:
                progress("embedding sounds", start + len(some), len(sounds))
        return np.concatenate(found)

    def _features(self, sound: Path | str | NDArray[Any], rate: int | None) -> Features:
        if isinstance(sound, str | Path | bytes):
            return self.reader().read(Path(os.fsdecode(sound)))
        if rate is None:
            raise ConfigError("a waveform without its rate; expected embed_audio(waveform, rate=44100), say.")
        return self.reader().read_waveform(np.asarray(sound), rate)

    def reader(self) -> AudioTower | Frozen:
        """What reads sounds. Raises `DataError` where it would read them otherwise than in training."""
        reader = self.audio.reader
        if isinstance(reader, Frozen):
            reader.move_to(self.device)
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

    # At the hub

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        commit_message: str = "Add an earmark model",
    ) -> str:
        """The address of the commit that brought the run's config.toml, model.safetensors and card to the hub.

        What goes up are the files of the folder that the model was loaded from, as they are; the card becomes
        README.md, with `repo_id` in its example. The repository is made where it is not there. Raises `ConfigError`
        where the model is not from a folder or others could not load it, `DataError` where the hub refuses it.
        """
        folder = Path(self.source).parent
        if Path(self.source).name != "config.toml" or not Path(self.source).is_file():
            raise ConfigError(f"{self.source}: not from a run's folder, so there is nothing to push. Load a run first.")
        share.check_others_can_load(self.config, self.inputs, self.source)
        return share.push(folder, repo_id, private=private, token=token, commit_message=commit_message)

    @classmethod
    def from_pretrained(
        cls, name_or_folder: str | Path, *, revision: str | None = None, token: str | bool | None = None
    ) -> DualEncoder:
        """The model of a run's folder, or of the hub's repository of that name where no such folder is there.

        `revision` is a branch, tag or commit of the hub's. Raises `DataError` where neither is there, the hub cannot
        be reached, or what is there is no model of earmark.
        """
        if not share.is_hub_name(name_or_folder):
            if revision is not None:
                raise ConfigError(f"{name_or_folder}: a folder, with revision = {revision!r}. Leave the revision out.")
            return cls.load(Path(name_or_folder))
        return cls.load(share.fetched(str(name_or_folder), revision=revision, token=token))

    # Inputs and embeddings of a collection

    def clip_features(
        self, collection: Collection, clips: Sequence[Clip], progress: Progress | None = None
    ) -> tuple[dict[str, Features], list[Problem]]:
        """What the audio encoder reads of each clip, by clip id, and the clips that could not be read.

        Sounds are read by all cores; what was made of them is kept on disk and found there the next time.
        """
        if self.config.audio.encoder == VECTORS:
            return vector_features(vectors_of(collection, "clip", self.inputs), clips)
        if self.config.audio.encoder == OWN_CAPTIONS:
            inside = {clip.clip_id for clip in clips}
            captions = [caption for caption in collection.captions if caption.clip_id in inside]
            return own_caption_features(clips, captions, self.caption_features(collection, captions, progress))
        found: dict[str, Features] = {}
        problems: list[Problem] = []
        results = read_all(self.reader(), [place_of(collection, clip) for clip in clips])
        for done, (clip, result) in enumerate(zip(clips, results, strict=True), start=1):
            if isinstance(result, Features):
                found[clip.clip_id] = result
            else:
                problems.append(Problem(f"clip {clip.clip_id!r}", str(result)))
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
        rows = vectors_of(collection, "caption", self.inputs).rows(ids)
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(broken):
            raise DataError(
                f"{collection.root / 'caption_vectors.npz'}: the vector of {ids[broken[0]]!r} is not finite "
                f"({len(broken)} such). Embed the captions again."
            )
        return list(torch.from_numpy(rows))

    def with_caption_features(self, collection: Collection, asked: Container[str]) -> tuple[Collection, list[Problem]]:
        """The collection without captions that the text encoder cannot read, and which of the asked ones these are.

        Only vectors that stand for captions can be missing or broken; the captions' ratings go with them.
        """
        if self.config.text.encoder != VECTORS:
            return collection, []
        return with_caption_vectors(collection, self.inputs, asked)

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


def _digest(features: Tensor) -> bytes:
    """What equal tensors, and no others, share."""
    shape = f"{features.dtype} {tuple(features.shape)} ".encode()
    return hashlib.sha256(shape + features.contiguous().numpy().tobytes()).digest()


def _frozen(config: AudioConfig, inputs: Inputs) -> Frozen | None:
    """The tower below the model, or None where it is a part of the model or nobody knows what made the vectors."""
    if config.encoder == OWN_CAPTIONS:
        return None
    if config.encoder == VECTORS:
        return frozen_tower(inputs.clip_model, expected=inputs.clip_fingerprint) if inputs.clip_model else None
    return frozen_of(config, expected=inputs.clip_fingerprint) if is_frozen(config) else None


def frozen_tower(name: str, *, expected: str = "") -> Frozen:
    """The tower that `earmark embed --model NAME` embeds with: a run's, or a pretrained model's.

    PANNs' networks read their own log-mel.
    """
    if is_run(name):
        return FrozenRun(Path(name), expected=expected)
    return frozen_of(AudioConfig(encoder=name, train=False, log_mel="panns"), expected=expected)


def text_encoder(name: str) -> SentenceEncoder | RunTexts:
    """The encoder of texts that bears the name: a run's, or a pretrained model's."""
    return RunTexts(Path(name)) if is_run(name) else SentenceEncoder(name)


def text_option(name: str, option: str = "--text") -> SentenceEncoder | RunTexts:
    """As `text_encoder`, for commands that have such an option: where the model is missing, the error says so."""
    return _or_another(name, f"Or name another model of texts: {option} all-MiniLM-L6-v2, say.")


def _or_another(name: str, advice: str) -> SentenceEncoder | RunTexts:
    """As `text_encoder`; where the model is missing, the error ends with the advice."""
    try:
        return text_encoder(name)
    except DataError as error:
        raise DataError(f"{error} {advice}") from error


def is_run(name: str) -> bool:
    """Whether the name is the folder of a run."""
    return (Path(name) / "config.toml").is_file()


def run_fingerprint(folder: Path) -> str:
    """32 hex digits that change with the run's weights and settings, and with what fed its encoders."""
    tables = read_toml(folder / "config.toml")
    settings = json.dumps([tables.get(name) for name in ("model", "audio", "text", "inputs")], sort_keys=True)
    return hashlib.sha256(f"{fingerprint(folder / 'model.safetensors')} {settings}".encode()).hexdigest()[:32]


class FrozenRun(Frozen):
    """A whole trained model below another one: its vectors are unit embeddings of clips."""

    def __init__(self, folder: Path, *, expected: str = "") -> None:
        super().__init__(str(folder), lambda: run_fingerprint(folder), expected=expected)
        self._folder = folder

    @cached_property
    def _model(self) -> DualEncoder:
        _ = self.fingerprint
        return DualEncoder.load(self._folder)

    def move_to(self, device: torch.device) -> None:
        """Embeds there from now on."""
        self._model.to(device)

    @property
    def size(self) -> int:
        """Of the embeddings."""
        return self._model.config.model.dim

    @property
    def front_end(self) -> str:
        """What the model's own tower makes of sound, as JSON."""
        return self._model.audio.reader.front_end

    @property
    def made_by(self) -> str:
        """What decides its vectors: the key of the cache."""
        return f"embeddings of a run {self.fingerprint}: {self._model.audio.reader.made_by}"

    def read(self, path: Path) -> Features:
        """The embedding of a sound file, with what was odd about it. Raises `DataError` where it holds no sound."""
        return self._embedding(self._model.reader().read(path))

    def read_waveform(self, samples: NDArray[Any], rate: int) -> Features:
        """The embedding of mono samples at `rate` Hz."""
        return self._embedding(self._model.reader().read_waveform(samples, rate))

    def _embedding(self, features: Features) -> Features:
        vector = torch.from_numpy(self._model.embed_features([features])[0])
        return Features([vector], [sum(features.seconds)], features.odd)


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

    @property
    def max_seq_length(self) -> int:
        """Tokens of a text that are read."""
        return self._model.max_seq_length


def inputs_of(config: DualEncoderConfig, collection: Collection | None) -> Inputs:
    """What feeds the encoders of these settings: sounds and texts, or what the collection holds in their place.

    Raises `DataError` where the collection lacks it, `ConfigError` where it is needed and None.
    """
    if collection is None:
        if VECTORS in (config.audio.encoder, config.text.encoder) or config.audio.encoder == OWN_CAPTIONS:
            raise ConfigError("vectors of a collection, and no collection. Name encoders that read sounds and texts.")
        return _inputs(config, None, {})
    return _inputs(config, collection, named_models(collection))


def _inputs(config: DualEncoderConfig, collection: Any, named: Mapping[str, Any]) -> Inputs:
    found: dict[str, Any] = {}
    if config.audio.encoder == VECTORS:
        found["clip_size"] = vectors_of(collection, "clip").vectors.shape[1]
        found["clip_model"] = str(named.get("clip_model", ""))
        found["clip_fingerprint"] = str(named.get("clip_fingerprint", ""))
        found["front_end"] = str(named.get("clip_front_end", ""))
    elif config.audio.encoder == OWN_CAPTIONS:
        pass  # no sound: what feeds the text encoder feeds both
    elif (frozen := _frozen(config.audio, Inputs())) is not None:
        found["clip_size"] = frozen.size
        found["clip_model"] = frozen.name
        found["clip_fingerprint"] = frozen.fingerprint
        found["front_end"] = frozen.front_end
    else:
        found["front_end"] = random_tower(config.audio).front_end
    if config.text.encoder == VECTORS:
        found["caption_size"] = vectors_of(collection, "caption").vectors.shape[1]
        found["caption_model"] = str(named.get("caption_model", ""))
        found["caption_fingerprint"] = str(named.get("caption_fingerprint", ""))
    else:
        size = " --set model.dim=384" if config.text.residual else ""
        advice = f"Or take another model of texts: --set text.encoder=all-MiniLM-L6-v2{size}."
        encoder = _or_another(config.text.encoder, advice)
        found |= {
            "caption_size": encoder.dim,
            "caption_model": encoder.name,
            "caption_fingerprint": encoder.fingerprint,
        }
    if config.audio.encoder == OWN_CAPTIONS:
        found["clip_size"] = found["caption_size"]
    return Inputs(**found)
