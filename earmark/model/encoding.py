"""What `DualEncoder.encode` takes and gives: calls as sentence-transformers has them.

An input is a text or a sound, by what it is: a str is a text, but the name of a sound file that is there is that
sound; sounds are also paths, and waveforms with their rate. What cannot be done is refused, never passed over.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from earmark.errors import ConfigError
from earmark.model.text_encoders import Progress

SOUND_NAMES = (".mp3", ".wav", ".ogg", ".flac", ".aac")
"""Ends of a str that is a sound where such a file is there; the list is sentence-transformers'."""
PROMPTS = {"query": "", "document": ""}
"""Prompts by name: the model was trained without any."""
PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
TASKS = (None, "query", "document")


class Inputs(NamedTuple):
    """What `encode` was given: texts or sounds, the other list is empty."""

    texts: list[str]
    sounds: list[tuple[Any, Any]]
    """(path or waveform, rate or None)."""
    single: bool
    """Whether it was one input and no list."""


class Encodes(ABC):
    """`encode` and what belongs to it, for a model that embeds texts and sounds."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Size of the embeddings."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights are."""

    @abstractmethod
    def embed_text(self, texts: Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """Unit embeddings, float32 [text, dim]."""

    @abstractmethod
    def embed_sounds(
        self, sounds: Sequence[tuple[Any, int | None]], size: int, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Unit embeddings, float32 [sound, dim], of (path or waveform, rate)."""

    @abstractmethod
    def to(self, device: Any) -> Any:
        """Moves the weights there."""

    def encode(
        self,
        inputs: Any = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        pool: Any = None,
        chunk_size: int | None = None,
        **more: Any,
    ) -> Any:
        """Embeddings of texts or of sounds, as `SentenceTransformer.encode` answers (6.2).

        One input gives one vector [dim]; a list, tuple or array of them gives [input, dim]: numpy float32, or a tensor
        (`convert_to_tensor`), or a list of tensors (`convert_to_numpy=False`). A text is a str. A sound is a Path, a
        str that names a sound file, a dict of `array` and `sampling_rate`, or a decoder of torchcodec.

        What differs: rows are of unit length whatever `normalize_embeddings` says, since relevance is the cosine; it
        acts on rows that `truncate_dim` cuts. No inputs give [0, dim]. `batch_size` is how many sounds are held at
        once; no batch changes a vector. No bar is shown where `show_progress_bar` is None. Waveforms must come with
        their rate, which may differ from sound to sound. Blank texts are refused (`DataError`), and so is what cannot
        be done (`ConfigError`): other outputs, several processes, fetching sounds, unknown settings.
        """
        given = given_inputs(inputs, more)
        check_settings(
            batch_size=batch_size,
            output_value=output_value,
            precision=precision,
            truncate_dim=truncate_dim,
            device=device,
            pool=pool,
            chunk_size=chunk_size,
        )
        read = read_inputs(given, prompt_of(prompt, prompt_name))
        self._move_to(device)
        with bar(show_progress_bar) as progress:
            rows = self.embed_sounds(read.sounds, batch_size, progress) if read.sounds else None
            rows = self.embed_text(read.texts, progress) if rows is None else rows
        rows = quantized(cut(rows, truncate_dim, normalize_embeddings), precision)
        return answered(rows, read.single, self.device, to_numpy=convert_to_numpy, to_tensor=convert_to_tensor)

    def encode_query(self, *inputs: Any, **settings: Any) -> Any:
        """The same as `encode`: the model has no prompts, and what an input is decides how it is read."""
        return self.encode(*inputs, **{**settings, "task": "query"})

    def encode_document(self, *inputs: Any, **settings: Any) -> Any:
        """The same as `encode`: the model has no prompts, and what an input is decides how it is read."""
        return self.encode(*inputs, **{**settings, "task": "document"})

    similarity_fn_name = "cosine"

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines, float32 [first, second], of arrays, tensors or lists of vectors."""
        return cosines(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines, float32 [pair], of vectors at the same place."""
        return pairwise_cosines(embeddings1, embeddings2)

    def get_embedding_dimension(self) -> int:
        """The size of the embeddings."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension

    @cached_property
    def model_card_data(self) -> Measured:
        """Where evaluators of sentence-transformers leave what they measured."""
        return Measured()

    def _move_to(self, device: Any) -> None:
        """Moves the model there, if somewhere. Raises `ConfigError` where the machine has no such device."""
        if device is None:
            return
        try:
            torch.zeros(1, device=device).cpu()  # asked first, since a move that fails half-way cannot be taken back
            self.to(device)
        except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            raise ConfigError(f"encode: device = {device!r}: {first}. Name another, cpu say.") from error


# What comes in


def read_inputs(given: Any, prompt: str) -> Inputs:
    """The texts, each after the prompt, or the sounds. Raises `ConfigError` on both at once, or anything else."""
    if isinstance(given, np.ndarray) and not given.ndim:
        given = given.item()  # an array of one text and no dimension is that text, not its letters
    single = _is_single(given)
    items = [_text_or_sound(each) for each in ([given] if single else _listed(given))]
    texts = [prompt + item for item in items if isinstance(item, str)]
    sounds = [item for item in items if not isinstance(item, str)]
    if texts and sounds:
        raise ConfigError(
            f"encode: {len(texts)} texts among sounds ({len(sounds)}); expected one or the other. Call it twice."
        )
    if sounds and prompt:
        raise ConfigError(f"encode: prompt {prompt!r} before sounds; expected texts. Leave the prompt out.")
    return Inputs(texts, sounds, single)


def _is_single(given: Any) -> bool:
    if isinstance(given, np.ndarray):
        return given.dtype.kind not in "UO"  # an array of numbers is one waveform
    one = isinstance(given, str | bytes | Path | Mapping | Tensor | set | frozenset) or _decodes(given)
    return one or not isinstance(given, Iterable)


def _listed(given: Iterable[Any]) -> list[Any]:
    return given.tolist() if isinstance(given, np.ndarray) else list(given)


def _text_or_sound(item: Any) -> str | tuple[Any, Any]:
    """A text, or (path or waveform, rate or None) of a sound."""
    if isinstance(item, str):
        return (Path(item), None) if _names_a_sound(item) else item
    if isinstance(item, Path):
        return item, None
    if isinstance(item, Mapping):
        return _of_mapping(item)
    if _decodes(item):
        samples = item.get_all_samples()  # [channel, sample]
        return _array(samples.data).T, samples.sample_rate
    found = f"encode: an input of type {type(item).__name__}"
    if isinstance(item, np.ndarray | Tensor):
        found = "encode: a waveform without its rate"
    raise ConfigError(f"{found}; expected a text, a Path, or a dict of array and sampling_rate.")


def _of_mapping(item: Mapping[str, Any]) -> str | tuple[Any, Any]:
    if "array" in item and "sampling_rate" in item:
        return _array(item["array"]), item["sampling_rate"]
    if set(item) == {"text"} and isinstance(item["text"], str):
        return str(item["text"])
    if set(item) == {"audio"}:
        sound = item["audio"]
        return (Path(sound), None) if isinstance(sound, str) else _text_or_sound(sound)
    raise ConfigError(
        f"encode: a dict of {', '.join(map(str, item)) or 'nothing'}; expected array and sampling_rate, or text alone, "
        "or audio alone."
    )


def _array(samples: Any) -> NDArray[Any]:
    return np.asarray(samples.detach().cpu() if isinstance(samples, Tensor) else samples)


def _decodes(item: Any) -> bool:
    """Whether it is a decoder of torchcodec, which data sets of the hub give for sounds."""
    return callable(getattr(item, "get_all_samples", None))


def _names_a_sound(text: str) -> bool:
    """Whether the text is the name of a sound file that is there.

    Raises `ConfigError` on the address of one, and warns where no such file is there: it is taken as a text then.
    """
    is_address = text.startswith(("http://", "https://")) and " " not in text
    if not (urlsplit(text).path if is_address else text).lower().endswith(SOUND_NAMES):
        return False
    if is_address:
        raise ConfigError(f"encode: {text}: sounds are not fetched; expected a file. Download it first.")
    if not Path(text).is_file():
        warnings.warn(f"encode: {text!r} is no file here, and is taken as a text", stacklevel=6)
        return False
    return True


# How it is asked for


def given_inputs(inputs: Any, more: dict[str, Any]) -> Any:
    """The inputs, by their older name (`sentences`) too. Raises `ConfigError` on unknown settings."""
    if inputs is None:
        inputs = more.pop("sentences", None)
    task = more.pop("task", None)
    if task not in TASKS:
        raise ConfigError(f"encode: task = {task!r}; expected query or document.")
    if more:
        raise ConfigError(f"encode: unknown setting {next(iter(more))!r}. Leave it out.")
    return inputs


def prompt_of(prompt: str | None, name: str | None) -> str:
    """What stands before each text. Raises `ConfigError` on a name that the model does not have."""
    if prompt is not None:
        return prompt
    if name is not None and name not in PROMPTS:
        raise ConfigError(f"encode: prompt_name = {name!r}; expected {' or '.join(PROMPTS)}, which are empty.")
    return ""


def check_settings(
    *, batch_size: int, output_value: str | None, precision: str | None, truncate_dim: int | None, **processes: Any
) -> None:
    """Raises `ConfigError` on what `encode` cannot do."""
    wrong = ""
    if output_value != "sentence_embedding":
        wrong = f"output_value = {output_value!r}; expected sentence_embedding, the only one that it has"
    elif precision not in (None, *PRECISIONS):
        wrong = f"precision = {precision!r}; expected {', '.join(PRECISIONS)}"
    elif not (isinstance(batch_size, int) and batch_size > 0):
        wrong = f"batch_size = {batch_size!r}; expected 1 or more"
    elif truncate_dim is not None and not (isinstance(truncate_dim, int) and truncate_dim > 0):
        wrong = f"truncate_dim = {truncate_dim!r}; expected 1 or more"
    elif isinstance(processes["device"], list | tuple):
        wrong = f"device = {processes['device']!r}; expected one device, several processes are not started here"
    elif processes["pool"] is not None or processes["chunk_size"] is not None:
        wrong = "pool or chunk_size; expected neither, several processes are not started here"
    if wrong:
        raise ConfigError(f"encode: {wrong}.")


@contextmanager
def bar(show: bool | None) -> Iterator[Progress | None]:
    """A callback (what, done, all) that shows a bar on standard error while the block runs; None without one."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield progress


# What goes out


def cut(rows: NDArray[np.float32], size: int | None, normalize: bool) -> NDArray[np.float32]:
    """Unit rows [input, dim], or their first `size` values, brought to unit length again where `normalize`."""
    if size is None or size >= rows.shape[1]:
        return rows
    short = torch.from_numpy(rows[:, :size])
    out: NDArray[np.float32] = (F.normalize(short, dim=1) if normalize else short).contiguous().numpy()
    return out


def quantized(rows: NDArray[np.float32], precision: str | None) -> NDArray[Any]:
    """The rows in fewer bits, equal to `sentence_transformers.quantize_embeddings`.

    "binary" and "ubinary" are the signs, eight a byte; "int8" and "uint8" cut each column's range, over these rows,
    into 256 steps. Raises `ConfigError` where one row alone has no range.
    """
    if precision in (None, "float32") or not len(rows):
        return rows
    if str(precision).endswith("binary"):
        signs: NDArray[Any] = np.packbits(rows > 0, axis=-1)
        return signs if precision == "ubinary" else (signs.astype(np.int16) - 128).astype(np.int8)
    if len(rows) == 1:
        raise ConfigError(f"encode: precision = {precision!r} of one vector, which has no range. Give several.")
    low, high = rows.min(axis=0), rows.max(axis=0)
    steps = (high - low) / 255
    places: NDArray[Any] = np.clip(np.floor((rows - low) / np.where(steps == 0, 1, steps)), 0, 255)
    return places.astype(np.uint8) if precision == "uint8" else (places - 128).astype(np.int8)


def answered(
    rows: NDArray[Any], single: bool, device: torch.device, *, to_numpy: bool, to_tensor: bool
) -> NDArray[Any] | Tensor | list[Tensor]:
    """The rows as an array, one tensor or a list of tensors; the one row of a single input."""
    found: Any = rows
    if to_tensor or not to_numpy:
        found = torch.from_numpy(rows).to(device)
        found = found if to_tensor else list(found)
    return found[0] if single else found  # type: ignore[no-any-return]


def cosines(one: Any, other: Any) -> Tensor:
    """Cosines [one, other] of rows; a vector alone is one row."""
    return F.normalize(_rows(one), dim=1) @ F.normalize(_rows(other), dim=1).T


def pairwise_cosines(one: Any, other: Any) -> Tensor:
    """Cosines of each row with the other's at the same place."""
    return (F.normalize(_tensor(one), dim=-1) * F.normalize(_tensor(other), dim=-1)).sum(dim=-1)


def _rows(embeddings: Any) -> Tensor:
    found = _tensor(embeddings)
    return found[None] if found.ndim == 1 else found


def _tensor(embeddings: Any) -> Tensor:
    if isinstance(embeddings, list | tuple):
        embeddings = torch.stack([torch.as_tensor(each) for each in embeddings])
    return torch.as_tensor(embeddings).float()


class Measured:
    """Where evaluators of sentence-transformers leave what they measured; it stays with the model in memory."""

    def __init__(self) -> None:
        self.found: list[dict[str, float]] = []

    def set_evaluation_metrics(self, evaluator: Any, metrics: dict[str, float], *_: int) -> None:
        """Keeps the metrics, which bear their own names."""
        self.found.append(metrics)
