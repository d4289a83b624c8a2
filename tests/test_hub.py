"""CLAP and models of sentence-transformers, tiny ones, saved and loaded by the real paths."""

import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from earmark.errors import ConfigError, DataError
from earmark.model import hub
from earmark.model.text_encoders import SentenceEncoder
from earmark.model.towers import quiet_transformers

RATE = 48_000
TEXTS = ["a dog barks", "heavy rain on a tin roof", "a crowd of people cheers and claps"]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *dict.fromkeys(" ".join(TEXTS).split())]


def tokenizer():
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
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
