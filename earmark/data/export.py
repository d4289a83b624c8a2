"""A collection → a Hugging Face data set: an audiofolder, or Parquet with the sounds inside, with its card.

`datasets.load_dataset(FOLDER)` reads it: a row a clip with the columns `audio`, `clip_id`, `captions` and `caption_ids`
(lists), `group` and the clip's other columns, as texts. The collection's own tables stand beside it, so that nothing
is lost: an exported audiofolder is a collection still, and `audiofolder.import_folder` gives back either form's clips,
captions, ratings, splits and columns.

    audiofolder             parquet
    README.md               README.md                 the card
    train/metadata.parquet  data/train-00000-of-00001.parquet
    train/rain.wav          ratings.parquet           where people rated: the config `ratings`
    clips.csv, …            clips.csv, …              the collection's tables and vectors

`metadata.parquet`, not `.csv` or `.jsonl`: it says that all is text. pandas would read the id `0012` as 12, the caption
`None` as missing; JSON lets a column of dates, or of empty lists, be of another type in one split, which `datasets`
refuses. Splits bear the hub's names: development is `train`, evaluation `test`, `S-lists` `S_lists`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from earmark.data.audiofolder import METADATA, FileNames, copy_vectors, ending_of, pyarrow_module
from earmark.data.check import Progress, is_file
from earmark.data.collection import LISTS, Clip, Collection
from earmark.data.rows import RATING_COLUMNS, write_tables
from earmark.errors import ConfigError, DataError, Problem
from earmark.files import write_text, writing_folder
from earmark.relevance import Rating

if TYPE_CHECKING:
    import pyarrow

FORMS = ("audiofolder", "parquet")
OWN_COLUMNS = ("audio", "clip_id", "captions", "caption_ids", "group")
HUB_SPLITS = {"development": "train", "evaluation": "test"}
SHARD_BYTES = 256 << 20
"""Of sound in a Parquet file, or one sound more."""
GROUP_BYTES = 16 << 20
"""Of sound in a row group, which is held in memory, or one sound more."""
LONGEST_BYTES = (1 << 31) - 1
"""Of one sound: a cell of Parquet holds no more."""
LICENCES = "apache-2.0 mit cc0-1.0 cc-by-2.0 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-3.0 cc-by-nc-4.0"
"""Those that the hub knows by these names; another is `other` there, and stands in the card's text."""


class Exported(NamedTuple):
    """What was written."""

    rows: dict[str, int]
    """Clips with a sound by the hub's name of their split."""
    files: int
    """Sounds, or shards."""
    problems: list[Problem]


class _Entry(NamedTuple):
    """A clip that goes into the data set."""

    clip: Clip
    name: str
    """Its sound's, each once a split."""
    source: Path


def export(
    collection: Collection, out: Path | str, form: str, *, progress: Progress | None = None, shard_bytes: int = 0
) -> Exported:
    """The counts of what was written to the new folder `out`, whole or not at all; see the module.

    In an audiofolder sounds are hard links where the disk allows, else copies. Clips without a sound stay in the
    tables alone and are told in one problem. `progress` is told (clips done, clips in all). Raises `ConfigError` for
    another form, `DataError` where no clip has a sound or `out` is there already.
    """
    if form not in FORMS:
        raise ConfigError(f"--as {form}; expected {' or '.join(FORMS)}.")
    entries, problems = _entries(collection)
    if not any(entries.values()):
        raise DataError(f"{collection.root}: none of {len(collection.clips)} clips has a sound; nothing to export.")
    tell = _Told(progress, sum(map(len, entries.values())))
    with writing_folder(Path(out)) as aside:
        placed: dict[str, str] = {}
        files = 0
        for split, members in entries.items():
            if form == "audiofolder":
                placed |= _write_split(aside, split, members, collection, tell)
                files += len(members)
            else:
                files += _write_shards(aside, split, members, collection, tell, shard_bytes or SHARD_BYTES)
        if form == "parquet" and collection.ratings:
            _write_ratings(aside / "ratings.parquet", collection.ratings)
        clips = [replace(clip, path=placed.get(clip.clip_id, "")) for clip in collection.clips]
        write_tables(aside, clips, collection.captions, collection.ratings, guard=collection.guarded)
        collection.write_about(aside)
        copy_vectors(collection.root, aside)
        rows = {split: len(members) for split, members in entries.items()}
        write_text(aside / "README.md", _card(collection, form, rows))
    return Exported(rows, files, problems)


