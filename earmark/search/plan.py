"""What is to be done so that an index tells again what is on the disk: which files are new, moved, changed, gone.

A file whose size and time of change are as they were is not opened. Of others the content decides (SHA-256), and it
is looked at only where a known file has that size: what has other bytes is read anew anyway.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from earmark.search.store import Known
from earmark.search.walk import Found, Walked

Content = Callable[[Path], str]
Progress = Callable[[str, int, int], None]
"""Told what is done, how many of it, of how many."""


class Task(NamedTuple):
    """A file to be read and embedded."""

    found: Found
    file_id: str
    """Its own, or a new one."""
    changed: bool
    """Whether rows of that id are there, to be replaced."""


class Taken(NamedTuple):
    """A file whose sound the index knows: its rows are those of another, or its own of an earlier date."""

    found: Found
    donor: str
    """The id of the file whose vectors it has."""
    file_id: str
    content: str
    changed: bool
    """Whether rows of that id are there, to be replaced."""
    came_from: Path | None = None
    """Where the file was, if it was moved."""
    reworded: bool = False
    """Whether nothing but its words are others: a table says something else, or a folder further up was told."""


@dataclass
class Plan:
    """What is to be done."""

    fresh: list[Task] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    removed: dict[Path, str] = field(default_factory=dict)
    """Ids of files that are not there any more, by path."""
    left_out: dict[Path, Known] = field(default_factory=dict)
    """What holds no sound, of all that is known by now."""
    unchanged: int = 0
    unseen: int = 0
    """Files of the index that were not looked at: elsewhere, or below a folder that cannot be listed."""


def plan(
    known: Mapping[Path, Known],
    walked: Walked,
    told: Sequence[Path],
    content_of: Content,
    progress: Progress | None = None,
) -> Plan:
    """What is to be done with the files that were found below what was told; others stay as they are."""
    made = Plan(left_out={path: each for path, each in known.items() if not each.file_id})
    gone = gone_of(known, walked, told)
    looked_at = gone.keys() | {each.path for each in walked.files}
    made.unseen = sum(bool(each.file_id) for path, each in known.items() if path not in looked_at)
    differing = []
    for each in walked.files:
        own = known.get(each.path)
        if own is None or not _is_same(own, each):
            differing.append(each)
        elif own.file_id and own.described != each.origin:
            made.taken.append(Taken(each, own.file_id, own.file_id, own.content, True, reworded=True))
        else:
            made.unchanged += bool(own.file_id)
    contents = _contents(differing, known, content_of, progress)
    alike = _Alike(known, gone, set(contents.values()))
    for found in differing:
        _decide(made, found, known.get(found.path), contents.get(found.path, ""), alike)
    for path, was in gone.items():
        made.left_out.pop(path, None)
        if was.file_id and path not in alike.moved:
            made.removed[path] = was.file_id
    return made


def gone_of(known: Mapping[Path, Known], walked: Walked, told: Sequence[Path]) -> dict[Path, Known]:
    """What is not there any more, of what was told."""
    there = {each.path for each in walked.files}
    return {
        path: each
        for path, each in known.items()
        if path not in there and is_below(path, told) and not is_below(path, walked.unknown)
    }


def _is_same(known: Known, found: Found) -> bool:
    """Whether its sound is as it was; what could not even be opened is tried again."""
    return known.stamp == found.stamp and bool(known.content)


def is_below(path: Path, folders: Sequence[Path]) -> bool:
    """Whether the path is one of these, or below one."""
    return any(f"{path}/".startswith(f"{folder}/".replace("//", "/")) for folder in folders)


def _contents(
    files: Sequence[Found], known: Mapping[Path, Known], content_of: Content, progress: Progress | None
) -> dict[Path, str]:
    """The contents of those files whose sizes are known."""
    sizes = {each.stamp.size for each in known.values() if each.content}
    looked = [each.path for each in files if each.stamp.size in sizes]

    def content(path: Path) -> str:
        try:
            return content_of(path) if path.is_file() else ""  # a pipe would never end
        except OSError:  # it is told when the file is read
            return ""

    contents: dict[Path, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (path, found) in enumerate(zip(looked, pool.map(content, looked), strict=True), start=1):
            if found:
                contents[path] = found
            if progress:
                progress("comparing contents", done, len(looked))
    return contents


class _Alike:
    """Known files by content."""

    def __init__(self, known: Mapping[Path, Known], gone: Mapping[Path, Known], contents: set[str]) -> None:
        self.by_content: dict[str, list[Known]] = defaultdict(list)
        self.was = gone
        """Files that are not where they were, by path."""
        self.waiting: dict[str, list[Path]] = defaultdict(list)
        """Of these the paths that no file has been found for yet, by content."""
        self.moved: set[Path] = set()
        """Paths of files that are elsewhere now."""
        for path, each in known.items():
            if each.content in contents:
                self.by_content[each.content].append(each)
                if path in gone and each.file_id:
                    self.waiting[each.content].append(path)

    def where_it_was(self, path: Path, content: str) -> Path | None:
        """A path that is gone and had this content, one of the same name before others."""
        waiting = self.waiting.get(content, [])
        if not waiting:
            return None
        same = [each for each in waiting if each.name == path.name]
        best = (same or waiting)[0]
        waiting.remove(best)
        self.moved.add(best)
        return best


def _decide(made: Plan, found: Found, own: Known | None, content: str, alike: _Alike) -> None:
    """Puts a file that is new or of another date where it belongs."""
    own_id = own.file_id if own else ""
    others = alike.by_content.get(content, []) if content else []
    donor = next((each for each in others if each.file_id), None)
    if own is not None and own_id and own.content == content:
        made.taken.append(Taken(found, own_id, own_id, content, True))
    elif donor is not None:
        came = None if own_id else alike.where_it_was(found.path, content)
        moved = alike.was[came].file_id if came is not None else ""
        file_id = own_id or moved or uuid.uuid4().hex
        made.taken.append(Taken(found, moved or donor.file_id, file_id, content, bool(own_id or moved), came))
        made.left_out.pop(found.path, None)
    elif others:
        made.left_out[found.path] = Known("", found.stamp, content, others[0].reason)
        if own_id:
            made.removed[found.path] = own_id
    else:
        made.fresh.append(Task(found, own_id or uuid.uuid4().hex, bool(own_id)))
