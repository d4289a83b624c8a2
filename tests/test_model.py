from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.audio.cache import Features
from earmark.audio.decode import resampled
from earmark.audio.logmel import PAPER, least_samples
from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.errors import ConfigError, DataError
from earmark.model import cnn as cnn_module
from earmark.model import pretrained
from earmark.model.audio_encoders import AudioConfig, AudioEncoder
from earmark.model.audio_towers import OWN_CAPTIONS, load_pretrained
from earmark.model.cnn import CNNS, Cnn14
from earmark.model.dual_encoder import DualEncoder
from earmark.model.frozen import FrozenTower
from earmark.model.settings import DualEncoderConfig, Inputs, ModelConfig
from earmark.model.text_encoders import CHECKSUM, SentenceEncoder, TextConfig

SMALL = "all-MiniLM-L6-v2"


def sentence_encoder_or_skip(name: str) -> SentenceEncoder:
    try:
        return SentenceEncoder(name)
    except DataError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cnn() -> Cnn14:
    """A narrow CNN14 whose batch-norms have seen something."""
    torch.manual_seed(0)
    model = Cnn14(width=4)
    model.train()
    with torch.no_grad():
        model([torch.randn(200, 64) * 3 - 20 for _ in range(4)])
    return model.eval()


# CNN14


def test_cnn14_has_the_published_names_and_shapes():
    encoder = AudioEncoder(AudioConfig(), 300)
    shapes = {name: tuple(value.shape) for name, value in encoder.tower.state_dict().items()}
    shapes |= {name: tuple(value.shape) for name, value in encoder.head.state_dict().items()}
    assert shapes["bn0.weight"] == (64,)
    assert shapes["conv_block1.conv1.weight"] == (64, 1, 3, 3)
    assert shapes["conv_block6.conv2.weight"] == (2048, 2048, 3, 3)
    assert shapes["conv_block6.bn2.running_var"] == (2048,)
    assert shapes["fc1.weight"] == (2048, 2048)
    assert shapes["out.weight"] == (300, 2048)


@pytest.mark.parametrize("name", CNNS)
def test_few_bands_are_convolved_as_many_are(name, monkeypatch):
    torch.manual_seed(0)
    tower = CNNS[name](width=4).eval()
    clips = [torch.randn(200, 64), torch.randn(90, 64)]
    monkeypatch.setattr(cnn_module, "FEW_BANDS", 0)
    with torch.inference_mode():
        by_the_library = tower(clips)
        monkeypatch.setattr(cnn_module, "FEW_BANDS", 64)
        by_products = tower(clips)
    torch.testing.assert_close(by_products, by_the_library, atol=1e-4, rtol=1e-4)


@pytest.mark.case("M02")
@pytest.mark.parametrize("frames", [64, 65, 127, 128, 191, 300])
def test_neither_padding_nor_batch_mates_change_an_embedding(cnn, frames):
    clip, longer = torch.randn(frames, 64), torch.randn(1500, 64)
    with torch.inference_mode():
        alone = cnn([clip])[0]
        together = cnn([longer, clip, torch.randn(64, 64)])[1]
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-5)


def test_padding_enters_no_batch_statistics_in_training():
    torch.manual_seed(0)
    model = Cnn14(width=2, dropout=0).train()
    clips = [torch.randn(64, 64), torch.randn(128, 64)]
    model(clips)
    seen = model.bn0.running_mean.clone()
    expected = 0.1 * torch.cat(clips).mean(dim=0)
    torch.testing.assert_close(seen, expected, atol=1e-6, rtol=1e-5)


def test_masked_and_plain_training_agree_where_nothing_is_padded():
    torch.manual_seed(0)
    model = Cnn14(width=2, dropout=0).train()
    clips = [torch.randn(70, 64), torch.randn(70, 64)]
    plain = model(clips)
    masked = model([*clips, torch.randn(140, 64)])  # the third clip makes the first two padded
    assert plain.shape == masked[:2].shape
    model.eval()
    with torch.inference_mode():
        torch.testing.assert_close(model(clips), model([*clips, torch.randn(140, 64)])[:2], atol=1e-5, rtol=1e-5)