def _entries(collection: Collection) -> tuple[dict[str, list[_Entry]], list[Problem]]:
    """The clips with a sound by the hub's split, each sound under a name of its own there."""
    found: dict[str, list[_Entry]] = {}
    splits: dict[str, str] = {}
    taken: dict[str, FileNames] = {}
    without = []
    for clip in collection.clips:
        source = collection.audio_path(clip) if clip.path else None
        if source is None or not is_file(source) or source.stat().st_size > LONGEST_BYTES:
            without.append(clip)
            continue
        split = hub_split(clip.split)
        if splits.setdefault(split, clip.split) != clip.split:
            both = f"{splits[split]!r} and {clip.split!r}"
            raise DataError(f"{collection.root}: splits {both} would both be {split!r} on the hub. Rename one of them.")
        name = taken.setdefault(split, FileNames()).unique(_sound_name(source))
        found.setdefault(split, []).append(_Entry(clip, name, source))
    problems = []
    if without:
        what = f"{len(without):,} of {len(collection.clips):,} clips have no sound file (or one of over 2 GB)"
        where = collection.where("clips.csv", without[0].clip_id)
        problems.append(Problem(where, f"{what}; they stand in the tables alone."))
    return found, problems


def _sound_name(source: Path) -> str:
    """The file's name; with a sound's ending where it is one by which the hub and `import_folder` know tables."""
    name = source.name
    if name.casefold() not in METADATA and not name.casefold().endswith(".parquet"):
        return name
    with source.open("rb") as file:
        return name + (ending_of(file.read(4)) or ".sound")


def hub_split(split: str) -> str:
    """The hub's name of a split, of letters, digits and `_`."""
    name = split.removesuffix(LISTS)
    lists = "_lists" if name != split else ""
    return re.sub(r"\W+", "_", HUB_SPLITS.get(name, name)) + lists


class _Told:
    """Progress over all splits."""

    def __init__(self, progress: Progress | None, all_: int) -> None:
        self._progress, self._done, self._all = progress, 0, all_

    def more(self, clips: int = 1) -> None:
        """Tells that so many more are done."""
        self._done += clips
        if self._progress is not None:
            self._progress(self._done, self._all)


def _rows(entries: Iterable[_Entry], collection: Collection) -> Iterator[tuple[_Entry, dict[str, Any]]]:
    """Each entry with its row, all but the sound; a row has the same columns everywhere."""
    bearing: dict[str, tuple[list[str], list[str]]] = {}
    for caption in collection.captions:
        texts, ids = bearing.setdefault(caption.clip_id, ([], []))
        texts.append(caption.text)
        ids.append(caption.caption_id)
    columns = _more_columns(collection)
    for entry in entries:
        clip = entry.clip
        texts, ids = bearing.get(clip.clip_id, ([], []))
        row = {"clip_id": clip.clip_id, "captions": texts, "caption_ids": ids, "group": clip.group}
        yield entry, row | {name: clip.more.get(column, "") for column, name in columns.items()}


def _more_columns(collection: Collection) -> dict[str, str]:
    """The clips' other columns, and what each is called, once: `…file_name` would name a sound to the hub."""
    columns = dict.fromkeys(column for clip in collection.clips for column in clip.more)
    ours = {*OWN_COLUMNS, "split"}
    names = {column: column for column in columns if "file_name" not in column and column not in ours}
    for column in columns:
        if column not in names:
            name = column.replace("file_name", "filename")
            while name in ours or name in names.values():
                name = f"clip_{name}"
            names[column] = name
    return {column: names[column] for column in columns}


def _write_split(
    aside: Path, split: str, entries: Sequence[_Entry], collection: Collection, tell: _Told
) -> dict[str, str]:
    """Writes a folder of sounds and its `metadata.parquet`; gives the paths by clip."""
    pa = pyarrow_module()
    folder = aside / split
    folder.mkdir()
    for entry in entries:
        _link(entry.source, folder / entry.name)
        tell.more()
    rows = [{"file_name": entry.name, **row} for entry, row in _rows(entries, collection)]
    schema = _schema(pa, ("file_name", pa.string()), _more_columns(collection))
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "metadata.parquet")
    return {entry.clip.clip_id: f"{split}/{entry.name}" for entry in entries}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


# Parquet out


def _write_shards(
    aside: Path, split: str, entries: Sequence[_Entry], collection: Collection, tell: _Told, shard_bytes: int
) -> int:
    """Writes `data/SPLIT-….parquet`, as many as the bytes ask for; gives their number."""
    pa = pyarrow_module()
    sound = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = _schema(pa, ("audio", sound), _more_columns(collection))
    (aside / "data").mkdir(exist_ok=True)
    shards = _parted(entries, shard_bytes)
    rows = _rows(entries, collection)
    for number, shard in enumerate(shards):
        path = aside / "data" / f"{split}-{number:05d}-of-{len(shards):05d}.parquet"
        with pa.parquet.ParquetWriter(path, schema, use_dictionary=False, write_statistics=False) as writer:
            for group in _parted(shard, GROUP_BYTES):
                table = [_with_sound(*next(rows)) for _ in group]
                writer.write_table(pa.Table.from_pylist(table, schema=schema))
                tell.more(len(group))
    return len(shards)


