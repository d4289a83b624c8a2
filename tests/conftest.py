"""Fixtures for all tests. Real data is looked for under `$EARMARK_TEST_DATA` (default `../shared/data`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# the machine may be busy; derandomised, so that a failure today is a failure tomorrow
settings.register_profile("earmark", deadline=None, derandomize=True)
settings.load_profile("earmark")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory) -> None:
    """A cache of this session's own: neither what earlier ones left nor the user's."""
    os.environ["EARMARK_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; tests that need it skip, saying so, where it is missing."""
    folder = Path(os.environ.get("EARMARK_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set EARMARK_TEST_DATA")
    return folder


@pytest.fixture
def own_models(tmp_path, monkeypatch, sentence_encoder) -> Path:
    """An empty folder where models are looked for, beside the small sentence encoder, and an empty cache."""
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EARMARK_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture(scope="session")
def sentence_encoder():
    """The small sentence encoder that a Python package ships; tests that need it skip, saying so, without it."""
    from earmark.errors import DataError
    from earmark.model.text_encoders import SentenceEncoder

    try:
        return SentenceEncoder("all-MiniLM-L6-v2")
    except DataError as error:
        pytest.skip(str(error))
