"""Clotho v2.1 with the graded relevances of GrRel, from their publishers or from files of their published names.

The two publications are joined by split and file name, their captions by the place within the clip. With GrRel
`clip_id` is its `fid` and `caption_id` its `tid`; without, `split/name` and `split/name#k`, k from 1. Parts may be
missing; those that are there must have the published counts (Table 1 of the paper). Where a caption's text differs
between the publications Clotho's is kept, and GrRel's stands beside it in the column `text_grrel`. A clip's length by
the metadata, which give it for two thirds of the clips, is the column `duration_s` in seconds.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from earmark.data.collection import Caption, Clip, Collection, relative_path
from earmark.data.fetch import Remote, alone, fetch, is_whole, unpack
from earmark.data.rows import rating_fault, write_tables
from earmark.data.splits import SPLITS
from earmark.errors import DataError, Problem
from earmark.files import LOCK, Row, opened, read_table
from earmark.relevance import Rating

CAPTIONS_PER_CLIP = 5
CLIPS_PER_LIST = 17
RATE = 44_100
"""Hz: in what `start_end_samples` counts the part of a recording that a clip is."""


class Counts(NamedTuple):
    """How many of each a split has."""

    clips: int
    rated_clips: int
    rated_captions: int


PUBLISHED: Mapping[str, Counts] = {
    "development": Counts(3839, 2186, 200),
    "validation": Counts(1045, 1004, 200),
    "evaluation": Counts(1045, 1009, 200),
}
"""Table 1 of the paper."""

PARTS: Mapping[str, tuple[str, tuple[str, str, str]]] = {
    "captions": (
        "clotho_captions_{}.csv",
        ("d4090b39ce9f2491908eebf4d5b09bae", "5879e023032b22a2c930aaa0528bead4", "1b16b9e57cf7bdb7f13a13802aeb57e2"),
    ),
    "metadata": (
        "clotho_metadata_{}.csv",
        ("170d20935ecfdf161ce1bb154118cda5", "2e010427c56b1ce6008b0f03f41048ce", "13946f054d4e1bf48079813aac61bf77"),
    ),
    "relevances": (
        "{}_relevances.csv",
        ("6953cd96c459662544db93f852bad8b0", "dacdc6b9606d7ab987a35690ca51d6dd", "5c5a4c444f8583e07e24248c6d80e6fd"),
    ),
    "queries": (
        "{}_queries.csv",
        ("50dfc86858dd1b7df192ec20e526cb98", "6c3c97ef9e2fb9cf925a6992edc5f39c", "6ad3192beef6df8365fad9944b92cabe"),
    ),
    "text": (
        "{}_text.csv",
        ("26cab546a2a89df91a3d59ecacb470a4", "40397c4731e17ce165f3384531d099f8", "8f4b7884016a13728677ef3f226a7c11"),
    ),
    "audio_metadata": (
        "{}_audio_metadata.csv",
        ("d42b1f89f04407eba011a5ce023396c3", "aef183fbe7629743ca16d06ef5eb76e5", "e1382bde33add72a404c3087f7f9faae"),
    ),
}
"""The published tables: name with the split's place, md5 of the three splits."""

SOUNDS: tuple[str, tuple[str, str, str]] = (
    "clotho_audio_{}.7z",
    ("c8b05bc7acdb13895bb3c6a29608667e", "7dba730be08bada48bd15dc4e668df59", "4569624ccadf96223f19cb59fe4f849f"),
)
"""The published archives of sounds, in the same form; each unpacks to a folder of its split's name."""

_ZENODO = "https://zenodo.org/record/4783391/files/{}?download=1"
_GITHUB = (
    "https://raw.githubusercontent.com/xieh97/retrieval-relevance-crowdsourcing/"
    "6b7dbbedd862a90ca0e9702c64442b0e0ad3737a/data/"
)
_ADDRESSES: Mapping[str, str] = {
    "captions": _ZENODO,
    "metadata": _ZENODO,
    "relevances": _GITHUB + "relevance_data/{}",
    "queries": _GITHUB + "query_data/{}",
    "text": _GITHUB + "text_data/{}",
    "audio_metadata": _GITHUB + "audio_metadata/{}",
}

