"""`earmark collect invite`, `forget`, `serve` and `rehearse` as commands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import requests
from studies import small_study
from typer.testing import CliRunner

from earmark.cli import app
from earmark.collect.flow import Flow
from earmark.collect.plan import Plan
from earmark.collect.pool import make_study
from earmark.collect.store import Store, store_of
from earmark.collect.study import Study
from earmark.data.soundscapes import generate


@pytest.fixture
def study(tmp_path):
    return small_study(tmp_path)


def run(*arguments) -> str:
    """What a command prints, or the one line that it is refused with."""
    done = CliRunner().invoke(app, ["collect", *map(str, arguments)])
    return done.stdout if done.exception is None else str(done.exception)


def test_invitations_are_addresses_and_let_one_in_each(study):
    lines = run("invite", study.folder, 3, "--address", "https://study.example.org/").split()
    assert len(set(lines)) == 3
    tokens = [re.fullmatch(r"https://study\.example\.org/\?invite=([\w-]+)", line)[1] for line in lines]
    store = Store.open(store_of(study.folder))
    flow = Flow(study, store)
    assert len({flow.enter(invite=token)[0] for token in tokens}) == 3
    assert flow.enter(invite=tokens[0])[0] == flow.enter(invite=tokens[0])[0]
    store.close()


def test_invitations_to_an_open_study_are_remarked_on(study):
    assert "note: the study is open to all" in CliRunner().invoke(app, ["collect", "invite", str(study.folder)]).stderr
    settings = replace(study.settings, entry="invited")
    replace(study, settings=settings).write()
    assert CliRunner().invoke(app, ["collect", "invite", str(study.folder)]).stderr == ""


@pytest.mark.parametrize("address", ["", "notanaddress", "http://h/?a=1", "ftp://h/", "https://h/study/", "https:///x"])
def test_an_invitation_needs_an_address(study, address):
    assert "expected the host where the study is served" in run("invite", study.folder, "--address", address)


def test_forgetting_somebody_unknown_is_told(study):
    assert "no rater has this id" in run("forget", study.folder, "nobody")


def test_forgetting_says_what_is_gone(study):
    store = Store.open(store_of(study.folder))
    rater, _ = Flow(study, store).enter(platform={"PROLIFIC_PID": "person-1"})
    store.close()
    assert rater in run("forget", study.folder, "person-1")
    assert "no rater has this id" in run("forget", study.folder, "person-1")


def test_before_anybody_submitted_a_page_the_commands_that_read_answers_say_so(tmp_path):
    plan = Plan(captions=3, similar=0, random=2, page=3)
    study = make_study(generate(tmp_path / "sounds", clips=12), tmp_path / "study", plan)
    Store.open(store_of(study.folder)).close()  # as `serve` leaves it
    for command in (("agreement",), ("export", "--to", tmp_path / "out")):
        assert run(*command, study.folder) == (
            f"{study.folder}: no rating counts; nobody has submitted a page yet. The owner's page tells how far "
            f"listeners are; answers of a rehearsal are in --store {study.folder / 'rehearsal.db'}."
        )


@pytest.mark.parametrize("command", ["serve", "invite", "forget"])
def test_in_80_columns_help_is_whole(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert "…" not in CliRunner().invoke(app, ["collect", command, "--help"]).stdout


def test_another_store_is_the_one_that_is_named(study, tmp_path):
    place = tmp_path / "other.db"
    token = run("invite", study.folder, "--store", place).partition("invite=")[2].strip()
    store = Store.open(place)
    rater, _ = Flow(study, store).enter(invite=token)
    store.close()
    assert not store_of(study.folder).exists()
    assert rater in run("forget", study.folder, rater, "--store", place)


def test_a_rater_is_forgotten_after_the_sounds_are_gone(study):
    store = Store.open(store_of(study.folder))
    rater, _ = Flow(study, store).enter(platform={"PROLIFIC_PID": "person-1"})
    store.close()
    shutil.rmtree(study.collection)
    assert rater in run("forget", study.folder, "person-1")
    assert "no rater has this id" in run("forget", study.folder, "person-1")


@pytest.mark.parametrize("name", ["https://study.example.org", "host:443", ""])
def test_a_name_is_a_host_alone(study, name):
    assert "expected a host's name alone" in run("serve", study.folder, "--name", name)


@pytest.mark.parametrize("token", [b"", b"q7#", b"7letter", b"\xff\xfe\xfd-secret"])
def test_a_damaged_token_is_not_served_nor_shown(study, token):
    (study.folder / "owner.token").write_bytes(token)
    said = run("serve", study.folder, "--port", "0")
    assert "owner.token" in said
    assert not token or token.decode("latin-1") not in said


def test_a_served_study_ends_with_all_answers_in_one_file(study):
    command = [sys.executable, "-m", "earmark", "collect", "serve", str(study.folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            listeners, owner = (process.stdout.readline().split()[-1] for _ in range(2))
            entered = requests.post(f"{listeners}api/enter", json={"invite": "", "platform": {}}, timeout=30)
            assert list(entered.cookies.keys()) == [study.cookie]
            assert requests.get(owner, timeout=30).ok
            assert requests.get(owner.partition("?")[0], timeout=30).status_code == 401
            rebound = requests.get(f"{listeners}api/study", headers={"host": "evil.example"}, timeout=30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, -signal.SIGTERM)
        finally:
            process.kill()
    assert rebound.status_code == 421  # only this machine's own names are answered
    kept = store_of(study.folder)
    assert (study.folder / "owner.token").stat().st_mode & 0o077 == 0
    left = kept.with_name(kept.name + "-wal")
    assert not left.exists() or not left.stat().st_size


def test_a_rehearsal_goes_on_without_a_sound_that_is_none(study):
    items = {item.clip_id: item for page in study.pages for item in page.items}
    clips = [f"{clip},{item.path},all" for clip, item in items.items()]
    captions = [f"{page.caption_id},{page.items[0].clip_id},{page.text}" for page in study.pages]
    for name, rows in (("clips", ["clip_id,path,split", *clips]), ("captions", ["caption_id,clip_id,text", *captions])):
        (study.collection / f"{name}.csv").write_text("\n".join(rows) + "\n")
    broken = study.pages[0].items[0]
    study.sound(broken).write_bytes(b"not a sound")
    done = CliRunner().invoke(app, ["collect", "rehearse", str(study.folder), "--raters", "2"])
    asked = sum(item.clip_id != broken.clip_id for page in study.pages for item in page.items)
    assert f"{asked * 2} ratings" in done.stdout, done.stderr
    assert f"{broken.path}: " in done.stderr


def test_a_rehearsal_that_fails_leaves_nothing(study):
    for sound in study.collection.glob("*.wav"):
        sound.unlink()
    assert "sound" in run("rehearse", study.folder)
    assert not [each for each in study.folder.iterdir() if "rehears" in each.name or each.name.startswith(".")]


def test_every_server_of_a_study_knows_its_listeners_and_none_of_another_does(study, tmp_path):
    assert Study.read(study.folder).cookie == study.cookie
    assert small_study(tmp_path / "other").cookie != study.cookie