def test_gradients_reach_every_layer_through_the_masks():
    model = Cnn14(width=2).train()
    model([torch.randn(64, 64), torch.randn(100, 64)]).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.case("A05", "M03")
@pytest.mark.parametrize("samples", [1, 100, 1024, 44_100, 55_565, 55_566, 55_567])
def test_short_clips_are_padded_with_silence_in_the_waveform(cnn, samples):
    wave = np.random.default_rng(samples).standard_normal(samples).astype(np.float32) * 0.1
    window = cnn.window(wave)
    least = least_samples(64, 44_100, PAPER)
    padded = np.pad(wave, (0, max(0, least - samples)))
    assert len(window) >= 64
    torch.testing.assert_close(window, cnn.window(padded))
    with torch.inference_mode():
        assert torch.isfinite(cnn([window])).all()


@pytest.mark.case("A03", "A04", "M04")
def test_long_clips_are_read_in_windows_each_sample_once():
    encoder = AudioEncoder(AudioConfig(width=2), 8)
    for seconds, expected in ((30.0, [30.0]), (60.0, [30.0, 30.0]), (61.0, [30.0, 30.0, 1.0])):
        wave = np.zeros(round(seconds * 44_100), np.float32)
        assert encoder.reader.read_waveform(wave, 44_100).seconds == pytest.approx(expected)


PUBLISHED = {
    "cnn14": (2048, {"conv_block6.conv2.weight": (2048, 2048, 3, 3), "conv_block6.bn2.running_var": (2048,)}),
    "cnn10": (512, {"conv_block4.conv2.weight": (512, 512, 3, 3), "conv_block1.conv1.weight": (64, 1, 3, 3)}),
    "cnn6": (512, {"conv_block1.conv1.weight": (64, 1, 5, 5), "conv_block4.bn1.weight": (512,)}),
}
"""Size and some shapes of PANNs' published checkpoints."""


def panns_checkpoint(name: str, path: Path) -> dict[str, torch.Tensor]:
    """A made checkpoint of the published names and shapes, with what earmark has no use for too."""
    tower = CNNS[name]()
    state = {
        key: torch.rand_like(value) if value.is_floating_point() else value for key, value in tower.state_dict().items()
    }
    state |= {"fc1.weight": torch.randn(tower.size, tower.size), "fc1.bias": torch.randn(tower.size)}
    unused = {"fc_audioset.weight": torch.zeros(527, tower.size), "logmel_extractor.melW": torch.zeros(513, 64)}
    torch.save({"model": {**state, **unused}}, path)
    return state


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_panns_checkpoint_is_taken_layer_by_layer(name, tmp_path):
    state = panns_checkpoint(name, tmp_path / "published.pth")
    size, shapes = PUBLISHED[name]
    assert {key: tuple(state[key].shape) for key in shapes} == shapes
    config = AudioConfig(encoder=name, weights=str(tmp_path / "published.pth"))
    encoder = AudioEncoder(config, 300)
    load_pretrained(encoder.tower, encoder.head, config)
    assert encoder.tower.size == size
    for key, value in encoder.tower.state_dict().items():
        assert torch.equal(value, state[key])
    assert torch.equal(encoder.head.fc1.weight, state["fc1.weight"])


