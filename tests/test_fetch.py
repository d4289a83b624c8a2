"""Downloads from a real server on this machine, and archives, good and bad."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import py7zr
import pytest
import test_clotho as small
from typer.testing import CliRunner

from earmark import cli
from earmark.data import clotho
from earmark.data.clotho import from_publishers
from earmark.data.collection import Collection
from earmark.data.fetch import BLOCK, MARK, Remote, alone, fetch, is_whole, unpack
from earmark.errors import DataError

DATA = bytes(range(256)) * 2000
"""Half a megabyte."""


class Server(ThreadingHTTPServer):
    """Serves `files` by name, and keeps what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        """Name and first byte."""
        self.ranges = True
        self.lengths = True
        self.cuts: list[int] = []
        """How many bytes the next answers send before they close the connection."""
        self.failures: list[int] = []
        """With which status the next answers fail."""
        self.gate = threading.Event()
        """While it is not set, answers stop half-way."""
        self.gate.set()

    def remote(self, name: str, data: bytes = DATA) -> Remote:
        """A file, served from now on."""
        self.files[name] = data
        return Remote(name, f"{self.url}/{name}", hashlib.md5(data).hexdigest())


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        server, name = self.server, self.path.strip("/")
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(found[1]) if found and server.ranges else 0
        server.asked.append((name, begin))
        data = server.files.get(name, b"")
        if server.failures or not data or begin >= len(data):
            self.send_error(server.failures.pop(0) if server.failures else 416 if data else 404)
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        if server.lengths:
            self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        self._send(data[begin:])

    def _send(self, body: bytes) -> None:
        server = self.server
        if server.cuts:
            self.wfile.write(body[: server.cuts.pop(0)])
            return
        self.wfile.write(body[: len(body) // 2])
        server.gate.wait(30)
        self.wfile.write(body[len(body) // 2 :])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.gate.set()
        found.shutdown()
        thread.join()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once_and_its_bytes_are_told(server: Server, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = fetch(server.remote("a.bin"), tmp_path, progress=lambda done, all_: told.append((done, all_)))
    assert path.read_bytes() == DATA
    assert left(tmp_path) == ["a.bin"]
    assert told[-1] == (len(DATA), len(DATA))
    assert told == sorted(told)
    fetch(server.remote("a.bin"), tmp_path)
    assert server.asked == [("a.bin", 0)]


def test_a_spoiled_file_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(DATA[:-1] + b"!")
    assert fetch(server.remote("a.bin"), tmp_path).read_bytes() == DATA


def test_a_cut_connection_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    server.cuts = [12 * BLOCK, 0, 5 * BLOCK + 1]
    assert fetch(server.remote("a.bin"), tmp_path, pause=0).read_bytes() == DATA
    assert [begin for _, begin in server.asked] == [0, 12 * BLOCK, 12 * BLOCK, 17 * BLOCK]


def test_a_server_that_ignores_ranges_begins_anew(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [200_000]
    (tmp_path / "a.bin.part").write_bytes(b"of something else")
    assert fetch(server.remote("a.bin"), tmp_path, pause=0).read_bytes() == DATA
    assert len(server.asked) == 2


@pytest.mark.parametrize("begun", [b"!" * 1000, b"!" * len(DATA), b"!" * 2 * len(DATA)])
def test_what_was_begun_of_another_file_is_thrown_away(server: Server, tmp_path: Path, begun: bytes) -> None:
    (tmp_path / "a.bin.part").write_bytes(begun)
    assert fetch(server.remote("a.bin"), tmp_path).read_bytes() == DATA
    assert [start for _, start in server.asked] == [len(begun), 0]


def test_a_file_that_changes_between_two_pieces_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.bin")
    server.files["a.bin"] = b"?" * 300_000
    server.cuts = [12 * BLOCK]

    def change(done: int, _: int) -> None:
        if done == 12 * BLOCK:
            server.files["a.bin"] = DATA

    assert fetch(remote, tmp_path, pause=0, progress=change).read_bytes() == DATA
    assert [begin for _, begin in server.asked] == [0, 12 * BLOCK, 0]


def test_what_is_whole_but_not_yet_under_its_name_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(DATA)
    assert fetch(server.remote("a.bin"), tmp_path).read_bytes() == DATA
    assert server.asked == [("a.bin", len(DATA))]  # answered by 416


def test_a_wrong_sum_is_told_and_nothing_of_the_file_is_kept(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.bin")._replace(md5="0" * 32)
    found = hashlib.md5(DATA).hexdigest()
    with pytest.raises(DataError, match=rf"/a\.bin: md5 of a\.bin is {found}; expected 0{{32}}\. It is deleted"):
        fetch(remote, tmp_path)
    assert left(tmp_path) == []
    assert fetch(server.remote("a.bin"), tmp_path).read_bytes() == DATA


def test_an_answer_of_unknown_length_that_is_cut_has_a_wrong_sum(server: Server, tmp_path: Path) -> None:
    server.lengths = False
    assert fetch(server.remote("a.bin"), tmp_path).read_bytes() == DATA
    server.cuts = [1000]
    with pytest.raises(DataError, match="md5"):
        fetch(server.remote("b.bin"), tmp_path)
    assert left(tmp_path) == ["a.bin"]


def test_a_server_in_trouble_is_asked_again_but_not_for_ever(server: Server, tmp_path: Path) -> None:
    server.failures = [503, 429]
    assert fetch(server.remote("a.bin"), tmp_path, pause=0).read_bytes() == DATA
    server.cuts = [BLOCK, *[0] * 9]
    with pytest.raises(DataError, match=r"/b\.bin: cut off .*3 times in a row; 16,384 bytes have come and are kept\."):
        fetch(server.remote("b.bin"), tmp_path, tries=3, pause=0)
    server.cuts = []
    assert fetch(server.remote("b.bin"), tmp_path).read_bytes() == DATA
    assert server.asked[-1] == ("b.bin", BLOCK)


def test_a_missing_file_is_told_at_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/a\.bin: the server answers 404 Not Found; expected the file\. Check"):
        fetch(Remote("a.bin", f"{server.url}/a.bin", ""), tmp_path)
    assert server.asked == [("a.bin", 0)]
    assert left(tmp_path) == []


def test_a_server_that_is_not_there_and_an_address_that_is_none(server: Server, tmp_path: Path) -> None:
    server.server_close()
    with pytest.raises(DataError, match=r"/a: cannot be reached \(Connection refused\), 2 times in a row; 0 bytes"):
        fetch(Remote("a", f"{server.url}/a", ""), tmp_path, tries=2, pause=0)
    for url in ("ftp://127.0.0.1/a", "nowhere/a", "http:///a"):
        with pytest.raises(DataError, match=f"{url}: not an address"):
            fetch(Remote("a", url, ""), tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which is a full disk")
def test_a_full_disk_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"a\.bin\.part: cannot be written \(No space left on device\)\. Make room"):
        fetch(server.remote("a.bin"), tmp_path)


FETCH = """
import sys
from pathlib import Path
from earmark.data.fetch import Remote, alone, fetch
folder = Path(sys.argv[1])
with alone(folder):
    fetch(Remote(*sys.argv[2:]), folder)
"""


def test_a_killed_process_is_gone_on_with_and_a_second_one_keeps_off(server: Server, tmp_path: Path) -> None:
    server.gate.clear()
    remote = server.remote("a.bin", DATA * 8)
    folder, part = tmp_path / "new", tmp_path / "new" / "a.bin.part"
    first = subprocess.Popen([sys.executable, "-c", FETCH, folder, *remote])
    while not (part.exists() and part.stat().st_size > len(DATA)):
        assert first.poll() is None
        time.sleep(0.01)
    with pytest.raises(DataError, match="new: another process is fetching into it"), alone(folder):
        pass
    first.send_signal(signal.SIGKILL)
    first.wait()
    have = part.stat().st_size
    server.gate.set()
    with alone(folder):
        assert fetch(remote, folder).read_bytes() == DATA * 8
    assert server.asked == [("a.bin", 0), ("a.bin", have)]
    assert left(folder) == [".lock", "a.bin"]


# Archives


def packed(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    """An archive of members with these very names, whatever they are."""
    with py7zr.SevenZipFile(path, "w") as archive:
        for place, (name, data) in enumerate(members):
            archive.writestr(data, f"{place}")
            archive.header.files_info.files[-1]["filename"] = name
    return path


def test_odd_names_survive(tmp_path: Path) -> None:
    members = {f"development/{name}": name.encode() for name in (*small.ODD_NAMES, "a:b.wav", "-x. .wav")}
    archive = packed(tmp_path / "a.7z", [*members.items(), ("development/within/empty.wav", b"")])
    told: list[tuple[int, int]] = []
    folder = tmp_path / "development"
    assert not is_whole(folder, "abc")
    unpack(archive, folder, "abc", progress=lambda done, all_: told.append((done, all_)))
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert found == {name.removeprefix("development/"): data for name, data in members.items()} | {MARK: b"abc"}
    assert (folder / "within" / "empty.wav").read_bytes() == b""
    assert is_whole(folder, "abc")
    assert not is_whole(folder, "another")
    assert 0 < told[-1][0] <= told[-1][1] == archive.stat().st_size
    assert left(tmp_path) == ["a.7z", "development"]


def test_permissions_are_those_of_new_files_whatever_the_archive_says(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "within").mkdir(parents=True)
    for place, mode in enumerate((0o000, 0o400, 0o777)):
        (source / "within" / f"{place}.wav").touch()
        (source / "within" / f"{place}.wav").chmod(mode)
    (source / "within").chmod(0o500)
    with py7zr.SevenZipFile(tmp_path / "a.7z", "w") as opened:
        opened.writeall(source, "development")
    unpack(tmp_path / "a.7z", tmp_path / "development", "abc")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "development").rglob("*.w*")}
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    assert modes == {stat.S_IMODE((tmp_path / "file").stat().st_mode)}
    assert (tmp_path / "development" / "within").stat().st_mode == (tmp_path / "folder").stat().st_mode


BAD = [
    "../out.wav",
    "development/../out.wav",
    "development/../../out.wav",
    "/out.wav",
    "//development/out.wav",
    "evaluation/out.wav",
    "out.wav",
    "development//out.wav",
    "development/./out.wav",
    "development/..\\out.wav",
    "C:/development/out.wav",
    "./development/out.wav",
    "development/in.wav",
]


@pytest.mark.parametrize("name", BAD)
def test_members_out_of_the_folder_are_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    archive = packed(tmp_path / "a.7z", [("development/in.wav", b"in"), (name, b"out")])
    with pytest.raises(DataError, match=r"a\.7z: its member '.*(lie elsewhere|stands twice); expected files below"):
        unpack(archive, tmp_path / "development", "abc")
    assert left(tmp_path) == ["a.7z"]
    assert not Path("/out.wav").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../out", "in.wav"])
def test_links_are_refused_and_nothing_is_written(tmp_path: Path, target: str) -> None:
    source = tmp_path / "source" / "development"
    source.mkdir(parents=True)
    (tmp_path / "out").touch()
    (source / "in.wav").touch()
    (source / "link.wav").symlink_to(target)
    (tmp_path / "here").mkdir()
    with py7zr.SevenZipFile(tmp_path / "here" / "a.7z", "w") as opened:
        opened.writeall(source, "development")
    with pytest.raises(DataError, match=r"its member 'development/link\.wav' is a link"):
        unpack(tmp_path / "here" / "a.7z", tmp_path / "here" / "development", "abc")
    assert left(tmp_path / "here") == ["a.7z"]


def test_damaged_and_empty_archives_are_told_and_what_was_there_stays(tmp_path: Path) -> None:
    folder = tmp_path / "development"
    folder.mkdir()
    (folder / "before.wav").touch()
    archive = packed(tmp_path / "a.7z", [("development/a.wav", os.urandom(5000))])
    data = archive.read_bytes()
    for bad in (data[:-100], data[:500] + b"!" + data[501:], b"no archive", b""):
        archive.write_bytes(bad)
        with pytest.raises(DataError, match=r"a\.7z: damaged or not 7z \(.+\)\. Delete it, and fetch it again"):
            unpack(archive, folder, "abc")
    with pytest.raises(DataError, match=r"a\.7z: holds nothing"):
        unpack(packed(archive, []), folder, "abc")
    assert left(tmp_path) == ["a.7z", "development"]
    assert left(folder) == ["before.wav"]


# Clotho


@pytest.fixture
def files(server: Server, tmp_path: Path) -> list[Remote]:
    """The small published world, served: tables, and an archive of sounds a split."""
    source = tmp_path / "source"
    for split in clotho.SPLITS:
        small.publish(source, split)
    tables = [server.remote(path.name, path.read_bytes()) for path in sorted(source.rglob("*.csv"))]
    archives = []
    for split in clotho.SPLITS:
        archive = tmp_path / f"clotho_audio_{split}.7z"
        with py7zr.SevenZipFile(archive, "w") as opened:
            opened.writeall(source / "audio" / split, split)
        archives.append(server.remote(archive.name, archive.read_bytes()))
    return tables + archives


def made(root: Path, files: list[Remote]) -> Collection:
    """The collection that is fetched, which reads back as it was made."""
    found, _ = from_publishers(root, files=files, expected=small.SMALL)
    again = Collection.read(root)
    again.problems = found.problems
    assert again == found
    assert left(root / "published") == sorted([".lock", *clotho.SPLITS, *(f.name for f in files if ".csv" in f.name)])
    assert all(found.audio_path(clip).is_file() for clip in found.clips)
    assert {clip.path.rpartition("/")[0] for clip in found.clips} == {f"published/{s}" for s in clotho.SPLITS}
    return found


def test_the_published_files_are_those_of_the_facts_and_a_mirrors_lie_below_it() -> None:
    every = clotho.published()
    assert len(every) == len({remote.name for remote in every}) == len({remote.md5 for remote in every}) == 21
    assert every[0].url == "https://zenodo.org/record/4783391/files/clotho_captions_development.csv?download=1"
    assert every[-1].url.endswith("/4783391/files/clotho_audio_evaluation.7z?download=1")
    assert sum("/data/relevance_data/" in remote.url for remote in every) == 3
    tables = clotho.published(sounds=False, mirror="http://here/below/")
    assert [remote.name for remote in tables] == [remote.name for remote in every[:18]]
    assert {remote.url for remote in tables} == {f"http://here/below/{remote.name}" for remote in tables}


def test_the_fetched_collection_is_that_of_the_folder(server: Server, files: list[Remote], tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    from_publishers(tmp_path / "out", files=files, expected=small.SMALL, progress=lambda *what: told.append(what))
    shutil.rmtree(tmp_path / "out")
    found = made(tmp_path / "out", files)
    local, _ = clotho.from_folder(tmp_path / "source", tmp_path / "local", expected=small.SMALL)
    assert [clip.more for clip in found.clips] == [clip.more for clip in local.clips]
    assert (found.captions, found.ratings) == (local.captions, local.ratings)
    stages = list(dict.fromkeys(what for what, _, _ in told))
    assert stages[:2] == ["fetching tables", "fetching clotho_audio_development.7z, MB"]
    assert all(0 <= done <= all_ for _, done, all_ in told)


def test_a_finished_collection_and_a_strange_folder_are_refused(
    server: Server, files: list[Remote], tmp_path: Path
) -> None:
    made(tmp_path / "out", files)
    (tmp_path / "strange" / "published").mkdir(parents=True)
    server.asked.clear()
    for folder in ("out", "strange", "source"):
        with pytest.raises(DataError, match=f"{folder}: is there already; expected nothing or an empty folder"):
            from_publishers(tmp_path / folder, files=files, expected=small.SMALL)
    assert server.asked == []


def test_a_missing_part_is_named_and_the_others_are_kept(server: Server, files: list[Remote], tmp_path: Path) -> None:
    lost = server.files.pop("clotho_audio_validation.7z")
    with pytest.raises(DataError, match=r"/clotho_audio_validation\.7z: the server answers 404"):
        from_publishers(tmp_path / "out", files=files, expected=small.SMALL)
    assert left(tmp_path / "out") == ["published"]
    server.files["clotho_audio_validation.7z"] = lost
    server.asked.clear()
    made(tmp_path / "out", files)
    assert [name for name, _ in server.asked] == ["clotho_audio_validation.7z", "clotho_audio_evaluation.7z"]


def test_where_nothing_could_be_fetched_nothing_is_left(server: Server, files: list[Remote], tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(DataError, match="404"):
        from_publishers(tmp_path / "out", files=files, expected=small.SMALL)
    assert not (tmp_path / "out").exists()


def test_what_a_killed_run_left_half_is_done_again(server: Server, files: list[Remote], tmp_path: Path) -> None:
    """Half an unpacked folder aside, one in its place, an archive that was not yet deleted, half the tables."""
    made(tmp_path / "out", files)
    place = tmp_path / "out" / "published"
    (tmp_path / "out" / "clips.csv").unlink()
    (tmp_path / "out" / ".tables.part").mkdir()
    (tmp_path / "out" / ".tables.part" / "clips.csv").touch()
    (place / ".validation-x.part" / "validation").mkdir(parents=True)
    (place / "validation" / MARK).unlink()
    (place / "validation" / "same.wav").unlink()
    (place / "clotho_audio_validation.7z").write_bytes(server.files["clotho_audio_validation.7z"])
    (place / "clotho_audio_evaluation.7z").write_bytes(server.files["clotho_audio_evaluation.7z"])
    server.asked.clear()
    made(tmp_path / "out", files)
    assert server.asked == []
    assert left(tmp_path / "out") == ["captions.csv", "clips.csv", "collection.toml", "published", "ratings.csv"]


def test_without_sounds_only_tables_are_fetched(server: Server, files: list[Remote], tmp_path: Path) -> None:
    found, report = from_publishers(tmp_path / "out", files=files[:-3], expected=small.SMALL)
    assert {clip.path for clip in found.clips} == {""}
    assert len(found.ratings) == 3 * 34
    assert len(server.asked) == 18
    assert sum("clotho_audio" in what for what in report.missing) == 3


def test_the_command_fetches_and_prints_table_1(
    server: Server, files: list[Remote], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = {remote.name: remote.md5 for remote in files}

    def of_small(pattern: str) -> tuple[str, tuple[str, str, str]]:
        first, second, third = (sums[pattern.format(split)] for split in clotho.SPLITS)
        return pattern, (first, second, third)

    monkeypatch.setattr(clotho, "PARTS", {part: of_small(pattern) for part, (pattern, _) in clotho.PARTS.items()})
    monkeypatch.setattr(clotho, "SOUNDS", of_small(clotho.SOUNDS[0]))
    monkeypatch.setitem(from_publishers.__kwdefaults__, "expected", small.SMALL)  # type: ignore[arg-type]
    for options, asked in (["--without-sounds"], 18), ([], 21):
        server.asked.clear()
        arguments = ["data", "clotho", str(tmp_path / f"out{asked}"), "--mirror", f"{server.url}/", *options]
        done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert len(server.asked) == asked
        assert "clotho (recorded)" in done.stdout
        assert "Table 1" in done.stdout
        assert "18 / 2" in done.stdout
        assert ("not there: validation: sounds" in done.stdout) == bool(options)


def test_from_goes_without_what_fetches(tmp_path: Path) -> None:
    for option in (["--without-sounds"], ["--mirror", "http://127.0.0.1"]):
        done = CliRunner().invoke(cli.app, ["data", "clotho", str(tmp_path / "out"), "--from", str(tmp_path), *option])
        assert "--from fetches nothing" in str(done.exception)
