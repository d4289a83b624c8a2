"""`build`: an index is made, or brought up to date, by several processes.

First what needs no decoding (files that moved, copies, new dates), then what is gone, then what is new or changed.
Results are committed as they come, so a process that is killed loses its last seconds alone; vectors do not depend on
how many processes there are, or on how often one was killed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from earmark.audio.decode import shown
from earmark.errors import DataError, Problem
from earmark.search import described, opening
from earmark.search.plan import Plan, Progress, Task, gone_of, is_below, plan
from earmark.search.ranking import prepare
from earmark.search.reading import read_files
from earmark.search.store import (
    KEPT,
    Known,
    Store,
    WordsTable,
    as_text,
    from_text,
    in_one_line,
    read_about,
    write_about,
)
from earmark.search.walk import Walked, walk
from earmark.search.windows import Read, Unread, content_of, rows_for, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_S, COMMIT_FILES, COMMIT_WINDOWS = 20.0, 256, 4096
"""What is kept back at most: seconds of work, files, windows."""
TAKEN_AT_ONCE = 32
"""Files whose rows are read from the table at once."""
MANY = 20
"""Files below a folder that do not vanish without a word."""


@dataclass
class Built:
    """What came of it.

    unchanged + unseen + touched + reworded + changed + moved + removed are the files that were there, and with indexed
    and copies instead of removed those that are there.
    """

    index: Path
    model: str = ""
    files: int = 0
    """In the index now."""
    windows: int = 0
    """In the index now."""
    indexed: int = 0
    """New files that were embedded."""
    changed: int = 0
    """Files of other content than before: embedded anew, or their sound was known."""
    unchanged: int = 0
    unseen: int = 0
    """Files that were not looked at: elsewhere than what was told, or below a folder that cannot be listed."""
    copies: int = 0
    """New files whose sound was known."""
    touched: int = 0
    """Files of another date and the same content."""
    reworded: int = 0
    """Files that got other words: the table says something else, or a folder further up was told."""
    moved: list[tuple[str, str]] = field(default_factory=list)
    """From where, to where."""
    removed: list[str] = field(default_factory=list)
    """Taken out: what is gone, and what holds no sound any more (that is among `left_out` too)."""
    vanished: int = 0
    """New files that were listed, and gone when they were to be read."""
    heard_s: float = 0.0
    """Seconds of sound that were embedded."""
    left_out: list[Problem] = field(default_factory=list)
    """Below what was told, those of earlier runs too."""
    odd: list[Problem] = field(default_factory=list)
    """What was odd about sounds that were embedded."""
    passed: Counter[str] = field(default_factory=Counter)
    """As `Walked.passed`."""
    table: described.Table | None = None
    """Whose words count beside the files' own."""
    described: int = 0
    """Files of which it says something."""
    left_rows: list[Problem] = field(default_factory=list)
    """Its rows that say nothing, by line."""


