"""A Hugging Face data set's folder → a collection: an audiofolder, or Parquet with the sounds inside.

An audiofolder has a `metadata.csv`, `.jsonl` or `.parquet` at the top or in folders below, whose `file_name` leads from
its own folder to a sound; Parquet holds structs of bytes and path in a column `audio`. The column of captions holds a
text or a list of them. Splits are told by the names of folders and shards (`train/…`, `data/test-….parquet`). The
sounds of an audiofolder stay where they are, those of Parquet are written beside the tables. What `export` wrote comes
back as it was, by the collection's tables that stand in it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from earmark.data.check import Progress, is_file
from earmark.data.collection import VECTOR_FILES, Collection
from earmark.data.published import half_letter, refuse_pointer, text_of
from earmark.data.rows import write_tables
from earmark.data.tables import (
    Sounds,
    Source,
    check_holdout,
    hold_out,
    name_splits,
    split_word,
    take_rows,
)
from earmark.errors import ConfigError, DataError, Problem, install
from earmark.files import RENAME_OR_NAME, Row, check_columns, check_new_folder, read_table, read_text, writing_folder

if TYPE_CHECKING:
    import pyarrow

TEXT_COLUMNS = ("text", "caption", "captions", "transcription", "description")
"""Those that are taken for captions where none is named, the first that is there."""
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
ROWS_AT_ONCE = 8
"""Rows with their sounds that are read at a time."""


def import_folder(
    folder: Path | str,
    root: Path | str,
    *,
    text: str = "",
    holdout: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Collection:
    """The collection of an audiofolder or of Parquet shards, written to `root`; what was left out is in `problems`.

    `text` is the column of captions, a text or a list of them; else the first of `TEXT_COLUMNS`. Splits are told by the
    names of folders or shards. The sounds of an audiofolder stay where they are, those of Parquet go to `root/sounds`,
    equal bytes once a split. What `export` wrote comes back as it was. Raises `DataError`, with nothing written, where
    there is neither form, a column is missing, or no row can be used.
    """
    folder, root = Path(folder), Path(root)
    check_new_folder(root)
    check_holdout(holdout)
    if is_file(folder / "clips.csv") and is_file(folder / "captions.csv"):
        if text or holdout is not None:
            raise DataError(
                f"{folder}: a collection, with captions and splits of its own. Leave --text, --holdout out."
            )
        return _own(folder, root, progress)
    found = Collection(root, [], [], queries="texts")
    tables = _regular((path for name in METADATA for path in folder.rglob(name)), found.problems)
    others = (path for path in folder.rglob("*.parquet") if path.name not in (*METADATA, "ratings.parquet"))
    shards = _regular(others, found.problems)
    for path in tables or shards:
        refuse_pointer(path)
    if not shards and not tables:
        raise DataError(
            f"{folder}: neither {', '.join(METADATA)} nor Parquet shards; expected one of them at any depth."
        )
    found.about["imported"] = {"folder": folder.resolve().name, "form": "audiofolder" if tables else "parquet"}
    if licence := _licence(folder):
        found.about["licence"] = licence
    with writing_folder(root) as aside:
        kept, sounds, counts = _Kept(aside / "sounds"), Sounds(folder), Counter[str]()
        for done, path in enumerate(tables or shards, start=1):
            part = _metadata(path, folder, text, sounds) if tables else _shard(path, folder, text, kept)
            _add(found, part, folder if tables else root / "sounds", counts)
            if progress is not None:
                progress(done, len(tables or shards))
        _finish(found, folder, holdout, seed)
        write_tables(aside, found.clips, found.captions, found.ratings)
        found.write_about(aside)
    return found


def _regular(paths: Iterable[Path], problems: list[Problem]) -> list[Path]:
    """The files among the paths, sorted; a pipe, which would be waited for, or a dead link goes to the problems."""
    regular = []
    for path in sorted(paths):
        if is_file(path):
            regular.append(path)
        elif not path.is_dir():  # Spark's `x.parquet/` is a folder of shards
            problems.append(Problem(str(path), "not a regular file, or a link that leads nowhere. It is left out."))
    return regular


def _finish(found: Collection, folder: Path, holdout: float | None, seed: int) -> None:
    """Names the splits, or holds some out. Raises `DataError` where there is no clip, or both are asked for."""
    if not found.clips:
        first = found.problems[0] if found.problems else "there is none"
        raise DataError(f"{folder}: no row can be used; nothing is written. The first: {first}")
    if splits := name_splits(found):
        found.about["imported"]["splits"] = splits
    if holdout is not None:
        if found.splits != ["development"]:
            raise DataError(f"--holdout {holdout:g}: {folder} has splits ({', '.join(found.splits)}). Leave it out.")
        hold_out(found, folder, holdout, seed)


@dataclass
class _Part:
    """The rows of one file."""

    path: Path
    text: str
    columns: list[str]
    lists: bool
    """Whether the text column holds lists."""
    usable: list[tuple[str, Row]] = field(default_factory=list)
    """(path of the sound, its row); a row a caption."""
    problems: list[Problem] = field(default_factory=list)


_SPLIT = "\0split"
"""The column of the split that the sound's or the shard's place tells, under a name that no table has."""


def _add(found: Collection, part: _Part, audio: Path, counts: Counter[str]) -> None:
    """Takes a file's rows into the collection; `counts` are the captions that each clip has already."""
    here = Collection(found.root, [], [], problems=part.problems)
    source = Source(part.path, audio, "file_name", (part.text,), _SPLIT, None)
    take_rows(here, source, [*part.columns, _SPLIT], part.usable)
    found.clips += [clip for clip in here.clips if clip.clip_id not in counts]
    for caption in here.captions:  # a sound may stand in two shards
        counts[caption.clip_id] += 1
        found.captions.append(replace(caption, caption_id=f"{caption.clip_id}#{counts[caption.clip_id]}"))
    found.problems += here.problems
    found.queries = "captions" if part.lists else found.queries
    if part.text:  # an empty file has none
        found.about["imported"]["text"] = part.text


