"""CLAP and models of sentence-transformers, tiny ones, saved and loaded by the real paths."""

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from earmark.errors import ConfigError, DataError
from earmark.model import hub
from earmark.model.audio_encoders import AudioConfig, AudioEncoder
from earmark.model.text_encoders import SentenceEncoder
from earmark.model.towers import quiet_transformers

RATE = 48_000
TEXTS = ["a dog barks", "heavy rain on a tin roof", "a crowd of people cheers and claps"]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *dict.fromkeys(" ".join(TEXTS).split())]


def tokenizer():
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=24,
    )


def save_clap(folder, fused=False, seconds=10):
    """A CLAP of random weights, as published but tiny, in a folder; the model and its processor."""
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel, ClapProcessor

    torch.manual_seed(0)
    config = ClapConfig(
        text_config={
            "vocab_size": len(WORDS),
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 32,
        },
        audio_config={
            "hidden_size": 32,
            "depths": [1, 1],
            "num_attention_heads": [1, 2],
            "patch_embeds_hidden_size": 16,
            "num_hidden_layers": 2,
            "enable_fusion": fused,
        },
        projection_dim=12,
    )
    model = ClapModel(config).eval()
    with torch.no_grad():  # batch-norm that has seen something, vectors that differ
        model.audio_model.audio_encoder.batch_norm.running_mean.fill_(-30.0)
        model.audio_model.audio_encoder.batch_norm.running_var.fill_(300.0)
        for weight in (*model.text_model.parameters(), *model.audio_model.parameters()):
            weight.add_(torch.randn_like(weight) * 0.1)
    truncation = "fusion" if fused else "rand_trunc"
    processor = ClapProcessor(ClapFeatureExtractor(truncation=truncation, max_length_s=seconds), tokenizer())
    with quiet_transformers():
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return model, processor


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "fused"])
def clap(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clap")
    model, processor = save_clap(folder, fused=request.param)
    return SimpleNamespace(folder=folder, model=model, processor=processor, fused=request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    model, processor = save_clap(folder)
    return SimpleNamespace(folder=folder, model=model, processor=processor)


def sound(samples, seed=0):
    return (np.random.default_rng(seed).standard_normal(samples) * 0.1).astype(np.float32)


def copied(folder, to):
    shutil.copytree(folder, to)
    return to


@pytest.mark.case("M05")
@torch.inference_mode()
def test_clap_audio_equals_the_model_of_transformers(clap):
    tower = hub.open_audio(clap.folder)
    assert (tower.rate, tower.size, tower.longest_s) == (RATE, 12, 10.0)
    for samples in (1, 100, 512, RATE // 3, 3 * RATE, 10 * RATE):
        given = clap.processor(audio=[sound(samples)], sampling_rate=RATE, return_tensors="pt")
        if clap.fused:
            assert given["is_longer"].item()  # the processor's choice among one
            given["is_longer"] = torch.tensor([[False]])
        expected = clap.model.get_audio_features(**given).pooler_output
        torch.testing.assert_close(tower([tower.window(sound(samples))]), expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_clap_text_equals_the_model_of_transformers(clap):
    tower = hub.open_text(clap.folder)
    assert (tower.size, tower.longest) == (12, 24)
    given = clap.processor(text=TEXTS, return_tensors="pt", padding=True)
    expected = clap.model.get_text_features(**given).pooler_output
    torch.testing.assert_close(tower(tower.tokens(TEXTS)), expected, atol=1e-5, rtol=0)


@pytest.mark.case("M02")
@torch.inference_mode()
def test_batch_mates_change_nothing(clap):
    audio, text = hub.open_audio(clap.folder), hub.open_text(clap.folder)
    windows = [audio.window(sound(samples, seed)) for seed, samples in enumerate((100, 5 * RATE, 10 * RATE))]
    alone = torch.cat([audio([window]) for window in windows])
    torch.testing.assert_close(audio(windows), alone, atol=1e-5, rtol=0)
    assert (alone[0] - alone[1]).abs().max() > 1e-3
    tokens = text.tokens(TEXTS)
    torch.testing.assert_close(text(tokens), torch.cat([text([each]) for each in tokens]), atol=1e-5, rtol=0)


@pytest.mark.case("M03", "M04", "M05")
@torch.inference_mode()
def test_longer_clips_are_cut_into_windows_that_the_model_takes_whole(clap):
    tower = hub.open_audio(clap.folder)
    for samples, windows in ((10 * RATE - 1, 1), (10 * RATE, 1), (10 * RATE + 1, 2), (10 * RATE + 480, 2)):
        features = tower.read_waveform(sound(samples), RATE)
        assert len(features.windows) == windows
        assert sum(features.seconds) == pytest.approx(samples / RATE)
    vectors = tower(tower.read_waveform(sound(40 * RATE), RATE).windows)
    assert vectors.shape == (4, 12)
    assert torch.isfinite(vectors).all()


@pytest.mark.case("M01")
@torch.inference_mode()
def test_nothing_is_drawn_at_random(clap):
    before = np.random.get_state()[1].copy()  # noqa: NPY002 — the generator that the extractor draws from
    tower = hub.open_audio(clap.folder)
    windows = [tower.window(sound(10 * RATE)), tower.window(sound(RATE))]
    first = tower(windows)
    again = hub.open_audio(clap.folder)
    assert torch.equal(again([again.window(sound(10 * RATE)), again.window(sound(RATE))]), first)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert tower.front_end == again.front_end
    assert json.loads(tower.front_end)["max_length_s"] == 10


def test_both_towers_hold_the_model_once_and_learn(clap):
    audio, text = hub.open_audio(clap.folder), hub.open_text(clap.folder)
    assert not audio.training
    assert not text.training
    held = [name for tower in (audio, text) for name, _ in tower.clap.named_parameters()]
    whole = {name for name, _ in clap.model.named_parameters()} - {"logit_scale_a", "logit_scale_t"}
    assert sorted(held) == sorted(whole)
    audio.train()
    text.train()
    loss = audio([audio.window(sound(RATE, seed)) for seed in range(3)])[:, 0].sum()
    (loss + text(text.tokens(TEXTS))[:, 0].sum()).backward()
    for tower in (audio, text):
        idle = [name for name, weight in tower.named_parameters() if weight.grad is None]
        assert all("fusion_model" in name or "mel_conv2d" in name for name in idle)  # for longer clips alone
        assert any(weight.grad is not None and weight.grad.any() for weight in tower.parameters())


def test_batch_norm_learns_in_training_alone(plain):
    tower = hub.open_audio(plain.folder)
    norm = tower.clap.audio_model.audio_encoder.batch_norm
    before = norm.running_mean.clone()
    tower([tower.window(sound(RATE))])
    assert torch.equal(norm.running_mean, before)
    tower.train()
    tower([tower.window(sound(RATE))])
    assert not torch.equal(norm.running_mean, before)


@pytest.mark.case("M07")
@torch.inference_mode()
def test_long_texts_are_cut_with_one_warning(plain):
    tower = hub.open_text(plain.folder)
    with pytest.warns(UserWarning, match="2 texts are cut after 24 tokens") as seen:
        tokens = tower.tokens(["dog " * 500, "rain", "roof " * 23])
    assert len(seen) == 1
    assert [len(each) for each in tokens] == [24, 3, 24]
    assert torch.isfinite(tower(tokens)).all()


def test_what_is_a_hub_model(clap, tmp_path):
    assert hub.is_hub_model(clap.folder)
    assert hub.text_size(clap.folder) == 12
    assert not hub.is_hub_model(tmp_path / "nothing")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    assert not hub.is_hub_model(tmp_path)
    (tmp_path / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "…Transformer"}]')
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    assert not hub.is_hub_model(tmp_path)
    for broken in ("", "[1, 2]", "{", '"clap"'):
        (tmp_path / "config.json").write_text(broken)
        (tmp_path / "modules.json").write_text(broken)
        assert not hub.is_hub_model(tmp_path)


def without(folder, word):
    """Takes the weights with `word` in their names out of the folder's file."""
    from safetensors.torch import load_file, save_file

    kept = {name: value for name, value in load_file(folder / "model.safetensors").items() if word not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_weights_are_refused_not_drawn_at_random(plain, tmp_path):
    folder = copied(plain.folder, tmp_path / "clap")
    without(folder, "text_projection")
    with pytest.raises(DataError, match=r"4 weights are missing or of another shape, text_projection\.linear1\.bias"):
        hub.open_text(folder)
    hub.open_audio(folder)  # its half is whole
    without(folder, "audio_encoder.batch_norm")
    with pytest.raises(DataError, match=r"4 weights are missing.*batch_norm\.bias first"):
        hub.open_audio(folder)


def test_harmless_names_may_be_missing(plain, tmp_path):
    folder = copied(plain.folder, tmp_path / "clap")
    for word in hub.HARMLESS:
        without(folder, word)
    audio, text = hub.open_audio(folder), hub.open_text(folder)
    whole = hub.open_audio(plain.folder), hub.open_text(plain.folder)
    with torch.inference_mode():
        window = audio.window(sound(RATE))
        assert torch.equal(audio([window]), whole[0]([window]))
        assert torch.equal(text(text.tokens(TEXTS)), whole[1](text.tokens(TEXTS)))


def test_what_is_not_whole_is_refused_in_one_line(plain, tmp_path):
    from safetensors.torch import load_file

    def no_weights(folder):
        (folder / "model.safetensors").unlink()

    def pickled(folder):
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        no_weights(folder)

    def cut_short(folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:1000])

    def other_shape(folder):
        config = json.loads((folder / "config.json").read_text())
        config["projection_dim"] = 20
        (folder / "config.json").write_text(json.dumps(config))

    def odd_value(folder):
        config = json.loads((folder / "config.json").read_text())
        config["audio_config"]["hidden_size"] = config["text_config"]["hidden_size"] = "many"
        (folder / "config.json").write_text(json.dumps(config))

    def no_processor(folder):
        (folder / "processor_config.json").unlink()
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()

    for place, harm in enumerate((no_weights, pickled, cut_short, other_shape, odd_value, no_processor)):
        folder = copied(plain.folder, tmp_path / str(place))
        harm(folder)
        for opened in (hub.open_audio, hub.open_text):
            with pytest.raises(DataError, match="not a whole model") as refused:
                opened(folder)
            assert "\n" not in str(refused.value)


@pytest.mark.case("M04", "M11")
def test_an_extractor_that_does_not_fit_the_layers_is_refused(tmp_path):
    save_clap(tmp_path, seconds=30)
    with pytest.raises(DataError, match="extractor makes 3001 frames of 64 bands, its layers take 1024 frames of 64"):
        hub.open_audio(tmp_path)


def test_a_text_tower_that_tells_no_texts_apart_is_refused(plain, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = copied(plain.folder, tmp_path / "clap")
    weights = load_file(folder / "model.safetensors")
    weights["text_projection.linear1.weight"].zero_()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    hub.open_text(folder)
    with pytest.raises(DataError, match="different texts the same vector"):
        _ = SentenceEncoder(str(folder), cache=tmp_path / "cache").tower


def test_clap_as_a_sentence_encoder(plain, tmp_path):
    encoder = SentenceEncoder(str(plain.folder), cache=tmp_path)
    assert encoder.dim == 12
    given = plain.processor(text=TEXTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        expected = plain.model.get_text_features(**given).pooler_output
    np.testing.assert_allclose(encoder.encode(TEXTS), expected.numpy(), atol=1e-5)


# Models of sentence-transformers


def save_sentence_clap(folder, fused=False):
    """A tiny CLAP as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer

    save_clap(folder / "clap", fused)
    with quiet_transformers():
        model = SentenceTransformer(str(folder / "clap"), device="cpu", local_files_only=True)
        model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def save_router(folder):
    """Texts through a tiny BERT, sounds through a tiny wav2vec 2.0, then one layer for both; queries have a prompt."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Router, Transformer
    from transformers import (
        BertConfig,
        BertModel,
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2Model,
        Wav2Vec2Processor,
    )

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    letters = folder / "letters.json"
    letters.write_text(json.dumps({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "a": 5}))
    with quiet_transformers():
        BertModel(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(folder / "bert")
        tokenizer().save_pretrained(folder / "bert")
        convolutions = {"conv_dim": [8] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
        Wav2Vec2Model(Wav2Vec2Config(**sizes, **convolutions)).save_pretrained(folder / "wav2vec2")
        processor = Wav2Vec2Processor(Wav2Vec2FeatureExtractor(), Wav2Vec2CTCTokenizer(str(letters)))
        processor.save_pretrained(folder / "wav2vec2")
        text = [Transformer(str(folder / "bert")), Pooling(16)]
        audio = [Transformer(str(folder / "wav2vec2")), Pooling(16, "max"), Dense(16, 16)]
        routes = {(None, "text"): "text", (None, "audio"): "audio"}
        router = Router({"text": text, "audio": audio}, route_mappings=routes)
        model = SentenceTransformer(
            modules=[router, Dense(16, 12), Normalize()], device="cpu", prompts={"query": "the crowd "}
        )
        model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def save_omni(folder):
    """One tiny language model that reads sounds among its tokens, through a chat template: Qwen2-Audio."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2AudioConfig,
        Qwen2AudioModel,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    torch.manual_seed(0)
    marks = ["<|im_start|>", "<|im_end|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
    words = ["<pad>", "<unk>", *marks, "system", "user", *WORDS[4:]]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<|im_end|>"}
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=made, **special, additional_special_tokens=marks, model_max_length=64
    )
    config = Qwen2AudioConfig(
        audio_config={
            "model_type": "qwen2_audio_encoder",
            "num_mel_bins": 80,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "d_model": 16,
            "max_source_positions": 50,
        },
        text_config={
            "model_type": "qwen2",
            "vocab_size": len(words),
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "intermediate_size": 16,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "eos_token_id": 3,
            "bos_token_id": None,
        },
        audio_token_index=words.index("<|AUDIO|>"),
    )
    processor = Qwen2AudioProcessor(WhisperFeatureExtractor(feature_size=80, chunk_length=1), tokens)
    with quiet_transformers():
        Qwen2AudioModel(config).save_pretrained(folder / "qwen")
        processor.save_pretrained(folder / "qwen")
        modules = [Transformer(str(folder / "qwen")), Pooling(12, "lasttoken"), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return folder / "model"


@pytest.fixture(scope="module", params=["clap", "router", "omni"])
def sentence_model(request, tmp_path_factory):
    """A folder, and the model in it as sentence-transformers itself loads it."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    save = {"clap": save_sentence_clap, "router": save_router, "omni": save_omni}[request.param]
    folder = save(tmp_path_factory.mktemp("sentence"))
    with quiet_transformers():
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return SimpleNamespace(folder=folder, model=model, kind=request.param)


@torch.inference_mode()
def test_texts_as_sentence_transformers_embeds_them(sentence_model):
    assert hub.is_hub_model(sentence_model.folder)
    tower = hub.open_text(sentence_model.folder)
    assert tower.size == hub.text_size(sentence_model.folder) == 12
    assert tower.longest == (64 if sentence_model.kind == "omni" else 24)
    texts = [*TEXTS, "https://example.com/a/dog.wav"]  # a text all the same
    expected = sentence_model.model.encode_query([{"text": text} for text in texts])
    vectors = tower(tower.tokens(texts))
    np.testing.assert_allclose(vectors.numpy(), expected, atol=1e-5)
    alone = torch.cat([tower(tower.tokens([text])) for text in texts])
    torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=0)
    with pytest.warns(UserWarning, match=f"1 texts are cut after {tower.longest} tokens"):
        (long,) = tower.tokens(["dog " * 100])
    assert len(long) == tower.longest
    np.testing.assert_allclose(tower([long])[0].numpy(), sentence_model.model.encode_query("dog " * 100), atol=1e-5)


@pytest.mark.case("M02")
@torch.inference_mode()
def test_sounds_as_sentence_transformers_embeds_them(sentence_model):
    tower = hub.open_audio(sentence_model.folder)
    rates = {"clap": (48_000, 10.0), "router": (16_000, 30.0), "omni": (16_000, 1.0)}
    rate, longest = rates[sentence_model.kind]
    assert (tower.size, tower.rate, tower.longest_s) == (12, rate, longest)
    assert json.loads(tower.front_end)["sampling_rate"] == rate
    clips = [sound(samples, seed) for seed, samples in enumerate((rate, round(longest * rate), rate, rate // 2))]
    expected = [sentence_model.model.encode_document({"array": clip, "sampling_rate": rate}) for clip in clips]
    vectors = tower([tower.window(clip) for clip in clips])
    np.testing.assert_allclose(vectors.numpy(), np.stack(expected), atol=1e-5)
    short = tower([tower.window(sound(samples)) for samples in (1, 100, 512)])
    assert torch.isfinite(short).all()


def test_a_tower_of_sentence_transformers_holds_its_side_alone_and_learns(sentence_model):
    audio, text = hub.open_audio(sentence_model.folder), hub.open_text(sentence_model.folder)
    names = {name.rpartition(".")[0] for name, _ in sentence_model.model.named_parameters()}
    sides = [
        {name.removeprefix("model.").rpartition(".")[0] for name, _ in t.named_parameters()} for t in (audio, text)
    ]
    both = {"clap": {"0.model"}, "router": {"1.linear"}, "omni": names}  # CLAP's two temperatures; all of Qwen2-Audio
    assert sides[0] & sides[1] == both[sentence_model.kind]
    assert names - sides[0] - sides[1] <= {"0.sub_modules.text.0.model.pooler.dense"}  # BERT's, which nobody reads
    audio.train()
    audio([audio.window(sound(audio.rate, seed)) for seed in range(2)])[:, 0].sum().backward()
    text(text.tokens(TEXTS))[:, 0].sum().backward()
    for tower in (audio, text):
        assert any(weight.grad is not None and weight.grad.any() for weight in tower.parameters())


@pytest.mark.case("M01", "M05")
@torch.inference_mode()
def test_a_fused_clap_of_sentence_transformers_is_no_lottery(tmp_path):
    pytest.importorskip("sentence_transformers")
    folder = save_sentence_clap(tmp_path, fused=True)
    tower, same = hub.open_audio(folder), hub.open_audio(tmp_path / "clap")
    clips = [sound(48_000, seed) for seed in range(4)]
    vectors = tower([tower.window(clip) for clip in clips])
    torch.testing.assert_close(vectors, same([same.window(clip) for clip in clips]), atol=1e-5, rtol=0)


def test_half_a_model_of_sentence_transformers_is_refused(sentence_model, tmp_path):
    folder = copied(sentence_model.folder, tmp_path / "model")
    inner = folder / "audio_0_Transformer" if sentence_model.kind == "router" else folder
    without(inner, "bias")
    with pytest.raises(DataError, match="weights are missing or of another shape"):
        hub.open_audio(folder)
    (inner / "model.safetensors").rename(inner / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"pytorch_model\.bin is a pickle"):
        hub.open_audio(folder)


def test_code_of_a_models_own_is_not_run(sentence_model, tmp_path):
    folder = copied(sentence_model.folder, tmp_path / "model")
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 9, "name": "9", "path": "", "type": "own.Module"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "own.py").write_text("raise SystemExit('run')")
    for opened in (hub.open_audio, hub.open_text):
        with pytest.raises(DataError, match=r"own\.Module"):
            opened(folder)


def test_without_sentence_transformers_the_error_says_how_to_get_it(sentence_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert hub.is_hub_model(sentence_model.folder)
    assert hub.text_size(sentence_model.folder) == 12
    for opened in (hub.open_audio, hub.open_text):
        with pytest.raises(ConfigError, match=r"pip install '\.\[hub\]' in earmark's folder"):
            opened(sentence_model.folder)


def test_a_model_of_sentence_transformers_for_texts_alone_is_none(tmp_path):
    st = pytest.importorskip("sentence_transformers")
    save_router(tmp_path)
    with quiet_transformers():
        st.SentenceTransformer(str(tmp_path / "bert"), device="cpu").save(
            str(tmp_path / "text"), create_model_card=False
        )
    assert not hub.is_hub_model(tmp_path / "text")


# In a run


def test_claps_log_mels_are_varied_in_training(plain):
    tower = hub.open_audio(plain.folder)
    wave = sound(3 * RATE)
    quiet, loud = tower.window(wave), tower.window(wave * 2)
    heard = (quiet > -80) & (quiet < 20)
    torch.testing.assert_close(tower.louder(quiet, 20 * np.log10(2))[heard], loud[heard], atol=0.01, rtol=0)
    torch.manual_seed(0)
    changed = tower.augmented(quiet, "spec") != quiet
    assert 0 < changed.sum() < quiet.numel()


def test_waveforms_take_a_gain_but_no_masks(sentence_model):
    tower = hub.open_audio(sentence_model.folder)
    wave = tower.window(sound(tower.rate))
    torch.testing.assert_close(tower.louder(wave, 6.0), wave * 10**0.3)
    with pytest.raises(ConfigError, match="reads no log-mels"):
        AudioEncoder(AudioConfig(str(sentence_model.folder), augment="spec+gain"), 8)


RECIPE = """
[model]
dim = 12
[audio]
encoder = "{folder}"
train = {train}
residual = 0.1
dropout = 0.2
[text]
encoder = "{folder}"
train = {train}
residual = 0.1
[train]
max_epochs = 1
lr = 1e-2
precision = "fp32"
[[objective]]
loss = "infonce"
batch = 4
"""


@pytest.mark.parametrize("train_towers", [False, True], ids=["frozen", "fine-tuned"])
def test_clap_learns_from_a_collection_and_embeds_the_same_from_files(plain, tmp_path, train_towers):
    from worlds import tone_world

    from earmark import load
    from earmark.learn.recipe import Recipe
    from earmark.learn.train import train

    collection = tone_world(tmp_path / "tones", clips=9)
    recipe = tmp_path / "clap.toml"
    recipe.write_text(RECIPE.format(folder=plain.folder, train=str(train_towers).lower()))
    start = load(train(Recipe.read(recipe, ["train.max_epochs=0"]), collection, tmp_path / "start").run)
    texts = hub.open_text(plain.folder)
    with torch.inference_mode():
        zero_shot = torch.nn.functional.normalize(texts(texts.tokens(TEXTS)), dim=1).numpy()
    np.testing.assert_allclose(start.embed_text(TEXTS), zero_shot, atol=1e-5)  # residuals begin as what is there
    model = load(train(Recipe.read(recipe), collection, tmp_path / "run").run)
    assert any(name.startswith("audio.tower.") for name in model.state_dict()) is train_towers
    assert any(name.startswith("text.tower.") for name in model.state_dict()) is train_towers
    assert np.abs(model.embed_text(TEXTS) - zero_shot).max() > 1e-4
    clips, captions, problems = model.embed_collection(collection, collection.clips, collection.captions)
    assert not problems
    files = [collection.audio_path(clip) for clip in collection.clips]
    np.testing.assert_allclose(model.embed_audio(files), clips.vectors, atol=1e-5)
    words = model.embed_text([caption.text for caption in collection.captions])
    np.testing.assert_allclose(words, captions.vectors, atol=1e-5)
    assert not np.allclose(model.embed_audio(files[:1]), start.embed_audio(files[:1]), atol=1e-4)