def build(
    folders: Sequence[Path],
    to: Path,
    *,
    model: str = "",
    text: str = "",
    words: WordsTable | None = None,
    jobs: int = 0,
    follow_links: bool = False,
    rebuild: bool = False,
    prune: bool = False,
    wait_for_others: bool = False,
    progress: Progress | None = None,
    now: Callable[[str], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Built:
    """Brings the index `to` up to date with the files below these folders; none: those that it was made of.

    `model` is a run's folder or a model's name, empty: the index's own, or "yamnet" for a new one; `text` the sentence
    encoder beside it. `words` is a table that says something of the files (`described.words_table`), None: the one that
    the index remembers; `WordsTable()`: none from now on. `jobs` processes, 0: one a core (a script that asks for
    several needs its `if __name__ == "__main__"`). Links are followed from the first time on that `follow_links` is
    asked for. `rebuild` makes the index anew and then puts it in the old one's place. `progress` is told how far each
    step is, `now` how many hours of sound are embedded, `say` that it waits for another process.

    Raises `DataError` where a folder is not there, or holds nothing any more where many files were (unless `prune`),
    the table cannot be read or none of its rows means a file, the model is another than the index's, or another process
    is at work there (unless `wait_for_others`).
    """
    given = [Path(os.path.realpath(folder)) for folder in folders]
    for path in given:
        if not prune and not _exists(path):
            raise DataError(f"{shown(path)}: not there. Check the path.")
    table = described.read(words) if words and words.table else None
    if not given and not rebuild and not to.exists():
        raise DataError(f"{to}: no index there. Make one: `earmark index DIR --to {to}`.")
    with opening.alone(to, wait=wait_for_others, say=say):
        asked = Asked(to, jobs, follow_links, prune, words, table, progress, now)
        if not rebuild:
            opening.remove(to / opening.ANEW)
            return _brought_up_to_date(opening.opened(to, model, text, progress), given, asked)
        store = opening.opened_anew(to, model, text, progress)
        built = _brought_up_to_date(store, [*given, *map(from_text, store.about.folders)], asked)
        opening.put_in_place(to)
        return built


def forget(
    folders: Sequence[Path], index: Path, *, wait_for_others: bool = False, say: Callable[[str], None] | None = None
) -> Built:
    """Takes folders (or files) out of those that the index is made of, and the files below them out of it.

    What is below another folder that it is made of stays. Raises `DataError` where it is made of none of that name, or
    another process is at work there (unless `wait_for_others`).
    """
    read_about(index)
    with opening.alone(index, wait=wait_for_others, say=say):
        store = opening.opened(index, "", "")
        of = [from_text(each) for each in store.about.folders]
        named = [_named(folder, of, index) for folder in folders]
        kept = [each for each in of if each not in named]
        with in_one_line(index):
            known = store.known()
        out = {path for path in known if is_below(path, named) and not is_below(path, kept)}
        built = Built(index, store.about.model)
        left_out = {path: each for path, each in known.items() if not each.file_id and path not in out}
        with _Writer(store, store.known_left_out(), left_out) as writer:
            for path in sorted(out):
                if known[path].file_id:
                    writer.remove(known[path].file_id)
                    built.removed.append(shown(path))
        # only now: what is below a folder that is not remembered would never be looked at again
        store.about = replace(store.about, folders=list(map(as_text, kept)))
        write_about(index, store.about)
        with in_one_line(index):
            _finish(store, built)
        built.unseen = built.files
    return built


def _named(folder: Path, of: Sequence[Path], index: Path) -> Path:
    """Which of the folders that an index is made of is meant."""
    real = Path(os.path.realpath(folder))
    if real in of:
        return real
    above = next((each for each in of if is_below(real, [each])), None)
    there = f"it is part of {shown(above)}" if above else f"it has {', '.join(map(shown, of[:5])) or 'none'}"
    raise DataError(f"{index}: not made of {shown(real)}; {there}. Name a folder that was indexed.")


def _exists(path: Path) -> bool:
    """Whether something of that name is there, if only a link that leads nowhere."""
    return os.path.lexists(path)


class Asked(NamedTuple):
    """How a run goes about it."""

    to: Path
    jobs: int
    follow_links: bool
    prune: bool
    words: WordsTable | None
    table: described.Table | None
    """That of `words`."""
    progress: Progress | None
    now: Callable[[str], None] | None


def _brought_up_to_date(store: Store, given: Sequence[Path], asked: Asked) -> Built:
    table = _table(store, asked)
    with in_one_line(store.folder):
        known = store.known()
    told = list(dict.fromkeys(given or map(from_text, store.about.folders)))
    there = _there(told, known, asked)
    _remember(store, [*map(from_text, store.about.folders), *there], asked)
    stamps = {path: each.stamp for path, each in known.items() if each.file_id}
    leave = [Path(os.path.realpath(asked.to))]
    walked = walk(_outermost_first(there), leave=leave, follow_links=store.about.follow_links, known=stamps)
    _name_from_outermost(walked, map(from_text, store.about.folders))
    built = Built(asked.to, store.about.model, passed=walked.passed, table=table)
    built.left_out += walked.problems
    if table is not None:
        _describe(table, store, known, walked, told, built)
    todo = plan(known, walked, told, content_of, asked.progress)
    if not asked.prune:
        _check_not_emptied(there, walked, todo)
    built.unchanged, built.unseen = todo.unchanged, todo.unseen
    _remember_words(store, asked)
    with in_one_line(store.folder):
        writer = _Writer(store, store.known_left_out(), todo.left_out)
    with writer:
        _take(store, writer, todo, built, asked.progress)
        _remove(writer, todo, built)
        _read(store, writer, todo, built, asked)
    gone = set(told) - set(there)
    # only now: what is below a folder that is not remembered would never be looked at again
    _remember(store, [path for path in map(from_text, store.about.folders) if path not in gone], asked)
    with in_one_line(store.folder):
        _finish(store, built)
    outs = sorted(path for path in todo.left_out if is_below(path, told))
    built.left_out += [Problem(shown(path), todo.left_out[path].reason) for path in outs]
    return built


# What is there


def _there(told: Sequence[Path], known: Mapping[Path, Known], asked: Asked) -> list[Path]:
    """What of it is there. Raises `DataError` where a folder is not, or nothing was told."""
    if not told:
        raise DataError(f"{asked.to}: no folder named. Name one: `earmark index DIR --to {asked.to}`.")
    there = [path for path in told if _exists(path)]
    for path in told:
        if path not in there and path not in known and not asked.prune:
            what = "not there any more. Mount it, or take what is indexed below it out with `--prune`."
            raise DataError(f"{shown(path)}: {what}")
    return there


def _remember(store: Store, folders: Sequence[Path], asked: Asked) -> None:
    """Writes into index.toml what it is made of; before the work, so that a killed run is gone on with."""
    about, kept = store.about, list(dict.fromkeys(map(as_text, folders)))
    now = replace(about, folders=kept, follow_links=asked.follow_links or about.follow_links)
    if now != about:
        store.about = now
        write_about(store.folder, now)


def _outermost_first(folders: Iterable[Path]) -> list[Path]:
    return sorted(folders, key=lambda path: (len(path.parts), path))


def _name_from_outermost(walked: Walked, folders: Iterable[Path]) -> None:
    """Lets folders' names count from the outermost remembered one on, whichever was told this time, or first."""
    ordered = _outermost_first(folders)
    tops: dict[Path, Path] = {}
    for place, each in enumerate(walked.files):
        if each.below not in tops:
            above = (folder for folder in ordered if is_below(each.below, [folder]))
            tops[each.below] = next(above, each.below)
        walked.files[place] = each._replace(below=tops[each.below])


def _check_not_emptied(there: Sequence[Path], walked: Walked, todo: Plan) -> None:
    """Raises `DataError` where a folder lost all its files, and they were many: a disk that is not mounted, perhaps."""
    for folder in there:
        lost = sum(is_below(path, [folder]) for path in todo.removed)
        if lost > MANY and not any(is_below(each.path, [folder]) for each in walked.files):
            raise DataError(
                f"{shown(folder)}: holds no sound any more, and {lost:,} files below it are in the index. Mount the "
                "disk, or take them out with `--prune`."
            )


# What a table says


def _table(store: Store, asked: Asked) -> described.Table | None:
    """The table that was asked for, or that is remembered. Raises `DataError` where it is not there."""
    if asked.words is None and store.about.words.table:
        return described.read(store.about.words, remembered=True)
    return asked.table


def _describe(
    table: described.Table,
    store: Store,
    known: Mapping[Path, Known],
    walked: Walked,
    told: Sequence[Path],
    built: Built,
) -> None:
    """Gives each file that was found what the table says of it; rows may mean files elsewhere in the index too."""
    elsewhere = known.keys() - gone_of(known, walked, told).keys()
    files = dict.fromkeys([*(each.path for each in walked.files), *elsewhere])
    below = dict.fromkeys(each.below.parent if each.below == each.path else each.below for each in walked.files)
    bases = [*map(from_text, store.about.folders), *below]
    said, built.left_rows = described.said_of(table, files, bases)
    built.described = len(said)
    walked.files = [each._replace(said=said.get(each.path, each.said)) for each in walked.files]


def _remember_words(store: Store, asked: Asked) -> None:
    """Writes the table that was asked for into index.toml, before the work."""
    if asked.words is not None and asked.words != store.about.words:
        store.about = replace(store.about, words=asked.words)
        write_about(store.folder, store.about)


# What is written


class _Writer:
    """Gathers rows and commits them from time to time, and at the end however it comes."""

    def __init__(self, store: Store, written: dict[Path, Known], left_out: dict[Path, Known]) -> None:
        """`written` stands in the table `left_out` already, `left_out` is to stand there."""
        self.store, self.written, self.left_out = store, written, left_out
        self.rows: list[pa.RecordBatch] = []
        self.ids: list[str] = []
        """Whose rows are taken out, or replaced."""
        self.since = time.monotonic()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def put(self, rows: Sequence[pa.RecordBatch], file_id: str, *, changed: bool) -> None:
        """Takes the rows of a file; `changed`: in the place of those of that id."""
        self.rows += rows
        if changed:
            self.ids.append(file_id)
        self._flush_if_due()

    def remove(self, file_id: str) -> None:
        """Takes the rows of that file out."""
        self.ids.append(file_id)
        self._flush_if_due()

    def leave_out(self, path: Path, why: Known) -> None:
        """Takes down that the file holds no sound that can be read."""
        self.left_out[path] = why
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        windows = sum(batch.num_rows for batch in self.rows)
        files = max(len(self.rows), len(self.ids))
        if files >= COMMIT_FILES or windows >= COMMIT_WINDOWS or time.monotonic() - self.since > COMMIT_S:
            self.flush()

    def flush(self) -> None:
        """Commits what was gathered. Raises `DataError` where it cannot be written."""
        import pyarrow as pa

        # let go first: what failed, or was broken off, may have been committed all the same, and must not be twice
        rows, ids, self.rows, self.ids = self.rows, self.ids, [], []
        changed, self.written, self.since = self.written != self.left_out, dict(self.left_out), time.monotonic()
        if not (rows or ids or changed):
            return
        with in_one_line(self.store.folder):
            (self.store.folder / opening.UNTIDY).touch()
            if rows or ids:
                self.store.commit(pa.Table.from_batches(rows) if rows else None, ids)
            if changed:
                self.store.leave_out(self.left_out)


def _finish(store: Store, built: Built) -> None:
    """Tidies what was written, and counts.

    Earlier versions are kept for a while, so it is tidied once more by the first run after that.
    """
    untidy = store.folder / opening.UNTIDY
    if store.drop_lost_indices():
        untidy.touch()
    if untidy.exists():
        written_s = time.time() - untidy.stat().st_mtime
        prepare(store)
        store.tidy()
        if written_s > KEPT.total_seconds():
            untidy.unlink()
    built.windows = store.windows.count_rows()
    built.files = store.windows.count_rows("window = 0")


# What is done


def _take(store: Store, writer: _Writer, todo: Plan, built: Built, progress: Progress | None) -> None:
    """Gives files whose sound is known the rows of that sound; where these are not there any more, they are read."""
    for start in range(0, len(todo.taken), TAKEN_AT_ONCE):
        some = todo.taken[start : start + TAKEN_AT_ONCE]
        with in_one_line(store.folder):
            rows = store.rows({each.donor for each in some})
        for each in some:
            own = rows_for(rows, each)
            if own is None:
                todo.fresh.append(Task(each.found, each.file_id, each.changed))
                continue
            writer.put(own.to_batches(), each.file_id, changed=each.changed)
            if each.came_from is not None:
                built.moved.append((shown(each.came_from), shown(each.found.path)))
            elif each.reworded:
                built.reworded += 1
            elif each.donor == each.file_id:
                built.touched += 1
            elif each.changed:
                built.changed += 1
            else:
                built.copies += 1
        if progress:
            progress("taking over what is known", start + len(some), len(todo.taken))


def _remove(writer: _Writer, todo: Plan, built: Built) -> None:
    for path, file_id in sorted(todo.removed.items()):
        writer.remove(file_id)
        built.removed.append(shown(path))


def _read(store: Store, writer: _Writer, todo: Plan, built: Built, asked: Asked) -> None:
    """Reads and embeds what is new or changed."""
    if not todo.fresh:
        return
    if asked.progress:
        asked.progress("indexing", 0, len(todo.fresh))
    with closing(read_files(store, todo.fresh, asked.jobs)) as results:
        for done, (task, found) in enumerate(results, start=1):
            _put(store, writer, task, found, built)
            if asked.progress:
                asked.progress("indexing", done, len(todo.fresh))
            if asked.now:
                asked.now(f"{built.heard_s / 3600:.2f} h of sound")


def _put(store: Store, writer: _Writer, task: Task, found: Read | Unread | None, built: Built) -> None:
    path = task.found.path
    if isinstance(found, Read):
        writer.left_out.pop(path, None)
        rows = rows_of(found, task.file_id, task.found, store.about.dim)
        built.heard_s += found.duration_s
        built.odd += [Problem(shown(path), what) for what in found.odd]
        built.changed += task.changed
        built.indexed += not task.changed
        writer.put([rows], task.file_id, changed=task.changed)
        return
    if task.changed:
        writer.remove(task.file_id)
        built.removed.append(shown(path))
    if found is None:
        built.vanished += not task.changed
        writer.left_out.pop(path, None)
    else:
        writer.leave_out(path, Known("", task.found.stamp, found.content, found.reason))
