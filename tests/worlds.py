"""Small made collections that several tests learn from or study."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from earmark.data.collection import Caption, Clip, Collection, VectorTable
from earmark.relevance import Rating


def vector_world(root: Path, *, clips: int = 60, seed: int = 0, rated: int = 12) -> Collection:
    """A collection whose clip and caption vectors are noisy views of one hidden vector a clip.

    Two captions a clip; `rated` captions a split with lists of six clips, rated by the true similarity.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((clips, 8))
    hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
    views = {"clip": rng.standard_normal((8, 16)), "caption": rng.standard_normal((8, 12))}
    splits = ["development"] * (clips // 2) + ["validation"] * (clips // 4)
    splits += ["evaluation"] * (clips - len(splits))
    made = [Clip(f"clip{i}", "", split) for i, split in enumerate(splits)]
    captions = [Caption(f"clip{i}#{k}", f"clip{i}", f"caption {k} of sound {i}") for i in range(clips) for k in (1, 2)]
    ratings = []
    for split in dict.fromkeys(splits):
        inside = [i for i, each in enumerate(splits) if each == split]
        for i in inside[:rated]:
            others = rng.choice([j for j in inside if j != i], size=min(5, len(inside) - 1), replace=False)
            for j in (i, *others):
                rating = float(np.clip(round(100 * float(hidden[i] @ hidden[j])), 0, 100))
                ratings.append(Rating(f"clip{i}#1", f"clip{j}", rating))
    collection = Collection(root, made, captions, ratings, name="small", kind="generated")
    collection.write()
    noise = 0.1
    VectorTable(
        tuple(clip.clip_id for clip in made),
        (hidden @ views["clip"] + noise * rng.standard_normal((clips, 16))).astype(np.float32),
    ).write(root / "clip_vectors.npz")
    own = np.repeat(hidden, 2, axis=0)
    VectorTable(
        tuple(caption.caption_id for caption in captions),
        (own @ views["caption"] + noise * rng.standard_normal((2 * clips, 12))).astype(np.float32),
    ).write(root / "caption_vectors.npz")
    return Collection.read(root)


RECIPE = """
[model]
dim = 16
[audio]
encoder = "vectors"
hidden = 32
dropout = 0.2
[text]
encoder = "vectors"
[train]
max_epochs = 6
[[objective]]
loss = "infonce"
weight = 0.7
batch = 8
[[objective]]
loss = "listnet"
weight = 0.3
temperature = 0.1
relevance = "ratings"
lists = 2
"""
"""A joint recipe for it: seconds a run."""


def tone_world(root: Path, *, clips: int = 12, seconds: float = 1.4) -> Collection:
    """A collection of real files: tones of different pitch, one caption each."""
    import soundfile

    rng = np.random.default_rng(0)
    root.mkdir(parents=True)
    made, captions = [], []
    for i in range(clips):
        t = np.arange(round(seconds * 44_100 * rng.uniform(0.5, 1))) / 44_100
        pitch = 200 * 1.4**i
        wave = 0.3 * np.sin(2 * np.pi * pitch * t) + 0.001 * rng.standard_normal(len(t))
        soundfile.write(root / f"{i}.wav", wave, 44_100)
        split = "development" if i < clips * 2 // 3 else "validation"
        made.append(Clip(f"clip{i}", f"{i}.wav", split))
        captions.append(Caption(f"clip{i}#1", f"clip{i}", f"a tone of {pitch:.0f} hertz"))
    collection = Collection(root, made, captions, name="tones", kind="generated")
    collection.write()
    return collection


NGRAM = "captions.language_model=ngram"
"""The setting of a study that looks for no language model."""
TEXTS = [
    "a dog barks",
    "heavy rain falls on a tin roof",
    "a loud car passes by on the wet road at night",
    "birds sing",
    "an old wooden door creaks and slams shut",
    "two people talk quietly in a large hall",
]


def rated_world(root: Path, *, clips: int = 24, raters: int = 3, seed: int = 0, **about: str) -> Collection:
    """Captions of known texts, without sounds, each rated with its own clip and with another, the better the longer.

    Rater k plays the sound of clip i for 1 + i + k² seconds; the first half is development, the rest validation.
    """
    rng = np.random.default_rng(seed)
    made, captions, ratings = [], [], []
    for at in range(clips):
        split = "development" if at < clips // 2 else "validation"
        made.append(Clip(f"c{at}", "", split, more={"events": str(at % 3), "odd": "x", "duration_s": f"{3 + at % 5}"}))
        text = f"{TEXTS[at % len(TEXTS)]} {at}"
        captions.append(Caption(f"t{at}", f"c{at}", text, more={"partial": "yes" if at % 4 == 0 else "no"}))
    for at in range(clips):
        words = len(captions[at].text.split())
        for rater in range(raters):
            value = float(np.clip(30 + 5 * words + rng.normal(0, 4), 0, 100))
            sure = {"sure": str(rater + at)} if rater else {}
            ratings.append(Rating(f"t{at}", f"c{at}", value, "TP", f"r{rater}", 1.0 + at + rater**2, more=sure))
        ratings.append(Rating(f"t{at}", f"c{(at + 1) % clips}", 5.0, "TN", "r0", played_s=2.0))
        ratings.append(Rating(f"t{at}", f"c{at}", 100.0, "anchor", "r0"))
    collection = Collection(root, made, captions, ratings, **{"name": "small", **about})
    collection.write()
    return Collection.read(root)


SOUNDS = """
[model]
dim = 8
[audio]
encoder = "cnn6"
weights = "none"
width = 2
[text]
encoder = "all-MiniLM-L6-v2"
[train]
max_epochs = 2
[[objective]]
loss = "infonce"
batch = 4
"""
"""A recipe for sounds and words; it needs the small sentence encoder."""


def clothos_files(texts: Path, root: Path) -> Path:
    """A folder with Clotho's and GrRel's real files under their published names."""
    root.mkdir()
    for path in (texts / "clotho_v2.1").iterdir():
        name = path.name.replace("rebuilt_metadata", "clotho_metadata").replace(".latin1", "")
        shutil.copyfile(path, root / name)
    (root / "grrel").symlink_to(texts / "clotho_relevance")
    return root