DOWNLOADS = "published"
"""The folder in a fetched collection that holds what was fetched."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "captions": ("file_name", *(f"caption_{k}" for k in range(1, CAPTIONS_PER_CLIP + 1))),
    "metadata": ("file_name", "keywords", "sound_id", "license"),
    "relevances": ("tid", "fid", "fid_group", "rating"),
    "queries": ("tid", "fid_TN", "fid_TP", "fid_C15"),
    "text": ("tid", "fid", "text"),
    "audio_metadata": ("fid", "file_name"),
}


class Differing(NamedTuple):
    """A caption whose text is not the same in the two publications."""

    split: str
    caption_id: str
    clotho: str
    grrel: str
    rated: bool


class Table1Row(NamedTuple):
    """One row of the paper's Table 1: (clips, captions) of each split, None where a part is missing."""

    name: str
    relevance: str
    counts: Mapping[str, tuple[int, int] | None]

    def cells(self) -> list[str]:
        """The row as texts: name, relevance, `clips / captions` of each split, — where a part is missing."""
        pairs = [self.counts[split] for split in SPLITS]
        return [self.name, self.relevance, *(f"{pair[0]} / {pair[1]}" if pair else "—" for pair in pairs)]


@dataclass
class Report:
    """What was found and what was not, beside the collection."""

    missing: list[str] = field(default_factory=list)
    """Parts that are not there, in words: no fault."""
    problems: list[Problem] = field(default_factory=list)
    """Files that are not the published ones, names without a partner."""
    differing: list[Differing] = field(default_factory=list)
    table: list[Table1Row] = field(default_factory=list)
    sounds: dict[str, int] = field(default_factory=dict)
    """How many sound files each split has."""


def published(sounds: bool = True, mirror: str = "") -> list[Remote]:
    """The published files, archives of sounds last; at their publishers, or directly below the address `mirror`."""
    listed = [(*PARTS[part], address) for part, address in _ADDRESSES.items()]
    if sounds:
        listed.append((*SOUNDS, _ZENODO))
    return [
        Remote(name, f"{mirror.rstrip('/')}/{name}" if mirror else address.format(name), md5)
        for pattern, sums, address in listed
        for name, md5 in zip(map(pattern.format, SPLITS), sums, strict=True)
    ]


def from_publishers(
    root: Path | str,
    *,
    files: Sequence[Remote] | None = None,
    expected: Mapping[str, Counts] = PUBLISHED,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Collection, Report]:
    """The collection of `files` (all that is `published()` where it is None), fetched into `root/published`.

    A run that was ended is gone on with by the next. `progress` is told (what, files or MB done, in all). Raises
    `DataError` where `root` holds anything else, a file cannot be had (the others are kept), or as `from_folder`.
    """
    root = Path(root)
    _check_begun(root)
    place = root / DOWNLOADS
    try:
        with alone(place):
            _check_begun(root)  # another process may have ended just now
            _fetch_all(place, published() if files is None else files, progress or (lambda what, done, all_: None))
            found, report = _collect(place, root, expected)
            _write_beside(found)
    finally:
        with suppress(OSError):  # it is not empty
            root.rmdir()
    return found, report


def _check_begun(root: Path) -> None:
    """Raises `DataError` where there is anything but what a run of `from_publishers` leaves that was ended."""
    names = {path.name for path in root.iterdir()} if root.is_dir() else {""} if root.exists() else set()
    begun = (root / DOWNLOADS / LOCK).exists() and "clips.csv" not in names
    if names - ({DOWNLOADS, _ASIDE, *_TABLES} if begun else set()):
        raise DataError(f"{root}: is there already; expected nothing or an empty folder. Delete it, or name another.")


_ASIDE = ".tables.part"
_TABLES = ("captions.csv", "ratings.csv", "collection.toml", "clips.csv")


def _write_beside(found: Collection) -> None:
    """Writes the collection into its folder, beside what was fetched; `clips.csv` last, which makes it one."""
    aside = found.root / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    write_tables(aside, found.clips, found.captions, found.ratings)
    found.write_about(aside)
    for name in _TABLES:
        if (aside / name).exists():
            (aside / name).replace(found.root / name)
    aside.rmdir()


def _fetch_all(place: Path, files: Sequence[Remote], progress: Callable[[str, int, int], None]) -> None:
    """Every table, then every archive's folder; the archive itself is deleted when that is whole."""
    archives = [remote for remote in files if remote.name.endswith(".7z")]
    tables = [remote for remote in files if remote not in archives]
    for done, remote in enumerate(tables):
        progress("fetching tables", done, len(tables))
        fetch(remote, place)
    for remote in archives:
        folder = place / Path(remote.name).stem.rpartition("_")[2]
        if not is_whole(folder, remote.md5):
            archive = fetch(remote, place, progress=_megabytes(progress, f"fetching {remote.name}, MB"))
            unpack(archive, folder, remote.md5, progress=_megabytes(progress, f"unpacking {remote.name}, MB"))
        (place / remote.name).unlink(missing_ok=True)


