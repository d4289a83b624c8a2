"""Processes that work for this one: they end with it, however it goes, and leave Ctrl-C to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from earmark.errors import DataError

LOOK_S = 0.5
"""Seconds between a process's looks at whether it is still wanted."""


@contextmanager
def process_pool(jobs: int, start: Callable[..., None], *arguments: Any, doing: str) -> Iterator[ProcessPoolExecutor]:
    """A pool of `jobs` new processes, each of which first calls `start(*arguments)`.

    When the block ends by an error or Ctrl-C they are ended at once. Work is handed in within `interrupts_put_off`.
    Raises `DataError` where one of them died; `doing` says what it did.
    """
    spawned = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in an unknown state
    stop = spawned.Event()
    pool = ProcessPoolExecutor(jobs, spawned, initializer=_begin, initargs=(stop, start, arguments))
    with _set_aside(signal.SIGPIPE):  # a process that is gone is an error here, and no silent end
        try:
            yield pool
        except BrokenProcessPool as error:
            raise DataError(
                f"a process that {doing} died (out of memory?). Start the command again, with fewer --jobs; what is "
                "done is kept."
            ) from error
        except BaseException:
            stop.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def interrupts_put_off() -> AbstractContextManager[None]:
    """Within the block Ctrl-C does nothing, neither here nor in processes that are started."""
    return _set_aside(signal.SIGINT)


@contextmanager
def _set_aside(number: signal.Signals) -> Iterator[None]:
    """Within the block the signal does nothing."""
    if threading.current_thread() is not threading.main_thread():  # only there are signals handled
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def _begin(stop: Any, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_when_unwanted, args=(stop,), daemon=True).start()
    start(*arguments)


def _end_when_unwanted(stop: Any) -> None:
    """Ends this process when it is told to, or the one that started it is gone."""
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive() and not stop.wait(LOOK_S):
        pass
    os._exit(1)