def _text_column(path: Path, columns: Sequence[str], text: str, others: Mapping[str, str]) -> str:
    """The column of captions; `others` are those that hold no texts, with their types."""
    if text:
        _check_kind(path, text, others)
        check_columns(path, columns, [text], RENAME_OR_NAME)
        return text
    if found := next((name for name in TEXT_COLUMNS if name in columns), ""):
        return found
    there = ", ".join([*columns, *(f"{name} ({kind})" for name, kind in others.items())])
    raise DataError(
        f"{path}: none of the columns {', '.join(TEXT_COLUMNS)} with texts; found {there}. "
        "Name the one with the captions (--text)."
    )


def _check_kind(path: Path, name: str, others: Mapping[str, str]) -> None:
    """Raises `DataError` where the column is among those that hold no texts."""
    if name in others:
        raise DataError(f"{path}: column {name!r} is {others[name]}; expected texts or lists of texts. Convert it.")


def _texts_of(value: Any) -> list[str]:
    """The captions of a cell; one blank text where there is none, which is then told."""
    values = value if isinstance(value, list) else [value]
    return [text_of(each) for each in values] or [""]


def _licence(folder: Path) -> str:
    """What the card states, or nothing."""
    card = folder / "README.md"
    if not is_file(card):
        return ""
    matter = re.match(r"---\n(.*?)^---$", card.read_text("utf-8", "replace"), re.DOTALL | re.MULTILINE)
    stated = re.search(r"^license: *[\"']?([^\"'\n]+)", matter[1], re.MULTILINE) if matter else None
    return stated[1].strip() if stated else ""


# An audiofolder