def _megabytes(progress: Callable[[str, int, int], None], what: str) -> Callable[[int, int], None]:
    return lambda done, all_: progress(what, done // 10**6, -(-all_ // 10**6))


def from_folder(
    source: Path | str, root: Path | str, *, expected: Mapping[str, Counts] = PUBLISHED
) -> tuple[Collection, Report]:
    """The collection of what lies anywhere below `source`, written to `root`, and the report on it.

    Raises `DataError`, with nothing written, where there is neither Clotho's captions nor GrRel's text, where a part
    that is there has other counts than `expected`, or where `root` holds something already.
    """
    source, root = Path(source), Path(root)
    if not source.is_dir():
        raise DataError(f"{source}: not a folder; expected the one with the files of Clotho and GrRel.")
    if root.exists() and not (root.is_dir() and not any(root.iterdir())):
        raise DataError(f"{root}: is there already; expected nothing or an empty folder. Delete it, or name another.")
    found, report = _collect(source, root, expected)
    found.write()
    return found, report


def _collect(source: Path, root: Path, expected: Mapping[str, Counts]) -> tuple[Collection, Report]:
    """The collection in `root`, not yet written, of what lies below `source`, and the report on it."""
    files, folders = _walk(source)
    report = Report()
    licence = "sounds: see the column licence; captions: Clotho's licence, for research; ratings: MIT"
    found = Collection(root, [], [], name="clotho", about={"licence": licence})
    for at, split in enumerate(SPLITS):
        tables = _Tables(split, files, at, report)
        if not ("captions" in tables.present or {"text", "audio_metadata"} <= tables.present):
            report.missing.append(f"{split}: everything (without clotho_captions_{split}.csv there are no captions)")
            continue
        tables.check_counts(expected[split])
        sounds = _find_sounds(split, folders.get(split, []), tables.names(), files, report)
        _take_split(found, tables, sounds, report)
    if not found.clips:
        raise DataError(
            f"{source}: no clotho_captions_development.csv or other published name below it; expected the files of "
            "Clotho v2.1 (Zenodo 4783391). Check the folder."
        )
    report.table = table_1(found)
    _check_table_1(report.table, expected)
    found.problems = list(report.problems)
    return found, report


def table_1(collection: Collection) -> list[Table1Row]:
    """The rows of the paper's Table 1, counted on a collection.

    GrRel and BiRel are the rated pairs; SuperBiRel their clips, each with one of its captions; Clotho everything.
    """
    rated: dict[str, tuple[int, int] | None] = dict.fromkeys(SPLITS)
    every: dict[str, tuple[int, int] | None] = dict.fromkeys(SPLITS)
    for split in collection.splits:
        if split not in SPLITS:
            continue
        every[split] = (len(collection.gallery(split)), len(collection.captions_of(split)))
        if ratings := collection.rated(split):
            rated[split] = (len({r.clip_id for r in ratings}), len({r.caption_id for r in ratings}))
    single = {split: pair and (pair[0], pair[0]) for split, pair in rated.items()}
    return [
        Table1Row("GrRel", "graded", rated),
        Table1Row("BiRel", "binary", rated),
        Table1Row("SuperBiRel", "binary", single),
        Table1Row("Clotho", "binary", every),
    ]


def _check_table_1(table: Sequence[Table1Row], expected: Mapping[str, Counts]) -> None:
    grrel = next(row for row in table if row.name == "GrRel")
    for split, pair in grrel.counts.items():
        wanted = expected[split]
        if pair is not None and pair != (wanted.rated_clips, wanted.rated_captions):
            raise DataError(
                f"GrRel, {split}: {pair[0]} rated clips and {pair[1]} rated captions; expected {wanted.rated_clips} "
                f"and {wanted.rated_captions}. Fetch {split}_relevances.csv again."
            )


class _Tables:
    """The published tables of one split: the rows of each, none where it is missing."""

    def __init__(self, split: str, files: Mapping[str, Sequence[Path]], at: int, report: Report) -> None:
        self.split = split
        self.rows: dict[str, list[Row]] = {}
        self.faults: dict[str, list[Problem]] = {}
        self.present: set[str] = set()
        for part, (pattern, sums) in PARTS.items():
            name = pattern.format(split)
            self.rows[part], self.faults[part] = [], []
            if name not in files:
                report.missing.append(f"{split}: {name}")
                continue
            path, published = _choose(files[name], sums[at])
            if not published:
                report.problems.append(Problem(str(path), f"md5 is not the published {sums[at]}. Fetch it again."))
            self.present.add(part)
            encoding = "iso-8859-1" if part == "metadata" else ""
            _, self.rows[part], self.faults[part] = read_table(path, _NEEDED[part], encoding=encoding)
            report.problems += self.faults[part]

    def check_counts(self, expected: Counts) -> None:
        """Raises `DataError` where a table that is there has another number of rows than the published one."""
        wanted = {
            "captions": expected.clips,
            "metadata": expected.clips,
            "audio_metadata": expected.clips,
            "text": expected.clips * CAPTIONS_PER_CLIP,
            "queries": expected.rated_captions,
            "relevances": expected.rated_captions * CLIPS_PER_LIST,
        }
        for part, number in wanted.items():
            if part in self.present and len(self.rows[part]) != number:
                cause = f" ({self.faults[part][0]})" if self.faults[part] else ""
                raise DataError(
                    f"{PARTS[part][0].format(self.split)}: {len(self.rows[part])} rows{cause}; expected {number} for "
                    f"{self.split}. Fetch it again."
                )

    def names(self) -> list[str]:
        """The clips' file names, in the order of Clotho's captions, which is that of GrRel's text too."""
        if self.rows["captions"]:
            return [row.cells["file_name"] for row in self.rows["captions"]]
        name_of = {fid: name for name, fid in self.fids().items()}
        told = [name_of[fid] for fid in self.texts() if fid in name_of]
        return list(dict.fromkeys([*told, *self.fids()]))

    def fids(self) -> dict[str, str]:
        """GrRel's id of each file name."""
        return {row.cells["file_name"]: row.cells["fid"] for row in self.rows["audio_metadata"]}

    def texts(self) -> dict[str, list[Row]]:
        """GrRel's captions of each clip, in order, by `fid`."""
        found: dict[str, list[Row]] = {}
        for row in self.rows["text"]:
            found.setdefault(row.cells["fid"], []).append(row)
        return found


def _take_split(found: Collection, tables: _Tables, sounds: Mapping[str, Path], report: Report) -> None:
    """Adds the split's clips, captions and ratings to the collection."""
    split, fids, texts = tables.split, tables.fids(), tables.texts()
    described = {row.cells["file_name"]: row.cells for row in tables.rows["metadata"] or tables.rows["audio_metadata"]}
    clotho = {row.cells["file_name"]: row.cells for row in tables.rows["captions"]}
    if len(clotho) < len(tables.rows["captions"]):
        raise DataError(f"clotho_captions_{split}.csv: a file name stands twice; expected each once. Fetch it again.")
    asked = {row.cells["tid"] for row in tables.rows["relevances"]}
    for name in tables.names():
        fid = fids.get(name)
        if fids and fid is None:
            report.problems.append(Problem(f"{split}_audio_metadata.csv", f"no fid for {name!r}; its ids are names."))
        path = relative_path(sounds[name], found.root) if name in sounds else ""
        cells = described.get(name, {})
        more = {key: cells.get(key, "") for key in ("keywords", "sound_id")} | {"licence": cells.get("license", "")}
        more["duration_s"] = _duration(cells.get("start_end_samples", ""))
        clip = Clip(fid or f"{split}/{name}", path, split, "", {"file_name": name, **more})
        published = texts.get(fid, []) if fid else []
        own = [clotho[name][f"caption_{k}"] for k in range(1, CAPTIONS_PER_CLIP + 1)] if clotho else None
        captions = _captions(clip, own, published)
        found.clips.append(clip)
        found.captions += captions
        report.differing += [
            Differing(split, caption.caption_id, caption.text, other, caption.caption_id in asked)
            for caption in captions
            if (other := caption.more["text_grrel"])
        ]
    _take_ratings(found, tables, report)


def _duration(cell: str) -> str:
    """The seconds between the two samples of a cell such as `[139264, 1293089]`, empty where it is none such."""
    match = re.fullmatch(r"\[([0-9]{1,15}), *([0-9]{1,15})\]", cell.strip())
    samples = int(match[2]) - int(match[1]) if match else 0
    return f"{samples / RATE:.3f}" if samples > 0 else ""


def _captions(clip: Clip, clotho: Sequence[str] | None, grrel: Sequence[Row]) -> list[Caption]:
    """The clip's captions; `clotho` are Clotho's texts if there, `grrel` the rows of GrRel's text if there."""
    texts = [row.cells["text"] for row in grrel] if clotho is None else clotho
    joined = len(grrel) == len(texts)
    captions = []
    for place, text in enumerate(texts):
        caption_id = grrel[place].cells["tid"] if joined else f"{clip.clip_id}#{place + 1}"
        other = grrel[place].cells["text"] if joined else text
        tokens = grrel[place].cells.get("tokens", "") if joined else ""
        more = {"text_grrel": other if other != text else "", "tokens": tokens}
        captions.append(Caption(caption_id, clip.clip_id, text, more))
    return captions


def _take_ratings(found: Collection, tables: _Tables, report: Report) -> None:
    """Adds the split's ratings, and compares them with the published queries."""
    split, rows = tables.split, tables.rows["relevances"]
    file = f"{split}_relevances.csv"
    if rows and not (tables.rows["text"] and tables.rows["audio_metadata"]):
        report.missing.append(f"{split}: ratings, which need {split}_text.csv and {split}_audio_metadata.csv too")
        return
    captions, clips = {c.caption_id for c in found.captions}, {c.clip_id for c in found.clips}
    ratings = []
    for row in rows:
        cells = row.cells
        unknown = [key for key, ids in (("tid", captions), ("fid", clips)) if cells[key] not in ids]
        what = f"{unknown[0]} {cells[unknown[0]]!r} is in no other file." if unknown else rating_fault(cells)
        if what:
            report.problems.append(Problem(f"{file} line {row.line}", f"{what} The row is left out."))
        else:
            ratings.append(Rating(cells["tid"], cells["fid"], float(cells["rating"]), cells["fid_group"]))
    found.ratings += ratings
    if rows:
        report.problems += _against_queries(split, tables.rows["queries"], ratings)
    elif tables.rows["queries"]:
        report.missing.append(f"{split}: ratings; {split}_queries.csv names the pairs but not what people said")


def _against_queries(split: str, queries: Iterable[Row], ratings: Iterable[Rating]) -> list[Problem]:
    """Lists whose clips or groups are not those of the published queries."""
    rated: dict[str, set[tuple[str, str]]] = {}
    for rating in ratings:
        rated.setdefault(rating.caption_id, set()).add((rating.clip_id, rating.group))
    problems = []
    for line, cells in queries:
        try:
            similar = [str(fid) for fid in ast.literal_eval(cells["fid_C15"])]
        except (ValueError, SyntaxError, TypeError):
            similar = []
        wanted = {(cells["fid_TP"], "TP"), (cells["fid_TN"], "TN"), *((fid, "C15") for fid in similar)}
        if rated.get(cells["tid"], set()) != wanted:
            what = f"the list of {cells['tid']!r} holds other clips or groups than {split}_relevances.csv."
            problems.append(Problem(f"{split}_queries.csv line {line}", what))
    return problems


def _walk(source: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Every file by name, and every folder by name; links are followed, each folder once."""
    files: dict[str, list[Path]] = {}
    folders: dict[str, list[Path]] = {}
    seen: set[str] = set()
    for place, below, names in os.walk(source, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below.sort()
        folders.setdefault(Path(place).name, []).append(Path(place))
        for name in names:
            files.setdefault(name, []).append(Path(place) / name)
    return files, folders


def _choose(paths: Sequence[Path], md5: str) -> tuple[Path, bool]:
    """The first of the files that is the published one, and that it is; else the first, and that it is not."""
    for path in paths:
        with opened(path) as file:
            if hashlib.file_digest(file, "md5").hexdigest() == md5:
                return path, True
    return paths[0], False


def _find_sounds(
    split: str,
    folders: Sequence[Path],
    names: Sequence[str],
    files: Mapping[str, Sequence[Path]],
    report: Report,
) -> dict[str, Path]:
    """The sound file of each name, in the folder of the split's name that has most of them (NFC and NFD are one)."""
    found: dict[str, Path] = {}
    for folder in folders:
        there = {unicodedata.normalize("NFC", file): file for file in os.listdir(folder)}  # noqa: PTH208  (names)
        matched = {name: folder / there[key] for name in names if (key := unicodedata.normalize("NFC", name)) in there}
        found = max(found, matched, key=len)
    report.sounds[split] = len(found)
    archive = f"clotho_audio_{split}.7z"
    if not found:
        hint = "there, but not unpacked" if archive in files else "not there"
        report.missing.append(f"{split}: sounds (a folder {split}/; {archive} is {hint}); every path is empty")
    elif len(found) < len(names):
        first = next(name for name in names if name not in found)
        what = f"{len(found)} of {len(names)} sounds; the others have no path, {first!r} first."
        report.missing.append(f"{split}: {what}")
    return found
