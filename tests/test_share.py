"""A run at the hub and back, by the hub's own client, and encode as sentence-transformers has it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile
import torch
from worlds import RECIPE, SOUNDS, tone_world, vector_world

import earmark
from earmark.analyse.calibrate import fit
from earmark.config import override
from earmark.errors import ConfigError, DataError
from earmark.learn.card import write_card
from earmark.learn.recipe import Recipe
from earmark.learn.run import Result
from earmark.learn.train import train
from earmark.model import encoding, share
from earmark.model.audio_encoders import AudioConfig
from earmark.model.dual_encoder import DualEncoder
from earmark.model.settings import DualEncoderConfig, Inputs, ModelConfig
from earmark.model.text_encoders import TextConfig

SMALL = "all-MiniLM-L6-v2"


def recipe(text=RECIPE, *sets):
    tables = tomllib.loads(text)
    for each in sets:
        override(tables, each)
    return Recipe.from_tables(tables, "test")


@pytest.fixture(scope="module")
def tones(tmp_path_factory, sentence_encoder):
    """A run that reads sounds and texts, and a sound."""
    folder = tmp_path_factory.mktemp("tones")
    world = tone_world(folder / "world")
    world.about["licence"] = "CC0-1.0 (generated)"
    result = train(recipe(SOUNDS), world, folder / "first run")
    wave = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
    soundfile.write(folder / "rain.wav", wave, 16_000, subtype="FLOAT")
    return SimpleNamespace(run=result.run, result=result, world=world, wave=wave, file=folder / "rain.wav")


@pytest.fixture(scope="module")
def model(tones):
    return earmark.load(tones.run)


# The hub: a small server that speaks what its client asks


class Hub(ThreadingHTTPServer):
    """Repositories in memory: {name: [{path: bytes} of each commit]}."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.repos: dict[str, list[dict[str, bytes]]] = {}
        self.private: dict[str, object] = {}
        self.large: dict[str, bytes] = {}
        self.messages: list[str] = []
        self.gated: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, name, files, message=""):
        commits = self.repos[name]
        commits.append({**(commits[-1] if commits else {}), **files})
        self.messages.append(message)

    def sha(self, name, at=-1):
        place = range(len(self.repos[name]))[at]
        return hashlib.sha1(f"{name} {place}".encode()).hexdigest()

    def files(self, name, revision):
        """(files, sha) of a branch or commit; None where there is none."""
        if revision == "main":
            return self.repos[name][-1], self.sha(name)
        return next(
            ((files, revision) for at, files in enumerate(self.repos[name]) if self.sha(name, at) == revision), None
        )


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def send(self, body=b"", status=200, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        length = headers.pop("Content_Length", len(data))
        for key, value in {"Content-Length": length, **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fail(self, status, code):
        self.send({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_PUT(self):
        data = self.body()
        self.server.large[hashlib.sha256(data).hexdigest()] = data
        self.send()

    def do_POST(self):
        path, data = unquote(self.path.partition("?")[0]), self.body()
        if self.headers.get("Authorization") != "Bearer hf_good":
            self.fail(401, "InvalidCredentials")
        elif path == "/api/repos/create":
            asked = json.loads(data)
            name = f"{asked['organization']}/{asked['name']}"
            new = name not in self.server.repos
            self.server.repos.setdefault(name, [])
            self.server.private.setdefault(name, asked.get("visibility", asked.get("private")))
            self.send({"url": f"{self.server.address}/{name}"}, 200 if new else 409)
        elif path == "/api/validate-yaml":
            self.send({"errors": [], "warnings": []})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(data)["objects"]
            upload = [{"upload": {"href": f"{self.server.address}/upload/{each['oid']}"}} for each in objects]
            both = zip(objects, upload, strict=True)
            self.send({"transfer": "basic", "objects": [{**each, "actions": how} for each, how in both]})
        elif "/preupload/" in path:
            files = [file["path"] for file in json.loads(data)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in files}
            self.send({"files": [{"path": k, "uploadMode": v, "shouldIgnore": False} for k, v in modes.items()]})
        elif "/commit/" in path:
            self.take(path.removeprefix("/api/models/").partition("/commit/")[0], data)

    def take(self, name, data):
        lines = [json.loads(line) for line in data.splitlines()]
        files = {
            each["value"]["path"]: base64.b64decode(each["value"]["content"])
            if each["key"] == "file"
            else self.server.large[each["value"]["oid"]]
            for each in lines[1:]
        }
        self.server.commit(name, files, lines[0]["value"]["summary"])
        sha = self.server.sha(name)
        self.send({"commitUrl": f"{self.server.address}/{name}/commit/{sha}", "commitOid": sha})

    def do_GET(self):
        path = unquote(self.path.partition("?")[0])
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        name, revision = (found[1], found[3] or "main") if found else (file[1], file[2])
        if name not in self.server.repos:
            return self.fail(401, "RepoNotFound")
        if name in self.server.gated:
            return self.fail(403, "GatedRepo")
        held = self.server.files(name, revision)
        if held is None:
            return self.fail(404, "RevisionNotFound")
        files, sha = held
        if file is None and found[2] == "tree":
            return self.send(
                [{"type": "file", "path": path, "size": len(data), "oid": git(data)} for path, data in files.items()]
            )
        if file is None:
            return self.send({"id": name, "sha": sha, "siblings": [{"rfilename": path} for path in files]})
        if file[3] not in files:
            return self.fail(404, "EntryNotFound")
        data = files[file[3]]
        return self.send(data, X_Repo_Commit=sha, ETag=f'"{git(data)}"')

    do_HEAD = do_GET  # noqa: N815 the server's own name


def git(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@pytest.fixture
def server():
    found = Hub()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def at_hub(server, tmp_path):
    """Runs Python with the hub's client turned to the server; gives what it printed as JSON."""

    def run(code, *arguments, endpoint=server.address, **more):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_TOKEN": "hf_good", "NO_PROXY": "127.0.0.1", **more}
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + code, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


BEGIN = """
import json, sys
from pathlib import Path
import earmark
from earmark.model.dual_encoder import DualEncoder
def told(call):
    try:
        return str(call())
    except earmark.EarmarkError as error:
        return f"{type(error).__name__} {error}"
def embedded(model, file):
    return [model.embed_text(["a tone of 200 hertz"]).tolist(), model.embed_audio(file).tolist()]
"""


def test_a_run_goes_to_the_hub_and_comes_back_the_same(tones, server, at_hub, tmp_path):
    code = """
run, file = sys.argv[1:]
url = earmark.load(run).push_to_hub("me/tones", private=True, commit_message="Tones")
again = earmark.load(run).push_to_hub("me/tones")
back = earmark.load("me/tones")
print(json.dumps([url, again, embedded(earmark.load(run), file), embedded(back, file), back.source]))
"""
    url, again, before, after, source = at_hub(code, tones.run, tones.file)
    assert url == f"{server.address}/me/tones/commit/{server.sha('me/tones', 0)}"
    assert again
    assert before == after
    assert server.messages[0] == "Tones"
    assert server.private["me/tones"] in (True, "private")
    held = server.repos["me/tones"][-1]
    assert set(held) == {"README.md", "config.toml", "model.safetensors"}
    for name in ("config.toml", "model.safetensors"):
        assert held[name] == (tones.run / name).read_bytes()
    assert 'earmark.load("me/tones")' in held["README.md"].decode()
    assert f'earmark.load("{tones.run}")' in (tones.run / "card.md").read_text()
    assert str(tmp_path / "hf") in source


def test_a_map_to_ratings_goes_along_and_fits_the_weights_there(tones, server, at_hub, tmp_path):
    run = tmp_path / "rated"
    shutil.copytree(tones.run, run)
    rng = np.random.default_rng(0)
    fit(rng.random(60), 100 * rng.random(60), np.arange(60) // 5).write(run)
    code = """
from earmark.analyse.calibrate import Calibration
earmark.load(sys.argv[1]).push_to_hub("me/rated")
folder = Path(earmark.load("me/rated").source).parent
print(json.dumps([Calibration.read(folder) == Calibration.read(Path(sys.argv[1])), Calibration.read(folder).captions]))
"""
    assert at_hub(code, run) == [True, 12]
    assert server.repos["me/rated"][-1]["calibration.json"] == (run / "calibration.json").read_bytes()


def test_a_model_from_the_hub_can_be_pushed_on_and_loaded_at_a_revision_and_offline(tones, server, at_hub):
    code = """
earmark.load(sys.argv[1]).push_to_hub("me/tones")
DualEncoder.from_pretrained("me/tones").push_to_hub("you/tones")
print(json.dumps(DualEncoder.from_pretrained("you/tones").source))
"""
    assert "you--tones" in at_hub(code, tones.run)
    readme = server.repos["you/tones"][-1]["README.md"].decode()
    assert 'earmark.load("you/tones")' in readme
    server.commit("me/tones", {"config.toml": b"[model]\ndim = 9\n"})
    code = """
first, last = (told(lambda: DualEncoder.from_pretrained("me/tones", revision=r).source) for r in (sys.argv[1], "main"))
print(json.dumps([first, last, told(lambda: DualEncoder.from_pretrained("me/tones", revision="gone"))]))
"""
    first, last, gone = at_hub(code, server.sha("me/tones", 0))
    assert server.sha("me/tones", 0) in first
    assert last.startswith("DataError")
    assert gone == "DataError me/tones: no such folder here, and not fetched: no such revision. Check it."
    code = """
print(json.dumps([told(lambda: earmark.load(name).source) for name in ("you/tones", "no/copy")]))
"""
    cached, missing = at_hub(code, HF_HUB_OFFLINE="1")
    assert "you--tones" in cached
    assert "no copy is here" in missing


def test_what_the_hub_refuses_is_told_in_one_line(tones, server, at_hub):
    server.repos |= {"me/other": [], "me/mine": [], "me/half": []}
    server.commit("me/other", {"config.json": b"{}"})
    server.commit("me/half", {"config.toml": b""})
    server.commit("me/mine", {"config.toml": b""})
    server.gated.add("me/mine")
    code = """
model = earmark.load(sys.argv[1])
calls = [
    lambda: earmark.load("no/such"), lambda: earmark.load("me/other"), lambda: earmark.load("me/half"),
    lambda: earmark.load("me/mine"), lambda: model.push_to_hub("me/x", token="hf_bad"),
    lambda: DualEncoder.from_pretrained("a b"), lambda: DualEncoder.from_pretrained("me/x--y"),
    lambda: DualEncoder.from_pretrained(sys.argv[1], revision="main"), lambda: model.push_to_hub("tones"),
]
print(json.dumps([told(each) for each in calls]))
"""
    told = at_hub(code, tones.run)
    expected = [
        "DataError no/such: no such folder here, and not fetched: no such repository, or not for you",
        "DataError me/other: at the hub, but no model of earmark (no config.toml)",
        "DataError me/half: at the hub, but no model of earmark (no model.safetensors)",
        "DataError me/mine: no such folder here, and not fetched: its owner has to let you in",
        "DataError me/x: not pushed: Client error '401 Unauthorized'",
        "DataError a b: not a run (no config.toml)",
        "DataError me/x--y: no such folder here, and not fetched: not a name at the hub",
        f"ConfigError {tones.run}: a folder, with revision = 'main'",
        "ConfigError 'tones': not a name at the hub; expected \"owner/name\".",
    ]
    for found, start in zip(told, expected, strict=True):
        assert found.startswith(start), found
        assert "\n" not in found
    assert "me/x" not in server.repos
    code = """
model = earmark.load(sys.argv[1])
print(json.dumps([told(lambda: earmark.load("me/x")), told(lambda: model.push_to_hub("me/x"))]))
"""
    away = at_hub(code, tones.run, endpoint="http://127.0.0.1:9")
    assert away[0].startswith("DataError me/x: no such folder here, and not fetched: the hub cannot be reached")
    assert away[1].startswith("DataError me/x: not pushed: ")
    assert all("\n" not in each for each in away)


def test_load_takes_a_name_in_a_folder_that_is_here_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    monkeypatch.setattr(share, "fetched", lambda *_, **__: pytest.fail("asked the hub"))
    for name in ("runs/firts", Path("no/such"), "./no", str(tmp_path / "x")):
        with pytest.raises(DataError, match="not a run"):
            earmark.load(name)


def config(audio, text, weights="pretrained", learned=False):
    return DualEncoderConfig(ModelConfig(8), AudioConfig(audio, weights, learned), TextConfig(text))


@pytest.mark.parametrize(
    ("settings", "inputs", "key"),
    [
        (config("cnn14", "/home/me/bert"), Inputs(), "text.encoder"),
        (config("cnn14", "my-bert"), Inputs(), "text.encoder"),
        (config("./clap", SMALL), Inputs(), "audio.encoder"),
        (config("vectors", SMALL), Inputs(clip_model="/runs/first"), "inputs.clip_model"),
        (config("cnn14", "vectors"), Inputs(caption_model="../bert"), "inputs.caption_model"),
        (config("cnn14", SMALL, "/home/me/cnn14.pth"), Inputs(), "audio.weights"),
    ],
)
def test_a_model_that_stands_on_this_machine_alone_stays_here(settings, inputs, key):
    with pytest.raises(ConfigError, match=f"run/config.toml: {re.escape(key)} = .*only this machine has"):
        share.check_others_can_load(settings, inputs, "run/config.toml")


def test_a_folder_of_the_name_makes_it_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    share.check_others_can_load(config("yamnet+aisfx", SMALL), Inputs(), "c")
    settings = config("laion/clap-htsat-unfused", "sentence-transformers/all-mpnet-base-v2")
    share.check_others_can_load(settings, Inputs(), "c")
    Path("laion/clap-htsat-unfused").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"audio\.encoder"):
        share.check_others_can_load(settings, Inputs(), "c")


def test_what_goes_up_without_use_is_told():
    with pytest.warns(UserWarning, match=r"audio\.weights = '/home/me/cnn14\.pth' goes up with it"):
        share.check_others_can_load(config("cnn14", SMALL, "/home/me/cnn14.pth", True), Inputs(), "c")
    with pytest.warns(UserWarning, match=r"no inputs\.clip_model"):
        share.check_others_can_load(config("vectors", SMALL), Inputs(), "c")


def test_only_a_finished_run_is_pushed(tones, tmp_path, monkeypatch):
    settings = DualEncoderConfig(ModelConfig(8), AudioConfig("vectors"), TextConfig("vectors"))
    made = DualEncoder(settings, Inputs(clip_size=3, caption_size=3, clip_model="yamnet", caption_model=SMALL))
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text("")
    with pytest.raises(ConfigError, match="not from a run's folder"):
        made.push_to_hub("me/x")
    made.source = "config.toml"
    with pytest.raises(DataError, match=r"no card\.md"):
        made.push_to_hub("me/x")
    Path("card.md").write_text("")
    with pytest.raises(DataError, match=r"no model\.safetensors"):
        made.push_to_hub("me/x")


# The card


def card_of(run):
    from huggingface_hub import ModelCard

    return ModelCard.load(run / "card.md")


def test_the_card_is_one_of_the_hubs(tones):
    from huggingface_hub import ModelCardData

    card = card_of(tones.run)
    assert isinstance(card.data, ModelCardData)
    assert card.data.library_name == "earmark"
    assert card.data.license == "cc0-1.0"
    assert card.data.datasets == ["tones"]
    assert card.data.base_model == ["sentence-transformers/all-MiniLM-L6-v2"]
    assert {"text-to-audio-retrieval", "generated"} <= set(card.data.tags)
    kept = [json.loads(line) for line in (tones.run / "log.jsonl").read_text().splitlines()][
        tones.result.best_epoch - 1
    ]
    found = {each.metric_name: each for each in card.data.eval_results}
    assert set(found) == {"val_loss of the kept epoch", "val_mAP of the kept epoch"}
    for name, metric in (("val_loss", "loss"), ("val_mAP", "map")):
        each = found[f"{name} of the kept epoch"]
        assert (each.metric_type, each.metric_value) == (metric, pytest.approx(kept[name], abs=1e-4))
        assert (each.dataset_name, each.dataset_split) == ("tones (GENERATED)", "validation")
        assert "no test result" in each.task_name


def test_the_card_says_what_was_learned_from_what(tones):
    text = " ".join(card_of(tones.run).text.split())
    for part in (
        "# first run",
        "Data: tones (GENERATED), licence CC0-1.0 (generated).",
        "Objective: infonce(captions), weight 1: 8 captioning pairs, 8 clips",
        "PANNs' CNN6 of width 2 (weights none, learned from the start)",
        "Text encoder: all-MiniLM-L6-v2 (frozen)",
        "Seed 0; 2 epochs, kept is epoch",
        "which also stopped training: no test result",
        "4 captions against 4 clips",
        f"val_loss {tones.result.best:.4f} on validation, by which the epoch was chosen",
        "Clips left out because they could not be read: 0.",
        "The sentence encoder learned from texts of the web, which may hold captions of the data.",
        "What it learned from is GENERATED",
        "Integrating Continuous and Binary Relevances",
    ):
        assert part in text, part
    assert "AudioSet" not in text
    titles = re.findall(r"^## (.+)$", card_of(tones.run).text, re.MULTILINE)
    assert titles == [
        "Model details",
        "Uses",
        "Training data",
        "Training procedure",
        "Evaluation",
        "Limitations",
        "How to cite",
    ]


def run_example(run, cwd):
    (code,) = re.findall(r"```python\n(.*?)```", card_of(run).text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_cards_example_works(tones):
    assert run_example(tones.run, tones.run.parent).startswith("[[")


def test_the_example_of_a_model_on_vectors_of_no_named_model_works(tmp_path):
    world = vector_world(tmp_path / "collection")
    result = train(recipe(), world, tmp_path / "run")
    assert "vectors that no model is named for" in card_of(result.run).text
    assert run_example(result.run, tmp_path).startswith("[[")


def carded(tmp_path, text, collection, *sets, monitor_split="validation", best=0.5):
    result = Result(tmp_path, 3, 2, "val_mAP", best, monitor_split, True, 0, [])
    write_card(recipe(text, *sets), collection, result, [])
    return card_of(tmp_path)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["audio.encoder=cnn14"], "PANNs' CNN14 (weights pretrained, fine-tuned); on it two layers (dropout 0.2)"),
        (["audio.encoder=cnn14"], "learned from AudioSet, whose sounds may overlap with the data"),
        (["audio.encoder=cnn10", "audio.weights=/home/me/x.pth"], "PANNs' CNN10 (weights x.pth, fine-tuned)"),
        (["audio.encoder=yamnet", "audio.train=false", "audio.bridge=true"], "YAMNet (weights pretrained, frozen); on"),
        (["audio.encoder=yamnet", "audio.bridge=true"], "class names, by their probabilities."),
        (
            ["audio.encoder=laion/clap", "audio.residual=0.1"],
            "clap (weights as published, fine-tuned); on it a residual",
        ),
        (["audio.encoder=laion/clap"], "What laion/clap was pretrained on may overlap"),
        (["audio.encoder=/home/me/clap"], "Audio encoder: clap (weights"),
        ([], "vectors of the collection's clip_vectors.npz, of no named model; on it"),
        ([], "Text encoder: vectors of the collection's caption_vectors.npz, of no named model (frozen)"),
        (["text.encoder=all-mpnet-base-v2", "text.train=true"], "Text encoder: all-mpnet-base-v2 (fine-tuned too)"),
        (["text.residual=0.1"], "on it a residual of scale 0.1."),
    ],
)
def test_the_card_tells_the_encoders_from_the_settings(tmp_path, sets, said):
    text = " ".join(carded(tmp_path, RECIPE, vector_world(tmp_path / "c"), *sets).text.split())
    assert said in text
    assert "/home/me" not in text


def test_proxy_and_recorded_data_are_told_apart(tmp_path):
    world = vector_world(tmp_path / "c")
    for kind, name in (("proxy", "small (PROXY)"), ("recorded", "small (recorded)")):
        world.kind = kind
        card = carded(tmp_path, RECIPE, world)
        assert name in card.text
        assert card.data.eval_results[0].dataset_name == name
        assert ("no number here is one on sound" in card.text) == (kind == "proxy")
        assert (kind in card.data.tags) == (kind == "proxy")


@pytest.mark.parametrize(
    ("licence", "known"),
    [("CC BY-NC 4.0", "cc-by-nc-4.0"), ("mit", "mit"), ("CC0-1.0 (generated)", "cc0-1.0"), ("ask us; MIT", None)],
)
def test_only_a_licence_that_the_hub_knows_is_in_the_front_matter(tmp_path, licence, known):
    world = vector_world(tmp_path / "c")
    world.about["licence"] = licence
    card = carded(tmp_path, RECIPE, world)
    assert card.data.license == known
    assert f"licence {licence}." in card.text


def test_odd_names_and_an_untrained_model_leave_the_card_whole(tmp_path):
    world = vector_world(tmp_path / "c")
    world.name = 'Aufnahmen "Süd": #1\n---\nx'
    card = carded(tmp_path, RECIPE, world, best=float("nan"))
    assert card.data.datasets == ["Aufnahmen-S-d-1-x"]
    assert card.data.eval_results is None
    assert "Nothing was measured: the model is untrained." in card.text


# encode


@pytest.fixture(scope="module")
def oracle(sentence_encoder):
    """A model of sentence-transformers."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(sentence_encoder.folder), device="cpu", local_files_only=True)


def described(answer):
    """Type, dtype and shape but for the size of the vectors."""
    if isinstance(answer, list):
        return [described(each) for each in answer]
    return type(answer), answer.dtype, answer.shape[:-1]


TWO = ["a dog barks", "rain"]
CALLS = {
    "str": ("a dog barks", {}),
    "list": (TWO, {}),
    "list of one": (TWO[:1], {}),
    "tuple": (tuple(TWO), {}),
    "array": (np.array(TWO), {}),
    "array of objects": (np.array(TWO, dtype=object), {}),
    "numpy's str": (np.array(TWO)[0], {}),
    "dict": ({"text": "a dog barks"}, {}),
    "tensor": (TWO, {"convert_to_tensor": True}),
    "one tensor": ("rain", {"convert_to_tensor": True}),
    "tensor first": (TWO, {"convert_to_tensor": True, "convert_to_numpy": True}),
    "list of tensors": (TWO, {"convert_to_numpy": False}),
    "single of no numpy": ("rain", {"convert_to_numpy": False}),
    "no inputs, listed": ([], {"convert_to_numpy": False}),
    "int8": (TWO, {"precision": "int8"}),
    "uint8": (TWO, {"precision": "uint8", "convert_to_tensor": True}),
    "binary": (TWO, {"precision": "binary"}),
    "ubinary": ("rain", {"precision": "ubinary", "convert_to_numpy": False}),
    "float32": (TWO, {"precision": "float32"}),
    "no precision": (TWO, {"precision": None}),
    "others": (TWO, {"batch_size": 1, "show_progress_bar": True, "device": "cpu", "normalize_embeddings": True}),
    "prompts": (TWO, {"prompt_name": "query", "prompt": "a: "}),
}


@pytest.mark.parametrize("call", CALLS)
def test_encode_answers_as_sentence_transformers_does(model, oracle, call):
    inputs, settings = CALLS[call]
    for name in ("encode", "encode_query", "encode_document"):
        mine, theirs = getattr(model, name)(inputs, **settings), getattr(oracle, name)(inputs, **settings)
        assert described(mine) == described(theirs)


def test_encode_is_embed_text_by_other_names(model):
    unit = model.embed_text(TWO)
    np.testing.assert_array_equal(model.encode(TWO), unit)
    np.testing.assert_array_equal(model.encode(sentences=TWO), unit)
    np.testing.assert_array_equal(model.encode(TWO, None, None, 1, False), unit)
    np.testing.assert_array_equal(model.encode(text for text in TWO), unit)
    np.testing.assert_allclose(model.encode(TWO[0]), unit[0], atol=1e-6)
    np.testing.assert_array_equal(model.encode(TWO, prompt="two: "), model.embed_text(["two: " + text for text in TWO]))
    np.testing.assert_array_equal(model.encode(TWO, prompt_name="document", device=torch.device("cpu")), unit)
    for normalize in (True, False):
        lengths = np.linalg.norm(model.encode(TWO, normalize_embeddings=normalize), axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-6)
    assert model.encode([]).shape == (0, 8)
    assert model.encode([]).dtype == np.float32
    assert model.encode([], convert_to_tensor=True).shape == (0, 8)
    assert model.encode(np.array([], dtype=str)).shape == (0, 8)


def test_truncated_rows_are_cut_and_may_be_of_unit_length_again(model):
    unit = model.encode(TWO)
    np.testing.assert_array_equal(model.encode(TWO, truncate_dim=3), unit[:, :3])
    again = model.encode(TWO, truncate_dim=3, normalize_embeddings=True)
    np.testing.assert_allclose(again, unit[:, :3] / np.linalg.norm(unit[:, :3], axis=1, keepdims=True), rtol=1e-6)
    assert model.encode(TWO[0], truncate_dim=3, convert_to_tensor=True).shape == (3,)
    np.testing.assert_array_equal(model.encode(TWO, truncate_dim=100), unit)


@pytest.mark.parametrize("precision", encoding.PRECISIONS)
def test_fewer_bits_equal_those_of_sentence_transformers(precision):
    quantization = pytest.importorskip("sentence_transformers.util.quantization")
    rows = np.random.default_rng(0).standard_normal((120, 20)).astype(np.float32)
    rows[:, 3] = 0.5
    mine, theirs = encoding.quantized(rows, precision), quantization.quantize_embeddings(rows, precision)
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(mine, theirs)


class Decoder:
    """A decoder of torchcodec, as data sets of the hub give it."""

    def __init__(self, wave, rate):
        self.wave, self.rate = wave, rate

    def get_all_samples(self):
        return SimpleNamespace(data=torch.from_numpy(np.stack([self.wave, self.wave])), sample_rate=self.rate)


def test_every_form_of_a_sound_gives_the_same_vector(model, tones):
    expected = model.embed_audio(tones.file)[0]
    waveform = {"array": tones.wave, "sampling_rate": 16_000}
    forms = [
        tones.file,
        str(tones.file),
        {"audio": str(tones.file)},
        {"audio": tones.file},
        waveform,
        {"audio": waveform},
        {**waveform, "path": "rain.wav"},
        {**waveform, "array": torch.from_numpy(tones.wave)},
        {**waveform, "array": tones.wave.tolist()},
        {**waveform, "array": np.stack([tones.wave, tones.wave], axis=1)},
        Decoder(tones.wave, 16_000),
    ]
    for form in forms:
        np.testing.assert_allclose(model.encode(form), expected, atol=1e-5)
    for batch in (1, 3, 100):
        rows = model.encode(forms, batch_size=batch, show_progress_bar=batch == 3)
        np.testing.assert_allclose(rows, np.tile(expected, (len(forms), 1)), atol=1e-5)
    half = {"array": tones.wave[::2], "sampling_rate": 8000}
    assert model.encode(np.array([waveform, half], dtype=object)).shape == (2, 8)


@pytest.mark.parametrize(
    ("inputs", "settings", "told"),
    [
        (TWO, {"output_value": "token_embeddings"}, "output_value = 'token_embeddings'"),
        (TWO, {"output_value": None}, "output_value = None"),
        (TWO, {"precision": "int4"}, "precision = 'int4'; expected float32, int8"),
        ("rain", {"precision": "int8"}, "of one vector, which has no range"),
        (TWO, {"batch_size": 0}, "batch_size = 0"),
        (TWO, {"truncate_dim": 0}, "truncate_dim = 0"),
        (TWO, {"device": ["cpu", "cpu"]}, "several processes"),
        (TWO, {"device": "no such"}, "device = 'no such'"),
        (TWO, {"pool": {}}, "several processes"),
        (TWO, {"chunk_size": 5}, "several processes"),
        (TWO, {"prompt_name": "passage"}, "prompt_name = 'passage'; expected query or document"),
        (TWO, {"task": "cluster"}, "task = 'cluster'"),
        (TWO, {"processing_kwargs": {}}, "unknown setting 'processing_kwargs'"),
        (TWO, {"normalise": True}, "unknown setting 'normalise'"),
        (None, {}, "an input of type NoneType"),
        ([1], {}, "an input of type int"),
        (b"rain", {}, "an input of type bytes"),
        ({"a", "b"}, {}, "an input of type set"),
        ([("a", "b")], {}, "an input of type tuple"),
        (np.zeros(100), {}, "a waveform without its rate"),
        ([torch.zeros(100)], {}, "a waveform without its rate"),
        ({"array": np.ones(9)}, {}, "a dict of array; expected"),
        ({}, {}, "a dict of nothing"),
        ({"role": "user", "content": "a"}, {}, "a dict of role, content"),
        ({"audio": np.ones(9)}, {}, "a waveform without its rate"),
        ({"text": "a", "audio": "b.wav"}, {}, "a dict of text, audio"),
        ("https://example.org/a%20b.wav?x=1", {}, "sounds are not fetched"),
        ([{"array": np.ones(9), "sampling_rate": 8000}, "a dog"], {}, "among sounds"),
        ({"array": np.ones(9), "sampling_rate": 8000}, {"prompt": "a"}, "prompt 'a' before sounds"),
    ],
)
def test_what_encode_cannot_do_is_refused_in_one_line(model, inputs, settings, told):
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        model.encode(inputs, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rate", ["fast", 0, None])
def test_a_rate_that_is_none_is_refused(model, rate):
    with pytest.raises((ConfigError, DataError)):
        model.encode({"array": np.ones(9), "sampling_rate": rate})


def test_the_name_of_a_sound_that_is_not_there_is_a_text_and_told(model):
    with pytest.warns(UserWarning, match=r"'gone\.wav' is no file here, and is taken as a text"):
        found = model.encode("gone.wav")
    np.testing.assert_array_equal(found, model.embed_text("gone.wav")[0])
    with pytest.raises(DataError, match="blank"):
        model.encode(["rain", " "])


def test_similarities_equal_those_of_sentence_transformers(model, oracle):
    rows = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    one, other = rows, torch.from_numpy(rows[::-1].copy())
    for a, b in ((one, other), (one[0], other), (list(one), list(other)), (one.tolist(), other), (one, one[0])):
        torch.testing.assert_close(model.similarity(a, b), oracle.similarity(a, b))
    for a, b in ((one, other), (one[0], other[0]), (list(one), list(other))):
        torch.testing.assert_close(model.similarity_pairwise(a, b), oracle.similarity_pairwise(a, b))
    assert model.similarity_fn_name == oracle.similarity_fn_name
    assert model.get_embedding_dimension() == model.get_sentence_embedding_dimension() == 8
    assert model.max_seq_length == oracle.max_seq_length


def test_semantic_search_and_its_evaluator_take_the_model(model, tones, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    clips, captions = tones.world.clips, tones.world.captions
    files = {clip.clip_id: str(tones.world.audio_path(clip)) for clip in clips}
    words, sounds = model.encode([caption.text for caption in captions]), model.encode(list(files.values()))
    hits = sentence_transformers.util.semantic_search(words, sounds, top_k=3)
    best = [max(range(len(sounds)), key=lambda at, q=q: words[q] @ sounds[at]) for q in range(len(words))]
    assert [each[0]["corpus_id"] for each in hits] == best
    evaluator = InformationRetrievalEvaluator(
        {caption.caption_id: caption.text for caption in captions},
        files,
        {caption.caption_id: {caption.clip_id} for caption in captions},
        write_csv=False,
    )
    found = evaluator(model, output_path=str(tmp_path))
    scores = words @ sounds.T
    ranks = [(row > row[at]).sum() for at, row in enumerate(scores)]
    assert found["cosine_accuracy@1"] == pytest.approx(np.mean([rank == 0 for rank in ranks]))
    assert model.model_card_data.found == [found]


@pytest.mark.case("M06")
def test_an_array_of_one_text_and_no_dimension_is_that_text(tones):
    model = earmark.load(tones.run)
    np.testing.assert_array_equal(model.encode(np.array("abc")), model.encode("abc"))
