"""The examples of docs/ are run as they stand, page by page, in an empty folder beside the recipes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from earmark.analyse.study import Settings
from earmark.learn.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page, tmp_path, sentence_encoder):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "earmark"  # this Python's earmark, whatever else is installed
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m earmark "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    blocks = [(kind, text) for kind, text in BLOCK.findall(page.read_text()) if kind in ("sh", "python")]
    assert blocks
    for kind, text in blocks:
        runner = ["sh", "-e", "-c"] if kind == "sh" else [sys.executable, "-c"]
        done = subprocess.run(
            [*runner, text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_the_documented_recipe_is_one_and_names_every_key():
    text = next(text for kind, text in BLOCK.findall((ROOT / "docs" / "learn.md").read_text()) if kind == "toml")
    tables = tomllib.loads(text)
    complete = Recipe.from_tables(tables, "docs/learn.md").complete()
    for name in ("model", "audio", "text", "train"):
        assert set(tables[name]) == set(complete[name])
    stated = set(tables["objective"][0]) | set(tables["objective"][1])
    assert stated == set(complete["objective"][0])
    defaults = Recipe.from_tables({"objective": [{"loss": "infonce"}]}, "defaults").complete()
    for name in ("model", "audio", "text", "train"):
        assert tables[name] == defaults[name]


def test_the_documented_settings_of_analyse_are_all_with_their_defaults():
    text = next(text for kind, text in BLOCK.findall((ROOT / "docs" / "analyse.md").read_text()) if kind == "toml")
    assert tomllib.loads(text) == asdict(Settings())


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "README.md", ROOT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
