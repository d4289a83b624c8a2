"""What is sent to us: written to a temporary file as it comes, and refused as soon as it is too much.

Nothing is held in memory but the piece that is under way, with or without a stated length; the file is gone when the
block ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from anyio import CapacityLimiter, WouldBlock, fail_after, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from earmark.audio.decode import unmixed
from earmark.errors import DataError
from earmark.web.guard import stated_length

MOST_BYTES = 100 << 20
MOST_S = 600.0
"""Seconds of sound."""
MOST_SAMPLES = 1 << 27
"""Samples of it, of all channels together: 600 s in stereo at 96 kHz are fewer."""
MOST_AT_ONCE = 16
"""Uploads that come in, or wait to be decoded, at the same time."""
AGAIN_S = 5
"""Seconds after which whoever came too many may try again."""
PATIENCE_S = 120.0
"""Seconds that an upload may take."""


@asynccontextmanager
async def upload(request: Request, most: int = MOST_BYTES, patience_s: float = PATIENCE_S) -> AsyncIterator[Path]:
    """The body of a request as a file that is there within the block.

    Raises `HTTPException` 413 where it has more than `most` bytes, 408 where it takes longer than `patience_s`,
    422 where it is empty. A length that is stated is looked at before anything is read.
    """
    if stated_length(request.headers) > most:
        raise too_large(most)
    handle, name = tempfile.mkstemp(prefix="earmark-", suffix=".upload")
    path = Path(name)
    try:
        try:
            with fail_after(patience_s):
                size = await _written(request, handle, most)
        finally:
            os.close(handle)
        if not size:
            raise HTTPException(422, "an upload of 0 bytes; expected a sound file as the body.")
        yield path
    except TimeoutError:
        raise HTTPException(408, f"the upload took more than {patience_s:g} s. Try again.") from None
    except ClientDisconnect:
        raise HTTPException(400, "the upload was broken off.") from None
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def place(places: CapacityLimiter) -> Iterator[None]:
    """One of the places for uploads within the block. Raises `HTTPException` 503 where none is free."""
    try:
        places.acquire_nowait()
    except WouldBlock:
        headers = {"retry-after": str(AGAIN_S), "connection": "close"}
        what = f"{int(places.total_tokens)} uploads are under way. Try again in {AGAIN_S} s."
        raise HTTPException(503, what, headers) from None
    try:
        yield
    finally:
        places.release()


async def _written(request: Request, handle: int, most: int) -> int:
    """Bytes of the body, once all are written."""
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_large(most)
        await to_thread.run_sync(_write_all, handle, piece)
    return size


def _write_all(handle: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(handle, left) :]


def too_large(most: int) -> HTTPException:
    """413, and the connection is closed, so that the rest is not sent."""
    what = f"more than {most / (1 << 20):g} MB. Send a smaller file." if most >= 1 << 20 else f"more than {most} bytes."
    return HTTPException(413, what, {"connection": "close"})


def check_length(path: Path, most_s: float = MOST_S) -> float:
    """Seconds of the sound, decoded block by block, no further than the bound.

    Raises `DataError` where it holds no sound, `HTTPException` 413 where it is longer than `most_s`.
    """
    try:
        with unmixed(path) as sound:
            frames = 0
            for block in sound.blocks:
                frames += len(block)
                if frames * sound.channels > MOST_SAMPLES:
                    what = f"a sound of more than {MOST_SAMPLES:,} samples in {sound.channels} channels"
                    raise HTTPException(413, f"{what}. Send the part that matters.")
                if frames > most_s * sound.rate:
                    raise HTTPException(413, f"a sound of more than {most_s:g} s. Send the part that matters.")
            return frames / sound.rate
    except DataError as error:
        raise DataError(str(error).replace(str(path), "the sound")) from error
