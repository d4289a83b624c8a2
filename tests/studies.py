"""Small studies of made sounds, and servers of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from earmark.collect.study import Item, Page, Settings, Study
from earmark.web.listen import beside

TOKEN = "an-owners-token"
CONSENT = "# Your consent\n\nYour *ratings* are kept.\n"
INSTRUCTIONS = "# What to do\n\nRate how well each sound matches the **text**.\n"


def tone(path: Path, seconds: float, hz: float = 440.0, *, level: float = 0.2, rate: int = 16_000, channels: int = 1):
    """A sound file of one tone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = level * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)
    soundfile.write(path, np.repeat(samples[:, None], channels, axis=1), rate)
    return path


def pages_of(kind: str, count: int, clips: Sequence[str], size: int, *, low: float | None = None) -> list[Page]:
    """So many pages of `size` clips each; every clip once a page."""
    made = []
    for at in range(count):
        chosen = [clips[(at * size + place) % len(clips)] for place in range(size)]
        items = tuple(
            Item(f"{kind}-{clip}", f"{clip}.wav", "TP" if place == 0 else "TN", "pool", 0.5, low, None)
            for place, clip in enumerate(chosen)
        )
        made.append(Page(f"{kind}{at}", kind, f"c-{kind}{at}", f"A {kind} of number {at}", items))
    return made


def small_study(
    root: Path,
    *,
    tasks: int = 3,
    size: int = 5,
    checks: int = 0,
    qualifications: int = 0,
    seconds: float = 0.4,
    settings: Settings | None = None,
    **more: object,
) -> Study:
    """A study of tones below `root/sounds`; qualification and check pages have one clip, any rating of 50 is right."""
    clips = [f"tone{at}" for at in range(max(size, tasks))]
    for at, clip in enumerate(clips):
        tone(root / "sounds" / f"{clip}.wav", seconds + 0.05 * at, 300 * 1.2**at, level=0.05 * (1 + at % 4))
    pages = pages_of("task", tasks, clips, size)
    pages += pages_of("check", checks, clips, 1, low=50.0)
    pages += pages_of("qualification", qualifications, clips, 1, low=50.0)
    given = settings or Settings(qualify=qualifications, check_every=1 if checks else 0, pages_a_rater=tasks)
    made = Study(
        root / "study", given, root / "sounds", "tones", "generated", tuple(pages), CONSENT, INSTRUCTIONS, **more
    )
    made.write()
    return made


@contextmanager
def serving(app) -> Iterator[str]:
    """The address of an application that is served within the block."""
    with beside(app) as address:
        yield address.rstrip("/")
