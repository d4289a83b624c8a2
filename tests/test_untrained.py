"""Pretrained encoders as a dual encoder in which nothing was learned."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.errors import ConfigError, DataError
from earmark.model.dual_encoder import DualEncoder
from earmark.model.pretrained import find
from earmark.model.untrained import untrained_settings


@pytest.fixture(scope="module")
def untrained(sentence_encoder) -> DualEncoder:
    try:
        find("yamnet", fetch=False)
    except DataError as error:
        pytest.skip(str(error))
    return DualEncoder.for_collection(untrained_settings("yamnet", "all-MiniLM-L6-v2"), None).eval()


def test_words_are_the_sentence_encoders_own(untrained, sentence_encoder):
    texts = ["a dog barks", "rain"]
    np.testing.assert_allclose(untrained.embed_text(texts), sentence_encoder.encode(texts), atol=1e-6)


def test_a_sound_is_the_weighted_mean_of_its_classes_names(untrained, sentence_encoder):
    from earmark.model.audio_towers import class_texts

    wave = 0.3 * np.sin(2 * np.pi * 440 * np.arange(32_000) / 16_000).astype(np.float32)
    features = untrained.reader().read_waveform(wave, 16_000)
    probabilities = features.windows[0][1024:].numpy()
    expected = np.sqrt(probabilities) @ sentence_encoder.encode(class_texts(untrained.config.audio))
    found = untrained.embed_audio(wave, rate=16_000)[0]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("name", ["aisfx", "cnn14", "aisfx+yamnet"])
def test_towers_without_words_are_refused(name):
    with pytest.raises(ConfigError, match="knows no words"):
        untrained_settings(name)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="neither a run nor"):
        untrained_settings(str(tmp_path))


def test_vectors_need_a_collection():
    from earmark.model.audio_towers import AudioConfig
    from earmark.model.settings import DualEncoderConfig, ModelConfig
    from earmark.model.text_encoders import TextConfig

    config = DualEncoderConfig(ModelConfig(8), AudioConfig(encoder="vectors"), TextConfig())
    with pytest.raises(ConfigError, match="no collection"):
        DualEncoder.for_collection(config, None)