def _metadata(path: Path, folder: Path, text: str, sounds: Sounds) -> _Part:
    """The rows of a `metadata.csv`, `.jsonl` or `.parquet` whose sounds are there."""
    read = {".csv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}[path.suffix]
    problems: list[Problem] = []
    empty = _is_empty(path)
    others = _other_columns(path) if path.suffix == ".parquet" and not empty else {}
    _check_kind(path, "file_name", others)
    rows = [] if empty else list(read(path, problems))
    if not rows:
        return _Part(path, "", [], False, problems=problems or [Problem(str(path), "holds no rows. It is left out.")])
    columns = list(dict.fromkeys(column for _, values in rows for column in values))
    check_columns(path, columns, ["file_name"])
    text = _text_column(path, columns, text, others)
    part = _Part(path, text, columns, any(isinstance(values.get(text), list) for _, values in rows), problems=problems)
    inside = path.parent.relative_to(folder)
    for number, values in rows:
        named = text_of(values.get("file_name"))
        found, fault = sounds.find((inside / named).as_posix() if named else "")
        if fault:
            problems.append(Problem(f"{path} line {number}", f"{fault}. The row is left out."))
            continue
        words = [split_word(name) for name in reversed(PurePosixPath(found).parts[:-1])]
        split = next(filter(None, words), "development")
        part.usable += _expanded(number, values, part, split, found)
    return part


def _is_empty(path: Path) -> bool:
    with path.open("rb") as file:
        return not file.read(4096).strip()


def _expanded(number: int, values: Mapping[str, Any], part: _Part, split: str, sound: str) -> list[tuple[str, Row]]:
    """The row once a caption, all cells as texts."""
    cells = {column: text_of(values.get(column)) for column in part.columns if column != part.text}
    cells |= {_SPLIT: split, "file_name": sound}
    return [(sound, Row(number, {**cells, part.text: each})) for each in _texts_of(values.get(part.text))]


def _csv_rows(path: Path, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    _, rows, faults = read_table(path)
    problems += faults
    for row in rows:
        yield row.line, row.cells


def _json_rows(path: Path, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(Problem(f"{path} line {number}", f"not JSON ({error}). The row is left out."))
            continue
        if not isinstance(values, dict):
            problems.append(Problem(f"{path} line {number}", "expected an object. The row is left out."))
        elif half := half_letter(values):
            problems.append(Problem(f"{path} line {number}", f"{half}. The row is left out."))
        else:
            yield number, values


def _parquet_rows(path: Path, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with _opened(path) as file:
        yield from _records(file, path, _plain_columns(file.schema_arrow), problems)


# Parquet


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A Parquet file, read in pieces. Raises `DataError` where it is none, is cut, or names of columns are no texts."""
    pa = pyarrow_module()
    try:
        with pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise DataError(f"{path}: cannot be read as Parquet ({_reason(error)}). Is the download whole?") from error


def _reason(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _records(
    file: Any, path: Path, columns: Sequence[str], problems: list[Problem], at_once: int = 1 << 16
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, cells) of each row; a row with a cell that cannot be read goes to the problems."""
    number = 0
    for batch in file.iter_batches(batch_size=at_once, columns=list(columns)):
        for row in zip(*map(_cells, batch.columns), strict=True):
            number += 1
            values = dict(zip(batch.schema.names, row, strict=True))
            bad = next((name for name, cell in values.items() if isinstance(cell, Exception)), None)
            if bad is None:
                yield number, values
            else:
                what = f"{bad!r} cannot be read ({_reason(values[bad])}). The row is left out."
                problems.append(Problem(f"{path} row {number}", what))


def _cells(column: Any) -> list[Any]:
    """The column's cells; the error in place of one that Python cannot hold (no UTF-8, a date past the year 9999)."""
    try:
        found: list[Any] = column.to_pylist()
    except Exception:  # each type fails in its own way: UnicodeDecodeError, OverflowError, ArrowInvalid, …
        found = [_cell(each) for each in column]
    return found


def _cell(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except Exception as error:  # as above; the caller tells it with the row
        return error


def _plain_columns(schema: pyarrow.Schema) -> list[str]:
    """The columns of texts, numbers, truths and times, and of lists of them."""
    return [each.name for each in schema if _is_plain(each.type)]


def _other_columns(path: Path) -> dict[str, str]:
    """The columns that are not plain, with their types in words."""
    with _opened(path) as file:
        return {each.name: _kind(each.type) for each in file.schema_arrow if not _is_plain(each.type)}


def _kind(type_: Any) -> str:
    text = " ".join(str(type_).split())
    return text if len(text) <= 80 else f"{text[:80]}…"


def _is_plain(kind: Any) -> bool:
    pa = pyarrow_module()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    kind = _decoded(kind)
    return not pa.types.is_nested(kind) and not _is_bytes(kind)


def _decoded(kind: Any) -> Any:
    """The type of the values where they are encoded as places in a dictionary, as pandas' categories are."""
    return kind.value_type if pyarrow_module().types.is_dictionary(kind) else kind


def _is_bytes(kind: Any) -> bool:
    return str(kind).startswith(("binary", "large_binary", "fixed_size_binary"))


def _sound_column(path: Path, schema: pyarrow.Schema) -> str:
    """The column of sounds: structs of bytes and path, `audio` where there are several."""
    pa = pyarrow_module()
    found = {
        each.name: [_decoded(inner.type) for inner in each.type if inner.name == "bytes"]
        for each in schema
        if pa.types.is_struct(each.type) and {"bytes", "path"} <= {inner.name for inner in each.type}
    }
    name = "audio" if "audio" in found or len(found) != 1 else next(iter(found))
    if name not in found:
        columns = ", ".join(f"{each.name} ({_kind(each.type)})" for each in schema)
        raise DataError(f"{path}: no column of sounds; found {columns}; expected `audio`, structs of bytes and path.")
    if schema.names.count(name) > 1:
        raise DataError(f"{path}: column {name!r} stands twice; expected one of sounds. Rename the other.")
    for kind in found[name]:
        if not _is_bytes(kind) and not pa.types.is_null(kind):  # null: no row has bytes
            raise DataError(f"{path}: column {name!r} has bytes of type {_kind(kind)}; expected binary. Convert it.")
    return name


class _Kept:
    """Sounds that were in Parquet, as files; equal bytes are one sound a split."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[str, FileNames] = {}
        self._known: dict[tuple[str, bytes], str] = {}

    def keep(self, split: str, sound: Mapping[str, Any] | None, once: bool = True) -> str:
        """The path below the root, or nothing where there are no bytes."""
        data = (sound or {}).get("bytes")
        if not data:
            return ""
        key = (split, hashlib.sha256(data).digest())
        if once and key in self._known:
            return self._known[key]
        folder = self.root / split
        folder.mkdir(parents=True, exist_ok=True)
        path = f"{split}/{self._name(split, text_of((sound or {}).get('path')), data)}"
        (self.root / path).write_bytes(data)
        self._known[key] = path
        return path

    def _name(self, split: str, path: str, data: bytes) -> str:
        """A name of one part that any disk takes: the one that was given, else a number."""
        names = self._names.setdefault(split, FileNames())
        name = path.replace("\\", "/").rpartition("/")[2]
        if name.startswith(".") or not name.isprintable() or not 0 < len(name.encode()) <= 200:
            name = f"{len(self._known) + 1:06d}"
        if "." not in name:
            name += ending_of(data)
        return names.unique(name)


def ending_of(data: bytes) -> str:
    """The usual ending of a sound file that begins so, or nothing."""
    marks = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg", b"ID3": ".mp3", b"\xff\xfb": ".mp3"}
    return next((ending for mark, ending in marks.items() if data.startswith(mark)), "")


def _shard(path: Path, folder: Path, text: str, kept: _Kept) -> _Part:
    """The rows of a shard; its sounds are written as files."""
    places = [path.stem, *reversed(path.relative_to(folder).parts[:-1])]
    split = next(filter(None, map(split_word, places)), "development")
    with _opened(path) as file:
        audio = _sound_column(path, file.schema_arrow)
        columns = _plain_columns(file.schema_arrow)
        others = {name: kind for name, kind in _other_columns(path).items() if name != audio}
        part = _Part(path, _text_column(path, columns, text, others), columns, False)
        for number, values in _records(file, path, [audio, *columns], part.problems, ROWS_AT_ONCE):
            sound = kept.keep(split, values.pop(audio))
            if not sound:
                what = f"{audio} holds no bytes; expected the sound itself. The row is left out."
                part.problems.append(Problem(f"{path} row {number}", what))
                continue
            part.lists |= isinstance(values.get(part.text), list)
            part.usable += _expanded(number, values, part, split, sound)
    return part


# What `export` wrote


def _own(folder: Path, root: Path, progress: Progress | None) -> Collection:
    """The collection of an exported folder, as it was; sounds of shards become files below `root/sounds`."""
    found = Collection.read(folder)
    shards = _regular(folder.glob("data/*-[0-9]*-of-[0-9]*.parquet"), found.problems)
    for shard in shards:
        refuse_pointer(shard)
    if not shards or any(clip.path for clip in found.clips):  # an audiofolder's sounds may be called like shards
        found.write(root)
    else:
        with writing_folder(root) as aside:
            kept = _Kept(aside / "sounds")
            paths: dict[str, str] = {}
            for done, shard in enumerate(shards, start=1):
                for clip_id, path in _sounds_of(shard, kept, found.problems):
                    paths[clip_id] = f"sounds/{path}"
                if progress is not None:
                    progress(done, len(shards))
            clips = [replace(clip, path=paths.get(clip.clip_id, "")) for clip in found.clips]
            write_tables(aside, clips, found.captions, found.ratings, guard=found.guarded)
            found.write_about(aside)
            copy_vectors(folder, aside)
    again = Collection.read(root)
    again.problems = found.problems
    return again


def _sounds_of(shard: Path, kept: _Kept, problems: list[Problem]) -> Iterator[tuple[str, str]]:
    """(clip, path of its sound) of a shard of ours."""
    with _opened(shard) as file:
        audio = _sound_column(shard, file.schema_arrow)
        check_columns(shard, _plain_columns(file.schema_arrow), ["clip_id"])
        for _, values in _records(file, shard, ["clip_id", audio], problems, ROWS_AT_ONCE):
            if path := kept.keep(shard.name.partition("-")[0], values[audio], once=False):
                yield text_of(values["clip_id"]), path


# What `export` needs as well


class FileNames:
    """Names of files in one folder, each once, also where upper and lower case are one."""

    def __init__(self) -> None:
        self._taken = set(METADATA)

    def unique(self, name: str) -> str:
        """The name, with a number where it is taken."""
        stem, dot, ending = name.rpartition(".")
        if not stem:
            stem, dot, ending = name, "", ""
        number = 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}{dot}{ending}"
        self._taken.add(name.casefold())
        return name


def pyarrow_module() -> Any:
    """The module `pyarrow`, with `pyarrow.parquet`. Raises `ConfigError` where it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(f"Parquet needs pyarrow ({error}). Install it: {install('parquet')}.") from error
    return pyarrow


def copy_vectors(source: Path, target: Path) -> None:
    """Copies a collection's files of vectors, where it has some."""
    for name in VECTOR_FILES:
        if is_file(source / name):
            shutil.copyfile(source / name, target / name)