def _parted(entries: Sequence[_Entry], most: int) -> list[list[_Entry]]:
    """The entries in parts of `most` bytes of sound, or one sound more."""
    parts: list[list[_Entry]] = []
    held = most
    for entry in entries:
        if held >= most:
            parts.append([])
            held = 0
        parts[-1].append(entry)
        held += entry.source.stat().st_size
    return parts


def _with_sound(entry: _Entry, row: dict[str, Any]) -> dict[str, Any]:
    return {"audio": {"bytes": entry.source.read_bytes(), "path": entry.name}, **row}


def _schema(pa: Any, sound: tuple[str, Any], more: Mapping[str, str]) -> pyarrow.Schema:
    """The columns, texts and lists of them; the hub's note makes `audio` a sound to `datasets`."""
    texts = pa.list_(pa.string())
    kinds = {"clip_id": pa.string(), "captions": texts, "caption_ids": texts, "group": pa.string()}
    note = json.dumps({"info": {"features": {"audio": {"_type": "Audio"}}}}) if sound[0] == "audio" else "{}"
    fields = [sound, *kinds.items(), *((name, pa.string()) for name in more.values())]
    return pa.schema(fields, metadata={"huggingface": note})


def _write_ratings(path: Path, ratings: Sequence[Rating]) -> None:
    """Writes the ratings, numbers as numbers, the other columns as texts."""
    pa = pyarrow_module()
    more = list(dict.fromkeys(column for rating in ratings for column in rating.more))
    numbers = ("rating", "played_s", "probability")
    fields = [(name, pa.float64() if name in numbers else pa.string()) for name in RATING_COLUMNS]
    rows = [{**{name: getattr(rating, name) for name in RATING_COLUMNS}, **rating.more} for rating in ratings]
    table = pa.Table.from_pylist(rows, schema=pa.schema([*fields, *((name, pa.string()) for name in more)]))
    pa.parquet.write_table(table, path)


# The card


def _card(collection: Collection, form: str, rows: Mapping[str, int]) -> str:
    """README.md: what the hub reads, then what people read."""
    counts = [
        f"| {split} | {len(collection.gallery(split)):,} | {len(collection.captions_of(split)):,} | "
        f"{len(collection.rated(split, anchors=True)):,} |"
        for split in collection.splits
    ]
    licence = " ".join(str(collection.about.get("licence", "")).split())
    kind = {"generated": "GENERATED sound", "proxy": "PROXY vectors in place of sound"}.get(collection.kind, "recorded")
    lines = [
        "---",
        *_front_matter(collection, form, rows, licence),
        "---",
        "",
        f"# {collection.name}",
        "",
        f"{kind[0].upper()}{kind[1:]}; {len(collection.clips):,} clips, {len(collection.captions):,} captions, "
        f"{len(collection.ratings):,} ratings. Licence: {licence or 'not stated'}.",
        "",
        "| split | clips | captions | ratings |",
        "|---|---|---|---|",
        *counts,
        "",
        "A row is a clip: `audio`, `clip_id`, `captions` and `caption_ids` (lists), `group` (equal values stay in one "
        "split), and the clip's other columns. Split `train` is development, `test` evaluation; `…_lists` are clips of "
        "rated lists alone. `ratings.csv` holds people's ratings, 0–100, a row a rater. "
        "With the other tables it makes the folder a collection of earmark: `earmark data import FOLDER DIR`.",
        "",
    ]
    return "\n".join(lines)


def _front_matter(collection: Collection, form: str, rows: Mapping[str, int], licence: str) -> Iterator[str]:
    """YAML; a text in JSON is one in YAML."""
    yield f"pretty_name: {json.dumps(collection.name, ensure_ascii=False)}"
    if licence:
        known = re.sub(r"\(.*?\)", "", licence).strip().lower()
        yield f"license: {known if known in LICENCES.split() else 'other'}"
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files:"
    for split in rows:
        path = f"{split}/*" if form == "audiofolder" else f"data/{split}-*"
        yield f"  - split: {json.dumps(split, ensure_ascii=False)}"  # bare, `no` and `123` would be no texts
        yield f"    path: {json.dumps(path, ensure_ascii=False)}"
    if form == "parquet" and collection.ratings:
        yield "- config_name: ratings"
        yield "  data_files: ratings.parquet"
