"""Files are read and embedded, by several processes where that pays; one that kills its process costs itself."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.errors import DataError
from earmark.search.plan import Task
from earmark.search.store import AT_WORK, About, Store
from earmark.search.windows import Read, Unread, content_of, read_file
from earmark.workers import interrupts_put_off, process_pool

if TYPE_CHECKING:
    from earmark.model.dual_encoder import DualEncoder

FILES_A_PROCESS, BYTES_A_PROCESS = 50, 50_000_000
"""Fewer do not pay for starting it."""
AHEAD = 4
"""Files a process that are handed in before they are wanted."""
MOST_DEATHS = 5
"""Processes that may die in one run: then it is the machine, and not a file."""
DEADLY = "the process that read it died (a fault of its decoder, or too little memory). Leave it out, or convert it."

Made = Read | Unread | None
Results = Generator[tuple[Task, Made], None, None]


def read_files(store: Store, tasks: Sequence[Task], jobs: int) -> Results:
    """What came of each file, as they are done, in `jobs` processes (0: one a core), fewer where few files are.

    Vectors do not depend on how many there are. Raises `DataError` where the model cannot be loaded, or processes die
    again and again.
    """
    jobs = min(jobs or _usual_jobs(), _paying(tasks), len(tasks))
    return _in_processes(store, tasks, jobs) if jobs > 1 else _here(store, tasks)


def _usual_jobs() -> int:
    from earmark.model.towers import best_device

    return (os.cpu_count() or 1) if best_device().type == "cpu" else 1  # one process holds the GPU


def _paying(tasks: Sequence[Task]) -> int:
    size = sum(task.found.stamp.size for task in tasks)
    return max(len(tasks) // FILES_A_PROCESS, size // BYTES_A_PROCESS, 1)


def _here(store: Store, tasks: Sequence[Task]) -> Results:
    """In this process; a file that was at work when an earlier one died is read in a process of its own."""
    from earmark.model.reading import one_thread

    marker = store.folder / AT_WORK
    was = Path(os.fsdecode(marker.read_bytes())) if marker.is_file() else None
    yield from _one_by_one(store, [task for task in tasks if task.found.path == was])
    with one_thread():
        model = _loaded(store.folder)
        for task in tasks:
            if task.found.path != was:
                marker.write_bytes(os.fsencode(task.found.path))
                yield task, _read_task(model, store.about, task)
    marker.unlink(missing_ok=True)


def _in_processes(store: Store, tasks: Sequence[Task], jobs: int) -> Results:
    coming = deque(tasks)
    deaths = 0
    while coming:
        at_work: dict[Future[Made], Task] = {}
        try:
            yield from _in_pool(store, coming, at_work, jobs, AHEAD * jobs)
        except DataError as error:
            deaths += 1
            if not isinstance(error.__cause__, BrokenProcessPool) or deaths > MOST_DEATHS:
                raise
            _loaded(store.folder)  # did it die of a model that cannot be loaded? Then this tells why
            before = deaths
            for task, found in _one_by_one(store, at_work.values()):
                deaths += isinstance(found, Unread) and found.reason == DEADLY
                yield task, found
            if deaths == before:  # too little memory for so many, perhaps
                jobs = max(1, jobs - 1)


def _in_pool(store: Store, coming: deque[Task], at_work: dict[Future[Made], Task], jobs: int, ahead: int) -> Results:
    """Takes tasks away as they are handed in, `ahead` at once; those of `at_work` have not come back yet."""
    with process_pool(jobs, _start, store.folder, store.about, doing="indexed sounds") as pool:
        while coming or at_work:
            with interrupts_put_off():  # processes are started here, and inherit it: Ctrl-C is for this one alone
                while coming and len(at_work) < ahead:
                    at_work[pool.submit(_read_in_process, coming[0])] = coming[0]
                    coming.popleft()
            done, _ = wait(at_work, return_when=FIRST_COMPLETED)
            for future in done:
                found = future.result()
                yield at_work.pop(future), found


def _one_by_one(store: Store, tasks: Iterable[Task]) -> Results:
    """What came of files of which one killed a process; it is the one at work when a process dies of it again."""
    waiting = deque(tasks)
    while waiting:
        at_work: dict[Future[Made], Task] = {}
        try:
            yield from _in_pool(store, waiting, at_work, 1, 1)
        except DataError as error:
            if not isinstance(error.__cause__, BrokenProcessPool):
                raise
            for task in at_work.values():
                yield task, _deadly(task)


def _deadly(task: Task) -> Unread | None:
    try:
        return Unread(DEADLY, content_of(task.found.path))
    except OSError:
        return None


# In each process

_worker: dict[str, Any] = {}
"""The process's own model."""


def _start(folder: Path, about: About) -> None:
    import torch

    torch.set_num_threads(1)  # the processes are the parallelism
    _worker.update(model=_loaded(folder), about=about)


def _loaded(folder: Path) -> DualEncoder:
    from earmark.model.towers import best_device
    from earmark.search.embedder import load

    return load(folder).to(best_device())


def _read_in_process(task: Task) -> Made:
    return _read_task(_worker["model"], _worker["about"], task)


def _read_task(model: DualEncoder, about: About, task: Task) -> Made:
    return read_file(model, task.found, about)