def test_wrong_checkpoints_are_refused(tmp_path):
    def load(name: str) -> None:
        config = AudioConfig(weights=str(tmp_path / name))
        load_pretrained(Cnn14(width=4), None, config)

    torch.save({"model": {"bn0.weight": torch.zeros(3)}}, tmp_path / "wrong.pth")
    with pytest.raises(DataError, match="missing or of another shape"):
        load("wrong.pth")
    (tmp_path / "text.pth").write_text("not a checkpoint")
    with pytest.raises(DataError, match="not a PANNs checkpoint"):
        load("text.pth")
    panns_checkpoint("cnn10", tmp_path / "other.pth")
    with pytest.raises(DataError, match="Cnn14 of 64 bands"):
        load("other.pth")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"dropout": 1.0}, "dropout"),
        ({"bridge": True}, "only with YAMNet"),
        ({"train": False, "augment": "spec"}, "frozen"),
        ({"train": False, "weights": "none"}, "stay random"),
        ({"encoder": "vectors", "residual": 0.1}, "expected the same"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        AudioEncoder(AudioConfig(**settings), 300, vector_size=5)


def test_a_frozen_tower_is_no_part_of_the_model_and_makes_one_vector_a_clip(tmp_path):
    panns_checkpoint("cnn6", tmp_path / "cnn6.pth")
    config = AudioConfig(encoder="cnn6", train=False, weights=str(tmp_path / "cnn6.pth"))
    encoder = AudioEncoder(config, 8, vector_size=512, frozen=FrozenTower(config))
    assert {name.partition(".")[0] for name, _ in encoder.named_parameters()} == {"head"}
    wave = np.random.default_rng(0).standard_normal(40 * 8000).astype(np.float32) * 0.1
    wave[30 * 8000 :] = 0.3 * np.sin(np.arange(10 * 8000) / 2)  # the second window is another sound
    found = encoder.reader.read_waveform(wave, 8000)
    assert [tuple(window.shape) for window in found.windows] == [(512,)]
    tower = encoder.reader.tower
    loud = resampled(wave, 8000, 44_100)
    with torch.inference_mode():
        parts = [tower([tower.window(part)])[0] for part in (loud[: 30 * 44_100], loud[30 * 44_100 :])]
    torch.testing.assert_close(found.windows[0], 0.75 * parts[0] + 0.25 * parts[1], atol=0, rtol=1e-3)


# Looking weights up


def test_weights_are_looked_up_path_first_and_the_error_names_every_place(tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_MODELS", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "a-model-of-mine").mkdir()
    (tmp_path / "a-model-of-mine" / "config.json").write_text("{}")
    assert pretrained.find("a-model-of-mine") == tmp_path / "a-model-of-mine"
    assert pretrained.find(str(tmp_path / "a-model-of-mine")) == tmp_path / "a-model-of-mine"
    with pytest.raises(DataError) as error:
        pretrained.find("all-mpnet-base-v2", fetch=False)
    assert str(tmp_path / "all-mpnet-base-v2") in str(error.value)
    assert "sentence-transformers/all-mpnet-base-v2" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("residual", "size"), [(0.0, ""), (0.1, " --set model.dim=384")])
def test_a_missing_model_of_texts_names_the_one_that_is_installed(tmp_path, monkeypatch, residual, size):
    monkeypatch.setenv("EARMARK_MODELS", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(pretrained.HUB, "all-mpnet-base-v2", "")
    text = TextConfig(encoder="all-mpnet-base-v2", residual=residual)
    config = DualEncoderConfig(ModelConfig(), AudioConfig(encoder=OWN_CAPTIONS), text)
    with pytest.raises(DataError) as error:
        DualEncoder.for_collection(config, Collection(tmp_path, [], []))
    assert str(error.value).endswith(f"another model of texts: --set text.encoder=all-MiniLM-L6-v2{size}.")
    assert "\n" not in str(error.value)


def test_fingerprint_follows_the_bytes(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = pretrained.fingerprint(tmp_path)
    (tmp_path / "README.md").write_text("changes nothing")
    (tmp_path / ".gitattributes").write_text("nor does this")
    assert pretrained.fingerprint(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert pretrained.fingerprint(tmp_path) != first


# Texts


def test_sentence_vectors_equal_those_of_the_proxy_data(real_data, tmp_path):
    encoder = sentence_encoder_or_skip("all-mpnet-base-v2")
    collection = Collection.read(real_data / "proxy")
    captions = collection.captions[:40]
    got = SentenceEncoder(encoder.name, cache=tmp_path).encode([caption.text for caption in captions])
    expected = collection.caption_vectors.rows([caption.caption_id for caption in captions])
    cosine = (got * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    assert cosine.min() >= 0.9999


def test_texts_come_from_the_cache_the_second_time(tmp_path, monkeypatch):
    sentence_encoder_or_skip(SMALL)
    texts = ["A dog barks.", "a dog barks", "Rain falls on a tin roof", "A dog barks."]
    first = SentenceEncoder(SMALL, cache=tmp_path).encode(texts)
    again = SentenceEncoder(SMALL, cache=tmp_path)
    monkeypatch.setattr(SentenceEncoder, "_run", None)  # would fail if it were called
    np.testing.assert_array_equal(again.encode(texts), first)
    np.testing.assert_array_equal(first[0], first[3])
    assert not np.allclose(first[0], first[1])  # case and punctuation are kept
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-6)


def test_a_text_does_not_depend_on_its_batch(tmp_path):
    sentence_encoder_or_skip(SMALL)
    alone = SentenceEncoder(SMALL, cache=tmp_path / "a").encode(["A dog barks."])
    texts = ["A dog barks.", "A long caption about a train that passes by while a bell rings and people talk " * 3]
    together = SentenceEncoder(SMALL, cache=tmp_path / "b").encode(texts)
    np.testing.assert_allclose(alone[0], together[0], atol=1e-6)


def test_a_cached_vector_is_to_the_last_bit_the_same_whatever_was_asked_with_it(tmp_path):
    sentence_encoder_or_skip(SMALL)
    texts = [" ".join(["a dog barks at", *["the rain"] * (at % 7), str(at)]) for at in range(60)]
    together = SentenceEncoder(SMALL, cache=tmp_path / "all").encode(texts)
    few = SentenceEncoder(SMALL, cache=tmp_path / "few")
    np.testing.assert_array_equal(np.concatenate([few.encode(texts[at : at + 1]) for at in range(9)]), together[:9])
    np.testing.assert_array_equal(few.encode(texts[::-1]), together[::-1])


def damaged_middle(path):
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)  # the first page is whole: it opens
    path.write_bytes(data)


def no_database(path):
    path.write_bytes(b"not a database" * 1000)


def test_a_damaged_cache_of_texts_costs_computing_them_again_and_is_told_once(tmp_path):
    sentence_encoder_or_skip(SMALL)
    texts = [f"rain on roof {at}" for at in range(40)]
    expected = SentenceEncoder(SMALL, cache=tmp_path).encode(texts)
    (path,) = tmp_path.glob("*.sqlite")
    for damage in (damaged_middle, no_database):
        damage(path)
        with pytest.warns(UserWarning, match="damaged cache of texts") as told:
            np.testing.assert_array_equal(SentenceEncoder(SMALL, cache=tmp_path).encode(texts), expected)
        assert len(told) == 1
        SentenceEncoder(SMALL, cache=tmp_path).encode(texts)  # it is whole again: nothing is told


@pytest.mark.parametrize("kept", [np.full(384, np.nan), np.zeros(383), np.full(384, 0.05)])
def test_a_cached_vector_that_is_not_what_was_kept_is_not_believed(tmp_path, kept):
    sentence_encoder_or_skip(SMALL)
    expected = SentenceEncoder(SMALL, cache=tmp_path).encode(["a dog barks"])
    (path,) = tmp_path.glob("*.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        tail = database.execute("SELECT vector FROM vectors").fetchone()[0][-CHECKSUM:]
        database.execute("UPDATE vectors SET vector = ?", (kept.astype("<f4").tobytes() + tail,))
    np.testing.assert_array_equal(SentenceEncoder(SMALL, cache=tmp_path).encode(["a dog barks"]), expected)


def test_a_text_that_utf_8_cannot_hold_is_refused_in_one_line(tmp_path):
    sentence_encoder_or_skip(SMALL)
    with pytest.raises(DataError, match=r"text 1: not UTF-8 \('caf"):
        SentenceEncoder(SMALL, cache=tmp_path).encode(["a dog", "caf\udce9"])


@pytest.mark.case("M07")
def test_long_texts_are_cut_with_one_warning(tmp_path):
    sentence_encoder_or_skip(SMALL)
    encoder = SentenceEncoder(SMALL, cache=tmp_path)
    with pytest.warns(UserWarning, match="1 texts are cut after 256 tokens"):
        vectors = encoder.encode(["word " * 600])
    assert np.isfinite(vectors).all()


@pytest.mark.case("M08")
@pytest.mark.parametrize("text", ["", " ", "\n", "\u200b", "\u00a0\t"])
def test_blank_texts_are_refused(tmp_path, text):
    sentence_encoder_or_skip(SMALL)
    with pytest.raises(DataError, match="blank"):
        SentenceEncoder(SMALL, cache=tmp_path).encode([text])


@pytest.mark.case("M09")
def test_texts_of_any_script_get_finite_vectors(tmp_path, real_data):
    sentence_encoder_or_skip(SMALL)
    lines = (real_data / "texts" / "tuxpaint_multilingual.csv").read_text().splitlines()[1:]
    texts = ["狗在叫", "🐶🔊", "xqzvbn wplk", *(line.rsplit(",", 1)[-1] for line in lines[::200])]
    vectors = SentenceEncoder(SMALL, cache=tmp_path).encode([text for text in texts if text.strip()])
    assert np.isfinite(vectors).all()


# The dual encoder


def vector_collection(tmp_path: Path, about: dict | None = None) -> Collection:
    rng = np.random.default_rng(0)
    ids = [f"clip{i}" for i in range(6)]
    collection = Collection(
        tmp_path / "vectors",
        [Clip(i, "", "development") for i in ids],
        [Caption(f"{i}#1", i, f"sound {i}") for i in ids],
        kind="proxy",
        about=about or {},
    )
    collection.write()
    VectorTable(tuple(ids), rng.standard_normal((6, 5)).astype(np.float32)).write(collection.root / "clip_vectors.npz")
    VectorTable(tuple(f"{i}#1" for i in ids), rng.standard_normal((6, 7)).astype(np.float32)).write(
        collection.root / "caption_vectors.npz"
    )
    return Collection.read(collection.root)


VECTORS = DualEncoderConfig(ModelConfig(4), AudioConfig("vectors"), TextConfig("vectors"))


def save_run(model: DualEncoder, folder: Path) -> None:
    from dataclasses import asdict

    import tomli_w

    folder.mkdir()
    model.save(folder)
    config = {
        "model": asdict(model.config.model),
        "audio": asdict(model.config.audio),
        "text": asdict(model.config.text),
    }
    (folder / "config.toml").write_text(tomli_w.dumps({**config, "inputs": asdict(model.inputs)}))


def test_vectors_are_embedded_and_a_missing_one_is_a_problem(tmp_path):
    collection = vector_collection(tmp_path)
    model = DualEncoder.for_collection(VECTORS, collection)
    clips, captions, problems = model.embed_collection(
        collection, [*collection.clips, Clip("new", "", "development")], collection.captions
    )
    assert clips.vectors.shape == (6, 4)
    assert captions.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(clips.vectors, axis=1), 1, rtol=1e-6)
    assert [str(problem) for problem in problems] == ["clip 'new': no vector in clip_vectors.npz"]


def test_a_model_of_vectors_refuses_files_and_texts_and_says_why(tmp_path):
    model = DualEncoder.for_collection(VECTORS, vector_collection(tmp_path))
    with pytest.raises(ConfigError, match="names no model"):
        model.embed_audio(tmp_path / "a.wav")
    with pytest.raises(ConfigError, match="new texts cannot be embedded"):
        model.embed_text("a dog")


def test_a_collection_that_names_its_text_model_can_be_asked_in_words(tmp_path):
    encoder = sentence_encoder_or_skip(SMALL)
    collection = vector_collection(tmp_path, {"vectors": {"caption_model": SMALL}})
    inputs = Inputs(clip_size=5, caption_size=encoder.dim, caption_model=SMALL, caption_fingerprint="0" * 32)
    model = DualEncoder(VECTORS, inputs)
    with pytest.raises(DataError, match="fingerprint"):
        model.embed_text("a dog")
    model = DualEncoder(VECTORS, replace(inputs, caption_fingerprint=encoder.fingerprint))
    assert model.embed_text(["a dog"]).shape == (1, 4)
    assert collection.about["vectors"]["caption_model"] == SMALL


@pytest.mark.case("M01", "M06", "M11", "M12")
def test_a_saved_model_gives_bit_equal_embeddings_in_another_process(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    sentence_encoder_or_skip(SMALL)
    config = DualEncoderConfig(ModelConfig(8), AudioConfig(width=2, weights="none"), TextConfig(SMALL))
    paths = []
    for name, seconds in (("a.wav", 0.4), ("b.wav", 2.0), ("c.wav", 33.0)):
        wave = 0.1 * np.random.default_rng(len(paths)).standard_normal(round(seconds * 22_050))
        soundfile.write(tmp_path / name, wave, 22_050)
        paths.append(tmp_path / name)
    collection = Collection(tmp_path / "c", [Clip("a", "../a.wav", "development")], [Caption("a#1", "a", "noise")])
    collection.write()
    model = DualEncoder.for_collection(config, collection, seed=1).eval()
    save_run(model, tmp_path / "run")
    together = model.embed_audio(paths)
    code = (
        "import sys, numpy as np, earmark; m = earmark.load(sys.argv[1]);"
        "np.savez(sys.argv[2], audio=m.embed_audio(sys.argv[3:]), one=m.embed_audio(sys.argv[3]),"
        "text=m.embed_text('A dog barks.'))"
    )
    arguments = [sys.executable, "-c", code, tmp_path / "run", tmp_path / "out.npz", *paths]
    subprocess.run(arguments, check=True)
    other = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(other["audio"], together)
    np.testing.assert_array_equal(other["text"], model.embed_text("A dog barks."))
    np.testing.assert_allclose(other["one"][0], together[0], atol=1e-5)  # alone and among longer ones
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert len({row.tobytes() for row in together}) == 3


@pytest.mark.case("A13")
def test_waveforms_need_their_rate_and_one_sound_at_several_rates_is_one_embedding(tmp_path):
    torch.manual_seed(0)
    inputs = Inputs(caption_size=4, front_end="")
    model = DualEncoder(DualEncoderConfig(ModelConfig(8), AudioConfig(width=2, weights="none"), TextConfig()), inputs)
    with pytest.raises(ConfigError, match="without its rate"):
        model.embed_audio(np.zeros(100, np.float32))

    def tone(rate: int) -> np.ndarray:
        t = np.arange(2 * rate) / rate
        return (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)

    reference = model.embed_audio(tone(44_100), rate=44_100)[0]
    for rate in (48_000, 96_000, 192_000):
        assert float(model.embed_audio(tone(rate), rate=rate)[0] @ reference) > 0.999


def test_other_front_ends_and_broken_weights_are_refused(tmp_path):
    inputs = Inputs(caption_size=4, front_end='{"rate": 1}')
    model = DualEncoder(DualEncoderConfig(ModelConfig(8), AudioConfig(width=2, weights="none"), TextConfig()), inputs)
    save_run(model, tmp_path / "run")
    with pytest.raises(DataError, match="trained on the front end"):
        DualEncoder.load(tmp_path / "run")
    save_run(DualEncoder(VECTORS, Inputs(clip_size=3, caption_size=3)), tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(DataError, match=r"does not fit config\.toml"):
        DualEncoder.load(tmp_path / "cut")
    with pytest.raises(DataError, match="not a run"):
        DualEncoder.load(tmp_path)


def test_encode_answers_as_sentence_transformers_does(tmp_path):
    encoder = sentence_encoder_or_skip(SMALL)
    config = DualEncoderConfig(ModelConfig(8), AudioConfig(width=2, weights="none"), TextConfig(SMALL))
    model = DualEncoder(config, Inputs(caption_size=encoder.dim)).eval()
    assert model.encode("a dog").shape == (8,)
    assert model.encode(["a dog", "rain"], batch_size=1, show_progress_bar=False).shape == (2, 8)
    assert isinstance(model.encode(["a dog"], convert_to_tensor=True), torch.Tensor)
    sound = {"array": np.zeros(1000, np.float32) + 0.1, "sampling_rate": 16_000}
    assert model.encode([sound, sound]).shape == (2, 8)
    with pytest.raises(ConfigError, match="among sounds"):
        model.encode([sound, "a dog"])


def test_windows_weigh_by_their_length():
    model = DualEncoder(VECTORS, Inputs(clip_size=5, caption_size=7)).eval()
    a, b = torch.randn(5), torch.randn(5)
    with torch.inference_mode():
        each = model.embed_clips([a, b]).numpy()
    mixed = model.embed_features([Features([a, b], [30.0, 10.0])])[0]
    expected = 0.75 * each[0] + 0.25 * each[1]
    np.testing.assert_allclose(mixed, expected / np.linalg.norm(expected), rtol=1e-5)


@pytest.mark.case("I03")
def test_vectors_of_another_model_are_refused_though_they_have_the_same_size(tmp_path):
    collection = vector_collection(tmp_path, {"vectors": {"clip_model": "new", "clip_fingerprint": "2"}})
    model = DualEncoder(VECTORS, Inputs(clip_size=5, caption_size=7, clip_model="old", clip_fingerprint="1"))
    with pytest.raises(DataError, match="clip_model is 'new'; the model was trained on 'old'"):
        model.embed_collection(collection, collection.clips, collection.captions)


@pytest.mark.case("M12")
@pytest.mark.parametrize("encoder", ["cnn14", "vectors"])
def test_runs_of_version_0_1_0_load(tmp_path, encoder):
    from safetensors.torch import load_file, save_file

    config = DualEncoderConfig(ModelConfig(8), AudioConfig(encoder, width=2, weights="none"), TextConfig("vectors"))
    model = DualEncoder(config, Inputs(clip_size=5, caption_size=3)).eval()
    save_run(model, tmp_path / "run")
    old = {
        name.replace("audio.tower.", "audio.")
        .replace("audio.head.fc1.", "audio.fc1.")
        .replace("head.out.", "head.")
        .replace("text.head.", "text."): value
        for name, value in load_file(tmp_path / "run" / "model.safetensors").items()
    }
    shapes = {
        "cnn14": {"audio.conv_block1.bn1.weight", "audio.fc1.weight", "audio.head.weight", "text.weight"},
        "vectors": {"audio.head.0.weight", "audio.head.3.bias", "text.bias"},
    }
    assert shapes[encoder] <= set(old)
    save_file(old, tmp_path / "run" / "model.safetensors")
    loaded = DualEncoder.load(tmp_path / "run")
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


@pytest.mark.parametrize("size", [-1, 10_000_000_000])
def test_a_runs_settings_that_were_edited_are_refused_in_one_line(tmp_path, size):
    save_run(DualEncoder(VECTORS, Inputs(clip_size=5, caption_size=7)), tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace("clip_size = 5", f"clip_size = {size}"))
    with pytest.raises(DataError, match=r"clip_size = .*as training wrote it"):
        DualEncoder.load(tmp_path / "run")


def test_equal_inputs_embed_equally_wherever_they_stand():
    torch.manual_seed(0)
    model = DualEncoder(
        DualEncoderConfig(ModelConfig(300), AudioConfig(encoder="vectors", hidden=512), TextConfig("vectors")),
        Inputs(clip_size=129, caption_size=97),
    )
    for size, embed in (
        (129, lambda x: model.embed_features([Features([each], [1.0]) for each in x])),
        (97, model.embed_text_features),
    ):
        distinct = list(torch.randn(41, size))
        vectors = [*distinct, distinct[0], distinct[3].clone(), *distinct[:6]]
        found = embed(vectors)
        np.testing.assert_array_equal(found[41:], found[[0, 3, 0, 1, 2, 3, 4, 5]])
        np.testing.assert_array_equal(found[:41], embed(distinct))
